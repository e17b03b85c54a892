//! Runs a handler without any interface, in any of three engines.
//!
//! A [`Trial`] owns what a node's instance would: the memory, and the compiled
//! or promoted handlers over it. Messages are given by the caller, one by one,
//! and what came of each is returned: verdict or cause, message, fuel. The same
//! calls work in every [`Engine`], so that tests, measurements and
//! `ashway handler run` can compare them.
//!
//! * [`Engine::User`]: Wasmtime, as in the user tier. No privileges.
//! * [`Engine::Kernel`]: eBPF, verified and run by the kernel
//!   (`BPF_PROG_TEST_RUN`). `CAP_BPF` and `CAP_NET_ADMIN`, with `CAP_PERFMON`
//!   over an arena.
//! * [`Engine::Interpreter`]: the same eBPF in our own interpreter, which
//!   checks every access. No privileges; some hundred times slower.

#![forbid(unsafe_code)]

mod activation;
mod error;
mod interpreter;
mod kernel;
pub mod program;
mod promoted;
mod trial;
mod user;

pub use activation::{Activation, EMPTY, same_end};
pub use error::{Blame, NotRun};
pub use promoted::{Loaded, MemoryChoice, Setup};
pub use trial::{Engine, Trial};
