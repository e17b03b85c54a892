//! Lines that a handler logs: on their stage and nowhere else.

use super::harness::{module, run};
use ashway_abi::Cause;

fn logging(body: &str) -> Vec<u8> {
    module(&format!(
        r#"(module
            (import "ashway" "log" (func $log (param i32 i32)))
            (memory (export "memory") 1 1)
            (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
                (local $i i32)
                {body}
                (i32.const 1)))"#
    ))
}

/// The context has room for fewer than 700 lines.
#[test]
fn more_lines_than_there_is_room_for_change_nothing_else() {
    let wasm = logging(
        "(loop $again
            (call $log (i32.const 64) (i32.const 104))
            (br_if $again
                (i32.lt_u
                    (local.tee $i (i32.add (local.get $i) (i32.const 1)))
                    (i32.const 700))))",
    );
    for outcome in run(&wasm, &[b"one", b"two"]) {
        assert_eq!((outcome.result, outcome.dirty), (Ok(1), false));
        assert!(outcome.memory[..65536].iter().all(|byte| *byte == 0));
    }
}

#[test]
fn a_line_is_cut_before_its_bounds_are_looked_at() {
    for (from, len, good) in [
        (65_536 - 104, 104, true),
        (65_536 - 104, 1 << 19, true),
        (65_536 - 103, 104, false),
        (65_535, 1, true),
        (65_535, 2, false),
        (65_536, 0, true),
        (-1, 0, false),
        (-1, 1, false),
    ] {
        let body = format!("(call $log (i32.const {from}) (i32.const {len}))");
        let result = run(&logging(&body), &[b""]).remove(0).result;
        let cause = result.err().map(|(cause, _)| cause);
        let expected = (!good).then_some(Cause::MemoryBounds);
        assert_eq!(cause, expected, "{body}");
    }
}
