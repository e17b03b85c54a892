//! Every rule of the table against its definition, over many operands.
//!
//! Programs work through operands in memory: for each pair they compute every
//! rule of a group and write the results side by side, so that one run of the
//! interpreter covers thousands of cases. Operands that make a rule trap are
//! left out there and tried one by one.

use super::machine::{Handler, How};
use super::table::{Rule, Type, rules};
use std::fmt::Write as _;
use wasmparser::{Parser, Payload};

/// Operands.
type Pair = [u64; 2];

/// Random samples for each rule.
const SAMPLES: usize = if cfg!(ashway_bugs) { 10_000 } else { 1_000_000 };

/// Pairs for one run.
const BATCH: usize = 2_048;

/// Where operands lie in memory, and their results behind them.
const OPERANDS: usize = 64;
const RESULTS: usize = OPERANDS + BATCH * 16;

/// How the operands come to the operator, and where its result goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Both are locals.
    Locals,
    /// Both were just computed.
    Fresh,
    /// Both wait in the frame.
    Slots,
    /// The left one waits in the frame, the right one is a local.
    LeftSlot,
    /// Two locals, the result replaces the first.
    IntoLeft,
    /// Two locals, the result replaces the second.
    IntoRight,
    /// The same local twice.
    Twice,
    /// The result is jumped on.
    Jump(Jump),
}

/// Ways to jump on a relation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Jump {
    If,
    IfNot,
    BrIf,
    Select,
}

const FORMS: [Form; 7] = [
    Form::Locals,
    Form::Fresh,
    Form::Slots,
    Form::LeftSlot,
    Form::IntoLeft,
    Form::IntoRight,
    Form::Twice,
];

const JUMPS: [Jump; 4] = [Jump::If, Jump::IfNot, Jump::BrIf, Jump::Select];

/// The operator applied to operands in the folded text format, as an `i64`.
fn applied(rule: &Rule, operands: [&str; 2], jump: Option<Jump>) -> String {
    let list = operands[..rule.operands].join(" ");
    let value = format!("({} {list})", rule.name);
    let value = match jump {
        None => value,
        Some(Jump::If) => {
            format!("(if (result i32) {value} (then (i32.const 1)) (else (i32.const 0)))")
        }
        Some(Jump::IfNot) => {
            format!("(if (result i32) (i32.eqz {value}) (then (i32.const 0)) (else (i32.const 1)))")
        }
        Some(Jump::BrIf) => {
            format!("(block (result i32) (i32.const 1) (br_if 0 {value}) (drop) (i32.const 0))")
        }
        Some(Jump::Select) => format!("(select (i32.const 1) (i32.const 0) {value})"),
    };
    widened(rule, &value)
}

/// An `i32` shows its upper half as an `i64`: it has to be zero.
fn widened(rule: &Rule, value: &str) -> String {
    match rule.result {
        Type::I32 => format!("(i64.extend_i32_u {value})"),
        Type::I64 => value.into(),
    }
}

/// The rule in a form; `$a` and `$b` are operands, `$x` and `$y` are free.
fn expression(rule: &Rule, form: Form) -> String {
    let (a, b) = ("(local.get $a)", "(local.get $b)");
    let ty = rule.operand.name();
    let in_slots = |operands: &str| widened(rule, &format!("{operands} (block) {}", rule.name));
    match form {
        Form::Locals => applied(rule, [a, b], None),
        Form::Jump(jump) => applied(rule, [a, b], Some(jump)),
        Form::Twice => applied(rule, [a, a], None),
        Form::Fresh => {
            let fresh = |local| format!("({ty}.xor {local} (local.get $zero))");
            applied(rule, [&fresh(a), &fresh(b)], None)
        }
        // A block's begin is where operands are put away.
        Form::Slots | Form::LeftSlot if rule.operands == 1 => in_slots(a),
        Form::Slots => in_slots(&format!("{a} {b}")),
        Form::LeftSlot => widened(rule, &format!("{a} (block) {b} {}", rule.name)),
        Form::IntoLeft | Form::IntoRight => {
            let (operands, local) = match (form, rule.result == rule.operand) {
                (Form::IntoLeft, true) => (["(local.get $x)", b], "$x"),
                (Form::IntoRight, true) => ([a, "(local.get $x)"], "$x"),
                // The result's local is of another type.
                _ => ([a, b], "$y"),
            };
            let list = operands[..rule.operands].join(" ");
            let from = if form == Form::IntoLeft || rule.operands == 1 {
                a
            } else {
                b
            };
            let first =
                if operands.contains(&"(local.get $x)") || rule.operands == 1 && local == "$x" {
                    format!("(local.set $x {from})")
                } else {
                    String::new()
                };
            let result = widened(rule, &format!("(local.get {local})"));
            format!(
                "{first} (local.set {local} ({} {list})) {result}",
                rule.name
            )
        }
    }
}

