//! Hardware addresses of next hops that no attribute says: from the kernel's table of
//! neighbours, for as long as a path wants them.
//!
//! The kernel finds them and makes sure of them, as for its own packets; it is asked
//! to, because nothing else of it may send there. When it says that something has changed
//! its table is read, ten times a second at most, a call for each interface that a path sends
//! by, and what has changed is told to the paths, in both tiers. Until an address is known, and again when
//! it is not any more, a path's messages are `dropped_no_next_hop`.
//!
//! The kernel lets a neighbour rest that it has found, or not found, until it is asked
//! again. So while there is one that it does not know or is not sure of, next hops have
//! turns, once a second and [`MOST_ASKED`] from one look to the next, so that of 100,000
//! each has one every 100 seconds; nothing else would make the kernel look. The same holds
//! for the routes there, behind each change.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use ashway_api::answer;
use ashway_kernel::News;
use ashway_kernel::neighbour::{Neighbour, Tables};
use ashway_modules::mac::Mac;
use ashway_path::places::{IdMap, PathId};

use super::Node;
use ashway_worker::iface_map::IfaceMap;
use ashway_worker::order::Order;
use ashway_worker::worker::command::Command;

/// How often the table is looked at.
pub(super) const LOOK: Duration = Duration::from_millis(100);

/// How often the kernel is asked about one that it is not sure of, and the route
/// there is looked up, at most.
pub(super) const ASK: Duration = Duration::from_secs(1);

/// Most next hops that the kernel is asked about from one look to the next, which
/// takes some microseconds for each.
const MOST_ASKED: u32 = 100;

/// An address, by an interface.
type Key = (u32, IpAddr);

/// The kernel's number of the interface that this is at; 0, which is no interface's, if that has
/// gone.
fn ifindex(ifindices: &IfaceMap<u32>, (iface, _): Key) -> u32 {
    ifindices.get(iface as usize).copied().unwrap_or(0)
}

/// A place in the order in which next hops are asked about: those that were asked about
/// before come behind all others.
type QueueRank = u64;

/// Of the turns of those that were asked about.
const ASKED: QueueRank = 1 << 63;

/// Next hops by interface and address.
#[derive(Debug, Default)]
pub(super) struct Neighbours {
    hops: HashMap<Key, NextHop>,
    /// What each path sends to.
    wanted: IdMap<Key>,
    /// Neighbours whose hardware address is known.
    known: HashMap<Key, Neighbour>,
    /// Who is asked about next, and since when it has waited.
    turns: BTreeMap<QueueRank, (Instant, Key)>,
    /// How many turns were given.
    given: u64,
    /// How many were asked about since the last look.
    asked: u32,
    /// Those among them that the kernel is still to be asked about, by the interface's number.
    to_ask: Vec<(u32, IpAddr)>,
    /// Paths that wait until their next hops have been looked up.
    waiting: Vec<(PathId, Key)>,
    /// Says that something may have changed; there while there are next hops.
    news: Option<News>,
    /// When it last has: a route that was looked up before may be another.
    told: Option<Instant>,
}

#[derive(Debug)]
struct NextHop {
    /// On the link: a gateway, or the next hop itself.
    neighbour: Option<IpAddr>,
    /// Whether the kernel was asked for the route there.
    is_looked_up: bool,
    /// How many paths send there.
    paths: u32,
    turn: QueueRank,
}

/// What a path that comes is told of the hardware address of its next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextMac {
    /// What is known, if anything.
    Known(Option<[u8; 6]>),
    /// To wait until the next hop has been looked up, behind the answer to whoever creates
    /// the path.
    Awaited,
}

/// What the kernel is asked.
trait Kernel {
    fn next_hop(&mut self, ifindex: u32, to: IpAddr) -> Option<IpAddr>;
    fn find(&mut self, ifindex: u32, of: IpAddr) -> Option<Neighbour>;
    fn all(&mut self, ifindex: u32) -> io::Result<Vec<(IpAddr, Neighbour)>>;
    fn ask(&mut self, ifindex: u32, of: IpAddr);
}

