//! Many seeds, one after the other, and what came of them.

use super::compare::{Findings, Lane, compare};
use super::generate::{Case, generate};
use ashway_codegen::normalise::Profile;
use ashway_trial::{Engine, MemoryChoice};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// Counts over all modules of a campaign.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// The first seed; the others follow it.
    pub first: u64,
    /// Whether the kernel takes part.
    pub kernel: bool,
    /// Modules made.
    pub modules: u64,
    /// Of them, handlers with messages.
    pub handlers: u64,
    /// Of them, over an arena; the others are over an array. (The kernel runs
    /// one in four over both.)
    pub arenas: u64,
    /// Modules in which at least one call was compared.
    pub compared: u64,
    /// Modules that the normaliser refused, by reason.
    pub refused: BTreeMap<String, u64>,
    /// Functions that an engine refused, by engine and reason.
    pub unpromoted: BTreeMap<(&'static str, String), u64>,
    /// Calls, by verdict or cause. A library's function that returns has the
    /// verdict `reply`.
    pub ends: BTreeMap<&'static str, u64>,
    /// Stops of which only Wasmtime's place differs, in a way that is known
    /// ([`Findings::loose_places`]).
    pub loose_places: u64,
    /// Modules that a clock ended.
    pub timed_out: u64,
    /// Programs that the kernel loaded; at the second try.
    pub loads: (u64, u64),
    /// What differs, by seed.
    pub differences: Vec<(u64, String)>,
    /// Time spent.
    pub elapsed: Duration,
}

impl Campaign {
    /// Begins with this seed. `kernel`: whether the kernel takes part, which
    /// needs root.
    #[must_use]
    pub const fn new(first: u64, kernel: bool) -> Self {
        Self {
            first,
            kernel,
            modules: 0,
            handlers: 0,
            arenas: 0,
            compared: 0,
            refused: BTreeMap::new(),
            unpromoted: BTreeMap::new(),
            ends: BTreeMap::new(),
            loose_places: 0,
            timed_out: 0,
            loads: (0, 0),
            differences: Vec::new(),
            elapsed: Duration::ZERO,
        }
    }

    /// Makes the next module, runs it in all engines, and counts what came of
    /// it. A panic is a difference as well.
    pub fn step(&mut self) -> Option<Case> {
        let start = Instant::now();
        let seed = self.first.wrapping_add(self.modules);
        self.modules += 1;
        let kernel = self.kernel;
        let run = catch_unwind(AssertUnwindSafe(|| {
            let case = generate(seed).map_err(|error| format!("{error:#}"))?;
            let findings = compare(&case, &Lane::of_case(&case, kernel));
            Ok::<_, String>((case, findings))
        }));
        self.elapsed += start.elapsed();
        match run {
            Ok(Ok((case, findings))) => {
                self.count(&case, findings);
                Some(case)
            }
            Ok(Err(why)) => {
                self.differences.push((seed, why));
                None
            }
            Err(panic) => {
                let words = panic.downcast_ref::<String>().map(String::as_str);
                let words = words.or_else(|| panic.downcast_ref::<&str>().copied());
                let words = words.unwrap_or("without words");
                self.differences.push((seed, format!("panic: {words}")));
                generate(seed).ok()
            }
        }
    }

    fn count(&mut self, case: &Case, findings: Findings) {
        self.handlers += u64::from(case.profile == Profile::Handler);
        self.arenas += u64::from(case.memory == MemoryChoice::Arena);
        self.compared += u64::from(!findings.ends.is_empty());
        self.loose_places += u64::from(findings.loose_places);
        self.timed_out += u64::from(findings.timed_out);
        self.loads.0 += u64::from(findings.loads.0);
        self.loads.1 += u64::from(findings.loads.1);
        if let Some(reason) = findings.refused {
            *self.refused.entry(reason).or_default() += 1;
        }
        for (engine, reason) in findings.unpromoted {
            *self.unpromoted.entry((engine.name(), reason)).or_default() += 1;
        }
        for end in findings.ends {
            let name = match end {
                Ok(number) => ashway_abi::Verdict::from_number(number)
                    .map_or("no verdict", ashway_abi::Verdict::name),
                Err(cause) => cause.name(),
            };
            *self.ends.entry(name).or_default() += 1;
        }
        let differences = findings.differences.into_iter();
        self.differences
            .extend(differences.map(|what| (case.seed, what)));
    }

    /// Modules per second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.modules as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    fn engines(&self) -> Vec<&'static str> {
        let engines = Engine::ALL.into_iter();
        engines
            .filter(|engine| self.kernel || *engine != Engine::Kernel)
            .map(Engine::name)
            .collect()
    }

    /// One document.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let unpromoted = self.unpromoted.iter().map(|((engine, reason), count)| {
            json!({ "engine": engine, "reason": reason, "functions": count })
        });
        let differences = self.differences.iter();
        let differences = differences.map(|(seed, what)| json!({ "seed": seed, "what": what }));
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "seed": self.first,
            "count": self.modules,
            "engines": self.engines(),
            "handlers": self.handlers,
            "arenas": self.arenas,
            "compared": self.compared,
            "refused": self.refused,
            "unpromoted": unpromoted.collect::<Vec<_>>(),
            "ends": self.ends,
            "loose_places": self.loose_places,
            "timed_out": self.timed_out,
            "kernel_loads": self.loads.0,
            "kernel_loads_at_second_try": self.loads.1,
            "differences": differences.collect::<Vec<_>>(),
            "seconds": self.elapsed.as_secs_f64(),
        })
    }
}

impl fmt::Display for Campaign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = self.first.wrapping_add(self.modules.saturating_sub(1));
        writeln!(
            f,
            "seeds {} to {last}, engines {}",
            self.first,
            self.engines().join(", ")
        )?;
        writeln!(
            f,
            "{} modules ({} handlers, {} over an arena), {} compared, {:.0} s, {:.1}/s",
            self.modules,
            self.handlers,
            self.arenas,
            self.compared,
            self.elapsed.as_secs_f64(),
            self.rate(),
        )?;
        for (reason, count) in &self.refused {
            writeln!(f, "refused by the normaliser: {count:>8}  {reason}")?;
        }
        for ((engine, reason), count) in &self.unpromoted {
            writeln!(f, "functions refused ({engine}): {count:>6}  {reason}")?;
        }
        for (name, count) in &self.ends {
            writeln!(f, "calls that ended: {count:>9}  {name}")?;
        }
        writeln!(
            f,
            "stops of which only Wasmtime's place differs: {}",
            self.loose_places
        )?;
        writeln!(
            f,
            "ended by a clock and not compared further: {} modules",
            self.timed_out
        )?;
        writeln!(
            f,
            "loaded by the kernel: {} programs, {} of them at the second try",
            self.loads.0, self.loads.1
        )?;
        for (seed, what) in &self.differences {
            writeln!(f, "different: seed {seed}: {what}")?;
        }
        writeln!(f, "{} differences", self.differences.len())
    }
}
