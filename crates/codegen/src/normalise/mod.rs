//! Wasm to the normal form that both tiers run.
//!
//! Fuel, message access, mutable state, references and recursion are made
//! explicit here, once, so that they mean the same in Wasmtime and in the
//! kernel by construction.
//!
//! [`normalise`] reads, validates and rewrites an author's file; [`encode`]
//! writes the result as Wasm again, for Wasmtime. Accepted are WebAssembly 2.0
//! modules, with the threads proposal's atomic operators, that define and
//! export one `memory` with a maximum, export `on_rx`, and import nothing but
//! host calls ([`Profile::Library`] asks for less). A module without the
//! section `ashway.abi` counts as version 1, so that hand-written text files
//! need no custom section.
//!
//! What differs from the author's module, and where it is done: references are
//! numbers (`references.rs`), tables that operators change and passive segments
//! lie in the state region (`state.rs`) and their operators are spelled out
//! (`tables.rs`), calls that can come back count their depth (`recursion.rs`),
//! loops and functions that run often pay fuel (`fuel.rs`), which [`check_bounded`]
//! looks at once more in what is given to Wasmtime. A `shared` memory
//! is a plain one; `memory.atomic.wait` and `notify` are refused. A module that is to run on
//! several CPUs at once is made one in a further step ([`Module::make_parallel`]).

mod body;
mod bounded;
pub mod cost;
mod encode;
mod error;
mod expand;
mod fields;
mod fuel;
mod host;
mod identity;
mod imports;
mod invoke;
pub mod ir;
mod limits;
mod lines;
mod message;
mod parallel;
mod pipes;
mod profile;
mod read;
mod recursion;
mod references;
mod segments;
mod send;
mod state;
mod state_range;
mod tables;

pub use bounded::{Unbounded, check as check_bounded};
pub use encode::{ENTER_PREFIX, Encoded, START_EXPORT, encode};
pub use error::NormaliseError;
pub use fuel::static_bound;
pub use invoke::{INVOKE_PREFIX, INVOKE_SLOT};
pub use ir::Module;
pub use limits::Limits;
pub use lines::Lines;
pub use parallel::{Parallel, ParallelError, Stacks, Threads};
pub use pipes::{MAX_LISTS, PipeList, Pipes};
pub use profile::Profile;
pub use read::{normalise, normalise_as};
pub use state_range::{MIGRATE, StateRange};
