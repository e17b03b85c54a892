//! Internet Protocol, version 6.
//!
//! * **Services:** `down`, to a link; `up`, to what lives on a network.
//! * **Attributes:** as [`ipv4`](crate::ipv4), with 0x86dd for the link below;
//!   `ttl` is the hop limit.
//! * **Verdicts:** as [`ipv4`](crate::ipv4), but there is no header checksum.
//! * **Tiers:** user; the kernel tier's entry program does the same inbound, and
//!   a reply's header outbound.
//!
//! ```toml
//! [module.ip6]
//! kind = "ipv6"
//! down = "wire.up"
//! ```
//!
//! Source: RFC 8200. Extension headers are stepped over as demux does
//! ([`ashway_wire::headers`]) and go back with an answer as they came. A routing
//! header with segments left is stepped over too; then the checksum above,
//! which is over the last destination (§8.1), is wrong here.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use ashway_abi::{Count, context::flag};
use ashway_path::attrs::Attrs;
use ashway_path::module::{Kind, Module, Refused, StageAndNext};
use ashway_path::stage::Step;
use ashway_wire::eth::TYPE_IPV6;
use ashway_wire::ipv6::{HEADER_BYTES, Packet, is_walked};
use ashway_wire::{Fragment, Headers};

use crate::ip::{self, Addresses, Versions};
use crate::{Flow, Message};

/// The kind.
pub static KIND: Kind = Kind {
    name: "ipv6",
    about: "Internet Protocol, version 6",
    services: &ip::SERVICES,
    params: &[],
};

/// A host's IPv6.
#[derive(Clone, Debug)]
pub struct Ipv6 {
    /// The module's name.
    pub name: Arc<str>,
}

impl Module<Message> for Ipv6 {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn stage(
        &self,
        entered: Option<usize>,
        attrs: &mut Attrs,
    ) -> Result<StageAndNext<Message>, Refused> {
        ip::stage(&self.name, Versions::V6, entered, attrs)
    }
}

/// Takes the header off, and the extension headers with it.
pub(crate) fn up(mut message: Message, fragment: Count) -> Step<Message> {
    let Some(ip) = Packet::new_checked(message.bytes()) else {
        return ip::end(message, Count::DroppedBadLength);
    };
    // A jumbogram says 0 here (RFC 2675) and so is empty; the layer above
    // refuses that.
    let whole = HEADER_BYTES + usize::from(ip.payload_len());
    if ip.version() != 6 {
        return Step::End(message, Count::Passed);
    }
    let protocol = ip.next_header();
    let address = |octets: [u8; 16]| SocketAddr::from((octets, 0));
    let flow = Flow {
        source: address(ip.source()),
        destination: address(ip.destination()),
    };
    let (header_len, protocol) = if is_walked(protocol) {
        let headers = message.frame().map(Headers::parse).unwrap_or_default();
        // Before the lengths, as the entry program has it.
        if headers.fragment != Fragment::No {
            return ip::end(message, fragment);
        }
        if headers.l4 == 0 {
            return ip::end(message, Count::DroppedBadLength);
        }
        (usize::from(headers.l4 - headers.l3), headers.protocol)
    } else {
        (HEADER_BYTES, protocol)
    };
    if whole > message.len() || header_len > whole {
        return ip::end(message, Count::DroppedBadLength);
    }
    message.truncate(whole);
    message.meta.protocol = protocol.into();
    message.meta.flow = Some(flow);
    message.meta.flags |= flag::IPV6;
    message.meta.ip = message.pop(header_len);
    Step::On(message)
}

/// Puts the header on: the one the message came with, turned around, or a new
/// one.
pub(crate) fn down(
    mut message: Message,
    own: Option<(Ipv6Addr, Ipv6Addr)>,
    protocol: u8,
    hop_limit: u8,
) -> Step<Message> {
    let answered = message.meta.ip;
    let bytes = match (answered, own) {
        (Some(place), _) => message.back_to(place),
        (None, Some(_)) => message.push(HEADER_BYTES),
        (None, None) => return Step::End(message, Count::DroppedNoNextHop),
    };
    let Some(bytes) = bytes else {
        return Step::End(message, Count::DroppedNoHeadroom);
    };
    let payload_len = bytes.len().saturating_sub(HEADER_BYTES);
    let (Ok(len), Some(mut ip)) = (u16::try_from(payload_len), Packet::new_checked(bytes)) else {
        return Step::End(message, Count::DroppedTooLong);
    };
    let (source, destination) = match own {
        Some((local, remote)) if answered.is_none() => {
            ip.clear();
            ip.set_next_header(protocol);
            (local.octets(), remote.octets())
        }
        _ => (ip.destination(), ip.source()),
    };
    ip.set_payload_len(len);
    ip.set_hop_limit(hop_limit);
    ip.set_source(source);
    ip.set_destination(destination);
    message.meta.protocol = TYPE_IPV6;
    Step::On(message)
}

/// The path's two addresses, if they are of this version.
pub(crate) fn own(addresses: &Addresses) -> Option<(Ipv6Addr, Ipv6Addr)> {
    match (addresses.local?, addresses.remote?) {
        (IpAddr::V6(local), IpAddr::V6(remote)) => Some((local, remote)),
        _ => None,
    }
}
