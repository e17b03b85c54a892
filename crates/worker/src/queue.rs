//! A queue: where programs put messages for the user tier, and the worker takes them out.
//!
//! Its rings lie in trusted words, the messages in the pool behind them
//! ([`ashway_abi::queue`]). Each handler has one, and there is one for the whole frames of all
//! paths of modules: the *frame queue*. It says of each path how many messages are in the user
//! tier, which is what keeps them in order.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use ashway_abi::share::Mode;
use ashway_abi::{MemoryKind, QueueLayout, flow, trusted};
use ashway_codegen::entry::Packet;
use ashway_codegen::instance::{self, QueueSpec};
use ashway_kernel::{LoadError, Program, shared};
use ashway_memory::SharedArray;
use ashway_memory::clock::monotonic_ns;
use ashway_memory::messages::Pool;
use ashway_path::stage::Direction;

use crate::error::InstanceError;
use crate::iface_map::IfaceMap;
use crate::programs::{self, Maps, NodeMaps, program_name};
use crate::queue_plan::{IfaceFacts, QueuePlan};
use crate::{in_user, keys};

/// See the [module](self).
#[derive(Debug)]
pub struct Queue {
    /// Whose messages are in it.
    name: String,
    /// Its numbers.
    pub plan: QueuePlan,
    /// Words that only trusted code touches.
    trusted: SharedArray,
    /// The blocks behind them, where messages lie.
    pool: Arc<Pool>,
    packet: Packet,
}

impl Queue {
    /// The queue of whole frames, with rings for these interfaces. Its programs read packets
    /// like those of the interfaces.
    ///
    /// # Errors
    ///
    /// [`InstanceError::Memory`].
    pub fn of_frames(facts: &IfaceMap<IfaceFacts>, packet: Packet) -> Result<Self, InstanceError> {
        Self::create("frames", QueuePlan::of_frames(facts), packet)
    }

    /// The queue of a handler whose memory is of this kind.
    ///
    /// # Errors
    ///
    /// [`InstanceError::Memory`].
    pub(crate) fn of_handler(
        handler: &str,
        plan: QueuePlan,
        memory: MemoryKind,
    ) -> Result<Self, InstanceError> {
        Self::create(handler, plan, Packet::beside(memory))
    }

    /// Makes its words as a map, so that programs can name them.
    fn create(name: &str, plan: QueuePlan, packet: Packet) -> Result<Self, InstanceError> {
        let bytes = plan.layout().bytes();
        shared::words("ashway_trusted", bytes)
            .and_then(|words| Self::over(words, name, plan, packet))
            .map_err(|source| InstanceError::Memory {
                handler: name.to_owned(),
                bytes,
                source,
            })
    }

    /// The queue of this plan over these words, which are 0.
    ///
    /// # Errors
    ///
    /// What `mmap(2)` returned.
    pub(crate) fn over(
        trusted: SharedArray,
        name: &str,
        plan: QueuePlan,
        packet: Packet,
    ) -> io::Result<Self> {
        let layout = plan.layout();
        // Beyond that, a ring's control block would lie in another's slots.
        assert!(layout.rings <= trusted::MAX_RINGS, "the plan gives no more");
        let pool = shared::pool(&trusted, &layout)?;
        let seed = RandomState::new().hash_one(name);
        let word = trusted.u64_at(trusted::FLOW_SEED);
        word.store(seed, Ordering::Relaxed);
        Ok(Self {
            name: name.to_owned(),
            plan,
            trusted,
            pool,
            packet,
        })
    }

    /// What it has, and where.
    pub(crate) fn layout(&self) -> QueueLayout {
        self.plan.layout()
    }

    /// Its trusted words.
    pub(crate) const fn words(&self) -> &SharedArray {
        &self.trusted
    }

    /// The blocks that messages lie in.
    pub(crate) const fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Says whether its programs are to ring for the next message.
    pub(crate) fn want_wake(&self, wanted: bool) {
        let word = self.trusted.u32_at(trusted::NEED_WAKE);
        word.store(wanted.into(), Ordering::SeqCst);
    }

    /// Whether one has rung, or was never asked to.
    pub(crate) fn is_rung(&self) -> bool {
        self.trusted
            .u32_at(trusted::NEED_WAKE)
            .load(Ordering::SeqCst)
            == 0
    }
}

/// The programs that put messages into it.
impl Queue {
    /// What they have to know of it.
    #[must_use]
    pub fn spec(&self, node: &NodeMaps) -> QueueSpec {
        QueueSpec {
            cpus: node.cpus,
            hook: node.hook,
            layout: self.layout(),
            packet: self.packet,
            order_scope: self.plan.order_scope,
        }
    }

    /// Loads the one that puts every message into its rings.
    ///
    /// # Errors
    ///
    /// [`InstanceError::Load`].
    pub fn load_user(&self, node: &NodeMaps) -> Result<Program, InstanceError> {
        let image = instance::user(&self.spec(node));
        let loaded = programs::load(&program_name("u", &self.name), &image, &self.maps(node));
        loaded.map_err(|source| InstanceError::Load {
            handler: self.name.clone(),
            source,
        })
    }

