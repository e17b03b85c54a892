//! Every random list, over any length at any alignment, gives in every form what
//! the interpreter gives, and that is what its pipes give one after the other.
//!
//! A long campaign: `cargo xtask fuzz-pipes`. A case that fails says its seed; with
//! `PIPE_LIST=SEED` only that list runs.

use std::ops::Range;
use std::ptr::NonNull;

use ashway_codegen::pipe::{
    Binary, Builder, Count, Cpu, Direction, Gauge, Isa, Layout, List, Op, Options, Portable,
    Reduce, Shift, Value, compile, interpret,
};
use iced_x86::{CpuidFeature, Decoder, DecoderOptions};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

use super::native::Pipes;
use super::random::{self, Random};

/// Data for each list, each in every form.
const RUNS: usize = 16;
const PAGE: usize = 4096;
/// Room for 4096 bytes in stripes, at any alignment.
const ROOM: usize = 3 * PAGE;
/// Memory that nobody wrote to.
const UNTOUCHED: [u8; ROOM] = [0xc3; ROOM];

/// Memory between two pages that nobody may touch.
struct Guarded {
    base: NonNull<u8>,
}

impl Guarded {
    fn new() -> Self {
        let all = ROOM + 2 * PAGE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                all,
                ProtFlags::empty(),
                MapFlags::PRIVATE,
            )
        }
        .unwrap();
        let inside = base.cast::<u8>().wrapping_add(PAGE);
        // SAFETY: our own mapping; nothing refers into it.
        unsafe {
            mprotect(
                inside.cast(),
                ROOM,
                MprotectFlags::READ | MprotectFlags::WRITE,
            )
        }
        .unwrap();
        Self {
            base: NonNull::new(inside).unwrap(),
        }
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: `ROOM` bytes are mapped there and ours.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), ROOM) }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        let all = self.base.as_ptr().wrapping_sub(PAGE);
        // SAFETY: our own mapping.
        unsafe { munmap(all.cast(), ROOM + 2 * PAGE) }.unwrap();
    }
}

/// Somewhere for `len` bytes: at the front, at the end, or at any alignment.
fn somewhere(random: &mut Random, len: usize) -> Range<usize> {
    let start = match random.below(3) {
        0 => 0,
        1 => ROOM - len,
        _ => random.below((ROOM - len).min(64) + 1),
    };
    start..start + len
}

/// Where each 16 bytes of `len` lie, the last ones perhaps fewer.
fn pieces(layout: Layout, len: usize) -> impl Iterator<Item = (Range<usize>, Range<usize>)> {
    (0..len).step_by(16).map(move |at| {
        let place = match layout {
            Layout::Contiguous => at,
            Layout::Striped => at * 2,
        };
        let bytes = (len - at).min(16);
        (at..at + bytes, place..place + bytes)
    })
}

/// What a run left behind.
#[derive(Debug, PartialEq)]
struct Left {
    registers: Vec<u64>,
    data: Vec<u8>,
}

pub(super) struct Bench {
    source: Guarded,
    destination: Guarded,
}

impl Bench {
    pub(super) fn new() -> Self {
        Self {
            source: Guarded::new(),
            destination: Guarded::new(),
        }
    }

    /// Runs compiled pipes from one guarded place to another.
    fn across(&mut self, random: &mut Random, pipes: &Pipes, data: &[u8], first: &[u64]) -> Left {
        let (from, to) = (pipes.native().source(), pipes.native().destination());
        let source_at = somewhere(random, from.footprint(data.len()));
        let destination_at = somewhere(random, to.footprint(data.len()));
        let source = self.source.bytes();
        source.fill(0xa5);
        for (of, place) in pieces(from, data.len()) {
            source[source_at.start..][place].copy_from_slice(&data[of]);
        }
        let destination = self.destination.bytes();
        destination.fill(0xc3);
        let mut registers = first.to_vec();
        pipes.run(
            &mut registers,
            &source[source_at],
            &mut destination[destination_at.clone()],
            data.len(),
        );
        let mut written = Vec::with_capacity(data.len());
        for (_, place) in pieces(to, data.len()) {
            let piece = &mut destination[destination_at.start..][place];
            written.extend_from_slice(piece);
            piece.fill(0xc3);
        }
        assert!(destination == UNTOUCHED, "nothing else is written");
        Left {
            registers,
            data: written,
        }
    }

