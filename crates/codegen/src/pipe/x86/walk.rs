//! The function around the pipes: loops, loads and stores, the bytes behind the
//! last chunk.

use iced_x86::{Code, Register};

use super::super::ir::Gauge;
use super::super::primitive::Primitive;
use super::asm::{Arg, Label, POOL, Pin};
use super::emit::{Emit, Exhausted, frame, vector};
use super::lanes::{self, Homes};
use super::{CHUNK_BYTES, Direction, Layout, Strategy, adler, cipher, crc, order, table};
use crate::bug::{self, Bug};

/// Vector instructions in a turn of the loop beyond which it is not unrolled
/// further.
const TURN_OPS: usize = 48;
/// Most chunks in one turn.
const MAX_UNROLLED: usize = 4;

/// What a pipe keeps during the loop.
enum LoopState {
    Nothing,
    Lanes(Homes),
    InOrder,
    Crc(crc::FoldRegs),
    Adler(adler::SumRegs),
    Cipher(cipher::Keystream),
}

/// Writes the whole function; gives its bytes, how many of them are instructions,
/// and how often the loop is unrolled.
pub(super) fn function(mut emit: Emit<'_>) -> (Vec<u8>, usize, usize) {
    let mut walk = Walk {
        kept: Vec::new(),
        values: 0,
        streaming: 0,
        passed: None,
        input: 0,
        output: 0,
        emit: &mut emit,
    };
    walk.make_room();
    walk.enter();
    walk.prologues();
    let unrolled = walk.loops();
    walk.rest();
    walk.epilogues();
    walk.leave();
    let (bytes, instructions) = emit.asm.finish();
    (bytes, instructions, unrolled)
}

struct Walk<'e, 'l> {
    emit: &'e mut Emit<'l>,
    kept: Vec<LoopState>,
    /// In the frame: values of pipes that go word by word.
    values: i32,
    /// In the frame: whether to store past the caches.
    streaming: i32,
    /// In the frame: bytes that have passed before this turn, if there is a cipher.
    passed: Option<i32>,
    /// In the frame: the bytes behind the last chunk, before and after the pipes.
    input: i32,
    output: i32,
}

impl Walk<'_, '_> {
    /// Finds a place for all that stays: the frame's size is known behind it.
    fn make_room(&mut self) {
        let list = self.emit.list;
        self.streaming = self.emit.room(8);
        self.input = self.emit.room(CHUNK_BYTES);
        self.output = self.emit.room(CHUNK_BYTES);
        if self
            .emit
            .steps
            .iter()
            .any(|step| step.strategy == Strategy::InOrder)
        {
            self.values = self.emit.room(order::VALUES_BYTES);
        }
        for (placed, step) in list.pipes().iter().zip(self.emit.steps) {
            let kept = match (step.strategy, placed.pipe.primitive()) {
                (Strategy::Nothing, _) => LoopState::Nothing,
                (Strategy::InOrder, _) => LoopState::InOrder,
                (Strategy::Folded, Some(Primitive::Crc(_))) => LoopState::Crc(crc::keep(self.emit)),
                (Strategy::Folded, _) => LoopState::Adler(adler::keep(self.emit)),
                (Strategy::Keystream, _) => {
                    self.passed = self.passed.or_else(|| Some(self.emit.room(8)));
                    LoopState::Cipher(cipher::keep(self.emit))
                }
                (Strategy::Lanes, _) => {
                    let registers = placed.pipe.registers().iter();
                    LoopState::Lanes(registers.map(|_| self.emit.home()).collect())
                }
            };
            self.kept.push(kept);
        }
    }

    fn op(&mut self, code: Code, args: &[Arg]) {
        self.emit.asm.op(code, args);
    }

    fn enter(&mut self) {
        let (rsp, rbp) = (Register::RSP, Register::RBP);
        // First of all, so that its displacement is where `finish` looks.
        self.op(Code::Lea_r64_m, &[Arg::R(POOL), Arg::M(Register::RIP, 0)]);
        self.op(Code::Push_r64, &[Arg::R(rbp)]);
        self.emit.gpr2(Code::Mov_r64_rm64, rbp, rsp);
        self.op(Code::Push_r64, &[Arg::R(Register::RBX)]);
        self.op(Code::Push_r64, &[Arg::R(Register::R12)]);
        self.op(Code::And_rm64_imm8, &[Arg::R(rsp), Arg::I(-64)]);
        let bytes = self.emit.frame_bytes();
        self.op(Code::Sub_rm64_imm32, &[Arg::R(rsp), Arg::I(bytes)]);
        let streaming = frame(self.streaming);
        self.op(Code::Mov_rm64_r64, &[streaming, Arg::R(Register::R8)]);
        if let Some(passed) = self.passed {
            self.op(Code::Mov_rm64_imm32, &[frame(passed), Arg::I(0)]);
        }
    }

