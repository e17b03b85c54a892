//! What the modules of a running node have to do with: its interfaces and its
//! handlers.

use std::path::Path as FsPath;
use std::sync::Arc;

use ashway_kernel::Iface;
use ashway_modules::handler;
use ashway_modules::kinds::Interface;
use ashway_modules::shell::Commands;
use ashway_modules::tap::{Target, Watch};

use super::RunError;
use crate::activation::Bindable;
use crate::config::{Config, NodeGraph, World};
use crate::rung::Rung;
use crate::shells::Shells;
use crate::taps::Taps;

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

/// What modules have the node do beside the path.
#[derive(Debug)]
pub(super) struct Served {
    /// Writes what taps see.
    pub(super) taps: Taps,
    /// Asks for what shells are told.
    pub(super) shells: Shells,
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
    served: &Served,
) -> Result<NodeGraph, RunError> {
    let world = Live {
        links,
        handlers,
        served,
    };
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
    served: &'n Served,
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

    fn watch(&self, tap: &str, file: &FsPath, target: &Target) -> Result<Arc<dyn Watch>, String> {
        match self.served.taps.open(tap, file, target) {
            Ok(file) => Ok(file),
            Err(error) => Err(error.to_string()),
        }
    }

    fn commands(&self, domain: &str) -> Arc<dyn Commands> {
        self.served.shells.of(domain)
    }
}
