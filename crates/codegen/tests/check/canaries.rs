//! Ten thousand handlers that load and store anywhere, one by one, in bulk, atomically, and out of
//! and into their message, in the kernel: no byte outside their memory changes.
//!
//! Everything around the guest memory is filled with a pattern: the state
//! region and what is mapped behind it, another arena and another array beside
//! it, and a context behind that of the last CPU. The handlers of a module are
//! behind one table, so that 20 of them are loaded at a time.

use super::programs::{Subject, stub_of};
use ashway_abi::MemoryKind;
use ashway_abi::context;
use ashway_abi::memory::{STATE_GLOBALS, WASM_PAGE};
use ashway_check::bpf::MapRef;
use ashway_codegen::normalise::{Limits, normalise};
use ashway_codegen::stub;
use ashway_kernel::{Map, MapFixup, MapSpec, Program, ProgramKind, ProgramSpec, TestRun, shared};
use ashway_memory::{AllegedOffset, Memory};
use ashway_rig::skip_unless_root;
use std::fmt::Write;

const MODULES: usize = 500;
const HANDLERS: usize = 20;
/// Messages for each handler.
const MESSAGES: usize = 3;
/// Accesses of a handler, at most.
const ACCESSES: usize = 3;
/// Bytes mapped behind the state region, and of each neighbour.
const AROUND: usize = WASM_PAGE;

/// Marsaglia, "Xorshift RNGs" (2003).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 16
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.next() as usize % from.len()]
    }

    /// A number where something ends, or near that, or any.
    fn edge(&mut self) -> u32 {
        let ends = [
            0,
            1 << 15,
            WASM_PAGE as u32,
            2 * WASM_PAGE as u32,
            1 << 31,
            u32::MAX,
        ];
        match self.next() % 4 {
            0 => self.next() as u32,
            1 => self.next() as u32 % WASM_PAGE as u32,
            _ => (self.pick(&ends))
                .wrapping_add(self.next() as u32 % 24)
                .wrapping_sub(12),
        }
    }
}

/// Bytes at `at` that nobody writes by chance.
fn pattern(at: usize) -> u8 {
    (at.wrapping_mul(0x9e37_79b1) >> 11) as u8 | 1
}

/// `(operator, type of what it stores, bytes)`; a load leaves something to drop.
const OPERATORS: [(&str, &str, u32); 18] = [
    ("i32.load", "", 4),
    ("i32.load8_u", "", 1),
    ("i32.load8_s", "", 1),
    ("i32.load16_s", "", 2),
    ("i32.load16_u", "", 2),
    ("i64.load", "", 8),
    ("i64.load8_s", "", 1),
    ("i64.load16_u", "", 2),
    ("i64.load32_s", "", 4),
    ("i32.store", "i32", 4),
    ("i32.store8", "i32", 1),
    ("i32.store16", "i32", 2),
    ("i64.store", "i64", 8),
    ("i64.store8", "i64", 1),
    ("i64.store16", "i64", 2),
    ("i64.store32", "i64", 4),
    ("i64.store", "i64", 8),
    ("i32.store8", "i32", 1),
];

/// `(operator, what it stores, bytes)`; each leaves an old value to drop, but for the store.
const ATOMICS: [(&str, &str, u32); 8] = [
    ("i32.atomic.load", "", 4),
    ("i32.atomic.store", "i32", 4),
    ("i32.atomic.rmw.add", "i32", 4),
    ("i64.atomic.rmw.xchg", "i64", 8),
    ("i32.atomic.rmw8.or_u", "i32", 1),
    ("i64.atomic.rmw16.xor_u", "i64", 2),
    ("i64.atomic.rmw32.and_u", "i64", 4),
    ("i32.atomic.rmw.sub", "i32", 4),
];

/// What moves bytes from or to an address, which is on the stack; `LEN` is how many.
const BULK: [&str; 5] = [
    "i32.const 0x5a i32.const LEN memory.fill",
    // To it, and from it.
    "i32.const 128 i32.const LEN memory.copy",
    "local.set $at i32.const 128 local.get $at i32.const LEN memory.copy",
    "local.set $at i32.const 0 local.get $at i32.const LEN call $read",
    "local.set $at i32.const 0 local.get $at i32.const LEN call $write",
];