/// Locals for [`expression`].
fn locals(operand: Type, other: Type) -> String {
    let (ty, other) = (operand.name(), other.name());
    format!("(local $a {ty}) (local $b {ty}) (local $x {ty}) (local $zero {ty}) (local $y {other})")
}

const fn other(ty: Type) -> Type {
    match ty {
        Type::I32 => Type::I64,
        Type::I64 => Type::I32,
    }
}

/// A handler around a body that works on `$in` and `$out`, once for each pair
/// of operands before `$end`.
fn program(operand: Type, body: &str, results: usize) -> String {
    let ty = operand.name();
    let locals = locals(operand, other(operand));
    format!(
        r#"(module
            (memory (export "memory") 32 32)
            (func (export "on_rx") (param i32 i32) (result i32)
                (local $in i32) (local $out i32) (local $end i32) {locals}
                (local.set $in (i32.const {OPERANDS}))
                (local.set $out (i32.const {RESULTS}))
                (local.set $end (i32.load (i32.const 0)))
                (loop $next
                    (local.set $a ({ty}.load (local.get $in)))
                    (local.set $b ({ty}.load offset=8 (local.get $in)))
                    {body}
                    (local.set $out (i32.add (local.get $out) (i32.const {})))
                    (local.set $in (i32.add (local.get $in) (i32.const 16)))
                    (br_if $next (i32.lt_u (local.get $in) (local.get $end))))
                (i32.const 0)))"#,
        results * 8
    )
}

/// Computes all `expressions` for all pairs and hands each result to `check`
/// with the numbers of its pair and its expression.
fn compute(
    operand: Type,
    expressions: &[String],
    pairs: &[Pair],
    how: How,
    mut check: impl FnMut(usize, usize, u64),
) {
    let mut body = String::new();
    for (place, expression) in expressions.iter().enumerate() {
        // The address first, as the stack machine wants it.
        let _ = write!(
            body,
            "(local.get $out) {expression} (i64.store offset={})",
            place * 8
        );
    }
    let mut handler = Handler::new(&program(operand, &body, expressions.len()), how);
    let room = handler.guest().len() - RESULTS;
    let batch = (room / 8 / expressions.len()).min(BATCH);
    for (number, batch_pairs) in pairs.chunks(batch).enumerate() {
        let guest = handler.guest_mut();
        let end = OPERANDS + batch_pairs.len() * 16;
        guest[..4].copy_from_slice(&(end as u32).to_le_bytes());
        for (bytes, pair) in guest[OPERANDS..end].chunks_mut(16).zip(batch_pairs) {
            bytes[..8].copy_from_slice(&pair[0].to_le_bytes());
            bytes[8..].copy_from_slice(&pair[1].to_le_bytes());
        }
        assert_eq!(handler.run(b"").result, Ok(0));
        let results = &handler.guest()[RESULTS..];
        let words = results
            .chunks_exact(8)
            .take(batch_pairs.len() * expressions.len());
        for (place, word) in words.enumerate() {
            let word = u64::from_le_bytes(word.try_into().unwrap());
            let pair = number * batch + place / expressions.len();
            check(pair, place % expressions.len(), word);
        }
    }
}

