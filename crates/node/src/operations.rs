//! Operations: requests that the node finishes later, when the compile thread has a result
//! or enough messages were recorded. Other requests are served meanwhile.
//!
//! Each is in one table: what it is, who asked for it, and the [`Step`] that follows when
//! what it waits for has come. A [`Job`] is what the compile thread does for
//! it, and an [`Outcome`] is what came of that; both are data. When an outcome has come the
//! node alone goes on ([`Node::go_on`]), and looks again whether what was asked still fits:
//! others may have changed the node meanwhile. An operation can be cancelled while it waits:
//! no handler, path or tier has changed until then.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ashway_api::Answer as Done;
use ashway_api::answer::{self, UnderWay};
use ashway_api::request::Bind;
use ashway_handler::Engine;
use ashway_kernel::{Exchange, Program};

use super::apply::order::{self, Compiled, Next};
use super::apply::{Applying, words};
use super::authority::Authority;
use super::binding::Loading;
use super::entry::Making;
use super::observe::{self, Observing};
use super::promote::Promoting;
use super::relay_shadow::{RelayPromotion, RelayShadow};
use super::shadow::Shadow;
use super::swap::{self, Candidate};
use super::{Node, Owner, RunError, say, serve};
use crate::compile::{self, Ended};
use crate::control::{Answer, Caller};
use crate::request::Refusal;
use ashway_config::HandlerConfig;
use ashway_worker::instance::{
    Allowance, Instance, InstanceError, NewInstance, NotPromoted, Promoted,
};
use ashway_worker::plan::InstancePlan;
use ashway_worker::programs::{DemuxMaps, NodeMaps};
use ashway_worker::relay_shadow::{self, Replay};
use ashway_worker::shadow::{self, Compared, Recording};

/// The operations that are under way, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Operations {
    all: BTreeMap<u64, (Operation, Step)>,
    /// How many there have been.
    count: u64,
}

/// An operation, but for the step that it waits for.
#[derive(Debug)]
pub(super) struct Operation {
    number: u64,
    /// The request's name, or what the node does by itself.
    verb: &'static str,
    /// A handler, a path or a file.
    about: String,
    authority: Authority,
    begun: Instant,
    report: Report,
    /// While this is held the compile thread has a reason to begin a job of it.
    wanted: Arc<()>,
}

/// Who is told how an operation has ended.
#[derive(Debug)]
pub(super) enum Report {
    /// Who has asked.
    Caller(Caller),
    /// Whoever reads the node's lines: what became of applying a file.
    Applied,
    /// The same: why a path, which this names, was not promoted when the node started.
    StartPromotion(String),
    /// Nobody; `status` shows what came of it.
    Nobody,
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
    Bind(Box<Bind>, Option<Owner>),
    /// For a program, to move a path to the kernel tier.
    Promote(Promoting),
    /// For messages that are recorded, to be compared.
    Record(Shadow),
    /// For their comparison.
    Compare(Promoting, Promoted),
    /// The same of a relay's.
    RecordRelay(RelayShadow),
    CompareRelay(RelayPromotion),
    /// For the next version of a handler.
    Swap(Arc<Instance>),
    /// For programs that observe.
    Observe(Observing),
    /// For a configuration that is read.
    Read {
        only_plan: bool,
    },
    /// For what comes with it.
    Apply(Box<Applying>),
    /// For an interface's entry program.
    Entry {
        iface: usize,
    },
    /// For that program to be in its place.
    Exchange {
        iface: usize,
    },
}

/// What the compile thread does.
pub(super) enum Job {
    /// Nothing: what was submitted before is done when this has ended.
    Nothing,
    /// Makes an instance.
    Load {
        handler: HandlerConfig,
        plan: InstancePlan,
        engine: Engine,
        maps: Option<Arc<NodeMaps>>,
        arena: bool,
    },
    /// Compiles a handler's function for the kernel tier.
    Program {
        instance: Arc<Instance>,
        maps: Arc<NodeMaps>,
        function: String,
        allowed: Allowance,
    },
    /// Has the kernel run recorded messages.
    Compare {
        function: String,
        budget: Duration,
        recording: Recording,
    },
    /// Has our interpreter run a relay's.
    CompareRelay {
        replay: Box<Replay>,
        recording: relay_shadow::Recording,
    },
    /// Compiles a version of a handler.
    Version(Box<swap::Next>),
    /// Makes programs that observe.
    Observe {
        programs: Vec<observe::Missing>,
        maps: Option<Arc<NodeMaps>>,
        notes: Option<Arc<OwnedFd>>,
    },
    /// Reads a configuration and what it names.
    Read(PathBuf),
    /// Compiles what comes with it.
    Apply {
        order: order::Order,
        engine: Engine,
        maps: Option<Arc<NodeMaps>>,
        arena: bool,
    },
    /// Makes an entry program.
    Entry(Box<Making>),
    /// Puts it in its place.
    Exchange(Exchange),
}

