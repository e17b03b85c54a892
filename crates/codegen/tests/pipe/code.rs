//! The code of a list, as it is: one loop that copies, whatever the list has, and no more code
//! than its pipes have alone (ASH-46, ASH-50).

use ashway_codegen::pipe::{Cpu, List, Options, Pipe, compile, parse, plan};
use iced_x86::{Decoder, DecoderOptions, FlowControl, InstructionInfoFactory, OpAccess, Register};

use super::random::{self, Random};

/// A loop of the code: what is between a place and the branch back to it.
#[derive(Debug)]
struct Loop {
    begin: u64,
    end: u64,
    /// Instructions in it that write memory, but for the stack.
    stores: usize,
}

/// The loops of a list's code that write memory.
fn copying_loops(code: &[u8]) -> Vec<Loop> {
    let mut decoder = Decoder::with_ip(64, code, 0, DecoderOptions::NONE);
    let instructions: Vec<_> = decoder.iter().collect();
    let mut info = InstructionInfoFactory::new();
    let stores: Vec<u64> = instructions
        .iter()
        .filter(|insn| {
            info.info(insn).used_memory().iter().any(|used| {
                let writes = !matches!(used.access(), OpAccess::Read | OpAccess::CondRead);
                writes && !matches!(used.base(), Register::RSP | Register::RBP)
            })
        })
        .map(iced_x86::Instruction::ip)
        .collect();
    let mut loops: Vec<Loop> = instructions
        .iter()
        .filter(|insn| {
            let branches = matches!(
                insn.flow_control(),
                FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
            );
            branches && insn.near_branch_target() <= insn.ip()
        })
        .map(|insn| {
            let (begin, end) = (insn.near_branch_target(), insn.ip());
            let inside = stores.iter().filter(|at| (begin..end).contains(at));
            Loop {
                begin,
                end,
                stores: inside.count(),
            }
        })
        .collect();
    loops.retain(|one| one.stores > 0);
    loops
}

fn code(list: &List, cpu: Cpu) -> Option<Vec<u8>> {
    let native = compile(list, cpu, Options::default()).ok()?;
    Some(native.code().to_vec())
}

/// Each byte goes through one of three loops, one behind the other: past the caches and through
/// them, some vectors at a time, and the rest by one. So it is of a copy alone, and of a
/// list whose pipes compute, change and leave the data: none has a loop of its own.
#[test]
fn a_list_is_one_loop_that_copies() {
    for cpu in super::cpus() {
        for text in [
            "copy",
            "cksum16",
            "bswap32",
            "cksum16 | bswap32",
            "cksum16 | bswap32 | xor(0xdeadbeef)",
            "sum8 | add16(3) | max32 | xor64(5)",
        ] {
            let list = parse(text).unwrap();
            assert_eq!(plan(&list, cpu, 1472).loops.len(), 1, "{text}");
            let loops = copying_loops(&code(&list, cpu).unwrap());
            let [past, through, rest] = &loops[..] else {
                panic!("{cpu:?}: {text}: {loops:?}");
            };
            let are_apart = past.end < through.begin && through.end < rest.begin;
            assert!(are_apart, "{cpu:?}: {text}: {loops:?}");
            // As many vectors at a time, and then what is in one.
            assert_eq!(past.stores, through.stores, "{cpu:?}: {text}");
            assert!(rest.stores < through.stores, "{cpu:?}: {text}: {loops:?}");
        }
    }
}

/// Bytes of code of a list.
fn bytes(list: &List, cpu: Cpu) -> Option<usize> {
    Some(code(list, cpu)?.len())
}

fn alone(pipe: &Pipe) -> List {
    let mut list = List::new();
    list.push(pipe.clone()).unwrap();
    list
}

/// A thousand lists of up to eight pipes of any kind: what a list takes is what its pipes
/// take alone, or less, as each of those brings the code around it, too; and never a tenth more.
#[test]
fn code_grows_no_faster_than_what_is_in_the_list() {
    let mut random = Random(50);
    for cpu in super::cpus() {
        let (mut together, mut apart, mut most) = (0, 0, 0.0_f64);
        for number in 0..1_000 {
            let list = random::list(&mut random);
            let parts: Option<usize> = list
                .pipes()
                .iter()
                .map(|one| bytes(&alone(&one.pipe), cpu))
                .sum();
            // AES without AES-NI has no code.
            let (Some(parts), Some(whole)) = (parts, bytes(&list, cpu)) else {
                continue;
            };
            let parts = parts.max(bytes(&parse("copy").unwrap(), cpu).unwrap());
            together += whole;
            apart += parts;
            most = most.max(whole as f64 / parts as f64);
            let is_linear = whole * 10 <= parts * 11;
            assert!(is_linear, "list {number}: {whole} bytes, {parts} apart");
        }
        println!("{cpu:?}: {together} bytes, {apart} apart; at most {most:.2} times");
        assert!(together < apart, "{cpu:?}");
    }
}
