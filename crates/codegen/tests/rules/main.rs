//! Proof of the lowering rules, by exhaustion.
//!
//! Each operator that promotion accepts has its meaning written down here once
//! more, from the WebAssembly specification and without a look at the
//! translator: [`table`] for integers, [`access`] for memory, [`atomic`] for
//! atomic accesses, [`message`] for host calls. The tests translate each one in
//! every form in which operands can come, run the result in the interpreter
//! and compare. [`coverage`] goes over all operators there are, so that none
//! can be accepted without a rule.
//!
//! `docs/design/0002-rules.md` says how far each test goes.

#![allow(clippy::unwrap_used, reason = "all of this is tests, helpers included")]

mod access;
mod atomic;
mod coverage;
mod integer;
mod machine;
mod message;
mod table;
