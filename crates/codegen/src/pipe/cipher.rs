//! Stream ciphers: what their keystream is, block by block.
//!
//! This is the definition that native code is compared with; it also runs where
//! no native code can. Its AES looks bytes up in a table, so the time that it
//! takes may tell about the key to whoever shares the cache. Native code does
//! not.
//!
//! Sources: RFC 8439 §2.3 and §2.4 (`ChaCha20`), FIPS 197 (AES), NIST SP 800-38A
//! §6.5 (counter mode).

use std::fmt;

/// A cipher whose output is the data xor a keystream.
///
/// Its register counts blocks: it holds the number of the first block of the next
/// call. A call that ends inside a block uses the whole block up.
#[derive(Clone, PartialEq, Eq)]
pub enum Cipher {
    /// `ChaCha20` of RFC 8439: blocks of 64 bytes, counted modulo 2^32.
    ChaCha20 {
        /// The key.
        key: [u8; 32],
        /// The nonce.
        nonce: [u8; 12],
    },
    /// AES in counter mode: blocks of 16 bytes. The counter is the initial one plus
    /// the block's number, modulo 2^128, big-endian.
    AesCtr {
        /// The round keys: 11, 13 or 15.
        round_keys: Vec<[u8; 16]>,
        /// The first block's counter.
        counter: [u8; 16],
    },
}

// Keys are nobody's business.
impl fmt::Debug for Cipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ChaCha20 { .. } => "ChaCha20",
            Self::AesCtr { .. } => "AesCtr",
        })
    }
}

impl Cipher {
    /// AES with a key of 16, 24 or 32 bytes; `None` for other lengths.
    #[must_use]
    pub fn aes_ctr(key: &[u8], counter: [u8; 16]) -> Option<Self> {
        matches!(key.len(), 16 | 24 | 32).then(|| Self::AesCtr {
            round_keys: expand(key),
            counter,
        })
    }

    /// Bytes of a block.
    #[must_use]
    pub const fn block_bytes(&self) -> usize {
        match self {
            Self::ChaCha20 { .. } => 64,
            Self::AesCtr { .. } => 16,
        }
    }

    /// Encrypts `data`, which begins at block `block`; decrypting is the same.
    /// Moves `block` on.
    pub(super) fn apply(&self, block: &mut u64, data: &mut [u8]) {
        for piece in data.chunks_mut(self.block_bytes()) {
            let mut stream = [0; 64];
            match self {
                Self::ChaCha20 { key, nonce } => {
                    stream = chacha20(key, nonce, *block as u32);
                    *block = u64::from((*block as u32).wrapping_add(1));
                }
                Self::AesCtr {
                    round_keys,
                    counter,
                } => {
                    let counter = u128::from_be_bytes(*counter).wrapping_add(u128::from(*block));
                    stream[..16].copy_from_slice(&encrypt(round_keys, counter.to_be_bytes()));
                    *block = block.wrapping_add(1);
                }
            }
            for (byte, stream) in piece.iter_mut().zip(stream) {
                *byte ^= stream;
            }
        }
    }
}

/// "expand 32-byte k" (RFC 8439 §2.3).
pub(super) const CHACHA_CONSTANTS: [u8; 16] = *b"expand 32-byte k";

/// One block of the keystream of `ChaCha20` (RFC 8439 §2.3).
fn chacha20(key: &[u8; 32], nonce: &[u8; 12], counter: u32) -> [u8; 64] {
    let mut start = [0; 64];
    start[..16].copy_from_slice(&CHACHA_CONSTANTS);
    start[16..48].copy_from_slice(key);
    start[48..52].copy_from_slice(&counter.to_le_bytes());
    start[52..].copy_from_slice(nonce);
    let (words, _) = start.as_chunks::<4>();
    let first: [u32; 16] = std::array::from_fn(|at| u32::from_le_bytes(words[at]));
    let mut state = first;
    for _ in 0..10 {
        for at in 0..4 {
            quarter(&mut state, [at, at + 4, at + 8, at + 12]);
        }
        for at in 0..4 {
            let around = |row: usize| row * 4 + (at + row) % 4;
            quarter(&mut state, [around(0), around(1), around(2), around(3)]);
        }
    }
    let mut stream = [0; 64];
    for (bytes, (word, first)) in stream.chunks_exact_mut(4).zip(state.iter().zip(first)) {
        bytes.copy_from_slice(&word.wrapping_add(first).to_le_bytes());
    }
    stream
}

