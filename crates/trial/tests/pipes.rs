//! Lists of pipes from handlers, in every engine: the data, the registers, the fuel
//! and the causes are the same, and are what the list means.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeMap;

use ashway_abi::Cause;
use ashway_codegen::normalise::{Limits, normalise};
use ashway_codegen::pipe::{interpret, parse};
use ashway_trial::{Activation, Engine, Setup, Trial};
use common::{engines, wasm};

/// A handler over these lists. `read`, `write` and `in_place` run list 0 where memory
/// says: `at` at 0, the address at 4, the length at 8; `any` list by number, at 12.
/// Registers go from and to 64 on.
fn handler(lists: &str, registers: usize) -> Vec<u8> {
    let each = |text: &str| {
        let all = (0..registers).map(|number| {
            text.replace('N', &number.to_string())
                .replace('A', &(64 + 8 * number).to_string())
        });
        all.collect::<String>()
    };
    let set = each("(call $set (i32.const N) (i64.load (i32.const A)))");
    let get = each("(i64.store (i32.const A) (call $get (i32.const N)))");
    let run = |name: &str, call: &str, verdict: u32| {
        format!(
            "(func (export \"{name}\") (param i32 i32) (result i32) {set} {call} {get} (i32.const {verdict}))"
        )
    };
    let both = "(i32.load (i32.const 0)) (i32.load (i32.const 4)) (i32.load (i32.const 8))";
    let one = "(i32.load (i32.const 4)) (i32.load (i32.const 8))";
    let functions = [
        run("on_rx", &format!("(call $read {both} (i32.const 0))"), 0),
        run("write", &format!("(call $write {both} (i32.const 0))"), 1),
        run(
            "in_place",
            &format!("(call $in_place {one} (i32.const 0))"),
            0,
        ),
        run(
            "any",
            &format!("(call $read {both} (i32.load (i32.const 12)))"),
            0,
        ),
        run(
            "any_in_place",
            &format!("(call $in_place {one} (i32.load (i32.const 12)))"),
            0,
        ),
    ]
    .concat();
    wasm(&format!(
        r#"(module
        (import "ashway" "pipe_read" (func $read (param i32 i32 i32 i32)))
        (import "ashway" "pipe_write" (func $write (param i32 i32 i32 i32)))
        (import "ashway" "pipe_in_place" (func $in_place (param i32 i32 i32)))
        (import "ashway" "pipe_set" (func $set (param i32 i64)))
        (import "ashway" "pipe_get" (func $get (param i32) (result i64)))
        (memory (export "memory") 1 1)
        {functions}
        (@custom "ashway.pipes" "{lists}"))"#
    ))
}

/// A message that no two words of are alike.
fn message(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 7) as u8).collect()
}

fn registers(guest: &[u8], count: usize) -> Vec<u64> {
    let bytes = guest[64..64 + 8 * count].chunks_exact(8);
    bytes
        .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
        .collect()
}

/// RFC 1071 as it is written there, in memory order.
fn checksum(data: &[u8], seed: u64) -> u64 {
    let word =
        |pair: &[u8]| u64::from(pair[0]) | pair.get(1).map_or(0, |high| u64::from(*high) << 8);
    let mut sum = seed + data.chunks(2).map(word).sum::<u64>();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum
}

const LISTS: [&str; 5] = [
    "cksum16",
    "copy",
    "cksum16 | bswap32 | xor(0xdeadbeef)",
    "mask(0x11223344) | cksum16 | sum8 | bswap16 | cksum16",
    "add16(7) | sum64 | xor8(0x5a)",
];

const TO: usize = 4096;

/// What a run is asked for, and with which registers.
struct Case<'c> {
    run: &'c str,
    at: u32,
    address: u32,
    len: u32,
    list: u32,
    registers: &'c [u64],
}

