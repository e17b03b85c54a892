//! The normalised module: what both tiers run.
//!
//! A function body is a list of [`Op`]s: WebAssembly operators as the author
//! wrote them, and between them the few operations that the normaliser put in
//! place of something else. [`encode`](super::encode) writes it as Wasm for
//! Wasmtime; [`promote`](crate::promote) writes it as eBPF. There is no third
//! meaning: each pseudo operation's is its expansion in `encode`.

use ashway_abi::{Cause, Grant, HostCall};
use wasmparser::{FuncType, Operator, ValType};

/// A place in the author's file: a byte offset, as DWARF line tables and
/// disassemblers count it.
pub type FileOffset = u32;

/// One operation and where it comes from.
#[derive(Clone, Debug)]
pub struct Op<'a> {
    /// What to do.
    pub kind: OpKind<'a>,
    /// Offset of the author's operator in the file.
    pub at: FileOffset,
}

/// What an [`Op`] does.
#[derive(Clone, Debug)]
pub enum OpKind<'a> {
    /// An operator as written. Function indices are those of
    /// [`Module::functions`]; never `global.*` on a mutable global, never a
    /// call to an import, never an operator on references or stored tables
    /// (references are numbers), never `memory.init` and `data.drop`.
    /// `call_indirect` only through a table that has no place.
    ///
    /// An atomic access looks at the alignment of its effective address first,
    /// and stops with [`Cause::Unaligned`]; only then at the memory's end. (The
    /// threads proposal's order of the two is not observable in Wasm; this is
    /// Wasmtime's, `prepare_atomic_addr`.) One byte is always aligned.
    Wasm(Operator<'a>),
    /// Takes `cost` from the fuel; below zero stops with
    /// [`Cause::Fuel`](ashway_abi::Cause::Fuel). Stands first in each `loop`,
    /// and first in each function that can run more often than it is written.
    Charge {
        /// Fuel units.
        cost: u32,
    },
    /// Pops the length of a bulk operation's copy (i32), takes fuel for it and
    /// pushes it back.
    ChargeBulk,
    /// A host call: operands and result as in its signature.
    Host(HostCall),
    /// Pushes the mutable global at this offset of the state region.
    StateGet {
        /// Offset in the state region.
        offset: u32,
        /// Its type: `I32` or `I64`. (Floats are there by their bits.)
        ty: ValType,
    },
    /// Pops into the mutable global at this offset of the state region.
    StateSet {
        /// Offset in the state region.
        offset: u32,
        /// Its type.
        ty: ValType,
    },
    /// Stops with this cause.
    Trap(Cause),
    /// Pops an index (i32) and pushes that word. Stops if there is none.
    WordGet(Words),
    /// Pops a value, then an index (i32), and stores the one at the other, as
    /// [`OpKind::WordGet`].
    WordSet(Words),
    /// Pops a length, an address in memory and, but for
    /// [`HostCall::PipeInPlace`], an offset in the message (all i32), and runs a list
    /// of pipes. Stops with [`Cause::MessageBounds`] or, after that is known to be
    /// good, with [`Cause::MemoryBounds`] if a side lies outside, and does nothing
    /// then.
    Pipe {
        /// Which of the calls that run a list.
        call: HostCall,
        /// Which of [`Module::pipes`].
        list: u32,
    },
    /// Pops a function's number plus 1 (i32, 0 is null), then the arguments,
    /// and calls it. Stops with [`Cause::IndirectCall`] if there is no such
    /// function, it has another type (by [`Module::canonical`]), or is not
    /// among [`Module::referenced`].
    CallNumber {
        /// The type it must have.
        type_index: u32,
    },
    /// Pops a length, an offset in the state region and a destination in memory
    /// (all i32), and copies. The source has been checked; stops with
    /// [`Cause::MemoryBounds`] if the destination does not fit, and does
    /// nothing then.
    StateCopy,
    /// Takes room for the calling function's frame on the call stack; stops
    /// with [`Cause::Stack`] if there is none. Stands before each call that can
    /// come back to its own function (arguments already on the stack) and
    /// before nothing else.
    Push {
        /// Slots of 8 bytes: return place, parameters, locals, operands, and
        /// some for what an optimiser may keep besides.
        slots: u32,
    },
    /// Gives it back; stands behind that call.
    Pop {
        /// As much as was taken.
        slots: u32,
    },
}

