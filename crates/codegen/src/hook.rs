//! What XDP and TCX have under other names, or do another way.
//!
//! `md` is what the kernel gives a program: an `xdp_md` or a `__sk_buff`, in `r6` all the
//! time. Under TCX packet pointers reach the frame's linear part only: the
//! [entry program](crate::entry) makes a message one piece before anybody reads it.

use crate::bug::{self, Bug};
use crate::parts;
use Reg::{R0, R1, R2, R3, R6, R7, R8};
use ashway_check::bpf::{Assembler, Field, Hook, Label, Reg, Size, helper, op, skb};

/// What becomes of a frame when a program has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// It is no more.
    Drop,
    /// It goes on to the host.
    Pass,
}

/// `XDP_TX`, which TCX has not.
pub(crate) const XDP_TX: i32 = 3;

impl Action {
    /// The program's return code.
    pub(crate) const fn code(self, hook: Hook) -> i32 {
        match hook {
            // `enum xdp_action`
            Hook::Xdp => match self {
                Self::Drop => 1,
                Self::Pass => 2,
            },
            // `enum tcx_action_base`: `TCX_DROP`, and `TCX_NEXT` to those behind.
            Hook::Tcx => match self {
                Self::Drop => 2,
                Self::Pass => -1,
            },
        }
    }
}

/// `into` = the action's code.
pub(crate) fn set(asm: &mut Assembler, into: Reg, action: Action) {
    asm.mov_imm(into, action.code(asm.hook()));
}

/// Ends the program.
pub(crate) fn finish(asm: &mut Assembler, action: Action) {
    set(asm, R0, action);
    asm.exit();
}

/// `r7`, `r8` = the packet's bounds, from `md` in `r6`.
pub(crate) fn packet_bounds(asm: &mut Assembler) {
    asm.field(R7, R6, Field::Data);
    asm.field(R8, R6, Field::DataEnd);
}

/// Makes the first `bytes` bytes of the frame one piece, or all if there are fewer. `r7` and
/// `r8` are the packet's bounds, of which the verifier knows `known` bytes afterwards, if it did
/// before; to `failed` if there is no memory. Under XDP every frame is one piece. Clobbers
/// `r0`-`r5`.
pub(crate) fn pull(asm: &mut Assembler, bytes: i32, known: i32, failed: Label) {
    if asm.hook() == Hook::Xdp || bug::is(Bug::PieceAlone) {
        return;
    }
    let [shorter, whole] = [(); 2].map(|()| asm.label());
    asm.mov(R1, R8);
    asm.alu(op::SUB, R1, R7);
    asm.load(Size::W, R2, R6, skb::LEN);
    asm.jump_if(op::JGE, R1, R2, whole);
    asm.jump_if_imm(op::JLE, R2, bytes, shorter);
    asm.mov_imm(R2, bytes);
    asm.jump_if(op::JGE, R1, R2, whole);
    asm.bind(shorter);
    asm.mov(R1, R6);
    asm.call(helper::SKB_PULL_DATA);
    asm.jump_if_imm(op::JNE, R0, 0, failed);
    packet_bounds(asm);
    if known > 0 {
        parts::need(asm, known, failed);
    }
    asm.bind(whole);
}

/// `r0` = the frame's length. Clobbers `r1`-`r5`.
pub(crate) fn frame_len(asm: &mut Assembler) {
    match asm.hook() {
        Hook::Xdp => {
            asm.mov(R1, R6);
            asm.call(helper::XDP_GET_BUFF_LEN);
        }
        Hook::Tcx => asm.load(Size::W, R0, R6, skb::LEN),
    }
}

/// Copies `r4` bytes of the frame from offset `r2` on to `r3`; `r0` = 0 if they are there.
/// `r1` = `md`. Clobbers `r1`-`r5`.
pub(crate) fn load_bytes(asm: &mut Assembler) {
    asm.call(match asm.hook() {
        Hook::Xdp => helper::XDP_LOAD_BYTES,
        Hook::Tcx => helper::SKB_LOAD_BYTES,
    });
}

/// Makes the frame `r2` bytes longer, or shorter if that is negative; `r0` = 0 if there was
/// room. What it gains is 0; packet pointers are void. Clobbers `r1`-`r5`.
pub(crate) fn move_tail(asm: &mut Assembler) {
    match asm.hook() {
        Hook::Xdp => {
            asm.mov(R1, R6);
            asm.call(helper::XDP_ADJUST_TAIL);
        }
        Hook::Tcx => {
            asm.load(Size::W, R1, R6, skb::LEN);
            asm.alu(op::ADD, R2, R1);
            asm.mov(R1, R6);
            asm.mov_imm(R3, 0);
            asm.call(helper::SKB_CHANGE_TAIL);
        }
    }
}

/// `into` = the number of the receive queue, 0 if nobody knows.
pub(crate) fn rx_queue(asm: &mut Assembler, into: Reg) {
    asm.field(into, R6, Field::RxQueue);
    if asm.hook() == Hook::Tcx {
        let unknown = asm.label();
        asm.jump_if_imm(op::JEQ, into, 0, unknown);
        asm.alu_imm(op::SUB, into, 1);
        asm.bind(unknown);
    }
}
