//! The loop that copies.

use super::super::ir::Update;
use super::super::list::List;
use super::lanes::{self, Home, Lanes};
use super::{CopyPlaces, MAX_REGISTERS, MemoryAt, Transfer};
use crate::bug::{self, Bug};
use Reg::{R0, R1, R2, R3, R4, R5, R9, R10};
use ashway_abi::context;
use ashway_check::bpf::{Assembler, Label, Reg, Size, helper, op};

/// Words of the scratch: `r1` to `r3` while they hold values, the length, the bytes
/// of a partial word; behind them what is kept for the list's registers, and a chunk on
/// its way to the message.
const SAVED: [(Reg, i16); 3] = [(R1, 0), (R2, 8), (R3, 16)];
pub(super) const LEN: i16 = 24;
const PARTIAL: i16 = 32;
pub(super) const SLOTS: usize = 5;
const STAGE: i16 = 8 * (SLOTS + MAX_REGISTERS) as i16;

/// Bytes of a message that an offset can reach: the verifier adds up offsets only
/// below 64 KiB (`MAX_PACKET_OFF`), headers included.
const MOST: i32 = 0xfe00;

/// Bytes of a turn of the loop.
pub(super) const CHUNK: u32 = 64;

/// The state while a copy is written.
pub(super) struct Copy<'c> {
    pub(super) asm: &'c mut Assembler,
    pub(super) list: &'c List,
    pub(super) places: CopyPlaces,
    trap: Label,
    pub(super) homes: Vec<Home>,
    /// Whether values may be in `r1` to `r3` inside a chunk.
    saves: bool,
    /// Bit n: register n is free inside a chunk, those three aside.
    free: u16,
}

impl<'c> Copy<'c> {
    pub(super) fn new(
        asm: &'c mut Assembler,
        list: &'c List,
        places: CopyPlaces,
        trap: Label,
        saves: bool,
    ) -> Self {
        let mut accumulators = [Reg::R8, Reg::R7, Reg::R6].into_iter();
        let slot = |index: usize| places.scratch + (8 * (SLOTS + index)) as i16;
        let mut homes = Vec::new();
        for placed in list.pipes() {
            for index in 0..placed.pipe.registers().len() {
                let mut updates = placed.pipe.updates().iter();
                let update = updates.find(|(id, _)| id.index() == index);
                let home = match update {
                    None => None,
                    Some((_, Update::Reduce(how, _)))
                        if lanes::in_halves(*how, placed.pipe.gauge())
                            && accumulators.len() >= 2 =>
                    {
                        let two = accumulators.next().zip(accumulators.next());
                        two.map(|(all, high)| Home::Pair { all, high })
                    }
                    Some(_) => accumulators.next().map(Home::Register),
                };
                let at = slot(placed.first_register + index);
                homes.push(home.unwrap_or(Home::Slot(at)));
            }
        }
        let mut free = 1 << R0 as u16;
        for register in accumulators {
            free |= 1 << register as u16;
        }
        Self {
            asm,
            list,
            places,
            trap,
            homes,
            saves,
            free,
        }
    }

    /// Whether chunks go to the message by a helper.
    fn stages(&self) -> bool {
        self.places.way == Transfer::Write && self.places.memory != MemoryAt::Arena
    }

    pub(super) fn slot(&self, at: i16) -> i16 {
        self.places.scratch + at
    }

    /// `into` = the memory at address `r1`, where there are `bytes` bytes. Clobbers
    /// `scratch`.
    fn memory(&mut self, into: Reg, scratch: Reg, bytes: u32) {
        match self.places.memory {
            MemoryAt::Arena => self.asm.arena_cast(into, R1),
            MemoryAt::Array {
                base, bytes: all, ..
            } => {
                // What the verifier knows of an address must not depend on the way that
                // led here (`promote/memory.rs`).
                self.asm.load(Size::W, scratch, R9, context::ZERO);
                self.asm.alu32(op::XOR, scratch, R1);
                let most = all.saturating_sub(bytes) as i32;
                self.asm.jump32_if_imm(op::JGT, scratch, most, self.trap);
                self.asm.load(Size::D, into, R10, base);
                self.asm.alu(op::ADD, into, scratch);
            }
        }
    }

