//! The demux program decides as [`Table::find`] does, frame by frame.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

mod cases;
mod interpreter;
mod kernel;
