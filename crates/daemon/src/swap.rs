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

use ashway_codegen::normalise::Kept;
use ashway_handler::{Engine, Region};
use ashway_kernel::{AllegedOffset, Memory};

use crate::activation::{Bindable, Running, Turn};
use crate::config::HandlerConfig;
use crate::instance::{InstanceError, set_params};
use crate::version::Version;

/// The state that one version hands on to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Legacy {
    /// Where it lies.
    from: u32,
    /// Where it comes to lie.
    to: u32,
    /// Its length.
    pub(crate) bytes: u32,
    /// Its version, if the next one has another.
    pub(crate) migrate: Option<u32>,
}

/// Why the state of one version cannot be the next one's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoLegacy {
    /// The next one has none.
    #[error(
        "the handler has a state of {bytes} bytes (version {version}), and the file declares none"
    )]
    Missing { bytes: u32, version: u32 },
    /// The next one's is too small.
    #[error("the handler has a state of {bytes} bytes, and the file's has {room}")]
    Larger { bytes: u32, room: u32 },
    /// The same version of another length.
    #[error(
        "the state is of version {version} in both, but of {bytes} bytes in the handler and {found} in the file"
    )]
    Changed {
        version: u32,
        bytes: u32,
        found: u32,
    },
    /// There is nobody to take another form over.
    #[error(
        "the handler has a state of version {from}, and the file, which has version {to}, exports no `migrate` of type (i32) -> ()"
    )]
    NoMigrate { from: u32, to: u32 },
}

impl NoLegacy {
    /// The next step.
    pub(crate) fn hint(self) -> &'static str {
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
pub(crate) fn legacy(
    before: Option<Kept>,
    next: Option<Kept>,
    migrates: bool,
) -> Result<Option<Legacy>, NoLegacy> {
    let Some(before) = before else {
        return Ok(None);
    };
    let (bytes, version) = (before.bytes, before.version);
    let next = next.ok_or(NoLegacy::Missing { bytes, version })?;
    let migrate = (version != next.version).then_some(version);
    if migrate.is_none() && bytes != next.bytes {
        let found = next.bytes;
        return Err(NoLegacy::Changed {
            version,
            bytes,
            found,
        });
    }
    if bytes > next.bytes {
        let room = next.bytes;
        return Err(NoLegacy::Larger { bytes, room });
    }
    if migrate.is_some() && !migrates {
        let (from, to) = (version, next.version);
        return Err(NoLegacy::NoMigrate { from, to });
    }
    Ok(Some(Legacy {
        from: before.offset,
        to: next.offset,
        bytes,
        migrate,
    }))
}

/// Has `next` run in the place of the version that runs; how long no message was
/// taken. For the worker, between two messages.
///
/// # Errors
///
/// [`InstanceError`]: the version that ran runs on, over the memory that it had.
pub(crate) fn take_over(
    handler: &Bindable,
    next: &Version,
    config: &HandlerConfig,
    legacy: Option<Legacy>,
    engine: &Engine,
) -> Result<Duration, InstanceError> {
    let shared = &handler.shared;
    let own = shared.layout.guest_bytes + shared.layout.state_bytes;
    // Touched: a page that comes late is time that messages wait.
    let mut before = vec![1; own];
    let begin = Instant::now();
    let mut running = handler
        .running
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let turn = Turn::take(shared);
    let memory = &shared.memory;
    let whole = AllegedOffset(0);
    let inside = "the layout lies in the memory that was made for it";
    memory.copy_out(whole, &mut before).expect(inside);
    clear(memory, own);
    match begin_anew(handler, next, config, legacy, &before, engine) {
        Ok(wasm) => {
            let new = Running {
                version: next.id,
                wasm,
            };
            let old = std::mem::replace(&mut *running, new);
            drop((turn, running));
            let hold = begin.elapsed();
            // Wasmtime unmaps what it had.
            drop(old);
            Ok(hold)
        }
        Err(error) => {
            memory.copy_in(whole, &before).expect(inside);
            Err(error)
        }
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

fn begin_anew(
    handler: &Bindable,
    next: &Version,
    config: &HandlerConfig,
    legacy: Option<Legacy>,
    before: &[u8],
    engine: &Engine,
) -> Result<ashway_handler::Instance, InstanceError> {
    let shared = &handler.shared;
    let region: Arc<dyn Region> = Arc::<Memory>::clone(&shared.memory);
    let mut wasm = ashway_handler::Instance::begin(engine, &next.compiled, &region, shared.layout)
        .map_err(|source| InstanceError::Start {
            handler: config.name.clone(),
            source,
        })?;
    set_params(config, &next.compiled, &mut wasm)?;
    let Some(legacy) = legacy else {
        return Ok(wasm);
    };
    let state = &before[legacy.from as usize..][..legacy.bytes as usize];
    shared
        .memory
        .copy_in(AllegedOffset(legacy.to), state)
        .expect("both states lie in the memory");
    if let Some(from) = legacy.migrate {
        wasm.migrate(from)
            .map_err(|stopped| InstanceError::Migrate {
                handler: config.name.clone(),
                from,
                cause: stopped.cause,
                line: next
                    .lines
                    .at(stopped.at)
                    .map_or_else(String::new, |(file, line)| format!(" at {file}:{line}")),
            })?;
    }
    Ok(wasm)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_handed_on_whole_or_not_at_all() {
        let kept = |offset, bytes, version| {
            Some(Kept {
                offset,
                bytes,
                version,
            })
        };
        let one = kept(64, 8, 1);
        assert_eq!(legacy(None, None, false), Ok(None));
        assert_eq!(legacy(None, one, true), Ok(None));
        let same = Legacy {
            from: 64,
            to: 128,
            bytes: 8,
            migrate: None,
        };
        assert_eq!(legacy(one, kept(128, 8, 1), false), Ok(Some(same)));
        let older = Legacy {
            to: 0,
            migrate: Some(1),
            ..same
        };
        assert_eq!(legacy(one, kept(0, 16, 2), true), Ok(Some(older)));
        for (next, migrates, says) in [
            (None, true, "declares none"),
            (kept(0, 16, 1), true, "16 in the file"),
            (kept(0, 4, 1), true, "4 in the file"),
            (kept(0, 4, 2), true, "file's has 4"),
            (kept(0, 8, 2), false, "exports no `migrate`"),
        ] {
            let why = legacy(one, next, migrates).unwrap_err();
            assert!(why.to_string().contains(says), "{why}");
        }
    }
}
