//! `ashway bench copy`: how often a payload is copied on its way.
//!
//! Counted, not timed: whoever copies a message notes it there, and `ashway trace` says how
//! often that was by the time the handler worked and by the time an answer left. A request
//! that fits one frame, to a handler that consumes it, to one that answers with what it got,
//! and to one that changes that; and one that comes in two fragments. On each rung and in
//! each tier. Copies that Linux makes behind the socket that an answer is given to are not
//! in it.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ashway_rig::{Node, Process, Rig, RigOptions, handler};
use serde_json::{Value, json};

use crate::Report;
use crate::hosts::ask;
use crate::ratio::{self, Ratio, Target};
use crate::table;

/// What to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The `ashway` to measure; the release build unless told otherwise.
    pub binary: Option<PathBuf>,
}

/// Messages of each case: all have to be alike.
const MESSAGES: usize = 5;

/// How long `ashway trace` may take to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// Consumes.
const SINK: &str = r#"(module (memory (export "memory") 1 1)
    (func (export "on_rx") (param i32 i32) (result i32) (i32.const 0)))"#;

/// A handler.
#[derive(Clone, Copy, Debug)]
struct Handler {
    name: &'static str,
    port: u16,
    answers: bool,
}

const SINKS: Handler = Handler {
    name: "sink",
    port: 7776,
    answers: false,
};

/// The second leaves the message as it is, the third changes it.
const HANDLERS: [Handler; 3] = [
    SINKS,
    Handler {
        name: "echo",
        port: 7777,
        answers: true,
    },
    Handler {
        name: "counter",
        port: 7778,
        answers: true,
    },
];

/// Where a handler runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    name: &'static str,
    mode: &'static str,
    tier: &'static str,
}

const PLACES: [Place; 3] = [
    Place {
        name: "kernel tier",
        mode: "native",
        tier: "kernel",
    },
    Place {
        name: "user tier, XDP",
        mode: "native",
        tier: "user",
    },
    Place {
        name: "user tier, packet socket",
        mode: "packet",
        tier: "user",
    },
];

/// Bytes of a request that fits a frame, and of one that does not.
const SIZES: [usize; 2] = [1_000, 2_000];

/// How often a message was copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Copies {
    /// Before its handler worked on it.
    handler: u64,
    /// Before an answer was given to the interface.
    sent: Option<u64>,
}

/// Counts; some seconds. Needs root and the built handlers.
///
/// The document: `{"rows":[{"place","bytes","handler","copies","copies_sent"}],"ratios"}`.
///
/// # Errors
///
/// Without the right to make namespaces, what the node said, and if messages of one case
/// are not copied alike.
pub fn run(options: &Options) -> Result<Report> {
    let sink = std::env::temp_dir().join(format!("ashway-copy-{}.wasm", std::process::id()));
    fs::write(&sink, wat::parse_str(SINK)?)?;
    let rows = count(options, &sink);
    fs::remove_file(&sink)?;
    let rows = rows?;
    let promises = [
        ("copies_kernel", 0.0),
        ("copies_linear", 1.0),
        ("copies_fragmented", 2.0),
    ];
    let ratios = promises.into_iter().filter_map(|(name, most)| {
        let of = rows.iter().filter(|row| row.promise() == name);
        // Each message is a round.
        let copies = of.flat_map(|row| [row.copies.handler as f64; MESSAGES]);
        Ratio::of(name, Target::AtMost(most), copies)
    });
    let ratios: Vec<_> = ratios.collect();
    Ok(report(&rows, &ratios))
}

/// A case, and what came of it.
#[derive(Clone, Copy, Debug)]
struct Row {
    place: Place,
    bytes: usize,
    handler: Handler,
    copies: Copies,
}

impl Row {
    /// Whose promise it is. Fragments are put together in the user tier, whatever the
    /// path's.
    fn promise(&self) -> &'static str {
        match (self.place.tier, self.bytes == SIZES[0]) {
            (_, false) => "copies_fragmented",
            ("kernel", true) => "copies_kernel",
            (_, true) => "copies_linear",
        }
    }
}

