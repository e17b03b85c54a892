//! Operations: requests that the node finishes later, when the compile thread has a result
//! or enough messages were recorded. Other requests are served meanwhile.
//!
//! Each is in one table: what it is, who asked for it, and the [`Step`] that follows when
//! what it waits for has come. A [`Job`] is what the compile thread does for
//! it, and an [`Outcome`] is what came of that; both are data. When an outcome has come the
//! node alone goes on ([`Node::go_on`]), and looks again whether what was asked still fits:
//! others may have changed the node meanwhile. An operation can be cancelled while it waits:
//! no handler, path or tier has changed until then.
//!
//! Every kind of operation has a module, with the data of its steps and of its jobs, the
//! methods of [`Node`] that begin it and those that go on with it. This table knows them all,
//! and none of them knows the table: they [submit](Node::submit) their own types.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::PathBuf;

use ashway_api::answer::{self, UnderWay};
use ashway_handler::Engine;
use ashway_kernel::{Exchange, Program};
use ashway_path::places::PathId;

use super::apply::order::{Compiled, Next, Order, ReadJob};
use super::apply::{Applying, Reading};
use super::binding::PendingBind;
use super::entry::{EntryExchange, EntryProgram, Making};
use super::load::{LoadJob, Loading};
use super::observe::{MadeProgram, ObserveJob, Observing};
use super::operation::{Operation, Report};
use super::promote::{ProgramJob, ProgramJobs, Promoting};
use super::relay_shadow::{RelayCompareJob, RelayPromotion, RelayShadow};
use super::shadow::{CompareJob, Comparing, Shadow};
use super::swap::{self, Candidate, Swapping};
use super::{Node, RunError};
use crate::compile::{self, Ended};
use crate::request::Refusal;
use ashway_worker::instance::{InstanceError, NewInstance, NotPromoted, Promoted};
use ashway_worker::programs::DemuxMaps;
use ashway_worker::shadow::Compared;

/// The operations that are under way, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Operations {
    all: BTreeMap<u64, (Operation, Step)>,
    /// How many there have been.
    count: u64,
}

/// What an operation waits for, and what is to be done then.
pub(super) enum Step {
    /// The node starts: for the promotions of its configuration.
    Start {
        socket: PathBuf,
    },
    /// For an instance.
    Load(Box<Loading>),
    /// For a program, to make a path that may run in the kernel tier.
    Bind(PendingBind),
    /// For a program, to move a path to the kernel tier.
    Promote(Promoting),
    /// For messages that are recorded, to be compared.
    Record(Shadow),
    /// For their comparison.
    Compare(Comparing),
    /// The same of a relay's.
    RecordRelay(RelayShadow),
    CompareRelay(RelayPromotion),
    /// For the next version of a handler.
    Swap(Swapping),
    /// For programs that observe.
    Observe(Observing),
    /// For a configuration that is read.
    Read(Reading),
    /// For what comes with it.
    Apply(Box<Applying>),
    /// For an interface's entry program.
    Entry(EntryProgram),
    /// For that program to be in its place.
    Exchange(EntryExchange),
}

/// What the compile thread does.
pub(super) enum Job {
    /// Nothing: what was submitted before is done when this has ended.
    Nothing,
    /// Makes an instance.
    Load(LoadJob),
    /// Compiles a handler's function for the kernel tier.
    Program(ProgramJob),
    /// The same of each of its instances.
    Programs(ProgramJobs),
    /// Has the kernel run recorded messages.
    Compare(CompareJob),
    /// Has our interpreter run a relay's.
    CompareRelay(RelayCompareJob),
    /// Compiles a version of a handler.
    Version(Box<swap::Next>),
    /// Makes programs that observe.
    Observe(ObserveJob),
    /// Reads a configuration and what it names.
    Read(ReadJob),
    /// Compiles what comes with it.
    Apply(Order),
    /// Makes an entry program.
    Entry(Box<Making>),
    /// Puts it in its place.
    Exchange(Exchange),
}

