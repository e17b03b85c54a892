//! What promoted handlers do.
//!
//! Each handler is translated four ways (arena and array memory, locals in
//! registers and in memory), each translation runs in our interpreter and, as
//! root, in the kernel, and all of them must do the same.

#![allow(clippy::unwrap_used, reason = "all of this is tests, helpers included")]

mod atomics;
mod bulk;
mod calls;
mod control;
mod handlers;
mod harness;
mod log;
mod memory;
mod messages;
mod numbers;
mod pipes;
mod recursion;
mod refusals;
mod resize;
mod tables;
mod time;
