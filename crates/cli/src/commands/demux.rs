//! `ashway demux`: which path a frame belongs to, by the paths of a configuration.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use ashway_codegen::demux::{Table, print};
use ashway_daemon::config::{self, Config};
use ashway_wire::Headers;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::handler::file::count;
use super::handler::packets::{self, Layer};
use crate::face::Face;
use crate::failure::{Exit, Failure};
use crate::table;

/// Which path a frame belongs to
#[derive(Debug, Subcommand)]
pub(crate) enum Demux {
    Show(Show),
    Match(Match),
}

impl Demux {
    pub(crate) fn run(self, face: Face) -> Result<(), Failure> {
        match self {
            Self::Show(command) => command.run(face),
            Self::Match(command) => command.run(face),
        }
    }
}

/// Show how the filters of an interface's paths are decided
///
/// Changes nothing, asks no node and needs no privilege. Filters that test the same
/// bits are one shape: its tests are made once, and the values are looked up. Shapes
/// are numbered in the order in which they are tried, the most specific first;
/// those that begin with the same tests stand below each other.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ashway demux show node.toml
  ashway demux show node.toml --iface veth0 -j")]
pub(crate) struct Show {
    /// The configuration
    config: PathBuf,
    /// Only this interface
    #[arg(long)]
    iface: Option<String>,
}

/// Most entries of a shape that are shown to a person.
const LISTED: usize = 20;

impl Show {
    fn run(self, face: Face) -> Result<(), Failure> {
        let config = config::load(&self.config)?;
        let ifaces = match &self.iface {
            Some(name) => vec![known(&config, name)?],
            None => names(&config),
        };
        let tables: Vec<_> = ifaces
            .into_iter()
            .map(|iface| (iface, config.demux(iface)))
            .collect();
        let interfaces: Vec<_> = tables
            .iter()
            .map(|(iface, table)| document(&config, iface, table))
            .collect();
        face.show(&json!({ "interfaces": interfaces }), || {
            let texts: Vec<_> = tables
                .iter()
                .map(|(iface, table)| text(&config, iface, table))
                .collect();
            texts.join("\n")
        })
    }
}

/// The entries of each shape in their order: key's meaning and path.
fn entries(config: &Config, table: &Table<usize>) -> Vec<Vec<(String, String)>> {
    let shapes = table.shapes().iter();
    shapes
        .map(|entries| {
            let shape = entries.shape();
            let mut entries: Vec<_> = entries.iter().collect();
            entries.sort_unstable();
            entries
                .into_iter()
                .map(|(key, path)| {
                    let conjunction = shape.conjunction(key).to_string();
                    (conjunction, config.path_name(path).to_owned())
                })
                .collect()
        })
        .collect()
}

fn document(config: &Config, iface: &str, table: &Table<usize>) -> Value {
    let printed = print::json(table, |_| None);
    let mut document: Value = serde_json::from_str(&printed).unwrap_or_default();
    document["name"] = json!(iface);
    let shapes = document["shapes"].as_array_mut().into_iter().flatten();
    for (shape, entries) in shapes.zip(entries(config, table)) {
        shape["paths"] = entries
            .into_iter()
            .map(|(tests, path)| json!({ "tests": tests, "path": path }))
            .collect();
    }
    document
}

fn text(config: &Config, iface: &str, table: &Table<usize>) -> String {
    let (filters, shapes) = (table.len(), table.shapes().len());
    let mut text = format!(
        "{iface}: {}, {}\n",
        count(filters, "filter"),
        count(shapes, "shape")
    );
    for line in print::tree(table, |_| None).lines() {
        let _ = writeln!(text, "  {line}");
    }
    let mut rows = Vec::new();
    for (rank, entries) in entries(config, table).into_iter().enumerate() {
        let more = entries.len().saturating_sub(LISTED);
        for (tests, path) in entries.into_iter().take(LISTED) {
            rows.push(vec![(rank + 1).to_string(), path, tests]);
        }
        if more > 0 {
            rows.push(vec![
                String::new(),
                String::new(),
                format!("and {more} more"),
            ]);
        }
    }
    if !rows.is_empty() {
        text.push('\n');
    }
    text + &table::render(&["SHAPE", "PATH", "A FRAME WITH"], &rows)
}

