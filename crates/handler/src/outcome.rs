//! What came of an activation.

use ashway_abi::{Cause, Verdict};
use ashway_codegen::normalise::Encoded;
use ashway_codegen::normalise::ir::FileOffset;
use wasmtime::{Trap, WasmBacktrace};

/// The result of one activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What the handler decided, or why it was stopped.
    pub verdict: Result<Verdict, Stopped>,
    /// Whether the handler changed the message; a dirty message of a stopped
    /// handler must not be passed on.
    pub dirty: bool,
    /// Fuel that was not used; negative when it ran out.
    pub fuel_left: i64,
    /// The message's length as the handler left it, in bytes.
    pub len: usize,
    /// Whether the message was copied to where Wasm reaches it, and back if it was changed.
    pub copied: bool,
}

impl Outcome {
    /// Whether the handler's verdict sends the message on, and it has changed it.
    #[must_use]
    pub const fn goes_on_changed(&self) -> bool {
        let goes_on = matches!(
            self.verdict,
            Ok(Verdict::Reply | Verdict::Deliver | Verdict::Forward)
        );
        goes_on && self.dirty
    }
}

/// An involuntary abort.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stopped by {} at offset {at:#x}", cause.name())]
pub struct Stopped {
    /// Why.
    pub cause: Cause,
    /// Where in the author's file. In the user tier it can be beside the
    /// operator: for an access or a division that the compiler can see is
    /// certain to trap it is the branch that leads there, and for a load that
    /// it merges with the operator that takes the value it is that one.
    pub at: FileOffset,
}

impl Stopped {
    /// What `error`, which a call into the module returned, says. `otherwise`
    /// is the place if the error names none.
    pub(crate) fn from_error(
        error: &wasmtime::Error,
        offsets: &Encoded,
        otherwise: FileOffset,
    ) -> Self {
        // Fuel and message bounds are the module's own checks: they come
        // through the import `trap` with their place.
        if let Some(stopped) = error.downcast_ref::<Self>() {
            return *stopped;
        }
        let cause = error
            .downcast_ref::<Trap>()
            .copied()
            .map_or(Cause::Unreachable, cause_of);
        let frames = error
            .downcast_ref::<WasmBacktrace>()
            .map_or(&[][..], WasmBacktrace::frames);
        let at = frames
            .first()
            .and_then(|frame| match frame.module_offset() {
                Some(offset) => offsets.author_offset(offset as u32),
                // The stack ends in a function's prologue, which has no offset.
                None => offsets.function_offset(frame.func_index()),
            });
        Self {
            cause,
            at: at.unwrap_or(otherwise),
        }
    }
}

/// The cause that stands for a trap of Wasmtime's.
fn cause_of(trap: Trap) -> Cause {
    match trap {
        Trap::MemoryOutOfBounds => Cause::MemoryBounds,
        Trap::HeapMisaligned => Cause::Unaligned,
        Trap::IntegerDivisionByZero => Cause::DivideByZero,
        // The second is a float that fits no integer: user tier only.
        Trap::IntegerOverflow | Trap::BadConversionToInteger => Cause::Overflow,
        // Wasmtime says `TableOutOfBounds` for an index of `call_indirect`.
        Trap::IndirectCallToNull | Trap::BadSignature | Trap::TableOutOfBounds => {
            Cause::IndirectCall
        }
        Trap::StackOverflow => Cause::Stack,
        // What is left belongs to features that handlers cannot use.
        _ => Cause::Unreachable,
    }
}
