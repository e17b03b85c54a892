//! Modules as a compiler would write them, from random numbers.
//!
//! `wasm-smith` reaches every operator, but its code rarely turns in a loop and
//! keeps little in locals for long. This generator writes statements: nested
//! loops with counters, switches, calls with results, expressions a few levels
//! deep over a dozen locals, accesses at addresses that are mostly inside the
//! memory. It is where a local's register is taken too early or given back too
//! late.

use super::random::Random;
use ashway_abi::host_call::{HostCall, MODULE, ValueType};
use std::borrow::Cow;
use wasm_encoder::{
    BlockType, CodeSection, ConstExpr, ElementSection, Elements, EntityType, ExportKind,
    ExportSection, Function, FunctionSection, GlobalSection, GlobalType, ImportSection,
    Instruction as I, MemArg, MemArgTarget, MemorySection, MemoryType, Module, RefType,
    TableSection, TableType, TypeSection, ValType,
};

/// Mutable globals of each type.
const GLOBALS: u64 = 2;
/// Statements of one function, nested ones included.
const STATEMENTS: i64 = 40;

/// Makes a module; `handler` with messages and `on_rx`, else with all functions
/// exported.
pub(super) fn program(random: &mut Random, handler: bool) -> Vec<u8> {
    let imports = if handler { HostCall::ALL.len() } else { 0 } as u32;
    let mut types = TypeSection::new();
    let mut import_section = ImportSection::new();
    if handler {
        for (number, call) in HostCall::ALL.into_iter().enumerate() {
            let (params, result) = call.signature();
            types
                .ty()
                .function(params.iter().copied().map(wasm_type), result.map(wasm_type));
            let ty = EntityType::Function(number as u32);
            import_section.import(MODULE, call.name(), ty);
        }
    }
    let count = 1 + random.below(5) as u32;
    let signatures: Vec<Signature> = (0..count)
        .map(|number| Signature::new(random, handler && number == 0))
        .collect();
    let mut functions = FunctionSection::new();
    let mut exports = ExportSection::new();
    let mut code = CodeSection::new();
    for (number, signature) in (0..).zip(&signatures) {
        let (params, results) = (signature.params.clone(), signature.results.clone());
        types.ty().function(params, results);
        functions.function(imports + number);
        if !handler {
            exports.export(&format!("f{number}"), ExportKind::Func, number);
        }
    }
    if handler {
        exports.export("on_rx", ExportKind::Func, imports);
        exports.export("memory", ExportKind::Memory, 0);
    }
    let recursive = random.once_in(4);
    for number in 0..count {
        let body = Body::new(random, &signatures, number, imports, handler, recursive);
        code.function(&body.finish());
    }

    let mut module = Module::new();
    module.section(&types);
    if handler {
        module.section(&import_section);
    }
    module.section(&functions);
    module.section(&table(count));
    module.section(&memory(random));
    module.section(&globals(random));
    module.section(&exports);
    module.section(&elements(count, imports));
    module.section(&code);
    module.finish()
}

fn wasm_type(ty: ValueType) -> ValType {
    match ty {
        ValueType::I32 => ValType::I32,
        ValueType::I64 => ValType::I64,
    }
}

/// All functions, and one null behind them.
fn table(count: u32) -> TableSection {
    let mut tables = TableSection::new();
    tables.table(TableType {
        element_type: RefType::FUNCREF,
        minimum: u64::from(count) + 1,
        maximum: None,
        table64: false,
        shared: false,
    });
    tables
}

fn elements(count: u32, imports: u32) -> ElementSection {
    let functions: Vec<u32> = (imports..imports + count).collect();
    let mut elements = ElementSection::new();
    let functions = Elements::Functions(Cow::Owned(functions));
    elements.active(None, &ConstExpr::i32_const(0), functions);
    elements
}

