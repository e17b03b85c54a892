//! Commutative pipes: a vector of words at once.

use iced_x86::{Code, Register};

use super::super::ir::{Binary, Count, Gauge, Op, Pipe, Reduce, Shift, Tail, Update, Value};
use super::super::list::List;
use super::Cpu;
use super::asm::Arg;
use super::emit::{Emit, Exhausted, Home, lane};
use super::table::{self, V};
use crate::bug::{self, Bug};

/// What a pipe keeps during the loop, one for each of its registers: the lanes'
/// accumulators, or the same parameter in all lanes.
pub(super) type Homes = Vec<Home>;

/// Whether there are instructions and registers for it: by trying.
pub(super) fn possible(pipe: &Pipe, cpu: Cpu) -> bool {
    let list = List::new();
    let mut emit = Emit::new(&list, &[], cpu, super::Options::default(), true);
    // In the frame, so that a pipe's way does not depend on its neighbours.
    let homes = pipe
        .registers()
        .iter()
        .map(|_| Home::Frame(emit.room(64)))
        .collect();
    emit.tail = true;
    let data = emit.temporary();
    supported(&emit, pipe) && chunk(&mut emit, pipe, &homes, data, 0).is_ok()
}

/// Whether all operators and reductions have instructions in this width.
fn supported(emit: &Emit<'_>, pipe: &Pipe) -> bool {
    let at = lane(pipe.gauge());
    let has = |v: V| emit.code(v).is_some();
    let operators = pipe.ops().iter().all(|op| match op {
        Op::Binary(Binary::Mul, ..) => has(table::MUL[at]),
        Op::Binary(Binary::Min | Binary::Max | Binary::Below, ..) => {
            emit.wide() || pipe.gauge() != Gauge::Bits64
        }
        Op::Table(_) => pipe.gauge() == Gauge::Bits8,
        Op::ShiftBy(..) => has(table::LEFT_BY[at]),
        _ => true,
    });
    let reductions = pipe.updates().iter().all(|(_, update)| match update {
        Update::Reduce(Reduce::Min | Reduce::Max, _) => {
            emit.wide() || pipe.gauge() != Gauge::Bits64
        }
        _ => true,
    });
    operators && reductions
}

/// How a reduction combines lanes, of which width they are, and what changes
/// nothing.
fn combine(gauge: Gauge, how: Reduce) -> (V, Gauge, u8) {
    match how {
        Reduce::Ones => (table::ADD[2], Gauge::Bits32, 0),
        // Words of 16 bits are summed in pairs in lanes of 32, others in 64.
        Reduce::Sum if gauge == Gauge::Bits16 => (table::ADD[2], Gauge::Bits32, 0),
        Reduce::Sum => (table::ADD[3], Gauge::Bits64, 0),
        Reduce::Xor => (table::XOR, gauge, 0),
        Reduce::Or => (table::OR, gauge, 0),
        Reduce::Min => (table::MIN[lane(gauge)], gauge, 0xff),
        Reduce::Max => (table::MAX[lane(gauge)], gauge, 0),
    }
}

/// Before the loop: accumulators to what changes nothing, parameters to all lanes.
pub(super) fn prologue(emit: &mut Emit<'_>, pipe: &Pipe, first: usize, homes: &Homes) {
    for (index, home) in homes.iter().enumerate() {
        let update = pipe.updates().iter().find(|(id, _)| id.index() == index);
        if let Some((_, Update::Reduce(how, _))) = update {
            let (_, _, neutral) = combine(pipe.gauge(), *how);
            let from = emit.asm.lanes([neutral]);
            emit.settle(*home, from);
        } else {
            let register = emit.temporary();
            let to = emit.v(register);
            let from = Emit::persistent(first + index);
            emit.vop(table::BROADCAST[lane(pipe.gauge())], &[to, from]);
            match *home {
                Home::Register(home) => {
                    let home = emit.v(home);
                    emit.vop(table::LOAD, &[home, to]);
                }
                Home::Frame(at) => emit.store(super::emit::frame(at), register),
            }
            emit.give(register);
        }
    }
}

