//! A module made ready to be instantiated, as often as its memory is begun anew.

use std::sync::Arc;

use ashway_abi::memory::{Layout, STATE_GUEST_PAGES, WASM_PAGE};
use ashway_codegen::normalise::ir::{FileOffset, Global};
use ashway_codegen::normalise::{Encoded, MIGRATE, Module, check_bounded};

use crate::engine::Engine;
use crate::instance::{Function, InstantiateError};
use crate::memory::{Region, Window};
use crate::pipes::{self, Code};

/// Compiled code and all else that an instance begins with. Cheap to clone.
#[derive(Clone)]
pub struct Compiled(Arc<Parts>);

struct Parts {
    module: wasmtime::Module,
    offsets: Encoded,
    /// The functions that a path can end in, `on_rx` first if it is there.
    handlers: Vec<(String, FileOffset)>,
    symbols: Vec<(String, u32)>,
    /// What both tiers keep in the state region, as it is at first.
    state: Vec<(u32, Vec<u8>)>,
    state_bytes: usize,
    initial_pages: u32,
    maximum_pages: u32,
    starts: bool,
    pipes: Arc<[Code]>,
    resizes: bool,
    grows: usize,
    /// Where the function begins that takes an older state over.
    migrate: Option<FileOffset>,
    /// What a stopped activation has to give back.
    stack_top: Option<(u32, u32)>,
}

impl std::fmt::Debug for Compiled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Compiled")
            .field("handlers", &self.0.handlers)
            .finish_non_exhaustive()
    }
}

/// The handler that every module has, unless it is a library.
const HANDLER: &str = "on_rx";

impl Compiled {
    /// Compiles a module: about a millisecond for a small handler. Before that, looks
    /// at whether it has an end.
    ///
    /// # Errors
    ///
    /// [`InstantiateError::Refused`], [`InstantiateError::Unbounded`].
    pub fn new(
        engine: &Engine,
        module: &Module<'_>,
        encoded: &Encoded,
    ) -> Result<Self, InstantiateError> {
        check_bounded(encoded).map_err(InstantiateError::Unbounded)?;
        let compiled = wasmtime::Module::new(&engine.wasmtime, &encoded.wasm)
            .map_err(InstantiateError::Refused)?;
        let at = |index: u32| module.functions[index as usize].at;
        let mut handlers: Vec<_> = module
            .handlers()
            .map(|(name, index)| (name.to_owned(), at(index)))
            .collect();
        handlers.sort_by_key(|(name, _)| name != HANDLER);
        let mut offsets = encoded.clone();
        // Wasmtime has it by now.
        offsets.wasm = Vec::new();
        Ok(Self(Arc::new(Parts {
            module: compiled,
            offsets,
            handlers,
            symbols: module.symbols.clone(),
            state: first_state(module),
            state_bytes: module.state_bytes,
            initial_pages: module.initial_pages,
            maximum_pages: module.maximum_pages,
            starts: module.start.is_some(),
            pipes: pipes::compile(module),
            resizes: module.resizes(),
            grows: if module.resizes() {
                module.grows as usize
            } else {
                0
            },
            migrate: module.migrate().map(at),
            stack_top: module.stack_top(),
        })))
    }

    /// The handler of this name, if the module exports a function of it with the
    /// type of a handler. It is the same in every instance.
    #[must_use]
    pub fn function(&self, name: &str) -> Option<Function> {
        let mut known = self.0.handlers.iter();
        known.position(|(known, _)| known == name).map(Function)
    }

    /// Names of all functions that a path can end in.
    pub fn functions(&self) -> impl Iterator<Item = &str> {
        self.0.handlers.iter().map(|(name, _)| name.as_str())
    }

    /// Addresses of the variables that the author shares, by name.
    #[must_use]
    pub fn symbols(&self) -> &[(String, u32)] {
        &self.0.symbols
    }

    /// Whether it can take the state of another version over.
    #[must_use]
    pub fn migrates(&self) -> bool {
        self.0.migrate.is_some()
    }

    /// The word of the state region that says how far the stack in memory reaches, and what it
    /// is while nothing is on it ([`Module::stack_top`]).
    pub(crate) fn stack_top(&self) -> Option<(u32, u32)> {
        self.0.stack_top
    }

    /// Bytes of its memory at most.
    #[must_use]
    pub fn guest_bytes(&self) -> usize {
        self.0.maximum_pages as usize * WASM_PAGE
    }

    /// Bytes of its state region.
    #[must_use]
    pub fn state_bytes(&self) -> usize {
        self.0.state_bytes
    }
}

/// For [`Instance`](crate::Instance).
impl Compiled {
    pub(crate) fn module(&self) -> &wasmtime::Module {
        &self.0.module
    }

    pub(crate) fn offsets(&self) -> &Encoded {
        &self.0.offsets
    }

    pub(crate) fn handlers(&self) -> &[(String, FileOffset)] {
        &self.0.handlers
    }

    pub(crate) fn starts(&self) -> bool {
        self.0.starts
    }

    pub(crate) fn pipes(&self) -> &Arc<[Code]> {
        &self.0.pipes
    }

    pub(crate) fn resizes(&self) -> bool {
        self.0.resizes
    }

    /// By how many bytes it makes a message longer at most.
    pub(crate) fn grows(&self) -> usize {
        self.0.grows
    }

    pub(crate) fn migrate_at(&self) -> Option<FileOffset> {
        self.0.migrate
    }

    /// The least and the most pages, if it can grow.
    pub(crate) fn growth(&self) -> Option<(u32, u32)> {
        let pages = (self.0.initial_pages, self.0.maximum_pages);
        (pages.0 < pages.1).then_some(pages)
    }

    /// The parts of a region that the module uses, with the first values of what
    /// both tiers keep there. `None` if the layout is not the module's or does not
    /// fit the region.
    pub(crate) fn windows(
        &self,
        region: &Arc<dyn Region>,
        layout: &Layout,
    ) -> Option<(Window, Window)> {
        if layout.guest_bytes != self.guest_bytes() || layout.state_bytes < self.0.state_bytes {
            return None;
        }
        let guest = Window::new(region, 0, layout.guest_bytes)?;
        let state = Window::new(region, layout.state_offset(), layout.state_bytes)?;
        for (at, bytes) in &self.0.state {
            state.write(*at as usize, bytes)?;
        }
        Some((guest, state))
    }
}

/// The first values of what both tiers keep in the state region.
fn first_state(module: &Module<'_>) -> Vec<(u32, Vec<u8>)> {
    let pages = module.initial_pages.to_le_bytes().to_vec();
    let mut state = vec![(STATE_GUEST_PAGES as u32, pages)];
    state.extend(
        module
            .state
            .iter()
            .map(|data| (data.at, data.bytes.to_vec())),
    );
    for global in &module.globals {
        if let Global::State {
            offset, initial, ..
        } = global
        {
            state.push((*offset, initial.to_le_bytes().to_vec()));
        }
    }
    state
}

/// The name under which the module exports what takes an older state over.
pub(crate) const MIGRATE_EXPORT: &str = MIGRATE;
