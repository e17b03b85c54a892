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
use ashway_handler::{MESSAGE_BYTES, Stopped};
use ashway_trial::{Engine, Setup, Trial};
use clap::Args;
use serde_json::{Value, json};

use super::Node;
use super::hex::sha256;
use crate::face::{Face, clean};
use crate::failure::{Exit, Failure};
use crate::table;

/// List the messages that stopped handlers of a node
///
/// The node keeps the last 16 places at which a handler was stopped (64 of all handlers), each
/// with the first message that came there and the memory as the handler left it: in the user tier a new
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
                let message = format!("`{}` is no fault", clean(&self.fault));
                Failure::new(Exit::Usage, message).because(&error)
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

/// What a replay takes of a fault. A file may come from anybody, so each field is looked
/// at by itself.
#[derive(Debug)]
struct Kept<'f> {
    wasm: Vec<u8>,
    function: &'f str,
    budget: Duration,
    channel: u32,
    front: Vec<u8>,
    message: Vec<u8>,
    guest: Vec<u8>,
    state: Vec<u8>,
    may_reply: bool,
}

impl<'f> Kept<'f> {
    /// Reads what a node has exported, or what is alleged to be that.
    ///
    /// # Errors
    ///
    /// The first field that is missing or cannot be.
    fn read(fault: &'f Value) -> Result<Self, Failure> {
        let number = |key: &str, most: u64| match fault[key].as_u64() {
            Some(number) if number <= most => Ok(number),
            _ => Err(wrong(fault, key, &format!("a whole number up to {most}"))),
        };
        let text = |key: &str| {
            let found = fault[key].as_str();
            found.ok_or_else(|| wrong(fault, key, "a text"))
        };
        let bytes = |key: &str, most: usize| {
            let found = fault[key].as_str().and_then(unhex);
            let found = found.ok_or_else(|| wrong(fault, key, "pairs of hexadecimal digits"))?;
            if found.len() > most {
                let has = format!("`{key}` of {} bytes", found.len());
                return Err(nonsense(&has, &format!("it has at most {most}")));
            }
            Ok(found)
        };
        // What older nodes have exported has neither channel nor front.
        let has = |key: &str| !fault[key].is_null();
        let [least, most] = [Config::MIN_BUDGET, Config::MAX_BUDGET];
        let budget = Duration::from_nanos(number("budget_ns", u64::MAX)?);
        if !(least..=most).contains(&budget) {
            let has = format!(
                "`budget_ns` of {}, which no path can have",
                units::show(budget)
            );
            let [least, most] = [least, most].map(units::show);
            let hint = format!("a budget is from {least} to {most}");
            return Err(nonsense(&has, &hint));
        }
        let mut guest = bytes("memory", usize::MAX)?;
        let own = number("guest_bytes", u64::MAX)?;
        let own = usize::try_from(own).ok().filter(|own| *own <= guest.len());
        let own = own.ok_or_else(|| {
            let has = format!("a `memory` of {} bytes", guest.len());
            nonsense(
                &has,
                &format!("its `guest_bytes` says {}", fault["guest_bytes"]),
            )
        })?;
        let state = guest.split_off(own);
        let cause = text("cause")?;
        if !Cause::ALL.iter().any(|known| known.name() == cause) {
            return Err(wrong(fault, "cause", "what stops a handler"));
        }
        number("at", u32::MAX.into())?;
        let wasm = bytes("wasm", Limits::default().file_bytes)?;
        if has("digest") && text("digest")? != sha256(&wasm) {
            let hint = "the file was changed: export the fault once more";
            return Err(nonsense("a `wasm` that its `digest` is not of", hint));
        }
        Ok(Self {
            wasm,
            function: text("function")?,
            budget,
            channel: if has("channel") {
                number("channel", u32::MAX.into())? as u32
            } else {
                0
            },
            front: if has("front") {
                bytes("front", MESSAGE_BYTES)?
            } else {
                Vec::new()
            },
            message: bytes("message", MESSAGE_BYTES)?,
            guest,
            state,
            may_reply: fault["may_reply"] != false,
        })
    }
}

/// What is no fault that a node has exported.
fn nonsense(has: &str, hint: &str) -> Failure {
    Failure::new(Exit::Usage, format!("the fault has {has}")).hint(hint)
}

