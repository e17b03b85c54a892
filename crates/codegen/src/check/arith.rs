//! Arithmetic on ranges: what can come of an instruction (RFC 9669 §4.1).
//!
//! Every result contains all results there can be; where a bound is not worth
//! the trouble it is "any number of that width".

use super::value::{Num, Tag};
use crate::bpf::form::Order;
use crate::bpf::op;

/// The low half, zero-extended.
fn low(num: Num) -> Num {
    if num.max <= u32::MAX.into() {
        num
    } else {
        Num {
            zeros: num.zeros,
            ..Num::any(false)
        }
    }
}

/// `a OP b`, without a tag.
pub(super) fn alu(wide: bool, operation: u8, signed: bool, a: Num, b: Num) -> Num {
    let (a, b) = if wide { (a, b) } else { (low(a), low(b)) };
    let any = Num::any(wide);
    let range = |min: Option<u64>, max: Option<u64>| match (min, max) {
        (Some(min), Some(max)) if max <= any.max => Num::range(min, max),
        _ => any,
    };
    // Amounts count modulo the width.
    let bits = if wide { 64 } else { 32 };
    let amount = b.constant().map(|amount| amount as u32 % bits);
    if b.constant() == Some(0) && matches!(operation, op::ADD | op::SUB | op::OR | op::XOR) {
        return a.tagged(Tag::None);
    }
    let mut result = match operation {
        op::ADD => range(a.min.checked_add(b.min), a.max.checked_add(b.max)),
        op::SUB => range(a.min.checked_sub(b.max), a.max.checked_sub(b.min)),
        op::MUL => range(a.min.checked_mul(b.min), a.max.checked_mul(b.max)),
        op::AND => Num::range(0, a.max.min(b.max)),
        op::OR | op::XOR => match (a.max | b.max).checked_add(1) {
            Some(end) => Num::range(
                0,
                end.checked_next_power_of_two().map_or(any.max, |e| e - 1),
            ),
            None => any,
        },
        op::MOD if !signed && b.min > 0 => Num::range(0, a.max.min(b.max - 1)),
        // By 0 one gives 0, the other the dividend.
        op::DIV | op::MOD if !signed => Num::range(0, a.max),
        op::LSH => match amount {
            Some(amount) if a.max.leading_zeros() >= amount => {
                range(Some(a.min << amount), Some(a.max << amount))
            }
            _ => any,
        },
        op::RSH => match amount {
            Some(amount) => Num::range(a.min >> amount, a.max >> amount),
            None => Num::range(0, a.max),
        },
        op::ARSH if a.is_natural(wide) => Num::range(0, a.max),
        _ => any,
    };
    result.zeros = match operation {
        op::ADD | op::SUB | op::OR | op::XOR => a.zeros.min(b.zeros),
        op::AND => a.zeros.max(b.zeros),
        op::MUL => a.zeros.saturating_add(b.zeros),
        op::LSH => amount.map_or(0, |amount| a.zeros.saturating_add(amount as u8)),
        _ => 0,
    };
    result
}

/// `-a`.
pub(super) fn negate(wide: bool, a: Num) -> Num {
    Num {
        zeros: a.zeros,
        ..Num::any(wide)
    }
}

/// `a`, sign-extended from `from` bits unless that is 0.
pub(super) fn moved(wide: bool, from: u8, a: Num) -> Num {
    match from {
        0 if wide => a,
        0 => low(a),
        from if a.max < 1 << (from - 1) => a,
        _ => Num::any(wide),
    }
}

/// `a` in another byte order.
pub(super) fn swapped(order: Order, bits: u8, a: Num) -> Num {
    let any = Num::of_bytes(u32::from(bits) / 8);
    if order == Order::Little && a.max <= any.max {
        a
    } else {
        any
    }
}

