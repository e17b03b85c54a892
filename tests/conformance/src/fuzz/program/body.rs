//! A function: its locals, and where its accesses go.

use super::super::random::Random;
use super::{GLOBALS, Signature};
use wasm_encoder::{Function, Instruction as I, MemArg, MemArgTarget, ValType};

/// Statements of one function, nested ones included.
const STATEMENTS: i64 = 40;

/// A function that is being written.
pub(super) struct Body<'r> {
    pub(super) random: &'r mut Random,
    pub(super) signatures: &'r [Signature],
    pub(super) number: u32,
    pub(super) imports: u32,
    pub(super) handler: bool,
    /// Whether functions call those before them, and themselves.
    pub(super) recursive: bool,
    /// Parameters and locals that statements use.
    pub(super) locals: Vec<ValType>,
    /// Further locals of type `i32` that count turns of loops; how many are in
    /// use.
    pub(super) counters: u32,
    pub(super) code: Vec<I<'static>>,
    /// Statements left.
    pub(super) left: i64,
    /// Labels around the current place that take no values.
    pub(super) labels: u32,
}

/// Loops inside each other.
pub(super) const MOST_COUNTERS: u32 = 3;

impl<'r> Body<'r> {
    pub(super) fn new(
        random: &'r mut Random,
        signatures: &'r [Signature],
        number: u32,
        imports: u32,
        handler: bool,
        recursive: bool,
    ) -> Self {
        let mut locals = signatures[number as usize].params.clone();
        for _ in 0..2 + random.below(10) {
            locals.push(random.pick(&[ValType::I32, ValType::I64]));
        }
        // Both types are there, so that there is always a place for a value.
        locals.extend([ValType::I32, ValType::I64]);
        Self {
            random,
            signatures,
            number,
            imports,
            handler,
            recursive,
            locals,
            counters: 0,
            code: Vec::new(),
            left: STATEMENTS,
            labels: 0,
        }
    }

    pub(super) fn finish(mut self) -> Function {
        self.statements(3);
        let signature = &self.signatures[self.number as usize];
        for ty in &signature.results {
            self.expression(*ty, 3);
        }
        if self.handler && self.number == 0 {
            self.code.extend([I::I32Const(7), I::I32And]);
        }
        let params = signature.params.len();
        let mut declared: Vec<_> = self.locals[params..].iter().map(|ty| (1, *ty)).collect();
        declared.push((MOST_COUNTERS, ValType::I32));
        let mut function = Function::new(declared);
        for instruction in &self.code {
            function.instruction(instruction);
        }
        function.instruction(&I::End);
        function
    }

    pub(super) fn push(&mut self, instruction: I<'static>) {
        self.code.push(instruction);
    }

    /// A local of this type.
    pub(super) fn local(&mut self, ty: ValType) -> u32 {
        loop {
            let local = self.random.below(self.locals.len() as u64) as u32;
            if self.locals[local as usize] == ty {
                return local;
            }
        }
    }

    pub(super) fn global(&mut self, ty: ValType) -> u32 {
        let base = if ty == ValType::I32 { 0 } else { GLOBALS };
        (base + self.random.below(GLOBALS)) as u32
    }

    pub(super) fn ty(&mut self) -> ValType {
        self.random.pick(&[ValType::I32, ValType::I64])
    }

    /// An address that is mostly inside the memory.
    pub(super) fn address(&mut self, mask: i32) {
        self.expression(ValType::I32, 2);
        if !self.random.once_in(400) {
            self.code.extend([I::I32Const(mask), I::I32And]);
        }
    }

    pub(super) fn place(&mut self) -> MemArg {
        let offset = match self.random.below(200) {
            0 => 0x1_0000 - self.random.below(12),
            1 => self.random.below(0x2_0000),
            2..60 => self.random.below(0x7000),
            _ => self.random.below(64),
        };
        MemArg {
            offset,
            align: 0,
            target: MemArgTarget::Memory(0),
            ordering: None,
        }
    }
}
