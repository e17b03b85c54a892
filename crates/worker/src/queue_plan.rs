//! The numbers of a queue: which interface has which of its rings.

use std::ops::Range;

use ashway_abi::QueueLayout;
use ashway_abi::trusted::{MAX_PATHS, MAX_RINGS};
use ashway_codegen::instance::OrderScope;

use crate::{keys, relays};

/// What a plan needs to know of an interface.
#[derive(Clone, Copy, Debug)]
pub struct IfaceFacts {
    /// Receive queues.
    pub queues: usize,
    /// Largest payload of a frame, in bytes.
    pub mtu: usize,
}

/// See the [module](self).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuePlan {
    /// Most paths whose messages can be in it; its programs are made for so many.
    pub most_paths: usize,
    /// Scope of the order between the tiers: one receive queue, or one path.
    pub(crate) order_scope: OrderScope,
    /// For each of its interfaces, the ring of receive queue 0, and how many there
    /// are: the further queues follow, and those beyond begin with the first again.
    pub rings_of: Vec<(usize, Range<usize>)>,
    /// Rings in all.
    pub(crate) rings: usize,
    /// Room for one payload.
    pub(crate) slot_bytes: usize,
}

impl QueuePlan {
    /// The queue of a handler that may be bound to any interface: rings for each, but
    /// for those beyond the [`MAX_RINGS`]th.
    #[must_use]
    pub fn unbound(facts: &[IfaceFacts]) -> Self {
        let all: Vec<usize> = (0..facts.len().min(MAX_RINGS)).collect();
        Self::of_ifaces(&all, facts)
    }

    /// The queue of whole frames. Its paths are the keys of [relays](relays::key) and, behind
    /// them, of [other paths](keys::key).
    #[must_use]
    pub(crate) fn of_frames(facts: &[IfaceFacts]) -> Self {
        Self {
            most_paths: relays::KEYS + keys::KEYS,
            order_scope: OrderScope::Path {
                relays: relays::KEYS,
            },
            ..Self::unbound(facts)
        }
    }

    /// The queue of a handler with a ring for each queue of these interfaces; where that is
    /// more than there can be, as many to each as leaves the others theirs.
    ///
    /// # Panics
    ///
    /// If these are more than [`MAX_RINGS`] interfaces, which a checked configuration does
    /// not ask for.
    #[must_use]
    pub fn of_ifaces(ifaces: &[usize], facts: &[IfaceFacts]) -> Self {
        let rings = |most: usize| {
            ifaces
                .iter()
                .map(move |iface| facts[*iface].queues.min(most))
        };
        let mut most = (1..=MAX_RINGS).rev();
        let most = most.find(|most| rings(*most).sum::<usize>() <= MAX_RINGS);
        let most = most.expect("no handler has more interfaces than rings");
        let mut plan = Self {
            most_paths: MAX_PATHS,
            order_scope: OrderScope::Ring,
            rings_of: Vec::new(),
            rings: 0,
            slot_bytes: 2048,
        };
        for (iface, count) in ifaces.iter().zip(rings(most)) {
            plan.rings_of.push((*iface, plan.rings..plan.rings + count));
            plan.rings += count;
            let longest = facts[*iface].mtu.next_power_of_two();
            plan.slot_bytes = plan.slot_bytes.max(longest).min(4096);
        }
        plan
    }

    /// The rings of an interface; the first is receive queue 0's.
    #[must_use]
    pub fn rings_at(&self, iface: usize) -> Option<Range<usize>> {
        let mut of = self.rings_of.iter();
        of.find(|(known, _)| *known == iface)
            .map(|(_, rings)| rings.clone())
    }

    /// The interface a ring belongs to.
    #[must_use]
    pub(crate) fn iface_of(&self, ring: usize) -> usize {
        let mut of = self.rings_of.iter();
        of.find(|(_, rings)| rings.contains(&ring))
            .map_or(0, |(iface, _)| *iface)
    }

    /// Where all of it lies.
    #[must_use]
    pub(crate) const fn layout(&self) -> QueueLayout {
        QueueLayout {
            paths: self.most_paths,
            rings: self.rings,
            slot_bytes: self.slot_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_of_many_queues_leave_each_other_rings() {
        let rings = |queues: &[usize]| {
            let facts = queues
                .iter()
                .map(|&queues| IfaceFacts { queues, mtu: 1500 });
            let plan = QueuePlan::unbound(&facts.collect::<Vec<_>>());
            let each = plan.rings_of.iter().map(|(_, rings)| rings.len());
            let each: Vec<usize> = each.collect();
            assert_eq!(each.iter().sum::<usize>(), plan.rings);
            assert!(plan.rings <= MAX_RINGS);
            let of = (0..plan.rings).map(|ring| plan.iface_of(ring));
            assert!(
                of.eq(each
                    .iter()
                    .enumerate()
                    .flat_map(|(iface, n)| vec![iface; *n]))
            );
            each
        };
        assert_eq!(rings(&[64]), [64]);
        assert_eq!(rings(&[4096]), [64]);
        assert_eq!(rings(&[40, 40]), [32, 32]);
        assert_eq!(rings(&[1, 128, 4]), [1, 59, 4]);
        // Where there are more interfaces than rings, the first have one each.
        assert_eq!(rings(&[3; 70]), [1; 64]);
    }
}
