//! The moment in which one version of a handler takes over from another.
//!
//! Both have one memory, so the application's mapping, the rings and the paths stay
//! as they are. While the worker is in here it takes no message, and nobody runs the
//! handler in the kernel tier (`node/swap.rs` has led its paths away), so messages
//! wait in the ring. Then everything of the old version's memory is as a new one's,
//! but for the state that both declare. If the new one cannot begin, every byte is put
//! back, and the old one goes on.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use ashway_codegen::normalise::StateRange;
use ashway_handler::Engine;
use ashway_memory::{AllegedOffset, Memory};

use crate::bug::{self, Bug};
use crate::error::InstanceError;
use crate::handle::{HandlerHandle, UserInstance};
use crate::instance::set_params;
use crate::version::Version;
use ashway_config::HandlerConfig;

/// The state that one version hands on to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateTransfer {
    /// Where it lies.
    from: u32,
    /// Where it comes to lie.
    to: u32,
    /// Its length.
    pub bytes: u32,
    /// Its version, if the next one has another.
    pub migrate: Option<u32>,
}

/// Why the state of one version cannot be the next one's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateMismatch {
    /// The next one has none.
    #[error(
        "the handler has a state of {bytes} bytes (version {version}), and the file declares none"
    )]
    Missing {
        /// Its size.
        bytes: u32,
        /// Its version.
        version: u32,
    },
    /// The next one's is too small.
    #[error("the handler has a state of {bytes} bytes, and the file's has {room}")]
    Larger {
        /// Size of the state.
        bytes: u32,
        /// That of the next one's.
        room: u32,
    },
    /// The same version of another length.
    #[error(
        "the state is of version {version} in both, but of {bytes} bytes in the handler and {found} in the file"
    )]
    Changed {
        /// Of both.
        version: u32,
        /// Size of the state.
        bytes: u32,
        /// That of the next one's.
        found: u32,
    },
    /// There is nobody to take another form over.
    #[error(
        "the handler has a state of version {from}, and the file, which has version {to}, exports no `migrate` of type (i32) -> ()"
    )]
    NoMigrate {
        /// Version of the state.
        from: u32,
        /// That of the next one's.
        to: u32,
    },
}

impl StateMismatch {
    /// The next step.
    #[must_use]
    pub fn hint(self) -> &'static str {
        match self {
            Self::Missing { .. } => {
                "mark what is to stay with `ASHWAY_STATE`, as the handler that runs does"
            }
            Self::Larger { .. } => {
                "a state may grow; to begin anew, load the file under another name and bind that"
            }
            Self::Changed { .. } => {
                "give the new form another `ASHWAY_STATE_VERSION`, and write `migrate`"
            }
            Self::NoMigrate { .. } => {
                "write `ASHWAY_EXPORT void migrate(int old_version)`, see ashway.h"
            }
        }
    }
}

/// What `before` hands on to the version after it. `None` if it has no state.
///
/// # Errors
///
/// Why that is not possible.
pub fn state_transfer(
    before: Option<StateRange>,
    next: Option<StateRange>,
    migrates: bool,
) -> Result<Option<StateTransfer>, StateMismatch> {
    let Some(before) = before else {
        return Ok(None);
    };
    let (bytes, version) = (before.bytes, before.version);
    let next = next.ok_or(StateMismatch::Missing { bytes, version })?;
    let migrate = (version != next.version).then_some(version);
    if migrate.is_none() && bytes != next.bytes {
        let found = next.bytes;
        return Err(StateMismatch::Changed {
            version,
            bytes,
            found,
        });
    }
    if bytes > next.bytes {
        let room = next.bytes;
        return Err(StateMismatch::Larger { bytes, room });
    }
    if migrate.is_some() && !migrates {
        let (from, to) = (version, next.version);
        return Err(StateMismatch::NoMigrate { from, to });
    }
    Ok(Some(StateTransfer {
        from: before.offset,
        to: next.offset,
        bytes,
        migrate,
    }))
}

