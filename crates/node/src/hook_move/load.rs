//! All programs of a node for another hook: on the compile thread, with nobody waiting.

use std::collections::BTreeMap;
use std::sync::Arc;

use ashway_check::bpf::Hook;
use ashway_kernel::Program;
use ashway_memory::SharedArray;
use ashway_path::places::PathId;

use super::super::node_path::Promotion;
use super::super::program_array::{FRAMES_SLOT, RELAY_SLOT};
use super::{HookMove, Node};
use crate::compile::Job;
use ashway_config::{Mistake, Tier};
use ashway_kernel::Map;
use ashway_worker::instance::{Allowance, Instance, InstanceError, Promoted};
use ashway_worker::plan::HandlerId;
use ashway_worker::programs::NodeMaps;
use ashway_worker::queue::Queue;
use ashway_worker::shadow;
use ashway_worker::version::Version;

/// The programs of a node that paths share or have, for one hook. Entry programs are made when the
/// tables do not change any more.
pub(in super::super) struct HookSet {
    pub(super) maps: Arc<NodeMaps>,
    /// What puts messages into the queue of each handler.
    pub(super) users: BTreeMap<HandlerId, Arc<Program>>,
    /// The paths that are in the kernel tier.
    pub(super) promoted: BTreeMap<PathId, Promoted>,
    pub(super) frames: Option<Program>,
    pub(super) relays: Option<Program>,
}

/// Which program the kernel, or our translator, does not take at the other hook.
pub(in super::super) struct NotLoaded {
    message: String,
    hint: String,
}

/// A path that is in the kernel tier, and what its program is made of.
#[derive(Clone)]
struct InKernel {
    id: PathId,
    name: String,
    instance: Arc<Instance>,
    version: Arc<Version>,
    function: String,
    allowed: Allowance,
}

/// Programs that are to be made: the same for each of these maps.
pub(in super::super) struct HookJob {
    sets: Vec<Arc<NodeMaps>>,
    handlers: Vec<(HandlerId, Arc<Instance>)>,
    paths: Vec<InKernel>,
    frames: Option<Arc<Queue>>,
    hops: Option<Arc<SharedArray>>,
}

impl Job for HookJob {
    type Outcome = Result<Vec<HookSet>, NotLoaded>;

    fn run(self) -> Self::Outcome {
        self.sets.iter().map(|maps| self.set(maps)).collect()
    }
}

impl HookJob {
    fn set(&self, maps: &Arc<NodeMaps>) -> Result<HookSet, NotLoaded> {
        let place = match maps.hook {
            Hook::Tcx => "TCX",
            Hook::Xdp => "XDP",
        };
        let refused = |what: String, error: &dyn std::fmt::Display| NotLoaded {
            message: format!("cannot move to {place}: {what} is not accepted there: {error}"),
            hint: "`ashway doctor` says what the kernel lacks".to_owned(),
        };
        let mut users = BTreeMap::new();
        for (id, instance) in &self.handlers {
            let Some(queue) = &instance.queue else {
                continue;
            };
            let program = queue.load_user(maps);
            let program = program.map_err(|error: InstanceError| {
                refused(
                    format!("the program of handler `{}`", instance.name),
                    &error,
                )
            })?;
            users.insert(*id, Arc::new(program));
        }
        let mut promoted = BTreeMap::new();
        for path in &self.paths {
            let InKernel {
                instance,
                version,
                function,
                allowed,
                ..
            } = path;
            let made = shadow::promote_rehearsed(instance, maps, version, function, *allowed);
            let made = made.map_err(|why| NotLoaded {
                message: format!(
                    "cannot move to {place}: handler `{}` of path `{}` cannot run in the kernel \
                     tier there: {}",
                    instance.name, path.name, why.because
                ),
                hint: format!("demote `{}` first, or: {}", path.name, why.hint),
            })?;
            promoted.insert(path.id, made);
        }
        let frames = self.frames.as_ref().map(|queue| queue.load_user(maps));
        let frames = frames.transpose();
        let frames = frames.map_err(|error| refused("the frame queue's program".into(), &error))?;
        let relays = self.frames.as_ref().zip(self.hops.as_ref());
        let relays = relays.map(|(queue, hops)| queue.load_forward(maps, hops, None));
        let relays = relays.transpose();
        let relays = relays.map_err(|error| refused("the program of relays".into(), &error))?;
        Ok(HookSet {
            maps: Arc::clone(maps),
            users,
            promoted,
            frames,
            relays,
        })
    }
}

impl NotLoaded {
    /// As a mistake of the line that asks for it.
    pub(in super::super) fn at(self, moving: &HookMove) -> Mistake {
        Mistake::new(moving.line, self.message, self.hint)
    }
}