/// What came of a [`Job`].
pub(super) enum Outcome {
    Nothing,
    Load(Box<Result<Vec<NewInstance>, InstanceError>>),
    Program(Result<Promoted, NotPromoted>),
    Programs(Vec<Result<Promoted, NotPromoted>>),
    Compare(Result<Compared, NotPromoted>),
    Version(Result<Candidate, InstanceError>),
    Observe(Vec<MadeProgram>),
    Read(Result<Next, Refusal>),
    Apply(Compiled),
    Entry(Box<Result<(Program, DemuxMaps), RunError>>),
    Exchange(io::Result<()>),
}

impl compile::Job for Job {
    type Outcome = Outcome;

    fn run(self) -> Outcome {
        match self {
            Self::Nothing => Outcome::Nothing,
            Self::Load(job) => Outcome::Load(Box::new(job.run())),
            Self::Program(job) => Outcome::Program(job.run()),
            Self::Programs(job) => Outcome::Programs(job.run()),
            Self::Compare(job) => Outcome::Compare(job.run()),
            Self::CompareRelay(job) => Outcome::Compare(job.run()),
            Self::Version(job) => Outcome::Version(job.run()),
            Self::Observe(job) => Outcome::Observe(job.run()),
            Self::Read(job) => Outcome::Read(job.run()),
            Self::Apply(job) => Outcome::Apply(job.run()),
            Self::Entry(job) => Outcome::Entry(Box::new(job.run())),
            Self::Exchange(exchange) => Outcome::Exchange(exchange.make()),
        }
    }
}

/// Says which step, or which job, has data of which type: `Step: Swap(Swapping)` becomes
/// `impl From<Swapping> for Step`.
macro_rules! data_of {
    ($table:ident: $($name:ident($data:ty)),+ $(,)?) => {
        $(impl From<$data> for $table {
            fn from(data: $data) -> Self {
                Self::$name(data)
            }
        })+
    };
}

data_of! { Step:
    Load(Box<Loading>),
    Bind(PendingBind),
    Promote(Promoting),
    Record(Shadow),
    Compare(Comparing),
    RecordRelay(RelayShadow),
    CompareRelay(RelayPromotion),
    Swap(Swapping),
    Observe(Observing),
    Read(Reading),
    Apply(Box<Applying>),
    Entry(EntryProgram),
    Exchange(EntryExchange),
}

data_of! { Job:
    Load(LoadJob),
    Program(ProgramJob),
    Programs(ProgramJobs),
    Compare(CompareJob),
    CompareRelay(RelayCompareJob),
    Version(Box<swap::Next>),
    Observe(ObserveJob),
    Read(ReadJob),
    Apply(Order),
    Entry(Box<Making>),
    Exchange(Exchange),
}

impl Operations {
    /// The next operation, which is not in the table before it waits.
    pub(super) fn next(
        &mut self,
        verb: &'static str,
        about: impl Into<String>,
        report: Report,
    ) -> Operation {
        self.count += 1;
        Operation::new(self.count, verb, about.into(), report)
    }

    /// Has an operation wait.
    pub(super) fn wait(&mut self, operation: Operation, step: impl Into<Step>) {
        self.all
            .insert(operation.number(), (operation, step.into()));
    }

    /// Takes one out.
    pub(super) fn take(&mut self, number: u64) -> Option<(Operation, Step)> {
        self.all.remove(&number)
    }

    /// Promotions that wait for messages, by their numbers.
    pub(super) fn shadows(&self) -> impl Iterator<Item = (u64, &Shadow)> {
        self.all
            .iter()
            .filter_map(|(number, (_, step))| match step {
                Step::Record(shadow) => Some((*number, shadow)),
                _ => None,
            })
    }

