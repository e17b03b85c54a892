//! The words every side of Ashway shares.
//!
//! Verdicts, counters, abort causes, host calls, and the layouts of the three
//! kinds of memory that cross a border: the per-CPU [`context`] (kernel side
//! only), the [`trusted`] words of a [`queue`] (kernel programs and the
//! daemon), and the handler's [`memory`] (also mapped by the application,
//! therefore never believed).
//!
//! No dependencies, no allocation, no `std`. Numbers in here are the ABI: they
//! are never renumbered (`docs/abi/`).

#![no_std]
#![forbid(unsafe_code)]

pub mod budget;
pub mod bug;
pub mod cause;
pub mod context;
pub mod count;
pub mod endpoint;
pub mod flow;
pub mod grant;
pub mod hop;
pub mod host_call;
pub mod leaf;
pub mod log;
pub mod memory;
pub mod observe;
pub mod outbox;
pub mod queue;
pub mod resize;
pub mod share;
pub mod trusted;
pub mod verdict;

pub use budget::Budget;
pub use cause::Cause;
pub use count::Count;
pub use grant::Grant;
pub use hop::Hop;
pub use host_call::HostCall;
pub use leaf::Leaf;
pub use memory::MemoryKind;
pub use queue::QueueLayout;
pub use verdict::Verdict;

/// Version of the handler ABI, carried by a module in the custom section
/// [`VERSION_SECTION`] as a little-endian `u32`.
pub const VERSION: u32 = 1;

/// Name of the custom section that holds [`VERSION`].
pub const VERSION_SECTION: &str = "ashway.abi";

/// Name of the custom section that says which memory outlives a version of a
/// handler: where it begins, where it ends and the version of its form, three
/// little-endian `u32`.
pub const STATE_SECTION: &str = "ashway.state";

/// Name of the custom section with the lists of pipes that a handler runs, as text:
/// one on each line.
pub const PIPES_SECTION: &str = "ashway.pipes";

/// Name of the custom section that says by how many bytes a handler makes its
/// messages longer at most ([`resize`]): a little-endian `u32`.
pub const GROWS_SECTION: &str = "ashway.grows";