/// How many bytes they move. A message has 16.
const LENGTHS: [u32; 8] = [0, 1, 7, 16, 64, 65, 257, 4_096];

/// An operation on the address that is on the stack: its text, offset and width.
fn operation(random: &mut Random) -> (String, u32, u32) {
    let offset = match random.next() % 2 {
        0 => random.next() as u32 % 4_096,
        _ => random.edge(),
    };
    let (operator, stored, bytes) = match random.next() % 4 {
        0 => {
            let text = random.pick(&BULK);
            let most = if text.contains("call") { 16 } else { u32::MAX };
            let bytes = random.pick(&LENGTHS).min(most);
            return (text.replace("LEN", &bytes.to_string()), 0, bytes);
        }
        1 => random.pick(&ATOMICS),
        _ => random.pick(&OPERATORS),
    };
    let gives = stored.is_empty() || operator.contains(".rmw");
    let drop = if gives { "drop" } else { "" };
    let value = match stored {
        "" => String::new(),
        ty => format!("{ty}.const {}", random.next() as i32),
    };
    (
        format!("{value} {operator} offset={offset} {drop}"),
        offset,
        bytes,
    )
}

/// A module of handlers, and of each access its offset and width.
fn module(random: &mut Random) -> (Vec<u8>, Vec<Vec<(u32, u32)>>) {
    let mut text = String::new();
    let mut all = Vec::new();
    for number in 0..HANDLERS {
        write!(text, "(func $h{number} (local $at i32)").unwrap();
        let mut accesses = Vec::new();
        for place in 0..=random.next() as usize % ACCESSES {
            let (operation, offset, bytes) = operation(random);
            let at = 4 + 4 * place;
            write!(text, " (call $load32 (i32.const {at})) {operation}").unwrap();
            accesses.push((offset, bytes));
        }
        text += ")\n";
        all.push(accesses);
    }
    let names: Vec<String> = (0..HANDLERS).map(|number| format!("$h{number}")).collect();
    let names = names.join(" ");
    let text = format!(
        r#"(module
        (import "ashway" "msg_load32le" (func $load32 (param i32) (result i32)))
        (import "ashway" "msg_read" (func $read (param i32 i32 i32)))
        (import "ashway" "msg_write" (func $write (param i32 i32 i32)))
        (memory (export "memory") 1 1)
        (type $handler (func))
        (table {HANDLERS} {HANDLERS} funcref)
        (elem (i32.const 0) {names})
        {text}
        (func (export "on_rx") (param i32 i32) (result i32)
            (call_indirect (type $handler) (call $load32 (i32.const 0)))
            (i32.const 0)))"#
    );
    (wat::parse_str(text).unwrap(), all)
}

/// A program in the kernel, between canaries.
struct Cage {
    program: Program,
    memory: Memory,
    context: Map,
    neighbours: [Memory; 2],
    /// Behind the guest memory, as it has to stay.
    around: Vec<u8>,
    guest: usize,
}

fn read(memory: &Memory, from: usize) -> Vec<u8> {
    let mut bytes = vec![0; memory.len() - from];
    let from = AllegedOffset(from as u32);
    memory.copy_out(from, &mut bytes).unwrap();
    bytes
}

fn contexts() -> usize {
    ashway_kernel::maps::possible_cpus().unwrap()
}

