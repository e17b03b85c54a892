//! A handler works on a message where that lies, among all others.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::ops::Range;

use ashway_abi::{Cause, Verdict};
use ashway_handler::{Function, MESSAGE_BYTES, Outcome};
use ashway_memory::messages::Buffer;
use common::{handler, load};

const FUEL: u64 = 10_000;

/// Of these bytes a message, and what is before it.
const MESSAGE: Range<usize> = 4000..4100;
const FRONT: usize = 60;

/// What lies at a place before a handler runs.
const fn was(at: usize) -> u8 {
    (at % 251) as u8
}

/// Every access of a handler, at the offset that its channel says, and how many bytes
/// it reaches; whether it writes.
const ACCESSES: [(&str, i64, bool); 19] = [
    ("(drop (call $load8 (local.get 1)))", 1, false),
    ("(drop (call $load16le (local.get 1)))", 2, false),
    ("(drop (call $load16be (local.get 1)))", 2, false),
    ("(drop (call $load32le (local.get 1)))", 4, false),
    ("(drop (call $load32be (local.get 1)))", 4, false),
    ("(drop (call $load64le (local.get 1)))", 8, false),
    ("(drop (call $load64be (local.get 1)))", 8, false),
    ("(call $store8 (local.get 1) (i32.const 255))", 1, true),
    ("(call $store16le (local.get 1) (i32.const -1))", 2, true),
    ("(call $store16be (local.get 1) (i32.const -1))", 2, true),
    ("(call $store32le (local.get 1) (i32.const -1))", 4, true),
    ("(call $store32be (local.get 1) (i32.const -1))", 4, true),
    ("(call $store64le (local.get 1) (i64.const -1))", 8, true),
    ("(call $store64be (local.get 1) (i64.const -1))", 8, true),
    (
        "(call $read (local.get 1) (i32.const 0) (i32.const 16))",
        16,
        false,
    ),
    (
        "(call $read (local.get 1) (i32.const 0) (i32.const 0))",
        0,
        false,
    ),
    (
        "(call $write (local.get 1) (i32.const 0) (i32.const 16))",
        16,
        true,
    ),
    (
        "(call $write (local.get 1) (i32.const 0) (i32.const 0))",
        0,
        true,
    ),
    (
        "(call $write (local.get 1) (i32.const 0) (i32.const 70000))",
        70_000,
        true,
    ),
];

/// Where a message lies in its buffer, and how many bytes of its frame are before it.
const PLACES: [(Range<usize>, usize); 4] = [
    (MESSAGE, FRONT),
    (MESSAGE, 0),
    (FRONT..FRONT, FRONT),
    (128..128 + MESSAGE_BYTES, 128),
];

/// Whether a handler reaches what it may and nothing else, whatever offset it names, if it is
/// told that its message begins and ends `off` bytes away from where it does.
fn reaches_its_message_only(off: (usize, usize)) -> bool {
    PLACES.iter().all(|place| {
        let (message, front) = place;
        let told = message.start - off.0..message.end + off.1;
        ACCESSES
            .iter()
            .all(|access| reaches(access, message, *front, &told))
    })
}

fn reaches(
    (access, bytes, writes): &(&str, i64, bool),
    message: &Range<usize>,
    front: usize,
    told: &Range<usize>,
) -> bool {
    let len = message.len() as i64;
    let most = -(front as i64);
    let ends = [i64::from(i32::MIN), most, 0, len, i64::from(i32::MAX)];
    let (mut instance, _pages) = load(&handler(&format!("{access} (i32.const 1)")));
    // Other messages lie on both sides.
    let mut buffers = [(); 3].map(|()| Buffer::new(told.end + 64));
    let offsets = ends.into_iter().flat_map(|end| end - 17..=end + 17);
    offsets.filter(|at| i32::try_from(*at).is_ok()).all(|at| {
        for buffer in &mut buffers {
            let bytes = (0..).zip(&mut buffer[..]);
            bytes.for_each(|(at, byte)| *byte = was(at));
        }
        let first = message.start.min(told.start) - front;
        let there = &mut buffers[1][first..told.end];
        let of_there = told.start - first..told.end - first;
        let outcome = instance.activate_in_place(Function::ON_RX, there, of_there, at as u32, FUEL);
        let from = if *writes { 0 } else { most };
        let allowed = from <= at && at + bytes <= len;
        let cause = outcome.verdict.map_err(|stopped| stopped.cause);
        let expected = if allowed {
            Ok(Verdict::Reply)
        } else {
            Err(Cause::MessageBounds)
        };
        let written = |of: usize, place: usize| {
            let offset = place as i64 - message.start as i64;
            of == 1 && allowed && *writes && (at..at + bytes).contains(&offset)
        };
        let mut others = (0..).zip(&buffers).flat_map(|(of, buffer)| {
            let bytes = (0..).zip(&buffer[..]);
            bytes.filter(move |(place, _)| !written(of, *place))
        });
        cause == expected
            && outcome.dirty == (allowed && *writes)
            && others.all(|(place, byte)| *byte == was(place))
    })
}

#[test]
fn a_handler_reaches_its_message_and_no_other() {
    assert!(reaches_its_message_only((0, 0)));
    // The check notices one byte too many, on either side.
    assert!(!reaches_its_message_only((0, 1)));
    assert!(!reaches_its_message_only((1, 0)));
}

/// A message of `held` bytes in a buffer, and what a handler left there.
fn left(body: &[u8], held: &[u8], room: usize) -> (Outcome, Vec<u8>) {
    let (mut instance, _pages) = load(body);
    let mut buffer = Buffer::new(held.len() + room);
    buffer.fill(9);
    buffer[..held.len()].copy_from_slice(held);
    let outcome = instance.activate_in_place(Function::ON_RX, &mut buffer, 0..held.len(), 0, FUEL);
    let left = buffer[..outcome.len].to_vec();
    (outcome, left)
}

#[test]
fn whatever_its_verdict_the_message_is_as_it_left_it() {
    for verdict in ["(i32.const 0)", "(i32.const 2)", "(unreachable)"] {
        let body = format!("(call $store8 (i32.const 1) (i32.const 7)) {verdict}");
        let (outcome, bytes) = left(&handler(&body), &[1, 2, 3], 0);
        assert!(outcome.dirty && !outcome.copied, "{verdict}");
        assert_eq!((outcome.len, &bytes[..]), (3, &[1, 7, 3][..]), "{verdict}");
    }
}

#[test]
fn what_it_adds_is_zero_and_of_a_heap_there_is_a_copy() {
    let body = wat::parse_str(
        r#"(module
            (import "ashway" "msg_resize" (func $resize (param i32) (result i32)))
            (memory (export "memory") 1 1)
            (func (export "on_rx") (param i32 i32) (result i32)
                (drop (call $resize (i32.add (local.get 0) (i32.const 4))))
                (i32.const 1))
            (@custom "ashway.grows" "\04\00\00\00"))"#,
    );
    let body = body.unwrap();
    let (outcome, bytes) = left(&body, &[1, 2, 3], 4);
    assert!(!outcome.copied);
    assert_eq!(bytes, [1, 2, 3, 0, 0, 0, 0]);

    let (mut instance, _pages) = load(&body);
    let mut heap = vec![9; 8];
    let outcome = instance.activate_in_place(Function::ON_RX, &mut heap, 1..4, 0, FUEL);
    assert!(outcome.copied);
    assert_eq!((outcome.len, heap), (7, vec![9, 9, 9, 9, 0, 0, 0, 0]));
}
