//! The compiler's settings, and what every instance may call.

use crate::memory::Creator;
use crate::meter::{Clocks, Meter};
use crate::outcome::Stopped;
use crate::pipes::{ListCall, NoList, Pipes};
use ashway_abi::Cause;
use ashway_abi::host_call::MODULE;
use std::sync::Arc;
use wasmtime::{Caller, Config, Linker, OptLevel, Val};

/// What the instances of a process share.
///
/// # Examples
///
/// ```
/// ashway_handler::Engine::new().expect("the host is supported");
/// ```
#[derive(Clone)]
pub struct Engine {
    pub(crate) wasmtime: wasmtime::Engine,
    pub(crate) linker: Linker<Activation>,
    pub(crate) clocks: Clocks,
}

/// Wasmtime cannot run on this host.
#[derive(Debug, thiserror::Error)]
#[error("Wasmtime cannot be set up on this host: {0:#}")]
pub struct EngineError(wasmtime::Error);

impl Engine {
    /// An engine whose budgets end by this machine's clocks.
    ///
    /// # Errors
    ///
    /// [`EngineError`] if Wasmtime has no compiler for this host.
    pub fn new() -> Result<Self, EngineError> {
        Self::with_clocks(Clocks::default())
    }

    /// The same, with budgets that end by other clocks.
    ///
    /// # Errors
    ///
    /// As [`Engine::new`].
    pub fn with_clocks(clocks: Clocks) -> Result<Self, EngineError> {
        let wasmtime = wasmtime::Engine::new(&config()).map_err(EngineError)?;
        let mut linker = Linker::new(&wasmtime);
        linker
            .func_wrap(
                MODULE,
                "trap",
                |caller: Caller<'_, Activation>, cause: i32, at: i32| -> wasmtime::Result<()> {
                    let at = at as u32;
                    // The number comes from our own encoder.
                    let cause = Cause::from_number(cause as u32).unwrap_or(Cause::Unreachable);
                    let cause = match cause {
                        Cause::Fuel => refill(caller),
                        _ => Err(cause),
                    };
                    cause.map_err(|cause| Stopped { cause, at }.into())
                },
            )
            .map_err(EngineError)?;
        linker
            .func_wrap(MODULE, "now", || {
                ashway_memory::clock::monotonic_ns() as i64
            })
            .map_err(EngineError)?;
        linker
            .func_wrap(MODULE, "pipe", run_pipes)
            .map_err(EngineError)?;
        Ok(Self {
            wasmtime,
            linker,
            clocks,
        })
    }
}

/// What a store holds beside the module.
pub(crate) struct Activation {
    pub(crate) meter: Meter,
    /// The module's global for what is left of its slice; set before any of its
    /// code runs.
    pub(crate) fuel: Option<wasmtime::Global>,
    /// The lists of pipes, if there are any.
    pub(crate) pipes: Option<Pipes>,
}

/// Runs a list of pipes; 1 if that would leave the memory.
fn run_pipes(
    mut caller: Caller<'_, Activation>,
    call: u32,
    list: u32,
    at: u32,
    pointer: u32,
    len: u32,
    pages: u32,
) -> wasmtime::Result<u32> {
    let run = ListCall {
        call,
        list,
        at,
        pointer,
        len,
        pages,
    };
    let pipes = caller.data_mut().pipes.as_mut().ok_or(NoList(run))?;
    Ok(u32::from(!pipes.run(run)?))
}

/// Gives the module its next slice.
fn refill(mut caller: Caller<'_, Activation>) -> Result<(), Cause> {
    let Some(fuel) = caller.data().fuel else {
        return Err(Cause::Fuel);
    };
    let spent = fuel.get(&mut caller).i64().unwrap_or(i64::MIN);
    let slice = caller.data_mut().meter.refill(spent)?;
    let given = fuel.set(&mut caller, Val::I64(slice));
    // It is a mutable i64, or the encoder is wrong.
    given.map_err(|_| Cause::Fuel)
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}

/// Bytes of stack for Wasm code, of the thread's own (2 MiB is Rust's default).
///
/// Recursion is stopped by the module's own count of slots
/// ([`CALL_SLOTS`](ashway_abi::context::CALL_SLOTS)), so that it ends at the
/// same call in both tiers; this limit must come later. It is 256 bytes for
/// each of 4,096 slots: `tests/recursion.rs` goes to the last slot with
/// functions that are small, wide, deep, and full of values that only the
/// optimiser keeps. It still ends what takes no slots: a chain of thousands of
/// different functions, which no kernel tier takes.
const WASM_STACK: usize = 1 << 20;

fn config() -> Config {
    let mut config = Config::new();
    config
        .cranelift_opt_level(OptLevel::Speed)
        .wasm_multi_memory(true)
        .wasm_multi_value(true)
        .wasm_bulk_memory(true)
        .wasm_simd(true)
        .wasm_relaxed_simd(false)
        .wasm_threads(true)
        .max_wasm_stack(WASM_STACK)
        // The encoder says which branches hardly anybody takes, to an end or to the
        // host for more fuel: their code is put out of the way.
        .wasm_branch_hinting(true)
        // No epochs and no fuel of Wasmtime's: the module takes its own fuel in every
        // loop and function that could go on (`check_bounded`), and looks at the clock
        // with it. Epochs beside that were a load and a comparison more for each turn.
        // Everything stays where `Creator` puts it, and behind the handler's
        // memory lie its own state and slots, not guard pages: each access is
        // checked by an instruction. Wasmtime panics with a memory creator
        // unless copy-on-write images are off (wasmtime#10740).
        .with_host_memory(Arc::new(Creator))
        .memory_init_cow(false)
        .memory_may_move(false)
        .memory_reservation(0)
        .memory_reservation_for_growth(0)
        .memory_guard_size(0)
        .guard_before_linear_memory(false);
    config
}
