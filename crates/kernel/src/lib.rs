//! The only crate that talks to the kernel about BPF.
//!
//! Raw `bpf(2)`, rtnetlink and ethtool: finished instructions come in, nothing
//! is generated here. A packet's journey meets this crate twice: its programs
//! were [loaded](Program) and [attached](attach) here, and the memory that they
//! share with user space was [made](Memory) here.
//!
//! * [`maps`] and [`Program`]: BPF objects.
//! * [`SharedArray`], [`Memory`], [`WakeBell`], [`NoteRing`]: what kernel and user space
//!   both touch. Never as `&[u8]`: `mapping.rs` says why.
//! * [`attach`]: links; [`owner()`] and [`detach_ashway`]: who holds an
//!   interface.
//! * [`iface`] and [`probe`]: facts about interfaces and the kernel.
//!
//! Sources are the kernel's own: `include/uapi/linux/bpf.h` and `kernel/bpf/`
//! of Linux 6.18. Capabilities are named where they are needed.

pub mod attach;
pub mod clock;
mod ethtool;
pub mod iface;
mod insn;
mod load;
mod mapping;
pub mod maps;
mod memory;
pub mod neighbour;
mod netlink;
mod notes;
mod owner;
pub mod probe;
mod shared;
mod sys;
mod test_run;
pub mod verifier_log;
mod wake;

pub use attach::{AttachError, Mode, TcxLink, XdpLink};
pub use iface::Iface;
pub use load::{BtfInfo, LoadError, MapFixup, Program, ProgramKind, ProgramSpec};
pub use mapping::OutsideMemory;
pub use maps::{Map, MapKind, MapSpec};
pub use memory::{ALIGNMENT, AllegedOffset, GUARD_BYTES, Memory, MemoryKind, RESERVED_BYTES};
pub use netlink::XdpMode;
pub use notes::NoteRing;
pub use owner::{DetachError, Detached, Owner, Process, detach_ashway, owner};
pub use probe::{Feature, Probe};
pub use shared::SharedArray;
pub use test_run::{TestResult, TestRun, XdpContext};
pub use wake::WakeBell;
