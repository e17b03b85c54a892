//! What holds at a place of the program, whichever way it was reached.

use super::value::{Base, Num, Packet, Tag, Value};
use ashway_abi::context;

/// Stack slots of 8 bytes that programs use, from the frame pointer downwards.
pub(super) const SLOTS: usize = 16;

/// Words of 8 bytes at the frames' begin, which keep numbers across helpers.
pub(super) const WORDS: usize = 4;

/// Registers that can be written.
pub(super) const REGS: usize = 10;

/// Facts that are true or not, as a bit set.
pub(super) mod fact {
    /// The lock is held, or it may be.
    pub(crate) const LOCKED: u16 = 1;
    pub(crate) const MAY_BE_LOCKED: u16 = 1 << 8;
    /// The prologue has set these words.
    pub(crate) const SET_FUEL: u16 = 1 << 1;
    pub(crate) const SET_RESERVE: u16 = 1 << 2;
    pub(crate) const SET_DEADLINE: u16 = 1 << 3;
    pub(crate) const SET_ALL: u16 = SET_FUEL | SET_RESERVE | SET_DEADLINE;
    /// The clock was looked at since the last charge.
    pub(crate) const LOOKED: u16 = 1 << 4;
    /// There is no deadline yet.
    pub(crate) const NO_DEADLINE: u16 = 1 << 5;
    /// A charge or a tick may have been made.
    pub(crate) const BEGUN: u16 = 1 << 9;
    /// Fuel may have been taken, and nobody has asked whether there was any.
    pub(crate) const OWES: u16 = 1 << 10;
    /// The same for bulk work.
    pub(crate) const OWES_BULK: u16 = 1 << 11;
    /// The slice may be given, and not yet taken from the reserve.
    pub(crate) const DEBT: u16 = 1 << 12;
    /// A slice may be given without a look at the clock.
    pub(crate) const CLOCK_DUE: u16 = 1 << 13;
    /// Facts that hold where ways join if they held on one; the others must
    /// have held on all.
    pub(super) const ON_ANY_WAY: u16 = 0xff00;
}

/// Registers, stack and facts.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct State {
    /// Registers, then stack slots, then words; what nobody wrote into a word is
    /// a number like any other.
    values: [Value; REGS + SLOTS + WORDS],
    facts: u16,
}

impl State {
    /// On entry; `locked` if there is no lock to take.
    pub(super) fn entry(locked: bool) -> Self {
        let mut values = [Value::Unset; REGS + SLOTS + WORDS];
        values[1] = Value::Md;
        Self {
            values,
            facts: if locked { fact::LOCKED } else { 0 },
        }
    }

    /// Whether all of these facts hold.
    pub(super) const fn has(&self, facts: u16) -> bool {
        self.facts & facts == facts
    }

    pub(super) const fn any(&self, facts: u16) -> bool {
        self.facts & facts != 0
    }

    /// Somebody has asked whether it is late.
    pub(super) const fn clock_is_read(&mut self) {
        self.set(fact::CLOCK_DUE, false);
        self.set(fact::LOOKED, true);
    }

    pub(super) const fn set(&mut self, facts: u16, hold: bool) {
        self.facts = if hold {
            self.facts | facts
        } else {
            self.facts & !facts
        };
    }

    /// What is in a register; nothing if there is none of that number.
    pub(super) fn reg(&self, reg: u8) -> Value {
        match usize::from(reg) {
            REGS => Value::Stack(0),
            reg if reg < REGS => self.values[reg],
            _ => Value::Unset,
        }
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

    pub(super) fn slot(&mut self, slot: usize) -> &mut Value {
        &mut self.values[REGS + slot]
    }

    pub(super) fn word(&mut self, word: usize) -> &mut Value {
        &mut self.values[REGS + SLOTS + word]
    }

    /// Something is written to the context from this offset on, up to `end`.
    pub(super) fn forget_words(&mut self, from: i64, end: i64) {
        for word in 0..WORDS {
            let at = i64::from(context::FRAMES) + 8 * word as i64;
            if from < at + 8 && at < end {
                *self.word(word) = Value::Unset;
            }
        }
    }

    /// What a call leaves of `r0`-`r5`.
    pub(super) fn clobber(&mut self) {
        for reg in 0..6 {
            self.set_reg(reg, Value::Unset);
        }
    }

    fn each(&mut self, mut change: impl FnMut(&mut Value)) {
        self.values.iter_mut().for_each(&mut change);
    }

    /// Takes tags away.
    pub(super) fn drop_tags(&mut self, gone: impl Fn(Tag) -> bool) {
        self.each(|value| {
            if let Value::Num(num) = value
                && gone(num.tag)
            {
                num.tag = Tag::None;
            }
        });
    }

    /// The word at this offset of the context changes.
    pub(super) fn word_changes(&mut self, word: i16) {
        self.drop_tags(|tag| match tag {
            Tag::Same(at) | Tag::Less(at) | Tag::AtMost(at) | Tag::More(at) => at == word,
            _ => false,
        });
    }

    /// What fuel there is in all changes, or what was known of it is used up.
    pub(super) fn total_changes(&mut self) {
        self.drop_tags(|tag| matches!(tag, Tag::Total | Tag::Within | Tag::Given | Tag::Rest));
    }

    /// The base means another place from now on.
    pub(super) fn forget_base(&mut self, base: Base) {
        self.each(|value| {
            if matches!(value, Value::Packet(packet) if packet.base == base) {
                *value = Value::Unset;
            }
        });
    }

    /// The packet has moved.
    pub(super) fn forget_packet(&mut self) {
        self.each(|value| {
            if matches!(value, Value::Packet(_) | Value::PacketEnd) {
                *value = Value::Unset;
            }
        });
    }

    /// The packet reaches as far as this pointer.
    pub(super) fn packet_reaches(&mut self, pointer: Packet) {
        self.each(|value| {
            if let Value::Packet(packet) = value
                && packet.base == pointer.base
            {
                packet.known = packet.known.max(pointer.off);
            }
        });
    }

    /// Adds another way into `block`; says whether anything is new.
    pub(super) fn join(&mut self, other: &Self, block: usize, widen: bool) -> bool {
        let before = self.clone();
        for (place, value) in self.values.iter_mut().enumerate() {
            *value = value.join(other.values[place], block, place, widen);
        }
        let any = (self.facts | other.facts) & fact::ON_ANY_WAY;
        self.facts = self.facts & other.facts | any;
        *self != before
    }
}
