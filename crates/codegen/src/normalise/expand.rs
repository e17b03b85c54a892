//! What each operation of the normal form is in Wasm.
//!
//! This is the definition of the pseudo operations; the promoted form must do
//! the same, in the same order, with the same traps.

use super::cost::BULK_SHIFT;
use super::encode::{Shift, constant_of};
use super::host;
use super::ir::{FileOffset, Global, OpKind, Words};
use super::parallel::Stacks;
use ashway_abi::Cause;
use ashway_abi::context::CALL_SLOTS;
use ashway_abi::memory::STATE_GUEST_PAGES;
use wasm_encoder::reencode::Reencode;
use wasm_encoder::{
    BlockType, Function, Ieee32, Ieee64, InstructionSink, MemArg, MemArgTarget, ValType,
};
use wasmparser::Operator;

pub(super) const MEMORY: u32 = 0;
pub(super) const MESSAGE: u32 = 1;
const STATE: u32 = 2;
pub(super) const OUTBOX: u32 = 3;
pub(super) const FUEL: u32 = 0;
pub(super) const MESSAGE_LEN: u32 = 1;
pub(super) const DIRTY: u32 = 2;
pub(super) const STACK: u32 = 3;
pub(super) const MESSAGE_FRONT: u32 = 4;
/// Where the message is in its memory.
pub(super) const MESSAGE_AT: u32 = 5;
/// Only where the handler may change the message's length.
pub(super) const MESSAGE_MOST: u32 = 6;

/// Bytes that, from where a message begins on, no other message lies in: each has a block, of
/// at least 2,048 bytes, and some 200 of headers before it.
const SHORT: i32 = 512;

/// Writes operations into one function.
pub(super) struct Expander<'f> {
    function: &'f mut Function,
    /// Temporaries: message offset, 32-bit value, memory address, 64-bit value, and
    /// whether an access goes beyond the message.
    pub(super) at: u32,
    pub(super) value: u32,
    pub(super) pointer: u32,
    pub(super) wide: u32,
    pub(super) beyond: u32,
    /// Whether a constant of at most [`SHORT`] is on top of the stack.
    pub(super) short: bool,
    /// Where in the body each `if` is whose way is hardly ever taken.
    pub(super) unlikely: Vec<u32>,
    /// Where the module's stacks lie, if each CPU has one.
    pub(super) stacks: Option<Stacks>,
}

impl<'f> Expander<'f> {
    /// Types of the temporaries, which follow the author's locals.
    pub(super) const TEMPORARIES: [ValType; 5] = [
        ValType::I32,
        ValType::I32,
        ValType::I32,
        ValType::I64,
        ValType::I32,
    ];

    pub(super) fn new(function: &'f mut Function, first: u32) -> Self {
        Self {
            function,
            at: first,
            value: first + 1,
            pointer: first + 2,
            wide: first + 3,
            beyond: first + 4,
            short: false,
            unlikely: Vec::new(),
            stacks: None,
        }
    }

    /// Bytes of the body so far.
    pub(super) fn byte_len(&self) -> usize {
        self.function.byte_len()
    }

