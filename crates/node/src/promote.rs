//! Moving a path to the kernel tier: its handler is compiled for it, on the compile thread,
//! what it does there may be compared with the user tier first ([`super::shadow`]), and then
//! its slots get the program.

use std::sync::Arc;

use ashway_api::answer::{self, Moved};
use ashway_api::request::Promote;
use ashway_path::places::PathId;

use super::Node;
use super::node_path::{NodePath, Promotion};
use super::operation::{Operation, Report};
use crate::compile::Job;
use crate::control::Caller;
use crate::request::Refusal;
use ashway_config::{PathConfig, Tier};
use ashway_worker::instance::{Allowance, Instance, NotPromoted, Promoted};
use ashway_worker::programs::NodeMaps;
use ashway_worker::rows::CounterRow;
use ashway_worker::shadow;

/// A path that is to be promoted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    id: PathId,
    pub(super) row: CounterRow,
    /// How often it had been demoted.
    demotions: u32,
}

/// A promotion under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Promoting {
    pub(super) path: Asked,
    /// So many messages are compared first.
    pub(super) messages: usize,
}

/// A handler's function that is to be compiled for the kernel tier.
pub(super) struct ProgramJob {
    instance: Arc<Instance>,
    maps: Arc<NodeMaps>,
    function: String,
    allowed: Allowance,
    /// Whether made-up messages are compared first.
    rehearses: bool,
}

impl ProgramJob {
    fn without_rehearsal(self) -> Self {
        Self {
            rehearses: false,
            ..self
        }
    }
}

impl Job for ProgramJob {
    type Outcome = Result<Promoted, NotPromoted>;

    fn run(self) -> Self::Outcome {
        let (instance, function) = (&self.instance, &self.function);
        let version = instance.version();
        if self.rehearses {
            shadow::promote_rehearsed(instance, &self.maps, &version, function, self.allowed)
        } else {
            instance.promote(&self.maps, &version, function, self.allowed)
        }
    }
}

/// The same of each instance of a handler.
pub(super) struct ProgramJobs(Vec<ProgramJob>);

impl Job for ProgramJobs {
    type Outcome = Vec<Result<Promoted, NotPromoted>>;

    fn run(self) -> Self::Outcome {
        self.0.into_iter().map(Job::run).collect()
    }
}

impl Node {
    /// Does what a request says.
    pub(super) fn promote_asked(&mut self, request: &Promote, caller: Caller) {
        let name = &request.path;
        let messages = match request.shadow {
            // A recording is bounded by its bytes, too.
            Some(number @ ..=10_000) => number as usize,
            None => shadow::MESSAGES,
            Some(shadow) => {
                let message = format!("`shadow` cannot be {shadow}");
                let hint = "it is a number of messages, up to 10000; 0 compares none";
                return caller.answer(Refusal::usage(message, hint));
            }
        };
        match self.path_for(&caller.authority, name) {
            Ok(path) if self.paths.frames(path).is_some() => {
                self.promote_relay(path, messages, caller);
            }
            Ok(path) => {
                // While a path is bypassed its handler gets no message that could be compared.
                let _ = self.enable(path);
                self.promote(path, messages, Report::Caller(caller));
            }
            Err(refusal) => caller.answer(refusal),
        }
    }

    /// Has a path's handler compiled for the kernel tier and moves the path there. The
    /// program is kept, so a second time costs only the switch. If `messages` is not 0, so
    /// many of the path, or as many as come in time, must first have the same end there.
    pub(super) fn promote(&mut self, path: PathId, messages: usize, report: Report) {
        let name = self.paths.bound(path).config.name.clone();
        let is_by_hand = matches!(report, Report::Caller(_));
        let operation = self.operations.next("promote", name, report);
        let promoting = Promoting {
            path: self.asked(path),
            messages: if self.is_compared(path) { 0 } else { messages },
        };
        let is_made = matches!(self.paths.bound(path).promotion, Promotion::Done(_));
        if is_made && promoting.messages == 0 {
            let moved = self.switch(path, Tier::Kernel).map(|()| path);
            return operation.end(self.moved_to(moved, false));
        }
        match self.program(&self.paths.bound(path).config, Some(path)) {
            // Who asks by hand has live messages compared, or none, as asked.
            Ok(job) if is_by_hand => self.submit(operation, promoting, job.without_rehearsal()),
            Ok(job) => self.submit(operation, promoting, job),
            Err(refused) => self.compiled(operation, promoting, Err(refused)),
        }
    }

    /// Goes on when it is compiled.
    pub(super) fn compiled(
        &mut self,
        operation: Operation,
        promoting: Promoting,
        compiled: Result<Promoted, NotPromoted>,
    ) {
        let compares = promoting.messages > 0;
        let path = match (self.still(promoting.path), compiled) {
            (Ok(_), Ok(promoted)) if compares => {
                return self.record(operation, promoting, promoted);
            }
            (Ok(path), compiled) => self.install(path, compiled).map(|()| path),
            (Err(gone), _) => Err(gone),
        };
        operation.end(self.moved_to(path, compares));
    }

    /// What finds a path when its promotion has been prepared.
    pub(super) fn asked(&self, path: PathId) -> Asked {
        Asked {
            id: path,
            row: self.plan.paths[&path].row,
            demotions: self.paths.bound(path).demotions,
        }
    }

