//! What is decided before the first instruction: which functions there are,
//! where their frames lie, and which locals live in registers.
//!
//! All functions become one eBPF function (FACTS 1, "merged"), so a frame is
//! only a range of the per-CPU context. Without recursion every chain of calls
//! is known: a function's frame lies behind the longest chain of its callers',
//! and two functions that cannot be active together share the room.

use super::Shape;
use super::error::{Place, PromoteError};
use crate::bpf::Reg;
use crate::normalise::ir::{FileOffset, Function, OpKind};
use ashway_abi::context;
use std::collections::BTreeSet;
use wasmparser::{Operator, ValType};

/// Registers for locals; `r0`-`r5` are scratch, `r9` is the context.
const LOCAL_REGS: [Reg; 3] = [Reg::R6, Reg::R7, Reg::R8];

/// Bytes of a local, an operand or a return id in a frame.
const SLOT: usize = 8;

/// Offset in the context of four words that the message's helpers use (array
/// mode); frames follow.
pub(super) const TRANSFER: i16 = context::FRAMES;

/// Offset in the context of the first frame.
const FIRST_FRAME: usize = context::FRAMES as usize + 4 * SLOT;

/// Where a local is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Home {
    /// Nowhere: nobody reads it.
    Unread,
    /// In a register while its function runs; in its frame slot during calls.
    Reg(Reg),
    /// In its frame slot.
    Frame,
}

/// A local, parameters included.
#[derive(Clone, Copy, Debug)]
pub(super) struct Local {
    pub(super) home: Home,
    /// Whether it is an `i64`.
    pub(super) wide: bool,
    /// Whether the zero it starts with can be read.
    pub(super) starts_at_zero: bool,
    /// Number of its frame slot.
    slot: usize,
}

/// A function's part of the plan.
#[derive(Clone, Debug, Default)]
pub(super) struct Layout {
    pub(super) locals: Vec<Local>,
    pub(super) params: usize,
    /// For each result, whether it is an `i64`.
    pub(super) results: Vec<bool>,
    /// Whether it calls other functions.
    pub(super) calls_out: bool,
    /// Places from which it is called.
    pub(super) call_sites: usize,
    /// Operand slots used.
    pub(super) operands: usize,
    local_slots: usize,
    /// Offset of the frame in the context.
    base: usize,
}

impl Layout {
    /// Offset in the context of the word that says where to return to.
    pub(super) fn return_id(&self) -> i16 {
        self.base as i16
    }

    /// Offset in the context of a local's slot.
    pub(super) fn local(&self, local: u32) -> i16 {
        (self.base + SLOT * (1 + self.locals[local as usize].slot)) as i16
    }

    /// Offset in the context of the operand at this height.
    pub(super) fn operand(&self, height: usize) -> i16 {
        (self.base + SLOT * (1 + self.local_slots + height)) as i16
    }

    fn bytes(&self) -> usize {
        SLOT * (1 + self.local_slots + self.operands)
    }
}

/// The whole plan.
#[derive(Debug)]
pub(super) struct Plan {
    /// By function index; those that cannot be reached are empty.
    pub(super) functions: Vec<Layout>,
    /// Functions that can be reached, callers before callees.
    pub(super) order: Vec<u32>,
    /// Caller and callee, once each, sorted.
    calls: Vec<(u32, u32)>,
}

impl Plan {
    /// Everything but the frames' places.
    pub(super) fn new(shape: &Shape<'_>) -> Result<Self, PromoteError> {
        let (order, calls) = order(shape)?;
        let module = shape.module;
        let mut functions = vec![Layout::default(); module.functions.len()];
        for &index in &order {
            let function = &module.functions[index as usize];
            let ty = &module.types[function.type_index as usize];
            let calls_out = calls
                .binary_search_by_key(&index, |(caller, _)| *caller)
                .is_ok();
            let types = [ty.params(), &function.locals].concat();
            let mut locals = survey(function, &types, ty.params().len(), calls_out);
            if !shape.locals_in_memory {
                choose_registers(&mut locals);
            }
            let mut slots = 0;
            let locals: Vec<Local> = locals
                .into_iter()
                .map(|mut survey| {
                    survey.local.slot = slots;
                    slots += usize::from(survey.local.home != Home::Unread);
                    survey.local
                })
                .collect();
            functions[index as usize] = Layout {
                locals,
                params: ty.params().len(),
                results: ty.results().iter().map(|ty| is_wide(*ty)).collect(),
                calls_out,
                local_slots: slots,
                base: FIRST_FRAME,
                ..Layout::default()
            };
        }
        Ok(Self {
            functions,
            order,
            calls,
        })
    }

