//! Computing with no more bits than the words have.
//!
//! A function in Wasm computes with 32 bits, on bytes as well. Lanes of 32 bits
//! for bytes would be four times the work, and need conversions. Where the result
//! is the same, the body computes with the words' own width.
//!
//! Of each value two things are known: whether its lowest bits, as many as a word
//! has, come out right when they are computed from the lowest bits of its
//! operands; and whether it is *exact*: so small that these are all its bits.

use crate::bug::{self, Bug};

use super::ir::{Binary, Count, Gauge, Op, Pipe, Shift, Update, Value};

/// What is known of a value.
#[derive(Clone, Copy, Debug)]
pub(super) struct LowBits {
    /// Its lowest bits come out right.
    pub(super) low: bool,
    /// It has no others.
    pub(super) exact: bool,
}

/// What is known of each value of a body of `width` on words of `gauge`. `largest`
/// is the table's largest entry.
pub(super) fn known(ops: &[Op], width: Gauge, gauge: Gauge, largest: u64) -> Vec<LowBits> {
    let mut all: Vec<LowBits> = Vec::new();
    for op in ops {
        let of = |value: Value| all[value.index()];
        let both = |left: Value, right: Value| LowBits {
            low: of(left).low && of(right).low,
            exact: of(left).exact && of(right).exact,
        };
        let next = match *op {
            _ if width == gauge => LowBits {
                low: true,
                exact: true,
            },
            Op::Input => LowBits {
                low: true,
                exact: true,
            },
            Op::Const(constant) => LowBits {
                low: true,
                exact: constant <= gauge.mask(),
            },
            Op::Register(_) => LowBits {
                low: true,
                exact: false,
            },
            // These depend on the width.
            Op::Swap(_) | Op::ShiftBy(..) | Op::Count(Count::Leading | Count::Trailing, _) => {
                LowBits {
                    low: false,
                    exact: false,
                }
            }
            Op::Binary(op, left, right) => {
                let LowBits { low, exact } = both(left, right);
                let one = of(left).exact || of(right).exact;
                match op {
                    Binary::Add | Binary::Sub | Binary::Mul => LowBits { low, exact: false },
                    Binary::And => LowBits {
                        low,
                        exact: low && one,
                    },
                    Binary::Or | Binary::Xor => LowBits { low, exact },
                    Binary::Min | Binary::Max | Binary::Equal | Binary::Below => {
                        LowBits { low: exact, exact }
                    }
                }
            }
            Op::Shift(op, value, bits) => {
                let LowBits { low, exact } = of(value);
                match op {
                    Shift::Left => LowBits {
                        low: low && bits < gauge.bits(),
                        exact: false,
                    },
                    // Exact and narrower than the width: its sign is 0.
                    Shift::Right | Shift::RightSigned => {
                        let right = exact && bits < gauge.bits();
                        LowBits {
                            low: right,
                            exact: right,
                        }
                    }
                    Shift::RotateLeft => LowBits {
                        low: false,
                        exact: false,
                    },
                }
            }
            // Above an exact value there are no ones, but zeros.
            Op::Count(Count::Ones, value) => LowBits {
                low: of(value).exact,
                exact: of(value).exact,
            },
            Op::Select(condition, one, other) => {
                let LowBits { low, exact } = both(one, other);
                let chosen = of(condition).exact;
                LowBits {
                    low: low && chosen,
                    exact: exact && chosen,
                }
            }
            Op::Table(value) => LowBits {
                low: of(value).low,
                exact: of(value).low && largest <= gauge.mask(),
            },
        };
        all.push(next);
    }
    all
}

/// Makes the body compute with the words' width, if that is the same. Bodies that
/// set registers keep theirs: a register has the body's width.
pub(super) fn narrow(pipe: &mut Pipe) {
    let (width, gauge) = (pipe.width, pipe.input);
    let set = |(_, update): &(_, Update)| matches!(update, Update::Set(_));
    if width == gauge || pipe.updates.iter().any(set) {
        return;
    }
    let largest = (0..=255).map(|byte| pipe.entry(byte)).max().unwrap_or(0);
    let known = known(&pipe.ops, width, gauge, largest);
    let exact = |(_, update): &(_, Update)| match update {
        Update::Reduce(_, value) => known[value.index()].exact,
        Update::Set(_) => false,
    };
    let same = known[pipe.result.index()].low && pipe.updates.iter().all(exact);
    if !same && !bug::is(Bug::PipeNarrowAnything) {
        return;
    }
    pipe.width = gauge;
    for op in &mut pipe.ops {
        match op {
            Op::Const(constant) => *constant &= gauge.mask(),
            // Needed by nobody, or by none whose bits count.
            Op::Shift(_, _, bits) if *bits >= gauge.bits() => *op = Op::Const(0),
            Op::Shift(shift @ Shift::RightSigned, ..) => *shift = Shift::Right,
            _ => {}
        }
    }
}
