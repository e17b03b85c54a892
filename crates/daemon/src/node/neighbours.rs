//! Hardware addresses of next hops that no attribute says: from the kernel's table of
//! neighbours, for as long as a path wants them.
//!
//! The kernel finds them and makes sure of them, as for its own packets; it is asked
//! to, because nothing else of it may send there. When it says that something has changed
//! its table is looked at, ten times a second at most, which costs some ten microseconds
//! for each next hop, and what has changed is told to the paths, in both tiers. Until an
//! address is known, and again when it is not any more, a path's messages are
//! `dropped_no_next_hop`.
//!
//! The kernel lets a neighbour rest that it has found, or not found, until it is asked
//! again. So while there is one that it does not know or is not sure of, it is asked once a
//! second; nothing else would make it look.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use ashway_kernel::{News, neighbour};
use ashway_modules::mac::Mac;
use ashway_path::places::PathId;
use serde_json::{Value, json};

use super::Node;
use crate::worker::command::Command;

/// How often the table is looked at, at most.
pub(super) const LOOK: Duration = Duration::from_millis(100);

/// How often the kernel is asked about one that it is not sure of, and the route
/// there is looked up, at most.
pub(super) const ASK: Duration = Duration::from_secs(1);

/// Next hops by interface and address.
#[derive(Debug, Default)]
pub(super) struct Neighbours {
    hops: HashMap<(usize, IpAddr), NextHop>,
    /// Says that something may have changed; there while there are next hops.
    news: Option<News>,
}

impl Neighbours {
    /// What says that something may have changed.
    pub(super) const fn news(&self) -> Option<&News> {
        self.news.as_ref()
    }
}

#[derive(Debug, Default)]
struct NextHop {
    /// On the link: a gateway, or the next hop itself.
    neighbour: Option<IpAddr>,
    mac: Option<[u8; 6]>,
    /// Whether the kernel has no doubt of it.
    is_sure: bool,
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
        self.is_sure = false;
        let at = self.neighbour?;
        let found = neighbour::find(ifindex, at).ok().flatten();
        self.is_sure = found.is_some_and(|found| found.is_sure);
        if is_time && !self.is_sure {
            let _ = neighbour::ask(ifindex, at);
        }
        found.map(|found| found.mac)
    }
}

impl Node {
    /// Keeps a path told of the hardware address of where it sends to.
    pub(super) fn want_neighbour(&mut self, id: PathId, (iface, to): (u32, IpAddr)) {
        // Before the first look, so that nothing comes between. Where there is none, the
        // table is looked at by time.
        if self.neighbours.news.is_none() {
            self.neighbours.news = News::of_neighbours().ok();
        }
        let hop = self
            .neighbours
            .hops
            .entry((iface as usize, to))
            .or_default();
        hop.wanted_by.insert(id);
        hop.mac = hop.look(self.ifaces[iface as usize].ifindex, to);
        let mac = hop.mac;
        // A worker that does not answer works for nobody any more.
        let _ = self.tell(Command::SetNextMacs(vec![(id, mac)]));
    }

    /// Looks at the kernel's table, and tells paths what has changed. Says when to look again
    /// though nothing has changed.
    pub(super) fn look_for_neighbours(&mut self) -> Option<Duration> {
        let is_told = self.neighbours.news.as_ref().map(News::take);
        let mut changed = Vec::new();
        for ((iface, to), hop) in &mut self.neighbours.hops {
            let mac = hop.look(self.ifaces[*iface].ifindex, *to);
            if mac != hop.mac {
                hop.mac = mac;
                changed.extend(hop.wanted_by.iter().map(|id| (*id, mac)));
            }
        }
        if !changed.is_empty() {
            let _ = self.tell(Command::SetNextMacs(changed));
        }
        let mut hops = self.neighbours.hops.values();
        match is_told {
            _ if self.neighbours.hops.is_empty() => None,
            None => Some(LOOK),
            // A route that was looked up just now is looked up again only then.
            Some(true) => Some(ASK),
            Some(false) => hops.any(|hop| !hop.is_sure).then_some(ASK),
        }
    }

    /// Paths that are gone want no neighbours.
    pub(super) fn forget_neighbours(&mut self, ids: &[PathId]) {
        self.neighbours.hops.retain(|_, hop| {
            for id in ids {
                hop.wanted_by.remove(id);
            }
            !hop.wanted_by.is_empty()
        });
        if self.neighbours.hops.is_empty() {
            self.neighbours.news = None;
        }
    }

    /// Where a path sends to, if it had to be looked up.
    pub(super) fn show_neighbour(&self, id: PathId) -> Option<Value> {
        let mut all = self.neighbours.hops.iter();
        let ((iface, to), hop) = all.find(|(_, hop)| hop.wanted_by.contains(&id))?;
        Some(json!({
            "address": to,
            "neighbour": hop.neighbour,
            "iface": self.config.ifaces[*iface].name,
            "mac": hop.mac.map(|mac| Mac::from(mac).to_string()),
        }))
    }
}
