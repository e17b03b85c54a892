//! Frames of functions that are called again before they have returned.
//!
//! A function's frame has a fixed place, so before a call that can come back
//! to it the frame moves to the call stack, and behind the call it moves back.
//! Of functions that call each other in a cycle only the one that runs has
//! anything in its frame; whatever the callee overwrites is saved. Registers
//! go to the call stack directly.
//!
//! The call stack is a part of the per-CPU context, and
//! [`STACK`](context::STACK) says how much of it is in use. It is compared each
//! time before it becomes part of a pointer, because the verifier does not
//! follow what is in memory.
//!
//! Fuel for all that a function does is taken at its entry, so that a chain of
//! returns is paid for, however long; but as it passes no charge, it has ticks
//! of its own (`tick.rs`).

use super::emitter::{Emitter, Facts, Site, width};
use super::error::{CodePlace, PromoteError};
use super::frame::Home;
use super::stack::At;
use super::tick::Tick;
use crate::bug::{self, Bug};
use crate::normalise::Module;
use crate::normalise::ir::{FileOffset, OpKind};
use ashway_abi::{Cause, context};
use ashway_check::bpf::{Reg, Size, op};
use wasmparser::Operator;

/// Bytes of a word on the call stack.
const WORD: i16 = 8;

/// Offset of the first word from the context plus [`context::STACK`]'s value.
/// With the largest frame there is it still is an instruction's offset.
const FIRST: i16 = context::CALLS as i16;
const _: () = assert!(context::CALLS + context::FRAMES_BYTES <= i16::MAX as usize);

/// Ticks for an operator, and for a word brought back, in bytes that a bulk
/// operation moves meanwhile.
const TICKS: usize = 4;

/// Most ticks of one return: a look at the clock each time.
const MOST_TICKS: usize = 16 * 1024;

/// A return's tick, out of line.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlowPop {
    tick: Tick,
    at: FileOffset,
    /// Whether the result is in `r0`.
    keeps_r0: bool,
}

/// Something of a frame that outlives a call.
#[derive(Clone, Copy, Debug)]
enum SavedWord {
    Reg(Reg),
    /// At this offset of the context.
    Slot(i16),
}

/// Whether a handler of `module` may use the call stack, so that whoever starts
/// it has to set `STACK` to 0.
#[must_use]
pub fn recurses(module: &Module<'_>) -> bool {
    let mut code = module.functions.iter().flat_map(|f| &f.code);
    code.any(|op| matches!(op.kind, OpKind::Push { .. }))
}

