//! Byteswaps in bodies that call them something else.
//!
//! Wasm has no instruction for it: a function swaps by shifts and masks, five or more
//! operators for what is one. Of each byte of each value it is known where it comes
//! from, if it is a byte of the word or a constant.

use crate::bug::{self, Bug};

use super::ir::{Binary, Op, Pipe, Shift, Value};

/// Where a byte comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Byte {
    Const(u8),
    /// This one of the word.
    Word(usize),
    Unknown,
}

const ZERO: Byte = Byte::Const(0);

/// A value's bytes, as many as the width has.
type Bytes = Vec<Byte>;

/// Makes operators whose value is the swapped word swap it. Their operands may then
/// be needed by nobody. Linear in the body.
pub(super) fn recognise(pipe: &mut Pipe) {
    let width = pipe.width.bytes();
    if pipe.width != pipe.input || width == 1 {
        return;
    }
    let swapped: Bytes = (0..width).rev().map(Byte::Word).collect();
    let mut all: Vec<Bytes> = Vec::new();
    let mut word = None;
    for at in 0..pipe.ops.len() {
        let op = pipe.ops[at];
        if op == Op::Input {
            word = word.or(Some(Value(at as u8)));
        }
        let bytes = bytes(op, width, &all);
        let any_order = bug::is(Bug::PipeSwapAnyOrder)
            && bytes.first() != Some(&Byte::Word(0))
            && bytes.iter().all(|byte| matches!(byte, Byte::Word(_)));
        if let Some(word) = word
            && (bytes == swapped || any_order)
        {
            pipe.ops[at] = Op::Swap(word);
        }
        all.push(bytes);
    }
}

fn bytes(op: Op, width: usize, all: &[Bytes]) -> Bytes {
    let of = |value: Value| &all[value.index()];
    let pairs = |left: Value, right: Value, with: fn(Byte, Byte) -> Byte| {
        let pairs = of(left).iter().zip(of(right));
        pairs.map(|(left, right)| with(*left, *right)).collect()
    };
    let unknown = || vec![Byte::Unknown; width];
    match op {
        Op::Input => (0..width).map(Byte::Word).collect(),
        Op::Const(constant) => constant.to_le_bytes()[..width]
            .iter()
            .map(|byte| Byte::Const(*byte))
            .collect(),
        Op::Swap(value) => of(value).iter().rev().copied().collect(),
        Op::Binary(Binary::And, left, right) => pairs(left, right, and),
        Op::Binary(Binary::Or, left, right) => pairs(left, right, or),
        Op::Binary(Binary::Xor | Binary::Add, left, right) => {
            // With a zero in each pair there is nothing to carry.
            let apart = of(left)
                .iter()
                .zip(of(right))
                .all(|(left, right)| *left == ZERO || *right == ZERO);
            if apart {
                pairs(left, right, or)
            } else {
                unknown()
            }
        }
        Op::Shift(shift, value, bits) if bits % 8 == 0 => {
            let by = bits as usize / 8;
            let byte = |at: usize| match shift {
                Shift::Left if at < by => ZERO,
                Shift::Left => of(value)[at - by],
                Shift::Right if at + by >= width => ZERO,
                Shift::RightSigned if at + by >= width => Byte::Unknown,
                Shift::Right | Shift::RightSigned => of(value)[at + by],
                Shift::RotateLeft => of(value)[(at + width - by) % width],
            };
            (0..width).map(byte).collect()
        }
        _ => unknown(),
    }
}

fn and(left: Byte, right: Byte) -> Byte {
    match (left, right) {
        (ZERO, _) | (_, ZERO) => ZERO,
        (Byte::Const(0xff), other) | (other, Byte::Const(0xff)) => other,
        (Byte::Word(one), Byte::Word(other)) if one == other => left,
        _ => Byte::Unknown,
    }
}

fn or(left: Byte, right: Byte) -> Byte {
    match (left, right) {
        (ZERO, other) | (other, ZERO) => other,
        (Byte::Word(one), Byte::Word(other)) if one == other => left,
        _ => Byte::Unknown,
    }
}