/// An error means as much: not known.
impl Kernel for Tables {
    fn next_hop(&mut self, ifindex: u32, to: IpAddr) -> Option<IpAddr> {
        if ifindex == 0 {
            // The host knows nobody behind an interface of the node's own.
            return None;
        }
        self.next_hop(ifindex, to).ok()
    }

    fn find(&mut self, ifindex: u32, of: IpAddr) -> Option<Neighbour> {
        self.find(ifindex, of).ok().flatten()
    }

    fn all(&mut self, ifindex: u32) -> io::Result<Vec<(IpAddr, Neighbour)>> {
        self.all(ifindex)
    }

    fn ask(&mut self, ifindex: u32, of: IpAddr) {
        let _ = self.ask(ifindex, of);
    }
}

impl Neighbours {
    /// What says that something may have changed.
    pub(super) const fn news(&self) -> Option<&News> {
        self.news.as_ref()
    }

    /// When to look again though nothing has changed; never if that is all.
    fn next_look(&self, now: Instant) -> Option<Duration> {
        let (turn, (since, _)) = self.turns.first_key_value()?;
        if *turn < ASKED || self.news.is_none() {
            return Some(LOOK);
        }
        let is_sure = |(to, hop): (&Key, &NextHop)| {
            let known = hop.neighbour.and_then(|at| self.known.get(&(to.0, at)));
            known.is_some_and(|known| known.is_sure)
        };
        let is_old = self.told.is_some_and(|told| *since < told);
        let again = is_old || !self.hops.iter().all(is_sure);
        again.then(|| (*since + ASK).saturating_duration_since(now).max(LOOK))
    }

    /// The address that is known of a next hop.
    fn mac(&self, to: &Key) -> Option<[u8; 6]> {
        let neighbour = self.hops.get(to)?.neighbour?;
        self.known.get(&(to.0, neighbour)).map(|known| known.mac)
    }

    /// Gives a next hop its turn.
    fn queue(&mut self, to: Key, now: Instant, was_asked: bool) -> QueueRank {
        self.given += 1;
        let turn = self.given | if was_asked { ASKED } else { 0 };
        self.turns.insert(turn, (now, to));
        turn
    }

    /// Notes what a path sends to. Constant time: a next hop that is new is [to be looked
    /// up](Self::look_up), and the path waits for that.
    fn want(&mut self, id: PathId, to: Key) -> NextMac {
        let before = self.wanted.put(id, to);
        debug_assert!(before.is_none(), "who had the place was forgotten");
        if let Some(hop) = self.hops.get_mut(&to) {
            hop.paths += 1;
            if hop.is_looked_up {
                return NextMac::Known(self.mac(&to));
            }
        } else {
            let hop = NextHop {
                neighbour: None,
                is_looked_up: false,
                paths: 1,
                turn: self.queue(to, Instant::now(), false),
            };
            self.hops.insert(to, hop);
        }
        self.waiting.push((id, to));
        NextMac::Awaited
    }

    /// Looks next hops up that are new, on interfaces with these numbers; says the hardware
    /// addresses of those that paths wait for. Of these hops the kernel [is to be
    /// asked](Self::ask) about [`MOST_ASKED`]; for others there is the next look.
    fn look_up(
        &mut self,
        ifindices: &IfaceMap<u32>,
        kernel: &mut impl Kernel,
    ) -> Vec<(PathId, Option<[u8; 6]>)> {
        let mut macs = Vec::new();
        for (id, to) in std::mem::take(&mut self.waiting) {
            if self.wanted.at(id) != Some(&to) {
                continue;
            }
            let hop = self.hops.get(&to).expect("a path wants it");
            if !hop.is_looked_up {
                self.look_up_one(to, ifindex(ifindices, to), kernel);
            }
            macs.push((id, self.mac(&to)));
        }
        macs
    }

