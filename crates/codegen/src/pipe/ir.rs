//! What a pipe is: a body over words, its registers, its attributes.
//!
//! Source: Wallach, Engler & Kaashoek 1997 ("ASH"), §II.B. Theirs are written in
//! VCODE, a RISC with unlimited registers; ours in single assignment, so that
//! attributes can be proved instead of believed.

use std::fmt;
use std::sync::Arc;

use super::error::PipeError;
use super::primitive::Primitive;

/// Most operators of one body.
pub const MAX_OPS: usize = 64;
/// Most persistent registers of one pipe.
pub const MAX_REGISTERS: usize = 8;

/// Width of the words that a pipe takes or gives (ASH §II.B).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Gauge {
    /// Bytes.
    Bits8,
    /// Two bytes, little-endian, as all words.
    Bits16,
    /// Four bytes.
    Bits32,
    /// Eight bytes.
    Bits64,
    /// Sixteen bytes: blocks of ciphers. No body computes with it.
    Bits128,
}

impl Gauge {
    /// Those that a body can compute with.
    pub const WORDS: [Self; 4] = [Self::Bits8, Self::Bits16, Self::Bits32, Self::Bits64];

    /// Bytes of a word.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Bits8 => 1,
            Self::Bits16 => 2,
            Self::Bits32 => 4,
            Self::Bits64 => 8,
            Self::Bits128 => 16,
        }
    }

    /// Bits of a word.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.bytes() as u32 * 8
    }

    /// A word of ones; of the lowest 64 bits for [`Self::Bits128`].
    #[must_use]
    pub const fn mask(self) -> u64 {
        match self {
            Self::Bits64 | Self::Bits128 => u64::MAX,
            _ => (1 << self.bits()) - 1,
        }
    }
}

impl fmt::Display for Gauge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bits", self.bits())
    }
}

/// A temporary: the result of the body's operator of that number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value(pub(super) u8);

impl Value {
    /// The operator's index in [`Pipe::ops`].
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A persistent register of a pipe, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegisterId(pub(super) u8);

impl RegisterId {
    /// The register's index in [`Pipe::registers`].
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// An operator of two values. All are modulo the body's width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binary {
    /// Sum.
    Add,
    /// Difference.
    Sub,
    /// Product.
    Mul,
    /// Bitwise and.
    And,
    /// Bitwise or.
    Or,
    /// Bitwise exclusive or.
    Xor,
    /// The lesser, unsigned.
    Min,
    /// The greater, unsigned.
    Max,
    /// 1 if equal, else 0.
    Equal,
    /// 1 if the left one is less, unsigned; else 0.
    Below,
}

/// An operator of a value and a constant number of bits less than the width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shift {
    /// Left, zeros come in.
    Left,
    /// Right, zeros come in.
    Right,
    /// Right, copies of the sign come in.
    RightSigned,
    /// Left, what goes out comes in.
    RotateLeft,
}

/// What is counted of a value's bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// Ones.
    Ones,
    /// Zeros above the highest one; of 0 the width.
    Leading,
    /// Zeros below the lowest one; of 0 the width.
    Trailing,
}

/// One operator of a body; its result is the [`Value`] of its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// The word, zero-extended to the body's width. ASH's `p_inputr`.
    Input,
    /// A constant.
    Const(u64),
    /// What the register held before this word.
    Register(RegisterId),
    /// Bytes in reverse order.
    Swap(Value),
    /// Two values.
    Binary(Binary, Value, Value),
    /// A value, by so many bits.
    Shift(Shift, Value, u32),
    /// The first value, by as many bits as the second says, modulo the width.
    ShiftBy(Shift, Value, Value),
    /// How many bits of a value are what.
    Count(Count, Value),
    /// The second if the first is not 0, else the third.
    Select(Value, Value, Value),
    /// The table's entry for the value's lowest byte.
    Table(Value),
}

impl Op {
    /// The values that it uses.
    pub(super) fn values(self) -> impl Iterator<Item = Value> {
        let uses = match self {
            Self::Input | Self::Const(_) | Self::Register(_) => [None; 3],
            Self::Swap(value)
            | Self::Shift(_, value, _)
            | Self::Count(_, value)
            | Self::Table(value) => [Some(value), None, None],
            Self::Binary(_, left, right) | Self::ShiftBy(_, left, right) => {
                [Some(left), Some(right), None]
            }
            Self::Select(condition, one, other) => [Some(condition), Some(one), Some(other)],
        };
        uses.into_iter().flatten()
    }

