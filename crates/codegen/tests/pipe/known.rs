//! Built-in pipes give what their specifications say, in every form.

use std::fmt::Write as _;

use aes::cipher::{BlockEncrypt, KeyInit};
use ashway_codegen::pipe::{Cpu, Options, Portable, builtin, compile, interpret, parse};
use ashway_wire::checksum::Sum;
use chacha20::ChaCha20;
use chacha20::cipher::{KeyIvInit, StreamCipher, StreamCipherSeek};

use super::native::Pipes;
use super::random::Random;

/// Runs a list in every form; all must agree. Gives data and registers.
fn run(text: &str, data: &[u8]) -> (Vec<u8>, Vec<u64>) {
    let list = parse(text).unwrap();
    let mut wanted = (data.to_vec(), list.initial());
    interpret(&list, &mut wanted.1, &mut wanted.0);
    let mut given = (data.to_vec(), list.initial());
    Portable::new(&list).run_in_place(&mut given.1, &mut given.0);
    assert_eq!(given, wanted, "portable: {text}");
    for cpu in super::cpus() {
        let pipes = Pipes::map(compile(&list, cpu, Options::default()).unwrap()).unwrap();
        let mut given = (vec![0; data.len()], list.initial());
        pipes.run(&mut given.1, data, &mut given.0, data.len());
        assert_eq!(given, wanted, "{cpu:?}: {text}");
    }
    wanted
}

/// Several messages of every length up to some, and a long one.
fn messages() -> impl Iterator<Item = Vec<u8>> {
    let mut random = Random(1);
    (0..200)
        .chain([1472, 9000, 3 << 20])
        .map(move |len| random.bytes(len))
}

/// A CRC bit by bit, as its polynomial is defined.
fn crc(polynomial: u32, data: &[u8]) -> u32 {
    !data.iter().fold(u32::MAX, |state, byte| {
        (0..8).fold(state ^ u32::from(*byte), |state, _| {
            (state >> 1) ^ if state & 1 == 1 { polynomial } else { 0 }
        })
    })
}

#[test]
fn crcs_are_those_of_their_polynomials() {
    // The check values of the catalogue of CRCs.
    assert_eq!(!run("crc32", b"123456789").1[0] as u32, 0xcbf4_3926);
    assert_eq!(!run("crc32c", b"123456789").1[0] as u32, 0xe306_9283);
    for data in messages() {
        assert_eq!(!run("crc32", &data).1[0] as u32, crc(0xedb8_8320, &data));
        assert_eq!(!run("crc32c", &data).1[0] as u32, crc(0x82f6_3b78, &data));
    }
}

#[test]
fn adler_is_that_of_rfc_1950() {
    let registers = run("adler32", b"Wikipedia").1;
    assert_eq!(registers[1] << 16 | registers[0], 0x11e6_0398);
    for data in messages() {
        let (mut s1, mut s2) = (1, 0);
        for byte in &data {
            s1 = (s1 + u64::from(*byte)) % 65_521;
            s2 = (s2 + s1) % 65_521;
        }
        assert_eq!(run("adler32", &data).1, [s1, s2]);
    }
}

#[test]
fn the_checksum_is_that_of_rfc_1071() {
    for data in messages() {
        let sum = run("cksum16", &data).1[0];
        let field = builtin::checksum_field(sum);
        assert_eq!(field, (!Sum::new().bytes(&data).fold()).to_be_bytes());
    }
}

#[test]
fn a_message_with_its_field_verifies_and_goes_on_from_what_was_exported() {
    let mut message = *b"\x00\x01\xf2\x03\xf4\xf5\xf6\xf7\x00\x00";
    let sum = run("cksum16", &message).1[0];
    message[8..].copy_from_slice(&builtin::checksum_field(sum));
    assert!(builtin::verifies(run("cksum16", &message).1[0]));
    message[3] ^= 1;
    assert!(!builtin::verifies(run("cksum16", &message).1[0]));
    // Incremental: the sum of the first 64 bytes exported to a second run.
    let list = parse("cksum16").unwrap();
    let mut data = Random(2).bytes(200);
    let whole = run("cksum16", &data).1;
    let mut registers = list.initial();
    let (head, tail) = data.split_at_mut(64);
    interpret(&list, &mut registers, head);
    interpret(&list, &mut registers, tail);
    assert_eq!(registers, whole);
}

#[test]
fn a_mask_goes_on_where_the_last_fragment_ended() {
    // RFC 6455 §5.7: a masked "Hello".
    assert_eq!(run("mask(0x37fa213d)", b"Hello").0, b"\x7f\x9f\x4d\x51\x58");
    let list = parse("mask(0x37fa213d)").unwrap();
    for cpu in super::cpus() {
        let pipes = Pipes::map(compile(&list, cpu, Options::default()).unwrap()).unwrap();
        for cut in 0..=130 {
            let mut data = Random(3).bytes(130);
            let whole = run("mask(0x37fa213d)", &data).0;
            let mut registers = list.initial();
            let (head, tail) = data.split_at_mut(cut);
            pipes.run_in_place(&mut registers, head);
            pipes.run_in_place(&mut registers, tail);
            assert_eq!(data, whole, "cut at {cut}");
        }
    }
}