/// Behind the loop: lanes come together, and into the pipe's registers.
pub(super) fn epilogue(emit: &mut Emit<'_>, pipe: &Pipe, first: usize, homes: &Homes) {
    for (id, update) in pipe.updates() {
        let Update::Reduce(how, _) = *update else {
            continue;
        };
        let (v, width, _) = combine(pipe.gauge(), how);
        let from = match homes[id.index()] {
            Home::Register(register) => emit.v(register),
            Home::Frame(at) => super::emit::frame(at),
        };
        let lanes = emit.temporary();
        emit.load(lanes, from);
        if matches!(how, Reduce::Sum | Reduce::Ones) {
            if width == Gauge::Bits32 {
                add_signs(emit, lanes);
                emit.widen(lanes);
            }
            emit.horizontal(table::ADD[3], lanes, Gauge::Bits64);
        } else {
            emit.horizontal(v, lanes, width);
        }
        emit.give(lanes);
        into_register(emit, how, first + id.index());
    }
}

/// Adds what was taken from words to make them signed: 2^15 from both words of a
/// lane, in each vector of data, the rest among them. Uses `rax`.
fn add_signs(emit: &mut Emit<'_>, lanes: u8) {
    let (rax, eax) = (Arg::R(Register::RAX), Arg::R(Register::EAX));
    // Vectors: of 64 bytes, or twice as many.
    let up = Arg::M(Register::RCX, 63);
    emit.asm.op(Code::Lea_r64_m, &[rax, up]);
    emit.asm.op(Code::Shr_rm64_imm8, &[rax, Arg::I(6)]);
    let shift = 16 + emit.parts().trailing_zeros() as i32;
    emit.asm.op(Code::Shl_rm32_imm8, &[eax, Arg::I(shift)]);
    let signs = emit.temporary();
    let low = Arg::R(Register::XMM0 + u32::from(signs));
    emit.asm.op(Code::VEX_Vmovd_xmm_rm32, &[low, eax]);
    let signs_arg = emit.v(signs);
    emit.vop(table::BROADCAST[2], &[signs_arg, low]);
    emit.v3(table::ADD[2], lanes, lanes, signs_arg);
    emit.give(signs);
}

/// Takes `rax` into a persistent register. Uses `r8`.
fn into_register(emit: &mut Emit<'_>, how: Reduce, index: usize) {
    let to = Emit::persistent(index);
    let (rax, r8) = (Register::RAX, Register::R8);
    match how {
        Reduce::Sum => emit.asm.op(Code::Add_rm64_r64, &[to, Arg::R(rax)]),
        Reduce::Xor => emit.asm.op(Code::Xor_rm64_r64, &[to, Arg::R(rax)]),
        Reduce::Or => emit.asm.op(Code::Or_rm64_r64, &[to, Arg::R(rax)]),
        Reduce::Min | Reduce::Max => {
            let other_is_further = if how == Reduce::Min {
                Code::Cmova_r64_rm64
            } else {
                Code::Cmovb_r64_rm64
            };
            emit.asm.op(Code::Cmp_r64_rm64, &[Arg::R(rax), to]);
            emit.asm.op(other_is_further, &[Arg::R(rax), to]);
            emit.asm.op(Code::Mov_rm64_r64, &[to, Arg::R(rax)]);
        }
        Reduce::Ones => {
            emit.asm.op(Code::Add_r64_rm64, &[Arg::R(rax), to]);
            // A piece has 2^19 words: 36 bits, then 21, 17, 16.
            for _ in 0..3 {
                emit.gpr2(Code::Mov_r64_rm64, r8, rax);
                emit.asm.op(Code::Shr_rm64_imm8, &[Arg::R(r8), Arg::I(16)]);
                emit.gpr2(Code::Movzx_r32_rm16, Register::EAX, Register::AX);
                emit.gpr2(Code::Add_r64_rm64, rax, r8);
            }
            emit.asm.op(Code::Mov_rm64_r64, &[to, Arg::R(rax)]);
        }
    }
}

