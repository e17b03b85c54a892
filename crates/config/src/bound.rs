//! Which paths are bound to a handler: its own rings feed them, and its handler may run in
//! the kernel tier.
//!
//! The entry program does Ethernet, IP and UDP for them. So they are those that lead from
//! the handler's module above UDP straight to an interface, and of whose attributes the
//! entry program and the handler's programs do everything. Both forms of a configuration,
//! `bind` and `path create` make the same path of them.

use std::time::Duration;

use ashway_demux::Filter;
use ashway_modules::Message;
use ashway_modules::handler::FUNCTION;
use ashway_modules::relay::{self, NotPromotable};
use ashway_path::attrs::{Attrs, names};
use ashway_path::create::{Created, NotCreated};
use ashway_path::path::Path;
use ashway_path::stage::Stage;

use crate::attributes::{self, attr, faults, order, share};
use crate::modules::NodeGraph;
use crate::types::{Config, LongPath, OnFault, PathConfig, Tier};
use crate::values::read_match;

/// The attributes that a path bound to a handler may have: those of its filter, of its way
/// to the interface, of its handler, and of what it holds in the user tier.
const ATTRIBUTES: [&str; 14] = [
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
    attr::QUEUE,
    attr::MEMORY_BYTES,
    attr::ORDER,
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

/// Why a path is not bound to a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotBound {
    /// The module that it is created from runs no handler above UDP.
    From,
    /// It has this attribute, for a stage between the handler and the interface.
    Attribute(&'static str),
    /// It does not lead from there straight to one interface.
    Way,
}

impl NodeGraph {
    /// What is asked for as a path that is bound to a handler, if it is one.
    ///
    /// O(1) where the module runs no handler; else the path is created twice.
    ///
    /// # Errors
    ///
    /// Why it is none.
    pub fn bound(&self, asked: &Asked<'_>) -> Result<PathConfig, NotBound> {
        let handler = self.handler_of(asked.from).ok_or(NotBound::From)?;
        if self.module_above_udp(handler) != asked.from {
            return Err(NotBound::From);
        }
        let mut given = asked.attrs.iter();
        if let Some((name, _)) = given.find(|(name, _)| !ATTRIBUTES.contains(name)) {
            // Whoever asks has checked that there are such attributes.
            let name = attributes::name(name).unwrap_or_default();
            return Err(NotBound::Attribute(name));
        }
        self.led_straight(asked, handler).ok_or(NotBound::Way)
    }

    /// The same, of a path from a handler's module with attributes that it may have.
    fn led_straight(&self, asked: &Asked<'_>, handler: &str) -> Option<PathConfig> {
        let created = self.create_at(asked.name, asked.from, asked.attrs.clone());
        let created = created.ok()?;
        let entrances = self.entrances(&created, asked.filter);
        let [entrance] = &entrances[..] else {
            return None;
        };
        let attrs = asked.attrs;
        let config = PathConfig {
            name: asked.name.to_owned(),
            ifaces: vec![entrance.iface.clone()],
            patterns: Vec::new(),
            filter: read_match(&entrance.text()?).ok()?,
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
            order: order(attrs),
            queue: attrs.number(attr::QUEUE),
            memory_bytes: attrs.number(attr::MEMORY_BYTES),
            domain: asked.domain.map(str::to_owned),
            cpu: None,
            line: asked.line,
        };
        let bound = self.create(&config, &entrance.iface, Attrs::new()).ok()?;
        let same = created.path.stages().map(Stage::name);
        same.eq(bound.path.stages().map(Stage::name))
            .then_some(config)
    }

    /// Whether the kernel tier can do all of a path that is not bound to a handler, for this
    /// reason; by its stages and attributes alone.
    ///
    /// # Errors
    ///
    /// Why not.
    pub fn fits(&self, path: &Path<Message>, why: NotBound) -> Result<(), NotPromotable> {
        relay::fits(path).map_err(|stays| {
            let mut stages = path.stages();
            if stages.any(|stage| self.handler_of(stage.name()).is_some()) {
                why.stays()
            } else {
                stays
            }
        })
    }
}

/// Refuses [`order`](attr::ORDER) on a path that is not [bound](NodeGraph::bound) to a handler,
/// where nobody reads it.
///
/// # Errors
///
/// It is there, and the path is not bound.
pub fn refuse_unused_order(
    created: Created<Message>,
    is_bound: impl FnOnce() -> bool,
) -> Result<Created<Message>, NotCreated> {
    if created.path.attrs().value(attr::ORDER).is_none() || is_bound() {
        return Ok(created);
    }
    let mut refused = created.refuse(
        format!(
            "the attribute `{}` is for a path that is bound to a handler",
            attr::ORDER
        ),
        "leave it out: any other path is in one tier as a whole".to_owned(),
    );
    refused.attribute = Some(attr::ORDER.into());
    Err(refused)
}

impl NotBound {
    /// Why a path that runs a handler is in the user tier.
    fn stays(self) -> NotPromotable {
        let (because, hint) = match self {
            Self::From => (
                "the kernel tier runs a handler only on a path that is bound to it, created from \
                 its module above UDP"
                    .into(),
                "create it from the handler's module, or by `ashway bind`; the user tier runs this \
                 one as it is",
            ),
            Self::Attribute(name) => (
                format!(
                    "the attribute `{name}` is for a stage between its handler and the interface, \
                     and the kernel tier has none there"
                )
                .into(),
                "leave that attribute out, and the path is bound to its handler; the user tier \
                 runs this one as it is",
            ),
            Self::Way => (
                "the kernel tier runs a handler only on a path that is bound to it, which leads \
                 through UDP straight to one interface"
                    .into(),
                "`ashway path show` lists the stages; leave out what the path can do without",
            ),
        };
        NotPromotable { because, hint }
    }
}

fn on_fault(word: &str) -> Option<OnFault> {
    let mut words = OnFault::WORDS.iter();
    words
        .find(|(known, _)| *known == word)
        .map(|(_, value)| *value)
}
