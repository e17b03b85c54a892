//! Runs one script in one engine.

use super::module::{
    Export, File, NoInstance, Prepared, PreparedModule, encode, imports_state_of, limits, link,
    prepare,
};
use super::reason::{self, Reason};
use super::suite::Script;
use super::tally::{Failure, ScriptResult, Tally};
use super::value::{self, Foreign};
use ashway_abi::Budget;
use ashway_abi::Cause;
use ashway_codegen::normalise::ir::Global;
use ashway_codegen::normalise::{Profile, normalise_as};
use ashway_handler::Stopped;
use ashway_trial::{Blame, Engine, NotRun, Setup, Trial};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use wast::lexer::Lexer;
use wast::parser::{self, ParseBuffer};
use wast::token::Span;
use wast::{QuoteWat, Wast, WastDirective, WastExecute, WastInvoke, WastRet};

/// Fuel for whatever a script does, a fill of 4 GiB included: what is bounded
/// here is the call stack.
#[must_use]
pub fn plenty() -> Setup {
    let setup = Setup::default();
    Setup {
        budget: Budget {
            fuel: 1 << 40,
            ..setup.budget
        },
        ..setup
    }
}

/// How often a script is run if a clock stopped something: in Wasmtime that is
/// some 40 ms, which a busy machine can take away in one piece.
const ATTEMPTS: usize = 5;

/// Runs a script. What it asserts about text, binary form and validity is
/// tried as well as what it asserts about running code.
#[must_use]
pub fn run(script: &Script, engine: Engine, setup: &Setup) -> ScriptResult {
    let mut result = attempt(script, engine, setup);
    for _ in 1..ATTEMPTS {
        if !result.timed_out {
            break;
        }
        result = attempt(script, engine, setup);
    }
    result
}

fn attempt(script: &Script, engine: Engine, setup: &Setup) -> ScriptResult {
    let mut result = ScriptResult {
        name: script.name.clone(),
        tally: Tally::default(),
        failures: Vec::new(),
        timed_out: false,
    };
    if let Err(error) = attempt_into(&mut result, script, engine, setup) {
        result.tally.failed += 1;
        result.failures.push(Failure {
            script: script.name.clone(),
            line: error.span().linecol_in(&script.text).0 + 1,
            what: format!("the script cannot be read: {}", error.message()),
        });
    }
    result
}

fn attempt_into(
    result: &mut ScriptResult,
    script: &Script,
    engine: Engine,
    setup: &Setup,
) -> Result<(), wast::Error> {
    let mut lexer = Lexer::new(&script.text);
    lexer.allow_confusing_unicode(true);
    let buffer = ParseBuffer::new_with_lexer(lexer)?;
    let mut wast = parser::parse::<Wast<'_>>(&buffer)?;
    // One step for all modules after the other, because each borrows from the
    // step before.
    let files: Vec<_> = wast.directives.iter_mut().map(encode).collect();
    let linked: Vec<_> = files.iter().map(|file| file.as_ref().map(link)).collect();
    let modules: Vec<_> = linked
        .iter()
        .map(|wasm| wasm.as_ref().map(prepare))
        .collect();
    let mut run = ScriptRun {
        script,
        engine,
        setup,
        result,
        instances: HashMap::new(),
        definitions: HashMap::new(),
        registered: HashMap::new(),
    };
    for (number, directive) in wast.directives.iter().enumerate() {
        run.directive(directive, files[number].as_ref(), modules[number].as_ref());
    }
    Ok(())
}

struct ScriptRun<'s, 'f> {
    script: &'s Script,
    engine: Engine,
    setup: &'s Setup,
    result: &'s mut ScriptResult,
    /// By name; the latest is under the empty name too.
    instances: HashMap<String, Instance<'f>>,
    definitions: HashMap<String, &'f PreparedModule<'f>>,
    /// By the name that other modules would import it by.
    registered: HashMap<String, Instance<'f>>,
}

/// A module that runs, or why it does not.
type Instance<'f> = Rc<RefCell<Result<Running<'f>, Reason>>>;

struct Running<'f> {
    trial: Trial<'f>,
    prepared: &'f Prepared<'f>,
    /// Why its state is not what the script expects: something that would have
    /// changed it was refused.
    stale: Option<Reason>,
}

/// What came of a command that runs code.
enum End {
    Returned(Vec<u64>),
    Trapped(Stopped),
    Refused(Reason),
    /// The script's or our fault.
    Broken(String),
}

impl From<Foreign> for End {
    fn from(foreign: Foreign) -> Self {
        Self::Refused(foreign.0.into())
    }
}

