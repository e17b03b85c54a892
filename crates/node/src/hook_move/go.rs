//! The move itself: what is attached when, so that each frame meets one entry program.
//!
//! From XDP to TCX: the program at XDP is exchanged for one that [marks](moving) every frame
//! and goes on to it; behind a grace period, when no frame without a mark is between the hooks,
//! TCX gets a program that leaves alone what is marked; then XDP is detached. To XDP the other
//! way round: TCX looks for marks, XDP passes everything on (a driver that refuses does so here, and
//! nothing has changed), and then marks. On a veth, Linux drops what waits in the ring between the
//! two ends when native XDP is detached: nobody has received that yet.
//!
//! [moving]: ashway_codegen::moving

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use ashway_check::bpf::Hook;
use ashway_codegen::entry::Reply;
use ashway_kernel::{Attached, Iface, Map, MapSpec, Program, tcx_owners};
use ashway_worker::programs::{self, DemuxMaps, NodeMaps};
use ashway_worker::worker::command::{Command, Resource};
use rustix::thread::{MembarrierCommand, membarrier};

use super::super::entry::NextProgram;
use super::super::relay::NodeRelays;
use super::super::{Node, RunError, XdpSide, dispatch, program_array, say, take};
use super::{HookMove, HookSet, Shift};
use crate::request::Refusal;
use crate::rung::{Choice, Rung, cost};
use ashway_config::Attach;

/// Everything that an interface has at the other hook, while nothing is attached yet.
struct NextSide {
    number: usize,
    slots: Arc<Map>,
    entry: Program,
    demux: DemuxMaps,
    reply: Reply,
    exit_link: Option<Attached>,
    /// Before the entry program that it has, and before the one that it gets.
    gates: [Gate; 2],
}

/// A program before an entry program.
struct Gate {
    program: Program,
    /// Has the entry program, as long as this is open.
    _entry: Map,
}

impl Node {
    /// Moves interfaces to where they are asked for.
    ///
    /// # Errors
    ///
    /// Why not; nothing has changed, unless the refusal says so.
    pub(in super::super) fn move_hook(
        &mut self,
        moving: HookMove,
        sets: Vec<HookSet>,
    ) -> Result<(), Refusal> {
        if let Some(busy) = self.operations.busy() {
            return Err(Refusal::failed(
                format!("cannot move to another hook while {busy} is under way"),
                "ask once more in a moment; `ashway status` shows what it waits for",
            ));
        }
        if !sets.iter().all(|set| self.fits_set(set)) {
            let message = "the node was changed meanwhile";
            return Err(Refusal::failed(message, "ask once more"));
        }
        let HookMove {
            hook,
            anew,
            shifts,
            asked,
            ..
        } = moving;
        for shift in &shifts {
            // What was to take the entry program's place is of the hook that it leaves.
            self.drop_next(shift.number);
        }
        let from: Vec<Rung> = shifts
            .iter()
            .map(|it| self.ifaces[it.number].rung)
            .collect();
        let mut sets = sets.into_iter();
        let is_xdp = self
            .maps
            .as_ref()
            .is_some_and(|maps| maps.hook == Hook::Xdp);
        match (is_xdp, hook, sets.next()) {
            (_, _, None) => {}
            (true, Hook::Tcx, Some(set)) => {
                self.move_to_tcx(&shifts, &set)?;
                self.adopt(set);
            }
            (false, _, Some(set)) => {
                let now = self.maps.clone().expect("it has programs");
                self.move_to_xdp(&shifts, &now, Some(&set))?;
                self.adopt(set);
            }
            (true, Hook::Xdp, Some(by_way)) => {
                let set = sets.next();
                self.move_to_tcx(&shifts, &by_way)?;
                if let Err(refusal) = self.move_to_xdp(&shifts, &by_way.maps, set.as_ref()) {
                    return Err(self.back(shifts, &from, &by_way, refusal));
                }
                if let Some(set) = set {
                    self.adopt(set);
                }
            }
        }
        for (number, attach) in asked {
            self.ifaces[number].attach = attach;
        }
        for (shift, from) in shifts.into_iter().zip(from) {
            let iface = &mut self.ifaces[shift.number];
            let to = iface.rung;
            iface.because = if to == shift.to.rung {
                shift.to.because
            } else {
                Some("its driver does not take the program".to_owned())
            };
            let (name, was, is) = (&iface.name, from.name(), to.name());
            say(&format!("interface `{name}` has moved from {was} to {is}"));
            say(&format!("{name}: {}", cost(&shift.found, to)));
        }
        if anew {
            self.move_lost(hook);
        }
        if hook == Hook::Tcx {
            take::say_of_lo();
        }
        self.names_changed();
        Ok(())
    }

