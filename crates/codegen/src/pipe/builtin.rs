//! The pipes that come with Ashway.
//!
//! | name | words | tail | gives | registers |
//! | --- | --- | --- | --- | --- |
//! | `copy` | 8 | pad | the word | |
//! | `cksum16` | 16 | pad | the word | `sum`, ones' complement, folded, in memory order |
//! | `crc32`, `crc32c` | 8 | pad | the word | `state`, complemented at the end |
//! | `adler32` | 8 | pad | the word | `s1`, `s2` |
//! | `bswap16`, `32`, `64` | by name | leave | bytes in reverse order | |
//! | `xor8`, `16`, `32`, `64(k)`, `xor(k)` of 32 | by name | pad | word xor k | `key` |
//! | `add8`, ... `(k)` | by name | leave | word plus k | `addend` |
//! | `mask(k)` | 32 | pad | word xor the key, which goes on in the next call | `key` |
//! | `chacha20(key,nonce,n)` | 128 | pad | xor the keystream from block n on | `block` |
//! | `aesctr(key,counter)` | 128 | pad | xor the keystream | `block` |
//! | `alaw2ulaw`, `ulaw2alaw` | 8 | pad | the table's entry | |
//! | `sum8`, ... | by name | pad | the word | `sum` modulo 2^64 |
//! | `min8`, ... `max8`, ... | by name | pad | the word | `least`, `greatest` |
//! | `count8`, ... `(k)` | by name | pad | the word | `count` of words equal to k |

use std::sync::Arc;

use super::cipher::Cipher;
use super::error::PipeError;
use super::g711;
use super::ir::{Binary, Builder, Gauge, Op, Pipe, Reduce, Shift};
use super::primitive::{ADLER_MODULUS, CRC32, CRC32C, Crc, Primitive};

/// Built-in pipes claim what they do, so none is refused.
fn proved(pipe: Result<Pipe, PipeError>) -> Pipe {
    pipe.unwrap_or_else(|why| unreachable!("{why}"))
}

/// The word as it is.
#[must_use]
pub fn copy() -> Pipe {
    let mut body = Builder::new("copy", Gauge::Bits8);
    let word = body.input();
    proved(body.commutative().no_mod().finish(word))
}

/// The Internet checksum (RFC 1071).
///
/// The register is the ones' complement sum of little-endian words, so in
/// *memory order* (RFC 1071 §2(B)): its complement, stored little-endian, is the
/// checksum field ([`checksum_field`]); a message whose field is in the sum
/// [`verifies`]. Exporting the sum of a pseudo-header or of an earlier part makes
/// it incremental.
#[must_use]
pub fn internet_checksum() -> Pipe {
    let mut body = Builder::new("cksum16", Gauge::Bits16);
    let sum = body.register("sum", 0);
    let word = body.input();
    body.reduce(sum, Reduce::Ones, word);
    proved(body.commutative().no_mod().finish(word))
}

/// The checksum field, as its two bytes stand in the message, for the register
/// of `cksum16` over a message with a field of zero.
#[must_use]
pub const fn checksum_field(sum: u64) -> [u8; 2] {
    (!(sum as u16)).to_le_bytes()
}

/// Whether the register of `cksum16` over a message with its field says that it
/// is whole.
#[must_use]
pub const fn verifies(sum: u64) -> bool {
    sum == 0xffff
}

/// CRC-32. The CRC is the complement of the register.
#[must_use]
pub fn crc32() -> Pipe {
    crc("crc32", CRC32)
}

/// CRC-32C. The CRC is the complement of the register.
#[must_use]
pub fn crc32c() -> Pipe {
    crc("crc32c", CRC32C)
}

fn crc(name: &str, crc: Crc) -> Pipe {
    let mut body = Builder::new(name, Gauge::Bits8)
        .width(Gauge::Bits32)
        .table(Arc::new(crc.table()))
        .primitive(Primitive::Crc(crc));
    let register = body.register("state", 0xffff_ffff);
    let word = body.input();
    let state = body.read(register);
    let index = body.binary(Binary::Xor, word, state);
    let entry = body.op(Op::Table(index));
    let above = body.shift(Shift::Right, state, 8);
    let next = body.binary(Binary::Xor, entry, above);
    body.set(register, next);
    proved(body.no_mod().finish(word))
}

/// Adler-32 (RFC 1950 §8.2). The checksum is `s2 << 16 | s1`.
#[must_use]
pub fn adler32() -> Pipe {
    let mut body = Builder::new("adler32", Gauge::Bits8)
        .width(Gauge::Bits32)
        .primitive(Primitive::Adler);
    let (s1, s2) = (body.register("s1", 1), body.register("s2", 0));
    let word = body.input();
    let modulus = body.constant(u64::from(ADLER_MODULUS));
    let add = |body: &mut Builder, left, right| {
        let sum = body.binary(Binary::Add, left, right);
        let less = body.binary(Binary::Below, sum, modulus);
        let reduced = body.binary(Binary::Sub, sum, modulus);
        body.op(Op::Select(less, sum, reduced))
    };
    let old = body.read(s1);
    let first = add(&mut body, old, word);
    let old = body.read(s2);
    let second = add(&mut body, old, first);
    body.set(s1, first);
    body.set(s2, second);
    proved(body.no_mod().finish(word))
}