    /// A staged chunk goes to the message, `before` bytes in front of where `r2` was
    /// when it was saved. `r4` says how many. Clobbers `r0` to `r5`.
    fn send(&mut self, before: u32) {
        let MemoryAt::Array { md, .. } = self.places.memory else {
            return;
        };
        let [index, stage] = [SAVED[1].1, STAGE].map(|at| self.slot(at));
        self.asm.load(Size::D, R2, R9, index);
        self.asm.alu32_imm(op::SUB, R2, before as i32);
        self.asm.load(Size::W, R0, R9, context::PAYLOAD_OFF);
        self.asm.alu(op::ADD, R2, R0);
        self.asm.mov(R3, R9);
        self.asm.alu_imm(op::ADD, R3, i32::from(stage));
        self.asm.load(Size::D, R1, R10, md);
        self.asm.call(helper::XDP_STORE_BYTES);
        self.asm.jump_if_imm(op::JNE, R0, 0, self.trap);
    }

    /// `r5` = the packet at index `r2`, where the verifier knows of `bytes` bytes.
    /// Clobbers `r4`.
    fn packet(&mut self, bytes: u32) {
        self.asm.jump_if_imm(op::JGT, R2, MOST, self.trap);
        self.asm.load(Size::D, R5, R10, self.places.payload);
        self.asm.alu(op::ADD, R5, R2);
        self.asm.alu_imm(op::ADD, R5, bytes as i32);
        self.asm.load(Size::D, R4, R10, self.places.end);
        self.asm.jump_if(op::JGT, R5, R4, self.trap);
        self.asm.alu_imm(op::SUB, R5, bytes as i32);
    }

    fn save(&mut self) {
        for (register, at) in SAVED {
            let at = self.slot(at);
            self.asm.store(Size::D, R9, at, register);
        }
    }

    fn restore(&mut self) {
        for (register, at) in SAVED {
            let at = self.slot(at);
            self.asm.load(Size::D, register, R9, at);
        }
    }

    /// Whole words: a loop over chunks, then what is left of one without a loop.
    pub(super) fn chunks(&mut self) {
        let small = self.asm.label();
        let head = self.asm.here();
        self.asm.jump32_if_imm(op::JLT, R3, CHUNK as i32, small);
        self.asm.may_goto(self.trap);
        if let Some((spent, back)) = self.places.tick {
            self.asm.load(Size::D, R0, R9, context::BULK);
            let free = bug::is(Bug::PipeKernelTickFree);
            self.asm
                .alu_imm(op::SUB, R0, if free { 0 } else { CHUNK as i32 });
            self.asm.store(Size::D, R9, context::BULK, R0);
            self.asm.jump_if_imm(op::JSLT, R0, 0, spent);
            self.asm.bind(back);
        }
        self.words(CHUNK);
        self.asm.jump(head);
        self.asm.bind(small);
        for bytes in [32, 16, 8] {
            let smaller = self.asm.label();
            self.asm.jump32_if_imm(op::JLT, R3, bytes as i32, smaller);
            self.words(bytes);
            self.asm.bind(smaller);
        }
    }

    /// `bytes` bytes, all there.
    fn words(&mut self, bytes: u32) {
        let stages = self.stages();
        if self.places.way != Transfer::InPlace && !stages {
            self.packet(bytes);
        }
        self.memory(R4, R0, bytes);
        let (from, to, first) = match self.places.way {
            Transfer::Read => (R5, R4, 0),
            Transfer::Write if stages => (R4, R9, self.slot(STAGE)),
            Transfer::Write => (R4, R5, 0),
            Transfer::InPlace => (R4, R4, 0),
        };
        for (register, operation) in [(R1, op::ADD), (R2, op::ADD), (R3, op::SUB)] {
            self.asm.alu32_imm(operation, register, bytes as i32);
        }
        let saves = self.saves || stages;
        if saves {
            self.save();
        }
        for at in (0..bytes as i16).step_by(8) {
            self.asm.load(Size::D, R0, from, at);
            let given = self.word(false);
            let given = given.unwrap_or_else(|_| unreachable!("`new` has written it"));
            if self.places.writes {
                self.asm.store(Size::D, to, first + at, given);
            }
        }
        if stages {
            self.asm.mov_imm(R4, bytes as i32);
            self.send(bytes);
        }
        if saves {
            self.restore();
        }
    }

