//! Host calls on the message: width, byte order, and both bounds.
//!
//! Source: `docs/abi/`. The message ends where it ends, although the frame goes
//! on behind it; an access that is not wholly inside stops the handler, and one
//! that changes the message marks it as changed. What reads may begin in front of
//! the message, in the frame's headers; what writes may not.

use super::machine::{Handler, How};
use ashway_abi::{Cause, HostCall};
use ashway_codegen::stub;

/// Bytes in front of the message.
const FRONT: usize = stub::HEADER_BYTES;

/// Where operands and results lie in memory.
const AT: usize = 0;
const VALUE: usize = 8;
const RESULT: usize = 16;

/// What a fixed-width call does.
#[derive(Clone, Copy, Debug)]
struct Meaning {
    load: bool,
    bytes: usize,
    big_endian: bool,
}

/// By the call's name, which says it all.
fn meaning(call: HostCall) -> Option<Meaning> {
    let name = call.name().strip_prefix("msg_")?;
    let (load, rest) = match name.strip_prefix("load") {
        Some(rest) => (true, rest),
        None => (false, name.strip_prefix("store")?),
    };
    let digits = rest.trim_end_matches(char::is_alphabetic);
    Some(Meaning {
        load,
        bytes: digits.parse::<usize>().unwrap() / 8,
        big_endian: rest.ends_with("be"),
    })
}

fn program(call: HostCall, at: Option<u32>) -> String {
    let meaning = meaning(call).unwrap();
    let ty = if meaning.bytes == 8 { "i64" } else { "i32" };
    let at = match at {
        Some(at) => format!("(i32.const {})", at as i32),
        None => format!("(i32.load (i32.const {AT}))"),
    };
    // So many locals that every register is taken.
    let kept =
        "(local.set $p (i32.const 1)) (local.set $q (i32.const 20)) (local.set $r (i32.const 300))
        (local.set $s (i32.const 4000)) (local.set $t (i32.const 50000))";
    let (signature, body) = if meaning.load {
        let extend = if ty == "i64" { "" } else { "i64.extend_i32_u" };
        (
            format!("(param i32) (result {ty})"),
            format!("(i32.const {RESULT}) (call $call {at}) {extend} (i64.store)"),
        )
    } else {
        (
            format!("(param i32 {ty})"),
            format!("(call $call {at} ({ty}.load (i32.const {VALUE})))"),
        )
    };
    format!(
        r#"(module
            (import "ashway" "{}" (func $call {signature}))
            (memory (export "memory") 1 1)
            (func (export "on_rx") (param i32 i32) (result i32)
                (local $p i32) (local $q i32) (local $r i32) (local $s i32) (local $t i32)
                {kept} {body}
                (i32.add (i32.add (local.get $p) (local.get $q))
                    (i32.add (local.get $r) (i32.add (local.get $s) (local.get $t))))))"#,
        call.name()
    )
}

const STORED: u64 = 0xf1e2_d3c4_b5a6_9788;

fn message(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 73 + 0x81) as u8).collect()
}

fn prove(handler: &mut Handler, call: HostCall, at: u32, len: usize) {
    let Meaning {
        load,
        bytes,
        big_endian,
    } = meaning(call).unwrap();
    let what = format!("{} at {at:#x} of {len} bytes", call.name());
    handler.guest_mut()[AT..][..4].copy_from_slice(&at.to_le_bytes());
    handler.guest_mut()[VALUE..][..8].copy_from_slice(&STORED.to_le_bytes());
    let before = message(len);
    let outcome = handler.run(&before);
    // In the frame, where that can be.
    let offset = if load {
        i64::from(at as i32)
    } else {
        i64::from(at)
    };
    let there = offset + FRONT as i64;
    if there < 0 || there + bytes as i64 > (FRONT + len) as i64 {
        assert_eq!(outcome.cause(), Some(Cause::MessageBounds), "{what}");
        assert_eq!(outcome.message, before, "{what}");
        assert!(!outcome.dirty, "{what}");
        return;
    }
    assert_eq!(outcome.result, Ok(54_321), "{what}");
    assert_eq!(outcome.dirty, !load, "{what}");
    // The number's bytes, from the lowest.
    let ordered = |mut bytes: Vec<u8>| {
        if big_endian {
            bytes.reverse();
        }
        bytes
    };
    let there = there as usize;
    if load {
        let frame = stub::frame(&before);
        let mut expected = ordered(frame[there..there + bytes].to_vec());
        expected.resize(8, 0);
        assert_eq!(handler.guest()[RESULT..][..8], expected, "{what}");
        assert_eq!(outcome.message, before, "{what}");
    } else {
        let at = there - FRONT;
        let mut expected = before;
        let stored = ordered(STORED.to_le_bytes()[..bytes].to_vec());
        expected[at..at + bytes].copy_from_slice(&stored);
        assert_eq!(outcome.message, expected, "{what}");
    }
}

