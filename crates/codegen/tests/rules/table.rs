//! What integer operators mean.
//!
//! Source: WebAssembly specification 2.0, §4.3.2 (integer operations), whose
//! definitions are for any width `N` and in numbers without bounds: so are
//! these, in 128 bits. Nothing here comes from the translator.

use ashway_abi::Cause;

/// A value type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    I32,
    I64,
}

impl Type {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::I32 => "i32",
            Self::I64 => "i64",
        }
    }

    /// Its `N`.
    pub(crate) const fn bits(self) -> u32 {
        match self {
            Self::I32 => 32,
            Self::I64 => 64,
        }
    }
}

/// An operator on operands of `n` bits (the second is 0 if there is none), as
/// unsigned numbers; or why it traps.
pub(crate) type Meaning = fn(n: u32, i1: u128, i2: u128) -> Result<u128, Cause>;

/// An operator.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    /// In the text format.
    pub(crate) name: String,
    pub(crate) operand: Type,
    pub(crate) operands: usize,
    pub(crate) result: Type,
    meaning: Meaning,
}

impl Rule {
    /// What the operator gives, by the definition.
    pub(crate) fn meaning(&self, [i1, i2]: [u64; 2]) -> Result<u64, Cause> {
        let n = self.operand.bits();
        let [i1, i2] = [i1, i2].map(|i| modulo(n, i.into()));
        let result = (self.meaning)(n, i1, i2)?;
        assert!(result < power(self.result.bits()), "{}", self.name);
        Ok(result as u64)
    }

    /// Whether its result is 0 or 1 and can be jumped on.
    pub(crate) fn is_relation(&self) -> bool {
        RELATIONS
            .iter()
            .any(|(name, ..)| self.name.ends_with(&format!(".{name}")))
    }

    /// Whether some operands make it trap.
    pub(crate) fn can_trap(&self) -> bool {
        self.name.contains(".div_") || self.name.contains(".rem_")
    }
}

/// Every rule.
pub(crate) fn rules() -> Vec<Rule> {
    let mut rules = Vec::new();
    for operand in [Type::I32, Type::I64] {
        let mut add = |list: &[(&str, usize, Meaning)], result| {
            for (name, operands, meaning) in list {
                rules.push(Rule {
                    name: format!("{}.{name}", operand.name()),
                    operand,
                    operands: *operands,
                    result,
                    meaning: *meaning,
                });
            }
        };
        add(ARITHMETIC, operand);
        add(RELATIONS, Type::I32);
    }
    for (name, operand, result, meaning) in CONVERSIONS {
        rules.push(Rule {
            name: (*name).into(),
            operand: *operand,
            operands: 1,
            result: *result,
            meaning: *meaning,
        });
    }
    rules
}

const fn power(n: u32) -> u128 {
    1 << n
}

const fn modulo(n: u32, i: u128) -> u128 {
    i % power(n)
}

/// `signed_N`.
const fn signed(n: u32, i: u128) -> i128 {
    if i < power(n - 1) {
        i as i128
    } else {
        i as i128 - power(n) as i128
    }
}

/// The inverse of `signed_N`.
const fn unsigned(n: u32, j: i128) -> u128 {
    j.rem_euclid(power(n) as i128) as u128
}

/// `extend_M,N^s`.
const fn extend(m: u32, n: u32, i: u128) -> u128 {
    unsigned(n, signed(m, modulo(m, i)))
}

fn bit(i: u128, position: u32) -> bool {
    i >> position & 1 == 1
}

/// What both types have, with results of the operands' type.
const ARITHMETIC: &[(&str, usize, Meaning)] = &[
    ("add", 2, |n, i1, i2| Ok(modulo(n, i1 + i2))),
    ("sub", 2, |n, i1, i2| Ok(modulo(n, i1 + power(n) - i2))),
    ("mul", 2, |n, i1, i2| Ok(modulo(n, i1 * i2))),
    ("div_u", 2, |_, i1, i2| match i2 {
        0 => Err(Cause::DivideByZero),
        _ => Ok(i1 / i2),
    }),
    ("div_s", 2, |n, i1, i2| {
        let (j1, j2) = (signed(n, i1), signed(n, i2));
        if j2 == 0 {
            return Err(Cause::DivideByZero);
        }
        // Truncated toward zero, as Rust does it.
        let quotient = j1 / j2;
        if quotient == power(n - 1) as i128 {
            return Err(Cause::Overflow);
        }
        Ok(unsigned(n, quotient))
    }),
    ("rem_u", 2, |_, i1, i2| match i2 {
        0 => Err(Cause::DivideByZero),
        _ => Ok(i1 - i2 * (i1 / i2)),
    }),
    ("rem_s", 2, |n, i1, i2| {
        let (j1, j2) = (signed(n, i1), signed(n, i2));
        if j2 == 0 {
            return Err(Cause::DivideByZero);
        }
        Ok(unsigned(n, j1 - j2 * (j1 / j2)))
    }),
    ("and", 2, |_, i1, i2| Ok(i1 & i2)),
    ("or", 2, |_, i1, i2| Ok(i1 | i2)),
    ("xor", 2, |_, i1, i2| Ok(i1 ^ i2)),
    ("shl", 2, |n, i1, i2| {
        let k = i2 % u128::from(n);
        Ok(modulo(n, i1 * (1 << k)))
    }),
    ("shr_u", 2, |n, i1, i2| {
        let k = i2 % u128::from(n);
        Ok(i1 / (1 << k))
    }),
    ("shr_s", 2, |n, i1, i2| {
        let k = i2 % u128::from(n);
        Ok(unsigned(n, signed(n, i1).div_euclid(1 << k)))
    }),
    ("rotl", 2, |n, i1, i2| {
        let k = i2 % u128::from(n);
        Ok(modulo(n, i1 << k) + (i1 >> (u128::from(n) - k)))
    }),
    ("rotr", 2, |n, i1, i2| {
        let k = i2 % u128::from(n);
        Ok((i1 >> k) + modulo(n, i1 << (u128::from(n) - k)))
    }),
    ("clz", 1, |n, i, _| {
        let zeros = (0..n).rev().take_while(|at| !bit(i, *at));
        Ok(zeros.count() as u128)
    }),
    ("ctz", 1, |n, i, _| {
        let zeros = (0..n).take_while(|at| !bit(i, *at));
        Ok(zeros.count() as u128)
    }),
    ("popcnt", 1, |n, i, _| {
        let ones = (0..n).filter(|at| bit(i, *at));
        Ok(ones.count() as u128)
    }),
    ("extend8_s", 1, |n, i, _| Ok(extend(8, n, i))),
    ("extend16_s", 1, |n, i, _| Ok(extend(16, n, i))),
];

