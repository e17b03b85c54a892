//! Compilers whose output runs in the kernel or in Wasmtime.
//!
//! Pure: bytes in, bytes out. Nothing here loads anything, so every program
//! can be printed, compared and tested without privileges.
//!
//! * [`demux`]: which path a frame belongs to, as a program.
//! * [`normalise`]: Wasm to the one form that both tiers run.
//! * [`promote`]: that form to eBPF.
//! * [`entry`], [`instance`] or [`forward`], [`exit`]: the programs on a message's
//!   way through the kernel, in that order.
//! * [`moving`]: what stands before entry programs while a node changes its hook.
//! * [`pipe`]: manipulations of data to one loop.
//! * [`stub`]: the program around a promoted handler that needs no interface.
//!
//! Instructions, the assembler and what looks at a finished program are in
//! [`ashway_check`].

#![forbid(unsafe_code)]

#[cfg(not(ashway_bugs))]
mod bug;
#[cfg(ashway_bugs)]
pub mod bug;
mod components;
pub mod demux;
pub mod entry;
pub mod exit;
pub mod forward;
mod hook;
pub mod instance;
pub mod moving;
pub mod normalise;
mod observe;
mod parts;
pub mod pipe;
pub mod promote;
pub mod stub;
mod timed;
