//! What came of an activation, in whatever engine.

use ashway_abi::{Cause, Verdict};
use ashway_codegen::normalise::ir::FileOffset;
use ashway_handler::Stopped;

use crate::Engine;

/// The result of one activation. Two engines agree if these are equal (but for
/// `fuel_left` after [`Cause::Time`], which is the clock's choice) and so are
/// the memories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Activation {
    /// The verdict's number, which is in the table of verdicts, or why the
    /// handler was stopped.
    pub result: Result<u32, Stopped>,
    /// The message as it goes on: as the handler left it if its verdict sends
    /// it on as changed (reply, deliver, forward), else as it came.
    pub message: Vec<u8>,
    /// Whether the handler changed the message.
    pub dirty: bool,
    /// Fuel that was not used; negative when it ran out.
    pub fuel_left: i64,
}

/// Whether two engines came to the same end. The user tier's place of an access
/// or a division can be beside the operator ([`Stopped::at`]); the cause counts.
pub fn same_end<T: PartialEq>(
    engines: [Engine; 2],
    one: &Result<T, Stopped>,
    other: &Result<T, Stopped>,
) -> bool {
    match (one, other) {
        (Err(one), Err(other)) if engines.contains(&Engine::User) => {
            let loose = [Cause::MemoryBounds, Cause::DivideByZero, Cause::Overflow];
            one == other || one.cause == other.cause && loose.contains(&one.cause)
        }
        _ => one == other,
    }
}

impl Activation {
    /// The verdict, if there is one.
    #[must_use]
    pub fn verdict(&self) -> Option<Verdict> {
        self.result.ok().and_then(Verdict::from_number)
    }

    /// Whether the handler changed the message and then neither sent it on as
    /// changed nor ended it: a node drops what it would else have given to the
    /// host, or treated as `on_fault` says.
    #[must_use]
    pub fn is_spoiled(&self) -> bool {
        self.dirty && matches!(self.verdict(), Some(Verdict::Pass | Verdict::Abort) | None)
    }

    /// What promoted code alleges, judged as the user tier judges it. `at` is
    /// where the handler begins.
    pub(crate) fn judge(
        alleged: ashway_codegen::stub::Outcome<'_>,
        came: &[u8],
        at: FileOffset,
    ) -> Self {
        let result = match alleged.result {
            Err((cause, at)) => Err(Stopped { cause, at }),
            Ok(number) => Verdict::from_number(number).map(|_| number).ok_or(Stopped {
                cause: Cause::BadVerdict,
                at,
            }),
        };
        let goes_on = matches!(
            result.ok().and_then(Verdict::from_number),
            Some(Verdict::Reply | Verdict::Deliver | Verdict::Forward)
        );
        Self {
            result,
            message: if goes_on { alleged.message } else { came }.to_vec(),
            dirty: alleged.dirty,
            fuel_left: alleged.fuel_left,
        }
    }
}

/// A handler that does nothing: `on_rx` returns `consume`. Its time is what a
/// call costs in an engine, to be subtracted.
///
/// ```text
/// (module
///   (memory (export "memory") 1 1)
///   (func (export "on_rx") (param i32 i32) (result i32) (i32.const 0)))
/// ```
#[rustfmt::skip]
pub const EMPTY: &[u8] = &[
    0x00, 0x61, 0x73, 0x6d, 0x01, 0x00, 0x00, 0x00,
    // Type 0: (i32, i32) -> i32.
    0x01, 0x07, 0x01, 0x60, 0x02, 0x7f, 0x7f, 0x01, 0x7f,
    // Function 0 has type 0.
    0x03, 0x02, 0x01, 0x00,
    // Memory 0: 1 page, at most 1.
    0x05, 0x04, 0x01, 0x01, 0x01, 0x01,
    // Exports: "memory", "on_rx".
    0x07, 0x12, 0x02,
    0x06, b'm', b'e', b'm', b'o', b'r', b'y', 0x02, 0x00,
    0x05, b'o', b'n', b'_', b'r', b'x', 0x00, 0x00,
    // The body: no locals, i32.const 0, end.
    0x0a, 0x06, 0x01, 0x04, 0x00, 0x41, 0x00, 0x0b,
];
