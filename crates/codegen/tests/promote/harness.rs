//! A promoted handler without an interface, and the ways to run it.

pub(crate) use ashway_abi::Budget;
use ashway_abi::MemoryKind;
use ashway_abi::{Cause, context};
use ashway_check::bpf::interp::Machine;
use ashway_check::bpf::{Btf, Image, MapRef};
use ashway_codegen::normalise::{Limits, normalise};
use ashway_codegen::promote::{PromoteError, Shape, Summary};
use ashway_codegen::stub;
use ashway_kernel::{
    BtfInfo, Map, MapFixup, MapSpec, Program, ProgramKind, ProgramSpec, TestRun, shared,
};
use ashway_memory::{AllegedOffset, Memory};
use ashway_rig::skip::{root_for_a_part, skip_unless_root};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

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
    let shape = Shape {
        module: &module,
        entry,
        memory: kind,
        layout: stub::layout(&module),
        budget,
        locals_in_memory,
        checks: ashway_codegen::promote::Checks::default(),
    };
    let (image, summary) = stub::generate(&shape, cpus())?;
    Ok(Promoted {
        image,
        summary,
        kind,
        memory: stub::first_memory(&module),
    })
}

fn cpus() -> u32 {
    ashway_kernel::maps::possible_cpus().unwrap() as u32
}

fn outcome(frame: &[u8], memory: Vec<u8>) -> Outcome {
    let outcome = stub::outcome(frame).expect("the bytes behind the message are untouched");
    Outcome {
        result: outcome.result,
        message: outcome.message.to_vec(),
        dirty: outcome.dirty,
        fuel: outcome.fuel_left,
        memory,
    }
}

impl Promoted {
    /// Runs the messages one after the other in the interpreter.
    pub(crate) fn interpret(&self, messages: &[&[u8]]) -> Vec<Outcome> {
        self.interpret_by(1_000, messages)
    }

    /// The same, with a clock that goes on by so many ns with each look.
    pub(crate) fn interpret_by(&self, step: u64, messages: &[&[u8]]) -> Vec<Outcome> {
        self.interpret_steps(&[], step, messages)
    }

    /// The same, by other steps at first.
    pub(crate) fn interpret_steps(
        &self,
        first: &[u64],
        step: u64,
        messages: &[&[u8]],
    ) -> Vec<Outcome> {
        let mut machine = Machine::new(1, ashway_abi::trusted::bytes(1), self.memory.len());
        machine.clock_steps_ns = first.iter().copied().collect();
        machine.clock_step_ns = step;
        machine.array_mode = self.kind == MemoryKind::Array;
        machine.memory_mut().copy_from_slice(&self.memory);
        let run = |message: &&[u8]| {
            let end = machine.run(&self.image, &stub::frame(message));
            let code = end.unwrap_or_else(|fault| {
                panic!("{fault}\n{}", ashway_check::bpf::print(&self.image))
            });
            assert_eq!(code, stub::RETURNED);
            outcome(machine.packet(), machine.memory().to_vec())
        };
        messages.iter().map(run).collect()
    }

    /// The same in the kernel.
    pub(crate) fn run_in_kernel(&self, messages: &[&[u8]]) -> Vec<Outcome> {
        let loaded = Loaded::new(self);
        let run = |message: &&[u8]| {
            let run = TestRun {
                packet: &stub::frame(message),
                context: None,
                repeat: 1,
            };
            let result = loaded.program.test_run(&run).unwrap();
            assert_eq!(result.retval, stub::RETURNED);
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
pub(crate) struct Loaded {
    pub(crate) program: Program,
    pub(crate) memory: Memory,
    _context: Map,
}

impl Loaded {
    pub(crate) fn new(promoted: &Promoted) -> Self {
        let context = MapSpec::array("ashway_context", context::BYTES as u32 * cpus(), 1);
        let context = Map::create(&context).unwrap();
        let bytes = promoted.memory.len();
        let memory = match promoted.kind {
            MemoryKind::Arena => shared::arena(bytes),
            MemoryKind::Array => shared::array(bytes),
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
        let image = &promoted.image;
        let count = image.insns.len() as u32;
        let btf = Btf::for_program("promote", count, &image.lines, &image.subprograms());
        let btf = BtfInfo {
            bytes: btf.bytes,
            func_info: btf.func_info,
            line_info: btf.line_info,
        };
        let program = Program::load(&ProgramSpec {
            name: "ashway_t_promote",
            kind: ProgramKind::Xdp,
            attach_type: 0,
            insns: &promoted.image.insns,
            maps: &maps,
            btf: (!image.lines.is_empty()).then_some(&btf),
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

/// Runs a test without `CAP_PERFMON`, where it would be privileged.
pub(crate) fn without_perfmon(test: impl FnOnce() + Send + 'static) {
    if skip_unless_root() {
        return;
    }
    // Capabilities are a thread's own, and so is this one.
    let without = std::thread::spawn(|| {
        let mut held = capabilities(None).unwrap();
        let dropped = CapabilitySet::PERFMON | CapabilitySet::SYS_ADMIN;
        held.effective -= dropped;
        held.permitted -= dropped;
        set_capabilities(None, held).unwrap();
        test();
    });
    without.join().unwrap();
}

/// Runs the messages every way and returns what all of them agree on.
pub(crate) fn run_with(wasm: &[u8], messages: &[&[u8]], budget: Budget) -> Vec<Outcome> {
    let mut agreed: Option<Vec<Outcome>> = None;
    for kind in [MemoryKind::Arena, MemoryKind::Array] {
        for locals_in_memory in [false, true] {
            let promoted = promote(wasm, kind, locals_in_memory, budget).unwrap();
            let mut runs = vec![("interpreter", promoted.interpret(messages))];
            if root_for_a_part() {
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