/// RFC 8439 §2.1.
fn quarter(state: &mut [u32; 16], [a, b, c, d]: [usize; 4]) {
    for (left, right) in [(16, 12), (8, 7)] {
        state[a] = state[a].wrapping_add(state[b]);
        state[d] = (state[d] ^ state[a]).rotate_left(left);
        state[c] = state[c].wrapping_add(state[d]);
        state[b] = (state[b] ^ state[c]).rotate_left(right);
    }
}

/// Times x in AES's field (FIPS 197 §4.2.1).
const fn times_x(byte: u8) -> u8 {
    byte << 1 ^ if byte & 0x80 == 0 { 0 } else { 0x1b }
}

/// The substitution of bytes (FIPS 197 §5.1.1): inverse, then the affine map.
const SUBSTITUTE: [u8; 256] = {
    let mut table = [0; 256];
    // 3 generates the field; q runs through the powers of its inverse.
    let (mut p, mut q) = (1_u8, 1_u8);
    loop {
        p ^= times_x(p);
        q ^= q << 1;
        q ^= q << 2;
        q ^= q << 4;
        if q & 0x80 != 0 {
            q ^= 0x09;
        }
        table[p as usize] =
            0x63 ^ q ^ q.rotate_left(1) ^ q.rotate_left(2) ^ q.rotate_left(3) ^ q.rotate_left(4);
        if p == 1 {
            break;
        }
    }
    table[0] = 0x63;
    table
};

/// The round keys (FIPS 197 §5.2).
fn expand(key: &[u8]) -> Vec<[u8; 16]> {
    let length = key.len() / 4;
    let count = 4 * (length + 7);
    let mut words: Vec<[u8; 4]> = key.as_chunks::<4>().0.to_vec();
    let mut constant = 1;
    for at in length..count {
        let mut word = words[at - 1];
        if at % length == 0 {
            word.rotate_left(1);
            word = word.map(|byte| SUBSTITUTE[usize::from(byte)]);
            word[0] ^= constant;
            constant = times_x(constant);
        } else if length > 6 && at % length == 4 {
            word = word.map(|byte| SUBSTITUTE[usize::from(byte)]);
        }
        let before = words[at - length];
        words.push(std::array::from_fn(|byte| before[byte] ^ word[byte]));
    }
    let (keys, _) = words.as_chunks::<4>();
    keys.iter()
        .map(|key| std::array::from_fn(|at| key[at / 4][at % 4]))
        .collect()
}

/// One block (FIPS 197 §5.1).
fn encrypt(round_keys: &[[u8; 16]], mut block: [u8; 16]) -> [u8; 16] {
    let add = |block: [u8; 16], key: &[u8; 16]| std::array::from_fn(|at| block[at] ^ key[at]);
    block = add(block, &round_keys[0]);
    for (round, key) in round_keys.iter().enumerate().skip(1) {
        // Rows are shifted: byte r of column c comes from column c + r.
        let moved: [u8; 16] =
            std::array::from_fn(|at| SUBSTITUTE[usize::from(block[(at + 4 * (at % 4)) % 16])]);
        block = if round + 1 == round_keys.len() {
            moved
        } else {
            std::array::from_fn(|at| {
                let of = |row: usize| moved[at / 4 * 4 + (at + row) % 4];
                times_x(of(0)) ^ times_x(of(1)) ^ of(1) ^ of(2) ^ of(3)
            })
        };
        block = add(block, key);
    }
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chacha20_is_that_of_rfc_8439_2_3_2() {
        let key = std::array::from_fn(|at| at as u8);
        let nonce = [0, 0, 0, 9, 0, 0, 0, 0x4a, 0, 0, 0, 0];
        let stream = chacha20(&key, &nonce, 1);
        assert_eq!(
            stream[..8],
            [0x10, 0xf1, 0xe7, 0xe4, 0xd1, 0x3b, 0x59, 0x15]
        );
        assert_eq!(stream[60..], [0xa2, 0x50, 0x3c, 0x4e]);
    }

    #[test]
    fn aes_is_that_of_fips_197_appendix_c() {
        let plain: [u8; 16] = std::array::from_fn(|at| at as u8 * 0x11);
        for (length, first) in [(16, 0x69), (24, 0xdd), (32, 0x8e)] {
            let key: Vec<u8> = (0..length).collect();
            assert_eq!(encrypt(&expand(&key), plain)[0], first, "{length} bytes");
        }
    }
}
