//! How long the kernel tier takes for a path's messages: some of them are timed, from when
//! the entry program has found their path to when the path's program is done.
//!
//! A look at the clock takes 33 ns (docs/facts.md, "A look at the clock"), as long as a small
//! handler runs. So message `n` of a path on a CPU stands for itself and the `n / 16` behind
//! it, [`MOST`] in all, of which none is timed: a load and a comparison are what those pay.
//! Of a path with few messages each counts nearly for itself, and what is not yet known of
//! the last ones is at most a sixteenth.
//!
//! * What looking costs is taken off: two looks in a row at the beginning say how much that is.
//! * A processor that was taken away for a while is not the path's: a message counts for at
//!   most what its handler may take and [`BESIDE_NS`].
//! * A message that goes on to the user tier counts nothing here; its time there is measured.

use ashway_abi::context::{self, flag};
use ashway_abi::count::{KERNEL_NS, NEXT_TIMED};
use ashway_check::bpf::{Assembler, Reg, Size, helper, op};

use crate::bug::{self, Bug};
use crate::parts;
use Reg::{R0, R1, R2, R9};

/// Messages that one stands for, at most: the clock then costs each 0.2 ns. A prime number, so
/// that no pattern of a few kinds of messages meets it with one kind alone.
const MOST: i32 = 509;

/// What everything but the handler takes of one message at most: checks and sums of the longest
/// frame take 1 us.
const BESIDE_NS: u64 = 20_000;

/// Context: how long it took.
const TOOK: i16 = context::SCRATCH + 48;

/// `r0` = the path's row, `r1` = the message's number in it, `r9` = the context. Clobbers
/// `r0`-`r5`.
pub(crate) fn begin(asm: &mut Assembler) {
    let few = asm.label();
    let untimed = asm.label();
    asm.load(Size::D, R2, R0, NEXT_TIMED as i16 * 8);
    asm.jump_if(op::JLT, R1, R2, untimed);
    asm.mov(R2, R1);
    asm.alu_imm(op::RSH, R2, 4);
    asm.jump_if_imm(op::JLT, R2, MOST, few);
    asm.mov_imm(R2, MOST - 1);
    asm.bind(few);
    asm.alu_imm(op::ADD, R2, 1);
    asm.alu(op::ADD, R1, R2);
    asm.store(Size::D, R0, NEXT_TIMED as i16 * 8, R1);
    if bug::is(Bug::TimedForOne) {
        asm.mov_imm(R2, 1);
    }
    asm.store(Size::W, R9, context::TIMED_FOR, R2);
    parts::add_flags(asm, flag::TIMED);
    asm.call(helper::KTIME_GET_NS);
    asm.store(Size::D, R9, context::TIMED_FROM, R0);
    asm.call(helper::KTIME_GET_NS);
    // The second look, and as much later as it was later than the first.
    asm.load(Size::D, R1, R9, context::TIMED_FROM);
    asm.alu_imm(op::LSH, R0, 1);
    asm.alu(op::SUB, R0, R1);
    asm.store(Size::D, R9, context::TIMED_FROM, R0);
    asm.bind(untimed);
}

/// The message has its fate, and its handler may take so long. `r9` = the context. Clobbers
/// `r0`-`r5`.
pub(crate) fn end(asm: &mut Assembler, handler_ns: u64) {
    let some = asm.label();
    let short = asm.label();
    let out = asm.label();
    asm.load(Size::W, R1, R9, context::FLAGS);
    asm.alu_imm(op::AND, R1, flag::TIMED as i32);
    asm.jump_if_imm(op::JEQ, R1, 0, out);
    asm.call(helper::KTIME_GET_NS);
    asm.load(Size::D, R1, R9, context::TIMED_FROM);
    asm.alu(op::SUB, R0, R1);
    asm.jump_if_imm(op::JSGE, R0, 0, some);
    asm.mov_imm(R0, 0);
    asm.bind(some);
    asm.load_imm(R1, handler_ns + BESIDE_NS);
    asm.jump_if(op::JLE, R0, R1, short);
    asm.mov(R0, R1);
    asm.bind(short);
    asm.load(Size::W, R1, R9, context::TIMED_FOR);
    asm.alu(op::MUL, R0, R1);
    asm.store(Size::D, R9, TOOK, R0);
    parts::find_row(asm, out);
    asm.load(Size::D, R1, R0, KERNEL_NS as i16 * 8);
    asm.load(Size::D, R2, R9, TOOK);
    asm.alu(op::ADD, R1, R2);
    asm.store(Size::D, R0, KERNEL_NS as i16 * 8, R1);
    asm.bind(out);
}
