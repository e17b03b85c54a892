//! Single mistakes at random: what the checker lets through does no harm.
//!
//! One field of one instruction of an accepted program changes. Most mutants
//! are refused. Those that are not run in the interpreter, which faults on
//! every access outside its region, on registers that nobody wrote and on
//! helpers' wrong arguments: none may fault, and none may run on. Of programs as a node
//! loads them none may keep the instance's lock, either.

use super::programs::{KINDS, Subject, handlers, instance_program, stub_programs};
use ashway_abi::{MemoryKind, trusted};
use ashway_check::Around;
use ashway_check::bpf::Insn;
use ashway_check::bpf::interp::{Machine, Reason};
use ashway_codegen::instance::alone;
use ashway_codegen::stub;
use ashway_rig::Frame;
use std::collections::BTreeMap;

const MUTANTS: usize = 10_000;

/// The same of programs as a node loads them, which are several times as long.
const INSTANCE_MUTANTS: usize = 4_000;

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
    let mut machine = Machine::new(1, trusted::bytes(1), made.memory.len());
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
        Reason::Outside { address, .. } if in_guard(made, address) => None,
        _ => Some(fault.to_string()),
    }
}

/// Whether the guard around an arena takes an access there, or a page that reads as 0.
fn in_guard(made: &Subject, address: u64) -> bool {
    made.shape.memory == MemoryKind::Arena && (0x6ff_ffff_0000..0x701_0001_0000).contains(&address)
}

/// What went wrong on a message that comes to a slot, as the entry program hands it over.
fn harm_in_slot(made: &Subject, message: &[u8]) -> Option<String> {
    let Around::Instance(queue) = made.shape.around else {
        panic!("it is a program for a slot");
    };
    let mut machine = Machine::new(1, queue.bytes(), made.memory.len());
    machine.array_mode = made.shape.memory == MemoryKind::Array;
    machine.insn_limit = LIMIT;
    // Loops of trusted code have no fuel: a mutant of one is the kernel's to end, which does it by
    // time (250 ms). Those of the handler take some.
    machine.may_goto_limit = 100_000;
    machine.memory_mut().copy_from_slice(&made.memory);
    let mut word = |at: usize, value: u32| {
        machine.trusted_mut()[at..at + 4].copy_from_slice(&value.to_le_bytes());
    };
    for (at, block) in queue.first_blocks() {
        word(at, block);
    }
    // What stops the handler is kept.
    word(trusted::FAULT_WANTED, 1);
    let start = alone::Start::plain(42, message.len(), queue.paths - 1).unwrap();
    for (at, value) in start.words() {
        let at = at as usize;
        machine.context_mut()[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
    let frame = Frame::to_b(7777, message).bytes();
    match machine.run(&made.image, &frame) {
        Err(fault) => match fault.reason {
            Reason::Outside { address, .. } if in_guard(made, address) => None,
            _ => Some(fault.to_string()),
        },
        Ok(_) => match machine.trusted_u32(trusted::LOCK) {
            0 | trusted::HELD => None,
            lock => Some(format!("the lock is {lock}")),
        },
    }
}

#[test]
fn what_is_accepted_for_a_slot_does_no_harm() {
    let handlers = handlers();
    let mut programs = Vec::new();
    for name in ["stores", "bulk", "answer", "counting", "globals", "trap"] {
        let (_, wasm) = handlers.iter().find(|known| known.0 == name).unwrap();
        for kind in KINDS {
            // With an endpoint, with a share, and the least.
            for setting in [(4, 3, true), (1, 1, true)] {
                programs.push(instance_program(name, wasm, kind, setting).unwrap());
            }
        }
    }
    for made in &programs {
        let unharmed = harm_in_slot(made, b"nine byte");
        assert_eq!(unharmed, None, "{}", made.name);
    }
    campaign(&programs, INSTANCE_MUTANTS, harm_in_slot);
}

#[test]
fn what_is_accepted_does_no_harm() {
    let programs: Vec<Subject> = stub_programs();
    let programs: Vec<Subject> = programs
        .into_iter()
        .filter(|made| made.image.insns.len() < 900)
        .collect();
    campaign(&programs, MUTANTS, harm);
}

/// Mutants of these programs, of which some are accepted, and `harm` finds none.
fn campaign(
    programs: &[Subject],
    mutants: usize,
    harm: impl Fn(&Subject, &[u8]) -> Option<String>,
) {
    let seed = std::env::var("SEED").map_or(0x5eed, |seed| seed.parse().unwrap());
    let mutants = std::env::var("MUTANTS").map_or(mutants, |count| count.parse().unwrap());
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
