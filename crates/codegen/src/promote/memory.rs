//! Loads and stores in the handler's memory, and its size.
//!
//! Every access is checked first, in 64-bit arithmetic on the zero-extended
//! address, so that nothing wraps: an arena page that is not there would give 0
//! and swallow stores instead of trapping (docs/facts.md, "Missing arena pages"). In
//! array mode the same check tells the verifier that the access stays inside the map's value.

use super::emitter::Emitter;
use super::frame::{LEAST, stack_pointer};
use super::stack::{At, Entry, fits};
use crate::bug::{self, Bug};
use ashway_abi::MemoryKind;
use ashway_abi::memory::{STATE_GUEST_PAGES, WASM_PAGE};
use ashway_abi::{Cause, context};
use ashway_check::bpf::{Reg, Size, op};
use wasmparser::Operator;

/// The stack slot that holds the memory's address, in array mode.
pub(super) const ARRAY_BASE: i16 = -32;

impl Emitter<'_> {
    /// Translates the operator if it is one of memory; says whether it was.
    pub(super) fn memory(&mut self, operator: &Operator<'_>) -> bool {
        use Operator as O;
        match operator {
            O::I32Load { memarg } => self.load(memarg.offset, Size::W, false),
            O::I32Load8U { memarg } => self.load(memarg.offset, Size::B, false),
            O::I32Load16U { memarg } => self.load(memarg.offset, Size::H, false),
            O::I32Load8S { memarg } => self.load_signed(memarg.offset, Size::B, false),
            O::I32Load16S { memarg } => self.load_signed(memarg.offset, Size::H, false),
            O::I64Load { memarg } => self.load(memarg.offset, Size::D, true),
            O::I64Load8U { memarg } => self.load(memarg.offset, Size::B, true),
            O::I64Load16U { memarg } => self.load(memarg.offset, Size::H, true),
            O::I64Load32U { memarg } => self.load(memarg.offset, Size::W, true),
            O::I64Load8S { memarg } => self.load_signed(memarg.offset, Size::B, true),
            O::I64Load16S { memarg } => self.load_signed(memarg.offset, Size::H, true),
            O::I64Load32S { memarg } => self.load_signed(memarg.offset, Size::W, true),
            O::I32Store { memarg } | O::I64Store32 { memarg } => self.store(memarg.offset, Size::W),
            O::I32Store8 { memarg } | O::I64Store8 { memarg } => self.store(memarg.offset, Size::B),
            O::I32Store16 { memarg } | O::I64Store16 { memarg } => {
                self.store(memarg.offset, Size::H);
            }
            O::I64Store { memarg } => self.store(memarg.offset, Size::D),
            O::MemorySize { mem: 0 } => self.memory_size(),
            O::MemoryGrow { mem: 0 } => self.memory_grow(),
            O::MemoryCopy {
                dst_mem: 0,
                src_mem: 0,
            } => self.park(Self::memory_copy),
            O::MemoryFill { mem: 0 } => self.park(Self::memory_fill),
            _ => return false,
        }
        true
    }

    fn load(&mut self, offset: u64, size: Size, wide: bool) {
        let (pointer, off) = self.checked_address(offset, size);
        let into = self.result_from(pointer);
        self.asm.load(size, into, pointer, off);
        self.push_reg(into, wide);
    }

    /// Arena loads do not sign-extend (docs/facts.md, "Arena instructions").
    fn load_signed(&mut self, offset: u64, size: Size, wide: bool) {
        let (pointer, off) = self.checked_address(offset, size);
        let into = self.result_from(pointer);
        self.asm.load(size, into, pointer, off);
        if !bug::is(Bug::LoadUnsigned) {
            self.asm.movsx(size, wide, into, into);
        }
        self.push_reg(into, wide);
    }

    fn store(&mut self, offset: u64, size: Size) {
        let value = self.pop();
        let held = match value.at {
            At::Const(bits) if size != Size::D || fits(bits, true) => None,
            _ => Some(self.reg_of(value)),
        };
        let (pointer, off) = self.checked_address(offset, size);
        match (held, value.at) {
            (Some(reg), _) => {
                self.asm.store(size, pointer, off, reg);
                self.release(reg);
            }
            (None, At::Const(bits)) => self.asm.store_imm(size, pointer, off, bits as i32),
            (None, _) => unreachable!("only a constant is not held in a register"),
        }
        self.release(pointer);
    }

    /// Pops an address, checks that `size` bytes at `address + offset` are in
    /// memory, and returns a pointer with an instruction offset to them.
    fn checked_address(&mut self, offset: u64, size: Size) -> (Reg, i16) {
        let entry = self.pop();
        let end = offset + u64::from(size.bytes());
        if let At::Const(address) = entry.at {
            self.check_fixed(address + end);
            return self.pointer_to(address + offset);
        }
        let mut address = self.reg_of(entry);
        if self.shape.memory == MemoryKind::Array {
            let forgotten = self.alloc();
            self.forget(forgotten, address);
            self.release(address);
            address = forgotten;
        }
        self.check(address, end);
        let off = if offset < 0x7fff { offset } else { 0 };
        let pointer = self.pointer(address, offset - off);
        if address != pointer {
            self.release(address);
        }
        (pointer, off as i16)
    }

    /// Traps unless the memory has `end` bytes.
    fn check_fixed(&mut self, end: u64) {
        if end <= self.shape.initial_bytes() || !self.shape.checks.bounds {
            return;
        }
        let trap = self.trap(Cause::MemoryBounds);
        if end > self.shape.maximum_bytes() {
            self.asm.jump(trap);
            return;
        }
        let bytes = self.current_bytes();
        let needed = self.alloc();
        self.asm.load_imm(needed, end);
        self.asm.jump_if(op::JGT, needed, bytes, trap);
        self.release(needed);
        self.release(bytes);
    }

    /// Traps unless the memory has `address + end` bytes.
    fn check(&mut self, address: Reg, end: u64) {
        let end = if bug::is(Bug::BoundsWrap) {
            u64::from(end as u32)
        } else {
            end
        };
        if !self.shape.checks.bounds {
            return;
        }
        let trap = self.trap(Cause::MemoryBounds);
        let Some(most) = self.shape.maximum_bytes().checked_sub(end) else {
            self.asm.jump(trap);
            return;
        };
        // A 32-bit number is compared as one, so that the limit may be any.
        self.asm.jump32_if_imm(
            op::JGT,
            address,
            most as u32 as i32 + i32::from(bug::is(Bug::BoundsOffByOne)),
            trap,
        );
        if self.shape.growable() && !bug::is(Bug::BoundsOfMaximum) {
            let bytes = self.current_bytes();
            let needed = self.alloc();
            self.asm.load_imm(needed, end);
            self.asm.alu(op::ADD, needed, address);
            self.asm.jump_if(op::JGT, needed, bytes, trap);
            self.release(needed);
            self.release(bytes);
        }
    }

    /// The memory's present size in bytes. The application may have written
    /// the word: what it can reach by that is in its own memory anyway.
    pub(super) fn current_bytes(&mut self) -> Reg {
        let bytes = self.current_pages();
        let shift = WASM_PAGE.trailing_zeros() as i32;
        self.asm.alu_imm(op::LSH, bytes, shift);
        bytes
    }

    fn current_pages(&mut self) -> Reg {
        let (pointer, off) = self.pointer_to_state(STATE_GUEST_PAGES as u32);
        self.asm.load(Size::W, pointer, pointer, off);
        pointer
    }

    /// A pointer to a checked address plus a distance. May take over the
    /// address's register.
    pub(super) fn pointer(&mut self, address: Reg, distance: u64) -> Reg {
        match self.shape.memory {
            MemoryKind::Arena => {
                let pointer = if self.is_scratch(address) {
                    address
                } else {
                    self.alloc()
                };
                if distance == 0 {
                    self.asm.arena_cast(pointer, address);
                } else {
                    self.asm.mov(pointer, address);
                    self.add(pointer, distance);
                    self.asm.arena_cast(pointer, pointer);
                }
                pointer
            }
            MemoryKind::Array => {
                let pointer = self.alloc();
                self.asm.load(Size::D, pointer, Reg::R10, ARRAY_BASE);
                self.asm.alu(op::ADD, pointer, address);
                self.add(pointer, distance);
                pointer
            }
        }
    }

    /// A pointer with an instruction offset to a fixed place of the memory.
    fn pointer_to(&mut self, place: u64) -> (Reg, i16) {
        let pointer = self.alloc();
        let off = self.point_to(pointer, place);
        (pointer, off)
    }

    /// The same in this register; the instruction's offset.
    fn point_to(&mut self, pointer: Reg, place: u64) -> i16 {
        match self.shape.memory {
            MemoryKind::Arena => {
                self.asm.load_imm(pointer, u64::from(place as u32));
                self.asm.arena_cast(pointer, pointer);
                0
            }
            MemoryKind::Array => {
                self.asm.load(Size::D, pointer, Reg::R10, ARRAY_BASE);
                let off = if place < 0x7fff { place } else { 0 };
                self.add(pointer, place - off);
                off as i16
            }
        }
    }

    /// A place of the state region.
    fn state_place(&self, offset: u32) -> u64 {
        self.shape.layout.state_offset() as u64 + u64::from(offset)
    }

    /// A pointer to a word of the state region.
    pub(super) fn pointer_to_state(&mut self, offset: u32) -> (Reg, i16) {
        self.pointer_to(self.state_place(offset))
    }

    /// Gives a word of the state region a value where no function runs any more: clobbers `r1` and
    /// `r2`.
    pub(super) fn end_with_state(&mut self, offset: u32, value: u32) {
        let off = self.point_to(Reg::R1, self.state_place(offset));
        self.asm.load_imm(Reg::R2, value.into());
        self.asm.store(Size::W, Reg::R1, off, Reg::R2);
    }

    /// Memories are smaller than 2 GiB, so the distance is an immediate.
    fn add(&mut self, reg: Reg, distance: u64) {
        if distance != 0 {
            self.asm.alu_imm(op::ADD, reg, distance as i32);
        }
    }

    /// Copies an address so that the verifier knows nothing of it. Without
    /// `CAP_PERFMON` it wants every way to a pointer's addition to be alike, and
    /// a number that it knows on one way and not on the other is refused ("tried
    /// to add from different maps, paths or scalars").
    pub(super) fn forget(&mut self, into: Reg, address: Reg) {
        self.asm.load(Size::W, into, Reg::R9, context::ZERO);
        self.launder(false, into, address);
    }

    fn memory_size(&mut self) {
        if self.shape.growable() {
            let pages = self.current_pages();
            self.push_reg(pages, false);
        } else {
            let pages = self.shape.module.initial_pages;
            self.push(At::Const(u64::from(pages)), false);
        }
    }

    /// Every page up to the maximum is there already, and zero.
    fn memory_grow(&mut self) {
        let entry = self.pop();
        let more = self.reg_of(entry);
        let (pointer, off) = self.pointer_to_state(STATE_GUEST_PAGES as u32);
        let pages = self.alloc();
        let wanted = self.alloc();
        let end = self.asm.label();
        let refused = self.asm.label();
        self.asm.load(Size::W, pages, pointer, off);
        self.asm.mov(wanted, more);
        self.asm.alu(op::ADD, wanted, pages);
        let maximum = self.shape.module.maximum_pages as i32 + i32::from(bug::is(Bug::GrowFurther));
        self.asm.jump_if_imm(op::JGT, wanted, maximum, refused);
        self.asm.store(Size::W, pointer, off, wanted);
        self.asm.jump(end);
        self.asm.bind(refused);
        self.asm.alu32_imm(op::MOV, pages, -1);
        self.asm.bind(end);
        for reg in [wanted, pointer, more] {
            self.release(reg);
        }
        self.push_reg(pages, false);
    }

    /// Where a mutable global is in the context: the stack pointer, if each CPU has a stack.
    fn of_cpu(&self, offset: u32) -> Option<i16> {
        let module = self.shape.module;
        let stacks = module.stacks().filter(|stacks| stacks.pointer == offset);
        stacks.map(|_| stack_pointer(module))
    }

    /// A mutable global.
    pub(super) fn state_get(&mut self, offset: u32, wide: bool) {
        if let Some(at) = self.of_cpu(offset) {
            let target = self.target();
            let into = target.unwrap_or_else(|| self.alloc());
            self.asm.load(Size::W, into, Reg::R9, at);
            self.push_reg(into, false);
            return;
        }
        let (pointer, off) = self.pointer_to_state(offset);
        let into = self.result_from(pointer);
        self.asm
            .load(super::emitter::width(wide), into, pointer, off);
        self.push_reg(into, wide);
    }

    /// A mutable global.
    pub(super) fn state_set(&mut self, offset: u32, wide: bool) {
        let value: Entry = self.pop();
        let reg = self.reg_of(value);
        if let Some(at) = self.of_cpu(offset) {
            let least = self.alloc();
            self.asm.load(Size::W, least, Reg::R9, at + LEAST);
            let trap = self.trap(Cause::Stack);
            self.asm.jump32_if(op::JLT, reg, least, trap);
            self.release(least);
            self.asm.store(Size::W, Reg::R9, at, reg);
            self.release(reg);
            return;
        }
        let (pointer, off) = self.pointer_to_state(offset);
        self.asm
            .store(super::emitter::width(wide), pointer, off, reg);
        self.release(pointer);
        self.release(reg);
    }
}
