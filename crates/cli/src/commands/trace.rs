//! `ashway trace`: what happens to messages, step by step.

use std::fmt::Write as _;
use std::io::{self, Write as _};

use ashway_api::request;
use clap::Args;
use serde_json::{Value, json};

use super::Node;
use super::observe::{Enough, Heard, filter};
use crate::face::{Face, ascii, clean};
use crate::failure::Failure;

/// Show what happens to messages, step by step, while a node runs
///
/// For each message: where and how long it came, which path it took, which program,
/// ring, stage and handler had it when, what became of it and why, and what went out.
/// Times are from the first step on; in brackets, from the step before.
///
/// The node observes only while somebody asks: it exchanges its programs for others
/// that say what they do, and puts the first ones back at the end. Messages are slower
/// meanwhile, and none is lost. What could not be told of is counted.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ashway trace                                 every message
  ashway trace --path inc --count 1            the next message of a path
  ashway trace 'udp and src port 5000'         those that match a filter
  ashway trace 'udp 10.0.0.1:5000 > 10.0.0.2:7777'   those of a flow
  ashway trace -j --seconds 5 > steps.ndjson   a JSON document a line")]
pub(crate) struct Trace {
    /// A filter in the words of pcap-filter(7), or a flow as `ashway why` takes it
    #[arg(value_name = "FLOW|FILTER")]
    about: Vec<String>,
    /// Only messages that come or go by this interface
    #[arg(long)]
    iface: Option<String>,
    /// Only messages of this path
    #[arg(long)]
    path: Option<String>,
    #[command(flatten)]
    enough: Enough,
    #[command(flatten)]
    node: Node,
}

impl Trace {
    pub(crate) fn run(self, face: Face) -> Result<(), Failure> {
        let request = request::Observe {
            count: self.enough.count,
            iface: self.iface,
            path: self.path,
            filter: filter(&self.about)?,
            ..request::Observe::default()
        };
        let mut heard = Heard::new(self.node, request, &self.enough)?;
        let mut lost = 0;
        let mut out = io::stdout().lock();
        while let Some(packet) = heard.next()? {
            let mut text = String::new();
            if face.json {
                if heard.lost != lost {
                    line!(text, "{}", json!({ "lost": heard.lost }));
                }
                line!(text, "{}", ascii(packet.to_string()));
            } else {
                if heard.lost != lost {
                    line!(text, "({} records lost)", heard.lost);
                }
                block(&mut text, &packet);
            }
            lost = heard.lost;
            // Who reads has read enough.
            if out
                .write_all(text.as_bytes())
                .and_then(|()| out.flush())
                .is_err()
            {
                break;
            }
        }
        if face.json && heard.lost != lost {
            let _ = writeln!(out, "{}", json!({ "lost": heard.lost }));
        }
        heard.say_lost();
        Ok(())
    }
}

// Writing to a string cannot fail.
macro_rules! line {
    ($text:expr, $($arg:tt)*) => { let _ = writeln!($text, $($arg)*); };
}
use line;

/// A message and its steps.
fn block(out: &mut String, packet: &Value) {
    let number = &packet["packet"];
    let flow = packet["flow"].as_str().map_or_else(String::new, clean);
    let path = match packet["path"].as_str() {
        Some(path) => format!("path `{}`", clean(path)),
        None => "no path".to_owned(),
    };
    let tier = match packet["tier"].as_str() {
        Some(tier) => format!(", {tier} tier"),
        None => String::new(),
    };
    let fate = match packet["fate"].as_str() {
        Some(fate) => fate,
        None if packet["received"].is_null() => "originated",
        None => "no fate yet",
    };
    line!(out, "#{number} {flow}: {path}{tier}: {fate}");
    let mut before = 0;
    for (number, step) in packet["steps"].as_array().into_iter().flatten().enumerate() {
        let at = step["at_ns"].as_u64().unwrap_or_default();
        line!(
            out,
            "  {:>2}  {:>11}  {:>13}  {:<12} {}",
            number + 1,
            time(at),
            format!("(+{})", time(at - before)),
            step["step"].as_str().unwrap_or("?").replace('_', " "),
            words(step)
        );
        before = at;
    }
    line!(out, "");
}

