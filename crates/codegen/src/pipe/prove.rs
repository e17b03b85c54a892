//! Proves what a pipe claims of itself.

use super::error::PipeError;
use super::ir::{Gauge, MAX_OPS, MAX_REGISTERS, Op, Pipe, Reduce, RegisterId, Update, Value};

/// Accepts a pipe whose body means something and whose claims hold. Linear in
/// the body.
pub(super) fn prove(pipe: &Pipe) -> Result<(), PipeError> {
    let name = || pipe.name.clone();
    if pipe.ops.len() > MAX_OPS {
        return Err(PipeError::TooManyOps {
            pipe: name(),
            ops: pipe.ops.len(),
        });
    }
    if pipe.registers.len() > MAX_REGISTERS {
        return Err(PipeError::TooManyRegisters {
            pipe: name(),
            registers: pipe.registers.len(),
        });
    }
    if pipe.input == Gauge::Bits128 || pipe.width == Gauge::Bits128 || pipe.width < pipe.input {
        return Err(PipeError::NoSuchWidth {
            pipe: name(),
            gauge: pipe.input,
            width: pipe.width,
        });
    }
    let fault = |at, what| PipeError::Malformed {
        pipe: name(),
        at,
        what,
    };
    for (at, op) in pipe.ops.iter().enumerate() {
        meaning(pipe, at, op).map_err(|what| fault(at, what))?;
    }
    let end = pipe.ops.len();
    let known = |value: Value| value.index() < end;
    if !known(pipe.result) {
        return Err(fault(end, "gives a value that there is not"));
    }
    for (at, (register, update)) in pipe.updates.iter().enumerate() {
        let (Update::Set(value) | Update::Reduce(_, value)) = *update;
        if !known(value) || register.index() >= pipe.registers.len() {
            return Err(fault(
                end,
                "updates a register, or by a value, that there is not",
            ));
        }
        if pipe.updates[..at]
            .iter()
            .any(|(other, _)| other == register)
        {
            return Err(fault(end, "updates a register twice"));
        }
        if matches!(update, Update::Reduce(Reduce::Ones, _)) && pipe.input != Gauge::Bits16 {
            return Err(fault(
                end,
                "sums ones' complement words that are not of 16 bits",
            ));
        }
    }
    claims(pipe)
}

/// Whether an operator means something at its place.
fn meaning(pipe: &Pipe, at: usize, op: &Op) -> Result<(), &'static str> {
    let earlier = |values: &[Value]| {
        if values.iter().all(|value| value.index() < at) {
            Ok(())
        } else {
            Err("uses a value of a later operator")
        }
    };
    match *op {
        Op::Const(constant) if constant & !pipe.width.mask() != 0 => Err("does not fit the width"),
        Op::Register(register) if register.index() >= pipe.registers.len() => {
            Err("reads a register that there is not")
        }
        Op::Shift(_, _, bits) if bits >= pipe.width.bits() => Err("shifts by the width or more"),
        Op::Table(_) if pipe.table.is_none() => Err("looks into a table that there is not"),
        Op::Input | Op::Const(_) | Op::Register(_) => Ok(()),
        Op::Swap(value) | Op::Shift(_, value, _) | Op::Count(_, value) | Op::Table(value) => {
            earlier(&[value])
        }
        Op::Binary(_, left, right) | Op::ShiftBy(_, left, right) => earlier(&[left, right]),
        Op::Select(condition, one, other) => earlier(&[condition, one, other]),
    }
}

/// Whether the attributes hold.
fn claims(pipe: &Pipe) -> Result<(), PipeError> {
    if pipe.no_mod && pipe.ops[pipe.result.index()] != Op::Input {
        return Err(PipeError::Modifies {
            pipe: pipe.name.clone(),
        });
    }
    let read = |register: RegisterId| pipe.ops.contains(&Op::Register(register));
    let ordered = pipe
        .updates
        .iter()
        .find(|(register, update)| matches!(update, Update::Set(_)) || read(*register));
    match ordered {
        Some((register, _)) if pipe.commutative => Err(PipeError::Ordered {
            pipe: pipe.name.clone(),
            register: pipe.registers[register.index()].name.clone(),
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::ir::{Binary, Builder};
    use super::*;

    #[test]
    fn a_pipe_that_modifies_and_claims_not_to_is_refused_by_name() {
        let mut body = Builder::new("sly", Gauge::Bits32);
        let word = body.input();
        let one = body.constant(1);
        let more = body.binary(Binary::Add, word, one);
        assert_eq!(
            body.clone().no_mod().finish(more).unwrap_err(),
            PipeError::Modifies { pipe: "sly".into() }
        );
        assert!(body.finish(more).is_ok());
    }

    #[test]
    fn a_pipe_that_needs_order_and_claims_not_to_is_refused_by_name() {
        let mut body = Builder::new("last", Gauge::Bits8);
        let register = body.register("seen", 0);
        let word = body.input();
        body.set(register, word);
        let error = body.clone().commutative().finish(word).unwrap_err();
        assert_eq!(
            error.to_string(),
            "`last` claims to be commutative, but its register `seen` depends on the order of words"
        );
        assert!(body.finish(word).is_ok());
    }

    #[test]
    fn reading_what_is_reduced_into_needs_order() {
        let mut body = Builder::new("chain", Gauge::Bits32);
        let register = body.register("sum", 0);
        let word = body.input();
        let sum = body.read(register);
        let both = body.binary(Binary::Xor, word, sum);
        body.reduce(register, Reduce::Sum, word);
        assert!(matches!(
            body.commutative().finish(both),
            Err(PipeError::Ordered { .. })
        ));
    }

    #[test]
    fn bodies_that_mean_nothing_are_refused() {
        let mut shift = Builder::new("p", Gauge::Bits16);
        let word = shift.input();
        let far = shift.shift(super::super::ir::Shift::Left, word, 16);
        assert!(matches!(
            shift.finish(far),
            Err(PipeError::Malformed { at: 1, .. })
        ));
        let mut table = Builder::new("p", Gauge::Bits8);
        let word = table.input();
        let entry = table.op(Op::Table(word));
        assert!(matches!(
            table.finish(entry),
            Err(PipeError::Malformed { at: 1, .. })
        ));
        assert!(matches!(
            Builder::new("p", Gauge::Bits8).finish(Value(0)),
            Err(PipeError::Malformed { at: 0, .. })
        ));
        let mut wide = Builder::new("p", Gauge::Bits128);
        let word = wide.input();
        assert!(matches!(
            wide.finish(word),
            Err(PipeError::NoSuchWidth { .. })
        ));
    }
}
