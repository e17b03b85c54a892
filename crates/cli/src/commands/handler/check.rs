//! `ashway handler check`: what each tier says about a file.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path as FsPath, PathBuf};
use std::time::{Duration, Instant};

use ashway_abi::context::CALL_SLOTS;
use ashway_codegen::normalise::{Module, ParallelError, Profile, static_bound};
use ashway_codegen::promote::{self, PromoteError};
use ashway_kernel::{LoadError, verifier_log};
use ashway_trial::{Blame, Engine, Loaded, NotRun, Setup, Trial};
use clap::Args;
use serde_json::{Value, json};

use super::file::{self, count};
use super::tier;
use crate::face::{Face, clean};
use crate::failure::{Exit, Failure};
use crate::table;

/// Say what each tier makes of a handler
///
/// The user tier compiles it with Wasmtime. The kernel tier translates it to
/// eBPF, checks that, and, with the privileges for it, has the kernel verify it. A
/// handler that the kernel tier refuses runs in the user tier; one that no tier
/// takes is refused (exit code 3).
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ashway handler check counter.wasm
  ashway handler check counter.wasm -j
  ashway handler check big.wasm --verifier-log | less

JSON (-j):
  { \"handler\": { \"name\", \"file\", \"bytes\", \"functions\", \"initial_pages\",
    \"maximum_pages\", \"state_bytes\", \"exports\": [], \"symbols\": [], \"imports\": [],
    \"grants\": [], \"pipes\": [ { \"list\", \"registers\": [ { \"number\", \"name\" } ] } ],
    \"recursion\": false, \"call_stack_slots\": 4096, \"source_lines\": true,
    \"parallel\": { \"takes\": true, \"stack_bytes\": 16384 or null, \"because\", \"hint\" },
    \"tiers\": {
      \"user\": { \"takes\": true, \"because\": null },
      \"kernel\": { \"verified\": true, \"why_not_verified\": null, \"because\": null,
        \"handlers\": [
        { \"name\": \"on_rx\", \"takes\": true, \"insns\": 120, \"verified_insns\": 131,
          \"bound\": 57 or null (fuel), \"took_ms\": 1, \"functions\": 1, \"frame_bytes\": 0,
          \"memory\": \"arena\", \"locals_in_memory\": false, \"second_try\": null,
          \"translating_us\": 40.1, \"checking_us\": 12.0, \"loading_us\": 250.7,
          \"refused\": null or { \"because\", \"file\", \"line\", \"offset\", \"hint\" } } ] } } } }
  `takes` of a kernel handler is null if the kernel was not asked.")]
pub(crate) struct Check {
    /// The handler (Wasm)
    file: PathBuf,
    /// Show all that the kernel's verifier says, with source lines
    #[arg(long)]
    verifier_log: bool,
}

impl Check {
    pub(crate) fn run(self, face: Face) -> Result<(), Failure> {
        let bytes = file::read(&self.file)?;
        let module = file::module(&self.file, &bytes, Profile::Handler)?;
        let report = Report::new(&self.file, bytes.len(), &module, self.verifier_log)?;
        let mut document = json!({ "handler": report.json() });
        if self.verifier_log {
            document["verifier_log"] = json!(report.log);
        }
        face.show(&document, || report.log.clone() + &report.text())?;
        Ok(())
    }
}

/// What is known of a handler.
pub(in crate::commands) struct Report<'m> {
    name: String,
    file: String,
    bytes: usize,
    module: &'m Module<'m>,
    /// What the user tier says.
    user: Result<(), NotRun>,
    /// Whether it can run on several CPUs at once, and with how large a stack on each.
    parallel: Result<Option<u32>, ParallelError>,
    /// Why the kernel's verifier was not asked.
    not_asked: Option<String>,
    /// Why no handler at all runs in the kernel tier.
    kernel: Option<NotRun>,
    /// What it says of each.
    handlers: Vec<Promoted<'m>>,
    /// The verifier's words, if they were asked for.
    log: String,
}

/// Whether a module can run on several CPUs at once, and the bytes of its stack on each.
fn parallel(module: &Module<'_>) -> Result<Option<u32>, ParallelError> {
    let mut module = module.clone();
    module.make_parallel(1)?;
    let stacks = module.parallel.and_then(|parallel| parallel.stacks);
    Ok(stacks.map(|stacks| stacks.bytes()))
}

/// A handler in the kernel tier.
struct Promoted<'m> {
    name: &'m str,
    /// Fuel that one activation can need at most, if that is known.
    bound: Option<u64>,
    /// How long all of it took, a first try that was refused included.
    took: Duration,
    end: Result<Loaded, NotRun>,
}

