//! Lists of pipes on any CPU: block by block, operator by operator.
//!
//! A block of 512 bytes passes one operator after the other, each a loop over
//! slices of one type that rustc makes vectors of. Values go through the first
//! level cache between operators instead of staying in registers. No unsafe
//! code, no code made at run time.

use super::interp::partial;
use super::ir::{Binary, Count, Gauge, Op, Pipe, Reduce, Shift, Tail, Update, Value};
use super::list::{List, fold};
use super::primitive::{ADLER_MODULUS, Crc, Primitive};
use crate::bug::{self, Bug};

/// Bytes of a block: a multiple of every gauge, and few enough for the values of
/// a large body to stay in the cache.
const BLOCK_BYTES: usize = 512;

/// Bytes after which the sums of Adler-32 have to be reduced: the most for which
/// 32 bits are enough (zlib's `NMAX`). Blocks are shorter.
const _: () = assert!(BLOCK_BYTES <= 5552);

/// A list made ready.
///
/// # Examples
///
/// ```
/// use ashway_codegen::pipe::{Portable, parse};
/// let list = parse("crc32c").unwrap();
/// let mut portable = Portable::new(&list);
/// let mut registers = list.initial();
/// portable.run(&mut registers, b"123456789", &mut [0; 9]);
/// assert_eq!(!registers[0] as u32, 0xe306_9283);
/// ```
#[derive(Clone, Debug)]
pub struct Portable {
    list: List,
    /// For each pipe that is a CRC, its tables.
    tables: Vec<Option<Box<[[u32; 256]; 8]>>>,
    scratch: Scratch,
}

/// Values of one body over one block, by type.
#[derive(Clone, Debug, Default)]
struct Scratch {
    bytes: Vec<u8>,
    halves: Vec<u16>,
    words: Vec<u32>,
    doubles: Vec<u64>,
}

impl Portable {
    /// Makes tables and room. Allocates some 10 KiB for each pipe at most; running
    /// allocates nothing.
    #[must_use]
    pub fn new(list: &List) -> Self {
        let tables = list
            .pipes()
            .iter()
            .map(|placed| match placed.pipe.primitive() {
                Some(Primitive::Crc(crc)) => Some(sliced(*crc)),
                _ => None,
            });
        let mut scratch = Scratch::default();
        for placed in list.pipes() {
            let ops = placed.pipe.ops().len();
            match placed.pipe.gauge() {
                Gauge::Bits8 => room::<u8>(&mut scratch, ops),
                Gauge::Bits16 => room::<u16>(&mut scratch, ops),
                Gauge::Bits32 => room::<u32>(&mut scratch, ops),
                Gauge::Bits64 | Gauge::Bits128 => room::<u64>(&mut scratch, ops),
            }
        }
        Self {
            list: list.clone(),
            tables: tables.collect(),
            scratch,
        }
    }

    /// The list.
    #[must_use]
    pub const fn list(&self) -> &List {
        &self.list
    }

    /// Runs `source` to `destination`.
    ///
    /// # Panics
    ///
    /// If they are not of one length, or `registers` not as many as the list has.
    pub fn run(&mut self, registers: &mut [u64], source: &[u8], destination: &mut [u8]) {
        destination.copy_from_slice(source);
        self.run_in_place(registers, destination);
    }

    /// Runs `data` in place.
    ///
    /// # Panics
    ///
    /// If `registers` are not as many as the list has.
    pub fn run_in_place(&mut self, registers: &mut [u64], data: &mut [u8]) {
        assert_eq!(
            registers.len(),
            self.list.register_count(),
            "one for each register"
        );
        self.list.normalise(registers);
        for block in data.chunks_mut(BLOCK_BYTES) {
            for (placed, tables) in self.list.pipes().iter().zip(&self.tables) {
                let registers = &mut registers[placed.first_register..];
                pass(
                    &placed.pipe,
                    tables.as_deref(),
                    &mut self.scratch,
                    registers,
                    block,
                );
            }
        }
        self.list.finish(registers, data.len());
    }
}