fn memory(random: &mut Random) -> MemorySection {
    let mut memories = MemorySection::new();
    memories.memory(MemoryType {
        minimum: 1,
        maximum: Some(1 + random.below(2)),
        memory64: false,
        shared: false,
        page_size_log2: None,
    });
    memories
}

/// The `i32`s first, then the `i64`s.
fn globals(random: &mut Random) -> GlobalSection {
    let mut globals = GlobalSection::new();
    let ty = |val_type| GlobalType {
        val_type,
        mutable: true,
        shared: false,
    };
    for _ in 0..GLOBALS {
        let value = ConstExpr::i32_const(random.number() as i32);
        globals.global(ty(ValType::I32), &value);
    }
    for _ in 0..GLOBALS {
        let value = ConstExpr::i64_const(random.number() as i64);
        globals.global(ty(ValType::I64), &value);
    }
    globals
}

struct Signature {
    params: Vec<ValType>,
    results: Vec<ValType>,
}

impl Signature {
    fn new(random: &mut Random, handler: bool) -> Self {
        if handler {
            return Self {
                params: vec![ValType::I32; 2],
                results: vec![ValType::I32],
            };
        }
        let mut some = |most| {
            (0..random.below(most))
                .map(|_| random.pick(&[ValType::I32, ValType::I64]))
                .collect()
        };
        Self {
            params: some(5),
            results: some(4),
        }
    }
}

/// A function that is being written.
struct Body<'r> {
    random: &'r mut Random,
    signatures: &'r [Signature],
    number: u32,
    imports: u32,
    handler: bool,
    /// Whether functions call those before them, and themselves.
    recursive: bool,
    /// Parameters and locals that statements use.
    locals: Vec<ValType>,
    /// Further locals of type `i32` that count turns of loops; how many are in
    /// use.
    counters: u32,
    code: Vec<I<'static>>,
    /// Statements left.
    left: i64,
    /// Labels around the current place that take no values.
    labels: u32,
}

/// Loops inside each other.
const MOST_COUNTERS: u32 = 3;

