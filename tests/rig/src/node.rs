//! `ashway run` in host B, as a test sees it: started, asked, stopped.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ashway_api::answer;

use crate::{Process, Rig, Signal, ashway};

/// How long a node may take to be ready, and to end after SIGTERM. Generous: a
/// loaded machine must not fail a test.
const PATIENCE: Duration = Duration::from_secs(30);

/// A node that is not started yet.
#[derive(Debug)]
pub struct NodeBuilder<'rig> {
    rig: &'rig Rig,
    config: String,
    binary: Option<PathBuf>,
    wrapper: Vec<OsString>,
    args: Vec<OsString>,
}

impl<'rig> NodeBuilder<'rig> {
    pub(crate) fn new(rig: &'rig Rig, config: String) -> Self {
        Self {
            rig,
            config,
            binary: None,
            wrapper: Vec::new(),
            args: Vec::new(),
        }
    }

    /// Adds an argument to `ashway run CONFIG`.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Takes another binary than [`ashway`].
    #[must_use]
    pub fn binary(mut self, path: impl Into<PathBuf>) -> Self {
        self.binary = Some(path.into());
        self
    }

    /// Starts the node through another program that ends by exec, for instance
    /// `["setpriv", "--bounding-set=-perfmon"]`.
    #[must_use]
    pub fn through<S: Into<OsString>>(mut self, wrapper: impl IntoIterator<Item = S>) -> Self {
        self.wrapper = wrapper.into_iter().map(Into::into).collect();
        self
    }

    /// Starts the node and waits for the line `ready` on its output.
    ///
    /// # Errors
    ///
    /// If it ends before, or is not ready in time; with what it printed.
    pub fn start(self) -> Result<Node> {
        let node = self.launch()?;
        node.wait_for_line(|line| line.starts_with("ready"))
            .context("the node is not ready")?;
        Ok(node)
    }

    /// Starts the node without waiting, for one that is meant to fail.
    ///
    /// # Errors
    ///
    /// If the program or its folder cannot be made.
    pub fn launch(self) -> Result<Node> {
        static NODES: AtomicU32 = AtomicU32::new(0);
        let number = NODES.fetch_add(1, Ordering::Relaxed);
        let folder = Folder(std::env::temp_dir().join(format!("{}-{number}", self.rig.name())));
        fs::create_dir(&folder.0)
            .with_context(|| format!("cannot make `{}`", folder.0.display()))?;
        let config = folder.0.join("node.toml");
        fs::write(&config, &self.config)?;
        let socket = folder.0.join("control.sock");

        let binary = match self.binary {
            Some(path) => path,
            None => ashway()?,
        };
        let mut command = match self.wrapper.split_first() {
            Some((first, rest)) => {
                let mut command = self.rig.b().command(first);
                command.args(rest).arg(&binary);
                command
            }
            None => self.rig.b().command(&binary),
        };
        command.arg("run").arg(&config);
        command.arg("--socket").arg(&socket).args(self.args);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());

        let mut process = Process::spawn(command).context("cannot start the node")?;
        let output = Output::default();
        let child = process.child();
        output.collect(child.stdout.take().context("no output")?);
        output.collect(child.stderr.take().context("no output")?);
        Ok(Node {
            process,
            output,
            binary,
            config,
            socket,
            _folder: folder,
        })
    }
}

/// A running node; killed on drop.
#[derive(Debug)]
pub struct Node {
    // Dropped in this order: the process goes before its folder.
    process: Process,
    output: Output,
    binary: PathBuf,
    config: PathBuf,
    socket: PathBuf,
    _folder: Folder,
}

impl Node {
    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Path of its configuration file.
    #[must_use]
    pub fn config(&self) -> &Path {
        &self.config
    }

    /// Path of its control socket.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Everything it has printed so far, both streams, line by line.
    #[must_use]
    pub fn output(&self) -> String {
        self.output.text()
    }

    /// Waits for a line that pleases `is_it`, also among those already printed.
    ///
    /// # Errors
    ///
    /// If the node ends or 30 s pass before; with what it printed.
    pub fn wait_for_line(&self, is_it: impl Fn(&str) -> bool) -> Result<String> {
        self.output.wait_for(is_it)
    }