impl<'m> Report<'m> {
    /// Why it cannot run on several CPUs at once.
    pub(crate) fn not_parallel(&self) -> Option<&ParallelError> {
        self.parallel.as_ref().err()
    }

    /// Asks both tiers. Takes the time of a compilation in each, and leaves
    /// nothing behind.
    ///
    /// # Errors
    ///
    /// [`Exit::HandlerRefused`] if neither takes it.
    pub(in crate::commands) fn new(
        file: &FsPath,
        bytes: usize,
        module: &'m Module<'m>,
        log: bool,
    ) -> Result<Self, Failure> {
        let setup = Setup::default();
        let mut this = Self {
            name: file
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
            file: file.display().to_string(),
            bytes,
            module,
            user: Trial::new(module, Engine::User, &setup).map(|_| ()),
            parallel: parallel(module),
            not_asked: None,
            kernel: None,
            handlers: Vec::new(),
            log: String::new(),
        };
        let mut kernel = Trial::new(module, Engine::Kernel, &setup);
        if let Err(error) = &kernel
            && matches!(error.blame(), Blame::Privilege | Blame::Host)
        {
            this.not_asked = Some(match tier::hint(error) {
                Some(hint) if error.blame() == Blame::Privilege => hint,
                _ => error.to_string(),
            });
            kernel = Trial::new(module, Engine::Interpreter, &setup);
        }
        match kernel {
            Ok(trial) => this.promote(trial, log),
            Err(error) => this.kernel = Some(error),
        }
        let promoted = this.handlers.iter().any(|handler| handler.end.is_ok());
        if let Err(error) = &this.user
            && !promoted
        {
            let mut failure = tier::failure(module, Engine::User, error);
            failure.exit = Exit::HandlerRefused;
            failure.error = format!("no tier takes `{}`", this.file);
            failure.file = Some(this.file);
            return Err(failure);
        }
        Ok(this)
    }

    /// Has every handler translated, checked and, in the kernel, verified.
    fn promote(&mut self, mut trial: Trial<'m>, log: bool) {
        for (name, entry) in self.module.handlers() {
            let begin = Instant::now();
            let prepared = trial.prepare(name);
            let took = begin.elapsed();
            if log {
                self.log += &match &prepared {
                    Ok(()) => trial.verifier_log(name).ok().flatten().unwrap_or_default(),
                    Err(error) => error.verifier_log().unwrap_or_default().to_owned(),
                };
            }
            let loaded = || trial.program(name).cloned().expect("it is prepared");
            self.handlers.push(Promoted {
                name,
                bound: static_bound(self.module, entry),
                took,
                end: prepared.map(|()| loaded()),
            });
        }
    }

    /// Host calls that the handler imports.
    fn imports(&self) -> Vec<&'static str> {
        let calls = self.module.host_calls.iter().map(|call| call.name());
        calls.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Its lists of pipes, and the numbers and names of their registers.
    fn pipes(&self) -> Vec<Value> {
        let lists = self.module.pipes.lists.iter();
        let lists = lists.map(|one| {
            let names = one.list.register_names().into_iter().zip(one.first..);
            let registers = names.map(|(name, number)| json!({ "number": number, "name": name }));
            json!({ "list": one.text, "registers": registers.collect::<Vec<_>>() })
        });
        lists.collect()
    }

