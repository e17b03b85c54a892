//! Lists of pipes in the kernel tier: fused into the copy between a message and memory.
//!
//! A register of 64 bits is a vector of small lanes. One loop over chunks of 64
//! bytes, as bulk copies have it; each word of 8 bytes passes all pipes between its
//! load and its store. What has no form here, [`NoKernelForm`] names: pipes that are
//! not commutative, tables, comparisons, and ciphers.
//!
//! | register | holds |
//! | --- | --- |
//! | `r1`, `r2`, `r3` | next byte of memory and message, bytes left; values inside a chunk, if bodies need them |
//! | `r4`, `r5` | the chunk in memory and in the packet |
//! | `r6`, `r7`, `r8` | what the first three reductions have so far; values |
//! | `r9` | the context; frames of ours at [`Places::scratch`] |
//!
//! Over a map's value ([`MemoryAt::Array`]) no pointer into the packet moves: what is
//! written goes to the message by a helper, a chunk at a time, and what is read has to
//! be in memory before ([`Way::InPlace`]).

mod lanes;
pub mod trial;

use super::ir::{Binary, Gauge, Op, Pipe, Reduce, Update};
use super::list::{End, Form, List};
use crate::bpf::{Assembler, Label, Reg, Size, helper, op};
use crate::bug::{self, Bug};
use Reg::{R0, R1, R2, R3, R4, R5, R9, R10};
use ashway_abi::context;
use lanes::{Home, Lanes};

/// Most persistent registers of a list.
const MAX_REGISTERS: usize = 64;

/// Bytes of the context that a copy uses at [`Places::scratch`].
pub const SCRATCH_BYTES: usize = 8 * (SLOTS + MAX_REGISTERS) + CHUNK as usize;

/// Words of the scratch: `r1` to `r3` while they hold values, the length, the bytes
/// of a partial word; behind them what is kept for the list's registers, and a chunk on
/// its way to the message.
const SAVED: [(Reg, i16); 3] = [(R1, 0), (R2, 8), (R3, 16)];
const LEN: i16 = 24;
const PARTIAL: i16 = 32;
const SLOTS: usize = 5;
const STAGE: i16 = 8 * (SLOTS + MAX_REGISTERS) as i16;

/// Bytes of a message that an offset can reach: the verifier adds up offsets only
/// below 64 KiB (`MAX_PACKET_OFF`), headers included.
const MOST: i32 = 0xfe00;

/// Bytes of a turn of the loop.
const CHUNK: u32 = 64;

/// A pipe that the kernel tier cannot run; the user tier can.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{pipe}` has no form in the kernel tier: {why}")]
pub struct NoKernelForm {
    /// The pipe's name in the list.
    pub pipe: String,
    /// What is missing.
    pub why: &'static str,
}

/// Where a copy finds what it works on.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    /// Address in memory of the list's registers, 8 bytes each.
    pub registers: u32,
    /// Offset in the context of [`SCRATCH_BYTES`] bytes.
    pub scratch: i16,
    /// Stack slot of the packet pointer to the message.
    pub payload: i16,
    /// Stack slot of the packet's end.
    pub end: i16,
    /// From where to where.
    pub way: Way,
    /// What memory is made of.
    pub memory: MemoryAt,
    /// Whether anything is written to memory but the registers. A list that modifies
    /// nothing may only read the message.
    pub writes: bool,
    /// Where a turn of the loop that has used its ticks up goes, and where that comes
    /// back to, with `r1` to `r3` and `r6` to `r8` as they were. Without, only the
    /// kernel's own bound ends the loop.
    pub tick: Option<(Label, Label)>,
}

/// How memory is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryAt {
    /// An arena: an address becomes a pointer by a cast.
    Arena,
    /// A map's value, in a program without `CAP_PERFMON`: the verifier sees each address
    /// compared.
    Array {
        /// Stack slot of the value's address.
        base: i16,
        /// Bytes that addresses can reach, not less than a chunk.
        bytes: u32,
        /// Stack slot of the `xdp_md` pointer.
        md: i16,
    },
}

