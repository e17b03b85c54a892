//! A module, its memory and its handlers, in one engine.

use std::borrow::Cow;
use std::collections::HashMap;

use ashway_abi::Budget;
use ashway_codegen::normalise::ir::FileOffset;
use ashway_codegen::normalise::{INVOKE_PREFIX, INVOKE_SLOT, Module};
use ashway_codegen::stub;
use ashway_handler::{START_FUEL, Stopped};
use ashway_kernel::Program;
use ashway_memory::{AllegedOffset, Memory};

use crate::NotRun;
use crate::activation::Activation;
use crate::interpreter::Interpreter;
use crate::kernel::{self, Kernel};
use crate::promoted::{Loaded, Setup};
use crate::user::User;

/// What runs the handlers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// Wasmtime.
    User,
    /// The kernel, by test runs.
    Kernel,
    /// Our own eBPF interpreter.
    Interpreter,
}

impl Engine {
    /// Every engine.
    pub const ALL: [Self; 3] = [Self::User, Self::Kernel, Self::Interpreter];

    /// The name used in the CLI.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Kernel => "kernel",
            Self::Interpreter => "interpreter",
        }
    }
}

/// A module in one engine. Its memory persists from call to call.
#[derive(Debug)]
pub struct Trial<'m> {
    module: Cow<'m, Module<'m>>,
    budget: Budget,
    machine: Machine,
    /// Promoted handlers by name.
    loaded: HashMap<String, Handler>,
}

#[derive(Debug)]
enum Machine {
    User(Box<User>),
    Kernel(Kernel),
    Interpreter(Box<Interpreter>),
}

/// A promoted handler; the program is in the kernel, if that is the engine.
#[derive(Debug)]
struct Handler {
    loaded: Loaded,
    program: Option<Program>,
    /// Where it begins in the author's file.
    at: FileOffset,
}

/// Time for a start function, in ns; its fuel is [`START_FUEL`].
const START_NS: u64 = 1_000_000_000;

impl<'m> Trial<'m> {
    /// Makes the memory as the module wants it and runs the start function, in
    /// this very engine. In the user tier all of the module is compiled now
    /// (a millisecond or more); elsewhere each handler when it is first used.
    ///
    /// # Errors
    ///
    /// [`NotRun`]; missing privileges are [`Blame::Privilege`](crate::Blame).
    pub fn new(module: &'m Module<'m>, engine: Engine, setup: &Setup) -> Result<Self, NotRun> {
        let machine = match engine {
            Engine::User => Machine::User(Box::new(User::new(module, setup.budget)?)),
            Engine::Kernel => Machine::Kernel(Kernel::new(module, setup)?),
            Engine::Interpreter => Machine::Interpreter(Box::new(Interpreter::new(module, setup))),
        };
        let mut this = Self {
            module: Cow::Borrowed(module),
            budget: setup.budget,
            machine,
            loaded: HashMap::new(),
        };
        // An instance of the user tier has run it itself.
        if let Some(start) = module.start.filter(|_| engine != Engine::User) {
            this.start(start)?;
        }
        Ok(this)
    }

    fn start(&mut self, function: u32) -> Result<(), NotRun> {
        let name = self.module.to_mut().add_invoker(function);
        let name = name.map_err(|_| NotRun::NoInvoker(function))?;
        let budget = Budget {
            fuel: START_FUEL,
            ns: START_NS,
            ..self.budget
        };
        // It has no message to make longer, as in the user tier; and with room for the
        // most that a handler may ask for, no test run would take its frame.
        let grows = std::mem::take(&mut self.module.to_mut().grows);
        self.load(&name, budget)?;
        let end = self.run(&name, None, &[], 0)?.result;
        self.module.to_mut().grows = grows;
        // It has another budget, and runs once.
        self.loaded.remove(&name);
        end.map(|_| ()).map_err(NotRun::Start)
    }

    /// Runs a handler for one message; translates and loads it if this is its
    /// first. Allocates. Bounded by the budget.
    ///
    /// # Errors
    ///
    /// [`NotRun`] if the handler could not run. If it ran and was stopped, that
    /// is the activation's `result`.
    pub fn activate(
        &mut self,
        handler: &str,
        message: &[u8],
        channel: u32,
    ) -> Result<Activation, NotRun> {
        self.load(handler, self.budget)?;
        self.run(handler, None, message, channel)
    }

