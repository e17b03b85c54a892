//! Lists in the kernel tier mean what they mean: in our interpreter, and in the
//! kernel, whose verifier takes every one of them.

use ashway_abi::context;
use ashway_check::bpf::interp::Machine;
use ashway_check::bpf::{Image, MapRef};
use ashway_codegen::pipe::ebpf::{KernelList, trial};
use ashway_codegen::pipe::{List, interpret, parse};
use ashway_kernel::maps::possible_cpus;
use ashway_kernel::{
    Feature, Map, MapFixup, MapSpec, Probe, Program, ProgramKind, ProgramSpec, TestRun, shared,
};
use ashway_memory::{AllegedOffset, Memory};
use ashway_rig::skip::skip;

use super::random::{self, Random};
use super::same::setting;

/// Longest message that the kernel takes for a test run.
const LONGEST: usize = 3400;

/// A list of pipes that have a form in the kernel tier.
fn list(random: &mut Random) -> List {
    let mut list = List::new();
    for _ in 0..random.below(6) {
        let one = random::list(random);
        for placed in one.pipes() {
            let mut longer = list.clone();
            longer.push(placed.pipe.clone()).unwrap();
            if KernelList::new(&longer).is_ok() {
                list = longer;
            }
        }
    }
    list
}

/// What a list leaves behind: registers, data.
type Left = (Vec<u64>, Vec<u8>);

fn meant(list: &List, registers: &[u64], data: &[u8]) -> Left {
    let mut left = (registers.to_vec(), data.to_vec());
    interpret(list, &mut left.0, &mut left.1);
    left
}

/// What memory holds before and behind a run; the rest of it must not change.
fn before(registers: &[u64]) -> Vec<u8> {
    let mut memory = vec![0xa5; trial::MEMORY_BYTES];
    for (at, register) in registers.iter().enumerate() {
        memory[trial::REGISTERS + 8 * at..][..8].copy_from_slice(&register.to_le_bytes());
    }
    memory
}

fn expected(list: &List, registers: &[u64], data: &[u8], to: usize) -> Vec<u8> {
    let (registers, data) = meant(list, registers, data);
    let mut memory = before(&registers);
    memory[to..to + data.len()].copy_from_slice(&data);
    memory
}

/// Registers and data for a run, and where it goes.
fn case(random: &mut Random, list: &List) -> (Vec<u64>, Vec<u8>, usize) {
    let mut registers = list.initial();
    for register in &mut registers {
        if random.below(2) == 0 {
            *register = random.number();
        }
    }
    let len = random.length().min(LONGEST);
    let to = trial::DESTINATION + random.below(64);
    (registers, random.bytes(len), to)
}

#[test]
fn our_interpreter_copies_as_the_list_means() {
    let mut random = Random(setting("PIPE_SEED").unwrap_or(27));
    let only = setting("PIPE_LIST");
    let lists = only.map_or_else(|| setting("PIPE_LISTS").unwrap_or(300), |_| 1);
    for _ in 0..lists {
        let seed = only.unwrap_or_else(|| random.number());
        let mut random = Random(seed);
        let list = list(&mut random);
        let kernel = KernelList::new(&list).unwrap();
        let image = trial::program(trial::Work::Passes(std::slice::from_ref(&kernel)), 1);
        let mut machine = Machine::new(1, ashway_abi::trusted::bytes(1), trial::MEMORY_BYTES);
        for _ in 0..20 {
            let (registers, data, to) = case(&mut random, &list);
            machine.memory_mut().copy_from_slice(&before(&registers));
            let code = machine
                .run(&image, &trial::frame(&data, to as u32))
                .unwrap();
            assert_eq!(code, trial::COPIED);
            let same = machine.memory() == expected(&list, &registers, &data, to);
            assert!(
                same,
                "PIPE_LIST={seed}: {:?}, {} bytes",
                list.register_names(),
                data.len()
            );
        }
    }
}

