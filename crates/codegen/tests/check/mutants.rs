//! Single mistakes at random: what the checker lets through does no harm.
//!
//! One field of one instruction of an accepted program changes. Most mutants
//! are refused. Those that are not run in the interpreter, which faults on
//! every access outside its region, on registers that nobody wrote and on
//! helpers' wrong arguments: none may fault, and none may run on.

use super::programs::{Subject, stub_programs};
use ashway_abi::MemoryKind;
use ashway_check::bpf::Insn;
use ashway_check::bpf::interp::{Machine, Reason};
use ashway_codegen::stub;
use std::collections::BTreeMap;

const MUTANTS: usize = 10_000;

/// Instructions that no mutant may reach: each unit of fuel and each tick pays
/// for one way through a program of at most some hundred.
const LIMIT: u64 = 60_000_000;

/// Marsaglia, "Xorshift RNGs" (2003).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, most: usize) -> usize {
        (self.next() >> 16) as usize % most
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

/// Changes one field to something that is near, common or anything.
fn mutate(insn: Insn, random: &mut Random) -> Insn {
    let mut insn = insn;
    let near = [-64, -16, -8, -4, -2, -1, 1, 2, 4, 8, 16, 64];
    match random.below(8) {
        0 => insn.opcode ^= 1 << random.below(8),
        1 => insn.opcode = random.next() as u8,
        2 => insn.dst = random.below(11) as u8,
        3 => insn.src = random.below(11) as u8,
        4 => insn.off = insn.off.wrapping_add(random.pick(&near)),
        5 => insn.off = random.next() as i16,
        6 => insn.imm = insn.imm.wrapping_add(random.pick(&near).into()),
        _ => insn.imm = random.next() as i32 >> random.below(32),
    }
    insn
}

fn machine(made: &Subject) -> Machine {
    let mut machine = Machine::new(1, ashway_abi::trusted::bytes(1), made.memory.len());
    machine.array_mode = made.shape.memory == MemoryKind::Array;
    machine.insn_limit = LIMIT;
    machine.memory_mut().copy_from_slice(&made.memory);
    machine
}

/// What went wrong on a message.
fn harm(made: &Subject, message: &[u8]) -> Option<String> {
    let fault = machine(made)
        .run(&made.image, &stub::frame(message))
        .err()?;
    match fault.reason {
        // The guard takes it, or a page that reads as 0.
        Reason::Outside { address, .. }
            if made.shape.memory == MemoryKind::Arena
                && (0x6ff_ffff_0000..0x701_0001_0000).contains(&address) =>
        {
            None
        }
        _ => Some(fault.to_string()),
    }
}

#[test]
fn what_is_accepted_does_no_harm() {
    let programs: Vec<Subject> = stub_programs();
    let programs: Vec<Subject> = programs
        .into_iter()
        .filter(|made| made.image.insns.len() < 900)
        .collect();
    let seed = std::env::var("SEED").map_or(0x5eed, |seed| seed.parse().unwrap());
    let mutants = std::env::var("MUTANTS").map_or(MUTANTS, |count| count.parse().unwrap());
    let mut random = Random(seed);
    let mut refused: BTreeMap<String, usize> = BTreeMap::new();
    let (mut accepted, mut bad) = (0, 0);
    for number in 0..mutants {
        let mut made = programs[random.below(programs.len())].clone();
        let at = random.below(made.image.insns.len());
        let before = Insn::decode(made.image.insns[at]);
        let after = mutate(before, &mut random);
        made.image.insns[at] = after.encode();
        if let Err(violation) = made.check() {
            *refused.entry(format!("{:?}", violation.rule)).or_default() += 1;
            continue;
        }
        accepted += 1;
        let messages: [&[u8]; 3] = [b"", b"nine byte", &[0xff; 200]];
        let harms = messages
            .into_iter()
            .find_map(|message| harm(&made, message));
        if let Some(harm) = harms {
            bad += 1;
            println!(
                "mutant {number} of {}: {at}: {before:?} -> {after:?}: {harm}",
                made.name
            );
        }
    }
    println!("seed {seed}: {accepted} of {mutants} accepted; refused: {refused:?}");
    assert_eq!(bad, 0);
    assert!(
        accepted > mutants / 50,
        "mutants that are all refused show nothing"
    );
    assert!(
        refused.len() >= 7,
        "many rules have something to say: {refused:?}"
    );
}
