//! The user tier's engine: normalised modules in Wasmtime.
//!
//! An [`Engine`] holds what all instances share: the compiler's settings and
//! the clocks by which budgets end. An [`Instance`] is one
//! handler's module over one memory; [`Instance::activate`] runs it for one
//! message and says what it decided or why it was stopped.
//!
//! The memory is not ours: a [`Region`] is, as a rule, a BPF arena or an array
//! ([`ashway_memory::Memory`]) that the kernel tier and the application use at
//! the same time. `memory.rs` and [`native`], which maps and calls compiled pipes,
//! are the only files here with `unsafe` in them.
//!
//! A handler's result is an allegation. Time is an argument: a [`Budget`] is over by
//! the [`Clocks`] of the engine. Nothing else stops a handler: so what is compiled was
//! seen to ask them ([`check_bounded`](ashway_codegen::normalise::check_bounded)).

#![deny(unsafe_code)]

mod bug;
mod compiled;
mod engine;
mod instance;
mod log;
#[allow(unsafe_code, reason = "the fence around memory that others share")]
mod memory;
mod meter;
#[allow(unsafe_code, reason = "calls code that was made at run time")]
pub mod native;
mod outbox;
mod outcome;
pub mod param;
mod pipes;

pub use compiled::Compiled;
pub use engine::{Engine, EngineError};
pub use instance::{Function, Instance, InstantiateError, START_FUEL};
pub use memory::{MESSAGE_BYTES, Region};
pub use meter::{Budget, Clocks, SLICE};
pub use outcome::{Outcome, Stopped};
pub use param::{Param, ParamError};
