//! A stand-in for the program around a promoted handler, and the ways to run it.

use ashway_abi::memory::{Layout, STATE_BYTES, STATE_GUEST_PAGES, WASM_PAGE};
use ashway_abi::{Cause, context};
use ashway_codegen::bpf::interp::Machine;
use ashway_codegen::bpf::{Assembler, Image, MapRef, Reg, Size, helper, op};
use ashway_codegen::normalise::ir::Global;
use ashway_codegen::normalise::{Limits, Module, normalise};
pub(crate) use ashway_codegen::promote::Budget;
use ashway_codegen::promote::{self, MemoryKind, PromoteError, Shape, Summary};

use Reg::{R0, R1, R2, R3, R6, R9, R10};
use ashway_kernel::{
    AllegedOffset, Map, MapFixup, MapSpec, Memory, Program, ProgramKind, ProgramSpec, TestRun,
};

/// Bytes before the message: what would be headers carries numbers in and out.
const HEADERS: usize = 64;

/// More than any test needs.
pub(crate) const PLENTY: Budget = Budget {
    fuel: 1_000_000,
    slice: 20_000,
    ns: 1_000_000_000,
};

/// What a run came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// The verdict, or cause and place of the trap.
    pub(crate) result: Result<u32, (Cause, u32)>,
    pub(crate) message: Vec<u8>,
    pub(crate) dirty: bool,
    /// Fuel left.
    pub(crate) fuel: i64,
    /// Guest memory and state.
    pub(crate) memory: Vec<u8>,
}

/// A translation.
pub(crate) struct Promoted {
    pub(crate) image: Image,
    pub(crate) summary: Summary,
    kind: MemoryKind,
    /// Memory before the first message.
    memory: Vec<u8>,
}

pub(crate) fn module(text: &str) -> Vec<u8> {
    wat::parse_str(text).unwrap()
}

/// A module around the body of a handler that has `$len` and `$channel`.
pub(crate) fn handler(body: &str) -> Vec<u8> {
    module(&format!(
        r#"(module {IMPORTS}
            (memory (export "memory") 1 1)
            (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
                {body}))"#
    ))
}

/// The host calls that tests use.
pub(crate) const IMPORTS: &str = r#"
    (import "ashway" "msg_load8" (func $load8 (param i32) (result i32)))
    (import "ashway" "msg_load32le" (func $load32 (param i32) (result i32)))
    (import "ashway" "msg_load64le" (func $load64 (param i32) (result i64)))
    (import "ashway" "msg_load16be" (func $load16be (param i32) (result i32)))
    (import "ashway" "msg_load32be" (func $load32be (param i32) (result i32)))
    (import "ashway" "msg_load64be" (func $load64be (param i32) (result i64)))
    (import "ashway" "msg_store8" (func $store8 (param i32 i32)))
    (import "ashway" "msg_store32le" (func $store32 (param i32 i32)))
    (import "ashway" "msg_store64le" (func $store64 (param i32 i64)))
    (import "ashway" "msg_store16be" (func $store16be (param i32 i32)))
    (import "ashway" "msg_store64be" (func $store64be (param i32 i64)))
    (import "ashway" "msg_read" (func $read (param i32 i32 i32)))
    (import "ashway" "msg_write" (func $write (param i32 i32 i32)))
"#;

/// Translates `on_rx` of a module.
pub(crate) fn promote(
    wasm: &[u8],
    kind: MemoryKind,
    locals_in_memory: bool,
    budget: Budget,
) -> Result<Promoted, PromoteError> {
    let module = normalise(wasm, &Limits::default()).unwrap();
    let entry = module
        .exports
        .iter()
        .find(|(name, _)| name == "on_rx")
        .unwrap()
        .1;
    let layout = Layout {
        guest_bytes: module.maximum_pages as usize * WASM_PAGE,
        rings: 0,
        slot_bytes: 2048,
    };
    let shape = Shape {
        module: &module,
        entry,
        memory: kind,
        layout,
        budget,
        locals_in_memory,
    };
    let mut asm = Assembler::new();
    let (done, trap) = (asm.label(), asm.label());
    prologue(&mut asm, kind, budget);
    let summary = promote::emit(&mut asm, &shape, done, trap)?;
    asm.line(None);
    epilogue(&mut asm, done, trap);
    Ok(Promoted {
        image: asm.finish(),
        summary,
        kind,
        memory: first_memory(&module, layout),
    })
}

fn first_memory(module: &Module<'_>, layout: Layout) -> Vec<u8> {
    let mut memory = vec![0; layout.total_bytes()];
    for data in &module.data {
        if let Some(offset) = data.offset {
            memory[offset as usize..][..data.bytes.len()].copy_from_slice(data.bytes);
        }
    }
    let state = &mut memory[layout.state_offset()..][..STATE_BYTES];
    state[STATE_GUEST_PAGES..][..4].copy_from_slice(&module.initial_pages.to_le_bytes());
    for global in &module.globals {
        if let Global::State {
            offset, initial, ..
        } = global
        {
            state[*offset as usize..][..8].copy_from_slice(&initial.to_le_bytes());
        }
    }
    memory
}