    /// Gives each frame its place, now that their sizes are known; returns the
    /// bytes of all together.
    pub(super) fn place_frames(&mut self) -> Result<usize, PromoteError> {
        let mut most = 0;
        for layout in &mut self.functions {
            layout.base = FIRST_FRAME;
        }
        for &caller in &self.order {
            let layout = &self.functions[caller as usize];
            let end = layout.base + layout.bytes();
            most = most.max(end);
            let first = self.calls.partition_point(|(c, _)| *c < caller);
            let calls = self.calls[first..].iter();
            for (_, callee) in calls.take_while(|(c, _)| *c == caller) {
                let callee = &mut self.functions[*callee as usize];
                callee.base = callee.base.max(end);
            }
        }
        let found = most - context::FRAMES as usize;
        if found > context::FRAMES_BYTES {
            return Err(PromoteError::Frames {
                found,
                most: context::FRAMES_BYTES,
            });
        }
        Ok(found)
    }
}

pub(super) fn is_wide(ty: ValType) -> bool {
    ty != ValType::I32
}

/// Functions of the table that a `call_indirect` of this type can reach, with
/// their table indices.
pub(super) fn indirect_targets<'m>(
    shape: &Shape<'m>,
    type_index: u32,
    table: u32,
) -> impl Iterator<Item = (u32, u32)> + use<'m> {
    let module = shape.module;
    let ty = &module.types[type_index as usize];
    let entries = module.tables[table as usize].entries.iter().zip(0..);
    entries.filter_map(move |(entry, index)| {
        let function = (*entry)?;
        let its = module.functions[function as usize].type_index;
        (module.types[its as usize] == *ty).then_some((index, function))
    })
}

/// The calls of one function: place and callee.
fn calls_of(shape: &Shape<'_>, index: u32) -> Result<Vec<(FileOffset, u32)>, PromoteError> {
    let mut calls = Vec::new();
    let mut tables_seen = BTreeSet::new();
    for op in &shape.module.functions[index as usize].code {
        match &op.kind {
            OpKind::Wasm(Operator::Call { function_index }) => calls.push((op.at, *function_index)),
            OpKind::Wasm(Operator::CallIndirect {
                type_index,
                table_index,
            }) => {
                if shape.module.tables[*table_index as usize].mutable {
                    return Err(PromoteError::MutableTable {
                        place: Place::new(op.at, &shape.module.lines),
                        table: *table_index,
                    });
                }
                if !tables_seen.insert((*type_index, *table_index)) {
                    continue;
                }
                let targets = indirect_targets(shape, *type_index, *table_index);
                calls.extend(targets.map(|(_, function)| (op.at, function)));
            }
            _ => {}
        }
    }
    Ok(calls)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    New,
    /// On the chain of calls that is being followed.
    Open,
    Done,
}

/// A function on the chain of calls being followed: index, calls, calls seen.
type Link = (u32, Vec<(FileOffset, u32)>, usize);

/// Functions, callers before callees, and who calls whom.
type Order = (Vec<u32>, Vec<(u32, u32)>);

