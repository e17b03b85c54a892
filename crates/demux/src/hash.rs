//! A hash of short keys, seeded.
//!
//! The standard library's (`SipHash` 1-3) takes most of the time of a look-up when
//! a key is two words. One multiplication of 64 by 64 bits, its halves folded, is
//! enough to spread them (Yi 2019, "wyhash"); the seed is drawn for each map, so
//! that nobody can choose keys that meet in it.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Makes hashers that agree with each other, and with no other seed's.
#[derive(Clone, Debug)]
pub(super) struct Seed([u64; 2]);

impl Default for Seed {
    fn default() -> Self {
        let random = RandomState::new();
        // Odd, so that no product is lost to a zero factor.
        Self([random.hash_one(0), random.hash_one(1)].map(|number| number | 1))
    }
}

impl BuildHasher for Seed {
    type Hasher = Folded;

    #[inline]
    fn build_hasher(&self) -> Folded {
        Folded {
            seed: self.0,
            hash: 0,
        }
    }
}

/// The hash of what was written so far.
pub(super) struct Folded {
    seed: [u64; 2],
    hash: u64,
}

impl Hasher for Folded {
    #[inline]
    fn write_u128(&mut self, number: u128) {
        let [high, low] = [(number >> 64) as u64, number as u64];
        let product = u128::from(high ^ self.seed[0]) * u128::from(low ^ self.seed[1] ^ self.hash);
        self.hash = (product >> 64) as u64 ^ product as u64;
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(16) {
            let mut word = [0; 16];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u128(u128::from_be_bytes(word));
        }
    }

    /// Written ahead of slices. Keys of one map are of one length.
    #[inline]
    fn write_usize(&mut self, _: usize) {}

    #[inline]
    fn finish(&self) -> u64 {
        self.hash
    }
}