impl Node {
    /// What has to be made for a move; nothing if all stays where it is.
    pub(in super::super) fn hook_job(&self, moving: &HookMove) -> Option<HookJob> {
        let maps = self.maps.as_ref().filter(|_| !moving.shifts.is_empty())?;
        let by_way_of_tcx = maps.hook == Hook::Xdp && moving.hook == Hook::Xdp;
        let tcx = by_way_of_tcx.then(|| maps.at(Hook::Tcx, false));
        let next = moving.anew.then(|| maps.at(moving.hook, moving.frags));
        Some(HookJob {
            sets: tcx.into_iter().chain(next).map(Arc::new).collect(),
            handlers: self
                .handlers
                .iter()
                .map(|(id, handler)| (*id, Arc::clone(&handler.shared)))
                .collect(),
            paths: self.in_kernel_tier().collect(),
            frames: self.frame_queue.as_ref().map(|it| Arc::clone(&it.queue)),
            hops: self.relays.as_ref().map(|it| Arc::clone(&it.hops)),
        })
    }

    fn in_kernel_tier(&self) -> impl Iterator<Item = InKernel> + '_ {
        let paths = self.paths.all_bound();
        let paths = paths.filter(|(_, path)| path.tier == Tier::Kernel);
        paths.map(|(id, path)| {
            let instance = &self.handlers[&self.plan.paths[&id].handler].shared;
            InKernel {
                id,
                name: path.config.name.clone(),
                instance: Arc::clone(instance),
                version: instance.version(),
                function: path.config.function.clone(),
                allowed: self.allowance(id),
            }
        })
    }

    /// Whether a set has what the node has by now: others may have changed it meanwhile.
    pub(super) fn fits_set(&self, set: &HookSet) -> bool {
        let paths: BTreeMap<PathId, u64> = self
            .in_kernel_tier()
            .map(|path| (path.id, path.version.id))
            .collect();
        let made = set.promoted.iter();
        let made: BTreeMap<PathId, u64> = made.map(|(id, it)| (*id, it.version)).collect();
        paths == made
            && self.handlers.keys().eq(set.users.keys())
            && self.frame_queue.is_some() == set.frames.is_some()
            && self.relays.is_some() == set.relays.is_some()
    }

    /// Fills the program array of an interface from a set, or with what the node has.
    pub(super) fn fill(
        &self,
        slots: &Map,
        number: usize,
        set: Option<&HookSet>,
    ) -> std::io::Result<()> {
        for &path in &self.plan.ifaces[number].paths {
            let handler = self.plan.paths[&path].handler;
            let bound = self.paths.bound(path);
            let promoted = match (set, &bound.promotion) {
                (Some(set), _) => set.promoted.get(&path),
                (None, Promotion::Done(promoted)) if bound.tier == Tier::Kernel => Some(promoted),
                (None, _) => None,
            };
            let user = match set {
                Some(set) => set.users.get(&handler),
                None => self.handlers[&handler].user_program.as_ref(),
            };
            let program = match promoted {
                Some(promoted) => &promoted.program,
                None => user.expect("a handler of a node with programs has one"),
            };
            if let Some(slot) = self.plan.slot(path, number) {
                slots.set_slot(slot as u32, program.fd())?;
            }
        }
        let (frames, relays) = match set {
            Some(set) => (set.frames.as_ref(), set.relays.as_ref()),
            None => (
                self.frame_queue.as_ref().map(|it| &it.user_program),
                self.relays.as_ref().map(|it| &it.program),
            ),
        };
        let shared = [(FRAMES_SLOT, frames), (RELAY_SLOT, relays)];
        for (slot, program) in shared {
            if let Some(program) = program {
                slots.set_slot(slot, program.fd())?;
            }
        }
        Ok(())
    }

    /// Has the node go on with the programs of a set.
    pub(super) fn adopt(&mut self, set: HookSet) {
        let HookSet {
            maps,
            mut users,
            mut promoted,
            frames,
            relays,
        } = set;
        self.maps = Some(maps);
        for (id, handler) in &mut self.handlers {
            handler.user_program = users.remove(id);
        }
        let ids: Vec<PathId> = self.paths.all_bound().map(|(id, _)| id).collect();
        let mut again = Vec::new();
        for id in ids {
            let path = self.paths.bound_mut(id);
            let was = std::mem::replace(
                &mut path.promotion,
                match promoted.remove(&id) {
                    Some(promoted) => Promotion::Done(promoted),
                    None => Promotion::NotAsked,
                },
            );
            // What was refused at one hook may be taken at the other.
            if matches!(was, Promotion::Refused(_)) && path.config.tier != Tier::User {
                again.push(path.config.name.clone());
            }
        }
        if let (Some(queue), Some(program)) = (&mut self.frame_queue, frames) {
            queue.user_program = program;
        }
        if let (Some(known), Some(program)) = (&mut self.relays, relays) {
            known.program = program;
        }
        self.promote_later(&again);
    }
}
