//! `ashway handler faults` and `ashway handler replay`: messages that stopped a handler.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use ashway_abi::memory::WASM_PAGE;
use ashway_abi::{Cause, Verdict};
use ashway_api::answer::Fault as Exported;
use ashway_api::request;
use ashway_codegen::normalise::{Limits, Module, normalise};
use ashway_handler::Stopped;
use ashway_trial::{Engine, Setup, Trial};
use clap::Args;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Node;
use super::fault::{Fault, nonsense};
use super::file;
use crate::face::{Face, clean};
use crate::failure::{Exit, Failure};
use crate::table;

/// List the messages that stopped handlers of a node
///
/// The node keeps the last 16 places at which a handler was stopped (64 of all handlers), each
/// with the first message that came there and the memory as the handler left it, from the second
/// time on in the user tier with both as they were before: in the user tier a new
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
        let handler = self.name;
        let said = self.node.connect()?.request(request::Faults { handler })?;
        face.show(&json!({ "faults": said.document }), || {
            let faults = said.answer.0.iter();
            let rows: Vec<_> = faults
                .map(|fault| {
                    vec![
                        fault.fault.to_string(),
                        clean(&fault.handler),
                        clean(&fault.tier),
                        clean(&fault.cause),
                        place(fault),
                        fault.message_bytes.to_string(),
                        fault.times.to_string(),
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
    file::create_private(file)?.write_all(text.as_bytes())
}

/// Where a fault happened, for people.
fn place(fault: &Exported) -> String {
    match (&fault.file, fault.line) {
        (Some(file), Some(line)) => clean(&format!("{file}:{line}")),
        _ => format!("offset {}", fault.at),
    }
}

/// All that the node has kept of a fault.
fn fetch(node: Node, fault: &str) -> Result<Value, Failure> {
    let fault: u64 = fault.parse().map_err(|_| {
        let error = format!("`{}` is neither a number nor a file", clean(fault));
        Failure::new(Exit::Usage, error).hint("`ashway handler faults` lists the numbers")
    })?;
    Ok(node.connect()?.request(request::Fault { fault })?.document)
}

impl Replay {
    pub(crate) fn run(self, face: Face) -> Result<u8, Failure> {
        let document = if PathBuf::from(&self.fault).is_file() {
            let bytes = fs::read(&self.fault).map_err(|error| {
                let message = format!("cannot read `{}`", clean(&self.fault));
                Failure::new(Exit::Usage, message).because(&error)
            })?;
            serde_json::from_slice(&bytes).map_err(|error| {
                let message = format!("`{}` is no fault", clean(&self.fault));
                Failure::new(Exit::Usage, message).because(&error)
            })?
        } else {
            fetch(self.node, &self.fault)?
        };
        let fault = Fault::read(&document)?;
        let (cause, at) = again(&fault, &self.tier)?;
        let was = Exported::deserialize(&document).map_err(|error| {
            Failure::new(Exit::Usage, "the fault cannot be read").because(&error)
        })?;
        let (cause_was, at_was) = (fault.cause.name(), place(&was));
        let same = cause_was == cause && at == at_was;
        let document = json!({
            "fault": fault.number,
            "handler": fault.handler,
            "tier": self.tier,
            "same": same,
            "was": { "cause": cause_was, "place": at_was },
            "is": { "cause": cause, "place": at },
        });
        face.show(&document, || {
            let word = if same { "the same" } else { "another end" };
            let mut text = format!("was: {cause_was} at {at_was}\n");
            if fault.changed {
                text += "  the message is as the handler had changed it by then\n";
            }
            text + &format!("in the {} tier: {cause} at {at}: {word}", self.tier)
        })?;
        Ok(u8::from(!same))
    }
}

/// Runs it once more; how it ended, and where.
fn again(fault: &Fault<'_>, tier: &str) -> Result<(String, String), Failure> {
    let module = normalise(&fault.wasm, &Limits::default()).map_err(|error| {
        nonsense(
            "a `wasm` that is no handler",
            "it is the handler's file in hexadecimal digits",
        )
        .because(&error)
    })?;
    let module = with_stacks(module, fault.guest.len());
    let setup = Setup {
        budget: ashway_worker::budget(fault.budget),
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
    let other = |what: &str, has: usize, takes: usize| {
        let has = format!("{has} bytes of {what}");
        nonsense(&has, &format!("its `wasm` has {takes} bytes of that"))
    };
    let own = trial.guest().len();
    if fault.guest.len() != own {
        let has = fault.guest.len();
        return Err(other("the handler's own memory (`guest_bytes`)", has, own));
    }
    // A node may keep more behind what the module needs.
    let (has, takes) = (fault.state.len(), module.state_bytes);
    let state = fault.state.get(..takes);
    let state = state.ok_or_else(|| other("state behind `guest_bytes`", has, takes))?;
    trial.restore(&fault.guest, state);
    let end = trial
        .activate_behind(fault.function, &fault.front, &fault.message, fault.channel)
        .map_err(not_run)?;
    let reply = Verdict::Reply as u32;
    let stopped = match end.result {
        // What was not granted is no verdict, and the function is to blame.
        Ok(verdict) if verdict == reply && !fault.may_reply => Stopped {
            cause: Cause::BadVerdict,
            at: begin(&module, fault.function),
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

/// The module as it was loaded over so many bytes of its own: those of a handler that runs on
/// several CPUs at once have a stack for each in them.
fn with_stacks(module: Module<'_>, guest_bytes: usize) -> Module<'_> {
    let bytes = |module: &Module<'_>| module.maximum_pages as usize * WASM_PAGE;
    if bytes(&module) >= guest_bytes {
        return module;
    }
    for cpus in 1.. {
        let mut parallel = module.clone();
        let made = parallel.make_parallel(cpus).is_ok();
        let has_stacks = parallel.parallel.is_some_and(|it| it.stacks.is_some());
        if !made || !has_stacks || bytes(&parallel) > guest_bytes {
            break;
        }
        if bytes(&parallel) == guest_bytes {
            return parallel;
        }
    }
    module
}

/// Where a handler's function begins.
fn begin(module: &Module<'_>, function: &str) -> u32 {
    let mut exports = module.exports.iter();
    let export = exports.find(|(name, _)| name == function);
    export.map_or(0, |(_, index)| module.functions[*index as usize].at)
}

#[cfg(test)]
mod tests {
    use super::super::fault::tests::exported;
    use super::super::hex::{lower_hex, sha256};
    use super::*;

    #[test]
    fn a_fault_that_does_not_fit_its_handler_is_refused() {
        let end = |document: &Value| again(&Fault::read(document)?, "user");
        assert_eq!(end(&exported()).unwrap().0, "unreachable");
        for (key, value, says) in [
            (
                "memory",
                json!(lower_hex(&vec![0; 65_540])),
                "4 bytes of state",
            ),
            ("guest_bytes", json!(4096), "4096 bytes of the handler's"),
        ] {
            let mut bad = exported();
            bad[key] = value;
            let error = end(&bad).unwrap_err().error;
            assert!(error.contains(says), "{key}: {error}");
        }
        let mut none = exported();
        (none["wasm"], none["digest"]) = (json!("00"), json!(sha256(&[0])));
        let error = end(&none).unwrap_err().error;
        assert!(error.contains("a `wasm` that is no handler"), "{error}");
        let mut unknown = exported();
        unknown["function"] = json!("on_tx");
        let because = end(&unknown).unwrap_err().because;
        assert!(because[0].contains("no handler `on_tx`"), "{because:?}");
    }

    #[test]
    fn what_is_exported_is_for_nobody_else() {
        use std::os::unix::fs::PermissionsExt as _;
        let file = std::env::temp_dir().join(format!("ashway-fault-{}", std::process::id()));
        fs::write(&file, "older and longer").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        for _ in 0..2 {
            write(&file, "{}").unwrap();
            let mode = fs::metadata(&file).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
            assert_eq!(fs::read_to_string(&file).unwrap(), "{}");
            fs::remove_file(&file).unwrap();
        }
    }
}
