//! State while code is written: registers, frame, helpers for both widths.

use iced_x86::{Code, Register};

use super::super::ir::Gauge;
use super::super::list::List;
use super::asm::{Arg, Asm, POOL};
use super::table::{self, V};
use super::{CHUNK_BYTES, Cpu, Isa, Options, Step};

/// Vector registers for temporaries; those above are for what stays.
const TEMPORARIES_AVX2: u8 = 10;
const REGISTERS_AVX2: u8 = 16;
const TEMPORARIES_AVX512: u8 = 16;
const REGISTERS_AVX512: u8 = 32;

/// Vectors that can stay in registers during a loop.
pub(in super::super) const fn spare_registers(isa: Isa) -> usize {
    let (all, temporaries) = match isa {
        Isa::Avx2 => (REGISTERS_AVX2, TEMPORARIES_AVX2),
        Isa::Avx512 => (REGISTERS_AVX512, TEMPORARIES_AVX512),
    };
    (all - temporaries) as usize
}

/// Where a vector stays during the loop.
#[derive(Clone, Copy)]
pub(super) enum Home {
    /// A register.
    Register(u8),
    /// The frame, at this offset: there were no registers left.
    Frame(i32),
}

/// No vector register is free.
pub(super) struct Exhausted;

pub(super) struct Emit<'l> {
    pub(super) asm: Asm,
    pub(super) list: &'l List,
    pub(super) steps: &'l [Step],
    pub(super) cpu: Cpu,
    pub(super) options: Options,
    pub(super) writes: bool,
    /// Bit n: vector register n is free for a temporary.
    free: u32,
    next_home: u8,
    frame: i32,
    /// In the frame: a chunk's bytes.
    pub(super) buffer: i32,
    /// In the constants: 64 bytes of ones, 64 of zeros.
    pub(super) ends: i32,
    /// Set while the bytes behind the chunks pass.
    pub(super) tail: bool,
}

impl<'l> Emit<'l> {
    pub(super) fn new(
        list: &'l List,
        steps: &'l [Step],
        cpu: Cpu,
        options: Options,
        writes: bool,
    ) -> Self {
        let mut emit = Self {
            asm: Asm::default(),
            list,
            steps,
            cpu,
            options,
            writes,
            free: 0,
            next_home: 0,
            frame: 0,
            buffer: 0,
            ends: 0,
            tail: false,
        };
        let temporaries = if emit.wide() {
            TEMPORARIES_AVX512
        } else {
            TEMPORARIES_AVX2
        };
        emit.free = (1 << temporaries) - 1;
        emit.next_home = temporaries;
        emit.buffer = emit.room(CHUNK_BYTES);
        let mut ends = [0xff; 128];
        ends[64..].fill(0);
        let Arg::M(_, at) = emit.asm.constant(&ends) else {
            unreachable!("constants are memory");
        };
        emit.ends = at;
        emit
    }

    pub(super) fn wide(&self) -> bool {
        self.cpu.isa == Isa::Avx512
    }

    /// Bytes of a vector.
    pub(super) fn vector_bytes(&self) -> usize {
        if self.wide() { 64 } else { 32 }
    }

    /// Vectors of a chunk.
    pub(super) fn parts(&self) -> usize {
        CHUNK_BYTES / self.vector_bytes()
    }

    /// Room in the frame, at a multiple of 64 from the stack pointer.
    pub(super) fn room(&mut self, bytes: usize) -> i32 {
        let at = self.frame;
        self.frame += bytes.next_multiple_of(64) as i32;
        at
    }

    /// The frame's size.
    pub(super) fn frame_bytes(&self) -> i32 {
        self.frame
    }

    /// A place for a vector that stays.
    pub(super) fn home(&mut self) -> Home {
        match self.spare() {
            Some(register) => Home::Register(register),
            None => Home::Frame(self.room(CHUNK_BYTES)),
        }
    }

    /// A register for what stays, if one is left.
    pub(super) fn spare(&mut self) -> Option<u8> {
        let registers = if self.wide() {
            REGISTERS_AVX512
        } else {
            REGISTERS_AVX2
        };
        let spare = self.next_home < registers;
        self.next_home += u8::from(spare);
        spare.then(|| self.next_home - 1)
    }

