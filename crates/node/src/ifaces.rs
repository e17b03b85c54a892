//! Changes of an interface that its paths follow: its hardware address, its MTU, and more
//! receive queues.

use ashway_kernel::iface::Now;

use super::{Node, say};

impl Node {
    /// Has paths follow how an interface is now; says whether what leaves by it is made in
    /// another way than before.
    pub(super) fn follow_iface(&mut self, number: usize, now: &Now) -> bool {
        let other_mac = self.follow_mac(number, now.mac);
        let other_mtu = self.follow_mtu(number, now.mtu);
        let more_queues = self.follow_queues(number, now.rx_queues as usize);
        if (other_mac || more_queues) && !self.ifaces[number].state.is_lost() {
            // The program has the address in its code, and a veth has no program on queues
            // that are new until it gets another (`veth_enable_range_safe`, Linux 6.18).
            if let Err(refusal) = self.exchange(number) {
                let because = &refusal.message;
                say(&format!("its paths do not follow: {because}"));
                say("  hint: start the node again");
            }
        }
        other_mac || other_mtu
    }

    /// What paths send by it may be as long as it says now, in both tiers. A path that cuts what
    /// is longer has the length in its attributes, as long as it lives.
    fn follow_mtu(&mut self, number: usize, mtu: u32) -> bool {
        let known = self.links[number].mtu();
        let before = known.get();
        if before == mtu || self.ifaces[number].rung.is_own() {
            return false;
        }
        known.set(mtu);
        self.ifaces[number].facts.mtu = mtu as usize;
        let name = &self.ifaces[number].name;
        say(&format!(
            "interface `{name}` has an MTU of {mtu} bytes, and had {before}; paths that cut \
             fragments cut as before until they are made anew"
        ));
        true
    }

    fn follow_mac(&mut self, number: usize, mac: [u8; 6]) -> bool {
        let known = self.links[number].mac();
        if known.get() == mac || self.ifaces[number].rung.is_own() {
            return false;
        }
        let before = known.to_string();
        known.set(mac);
        self.ifaces[number].mac_changes += 1;
        let name = &self.ifaces[number].name;
        say(&format!(
            "interface `{name}` has the hardware address {known}, and had {before}"
        ));
        true
    }

    /// Says whether there are more. Handlers that are there keep their rings, which the
    /// queues share; those to come get rings for all queues.
    fn follow_queues(&mut self, number: usize, queues: usize) -> bool {
        let before = self.ifaces[number].facts.queues;
        if queues == before || queues == 0 {
            return false;
        }
        self.ifaces[number].facts.queues = queues;
        let name = &self.ifaces[number].name;
        say(&format!(
            "interface `{name}` has {queues} receive queues, and had {before}"
        ));
        queues > before
    }
}
