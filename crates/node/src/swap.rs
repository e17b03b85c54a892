//! Swapping a running handler for another version of it, and back.
//!
//! What can be known before is known before any message waits: the file is read and
//! compiled on the compile thread, for the kernel tier too if a path of the handler
//! runs there. Then:
//!
//! 1. its paths leave the kernel tier, and an RCU grace period ends behind the last
//!    activation there; the old version answers in the user tier meanwhile,
//! 2. the worker puts the new version in its place (`ashway_worker::swap`): messages wait in
//!    the ring for so long, and that is the time that is reported,
//! 3. the paths go to the kernel tier again, with the new version's programs.
//!
//! So no message meets two versions, and none overtakes another: step 3 is a
//! promotion, and that waits for what is in the user tier.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use ashway_api::answer::{HandedOn, LeftKernel, Swapped};
use ashway_api::request::Swap;
use ashway_handler::{Engine, Param};
use rustix::thread::{MembarrierCommand, membarrier};

use super::instances::merged;
use super::node_path::Promotion;
use super::operation::{Operation, Report};
use super::{Node, RunError};
use crate::compile::Job;
use crate::control::Caller;
use crate::request::{self, Code, Refusal};
use ashway_config::{HandlerConfig, Tier};
use ashway_path::places::PathId;
use ashway_worker::handle::HandlerHandle;
use ashway_worker::instance::{Allowance, Instance, InstanceError, NotPromoted, Promoted};
use ashway_worker::plan::HandlerId;
use ashway_worker::programs::NodeMaps;
use ashway_worker::shadow;
use ashway_worker::swap::{ActivateVersion, StateTransfer, state_transfer};
use ashway_worker::version::Version;

/// What became of compiling a version for the kernel tier.
pub(super) type Compilation = Result<Promoted, NotPromoted>;

/// Where the next version comes from.
enum Source {
    /// A file, and values for its parameters.
    File(Arc<NextFile>),
    /// The version before the one that runs.
    Former(Arc<Version>),
}

/// A file that is the next version of each instance of a handler.
struct NextFile {
    file: PathBuf,
    given: BTreeMap<String, Param>,
    /// Read for the first of them, so that all have the same.
    version: OnceLock<Arc<Version>>,
}

impl NextFile {
    /// On the compile thread, which does one job at a time.
    fn read(&self, config: &HandlerConfig, engine: &Engine) -> Result<Arc<Version>, InstanceError> {
        if let Some(version) = self.version.get() {
            return Ok(Arc::clone(version));
        }
        let mut version = Version::read(config, &self.file, engine)?;
        version.inherit_params(self.given.clone());
        Ok(Arc::clone(self.version.get_or_init(|| Arc::new(version))))
    }
}

/// A version that is to be compiled.
pub(super) struct Next {
    handler: Arc<Instance>,
    config: HandlerConfig,
    source: Source,
    in_kernel: Vec<InKernel>,
    maps: Option<Arc<NodeMaps>>,
    engine: Engine,
}

impl Job for Next {
    type Outcome = Result<Candidate, InstanceError>;

    fn run(self) -> Self::Outcome {
        let (version, back) = match self.source {
            Source::File(next) => (next.read(&self.config, &self.engine)?, false),
            Source::Former(version) => (version, true),
        };
        let inherited = self.config.params;
        let maps = self.maps.as_deref();
        Ok(Candidate::compile(
            &self.handler,
            version,
            back,
            inherited,
            self.in_kernel,
            maps,
        ))
    }
}

/// A handler that waits for its next version.
pub(super) struct Swapping(Arc<Instance>);

/// A version that could take over.
pub(super) struct Candidate {
    pub(super) version: Arc<Version>,
    /// It is the one before.
    back: bool,
    /// The parameters' values when it was asked for, which it has in part.
    inherited: BTreeMap<String, Param>,
    /// For the paths that ran in the kernel tier when it was asked for.
    pub(super) promoted: Vec<(PathId, Compilation)>,
}

/// What a path in the kernel tier runs there: it is compiled of the next version, too.
pub(super) type InKernel = (PathId, String, Allowance);

