//! Record and replay before a promotion: the user tier goes on answering,
//! some of its messages are recorded with the memory before and after, and the very program
//! that is to get the slot has to do the same with each, over [maps of its own](crate::dry_run).
//! No live message runs twice.

mod made_up;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use ashway_abi::memory::{STATE_GUEST_PAGES, WASM_PAGE};
use ashway_abi::{Cause, Verdict};
use ashway_codegen::normalise::ir::FileOffset;
use ashway_codegen::normalise::{Lines, Module};
use ashway_handler::{Outcome, Stopped};
use ashway_trial::{Activation, Engine, NotRun, Setup, Trial, same_end};

use crate::budget::budget;
use crate::dry_run::{Blueprint, DryRun, Ended, first_difference};
use crate::error::NotPromoted;
use crate::instance::Instance;
use crate::version::Version;

pub use made_up::promote_rehearsed;

/// Messages that a promotion compares unless told otherwise.
pub const MESSAGES: usize = 64;

/// How long it waits for them.
pub const PATIENCE: Duration = Duration::from_millis(500);

/// What a recording may take: handlers with large memories have fewer messages
/// compared.
pub(crate) const MOST_BYTES: usize = 64 << 20;

/// Messages of a path, while they are recorded.
#[derive(Debug)]
pub struct Recording {
    /// Of which path.
    row: u32,
    /// What ran.
    version: Arc<Version>,
    most: usize,
    bytes: usize,
    moments: Vec<Moment>,
}

/// One activation in the user tier.
#[derive(Debug)]
pub(crate) struct Moment {
    /// The handler's memory and its state region.
    before: Vec<u8>,
    /// The headers in front of the message.
    front: Vec<u8>,
    message: Vec<u8>,
    /// What came of it.
    answer: Activation,
    after: Vec<u8>,
}

/// What an activation begins with: memory, headers and message.
type Inputs<'m> = (&'m [u8], &'m [u8], &'m [u8]);

impl Moment {
    fn inputs(&self) -> Inputs<'_> {
        (&self.before, &self.front, &self.message)
    }
}

impl Recording {
    /// Of at most so many messages of the path with this row, while this version runs.
    #[must_use]
    pub fn new(row: u32, version: Arc<Version>, most: usize) -> Self {
        Self {
            row,
            version,
            most,
            bytes: 0,
            moments: Vec::new(),
        }
    }

    /// Whether it is of this path, and of this version.
    #[must_use]
    pub fn is_of(&self, row: u32, version: u64) -> bool {
        (self.row, self.version.id) == (row, version)
    }

    /// Whether no more messages are wanted.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.moments.len() >= self.most || self.bytes >= MOST_BYTES
    }

    /// Begins to record a message, if this path's are wanted. Copies the handler's
    /// memory: 10 us for 128 KiB.
    #[must_use]
    pub(crate) fn before(
        &self,
        row: u32,
        instance: &Instance,
        front: &[u8],
        message: &[u8],
    ) -> Option<Half> {
        let wanted = row == self.row && !self.is_full();
        wanted.then(|| Half {
            before: instance.memory.snapshot(),
            front: front.to_vec(),
            message: message.to_vec(),
        })
    }

    /// Records what came of it: how it left the message. The function begins `at` this place.
    pub(crate) fn after(
        &mut self,
        half: Half,
        instance: &Instance,
        message: &[u8],
        outcome: &Outcome,
        at: FileOffset,
    ) {
        let verdict = outcome.verdict.map(|verdict| verdict as u32);
        let result = granted(verdict, instance, at);
        // Of one that does not go on, only how it came is compared.
        let goes_on = outcome.goes_on_changed() && result.is_ok();
        let left = if goes_on { message } else { &half.message };
        let moment = Moment {
            answer: Activation {
                result,
                message: left.to_vec(),
                dirty: outcome.dirty,
                fuel_left: outcome.fuel_left,
            },
            before: half.before,
            front: half.front,
            message: half.message,
            after: instance.memory.snapshot(),
        };
        self.bytes += 2 * (moment.before.len() + moment.message.len());
        self.moments.push(moment);
    }
}

/// A message whose handler has not run yet.
#[derive(Debug)]
pub(crate) struct Half {
    before: Vec<u8>,
    front: Vec<u8>,
    message: Vec<u8>,
}