/// What both types have, with results 0 and 1.
const RELATIONS: &[(&str, usize, Meaning)] = &[
    ("eqz", 1, |_, i, _| Ok((i == 0).into())),
    ("eq", 2, |_, i1, i2| Ok((i1 == i2).into())),
    ("ne", 2, |_, i1, i2| Ok((i1 != i2).into())),
    ("lt_u", 2, |_, i1, i2| Ok((i1 < i2).into())),
    ("gt_u", 2, |_, i1, i2| Ok((i1 > i2).into())),
    ("le_u", 2, |_, i1, i2| Ok((i1 <= i2).into())),
    ("ge_u", 2, |_, i1, i2| Ok((i1 >= i2).into())),
    ("lt_s", 2, |n, i1, i2| {
        Ok((signed(n, i1) < signed(n, i2)).into())
    }),
    ("gt_s", 2, |n, i1, i2| {
        Ok((signed(n, i1) > signed(n, i2)).into())
    }),
    ("le_s", 2, |n, i1, i2| {
        Ok((signed(n, i1) <= signed(n, i2)).into())
    }),
    ("ge_s", 2, |n, i1, i2| {
        Ok((signed(n, i1) >= signed(n, i2)).into())
    }),
];

/// From one type to the other, or within `i64` alone.
const CONVERSIONS: &[(&str, Type, Type, Meaning)] = &[
    ("i32.wrap_i64", Type::I64, Type::I32, |_, i, _| {
        Ok(modulo(32, i))
    }),
    ("i64.extend_i32_u", Type::I32, Type::I64, |_, i, _| Ok(i)),
    ("i64.extend_i32_s", Type::I32, Type::I64, |_, i, _| {
        Ok(extend(32, 64, i))
    }),
    ("i64.extend32_s", Type::I64, Type::I64, |_, i, _| {
        Ok(extend(32, 64, i))
    }),
];

#[test]
fn definitions_agree_with_the_specification_s_examples() {
    // §4.3.2 gives these by words; a slip in a definition would else go
    // unnoticed where the translator has the same one.
    for (name, operands, expected) in [
        (
            "i32.div_s",
            [0x8000_0000, 0xffff_ffff],
            Err(Cause::Overflow),
        ),
        ("i64.div_s", [1 << 63, u64::MAX], Err(Cause::Overflow)),
        ("i32.rem_s", [0x8000_0000, 0xffff_ffff], Ok(0)),
        ("i32.rem_s", [0xffff_fff9, 2], Ok(0xffff_ffff)),
        ("i32.div_s", [0xffff_fff9, 2], Ok(0xffff_fffd)),
        ("i32.shr_s", [0xffff_fff9, 1], Ok(0xffff_fffc)),
        ("i64.shl", [3, 65], Ok(6)),
        ("i32.rotl", [0x8000_0001, 32], Ok(0x8000_0001)),
        ("i32.rotl", [0x8000_0001, 1], Ok(3)),
        ("i64.rotr", [1, 1], Ok(1 << 63)),
        ("i32.clz", [0, 0], Ok(32)),
        ("i64.ctz", [0, 0], Ok(64)),
        ("i32.lt_s", [0x8000_0000, 0], Ok(1)),
        ("i32.lt_u", [0x8000_0000, 0], Ok(0)),
        (
            "i64.extend_i32_s",
            [0x8000_0000, 0],
            Ok(0xffff_ffff_8000_0000),
        ),
        ("i32.extend8_s", [0x180, 0], Ok(0xffff_ff80)),
    ] {
        let rules = rules();
        let rule = rules.iter().find(|rule| rule.name == name).unwrap();
        assert_eq!(rule.meaning(operands), expected, "{name}");
    }
}