/// Prepares the memory and runs.
fn run(trial: &mut Trial<'_>, case: &Case<'_>, message: &[u8]) -> Activation {
    let numbers = [case.at, case.address, case.len, case.list].map(u32::to_le_bytes);
    trial.write_guest(0, &numbers.concat());
    let registers = case.registers.iter().flat_map(|word| word.to_le_bytes());
    trial.write_guest(64, &registers.collect::<Vec<_>>());
    trial.activate(case.run, message, 0).unwrap()
}

/// Every length of a frame's payload; the alignments of both sides change with it.
#[test]
fn a_run_is_what_the_list_means_at_every_length_in_every_engine() {
    for text in LISTS {
        let list = parse(text).unwrap();
        let count = list.register_count();
        let wasm = handler(text, count);
        let module = normalise(&wasm, &Limits::default()).unwrap();
        let mut fuels: BTreeMap<usize, i64> = BTreeMap::new();
        for (name, engine, setup) in engines() {
            let mut trial = Trial::new(&module, engine, &setup).unwrap();
            let step = if engine == Engine::Interpreter { 13 } else { 1 };
            for len in (0..=1500).step_by(step) {
                let (at, to) = (len % 11, TO + len % 17);
                let what = format!("{name}: `{text}`, {len} bytes");
                let message = message(len + at + len % 3);
                let mut kept: Vec<u64> = (0..count as u64)
                    .map(|number| number * 0x1_0001 + len as u64)
                    .collect();
                let case = Case {
                    run: "on_rx",
                    at: at as u32,
                    address: to as u32,
                    len: len as u32,
                    list: 0,
                    registers: &kept,
                };
                trial.write_guest(TO, &[0xee; 2048]);
                let end = run(&mut trial, &case, &message);
                assert_eq!((end.result, end.dirty), (Ok(0), false), "{what}");
                let fuel = *fuels.entry(len).or_insert(end.fuel_left);
                assert_eq!(end.fuel_left, fuel, "{what}: fuel");

                let mut expected = message[at..at + len].to_vec();
                interpret(&list, &mut kept, &mut expected);
                let guest = trial.guest();
                assert!(guest[to..to + len] == expected, "{what}: data");
                assert_eq!(guest[to + len..][..64], [0xee; 64], "{what}: behind");
                assert_eq!(guest[TO..to], [0xee; 17][..to - TO], "{what}: in front");
                assert_eq!(registers(&guest, count), kept, "{what}: registers");
            }
        }
    }
}

/// The checksum of RFC 1071 from a seed, computed here by hand.
#[test]
fn a_seeded_checksum_is_that_of_the_rfc() {
    let wasm = handler("cksum16", 1);
    let module = normalise(&wasm, &Limits::default()).unwrap();
    for (name, engine, setup) in engines() {
        let mut trial = Trial::new(&module, engine, &setup).unwrap();
        for len in [0, 1, 2, 63, 64, 65, 1001, 1472] {
            let message = message(len);
            for seed in [0, 1, 0xffff, 0xfedc] {
                let case = Case {
                    run: "on_rx",
                    at: 0,
                    address: TO as u32,
                    len: len as u32,
                    list: 0,
                    registers: &[seed],
                };
                run(&mut trial, &case, &message);
                let sum = registers(&trial.guest(), 1)[0];
                assert_eq!(
                    sum,
                    checksum(&message, seed),
                    "{name}: {len} bytes from {seed:#x}"
                );
            }
        }
    }
}