/// An array of words in the state region.
#[derive(Clone, Copy, Debug)]
pub struct Words {
    /// Offset in the state region.
    pub at: u32,
    /// How many.
    pub len: u32,
    /// What each is: `I32` or `I64`.
    pub ty: ValType,
    /// Why a handler is stopped that names another.
    pub cause: Cause,
}

/// A function of the module.
#[derive(Clone, Debug)]
pub struct Function<'a> {
    /// From the `name` section.
    pub name: Option<String>,
    /// Index into [`Module::types`].
    pub type_index: u32,
    /// Types of the declared locals, parameters excluded.
    pub locals: Vec<ValType>,
    /// The body, the final `end` included.
    pub code: Vec<Op<'a>>,
    /// Offset of the body in the file.
    pub at: FileOffset,
}

/// A table, as it is after instantiation.
#[derive(Clone, Debug)]
pub struct Table {
    /// Function indices; `None` is null.
    pub entries: Vec<Option<u32>>,
    /// Where it lies in the state region if an operator reads or changes it;
    /// `None` for one that `call_indirect` alone uses.
    pub place: Option<TablePlace>,
}

/// A table in the state region: words that are 0 for null, else a function's
/// number plus 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TablePlace {
    /// Offset of the word that says how many entries there are.
    pub size: u32,
    /// Offset of the first entry.
    pub entries: u32,
    /// Entries there can be.
    pub capacity: u32,
}

/// Words or bytes that the state region holds before the first activation,
/// beside globals.
#[derive(Clone, Debug)]
pub struct StateData<'a> {
    /// Offset in the state region.
    pub at: u32,
    /// The bytes.
    pub bytes: std::borrow::Cow<'a, [u8]>,
}

/// An immutable global.
#[derive(Clone, Copy, Debug)]
pub struct Constant {
    /// Its type.
    pub ty: ValType,
    /// Its value, as bits.
    pub bits: u64,
}

/// A global of the author's module, in the order of its index space.
#[derive(Clone, Copy, Debug)]
pub enum Global {
    /// Never changes.
    Constant(Constant),
    /// Lives in the state region.
    State {
        /// Offset in the state region.
        offset: u32,
        /// Its type.
        ty: ValType,
        /// Its first value, as bits.
        initial: u64,
    },
}

/// An active data segment.
#[derive(Clone, Debug)]
pub struct Data<'a> {
    /// Where it goes.
    pub offset: u32,
    /// Its bytes.
    pub bytes: &'a [u8],
}

