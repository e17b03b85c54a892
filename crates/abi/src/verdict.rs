//! What a handler decided about a message.
//!
//! A verdict is an *allegation*: the handler returns a number, trusted code
//! looks it up here and does what it says, or stops the handler with
//! [`Cause::BadVerdict`](crate::Cause::BadVerdict).

/// The closed table of verdicts; docs/abi/README.md, "Verdicts", says what each one
/// does. 0 is success with nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Verdict {
    /// The message is used up.
    Consume = 0,
    /// The same buffer goes back to the sender.
    Reply = 1,
    /// The message goes to the application's ring.
    Deliver = 2,
    /// The host's own stack gets the message, unchanged.
    Pass = 3,
    /// The message goes to another path or a next hop.
    Forward = 4,
    /// The message is discarded.
    Drop = 5,
    /// Voluntary abort: the handler undid its work and hands the message on.
    Abort = 6,
}

impl Verdict {
    /// Every verdict, in numerical order.
    pub const ALL: [Self; 7] = [
        Self::Consume,
        Self::Reply,
        Self::Deliver,
        Self::Pass,
        Self::Forward,
        Self::Drop,
        Self::Abort,
    ];

    /// The verdict with this number, if there is one.
    #[must_use]
    pub const fn from_number(number: u32) -> Option<Self> {
        if number < Self::ALL.len() as u32 {
            Some(Self::ALL[number as usize])
        } else {
            None
        }
    }

    /// The name used in the CLI, in metrics and in documents.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Consume => "consume",
            Self::Reply => "reply",
            Self::Deliver => "deliver",
            Self::Pass => "pass",
            Self::Forward => "forward",
            Self::Drop => "drop",
            Self::Abort => "abort",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_positions_and_the_table_is_closed() {
        for (position, verdict) in Verdict::ALL.into_iter().enumerate() {
            assert_eq!(verdict as usize, position);
            assert_eq!(Verdict::from_number(position as u32), Some(verdict));
        }
        assert_eq!(Verdict::from_number(7), None);
        assert_eq!(Verdict::from_number(u32::MAX), None);
    }
}
