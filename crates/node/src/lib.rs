//! A node: brought up ([`build()`]), [served](serve()), and taken down when dropped.
//!
//! Everything it makes is owned by values that take it down when dropped, links first, so
//! every way out leaves no trace; after SIGKILL the kernel closes the file descriptors, which
//! does the same.

#![forbid(unsafe_code)]

mod apply;
mod authority;
mod binding;
mod bug;
mod build;
mod captures;
mod compile;
mod control;
pub mod demux;
mod dispatch;
mod endpoint;
mod entry;
mod error;
mod faulty;
mod filters;
mod frame_paths;
mod hook_move;
mod iface_set;
mod ifaces;
mod instances;
mod load;
mod looks;
mod made_path;
mod neighbours;
mod node_path;
mod observe;
mod operation;
mod operations;
mod own;
mod owners;
mod path_registry;
mod paths;
mod paths_shown;
mod patterns;
mod program_array;
mod promote;
mod relay;
mod relay_shadow;
mod request;
mod retake;
mod rows;
pub mod rung;
mod serve;
mod shadow;
mod shell_commands;
mod shells;
pub mod show;
mod status;
mod swap;
mod take;
mod taken;
mod taps;
mod unload;
pub mod why;
mod world;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Weak};

use ashway_codegen::entry::Reply;
use ashway_demux::Table;
use ashway_kernel::iface::Now;
use ashway_kernel::neighbour::Tables;
use ashway_kernel::{Attached, Map, News, Program};
use ashway_path::places::PathId;
use ashway_ring::IngressDrop;

use crate::compile::CompileThread;
use crate::request::Refusal;
use crate::rung::{Means, Rung};
use ashway_config::{Attach, Config, NodeGraph, Tier};
use ashway_worker::bell::Bell;
use ashway_worker::bindings::HandlerBinding;
use ashway_worker::counters::UserRows;
use ashway_worker::faults::Faults;
use ashway_worker::handle::HandlerHandle;
use ashway_worker::iface_map::IfaceMap;
use ashway_worker::instance::{Instance, NotPromoted};
use ashway_worker::plan::{HandlerId, Plan};
use ashway_worker::programs::{DemuxMaps, NodeMaps};
use ashway_worker::queue_plan::IfaceFacts;
use ashway_worker::rows::Rows;
use ashway_worker::say::say;
use ashway_worker::target::Target;
use ashway_worker::worker::Worker;
use ashway_worker::worker::command::Command;
use entry::NextProgram;
use frame_paths::FrameQueue;
use looks::Deaths;
use neighbours::Neighbours;
use node_path::Feed;
use operations::Operations;
use own::Outside;
use owners::{Owner, Owners};
use path_registry::PathRegistry;
use patterns::LeftOut;
use relay::NodeRelays;
use world::{Link, NodeServices};

pub use ashway_worker::medium::memory::{FarEnd, NotTaken};
pub use build::build;
pub use control::Control;
pub use error::RunError;
pub use serve::{Told, serve};

/// How to run.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Detach after this time unless confirmed.
    pub try_seconds: Option<u64>,
    /// The control socket.
    pub socket: PathBuf,
    /// Whether it ends when the captures that its interfaces read are at their ends.
    pub until_end: bool,
    /// Whether the node's lines go to standard error, because standard output
    /// is for a document.
    pub lines_to_stderr: bool,
}

