//! A handler that runs on several CPUs at once: each CPU has a stack and a lock of its own, in our
//! own interpreter; what a file has to have for it; and what the checker makes of a program that
//! takes another CPU's lock.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use ashway_abi::context::{self, flag};
use ashway_abi::memory::WASM_PAGE;
use ashway_abi::trusted::{
    FAULT_AT, FAULT_CAUSE, FAULT_COUNT, FAULT_WANTED, FAULT_WRITTEN, HELD, IN_KERNEL, IN_USER,
    LOCK, WANTED,
};
use ashway_abi::{Budget, Cause, Count, MemoryKind, QueueLayout};
use ashway_check::bpf::interp::Machine;
use ashway_check::bpf::{Assembler, Atomic, Hook, Image, MapRef, Reg, Size, helper, op};
use ashway_check::{Around, Rule, Shape, check};
use ashway_codegen::entry::Packet;
use ashway_codegen::instance::{self, Handler, OrderScope, QueueSpec, Spec};
use ashway_codegen::normalise::{Limits, Module, ParallelError, normalise};
use ashway_codegen::stub;

const CPUS: usize = 4;
const QUEUE: QueueLayout = QueueLayout {
    paths: 1,
    rings: 1,
    slot_bytes: 2048,
    locks: CPUS,
};
const PLACES: [(Hook, MemoryKind); 3] = [
    (Hook::Xdp, MemoryKind::Arena),
    (Hook::Xdp, MemoryKind::Array),
    (Hook::Tcx, MemoryKind::Arena),
];
const BUDGET: Budget = Budget {
    fuel: 1_000,
    slice: 300,
    ns: 50_000,
};

/// Bytes of the stack of [`tally`].
const STACK: u32 = 4096;

/// Counts, and says where its stack is, of which it takes so many bytes; stops if the word at 68
/// is set.
fn tally(bytes: u32) -> String {
    format!(
        r#"(module (memory (export "memory") 1 1)
        (global $sp (mut i32) (i32.const {STACK})) (export "__stack_pointer" (global $sp))
        (func (export "on_rx") (param i32 i32) (result i32) (local $frame i32)
          (global.set $sp (local.tee $frame (i32.sub (global.get $sp) (i32.const {bytes}))))
          (i32.store (local.get $frame) (i32.const 7))
          (drop (i32.atomic.rmw.add (i32.const 64) (i32.const 1)))
          (i32.store (i32.const 72) (local.get $frame))
          (if (i32.load (i32.const 68)) (then unreachable))
          (global.set $sp (i32.add (local.get $frame) (i32.const {bytes})))
          (i32.const 0)))"#
    )
}

/// A path of the kernel tier, without an entry program.
struct Path {
    program: Image,
    machine: Machine,
    shape: Shape,
}

impl Path {
    fn new((hook, memory): (Hook, MemoryKind), text: &str) -> Self {
        let wasm = wat::parse_str(text).unwrap();
        let mut module = normalise(&wasm, &Limits::default()).unwrap();
        module.make_parallel(CPUS as u32).unwrap();
        let layout = stub::layout(&module);
        let spec = Spec {
            queue: QueueSpec {
                hook,
                cpus: CPUS as u32,
                layout: QUEUE,
                packet: Packet::beside(memory),
                order_scope: OrderScope::Ring,
            },
            layout,
            memory,
        };
        let program = program(&module, &spec);
        let shape = Shape {
            around: Around::Instance(QUEUE),
            memory,
            layout,
            cpus: CPUS as u32,
            budget: BUDGET,
            resizes: false,
        };
        assert_eq!(check(&program, &shape).map(|_| ()), Ok(()));
        let mut machine = Machine::new(1, QUEUE.bytes(), layout.total_bytes());
        machine.array_mode = memory == MemoryKind::Array;
        machine.memory_mut()[..].copy_from_slice(&stub::first_memory(&module));
        let mut path = Self {
            program,
            machine,
            shape,
        };
        for (at, block) in QUEUE.first_blocks() {
            path.set(at, block);
        }
        path
    }

    fn set(&mut self, at: usize, word: u32) {
        self.machine.trusted_mut()[at..][..4].copy_from_slice(&word.to_ne_bytes());
    }