impl Candidate {
    /// Compiles a version for the paths that run in the kernel tier. On the compile
    /// thread.
    pub(super) fn compile(
        handler: &Instance,
        version: Arc<Version>,
        back: bool,
        inherited: BTreeMap<String, Param>,
        in_kernel: Vec<InKernel>,
        maps: Option<&NodeMaps>,
    ) -> Self {
        let mut promoted = Vec::new();
        if let Some(maps) = maps.filter(|_| fits(handler, &version).is_ok()) {
            // What lacks a function is refused by the node.
            let in_kernel = in_kernel.into_iter();
            let has =
                in_kernel.filter(|(_, function, _)| version.compiled.function(function).is_some());
            promoted = has
                .map(|(id, function, allowed)| {
                    let promoted =
                        shadow::promote_rehearsed(handler, maps, &version, &function, allowed);
                    (id, promoted)
                })
                .collect();
        }
        Self {
            version,
            back,
            inherited,
            promoted,
        }
    }
}

impl Node {
    /// Puts a file in the place of a handler's version that runs, and answers `caller`.
    pub(super) fn swap(&mut self, request: &Swap, engine: &Engine, caller: Caller) {
        let file = match request::file(&request.file) {
            Ok(file) => file,
            Err(refusal) => return caller.answer(refusal),
        };
        let next = Arc::new(NextFile {
            file,
            given: request::params(&request.params),
            version: OnceLock::new(),
        });
        let source = |_: &Instance| Ok(Source::File(Arc::clone(&next)));
        self.change_version("swap", &request.handler, source, engine, caller);
    }

    /// Puts the version before in the place of the one that runs, and answers `caller`.
    pub(super) fn rollback(&mut self, handler: &str, engine: &Engine, caller: Caller) {
        let source = |instance: &Instance| {
            let former = instance.versions.former().pop().ok_or_else(|| {
                Refusal::failed(
                    format!(
                        "of handler `{}` no version before this one is kept",
                        instance.name
                    ),
                    "`ashway handler swap` gives it one",
                )
            })?;
            Ok(Source::Former(former))
        };
        self.change_version("rollback", handler, source, engine, caller);
    }

    /// Whether versions may be changed now.
    fn may_change(&self) -> Result<(), Refusal> {
        if self.observation.is_none() {
            return Ok(());
        }
        Err(Refusal::failed(
            "cannot swap while `trace` or `capture` runs: it would show the old version",
            "end `ashway trace` or `ashway capture` first",
        ))
    }

    /// What the configuration says of a handler that is there.
    pub(super) fn config_of(&self, handler: &Instance) -> &HandlerConfig {
        let config = self.config.handler(&handler.name);
        config.expect("each handler has a configuration")
    }

    /// Compiles what is needed, then changes: each instance of the handler of this name.
    fn change_version(
        &mut self,
        verb: &'static str,
        name: &str,
        source: impl Fn(&Instance) -> Result<Source, Refusal>,
        engine: &Engine,
        caller: Caller,
    ) {
        let each = self.may_change().and_then(|()| self.handlers_for(name));
        let each = match each {
            Ok(each) => each,
            Err(refusal) => return caller.answer(refusal),
        };
        let callers = match each.len() {
            1 => vec![caller],
            count => caller.split(count, merged::join),
        };
        for (id, caller) in each.into_iter().zip(callers) {
            let handler = Arc::clone(&self.handlers[&id].shared);
            let source = match source(&handler) {
                Ok(source) => source,
                Err(refusal) => {
                    caller.answer(refusal);
                    continue;
                }
            };
            let next = Next {
                handler: Arc::clone(&handler),
                config: self.config_of(&handler).clone(),
                source,
                in_kernel: self.in_kernel(id),
                maps: self.maps.clone(),
                engine: engine.clone(),
            };
            let report = Report::Caller(caller);
            let operation = self.operations.next(verb, &*handler.name, report);
            self.submit(operation, Swapping(handler), Box::new(next));
        }
    }

    /// Goes on when it is compiled.
    pub(super) fn take_version(
        &mut self,
        operation: Operation,
        Swapping(instance): &Swapping,
        candidate: Result<Candidate, InstanceError>,
        engine: &Engine,
    ) {
        let begin = operation.begun();
        let answer = candidate
            .map_err(|error| RunError::Instance(error).refusal())
            .and_then(|candidate| self.replace(instance, candidate, engine, begin));
        operation.end(answer);
    }

    /// What the paths of a handler run in the kernel tier.
    pub(super) fn in_kernel(&self, handler: HandlerId) -> Vec<InKernel> {
        let paths = self.paths_in_kernel(handler);
        let run = paths.map(|path| {
            let config = &self.paths.bound(path).config;
            (path, config.function.clone(), self.allowance(path))
        });
        run.collect()
    }

    fn paths_in_kernel(&self, handler: HandlerId) -> impl Iterator<Item = PathId> {
        let paths = self.plan.instances[&handler].paths.iter().copied();
        paths.filter(|path| self.paths.bound(*path).tier == Tier::Kernel)
    }

