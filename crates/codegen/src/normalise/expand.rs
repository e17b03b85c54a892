//! What each operation of the normal form is in Wasm.
//!
//! This is the definition of the pseudo operations; the promoted form must do
//! the same, in the same order, with the same traps.

use super::cost::BULK_SHIFT;
use super::encode::{Shift, constant_of};
use super::ir::{FileOffset, Global, OpKind};
use ashway_abi::memory::STATE_GUEST_PAGES;
use ashway_abi::{Cause, HostCall};
use wasm_encoder::reencode::Reencode;
use wasm_encoder::{
    BlockType, Function, Ieee32, Ieee64, InstructionSink, MemArg, MemArgTarget, ValType,
};
use wasmparser::Operator;

const TRAP_FUNCTION: u32 = 0;
const MEMORY: u32 = 0;
const MESSAGE: u32 = 1;
const STATE: u32 = 2;
pub(super) const FUEL: u32 = 0;
pub(super) const MESSAGE_LEN: u32 = 1;
pub(super) const DIRTY: u32 = 2;

/// Writes operations into one function.
pub(super) struct Expander<'f> {
    function: &'f mut Function,
    /// Temporaries: message offset, 32-bit value, memory address, 64-bit value.
    at: u32,
    value: u32,
    pointer: u32,
    wide: u32,
}

impl<'f> Expander<'f> {
    /// Types of the temporaries, which follow the author's locals.
    pub(super) const TEMPORARIES: [ValType; 4] =
        [ValType::I32, ValType::I32, ValType::I32, ValType::I64];

    pub(super) fn new(function: &'f mut Function, first: u32) -> Self {
        Self {
            function,
            at: first,
            value: first + 1,
            pointer: first + 2,
            wide: first + 3,
        }
    }

    /// Bytes of the body so far.
    pub(super) fn byte_len(&self) -> usize {
        self.function.byte_len()
    }

