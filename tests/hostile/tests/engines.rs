//! Every handler of the corpus, alone, in every engine: it ends as its first
//! line says, at the same instruction and with the same memory in all of them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use ashway_abi::Budget;
use ashway_abi::{Cause, Verdict};
use ashway_codegen::normalise::{Limits, Module, normalise};
use ashway_codegen::promote::{Checks, PromoteError};
use ashway_hostile::{End, Entry, Expectation, StopPlace, Tier, corpus};
use ashway_rig::skip::root_for_a_part;
use ashway_rig::skip_unless_root;
use ashway_trial::{Activation, Engine, MemoryChoice, NotRun, Setup, Trial, same_end};
use wasmparser::{BinaryReader, OperatorsReader};

/// Fuel alone ends what does not end: the clock's choice is no two engines'.
const BUDGET: Budget = Budget {
    fuel: 240_000,
    slice: 4_096,
    ns: 1_000_000_000,
};

/// What every handler is given: 00 01 02 ...
fn message() -> Vec<u8> {
    (0..64).collect()
}

/// What a handler did in an engine.
#[derive(Debug)]
struct Done {
    activations: Vec<Activation>,
    guest: Vec<u8>,
    state: Vec<u8>,
}

/// An engine, and its name for messages.
type Where = (String, Engine, Setup);

fn engines() -> Vec<Where> {
    let setup = Setup {
        budget: BUDGET,
        ..Setup::default()
    };
    let mut engines = vec![
        ("user".to_owned(), Engine::User, setup),
        ("interpreter".to_owned(), Engine::Interpreter, setup),
    ];
    if root_for_a_part() {
        for memory in [MemoryChoice::Arena, MemoryChoice::Array] {
            let setup = Setup { memory, ..setup };
            engines.push((format!("kernel, {memory:?}"), Engine::Kernel, setup));
        }
    }
    engines
}

/// Gives it as many messages as its header has ends.
fn run(module: &Module<'_>, engine: Engine, setup: &Setup, times: usize) -> Result<Done, NotRun> {
    let mut trial = Trial::new(module, engine, setup)?;
    trial.prepare("on_rx")?;
    let activate = |_| trial.activate("on_rx", &message(), 0);
    let activations = (0..times).map(activate).collect::<Result<_, _>>()?;
    Ok(Done {
        activations,
        guest: trial.guest(),
        state: trial.state(),
    })
}

/// Holds one engine's doing against the header. Returns what it did, if it ran,
/// or what is wrong.
fn check(entry: &Entry, engine: Engine, setup: &Setup) -> Result<Option<Done>, String> {
    let module = normalise(&entry.wasm, &Limits::default());
    let (module, user, kernel, memory, message) = match (&entry.expectation, &module) {
        (Expectation::Refused(words), Err(error)) => {
            return contains(&error.to_string(), words).map(|()| None);
        }
        (Expectation::Refused(_), Ok(_)) => return Err("it is not refused".to_owned()),
        (Expectation::Loaded { .. }, Err(error)) => return Err(format!("refused: {error}")),
        (
            Expectation::Loaded {
                user,
                kernel,
                memory,
                message,
            },
            Ok(module),
        ) => (module, user, kernel, memory, message),
    };
    let tier = if engine == Engine::User { user } else { kernel };
    let times = if let Tier::Runs(ends) = tier {
        ends.len()
    } else {
        1
    };
    let done = run(module, engine, setup, times);
    let (done, ends) = match (tier, done) {
        (Tier::Refused(words), Err(error)) => {
            return contains(&error.to_string(), words).map(|()| None);
        }
        (Tier::Start(cause), Err(NotRun::Start(stopped))) if stopped.cause == *cause => {
            return Ok(None);
        }
        // In an array, which has no pipes.
        (Tier::Runs(_), Err(NotRun::Promote(PromoteError::Pipe { .. })))
            if setup.memory == MemoryChoice::Array =>
        {
            return Ok(None);
        }
        (Tier::Runs(ends), Ok(done)) => (done, ends),
        (tier, Ok(done)) => return Err(format!("{tier:?} expected: {:?}", done.activations)),
        (tier, Err(error)) => return Err(format!("{tier:?} expected: {error}: {error:?}")),
    };
    for (number, (end, activation)) in ends.iter().zip(&done.activations).enumerate() {
        hold(entry, module, engine, *end, activation)
            .map_err(|why| format!("message {}: {why}", number + 1))?;
    }
    for memory in memory {
        let found = &done.guest[memory.at..][..memory.bytes.len()];
        if found != memory.bytes {
            return Err(format!("memory at {:#x} is {found:02x?}", memory.at));
        }
    }
    if let Some(message) = message {
        let found = &done.activations[0].message;
        if !found.starts_with(message) {
            return Err(format!("the message is {found:02x?}"));
        }
    }
    Ok(Some(done))
}

