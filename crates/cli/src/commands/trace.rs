//! `ashway trace`: what happens to messages, step by step.

use std::fmt::Write as _;
use std::io::{self, Write as _};

use ashway_api::answer::{Packet, Step, What};
use ashway_api::request;
use clap::Args;
use serde_json::json;

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
                line!(text, "{}", ascii(packet.document.to_string()));
            } else {
                if heard.lost != lost {
                    line!(text, "({} records lost)", heard.lost);
                }
                block(&mut text, &packet.answer);
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
fn block(out: &mut String, packet: &Packet) {
    let number = packet.packet;
    let flow = packet.flow.as_deref().map_or_else(String::new, clean);
    let path = match &packet.path {
        Some(path) => format!("path `{}`", clean(path)),
        None => "no path".to_owned(),
    };
    let tier = match &packet.tier {
        Some(tier) => format!(", {tier} tier"),
        None => String::new(),
    };
    let fate = match &packet.fate {
        Some(fate) => fate,
        None if packet.received.is_none() => "originated",
        None => "no fate yet",
    };
    line!(out, "#{number} {flow}: {path}{tier}: {fate}");
    let mut before = 0;
    for (number, Step { at_ns, what }) in packet.steps.iter().enumerate() {
        let (name, words) = words(what);
        line!(
            out,
            "  {:>2}  {:>11}  {:>13}  {name:<12} {words}",
            number + 1,
            time(*at_ns),
            format!("(+{})", time(at_ns - before)),
        );
        before = *at_ns;
    }
    line!(out, "");
}

/// The name of a step, and what there is to say of it.
fn words(step: &What) -> (&str, String) {
    match step {
        What::Received { iface, bytes, by } => {
            let (iface, by) = (clean(iface), clean(by));
            ("received", format!("{iface}, {bytes} bytes, by the {by}"))
        }
        What::Classified { path } => {
            let words = match path {
                Some(path) => format!("path {}", clean(path)),
                None => "no path: the host's".to_owned(),
            };
            ("classified", words)
        }
        What::TurnedOver { to, handler } => {
            let mut words = format!("to the {}", clean(to));
            if let Some(handler) = handler {
                let _ = write!(words, " of {}", clean(handler));
            }
            ("turned over", words)
        }
        What::Queued { because } => ("queued", format!("for the user tier ({})", clean(because))),
        What::Taken { by, copies } => {
            let words = format!("by the {}{}", clean(by), copied(*copies));
            ("taken", words)
        }
        What::Stage { stage, direction } => {
            ("stage", format!("{}, {}", clean(stage), clean(direction)))
        }
        What::Handler {
            handler,
            ns,
            fuel,
            stopped,
            copies,
        } => {
            let mut words = handler.as_deref().map_or_else(|| "?".to_owned(), clean);
            let _ = write!(words, ": {}", time(*ns));
            if let Some(fuel) = fuel {
                let _ = write!(words, ", {fuel} fuel");
            }
            if let Some(stopped) = stopped {
                let _ = write!(words, ", stopped: {}", clean(stopped));
            }
            ("handler", words + &copied(*copies))
        }
        What::Fate { fate } => ("fate", clean(fate)),
        What::Sent {
            iface,
            bytes,
            copies,
        } => ("sent", frame(iface, *bytes, *copies)),
        What::NotSent {
            iface,
            bytes,
            copies,
        } => ("not sent", frame(iface, *bytes, *copies)),
        What::Unknown { step } => (step, String::new()),
    }
}

/// A frame that goes out.
fn frame(iface: &str, bytes: u64, copies: u64) -> String {
    format!("{}, {bytes} bytes{}", clean(iface), copied(copies))
}

/// How often the payload had been copied by then, if it was.
fn copied(times: u64) -> String {
    match times {
        0 => String::new(),
        1 => ", copied once".to_owned(),
        times => format!(", copied {times} times"),
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
        let received = What::Received {
            iface: "b0".to_owned(),
            bytes: 60,
            by: "entry program".into(),
        };
        let ran = What::Handler {
            handler: Some("counter".to_owned()),
            ns: 40,
            fuel: Some(7),
            stopped: None,
            copies: 0,
        };
        let sent = What::Sent {
            iface: "b0".to_owned(),
            bytes: 60,
            copies: 4,
        };
        let steps = [(0, received), (12_340, ran), (12_400, sent)];
        let packet = Packet {
            packet: 3,
            path: Some("inc".to_owned()),
            tier: Some("kernel".into()),
            fate: Some("answered".into()),
            flow: Some("udp 10.0.0.1:5 > 10.0.0.2:7".to_owned()),
            steps: steps.map(|(at_ns, what)| Step { at_ns, what }).into(),
            ..Packet::default()
        };
        block(&mut out, &packet);
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