    fn leave(&mut self) {
        self.op(Code::VEX_Vzeroupper, &[]);
        let saved = Arg::M(Register::RBP, -16);
        self.op(Code::Lea_r64_m, &[Arg::R(Register::RSP), saved]);
        self.op(Code::Pop_r64, &[Arg::R(Register::R12)]);
        self.op(Code::Pop_r64, &[Arg::R(Register::RBX)]);
        self.op(Code::Pop_r64, &[Arg::R(Register::RBP)]);
        self.op(Code::Retnq, &[]);
    }

    fn prologues(&mut self) {
        for (placed, kept) in self.emit.list.pipes().iter().zip(&self.kept) {
            let first = placed.first_register;
            match (kept, placed.pipe.primitive()) {
                (LoopState::Lanes(homes), _) => {
                    lanes::prologue(self.emit, &placed.pipe, first, homes);
                }
                (LoopState::Crc(kept), Some(Primitive::Crc(crc))) => {
                    crc::prologue(self.emit, *crc, first, kept);
                }
                (LoopState::Adler(kept), _) => adler::prologue(self.emit, kept),
                (LoopState::Cipher(kept), Some(Primitive::Cipher(cipher))) => {
                    cipher::prologue(self.emit, cipher, first, kept);
                }
                _ => {}
            }
        }
    }

    fn epilogues(&mut self) {
        for (placed, kept) in self.emit.list.pipes().iter().zip(&self.kept) {
            let first = placed.first_register;
            match (kept, placed.pipe.primitive()) {
                (LoopState::Lanes(homes), _) => {
                    lanes::epilogue(self.emit, &placed.pipe, first, homes);
                }
                (LoopState::Crc(kept), Some(Primitive::Crc(crc))) => {
                    crc::epilogue(self.emit, *crc, first, kept);
                }
                (LoopState::Adler(kept), _) => adler::epilogue(self.emit, first, kept),
                (LoopState::Cipher(_), Some(Primitive::Cipher(cipher))) => {
                    cipher::epilogue(self.emit, cipher, first);
                }
                _ => {}
            }
        }
    }

    /// One vector of data, at `offset` in this turn, passes all pipes. Gives the
    /// register of what comes out.
    fn pipes(&mut self, mut data: u8, offset: usize, part: usize) -> u8 {
        for (placed, kept) in self.emit.list.pipes().iter().zip(&self.kept) {
            let pipe = &placed.pipe;
            let passed = match (kept, pipe.primitive()) {
                (LoopState::Nothing, _) => Ok(data),
                (LoopState::Lanes(homes), _) => lanes::chunk(self.emit, pipe, homes, data, part),
                (LoopState::Crc(kept), Some(Primitive::Crc(crc))) => {
                    crc::chunk(self.emit, *crc, kept, data, part).map(|()| data)
                }
                (LoopState::Adler(kept), _) => {
                    adler::chunk(self.emit, kept, data, part).map(|()| data)
                }
                (LoopState::Cipher(kept), _) => {
                    // Pipes before it may have used `r8`.
                    if let Some(passed) = self.passed {
                        let r8 = Arg::R(Register::R8);
                        self.emit.asm.op(Code::Mov_r64_rm64, &[r8, frame(passed)]);
                    }
                    cipher::chunk(self.emit, kept, data, offset);
                    if self.emit.tail {
                        let end = self.emit.before_end(part, Gauge::Bits8, true);
                        self.emit.v3(table::AND, data, data, end);
                    }
                    Ok(data)
                }
                (LoopState::InOrder | LoopState::Crc(_), _) => {
                    let first = placed.first_register;
                    order::chunk(self.emit, pipe, first, self.values, data, part);
                    Ok(data)
                }
            };
            data = passed.unwrap_or_else(|Exhausted| {
                unreachable!("`lanes::possible` tried with the fewest registers")
            });
        }
        data
    }

