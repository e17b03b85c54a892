//! A message that stopped a handler, as a node exports it.
//!
//! A file may come from anybody and be of any age. Each key that an export has must be
//! there and be of its kind, and no other may be: what was left out or misspelt would
//! otherwise be replayed as something that never happened.

use std::time::Duration;

use ashway_abi::Cause;
use ashway_codegen::normalise::Limits;
use ashway_config::Config;
use ashway_config::units;
use ashway_handler::MESSAGE_BYTES;
use ashway_path::problem::suggest;
use serde_json::Value;

use super::hex::sha256;
use crate::face::clean;
use crate::failure::{Exit, Failure};

/// Every key of [`Replayable`](ashway_api::answer::Replayable), and no other: what is
/// replayed is run.
const KEYS: [&str; 21] = [
    "fault",
    "handler",
    "digest",
    "function",
    "tier",
    "cause",
    "at",
    "file",
    "line",
    "channel",
    "message_bytes",
    "changed",
    "exact",
    "times",
    "budget_ns",
    "wasm",
    "may_reply",
    "front",
    "message",
    "memory",
    "guest_bytes",
];

/// What a replay takes of it.
#[derive(Debug)]
pub(super) struct Fault<'f> {
    pub(super) number: u64,
    pub(super) handler: &'f str,
    pub(super) wasm: Vec<u8>,
    pub(super) function: &'f str,
    pub(super) budget: Duration,
    pub(super) cause: Cause,
    pub(super) channel: u32,
    pub(super) front: Vec<u8>,
    pub(super) message: Vec<u8>,
    /// Whether the message is as the handler had changed it.
    pub(super) changed: bool,
    pub(super) guest: Vec<u8>,
    pub(super) state: Vec<u8>,
    pub(super) may_reply: bool,
}

impl<'f> Fault<'f> {
    /// Reads what a node has exported, or what is alleged to be that.
    ///
    /// # Errors
    ///
    /// The first key that nobody knows, or that is missing or cannot be.
    pub(super) fn read(document: &'f Value) -> Result<Self, Failure> {
        let keys = Keys::of(document)?;
        let wasm = keys.bytes("wasm", Limits::default().file_bytes)?;
        if keys.text("digest")? != sha256(&wasm) {
            let hint = "the file was changed: export the fault once more";
            return Err(nonsense("a `wasm` that its `digest` is not of", hint));
        }
        let message = keys.bytes("message", MESSAGE_BYTES)?;
        if keys.number("message_bytes", u64::MAX)? != message.len() as u64 {
            let has = format!("a `message` of {} bytes", message.len());
            let says = format!("its `message_bytes` says {}", document["message_bytes"]);
            return Err(nonsense(&has, &says));
        }
        let mut guest = keys.bytes("memory", usize::MAX)?;
        let own = usize::try_from(keys.number("guest_bytes", u64::MAX)?).ok();
        let own = own.filter(|own| *own <= guest.len()).ok_or_else(|| {
            let has = format!("a `memory` of {} bytes", guest.len());
            let says = format!("its `guest_bytes` says {}", document["guest_bytes"]);
            nonsense(&has, &says)
        })?;
        let state = guest.split_off(own);
        let cause = keys.text("cause")?;
        let cause = Cause::ALL.iter().find(|known| known.name() == cause);
        // What a replay only shows, or compares with.
        keys.number("at", u32::MAX.into())?;
        keys.number("times", u64::MAX)?;
        if !matches!(keys.text("tier")?, "user" | "kernel") {
            return Err(keys.wrong("tier", "`user` or `kernel`"));
        }
        keys.place()?;
        // The message is as it was, if all is.
        let (changed, exact) = (keys.truth("changed")?, keys.truth("exact")?);
        Ok(Self {
            number: keys.number("fault", u64::MAX)?,
            handler: keys.text("handler")?,
            wasm,
            function: keys.text("function")?,
            budget: keys.budget()?,
            cause: *cause.ok_or_else(|| keys.wrong("cause", "what stops a handler"))?,
            channel: keys.number("channel", u32::MAX.into())? as u32,
            front: keys.bytes("front", MESSAGE_BYTES)?,
            message,
            changed: changed && !exact,
            guest,
            state,
            may_reply: keys.truth("may_reply")?,
        })
    }
}

