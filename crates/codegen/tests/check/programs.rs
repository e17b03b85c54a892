//! Handlers, and the programs that are made of them.

use ashway_abi::memory::{Layout, WASM_PAGE};
use ashway_abi::share::Terms;
use ashway_abi::{Budget, MemoryKind, QueueLayout};
use ashway_check::bpf::{Hook, Image};
use ashway_check::{Around, Report, Shape, Violation, check};
use ashway_codegen::entry::Packet;
use ashway_codegen::normalise::{Limits, Module, normalise};
use ashway_codegen::promote::{self, PromoteError};
use ashway_codegen::{instance, stub};

pub(crate) const CPUS: u32 = 4;

pub(crate) const BUDGET: Budget = Budget {
    fuel: 2_000,
    slice: 300,
    ns: 50_000,
};

pub(crate) const KINDS: [MemoryKind; 2] = [MemoryKind::Arena, MemoryKind::Array];

/// A finished program and what it was made for.
#[derive(Clone)]
pub(crate) struct Subject {
    pub(crate) name: String,
    pub(crate) image: Image,
    pub(crate) shape: Shape,
    /// The memory before the first activation.
    pub(crate) memory: Vec<u8>,
}

impl Subject {
    pub(crate) fn check(&self) -> Result<Report, Violation> {
        check(&self.image, &self.shape)
    }
}

fn entry(module: &Module<'_>) -> u32 {
    let on_rx = module.exports.iter().find(|(name, _)| name == "on_rx");
    on_rx.expect("a handler").1
}

/// With the small program around it.
pub(crate) fn stub_program(
    name: &str,
    wasm: &[u8],
    memory: MemoryKind,
    locals_in_memory: bool,
) -> Result<Subject, PromoteError> {
    let module = normalise(wasm, &Limits::default()).unwrap();
    stub_of(name, &module, memory, locals_in_memory, CPUS)
}

pub(crate) fn stub_of(
    name: &str,
    module: &Module<'_>,
    memory: MemoryKind,
    locals_in_memory: bool,
    cpus: u32,
) -> Result<Subject, PromoteError> {
    let layout = stub::layout(module);
    let shape = promote::Shape {
        module,
        entry: entry(module),
        memory,
        layout,
        budget: BUDGET,
        locals_in_memory,
        checks: promote::Checks::default(),
    };
    let (image, _) = stub::generate(&shape, cpus)?;
    Ok(Subject {
        name: format!("{name}, stub, {memory:?}, locals in memory: {locals_in_memory}"),
        image,
        shape: Shape {
            around: Around::Stub,
            memory,
            layout,
            cpus,
            budget: BUDGET,
            resizes: module.resizes(),
        },
        memory: stub::first_memory(module),
    })
}

fn queue(memory: MemoryKind, rings: usize, paths: usize) -> instance::QueueSpec {
    instance::QueueSpec {
        hook: Hook::Xdp,
        cpus: CPUS,
        layout: QueueLayout {
            paths,
            rings,
            slot_bytes: 2048,
            locks: 0,
        },
        packet: Packet::beside(memory),
        order_scope: instance::OrderScope::Ring,
    }
}

/// As a node would load it.
pub(crate) fn instance_program(
    name: &str,
    wasm: &[u8],
    memory: MemoryKind,
    setting: (usize, usize, bool),
) -> Result<Subject, PromoteError> {
    instance_program_by(instance::kernel, name, wasm, memory, setting)
}

/// The same, while somebody observes.
pub(crate) fn observed_program(
    name: &str,
    wasm: &[u8],
    memory: MemoryKind,
    setting: (usize, usize, bool),
) -> Result<Subject, PromoteError> {
    instance_program_by(instance::kernel_observed, name, wasm, memory, setting)
}

type Generate =
    fn(&instance::Spec, &instance::Handler) -> Result<(Image, promote::Summary), PromoteError>;