/// What the instance program does before the handler, with the message's
/// length and offset from the frame.
fn prologue(asm: &mut Assembler, kind: MemoryKind, budget: Budget) {
    let fail = asm.label();
    let good = asm.label();
    asm.mov(R6, R1);
    asm.store_imm(Size::W, R10, -40, 0);
    asm.map(R1, MapRef::Context, None);
    asm.mov(R2, R10);
    asm.alu_imm(op::ADD, R2, -40);
    asm.call(helper::MAP_LOOKUP_ELEM);
    asm.jump_if_imm(op::JEQ, R0, 0, fail);
    asm.mov(R9, R0);
    asm.store(Size::D, R10, -8, R6);
    asm.load(Size::W, R1, R6, 0);
    asm.load(Size::W, R2, R6, 4);
    asm.mov(R0, R1);
    asm.alu_imm(op::ADD, R0, HEADERS as i32);
    asm.jump_if(op::JGT, R0, R2, fail);
    asm.load(Size::W, R3, R1, 0);
    asm.store(Size::W, R9, context::PAYLOAD_LEN, R3);
    asm.load(Size::W, R3, R1, 4);
    asm.store(Size::W, R9, context::PAYLOAD_OFF, R3);
    match kind {
        MemoryKind::Arena => asm.jump_if_imm(op::JLE, R3, 96, good),
        // Without CAP_PERFMON a packet pointer moves only by constants.
        MemoryKind::Array => asm.jump_if_imm(op::JEQ, R3, HEADERS as i32, good),
    }
    asm.bind(fail);
    asm.mov_imm(R0, 1);
    asm.exit();
    asm.bind(good);
    match kind {
        MemoryKind::Arena => asm.alu(op::ADD, R1, R3),
        MemoryKind::Array => asm.alu_imm(op::ADD, R1, HEADERS as i32),
    }
    asm.store(Size::D, R10, -16, R1);
    asm.store(Size::D, R10, -24, R2);
    if kind == MemoryKind::Array {
        asm.map(R1, MapRef::Memory, Some(0));
        asm.store(Size::D, R10, -32, R1);
    } else {
        asm.map(R1, MapRef::Memory, None);
    }
    let slice = budget.fuel.min(u64::from(budget.slice));
    asm.store_imm(Size::D, R9, context::FUEL, slice as i32);
    asm.load_imm(R1, budget.fuel - slice);
    asm.store(Size::D, R9, context::RESERVE, R1);
    asm.store_imm(Size::D, R9, context::DEADLINE, 0);
    asm.store_imm(Size::W, R9, context::DIRTY, 0);
    asm.store_imm(Size::W, R9, context::CAUSE, 0);
    asm.store_imm(Size::W, R9, context::AT, 0);
}

/// Verdict, cause, place, dirty and fuel into the frame.
fn epilogue(
    asm: &mut Assembler,
    done: ashway_codegen::bpf::Label,
    trap: ashway_codegen::bpf::Label,
) {
    let fail = asm.label();
    asm.bind(trap);
    asm.mov_imm(R0, -1);
    asm.bind(done);
    asm.load(Size::D, R6, R10, -8);
    asm.load(Size::W, R1, R6, 0);
    asm.load(Size::W, R2, R6, 4);
    asm.mov(R3, R1);
    asm.alu_imm(op::ADD, R3, HEADERS as i32);
    asm.jump_if(op::JGT, R3, R2, fail);
    asm.store(Size::W, R1, 8, R0);
    for (off, field) in [
        (12, context::CAUSE),
        (16, context::AT),
        (20, context::DIRTY),
    ] {
        asm.load(Size::W, R2, R9, field);
        asm.store(Size::W, R1, off, R2);
    }
    asm.load(Size::D, R2, R9, context::FUEL);
    asm.load(Size::D, R3, R9, context::RESERVE);
    asm.alu(op::ADD, R2, R3);
    asm.store(Size::D, R1, 24, R2);
    asm.mov_imm(R0, 2);
    asm.exit();
    asm.bind(fail);
    asm.mov_imm(R0, 1);
    asm.exit();
}

/// The frame for a message; padded, as a short Ethernet frame is.
fn frame(message: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; HEADERS];
    frame[..4].copy_from_slice(&(message.len() as u32).to_le_bytes());
    frame[4..8].copy_from_slice(&(HEADERS as u32).to_le_bytes());
    frame.extend_from_slice(message);
    frame.extend_from_slice(&[0xcc; 16]);
    frame
}

