//! Values in scripts, and as a tier takes and gives them: 64 bits each.
//!
//! After normalisation a reference is a number: 0 for null, else the function's
//! index or the host's number, plus 1. A float travels as its bits.

use wast::core::{HeapType, NanPattern, WastArgCore, WastRetCore};
use wast::{WastArg, WastRet};

/// A value that has no 64 bits: which proposal it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Foreign(pub &'static str);

/// An argument as bits.
///
/// # Errors
///
/// [`Foreign`] if it is of a type that no tier knows.
pub(super) fn bits(arg: &WastArg<'_>) -> Result<u64, Foreign> {
    let WastArg::Core(arg) = arg else {
        return Err(Foreign("component model"));
    };
    match arg {
        WastArgCore::I32(value) => Ok(u64::from(*value as u32)),
        WastArgCore::I64(value) => Ok(*value as u64),
        WastArgCore::F32(value) => Ok(u64::from(value.bits)),
        WastArgCore::F64(value) => Ok(value.bits),
        WastArgCore::RefNull(HeapType::Abstract { .. } | HeapType::Concrete(_)) => Ok(0),
        WastArgCore::RefExtern(number) => Ok(u64::from(*number) + 1),
        WastArgCore::V128(_) => Err(Foreign("SIMD")),
        _ => Err(Foreign("GC")),
    }
}

/// Whether what a tier returned is what the script expects.
///
/// # Errors
///
/// [`Foreign`] if the expectation is of a type that no tier knows.
pub(super) fn matches(expected: &[WastRet<'_>], found: &[u64]) -> Result<bool, Foreign> {
    if expected.len() != found.len() {
        return Ok(false);
    }
    for (expected, found) in expected.iter().zip(found) {
        let WastRet::Core(expected) = expected else {
            return Err(Foreign("component model"));
        };
        if !matches_one(expected, *found)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn matches_one(expected: &WastRetCore<'_>, found: u64) -> Result<bool, Foreign> {
    Ok(match expected {
        WastRetCore::I32(value) => found == u64::from(*value as u32),
        WastRetCore::I64(value) => found == *value as u64,
        WastRetCore::F32(pattern) => match pattern {
            NanPattern::Value(value) => found == u64::from(value.bits),
            NanPattern::CanonicalNan => found & 0x7fff_ffff == 0x7fc0_0000,
            NanPattern::ArithmeticNan => found & 0x7fc0_0000 == 0x7fc0_0000,
        },
        WastRetCore::F64(pattern) => match pattern {
            NanPattern::Value(value) => found == value.bits,
            NanPattern::CanonicalNan => found & (u64::MAX >> 1) == 0x7ff8 << 48,
            NanPattern::ArithmeticNan => found & (0x7ff8 << 48) == 0x7ff8 << 48,
        },
        WastRetCore::RefNull(_) => found == 0,
        WastRetCore::RefExtern(Some(number)) => found == u64::from(*number) + 1,
        WastRetCore::RefExtern(None) | WastRetCore::RefFunc(_) => found != 0,
        WastRetCore::Either(choices) => {
            for choice in choices {
                if matches_one(choice, found)? {
                    return Ok(true);
                }
            }
            false
        }
        WastRetCore::V128(_) => return Err(Foreign("SIMD")),
        _ => return Err(Foreign("GC")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nans_are_told_apart() {
        let canonical = WastRetCore::F32(NanPattern::CanonicalNan);
        let arithmetic = WastRetCore::F32(NanPattern::ArithmeticNan);
        for (found, expected) in [
            (0x7fc0_0000, (true, true)),
            (0xffc0_0000, (true, true)),
            (0x7fc0_0001, (false, true)),
            (0x7f80_0001, (false, false)),
        ] {
            let got = (
                matches_one(&canonical, found).unwrap(),
                matches_one(&arithmetic, found).unwrap(),
            );
            assert_eq!(got, expected, "{found:#x}");
        }
    }

    #[test]
    fn references_are_numbers() {
        let is = |expected: WastRetCore<'_>, found| matches_one(&expected, found).unwrap();
        assert!(is(WastRetCore::RefNull(None), 0));
        assert!(is(WastRetCore::RefExtern(Some(7)), 8));
        assert!(!is(WastRetCore::RefExtern(Some(0)), 0));
        assert!(is(WastRetCore::RefFunc(None), 3));
        let either = WastRetCore::Either(vec![WastRetCore::I32(1), WastRetCore::I32(-1)]);
        assert!(is(either, 0xffff_ffff));
    }
}