/// A version that is to run in the place of the one that runs.
#[derive(Clone, Debug)]
pub struct ActivateVersion {
    /// Whose version.
    pub handler: HandlerHandle,
    /// The version that is to run.
    pub next: Arc<Version>,
    /// Its configuration: parameters.
    pub config: HandlerConfig,
    /// What is handed on to it.
    pub state_transfer: Option<StateTransfer>,
    /// What runs it.
    pub engine: Engine,
}

impl ActivateVersion {
    /// Does it; how long no message was taken. For the worker, between two messages.
    ///
    /// # Errors
    ///
    /// [`InstanceError`]: the version that ran runs on, over the memory that it had.
    /// [`InstanceError::Busy`] while the kernel tier has it, which is a budget at most: the
    /// worker does not wait for it.
    pub(crate) fn run(&self) -> Result<Duration, InstanceError> {
        let shared = &self.handler.shared;
        let (own, mapped) = (shared.memory.own_bytes(), &shared.memory.mapped);
        // Touched: a page that comes late is time that messages wait.
        let mut before = vec![1; own];
        let begin = Instant::now();
        let mut running = self
            .handler
            .running
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // Its paths have left the kernel tier. What is in the way is a kept fault, or the
        // activation that one was in when it was demoted a moment ago.
        let Some(held) = self.handler.hold() else {
            let handler = shared.name.clone();
            return Err(InstanceError::Busy { handler });
        };
        let whole = AllegedOffset(0);
        let inside = "the layout lies in the memory that was made for it";
        mapped.copy_out(whole, &mut before).expect(inside);
        if !bug::is(Bug::RestKept) {
            clear(mapped, own);
        }
        match self.begin_anew(&before) {
            Ok(wasm) => {
                shared.note_version(&self.next);
                let new = UserInstance {
                    version: Arc::clone(&self.next),
                    wasm,
                    recording: None,
                };
                let old = std::mem::replace(&mut *running, new);
                drop((held, running));
                let hold = begin.elapsed();
                // Wasmtime unmaps what it had.
                drop(old);
                Ok(hold)
            }
            Err(error) => {
                if !bug::is(Bug::NotPutBack) {
                    mapped.copy_in(whole, &before).expect(inside);
                }
                Err(error)
            }
        }
    }

    /// Begins the version over the memory of the one before, which had this in it.
    fn begin_anew(&self, before: &[u8]) -> Result<ashway_handler::Instance, InstanceError> {
        let Self { config, next, .. } = self;
        let shared = &self.handler.shared;
        let inherit = || {
            let state_transfer = self
                .state_transfer
                .filter(|_| !bug::is(Bug::StateForgotten));
            if let Some(state_transfer) = state_transfer {
                let state =
                    &before[state_transfer.from as usize..][..state_transfer.bytes as usize];
                shared
                    .memory
                    .mapped
                    .copy_in(AllegedOffset(state_transfer.to), state)
                    .expect("both states lie in the memory");
            }
        };
        if bug::is(Bug::StateOverwritten) {
            inherit();
        }
        let (region, layout) = (shared.memory.region(), shared.memory.layout);
        let wasm = ashway_handler::Instance::begin(&self.engine, &next.compiled, &region, layout);
        let mut wasm = wasm.map_err(|source| InstanceError::Start {
            handler: config.name.clone(),
            source,
        })?;
        set_params(config, next, &mut wasm)?;
        // Behind the version's own first values, which lie there too.
        if !bug::is(Bug::StateOverwritten) {
            inherit();
        }
        let from = self
            .state_transfer
            .and_then(|state_transfer| state_transfer.migrate);
        if let Some(from) = from.filter(|_| !bug::is(Bug::NotMigrated)) {
            let migrated = wasm.migrate(from).map_err(|stopped| {
                let place = next.lines.at(stopped.at);
                InstanceError::Migrate {
                    handler: config.name.clone(),
                    from,
                    cause: stopped.cause,
                    line: place
                        .map_or_else(String::new, |(file, line)| format!(" at {file}:{line}")),
                }
            });
            if !bug::is(Bug::RunsNevertheless) {
                migrated?;
            }
        }
        Ok(wasm)
    }
}