    /// The same of a message with this in front of it: its headers, for the handler to
    /// read. Outside the user tier the last 56 bytes of them.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn activate_behind(
        &mut self,
        handler: &str,
        front: &[u8],
        message: &[u8],
        channel: u32,
    ) -> Result<Activation, NotRun> {
        self.load(handler, self.budget)?;
        self.run(handler, Some(front), message, channel)
    }

    /// The lines that the last activation has logged, and how many more were too many.
    /// In the user tier alone; the other engines keep none.
    pub fn take_log(&mut self) -> (Vec<Vec<u8>>, u32) {
        match &mut self.machine {
            Machine::User(user) => user.take_log(),
            Machine::Kernel(_) | Machine::Interpreter(_) => (Vec::new(), 0),
        }
    }

    /// Calls a function of the module by its index, through the invoker that
    /// [`Module::add_invoker`] made before this trial was. Arguments and
    /// results are bits, those of an `i32` in the low half.
    ///
    /// # Errors
    ///
    /// The outer result as for [`Trial::activate`]; the inner one says why the
    /// function was stopped.
    pub fn invoke(
        &mut self,
        function: u32,
        args: &[u64],
    ) -> Result<Result<Vec<u64>, Stopped>, NotRun> {
        let callee = self.module.functions.get(function as usize);
        let callee = callee.ok_or(NotRun::NoInvoker(function))?;
        let ty = &self.module.types[callee.type_index as usize];
        let (params, results) = (ty.params().len(), ty.results().len());
        if args.len() != params {
            return Err(NotRun::Arguments {
                given: args.len(),
                wanted: params,
            });
        }
        let mut message: Vec<u8> = args.iter().flat_map(|bits| bits.to_le_bytes()).collect();
        message.resize(INVOKE_SLOT * params.max(results), 0);
        let name = format!("{INVOKE_PREFIX}{function}");
        let activation = match self.activate(&name, &message, 0) {
            Err(NotRun::NoHandler { .. }) => return Err(NotRun::NoInvoker(function)),
            activation => activation?,
        };
        Ok(activation.result.map(|_| {
            let (slots, _) = activation.message.as_chunks::<INVOKE_SLOT>();
            let results = slots.iter().take(results);
            results.map(|slot| u64::from_le_bytes(*slot)).collect()
        }))
    }

    /// How long a handler takes for this message, in ns: the mean of `repeat`
    /// activations one after the other, each of which sees the memory, and in
    /// the kernel and after a reply also the message, that the one before left.
    /// The engine's own work for an activation is in it; what
    /// [`EMPTY`](crate::EMPTY) takes is to be subtracted. The kernel counts in
    /// whole ns.
    ///
    /// # Errors
    ///
    /// As for [`Trial::activate`].
    ///
    /// # Panics
    ///
    /// Never: the handler is found before it is run.
    pub fn time(&mut self, handler: &str, message: &[u8], repeat: u32) -> Result<f64, NotRun> {
        self.load(handler, self.budget)?;
        let repeat = repeat.max(1);
        let grows = self.module.grows;
        match &mut self.machine {
            Machine::User(user) => {
                let function = user.function(handler).expect("it was found just now");
                Ok(user.time(function, message, repeat))
            }
            Machine::Kernel(_) => {
                kernel::time(program(&self.loaded[handler]), message, grows, repeat)
            }
            Machine::Interpreter(interpreter) => {
                let image = &self.loaded[handler].loaded.image;
                interpreter.time(image, message, grows, repeat)
            }
        }
    }

    /// The promoted handler of this name, once it has been used. `None` in the
    /// user tier.
    #[must_use]
    pub fn program(&self, handler: &str) -> Option<&Loaded> {
        self.loaded.get(handler).map(|handler| &handler.loaded)
    }

    /// Translates and loads a handler without running it.
    ///
    /// # Errors
    ///
    /// [`NotRun`], as [`Trial::activate`] would.
    pub fn prepare(&mut self, handler: &str) -> Result<(), NotRun> {
        self.load(handler, self.budget)
    }

    /// Everything that the kernel's verifier says about a handler it has taken,
    /// at most 16 MiB; `None` in another engine. (What it says about one it has
    /// refused is in [`NotRun::verifier_log`].)
    ///
    /// # Errors
    ///
    /// [`NotRun`], as [`Trial::prepare`].
    pub fn verifier_log(&mut self, handler: &str) -> Result<Option<String>, NotRun> {
        self.load(handler, self.budget)?;
        match &self.machine {
            Machine::Kernel(kernel) => {
                let image = &self.loaded[handler].loaded.image;
                Ok(Some(kernel.verifier_log(image)?))
            }
            _ => Ok(None),
        }
    }

    /// The guest memory up to its declared maximum. Allocates.
    #[must_use]
    pub fn guest(&self) -> Vec<u8> {
        let layout = stub::layout(&self.module);
        self.read(0, layout.guest_bytes)
    }

    /// The state region: globals, size of the memory, tables, passive
    /// segments. Allocates.
    #[must_use]
    pub fn state(&self) -> Vec<u8> {
        let layout = stub::layout(&self.module);
        self.read(layout.state_offset(), layout.state_bytes)
    }

    /// Writes to the guest memory, as an application could.
    ///
    /// # Panics
    ///
    /// If the bytes do not fit.
    pub fn write_guest(&mut self, at: usize, bytes: &[u8]) {
        let end = at.checked_add(bytes.len());
        let guest = stub::layout(&self.module).guest_bytes;
        assert!(end.is_some_and(|end| end <= guest), "outside the memory");
        match &mut self.machine {
            Machine::User(user) => put(user.memory(), at, bytes),
            Machine::Kernel(kernel) => put(kernel.memory(), at, bytes),
            Machine::Interpreter(interpreter) => {
                interpreter.memory_mut()[at..][..bytes.len()].copy_from_slice(bytes);
            }
        }
    }

    /// Writes the whole memory, as [`guest`](Self::guest) and [`state`](Self::state)
    /// gave it.
    ///
    /// # Panics
    ///
    /// If they are of another module.
    pub fn restore(&mut self, guest: &[u8], state: &[u8]) {
        let layout = stub::layout(&self.module);
        assert_eq!(state.len(), layout.state_bytes, "another module's state");
        self.write_guest(0, guest);
        let at = layout.state_offset();
        match &mut self.machine {
            Machine::User(user) => put(user.memory(), at, state),
            Machine::Kernel(kernel) => put(kernel.memory(), at, state),
            Machine::Interpreter(interpreter) => {
                interpreter.memory_mut()[at..][..state.len()].copy_from_slice(state);
            }
        }
    }

    fn read(&self, at: usize, len: usize) -> Vec<u8> {
        match &self.machine {
            Machine::User(user) => get(user.memory(), at, len),
            Machine::Kernel(kernel) => get(kernel.memory(), at, len),
            Machine::Interpreter(interpreter) => interpreter.memory()[at..][..len].to_vec(),
        }
    }

    /// Makes a handler ready, if it is not yet.
    fn load(&mut self, name: &str, budget: Budget) -> Result<(), NotRun> {
        if self.loaded.contains_key(name) {
            return Ok(());
        }
        let absent = || NotRun::NoHandler {
            name: name.to_owned(),
            known: self.module.exports.iter().map(|e| e.0.clone()).collect(),
        };
        let export = self.module.exports.iter().find(|export| export.0 == name);
        let (_, entry) = *export.ok_or_else(absent)?;
        let (loaded, program) = match &self.machine {
            Machine::User(user) => {
                return user.function(name).map(|_| ()).ok_or_else(absent);
            }
            Machine::Kernel(kernel) => {
                let (loaded, program) = kernel.load(&self.module, entry, budget)?;
                (loaded, Some(program))
            }
            Machine::Interpreter(interpreter) => {
                (interpreter.load(&self.module, entry, budget)?, None)
            }
        };
        let at = self.module.functions[entry as usize].at;
        let handler = Handler {
            loaded,
            program,
            at,
        };
        self.loaded.insert(name.to_owned(), handler);
        Ok(())
    }

    fn run(
        &mut self,
        name: &str,
        front: Option<&[u8]>,
        message: &[u8],
        channel: u32,
    ) -> Result<Activation, NotRun> {
        let frame = stub::frame_behind(front.unwrap_or_default(), message, self.module.grows);
        match &mut self.machine {
            Machine::User(user) => {
                let function = user.function(name).expect("it was found just now");
                // What the other engines have in front of it.
                let front = front.unwrap_or(&frame[..stub::HEADER_BYTES]);
                Ok(user.activate(function, front, message, channel))
            }
            _ if channel != 0 => Err(NotRun::Channel(channel)),
            Machine::Kernel(_) => {
                let handler = &self.loaded[name];
                kernel::activate(program(handler), &frame, message, handler.at)
            }
            Machine::Interpreter(interpreter) => {
                let handler = &self.loaded[name];
                interpreter.activate(&handler.loaded.image, &frame, message, handler.at)
            }
        }
    }
}

fn program(handler: &Handler) -> &Program {
    let program = handler.program.as_ref();
    program.expect("in the kernel every handler has one")
}

fn get(memory: &Memory, at: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    memory
        .copy_out(AllegedOffset(at as u32), &mut bytes)
        .expect("inside by the layout");
    bytes
}

fn put(memory: &Memory, at: usize, bytes: &[u8]) {
    memory
        .copy_in(AllegedOffset(at as u32), bytes)
        .expect("inside by the layout");
}
