//! Message access: byte order, both bounds, bulk.

use super::harness::{Outcome, PLENTY, handler, promote, run};
use ashway_abi::Cause;
use ashway_abi::MemoryKind;
use ashway_check::bpf::print;

fn cause(outcome: &Outcome) -> Option<Cause> {
    outcome.result.err().map(|(cause, _)| cause)
}

const MESSAGE: [u8; 12] = [1, 2, 3, 4, 5, 6, 7, 8, 0xf9, 0xfa, 0xfb, 0xfc];

#[test]
fn loads_and_stores_have_their_byte_order() {
    for (load, store, bytes, swap) in [
        ("load8", "store8", 1, false),
        ("load32", "store32", 4, false),
        ("load64", "store64", 8, false),
        ("load16be", "store32be_low", 2, true),
        ("load32be", "store32", 4, true),
        ("load64be", "store64", 8, true),
        ("load64", "store64be", 8, true),
    ] {
        let store = if store == "store32be_low" {
            "store32"
        } else {
            store
        };
        let body =
            format!("(call ${store} (i32.const 0) (call ${load} (i32.const 3))) (i32.const 0)");
        let outcome = &run(&handler(&body), &[&MESSAGE])[0];
        let mut expected = MESSAGE[3..3 + bytes].to_vec();
        if swap {
            expected.reverse();
        }
        assert_eq!(outcome.message[..bytes], expected, "{load} {store}");
        assert!(outcome.dirty);
    }
}

#[test]
fn stores_in_network_order_take_the_low_bits() {
    let body = "(call $store16be (i32.const 1) (i32.const 0x12345)) (i32.const 0)";
    assert_eq!(
        run(&handler(body), &[&MESSAGE])[0].message[..4],
        [1, 0x23, 0x45, 4]
    );
}

#[test]
fn the_message_ends_where_it_ends_not_where_the_frame_does() {
    for (load, bytes) in [("load8", 1), ("load16be", 2), ("load32", 4), ("load64", 8)] {
        for at in 0..14 {
            let expected = (at + bytes > 12).then_some(Cause::MessageBounds);
            let fixed = format!("(drop (call ${load} (i32.const {at}))) (i32.const 0)");
            assert_eq!(
                cause(&run(&handler(&fixed), &[&MESSAGE])[0]),
                expected,
                "{fixed}"
            );
        }
        let variable = format!("(drop (call ${load} (call $load32 (i32.const 0)))) (i32.const 0)");
        let tried = [
            0,
            4,
            8,
            11,
            12,
            13,
            28,
            4_000,
            70_000,
            0x7fff_ffff,
            0xffff_fff8,
            0xffff_ffff,
        ];
        let messages = tried.map(|at: u32| {
            let mut message = MESSAGE;
            message[..4].copy_from_slice(&at.to_le_bytes());
            message
        });
        let messages: Vec<&[u8]> = messages.iter().map(<[u8; 12]>::as_slice).collect();
        for (outcome, at) in run(&handler(&variable), &messages).iter().zip(tried) {
            // The headers of a test's frame are in front.
            let outside = (at as i32) < -64 || i64::from(at as i32) + bytes > 12;
            assert_eq!(
                cause(outcome),
                outside.then_some(Cause::MessageBounds),
                "{variable} {at}"
            );
            assert!(!outcome.dirty);
        }
    }
}

#[test]
fn fixed_offsets_beyond_any_message_trap() {
    for at in [0x7fff, 0x8000, 0xffff, 0x1_0000, -1] {
        let body = format!("(call $store8 (i32.const {at}) (i32.const 1)) (i32.const 0)");
        let outcome = &run(&handler(&body), &[&MESSAGE])[0];
        assert_eq!(
            (cause(outcome), outcome.dirty),
            (Some(Cause::MessageBounds), false)
        );
    }
}

#[test]
fn a_check_on_one_way_is_not_taken_for_one_on_the_other() {
    let body = "(if (local.get $len) (then (drop (call $load32 (i32.const 0)))))
                (block $over
                    (br_if $over (i32.lt_u (local.get $len) (i32.const 9)))
                    (drop (call $load8 (i32.const 8))))
                (call $load64 (i32.const 0)) (i32.wrap_i64)";
    let outcomes = run(
        &handler(body),
        &[&MESSAGE, &MESSAGE[..8], &MESSAGE[..7], b""],
    );
    let causes: Vec<_> = outcomes.iter().map(cause).collect();
    let bounds = Some(Cause::MessageBounds);
    assert_eq!(causes, [None, None, bounds, bounds]);
}

