//! Computations with a better way than word by word, known by hand.
//!
//! Each stands beside a body that means the same; nothing but tests ties them
//! together, so only built-in pipes have one.

use super::cipher::Cipher;

/// A computation that back ends know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Primitive {
    /// A CRC of 32 bits, reflected; register 0 is its state as it stands between
    /// bytes, without the final complement.
    Crc(Crc),
    /// Adler-32 (RFC 1950 §8.2): register 0 is `s1`, register 1 is `s2`.
    Adler,
    /// Xor with a keystream. The one primitive whose body says nothing: its
    /// meaning is [`Cipher`]'s. Register 0 is the next block's number.
    Cipher(Cipher),
}

/// The modulus of Adler-32: the greatest prime below 2^16.
pub const ADLER_MODULUS: u32 = 65_521;

/// A polynomial of degree 32 over GF(2), in reflected form: bit 31 - i is the
/// coefficient of x^i, that of x^32 is left out.
///
/// Source of the folding constants: Gopal et al. 2009, *Fast CRC Computation for
/// Generic Polynomials Using PCLMULQDQ*, in the reflected form of its §3. A
/// product of two reflected numbers of 64 bits is one bit short of 128, so that
/// it stands for x times the product; constants are one power less for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crc {
    /// Without the coefficient of x^32.
    pub polynomial: u32,
    /// By which the first 8 of 16 bytes are multiplied, and the other 8, to move
    /// them by 128, 256, 384 and 512 bits.
    pub folds: [[u64; 2]; 4],
    /// To move 8 bytes from x^96 and from x^64 down.
    pub last: [u64; 2],
    /// x^64 divided by the polynomial, without the coefficient of x^32: for
    /// Barrett's division.
    pub quotient: u32,
    /// 1 divided by the polynomial as a power series, its first 32 coefficients.
    pub inverse: u32,
}

/// CRC-32 of Ethernet, gzip and PNG (ISO 3309).
pub const CRC32: Crc = Crc::new(0xedb8_8320);

/// CRC-32C of SCTP, iSCSI and ext4 (RFC 3720 §12.1, Castagnoli).
pub const CRC32C: Crc = Crc::new(0x82f6_3b78);

/// The state after one more bit of zeros: times x, modulo the polynomial.
const fn times_x(polynomial: u32, state: u32) -> u32 {
    (state >> 1) ^ if state & 1 == 1 { polynomial } else { 0 }
}

/// x^`power` modulo the polynomial.
const fn power(polynomial: u32, power: u32) -> u32 {
    // x^0 is the highest bit.
    let mut state = 1 << 31;
    let mut at = 0;
    while at < power {
        state = times_x(polynomial, state);
        at += 1;
    }
    state
}

/// x^`power` as a factor of 64 bits.
const fn factor(polynomial: u32, to: u32) -> u64 {
    (power(polynomial, to) as u64) << 32
}

/// Long division of x^64, from the highest coefficient.
const fn quotient(polynomial: u32) -> u32 {
    let mut rest = polynomial;
    let mut quotient = 0;
    let mut at = 0;
    while at < 32 {
        quotient |= (rest & 1) << at;
        rest = times_x(polynomial, rest);
        at += 1;
    }
    quotient
}

/// Long division of 1, from the lowest coefficient.
const fn inverse(polynomial: u32) -> u32 {
    let mut rest: u32 = 1 << 31;
    let mut inverse = 0;
    let mut at = 0;
    while at < 32 {
        let bit = 1 << (31 - at);
        if rest & bit != 0 {
            inverse |= bit;
            rest ^= polynomial >> at;
        }
        at += 1;
    }
    inverse
}

impl Crc {
    /// The constants of a polynomial.
    #[must_use]
    pub const fn new(polynomial: u32) -> Self {
        let mut folds = [[0; 2]; 4];
        let mut at = 0;
        while at < 4 {
            let bits = 128 * (at as u32 + 1);
            folds[at] = [factor(polynomial, bits + 63), factor(polynomial, bits - 1)];
            at += 1;
        }
        Self {
            polynomial,
            folds,
            last: [factor(polynomial, 95), factor(polynomial, 63)],
            quotient: quotient(polynomial),
            inverse: inverse(polynomial),
        }
    }

    /// The state after each byte from state 0.
    #[must_use]
    pub fn table(self) -> [u32; 256] {
        let byte = |byte| (0..8).fold(byte, |state, _| times_x(self.polynomial, state));
        std::array::from_fn(|at| byte(at as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Carry-less product.
    fn clmul(a: u32, b: u32) -> u64 {
        (0..32).fold(0, |sum, at| {
            sum ^ if b >> at & 1 == 1 {
                u64::from(a) << at
            } else {
                0
            }
        })
    }

    #[test]
    fn the_constants_are_those_of_the_paper() {
        // Gopal et al. 2009, table in §3: with the coefficient of x^32, which is
        // the lowest bit here, and so one bit further up.
        assert_eq!(
            power(CRC32.polynomial, 4 * 128 + 32),
            (0x1_5444_2bd4_u64 >> 1) as u32
        );
        assert_eq!(
            power(CRC32.polynomial, 4 * 128 - 32),
            (0x1_c6e4_1596_u64 >> 1) as u32
        );
        assert_eq!(CRC32.quotient, (0x1_f701_1641_u64 >> 1) as u32);
    }

    #[test]
    fn states_can_be_taken_back_by_four_bytes() {
        let table = CRC32C.table();
        for state in [1u32, 0x8000_0000, 0xffff_ffff, 0x1234_5678] {
            let quotient = (clmul(state, CRC32C.inverse) >> 31) as u32;
            let back = quotient ^ ((clmul(quotient, CRC32C.polynomial) as u32 & 0x7fff_ffff) << 1);
            let forth = back.to_le_bytes().iter().fold(0u32, |state, byte| {
                table[usize::from(state as u8 ^ byte)] ^ state >> 8
            });
            assert_eq!(forth, state);
        }
    }
}