impl<'r> Body<'r> {
    fn new(
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

    fn finish(mut self) -> Function {
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

    fn push(&mut self, instruction: I<'static>) {
        self.code.push(instruction);
    }

    /// A local of this type.
    fn local(&mut self, ty: ValType) -> u32 {
        loop {
            let local = self.random.below(self.locals.len() as u64) as u32;
            if self.locals[local as usize] == ty {
                return local;
            }
        }
    }

    fn global(&mut self, ty: ValType) -> u32 {
        let base = if ty == ValType::I32 { 0 } else { GLOBALS };
        (base + self.random.below(GLOBALS)) as u32
    }

    fn ty(&mut self) -> ValType {
        self.random.pick(&[ValType::I32, ValType::I64])
    }

    fn statements(&mut self, depth: u32) {
        for _ in 0..=self.random.below(7) {
            if self.left <= 0 {
                return;
            }
            self.left -= 1;
            self.statement(depth);
        }
    }

    fn statement(&mut self, depth: u32) {
        let inner = depth > 0;
        match self.random.below(16) {
            0..=4 => {
                let ty = self.ty();
                self.expression(ty, 3);
                let local = self.local(ty);
                self.push(I::LocalSet(local));
            }
            5 | 6 => self.store(),
            7 if inner && self.counters < MOST_COUNTERS => self.counted_loop(depth),
            8 if inner => {
                self.expression(ValType::I32, 2);
                self.push(I::If(BlockType::Empty));
                self.labels += 1;
                self.statements(depth - 1);
                if !self.random.once_in(3) {
                    self.push(I::Else);
                    self.statements(depth - 1);
                }
                self.labels -= 1;
                self.push(I::End);
            }
            9 if inner => self.switch(depth),
            10 if inner => {
                self.push(I::Block(BlockType::Empty));
                self.labels += 1;
                self.statements(depth - 1);
                self.expression(ValType::I32, 2);
                let label = self.random.below(u64::from(self.labels)) as u32;
                self.push(I::BrIf(label));
                self.statements(depth - 1);
                self.labels -= 1;
                self.push(I::End);
            }
            11 => {
                let ty = self.ty();
                self.expression(ty, 2);
                let global = self.global(ty);
                self.push(I::GlobalSet(global));
            }
            12 => self.call(),
            13 => self.bulk(),
            14 if self.handler => self.message_store(),
            15 if self.random.once_in(4) => {
                self.expression(ValType::I32, 1);
                self.push(I::MemoryGrow(0));
                self.push(I::Drop);
            }
            _ => {
                let ty = self.ty();
                let local = self.local(ty);
                self.expression(ty, 2);
                self.push(I::LocalTee(local));
                self.push(I::Drop);
            }
        }
    }

    /// `counter = n; do { ... } while (--counter);`
    fn counted_loop(&mut self, depth: u32) {
        let counter = self.locals.len() as u32 + self.counters;
        self.counters += 1;
        let turns = 1 + self.random.below(12) as i32;
        self.push(I::I32Const(turns));
        self.push(I::LocalSet(counter));
        self.push(I::Loop(BlockType::Empty));
        self.labels += 1;
        self.statements(depth - 1);
        self.code.extend([
            I::LocalGet(counter),
            I::I32Const(1),
            I::I32Sub,
            I::LocalTee(counter),
            I::BrIf(0),
        ]);
        self.labels -= 1;
        self.push(I::End);
        self.counters -= 1;
    }

    fn switch(&mut self, depth: u32) {
        let cases = 1 + self.random.below(4) as u32;
        for _ in 0..=cases {
            self.push(I::Block(BlockType::Empty));
        }
        self.labels += cases + 1;
        self.expression(ValType::I32, 2);
        let last = u64::from(cases) + 1;
        let targets: Vec<u32> = (0..self.random.below(6))
            .map(|_| self.random.below(last) as u32)
            .collect();
        self.push(I::BrTable(targets.into(), cases));
        for _ in 0..=cases {
            self.push(I::End);
            self.labels -= 1;
            self.statements(depth - 1);
        }
    }

    /// An address that is mostly inside the memory.
    fn address(&mut self, mask: i32) {
        self.expression(ValType::I32, 2);
        if !self.random.once_in(400) {
            self.code.extend([I::I32Const(mask), I::I32And]);
        }
    }

    fn place(&mut self) -> MemArg {
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

    fn store(&mut self) {
        self.address(0x7fff);
        let at = self.place();
        let (ty, store) = self.random.pick(&[
            (ValType::I32, 0),
            (ValType::I32, 1),
            (ValType::I32, 2),
            (ValType::I64, 3),
            (ValType::I64, 4),
            (ValType::I64, 5),
            (ValType::I64, 6),
        ]);
        self.expression(ty, 2);
        self.push(match store {
            0 => I::I32Store(at),
            1 => I::I32Store8(at),
            2 => I::I32Store16(at),
            3 => I::I64Store(at),
            4 => I::I64Store8(at),
            5 => I::I64Store16(at),
            _ => I::I64Store32(at),
        });
    }

    fn bulk(&mut self) {
        self.address(0x7fff);
        if self.random.once_in(2) {
            self.expression(ValType::I32, 1);
            self.address(0x1ff);
            self.push(I::MemoryFill(0));
        } else {
            self.address(0x7fff);
            self.address(0x1ff);
            self.push(I::MemoryCopy {
                src_mem: 0,
                dst_mem: 0,
            });
        }
    }

    fn message_store(&mut self) {
        let calls: Vec<HostCall> = HostCall::ALL
            .into_iter()
            .filter(|call| call.signature().1.is_none())
            .collect();
        let call = self.random.pick(&calls);
        self.message_call(call);
    }

    fn message_call(&mut self, call: HostCall) {
        for ty in call.signature().0 {
            match ty {
                ValueType::I32 => self.address(0x3f),
                ValueType::I64 => self.expression(ValType::I64, 2),
            }
        }
        self.push(I::Call(call as u32 - 1));
    }

    /// Calls a function, directly or through the table, and keeps its results.
    fn call(&mut self) {
        let count = self.signatures.len() as u64;
        let first = if self.recursive {
            0
        } else {
            u64::from(self.number) + 1
        };
        if first >= count {
            return;
        }
        let callee = (first + self.random.below(count - first)) as u32;
        let signature = &self.signatures[callee as usize];
        for ty in &signature.params {
            self.expression(*ty, 2);
        }
        if self.random.once_in(3) {
            // Mostly the right entry, sometimes one of another type or none.
            let entry = if self.recursive && self.random.once_in(8) {
                self.random.below(count + 2) as i32
            } else {
                callee as i32
            };
            self.push(I::I32Const(entry));
            self.push(I::CallIndirect {
                type_index: self.imports + callee,
                table_index: 0,
            });
        } else {
            self.push(I::Call(self.imports + callee));
        }
        for ty in signature.results.iter().rev() {
            let local = self.local(*ty);
            self.push(I::LocalSet(local));
        }
    }

    /// Leaves a value of this type.
    fn expression(&mut self, ty: ValType, depth: u32) {
        if depth == 0 || self.random.once_in(5) {
            self.leaf(ty);
        } else if ty == ValType::I32 {
            self.i32(depth - 1);
        } else {
            self.i64(depth - 1);
        }
    }

    fn leaf(&mut self, ty: ValType) {
        match self.random.below(8) {
            0 | 1 => {
                let number = self.random.number();
                self.push(match ty {
                    ValType::I32 => I::I32Const(number as i32),
                    _ => I::I64Const(number as i64),
                });
            }
            2 => {
                let global = self.global(ty);
                self.push(I::GlobalGet(global));
            }
            3 if ty == ValType::I32 && self.counters > 0 => {
                let counter = self.random.below(u64::from(self.counters)) as u32;
                self.push(I::LocalGet(self.locals.len() as u32 + counter));
            }
            _ => {
                let local = self.local(ty);
                self.push(I::LocalGet(local));
            }
        }
    }

    /// What both types have; whether it was written.
    fn either(&mut self, ty: ValType, depth: u32) -> bool {
        match self.random.below(12) {
            0 => {
                self.expression(ty, depth);
                self.expression(ty, depth);
                self.expression(ValType::I32, depth);
                self.push(I::Select);
            }
            1 => {
                self.expression(ty, depth);
                let local = self.local(ty);
                self.push(I::LocalTee(local));
            }
            2 => {
                self.expression(ValType::I32, depth);
                self.push(I::If(BlockType::Result(ty)));
                self.expression(ty, depth);
                self.push(I::Else);
                self.expression(ty, depth);
                self.push(I::End);
            }
            3 if self.handler => {
                let results = match ty {
                    ValType::I32 => ValueType::I32,
                    _ => ValueType::I64,
                };
                let calls: Vec<HostCall> = HostCall::ALL
                    .into_iter()
                    .filter(|call| call.signature().1 == Some(results))
                    .collect();
                let call = self.random.pick(&calls);
                self.message_call(call);
            }
            _ => return false,
        }
        true
    }

    fn i32(&mut self, depth: u32) {
        if self.either(ValType::I32, depth) {
            return;
        }
        match self.random.below(10) {
            0 | 1 => {
                self.address(0x7fff);
                let at = self.place();
                let load = [
                    I::I32Load,
                    I::I32Load8S,
                    I::I32Load8U,
                    I::I32Load16S,
                    I::I32Load16U,
                ];
                let load = self.random.pick(&load);
                self.push(load(at));
            }
            2 => {
                self.expression(ValType::I32, depth);
                let unary = [I::I32Clz, I::I32Ctz, I::I32Popcnt, I::I32Eqz];
                let more = [I::I32Extend8S, I::I32Extend16S];
                self.one_of(&[&unary[..], &more].concat());
            }
            3 => {
                self.expression(ValType::I64, depth);
                self.one_of(&[I::I32WrapI64, I::I64Eqz]);
            }
            4 => {
                self.pair(ValType::I64, depth);
                self.one_of(&COMPARE64);
            }
            5 => {
                self.pair(ValType::I32, depth);
                self.one_of(&COMPARE32);
            }
            6 => {
                self.divisor(ValType::I32, depth);
                self.one_of(&[I::I32DivS, I::I32DivU, I::I32RemS, I::I32RemU]);
            }
            _ => {
                self.pair(ValType::I32, depth);
                self.one_of(&BINARY32);
            }
        }
    }

    fn i64(&mut self, depth: u32) {
        if self.either(ValType::I64, depth) {
            return;
        }
        match self.random.below(8) {
            0 | 1 => {
                self.address(0x7fff);
                let at = self.place();
                let load = [
                    I::I64Load,
                    I::I64Load8S,
                    I::I64Load8U,
                    I::I64Load16S,
                    I::I64Load16U,
                    I::I64Load32S,
                    I::I64Load32U,
                ];
                let load = self.random.pick(&load);
                self.push(load(at));
            }
            2 => {
                self.expression(ValType::I64, depth);
                let unary = [I::I64Clz, I::I64Ctz, I::I64Popcnt];
                let more = [I::I64Extend8S, I::I64Extend16S, I::I64Extend32S];
                self.one_of(&[unary, more].concat());
            }
            3 => {
                self.expression(ValType::I32, depth);
                self.one_of(&[I::I64ExtendI32S, I::I64ExtendI32U]);
            }
            4 => {
                self.divisor(ValType::I64, depth);
                self.one_of(&[I::I64DivS, I::I64DivU, I::I64RemS, I::I64RemU]);
            }
            _ => {
                self.pair(ValType::I64, depth);
                self.one_of(&BINARY64);
            }
        }
    }

    fn pair(&mut self, ty: ValType, depth: u32) {
        self.expression(ty, depth);
        self.expression(ty, depth);
    }

    /// A pair of which the second is mostly not 0.
    fn divisor(&mut self, ty: ValType, depth: u32) {
        self.pair(ty, depth);
        if self.random.once_in(100) {
            return;
        }
        self.code.extend(match ty {
            ValType::I32 => [I::I32Const(1), I::I32Or],
            _ => [I::I64Const(1), I::I64Or],
        });
    }

    fn one_of(&mut self, instructions: &[I<'static>]) {
        let number = self.random.below(instructions.len() as u64) as usize;
        self.push(instructions[number].clone());
    }
}

const BINARY32: [I<'static>; 11] = [
    I::I32Add,
    I::I32Sub,
    I::I32Mul,
    I::I32And,
    I::I32Or,
    I::I32Xor,
    I::I32Shl,
    I::I32ShrS,
    I::I32ShrU,
    I::I32Rotl,
    I::I32Rotr,
];

const BINARY64: [I<'static>; 11] = [
    I::I64Add,
    I::I64Sub,
    I::I64Mul,
    I::I64And,
    I::I64Or,
    I::I64Xor,
    I::I64Shl,
    I::I64ShrS,
    I::I64ShrU,
    I::I64Rotl,
    I::I64Rotr,
];

const COMPARE32: [I<'static>; 10] = [
    I::I32Eq,
    I::I32Ne,
    I::I32LtS,
    I::I32LtU,
    I::I32GtS,
    I::I32GtU,
    I::I32LeS,
    I::I32LeU,
    I::I32GeS,
    I::I32GeU,
];

const COMPARE64: [I<'static>; 10] = [
    I::I64Eq,
    I::I64Ne,
    I::I64LtS,
    I::I64LtU,
    I::I64GtS,
    I::I64GtU,
    I::I64LeS,
    I::I64LeU,
    I::I64GeS,
    I::I64GeU,
];
