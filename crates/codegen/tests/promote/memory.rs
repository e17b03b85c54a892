//! Memory: widths, bounds, state, bulk operations.

use super::harness::{Outcome, handler, module, run};
use ashway_abi::Cause;

fn cause(outcome: &Outcome) -> Option<Cause> {
    outcome.result.err().map(|(cause, _)| cause)
}

/// An address in a message.
fn at(address: u32) -> [u8; 16] {
    let mut message = [0x81; 16];
    message[..4].copy_from_slice(&address.to_le_bytes());
    message
}

#[test]
fn accesses_trap_exactly_at_the_end() {
    let end = 0x1_0000_u32;
    for (store, load, value, bytes) in [
        ("i32.store8", "i32.load8_u", "i32", 1),
        ("i32.store16", "i32.load16_s", "i32", 2),
        ("i32.store", "i32.load", "i32", 4),
        ("i64.store", "i64.load", "i64", 8),
        ("i64.store32", "i64.load32_s", "i64", 4),
    ] {
        for offset in [
            0_u32,
            1,
            100,
            32_760,
            40_000,
            65_535,
            0x7fff_ffff,
            0xffff_ffff,
        ] {
            let address = "(call $load32 (i32.const 0))";
            let stores =
                format!("({store} offset={offset} {address} ({value}.const -2)) (i32.const 0)");
            let loads = format!("(drop ({load} offset={offset} {address})) (i32.const 0)");
            let last = u64::from(end - bytes).checked_sub(u64::from(offset));
            let mut tried = vec![0, 0xffff_fff0, 0xffff_ffff, 0x8000_0000, end];
            if let Some(last) = last {
                tried.extend([last as u32, last as u32 + 1]);
            }
            let messages: Vec<[u8; 16]> = tried.iter().map(|a| at(*a)).collect();
            let messages: Vec<&[u8]> = messages.iter().map(<[u8; 16]>::as_slice).collect();
            for body in [&stores, &loads] {
                for (outcome, address) in run(&handler(body), &messages).iter().zip(&tried) {
                    let inside = last.is_some_and(|last| u64::from(*address) <= last);
                    let expected = (!inside).then_some(Cause::MemoryBounds);
                    assert_eq!(cause(outcome), expected, "{body} at {address:#x}");
                    if inside && body == &stores {
                        let from = (address + offset) as usize;
                        assert_eq!(outcome.memory[from], 0xfe);
                        assert_eq!(
                            outcome.memory[from + bytes as usize - 1],
                            if bytes == 1 { 0xfe } else { 0xff }
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn fixed_addresses_need_no_check_inside_and_trap_outside() {
    let inside = handler(
        "(i32.store (i32.const 65532) (i32.const 7)) (drop (i32.load (i32.const 65532))) (i32.load (i32.const 0))",
    );
    assert_eq!(run(&inside, &[b""])[0].result, Ok(0));
    let outside = handler("(i32.store (i32.const 65533) (i32.const 7)) (i32.const 0)");
    assert_eq!(cause(&run(&outside, &[b""])[0]), Some(Cause::MemoryBounds));
}

#[test]
fn loads_extend_as_they_say() {
    let loads = [
        ("i32.load8_s", "i32", 0xffff_ff81_u64),
        ("i32.load8_u", "i32", 0x81),
        ("i32.load16_s", "i32", 0xffff_8281),
        ("i32.load16_u", "i32", 0x8281),
        ("i32.load", "i32", 0x8483_8281),
        ("i64.load8_s", "i64", 0xffff_ffff_ffff_ff81),
        ("i64.load8_u", "i64", 0x81),
        ("i64.load16_s", "i64", 0xffff_ffff_ffff_8281),
        ("i64.load16_u", "i64", 0x8281),
        ("i64.load32_s", "i64", 0xffff_ffff_8483_8281),
        ("i64.load32_u", "i64", 0x8483_8281),
        ("i64.load", "i64", 0x8887_8685_8483_8281),
    ];
    for (load, ty, expected) in loads {
        let extend = if ty == "i64" { "" } else { "i64.extend_i32_u" };
        let wasm = handler(&format!(
            "(i64.store (call $load32 (i32.const 0)) (i64.const 0x8887868584838281))
             (i32.const 0) (call $load32 (i32.const 0)) {load} {extend} (call $store64)
             (i32.const 0)"
        ));
        let outcome = &run(&wasm, &[&at(77)])[0];
        let found = u64::from_le_bytes(outcome.message[..8].try_into().unwrap());
        assert_eq!(found, expected, "{load}");
    }
}

#[test]
fn globals_are_state() {
    let wasm = module(
        r#"(module
            (memory (export "memory") 1 1)
            (global $a (mut i32) (i32.const 3))
            (global $b (mut i64) (i64.const -1))
            (global $c i32 (i32.const 5))
            (func (export "on_rx") (param i32 i32) (result i32)
                (global.set $a (i32.add (global.get $a) (global.get $c)))
                (global.set $b (i64.add (global.get $b) (i64.extend_i32_u (global.get $a))))
                (i32.add (global.get $a) (i32.wrap_i64 (global.get $b)))))"#,
    );
    let outcomes = run(&wasm, &[b"", b""]);
    assert_eq!(outcomes[0].result, Ok(8 + 7));
    assert_eq!(outcomes[1].result, Ok(13 + 20));
}

#[test]
fn memory_grows_to_its_maximum() {
    let wasm = module(
        r#"(module
            (import "ashway" "msg_load32le" (func $load32 (param i32) (result i32)))
            (memory (export "memory") 1 3)
            (func (export "on_rx") (param $len i32) (param i32) (result i32)
                (if (i32.eqz (local.get $len)) (then
                    (return (memory.size))))
                (if (i32.eq (local.get $len) (i32.const 4)) (then
                    (return (memory.grow (call $load32 (i32.const 0))))))
                (i32.store (call $load32 (i32.const 0)) (i32.const 7))
                (i32.load (i32.const 131072))))"#,
    );
    let grow = |pages: u32| pages.to_le_bytes();
    let (two, one) = (grow(2), grow(1));
    let outcomes = run(
        &wasm,
        &[
            b"",
            &at(0xfffc),
            &at(0xfffd),
            &grow(3),
            &one,
            b"",
            &at(0x1_0000),
            &one,
            &two,
            &at(0x2_0000),
        ],
    );
    let results: Vec<_> = outcomes
        .iter()
        .map(|o| o.result.map_err(|(cause, _)| cause))
        .collect();
    let bounds = Err(Cause::MemoryBounds);
    assert_eq!(
        results,
        [
            Ok(1),
            bounds,
            bounds,
            Ok(u32::MAX),
            Ok(1),
            Ok(2),
            bounds,
            Ok(2),
            Ok(u32::MAX),
            Ok(7)
        ]
    );
}

/// Offset, offset, length and the bulk operation they are for.
fn bulk(operator: &str) -> Vec<u8> {
    handler(&format!(
        "(local $i i32)
         (loop $fill
            (i32.store8 offset=1000 (local.get $i) (i32.mul (local.get $i) (i32.const 7)))
            (br_if $fill (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 600))))
         ({operator} (call $load32 (i32.const 0)) (call $load32 (i32.const 4)) (call $load32 (i32.const 8)))
         (i32.const 0)"
    ))
}

fn operands(a: u32, b: u32, n: u32) -> Vec<u8> {
    [a, b, n]
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect()
}

fn filled() -> Vec<u8> {
    let mut memory = vec![0; 0x1_0000];
    for (i, byte) in memory[1000..1600].iter_mut().enumerate() {
        *byte = (i * 7) as u8;
    }
    memory
}

#[test]
fn memory_copy_moves_any_overlap() {
    let mut cases = vec![
        (0, 0, 0x1_0000),
        (0xffff, 0, 1),
        (0x1_0000, 0, 0),
        (0, 0x1_0000, 0),
    ];
    for distance in [0, 1, 7, 8, 9, 63, 64, 65, 200] {
        for len in [0, 1, 7, 8, 15, 64, 65, 129, 300] {
            cases.push((1000 + distance, 1000, len));
            cases.push((1000, 1000 + distance, len));
        }
    }
    let messages: Vec<Vec<u8>> = cases.iter().map(|(d, s, n)| operands(*d, *s, *n)).collect();
    let messages: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
    let outcomes = run(&bulk("memory.copy"), &messages);
    let mut memory = vec![0; 0x1_0000];
    for (outcome, (d, s, n)) in outcomes.iter().zip(cases) {
        assert_eq!(outcome.result, Ok(0));
        memory[1000..1600].copy_from_slice(&filled()[1000..1600]);
        memory.copy_within(s as usize..(s + n) as usize, d as usize);
        assert!(outcome.memory[..0x1_0000] == memory, "{d} {s} {n}");
    }
}

#[test]
fn memory_fill_fills() {
    for (from, len) in [
        (1000, 0),
        (1001, 1),
        (1003, 63),
        (1007, 64),
        (1, 777),
        (0, 0x1_0000),
        (0x1_0000, 0),
    ] {
        let outcome = &run(&bulk("memory.fill"), &[&operands(from, 0x1_23, len)])[0];
        let mut memory = filled();
        memory[from as usize..(from + len) as usize].fill(0x23);
        assert_eq!(outcome.result, Ok(0));
        assert!(outcome.memory[..0x1_0000] == memory, "{from} {len}");
    }
}

#[test]
fn bulk_operations_trap_before_they_begin() {
    for (a, b, n) in [
        (0x1_0000, 0, 1),
        (0, 0x1_0000, 1),
        (0xffff_ffff, 0, 2),
        (0, 0xffff_ffff, 2),
        (0x1_0001, 0, 0),
        (0, 1, 0x1_0000),
        (0, 0, 0xffff_ffff),
    ] {
        let outcome = &run(&bulk("memory.copy"), &[&operands(a, b, n)])[0];
        // The longest one is out of fuel before it is out of bounds.
        let expected = if n == u32::MAX {
            Cause::Fuel
        } else {
            Cause::MemoryBounds
        };
        assert_eq!(cause(outcome), Some(expected), "{a:#x} {b:#x} {n:#x}");
        assert!(outcome.memory[..0x1_0000] == filled());
    }
    let outcome = &run(&bulk("memory.fill"), &[&operands(0xfff0, 1, 17)])[0];
    assert_eq!(cause(outcome), Some(Cause::MemoryBounds));
}
