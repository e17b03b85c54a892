//! What becomes of a file, whatever is in it: all that a node does before it
//! runs a handler, and nothing after.

use ashway_abi::{Budget, MemoryKind};
use ashway_check::{Around, check};
use ashway_codegen::normalise::{Limits, encode, normalise};
use ashway_codegen::promote::{Checks, Shape};
use ashway_codegen::stub;
use std::fmt;

/// What became of a file.
#[derive(Clone, Debug)]
pub enum Answer {
    /// It is a handler; the kernel tier's reason if it stays in the user tier.
    Accepted {
        /// Why it cannot be promoted, if so.
        user_tier_only: Option<String>,
    },
    /// It is none.
    Refused {
        /// Why.
        why: String,
        /// Where in the file, if it is one place.
        place: Option<u32>,
        /// What its author can do next.
        hint: String,
    },
}

/// What a node allows a handler; the CPUs and so on are those of a small machine.
const BUDGET: Budget = Budget {
    fuel: 10_000,
    slice: 1_000,
    ns: 50_000,
};
const CPUS: u32 = 1;

/// Reads, encodes, translates and checks a file; `before_check` is called in
/// between, if there is something to check.
#[must_use]
pub fn answer(wasm: &[u8], before_check: impl FnOnce()) -> Answer {
    let module = match normalise(wasm, &Limits::default()) {
        Ok(module) => module,
        Err(error) => {
            return Answer::Refused {
                why: error.to_string(),
                place: error.place(),
                hint: error.hint(),
            };
        }
    };
    let _ = encode(&module);
    let entry = module.exports.iter().find(|(name, _)| name == "on_rx");
    let layout = stub::layout(&module);
    let shape = Shape {
        module: &module,
        entry: entry.map_or(0, |(_, function)| *function),
        memory: MemoryKind::Arena,
        layout,
        budget: BUDGET,
        locals_in_memory: false,
        checks: Checks::default(),
    };
    let user_tier_only = match stub::generate(&shape, CPUS) {
        Err(error) => Some(error.to_string()),
        Ok((image, _)) => {
            before_check();
            let shape = ashway_check::Shape {
                around: Around::Stub,
                memory: shape.memory,
                layout,
                cpus: CPUS,
                budget: BUDGET,
                resizes: module.resizes(),
            };
            let violation = check(&image, &shape).err();
            violation.map(|violation| violation.because())
        }
    };
    Answer::Accepted { user_tier_only }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accepted {
                user_tier_only: None,
            } => write!(f, "accepted in both tiers"),
            Self::Accepted {
                user_tier_only: Some(why),
            } => write!(f, "accepted in the user tier: {why}"),
            Self::Refused { why, place, hint } => {
                write!(f, "refused: {why}")?;
                if let Some(place) = place {
                    write!(f, " at {place:#x}")?;
                }
                write!(f, ": {hint}")
            }
        }
    }
}