    /// An interface that is not there has nothing attached: when it is taken again it has a
    /// program array of the hook by then.
    fn move_lost(&mut self, hook: Hook) {
        for number in self.ifaces.numbers() {
            let iface = &self.ifaces[number];
            if iface.xdp.is_none() || !iface.state.is_lost() {
                continue;
            }
            let rung = match (hook, iface.attach) {
                (Hook::Tcx, _) => Rung::Tcx,
                (Hook::Xdp, Attach::Generic) => Rung::Generic,
                (Hook::Xdp, _) => Rung::Native,
            };
            let name = iface.name.clone();
            let slots = program_array::create().map_err(|error| error.refusal());
            let slots = slots.and_then(|slots| {
                let filled = self.fill(&slots, number, None);
                filled.map_err(|error| not_filled(&name, &error))?;
                Ok(slots)
            });
            match (slots, &mut self.ifaces[number]) {
                (Ok(slots), iface) => {
                    iface.rung = rung;
                    if let Some(xdp) = &mut iface.xdp {
                        xdp.slots = Arc::new(slots);
                    }
                }
                (Err(refusal), _) => say(&refusal.message),
            }
        }
    }

    /// The second half of a way round could not be gone: back to where they were.
    fn back(
        &mut self,
        shifts: Vec<Shift>,
        from: &[Rung],
        by_way: &HookSet,
        mut refusal: Refusal,
    ) -> Refusal {
        let shifts = shifts.into_iter().zip(from);
        let shifts: Vec<Shift> = shifts
            .map(|(shift, rung)| Shift {
                asked: Attach::Xdp,
                to: Choice {
                    rung: *rung,
                    because: None,
                },
                ..shift
            })
            .collect();
        if let Err(stays) = self.move_to_xdp(&shifts, &by_way.maps, None) {
            let too = format!(
                "; nor back, so that interfaces stay at TCX: {}",
                stays.message
            );
            refusal.message.push_str(&too);
            "messages are worked on; start the node anew".clone_into(&mut refusal.hint);
        }
        refusal
    }

    /// Makes what an interface needs at the hook of `to`; it is at that of `now`.
    fn next_side(
        &self,
        shift: &Shift,
        now: &NodeMaps,
        to: &NodeMaps,
        set: Option<&HookSet>,
        mark: u32,
    ) -> Result<NextSide, Refusal> {
        let Shift { number, found, .. } = shift;
        let number = *number;
        let iface = &self.ifaces[number];
        let failed = |error: RunError| error.refusal();
        let slots = program_array::create().map_err(failed)?;
        let filled = self.fill(&slots, number, set);
        filled.map_err(|error| not_filled(&iface.name, &error))?;
        let reply = take::reply(found, shift.to.rung);
        let leaves = self.leaves(number);
        let entry = dispatch::Entry {
            name: &iface.name,
            maps: to,
            slots: &slots,
            unmatched_row: leaves.unmatched_row(),
            mac: self.links[number].mac().get(),
            reply,
            arena: self.arena,
            observe: None,
        };
        let entry = entry.load(&iface.table, |target| leaves.leaf(target));
        let (entry, demux) = entry.map_err(failed)?;
        let tcx_is_there = now.hook == Hook::Tcx;
        let gate = |maps: &NodeMaps, entry: &Program| -> Result<Gate, Refusal> {
            let slots = Map::create(&MapSpec::prog_array("ashway_gate", 1));
            let slots = slots.and_then(|slots| {
                slots.set_slot(0, entry.fd())?;
                Ok(slots)
            });
            let slots = slots.map_err(|error| not_filled(&iface.name, &error))?;
            let program = programs::load_gate(maps, mark, tcx_is_there, &slots);
            let program = program.map_err(|source| {
                failed(RunError::Load {
                    what: "gate",
                    iface: iface.name.clone(),
                    source,
                })
            })?;
            Ok(Gate {
                program,
                _entry: slots,
            })
        };
        let at_now = iface.xdp.as_ref().expect("an interface that moves has one");
        let gates = [gate(now, &at_now.entry)?, gate(to, &entry)?];
        let exit_link = match (to.hook, reply) {
            (Hook::Xdp, Reply::Exit) => Some(take::exit_link(to, found).map_err(failed)?),
            _ => None,
        };
        Ok(NextSide {
            number,
            slots: Arc::new(slots),
            entry,
            demux,
            reply,
            exit_link,
            gates,
        })
    }

