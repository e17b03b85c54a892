//! `ashway handler show`: what a handler becomes, line by line.

mod base;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path as FsPath, PathBuf};

use ashway_abi::MemoryKind;
use ashway_check::bpf::{Image, Line, print};
use ashway_codegen::normalise::ir::FileOffset;
use ashway_codegen::normalise::{Lines, Module, Profile, encode, static_bound};
use ashway_codegen::promote::{Shape, Summary};
use ashway_codegen::stub;
use ashway_trial::{Engine, NotRun};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use super::{file, tier};
use crate::face::{Face, clean};
use crate::failure::{Exit, Failure};

/// Show what a handler becomes: Wasm, eBPF, or both beside its source
///
/// Nothing is loaded, so no privilege is needed. The
/// few instructions around the handler are those of a trial, not of a path.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ashway handler show counter.wasm --source
  ashway handler show counter.wasm --bpf --entry on_rx
  ashway handler show counter.wasm --wat | less

JSON (-j):
  { \"handler\": \"counter.wasm\", \"entry\": \"on_rx\", \"insns\": 120, \"functions\": 1,
    \"frame_bytes\": 0, \"bound\": 57 or null (fuel), \"form\": \"bpf\",
    \"lines\": [ { \"offset\": 418 or null, \"file\": \"counter.c\", \"line\": 12,
                 \"text\": \"7: r0 = *(u32 *)(r9 +16)\" }, ... ] }")]
pub(crate) struct Show {
    /// The handler (Wasm)
    file: PathBuf,
    #[command(flatten)]
    form: Form,
    /// The exported handler to show
    #[arg(long, value_name = "NAME", default_value = "on_rx")]
    entry: String,
    /// What its memory is in the eBPF: arena, or array (where `CAP_PERFMON` is lacking)
    #[arg(long, value_enum, default_value = "arena")]
    memory: Memory,
}

/// What programs work in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Memory {
    Arena,
    Array,
}

impl From<Memory> for MemoryKind {
    fn from(memory: Memory) -> Self {
        match memory {
            Memory::Arena => Self::Arena,
            Memory::Array => Self::Array,
        }
    }
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct Form {
    /// The normal form that both tiers run, as Wasm text: fuel, message access
    /// and state made explicit
    #[arg(long)]
    wat: bool,
    /// The kernel tier's eBPF, with the author's places
    #[arg(long)]
    bpf: bool,
    /// Source lines, each with its Wasm operators and their eBPF
    #[arg(long)]
    source: bool,
}

/// A line of the listing, and where it comes from.
struct Row {
    at: Option<FileOffset>,
    text: String,
}

impl Show {
    pub(crate) fn run(self, face: Face) -> Result<(), Failure> {
        let bytes = file::read(&self.file)?;
        let module = file::module(&self.file, &bytes, Profile::Handler)?;
        let entry = file::export(&module, &self.entry)?;
        let translated = translate(&module, entry, self.memory.into());
        let bound = static_bound(&module, entry);
        let (form, rows) = if self.form.wat {
            ("wat", wat(&module)?)
        } else {
            let (image, _) = translated
                .as_ref()
                .map_err(|error| tier::failure(&module, Engine::Kernel, error))?;
            if self.form.bpf {
                ("bpf", bpf(image))
            } else {
                ("source", operators(&bytes, &module, image)?)
            }
        };
        let summary = translated
            .as_ref()
            .ok()
            .map(|(image, summary)| (image.insns.len(), *summary));
        let mut document = json!({
            "handler": self.file.display().to_string(),
            "entry": self.entry,
            "form": form,
            "bound": bound,
            "lines": rows.iter().map(|row| row.json(&module)).collect::<Vec<_>>(),
        });
        if let Some((insns, summary)) = summary {
            document["insns"] = json!(insns);
            document["functions"] = json!(summary.functions);
            document["frame_bytes"] = json!(summary.frame_bytes);
        }
        face.show(&document, || {
            let head = self.head(&translated, bound, &module);
            let mut sources = self.form.source.then(|| Sources::beside(&self.file));
            head + &listing(&module, &rows, sources.as_mut())
        })?;
        Ok(())
    }

