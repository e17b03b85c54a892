//! Bytes to headers and back: the protocols as they lie in a frame.
//!
//! One file per protocol, all of one shape: a `Packet` is a view of bytes
//! whose *length* was checked and whose contents may still be nonsense (the
//! accessors say what stands there, not that it is true). [`datagram`] is where
//! the contents are judged, by the same steps in the same order as the entry
//! program in the kernel, so that both tiers mean the same by "a message".
//! [`reply`] turns a received frame into its answer, and [`emit`] writes a frame
//! from nothing.
//!
//! Pure: no allocation, no clock, no system call. Every function does an amount
//! of work bounded by the length of the frame and panics on no byte string.

#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
#[macro_use]
extern crate std;

mod bug;
pub mod checksum;
pub mod datagram;
pub mod emit;
pub mod eth;
pub mod headers;
pub mod ipv4;
pub mod ipv6;
pub mod partial;
pub mod reply;
pub mod segments;
pub mod tcp;
pub mod udp;
pub mod vxlan;

pub use datagram::{Datagram, Malformed, Message, NotOurs};
pub use headers::{Fragment, Headers};
pub use reply::{ReplyError, make_reply};
