//! What stands before entry programs while a node moves to another hook, in our own interpreter:
//! what XDP has had TCX leaves alone, and nothing else.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use ashway_check::bpf::interp::Machine;
use ashway_check::bpf::{Assembler, Hook, Image, Reg};
use ashway_codegen::{exit, moving};

/// What the entry program returns here.
const ENTERED: u32 = 42;
const XDP_PASS: u32 = 2;
/// `TCX_NEXT`.
const NEXT: u32 = u32::MAX;

const MARK: u32 = 0x1234_5678;

fn machine(hook: Hook, filled: bool) -> Machine {
    let mut asm = Assembler::at(hook);
    asm.mov_imm(Reg::R0, ENTERED as i32);
    asm.exit();
    let mut machine = Machine::new(1, 8, 8);
    machine.slots = vec![filled.then(|| asm.finish())];
    machine
}

/// What comes of a frame before which XDP has left this.
fn look(marked: &[u8]) -> u32 {
    let mut machine = machine(Hook::Tcx, true);
    machine.marked = marked.to_vec();
    machine.run(&moving::look(MARK), &[0; 64]).unwrap()
}

#[test]
fn xdp_marks_every_frame_and_goes_on_to_the_entry_program() {
    for tcx_is_there in [false, true] {
        let gate: Image = moving::mark(MARK, tcx_is_there);
        let mut machine = machine(Hook::Xdp, true);
        assert_eq!(machine.run(&gate, &[0; 64]).unwrap(), ENTERED);
        assert_eq!(machine.metadata(), MARK.to_ne_bytes());
        assert_eq!(machine.packet(), [0; 64]);
    }
    let mut bare = machine(Hook::Xdp, false);
    assert_eq!(bare.run(&moving::pass(), &[0; 64]).unwrap(), XDP_PASS);
    assert!(bare.metadata().is_empty());
}

#[test]
fn tcx_leaves_alone_what_is_marked() {
    assert_eq!(look(&MARK.to_ne_bytes()), NEXT);
    // What others have there, or left there by another move, is no mark.
    for other in [&[][..], &[0; 4], &(MARK + 1).to_ne_bytes(), &[0; 16]] {
        assert_eq!(look(other), ENTERED, "{other:?}");
    }
    // A reply that the exit program is to send out lies before the mark.
    let exit = 0x4173_6877_u32;
    let reply = [exit, 7, MARK].map(u32::to_ne_bytes).concat();
    assert_eq!(exit::way_out(&reply), Some(7));
    assert_eq!(look(&reply), NEXT);
    let mut bare = machine(Hook::Tcx, false);
    assert_eq!(bare.run(&moving::look(MARK), &[0; 64]).unwrap(), NEXT);
}
