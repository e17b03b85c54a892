//! Frames that nobody here made, whole and cut at every length, come to the same
//! in both tiers, and each is counted once.
//!
//! Who belongs to which path is said by the demux table, what becomes of it by
//! stages of `crates/modules`. The programs must say the same: in our interpreter,
//! which faults on any access outside of a frame, and in the kernel.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

mod interpreter;
mod kernel;
mod mutants;
#[path = "../common/promoted.rs"]
mod promoted;
mod user;
mod world;