fn count(options: &Options, sink: &Path) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (place, name) in PLACES.into_iter().zip(["kernel", "xdp", "packet"]) {
        let rig = Rig::new(&format!("bench-copy-{name}"), RigOptions::default())?;
        let mut builder = rig.node(config(place, sink)?);
        if let Some(binary) = &options.binary {
            builder = builder.binary(binary);
        }
        let node = builder.start()?;
        let create = json!({
            "request": "create", "module": "frag", "name": "frags",
            "attrs": { "reassembly_bytes": 40_000, "mtu": 1500 },
        });
        ask(node.socket(), &create)?;
        let whole = HANDLERS.map(|handler| (SIZES[0], handler));
        for (bytes, handler) in whole.into_iter().chain([(SIZES[1], SINKS)]) {
            let copies = observe(&rig, &node, handler, bytes);
            let case = || format!("{}, {bytes} bytes to {}", place.name, handler.name);
            rows.push(Row {
                place,
                bytes,
                handler,
                copies: copies.with_context(case)?,
            });
        }
        node.stop()?;
    }
    Ok(rows)
}

fn config(place: Place, sink: &Path) -> Result<String> {
    let mut config = format!(
        "[iface.b0]\nmode = {:?}\n[module.frag]\nkind = \"fragment\"\ndown = \"eth:b0.up\"\n",
        place.mode
    );
    for Handler {
        name,
        port,
        answers,
    } in HANDLERS
    {
        let file = if answers {
            handler(name)?
        } else {
            sink.to_owned()
        };
        let file = file.display();
        let allow = if answers { "\"reply\"" } else { "" };
        let _ = write!(
            config,
            "[handler.{name}]\nfile = \"{file}\"\nallow = [{allow}]\n[path.{name}]\n\
             iface = \"b0\"\nmatch = \"udp and dst port {port}\"\nhandler = \"{name}\"\n\
             tier = {:?}\n",
            place.tier
        );
    }
    Ok(config)
}

/// Asks so often, and reads what the node says of it.
fn observe(rig: &Rig, node: &Node, handler: Handler, bytes: usize) -> Result<Copies> {
    let (path, count) = (handler.name, MESSAGES.to_string());
    let mut trace = node.command(["trace", "-j", "--path", path, "--count", &count]);
    trace.args(["--seconds", "5"]);
    trace.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut trace = Process::spawn(trace)?;
    let errors = trace.child().stderr.take().context("no standard error")?;
    let mut said = String::new();
    BufReader::new(errors).read_line(&mut said)?;
    ensure!(said.contains("observing"), "it does not observe: {said}");
    let client = rig.client_a(handler.port)?;
    for _ in 0..MESSAGES {
        if handler.answers {
            client.ask(&vec![7; bytes])?;
        } else {
            client.send(&vec![7; bytes])?;
        }
    }
    let output = trace.child().stdout.take().context("no standard output")?;
    let mut told = Vec::new();
    for line in BufReader::new(output).lines() {
        told.extend(copies(&serde_json::from_str(&line?)?));
    }
    trace
        .wait(PATIENCE)?
        .context("`ashway trace` does not end")?;
    ensure!(
        told.len() == MESSAGES,
        "{} of {MESSAGES} messages were told of",
        told.len()
    );
    ensure!(
        told.iter().all(|copies| *copies == told[0]),
        "messages are copied differently: {told:?}"
    );
    Ok(told[0])
}

/// How often a message was copied, if a handler had it.
fn copies(message: &Value) -> Option<Copies> {
    let steps = message["steps"].as_array()?;
    let at = |name: &str| {
        let step = steps.iter().rev().find(|step| step["step"] == name)?;
        step["copies"].as_u64()
    };
    Some(Copies {
        handler: at("handler")?,
        sent: at("sent"),
    })
}

fn report(rows: &[Row], ratios: &[Ratio]) -> Report {
    let cells = rows.iter().map(|row| {
        let sent = row.copies.sent.map(|copies| copies.to_string());
        vec![
            row.place.name.to_owned(),
            row.handler.name.to_owned(),
            row.bytes.to_string(),
            row.copies.handler.to_string(),
            sent.unwrap_or_else(|| "-".to_owned()),
        ]
    });
    let header = [
        "PLACE",
        "HANDLER",
        "BYTES",
        "COPIES WHERE IT WORKS",
        "AS THE ANSWER LEAVES",
    ];
    let text = format!(
        "{}\n{}",
        table::render(&header, 2, &cells.collect::<Vec<_>>()),
        ratio::render(ratios)
    );
    let rows = rows.iter().map(|row| {
        json!({
            "place": row.place.name,
            "bytes": row.bytes,
            "handler": row.handler.name,
            "copies": row.copies.handler,
            "copies_sent": row.copies.sent,
        })
    });
    let document = json!({
        "rows": rows.collect::<Vec<_>>(),
        "ratios": ratio::to_json(ratios),
    });
    Report { document, text }
}