impl<'f> ScriptRun<'_, 'f> {
    fn directive(
        &mut self,
        directive: &WastDirective<'_>,
        file: Option<&File>,
        made: Option<&'f PreparedModule<'f>>,
    ) {
        let span = directive.span();
        match directive {
            WastDirective::Module(module) => {
                let name = module.name().map(|id| id.name().to_owned());
                self.instantiate(made, name, span);
                self.would_change(file);
            }
            WastDirective::ModuleDefinition(module) => {
                let made = made.expect("a definition has a module");
                let name = module.name().map_or("", |id| id.name());
                self.definitions.insert(name.to_owned(), made);
                self.definitions.insert(String::new(), made);
            }
            WastDirective::ModuleInstance {
                instance, module, ..
            } => {
                let made = self
                    .definitions
                    .get(module.map_or("", |id| id.name()))
                    .copied();
                let name = instance.map(|id| id.name().to_owned());
                self.instantiate(made, name, span);
            }
            WastDirective::AssertMalformed { module, .. }
            | WastDirective::AssertMalformedCustom { module, .. }
            | WastDirective::AssertInvalid { module, .. }
            | WastDirective::AssertInvalidCustom { module, .. } => {
                let quoted = !matches!(module, QuoteWat::Wat(_));
                self.invalid(span, file, quoted);
            }
            WastDirective::AssertUnlinkable { .. } => self.unlinkable(span, file),
            // What is registered can only be imported, and that is refused.
            WastDirective::Register { name, module, .. } => {
                if let Some(instance) = self.instance(module.map(|id| id.name())) {
                    self.registered.insert((*name).to_owned(), instance);
                }
            }
            WastDirective::Invoke(invoke) => match self.invoke(invoke) {
                End::Returned(_) => {}
                End::Refused(reason) => self.stale(invoke, reason),
                End::Trapped(stopped) => self.fail(span, format!("{}: {stopped}", invoke.name)),
                End::Broken(why) => self.fail(span, why),
            },
            WastDirective::AssertReturn { exec, results, .. } => {
                self.assert_return(span, exec, made, results);
                self.would_change(file);
            }
            WastDirective::AssertTrap { exec, message, .. } => {
                self.assert_trap(span, exec, made, message);
                self.would_change(file);
            }
            WastDirective::AssertExhaustion { call, message, .. } => {
                let end = self.invoke(call);
                let changes = self.changes_tables(call.module.map(|id| id.name()));
                self.compare_trap(span, end, message, changes);
            }
            WastDirective::AssertException { .. } => {
                self.result.tally.refuse("exceptions".into());
            }
            WastDirective::AssertSuspension { .. } => {
                self.result.tally.refuse("stack switching".into());
            }
            WastDirective::Thread(_) | WastDirective::Wait { .. } => {
                self.result.tally.refuse("several instances at once".into());
            }
        }
    }

    fn fail(&mut self, span: Span, what: String) {
        self.result.timed_out |= CLOCK.iter().any(|words| what.contains(words));
        self.result.tally.failed += 1;
        self.result.failures.push(Failure {
            script: self.script.name.clone(),
            line: span.linecol_in(&self.script.text).0 + 1,
            what,
        });
    }

    fn pass(&mut self, changes_tables: bool) {
        self.result.tally.passed += 1;
        self.result.tally.table_changing += u64::from(changes_tables);
    }

    /// A module that the script expects to run.
    fn instantiate(
        &mut self,
        made: Option<&'f PreparedModule<'f>>,
        name: Option<String>,
        span: Span,
    ) {
        let running = match self.make(made) {
            Ok(running) => Ok(running),
            Err(NoInstance::Refused(reason)) => Err(reason),
            Err(NoInstance::Traps(cause)) => {
                let what = format!("the module stops with {} at its start", cause.name());
                self.fail(span, what);
                Err("the module did not start".into())
            }
            Err(NoInstance::Broken(why)) => {
                self.fail(span, why);
                Err("the module did not start".into())
            }
        };
        let instance = Instance::new(running.into());
        if let Some(name) = name {
            self.instances.insert(name, instance.clone());
        }
        self.instances.insert(String::new(), instance);
    }

    fn make(&self, made: Option<&'f PreparedModule<'f>>) -> Result<Running<'f>, NoInstance> {
        let absent = || NoInstance::Refused("there is no such definition".into());
        let prepared = made.ok_or_else(absent)?.as_ref().map_err(Clone::clone)?;
        match Trial::new(&prepared.module, self.engine, self.setup) {
            Ok(trial) => Ok(Running {
                trial,
                prepared,
                stale: None,
            }),
            Err(NotRun::Start(stopped)) => Err(NoInstance::Traps(stopped.cause)),
            Err(error) if error.blame() == Blame::Ashway => {
                Err(NoInstance::Broken(error.to_string()))
            }
            Err(error) => Err(NoInstance::Refused(reason::of_engine(&error))),
        }
    }

    /// If the module of a command imports the state of others and is therefore
    /// refused, it would have changed them.
    fn would_change(&mut self, file: Option<&File>) {
        for name in file.map_or_else(Vec::new, |file| imports_state_of(file.bytes())) {
            if let Some(instance) = self.registered.get(&name)
                && let Ok(running) = &mut *instance.borrow_mut()
            {
                let linking = || reason::LINKING.into();
                running.stale.get_or_insert_with(linking);
            }
        }
    }

    /// Something was refused that may be called for its effect.
    fn stale(&mut self, invoke: &WastInvoke<'_>, reason: Reason) {
        if let Some(instance) = self.instance(invoke.module.map(|id| id.name()))
            && let Ok(running) = &mut *instance.borrow_mut()
            && let Some(Export::Function(function)) = running.prepared.exports.get(invoke.name)
            && running.prepared.changes_state(*function)
        {
            running.stale.get_or_insert(reason);
        }
    }

    fn invalid(&mut self, span: Span, file: Option<&File>, quoted: bool) {
        match file {
            Some(File::BadText) | None => self.result.tally.text += 1,
            Some(File::Binary(wasm) | File::GoodText(wasm)) => {
                match normalise_as(wasm, &limits(), Profile::Library) {
                    Err(_) => self.result.tally.invalid += 1,
                    Ok(_) if reason::is_valid_today(wasm) => self.result.tally.valid_today += 1,
                    Ok(_) => {
                        let form = if quoted { " text" } else { "" };
                        self.fail(span, format!("an invalid{form} module was taken"));
                    }
                }
            }
        }
    }

    fn unlinkable(&mut self, span: Span, file: Option<&File>) {
        match normalise_as(file.map_or(&[], File::bytes), &limits(), Profile::Library) {
            Err(_) => self.result.tally.unlinkable += 1,
            Ok(_) => self.fail(span, "an unlinkable module was taken".into()),
        }
    }

    fn instance(&self, name: Option<&str>) -> Option<Instance<'f>> {
        self.instances.get(name.unwrap_or("")).cloned()
    }

    fn changes_tables(&self, name: Option<&str>) -> bool {
        self.instance(name).is_some_and(|instance| {
            let instance = instance.borrow();
            instance
                .as_ref()
                .is_ok_and(|running| running.prepared.changes_tables)
        })
    }

    fn invoke(&self, invoke: &WastInvoke<'_>) -> End {
        let Some(instance) = self.instance(invoke.module.map(|id| id.name())) else {
            return End::Broken("there is no such module".into());
        };
        let mut instance = instance.borrow_mut();
        let running = match &mut *instance {
            Ok(running) => running,
            Err(reason) => return End::Refused(reason.clone()),
        };
        if let Some(reason) = &running.stale {
            return End::Refused(reason.clone());
        }
        let Some(Export::Function(function)) = running.prepared.exports.get(invoke.name) else {
            return End::Broken(format!("no function `{}`", invoke.name));
        };
        let args: Result<Vec<_>, _> = invoke.args.iter().map(value::bits).collect();
        let args = match args {
            Ok(args) => args,
            Err(foreign) => return foreign.into(),
        };
        match running.trial.invoke(*function, &args) {
            Ok(Ok(results)) => End::Returned(results),
            Ok(Err(stopped)) => End::Trapped(stopped),
            Err(error) if error.blame() == Blame::Ashway => End::Broken(error.to_string()),
            Err(error) => End::Refused(reason::of_engine(&error)),
        }
    }

    /// Runs what an assertion is about.
    fn execute(&self, exec: &WastExecute<'_>, made: Option<&'f PreparedModule<'f>>) -> End {
        match exec {
            WastExecute::Invoke(invoke) => self.invoke(invoke),
            WastExecute::Wat(_) => match self.make(made) {
                Ok(_) => End::Returned(Vec::new()),
                Err(NoInstance::Refused(reason)) => End::Refused(reason),
                Err(NoInstance::Traps(cause)) => End::Trapped(Stopped { cause, at: 0 }),
                Err(NoInstance::Broken(why)) => End::Broken(why),
            },
            WastExecute::Get { module, global, .. } => {
                let Some(instance) = self.instance(module.map(|id| id.name())) else {
                    return End::Broken("there is no such module".into());
                };
                let instance = instance.borrow();
                match &*instance {
                    Err(reason)
                    | Ok(Running {
                        stale: Some(reason),
                        ..
                    }) => End::Refused(reason.clone()),
                    Ok(running) => match running.prepared.exports.get(*global) {
                        Some(Export::Global(global)) => End::Returned(vec![running.global(global)]),
                        _ => End::Broken(format!("no global `{global}`")),
                    },
                }
            }
        }
    }

    fn assert_return(
        &mut self,
        span: Span,
        exec: &WastExecute<'_>,
        made: Option<&'f PreparedModule<'f>>,
        expected: &[WastRet<'_>],
    ) {
        match self.execute(exec, made) {
            End::Returned(found) => match value::matches(expected, &found) {
                Ok(true) => {
                    let changes = self.changes_tables(module_of(exec));
                    self.pass(changes);
                }
                Ok(false) => {
                    let what = format!("{}: {found:#x?} instead of {expected:?}", name_of(exec));
                    self.fail(span, what);
                }
                Err(foreign) => self.result.tally.refuse(foreign.0.into()),
            },
            End::Trapped(stopped) => self.fail(span, format!("{}: {stopped}", name_of(exec))),
            End::Refused(reason) => {
                if let WastExecute::Invoke(invoke) = exec {
                    self.stale(invoke, reason.clone());
                }
                self.result.tally.refuse(reason);
            }
            End::Broken(why) => self.fail(span, why),
        }
    }

    fn assert_trap(
        &mut self,
        span: Span,
        exec: &WastExecute<'_>,
        made: Option<&'f PreparedModule<'f>>,
        message: &str,
    ) {
        let end = self.execute(exec, made);
        let changes = self.changes_tables(module_of(exec));
        self.compare_trap(span, end, message, changes);
    }

    fn compare_trap(&mut self, span: Span, end: End, message: &str, changes_tables: bool) {
        match end {
            End::Trapped(stopped) => match expected_causes(message) {
                Some(causes) if causes.contains(&stopped.cause) => self.pass(changes_tables),
                Some(_) => self.fail(span, format!("{stopped} instead of `{message}`")),
                None => self.fail(span, format!("no cause stands for `{message}`")),
            },
            End::Returned(found) => {
                self.fail(span, format!("returned {found:#x?} instead of `{message}`"));
            }
            End::Refused(reason) => self.result.tally.refuse(reason),
            End::Broken(why) => self.fail(span, why),
        }
    }
}