    /// The word in `r0` passes all pipes; gives the register of what comes out. An
    /// error is the number of a pipe that needs more registers than there are.
    pub(super) fn word(&mut self, tail: bool) -> Result<Reg, usize> {
        let partial = tail.then(|| self.slot(PARTIAL));
        let mut data = R0;
        let mut free = self.free & !(1 << data as u16);
        if tail || self.saves {
            free |= SAVED.iter().fold(0, |all, (reg, _)| all | 1 << *reg as u16);
        }
        for (at, placed) in self.list.pipes().iter().enumerate() {
            let homes = &self.homes[placed.first_register..];
            let mut lanes = Lanes::new(self.asm, &placed.pipe, homes, free, partial);
            (data, free) = lanes.pass(data).map_err(|lanes::Exhausted| at)?;
        }
        Ok(data)
    }

    /// Fewer than 8 bytes, with zeros behind them.
    pub(super) fn partial(&mut self) {
        let done = self.asm.label();
        self.asm.jump32_if_imm(op::JEQ, R3, 0, done);
        let partial = self.slot(PARTIAL);
        self.asm.store(Size::D, R9, partial, R3);
        self.save();
        self.asm.mov_imm(R0, 0);
        let pieces = [(4, Size::W), (2, Size::H), (1, Size::B)];
        for (bytes, size) in pieces {
            self.piece(bytes, |this| {
                let next = this.side(this.places.way == Transfer::Read, bytes);
                this.asm.load(size, R4, R5, 0);
                // Behind the greater pieces.
                this.asm.mov(R5, R3);
                this.asm.alu_imm(op::AND, R5, 7 & !(2 * bytes - 1));
                this.asm.alu_imm(op::LSH, R5, 3);
                this.asm.alu(op::LSH, R4, R5);
                this.asm.alu(op::OR, R0, R4);
                this.asm.alu32_imm(op::ADD, next, bytes);
            });
        }
        let given = self.word(true);
        let given = given.unwrap_or_else(|_| unreachable!("`new` has written it"));
        if given != R0 {
            self.asm.mov(R0, given);
        }
        if self.stages() {
            let [stage, left] = [STAGE, SAVED[2].1].map(|at| self.slot(at));
            self.asm.store(Size::D, R9, stage, R0);
            self.asm.load(Size::D, R4, R9, left);
            self.asm.alu_imm(op::AND, R4, 7);
            // Of "not 0" the verifier of Linux 6.1 makes no lower bound.
            self.asm.jump_if_imm(op::JLT, R4, 1, done);
            if !bug::is(Bug::PipeKernelEndKept) {
                self.send(0);
            }
            self.asm.bind(done);
            return;
        }
        self.restore();
        for (bytes, size) in pieces {
            if !self.places.writes {
                break;
            }
            self.piece(bytes, |this| {
                let next = this.side(this.places.way == Transfer::Write, bytes);
                this.asm.store(size, R5, 0, R0);
                this.asm.alu_imm(op::RSH, R0, bytes * 8);
                this.asm.alu32_imm(op::ADD, next, bytes);
            });
        }
        self.asm.bind(done);
    }

    /// `r5` = the message's next byte or the memory's; gives what counts them. Clobbers
    /// `r4`.
    fn side(&mut self, message: bool, bytes: i32) -> Reg {
        if message {
            self.packet(bytes as u32);
            R2
        } else {
            self.memory(R5, R4, bytes as u32);
            R1
        }
    }

    /// What is done if `r3` has the bit `bytes`.
    fn piece(&mut self, bytes: i32, write: impl FnOnce(&mut Self)) {
        let (there, not) = (self.asm.label(), self.asm.label());
        self.asm.jump32_if_imm(op::JSET, R3, bytes, there);
        self.asm.jump(not);
        self.asm.bind(there);
        write(self);
        self.asm.bind(not);
    }
}