    /// A free temporary.
    pub(super) fn take(&mut self) -> Result<u8, Exhausted> {
        if self.free == 0 {
            return Err(Exhausted);
        }
        let register = self.free.trailing_zeros() as u8;
        self.free &= !(1 << register);
        Ok(register)
    }

    /// The same where there always is one: primitives need few, and nothing is
    /// kept from pipe to pipe but the data.
    pub(super) fn temporary(&mut self) -> u8 {
        self.take()
            .unwrap_or_else(|Exhausted| unreachable!("a primitive needs few registers"))
    }

    /// Gives a temporary back.
    pub(super) fn give(&mut self, register: u8) {
        self.free |= 1 << register;
    }

    /// The vector register of that number.
    pub(super) fn v(&self, register: u8) -> Arg {
        Arg::R(vector(self.cpu.isa, register))
    }

    /// Its form in this width.
    pub(super) fn code(&self, v: V) -> Option<Code> {
        if self.wide() { v.z } else { v.y }
    }

    /// Writes an instruction that has this width's form.
    pub(super) fn vop(&mut self, v: V, args: &[Arg]) {
        let code = self.code(v).expect("lanes::possible saw to it");
        self.asm.op(code, args);
    }

    /// destination = left op right
    pub(super) fn v3(&mut self, v: V, destination: u8, left: u8, right: Arg) {
        let args = [self.v(destination), self.v(left), right];
        self.vop(v, &args);
    }

    /// destination = source shifted by a constant
    pub(super) fn vshift(&mut self, v: V, destination: u8, source: u8, bits: u32) {
        let args = [self.v(destination), self.v(source), Arg::I(bits as i32)];
        self.vop(v, &args);
    }

    /// Loads a vector.
    pub(super) fn load(&mut self, register: u8, from: Arg) {
        let args = [self.v(register), from];
        self.vop(table::LOAD, &args);
    }

    /// Stores a vector.
    pub(super) fn store(&mut self, to: Arg, register: u8) {
        let args = [to, self.v(register)];
        self.vop(table::STORE, &args);
    }

    /// The register to change what stays in `home` with; [`Self::release`] writes
    /// it back.
    pub(super) fn acquire(&mut self, home: Home) -> Result<u8, Exhausted> {
        match home {
            Home::Register(register) => Ok(register),
            Home::Frame(at) => {
                let register = self.take()?;
                self.load(register, frame(at));
                Ok(register)
            }
        }
    }

    pub(super) fn release(&mut self, home: Home, register: u8) {
        if let Home::Frame(at) = home {
            self.store(frame(at), register);
            self.give(register);
        }
    }

    /// Adds `operand` to what stays in `home`, or whatever `v` does.
    pub(super) fn accumulate(&mut self, home: Home, v: V, operand: Arg) -> Result<(), Exhausted> {
        let register = self.acquire(home)?;
        self.v3(v, register, register, operand);
        self.release(home, register);
        Ok(())
    }

    /// Sets what stays in `home`.
    pub(super) fn settle(&mut self, home: Home, from: Arg) {
        match home {
            Home::Register(register) => self.load(register, from),
            Home::Frame(at) => {
                let register = self.temporary();
                self.load(register, from);
                self.store(frame(at), register);
                self.give(register);
            }
        }
    }

    /// Memory whose bytes are ones for those of this part that lie before the
    /// end, rounded to whole words (up, or down), and zeros for the others. Uses
    /// `r8`.
    pub(super) fn before_end(&mut self, part: usize, gauge: Gauge, up: bool) -> Arg {
        self.rounded_tail(Register::R8, gauge, up);
        self.asm.op(Code::Neg_rm64, &[Arg::R(Register::R8)]);
        let at = self.ends + 64 + (part * self.vector_bytes()) as i32;
        Arg::X(POOL, Register::R8, at)
    }

    /// Bytes behind the chunks, rounded to whole words.
    pub(super) fn rounded_tail(&mut self, into: Register, gauge: Gauge, up: bool) {
        let bytes = gauge.bytes() as i32;
        let add = if up { bytes - 1 } else { 0 };
        self.asm
            .op(Code::Lea_r64_m, &[Arg::R(into), Arg::M(Register::R11, add)]);
        if bytes > 1 {
            self.asm
                .op(Code::And_rm64_imm8, &[Arg::R(into), Arg::I(-bytes)]);
        }
    }

