//! Sends every message on to one fixed next hop, and what comes back to where
//! it came from.
//!
//! A relay at the layer of datagrams, not a router: what it sends on has the
//! relay's own addresses, a fresh number of hops and whole checksums, whatever
//! it came with. The two sides may differ in IP version and VLAN.
//!
//! **The way back.** On a *narrow* path, where `remote`, `local` and `next_mac`
//! are given, the next hop's messages go to `remote`, even before that has sent
//! anything. On a *wide* path they go to the last sender seen, to its hardware
//! address and with its VLAN tags. Several senders at a time want a path each.
//!
//! * **Services:** `down`, to what it receives by and sends by: UDP, or what
//!   stands on it (a handler, a tap). If several are connected, `pathname` says
//!   which it sends by.
//! * **Attributes:** `next_hop` (endpoint, required); `from` (endpoint, the
//!   sender's address towards the next hop; required); `out` (text, module of the
//!   link that the next hop is on, if IP has several); `next_hop_mac` (text, its
//!   hardware address; without it a node asks the kernel's neighbour table); `next_hop_vlan` (VLAN id there, 0 to 4095, default
//!   untagged). They become `remote`, `local`, `link`, `next_mac` and `vlan` for
//!   the modules behind it, in place of those of the side it receives on.
//! * **Verdicts:** `DroppedNoNextHop` for an answer before there was a sender;
//!   `DroppedNoHeadroom`. A message that leaves the path's other end is
//!   `Forwarded`.
//! * **Counters:** those of the verdicts.
//! * **Tiers:** user and kernel ([`relay`](crate::relay)). It touches headers only.
//!
//! ```toml
//! [module.relay]
//! kind = "forward"
//! down = "udp.up"
//! ```
//!
//! Source: Qi, Parmer & West 2004, §4.1, the UDP forwarding agent, and §4.3 for
//! why it is worth promoting: jitter stays flat as background load grows.

use std::net::IpAddr;
use std::sync::Arc;

use ashway_abi::Count;
use ashway_path::attrs::{Attrs, names};
use ashway_path::module::{Kind, Module, Next, Refused, StageAndNext};
use ashway_path::stage::{Cx, Direction, Stage, Step, Traits};
use ashway_wire::eth::HEADER_BYTES;
use ashway_wire::ipv4::PROTOCOL_UDP;
use ashway_wire::{ipv4, ipv6, udp};

use crate::eth::{NEXT_MAC, VLAN};
use crate::message::HEADROOM_BYTES;
use crate::services;
use crate::{Flow, Message, ip};

/// The kind.
pub static KIND: Kind = Kind {
    name: "forward",
    about: "sends every message on to one next hop",
    services: &services::LEAF,
    params: &[],
};

const DOWN: usize = 0;

/// Attribute: where messages go.
pub const NEXT_HOP: &str = "next_hop";
/// Attribute: who they then come from.
pub const FROM: &str = "from";
/// Attribute: the link the next hop is on.
pub const OUT: &str = "out";
/// Attribute: the next hop's hardware address.
pub const NEXT_HOP_MAC: &str = "next_hop_mac";
/// Attribute: the VLAN the next hop is on.
pub const NEXT_HOP_VLAN: &str = "next_hop_vlan";

/// A forwarder.
#[derive(Clone, Debug)]
pub struct Forward {
    /// The module's name.
    pub name: Arc<str>,
}

impl Module<Message> for Forward {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn stage(
        &self,
        entered: Option<usize>,
        attrs: &mut Attrs,
    ) -> Result<StageAndNext<Message>, Refused> {
        if entered != Some(DOWN) {
            return Err(Refused {
                because: format!("`{}` is not entered by `down`", self.name),
                hint: "begin the path at the link that messages arrive on".to_owned(),
            });
        }
        if attrs.number(names::PROTOCOL) != Some(PROTOCOL_UDP.into()) {
            return Err(Refused {
                because: "no UDP is below, and only its messages can be sent on".to_owned(),
                hint: format!("connect `{}.down` to a module of kind `udp`", self.name),
            });
        }
        let named = |name| attrs.endpoint(name).is_some_and(|end| end.port() != 0);
        let narrow = named(names::REMOTE) && named(names::LOCAL) && attrs.text(NEXT_MAC).is_some();
        for (from, to) in [(NEXT_HOP, names::REMOTE), (FROM, names::LOCAL)] {
            let given = attrs.endpoint(from);
            let whole = |end: &std::net::SocketAddr| end.port() != 0 && !end.ip().is_unspecified();
            let Some(endpoint) = given.filter(whole) else {
                return Err(Refused {
                    because: match attrs.value(from) {
                        None => format!("`{from}` is missing"),
                        Some(value) => format!("`{from}` is {value}"),
                    },
                    hint: format!("give `{from}` an address and a port: 10.0.3.2:9000"),
                });
            };
            attrs.set(to, endpoint);
        }
        let renamed = [
            (OUT, ip::LINK_MODULE),
            (NEXT_HOP_MAC, NEXT_MAC),
            (NEXT_HOP_VLAN, VLAN),
        ];
        for (from, to) in renamed {
            match attrs.value(from).cloned() {
                Some(value) => drop(attrs.set(to, value)),
                None => drop(attrs.remove(to)),
            }
        }
        Ok(StageAndNext {
            stage: Box::new(ForwardStage {
                module: self.name.clone(),
                back: if narrow {
                    Back::Remote
                } else {
                    Back::Sender(None)
                },
            }),
            next: Next::Through(DOWN),
        })
    }
}

pub(crate) struct ForwardStage {
    module: Arc<str>,
    pub(crate) back: Back,
}