    /// An `ashway` command for this node, run outside the namespaces: these
    /// words, then `--socket`.
    #[must_use]
    pub fn command<S: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(&self.binary);
        command.args(words).arg("--socket").arg(&self.socket);
        command
    }

    /// What `ashway status -j` prints.
    ///
    /// # Errors
    ///
    /// If the command fails, or if its output is not a status of which the type says
    /// everything.
    pub fn status(&self) -> Result<serde_json::Value> {
        let output = self.command(["status", "-j"]).output()?;
        if !output.status.success() {
            let why = String::from_utf8_lossy(&output.stderr);
            bail!("`ashway status -j` failed: {}", why.trim());
        }
        let status = serde_json::from_slice(&output.stdout);
        let status = status.context("`ashway status -j` printed no JSON")?;
        answer::exact::<answer::Status>(&status)?;
        Ok(status)
    }

    /// Sends it a signal.
    ///
    /// # Errors
    ///
    /// As kill(2).
    pub fn signal(&self, signal: Signal) -> Result<()> {
        Ok(self.process.signal(signal)?)
    }

    /// Waits until it ends by itself; [`output`](Self::output) is then whole.
    ///
    /// # Errors
    ///
    /// If it still runs after 30 s; with what it printed.
    pub fn wait(&mut self) -> Result<ExitStatus> {
        match self.process.wait(PATIENCE)? {
            Some(status) => {
                // What it printed last may still be in the pipes.
                let _ = self.output.wait_for(|_| false);
                Ok(status)
            }
            None => bail!("the node still runs; it printed:\n{}", self.output()),
        }
    }

    /// Stops it by SIGTERM and waits for its end.
    ///
    /// # Errors
    ///
    /// If it does not end in time, or not with exit code 0; with what it printed.
    pub fn stop(mut self) -> Result<()> {
        self.signal(Signal::TERM)?;
        let status = self.wait()?;
        if !status.success() {
            bail!(
                "the node ended with {status}; it printed:\n{}",
                self.output()
            );
        }
        Ok(())
    }

    /// Kills it by SIGKILL: it cannot clean up.
    pub fn kill(self) {
        drop(self);
    }
}

/// A folder that is removed on drop.
#[derive(Debug)]
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The lines of one or more streams, in the order they came.
#[derive(Clone, Debug, Default)]
struct Output(Arc<(Mutex<Lines>, Condvar)>);

#[derive(Debug, Default)]
struct Lines {
    lines: Vec<String>,
    open_streams: usize,
}

impl Output {
    /// Reads `stream` to its end in a thread of its own.
    fn collect(&self, stream: impl Read + Send + 'static) {
        self.update(|state| state.open_streams += 1);
        let output = self.clone();
        std::thread::spawn(move || {
            let mut stream = BufReader::new(stream);
            let mut line = Vec::new();
            while stream.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
                let text = String::from_utf8_lossy(&line).trim_end().to_owned();
                output.update(|state| state.lines.push(text));
                line.clear();
            }
            output.update(|state| state.open_streams -= 1);
        });
    }

    fn update(&self, change: impl FnOnce(&mut Lines)) {
        let (state, changed) = &*self.0;
        change(&mut state.lock().unwrap_or_else(PoisonError::into_inner));
        changed.notify_all();
    }

    fn text(&self) -> String {
        let state = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.lines.join("\n")
    }

    fn wait_for(&self, is_it: impl Fn(&str) -> bool) -> Result<String> {
        let (state, changed) = &*self.0;
        let end = Instant::now() + PATIENCE;
        let mut seen = 0;
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(line) = state.lines[seen..].iter().find(|line| is_it(line)) {
                return Ok(line.clone());
            }
            seen = state.lines.len();
            let left = end.saturating_duration_since(Instant::now());
            if state.open_streams == 0 || left.is_zero() {
                let why = if left.is_zero() {
                    "in time"
                } else {
                    "before its end"
                };
                bail!(
                    "no such line {why}; it printed:\n{}",
                    state.lines.join("\n")
                );
            }
            state = changed
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_a_line_that_came_before_or_comes_after() {
        let output = Output::default();
        let (reader, mut writer) = std::io::pipe().unwrap();
        output.collect(reader);
        std::io::Write::write_all(&mut writer, b"starting\nready: 1 path\n").unwrap();
        for _ in 0..2 {
            let line = output.wait_for(|line| line.starts_with("ready")).unwrap();
            assert_eq!(line, "ready: 1 path");
        }
        drop(writer);
        let error = output.wait_for(|line| line == "never").unwrap_err();
        assert!(error.to_string().contains("before its end"), "{error}");
    }
}
