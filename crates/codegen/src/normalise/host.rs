//! Host calls in Wasm: message accesses are expanded in place, what is not
//! Wasm's to do is a call to a function of the host.

use super::expand::Expander;
use super::ir::FileOffset;
use ashway_abi::HostCall;
use wasm_encoder::ValType;

/// A function of the host: name in [`MODULE`](ashway_abi::host_call::MODULE),
/// parameters and results.
pub(super) type HostFunction = (&'static str, &'static [ValType], &'static [ValType]);

/// The functions that every encoded module imports; the place is the function's
/// index.
pub(super) const HOST: &[HostFunction] = &[
    ("trap", &[ValType::I32, ValType::I32], &[]),
    ("now", &[], &[ValType::I64]),
    ("pipe", &[ValType::I32; 6], &[ValType::I32]),
];

/// `trap(cause, at)` returns only if the cause is fuel and there is more.
pub(super) const TRAP: u32 = 0;
/// `now()`: the clock, in ns.
const NOW: u32 = 1;
/// `pipe(call, list, at, pointer, len, pages)` runs a list, unless a memory of so many
/// pages has no such bytes, which is 1.
pub(super) const PIPE: u32 = 2;

impl Expander<'_> {
    /// Any host call.
    pub(super) fn host(&mut self, call: HostCall, place: FileOffset) {
        match call {
            HostCall::Now => {
                self.ins().call(NOW);
            }
            HostCall::Resize => self.resize(),
            HostCall::Log => self.log(),
            HostCall::Send => self.send(),
            HostCall::Clone => self.clone_message(),
            HostCall::TimerSet => self.timer_set(),
            _ => self.message(call, place),
        }
    }
}
