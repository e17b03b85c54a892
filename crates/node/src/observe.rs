//! Observation of a running node: who asks, and what has to be changed for it.
//!
//! On: the programs that observe are made on the compile thread; then the
//! instances' go into their slots, then each interface's entry program is exchanged.
//! Off is the other way round. Each change is one slot or one exchange, so each
//! message meets one program or the other, and none is lost, doubled or overtaken.
//! Paths that come, or move to another tier, meanwhile follow at the next look.

pub(crate) mod audience;
mod message_trace;
mod observer;

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use ashway_api::answer::{self, Silent};
use ashway_api::request::Observe;
use ashway_demux::parse;
use ashway_kernel::{Program, shared};
use ashway_memory::{SharedArray, clock};

use super::Node;
use super::node_path::Promotion;
use super::operation::{Operation, Report};
use super::program_array::{FRAMES_SLOT, RELAY_SLOT};
use super::relay::NodeRelays;
use crate::compile::Job;
use crate::control::{Answer, Caller};
use crate::request::{self, Refusal};
use ashway_config::{Tier, whole_name};
use ashway_path::places::PathId;
use ashway_worker::instance::{Allowance, Instance};
use ashway_worker::plan::HandlerId;
use ashway_worker::programs::NodeMaps;
use ashway_worker::queue::Queue;
use ashway_worker::worker::command::{Command, Resource};
use audience::Subscription;
use message_trace::{Names, Relay};
use observer::{Kernel, Observer};

/// Bytes of the ring of notes: some 50,000 of small frames.
const RING_BYTES: u32 = 8 << 20;

/// What a node has while somebody observes.
#[derive(Debug)]
pub(super) struct Observation {
    observer: Observer,
    session: u16,
    /// The ring of notes; absent without XDP.
    notes: Option<Arc<OwnedFd>>,
    /// Programs that observe; or why there is none, once that is known.
    programs: HashMap<Key, Option<Result<Program, String>>>,
    /// Whether the entry programs observe.
    entries: bool,
    /// Interfaces whose entry program could not be exchanged, and why.
    blind: Vec<(String, String)>,
    /// The names that its programs are for.
    names: Names,
}

/// Programs that are being made, to observe.
pub(super) struct Observing {
    session: u16,
    keys: Vec<Key>,
    /// Who is told from then on; nobody where they only follow what has changed.
    wanted: Option<Subscription>,
}

/// A program that was made, or why not.
pub(super) type MadeProgram = (Key, Result<Program, String>);

/// Whose program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Key {
    /// A handler's, in the user tier.
    User(HandlerId),
    /// A path's, in the kernel tier.
    Kernel(PathId),
    /// That of whole frames.
    Frames,
    /// That of relays.
    Relays,
}

/// A program to be made.
struct Missing {
    key: Key,
    program: Wanting,
}

/// Which one.
enum Wanting {
    /// That of a handler's queue.
    User(Arc<Instance>),
    /// A handler's for the kernel tier: the function and what it may use.
    Kernel(Arc<Instance>, String, Allowance),
    /// That of whole frames.
    Frames(Arc<Queue>),
    /// That of relays, with their hops.
    Relays(Arc<Queue>, Arc<SharedArray>),
}

impl Missing {
    fn make(self, maps: &NodeMaps, notes: BorrowedFd<'_>) -> MadeProgram {
        let made = match &self.program {
            Wanting::User(instance) => {
                let queue = instance
                    .queue
                    .as_ref()
                    .expect("observed programs are XDP's");
                queue.load_user_noting(maps, notes)
            }
            Wanting::Frames(queue) => queue.load_user_noting(maps, notes),
            Wanting::Relays(queue, hops) => queue.load_forward(maps, hops, Some(notes)),
            Wanting::Kernel(instance, function, allowed) => {
                let made = instance.promote_noting(maps, function, *allowed, notes);
                return (self.key, made.map_err(|refused| refused.because));
            }
        };
        (self.key, made.map_err(|error| error.to_string()))
    }
}

/// Programs that are to be made, to observe.
pub(super) struct ObserveJob {
    programs: Vec<Missing>,
    maps: Option<Arc<NodeMaps>>,
    notes: Option<Arc<OwnedFd>>,
}

impl Job for ObserveJob {
    type Outcome = Vec<MadeProgram>;

    fn run(self) -> Self::Outcome {
        let (Some(maps), Some(notes)) = (self.maps, self.notes) else {
            return Vec::new();
        };
        let programs = self.programs.into_iter();
        programs
            .map(|program| program.make(&maps, notes.as_fd()))
            .collect()
    }
}

