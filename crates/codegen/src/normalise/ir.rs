//! The normalised module: what both tiers run.
//!
//! A function body is a list of [`Op`]s: WebAssembly operators as the author
//! wrote them, and between them the few operations that the normaliser put in
//! place of something else. [`encode`](super::encode) writes it as Wasm for
//! Wasmtime; [`promote`](crate::promote) writes it as eBPF. There is no third
//! meaning: each pseudo operation's is its expansion in `encode`.

use ashway_abi::HostCall;
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
    /// call to an import.
    Wasm(Operator<'a>),
    /// Takes `cost` from the fuel; below zero stops with
    /// [`Cause::Fuel`](ashway_abi::Cause::Fuel). Stands first in each `loop`,
    /// and first in each function that can be called in a loop.
    Charge {
        /// Fuel units.
        cost: u32,
    },
    /// Pops the length of a bulk operation's copy (i32), takes fuel for it and
    /// pushes it back.
    ChargeBulk,
    /// A message access: operands and result as in the host call's signature.
    Message(HostCall),
    /// Pushes the mutable global at this offset of the state region.
    StateGet {
        /// Offset in the state region.
        offset: u32,
        /// Its type: `I32` or `I64` (others are refused for now).
        ty: ValType,
    },
    /// Pops into the mutable global at this offset of the state region.
    StateSet {
        /// Offset in the state region.
        offset: u32,
        /// Its type.
        ty: ValType,
    },
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
    /// Whether any operator can change it.
    pub mutable: bool,
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

/// A data segment.
#[derive(Clone, Debug)]
pub struct Data<'a> {
    /// Where an active segment goes; `None` for a passive one.
    pub offset: Option<u32>,
    /// Its bytes.
    pub bytes: &'a [u8],
}

/// An element segment.
#[derive(Clone, Debug)]
pub struct Element {
    /// Whether `table.init` can still use it after instantiation.
    pub passive: bool,
    /// Function indices; `None` is null. Empty for a segment that is used up.
    pub items: Vec<Option<u32>>,
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
    /// Data segments.
    pub data: Vec<Data<'a>>,
    /// Element segments; active ones are already in [`Module::tables`].
    pub elements: Vec<Element>,
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
    /// Source lines, if the file carries DWARF.
    pub lines: super::Lines,
}

impl Module<'_> {
    /// Whether any function takes fuel. One without loops, recursion and bulk
    /// operations has a static bound and takes none (DESIGN 3).
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