/// Everything a running node holds. Fields are dropped in order: first the
/// interfaces go back to the host, then the worker finishes what it has.
#[derive(Debug)]
pub struct Node {
    ifaces: IfaceMap<NodeIface>,
    worker: Worker,
    /// By interface; they end behind the worker, so that no message is taken
    /// from the host and from the worker too.
    drop_rules: IfaceMap<IngressDrop>,
    /// All paths.
    paths: PathRegistry,
    /// The instances of handlers.
    handlers: BTreeMap<HandlerId, HandlerHandle>,
    /// Processes that handlers and paths belong to.
    owners: Owners,
    /// When they end, and who reads endpoints.
    deaths: Deaths,
    /// Rung when there is something to look at.
    bell: Arc<Bell>,
    /// Changes of interfaces.
    link_news: News,
    /// Interfaces that match a pattern and are not taken, by the kernel's number.
    left_out: BTreeMap<u32, LeftOut>,
    /// Those that were unloaded and that the worker is not done with.
    leaving: Vec<HandlerHandle>,
    /// Bindings that were bypassed at the last look.
    resting: Vec<Weak<HandlerBinding>>,
    /// Where whole frames come; made when the first path wants them.
    frame_queue: Option<FrameQueue>,
    /// Kernel-tier state of relays; created with the first relay.
    relays: Option<NodeRelays>,
    /// The kernel's tables of routes and neighbours.
    tables: Tables,
    /// Next hops whose hardware address is looked up.
    neighbours: Neighbours,
    /// How many paths the node has named itself.
    named: u64,
    links: IfaceMap<Link>,
    graph: NodeGraph,
    served: NodeServices,
    maps: Option<Arc<NodeMaps>>,
    /// What it can do, its interfaces apart.
    means: Means,
    compile_thread: CompileThread<operations::Job>,
    operations: Operations,
    rows: Arc<UserRows>,
    /// Messages of paths of modules that wait for their paths' shares.
    held: Arc<AtomicU32>,
    plan: Plan,
    /// The rows of paths that are bound while it runs.
    counter_rows: Rows<rows::Former>,
    /// What runs now: the file's, and what was loaded and bound since.
    config: Config,
    /// Whether programs may use arenas.
    arena: bool,
    /// Messages that stopped handlers.
    faults: Arc<Faults>,
    /// While somebody observes.
    observation: Option<observe::Observation>,
    /// Observations begun so far; the number of the next session.
    observations: u16,
}

/// An interface the node has taken.
#[derive(Debug)]
struct NodeIface {
    name: String,
    /// As it was asked for.
    attach: Attach,
    /// The pattern that it matches, if no section has its name.
    pattern: Option<String>,
    /// Its demux.
    table: Table<Target>,
    /// Whether one path takes all fragments.
    catch_all: bool,
    /// Absent on rungs without programs.
    xdp: Option<XdpSide>,
    ifindex: u32,
    facts: IfaceFacts,
    rung: Rung,
    /// Why that one, where `auto` chose.
    because: Option<String>,
    /// Transmit errors of the driver when the node took the interface, and when it was
    /// last asked: one that is gone has taken its own count along.
    tx_errors: [u64; 2],
    /// What those before it under its name have lost.
    lost_before: u64,
    /// Why one that was made anew is not taken.
    not_taken: Option<String>,
    /// Whether matched messages are kept from the host's stack.
    consumes: bool,
    /// Whether it is there.
    state: State,
    /// How often its hardware address was changed since the node took it.
    mac_changes: u64,
    /// What the node has of the other end, if it has made the interface itself.
    outside: Outside,
}

impl NodeIface {
    /// Asks the driver how many frames it has lost, while it is the driver of the
    /// interface that the node took.
    fn ask_driver(&mut self) {
        if !matches!(self.state, State::Gone | State::Anew) {
            let [_, last] = &mut self.tx_errors;
            // A driver that is just leaving says nothing.
            *last = take::tx_errors(&self.name, self.rung).max(*last);
        }
    }

    /// Frames that the driver has lost since the node took the interface.
    const fn lost_by_driver(&self) -> u64 {
        let [before, last] = self.tx_errors;
        self.lost_before + last.saturating_sub(before)
    }
}

/// Whether an interface is there, and can be sent by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It is.
    Up,
    /// Somebody has set it down.
    Down,
    /// XDP was taken off it. Frames can still leave by it.
    Detached,
    /// It was deleted, or is elsewhere.
    Gone,
    /// It was deleted, and there is another of its name, which the node could not take.
    Anew,
}

