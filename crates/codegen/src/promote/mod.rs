//! The normal form to eBPF.
//!
//! One pass over each function's operators, straight to instructions. What the
//! result looks like; docs/facts.md, "Loops", "Laundering" and "Merged functions",
//! has the measurements behind it:
//!
//! * **Merged:** all functions that the handler reaches become one eBPF
//!   function; a call stores arguments into the callee's frame and jumps, a
//!   return finds its way by the call site's number (`call.rs`).
//! * **Recursion:** a call that can come back to its own function first saves
//!   that function's frame on a call stack in the context (`recursion.rs`).
//! * **Nothing on the eBPF stack:** locals are in `r6`-`r8` or, like operands
//!   that are left waiting, in frames in the per-CPU context, out of the
//!   application's reach (`frame.rs`, `stack.rs`). `r0`-`r5` are scratch.
//! * **Laundered loops:** before a loop every local in a register is exclusive-ored
//!   with a zero that the verifier does not know, so that it sees one turn
//!   instead of all (`control.rs`); `may_goto` satisfies it that loops end, fuel ends
//!   them (`fuel.rs`).
//! * **Traps are jumps:** a failed check goes to a stub that records cause and
//!   place and leaves for the trusted epilogue, from any depth of calls.
//!
//! # Contract with the program around it
//!
//! On entry `r9` is the context; the stack holds the `md` pointer at
//! `r10-8`, the packet pointer to the payload at `r10-16`, `data_end` at
//! `r10-24` and, in array mode, the memory's address at `r10-32`. The context's
//! `PAYLOAD_LEN`, `DIRTY` = 0, `STACK` = 0 (if it [recurses]) and `ZERO` = 0 are
//! set, and if it [keeps time](keeps_time) `FUEL` (the first slice), `RESERVE`,
//! `DEADLINE` = 0, `GRACE` = 0 and `BULK` = [`FIRST_TICKS`]. Where it resizes messages `MOST_LEN` is
//! set; where it logs, the stage has no lines. In arena mode the program names
//! [`MapRef::Memory`](ashway_check::bpf::MapRef::Memory) somewhere.
//!
//! At `done` the verdict is in `r0`; at `trap` the context's `CAUSE` and `AT`
//! are set. The stack is as it was, `r0`-`r8` are not. Of the context only
//! `FUEL`, `RESERVE`, `DEADLINE`, `GRACE`, `BULK`, `STACK`, `DIRTY`, `CAUSE`, `AT`, the
//! frames and the call stack have changed.

mod atomic;
mod branch;
mod bulk;
mod call;
mod condition;
mod control;
mod emitter;
mod error;
mod frame;
mod fuel;
mod host;
mod integer;
mod load_time;
mod looks;
mod memory;
mod message;
mod operator;
mod pipe;
mod recursion;
mod shape;
mod stack;
mod tick;
mod words;

pub(crate) use atomic::is_atomic;
pub use emitter::emit;
pub use error::{CodePlace, PromoteError};
pub(crate) use host::begin_log;
pub use looks::Looks;
pub use recursion::recurses;
pub use shape::{Checks, Shape, Summary};
pub use tick::{FIRST_TICKS, keeps_time};
