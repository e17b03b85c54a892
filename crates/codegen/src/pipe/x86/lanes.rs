//! Commutative pipes: a vector of words at once.
//!
//! Registers of a body's values are here, its operators in [`operators`], and what it
//! reduces words into in [`reduce`].

mod operators;
mod reduce;

use iced_x86::Register;

use super::super::ir::{Binary, Gauge, Op, Pipe, Reduce, Tail, Update, Value};
use super::super::list::List;
use super::Cpu;
use super::asm::Arg;
use super::emit::{Emit, Exhausted, Home, lane};
use super::table::{self, V};
use crate::bug::{self, Bug};
pub(super) use reduce::{epilogue, prologue};

/// What a pipe keeps during the loop, one for each of its registers: the lanes'
/// accumulators, or the same parameter in all lanes.
pub(super) type Homes = Vec<Home>;

/// Whether there are instructions and registers for it: by trying.
pub(super) fn possible(pipe: &Pipe, cpu: Cpu) -> bool {
    let list = List::new();
    let mut emit = Emit::new(&list, &[], cpu, super::Options::default(), true);
    // In the frame, so that a pipe's strategy does not depend on its neighbours.
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
