//! Hardware addresses of next hops that no attribute says: from the kernel's table of
//! neighbours, for as long as a path wants them.
//!
//! The kernel finds them and makes sure of them, as for its own packets; it is asked
//! to, because nothing else of it may send there. Its table is looked at ten times a
//! second, which costs some ten microseconds for each next hop, and what has changed
//! is told to the paths, in both tiers. Until an address is known, and again when it
//! is not any more, a path's messages are `dropped_no_next_hop`.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use ashway_kernel::neighbour;
use ashway_modules::mac::Mac;
use ashway_path::places::PathId;
use serde_json::{Value, json};

use super::Node;
use crate::worker::command::Command;

/// How often the table is looked at.
pub(super) const LOOK: Duration = Duration::from_millis(100);

/// How often the kernel is asked about one that it is not sure of, and the route
/// there is looked up.
const ASK: Duration = Duration::from_secs(1);

/// Next hops by interface and address.
#[derive(Debug, Default)]
pub(super) struct Neighbours(HashMap<(usize, IpAddr), NextHop>);

#[derive(Debug, Default)]
struct NextHop {
    /// On the link: a gateway, or the next hop itself.
    neighbour: Option<IpAddr>,
    mac: Option<[u8; 6]>,
    asked: Option<Instant>,
    wanted_by: HashSet<PathId>,
}

impl NextHop {
    /// What the kernel says now; asks it to find out if it does not know. An error
    /// means as much: not known.
    fn look(&mut self, ifindex: u32, to: IpAddr) -> Option<[u8; 6]> {
        let is_time = self.asked.is_none_or(|asked| asked.elapsed() >= ASK);
        if is_time {
            self.asked = Some(Instant::now());
            self.neighbour = neighbour::next_hop(ifindex, to).ok();
        }
        let at = self.neighbour?;
        let found = neighbour::find(ifindex, at).ok().flatten();
        if is_time && found.is_none_or(|found| !found.is_sure) {
            let _ = neighbour::ask(ifindex, at);
        }
        found.map(|found| found.mac)
    }
}

impl Node {
    /// Keeps a path told of the hardware address of where it sends to.
    pub(super) fn want_neighbour(&mut self, id: PathId, (iface, to): (u32, IpAddr)) {
        let hop = self.neighbours.0.entry((iface as usize, to)).or_default();
        hop.wanted_by.insert(id);
        hop.mac = hop.look(self.ifaces[iface as usize].ifindex, to);
        let mac = hop.mac;
        // A worker that does not answer works for nobody any more.
        let _ = self.tell(Command::SetNextMacs(vec![(id, mac)]));
    }

    /// Looks at the kernel's table, and tells paths what has changed.
    pub(super) fn look_for_neighbours(&mut self) {
        let mut changed = Vec::new();
        for ((iface, to), hop) in &mut self.neighbours.0 {
            let mac = hop.look(self.ifaces[*iface].ifindex, *to);
            if mac != hop.mac {
                hop.mac = mac;
                changed.extend(hop.wanted_by.iter().map(|id| (*id, mac)));
            }
        }
        if !changed.is_empty() {
            let _ = self.tell(Command::SetNextMacs(changed));
        }
    }

    /// Paths that are gone want no neighbours.
    pub(super) fn forget_neighbours(&mut self, ids: &[PathId]) {
        self.neighbours.0.retain(|_, hop| {
            for id in ids {
                hop.wanted_by.remove(id);
            }
            !hop.wanted_by.is_empty()
        });
    }

    /// Where a path sends to, if it had to be looked up.
    pub(super) fn show_neighbour(&self, id: PathId) -> Option<Value> {
        let mut all = self.neighbours.0.iter();
        let ((iface, to), hop) = all.find(|(_, hop)| hop.wanted_by.contains(&id))?;
        Some(json!({
            "address": to,
            "neighbour": hop.neighbour,
            "iface": self.config.ifaces[*iface].name,
            "mac": hop.mac.map(|mac| Mac::from(mac).to_string()),
        }))
    }
}