/// To the message, which goes back changed; in memory, where a list that modifies
/// nothing writes nothing.
#[test]
fn data_goes_to_the_message_and_through_memory_as_well() {
    for text in [
        "cksum16 | bswap32",
        "mask(0x01020304)",
        "cksum16 | sum16",
        "cksum16 | cksum16 | cksum16",
    ] {
        let list = parse(text).unwrap();
        let count = list.register_count();
        let wasm = handler(text, count);
        let module = normalise(&wasm, &Limits::default()).unwrap();
        for (name, engine, setup) in engines() {
            let mut trial = Trial::new(&module, engine, &setup).unwrap();
            let step = if engine == Engine::Interpreter { 37 } else { 3 };
            for len in (0..=600).step_by(step) {
                let what = format!("{name}: `{text}`, {len} bytes");
                let (at, address) = (len % 5, TO + len % 7);
                let data = message(len);
                let before = vec![0x77; at + len + 3];
                let mut kept: Vec<u64> = (1..=count as u64).collect();
                let case = Case {
                    run: "write",
                    at: at as u32,
                    address: address as u32,
                    len: len as u32,
                    list: 0,
                    registers: &kept.clone(),
                };
                trial.write_guest(address, &data);
                let end = run(&mut trial, &case, &before);
                assert_eq!((end.result, end.dirty), (Ok(1), true), "{what}");
                let mut expected = data.clone();
                interpret(&list, &mut kept, &mut expected);
                assert_eq!(end.message[at..at + len], expected, "{what}: data");
                assert_eq!(end.message[..at], before[..at], "{what}: in front");
                assert_eq!(end.message[at + len..], [0x77; 3], "{what}: behind");
                let guest = trial.guest();
                assert_eq!(
                    guest[address..address + len],
                    data,
                    "{what}: the source stays"
                );
                assert_eq!(registers(&guest, count), kept, "{what}: registers");

                let case = Case {
                    run: "in_place",
                    ..case
                };
                trial.write_guest(address, &data);
                let end = run(&mut trial, &case, b"");
                assert_eq!((end.result, end.dirty), (Ok(0), false), "{what}: in place");
                let guest = trial.guest();
                assert_eq!(guest[address..address + len], expected, "{what}: in place");
                assert_eq!(registers(&guest, count), kept, "{what}: in place");
            }
        }
    }
}

/// Lists have their own registers, and a number that is no constant finds its list.
#[test]
fn lists_are_found_by_number() {
    let lists = ["xor8(1)", "cksum16", "xor8(4) | cksum16", "xor8(8)"];
    let wasm = handler(&lists.join("\\n"), 5);
    let module = normalise(&wasm, &Limits::default()).unwrap();
    let first: Vec<u32> = module.pipes.lists.iter().map(|one| one.first).collect();
    for (name, engine, setup) in engines() {
        let mut trial = Trial::new(&module, engine, &setup).unwrap();
        for (number, text) in lists.iter().enumerate() {
            let list = parse(text).unwrap();
            let from = first[number] as usize;
            let mut all = [11, 22, 33, 44, 55][..module.pipes.registers as usize].to_vec();
            for call in ["any", "any_in_place"] {
                let mut data = message(100);
                let case = Case {
                    run: call,
                    at: 0,
                    address: TO as u32,
                    len: 100,
                    list: number as u32,
                    registers: &all.clone(),
                };
                trial.write_guest(TO, &data);
                let end = run(&mut trial, &case, &data);
                assert_eq!(end.result, Ok(0), "{name}: `{text}`");
                interpret(&list, &mut all[from..][..list.register_count()], &mut data);
                let guest = trial.guest();
                assert_eq!(guest[TO..TO + 100], data, "{name}: `{text}`, {call}");
                assert_eq!(
                    registers(&guest, all.len()),
                    all,
                    "{name}: `{text}`, {call}"
                );
            }
        }
    }
}

