//! `ashway handler faults` and `ashway handler replay`: messages that stopped a handler.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ashway_abi::{Cause, Verdict};
use ashway_codegen::normalise::{Limits, Module, normalise};
use ashway_daemon::config::Config;
use ashway_daemon::units;
use ashway_handler::Stopped;
use ashway_trial::{Engine, Setup, Trial};
use clap::Args;
use serde_json::{Value, json};

use super::Node;
use crate::face::{Face, clean};
use crate::failure::{Exit, Failure};
use crate::table;

/// List the messages that stopped handlers of a node
///
/// The node keeps the last 16 places at which a handler was stopped, each with the first
/// message that came there and the memory as the handler left it: in the user tier a new
/// place of a handler every 100 ms, in the kernel tier a message every 100 ms. TIMES counts
/// what was stopped there; of the kernel tier, what was kept.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ashway handler faults
  ashway handler faults wild -j
  ashway handler faults --export 3 fault-3.json")]
pub(crate) struct Faults {
    /// Only those of this handler
    name: Option<String>,
    /// Write one of them to a file, to be replayed without the node
    #[arg(long, num_args = 2, value_names = ["FAULT", "FILE"])]
    export: Option<Vec<String>>,
    #[command(flatten)]
    node: Node,
}

/// Run a message that stopped a handler once more
///
/// With the message and the memory that the node has kept, over a memory of its own;
/// no node is touched. Exits with 1 if the handler comes to another end.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ashway handler replay 3
  ashway handler replay 3 --tier kernel
  ashway handler replay fault-3.json")]
pub(crate) struct Replay {
    /// Its number (`handler faults`), or a file that `--export` has written
    fault: String,
    /// Where: user or kernel
    #[arg(long, default_value = "user", value_parser = ["user", "kernel"])]
    tier: String,
    #[command(flatten)]
    node: Node,
}

impl Faults {
    pub(crate) fn run(self, face: Face) -> Result<(), Failure> {
        if let Some([fault, file]) = self.export.as_deref() {
            let document = fetch(self.node, fault)?;
            let file = PathBuf::from(file);
            return write(&file, &document.to_string()).map_err(|error| {
                let name = file.display();
                Failure::new(Exit::Failed, format!("cannot write `{name}`")).because(&error)
            });
        }
        let request = json!({ "request": "faults", "handler": self.name });
        let answer = self.node.connect()?.request(&request)?;
        face.show(&json!({ "faults": answer }), || {
            let text = |value: &Value| match value {
                Value::String(text) => clean(text),
                other => other.to_string(),
            };
            let rows: Vec<_> = answer
                .as_array()
                .into_iter()
                .flatten()
                .map(|fault| {
                    vec![
                        text(&fault["fault"]),
                        text(&fault["handler"]),
                        text(&fault["tier"]),
                        text(&fault["cause"]),
                        place(fault),
                        text(&fault["message_bytes"]),
                        text(&fault["times"]),
                    ]
                })
                .collect();
            table::render(
                &["FAULT", "HANDLER", "TIER", "CAUSE", "AT", "BYTES", "TIMES"],
                &rows,
            )
        })?;
        Ok(())
    }
}

