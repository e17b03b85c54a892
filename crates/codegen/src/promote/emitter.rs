//! The walk over functions, and what all parts of it share.

use super::control::Control;
use super::error::{CodePlace, PromoteError};
use super::frame::{Home, LEAST, Layout, Plan, stack_pointer};
use super::fuel::SlowCharge;
use super::looks::Looks;
use super::recursion::SlowPop;
use super::stack::Entry;
use super::{Shape, Summary, load_time};
use crate::bug::{self, Bug};
use crate::normalise::Module;
use crate::normalise::ir::{FileOffset, Op};
use ashway_abi::{Cause, context};
use ashway_check::bpf::{Assembler, Label, Reg, Size, helper, op};
use std::collections::BTreeSet;

/// Translates a handler into `asm`, whose `looks` are to be emitted behind everything. Takes time and memory in proportion to the
/// functions it reaches; allocates.
///
/// # Errors
///
/// [`PromoteError`] if something in it has no counterpart; `asm` is then of no
/// use.
pub fn emit(
    asm: &mut Assembler,
    shape: &Shape<'_>,
    done: Label,
    trap: Label,
    looks: Looks,
) -> Result<Summary, PromoteError> {
    if !shape.module.is_handler(shape.entry) {
        return Err(PromoteError::HandlerType {
            function: shape.entry,
        });
    }
    let mut plan = Plan::new(shape)?;
    // How many operands wait in frames at most, and which calls can be reached,
    // is known when it has been done once; frames can have their places then.
    let mut rehearsal = Assembler::at(asm.hook());
    let stage_looks = Looks::new(&mut rehearsal);
    let stage = [(); 2].map(|()| rehearsal.label());
    let used = Emitter::new(&mut rehearsal, shape, &plan, stage, stage_looks).run()?;
    for (layout, (operands, sites)) in plan.functions.iter_mut().zip(used) {
        layout.operands = operands;
        layout.call_sites = sites;
    }
    let frame_bytes = plan.place_frames(shape.module)?;

    let before = asm.len();
    begin_stack(asm, shape.module);
    Emitter::new(asm, shape, &plan, [done, trap], looks).run()?;
    Ok(Summary {
        functions: plan.components.iter().map(Vec::len).sum(),
        insns: asm.len() - before,
        frame_bytes,
    })
}

/// Where each CPU has a stack, begins at the top of this one's. Clobbers `r0`-`r5`.
fn begin_stack(asm: &mut Assembler, module: &Module<'_>) {
    let Some(stacks) = module.stacks() else {
        return;
    };
    asm.call(helper::GET_SMP_PROCESSOR_ID);
    if bug::is(Bug::OneStack) {
        asm.mov_imm(Reg::R0, 0);
    }
    asm.alu_imm(op::MUL, Reg::R0, stacks.bytes() as i32);
    asm.alu_imm(op::ADD, Reg::R0, stacks.least() as i32);
    let at = stack_pointer(module);
    asm.store(Size::W, Reg::R9, at + LEAST, Reg::R0);
    asm.alu_imm(op::ADD, Reg::R0, (stacks.top() - stacks.least()) as i32);
    asm.store(Size::W, Reg::R9, at, Reg::R0);
}

/// Operands that all frames together have room for; more need not be followed.
const MOST_OPERANDS: usize = context::FRAMES_BYTES / 8;

/// What is known to hold at a place, whichever way it was reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    /// The message has at least so many bytes, and the verifier knows that the
    /// packet has.
    pub(super) message_bytes: u32,
    /// `DIRTY` is set.
    pub(super) dirty: bool,
}

impl Facts {
    /// What holds on both ways.
    pub(super) fn meet(self, other: Self) -> Self {
        if bug::is(Bug::FactsNotMet) {
            return other;
        }
        Self {
            message_bytes: self.message_bytes.min(other.message_bytes),
            dirty: self.dirty && other.dirty,
        }
    }
}

/// A call: where it returns to, and what holds there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Site {
    pub(super) back: Label,
    pub(super) facts: Facts,
}

/// The function being translated.
#[derive(Default)]
pub(super) struct Body<'e> {
    pub(super) index: u32,
    pub(super) code: &'e [Op<'e>],
    /// Position of the operator after the current one.
    pub(super) next: usize,
    pub(super) stack: Vec<Entry>,
    /// Bit set of scratch registers in use, by entries or by operands.
    pub(super) busy: u8,
    /// Whether locals have left the scratch registers for a while.
    pub(super) parked: bool,
    pub(super) controls: Vec<Control>,
    /// The depth of blocks at which each local got its value; `None` as long
    /// as its register may hold nothing.
    pub(super) defined: Vec<Option<usize>>,
    /// Whether what comes cannot be reached.
    pub(super) unreachable: bool,
    /// Blocks opened in code that cannot be reached.
    pub(super) skipped_blocks: usize,
    /// A comparison left to the next operator.
    pub(super) condition: Option<super::condition::Condition>,
    pub(super) facts: Facts,
    /// Operand slots used so far.
    pub(super) operands: usize,
    /// Where every return goes.
    pub(super) returns: Option<Label>,
}

