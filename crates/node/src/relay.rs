//! Relays in the kernel tier, as the node has them: which path has a number, and
//! whether its messages may run there.
//!
//! A path that the kernel tier can do ([`ashway_modules::relay`]) gets a number when
//! it is created, whatever its tier: its messages are led to the program of relays,
//! and a hop says what that does with them. So promoting and demoting is a write of
//! two hops, and nothing is led anywhere else meanwhile. What the program leaves to
//! the user tier comes by the ring that all whole frames come by.
//!
//! A relay's row counts what its programs saw; what of that went on to the user tier
//! is among the notes there, and its fate with the other paths'.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use ashway_abi::count::Ledger;
use ashway_abi::share::Mode;
use ashway_abi::{Count, hop};
use ashway_api::answer::{Counts, KernelPart, Moved, Tally};
use ashway_check::bpf::Hook;
use ashway_codegen::entry::Reply;
use ashway_demux::Filter;
use ashway_kernel::{Attached, Program, shared};
use ashway_memory::SharedArray;
use ashway_modules::relay::NotPromotable;
use ashway_modules::{Message, rules};
use ashway_path::path::Path;
use ashway_path::places::PathId;
use ashway_path::stage::Direction;
use rustix::thread::{MembarrierCommand, membarrier};

use super::Node;
use super::node_path::{Attachment, FramePath, RelaySlot};
use super::program_array::RELAY_SLOT;
use crate::request::{Code, Refusal};
use ashway_config::{NotBound, Tier};
use ashway_worker::counters::Row;
use ashway_worker::iface_map::IfaceMap;
use ashway_worker::programs::{self, NodeMaps};
use ashway_worker::relays::{self, KEYS, MOST, Out, Relays};
use ashway_worker::shadow::Compared;
use ashway_worker::worker::command::{Command, Resource};

/// What becomes of messages that the program of relays was done with; other fates in a relay's
/// row are of messages that were dropped before.
pub(super) const DONE: [Count; 2] = [Count::Forwarded, Count::DroppedNoHeadroom];

/// What all relays of a node share.
#[derive(Debug)]
pub(super) struct NodeRelays {
    pub(super) program: Program,
    pub(super) hops: Arc<SharedArray>,
    numbers: HashMap<PathId, usize>,
    /// Longest unused first.
    free: VecDeque<usize>,
    /// By number: its counters when its present path got it.
    base: Vec<Row>,
    /// Numbers that were ever used.
    used: usize,
    /// How often each path was demoted, so that a promotion under way ends by it.
    pub(super) demotions: HashMap<PathId, u32>,
    /// What was compared before paths were promoted.
    pub(super) compared: HashMap<PathId, Compared>,
}

impl NodeRelays {
    /// The number of a path, if it has one.
    pub(super) fn number(&self, id: PathId) -> Option<usize> {
        self.numbers.get(&id).copied()
    }

    /// All paths with a number.
    pub(super) fn numbers(&self) -> impl Iterator<Item = (PathId, usize)> {
        self.numbers.iter().map(|(id, number)| (*id, *number))
    }
}

fn stays(because: impl Into<Cow<'static, str>>, hint: &'static str) -> NotPromotable {
    NotPromotable {
        because: because.into(),
        hint,
    }
}

impl Node {
    /// Gives a new path a number, if the kernel tier can do it; says whether it has.
    pub(super) fn place(&mut self, id: PathId, fits: Result<(), NotPromotable>) -> bool {
        let placed = fits.and_then(|()| self.find_place(id));
        self.paths.place(id, placed)
    }

    fn find_place(&mut self, id: PathId) -> Result<RelaySlot, NotPromotable> {
        self.need_relays()?;
        let ends = self.paths.frames(id).into_iter();
        let ends = ends.flat_map(FramePath::ends);
        let ends: Vec<usize> = ends.map(|end| end.iface()).collect();
        self.need_exits(&ends)?;
        let relays = self.relays.as_mut().expect("made above");
        let frame_queue = &self.frame_queue.as_ref().expect("relays have one").queue;
        let is_idle = |number: &usize| {
            [Direction::Forward, Direction::Backward]
                .into_iter()
                .all(|direction| frame_queue.in_user(relays::key(*number, direction)) == 0)
        };
        let at = relays.free.iter().position(is_idle);
        let Some(number) = at.and_then(|at| relays.free.remove(at)) else {
            return Err(stays(
                format!("{MOST} relays of this node are in the kernel tier already"),
                "remove one of them, and create this one again",
            ));
        };
        frame_queue.forget_share(relays::account_key(number));
        relays.numbers.insert(id, number);
        relays.used = relays.used.max(number + 1);
        let row = self.row(self.plan.relay_row(number));
        self.relays.as_mut().expect("made above").base[number] = row;
        if self.call_worker(Command::AddRelay(id, number)).is_err() {
            self.release(&[id]);
            return Err(stays("the worker does not answer", ""));
        }
        Ok(RelaySlot {
            number,
            tier: Tier::User,
            switch_ns: 0,
        })
    }

