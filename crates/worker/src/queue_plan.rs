//! The numbers of a queue: which interface has which of its rings.

use std::ops::Range;

use ashway_abi::QueueLayout;
use ashway_abi::trusted::{MAX_PATHS, MAX_RINGS};
use ashway_codegen::instance::OrderScope;

use crate::iface_map::IfaceMap;
use crate::{keys, relays};

/// Most bytes of a queue: a card of 128 queues would take ten times as much for each handler if each
/// had a ring. What crosses by queues of one ring has the room of that ring.
const MOST_BYTES: usize = 4 << 20;

/// What a plan needs to know of an interface.
#[derive(Clone, Copy, Debug)]
pub struct IfaceFacts {
    /// Receive queues.
    pub queues: usize,
    /// Largest payload of a frame, in bytes.
    pub mtu: usize,
    /// Whether it gets no rings of its own, because it may go at any time and as many others
    /// may come.
    pub shares: bool,
}

/// See the [module](self).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuePlan {
    /// Most paths whose messages can be in it; its programs are made for so many.
    pub most_paths: usize,
    /// Scope of the order between the tiers: one receive queue, or one path.
    pub(crate) order_scope: OrderScope,
    /// For each of the interfaces that it was made for, the ring of receive queue 0, and how
    /// many there are: the further queues follow, and those beyond begin with the first again.
    /// Any other interface shares all of them.
    rings_of: Vec<(usize, Range<usize>)>,
    /// Rings in all.
    pub(crate) rings: usize,
    /// Room for one payload.
    pub(crate) slot_bytes: usize,
    /// CPUs that have a lock of their own.
    locks: usize,
}

impl QueuePlan {
    /// The queue of a handler that may be bound to any interface: rings for each that has
    /// some of its own, as far as there are rings.
    #[must_use]
    pub fn unbound(facts: &IfaceMap<IfaceFacts>) -> Self {
        Self::of_ifaces(&facts.numbers(), facts)
    }

    /// The queue of whole frames. Its paths are the keys of [relays](relays::key) and, behind
    /// them, of [other paths](keys::key).
    #[must_use]
    pub(crate) fn of_frames(facts: &IfaceMap<IfaceFacts>) -> Self {
        Self {
            most_paths: relays::KEYS + keys::KEYS,
            order_scope: OrderScope::Path {
                relays: relays::KEYS,
            },
            ..Self::unbound(facts)
        }
    }

    /// The queue of a handler with a ring for each queue of these interfaces that have some
    /// of their own; where that is more than fit in [`MOST_BYTES`], as many to each as leaves the
    /// others theirs, and none to interfaces beyond so many. There is always one, for interfaces
    /// that come later.
    ///
    /// # Panics
    ///
    /// If `facts` lacks one of them.
    #[must_use]
    pub fn of_ifaces(ifaces: &[usize], facts: &IfaceMap<IfaceFacts>) -> Self {
        let owns = ifaces.iter().filter(|iface| !facts[**iface].shares);
        let longest = owns.clone().map(|iface| facts[*iface].mtu).max();
        let longest = longest.unwrap_or(0).next_power_of_two();
        let mut plan = Self {
            most_paths: MAX_PATHS,
            order_scope: OrderScope::Ring,
            rings_of: Vec::new(),
            rings: 1,
            slot_bytes: longest.clamp(2048, 4096),
            locks: 0,
        };
        let of_rings = |rings: usize| QueueLayout {
            rings,
            ..plan.layout()
        };
        let mut room = (1..=MAX_RINGS).rev();
        let room = room.find(|rings| of_rings(*rings).bytes() <= MOST_BYTES);
        let room = room.unwrap_or(1);
        let owns: Vec<usize> = owns.copied().take(room).collect();
        let rings = |most: usize| owns.iter().map(move |iface| facts[*iface].queues.min(most));
        let mut most = (1..=room).rev();
        let most = most.find(|most| rings(*most).sum::<usize>() <= room);
        let most = most.expect("there are no more interfaces than rings");
        let mut taken = 0;
        for (iface, count) in owns.iter().zip(rings(most)) {
            plan.rings_of.push((*iface, taken..taken + count));
            taken += count;
        }
        plan.rings = taken.max(1);
        plan
    }

