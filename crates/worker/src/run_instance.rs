//! Handlers as the worker has them: their rings feed paths of the engine.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ashway_abi::trusted;
use ashway_modules::Message;
use ashway_path::path::Path;
use ashway_path::places::PathId;
use ashway_path::sched::share::ShareAccount;

use crate::handle::HandlerHandle;
use crate::instance::Instance;
use crate::plan::HandlerId;
use crate::rows::CounterRow;
use crate::witness::Sights;

/// An instance in the worker's hands.
#[derive(Debug)]
pub struct RunInstance {
    /// Its id, by which lists of instances are sorted.
    id: HandlerId,
    /// Whether it is gone for the node: it ends when no ring of it holds a message, and no
    /// path is left of it.
    pub(crate) leaves: bool,
    /// Whether its programs ring for the next message, and nobody looks at it until then.
    pub(crate) asleep: bool,
    /// What it runs.
    pub(crate) handler: HandlerHandle,
    /// Its paths, by their number within the instance; each at its interfaces.
    paths: Vec<Vec<(usize, PathId)>>,
    /// The ring that is looked at first.
    pub(crate) ring: usize,
    /// By ring: what messages of it wait for.
    after: Vec<Sights>,
}

/// A path that ends in a handler, at one interface, on its way to the worker.
pub struct HandlerPath {
    /// The path.
    pub id: PathId,
    /// Its handler.
    pub handler: HandlerId,
    /// Its number within the instance.
    pub local: usize,
    /// The interface's number.
    pub iface: usize,
    /// Its counters.
    pub row: CounterRow,
    /// Its stages.
    pub path: Box<Path<Message>>,
    /// What it may have of the worker, at all interfaces together.
    pub share: Option<Arc<ShareAccount>>,
}

impl RunInstance {
    /// An instance without paths.
    #[must_use]
    pub fn new(id: HandlerId, handler: HandlerHandle) -> Self {
        Self {
            id,
            leaves: false,
            asleep: false,
            handler,
            paths: Vec::new(),
            ring: 0,
            after: Vec::new(),
        }
    }

    /// What messages of a ring wait for. Allocates when it is asked for a further ring.
    pub(crate) fn after(&mut self, ring: usize) -> &mut Sights {
        if ring >= self.after.len() {
            self.after.resize_with(ring + 1, Sights::default);
        }
        &mut self.after[ring]
    }

    /// Its id.
    #[must_use]
    pub(crate) const fn id(&self) -> HandlerId {
        self.id
    }

    /// What it shares with the rest of the node.
    #[must_use]
    pub(crate) fn shared(&self) -> &Arc<Instance> {
        &self.handler.shared
    }

    /// The path of this number at this interface.
    #[must_use]
    pub(crate) fn path(&self, local: usize, iface: usize) -> Option<PathId> {
        let mut at = self.paths.get(local)?.iter();
        at.find(|(known, _)| *known == iface).map(|(_, path)| *path)
    }

    /// Leads the messages of this number at this interface to a path.
    pub(crate) fn lead(&mut self, local: usize, iface: usize, path: PathId) {
        if local >= self.paths.len() {
            self.paths.resize_with(local + 1, Vec::new);
        }
        let at = &mut self.paths[local];
        at.retain(|(known, _)| *known != iface);
        at.push((iface, path));
        self.part_rings();
    }

    /// Leads no more messages to a path.
    pub(crate) fn forget(&mut self, path: PathId) {
        for at in &mut self.paths {
            at.retain(|(_, known)| *known != path);
        }
        self.part_rings();
    }

    /// Tells the programs whether each path has its part of the rings.
    fn part_rings(&self) {
        if let Some(queue) = &self.shared().queue {
            let parted = queue.words().u32_at(trusted::PARTED);
            parted.store(self.has_several_paths().into(), Ordering::Release);
        }
    }

    /// Whether more than one path is led to it, at whatever interfaces.
    pub(crate) fn has_several_paths(&self) -> bool {
        let led = self.paths.iter().filter(|at| !at.is_empty());
        led.count() > 1
    }

    /// All its paths.
    pub(crate) fn paths(&self) -> impl Iterator<Item = PathId> {
        self.paths.iter().flatten().map(|(_, path)| *path)
    }
}

/// The instance with this id. O(log n).
pub(crate) fn by_id(instances: &mut [RunInstance], id: HandlerId) -> Option<&mut RunInstance> {
    let at = instances.binary_search_by_key(&id, |instance| instance.id);
    Some(&mut instances[at.ok()?])
}
