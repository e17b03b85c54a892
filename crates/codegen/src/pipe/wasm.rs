//! A WebAssembly function as the body of a pipe.
//!
//! `(word, state...) -> (word, state...)`, all `i32` or all `i64`: what it does to
//! one word, and what its registers hold behind it. The code is straight: no
//! branches, calls, memory or globals, so that it ends, and touches nothing but
//! its word and its registers, whoever wrote it. `select` chooses.
//!
//! What the function is follows from the code. A result that is the first
//! parameter: no-mod. A state that comes back as it went in is a parameter; one
//! that comes back as itself plus (or xor, or or) something that knows nothing of
//! it is reduced into, so that the pipe is commutative and runs on lanes.

use wasmparser::{Operator, ValType};

use super::error::PipeError;
use super::ir::{
    Binary, Builder, Count, Gauge, MAX_OPS, Op, Pipe, Reduce, RegisterId, Shift, Value,
};
use super::narrow;
use super::swap;
use crate::normalise::Module;
use crate::normalise::ir::{FileOffset, Function, OpKind};

/// What is asked of a function.
#[derive(Clone, Copy, Debug, Default)]
pub struct PipeRequest {
    /// Words of fewer bits than the function computes with; `None`: of as many.
    pub gauge: Option<Gauge>,
    /// Its writer claims that the data passes unchanged.
    pub no_mod: bool,
    /// Its writer claims that the order of words does not matter.
    pub commutative: bool,
}

/// Why a function is no body. The writer's fault, at a place in the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UserPipeError {
    /// No such export.
    #[error("the file exports no function `{export}`")]
    NoExport {
        /// The name.
        export: String,
    },
    /// Another type.
    #[error(
        "`{export}` is not of the type (word, state...) -> (word, state...), all `i32` or all `i64`"
    )]
    Type {
        /// The function.
        export: String,
    },
    /// An operator that no body has.
    #[error("`{export}` {what}, at {}", place(.line.as_ref(), *.at))]
    Operator {
        /// The function.
        export: String,
        /// What the operator does.
        what: &'static str,
        /// Where it is in the file.
        at: FileOffset,
        /// Its source line, if the file has them.
        line: Option<(String, u32)>,
    },
    /// What every pipe is asked.
    #[error(transparent)]
    Pipe(#[from] PipeError),
}

fn place(line: Option<&(String, u32)>, at: FileOffset) -> String {
    line.map_or_else(
        || format!("byte {at:#x} of the file"),
        |(file, line)| format!("{file}:{line}"),
    )
}

impl UserPipeError {
    /// What to do about it.
    #[must_use]
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::NoExport { .. } => "export it by that name",
            Self::Type { .. } => {
                "take the word first, then up to 8 states, and give back as many of the same type"
            }
            Self::Operator { .. } => {
                "use integer arithmetic, shifts by constants, comparisons and `select`"
            }
            Self::Pipe(error) => error.hint(),
        }
    }
}