impl Running<'_> {
    fn global(&self, global: &Global) -> u64 {
        match global {
            Global::Constant(constant) => constant.bits,
            Global::State { offset, .. } => {
                let state = self.trial.state();
                let bytes = &state[*offset as usize..][..8];
                u64::from_le_bytes(bytes.try_into().expect("8 bytes"))
            }
        }
    }
}

/// How failures read for which a clock is to blame: as an activation's cause,
/// and while an instance is being made.
const CLOCK: [&str; 2] = ["stopped by time at", "wasm trap: interrupt"];

fn module_of<'a>(exec: &'a WastExecute<'_>) -> Option<&'a str> {
    match exec {
        WastExecute::Invoke(invoke) => invoke.module.map(|id| id.name()),
        WastExecute::Get { module, .. } => module.map(|id| id.name()),
        WastExecute::Wat(_) => None,
    }
}

fn name_of<'a>(exec: &'a WastExecute<'_>) -> &'a str {
    match exec {
        WastExecute::Invoke(invoke) => invoke.name,
        WastExecute::Get { global, .. } => global,
        WastExecute::Wat(_) => "the module",
    }
}

/// The causes that stand for a script's words, which are the beginning of what
/// the specification's interpreter says. Older scripts say less.
fn expected_causes(message: &str) -> Option<&'static [Cause]> {
    const CAUSES: [(&str, &[Cause]); 12] = [
        ("unreachable", &[Cause::Unreachable]),
        ("out of bounds memory access", &[Cause::MemoryBounds]),
        ("out of bounds table access", &[Cause::TableBounds]),
        ("out of bounds", &[Cause::MemoryBounds, Cause::TableBounds]),
        ("integer divide by zero", &[Cause::DivideByZero]),
        ("integer overflow", &[Cause::Overflow]),
        ("invalid conversion to integer", &[Cause::Overflow]),
        ("undefined", &[Cause::IndirectCall]),
        ("uninitialized", &[Cause::IndirectCall]),
        ("indirect call type mismatch", &[Cause::IndirectCall]),
        ("call stack exhausted", &[Cause::Stack]),
        ("unaligned atomic", &[Cause::Unaligned]),
    ];
    let stands = |(words, _): &&(&str, _)| message.starts_with(words);
    CAUSES.iter().find(stands).map(|(_, causes)| *causes)
}
