//! One handler's module over one memory.

use crate::compiled::{Compiled, MIGRATE_EXPORT};
use crate::engine::{Activation, Engine};
use crate::memory::{Lent, MESSAGE_BYTES, Outbox, Region, Window, with_memories};
use crate::meter::{Budget, Meter};
use crate::outcome::{Outcome, Stopped};
use crate::param::{self, Param, ParamError};
use crate::pipes::Pipes;
use ashway_abi::Verdict;
use ashway_abi::memory::{FRONT_BYTES, Layout, STATE_GUEST_PAGES};
use ashway_codegen::normalise::ir::FileOffset;
use ashway_codegen::normalise::{ENTER_PREFIX, Encoded, Module, START_EXPORT, Unbounded};
use ashway_memory::messages::{self, Buffer, Space};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use wasmtime::{Memory, Store, TypedFunc, Val};

/// Fuel for a module's start function, which runs once and at no message's
/// expense.
pub const START_FUEL: u64 = 10_000_000;

/// Its time: while a version takes over, everybody's messages wait.
const START_NS: u64 = 100_000_000;

/// Why a module has no instance.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InstantiateError {
    /// The memory does not fit the module.
    #[error("the memory of {len} bytes does not fit a module that needs {needed}")]
    Region {
        /// Size of the region.
        len: usize,
        /// Size of the handler's memory and state.
        needed: usize,
    },
    /// The process has no room for its messages: a limit (`RLIMIT_AS`, `RLIMIT_DATA`).
    #[error("no address space for messages: {0}")]
    Space(#[source] io::Error),
    /// Wasmtime refused the encoded module: a bug of `codegen`, not of the
    /// handler.
    #[error("Wasmtime refused the normalised module: {0:#}")]
    Refused(#[source] wasmtime::Error),
    /// The encoded module could run without end: a bug of `codegen`, not of the
    /// handler.
    #[error("the normalised module has no end")]
    Unbounded(#[source] Unbounded),
    /// The start function was stopped.
    #[error("the start function was stopped")]
    Start(#[source] Stopped),
}

type Enter = TypedFunc<(i32, i32, i64, i32, i32), (i32, i32, i64)>;

/// A module that can be activated. One activation at a time, by `&mut self`;
/// the lock against the kernel tier is the caller's.
pub struct Instance {
    store: Store<Activation>,
    exports: wasmtime::Instance,
    functions: Vec<Entry>,
    pub(crate) outbox: Outbox,
    space: &'static Space,
    globals: Globals,
    guest: Window,
    state: Window,
    compiled: Compiled,
    /// Set if the memory can grow, in either tier.
    growing: Option<Growing>,
}

/// A function that can be activated: which of an instance's, by
/// [`Instance::function`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function(pub(crate) usize);

impl Function {
    /// `on_rx`, which every handler has; of a library the first function that
    /// can be activated.
    pub const ON_RX: Self = Self(0);
}

/// A handler of the module.
struct Entry {
    enter: Enter,
    /// Where it begins, for stops that have no better place.
    at: FileOffset,
}

/// The module's own words about an activation, read after a trap.
struct Globals {
    fuel: wasmtime::Global,
    dirty: wasmtime::Global,
    /// If the handler may change the message's length.
    len: Option<wasmtime::Global>,
}

struct Growing {
    memory: Memory,
    pages: u32,
    maximum: u32,
}

impl Instance {
    /// Compiles the module (about a millisecond for a small handler), writes
    /// data segments, first values of globals and the size into the region,
    /// and runs the start function.
    ///
    /// A region that is used for the first time must be all zero. One store
    /// per region: a second instance over the same region is the caller's bug,
    /// though it harms nobody but the handler.
    ///
    /// # Errors
    ///
    /// [`InstantiateError`]; the region may then be partly written.
    pub fn new(
        engine: &Engine,
        module: &Module<'_>,
        encoded: &Encoded,
        region: &Arc<dyn Region>,
        layout: Layout,
    ) -> Result<Self, InstantiateError> {
        Self::begin(
            engine,
            &Compiled::new(engine, module, encoded)?,
            region,
            layout,
        )
    }

    /// The same of a compiled module: some tens of microseconds, the size of its
    /// data segments, and the start function.
    ///
    /// # Errors
    ///
    /// [`InstantiateError`]; the region may then be partly written.
    pub fn begin(
        engine: &Engine,
        compiled: &Compiled,
        region: &Arc<dyn Region>,
        layout: Layout,
    ) -> Result<Self, InstantiateError> {
        let misfit = || InstantiateError::Region {
            len: region.len(),
            needed: compiled.guest_bytes() + compiled.state_bytes(),
        };
        let (guest, state) = compiled.windows(region, &layout).ok_or_else(misfit)?;

        let refused = InstantiateError::Refused;
        let activation = Activation {
            meter: Meter::new(engine.clocks),
            fuel: None,
            pipes: None,
        };
        let mut store = Store::new(&engine.wasmtime, activation);
        let space = messages::space().map_err(InstantiateError::Space)?;
        let (instance, outbox) = with_memories(region, &layout, space, || {
            engine.linker.instantiate(&mut store, compiled.module())
        })
        .ok_or_else(misfit)?;
        let instance = instance.map_err(refused)?;

        let functions = entries(compiled, &instance, &mut store).map_err(refused)?;
        let absent = |name| refused(wasmtime::Error::msg(format!("no export `{name}`")));
        let mut global = |name| {
            instance
                .get_global(&mut store, name)
                .ok_or_else(|| absent(name))
        };
        let globals = Globals {
            fuel: global("_ashway_fuel")?,
            dirty: global("_ashway_dirty")?,
            len: compiled
                .resizes()
                .then(|| global("_ashway_message_len"))
                .transpose()?,
        };
        store.data_mut().fuel = Some(globals.fuel);
        if !compiled.pipes().is_empty() {
            let code = Arc::clone(compiled.pipes());
            let pipes = Pipes::new(code, guest.clone(), state.clone());
            store.data_mut().pipes = Some(pipes);
        }
        let memory = instance
            .get_memory(&mut store, "_ashway_memory")
            .ok_or_else(|| absent("_ashway_memory"))?;
        let growing = compiled.growth().map(|(pages, maximum)| Growing {
            memory,
            pages,
            maximum,
        });
        let mut this = Self {
            store,
            exports: instance,
            functions,
            outbox,
            space,
            globals,
            guest,
            state,
            compiled: compiled.clone(),
            growing,
        };
        if compiled.starts() {
            this.once(START_EXPORT, (), 0)
                .map_err(InstantiateError::Start)?;
        }
        Ok(this)
    }

    /// Has the handler make its form of the state from that of another version, which
    /// is in its memory, before its first message. Bounded by [`START_FUEL`]. Does nothing if there is no such
    /// function ([`Compiled::migrates`]).
    ///
    /// # Errors
    ///
    /// Why it was stopped; the memory is then half of each.
    pub fn migrate(&mut self, from: u32) -> Result<(), Stopped> {
        match self.compiled.migrate_at() {
            None => Ok(()),
            Some(at) => self.once(MIGRATE_EXPORT, (from as i32,), at),
        }
    }

    /// Calls what runs once, before any message and at no message's expense. `at` is its
    /// place.
    fn once<P: wasmtime::WasmParams>(
        &mut self,
        name: &str,
        params: P,
        at: FileOffset,
    ) -> Result<(), Stopped> {
        let stopped = |this: &Self, error| Stopped::from_error(&error, this.compiled.offsets(), at);
        let function: TypedFunc<P, ()> = self
            .exports
            .get_typed_func(&mut self.store, name)
            .map_err(|error| stopped(self, error))?;
        let budget = Budget {
            fuel: START_FUEL,
            ns: START_NS,
        };
        let slice = self.store.data_mut().meter.begin(budget);
        let fuel = Val::I64(slice);
        self.globals
            .fuel
            .set(&mut self.store, fuel)
            .map_err(|error| stopped(self, error))?;
        let ended = function.call(&mut self.store, params);
        // Lines of before any message are nobody's, least of all the first message's.
        self.take_log(|_| {});
        ended.map_err(|error| stopped(self, error))
    }

    /// Gives a parameter its value ([`param`](crate::param)).
    ///
    /// # Errors
    ///
    /// [`ParamError`]; one that does not lie in the memory is none.
    pub fn set_param(&mut self, param: &str, value: &Param) -> Result<(), ParamError> {
        let symbols = self.compiled.symbols();
        let room = |at: u32| self.guest.read_u32(at as usize);
        let (at, bytes) = param::place(symbols, param, value, room)?;
        self.guest
            .write(at as usize, &bytes)
            .ok_or_else(|| ParamError::Unknown {
                param: param.to_owned(),
                has: Vec::new(),
            })
    }

    /// The handler of this name, if the module exports a function of it with
    /// the type of a handler.
    #[must_use]
    pub fn function(&self, name: &str) -> Option<Function> {
        self.compiled.function(name)
    }

    /// Where a handler begins in the author's file.
    ///
    /// # Panics
    ///
    /// If `function` is another instance's and this one has none such.
    #[must_use]
    pub fn place(&self, function: Function) -> FileOffset {
        self.functions[function.0].at
    }

    /// By how many bytes a handler of this module makes its message longer at most.
    #[must_use]
    pub fn grows(&self) -> usize {
        self.compiled.grows()
    }

    /// Runs a handler for a copy of one message, as [`Self::activate_in_place`]. What it
    /// changed is copied back only when its verdict sends the message on as changed: reply,
    /// deliver and forward; of one that it made longer, as much as there was.
    ///
    /// # Panics
    ///
    /// As there; and as [`Buffer::scratch`].
    pub fn activate(
        &mut self,
        function: Function,
        message: &mut [u8],
        channel: u32,
        budget: impl Into<Budget>,
    ) -> Outcome {
        let (outcome, scratch) =
            self.activate_on_scratch(function, &[], message, channel, budget.into());
        if outcome.goes_on_changed() {
            let len = message.len().min(outcome.len);
            message[..len].copy_from_slice(&scratch[FRONT_BYTES..][..len]);
        }
        outcome
    }

    /// The same of a message that may become longer or shorter, with what was before it in
    /// its frame. Allocates if it becomes longer.
    ///
    /// # Panics
    ///
    /// As there.
    pub fn activate_behind(
        &mut self,
        function: Function,
        front: &[u8],
        message: &mut Vec<u8>,
        channel: u32,
        budget: impl Into<Budget>,
    ) -> Outcome {
        let budget = budget.into();
        let (outcome, scratch) =
            self.activate_on_scratch(function, front, message, channel, budget);
        if outcome.goes_on_changed() {
            message.clear();
            message.extend_from_slice(&scratch[FRONT_BYTES..][..outcome.len]);
        }
        outcome
    }

    /// Copies a message to where Wasm reaches it, and runs a handler for it.
    fn activate_on_scratch(
        &mut self,
        function: Function,
        front: &[u8],
        message: &[u8],
        channel: u32,
        budget: Budget,
    ) -> (Outcome, Buffer) {
        let message = &message[..message.len().min(MESSAGE_BYTES)];
        let front = &front[front.len().saturating_sub(FRONT_BYTES)..];
        let end = FRONT_BYTES + message.len();
        let mut scratch = Buffer::scratch(end + self.grows());
        scratch[FRONT_BYTES - front.len()..FRONT_BYTES].copy_from_slice(front);
        scratch[FRONT_BYTES..end].copy_from_slice(message);
        let place = (FRONT_BYTES - front.len(), FRONT_BYTES..end);
        let outcome = self.work(function, &mut scratch, place, channel, budget);
        (outcome, scratch)
    }

    /// Runs a handler for the message at `bytes[message]`, where it lies, and says what came
    /// of it. Does not allocate unless the handler is stopped. Bounded by `budget`, and what
    /// runs between two looks at the clock.
    ///
    /// Of a message that is longer than [`MESSAGE_BYTES`] it gets the first so many. What is
    /// before it in `bytes` is for the handler to read: of more than [`FRONT_BYTES`] the last
    /// ones. Behind it there has to be room for what the handler [adds](Self::grows). Whatever
    /// its verdict, and if it was stopped, the message is as the handler left it, and
    /// [`Outcome::dirty`] says whether that is how it came.
    ///
    /// What does not lie among the process's [messages](ashway_memory::messages) is copied
    /// there and back, which [`Outcome::copied`] says.
    ///
    /// # Panics
    ///
    /// If `function` is another instance's and this one has none such; if `message` is not in
    /// `bytes`, or there is no room behind it.
    pub fn activate_in_place(
        &mut self,
        function: Function,
        bytes: &mut [u8],
        message: Range<usize>,
        channel: u32,
        budget: impl Into<Budget>,
    ) -> Outcome {
        let budget = budget.into();
        let len = message.len().min(MESSAGE_BYTES);
        let message = message.start..message.start + len;
        let first = message.start.saturating_sub(FRONT_BYTES);
        let room = &mut bytes[..message.end + self.grows()];
        if self.space.place_of(room).is_some() {
            return self.work(function, room, (first, message), channel, budget);
        }
        let (front, here) = (&room[first..message.start], &room[message.clone()]);
        let (outcome, scratch) = self.activate_on_scratch(function, front, here, channel, budget);
        if outcome.dirty {
            let now = outcome.len;
            room[message.start..][..now].copy_from_slice(&scratch[FRONT_BYTES..][..now]);
        }
        Outcome {
            copied: true,
            ..outcome
        }
    }

    /// Runs a handler for the message that lies in `bytes`, at the second of these places;
    /// what is before it begins at the first.
    ///
    /// # Panics
    ///
    /// If `bytes` do not lie in the space, or as [`Self::activate_in_place`].
    fn work(
        &mut self,
        function: Function,
        bytes: &mut [u8],
        (first, message): (usize, Range<usize>),
        channel: u32,
        budget: Budget,
    ) -> Outcome {
        assert!(bytes.len() - message.end >= self.grows(), "there is room");
        let begin = self.space.place_of(bytes).expect("they lie in the space");
        let (len, front) = (message.len(), message.start - first);
        self.forget_asked();
        self.follow_growth();
        let activation = self.store.data_mut();
        let slice = activation.meter.begin(budget);
        if let Some(pipes) = &mut activation.pipes {
            let room = message.start..message.end + self.compiled.grows();
            pipes.message = Lent::new(&mut bytes[room], begin + message.start);
        }
        let entry = &self.functions[function.0];
        let at = entry.at;
        let place = begin + message.start;
        let arguments = (
            len as i32,
            channel as i32,
            slice,
            front as i32,
            place as i32,
        );
        let (number, dirty, fuel) = match entry.enter.call(&mut self.store, arguments) {
            Ok((number, dirty, fuel)) => (number, dirty != 0, fuel),
            Err(error) => return self.stopped(&error, at, len),
        };
        Outcome {
            verdict: Verdict::from_number(number as u32).ok_or(Stopped {
                cause: ashway_abi::Cause::BadVerdict,
                at,
            }),
            dirty,
            fuel_left: self.store.data().meter.left(fuel),
            len: self.len_now(len),
            copied: false,
        }
    }

    /// The message's length behind an activation that had one of `len` bytes.
    fn len_now(&mut self, len: usize) -> usize {
        let now = self.globals.len.map(|len| len.get(&mut self.store));
        now.and_then(|now| now.i32())
            .map_or(len, |now| now as u32 as usize)
    }

    #[cold]
    fn stopped(&mut self, error: &wasmtime::Error, at: FileOffset, len: usize) -> Outcome {
        self.forget_asked();
        if let Some((offset, top)) = self.compiled.stack_top() {
            // Outside of the region there is no such word.
            let _ = self.state.write(offset as usize, &top.to_le_bytes());
        }
        let dirty = self.globals.dirty.get(&mut self.store).i32();
        let fuel = self.globals.fuel.get(&mut self.store).i64();
        Outcome {
            verdict: Err(Stopped::from_error(error, self.compiled.offsets(), at)),
            dirty: dirty != Some(0),
            fuel_left: self.store.data().meter.left(fuel.unwrap_or(0)),
            len: self.len_now(len),
            copied: false,
        }
    }

    /// If the kernel tier has grown the memory, grows it here too. The number
    /// is the application's to falsify: all it can do is grow its own memory
    /// up to the declared maximum, which is mapped.
    fn follow_growth(&mut self) {
        let Some(growing) = &mut self.growing else {
            return;
        };
        let Some(alleged) = self.state.read_u32(STATE_GUEST_PAGES) else {
            return;
        };
        if alleged == growing.pages {
            return;
        }
        let now = growing.memory.size(&self.store) as u32;
        let wanted = alleged.min(growing.maximum);
        if wanted > now {
            let more = u64::from(wanted - now);
            // It fails only beyond the maximum, and then the size stays.
            let _ = growing.memory.grow(&mut self.store, more);
        }
        growing.pages = alleged;
    }
}

impl std::fmt::Debug for Instance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Instance")
            .field("functions", &self.functions.len())
            .finish_non_exhaustive()
    }
}

/// The functions that `encode` made an entry for.
fn entries(
    compiled: &Compiled,
    instance: &wasmtime::Instance,
    store: &mut Store<Activation>,
) -> wasmtime::Result<Vec<Entry>> {
    let entry = |(name, at): &(String, FileOffset)| {
        let export = format!("{ENTER_PREFIX}{name}");
        Ok(Entry {
            enter: instance.get_typed_func(&mut *store, &export)?,
            at: *at,
        })
    };
    compiled.handlers().iter().map(entry).collect()
}
