//! Files that nobody would write are answered: quickly, in little memory, and
//! never by a panic.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use ashway_conformance::answer::{Answer, answer};
use ashway_conformance::fuzz::Random;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use wasm_encoder::{
    BlockType, CodeSection, ConstExpr, DataSection, ElementSection, Elements, ExportKind,
    ExportSection, Function, FunctionSection, GlobalSection, GlobalType, Instruction, MemArg,
    MemArgTarget, MemorySection, MemoryType, Module, RefType, TableSection, TableType, TypeSection,
    ValType,
};

/// Time for an answer.
const MOST_TIME: Duration = Duration::from_secs(1);
/// Memory for a refusal, and for our own checker, in KiB.
const MOST_KIB: u64 = 64 * 1024;
/// Memory for everything, where there are as many operators as a file may have:
/// a wall, to be seen when something grows.
const MOST_KIB_IN_ALL: u64 = 128 * 1024;

fn handlers() -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/handlers");
    let entries = std::fs::read_dir(&folder).expect("`cargo xtask handlers` builds them");
    let mut files: Vec<_> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "wasm")
        })
        .collect();
    files.sort();
    assert!(files.len() >= 10, "`cargo xtask handlers` builds them");
    files
        .into_iter()
        .map(|path| (path.clone(), std::fs::read(path).unwrap()))
        .collect()
}

/// Damages a file in one of the ways in which files are damaged.
fn mutate(wasm: &mut Vec<u8>, random: &mut Random) {
    let len = wasm.len() as u64;
    let at = random.below(len) as usize;
    let some = (1 + random.below(64) as usize).min(wasm.len() - at);
    match random.below(7) {
        0 => wasm[at] = random.bits() as u8,
        1 => wasm[at] ^= 1 << random.below(8),
        2 => wasm.truncate(at.max(1)),
        3 => drop(wasm.drain(at..at + some)),
        4 => {
            let copy = wasm[at..at + some].to_vec();
            wasm.splice(at..at, copy);
        }
        5 => {
            let noise = random.bytes(some);
            wasm.splice(at..at, noise);
        }
        // The largest number that LEB128 can say, over whatever is there.
        _ => {
            for (byte, largest) in wasm[at..].iter_mut().zip([0xff, 0xff, 0xff, 0xff, 0x0f]) {
                *byte = largest;
            }
        }
    }
}

#[test]
fn damaged_handlers_are_answered() {
    let handlers = handlers();
    let mut random = Random::new(0x5eed);
    let (mut accepted, mut refused) = (0, 0);
    for number in 0..1_000 {
        let (path, wasm) = &handlers[random.below(handlers.len() as u64) as usize];
        let mut wasm = wasm.clone();
        for _ in 0..=random.below(4) {
            mutate(&mut wasm, &mut random);
            if wasm.is_empty() {
                break;
            }
        }
        let start = Instant::now();
        let said = answer(&wasm, || ());
        let elapsed = start.elapsed();
        let name = format!("{} damaged as number {number}: {said}", path.display());
        assert!(elapsed < MOST_TIME, "{name} took {elapsed:?}");
        match said {
            Answer::Accepted { .. } => accepted += 1,
            Answer::Refused { why, place, hint } => {
                refused += 1;
                assert!(!why.is_empty() && !hint.is_empty(), "{name}");
                assert!(place.is_none_or(|at| at as usize <= wasm.len()), "{name}");
                // What has no place is about the file as a whole.
                assert!(place.is_some() || !why.contains("not a valid"), "{name}");
            }
        }
    }
    println!("{accepted} accepted, {refused} refused");
    assert!(
        accepted >= 50 && refused >= 500,
        "{accepted} accepted, {refused} refused"
    );
}

/// A handler with something beside it.
#[derive(Default)]
struct Bomb {
    types: TypeSection,
    functions: FunctionSection,
    tables: TableSection,
    memory: u64,
    globals: GlobalSection,
    exports: ExportSection,
    elements: ElementSection,
    code: CodeSection,
    data: DataSection,
}