/// What there is to say of a step.
fn words(step: &Value) -> String {
    let text = |key: &str| step[key].as_str().map_or_else(|| "?".to_owned(), clean);
    match step["step"].as_str() {
        Some("received") => {
            let (iface, by) = (text("iface"), text("by"));
            format!("{iface}, {} bytes, by the {by}", step["bytes"])
        }
        Some("classified") => match step["path"].as_str() {
            Some(path) => format!("path {}", clean(path)),
            None => "no path: the host's".to_owned(),
        },
        Some("turned_over") => match step["handler"].as_str() {
            Some(handler) => format!("to the {} of {}", text("to"), clean(handler)),
            None => format!("to the {}", text("to")),
        },
        Some("queued") => format!("for the user tier ({})", text("because")),
        Some("taken") => format!("by the worker{}", copies(step)),
        Some("stage") => format!("{}, {}", text("stage"), text("direction")),
        Some("handler") => {
            let mut words = match step["handler"].as_str() {
                Some(handler) => clean(handler),
                None => "?".to_owned(),
            };
            let ns = step["ns"].as_u64().unwrap_or_default();
            let _ = write!(words, ": {}", time(ns));
            if let Some(fuel) = step["fuel"].as_u64() {
                let _ = write!(words, ", {fuel} fuel");
            }
            if let Some(stopped) = step["stopped"].as_str() {
                let _ = write!(words, ", stopped: {}", clean(stopped));
            }
            words + &copies(step)
        }
        Some("fate") => text("fate"),
        Some("sent" | "not_sent") => {
            let (iface, bytes) = (text("iface"), &step["bytes"]);
            format!("{iface}, {bytes} bytes{}", copies(step))
        }
        _ => String::new(),
    }
}

/// How often the payload had been copied by then, if it was.
fn copies(step: &Value) -> String {
    match step["copies"].as_u64() {
        None | Some(0) => String::new(),
        Some(1) => ", copied once".to_owned(),
        Some(times) => format!(", copied {times} times"),
    }
}

/// A time in the unit that suits it.
fn time(ns: u64) -> String {
    match ns {
        0..10_000 => format!("{ns} ns"),
        10_000..10_000_000 => format!("{}.{} us", ns / 1000, ns % 1000 / 100),
        _ => format!("{}.{} ms", ns / 1_000_000, ns % 1_000_000 / 100_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_has_a_line_for_each_step() {
        let mut out = String::new();
        block(
            &mut out,
            &json!({
                "packet": 3, "path": "inc", "tier": "kernel", "fate": "answered",
                "flow": "udp 10.0.0.1:5 > 10.0.0.2:7", "received": {},
                "steps": [
                    { "step": "received", "at_ns": 0, "iface": "b0", "bytes": 60,
                      "by": "entry program" },
                    { "step": "handler", "at_ns": 12_340, "handler": "counter", "ns": 40,
                      "fuel": 7, "stopped": null, "copies": 0 },
                    { "step": "sent", "at_ns": 12_400, "iface": "b0", "bytes": 60,
                      "copies": 4 },
                ],
            }),
        );
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(
            lines[0],
            "#3 udp 10.0.0.1:5 > 10.0.0.2:7: path `inc`, kernel tier: answered"
        );
        assert!(
            lines[1].contains("received     b0, 60 bytes, by the entry program"),
            "{out}"
        );
        assert!(lines[2].contains("12.3 us"), "{out}");
        assert!(lines[2].ends_with("counter: 40 ns, 7 fuel"), "{out}");
        assert!(lines[3].ends_with("b0, 60 bytes, copied 4 times"), "{out}");
    }
}
