//! Relays in the kernel tier, as the worker has them.
//!
//! A [relay](ashway_modules::relay) is a path of the user tier that a program behind
//! its slot can do as well. Its stages stay with the worker: they take what the
//! program leaves to them, and only they change. So the worker writes the hops, and
//! on a wide path writes them anew when they have noted another sender.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use ashway_abi::share::Terms;
use ashway_abi::{Hop, hop};
use ashway_config::Share;
use ashway_memory::SharedArray;
use ashway_modules::Message;
use ashway_modules::relay::{self, RelayHop};
use ashway_path::path::Path;
use ashway_path::places::PathId;
use ashway_path::stage::Direction;
use serde::{Deserialize, Serialize};

use crate::iface_map::IfaceMap;
use crate::rows::CounterRow;

/// Most relays that have a number, and with it a place in the kernel tier.
pub const MOST: usize = 256;

/// Keys there are. 0 is that of all messages that only the user tier runs.
pub const KEYS: usize = 1 + 2 * MOST;

/// The key of a relay's messages in a direction: the number of their hop and of the
/// word that says how many of them are in the user tier.
#[must_use]
pub const fn key(number: usize, direction: Direction) -> usize {
    1 + 2 * number + direction as usize
}

/// The key in whose word programs keep a relay's account of its share, which both of its
/// directions draw on (`codegen::forward`).
#[must_use]
pub const fn account_key(number: usize) -> usize {
    key(number, Direction::Forward)
}

/// The number and the direction of a key; `None` if it is no relay's.
fn of_key(key: usize) -> Option<(usize, Direction)> {
    let key = key.checked_sub(1).filter(|key| *key < 2 * MOST)?;
    Some((key / 2, direction(key)))
}

/// The direction of the messages of a key, where each number has one for either, the one
/// behind the other.
pub(crate) const fn direction(key: usize) -> Direction {
    match key % 2 {
        0 => Direction::Forward,
        _ => Direction::Backward,
    }
}

/// How an interface is reached from a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Out {
    /// Its number in the kernel.
    pub ifindex: u32,
    /// Whether a redirect would be lost there.
    pub by_tcx: bool,
}

/// The worker's relays.
#[derive(Debug)]
pub struct Relays {
    hops: Arc<SharedArray>,
    /// Where programs count the relay with number 0; the others follow.
    first_row: CounterRow,
    /// By interface.
    out: IfaceMap<Out>,
    by_path: HashMap<PathId, Relay>,
    /// By number.
    routes: Vec<Option<PathId>>,
}

#[derive(Debug)]
struct Relay {
    number: usize,
    /// Whether the kernel tier may run its messages.
    promoted: bool,
    /// Of the sender that the hops are for.
    changes: u32,
}

impl Relays {
    /// None yet, on interfaces that are reached like this.
    #[must_use]
    pub fn new(hops: Arc<SharedArray>, first_row: CounterRow, out: IfaceMap<Out>) -> Self {
        Self {
            hops,
            first_row,
            out,
            by_path: HashMap::new(),
            routes: vec![None; MOST],
        }
    }

    /// An interface is reached like this by now; hops that lead there are still to be
    /// [written anew](crate::worker::command::Command::RefreshRelays).
    pub(crate) fn set_way_out(&mut self, iface: usize, out: Out) {
        self.out.insert(iface, out);
    }

    /// There is no such interface any more; no relay ends there.
    pub(crate) fn forget_way_out(&mut self, iface: usize) {
        self.out.remove(iface);
    }

    /// Where programs count the messages of a key; `None` if it is no relay's.
    pub(crate) fn row(&self, key: usize) -> Option<CounterRow> {
        let (number, _) = of_key(key)?;
        Some(CounterRow(self.first_row.0 + number as u32))
    }

    /// The path that the messages of a key are for, and their direction; `None` if the key
    /// is no relay's, or is nobody's any more.
    pub(crate) fn route(&self, key: usize) -> Option<(PathId, Direction)> {
        let (number, direction) = of_key(key)?;
        Some((self.routes[number]?, direction))
    }

    /// Gives a path a number; the user tier runs it for now.
    pub(crate) fn add(&mut self, id: PathId, number: usize) {
        let relay = Relay {
            number,
            promoted: false,
            changes: 0,
        };
        self.routes[number] = Some(id);
        self.by_path.insert(id, relay);
    }