/// From where to where data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the message to memory; an arena.
    Read,
    /// From memory to the message.
    Write,
    /// From memory to where it was.
    InPlace,
}

/// A list that has a form in the kernel tier.
#[derive(Clone, Debug)]
pub struct KernelList {
    list: List,
    /// Whether values need the registers of the loop.
    saves: bool,
}

impl KernelList {
    /// Looks whether every pipe has a form, by writing it. Linear in the list.
    ///
    /// # Errors
    ///
    /// [`NoKernelForm`] names the first pipe that has none.
    pub fn new(list: &List) -> Result<Self, NoKernelForm> {
        let refuse = |pipe: &str, why| NoKernelForm {
            pipe: pipe.to_owned(),
            why,
        };
        for placed in list.pipes() {
            missing(&placed.pipe).map_or(Ok(()), |why| Err(refuse(&placed.name, why)))?;
            if placed.first_register + placed.pipe.registers().len() > MAX_REGISTERS {
                let why = "the list has more than 64 registers";
                return Err(refuse(&placed.name, why));
            }
        }
        let places = Places {
            registers: 0,
            scratch: context::FRAMES,
            payload: -8,
            end: -16,
            way: Way::Read,
            memory: MemoryAt::Arena,
            writes: true,
            tick: None,
        };
        let needs = |saves, tail| {
            let mut asm = Assembler::new();
            let trap = asm.label();
            let word = Copy::new(&mut asm, list, places, trap, saves).word(tail);
            word.err()
        };
        if let Some(at) = needs(true, false).or_else(|| needs(true, true)) {
            let why = "eBPF has too few registers for its body";
            return Err(refuse(&list.pipes()[at].name, why));
        }
        let this = Self {
            list: list.clone(),
            saves: needs(false, false).is_some(),
        };
        Ok(this)
    }

    /// What it was made of.
    #[must_use]
    pub const fn list(&self) -> &List {
        &self.list
    }

    /// Writes the copy of `r3` bytes between the message, at index `r2`, and memory, at
    /// address `r1`. Both ranges and the registers' place have been checked; `r9` is
    /// the context. Jumps to `trap` where the verifier wants to see that something
    /// cannot be. Clobbers `r0` to `r8`.
    ///
    /// # Panics
    ///
    /// Never: [`KernelList::new`] has written it before.
    pub fn emit(&self, asm: &mut Assembler, places: Places, trap: Label) {
        let mut copy = Copy::new(asm, &self.list, places, trap, self.saves);
        copy.begin();
        copy.chunks();
        copy.partial();
        copy.finish();
    }
}

/// Why a pipe has no form at all.
fn missing(pipe: &Pipe) -> Option<&'static str> {
    if pipe.primitive().is_some() {
        return Some("it is a CRC, Adler-32 or a cipher");
    }
    if !pipe.commutative() {
        return Some("it is not commutative");
    }
    if pipe.width() != pipe.gauge() {
        return Some("it computes with more bits than its words have");
    }
    let wide = pipe.gauge() == Gauge::Bits64;
    let hard = pipe.ops().iter().any(|op| match op {
        Op::Binary(Binary::Mul, ..) => !wide,
        Op::Table(_)
        | Op::ShiftBy(..)
        | Op::Count(..)
        | Op::Select(..)
        | Op::Binary(Binary::Min | Binary::Max | Binary::Equal | Binary::Below, ..) => true,
        _ => false,
    });
    if hard {
        return Some(
            "it multiplies, compares, counts bits, shifts by a value or looks into a table",
        );
    }
    let least =
        |(_, update): &(_, Update)| matches!(update, Update::Reduce(Reduce::Min | Reduce::Max, _));
    let least = pipe.updates().iter().any(least);
    least.then_some("it keeps the least or the greatest word")
}

/// The state while a copy is written.
struct Copy<'c> {
    asm: &'c mut Assembler,
    list: &'c List,
    places: Places,
    trap: Label,
    homes: Vec<Home>,
    /// Whether values may be in `r1` to `r3` inside a chunk.
    saves: bool,
    /// Bit n: register n is free inside a chunk, those three aside.
    free: u16,
}

