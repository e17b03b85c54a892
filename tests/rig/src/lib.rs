//! Two hosts on one machine, for tests, the benchmark and the demonstration.
//!
//! A [`Rig`] is two network namespaces joined by a veth: client A on `a0`, host
//! B on `b0`. In B runs a [`Node`], that is `ashway run` with a configuration of
//! the test's own; in A anything that talks to it: [`UdpClient`], raw
//! [`frames`], or programs nobody here wrote. [`Hogs`] keep both CPUs busy and
//! [`realtime`] lifts a client above them.
//!
//! Everything is named after the process that made it, is removed on drop, and
//! what a killed process left behind is removed by the next one.
//!
//! ```no_run
//! # fn main() -> anyhow::Result<()> {
//! use ashway_rig::{Rig, RigOptions, handler};
//!
//! let rig = Rig::new("echo", RigOptions::default())?;
//! let file = handler("echo")?;
//! let node = rig
//!     .node(format!(
//!         "[iface.b0]\n[handler.echo]\nfile = {file:?}\nallow = [\"reply\"]\n\
//!          [path.all]\niface = \"b0\"\nmatch = \"udp and dst port 7777\"\nhandler = \"echo\"\n"
//!     ))
//!     .start()?;
//! assert_eq!(rig.client_a(7777)?.ask(b"hello")?, b"hello");
//! node.stop()?;
//! # Ok(())
//! # }
//! ```
//!
//! Not part of the product. `unsafe` is allowed where rustix has no safe form:
//! [`process`] (before exec), [`inject`] (`AF_PACKET` addresses), [`realtime`], [`tap`].

pub mod captures;
pub mod frames;
pub mod hogs;
pub mod inject;
pub mod namespace;
pub mod node;
pub mod places;
pub mod process;
mod realtime;
mod rig;
pub mod skip;
pub mod tap;
pub mod udp;

pub use frames::{Frame, Spoil};
pub use hogs::Hogs;
pub use inject::Injector;
pub use node::{Node, NodeBuilder};
pub use places::{ashway, handler};
pub use process::Process;
pub use realtime::realtime;
pub use rig::{A4, A6, B4, B6, MAC_A, MAC_B, Rig, RigOptions, one_way};
pub use rustix::process::Signal;
pub use skip::skip_unless_root;
pub use tap::Tap;
pub use udp::UdpClient;
