//! Demux against libpcap, and against itself done naively.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod corpora;
mod frames;
mod join;
mod libpcap;
mod logic;
mod oracle;
mod print;
mod table;
mod text;