    /// One line of counts, one on the bound, one on the memory's base.
    fn head(
        &self,
        translated: &Result<(Image, Summary), NotRun>,
        bound: Option<u64>,
        module: &Module<'_>,
    ) -> String {
        let mut text = match translated {
            Ok((image, summary)) => format!(
                "{}: {} eBPF instructions, {} of them for the handler; functions: {}, frames: {} \
                 bytes\n",
                self.entry,
                image.insns.len(),
                summary.insns,
                summary.functions,
                summary.frame_bytes
            ),
            Err(error) => format!(
                "{}: no eBPF: {}\n",
                self.entry,
                clean(&tier::because(module, error))
            ),
        };
        // Writing to a string cannot fail.
        let _ = match bound {
            Some(units) => writeln!(
                text,
                "bound: static, at most {units} units of fuel and what bulk operations take"
            ),
            None => writeln!(
                text,
                "bound: fuel, taken in each turn of a loop and on calls"
            ),
        };
        if let Ok((image, _)) = translated {
            text += &base(image);
        }
        text + "\n"
    }
}

/// How the program finds its memory's base, by its instructions.
fn base(image: &Image) -> String {
    match base::uses(image) {
        base::Uses {
            folded: 0,
            added: 0,
        } => "memory: the handler does not reach it\n".to_owned(),
        base::Uses { folded, added: 0 } => format!(
            "memory: base folded, at {folded} places: the low 32 bits of an arena's address are \
             the Wasm address\n"
        ),
        base::Uses { folded: 0, added } => {
            format!("memory: base added, at {added} places: by an instruction before each access\n")
        }
        base::Uses { folded, added } => {
            format!("memory: base folded at {folded} places, added at {added}\n")
        }
    }
}

/// Source file of the lines that are offsets.
const OFFSETS: &str = "wasm";

/// Translates with lines that are offsets, so that each instruction says from
/// what operator it comes. A refusal names the author's line.
fn translate(
    original: &Module<'_>,
    entry: u32,
    memory: MemoryKind,
) -> Result<(Image, Summary), NotRun> {
    generate(original, entry, memory)?;
    let mut module = original.clone();
    let ops = module
        .functions
        .iter()
        .flat_map(|f| f.code.iter().map(|op| op.at));
    let bodies = module.functions.iter().map(|f| f.at);
    let offsets: Vec<FileOffset> = ops.chain(bodies).collect();
    module.lines = Lines::of_offsets(OFFSETS, offsets);
    generate(&module, entry, memory)
}

fn generate(
    module: &Module<'_>,
    entry: u32,
    memory: MemoryKind,
) -> Result<(Image, Summary), NotRun> {
    let shape = Shape {
        module,
        entry,
        memory,
        layout: stub::layout(module),
        budget: ashway_trial::Setup::default().budget,
        locals_in_memory: false,
        checks: ashway_codegen::promote::Checks::default(),
    };
    Ok(stub::generate(&shape, 1)?)
}

/// The normal form as text, with the author's offsets.
fn wat(module: &Module<'_>) -> Result<Vec<Row>, Failure> {
    let encoded = encode(module);
    let mut text = String::new();
    let lines = wasmprinter::Config::new()
        .offsets_and_lines(&encoded.wasm, &mut text)
        .map_err(|error| unprintable(&error))?;
    let author = |offset: u64| {
        let exact = encoded
            .offsets
            .binary_search_by_key(&(offset as u32), |(at, _)| *at);
        exact.ok().map(|index| encoded.offsets[index].1)
    };
    let rows = lines.map(|(offset, text)| Row {
        at: offset.and_then(author),
        text: text.trim_end().to_owned(),
    });
    Ok(rows.collect())
}

fn unprintable(error: &dyn std::fmt::Display) -> Failure {
    Failure::new(Exit::Failed, "the module cannot be printed").because(error)
}

/// Every instruction, with the offset of its operator.
fn bpf(image: &Image) -> Vec<Row> {
    let mut at = None;
    let text = print(&marked(image));
    let mut rows = Vec::new();
    for line in text.lines() {
        match line.strip_prefix(MARK) {
            Some(number) => at = number.parse().ok().filter(|at| *at != 0),
            None => rows.push(Row {
                at,
                text: line.to_owned(),
            }),
        }
    }
    rows
}

/// What stands before an offset in a printed image.
const MARK: &str = "; @";

/// The image with its lines written so that they can be told from the text.
fn marked(image: &Image) -> Image {
    let mut image = image.clone();
    image.lines = image
        .lines
        .into_iter()
        .map(|line| Line {
            file: format!("@{}", line.number),
            number: 0,
            ..line
        })
        .collect();
    image
}

/// The author's operators in the file's order, each followed by its
/// instructions.
fn operators(wasm: &[u8], module: &Module<'_>, image: &Image) -> Result<Vec<Row>, Failure> {
    let mut insns: HashMap<FileOffset, Vec<String>> = HashMap::new();
    for row in bpf(image) {
        if let Some(at) = row.at {
            insns.entry(at).or_default().push(row.text);
        }
    }
    let mut text = String::new();
    let lines = wasmprinter::Config::new()
        .offsets_and_lines(wasm, &mut text)
        .map_err(|error| unprintable(&error))?;
    let mut rows = Vec::new();
    let known: std::collections::HashSet<FileOffset> = module
        .functions
        .iter()
        .flat_map(|f| f.code.iter().map(|op| op.at))
        .collect();
    for (offset, text) in lines {
        let Some(at) = offset
            .map(|at| at as FileOffset)
            .filter(|at| known.contains(at))
        else {
            continue;
        };
        rows.push(Row {
            at: Some(at),
            text: format!("    {}", text.trim()),
        });
        let instructions = insns.remove(&at).unwrap_or_default();
        rows.extend(instructions.into_iter().map(|text| Row {
            at: Some(at),
            text: format!("            {text}"),
        }));
    }
    Ok(rows)
}

impl Row {
    fn json(&self, module: &Module<'_>) -> Value {
        let line = self.at.and_then(|at| module.lines.at(at));
        json!({
            "offset": self.at,
            "file": line.map(|(file, _)| file),
            "line": line.map(|(_, line)| line),
            "text": self.text,
        })
    }
}

/// The rows below the lines that they come from.
fn listing(module: &Module<'_>, rows: &[Row], mut sources: Option<&mut Sources>) -> String {
    let mut text = String::new();
    let mut last = None;
    for row in rows {
        let here = row.at.and_then(|at| module.lines.at(at));
        if here != last
            && let Some((file, number)) = here
        {
            let quoted = sources
                .as_mut()
                .and_then(|sources| sources.line(file, number));
            let _ = writeln!(
                text,
                "{}:{number}{}",
                clean(file),
                quoted.map_or(String::new(), |line| format!(": {}", clean(line)))
            );
        }
        if here.is_some() {
            last = here;
        }
        let _ = match row.at {
            Some(at) => writeln!(text, "{at:>6x}  {}", clean(&row.text)),
            None => writeln!(text, "        {}", clean(&row.text)),
        };
    }
    for file in sources.iter().flat_map(|sources| sources.unreadable()) {
        let _ = writeln!(
            text,
            "({} cannot be read from here: no source text)",
            clean(file)
        );
    }
    text
}

/// Source files, as far as they can be read: under the name that the compiler
/// was given, from here or from where the handler lies.
struct Sources {
    beside: PathBuf,
    lines: HashMap<String, Option<Vec<String>>>,
}

impl Sources {
    fn beside(handler: &FsPath) -> Self {
        Self {
            beside: handler
                .parent()
                .map(FsPath::to_path_buf)
                .unwrap_or_default(),
            lines: HashMap::new(),
        }
    }

