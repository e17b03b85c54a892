//! Why a program was refused.

use crate::bpf::Image;

/// What a program must keep to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// Only instructions that exist; jumps only to instructions.
    Instruction,
    /// A register or a stack slot is written before it is read.
    Unset,
    /// A memory access is one of those we make, inside its region.
    Access,
    /// A packet access is covered by a comparison with the packet's end.
    Packet,
    /// The context: only the fields a program may touch, and how it may.
    Context,
    /// A kernel pointer goes to a stack slot and nowhere else.
    Pointer,
    /// Helpers: those we call, with the arguments they take.
    Helper,
    /// Only the maps of that kind of program.
    Map,
    /// Every cycle takes fuel, ticks, or has a constant bound.
    Cycle,
    /// Fuel never grows, and each slice ends with a look at the clock.
    Fuel,
    /// The handler runs under the lock, which is released on every way out.
    Lock,
    /// Following the program takes no longer than it should.
    Size,
}

impl Rule {
    const fn words(self) -> &'static str {
        match self {
            Self::Instruction => "no such instruction or place",
            Self::Unset => "nothing was written there",
            Self::Access => "an access outside what the program may reach",
            Self::Packet => "a packet access that no comparison covers",
            Self::Context => "an access to the context that is not allowed",
            Self::Pointer => "a kernel pointer where only numbers may be",
            Self::Helper => "a helper call that is not allowed",
            Self::Map => "a map that the program may not name",
            Self::Cycle => "a loop without a bound",
            Self::Fuel => "fuel that is not accounted for",
            Self::Lock => "the instance's lock is not kept",
            Self::Size => "too complex to be followed",
        }
    }
}

/// A finished program is not of the form that translated handlers have.
///
/// Not a fault of the handler, but a bug of the translator (or of the checker):
/// the handler stays in the user tier.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("instruction {insn}: {}: {what}", self.rule.words())]
#[non_exhaustive]
pub struct Violation {
    /// Index of the instruction.
    pub insn: usize,
    /// The rule.
    pub rule: Rule,
    /// What was found.
    pub what: String,
    /// The line of the author's code it comes from, if known.
    pub line: Option<(String, u32)>,
}

impl Violation {
    /// Who is to blame, in a sentence.
    #[must_use]
    pub fn because(&self) -> String {
        format!("the translation did not pass our own checker, a bug of the translator ({self})")
    }

    /// What to do next.
    #[must_use]
    pub const fn hint(&self) -> &'static str {
        "please report it with the handler; it runs in the user tier until then"
    }

    pub(super) fn at(insn: usize, fail: Fail, image: &Image) -> Self {
        let before = image
            .lines
            .partition_point(|line| line.insn as usize <= insn);
        let line = before.checked_sub(1).map(|last| &image.lines[last]);
        Self {
            insn,
            rule: fail.rule,
            what: fail.what,
            line: line
                .filter(|l| l.number != 0)
                .map(|l| (l.file.clone(), l.number)),
        }
    }
}

/// A violation whose place is known to the caller.
#[derive(Debug)]
pub(super) struct Fail {
    rule: Rule,
    what: String,
}

impl Fail {
    pub(super) fn new(rule: Rule, what: impl Into<String>) -> Self {
        Self {
            rule,
            what: what.into(),
        }
    }
}

/// The error.
pub(super) fn refuse<T>(rule: Rule, what: impl Into<String>) -> Result<T, Fail> {
    Err(Fail::new(rule, what))
}