    /// What has to be granted before a node loads it, in the words of `allow`.
    fn grants(&self) -> Vec<&'static str> {
        let needed = self.module.not_granted(&[]).map(|(_, grant)| grant.word());
        needed.collect::<BTreeSet<_>>().into_iter().collect()
    }

    pub(in crate::commands) fn json(&self) -> Value {
        let module = self.module;
        let names = |list: &[(String, u32)]| {
            list.iter()
                .map(|(name, _)| name.clone())
                .collect::<Vec<_>>()
        };
        json!({
            "name": self.name,
            "file": self.file,
            "bytes": self.bytes,
            "functions": module.functions.len(),
            "initial_pages": module.initial_pages,
            "maximum_pages": module.maximum_pages,
            "state_bytes": module.state_bytes,
            "exports": names(&module.exports),
            "symbols": names(&module.symbols),
            "imports": self.imports(),
            "grants": self.grants(),
            "pipes": self.pipes(),
            "recursion": promote::recurses(module),
            "call_stack_slots": CALL_SLOTS,
            "source_lines": !module.lines.is_empty(),
            "parallel": {
                "takes": self.parallel.is_ok(),
                "stack_bytes": self.parallel.as_ref().ok(),
                "because": self.parallel.as_ref().err().map(ToString::to_string),
                "hint": self.parallel.as_ref().err().map(ParallelError::hint),
            },
            "tiers": {
                "user": {
                    "takes": self.user.is_ok(),
                    "because": self.user.as_ref().err().map(|e| tier::because(module, e)),
                },
                "kernel": {
                    "verified": self.not_asked.is_none(),
                    "why_not_verified": self.not_asked,
                    "because": self.kernel.as_ref().map(|e| tier::because(module, e)),
                    "handlers": self.handlers.iter().map(|h| self.promoted_json(h)).collect::<Vec<_>>(),
                },
            },
        })
    }

    fn promoted_json(&self, handler: &Promoted<'_>) -> Value {
        let took = handler.took.as_millis() as u64;
        let mut value = json!({ "name": handler.name, "bound": handler.bound, "took_ms": took });
        match &handler.end {
            Ok(loaded) => {
                value["takes"] = json!(self.not_asked.is_none().then_some(true));
                value["insns"] = json!(loaded.image.insns.len());
                value["verified_insns"] = json!(loaded.verified_insns);
                value["functions"] = json!(loaded.summary.functions);
                value["frame_bytes"] = json!(loaded.summary.frame_bytes);
                value["memory"] = json!(memory_name(loaded));
                value["locals_in_memory"] = json!(loaded.locals_in_memory);
                value["second_try"] = json!(loaded.second_try);
                let us = |time: Duration| time.as_nanos() as f64 / 1000.0;
                value["translating_us"] = json!(us(loaded.translating));
                value["checking_us"] = json!(us(loaded.checking));
                value["loading_us"] = json!(loaded.loading.map(us));
                value["refused"] = Value::Null;
            }
            Err(error) => {
                let place = place(error);
                value["takes"] = json!(false);
                value["refused"] = json!({
                    "because": tier::because(self.module, error),
                    "file": place.as_ref().and_then(|p| p.1.as_ref()).map(|(file, _)| file),
                    "line": place.as_ref().and_then(|p| p.1.as_ref()).map(|(_, line)| line),
                    "offset": place.as_ref().and_then(|p| p.0),
                    "hint": tier::hint(error),
                });
            }
        }
        value
    }

    pub(in crate::commands) fn text(&self) -> String {
        let module = self.module;
        let mut text = format!(
            "{}: {} bytes, {}{}\n",
            self.file,
            self.bytes,
            count(module.functions.len(), "function"),
            if module.lines.is_empty() {
                "; no source lines (compile with -g)"
            } else {
                ", with source lines"
            }
        );
        let list = |names: Vec<&str>| match names.join(", ") {
            names if names.is_empty() => "nothing".to_owned(),
            names => clean(&names),
        };
        let symbols = module
            .symbols
            .iter()
            .map(|(name, _)| name.as_str())
            .collect();
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "  memory     {} to {} pages of 64 KiB, {} bytes of state; shares {}",
            module.initial_pages,
            module.maximum_pages,
            module.state_bytes,
            list(symbols),
        );
        let _ = writeln!(text, "  imports    {}", list(self.imports()));
        if !self.grants().is_empty() {
            let _ = writeln!(text, "  needs      allow = {:?}", self.grants());
        }
        for (number, one) in module.pipes.lists.iter().enumerate() {
            let names = one.list.register_names().into_iter().zip(one.first..);
            let registers: Vec<_> = names.map(|(name, at)| format!("{at} {name}")).collect();
            let registers = match registers.join(", ") {
                none if none.is_empty() => String::new(),
                some => format!("   registers {}", clean(&some)),
            };
            let title = if number == 0 { "pipes" } else { "" };
            let _ = writeln!(
                text,
                "  {title:<9}  {number}: {}{registers}",
                clean(&one.text)
            );
        }
        let recursion = if promote::recurses(module) {
            format!("yes; its frames have {CALL_SLOTS} slots of 8 bytes in either tier")
        } else {
            "no".to_owned()
        };
        let _ = writeln!(text, "  recursion  {recursion}");
        let parallel = match &self.parallel {
            Ok(None) => "can be".to_owned(),
            Ok(Some(bytes)) => format!("can be, with a stack of {bytes} bytes for each CPU"),
            Err(error) => format!("cannot be: {}", clean(&error.to_string())),
        };
        let _ = writeln!(text, "  parallel   {parallel}");
        let user = match &self.user {
            Ok(()) => "takes it".to_owned(),
            Err(error) => format!("refuses it: {}", clean(&tier::because(module, error))),
        };
        let _ = writeln!(text, "\nuser tier: {user}");

        if let Some(error) = &self.kernel {
            let because = clean(&tier::because(module, error));
            let _ = writeln!(text, "kernel tier: refuses it: {because}");
            return text;
        }
        let taken = self.handlers.iter().filter(|h| h.end.is_ok()).count();
        let verdict = match (taken, &self.not_asked) {
            (0, _) => "refuses it".to_owned(),
            (n, None) if n == self.handlers.len() => "takes it, verified by this kernel".to_owned(),
            (n, None) => format!("takes {n} of {} handlers", self.handlers.len()),
            (_, Some(_)) => "translated and checked, but this kernel was not asked".to_owned(),
        };
        let _ = writeln!(text, "kernel tier: {verdict}");
        if let Some(why) = &self.not_asked {
            let _ = writeln!(text, "  {why}");
        }
        let rows: Vec<_> = self.handlers.iter().filter_map(row).collect();
        text += &table::render(
            &[
                "HANDLER",
                "INSNS",
                "VERIFIED",
                "BOUND",
                "FUNCTIONS",
                "FRAMES",
                "MEMORY",
            ],
            &rows,
        );
        for handler in &self.handlers {
            if handler.took >= SLOW {
                let _ = writeln!(
                    text,
                    "  {}: it took {:.1} s to load; a node loads and promotes nothing else \
                     meanwhile",
                    handler.name,
                    handler.took.as_secs_f64()
                );
            }
            match &handler.end {
                Ok(Loaded {
                    second_try: Some(reason),
                    ..
                }) => {
                    let _ = writeln!(
                        text,
                        "  {}: with locals in memory, because with locals in registers: {}",
                        handler.name,
                        clean(reason)
                    );
                }
                Ok(_) => {}
                Err(error) => {
                    let because = clean(&tier::because(module, error));
                    let _ = writeln!(text, "  {} is refused: {because}", handler.name);
                    if let Some(hint) = tier::hint(error) {
                        let _ = writeln!(text, "    hint: {hint}");
                    }
                }
            }
        }
        text
    }
}