    /// The same with other values in their places.
    pub(super) fn with_values(self, of: impl Fn(Value) -> Value) -> Self {
        match self {
            Self::Input | Self::Const(_) | Self::Register(_) => self,
            Self::Swap(value) => Self::Swap(of(value)),
            Self::Shift(op, value, bits) => Self::Shift(op, of(value), bits),
            Self::ShiftBy(op, value, bits) => Self::ShiftBy(op, of(value), of(bits)),
            Self::Count(what, value) => Self::Count(what, of(value)),
            Self::Table(value) => Self::Table(of(value)),
            Self::Binary(op, left, right) => Self::Binary(op, of(left), of(right)),
            Self::Select(condition, one, other) => Self::Select(of(condition), of(one), of(other)),
        }
    }
}

/// How a word is taken into a register, in any order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduce {
    /// Sum modulo 2^64.
    Sum,
    /// Ones' complement sum of 16 bits (RFC 1071), always folded: 0 only if all
    /// words were 0. Only at a gauge of 16 bits.
    Ones,
    /// Exclusive or.
    Xor,
    /// Or.
    Or,
    /// The least, unsigned.
    Min,
    /// The greatest, unsigned.
    Max,
}

/// What becomes of a register after a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Update {
    /// The word's value is reduced into it: order does not matter.
    Reduce(Reduce, Value),
    /// It is the value: order matters.
    Set(Value),
}

/// A persistent register: kept from word to word and from call to call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Register {
    /// Its name inside the pipe.
    pub name: String,
    /// What it holds until something is exported to it.
    pub initial: u64,
}

/// What happens to a partial word at the end of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// The body sees zeros behind it; of the output as many bytes are kept as
    /// there were.
    Pad,
    /// The body does not see it; it passes as it is.
    Leave,
}

/// A pipe.
///
/// Made by [`Builder`](super::Builder), which proves what is claimed of it.
#[derive(Clone, Debug)]
pub struct Pipe {
    pub(super) name: String,
    pub(super) input: Gauge,
    pub(super) output: Gauge,
    pub(super) width: Gauge,
    pub(super) tail: Tail,
    pub(super) registers: Vec<Register>,
    pub(super) ops: Vec<Op>,
    pub(super) table: Option<Arc<[u32; 256]>>,
    pub(super) result: Value,
    pub(super) updates: Vec<(RegisterId, Update)>,
    /// Rotated right by the length of the call, so that a mask goes on where it
    /// stopped. Its width is the gauge.
    pub(super) rolling: Option<RegisterId>,
    /// Sums are modulo 2 to its bits.
    pub(super) register_width: Gauge,
    pub(super) primitive: Option<Primitive>,
    pub(super) commutative: bool,
    pub(super) no_mod: bool,
}

impl Pipe {
    /// Its name; a list adds a number to the second one of a name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The same under another name.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// Width of the words that it takes and gives.
    #[must_use]
    pub const fn gauge(&self) -> Gauge {
        self.input
    }

    /// Width that its body computes with: the gauge or wider.
    #[must_use]
    pub const fn width(&self) -> Gauge {
        self.width
    }

    /// What happens to a partial word at the end.
    #[must_use]
    pub const fn tail(&self) -> Tail {
        self.tail
    }

    /// Whether words may be taken in any order, several at once.
    #[must_use]
    pub const fn commutative(&self) -> bool {
        self.commutative
    }

    /// Whether the data passes unchanged.
    #[must_use]
    pub const fn no_mod(&self) -> bool {
        self.no_mod
    }

    /// Its persistent registers.
    #[must_use]
    pub fn registers(&self) -> &[Register] {
        &self.registers
    }

    /// Its body's operators.
    #[must_use]
    pub fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// The value that is given.
    #[must_use]
    pub const fn result(&self) -> Value {
        self.result
    }

    /// What becomes of the registers after each word, all at once.
    #[must_use]
    pub fn updates(&self) -> &[(RegisterId, Update)] {
        &self.updates
    }

    /// The way known by hand to compute the same as the body, if there is one.
    #[must_use]
    pub const fn primitive(&self) -> Option<&Primitive> {
        self.primitive.as_ref()
    }

    /// The register that is rotated by each call's length, if there is one.
    #[must_use]
    pub const fn rolling(&self) -> Option<RegisterId> {
        self.rolling
    }

    /// The entry of the body's table for `byte`; 0 without a table.
    #[must_use]
    pub fn entry(&self, byte: u8) -> u64 {
        self.table
            .as_ref()
            .map_or(0, |table| u64::from(table[usize::from(byte)]))
    }

    /// Whether a register is only read.
    #[must_use]
    pub fn is_parameter(&self, register: RegisterId) -> bool {
        self.updates.iter().all(|(updated, _)| *updated != register)
    }
}

