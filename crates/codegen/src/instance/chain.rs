//! A long message over as many slots as it takes.
//!
//! What is longer than a slot's block lies in the blocks of the slots that follow, each but
//! the last full ([`QueueLayout::piece_bytes`](ashway_abi::QueueLayout::piece_bytes)), and the
//! worker joins the pieces. All slots are taken at once or none, and only the first has a
//! descriptor: whoever sees that sees all.
//!
//! The helpers that copy from a frame take the address of a map's value and no arena's, and so
//! much at once as the verifier knows to be there: hence a loop, whose numbers lie in the
//! context, so that each turn looks to the verifier like the one before.

use ashway_abi::context::flag;
use ashway_abi::memory::HEADROOM_BYTES;
use ashway_abi::trusted::{self, long};
use ashway_abi::{QueueLayout, context};
use ashway_check::bpf::{Assembler, Hook, Label, Reg, Size, op, skb};
use ashway_wire::eth::TAG_BYTES;

use super::{QueueSpec, enqueue, fill};
use crate::bug::{self, Bug};
use crate::hook;
use crate::parts;
use Reg::{R0, R1, R2, R3, R4, R5, R6, R9, R10};

/// Context: bytes of the frame, as the driver has it.
const TOTAL: i16 = context::SCRATCH;
/// Context: how many of them have been copied.
const DONE: i16 = context::SCRATCH + 8;
/// Context: how many slots they lie in.
const SLOTS: i16 = context::SCRATCH + 16;
/// Context: bytes of room in the next block.
const ROOM: i16 = context::SCRATCH + 24;
/// Context: what stays free in front there, for a tag.
const FRONT: i16 = context::SCRATCH + 32;

/// Says on the stack what the slot's [`SLOT_LONG`](trusted::SLOT_LONG) is to be. `r4` bytes lie
/// in front of the payload's `r5`; to `too_long` if that is longer than any message. Clobbers
/// `r0`-`r3`.
pub(super) fn judge(asm: &mut Assembler, layout: &QueueLayout, too_long: Label) {
    let [checked, one, known] = [(); 3].map(|()| asm.label());
    const { assert!(long::MOST_BYTES + trusted::HEADERS_BYTES < 1 << 20) };
    asm.mov_imm(R3, 0);
    asm.load(Size::W, R0, R9, context::FLAGS);
    asm.alu_imm(op::AND, R0, flag::UNCHECKED as i32);
    asm.jump_if_imm(op::JEQ, R0, 0, checked);
    if asm.hook() == Hook::Tcx {
        asm.load(Size::W, R3, R6, skb::GSO_SIZE);
        asm.alu_imm(op::LSH, R3, long::GSO_SHIFT as i32);
    }
    asm.alu_imm(op::OR, R3, long::UNCHECKED as i32);
    asm.bind(checked);
    asm.jump_if_imm(op::JLE, R5, layout.slot_bytes as i32, one);
    asm.jump_if_imm(op::JGT, R5, long::MOST_BYTES as i32, too_long);
    asm.mov(R0, R4);
    asm.alu(op::ADD, R0, R5);
    asm.alu_imm(op::SUB, R0, 1);
    asm.alu_imm(op::DIV, R0, layout.piece_bytes() as i32);
    asm.alu(op::OR, R3, R0);
    asm.jump(known);
    asm.bind(one);
    asm.mov_imm(R0, 0);
    asm.bind(known);
    parts::launder(asm, R0);
    asm.alu_imm(op::AND, R0, MOST_SLOTS);
    asm.store(Size::D, R10, enqueue::MORE, R0);
    asm.store(Size::D, R10, enqueue::LONG, R3);
}

/// All bits of how many slots follow the first. The division has made it less; the verifier
/// wants to see a bound.
const MOST_SLOTS: i32 = {
    const LEAST_PIECE: usize = trusted::HEADERS_BYTES + 2048;
    const MOST: usize = (long::MOST_BYTES + trusted::HEADERS_BYTES) / LEAST_PIECE;
    assert!(MOST < 32 && MOST <= long::SLOTS as usize && MOST < trusted::RING_SLOTS);
    31
};

