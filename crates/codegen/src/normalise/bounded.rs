//! Every run of an encoded module comes to an end, or to a look at the clock.
//!
//! The user tier stops a handler where fuel is taken and nowhere else, so what takes
//! none must not go on for ever. This looks at the finished Wasm with the decoder
//! alone, and shares no judgement with `fuel.rs`, as the [checker](ashway_check) of
//! eBPF shares none with its translator. It finds that
//!
//! * each `loop` begins with a charge of at least 1,
//! * a function that does not is called from one place at most, which is in no loop,
//!   through no table, and never by way of itself,
//! * the fuel only shrinks, but where the host gives more of it, and
//! * each copy and fill, and each run of pipes, has been charged by its length, or is a
//!   copy of no more than the outbox takes.
//!
//! **Why that is enough.** Take a run in which nothing is charged. It goes back to no
//! loop's head, so in one call of a function each operator runs once at most. It
//! enters no function that is charged; any other has one place that it is called
//! from, so it is entered as often as that place runs, and following the callers up
//! there is no cycle: at the top is what the host enters, once. (A function may have
//! one more place in each of those that only the host enters, such as an invoker, which
//! adds one for each function on the way.) So the run is shorter than the
//! module's length times its functions, and fuel, which is finite, is charged
//! behind it.

use super::cost::BULK_SHIFT;
use super::expand::FUEL;
use super::host::{HOST, PIPE, TRAP};
use super::{ENTER_PREFIX, Encoded};
use crate::bug::{self, Bug};
use ashway_abi::Cause;
use ashway_abi::outbox::PAYLOAD_BYTES;
use wasmparser::{
    BinaryReaderError, BlockType, ElementItems, ExternalKind, FunctionBody, Operator, Parser,
    Payload,
};

/// Why a module could run without end. The fault is `normalise`'s or `encode`'s, never
/// the author's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("function {function} could run without end: {what}")]
pub struct Unbounded {
    /// Its index in the encoded module, imports included.
    pub function: u32,
    /// What is wrong with it.
    pub what: &'static str,
}

/// Looks at a module that [`encode`](super::encode) wrote. Costs time in proportion
/// to its length, and memory to its longest function.
///
/// # Errors
///
/// [`Unbounded`], also if the module cannot be read.
pub fn check(encoded: &Encoded) -> Result<(), Unbounded> {
    let unreadable = |_: BinaryReaderError| Unbounded {
        function: 0,
        what: "it cannot be read",
    };
    let mut module = Calls::default();
    for payload in Parser::new(0).parse_all(&encoded.wasm) {
        module.payload(&payload.map_err(unreadable)?, unreadable)?;
    }
    module.check()
}

/// Who calls whom.
#[derive(Default)]
struct Calls {
    functions: Vec<Function>,
    /// Functions in tables.
    in_tables: Vec<u32>,
    indirect: bool,
    /// What the host calls to begin an activation: it sets the fuel.
    enter: Vec<u32>,
}

#[derive(Default)]
struct Function {
    /// It begins with a charge.
    charged: bool,
    /// Callee, and whether the call is in a loop; one for each call.
    calls: Vec<(usize, bool)>,
}

const IMPORTS: usize = HOST.len();

impl Calls {
    fn payload(
        &mut self,
        payload: &Payload<'_>,
        unreadable: impl Fn(BinaryReaderError) -> Unbounded + Copy,
    ) -> Result<(), Unbounded> {
        match payload {
            Payload::ExportSection(section) => {
                for export in section.clone() {
                    let export = export.map_err(unreadable)?;
                    if export.kind == ExternalKind::Func && export.name.starts_with(ENTER_PREFIX) {
                        self.enter.push(export.index);
                    }
                }
            }
            Payload::ElementSection(section) => {
                for element in section.clone() {
                    self.element(element.map_err(unreadable)?.items)
                        .map_err(unreadable)?;
                }
            }
            Payload::CodeSectionEntry(body) => {
                let ops = operators(body).map_err(unreadable)?;
                let index = (IMPORTS + self.functions.len()) as u32;
                let function = self.function(&ops, self.enter.contains(&index));
                let function = function.map_err(|what| Unbounded {
                    function: index,
                    what,
                })?;
                self.functions.push(function);
            }
            _ => {}
        }
        Ok(())
    }