    /// Takes its number from a path: no message of it is run in the kernel tier any
    /// more.
    pub(crate) fn remove(&mut self, id: PathId) {
        if let Some(relay) = self.by_path.remove(&id) {
            self.routes[relay.number] = None;
            self.write(relay.number, [None; 2]);
        }
    }

    /// Lets the kernel tier run a path's messages, or no longer.
    pub(crate) fn promote(&mut self, id: PathId, path: &mut Path<Message>, promoted: bool) {
        if let Some(relay) = self.by_path.get_mut(&id) {
            relay.promoted = promoted;
            relay.changes = relay::changes(path);
            let number = relay.number;
            let hops = if promoted {
                self.hops_of(path)
            } else {
                [None; 2]
            };
            self.write(number, hops);
        }
    }

    /// Where the messages of a path go at present, as programs read it.
    pub(crate) fn hops_of(&self, path: &mut Path<Message>) -> [Option<Hop>; 2] {
        let terms = ashway_config::share(path.attrs()).map(Share::terms);
        relay::hops(path).map(|way| Some(self.filled(way?, terms)))
    }

    /// The key of a relay's account, if the path is one.
    pub(crate) fn account_of(&self, id: PathId) -> Option<usize> {
        let relay = self.by_path.get(&id)?;
        Some(account_key(relay.number))
    }

    /// Writes the hops anew if the path has another sender since.
    pub(crate) fn follow(&mut self, id: PathId, path: &mut Path<Message>) {
        if let Some(relay) = self.by_path.get(&id)
            && relay.promoted
            && relay.changes != relay::changes(path)
        {
            self.promote(id, path, true);
        }
    }

    /// Writes the hops of a path anew, of which something else has changed.
    pub(crate) fn refresh(&mut self, id: PathId, path: &mut Path<Message>) {
        if self.by_path.get(&id).is_some_and(|relay| relay.promoted) {
            self.promote(id, path, true);
        }
    }

    /// The paths whose messages the kernel tier may run. Allocates.
    pub(crate) fn promoted(&self) -> Vec<PathId> {
        let promoted = self.by_path.iter().filter(|(_, relay)| relay.promoted);
        promoted.map(|(id, _)| *id).collect()
    }

    fn write(&self, number: usize, hops: [Option<Hop>; 2]) {
        for (direction, hop) in [Direction::Forward, Direction::Backward]
            .into_iter()
            .zip(hops)
        {
            self.write_one(key(number, direction), hop.unwrap_or_default());
        }
    }

    /// A hop with what only a node knows of it.
    fn filled(&self, way: RelayHop, terms: Option<Terms>) -> Hop {
        // No relay ends at an interface that has gone.
        let Some(out) = self.out.get(way.iface as usize) else {
            return Hop::default();
        };
        let by_tcx = if out.by_tcx { hop::flag::BY_TCX } else { 0 };
        Hop {
            ifindex: out.ifindex,
            flags: way.hop.flags | by_tcx,
            terms,
            ..way.hop
        }
    }

    /// Programs on other CPUs may read it meanwhile: they see all of it, or that it
    /// is being written ([`ashway_abi::hop`]).
    fn write_one(&self, key: usize, hop: Hop) {
        let at = key * hop::BYTES;
        let generation = self.hops.u32_at(at + hop::GENERATION as usize);
        let before = generation.load(Ordering::Relaxed);
        generation.store(before.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let bytes = hop.to_bytes();
        for (word, bytes) in bytes.chunks_exact(4).enumerate().skip(1) {
            let value = u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            self.hops
                .u32_at(at + 4 * word)
                .store(value, Ordering::Relaxed);
        }
        generation.store(before.wrapping_add(2), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_relay_has_two_keys_of_its_own() {
        let mut seen = vec![false; KEYS];
        seen[0] = true;
        for number in 0..MOST {
            for direction in [Direction::Forward, Direction::Backward] {
                let key = key(number, direction);
                assert!(!std::mem::replace(&mut seen[key], true));
                assert_eq!(of_key(key), Some((number, direction)));
            }
        }
        assert!(seen.into_iter().all(|seen| seen));
        assert_eq!([of_key(0), of_key(KEYS)], [None; 2]);
    }
}
