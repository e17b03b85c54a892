//! What the node asks of the worker: these two lists are all that can be.
//!
//! A [`Command`] is data. What cannot be written down, an instance or a queue, is a
//! [`Resource`] that the worker takes over. Either is a [`Call`], done between two looks at
//! the sources, and answered. What no one waits for is an [order](crate::order).

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ashway_path::places::PathId;
use serde::{Deserialize, Serialize};

use super::Work;
use crate::clock::now;
use crate::error::InstanceError;
use crate::frame_port::FramePort;
use crate::observe::trace::{self, TraceSink};
use crate::packets;
use crate::plan::HandlerId;
use crate::queue::Queue;
use crate::relay_shadow::Recording;
use crate::relays::{Out, Relays};
use crate::rows::CounterRow;
use crate::run_instance::{HandlerPath, RunInstance};
use crate::snapshot::PathSnapshot;
use crate::swap::ActivateVersion;
use crate::xdp_port::{PassBy, XdpPort};

/// A change of what the worker works on, or a question: ids and numbers, so that it can be
/// written down and sent to another process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// Nothing: what was ordered before has been done when this is answered.
    Finish,
    /// Lets these instances go, by their ids, when they have worked on what they received.
    RemoveInstances(HashSet<HandlerId>),
    /// Lets paths of a handler go as soon as what has come to them is done.
    Close(Vec<PathId>),
    /// Adds a path to the relays, under this number.
    AddRelay(PathId, usize),
    /// Lets the kernel tier run a relay's messages, or no longer.
    Promote(PathId, bool),
    /// Writes all hops anew: an interface is another than it was.
    RefreshRelays,
    /// The node has left an interface: lets go of the way in and out of it.
    LeaveIface(usize),
    /// The node has no interface of this number any more: forgets its demux and its way out.
    ForgetIface(usize),
    /// An interface is reached like this by now, in the kernel tier.
    SetWayOut(usize, Out),
    /// The hardware addresses of paths' next hops; `None` while unknown.
    SetNextMacs(Vec<(PathId, Option<[u8; 6]>)>),
    /// Paths whose messages the host's stack has a copy of: these and no others.
    SetHostCopies(HashSet<PathId>),
    /// Somebody has opened the shares of these paths.
    LookAtShares(Vec<PathId>),
    /// Begins these rows of counters anew.
    ClearRows(Vec<CounterRow>),
    /// Tells nobody any more what happens.
    StopObserving,
    /// Copies what there is of these paths.
    Snapshots(Vec<PathId>),
}

/// What the worker is given, and has from then on. It lies in memory and descriptors of this
/// process; to another one it would go as descriptors beside a message.
pub enum Resource {
    /// An instance.
    Instance(RunInstance),
    /// Paths that end in handlers.
    HandlerPaths(Vec<HandlerPath>),
    /// The queue of whole frames.
    FrameQueue(Arc<Queue>),
    /// The relays of the kernel tier.
    Relays(Relays),
    /// Where to record what becomes of a relay's messages, while somebody waits for it.
    Recording(Arc<Mutex<Recording>>),
    /// The way out of an interface with XDP, in the place of the one that it had.
    XdpPort(usize, Box<XdpPort>),
    /// How messages are passed on to the host by that interface from now on.
    PassBy(usize, PassBy),
    /// The way in and out of one without a kernel tier.
    FramePort(Box<FramePort>),
    /// An observer, who is told what happens.
    Observer(TraceSink),
    /// Another version of a handler, which takes over.
    Version(Box<ActivateVersion>),
}

/// What the worker is called for.
pub enum Call {
    /// To obey.
    Do(Command),
    /// To take something over.
    Take(Resource),
}

impl From<Command> for Call {
    fn from(command: Command) -> Self {
        Self::Do(command)
    }
}

impl From<Resource> for Call {
    fn from(resource: Resource) -> Self {
        Self::Take(resource)
    }
}

/// What the worker says when it has done what a [`Call`] is for.
#[derive(Debug)]
pub(crate) enum Answer {
    /// It is done.
    Done,
    /// Of [`Resource::Version`]: how long no message was taken.
    VersionActivated(Result<Duration, InstanceError>),
    /// Of [`Command::Snapshots`], in their order; `None` where there is no such path.
    Snapshots(Vec<Option<PathSnapshot>>),
}

