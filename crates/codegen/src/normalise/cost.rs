//! What each operator costs, in fuel units.
//!
//! One table for both tiers. A unit is about one simple instruction of either
//! back end; it counts work, not time (FACTS 2: division, clz and copies
//! differ by 10x in eBPF, so they cost differently here).

use super::ir::OpKind;
use wasmparser::Operator;

/// A bulk operation costs one unit for each `1 << BULK_SHIFT` bytes.
pub const BULK_SHIFT: u32 = 3;

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
pub(super) fn of(op: &OpKind<'_>) -> u32 {
    match op {
        OpKind::Charge { .. } | OpKind::ChargeBulk | OpKind::Trap(_) => 0,
        OpKind::Message(call) => match call {
            ashway_abi::HostCall::Read | ashway_abi::HostCall::Write => 8,
            _ => 3,
        },
        OpKind::StateGet { .. } | OpKind::StateSet { .. } => 1,
        OpKind::WordGet { .. } | OpKind::WordSet { .. } => 2,
        OpKind::CallNumber { .. } | OpKind::StateCopy => 8,
        // A frame is saved or brought back.
        OpKind::Push { slots } | OpKind::Pop { slots } => *slots,
        OpKind::Wasm(operator) => of_operator(operator),
    }
}

fn of_operator(operator: &Operator<'_>) -> u32 {
    use Operator as O;
    match operator {
        O::Nop | O::Block { .. } | O::Loop { .. } | O::Else | O::End => 0,
        O::Call { .. } => 4,
        // A compare tree; the CPU's slowest operations; the fixed part of a
        // copy.
        O::CallIndirect { .. }
        | O::BrTable { .. }
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