    /// Takes out one of these.
    pub(super) fn take_shadow(&mut self, number: u64) -> Option<(Operation, Shadow)> {
        match self.take(number)? {
            (operation, Step::Record(shadow)) => Some((operation, shadow)),
            _ => None,
        }
    }

    /// Promotions of relays that wait for messages, by their numbers.
    pub(super) fn relay_shadows(&self) -> impl Iterator<Item = (u64, &RelayShadow)> {
        self.all
            .iter()
            .filter_map(|(number, (_, step))| match step {
                Step::RecordRelay(shadow) => Some((*number, shadow)),
                _ => None,
            })
    }

    /// Takes out one of these.
    pub(super) fn take_relay_shadow(&mut self, number: u64) -> Option<(Operation, RelayShadow)> {
        match self.take(number)? {
            (operation, Step::RecordRelay(shadow)) => Some((operation, shadow)),
            _ => None,
        }
    }

    /// The path of a relay that is being promoted, if one is.
    pub(super) fn promoted_relay(&self) -> Option<PathId> {
        self.all.values().find_map(|(_, step)| match step {
            Step::RecordRelay(shadow) => Some(shadow.path()),
            Step::CompareRelay(promotion) => Some(promotion.path()),
            _ => None,
        })
    }

    /// Whether one waits for programs that observe.
    pub(super) fn wait_for_observers(&self) -> bool {
        let mut steps = self.all.values().map(|(_, step)| step);
        steps.any(|step| matches!(step, Step::Observe(_)))
    }

    /// One that makes programs for the hook at which the node's run now, if there is any. Those
    /// of interfaces only begin anew.
    pub(super) fn busy(&self) -> Option<String> {
        let mut all = self.all.values();
        let (operation, _) = all.find(|(_, step)| {
            step.is_asked() && !matches!(step, Step::Entry(_) | Step::Exchange(_) | Step::Read(_))
        })?;
        let described = operation.describe();
        Some(format!("`{}` of `{}`", described.does, described.about))
    }

    /// Whether one waits for messages.
    pub(super) fn wait_for_messages(&self) -> bool {
        self.all.values().any(|(_, step)| step.waits_for_messages())
    }

    /// As `status` has them.
    pub(super) fn describe(&self) -> Vec<UnderWay> {
        // The start is nobody's request.
        let asked = self.all.values().filter(|(_, step)| step.is_asked());
        let under_way = asked.map(|(operation, step)| UnderWay {
            operation: operation.describe(),
            waits_for: step.waits_for().into(),
            age_ms: operation.begun().elapsed().as_millis() as u64,
        });
        under_way.collect()
    }
}

impl Step {
    /// Whether it waits for messages, not for the compile thread.
    const fn waits_for_messages(&self) -> bool {
        matches!(self, Self::Record(_) | Self::RecordRelay(_))
    }

    /// Whether somebody has asked for it.
    const fn is_asked(&self) -> bool {
        !matches!(self, Self::Start { .. })
    }

    /// Whether it can be left as if nobody had asked: a program that is about to be in its
    /// place may be there already.
    const fn can_be_cancelled(&self) -> bool {
        self.is_asked() && !matches!(self, Self::Exchange(_))
    }

    const fn waits_for(&self) -> &'static str {
        if self.waits_for_messages() {
            "messages"
        } else {
            "the compile thread"
        }
    }
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Start { .. } => "Start",
            Self::Load(_) => "Load",
            Self::Bind(_) => "Bind",
            Self::Promote(_) => "Promote",
            Self::Record(_) => "Record",
            Self::Compare(_) => "Compare",
            Self::RecordRelay(_) => "RecordRelay",
            Self::CompareRelay(_) => "CompareRelay",
            Self::Swap(_) => "Swap",
            Self::Observe(_) => "Observe",
            Self::Read(_) => "Read",
            Self::Apply(_) => "Apply",
            Self::Entry(_) => "Entry",
            Self::Exchange(_) => "Exchange",
        })
    }
}