impl Work {
    /// Does what it is called for, all of it before the next message.
    pub(super) fn answer(&mut self, call: Call) -> Answer {
        match call {
            Call::Do(command) => self.execute(command),
            Call::Take(resource) => self.accept(resource),
        }
    }

    fn execute(&mut self, command: Command) -> Answer {
        let paths = &mut self.paths;
        match command {
            Command::Finish => {}
            Command::RemoveInstances(ids) => {
                for instance in &mut self.instances {
                    instance.leaves |= ids.contains(&instance.id());
                }
            }
            Command::Close(ids) => paths.close(&ids, now()),
            Command::AddRelay(path, number) => {
                if let Some(relays) = paths.relays() {
                    relays.add(path, number);
                }
            }
            Command::Promote(path, promoted) => paths.promote(path, promoted, now()),
            Command::RefreshRelays => paths.refresh_relays(),
            Command::LeaveIface(iface) => {
                self.xdp_ports.remove(iface);
                let left = self.frame_ports.extract_if(.., |port| port.iface == iface);
                for mut port in left {
                    // No more comes, and what has come is taken.
                    let is_deaf = port.medium.shut();
                    let mut drain = || packets::drain(&mut port, paths, &self.rows, now);
                    // That the interface went down is said once, before it.
                    while is_deaf && drain().or_else(|_| drain()).unwrap_or(false) {}
                }
            }
            Command::ForgetIface(iface) => paths.forget_iface(iface),
            Command::SetWayOut(iface, out) => {
                if let Some(relays) = paths.relays() {
                    relays.set_way_out(iface, out);
                }
            }
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
            Command::StopObserving => trace::set(None),
            Command::Snapshots(ids) => {
                let all = ids.iter().map(|path| paths.snapshot(*path));
                return Answer::Snapshots(all.collect());
            }
        }
        Answer::Done
    }

    fn accept(&mut self, resource: Resource) -> Answer {
        match resource {
            Resource::Instance(instance) => self.instances.push(instance),
            Resource::HandlerPaths(paths) => {
                for path in paths {
                    self.bind(path);
                }
            }
            Resource::FrameQueue(frame_queue) => {
                self.paths.set_frame_queue(&frame_queue);
                self.frame_queue = Some(frame_queue);
            }
            Resource::Relays(relays) => self.paths.set_relays(relays),
            Resource::Recording(recording) => self.paths.record(&recording),
            Resource::XdpPort(iface, port) => drop(self.xdp_ports.insert(iface, *port)),
            Resource::PassBy(iface, pass_by) => {
                if let Some(port) = self.xdp_ports.get_mut(iface) {
                    port.pass_by = pass_by;
                }
            }
            Resource::FramePort(port) => self.frame_ports.push(*port),
            Resource::Observer(observer) => trace::set(Some(observer)),
            Resource::Version(next) => return Answer::VersionActivated(next.run()),
        }
        Answer::Done
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use ashway_path::places::Ids;

    use super::*;

    #[test]
    fn a_command_can_be_written_down_and_read() {
        let mut ids = Ids::default();
        let [one, other] = [ids.take(), ids.take()];
        // One whose number another had before.
        ids.give_back(one);
        let one = ids.take();
        let handler: HandlerId = serde_json::from_str("7").unwrap();
        for command in [
            Command::Finish,
            Command::RemoveInstances([handler].into()),
            Command::Close(vec![one, other]),
            Command::AddRelay(one, 255),
            Command::Promote(other, true),
            Command::RefreshRelays,
            Command::LeaveIface(2),
            Command::ForgetIface(70_000),
            Command::SetWayOut(
                1,
                Out {
                    ifindex: 7,
                    by_tcx: true,
                },
            ),
            Command::SetNextMacs(vec![(one, Some([2, 0, 0, 0, 0, 1])), (other, None)]),
            Command::SetHostCopies([other].into()),
            Command::LookAtShares(vec![one]),
            Command::ClearRows(vec![CounterRow(3)]),
            Command::StopObserving,
            Command::Snapshots(Vec::new()),
        ] {
            let written = serde_json::to_string(&command).unwrap();
            let read: Command = serde_json::from_str(&written).unwrap();
            assert_eq!(read, command, "{written}");
        }
    }
}