/// What came of a [`Job`].
pub(super) enum Outcome {
    Nothing,
    Load(Box<Result<NewInstance, InstanceError>>),
    Program(Result<Promoted, NotPromoted>),
    Compare(Result<Compared, NotPromoted>),
    Version(Result<Candidate, InstanceError>),
    Observe(Vec<observe::MadeProgram>),
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
            Self::Load {
                handler,
                plan,
                engine,
                maps,
                arena,
            } => {
                let maps = maps.as_deref();
                let made = Instance::create(&handler, &[], &plan.queue, &engine, maps, arena);
                Outcome::Load(Box::new(made))
            }
            Self::Program {
                instance,
                maps,
                function,
                allowed,
            } => {
                let version = instance.version();
                Outcome::Program(instance.promote(&maps, &version, &function, allowed))
            }
            Self::Compare {
                function,
                budget,
                recording,
            } => Outcome::Compare(shadow::compare(&function, budget, &recording)),
            Self::CompareRelay {
                mut replay,
                recording,
            } => Outcome::Compare(replay.compare(&recording)),
            Self::Version(next) => Outcome::Version(next.compile()),
            Self::Observe {
                programs,
                maps: Some(maps),
                notes: Some(notes),
            } => {
                let made = programs
                    .into_iter()
                    .map(|program| program.make(&maps, notes.as_fd()));
                Outcome::Observe(made.collect())
            }
            Self::Observe { .. } => Outcome::Observe(Vec::new()),
            Self::Read(file) => Outcome::Read(order::read(&file)),
            Self::Apply {
                order,
                engine,
                maps,
                arena,
            } => Outcome::Apply(order.compile(&engine, maps.as_deref(), arena)),
            Self::Entry(making) => Outcome::Entry(Box::new(making.make())),
            Self::Exchange(exchange) => Outcome::Exchange(exchange.make()),
        }
    }
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
        Operation {
            number: self.count,
            verb,
            about: about.into(),
            authority: match &report {
                Report::Caller(caller) => caller.authority.clone(),
                _ => Authority::Node,
            },
            begun: Instant::now(),
            report,
            wanted: Arc::default(),
        }
    }

    /// Has an operation wait.
    pub(super) fn wait(&mut self, operation: Operation, step: Step) {
        self.all.insert(operation.number, (operation, step));
    }

    /// Takes one out.
    pub(super) fn take(&mut self, number: u64) -> Option<(Operation, Step)> {
        self.all.remove(&number)
    }

    /// The numbers of those that wait for such a step.
    pub(super) fn numbers_of(&self, is: impl Fn(&Step) -> bool) -> impl Iterator<Item = u64> {
        let all = self.all.iter();
        all.filter_map(move |(number, (_, step))| is(step).then_some(*number))
    }

    /// The steps that follow.
    pub(super) fn steps(&self) -> impl Iterator<Item = &Step> {
        self.all.values().map(|(_, step)| step)
    }

    /// As `status` has them.
    pub(super) fn describe(&self) -> Vec<UnderWay> {
        // The start is nobody's request.
        let asked = self.all.values().filter(|(_, step)| step.is_asked());
        let under_way = asked.map(|(operation, step)| UnderWay {
            operation: operation.describe(),
            waits_for: step.waits_for().into(),
            age_ms: operation.begun.elapsed().as_millis() as u64,
        });
        under_way.collect()
    }
}

impl Operation {
    /// Its number.
    pub(super) const fn number(&self) -> u64 {
        self.number
    }

    /// When it began.
    pub(super) const fn begun(&self) -> Instant {
        self.begun
    }

