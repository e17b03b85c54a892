//! What the modules of a running node have to do with: its interfaces and its
//! handlers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use ashway_kernel::Iface;
use ashway_modules::handler;
use ashway_modules::kinds::Interface;
use ashway_modules::shell::{Commands, Outcome, Request};
use ashway_modules::tap::{Seen, Watch};

use super::RunError;
use crate::activation::Bindable;
use crate::config::{Config, NodeGraph, World};
use crate::rung::Rung;

/// An interface of the node, as its module knows it.
#[derive(Clone, Debug)]
pub(super) struct Link {
    name: String,
    interface: Interface,
}

impl Link {
    pub(super) fn new(number: usize, found: &Iface, rung: Rung) -> Self {
        Self {
            name: found.name.clone(),
            interface: Interface {
                number: number as u32,
                mac: found.mac,
                mtu: found.mtu,
                xdp: rung != Rung::Packet,
            },
        }
    }
}

/// The graph of the configuration, initialised.
///
/// # Errors
///
/// [`RunError::Graph`].
pub(super) fn graph(
    config: &Config,
    links: &[Link],
    handlers: &[Bindable],
) -> Result<NodeGraph, RunError> {
    let world = Live { links, handlers };
    let mut graph = config
        .graph(&world)
        .map_err(|wrong| RunError::Graph(wrong.render(false)))?;
    graph
        .graph
        .init()
        .map_err(|not_ready| RunError::Graph(not_ready.to_string()))?;
    Ok(graph)
}

/// The world of a running node.
struct Live<'n> {
    links: &'n [Link],
    handlers: &'n [Bindable],
}

impl World for Live<'_> {
    fn interface(&self, name: &str) -> Result<Interface, String> {
        let mut links = self.links.iter();
        let link = links.find(|link| link.name == name);
        link.map(|link| link.interface)
            .ok_or_else(|| format!("this node has no interface `{name}`"))
    }

    fn handler(&self, name: &str) -> Option<Arc<dyn handler::Instance>> {
        let mut handlers = self.handlers.iter();
        let handler = handlers.find(|handler| handler.shared.name == name)?;
        Some(Arc::new(handler.clone()))
    }

    fn watch(&self) -> Arc<dyn Watch> {
        Arc::new(Nobody)
    }

    fn commands(&self) -> Arc<dyn Commands> {
        Arc::new(Nobody)
    }
}

/// Who is not there yet: nobody looks at taps, nobody obeys shells.
struct Nobody;

impl Watch for Nobody {
    fn see(&self, _seen: &Seen<'_>) {}
}

impl Commands for Nobody {
    fn begin(&self, _from: SocketAddr, _request: Request) -> Receiver<Outcome> {
        let (outcome, receiver) = channel();
        // The other end is here.
        let _ = outcome.send(Err("this node obeys no shell".to_owned()));
        receiver
    }
}
