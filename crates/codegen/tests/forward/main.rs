//! The forward program sends what the user tier's path sends, and what a third,
//! naive computation says.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

mod cases;
mod interpreter;
mod kernel;
mod mutants;
mod relay;