impl State {
    /// What can be done about it; nothing where nothing is wrong.
    fn hint(self, name: &str) -> Option<String> {
        let drops = "until then what paths send by it is `dropped_iface_down`";
        match self {
            Self::Up => None,
            Self::Down => Some(format!("`ip link set {name} up`: {drops}")),
            Self::Detached => Some("start the node again to have it back".to_owned()),
            Self::Gone => Some(format!(
                "it is taken again when there is an interface `{name}`: {drops}"
            )),
            Self::Anew => Some(format!(
                "there is an interface `{name}` again, which cannot be taken yet; the node tries \
                 when an interface changes, and once a minute: {drops}"
            )),
        }
    }

    /// Whether the node has nothing of it any more, in or out.
    const fn is_lost(self) -> bool {
        matches!(self, Self::Detached | Self::Gone | Self::Anew)
    }
}

/// What programs need on an interface; the links go first.
#[derive(Debug)]
struct XdpSide {
    link: Attached,
    exit_link: Option<Attached>,
    slots: Arc<Map>,
    entry: Program,
    /// The maps of the entry program.
    demux: DemuxMaps,
    /// The next one.
    next: NextProgram,
    reply: Reply,
}

impl Node {
    /// The instances of all handlers.
    fn instances(&self) -> impl Iterator<Item = &Arc<Instance>> + Clone {
        self.handlers.values().map(|handler| &handler.shared)
    }

    /// The number of the interface of this name.
    fn iface_number(&self, name: &str) -> Option<usize> {
        let mut ifaces = self.ifaces.iter();
        let (number, _) = ifaces.find(|(_, iface)| iface.name == name)?;
        Some(number)
    }

    /// The names of all interfaces.
    fn iface_names(&self) -> Vec<&str> {
        self.ifaces.values().map(|iface| &*iface.name).collect()
    }

    /// What plans need to know of the interfaces.
    fn iface_facts(&self) -> IfaceMap<IfaceFacts> {
        let ifaces = self.ifaces.iter();
        ifaces
            .map(|(number, iface)| (number, iface.facts))
            .collect()
    }

    /// The handler of this name.
    fn handler(&self, name: &str) -> Option<(HandlerId, &HandlerHandle)> {
        let mut handlers = self.handlers.iter();
        let (id, handler) = handlers.find(|(_, handler)| handler.shared.name == name)?;
        Some((*id, handler))
    }

    /// The same, for a request.
    ///
    /// # Errors
    ///
    /// That there is none.
    fn find_handler(&self, name: &str) -> Result<(HandlerId, &HandlerHandle), Refusal> {
        self.handler(name).ok_or_else(|| self.no_handler(name))
    }

    /// The path of this name that is bound to a handler.
    fn bound_path(&self, name: &str) -> Option<PathId> {
        let (id, path) = self.paths.named(name)?;
        path.bound().map(|_| id)
    }

    /// What a path is called, and the tier that its messages take now.
    ///
    /// # Panics
    ///
    /// If there is none of this id.
    fn name_and_tier(&self, id: PathId) -> (Arc<str>, Tier) {
        let path = self
            .paths
            .at(id)
            .expect("whoever has the id has found the path");
        let tier = match &path.feed {
            Feed::Handler(bound) => bound.tier,
            Feed::Frames(frames) => frames.tier(),
        };
        (Arc::clone(&path.name), tier)
    }

    /// Moves a path to the user tier, and ends a promotion that is under way. What is in
    /// the kernel tier at this moment ends there; later messages queue behind each other.
    fn demote(&mut self, path: PathId) -> Result<(), NotPromoted> {
        self.paths.bound_mut(path).demotions += 1;
        self.switch(path, Tier::User)
    }

    fn switch(&mut self, path: PathId, tier: Tier) -> Result<(), NotPromoted> {
        let begin = std::time::Instant::now();
        if !self.put(path, tier)? {
            return Ok(());
        }
        self.paths.bound_mut(path).tier = tier;
        self.paths.bound_mut(path).demoted = None;
        if let Some(end) = self.end(path) {
            end.moved(tier == Tier::Kernel);
            if end.share.is_some() {
                // What waits is worked off now and not behind the worker's nap; one that is
                // gone works for nobody.
                let runs = self.plan.paths[&path].runs.clone();
                let _ = self.call_worker(Command::LookAtShares(runs));
            }
        }
        self.paths.bound_mut(path).switch_ns = begin.elapsed().as_nanos() as u64;
        Ok(())
    }

