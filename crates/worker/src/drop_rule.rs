//! Filters in the words of the rule that keeps matched messages from the host's stack, where
//! a packet socket takes them.

use std::net::IpAddr;

use ashway_demux::{Conjunction, Field, Filter};
use ashway_wire::{Fragment, eth, ipv4};

/// Why there can be no drop rule, and what to do about it.
pub const NO_DROP_HINT: &str = "the packet filter keeps untagged datagrams from the \
     host by their networks and ports alone: leave `not`, `vlan` and raw bytes out of `match`, \
     or take messages by XDP";

/// All that a filter matches, in the words of the drop rule; `None` if those words
/// do not say it.
#[must_use]
pub fn drop_matches(filter: &Filter) -> Option<Vec<ashway_ring::Match>> {
    filter.any.iter().map(drop_match).collect()
}

/// A conjunction in the words of the drop rule, which knows untagged UDP
/// datagrams, networks and ports.
fn drop_match(conjunction: &Conjunction) -> Option<ashway_ring::Match> {
    if !conjunction.not.is_empty() {
        return None;
    }
    let mut found = ashway_ring::Match::default();
    let (mut untagged, mut udp) = (false, false);
    for test in &conjunction.tests {
        let (mask, value) = (u128::from_be_bytes(test.mask), test.value);
        let whole = mask.leading_ones() as usize == 8 * test.field.width();
        let port = u16::from_be_bytes([value[0], value[1]]);
        match test.field {
            Field::Vlans => untagged = whole_tags(test.mask) && value[0] == 0,
            Field::EtherType if whole => {
                found.family = Some(match port {
                    eth::TYPE_IPV4 => ashway_ring::Family::Ipv4,
                    eth::TYPE_IPV6 => ashway_ring::Family::Ipv6,
                    _ => return None,
                });
            }
            Field::Protocol if whole => udp = value[0] == ipv4::PROTOCOL_UDP,
            // The rule's ports are not in later fragments either; without ports
            // the host would get those, and a path drops them.
            Field::Fragment if test.mask[0] == Fragment::Later as u8 && value[0] == 0 => {}
            Field::Source => found.source = Some(net(mask, value, found.family?)?),
            Field::Destination => found.destination = Some(net(mask, value, found.family?)?),
            Field::SourcePort => found.source_port = Some(ports(mask, port)?),
            Field::DestinationPort => found.destination_port = Some(ports(mask, port)?),
            _ => return None,
        }
    }
    (untagged && udp && found.family.is_some()).then_some(found)
}

/// Whether a test of tags asks for all of their bits.
const fn whole_tags(mask: [u8; 16]) -> bool {
    mask[0] & 3 == 3
}

/// A mask of leading ones is a network.
fn net(mask: u128, value: [u8; 16], family: ashway_ring::Family) -> Option<ashway_ring::Net> {
    let address: IpAddr = match family {
        ashway_ring::Family::Ipv4 => [value[0], value[1], value[2], value[3]].into(),
        ashway_ring::Family::Ipv6 => value.into(),
    };
    let prefix_len = mask.leading_ones();
    (prefix_len == mask.count_ones()).then_some(ashway_ring::Net {
        address,
        prefix_len: prefix_len as u8,
    })
}

/// A mask of leading ones is a range of ports.
fn ports(mask: u128, first: u16) -> Option<ashway_ring::Ports> {
    let bits = mask.leading_ones();
    let rest = u16::MAX.checked_shr(bits).unwrap_or(0);
    (bits == mask.count_ones()).then_some(ashway_ring::Ports {
        first,
        last: first | rest,
    })
}
