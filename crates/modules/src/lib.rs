//! The protocols and functions that paths are made of, one file each.
//!
//! Every file has the same form: what the module does, its services,
//! attributes, verdicts, counters and tiers, an example, its source; then the
//! kind, the module, the stage, and its tests. `tap.rs` is the one to copy.

#![forbid(unsafe_code)]

pub mod attributes;
mod bug;
pub mod datagram;
pub mod eth;
pub mod fault;
pub mod forward;
pub mod fragment;
pub mod handler;
pub mod host;
pub mod ip;
pub mod ipv4;
pub mod ipv6;
pub mod kinds;
pub mod mac;
pub mod message;
pub mod mtu;
pub mod pipe;
pub mod relay;
pub mod rules;
pub mod services;
pub mod shell;
pub mod sink;
pub mod source;
pub mod tap;
pub mod udp;
mod way;
pub mod words;

pub use message::{Flow, Message, Meta, Parts};

// Frames and paths for tests call this crate by its name.
#[cfg(test)]
extern crate self as ashway_modules;
