//! Runs one module in every engine and compares everything there is.

use super::generate::Case;
use super::random::Random;
use ashway_abi::Budget;
use ashway_abi::Cause;
use ashway_codegen::normalise::{Limits, Module, Profile, normalise_as};
use ashway_handler::Stopped;
use ashway_trial::{Activation, Blame, Engine, MemoryChoice, NotRun, Setup, Trial};

/// How often each function is called.
const ROUNDS: usize = 3;
/// Bytes of a message, at most.
const MESSAGE_BYTES: u64 = 160;

/// An engine, and what its memory is: one of those that must agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane {
    /// The engine.
    pub engine: Engine,
    /// Its memory.
    pub memory: MemoryChoice,
    /// Whether promoted code keeps locals out of registers; `None` leaves it to
    /// the verifier.
    pub locals_in_memory: Option<bool>,
}

impl Lane {
    /// Wasmtime, the interpreter over the case's kind of memory, and if `kernel`
    /// the kernel over the same, of one case in four over the other as well:
    /// its verifier takes most of the time.
    #[must_use]
    pub fn of_case(case: &Case, kernel: bool) -> Vec<Self> {
        let lane = |engine, memory| Self {
            engine,
            memory,
            locals_in_memory: case.locals_in_memory.then_some(true),
        };
        let mut lanes = vec![
            lane(Engine::User, case.memory),
            lane(Engine::Interpreter, case.memory),
        ];
        if kernel {
            lanes.push(lane(Engine::Kernel, case.memory));
        }
        if kernel && case.seed.is_multiple_of(4) {
            let other = match case.memory {
                MemoryChoice::Array => MemoryChoice::Arena,
                _ => MemoryChoice::Array,
            };
            lanes.push(lane(Engine::Kernel, other));
        }
        lanes
    }

    /// Whether this is Wasmtime, and the stops differ only as its places do.
    fn places_loosely(self, loose: Stopped, right: Stopped) -> bool {
        let compiled = [Cause::MemoryBounds, Cause::DivideByZero, Cause::Overflow];
        self.engine == Engine::User
            && compiled.contains(&loose.cause)
            && loose.cause == right.cause
            && loose.at != right.at
    }

    /// Every way a module can be run.
    #[must_use]
    pub fn all(kernel: bool) -> Vec<Self> {
        let mut lanes = vec![Self {
            engine: Engine::User,
            memory: MemoryChoice::Auto,
            locals_in_memory: None,
        }];
        for engine in [Engine::Interpreter, Engine::Kernel] {
            if engine == Engine::Kernel && !kernel {
                continue;
            }
            for memory in [MemoryChoice::Arena, MemoryChoice::Array] {
                for locals_in_memory in [None, Some(true)] {
                    lanes.push(Self {
                        engine,
                        memory,
                        locals_in_memory,
                    });
                }
            }
        }
        lanes
    }
}

/// A call of a function, or a message to a handler.
#[derive(Clone, Debug)]
struct Call {
    handler: String,
    message: Vec<u8>,
    /// As a person would write it.
    shown: String,
}

/// What came of one module.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// Why the normaliser refused it; then nothing else is set.
    pub refused: Option<String>,
    /// Functions that an engine refused, by engine and reason. They are not
    /// called in any engine, because what one leaves in memory the next sees.
    pub unpromoted: Vec<(Engine, String)>,
    /// What each call came to, where all engines agree.
    pub ends: Vec<Result<u32, Cause>>,
    /// Stops of which Wasmtime names another place than promoted code does: for
    /// a trap that it sees to be certain the branch that leads there, for a
    /// load that it merges into the operator that takes the value that operator
    /// (`popcnt r, [m]`). All else is equal.
    pub loose_places: u32,
    /// Whether a clock ended it: what came after was not compared.
    pub timed_out: bool,
    /// Programs that the kernel loaded, and how many of them at the second
    /// try.
    pub loads: (u32, u32),
    /// What differs, or what should never be.
    pub differences: Vec<String>,
}

impl Findings {
    fn differ(&mut self, what: String) {
        self.differences.push(what);
    }
}