/// The rules of a group in a form, over pairs; those that trap one by one.
fn prove(group: &[&Rule], form: Form, pairs: &[Pair], how: How) {
    let Some(first) = group.first() else { return };
    let seen = |pair: Pair| match form {
        Form::Twice => [pair[0]; 2],
        _ => pair,
    };
    let traps = |pair: &Pair| group.iter().any(|rule| rule.meaning(seen(*pair)).is_err());
    let (trapping, plain): (Vec<Pair>, Vec<Pair>) = pairs.iter().partition(|pair| traps(pair));
    let expressions: Vec<String> = group.iter().map(|rule| expression(rule, form)).collect();
    compute(
        first.operand,
        &expressions,
        &plain,
        how,
        |pair, place, found| {
            let (rule, pair) = (group[place], seen(plain[pair]));
            let expected = rule.meaning(pair);
            assert_eq!(
                Ok(found),
                expected,
                "{} of {pair:x?}, {form:?}, {how:?}",
                rule.name
            );
        },
    );
    for rule in group {
        let single = Single::new(rule, &expression(rule, form), how);
        if let (Some(mut single), false) = (single, trapping.is_empty()) {
            for pair in &trapping {
                single.check(rule, *pair, rule.meaning(seen(*pair)));
            }
        }
    }
}

/// One expression on one pair of operands.
struct Single {
    handler: Handler,
    /// Where the operator is in the file.
    at: u32,
}

impl Single {
    /// `None` if the rule never traps.
    fn new(rule: &Rule, expression: &str, how: How) -> Option<Self> {
        if !rule.can_trap() {
            return None;
        }
        let body = format!("(local.get $out) {expression} (i64.store)");
        let wasm = wat::parse_str(program(rule.operand, &body, 1)).unwrap();
        let mut handler = Handler::of_wasm(&wasm, how);
        let end = OPERANDS as u32 + 16;
        handler.guest_mut()[..4].copy_from_slice(&end.to_le_bytes());
        let at = place_of(&wasm, &rule.name);
        Some(Self { handler, at })
    }

    fn check(&mut self, rule: &Rule, pair: Pair, expected: Result<u64, ashway_abi::Cause>) {
        let operands = &mut self.handler.guest_mut()[OPERANDS..][..16];
        operands[..8].copy_from_slice(&pair[0].to_le_bytes());
        operands[8..].copy_from_slice(&pair[1].to_le_bytes());
        let outcome = self.handler.run(b"");
        let word = self.handler.guest()[RESULTS..][..8].try_into().unwrap();
        let found = outcome.result.map(|_| u64::from_le_bytes(word));
        let expected = expected.map_err(|cause| (cause, self.at));
        assert_eq!(found, expected, "{} of {pair:x?}", rule.name);
    }
}

/// The file offset of the only operator of this name.
fn place_of(wasm: &[u8], name: &str) -> u32 {
    let wanted: String = name.split(['.', '_']).map(capitalised).collect();
    let mut found = Vec::new();
    for payload in Parser::new(0).parse_all(wasm) {
        if let Payload::CodeSectionEntry(body) = payload.unwrap() {
            for operator in body
                .get_operators_reader()
                .unwrap()
                .into_iter_with_offsets()
            {
                let (operator, at) = operator.unwrap();
                if format!("{operator:?}") == wanted {
                    found.push(at as u32);
                }
            }
        }
    }
    let [at] = found[..] else {
        panic!("{} places of {wanted}", found.len());
    };
    at
}

fn capitalised(word: &str) -> String {
    let (first, rest) = word.split_at(1);
    first.to_uppercase() + rest
}

/// The 8-bit values, put into `bits` in one of three ways.
fn bytes(bits: u32, way: usize) -> Vec<u64> {
    (0..=255_u64)
        .map(|byte| match way {
            0 => byte,
            1 => byte as i8 as u64 & (u64::MAX >> (64 - bits)),
            _ => byte << (bits - 8),
        })
        .collect()
}

/// 0, 1, -1, the least and the greatest number, powers of two and their
/// neighbours.
fn edges(bits: u32) -> Vec<u64> {
    let powers = (0..bits).map(|at| 1_u64 << at);
    let mut edges: Vec<u64> = powers
        .flat_map(|power| [power - 1, power, power + 1])
        .chain([0, u64::MAX, u64::MAX - 1])
        .map(|value| value & (u64::MAX >> (64 - bits)))
        .collect();
    edges.sort_unstable();
    edges.dedup();
    edges
}

fn all_pairs(left: &[u64], right: &[u64]) -> Vec<Pair> {
    let pairs = left.iter().flat_map(|a| right.iter().map(|b| [*a, *b]));
    pairs.collect()
}

/// Bytes of each kind with each other, and edges.
fn small(bits: u32, kinds: impl Iterator<Item = (usize, usize)>) -> Vec<Pair> {
    let edges = edges(bits);
    let bytes = kinds.flat_map(|(a, b)| all_pairs(&bytes(bits, a), &bytes(bits, b)));
    bytes.chain(all_pairs(&edges, &edges)).collect()
}