/// A depth-first walk over the call graph, without recursion of its own: the
/// author decides how deep it is.
fn order(shape: &Shape<'_>) -> Result<Order, PromoteError> {
    let mut marks = vec![Mark::New; shape.module.functions.len()];
    let mut order = Vec::new();
    let mut calls = Vec::new();
    let mut chain: Vec<Link> = vec![(shape.entry, calls_of(shape, shape.entry)?, 0)];
    marks[shape.entry as usize] = Mark::Open;
    while let Some((index, out, seen)) = chain.last_mut() {
        let Some(&(at, callee)) = out.get(*seen) else {
            marks[*index as usize] = Mark::Done;
            order.push(*index);
            chain.pop();
            continue;
        };
        *seen += 1;
        calls.push((*index, callee));
        match marks[callee as usize] {
            Mark::Done => {}
            Mark::Open => {
                let name = &shape.module.functions[callee as usize].name;
                return Err(PromoteError::Recursion {
                    place: Place::new(at, &shape.module.lines),
                    function: name.clone().unwrap_or_else(|| callee.to_string()),
                });
            }
            Mark::New => {
                marks[callee as usize] = Mark::Open;
                chain.push((callee, calls_of(shape, callee)?, 0));
            }
        }
    }
    order.reverse();
    calls.sort_unstable();
    calls.dedup();
    Ok((order, calls))
}

/// What is found out about a local.
struct Survey {
    local: Local,
    /// How much a register would save; calls cost a save and a reload.
    gain: i64,
    /// The block in which it is first written, if that is before any read.
    written_in: Option<usize>,
    seen: bool,
}

/// Reads one body. A declared local's zero matters unless it is first written,
/// and then used only inside the block of that write: a branch can leave that
/// block, but not enter it behind the write.
fn survey(
    function: &Function<'_>,
    types: &[ValType],
    params: usize,
    calls_out: bool,
) -> Vec<Survey> {
    let mut locals: Vec<Survey> = types
        .iter()
        .map(|ty| Survey {
            local: Local {
                home: Home::Unread,
                wide: is_wide(*ty),
                starts_at_zero: false,
                slot: 0,
            },
            gain: 0,
            written_in: None,
            seen: false,
        })
        .collect();
    // Open blocks: number, and whether it is a loop.
    let mut open = vec![(0, false)];
    let mut blocks = 0;
    let mut weight = 1;
    let mut call_weight = 0;
    for op in &function.code {
        let OpKind::Wasm(operator) = &op.kind else {
            continue;
        };
        match operator {
            Operator::Block { .. } | Operator::Loop { .. } | Operator::If { .. } => {
                blocks += 1;
                open.push((blocks, matches!(operator, Operator::Loop { .. })));
            }
            Operator::Else => {
                blocks += 1;
                open.pop();
                open.push((blocks, false));
            }
            Operator::End => {
                open.pop();
            }
            Operator::Call { .. } | Operator::CallIndirect { .. } => call_weight += 2 * weight,
            Operator::LocalGet { local_index: index }
            | Operator::LocalSet { local_index: index }
            | Operator::LocalTee { local_index: index } => {
                let read = matches!(operator, Operator::LocalGet { .. });
                let local = &mut locals[*index as usize];
                if !local.seen && !read {
                    local.written_in = open.last().map(|(block, _)| *block);
                }
                local.seen = true;
                let inside = local
                    .written_in
                    .is_some_and(|block| open.iter().any(|(b, _)| *b == block));
                local.local.starts_at_zero |= !inside;
                if read {
                    local.local.home = Home::Frame;
                }
                local.gain += weight;
            }
            _ => {}
        }
        let depth = open.iter().filter(|(_, is_loop)| *is_loop).count();
        // A loop's turn is taken to be one of eight; the number is a guess.
        weight = 1_i64 << (3 * depth.min(5));
    }
    for (index, survey) in locals.iter_mut().enumerate() {
        survey.gain -= call_weight;
        // A call saves registers, written or not.
        survey.local.starts_at_zero |= calls_out;
        survey.local.starts_at_zero &= index >= params;
    }
    locals
}

fn choose_registers(locals: &mut [Survey]) {
    let mut read: Vec<usize> = (0..locals.len())
        .filter(|i| locals[*i].local.home == Home::Frame && locals[*i].gain > 0)
        .collect();
    read.sort_by_key(|i| -locals[*i].gain);
    for (index, reg) in read.into_iter().zip(LOCAL_REGS) {
        locals[index].local.home = Home::Reg(reg);
    }
}