impl Cage {
    fn new(made: &Subject) -> Self {
        let guest = made.shape.layout.guest_bytes;
        let bytes = made.memory.len() + AROUND;
        let [memory, arena, array] =
            [made.shape.memory, MemoryKind::Arena, MemoryKind::Array].map(|kind| match kind {
                MemoryKind::Arena => shared::arena(bytes).unwrap(),
                MemoryKind::Array => shared::array(bytes).unwrap(),
            });
        let mut around = made.memory[guest..].to_vec();
        around.resize(memory.len() - guest, 0);
        for (at, byte) in around.iter_mut().enumerate().skip(STATE_GLOBALS) {
            assert_eq!(*byte, 0, "the module has nothing in its state region");
            *byte = pattern(at);
        }
        memory
            .copy_in(AllegedOffset(0), &made.memory[..guest])
            .unwrap();
        memory
            .copy_in(AllegedOffset(guest as u32), &around)
            .unwrap();
        for neighbour in [&arena, &array] {
            let bytes: Vec<u8> = (0..neighbour.len()).map(pattern).collect();
            neighbour.copy_in(AllegedOffset(0), &bytes).unwrap();
        }
        let mut value = vec![0; context::BYTES * contexts()];
        value.extend((0..context::BYTES).map(pattern));
        let context = MapSpec::array("ashway_canary", value.len() as u32, 1);
        let context = Map::create(&context).unwrap();
        context.update(&[0; 4], &value).unwrap();
        let fixup = |used: &ashway_check::bpf::MapUse| MapFixup {
            insn: used.insn,
            fd: match used.map {
                MapRef::Context => context.fd(),
                MapRef::Memory => memory.fd(),
                other => panic!("{other:?} has no place here"),
            },
            value_offset: used.value_offset,
        };
        let maps: Vec<MapFixup<'_>> = made.image.maps.iter().map(fixup).collect();
        let program = Program::load(&ProgramSpec {
            name: "ashway_canary",
            kind: ProgramKind::Xdp,
            attach_type: 0,
            insns: &made.image.insns,
            maps: &maps,
            btf: None,
        });
        let program = program.unwrap_or_else(|error| panic!("{error}\n{}", error.log()));
        Self {
            program,
            memory,
            context,
            neighbours: [arena, array],
            around,
            guest,
        }
    }

    /// Whether the handler came to its end.
    fn run(&self, message: &[u8]) -> bool {
        let run = TestRun {
            packet: &stub::frame(message),
            context: None,
            repeat: 1,
        };
        let result = self.program.test_run(&run).unwrap();
        assert_eq!(result.retval, stub::RETURNED);
        stub::outcome(&result.packet).unwrap().result.is_ok()
    }

    /// # Panics
    ///
    /// If a canary is dead.
    fn look(&self) {
        assert!(
            read(&self.memory, self.guest) == self.around,
            "behind the guest memory"
        );
        for neighbour in &self.neighbours {
            let bytes = read(neighbour, 0);
            let changed = (0..bytes.len()).find(|at| bytes[*at] != pattern(*at));
            assert_eq!(changed, None, "{:?} beside the memory", neighbour.kind());
        }
        let contexts = self.context.lookup(&[0; 4]).unwrap().unwrap();
        let last = &contexts[contexts.len() - context::BYTES..];
        let changed = (0..last.len()).find(|at| last[*at] != pattern(*at));
        assert_eq!(changed, None, "the context behind the last CPU's");
    }
}

#[test]
fn ten_thousand_handlers_change_nothing_outside_their_memory() {
    if skip_unless_root() {
        return;
    }
    let seed = std::env::var("SEED").map_or(0x5eed, |seed| seed.parse().unwrap());
    let mut random = Random(seed);
    let (mut ended, mut stopped) = (0, 0);
    for number in 0..MODULES {
        // One in four in array mode.
        let kind = match number % 4 {
            3 => MemoryKind::Array,
            _ => MemoryKind::Arena,
        };
        let (wasm, handlers) = module(&mut random);
        let module = normalise(&wasm, &Limits::default()).unwrap();
        let locals_in_memory = number % 8 > 3;
        let made = stub_of(
            "canaries",
            &module,
            kind,
            locals_in_memory,
            contexts() as u32,
        );
        let made = made.unwrap();
        assert!(made.check().is_ok(), "our own checker takes it");
        let cage = Cage::new(&made);
        for (handler, accesses) in (0_u32..).zip(&handlers) {
            for _ in 0..MESSAGES {
                let mut message = handler.to_le_bytes().to_vec();
                for (offset, bytes) in accesses {
                    // Where the access ends at the memory's end, or near that.
                    let last = (WASM_PAGE as u32).wrapping_sub(offset.wrapping_add(*bytes));
                    let address = match random.next() % 4 {
                        0 => random.edge(),
                        1 => random.edge().wrapping_sub(*offset),
                        2 => last,
                        _ => last.wrapping_add(random.next() as u32 % 5).wrapping_sub(2),
                    };
                    message.extend(address.to_le_bytes());
                }
                message.resize(16, 0);
                if cage.run(&message) {
                    ended += 1;
                } else {
                    stopped += 1;
                }
            }
        }
        cage.look();
    }
    println!("{ended} ended, {stopped} were stopped");
    let all = MODULES * HANDLERS * MESSAGES;
    assert!(ended > all / 8 && stopped > all / 4, "{ended} {stopped}");
}