/// Translates; see [`emit`].
pub(super) struct Emitter<'e> {
    pub(super) asm: &'e mut Assembler,
    pub(super) shape: &'e Shape<'e>,
    pub(super) plan: &'e Plan,
    pub(super) body: Body<'e>,
    /// The current operator's place.
    pub(super) at: FileOffset,
    pub(super) done: Label,
    /// Where a trap goes: to `out`, or to what gives back before that what was on the stack.
    trap: Label,
    out: Label,
    pub(super) looks: Looks,
    /// First instruction of each function.
    pub(super) entries: Vec<Label>,
    /// Calls of each function so far.
    pub(super) sites: Vec<Vec<Site>>,
    /// Traps by cause and place.
    stubs: Vec<(Cause, FileOffset, Label)>,
    pub(super) slow_charges: Vec<SlowCharge>,
    pub(super) slow_pops: Vec<SlowPop>,
}

impl<'e> Emitter<'e> {
    fn new(
        asm: &'e mut Assembler,
        shape: &'e Shape<'e>,
        plan: &'e Plan,
        [done, out]: [Label; 2],
        looks: Looks,
    ) -> Self {
        let functions = shape.module.functions.len();
        let trap = match stack_top(shape.module) {
            Some(_) => asm.label(),
            None => out,
        };
        let entries = (0..functions).map(|_| asm.label()).collect();
        Self {
            asm,
            shape,
            plan,
            body: Body::default(),
            at: 0,
            done,
            trap,
            out,
            looks,
            entries,
            sites: vec![Vec::new(); functions],
            stubs: Vec::new(),
            slow_charges: Vec::new(),
            slow_pops: Vec::new(),
        }
    }

    /// Everything; returns operand slots and call sites of each function.
    fn run(mut self) -> Result<Vec<(usize, usize)>, PromoteError> {
        let mut operands = vec![0; self.entries.len()];
        let plan = self.plan;
        for (component, number) in plan.components.iter().zip(0..) {
            let mut returns = Vec::new();
            // One of a cycle can be called first by one that comes behind it,
            // and where it returns to is known when all of them are done.
            let mut done = vec![false; component.len()];
            let reached = (0..component.len()).filter(|i| self.is_reached(component[*i]));
            let mut ready: BTreeSet<usize> = reached.collect();
            while let Some(position) = ready.pop_first() {
                done[position] = true;
                let index = component[position];
                self.function(index)?;
                operands[index as usize] = self.body.operands;
                returns.extend(self.body.returns.map(|label| (index, label)));
                for callee in plan.callees(index) {
                    let layout = &plan.functions[callee as usize];
                    if layout.component == number
                        && !done[layout.position]
                        && self.is_reached(callee)
                    {
                        ready.insert(layout.position);
                    }
                }
            }
            for (index, label) in returns {
                if label != self.done {
                    self.return_dispatch(index, label);
                }
            }
        }
        self.slow_charges();
        self.slow_pops();
        self.trap_stubs();
        self.give_stack_back();
        self.check_size()?;
        let sites = self.sites.iter().map(Vec::len);
        Ok(operands.into_iter().zip(sites).collect())
    }

    /// Whether something that has been translated calls the function.
    fn is_reached(&self, index: u32) -> bool {
        index == self.shape.entry || !self.sites[index as usize].is_empty()
    }

    fn function(&mut self, index: u32) -> Result<(), PromoteError> {
        let function = &self.shape.module.functions[index as usize];
        let layout = &self.plan.functions[index as usize];
        self.body = Body {
            index,
            code: &function.code,
            defined: vec![None; layout.locals.len()],
            ..Body::default()
        };
        self.place(function.at);
        let is_called = self.is_called();
        if is_called && index == self.shape.entry {
            self.call_handler();
        }
        self.asm.bind(self.entries[index as usize]);
        self.body.returns = Some(if is_called {
            self.asm.label()
        } else {
            self.done
        });
        self.open_function(layout.results.clone());
        self.prologue();
        for (position, op) in function.code.iter().enumerate() {
            self.body.next = position + 1;
            self.place(op.at);
            if self.body.unreachable {
                self.skip(op);
            } else {
                self.operator(op)?;
                self.check_size()?;
            }
        }
        Ok(())
    }

    /// Whether there is too much already.
    pub(super) fn is_too_long(&self) -> bool {
        self.check_load().is_err()
    }