/// One block passes one pipe.
fn pass(
    pipe: &Pipe,
    tables: Option<&[[u32; 256]; 8]>,
    scratch: &mut Scratch,
    registers: &mut [u64],
    block: &mut [u8],
) {
    match (pipe.primitive(), tables) {
        (Some(Primitive::Crc(_)), Some(tables)) => return crc(tables, &mut registers[0], block),
        (Some(Primitive::Adler), _) => return adler(registers, block),
        (Some(Primitive::Cipher(cipher)), _) => return cipher.apply(&mut registers[0], block),
        _ => {}
    }
    let bytes = pipe.gauge().bytes();
    let in_words = block.len() / bytes * bytes;
    let (whole, rest) = block.split_at_mut(in_words);
    if pipe.commutative() && pipe.width() == pipe.gauge() {
        match pipe.gauge() {
            Gauge::Bits8 => lanes::<u8>(pipe, scratch, registers, whole),
            Gauge::Bits16 => lanes::<u16>(pipe, scratch, registers, whole),
            Gauge::Bits32 => lanes::<u32>(pipe, scratch, registers, whole),
            Gauge::Bits64 | Gauge::Bits128 => lanes::<u64>(pipe, scratch, registers, whole),
        }
    } else {
        super::interp::pipe(pipe, registers, whole);
    }
    if !rest.is_empty() && (pipe.tail() == Tail::Pad || bug::is(Bug::PipePortableTail)) {
        partial(pipe, registers, rest);
    }
}

/// A word of the width of a gauge.
trait Word: Copy + Ord + Default {
    const BYTES: usize;
    fn scratch(scratch: &mut Scratch) -> &mut Vec<Self>;
    fn read(bytes: &[u8]) -> Self;
    fn write(self, bytes: &mut [u8]);
    fn of(number: u64) -> Self;
    fn number(self) -> u64;
    fn swapped(self) -> Self;
    fn shift(op: Shift, value: Self, bits: u32) -> Self;
    /// How many of its bits are what.
    fn count(what: Count, value: Self) -> Self;
    /// Applies `op` to all words of two values.
    fn zip(op: Binary, to: &mut [Self], left: &[Self], right: &[Self]);
}

macro_rules! word {
    ($word:ty, $signed:ty, $bytes:literal, $scratch:ident) => {
        impl Word for $word {
            const BYTES: usize = $bytes;
            fn scratch(scratch: &mut Scratch) -> &mut Vec<Self> {
                &mut scratch.$scratch
            }
            fn read(bytes: &[u8]) -> Self {
                let mut own = [0; $bytes];
                own.copy_from_slice(bytes);
                Self::from_le_bytes(own)
            }
            fn write(self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_le_bytes());
            }
            fn of(number: u64) -> Self {
                number as Self
            }
            fn number(self) -> u64 {
                self as u64
            }
            fn swapped(self) -> Self {
                self.swap_bytes()
            }
            fn shift(op: Shift, value: Self, bits: u32) -> Self {
                match op {
                    Shift::Left => value << bits,
                    Shift::Right => value >> bits,
                    Shift::RightSigned => (value as $signed >> bits) as Self,
                    Shift::RotateLeft => value.rotate_left(bits),
                }
            }
            fn count(what: Count, value: Self) -> Self {
                let bits = match what {
                    Count::Ones => value.count_ones(),
                    Count::Leading => value.leading_zeros(),
                    Count::Trailing => value.trailing_zeros(),
                };
                bits as Self
            }
            fn zip(op: Binary, to: &mut [Self], left: &[Self], right: &[Self]) {
                // One loop for each operator: a loop that calls through a pointer
                // is no vector.
                macro_rules! each {
                    ($operator:expr) => {
                        for ((to, left), right) in to.iter_mut().zip(left).zip(right) {
                            *to = $operator(*left, *right);
                        }
                    };
                }
                match op {
                    Binary::Add => each!(Self::wrapping_add),
                    Binary::Sub => each!(Self::wrapping_sub),
                    Binary::Mul => each!(Self::wrapping_mul),
                    Binary::And => each!(|left, right| left & right),
                    Binary::Or => each!(|left, right| left | right),
                    Binary::Xor => each!(|left, right| left ^ right),
                    Binary::Min => each!(Self::min),
                    Binary::Max => each!(Self::max),
                    Binary::Equal => each!(|left, right| Self::from(left == right)),
                    Binary::Below => each!(|left, right| Self::from(left < right)),
                }
            }
        }
    };
}

word!(u8, i8, 1, bytes);
word!(u16, i16, 2, halves);
word!(u32, i32, 4, words);
word!(u64, i64, 8, doubles);

/// Sees to it that a body of `ops` operators has room for its values.
fn room<W: Word>(scratch: &mut Scratch, ops: usize) {
    let words = ops * BLOCK_BYTES / W::BYTES;
    let values = W::scratch(scratch);
    if values.len() < words {
        values.resize(words, W::default());
    }
}

