//! The independent checker: it accepts what we make, and refuses what is not
//! quite what we make.

#![allow(clippy::unwrap_used, reason = "all of this is tests, helpers included")]

mod accepts;
mod canaries;
mod mutants;
mod programs;
mod refuses;
mod twice;