/// Writes a pipe's body, operator by operator.
///
/// # Examples
///
/// ```
/// use ashway_codegen::pipe::{Binary, Builder, Gauge};
/// let mut body = Builder::new("flip", Gauge::Bits8);
/// let word = body.input();
/// let ones = body.constant(0xff);
/// let flipped = body.binary(Binary::Xor, word, ones);
/// let flip = body.commutative().finish(flipped).unwrap();
/// assert!(flip.commutative() && !flip.no_mod());
/// ```
#[derive(Clone, Debug)]
pub struct Builder {
    pipe: Pipe,
}

impl Builder {
    /// A body that takes and gives words of `gauge` and computes with them.
    #[must_use]
    pub fn new(name: &str, gauge: Gauge) -> Self {
        Self {
            pipe: Pipe {
                name: name.to_owned(),
                input: gauge,
                output: gauge,
                width: gauge,
                tail: Tail::Pad,
                registers: Vec::new(),
                ops: Vec::new(),
                table: None,
                result: Value(0),
                updates: Vec::new(),
                rolling: None,
                register_width: Gauge::Bits64,
                primitive: None,
                commutative: false,
                no_mod: false,
            },
        }
    }

    /// Gives words of another gauge than it takes. No list takes such a pipe
    /// yet: the length of the data would change.
    #[must_use]
    pub fn output_gauge(mut self, gauge: Gauge) -> Self {
        self.pipe.output = gauge;
        self
    }

    /// Computes with wider numbers than the words. To be called before operators
    /// are added.
    #[must_use]
    pub fn width(mut self, width: Gauge) -> Self {
        self.pipe.width = width;
        self
    }

    /// Passes a partial word at the end as it is.
    #[must_use]
    pub fn leave_tail(mut self) -> Self {
        self.pipe.tail = Tail::Leave;
        self
    }

    /// Claims that the order of words does not matter.
    #[must_use]
    pub fn commutative(mut self) -> Self {
        self.pipe.commutative = true;
        self
    }

    /// Claims that the data passes unchanged.
    #[must_use]
    pub fn no_mod(mut self) -> Self {
        self.pipe.no_mod = true;
        self
    }

    /// The table of [`Op::Table`].
    #[must_use]
    pub fn table(mut self, table: Arc<[u32; 256]>) -> Self {
        self.pipe.table = Some(table);
        self
    }

    pub(super) fn register_width(mut self, width: Gauge) -> Self {
        self.pipe.register_width = width;
        self
    }

    pub(super) fn primitive(mut self, primitive: Primitive) -> Self {
        self.pipe.primitive = Some(primitive);
        self
    }

    pub(super) fn rolling(mut self, register: RegisterId) -> Self {
        self.pipe.rolling = Some(register);
        self
    }

    /// Adds a persistent register.
    pub fn register(&mut self, name: &str, initial: u64) -> RegisterId {
        self.pipe.registers.push(Register {
            name: name.to_owned(),
            initial,
        });
        RegisterId((self.pipe.registers.len() - 1).min(255) as u8)
    }

    /// Adds an operator.
    pub fn op(&mut self, op: Op) -> Value {
        self.pipe.ops.push(op);
        Value((self.pipe.ops.len() - 1).min(255) as u8)
    }

    /// The word.
    pub fn input(&mut self) -> Value {
        self.op(Op::Input)
    }

    /// A constant, modulo the body's width.
    pub fn constant(&mut self, constant: u64) -> Value {
        let constant = constant & self.pipe.width.mask();
        self.op(Op::Const(constant))
    }

    /// What the register held before this word, modulo the body's width.
    pub fn read(&mut self, register: RegisterId) -> Value {
        self.op(Op::Register(register))
    }

    /// An operator of two values.
    pub fn binary(&mut self, op: Binary, left: Value, right: Value) -> Value {
        self.op(Op::Binary(op, left, right))
    }

    /// A shift by a constant number of bits.
    pub fn shift(&mut self, op: Shift, value: Value, bits: u32) -> Value {
        self.op(Op::Shift(op, value, bits))
    }

    /// Reduces `value`, modulo the gauge, into `register` after each word.
    pub fn reduce(&mut self, register: RegisterId, how: Reduce, value: Value) {
        self.pipe
            .updates
            .push((register, Update::Reduce(how, value)));
    }

    /// Sets `register` to `value` after each word.
    pub fn set(&mut self, register: RegisterId, value: Value) {
        self.pipe.updates.push((register, Update::Set(value)));
    }

    /// The pipe that gives `result`, modulo the gauge, for each word.
    ///
    /// # Errors
    ///
    /// [`PipeError`], with the pipe's name: a claim that does not hold, or a body
    /// that is none.
    pub fn finish(mut self, result: Value) -> Result<Pipe, PipeError> {
        self.pipe.result = result;
        super::prove::prove(&self.pipe)?;
        Ok(self.pipe)
    }
}
