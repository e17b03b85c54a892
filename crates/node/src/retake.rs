//! Interfaces that are deleted and made again, or have another name for a while.
//!
//! To the kernel the new one is another interface: its links, sockets and number are gone with
//! the old one. To the node it is the same, by its name: its paths, their counters and the
//! program array stay, and the new one gets a program of the table as it is by now.

use ashway_codegen::entry::Reply;
use ashway_config::Attach;
use ashway_kernel::Iface;
use ashway_worker::relays::Out;
use ashway_worker::worker::command::{Command, Resource};

use super::own::{self, Made};
use super::relay::NodeRelays;
use super::take::{Ready, exit_link, iface_facts, tx_errors};
use super::{Node, NodeIface, RunError, State, say, taken};
use crate::rung::{Choice, Rung};

impl NodeIface {
    /// Lets go of an interface that is not there any more. One that was renamed or moved to
    /// another network namespace is there, and must not go on to run the program.
    pub(super) fn leave(&self) {
        if let Some(xdp) = &self.xdp {
            let links = [Some(&xdp.link), xdp.exit_link.as_ref()];
            for link in links.into_iter().flatten() {
                // Of one that was deleted nothing is left.
                let _ = link.release();
            }
        }
    }

    /// How a path's way out by this interface is taken in the kernel tier.
    pub(super) fn way_out(&self) -> Out {
        let xdp = self.xdp.as_ref();
        Out {
            ifindex: self.ifindex,
            by_tcx: xdp.is_none_or(|xdp| xdp.reply == Reply::Exit),
        }
    }
}

impl Node {
    /// Lets go of what the worker and the host's drop rule have of an interface that the node has
    /// left: Linux closes no socket of one that was renamed.
    pub(super) fn let_go(&mut self, number: usize) {
        let _ = self.call_worker(Command::LeaveIface(number));
        self.drop_rules.remove(number);
    }

    /// Takes an interface that was made anew; whether it is the node's again. What keeps it
    /// from that is said once.
    pub(super) fn take_again(&mut self, number: usize) -> bool {
        let name = self.ifaces[number].name.clone();
        match self.retake(number) {
            Ok(()) => {
                let iface = &mut self.ifaces[number];
                iface.not_taken = None;
                let (rung, ifindex) = (iface.rung.name(), iface.ifindex);
                say(&format!(
                    "interface `{name}` is taken again: {rung}, number {ifindex}"
                ));
                true
            }
            Err(error) => {
                let because = error.refusal().message;
                let iface = &mut self.ifaces[number];
                if iface.not_taken.as_ref() != Some(&because) {
                    say(&format!("interface `{name}` is not taken again: {because}"));
                }
                iface.not_taken = Some(because);
                false
            }
        }
    }

    fn retake(&mut self, number: usize) -> Result<(), RunError> {
        let asked = self.config.iface(&self.ifaces[number].name);
        let asked = asked.expect("the node has its interfaces from there");
        let (found, made) = own::Making::default().find(&self.config, asked)?;
        // Before a program is made: it has the address in its code.
        self.links[number].mac().set(found.mac);
        if self.ifaces[number].xdp.is_some() {
            self.retake_with_programs(number, &found)?;
        } else {
            self.retake_without_programs(number, &found, made)?;
        }
        let iface = &mut self.ifaces[number];
        // Its driver begins to count anew.
        iface.lost_before = iface.lost_by_driver();
        iface.tx_errors = [tx_errors(&found.name, iface.rung); 2];
        iface.ifindex = found.ifindex;
        iface.facts = iface_facts(&found, iface.pattern.is_some());
        iface.state = if found.up { State::Up } else { State::Down };
        self.links[number].set_down(!found.up);
        // The new rule has what was configured, and not yet what came while the node ran.
        if let Err(refusal) = self.show_host() {
            say(&refusal.message);
        }
        self.need_exits_to(number);
        let out = self.ifaces[number].way_out();
        // A worker that does not answer works for nobody any more.
        let _ = self.call_worker(Command::SetWayOut(number, out));
        self.names_changed();
        Ok(())
    }

    /// Relays that leave by this interface come in by others, which need the exit program if it
    /// takes no redirect: as it was taken before it may have taken them.
    fn need_exits_to(&mut self, number: usize) {
        let relays = self.relays.iter().flat_map(NodeRelays::numbers);
        let ends = relays.filter_map(|(id, _)| {
            let ends = self.paths.at(id)?.frames()?.ends();
            let ends: Vec<usize> = ends.map(|end| end.iface()).collect();
            ends.contains(&number).then_some(ends)
        });
        for ends in ends.collect::<Vec<_>>() {
            if let Err(stays) = self.need_exits(&ends) {
                say(&stays.because);
            }
        }
    }

    fn retake_with_programs(&mut self, number: usize, found: &Iface) -> Result<(), RunError> {
        let asked = self.ifaces[number].attach;
        let rung = match self.ifaces[number].rung {
            // To which it has stepped down: the new one's driver may take it.
            Rung::Generic if asked == Attach::Auto => Rung::Native,
            rung => rung,
        };
        let (Some(maps), Some(xdp)) = (self.maps.clone(), &mut self.ifaces[number].xdp) else {
            return Ok(());
        };
        let ready = Ready::of(&maps, found, rung)?;
        let had_exit = xdp.exit_link.is_some();
        xdp.reply = ready.reply;
        let loaded = self.load_entry(number)?;
        let (entry, demux) = loaded.expect("it has programs");
        let entered = ready.enter(&entry, found, asked)?;
        let exit_link = match entered.exit_link {
            // Relays may need it where answers do not.
            None if had_exit => Some(exit_link(&maps, found)?),
            link => link,
        };
        let iface = &mut self.ifaces[number];
        iface.rung = entered.rung;
        if let Some(xdp) = &mut iface.xdp {
            (xdp.link, xdp.exit_link) = (entered.link, exit_link);
            (xdp.entry, xdp.demux) = (entry, demux);
        }
        // One that was being made was to take the old one's place.
        self.drop_next(number);
        let port = Resource::XdpPort(number, Box::new(entered.port));
        let _ = self.call_worker(port);
        Ok(())
    }

    fn retake_without_programs(
        &mut self,
        number: usize,
        found: &Iface,
        made: Option<Made>,
    ) -> Result<(), RunError> {
        let link = &self.links[number];
        let choice = Choice {
            rung: self.ifaces[number].rung,
            because: None,
        };
        let asked = self.config.iface(&found.name);
        let asked = asked.expect("the node has its interfaces from there");
        let (plan, paths, bell) = (&self.plan, &self.paths, &self.bell);
        let (taken, port, rule) =
            taken::without_programs(plan, paths, link, found, asked, choice, made, bell)?;
        if let Some(rule) = rule {
            self.drop_rules.insert(number, rule);
        }
        self.ifaces[number].consumes = taken.consumes;
        let _ = self.call_worker(Resource::FramePort(Box::new(port)));
        Ok(())
    }
}