fn contains(text: &str, words: &str) -> Result<(), String> {
    if text.contains(words) {
        return Ok(());
    }
    Err(format!("refused for another reason: {text}"))
}

/// The user tier's place of these can be beside the operator (`Stopped::at`).
const LOOSE: [Cause; 3] = [Cause::MemoryBounds, Cause::DivideByZero, Cause::Overflow];

/// Holds one activation against one end.
fn hold(
    entry: &Entry,
    module: &Module<'_>,
    engine: Engine,
    end: End,
    activation: &Activation,
) -> Result<(), String> {
    let found = match activation.result {
        Ok(number) => Ok(Verdict::from_number(number).unwrap()),
        Err(stopped) => Err(stopped.cause),
    };
    let place = activation.result.err().map(|stopped| stopped.at);
    let operator = place.map(|at| operator(&entry.wasm, at));
    if found != end.result {
        return Err(format!(
            "{found:?}, changed: {} at {operator:?}",
            activation.dirty
        ));
    }
    if activation.dirty != end.changed {
        return Err(format!("changed: {}", activation.dirty));
    }
    if engine == Engine::User && found.is_err_and(|cause| LOOSE.contains(&cause)) {
        return Ok(());
    }
    match end.place {
        StopPlace::Anywhere => Ok(()),
        StopPlace::Operator(expected) if operator.as_deref() == Some(expected) => Ok(()),
        StopPlace::Operator(_) => Err(format!("stopped at {operator:?}")),
        StopPlace::Here => {
            let line = place.and_then(|at| module.lines.at(at));
            let number = line.map_or(0, |(_, number)| number as usize);
            let text = entry.text.lines().nth(number.wrapping_sub(1));
            if text.is_some_and(|text| text.contains("/* here */")) {
                return Ok(());
            }
            Err(format!("stopped at {line:?}: {text:?}"))
        }
    }
}

/// The operator at an offset of the file, in the header's spelling.
fn operator(wasm: &[u8], at: u32) -> String {
    let reader = BinaryReader::new(&wasm[at as usize..], at.into());
    let read = OperatorsReader::new(reader).read();
    let shown = format!("{:?}", read.unwrap());
    let name = shown.split([' ', '(']).next().unwrap_or_default();
    name.to_lowercase()
}