impl Node {
    /// Has an operation wait for what the compile thread does.
    pub(super) fn submit(
        &mut self,
        operation: Operation,
        step: impl Into<Step>,
        job: impl Into<Job>,
    ) {
        let (number, wanted) = (operation.number(), operation.wanted());
        self.compile_thread.submit(number, wanted, job.into());
        self.operations.wait(operation, step);
    }

    /// Goes on with the operation whose job has ended.
    pub(super) fn go_on(&mut self, (number, outcome): Ended<Job>, engine: &Engine) {
        let Some((operation, step)) = self.operations.take(number) else {
            // It was cancelled.
            return;
        };
        let Some(outcome) = outcome else {
            let message = "the node's compile thread has failed at it";
            match &step {
                Step::Observe(observing) => self.fail_missing(observing, message),
                Step::Entry(entry) => self.drop_next(entry.iface),
                Step::Exchange(entry) => self.replace_entry(entry.iface),
                _ => {}
            }
            let hint = "this is a bug of Ashway; please report it, with what was compiled";
            return operation.end(Refusal::failed(message, hint));
        };
        match (step, outcome) {
            (Step::Start { socket }, Outcome::Nothing) => {
                self.say_ready(&socket);
                self.begin_captures();
            }
            (Step::Load(loading), Outcome::Load(made)) => self.loaded(operation, *loading, *made),
            (Step::Bind(pending), Outcome::Programs(compiled)) => {
                self.bind_compiled(operation, pending, compiled);
            }
            (Step::Promote(promoting), Outcome::Program(compiled)) => {
                self.compiled(operation, promoting, compiled);
            }
            (Step::Compare(comparing), Outcome::Compare(compared)) => {
                self.compared(operation, comparing, compared);
            }
            (Step::CompareRelay(promotion), Outcome::Compare(compared)) => {
                operation.end(self.relay_compared(promotion, compared));
            }
            (Step::Swap(swapping), Outcome::Version(candidate)) => {
                self.take_version(operation, &swapping, candidate, engine);
            }
            (Step::Observe(observing), Outcome::Observe(made)) => {
                self.observers_made(operation, observing, made);
            }
            (Step::Read(reading), Outcome::Read(next)) => {
                self.prepare(operation, reading, next, engine);
            }
            (Step::Apply(applying), Outcome::Apply(compiled)) => {
                self.finish(operation, *applying, compiled, engine);
            }
            (Step::Entry(entry), Outcome::Entry(made)) => {
                self.entry_made(operation, entry.iface, *made);
            }
            (Step::Exchange(entry), Outcome::Exchange(exchanged)) => {
                self.entry_placed(entry.iface, exchanged);
            }
            (step, _) => unreachable!("{operation:?} did not wait for this: {step:?}"),
        }
    }

    /// Has an operation end that waits.
    ///
    /// # Errors
    ///
    /// If it does not wait: it has ended.
    pub(super) fn cancel(&mut self, number: u64) -> Result<answer::Operation, Refusal> {
        let known = self.operations.all.get(&number);
        let waits = known.is_some_and(|(_, step)| step.can_be_cancelled());
        let waiting = waits.then(|| self.operations.take(number)).flatten();
        let Some((operation, step)) = waiting else {
            return Err(Refusal::failed(
                format!("no operation {number} is under way that could be cancelled"),
                "`ashway status` shows those that are",
            ));
        };
        match step {
            Step::Record(shadow) => drop(shadow.recording()),
            Step::Observe(observing) => {
                self.forget_missing(&observing);
                // Nobody may be left who observes.
                self.look_who_observes();
            }
            Step::Entry(entry) => self.drop_next(entry.iface),
            _ => {}
        }
        let cancelled = operation.describe();
        let hint = "ask once more if it is still wanted";
        operation.end(Refusal::failed("it was cancelled", hint));
        Ok(cancelled)
    }
}
