//! The control socket's words: what a running node can be asked, and how it answers.
//!
//! One JSON line there, one back (`docs/guide/control.md`). A node reads a [`Request`],
//! the `ashway` command and other programs make one and send it by a [`Client`]. What comes
//! back is an [`Answer`] or a [`Refusal`]; of an observed node, [events](answer::Event). All
//! sides that are built together have the same types.
//!
//! The feature `schema` derives JSON Schemas; without it the crate needs nothing but
//! serde, so that a privileged process can have it.

#![forbid(unsafe_code)]

pub mod answer;
pub mod client;
pub mod json;
mod read;
mod refusal;
pub mod request;
mod values;
mod words;

pub use answer::{Answer, Ask, Word};
pub use client::{Client, Said};
pub use read::{Misread, short};
pub use refusal::{Code, Refusal};
pub use request::Request;
pub use values::{Owner, Scalar};
pub use words::{Allow, Instances, MemoryMode, OnFault, OrderRule, Tier, WordError};
