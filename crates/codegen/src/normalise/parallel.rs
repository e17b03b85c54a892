//! A module that runs on several CPUs at once, over one memory (`instances = "parallel"`).
//!
//! Its memory is everybody's, and accesses to it race as those of threads do: what several CPUs
//! change is changed by atomic operators, so a file that was not built for these is refused. What
//! cannot be everybody's is the stack that compilers keep in memory: `__stack_pointer` is the one
//! mutable global of such a module, and means another place on each CPU. The stacks lie behind
//! the memory that the author declared, one for each CPU and the last for the worker, and each
//! activation begins at the top of its own. One that would reach below the end of its stack is stopped
//! where it sets the global, since there lies another CPU's. In the kernel tier the word is in the context, in the
//! user tier in the state region, where the worker alone uses it.

use super::error::NormaliseError;
use super::ir::{FileOffset, Global, Module, OpKind};
use ashway_abi::memory::WASM_PAGE;
use std::ops::Range;
use wasmparser::{BinaryReader, CustomSectionReader, Operator, ValType};

/// What compilers call the global that says how far the stack reaches.
pub(super) const STACK_POINTER: &str = "__stack_pointer";

/// What the linker calls the address where the stack ends, if it is told to export it.
const STACK_LOW: &str = "__stack_low";

/// The section in which compilers say what a module may use.
pub(super) const TARGET_FEATURES: &str = "target_features";

/// A stack's bytes where the file does not say how many it wants: the linker's own choice, and
/// no more than what lies below the first stack pointer.
const STACK_BYTES: u32 = 64 * 1024;

/// Bytes below the stack pointer that LLVM's functions use if they call no other
/// (`WebAssemblyFrameLowering::RedZoneSize`).
const RED_ZONE: u32 = 128;

/// What a file says of threads.
#[derive(Clone, Debug, Default)]
pub struct Threads {
    /// Whether its memory is shared, or its code was compiled with atomic operators.
    pub(super) built: bool,
    /// Names of globals, by their index; from the exports and the `name` section.
    pub(super) globals: Vec<(u32, String)>,
}

impl Threads {
    fn name(&self, global: u32) -> Option<&str> {
        let mut names = self.globals.iter().filter(|(index, _)| *index == global);
        let first = names.clone().next();
        let is_stack = |(_, name): &&(u32, String)| name == STACK_POINTER;
        names.find(is_stack).or(first).map(|(_, name)| &**name)
    }
}

/// Where the stacks lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stacks {
    /// Offset in the state region of the global that says how far the stack reaches.
    pub(crate) pointer: u32,
    /// Address of the lowest byte of the first one.
    first: u32,
    /// Bytes of each.
    bytes: u32,
    /// How many CPUs have one; the next is the worker's.
    cpus: u32,
}

impl Stacks {
    /// Bytes of each.
    #[must_use]
    pub const fn bytes(&self) -> u32 {
        self.bytes
    }

    /// Address behind the first one, where an activation on CPU 0 begins; that of the next CPU
    /// is [`bytes`](Self::bytes) further.
    pub(crate) const fn top(&self) -> u32 {
        self.first + self.bytes
    }

    /// How far the first one may reach: below that a function that calls no other may use
    /// [`RED_ZONE`] bytes without saying so.
    pub(crate) const fn least(&self) -> u32 {
        self.first + RED_ZONE
    }

    /// How far the worker's may reach.
    pub(crate) const fn least_of_worker(&self) -> u32 {
        self.least() + self.cpus * self.bytes
    }

    /// Where one in the user tier begins.
    pub(crate) const fn top_of_worker(&self) -> u32 {
        self.top() + self.cpus * self.bytes
    }
}

/// A module for several CPUs at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parallel {
    /// Its stacks, if it has any.
    pub stacks: Option<Stacks>,
    /// Pages of memory that the author declared; what is behind them is stacks.
    pages: u32,
}

impl Parallel {
    /// The bytes of its memory that are stacks: no two activations leave the same there.
    #[must_use]
    pub fn private(&self, module: &Module<'_>) -> Range<usize> {
        let bytes = |pages: u32| pages as usize * WASM_PAGE;
        bytes(self.pages)..bytes(module.maximum_pages)
    }
}

/// Why a module cannot run on several CPUs at once. The party to blame is the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParallelError {
    /// It has no atomic operators, and says of none.
    #[error("it was not built for several CPUs at once: it has no atomic operators")]
    NotBuilt,
    /// A mutable global that is not the stack pointer.
    #[error("all CPUs would write its mutable global {global}, without atomic operators")]
    Global {
        /// Its name, or its number.
        global: String,
    },
    /// Its memory grows.
    #[error("it uses `memory.grow`, and its stacks lie behind its memory")]
    Grows {
        /// Where.
        at: FileOffset,
    },
    /// Its pipes have registers.
    #[error("its list of pipes `{list}` has registers, which all CPUs would write")]
    Pipes {
        /// The list.
        list: String,
    },
    /// There is no room for the stacks.
    #[error("{cpus} CPUs and the worker have a stack of {bytes} bytes each, which is too much")]
    Stacks {
        /// CPUs.
        cpus: u32,
        /// Bytes of each stack.
        bytes: u32,
    },
}

impl ParallelError {
    /// Where in the file, if it is one place.
    #[must_use]
    pub const fn place(&self) -> Option<FileOffset> {
        match self {
            Self::Grows { at } => Some(*at),
            _ => None,
        }
    }

