//! From what somebody asks for to a path that is made and not there yet.
//!
//! Nobody knows of such a path: if something else cannot be had, it is dropped, and
//! nothing has changed. Whatever will feed it is made alike.

use std::ptr;

use ashway_demux::{self as demux, Filter, FilterError};
use ashway_modules::relay::NotPromotable;
use ashway_modules::{Message, eth, fragment, tap};
use ashway_path::attrs::Attrs;
use ashway_path::create::Log;
use ashway_path::path::Path;
use ashway_path::stage::{Direction, Stage};

use super::dispatch;
use super::node_path::Attachment;
use super::{Node, Owner};
use crate::request::Refusal;
use ashway_config::{Asked, LongPath, PathConfig, Tier, instance_of, refuse_unused_order};
use ashway_worker::activation::ROW;
use ashway_worker::plan::HandlerId;

/// A path that somebody asks for.
pub(super) struct PathRequest {
    pub(super) name: String,
    pub(super) from: String,
    pub(super) attrs: Attrs,
    /// Whose it is to be.
    pub(super) domain: Option<String>,
    /// What must be true of a message besides, where the path begins.
    pub(super) filter: Option<Filter>,
    pub(super) tier: Tier,
    /// The process it is to belong to, if not to the node.
    pub(super) owner: Option<Owner>,
    /// Whether every step of its creation is to be told.
    pub(super) logs: bool,
}

impl PathRequest {
    /// What a path of the configuration is to be.
    pub(super) fn of(path: &LongPath) -> Self {
        Self {
            name: path.name.clone(),
            from: path.from.clone(),
            attrs: path.attrs.clone(),
            domain: path.domain.clone(),
            filter: path.filter.clone(),
            tier: path.tier,
            owner: None,
            logs: false,
        }
    }
}

/// A path that is made and not there yet.
pub(super) struct MadePath {
    pub(super) from: String,
    pub(super) path: Box<Path<Message>>,
    pub(super) ends: Vec<(Attachment, Filter)>,
    pub(super) domain: Option<String>,
    pub(super) owner: Option<Owner>,
    pub(super) runs: Box<[HandlerId]>,
    pub(super) log: Log,
    pub(super) tier: Tier,
    pub(super) fits: Result<(), NotPromotable>,
    /// What it is if it is to be bound to a handler.
    pub(super) bound: Option<Box<PathConfig>>,
}

impl Node {
    /// Makes a path, of which nobody knows yet.
    pub(super) fn make(&self, wanted: PathRequest) -> Result<MadePath, Refusal> {
        let PathRequest {
            name,
            from,
            mut attrs,
            domain,
            filter: also,
            tier,
            owner,
            logs,
        } = wanted;
        self.name_is_free(&name)?;
        let bound = self.graph.bound(&Asked {
            name: &name,
            from: &from,
            attrs: &attrs,
            filter: also.as_ref(),
            tier,
            domain: domain.as_deref(),
            line: 0,
        });
        attrs.set(ROW, u64::from(self.plan.module_row.0));
        attrs.set(tap::PATH, name.as_str());
        let created = if logs {
            self.graph.create_at(&name, &from, attrs)
        } else {
            self.graph.create_unlogged(&name, &from, attrs)
        };
        let checked = created.and_then(|created| refuse_unused_order(created, || bound.is_ok()));
        let mut created = checked.map_err(|failed| {
            let message = format!("{}: {}", failed.what(), failed.because);
            Refusal::usage(message, failed.hint)
        })?;
        // What only modules had to know.
        for own in [ROW, tap::PATH] {
            created.path.attrs_mut().remove(own);
        }
        let entrances = self.graph.entrances(&created, also.as_ref());
        let begins = created.path.stages().next();
        let first = begins.is_some_and(eth::is_link);
        let joins = begins
            .and_then(Stage::kind)
            .is_some_and(|kind| ptr::eq(kind, &raw const fragment::KIND));
        let mut ends = Vec::with_capacity(entrances.len());
        for (at, entrance) in entrances.iter().enumerate() {
            let iface = &entrance.iface;
            let direction = if first && at == 0 {
                Direction::Forward
            } else {
                Direction::Backward
            };
            let Some(number) = self.iface_number(iface) else {
                continue;
            };
            let refused = |error: FilterError| {
                let text = entrance.text().unwrap_or_default();
                let because = error.message;
                let message = format!("path `{name}` asks for `{text}` on `{iface}`: {because}");
                Refusal::usage(message, error.hint)
            };
            let (filter, catches) = match entrance.filter().map_err(refused)? {
                Some(filter) => (filter, false),
                None if joins => (dispatch::fragments(), true),
                // Refused: it would ask for nothing, and take all that comes.
                None => (demux::parse("").map_err(refused)?, false),
            };
            ends.push((Attachment::new(number, direction, catches), filter));
        }
        let stages = created.path.stages();
        let runs = stages.filter_map(|stage| self.runs(stage.name()));
        let runs: Box<[HandlerId]> = runs.collect();
        let mut instances = runs.iter().map(|id| &*self.handlers[id].shared.name);
        if let Some((handler, _)) = instances.find_map(instance_of) {
            let message = format!(
                "path `{name}` leads to an instance of handler `{handler}`, which has one for each \
                 CPU: a path of modules does not say by which CPU a message came"
            );
            let hint = format!("`ashway bind {handler}` leads messages to all of them");
            return Err(Refusal::usage(message, hint));
        }
        let fits = match &bound {
            // It has a place of its own there, or a reason.
            Ok(_) => Ok(()),
            Err(why) => self.fits(&created.path, *why, &ends),
        };
        Ok(MadePath {
            runs,
            fits,
            from,
            path: Box::new(created.path),
            ends,
            domain,
            owner,
            log: created.log,
            tier,
            bound: bound.ok().map(Box::new),
        })
    }

    /// The instance that a module runs, if it runs one.
    fn runs(&self, module: &str) -> Option<HandlerId> {
        let (id, _) = self.handler(self.graph.handler_of(module)?)?;
        Some(id)
    }
}
