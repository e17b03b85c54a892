//! A handler as all that run it have it: what is shared of it, its Wasm side, and its lock.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use ashway_config::Tier;
use ashway_kernel::Program;

use crate::counters::UserRows;
use crate::cpu_locks::CpuLocks;
use crate::faults::{Faults, Stop};
use crate::instance::{Instance, NewInstance};
use crate::instance_lock::{Holds, Taken};
use crate::shadow::Recording;
use crate::version::Version;

/// A handler instance that paths can be bound to.
#[derive(Clone)]
pub struct HandlerHandle {
    /// What it shares with the rest of the node.
    pub shared: Arc<Instance>,
    /// Its Wasm side. Only the worker runs and swaps it, so nobody waits for the
    /// lock; it is there because the paths of an instance share it.
    pub running: Arc<Mutex<UserInstance>>,
    /// Puts messages into its queue, in the user tier. Absent on rungs without XDP.
    pub user_program: Option<Arc<Program>>,
    /// What the worker has of the instance's lock.
    holds: Arc<Holds>,
    /// How many paths end in each of its functions.
    bound: Arc<Mutex<BTreeMap<String, u32>>>,
    /// Where faults are noted.
    pub(crate) rows: Arc<UserRows>,
    /// Where they are kept.
    pub(crate) faults: Arc<Faults>,
}

/// What runs in the user tier.
#[derive(Debug)]
pub struct UserInstance {
    /// What it is.
    pub version: Arc<Version>,
    /// The version over the instance's memory.
    pub(crate) wasm: ashway_handler::Instance,
    /// What it does, while a promotion wants to know.
    pub recording: Option<Recording>,
}

impl HandlerHandle {
    /// A new instance.
    #[must_use]
    pub fn new(made: NewInstance, rows: &Arc<UserRows>, faults: &Arc<Faults>) -> Self {
        let NewInstance {
            instance,
            wasm,
            user_program,
        } = made;
        let version = instance.version();
        Self {
            shared: Arc::new(instance),
            running: Arc::new(Mutex::new(UserInstance {
                version,
                wasm,
                recording: None,
            })),
            user_program: user_program.map(Arc::new),
            holds: Arc::default(),
            bound: Arc::default(),
            rows: Arc::clone(rows),
            faults: Arc::clone(faults),
        }
    }

    /// The functions that paths end in, whichever way these came to be.
    pub fn bound(&self) -> Vec<String> {
        let bound = self.bound.lock().unwrap_or_else(PoisonError::into_inner);
        bound.keys().cloned().collect()
    }

    /// Counts a path that ends in a function, or no longer does.
    pub(crate) fn count(&self, function: &str, more: bool) {
        let mut bound = self.bound.lock().unwrap_or_else(PoisonError::into_inner);
        let count = bound.entry(function.to_owned()).or_default();
        *count = if more { *count + 1 } else { *count - 1 };
        if *count == 0 {
            bound.remove(function);
        }
    }
}

impl fmt::Debug for HandlerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HandlerHandle")
            .field(&self.shared.name)
            .finish()
    }
}

impl HandlerHandle {
    /// Takes the lock for the worker, if no activation in the kernel tier has it; takes what
    /// a program has [kept](ashway_abi::trusted::HELD) under it. Looks for a microsecond at
    /// most. Where the handler runs on several CPUs at once the worker is one of them, and needs
    /// a lock only while messages are recorded.
    pub(crate) fn try_acquire(&self) -> bool {
        let Some(queue) = &self.shared.queue else {
            return true;
        };
        if let Some(locks) = CpuLocks::of(queue) {
            // What is recorded is run again, over the memory that it met.
            let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
            return self.holds.try_share(&locks, running.recording.is_some());
        }
        match self.holds.try_acquire(queue.words()) {
            None => return false,
            Some(Taken::Free) => {}
            Some(Taken::Held) => self.take_kept(),
        }
        true
    }

    /// Has nobody else run the handler until what it gives back is dropped.
    pub(crate) fn hold(&self) -> Option<InstanceLock<'_>> {
        let locks = self.shared.queue.as_ref().and_then(CpuLocks::of);
        let taken = match locks {
            None => self.try_acquire(),
            Some(locks) => {
                self.take_kept_of_cpus(&locks);
                self.holds.try_share(&locks, true)
            }
        };
        taken.then(|| InstanceLock(self))
    }

    /// Gives back what [`try_acquire`](Self::try_acquire) has taken.
    pub(crate) fn release(&self) {
        if let Some(queue) = &self.shared.queue {
            match CpuLocks::of(queue) {
                None => self.holds.release(queue.words()),
                Some(locks) => self.holds.release_share(&locks),
            }
        }
    }

    /// Whether the worker may run the handler.
    pub(crate) fn is_held(&self) -> bool {
        self.shared.queue.is_none() || self.holds.any()
    }

    /// Tells the node of a fault in the kernel tier, takes what a program has kept of it, and
    /// has the instance free again. For the worker, as soon as it can: until then the kernel
    /// tier leaves the handler alone.
    pub(crate) fn look_at_fault(&self) {
        if self.shared.wants_fault() {
            return;
        }
        self.faults.bell.ring();
        if let Some(locks) = self.shared.queue.as_ref().and_then(CpuLocks::of) {
            self.take_kept_of_cpus(&locks);
        } else if self.shared.keeps_fault() && self.try_acquire() {
            self.release();
        }
    }

    /// Takes what a program has kept of a fault on one of several CPUs, and has that CPU run the
    /// handler again.
    fn take_kept_of_cpus(&self, locks: &CpuLocks<'_>) {
        if self.shared.keeps_fault() {
            self.take_kept();
            locks.free_kept();
        }
    }

    /// Takes what a program has kept of a fault: for whoever has taken the lock from there.
    #[cold]
    fn take_kept(&self) {
        let Some(kept) = self.shared.kept_fault() else {
            return;
        };
        let Some(end) = self.shared.bindings.find(kept.row) else {
            // Its path is gone.
            return;
        };
        let stop = Stop {
            version: &self.shared.version(),
            function: &end.function,
            budget_ns: end.budget_ns,
            tier: Tier::Kernel,
            cause: kept.cause,
            at: kept.at,
            channel: 0,
            changed: kept.changed,
            front: &kept.front,
            message: &kept.message,
            before: None,
        };
        self.faults.capture(&self.shared, stop);
    }
}

/// The lock is the worker's, for as long as this lives.
#[derive(Debug)]
pub(crate) struct InstanceLock<'a>(&'a HandlerHandle);

impl Drop for InstanceLock<'_> {
    fn drop(&mut self) {
        self.0.release();
    }
}