/// Writes what nobody else is to read: the handler's memory and a message of somebody.
fn write(file: &Path, text: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(file)?;
    if file.metadata()?.is_file() {
        // It may have been there.
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    file.write_all(text.as_bytes())
}

/// Where a fault happened, for people.
fn place(fault: &Value) -> String {
    match (fault["file"].as_str(), fault["line"].as_u64()) {
        (Some(file), Some(line)) => clean(&format!("{file}:{line}")),
        _ => format!("offset {}", fault["at"]),
    }
}

/// All that the node has kept of a fault.
fn fetch(node: Node, fault: &str) -> Result<Value, Failure> {
    let number: u64 = fault.parse().map_err(|_| {
        let error = format!("`{}` is neither a number nor a file", clean(fault));
        Failure::new(Exit::Usage, error).hint("`ashway handler faults` lists the numbers")
    })?;
    let request = json!({ "request": "fault", "fault": number });
    Ok(node.connect()?.request(&request)?)
}

impl Replay {
    pub(crate) fn run(self, face: Face) -> Result<u8, Failure> {
        let fault = if PathBuf::from(&self.fault).is_file() {
            let bytes = fs::read(&self.fault).map_err(|error| {
                let message = format!("cannot read `{}`", clean(&self.fault));
                Failure::new(Exit::Usage, message).because(&error)
            })?;
            serde_json::from_slice(&bytes).map_err(|error| {
                let error = format!("`{}` is no fault: {error}", clean(&self.fault));
                Failure::new(Exit::Usage, error)
            })?
        } else {
            fetch(self.node, &self.fault)?
        };
        let (cause, at) = again(&fault, &self.tier)?;
        let (cause_was, at_was) = (&fault["cause"], place(&fault));
        let same = cause_was.as_str() == Some(&cause) && at == at_was;
        let document = json!({
            "fault": fault["fault"],
            "handler": fault["handler"],
            "tier": self.tier,
            "same": same,
            "was": { "cause": cause_was, "place": at_was },
            "is": { "cause": cause, "place": at },
        });
        face.show(&document, || {
            let was = clean(cause_was.as_str().unwrap_or_default());
            let word = if same { "the same" } else { "another end" };
            let mut text = format!("was: {was} at {at_was}\n");
            if fault["changed"] == true {
                text += "  the message is as the handler had changed it by then\n";
            }
            text + &format!("in the {} tier: {cause} at {at}: {word}", self.tier)
        })?;
        Ok(u8::from(!same))
    }
}

/// Runs it once more; how it ended, and where.
fn again(fault: &Value, tier: &str) -> Result<(String, String), Failure> {
    let malformed = || Failure::new(Exit::Usage, "this is no fault that a node has exported");
    let bytes = |key: &str| unhex(fault[key].as_str()?);
    let number = |key: &str| fault[key].as_u64();
    let (wasm, message, memory, guest, budget, function) = (|| {
        Some((
            bytes("wasm")?,
            bytes("message")?,
            bytes("memory")?,
            number("guest_bytes")? as usize,
            number("budget_ns")?,
            fault["function"].as_str()?,
        ))
    })()
    .ok_or_else(malformed)?;
    let budget = Duration::from_nanos(budget);
    if budget > Config::MAX_BUDGET {
        let budget = units::show(budget);
        let error = format!("the fault has a `budget_ns` of {budget}, which no path can have");
        let most = units::show(Config::MAX_BUDGET);
        return Err(Failure::new(Exit::Usage, error).hint(format!("a budget is at most {most}")));
    }
    let module =
        normalise(&wasm, &Limits::default()).map_err(|error| malformed().because(&error))?;
    let setup = Setup {
        budget: ashway_daemon::budget(budget),
        ..Setup::default()
    };
    let engine = if tier == "kernel" {
        Engine::Kernel
    } else {
        Engine::User
    };
    let not_run = |error: ashway_trial::NotRun| {
        Failure::new(Exit::Failed, "the fault cannot be replayed").because(&error)
    };
    let mut trial = Trial::new(&module, engine, &setup).map_err(not_run)?;
    let (guest_was, state) = memory.split_at_checked(guest).ok_or_else(malformed)?;
    let state = state.get(..module.state_bytes).ok_or_else(malformed)?;
    if guest_was.len() != trial.guest().len() {
        return Err(malformed());
    }
    trial.restore(guest_was, state);
    // Of a timer, its number; what older nodes have exported has none.
    let channel = number("channel").unwrap_or(0) as u32;
    let front = bytes("front").unwrap_or_default();
    let end = trial
        .activate_behind(function, &front, &message, channel)
        .map_err(not_run)?;
    let reply = Verdict::Reply as u32;
    let stopped = match end.result {
        // What was not granted is no verdict, and the function is to blame.
        Ok(verdict) if verdict == reply && fault["may_reply"] == false => Stopped {
            cause: Cause::BadVerdict,
            at: begin(&module, function),
        },
        Ok(verdict) => {
            let verdict = Verdict::from_number(verdict);
            let name = verdict.map_or("no verdict", |verdict| verdict.name());
            return Ok((format!("`{name}`"), "its end".to_owned()));
        }
        Err(stopped) => stopped,
    };
    let at = match module.lines.at(stopped.at) {
        Some((file, line)) => format!("{file}:{line}"),
        None => format!("offset {}", stopped.at),
    };
    Ok((stopped.cause.name().to_owned(), clean(&at)))
}

/// Where a handler's function begins.
fn begin(module: &Module<'_>, function: &str) -> u32 {
    let mut exports = module.exports.iter();
    let export = exports.find(|(name, _)| name == function);
    export.map_or(0, |(_, index)| module.functions[*index as usize].at)
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let bytes = pairs
        .iter()
        .map(|[high, low]| Some((digit(*high)? * 16 + digit(*low)?) as u8));
    bytes
        .collect::<Option<Vec<_>>>()
        .filter(|_| rest.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_pairs_of_digits() {
        assert_eq!(unhex("00fF10"), Some(vec![0, 255, 16]));
        assert_eq!(unhex("0"), None);
        assert_eq!(unhex("0g"), None);
    }

    #[test]
    fn a_budget_that_no_path_has_is_refused_by_name() {
        let fault = |budget_ns: u64| {
            json!({ "wasm": "", "message": "", "memory": "", "guest_bytes": 0,
                    "budget_ns": budget_ns, "function": "on_rx" })
        };
        let said = |budget_ns| again(&fault(budget_ns), "user").unwrap_err().error;
        assert!(said(10_000_001).contains("`budget_ns` of 10000001 ns"));
        assert!(said(300_000_000).contains("`budget_ns` of 300 ms"));
        assert!(said(10_000_000).contains("this is no fault"));
    }

    #[test]
    fn what_is_exported_is_for_nobody_else() {
        let file = std::env::temp_dir().join(format!("ashway-fault-{}", std::process::id()));
        fs::write(&file, "older and longer").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        for _ in 0..2 {
            write(&file, "{}").unwrap();
            let mode = fs::metadata(&file).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
            assert_eq!(fs::read_to_string(&file).unwrap(), "{}");
            fs::remove_file(&file).unwrap();
        }
    }
}
