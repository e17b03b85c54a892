//! Functions in Wasm as pipes: what they are taken for, what is refused, and that
//! they mean on every word what Wasm says.
//!
//! More functions: `PIPE_FUNCTIONS=10000`.

use std::fmt::Write as _;

use ashway_codegen::normalise::{Limits, Profile, normalise_as};
use ashway_codegen::pipe::{
    Gauge, List, Op, Options, Pipe, PipeRequest, Portable, Strategy, Tail, UserPipeError, compile,
    interpret, user_pipe,
};

use super::native::Pipes;
use super::random::Random;
use super::same;

/// The function `f` of a module in the text format.
pub(super) fn user(text: &str, wanted: PipeRequest) -> Result<Pipe, UserPipeError> {
    let mut parser = wat::Parser::new();
    parser.generate_dwarf(wat::GenerateDwarf::Lines);
    let file = std::path::Path::new("pipe.wat");
    let wasm = parser.parse_str(Some(file), text).unwrap();
    let module = normalise_as(&wasm, &Limits::default(), Profile::Library).unwrap();
    user_pipe(&module, "f", wanted)
}

pub(super) fn gauge(gauge: Gauge) -> PipeRequest {
    PipeRequest {
        gauge: Some(gauge),
        ..PipeRequest::default()
    }
}

/// How each CPU's form runs a pipe.
fn strategies(pipe: &Pipe) -> Vec<Strategy> {
    let mut list = List::new();
    list.push(pipe.clone()).unwrap();
    let native = |cpu| compile(&list, cpu, Options::default()).unwrap();
    super::cpus()
        .into_iter()
        .map(|cpu| native(cpu).steps()[0].strategy)
        .collect()
}

fn all_lanes(pipe: &Pipe) -> bool {
    strategies(pipe)
        .into_iter()
        .all(|strategy| strategy == Strategy::Lanes)
}

#[test]
fn a_sum_of_bytes_with_32_bits_runs_on_lanes_of_bytes() {
    let text = "(module (func (export \"f\") (param i32 i32) (result i32 i32)
        local.get 0
        local.get 1 local.get 0 i32.add))";
    let pipe = user(text, gauge(Gauge::Bits8)).unwrap();
    assert!(pipe.no_mod() && pipe.commutative() && all_lanes(&pipe));
    assert_eq!(pipe.width(), Gauge::Bits8);
}

#[test]
fn letters_made_small_run_on_lanes_of_bytes() {
    let text = "(module (func (export \"f\") (param i32) (result i32)
        local.get 0 i32.const 32 i32.or
        local.get 0
        local.get 0 i32.const 65 i32.ge_u
        local.get 0 i32.const 90 i32.le_u
        i32.and
        select))";
    let pipe = user(text, gauge(Gauge::Bits8)).unwrap();
    assert!(all_lanes(&pipe), "{:?}", strategies(&pipe));
    let mut list = List::new();
    list.push(pipe).unwrap();
    let mut data = *b"Hello, WORLD [0]";
    interpret(&list, &mut [], &mut data);
    assert_eq!(&data, b"hello, world [0]");
}

#[test]
fn a_byteswap_is_known_by_what_it_does() {
    let one_word = |body: &str, bits, wanted| {
        let text =
            format!("(module (func (export \"f\") (param i{bits}) (result i{bits}) {body}))");
        user(&text, gauge(wanted)).unwrap()
    };
    let data: Vec<u8> = (1..=64).collect();
    let run = |pipe: &Pipe| {
        let (mut list, mut data) = (List::new(), data.clone());
        list.push(pipe.clone()).unwrap();
        interpret(&list, &mut [], &mut data);
        data
    };
    let swap32 = "local.get 0  i32.const 8  i32.rotl  i32.const 0x00ff00ff  i32.and
        local.get 0  i32.const 24  i32.rotl  i32.const 0xff00ff00  i32.and  i32.or";
    let swap16 = "local.get 0  i32.const 8  i32.shl  local.get 0  i32.const 8  i32.shr_u  i32.or";
    let halves = "local.get 0  i32.const 16  i32.rotl";
    for (body, wanted, swaps) in [
        (swap32, Gauge::Bits32, true),
        (swap16, Gauge::Bits16, true),
        (halves, Gauge::Bits32, false),
    ] {
        let pipe = one_word(body, 32, wanted);
        let result = pipe.ops()[pipe.result().index()];
        assert_eq!(matches!(result, Op::Swap(_)), swaps, "{body}");
        let bytes = wanted.bytes();
        let expected: Vec<u8> = data
            .chunks(bytes)
            .flat_map(|word| {
                let mut word = word.to_vec();
                if swaps {
                    word.reverse();
                } else {
                    word.rotate_left(2);
                }
                word
            })
            .collect();
        assert_eq!(run(&pipe), expected, "{body}");
    }
}

