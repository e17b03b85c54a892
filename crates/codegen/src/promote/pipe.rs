//! Runs of lists of pipes: the fused loop in the middle of a handler.
//!
//! The loop takes every register there is, so that all locals wait in their slots.
//! What it keeps beside them lies in the context in front of the frames.

use super::Shape;
use super::bulk::HELPER_CHUNK;
use super::emitter::Emitter;
use super::error::{CodePlace, PromoteError};
use super::frame::PIPES;
use super::memory::ARRAY_BASE;
use super::message::{MD, PACKET_END, PAYLOAD};
use super::tick::Tick;
use crate::bug::{self, Bug};
use crate::pipe::ebpf::{CopyPlaces, KernelList, MemoryAt, Transfer};
use Reg::{R0, R1, R2, R3, R9};
use ashway_abi::MemoryKind;
use ashway_abi::{Cause, HostCall, context};
use ashway_check::bpf::{Reg, Size, op};

/// Bytes that the loop takes in a turn, and ticks.
const CHUNK: i32 = 64;

impl Emitter<'_> {
    /// [`OpKind::Pipe`](crate::normalise::ir::OpKind::Pipe).
    pub(super) fn pipe(&mut self, call: HostCall, list: u32) -> Result<(), PromoteError> {
        let shape: &Shape<'_> = self.shape;
        let one = &shape.module.pipes.lists[list as usize];
        let kernel = KernelList::new(&one.list).map_err(|why| PromoteError::Pipe {
            place: CodePlace::new(self.at, &shape.module.lines),
            why: why.to_string(),
        })?;
        let way = match call {
            HostCall::PipeRead => Transfer::Read,
            HostCall::PipeWrite => Transfer::Write,
            _ => Transfer::InPlace,
        };
        self.park_all(|this| this.run_list(&kernel, way, one.place(&shape.module.pipes)));
        Ok(())
    }

    /// The bounds are those of `msg_write` and `msg_read` (`bulk.rs`), and so is the
    /// time: it is there before the loop begins, as long as there is no more than a
    /// message has.
    fn run_list(&mut self, list: &KernelList, way: Transfer, registers: u32) {
        if way == Transfer::InPlace {
            self.operands_into(&[R1, R3]);
            self.asm.mov_imm(R2, 0);
        } else {
            self.operands_into(&[R2, R1, R3]);
            if !bug::is(Bug::PipeKernelOutside) {
                self.check_message_range(R2);
            }
        }
        self.check_memory(R1);
        if way == Transfer::Write {
            self.mark_dirty();
        }
        let (way, memory) = match self.shape.memory {
            MemoryKind::Arena => {
                self.reserve_ticks(R3, CHUNK, &[R1, R2, R3]);
                (way, MemoryAt::Arena)
            }
            MemoryKind::Array => (self.read_in(way), self.array()),
        };
        let tick = Tick {
            from: self.asm.label(),
            back: self.asm.label(),
        };
        let places = CopyPlaces {
            registers: self.shape.layout.state_offset() as u32 + registers,
            scratch: PIPES,
            payload: PAYLOAD,
            end: PACKET_END,
            way,
            memory,
            writes: way != Transfer::InPlace || !list.list().no_mod(),
            tick: Some((tick.from, tick.back)),
        };
        let trap = self.trap(Cause::MessageBounds);
        let behind = self.asm.label();
        list.emit(self.asm, places, trap);
        self.asm.jump(behind);
        self.slow_tick(tick, &[R1, R2, R3]);
        self.asm.bind(behind);
    }

    fn array(&self) -> MemoryAt {
        MemoryAt::Array {
            base: ARRAY_BASE,
            bytes: self.shape.maximum_bytes() as u32,
            md: MD,
        }
    }

    /// Over an array, where no packet pointer moves: what is read is brought to memory
    /// first, and passes there. The time for both is there before either begins.
    fn read_in(&mut self, way: Transfer) -> Transfer {
        if way != Transfer::Read {
            self.reserve_ticks(R3, CHUNK, &[R1, R2, R3]);
            return way;
        }
        self.asm.alu_imm(op::LSH, R3, 1);
        self.reserve_ticks(R3, 2 * HELPER_CHUNK as i32 + CHUNK, &[R1, R2, R3]);
        self.asm.alu_imm(op::RSH, R3, 1);
        let kept = [(R1, PIPES), (R3, PIPES + 8)];
        for (register, at) in kept {
            self.asm.store(Size::D, R9, at, register);
        }
        self.asm.load(Size::W, R0, R9, context::PAYLOAD_OFF);
        self.asm.alu(op::ADD, R2, R0);
        self.copy_by_helper(false);
        for (register, at) in kept {
            self.asm.load(Size::D, register, R9, at);
        }
        self.asm.mov_imm(R2, 0);
        Transfer::InPlace
    }
}
