//! The specification's scripts (`.wast`): what WebAssembly itself promises.
//!
//! A script defines modules, calls their exports and says what must come of it.
//! Every command of every script is tried; what cannot be run is counted by
//! reason.

mod module;
mod reason;
mod report;
mod run;
mod spectest;
mod suite;
mod tally;
mod value;

pub use report::Report;
pub use run::{plenty, run};
pub use suite::{Script, all, select};
pub use tally::{Failure, ScriptResult, Tally};
