//! Our own interpreter: the same programs as in the kernel, every access
//! checked.

use std::time::Instant;

use ashway_abi::{Budget, MemoryKind};
use ashway_check::bpf::Image;
use ashway_check::bpf::interp::Machine;
use ashway_codegen::normalise::Module;
use ashway_codegen::promote::Checks;
use ashway_codegen::stub;

use crate::promoted::{Loaded, MemoryChoice, Setup, translate};
use crate::{NotRun, activation::Activation};

/// The interpreter, and with it the memory.
#[derive(Debug)]
pub(crate) struct Interpreter {
    machine: Machine,
    locals_in_memory: bool,
    checks: Checks,
}

impl Interpreter {
    pub(crate) fn new(module: &Module<'_>, setup: &Setup) -> Self {
        let first = stub::first_memory(module);
        let mut machine = Machine::new(1, ashway_abi::trusted::bytes(1), first.len());
        machine.memory_mut().copy_from_slice(&first);
        machine.array_mode = setup.memory == MemoryChoice::Array;
        // Fuel is what bounds a handler.
        machine.may_goto_limit = u64::MAX;
        machine.insn_limit = u64::MAX;
        Self {
            machine,
            locals_in_memory: setup.locals_in_memory == Some(true),
            checks: setup.checks,
        }
    }

    pub(crate) fn memory(&self) -> &[u8] {
        self.machine.memory()
    }

    pub(crate) fn memory_mut(&mut self) -> &mut [u8] {
        self.machine.memory_mut()
    }

    pub(crate) fn load(
        &self,
        module: &Module<'_>,
        entry: u32,
        budget: Budget,
    ) -> Result<Loaded, NotRun> {
        let kind = if self.machine.array_mode {
            MemoryKind::Array
        } else {
            MemoryKind::Arena
        };
        translate(
            module,
            entry,
            kind,
            budget,
            self.locals_in_memory,
            self.checks,
            1,
        )
    }

    pub(crate) fn activate(
        &mut self,
        image: &Image,
        frame: &[u8],
        message: &[u8],
        at: u32,
    ) -> Result<Activation, NotRun> {
        let code = self.machine.run(image, frame)?;
        let outcome = stub::outcome(self.machine.packet()).filter(|_| code == stub::RETURNED);
        let outcome = outcome.ok_or(NotRun::Frame)?;
        Ok(Activation::judge(outcome, message, at))
    }

    pub(crate) fn time(
        &mut self,
        image: &Image,
        message: &[u8],
        grows: u32,
        repeat: u32,
    ) -> Result<f64, NotRun> {
        let frame = stub::frame_with_room(message, grows);
        let start = Instant::now();
        for _ in 0..repeat {
            self.machine.run(image, &frame)?;
        }
        Ok(start.elapsed().as_nanos() as f64 / f64::from(repeat))
    }
}