#[test]
fn a_second_pass_reads_and_writes_nothing() {
    let lists = ["xor(1)", "cksum16"].map(|text| KernelList::new(&parse(text).unwrap()).unwrap());
    let image = trial::program(trial::Work::Passes(&lists), 1);
    let mut machine = Machine::new(1, ashway_abi::trusted::bytes(1), trial::MEMORY_BYTES);
    let message: Vec<u8> = (0..77).collect();
    machine.memory_mut().fill(0);
    let to = trial::DESTINATION;
    machine
        .run(&image, &trial::frame(&message, to as u32))
        .unwrap();
    // `xor32(1)`'s key is the register there, and it is 0.
    assert_eq!(machine.memory()[to..to + 77], message);
    let (registers, _) = meant(lists[1].list(), &[0], &message);
    assert_eq!(machine.memory()[..8], registers[0].to_le_bytes());
}

/// A program in the kernel, and its arena.
struct Loaded {
    program: Program,
    memory: Memory,
}

fn load(image: &Image, cpus: u32) -> Loaded {
    let contexts = MapSpec::array("ctx", context::BYTES as u32 * cpus, 1);
    let contexts = Map::create(&contexts).unwrap();
    let memory = shared::arena(trial::MEMORY_BYTES).unwrap();
    let fixups: Vec<MapFixup<'_>> = image
        .maps
        .iter()
        .map(|used| MapFixup {
            insn: used.insn,
            fd: match used.map {
                MapRef::Context => contexts.fd(),
                MapRef::Memory => memory.fd(),
                other => panic!("no {other:?} here"),
            },
            value_offset: used.value_offset,
        })
        .collect();
    let spec = ProgramSpec {
        name: "ashway_pipes",
        kind: ProgramKind::Xdp,
        attach_type: 0,
        insns: &image.insns,
        maps: &fixups,
        btf: None,
    };
    let program = Program::load(&spec).unwrap_or_else(|error| panic!("{error:?}"));
    drop(fixups);
    Loaded { program, memory }
}

#[test]
fn the_kernel_takes_every_list_and_copies_as_it_means() {
    if !Probe::run().has(Feature::ArenaProgram) {
        skip("needs root, and arenas (Linux 6.9)");
        return;
    }
    let cpus = possible_cpus().unwrap() as u32;
    let mut random = Random(41);
    for _ in 0..40 {
        let list = list(&mut random);
        let kernel = KernelList::new(&list).unwrap();
        let work = trial::Work::Passes(std::slice::from_ref(&kernel));
        let loaded = load(&trial::program(work, cpus), cpus);
        for _ in 0..10 {
            let (registers, data, to) = case(&mut random, &list);
            let all = AllegedOffset(0);
            loaded.memory.copy_in(all, &before(&registers)).unwrap();
            let run = TestRun {
                packet: &trial::frame(&data, to as u32),
                context: None,
                repeat: 1,
            };
            assert_eq!(loaded.program.test_run(&run).unwrap().retval, trial::COPIED);
            let mut memory = vec![0; trial::MEMORY_BYTES];
            loaded.memory.copy_out(all, &mut memory).unwrap();
            assert!(
                memory == expected(&list, &registers, &data, to),
                "{:?}, {} bytes",
                list.register_names(),
                data.len()
            );
        }
    }
}

#[test]
fn what_has_no_form_is_refused_by_name() {
    for (text, why) in [
        (
            "bswap32 | crc32",
            "`crc32` has no form in the kernel tier: it is a CRC",
        ),
        ("min16", "the least or the greatest"),
        ("alaw2ulaw", "looks into a table"),
        ("count8(0)", "compares"),
    ] {
        let error = KernelList::new(&parse(text).unwrap()).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    }
    for text in [
        "",
        "cksum16 | bswap32 | xor(0xdeadbeef)",
        "mask(1) | add8(3) | sum16 | bswap16",
    ] {
        let list = if text.is_empty() {
            List::new()
        } else {
            parse(text).unwrap()
        };
        assert!(KernelList::new(&list).is_ok(), "{text}");
    }
}