    /// Replaces the version that runs; says what was kept and how long messages
    /// waited.
    ///
    /// # Errors
    ///
    /// Why not: nothing has changed.
    pub(super) fn replace(
        &mut self,
        instance: &Arc<Instance>,
        candidate: Candidate,
        engine: &Engine,
        begin: Instant,
    ) -> Result<Swapped, Refusal> {
        // The node may have changed while this was compiled.
        self.may_change()?;
        let (id, _) = self.find_handler(&instance.name)?;
        if !Arc::ptr_eq(&self.handlers[&id].shared, instance) {
            return Err(Refusal::failed(
                format!("handler `{}` was unloaded meanwhile", instance.name),
                "another has its name now: ask once more if that is meant",
            ));
        }
        let Candidate {
            version,
            back,
            inherited,
            promoted,
        } = candidate;
        let last = instance.version();
        let former = instance.versions.former().pop();
        let stale = if back {
            former.is_none_or(|former| former.id != version.id)
        } else {
            self.config_of(instance).params != inherited
        };
        if stale {
            return Err(Refusal::failed(
                format!("handler `{}` was swapped meanwhile", instance.name),
                "ask once more",
            ));
        }
        let state_transfer = check(&self.handlers[&id], &last, &version)?;
        let kernel: Vec<PathId> = self.paths_in_kernel(id).collect();
        let mut programs = self.programs(&kernel, promoted)?;

        let away = Instant::now();
        if let Err(why) = kernel
            .iter()
            .try_for_each(|path| self.lead_to_worker(*path))
        {
            self.lead_to_kernel(&kernel);
            return Err(why.into());
        }
        if !kernel.is_empty() {
            // A poll that began before may be in a program of the old version; a
            // grace period ends behind every such poll.
            if let Err(errno) = membarrier(MembarrierCommand::Global) {
                self.lead_to_kernel(&kernel);
                let message = format!("cannot wait for the old version to end: {errno}");
                return Err(Refusal::failed(message, "demote its paths, then swap"));
            }
        }
        let next = ActivateVersion {
            handler: self.handlers[&id].clone(),
            next: Arc::clone(&version),
            config: self.config_of(instance).clone(),
            state_transfer,
            engine: engine.clone(),
        };
        // Without an answer it is unknown which version the memory is: the paths stay with
        // the worker.
        let hold = match self.worker.activate_version(&next)? {
            Ok(hold) => hold,
            Err(error) => {
                self.lead_to_kernel(&kernel);
                return Err(RunError::Instance(error).refusal());
            }
        };
        if back {
            instance.versions.back();
        } else {
            instance.versions.advance(Arc::clone(&version));
        }
        let mut configs = self.config.handlers.iter_mut();
        if let Some(config) = configs.find(|known| known.name == instance.name) {
            config.file.clone_from(&version.file);
            config.params.clone_from(&version.params);
        }
        let stays = self.follow_version(id, &mut programs);
        let away = if kernel.is_empty() {
            Duration::ZERO
        } else {
            away.elapsed()
        };
        Ok(Swapped {
            handler: instance.name.clone(),
            digest: version.digest.clone(),
            before: last.digest.clone(),
            file: version.file.display().to_string(),
            state: version.state_range.map(|range| HandedOn {
                version: range.version,
                kept_bytes: state_transfer.map_or(0, |state_transfer| state_transfer.bytes),
                migrated_from: state_transfer.and_then(|state_transfer| state_transfer.migrate),
            }),
            hold_ns: hold.as_nanos() as u64,
            away_us: away.as_micros() as u64,
            took_us: begin.elapsed().as_micros() as u64,
            left_kernel: stays,
        })
    }

    /// What each of these paths, which run in the kernel tier, gets there; refuses if
    /// one that must stay there cannot.
    fn programs(
        &self,
        kernel: &[PathId],
        mut promoted: Vec<(PathId, Compilation)>,
    ) -> Result<Vec<(PathId, Compilation)>, Refusal> {
        let mut programs = Vec::new();
        for &path in kernel {
            let name = &self.paths.bound(path).config.name;
            let Some(made) = promoted.iter().position(|(known, _)| *known == path) else {
                return Err(Refusal::failed(
                    format!("path `{name}` was promoted meanwhile"),
                    "ask once more",
                ));
            };
            let (_, made) = promoted.swap_remove(made);
            if let (Err(why), Tier::Kernel) = (&made, self.paths.bound(path).config.tier) {
                let Refusal { message, hint, .. } = why.clone().into();
                return Err(refused(
                    format!("path `{name}` has `tier = \"kernel\"`: {message}"),
                    hint,
                ));
            }
            programs.push((path, made));
        }
        Ok(programs)
    }

