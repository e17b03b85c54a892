//! What the node keeps of one path: how messages come to it, the tier that they take, and
//! what became of moving it to the kernel tier.

use std::sync::Arc;

use ashway_modules::relay::NotPromotable;
use ashway_path::stage::Direction;

use super::owners::Owner;
use ashway_config::{PathConfig, Tier};
use ashway_worker::instance::{Instance, NotPromoted, Promoted};
use ashway_worker::plan::HandlerId;
use ashway_worker::shadow::Compared;

/// A path.
#[derive(Debug)]
pub(super) struct NodePath {
    pub(super) name: Arc<str>,
    /// The module that it was created from, by its place in the registry's list of modules.
    pub(super) from: u16,
    /// The domain that it belongs to.
    pub(super) domain: Option<Arc<str>>,
    /// The process that it belongs to, if not to the node.
    pub(super) owner: Option<Owner>,
    pub(super) feed: Feed,
}

/// How messages come to a path.
#[derive(Debug)]
pub(super) enum Feed {
    /// As datagrams that the entry program has validated, by the rings of the handler that
    /// the path ends in.
    Handler(Box<BoundPath>),
    /// As whole frames, by the frame queue.
    Frames(FramePath),
}

impl NodePath {
    /// What is known of it if it is bound to a handler.
    pub(super) const fn bound(&self) -> Option<&BoundPath> {
        match &self.feed {
            Feed::Handler(bound) => Some(bound),
            Feed::Frames(_) => None,
        }
    }

    /// What is known of it if its messages come as whole frames.
    pub(super) const fn frames(&self) -> Option<&FramePath> {
        match &self.feed {
            Feed::Handler(_) => None,
            Feed::Frames(frames) => Some(frames),
        }
    }

    pub(super) const fn frames_mut(&mut self) -> Option<&mut FramePath> {
        match &mut self.feed {
            Feed::Handler(_) => None,
            Feed::Frames(frames) => Some(frames),
        }
    }
}

/// What the node knows of a path that is bound to a handler.
#[derive(Debug)]
pub(super) struct BoundPath {
    pub(super) config: Arc<PathConfig>,
    /// The tier its messages take now.
    pub(super) tier: Tier,
    pub(super) promotion: Promotion,
    /// What was compared before the last promotion, if anything was to be.
    pub(super) compared: Option<Compared>,
    /// Time the last change of slots took, in ns.
    pub(super) switch_ns: u64,
    /// Faults of its instance that have been looked at.
    pub(super) faults_seen: u32,
    /// Of those, its own.
    pub(super) stops_seen: Stops,
    /// The last line that its instance had logged when it came: its row may have been
    /// another's.
    pub(super) lines_before: u32,
    /// Why it had to leave the kernel tier, if the last change of tier was that.
    pub(super) demoted: Option<String>,
    /// How often it was demoted, so that a promotion under way ends by it.
    pub(super) demotions: u32,
}

impl BoundPath {
    /// One that has just come; to an instance that others were bound to, if it is given.
    pub(super) fn new(config: Arc<PathConfig>, instance: Option<&Instance>) -> Self {
        Self {
            config,
            tier: Tier::User,
            promotion: Promotion::NotAsked,
            compared: None,
            switch_ns: 0,
            faults_seen: instance.map_or(0, Instance::faults),
            stops_seen: Stops::default(),
            lines_before: instance.map_or(0, |instance| instance.log().last()),
            demoted: None,
            demotions: 0,
        }
    }
}

/// What became of promoting a path.
#[derive(Debug)]
pub(super) enum Promotion {
    /// Nobody asked.
    NotAsked,
    /// Ready to run in the kernel tier, or running there.
    Done(Promoted),
    /// Not possible; the handler stays in the user tier.
    Refused(NotPromoted),
}

/// How often a path's handler was stopped.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stops {
    /// In either tier.
    pub(super) all: u64,
    /// In the kernel tier.
    pub(super) kernel: u64,
}

/// What the node knows of a path whose messages come as whole frames.
#[derive(Debug)]
pub(super) struct FramePath {
    /// Its number, under which programs count its messages; none if there are too many.
    pub(super) number: Option<u32>,
    /// The instances whose handlers its stages run, by their ids.
    pub(super) runs: Box<[HandlerId]>,
    /// A path begins or ends at an interface, or both.
    pub(super) ends: [Option<Attachment>; 2],
    /// Its place in the kernel tier.
    pub(super) place: Option<RelaySlot>,
    /// Why it has none.
    pub(super) stays: Option<Arc<NotPromotable>>,
}

impl FramePath {
    pub(super) fn ends(&self) -> impl Iterator<Item = &Attachment> {
        self.ends.iter().flatten()
    }

    /// The tier that the path runs in.
    pub(super) fn tier(&self) -> Tier {
        self.place.as_ref().map_or(Tier::User, |place| place.tier)
    }
}

/// A path's place in the kernel tier.
#[derive(Debug)]
pub(super) struct RelaySlot {
    pub(super) number: usize,
    pub(super) tier: Tier,
    /// Time the last change took, in ns.
    pub(super) switch_ns: u64,
}

/// An end of a path at an interface.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attachment {
    iface: u32,
    /// Which way messages go there.
    pub(super) direction: Direction,
    /// Whether it takes all fragments of the interface.
    pub(super) catches: bool,
}

impl Attachment {
    pub(super) const fn new(iface: usize, direction: Direction, catches: bool) -> Self {
        Self {
            iface: iface as u32,
            direction,
            catches,
        }
    }

    pub(super) const fn iface(self) -> usize {
        self.iface as usize
    }
}
