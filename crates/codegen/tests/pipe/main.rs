//! Pipes mean the same in every way of running them.
//!
//! Native code runs here as it does in a handler: mapped by the same file.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

mod code;
mod cpus;
mod evil;
mod kernel;
mod known;
mod lengths;
#[allow(dead_code, reason = "the handler's, whole")]
#[allow(unreachable_pub, reason = "the handler's, where it is public")]
#[path = "../../../handler/src/native.rs"]
mod native;
mod parts;
mod plan;
mod random;
mod same;
mod user;

pub(crate) use cpus::cpus;
