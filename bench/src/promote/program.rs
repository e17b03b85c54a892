//! One program in all its forms, and how each is timed.

use std::path::Path;

use anyhow::{Context, Result};
use ashway_abi::Budget;
use ashway_codegen::normalise::{Limits, Module, normalise};
use ashway_codegen::promote::Checks;
use ashway_trial::{EMPTY, Engine, Loaded, MemoryChoice, Setup, Trial};
use serde_json::{Value, json};

use super::native::Native;
use crate::programs;

/// A form of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Case {
    /// Promoted.
    Kernel,
    /// In Wasmtime.
    User,
    /// As native code, without any checks.
    Native,
    /// Promoted without bounds checks, for comparison only.
    Unbounded,
    /// Promoted without fuel, for comparison only.
    Unfuelled,
    /// Promoted over a mappable array: the memory's base is added, and the address
    /// masked, by instructions. In an arena the JIT folds the base into the access
    /// (ASHs, III.B: pre-bound translation).
    Unfolded,
}

impl Case {
    pub(super) const ALL: [Self; 6] = [
        Self::Kernel,
        Self::User,
        Self::Native,
        Self::Unbounded,
        Self::Unfuelled,
        Self::Unfolded,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::User => "user",
            Self::Native => "native",
            Self::Unbounded => "kernel_without_bounds",
            Self::Unfuelled => "kernel_without_fuel",
            Self::Unfolded => "kernel_with_added_base",
        }
    }
}

/// Enough for every program, looked at as often as in a node.
const BUDGET: Budget = Budget {
    fuel: 100_000_000,
    slice: 4_096,
    ns: 1_000_000_000,
};

/// Messages that are timed: the last ones.
const TIMED: usize = 8;

/// Time for one figure of one message, in ns.
const ABOUT_NS: f64 = 20_000_000.0;

/// A program and its messages.
pub(super) struct Program {
    pub(super) name: String,
    module: Module<'static>,
    native: Option<Native>,
    messages: Vec<Vec<u8>>,
}

impl Program {
    /// A built program.
    pub(super) fn read(folder: &Path, name: &str) -> Result<Self> {
        let file = folder.join(name).with_extension("wasm");
        let wasm = std::fs::read(&file).with_context(|| {
            format!(
                "cannot read `{}`; build it with `cargo xtask programs`",
                file.display()
            )
        })?;
        Self::new(
            name,
            wasm,
            Native::find(folder, name),
            programs::inputs(name, 1, 200),
        )
    }

    /// A handler that does nothing, which has no native form.
    pub(super) fn nothing() -> Result<Self> {
        Self::new("nothing", EMPTY.to_vec(), None, vec![vec![0; 64]; TIMED])
    }

    fn new(
        name: &str,
        wasm: Vec<u8>,
        native: Option<Native>,
        messages: Vec<Vec<u8>>,
    ) -> Result<Self> {
        // The module borrows from the file; both live until the process ends.
        let module = normalise(wasm.leak(), &Limits::default())?;
        Ok(Self {
            name: name.to_owned(),
            module,
            native,
            messages,
        })
    }

    /// Every form of it, each having seen all messages once: timing repeats the
    /// last of them, which change nothing any more.
    pub(super) fn cases(&self) -> Result<Cases<'_>> {
        let trial = |engine, checks, memory| {
            let setup = Setup {
                budget: BUDGET,
                checks,
                memory,
                ..Setup::default()
            };
            let mut trial = Trial::new(&self.module, engine, &setup)?;
            for message in &self.messages {
                trial.activate("on_rx", message, 0)?;
            }
            Ok::<_, anyhow::Error>(trial)
        };
        let all = Checks::default();
        Ok(Cases {
            kernel: trial(Engine::Kernel, all, MemoryChoice::Auto)?,
            user: trial(Engine::User, all, MemoryChoice::Auto)?,
            unbounded: trial(
                Engine::Kernel,
                Checks {
                    bounds: false,
                    ..all
                },
                MemoryChoice::Auto,
            )?,
            unfuelled: trial(
                Engine::Kernel,
                Checks { fuel: false, ..all },
                MemoryChoice::Auto,
            )?,
            // Long ones have no such form.
            unfolded: trial(Engine::Kernel, all, MemoryChoice::Array).ok(),
            native: self.native.clone(),
        })
    }

    /// ns per call, on average over the timed messages; 0 without a native form.
    pub(super) fn time(&self, cases: &mut Cases<'_>, case: Case, quick: bool) -> Result<f64> {
        let timed = &self.messages[self.messages.len() - TIMED..];
        let mut sum = 0.0;
        for message in timed {
            let once = cases.time(case, message, 100)?;
            let about = ABOUT_NS / if quick { 10.0 } else { 1.0 };
            let repeat = (about / once.max(1.0)).clamp(10.0, 1_000_000.0);
            sum += cases.time(case, message, repeat as u32)?;
        }
        Ok(sum / timed.len() as f64)
    }
}

/// A program's forms, ready to run.
pub(super) struct Cases<'m> {
    kernel: Trial<'m>,
    user: Trial<'m>,
    unbounded: Trial<'m>,
    unfuelled: Trial<'m>,
    unfolded: Option<Trial<'m>>,
    native: Option<Native>,
}

impl Cases<'_> {
    fn time(&mut self, case: Case, message: &[u8], repeat: u32) -> Result<f64> {
        let trial = match case {
            Case::Kernel => &mut self.kernel,
            Case::User => &mut self.user,
            Case::Unbounded => &mut self.unbounded,
            Case::Unfuelled => &mut self.unfuelled,
            Case::Unfolded => match &mut self.unfolded {
                Some(trial) => trial,
                None => return Ok(0.0),
            },
            Case::Native => {
                let native = self.native.as_ref();
                return native.map_or(Ok(0.0), |native| native.time(message, repeat));
            }
        };
        Ok(trial.time("on_rx", message, repeat)?)
    }

    /// What promoting it took.
    pub(super) fn load(&self) -> Load {
        let loaded = self.kernel.program("on_rx").expect("it ran");
        Load::of(loaded)
    }
}

/// What promoting a program took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) insns: usize,
    pub(super) verified: u32,
    translating_ms: f64,
    checking_ms: f64,
    loading_ms: f64,
    second_try: bool,
}

impl Load {
    fn of(loaded: &Loaded) -> Self {
        let ms = |time: std::time::Duration| time.as_secs_f64() * 1e3;
        Self {
            insns: loaded.image.insns.len(),
            verified: loaded.verified_insns.unwrap_or_default(),
            translating_ms: ms(loaded.translating),
            checking_ms: ms(loaded.checking),
            loading_ms: ms(loaded.loading.unwrap_or_default()),
            second_try: loaded.second_try.is_some(),
        }
    }

    pub(super) fn total_ms(&self) -> f64 {
        self.translating_ms + self.checking_ms + self.loading_ms
    }

    pub(super) fn to_json(self) -> Value {
        json!({
            "insns": self.insns,
            "verified_insns": self.verified,
            "translate_ms": self.translating_ms,
            "check_ms": self.checking_ms,
            "kernel_ms": self.loading_ms,
            "second_try": self.second_try,
        })
    }
}