    fn line(&mut self, file: &str, number: u32) -> Option<&str> {
        let beside = &self.beside;
        let lines = self.lines.entry(file.to_owned()).or_insert_with(|| {
            let name = FsPath::new(file).file_name().unwrap_or_default();
            let places = [PathBuf::from(file), beside.join(file), beside.join(name)];
            let text = places.iter().find_map(|place| source(place))?;
            Some(text.lines().map(|line| line.trim().to_owned()).collect())
        });
        let index = (number as usize).checked_sub(1)?;
        Some(lines.as_ref()?.get(index)?)
    }

    fn unreadable(&self) -> Vec<&str> {
        let lines = self.lines.iter().filter(|(_, lines)| lines.is_none());
        let mut files: Vec<&str> = lines.map(|(file, _)| file.as_str()).collect();
        files.sort_unstable();
        files
    }
}

/// Bytes of the longest source file that is shown.
const LONGEST_SOURCE: u64 = 4 << 20;

/// A source file's text. The name comes from the handler: it may be anything.
/// What says that it is empty is none either: under `/proc` that can mean that
/// reading waits, and takes from others what it gets.
fn source(place: &FsPath) -> Option<String> {
    let metadata = fs::metadata(place).ok()?;
    (metadata.is_file() && (1..=LONGEST_SOURCE).contains(&metadata.len()))
        .then(|| fs::read_to_string(place).ok())
        .flatten()
}
