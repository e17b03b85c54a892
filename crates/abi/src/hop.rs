//! Where a `forward` path's messages go next, as the kernel tier reads it.
//!
//! An entry of a node's array of hops, [`BYTES`] each: user space writes it, the
//! forward program reads it. The number is the context's
//! [`LOCAL_PATH`](crate::context::LOCAL_PATH): a forward path has no instance, so
//! its [`Leaf`](crate::Leaf) says there which hop is its own, one for each
//! direction. Zeros are no hop: its messages run in the user tier.
//!
//! The word at [`GENERATION`] makes a change whole: it is odd while the entry is
//! being written, and another number afterwards. The program takes a copy and
//! believes it if the word was even before and is the same after.
//!
//! Fields are in the order in which the program writes them into a frame, and
//! what goes into it is in network order.

use crate::share::Terms;

/// The next hop of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hop {
    /// Hardware address of the next hop.
    pub destination_mac: [u8; 6],
    /// Hardware address of the interface out.
    pub source_mac: [u8; 6],
    /// Number of the interface out; 0 if there is no hop.
    pub ifindex: u32,
    /// The sender's address from here on; IPv4 in the first four bytes.
    pub source: [u8; 16],
    /// The next hop's address.
    pub destination: [u8; 16],
    /// The sender's port from here on, in network order.
    pub source_port: [u8; 2],
    /// The next hop's port, in network order.
    pub destination_port: [u8; 2],
    /// Longest packet the interface out takes, in bytes behind the link's header.
    pub mtu: u32,
    /// VLAN id of the tag out, in network order; see [`flag::TAGGED`].
    pub vlan: [u8; 2],
    /// Bits of [`flag`], but for those of [`from`](Self::from).
    pub flags: u8,
    /// Hops the packet may take: time to live, hop limit.
    pub hops: u8,
    /// The only sender whose messages go this way; those of others run in the user
    /// tier. Without it, all do.
    pub from: Option<Sender>,
    /// What a message costs the path of its [share](crate::share), if that has one.
    pub terms: Option<Terms>,
}

/// Who a message came from, and to whom, as its plain headers say it (Ethernet
/// without tags, IP without options or extension headers, UDP).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sender {
    /// The sender's hardware address.
    pub mac: [u8; 6],
    /// Whether the message came by IPv6.
    pub ipv6: bool,
    /// The two addresses and the two ports, as they lie behind each other in the
    /// frame: 12 bytes for IPv4, 36 for IPv6.
    pub ends: [u8; 36],
}

/// Bits of [`Hop::flags`].
pub mod flag {
    /// The next hop is reached by IPv6; otherwise by IPv4.
    pub const IPV6: u8 = 1;
    /// Frames out have a VLAN tag.
    pub const TAGGED: u8 = 2;
    /// Frames leave through the TCX exit program of the interface they came by,
    /// because the interface out is a veth whose peer does not poll and would
    /// take no redirect.
    pub const BY_TCX: u8 = 4;
    /// Only messages of [`Hop::from`](super::Hop::from) go this way.
    pub const FROM: u8 = 8;
    /// Those come by IPv6; otherwise by IPv4.
    pub const FROM_IPV6: u8 = 16;
}

/// `u32`: the entry's generation.
pub const GENERATION: i16 = 0;
/// Offset of [`Hop::ifindex`].
pub const IFINDEX: i16 = 4;
/// Offset of [`Hop::destination_mac`] and of [`Hop::source_mac`] behind it.
pub const MACS: i16 = 8;
/// Offset of [`Hop::source`].
pub const SOURCE: i16 = 20;
/// Offset of [`Hop::destination`].
pub const DESTINATION: i16 = 36;
/// Offset of [`Hop::source_port`] and of [`Hop::destination_port`] behind it.
pub const PORTS: i16 = 52;
/// Offset of [`Hop::mtu`].
pub const MTU: i16 = 56;
/// Offset of [`Hop::vlan`].
pub const VLAN: i16 = 60;
/// Offset of [`Hop::flags`].
pub const FLAGS: i16 = 62;
/// Offset of [`Hop::hops`].
pub const HOPS: i16 = 63;
/// Bytes of an entry that say where a message goes; behind them is [`Hop::from`].
pub const WAY_BYTES: i16 = 64;
/// Offset of [`Sender::mac`].
pub const FROM_MAC: i16 = WAY_BYTES;
/// Offset of [`Sender::ends`].
pub const FROM_ENDS: i16 = FROM_MAC + 8;
/// `u64`: offset of [`Terms::price`], 0 without a share, and of [`Terms::least_ns`] in the upper
/// half.
pub const TERMS: i16 = 112;
/// Size of an entry; a power of two.
pub const BYTES: usize = 128;

impl Hop {
    /// The entry, of generation 0.
    #[must_use]
    pub fn to_bytes(self) -> [u8; BYTES] {
        let (mut flags, mut mac, mut ends) = (self.flags, [0; 6], [0; 36]);
        if let Some(from) = self.from {
            flags |= flag::FROM | if from.ipv6 { flag::FROM_IPV6 } else { 0 };
            (mac, ends) = (from.mac, from.ends);
        }
        let (price, least_ns) = match self.terms {
            Some(terms) => (terms.price, terms.least_ns),
            None => (0, 0),
        };
        let mut bytes = [0; BYTES];
        let parts: [(i16, &[u8]); 15] = [
            (IFINDEX, &self.ifindex.to_ne_bytes()),
            (MACS, &self.destination_mac),
            (MACS + 6, &self.source_mac),
            (SOURCE, &self.source),
            (DESTINATION, &self.destination),
            (PORTS, &self.source_port),
            (PORTS + 2, &self.destination_port),
            (MTU, &self.mtu.to_ne_bytes()),
            (VLAN, &self.vlan),
            (FLAGS, &[flags]),
            (HOPS, &[self.hops]),
            (FROM_MAC, &mac),
            (FROM_ENDS, &ends),
            (TERMS, &price.to_ne_bytes()),
            (TERMS + 4, &least_ns.to_ne_bytes()),
        ];
        for (at, part) in parts {
            bytes[at as usize..][..part.len()].copy_from_slice(part);
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_has_its_bytes() {
        let hop = Hop {
            destination_mac: [1; 6],
            source_mac: [2; 6],
            ifindex: 0x0303_0303,
            source: [4; 16],
            destination: [5; 16],
            source_port: [6; 2],
            destination_port: [7; 2],
            mtu: 0x0808_0808,
            vlan: [9; 2],
            flags: 32,
            hops: 11,
            from: Some(Sender {
                mac: [12; 6],
                ipv6: true,
                ends: [13; 36],
            }),
            terms: Some(Terms {
                price: 0x0e0e_0e0e,
                least_ns: 0x0f0f_0f0f,
            }),
        };
        let mut lengths = [0; 64];
        let bytes = hop.to_bytes();
        for byte in bytes {
            lengths[usize::from(byte)] += 1;
        }
        let known = [6, 6, 4, 16, 16, 2, 2, 4, 2, 0, 1, 6, 36, 4, 4];
        assert_eq!(lengths[1..16], known);
        assert_eq!(lengths[usize::from(32 | flag::FROM | flag::FROM_IPV6)], 1);
        assert_eq!(bytes[..4], [0; 4]);
        assert_eq!(Hop::default().to_bytes(), [0; BYTES]);
    }
}