/// One vector of data passes the pipe. Gives the register of what comes out.
pub(super) fn chunk(
    emit: &mut Emit<'_>,
    pipe: &Pipe,
    homes: &Homes,
    data: u8,
    part: usize,
) -> Result<u8, Exhausted> {
    let mut body = Body {
        emit,
        pipe,
        homes,
        data,
        values: vec![None; pipe.ops().len()],
        last_use: last_uses(pipe),
    };
    for at in 0..pipe.ops().len() {
        body.operator(at)?;
    }
    for (id, update) in pipe.updates() {
        if let Update::Reduce(how, value) = *update {
            let home = homes[id.index()];
            body.reduce(home, how, value, part)?;
        }
    }
    body.result(part)
}

/// For each value, the operator that uses it last; past all operators if the
/// updates or the result do. `None`: nobody does who is used.
fn last_uses(pipe: &Pipe) -> Vec<Option<usize>> {
    let mut last = vec![None; pipe.ops().len()];
    for (_, update) in pipe.updates() {
        let (Update::Set(value) | Update::Reduce(_, value)) = update;
        last[value.index()] = Some(usize::MAX);
    }
    last[pipe.result().index()] = Some(usize::MAX);
    // Backwards: the first use seen is the last.
    for (at, op) in pipe.ops().iter().enumerate().rev() {
        if last[at].is_none() {
            continue;
        }
        for value in op.values() {
            last[value.index()].get_or_insert(at);
        }
    }
    last
}

struct Body<'e, 'l> {
    emit: &'e mut Emit<'l>,
    pipe: &'e Pipe,
    homes: &'e Homes,
    data: u8,
    values: Vec<Option<Arg>>,
    last_use: Vec<Option<usize>>,
}

/// A temporary's number, of a vector of any width.
fn number(isa: super::Isa, register: Register) -> u8 {
    (register as u32 - super::emit::vector(isa, 0) as u32) as u8
}

impl Body<'_, '_> {
    fn gauge(&self) -> Gauge {
        self.pipe.gauge()
    }

    fn lane(&self) -> usize {
        lane(self.pipe.gauge())
    }

    fn value(&self, value: Value) -> Arg {
        self.values[value.index()].expect("values come before their use")
    }

    /// The value in a register; `own` is a temporary to load it to if it is in
    /// memory.
    fn in_register(&mut self, value: Value, own: u8) -> u8 {
        match self.value(value) {
            Arg::R(register) => number(self.emit.cpu.isa, register),
            memory => {
                self.emit.load(own, memory);
                own
            }
        }
    }

    /// Frees what this operator used last, and was not the data.
    fn free_after(&mut self, at: usize) {
        for index in 0..at {
            if self.last_use[index] != Some(at) {
                continue;
            }
            if let Some(Arg::R(register)) = self.values[index]
                && self.is_temporary(register)
            {
                self.emit.give(number(self.emit.cpu.isa, register));
            }
        }
    }

    /// Whether the register is neither the data nor one that stays.
    fn is_temporary(&self, register: Register) -> bool {
        let register = number(self.emit.cpu.isa, register);
        let stays = |home: &Home| matches!(home, Home::Register(own) if *own == register);
        register != self.data && !self.homes.iter().any(stays)
    }

    fn operator(&mut self, at: usize) -> Result<(), Exhausted> {
        if self.last_use[at].is_none() {
            return Ok(());
        }
        let made = match self.pipe.ops()[at] {
            Op::Input => self.emit.v(self.data),
            Op::Const(constant) => self.constant(constant),
            Op::Register(register) => match self.homes[register.index()] {
                Home::Register(home) => self.emit.v(home),
                Home::Frame(at) => super::emit::frame(at),
            },
            op => {
                let register = self.emit.take()?;
                self.compute(op, register)?;
                self.emit.v(register)
            }
        };
        self.values[at] = Some(made);
        self.free_after(at);
        Ok(())
    }