    fn look_up_one(&mut self, to: Key, ifindex: u32, kernel: &mut impl Kernel) {
        let neighbour = kernel.next_hop(ifindex, to.1);
        let may_ask = self.asked < MOST_ASKED;
        let mut is_sure = false;
        if let Some(at) = neighbour {
            let key = (to.0, at);
            if may_ask
                && !self.known.contains_key(&key)
                && let Some(found) = kernel.find(ifindex, at)
            {
                self.known.insert(key, found);
            }
            is_sure = self.known.get(&key).is_some_and(|known| known.is_sure);
        }
        let to_ask = neighbour.filter(|_| may_ask && !is_sure);
        self.asked += u32::from(to_ask.is_some());
        let turn = (is_sure || to_ask.is_some()).then(|| self.queue(to, Instant::now(), true));
        let hop = self.hops.get_mut(&to).expect("a path wants it");
        (hop.neighbour, hop.is_looked_up) = (neighbour, true);
        if let Some(turn) = turn {
            let before = std::mem::replace(&mut hop.turn, turn);
            self.turns.remove(&before);
        }
        self.to_ask.extend(to_ask.map(|at| (ifindex, at)));
    }

    /// Asks the kernel about next hops that were new. It sends a packet for each, which no
    /// path has to wait for: an answer comes later anyway, and is found by a look.
    fn ask(&mut self, kernel: &mut impl Kernel) {
        for (ifindex, at) in self.to_ask.drain(..) {
            kernel.ask(ifindex, at);
        }
    }

    /// Paths that are gone want no neighbours. Constant time for each.
    fn forget(&mut self, ids: &[PathId]) {
        for id in ids {
            let Some(to) = self.wanted.remove(*id) else {
                continue;
            };
            let Some(hop) = self.hops.get_mut(&to) else {
                continue;
            };
            hop.paths -= 1;
            if hop.paths == 0 {
                let turn = hop.turn;
                self.turns.remove(&turn);
                self.hops.remove(&to);
            }
        }
        if self.hops.is_empty() {
            // From now on nobody tells of changes.
            self.news = None;
            self.waiting.clear();
            self.known.clear();
        }
    }

    /// Asks at once about those of these that are known no more and that a path sends to:
    /// their messages are dropped meanwhile.
    fn ask_again(
        &mut self,
        changed: &HashSet<Key>,
        ifindices: &IfaceMap<u32>,
        kernel: &mut impl Kernel,
    ) {
        let mut gone = changed.iter().filter(|key| !self.known.contains_key(key));
        if gone.clone().next().is_none() {
            return;
        }
        let hops = self.hops.iter();
        let used = hops.filter_map(|(to, hop)| Some((to.0, hop.neighbour?)));
        let used: HashSet<Key> = used.collect();
        while self.asked < MOST_ASKED
            && let Some(key) = gone.find(|key| used.contains(key))
        {
            self.asked += 1;
            kernel.ask(ifindex(ifindices, *key), key.1);
        }
    }

