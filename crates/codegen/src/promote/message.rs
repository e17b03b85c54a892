//! Accesses to the message, which is the packet itself.
//!
//! Two bounds hold at once: the message's length, which decides whether the
//! access traps (a short frame is padded, and the padding is not the message),
//! and `data_end`, which the verifier wants to see compared. Both are the
//! same for every access, so what one access has checked serves all that come
//! behind it and reach no further.
//!
//! A load may also reach in front of the message, where the frame's headers are:
//! its offset is signed then, and the pointer starts at the frame's first byte. A
//! store reaches the message alone, since headers are trusted code's.
//!
//! An offset that is not a constant is added to the packet pointer in arena
//! mode. In array mode, which is there for programs without `CAP_PERFMON`, the
//! verifier refuses that ("pointer arithmetic with it prohibited for !root", as
//! part of its Spectre defence), and a helper copies the bytes by way of the
//! context.

use super::emitter::{Emitter, width};
use super::frame::TRANSFER;
use super::stack::{At, Entry};
use crate::bug::{self, Bug};
use ashway_abi::MemoryKind;
use ashway_abi::{Cause, HostCall, context};
use ashway_check::bpf::{Field, Label, Reg, Size, helper, op};

/// The stack slot of the packet pointer to the message.
pub(super) const PAYLOAD: i16 = -16;
/// The stack slot of the packet's end.
pub(super) const PACKET_END: i16 = -24;

/// Bytes of a message that can be reached by an offset that is not a constant:
/// the verifier adds up offsets only below 64 KiB (`MAX_PACKET_OFF`), headers
/// included. A longer message waits in no ring either.
pub(super) const MOST: i32 = 0xfe00;

/// Constant offsets from here on are treated like unknown ones.
const FAR: u64 = 0x7fff;

/// The stack slot of the `md` pointer.
pub(super) const MD: i16 = -8;

/// A message access of fixed width.
struct Access {
    load: bool,
    size: Size,
    big_endian: bool,
}

impl Access {
    fn of(call: HostCall) -> Option<Self> {
        use HostCall as H;
        let (load, size, big_endian) = match call {
            H::Load8 => (true, Size::B, false),
            H::Load16Le => (true, Size::H, false),
            H::Load16Be => (true, Size::H, true),
            H::Load32Le => (true, Size::W, false),
            H::Load32Be => (true, Size::W, true),
            H::Load64Le => (true, Size::D, false),
            H::Load64Be => (true, Size::D, true),
            H::Store8 => (false, Size::B, false),
            H::Store16Le => (false, Size::H, false),
            H::Store16Be => (false, Size::H, true),
            H::Store32Le => (false, Size::W, false),
            H::Store32Be => (false, Size::W, true),
            H::Store64Le => (false, Size::D, false),
            H::Store64Be => (false, Size::D, true),
            _ => return None,
        };
        Some(Self {
            load,
            size,
            big_endian,
        })
    }
}

