//! `ashway demux`: which path a frame belongs to, by the paths of a configuration.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use ashway_api::answer::{self, DemuxOfInterface};
use ashway_api::{Said, request};
use ashway_config::{self as config, Config};
use ashway_wire::Headers;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::handler::file::count;
use super::handler::packets::{self, Layer};
use crate::commands::Node;
use crate::face::{Face, clean};
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
/// Filters that test the same bits are one shape: its tests are made once, and the
/// values are looked up. Shapes are numbered in the order in which they are tried, the
/// most specific first; those that begin with the same tests stand below each other.
///
/// Without CONFIG a running node shows what it has, and how many frames each entry
/// caught: since it came, or since its program was made, if the shape has only a few.
/// With CONFIG no node is asked and no privilege is needed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ashway demux show
  ashway demux show node.toml
  ashway demux show node.toml --iface veth0 -j")]
pub(crate) struct Show {
    /// The configuration [default: what the running node has]
    config: Option<PathBuf>,
    /// Only this interface
    #[arg(long)]
    iface: Option<String>,
    #[command(flatten)]
    node: Node,
}

/// Most entries of a shape that are shown to a person.
const LISTED: usize = 20;

impl Show {
    fn run(self, face: Face) -> Result<(), Failure> {
        let Said {
            mut document,
            answer,
        } = if let Some(config) = &self.config {
            let answer = self.of_config(&config::load(config)?)?;
            Said {
                document: json!(answer),
                answer,
            }
        } else {
            let iface = self.iface.clone();
            self.node.connect()?.request(request::Demux { iface })?
        };
        // It is drawn for people.
        let ifaces = document["interfaces"].as_array_mut().into_iter().flatten();
        for iface in ifaces.filter_map(Value::as_object_mut) {
            iface.remove("tree");
        }
        let texts = answer.interfaces.iter().map(text);
        face.show(&document, || texts.collect::<Vec<_>>().join("\n"))
    }

    fn of_config(&self, config: &Config) -> Result<answer::Demux, Failure> {
        let ifaces = match &self.iface {
            Some(name) => vec![known(config, name)?],
            None => names(config),
        };
        let interfaces = ifaces.into_iter().map(|name| of_iface(config, name));
        Ok(answer::Demux {
            interfaces: interfaces.collect(),
        })
    }
}

fn of_iface(config: &Config, iface: &str) -> DemuxOfInterface {
    let table = config.demux(iface);
    let name = |path| config.path_name(path);
    ashway_node::demux::describe(iface, &table, |_, _| None, name, usize::MAX)
}

/// An interface for people.
fn text(iface: &DemuxOfInterface) -> String {
    let shapes = &iface.shapes;
    let mut text = format!(
        "{}: {}, {}",
        clean(&iface.name),
        count(iface.filters as usize, "filter"),
        count(shapes.len(), "shape")
    );
    if let Some(host) = iface.unmatched {
        let _ = write!(text, "; {host} frames that no path takes");
    }
    text.push('\n');
    for line in iface.tree.lines() {
        let _ = writeln!(text, "  {}", clean(line));
    }
    let counted = shapes.iter().any(|shape| shape.hits.is_some());
    let mut rows = Vec::new();
    for (rank, shape) in shapes.iter().enumerate() {
        for entry in shape.paths.iter().take(LISTED) {
            let mut row = vec![(rank + 1).to_string()];
            row.push(clean(&entry.path));
            if counted {
                row.push(entry.hits.unwrap_or(0).to_string());
            }
            row.push(clean(&entry.tests));
            rows.push(row);
        }
        let more = shape.entries.saturating_sub(LISTED as u64);
        if more > 0 {
            let mut row = vec![String::new(); if counted { 3 } else { 2 }];
            row.push(format!("and {more} more"));
            rows.push(row);
        }
    }
    if !rows.is_empty() {
        text.push('\n');
    }
    let heads = ["SHAPE", "PATH", "HITS", "A FRAME WITH"];
    let heads: Vec<_> = heads
        .into_iter()
        .filter(|head| counted || *head != "HITS")
        .collect();
    text + &table::render(&heads, &rows)
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
