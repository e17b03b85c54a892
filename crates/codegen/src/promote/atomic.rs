//! Atomic accesses to the handler's memory (threads proposal).
//!
//! All are sequentially consistent, as WebAssembly has no others. A plain load
//! or store is not, on every CPU, and the ordered ones are young (Linux 6.15);
//! so a load is a `fetch_add` of 0, and a store an exchange, which are full
//! barriers everywhere.
//!
//! In an arena the kernel takes add, exchange and compare-exchange of 32 and 64
//! bits, and of 8 and 16 bits nothing (docs/facts.md, "Arena atomics"). The rest is a
//! compare-exchange of the word around it, tried again if another CPU was faster.
//! Each failure means that somebody else succeeded; a retry ticks all the same (`tick.rs`).
//!
//! Misalignment is found before bounds, as Wasmtime 48 does it
//! (`prepare_atomic_addr`); the proposal leaves the order open.
//!
//! Registers: `r1` address, `r2` operand, `r3` the mask of what changes, `r4`
//! pointer, `r0` the word as it was, `r5` as it shall be.

use super::emitter::Emitter;
use super::frame::TRANSFER;
use super::tick::RETRY;
use crate::bug::{self, Bug};
use Reg::{R0, R1, R2, R3, R4, R5, R9};
use ashway_abi::MemoryKind;
use ashway_abi::{Cause, context};
use ashway_check::bpf::{Atomic, Reg, Size, op};
use wasmparser::{MemArg, MemArgTarget, Operator};

/// What happens to the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Load,
    Store,
    Add,
    Sub,
    And,
    Or,
    Xor,
    Exchange,
    CompareExchange,
}

/// An operator.
#[derive(Clone, Copy, Debug)]
struct Access {
    change: Change,
    size: Size,
    /// Whether operand and result are `i64`.
    wide: bool,
    offset: u64,
}

impl Access {
    /// `None` for what is not an atomic access to memory 0. Waiting is not one:
    /// a handler cannot sleep.
    fn of(operator: &Operator<'_>) -> Option<Self> {
        macro_rules! table {
            ($($change:ident: $i32:ident $i32_8:ident $i32_16:ident
                $i64:ident $i64_8:ident $i64_16:ident $i64_32:ident;)*) => {
                match operator {
                    $(
                        Operator::$i32 { memarg } => (Change::$change, Size::W, false, memarg),
                        Operator::$i32_8 { memarg } => (Change::$change, Size::B, false, memarg),
                        Operator::$i32_16 { memarg } => (Change::$change, Size::H, false, memarg),
                        Operator::$i64 { memarg } => (Change::$change, Size::D, true, memarg),
                        Operator::$i64_8 { memarg } => (Change::$change, Size::B, true, memarg),
                        Operator::$i64_16 { memarg } => (Change::$change, Size::H, true, memarg),
                        Operator::$i64_32 { memarg } => (Change::$change, Size::W, true, memarg),
                    )*
                    _ => return None,
                }
            };
        }
        let (change, size, wide, memarg): (_, _, _, &MemArg) = table! {
            Load: I32AtomicLoad I32AtomicLoad8U I32AtomicLoad16U
                I64AtomicLoad I64AtomicLoad8U I64AtomicLoad16U I64AtomicLoad32U;
            Store: I32AtomicStore I32AtomicStore8 I32AtomicStore16
                I64AtomicStore I64AtomicStore8 I64AtomicStore16 I64AtomicStore32;
            Add: I32AtomicRmwAdd I32AtomicRmw8AddU I32AtomicRmw16AddU
                I64AtomicRmwAdd I64AtomicRmw8AddU I64AtomicRmw16AddU I64AtomicRmw32AddU;
            Sub: I32AtomicRmwSub I32AtomicRmw8SubU I32AtomicRmw16SubU
                I64AtomicRmwSub I64AtomicRmw8SubU I64AtomicRmw16SubU I64AtomicRmw32SubU;
            And: I32AtomicRmwAnd I32AtomicRmw8AndU I32AtomicRmw16AndU
                I64AtomicRmwAnd I64AtomicRmw8AndU I64AtomicRmw16AndU I64AtomicRmw32AndU;
            Or: I32AtomicRmwOr I32AtomicRmw8OrU I32AtomicRmw16OrU
                I64AtomicRmwOr I64AtomicRmw8OrU I64AtomicRmw16OrU I64AtomicRmw32OrU;
            Xor: I32AtomicRmwXor I32AtomicRmw8XorU I32AtomicRmw16XorU
                I64AtomicRmwXor I64AtomicRmw8XorU I64AtomicRmw16XorU I64AtomicRmw32XorU;
            Exchange: I32AtomicRmwXchg I32AtomicRmw8XchgU I32AtomicRmw16XchgU
                I64AtomicRmwXchg I64AtomicRmw8XchgU I64AtomicRmw16XchgU I64AtomicRmw32XchgU;
            CompareExchange: I32AtomicRmwCmpxchg I32AtomicRmw8CmpxchgU I32AtomicRmw16CmpxchgU
                I64AtomicRmwCmpxchg I64AtomicRmw8CmpxchgU I64AtomicRmw16CmpxchgU
                I64AtomicRmw32CmpxchgU;
        };
        Some(Self {
            change,
            size,
            wide,
            offset: memarg.offset,
        })
        .filter(|_| memarg.target == MemArgTarget::Memory(0))
    }

