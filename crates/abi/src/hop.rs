//! Where a `forward` path's messages go next, as the kernel tier reads it.
//!
//! The value of an entry in a node's map of hops: user space writes it, the
//! forward program reads it. The key is the context's
//! [`LOCAL_PATH`](crate::context::LOCAL_PATH): a forward path has no instance, so
//! its [`Leaf`](crate::Leaf) says there which hop is its own. A value of zeros is
//! no hop, as an array has it where nobody has written.
//!
//! Fields are in the order in which the program writes them into a frame, and
//! what goes into it is in network order.

/// The next hop of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
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
    /// Bits of [`flag`].
    pub flags: u8,
    /// Hops the packet may take: time to live, hop limit.
    pub hops: u8,
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
}

/// Offset of [`Hop::destination_mac`] and of [`Hop::source_mac`] behind it.
pub const MACS: i16 = 0;
/// Offset of [`Hop::ifindex`].
pub const IFINDEX: i16 = 12;
/// Offset of [`Hop::source`].
pub const SOURCE: i16 = 16;
/// Offset of [`Hop::destination`].
pub const DESTINATION: i16 = 32;
/// Offset of [`Hop::source_port`] and of [`Hop::destination_port`] behind it.
pub const PORTS: i16 = 48;
/// Offset of [`Hop::mtu`].
pub const MTU: i16 = 52;
/// Offset of [`Hop::vlan`].
pub const VLAN: i16 = 56;
/// Offset of [`Hop::flags`].
pub const FLAGS: i16 = 58;
/// Offset of [`Hop::hops`].
pub const HOPS: i16 = 59;
/// Size of a hop.
pub const BYTES: usize = 60;

impl Hop {
    /// The value for the map.
    #[must_use]
    pub fn to_bytes(self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        let parts: [(i16, &[u8]); 11] = [
            (MACS, &self.destination_mac),
            (MACS + 6, &self.source_mac),
            (IFINDEX, &self.ifindex.to_ne_bytes()),
            (SOURCE, &self.source),
            (DESTINATION, &self.destination),
            (PORTS, &self.source_port),
            (PORTS + 2, &self.destination_port),
            (MTU, &self.mtu.to_ne_bytes()),
            (VLAN, &self.vlan),
            (FLAGS, &[self.flags]),
            (HOPS, &[self.hops]),
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
    use core::mem::offset_of;

    #[test]
    fn offsets_are_the_structs() {
        assert_eq!(offset_of!(Hop, destination_mac), MACS as usize);
        assert_eq!(offset_of!(Hop, source_mac), MACS as usize + 6);
        assert_eq!(offset_of!(Hop, ifindex), IFINDEX as usize);
        assert_eq!(offset_of!(Hop, source), SOURCE as usize);
        assert_eq!(offset_of!(Hop, destination), DESTINATION as usize);
        assert_eq!(offset_of!(Hop, source_port), PORTS as usize);
        assert_eq!(offset_of!(Hop, destination_port), PORTS as usize + 2);
        assert_eq!(offset_of!(Hop, mtu), MTU as usize);
        assert_eq!(offset_of!(Hop, vlan), VLAN as usize);
        assert_eq!(offset_of!(Hop, flags), FLAGS as usize);
        assert_eq!(offset_of!(Hop, hops), HOPS as usize);
        assert_eq!(size_of::<Hop>(), BYTES);
        assert_eq!(Hop::default().to_bytes(), [0; BYTES]);
    }

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
            flags: 10,
            hops: 11,
        };
        let mut lengths = [0; 12];
        for byte in hop.to_bytes() {
            lengths[usize::from(byte)] += 1;
        }
        assert_eq!(lengths, [0, 6, 6, 4, 16, 16, 2, 2, 4, 2, 1, 1]);
    }
}
