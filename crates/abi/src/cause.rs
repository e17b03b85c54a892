//! Why a handler was stopped: the causes of an involuntary abort.

/// The closed table of causes (ASH paper §III.B; the Wasm traps by the names
/// of the WebAssembly specification §4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Cause {
    /// `unreachable` was executed.
    Unreachable = 1,
    /// A load or store outside the handler's memory.
    MemoryBounds = 2,
    /// A message access outside the message.
    MessageBounds = 3,
    /// An integer division by zero.
    DivideByZero = 4,
    /// A signed division whose result does not fit.
    Overflow = 5,
    /// A `call_indirect` through a null, mistyped or absent table entry.
    IndirectCall = 6,
    /// Calls nested too deeply.
    Stack = 7,
    /// The budget's fuel ran out: the same instruction in both tiers.
    Fuel = 8,
    /// The budget's time ran out: the outer net, not reproducible.
    Time = 9,
    /// The handler returned a number that is no verdict.
    BadVerdict = 10,
    /// An atomic access to an address that is no multiple of its size.
    Unaligned = 11,
    /// A table access outside the table.
    TableBounds = 12,
}

impl Cause {
    /// Every cause, in numerical order, starting at 1.
    pub const ALL: [Self; 12] = [
        Self::Unreachable,
        Self::MemoryBounds,
        Self::MessageBounds,
        Self::DivideByZero,
        Self::Overflow,
        Self::IndirectCall,
        Self::Stack,
        Self::Fuel,
        Self::Time,
        Self::BadVerdict,
        Self::Unaligned,
        Self::TableBounds,
    ];

    /// The cause with this number, if there is one.
    #[must_use]
    pub const fn from_number(number: u32) -> Option<Self> {
        if number >= 1 && number <= Self::ALL.len() as u32 {
            Some(Self::ALL[number as usize - 1])
        } else {
            None
        }
    }

    /// The name used in the CLI, in metrics and in documents.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::MemoryBounds => "memory_bounds",
            Self::MessageBounds => "message_bounds",
            Self::DivideByZero => "divide_by_zero",
            Self::Overflow => "overflow",
            Self::IndirectCall => "indirect_call",
            Self::Stack => "stack",
            Self::Fuel => "fuel",
            Self::Time => "time",
            Self::BadVerdict => "bad_verdict",
            Self::Unaligned => "unaligned",
            Self::TableBounds => "table_bounds",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_positions_and_zero_is_no_cause() {
        for (position, cause) in Cause::ALL.into_iter().enumerate() {
            assert_eq!(cause as usize, position + 1);
            assert_eq!(Cause::from_number(position as u32 + 1), Some(cause));
        }
        assert_eq!(Cause::from_number(0), None);
        assert_eq!(Cause::from_number(13), None);
    }
}
