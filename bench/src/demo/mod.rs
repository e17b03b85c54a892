//! The demonstration: one handler file answers in both tiers and shares its
//! memory with an application, side by side with an ordinary server.
//!
//! 1. Remote increments from A to B, each case in turn, five times ([`measure`]).
//! 2. The application that shares the counter's memory is stopped: the counter
//!    answers. It goes on and finds all increments in its own memory.
//! 3. A handler that loops for ever is stopped and named; the counter answers.
//! 4. A client that nobody here wrote gets the right answer ([`proofs`]).
//!
//! Everything it makes is removed on every way out but SIGKILL; `./demo` and the
//! next run see to that one.

mod measure;
mod proofs;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::json;

use crate::contest::{Case, Contest};
use crate::hosts::{self, COUNTER_PORT, Hosts};
use crate::rootless::Rootless;
use crate::rtt::Client;
pub use measure::Measured;

/// How it is called.
pub const USAGE: &str = "\
usage: ashway-demo [--json FILE] [--requests N] [--rootless]

  --json FILE    write the numbers there too
  --requests N   requests of each row [default: 20000]
  --rootless     in namespaces of this user (`unshare -Urn ashway-demo
                 --rootless`): the user tier only";

/// Runs of each row; they alternate.
const RUNS: u32 = 5;

/// What the command line asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Where the document goes.
    pub json: Option<PathBuf>,
    /// Requests of each row.
    pub requests: u32,
    /// Whether root is not at hand.
    pub rootless: bool,
}

impl Options {
    /// Reads the command line.
    ///
    /// # Errors
    ///
    /// Names the word that makes no sense.
    pub fn from_args(args: &[String]) -> Result<Self, String> {
        let mut options = Self {
            json: None,
            requests: 20_000,
            rootless: false,
        };
        let mut words = args.iter();
        while let Some(word) = words.next() {
            let mut value = || {
                words
                    .next()
                    .ok_or_else(|| format!("`{word}` needs a value"))
            };
            match word.as_str() {
                "--json" => options.json = Some(value()?.into()),
                "--requests" => {
                    let value = value()?;
                    let number = value.parse().ok().filter(|number| *number >= RUNS);
                    options.requests =
                        number.ok_or_else(|| format!("`{value}` is no number of requests"))?;
                }
                "--rootless" => options.rootless = true,
                other => return Err(format!("`{other}` is not an option")),
            }
        }
        Ok(options)
    }
}

/// Runs the demonstration and prints what it shows. `false` if something that
/// should be true was not.
///
/// # Errors
///
/// What kept it from being shown at all.
pub fn run(options: &Options) -> Result<bool> {
    let folder = Folder::new()?;
    if options.rootless {
        return rootless(options, &folder);
    }
    let plain = hosts::stock("plain")?;
    let ashway = hosts::stock("demo")?;
    let node = ashway.node(hosts::config("b0")?).start()?;
    let stage = Stage {
        contest: Contest {
            plain: &plain,
            plain_port: COUNTER_PORT,
            ashway: &ashway,
            control: node.socket(),
            kernel: true,
        },
        cases: &Case::ALL,
        clients: &[Client::Fifo, Client::Other],
        folder: &folder.0,
        // Nobody: another user than the node's.
        app_uid: Some(65534),
    };
    let good = stage.play(options)?;
    node.stop()?;
    Ok(good)
}

/// The same where loading programs is not allowed.
fn rootless(options: &Options, folder: &Folder) -> Result<bool> {
    let hosts = Rootless::new()?;
    let config = folder.0.join("node.toml");
    fs::write(&config, hosts::config("b0")?)?;
    let control = folder.0.join("control.sock");
    let _node = hosts.node(&config, &control)?;
    Stage {
        contest: Contest {
            plain: &hosts,
            plain_port: COUNTER_PORT + 1,
            ashway: &hosts,
            control: &control,
            kernel: false,
        },
        cases: &[Case::Socket, Case::SocketBusy, Case::User],
        clients: &[Client::Other],
        folder: &folder.0,
        app_uid: None,
    }
    .play(options)
}

