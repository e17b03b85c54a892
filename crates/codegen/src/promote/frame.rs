//! What is decided before the first instruction: which functions there are,
//! where their frames lie, and which locals live in registers.
//!
//! All functions become one eBPF function (docs/facts.md, "Merged functions"), so a
//! frame is only a range of the per-CPU context. A function's frame lies behind the
//! longest chain of its callers', and two functions that cannot be active
//! together share the room. Functions that call each other in a cycle lie side
//! by side: of those, only the one that runs has its frame there, the others'
//! wait on the call stack (`recursion.rs`).

use super::Shape;
use super::error::{CodePlace, PromoteError};
use super::load_time::MOST_INSNS;
use crate::bug::{self, Bug};
use crate::normalise::Module;
use crate::normalise::ir::{Function, OpKind};
use crate::pipe::ebpf::SCRATCH_BYTES;
use ashway_abi::MemoryKind;
use ashway_abi::context;
use ashway_check::bpf::Reg;
use std::collections::{BTreeMap, BTreeSet};
use wasmparser::{Operator, ValType};

/// Registers for locals; `r9` is the context. The last ones are scratch where
/// an operator may want them all.
const LOCAL_REGS: [Reg; 5] = [Reg::R6, Reg::R7, Reg::R8, Reg::R5, Reg::R4];

/// Those of [`LOCAL_REGS`] that are never scratch: helpers keep them.
const CALLEE_SAVED: usize = 3;

/// Scratch registers, as a bit set: `r0`-`r5`.
pub(super) const SCRATCH: u8 = 0b11_1111;

/// A scratch register's bit; 0 for others.
pub(super) fn bit(reg: Reg) -> u8 {
    SCRATCH & 1_u8.checked_shl(reg as u32).unwrap_or(0)
}

/// Bytes of a local, an operand or a return id in a frame.
const SLOT: usize = 8;

/// Offset in the context of four words that the message's helpers use (array
/// mode); frames follow.
pub(super) const TRANSFER: i16 = context::FRAMES;

/// Offset in the context of what a run of pipes keeps there, if there is any;
/// frames follow.
pub(super) const PIPES: i16 = TRANSFER + 4 * SLOT as i16;

/// Offset in the context of the stack pointer, where each CPU has a stack of its own.
pub(super) fn stack_pointer(module: &Module<'_>) -> i16 {
    let runs = !module.pipes.lists.is_empty();
    PIPES + if runs { SCRATCH_BYTES as i16 } else { 0 }
}

/// Distance from there of the word that says how far the stack may reach.
pub(super) const LEAST: i16 = 4;

/// Offset in the context of the first frame.
fn first_frame(module: &Module<'_>) -> usize {
    stack_pointer(module) as usize + SLOT * usize::from(module.stacks().is_some())
}

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
    /// Between which operators, counted from 1, a register is its own; from 0
    /// if it has a value from the start. Locals whose lives do not meet can
    /// share a register.
    life: (usize, usize),
}

impl Local {
    /// Whether what it holds before this operator may be read at or behind it.
    pub(super) fn lives_at(&self, operator: usize) -> bool {
        self.life.0 < operator && operator <= self.life.1
    }
}

/// A function's part of the plan.
#[derive(Clone, Debug, Default)]
pub(super) struct Layout {
    pub(super) locals: Vec<Local>,
    /// Those that live in registers.
    pub(super) in_registers: Vec<u32>,
    pub(super) params: usize,
    /// For each result, whether it is an `i64`.
    pub(super) results: Vec<bool>,
    /// Bit set of registers that no local has.
    pub(super) scratch: u8,
    /// Whether it calls other functions.
    pub(super) calls_out: bool,
    /// Whether a call from it can come back to it before it has returned.
    pub(super) recursive: bool,
    /// Number of its component of the call graph.
    pub(super) component: usize,
    /// Its position there.
    pub(super) position: usize,
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
    /// Functions that can be reached, callers before callees; those that call
    /// each other in a cycle are together.
    pub(super) components: Vec<Vec<u32>>,
    /// Caller and callee, once each, sorted.
    calls: Vec<(u32, u32)>,
}

