//! Whether both tiers mean the same, and what WebAssembly means.
//!
//! * [`script`]: the specification's own tests in each engine.
//! * [`fuzz`]: random modules, every engine against every other.
//! * [`answer`]: files that nobody would write are answered, quickly.
//!
//! `README.md` beside this says how to run them and how to read what they
//! print.

#![forbid(unsafe_code)]

pub mod answer;
pub mod fuzz;
pub mod script;