#[test]
fn counted_bits_and_shifts_by_values_run_on_lanes() {
    let bits = "(module (func (export \"f\") (param i32 i32) (result i32 i32)
        local.get 0
        local.get 1 local.get 0 i32.popcnt i32.add))";
    for gauge_of in [Gauge::Bits8, Gauge::Bits16, Gauge::Bits32] {
        let pipe = user(bits, gauge(gauge_of)).unwrap();
        assert!(
            pipe.commutative() && all_lanes(&pipe),
            "{:?}",
            strategies(&pipe)
        );
        assert_eq!(pipe.width(), gauge_of);
    }
    let normal = "(module (func (export \"f\") (param i32) (result i32)
        local.get 0 local.get 0 i32.clz i32.shl))";
    let pipe = user(normal, PipeRequest::default()).unwrap();
    assert!(all_lanes(&pipe), "{:?}", strategies(&pipe));
    // How far a shift goes depends on the width: bytes are computed with 32 bits.
    let pipe = user(normal, gauge(Gauge::Bits8)).unwrap();
    assert!(
        strategies(&pipe)
            .into_iter()
            .all(|strategy| strategy == Strategy::InOrder)
    );
}

#[test]
fn a_state_that_depends_on_the_last_keeps_words_in_order() {
    let text = "(module (func (export \"f\") (param i32 i32) (result i32 i32)
        local.get 0 local.get 1 i32.xor
        local.get 0))";
    let pipe = user(text, PipeRequest::default()).unwrap();
    assert!(!pipe.commutative() && !pipe.no_mod());
    assert!(
        strategies(&pipe)
            .into_iter()
            .all(|strategy| strategy == Strategy::InOrder)
    );
}

fn refused(text: &str, wanted: PipeRequest, expected: &str) {
    assert_eq!(user(text, wanted).unwrap_err().to_string(), expected);
}

#[test]
fn code_that_is_not_straight_is_refused_with_its_line() {
    refused(
        "(module (func (export \"f\") (param i32) (result i32)
          local.get 0
          if (result i32)
            i32.const 1
          else
            i32.const 2
          end))",
        PipeRequest::default(),
        "`f` is not straight-line code, at pipe.wat:3",
    );
    refused(
        "(module (func (export \"f\") (param i32) (result i32)
          (loop (br 0)) local.get 0))",
        PipeRequest::default(),
        "`f` is not straight-line code, at pipe.wat:2",
    );
    refused(
        "(module (func $g) (func (export \"f\") (param i32) (result i32)
          call $g
          local.get 0))",
        PipeRequest::default(),
        "`f` calls a function, at pipe.wat:2",
    );
}

#[test]
fn what_touches_memory_or_globals_is_refused_with_its_line() {
    let touching = [
        ("i32.load", "touches memory"),
        ("i32.load8_u", "touches memory"),
        ("drop memory.size", "touches memory"),
        ("memory.grow", "touches memory"),
        ("i32.const 3 i32.div_u", "divides"),
        ("drop global.get 0", "uses a global"),
        ("global.set 0 i32.const 0", "uses a global"),
    ];
    for (operators, what) in touching {
        let text = format!(
            "(module (memory 1 1) (global (mut i32) (i32.const 0))
              (func (export \"f\") (param i32) (result i32)
              local.get 0
              {operators}))"
        );
        refused(
            &text,
            PipeRequest::default(),
            &format!("`f` {what}, at pipe.wat:4"),
        );
    }
}

#[test]
fn claims_that_do_not_hold_are_refused_by_name() {
    let not = "(module (func (export \"f\") (param i32) (result i32)
        local.get 0 i32.const -1 i32.xor))";
    let wanted = PipeRequest {
        no_mod: true,
        ..PipeRequest::default()
    };
    refused(
        not,
        wanted,
        "`f` claims no-mod, but what it gives is not the word it took",
    );
    let last = "(module (func (export \"f\") (param i32 i32) (result i32 i32)
        local.get 0 local.get 0))";
    let wanted = PipeRequest {
        commutative: true,
        ..PipeRequest::default()
    };
    refused(
        last,
        wanted,
        "`f` claims to be commutative, but its register `state0` depends on the order of words",
    );
}