    /// Notices interfaces that are down, have been deleted or renamed, were taken from the node by
    /// `iface detach`, or have [changed](Self::follow_iface), and takes those
    /// [again](Self::take_again) that were made anew. What is to leave by one that cannot is
    /// dropped from now on, in both tiers. Says whether any is left, or can come back: one
    /// that was taken from the node does not.
    fn look_for_ifaces(&mut self, looks: &mut looks::Looks) -> bool {
        let mut changed = false;
        let mut seen = Vec::new();
        let mut left = Vec::new();
        for (number, iface) in self.ifaces.iter_mut() {
            if matches!(iface.rung, Rung::Pcap | Rung::Memory) {
                continue;
            }
            let name = &iface.name.clone();
            let attached = iface.xdp.as_ref().is_none_or(|xdp| xdp.link.is_attached());
            let found = ashway_kernel::iface::now(iface.ifindex);
            // Renamed, it is another interface: the configuration knows it by its name.
            let (found, other_name) = match found {
                Ok(Now { name: other, .. }) if other != *name && iface.state != State::Detached => {
                    (Err(io::Error::from_raw_os_error(libc::ENODEV)), Some(other))
                }
                found => (found, None),
            };
            seen.extend(found.as_ref().ok().map(|now| (number, now.clone())));
            let now = match found {
                // It was in another namespace, and what the node had of it was let go.
                Ok(_) if matches!(iface.state, State::Gone | State::Anew) => State::Anew,
                Ok(_) if !attached => State::Detached,
                Ok(Now { up: true, .. }) => State::Up,
                Ok(Now { up: false, .. }) => State::Down,
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {
                    match ashway_kernel::iface::index(name) {
                        Ok(_) => State::Anew,
                        Err(_) => State::Gone,
                    }
                }
                // The kernel did not answer: that says nothing of the interface.
                Err(_) => iface.state,
            };
            let was = std::mem::replace(&mut iface.state, now);
            iface.ask_driver();
            if was == now {
                continue;
            }
            changed = true;
            let is_gone = now == State::Gone || now == State::Anew && was != State::Gone;
            // One that a pattern has taken is let go of for good, in a moment.
            let comes_back = iface.pattern.is_none();
            if is_gone && comes_back {
                iface.leave();
                left.push(number);
            }
            if let Some(other) = other_name {
                say(&format!("interface `{name}` is called `{other}` now"));
            }
            self.links[number].set_down(!matches!(now, State::Up | State::Detached));
            say(&match now {
                State::Up => format!("interface `{name}` is up again"),
                State::Down => format!("interface `{name}` is down"),
                State::Detached => format!("interface `{name}` was detached from this node"),
                State::Gone => format!("interface `{name}` is gone"),
                State::Anew => format!("interface `{name}` was made anew"),
            });
            // What is made anew is taken in a moment.
            let hint = now.hint(name).filter(|_| now != State::Anew);
            if let Some(hint) = hint.filter(|_| comes_back || !is_gone) {
                say(&format!("  hint: {hint}"));
            }
        }
        for number in left {
            self.let_go(number);
        }
        for (number, now) in seen {
            changed |= self.follow_iface(number, &now);
        }
        for number in self.ifaces.numbers() {
            let iface = &self.ifaces[number];
            if iface.state == State::Anew && iface.pattern.is_none() {
                changed |= self.take_again(number);
            }
        }
        let followed = self.follow_patterns();
        if followed.more {
            looks.ifaces.want();
        }
        if followed.changed {
            self.begin_entries();
        }
        if changed || followed.changed {
            // A worker that does not answer works for nobody any more.
            let _ = self.call_worker(Command::RefreshRelays);
        }
        let taken = |iface: &NodeIface| iface.state == State::Detached;
        let awaits = self.ifaces.is_empty() || !self.config.patterns.is_empty();
        awaits || !self.ifaces.values().all(taken)
    }
}
