//! Handlers that mean harm, and what has to become of each of them.
//!
//! The corpus is the `*.wat` and `*.c` files beside this crate's manifest; what
//! a file tries, and how that must end, is its first line:
//!
//! ```text
//! ;; both: memory_bounds at i32.load. What it tries.
//! ;; user: consume; kernel: refused "has no eBPF counterpart". What it tries.
//! ;; refused "unknown import". What it tries.
//! ```
//!
//! The README says what can stand there. [`corpus`] reads all of it; the tests of
//! this crate hold it against the engines, those of `ashway-netns` against a node.

#![forbid(unsafe_code)]

mod corpus;
mod expect;

pub use corpus::{Entry, corpus};
pub use expect::{End, Expectation, Memory, StopPlace, Tier, parse};