    /// Folds a vector of lanes into `rax`: the halves are combined by `v` until
    /// one lane is left. Uses two temporaries beside `register`, which is lost.
    pub(super) fn horizontal(&mut self, v: V, register: u8, lane: Gauge) {
        let other = self.temporary();
        let (x, y) = (Register::XMM0, Register::YMM0);
        let xmm = |n: u8| Arg::R(x + u32::from(n));
        let ymm = |n: u8| Arg::R(y + u32::from(n));
        let mut from = register;
        let low = self.temporary();
        if self.wide() {
            let zmm = self.v(from);
            // The low half of a register above 15 is out of reach for VEX.
            self.asm
                .op(Code::EVEX_Vmovdqu64_zmm_k1z_zmmm512, &[self.v(low), zmm]);
            self.asm.op(
                Code::EVEX_Vextracti64x4_ymmm256_k1z_zmm_imm8,
                &[ymm(other), zmm, Arg::I(1)],
            );
            from = low;
            // 256-bit minima of 64 bits have no VEX form: combine at 512.
            let args = [self.v(low), self.v(from), self.v(other)];
            self.vop(v, &args);
        }
        self.asm.op(
            Code::VEX_Vextracti128_xmmm128_ymm_imm8,
            &[xmm(other), ymm(from), Arg::I(1)],
        );
        let code = v.x.expect("lanes::possible saw to it");
        self.asm.op(code, &[xmm(low), xmm(from), xmm(other)]);
        for bytes in [8, 4, 2, 1] {
            if bytes < lane.bytes() {
                break;
            }
            let by = Arg::I(bytes as i32);
            self.asm
                .op(Code::VEX_Vpsrldq_xmm_xmm_imm8, &[xmm(other), xmm(low), by]);
            self.asm.op(code, &[xmm(low), xmm(low), xmm(other)]);
        }
        self.asm
            .op(Code::VEX_Vmovq_rm64_xmm, &[Arg::R(Register::RAX), xmm(low)]);
        match lane {
            Gauge::Bits8 => self.gpr2(Code::Movzx_r32_rm8, Register::EAX, Register::AL),
            Gauge::Bits16 => self.gpr2(Code::Movzx_r32_rm16, Register::EAX, Register::AX),
            Gauge::Bits32 => self.gpr2(Code::Mov_r32_rm32, Register::EAX, Register::EAX),
            Gauge::Bits64 | Gauge::Bits128 => {}
        }
        self.give(other);
        self.give(low);
    }

    /// Widens lanes of 32 bits to sums of two in lanes of 64.
    pub(super) fn widen(&mut self, register: u8) {
        let other = self.temporary();
        self.vshift(table::RIGHT[3], other, register, 32);
        let low = self.asm.lanes(0xffff_ffff_u64.to_le_bytes());
        self.v3(table::AND, register, register, low);
        let other_arg = self.v(other);
        self.v3(table::ADD[3], register, register, other_arg);
        self.give(other);
    }

    pub(super) fn gpr_to_xmm(&mut self, to: Register, from: Register) {
        self.gpr2(Code::VEX_Vmovd_xmm_rm32, to, from);
    }

    pub(super) fn xmm_to_gpr(&mut self, to: Register, from: Register) {
        self.gpr2(Code::VEX_Vmovq_rm64_xmm, to, from);
    }

    pub(super) fn gpr2(&mut self, code: Code, to: Register, from: Register) {
        self.asm.op(code, &[Arg::R(to), Arg::R(from)]);
    }

    /// The persistent register `index` of the list.
    pub(super) fn persistent(index: usize) -> Arg {
        Arg::M(Register::RDI, index as i32 * 8)
    }
}

/// Memory in the frame.
pub(super) fn frame(at: i32) -> Arg {
    Arg::M(Register::RSP, at)
}

/// The vector register of that number.
pub(super) fn vector(isa: Isa, register: u8) -> Register {
    match isa {
        Isa::Avx2 => Register::YMM0 + u32::from(register),
        Isa::Avx512 => Register::ZMM0 + u32::from(register),
    }
}

/// The number of a gauge's lanes in the tables.
pub(super) const fn lane(gauge: Gauge) -> usize {
    gauge.bytes().trailing_zeros() as usize
}