fn same_kinds() -> impl Iterator<Item = (usize, usize)> {
    (0..3).map(|kind| (kind, kind))
}

/// Random pairs: bits of any density, and often small or alike.
fn samples(count: usize) -> Vec<Pair> {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut pair = || {
        let shape = random.next();
        let mut value = || random.next() >> (random.next() & 63);
        let a = value();
        let b = match shape & 7 {
            0 => a,
            1 => a.wrapping_add(1),
            2 => a.wrapping_neg(),
            3 | 4 => value(),
            _ => random.next(),
        };
        if shape & 8 == 0 { [a, b] } else { [!a, b] }
    };
    (0..count).map(|_| pair()).collect()
}

/// xorshift64: the same numbers on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// The table's rules on operands of a type: those that never trap together,
/// each of the others alone.
fn groups(rules: &[Rule], operand: Type, operands: usize) -> Vec<Vec<&Rule>> {
    let mine = |rule: &&Rule| rule.operand == operand && rule.operands == operands;
    let (trapping, plain): (Vec<&Rule>, _) =
        rules.iter().filter(mine).partition(|rule| rule.can_trap());
    let alone = trapping.into_iter().map(|rule| vec![rule]);
    std::iter::once(plain).chain(alone).collect()
}

fn relations(rules: &[Rule], operand: Type, operands: usize) -> Vec<&Rule> {
    rules
        .iter()
        .filter(|rule| rule.operand == operand && rule.operands == operands && rule.is_relation())
        .collect()
}

fn binary(operand: Type) {
    let rules = rules();
    let bits = operand.bits();
    let every_kind = (0..9).map(|kind| (kind / 3, kind % 3));
    let wide = [small(bits, every_kind), samples(SAMPLES)].concat();
    let narrow = small(bits, same_kinds());
    for group in groups(&rules, operand, 2) {
        prove(&group, Form::Locals, &wide, How::REGISTERS);
        for form in FORMS {
            prove(&group, form, &narrow, How::REGISTERS);
        }
        for form in [Form::Locals, Form::IntoRight] {
            prove(&group, form, &narrow, How::FRAMES);
        }
    }
    let relations = relations(&rules, operand, 2);
    for jump in JUMPS {
        prove(&relations, Form::Jump(jump), &narrow, How::REGISTERS);
    }
    prove(&relations, Form::Jump(Jump::If), &narrow, How::FRAMES);
}

#[test]
fn i32_operators_of_two_operands() {
    binary(Type::I32);
}

#[test]
fn i64_operators_of_two_operands() {
    binary(Type::I64);
}

#[test]
fn operators_of_one_operand() {
    let rules = rules();
    for operand in [Type::I32, Type::I64] {
        let bits = operand.bits();
        let mask = u64::MAX >> (64 - bits);
        let words = (0..=0xffff_u64).flat_map(|word| {
            let shifted = [word, word as i16 as u64 & mask, word << (bits - 16)];
            shifted.map(|value| [value, 0])
        });
        let words: Vec<Pair> = words.collect();
        let bytes = (0..3).flat_map(|kind| bytes(bits, kind));
        let few: Vec<Pair> = bytes.chain(edges(bits)).map(|value| [value, 0]).collect();
        let all = [&words[..], &few, &samples(SAMPLES)].concat();
        for group in groups(&rules, operand, 1) {
            prove(&group, Form::Locals, &all, How::REGISTERS);
            prove(&group, Form::Fresh, &words, How::REGISTERS);
            for form in FORMS {
                prove(&group, form, &few, How::REGISTERS);
                prove(&group, form, &few, How::FRAMES);
            }
        }
        let relations = relations(&rules, operand, 1);
        for jump in JUMPS {
            prove(&relations, Form::Jump(jump), &words, How::REGISTERS);
        }
    }
}

/// The side on which a constant stands.
#[derive(Clone, Copy, Debug)]
enum Side {
    Left,
    Right,
}

impl Side {
    const fn pair(self, value: u64, constant: u64) -> Pair {
        match self {
            Self::Left => [constant, value],
            Self::Right => [value, constant],
        }
    }