/// Makes the first `bytes` of a memory as those of a new one.
fn clear(memory: &Memory, bytes: usize) {
    let zeros = [0; 4096];
    for at in (0..bytes).step_by(zeros.len()) {
        let len = zeros.len().min(bytes - at);
        memory
            .copy_in(AllegedOffset(at as u32), &zeros[..len])
            .expect("the layout lies in the memory that was made for it");
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
pub(crate) mod tests {
    use std::sync::atomic::Ordering;

    use ashway_handler::Budget;

    use super::*;
    use crate::counters::UserRows;
    use crate::iface_map::IfaceMap;
    use crate::instance::{Instance, NewInstance};
    use crate::played;
    use crate::queue_plan::QueuePlan;

    /// Counts messages at 1024, its state, which begins at 7, and at 2048.
    fn source(version: u32, more: &str) -> String {
        let words = [1024_u32, 1032, version].map(u32::to_le_bytes).concat();
        let words: Vec<_> = words.iter().map(|byte| format!("\\{byte:02x}")).collect();
        format!(
            r#"(module (memory (export "memory") 1 1)
              (data (i32.const 1024) "\07")
              (func $count (param i32) local.get 0 local.get 0 i32.load i32.const 1 i32.add i32.store)
              (func (export "on_rx") (param i32 i32) (result i32)
                i32.const 1024 call $count i32.const 2048 call $count i32.const 0)
              {more} (@custom "ashway.state" "{}"))"#,
            words.concat()
        )
    }

    /// Adds 100 to the count.
    const MIGRATE: &str = r#"(func (export "migrate") (param i32)
        i32.const 1024 i32.const 1024 i32.load i32.const 100 i32.add i32.store)"#;

    /// Is stopped half-way.
    const TRAP: &str = r#"(func (export "migrate") (param i32)
        i32.const 1024 i32.const 0 i32.store unreachable)"#;

    /// A handler, three messages later, and what its versions need.
    pub(crate) struct Setting {
        engine: Engine,
        config: HandlerConfig,
        pub(crate) handler: HandlerHandle,
    }

    impl Setting {
        pub(crate) fn new(name: &str) -> Self {
            let file = std::env::temp_dir().join(format!(
                "{name}-{}-{:?}.wasm",
                std::process::id(),
                std::thread::current().id()
            ));
            std::fs::write(&file, wat::parse_str(source(1, "")).unwrap()).unwrap();
            let config = HandlerConfig::of_file(name, file);
            let engine = Engine::new().unwrap();
            let plan = QueuePlan::unbound(&IfaceMap::default());
            let version = Version::read(&config, &config.file, &engine).unwrap();
            let version = Arc::new(version);
            let made = Instance::create(&config, version, &[], &plan, &engine, None, false);
            let NewInstance { instance, wasm, .. } = made.unwrap();
            let this = Self {
                engine,
                config,
                handler: HandlerHandle::new(
                    NewInstance {
                        instance: instance.with_queue(played::handler_queue(name)),
                        wasm,
                        user_program: None,
                    },
                    &Arc::new(UserRows::new(1)),
                    &Arc::default(),
                ),
            };
            (0..3).for_each(|_| this.message());
            this
        }

        fn message(&self) {
            let budget = Budget {
                fuel: 10_000,
                ns: 1_000_000_000,
            };
            let function = ashway_handler::Function::ON_RX;
            let mut running = self.handler.running.lock().unwrap();
            running.wasm.activate(function, &mut [], 0, budget);
        }

        /// This version, which is to take over.
        pub(crate) fn next(&self, version: u32, more: &str) -> ActivateVersion {
            let text = source(version, more);
            std::fs::write(&self.config.file, wat::parse_str(text).unwrap()).unwrap();
            let next = Version::read(&self.config, &self.config.file, &self.engine);
            let next = Arc::new(next.unwrap());
            let state_range = self.handler.shared.version().state_range;
            let state_transfer =
                state_transfer(state_range, next.state_range, next.compiled.migrates()).unwrap();
            ActivateVersion {
                handler: self.handler.clone(),
                next,
                config: self.config.clone(),
                state_transfer,
                engine: self.engine.clone(),
            }
        }

        /// Has this version take over; whether it could.
        fn swap(&self, version: u32, more: &str) -> bool {
            self.next(version, more).run().is_ok()
        }

        /// The two counts.
        pub(crate) fn counts(&self) -> [u32; 2] {
            let word = |at| {
                let memory = &self.handler.shared.memory.mapped;
                memory.u32_at(at).load(Ordering::Relaxed)
            };
            [word(1024), word(2048)]
        }
    }

    impl Drop for Setting {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.config.file);
        }
    }

    /// The state goes on, the rest begins anew.
    fn takes_over() -> bool {
        let setting = Setting::new("takes-over");
        assert_eq!(setting.counts(), [10, 3]);
        let taken = setting.swap(1, "") && setting.counts() == [10, 0];
        setting.message();
        taken && setting.counts() == [11, 1]
    }

    fn migrates() -> bool {
        let setting = Setting::new("migrates");
        setting.swap(2, MIGRATE) && setting.counts() == [110, 0]
    }

    /// What cannot begin leaves every byte, and the version that runs.
    fn puts_back() -> bool {
        let setting = Setting::new("puts-back");
        let refused = !setting.swap(2, TRAP) && setting.counts() == [10, 3];
        setting.message();
        refused && setting.counts() == [11, 4]
    }

    /// While an activation in the kernel tier has the lock, nothing takes over, however often it
    /// is tried, and the lock stays that one's.
    fn waits_for_the_lock() -> bool {
        let setting = Setting::new("waits");
        let queue = setting.handler.shared.queue.as_ref().unwrap();
        let lock = queue.words().u32_at(ashway_abi::trusted::LOCK);
        lock.store(1, Ordering::SeqCst);
        let refused = (0..3).all(|_| !setting.swap(1, "") && !setting.handler.is_held());
        let kept = lock.swap(0, Ordering::SeqCst) == 1 && setting.counts() == [10, 3];
        refused && kept && setting.swap(1, "")
    }

    #[test]
    fn a_version_takes_over_or_leaves_everything() {
        assert!(takes_over());
        assert!(migrates());
        assert!(puts_back());
        assert!(waits_for_the_lock());
    }

    #[test]
    fn each_mistake_is_noticed() {
        let bugs: [(Bug, fn() -> bool); 7] = [
            (Bug::StateForgotten, takes_over),
            (Bug::StateOverwritten, takes_over),
            (Bug::RestKept, takes_over),
            (Bug::NotMigrated, migrates),
            (Bug::NotPutBack, puts_back),
            (Bug::RunsNevertheless, puts_back),
            (Bug::LockOfAnother, waits_for_the_lock),
        ];
        for (bug, property) in bugs {
            assert!(!bug::with(bug, property), "{bug:?} is not noticed");
        }
    }

    #[test]
    fn a_state_is_handed_on_whole_or_not_at_all() {
        let range = |offset, bytes, version| {
            Some(StateRange {
                offset,
                bytes,
                version,
            })
        };
        let one = range(64, 8, 1);
        assert_eq!(state_transfer(None, None, false), Ok(None));
        assert_eq!(state_transfer(None, one, true), Ok(None));
        let same = StateTransfer {
            from: 64,
            to: 128,
            bytes: 8,
            migrate: None,
        };
        assert_eq!(state_transfer(one, range(128, 8, 1), false), Ok(Some(same)));
        let older = StateTransfer {
            to: 0,
            migrate: Some(1),
            ..same
        };
        assert_eq!(state_transfer(one, range(0, 16, 2), true), Ok(Some(older)));
        for (next, migrates, says) in [
            (None, true, "declares none"),
            (range(0, 16, 1), true, "16 in the file"),
            (range(0, 4, 1), true, "4 in the file"),
            (range(0, 4, 2), true, "file's has 4"),
            (range(0, 8, 2), false, "exports no `migrate`"),
        ] {
            let why = state_transfer(one, next, migrates).unwrap_err();
            assert!(why.to_string().contains(says), "{why}");
        }
    }
}