    /// The same, as one that observes.
    ///
    /// # Errors
    ///
    /// What the kernel said.
    pub fn load_user_noting(
        &self,
        node: &NodeMaps,
        notes: BorrowedFd<'_>,
    ) -> Result<Program, LoadError> {
        let image = instance::user_observed(&self.spec(node));
        let name = program_name("u", &self.name);
        programs::load_noting(&name, &image, &self.maps(node), notes)
    }

    /// Loads the program of relays, for the queue of whole frames; with `notes`, as one that
    /// observes.
    ///
    /// # Errors
    ///
    /// What the kernel said.
    pub fn load_forward(
        &self,
        node: &NodeMaps,
        hops: &SharedArray,
        notes: Option<BorrowedFd<'_>>,
    ) -> Result<Program, LoadError> {
        programs::load_forward(&self.spec(node), &self.maps(node), hops, notes)
    }

    const fn maps<'m>(&'m self, node: &'m NodeMaps) -> Maps<'m> {
        Maps {
            node,
            trusted: Some(&self.trusted),
            memory: None,
        }
    }
}

/// Its paths, by their numbers in it.
impl Queue {
    /// Where a path's trusted word is.
    #[must_use]
    pub(crate) fn path_word(&self, path: usize) -> usize {
        self.layout().path_word(path)
    }

    /// Where programs count a path's messages in the user tier.
    pub(crate) fn in_user_word(&self, path: usize) -> &AtomicU32 {
        self.trusted.u32_at(self.path_word(path))
    }

    /// Where programs count a flow's messages in the user tier, by its bucket; nowhere for what
    /// stands in the place of one.
    pub(crate) fn flow_word(&self, bucket: u32) -> Option<&AtomicU32> {
        let bucket = bucket as usize;
        (bucket < flow::BUCKETS).then(|| self.trusted.u32_at(self.layout().flow_word(bucket)))
    }

    /// Messages that are counted in the buckets of flows: of a handler's queue that nobody uses
    /// at this moment, 0. Reads all of them.
    #[must_use]
    pub fn in_flows(&self) -> u32 {
        let words = (0..flow::BUCKETS as u32).filter_map(|bucket| self.flow_word(bucket));
        let counts = words.map(|word| trusted::in_user(word.load(Ordering::Acquire)));
        counts.sum()
    }

    /// Says that so many slots of a ring no longer hold the rest of a message of this path.
    pub(crate) fn unchain(&self, path: usize, slots: u32) {
        if path < self.layout().paths {
            let at = self.path_word(path) + trusted::PATH_CHAINED;
            self.trusted.u32_at(at).fetch_sub(slots, Ordering::AcqRel);
        }
    }

    /// Messages of a path that programs have put into a ring, and that have not left the user
    /// tier.
    #[must_use]
    pub fn in_user(&self, path: usize) -> u32 {
        trusted::in_user(self.in_user_word(path).load(Ordering::Acquire))
    }

    /// Says that messages have left the user tier, by the numbers of their paths.
    pub(crate) fn leave(&self, paths: impl Iterator<Item = u32>) {
        let word = |path| Some(self.in_user_word(path));
        in_user::leave(paths.map(|path| path as usize), word);
    }

    /// How a path stands with its share of the kernel tier now; `is_in_user` says whether it
    /// has messages in the user tier.
    #[must_use]
    pub fn mode(&self, path: usize, is_in_user: bool) -> Mode {
        let word = self.path_word(path);
        let lazy = self.trusted.u32_at(word + trusted::PATH_LAZY);
        let lazy_at = self.trusted.u64_at(word + trusted::PATH_LAZY_AT);
        let waits = lazy.load(Ordering::Acquire) != 0 && is_in_user;
        Mode::at(monotonic_ns(), lazy_at.load(Ordering::Acquire), waits)
    }

    /// A new path has this number: it begins without a debt.
    pub fn forget_share(&self, path: usize) {
        let word = self.path_word(path);
        for at in [trusted::PATH_PAID, trusted::PATH_LAZY_AT] {
            self.trusted.u64_at(word + at).store(0, Ordering::Relaxed);
        }
        let lazy = self.trusted.u32_at(word + trusted::PATH_LAZY);
        lazy.store(0, Ordering::Release);
    }

    /// Whether no message is left of the path of modules that had this number; then
    /// another path begins with it, of which none was dropped.
    #[must_use]
    pub fn begin_path(&self, number: u32) -> bool {
        let keys = both_ways(number);
        let idle = keys.iter().all(|key| self.in_user(*key) == 0);
        if idle {
            for key in keys {
                self.dropped(key).store(0, Ordering::Relaxed);
            }
        }
        idle
    }

    /// Messages of a path of modules that were dropped on arrival, by its number.
    #[must_use]
    pub fn dropped_on_arrival(&self, number: u32) -> u64 {
        let dropped = both_ways(number).map(|key| self.dropped(key).load(Ordering::Relaxed));
        dropped.iter().sum()
    }

    fn dropped(&self, key: usize) -> &AtomicU64 {
        self.trusted
            .u64_at(self.path_word(key) + trusted::PATH_DROPPED)
    }
}

/// The keys of a path of modules.
fn both_ways(number: u32) -> [usize; 2] {
    [Direction::Forward, Direction::Backward].map(|way| keys::key(number, way))
}
