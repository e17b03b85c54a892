//! What holds at a place of the program, whichever way it was reached.

use super::value::{Base, Num, Packet, Region, Tag, Value};
use crate::bpf::Size;
use ashway_abi::context;

/// Registers that can be written.
pub(super) const REGS: usize = 10;

/// Bytes of stack, below the frame pointer.
pub(super) const STACK_BYTES: u64 = 512;

/// Stack slots of 8 bytes that programs use, from the frame pointer downwards.
const SLOTS: usize = 16;

/// Words of 8 bytes at the frames' begin, which keep numbers across helpers.
pub(super) const WORDS: usize = 4;

/// Facts that are true or not, as a bit set.
pub(super) mod fact {
    /// The lock is held, or it may be.
    pub(crate) const LOCKED: u16 = 1;
    pub(crate) const MAY_BE_LOCKED: u16 = 1 << 8;
    /// The prologue has set these words.
    pub(crate) const SET_FUEL: u16 = 1 << 1;
    pub(crate) const SET_RESERVE: u16 = 1 << 2;
    pub(crate) const SET_DEADLINE: u16 = 1 << 3;
    pub(crate) const SET_BULK: u16 = 1 << 4;
    pub(crate) const SET_GRACE: u16 = 1 << 5;
    pub(crate) const SET_ALL: u16 = SET_FUEL | SET_RESERVE | SET_DEADLINE | SET_BULK | SET_GRACE;
    /// There is no deadline yet, or the grace was just used up for another.
    pub(crate) const NO_DEADLINE: u16 = 1 << 6;
    /// There is the grace still.
    pub(crate) const GRACE: u16 = 1 << 7;
    /// A charge or a tick may have been made.
    pub(crate) const BEGUN: u16 = 1 << 9;
    /// Fuel may have been taken, and nobody has asked whether there was any.
    pub(crate) const OWES: u16 = 1 << 10;
    /// The same for bulk work.
    pub(crate) const OWES_BULK: u16 = 1 << 11;
    /// The slice may be given, and not yet taken from the reserve.
    pub(crate) const DEBT: u16 = 1 << 12;
    /// There may have been no look at the clock since the last charge or tick.
    pub(crate) const CLOCK_DUE: u16 = 1 << 13;
    /// What a subprogram can see to.
    pub(crate) const DUES: u16 = OWES | OWES_BULK | CLOCK_DUE;
    /// Facts that hold where ways join if they held on one; the others must
    /// have held on all.
    pub(super) const ON_ANY_WAY: u16 = 0xff00;
}

/// Registers, stack and facts.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct State {
    /// Registers, then stack slots, then words.
    values: [Value; REGS + SLOTS + WORDS],
    facts: u16,
}

impl State {
    /// On entry; `locked` if there is no lock to take.
    pub(super) fn entry(locked: bool) -> Self {
        let mut values = [Value::Unset; REGS + SLOTS + WORDS];
        values[1] = Value::begin(Region::Md);
        let facts = if locked { fact::LOCKED } else { 0 };
        let mut state = Self { values, facts };
        state.forget_words();
        state
    }

    /// Where a [subprogram](super::subprogram) begins, whoever calls it.
    pub(super) fn subprogram() -> Self {
        let mut state = Self::entry(true);
        state.values[1] = Value::begin(Region::Context);
        let facts = fact::MAY_BE_LOCKED | fact::SET_ALL | fact::BEGUN | fact::DUES;
        state.set(facts, true);
        state
    }

    /// Whether all of these facts hold.
    pub(super) const fn has(&self, facts: u16) -> bool {
        self.facts & facts == facts
    }

    pub(super) const fn any(&self, facts: u16) -> bool {
        self.facts & facts != 0
    }

    /// What is due.
    pub(super) const fn dues(&self) -> u16 {
        self.facts & fact::DUES
    }

    pub(super) const fn set(&mut self, facts: u16, hold: bool) {
        let others = self.facts & !facts;
        self.facts = if hold { others | facts } else { others };
    }

    /// What is in a register.
    pub(super) fn reg(&self, reg: u8) -> Value {
        let top = Value::In(Region::Stack, Num::exactly(STACK_BYTES));
        *self.values[..REGS].get(usize::from(reg)).unwrap_or(&top)
    }

    /// Writes a register below [`REGS`].
    pub(super) fn set_reg(&mut self, reg: u8, value: Value) {
        self.values[usize::from(reg)] = value;
        self.drop_tags(|tag| matches!(tag, Tag::LowBits(of, _) if of == reg));
    }

    /// What is known of a number, without the register being written.
    pub(super) fn learn(&mut self, reg: u8, num: Num) {
        if usize::from(reg) < REGS {
            self.values[usize::from(reg)] = Value::Num(num);
        }
    }

    /// The slot or word that is accessed, if it is one whole.
    pub(super) fn cell(&mut self, pointer: Value, size: Size) -> Option<&mut Value> {
        let (first, count, from, at) = match pointer {
            Value::In(Region::Stack, at) => (REGS, SLOTS, STACK_BYTES as usize - 8 * SLOTS, at),
            Value::In(Region::Context, at) => (REGS + SLOTS, WORDS, context::FRAMES as usize, at),
            _ => return None,
        };
        let at = (at.constant()? as usize).checked_sub(from)?;
        let whole = size == Size::D && at % 8 == 0 && at / 8 < count;
        whole.then(|| &mut self.values[first + at / 8])
    }

    /// Something is written to the context, at a place that may be in the words.
    pub(super) fn forget_words(&mut self) {
        self.values[REGS + SLOTS..].fill(Value::Num(Num::any(true)));
    }

    /// Takes tags away.
    pub(super) fn drop_tags(&mut self, gone: impl Fn(Tag) -> bool) {
        for value in &mut self.values {
            if let Value::Num(num) = value
                && gone(num.tag)
            {
                num.tag = Tag::None;
            }
        }
    }

    /// Nothing of which this holds may be used any more.
    pub(super) fn forget(&mut self, gone: impl Fn(Value) -> bool) {
        for value in &mut self.values {
            if gone(*value) {
                *value = Value::Unset;
            }
        }
    }

    /// The packet reaches as far as this pointer.
    pub(super) fn packet_reaches(&mut self, pointer: Packet) {
        for value in &mut self.values {
            if let Value::Packet(packet) = value
                && packet.base == pointer.base
            {
                packet.known = packet.known.max(pointer.off);
            }
        }
    }

    /// Adds another way into `block`; says whether anything is new.
    pub(super) fn join(&mut self, other: &Self, block: usize, widen: bool) -> bool {
        let before = self.clone();
        for (place, value) in self.values.iter_mut().enumerate() {
            *value = value.join(other.values[place], Base::Joined(block, place), widen);
        }
        let any = (self.facts | other.facts) & fact::ON_ANY_WAY;
        self.facts = self.facts & other.facts | any;
        *self != before
    }
}
