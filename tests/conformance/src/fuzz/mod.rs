//! Differential fuzzing: a module means the same in every engine, or is refused.
//!
//! The oracle is agreement: verdict and results, cause and place of a stop, fuel
//! left, the message, and in the end every byte of memory and state. What a
//! clock ended (`time`) is exempt: no two clocks agree.

mod campaign;
mod compare;
mod generate;
mod program;
mod random;

pub use campaign::Campaign;
pub use compare::{Findings, Lane, compare};
pub use generate::{Case, generate};
pub use random::Random;