impl Bomb {
    /// `on_rx` is function 0, of type 0, and runs this first.
    fn new(first: &[Instruction<'static>]) -> Self {
        let mut bomb = Self {
            memory: 1,
            ..Self::default()
        };
        bomb.types.ty().function([ValType::I32; 2], [ValType::I32]);
        bomb.types.ty().function([], []);
        bomb.exports.export("memory", ExportKind::Memory, 0);
        bomb.exports.export("on_rx", ExportKind::Func, 0);
        let end = [Instruction::I32Const(0)];
        bomb.function(0, &body(first.iter().chain(&end).cloned()));
        bomb
    }

    fn function(&mut self, ty: u32, body: &Function) {
        self.functions.function(ty);
        self.code.function(body);
    }

    fn build(self) -> Vec<u8> {
        let mut memories = MemorySection::new();
        memories.memory(MemoryType {
            minimum: self.memory,
            maximum: Some(self.memory),
            memory64: false,
            shared: false,
            page_size_log2: None,
        });
        let mut module = Module::new();
        module.section(&self.types);
        module.section(&self.functions);
        module.section(&self.tables);
        module.section(&memories);
        module.section(&self.globals);
        module.section(&self.exports);
        module.section(&self.elements);
        module.section(&self.code);
        module.section(&self.data);
        module.finish()
    }
}

fn body(instructions: impl IntoIterator<Item = Instruction<'static>>) -> Function {
    let mut body = Function::new([]);
    for instruction in instructions {
        body.instruction(&instruction);
    }
    body.instruction(&Instruction::End);
    body
}

fn table(entries: u64) -> TableType {
    TableType {
        element_type: RefType::FUNCREF,
        minimum: entries,
        maximum: None,
        table64: false,
        shared: false,
    }
}

/// Files that are larger than they look, and the word that a refusal must have.
fn bombs() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let mut bombs = Vec::new();
    let mut add = |name, word, change: &dyn Fn(&mut Bomb)| {
        let mut bomb = Bomb::new(&[]);
        change(&mut bomb);
        bombs.push((name, bomb.build(), word));
    };
    add("2^32-1 locals", "locals", &|bomb| {
        bomb.function(1, &{
            let mut body = Function::new([(u32::MAX, ValType::I64)]);
            body.instruction(&Instruction::End);
            body
        });
    });
    add("a table of 2^32-1", "table entries", &|bomb| {
        bomb.tables.table(table(u32::MAX.into()));
    });
    add("10,000 tables", "tables", &|bomb| {
        for _ in 0..10_000 {
            bomb.tables.table(table(1));
        }
    });
    add("a memory of 4 GiB", "pages", &|bomb| bomb.memory = 65_536);
    add("300,000 types", "types", &|bomb| {
        for _ in 0..300_000 {
            bomb.types.ty().function([], []);
        }
    });
    add("300,000 functions", "functions", &|bomb| {
        let empty = body([]);
        for _ in 0..300_000 {
            bomb.function(1, &empty);
        }
    });
    add("300,000 globals", "globals", &|bomb| {
        let ty = GlobalType {
            val_type: ValType::I32,
            mutable: true,
            shared: false,
        };
        for _ in 0..300_000 {
            bomb.globals.global(ty, &ConstExpr::i32_const(0));
        }
    });
    add("100,000 exports", "exports", &|bomb| {
        for number in 0..100_000 {
            let name = format!("e{number}");
            bomb.exports.export(&name, ExportKind::Func, 0);
        }
    });
    add("1,000,000 elements", "entries", &|bomb| {
        bomb.tables.table(table(1));
        let functions = vec![0; 1_000_000];
        bomb.elements.passive(Elements::Functions(functions.into()));
    });
    add("300,000 data segments", "data segments", &|bomb| {
        for _ in 0..300_000 {
            bomb.data.passive([]);
        }
    });
    add("a data segment of 16 MiB", "bytes of file", &|bomb| {
        bomb.data.passive(vec![0; 16 << 20]);
    });
    add("500,000 nested blocks", "nested", &|bomb| {
        let open = std::iter::repeat_n(Instruction::Block(BlockType::Empty), 500_000);
        let close = std::iter::repeat_n(Instruction::End, 500_000);
        bomb.function(1, &body(open.chain(close)));
    });
    add("3,000,000 operators", "operators", &|bomb| {
        bomb.function(1, &body(std::iter::repeat_n(Instruction::Nop, 3_000_000)));
    });
    bombs
}