    /// Whether the kernel tier can do a path that is not bound to a handler, for this reason,
    /// as the rule `promote` has marked it.
    pub(super) fn fits(
        &self,
        path: &Path<Message>,
        why: NotBound,
        ends: &[(Attachment, Filter)],
    ) -> Result<(), NotPromotable> {
        self.graph.fits(path, why)?;
        let has_xdp = |(end, _): &(Attachment, Filter)| self.ifaces[end.iface()].xdp.is_some();
        if self.maps.is_none() || !ends.iter().all(has_xdp) {
            return Err(stays(
                "it is on an interface without a kernel tier",
                "`ashway doctor` says what the kernel tier needs here",
            ));
        }
        let marks = [rules::PROMOTE_FORWARD, rules::PROMOTE_BACKWARD];
        if marks.iter().any(|mark| path.attrs().number(mark).is_none()) {
            return Err(stays(
                "no rule has left its stages to the kernel tier",
                "this is a bug of Ashway; please report it",
            ));
        }
        Ok(())
    }

    /// Makes what all relays share, unless it is there.
    fn need_relays(&mut self) -> Result<(), NotPromotable> {
        let (None, Some(maps), Some(frame_queue)) = (&self.relays, &self.maps, &self.frame_queue)
        else {
            return Ok(());
        };
        let failed = |error: &dyn std::fmt::Display| {
            let because = format!("the program of relays was not accepted: {error}");
            stays(because, "`ashway doctor` says what the kernel lacks")
        };
        let hops = shared::words("ashway_hops", KEYS * hop::BYTES);
        let hops = hops.map_err(|error| failed(&error))?;
        let program = frame_queue.queue.load_forward(maps, &hops, None);
        let program = program.map_err(|error| failed(&error))?;
        for iface in self.ifaces.values() {
            if let Some(xdp) = &iface.xdp {
                let set = xdp.slots.set_slot(RELAY_SLOT, program.fd());
                set.map_err(|error| failed(&error))?;
            }
        }
        let hops = Arc::new(hops);
        let worker = Relays::new(Arc::clone(&hops), self.plan.relay_row(0), self.ways_out());
        self.call_worker(Resource::Relays(worker))
            .map_err(|refusal| stays(refusal.message, ""))?;
        self.relays = Some(NodeRelays {
            program,
            hops,
            numbers: HashMap::new(),
            free: (0..MOST).collect(),
            base: vec![Row::empty(); MOST],
            used: 0,
            demotions: HashMap::new(),
            compared: HashMap::new(),
        });
        Ok(())
    }

    /// How each interface is reached.
    pub(super) fn ways_out(&self) -> IfaceMap<Out> {
        let ifaces = self.ifaces.iter();
        ifaces.map(|(it, iface)| (it, iface.way_out())).collect()
    }

    /// Attaches the exit program where messages come in whose way out takes no
    /// redirect.
    pub(super) fn need_exits(&mut self, ends: &[usize]) -> Result<(), NotPromotable> {
        match self.maps.clone() {
            Some(maps) if maps.hook == Hook::Xdp => self.attach_exits(&maps, ends),
            _ => Ok(()),
        }
    }

    /// The same of programs that are, or are about to be, at XDP.
    pub(super) fn attach_exits(
        &mut self,
        maps: &NodeMaps,
        ends: &[usize],
    ) -> Result<(), NotPromotable> {
        let is_exit = |iface: usize| {
            let xdp = self.ifaces[iface].xdp.as_ref();
            xdp.is_none_or(|xdp| xdp.reply == Reply::Exit)
        };
        let comes_in = |iface: &&usize| ends.iter().any(|end| end != *iface && is_exit(*end));
        let ifaces: Vec<usize> = ends.iter().filter(comes_in).copied().collect();
        for iface in ifaces {
            let xdp = self.ifaces[iface].xdp.as_ref();
            if xdp.is_none_or(|xdp| xdp.exit_link.is_some()) {
                continue;
            }
            let name = &self.ifaces[iface].name;
            let failed = |error: &dyn std::fmt::Display| {
                let because = format!("`{name}` does not take the exit program: {error}");
                stays(because, "`ashway doctor` says what TCX needs")
            };
            let exit = programs::load_exit(maps).map_err(|error| failed(&error))?;
            let link = Attached::tcx(&exit, self.ifaces[iface].ifindex);
            let link = link.map_err(|error| failed(&error))?;
            if let Some(xdp) = &mut self.ifaces[iface].xdp {
                xdp.exit_link = Some(link);
            }
        }
        Ok(())
    }