/// Where the next hop's messages go.
pub(crate) enum Back {
    /// Where the attributes say.
    Remote,
    /// To who sent last.
    Sender(Option<Sender>),
}

/// Who sent last.
pub(crate) struct Sender {
    pub(crate) flow: Flow,
    /// The headers of an answer, before it is turned around: the link's as it came,
    /// then IP's and UDP's without anything of the sender's own.
    headers: Vec<u8>,
    /// Lengths of the link's header and of IP's.
    link_bytes: usize,
    network_bytes: usize,
    /// Whether the message came without tags, options and extension headers.
    is_plain: bool,
    /// How often it has been another.
    changes: u32,
}

impl Stage<Message> for ForwardStage {
    fn name(&self) -> &str {
        &self.module
    }

    fn kind(&self) -> Option<&'static Kind> {
        Some(&KIND)
    }

    fn traits(&self) -> Traits {
        Traits {
            promotable: true,
            ..Traits::default()
        }
    }

    fn memory_bytes(&self) -> usize {
        match self.back {
            Back::Remote => 0,
            Back::Sender(_) => HEADROOM_BYTES,
        }
    }

    fn take(
        &mut self,
        mut message: Message,
        direction: Direction,
        _cx: &mut Cx<'_, Message>,
    ) -> Step<Message> {
        // Entered by `down`, so that forward is towards the next hop.
        match (&mut self.back, direction) {
            (Back::Sender(last), Direction::Forward) => {
                if message.can_be_answered() {
                    Sender::note(last, &message);
                }
                message.forget_headers();
            }
            (Back::Sender(None), Direction::Backward) => {
                return Step::End(message, Count::DroppedNoNextHop);
            }
            (Back::Sender(Some(last)), Direction::Backward) => {
                if !last.put_on(&mut message) {
                    return Step::End(message, Count::DroppedNoHeadroom);
                }
            }
            (Back::Remote, _) => message.forget_headers(),
        }
        Step::On(message)
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

impl Sender {
    /// Notes who has sent this. Allocates for the first one only.
    fn note(last: &mut Option<Self>, message: &Message) {
        let meta = &message.meta;
        let (Some(eth), Some(ip), Some(transport), Some(flow)) =
            (meta.eth, meta.ip, meta.transport, meta.flow)
        else {
            return;
        };
        let (Some(link), Some(network)) = (ip.checked_sub(eth), transport.checked_sub(ip)) else {
            return;
        };
        let (link_bytes, network_bytes) = (usize::from(link), usize::from(network));
        let Some(link) = message.header(eth).get(..link_bytes) else {
            return;
        };
        let is_ipv4 = flow.source.is_ipv4();
        let plain_bytes = if is_ipv4 {
            ipv4::HEADER_BYTES
        } else {
            ipv6::HEADER_BYTES
        };
        if link_bytes + plain_bytes + udp::HEADER_BYTES > HEADROOM_BYTES {
            // It might not fit in front of another message.
            return;
        }
        let is_plain = link_bytes == HEADER_BYTES && network_bytes == plain_bytes;
        let last = last.get_or_insert_with(|| Self {
            flow,
            headers: Vec::with_capacity(HEADROOM_BYTES),
            link_bytes: 0,
            network_bytes: plain_bytes,
            is_plain,
            changes: 0,
        });
        let same = last.flow == flow
            && last.is_plain == is_plain
            && last.headers.get(..last.link_bytes) == Some(link);
        if same {
            return;
        }
        last.changes = last.changes.wrapping_add(1);
        last.flow = flow;
        last.headers.clear();
        last.headers.extend_from_slice(link);
        last.headers
            .resize(link_bytes + plain_bytes + udp::HEADER_BYTES, 0);
        let network = &mut last.headers[link_bytes..];
        match (flow.source.ip(), flow.destination.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                if let Some(mut ip) = ipv4::Packet::new_checked(network) {
                    ip.clear();
                    ip.set_protocol(PROTOCOL_UDP);
                    ip.set_source(source.octets());
                    ip.set_destination(destination.octets());
                }
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                if let Some(mut ip) = ipv6::Packet::new_checked(network) {
                    ip.clear();
                    ip.set_next_header(PROTOCOL_UDP);
                    ip.set_source(source.octets());
                    ip.set_destination(destination.octets());
                }
            }
            // IP stages only make flows of one version.
            _ => {}
        }
        (last.link_bytes, last.network_bytes) = (link_bytes, plain_bytes);
        last.is_plain = is_plain;
    }

    /// How often there has been another sender.
    pub(crate) const fn changes(&self) -> u32 {
        self.changes
    }

    /// The two hardware addresses, of the sender and of the interface it sent to, if
    /// its headers are plain.
    pub(crate) fn stations(&self) -> Option<([u8; 6], [u8; 6])> {
        let (destination, rest) = self.headers.split_first_chunk::<6>()?;
        let source = rest.first_chunk::<6>()?;
        self.is_plain.then_some((*source, *destination))
    }

    /// Makes a message one that came from this sender: what the layers below do
    /// with an answer brings it there. False if there is no room in front.
    fn put_on(&self, message: &mut Message) -> bool {
        let len = self.headers.len();
        let Some(bytes) = message.push(len) else {
            return false;
        };
        bytes[..len].copy_from_slice(&self.headers);
        message.meta.eth = message.pop(self.link_bytes);
        message.meta.ip = message.pop(self.network_bytes);
        message.meta.transport = message.pop(len - self.link_bytes - self.network_bytes);
        message.meta.flow = Some(self.flow);
        true
    }
}
