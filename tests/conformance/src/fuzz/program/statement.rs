//! Statements: loops, switches, stores, calls.

use super::body::{Body, MOST_COUNTERS};
use ashway_abi::host_call::{HostCall, ValueType};
use wasm_encoder::{BlockType, Instruction as I, ValType};

impl Body<'_> {
    pub(super) fn statements(&mut self, depth: u32) {
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
        let calls: Vec<HostCall> = HostCall::message_accesses()
            .filter(|call| call.signature().1.is_none())
            .collect();
        let call = self.random.pick(&calls);
        self.message_call(call);
    }

    pub(super) fn message_call(&mut self, call: HostCall) {
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
}