/// Whole words of one block pass a commutative pipe.
fn lanes<W: Word>(pipe: &Pipe, scratch: &mut Scratch, registers: &mut [u64], block: &mut [u8]) {
    let each = BLOCK_BYTES / W::BYTES;
    let words = block.len() / W::BYTES;
    let values = W::scratch(scratch);
    for (at, op) in pipe.ops().iter().enumerate() {
        let (before, from_here) = values.split_at_mut(at * each);
        let of = |value: Value| &before[value.index() * each..][..words];
        let to = &mut from_here[..words];
        match *op {
            Op::Input => {
                for (to, bytes) in to.iter_mut().zip(block.chunks_exact(W::BYTES)) {
                    *to = W::read(bytes);
                }
            }
            Op::Const(constant) => to.fill(W::of(constant)),
            Op::Register(id) => to.fill(W::of(registers[id.index()])),
            Op::Swap(value) => {
                for (to, value) in to.iter_mut().zip(of(value)) {
                    *to = value.swapped();
                }
            }
            Op::Binary(op, left, right) => W::zip(op, to, of(left), of(right)),
            Op::Shift(op, value, bits) => {
                for (to, value) in to.iter_mut().zip(of(value)) {
                    *to = W::shift(op, *value, bits);
                }
            }
            Op::ShiftBy(op, value, bits) => {
                for ((to, value), bits) in to.iter_mut().zip(of(value)).zip(of(bits)) {
                    let bits = bits.number() as u32 % (W::BYTES as u32 * 8);
                    *to = W::shift(op, *value, bits);
                }
            }
            Op::Count(what, value) => {
                for (to, value) in to.iter_mut().zip(of(value)) {
                    *to = W::count(what, *value);
                }
            }
            Op::Select(condition, one, other) => {
                let choices = of(one).iter().zip(of(other));
                for ((to, condition), (one, other)) in to.iter_mut().zip(of(condition)).zip(choices)
                {
                    *to = if condition.number() == 0 {
                        *other
                    } else {
                        *one
                    };
                }
            }
            Op::Table(value) => {
                for (to, value) in to.iter_mut().zip(of(value)) {
                    *to = W::of(pipe.entry(value.number() as u8));
                }
            }
        }
    }
    let of = |value: Value| &values[value.index() * each..][..words];
    for (id, update) in pipe.updates() {
        if let Update::Reduce(how, value) = *update {
            let register = &mut registers[id.index()];
            *register = reduced(how, *register, of(value));
        }
    }
    if !pipe.no_mod() {
        for (bytes, given) in block.chunks_exact_mut(W::BYTES).zip(of(pipe.result())) {
            given.write(bytes);
        }
    }
}

/// `register` with all of `words` reduced into it.
fn reduced<W: Word>(how: Reduce, register: u64, words: &[W]) -> u64 {
    let numbers = words.iter().map(|word| word.number());
    match how {
        Reduce::Sum => register.wrapping_add(numbers.fold(0, u64::wrapping_add)),
        Reduce::Ones => fold(register + numbers.sum::<u64>()),
        Reduce::Xor => register ^ numbers.fold(0, |all, number| all ^ number),
        Reduce::Or => register | numbers.fold(0, |all, number| all | number),
        Reduce::Min => numbers.fold(register, u64::min),
        Reduce::Max => numbers.fold(register, u64::max),
    }
}

/// Tables for eight bytes at once: entry `b` of table `n` is byte `b`'s part in
/// the state, `n` bytes later (Kounavis & Berry 2005, "slicing by 8").
fn sliced(crc: Crc) -> Box<[[u32; 256]; 8]> {
    let mut tables = Box::new([crc.table(); 8]);
    for n in 1..8 {
        for byte in 0..256 {
            let before = tables[n - 1][byte];
            tables[n][byte] = tables[0][usize::from(before as u8)] ^ before >> 8;
        }
    }
    tables
}

fn crc(tables: &[[u32; 256]; 8], register: &mut u64, block: &[u8]) {
    let mut state = *register as u32;
    let (eights, rest) = block.as_chunks::<8>();
    for bytes in eights {
        let mixed = u64::from_le_bytes(*bytes) ^ u64::from(state);
        let part = |at: usize| tables[7 - at][usize::from((mixed >> (8 * at)) as u8)];
        // Written out: four at a time depend on nothing.
        state = (part(0) ^ part(1) ^ part(2) ^ part(3)) ^ (part(4) ^ part(5) ^ part(6) ^ part(7));
    }
    for byte in rest {
        state = tables[0][usize::from(state as u8 ^ byte)] ^ state >> 8;
    }
    *register = u64::from(state);
}

fn adler(registers: &mut [u64], block: &[u8]) {
    let (mut s1, mut s2) = (registers[0] as u32, registers[1] as u32);
    for byte in block {
        s1 += u32::from(*byte);
        s2 += s1;
    }
    registers[0] = u64::from(s1 % ADLER_MODULUS);
    registers[1] = u64::from(s2 % ADLER_MODULUS);
}
