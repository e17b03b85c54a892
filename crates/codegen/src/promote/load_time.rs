//! How long the kernel takes to load a program, and what is too long.
//!
//! When the kernel has verified a program it improves it: it replaces divisions and
//! `may_goto` by several instructions each, and removes branches that are never taken, one by
//! one. Each time it moves all that comes behind and looks at every jump, on a CPU that no
//! other thread gets meanwhile, and the timer that ends the verifier's walk does not end that.
//! So the time is the program's length by the number of such places, and that, not the length,
//! has a limit ([why so](../../../../docs/design/0023-how-long-a-program-loads.md)).
//!
//! Which branches are never taken is for the verifier to know: each conditional jump counts
//! as if it were one.

use super::error::{CodePlace, PromoteError};
use crate::bug::{self, Bug};
use ashway_abi::MemoryKind;
use ashway_check::bpf::Assembler;

/// Instructions of a program. Far jumps, which the assembler makes of two instructions, count
/// as one.
pub(super) const MOST_INSNS: usize = 200_000;

/// The same over an array: without `CAP_PERFMON` the kernel adds instructions to each of its
/// accesses.
const MOST_INSNS_OF_ARRAY: usize = 56 * 1024;

/// Time to put several instructions in the place of one, for each instruction of the program,
/// in ps: 6,400 to 10,800 where all places were at its beginning, 65,536 to 200,000
/// instructions (Linux 6.18, AMD Zen 5).
const GROWN_PS: u64 = 12_000;

/// Time to remove a branch, in the same way: 3,600 where they were all over a program of 63,222
/// instructions; where they were at the beginning, 6,000 of 131,072 and 8,600 of 200,000.
const REMOVED_PS: u64 = 6_000;

/// What may be used.
const MOST_MS: u64 = 3_000;

const PS_OF_MS: u64 = 1_000_000_000;

/// What the kernel would take for what has been emitted, in ms.
fn patching_ms(asm: &Assembler) -> u64 {
    let patched = asm.patched();
    let each = patched.grown as u64 * GROWN_PS + patched.jumps as u64 * REMOVED_PS;
    (asm.len() as u64).saturating_mul(each) / PS_OF_MS
}

/// Whether there is too much for a program already.
///
/// # Errors
///
/// [`PromoteError::TooLong`] or [`PromoteError::TooSlow`], at `place`.
pub(super) fn check(
    asm: &Assembler,
    memory: MemoryKind,
    place: impl FnOnce() -> CodePlace,
) -> Result<(), PromoteError> {
    let most = match memory {
        MemoryKind::Arena => MOST_INSNS,
        MemoryKind::Array => MOST_INSNS_OF_ARRAY,
    };
    if asm.len() > most {
        return Err(PromoteError::TooLong {
            place: place(),
            most,
        });
    }
    if patching_ms(asm) > MOST_MS && !bug::is(Bug::LoadTimeIgnored) {
        return Err(PromoteError::TooSlow {
            place: place(),
            seconds: MOST_MS / 1_000,
            insns: asm.len(),
            grown: asm.patched().grown,
            jumps: asm.patched().jumps,
        });
    }
    Ok(())
}