fn fixed_width() -> impl Iterator<Item = HostCall> {
    let calls = HostCall::ALL.into_iter();
    calls.filter(|call| meaning(*call).is_some())
}

/// Lengths of messages: all short ones, and one as long as a frame.
fn lengths() -> impl Iterator<Item = usize> {
    (0..=18).chain([1_472])
}

/// Offsets around every bound, and those that would wrap.
fn offsets() -> impl Iterator<Item = u32> {
    let far = [0x7fff, 0x8000, 0xfe00, 0xffff, 0x1_0000, 1 << 31];
    let far = far.into_iter().flat_map(|at: u32| at - 9..at + 2);
    (0..=20)
        .chain(1_460..=1_474)
        .chain(far)
        .chain(u32::MAX - 9..=u32::MAX)
        .chain(u32::MAX - 75..=u32::MAX - 55)
}

#[test]
fn every_call_has_its_bounds_at_any_offset() {
    for call in fixed_width() {
        for how in [How::REGISTERS, How::FRAMES, How::ARRAY] {
            let mut handler = Handler::new(&program(call, None), how);
            for len in lengths() {
                for at in offsets() {
                    prove(&mut handler, call, at, len);
                }
            }
        }
    }
}

#[test]
fn every_call_has_its_bounds_at_a_constant_offset() {
    for call in fixed_width() {
        for how in [How::REGISTERS, How::ARRAY] {
            for at in offsets() {
                let mut handler = Handler::new(&program(call, Some(at)), how);
                for len in lengths() {
                    prove(&mut handler, call, at, len);
                }
            }
        }
    }
}

#[test]
fn bulk_calls_copy_exactly_what_is_inside_both() {
    const LEN: i32 = 80;
    const PAGE: i32 = 65_536;
    for (call, load) in [("msg_read", true), ("msg_write", false)] {
        let text = format!(
            r#"(module
                (import "ashway" "{call}" (func $call (param i32 i32 i32)))
                (memory (export "memory") 1 1)
                (func (export "on_rx") (param i32 i32) (result i32)
                    (call $call (i32.load (i32.const 0)) (i32.load (i32.const 4)) (i32.load (i32.const 8)))
                    (i32.const 0)))"#
        );
        for how in [How::REGISTERS, How::ARRAY] {
            let mut handler = Handler::new(&text, how);
            for (at, byte) in handler.guest_mut().iter_mut().enumerate() {
                *byte = (at * 41 + 3) as u8;
            }
            let starts = [-66, -65, -64, -63, -9, -8, -1]
                .into_iter()
                .chain(0..=LEN + 1);
            for (at, len) in starts.flat_map(|at| (0..=LEN + 1).map(move |len| (at, len))) {
                for pointer in [64, PAGE - len, PAGE - len + 1] {
                    for (place, word) in [at, pointer, len].iter().enumerate() {
                        handler.guest_mut()[place * 4..][..4].copy_from_slice(&word.to_le_bytes());
                    }
                    let mut guest = handler.guest().to_vec();
                    let mut expected = message(LEN as usize);
                    let outcome = handler.run(&expected);
                    let front = if load { -(FRONT as i32) } else { 0 };
                    let cause = if at < front || at + len > LEN {
                        Some(Cause::MessageBounds)
                    } else if pointer + len > PAGE {
                        Some(Cause::MemoryBounds)
                    } else {
                        let there =
                            (at + FRONT as i32) as usize..(at + FRONT as i32 + len) as usize;
                        let here = pointer as usize..(pointer + len) as usize;
                        if load {
                            guest[here].copy_from_slice(&stub::frame(&expected)[there]);
                        } else {
                            expected[there.start - FRONT..there.end - FRONT]
                                .copy_from_slice(&guest[here]);
                        }
                        None
                    };
                    let what = format!("{call} of {len} at {at}, {pointer:#x}, {how:?}");
                    assert_eq!(outcome.cause(), cause, "{what}");
                    assert_eq!(outcome.message, expected, "{what}");
                    assert_eq!(outcome.dirty, !load && cause.is_none(), "{what}");
                    assert!(handler.guest() == guest, "{what}");
                }
            }
        }
    }
}