    /// Loops over chunks. Gives how many are in one turn.
    fn loops(&mut self) -> usize {
        let (rcx, r10, r11) = (Register::RCX, Register::R10, Register::R11);
        self.emit.gpr2(Code::Mov_r64_rm64, r10, rcx);
        self.op(Code::Shr_rm64_imm8, &[Arg::R(r10), Arg::I(6)]);
        self.emit.gpr2(Code::Mov_r64_rm64, r11, rcx);
        self.op(Code::And_rm64_imm8, &[Arg::R(r11), Arg::I(63)]);
        let ops = self.pin_constants();
        let mut unrolled = 1;
        while unrolled < MAX_UNROLLED && unrolled * 2 * ops <= TURN_OPS {
            unrolled *= 2;
        }
        let one_by_one = self.emit.asm.label();
        if unrolled > 1 {
            if self.emit.writes && self.destination() == Layout::Contiguous {
                let cached = self.emit.asm.label();
                let streaming = frame(self.streaming);
                self.op(Code::Cmp_rm64_imm8, &[streaming, Arg::I(0)]);
                self.emit.asm.jump(Code::Je_rel32_64, cached);
                self.turns(unrolled, true, one_by_one);
                self.op(Code::Sfence, &[]);
                self.emit.asm.jump(Code::Jmp_rel32_64, one_by_one);
                self.emit.asm.place(cached);
            }
            self.turns(unrolled, false, one_by_one);
        }
        self.emit.asm.place(one_by_one);
        let done = self.emit.asm.label();
        self.turns(1, false, done);
        self.emit.asm.place(done);
        unrolled
    }

    /// Loads the constants that a chunk uses into registers that nothing needs. Gives
    /// how many instructions a chunk has.
    fn pin_constants(&mut self) -> usize {
        // By trying.
        let (before, pending) = (self.emit.asm.len(), self.emit.asm.pending());
        self.chunk(0, false);
        let ops = self.emit.asm.len() - before;
        let bytes = self.emit.vector_bytes();
        let constants = self.emit.asm.constants(before, bytes);
        self.emit.asm.take_back(before, pending);
        for at in constants {
            let Some(register) = self.emit.spare() else {
                break;
            };
            self.emit.load(register, Arg::M(POOL, at));
            let register = vector(self.emit.cpu.isa, register);
            self.emit.asm.pin(Pin {
                at,
                bytes,
                register,
            });
        }
        ops
    }

    /// A loop that takes `chunks` in each turn while there are so many. Jumps to
    /// `fewer` if there are not as many at first.
    fn turns(&mut self, chunks: usize, streaming: bool, fewer: Label) {
        let count = Arg::I(chunks as i32);
        let turn = self.emit.asm.label();
        self.op(Code::Cmp_rm64_imm8, &[Arg::R(Register::R10), count]);
        // Behind the streaming loop stands a fence that nobody may jump over.
        let beyond = self.emit.asm.label();
        let to = if streaming { beyond } else { fewer };
        self.emit.asm.jump(Code::Jb_rel32_64, to);
        self.emit.asm.place(turn);
        for chunk in 0..chunks {
            self.chunk(chunk, streaming);
        }
        self.advance(chunks);
        self.op(Code::Sub_rm64_imm8, &[Arg::R(Register::R10), count]);
        self.op(Code::Cmp_rm64_imm8, &[Arg::R(Register::R10), count]);
        self.emit.asm.jump(Code::Jae_rel32_64, turn);
        if streaming {
            self.emit.asm.place(beyond);
        }
    }

    fn source(&self) -> Layout {
        match self.emit.options.direction {
            Direction::Read => self.emit.options.layout,
            Direction::Write => Layout::Contiguous,
        }
    }

    fn destination(&self) -> Layout {
        match self.emit.options.direction {
            Direction::Read => Layout::Contiguous,
            Direction::Write => self.emit.options.layout,
        }
    }

    fn advance(&mut self, chunks: usize) {
        let bytes = |layout| match layout {
            Layout::Contiguous => chunks * CHUNK_BYTES,
            Layout::Striped => chunks * CHUNK_BYTES * 2,
        };
        if let Some(passed) = self.passed {
            let bytes = Arg::I((chunks * CHUNK_BYTES) as i32);
            self.op(Code::Add_rm64_imm32, &[frame(passed), bytes]);
        }
        let (source, destination) = (bytes(self.source()), bytes(self.destination()));
        for (pointer, bytes) in [(Register::RSI, source), (Register::RDX, destination)] {
            self.op(
                Code::Add_rm64_imm32,
                &[Arg::R(pointer), Arg::I(bytes as i32)],
            );
        }
    }

