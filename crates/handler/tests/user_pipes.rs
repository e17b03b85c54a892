//! A function in Wasm means as a pipe what it means in Wasmtime, word by word.
//!
//! Wasmtime knows nothing of pipes, and the functions are compiled as they were
//! written: so this is an oracle that shares no line with what it judges. All
//! operators that a pipe may have are among them, with 32 and with 64 bits.
//!
//! More functions: `PIPE_FUNCTIONS=100000`; others: `PIPE_SEED=2`.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

#[path = "../../codegen/tests/pipe/cpus.rs"]
mod cpus;
#[allow(dead_code, reason = "that of the other tests of pipes")]
#[path = "../../codegen/tests/pipe/random.rs"]
mod random;

use std::fmt::Write as _;

use ashway_check::bpf::interp::Machine;
use ashway_codegen::normalise::{Limits, Profile, normalise_as};
use ashway_codegen::pipe::ebpf::{KernelList, trial};
use ashway_codegen::pipe::{
    Gauge, List, Options, Pipe, PipeRequest, Portable, Tail, UserPipeError, compile, interpret,
    parse, plan, user_pipe,
};
use ashway_handler::native::{self, Pipes};
use random::Random;
use wasmtime::{Engine, Func, Instance, Module, Store, Val};

/// Functions of one module.
const FUNCTIONS: usize = 100;

const ONE: &[&str] = &["clz", "ctz", "popcnt", "extend8_s", "extend16_s"];
const TWO: &[&str] = &[
    "add", "sub", "mul", "and", "or", "xor", "shl", "shr_u", "shr_s", "rotl", "rotr",
];
const COMPARE: &[&str] = &[
    "eq", "ne", "lt_u", "gt_u", "le_u", "ge_u", "lt_s", "gt_s", "le_s", "ge_s",
];
const SHIFT: &[&str] = &["shl", "shr_u", "shr_s", "rotl", "rotr"];

/// A straight function, while it is written.
struct Writer<'r> {
    random: &'r mut Random,
    bits: u32,
    text: String,
    /// Words on the stack.
    depth: usize,
    /// Locals that may be read, and those that may be set.
    reads: Vec<usize>,
    sets: Vec<usize>,
}

impl Writer<'_> {
    /// An operator that takes and gives so many words.
    fn op(&mut self, name: &str, takes: usize, gives: usize) {
        write!(self.text, "i{}.{name} ", self.bits).unwrap();
        self.depth = self.depth - takes + gives;
    }

    fn local(&mut self, local: usize) {
        write!(self.text, "local.get {local} ").unwrap();
        self.depth += 1;
    }

    fn any_local(&mut self) {
        let local = self.random.below(self.reads.len());
        self.local(self.reads[local]);
    }

    /// Sees to it that there are so many words above the first `below`.
    fn need(&mut self, below: usize, words: usize) {
        while self.depth < below + words {
            self.any_local();
        }
    }

    fn constant(&mut self) {
        let number = match self.random.below(3) {
            // Also further than any word is wide.
            0 => self.random.number() % 70,
            _ => self.random.constant(),
        };
        let number = match self.bits {
            32 => i64::from(number as i32),
            _ => number as i64,
        };
        self.op(&format!("const {number}"), 0, 1);
    }

    /// Leaves one word more on the stack, made by so many operators.
    fn value(&mut self, operators: usize) {
        let below = self.depth;
        for _ in 0..operators {
            match self.random.below(12) {
                0 => self.any_local(),
                1 => self.constant(),
                2 | 3 => {
                    self.need(below, 1);
                    let one = self.random.one_of(ONE);
                    let wide = self.bits == 64 && self.random.below(8) == 0;
                    self.op(if wide { "extend32_s" } else { one }, 1, 1);
                }
                4 => {
                    self.need(below, 1);
                    self.constant();
                    let shift = self.random.one_of(SHIFT);
                    self.op(shift, 2, 1);
                }
                5 => {
                    self.need(below, 2);
                    self.truth();
                    if self.bits == 64 {
                        self.text += "i64.extend_i32_u ";
                    }
                }
                6 => self.select(below),
                7 => self.keep(below),
                _ => {
                    self.need(below, 2);
                    let two = self.random.one_of(TWO);
                    self.op(two, 2, 1);
                }
            }
        }
        self.need(below, 1);
        while self.depth > below + 1 {
            if self.random.below(8) == 0 {
                self.text += "nop drop ";
                self.depth -= 1;
            } else {
                let two = self.random.one_of(TWO);
                self.op(two, 2, 1);
            }
        }
    }

    /// One or two words become a truth, which has 32 bits in either width.
    fn truth(&mut self) {
        if self.random.below(4) == 0 {
            self.op("eqz", 1, 1);
        } else {
            let compare = self.random.one_of(COMPARE);
            self.op(compare, 2, 1);
        }
        if self.random.below(4) == 0 {
            self.text += "i32.eqz ";
        }
    }

    fn select(&mut self, below: usize) {
        self.need(below, 2);
        // Of 32 bits any word can choose, of 64 only a truth.
        self.any_local();
        if self.bits == 64 || self.random.below(2) == 0 {
            self.any_local();
            self.truth();
        }
        self.text += "select ";
        self.depth -= 2;
    }

    fn keep(&mut self, below: usize) {
        self.need(below, 1);
        let local = self.random.below(self.sets.len());
        let local = self.sets[local];
        if self.random.below(2) == 0 {
            write!(self.text, "local.set {local} ").unwrap();
            self.depth -= 1;
        } else {
            write!(self.text, "local.tee {local} ").unwrap();
        }
    }
}