    fn element(&mut self, items: ElementItems<'_>) -> Result<(), BinaryReaderError> {
        match items {
            ElementItems::Functions(functions) => {
                for function in functions {
                    self.in_tables.push(function?);
                }
            }
            ElementItems::Expressions(_, expressions) => {
                for expression in expressions {
                    for op in expression?.get_operators_reader() {
                        if let Operator::RefFunc { function_index } = op? {
                            self.in_tables.push(function_index);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// One body.
    fn function(&mut self, ops: &[Operator<'_>], enters: bool) -> Result<Function, &'static str> {
        use Operator as O;
        let mut function = Function {
            charged: charge(ops).is_some(),
            calls: Vec::new(),
        };
        // For each open block: whether it is a loop, and the charge for a copy that
        // was there when it began.
        let mut open: Vec<(bool, Option<usize>)> = vec![(false, None)];
        let mut loops = 0_usize;
        let mut paid = None;
        // A local that is known to be no more than a payload of the outbox.
        let mut short = None;
        let mut at = 0;
        while let Some(op) = ops.get(at) {
            // A charge sets locals, so nothing is known of any behind it.
            if let Some(len) = charge(&ops[at..]) {
                short = None;
                at += len;
                continue;
            }
            if let Some(len) = bulk_charge(&ops[at..]) {
                paid = Some(at);
                short = None;
                at += len;
                continue;
            }
            if let Some(local) = short_length(&ops[at..]) {
                short = Some(local);
            }
            at += 1;
            match op {
                O::LocalSet { local_index } | O::LocalTee { local_index } => {
                    short = short.filter(|local| local != local_index);
                }
                O::Loop { .. } => {
                    if charge(&ops[at..]).is_none() && !bug::is(Bug::BoundedLoopFree) {
                        return Err("a loop does not begin with a charge");
                    }
                    loops += 1;
                    // What was paid for once is not for each turn.
                    paid = None;
                    short = None;
                    open.push((true, paid));
                }
                O::Block { .. } | O::If { .. } => open.push((false, paid)),
                // Where two ways meet, both must have it still.
                O::Else => {
                    let (_, before) = open.last_mut().ok_or("it has an end too many")?;
                    *before = before.filter(|_| paid == *before);
                    paid = *before;
                    short = None;
                }
                O::End => {
                    let (is_loop, before) = open.pop().ok_or("it has an end too many")?;
                    loops -= usize::from(is_loop);
                    paid = paid.filter(|_| paid == before);
                    short = None;
                }
                O::GlobalSet { global_index } if *global_index == FUEL && !enters => {
                    return Err("it sets the fuel");
                }
                O::MemoryCopy { .. } if is_local(ops.get(at.wrapping_sub(2)), short) => {}
                O::MemoryCopy { .. } | O::MemoryFill { .. } => {
                    paid.take().ok_or("a copy is not charged")?;
                }
                O::Call {
                    function_index: PIPE,
                } => {
                    paid.take().ok_or("a run of pipes is not charged")?;
                }
                O::Call { function_index } => {
                    if let Some(own) = (*function_index as usize).checked_sub(IMPORTS) {
                        function.calls.push((own, loops > 0));
                    }
                }
                O::CallIndirect { .. } => self.indirect = true,
                O::ReturnCall { .. }
                | O::ReturnCallIndirect { .. }
                | O::ReturnCallRef { .. }
                | O::CallRef { .. }
                | O::MemoryInit { .. }
                | O::TableCopy { .. }
                | O::TableFill { .. }
                | O::TableInit { .. }
                | O::TableGrow { .. }
                | O::MemoryAtomicWait32 { .. }
                | O::MemoryAtomicWait64 { .. } => return Err("an operator is not of the form"),
                _ => {}
            }
        }
        if enters && !matches!(function.calls[..], [(_, false)]) {
            return Err("it enters a handler more than once");
        }
        Ok(function)
    }

    /// Who is not charged is called once.
    fn check(&self) -> Result<(), Unbounded> {
        let wrong = |function: usize, what| Unbounded {
            function: (IMPORTS + function) as u32,
            what,
        };
        let mut called = vec![false; self.functions.len()];
        let mut often = vec![false; self.functions.len()];
        if self.indirect {
            for function in &self.in_tables {
                if let Some(own) = (*function as usize).checked_sub(IMPORTS) {
                    called[own] = true;
                    often[own] = true;
                }
            }
        }
        // That the host enters a function is no call of it.
        let entered = |index: usize| self.enter.contains(&((IMPORTS + index) as u32));
        let calling = || {
            let all = self.functions.iter().enumerate();
            all.filter(|(index, _)| !entered(*index))
        };
        for (callee, _) in calling().flat_map(|(_, f)| &f.calls) {
            called[*callee] = true;
        }
        let mut caller = vec![None; self.functions.len()];
        // Who was the last that nobody calls and that calls it.
        let mut root = vec![None; self.functions.len()];
        for (index, function) in calling() {
            let place = if called[index] {
                &mut caller
            } else {
                &mut root
            };
            for (callee, in_loop) in &function.calls {
                let before = place[*callee].replace(index);
                let again = before.is_some() && (called[index] || before == Some(index));
                often[*callee] |= *in_loop || again;
            }
        }
        for (index, function) in self.functions.iter().enumerate() {
            if often[index] && !function.charged && !bug::is(Bug::BoundedEntryFree) {
                return Err(wrong(index, "it can run often and is not charged"));
            }
        }
        // Upwards from each: to the top, to a charge, or to where somebody has been.
        let mut seen = vec![usize::MAX; self.functions.len()];
        for from in 0..self.functions.len() {
            let mut at = Some(from);
            while let Some(index) = at {
                if self.functions[index].charged
                    || (seen[index] != usize::MAX && seen[index] != from)
                {
                    break;
                }
                if seen[index] == from {
                    return Err(wrong(index, "it calls itself and is not charged"));
                }
                seen[index] = from;
                at = caller[index];
            }
        }
        Ok(())
    }
}

fn operators<'a>(body: &FunctionBody<'a>) -> Result<Vec<Operator<'a>>, BinaryReaderError> {
    body.get_operators_reader()?.into_iter().collect()
}

/// Whether this pushes the local.
fn is_local(op: Option<&Operator<'_>>, local: Option<u32>) -> bool {
    matches!(op, Some(Operator::LocalGet { local_index }) if local == Some(*local_index))
}

/// The local that is at most a payload of the outbox behind these operators.
fn short_length(ops: &[Operator<'_>]) -> Option<u32> {
    use Operator as O;
    match ops {
        [
            O::LocalGet { local_index },
            O::I32Const { value },
            O::I32GtU,
            O::BrIf { .. },
            ..,
        ] if usize::try_from(*value).is_ok_and(|most| most <= PAYLOAD_BYTES) => Some(*local_index),
        _ => None,
    }
}

/// How many operators a constant charge here takes.
fn charge(ops: &[Operator<'_>]) -> Option<usize> {
    match ops {
        [Operator::I64Const { value: 1.. }, rest @ ..] => Some(1 + spend(rest)?),
        _ => None,
    }
}

/// How many operators a charge by length takes; the length stays on the stack.
fn bulk_charge(ops: &[Operator<'_>]) -> Option<usize> {
    use Operator as O;
    match ops {
        [
            O::LocalTee { local_index: a },
            O::LocalGet { local_index: b },
            O::I32Const { value },
            O::I32ShrU,
            O::I64ExtendI32U,
            rest @ ..,
        ] if a == b && *value == BULK_SHIFT as i32 => Some(5 + spend(rest)?),
        _ => None,
    }
}

/// The amount on the stack, which is not negative, is taken from the fuel, and the
/// host is asked if that is below zero.
fn spend(ops: &[Operator<'_>]) -> Option<usize> {
    use Operator as O;
    match ops {
        [
            O::LocalSet { local_index: a },
            O::GlobalGet { global_index: FUEL },
            O::LocalGet { local_index: b },
            O::I64Sub,
            O::LocalTee { local_index: c },
            O::GlobalSet { global_index: FUEL },
            O::LocalGet { local_index: d },
            O::I64Const { value: 0 },
            O::I64LtS,
            O::If {
                blockty: BlockType::Empty,
            },
            O::I32Const { value },
            O::I32Const { .. },
            O::Call {
                function_index: TRAP,
            },
            O::End,
            ..,
        ] if a == b && c == d && *value == Cause::Fuel as i32 => Some(14),
        _ => None,
    }
}