#[test]
fn read_and_write_copy_any_length() {
    let read = handler(
        "(call $read (i32.const 12) (i32.const 1001) (i32.sub (local.get $len) (i32.const 12)))
         (call $write (i32.const 4) (i32.const 1001) (i32.sub (local.get $len) (i32.const 12)))
         (i32.const 0)",
    );
    for len in [12, 13, 19, 20, 21, 75, 76, 77, 140, 1_400] {
        let message: Vec<u8> = (0..len).map(|i| (i * 11 + 3) as u8).collect();
        let outcome = &run(&read, &[&message])[0];
        let mut expected = message.clone();
        expected.copy_within(12.., 4);
        assert_eq!(outcome.message, expected, "{len}");
        assert_eq!(
            outcome.memory[1001..1001 + len - 12],
            message[12..],
            "{len}"
        );
        assert!(outcome.dirty);
    }
}

#[test]
fn bulk_access_traps_on_either_side() {
    let body = |call: &str| {
        handler(&format!(
            "(call ${call} (call $load32 (i32.const 0)) (call $load32 (i32.const 4)) (call $load32 (i32.const 8)))
             (i32.const 0)"
        ))
    };
    let cases = [
        (0, 0, 12, None),
        (12, 0x1_0000, 0, None),
        (13, 0, 0, Some(Cause::MessageBounds)),
        (1, 0, 12, Some(Cause::MessageBounds)),
        (u32::MAX - 64, 0, 2, Some(Cause::MessageBounds)),
        (0, 0xfff5, 12, Some(Cause::MemoryBounds)),
        (0, u32::MAX, 2, Some(Cause::MemoryBounds)),
        (13, 0x1_0000, 1, Some(Cause::MessageBounds)),
    ];
    for call in ["read", "write"] {
        for (at, pointer, len, expected) in cases {
            let message: Vec<u8> = [at, pointer, len]
                .iter()
                .flat_map(|w| w.to_le_bytes())
                .collect();
            let outcome = &run(&body(call), &[&message])[0];
            assert_eq!(cause(outcome), expected, "{call} {at} {pointer:#x} {len}");
            assert_eq!(outcome.dirty, call == "write" && expected.is_none());
        }
    }
}

/// A comparison that the verifier can decide leaves dead code behind, each piece
/// of which it removes in the time that the whole program takes to move.
#[test]
fn a_masked_index_is_compared_with_nothing_that_is_known() {
    let masked = "(i32.and (local.get 0) (i32.const 255))";
    let body = format!("(drop (call $load32 {masked})) (i32.const 0)");
    let image = promote(&handler(&body), MemoryKind::Arena, false, PLENTY);
    let text = print(&image.unwrap().image);
    let lines: Vec<&str> = text.lines().collect();
    let mask = lines.iter().position(|line| line.contains("&= 255"));
    let jumps = lines[mask.unwrap()..]
        .iter()
        .zip(1..)
        .filter(|(line, _)| line.contains(": if ") && line.contains(" 0x"));
    let known: Vec<_> = jumps
        .filter(|(_, next)| {
            // Of the message's length the verifier knows nothing.
            let before = &lines[..mask.unwrap() + next - 1];
            let length = before
                .last()
                .is_some_and(|line| line.ends_with("= *(u32 *)(r9 +16)"));
            // Nor of a place in the frame, which is the index behind unknown headers.
            let place = before.iter().nth_back(1);
            let place = place.is_some_and(|line| line.ends_with("= *(u32 *)(r9 +12)"));
            !length && !place
        })
        .collect();
    assert!(known.is_empty(), "{text}");
    assert!(text.contains("> 0xfe00"), "{text}");
}

/// ASHs, section III.B: an abort is deferred while a system call is under way.
#[test]
fn time_is_over_between_host_calls_and_not_inside() {
    const BYTES: usize = 4_000;
    const COPIES: usize = 12;
    let copies = (0..COPIES).map(|copy| copy * BYTES);
    let copies = copies
        .map(|into| format!("(call $read (i32.const 0) (i32.const {into}) (local.get $len))"))
        .collect::<Vec<_>>()
        .concat();
    let wasm = handler(&format!("{copies} (i32.const 0)"));
    // The first look at the clock is the only one that does not end it.
    let budget = super::harness::Budget { ns: 1, ..PLENTY };
    for kind in [MemoryKind::Arena, MemoryKind::Array] {
        let promoted = promote(&wasm, kind, false, budget).unwrap();
        let outcome = &promoted.interpret(&[&[7; BYTES]])[0];
        assert_eq!(cause(outcome), Some(Cause::Time), "{kind:?}");
        let copied = outcome.memory.iter().position(|byte| *byte == 0).unwrap();
        assert!(
            copied > BYTES && copied < COPIES * BYTES,
            "{kind:?}: {copied}"
        );
        assert_eq!(copied % BYTES, 0, "{kind:?}: the last copy is half done");
    }
}