    /// Whether only a part of a word is meant.
    fn is_part(self) -> bool {
        matches!(self.size, Size::B | Size::H)
    }

    /// The word the instruction works on.
    fn word(self) -> Size {
        if self.is_part() { Size::W } else { self.size }
    }

    /// The bits of a part, as the low bits of a word.
    fn bits(self) -> i32 {
        (1 << (8 * self.size.bytes())) - 1
    }
}

/// Whether the operator is one of those that [`Emitter::atomic`] translates
/// with a loop, or could.
pub(crate) fn is_atomic(operator: &Operator<'_>) -> bool {
    Access::of(operator).is_some()
}

impl Emitter<'_> {
    /// Translates the operator if it is an atomic one; says whether it was.
    pub(super) fn atomic(&mut self, operator: &Operator<'_>) -> bool {
        let Some(access) = Access::of(operator) else {
            return false;
        };
        let target = match access.change {
            Change::Store => None,
            _ => self.target(),
        };
        self.operands_into(match access.change {
            Change::Load => &[R1],
            Change::CompareExchange => &[R1, R3, R2],
            _ => &[R1, R2],
        });
        self.atomic_address(access);
        match access.change {
            Change::Load => self.atomic_load(access),
            Change::And | Change::Or | Change::Xor => self.change_word(access),
            _ if access.is_part() => self.change_word(access),
            _ => self.exchange_word(access),
        }
        if access.change != Change::Store {
            self.atomic_result(access, target);
        }
        true
    }

    /// Makes `r1` the effective address, and traps if it is not aligned or not
    /// in memory. Clobbers `r0`, `r4`, `r5`.
    fn atomic_address(&mut self, access: Access) {
        let bytes = access.size.bytes() as i32;
        self.forget_sign(false, R1, R0);
        if access.offset != 0 {
            self.asm.load_imm(R0, access.offset);
            self.asm.alu(op::ADD, R1, R0);
        }
        if bytes > 1 && !bug::is(Bug::UnalignedAllowed) {
            let trap = self.trap(Cause::Unaligned);
            self.asm.mov(R0, R1);
            self.asm.alu_imm(op::AND, R0, bytes - 1);
            self.asm.jump_if_imm(op::JNE, R0, 0, trap);
        }
        self.asm.mov(R0, R1);
        self.asm.alu_imm(op::ADD, R0, bytes);
        self.check_end();
    }

    /// `r4` = pointer to the word that `r1` is in. In array mode the verifier
    /// wants to see that it is aligned. Clobbers `r0`.
    fn atomic_pointer(&mut self, access: Access) {
        let bytes = access.word().bytes();
        match self.shape.memory {
            MemoryKind::Arena if access.is_part() => {
                self.asm.mov(R0, R1);
                self.asm.alu32_imm(op::AND, R0, -(bytes as i32));
                self.asm.arena_cast(R4, R0);
            }
            MemoryKind::Arena => self.asm.arena_cast(R4, R1),
            MemoryKind::Array => {
                self.forget(R0, R1);
                self.asm.alu32_imm(op::AND, R0, -(bytes as i32));
                let most = self.shape.maximum_bytes().saturating_sub(bytes.into());
                self.array_pointer(R4, R0, most);
            }
        }
    }

    /// `r0` = the word.
    fn atomic_load(&mut self, access: Access) {
        self.atomic_pointer(access);
        self.asm.mov_imm(R0, 0);
        self.asm.atomic(Atomic::FetchAdd, access.word(), R4, 0, R0);
    }

    /// What one instruction can do; `r0` = the old value.
    fn exchange_word(&mut self, access: Access) {
        self.atomic_pointer(access);
        let word = access.word();
        if access.change == Change::CompareExchange {
            // Of 32 bits the JIT writes the old value only if it was another,
            // and for an arena Linux 6.18 does not clear the half above it.
            self.alu(op::MOV, word == Size::D, R0, R3);
            self.asm.atomic(Atomic::CompareExchange, word, R4, 0, R2);
            return;
        }
        if access.change == Change::Sub {
            self.asm.mov_imm(R0, 0);
            self.asm.alu(op::SUB, R0, R2);
        } else {
            self.asm.mov(R0, R2);
        }
        let what = match access.change {
            Change::Add | Change::Sub => Atomic::FetchAdd,
            _ => Atomic::Exchange,
        };
        self.asm.atomic(what, word, R4, 0, R0);
    }

    /// The rest, by compare-exchange; `r0` = the old word.
    fn change_word(&mut self, access: Access) {
        let wide = access.size == Size::D;
        let word = access.word();
        self.shift_operands(access);
        let time = self.trap(Cause::Time);
        let end = self.asm.label();
        let head = self.asm.here();
        self.asm.may_goto(time);
        self.atomic_pointer(access);
        if access.change == Change::CompareExchange {
            // If it differs this is all there is, and has to be in order.
            self.atomic_load(access);
            self.asm.mov(R5, R2);
            self.asm.alu_imm(op::RSH, R5, 32);
            self.asm.alu32(op::XOR, R5, R0);
            self.asm.alu32(op::AND, R5, R3);
            self.asm.jump32_if_imm(op::JNE, R5, 0, end);
        } else {
            self.asm.load(word, R0, R4, 0);
        }
        self.asm.mov(R5, R0);
        let operation = match access.change {
            Change::Add => op::ADD,
            Change::Sub => op::SUB,
            Change::And => op::AND,
            Change::Or => op::OR,
            Change::Xor => op::XOR,
            _ => op::MOV,
        };
        self.alu(operation, wide, R5, R2);
        if access.is_part() {
            // The word as it was, but for the bits in `r3`.
            self.asm.alu32(op::XOR, R5, R0);
            self.asm.alu32(op::AND, R5, R3);
            self.asm.alu32(op::XOR, R5, R0);
        }
        self.asm.store(Size::D, R9, TRANSFER, R0);
        self.asm.atomic(Atomic::CompareExchange, word, R4, 0, R5);
        self.asm.load(Size::D, R5, R9, TRANSFER);
        if wide {
            self.asm.jump_if(op::JEQ, R0, R5, end);
        } else {
            self.asm.jump32_if(op::JEQ, R0, R5, end);
        }
        let tick = self.tick(RETRY);
        self.asm.jump(head);
        self.slow_tick(tick, &[R1, R2, R3]);
        self.asm.bind(end);
    }

    /// Puts the operand of a part to where the part is, the expected value into
    /// the half above it, and the part's mask into `r3`. The verifier forgets
    /// what it knows of them, so that the first try is like the next.
    fn shift_operands(&mut self, access: Access) {
        if access.is_part() {
            let bits = access.bits();
            self.forget_sign(false, R2, R0);
            self.asm.alu32_imm(op::AND, R2, bits);
            if access.change == Change::CompareExchange {
                self.forget_sign(false, R3, R0);
                // More than the part has is cut off, as Wasmtime does it.
                self.asm.alu32_imm(op::AND, R3, bits);
                self.asm.mov(R4, R3);
            }
            self.asm.mov(R0, R1);
            self.asm.alu32_imm(op::AND, R0, 3);
            self.asm.alu32_imm(op::LSH, R0, 3);
            self.asm.alu32(op::LSH, R2, R0);
            self.asm.mov_imm(R3, bits);
            self.asm.alu32(op::LSH, R3, R0);
            if access.change == Change::CompareExchange {
                self.asm.alu32(op::LSH, R4, R0);
                self.asm.alu_imm(op::LSH, R4, 32);
                self.asm.alu(op::OR, R2, R4);
            }
        } else {
            self.asm.mov_imm(R3, 0);
        }
        self.asm.load(Size::D, R0, R9, context::ZERO);
        for reg in [R1, R2, R3] {
            self.launder(true, reg, R0);
        }
    }

    /// Pushes what was in memory; it is in `r0`.
    fn atomic_result(&mut self, access: Access, target: Option<Reg>) {
        if access.is_part() {
            self.asm.alu32_imm(op::AND, R1, 3);
            self.asm.alu32_imm(op::LSH, R1, 3);
            self.asm.alu32(op::RSH, R0, R1);
            self.asm.alu32_imm(op::AND, R0, access.bits());
        }
        let into = target.unwrap_or_else(|| self.alloc());
        if into != R0 {
            self.asm.mov(into, R0);
        }
        self.push_reg(into, access.wide);
    }
}