/// Say for each frame of a capture which path it belongs to
///
/// Changes nothing, asks no node and needs no privilege. What belongs to no path is
/// the host's. A node also leaves frames to the host that are not for its
/// interface's own hardware address; here that is not looked at. Of a frame that
/// the capture has cut short, what is left is looked at. With -j one document for
/// each packet is printed, on a line of its own.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ashway demux match node.toml in.pcap
  ashway demux match node.toml in.pcapng --iface veth0 -j | grep -v null")]
pub(crate) struct Match {
    /// The configuration
    config: PathBuf,
    /// A capture (pcap or pcapng) of Ethernet frames
    capture: PathBuf,
    /// The interface that they arrive on [default: the only one]
    #[arg(long)]
    iface: Option<String>,
}

impl Match {
    fn run(self, face: Face) -> Result<(), Failure> {
        let config = config::load(&self.config)?;
        let iface = match (&self.iface, names(&config).as_slice()) {
            (Some(name), _) => known(&config, name)?,
            (None, [only]) => only,
            (None, all) => {
                let failure = Failure::new(Exit::Usage, "on which interface do they arrive?");
                let failure = failure.hint(match all {
                    [] => "the configuration has none: add `[iface.NAME]`".to_owned(),
                    _ => format!("write `--iface` and one of {}", all.join(", ")),
                });
                return Err(failure.in_file(&self.config));
            }
        };
        let table = config.demux(iface);
        let capture = packets::read(&self.capture, Layer::Eth)?;
        let paths: Vec<_> = capture
            .packets
            .iter()
            .map(|packet| {
                let path = table.find(&Headers::parse(&packet.frame), &packet.frame);
                path.map(|number| config.path_name(number))
            })
            .collect();
        let mut shown = String::new();
        let mut rows = Vec::new();
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for (at, (packet, path)) in capture.packets.iter().zip(paths).enumerate() {
            let (number, bytes) = (at + 1, packet.frame.len());
            if face.json {
                let line = json!({ "packet": number, "bytes": bytes, "path": path });
                let _ = writeln!(shown, "{line}");
            } else {
                let path = path.unwrap_or("host").to_owned();
                rows.push(vec![number.to_string(), bytes.to_string(), path]);
            }
            *counts.entry(path.unwrap_or("the host")).or_default() += 1;
        }
        if !face.json {
            let total = count(capture.packets.len(), "packet");
            let parts: Vec<_> = counts
                .iter()
                .map(|(path, count)| format!("{count} to {path}"))
                .collect();
            let colon = if parts.is_empty() { "" } else { ": " };
            shown = table::render(&["PACKET", "BYTES", "PATH"], &rows);
            let _ = writeln!(shown, "{total} on {iface}{colon}{}", parts.join(", "));
        }
        // One document for each line already, or text.
        Face { json: false }.show(&Value::Null, || shown)?;
        match capture.broken {
            None => Ok(()),
            Some(because) => {
                let number = capture.packets.len() + 1;
                let file = self.capture.display();
                let what = format!("packet {number} of `{file}` cannot be read");
                let failure = Failure::new(Exit::Failed, what).because(&because);
                Err(failure.in_file(&self.capture))
            }
        }
    }
}

fn names(config: &Config) -> Vec<&str> {
    let ifaces = config.ifaces.iter();
    ifaces.map(|iface| iface.name.as_str()).collect()
}

fn known<'c>(config: &'c Config, name: &str) -> Result<&'c str, Failure> {
    let found = config.iface(name).map(|iface| iface.name.as_str());
    found.ok_or_else(|| {
        let failure = Failure::new(Exit::Usage, format!("there is no `[iface.{name}]`"));
        failure
            .hint(ashway_path::problem::suggest(name, &names(config)))
            .in_file(&config.file)
    })
}