    /// The rings of an interface, of which the first is receive queue 0's; none if it shares
    /// those of all ([`Leaf::ring_count`](ashway_abi::Leaf::ring_count)).
    #[must_use]
    pub fn rings_at(&self, iface: usize) -> Range<usize> {
        let mut of = self.rings_of.iter();
        let own = of.find(|(known, _)| *known == iface);
        own.map_or(0..0, |(_, rings)| rings.clone())
    }

    /// The same of a handler that runs on so many CPUs at once; of one that does not if there
    /// are none.
    #[must_use]
    pub(crate) const fn on_cpus(mut self, cpus: usize) -> Self {
        self.locks = cpus;
        self
    }

    /// Where all of it lies.
    #[must_use]
    pub(crate) const fn layout(&self) -> QueueLayout {
        QueueLayout {
            paths: self.most_paths,
            rings: self.rings,
            slot_bytes: self.slot_bytes,
            locks: self.locks,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(queues: &[(usize, bool)]) -> IfaceMap<IfaceFacts> {
        let facts = queues.iter().map(|&(queues, shares)| IfaceFacts {
            queues,
            mtu: 1500,
            shares,
        });
        facts.enumerate().collect()
    }

    #[test]
    fn interfaces_of_many_queues_leave_each_other_rings() {
        let rings = |queues: &[usize]| {
            let own: Vec<_> = queues.iter().map(|queues| (*queues, false)).collect();
            let plan = QueuePlan::unbound(&facts(&own));
            let each = (0..queues.len()).map(|iface| plan.rings_at(iface).len());
            let each: Vec<usize> = each.filter(|rings| *rings > 0).collect();
            assert_eq!(each.iter().sum::<usize>(), plan.rings);
            each
        };
        assert_eq!(rings(&[1, 4]), [1, 4]);
        assert_eq!(rings(&[64]), [5]);
        assert_eq!(rings(&[4096]), [5]);
        assert_eq!(rings(&[40, 40]), [2, 2]);
        assert_eq!(rings(&[1, 128, 4]), [1, 2, 2]);
        // Where there are more interfaces than rings, the first have one each.
        assert_eq!(rings(&[3; 70]), [1; 5]);
    }

    #[test]
    fn a_queue_keeps_to_its_bytes_however_many_queues_a_card_has() {
        for mtu in [1500, 3000, 9000] {
            let card = |queues| IfaceFacts {
                queues,
                mtu,
                shares: false,
            };
            let many = std::iter::repeat_n(card(128), 32);
            for facts in [vec![card(1)], vec![card(4096)], many.collect()] {
                let plan = QueuePlan::unbound(&facts.into_iter().enumerate().collect());
                assert!(plan.layout().bytes() <= MOST_BYTES, "{plan:?}");
                let slot = if mtu > 2048 { 4096 } else { 2048 };
                assert_eq!(plan.slot_bytes, slot, "{plan:?}");
            }
        }
    }

    #[test]
    fn interfaces_that_come_and_go_share_the_rings_of_the_others() {
        let plan = QueuePlan::unbound(&facts(&[(4, true), (2, false), (8, true)]));
        assert_eq!((plan.rings_at(0), plan.rings_at(1)), (0..0, 0..2));
        assert_eq!((plan.rings_at(2), plan.rings), (0..0, 2));
        // Of those that come later nothing is known.
        assert_eq!(plan.rings_at(7), 0..0);
        // Where nobody has rings of its own there is one for all.
        for none in [&[][..], &[(8, true); 50]] {
            assert_eq!(QueuePlan::unbound(&facts(none)).rings, 1);
        }
    }
}