    fn ins(&mut self) -> InstructionSink<'_> {
        self.function.instructions()
    }

    /// One operation; `global.get` goes to [`Self::constant`] instead.
    pub(super) fn op(&mut self, kind: &OpKind<'_>, place: FileOffset) {
        match kind {
            // As a plain `unreachable`, the optimiser would merge it into the
            // branch that leads to it, and blame that.
            OpKind::Wasm(Operator::Unreachable) => self.trap(Cause::Unreachable, place),
            OpKind::Wasm(operator) => self.wasm(operator),
            OpKind::Charge { cost } => self.charge(*cost, place),
            OpKind::ChargeBulk => self.charge_bulk(place),
            OpKind::Message(HostCall::Read) => self.read(place),
            OpKind::Message(HostCall::Write) => self.write(place),
            OpKind::Message(call) => match Access::of(*call) {
                Access {
                    load: true,
                    bytes,
                    swap,
                } => self.load(bytes, swap, place),
                Access {
                    load: false,
                    bytes,
                    swap,
                } => self.store(bytes, swap, place),
            },
            OpKind::StateGet { offset, ty } => {
                let memarg = state(*offset, *ty);
                self.ins().i32_const(0);
                match ty {
                    wasmparser::ValType::I64 => self.ins().i64_load(memarg),
                    _ => self.ins().i32_load(memarg),
                };
            }
            OpKind::StateSet { offset, ty } => self.state_set(*offset, *ty),
        }
    }

    fn wasm(&mut self, operator: &Operator<'_>) {
        let instruction = Shift
            .instruction(operator.clone())
            .expect("an operator of WebAssembly 2.0 has its counterpart");
        self.function.instruction(&instruction);
        if let Operator::MemoryGrow { .. } = operator {
            // The other tier reads the size there.
            let memarg = state(STATE_GUEST_PAGES as u32, wasmparser::ValType::I32);
            self.ins()
                .i32_const(0)
                .memory_size(MEMORY)
                .i32_store(memarg);
        }
    }

    /// The value of an immutable global, in the place of reading it.
    pub(super) fn constant(&mut self, global: &Global) {
        let constant = constant_of(global);
        let bits = constant.bits;
        match constant.ty {
            wasmparser::ValType::I64 => self.ins().i64_const(bits as i64),
            wasmparser::ValType::F32 => self.ins().f32_const(Ieee32::new(bits as u32)),
            wasmparser::ValType::F64 => self.ins().f64_const(Ieee64::new(bits)),
            _ => self.ins().i32_const(bits as i32),
        };
    }

    /// Traps if the i32 on the stack is not 0.
    fn trap_if(&mut self, cause: Cause, place: FileOffset) {
        self.ins().if_(BlockType::Empty);
        self.trap(cause, place);
        self.ins().end();
    }

    fn trap(&mut self, cause: Cause, place: FileOffset) {
        self.ins()
            .i32_const(cause as i32)
            .i32_const(place as i32)
            .call(TRAP_FUNCTION)
            .unreachable();
    }

    fn charge(&mut self, cost: u32, place: FileOffset) {
        self.ins().i64_const(i64::from(cost));
        self.spend(place);
    }

    fn charge_bulk(&mut self, place: FileOffset) {
        let value = self.value;
        self.ins()
            .local_tee(value)
            .local_get(value)
            .i32_const(BULK_SHIFT as i32)
            .i32_shr_u()
            .i64_extend_i32_u();
        self.spend(place);
    }

    /// Takes the i64 on the stack from the fuel.
    fn spend(&mut self, place: FileOffset) {
        let wide = self.wide;
        self.ins()
            .local_set(wide)
            .global_get(FUEL)
            .local_get(wide)
            .i64_sub()
            .local_tee(wide)
            .global_set(FUEL)
            .local_get(wide)
            .i64_const(0)
            .i64_lt_s();
        self.trap_if(Cause::Fuel, place);
    }

    /// Traps unless `at + len <= message_len`, in 64 bits so that nothing
    /// wraps; the i64 `len` is on the stack, `at` in its temporary.
    fn check_message(&mut self, place: FileOffset) {
        let at = self.at;
        self.ins()
            .local_get(at)
            .i64_extend_i32_u()
            .i64_add()
            .global_get(MESSAGE_LEN)
            .i64_extend_i32_u()
            .i64_gt_u();
        self.trap_if(Cause::MessageBounds, place);
    }

    fn dirty(&mut self) {
        self.ins().i32_const(1).global_set(DIRTY);
    }

    fn load(&mut self, bytes: u32, swap: bool, place: FileOffset) {
        let at = self.at;
        self.ins().local_set(at).i64_const(i64::from(bytes));
        self.check_message(place);
        self.ins().local_get(at);
        let memarg = message();
        match bytes {
            1 => self.ins().i32_load8_u(memarg),
            2 => self.ins().i32_load16_u(memarg),
            4 => self.ins().i32_load(memarg),
            _ => self.ins().i64_load(memarg),
        };
        if swap {
            self.swap(bytes);
        }
    }

    fn store(&mut self, bytes: u32, swap: bool, place: FileOffset) {
        let (at, value, wide) = (self.at, self.value, self.wide);
        let operand = if bytes == 8 { wide } else { value };
        self.ins()
            .local_set(operand)
            .local_set(at)
            .i64_const(i64::from(bytes));
        self.check_message(place);
        self.ins().local_get(at).local_get(operand);
        if swap {
            self.swap(bytes);
        }
        let memarg = message();
        match bytes {
            1 => self.ins().i32_store8(memarg),
            2 => self.ins().i32_store16(memarg),
            4 => self.ins().i32_store(memarg),
            _ => self.ins().i64_store(memarg),
        };
        self.dirty();
    }

    /// Reverses the bytes of the value on the stack. Of a 16-bit value, what
    /// is above its 16 bits is lost.
    fn swap(&mut self, bytes: u32) {
        let value = self.value;
        if bytes == 8 {
            self.swap_groups(0x00ff_00ff_00ff_00ff, 8);
            self.swap_groups(0x0000_ffff_0000_ffff, 16);
            self.ins().i64_const(32).i64_rotl();
            return;
        }
        match bytes {
            2 => self
                .ins()
                .local_tee(value)
                .i32_const(0xff)
                .i32_and()
                .i32_const(8)
                .i32_shl()
                .local_get(value)
                .i32_const(8)
                .i32_shr_u()
                .i32_const(0xff)
                .i32_and()
                .i32_or(),
            _ => self
                .ins()
                .local_tee(value)
                .i32_const(8)
                .i32_rotl()
                .i32_const(0x00ff_00ff)
                .i32_and()
                .local_get(value)
                .i32_const(8)
                .i32_rotr()
                .i32_const(0xff00_ff00_u32 as i32)
                .i32_and()
                .i32_or(),
        };
    }

    /// Exchanges neighbouring groups of `bits` bits; `mask` picks the low one
    /// of each pair.
    fn swap_groups(&mut self, mask: i64, bits: i64) {
        let wide = self.wide;
        self.ins()
            .local_tee(wide)
            .i64_const(mask)
            .i64_and()
            .i64_const(bits)
            .i64_shl()
            .local_get(wide)
            .i64_const(bits)
            .i64_shr_u()
            .i64_const(mask)
            .i64_and()
            .i64_or();
    }

    /// Takes offset, address and length into their temporaries and checks the
    /// message's side; the copy itself checks the memory's.
    fn bulk_operands(&mut self, place: FileOffset) {
        let (at, pointer, value) = (self.at, self.pointer, self.value);
        self.ins()
            .local_set(value)
            .local_set(pointer)
            .local_set(at)
            .local_get(value)
            .i64_extend_i32_u();
        self.check_message(place);
    }

    fn read(&mut self, place: FileOffset) {
        self.bulk_operands(place);
        let (at, pointer, value) = (self.at, self.pointer, self.value);
        self.ins()
            .local_get(pointer)
            .local_get(at)
            .local_get(value)
            .memory_copy(MEMORY, MESSAGE);
    }

    fn write(&mut self, place: FileOffset) {
        self.bulk_operands(place);
        let (at, pointer, value) = (self.at, self.pointer, self.value);
        self.ins()
            .local_get(at)
            .local_get(pointer)
            .local_get(value)
            .memory_copy(MESSAGE, MEMORY);
        self.dirty();
    }

    fn state_set(&mut self, offset: u32, ty: wasmparser::ValType) {
        let (value, wide) = (self.value, self.wide);
        let memarg = state(offset, ty);
        match ty {
            wasmparser::ValType::I64 => self
                .ins()
                .local_set(wide)
                .i32_const(0)
                .local_get(wide)
                .i64_store(memarg),
            _ => self
                .ins()
                .local_set(value)
                .i32_const(0)
                .local_get(value)
                .i32_store(memarg),
        };
    }
}

