//! The section `ashway.pipes`: the lists of pipes that a handler runs, and calls to
//! them (docs/design/0005).
//!
//! It is text, one list on each line; the line's number, from 0, is the list's. A
//! function of the file itself is a pipe as `name:bits`, which says the width of its
//! words. Registers of all lists are numbered through and lie in the state region.
//!
//! In normal form a run names its list: where the author's number is no constant,
//! there is a question for each list that the file has.

use wasmparser::{BlockType, CustomSectionReader, Operator, ValType};

use super::body::{self, Body, Lowering};
use super::error::{NormaliseError, PIPE_LIST_BYTES, PIPE_LISTS};
use super::expand::{Expander, MEMORY};
use super::host::PIPE;
use super::ir::{FileOffset, Function, Module, OpKind, StateData, Words};
use super::limits::Limits;
use super::read::{Reader, within};
use super::state::Segments;
use super::tables::Scratch;
use crate::pipe::{
    Gauge, List, MAX_PIPES, MAX_TEXT_BYTES, Op, ParseError, Pipe, PipeRequest, parse_with,
    user_pipe,
};
use ashway_abi::{Cause, HostCall};

/// Most lists of a file.
pub const MAX_LISTS: usize = 16;

/// Operators of a function that is looked at as a pipe: more than any pipe has, so that
/// a hostile file does not have a long one read for every name in its lists.
const MOST_OPERATORS: usize = 1024;

/// The lists of a file.
#[derive(Clone, Debug, Default)]
pub struct Pipes {
    /// In the order of the file.
    pub lists: Vec<PipeList>,
    /// Registers of all of them.
    pub registers: u32,
    /// Where the first one lies in the state region, 8 bytes each.
    pub at: u32,
}

/// A list of a file.
#[derive(Clone, Debug)]
pub struct PipeList {
    /// As the author wrote it.
    pub text: String,
    /// What that means.
    pub list: List,
    /// Number of its first register.
    pub first: u32,
}

impl PipeList {
    /// What a run over so many bytes costs is what a copy of them costs, times this:
    /// the instructions of the kernel tier for a word of 8 bytes, about.
    #[must_use]
    pub fn weight(&self) -> u32 {
        let pipes = self.list.pipes().iter().map(|placed| {
            let pipe = &placed.pipe;
            let free = |op: &&Op| matches!(op, Op::Input | Op::Const(_) | Op::Register(_));
            let computes = pipe.ops().iter().filter(|op| !free(op)).count();
            let by_hand = if pipe.primitive().is_some() { 16 } else { 0 };
            by_hand + 3 * pipe.updates().len() + 4 * computes
        });
        // So that the longest memory times this is a number of 32 bits.
        (1 + pipes.sum::<usize>()).min(255) as u32
    }

    /// Offset in the state region of its first register.
    #[must_use]
    pub const fn place(&self, pipes: &Pipes) -> u32 {
        pipes.at + 8 * self.first
    }
}

/// The section's text, and where it begins in the file.
pub(super) type Text<'a> = (&'a str, FileOffset);

/// Reads the section.
pub(super) fn text<'a>(section: &CustomSectionReader<'a>) -> Result<Text<'a>, NormaliseError> {
    let at = section.data_offset() as u32;
    let text = std::str::from_utf8(section.data()).map_err(|error| NormaliseError::Pipes {
        message: format!(
            "section `{}` is no text: byte {} of it is no UTF-8",
            section.name(),
            error.valid_up_to()
        ),
        hint:
            "it holds lists of pipes, one on each line, as `ASHWAY_PIPES(\"cksum16 | bswap32\");` \
               writes them"
                .into(),
        at,
        caret: String::new(),
    })?;
    Ok((text, at))
}