/// What a verdict is: one that was not granted is none, and the function that begins `at` this
/// place is stopped for it.
fn granted(
    verdict: Result<u32, Stopped>,
    instance: &Instance,
    at: FileOffset,
) -> Result<u32, Stopped> {
    let cause = Cause::BadVerdict;
    match verdict {
        Ok(verdict) if verdict == Verdict::Reply as u32 && !instance.may_reply() => {
            Err(Stopped { cause, at })
        }
        verdict => verdict,
    }
}

/// What was compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compared {
    /// Messages that had the same end in both tiers.
    pub equal: usize,
    /// Messages that cannot be repeated: the application wrote the memory meanwhile, or
    /// its size; the handler asked for the time; a test run of the kernel's takes no
    /// message of that length with the room that the handler wants behind it; its headers have
    /// options, tags or extensions. Of a relay those
    /// that the kernel tier leaves to the user tier, and what was not sent in time.
    pub unclear: usize,
}

/// Messages of somebody's.
const RECORDED: &str = "recorded";

/// A message that the two tiers treat differently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    /// What they are.
    messages: &'static str,
    /// Which of them.
    number: usize,
    of: usize,
    message: Vec<u8>,
    what: String,
    /// Where the kernel tier was stopped, if it was.
    at: Option<u32>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 16;
        write!(
            f,
            "of {} {} messages number {} ({} bytes:",
            self.of,
            self.messages,
            self.number,
            self.message.len()
        )?;
        for byte in self.message.iter().take(SHOWN) {
            write!(f, " {byte:02x}")?;
        }
        if self.message.len() > SHOWN {
            write!(f, " …")?;
        }
        write!(f, ") has another end in the kernel tier: {}", self.what)
    }
}

impl Difference {
    /// Of a message that no handler has run.
    pub(crate) fn new(number: usize, of: usize, message: &[u8], what: String) -> Self {
        Self {
            messages: RECORDED,
            number,
            of,
            message: message.to_vec(),
            what,
            at: None,
        }
    }

    /// The same of messages that nobody has sent.
    fn made_up(self) -> Self {
        Self {
            messages: "made-up",
            ..self
        }
    }

    /// Why a handler is not promoted.
    fn refused(&self, lines: &Lines) -> NotPromoted {
        let place = self.at.and_then(|at| lines.at(at));
        NotPromoted {
            because: self.to_string(),
            line: place.map(|(file, line)| format!("{file}:{line}")),
            hint: "if no application writes behind the handler's memory, where its globals and \
                   tables are, this is a bug of Ashway: please report it with the handler; the \
                   path stays in the user tier"
                .to_owned(),
        }
    }
}

/// Has the kernel run what was recorded of a function, by the program of this blueprint;
/// milliseconds.
///
/// # Errors
///
/// The first message with another end, or why none can be run.
///
/// # Panics
///
/// If the recording is of a module that no version was read from.
pub fn compare(
    function: &str,
    time: Duration,
    recording: &Recording,
    blueprint: &Blueprint,
) -> Result<Compared, NotPromoted> {
    let not_run = |error: NotRun| NotPromoted {
        because: format!("the recorded messages cannot be compared: {error}"),
        line: None,
        hint: "`--no-shadow` promotes without".to_owned(),
    };
    let version = &recording.version;
    let module = version.module();
    let candidate = DryRun::new(blueprint).map_err(not_run)?;
    // Compiled once more, which takes longer than all the rest: only where it is needed.
    let mut reference = None;
    replay(
        &module,
        &recording.moments,
        |moment| candidate.run(&moment.before, &moment.front, &moment.message),
        |moment| {
            let setup = Setup {
                budget: budget(time),
                ..Setup::default()
            };
            let trial = match &mut reference {
                Some(trial) => trial,
                none => none.insert(Trial::new(&module, Engine::User, &setup)?),
            };
            repeat(&module, trial, function, moment.inputs())
        },
    )
    .map_err(not_run)?
    .map_err(|difference| difference.refused(&version.lines))
}

/// Has both run each message; `reference` only where `candidate` has another end.
fn replay(
    module: &Module<'_>,
    moments: &[Moment],
    mut candidate: impl FnMut(&Moment) -> Result<Option<Ended>, NotRun>,
    mut reference: impl FnMut(&Moment) -> Result<Ended, NotRun>,
) -> Result<Result<Compared, Difference>, NotRun> {
    let guest_bytes = module.maximum_pages as usize * WASM_PAGE;
    let private = module.parallel.map_or(0..0, |it| it.private(module));
    let mut compared = Compared::default();
    for (moment, number) in moments.iter().zip(1..) {
        if !is_own_size(module, moment, guest_bytes) {
            compared.unclear += 1;
            continue;
        }
        let Some(end) = candidate(moment)? else {
            compared.unclear += 1;
            continue;
        };
        let Some(what) = differs(moment, &end, &private) else {
            compared.equal += 1;
            continue;
        };
        let is_late = ran_out(&end.activation) || ran_out(&moment.answer);
        if is_late || differs(moment, &reference(moment)?, &private).is_some() {
            compared.unclear += 1;
            continue;
        }
        return Ok(Err(Difference {
            messages: RECORDED,
            number,
            of: moments.len(),
            message: moment.message.clone(),
            what,
            at: end.activation.result.err().map(|stopped| stopped.at),
        }));
    }
    Ok(Ok(compared))
}

