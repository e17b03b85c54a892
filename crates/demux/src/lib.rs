//! Demux: which path a frame belongs to.
//!
//! * [`parse()`]: what people write, in the words of pcap-filter(7), given a
//!   meaning by `primitive`, joined by `normal`. [`Join`]: the same from values.
//! * [`filter`]: what it means: alternatives of tests. `logic`: whether one
//!   filter meets or implies another.
//! * [`shape`]: filters that differ only in values.
//! * [`table`]: all filters of an interface; the user tier's demux, and the
//!   model for the kernel tier's. `entries`, by `hash`: those of one shape;
//!   `meeting`: which of them another shape's meet.
//! * [`replica`]: a copy of the table that looks up elsewhere.
//! * [`spare`]: shapes as data, for a program that does not have them yet.
//! * [`print`](mod@print): the table for people and as JSON.
//!
//! Pure. The kernel tier's demux, the table as a program, is made from it by `codegen`.

#![forbid(unsafe_code)]

#[cfg(not(ashway_bugs))]
mod bug;
#[cfg(ashway_bugs)]
pub mod bug;
mod entries;
pub mod filter;
mod hash;
mod join;
mod logic;
mod meeting;
mod normal;
mod parse;
mod primitive;
pub mod print;
pub mod replica;
pub mod shape;
pub mod spare;
pub mod table;

pub use filter::{Base, Conjunction, Field, Filter, Layer, Specificity, Test, left};
pub use join::Join;
pub use normal::MAX_ALTERNATIVES;
pub use parse::{FilterError, MAX_TEXT_BYTES, parse};
pub use replica::{Replica, Update};
pub use shape::{Key, KeyField, MAX_KEY_BYTES, Shape, ShapeId};
pub use table::{Change, Conflict, Entries, NotOwned, Table, owned_by};