    /// Has a path's messages go to the worker, though its tier stays what it is.
    fn lead_to_worker(&self, path: PathId) -> Result<(), NotPromoted> {
        self.put(path, Tier::User).map(drop)
    }

    /// Undoes that.
    fn lead_to_kernel(&self, paths: &[PathId]) {
        for &path in paths {
            // What took a program a moment ago takes this one.
            let _ = self.put(path, Tier::Kernel);
        }
    }

    /// Has the paths of a handler follow its new version: those in the kernel tier by
    /// their `programs`. Which ones had to leave it, and why.
    fn follow_version(
        &mut self,
        handler: HandlerId,
        programs: &mut Vec<(PathId, Compilation)>,
    ) -> Vec<LeftKernel> {
        let mut left = Vec::new();
        self.handlers[&handler].shared.bindings.open_all();
        for path in self.plan.instances[&handler].paths.clone() {
            // An old program could only run the old version.
            self.paths.bound_mut(path).promotion = Promotion::NotAsked;
            self.paths.bound_mut(path).compared = None;
            let Some(at) = programs.iter().position(|(known, _)| *known == path) else {
                continue;
            };
            let (_, made) = programs.swap_remove(at);
            self.paths.bound_mut(path).tier = Tier::User;
            if let Err(why) = self.install(path, made) {
                if let Some(end) = self.end(path) {
                    end.moved(false);
                }
                left.push(LeftKernel {
                    path: self.paths.bound(path).config.name.clone(),
                    refused: why.describe(),
                });
            }
        }
        left
    }
}

/// Whether `next` could be in the place of `last`, and what is handed on to it.
pub(super) fn check(
    handler: &HandlerHandle,
    last: &Version,
    next: &Version,
) -> Result<Option<StateTransfer>, Refusal> {
    let instance = &handler.shared;
    fits(instance, next)?;
    for function in handler.bound() {
        if next.compiled.function(&function).is_none() {
            return Err(refused(
                format!(
                    "a path ends in `{}:{function}`, and the file exports no function \
                     `{function}` of type (i32, i32) -> i32",
                    instance.name
                ),
                "export it, or unbind the path first",
            ));
        }
    }
    state_transfer(last.state_range, next.state_range, next.compiled.migrates())
        .map_err(|why| refused(why.to_string(), why.hint()))
}

/// Whether a version fits the memory that the instance has: programs and rings are
/// made for it.
fn fits(instance: &Instance, next: &Version) -> Result<(), Refusal> {
    let (has, wants) = (
        instance.memory.layout.guest_bytes,
        next.compiled.guest_bytes(),
    );
    if has != wants {
        return Err(refused(
            format!("the file's memory has {wants} bytes at most, and the handler's {has}"),
            format!("link it with `-Wl,--max-memory={has}`"),
        ));
    }
    let (has, wants) = (
        instance.memory.layout.state_bytes,
        next.compiled.state_bytes(),
    );
    if has < wants {
        return Err(refused(
            format!(
                "the file's tables and passive segments take {wants} bytes, and there is room for \
                 {has}"
            ),
            "load it under another name and bind that",
        ));
    }
    Ok(())
}

fn refused(message: String, hint: impl Into<String>) -> Refusal {
    Refusal::new(Code::HandlerRefused, message, hint)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    /// The instances of a handler get one version, also if the file is replaced between them.
    #[test]
    fn a_file_is_read_once_for_all_instances() {
        let handler = |answer: u32| {
            let text = format!(
                "(module (memory (export \"memory\") 1 1) (func (export \"on_rx\") \
                 (param i32 i32) (result i32) i32.const {answer}))"
            );
            wat::parse_str(text).unwrap()
        };
        let file = std::env::temp_dir().join(format!("ashway-once-{}", std::process::id()));
        std::fs::write(&file, handler(0)).unwrap();
        let config = HandlerConfig::of_file("one", file.clone());
        let next = NextFile {
            file: file.clone(),
            given: BTreeMap::new(),
            version: OnceLock::new(),
        };
        let engine = Engine::new().unwrap();
        let first = next.read(&config, &engine).unwrap();
        std::fs::write(&file, handler(1)).unwrap();
        let second = next.read(&config, &engine).unwrap();
        std::fs::remove_file(&file).unwrap();
        assert_eq!((first.id, &first.digest), (second.id, &second.digest));
    }
}
