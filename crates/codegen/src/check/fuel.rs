//! The words of the context: above all, that fuel only shrinks.
//!
//! All fuel is `FUEL` + `RESERVE`. A charge takes at least 1 of it and must be
//! followed by the question whether there was any before the next charge, so
//! there are at most as many charges as there was fuel. A refill gives a slice
//! that is within what is left, takes it from the reserve, and looks at the
//! clock, all before the next charge: there is a look between any two slices.
//! Ticks are the same without a total: their clock is the only end.

use super::Around;
use super::state::{REGS, fact};
use super::step::{LOOP_MOST, Step};
use super::value::{Num, Tag};
use super::violation::{Fail, Rule, refuse};
use crate::bpf::Size;
use crate::bpf::form::Operand;
use ashway_abi::context;

/// Most ticks between two looks at the clock.
const MOST_TICKS: u64 = 1 << 16;

impl Step<'_> {
    /// A store to a field of the context, which is not a frame.
    pub(super) fn store_field(
        &mut self,
        at: i16,
        size: Size,
        num: Num,
        src: Operand,
    ) -> Result<(), Fail> {
        let first = !self.state.has(fact::BEGUN);
        // Everything that is known of a word is known of 8 bytes.
        let word = at & !7;
        let mut tag = Tag::Same(word);
        match (at, size) {
            (context::FUEL, Size::D) => tag = self.store_fuel(num)?,
            (context::RESERVE, Size::D) => self.store_reserve(num)?,
            (context::DEADLINE, Size::D) => self.store_deadline(num)?,
            (context::BULK, Size::D) => self.store_bulk(num)?,
            (context::DIRTY, Size::W) if num.constant() == Some(1) => {}
            (context::DIRTY, Size::W) if num.constant() == Some(0) && first => {}
            (context::CAUSE | context::AT | context::STACK, Size::W) => {}
            (context::PAYLOAD_OFF | context::PAYLOAD_LEN, Size::W)
                if self.shape.around == Around::Stub && first => {}
            (context::SCRATCH..context::BULK, _) if at % size.bytes() as i16 == 0 => {
                let bit = 1 << ((at - context::SCRATCH) / 8);
                if num.tag == Tag::More(at) && num.max <= LOOP_MOST && size == Size::D {
                    self.facts.words_grown |= bit;
                } else {
                    self.facts.words_written |= bit;
                }
            }
            _ => return refuse(Rule::Context, format!("{at} is written with {num:?}")),
        }
        self.state.word_changes(word);
        if let (Operand::Reg(reg), Size::D) = (src, size)
            && usize::from(reg) < REGS
        {
            self.state.learn(reg, num.tagged(tag));
        }
        Ok(())
    }

    /// Says what the stored number is from now on.
    fn store_fuel(&mut self, num: Num) -> Result<Tag, Fail> {
        let state = &mut self.state;
        let slice = num.max <= self.shape.budget.slice.into();
        match num.tag {
            Tag::Less(context::FUEL) | Tag::AtMost(context::FUEL) => {
                if !state.has(fact::SET_ALL) {
                    return refuse(Rule::Fuel, "the budget was not set");
                }
                self.facts.charges += u32::from(num.tag == Tag::Less(context::FUEL));
                self.begin(fact::OWES)?;
                self.state.total_changes();
            }
            Tag::Total | Tag::Within if slice && !state.any(fact::DEBT | fact::OWES) => {
                state.set(fact::DEBT, true);
                self.clock_is_due();
                return Ok(Tag::Given);
            }
            _ if num.constant().is_some() && slice && !state.has(fact::BEGUN) => {
                state.set(fact::SET_FUEL, true);
                state.total_changes();
            }
            _ => return refuse(Rule::Fuel, format!("the slice becomes {num:?}")),
        }
        Ok(Tag::Same(context::FUEL))
    }

    fn store_reserve(&mut self, num: Num) -> Result<(), Fail> {
        let state = &mut self.state;
        let within = num
            .constant()
            .is_some_and(|fuel| fuel <= self.shape.budget.fuel);
        if num.tag == Tag::Rest && state.has(fact::DEBT) {
            state.set(fact::DEBT, false);
        } else if within && !state.has(fact::BEGUN) {
            state.set(fact::SET_RESERVE, true);
        } else {
            return refuse(Rule::Fuel, format!("the reserve becomes {num:?}"));
        }
        state.total_changes();
        Ok(())
    }

    fn store_deadline(&mut self, num: Num) -> Result<(), Fail> {
        let state = &mut self.state;
        if num.tag == Tag::Later && state.has(fact::NO_DEADLINE) {
            state.set(fact::NO_DEADLINE, false);
            state.clock_is_read();
        } else if num.constant() == Some(0) && !state.has(fact::BEGUN) {
            state.set(fact::SET_DEADLINE, true);
        } else {
            return refuse(Rule::Fuel, format!("the deadline becomes {num:?}"));
        }
        Ok(())
    }

    fn store_bulk(&mut self, num: Num) -> Result<(), Fail> {
        if matches!(
            num.tag,
            Tag::Less(context::BULK) | Tag::AtMost(context::BULK)
        ) {
            self.facts.ticks += u32::from(num.tag == Tag::Less(context::BULK));
            return self.begin(fact::OWES_BULK);
        }
        if num.constant().is_none_or(|ticks| ticks > MOST_TICKS) {
            return refuse(Rule::Fuel, format!("the ticks become {num:?}"));
        }
        self.state.set(fact::OWES_BULK, false);
        if self.state.has(fact::BEGUN) {
            self.clock_is_due();
        }
        Ok(())
    }

    /// A charge or a tick.
    fn begin(&mut self, owes: u16) -> Result<(), Fail> {
        let state = &mut self.state;
        for (fact, what) in [
            (owes, "nobody asked whether the last charge was covered"),
            (fact::DEBT, "the last slice was not taken from the reserve"),
            (
                fact::CLOCK_DUE,
                "a slice was given without a look at the clock",
            ),
        ] {
            if state.has(fact) {
                return refuse(Rule::Fuel, what);
            }
        }
        if !state.has(fact::LOCKED) {
            return refuse(Rule::Lock, "a charge without it");
        }
        state.set(fact::BEGUN | owes, true);
        state.set(fact::LOOKED, false);
        // What the clock said is old now.
        state.drop_tags(|tag| matches!(tag, Tag::Now | Tag::Later));
        Ok(())
    }

    /// Either before or after it.
    fn clock_is_due(&mut self) {
        let looked = self.state.has(fact::LOOKED);
        self.state.set(fact::CLOCK_DUE, !looked);
        self.state.set(fact::LOOKED, false);
    }
}
