//! The graph: modules, and which of their services are connected.
//!
//! A graph says what a node can do; paths are routes through it. Its edges carry
//! data both ways and may form cycles (IP over UDP over IP is a tunnel). What may
//! not be cyclic is the order in which modules are initialised: a service marked
//! [`after`](Service::after) wants whoever is connected there to be ready first.
//!
//! Source: Mosberger & Peterson 1996 ("Scout"), §3.1.

use std::collections::BTreeMap;

#[cfg(doc)]
use crate::module::Kind;
use crate::module::Module;
use crate::problem::Problem;
use crate::service::Service;

mod sketch;

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
    /// The module.
    pub module: Box<dyn Module<M>>,
    /// For each service, what is connected there.
    peers: Vec<Vec<Port>>,
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
        let edges = sketch.edges();
        let modules = modules
            .into_iter()
            .map(|(name, module)| (name.into(), module))
            .collect();
        Ok(Self::assemble(modules, edges, order))
    }

    /// A graph of parts that were checked.
    pub(crate) fn assemble(
        modules: Vec<(Box<str>, Box<dyn Module<M>>)>,
        edges: Vec<[Port; 2]>,
        order: Vec<usize>,
    ) -> Self {
        let mut nodes: Vec<_> = modules
            .into_iter()
            .map(|(name, module)| Node {
                name,
                peers: vec![Vec::new(); module.kind().services.len()],
                module,
            })
            .collect();
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
            order,
            by_name,
        }
    }

    /// Initialises all modules in an order that keeps to their `after` markers;
    /// among equals, the order of the text. Call it once, before any path.
    ///
    /// # Errors
    ///
    /// The first module that cannot work here. Those before it stay initialised:
    /// drop the graph.
    pub fn init(&mut self) -> Result<(), NotReady> {
        for at in &self.order {
            let node = &mut self.nodes[*at];
            node.module.init().map_err(|because| NotReady {
                module: node.name.clone(),
                because,
            })?;
        }
        Ok(())
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

    /// The names of the modules in the order of their initialisation.
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

/// A module that could not be initialised.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("module `{module}` cannot be initialised: {because}")]
#[non_exhaustive]
pub struct NotReady {
    /// Its name.
    pub module: Box<str>,
    /// Its own words.
    pub because: String,
}