    /// What will not be loaded is not worth making: hostile code ends here.
    fn check_size(&self) -> Result<(), PromoteError> {
        if self.body.stack.len() > MOST_OPERANDS {
            return Err(PromoteError::Frames {
                place: CodePlace::new(self.at, &self.shape.module.lines),
                found: self.body.stack.len() * 8,
                most: context::FRAMES_BYTES,
            });
        }
        self.check_load()
    }

    fn check_load(&self) -> Result<(), PromoteError> {
        let place = || CodePlace::new(self.at, &self.shape.module.lines);
        load_time::check(self.asm, self.shape.memory, place)
    }

    /// Parameters and zeros to where locals live.
    fn prologue(&mut self) {
        let layout = self.layout();
        let is_called = self.is_called();
        if is_called {
            self.function_entry();
        }
        for (index, local) in layout.locals.iter().enumerate() {
            let slot = layout.local(index as u32);
            if index < layout.params {
                self.body.defined[index] = Some(0);
                match (local.home, is_called) {
                    (Home::Unread, _) | (Home::Frame, true) => {}
                    (Home::Reg(reg), false) => self.handler_argument(index, reg),
                    (Home::Frame, false) => {
                        self.handler_argument(index, Reg::R0);
                        self.asm.store(Size::W, Reg::R9, slot, Reg::R0);
                    }
                    (Home::Reg(reg), true) => {
                        self.asm.load(width(local.wide), reg, Reg::R9, slot);
                    }
                }
            } else if local.starts_at_zero {
                self.body.defined[index] = Some(0);
                match local.home {
                    Home::Unread => {}
                    Home::Reg(reg) => self.asm.mov_imm(reg, 0),
                    Home::Frame => self.asm.store_imm(width(local.wide), Reg::R9, slot, 0),
                }
            }
        }
    }

    /// `on_rx(len, channel)`.
    pub(super) fn handler_argument(&mut self, index: usize, into: Reg) {
        if index == 0 {
            self.asm.load(Size::W, into, Reg::R9, context::PAYLOAD_LEN);
        } else {
            self.asm.mov_imm(into, 0);
        }
    }

    /// The plan for the current function.
    pub(super) fn layout(&self) -> &'e Layout {
        &self.plan.functions[self.body.index as usize]
    }

    /// What follows comes from here in the author's file.
    pub(super) fn place(&mut self, at: FileOffset) {
        self.at = at;
        self.asm.line(self.shape.module.lines.at(at));
    }

    /// Where to jump if the current operator traps.
    pub(super) fn trap(&mut self, cause: Cause) -> Label {
        if bug::is(Bug::TrapPlace) {
            return self.trap_at(cause, 0);
        }
        self.trap_at(cause, self.at)
    }

    pub(super) fn trap_at(&mut self, cause: Cause, at: FileOffset) -> Label {
        // An operator's traps follow each other, so a short look back finds
        // what can be shared.
        let known = self.stubs.iter().rev().take(8);
        let known = known.into_iter().find(|(c, a, _)| (*c, *a) == (cause, at));
        if let Some((_, _, label)) = known {
            return *label;
        }
        let label = self.asm.label();
        self.stubs.push((cause, at, label));
        label
    }

    /// Stops for the cause in `cause`.
    pub(super) fn stop_with(&mut self, cause: Reg, at: FileOffset) {
        self.asm.store(Size::W, Reg::R9, context::CAUSE, cause);
        self.asm.store_imm(Size::W, Reg::R9, context::AT, at as i32);
        self.asm.jump(self.trap);
    }

    /// What a stopped activation had on the stack in memory is the next one's.
    fn give_stack_back(&mut self) {
        let Some((offset, top)) = stack_top(self.shape.module) else {
            return;
        };
        self.asm.bind(self.trap);
        if !bug::is(Bug::StackKept) {
            self.end_with_state(offset, top);
        }
        self.asm.jump(self.out);
    }

    fn trap_stubs(&mut self) {
        for (cause, at, label) in std::mem::take(&mut self.stubs) {
            self.place(at);
            self.asm.bind(label);
            self.asm
                .store_imm(Size::W, Reg::R9, context::CAUSE, cause as i32);
            self.asm.store_imm(Size::W, Reg::R9, context::AT, at as i32);
            self.asm.jump(self.trap);
        }
    }
}

/// The stack pointer that a stopped activation leaves behind; where each CPU has one, the next
/// begins at the top anyway.
fn stack_top(module: &Module<'_>) -> Option<(u32, u32)> {
    module.stack_top().filter(|_| module.stacks().is_none())
}

/// Width of a value in memory that is ours.
pub(super) const fn width(wide: bool) -> Size {
    if wide { Size::D } else { Size::W }
}