    /// The chunk of that number from where the pointers stand.
    fn chunk(&mut self, number: usize, streaming: bool) {
        for part in 0..self.emit.parts() {
            let offset = number * CHUNK_BYTES + part * self.emit.vector_bytes();
            let data = self.emit.temporary();
            self.load(data, offset);
            let data = self.pipes(data, offset, part);
            if self.emit.writes {
                self.store(offset, data, streaming);
            }
            self.emit.give(data);
        }
    }

    fn load(&mut self, data: u8, offset: usize) {
        if self.source() == Layout::Contiguous {
            self.emit.load(data, Arg::M(Register::RSI, offset as i32));
            return;
        }
        // 16 bytes of data, 16 of gap.
        let from = |stripe: usize| Arg::M(Register::RSI, (offset * 2 + stripe * 32) as i32);
        let first = Arg::R(Register::XMM0 + u32::from(data));
        self.op(Code::VEX_Vmovdqu_xmm_xmmm128, &[first, from(0)]);
        let code = if self.emit.wide() {
            Code::EVEX_Vinserti32x4_zmm_k1z_zmm_xmmm128_imm8
        } else {
            Code::VEX_Vinserti128_ymm_ymm_xmmm128_imm8
        };
        let data = self.emit.v(data);
        for stripe in 1..self.emit.vector_bytes() / 16 {
            self.op(code, &[data, data, from(stripe), Arg::I(stripe as i32)]);
        }
    }

    fn store(&mut self, offset: usize, data: u8, streaming: bool) {
        if self.destination() == Layout::Contiguous {
            let to = Arg::M(Register::RDX, offset as i32);
            if streaming {
                let data = self.emit.v(data);
                self.emit.vop(table::STREAM, &[to, data]);
            } else {
                self.emit.store(to, data);
            }
            return;
        }
        let code = if self.emit.wide() {
            Code::EVEX_Vextracti32x4_xmmm128_k1z_zmm_imm8
        } else {
            Code::VEX_Vextracti128_xmmm128_ymm_imm8
        };
        let data = self.emit.v(data);
        for stripe in 0..self.emit.vector_bytes() / 16 {
            let to = Arg::M(Register::RDX, (offset * 2 + stripe * 32) as i32);
            self.op(code, &[to, data, Arg::I(stripe as i32)]);
        }
    }

    /// The bytes behind the last chunk, with zeros behind them.
    fn rest(&mut self) {
        let done = self.emit.asm.label();
        let r11 = Arg::R(Register::R11);
        self.op(Code::Test_rm64_r64, &[r11, r11]);
        self.emit.asm.jump(Code::Je_rel32_64, done);
        self.emit.tail = true;
        let masked_in = self.emit.wide() && self.source() == Layout::Contiguous;
        let masked_out = self.emit.wide() && self.destination() == Layout::Contiguous;
        if masked_in || masked_out {
            let rax = Register::RAX;
            self.op(Code::Mov_rm64_imm32, &[Arg::R(rax), Arg::I(-1)]);
            self.op(
                Code::VEX_Bzhi_r64_rm64_r64,
                &[Arg::R(rax), Arg::R(rax), r11],
            );
            self.op(Code::VEX_Kmovq_kr_r64, &[Arg::R(Register::K2), Arg::R(rax)]);
        }
        let whole = bug::is(Bug::PipeTailWhole) && self.destination() == Layout::Contiguous;
        let (input, output) = (self.input, self.output);
        if !masked_in {
            self.gather(input);
        }
        for part in 0..self.emit.parts() {
            let offset = (part * self.emit.vector_bytes()) as i32;
            let data = self.emit.temporary();
            if masked_in {
                let code = Code::EVEX_Vmovdqu8_zmm_k1z_zmmm512;
                let args = [self.emit.v(data), Arg::M(Register::RSI, 0)];
                self.emit.asm.masked(code, &args, Register::K2, true);
            } else {
                self.emit.load(data, frame(input + offset));
            }
            let data = self.pipes(data, offset as usize, part);
            if self.emit.writes && whole {
                self.emit.store(Arg::M(Register::RDX, offset), data);
            } else if self.emit.writes && masked_out {
                let code = Code::EVEX_Vmovdqu8_zmmm512_k1z_zmm;
                let args = [Arg::M(Register::RDX, 0), self.emit.v(data)];
                self.emit.asm.masked(code, &args, Register::K2, false);
            } else if self.emit.writes {
                self.emit.store(frame(output + offset), data);
            }
            self.emit.give(data);
        }
        if self.emit.writes && !masked_out && !whole {
            self.scatter(output);
        }
        self.emit.tail = false;
        self.emit.asm.place(done);
    }

