//! Subprograms: what all places share that take fuel or tick.
//!
//! A subprogram gets the context and nothing else, has no stack, calls no other and writes
//! nothing but fields of the context. It is
//! followed once, from what is true of every place that calls one: a handler runs, and
//! everything may be due. What it returns 0 after having seen to is seen to where it was
//! called, if that is asked there before anything is due again. All that was known of the
//! context's fields is forgotten there.

use std::cell::Cell;
use std::collections::BTreeMap;

use super::state::fact;
use super::step::Step;
use super::value::{Num, Region, Tag, Value};
use super::violation::{Checked, Rule};
use crate::bpf::form::Form;
use crate::bpf::{Insn, helper};
use crate::bug::{self, Bug};
use ashway_abi::context;

/// Whose instructions are followed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Within<'a> {
    /// The program's, with what is still due where each of its subprograms has returned 0.
    Program(&'a BTreeMap<u32, u16>),
    /// A subprogram's, which finds that out.
    Subprogram(&'a Cell<u16>),
}

impl Step<'_> {
    /// Calls the subprogram that is so far away.
    pub(super) fn call_own(&mut self, distance: i32) -> Checked {
        let to = self.at as i64 + 1 + i64::from(distance);
        let dues = match (self.within, u32::try_from(to)) {
            (Within::Program(subprograms), Ok(to)) => subprograms.get(&to),
            _ => None,
        };
        let dues = *dues.ok_or(Rule::Helper)?;
        if self.read(1)? != Value::begin(Region::Context) {
            return Err(Rule::Helper);
        }
        if !self.state.has(fact::LOCKED) {
            return Err(Rule::Lock);
        }
        if !self.state.has(fact::SET_ALL) || self.state.any(fact::DEBT) {
            return Err(Rule::Fuel);
        }
        self.state
            .drop_tags(|tag| !matches!(tag, Tag::Lock | Tag::LowBits(..) | Tag::Even(_)));
        self.state.set(fact::NO_DEADLINE | fact::GRACE, false);
        for reg in 0..6 {
            self.state.set_reg(reg, Value::Unset);
        }
        let seen_to = fact::DUES & !dues;
        if bug::is(Bug::CheckUnasked) {
            self.state.set(seen_to, false);
        }
        let returned = Num::any(true).tagged(Tag::Returned(seen_to));
        self.state.set_reg(0, Value::Num(returned));
        Ok(())
    }

    /// Whether this may be where it is.
    pub(super) fn within_bounds(&self, insn: Insn, form: Form) -> Checked {
        let is_field = |at: Num| matches!(at.only(), Some(0..context::FRAMES));
        match (self.within, form) {
            (Within::Program(_), _) => Ok(()),
            (_, Form::Store { .. }) => match self.pointer(insn.dst, insn.off)? {
                Value::In(Region::Context, at) if is_field(at) => Ok(()),
                _ => Err(Rule::Access),
            },
            (_, Form::Atomic { .. }) => Err(Rule::Access),
            (_, Form::Call { helper }) if helper != helper::KTIME_GET_NS => Err(Rule::Helper),
            _ => Ok(()),
        }
    }

    /// Returns from a subprogram.
    pub(super) fn return_own(&self) -> Checked {
        let returned = self.number(0)?;
        if !self.state.has(fact::LOCKED) {
            return Err(Rule::Lock);
        }
        if self.state.any(fact::DEBT) {
            return Err(Rule::Fuel);
        }
        if let Within::Subprogram(dues) = self.within
            && returned.min == 0
        {
            dues.set(dues.get() | self.state.dues());
        }
        Ok(())
    }
}
