//! The only crate that talks to the kernel about BPF.
//!
//! Raw `bpf(2)`, netlink and ethtool: finished instructions come in, nothing
//! is generated here. A packet's journey meets this crate twice: its programs
//! were [loaded](Program) and [attached](attach) here, and the memory that they
//! share with user space was [made](shared) here.
//!
//! * [`maps`] and [`Program`]: BPF objects.
//! * [`shared`]: what kernel and user space both touch; mapped and touched by
//!   [`ashway_memory`].
//! * [`attach`]: links; [`owner()`] and [`detach_ashway`]: who holds an
//!   interface.
//! * [`iface`] and [`probe`]: facts about interfaces and the kernel; [`RunTimes`]: how long
//!   programs run.
//!
//! Sources are the kernel's own: `include/uapi/linux/bpf.h` and `kernel/bpf/`
//! of Linux 6.18. Capabilities are named where they are needed.

mod alarm;
pub mod attach;
mod ethtool;
pub mod iface;
mod insn;
mod load;
pub mod maps;
pub mod neighbour;
mod netdev;
mod netlink;
mod news;
mod owner;
pub mod probe;
mod run_time;
pub mod shared;
mod sys;
mod test_run;
pub mod verifier_log;

pub use attach::{AttachError, Attached, Exchange, Mode};
pub use iface::Iface;
pub use load::{BtfInfo, LoadError, MOST_TIME, MapFixup, Program, ProgramKind, ProgramSpec};
pub use maps::{Map, MapKind, MapSpec};
pub use netdev::XdpFeatures;
pub use netlink::XdpMode;
pub use news::News;
pub use owner::{DetachError, Detached, Owner, Process, detach_ashway, owner, tcx_owners};
pub use probe::{Feature, Probe};
pub use run_time::{RunTime, RunTimes};
pub use test_run::{TestResult, TestRun, XdpContext};
