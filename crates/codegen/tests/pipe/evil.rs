//! Functions in Wasm that mean harm: what would touch anything but its word and its
//! states is refused with its line; what is taken touches no byte outside of its data,
//! in any form, between guard pages.
//!
//! The whole campaign: `PIPE_EVIL=10000 cargo test --release -p ashway-codegen --test pipe evil`.

use std::fmt::Write as _;

use ashway_codegen::pipe::{Gauge, List, UserPipeError, parse};

use super::random::Random;
use super::same;
use super::user::{gauge, user};

/// Each would leave the function, or its word and states. The stack is as before.
const HARM: &[&str] = &[
    "local.get 0 i32.load drop",
    "local.get 0 i32.load8_s offset=65535 drop",
    "i32.const -4 i32.load offset=4294967295 drop",
    "local.get 0 local.get 0 i32.store",
    "local.get 0 i32.const 65536 i32.store16 offset=3",
    "local.get 0 local.get 0 local.get 0 memory.fill",
    "i32.const -1 local.get 0 i32.const 7 memory.copy",
    "local.get 0 memory.grow drop",
    "memory.size drop",
    "global.get 0 drop",
    "local.get 0 global.set 0",
    "call $other",
    "local.get 0 (call_indirect (type $nothing))",
    "(loop (br 0))",
    "(block (br_if 0 (local.get 0)))",
    "(block (block (br_table 0 1 (local.get 0))))",
    "local.get 0 if unreachable end",
    "local.get 0 i32.const 0 i32.div_u drop",
    "i32.const -2147483648 local.get 0 i32.rem_s drop",
    "unreachable",
];

const BINARY: &[&str] = &[
    "add", "sub", "mul", "and", "or", "xor", "shl", "shr_u", "shr_s", "rotl", "rotr", "eq", "lt_u",
    "gt_s", "le_u", "ge_s",
];
const UNARY: &[&str] = &["clz", "ctz", "popcnt", "eqz", "extend8_s", "extend16_s"];

/// A number that is an address or an offset to somebody.
fn edge(random: &mut Random) -> i32 {
    let near = random.below(130) as i32 - 65;
    let base = random.one_of(&[
        0,
        64,
        4096,
        65_536,
        i32::MAX,
        i32::MIN,
        -1,
        -4096,
        0x7fff_f000,
    ]);
    base.wrapping_add(near)
}

/// A valid function of `states` states, with what does harm or without.
fn function(random: &mut Random, states: usize, harm: bool) -> String {
    let mut body = String::new();
    let mut depth = 0;
    let steps = 1 + random.below(24);
    let place = random.below(steps);
    for step in 0..steps {
        if harm && step == place {
            write!(body, "{} ", random.one_of(HARM)).unwrap();
        }
        match random.below(8) {
            0 | 1 => {
                write!(body, "local.get {} ", random.below(states + 1)).unwrap();
                depth += 1;
            }
            2 => {
                write!(body, "i32.const {} ", edge(random)).unwrap();
                depth += 1;
            }
            3 if depth > 0 => write!(body, "i32.{} ", random.one_of(UNARY)).unwrap(),
            4 if depth > 0 => write!(body, "local.tee {} ", random.below(states + 1)).unwrap(),
            5 if depth > 2 => {
                body.push_str("select ");
                depth -= 2;
            }
            _ if depth > 1 => {
                write!(body, "i32.{} ", random.one_of(BINARY)).unwrap();
                depth -= 1;
            }
            _ => {}
        }
    }
    // Results are as many as parameters.
    while depth > states + 1 {
        body.push_str("drop ");
        depth -= 1;
    }
    while depth < states + 1 {
        write!(body, "local.get {} ", random.below(states + 1)).unwrap();
        depth += 1;
    }
    let types = "i32 ".repeat(states + 1);
    format!(
        "(module (type $nothing (func)) (table 2 2 funcref) (memory 1 1)
           (global (mut i32) (i32.const 0)) (func $other)
           (func (export \"f\") (param {types}) (result {types}) {body}))"
    )
}

#[test]
fn evil_functions_touch_no_byte_outside_of_their_data() {
    let mut random = Random(666);
    let mut bench = same::Bench::new();
    let functions = same::setting("PIPE_EVIL").unwrap_or(400);
    let (mut refused, mut run, mut long) = (0, 0, 0);
    for _ in 0..functions {
        let seed = random.number();
        let mut random = Random(seed);
        // Also where a guard page ends the process.
        let failing = same::Say(seed);
        let harm = random.below(2) == 0;
        let states = random.below(4);
        let text = function(&mut random, states, harm);
        let word = random.one_of(&[Gauge::Bits8, Gauge::Bits16, Gauge::Bits32]);
        match user(&text, gauge(word)) {
            Err(UserPipeError::Operator { line, .. }) if harm => {
                assert!(line.is_some(), "{text}");
                refused += 1;
            }
            // Too many operators, whatever they do.
            Err(UserPipeError::Pipe(_)) if !harm => long += 1,
            Ok(pipe) if !harm => {
                // Alone, or where it meets what others made of the data.
                let mut list = match random.below(3) {
                    0 => List::new(),
                    1 => parse("cksum16 | bswap32").unwrap(),
                    _ => parse("xor8(0xff)").unwrap(),
                };
                list.push(pipe.clone()).unwrap();
                if random.below(2) == 0 {
                    list.push(pipe).unwrap();
                }
                same::check(&mut bench, &mut random, &list);
                run += 1;
            }
            other => panic!("{:?}: {text}", other.err()),
        }
        std::mem::forget(failing);
    }
    println!("{functions} functions: {refused} refused, {run} run, {long} too long");
    assert!(refused * 3 > functions && run * 3 > functions);
}