fn instance_program_by(
    generate: Generate,
    name: &str,
    wasm: &[u8],
    memory: MemoryKind,
    (rings, paths, may_reply): (usize, usize, bool),
) -> Result<Subject, PromoteError> {
    let module = normalise(wasm, &Limits::default()).unwrap();
    let layout = Layout {
        // An endpoint, where there are several paths.
        endpoint_slots: if paths > 1 { 64 } else { 0 },
        endpoint_slot_bytes: 2048,
        ..stub::layout(&module)
    };
    let spec = instance::Spec {
        queue: queue(memory, rings, paths),
        layout,
        memory,
    };
    let handler = instance::Handler {
        module: &module,
        entry: entry(&module),
        path: (paths == 3).then_some(2),
        budget: BUDGET,
        share: (rings > 3).then(|| Terms::new(200, Some(1_000))),
        may_reply,
        locals_in_memory: false,
    };
    let (image, _) = generate(&spec, &handler)?;
    let mut first = stub::first_memory(&module);
    first.resize(layout.total_bytes(), 0);
    Ok(Subject {
        name: format!("{name}, {memory:?}, {rings} rings, {paths} paths, reply: {may_reply}"),
        image,
        shape: Shape {
            around: Around::Instance(spec.queue.layout),
            memory,
            layout,
            cpus: CPUS,
            budget: BUDGET,
            resizes: module.resizes(),
        },
        memory: first,
    })
}

/// What carries messages to the user tier.
pub(crate) fn user_program(memory: MemoryKind, rings: usize, paths: usize) -> Subject {
    let spec = queue(memory, rings, paths);
    Subject {
        name: format!("user tier, {memory:?}, {rings} rings, {paths} paths"),
        image: instance::user(&spec),
        shape: Shape {
            around: Around::Instance(spec.layout),
            memory,
            layout: Layout::without_endpoint(WASM_PAGE, WASM_PAGE),
            cpus: CPUS,
            budget: BUDGET,
            resizes: false,
        },
        memory: Vec::new(),
    }
}

const IMPORTS: &str = r#"
    (import "ashway" "msg_load8" (func $load8 (param i32) (result i32)))
    (import "ashway" "msg_load32le" (func $load32 (param i32) (result i32)))
    (import "ashway" "msg_load64le" (func $load64 (param i32) (result i64)))
    (import "ashway" "msg_load16be" (func $load16be (param i32) (result i32)))
    (import "ashway" "msg_store8" (func $store8 (param i32 i32)))
    (import "ashway" "msg_store32le" (func $store32 (param i32 i32)))
    (import "ashway" "msg_store64be" (func $store64be (param i32 i64)))
    (import "ashway" "msg_read" (func $read (param i32 i32 i32)))
    (import "ashway" "msg_write" (func $write (param i32 i32 i32)))
"#;

/// What stands around the bodies.
const HELPERS: &str = "
    (type $unary (func (param i32) (result i32)))
    (table 4 4 funcref)
    (elem (i32.const 0) $twice $spin)
    (global $count (mut i64) (i64.const 0))
    (func $twice (param i32) (result i32) local.get 0 i32.const 1 i32.shl)
    (func $spin (param i32) (result i32) (local i32)
        loop
            local.get 1 local.get 0 i32.add local.set 1
            local.get 0 i32.const 1 i32.sub local.tee 0
            i32.const 0 i32.gt_s br_if 0
        end
        local.get 1)
    (func $divmod (param i32 i32) (result i32 i32)
        local.get 0 local.get 1 i32.div_u local.get 0 local.get 1 i32.rem_u)
    (func $deep (param i32 i64) (result i64)
        local.get 0 call $spin i64.extend_i32_u local.get 1 i64.add)
";

