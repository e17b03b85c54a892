//! Words of the state region: stored tables.

use super::MemoryKind;
use super::emitter::Emitter;
use super::stack::At;
use crate::bpf::{Reg, Size, op};
use crate::bug::{self, Bug};
use ashway_abi::Cause;

/// Bytes of a word.
const WORD: u32 = 4;

impl Emitter<'_> {
    /// `WordGet`.
    pub(super) fn word_get(&mut self, at: u32, len: u32, cause: Cause) {
        let (pointer, off) = self.word_pointer(at, len, cause);
        let into = self.result_from(pointer);
        self.asm.load(Size::W, into, pointer, off);
        self.push_reg(into, false);
    }

    /// `WordSet`.
    pub(super) fn word_set(&mut self, at: u32, len: u32, cause: Cause) {
        let value = self.pop();
        if let At::Const(bits) = value.at {
            let (pointer, off) = self.word_pointer(at, len, cause);
            self.asm.store_imm(Size::W, pointer, off, bits as i32);
            self.release(pointer);
            return;
        }
        let value = self.reg_of(value);
        let (pointer, off) = self.word_pointer(at, len, cause);
        self.asm.store(Size::W, pointer, off, value);
        self.release(pointer);
        self.release(value);
    }

    /// Pops an index, traps unless there is such a word, and returns a pointer
    /// with an instruction offset to it.
    fn word_pointer(&mut self, at: u32, len: u32, cause: Cause) -> (Reg, i16) {
        let trap = self.trap(cause);
        let len = len + u32::from(bug::is(Bug::WordOffByOne));
        let entry = self.pop();
        if let At::Const(index) = entry.at {
            if index >= u64::from(len) {
                self.asm.jump(trap);
                return self.pointer_to_state(at);
            }
            return self.pointer_to_state(at + WORD * index as u32);
        }
        let index = if self.shape.memory == MemoryKind::Array {
            let index = self.reg_of(entry);
            let forgotten = self.alloc();
            self.forget(forgotten, index);
            self.release(index);
            forgotten
        } else {
            self.own(entry)
        };
        self.asm.jump32_if_imm(op::JGE, index, len as i32, trap);
        let shift = WORD.trailing_zeros() as i32;
        self.asm.alu_imm(op::LSH, index, shift);
        let place = self.shape.layout.state_offset() as u64 + u64::from(at);
        let pointer = self.pointer(index, place);
        if pointer != index {
            self.release(index);
        }
        (pointer, 0)
    }
}
