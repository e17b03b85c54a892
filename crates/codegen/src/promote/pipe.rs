//! Runs of lists of pipes: the fused loop in the middle of a handler.
//!
//! The loop takes every register there is, so that all locals wait in their slots.
//! What it keeps beside them lies in the context in front of the frames.

use super::emitter::Emitter;
use super::error::{Place, PromoteError};
use super::frame::PIPES;
use super::message::{PACKET_END, PAYLOAD};
use super::tick::Tick;
use super::{MemoryKind, Shape};
use crate::bpf::Reg;
use crate::bug::{self, Bug};
use crate::normalise::PipeList;
use crate::pipe::ebpf::{KernelList, Places, Way};
use Reg::{R1, R2, R3};
use ashway_abi::{Cause, HostCall};

/// Bytes that the loop takes in a turn, and ticks.
const CHUNK: i32 = 64;

impl Emitter<'_> {
    /// [`OpKind::Pipe`](crate::normalise::ir::OpKind::Pipe).
    pub(super) fn pipe(&mut self, call: HostCall, list: u32) -> Result<(), PromoteError> {
        let shape: &Shape<'_> = self.shape;
        let one = &shape.module.pipes.lists[list as usize];
        let kernel = self.kernel_list(one).map_err(|why| PromoteError::Pipe {
            place: Place::new(self.at, &shape.module.lines),
            why,
        })?;
        let way = match call {
            HostCall::PipeRead => Way::Read,
            HostCall::PipeWrite => Way::Write,
            _ => Way::InPlace,
        };
        self.park_all(|this| this.run_list(&kernel, way, one.place(&shape.module.pipes)));
        Ok(())
    }

    fn kernel_list(&self, one: &PipeList) -> Result<KernelList, String> {
        if self.shape.memory == MemoryKind::Array {
            let why = "pipes run over an arena, which takes CAP_PERFMON and Linux 6.9";
            return Err(why.into());
        }
        KernelList::new(&one.list).map_err(|why| why.to_string())
    }

    /// The bounds are those of `msg_write` and `msg_read` (`bulk.rs`), and so is the
    /// time: it is there before the loop begins, as long as there is no more than a
    /// message has.
    fn run_list(&mut self, list: &KernelList, way: Way, registers: u32) {
        if way == Way::InPlace {
            self.operands_into(&[R1, R3]);
            self.asm.mov_imm(R2, 0);
        } else {
            self.operands_into(&[R2, R1, R3]);
            if !bug::is(Bug::PipeKernelOutside) {
                self.check_message_range(R2);
            }
        }
        self.check_memory(R1);
        if way == Way::Write {
            self.mark_dirty();
        }
        self.reserve_ticks(R3, CHUNK, &[R1, R2, R3]);
        let tick = Tick {
            from: self.asm.label(),
            back: self.asm.label(),
        };
        let places = Places {
            registers: self.shape.layout.state_offset() as u32 + registers,
            scratch: PIPES,
            payload: PAYLOAD,
            end: PACKET_END,
            way,
            writes: way != Way::InPlace || !list.list().no_mod(),
            tick: Some((tick.from, tick.back)),
        };
        let trap = self.trap(Cause::MessageBounds);
        let behind = self.asm.label();
        list.emit(self.asm, places, trap);
        self.asm.jump(behind);
        self.slow_tick(tick, &[R1, R2, R3]);
        self.asm.bind(behind);
    }
}
