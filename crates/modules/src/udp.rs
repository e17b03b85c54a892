//! User Datagram Protocol, over both versions of IP.
//!
//! * **Services:** `down`, to a network; `up`, to what lives on ports.
//! * **Attributes:** `local` (endpoint; its port is the path's, 0 is any);
//!   `remote` (endpoint; its port, 0 is any); `protocol` becomes 17 for the
//!   network below.
//! * **Verdicts:** `Passed` for what is not UDP; `DroppedBadLength`; `DroppedBadUdpChecksum`;
//!   `DroppedTooLong`; `DroppedNoHeadroom`; `DroppedNoNextHop` for an originated datagram on a path
//!   without both ports.
//! * **Tiers:** user; the kernel tier's entry program does the same inbound, and
//!   a reply's header outbound.
//!
//! ```toml
//! [module.udp]
//! kind = "udp"
//! down = "ip.up"
//! ```
//!
//! Source: RFC 768; RFC 8200 §8.1 for the checksum that IPv6 demands. A
//! checksum that a stock veth left half done is accepted (docs/facts.md, "Half a
//! checksum on a veth"), and what is sent always has a whole one.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ashway_abi::{Count, context::flag};
use ashway_path::attrs::{Attrs, names};
use ashway_path::demand::Demand;
use ashway_path::module::{Kind, Module, Next, Refused, StageAndNext};
use ashway_path::service::Service;
use ashway_path::stage::{Cx, Direction, Stage, Step, Traits};
use ashway_wire::checksum::{Sum, pseudo_v4, pseudo_v6};
use ashway_wire::ipv4::PROTOCOL_UDP;
use ashway_wire::udp::{Checksum, HEADER_BYTES, Packet};

use crate::services::{NET, NETWORK, TRANSPORT};
use crate::way::{DOWN, UP, Way, way};
use crate::{Flow, Message, ip, words};

/// The kind.
pub static KIND: Kind = Kind {
    name: "udp",
    about: "User Datagram Protocol",
    services: &[
        Service {
            name: "up",
            provides: &TRANSPORT,
            requires: &NET,
            after: false,
        },
        Service {
            name: "down",
            provides: &NET,
            requires: &NETWORK,
            after: true,
        },
    ],
    params: &[],
};

/// A host's UDP.
#[derive(Clone, Debug)]
pub struct Udp {
    /// The module's name.
    pub name: Arc<str>,
}

impl Module<Message> for Udp {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn stage(
        &self,
        entered: Option<usize>,
        attrs: &mut Attrs,
    ) -> Result<StageAndNext<Message>, Refused> {
        attrs.set(names::PROTOCOL, u64::from(PROTOCOL_UDP));
        Ok(StageAndNext {
            stage: Box::new(UdpStage {
                module: self.name.clone(),
                way: way(entered, UP),
                local: attrs.endpoint(names::LOCAL),
                remote: attrs.endpoint(names::REMOTE),
            }),
            next: match entered {
                Some(UP) => Next::Through(DOWN),
                _ => Next::Through(UP),
            },
        })
    }
}

/// The stage.
#[derive(Clone)]
pub(crate) struct UdpStage {
    module: Arc<str>,
    pub(crate) way: Way,
    local: Option<SocketAddr>,
    remote: Option<SocketAddr>,
}

impl Stage<Message> for UdpStage {
    fn name(&self) -> &str {
        &self.module
    }

    fn kind(&self) -> Option<&'static Kind> {
        Some(&KIND)
    }

    fn traits(&self) -> Traits {
        Traits {
            in_entry: true,
            checks_length: true,
            touches_data: true,
            ..Traits::default()
        }
    }

    fn demands(&self, all: &mut Vec<Demand>) {
        all.push(Demand::plain(words::UDP));
        for (end, words) in [
            (self.local, words::DST_PORT),
            (self.remote, words::SRC_PORT),
        ] {
            let port = end.map_or(0, |end| end.port());
            if port != 0 {
                all.push(Demand::of(words, u64::from(port)));
            }
        }
    }

    fn take(
        &mut self,
        message: Message,
        direction: Direction,
        _cx: &mut Cx<'_, Message>,
    ) -> Step<Message> {
        if self.way.is_up(direction) {
            up(message)
        } else {
            self.down(message)
        }
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

fn up(mut message: Message) -> Step<Message> {
    if message.meta.protocol != u16::from(PROTOCOL_UDP) {
        return Step::End(message, Count::Passed);
    }
    let Some(udp) = Packet::new_checked(message.bytes()) else {
        return ip::end(message, Count::DroppedBadLength);
    };
    let len = usize::from(udp.length());
    let Some(flow) = message.meta.flow else {
        return ip::end(message, Count::DroppedBadLength);
    };
    if len < HEADER_BYTES || len > message.len() {
        return ip::end(message, Count::DroppedBadLength);
    }
    let flow = Flow {
        source: SocketAddr::new(flow.source.ip(), udp.source_port()),
        destination: SocketAddr::new(flow.destination.ip(), udp.destination_port()),
    };
    match udp.judge_checksum(pseudo_header(flow, len)) {
        Checksum::Right => {}
        Checksum::Partial => message.meta.flags |= flag::CHECKSUM_PARTIAL,
        // RFC 8200 §8.1: over IPv6 the checksum is not optional.
        Checksum::Absent if flow.source.is_ipv4() => {}
        Checksum::Absent | Checksum::Wrong => {
            return Step::End(message, Count::DroppedBadUdpChecksum);
        }
    }
    message.meta.flow = Some(flow);
    message.truncate(len);
    message.meta.transport = message.pop(HEADER_BYTES);
    Step::On(message)
}

impl UdpStage {
    /// Who sends what it originates, and to whom.
    pub(crate) const fn ends(&self) -> (Option<SocketAddr>, Option<SocketAddr>) {
        (self.local, self.remote)
    }

    fn down(&self, mut message: Message) -> Step<Message> {
        let answered = message.meta.transport.zip(message.meta.flow);
        let (flow, bytes) = match (answered, self.local, self.remote) {
            (Some((place, flow)), ..) => (flow.turned(), message.back_to(place)),
            (None, Some(source), Some(destination)) => {
                let flow = Flow {
                    source,
                    destination,
                };
                (flow, message.push(HEADER_BYTES))
            }
            (None, ..) => return Step::End(message, Count::DroppedNoNextHop),
        };
        let Some(bytes) = bytes else {
            return Step::End(message, Count::DroppedNoHeadroom);
        };
        let Ok(len) = u16::try_from(bytes.len()) else {
            return Step::End(message, Count::DroppedTooLong);
        };
        if let Some(mut udp) = Packet::new_checked(bytes) {
            udp.set_source_port(flow.source.port());
            udp.set_destination_port(flow.destination.port());
            udp.set_length(len);
            udp.fill_checksum(pseudo_header(flow, usize::from(len)));
        }
        message.meta.protocol = PROTOCOL_UDP.into();
        Step::On(message)
    }
}

/// The pseudo-header's sum for a datagram of so many bytes.
pub(crate) fn pseudo_header(flow: Flow, udp_len: usize) -> Sum {
    match (flow.source.ip(), flow.destination.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let len = udp_len as u16;
            pseudo_v4(source.octets(), destination.octets(), PROTOCOL_UDP, len)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let len = udp_len as u32;
            pseudo_v6(source.octets(), destination.octets(), PROTOCOL_UDP, len)
        }
        // IP stages only make flows of one version.
        _ => Sum::new(),
    }
}