    /// The path, if it is as it was.
    ///
    /// # Errors
    ///
    /// It was unbound or demoted meanwhile: the last word holds.
    pub(super) fn still(&self, asked: Asked) -> Result<PathId, NotPromoted> {
        let path = self.paths.at(asked.id);
        let (because, hint) = match path.and_then(NodePath::bound) {
            Some(path) if path.demotions == asked.demotions => return Ok(asked.id),
            Some(_) => ("the path was demoted meanwhile", "promote it once more"),
            None => (
                "the path was unbound meanwhile",
                "`ashway status` shows the paths that are there",
            ),
        };
        Err(NotPromoted::new(because, hint))
    }

    /// What compiles the handler of a path for the kernel tier; a path that is not there yet
    /// has no id. Should the handler be unloaded meanwhile, the outcome fits no path: its
    /// version runs nowhere.
    ///
    /// # Errors
    ///
    /// Why it cannot run there at all.
    pub(super) fn program(
        &self,
        path: &PathConfig,
        id: Option<PathId>,
    ) -> Result<ProgramJob, NotPromoted> {
        let (Some(maps), true) = (&self.maps, self.has_xdp(path)) else {
            return Err(NotPromoted::new(
                format!(
                    "path `{}` is on an interface without a kernel tier",
                    path.name
                ),
                "`ashway doctor` says what the kernel tier needs here",
            ));
        };
        let mut alone = path.ifaces.iter();
        let alone = alone.find_map(|iface| self.graph.user_tier_alone(path, iface));
        if let Some((because, hint)) = alone {
            return Err(NotPromoted::new(because, hint));
        }
        let handler = self.handler(&path.handler);
        let (_, handler) = handler.expect("a checked path names a handler of the node");
        Ok(ProgramJob {
            instance: Arc::clone(&handler.shared),
            maps: Arc::clone(maps),
            function: path.function.clone(),
            allowed: match id {
                Some(id) => self.allowance(id),
                None => Allowance::of(path),
            },
            rehearses: true,
        })
    }

    /// The same of paths that are not there yet, to each instance of a handler.
    ///
    /// # Errors
    ///
    /// Why they cannot run there at all.
    pub(super) fn programs_of(
        &self,
        paths: &[Arc<PathConfig>],
    ) -> Result<ProgramJobs, NotPromoted> {
        let jobs = paths.iter().map(|path| self.program(path, None));
        jobs.collect::<Result<_, _>>().map(ProgramJobs)
    }

    /// What a path's handler may use in the kernel tier.
    pub(super) fn allowance(&self, path: PathId) -> Allowance {
        let local = self.plan.paths[&path].local;
        Allowance::of(&self.paths.bound(path).config).numbered(local)
    }

    pub(super) fn has_xdp(&self, path: &PathConfig) -> bool {
        let mut ifaces = self.ifaces.values();
        let mut patterns = self.config.patterns.iter();
        let comes_by_socket = patterns.any(|it| {
            it.attach == ashway_config::Attach::Packet
                && path.patterns.iter().any(|text| text == it.glob.text())
        });
        !comes_by_socket
            && ifaces.all(|iface| iface.xdp.is_some() || !path.ifaces.contains(&iface.name))
    }

    /// Moves a path to the kernel tier if its handler could be compiled for it.
    ///
    /// # Errors
    ///
    /// Why it stays in the user tier.
    pub(super) fn install(
        &mut self,
        path: PathId,
        compiled: Result<Promoted, NotPromoted>,
    ) -> Result<(), NotPromoted> {
        let instance = &self.handlers[&self.plan.paths[&path].handler].shared;
        let version = instance.version().id;
        match compiled {
            Ok(promoted) if promoted.version != version => Err(swapped(&instance.name)),
            Ok(mut promoted) => {
                promoted.blueprint = None;
                self.paths.bound_mut(path).promotion = Promotion::Done(promoted);
                self.switch(path, Tier::Kernel)
            }
            Err(refused) => {
                let promotion = &mut self.paths.bound_mut(path).promotion;
                // Another job may have been luckier: what runs is kept.
                if !matches!(promotion, Promotion::Done(_)) {
                    *promotion = Promotion::Refused(refused.clone());
                }
                Err(refused)
            }
        }
    }

    /// Which tier a path takes now, or why it was not moved; `now` if what was compared was
    /// compared by this request.
    ///
    /// # Errors
    ///
    /// Why it was not moved.
    pub(super) fn moved_to(
        &self,
        moved: Result<PathId, NotPromoted>,
        now: bool,
    ) -> Result<Moved, Refusal> {
        moved
            .map(|path| {
                let known = &self.paths.bound(path);
                let compared = known.compared.map(|compared| answer::Compared {
                    equal: compared.equal as u64,
                    unclear: compared.unclear as u64,
                    now,
                });
                Moved {
                    path: known.config.name.clone(),
                    tier: known.tier.word().into(),
                    switch_ns: known.switch_ns,
                    bypass: self.describe_faults(path).1,
                    shadow: Some(answer::Shadow { compared }),
                }
            })
            .map_err(Refusal::from)
    }
}

pub(super) fn swapped(handler: &str) -> NotPromoted {
    NotPromoted::new(
        format!("handler `{handler}` was swapped meanwhile"),
        "promote the path once more",
    )
}