impl Emitter<'_> {
    /// Whether the current operator is a call for which the frame was pushed.
    pub(super) fn is_frame_pushed(&self) -> bool {
        let next = self.body.code.get(self.body.next);
        next.is_some_and(|op| matches!(op.kind, OpKind::Pop { .. }))
    }

    /// Whether the current function is called by anything but the program
    /// around it.
    pub(super) fn is_called(&self) -> bool {
        self.body.index != self.shape.entry || self.layout().recursive
    }

    /// What the program around it does for a handler that is called again: the
    /// first call is like any other.
    pub(super) fn call_handler(&mut self) {
        let layout = self.layout();
        for param in 0..layout.params {
            if layout.locals[param].home != Home::Unread {
                self.handler_argument(param, Reg::R0);
                let slot = layout.local(param as u32);
                self.asm.store(Size::W, Reg::R9, slot, Reg::R0);
            }
        }
        let sites = &mut self.sites[self.body.index as usize];
        self.asm
            .store_imm(Size::W, Reg::R9, layout.return_id(), sites.len() as i32);
        sites.push(Site {
            back: self.done,
            facts: Facts::default(),
        });
    }

    /// Parameters live where the arguments of a call of the same function go:
    /// operands that mean one of them are read before the first is written.
    pub(super) fn own_parameters(&mut self, params: usize) {
        for height in self.body.stack.len() - params..self.body.stack.len() {
            let entry = self.body.stack[height];
            if let At::Local(local) = entry.at
                && self.layout().locals[local as usize].home == Home::Frame
            {
                let reg = self.own(entry);
                self.body.stack[height].at = At::Reg(reg);
            }
        }
    }

    /// `Push`: the frame to the call stack. A frame larger than the slots that
    /// both tiers count would overwrite the next one, and neither checker nor
    /// verifier would see that.
    pub(super) fn push_frame(&mut self, slots: u32) -> Result<(), PromoteError> {
        let (operands, _) = self.call_operands(self.body.next);
        let below = self.body.stack.len() - operands;
        let Some(most) = most_before(slots) else {
            let trap = self.trap(Cause::Stack);
            self.asm.jump(trap);
            self.stop();
            return Ok(());
        };
        let (pointer, used) = (self.alloc(), self.alloc());
        self.asm.load(Size::W, used, Reg::R9, context::STACK);
        self.call_stack_pointer(pointer, used, most);
        self.asm
            .alu_imm(op::ADD, used, i32::from(WORD) * slots as i32);
        self.asm.store(Size::W, Reg::R9, context::STACK, used);

        let kept = self.kept(below);
        if kept.len() > slots as usize {
            return Err(PromoteError::Frames {
                place: CodePlace::new(self.at, &self.shape.module.lines),
                found: WORD as usize * kept.len(),
                most: WORD as usize * slots as usize,
            });
        }
        for ((kept, size), word) in kept.into_iter().zip(0..) {
            let reg = match kept {
                SavedWord::Reg(reg) => reg,
                SavedWord::Slot(slot) => {
                    self.asm.load(size, used, Reg::R9, slot);
                    used
                }
            };
            self.asm.store(size, pointer, FIRST + WORD * word, reg);
        }
        self.release(used);
        self.release(pointer);
        // Behind the call they are in their slots.
        for height in 0..below {
            let entry = self.body.stack[height];
            if matches!(entry.at, At::Reg(_)) {
                self.note_slot(height);
                self.discard(entry);
                self.body.stack[height].at = At::Slot(height);
            }
        }
        Ok(())
    }

    /// `Pop`: the frame from the call stack. A single result stays in `r0`.
    pub(super) fn pop_frame(&mut self, slots: u32) {
        let (_, results) = self.call_operands(self.body.next - 2);
        let below = self.body.stack.len() - results;
        let most = most_before(slots).expect("a frame that is too large was never pushed");
        // Returns follow each other in a loop of their own.
        let time = self.trap(Cause::Time);
        self.asm.may_goto(time);
        let (pointer, used) = (self.alloc(), self.alloc());
        let mut work = self.body.code.len() + slots as usize;
        if bug::is(Bug::ReturnTickFree) {
            work = 0;
        }
        let tick = self.tick_by(used, work.saturating_mul(TICKS).min(MOST_TICKS) as u32);
        self.slow_pops.push(SlowPop {
            tick,
            at: self.at,
            keeps_r0: results == 1,
        });
        self.asm.load(Size::W, used, Reg::R9, context::STACK);
        self.asm
            .alu32_imm(op::SUB, used, i32::from(WORD) * slots as i32);
        self.call_stack_pointer(pointer, used, most);
        self.asm.store(Size::W, Reg::R9, context::STACK, used);
        for ((kept, size), word) in self.kept(below).into_iter().zip(0..) {
            let from = FIRST + WORD * word;
            match kept {
                SavedWord::Reg(reg) => self.asm.load(size, reg, pointer, from),
                SavedWord::Slot(slot) => {
                    self.asm.load(size, used, pointer, from);
                    self.asm.store(size, Reg::R9, slot, used);
                }
            }
        }
        if results == 1 {
            // A depth that is counted on the way back has no end for the
            // verifier.
            let wide = self.body.stack[below].wide;
            self.asm.load(Size::D, used, Reg::R9, context::ZERO);
            self.launder(wide, Reg::R0, used);
        }
        self.release(used);
        self.release(pointer);
        self.body.facts = Facts::default();
    }

    /// All ticks' ways out of line.
    pub(super) fn slow_pops(&mut self) {
        for slow in std::mem::take(&mut self.slow_pops) {
            self.place(slow.at);
            let live = &[Reg::R0][..usize::from(slow.keeps_r0)];
            self.slow_tick(slow.tick, live);
        }
    }

    /// `pointer` = the context plus `used`, which is at most `most`.
    fn call_stack_pointer(&mut self, pointer: Reg, used: Reg, most: i32) {
        let trap = self.trap(Cause::Stack);
        self.asm.jump32_if_imm(op::JGT, used, most, trap);
        self.asm.mov(pointer, Reg::R9);
        self.asm.alu(op::ADD, pointer, used);
    }

    /// What a call takes from the operand stack and what it leaves there, for
    /// the call at `position`.
    fn call_operands(&self, position: usize) -> (usize, usize) {
        let module = self.shape.module;
        let (type_index, key) = match &self.body.code[position].kind {
            OpKind::Wasm(Operator::Call { function_index }) => {
                (module.functions[*function_index as usize].type_index, 0)
            }
            OpKind::Wasm(Operator::CallIndirect { type_index, .. })
            | OpKind::CallNumber { type_index } => (*type_index, 1),
            _ => unreachable!("the normaliser pushes a frame for calls only"),
        };
        let ty = &module.types[type_index as usize];
        (ty.params().len() + key, ty.results().len())
    }

    /// The frame's living part: where to return to, locals, and operands
    /// `below` this height. The same before the call and behind it, apart from
    /// operands that were in registers.
    fn kept(&self, below: usize) -> Vec<(SavedWord, Size)> {
        let layout = self.layout();
        let mut kept = Vec::new();
        if layout.call_sites != 1 {
            kept.push((SavedWord::Slot(layout.return_id()), Size::W));
        }
        let locals = layout.locals.iter().zip(&self.body.defined).zip(0..);
        for ((local, defined), index) in locals {
            let place = match local.home {
                Home::Reg(reg) => SavedWord::Reg(reg),
                Home::Frame => SavedWord::Slot(layout.local(index)),
                Home::Unread => continue,
            };
            if defined.is_some() {
                kept.push((place, width(local.wide)));
            }
        }
        for entry in &self.body.stack[..below] {
            let place = match entry.at {
                At::Reg(reg) => SavedWord::Reg(reg),
                At::Slot(height) => SavedWord::Slot(layout.operand(height)),
                At::Const(_) | At::Local(_) => continue,
            };
            kept.push((place, width(entry.wide)));
        }
        kept
    }
}

/// How much of the call stack may be in use before so many slots are pushed.
fn most_before(slots: u32) -> Option<i32> {
    let free = context::CALL_SLOTS.checked_sub(slots)?;
    if bug::is(Bug::StackUnchecked) {
        return Some(i32::MAX);
    }
    Some(i32::from(WORD) * free as i32)
}
