//! Random numbers that a seed repeats for ever.

/// `SplitMix64` (Steele, Lea, Flood 2014): 64 bits of state, no dependencies,
/// the same on every machine and in every version.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Begins a sequence.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, which is not 0.
    pub const fn below(&mut self, end: u64) -> u64 {
        self.bits() % end
    }

    /// True once in `times`.
    pub const fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// One of the values.
    pub fn pick<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len() as u64) as usize]
    }

    /// Random bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let words = len.div_ceil(8);
        let mut bytes: Vec<u8> = (0..words).flat_map(|_| self.bits().to_le_bytes()).collect();
        bytes.truncate(len);
        bytes
    }

    /// A number as programs like them: small, near a power of two, at an edge
    /// of its type or of a page, or anything.
    pub fn number(&mut self) -> u64 {
        let small = self.below(16);
        match self.below(6) {
            0 => small,
            1 => small.wrapping_neg(),
            2 => (1u64 << self.below(64)).wrapping_add(small).wrapping_sub(8),
            3 => self.pick(&[
                0,
                0x7fff_ffff,
                0x8000_0000,
                0xffff_ffff,
                u64::MAX >> 1,
                1 << 63,
            ]),
            4 => (0x1_0000 * self.below(5))
                .wrapping_add(small)
                .wrapping_sub(8),
            _ => self.bits(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_the_published_one() {
        let mut random = Random::new(1_234_567);
        let first: Vec<_> = (0..3).map(|_| random.bits()).collect();
        assert_eq!(
            first,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423
            ]
        );
    }
}