/// What is large, and taken in the user tier at least: it must be quick all the
/// same.
fn large() -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    let mut add = |name: &str, change: &dyn Fn(&mut Bomb)| {
        let mut bomb = Bomb::new(&[Instruction::Call(1)]);
        change(&mut bomb);
        files.push((name.to_owned(), bomb.build()));
    };
    add("a chain of 9,000 calls", &|bomb| {
        for number in 1..9_000 {
            bomb.function(1, &body([Instruction::Call(number + 1)]));
        }
        bomb.function(1, &body([]));
    });
    add("a circle of 9,000 calls", &|bomb| {
        for number in 1..9_000 {
            bomb.function(1, &body([Instruction::Call(number + 1)]));
        }
        bomb.function(1, &body([Instruction::Call(1)]));
    });
    add("300 functions that call one another", &|bomb| {
        for _ in 0..300 {
            bomb.function(1, &body((1..=300).map(Instruction::Call)));
        }
    });
    add("a br_table of 100,000", &|bomb| {
        bomb.function(
            1,
            &body([
                Instruction::I32Const(0),
                Instruction::BrTable(vec![0; 100_000].into(), 0),
            ]),
        );
    });
    add("a hundred br_tables of 1,000 in as many blocks", &|bomb| {
        let mut code = vec![Instruction::Block(BlockType::Empty); 100];
        for open in (1..=100).rev() {
            code.push(Instruction::I32Const(0));
            code.push(Instruction::BrTable(
                (0..1_000).map(|n| n % open).collect(),
                0,
            ));
            code.push(Instruction::End);
        }
        bomb.function(1, &body(code));
    });
    // As many instructions as are translated, or nearly: in each another thing
    // that the checker has to keep or to follow. Ten times as many end early.
    let load = [Instruction::I32Const(8), Instruction::I32Load(AT)];
    let divide = [&load[..], &load, &[Instruction::I32DivS, Instruction::Drop]].concat();
    let turn = [&[Instruction::Loop(BlockType::Empty)][..], &load].concat();
    let turn = [&turn[..], &[Instruction::BrIf(0), Instruction::End]].concat();
    let leave = [
        &[
            Instruction::Block(BlockType::Empty),
            Instruction::Loop(BlockType::Empty),
        ],
        &load[..],
        &[
            Instruction::BrIf(1),
            Instruction::Br(0),
            Instruction::End,
            Instruction::End,
        ],
    ]
    .concat();
    let choose = [
        &load[..],
        &[Instruction::If(BlockType::Empty)],
        &load,
        &[Instruction::Drop, Instruction::End],
    ]
    .concat();
    for (name, code, times) in [
        ("1,900 divisions", &divide, 1_900),
        ("1,000 loops", &turn, 1_000),
        ("1,000 loops that are left early", &leave, 1_000),
        ("3,500 choices", &choose, 3_500),
        ("20,000 divisions", &divide, 20_000),
    ] {
        add(name, &|bomb| bomb.function(1, &body(repeat(code, times))));
        add(&format!("{name}, in a loop"), &|bomb| {
            let open = [Instruction::Loop(BlockType::Empty)];
            let close = [&load[..], &[Instruction::BrIf(0), Instruction::End]].concat();
            let all = [&open, &repeat(code, times)[..], &close].concat();
            bomb.function(1, &body(all));
        });
    }
    files
}

fn repeat(code: &[Instruction<'static>], times: usize) -> Vec<Instruction<'static>> {
    std::iter::repeat_n(code, times)
        .flatten()
        .cloned()
        .collect()
}

/// Where a load may be.
const AT: MemArg = MemArg {
    offset: 0,
    align: 0,
    target: MemArgTarget::Memory(0),
    ordering: None,
};

/// What an answer took, and of that our own checker.
#[derive(Debug)]
struct Cost {
    ms: u64,
    kib: u64,
    checker_ms: u64,
    checker_kib: u64,
}

/// Answers a file in a process of its own.
fn answer_apart(name: &str, wasm: &[u8]) -> (Cost, String) {
    let number = name
        .bytes()
        .fold(0_u64, |sum, byte| sum * 31 % 1_000_003 + u64::from(byte));
    let file = format!("ashway-hostile-{}-{number}.wasm", std::process::id());
    let file = std::env::temp_dir().join(file);
    std::fs::write(&file, wasm).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_answer"))
        .arg(&file)
        .output()
        .unwrap();
    std::fs::remove_file(&file).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{name}: {}: {errors}",
        output.status
    );
    let text = String::from_utf8(output.stdout).unwrap();
    let mut words = text.trim_end().splitn(5, ' ');
    let mut number = || words.next().unwrap().parse().unwrap();
    let cost = Cost {
        ms: number(),
        kib: number(),
        checker_ms: number(),
        checker_kib: number(),
    };
    (cost, words.next().unwrap().to_owned())
}

#[test]
fn size_bombs_are_refused_with_the_limit_named() {
    let mut wrong = Vec::new();
    for (name, wasm, word) in bombs() {
        let (cost, said) = answer_apart(name, &wasm);
        println!("{name}: {cost:?}: {said}");
        let quick = u128::from(cost.ms) < MOST_TIME.as_millis() && cost.kib < MOST_KIB;
        if !quick || !said.starts_with("refused") || !said.contains(word) {
            wrong.push(format!("{name}: {cost:?}: {said}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn large_files_are_answered_quickly() {
    let (mut wrong, mut in_both) = (Vec::new(), 0);
    for (name, wasm) in large() {
        let (cost, said) = answer_apart(&name, &wasm);
        println!("{name}: {cost:?}: {said}");
        let checker = u128::from(cost.checker_ms) < MOST_TIME.as_millis();
        let checker = checker && cost.checker_kib < MOST_KIB;
        let others = u128::from(cost.ms - cost.checker_ms) < MOST_TIME.as_millis();
        let others = others && cost.kib < MOST_KIB_IN_ALL;
        if !checker || !others || !said.starts_with("accepted") {
            wrong.push(format!("{name}: {cost:?}: {said}"));
        }
        in_both += usize::from(said.starts_with("accepted in both"));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(in_both >= 8, "the checker has something to do");
}