impl Node {
    /// Lets somebody observe: answers with the other end of a socket, once the
    /// programs observe.
    pub(super) fn observe(&mut self, request: &Observe, caller: Caller) {
        let wanted = match self.observed(request) {
            Ok(wanted) => wanted,
            Err(refusal) => return caller.answer(refusal),
        };
        if let Err(refusal) = self.begin_to_observe() {
            return caller.answer(refusal);
        }
        let on = request
            .on
            .as_ref()
            .or(request.path.as_ref())
            .or(request.iface.as_ref());
        let about = on.cloned().unwrap_or_default();
        let operation = self
            .operations
            .next("observe", about, Report::Caller(caller));
        self.make_programs(operation, Some(wanted));
    }

    /// What is asked for.
    fn observed(&self, request: &Observe) -> Result<Subscription, Refusal> {
        let mut wanted = Subscription {
            iface: request.iface.clone(),
            path: request.path.clone(),
            frames: request.frames,
            count: request.count,
            ..Subscription::default()
        };
        let ifaces = self.iface_names();
        let paths: Vec<&str> = self.paths.names().map(whole_name).collect();
        // A name alone is an interface's or a path's.
        if let Some(on) = &request.on {
            if ifaces.contains(&on.as_str()) {
                wanted.iface = Some(on.clone());
            } else if paths.contains(&on.as_str()) {
                wanted.path = Some(on.clone());
            } else {
                let both: Vec<&str> = ifaces.iter().chain(&paths).copied().collect();
                return Err(request::unknown("interface or path", on, &both));
            }
        }
        if let Some(iface) = &wanted.iface
            && !ifaces.contains(&iface.as_str())
        {
            return Err(request::unknown("interface", iface, &ifaces));
        }
        if let Some(path) = &wanted.path
            && !paths.contains(&path.as_str())
        {
            return Err(request::unknown("path", path, &paths));
        }
        if let Some(text) = &request.filter {
            let filter = parse(text).map_err(|error| request::bad_match(text, error))?;
            wanted.filter(&filter);
        }
        Ok(wanted)
    }

    fn begin_to_observe(&mut self) -> Result<(), Refusal> {
        if self.observation.is_some() {
            return Ok(());
        }
        let system = |error: &dyn std::fmt::Display| {
            let message = format!("nothing can be observed: {error}");
            Refusal::failed(message, "is the system out of memory or threads?")
        };
        let (mut kernel, mut notes) = (None, None);
        if let Some(maps) = &self.maps {
            let ring = shared::notes("ashway_notes", RING_BYTES).map_err(|e| system(&e))?;
            let fd = ring.fd().try_clone_to_owned().map_err(|e| system(&e))?;
            notes = Some(Arc::new(fd));
            let maps = Arc::clone(maps);
            kernel = Some(Kernel { ring, maps });
        }
        let observer = Observer::start(kernel, self.names()).map_err(|e| system(&e))?;
        self.observations = self.observations.wrapping_add(1).max(1);
        let session = self.observations;
        let trace = observer.trace(session);
        self.worker
            .call(Resource::Observer(trace))
            .map_err(|e| system(&e))?;
        self.observation = Some(Observation {
            observer,
            session,
            notes,
            programs: HashMap::new(),
            entries: false,
            blind: Vec::new(),
            names: Names::default(),
        });
        Ok(())
    }

    /// Has the programs made that observe and are not there yet.
    fn make_programs(&mut self, operation: Operation, wanted: Option<Subscription>) {
        let programs = self.missing_programs();
        let Some(on) = &mut self.observation else {
            return;
        };
        let observing = Observing {
            session: on.session,
            keys: programs.iter().map(|missing| missing.key).collect(),
            wanted,
        };
        on.programs
            .extend(observing.keys.iter().map(|key| (*key, None)));
        let job = ObserveJob {
            programs,
            maps: self.maps.clone(),
            notes: on.notes.clone(),
        };
        self.submit(operation, observing, job);
    }

    /// Goes on when they are made: puts them in their places.
    pub(super) fn observers_made(
        &mut self,
        operation: Operation,
        observing: Observing,
        made: Vec<MadeProgram>,
    ) {
        if let Some(on) = &mut self.observation
            && on.session == observing.session
        {
            let made = made.into_iter().map(|(key, made)| (key, Some(made)));
            on.programs.extend(made);
            self.forget_observed();
            self.follow_observation();
        }
        let Some(wanted) = observing.wanted else {
            return;
        };
        // Another waited for these, and was cancelled.
        if !self.missing_programs().is_empty() {
            return self.make_programs(operation, Some(wanted));
        }
        operation.end(self.admit(wanted));
    }

    /// Programs that were to be made cannot be: their paths are silent.
    pub(super) fn fail_missing(&mut self, observing: &Observing, because: &str) {
        if let Some(on) = &mut self.observation
            && on.session == observing.session
        {
            let failed = observing.keys.iter();
            let failed = failed.map(|key| (*key, Some(Err(because.to_owned()))));
            on.programs.extend(failed);
        }
    }

