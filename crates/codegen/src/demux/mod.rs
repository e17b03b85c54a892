//! Demux in the kernel: an interface's table ([`ashway_demux`]) as a program.
//!
//! * [`compiled`]: where a program has each shape's entries. [`emit`]: the program. `walk`:
//!   how it finds the headers; `tree`: which guards it tests in which order; `view`: what is
//!   known of a frame before; [`spare`]: shapes that came after the program.

pub mod compiled;
pub mod emit;
pub mod spare;
mod tree;
mod view;
mod walk;