    /// Looks at the kernel's table, on the interfaces with these numbers, and asks about
    /// those whose turn it is; says the paths whose next hop has another hardware address
    /// than before. Linear in the next hops and in the kernel's table of the interfaces that
    /// these are at, and in the paths if an address has changed.
    fn look(
        &mut self,
        now: Instant,
        ifindices: &IfaceMap<u32>,
        kernel: &mut impl Kernel,
    ) -> Vec<(PathId, Option<[u8; 6]>)> {
        self.asked = 0;
        let mut known = HashMap::new();
        let used: BTreeSet<u32> = self.hops.keys().map(|(iface, _)| *iface).collect();
        for iface in used {
            // One that is gone has no neighbours.
            let Some(ifindex) = ifindices.get(iface as usize) else {
                continue;
            };
            let all = kernel.all(*ifindex).unwrap_or_default();
            known.extend(all.into_iter().map(|(at, found)| ((iface, at), found)));
        }
        for key in self.known.keys() {
            if !known.contains_key(key)
                && let Some(found) = kernel.find(ifindex(ifindices, *key), key.1)
            {
                known.insert(*key, found);
            }
        }
        let mac = |of: &HashMap<Key, Neighbour>, key| of.get(key).map(|one: &Neighbour| one.mac);
        let of_either = self.known.keys().chain(known.keys());
        let changed = of_either.filter(|key| mac(&self.known, key) != mac(&known, key));
        let changed: HashSet<Key> = changed.copied().collect();
        self.known = known;
        self.ask_again(&changed, ifindices, kernel);

        let mut moved = HashSet::new();
        while self.asked < MOST_ASKED
            && let Some((&turn, &(since, to))) = self.turns.first_key_value()
            && (turn < ASKED || now.duration_since(since) >= ASK)
        {
            self.asked += 1;
            self.turns.remove(&turn);
            let ifindex = ifindex(ifindices, to);
            let neighbour = kernel.next_hop(ifindex, to.1);
            if let Some(at) = neighbour
                && self
                    .known
                    .get(&(to.0, at))
                    .is_none_or(|known| !known.is_sure)
            {
                kernel.ask(ifindex, at);
            }
            let turn = self.queue(to, now, true);
            let hop = self.hops.get_mut(&to).expect("it has a turn");
            (hop.turn, hop.is_looked_up) = (turn, true);
            if hop.neighbour != neighbour {
                hop.neighbour = neighbour;
                moved.insert(to);
            }
        }
        if changed.is_empty() && moved.is_empty() {
            return Vec::new();
        }
        let is_other = |to: &Key| {
            let neighbour = self.hops.get(to).and_then(|hop| hop.neighbour);
            moved.contains(to) || neighbour.is_some_and(|at| changed.contains(&(to.0, at)))
        };
        let others = self.wanted.iter().filter(|(_, to)| is_other(to));
        others.map(|(id, to)| (id, self.mac(to))).collect()
    }
}

impl Node {
    /// The hardware address of where a path sends to, which is told of each change from
    /// now on.
    pub(super) fn want_neighbour(&mut self, id: PathId, (iface, to): (u32, IpAddr)) -> NextMac {
        self.neighbours.want(id, (iface, to))
    }

    /// Looks up the next hops of paths that were created, and asks the kernel about them: for
    /// when whoever wanted these has the answer. It takes some microseconds for each, more
    /// than the rest of a path, and the kernel sends a packet for each that it is asked about.
    pub(super) fn look_up_neighbours(&mut self) {
        if self.neighbours.waiting.is_empty() {
            return;
        }
        // Before the kernel is asked, so that nothing comes between. Where there is none,
        // its table is looked at by time.
        if self.neighbours.news.is_none() {
            self.neighbours.news = News::of_neighbours().ok();
        }
        let ifindices = self.ifindices();
        let next_macs = self.neighbours.look_up(&ifindices, &mut self.tables);
        // A worker that does not answer works for nobody any more.
        let _ = self.post_to_worker(Order {
            next_macs,
            ..Order::default()
        });
        self.neighbours.ask(&mut self.tables);
    }

    fn ifindices(&self) -> IfaceMap<u32> {
        let ifaces = self.ifaces.iter();
        ifaces
            .map(|(number, iface)| (number, iface.ifindex))
            .collect()
    }

    /// Looks at the kernel's table, and tells paths what has changed. Says when to look
    /// again though nothing has changed.
    pub(super) fn look_for_neighbours(&mut self) -> Option<Duration> {
        if self.neighbours.hops.is_empty() {
            return None;
        }
        let now = Instant::now();
        if self.neighbours.news.as_ref().is_some_and(News::take) {
            self.neighbours.told = Some(now);
        }
        let ifindices = self.ifindices();
        let changed = self.neighbours.look(now, &ifindices, &mut self.tables);
        if !changed.is_empty() {
            let _ = self.call_worker(Command::SetNextMacs(changed));
        }
        self.neighbours.next_look(now)
    }

    /// Paths that are gone want no neighbours.
    pub(super) fn forget_neighbours(&mut self, ids: &[PathId]) {
        self.neighbours.forget(ids);
    }