/// Sets the globals, calls a handler, and returns its result with the globals.
pub(super) fn enter(handler: u32) -> Function {
    let mut function = Function::new([]);
    let (len, channel, fuel) = (0, 1, 2);
    function
        .instructions()
        .local_get(len)
        .global_set(MESSAGE_LEN)
        .i32_const(0)
        .global_set(DIRTY)
        .local_get(fuel)
        .global_set(FUEL)
        .local_get(len)
        .local_get(channel)
        .call(handler)
        .global_get(DIRTY)
        .global_get(FUEL)
        .end();
    function
}

/// A message access of fixed width.
struct Access {
    load: bool,
    bytes: u32,
    /// Whether it is big-endian; Wasm is little-endian.
    swap: bool,
}

impl Access {
    fn of(call: HostCall) -> Self {
        use HostCall as H;
        let (load, bytes, swap) = match call {
            H::Load8 => (true, 1, false),
            H::Load16Le => (true, 2, false),
            H::Load16Be => (true, 2, true),
            H::Load32Le => (true, 4, false),
            H::Load32Be => (true, 4, true),
            H::Load64Le => (true, 8, false),
            H::Load64Be => (true, 8, true),
            H::Store8 => (false, 1, false),
            H::Store16Le => (false, 2, false),
            H::Store16Be => (false, 2, true),
            H::Store32Le => (false, 4, false),
            H::Store32Be => (false, 4, true),
            H::Store64Le => (false, 8, false),
            H::Store64Be => (false, 8, true),
            H::Read | H::Write => unreachable!("bulk accesses are expanded elsewhere"),
        };
        Self { load, bytes, swap }
    }
}

/// Anywhere in the message; no alignment is promised.
const fn message() -> MemArg {
    MemArg {
        offset: 0,
        align: 0,
        target: MemArgTarget::Memory(MESSAGE),
        ordering: None,
    }
}

fn state(offset: u32, ty: wasmparser::ValType) -> MemArg {
    MemArg {
        offset: u64::from(offset),
        align: if ty == wasmparser::ValType::I64 { 3 } else { 2 },
        target: MemArgTarget::Memory(STATE),
        ordering: None,
    }
}
