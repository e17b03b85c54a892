//! Host calls that are no message accesses.

use super::emitter::{Emitter, width};
use super::frame::TRANSFER;
use ashway_abi::log::stage;
use ashway_abi::{HostCall, context};
use ashway_check::bpf::{Assembler, Reg, Size, helper, op};

impl Emitter<'_> {
    /// Any host call.
    pub(super) fn host(&mut self, call: HostCall) {
        match call {
            HostCall::Now => self.now(),
            HostCall::Resize => self.resize(),
            HostCall::Log => self.park(Self::log),
            _ => self.message(call),
        }
    }

    /// `now_ns()`. A helper clobbers every scratch register, so that the result
    /// waits in a transfer word until the locals are back in theirs.
    fn now(&mut self) {
        self.park(|this| {
            this.flush_registers();
            this.asm.call(helper::KTIME_GET_NS);
            this.asm.store(Size::D, Reg::R9, TRANSFER, Reg::R0);
        });
        self.push_transfer(true);
    }

    /// `msg_resize(len)`.
    fn resize(&mut self) {
        self.park(Self::message_resize);
        self.push_transfer(false);
    }

    /// Pushes what waits in the first transfer word.
    fn push_transfer(&mut self, wide: bool) {
        let into = match self.target() {
            Some(target) => target,
            None => self.alloc(),
        };
        self.asm.load(width(wide), into, Reg::R9, TRANSFER);
        self.push_reg(into, wide);
    }
}

/// Begins with no lines on the stage. Clobbers `r1`.
pub(crate) fn begin_log(asm: &mut Assembler) {
    asm.mov(Reg::R1, Reg::R9);
    asm.alu_imm(op::ADD, Reg::R1, context::LOG as i32);
    asm.store_imm(Size::W, Reg::R1, stage::COUNT as i16, 0);
}