    /// Tells how it has ended.
    pub(super) fn end(self, answer: impl Into<Answer>) {
        match (self.report, answer.into()) {
            (Report::Caller(caller), answer) => caller.answer(answer),
            (Report::Applied, Answer::Ok(Done::Plan(done))) => words::tell(&done),
            (Report::Applied, Answer::Refused(refusal)) => words::tell_refused(&refusal),
            (Report::StartPromotion(path), Answer::Refused(Refusal { message, hint, .. })) => {
                say(&format!("path {path} stays in the user tier: {message}"));
                say(&format!("  hint: {hint}"));
            }
            (Report::Applied | Report::StartPromotion(_) | Report::Nobody, _) => {}
        }
    }

    fn describe(&self) -> answer::Operation {
        answer::Operation {
            operation: self.number,
            does: self.verb.into(),
            about: self.about.clone(),
            by: self.authority.to_string(),
        }
    }
}

impl Step {
    /// Whether it waits for messages, not for the compile thread.
    pub(super) const fn waits_for_messages(&self) -> bool {
        matches!(self, Self::Record(_) | Self::RecordRelay(_))
    }

    /// Whether somebody has asked for it.
    const fn is_asked(&self) -> bool {
        !matches!(self, Self::Start { .. })
    }

    /// Whether it can be left as if nobody had asked: a program that is about to be in its
    /// place may be there already.
    const fn can_be_cancelled(&self) -> bool {
        self.is_asked() && !matches!(self, Self::Exchange { .. })
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
            Self::Bind(..) => "Bind",
            Self::Promote(_) => "Promote",
            Self::Record(_) => "Record",
            Self::Compare(..) => "Compare",
            Self::RecordRelay(_) => "RecordRelay",
            Self::CompareRelay(_) => "CompareRelay",
            Self::Swap(_) => "Swap",
            Self::Observe(_) => "Observe",
            Self::Read { .. } => "Read",
            Self::Apply(_) => "Apply",
            Self::Entry { .. } => "Entry",
            Self::Exchange { .. } => "Exchange",
        })
    }
}

impl Node {
    /// Has an operation wait for what the compile thread does.
    pub(super) fn submit(&mut self, operation: Operation, step: Step, job: Job) {
        let (number, wanted) = (operation.number, &operation.wanted);
        self.compile_thread.submit(number, wanted, job);
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
                Step::Entry { iface } => self.drop_next(*iface),
                Step::Exchange { iface } => self.replace_entry(*iface),
                _ => {}
            }
            let hint = "this is a bug of Ashway; please report it, with what was compiled";
            return operation.end(Refusal::failed(message, hint));
        };
        match (step, outcome) {
            (Step::Start { socket }, Outcome::Nothing) => serve::say_ready(self, &socket),
            (Step::Load(loading), Outcome::Load(made)) => self.loaded(operation, *loading, *made),
            (Step::Bind(request, owner), Outcome::Program(compiled)) => {
                let begun = operation.begun;
                operation.end(self.add_path(&request, Some(compiled), owner, begun));
            }
            (Step::Promote(promoting), Outcome::Program(compiled)) => {
                self.compiled(operation, promoting, compiled);
            }
            (Step::Compare(promoting, promoted), Outcome::Compare(compared)) => {
                self.compared(operation, promoting, promoted, compared);
            }
            (Step::CompareRelay(promotion), Outcome::Compare(compared)) => {
                operation.end(self.relay_compared(promotion, compared));
            }
            (Step::Swap(instance), Outcome::Version(candidate)) => {
                self.take_version(operation, &instance, candidate, engine);
            }
            (Step::Observe(observing), Outcome::Observe(made)) => {
                self.observers_made(operation, observing, made);
            }
            (Step::Read { only_plan }, Outcome::Read(next)) => {
                self.prepare(operation, next, only_plan, engine);
            }
            (Step::Apply(applying), Outcome::Apply(compiled)) => {
                self.finish(operation, *applying, compiled, engine);
            }
            (Step::Entry { iface }, Outcome::Entry(made)) => {
                self.entry_made(operation, iface, *made);
            }
            (Step::Exchange { iface }, Outcome::Exchange(exchanged)) => {
                self.entry_placed(iface, exchanged);
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
            Step::Entry { iface } => self.drop_next(iface),
            _ => {}
        }
        let cancelled = operation.describe();
        let hint = "ask once more if it is still wanted";
        operation.end(Refusal::failed("it was cancelled", hint));
        Ok(cancelled)
    }
}
