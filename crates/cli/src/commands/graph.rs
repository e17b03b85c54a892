//! `ashway graph`: the modules of a configuration, and how they are connected.

use std::path::PathBuf;

use ashway_config::{self as config, Offline};
use ashway_modules::Message;
use ashway_path::graph;
use clap::{Args, Subcommand};
use serde_json::json;

use crate::face::{Face, clean};
use crate::failure::Failure;
use crate::table;

/// The graph of modules that paths lead through
#[derive(Debug, Subcommand)]
pub(crate) enum Graph {
    Show(Show),
}

/// Show the modules of a configuration, their services and connections
///
/// Changes nothing, asks no node and needs no privilege. Beside the sections
/// `[module.NAME]` there are the modules that `[iface.NAME]` and `[handler.NAME]`
/// imply. A service is written `name:<provides, requires>`; `<` before it says that
/// who is connected there is initialised first.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ashway graph show node.toml
  ashway graph show node.toml --dot | dot -Tsvg > graph.svg")]
pub(crate) struct Show {
    /// The configuration
    config: PathBuf,
    /// Print it in the language of Graphviz
    #[arg(long)]
    dot: bool,
}

impl Graph {
    pub(crate) fn run(self, face: Face) -> Result<(), Failure> {
        let Self::Show(Show { config, dot }) = self;
        let config = config::load(&config)?;
        let graph = config.graph(&Offline(&config))?.graph;
        if dot {
            let dot = graph.dot();
            return face.show(&json!({ "dot": dot }), || dot.clone());
        }
        face.show(&graph.json(), || text(&graph))
    }
}

/// A line for each service, and the order of initialisation.
fn text(graph: &graph::Graph<Message>) -> String {
    let mut rows = Vec::new();
    for node in graph.nodes() {
        let kind = node.module.kind();
        for (at, service) in kind.services.iter().enumerate() {
            let (name, kind) = match at {
                0 => (&*node.name, kind.name),
                _ => ("", ""),
            };
            let marker = if service.after { "<" } else { "" };
            let peers: Vec<_> = node
                .peers(at)
                .iter()
                .map(|peer| graph.port_name(*peer))
                .collect();
            rows.push(vec![
                name.to_owned(),
                kind.to_owned(),
                format!("{marker}{service}"),
                peers.join(", "),
            ]);
        }
    }
    if rows.is_empty() {
        return "no modules".to_owned();
    }
    let order: Vec<_> = graph.order().collect();
    let mut text = table::render(&["MODULE", "KIND", "SERVICE", "CONNECTED"], &rows);
    text += &[
        "initialised in this order: ",
        &clean(&order.join(", ")),
        "\n",
    ]
    .concat();
    text
}