    fn expression(self, rule: &Rule, constant: u64, result: Outlet) -> String {
        let ty = rule.operand.name();
        let constant = match rule.operand {
            Type::I32 => i64::from(constant as i32),
            Type::I64 => constant as i64,
        };
        let constant = format!("({ty}.const {constant})");
        let constant = constant.as_str();
        let operands = |local: &'static str| match self {
            Self::Left => [constant, local],
            Self::Right => [local, constant],
        };
        let a = "(local.get $a)";
        match result {
            Outlet::Value => applied(rule, operands(a), None),
            Outlet::Jump(jump) => applied(rule, operands(a), Some(jump)),
            Outlet::Local => {
                let [left, right] = operands("(local.get $x)");
                let value = widened(rule, "(local.get $x)");
                format!(
                    "(local.set $x {a}) (local.set $x ({} {left} {right})) {value}",
                    rule.name
                )
            }
        }
    }
}

/// Where the result of an operator with a constant goes.
#[derive(Clone, Copy, Debug)]
enum Outlet {
    Value,
    /// Into the local that was the other operand, as in `i += 1`.
    Local,
    Jump(Jump),
}

/// A rule with each of `constants` on a side and each of `values` on the other.
fn prove_constants(rule: &Rule, side: Side, outlet: Outlet, constants: &[u64], values: &[u64]) {
    // What can trap with any partner is left to `prove_traps`.
    let harmless = |side: Side, value: u64, partners: &[u64]| {
        let mut pairs = partners.iter().map(|partner| side.pair(*partner, value));
        pairs.all(|pair| rule.meaning(pair).is_ok())
    };
    let other = match side {
        Side::Left => Side::Right,
        Side::Right => Side::Left,
    };
    let values: Vec<Pair> = values
        .iter()
        .filter(|value| {
            **value != 0 && !is_minus_one(rule.operand, **value)
                || harmless(other, **value, constants)
        })
        .map(|value| [*value, 0])
        .collect();
    let plain: Vec<u64> = values.iter().map(|pair| pair[0]).collect();
    let constants: Vec<u64> = constants
        .iter()
        .copied()
        .filter(|constant| harmless(side, *constant, &plain))
        .collect();
    let expressions: Vec<String> = constants
        .iter()
        .map(|constant| side.expression(rule, *constant, outlet))
        .collect();
    compute(
        rule.operand,
        &expressions,
        &values,
        How::REGISTERS,
        |value, place, found| {
            let pair = side.pair(values[value][0], constants[place]);
            let expected = rule.meaning(pair);
            assert_eq!(
                Ok(found),
                expected,
                "{} of {pair:x?}, constant {side:?}, {outlet:?}",
                rule.name
            );
        },
    );
}

const fn is_minus_one(ty: Type, value: u64) -> bool {
    value == u64::MAX >> (64 - ty.bits())
}

/// The same, one pair at a time, for rules that can trap.
fn prove_traps(rule: &Rule, side: Side, constants: &[u64], values: &[u64]) {
    for constant in constants {
        let expression = side.expression(rule, *constant, Outlet::Value);
        let mut single = Single::new(rule, &expression, How::REGISTERS).expect("it can trap");
        for value in values {
            let expected = rule.meaning(side.pair(*value, *constant));
            single.check(rule, [*value, 0], expected);
        }
    }
}

fn constants(operand: Type) {
    let bits = operand.bits();
    let edges = edges(bits);
    let rules = rules();
    let mine = |rule: &&Rule| rule.operand == operand && rule.operands == 2;
    for rule in rules.iter().filter(mine) {
        for side in [Side::Left, Side::Right] {
            for kind in 0..3 {
                let bytes = bytes(bits, kind);
                prove_constants(rule, side, Outlet::Value, &bytes, &bytes);
            }
            prove_constants(rule, side, Outlet::Value, &edges, &edges);
            if rule.is_relation() {
                for jump in JUMPS {
                    prove_constants(rule, side, Outlet::Jump(jump), &edges, &edges);
                }
            } else {
                prove_constants(rule, side, Outlet::Local, &edges, &edges);
            }
            if rule.can_trap() {
                prove_traps(rule, side, &edges, &edges);
            }
        }
    }
}

#[test]
fn i32_operators_with_a_constant() {
    constants(Type::I32);
}

#[test]
fn i64_operators_with_a_constant() {
    constants(Type::I64);
}
