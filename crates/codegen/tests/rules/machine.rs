//! Runs a translation in the interpreter as often as a test likes.

use ashway_abi::Cause;
use ashway_abi::memory::STATE_GUEST_PAGES;
use ashway_abi::{Budget, MemoryKind};
use ashway_check::bpf::Image;
use ashway_check::bpf::interp::Machine;
use ashway_codegen::normalise::{Limits, normalise};
use ashway_codegen::promote::Shape;
use ashway_codegen::stub;

/// Fuel and time are no concern here.
const ENDLESS: Budget = Budget {
    fuel: 1 << 40,
    slice: 1 << 30,
    ns: 1 << 60,
};

/// How a module is translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct How {
    pub(crate) memory: MemoryKind,
    pub(crate) locals_in_memory: bool,
}

impl How {
    /// Locals in registers.
    pub(crate) const REGISTERS: Self = Self {
        memory: MemoryKind::Arena,
        locals_in_memory: false,
    };
    /// Locals in frames.
    pub(crate) const FRAMES: Self = Self {
        memory: MemoryKind::Arena,
        locals_in_memory: true,
    };
    /// Array memory.
    pub(crate) const ARRAY: Self = Self {
        memory: MemoryKind::Array,
        locals_in_memory: false,
    };
}

/// A handler's program, and the machine whose memory it works in.
pub(crate) struct Handler {
    image: Image,
    machine: Machine,
    state: usize,
}

/// What a run came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) result: Result<u32, (Cause, u32)>,
    pub(crate) message: Vec<u8>,
    pub(crate) dirty: bool,
}

impl Outcome {
    /// Why it stopped, if it did.
    pub(crate) fn cause(&self) -> Option<Cause> {
        self.result.err().map(|(cause, _)| cause)
    }
}

impl Handler {
    /// Translates `on_rx` of a module in the text format.
    pub(crate) fn new(text: &str, how: How) -> Self {
        Self::of_wasm(&wat::parse_str(text).unwrap(), how)
    }

    pub(crate) fn of_wasm(wasm: &[u8], how: How) -> Self {
        let module = normalise(wasm, &Limits::default()).unwrap();
        let shape = Shape {
            module: &module,
            entry: module.exports[0].1,
            memory: how.memory,
            layout: stub::layout(&module),
            budget: ENDLESS,
            locals_in_memory: how.locals_in_memory,
            checks: ashway_codegen::promote::Checks::default(),
        };
        let (image, _) = stub::generate(&shape, 1).unwrap();
        let memory = stub::first_memory(&module);
        let mut machine = Machine::new(1, ashway_abi::trusted::bytes(1), memory.len());
        machine.array_mode = how.memory == MemoryKind::Array;
        machine.memory_mut().copy_from_slice(&memory);
        Self {
            image,
            machine,
            state: shape.layout.state_offset(),
        }
    }

    /// One activation; memory is as the one before left it.
    pub(crate) fn run(&mut self, message: &[u8]) -> Outcome {
        let code = self.machine.run(&self.image, &stub::frame(message));
        let code = code
            .unwrap_or_else(|fault| panic!("{fault}\n{}", ashway_check::bpf::print(&self.image)));
        assert_eq!(code, stub::RETURNED);
        let outcome = stub::outcome(self.machine.packet()).expect("a frame of ours");
        Outcome {
            result: outcome.result,
            message: outcome.message.to_vec(),
            dirty: outcome.dirty,
        }
    }

    /// Guest memory.
    pub(crate) fn guest(&self) -> &[u8] {
        &self.machine.memory()[..self.state]
    }

    /// Guest memory, to put operands there.
    pub(crate) fn guest_mut(&mut self) -> &mut [u8] {
        &mut self.machine.memory_mut()[..self.state]
    }

    /// Says how many pages guest memory has now, as `memory.grow` does.
    pub(crate) fn set_pages(&mut self, pages: u32) {
        let word = &mut self.machine.memory_mut()[self.state + STATE_GUEST_PAGES..][..4];
        word.copy_from_slice(&pages.to_le_bytes());
    }
}
