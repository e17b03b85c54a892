//! Expressions of a given type and depth.

use super::body::Body;
use ashway_abi::host_call::{HostCall, ValueType};
use wasm_encoder::{BlockType, Instruction as I, ValType};

impl Body<'_> {
    /// Leaves a value of this type.
    pub(super) fn expression(&mut self, ty: ValType, depth: u32) {
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
                let calls: Vec<HostCall> = HostCall::message_accesses()
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