impl Emitter<'_> {
    pub(super) fn message(&mut self, call: HostCall) {
        match Access::of(call) {
            Some(access) if access.load => self.message_load(&access),
            Some(access) => self.message_store(&access),
            None if call == HostCall::Read => self.park(Self::message_read),
            None => self.park(Self::message_write),
        }
    }

    fn message_load(&mut self, access: &Access) {
        let at = self.pop();
        if self.needs_helper(at) {
            return self.message_load_by_helper(at, access);
        }
        let (pointer, off) = match at.at {
            At::Const(at) if at < FAR => self.near_pointer(at as u32, access.size),
            _ => (self.frame_pointer_at(at, access.size), 0),
        };
        let into = self.result_from(pointer);
        self.asm.load(access.size, into, pointer, off);
        if access.big_endian && !bug::is(Bug::ByteOrder) {
            self.asm.to_be(access.size, into);
        }
        self.push_reg(into, access.size == Size::D);
    }

    fn message_store(&mut self, access: &Access) {
        let value = self.pop();
        let at = self.pop();
        if self.needs_helper(at) {
            return self.message_store_by_helper(at, value, access);
        }
        // The swap needs a register of its own; it is taken before the
        // pointer, because making that one emits jumps.
        let value = if access.big_endian {
            self.own(value)
        } else {
            self.reg_of(value)
        };
        let (pointer, off) = match at.at {
            At::Const(at) if at < FAR => self.near_pointer(at as u32, access.size),
            _ => (self.message_pointer_at(at, access.size), 0),
        };
        if access.big_endian {
            self.asm.to_be(access.size, value);
        }
        self.asm.store(access.size, pointer, off, value);
        self.mark_dirty();
        self.release(value);
        self.release(pointer);
    }

    /// The message is changed from here on.
    pub(super) fn mark_dirty(&mut self) {
        if !self.body.facts.dirty && !bug::is(Bug::DirtyNotMarked) {
            self.asm.store_imm(Size::W, Reg::R9, context::DIRTY, 1);
            self.body.facts.dirty = true;
        }
    }

    /// A checked pointer, with an instruction offset, to `size` bytes of the
    /// message at a small constant offset.
    fn near_pointer(&mut self, at: u32, size: Size) -> (Reg, i16) {
        self.check_message(at + size.bytes());
        let pointer = self.alloc();
        self.asm.load(Size::D, pointer, Reg::R10, PAYLOAD);
        (pointer, at as i16)
    }

    /// Traps unless the message has `end` bytes.
    fn check_message(&mut self, end: u32) {
        if self.body.facts.message_bytes >= end {
            return;
        }
        // What has been checked holds only as long as the message does not get
        // shorter, here or in a function that is called.
        if !self.shape.module.resizes() || bug::is(Bug::FactsOutliveResize) {
            self.body.facts.message_bytes = end;
        }
        let trap = self.trap(Cause::MessageBounds);
        let pointer = self.alloc();
        let limit = self.alloc();
        self.asm.load(Size::W, limit, Reg::R9, context::PAYLOAD_LEN);
        self.asm.jump_if_imm(op::JLT, limit, end as i32, trap);
        self.asm.load(Size::D, pointer, Reg::R10, PAYLOAD);
        self.asm.alu_imm(op::ADD, pointer, end as i32);
        self.asm.load(Size::D, limit, Reg::R10, PACKET_END);
        self.asm.jump_if(op::JGT, pointer, limit, trap);
        self.release(limit);
        self.release(pointer);
    }

    /// The verifier has to know a bound of the index. It gets it from the
    /// length, of which it knows nothing, and not by a comparison of the index:
    /// where that is masked, the comparison would be decided and what hangs on
    /// it dead, and removing what is dead takes the kernel time in proportion
    /// to the whole program, once for each place.
    fn message_pointer_at(&mut self, at: Entry, size: Size) -> Reg {
        let bytes = size.bytes() as i32;
        let trap = self.trap(Cause::MessageBounds);
        let at = self.reg_of(at);
        let pointer = self.alloc();
        self.asm
            .load(Size::W, pointer, Reg::R9, context::PAYLOAD_LEN);
        self.asm.jump_if_imm(op::JGT, pointer, MOST, trap);
        // The offset is not needed any more when a second register is.
        let end = if self.is_scratch(at) {
            at
        } else {
            let end = self.alloc();
            self.asm.mov(end, at);
            end
        };
        self.asm.alu_imm(op::ADD, end, bytes);
        if !bug::is(Bug::MessageOfFrame) {
            self.asm.jump_if(op::JGT, end, pointer, trap);
        }
        self.asm.alu_imm(op::SUB, end, bytes);
        self.packet_pointer(pointer, end, end, size.bytes(), trap);
        self.release(end);
        pointer
    }

    /// A checked pointer to `size` bytes of the frame, at an offset from the
    /// message that is signed. The place in the frame, which is compared last, is
    /// of unknown size whatever the offset is, and cannot be decided either.
    fn frame_pointer_at(&mut self, at: Entry, size: Size) -> Reg {
        let bytes = size.bytes() as i32;
        let trap = self.trap(Cause::MessageBounds);
        // Before the message's first byte ends what does so in any message. (The
        // verifier would find that, too, and remove the comparison: see above.)
        let ends_before = matches!(at.at, At::Const(at) if at as u32 as i32 + bytes <= 0);
        let at = self.reg_of(at);
        let pointer = self.alloc();
        let place = if self.is_scratch(at) {
            at
        } else {
            self.alloc()
        };
        self.asm.movsx(Size::W, true, place, at);
        if !ends_before && !bug::is(Bug::MessageOfFrame) {
            self.asm
                .load(Size::W, pointer, Reg::R9, context::PAYLOAD_LEN);
            self.asm.alu_imm(op::SUB, pointer, bytes);
            self.asm.jump_if(op::JSGT, place, pointer, trap);
        }
        self.frame_place(place, pointer, trap);
        self.frame_chunk(pointer, place, place, size.bytes(), trap);
        self.release(place);
        pointer
    }

    /// Makes a place in the frame of a signed 64-bit offset from the message.
    /// Clobbers `scratch`.
    pub(super) fn frame_place(&mut self, at: Reg, scratch: Reg, trap: Label) {
        self.asm
            .load(Size::W, scratch, Reg::R9, context::PAYLOAD_OFF);
        self.asm.alu(op::ADD, at, scratch);
        // As an unsigned number, what is in front of the frame is large.
        self.asm.jump_if_imm(op::JGT, at, MOST, trap);
    }

    /// As [`Self::message_chunk`], of a place in the frame that the verifier knows
    /// to be at most [`MOST`].
    pub(super) fn frame_chunk(
        &mut self,
        into: Reg,
        scratch: Reg,
        place: Reg,
        bytes: u32,
        trap: Label,
    ) {
        self.asm.load(Size::D, into, Reg::R10, MD);
        self.asm.field(into, into, Field::Data);
        self.behind(into, scratch, place, bytes, trap);
    }

    /// Makes a packet pointer, for a chunk of `bytes`, of an index into the
    /// message that is known to be inside; tells the verifier so. Clobbers
    /// `into` and `scratch`, which may be `index`.
    pub(super) fn message_chunk(
        &mut self,
        into: Reg,
        scratch: Reg,
        index: Reg,
        bytes: u32,
        trap: Label,
    ) {
        self.asm.jump_if_imm(op::JGT, index, MOST, trap);
        self.packet_pointer(into, scratch, index, bytes, trap);
    }

    /// The same of an index that the verifier knows to be at most [`MOST`].
    fn packet_pointer(&mut self, into: Reg, scratch: Reg, index: Reg, bytes: u32, trap: Label) {
        self.asm.load(Size::D, into, Reg::R10, PAYLOAD);
        self.behind(into, scratch, index, bytes, trap);
    }

    /// Moves the packet pointer `into` on by `index`, if the packet has `bytes`
    /// bytes there.
    fn behind(&mut self, into: Reg, scratch: Reg, index: Reg, bytes: u32, trap: Label) {
        self.asm.alu(op::ADD, into, index);
        // The end is compared with the pointer behind the chunk, then moved
        // back: one register less, and the verifier follows.
        self.asm.alu_imm(op::ADD, into, bytes as i32);
        self.asm.load(Size::D, scratch, Reg::R10, PACKET_END);
        self.asm.jump_if(op::JGT, into, scratch, trap);
        self.asm.alu_imm(op::SUB, into, bytes as i32);
    }

    fn needs_helper(&self, at: Entry) -> bool {
        let near = matches!(at.at, At::Const(at) if at < FAR);
        self.shape.memory == MemoryKind::Array && !near
    }

    fn message_load_by_helper(&mut self, at: Entry, access: &Access) {
        let target = self.target();
        self.flush_registers();
        self.message_helper(helper::XDP_LOAD_BYTES, at, access);
        let into = target.unwrap_or_else(|| self.alloc());
        self.asm.load(access.size, into, Reg::R9, TRANSFER);
        if access.big_endian {
            self.asm.to_be(access.size, into);
        }
        self.push_reg(into, access.size == Size::D);
    }

    fn message_store_by_helper(&mut self, at: Entry, value: Entry, access: &Access) {
        self.flush_registers();
        let reg = self.own(value);
        if access.big_endian {
            self.asm.to_be(access.size, reg);
        }
        self.asm
            .store(width(access.size == Size::D), Reg::R9, TRANSFER, reg);
        self.release(reg);
        self.message_helper(helper::XDP_STORE_BYTES, at, access);
        self.mark_dirty();
    }

    /// Moves what an access is for between the frame and the first transfer
    /// word. Every scratch register is clobbered.
    fn message_helper(&mut self, number: i32, at: Entry, access: &Access) {
        let bytes = access.size.bytes();
        let trap = self.trap(Cause::MessageBounds);
        self.move_into(Reg::R2, at);
        self.discard(at);
        if access.load {
            self.asm.movsx(Size::W, true, Reg::R2, Reg::R2);
        }
        self.asm.mov(Reg::R0, Reg::R2);
        self.asm.alu_imm(op::ADD, Reg::R0, bytes as i32);
        self.asm
            .load(Size::W, Reg::R1, Reg::R9, context::PAYLOAD_LEN);
        // An offset that is not sign-extended is no negative number here.
        self.asm.jump_if(op::JSGT, Reg::R0, Reg::R1, trap);
        self.frame_place(Reg::R2, Reg::R0, trap);
        self.asm.mov(Reg::R3, Reg::R9);
        self.asm.alu_imm(op::ADD, Reg::R3, i32::from(TRANSFER));
        self.asm.load(Size::D, Reg::R1, Reg::R10, MD);
        self.asm.mov_imm(Reg::R4, bytes as i32);
        self.asm.call(number);
        self.asm.jump_if_imm(op::JNE, Reg::R0, 0, trap);
    }
}