    fn words<const N: usize>(&self, at: [usize; N]) -> [u32; N] {
        at.map(|at| self.machine.trusted_u32(at))
    }

    fn lock(&self, cpu: usize) -> u32 {
        self.machine.trusted_u32(QUEUE.cpu_lock(cpu) + LOCK)
    }

    fn memory(&self, at: usize) -> u32 {
        let bytes = self.machine.memory()[at..].first_chunk();
        u32::from_le_bytes(*bytes.unwrap())
    }

    /// A message comes on this CPU, and none of its path is in the user tier: what has become of
    /// it.
    fn message(&mut self, cpu: usize) -> Vec<Count> {
        self.machine.set_cpu(cpu);
        self.set(QUEUE.path_word(0), 0);
        let flows = QUEUE.flow_word(0)..QUEUE.cpu_lock(0);
        self.machine.trusted_mut()[flows].fill(0);
        for (at, value) in [
            (context::PAYLOAD_OFF, 42),
            (context::PAYLOAD_LEN, 8),
            (context::FLAGS, flag::PLAIN),
        ] {
            self.machine.context_mut()[at as usize..][..4].copy_from_slice(&value.to_ne_bytes());
        }
        let counts = [Count::Consumed, Count::QueuedBusy, Count::Passed];
        let before = counts.map(|count| self.machine.count(0, count));
        self.machine.run(&self.program, &[0; 50]).unwrap();
        let risen = counts.into_iter().zip(before);
        let risen = risen.filter(|(count, before)| self.machine.count(0, *count) > *before);
        risen.map(|(count, _)| count).collect()
    }
}

fn program(module: &Module<'_>, spec: &Spec) -> Image {
    let on_rx = module.exports.iter().find(|(name, _)| name == "on_rx");
    let handler = Handler {
        module,
        entry: on_rx.unwrap().1,
        path: None,
        budget: BUDGET,
        share: None,
        may_reply: false,
        locals_in_memory: false,
    };
    instance::kernel(spec, &handler).unwrap().0
}

#[test]
fn each_cpu_has_a_stack_of_its_own() {
    for place in PLACES {
        let mut path = Path::new(place, &tally(16));
        let mut places = Vec::new();
        for cpu in [0, 3, 1, 2, 0] {
            assert_eq!(path.message(cpu), [Count::Consumed], "{place:?}");
            let top = WASM_PAGE as u32 + (cpu as u32 + 1) * STACK;
            assert_eq!(path.memory(72), top - 16, "{place:?}, CPU {cpu}");
            assert_eq!(path.memory(top as usize - 16), 7);
            places.push(path.memory(72));
        }
        assert_eq!(path.memory(64), 5, "{place:?}");
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), CPUS, "{place:?}");
    }
}

/// Below its end lies another CPU's.
#[test]
fn a_stack_has_an_end() {
    for place in PLACES {
        for (bytes, stop) in [
            (STACK - 128, None),
            (STACK - 127, Some(Cause::Stack)),
            (2 * STACK, Some(Cause::Stack)),
            // Below 0 there is nobody's.
            (1 << 20, Some(Cause::MemoryBounds)),
        ] {
            let mut path = Path::new(place, &tally(bytes));
            path.set(FAULT_WANTED, 1);
            let fate = path.message(1);
            let ran = fate == [Count::Consumed];
            assert_eq!(ran, stop.is_none(), "{place:?}, {bytes}");
            let cause = stop.map_or(0, |cause| cause as u32);
            assert_eq!(path.words([FAULT_CAUSE]), [cause], "{place:?}, {bytes}");
        }
    }
}

