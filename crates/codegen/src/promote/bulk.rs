//! Bulk operations: in chunks of 64 bytes, then 8, then 1 (FACTS 1: as fast as
//! memory for a packet's length, and no index for the verifier to follow).
//!
//! Everything waits in frame slots first, so that all scratch registers are
//! free: `r1` destination, `r2` source, `r3` bytes left, `r4` and `r5` pointers,
//! `r0` data.

use super::MemoryKind;
use super::emitter::Emitter;
use super::frame::TRANSFER;
use crate::bpf::{Label, Reg, Size, helper, op};
use Reg::{R0, R1, R2, R3, R4, R5, R9};
use ashway_abi::{Cause, context};

/// One side of a copy.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Memory,
    Message,
}

/// Sizes of chunks where a helper copies.
const HELPER_CHUNKS: [u32; 4] = [256, 32, 4, 1];

/// Sizes of chunks, with their loads.
const CHUNKS: [(u32, Size); 3] = [(64, Size::D), (8, Size::D), (1, Size::B)];

impl Emitter<'_> {
    pub(super) fn memory_copy(&mut self) {
        self.bulk_operands();
        self.check_memory(R1);
        self.check_memory(R2);
        self.launder_indices();
        let backward = self.asm.label();
        let end = self.asm.label();
        // Where the destination begins inside the source, the end goes first.
        self.asm.mov(R0, R1);
        self.asm.alu(op::SUB, R0, R2);
        self.asm.alu32(op::MOV, R0, R0);
        self.asm.jump_if(op::JLT, R0, R3, backward);
        self.copy_forward(Side::Memory, Side::Memory, end);
        self.asm.bind(backward);
        self.copy_backward(end);
        self.asm.bind(end);
    }

    pub(super) fn memory_fill(&mut self) {
        self.bulk_operands();
        self.check_memory(R1);
        self.launder_indices();
        self.asm.alu32_imm(op::AND, R2, 0xff);
        self.asm.load_imm(R4, u64::from_le_bytes([1; 8]));
        self.asm.alu(op::MUL, R2, R4);
        let end = self.asm.label();
        for (bytes, size) in CHUNKS {
            let (head, smaller) = self.chunk_loop(bytes);
            self.chunk_pointer(R4, R0, R1, bytes);
            for off in offsets(bytes, size) {
                self.asm.store(size, R4, off, R2);
            }
            self.asm.alu32_imm(op::ADD, R1, bytes as i32);
            self.asm.alu32_imm(op::SUB, R3, bytes as i32);
            self.asm.jump(head);
            self.asm.bind(smaller);
        }
        self.asm.bind(end);
    }

    /// `msg_read(at, into, len)`.
    pub(super) fn message_read(&mut self) {
        self.bulk_operands();
        // The message's offset is the first operand, and the source.
        self.asm.mov(R0, R1);
        self.asm.mov(R1, R2);
        self.asm.mov(R2, R0);
        self.check_message_range(R2);
        self.check_memory(R1);
        self.copy_message(Side::Memory, Side::Message);
    }

    /// `msg_write(at, from, len)`.
    pub(super) fn message_write(&mut self) {
        self.bulk_operands();
        self.check_message_range(R1);
        self.check_memory(R2);
        self.mark_dirty();
        self.copy_message(Side::Message, Side::Memory);
    }

    /// Pops three operands into `r1`, `r2`, `r3`; nothing else is in a scratch
    /// register then.
    fn bulk_operands(&mut self) {
        let operands = [self.pop(), self.pop(), self.pop()];
        // Pushed back, so that making room does not lose them.
        for operand in operands.into_iter().rev() {
            self.body.stack.push(operand);
        }
        self.flush_registers();
        for reg in [R3, R2, R1] {
            let operand = self.pop();
            self.move_into(reg, operand);
        }
    }

    /// Traps unless `address + r3` is in memory. Clobbers `r0`, `r4`, `r5`.
    fn check_memory(&mut self, address: Reg) {
        let trap = self.trap(Cause::MemoryBounds);
        self.asm.mov(R0, address);
        self.asm.alu(op::ADD, R0, R3);
        if self.shape.growable() {
            self.body.busy = 0b00_1111;
            let bytes = self.current_bytes();
            self.asm.jump_if(op::JGT, R0, bytes, trap);
            self.body.busy = 0;
        }
        self.asm.load_imm(R4, self.shape.maximum_bytes());
        self.asm.jump_if(op::JGT, R0, R4, trap);
    }

    /// Traps unless `at + r3` is in the message. Clobbers `r0`, `r4`.
    fn check_message_range(&mut self, at: Reg) {
        let trap = self.trap(Cause::MessageBounds);
        self.asm.mov(R0, at);
        self.asm.alu(op::ADD, R0, R3);
        self.asm.load(Size::W, R4, R9, context::PAYLOAD_LEN);
        self.asm.jump_if(op::JGT, R0, R4, trap);
    }

    /// The first turn of a loop must look like any other.
    fn launder_indices(&mut self) {
        self.asm.load(Size::D, R0, R9, context::ZERO);
        for reg in [R1, R2, R3] {
            self.launder(false, reg, R0);
        }
    }

    /// The head of a loop over chunks; jumps to the second label when fewer
    /// bytes are left.
    fn chunk_loop(&mut self, bytes: u32) -> (Label, Label) {
        let smaller = self.asm.label();
        let head = self.asm.here();
        let trap = self.trap(Cause::Time);
        self.asm.may_goto(trap);
        self.asm.jump32_if_imm(op::JLT, R3, bytes as i32, smaller);
        (head, smaller)
    }

    fn copy_forward(&mut self, to: Side, from: Side, end: Label) {
        for (bytes, size) in CHUNKS {
            let (head, smaller) = self.chunk_loop(bytes);
            // A packet pointer needs a second register, which the memory
            // pointer can then have.
            if to == Side::Message {
                self.side_pointer(to, R4, R1, R5, bytes);
                self.side_pointer(from, R5, R2, R0, bytes);
            } else {
                self.side_pointer(from, R5, R2, R4, bytes);
                self.side_pointer(to, R4, R1, R0, bytes);
            }
            for off in offsets(bytes, size) {
                self.asm.load(size, R0, R5, off);
                self.asm.store(size, R4, off, R0);
            }
            self.asm.alu32_imm(op::ADD, R1, bytes as i32);
            self.asm.alu32_imm(op::ADD, R2, bytes as i32);
            self.asm.alu32_imm(op::SUB, R3, bytes as i32);
            self.asm.jump(head);
            self.asm.bind(smaller);
        }
        self.asm.jump(end);
    }

    /// Between message and memory, which cannot overlap.
    fn copy_message(&mut self, to: Side, from: Side) {
        if self.shape.memory == MemoryKind::Array {
            self.copy_by_helper(to == Side::Message);
            return;
        }
        self.launder_indices();
        let end = self.asm.label();
        self.copy_forward(to, from, end);
        self.asm.bind(end);
    }

    /// In array mode a helper copies, and clobbers all scratch registers, so
    /// that the loop's numbers are in the transfer words.
    fn copy_by_helper(&mut self, to_message: bool) {
        let (message, memory, number) = if to_message {
            (R1, R2, helper::XDP_STORE_BYTES)
        } else {
            (R2, R1, helper::XDP_LOAD_BYTES)
        };
        let [message_at, memory_at, left] = [8, 16, 24].map(|off| TRANSFER + off);
        self.asm.store(Size::W, R9, message_at, message);
        self.asm.store(Size::W, R9, memory_at, memory);
        self.asm.store(Size::W, R9, left, R3);
        let trap = self.trap(Cause::MessageBounds);
        for bytes in HELPER_CHUNKS {
            let smaller = self.asm.label();
            let head = self.asm.here();
            let time = self.trap(Cause::Time);
            self.asm.may_goto(time);
            self.asm.load(Size::W, R0, R9, left);
            self.asm.jump32_if_imm(op::JLT, R0, bytes as i32, smaller);
            self.asm.load(Size::W, R5, R9, memory_at);
            self.chunk_pointer(R3, R2, R5, bytes);
            self.asm.load(Size::W, R2, R9, message_at);
            self.call_helper(number, bytes, trap);
            for (word, operation) in [(message_at, op::ADD), (memory_at, op::ADD), (left, op::SUB)]
            {
                self.asm.load(Size::W, R0, R9, word);
                self.asm.alu32_imm(operation, R0, bytes as i32);
                self.asm.store(Size::W, R9, word, R0);
            }
            self.asm.jump(head);
            self.asm.bind(smaller);
        }
    }

    /// From the end, word by word downwards.
    fn copy_backward(&mut self, end: Label) {
        self.asm.alu32(op::ADD, R1, R3);
        self.asm.alu32(op::ADD, R2, R3);
        for (bytes, size) in CHUNKS {
            let (head, smaller) = self.chunk_loop(bytes);
            self.asm.alu32_imm(op::SUB, R1, bytes as i32);
            self.asm.alu32_imm(op::SUB, R2, bytes as i32);
            self.asm.alu32_imm(op::SUB, R3, bytes as i32);
            self.chunk_pointer(R5, R4, R2, bytes);
            self.chunk_pointer(R4, R0, R1, bytes);
            for off in offsets(bytes, size).rev() {
                self.asm.load(size, R0, R5, off);
                self.asm.store(size, R4, off, R0);
            }
            self.asm.jump(head);
            self.asm.bind(smaller);
        }
        self.asm.jump(end);
    }

    fn side_pointer(&mut self, side: Side, into: Reg, index: Reg, scratch: Reg, bytes: u32) {
        match side {
            Side::Memory => self.chunk_pointer(into, scratch, index, bytes),
            Side::Message => {
                let trap = self.trap(Cause::MessageBounds);
                self.message_chunk(into, scratch, index, bytes, trap);
            }
        }
    }
}

/// The offsets of a chunk's words.
fn offsets(bytes: u32, size: Size) -> impl DoubleEndedIterator<Item = i16> {
    (0..bytes / size.bytes()).map(move |word| (word * size.bytes()) as i16)
}
