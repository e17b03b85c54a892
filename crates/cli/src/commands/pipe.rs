//! `ashway pipe`: lists of pipes, compiled and tried.

mod bench;
mod data;

use std::fmt::Write as _;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Instant;

use ashway_codegen::normalise::Profile;
use ashway_codegen::pipe::{
    self, Cpu, Gauge, Isa, List, Native, Options, PIPES, PipeRequest, Plan, Portable, Strategy,
    compile, parse_with, print_code, print_pipe, user_pipe,
};
use ashway_handler::native::{self, Passes};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Map, Value, json};

use super::handler::file;
use crate::commands::bench::become_bench;
use crate::face::Face;
use crate::failure::{Exit, Failure};
use crate::table;
use bench::Bench;
use data::{Out, read};

/// Data manipulations composed into one loop
#[derive(Debug, Subcommand)]
pub(crate) enum Pipe {
    Calibrate(Calibrate),
    List(ListAll),
    Compile(Compile),
    Show(Show),
    Run(Run),
    Bench(Bench),
}

impl Pipe {
    pub(crate) fn run(self, face: Face) -> Result<(), Failure> {
        match self {
            Self::Calibrate(command) => command.run(),
            Self::List(command) => command.run(face),
            Self::Compile(command) => command.run(face),
            Self::Show(command) => command.run(face),
            Self::Run(command) => command.run(face),
            Self::Bench(command) => command.run(face),
        }
    }
}

/// Measure what loops cost, for the compiler's own table
///
/// By these costs the compiler decides into how many loops it cuts a list. Prints
/// `crates/codegen/src/pipe/cost/table.rs` for this machine, which takes AVX-512. Some
/// ten seconds.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ashway pipe calibrate > crates/codegen/src/pipe/cost/table.rs")]
pub(crate) struct Calibrate {}

impl Calibrate {
    #[expect(clippy::unused_self, reason = "as the other commands")]
    fn run(self) -> Result<(), Failure> {
        Err(become_bench(&["calibrate".into()]))
    }
}

/// List the built-in pipes
#[derive(Debug, Args)]
pub(crate) struct ListAll {}

impl ListAll {
    #[expect(clippy::unused_self, reason = "as the other commands")]
    fn run(self, face: Face) -> Result<(), Failure> {
        let document: Vec<_> = PIPES
            .iter()
            .map(|(name, what)| json!({ "pipe": name, "does": what }))
            .collect();
        face.show(&json!({ "pipes": document }), || {
            let rows: Vec<Vec<String>> = PIPES
                .iter()
                .map(|(name, what)| vec![(*name).to_owned(), (*what).to_owned()])
                .collect();
            table::render(&["pipe", "does"], &rows)
        })
    }
}

/// Which code is made.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Form {
    /// The widest vectors of this CPU
    #[default]
    Native,
    /// Vectors of 256 bits
    Avx2,
    /// No code: the portable form
    Portable,
}

impl Form {
    /// For which CPU code is made, if any.
    fn cpu(self) -> Result<Option<Cpu>, Failure> {
        let here = native::cpu();
        match self {
            Self::Portable => Ok(None),
            Self::Native => Ok(here),
            Self::Avx2 => here
                .map(|cpu| {
                    Some(Cpu {
                        isa: Isa::Avx2,
                        permute_bytes: false,
                        ..cpu
                    })
                })
                .ok_or_else(|| {
                    Failure::new(Exit::Failed, "this CPU has no AVX2 and BMI2")
                        .hint("leave `--form` out: the portable form runs everywhere")
                }),
        }
    }
}

/// A list of pipes on the command line.
#[derive(Debug, Args)]
struct Expression {
    /// The pipes, in order: `cksum16 | bswap32 | xor(0xdeadbeef)`; `ashway pipe list`
    /// has them, and the byte order of their numbers
    pipes: String,
    /// Also a pipe of one's own: a function that a WebAssembly file exports, on words
    /// of 8, 16, 32 or 64 bits [default: as many as it computes with]
    #[arg(long, value_name = "FILE:FUNCTION[:BITS]")]
    with: Vec<String>,
    /// Which code is made
    #[arg(long, value_enum, default_value_t)]
    form: Form,
    /// Bytes of a message, for which the list is cut into loops
    #[arg(long, value_name = "N", default_value_t = 1472, value_parser = bytes)]
    bytes: usize,
}

