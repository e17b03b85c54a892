//! Why a pipe or a list of pipes is refused.

use super::ir::{Gauge, MAX_OPS, MAX_REGISTERS};
use super::list::{MAX_CIPHERS, MAX_PIPES};

/// What is wrong with a pipe. Always the writer's fault, and always by name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PipeError {
    /// The output is not the input.
    #[error("`{pipe}` claims no-mod, but what it gives is not the word it took")]
    Modifies {
        /// The pipe.
        pipe: String,
    },
    /// A register is set, or read and reduced into.
    #[error(
        "`{pipe}` claims to be commutative, but its register `{register}` depends on the order of words"
    )]
    Ordered {
        /// The pipe.
        pipe: String,
        /// Its register.
        register: String,
    },
    /// The length of the data would change.
    #[error(
        "`{pipe}` takes words of {input} and gives words of {output}; a list keeps the length of the data"
    )]
    GaugesDiffer {
        /// The pipe.
        pipe: String,
        /// What it takes.
        input: Gauge,
        /// What it gives.
        output: Gauge,
    },
    /// Nothing computes with this width.
    #[error(
        "`{pipe}` computes with {width} on words of {gauge}; possible are 8, 16, 32 and 64 bits, not less than the word"
    )]
    NoSuchWidth {
        /// The pipe.
        pipe: String,
        /// Its words.
        gauge: Gauge,
        /// What it computes with.
        width: Gauge,
    },
    /// Too many operators.
    #[error("`{pipe}` has {ops} operators; at most {MAX_OPS}")]
    TooManyOps {
        /// The pipe.
        pipe: String,
        /// How many.
        ops: usize,
    },
    /// Too many registers.
    #[error("`{pipe}` has {registers} persistent registers; at most {MAX_REGISTERS}")]
    TooManyRegisters {
        /// The pipe.
        pipe: String,
        /// How many.
        registers: usize,
    },
    /// An operator that means nothing.
    #[error("operator {at} of `{pipe}` {what}")]
    Malformed {
        /// The pipe.
        pipe: String,
        /// Index of the operator.
        at: usize,
        /// What is wrong with it.
        what: &'static str,
    },
    /// Too many ciphers.
    #[error("`{pipe}` would be cipher {count} of the list; at most {MAX_CIPHERS}")]
    TooManyCiphers {
        /// The first that does not fit.
        pipe: String,
        /// How many there would be.
        count: usize,
    },
    /// Too many pipes.
    #[error("`{pipe}` would be pipe {count} of the list; at most {MAX_PIPES}")]
    ListTooLong {
        /// The first that does not fit.
        pipe: String,
        /// How many there would be.
        count: usize,
    },
}

impl PipeError {
    /// What to do about it.
    #[must_use]
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Modifies { .. } => "give the input, or do not claim no-mod",
            Self::Ordered { .. } => {
                "reduce into registers that the body does not read, or do not claim commutative"
            }
            Self::GaugesDiffer { .. } => "take and give words of one gauge",
            Self::NoSuchWidth { .. } => "choose the gauge, or a wider one up to 64 bits",
            Self::TooManyOps { .. } | Self::TooManyRegisters { .. } => "make two pipes of it",
            Self::Malformed { .. } => "use values of earlier operators and registers of the pipe",
            Self::ListTooLong { .. } | Self::TooManyCiphers { .. } => "make two lists of it",
        }
    }
}
