//! `send`, `msg_clone` and `timer_set`: what an activation leaves for its host.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use ashway_abi::outbox::{MOST, NEVER, NO_TIMER, PAYLOAD_BYTES, answer};
use ashway_abi::{Cause, Verdict};
use ashway_handler::{Function, Instance, Outcome};
use common::load;

const FUEL: u64 = 100_000;

/// A handler that leaves the answers of its calls in memory from 0 on.
fn handler(body: &str) -> Vec<u8> {
    let text = format!(
        r#"(module
        (import "ashway" "send" (func $send (param i32 i32 i32) (result i32)))
        (import "ashway" "msg_clone" (func $clone (param i32) (result i32)))
        (import "ashway" "msg_store8" (func $store8 (param i32 i32)))
        (memory (export "memory") 1 1)
        (data (i32.const 100) "hello, peers")
        (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
            (local $i i32)
            {body}))"#
    );
    wat::parse_str(text).unwrap()
}

fn run(instance: &mut Instance, message: &mut [u8]) -> Outcome {
    instance.activate(Function::ON_RX, message, 0, FUEL)
}

fn sent(instance: &mut Instance) -> Vec<(u32, Vec<u8>)> {
    let mut sent = Vec::new();
    instance.take_sent(|channel, bytes| sent.push((channel, bytes.to_vec())));
    sent
}

#[test]
fn several_messages_to_several_peers() {
    let body = "
        (i32.store (i32.const 0) (call $send (i32.const 1) (i32.const 100) (i32.const 5)))
        (i32.store (i32.const 4) (call $clone (i32.const 2)))
        (call $store8 (i32.const 0) (i32.const 0x2a))
        (i32.store (i32.const 8) (call $clone (i32.const 0)))
        (i32.store (i32.const 12) (call $send (i32.const 2) (i32.const 107) (i32.const 0)))
        (i32.store (i32.const 16) (call $send (i32.const 3) (i32.const 100) (i32.const 1)))
        (i32.const 1)";
    let (mut instance, pages) = load(&handler(body));
    instance.set_channels(3);
    for _ in 0..2 {
        let outcome = run(&mut instance, &mut [1, 2, 3]);
        assert_eq!(outcome.verdict, Ok(Verdict::Reply));
        let answers = [0, 4, 8, 12, 16].map(|at| pages.read_u32(at));
        assert_eq!(answers, [0, 0, 0, 0, answer::NO_CHANNEL]);
        let expected = [
            (1, b"hello".to_vec()),
            (2, vec![1, 2, 3]),
            (0, vec![0x2a, 2, 3]),
            (2, vec![]),
        ];
        assert_eq!(sent(&mut instance), expected);
        assert_eq!(sent(&mut instance), [], "taken once");
    }
}

#[test]
fn an_activation_sends_so_many_and_so_long() {
    let body = format!(
        "(i32.store (i32.const 0)
            (call $send (i32.const 0) (i32.const 0) (i32.const {})))
        (loop $again
            (i32.store (i32.const 4)
                (call $send (i32.const 0) (i32.const 200) (i32.const {PAYLOAD_BYTES})))
            (i32.store (i32.const 200) (local.get $i))
            (local.set $i (i32.add (local.get $i) (i32.const 1)))
            (br_if $again (i32.lt_u (local.get $i) (i32.const {}))))
        (i32.const 0)",
        PAYLOAD_BYTES + 1,
        MOST + 1,
    );
    let (mut instance, pages) = load(&handler(&body));
    instance.set_channels(1);
    run(&mut instance, &mut []);
    assert_eq!(pages.read_u32(0), answer::TOO_LONG);
    assert_eq!(pages.read_u32(4), answer::FULL);
    let sent = sent(&mut instance);
    assert_eq!(sent.len(), MOST);
    for (number, (_, bytes)) in sent.iter().enumerate().skip(1) {
        let first = u32::from_le_bytes(bytes[..4].try_into().unwrap());
        assert_eq!((first as usize, bytes.len()), (number - 1, PAYLOAD_BYTES));
    }
}

/// The bytes are those at the time of the call, and no channel is one that nobody
/// has named.
#[test]
fn nobody_is_reached_without_channels() {
    let body = "
        (i32.store (i32.const 0) (call $send (i32.const 0) (i32.const 100) (i32.const 5)))
        (i32.store (i32.const 4) (call $clone (i32.const -1)))
        (i32.const 0)";
    let (mut instance, pages) = load(&handler(body));
    run(&mut instance, &mut [1]);
    let answers = [pages.read_u32(0), pages.read_u32(4)];
    assert_eq!(answers, [answer::NO_CHANNEL; 2]);
    assert_eq!(sent(&mut instance), []);
}

/// What is stopped has sent nothing, also not with the next activation.
#[test]
fn a_stopped_handler_has_sent_nothing() {
    let outside = "
        (drop (call $clone (i32.const 0)))
        (if (local.get $len) (then
            (drop (call $send (i32.const 0) (i32.const 65530) (i32.const 7)))))
        (i32.const 0)";
    let (mut instance, _pages) = load(&handler(outside));
    instance.set_channels(1);
    let outcome = run(&mut instance, &mut [1]);
    assert_eq!(outcome.verdict.unwrap_err().cause, Cause::MemoryBounds);
    assert_eq!(sent(&mut instance), []);
    assert_eq!(run(&mut instance, &mut []).verdict, Ok(Verdict::Consume));
    assert_eq!(sent(&mut instance), [(0, vec![])]);

    // Not taken: forgotten when the next one begins.
    run(&mut instance, &mut []);
    let outcome = run(&mut instance, &mut [1]);
    assert!(outcome.verdict.is_err());
    assert_eq!(sent(&mut instance), []);
}

/// A length costs fuel before anything is copied.
#[test]
fn sending_is_paid_by_its_length() {
    let body = "
        (loop $again
            (drop (call $send (i32.const 0) (i32.const 0) (i32.const 4096)))
            (br $again))
        (i32.const 0)";
    let (mut instance, _pages) = load(&handler(body));
    instance.set_channels(1);
    let outcome = instance.activate(Function::ON_RX, &mut [], 0, 3 * 512_u64);
    assert_eq!(outcome.verdict.unwrap_err().cause, Cause::Fuel);
}

#[test]
fn timers_are_told_once_and_not_by_a_stopped_handler() {
    let text = r#"(module
        (import "ashway" "timer_set" (func $set (param i32 i64) (result i32)))
        (memory (export "memory") 1 1)
        (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
            (i32.store (i32.const 0) (call $set (i32.const 63) (i64.const 5)))
            (i32.store (i32.const 4) (call $set (i32.const 64) (i64.const 6)))
            (drop (call $set (i32.const 0) (i64.const 7)))
            (drop (call $set (i32.const 0) (i64.const -1)))
            (if (local.get $len) (then unreachable))
            (i32.const 0)))"#;
    let (mut instance, pages) = load(&wat::parse_str(text).unwrap());
    let timers = |instance: &mut Instance| {
        let mut timers = Vec::new();
        instance.take_timers(|id, ns| timers.push((id, ns)));
        timers
    };
    for stopped in [false, true, false] {
        let mut message = vec![0; usize::from(stopped)];
        let outcome = run(&mut instance, &mut message);
        assert_eq!(outcome.verdict.is_err(), stopped);
        assert_eq!([pages.read_u32(0), pages.read_u32(4)], [0, NO_TIMER]);
        let expected = [(0, NEVER), (63, 5)];
        let expected = if stopped { &[][..] } else { &expected };
        assert_eq!(timers(&mut instance), expected);
        assert_eq!(timers(&mut instance), []);
    }
}