/// Whether the size of the memory is one that the handler can have given it. Any other is
/// the application's, and the user tier, which has a size of its own, believes it less than
/// the kernel tier does.
fn is_own_size(module: &Module<'_>, moment: &Moment, guest_bytes: usize) -> bool {
    let sizes = module.initial_pages..=module.maximum_pages;
    let alleged = moment.before[guest_bytes + STATE_GUEST_PAGES..].first_chunk();
    let alleged = alleged.map(|bytes| u32::from_le_bytes(*bytes));
    // One that cannot grow has no use for it.
    sizes.start() == sizes.end() || alleged.is_some_and(|alleged| sizes.contains(&alleged))
}

/// Whether the clock ended it, which is nobody's doing.
fn ran_out(end: &Activation) -> bool {
    end.result
        .is_err_and(|stopped| stopped.cause == Cause::Time)
}

/// Runs a message over the memory that it met, in the user tier.
fn repeat(
    module: &Module<'_>,
    trial: &mut Trial<'_>,
    function: &str,
    (before, front, message): Inputs<'_>,
) -> Result<Ended, NotRun> {
    let (guest, state) = before.split_at(trial.guest().len());
    trial.restore(guest, &state[..module.state_bytes]);
    Ok(Ended {
        activation: trial.activate_behind(function, front, message, 0)?,
        memory: [trial.guest(), trial.state()].concat(),
        wrong_answer: None,
    })
}

/// What is different, if anything is, but for the bytes of memory that are each CPU's own.
fn differs(moment: &Moment, end: &Ended, private: &Range<usize>) -> Option<String> {
    let Ended {
        activation,
        memory,
        wrong_answer,
    } = end;
    let answer = &moment.answer;
    if !same_end(
        [Engine::User, Engine::Kernel],
        &answer.result,
        &activation.result,
    ) {
        let (was, is) = (named(answer.result), named(activation.result));
        return Some(format!("{is}, in the user tier {was}"));
    }
    if answer.message != activation.message {
        let at = first_difference(&answer.message, &activation.message);
        return Some(format!("byte {at} of the answer is another"));
    }
    if answer.dirty != activation.dirty {
        return Some("only in one of them the handler changed the message".to_owned());
    }
    if let Some(at) = wrong_answer {
        return Some(format!("byte {at} of the frame that leaves is another"));
    }
    // Either may have more room behind it.
    let room = moment.after.len().min(memory.len());
    let before = private.start.min(room);
    let behind = private.end.min(room);
    [0..before, behind..room].into_iter().find_map(|part| {
        let (was, is) = (&moment.after[part.clone()], &memory[part.clone()]);
        (was != is).then(|| {
            let at = part.start + first_difference(was, is);
            format!("byte {at:#x} of the memory is another")
        })
    })
}

