//! Ticks: how bulk operations and retries keep to the time.
//!
//! A bulk operation's fuel is taken before it begins, all at once, so that it
//! ends at the same byte in both tiers. Its time is another matter: a MiB that
//! is in no cache takes longer than a whole budget. So every loop inside one
//! operator counts down [`context::BULK`] by the bytes it moves, in the same
//! four instructions as a charge, and looks at the clock when that is spent.
//! A cycle of the control-flow graph without a charge has a tick.

use super::emitter::Emitter;
use super::frame::TRANSFER;
use crate::normalise::Module;
use crate::normalise::ir::OpKind;
use ashway_abi::{Cause, context};
use ashway_check::bpf::{Label, Reg, Size, op};

/// What [`context::BULK`] is at activation, in bytes: less than a slice, because
/// the first look only starts the clock.
pub const FIRST_TICKS: i32 = 4 * 1024;

/// Bytes between two looks at the clock: 0.4 us in the cache, of which the look
/// itself is a tenth.
pub(super) const TICKS: i32 = 16 * 1024;

/// The same before a copy between message and memory that needs more.
const MESSAGE_TICKS: i32 = 64 * 1024;

/// Ticks of a retry, as long as a cache line takes from one CPU to another and
/// back. Eight of them to a look.
pub(super) const RETRY: u32 = 2 * 1024;

/// Whether a handler of `module` looks at the clock, so that whoever starts it
/// has to set `FUEL`, `RESERVE`, `DEADLINE` and `BULK`.
#[must_use]
pub fn keeps_time(module: &Module<'_>) -> bool {
    // Of the operators without fuel only atomic ones have loops.
    let atomic = |kind: &OpKind<'_>| match kind {
        OpKind::Wasm(operator) => super::atomic::is_atomic(operator),
        _ => false,
    };
    let mut code = module.functions.iter().flat_map(|f| &f.code);
    module.charges() || code.any(|op| atomic(&op.kind))
}

/// A tick's way out of line and back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tick {
    pub(super) from: Label,
    pub(super) back: Label,
}

impl Emitter<'_> {
    /// Counts down by `bytes`. Clobbers `r0`.
    pub(super) fn tick(&mut self, bytes: u32) -> Tick {
        self.tick_by(Reg::R0, bytes)
    }

    /// The same by another register than `r0`.
    pub(super) fn tick_by(&mut self, reg: Reg, bytes: u32) -> Tick {
        let tick = Tick {
            from: self.asm.label(),
            back: self.asm.label(),
        };
        self.asm.load(Size::D, reg, Reg::R9, context::BULK);
        self.asm.alu_imm(op::SUB, reg, bytes as i32);
        self.asm.store(Size::D, Reg::R9, context::BULK, reg);
        self.asm.jump_if_imm(op::JSLT, reg, 0, tick.from);
        self.asm.bind(tick.back);
        tick
    }

    /// The way out of line, to be put where nothing falls through to it. Of the
    /// scratch registers it leaves `live` as they are, which hold numbers and
    /// are at most three.
    pub(super) fn slow_tick(&mut self, tick: Tick, live: &[Reg]) {
        self.asm.bind(tick.from);
        self.look(live);
        self.asm.jump(tick.back);
    }

    /// Looks at the clock unless as many bytes as `len` says, and `more`, can be
    /// moved without: what follows is not stopped before they are. There are no
    /// more of them than a message has. Leaves `live` as [`Self::slow_tick`] does,
    /// which `len` is one of, and clobbers `r0` and `r4`.
    pub(super) fn reserve_ticks(&mut self, len: Reg, more: i32, live: &[Reg]) {
        let enough = self.asm.label();
        self.asm.mov(Reg::R0, len);
        self.asm.alu_imm(op::ADD, Reg::R0, more);
        self.asm.load(Size::D, Reg::R4, Reg::R9, context::BULK);
        self.asm.jump_if(op::JSGE, Reg::R4, Reg::R0, enough);
        self.look(live);
        self.asm.jump_if_imm(op::JLE, len, TICKS - more, enough);
        self.asm
            .store_imm(Size::D, Reg::R9, context::BULK, MESSAGE_TICKS);
        self.asm.bind(enough);
    }

    /// Looks at the clock and gives ticks.
    fn look(&mut self, live: &[Reg]) {
        let time = self.trap(Cause::Time);
        let words = [8, 16, 24].map(|off| TRANSFER + off);
        for (reg, word) in live.iter().zip(words) {
            self.asm.store(Size::D, Reg::R9, word, *reg);
        }
        self.call_look(self.looks.ticks);
        self.asm.jump_if_imm(op::JNE, Reg::R0, 0, time);
        for (reg, word) in live.iter().zip(words) {
            self.asm.load(Size::D, *reg, Reg::R9, word);
        }
    }
}