    /// What to do about it.
    #[must_use]
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::NotBuilt => {
                "build it with `-matomics -mbulk-memory` (Rust: `-C target-feature=+atomics`) and \
                 change what all CPUs share by `__atomic_*`; or use `instances = \"per-cpu\"`"
            }
            Self::Global { .. } => {
                "keep it in memory, and change it by atomic operators; of mutable globals \
                 `__stack_pointer` alone can be there, known by its export \
                 (`-Wl,--export=__stack_pointer`) or the section `name` (no `--strip-all`)"
            }
            Self::Grows { .. } => {
                "declare as much memory as it wants, and link no allocator that asks for more"
            }
            Self::Pipes { .. } => {
                "read the message by `msg_read`, or use `instances = \"per-cpu\"`"
            }
            Self::Stacks { .. } => {
                "export `__stack_low` and link with a smaller stack (`-Wl,-z,stack-size=4096`)"
            }
        }
    }
}

impl Module<'_> {
    /// The global that says how far the stack reaches which compilers keep in memory: its offset in
    /// the state region, and its first value. A function takes its frame from it, and one that is
    /// stopped does not give that back: whoever stops it does. `None` if the file does not name it.
    #[must_use]
    pub fn stack_top(&self) -> Option<(u32, u32)> {
        let mut globals = self.globals.iter().zip(0..);
        globals.find_map(|(global, index)| match global {
            Global::State {
                offset,
                ty: ValType::I32,
                initial,
            } if self.threads.name(index) == Some(STACK_POINTER) => {
                Some((*offset, *initial as u32))
            }
            _ => None,
        })
    }

    /// Makes it one that runs on so many CPUs at once, and in the user tier beside them: each has
    /// a stack of its own behind the author's memory. Allocates nothing but for errors; looks
    /// at every operator once.
    ///
    /// # Errors
    ///
    /// [`ParallelError`]; the module is then of no use.
    pub fn make_parallel(&mut self, cpus: u32) -> Result<(), ParallelError> {
        let mut built = self.threads.built;
        for op in self.functions.iter().flat_map(|function| &function.code) {
            match &op.kind {
                OpKind::Wasm(Operator::MemoryGrow { .. }) => {
                    return Err(ParallelError::Grows { at: op.at });
                }
                OpKind::Wasm(operator) => built |= crate::promote::is_atomic(operator),
                _ => {}
            }
        }
        if !built {
            return Err(ParallelError::NotBuilt);
        }
        if let Some(list) = self
            .pipes
            .lists
            .first()
            .filter(|_| self.pipes.registers > 0)
        {
            let list = list.text.clone();
            return Err(ParallelError::Pipes { list });
        }
        let pages = self.maximum_pages;
        let stacks = self.place_stacks(cpus)?;
        self.parallel = Some(Parallel { stacks, pages });
        // Loads behind the initial size find zeros, as those of a memory that has grown.
        let known = self.initial_pages as i32;
        let bodies = self.functions.iter_mut();
        for op in bodies.flat_map(|function| &mut function.code) {
            if matches!(op.kind, OpKind::Wasm(Operator::MemorySize { .. })) {
                op.kind = OpKind::Wasm(Operator::I32Const { value: known });
            }
        }
        let end = stacks.map_or(0, |stacks| stacks.top_of_worker() as usize);
        let end = end.max(pages as usize * WASM_PAGE).div_ceil(WASM_PAGE);
        self.maximum_pages = end as u32;
        self.initial_pages = self.maximum_pages;
        Ok(())
    }

    /// Gives each CPU and the worker a stack, if the module has one.
    fn place_stacks(&mut self, cpus: u32) -> Result<Option<Stacks>, ParallelError> {
        let low = self.symbols.iter().find(|(name, _)| name == STACK_LOW);
        let low = low.map(|(_, at)| *at);
        let first = u64::from(self.maximum_pages) * WASM_PAGE as u64;
        let mut found = None;
        for (global, index) in self.globals.iter_mut().zip(0..) {
            let Global::State {
                offset,
                ty,
                initial,
            } = global
            else {
                continue;
            };
            let name = self.threads.name(index);
            let is_stack = name == Some(STACK_POINTER) && *ty == ValType::I32;
            if !is_stack || found.is_some() {
                let global = name.map_or_else(|| index.to_string(), |name| format!("`{name}`"));
                return Err(ParallelError::Global { global });
            }
            let from = *initial as u32;
            let bytes = low
                .and_then(|low| from.checked_sub(low))
                .unwrap_or_else(|| from.min(STACK_BYTES));
            let bytes = bytes.max(2 * RED_ZONE).next_multiple_of(16);
            let end = first + u64::from(bytes) * (u64::from(cpus) + 1);
            if end > MOST_BYTES {
                return Err(ParallelError::Stacks { cpus, bytes });
            }
            let stacks = Stacks {
                pointer: *offset,
                first: first as u32,
                bytes,
                cpus,
            };
            *initial = stacks.top_of_worker().into();
            found = Some(stacks);
        }
        Ok(found)
    }
}

/// Memory and stacks together: half of what programs reach.
const MOST_BYTES: u64 = 1 << 30;

/// Whether a section says that the code may use atomic operators.
pub(super) fn has_atomics(section: &CustomSectionReader<'_>) -> Result<bool, NormaliseError> {
    let mut reader = BinaryReader::new(section.data(), section.data_offset());
    let mut found = false;
    for _ in 0..reader.read_var_u32()? {
        let used = reader.read_u8()? == b'+';
        found |= reader.read_string()? == "atomics" && used;
    }
    Ok(found)
}
