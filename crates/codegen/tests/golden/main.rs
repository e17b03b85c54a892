//! Golden files: small handlers and what becomes of them.
//!
//! `X.wat` is translated, and compared with `X.bpf` (eBPF, with each source
//! line above its instructions) or with `X.err` (why it was refused, with the
//! offending line). `cargo xtask bless` writes what is found instead; look at
//! the difference before you commit it.
//!
//! Words in the first line choose what the file is translated for:
//! `;; array` for array memory, `;; frames` for locals in memory.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

mod documented;

use ashway_abi::{Budget, MemoryKind};
use ashway_check::bpf::{Assembler, Reg, print};
use ashway_codegen::normalise::NormaliseError;
use ashway_codegen::normalise::{Limits, Lines, normalise};
use ashway_codegen::promote::{self, PromoteError, Shape};
use ashway_codegen::stub;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// The default budget of a path: 50 us.
const BUDGET: Budget = Budget {
    fuel: 200_000,
    slice: 2_048,
    ns: 50_000,
};

#[test]
fn translations_are_as_they_were() {
    let folder = folder();
    let bless = std::env::var_os("ASHWAY_BLESS").is_some();
    let mut wanted = BTreeSet::new();
    let mut wrong = Vec::new();
    for source in files(&folder, &["wat"]) {
        let (text, end) = match translate(&source) {
            Ok(text) => (text, "bpf"),
            Err(refusal) => (refusal.text(), "err"),
        };
        let golden = source.with_extension(end);
        if bless {
            fs::write(&golden, &text).unwrap();
        } else if let Err(difference) = compare(&golden, &text) {
            wrong.push(difference);
        }
        wanted.insert(golden);
    }
    assert!(wanted.len() >= 25, "the golden files are not there");
    for golden in files(&folder, &["bpf", "err"]) {
        if wanted.contains(&golden) {
            continue;
        }
        if bless {
            fs::remove_file(&golden).unwrap();
        } else {
            wrong.push(format!(
                "{}: nothing becomes that any more",
                golden.display()
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "{}\nif that is right: cargo xtask bless",
        wrong.join("\n")
    );
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// Files with one of these ends, in order.
fn files(folder: &Path, ends: &[&str]) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = entries
        .filter(|path| {
            ends.iter()
                .any(|end| path.extension().is_some_and(|its| its == *end))
        })
        .collect();
    files.sort();
    files
}

/// The first line that differs.
fn compare(golden: &Path, found: &str) -> Result<(), String> {
    let expected = fs::read_to_string(golden).unwrap_or_default();
    if expected == found {
        return Ok(());
    }
    let lines = expected.lines().zip(found.lines());
    let same = lines
        .take_while(|(expected, found)| expected == found)
        .count();
    let line = |text: &str| text.lines().nth(same).unwrap_or("(the end)").to_owned();
    Err(format!(
        "{}:{}:\n  expected {}\n  found    {}",
        golden.display(),
        same + 1,
        line(&expected),
        line(found)
    ))
}

/// The file's eBPF, or why there is none.
fn translate(path: &Path) -> Result<String, Refusal> {
    let name = path.file_name().unwrap().to_str().unwrap();
    let source = fs::read_to_string(path).unwrap();
    let mut parser = wat::Parser::new();
    parser.generate_dwarf(wat::GenerateDwarf::Lines);
    let wasm = parser
        .parse_str(Some(Path::new(name)), &source)
        .unwrap_or_else(|error| panic!("{error}"));
    let module = normalise(&wasm, &Limits::default())
        .map_err(|error| Refusal::normalise(name, &source, &wasm, &error))?;
    let options = source.lines().next().unwrap_or_default();
    let shape = Shape {
        module: &module,
        entry: module.exports[0].1,
        memory: if options.contains("array") {
            MemoryKind::Array
        } else {
            MemoryKind::Arena
        },
        layout: stub::layout(&module),
        budget: BUDGET,
        locals_in_memory: options.contains("frames"),
        checks: promote::Checks::default(),
    };
    // What is around a handler is left away.
    let mut asm = Assembler::new();
    let (done, trap) = (asm.label(), asm.label());
    let looks = promote::Looks::new(&mut asm);
    promote::emit(&mut asm, &shape, done, trap, looks)
        .map_err(|error| Refusal::promote(name, &source, &error))?;
    asm.line(None);
    asm.bind(trap);
    asm.mov_imm(Reg::R0, -1);
    asm.bind(done);
    asm.exit();
    looks.emit(&mut asm, &BUDGET);
    Ok(with_source(&print(&asm.finish()), name, &source))
}

/// Why a file was refused.
struct Refusal {
    /// The error's type and variant.
    variant: String,
    /// The offending line with its place, if it is one line.
    line: Option<String>,
    message: String,
    hint: String,
}

impl Refusal {
    fn normalise(name: &str, source: &str, wasm: &[u8], error: &NormaliseError) -> Self {
        let lines = Lines::of_file(wasm);
        let at = error.place().and_then(|at| lines.at(at));
        Self {
            variant: format!("NormaliseError::{}", variant(&format!("{error:?}"))),
            line: at.map(|(_, line)| numbered(name, source, line)),
            message: (std::iter::once(error.to_string()))
                .chain(error.caret().map(str::to_owned))
                .collect::<Vec<_>>()
                .join("\n"),
            hint: error.hint(),
        }
    }

    fn promote(name: &str, source: &str, error: &PromoteError) -> Self {
        let at = error.place().and_then(|place| place.line.as_ref());
        Self {
            variant: format!("PromoteError::{}", variant(&format!("{error:?}"))),
            line: at.map(|(_, line)| numbered(name, source, *line)),
            message: error.to_string(),
            hint: error.hint().into(),
        }
    }

    fn text(&self) -> String {
        let line = self.line.iter().map(|line| format!("{line}\n"));
        let rest = format!("error: {}\nhint: {}\n", self.message, self.hint);
        line.chain([rest]).collect()
    }
}

/// The first word of what `Debug` says.
fn variant(debug: &str) -> &str {
    debug.split([' ', '(']).next().unwrap()
}

fn numbered(name: &str, source: &str, line: u32) -> String {
    let code = source.lines().nth(line as usize - 1).unwrap_or_default();
    format!("{name}:{line}: {}", code.trim())
}

/// Puts the source's words behind each mark of a line.
fn with_source(printed: &str, name: &str, source: &str) -> String {
    let mut text = String::new();
    for line in printed.lines() {
        let mark = line
            .strip_prefix("; ")
            .and_then(|mark| mark.strip_prefix(name));
        let number = mark.and_then(|mark| mark.strip_prefix(':')?.parse::<usize>().ok());
        let _ = match number {
            Some(number) => {
                let code = source.lines().nth(number - 1).unwrap_or_default();
                writeln!(text, "; {number}: {}", code.trim())
            }
            None => writeln!(text, "{line}"),
        };
    }
    text
}