#[test]
fn an_activation_takes_the_lock_of_its_cpu() {
    for place in PLACES {
        let mut path = Path::new(place, &tally(16));
        // Whatever runs elsewhere.
        path.set(QUEUE.cpu_lock(0) + LOCK, IN_KERNEL);
        path.set(QUEUE.cpu_lock(2) + LOCK, HELD);
        path.set(QUEUE.cpu_lock(3) + WANTED, 1);
        assert_eq!(path.message(1), [Count::Consumed], "{place:?}");
        assert_eq!(path.lock(1), 0, "{place:?}");
        for cpu in [0, 2, 3] {
            let before = path.lock(cpu);
            assert_eq!(path.message(cpu), [Count::QueuedBusy], "{place:?}");
            assert_eq!(path.lock(cpu), before, "{place:?}, CPU {cpu}");
        }
        path.set(QUEUE.cpu_lock(1) + LOCK, IN_USER);
        assert_eq!(path.message(1), [Count::QueuedBusy], "{place:?}");
        assert_eq!(path.lock(1), IN_USER, "{place:?}");
        // The one for all CPUs is nobody's.
        assert_eq!(path.words([LOCK, WANTED]), [0, 0]);
    }
}

/// Two CPUs that are stopped at the same time: one writes what it was, and waits for the worker,
/// both are counted.
#[test]
fn one_of_two_faults_is_written_down() {
    for place in PLACES {
        let mut path = Path::new(place, &tally(16));
        path.machine.memory_mut()[68] = 1;
        // Another CPU writes.
        path.set(FAULT_WANTED, FAULT_WRITTEN);
        path.message(1);
        assert_eq!(path.words([FAULT_COUNT, FAULT_CAUSE, FAULT_AT]), [1, 0, 0]);
        assert_eq!(path.words([FAULT_WANTED]), [FAULT_WRITTEN], "{place:?}");
        assert_eq!(path.lock(1), 0, "{place:?}");
        path.set(FAULT_WANTED, 1);
        path.message(2);
        let cause = Cause::Unreachable as u32;
        assert_eq!(path.words([FAULT_COUNT, FAULT_CAUSE]), [2, cause]);
        assert_ne!(path.words([FAULT_AT]), [0]);
        // That CPU waits for the worker, and no other.
        assert_eq!(path.words([FAULT_WANTED]), [0], "{place:?}");
        assert_eq!((path.lock(2), path.lock(1)), (HELD, 0), "{place:?}");
        path.machine.memory_mut()[68] = 0;
        assert_eq!(path.message(2), [Count::QueuedBusy], "{place:?}");
        assert_eq!(path.message(1), [Count::Consumed], "{place:?}");
    }
}

fn refused(text: &str) -> ParallelError {
    let wasm = wat::parse_str(text).unwrap();
    let mut module = normalise(&wasm, &Limits::default()).unwrap();
    module.make_parallel(2).unwrap_err()
}