fn named(result: Result<u32, Stopped>) -> String {
    match result {
        Ok(verdict) => match Verdict::from_number(verdict) {
            Some(verdict) => format!("`{}`", verdict.name()),
            None => format!("verdict {verdict}"),
        },
        Err(stopped) => format!("stopped ({})", stopped.cause.name()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use ashway_codegen::normalise::{Limits, normalise};

    /// Adds the message's first byte to a word and answers with the sum.
    const SUM: &str = r#"(module
        (import "ashway" "msg_load8" (func $load (param i32) (result i32)))
        (import "ashway" "msg_store8" (func $store (param i32 i32)))
        (memory (export "memory") 1 1)
        (func (export "on_rx") (param i32 i32) (result i32)
          (i32.store (i32.const 64)
            (i32.add (i32.load (i32.const 64)) (call $load (i32.const 0))))
          (call $store (i32.const 0) (i32.load (i32.const 64)))
          (i32.const 1)))"#;

    /// What `reference` does with some messages, as a node records it.
    fn record(wasm: &[u8]) -> Vec<Moment> {
        record_messages(wasm, 4)
    }

    /// The same with messages of this length.
    fn record_messages(wasm: &[u8], len: usize) -> Vec<Moment> {
        let module = normalise(wasm, &Limits::default()).unwrap();
        let mut trial = Trial::new(&module, Engine::User, &Setup::default()).unwrap();
        let all = |trial: &Trial<'_>| [trial.guest(), trial.state()].concat();
        (1..=8)
            .map(|byte| {
                let before = all(&trial);
                let message = vec![byte; len];
                let answer = trial.activate("on_rx", &message, 0).unwrap();
                Moment {
                    before,
                    front: Vec::new(),
                    message,
                    answer,
                    after: all(&trial),
                }
            })
            .collect()
    }

    fn compare(moments: &[Moment], wasm: &[u8], candidate: &[u8]) -> Result<Compared, Difference> {
        let limits = Limits::default();
        let (one, other) = (normalise(wasm, &limits), normalise(candidate, &limits));
        let (one, other) = (one.unwrap(), other.unwrap());
        let setup = Setup::default();
        let mut reference = Trial::new(&one, Engine::User, &setup).unwrap();
        let mut candidate = Trial::new(&other, Engine::Interpreter, &setup).unwrap();
        replay(
            &one,
            moments,
            |moment| repeat(&other, &mut candidate, "on_rx", moment.inputs()).map(Some),
            |moment| repeat(&one, &mut reference, "on_rx", moment.inputs()),
        )
        .unwrap()
    }

    #[test]
    fn what_was_recorded_has_the_same_end() {
        let wasm = wat::parse_str(SUM).unwrap();
        let all = Compared {
            equal: 8,
            unclear: 0,
        };
        assert_eq!(compare(&record(&wasm), &wasm, &wasm), Ok(all));
    }

    /// The candidate is another module: a translation with a mistake in it.
    #[test]
    fn a_mistranslated_handler_is_caught_by_the_first_message_that_shows_it() {
        let wasm = wat::parse_str(SUM).unwrap();
        let end = "(i32.const 1)))";
        for (from, to, says) in [
            ("i32.add", "i32.sub", "byte 0 of the answer"),
            (end, "(i32.const 5)))", "`drop`, in the user tier `reply`"),
            (end, "unreachable))", "stopped (unreachable)"),
            // Shows in the memory alone.
            (
                end,
                "(i32.store8 (i32.const 80) (i32.const 3)) (i32.const 1)))",
                "byte 0x50 of the memory",
            ),
        ] {
            let wrong = wat::parse_str(SUM.replace(from, to)).unwrap();
            let found = compare(&record(&wasm), &wasm, &wrong).unwrap_err();
            assert!(found.to_string().contains(says), "{found}");
            assert_eq!((found.number, found.of), (1, 8));
        }
    }

    #[test]
    fn what_others_did_to_the_memory_is_nobodys_mistake() {
        let wasm = wat::parse_str(SUM).unwrap();
        let mut moments = record(&wasm);
        moments[3].after[4096] ^= 1;
        let compared = compare(&moments, &wasm, &wasm).unwrap();
        assert_eq!((compared.equal, compared.unclear), (7, 1));
    }

    /// The application can write the size of the memory, which lies behind it.
    #[test]
    fn a_size_that_the_application_wrote_is_nobodys_mistake() {
        let grows = SUM.replace("1 1)", "2 4)").replace(
            "(i32.const 1)))",
            "(drop (memory.grow (i32.const 1))) (i32.const 1)))",
        );
        let wasm = wat::parse_str(grows).unwrap();
        let module = normalise(&wasm, &Limits::default()).unwrap();
        for (alleged, equal, unclear) in [(2_u32, 1, 0), (3, 1, 0), (1, 0, 1), (1 << 20, 0, 1)] {
            let mut trial = Trial::new(&module, Engine::User, &Setup::default()).unwrap();
            let (guest, mut state) = (trial.guest().clone(), trial.state().clone());
            state[..4].copy_from_slice(&alleged.to_le_bytes());
            trial.restore(&guest, &state);
            let moment = Moment {
                before: [guest, state].concat(),
                front: Vec::new(),
                message: vec![1; 4],
                answer: trial.activate("on_rx", &[1; 4], 0).unwrap(),
                after: [trial.guest(), trial.state()].concat(),
            };
            let compared = compare(&[moment], &wasm, &wasm);
            assert_eq!(compared, Ok(Compared { equal, unclear }), "{alleged}");
        }
    }
}
