//! Pipes: manipulations of data, composed at run time into one loop.
//!
//! [`parse`] or [`Builder`] make a [`List`]; [`interpret`] says what it means.
//! Why it is so: `docs/design/0005-pipes.md`. Names are those of the ASH paper
//! (§II.B, §III.C).
//!
//! * *gauge*: width of the words that a pipe takes and gives. Words are
//!   little-endian in memory, so gauges join without conversion.
//! * *persistent registers* live from word to word and from call to call.
//!   *Exporting* is writing them before a run, *importing* is reading them after.
//! * *commutative*: the order of words does not matter. *No-mod*: the data passes
//!   unchanged. Both are proved from the body.
//! * A run takes data of any length. It can go on in another call if the length
//!   was a multiple of 64 bytes; a partial word is the end of the data
//!   ([`Tail`] says what becomes of it), except for `mask`, which goes on anywhere.

pub mod builtin;
mod cipher;
mod cost;
pub mod ebpf;
mod error;
mod g711;
mod interp;
mod ir;
mod list;
mod narrow;
mod parse;
mod portable;
mod primitive;
mod print;
mod prove;
mod swap;
mod wasm;
mod x86;

pub use cipher::Cipher;
pub use cost::{Costs, Line, Plan, plan, streaming_bytes};
pub use error::PipeError;
pub use interp::interpret;
pub use ir::{
    Binary, Builder, Count, Gauge, MAX_OPS, MAX_REGISTERS, Op, Pipe, Reduce, Register, RegisterId,
    Shift, Tail, Update, Value,
};
pub use list::{List, MAX_CIPHERS, MAX_PIPES, Placed};
pub use parse::{MAX_TEXT_BYTES, PIPES, ParseError, parse, parse_with};
pub use portable::Portable;
pub use primitive::{ADLER_MODULUS, CRC32, CRC32C, Crc, Primitive};
pub use print::{print_code, print_pipe};
pub use wasm::{PipeRequest, UserPipeError, user_pipe};
pub use x86::{
    CHUNK_BYTES, Cpu, Direction, Isa, Layout, Native, Options, Step, Strategy, Unsupported, compile,
};
