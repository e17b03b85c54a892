//! Compilers whose output runs in the kernel or in Wasmtime.
//!
//! Pure: bytes in, bytes out. Nothing here loads anything, so every program
//! can be printed, compared and tested without privileges.
//!
//! * [`filter`]: the words of a path's `match`.
//! * [`normalise`]: Wasm to the one form that both tiers run.
//! * [`promote`]: that form to eBPF.
//! * [`entry`], [`instance`], [`exit`]: the three kinds of program on a
//!   message's way through the kernel, in that order.
//! * [`bpf`]: instructions, assembler, printer.

#![forbid(unsafe_code)]

pub mod bpf;
pub mod entry;
pub mod exit;
pub mod filter;
pub mod instance;
pub mod normalise;
pub mod promote;
mod xdp;