#[test]
fn other_types_names_and_lengths_are_refused() {
    let float = "(module (func (export \"f\") (param f32) (result f32) local.get 0))";
    let ty = "`f` is not of the type (word, state...) -> (word, state...), all `i32` or all `i64`";
    refused(float, PipeRequest::default(), ty);
    let few = "(module (func (export \"f\") (param i32 i32) (result i32) local.get 0))";
    refused(few, PipeRequest::default(), ty);
    refused(
        "(module (func (export \"g\")))",
        PipeRequest::default(),
        "the file exports no function `f`",
    );
    let long = format!(
        "(module (func (export \"f\") (param i32) (result i32) local.get 0 {}))",
        "local.get 0 i32.mul i32.const 3 i32.add ".repeat(40)
    );
    refused(
        &long,
        PipeRequest::default(),
        "`f` has 121 operators; at most 64",
    );
    let narrow = gauge(Gauge::Bits64);
    let word = "(module (func (export \"f\") (param i32) (result i32) local.get 0))";
    refused(
        word,
        narrow,
        "`f` computes with 32 bits on words of 64 bits; possible are 8, 16, 32 and 64 bits, not less than the word",
    );
}

/// A straight expression, with Wasm's own meaning.
enum Expression {
    Constant(u64),
    Local(usize),
    Two(&'static str, Box<Self>, Box<Self>),
    Shift(&'static str, Box<Self>, u64),
    One(&'static str, Box<Self>),
    Select(Box<Self>, Box<Self>, Box<Self>),
}

const TWO: &[&str] = &[
    "add", "sub", "mul", "and", "or", "xor", "eq", "ne", "lt_u", "gt_u", "le_u", "ge_u", "lt_s",
    "gt_s", "le_s", "ge_s",
];
const ONE: &[&str] = &["clz", "ctz", "popcnt", "eqz", "extend8_s", "extend16_s"];
const SHIFTS: &[&str] = &["shl", "shr_u", "shr_s", "rotl", "rotr"];

impl Expression {
    fn random(random: &mut Random, locals: usize, depth: usize) -> Self {
        let next = |random: &mut Random| Box::new(Self::random(random, locals, depth - 1));
        match random.below(if depth == 0 { 2 } else { 9 }) {
            0 => Self::Constant(random.constant() & 0xffff_ffff),
            1 => Self::Local(random.below(locals)),
            2 => Self::Shift(random.one_of(SHIFTS), next(random), random.number() % 40),
            3 => Self::Select(next(random), next(random), next(random)),
            4 => Self::One(random.one_of(ONE), next(random)),
            5 => Self::Two(random.one_of(SHIFTS), next(random), next(random)),
            _ => Self::Two(random.one_of(TWO), next(random), next(random)),
        }
    }

    fn write(&self, to: &mut String) {
        let written = match self {
            Self::Constant(value) => write!(to, "i32.const {} ", *value as u32 as i32),
            Self::Local(local) => write!(to, "local.get {local} "),
            Self::Two(op, left, right) => {
                left.write(to);
                right.write(to);
                write!(to, "i32.{op} ")
            }
            Self::Shift(op, value, bits) => {
                value.write(to);
                write!(to, "i32.const {bits} i32.{op} ")
            }
            Self::One(op, value) => {
                value.write(to);
                write!(to, "i32.{op} ")
            }
            Self::Select(condition, one, other) => {
                one.write(to);
                other.write(to);
                condition.write(to);
                write!(to, "select ")
            }
        };
        written.unwrap();
    }

    fn value(&self, locals: &[u32]) -> u32 {
        match self {
            Self::Constant(value) => *value as u32,
            Self::Local(local) => locals[*local],
            Self::Two(op, left, right) => two(op, left.value(locals), right.value(locals)),
            Self::Shift(op, value, bits) => two(op, value.value(locals), *bits as u32),
            Self::One(op, value) => {
                let value = value.value(locals);
                match *op {
                    "clz" => value.leading_zeros(),
                    "ctz" => value.trailing_zeros(),
                    "popcnt" => value.count_ones(),
                    "eqz" => u32::from(value == 0),
                    "extend8_s" => value as i8 as u32,
                    _ => value as i16 as u32,
                }
            }
            Self::Select(condition, one, other) => {
                let chosen = if condition.value(locals) == 0 {
                    other
                } else {
                    one
                };
                chosen.value(locals)
            }
        }
    }
}

fn two(op: &str, left: u32, right: u32) -> u32 {
    let (signed_left, signed_right) = (left as i32, right as i32);
    let truth = match op {
        "add" => return left.wrapping_add(right),
        "sub" => return left.wrapping_sub(right),
        "mul" => return left.wrapping_mul(right),
        "and" => return left & right,
        "or" => return left | right,
        "xor" => return left ^ right,
        "shl" => return left.wrapping_shl(right),
        "shr_u" => return left.wrapping_shr(right),
        "shr_s" => return signed_left.wrapping_shr(right) as u32,
        "rotl" => return left.rotate_left(right % 32),
        "rotr" => return left.rotate_right(right % 32),
        "eq" => left == right,
        "ne" => left != right,
        "lt_u" => left < right,
        "gt_u" => left > right,
        "le_u" => left <= right,
        "ge_u" => left >= right,
        "lt_s" => signed_left < signed_right,
        "gt_s" => signed_left > signed_right,
        "le_s" => signed_left <= signed_right,
        _ => signed_left >= signed_right,
    };
    u32::from(truth)
}

/// What the functions do to data, word by word.
fn naive(pipe: &Pipe, results: &[Expression], states: &mut [u32], data: &mut [u8]) {
    let bytes = pipe.gauge().bytes();
    for word in data.chunks_mut(bytes) {
        if word.len() < bytes && pipe.tail() == Tail::Leave {
            continue;
        }
        let mut padded = [0; 4];
        padded[..word.len()].copy_from_slice(word);
        let mut locals = vec![u32::from_le_bytes(padded)];
        locals.extend_from_slice(states);
        let values: Vec<u32> = results.iter().map(|one| one.value(&locals)).collect();
        word.copy_from_slice(&values[0].to_le_bytes()[..word.len()]);
        states.copy_from_slice(&values[1..]);
    }
}

#[test]
fn random_functions_mean_what_wasm_says_on_every_word() {
    let mut random = Random(10);
    let mut bench = same::Bench::new();
    let functions = same::setting("PIPE_FUNCTIONS").unwrap_or(300);
    let (mut taken, mut on_lanes) = (0, 0);
    while taken < functions {
        let states = random.below(4);
        let mut results = vec![match random.below(4) {
            0 => Expression::Local(0),
            _ => Expression::random(&mut random, states + 1, 3),
        }];
        for state in 1..=states {
            // Often what is reduced into, and knows nothing of states.
            results.push(match random.below(4) {
                0 => Expression::Local(state),
                1 => Expression::random(&mut random, states + 1, 3),
                _ => Expression::Two(
                    random.one_of(&["add", "xor", "or"]),
                    Box::new(Expression::Local(state)),
                    Box::new(Expression::random(&mut random, 1, 2)),
                ),
            });
        }
        let mut text = String::from("(module (func (export \"f\") (param i32 ");
        let types = "i32 ".repeat(states);
        write!(text, "{types}) (result i32 {types}) ").unwrap();
        for result in &results {
            result.write(&mut text);
        }
        text.push_str("))");
        let word = random.one_of(&[Gauge::Bits8, Gauge::Bits16, Gauge::Bits32]);
        let pipe = match user(&text, gauge(word)) {
            Ok(pipe) => pipe,
            Err(UserPipeError::Pipe(_)) => continue,
            Err(error) => panic!("{error}: {text}"),
        };
        taken += 1;
        on_lanes += u64::from(all_lanes(&pipe));
        let mut list = List::new();
        list.push(pipe.clone()).unwrap();
        let len = random.length();
        let data = random.bytes(len);
        // A sum's register is of 32 bits, others may be of the words'.
        let first: Vec<u64> = (0..states).map(|_| random.number() & word.mask()).collect();
        let mut states: Vec<u32> = first.iter().map(|one| *one as u32).collect();
        let mut wanted = data.clone();
        naive(&pipe, &results, &mut states, &mut wanted);
        let wanted = (wanted, states.iter().map(|one| u64::from(*one)).collect());
        let mut given = (data.clone(), first.clone());
        interpret(&list, &mut given.1, &mut given.0);
        assert!(given == wanted, "interpreted, {word}, {len} bytes: {text}");
        let mut given = (data.clone(), first.clone());
        Portable::new(&list).run_in_place(&mut given.1, &mut given.0);
        assert!(given == wanted, "portable, {word}, {len} bytes: {text}");
        for cpu in super::cpus() {
            let native = compile(&list, cpu, Options::default()).unwrap();
            let pipes = Pipes::map(native).unwrap();
            let mut given = (vec![0; len], first.clone());
            pipes.run(&mut given.1, &data, &mut given.0, len);
            assert!(given == wanted, "{cpu:?}, {word}, {len} bytes: {text}");
        }
        // Between guard pages, in every layout.
        same::check(&mut bench, &mut random, &list);
    }
    assert!(on_lanes * 10 > taken, "{on_lanes} of {taken} on lanes");
}