#[test]
fn swapping_leaves_a_partial_word_and_is_undone_by_itself() {
    assert_eq!(run("bswap32", b"12345678abc").0, b"43218765abc");
    assert_eq!(run("bswap16", b"12345").0, b"21435");
    assert_eq!(run("bswap64", b"12345678abc").0, b"87654321abc");
    for data in messages() {
        assert_eq!(run("bswap16 | bswap16", &data).0, data);
    }
}

#[test]
fn small_sums_over_words_are_what_they_are_called() {
    let data = [1, 2, 3, 0xff, 3];
    assert_eq!(run("sum8", &data).1, [1 + 2 + 3 + 0xff + 3]);
    assert_eq!(run("sum16", &data).1, [0x0201 + 0xff03 + 3]);
    assert_eq!(run("min16", &data).1, [3]);
    assert_eq!(run("max32", &data).1, [0xff03_0201]);
    assert_eq!(run("count8(3)", &data).1, [2]);
    assert_eq!(run("count16(0xff03)", &data).1, [1]);
    assert_eq!(run("min8", &[]).1, [0xff]);
}

#[test]
fn a_pipe_twice_has_two_accumulators() {
    let (data, registers) = run("cksum16 | bswap32 | cksum16", b"\x01\x02\x03\x04");
    assert_eq!(data, b"\x04\x03\x02\x01");
    assert_eq!(registers, [0x0604, 0x0406]);
}

/// Hexadecimal digits of bytes.
fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        write!(text, "{byte:02x}").unwrap();
    }
    text
}

#[test]
fn chacha20_is_that_of_the_crate() {
    let mut random = Random(7);
    for data in messages() {
        let key: [u8; 32] = std::array::from_fn(|_| random.number() as u8);
        let nonce: [u8; 12] = std::array::from_fn(|_| random.number() as u8);
        let block = random.number() as u32 >> 1;
        let text = format!("chacha20({},{},{block})", hex(&key), hex(&nonce));
        let mut wanted = data.clone();
        let mut cipher = ChaCha20::new(&key.into(), &nonce.into());
        cipher.seek(u64::from(block) * 64);
        cipher.apply_keystream(&mut wanted);
        assert!(
            run(&text, &data).0 == wanted,
            "{text}, {} bytes",
            data.len()
        );
    }
}

/// AES in counter mode out of single blocks of the crate.
fn counter_mode(cipher: &impl BlockEncrypt, counter: u128, data: &[u8]) -> Vec<u8> {
    let mut wanted = data.to_vec();
    for (at, piece) in (0..).zip(wanted.chunks_mut(16)) {
        let mut stream = counter.wrapping_add(at).to_be_bytes();
        // A slice of the blocks' type, whatever its generics are.
        cipher.encrypt_block(aes::cipher::generic_array::GenericArray::from_mut_slice(
            &mut stream,
        ));
        for (byte, stream) in piece.iter_mut().zip(stream) {
            *byte ^= stream;
        }
    }
    wanted
}

#[test]
fn aes_in_counter_mode_is_that_of_the_crate() {
    let mut random = Random(8);
    for data in messages() {
        let key: [u8; 32] = std::array::from_fn(|_| random.number() as u8);
        // About to carry, now and then.
        let counter = u128::from(random.number()) << 64 | u128::from(random.one_of(&[0_u64, !0]));
        for bytes in [16, 24, 32] {
            let key = &key[..bytes];
            let counted = hex(&counter.to_be_bytes());
            let text = format!("aesctr({},{counted})", hex(key));
            let wanted = match bytes {
                16 => counter_mode(&aes::Aes128::new_from_slice(key).unwrap(), counter, &data),
                24 => counter_mode(&aes::Aes192::new_from_slice(key).unwrap(), counter, &data),
                _ => counter_mode(&aes::Aes256::new_from_slice(key).unwrap(), counter, &data),
            };
            assert!(
                run(&text, &data).0 == wanted,
                "{text}, {} bytes",
                data.len()
            );
        }
    }
}

#[test]
fn a_cipher_goes_on_at_the_next_block() {
    let text = "aesctr(2b7e151628aed2a6abf7158809cf4f3c,f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff)";
    let list = parse(text).unwrap();
    let data = Random(9).bytes(1 << 12);
    let whole = run(text, &data).0;
    let mut parts = data;
    let mut registers = list.initial();
    let (head, tail) = parts.split_at_mut(640);
    interpret(&list, &mut registers, head);
    assert_eq!(registers, [40]);
    interpret(&list, &mut registers, tail);
    assert_eq!(parts, whole);
}

#[test]
fn aes_without_aes_is_refused_by_name() {
    let text = "copy | aesctr(2b7e151628aed2a6abf7158809cf4f3c,f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff)";
    let list = parse(text).unwrap();
    for cpu in super::cpus() {
        let cpu = Cpu {
            aes: false,
            aes_wide: false,
            ..cpu
        };
        let error = compile(&list, cpu, Options::default()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "`aesctr` has no native form on this CPU: it has no AES-NI"
        );
    }
}