/// The jump that is taken when `operation` is not; `None` for a test of bits.
pub(super) fn opposite(operation: u8) -> Option<u8> {
    const PAIRS: [(u8, u8); 5] = [
        (op::JEQ, op::JNE),
        (op::JGT, op::JLE),
        (op::JGE, op::JLT),
        (op::JSGT, op::JSLE),
        (op::JSGE, op::JSLT),
    ];
    let pair = |&(a, b): &(u8, u8)| match operation {
        o if o == a => Some(b),
        o if o == b => Some(a),
        _ => None,
    };
    PAIRS.iter().find_map(pair)
}

/// The same relation with its sides exchanged, if it is an order.
pub(super) const fn mirrored(operation: u8) -> u8 {
    match operation {
        op::JGT => op::JLT,
        op::JLT => op::JGT,
        op::JGE => op::JLE,
        op::JLE => op::JGE,
        op::JSGT => op::JSLT,
        op::JSLT => op::JSGT,
        op::JSGE => op::JSLE,
        op::JSLE => op::JSGE,
        same => same,
    }
}

/// What two numbers can be if `a OP b` holds; `None` if it cannot.
pub(super) fn narrow(wide: bool, operation: u8, a: Num, b: Num) -> Option<(Num, Num)> {
    if !wide && (a.max > u32::MAX.into() || b.max > u32::MAX.into()) {
        return Some((a, b));
    }
    let natural = a.is_natural(wide) && b.is_natural(wide);
    let (mut x, mut y) = (a, b);
    match operation {
        op::JEQ => {
            x.min = a.min.max(b.min);
            x.max = a.max.min(b.max);
            (y.min, y.max) = (x.min, x.max);
        }
        op::JNE => {
            if b.constant() == Some(a.min) {
                x.min = a.min.checked_add(1)?;
            }
            if b.constant() == Some(a.max) {
                x.max = a.max.checked_sub(1)?;
            }
        }
        op::JLT => {
            x.max = a.max.min(b.max.checked_sub(1)?);
            y.min = b.min.max(a.min.checked_add(1)?);
        }
        op::JLE => {
            x.max = a.max.min(b.max);
            y.min = b.min.max(a.min);
        }
        op::JSLT if natural => return narrow(wide, op::JLT, a, b),
        op::JSLE if natural => return narrow(wide, op::JLE, a, b),
        // What is not below a natural number is one.
        op::JSLT | op::JSLE if a.is_natural(wide) => {
            y.min = b.min.max(a.min + u64::from(operation == op::JSLT));
            y.max = b.max.min(if wide {
                i64::MAX as u64
            } else {
                i32::MAX as u64
            });
        }
        op::JGT | op::JGE | op::JSGT | op::JSGE => {
            let (y, x) = narrow(wide, mirrored(operation), b, a)?;
            return Some((x, y));
        }
        _ => {}
    }
    (x.min <= x.max && y.min <= y.max).then_some((x, y))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPERATIONS: [u8; 12] = [
        op::ADD,
        op::SUB,
        op::MUL,
        op::DIV,
        op::MOD,
        op::AND,
        op::OR,
        op::XOR,
        op::LSH,
        op::RSH,
        op::ARSH,
        op::NEG,
    ];

    /// What RFC 9669 says, for one pair of numbers.
    fn exact(wide: bool, operation: u8, a: u64, b: u64) -> u64 {
        let bits = if wide { 64 } else { 32 };
        let (a, b) = if wide {
            (a, b)
        } else {
            (a & 0xffff_ffff, b & 0xffff_ffff)
        };
        let amount = (b % bits) as u32;
        let value = match operation {
            op::ADD => a.wrapping_add(b),
            op::SUB => a.wrapping_sub(b),
            op::MUL => a.wrapping_mul(b),
            op::DIV => a.checked_div(b).unwrap_or(0),
            op::MOD => a.checked_rem(b).unwrap_or(a),
            op::AND => a & b,
            op::OR => a | b,
            op::XOR => a ^ b,
            op::LSH => a << amount,
            op::RSH => a >> amount,
            op::ARSH if wide => (a as i64 >> amount) as u64,
            op::ARSH => u64::from((a as u32 as i32 >> amount) as u32),
            _ => a.wrapping_neg(),
        };
        if wide { value } else { value & 0xffff_ffff }
    }

    fn holds(wide: bool, operation: u8, a: u64, b: u64) -> bool {
        let (a, b) = if wide {
            (a, b)
        } else {
            (a as i32 as u64, b as i32 as u64)
        };
        let (s, t) = (a as i64, b as i64);
        match operation {
            op::JEQ => a == b,
            op::JNE => a != b,
            op::JGT => a > b,
            op::JGE => a >= b,
            op::JLT => a < b,
            op::JLE => a <= b,
            op::JSGT => s > t,
            op::JSGE => s >= t,
            op::JSLT => s < t,
            _ => s <= t,
        }
    }

    /// Small numbers, and those around where a width or a sign ends.
    fn edges() -> Vec<u64> {
        let corners = [0, 1 << 31, 1 << 32, 1 << 63];
        let near = |c: u64| (0..4).map(move |d| c.wrapping_add(d).wrapping_sub(2));
        corners
            .into_iter()
            .flat_map(near)
            .chain([5, 8, 63, 200])
            .collect()
    }

    fn ranges() -> Vec<Num> {
        let mut edges = edges();
        edges.sort_unstable();
        let pairs = |(at, min): (usize, &u64)| {
            let min = *min;
            edges[at..]
                .iter()
                .step_by(3)
                .map(move |max| Num::range(min, *max))
                .collect::<Vec<_>>()
        };
        edges.iter().enumerate().flat_map(pairs).collect()
    }

    /// Every result of numbers in two ranges lies in the range of results, and
    /// has the zeros that are claimed.
    #[test]
    fn a_range_contains_every_result() {
        let edges = edges();
        for wide in [false, true] {
            for a in ranges() {
                for b in ranges() {
                    let inside = |n: &&u64, range: Num| (range.min..=range.max).contains(*n);
                    for x in edges.iter().filter(|n| inside(n, a)) {
                        for y in edges.iter().filter(|n| inside(n, b)) {
                            for operation in OPERATIONS {
                                let result = if operation == op::NEG {
                                    negate(wide, a)
                                } else {
                                    alu(wide, operation, false, a, b)
                                };
                                let value = exact(wide, operation, *x, *y);
                                assert!(
                                    (result.min..=result.max).contains(&value),
                                    "{operation:#x} {wide} {x:#x} {y:#x}: {value:#x} {result:?}"
                                );
                            }
                            for operation in [
                                op::JEQ,
                                op::JNE,
                                op::JGT,
                                op::JGE,
                                op::JLT,
                                op::JLE,
                                op::JSGT,
                                op::JSGE,
                                op::JSLT,
                                op::JSLE,
                            ] {
                                if !holds(wide, operation, *x, *y) {
                                    assert!(holds(wide, opposite(operation).unwrap(), *x, *y));
                                    continue;
                                }
                                let (p, q) = narrow(wide, operation, a, b).unwrap();
                                assert!(
                                    inside(&x, p) && inside(&y, q),
                                    "{operation:#x} {wide} {x:#x} {y:#x}: {p:?} {q:?}"
                                );
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn claimed_zeros_are_there() {
        for wide in [false, true] {
            for (x, y) in [(8, 4), (12, 0), (1 << 33, 64), (u64::MAX - 7, 16), (0, 3)] {
                let (a, b) = (Num::exactly(x), Num::exactly(y));
                for operation in OPERATIONS {
                    let zeros = alu(wide, operation, false, a, b).zeros.min(63);
                    let value = exact(wide, operation, x, y);
                    assert!(
                        value.trailing_zeros() >= zeros.into(),
                        "{operation:#x} {x} {y}"
                    );
                }
            }
        }
    }
}
