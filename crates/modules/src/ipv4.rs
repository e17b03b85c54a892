//! Internet Protocol, version 4.
//!
//! * **Services:** `down`, to a link; `up`, to what lives on a network.
//! * **Attributes:** `protocol` (number of what is above, 17 for UDP; becomes
//!   0x0800 for the link below); `remote` and `local` (endpoints; their
//!   addresses are the path's; without them every sender's packets come up);
//!   `ttl` (hops of originated packets, default 64).
//! * **Verdicts:** `Passed` for what is not IPv4, and for UDP without its ports (the
//!   frame ends before them, or is a later fragment), as nobody can say whose it is;
//!   `DroppedFragment` (whole packets only: put `fragment` below
//!   for the others); `DroppedBadLength`; `DroppedBadIpChecksum`;
//!   `DroppedNoNextHop` for an originated packet without `remote` and `local`;
//!   `DroppedTooLong` for one beyond 65,535 bytes; `DroppedNoHeadroom`.
//! * **Tiers:** user; the kernel tier's entry program does the same inbound, and
//!   a reply's header outbound.
//!
//! ```toml
//! [module.ip]
//! kind = "ipv4"
//! down = "wire.up"
//! ```
//!
//! Source: RFC 791 §3.1; RFC 1122 §3.2. Options are kept and never read.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use ashway_abi::Count;
use ashway_path::attrs::Attrs;
use ashway_path::module::{Kind, Module, Refused, StageAndNext};
use ashway_path::stage::Step;
use ashway_wire::eth::TYPE_IPV4;
use ashway_wire::ipv4::{HEADER_BYTES, Packet};

use crate::ip::{self, Addresses, Versions};
use crate::{Flow, Message};

/// The kind.
pub static KIND: Kind = Kind {
    name: "ipv4",
    about: "Internet Protocol, version 4",
    services: &ip::SERVICES,
    params: &[],
};

/// A host's IPv4.
#[derive(Clone, Debug)]
pub struct Ipv4 {
    /// The module's name.
    pub name: Arc<str>,
}

impl Module<Message> for Ipv4 {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn stage(
        &self,
        entered: Option<usize>,
        attrs: &mut Attrs,
    ) -> Result<StageAndNext<Message>, Refused> {
        ip::stage(&self.name, Versions::V4, entered, attrs)
    }
}

/// Takes the header off.
pub(crate) fn up(mut message: Message, fragment: Count) -> Step<Message> {
    let Some(ip) = Packet::new_checked(message.bytes()) else {
        return ip::end(message, Count::DroppedBadLength);
    };
    let (header_len, total_len) = (ip.header_len(), usize::from(ip.total_len()));
    if ip.version() != 4 || header_len < HEADER_BYTES {
        return Step::End(message, Count::Passed);
    }
    if ip.more_fragments() || ip.fragment_offset() != 0 {
        return ip::end(message, fragment);
    }
    if total_len < header_len || total_len > message.len() {
        return ip::end(message, Count::DroppedBadLength);
    }
    if !ip.verify_checksum() {
        return ip::end(message, Count::DroppedBadIpChecksum);
    }
    let address = |octets: [u8; 4]| SocketAddr::from((octets, 0));
    let flow = Flow {
        source: address(ip.source()),
        destination: address(ip.destination()),
    };
    message.meta.protocol = ip.protocol().into();
    message.meta.flow = Some(flow);
    message.truncate(total_len);
    message.meta.ip = message.pop(header_len);
    Step::On(message)
}

/// Puts the header on: the one the message came with, turned around, or a new
/// one.
pub(crate) fn down(
    mut message: Message,
    own: Option<(Ipv4Addr, Ipv4Addr)>,
    protocol: u8,
    ttl: u8,
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
    let (Ok(len), Some(mut ip)) = (u16::try_from(bytes.len()), Packet::new_checked(bytes)) else {
        return Step::End(message, Count::DroppedTooLong);
    };
    let (source, destination) = match own {
        Some((local, remote)) if answered.is_none() => {
            ip.clear();
            ip.set_protocol(protocol);
            (local.octets(), remote.octets())
        }
        _ => (ip.destination(), ip.source()),
    };
    ip.set_total_len(len);
    ip.set_ttl(ttl);
    ip.set_source(source);
    ip.set_destination(destination);
    ip.fill_checksum();
    message.meta.protocol = TYPE_IPV4;
    Step::On(message)
}

/// The path's two addresses, if they are of this version.
pub(crate) fn own(addresses: &Addresses) -> Option<(Ipv4Addr, Ipv4Addr)> {
    match (addresses.local?, addresses.remote?) {
        (IpAddr::V4(local), IpAddr::V4(remote)) => Some((local, remote)),
        _ => None,
    }
}