    pub(super) fn ins(&mut self) -> InstructionSink<'_> {
        self.function.instructions()
    }

    /// One operation; `global.get` goes to [`Self::constant`] instead, and
    /// calls through tables are `encode`'s own.
    pub(super) fn op(&mut self, kind: &OpKind<'_>, place: FileOffset) {
        match kind {
            // As a plain `unreachable`, the optimiser would merge it into the
            // branch that leads to it, and blame that.
            OpKind::Wasm(Operator::Unreachable) => self.trap(Cause::Unreachable, place),
            OpKind::Wasm(operator) => self.wasm(operator),
            OpKind::Charge { cost } => self.charge(*cost, place),
            OpKind::ChargeBulk => self.charge_bulk(place),
            OpKind::Host(call) => self.host(*call, place),
            OpKind::StateGet { offset, ty } => {
                let memarg = state(*offset, *ty);
                self.ins().i32_const(0);
                match ty {
                    wasmparser::ValType::I64 => self.ins().i64_load(memarg),
                    _ => self.ins().i32_load(memarg),
                };
            }
            OpKind::StateSet { offset, ty } => self.state_set(*offset, *ty, place),
            OpKind::Trap(cause) => self.trap(*cause, place),
            OpKind::WordGet(words) => self.word_get(words, place),
            OpKind::WordSet(words) => self.word_set(words, place),
            OpKind::Pipe { call, list } => self.pipe(*call, *list, place),
            OpKind::CallNumber { .. } => unreachable!("`encode` knows the tables"),
            OpKind::StateCopy => {
                self.ins().memory_copy(MEMORY, STATE);
            }
            OpKind::Push { slots } => self.push_slots(*slots, place),
            OpKind::Pop { slots } => {
                self.ins()
                    .global_get(STACK)
                    .i32_const(*slots as i32)
                    .i32_sub()
                    .global_set(STACK);
            }
        }
    }

    /// Behind each operation: what it has left on top of the stack.
    pub(super) fn done(&mut self, kind: &OpKind<'_>) {
        self.short = match kind {
            OpKind::Wasm(Operator::I32Const { value }) => (0..=SHORT).contains(value),
            OpKind::ChargeBulk => self.short,
            _ => false,
        };
    }

    fn word_get(&mut self, words: &Words, place: FileOffset) {
        let index = self.value;
        let memarg = state(words.at, words.ty);
        self.ins().local_set(index);
        self.word(index, words, place);
        match words.ty {
            wasmparser::ValType::I64 => self.ins().i64_load(memarg),
            _ => self.ins().i32_load(memarg),
        };
    }

    fn word_set(&mut self, words: &Words, place: FileOffset) {
        let (value, index, wide) = (self.value, self.pointer, self.wide);
        let memarg = state(words.at, words.ty);
        let is_wide = words.ty == wasmparser::ValType::I64;
        let value = if is_wide { wide } else { value };
        self.ins().local_set(value).local_set(index);
        self.word(index, words, place);
        self.ins().local_get(value);
        if is_wide {
            self.ins().i64_store(memarg);
        } else {
            self.ins().i32_store(memarg);
        }
    }

    /// The offset of the word whose number is in the local `index`; traps unless there
    /// is one. It fits: the number is below the length of an array in the state region.
    fn word(&mut self, index: u32, words: &Words, place: FileOffset) {
        let len = words.len as i32;
        self.ins().local_get(index).i32_const(len).i32_ge_u();
        self.trap_if(words.cause, place);
        let shift = if words.ty == wasmparser::ValType::I64 {
            3
        } else {
            2
        };
        self.ins().local_get(index).i32_const(shift).i32_shl();
    }

    fn push_slots(&mut self, slots: u32, place: FileOffset) {
        let value = self.value;
        self.ins()
            .global_get(STACK)
            .i32_const(slots as i32)
            .i32_add()
            .local_tee(value)
            .i32_const(CALL_SLOTS as i32)
            .i32_gt_u();
        self.trap_if(Cause::Stack, place);
        self.ins().local_get(value).global_set(STACK);
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
    pub(super) fn trap_if(&mut self, cause: Cause, place: FileOffset) {
        self.unlikely_if();
        self.trap(cause, place);
        self.ins().end();
    }

    /// An `if` whose way is hardly ever taken.
    fn unlikely_if(&mut self) {
        self.unlikely.push(self.function.byte_len() as u32);
        self.ins().if_(BlockType::Empty);
    }

    fn trap(&mut self, cause: Cause, place: FileOffset) {
        self.blame(cause, place);
        self.ins().unreachable();
    }

    /// Tells the host, which comes back only if it has fuel.
    fn blame(&mut self, cause: Cause, place: FileOffset) {
        self.ins()
            .i32_const(cause as i32)
            .i32_const(place as i32)
            .call(host::TRAP);
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

    /// Takes the i64 on the stack from the slice. When that is spent, the host
    /// looks at the clock and gives the next one, or stops the handler.
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
        self.unlikely_if();
        self.blame(Cause::Fuel, place);
        self.ins().end();
    }

    fn state_set(&mut self, offset: u32, ty: wasmparser::ValType, place: FileOffset) {
        let (value, wide) = (self.value, self.wide);
        if let Some(stacks) = self.stacks.filter(|stacks| stacks.pointer == offset) {
            let least = stacks.least_of_worker() as i32;
            self.ins().local_tee(value).i32_const(least).i32_lt_u();
            self.trap_if(Cause::Stack, place);
            self.ins().local_get(value);
        }
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

/// Sets the globals, calls a handler, and returns its result with the globals. The
/// handler may make a message longer by `grows` bytes, if it may change its length. Where each CPU
/// has a stack, it begins at the top of the worker's.
pub(super) fn enter(handler: u32, grows: Option<u32>, stacks: Option<Stacks>) -> Function {
    let mut function = Function::new([]);
    let (len, channel, fuel, front, at) = (0, 1, 2, 3, 4);
    if let Some(stacks) = stacks {
        function
            .instructions()
            .i32_const(0)
            .i32_const(stacks.top_of_worker() as i32)
            .i32_store(state(stacks.pointer, wasmparser::ValType::I32));
    }
    if let Some(grows) = grows {
        function
            .instructions()
            .local_get(len)
            .i32_const(grows as i32)
            .i32_add()
            .global_set(MESSAGE_MOST);
    }
    function
        .instructions()
        .local_get(len)
        .global_set(MESSAGE_LEN)
        .local_get(front)
        .global_set(MESSAGE_FRONT)
        .local_get(at)
        .global_set(MESSAGE_AT)
        .i32_const(0)
        .global_set(DIRTY)
        .i32_const(0)
        .global_set(STACK)
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

fn state(offset: u32, ty: wasmparser::ValType) -> MemArg {
    MemArg {
        offset: u64::from(offset),
        align: if ty == wasmparser::ValType::I64 { 3 } else { 2 },
        target: MemArgTarget::Memory(STATE),
        ordering: None,
    }
}