/// The pipe whose body is the function that `module` exports by this name.
///
/// A partial word at the end is padded if the data passes unchanged, else left.
/// Linear in the function's code; at most [`MAX_OPS`] operators are taken.
///
/// # Errors
///
/// [`UserPipeError`]: there is no such function, it is not straight, or a claim
/// does not hold.
///
/// # Panics
///
/// Never: a module of `normalise` is valid.
///
/// # Examples
///
/// ```
/// use ashway_codegen::normalise::{Limits, Profile, normalise_as};
/// use ashway_codegen::pipe::{PipeRequest, user_pipe};
/// let wasm = wat::parse_str(
///     "(module (func (export \"total\") (param i32 i32) (result i32 i32)
///        local.get 0  local.get 1  local.get 0  i32.add))",
/// )
/// .unwrap();
/// let module = normalise_as(&wasm, &Limits::default(), Profile::Library).unwrap();
/// let total = user_pipe(&module, "total", PipeRequest::default()).unwrap();
/// assert!(total.commutative() && total.no_mod());
/// ```
pub fn user_pipe(
    module: &Module<'_>,
    export: &str,
    wanted: PipeRequest,
) -> Result<Pipe, UserPipeError> {
    let named = module.exports.iter().find(|(name, _)| name == export);
    let Some((_, index)) = named else {
        return Err(UserPipeError::NoExport {
            export: export.to_owned(),
        });
    };
    let function = &module.functions[*index as usize];
    let ty = &module.types[function.type_index as usize];
    let width = match ty.params().first() {
        Some(ValType::I32) => Gauge::Bits32,
        _ => Gauge::Bits64,
    };
    let first = ty.params().first();
    let alike = |types: &[ValType]| types.iter().all(|one| Some(one) == first);
    let integer = matches!(first, Some(ValType::I32 | ValType::I64));
    if !integer || ty.params() != ty.results() || !alike(ty.params()) {
        return Err(UserPipeError::Type {
            export: export.to_owned(),
        });
    }
    let gauge = wanted.gauge.unwrap_or(width);
    let straight = Straight {
        module,
        export,
        width,
        ops: Vec::new(),
        stack: Vec::new(),
        locals: Vec::new(),
    };
    let body = straight.read(function, ty.params().len())?;
    body.pipe(export, gauge, wanted)
}

/// A straight body: operators, and the function's results among their values.
struct Body {
    ops: Vec<Op>,
    width: Gauge,
    results: Vec<Value>,
}

/// Reads a function from its first operator to its `end`.
struct Straight<'m> {
    module: &'m Module<'m>,
    export: &'m str,
    width: Gauge,
    ops: Vec<Op>,
    stack: Vec<Value>,
    locals: Vec<Value>,
}

