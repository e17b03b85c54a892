//! What the node asks of the worker, as data: this list is all that can be.
//!
//! A [`Command`] is obeyed between two looks at the sources, and answered. What no one waits
//! for is an [order](crate::order).

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use ashway_path::places::PathId;

use super::Work;
use crate::clock::now;
use crate::error::InstanceError;
use crate::observe::trace::{self, TraceSink};
use crate::plan::HandlerId;
use crate::queue::Queue;
use crate::relays::Relays;
use crate::rows::CounterRow;
use crate::run_instance::{HandlerPath, RunInstance};
use crate::snapshot::PathSnapshot;
use crate::swap::ActivateVersion;

/// A change of what the worker works on, or a question.
pub enum Command {
    /// Nothing: what was ordered before has been done when this is answered.
    Finish,
    /// Takes an instance in.
    AddInstance(RunInstance),
    /// Lets these instances go, by their ids, when they have worked on what they received.
    RemoveInstances(HashSet<HandlerId>),
    /// Takes paths in that end in handlers.
    Bind(Vec<HandlerPath>),
    /// Lets paths of a handler go as soon as what has come to them is done.
    Close(Vec<PathId>),
    /// The queue of whole frames.
    SetFrameQueue(Arc<Queue>),
    /// The relays of the kernel tier.
    SetRelays(Relays),
    /// Adds a path to the relays, under this number.
    AddRelay(PathId, usize),
    /// Lets the kernel tier run a relay's messages, or no longer.
    Promote(PathId, bool),
    /// Writes all hops anew: an interface is another than it was.
    RefreshRelays,
    /// The hardware addresses of paths' next hops; `None` while unknown.
    SetNextMacs(Vec<(PathId, Option<[u8; 6]>)>),
    /// Paths whose messages the host's stack has a copy of: these and no others.
    SetHostCopies(HashSet<PathId>),
    /// Somebody has opened the shares of these paths.
    LookAtShares(Vec<PathId>),
    /// Begins these rows of counters anew.
    ClearRows(Vec<CounterRow>),
    /// Tells an observer what happens, or nobody any more.
    Observe(Option<TraceSink>),
    /// Has another version of a handler take over.
    ActivateVersion(Box<ActivateVersion>),
    /// Copies what there is of these paths.
    Snapshots(Vec<PathId>),
}

/// What the worker says when it has obeyed a [`Command`].
#[derive(Debug)]
pub(crate) enum Answer {
    /// It is done.
    Done,
    /// Of [`Command::ActivateVersion`]: how long no message was taken.
    VersionActivated(Result<Duration, InstanceError>),
    /// Of [`Command::Snapshots`], in their order; `None` where there is no such path.
    Snapshots(Vec<Option<PathSnapshot>>),
}

impl Work {
    /// Does what is asked, all of it before the next message.
    pub(super) fn execute(&mut self, command: Command) -> Answer {
        let paths = &mut self.paths;
        match command {
            Command::Finish => {}
            Command::AddInstance(instance) => self.instances.push(instance),
            Command::RemoveInstances(ids) => {
                for instance in &mut self.instances {
                    instance.leaves |= ids.contains(&instance.id());
                }
            }
            Command::Bind(new) => {
                for path in new {
                    self.bind(path);
                }
            }
            Command::Close(ids) => paths.close(&ids, now()),
            Command::SetFrameQueue(frame_queue) => self.frame_queue = Some(frame_queue),
            Command::SetRelays(relays) => paths.set_relays(relays),
            Command::AddRelay(path, number) => {
                if let Some(relays) = paths.relays() {
                    relays.add(path, number);
                }
            }
            Command::Promote(path, promoted) => paths.promote(path, promoted),
            Command::RefreshRelays => paths.refresh_relays(),
            Command::SetNextMacs(all) => {
                for (path, mac) in all {
                    paths.set_next_mac(path, mac);
                }
            }
            Command::SetHostCopies(ids) => paths.set_host_copies(&ids),
            Command::LookAtShares(ids) => paths.look_at_shares(&ids, now()),
            Command::ClearRows(rows) => {
                for row in rows {
                    self.rows.clear(row);
                }
            }
            Command::Observe(trace) => trace::set(trace),
            Command::ActivateVersion(next) => return Answer::VersionActivated(next.run()),
            Command::Snapshots(ids) => {
                let all = ids.iter().map(|path| paths.snapshot(*path));
                return Answer::Snapshots(all.collect());
            }
        }
        Answer::Done
    }
}
