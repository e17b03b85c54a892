//! Observation of a running node: who asks, and what has to be changed for it.
//!
//! On: the programs that observe are made on the compile thread; then the
//! instances' go into their slots, then each interface's entry program is exchanged.
//! Off is the other way round. Each change is one slot or one exchange, so each
//! message meets one program or the other, and none is lost, doubled or overtaken.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use ashway_codegen::demux::parse;
use ashway_kernel::clock;
use serde_json::{Value, json};

use super::Node;
use crate::control::{Answer, Caller};
use crate::observe::audience::Wanted;
use crate::observe::{Names, Observer, tap};
use crate::request::{self, Refusal};

/// What a node has while somebody observes.
#[derive(Debug)]
pub(super) struct Observation {
    observer: Observer,
}

impl Node {
    /// Lets somebody observe: answers with the other end of a socket.
    pub(super) fn observe(&mut self, request: &Value, caller: Caller) {
        let wanted = match self.observed(request) {
            Ok(wanted) => wanted,
            Err(refusal) => return caller.answer(Err(refusal)),
        };
        if let Err(refusal) = self.begin_to_observe() {
            return caller.answer(Err(refusal));
        }
        caller.answer(self.admit(wanted));
    }

    /// What is asked for.
    fn observed(&self, request: &Value) -> Result<Wanted, Refusal> {
        let text = |key: &str| request[key].as_str().map(str::to_owned);
        let mut wanted = Wanted {
            iface: text("iface"),
            path: text("path"),
            frames: request["frames"] == true,
            ..Wanted::default()
        };
        let ifaces: Vec<&str> = self.config.ifaces.iter().map(|i| i.name.as_str()).collect();
        let bound = self.config.paths.iter().map(|path| path.name.as_str());
        let live = self.live.keys().map(String::as_str);
        let paths: Vec<&str> = bound.chain(live).collect();
        // A name alone is an interface's or a path's.
        if let Some(on) = text("on") {
            if ifaces.contains(&on.as_str()) {
                wanted.iface = Some(on);
            } else if paths.contains(&on.as_str()) {
                wanted.path = Some(on);
            } else {
                let both: Vec<&str> = ifaces.iter().chain(&paths).copied().collect();
                return Err(request::unknown("interface or path", &on, &both));
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
        if let Some(filter) = text("filter") {
            let filter = parse(&filter).map_err(|error| request::bad_match(&filter, error))?;
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
        let observer = Observer::start(None, self.names()).map_err(|error| system(&error))?;
        self.observations = self.observations.wrapping_add(1);
        let tap = observer.tap(self.observations);
        self.worker
            .ask(|_| tap::set(Some(tap)))
            .map_err(|error| system(&error))?;
        self.observation = Some(Observation { observer });
        Ok(())
    }

    /// Ends the observation if nobody is left to observe.
    pub(super) fn look_who_observes(&mut self) {
        if self
            .observation
            .as_ref()
            .is_some_and(|on| !on.observer.has_clients())
        {
            self.end_to_observe();
        }
    }

    fn end_to_observe(&mut self) {
        // A worker that does not answer is found out by the loop.
        let _ = self.worker.ask(|_| tap::set(None));
        self.observation = None;
    }

    /// Tells somebody from now on, at the other end of the socket in the answer.
    fn admit(&self, wanted: Wanted) -> Answer {
        let Some(on) = &self.observation else {
            return Err(Refusal::failed("the observation has ended".to_owned(), "")).into();
        };
        match UnixStream::pair() {
            Ok((ours, theirs)) => {
                on.observer.add(ours, wanted);
                let epoch = clock::epoch().as_nanos() as u64;
                Answer::WithFd(json!({ "epoch_ns": epoch }), OwnedFd::from(theirs))
            }
            Err(error) => {
                let message = format!("no socket can be had: {error}");
                Err(Refusal::failed(message, "")).into()
            }
        }
    }

    fn names(&self) -> Names {
        let paths = self.config.paths.iter().zip(&self.plan.paths);
        let ifaces = self.config.ifaces.iter();
        Names {
            ifaces: ifaces.clone().map(|iface| iface.name.clone()).collect(),
            by_ifindex: ifaces
                .zip(&self.ifaces)
                .map(|(config, iface)| (iface.ifindex, config.name.clone()))
                .collect(),
            paths: paths
                .map(|(config, plan)| (plan.row, (config.name.clone(), config.handler.clone())))
                .collect(),
        }
    }
}
