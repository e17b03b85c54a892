//! What programs do beside their work while somebody observes.
//!
//! An observed program is made like any other, with these sequences in between. It
//! keeps a note in the context ([`ashway_abi::observe`]) and sends it through a ring
//! buffer at most once; a note that has no room there is counted. A message has a
//! number from the entry program on, so that what is said of it can be put together;
//! a program that is reached by a message without one says nothing.
//!
//! All of them clobber `r0`-`r5`. `r6` is `md`, `r9` the context.

use ashway_abi::context;
use ashway_abi::observe::{
    BEGAN, BESIDE, BYTES, CAPTURED, COUNT, FRAME_LEN, FUEL, IFINDEX, LOST, MOST_BYTES, NUMBERED,
    RAN, ROW, SEQUENCE, STEP, TIME, base, step,
};
use ashway_abi::trusted::SLOT_SEQUENCE;
use ashway_check::bpf::{Assembler, Field, Label, MapRef, Reg, Size, helper, op};

use crate::hook;
use crate::parts::{self};
use Reg::{R0, R1, R2, R3, R4, R6, R7, R8, R9};

/// `BPF_RB_NO_WAKEUP`: who reads looks by itself.
const NO_WAKEUP: i32 = 1;

/// A number that a note gets.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Word {
    /// Known now.
    Is(u32),
    /// What this word of the context holds.
    At(i16),
}

/// A note.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Note {
    /// One of [`step`].
    pub(crate) step: u32,
    /// The message's fate or note; [`Word::Is`]`(0)` for none.
    pub(crate) count: Word,
    /// Another count beside it.
    pub(crate) beside: Word,
    /// The row of counters.
    pub(crate) row: Word,
    /// Whether the frame as it is now belongs to it.
    pub(crate) frame: bool,
}

impl Note {
    /// The end of a message's way through the kernel tier.
    pub(crate) const fn end(count: Word) -> Self {
        Self {
            step: step::ENDED,
            count,
            beside: Word::Is(0),
            row: Word::At(context::ROW),
            frame: false,
        }
    }
}

/// `to` = the note.
fn find(asm: &mut Assembler, to: Reg) {
    asm.mov(to, R9);
    asm.alu_imm(op::ADD, to, context::OBSERVE as i32);
}

/// Where the entry program begins: finds the context, numbers the message, notes the
/// time. Clobbers `r7` and `r8`, too; to `fail` if this is no known CPU.
pub(crate) fn begin(asm: &mut Assembler, cpus: u32, session: u16, fail: Label) {
    parts::find_context(asm, cpus, fail);
    asm.call(helper::GET_SMP_PROCESSOR_ID);
    asm.mov(R8, R0);
    asm.alu_imm(op::LSH, R8, base(1, 0).trailing_zeros() as i32);
    find(asm, R7);
    asm.load(Size::W, R1, R7, NUMBERED);
    asm.alu32_imm(op::ADD, R1, 1);
    asm.store(Size::W, R7, NUMBERED, R1);
    asm.load_imm(R2, base(0, session));
    asm.alu(op::OR, R1, R2);
    asm.alu(op::OR, R1, R8);
    asm.store(Size::D, R7, SEQUENCE, R1);
    asm.call(helper::KTIME_GET_NS);
    asm.store(Size::D, R7, BEGAN, R0);
}

/// Where the program behind a slot begins.
pub(crate) fn turn(asm: &mut Assembler) {
    asm.call(helper::KTIME_GET_NS);
    find(asm, R1);
    asm.store(Size::D, R1, BEGAN, R0);
    asm.store_imm(Size::D, R1, RAN, 0);
    // NO_FUEL
    asm.store_imm(Size::D, R1, FUEL, -1);
}