impl Plan {
    /// Everything but the frames' places.
    pub(super) fn new(shape: &Shape<'_>) -> Result<Self, PromoteError> {
        let (components, calls) = components(shape)?;
        let module = shape.module;
        let mut functions = vec![Layout::default(); module.functions.len()];
        for &index in components.iter().flatten() {
            let function = &module.functions[index as usize];
            let ty = &module.types[function.type_index as usize];
            let calls_out = calls
                .binary_search_by_key(&index, |(caller, _)| *caller)
                .is_ok();
            let types = [ty.params(), &function.locals].concat();
            let mut locals = survey(function, &types, ty.params().len(), calls_out);
            let regs = registers(shape, function);
            choose_registers(&mut locals, regs);
            let mut slots = 0;
            let locals: Vec<Local> = locals
                .into_iter()
                .map(|mut survey| {
                    survey.local.slot = slots;
                    slots += usize::from(survey.local.home != Home::Unread);
                    survey.local
                })
                .collect();
            let in_registers = locals.iter().zip(0..);
            let in_registers = in_registers.filter(|(local, _)| matches!(local.home, Home::Reg(_)));
            functions[index as usize] = Layout {
                in_registers: in_registers.map(|(_, index)| index).collect(),
                locals,
                params: ty.params().len(),
                results: ty.results().iter().map(|ty| is_wide(*ty)).collect(),
                scratch: regs.iter().fold(SCRATCH, |set, reg| set & !bit(*reg)),
                calls_out,
                local_slots: slots,
                base: first_frame(module),
                ..Layout::default()
            };
        }
        for (number, component) in components.iter().enumerate() {
            let own = (component[0], component[0]);
            let recursive = component.len() > 1 || calls.binary_search(&own).is_ok();
            for (position, index) in component.iter().enumerate() {
                let layout = &mut functions[*index as usize];
                layout.recursive = recursive;
                (layout.component, layout.position) = (number, position);
            }
        }
        Ok(Self {
            functions,
            components,
            calls,
        })
    }

    /// Whom a function calls, once each, in order.
    pub(super) fn callees(&self, caller: u32) -> impl Iterator<Item = u32> {
        callees(&self.calls, caller)
    }

    /// Gives each frame its place, now that their sizes are known; returns the
    /// bytes of all together.
    pub(super) fn place_frames(&mut self, module: &Module<'_>) -> Result<usize, PromoteError> {
        let first = first_frame(module);
        let mut most = 0;
        for layout in &mut self.functions {
            layout.base = first;
        }
        for component in &self.components {
            let bases = component.iter().map(|f| self.functions[*f as usize].base);
            let mut end = bases.max().unwrap_or(first);
            for &index in component {
                let layout = &mut self.functions[index as usize];
                layout.base = end;
                end += layout.bytes();
            }
            most = most.max(end);
            for &caller in component {
                let layout = &self.functions[caller as usize];
                let end = layout.base + layout.bytes();
                let own = layout.component;
                for callee in callees(&self.calls, caller) {
                    let callee = &mut self.functions[callee as usize];
                    if callee.component != own {
                        callee.base = callee.base.max(end);
                    }
                }
            }
        }
        let found = most - context::FRAMES as usize;
        if found > context::FRAMES_BYTES {
            let largest = self.components.iter().flatten();
            let largest = largest.max_by_key(|f| self.functions[**f as usize].bytes());
            let code = largest.map(|f| &module.functions[*f as usize].code);
            let at = code.and_then(|code| code.first()).map_or(0, |op| op.at);
            return Err(PromoteError::Frames {
                place: CodePlace::new(at, &module.lines),
                found,
                most: context::FRAMES_BYTES,
            });
        }
        Ok(found)
    }
}

fn callees(calls: &[(u32, u32)], caller: u32) -> impl Iterator<Item = u32> {
    let first = calls.partition_point(|(known, _)| *known < caller);
    let calls = calls[first..].iter();
    calls
        .take_while(move |(known, _)| *known == caller)
        .map(|(_, callee)| *callee)
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
    let entries = module.tables[table as usize].entries.iter().zip(0..);
    entries.filter_map(move |(entry, index)| {
        let function = (*entry)?;
        has_type(module, function, type_index).then_some((index, function))
    })
}