    fn next_sides(
        &self,
        shifts: &[Shift],
        now: &NodeMaps,
        to: &NodeMaps,
        set: Option<&HookSet>,
    ) -> Result<Vec<NextSide>, Refusal> {
        // A number that no other node marks with: its frames may come here.
        let mark = RandomState::new().hash_one(0) as u32 >> 1;
        let nexts = shifts.iter();
        let nexts = nexts.map(|shift| self.next_side(shift, now, to, set, mark));
        nexts.collect()
    }

    /// Puts a program in the place of what is attached to an interface.
    fn exchange_for(&self, number: usize, program: &Program) -> Result<(), Refusal> {
        let xdp = self.ifaces[number].xdp.as_ref();
        let xdp = xdp.expect("an interface that moves has one");
        let updated = xdp.link.update(program);
        updated.map_err(|error| self.not_exchanged(number, &error))
    }

    /// Puts gates in the place of what is attached, and waits until every frame meets one.
    fn close_gates(&self, nexts: &[NextSide]) -> Result<(), Refusal> {
        let mut nexts = nexts.iter();
        nexts.try_for_each(|next| self.exchange_for(next.number, &next.gates[0].program))?;
        grace_period();
        Ok(())
    }

    /// Puts the entry programs back, of interfaces that have not moved.
    fn stay(&mut self, shifts: &[Shift]) {
        grace_period();
        for shift in shifts {
            if let Some(xdp) = &self.ifaces[shift.number].xdp {
                // One that somebody has detached meanwhile has no program at all.
                let _ = xdp.link.update(&xdp.entry);
            }
            let rung = self.ifaces[shift.number].rung;
            if rung == Rung::Native {
                self.pass_by(shift, rung);
            }
        }
        grace_period();
    }

    /// How messages are passed on by an interface: a live frame would meet a program at TCX.
    fn pass_by(&mut self, shift: &Shift, rung: Rung) {
        match take::pass_by(&shift.found, rung) {
            // A worker that does not answer works for nobody any more.
            Ok(way) => drop(self.call_worker(Resource::PassBy(shift.number, way))),
            Err(error) => say(&error.refusal().message),
        }
    }

    fn move_to_tcx(&mut self, shifts: &[Shift], set: &HookSet) -> Result<(), Refusal> {
        let now = self.maps.clone().expect("it has programs");
        let nexts = self.next_sides(shifts, &now, &set.maps, Some(set))?;
        for shift in shifts {
            let before = tcx_owners(shift.found.ifindex);
            let before: Vec<_> = before.into_iter().filter(|it| !it.is_ashway()).collect();
            take::say_before(&shift.found, &before);
            if self.ifaces[shift.number].rung == Rung::Native {
                self.pass_by(shift, Rung::Tcx);
            }
        }
        let mut links = Vec::with_capacity(nexts.len());
        // What comes to TCX from then on is marked.
        let attached = self.close_gates(&nexts).and_then(|()| {
            shifts.iter().zip(&nexts).try_for_each(|(shift, next)| {
                let link = Attached::tcx(&next.gates[1].program, shift.found.ifindex);
                links.push(link.map_err(|source| not_attached(&shift.found, source))?);
                Ok(())
            })
        });
        if let Err(refusal) = attached {
            drop(links);
            self.stay(shifts);
            return Err(refusal);
        }
        for next in &nexts {
            if let Some(xdp) = &self.ifaces[next.number].xdp {
                // Somebody may have detached it already.
                let _ = xdp.link.release();
            }
        }
        grace_period();
        let mut left = Vec::with_capacity(shifts.len());
        for ((shift, next), link) in shifts.iter().zip(nexts).zip(links) {
            // What was marked has gone by.
            if let Err(error) = link.update(&next.entry) {
                say(&self.not_exchanged(next.number, &error).message);
            }
            left.push(self.settle(shift, next, link, Rung::Tcx));
        }
        grace_period();
        drop(left);
        Ok(())
    }

