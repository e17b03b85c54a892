//! Drawings of a graph: for Graphviz, and as JSON for programs.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::graph::{Graph, Port};

impl<M> Graph<M> {
    /// The graph in the language of Graphviz: modules as boxes, edges with the
    /// names of the services at their ends; `<` marks a service whose other side
    /// is initialised first, as Scout writes it.
    ///
    /// # Examples
    ///
    /// `ashway graph show --dot | dot -Tsvg > graph.svg`
    #[must_use]
    pub fn dot(&self) -> String {
        let mut out = String::from("graph ashway {\n  node [shape=box];\n");
        let name = |port: &Port| quoted(&self.nodes()[port.module].name);
        let service = |port: &Port| {
            let service = self.service(*port);
            let marker = if service.is_some_and(|service| service.after) {
                "<"
            } else {
                ""
            };
            quoted(&format!("{marker}{}", service.map_or("?", |it| it.name)))
        };
        for node in self.nodes() {
            let kind = node.module.kind();
            let (name, about) = (quoted(&node.name), quoted(kind.about));
            let label = if *node.name == *kind.name {
                name.clone()
            } else {
                quoted(&format!("{}: {}", node.name, kind.name))
            };
            // Writing to a string cannot fail.
            let _ = writeln!(out, "  {name} [label={label}, tooltip={about}];");
        }
        for [from, to] in self.edges() {
            let _ = writeln!(
                out,
                "  {} -- {} [taillabel={}, headlabel={}];",
                name(from),
                name(to),
                service(from),
                service(to)
            );
        }
        out.push_str("}\n");
        out
    }

    /// `{modules: [{name, kind, about, services: [{name, provides, requires,
    /// after, connected}]}], edges: [[from, to]], order}`; `order` is that of
    /// initialisation.
    #[must_use]
    pub fn json(&self) -> Value {
        let modules: Vec<_> = self
            .nodes()
            .iter()
            .map(|node| {
                let kind = node.module.kind();
                let services: Vec<_> = kind
                    .services
                    .iter()
                    .enumerate()
                    .map(|(at, service)| {
                        let peers = node.peers(at).iter();
                        json!({
                            "name": service.name,
                            "provides": service.provides.name,
                            "requires": service.requires.name,
                            "after": service.after,
                            "connected": peers.map(|peer| self.port_name(*peer)).collect::<Vec<_>>(),
                        })
                    })
                    .collect();
                json!({
                    "name": &*node.name,
                    "kind": kind.name,
                    "about": kind.about,
                    "services": services,
                })
            })
            .collect();
        let edges = self.edges().iter();
        json!({
            "modules": modules,
            "edges": edges.map(|ends| ends.map(|end| self.port_name(end))).collect::<Vec<_>>(),
            "order": self.order().collect::<Vec<_>>(),
        })
    }
}

/// A string of the DOT language.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
