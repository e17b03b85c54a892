//! Which paths are bound to a handler: its own rings feed them, and its handler may run in
//! the kernel tier.
//!
//! The entry program does Ethernet, IP and UDP for them. So they are those that lead from
//! the handler's module above UDP straight to an interface, and of whose attributes the
//! entry program and the handler's programs do everything. Both forms of a configuration,
//! `bind` and `path create` make the same path of them.

use std::time::Duration;

use ashway_demux::Filter;
use ashway_modules::handler::FUNCTION;
use ashway_path::attrs::{Attrs, names};
use ashway_path::stage::Stage;

use crate::attributes::{attr, faults, share};
use crate::modules::{Entrance, NodeGraph};
use crate::types::{Config, LongPath, OnFault, PathConfig, Tier};
use crate::values::read_match;

/// The attributes that a path bound to a handler may have: those of its filter, of its way
/// to the interface, and of its handler.
const ATTRIBUTES: [&str; 11] = [
    names::LOCAL,
    names::REMOTE,
    names::PATHNAME,
    FUNCTION,
    attr::ON_FAULT,
    attr::BUDGET_NS,
    attr::FAULT_LIMIT,
    attr::FAULT_WITHIN_NS,
    attr::FAULT_REST_NS,
    attr::SHARE_PER_MILLE,
    attr::RATE_PER_SECOND,
];

/// A path from a module with attributes.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// Its name.
    pub name: &'a str,
    /// The module.
    pub from: &'a str,
    /// Its attributes.
    pub attrs: &'a Attrs,
    /// What must be true of its messages besides.
    pub filter: Option<&'a Filter>,
    /// Where it may run.
    pub tier: Tier,
    /// The domain it belongs to, if any.
    pub domain: Option<&'a str>,
    /// Where its section starts, from 1; 0 for what came while the node ran.
    pub line: usize,
}

impl<'a> Asked<'a> {
    /// What a path of the long form asks for.
    #[must_use]
    pub fn long(path: &'a LongPath) -> Self {
        Self {
            name: &path.name,
            from: &path.from,
            attrs: &path.attrs,
            filter: path.filter.as_ref(),
            tier: path.tier,
            domain: path.domain.as_deref(),
            line: path.line,
        }
    }
}

impl NodeGraph {
    /// What is asked for as a path that is bound to a handler, if it is one.
    ///
    /// O(1) where the module runs no handler; else the path is created twice.
    #[must_use]
    pub fn bound(&self, asked: &Asked<'_>) -> Option<PathConfig> {
        let handler = self.handler_of(asked.from)?;
        let mut given = asked.attrs.iter();
        if self.module_above_udp(handler) != asked.from
            || !given.all(|(name, _)| ATTRIBUTES.contains(&name))
        {
            return None;
        }
        let created = self.create_at(asked.name, asked.from, asked.attrs.clone());
        let created = created.ok()?;
        let entrances = self.entrances(&created, asked.filter);
        let [Entrance { iface, filter }] = &entrances[..] else {
            return None;
        };
        let attrs = asked.attrs;
        let config = PathConfig {
            name: asked.name.to_owned(),
            ifaces: vec![iface.clone()],
            filter: read_match(filter.as_deref()?).ok()?,
            handler: handler.to_owned(),
            function: attrs.text(FUNCTION).unwrap_or("on_rx").to_owned(),
            tier: asked.tier,
            on_fault: attrs
                .text(attr::ON_FAULT)
                .and_then(on_fault)
                .unwrap_or_default(),
            faults: faults(attrs),
            budget: attrs
                .number(attr::BUDGET_NS)
                .map_or(Config::DEFAULT_BUDGET, Duration::from_nanos),
            share: share(attrs),
            domain: asked.domain.map(str::to_owned),
            line: asked.line,
        };
        let bound = self.create(&config, iface, Attrs::new()).ok()?;
        let same = created.path.stages().map(Stage::name);
        same.eq(bound.path.stages().map(Stage::name))
            .then_some(config)
    }
}

fn on_fault(word: &str) -> Option<OnFault> {
    let mut words = OnFault::WORDS.iter();
    words
        .find(|(known, _)| *known == word)
        .map(|(_, value)| *value)
}
