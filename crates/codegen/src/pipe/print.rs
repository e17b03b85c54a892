//! Pipes and their code for people.

use std::fmt::Write as _;

use iced_x86::{Decoder, DecoderOptions, Formatter, IntelFormatter};

use super::ir::{Binary, Count, Gauge, Op, Pipe, Reduce, Shift, Tail, Update, Value};
use super::primitive::Primitive;
use super::x86::Native;

/// A pipe's body, an operator a line.
///
/// # Examples
///
/// ```
/// # use ashway_codegen::pipe::{builtin, print_pipe};
/// assert_eq!(
///     print_pipe(&builtin::internet_checksum()),
///     "pipe cksum16: 16 bits, tail padded, commutative, no-mod
///   register sum = 0x0
///   v0 = word
///   sum: ones v0
///   give v0
/// "
/// );
/// ```
#[must_use]
pub fn print_pipe(pipe: &Pipe) -> String {
    let mut text = format!("pipe {}: {}", pipe.name(), pipe.gauge());
    if pipe.width() != pipe.gauge() && pipe.gauge() != Gauge::Bits128 {
        add(&mut text, format_args!(", computed with {}", pipe.width()));
    }
    let tail = match pipe.tail() {
        Tail::Pad => "padded",
        Tail::Leave => "left",
    };
    add(&mut text, format_args!(", tail {tail}"));
    for (holds, attribute) in [
        (pipe.commutative(), "commutative"),
        (pipe.no_mod(), "no-mod"),
    ] {
        if holds {
            add(&mut text, format_args!(", {attribute}"));
        }
    }
    text.push('\n');
    let registers = pipe.registers();
    for register in registers {
        let (name, initial) = (&register.name, register.initial);
        add(
            &mut text,
            format_args!("  register {name} = {initial:#x}\n"),
        );
    }
    if let Some(Primitive::Cipher(cipher)) = pipe.primitive() {
        add(
            &mut text,
            format_args!("  xor the keystream of {cipher:?}\n"),
        );
        return text;
    }
    for (at, op) in pipe.ops().iter().enumerate() {
        let op = operator(pipe, *op);
        add(&mut text, format_args!("  v{at} = {op}\n"));
    }
    for (register, update) in pipe.updates() {
        let name = &registers[register.index()].name;
        match update {
            Update::Set(value) => {
                add(&mut text, format_args!("  {name}: set {}\n", v(*value)));
            }
            Update::Reduce(how, value) => {
                let how = match how {
                    Reduce::Sum => "sum",
                    Reduce::Ones => "ones",
                    Reduce::Xor => "xor",
                    Reduce::Or => "or",
                    Reduce::Min => "min",
                    Reduce::Max => "max",
                };
                add(&mut text, format_args!("  {name}: {how} {}\n", v(*value)));
            }
        }
    }
    add(&mut text, format_args!("  give {}\n", v(pipe.result())));
    text
}

fn add(text: &mut String, what: std::fmt::Arguments<'_>) {
    text.write_fmt(what).expect("a string takes everything");
}

fn v(value: Value) -> String {
    format!("v{}", value.index())
}

fn operator(pipe: &Pipe, op: Op) -> String {
    match op {
        Op::Input => "word".to_owned(),
        Op::Const(constant) => format!("{constant:#x}"),
        Op::Register(register) => pipe.registers()[register.index()].name.clone(),
        Op::Swap(value) => format!("swap {}", v(value)),
        Op::Binary(op, left, right) => {
            let name = match op {
                Binary::Add => "add",
                Binary::Sub => "sub",
                Binary::Mul => "mul",
                Binary::And => "and",
                Binary::Or => "or",
                Binary::Xor => "xor",
                Binary::Min => "min",
                Binary::Max => "max",
                Binary::Equal => "equal",
                Binary::Below => "below",
            };
            format!("{name} {}, {}", v(left), v(right))
        }
        Op::Shift(op, value, bits) => {
            format!("{} {}, {bits}", shift(op), v(value))
        }
        Op::ShiftBy(op, value, bits) => format!("{} {}, {}", shift(op), v(value), v(bits)),
        Op::Count(what, value) => {
            let name = match what {
                Count::Ones => "count-ones",
                Count::Leading => "count-leading-zeros",
                Count::Trailing => "count-trailing-zeros",
            };
            format!("{name} {}", v(value))
        }
        Op::Select(condition, one, other) => {
            format!("select {}, {}, {}", v(condition), v(one), v(other))
        }
        Op::Table(value) => format!("table {}", v(value)),
    }
}

const fn shift(op: Shift) -> &'static str {
    match op {
        Shift::Left => "left",
        Shift::Right => "right",
        Shift::RightSigned => "right-signed",
        Shift::RotateLeft => "rotate-left",
    }
}

/// The instructions of a compiled list, one a line with its offset; targets of
/// jumps are offsets. The constants behind them are left out: a key may be among
/// them.
#[must_use]
pub fn print_code(native: &Native) -> String {
    let code = &native.code()[..native.instruction_bytes()];
    let mut formatter = IntelFormatter::new();
    let mut text = String::new();
    for instruction in Decoder::with_ip(64, code, 0, DecoderOptions::NONE) {
        add(&mut text, format_args!("{:6x}:  ", instruction.ip()));
        formatter.format(&instruction, &mut text);
        text.push('\n');
    }
    text
}