/// The text of a function of so many states.
fn function(random: &mut Random, name: &str, bits: u32, states: usize) -> String {
    // Two locals that begin as 0. Where nothing else is set, states are often reduced
    // into, and the pipe runs on lanes.
    let locals = states + 3;
    let first_set = random.one_of(&[0, states + 1, states + 1]);
    let (steps, fewer) = (1 + random.below(12), random.below(5));
    let mut to = Writer {
        random,
        bits,
        text: String::new(),
        depth: 0,
        reads: (0..locals).collect(),
        sets: (first_set..locals).collect(),
    };
    match to.random.below(4) {
        0 => to.local(0),
        _ => to.value(steps),
    }
    for state in 1..=states {
        match to.random.below(6) {
            0 => to.local(state),
            1 => to.value(fewer),
            _ => {
                to.local(state);
                let all = std::mem::replace(&mut to.reads, vec![0]);
                to.value(fewer);
                to.reads = all;
                let reduction = to.random.one_of(&["add", "xor", "or"]);
                to.op(reduction, 2, 1);
            }
        }
    }
    let types = format!("i{bits} ").repeat(states + 1);
    format!(
        "(func (export \"{name}\") (param {types}) (result {types}) (local i{bits} i{bits}) {})\n",
        to.text
    )
}

/// What a run leaves behind: states, data.
type Left = (Vec<u64>, Vec<u8>);

/// What Wasmtime makes of the data, word by word.
fn oracle(
    store: &mut Store<()>,
    function: &Func,
    bits: u32,
    pipe: &Pipe,
    (mut states, mut data): Left,
) -> Left {
    let value = |number: u64| match bits {
        32 => Val::I32(number as i32),
        _ => Val::I64(number as i64),
    };
    let number = |value: &Val| match value {
        Val::I32(value) => u64::from(*value as u32),
        Val::I64(value) => *value as u64,
        other => panic!("{other:?} is no word"),
    };
    let bytes = pipe.gauge().bytes();
    let mut results = vec![value(0); states.len() + 1];
    for word in data.chunks_mut(bytes) {
        if word.len() < bytes && pipe.tail() == Tail::Leave {
            continue;
        }
        let mut padded = [0; 8];
        padded[..word.len()].copy_from_slice(word);
        let word_and_states = std::iter::once(u64::from_le_bytes(padded));
        let given: Vec<Val> = word_and_states
            .chain(states.iter().copied())
            .map(value)
            .collect();
        function.call(&mut *store, &given, &mut results).unwrap();
        word.copy_from_slice(&number(&results[0]).to_le_bytes()[..word.len()]);
        states = results[1..].iter().map(number).collect();
    }
    (states, data)
}

/// What the kernel tier's form leaves behind, in our interpreter.
fn in_kernel(list: &KernelList, (registers, data): &Left) -> Left {
    let image = trial::program(trial::Work::Passes(std::slice::from_ref(list)), 1);
    let mut machine = Machine::new(1, ashway_abi::trusted::bytes(1), trial::MEMORY_BYTES);
    machine.memory_mut().fill(0);
    for (at, register) in registers.iter().enumerate() {
        let place = trial::REGISTERS + 8 * at;
        machine.memory_mut()[place..place + 8].copy_from_slice(&register.to_le_bytes());
    }
    let frame = trial::frame(data, trial::DESTINATION as u32);
    assert_eq!(machine.run(&image, &frame).unwrap(), trial::COPIED);
    let (registers_bytes, _) = machine.memory()[trial::REGISTERS..].as_chunks::<8>();
    let registers = registers_bytes[..registers.len()].iter();
    (
        registers.map(|bytes| u64::from_le_bytes(*bytes)).collect(),
        machine.memory()[trial::DESTINATION..][..data.len()].to_vec(),
    )
}