/// A document of which each key is known, looked at key by key.
struct Keys<'f>(&'f Value);

impl<'f> Keys<'f> {
    fn of(document: &'f Value) -> Result<Self, Failure> {
        let Value::Object(entries) = document else {
            let hint = "it is a JSON object, as `handler faults --export` writes it";
            return Err(nonsense("no keys at all", hint));
        };
        match entries.keys().find(|key| !KEYS.contains(&key.as_str())) {
            None => Ok(Self(document)),
            Some(key) => {
                let has = format!("an unknown key `{}`", short(key));
                Err(nonsense(&has, &suggest(&clean(key), &KEYS)))
            }
        }
    }

    fn number(&self, key: &str, most: u64) -> Result<u64, Failure> {
        let number = self.0[key].as_u64().filter(|number| *number <= most);
        number.ok_or_else(|| self.wrong(key, &format!("a whole number up to {most}")))
    }

    fn text(&self, key: &str) -> Result<&'f str, Failure> {
        let text = self.0[key].as_str();
        text.ok_or_else(|| self.wrong(key, "a text"))
    }

    fn truth(&self, key: &str) -> Result<bool, Failure> {
        let truth = self.0[key].as_bool();
        truth.ok_or_else(|| self.wrong(key, "true or false"))
    }

    fn bytes(&self, key: &str, most: usize) -> Result<Vec<u8>, Failure> {
        let found = self.0[key].as_str().and_then(unhex);
        let found = found.ok_or_else(|| self.wrong(key, "pairs of hexadecimal digits"))?;
        if found.len() > most {
            let has = format!("`{key}` of {} bytes", found.len());
            return Err(nonsense(&has, &format!("it has at most {most}")));
        }
        Ok(found)
    }

    fn budget(&self) -> Result<Duration, Failure> {
        let budget = Duration::from_nanos(self.number("budget_ns", u64::MAX)?);
        let [least, most] = [Config::MIN_BUDGET, Config::MAX_BUDGET];
        if (least..=most).contains(&budget) {
            return Ok(budget);
        }
        let has = units::show(budget);
        let [least, most] = [least, most].map(units::show);
        Err(nonsense(
            &format!("`budget_ns` of {has}, which no path can have"),
            &format!("a budget is from {least} to {most}"),
        ))
    }

    /// The author's line: both of it, or neither where the handler has no lines.
    fn place(&self) -> Result<(), Failure> {
        for key in ["file", "line"] {
            if self.0.get(key).is_none() {
                return Err(self.wrong(key, "there, or null"));
            }
        }
        let has = |key: &str| !self.0[key].is_null();
        if has("file") {
            self.text("file")?;
        }
        if has("line") {
            self.number("line", u32::MAX.into())?;
        }
        if has("file") != has("line") {
            let hint = "they are both there, or both null";
            return Err(nonsense("one of `file` and `line` alone", hint));
        }
        Ok(())
    }

    fn wrong(&self, key: &str, wanted: &str) -> Failure {
        let has = match self.0.get(key) {
            None => format!("no `{key}`"),
            Some(other) => format!("`{key}` of `{}`", short(&other.to_string())),
        };
        let hint = format!("`{key}` is {wanted}, as `handler faults --export` writes it");
        nonsense(&has, &hint)
    }
}

/// What is no fault that a node has exported.
pub(super) fn nonsense(has: &str, hint: &str) -> Failure {
    Failure::new(Exit::Usage, format!("the fault has {has}")).hint(hint)
}

