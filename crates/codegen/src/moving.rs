//! What stands before an interface's entry programs while its node moves from one hook to
//! the other.
//!
//! For a moment both hooks have a program, and a frame that XDP passes on comes to TCX next. So the
//! program at XDP marks each frame before anybody looks at it, in the metadata in front of it, and
//! the one at TCX leaves alone what is marked: each frame meets one entry program and no frame
//! meets two. Both are attached in the place of the entry program, which they tail call.
//!
//! A frame that cannot be marked goes on to TCX unseen, if there is a program there already; until
//! then XDP has it.

use Reg::{R0, R1, R2, R3, R4, R5, R6};
use ashway_check::bpf::{Assembler, Field, Hook, Image, MapRef, Reg, Size, helper, op};

use crate::bug::{self, Bug};
use crate::hook::{self, Action};
use crate::instance::EXIT_MARK;

/// Bytes of the mark.
const MARK_BYTES: i32 = 4;

/// The program before the entry program at XDP. `mark` is a number that nobody else uses for
/// its frames; `tcx_is_there` says who has a frame that cannot be marked.
#[must_use]
pub fn mark(mark: u32, tcx_is_there: bool) -> Image {
    let mut asm = Assembler::at(Hook::Xdp);
    let [bare, enter, host] = [(); 3].map(|()| asm.label());
    asm.mov(R6, R1);
    asm.mov_imm(R2, -MARK_BYTES);
    asm.call(helper::XDP_ADJUST_META);
    asm.jump_if_imm(op::JNE, R0, 0, bare);
    asm.field(R2, R6, Field::DataMeta);
    asm.field(R3, R6, Field::Data);
    asm.mov(R4, R2);
    asm.alu_imm(op::ADD, R4, MARK_BYTES);
    asm.jump_if(op::JGT, R4, R3, bare);
    asm.mov_imm(R5, mark as i32);
    asm.store(Size::W, R2, 0, R5);
    asm.jump(enter);
    asm.bind(bare);
    if tcx_is_there {
        asm.jump(host);
    }
    asm.bind(enter);
    tail_call(&mut asm);
    asm.bind(host);
    hook::finish(&mut asm, Action::Pass);
    asm.finish()
}

/// The program before the entry program at TCX: leaves alone what bears this mark, and what the
/// [exit program](crate::exit) behind it is to send out.
#[must_use]
pub fn look(mark: u32) -> Image {
    let mut asm = Assembler::at(Hook::Tcx);
    let [enter, next] = [(); 2].map(|()| asm.label());
    asm.mov(R6, R1);
    if !bug::is(Bug::MarkUnseen) {
        asm.field(R2, R6, Field::DataMeta);
        asm.field(R3, R6, Field::Data);
        asm.mov(R4, R2);
        asm.alu_imm(op::ADD, R4, MARK_BYTES);
        asm.jump_if(op::JGT, R4, R3, enter);
        asm.load(Size::W, R5, R2, 0);
        asm.jump32_if_imm(op::JEQ, R5, mark as i32, next);
        asm.jump32_if_imm(op::JEQ, R5, EXIT_MARK, next);
    }
    asm.bind(enter);
    tail_call(&mut asm);
    asm.bind(next);
    hook::finish(&mut asm, Action::Pass);
    asm.finish()
}

/// A program at XDP that passes everything on: it finds out whether a driver takes programs.
#[must_use]
pub fn pass() -> Image {
    let mut asm = Assembler::at(Hook::Xdp);
    hook::finish(&mut asm, Action::Pass);
    asm.finish()
}

/// To the entry program; goes on if there is none.
fn tail_call(asm: &mut Assembler) {
    asm.mov(R1, R6);
    asm.map(R2, MapRef::Slots, None);
    asm.mov_imm(R3, 0);
    asm.call(helper::TAIL_CALL);
}