/// Functions that a call by number can reach, with their numbers, in order.
pub(super) fn number_targets<'m>(
    shape: &Shape<'m>,
    type_index: u32,
) -> impl Iterator<Item = (u32, u32)> + use<'m> {
    let module = shape.module;
    let named = module.referenced.iter();
    named.filter_map(move |function| {
        has_type(module, *function, type_index).then_some((function + 1, *function))
    })
}

fn has_type(module: &Module<'_>, function: u32, type_index: u32) -> bool {
    let its = module.functions[function as usize].type_index;
    module.canonical[its as usize] == module.canonical[type_index as usize]
        || bug::is(Bug::CallAnyType)
}

/// Whom a function calls, once each, sorted.
fn calls_of(shape: &Shape<'_>, index: u32) -> Vec<u32> {
    let mut calls = BTreeSet::new();
    let mut tables_seen = BTreeSet::new();
    for op in &shape.module.functions[index as usize].code {
        match &op.kind {
            OpKind::Wasm(Operator::Call { function_index }) => {
                calls.insert(*function_index);
            }
            OpKind::Wasm(Operator::CallIndirect {
                type_index,
                table_index,
            }) if tables_seen.insert((*type_index, Some(*table_index))) => {
                let targets = indirect_targets(shape, *type_index, *table_index);
                calls.extend(targets.map(|(_, function)| function));
            }
            OpKind::CallNumber { type_index } if tables_seen.insert((*type_index, None)) => {
                let targets = number_targets(shape, *type_index);
                calls.extend(targets.map(|(_, function)| function));
            }
            _ => {}
        }
    }
    calls.into_iter().collect()
}

/// Components of the call graph, callers before callees, and who calls whom.
type Components = (Vec<Vec<u32>>, Vec<(u32, u32)>);

/// The strongly connected components of what the handler reaches.
fn components(shape: &Shape<'_>) -> Result<Components, PromoteError> {
    let functions = &shape.module.functions;
    let mut calls = Vec::new();
    let mut too_long = None;
    let edges = |caller: usize| {
        if too_long.is_some() {
            return Vec::new();
        }
        let callees = calls_of(shape, caller as u32);
        calls.extend(callees.iter().map(|callee| (caller as u32, *callee)));
        // Each call that can be reached takes an instruction, or more.
        if calls.len() > MOST_INSNS {
            too_long = Some(functions[caller].at);
        }
        callees.into_iter().map(|callee| callee as usize).collect()
    };
    let found = crate::components::components(functions.len(), [shape.entry as usize], edges);
    if let Some(at) = too_long {
        return Err(PromoteError::TooLong {
            place: CodePlace::new(at, &shape.module.lines),
            most: MOST_INSNS,
        });
    }
    let members = |members: Vec<usize>| members.into_iter().map(|index| index as u32).collect();
    let components = found.into_iter().rev().map(members).collect();
    calls.sort_unstable();
    Ok((components, calls))
}

/// The registers that locals of the function can have. Four scratch registers
/// are enough for any operator but those that are named here and those that find
/// all six free (`Emitter::park`).
///
/// With three, long expressions spill more than a sixth local saves: SHA-256
/// took 10 % longer. In array mode helpers take the place of packet pointers.
fn registers(shape: &Shape<'_>, function: &Function<'_>) -> &'static [Reg] {
    let wants_all = |kind: &OpKind<'_>| match kind {
        OpKind::Wasm(operator) => super::atomic::is_atomic(operator),
        OpKind::CallNumber { .. } | OpKind::Push { .. } => true,
        _ => false,
    };
    if shape.locals_in_memory {
        &[]
    } else if shape.memory == MemoryKind::Array
        || function.code.iter().any(|op| wants_all(&op.kind))
    {
        &LOCAL_REGS[..CALLEE_SAVED]
    } else {
        &LOCAL_REGS
    }
}