/// Stopped for the same cause in every engine, before anything has been done.
#[test]
fn what_lies_outside_stops_the_handler_before_it_begins() {
    let wasm = handler("cksum16 | xor8(0xff)", 1);
    let module = normalise(&wasm, &Limits::default()).unwrap();
    let (message_end, memory_end) = (Cause::MessageBounds, Cause::MemoryBounds);
    let cases = [
        ("on_rx", 0, 4096, 65, 0, Some(message_end)),
        ("on_rx", 64, 4096, 1, 0, Some(message_end)),
        ("on_rx", 64, 4096, 0, 0, None),
        ("on_rx", 65, 4096, 0, 0, Some(message_end)),
        ("on_rx", u32::MAX, 4096, 1, 0, Some(message_end)),
        ("on_rx", u32::MAX - 15, 4096, 32, 0, Some(message_end)),
        ("on_rx", 0, 4096, u32::MAX, 0, Some(Cause::Fuel)),
        // Its charge is 0 where that wraps.
        ("on_rx", 0, 4096, 0x4000_0000, 0, Some(message_end)),
        ("on_rx", 0, 65_536 - 64, 64, 0, None),
        ("on_rx", 0, 65_536 - 63, 64, 0, Some(memory_end)),
        ("on_rx", 0, u32::MAX, 1, 0, Some(memory_end)),
        ("on_rx", 0, u32::MAX - 31, 64, 0, Some(memory_end)),
        ("on_rx", 0, 65_536, 0, 0, None),
        ("on_rx", 0, 65_537, 0, 0, Some(memory_end)),
        ("on_rx", 60, 65_536, 8, 0, Some(message_end)),
        ("write", 0, 65_536 - 63, 64, 0, Some(memory_end)),
        ("write", 1, 4096, 64, 0, Some(message_end)),
        ("in_place", 0, 65_536 - 7, 8, 0, Some(memory_end)),
        ("in_place", 0, 0x8000_0000, 8, 0, Some(memory_end)),
        ("any", 0, 4096, 8, 1, Some(Cause::TableBounds)),
        ("any", 0, 4096, 8, u32::MAX, Some(Cause::TableBounds)),
        ("any", 65, 4096, 8, 1, Some(Cause::TableBounds)),
        ("any_in_place", 0, 4096, 8, 16, Some(Cause::TableBounds)),
    ];
    for (call, at, address, len, list, cause) in cases {
        for (name, engine, setup) in engines() {
            let what = format!("{name}: {call} {at:#x} {address:#x} {len:#x} {list:#x}");
            let mut trial = Trial::new(&module, engine, &setup).unwrap();
            let case = Case {
                run: call,
                at,
                address,
                len,
                list,
                registers: &[5],
            };
            let before = trial.guest();
            let end = run(&mut trial, &case, &message(64));
            assert_eq!(
                end.result.err().map(|stopped| stopped.cause),
                cause,
                "{what}"
            );
            if cause.is_some() {
                let guest = trial.guest();
                assert_eq!(guest[80..], before[80..], "{what}: something was done");
                assert!(!end.dirty, "{what}");
            }
        }
    }
}

/// Registers that there are not, and registers that a file has none of.
#[test]
fn a_register_that_there_is_not_stops_the_handler() {
    for (lists, count) in [("cksum16\\nsum8", 2_u32), ("copy", 0)] {
        let text = format!(
            r#"(module
            (import "ashway" "pipe_set" (func $set (param i32 i64)))
            (import "ashway" "pipe_get" (func $get (param i32) (result i64)))
            (import "ashway" "msg_load32le" (func $load (param i32) (result i32)))
            (memory (export "memory") 1 1)
            (func (export "on_rx") (param i32 i32) (result i32)
                (i64.store (i32.const 0) (call $get (call $load (i32.const 0)))) (i32.const 0))
            (func (export "set") (param i32 i32) (result i32)
                (call $set (call $load (i32.const 0)) (i64.const 0x123456789abc)) (i32.const 0))
            (func (export "constant") (param i32 i32) (result i32)
                (call $set (i32.const {count}) (i64.const 1)) (i32.const 0))
            (@custom "ashway.pipes" "{lists}"))"#
        );
        let wasm = wasm(&text);
        let module = normalise(&wasm, &Limits::default()).unwrap();
        for (name, engine, setup) in engines() {
            let mut trial = Trial::new(&module, engine, &setup).unwrap();
            let wild = [count, count + 1, 1 << 29, 1 << 31, u32::MAX];
            for number in (0..count).chain(wild) {
                let good = number < count;
                for call in ["set", "on_rx"] {
                    let end = trial.activate(call, &number.to_le_bytes(), 0).unwrap();
                    let cause = end.result.err().map(|stopped| stopped.cause);
                    let expected = (!good).then_some(Cause::TableBounds);
                    assert_eq!(cause, expected, "{name}: {call} {number:#x} of {count}");
                }
                if good {
                    assert_eq!(
                        trial.guest()[..8],
                        0x1234_5678_9abc_u64.to_le_bytes(),
                        "{name}"
                    );
                }
            }
            let end = trial.activate("constant", b"", 0).unwrap();
            assert_eq!(end.result.unwrap_err().cause, Cause::TableBounds, "{name}");
        }
    }
}