    /// Runs compiled pipes in place.
    fn in_place(&mut self, random: &mut Random, pipes: &Pipes, data: &[u8], first: &[u64]) -> Left {
        let at = somewhere(random, data.len());
        let memory = self.source.bytes();
        memory.fill(0xc3);
        memory[at.clone()].copy_from_slice(data);
        let mut registers = first.to_vec();
        pipes.run_in_place(&mut registers, &mut memory[at.clone()]);
        let data = memory[at.clone()].to_vec();
        memory[at].fill(0xc3);
        assert!(memory == UNTOUCHED, "nothing else is written");
        Left { registers, data }
    }
}

/// How a list may be compiled.
fn forms() -> [Options; 4] {
    let striped = Options {
        layout: Layout::Striped,
        ..Options::default()
    };
    [
        Options::default(),
        Options {
            in_place: true,
            ..Options::default()
        },
        striped,
        Options {
            direction: Direction::Write,
            ..striped
        },
    ]
}

/// One list in every form, over several data. Panics with what differs.
pub(super) fn check(bench: &mut Bench, random: &mut Random, list: &List) {
    let mut portable = Portable::new(list);
    let compiled: Vec<Pipes> = super::cpus()
        .into_iter()
        .map(|cpu| Pipes::map(compile(list, cpu, random.one_of(&forms())).unwrap()).unwrap())
        .collect();
    for _ in 0..RUNS {
        let len = random.length();
        case(bench, random, list, &mut portable, &compiled, len);
    }
}

/// One list in these forms, over `len` bytes.
fn case(
    bench: &mut Bench,
    random: &mut Random,
    list: &List,
    portable: &mut Portable,
    compiled: &[Pipes],
    len: usize,
) {
    let data = random.bytes(len);
    let mut first = list.initial();
    for register in &mut first {
        if random.below(4) == 0 {
            *register = random.constant();
        }
    }
    let mut wanted = Left {
        registers: first.clone(),
        data: data.clone(),
    };
    interpret(list, &mut wanted.registers, &mut wanted.data);
    assert_eq!(
        one_by_one(list, &data, &first),
        wanted,
        "one by one, {len} bytes"
    );
    let mut left = Left {
        registers: first.clone(),
        data: data.clone(),
    };
    portable.run_in_place(&mut left.registers, &mut left.data);
    assert_eq!(left, wanted, "portable, {len} bytes");
    for pipes in compiled {
        let left = if pipes.native().options().in_place {
            bench.in_place(random, pipes, &data, &first)
        } else {
            bench.across(random, pipes, &data, &first)
        };
        let native = pipes.native();
        assert_eq!(
            left,
            wanted,
            "{:?} {:?}, {len} bytes, {:?}",
            native.cpu(),
            native.options(),
            native.steps()
        );
    }
}

/// The naive composition: each pipe alone, in its own list.
fn one_by_one(list: &List, data: &[u8], first: &[u64]) -> Left {
    let mut left = Left {
        registers: first.to_vec(),
        data: data.to_vec(),
    };
    for placed in list.pipes() {
        let mut alone = List::new();
        alone.push(placed.pipe.clone()).unwrap();
        let registers = placed.first_register..placed.first_register + alone.register_count();
        interpret(&alone, &mut left.registers[registers], &mut left.data);
    }
    left
}

pub(super) fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn every_list_gives_the_same_in_every_form() {
    let cases = setting("PIPE_CASES").unwrap_or(20_000) as usize;
    let first = setting("PIPE_SEED").unwrap_or(0x6173_6877_6179);
    let only = setting("PIPE_LIST");
    let lists = if only.is_some() {
        1
    } else {
        cases.div_ceil(RUNS)
    };
    let mut bench = Bench::new();
    let mut seeds = Random(first);
    for _ in 0..lists {
        let seed = only.unwrap_or_else(|| seeds.number());
        // Also where a guard page ends the process: then the last one counts.
        let failing = Say(seed);
        let mut random = Random(seed);
        let list = random::list(&mut random);
        check(&mut bench, &mut random, &list);
        std::mem::forget(failing);
    }
}

