//! What the forward program does is compared: each of its stores and calls, left
//! out, turns the comparison of the other tests red.

use ashway_check::bpf::{Image, print};
use ashway_codegen::entry::Packet;

use super::cases::{Case, Checksum, Random};
use super::interpreter::{entry, keeps_to_its_share, program, right, run};

/// A call of `bpf_get_smp_processor_id`: the interpreter's only CPU is 0, and so is
/// what would be left in `r0`.
const WHICH_CPU: u64 = 0x85 | 8 << 32;

/// Whether an instruction writes to memory or calls a helper (RFC 9669).
fn does_something(insn: u64) -> bool {
    matches!(insn & 7, 2 | 3) || insn & 0xff == 0x85
}

#[test]
fn every_store_and_call_left_out_is_noticed() {
    for packet in [Packet::Pointers, Packet::Helpers] {
        let entry = entry(packet, 1);
        let program = program(packet);
        let mut random = Random::new(5);
        let cases: Vec<Case> = (0..200).map(|_| Case::draw(&mut random)).collect();
        let mut sharing = cases.iter();
        let sharing = sharing
            .find(|case| case.checksum == Checksum::Whole)
            .unwrap();
        let survives = |program: &Image| {
            cases.iter().all(|case| {
                let end = run(packet, &entry, program, case.hop(), &case.received());
                end.is_ok_and(|end| right(case, &end))
            }) && keeps_to_its_share(packet, &entry, program, sharing)
        };
        assert!(survives(&program));
        // Behind the first exit are the drops, which have a test of their own.
        let exit = program.insns.iter().position(|insn| insn & 0xff == 0x95);
        let mut tried = 0;
        for at in 0..exit.unwrap() {
            if !does_something(program.insns[at]) || program.insns[at] == WHICH_CPU {
                continue;
            }
            let mut mutant = program.clone();
            mutant.insns[at] = 0x05; // ja +0
            assert!(!survives(&mutant), "{at} of\n{}", print(&program));
            tried += 1;
        }
        assert!(tried > 30, "{tried}");
    }
}