impl<'c> Copy<'c> {
    fn new(
        asm: &'c mut Assembler,
        list: &'c List,
        places: Places,
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
        self.places.way == Way::Write && self.places.memory != MemoryAt::Arena
    }

    fn slot(&self, at: i16) -> i16 {
        self.places.scratch + at
    }

    /// Registers into the form they have, accumulators to nothing, parameters to all
    /// lanes.
    fn begin(&mut self) {
        let len = self.slot(LEN);
        self.asm.store(Size::D, R9, len, R3);
        self.registers_pointer();
        for (index, form) in self.list.forms() {
            let at = (index * 8) as i16;
            self.asm.load(Size::D, R0, R4, at);
            match form {
                Form::Masked(mask) => self.and(R0, *mask),
                Form::Folded => self.fold(),
                // Adler's, which has no form here.
                Form::Reduced => {}
            }
            self.asm.store(Size::D, R4, at, R0);
        }
        for placed in self.list.pipes() {
            for index in 0..placed.pipe.registers().len() {
                let place = placed.first_register + index;
                let home = self.homes[place];
                let updates = placed.pipe.updates();
                if updates.iter().any(|(id, _)| id.index() == index) {
                    // A zero that the verifier does not know.
                    self.asm.load(Size::D, R0, R9, context::ZERO);
                } else {
                    self.asm.load(Size::D, R0, R4, (place * 8) as i16);
                    self.replicate(placed.pipe.gauge());
                }
                match home {
                    Home::Register(register) => self.asm.mov(register, R0),
                    Home::Pair { all, high } => {
                        self.asm.mov(all, R0);
                        self.asm.mov(high, R0);
                    }
                    Home::Slot(at) => self.asm.store(Size::D, R9, at, R0),
                }
            }
        }
        // The first turn must look like any other.
        self.asm.load(Size::D, R0, R9, context::ZERO);
        for register in [R1, R2, R3] {
            self.asm.alu32(op::XOR, register, R0);
        }
    }

