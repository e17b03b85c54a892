//! Busy-loop processes that compete for the CPUs.

use std::io;
use std::process::Command;

use crate::Process;

/// Busy loops, free to run on every CPU; killed on drop.
#[derive(Debug)]
pub struct Hogs(Vec<Process>);

impl Hogs {
    /// Starts `count` of them.
    ///
    /// # Errors
    ///
    /// If a process cannot be made.
    pub fn start(count: usize) -> io::Result<Self> {
        let hogs: io::Result<_> = (0..count)
            .map(|_| {
                let mut command = Command::new("sh");
                command.args(["-c", "while :; do :; done"]);
                Process::spawn(command)
            })
            .collect();
        hogs.map(Self)
    }

    /// Their process ids.
    #[must_use]
    pub fn ids(&self) -> Vec<u32> {
        self.0.iter().map(Process::id).collect()
    }
}
