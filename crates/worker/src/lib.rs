//! The worker: one thread that takes messages from rings and sockets, runs the paths that are
//! in the user tier, and sends what they send.
//!
//! Here is all that it touches: instances of handlers and what they share with the kernel's
//! programs, the paths on `ashway_path`'s engine, ports and feeds. Who makes, names and
//! removes these is the node (`ashway_node`), by [commands](worker::command).

#![forbid(unsafe_code)]

pub mod activation;
mod before;
pub mod bell;
pub mod bindings;
pub mod breaker;
pub mod budget;
pub mod bug;
pub mod capture;
pub mod channels;
pub mod clock;
pub mod counters;
mod cpu_locks;
pub mod decide;
pub mod drop_rule;
pub mod dry_run;
pub mod endpoint;
mod entry_changes;
pub mod error;
pub mod faults;
pub mod feeds;
pub mod frame_port;
pub mod handle;
pub mod handler_memory;
pub mod hex;
pub mod iface_map;
pub mod in_user;
pub mod instance;
pub mod instance_lock;
pub mod keys;
pub mod log;
pub mod medium;
pub mod observe;
pub mod order;
pub mod packets;
pub mod paths;
pub mod peer;
pub mod plan;
#[cfg(test)]
mod played;
pub mod port;
pub mod programs;
pub mod queue;
pub mod queue_plan;
pub mod relay_shadow;
pub mod relays;
pub mod ring_marks;
pub mod rings;
pub mod rows;
pub mod run_instance;
pub mod say;
pub mod segments;
pub mod shadow;
pub mod snapshot;
pub mod swap;
pub mod target;
pub mod ticket;
pub mod timers;
pub mod version;
pub mod versions;
pub mod witness;
pub mod worker;
pub mod xdp_port;

pub use budget::budget;
pub use error::InstanceError;