/// Runs the case in all lanes.
#[must_use]
pub fn compare(case: &Case, lanes: &[Lane]) -> Findings {
    let mut findings = Findings::default();
    let mut module = match normalise_as(&case.wasm, &Limits::default(), case.profile) {
        Ok(module) => module,
        Err(error) => {
            findings.refused = Some(without_numbers(&error.to_string()));
            return findings;
        }
    };
    let calls = calls(&mut module, case);
    let Some(mut trials) = start(&module, case, lanes, &mut findings) else {
        return findings;
    };
    let mut refused = Vec::new();
    for call in &calls {
        if refused.contains(&&call.handler) {
            continue;
        }
        for (lane, trial) in &mut trials {
            if let Err(error) = trial.prepare(&call.handler) {
                blame(&error, *lane, &call.shown, &mut findings);
                refused.push(&call.handler);
                break;
            }
        }
    }
    for call in calls
        .iter()
        .filter(|call| !refused.contains(&&call.handler))
    {
        if !step(call, &mut trials, &mut findings) {
            break;
        }
    }
    if !findings.timed_out && findings.differences.is_empty() {
        compare_memory(&trials, "after all calls", &mut findings);
    }
    let mut handlers: Vec<_> = calls.iter().map(|call| &call.handler).collect();
    handlers.sort();
    handlers.dedup();
    for (_, trial) in trials
        .iter()
        .filter(|(lane, _)| lane.engine == Engine::Kernel)
    {
        for program in handlers.iter().filter_map(|handler| trial.program(handler)) {
            findings.loads.0 += 1;
            findings.loads.1 += u32::from(program.second_try.is_some());
        }
    }
    findings
}

/// What will be called: every exported function with arguments, or `on_rx`
/// with messages.
fn calls(module: &mut Module<'_>, case: &Case) -> Vec<Call> {
    let mut random = Random::new(!case.seed);
    let mut calls = Vec::new();
    if case.profile == Profile::Handler {
        for _ in 0..2 * ROUNDS {
            let len = random.below(MESSAGE_BYTES) as usize;
            let message = random.bytes(len);
            calls.push(Call {
                handler: "on_rx".into(),
                shown: format!("on_rx with {message:02x?}"),
                message,
            });
        }
        return calls;
    }
    let mut functions: Vec<u32> = module
        .exports
        .iter()
        .map(|(_, function)| *function)
        .collect();
    functions.sort_unstable();
    functions.dedup();
    functions.truncate(case.functions);
    for _ in 0..ROUNDS {
        for function in &functions {
            // Refused for a type that the generator does not use.
            let Ok(handler) = module.add_invoker(*function) else {
                continue;
            };
            let ty = module.functions[*function as usize].type_index as usize;
            let ty = &module.types[ty];
            let args: Vec<u64> = ty.params().iter().map(|_| random.number()).collect();
            let mut message: Vec<u8> = args.iter().flat_map(|arg| arg.to_le_bytes()).collect();
            message.resize(8 * ty.params().len().max(ty.results().len()), 0);
            calls.push(Call {
                handler,
                message,
                shown: format!("function {function} with {args:x?}"),
            });
        }
    }
    calls
}

/// Makes an instance in each lane, or none if none can be.
fn start<'m>(
    module: &'m Module<'m>,
    case: &Case,
    lanes: &[Lane],
    findings: &mut Findings,
) -> Option<Vec<(Lane, Trial<'m>)>> {
    let mut trials = Vec::new();
    let mut stops: Vec<(Lane, Option<Stopped>)> = Vec::new();
    for lane in lanes {
        let setup = Setup {
            budget: Budget {
                fuel: case.fuel,
                slice: 1_000,
                ns: 1_000_000_000,
            },
            memory: lane.memory,
            locals_in_memory: lane.locals_in_memory,
            ..Setup::default()
        };
        match Trial::new(module, lane.engine, &setup) {
            Ok(trial) => {
                trials.push((*lane, trial));
                stops.push((*lane, None));
            }
            Err(NotRun::Start(stopped)) => stops.push((*lane, Some(stopped))),
            Err(error) => {
                blame(&error, *lane, "the start function", findings);
                return None;
            }
        }
    }
    let (first, expected) = stops[0];
    for (lane, found) in &stops {
        let causes = [expected, *found].map(|stop| stop.map(|stopped| stopped.cause));
        if causes.contains(&Some(Cause::Time)) {
            findings.timed_out = true;
            return None;
        }
        match (expected, *found) {
            (Some(loose), Some(right)) if first.places_loosely(loose, right) => {
                findings.loose_places += 1;
            }
            _ if *found != expected => findings.differ(format!(
                "start function: {first:?} {expected:?}, {lane:?} {found:?}"
            )),
            _ => {}
        }
    }
    if let Some(stopped) = expected {
        findings.ends.push(Err(stopped.cause));
    }
    (trials.len() == lanes.len()).then_some(trials)
}