    /// A constant in every lane.
    fn constant(&mut self, constant: u64) -> Arg {
        let bytes = constant.to_le_bytes();
        match self.gauge() {
            Gauge::Bits8 => self.emit.asm.lanes([bytes[0]]),
            Gauge::Bits16 => self.emit.asm.lanes([bytes[0], bytes[1]]),
            Gauge::Bits32 => self
                .emit
                .asm
                .lanes([bytes[0], bytes[1], bytes[2], bytes[3]]),
            Gauge::Bits64 | Gauge::Bits128 => self.emit.asm.lanes(bytes),
        }
    }

    fn compute(&mut self, op: Op, to: u8) -> Result<(), Exhausted> {
        match op {
            Op::Input | Op::Const(_) | Op::Register(_) => unreachable!("nothing to compute"),
            Op::Swap(value) => {
                let from = self.in_register(value, to);
                let bytes = self.gauge().bytes() as u8;
                let order: [u8; 16] = std::array::from_fn(|at| {
                    at as u8 / bytes * bytes + (bytes - 1 - at as u8 % bytes)
                });
                let order = self.emit.asm.lanes(order);
                self.emit.v3(table::SHUFFLE, to, from, order);
            }
            Op::Binary(op, left, right) => self.binary(op, to, left, right)?,
            Op::Shift(op, value, bits) => {
                let from = self.in_register(value, to);
                self.shift(op, to, from, bits)?;
            }
            Op::ShiftBy(op, value, bits) => self.shift_by(op, to, value, bits)?,
            Op::Count(what, value) => self.count(what, to, value)?,
            Op::Select(condition, one, other) => self.select(to, condition, one, other)?,
            Op::Table(value) => {
                let from = self.in_register(value, to);
                self.look_up(to, from)?;
            }
        }
        Ok(())
    }

    fn binary(&mut self, op: Binary, to: u8, left: Value, right: Value) -> Result<(), Exhausted> {
        let at = self.lane();
        let v = match op {
            Binary::Add => table::ADD[at],
            Binary::Sub => table::SUB[at],
            Binary::Mul => table::MUL[at],
            Binary::And => table::AND,
            Binary::Or => table::OR,
            Binary::Xor => table::XOR,
            Binary::Min => table::MIN[at],
            Binary::Max => table::MAX[at],
            Binary::Equal | Binary::Below => return self.relation(op, to, left, right),
        };
        let left = self.in_register(left, to);
        let right = self.value(right);
        self.emit.v3(v, to, left, right);
        Ok(())
    }

    fn relation(&mut self, op: Binary, to: u8, left: Value, right: Value) -> Result<(), Exhausted> {
        let at = self.lane();
        let left = self.in_register(left, to);
        let right = self.value(right);
        let one = self.constant(1);
        let below = op == Binary::Below;
        if self.emit.wide() {
            let (k1, left) = (Arg::R(Register::K1), self.emit.v(left));
            if below {
                // Predicate 1: less than; 2: or equal.
                let less = Arg::I(1 + i32::from(bug::is(Bug::PipeWideBelow)));
                self.emit.vop(table::COMPARE[at], &[k1, left, right, less]);
            } else {
                self.emit.vop(table::EQUAL[at], &[k1, left, right]);
            }
            let code = table::LOAD_MASKED[at].z.expect("in every width of lane");
            let to = self.emit.v(to);
            self.emit.asm.masked(code, &[to, one], Register::K1, true);
        } else if below {
            // left >= right where the greater one is left.
            let greater = self.emit.take()?;
            self.emit.v3(table::MAX[at], greater, left, right);
            let greater_arg = self.emit.v(greater);
            self.emit.v3(table::EQUAL[at], to, left, greater_arg);
            self.emit.v3(table::ANDN, to, to, one);
            self.emit.give(greater);
        } else {
            self.emit.v3(table::EQUAL[at], to, left, right);
            self.emit.v3(table::AND, to, to, one);
        }
        Ok(())
    }

