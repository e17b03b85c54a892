//! The graph: modules, and which of their services are connected.
//!
//! A graph says what a node can do; paths are routes through it. Its edges carry
//! data both ways and may form cycles (IP over UDP over IP is a tunnel). What may
//! not be cyclic is the order in which modules are initialised: a service marked
//! [`after`](Service::after) wants whoever is connected there to be ready first.
//!
//! A graph that runs is never built anew, because its modules have state: an
//! [edit](Graph::edited) makes another graph that shares with it the modules that stay.
//!
//! Source: Mosberger & Peterson 1996 ("Scout"), §3.1.

use std::collections::BTreeMap;
use std::rc::Rc;

#[cfg(doc)]
use crate::module::Kind;
use crate::module::{Module, Refused};
use crate::problem::Problem;
use crate::service::Service;

mod edit;
mod sketch;

pub use edit::Edit;
pub(crate) use edit::Part;
pub(crate) use sketch::Sketch;

/// One service of one module, by their positions in the graph and in the kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Port {
    /// Position of the module.
    pub module: usize,
    /// Position of the service in [`Kind::services`].
    pub service: usize,
}

/// A module with its name and its neighbours.
pub struct Node<M> {
    /// Its name, unique in the graph.
    pub name: Box<str>,
    /// The module. Graphs that were made by edits share it.
    pub module: Rc<dyn Module<M>>,
    /// For each service, what is connected there.
    peers: Vec<Vec<Port>>,
    /// Its parameters, as the text says them.
    said: Box<str>,
    /// Whether it was initialised.
    ready: bool,
}

impl<M> Node<M> {
    /// What is connected at the service, in the order of the text; nothing if
    /// there is no such service.
    #[must_use]
    pub fn peers(&self, service: usize) -> &[Port] {
        self.peers.get(service).map_or(&[], Vec::as_slice)
    }
}

/// Connected modules. `M` is what messages are made of.
pub struct Graph<M> {
    nodes: Vec<Node<M>>,
    edges: Vec<[Port; 2]>,
    /// From and to, as written: an edge may be written at both of its ends.
    written: Vec<(Port, Port)>,
    order: Vec<usize>,
    by_name: BTreeMap<Box<str>, usize>,
}

impl<M> Graph<M> {
    /// Connects modules, each by its name, by edges such as
    /// `("udp.down", "ip.up")`. [`Graph::read`] does it from text.
    ///
    /// # Errors
    ///
    /// Every mistake, without places.
    pub fn connect(
        modules: Vec<(&str, Box<dyn Module<M>>)>,
        edges: &[(&str, &str)],
    ) -> Result<Self, Vec<Problem>> {
        let mut sketch = Sketch::default();
        let mut problems = Vec::new();
        for (name, module) in &modules {
            problems.extend(sketch.add(name, None, Some(module.kind())));
        }
        for (from, to) in edges {
            match sketch.port(from, None, None) {
                Ok(Some(from)) => problems.extend(sketch.connect(from, to, None)),
                Ok(None) => {}
                Err(problem) => problems.push(problem),
            }
        }
        let order = sketch.order().unwrap_or_else(|cycles| {
            problems.extend(cycles);
            Vec::new()
        });
        if !problems.is_empty() {
            return Err(problems);
        }
        let fresh = |(name, module): (&str, Box<dyn Module<M>>)| Part::fresh(name, module, "");
        let modules = modules.into_iter().map(fresh).collect();
        Ok(Self::assemble(modules, &sketch, order))
    }

    /// A graph of parts that were checked, in the order in which the sketch has them.
    pub(crate) fn assemble(modules: Vec<Part<M>>, sketch: &Sketch<'_>, order: Vec<usize>) -> Self {
        let edges = sketch.edges();
        let mut nodes: Vec<_> = modules.into_iter().map(Part::node).collect();
        for [a, b] in &edges {
            nodes[a.module].peers[a.service].push(*b);
            nodes[b.module].peers[b.service].push(*a);
        }
        let by_name = nodes
            .iter()
            .enumerate()
            .map(|(at, node)| (node.name.clone(), at))
            .collect();
        Self {
            nodes,
            edges,
            written: sketch.written(),
            order,
            by_name,
        }
    }

    /// Initialises all modules in an order that keeps to their `after` markers;
    /// among equals, the order of the text. Call it before any path; a module that is
    /// initialised is not initialised again.
    ///
    /// # Errors
    ///
    /// Every module that cannot work here; no place is said. Others are initialised: drop the
    /// graph.
    pub fn init(&mut self) -> Result<(), Vec<Problem>> {
        self.init_all(|_| None)
    }

    /// Initialises what is not yet; who cannot work here, and why. Whoever comes `after` one
    /// of them is not asked.
    fn init_fresh(&mut self) -> Vec<(Box<str>, Refused)> {
        let mut failed = Vec::new();
        for &at in &self.order {
            let node = &self.nodes[at];
            let waits = (0..).zip(node.module.kind().services);
            let waits = waits.filter(|(_, service)| service.after);
            let mut before = waits.flat_map(|(service, _)| node.peers(service));
            if node.ready || before.any(|port| !self.nodes[port.module].ready) {
                continue;
            }
            let node = &mut self.nodes[at];
            let module = Rc::get_mut(&mut node.module);
            match module.expect("only what is initialised is shared").init() {
                Ok(()) => node.ready = true,
                Err(refused) => failed.push((node.name.clone(), refused)),
            }
        }
        failed
    }

    /// The modules, in the order of the text. A [`Port`] names them by position.
    #[must_use]
    pub fn nodes(&self) -> &[Node<M>] {
        &self.nodes
    }

    /// The edges, each once.
    #[must_use]
    pub fn edges(&self) -> &[[Port; 2]] {
        &self.edges
    }

    /// The names of the modules in the order of their initialisation, if all of them
    /// were initialised together.
    pub fn order(&self) -> impl Iterator<Item = &str> {
        self.order.iter().map(|at| self.nodes[*at].name.as_ref())
    }

    /// The position of the module of this name. Logarithmic.
    #[must_use]
    pub fn position(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// The service at one end of an edge.
    #[must_use]
    pub fn service(&self, port: Port) -> Option<&'static Service> {
        let node = self.nodes.get(port.module)?;
        node.module.kind().services.get(port.service)
    }

    /// `udp.down`: how a port is called in the text.
    #[must_use]
    pub fn port_name(&self, port: Port) -> String {
        let name = self.nodes.get(port.module).map_or("?", |node| &node.name);
        let service = self.service(port).map_or("?", |service| service.name);
        format!("{name}.{service}")
    }
}