/// What Wasmtime says when its clock stopped an instance that was still being
/// made: on a busy machine mapping its memory can take that long.
const INTERRUPT: &str = "wasm trap: interrupt";

/// Counts a refusal, or notes a bug.
fn blame(error: &NotRun, lane: Lane, what: &str, findings: &mut Findings) {
    if error.blame() == Blame::Handler {
        findings.unpromoted.push((lane.engine, error.reason()));
    } else if error.to_string().contains(INTERRUPT) {
        findings.timed_out = true;
    } else {
        findings.differ(format!("{lane:?} does not run {what}: {error}"));
    }
}

/// One call in all lanes. Whether to go on.
fn step(call: &Call, trials: &mut [(Lane, Trial<'_>)], findings: &mut Findings) -> bool {
    // Promoted lanes come after Wasmtime and agree exactly among themselves.
    let mut agreed: Option<(Lane, Activation)> = None;
    let mut good = true;
    for (lane, trial) in trials {
        let found = match trial.activate(&call.handler, &call.message, 0) {
            Ok(found) => found,
            Err(error) => {
                findings.differ(format!("{lane:?} does not run {}: {error}", call.shown));
                return false;
            }
        };
        if matches!(found.result, Err(stopped) if stopped.cause == Cause::Time) {
            findings.timed_out = true;
            return false;
        }
        match &agreed {
            None => agreed = Some((*lane, found)),
            Some((first, expected)) if is_loose_place(*first, expected, &found) => {
                findings.loose_places += 1;
                agreed = Some((*lane, found));
            }
            Some((first, expected)) if *expected != found => {
                good = false;
                findings.differ(format!(
                    "{}: {first:?} {}, {lane:?} {}",
                    call.shown,
                    show(expected),
                    show(&found)
                ));
            }
            Some(_) => {}
        }
    }
    if let Some((_, activation)) = agreed.filter(|_| good) {
        findings
            .ends
            .push(activation.result.map_err(|stopped| stopped.cause));
    }
    good
}

/// Whether all is equal but for the place of an access or a division in
/// Wasmtime ([`Findings::loose_places`]).
fn is_loose_place(first: Lane, expected: &Activation, found: &Activation) -> bool {
    let (Err(loose), Err(right)) = (expected.result, found.result) else {
        return false;
    };
    let placed = Activation {
        result: found.result,
        ..expected.clone()
    };
    first.places_loosely(loose, right) && placed == *found
}

fn show(activation: &Activation) -> String {
    let end = match activation.result {
        Ok(number) => format!("verdict {number}"),
        Err(stopped) => stopped.to_string(),
    };
    let dirty = if activation.dirty { ", dirty" } else { "" };
    format!(
        "{end}{dirty}, fuel {}, message {:02x?}",
        activation.fuel_left, activation.message
    )
}

fn compare_memory(trials: &[(Lane, Trial<'_>)], when: &str, findings: &mut Findings) {
    let Some(((first, trial), others)) = trials.split_first() else {
        return;
    };
    let expected = [trial.guest(), trial.state()];
    for (lane, trial) in others {
        let found = [trial.guest(), trial.state()];
        for (part, (expected, found)) in expected.iter().zip(&found).enumerate() {
            let Some(at) = expected.iter().zip(found).position(|(a, b)| a != b) else {
                continue;
            };
            let part = ["guest memory", "state"][part];
            findings.differ(format!(
                "{when} byte {at:#x} of the {part}: {first:?} {:#04x}, {lane:?} {:#04x}",
                expected[at], found[at]
            ));
        }
    }
}

/// Reasons without numbers, so that equal ones can be counted.
fn without_numbers(reason: &str) -> String {
    let mut text = String::with_capacity(reason.len());
    for c in reason.chars() {
        if !c.is_ascii_digit() {
            text.push(c);
        } else if !text.ends_with('#') {
            text.push('#');
        }
    }
    text
}
