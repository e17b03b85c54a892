//! The header of a file of the corpus: what has to become of the handler.

use anyhow::{Context, Result, bail, ensure};
use ashway_abi::{Cause, Verdict};

/// What has to become of a handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expectation {
    /// No node loads the file: the reason has these words.
    Refused(String),
    /// It is loaded, and ends like this.
    Loaded {
        /// In the user tier.
        user: Tier,
        /// In the kernel tier.
        kernel: Tier,
        /// Guest memory after the messages.
        memory: Vec<Memory>,
        /// What goes on of the first message, from its beginning.
        message: Option<Vec<u8>>,
    },
}

/// What has to become of it in one tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tier {
    /// How each message ends, one after the other.
    Runs(Vec<End>),
    /// Its start function is stopped: there is no instance.
    Start(Cause),
    /// The tier does not take it: the reason has these words.
    Refused(String),
}

/// How one message ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// The verdict, or why the handler is stopped.
    pub result: Result<Verdict, Cause>,
    /// Where it is stopped.
    pub place: StopPlace,
    /// Whether it changed the message.
    pub changed: bool,
}

/// Where a handler is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopPlace {
    /// Not said.
    Anywhere,
    /// At an operator: its name without dots and underscores.
    Operator(&'static str),
    /// On the line of the source that has the comment `/* here */`.
    Here,
}

/// Bytes of the guest memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Where.
    pub at: usize,
    /// What.
    pub bytes: Vec<u8>,
}

/// Reads the header of a file: its first line, and those below that begin with
/// `memory` or `message:`. `comment` is what begins a comment in its language.
///
/// # Errors
///
/// If it says nothing that can be checked.
pub fn parse(source: &str, comment: &str) -> Result<Expectation> {
    let mut lines = source.lines().map_while(|line| {
        let line = line.strip_prefix(comment)?;
        Some(line.trim())
    });
    let first = lines.next().context("the first line is no comment")?;
    let (what, why) = first
        .split_once(". ")
        .context("the first line is `OUTCOME. What it tries.`")?;
    ensure!(why.len() > 10, "it does not say what it tries");
    if let Some(words) = refused(what) {
        return Ok(Expectation::Refused(words.to_owned()));
    }
    let (user, kernel) = match what.strip_prefix("both: ") {
        Some(both) => (both, both),
        None => what
            .strip_prefix("user: ")
            .and_then(|rest| rest.split_once("; kernel: "))
            .with_context(|| format!("`{what}` is not `both: X` or `user: X; kernel: Y`"))?,
    };
    let (mut memory, mut message) = (Vec::new(), None);
    for line in lines {
        if let Some(rest) = line.strip_prefix("memory 0x") {
            let (at, bytes) = rest.split_once(": ").context("`memory 0xAT: BYTES`")?;
            memory.push(Memory {
                at: usize::from_str_radix(at, 16)?,
                bytes: hex(bytes)?,
            });
        } else if let Some(bytes) = line.strip_prefix("message: ") {
            message = Some(hex(bytes)?);
        }
    }
    Ok(Expectation::Loaded {
        user: tier(user)?,
        kernel: tier(kernel)?,
        memory,
        message,
    })
}

fn refused(what: &str) -> Option<&str> {
    what.strip_prefix("refused \"")?.strip_suffix('"')
}

fn tier(text: &str) -> Result<Tier> {
    if let Some(words) = refused(text) {
        return Ok(Tier::Refused(words.to_owned()));
    }
    if let Some(name) = text.strip_prefix("start ") {
        return Ok(Tier::Start(cause(name)?));
    }
    let ends: Result<_> = text.split(", then ").map(end).collect();
    Ok(Tier::Runs(ends?))
}

fn end(text: &str) -> Result<End> {
    let (text, changed) = match text.strip_suffix(", changed") {
        Some(text) => (text, true),
        None => (text, false),
    };
    let (name, place) = match text.split_once(" at ") {
        None => (text, StopPlace::Anywhere),
        Some((name, "here")) => (name, StopPlace::Here),
        Some((name, operator)) => {
            let plain = operator.replace(['.', '_'], "");
            // Once for each line of the corpus.
            (name, StopPlace::Operator(plain.leak()))
        }
    };
    let verdict = Verdict::ALL.into_iter().find(|v| v.name() == name);
    let result = match verdict {
        Some(verdict) => Ok(verdict),
        None => Err(cause(name)?),
    };
    Ok(End {
        result,
        place,
        changed,
    })
}

fn cause(name: &str) -> Result<Cause> {
    let mut causes = Cause::ALL.into_iter();
    causes
        .find(|cause| cause.name() == name)
        .with_context(|| format!("`{name}` is neither a verdict nor a cause"))
}

fn hex(text: &str) -> Result<Vec<u8>> {
    let digits = text.as_bytes();
    if digits.is_empty() || !digits.len().is_multiple_of(2) {
        bail!("`{text}` is no number of bytes");
    }
    let bytes = digits.chunks(2).map(|pair| {
        let pair = std::str::from_utf8(pair)?;
        Ok(u8::from_str_radix(pair, 16)?)
    });
    bytes.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_says_what_happens() {
        let text = "// both: consume, then fuel at here, changed. It tries something.\n\
                    // memory 0x10: 2a00\nint x;\n// memory 0x20: 00\n";
        let Expectation::Loaded {
            user,
            kernel,
            memory,
            message,
        } = parse(text, "//").unwrap()
        else {
            panic!("it is loaded");
        };
        let consumed = End {
            result: Ok(Verdict::Consume),
            place: StopPlace::Anywhere,
            changed: false,
        };
        let fuel = End {
            result: Err(Cause::Fuel),
            place: StopPlace::Here,
            changed: true,
        };
        assert_eq!(user, Tier::Runs(vec![consumed, fuel]));
        assert_eq!(user, kernel);
        assert_eq!(
            memory,
            [Memory {
                at: 16,
                bytes: vec![0x2a, 0]
            }],
            "only the header counts"
        );
        assert_eq!(message, None);
    }

    #[test]
    fn what_cannot_be_checked_is_an_error() {
        for text in [
            "(module)",
            ";; both: consume",
            ";; both: consume. Why?",
            ";; both: killed. A cause there is not.",
            ";; user: consume. Only one of the tiers.",
            ";; both: consume. It writes something.\n;; memory 0x10: 1",
        ] {
            assert!(parse(text, ";;").is_err(), "{text}");
        }
    }
}
