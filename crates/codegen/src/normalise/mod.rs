//! Wasm to the normal form that both tiers run (DESIGN 3).
//!
//! Fuel, message access and mutable state are made explicit here, once, so
//! that they mean the same in Wasmtime and in the kernel by construction.
//!
//! [`normalise`] reads, validates and rewrites an author's file; [`encode`]
//! writes the result as Wasm again, for Wasmtime. Accepted are WebAssembly 2.0
//! modules (of its reference types only tables of functions) that define and
//! export one `memory` with a maximum, export `on_rx`, and import nothing but
//! host calls. A module without the section `ashway.abi` counts as version 1,
//! so that hand-written text files need no custom section.

mod body;
pub mod cost;
mod encode;
mod error;
mod expand;
mod fuel;
mod imports;
pub mod ir;
mod limits;
mod lines;
mod message;
mod read;
mod segments;

pub use encode::{ENTER_PREFIX, Encoded, START_EXPORT, encode};
pub use error::NormaliseError;
pub use fuel::static_bound;
pub use ir::Module;
pub use limits::Limits;
pub use lines::Lines;
pub use read::normalise;