/// How many functions ran how.
#[derive(Debug, Default)]
struct Ran {
    functions: usize,
    too_long: usize,
    on_lanes: usize,
    in_kernel: usize,
}

/// One function over several data, in every form.
fn check(
    random: &mut Random,
    pipe: &Pipe,
    bits: u32,
    mut oracle: impl FnMut(Left) -> Left,
    ran: &mut Ran,
) {
    let mut list = List::new();
    list.push(pipe.clone()).unwrap();
    let kernel = KernelList::new(&list).ok();
    ran.functions += 1;
    ran.on_lanes += usize::from(pipe.commutative());
    ran.in_kernel += usize::from(kernel.is_some());
    let mut portable = Portable::new(&list);
    let compiled: Vec<Pipes> = cpus::cpus()
        .into_iter()
        .map(|cpu| Pipes::map(compile(&list, cpu, Options::default()).unwrap()).unwrap())
        .collect();
    for _ in 0..4 {
        let len = random.below(200);
        let data = random.bytes(len);
        let states =
            (0..pipe.registers().len()).map(|_| random.constant() << (64 - bits) >> (64 - bits));
        let first: Left = (states.collect(), data);
        let wanted = oracle(first.clone());
        let mut given = first.clone();
        interpret(&list, &mut given.0, &mut given.1);
        assert_eq!(given, wanted, "interpreted, from {first:x?}");
        let mut given = first.clone();
        portable.run_in_place(&mut given.0, &mut given.1);
        assert_eq!(given, wanted, "portable, from {first:x?}");
        for pipes in &compiled {
            let mut given = (first.0.clone(), vec![0; len]);
            pipes.run(&mut given.0, &first.1, &mut given.1, len);
            assert_eq!(given, wanted, "{:?}, from {first:x?}", pipes.native().cpu());
        }
        if let Some(kernel) = &kernel {
            assert_eq!(
                in_kernel(kernel, &first),
                wanted,
                "in the kernel tier, from {first:x?}"
            );
        }
    }
}

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn functions_mean_as_pipes_what_they_mean_in_wasmtime() {
    let mut random = Random(setting("PIPE_SEED").unwrap_or(1));
    let wanted = setting("PIPE_FUNCTIONS").unwrap_or(2_000) as usize;
    let engine = Engine::default();
    let mut ran = Ran::default();
    while ran.functions < wanted {
        let kinds: Vec<(u32, usize)> = (0..FUNCTIONS)
            .map(|_| (random.one_of(&[32, 32, 64]), random.below(5)))
            .collect();
        let texts: Vec<String> = (kinds.iter().enumerate())
            .map(|(at, (bits, states))| function(&mut random, &format!("f{at}"), *bits, *states))
            .collect();
        let wasm = wat::parse_str(format!("(module {})", texts.concat())).unwrap();
        let mut store = Store::new(&engine, ());
        let module = Module::new(&engine, &wasm).unwrap();
        let instance = Instance::new(&mut store, &module, &[]).unwrap();
        let module = normalise_as(&wasm, &Limits::default(), Profile::Library).unwrap();
        for (at, (bits, _)) in kinds.iter().enumerate() {
            let name = format!("f{at}");
            let gauges: Vec<Gauge> = Gauge::WORDS
                .into_iter()
                .filter(|gauge| gauge.bits() <= *bits)
                .collect();
            let wanted = PipeRequest {
                gauge: Some(random.one_of(&gauges)),
                ..PipeRequest::default()
            };
            let pipe = match user_pipe(&module, &name, wanted) {
                Ok(pipe) => pipe,
                Err(UserPipeError::Pipe(_)) => {
                    ran.too_long += 1;
                    continue;
                }
                Err(error) => panic!("{error}: {}", texts[at]),
            };
            let function = instance.get_func(&mut store, &name).unwrap();
            let failing = Say(&texts[at], pipe.gauge());
            let meant = |left| oracle(&mut store, &function, *bits, &pipe, left);
            check(&mut random, &pipe, *bits, meant, &mut ran);
            std::mem::forget(failing);
        }
    }
    println!("{ran:?}");
    // What would make the test say little.
    assert!(ran.too_long * 4 < ran.functions, "{ran:?}");
    assert!(
        ran.on_lanes * 5 > ran.functions && ran.in_kernel * 20 > ran.functions,
        "{ran:?}"
    );
}

