//! A program of `apps/programs` as an ordinary one (`peers/native_main.c`).

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// The built program.
#[derive(Clone, Debug)]
pub struct Native(PathBuf);

impl Native {
    /// The program of this name, if it was built.
    #[must_use]
    pub fn find(folder: &Path, name: &str) -> Option<Self> {
        let file = folder.join(name);
        file.is_file().then_some(Self(file))
    }

    /// Verdict and message afterwards, for each message in order.
    ///
    /// # Errors
    ///
    /// If it does not run, or answers too little.
    pub fn answer(&self, messages: &[Vec<u8>]) -> Result<Vec<(u32, Vec<u8>)>> {
        let mut answers = &self.run(&["answer"], messages)?[..];
        let mut next = |len: usize| {
            let (bytes, rest) = answers
                .split_at_checked(len)
                .context("it answers too little")?;
            answers = rest;
            Ok::<_, anyhow::Error>(bytes.to_vec())
        };
        let answer = |message: &Vec<u8>| {
            let verdict = next(4)?[..].try_into()?;
            Ok((u32::from_le_bytes(verdict), next(message.len())?))
        };
        messages.iter().map(answer).collect()
    }

    /// ns per call on one message.
    pub(super) fn time(&self, message: &[u8], repeat: u32) -> Result<f64> {
        let answer = self.run(&["time", &repeat.to_string()], &[message.to_vec()])?;
        let answer = String::from_utf8(answer)?;
        answer
            .trim()
            .parse()
            .with_context(|| format!("it says `{answer}`"))
    }

    fn run(&self, args: &[&str], messages: &[Vec<u8>]) -> Result<Vec<u8>> {
        let shown = self.0.display();
        let mut child = Command::new(&self.0)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start `{shown}`"))?;
        let mut stdin = child.stdin.take().context("no pipe")?;
        let bytes: Vec<u8> = messages
            .iter()
            .flat_map(|message| [&(message.len() as u32).to_le_bytes()[..], message].concat())
            .collect();
        let output = std::thread::scope(|scope| {
            // It answers while it reads: one pipe could fill up before the other.
            let writer = scope.spawn(move || stdin.write_all(&bytes));
            let output = child.wait_with_output()?;
            match writer.join() {
                Ok(written) => written?,
                Err(panic) => std::panic::resume_unwind(panic),
            }
            Ok::<_, anyhow::Error>(output)
        })?;
        ensure!(
            output.status.success(),
            "`{shown}` failed: {}",
            output.status
        );
        Ok(output.stdout)
    }
}