    fn shift(&mut self, op: Shift, to: u8, from: u8, bits: u32) -> Result<(), Exhausted> {
        let at = self.lane();
        let width = self.gauge().bits();
        let native = match op {
            Shift::Left => table::LEFT[at],
            Shift::Right => table::RIGHT[at],
            Shift::RightSigned => table::RIGHT_SIGNED[at],
            Shift::RotateLeft => table::ROTATE[at],
        };
        if self.emit.code(native).is_some() {
            self.emit.vshift(native, to, from, bits);
            return Ok(());
        }
        match op {
            // Bytes: shift words, and drop what came from the neighbour.
            Shift::Left => {
                self.emit.vshift(table::LEFT[1], to, from, bits);
                let kept = self.constant(0xff << bits & 0xff);
                self.emit.v3(table::AND, to, to, kept);
            }
            Shift::Right => {
                self.emit.vshift(table::RIGHT[1], to, from, bits);
                let kept = self.constant(0xff >> bits);
                self.emit.v3(table::AND, to, to, kept);
            }
            Shift::RotateLeft => {
                let low = self.emit.take()?;
                if bits == 0 {
                    let from = self.emit.v(from);
                    self.emit.load(to, from);
                } else {
                    self.shift(Shift::Right, low, from, width - bits)?;
                    self.shift(Shift::Left, to, from, bits)?;
                    let low = self.emit.v(low);
                    self.emit.v3(table::OR, to, to, low);
                }
                self.emit.give(low);
            }
            Shift::RightSigned => {
                // With s the sign's place after the shift: (x ^ s) - s.
                self.shift(Shift::Right, to, from, bits)?;
                let sign = self.constant(1 << (width - 1 - bits));
                self.emit.v3(table::XOR, to, to, sign);
                self.emit.v3(table::SUB[at], to, to, sign);
            }
        }
        Ok(())
    }

    /// Lanes of 32 and 64 bits, each by an amount of its own, modulo the width.
    fn shift_by(&mut self, op: Shift, to: u8, value: Value, bits: Value) -> Result<(), Exhausted> {
        let (at, width) = (self.lane(), u64::from(self.gauge().bits()));
        let (by, own) = (self.emit.take()?, self.emit.take()?);
        let bits = self.in_register(bits, by);
        let unmasked = bug::is(Bug::PipeShiftUnmasked);
        let modulus = self.constant(if unmasked { u64::MAX } else { width - 1 });
        self.emit.v3(table::AND, by, bits, modulus);
        let from = self.in_register(value, own);
        let by_arg = self.emit.v(by);
        match op {
            Shift::Left => self.emit.v3(table::LEFT_BY[at], to, from, by_arg),
            Shift::Right => self.emit.v3(table::RIGHT_BY[at], to, from, by_arg),
            Shift::RightSigned => {
                // With s the sign's place after the shift: (x ^ s) - s.
                self.emit.v3(table::RIGHT_BY[at], to, from, by_arg);
                let sign = self.constant(1 << (width - 1));
                self.emit.load(own, sign);
                self.emit.v3(table::RIGHT_BY[at], own, own, by_arg);
                let sign = self.emit.v(own);
                self.emit.v3(table::XOR, to, to, sign);
                self.emit.v3(table::SUB[at], to, to, sign);
            }
            Shift::RotateLeft => {
                // By 0 there is nothing that comes in: shifts by the width give 0.
                self.emit.v3(table::LEFT_BY[at], to, from, by_arg);
                let rest = self.emit.take()?;
                let all = self.constant(width);
                self.emit.load(rest, all);
                self.emit.v3(table::SUB[at], rest, rest, by_arg);
                let rest_arg = self.emit.v(rest);
                self.emit.v3(table::RIGHT_BY[at], rest, from, rest_arg);
                self.emit.v3(table::OR, to, to, rest_arg);
                self.emit.give(rest);
            }
        }
        self.emit.give(own);
        self.emit.give(by);
        Ok(())
    }

