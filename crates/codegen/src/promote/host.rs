//! Host calls that are no message accesses.

use super::emitter::{Emitter, width};
use super::frame::TRANSFER;
use crate::bpf::{Reg, Size, helper};
use ashway_abi::HostCall;

impl Emitter<'_> {
    /// Any host call.
    pub(super) fn host(&mut self, call: HostCall) {
        match call {
            HostCall::Now => self.now(),
            HostCall::Resize => self.resize(),
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