impl Expression {
    fn list(&self) -> Result<List, Failure> {
        let more: Result<Vec<_>, _> = self.with.iter().map(|one| own(one)).collect();
        parse_with(&self.pipes, &more?).map_err(|error| {
            let failure = Failure::new(Exit::Usage, error.to_string()).hint(&error.hint);
            // The text, and carets below it.
            let caret = error.caret(&self.pipes);
            caret
                .lines()
                .fold(failure, |failure, line| failure.because(&line))
        })
    }

    /// The code, if the CPU can run any and all pipes have some.
    fn native(&self, list: &List) -> Result<Option<Native>, Failure> {
        let Some(cpu) = self.form.cpu()? else {
            return Ok(None);
        };
        compile(list, cpu, Options::default())
            .map(Some)
            .map_err(|error| {
                Failure::new(Exit::Failed, error.to_string()).hint("try `--form portable`")
            })
    }
}

/// A pipe of one's own from `FILE:FUNCTION[:BITS]`.
fn own(text: &str) -> Result<pipe::Pipe, Failure> {
    let usage = || {
        Failure::new(Exit::Usage, format!("`{text}` is not FILE:FUNCTION[:BITS]"))
            .hint("for example `lower.wasm:lower:8`")
    };
    let (rest, last) = text.rsplit_once(':').ok_or_else(usage)?;
    let gauge = Gauge::WORDS
        .into_iter()
        .find(|gauge| gauge.bits().to_string() == last);
    let is_number = !last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit());
    let (path, export) = match (gauge, rest.rsplit_once(':')) {
        (Some(_), before) => before.ok_or_else(usage)?,
        (None, Some((_, function))) if is_number => {
            let bits = Gauge::WORDS.map(|gauge| gauge.bits().to_string());
            return Err(Failure::new(
                Exit::Usage,
                format!("`--with {text}`: a word has no {last} bits"),
            )
            .hint(format!(
                "give one of {}, or none for as many as `{function}` computes with",
                bits.join(", ")
            )));
        }
        (None, _) => (rest, last),
    };
    let path = PathBuf::from(path);
    let bytes = file::read(&path)?;
    let module = file::module(&path, &bytes, Profile::Library)?;
    let wanted = PipeRequest {
        gauge,
        ..PipeRequest::default()
    };
    user_pipe(&module, export, wanted).map_err(|error| {
        let mut failure = Failure::new(Exit::HandlerRefused, error.to_string()).hint(error.hint());
        failure.file = Some(path.display().to_string());
        failure
    })
}

/// Compile a list and say what became of it
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ashway pipe compile \"cksum16 | bswap32 | xor(0xdeadbeef)\"
  ashway pipe compile \"lower | crc32c\" --with lower.wasm:lower:8 --out loop.bin")]