/// As much of a text of somebody as a line can hold.
fn short(text: &str) -> String {
    let all = clean(text);
    let short: String = all.chars().take(40).collect();
    let dots = if short == all { "" } else { "..." };
    short + dots
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
pub(super) mod tests {
    use super::super::hex::lower_hex;
    use ashway_api::answer::Replayable;

    use super::*;
    use serde_json::json;

    /// What a node would write of a handler that is stopped by every message.
    pub(in super::super) fn exported() -> Value {
        let text = r#"(module (memory (export "memory") 1 1)
            (func (export "on_rx") (param i32 i32) (result i32) unreachable))"#;
        let wasm = wat::parse_str(text).unwrap();
        json!({
            "fault": 3, "handler": "wild", "digest": sha256(&wasm), "function": "on_rx",
            "tier": "user", "cause": "unreachable", "at": 1, "file": null, "line": null,
            "channel": 0, "message_bytes": 1, "changed": false, "exact": false, "times": 2,
            "budget_ns": 50_000, "wasm": lower_hex(&wasm), "may_reply": true, "front": "",
            "message": "00", "memory": lower_hex(&vec![0; 2 * 65_536]), "guest_bytes": 65_536,
        })
    }

    #[test]
    fn bytes_are_pairs_of_digits() {
        assert_eq!(unhex("00fF10"), Some(vec![0, 255, 16]));
        assert_eq!(unhex("0"), None);
        assert_eq!(unhex("0g"), None);
    }

    #[test]
    fn each_key_must_be_there_and_be_of_its_kind() {
        let good = exported();
        Fault::read(&good).unwrap();
        assert_eq!(good.as_object().unwrap().len(), KEYS.len());
        let answer = serde_json::to_value(Replayable::default()).unwrap();
        let mut keys = KEYS;
        keys.sort_unstable();
        assert!(answer.as_object().unwrap().keys().eq(keys), "{answer}");
        for key in KEYS {
            let mut without = good.clone();
            without.as_object_mut().unwrap().remove(key);
            let error = Fault::read(&without).unwrap_err().error;
            assert!(error.contains(&format!("no `{key}`")), "{error}");
            // None of them is this.
            for other in [json!([]), json!({ "a": 1 }), json!(-1.5)] {
                let mut bad = good.clone();
                bad[key] = other;
                let error = Fault::read(&bad).unwrap_err().error;
                assert!(error.contains(&format!("`{key}` of `")), "{error}");
            }
        }
        let mut with = good;
        (with["file"], with["line"]) = (json!("a.c"), json!(3));
        Fault::read(&with).unwrap();
    }

    /// A file may be anybody's: what is wrong with it is said by name.
    #[test]
    fn what_no_node_has_exported_is_refused_by_name() {
        let message = json!(lower_hex(&vec![0; MESSAGE_BYTES + 1]));
        for (key, value, says) in [
            ("wasm", json!("00"), "that its `digest` is not of"),
            ("wasm", json!("0"), "`wasm` of `\"0\"`"),
            ("wasm", Value::Null, "`wasm` of `null`"),
            ("message", message, "`message` of 65537 bytes"),
            ("message_bytes", json!(2), "a `message` of 1 bytes"),
            ("memory", json!("00"), "a `memory` of 1 bytes"),
            ("guest_bytes", json!(-1), "`guest_bytes` of `-1`"),
            ("budget_ns", json!(10_000_001), "`budget_ns` of 10000001 ns"),
            ("budget_ns", json!(300_000_000), "`budget_ns` of 300 ms"),
            ("budget_ns", json!(0), "`budget_ns` of 0"),
            ("function", json!(7), "`function` of `7`"),
            ("channel", json!(1_u64 << 32), "`channel` of `4294967296`"),
            ("front", json!("xx"), "`front` of"),
            ("cause", json!("\u{1b}[31m"), "`cause` of"),
            ("digest", json!("00"), "that its `digest` is not of"),
            ("at", json!("here"), "`at` of"),
            ("tier", json!("moon"), "`tier` of"),
            ("line", json!("7"), "`line` of"),
            ("line", json!(7), "one of `file` and `line` alone"),
            ("file", json!(7), "`file` of `7`"),
            ("may_reply", json!("no"), "`may_reply` of"),
            ("may_replies", json!(false), "an unknown key `may_replies`"),
            ("\u{1b}[31m", json!(0), "an unknown key"),
        ] {
            let mut bad = exported();
            bad[key] = value;
            let error = Fault::read(&bad).unwrap_err().error;
            assert!(error.contains(says), "{key}: {error}");
            assert!(!error.contains('\u{1b}'), "{key}: {error}");
        }
        assert!(Fault::read(&json!([1])).is_err());
    }
}