/// What takes so long is worth a word, since it holds up a node's other handlers.
const SLOW: Duration = Duration::from_millis(500);

/// The place that a refusal names: an offset, a line.
type At = (Option<u32>, Option<(String, u32)>);

fn place(error: &NotRun) -> Option<At> {
    match error {
        NotRun::Promote(error) => {
            let place: Option<_> = PromoteError::place(error);
            place.map(|place| (Some(place.at), place.line.clone()))
        }
        NotRun::Kernel(LoadError::Rejected { log, .. }) => {
            let (text, _) = verifier_log::summary(log).source?.split_once(" @ ")?;
            let (file, line) = text.rsplit_once(':')?;
            Some((None, Some((file.to_owned(), line.parse().ok()?))))
        }
        _ => None,
    }
}

fn row(handler: &Promoted<'_>) -> Option<Vec<String>> {
    let loaded = handler.end.as_ref().ok()?;
    Some(vec![
        handler.name.to_owned(),
        loaded.image.insns.len().to_string(),
        loaded
            .verified_insns
            .map_or_else(|| "-".to_owned(), |n| n.to_string()),
        match handler.bound {
            Some(units) => count(units as usize, "unit"),
            None => "fuel".to_owned(),
        },
        loaded.summary.functions.to_string(),
        format!("{} bytes", loaded.summary.frame_bytes),
        memory_name(loaded).to_owned(),
    ])
}

fn memory_name(loaded: &Loaded) -> &'static str {
    match loaded.memory {
        ashway_abi::MemoryKind::Arena => "arena",
        ashway_abi::MemoryKind::Array => "array",
    }
}