    /// The last bytes of the source to the frame, zeros behind them.
    fn gather(&mut self, to: i32) {
        let zero = self.emit.asm.lanes([0_u8]);
        let register = self.emit.temporary();
        self.emit.load(register, zero);
        for part in 0..self.emit.parts() {
            let offset = (part * self.emit.vector_bytes()) as i32;
            self.emit.store(frame(to + offset), register);
        }
        self.emit.give(register);
        let layout = self.source();
        self.copy_bytes(
            (Register::RSI, 0, layout),
            (Register::RSP, to, Layout::Contiguous),
        );
    }

    /// As many bytes as there are from the frame to the destination.
    fn scatter(&mut self, from: i32) {
        let layout = self.destination();
        self.copy_bytes(
            (Register::RSP, from, Layout::Contiguous),
            (Register::RDX, 0, layout),
        );
    }

    /// Copies `r11` bytes, at most 63. Uses `rax`, `r8`, `rbx`, `r12`.
    fn copy_bytes(&mut self, from: (Register, i32, Layout), to: (Register, i32, Layout)) {
        let (rbx, r12) = (Register::RBX, Register::R12);
        self.op(Code::Lea_r64_m, &[Arg::R(rbx), Arg::M(from.0, from.1)]);
        self.op(Code::Lea_r64_m, &[Arg::R(r12), Arg::M(to.0, to.1)]);
        let r8 = Register::R8;
        if from.2 == Layout::Contiguous && to.2 == Layout::Contiguous {
            // The length's bits, from the highest.
            for bytes in [32, 16, 8, 4, 2, 1] {
                let skip = self.emit.asm.label();
                self.op(
                    Code::Test_rm8_imm8,
                    &[Arg::R(Register::R11L), Arg::I(bytes)],
                );
                self.emit.asm.jump(Code::Je_rel32_64, skip);
                self.copy_some(bytes);
                for pointer in [rbx, r12] {
                    self.op(Code::Add_rm64_imm8, &[Arg::R(pointer), Arg::I(bytes)]);
                }
                self.emit.asm.place(skip);
            }
            return;
        }
        // Byte by byte; behind each 16th the striped side skips a gap.
        self.emit
            .gpr2(Code::Xor_r32_rm32, Register::R8D, Register::R8D);
        let (turn, inside) = (self.emit.asm.label(), self.emit.asm.label());
        self.emit.asm.place(turn);
        self.op(
            Code::Movzx_r32_rm8,
            &[Arg::R(Register::EAX), Arg::M(rbx, 0)],
        );
        self.op(Code::Mov_rm8_r8, &[Arg::M(r12, 0), Arg::R(Register::AL)]);
        for pointer in [rbx, r12, r8] {
            self.op(Code::Inc_rm64, &[Arg::R(pointer)]);
        }
        self.op(Code::Test_rm8_imm8, &[Arg::R(Register::R8L), Arg::I(15)]);
        self.emit.asm.jump(Code::Jne_rel32_64, inside);
        for (pointer, layout) in [(rbx, from.2), (r12, to.2)] {
            if layout == Layout::Striped {
                self.op(Code::Add_rm64_imm8, &[Arg::R(pointer), Arg::I(16)]);
            }
        }
        self.emit.asm.place(inside);
        self.emit.gpr2(Code::Cmp_r64_rm64, r8, Register::R11);
        self.emit.asm.jump(Code::Jb_rel32_64, turn);
    }

    /// Copies `bytes` from `rbx` to `r12`.
    fn copy_some(&mut self, bytes: i32) {
        let (from, to) = (Arg::M(Register::RBX, 0), Arg::M(Register::R12, 0));
        let (load, store, through) = match bytes {
            32 => (
                Code::VEX_Vmovdqu_ymm_ymmm256,
                Code::VEX_Vmovdqu_ymmm256_ymm,
                Register::YMM0,
            ),
            16 => (
                Code::VEX_Vmovdqu_xmm_xmmm128,
                Code::VEX_Vmovdqu_xmmm128_xmm,
                Register::XMM0,
            ),
            8 => (Code::Mov_r64_rm64, Code::Mov_rm64_r64, Register::RAX),
            4 => (Code::Mov_r32_rm32, Code::Mov_rm32_r32, Register::EAX),
            2 => (Code::Mov_r16_rm16, Code::Mov_rm16_r16, Register::AX),
            _ => (Code::Mov_r8_rm8, Code::Mov_rm8_r8, Register::AL),
        };
        self.op(load, &[Arg::R(through), from]);
        self.op(store, &[to, Arg::R(through)]);
    }
}