/// Where a handler has ended, which had so much fuel, if it counts any.
pub(crate) fn ran(asm: &mut Assembler, fuel: Option<u64>) {
    asm.call(helper::KTIME_GET_NS);
    find(asm, R1);
    asm.store(Size::D, R1, RAN, R0);
    if let Some(fuel) = fuel {
        asm.load_imm(R2, fuel);
        for left in [context::FUEL, context::RESERVE] {
            asm.load(Size::D, R3, R9, left);
            asm.alu(op::SUB, R2, R3);
        }
        asm.store(Size::D, R1, FUEL, R2);
    }
}

/// Gives the message's number to the slot whose descriptor is in `slot`, which stays.
pub(crate) fn number_slot(asm: &mut Assembler, slot: Reg) {
    find(asm, R2);
    asm.load(Size::D, R3, R2, SEQUENCE);
    asm.store(Size::D, slot, SLOT_SEQUENCE as i16, R3);
}

/// Makes a note and sends it. Behind the last one of a message, `SEQUENCE` is 0.
pub(crate) fn note(asm: &mut Assembler, note: Note) {
    let skip = asm.label();
    let lost = asm.label();
    let said = asm.label();
    find(asm, R1);
    asm.load(Size::D, R2, R1, SEQUENCE);
    asm.jump_if_imm(op::JEQ, R2, 0, skip);
    asm.store_imm(Size::W, R1, STEP, note.step as i32);
    for (to, word) in [(COUNT, note.count), (BESIDE, note.beside), (ROW, note.row)] {
        match word {
            Word::Is(number) => asm.store_imm(Size::W, R1, to, number as i32),
            Word::At(at) => {
                asm.load(Size::W, R2, R9, at);
                asm.store(Size::W, R1, to, R2);
            }
        }
    }
    asm.field(R2, R6, Field::Ifindex);
    asm.store(Size::W, R1, IFINDEX, R2);
    asm.call(helper::KTIME_GET_NS);
    find(asm, R1);
    asm.store(Size::D, R1, TIME, R0);
    asm.store_imm(Size::W, R1, CAPTURED, 0);
    hook::frame_len(asm);
    find(asm, R1);
    asm.store(Size::W, R1, FRAME_LEN, R0);
    if note.frame {
        capture(asm);
    }

    find(asm, R2);
    asm.load(Size::W, R3, R2, CAPTURED);
    asm.jump_if_imm(op::JGT, R3, MOST_BYTES as i32, lost);
    asm.alu_imm(op::ADD, R3, BYTES as i32);
    asm.map(R1, MapRef::Notes, None);
    asm.mov_imm(R4, NO_WAKEUP);
    asm.call(helper::RINGBUF_OUTPUT);
    asm.jump_if_imm(op::JEQ, R0, 0, said);
    asm.bind(lost);
    find(asm, R1);
    asm.load(Size::W, R2, R1, LOST);
    asm.alu32_imm(op::ADD, R2, 1);
    asm.store(Size::W, R1, LOST, R2);
    asm.bind(said);
    if note.step != step::CLASSIFIED {
        find(asm, R1);
        asm.store_imm(Size::D, R1, SEQUENCE, 0);
    }
    asm.bind(skip);
}

/// Copies the frame behind the note; `r0` = its length.
fn capture(asm: &mut Assembler) {
    let short = asm.label();
    let none = asm.label();
    asm.jump_if_imm(op::JEQ, R0, 0, none);
    asm.mov(R4, R0);
    asm.jump_if_imm(op::JLE, R4, MOST_BYTES as i32, short);
    asm.mov_imm(R4, MOST_BYTES as i32);
    asm.bind(short);
    asm.store(Size::W, R1, CAPTURED, R4);
    asm.mov(R3, R1);
    asm.alu_imm(op::ADD, R3, BYTES as i32);
    asm.mov(R1, R6);
    asm.mov_imm(R2, 0);
    hook::load_bytes(asm);
    asm.jump_if_imm(op::JEQ, R0, 0, none);
    find(asm, R1);
    asm.store_imm(Size::W, R1, CAPTURED, 0);
    asm.bind(none);
}