    /// Zeros at an end are made ones, and all else zeros; then ones are counted, by a
    /// table of half bytes (Mula 2008).
    fn count(&mut self, what: Count, to: u8, value: Value) -> Result<(), Exhausted> {
        let (at, gauge) = (self.lane(), self.gauge());
        let other = self.emit.take()?;
        let from = self.in_register(value, to);
        match what {
            Count::Ones => {
                let from = self.emit.v(from);
                self.emit.load(to, from);
            }
            Count::Trailing => {
                // !x & (x - 1)
                let wrong = bug::is(Bug::PipeCountTrailing);
                let one = self.constant(u64::from(!wrong));
                self.emit.v3(table::SUB[at], other, from, one);
                let other_arg = self.emit.v(other);
                self.emit.v3(table::ANDN, to, from, other_arg);
            }
            Count::Leading => {
                // The highest one, and ones in all places below it.
                let from = self.emit.v(from);
                self.emit.load(to, from);
                let mut bits = 1;
                while bits < gauge.bits() {
                    self.shift(Shift::Right, other, to, bits)?;
                    let other_arg = self.emit.v(other);
                    self.emit.v3(table::OR, to, to, other_arg);
                    bits *= 2;
                }
                let ones = self.constant(u64::MAX);
                self.emit.v3(table::XOR, to, to, ones);
            }
        }
        let counts: [u8; 16] = std::array::from_fn(|half| half.count_ones() as u8);
        let counts = self.emit.asm.lanes(counts);
        let low = self.emit.asm.lanes([0x0f]);
        self.emit.vshift(table::RIGHT[1], other, to, 4);
        self.emit.v3(table::AND, other, other, low);
        self.emit.v3(table::AND, to, to, low);
        let table = self.emit.take()?;
        self.emit.load(table, counts);
        let (high_arg, low_arg) = (self.emit.v(other), self.emit.v(to));
        self.emit.v3(table::SHUFFLE, other, table, high_arg);
        self.emit.v3(table::SHUFFLE, to, table, low_arg);
        self.emit.give(table);
        self.emit.v3(table::ADD[0], to, to, high_arg);
        match gauge {
            Gauge::Bits8 => {}
            Gauge::Bits64 | Gauge::Bits128 => {
                let zero = self.constant(0);
                self.emit.v3(table::SAD, to, to, zero);
            }
            Gauge::Bits16 | Gauge::Bits32 => {
                self.emit.vshift(table::RIGHT[1], other, to, 8);
                self.emit.v3(table::ADD[0], to, to, high_arg);
                let byte = self.emit.asm.lanes(0xff_u16.to_le_bytes());
                self.emit.v3(table::AND, to, to, byte);
                if gauge == Gauge::Bits32 {
                    let ones = self.emit.asm.lanes(1_u16.to_le_bytes());
                    self.emit.v3(table::MADD_WORDS, to, to, ones);
                }
            }
        }
        self.emit.give(other);
        Ok(())
    }

    fn select(
        &mut self,
        to: u8,
        condition: Value,
        one: Value,
        other: Value,
    ) -> Result<(), Exhausted> {
        let at = self.lane();
        let scratch = self.emit.take()?;
        let condition = self.in_register(condition, scratch);
        if self.emit.wide() {
            let condition = self.emit.v(condition);
            let k1 = Arg::R(Register::K1);
            self.emit.vop(table::TEST[at], &[k1, condition, condition]);
            let other = self.in_register(other, scratch);
            let code = table::BLEND[at].z.expect("in every width of lane");
            let args = [self.emit.v(to), self.emit.v(other), self.value(one)];
            self.emit.asm.masked(code, &args, Register::K1, false);
        } else {
            let zero = self.constant(0);
            self.emit.v3(table::EQUAL[at], to, condition, zero);
            let one = self.in_register(one, scratch);
            let args = [
                self.emit.v(to),
                self.emit.v(one),
                self.value(other),
                self.emit.v(to),
            ];
            self.emit
                .asm
                .op(Code::VEX_Vpblendvb_ymm_ymm_ymmm256_ymm, &args);
        }
        self.emit.give(scratch);
        Ok(())
    }

