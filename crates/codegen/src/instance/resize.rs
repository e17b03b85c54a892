//! Room for a message that its handler may make longer.
//!
//! `bpf_xdp_adjust_tail` fails where a driver has no room behind the frame, and a
//! handler that has begun cannot be taken to the user tier. So what it may ask for is
//! taken before it begins: the frame is longer by that, and `msg_resize` moves the
//! message's end within it. Afterwards an answer is cut where it ends, and what goes
//! to the host is as it came.

use ashway_abi::{Count, context};
use ashway_check::bpf::{Assembler, Label, Reg, Size, helper, op};

use crate::hook::{self, Action};
use crate::normalise::Module;
use Reg::{R0, R1, R2, R3, R4, R5, R6, R8, R9, R10};

/// Stack: the MTU, where the helper writes it.
const MTU: i16 = -72;

/// By how many bytes the frame has to be longer; `None` if there is nothing to do.
const fn room(module: &Module<'_>) -> Option<i32> {
    match module.grows {
        0 => None,
        grows => Some(grows as i32),
    }
}

/// Takes the room, or goes to `queue` with the note in `r8`. `r6` = `md`;
/// packet pointers are void afterwards. Clobbers `r0`-`r5`. Linux 5.12.
pub(super) fn take_room(asm: &mut Assembler, module: &Module<'_>, queue: Label) {
    let Some(room) = room(module).filter(|_| module.resizes()) else {
        return;
    };
    asm.mov_imm(R8, Count::QueuedRoom as i32);
    // The user tier says what becomes of what the link does not take.
    asm.store_imm(Size::D, R10, MTU, 0);
    asm.mov(R1, R6);
    asm.mov_imm(R2, 0);
    asm.mov(R3, R10);
    asm.alu_imm(op::ADD, R3, i32::from(MTU));
    asm.mov_imm(R4, room);
    asm.mov_imm(R5, 0);
    asm.call(helper::CHECK_MTU);
    asm.jump_if_imm(op::JNE, R0, 0, queue);
    asm.mov_imm(R2, room);
    hook::move_tail(asm);
    asm.jump_if_imm(op::JNE, R0, 0, queue);
}

/// Says how long the message may get. Clobbers `r1`.
pub(super) fn say_most(asm: &mut Assembler, module: &Module<'_>) {
    if module.resizes() {
        asm.load(Size::W, R1, R9, context::PAYLOAD_LEN);
        asm.alu_imm(op::ADD, R1, module.grows as i32);
        asm.store(Size::W, R9, context::MOST_LEN, R1);
    }
}

/// Makes the frame as long as it came, if the program ends with this action, whose code
/// lies in the context. `r6` =
/// `md`. Clobbers `r0`-`r5`.
pub(super) fn give_back(asm: &mut Assembler, module: &Module<'_>, at: i16, action: Action) {
    let Some(room) = room(module).filter(|_| module.resizes()) else {
        return;
    };
    let other = asm.label();
    asm.load(Size::W, R1, R9, at);
    let code = action.code(asm.hook());
    asm.jump32_if_imm(op::JNE, R1, code, other);
    // It has just been longer by that.
    asm.mov_imm(R2, -room);
    hook::move_tail(asm);
    asm.bind(other);
}

/// Makes the frame end where the message does, or goes to `failed`. `r6` =
/// `md`; packet pointers are void afterwards. Clobbers `r0`-`r5`.
pub(super) fn cut(asm: &mut Assembler, failed: Label) {
    let exact = asm.label();
    hook::frame_len(asm);
    asm.load(Size::W, R2, R9, context::PAYLOAD_OFF);
    asm.load(Size::W, R3, R9, context::PAYLOAD_LEN);
    asm.alu(op::ADD, R2, R3);
    asm.alu(op::SUB, R2, R0);
    asm.jump_if_imm(op::JEQ, R2, 0, exact);
    hook::move_tail(asm);
    asm.jump_if_imm(op::JNE, R0, 0, failed);
    asm.bind(exact);
}