impl Straight<'_> {
    fn refuse(&self, at: FileOffset, what: &'static str) -> UserPipeError {
        UserPipeError::Operator {
            export: self.export.to_owned(),
            what,
            at,
            line: self
                .module
                .lines
                .at(at)
                .map(|(file, line)| (file.to_owned(), line)),
        }
    }

    fn push(&mut self, op: Op) -> Value {
        self.ops.push(op);
        // More than there may be are refused before they are looked at again.
        Value((self.ops.len() - 1).min(255) as u8)
    }

    fn pop(&mut self) -> Value {
        self.stack.pop().expect("a valid function pops what it has")
    }

    fn read(mut self, function: &Function<'_>, params: usize) -> Result<Body, UserPipeError> {
        let word = self.push(Op::Input);
        self.locals.push(word);
        for state in 1..params {
            let value = self.push(Op::Register(RegisterId((state - 1).min(255) as u8)));
            self.locals.push(value);
        }
        for _ in &function.locals {
            let zero = self.push(Op::Const(0));
            self.locals.push(zero);
        }
        for op in &function.code {
            match &op.kind {
                OpKind::Wasm(operator) => self.operator(operator, op.at)?,
                // What a function pays for being called: a pipe is not.
                OpKind::Charge { .. } => {}
                OpKind::StateGet { .. } | OpKind::StateSet { .. } => {
                    return Err(self.refuse(op.at, "uses a global"));
                }
                _ => return Err(self.refuse(op.at, NOT_STRAIGHT)),
            }
            // Values are numbered by bytes, and of dead code there may be some.
            if self.ops.len() > 200 {
                let ops = self.ops.len();
                let pipe = self.export.to_owned();
                return Err(PipeError::TooManyOps { pipe, ops }.into());
            }
        }
        Ok(Body {
            results: self.stack,
            ops: self.ops,
            width: self.width,
        })
    }

    fn operator(&mut self, operator: &Operator<'_>, at: FileOffset) -> Result<(), UserPipeError> {
        use Operator as O;
        let value = match operator {
            // Straight code ends once, at its end.
            O::Nop | O::End => return Ok(()),
            O::Drop => {
                self.pop();
                return Ok(());
            }
            O::LocalGet { local_index } => self.locals[*local_index as usize],
            O::LocalSet { local_index } => {
                let value = self.pop();
                self.locals[*local_index as usize] = value;
                return Ok(());
            }
            O::LocalTee { local_index } => {
                let value = self.pop();
                self.locals[*local_index as usize] = value;
                value
            }
            O::I32Const { value } => self.push(Op::Const(u64::from(*value as u32))),
            O::I64Const { value } => self.push(Op::Const(*value as u64)),
            O::Select => {
                let (condition, other, one) = (self.pop(), self.pop(), self.pop());
                self.push(Op::Select(condition, one, other))
            }
            O::I32Eqz | O::I64Eqz => {
                let zero = self.push(Op::Const(0));
                let value = self.pop();
                self.push(Op::Binary(Binary::Equal, value, zero))
            }
            // Comparisons give 0 or 1, which are the same in both widths.
            O::I64ExtendI32U if self.width == Gauge::Bits64 => self.pop(),
            O::I32Popcnt | O::I64Popcnt => self.count(Count::Ones),
            O::I32Clz | O::I64Clz => self.count(Count::Leading),
            O::I32Ctz | O::I64Ctz => self.count(Count::Trailing),
            O::I32Extend8S | O::I64Extend8S => self.extend(8),
            O::I32Extend16S | O::I64Extend16S => self.extend(16),
            O::I64Extend32S => self.extend(32),
            _ => match self.two(operator) {
                Some(value) => value,
                None => return Err(self.refuse(at, reason(operator))),
            },
        };
        self.stack.push(value);
        Ok(())
    }

    fn count(&mut self, what: Count) -> Value {
        let value = self.pop();
        self.push(Op::Count(what, value))
    }

    /// The lowest bits, with their sign.
    fn extend(&mut self, bits: u32) -> Value {
        let above = self.width.bits() - bits;
        let value = self.pop();
        let high = self.push(Op::Shift(Shift::Left, value, above));
        self.push(Op::Shift(Shift::RightSigned, high, above))
    }

    /// An operator of two values; `None` if it is not one that there is.
    fn two(&mut self, operator: &Operator<'_>) -> Option<Value> {
        use Operator as O;
        let plain = match operator {
            O::I32Add | O::I64Add => Some(Binary::Add),
            O::I32Sub | O::I64Sub => Some(Binary::Sub),
            O::I32Mul | O::I64Mul => Some(Binary::Mul),
            O::I32And | O::I64And => Some(Binary::And),
            O::I32Or | O::I64Or => Some(Binary::Or),
            O::I32Xor | O::I64Xor => Some(Binary::Xor),
            O::I32Eq | O::I64Eq => Some(Binary::Equal),
            O::I32LtU | O::I64LtU => Some(Binary::Below),
            _ => None,
        };
        if let Some(op) = plain {
            let (right, left) = (self.pop(), self.pop());
            return Some(self.push(Op::Binary(op, left, right)));
        }
        // Of other comparisons: whether signed, whether exchanged, whether inverted.
        let comparison = match operator {
            O::I32Ne | O::I64Ne => {
                let (right, left) = (self.pop(), self.pop());
                let equal = self.push(Op::Binary(Binary::Equal, left, right));
                return Some(self.invert(equal));
            }
            O::I32GtU | O::I64GtU => Some((false, true, false)),
            O::I32LeU | O::I64LeU => Some((false, true, true)),
            O::I32GeU | O::I64GeU => Some((false, false, true)),
            O::I32LtS | O::I64LtS => Some((true, false, false)),
            O::I32GtS | O::I64GtS => Some((true, true, false)),
            O::I32LeS | O::I64LeS => Some((true, true, true)),
            O::I32GeS | O::I64GeS => Some((true, false, true)),
            _ => None,
        };
        if let Some((signed, exchanged, inverted)) = comparison {
            let (mut right, mut left) = (self.pop(), self.pop());
            if signed {
                // Signed order is unsigned order with the sign the other way round.
                let sign = self.push(Op::Const(1 << (self.width.bits() - 1)));
                left = self.push(Op::Binary(Binary::Xor, left, sign));
                right = self.push(Op::Binary(Binary::Xor, right, sign));
            }
            if exchanged {
                (left, right) = (right, left);
            }
            let below = self.push(Op::Binary(Binary::Below, left, right));
            return Some(if inverted { self.invert(below) } else { below });
        }
        self.shifted(operator)
    }

    /// 1 for 0, 0 for 1.
    fn invert(&mut self, value: Value) -> Value {
        let one = self.push(Op::Const(1));
        self.push(Op::Binary(Binary::Xor, value, one))
    }

    /// A shift; `None` if it is none.
    fn shifted(&mut self, operator: &Operator<'_>) -> Option<Value> {
        use Operator as O;
        let (op, other_way) = match operator {
            O::I32Shl | O::I64Shl => (Shift::Left, false),
            O::I32ShrU | O::I64ShrU => (Shift::Right, false),
            O::I32ShrS | O::I64ShrS => (Shift::RightSigned, false),
            O::I32Rotl | O::I64Rotl => (Shift::RotateLeft, false),
            O::I32Rotr | O::I64Rotr => (Shift::RotateLeft, true),
            _ => return None,
        };
        let (by, value) = (self.pop(), self.pop());
        // Shifts are modulo the width.
        let width = self.width.bits();
        let Op::Const(bits) = self.ops[by.index()] else {
            let by = if other_way {
                let zero = self.push(Op::Const(0));
                self.push(Op::Binary(Binary::Sub, zero, by))
            } else {
                by
            };
            return Some(self.push(Op::ShiftBy(op, value, by)));
        };
        let mut bits = bits as u32 % width;
        if other_way {
            bits = (width - bits) % width;
        }
        Some(self.push(Op::Shift(op, value, bits)))
    }
}