fn outcome(frame: &[u8], memory: Vec<u8>) -> Outcome {
    let word = |at: usize| u32::from_le_bytes(frame[at..at + 4].try_into().unwrap());
    let result = match Cause::from_number(word(12)) {
        None => Ok(word(8)),
        Some(cause) => Err((cause, word(16))),
    };
    Outcome {
        result,
        message: frame[HEADERS..frame.len() - 16].to_vec(),
        dirty: word(20) != 0,
        fuel: i64::from_le_bytes(frame[24..32].try_into().unwrap()),
        memory,
    }
}

impl Promoted {
    /// Runs the messages one after the other in the interpreter.
    pub(crate) fn interpret(&self, messages: &[&[u8]]) -> Vec<Outcome> {
        let mut machine = Machine::new(1, 1, self.memory.len());
        machine.array_mode = self.kind == MemoryKind::Array;
        machine.memory_mut().copy_from_slice(&self.memory);
        let run = |message: &&[u8]| {
            let end = machine.run(&self.image, &frame(message));
            let code = end.unwrap_or_else(|fault| {
                panic!("{fault}\n{}", ashway_codegen::bpf::print(&self.image))
            });
            assert_eq!(code, 2);
            outcome(machine.packet(), machine.memory().to_vec())
        };
        messages.iter().map(run).collect()
    }

    /// The same in the kernel.
    pub(crate) fn run_in_kernel(&self, messages: &[&[u8]]) -> Vec<Outcome> {
        let loaded = Loaded::new(self);
        let run = |message: &&[u8]| {
            let run = TestRun {
                packet: &frame(message),
                context: None,
                repeat: 1,
            };
            let result = loaded.program.test_run(&run).unwrap();
            assert_eq!(result.retval, 2);
            let mut memory = vec![0; self.memory.len()];
            loaded
                .memory
                .copy_out(AllegedOffset(0), &mut memory)
                .unwrap();
            outcome(&result.packet, memory)
        };
        messages.iter().map(run).collect()
    }
}

/// A translation in the kernel.
struct Loaded {
    program: Program,
    memory: Memory,
    _context: Map,
}

impl Loaded {
    fn new(promoted: &Promoted) -> Self {
        let context = MapSpec::percpu_array("ashway_context", context::BYTES as u32, 1);
        let context = Map::create(&context).unwrap();
        let bytes = promoted.memory.len();
        let memory = match promoted.kind {
            MemoryKind::Arena => Memory::arena(bytes),
            MemoryKind::Array => Memory::array(bytes),
        };
        let memory = memory.unwrap();
        memory.copy_in(AllegedOffset(0), &promoted.memory).unwrap();
        let maps: Vec<MapFixup> = promoted
            .image
            .maps
            .iter()
            .map(|used| MapFixup {
                insn: used.insn,
                fd: match used.map {
                    MapRef::Context => context.fd(),
                    MapRef::Memory => memory.fd(),
                    other => panic!("{other:?} has no place here"),
                },
                value_offset: used.value_offset,
            })
            .collect();
        let program = Program::load(&ProgramSpec {
            name: "ashway_t_promote",
            kind: ProgramKind::Xdp,
            attach_type: 0,
            insns: &promoted.image.insns,
            maps: &maps,
            btf: None,
        });
        let program = program.unwrap_or_else(|error| {
            let log = error.log();
            let tail = log.len().saturating_sub(4_000);
            panic!("{error}\n{}", &log[tail..])
        });
        Self {
            program,
            memory,
            _context: context,
        }
    }
}

pub(crate) fn privileged() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("skipped in the kernel: needs root (bpf(2))");
    }
    root
}

/// Runs the messages every way and returns what all of them agree on.
pub(crate) fn run_with(wasm: &[u8], messages: &[&[u8]], budget: Budget) -> Vec<Outcome> {
    let mut agreed: Option<Vec<Outcome>> = None;
    for kind in [MemoryKind::Arena, MemoryKind::Array] {
        for locals_in_memory in [false, true] {
            let promoted = promote(wasm, kind, locals_in_memory, budget).unwrap();
            let mut runs = vec![("interpreter", promoted.interpret(messages))];
            if privileged() {
                runs.push(("kernel", promoted.run_in_kernel(messages)));
            }
            for (way, found) in runs {
                let expected = agreed.get_or_insert_with(|| found.clone());
                for (found, expected) in found.iter().zip(expected) {
                    let how = format!("{way}, {kind:?}, locals in memory: {locals_in_memory}");
                    assert_eq!(found.result, expected.result, "{how}");
                    assert_eq!(found.message, expected.message, "{how}");
                    assert_eq!(
                        (found.dirty, found.fuel),
                        (expected.dirty, expected.fuel),
                        "{how}"
                    );
                    assert!(found.memory == expected.memory, "memory differs: {how}");
                }
            }
        }
    }
    agreed.unwrap()
}

pub(crate) fn run(wasm: &[u8], messages: &[&[u8]]) -> Vec<Outcome> {
    run_with(wasm, messages, PLENTY)
}