    /// Each byte's entry in the table.
    fn look_up(&mut self, to: u8, from: u8) -> Result<(), Exhausted> {
        let entries: [u8; 256] = std::array::from_fn(|byte| self.pipe.entry(byte as u8) as u8);
        if self.emit.wide() && self.emit.cpu.permute_bytes {
            // Two look-ups in 128 entries each; the highest bit says which.
            let (high, part) = (self.emit.take()?, self.emit.take()?);
            let from_arg = self.emit.v(from);
            let code = Code::EVEX_Vpermi2b_zmm_k1z_zmm_zmmm512;
            self.emit.asm.op(
                Code::EVEX_Vpmovb2m_kr_zmm,
                &[Arg::R(Register::K1), from_arg],
            );
            self.emit.load(high, from_arg);
            self.emit.load(to, from_arg);
            for (index, quarter) in [(to, 0), (high, 128)] {
                let low = self.emit.asm.constant(&entries[quarter..quarter + 64]);
                self.emit.load(part, low);
                let other = self
                    .emit
                    .asm
                    .constant(&entries[quarter + 64..quarter + 128]);
                let args = [self.emit.v(index), self.emit.v(part), other];
                self.emit.asm.op(code, &args);
            }
            let code = table::BLEND[0].z.expect("in every width of lane");
            let args = [self.emit.v(to), self.emit.v(to), self.emit.v(high)];
            self.emit.asm.masked(code, &args, Register::K1, false);
            self.emit.give(high);
            self.emit.give(part);
            return Ok(());
        }
        // 16 look-ups in 16 entries. Where the index, less the row's first, is 16
        // or more, saturation sets its highest bit, which makes the entry 0.
        let (rest, index, row) = (self.emit.take()?, self.emit.take()?, self.emit.take()?);
        let from = self.emit.v(from);
        self.emit.load(rest, from);
        let beyond = self.emit.asm.lanes([0x70_u8]);
        let sixteen = self.emit.asm.lanes([16_u8]);
        for (at, entries) in entries.as_chunks::<16>().0.iter().enumerate() {
            let entries = self.emit.asm.lanes(*entries);
            self.emit.load(row, entries);
            self.emit.v3(table::ADD_SATURATED, index, rest, beyond);
            let index_arg = self.emit.v(index);
            if at == 0 {
                self.emit.v3(table::SHUFFLE, to, row, index_arg);
            } else {
                self.emit.v3(table::SHUFFLE, row, row, index_arg);
                let row = self.emit.v(row);
                self.emit.v3(table::OR, to, to, row);
            }
            if at < 15 {
                self.emit.v3(table::SUB[0], rest, rest, sixteen);
            }
        }
        self.emit.give(rest);
        self.emit.give(index);
        self.emit.give(row);
        Ok(())
    }