    /// The same to XDP, with the programs of a set, or with those that the node has.
    fn move_to_xdp(
        &mut self,
        shifts: &[Shift],
        now: &NodeMaps,
        set: Option<&HookSet>,
    ) -> Result<(), Refusal> {
        let maps = match set {
            Some(set) => Arc::clone(&set.maps),
            None => self.maps.clone().expect("it has programs"),
        };
        let mut nexts = self.next_sides(shifts, now, &maps, set)?;
        let passes = programs::load_pass(&maps);
        let passes = passes.map_err(|source| {
            RunError::Load {
                what: "pass",
                iface: shifts[0].found.name.clone(),
                source,
            }
            .refusal()
        })?;
        let mut links = Vec::with_capacity(nexts.len());
        let attached = self.close_gates(&nexts).and_then(|()| {
            shifts.iter().try_for_each(|shift| {
                let link = take::attach(&passes, &shift.found, shift.to.rung, shift.asked);
                links.push(link.map_err(|error| error.refusal())?);
                Ok(())
            })
        });
        if let Err(refusal) = attached {
            drop(links);
            self.stay(shifts);
            return Err(refusal);
        }
        for next in &mut nexts {
            if let Some(xdp) = &mut self.ifaces[next.number].xdp {
                (xdp.reply, xdp.exit_link) = (next.reply, next.exit_link.take());
            }
        }
        self.ways_by(shifts, &maps);
        let begun = nexts.iter().zip(&links).try_for_each(|(next, (link, _))| {
            let begun = link.update(&next.gates[1].program);
            begun.map_err(|error| self.not_exchanged(next.number, &error))
        });
        if let Err(refusal) = begun {
            drop(links);
            for next in &nexts {
                if let Some(xdp) = &mut self.ifaces[next.number].xdp {
                    (xdp.reply, xdp.exit_link) = (Reply::Redirect, None);
                }
            }
            self.ways_by(shifts, now);
            self.stay(shifts);
            return Err(refusal);
        }
        // What XDP has not seen has come to TCX by then.
        grace_period();
        for next in &nexts {
            if let Some(xdp) = &self.ifaces[next.number].xdp {
                let _ = xdp.link.release();
            }
        }
        let mut left = Vec::with_capacity(shifts.len());
        for ((shift, next), (link, rung)) in shifts.iter().zip(nexts).zip(links) {
            if let Err(error) = link.update(&next.entry) {
                say(&self.not_exchanged(next.number, &error).message);
            }
            if rung == Rung::Native {
                self.pass_by(shift, rung);
            }
            left.push(self.settle(shift, next, link, rung));
        }
        grace_period();
        drop(left);
        Ok(())
    }

    /// Has relays leave by interfaces that are about to be at XDP, or have left it.
    fn ways_by(&mut self, shifts: &[Shift], maps: &NodeMaps) {
        if maps.hook == Hook::Xdp {
            let relays = self.relays.iter().flat_map(NodeRelays::numbers);
            let ends = relays.filter_map(|(id, _)| {
                let ends = self.paths.at(id)?.frames()?.ends();
                Some(ends.map(|end| end.iface()).collect::<Vec<usize>>())
            });
            for ends in ends.collect::<Vec<_>>() {
                if let Err(stays) = self.attach_exits(maps, &ends) {
                    say(&stays.because);
                }
            }
        }
        for shift in shifts {
            let out = self.ifaces[shift.number].way_out();
            let _ = self.call_worker(Command::SetWayOut(shift.number, out));
        }
        // Senders that relays know already have hops that say how they leave.
        let _ = self.call_worker(Command::RefreshRelays);
    }

    /// An interface has moved. What it had is returned: for a moment more a CPU may be in one of
    /// those programs, and an array that is closed is empty.
    #[must_use]
    fn settle(
        &mut self,
        shift: &Shift,
        next: NextSide,
        link: Attached,
        rung: Rung,
    ) -> (Option<XdpSide>, [Gate; 2]) {
        let iface = &mut self.ifaces[next.number];
        iface.rung = rung;
        // Relays may have asked for it, too.
        let at_xdp = iface.xdp.as_mut().filter(|_| rung != Rung::Tcx);
        let exit_link = at_xdp.and_then(|xdp| xdp.exit_link.take());
        let left = iface.xdp.replace(XdpSide {
            link,
            exit_link,
            slots: next.slots,
            entry: next.entry,
            demux: next.demux,
            next: NextProgram::None,
            reply: next.reply,
        });
        let out = iface.way_out();
        let _ = self.call_worker(Command::SetWayOut(shift.number, out));
        (left, next.gates)
    }
}

/// Waits until every program that ran has ended, and the packets that it had have gone through
/// the receive path: that runs as a whole in one softirq.
fn grace_period() {
    let _ = membarrier(MembarrierCommand::Global);
}

fn not_filled(iface: &str, error: &std::io::Error) -> Refusal {
    Refusal::failed(
        format!("the next program array of `{iface}` cannot be made: {error}"),
        "nothing has changed; ask once more",
    )
}

fn not_attached(found: &Iface, source: ashway_kernel::AttachError) -> Refusal {
    RunError::Attach {
        iface: found.name.clone(),
        source,
    }
    .refusal()
}