    /// `r4` = the list's registers in memory.
    fn registers_pointer(&mut self) {
        let registers = self.places.registers as i32;
        match self.places.memory {
            MemoryAt::Arena => {
                self.asm.alu32_imm(op::MOV, R4, registers);
                self.asm.arena_cast(R4, R4);
            }
            MemoryAt::Array { base, .. } => {
                self.asm.load(Size::D, R4, R10, base);
                self.asm.alu_imm(op::ADD, R4, registers);
            }
        }
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

    /// `r0` in every lane. Clobbers `r5`.
    fn replicate(&mut self, gauge: Gauge) {
        self.and(R0, gauge.mask());
        let mut bits = gauge.bits();
        while bits < 64 {
            self.asm.mov(R5, R0);
            self.asm.alu_imm(op::LSH, R5, bits as i32);
            self.asm.alu(op::OR, R0, R5);
            bits *= 2;
        }
    }

    /// `register` &= `mask`. Clobbers `r5`.
    fn and(&mut self, register: Reg, mask: u64) {
        match mask {
            u64::MAX => {}
            0xffff_ffff => self.asm.alu32(op::MOV, register, register),
            _ => {
                self.asm.load_imm(R5, mask);
                self.asm.alu(op::AND, register, R5);
            }
        }
    }

    /// `r0` = its ones' complement sum of 16 bits. Clobbers `r5`.
    fn fold(&mut self) {
        // 64 bits, then 33, 33, 17, 17, 16.
        for bits in [32, 32, 16, 16, 16] {
            self.asm.mov(R5, R0);
            self.asm.alu_imm(op::RSH, R5, bits);
            if bits == 32 {
                self.asm.alu32(op::MOV, R0, R0);
            } else {
                self.asm.alu_imm(op::AND, R0, 0xffff);
            }
            self.asm.alu(op::ADD, R0, R5);
        }
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
    fn chunks(&mut self) {
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
        if self.places.way != Way::InPlace && !stages {
            self.packet(bytes);
        }
        self.memory(R4, R0, bytes);
        let (from, to, first) = match self.places.way {
            Way::Read => (R5, R4, 0),
            Way::Write if stages => (R4, R9, self.slot(STAGE)),
            Way::Write => (R4, R5, 0),
            Way::InPlace => (R4, R4, 0),
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
    fn word(&mut self, tail: bool) -> Result<Reg, usize> {
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
    fn partial(&mut self) {
        let done = self.asm.label();
        self.asm.jump32_if_imm(op::JEQ, R3, 0, done);
        let partial = self.slot(PARTIAL);
        self.asm.store(Size::D, R9, partial, R3);
        self.save();
        self.asm.mov_imm(R0, 0);
        let pieces = [(4, Size::W), (2, Size::H), (1, Size::B)];
        for (bytes, size) in pieces {
            self.piece(bytes, |this| {
                let next = this.side(this.places.way == Way::Read, bytes);
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
                let next = this.side(this.places.way == Way::Write, bytes);
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

    /// Accumulators into the list's registers.
    fn finish(&mut self) {
        self.registers_pointer();
        for placed in self.list.pipes() {
            for (id, update) in placed.pipe.updates() {
                let place = placed.first_register + id.index();
                let Update::Reduce(how, _) = *update else {
                    continue;
                };
                match self.homes[place] {
                    Home::Register(register) => self.asm.mov(R0, register),
                    Home::Pair { all, high } => {
                        // All, less the high halves where they were: the low ones.
                        self.asm.mov(R0, all);
                        self.asm.mov(R5, high);
                        self.asm.alu_imm(op::LSH, R5, 32);
                        self.asm.alu(op::SUB, R0, R5);
                        self.asm.alu(op::ADD, R0, high);
                    }
                    Home::Slot(at) => self.asm.load(Size::D, R0, R9, at),
                }
                self.combine(how, placed.pipe.gauge(), (place * 8) as i16);
            }
        }
        for (index, end) in self.list.ends() {
            let at = (index * 8) as i16;
            self.asm.load(Size::D, R0, R4, at);
            match end {
                End::Masked(mask) => self.and(R0, *mask),
                End::Rolled(gauge) => self.roll(*gauge),
            }
            self.asm.store(Size::D, R4, at, R0);
        }
    }

    /// `r0`'s lanes into the register at `r4` plus `at`. Clobbers `r0` and `r5`.
    fn combine(&mut self, how: Reduce, gauge: Gauge, at: i16) {
        let operation = match how {
            Reduce::Sum | Reduce::Ones => op::ADD,
            Reduce::Or => op::OR,
            _ => op::XOR,
        };
        if operation != op::ADD {
            let mut bits = 32;
            while bits >= gauge.bits() {
                self.asm.mov(R5, R0);
                self.asm.alu_imm(op::RSH, R5, bits as i32);
                self.asm.alu(operation, R0, R5);
                bits /= 2;
            }
            self.and(R0, gauge.mask());
        }
        self.asm.load(Size::D, R5, R4, at);
        if bug::is(Bug::PipeKernelRegistersLost) {
            return;
        }
        self.asm.alu(operation, R0, R5);
        if how == Reduce::Ones {
            self.fold();
        }
        self.asm.store(Size::D, R4, at, R0);
    }

    /// `r0` = `r0` turned right by the length. Clobbers `r1`, `r2`, `r5`.
    fn roll(&mut self, gauge: Gauge) {
        let len = self.slot(LEN);
        self.asm.load(Size::D, R1, R9, len);
        self.asm.alu_imm(op::AND, R1, gauge.bytes() as i32 - 1);
        self.asm.alu_imm(op::LSH, R1, 3);
        self.asm.mov(R2, R0);
        self.asm.alu(op::RSH, R2, R1);
        // By 64 is by 0, which a key of 64 bits that is not turned does not mind.
        self.asm.mov_imm(R5, gauge.bits() as i32);
        self.asm.alu(op::SUB, R5, R1);
        self.asm.alu(op::LSH, R0, R5);
        self.asm.alu(op::OR, R0, R2);
        self.and(R0, gauge.mask());
    }
}
