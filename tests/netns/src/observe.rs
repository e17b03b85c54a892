//! `ashway trace` and `ashway capture` as tests run them.

use std::io::{BufRead, BufReader, Read};
use std::process::{ChildStderr, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ashway_api::answer;
use ashway_rig::{Node, Process};
use rustix::process::Signal;
use serde_json::Value;

use crate::node::PATIENCE;

/// What the thread that observes is called (its name is cut at 15 characters).
const THREAD: &str = "ashway-observe";

/// A command that observes.
#[derive(Debug)]
pub struct Observing {
    process: Process,
    errors: BufReader<ChildStderr>,
}

impl Observing {
    /// Starts it, and waits until the node observes.
    ///
    /// # Errors
    ///
    /// If it ends before; with what it said.
    pub fn start(mut command: Command) -> Result<Self> {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = Process::spawn(command)?;
        let errors = process.child().stderr.take().context("no standard error")?;
        let mut errors = BufReader::new(errors);
        let mut said = String::new();
        while !said.contains("observing") {
            if errors.read_line(&mut said)? == 0 {
                bail!("it does not observe: {said}");
            }
        }
        Ok(Self { process, errors })
    }

    /// The process.
    #[must_use]
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Waits for its end; what it has written to standard output, and to standard
    /// error since it began.
    ///
    /// # Errors
    ///
    /// If it does not end in time, or fails.
    pub fn finish(mut self) -> Result<(String, String)> {
        let mut output = String::new();
        let stdout = self.process.child().stdout.take();
        stdout
            .context("no standard output")?
            .read_to_string(&mut output)?;
        let mut errors = String::new();
        self.errors.read_to_string(&mut errors)?;
        match self.process.wait(PATIENCE)? {
            Some(status) if status.success() => Ok((output, errors)),
            other => bail!("{other:?}: {output}{errors}"),
        }
    }

    /// Interrupts it, as Ctrl-C does, and waits for its end.
    ///
    /// # Errors
    ///
    /// As [`finish`](Self::finish).
    pub fn interrupt(self) -> Result<(String, String)> {
        self.process.signal(Signal::INT)?;
        self.finish()
    }
}

/// The events of a stream, one a line, as documents.
///
/// # Panics
///
/// If a line is none of which its type says everything.
#[must_use]
pub fn documents(stream: &str) -> Vec<Value> {
    let read = |line: &str| {
        let document = serde_json::from_str(line)?;
        answer::exact::<answer::Event>(&document)?;
        Ok::<_, anyhow::Error>(document)
    };
    let lines = stream.lines();
    lines
        .map(|line| read(line).unwrap_or_else(|why| panic!("{why}: {line}")))
        .collect()
}

/// Whether the node observes now.
#[must_use]
pub fn observes(node: &Node) -> bool {
    let tasks = format!("/proc/{}/task", node.id());
    let tasks = std::fs::read_dir(tasks).into_iter().flatten().flatten();
    tasks
        .map(|task| std::fs::read_to_string(task.path().join("comm")).unwrap_or_default())
        .any(|name| name.trim() == THREAD)
}

/// How soon an observation ends whose client is gone.
pub const SOON: Duration = Duration::from_secs(1);
