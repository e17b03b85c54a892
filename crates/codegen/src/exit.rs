//! The exit program: sends frames out where `XDP_TX` and a redirect cannot.
//!
//! On a veth whose peer has neither an XDP program nor GRO, `XDP_TX` loses
//! every frame without a word, and so does a redirect to it (docs/facts.md, "Replies
//! that vanish on a veth"). There the instance program marks its replies, and the
//! [forward program](crate::forward) what it sends on, with metadata in front of the
//! frame and passes them on, and this TCX ingress program, the next to see them,
//! sends them out as ordinary socket buffers: by the interface that the mark names,
//! or back where they came from. Attached to the interface in, only where a probe showed that it is needed.
//! Linux 6.6 (TCX).

use crate::hook::{self, Action};
use crate::instance::{EXIT_BYTES, EXIT_MARK};
use Reg::{R1, R2, R3, R4, R5};
use ashway_check::bpf::{Assembler, Field, Hook, Image, Reg, Size, helper, op};

/// The interface of the kernel's that a frame with this metadata goes out by; 0 for the one
/// that it came by, `None` if it is not marked.
#[must_use]
pub fn way_out(metadata: &[u8]) -> Option<u32> {
    let (mark, rest) = metadata.split_first_chunk()?;
    let way = rest.first_chunk().copied().map(u32::from_ne_bytes);
    way.filter(|_| i32::from_ne_bytes(*mark) == EXIT_MARK)
}

/// Generates the program.
#[must_use]
pub fn generate() -> Image {
    let mut asm = Assembler::at(Hook::Tcx);
    let next = asm.label();
    let back = asm.label();
    asm.field(R2, R1, Field::DataMeta);
    asm.field(R3, R1, Field::Data);
    asm.mov(R4, R2);
    asm.alu_imm(op::ADD, R4, EXIT_BYTES);
    asm.jump_if(op::JGT, R4, R3, next);
    asm.load(Size::W, R5, R2, 0);
    asm.jump_if_imm(op::JNE, R5, EXIT_MARK, next);
    asm.load(Size::W, R5, R2, 4);
    asm.field(R1, R1, Field::Ifindex);
    asm.jump_if_imm(op::JEQ, R5, 0, back);
    asm.mov(R1, R5);
    asm.bind(back);
    asm.mov_imm(R2, 0);
    asm.call(helper::REDIRECT);
    asm.exit();
    asm.bind(next);
    hook::finish(&mut asm, Action::Pass);
    asm.finish()
}
