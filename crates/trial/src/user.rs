//! The user tier: Wasmtime over memory that is nobody else's.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use ashway_codegen::normalise::{self, Module};
use ashway_codegen::stub;
use ashway_handler::{Budget, Engine, EngineError, Function, Instance, InstantiateError, Region};
use ashway_memory::Memory;

use crate::{NotRun, activation::Activation};

/// An instance and its memory.
#[derive(Debug)]
pub(crate) struct User {
    instance: Instance,
    memory: Arc<Memory>,
    budget: Budget,
}

impl User {
    pub(crate) fn new(module: &Module<'_>, budget: ashway_abi::Budget) -> Result<Self, NotRun> {
        let layout = stub::layout(module);
        let bytes = layout.total_bytes();
        let memory = Memory::anonymous(bytes).map_err(|errno| NotRun::Memory {
            what: "memory",
            bytes,
            errno,
        })?;
        let memory = Arc::new(memory);
        let region: Arc<dyn Region> = Arc::<Memory>::clone(&memory);
        let encoded = normalise::encode(module);
        let instance = Instance::new(&engine()?, module, &encoded, &region, layout);
        let instance = instance.map_err(|error| match error {
            InstantiateError::Start(stopped) => NotRun::Start(stopped),
            other => NotRun::Instantiate(other),
        })?;
        Ok(Self {
            instance,
            memory,
            budget: Budget {
                fuel: budget.fuel,
                ns: budget.ns,
            },
        })
    }

    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    pub(crate) fn function(&self, name: &str) -> Option<Function> {
        self.instance.function(name)
    }

    pub(crate) fn activate(
        &mut self,
        function: Function,
        front: &[u8],
        message: &[u8],
        channel: u32,
    ) -> Activation {
        let mut message = message.to_vec();
        let budget = self.budget;
        let outcome = self
            .instance
            .activate_behind(function, front, &mut message, channel, budget);
        Activation {
            result: outcome.verdict.map(|verdict| verdict as u32),
            message,
            dirty: outcome.dirty,
            fuel_left: outcome.fuel_left,
        }
    }

    /// The lines of the last activation, and how many were too many.
    pub(crate) fn take_log(&mut self) -> (Vec<Vec<u8>>, u32) {
        let mut lines = Vec::new();
        let too_many = self.instance.take_log(|line| lines.push(line.to_vec()));
        (lines, too_many)
    }

    pub(crate) fn time(&mut self, function: Function, message: &[u8], repeat: u32) -> f64 {
        let mut message = message.to_vec();
        let start = Instant::now();
        for _ in 0..repeat {
            // Nothing of it can be left out: it has effects on the memory.
            let _ = self
                .instance
                .activate(function, &mut message, 0, self.budget);
        }
        start.elapsed().as_nanos() as f64 / f64::from(repeat)
    }
}

/// The engine of all trials of this process.
fn engine() -> Result<Engine, EngineError> {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    if let Some(engine) = ENGINE.get() {
        return Ok(engine.clone());
    }
    // Two at the same time: the second one's is thrown away.
    let made = Engine::new()?;
    Ok(ENGINE.get_or_init(|| made).clone())
}
