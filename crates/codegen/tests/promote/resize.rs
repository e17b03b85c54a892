//! Messages that change their length.

use super::harness::{Outcome, module, run};
use ashway_abi::Cause;

/// A handler that may change the message's length.
fn resizing(body: &str) -> Vec<u8> {
    module(&format!(
        r#"(module
            (import "ashway" "msg_resize" (func $resize (param i32) (result i32)))
            (import "ashway" "msg_load64le" (func $load64 (param i32) (result i64)))
            (memory (export "memory") 1 1)
            (func $shorter (drop (call $resize (i32.const 4))))
            (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
                {body}))"#
    ))
}

const MESSAGE: &[u8] =
    b"some bytes, more than there are in a chunk, and some more to be sure of it";

fn one(body: &str) -> Outcome {
    run(&resizing(body), &[MESSAGE]).remove(0)
}

#[test]
fn what_was_checked_before_is_checked_again() {
    for shorter in ["(drop (call $resize (i32.const 4)))", "(call $shorter)"] {
        let load = "(drop (call $load64 (i32.const 0)))";
        let outcome = one(&format!("{load} {shorter} {load} (i32.const 1)"));
        let cause = outcome.result.unwrap_err().0;
        assert_eq!((cause, outcome.dirty), (Cause::MessageBounds, true));
        assert_eq!(outcome.message, &MESSAGE[..4]);
    }
}

#[test]
fn nobody_gets_more_than_is_declared() {
    for more in [1, 16, 4096, 1_000_000, -1] {
        let outcome = one(&format!(
            "(call $resize (i32.add (local.get $len) (i32.const {more})))"
        ));
        let expected = u32::from(more > 0);
        assert_eq!(outcome.result, Ok(expected), "{more}");
        assert_eq!(outcome.dirty, more < 0);
    }
}

#[test]
fn what_a_message_gains_is_zero() {
    for keep in [0, 1, 7, 8, 9, 60] {
        let outcome = one(&format!(
            "(drop (call $resize (i32.const {keep}))) (call $resize (local.get $len))"
        ));
        let mut expected = MESSAGE[..keep].to_vec();
        expected.resize(MESSAGE.len(), 0);
        assert_eq!(
            (outcome.result, outcome.message),
            (Ok(0), expected),
            "{keep}"
        );
    }
}