const NOT_STRAIGHT: &str = "is not straight-line code";

/// What an operator that no body has does.
fn reason(operator: &Operator<'_>) -> &'static str {
    use Operator as O;
    match operator {
        O::Block { .. }
        | O::Loop { .. }
        | O::If { .. }
        | O::Else
        | O::Br { .. }
        | O::BrIf { .. }
        | O::BrTable { .. }
        | O::Return
        | O::Unreachable => NOT_STRAIGHT,
        O::Call { .. } | O::CallIndirect { .. } => "calls a function",
        O::GlobalGet { .. } | O::GlobalSet { .. } => "uses a global",
        O::I32DivU
        | O::I32DivS
        | O::I32RemU
        | O::I32RemS
        | O::I64DivU
        | O::I64DivS
        | O::I64RemU
        | O::I64RemS => "divides",
        O::MemorySize { .. }
        | O::MemoryGrow { .. }
        | O::MemoryCopy { .. }
        | O::MemoryFill { .. }
        | O::I32Load { .. }
        | O::I64Load { .. }
        | O::I32Load8U { .. }
        | O::I32Load8S { .. }
        | O::I32Load16U { .. }
        | O::I32Load16S { .. }
        | O::I64Load8U { .. }
        | O::I64Load8S { .. }
        | O::I64Load16U { .. }
        | O::I64Load16S { .. }
        | O::I64Load32U { .. }
        | O::I64Load32S { .. }
        | O::I32Store { .. }
        | O::I64Store { .. }
        | O::I32Store8 { .. }
        | O::I32Store16 { .. }
        | O::I64Store8 { .. }
        | O::I64Store16 { .. }
        | O::I64Store32 { .. } => "touches memory",
        _ => "has an operator that pipes do not have",
    }
}

impl Body {
    fn pipe(self, name: &str, gauge: Gauge, wanted: PipeRequest) -> Result<Pipe, UserPipeError> {
        let reductions: Vec<Option<(Reduce, Value)>> = (0..self.results.len() - 1)
            .map(|state| self.reduction(state, gauge))
            .collect();
        let mut roots = vec![self.results[0]];
        for (state, reduction) in reductions.iter().enumerate() {
            match reduction {
                Some((_, value)) => roots.push(*value),
                None if self.is_parameter(state) => {}
                None => roots.push(self.results[state + 1]),
            }
        }
        let (ops, moved) = live(&self.ops, &roots);
        let result = moved[self.results[0].index()];
        let no_mod = ops[result.index()] == Op::Input;
        let mut body = Builder::new(name, gauge)
            .width(self.width)
            .register_width(self.width);
        if !no_mod {
            body = body.leave_tail();
        }
        for op in &ops {
            body.op(*op);
        }
        let mut ordered = false;
        for (state, reduction) in reductions.iter().enumerate() {
            let register = body.register(&format!("state{state}"), 0);
            match reduction {
                Some((how, value)) => body.reduce(register, *how, moved[value.index()]),
                None if self.is_parameter(state) => {}
                None => {
                    body.set(register, moved[self.results[state + 1].index()]);
                    ordered = true;
                }
            }
        }
        if wanted.no_mod || no_mod {
            body = body.no_mod();
        }
        if wanted.commutative || !ordered {
            body = body.commutative();
        }
        let mut pipe = body.finish(result)?;
        narrow::narrow(&mut pipe);
        swap::recognise(&mut pipe);
        Ok(pipe)
    }

    /// The operator that reads a state.
    fn state(state: usize) -> Op {
        Op::Register(RegisterId(state.min(255) as u8))
    }

    fn is_parameter(&self, state: usize) -> bool {
        self.ops[self.results[state + 1].index()] == Self::state(state)
    }

    /// Whether a state is reduced into and used for nothing else, and by what.
    fn reduction(&self, state: usize, gauge: Gauge) -> Option<(Reduce, Value)> {
        let Op::Binary(op, left, right) = self.ops[self.results[state + 1].index()] else {
            return None;
        };
        let how = match op {
            Binary::Add => Reduce::Sum,
            Binary::Xor => Reduce::Xor,
            Binary::Or => Reduce::Or,
            _ => return None,
        };
        let own = |value: Value| self.ops[value.index()] == Self::state(state);
        let value = match (own(left), own(right)) {
            (true, false) => right,
            (false, true) => left,
            _ => return None,
        };
        // What is reduced is a word of the gauge.
        let bits = narrow::known(&self.ops, self.width, gauge, 0);
        if gauge != self.width && (how != Reduce::Sum || !bits[value.index()].exact) {
            return None;
        }
        // Nothing else that counts may know the state.
        let mut roots: Vec<Value> = self.results.clone();
        roots[state + 1] = value;
        let (ops, _) = live(&self.ops, &roots);
        (!ops.contains(&Self::state(state))).then_some((how, value))
    }
}

/// The operators that `roots` need, and where each value moved to.
fn live(ops: &[Op], roots: &[Value]) -> (Vec<Op>, Vec<Value>) {
    let mut needed = vec![false; ops.len()];
    for root in roots {
        needed[root.index()] = true;
    }
    for (at, op) in ops.iter().enumerate().rev() {
        if needed[at] {
            for value in op.values() {
                needed[value.index()] = true;
            }
        }
    }
    let mut kept = Vec::new();
    let mut moved = vec![Value(0); ops.len()];
    for (at, op) in ops.iter().enumerate() {
        if needed[at] {
            moved[at] = Value(kept.len().min(255) as u8);
            kept.push(op.with_values(|value| moved[value.index()]));
        }
    }
    (kept, moved)
}

const _: () = assert!(MAX_OPS < 200);