    /// Takes a value into the lanes' accumulators.
    fn reduce(
        &mut self,
        home: Home,
        how: Reduce,
        value: Value,
        part: usize,
    ) -> Result<(), Exhausted> {
        let gauge = self.gauge();
        let (v, _, neutral) = combine(gauge, how);
        let words = self.emit.take()?;
        let mut from = self.in_register(value, words);
        // Behind the end there are zeros. A word that is not there must not
        // count, whatever the body makes of zero.
        let is_data = self.pipe.ops()[value.index()] == Op::Input;
        let harmless = is_data && neutral == 0 && self.pipe.tail() == Tail::Pad;
        if self.emit.tail && !harmless && !bug::is(Bug::PipeLanesTailCounts) {
            let there = self.there(part);
            self.emit.v3(table::AND, words, from, there);
            if neutral != 0 {
                let mask = self.emit.take()?;
                self.emit.load(mask, there);
                let ones = self.constant(u64::MAX);
                self.emit.v3(table::XOR, mask, mask, ones);
                let mask_arg = self.emit.v(mask);
                self.emit.v3(table::OR, words, words, mask_arg);
                self.emit.give(mask);
            }
            from = words;
        }
        match (how, gauge) {
            (Reduce::Sum, Gauge::Bits8) => {
                let zero = self.constant(0);
                self.emit.v3(table::SAD, words, from, zero);
            }
            (Reduce::Ones, _) | (Reduce::Sum, Gauge::Bits16) => {
                // Pairs are summed by an instruction that takes words as signed:
                // less 2^15 they are. The epilogue adds it again. Not VPDPWSSD,
                // which sums as well: its five cycles for each vector are more.
                let sign = self.emit.asm.lanes(0x8000_u16.to_le_bytes());
                let ones = self.emit.asm.lanes(1_u16.to_le_bytes());
                self.emit.v3(table::XOR, words, from, sign);
                self.emit.v3(table::MADD_WORDS, words, words, ones);
            }
            (Reduce::Sum, Gauge::Bits32) => {
                // Sums of two neighbours, each in the lane of both.
                let low = self.emit.take()?;
                let mask = self.emit.asm.lanes(0xffff_ffff_u64.to_le_bytes());
                self.emit.v3(table::AND, low, from, mask);
                self.emit.vshift(table::RIGHT[3], words, from, 32);
                let low_arg = self.emit.v(low);
                self.emit.v3(table::ADD[3], words, words, low_arg);
                self.emit.give(low);
            }
            _ => {
                let from = self.emit.v(from);
                self.emit.accumulate(home, v, from)?;
                self.emit.give(words);
                return Ok(());
            }
        }
        let words_arg = self.emit.v(words);
        self.emit.accumulate(home, v, words_arg)?;
        self.emit.give(words);
        Ok(())
    }

    /// Ones for words that the body sees.
    fn there(&mut self, part: usize) -> Arg {
        let up = self.pipe.tail() == Tail::Pad;
        self.emit.before_end(part, self.gauge(), up)
    }

    /// What comes out, in a register; all others are free again.
    fn result(mut self, part: usize) -> Result<u8, Exhausted> {
        let result = self.pipe.result();
        let given = if self.pipe.ops()[result.index()] == Op::Input {
            self.data
        } else {
            let own = match self.value(result) {
                Arg::R(register) if self.is_temporary(register) => {
                    number(self.emit.cpu.isa, register)
                }
                elsewhere => {
                    let own = self.emit.take()?;
                    self.emit.load(own, elsewhere);
                    own
                }
            };
            if self.emit.tail {
                if self.pipe.tail() == Tail::Leave && !bug::is(Bug::PipeLanesTailSwapped) {
                    // data ^ ((data ^ own) & there); behind the end both are zeros.
                    let there = self.there(part);
                    let data = self.emit.v(self.data);
                    self.emit.v3(table::XOR, own, own, data);
                    self.emit.v3(table::AND, own, own, there);
                    self.emit.v3(table::XOR, own, own, data);
                } else {
                    let end = self.emit.before_end(part, Gauge::Bits8, true);
                    self.emit.v3(table::AND, own, own, end);
                }
            }
            own
        };
        let mut free = vec![self.data];
        for (at, value) in self.values.iter().enumerate() {
            if let (Some(Arg::R(register)), Some(usize::MAX)) = (value, self.last_use[at])
                && self.is_temporary(*register)
            {
                free.push(number(self.emit.cpu.isa, *register));
            }
        }
        for register in free {
            if register != given {
                self.emit.give(register);
            }
        }
        Ok(given)
    }
}