#[test]
fn every_one_ends_as_its_first_line_says_in_every_engine() {
    let corpus = corpus().unwrap();
    assert!(corpus.len() >= 100, "{} handlers", corpus.len());
    let mut wrong = Vec::new();
    let mut ends = BTreeMap::new();
    for entry in &corpus {
        let mut first: Option<(String, Engine, Done)> = None;
        for (name, engine, setup) in engines() {
            let done = match check(entry, engine, &setup) {
                Ok(Some(done)) => done,
                Ok(None) => continue,
                Err(why) => {
                    wrong.push(format!("{}, {name}: {why}", entry.name));
                    continue;
                }
            };
            for activation in &done.activations {
                let end = match activation.result {
                    Ok(_) => activation.verdict().unwrap().name(),
                    Err(stopped) => stopped.cause.name(),
                };
                *ends.entry(end).or_insert(0) += 1;
            }
            let Some((other, other_engine, one)) = &first else {
                first = Some((name, engine, done));
                continue;
            };
            if let Some(what) = difference([*other_engine, engine], one, &done) {
                wrong.push(format!("{}: {other} and {name} differ: {what}", entry.name));
            }
        }
    }
    println!("{} handlers; ends in all engines: {ends:?}", corpus.len());
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

fn difference(engines: [Engine; 2], one: &Done, other: &Done) -> Option<String> {
    for (a, b) in one.activations.iter().zip(&other.activations) {
        let same = same_end(engines, &a.result, &b.result);
        if !same || (&a.message, a.dirty, a.fuel_left) != (&b.message, b.dirty, b.fuel_left) {
            return Some(format!("{a:?} and {b:?}"));
        }
    }
    if one.guest != other.guest {
        return Some("the memory".to_owned());
    }
    (one.state != other.state).then(|| "the state".to_owned())
}

/// The twin: a header that says anything else is not believed, of either tier (the
/// interpreter is held to what is said of the kernel's).
#[test]
fn an_edited_expectation_is_noticed() {
    let mut edited = BTreeMap::<&str, u32>::new();
    for entry in corpus().unwrap() {
        for (_, engine, setup) in engines().into_iter().take(2) {
            for (what, expectation) in doctored(&entry.expectation, engine) {
                let entry = Entry {
                    expectation,
                    ..entry.clone()
                };
                let said = format!("{}, {engine:?}: {:?}", entry.name, entry.expectation);
                assert!(check(&entry, engine, &setup).is_err(), "{what}: {said}");
                *edited.entry(what).or_default() += 1;
            }
        }
    }
    for what in ["refusal", "changed", "result", "place", "memory", "message"] {
        assert!(edited.get(what) > Some(&0), "no {what} in {edited:?}");
    }
    assert!(edited.values().sum::<u32>() > 600, "{edited:?}");
}

/// The same expectation with one thing wrong that this engine is held to, in several
/// ways, and which.
fn doctored(expectation: &Expectation, engine: Engine) -> Vec<(&'static str, Expectation)> {
    let nothing = End {
        result: Ok(Verdict::Consume),
        place: StopPlace::Anywhere,
        changed: false,
    };
    let Expectation::Loaded {
        user,
        kernel,
        memory,
        message,
    } = expectation
    else {
        let runs = Tier::Runs(vec![nothing]);
        let loaded = Expectation::Loaded {
            user: runs.clone(),
            kernel: runs,
            memory: Vec::new(),
            message: None,
        };
        let other = Expectation::Refused("another reason".to_owned());
        return vec![("refusal", loaded), ("refusal", other)];
    };
    let in_user = engine == Engine::User;
    let with = |tier: Tier| Expectation::Loaded {
        user: if in_user { tier.clone() } else { user.clone() },
        kernel: if in_user { kernel.clone() } else { tier },
        memory: memory.clone(),
        message: message.clone(),
    };
    let mut all = vec![("refusal", Expectation::Refused(String::new()))];
    let Tier::Runs(ends) = (if in_user { user } else { kernel }) else {
        // It does not come as far as the memory there.
        all.push(("result", with(Tier::Runs(vec![nothing]))));
        return all;
    };
    let mut edit = |what, change: &dyn Fn(&mut End)| {
        let mut ends = ends.clone();
        change(ends.last_mut().unwrap());
        all.push((what, with(Tier::Runs(ends))));
    };
    edit("changed", &|end| end.changed = !end.changed);
    edit("result", &|end| {
        end.result = match end.result {
            Ok(Verdict::Consume) => Ok(Verdict::Drop),
            Ok(_) => Ok(Verdict::Consume),
            Err(Cause::Fuel) => Err(Cause::Time),
            Err(_) => Err(Cause::Fuel),
        }
    });
    let result = ends.last().unwrap().result;
    if result.is_err_and(|cause| !in_user || !LOOSE.contains(&cause)) {
        edit("place", &|end| end.place = StopPlace::Operator("nowhere"));
    }
    for number in 0..memory.len() {
        let mut memory = memory.clone();
        memory[number].bytes[0] ^= 1;
        all.push((
            "memory",
            Expectation::Loaded {
                user: user.clone(),
                kernel: kernel.clone(),
                memory,
                message: message.clone(),
            },
        ));
    }
    if let Some(message) = message {
        let mut message = message.clone();
        message[0] ^= 1;
        all.push((
            "message",
            Expectation::Loaded {
                user: user.clone(),
                kernel: kernel.clone(),
                memory: memory.clone(),
                message: Some(message),
            },
        ));
    }
    all
}

/// The other twin: handlers that are not kept from anything, in a build that is
/// for measuring only, are noticed. (Nothing of theirs reaches beyond the arena
/// and its guards all the same: that is the kernel's doing.)
#[test]
fn a_handler_without_its_checks_is_noticed() {
    if skip_unless_root() {
        return;
    }
    let noticed = |checks: Checks, pick: &dyn Fn(&Entry) -> bool| {
        let setup = Setup {
            budget: BUDGET,
            memory: MemoryChoice::Arena,
            checks,
            ..Setup::default()
        };
        let picked: Vec<Entry> = corpus().unwrap().into_iter().filter(pick).collect();
        for entry in &picked {
            let found = check(entry, Engine::Kernel, &setup);
            assert!(found.is_err(), "{}: {checks:?}", entry.name);
        }
        picked.len()
    };
    let all = Checks::default();
    // The bounds of atomic accesses stay, with their alignment.
    let unbounded = noticed(
        Checks {
            bounds: false,
            ..all
        },
        &|entry| {
            entry.text.starts_with(";; both: memory_bounds at i")
                && !entry.name.starts_with("atomic-")
        },
    );
    assert!(unbounded > 10, "{unbounded} with loads and stores outside");
    // A quarter of a second each, which is the kernel's own bound for a loop.
    let unfuelled = noticed(Checks { fuel: false, ..all }, &|entry| {
        ["loop-empty", "slow-divide"].contains(&entry.name.as_str())
    });
    assert_eq!(unfuelled, 2);
}