/// Bodies of handlers that have `$len`, `$channel`, `$i`, `$j` and `$w`.
pub(crate) const BODIES: &[(&str, &str)] = &[
    ("nothing", "i32.const 0"),
    ("trap", "unreachable"),
    ("loads", "local.get $len i32.load offset=8 local.get $len i32.load8_s offset=40000 i32.add
        i32.const 77 i64.load16_s i32.wrap_i64 i32.add"),
    ("stores", "local.get $len i64.const -1 i64.store offset=16
        local.get $len i32.const 9 i32.store8 i32.const 70000 local.get $len i32.store i32.const 2"),
    ("globals", "global.get $count i64.const 1 i64.add global.set $count i32.const 1"),
    ("counting", "loop
            local.get $i i32.load8_u local.get $j i32.add local.set $j
            local.get $i i32.const 1 i32.add local.tee $i local.get $len i32.lt_u br_if 0
        end local.get $j"),
    ("nested", "loop $a
            i32.const 0 local.set $j
            loop $b
                local.get $w i64.const 3 i64.mul i64.const 7 i64.xor local.set $w
                local.get $j i32.const 1 i32.add local.tee $j i32.const 5 i32.lt_u br_if $b
            end
            local.get $i i32.const 1 i32.add local.tee $i i32.const 6 i32.ne br_if $a
        end local.get $w i32.wrap_i64"),
    ("for ever", "loop br 0 end i32.const 0"),
    ("message", "local.get $len call $load8 i32.const 3 call $load16be i32.add
        local.get $len i32.const 1 i32.shr_u call $load64 i32.wrap_i64 i32.add
        i32.const 0 call $load32 i32.add"),
    ("answer", "i32.const 0 local.get $len call $store32 local.get $len i32.const 8 i32.sub i64.const 5
        call $store64be i32.const 2"),
    ("turn", "loop
            local.get $i local.get $i call $load8 i32.const 85 i32.xor call $store8
            local.get $i i32.const 1 i32.add local.tee $i local.get $len i32.lt_u br_if 0
        end i32.const 2"),
    ("bulk", "i32.const 0 i32.const 100 local.get $len call $read
        i32.const 200 i32.const 100 local.get $len memory.copy
        i32.const 300 i32.const 7 local.get $len memory.fill
        i32.const 0 i32.const 200 local.get $len call $write i32.const 2"),
    ("calls", "local.get $len call $twice call $spin call $twice
        local.get $len i32.const 1 i32.or call $divmod i32.sub"),
    ("call in loop", "loop
            local.get $len local.get $w call $deep local.set $w
            local.get $i i32.const 1 i32.add local.tee $i i32.const 9 i32.lt_u br_if 0
        end local.get $w i32.wrap_i64"),
    ("indirect", "local.get $len local.get $len i32.const 3 i32.and call_indirect (type $unary)"),
    ("switch", "block $a block $b block $c block $d
            local.get $len br_table $a $b $c $d
        end i32.const 4 return end i32.const 3 return end i32.const 2 return end i32.const 1"),
    ("grow", "i32.const 1 memory.grow memory.size i32.add"),
    ("grown", "i32.const 1 memory.grow drop loop
            local.get $i local.get $i i32.store offset=65000
            local.get $i i32.const 4 i32.add local.tee $i i32.const 900 i32.lt_u br_if 0
        end local.get $len i32.load offset=65536"),
    ("counts", "local.get $len i32.clz local.get $len i32.ctz i32.add local.get $len i32.popcnt i32.add
        local.get $len i64.extend_i32_u i64.clz i32.wrap_i64 i32.rotl local.get $channel i32.rotr"),
    ("divisions", "local.get $len local.get $channel i32.const 3 i32.add i32.div_s
        local.get $len i32.const -1 i32.rem_s i32.add
        i64.const -9 local.get $len i64.extend_i32_u i64.div_s i32.wrap_i64 i32.sub"),
    ("select", "local.get $len i32.const 7 local.get $channel select
        i64.const 1 i64.const 2 local.get $len i64.extend_i32_u i64.eqz select i32.wrap_i64 i32.add"),
];

/// The module around a body.
pub(crate) fn module(body: &str) -> Vec<u8> {
    let growable = if body.contains("memory.grow") { 2 } else { 1 };
    wat::parse_str(format!(
        r#"(module {IMPORTS} (memory (export "memory") 1 {growable}) {HELPERS}
            (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
                (local $i i32) (local $j i32) (local $w i64) {body}))"#
    ))
    .unwrap()
}

/// A module with these functions, of which `$f` is called with the length.
pub(crate) fn functions(text: &str) -> Vec<u8> {
    wat::parse_str(format!(
        r#"(module {IMPORTS} (memory (export "memory") 1 1) {text}
            (func (export "on_rx") (param i32 i32) (result i32) (call $f (local.get 0))))"#
    ))
    .unwrap()
}

/// Functions `$f`, and what else they need.
pub(crate) const FUNCTIONS: &[(&str, &str)] = &[
    (
        "fibonacci",
        "(func $f (param i32) (result i32)
        (if (i32.lt_u (local.get 0) (i32.const 2)) (then (return (local.get 0))))
        (i32.add (call $f (i32.sub (local.get 0) (i32.const 1)))
            (call $f (i32.sub (local.get 0) (i32.const 2)))))",
    ),
    (
        "mutual",
        "(func $f (param i32) (result i32)
            (if (result i32) (local.get 0)
                (then (call $g (i32.sub (local.get 0) (i32.const 1)) (i64.const 5)))
                (else (i32.const 1))))
        (func $g (param i32 i64) (result i32)
            (if (result i32) (local.get 0)
                (then (i32.add (call $f (i32.sub (local.get 0) (i32.const 1)))
                    (i32.wrap_i64 (local.get 1))))
                (else (i32.const 0))))",
    ),
    (
        "table",
        "(table $t 3 9 funcref) (elem (i32.const 0) $one $f)
        (type $unary (func (param i32) (result i32)))
        (func $one (param i32) (result i32) (i32.const 1))
        (func $f (param i32) (result i32)
            (table.set $t (i32.const 2) (table.get $t (i32.const 0)))
            (drop (table.grow $t (ref.null func) (local.get 0)))
            (call_indirect $t (type $unary) (local.get 0) (i32.const 2)))",
    ),
    (
        "passive",
        r#"(data $d "seven b")
        (func $f (param i32) (result i32)
            (memory.init $d (local.get 0) (i32.const 1) (i32.const 5)) (data.drop $d)
            (i32.load8_u (local.get 0)))"#,
    ),
    (
        "atomics",
        "(func $f (param i32) (result i32)
            (i64.atomic.store offset=8 (i32.and (local.get 0) (i32.const -8)) (i64.const 7))
            (drop (i32.atomic.rmw8.add_u (local.get 0) (i32.const 3)))
            (drop (i64.atomic.rmw.cmpxchg (local.get 0) (i64.const 0) (i64.const 9)))
            (i32.atomic.rmw.xor (local.get 0) (i32.const 1)))",
    ),
];

/// A handler that runs a list from the message to memory, in memory, and back. `flip`
/// and `total` are pipes of its own.
pub(crate) fn pipes(list: &str) -> Vec<u8> {
    wat::parse_str(format!(
        r#"(module
            (import "ashway" "pipe_read" (func $read (param i32 i32 i32 i32)))
            (import "ashway" "pipe_write" (func $write (param i32 i32 i32 i32)))
            (import "ashway" "pipe_in_place" (func $in_place (param i32 i32 i32)))
            (memory (export "memory") 1 1)
            (func (export "flip") (param i32) (result i32)
                (i32.xor (local.get 0) (i32.const 255)))
            (func (export "total") (param i32 i32) (result i32 i32)
                (local.get 0) (i32.add (local.get 1) (local.get 0)))
            (func (export "on_rx") (param $len i32) (param i32) (result i32)
                (call $read (i32.const 0) (i32.const 64) (local.get $len) (i32.const 0))
                (call $in_place (i32.const 64) (local.get $len) (i32.const 0))
                (call $write (i32.const 0) (i32.const 64) (local.get $len) (i32.const 0))
                (i32.const 2))
            (@custom "ashway.pipes" "{list}"))"#
    ))
    .unwrap()
}

/// Lists for it: built-in pipes, one's own, values in every register, and more
/// accumulators than registers.
pub(crate) const LISTS: &[&str] = &[
    "copy",
    "cksum16 | bswap32 | xor(0xdeadbeef)",
    "flip:8 | total:32",
    "bswap32 | add16(0x7001) | cksum16",
    "cksum16 | cksum16 | total:32 | cksum16",
];

/// All handlers as Wasm: those above, and the ones that the tests of the node
/// run, as far as they have been built.
pub(crate) fn handlers() -> Vec<(String, Vec<u8>)> {
    let bodies = BODIES
        .iter()
        .map(|(name, body)| ((*name).to_owned(), module(body)));
    let functions = FUNCTIONS
        .iter()
        .map(|(name, text)| ((*name).to_owned(), functions(text)));
    let lists = LISTS
        .iter()
        .map(|list| (format!("pipes `{list}`"), pipes(list)));
    let own = bodies.chain(functions).chain(lists);
    let built = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/handlers");
    let files = std::fs::read_dir(built).into_iter().flatten().flatten();
    let built = files.filter_map(|file| {
        let path = file.path();
        let name = path.file_name()?.to_str()?.to_owned();
        let wasm = (path.extension()? == "wasm").then(|| std::fs::read(&path).ok())??;
        Some((name, wasm))
    });
    own.chain(built).collect()
}

/// Every handler with the small program around it, in every way there is.
pub(crate) fn stub_programs() -> Vec<Subject> {
    let mut all = Vec::new();
    for (name, wasm) in handlers() {
        for kind in KINDS {
            for locals_in_memory in [false, true] {
                match stub_program(&name, &wasm, kind, locals_in_memory) {
                    Ok(made) => all.push(made),
                    Err(
                        PromoteError::Pipe { .. }
                        | PromoteError::NoCounterpart { .. }
                        | PromoteError::UserTierOnly { .. }
                        | PromoteError::Frames { .. },
                    ) => {}
                    Err(error) => panic!("{name}: {error}"),
                }
            }
        }
    }
    all
}
