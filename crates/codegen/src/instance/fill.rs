//! A message into its slot: the descriptor, and the frame behind it; into [several](chain) if
//! it is long.
//!
//! A tag that lies beside the frame, as a socket buffer has its first one, is put back, so that
//! the user tier sees what came by the wire. What is in front of the payload is longer by it
//! then, or the message itself, where that is the whole frame.

use ashway_abi::context::flag;
use ashway_abi::memory::HEADROOM_BYTES;
use ashway_abi::{QueueLayout, context, trusted};
use ashway_check::bpf::{Assembler, Hook, Label, Reg, Size, op, skb};
use ashway_wire::eth::TAG_BYTES;

use super::{QueueSpec, chain, enqueue};
use crate::bug::{self, Bug};
use crate::hook;
use Reg::{R0, R1, R2, R3, R4, R5, R6, R7, R9, R10};

/// Writes the descriptor, `r1`, and the frame as far as its payload goes, padding left out,
/// into the block that the slot has. `r7` = trusted words. Clobbers `r0`-`r5`.
pub(super) fn emit(asm: &mut Assembler, spec: &QueueSpec, bad: Label) {
    let layout = &spec.layout;
    let [long, copied] = [(); 2].map(|()| asm.label());
    asm.load(Size::W, R4, R9, context::PAYLOAD_OFF);
    asm.jump_if_imm(op::JEQ, R4, 0, bad);
    asm.jump_if_imm(op::JGT, R4, trusted::HEADERS_BYTES as i32, bad);
    asm.load(Size::W, R5, R9, context::PAYLOAD_LEN);
    if asm.hook() == Hook::Tcx {
        lengthen(asm);
        asm.jump_if_imm(op::JGT, R4, trusted::HEADERS_BYTES as i32, bad);
    }
    asm.store(Size::W, R1, trusted::SLOT_PAYLOAD_OFF as i16, R4);
    asm.store(Size::W, R1, trusted::SLOT_PAYLOAD_LEN as i16, R5);
    asm.load(Size::W, R2, R9, context::LOCAL_PATH);
    asm.store(Size::W, R1, trusted::SLOT_LOCAL_PATH as i16, R2);
    asm.load(Size::W, R2, R9, context::TAG);
    asm.store(Size::W, R1, trusted::SLOT_TAG as i16, R2);
    asm.jump_if_imm(op::JGT, R5, layout.slot_bytes as i32, long);
    asm.load(Size::D, R1, R10, enqueue::SLOT);
    frame_of(asm, layout, bad);
    asm.alu(op::ADD, R4, R5);
    if asm.hook() == Hook::Tcx {
        leave_room(asm, bad);
    }
    asm.mov(R1, R6);
    asm.mov_imm(R2, 0);
    hook::load_bytes(asm);
    asm.jump_if_imm(op::JNE, R0, 0, bad);
    asm.jump(copied);
    asm.bind(long);
    chain::emit(asm, spec, bad);
    asm.bind(copied);
    if asm.hook() == Hook::Tcx {
        put_tag(asm);
    }
}

/// `r3` = where the frame goes in the block of slot `r1`. `r7` = trusted words. Clobbers `r1`.
pub(super) fn frame_of(asm: &mut Assembler, layout: &QueueLayout, bad: Label) {
    asm.alu_imm(op::LSH, R1, 2);
    asm.alu_imm(op::ADD, R1, trusted::blocks_at(layout.rings) as i32);
    asm.alu(op::ADD, R1, R7);
    asm.load(Size::W, R3, R1, 0);
    let last = (layout.blocks() - 1) * layout.block_bytes();
    asm.jump_if_imm(op::JGT, R3, last as i32, bad);
    let frame = layout.pool_offset() + HEADROOM_BYTES;
    asm.alu_imm(op::ADD, R3, frame as i32);
    asm.alu(op::ADD, R3, R7);
}

/// Stack: where the frame is copied to, before the bell has the place.
pub(super) const COPY: i16 = enqueue::BELL;

/// To `none` if no tag lies beside the frame. Clobbers `r0`.
pub(super) fn if_tag(asm: &mut Assembler, none: Label) {
    asm.load(Size::W, R0, R9, context::FLAGS);
    asm.alu_imm(op::AND, R0, flag::TAG_BESIDE as i32);
    asm.jump_if_imm(op::JEQ, R0, 0, none);
}

/// What lies in front of the payload, `r4` bytes, or the whole frame's message, `r5`, is longer
/// by a tag that lies beside it. Clobbers `r0`.
pub(super) fn lengthen(asm: &mut Assembler) {
    let [whole, done] = [(); 2].map(|()| asm.label());
    if_tag(asm, done);
    asm.load(Size::W, R0, R9, context::FLAGS);
    asm.alu_imm(op::AND, R0, flag::RAW as i32);
    asm.jump_if_imm(op::JNE, R0, 0, whole);
    asm.alu_imm(op::ADD, R4, TAG_BYTES as i32);
    asm.jump(done);
    asm.bind(whole);
    asm.alu_imm(op::ADD, R5, TAG_BYTES as i32);
    asm.bind(done);
}

/// Has the frame copied so far behind `r3` as a tag is long, and so many of the `r4` bytes less.
fn leave_room(asm: &mut Assembler, bad: Label) {
    let none = asm.label();
    asm.store(Size::D, R10, COPY, R3);
    if_tag(asm, none);
    // There are at least two addresses and the tag; the verifier wants to see it.
    asm.jump_if_imm(op::JLT, R4, 16, bad);
    asm.alu_imm(op::ADD, R3, TAG_BYTES as i32);
    asm.alu_imm(op::SUB, R4, TAG_BYTES as i32);
    asm.bind(none);
}

/// Moves the addresses of the copy to its beginning, and puts the tag behind them (IEEE 802.1Q
/// §9.3). Clobbers `r0`-`r2`.
fn put_tag(asm: &mut Assembler) {
    if bug::is(Bug::TagForgotten) {
        return;
    }
    let none = asm.label();
    if_tag(asm, none);
    asm.load(Size::D, R1, R10, COPY);
    for word in (0..12).step_by(4) {
        asm.load(Size::W, R2, R1, TAG_BYTES as i16 + word);
        asm.store(Size::W, R1, word, R2);
    }
    asm.load(Size::W, R2, R6, skb::VLAN_PROTO);
    asm.store(Size::H, R1, 12, R2);
    asm.load(Size::W, R2, R6, skb::VLAN_TCI);
    asm.to_be(Size::H, R2);
    asm.store(Size::H, R1, 14, R2);
    asm.bind(none);
}
