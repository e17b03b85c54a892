//! Arithmetic on ranges: what can come of an instruction (RFC 9669 §4.1).
//!
//! Every result contains all results there can be; where a bound is not worth
//! the trouble it is "any number of that width".

use super::value::{Num, Tag};
use crate::bpf::{mirror, op};

/// `a OP b`, without a tag.
pub(super) fn alu(wide: bool, operation: u8, a: Num, b: Num) -> Num {
    let (a, b) = if wide { (a, b) } else { (a.low(), b.low()) };
    // Adding a negative constant is taking its opposite away.
    if let (op::ADD, true, Some(constant)) = (operation, wide, b.constant())
        && (constant as i64) < 0
    {
        return alu(wide, op::SUB, a, Num::exactly(constant.wrapping_neg()));
    }
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
    match operation {
        op::ADD => range(a.min.checked_add(b.min), a.max.checked_add(b.max)),
        op::SUB => range(a.min.checked_sub(b.max), a.max.checked_sub(b.min)),
        op::AND => Num::range(0, a.max.min(b.max)),
        // All bits from the highest one down.
        op::OR | op::XOR => Num::range(0, u64::MAX.unbounded_shr((a.max | b.max).leading_zeros())),
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
        _ => any,
    }
}

/// `a`, sign-extended from `from` bits unless that is 0.
pub(super) fn moved(wide: bool, from: u8, a: Num) -> Num {
    match from {
        0 if wide => a,
        0 => a.low(),
        from if a.max < 1 << (from - 1) => a,
        _ => Num::any(wide),
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
            (x.min, x.max) = (a.min.max(b.min), a.max.min(b.max));
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
            y.max = b.max.min(Num::any(wide).max >> 1);
        }
        op::JGT | op::JGE | op::JSGT | op::JSGE => {
            let (y, x) = narrow(wide, mirror(operation), b, a)?;
            return Some((x, y));
        }
        _ => {}
    }
    (x.min <= x.max && y.min <= y.max).then_some((x, y))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf::invert;

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

    /// Every result of numbers in two ranges lies in the range of results.
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
                                    alu(wide, op::SUB, Num::exactly(0), a)
                                } else {
                                    alu(wide, operation, a, b)
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
                                    assert!(holds(wide, invert(operation).unwrap(), *x, *y));
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
}