/// Bytes of each word in reverse order; a partial word passes as it is, so that
/// twice is nothing.
#[must_use]
pub fn swap(gauge: Gauge) -> Pipe {
    let name = format!("bswap{}", gauge.bits());
    let mut body = Builder::new(&name, gauge).leave_tail();
    let word = body.input();
    let swapped = body.op(Op::Swap(word));
    proved(body.commutative().finish(swapped))
}

/// Each word xor `key`. Of a partial word, as many bytes as there are.
#[must_use]
pub fn xor(gauge: Gauge, key: u64) -> Pipe {
    let mut body = Builder::new(&format!("xor{}", gauge.bits()), gauge);
    let register = body.register("key", key & gauge.mask());
    let word = body.input();
    let key = body.read(register);
    let both = body.binary(Binary::Xor, word, key);
    proved(body.commutative().finish(both))
}

/// Each word plus `addend`.
#[must_use]
pub fn add(gauge: Gauge, addend: u64) -> Pipe {
    let mut body = Builder::new(&format!("add{}", gauge.bits()), gauge).leave_tail();
    let register = body.register("addend", addend & gauge.mask());
    let word = body.input();
    let addend = body.read(register);
    let sum = body.binary(Binary::Add, word, addend);
    proved(body.commutative().finish(sum))
}

/// Xor with a rolling key of four bytes, the first one for the first byte of the
/// message (RFC 6455 §5.3). A call of any length leaves the key where the next
/// fragment goes on.
#[must_use]
pub fn mask(key: [u8; 4]) -> Pipe {
    let mut body = Builder::new("mask", Gauge::Bits32);
    let register = body.register("key", u64::from(u32::from_le_bytes(key)));
    let word = body.input();
    let key = body.read(register);
    let both = body.binary(Binary::Xor, word, key);
    let body = body.rolling(register).commutative();
    proved(body.finish(both))
}

/// `ChaCha20` (RFC 8439 §2.4), from block `counter` on.
#[must_use]
pub fn chacha20(key: [u8; 32], nonce: [u8; 12], counter: u32) -> Pipe {
    cipher(
        "chacha20",
        Cipher::ChaCha20 { key, nonce },
        u64::from(counter),
    )
}

/// AES in counter mode (NIST SP 800-38A §6.5) with a key of 16, 24 or 32 bytes;
/// `None` for other lengths.
#[must_use]
pub fn aes_ctr(key: &[u8], counter: [u8; 16]) -> Option<Pipe> {
    Some(cipher("aesctr", Cipher::aes_ctr(key, counter)?, 0))
}

fn cipher(name: &str, cipher: Cipher, block: u64) -> Pipe {
    let mut body = Builder::new(name, Gauge::Bits8).primitive(Primitive::Cipher(cipher));
    body.register("block", block);
    let word = body.input();
    let mut pipe = proved(body.finish(word));
    // Blocks of keystream; nothing computes with words of that width.
    (pipe.input, pipe.output) = (Gauge::Bits128, Gauge::Bits128);
    pipe
}

/// Each byte replaced by its entry in `table`.
#[must_use]
pub fn substitute(name: &str, table: &[u8; 256]) -> Pipe {
    let table = Arc::new(table.map(u32::from));
    let mut body = Builder::new(name, Gauge::Bits8).table(table);
    let word = body.input();
    let entry = body.op(Op::Table(word));
    proved(body.commutative().finish(entry))
}

/// A-law to mu-law (G.711).
#[must_use]
pub fn alaw_to_ulaw() -> Pipe {
    substitute("alaw2ulaw", &g711::alaw_to_ulaw())
}

/// Mu-law to A-law (G.711).
#[must_use]
pub fn ulaw_to_alaw() -> Pipe {
    substitute("ulaw2alaw", &g711::ulaw_to_alaw())
}

/// The sum of all words modulo 2^64.
#[must_use]
pub fn sum(gauge: Gauge) -> Pipe {
    reduction("sum", "sum", gauge, Reduce::Sum, 0)
}

/// The least word; all ones if there was none.
#[must_use]
pub fn min(gauge: Gauge) -> Pipe {
    reduction("min", "least", gauge, Reduce::Min, gauge.mask())
}

/// The greatest word; 0 if there was none.
#[must_use]
pub fn max(gauge: Gauge) -> Pipe {
    reduction("max", "greatest", gauge, Reduce::Max, 0)
}

fn reduction(name: &str, register: &str, gauge: Gauge, how: Reduce, initial: u64) -> Pipe {
    let mut body = Builder::new(&format!("{name}{}", gauge.bits()), gauge);
    let register = body.register(register, initial);
    let word = body.input();
    body.reduce(register, how, word);
    proved(body.commutative().no_mod().finish(word))
}

/// How many words are equal to `wanted`. A partial word counts as if padded.
#[must_use]
pub fn count(gauge: Gauge, wanted: u64) -> Pipe {
    let mut body = Builder::new(&format!("count{}", gauge.bits()), gauge);
    let register = body.register("count", 0);
    let word = body.input();
    let wanted = body.constant(wanted);
    let equal = body.binary(Binary::Equal, word, wanted);
    body.reduce(register, Reduce::Sum, equal);
    proved(body.commutative().no_mod().finish(word))
}
