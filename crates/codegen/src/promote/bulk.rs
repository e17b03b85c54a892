//! Bulk operations: a loop over chunks of 64 bytes, then what is left of one
//! without a loop: the fastest form for a packet's length (docs/facts.md, "Copies of
//! a packet's length"), with no index for the verifier to follow. The loop ticks
//! (`tick.rs`).
//!
//! Everything waits in frame slots first, so that all scratch registers are
//! free: `r1` destination, `r2` source, `r3` bytes left, `r4` and `r5` pointers,
//! `r0` data.

use super::emitter::Emitter;
use super::frame::TRANSFER;
use super::memory::ARRAY_BASE;
use super::message::{MD, MOST};
use crate::bug::{self, Bug};
use Reg::{R0, R1, R2, R3, R4, R5, R9, R10};
use ashway_abi::MemoryKind;
use ashway_abi::log::{self, LINE_BYTES, stage};
use ashway_abi::{Cause, context, resize};
use ashway_check::bpf::{Reg, Size, helper, op};

/// One side of a copy.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Memory,
    /// The frame, from its first byte on.
    Frame,
    /// The state region; the address is the memory's, too.
    State,
    Message,
}

/// Bytes a loop moves in one turn, and ticks.
const CHUNK: u32 = 64;

/// What is left of a chunk, in pieces.
const PIECES: [u32; 6] = [32, 16, 8, 4, 2, 1];

/// Bytes that a helper copies at most in one turn of a loop.
pub(super) const HELPER_CHUNK: u32 = 256;

/// Bytes that a helper clears in one turn: a word's.
const ZEROS: u32 = 8;

