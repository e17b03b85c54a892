//! A node that some ordinary process runs, and its folder.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

use ashway_netns::node::{Lines, run, until};
use ashway_rig::{Signal, ashway};
use serde_json::Value;

/// A node that some ordinary process runs, in namespaces or not.
pub(crate) struct Plain {
    pub(crate) node: Lines,
    pub(crate) folder: Folder,
    /// What it said before it was ready.
    pub(crate) said: String,
}

impl Plain {
    pub(crate) fn start(config: &str, through: &[&str]) -> Self {
        let folder = Folder::new();
        let command = folder.run(config, through);
        let (mut node, mut said) = (Lines::start(command).unwrap(), String::new());
        loop {
            let line = node.hear().unwrap();
            if line.starts_with("ready") {
                break;
            }
            said += &line;
            said.push('\n');
        }
        Self { node, folder, said }
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(ashway().unwrap());
        let socket = self.folder.path("control.sock");
        command.args(words).arg("--socket").arg(socket);
        command
    }

    pub(crate) fn ask(&self, words: &[&str]) -> Output {
        run(&mut self.command(words))
    }

    pub(crate) fn status(&self) -> Value {
        serde_json::from_slice(&self.ask(&["status", "-j"]).stdout).unwrap()
    }

    pub(crate) fn at_rest(&self) -> Value {
        until("the ledgers close", || {
            let status = self.status();
            let paths = status["paths"].as_array().unwrap();
            paths
                .iter()
                .all(|path| path["balanced"] == true)
                .then_some(status)
        })
    }

    pub(crate) fn stop(&mut self) {
        self.node.process().signal(Signal::TERM).unwrap();
        while self.node.hear().is_ok() {}
        assert!(!self.folder.path("control.sock").exists());
    }
}

/// A folder that goes with the test.
pub(crate) struct Folder(std::path::PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("ashway-ladder-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir(&folder).unwrap();
        // For an ordinary user, too.
        fs::set_permissions(&folder, Permissions::from_mode(0o777)).unwrap();
        Self(folder)
    }

    pub(crate) fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.join(name)
    }

    /// `ashway run` of a configuration here, started by way of this.
    pub(crate) fn run(&self, config: &str, through: &[&str]) -> Command {
        let file = self.path("node.toml");
        fs::write(&file, config).unwrap();
        let ashway = ashway().unwrap();
        let mut command = match through {
            [] => Command::new(ashway),
            [first, rest @ ..] => {
                let mut command = Command::new(first);
                command.args(rest).arg(ashway);
                command
            }
        };
        command.arg("run").arg(&file);
        command.arg("--socket").arg(self.path("control.sock"));
        command
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