    /// Programs that were to be made are not any more.
    pub(super) fn forget_missing(&mut self, observing: &Observing) {
        if let Some(on) = &mut self.observation
            && on.session == observing.session
        {
            on.programs
                .retain(|key, made| made.is_some() || !observing.keys.contains(key));
        }
    }

    /// Lets the programs go whose instance or path has gone, which hold its memory, and the
    /// names, as the path's row may be another's soon.
    pub(super) fn forget_observed(&mut self) {
        let names = self.observation.is_some().then(|| self.names());
        let Some(on) = &mut self.observation else {
            return;
        };
        let (paths, handlers) = (&self.paths, &self.handlers);
        on.programs.retain(|key, _| match key {
            Key::User(id) => handlers.contains_key(id),
            Key::Kernel(id) => paths.at(*id).is_some(),
            Key::Frames | Key::Relays => true,
        });
        if let Some(names) = names {
            on.observer.names(names);
        }
    }

    fn missing_programs(&self) -> Vec<Missing> {
        let Some(on) = self.observation.as_ref().filter(|on| on.notes.is_some()) else {
            return Vec::new();
        };
        let missing = |key, program| Missing { key, program };
        let user = self.handlers.iter().map(|(id, handler)| {
            let instance = Arc::clone(&handler.shared);
            missing(Key::User(*id), Wanting::User(instance))
        });
        let kernel = self.paths.all_bound();
        let kernel = kernel
            .filter(|(_, path)| matches!(path.promotion, Promotion::Done(_)))
            .map(|(id, path)| {
                let instance = &self.handlers[&self.plan.paths[&id].handler].shared;
                let function = path.config.function.clone();
                let instance = Arc::clone(instance);
                let program = Wanting::Kernel(instance, function, self.allowance(id));
                missing(Key::Kernel(id), program)
            });
        let queue = self.frame_queue.as_ref().map(|frames| &frames.queue);
        let frames = queue.into_iter();
        let frames = frames.map(|queue| missing(Key::Frames, Wanting::Frames(Arc::clone(queue))));
        let relays = self.relays.iter().zip(queue);
        let relays = relays.map(|(relays, queue)| {
            let program = Wanting::Relays(Arc::clone(queue), Arc::clone(&relays.hops));
            missing(Key::Relays, program)
        });
        let all = user.chain(kernel).chain(frames).chain(relays);
        all.filter(|job| !on.programs.contains_key(&job.key))
            .collect()
    }

    /// The program that observes in this tier of a path, if there is one now.
    pub(super) fn observed_program(&self, path: PathId, tier: Tier) -> Option<&Program> {
        let key = match (&self.paths.bound(path).promotion, tier) {
            (Promotion::Done(_), Tier::Kernel) => Key::Kernel(path),
            _ => Key::User(self.plan.paths[&path].handler),
        };
        self.observation.as_ref()?.program(key)
    }

    /// Which observation the entry programs are part of, and where they say it.
    pub(super) fn entries_observe(&self) -> Option<(u16, Arc<OwnedFd>)> {
        let on = self.observation.as_ref().filter(|on| on.entries)?;
        Some((on.session, Arc::clone(on.notes.as_ref()?)))
    }

    /// Puts the programs in their places: those that observe if there is an
    /// observation.
    fn put_all(&self) {
        for (id, path) in self.paths.all_bound() {
            // What cannot be changed stays, and works.
            let _ = self.put(id, path.tier);
        }
        let Some(frame_queue) = &self.frame_queue else {
            return;
        };
        let observed = self.observation.as_ref();
        let program = observed.and_then(|on| on.program(Key::Frames));
        let program = program.unwrap_or(&frame_queue.user_program);
        for xdp in self.ifaces.values().filter_map(|iface| iface.xdp.as_ref()) {
            let _ = xdp.slots.set_slot(FRAMES_SLOT, program.fd());
        }
        let Some(relays) = &self.relays else {
            return;
        };
        let program = observed.and_then(|on| on.program(Key::Relays));
        let program = program.unwrap_or(&relays.program);
        for xdp in self.ifaces.values().filter_map(|iface| iface.xdp.as_ref()) {
            let _ = xdp.slots.set_slot(RELAY_SLOT, program.fd());
        }
    }

    /// Exchanges the entry programs; says which interfaces have kept theirs, and why.
    fn exchange_all(&mut self) -> Vec<(String, String)> {
        let mut kept = Vec::new();
        for iface in self.ifaces.numbers() {
            // One that has gone, or was taken from the node, has nobody to observe.
            if !self.ifaces[iface].state.is_lost()
                && let Err(refusal) = self.exchange(iface)
            {
                let name = self.ifaces[iface].name.clone();
                kept.push((name, refusal.message));
            }
        }
        kept
    }

