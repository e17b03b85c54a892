//! What a list means: the reference that every other way is compared with.
//!
//! Pipe by pipe over all of the data, word by word, as the definitions say. No
//! primitive is used but ciphers, which have no body; nothing is fused.

use super::ir::{Binary, Count, Gauge, MAX_OPS, Op, Pipe, Reduce, Shift, Tail, Update};
use super::list::{List, fold};
use super::primitive::Primitive;

/// Runs `list` over `data` in place and leaves the registers behind it.
///
/// Linear in data times operators, some 10 ns for each operator and word.
///
/// # Panics
///
/// If `registers` are not as many as the list has.
pub fn interpret(list: &List, registers: &mut [u64], data: &mut [u8]) {
    assert_eq!(
        registers.len(),
        list.register_count(),
        "one for each register"
    );
    list.normalise(registers);
    for placed in list.pipes() {
        let of = &mut registers[placed.first_register..];
        pipe(&placed.pipe, of, data);
    }
    list.finish(registers, data.len());
}

/// Runs one pipe's body over `data`.
pub(super) fn pipe(pipe: &Pipe, registers: &mut [u64], data: &mut [u8]) {
    if let Some(Primitive::Cipher(cipher)) = pipe.primitive() {
        return cipher.apply(&mut registers[0], data);
    }
    match pipe.gauge() {
        Gauge::Bits8 => words::<1>(pipe, registers, data),
        Gauge::Bits16 => words::<2>(pipe, registers, data),
        Gauge::Bits32 => words::<4>(pipe, registers, data),
        Gauge::Bits64 | Gauge::Bits128 => words::<8>(pipe, registers, data),
    }
}

/// The size is a constant, so that a word is a load and a store.
fn words<const BYTES: usize>(pipe: &Pipe, registers: &mut [u64], data: &mut [u8]) {
    let mut values = [0; MAX_OPS];
    let (whole, rest) = data.as_chunks_mut::<BYTES>();
    for word in whole {
        let mut padded = [0; 8];
        padded[..BYTES].copy_from_slice(word);
        let given = advance(pipe, registers, &mut values, u64::from_le_bytes(padded));
        word.copy_from_slice(&given.to_le_bytes()[..BYTES]);
    }
    if !rest.is_empty() && pipe.tail() == Tail::Pad {
        partial(pipe, registers, rest);
    }
}

/// What lies behind the last whole word passes `pipe` with zeros behind it.
pub(super) fn partial(pipe: &Pipe, registers: &mut [u64], rest: &mut [u8]) {
    let mut padded = [0; 8];
    padded[..rest.len()].copy_from_slice(rest);
    let mut values = [0; MAX_OPS];
    let given = advance(pipe, registers, &mut values, u64::from_le_bytes(padded));
    rest.copy_from_slice(&given.to_le_bytes()[..rest.len()]);
}

/// What `pipe` gives for `word`; its registers move on. `values` are of this word
/// alone; whose they were does not matter.
fn advance(pipe: &Pipe, registers: &mut [u64], values: &mut [u64; MAX_OPS], word: u64) -> u64 {
    for (at, op) in pipe.ops().iter().enumerate() {
        values[at] = operate(pipe, registers, values, word, *op);
    }
    for (register, update) in pipe.updates() {
        let register = &mut registers[register.index()];
        *register = match *update {
            Update::Set(value) => values[value.index()],
            Update::Reduce(how, value) => {
                reduce(how, *register, values[value.index()] & pipe.gauge().mask())
            }
        };
    }
    values[pipe.result().index()] & pipe.gauge().mask()
}

/// One operator.
fn operate(pipe: &Pipe, registers: &[u64], values: &[u64; MAX_OPS], word: u64, op: Op) -> u64 {
    let width = pipe.width();
    let of = |value: super::ir::Value| values[value.index()];
    let result = match op {
        Op::Input => word,
        Op::Const(constant) => constant,
        Op::Register(register) => registers[register.index()],
        Op::Swap(value) => of(value).swap_bytes() >> (64 - width.bits()),
        Op::Binary(op, left, right) => binary(op, of(left), of(right)),
        Op::Shift(op, value, bits) => shift(op, of(value), bits, width),
        Op::ShiftBy(op, value, bits) => {
            let bits = of(bits) as u32 % width.bits();
            shift(op, of(value), bits, width)
        }
        Op::Count(what, value) => u64::from(match what {
            Count::Ones => of(value).count_ones(),
            Count::Leading => of(value).leading_zeros() + width.bits() - 64,
            Count::Trailing => of(value).trailing_zeros().min(width.bits()),
        }),
        Op::Select(condition, one, other) => {
            if of(condition) == 0 {
                of(other)
            } else {
                of(one)
            }
        }
        Op::Table(value) => pipe.entry(of(value) as u8),
    };
    result & width.mask()
}

fn shift(op: Shift, value: u64, bits: u32, width: Gauge) -> u64 {
    match op {
        Shift::Left => value << bits,
        Shift::Right => value >> bits,
        Shift::RightSigned => {
            let above = 64 - width.bits();
            ((value << above) as i64 >> above >> bits) as u64
        }
        Shift::RotateLeft if bits == 0 => value,
        Shift::RotateLeft => value << bits | value >> (width.bits() - bits),
    }
}

fn binary(op: Binary, left: u64, right: u64) -> u64 {
    match op {
        Binary::Add => left.wrapping_add(right),
        Binary::Sub => left.wrapping_sub(right),
        Binary::Mul => left.wrapping_mul(right),
        Binary::And => left & right,
        Binary::Or => left | right,
        Binary::Xor => left ^ right,
        Binary::Min => left.min(right),
        Binary::Max => left.max(right),
        Binary::Equal => u64::from(left == right),
        Binary::Below => u64::from(left < right),
    }
}

/// Takes `word` into a register.
pub(super) fn reduce(how: Reduce, register: u64, word: u64) -> u64 {
    match how {
        Reduce::Sum => register.wrapping_add(word),
        Reduce::Ones => fold(register + word),
        Reduce::Xor => register ^ word,
        Reduce::Or => register | word,
        Reduce::Min => register.min(word),
        Reduce::Max => register.max(word),
    }
}