/// What the kernel tier has no form for stays in the user tier, with a reason.
#[test]
fn lists_without_a_kernel_form_run_in_the_user_tier() {
    let wasm = handler(
        "crc32c | chacha20(000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f,000000090000004a00000000,1)",
        0,
    );
    let module = normalise(&wasm, &Limits::default()).unwrap();
    let mut trial = Trial::new(&module, Engine::User, &Setup::default()).unwrap();
    let list = &module.pipes.lists[0].list;
    let case = Case {
        run: "on_rx",
        at: 0,
        address: TO as u32,
        len: 1000,
        list: 0,
        registers: &[],
    };
    let mut expected = message(1000);
    let end = run(&mut trial, &case, &expected);
    assert_eq!(end.result, Ok(0));
    interpret(list, &mut list.initial(), &mut expected);
    assert_eq!(trial.guest()[TO..TO + 1000], expected);

    let mut trial = Trial::new(&module, Engine::Interpreter, &Setup::default()).unwrap();
    let error = trial.prepare("on_rx").unwrap_err();
    assert!(
        error
            .to_string()
            .contains("`crc32c` has no form in the kernel tier"),
        "{error}"
    );
}

/// A function of the file is a pipe of its lists, in every engine.
#[test]
fn a_function_of_the_file_is_a_pipe() {
    let wasm = wasm(
        r#"(module
        (import "ashway" "pipe_read" (func $read (param i32 i32 i32 i32)))
        (import "ashway" "pipe_get" (func $get (param i32) (result i64)))
        (memory (export "memory") 1 1)
        (func (export "flip") (param i32) (result i32)
            (i32.xor (local.get 0) (i32.const 255)))
        (func (export "total") (param i32 i32) (result i32 i32)
            (local.get 0) (i32.add (local.get 1) (local.get 0)))
        (func (export "on_rx") (param $len i32) (param i32) (result i32)
            (call $read (i32.const 0) (i32.const 4096) (local.get $len) (i32.const 0))
            (i64.store (i32.const 64) (call $get (i32.const 0)))
            (i32.const 0))
        (@custom "ashway.pipes" "total:32 | flip:8"))"#,
    );
    let module = normalise(&wasm, &Limits::default()).unwrap();
    for (name, engine, setup) in engines() {
        let mut trial = Trial::new(&module, engine, &setup).unwrap();
        let message = message(1024);
        let end = trial.activate("on_rx", &message, 0).unwrap();
        assert_eq!(end.result, Ok(0), "{name}");
        let flipped: Vec<u8> = message.iter().map(|byte| byte ^ 255).collect();
        let guest = trial.guest();
        assert_eq!(guest[TO..TO + 1024], flipped, "{name}");
        let words = message.chunks_exact(4);
        let sum = words.map(|word| u32::from_le_bytes(word.try_into().unwrap()));
        let sum = sum.fold(0_u32, u32::wrapping_add);
        assert_eq!(registers(&guest, 1)[0], u64::from(sum), "{name}");
    }
}