    /// Tells observers what things are called by now.
    pub(super) fn names_changed(&mut self) {
        let names = self.names();
        if let Some(on) = &mut self.observation {
            on.names = names.clone();
            on.observer.names(names);
        }
    }

    /// Brings programs and names up to what there is.
    fn follow_observation(&mut self) {
        self.put_all();
        self.names_changed();
        let Some(on) = &mut self.observation else {
            return;
        };
        if !std::mem::replace(&mut on.entries, true) {
            let blind = self.exchange_all();
            if let Some(on) = &mut self.observation {
                on.blind = blind;
            }
        }
    }

    /// Follows what has changed, and ends the observation if nobody is left to
    /// observe.
    pub(super) fn look_who_observes(&mut self) {
        let Some(on) = &self.observation else {
            return;
        };
        // Somebody waits for programs.
        if self.operations.wait_for_observers() {
            return;
        }
        if !on.observer.has_clients() {
            return self.end_to_observe();
        }
        if self.names() != on.names || !self.missing_programs().is_empty() {
            let operation = self.operations.next("observe", "", Report::Nobody);
            self.make_programs(operation, None);
        }
    }

    fn end_to_observe(&mut self) {
        if let Some(on) = &mut self.observation {
            on.entries = false;
        }
        // An interface that keeps its program goes on saying what nobody hears.
        let _ = self.exchange_all();
        let observation = self.observation.take();
        self.put_all();
        // A worker that does not answer is found out by the loop.
        let _ = self.worker.call(Command::StopObserving);
        drop(observation);
    }

    /// Tells somebody from now on, at the other end of the socket in the answer.
    fn admit(&self, wanted: Subscription) -> Answer {
        let Some(on) = &self.observation else {
            let message = "the observation has ended".to_owned();
            return Refusal::failed(message, "").into();
        };
        match UnixStream::pair() {
            Ok((ours, theirs)) => {
                on.observer.add(ours, wanted);
                let epoch = clock::epoch().as_nanos() as u64;
                let blind = on.blind.iter().map(|(iface, because)| Silent {
                    what: format!("interface `{iface}`"),
                    because: because.clone(),
                });
                let silent = self.silent().map(|(path, because)| {
                    let name = &self.paths.bound(path).config.name;
                    Silent {
                        what: format!("the program of path `{name}`"),
                        because: because.to_owned(),
                    }
                });
                let observing = answer::Observing {
                    epoch_ns: epoch,
                    silent: blind.chain(silent).collect(),
                };
                Answer::WithFd(observing.into(), OwnedFd::from(theirs))
            }
            Err(error) => {
                let message = format!("no socket can be had: {error}");
                Refusal::failed(message, "").into()
            }
        }
    }

    /// Paths whose program could not be made to observe, and why.
    fn silent(&self) -> impl Iterator<Item = (PathId, &str)> {
        let on = self.observation.as_ref();
        self.paths.all_bound().filter_map(move |(id, path)| {
            let key = match path.tier {
                Tier::Kernel => Key::Kernel(id),
                _ => Key::User(self.plan.paths[&id].handler),
            };
            match on?.programs.get(&key)? {
                Some(Err(because)) => Some((id, because.as_str())),
                _ => None,
            }
        })
    }

    fn names(&self) -> Names {
        let paths = self.paths.all_bound().map(|(id, path)| {
            let [path, handler] = [&path.config.name, &path.config.handler];
            let names = (whole_name(path).to_owned(), whole_name(handler).to_owned());
            (self.plan.paths[&id].row.0, names)
        });
        let ifaces = self.ifaces.iter();
        let relays = self.relays.iter().flat_map(NodeRelays::numbers);
        let relays = relays.filter_map(|(id, number)| {
            let path = self.paths.at(id)?;
            let mut ends = path
                .frames()?
                .ends()
                .map(|end| self.ifaces[end.iface()].ifindex);
            let relay = Relay {
                name: path.name.to_string(),
                ends: [ends.next()?, ends.next()?],
            };
            Some((self.plan.relay_row(number).0, relay))
        });
        Names {
            ifaces: ifaces
                .clone()
                .map(|(number, iface)| (number, (iface.name.clone(), iface.rung.port())))
                .collect(),
            by_ifindex: ifaces
                .map(|(_, iface)| (iface.ifindex, iface.name.clone()))
                .collect(),
            paths: paths.collect(),
            relays: relays.collect(),
            silent: self
                .silent()
                .map(|(path, _)| self.plan.paths[&path].row.0)
                .collect(),
        }
    }
}

impl Observation {
    fn program(&self, key: Key) -> Option<&Program> {
        match self.programs.get(&key)? {
            Some(Ok(program)) => Some(program),
            _ => None,
        }
    }
}
