//! `ashway run`: the one place that knows every crate.
//!
//! Reads the configuration, makes memories, programs and rings out of it,
//! attaches, serves the user tier, answers the control socket, and takes
//! everything down again.

#![forbid(unsafe_code)]

mod activation;
mod bell;
mod breaker;
mod bug;
mod channels;
mod compile;
mod control;
mod counters;
mod decide;
pub mod demux;
pub mod doctor;
mod endpoint;
mod ends;
mod faults;
mod feeds;
mod hex;
mod instance;
mod instance_lock;
mod live;
mod log;
pub mod node;
mod observe;
mod packets;
mod plan;
mod port;
pub mod programs;
mod relays;
mod request;
mod rings;
mod rows;
mod rung;
mod shadow;
mod shells;
pub mod show;
mod snapshot;
mod swap;
mod taps;
mod ticket;
mod timers;
mod version;
pub mod why;
mod witness;
mod worker;

pub(crate) use ashway_config as config;
pub use instance::{InstanceError, budget};