    /// Where a path sends to, if it had to be looked up.
    pub(super) fn show_neighbour(&self, id: PathId) -> Option<answer::NextHop> {
        let key = self.neighbours.wanted.at(id)?;
        let hop = self.neighbours.hops.get(key)?;
        let (iface, to) = key;
        Some(answer::NextHop {
            address: to.to_string(),
            neighbour: hop.neighbour.map(|neighbour| neighbour.to_string()),
            iface: self.ifaces[*iface as usize].name.clone(),
            mac: self
                .neighbours
                .mac(key)
                .map(|mac| Mac::from(mac).to_string()),
        })
    }
}

#[cfg(test)]
mod tests {
    use ashway_path::places::Ids;

    use super::*;

    /// A kernel that has a gateway to everything beyond its link, and counts.
    #[derive(Default)]
    struct Fake {
        neighbours: HashMap<IpAddr, Neighbour>,
        gateway: Option<IpAddr>,
        /// Entries that a dump misses.
        hidden: HashSet<IpAddr>,
        routes: u32,
        asked: Vec<IpAddr>,
    }

    impl Kernel for Fake {
        fn next_hop(&mut self, _: u32, to: IpAddr) -> Option<IpAddr> {
            self.routes += 1;
            Some(self.gateway.unwrap_or(to))
        }

        fn find(&mut self, _: u32, of: IpAddr) -> Option<Neighbour> {
            self.neighbours.get(&of).copied()
        }

        fn all(&mut self, _: u32) -> io::Result<Vec<(IpAddr, Neighbour)>> {
            let all = self.neighbours.iter();
            let seen = all.filter(|(at, _)| !self.hidden.contains(*at));
            Ok(seen.map(|(at, found)| (*at, *found)).collect())
        }

        fn ask(&mut self, _: u32, of: IpAddr) {
            self.asked.push(of);
        }
    }

    fn address(number: u32) -> IpAddr {
        IpAddr::from((0x0a00_0000 + number).to_be_bytes())
    }

    const fn sure(last: u8) -> Neighbour {
        Neighbour {
            mac: [2, 0, 0, 0, 0, last],
            is_sure: true,
        }
    }

    /// What a path is told that comes and sends there, at once or when that was looked up.
    fn want(all: &mut Neighbours, path: PathId, to: Key, kernel: &mut Fake) -> Option<[u8; 6]> {
        if let NextMac::Known(mac) = all.want(path, to) {
            return mac;
        }
        let macs = all.look_up(&at7(), kernel);
        assert!(kernel.asked.is_empty(), "no path waits for that");
        all.ask(kernel);
        assert_eq!(macs.len(), 1);
        assert_eq!(macs[0].0, path);
        macs[0].1
    }

    /// The one interface.
    fn at7() -> IfaceMap<u32> {
        [(0, 7)].into_iter().collect()
    }

    #[test]
    fn paths_wait_for_one_look_at_a_next_hop() {
        let (mut all, mut kernel, mut ids) =
            (Neighbours::default(), Fake::default(), Ids::default());
        let [one, gone, two, late] = [ids.take(), ids.take(), ids.take(), ids.take()];
        kernel.neighbours.insert(address(1), sure(1));
        let to = (0, address(1));
        for path in [one, gone, two] {
            assert_eq!(all.want(path, to), NextMac::Awaited);
        }
        assert_eq!(kernel.routes, 0, "whoever wants them waits for nothing");
        all.forget(&[gone]);
        let mac = Some(sure(1).mac);
        assert_eq!(all.look_up(&at7(), &mut kernel), [(one, mac), (two, mac)]);
        assert_eq!((kernel.routes, all.to_ask.len()), (1, 0));
        assert_eq!(all.want(late, to), NextMac::Known(mac));
        assert_eq!(all.look_up(&at7(), &mut kernel), []);
        assert_eq!(all.turns.len(), 1, "one next hop has one turn");
    }

