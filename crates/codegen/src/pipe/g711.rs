//! The two companding laws of telephony, as tables from one to the other.
//!
//! Source: ITU-T G.711 (11/1988). Through linear samples of 16 bits, not by the
//! recommendation's tables 3 and 4, which give the neighbour for a few codes.

/// The linear sample of an A-law code.
fn from_alaw(code: u8) -> i32 {
    // Every other bit is inverted on the wire.
    let code = code ^ 0x55;
    let mantissa = i32::from(code & 0x0f);
    let magnitude = match code >> 4 & 7 {
        0 => (mantissa << 4) + 8,
        segment => ((mantissa << 4) + 0x108) << (segment - 1),
    };
    if code & 0x80 == 0 {
        -magnitude
    } else {
        magnitude
    }
}

/// The A-law code of a linear sample.
fn to_alaw(sample: i32) -> u8 {
    let (sign, magnitude) = if sample >= 0 {
        (0x80, sample)
    } else {
        (0, -sample - 1)
    };
    let segment = (32 - (magnitude >> 8).leading_zeros()).min(7);
    let mantissa = magnitude >> if segment < 2 { 4 } else { segment + 3 } & 0x0f;
    (sign | (segment as u8) << 4 | mantissa as u8) ^ 0x55
}

/// What is added to a magnitude so that segments begin at powers of two.
const BIAS: i32 = 0x84;

/// The linear sample of a mu-law code.
fn from_ulaw(code: u8) -> i32 {
    let code = !code;
    let magnitude = ((i32::from(code & 0x0f) << 3) + BIAS) << (code >> 4 & 7);
    if code & 0x80 == 0 {
        magnitude - BIAS
    } else {
        BIAS - magnitude
    }
}

/// The mu-law code of a linear sample.
fn to_ulaw(sample: i32) -> u8 {
    let (sign, magnitude) = if sample >= 0 {
        (0, sample)
    } else {
        (0x80, -sample)
    };
    let magnitude = magnitude.min(32_635) + BIAS;
    let segment = 24 - magnitude.leading_zeros();
    let mantissa = magnitude >> (segment + 3) & 0x0f;
    !(sign | (segment as u8) << 4 | mantissa as u8)
}

/// A-law to mu-law.
pub(super) fn alaw_to_ulaw() -> [u8; 256] {
    std::array::from_fn(|code| to_ulaw(from_alaw(code as u8)))
}

/// Mu-law to A-law.
pub(super) fn ulaw_to_alaw() -> [u8; 256] {
    std::array::from_fn(|code| to_alaw(from_ulaw(code as u8)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_survives_its_own_law() {
        for code in 0..=255 {
            assert_eq!(to_alaw(from_alaw(code)), code);
            // Mu-law has two zeros.
            assert_eq!(
                to_ulaw(from_ulaw(code)),
                if code == 0x7f { 0xff } else { code }
            );
        }
    }

    #[test]
    fn the_extremes_are_those_of_the_recommendation() {
        assert_eq!((from_alaw(0xaa), from_alaw(0x2a)), (32_256, -32_256));
        assert_eq!((from_ulaw(0x80), from_ulaw(0x00)), (32_124, -32_124));
        assert_eq!((from_alaw(0xd5), from_ulaw(0xff)), (8, 0));
    }
}
