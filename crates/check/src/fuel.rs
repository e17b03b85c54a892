//! The words of the context: above all, that fuel only shrinks.
//!
//! All fuel is `FUEL` + `RESERVE`. A charge takes at least 1 of it and must be
//! followed by the question whether there was any before the next charge, so
//! there are at most as many charges as there was fuel. A refill gives a slice
//! that is within what is left and takes it from the reserve before the next
//! charge, and only after a look at the clock since the last one: there is a look
//! between any two slices. The deadline is set by the first look, and once more by one that
//! uses up the grace: the time is at most twice the budget.
//! Ticks are the same without a total: their clock is the only end.

use super::Around;
use super::state::{State, fact};
use super::step::Step;
use super::value::{Num, Tag};
use super::violation::{Checked, Rule};
use crate::bpf::Size;
use crate::bpf::form::Operand;
use crate::bug::{self, Bug};
use ashway_abi::context;

/// Most ticks between two looks at the clock.
const MOST_TICKS: u64 = 1 << 16;

impl Step<'_> {
    /// A store to a field of the context, which is not a frame.
    pub(super) fn store_field(&mut self, at: i16, size: Size, num: Num, src: Operand) -> Checked {
        let first = !self.state.has(fact::BEGUN);
        // Everything that is known of a word is known of 8 bytes.
        let word = at & !7;
        let mut tag = Tag::Word(word);
        match (at, size) {
            (context::FUEL | context::RESERVE | context::DEADLINE | context::BULK, Size::D) => {
                tag = self.store_budget(at, num)?;
            }
            (context::GRACE, Size::D) => self.store_grace(num)?,
            (context::DIRTY, Size::W) if num.constant() == Some(1) => {}
            (context::DIRTY, Size::W) if num.constant() == Some(0) && first => {}
            (context::LOOKED | context::GIVEN, Size::D)
            | (context::CAUSE | context::AT | context::STACK | context::SEEN, Size::W) => {}
            (context::PAYLOAD_OFF | context::PAYLOAD_LEN, Size::W)
                if self.shape.around == Around::Stub && first => {}
            // Before the handler begins.
            (context::TIMED_FROM, Size::D) if first => {}
            (context::MOST_LEN, Size::W) if self.shape.resizes && first => {}
            // The programs around the handler find its bytes in the frame, or not.
            (context::PAYLOAD_LEN, Size::W) if self.shape.resizes => {}
            (context::SCRATCH..context::GRACE, _) if at % size.bytes() as i16 == 0 => {}
            _ => return Err(Rule::Context),
        }
        self.state.drop_tags(|tag| match tag {
            Tag::Word(at) | Tag::Spent(at, _) => at == word,
            _ => false,
        });
        if let (Operand::Reg(reg), Size::D) = (src, size) {
            self.state.learn(reg, num.tagged(tag));
        }
        Ok(())
    }

    /// The grace is there at first, and may be used up for one more deadline.
    fn store_grace(&mut self, num: Num) -> Checked {
        let (first, graced) = (!self.state.has(fact::BEGUN), self.state.has(fact::GRACE));
        match num.constant() {
            Some(0) if first => self.state.set(fact::SET_GRACE, true),
            Some(1) if graced || bug::is(Bug::CheckGraceTwice) => {
                self.state.set(fact::GRACE, false);
                self.state.set(fact::NO_DEADLINE, true);
            }
            _ => return Err(Rule::Fuel),
        }
        Ok(())
    }

    /// Says what the stored number is from now on.
    fn store_budget(&mut self, word: i16, num: Num) -> Checked<Tag> {
        let budget = self.shape.budget;
        // An eighth of the slice may come before the first look at the clock, and
        // three quarters between two.
        let slice = u64::from(budget.slice);
        let first = !self.state.has(fact::BEGUN);
        let (set, most) = match word {
            context::FUEL if first => (fact::SET_FUEL, slice / 8),
            context::FUEL => (0, slice - slice / 4),
            context::RESERVE => (fact::SET_RESERVE, budget.fuel),
            context::DEADLINE => (fact::SET_DEADLINE, 0),
            _ => (fact::SET_BULK, MOST_TICKS),
        };
        let fits = num.max <= most || bug::is(Bug::CheckFuelGrows);
        let state = &mut self.state;
        match (num.tag, word) {
            (Tag::Spent(context::FUEL, paid), context::FUEL) => {
                self.charges += u32::from(paid);
                state.begin(fact::OWES)?;
            }
            (Tag::Spent(context::BULK, paid), context::BULK) => {
                self.charges += u32::from(paid || bug::is(Bug::CheckNoTick));
                state.begin(fact::OWES_BULK)?;
            }
            (Tag::Total | Tag::Within, context::FUEL)
                if fits && !state.any(fact::DEBT | fact::CLOCK_DUE) =>
            {
                state.set(fact::OWES, false);
                state.set(fact::DEBT, true);
                return Ok(Tag::Given);
            }
            (Tag::Rest, context::RESERVE) if state.has(fact::DEBT) => state.set(fact::DEBT, false),
            (Tag::Later, context::DEADLINE) if state.has(fact::NO_DEADLINE) => {
                state.set(fact::NO_DEADLINE | fact::CLOCK_DUE, false);
            }
            (_, context::BULK)
                if fits && num.constant().is_some() && !first && !state.has(fact::CLOCK_DUE) =>
            {
                state.set(fact::OWES_BULK, false);
            }
            _ if fits && num.constant().is_some() && first => state.set(set, true),
            _ => return Err(Rule::Fuel),
        }
        // What fuel there is in all changes, or what was known of it is used up.
        if matches!(word, context::FUEL | context::RESERVE) {
            let of_total = |tag| matches!(tag, Tag::Total | Tag::Within | Tag::Given | Tag::Rest);
            self.state.drop_tags(of_total);
        }
        Ok(Tag::Word(word))
    }
}

impl State {
    /// A charge or a tick.
    fn begin(&mut self, owes: u16) -> Checked {
        if !self.has(fact::LOCKED) {
            return Err(Rule::Lock);
        }
        if !self.has(fact::SET_ALL) || self.any(owes | fact::DEBT) {
            return Err(Rule::Fuel);
        }
        self.set(fact::BEGUN | fact::CLOCK_DUE | owes, true);
        // What the clock said is old now, and so is what was seen to.
        self.drop_tags(|tag| matches!(tag, Tag::Now | Tag::Later | Tag::Returned(_)));
        Ok(())
    }
}
