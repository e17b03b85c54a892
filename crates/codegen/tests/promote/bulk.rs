//! Bulk operations where they are not plain: passive data, and array mode
//! without `CAP_PERFMON`, in which the verifier is stricter.

use super::harness::{IMPORTS, PLENTY, module, promote, run, without_perfmon};
use ashway_abi::Cause;
use ashway_abi::MemoryKind;

/// A passive segment of 200 bytes, of which the message says how many go from
/// where to where; a message without that drops it.
fn passive() -> Vec<u8> {
    let bytes = (0..200).map(|i| format!("\\{:02x}", i * 7 % 256));
    let bytes = bytes.collect::<Vec<_>>().concat();
    module(&format!(
        r#"(module {IMPORTS}
            (memory (export "memory") 1 2)
            (data $passive "{bytes}")
            (func (export "on_rx") (param $len i32) (param i32) (result i32)
                (if (i32.eqz (local.get $len)) (then (data.drop $passive) (return (i32.const 1))))
                (memory.init $passive (call $load32 (i32.const 0)) (call $load32 (i32.const 4))
                    (call $load32 (i32.const 8)))
                (i32.const 0)))"#
    ))
}

#[test]
fn memory_init_copies_what_is_there() {
    let end = 0x1_0000_u32;
    let cases = [
        (1000, 0, 200, true),
        (1001, 3, 127, true),
        (end - 63, 137, 63, true),
        (end, 200, 0, true),
        (end - 63, 0, 64, false),
        (u32::MAX, 0, 2, false),
        (0, 137, 64, false),
        (0, 201, 0, false),
        (0, u32::MAX, 1, false),
        (end + 1, 0, 0, false),
    ];
    let operands = |(at, from, len, _): (u32, u32, u32, bool)| -> Vec<u8> {
        [at, from, len]
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect()
    };
    let mut messages: Vec<Vec<u8>> = cases.map(operands).to_vec();
    // Dropped, of nothing only nothing can be copied.
    messages.push(Vec::new());
    messages.push(operands((0, 0, 1, true)));
    messages.push(operands((0, 0, 0, true)));
    let messages: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
    let outcomes = run(&passive(), &messages);
    let mut memory = vec![0; end as usize];
    let bounds = Err(Cause::MemoryBounds);
    for (outcome, (at, from, len, fits)) in outcomes.iter().zip(cases) {
        let found = outcome.result.map_err(|(cause, _)| cause);
        assert_eq!(
            found,
            if fits { Ok(0) } else { bounds },
            "{at} {from} {len}"
        );
        if fits {
            for i in 0..len {
                memory[(at + i) as usize] = ((from + i) * 7) as u8;
            }
        }
        assert!(
            outcome.memory[..end as usize] == memory,
            "{at} {from} {len}"
        );
    }
    let dropped = &outcomes[cases.len()..];
    let found: Vec<_> = dropped
        .iter()
        .map(|o| o.result.map_err(|(cause, _)| cause))
        .collect();
    assert_eq!(found, [Ok(1), bounds, Ok(0)]);
}

#[test]
fn array_mode_needs_no_cap_perfmon() {
    without_perfmon(|| {
        let body = |operators: &str| {
            module(&format!(
                r#"(module {IMPORTS}
                    (memory (export "memory") 1 1)
                    (func (export "on_rx") (param $len i32) (param i32) (result i32)
                        (local $a i32)
                        (local.set $a (call $load32 (i32.const 0)))
                        {operators} (i32.const 0)))"#
            ))
        };
        let handlers = [
            body("(memory.copy (local.get $a) (i32.const 7) (local.get $len))"),
            body("(memory.fill (local.get $a) (i32.const 7) (local.get $len))"),
            body("(call $read (i32.const 0) (local.get $a) (local.get $len))"),
            body("(call $write (i32.const 0) (local.get $a) (local.get $len))"),
            body("(i64.atomic.store (local.get $a) (i64.const 5))"),
            body("(drop (i32.atomic.rmw.add (local.get $a) (local.get $len)))"),
            body("(drop (i64.atomic.rmw.xor (local.get $a) (i64.const 5)))"),
            body("(drop (i32.atomic.rmw8.sub_u (local.get $a) (local.get $len)))"),
            body(
                "(drop (i32.atomic.rmw16.cmpxchg_u (local.get $a) (i32.const 0) (local.get $len)))",
            ),
            passive(),
        ];
        for wasm in &handlers {
            for in_memory in [false, true] {
                let promoted = promote(wasm, MemoryKind::Array, in_memory, PLENTY).unwrap();
                let mut message = [9; 700];
                message[..12].copy_from_slice(&[0, 8, 0, 0, 3, 0, 0, 0, 90, 0, 0, 0]);
                let messages: [&[u8]; 2] = [&message, &message[..12]];
                assert!(promoted.run_in_kernel(&messages) == promoted.interpret(&messages));
            }
        }
    });
}