/// A module in normal form.
#[derive(Clone, Debug, Default)]
pub struct Module<'a> {
    /// Function types.
    pub types: Vec<FuncType>,
    /// Functions, imports gone.
    pub functions: Vec<Function<'a>>,
    /// Tables.
    pub tables: Vec<Table>,
    /// Globals.
    pub globals: Vec<Global>,
    /// Active data segments.
    pub data: Vec<Data<'a>>,
    /// Stored tables, passive segments and their sizes, as they are at first.
    pub state: Vec<StateData<'a>>,
    /// Size of the state region; a multiple of a Wasm page.
    pub state_bytes: usize,
    /// For each type, the first type that is the same in the author's file:
    /// references having become numbers, [`Module::types`] no longer says.
    pub canonical: Vec<u32>,
    /// Functions that a number can mean: those in tables, element segments and
    /// `ref.func`. Sorted.
    pub referenced: Vec<u32>,
    /// The lists of pipes that it runs.
    pub pipes: super::Pipes,
    /// The host calls that it imports, in the order of the file.
    pub host_calls: Vec<HostCall>,
    /// Exported functions by name.
    pub exports: Vec<(String, u32)>,
    /// Exported constants of type `i32` by name: addresses of the variables
    /// that the author shares (`ASHWAY_SHARED`, `ASHWAY_PARAM`).
    pub symbols: Vec<(String, u32)>,
    /// The start function.
    pub start: Option<u32>,
    /// The memory's size at start, in Wasm pages.
    pub initial_pages: u32,
    /// The memory's declared maximum, in Wasm pages.
    pub maximum_pages: u32,
    /// By how many bytes it makes a message longer at most.
    pub grows: u32,
    /// What of its memory outlives a version, if the file says.
    pub state_range: Option<super::StateRange>,
    /// Source lines, if the file carries DWARF.
    pub lines: super::Lines,
    /// What the file says of threads.
    pub threads: super::Threads,
    /// What there is besides if it runs on several CPUs at once.
    pub parallel: Option<super::Parallel>,
}

impl Module<'_> {
    /// The host calls that it imports and that none of these grants allows, each
    /// with the grant it takes.
    pub fn not_granted(&self, allowed: &[Grant]) -> impl Iterator<Item = (HostCall, Grant)> {
        let calls = self.host_calls.iter();
        let needed = calls.filter_map(|call| Some((*call, call.grant()?)));
        needed.filter(|(_, grant)| !allowed.contains(grant))
    }

    /// Whether it imports a host call that writes into the
    /// [outbox](ashway_abi::outbox).
    #[must_use]
    pub fn uses_outbox(&self) -> bool {
        self.host_calls.iter().any(|call| call.uses_outbox())
    }

    /// Its stacks, if each CPU has one of its own.
    pub(crate) fn stacks(&self) -> Option<super::Stacks> {
        self.parallel.and_then(|parallel| parallel.stacks)
    }

    /// Whether it may log.
    #[must_use]
    pub fn logs(&self) -> bool {
        self.host_calls.contains(&HostCall::Log)
    }

    /// Whether it may change a message's length.
    #[must_use]
    pub fn resizes(&self) -> bool {
        self.host_calls.contains(&HostCall::Resize)
    }

    /// Exported functions that a path can end in, and their indices: those of
    /// type `(i32, i32) -> i32`.
    pub fn handlers(&self) -> impl Iterator<Item = (&str, u32)> {
        let exports = self
            .exports
            .iter()
            .filter(|(_, index)| self.is_handler(*index));
        exports.map(|(name, index)| (name.as_str(), *index))
    }

    /// The function that takes the state of another version over, if the module has
    /// one: [`MIGRATE`](super::MIGRATE), of type `(i32) -> ()`.
    #[must_use]
    pub fn migrate(&self) -> Option<u32> {
        let mut exports = self.exports.iter();
        let (_, function) = exports.find(|(name, _)| name == super::MIGRATE)?;
        let type_index = self.functions[*function as usize].type_index;
        let ty = &self.types[type_index as usize];
        (ty.params() == [ValType::I32] && ty.results().is_empty()).then_some(*function)
    }

    /// Whether a function has the type of a handler.
    #[must_use]
    pub fn is_handler(&self, function: u32) -> bool {
        let type_index = self.functions[function as usize].type_index;
        super::imports::is_handler(&self.types[type_index as usize])
    }

    /// Whether any function takes fuel. One without loops, recursion and bulk
    /// operations has a static bound, which its length is, and takes none.
    #[must_use]
    pub fn charges(&self) -> bool {
        self.functions.iter().any(|function| {
            function
                .code
                .iter()
                .any(|op| matches!(op.kind, OpKind::Charge { .. } | OpKind::ChargeBulk))
        })
    }
}