/// CRC32C (RFC 3720 §12.1, Castagnoli's polynomial, reflected), bit by bit and without a table,
/// as somebody writes it who has the definition and nothing else.
const CRC32C: &str = r#"(module
    (func (export "f") (param $byte i32) (param $crc i32) (result i32 i32)
        (local.set $crc (i32.xor (local.get $crc) (local.get $byte)))
        STEPS
        (local.get $byte) (local.get $crc)))"#;
const CRC32C_STEP: &str = "(local.set $crc (i32.xor
    (i32.shr_u (local.get $crc) (i32.const 1))
    (i32.mul (i32.const 0x82f63b78) (i32.and (local.get $crc) (i32.const 1)))))";

/// A primitive that a user brings: it is what the RFC says, what the built-in pipe of that name
/// is, and it is fused with others, in every form and at every length (ASH-49).
#[test]
fn crc32c_by_a_user_is_that_of_the_rfc_and_fuses() {
    let wasm = wat::parse_str(CRC32C.replace("STEPS", &CRC32C_STEP.repeat(8))).unwrap();
    let module = normalise_as(&wasm, &Limits::default(), Profile::Library).unwrap();
    let wanted = PipeRequest {
        gauge: Some(Gauge::Bits8),
        ..PipeRequest::default()
    };
    let pipe = user_pipe(&module, "f", wanted).unwrap();
    // RFC 3720 §B.4, and the check value of the algorithm's catalogue.
    for (data, crc) in [
        (&b"123456789"[..], 0xe306_9283_u32),
        (&[0; 32], 0x8a91_36aa),
        (&[0xff; 32], 0x62a8_ab43),
    ] {
        let mut list = List::new();
        list.push(pipe.clone()).unwrap();
        let (mut registers, mut copy) = (vec![u64::from(u32::MAX)], data.to_vec());
        interpret(&list, &mut registers, &mut copy);
        assert_eq!((!registers[0] as u32, &copy[..]), (crc, data));
    }
    // Between others, one of which changes what it sees.
    let [mut own, mut builtin] = [(); 2].map(|()| parse("cksum16 | bswap32").unwrap());
    own.push(pipe).unwrap();
    builtin
        .push(parse("crc32c").unwrap().pipes()[0].pipe.clone())
        .unwrap();
    for list in [&mut own, &mut builtin] {
        let xor = parse("xor(0xdeadbeef)").unwrap();
        list.push(xor.pipes()[0].pipe.clone()).unwrap();
    }
    let first = |list: &List| {
        let mut registers = list.initial();
        // Behind the checksum; the other one begins so.
        registers[1] = u32::MAX.into();
        registers
    };
    let mut random = Random(49);
    let data = random.bytes(1_500);
    let mut portable = Portable::new(&own);
    for len in 0..=data.len() {
        let mut meant = (first(&builtin), data[..len].to_vec());
        interpret(&builtin, &mut meant.0, &mut meant.1);
        let mut given = (first(&own), data[..len].to_vec());
        portable.run_in_place(&mut given.0, &mut given.1);
        assert_eq!(given, meant, "portable, {len} bytes");
    }
    for cpu in cpus::cpus() {
        assert_eq!(plan(&own, cpu, 1_472).loops.len(), 1, "{cpu:?}: one loop");
        let pipes = Pipes::map(compile(&own, cpu, Options::default()).unwrap()).unwrap();
        for len in 0..=data.len() {
            let mut meant = (first(&builtin), data[..len].to_vec());
            interpret(&builtin, &mut meant.0, &mut meant.1);
            let mut given = (first(&own), vec![0; len]);
            pipes.run(&mut given.0, &data[..len], &mut given.1, len);
            assert_eq!(given, meant, "{cpu:?}, {len} bytes");
        }
    }
}

/// Says which function it was if the test does not come to its end.
struct Say<'t>(&'t str, Gauge);

impl Drop for Say<'_> {
    fn drop(&mut self) {
        eprintln!("on words of {}: {}", self.1, self.0);
    }
}