impl Emitter<'_> {
    pub(super) fn memory_copy(&mut self) {
        self.operands_into(&[R1, R2, R3]);
        self.check_memory(R1);
        self.check_memory(R2);
        self.launder_indices();
        let backward = self.asm.label();
        let end = self.asm.label();
        // Where the destination begins inside the source, the end goes first.
        self.asm.mov(R0, R1);
        self.asm.alu(op::SUB, R0, R2);
        self.asm.alu32(op::MOV, R0, R0);
        if !bug::is(Bug::CopyForward) {
            self.asm.jump_if(op::JLT, R0, R3, backward);
        }
        self.copy_forward(Side::Memory, Side::Memory);
        self.asm.jump(end);
        self.asm.bind(backward);
        self.copy_backward();
        self.asm.bind(end);
    }

    pub(super) fn memory_fill(&mut self) {
        self.operands_into(&[R1, R2, R3]);
        self.check_memory(R1);
        self.launder_indices();
        self.asm.alu32_imm(op::AND, R2, 0xff);
        self.asm.load_imm(R4, u64::from_le_bytes([1; 8]));
        self.asm.alu(op::MUL, R2, R4);
        self.chunks(|this, bytes, size| {
            this.chunk_pointer(Side::Memory, R4, R0, R1, bytes);
            for off in offsets(bytes, size) {
                this.asm.store(size, R4, off, R2);
            }
            this.asm.alu32_imm(op::ADD, R1, bytes as i32);
            this.asm.alu32_imm(op::SUB, R3, bytes as i32);
        });
    }

    /// [`OpKind::StateCopy`](crate::normalise::ir::OpKind::StateCopy).
    pub(super) fn state_copy(&mut self) {
        self.operands_into(&[R1, R2, R3]);
        self.check_memory(R1);
        // The source has been checked by words that the application can write.
        // In an arena a page that is not there takes 1 us to be found missing,
        // far too long for a tick (docs/facts.md, "Missing arena pages"), so it is
        // checked again.
        let trap = self.trap(Cause::MemoryBounds);
        self.asm.mov(R0, R2);
        self.asm.alu(op::ADD, R0, R3);
        self.asm.load_imm(R4, self.shape.layout.state_bytes as u64);
        if !bug::is(Bug::StateUnchecked) {
            self.asm.jump_if(op::JGT, R0, R4, trap);
        }
        let state = self.shape.layout.state_offset();
        self.asm.alu32_imm(op::ADD, R2, state as i32);
        self.launder_indices();
        self.copy_forward(Side::Memory, Side::State);
    }

    /// `msg_read(at, into, len)`.
    pub(super) fn message_read(&mut self) {
        // The message's offset is the first operand, and the source.
        self.operands_into(&[R2, R1, R3]);
        self.check_frame_range(R2);
        self.check_memory(R1);
        self.copy_message(Side::Memory, Side::Frame);
    }

    /// `msg_write(at, from, len)`.
    pub(super) fn message_write(&mut self) {
        self.operands_into(&[R1, R2, R3]);
        self.check_message_range(R1);
        self.check_memory(R2);
        self.mark_dirty();
        if self.shape.memory == MemoryKind::Array {
            self.asm.load(Size::W, R0, R9, context::PAYLOAD_OFF);
            self.asm.alu(op::ADD, R1, R0);
        }
        self.copy_message(Side::Message, Side::Memory);
    }

    /// `log(from, len)`: onto the stage, in words. The last of them may hold what is
    /// behind the line, and behind the memory, which nobody reads.
    pub(super) fn log(&mut self) {
        let [short, placed, done] = [(); 3].map(|()| self.asm.label());
        self.operands_into(&[R2, R3]);
        self.asm.jump_if_imm(op::JLE, R3, LINE_BYTES as i32, short);
        self.asm.mov_imm(R3, LINE_BYTES as i32);
        self.asm.bind(short);
        self.check_memory(R2);
        self.asm.mov(R1, R9);
        self.asm.alu_imm(op::ADD, R1, context::LOG as i32);
        self.asm.load(Size::W, R4, R1, stage::COUNT as i16);
        self.asm.mov(R0, R4);
        self.asm.alu_imm(op::ADD, R0, 1);
        self.asm.store(Size::W, R1, stage::COUNT as i16, R0);
        if !bug::is(Bug::LogUnbounded) {
            self.asm.jump_if_imm(op::JLE, R4, log::MOST as i32, placed);
            self.asm.mov_imm(R4, log::MOST as i32);
        }
        self.asm.bind(placed);
        let shift = stage::STRIDE.trailing_zeros() as i32;
        self.asm.alu_imm(op::LSH, R4, shift);
        self.asm.alu(op::ADD, R1, R4);
        self.asm.store(Size::W, R1, stage::LINES as i16, R3);
        for word in 0..(LINE_BYTES / 8) as i16 {
            self.asm.jump_if_imm(op::JLE, R3, i32::from(word) * 8, done);
            match self.shape.memory {
                MemoryKind::Arena => self.asm.arena_cast(R5, R2),
                MemoryKind::Array => {
                    self.forget(R0, R2);
                    // Behind the memory there is a state region.
                    self.array_pointer(R5, R0, self.shape.maximum_bytes());
                }
            }
            self.asm.load(Size::D, R0, R5, 0);
            let at = stage::LINES + stage::TEXT;
            self.asm.store(Size::D, R1, at as i16 + word * 8, R0);
            self.asm.alu32_imm(op::ADD, R2, 8);
        }
        self.asm.bind(done);
    }

    /// `msg_resize(len)`: leaves the answer in the first transfer word. Whether the
    /// frame has room was asked before the handler began.
    pub(super) fn message_resize(&mut self) {
        let [no_room, set, done] = [(); 3].map(|()| self.asm.label());
        self.operands_into(&[R2]);
        self.asm.load(Size::W, R0, R9, context::MOST_LEN);
        if !bug::is(Bug::ResizeUnbounded) {
            self.asm.jump_if(op::JGT, R2, R0, no_room);
        }
        // r1 = where what it gains begins, r3 = how much that is.
        self.asm.load(Size::W, R1, R9, context::PAYLOAD_LEN);
        self.asm.mov(R3, R2);
        self.asm.jump_if(op::JLE, R2, R1, set);
        self.asm.alu(op::SUB, R3, R1);
        self.reserve_ticks(R3, HELPER_CHUNK as i32, &[R1, R2, R3]);
        if !bug::is(Bug::ResizeKeepsBytes) {
            match self.shape.memory {
                MemoryKind::Arena => self.clear_message(),
                MemoryKind::Array => self.clear_by_helper(),
            }
        }
        self.asm.bind(set);
        self.asm.store(Size::W, R9, context::PAYLOAD_LEN, R2);
        // On one way only, so that nothing is known from here on.
        self.asm.store_imm(Size::W, R9, context::DIRTY, 1);
        self.asm
            .store_imm(Size::D, R9, TRANSFER, resize::DONE as i32);
        self.asm.jump(done);
        self.asm.bind(no_room);
        self.asm
            .store_imm(Size::D, R9, TRANSFER, resize::NO_ROOM as i32);
        self.asm.bind(done);
    }

    /// Makes `r3` bytes of the frame from `r1` of the message on 0. Keeps `r2`.
    fn clear_message(&mut self) {
        self.launder_indices();
        self.chunks(|this, bytes, size| {
            this.chunk_pointer(Side::Message, R4, R5, R1, bytes);
            for off in offsets(bytes, size) {
                this.asm.store_imm(size, R4, off, 0);
            }
            this.asm.alu32_imm(op::ADD, R1, bytes as i32);
            this.asm.alu32_imm(op::SUB, R3, bytes as i32);
        });
    }

    /// The same from a transfer word, where packet pointers do not move.
    fn clear_by_helper(&mut self) {
        let [at, len, left] = [8, 16, 24].map(|off| TRANSFER + off);
        self.asm.load(Size::W, R0, R9, context::PAYLOAD_OFF);
        self.asm.alu(op::ADD, R1, R0);
        self.asm.store_imm(Size::D, R9, TRANSFER, 0);
        for (word, reg) in [(at, R1), (len, R2), (left, R3)] {
            self.asm.store(Size::W, R9, word, reg);
        }
        let time = self.trap(Cause::Time);
        let trap = self.trap(Cause::MessageBounds);
        let [end, fits] = [(); 2].map(|()| self.asm.label());
        let head = self.asm.here();
        self.asm.may_goto(time);
        let tick = self.tick(ZEROS);
        self.asm.load(Size::W, R4, R9, left);
        self.asm.jump_if_imm(op::JEQ, R4, 0, end);
        self.asm.jump_if_imm(op::JLE, R4, ZEROS as i32, fits);
        self.asm.mov_imm(R4, ZEROS as i32);
        self.asm.bind(fits);
        self.asm.load(Size::W, R2, R9, at);
        for (word, operation) in [(at, op::ADD), (left, op::SUB)] {
            self.asm.load(Size::W, R0, R9, word);
            self.asm.alu32(operation, R0, R4);
            self.asm.store(Size::W, R9, word, R0);
        }
        self.asm.mov(R3, R9);
        self.asm.alu_imm(op::ADD, R3, i32::from(TRANSFER));
        self.asm.load(Size::D, R1, R10, MD);
        self.asm.call(helper::XDP_STORE_BYTES);
        self.asm.jump_if_imm(op::JNE, R0, 0, trap);
        self.asm.jump(head);
        self.slow_tick(tick, &[]);
        self.asm.bind(end);
        self.asm.load(Size::W, R2, R9, len);
    }

    /// Pops operands into scratch registers, the topmost into the last; nothing
    /// else is in a scratch register then, and none of them is taken.
    pub(super) fn operands_into(&mut self, registers: &[Reg]) {
        self.flush_registers();
        for reg in registers.iter().rev() {
            let operand = self.pop();
            self.move_into(*reg, operand);
        }
    }

    /// Traps unless `address + r3` is in memory. Clobbers `r0`, `r4`, `r5`.
    pub(super) fn check_memory(&mut self, address: Reg) {
        self.asm.mov(R0, address);
        self.asm.alu(op::ADD, R0, R3);
        self.check_end();
    }

    /// Traps unless the memory has `r0` bytes. Clobbers `r4` and `r5`.
    pub(super) fn check_end(&mut self) {
        let trap = self.trap(Cause::MemoryBounds);
        if self.shape.growable() {
            self.body.busy = 0b00_1111;
            let bytes = self.current_bytes();
            self.asm.jump_if(op::JGT, R0, bytes, trap);
            self.body.busy = 0;
        }
        let most = self.shape.maximum_bytes() + u64::from(bug::is(Bug::BulkOffByOne));
        self.asm.load_imm(R4, most);
        self.asm.jump_if(op::JGT, R0, R4, trap);
    }

    /// Traps unless `at + r3` is in the message. Clobbers `r0`, `r4`.
    pub(super) fn check_message_range(&mut self, at: Reg) {
        let trap = self.trap(Cause::MessageBounds);
        self.asm.mov(R0, at);
        self.asm.alu(op::ADD, R0, R3);
        self.asm.load(Size::W, R4, R9, context::PAYLOAD_LEN);
        self.asm.jump_if(op::JGT, R0, R4, trap);
    }

    /// The same of a signed offset, which may be in front of the message, in the
    /// frame. It is a place in the frame from here on.
    fn check_frame_range(&mut self, at: Reg) {
        let trap = self.trap(Cause::MessageBounds);
        self.asm.movsx(Size::W, true, at, at);
        self.asm.mov(R0, at);
        self.asm.alu(op::ADD, R0, R3);
        self.asm.load(Size::W, R4, R9, context::PAYLOAD_LEN);
        self.asm.jump_if(op::JSGT, R0, R4, trap);
        self.frame_place(at, R4, trap);
    }

    /// The first turn of a loop must look like any other.
    fn launder_indices(&mut self) {
        self.asm.load(Size::D, R0, R9, context::ZERO);
        for reg in [R1, R2, R3] {
            self.launder(false, reg, R0);
        }
    }

    /// Moves `r3` bytes by `chunk`, which is told how many at a time and in what
    /// words, and counts `r3` down. It may clobber `r0`, `r4` and `r5`.
    fn chunks(&mut self, mut chunk: impl FnMut(&mut Self, u32, Size)) {
        let small = self.asm.label();
        let head = self.asm.here();
        self.asm.jump32_if_imm(op::JLT, R3, CHUNK as i32, small);
        let time = self.trap(Cause::Time);
        self.asm.may_goto(time);
        let free = bug::is(Bug::BulkTickFree);
        let tick = self.tick(if free { 0 } else { CHUNK });
        chunk(self, CHUNK, Size::D);
        self.asm.jump(head);
        self.slow_tick(tick, &[R1, R2, R3]);
        self.asm.bind(small);
        for bytes in PIECES {
            let size = match bytes {
                1 => Size::B,
                2 => Size::H,
                4 => Size::W,
                _ => Size::D,
            };
            let smaller = self.asm.label();
            self.asm.jump32_if_imm(op::JLT, R3, bytes as i32, smaller);
            chunk(self, bytes, size);
            self.asm.bind(smaller);
        }
    }

    fn copy_forward(&mut self, to: Side, from: Side) {
        self.chunks(|this, bytes, size| {
            // A packet pointer needs a second register, which the memory
            // pointer can then have.
            if to == Side::Message {
                this.chunk_pointer(to, R4, R5, R1, bytes);
                this.chunk_pointer(from, R5, R0, R2, bytes);
            } else {
                this.chunk_pointer(from, R5, R4, R2, bytes);
                this.chunk_pointer(to, R4, R0, R1, bytes);
            }
            for off in offsets(bytes, size) {
                this.asm.load(size, R0, R5, off);
                this.asm.store(size, R4, off, R0);
            }
            this.asm.alu32_imm(op::ADD, R1, bytes as i32);
            this.asm.alu32_imm(op::ADD, R2, bytes as i32);
            this.asm.alu32_imm(op::SUB, R3, bytes as i32);
        });
    }

    /// From the end, word by word downwards.
    fn copy_backward(&mut self) {
        self.asm.alu32(op::ADD, R1, R3);
        self.asm.alu32(op::ADD, R2, R3);
        self.chunks(|this, bytes, size| {
            this.asm.alu32_imm(op::SUB, R1, bytes as i32);
            this.asm.alu32_imm(op::SUB, R2, bytes as i32);
            this.asm.alu32_imm(op::SUB, R3, bytes as i32);
            this.chunk_pointer(Side::Memory, R5, R4, R2, bytes);
            this.chunk_pointer(Side::Memory, R4, R0, R1, bytes);
            for off in offsets(bytes, size).rev() {
                this.asm.load(size, R0, R5, off);
                this.asm.store(size, R4, off, R0);
            }
        });
    }

    /// Between message and memory, which cannot overlap. A handler is not stopped
    /// in the middle of a host call (ASHs, section III.B): its ticks are there
    /// before it begins, those of a last chunk that is not full included.
    fn copy_message(&mut self, to: Side, from: Side) {
        if !bug::is(Bug::CopyStopsInside) {
            self.reserve_ticks(R3, HELPER_CHUNK as i32, &[R1, R2, R3]);
        }
        match self.shape.memory {
            MemoryKind::Arena => {
                self.launder_indices();
                self.copy_forward(to, from);
            }
            MemoryKind::Array => self.copy_by_helper(to == Side::Message),
        }
    }

    /// In array mode a helper copies, from or to a place in the frame, and clobbers
    /// all scratch registers, so that the loop's numbers are in the transfer words.
    pub(super) fn copy_by_helper(&mut self, to_message: bool) {
        let (message, memory, number) = if to_message {
            (R1, R2, helper::XDP_STORE_BYTES)
        } else {
            (R2, R1, helper::XDP_LOAD_BYTES)
        };
        let [message_at, memory_at, left] = [8, 16, 24].map(|off| TRANSFER + off);
        self.asm.store(Size::W, R9, message_at, message);
        self.asm.store(Size::W, R9, memory_at, memory);
        self.asm.store(Size::W, R9, left, R3);
        let time = self.trap(Cause::Time);
        let trap = self.trap(Cause::MessageBounds);
        let end = self.asm.label();
        let head = self.asm.here();
        self.asm.may_goto(time);
        let tick = self.tick(HELPER_CHUNK);
        self.asm.load(Size::W, R4, R9, left);
        self.asm.jump_if_imm(op::JEQ, R4, 0, end);
        self.at_most_a_chunk();
        self.asm.load(Size::W, R5, R9, memory_at);
        // The verifier is content with the first byte's place: behind the guest
        // memory there is a state region, longer than a chunk.
        self.chunk_pointer(Side::Memory, R3, R2, R5, 1);
        self.asm.load(Size::W, R2, R9, message_at);
        self.asm.load(Size::D, R1, R10, MD);
        self.asm.call(number);
        self.asm.jump_if_imm(op::JNE, R0, 0, trap);
        self.asm.load(Size::W, R4, R9, left);
        self.at_most_a_chunk();
        for (word, operation) in [(message_at, op::ADD), (memory_at, op::ADD), (left, op::SUB)] {
            self.asm.load(Size::W, R0, R9, word);
            self.asm.alu32(operation, R0, R4);
            self.asm.store(Size::W, R9, word, R0);
        }
        self.asm.jump(head);
        self.slow_tick(tick, &[]);
        self.asm.bind(end);
    }

    /// `r4` = the smaller of `r4` and a helper's chunk.
    fn at_most_a_chunk(&mut self) {
        let fits = self.asm.label();
        self.asm.jump_if_imm(op::JLE, R4, HELPER_CHUNK as i32, fits);
        self.asm.mov_imm(R4, HELPER_CHUNK as i32);
        self.asm.bind(fits);
    }

    /// Makes a pointer, for a chunk of `bytes`, of an address or index that is
    /// known to be inside. Clobbers `into` and `scratch`.
    fn chunk_pointer(&mut self, side: Side, into: Reg, scratch: Reg, at: Reg, bytes: u32) {
        let layout = &self.shape.layout;
        let end = match side {
            Side::Memory => self.shape.maximum_bytes(),
            Side::State => (layout.state_offset() + layout.state_bytes) as u64,
            Side::Message => {
                let trap = self.trap(Cause::MessageBounds);
                self.message_chunk(into, scratch, at, bytes, trap);
                return;
            }
            Side::Frame => {
                let trap = self.trap(Cause::MessageBounds);
                self.asm.jump_if_imm(op::JGT, at, MOST, trap);
                self.frame_chunk(into, scratch, at, bytes, trap);
                return;
            }
        };
        match self.shape.memory {
            MemoryKind::Arena => self.asm.arena_cast(into, at),
            MemoryKind::Array => {
                self.forget(scratch, at);
                self.array_pointer(into, scratch, end.saturating_sub(bytes.into()));
            }
        }
    }

    /// A pointer into an array of an address that is at most `most` anyway: the
    /// verifier is told so.
    pub(super) fn array_pointer(&mut self, into: Reg, address: Reg, most: u64) {
        let trap = self.trap(Cause::MemoryBounds);
        self.asm
            .jump32_if_imm(op::JGT, address, most as u32 as i32, trap);
        self.asm.load(Size::D, into, R10, ARRAY_BASE);
        self.asm.alu(op::ADD, into, address);
    }
}

/// The offsets of a chunk's words.
fn offsets(bytes: u32, size: Size) -> impl DoubleEndedIterator<Item = i16> {
    (0..bytes / size.bytes()).map(move |word| (word * size.bytes()) as i16)
}
