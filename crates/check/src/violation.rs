//! Why a program was refused.

use std::fmt;

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
    /// Every cycle takes fuel or ticks, or is the kernel's to end.
    Cycle,
    /// Fuel never grows, and each slice ends with a look at the clock.
    Fuel,
    /// The handler runs under the lock, which is released on every way out.
    Lock,
    /// There is not more to follow than the checker has time for.
    Work,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Instruction => "no instruction, or a jump to none",
            Self::Unset => "read before it is written",
            Self::Access => "a memory access outside its region",
            Self::Packet => "a packet access without a look at the packet's end",
            Self::Context => "a field of the context that is not for programs",
            Self::Pointer => "a kernel pointer where none may be",
            Self::Helper => "a helper, or an argument of one, that we do not use",
            Self::Map => "a map of another kind of program",
            Self::Cycle => "a cycle that takes no fuel",
            Self::Fuel => "fuel that grows, or a slice without a look at the clock",
            Self::Lock => "the handler without the lock, or a way out that keeps it",
            Self::Work => "more to follow than there is time for",
        })
    }
}

/// What comes of something that must keep to the rules.
pub(super) type Checked<T = ()> = Result<T, Rule>;

/// A finished program is not of the form that translated handlers have.
///
/// Not a fault of the handler, but a bug of the translator (or of the checker),
/// unless it is too large ([`Rule::Work`]): it stays in the user tier.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("instruction {insn}: {rule}: {what}")]
#[non_exhaustive]
pub struct Violation {
    /// Index of the instruction.
    pub insn: usize,
    /// The rule.
    pub rule: Rule,
    /// What is there, and what its registers hold.
    pub what: String,
    /// The line of the author's code it comes from, if known.
    pub line: Option<(String, u32)>,
}

impl Violation {
    /// Who is to blame, in a sentence.
    #[must_use]
    pub fn because(&self) -> String {
        let blame = ["a bug of the translator", "too large for it"];
        let blame = blame[usize::from(self.rule == Rule::Work)];
        format!("the translation did not pass our own checker, {blame} ({self})")
    }

    /// What to do next.
    #[must_use]
    pub const fn hint(&self) -> &'static str {
        match self.rule {
            Rule::Work => "a shorter handler may pass; this one runs in the user tier",
            _ => "please report it with the handler; it runs in the user tier until then",
        }
    }

    pub(super) fn at(insn: usize, rule: Rule, what: impl Into<String>, image: &Image) -> Self {
        let known = image.lines.iter().rfind(|line| line.insn as usize <= insn);
        let known = known.filter(|line| line.number != 0);
        let line = known.map(|line| (line.file.clone(), line.number));
        let what = what.into();
        Self {
            insn,
            rule,
            what,
            line,
        }
    }
}
