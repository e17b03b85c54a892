//! Paths: explicit routes through a graph of modules, made from attributes.
//!
//! A **module** has typed **services**; a **graph** connects them. A path is
//! created by asking one module, with a set of **attributes**, what it
//! contributes (a **stage**) and where the path goes on; the next module is asked
//! the same, until a leaf is reached or no unique decision is possible. The
//! stages are combined, established, and transformed by **rules**. From then on
//! messages travel along the path in two directions.
//!
//! Pure and deterministic: time is an argument, messages are of any type `M`
//! (this crate does not know what a packet is made of), nothing here makes a
//! system call. The [`engine`] runs the paths of one thread, in the order that a
//! [policy](sched) says; [`sim`] drives it with a virtual clock and a seed.
//!
//! Source: Mosberger & Peterson 1996 ("Scout"), section 3. Its *router* is our
//! module, its `createStage` is [`module::Module::stage`].

#![forbid(unsafe_code)]

pub mod account;
pub mod attrs;
mod bug;
pub mod create;
pub mod demand;
pub mod draw;
pub mod engine;
pub mod graph;
pub mod module;
pub mod path;
pub mod places;
pub mod problem;
pub mod queue;
pub mod read;
pub mod rules;
pub mod sched;
pub mod service;
pub mod sim;
pub mod stage;
pub mod time;
pub mod watch;