/// What is found out about a local.
struct Survey {
    local: Local,
    /// How much a register would save; calls cost a save and a reload.
    gain: i64,
    /// The block in which it is first written, if that is before any read.
    written_in: Option<usize>,
    /// Of the last access: the outermost loop around it, and the outermost that
    /// begins behind the first access.
    loops: (Option<usize>, Option<usize>),
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
                life: (0, 0),
            },
            gain: 0,
            written_in: None,
            loops: (None, None),
            seen: false,
        })
        .collect();
    // Open blocks: number, and whether it is a loop.
    let mut open = vec![(0, false)];
    let mut loops = Loops::default();
    let mut blocks = 0;
    let mut weight = 1;
    let mut call_weight = 0;
    for (op, position) in function.code.iter().zip(1..) {
        let operator = match &op.kind {
            OpKind::Wasm(operator) => operator,
            OpKind::CallNumber { .. } => {
                call_weight += 2 * weight;
                continue;
            }
            // A frame that is saved anyway is saved faster from registers.
            OpKind::Push { .. } => {
                call_weight -= 4 * weight;
                continue;
            }
            _ => continue,
        };
        match operator {
            Operator::Block { .. } | Operator::Loop { .. } | Operator::If { .. } => {
                blocks += 1;
                let is_loop = matches!(operator, Operator::Loop { .. });
                open.push((blocks, is_loop));
                if is_loop {
                    loops.open(position);
                }
            }
            Operator::Else => {
                blocks += 1;
                open.pop();
                open.push((blocks, false));
            }
            Operator::End => {
                if let Some((_, true)) = open.pop() {
                    loops.close(position);
                }
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
                if !local.seen {
                    local.local.life.0 = position;
                }
                local.local.life.1 = position;
                local.loops = (loops.behind(0), loops.behind(local.local.life.0));
                local.seen = true;
                // Numbers of open blocks grow inwards.
                let is_open = |block| open.binary_search_by_key(&block, |(b, _)| *b).is_ok();
                let inside = local.written_in.is_some_and(is_open);
                local.local.starts_at_zero |= !inside;
                if read {
                    local.local.home = Home::Frame;
                }
                local.gain += weight;
            }
            _ => {}
        }
        // A loop's turn is taken to be one of eight; the number is a guess.
        weight = 1_i64 << (3 * loops.open.len().min(5));
    }
    for (index, survey) in locals.iter_mut().enumerate() {
        survey.gain -= call_weight;
        // A call saves registers, written or not.
        survey.local.starts_at_zero |= calls_out;
        survey.local.starts_at_zero |= index < params;
        let around = if survey.local.starts_at_zero {
            survey.local.life.0 = 0;
            survey.loops.0
        } else {
            survey.loops.1
        };
        // What one turn leaves, the next may read.
        if let Some(around) = around {
            survey.local.life.1 = loops.ends[around];
        }
        survey.local.starts_at_zero &= index >= params;
    }
    locals
}

/// The loops of a body, numbered as they begin.
#[derive(Default)]
struct Loops {
    /// Position and number of those around the current operator.
    open: Vec<(usize, usize)>,
    /// The last position of each.
    ends: Vec<usize>,
}

impl Loops {
    fn open(&mut self, position: usize) {
        self.open.push((position, self.ends.len()));
        self.ends.push(position);
    }

    fn close(&mut self, position: usize) {
        if let Some((_, number)) = self.open.pop() {
            self.ends[number] = position;
        }
    }

    /// The outermost around the current operator that begins behind a position.
    fn behind(&self, position: usize) -> Option<usize> {
        let first = self.open.partition_point(|(head, _)| *head <= position);
        self.open.get(first).map(|(_, number)| *number)
    }
}

/// The most gain first; each takes the first register that is free during its
/// life.
fn choose_registers(locals: &mut [Survey], regs: &[Reg]) {
    let mut read: Vec<usize> = (0..locals.len())
        .filter(|i| locals[*i].local.home == Home::Frame && locals[*i].gain > 0)
        .collect();
    read.sort_by_key(|i| -locals[*i].gain);
    // For each register the lives in it: begin and end.
    let mut lives = vec![BTreeMap::new(); regs.len()];
    for index in read {
        let (begin, end) = locals[index].local.life;
        let is_free = |lives: &BTreeMap<usize, usize>| {
            let before = lives.range(..=end).next_back();
            before.is_none_or(|(_, its_end)| *its_end < begin)
        };
        if let Some(number) = lives.iter().position(is_free) {
            lives[number].insert(begin, end);
            locals[index].local.home = Home::Reg(regs[number]);
        }
    }
}