pub(crate) struct Compile {
    #[command(flatten)]
    expression: Expression,
    /// Write the code there: position-independent, constants behind it; `-` is
    /// standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

impl Compile {
    fn run(self, face: Face) -> Result<(), Failure> {
        let out = Out::new(face, self.out)?;
        let list = self.expression.list()?;
        // The encoder's own tables are made when it is first used.
        let first = Instant::now();
        self.expression.native(&list)?;
        let first_micros = first.elapsed().as_secs_f64() * 1e6;
        let begun = Instant::now();
        let native = self.expression.native(&list)?;
        let micros = begun.elapsed().as_secs_f64() * 1e6;
        out.write(native.as_ref().map_or(&[][..], Native::code))?;
        let mut document = document(&list, native.as_ref());
        document["compile_us"] = json!(micros);
        document["first_compile_us"] = json!(first_micros);
        out.show(face, &document, || {
            let mut text = summary(&list, native.as_ref());
            let _ = writeln!(
                text,
                "compiled in {micros:.0} us, the first time in {first_micros:.0}"
            );
            text
        })
    }
}

/// Show a list's bodies and code
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ashway pipe show \"cksum16 | bswap32\"
  ashway pipe show crc32c --asm --form avx2")]
pub(crate) struct Show {
    #[command(flatten)]
    expression: Expression,
    /// The pipes' bodies, operator by operator
    #[arg(long)]
    ir: bool,
    /// The instructions
    #[arg(long)]
    asm: bool,
}

impl Show {
    fn run(self, face: Face) -> Result<(), Failure> {
        let list = self.expression.list()?;
        let native = self.expression.native(&list)?;
        let mut document = document(&list, native.as_ref());
        let mut text = summary(&list, native.as_ref());
        if let Some(native) = &native {
            let bytes = self.expression.bytes;
            let plan = pipe::plan(&list, native.cpu(), bytes);
            text.push_str(&planned(&list, &plan, bytes));
            document["plan"] = json!({
                "bytes": bytes,
                "loops": names(&list, &plan),
                "planned_ns": plan.planned_ns,
                "fused_ns": plan.fused_ns,
                "separate_ns": plan.separate_ns,
            });
        }
        if self.ir {
            let bodies: Vec<String> = list
                .pipes()
                .iter()
                .map(|placed| print_pipe(&placed.pipe))
                .collect();
            let _ = write!(text, "\n{}", bodies.join("\n"));
            document["ir"] = json!(bodies);
        }
        if let (true, Some(native)) = (self.asm, &native) {
            let code = print_code(native);
            let _ = write!(text, "\n{code}");
            document["asm"] = json!(code);
        }
        face.show(&document, || text)
    }
}

/// The pipes of each loop.
fn names(list: &List, plan: &Plan) -> Vec<Vec<String>> {
    let pipes = |range: &Range<usize>| &list.pipes()[range.clone()];
    plan.loops
        .iter()
        .map(|range| pipes(range).iter().map(|one| one.name.clone()).collect())
        .collect()
}

/// Into which loops a list is cut, and why.
fn planned(list: &List, plan: &Plan, bytes: usize) -> String {
    let Plan {
        planned_ns,
        fused_ns,
        separate_ns,
        ..
    } = plan;
    let by = format!("by calibration, some {planned_ns:.0} ns for {bytes} B in the caches");
    match &names(list, plan)[..] {
        [_] => format!("\none loop: {by}; a loop for each pipe takes {separate_ns:.0}\n"),
        loops => {
            let loops: Vec<String> = loops.iter().map(|one| one.join(" | ")).collect();
            format!(
                "\n{} loops, `{}`: {by}; all in one loop takes {fused_ns:.0}\n",
                loops.len(),
                loops.join("`, then `"),
            )
        }
    }
}

/// The name of the form that runs.
fn form(native: Option<&Native>) -> &'static str {
    match native.map(Native::cpu) {
        None => "portable",
        Some(cpu) if cpu.isa == Isa::Avx512 => "AVX-512",
        Some(_) => "AVX2",
    }
}

const fn strategy(strategy: Strategy) -> &'static str {
    match strategy {
        Strategy::Nothing => "nothing",
        Strategy::Lanes => "lanes",
        Strategy::Folded => "folded",
        Strategy::Keystream => "keystream",
        Strategy::InOrder => "in order",
    }
}

fn document(list: &List, native: Option<&Native>) -> Value {
    let pipes: Vec<Value> = list
        .pipes()
        .iter()
        .enumerate()
        .map(|(at, placed)| {
            let step = native.map(|native| &native.steps()[at]);
            json!({
                "pipe": placed.name,
                "gauge": placed.pipe.gauge().bits(),
                "commutative": placed.pipe.commutative(),
                "no_mod": placed.pipe.no_mod(),
                "strategy": step.map(|step| strategy(step.strategy)),
                "why": step.map(|step| step.why),
            })
        })
        .collect();
    json!({
        "form": form(native),
        "pipes": pipes,
        "registers": list.register_names(),
        "code_bytes": native.map(|native| native.code().len()),
        "instruction_bytes": native.map(Native::instruction_bytes),
        "chunks_per_turn": native.map(Native::unrolled),
    })
}