#[test]
fn a_file_that_was_not_built_for_it_is_refused_by_name() {
    let with = |globals: &str, body: &str| {
        format!(
            r#"(module (memory (export "memory") 1 2) {globals}
            (func (export "on_rx") (param i32 i32) (result i32) {body} i32.const 0))"#
        )
    };
    let atomic = "(drop (i32.atomic.load (i32.const 64)))";
    assert_eq!(refused(&with("", "")), ParallelError::NotBuilt);
    let global = refused(&with("(global $seen (mut i32) (i32.const 0))", atomic));
    assert!(global.to_string().contains("`seen`"), "{global}");
    // Without a name it may be anything.
    let mute = "(global (mut i32) (i32.const 4096))";
    assert!(matches!(
        refused(&with(mute, atomic)),
        ParallelError::Global { global } if global == "0"
    ));
    let two = "(global $__stack_pointer (mut i32) (i32.const 4096))
        (global (export \"__stack_pointer\") (mut i32) (i32.const 64))";
    let wide = "(global $__stack_pointer (mut i64) (i64.const 4096))";
    for globals in [two, wide] {
        let error = refused(&with(globals, atomic));
        assert!(matches!(error, ParallelError::Global { .. }), "{error}");
    }
    let grows = format!("{atomic} (drop (memory.grow (i32.const 1)))");
    let grows = refused(&with("", &grows));
    assert!(matches!(grows, ParallelError::Grows { at } if at > 0));
    let large = "(global $__stack_pointer (mut i32) (i32.const 536870912))
        (global (export \"__stack_low\") i32 (i32.const 0))";
    assert!(matches!(
        refused(&with(large, atomic)),
        ParallelError::Stacks { cpus: 2, bytes } if bytes == 1 << 29
    ));
    for error in [ParallelError::NotBuilt, global, grows] {
        assert!(!error.hint().is_empty());
    }
}

/// What says that a file was built for it, how large its stacks are, and what it sees of them.
#[test]
fn stacks_lie_behind_the_memory_of_the_file() {
    let made = |memory: &str, more: &str, body: &str| {
        let text = format!(
            r#"(module (memory (export "memory") {memory})
            (global $__stack_pointer (mut i32) (i32.const 70000)) {more}
            (func (export "on_rx") (param i32 i32) (result i32) {body}))"#
        );
        let wasm = wat::parse_str(&text).unwrap();
        let mut module = normalise(&wasm, &Limits::default()).unwrap();
        module.make_parallel(3).unwrap();
        let stacks = module.parallel.unwrap().stacks.unwrap();
        let private = module.parallel.unwrap().private(&module);
        (module.maximum_pages, stacks.bytes(), private)
    };
    let pages = |from: usize, to: usize| from * WASM_PAGE..to * WASM_PAGE;
    let size = "memory.size";
    // Not more than the linker gives, if the file does not say.
    assert_eq!(made("2 2 shared", "", size), (6, 65536, pages(2, 6)));
    let low = r#"(global (export "__stack_low") i32 (i32.const 65904))"#;
    assert_eq!(made("2 2 shared", low, size), (3, 4096, pages(2, 3)));
}

/// The checker knows which lock a program has to take, and that it is its own CPU's.
#[test]
fn the_lock_of_another_cpu_is_refused() {
    let path = Path::new(PLACES[0], &tally(16));
    // What differs from the right program: the CPU's number, the distance, the place, which side
    // of the beginning, and whether the lock is left.
    let shift = ashway_abi::trusted::LOCK_STRIDE.trailing_zeros() as i32;
    let first = QUEUE.cpu_lock(0);
    for (case, good) in [
        ((true, shift, first, op::ADD, true), true),
        ((false, shift, first, op::ADD, true), false),
        ((true, shift + 1, first, op::ADD, true), false),
        ((true, shift, QUEUE.cpu_lock(1), op::ADD, true), false),
        ((true, shift, first, op::SUB, true), false),
        ((true, shift, first, op::ADD, false), false),
    ] {
        let (own, shift, first, side, left) = case;
        let mut asm = Assembler::new();
        let out = asm.label();
        asm.map(Reg::R7, MapRef::Trusted, Some(0));
        asm.call(helper::GET_SMP_PROCESSOR_ID);
        if !own {
            asm.load(Size::W, Reg::R0, Reg::R7, FAULT_COUNT as i16);
        }
        asm.jump_if_imm(op::JGE, Reg::R0, CPUS as i32, out);
        asm.alu_imm(op::LSH, Reg::R0, shift);
        asm.alu_imm(op::ADD, Reg::R0, first as i32);
        asm.mov(Reg::R6, Reg::R7);
        asm.alu(side, Reg::R6, Reg::R0);
        asm.mov_imm(Reg::R0, 0);
        asm.mov_imm(Reg::R1, IN_KERNEL as i32);
        asm.atomic(Atomic::CompareExchange, Size::D, Reg::R6, 0, Reg::R1);
        asm.jump_if_imm(op::JNE, Reg::R0, 0, out);
        if left {
            asm.store_imm(Size::W, Reg::R6, 0, 0);
        }
        asm.bind(out);
        asm.mov_imm(Reg::R0, 0);
        asm.exit();
        let found = check(&asm.finish(), &path.shape);
        assert_eq!(found.is_ok(), good, "{case:?}: {found:?}");
    }
    // A program with one lock for all CPUs is none for such a handler, and the other way round.
    let serial = Shape {
        around: Around::Instance(QueueLayout { locks: 0, ..QUEUE }),
        ..path.shape
    };
    assert!(check(&path.program, &serial).is_err());
    let mut asm = Assembler::new();
    asm.map(Reg::R7, MapRef::Trusted, Some(0));
    asm.store_imm(Size::W, Reg::R7, LOCK as i16, 0);
    asm.mov_imm(Reg::R0, 0);
    asm.exit();
    let rule = check(&asm.finish(), &path.shape).unwrap_err().rule;
    assert_eq!(rule, Rule::Lock);
}