/// What the demonstration is played on.
struct Stage<'a> {
    contest: Contest<'a>,
    cases: &'a [Case],
    clients: &'a [Client],
    folder: &'a Path,
    app_uid: Option<u32>,
}

impl Stage<'_> {
    fn hosts(&self) -> &dyn Hosts {
        self.contest.ashway
    }

    fn play(&self, options: &Options) -> Result<bool> {
        let mut app = proofs::App::start(self)?;
        println!(
            "An application shares the counter's memory: pid {}, uid {}.",
            app.id(),
            self.app_uid
                .map_or_else(|| "ours".to_owned(), |uid| uid.to_string())
        );
        let hook = hosts::hook(self.contest.control)?;
        println!("The node takes its messages at {hook}: `attach = \"auto\"`.");
        let measured = measure::measure(self, options.requests)?;
        println!("\n{}", measured.render());

        let tier = if self.contest.kernel {
            self.contest.ask("promote")?;
            "kernel tier"
        } else {
            "user tier"
        };
        let mut due = measured.increments;
        let stopped = proofs::stopped(self, &mut app, &mut due)?;
        say(
            stopped.answered,
            &format!(
                "with the application stopped (SIGSTOP), the {tier} answered {} of {} requests",
                stopped.answers,
                proofs::REQUESTS
            ),
        );
        say(
            stopped.equal,
            &format!(
                "the application, going on, reads {} in its own mapping; {due} increments were answered",
                stopped.read
            ),
        );
        let runaway = proofs::runaway(self, &mut due)?;
        say(
            runaway.stopped,
            &format!(
                "a handler that loops for ever was stopped ({}), at {}",
                runaway.cause, runaway.line
            ),
        );
        say(runaway.answered, "the counter answered all the while");
        let foreign = proofs::foreign(self, due)?;
        say(
            foreign.right,
            &format!(
                "`{}` sent 00000005 and received {}",
                foreign.command, foreign.reply
            ),
        );

        let good = stopped.answered
            && stopped.equal
            && runaway.stopped
            && runaway.answered
            && foreign.right;
        if let Some(file) = &options.json {
            let document = json!({
                "rows": measured.to_json(),
                "counter_ok": stopped.equal && runaway.answered,
                "stopped_ok": stopped.answered,
                "runaway": { "stopped": runaway.stopped, "line": runaway.line },
                "foreign_ok": foreign.right,
            });
            fs::write(file, format!("{document:#}\n"))
                .with_context(|| format!("cannot write `{}`", file.display()))?;
        }
        Ok(good)
    }
}

fn say(good: bool, what: &str) {
    println!("{} {what}", if good { "ok    " } else { "FAILED" });
}

/// A folder of this process that other users may look into; removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self> {
        // The name that `ashway_rig` gives its own, which a later run cleans up.
        let name = format!("ashway-show-{}-0", std::process::id());
        let folder = Self(std::env::temp_dir().join(name));
        fs::create_dir(&folder.0)
            .with_context(|| format!("cannot make `{}`", folder.0.display()))?;
        fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o755))?;
        Ok(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left is left in the folder for temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Options, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Options::from_args(&words)
    }

    #[test]
    fn options_are_read_or_named() {
        let options = read("--json out.json --requests 500 --rootless").unwrap();
        assert_eq!(options.json, Some("out.json".into()));
        assert_eq!((options.requests, options.rootless), (500, true));
        assert_eq!(read("").unwrap().requests, 20_000);
        for (line, word) in [
            ("--jsn x", "--jsn"),
            ("--json", "--json"),
            ("--requests many", "many"),
            ("--requests 0", "`0`"),
        ] {
            let error = read(line).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
    }
}