    #[test]
    fn what_nobody_watched_is_not_believed() {
        let (mut all, mut kernel, mut ids) =
            (Neighbours::default(), Fake::default(), Ids::default());
        let path = ids.take();
        kernel.neighbours.insert(address(1), sure(1));
        let to = (0, address(1));
        let mac = want(&mut all, path, to, &mut kernel);
        assert_eq!(mac, Some(sure(1).mac));
        all.forget(&[path]);
        kernel.neighbours.insert(address(1), sure(2));
        let mac = want(&mut all, path, to, &mut kernel);
        assert_eq!(mac, Some(sure(2).mac));
    }

    #[test]
    fn paths_are_told_what_changes_and_nothing_else() {
        let (mut all, mut kernel, mut ids) =
            (Neighbours::default(), Fake::default(), Ids::default());
        let [here, there, alike] = [ids.take(), ids.take(), ids.take()];
        kernel.neighbours.insert(address(1), sure(1));
        let mac = want(&mut all, here, (0, address(1)), &mut kernel);
        assert_eq!(mac, Some(sure(1).mac));
        let mac = want(&mut all, there, (0, address(2)), &mut kernel);
        assert_eq!(mac, None);
        let to = (0, address(1));
        assert_eq!(all.want(alike, to), NextMac::Known(Some(sure(1).mac)));
        // The kernel is asked about what it does not know, and one route is one question.
        assert_eq!((&kernel.asked[..], kernel.routes), (&[address(2)][..], 2));
        let now = Instant::now();
        assert_eq!(all.look(now, &at7(), &mut kernel), []);
        // A dump that missed one is not believed.
        kernel.hidden.insert(address(1));
        assert_eq!(all.look(now, &at7(), &mut kernel), []);
        kernel.neighbours.insert(address(2), sure(2));
        assert_eq!(
            all.look(now, &at7(), &mut kernel),
            [(there, Some(sure(2).mac))]
        );
        kernel.neighbours.remove(&address(1));
        kernel.asked.clear();
        let mut told = all.look(now, &at7(), &mut kernel);
        told.sort();
        assert_eq!(told, [(here, None), (alike, None)]);
        // It is asked about at once, before its turn.
        assert_eq!(kernel.asked, [address(1)]);
        // What the route says counts.
        (kernel.gateway, kernel.asked) = (Some(address(2)), Vec::new());
        let mut told = all.look(now + 2 * ASK, &at7(), &mut kernel);
        told.sort();
        // One has that hop already.
        assert_eq!(told, [here, alike].map(|id| (id, Some(sure(2).mac))));
        assert!(kernel.asked.is_empty(), "it is sure of that one");
        all.forget(&[here, there, alike, here]);
        assert!(all.hops.is_empty() && all.turns.is_empty() && all.wanted.is_empty());
    }

    /// However many next hops there are, a look asks about a few, each in its turn.
    #[test]
    fn a_look_asks_about_so_many_and_forgets_none() {
        const HOPS: u32 = 1000;
        let (mut all, mut kernel, mut ids) =
            (Neighbours::default(), Fake::default(), Ids::default());
        for number in 0..HOPS {
            let mac = all.want(ids.take(), (0, address(number)));
            assert_eq!(mac, NextMac::Awaited);
        }
        let macs = all.look_up(&at7(), &mut kernel);
        assert_eq!(macs.len(), HOPS as usize);
        all.ask(&mut kernel);
        assert_eq!(kernel.asked.len(), MOST_ASKED as usize);
        let begin = Instant::now();
        for look in 1..=HOPS / MOST_ASKED {
            let before = kernel.asked.len();
            all.look(begin, &at7(), &mut kernel);
            let asked = (kernel.asked.len() - before) as u32;
            let left = HOPS - look * MOST_ASKED;
            assert_eq!(asked, left.min(MOST_ASKED), "look {look}");
        }
        let ever: HashSet<IpAddr> = kernel.asked.drain(..).collect();
        assert_eq!(ever.len(), HOPS as usize);
        for _ in 0..HOPS / MOST_ASKED {
            all.look(begin + 2 * ASK, &at7(), &mut kernel);
        }
        let again: HashSet<IpAddr> = kernel.asked.iter().copied().collect();
        assert_eq!(
            (again.len(), kernel.asked.len()),
            (HOPS as usize, HOPS as usize)
        );
    }
}