    /// Takes their numbers from paths that nothing is led to any more. Waits for an
    /// RCU grace period, behind which no program counts for them.
    pub(super) fn release(&mut self, ids: &[PathId]) {
        let Some(relays) = &mut self.relays else {
            return;
        };
        let freed: Vec<usize> = ids
            .iter()
            .filter_map(|id| {
                relays.demotions.remove(id);
                relays.compared.remove(id);
                relays.numbers.remove(id)
            })
            .collect();
        if !freed.is_empty() {
            let _ = membarrier(MembarrierCommand::Global);
            relays.free.extend(freed);
        }
    }

    /// Moves a path whose messages come as whole frames to a tier.
    ///
    /// # Errors
    ///
    /// Why it stays in the user tier.
    pub(super) fn move_relay(&mut self, id: PathId, tier: Tier) -> Result<Moved, Refusal> {
        let begin = Instant::now();
        let (name, _) = self.name_and_tier(id);
        if let Some(stays) = self.paths.frames(id).and_then(|path| path.stays.as_ref())
            && tier == Tier::Kernel
        {
            return Err(Refusal::new(
                Code::HandlerRefused,
                format!("path `{name}` stays in the user tier: {}", stays.because),
                stays.hint,
            ));
        }
        self.call_worker(Command::Promote(id, tier == Tier::Kernel))?;
        if let Some(relays) = &mut self.relays
            && relays.numbers.contains_key(&id)
            && tier == Tier::User
        {
            *relays.demotions.entry(id).or_default() += 1;
        }
        let mut switch_ns = 0;
        let path = self.paths.frames_mut(id);
        if let Some(place) = path.and_then(|path| path.place.as_mut()) {
            place.tier = tier;
            place.switch_ns = begin.elapsed().as_nanos() as u64;
            switch_ns = place.switch_ns;
        }
        Ok(Moved {
            path: name.to_string(),
            tier: tier.word().into(),
            switch_ns,
            bypass: self.describe_faults(id).1,
            shadow: Some(self.relay_shadow(id, false)),
        })
    }

    /// What the kernel tier has counted of all relays there ever were.
    pub(super) fn rows_of_relays(&self) -> Row {
        let mut sum = Row::empty();
        for number in 0..self.relays.as_ref().map_or(0, |relays| relays.used) {
            sum.add(&self.row(self.plan.relay_row(number)));
        }
        sum
    }

    /// Messages of all paths of the user tier that wait in a ring.
    pub(super) fn waiting_in_rings(&self) -> u64 {
        let relays = self.relays.as_ref().map_or(0, |relays| relays.used);
        let others = KEYS..KEYS + 2 * self.paths.numbers() as usize;
        let frame_queue = self.frame_queue.iter();
        frame_queue
            .flat_map(|frame_queue| {
                let keys = (0..=2 * relays).chain(others.clone());
                keys.map(|key| u64::from(frame_queue.queue.in_user(key)))
            })
            .sum()
    }

    /// How a relay of the kernel tier stands with its share.
    pub(super) fn mode_of_relay(&self, path: &FramePath) -> Option<Mode> {
        let place = path.place.as_ref()?;
        let frame_queue = &self.frame_queue.as_ref()?.queue;
        let ways = [Direction::Forward, Direction::Backward].into_iter();
        let keys = ways.map(|direction| relays::key(place.number, direction));
        let waits = keys.map(|key| frame_queue.in_user(key)).sum::<u32>() > 0;
        Some(frame_queue.mode(relays::account_key(place.number), waits))
    }

    /// What programs have counted of a path, if it is a relay.
    pub(super) fn row_of_relay(&self, path: &FramePath) -> Option<Row> {
        let place = path.place.as_ref()?;
        let base = self.relays.as_ref().map(|relays| relays.base[place.number]);
        let row = self.row(self.plan.relay_row(place.number));
        Some(row.since(&base.unwrap_or_else(Row::empty)))
    }

    /// Adds the kernel tier's part to what a path has counted in the user tier, and says
    /// what that part is.
    pub(super) fn add_kernel(&self, path: &FramePath, counts: &mut Counts) -> Option<KernelPart> {
        let row = self.row_of_relay(path)?;
        // What went on to the user tier is counted by the path.
        // A note may be there before its message: the row is read while it is written.
        let received = row
            .get(Count::Received)
            .saturating_sub(row.sum(Ledger::Note));
        counts.received += received;
        counts.balanced &= received == row.sum(Ledger::Fate);
        let of = |ledger: Ledger| {
            let all = Count::ALL
                .iter()
                .filter(move |count| count.ledger() == ledger);
            let all = all.map(|count| (*count, row.get(*count)));
            all.filter(|(_, times)| *times > 0)
        };
        for (fate, times) in of(Ledger::Fate) {
            counts.add_fate(fate, times);
        }
        let notes = of(Ledger::Note).map(|(note, times)| (note.name().into(), times));
        // The worker has none of a path of modules.
        counts.notes = Tally(notes.collect());
        Some(KernelPart {
            received: row.get(Count::Received),
            notes: counts.notes.clone(),
        })
    }
}