impl<'a> Reader<'a, '_> {
    /// Reads the lists and gives their registers room. Bodies are rewritten when
    /// they are known.
    pub(super) fn lists(
        &mut self,
        bodies: &[Body<'a>],
        segments: &Segments,
    ) -> Result<(), NormaliseError> {
        let Some((text, at)) = self.pipes.filter(|(text, _)| !text.is_empty()) else {
            return self.no_lists();
        };
        within(PIPE_LISTS, text.lines().count(), MAX_LISTS as u64)?;
        let mut from = at;
        let mut first = 0;
        for line in text.lines() {
            within(PIPE_LIST_BYTES, line.len(), MAX_TEXT_BYTES as u64)?;
            let list = self.list(line, bodies, segments);
            let list = list.map_err(|error| NormaliseError::Pipes {
                message: format!("in the list `{line}`: {error}"),
                caret: error.caret(line),
                hint: error.hint,
                at: from,
            })?;
            let count = list.register_count() as u32;
            self.module.pipes.lists.push(PipeList {
                text: line.to_owned(),
                list,
                first,
            });
            first += count;
            from += line.len() as u32 + 1;
        }
        self.module.pipes.registers = first;
        place(&mut self.module, segments.end, self.limits)
    }

    /// A call without a list.
    fn no_lists(&self) -> Result<(), NormaliseError> {
        match self.imports.iter().find(|call| call.uses_pipes()) {
            None => Ok(()),
            Some(call) => Err(NormaliseError::Pipes {
                message: format!("it imports `{}` and has no list of pipes", call.name()),
                hint: "write `ASHWAY_PIPES(\"cksum16 | bswap32\");`".into(),
                at: 0,
                caret: String::new(),
            }),
        }
    }

    /// One line.
    fn list(
        &self,
        line: &str,
        bodies: &[Body<'a>],
        segments: &Segments,
    ) -> Result<List, ParseError> {
        let mut own: Vec<Pipe> = Vec::new();
        for name in line.split('|').map(str::trim).take(MAX_PIPES) {
            if let Some((export, bits)) = name.split_once(':')
                && own.iter().all(|pipe| pipe.name() != name)
            {
                let pipe = self.own_pipe(export, bits, bodies, segments);
                let pipe = pipe.map_err(|(why, hint)| {
                    let start = name.as_ptr() as usize - line.as_ptr() as usize;
                    ParseError {
                        span: start..start + name.len(),
                        message: format!("`{name}` is no pipe: {why}"),
                        hint,
                    }
                })?;
                own.push(pipe.named(name));
            }
        }
        parse_with(line, &own)
    }

    /// A function of the file as a pipe; the message and the hint if it is none.
    fn own_pipe(
        &self,
        export: &str,
        bits: &str,
        bodies: &[Body<'a>],
        segments: &Segments,
    ) -> Result<Pipe, (String, String)> {
        let gauges = [Gauge::Bits8, Gauge::Bits16, Gauge::Bits32, Gauge::Bits64];
        let gauge = gauges.iter().find(|gauge| gauge.bits().to_string() == bits);
        let Some(gauge) = gauge else {
            let message = format!("`{bits}` is no width of its words");
            return Err((message, "write 8, 16, 32 or 64 behind the colon".into()));
        };
        let mut alone = Module::default();
        let named = self.module.exports.iter().find(|(name, _)| name == export);
        if let Some((name, index)) = named {
            let type_index = self.function_types[*index as usize];
            let body = &bodies[*index as usize];
            if body.operators > MOST_OPERATORS {
                let message = format!("it has {} operators", body.operators);
                return Err((message, format!("at most {MOST_OPERATORS}")));
            }
            let lowered = body::rewrite(self, segments, body, type_index)
                .map_err(|error| (error.to_string(), error.hint()))?;
            let ty = self.module.types[type_index as usize].clone();
            alone.types.push(ty);
            alone.functions.push(Function {
                type_index: 0,
                ..lowered.function
            });
            alone.exports.push((name.clone(), 0));
        }
        let wanted = PipeRequest {
            gauge: Some(*gauge),
            ..PipeRequest::default()
        };
        let hint = "export a function (word, state...) -> (word, state...) of straight code";
        user_pipe(&alone, export, wanted).map_err(|error| (error.to_string(), hint.into()))
    }
}

/// Room for the registers in the state region, behind all else, and what they hold
/// at first.
fn place(module: &mut Module<'_>, end: usize, limits: &Limits) -> Result<(), NormaliseError> {
    let at = end.next_multiple_of(8);
    let end = at + 8 * module.pipes.registers as usize;
    super::state::fit(module, end, limits)?;
    module.pipes.at = at as u32;
    let initial = module.pipes.lists.iter().flat_map(|one| one.list.initial());
    let bytes: Vec<u8> = initial.flat_map(u64::to_le_bytes).collect();
    if !bytes.is_empty() {
        module.state.push(StateData {
            at: at as u32,
            bytes: bytes.into(),
        });
    }
    Ok(())
}

impl Lowering<'_, '_> {
    /// Any call that works with pipes.
    pub(super) fn pipe(&mut self, call: HostCall) {
        match call {
            HostCall::PipeGet => self.push(OpKind::WordGet(self.registers())),
            HostCall::PipeSet => self.push(OpKind::WordSet(self.registers())),
            _ => self.run(call),
        }
    }

    /// The list's number is on the stack, above what it works on.
    fn run(&mut self, call: HostCall) {
        let lists = self.reader.module.pipes.lists.len() as u32;
        if let Some(list) = self.take_constant() {
            if list < lists {
                self.run_one(call, list);
            } else {
                self.push(OpKind::Trap(Cause::TableBounds));
            }
            return;
        }
        self.set(Scratch::Step);
        self.set(Scratch::Count);
        self.set(Scratch::To);
        if call != HostCall::PipeInPlace {
            self.set(Scratch::From);
        }
        for list in 0..lists {
            self.get(Scratch::Step);
            self.constant(list);
            self.wasm(Operator::I32Eq);
            self.wasm(Operator::If {
                blockty: BlockType::Empty,
            });
            if call != HostCall::PipeInPlace {
                self.get(Scratch::From);
            }
            self.get(Scratch::To);
            self.get(Scratch::Count);
            self.run_one(call, list);
            self.wasm(Operator::Else);
        }
        self.push(OpKind::Trap(Cause::TableBounds));
        for _ in 0..lists {
            self.wasm(Operator::End);
        }
    }

    /// The length is on top of the stack. What wraps where it is multiplied is longer
    /// than any message and any memory.
    fn run_one(&mut self, call: HostCall, list: u32) {
        let weight = self.reader.module.pipes.lists[list as usize].weight();
        self.tee(Scratch::Count);
        self.constant(weight);
        self.wasm(Operator::I32Mul);
        self.push(OpKind::ChargeBulk);
        self.wasm(Operator::Drop);
        self.get(Scratch::Count);
        self.push(OpKind::Pipe { call, list });
    }

    fn registers(&self) -> Words {
        let pipes = &self.reader.module.pipes;
        Words {
            at: pipes.at,
            len: pipes.registers,
            ty: ValType::I64,
            cause: Cause::TableBounds,
        }
    }
}

impl Expander<'_> {
    /// [`OpKind::Pipe`]. The message's side is checked here as any access; the host,
    /// which makes pointers, checks the memory's.
    pub(super) fn pipe(&mut self, call: HostCall, list: u32, place: FileOffset) {
        let (at, pointer, value) = (self.at, self.pointer, self.value);
        self.ins().local_set(value).local_set(pointer);
        if call == HostCall::PipeInPlace {
            self.ins().i32_const(0).local_set(at);
        } else {
            self.ins().local_set(at);
            self.check_bulk(place);
        }
        self.ins().i32_const(call as i32).i32_const(list as i32);
        self.ins().local_get(at).local_get(pointer).local_get(value);
        self.ins().memory_size(MEMORY).call(PIPE);
        self.trap_if(Cause::MemoryBounds, place);
        if call == HostCall::PipeWrite {
            self.dirty();
        }
    }
}
