//! Words of the state region: stored tables, registers of pipes.

use super::emitter::{Emitter, width};
use super::frame::is_wide;
use super::stack::{At, fits};
use crate::bug::{self, Bug};
use crate::normalise::ir::Words;
use ashway_abi::MemoryKind;
use ashway_check::bpf::{Reg, op};

impl Emitter<'_> {
    /// `WordGet`.
    pub(super) fn word_get(&mut self, words: &Words) {
        let wide = is_wide(words.ty);
        let (pointer, off) = self.word_pointer(words);
        let into = self.result_from(pointer);
        self.asm.load(width(wide), into, pointer, off);
        self.push_reg(into, wide);
    }

    /// `WordSet`.
    pub(super) fn word_set(&mut self, words: &Words) {
        let wide = is_wide(words.ty);
        let value = self.pop();
        if let At::Const(bits) = value.at
            && fits(bits, wide)
        {
            let (pointer, off) = self.word_pointer(words);
            self.asm.store_imm(width(wide), pointer, off, bits as i32);
            self.release(pointer);
            return;
        }
        let value = self.reg_of(value);
        let (pointer, off) = self.word_pointer(words);
        self.asm.store(width(wide), pointer, off, value);
        self.release(pointer);
        self.release(value);
    }

    /// Pops an index, traps unless there is such a word, and returns a pointer
    /// with an instruction offset to it.
    fn word_pointer(&mut self, words: &Words) -> (Reg, i16) {
        let bytes = width(is_wide(words.ty)).bytes();
        let trap = self.trap(words.cause);
        let len = words.len + u32::from(bug::is(Bug::WordOffByOne));
        let entry = self.pop();
        if let At::Const(index) = entry.at {
            if index >= u64::from(len) {
                self.asm.jump(trap);
                return self.pointer_to_state(words.at);
            }
            return self.pointer_to_state(words.at + bytes * index as u32);
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
        let shift = bytes.trailing_zeros() as i32;
        self.asm.alu_imm(op::LSH, index, shift);
        let place = self.shape.layout.state_offset() as u64 + u64::from(words.at);
        let pointer = self.pointer(index, place);
        if pointer != index {
            self.release(index);
        }
        (pointer, 0)
    }
}