fn summary(list: &List, native: Option<&Native>) -> String {
    let count = file::count(list.pipes().len(), "pipe");
    let mut text = match native {
        None => format!("{count}, portable: each operator over 512 bytes at a time\n"),
        Some(native) => format!(
            "{count} in one loop for {}: {} B of instructions, {} B of constants, {} B a turn\n",
            form(Some(native)),
            native.instruction_bytes(),
            native.code().len() - native.instruction_bytes(),
            native.unrolled() * pipe::CHUNK_BYTES,
        ),
    };
    let rows: Vec<Vec<String>> = list
        .pipes()
        .iter()
        .enumerate()
        .map(|(at, placed)| {
            let step = native.map(|native| &native.steps()[at]);
            vec![
                placed.name.clone(),
                placed.pipe.gauge().bits().to_string(),
                step.map_or("blocks", |step| strategy(step.strategy))
                    .to_owned(),
                step.map_or("", |step| step.why).to_owned(),
            ]
        })
        .collect();
    text.push_str(&table::render(
        &["pipe", "bits", "strategy", "because"],
        &rows,
    ));
    text
}

/// Run a file through a list
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ashway pipe run \"crc32c | bswap32\" --in data.bin --out swapped.bin
  ashway pipe run cksum16 --in packet.bin --set cksum16.sum=0x1234")]
pub(crate) struct Run {
    #[command(flatten)]
    expression: Expression,
    /// The data, at most 256 MiB; `-` is standard input
    #[arg(long = "in", value_name = "FILE")]
    input: PathBuf,
    /// Where it goes; `-` is standard output [default: nowhere]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Export a register before the run
    #[arg(long, value_name = "PIPE.REGISTER=NUMBER")]
    set: Vec<String>,
}

impl Run {
    fn run(self, face: Face) -> Result<(), Failure> {
        let out = Out::new(face, self.out)?;
        out.spares(&self.input)?;
        let list = self.expression.list()?;
        let mut registers = list.initial();
        for setting in &self.set {
            let (register, value) = exported(&list, setting)?;
            registers[register] = value;
        }
        let source = read(&self.input)?;
        let mut destination = vec![0; source.len()];
        match self.expression.form.cpu()? {
            Some(cpu) => {
                let plan = pipe::plan(&list, cpu, source.len());
                let passes = Passes::map(&list, cpu, &plan).map_err(|error| {
                    Failure::new(Exit::Failed, error.to_string()).hint("try `--form portable`")
                })?;
                passes.run(&mut registers, &source, &mut destination);
            }
            None => Portable::new(&list).run(&mut registers, &source, &mut destination),
        }
        out.write(&destination)?;
        let names = list.register_names();
        let values: Map<String, Value> = names
            .iter()
            .cloned()
            .zip(registers.iter().map(|register| json!(register)))
            .collect();
        let document = json!({ "bytes": source.len(), "registers": values });
        out.show(face, &document, || {
            let mut text = format!("{}\n", file::count(source.len(), "byte"));
            let rows: Vec<Vec<String>> = names
                .into_iter()
                .zip(&registers)
                .map(|(name, value)| vec![name, format!("{value:#x}")])
                .collect();
            text.push_str(&table::render(&["register", "holds"], &rows));
            text
        })
    }
}

/// Bytes of `--bytes`.
fn bytes(text: &str) -> Result<usize, String> {
    let bytes = text.parse().ok().filter(|bytes| *bytes > 0);
    bytes.ok_or_else(|| "a message has at least one byte; write a whole number".to_owned())
}

/// The register and number of `PIPE.REGISTER=NUMBER`.
fn exported(list: &List, setting: &str) -> Result<(usize, u64), Failure> {
    let usage = |hint: String| {
        Failure::new(
            Exit::Usage,
            format!("`{setting}` is not PIPE.REGISTER=NUMBER"),
        )
        .hint(hint)
    };
    let (name, value) = setting
        .split_once('=')
        .ok_or_else(|| usage("for example `cksum16.sum=0x1234`".to_owned()))?;
    let register = list.register(name).ok_or_else(|| {
        let names = list.register_names().join("`, `");
        usage(format!("the list has the registers `{names}`"))
    })?;
    let number = match value.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => value.parse(),
    };
    let number = number.map_err(|_| {
        usage(format!(
            "a register is a number from 0 to {}, decimal, or hexadecimal with `0x`",
            u64::MAX
        ))
    })?;
    Ok((register, number))
}