/// Operators that no pipe of ours has, so that nothing but random lists would meet
/// them: alone, in every width, at every length up to some chunks.
#[test]
fn counts_and_shifts_by_values_are_the_same_at_every_length() {
    let counts = [Count::Ones, Count::Leading, Count::Trailing];
    let shifts = [
        Shift::Left,
        Shift::Right,
        Shift::RightSigned,
        Shift::RotateLeft,
    ];
    let mut random = Random(8);
    let mut bench = Bench::new();
    for gauge in Gauge::WORDS {
        let mut lists = Vec::new();
        let mut add = |op: &dyn Fn(&mut Builder, Value) -> Value| {
            let mut body = Builder::new("one", gauge);
            let register = body.register("sum", 0);
            let word = body.input();
            let value = op(&mut body, word);
            body.reduce(register, Reduce::Sum, value);
            let mut list = List::new();
            list.push(body.commutative().finish(value).unwrap())
                .unwrap();
            lists.push(list);
        };
        for what in counts {
            add(&|body, word| body.op(Op::Count(what, word)));
        }
        for shift in shifts {
            add(&|body, word| {
                // By the word itself and by its upper half: all distances are there.
                let high = body.shift(Shift::Right, word, gauge.bits() / 2);
                let by = body.binary(Binary::Add, word, high);
                body.op(Op::ShiftBy(shift, word, by))
            });
        }
        for list in &lists {
            let mut portable = Portable::new(list);
            let mut compiled = Vec::new();
            for cpu in super::cpus() {
                for options in forms() {
                    compiled.push(Pipes::map(compile(list, cpu, options).unwrap()).unwrap());
                }
            }
            for len in 0..=193 {
                case(&mut bench, &mut random, list, &mut portable, &compiled, len);
            }
        }
    }
}

/// What a CPU that this one cannot be would not know ends a process there and nowhere
/// else: the same instruction of 128 bits may be PCLMULQDQ's, or VPCLMULQDQ's where it
/// names a register above 15.
#[test]
fn no_form_has_an_instruction_that_its_cpu_lacks() {
    let mut cpus = Vec::new();
    for bits in 0..32 {
        let has = |bit: u32| bits >> bit & 1 == 1;
        let wide = has(0);
        cpus.push(Cpu {
            isa: if wide { Isa::Avx512 } else { Isa::Avx2 },
            permute_bytes: wide && has(1),
            carryless: has(2),
            carryless_wide: has(2) && has(3),
            aes: true,
            aes_wide: has(4),
        });
    }
    let mut random = Random(512);
    for _ in 0..100 {
        let list = random::list(&mut random);
        for cpu in &cpus {
            let native = compile(&list, *cpu, Options::default()).unwrap();
            let code = &native.code()[..native.instruction_bytes()];
            for instruction in &mut Decoder::new(64, code, DecoderOptions::NONE) {
                for feature in instruction.cpuid_features() {
                    assert!(knows(*cpu, *feature), "{cpu:?}: {instruction}: {feature:?}");
                }
            }
        }
    }
}

/// Whether the CPU is one with this feature, or none of ours is without it.
fn knows(cpu: Cpu, feature: CpuidFeature) -> bool {
    use CpuidFeature as F;
    match feature {
        F::AVX512F | F::AVX512BW | F::AVX512DQ | F::AVX512VL => cpu.isa == Isa::Avx512,
        F::AVX512_VBMI => cpu.permute_bytes,
        F::PCLMULQDQ => cpu.carryless,
        F::VPCLMULQDQ => cpu.carryless_wide,
        F::AES => cpu.aes,
        F::VAES => cpu.aes_wide,
        F::INTEL8086
        | F::INTEL186
        | F::INTEL386
        | F::INTEL486
        | F::X64
        | F::CMOV
        | F::SSE
        | F::AVX
        | F::AVX2
        | F::BMI1
        | F::BMI2
        | F::LZCNT
        | F::POPCNT => true,
        _ => false,
    }
}

/// Says the seed if the test does not come to its end.
pub(super) struct Say(pub(super) u64);

impl Drop for Say {
    fn drop(&mut self) {
        eprintln!("this one again: PIPE_LIST={}", self.0);
    }
}