/// Copies a frame of `r4` bytes in front of the payload's `r5` into the blocks of the slots
/// that were taken. `r7` = trusted words. Clobbers `r0`-`r5`.
pub(super) fn emit(asm: &mut Assembler, spec: &QueueSpec, bad: Label) {
    let layout = &spec.layout;
    let piece = layout.piece_bytes() as i32;
    let [first, whole, more, done] = [(); 4].map(|()| asm.label());
    debug_assert!(HEADROOM_BYTES + TAG_BYTES + layout.piece_bytes() <= layout.block_bytes());
    asm.alu(op::ADD, R4, R5);
    asm.mov_imm(R3, 0);
    if asm.hook() == Hook::Tcx {
        fill::if_tag(asm, first);
        asm.mov_imm(R3, TAG_BYTES as i32);
        asm.bind(first);
    }
    asm.store(Size::D, R9, FRONT, R3);
    asm.alu(op::SUB, R4, R3);
    asm.store(Size::D, R9, TOTAL, R4);
    asm.mov_imm(R0, piece);
    asm.alu(op::SUB, R0, R3);
    asm.store(Size::D, R9, ROOM, R0);
    asm.store_imm(Size::D, R9, DONE, 0);
    asm.store_imm(Size::D, R9, SLOTS, 0);
    asm.bind(more);
    asm.may_goto(bad);
    block(asm, layout, bad);
    asm.load(Size::D, R2, R9, DONE);
    asm.load(Size::D, R4, R9, TOTAL);
    asm.alu(op::SUB, R4, R2);
    asm.load(Size::D, R0, R9, ROOM);
    asm.jump_if(op::JLE, R4, R0, whole);
    asm.mov(R4, R0);
    asm.bind(whole);
    asm.mov(R1, R2);
    asm.alu(op::ADD, R1, R4);
    asm.store(Size::D, R9, DONE, R1);
    // Both always hold; the verifier wants to see it.
    asm.jump_if_imm(op::JEQ, R4, 0, bad);
    asm.jump_if_imm(op::JGT, R4, piece, bad);
    asm.mov(R1, R6);
    hook::load_bytes(asm);
    asm.jump_if_imm(op::JNE, R0, 0, bad);
    asm.store_imm(Size::D, R9, FRONT, 0);
    asm.store_imm(Size::D, R9, ROOM, piece);
    asm.load(Size::D, R1, R9, SLOTS);
    asm.alu_imm(op::ADD, R1, 1);
    asm.store(Size::D, R9, SLOTS, R1);
    if bug::is(Bug::ChainCut) {
        // The last piece is forgotten.
        asm.load(Size::D, R2, R10, enqueue::MORE);
        asm.jump_if(op::JGE, R1, R2, done);
    }
    asm.load(Size::D, R1, R9, DONE);
    asm.load(Size::D, R2, R9, TOTAL);
    asm.jump_if(op::JLT, R1, R2, more);
    asm.bind(done);
    if asm.hook() == Hook::Tcx {
        asm.load(Size::D, R1, R10, enqueue::SLOT);
        fill::frame_of(asm, layout, bad);
        asm.store(Size::D, R10, fill::COPY, R3);
    }
}

/// `r3` = where the next piece goes: into the block of the slot that is so many behind the
/// first, behind what stays free there. Clobbers `r0`-`r2`.
fn block(asm: &mut Assembler, layout: &QueueLayout, bad: Label) {
    asm.load(Size::D, R1, R10, enqueue::SLOT);
    asm.mov(R2, R1);
    asm.load(Size::D, R0, R9, SLOTS);
    asm.alu(op::ADD, R2, R0);
    // The ring goes on at its beginning.
    let in_ring = trusted::RING_SLOTS as i32 - 1;
    asm.alu_imm(op::AND, R2, in_ring);
    asm.alu_imm(op::AND, R1, !in_ring);
    asm.alu(op::OR, R1, R2);
    fill::frame_of(asm, layout, bad);
    if asm.hook() == Hook::Tcx {
        asm.load(Size::D, R2, R9, FRONT);
        asm.alu_imm(op::AND, R2, TAG_BYTES as i32);
        asm.alu(op::ADD, R3, R2);
    }
}