fn wrong(fault: &Value, key: &str, wanted: &str) -> Failure {
    let has = match &fault[key] {
        Value::Null => format!("no `{key}`"),
        other => {
            let all = clean(&other.to_string());
            let short: String = all.chars().take(40).collect();
            let dots = if short == all { "" } else { "..." };
            format!("`{key}` of `{short}{dots}`")
        }
    };
    nonsense(
        &has,
        &format!("`{key}` is {wanted}, as `handler faults --export` writes it"),
    )
}

/// Runs it once more; how it ended, and where.
fn again(fault: &Value, tier: &str) -> Result<(String, String), Failure> {
    let Kept {
        wasm,
        function,
        budget,
        channel,
        front,
        message,
        guest,
        state,
        may_reply,
    } = Kept::read(fault)?;
    let module = normalise(&wasm, &Limits::default()).map_err(|error| {
        nonsense(
            "a `wasm` that is no handler",
            "it is the handler's file in hexadecimal digits",
        )
        .because(&error)
    })?;
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
    let other = |what: &str, has: usize, takes: usize| {
        let has = format!("{has} bytes of {what}");
        nonsense(&has, &format!("its `wasm` has {takes} bytes of that"))
    };
    let own = trial.guest().len();
    if guest.len() != own {
        return Err(other(
            "the handler's own memory (`guest_bytes`)",
            guest.len(),
            own,
        ));
    }
    // A node may keep more behind what the module needs.
    let (has, takes) = (state.len(), module.state_bytes);
    let state = state.get(..takes);
    let state = state.ok_or_else(|| other("state behind `guest_bytes`", has, takes))?;
    trial.restore(&guest, state);
    let end = trial
        .activate_behind(function, &front, &message, channel)
        .map_err(not_run)?;
    let reply = Verdict::Reply as u32;
    let stopped = match end.result {
        // What was not granted is no verdict, and the function is to blame.
        Ok(verdict) if verdict == reply && !may_reply => Stopped {
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

    /// A file may be anybody's: what is wrong with it is said by name.
    #[test]
    fn what_no_node_has_exported_is_refused_by_name() {
        let text = r#"(module (memory (export "memory") 1 1)
            (func (export "on_rx") (param i32 i32) (result i32) unreachable))"#;
        let hex = super::super::hex::lower_hex;
        let good = json!({
            "wasm": hex(&wat::parse_str(text).unwrap()), "message": "00", "memory": hex(&vec![0; 2 * 65_536]),
            "guest_bytes": 65_536, "budget_ns": 50_000, "function": "on_rx",
            "cause": "unreachable", "at": 1,
        });
        assert_eq!(again(&good, "user").unwrap().0, "unreachable");
        let message = json!(hex(&vec![0; MESSAGE_BYTES + 1]));
        for (key, value, says) in [
            ("wasm", json!("00"), "a `wasm` that is no handler"),
            ("wasm", json!("0"), "`wasm` of `\"0\"`"),
            ("wasm", Value::Null, "no `wasm`"),
            ("message", json!([]), "`message` of `[]`"),
            ("message", message, "`message` of 65537 bytes"),
            ("memory", json!("00"), "a `memory` of 1 bytes"),
            (
                "memory",
                json!(hex(&vec![0; 65_540])),
                "4 bytes of state behind",
            ),
            ("guest_bytes", json!(-1), "`guest_bytes` of `-1`"),
            (
                "guest_bytes",
                json!(4096),
                "4096 bytes of the handler's own memory",
            ),
            ("budget_ns", json!(10_000_001), "`budget_ns` of 10000001 ns"),
            ("budget_ns", json!(300_000_000), "`budget_ns` of 300 ms"),
            ("budget_ns", json!(0), "`budget_ns` of 0"),
            ("function", json!(7), "`function` of `7`"),
            ("channel", json!(1_u64 << 32), "`channel` of `4294967296`"),
            ("front", json!("xx"), "`front` of"),
            ("cause", json!("\u{1b}[31m"), "`cause` of"),
            ("cause", Value::Null, "no `cause`"),
            ("digest", json!("00"), "that its `digest` is not of"),
            ("at", json!("here"), "`at` of"),
        ] {
            let mut bad = good.clone();
            bad[key] = value;
            let error = again(&bad, "user").unwrap_err().error;
            assert!(error.contains(says), "{key}: {error}");
            assert!(!error.contains('\u{1b}'), "{key}: {error}");
        }
        let mut unknown = good;
        unknown["function"] = json!("on_tx");
        let because = again(&unknown, "user").unwrap_err().because;
        assert!(because[0].contains("no handler `on_tx`"), "{because:?}");
        assert!(again(&json!([1]), "user").is_err());
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
