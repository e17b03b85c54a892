//! What each operator costs, in fuel units.
//!
//! One table for both tiers. A unit is about one simple instruction of either
//! back end; it counts work, not time. Division, clz and copies differ by
//! a factor of ten in eBPF (docs/facts.md, "Unequal instructions"), so they cost
//! differently here.
//!
//! What only names an operand (`local.get`, a constant) or forgets one (`drop`)
//! is free: both back ends read the operand in place, in the operator that uses
//! it, and emit nothing. An operand that has to be somewhere else, because a
//! block begins or a call is made, is moved there once, for which there are two
//! rules: who carries values pays for each ([`of`]), and there are
//! [`NAMED_FOR_UNIT`] free operands to a unit.

use super::ir::{Module, OpKind};
use wasmparser::{BlockType, Operator};

/// A bulk operation costs one unit for each `1 << BULK_SHIFT` bytes.
pub const BULK_SHIFT: u32 = 3;

/// Operands that may be named for each unit that is paid. No operator takes more
/// than three, so that no compiled code ever pays for this; a turn that names a
/// thousand to put them aside at every block does.
pub(super) const NAMED_FOR_UNIT: u64 = 4;

/// A look at the clock: 33 ns in the kernel tier (docs/facts.md, "A look at the clock"),
/// some 40 in the user tier. A slice of fuel has 24 of them, which is 0.8 us.
const NOW: u32 = 128;

/// A record or a timer in the outbox. What the message costs when it leaves, a system call of
/// the host's, is not the handler's.
const SEND: u32 = 32;

/// A run of a list of pipes, whatever its length: its registers are brought into
/// their forms before it, and its lanes together behind it.
const PIPE: u32 = 64;

/// A line on the stage, and its way from there into the ring: two copies of 104 bytes.
const LOG: u32 = 48;

/// Bytes that a clone is charged for, whatever it has: a full Ethernet frame.
const CLONED: u32 = 1_500;

/// What a bulk operation over this many bytes costs beyond its place in the
/// table. (Table operators are loops over entries in the normal form, and pay
/// turn by turn like any loop.)
#[must_use]
pub const fn bulk(len: u32) -> u32 {
    len >> BULK_SHIFT
}

/// The cost of one operation. `ChargeBulk` costs nothing here: it charges by
/// itself, by [`bulk`].
#[must_use]
pub(super) fn of(op: &OpKind<'_>, module: &Module<'_>) -> u32 {
    match op {
        OpKind::Charge { .. } | OpKind::ChargeBulk | OpKind::Trap(_) => 0,
        OpKind::Host(call) => match call {
            ashway_abi::HostCall::Read
            | ashway_abi::HostCall::Write
            | ashway_abi::HostCall::Resize => 8,
            ashway_abi::HostCall::Log => LOG,
            ashway_abi::HostCall::Send | ashway_abi::HostCall::TimerSet => SEND,
            ashway_abi::HostCall::Clone => SEND + bulk(CLONED),
            ashway_abi::HostCall::Now => NOW,
            _ => 3,
        },
        OpKind::StateGet { .. } | OpKind::StateSet { .. } => 1,
        OpKind::WordGet(_) | OpKind::WordSet(_) => 2,
        OpKind::Pipe { .. } => PIPE,
        OpKind::CallNumber { type_index } => 8 + signature(module, *type_index),
        OpKind::StateCopy => 8,
        // A frame is saved or brought back.
        OpKind::Push { slots } | OpKind::Pop { slots } => *slots,
        OpKind::Wasm(operator) => of_operator(operator, module),
    }
}

/// Whether the operation only names an operand.
#[must_use]
pub(super) fn names(op: &OpKind<'_>) -> bool {
    use Operator as O;
    matches!(
        op,
        OpKind::Wasm(O::LocalGet { .. } | O::I32Const { .. } | O::I64Const { .. })
    )
}

/// What a turn of a loop costs beyond its operations: the values that it gives
/// to the next.
#[must_use]
pub(super) fn turn(ty: BlockType, module: &Module<'_>) -> u32 {
    match ty {
        BlockType::FuncType(index) => module.types[index as usize].params().len() as u32,
        BlockType::Empty | BlockType::Type(_) => 0,
    }
}

fn of_operator(operator: &Operator<'_>, module: &Module<'_>) -> u32 {
    use Operator as O;
    match operator {
        O::Nop
        | O::Loop { .. }
        | O::Else
        | O::End
        | O::LocalGet { .. }
        | O::I32Const { .. }
        | O::I64Const { .. }
        | O::Drop => 0,
        // A bound, an address and an access.
        O::I32Load { .. }
        | O::I32Load8S { .. }
        | O::I32Load8U { .. }
        | O::I32Load16S { .. }
        | O::I32Load16U { .. }
        | O::I64Load { .. }
        | O::I64Load8S { .. }
        | O::I64Load8U { .. }
        | O::I64Load16S { .. }
        | O::I64Load16U { .. }
        | O::I64Load32S { .. }
        | O::I64Load32U { .. }
        | O::F32Load { .. }
        | O::F64Load { .. }
        | O::V128Load { .. }
        | O::I32Store { .. }
        | O::I32Store8 { .. }
        | O::I32Store16 { .. }
        | O::I64Store { .. }
        | O::I64Store8 { .. }
        | O::I64Store16 { .. }
        | O::I64Store32 { .. }
        | O::F32Store { .. }
        | O::F64Store { .. }
        | O::V128Store { .. } => 3,
        O::Block { blockty } => block(*blockty, module),
        O::If { blockty } => 1 + block(*blockty, module),
        O::Call { function_index } => {
            let callee = &module.functions[*function_index as usize];
            4 + signature(module, callee.type_index)
        }
        // A compare tree.
        O::CallIndirect { type_index, .. } => 8 + signature(module, *type_index),
        // Another one; the CPU's slowest operations; the fixed part of a copy.
        O::BrTable { .. }
        | O::I32DivS
        | O::I32DivU
        | O::I32RemS
        | O::I32RemU
        | O::I64DivS
        | O::I64DivU
        | O::I64RemS
        | O::I64RemU
        | O::F32Div
        | O::F64Div
        | O::F32Sqrt
        | O::F64Sqrt
        | O::MemoryCopy { .. }
        | O::MemoryFill { .. }
        | O::MemoryGrow { .. } => 8,
        // eBPF has no instruction for these: 13 to 36 instructions each.
        O::I32Clz | O::I32Ctz | O::I32Popcnt | O::I64Clz | O::I64Ctz | O::I64Popcnt => 16,
        _ => 1,
    }
}

/// Values that a call moves there and back.
fn signature(module: &Module<'_>, ty: u32) -> u32 {
    let ty = &module.types[ty as usize];
    (ty.params().len() + ty.results().len()) as u32
}

/// Values that a block's end, or a branch to it, moves; at most one of these
/// runs each time the block does.
fn block(ty: BlockType, module: &Module<'_>) -> u32 {
    match ty {
        BlockType::Empty => 0,
        BlockType::Type(_) => 1,
        BlockType::FuncType(index) => signature(module, index),
    }
}
