//! Ethernet II, with VLAN tags.
//!
//! Takes frames that are for its interface, and writes the frame's header on
//! the way out. What is for another station is the host's.
//!
//! * **Services:** `up`, to what lives on a link. A leaf: below is the driver.
//! * **Attributes:** `protocol` (`EtherType` of what is above; read and removed
//!   on the way down); `vlan` (id of the outer tag, 0 to 4095; without it,
//!   untagged frames and tags pass alike and an answer keeps what it came
//!   with); `next_mac` (text, where originated frames go: `02:00:00:00:00:01`);
//!   sets `iface`, and lowers `mtu` to the interface's.
//! * **Verdicts:** `Passed` for frames that are not for us; `DroppedBadLength`;
//!   `DroppedNoHeadroom`; `DroppedNoNextHop` for an originated frame without
//!   `next_mac`; on the way out `DroppedTooLong` for a packet above the
//!   interface's MTU ([`fragment`](crate::fragment) above cuts such packets), and
//!   `DroppedIfaceDown` while the interface is down or gone.
//! * **Tiers:** user; the kernel tier's entry program does the same inbound, and
//!   a reply's header outbound.
//!
//! ```toml
//! [module.wire]
//! kind = "eth"
//! iface = "veth0"
//! ```
//!
//! Source: IEEE 802.3 clause 3, IEEE 802.1Q clause 9.

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ashway_abi::Count;
use ashway_path::attrs::{Attrs, names};
use ashway_path::demand::{self, Demand};
use ashway_path::module::{Kind, Module, Next, Param, Refused, StageAndNext};
use ashway_path::path::Path;
use ashway_path::service::Service;
use ashway_path::stage::{Cx, Direction, Stage, Step, Traits};
use ashway_wire::eth::{Address, HEADER_BYTES, Packet, TAG_BYTES, TYPE_VLAN};

use crate::mac::Mac;
use crate::mtu::Mtu;
use crate::relay::Own;
use crate::services::{LINK, NET};
use crate::way::{Way, way};
use crate::{Message, datagram, forward, words};

/// The kind.
pub static KIND: Kind = Kind {
    name: "eth",
    about: "Ethernet on an interface, with VLAN tags",
    services: &[Service {
        name: "up",
        provides: &LINK,
        requires: &NET,
        after: false,
    }],
    params: &[Param {
        name: "iface",
        about: "the interface's name, required",
    }],
};

const UP: usize = 0;

/// Smaller numbers are lengths (IEEE 802.3 §3.2.6).
const LEAST_TYPE: u16 = 0x600;

/// Attribute: hardware address of the next hop.
pub const NEXT_MAC: &str = "next_mac";
/// Attribute: VLAN id.
pub const VLAN: &str = "vlan";

/// An interface.
#[derive(Clone, Debug)]
pub struct Eth {
    /// The module's name.
    pub name: Arc<str>,
    /// The interface's name.
    pub iface: Arc<str>,
    /// The interface's number.
    pub number: u32,
    /// Its hardware address.
    pub mac: Mac,
    /// Largest packet it carries.
    pub mtu: Mtu,
    /// Whether a kernel tier's entry program can stand on it.
    pub xdp: bool,
    /// Whether nothing can leave by it at present: it is down, or gone. Whoever
    /// sees that says it here, for all paths.
    pub down: Arc<AtomicBool>,
}

impl Module<Message> for Eth {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn stage(
        &self,
        entered: Option<usize>,
        attrs: &mut Attrs,
    ) -> Result<StageAndNext<Message>, Refused> {
        let vlan = match attrs.number(VLAN) {
            None => None,
            Some(id @ 0..=4095) => Some(id as u16),
            Some(id) => {
                return Err(Refused {
                    because: format!("`{VLAN}` is {id}, and a VLAN id is 0 to 4095"),
                    hint: "give the id of the tag (12 bits)".to_owned(),
                });
            }
        };
        let next_mac = attrs.text(NEXT_MAC).map(parse_mac).transpose()?;
        let ethertype = attrs.remove(names::PROTOCOL).and_then(|value| match value {
            ashway_path::attrs::Value::Number(number) => u16::try_from(number).ok(),
            _ => None,
        });
        attrs.set(names::IFACE, Arc::clone(&self.iface));
        let mtu = attrs.number(names::MTU).unwrap_or(u64::MAX);
        attrs.set(names::MTU, mtu.min(self.mtu.get().into()));
        Ok(StageAndNext {
            stage: Box::new(EthStage {
                module: self.clone(),
                way: way(entered, UP),
                vlan,
                ethertype,
                next_mac,
            }),
            next: match entered {
                Some(_) => Next::End,
                None => Next::Through(UP),
            },
        })
    }
}

/// What must be true of a frame for it to come up the path: the filter of the end
/// it was created from if that is a link, else of the other. `None` if no stage has
/// a part in it.
#[must_use]
pub fn filter(path: &Path<Message>) -> Option<String> {
    filter_of(path, Direction::Forward).or_else(|| filter_of(path, Direction::Backward))
}

/// The filter of the frames that come in this direction: the stages' parts in
/// pcap-filter words as such a frame meets them, because `vlan` there is about what
/// stands behind it, and up to a relay, behind which stages are about what goes out.
/// `None` if no link receives in this direction.
#[must_use]
pub fn filter_of(path: &Path<Message>, direction: Direction) -> Option<String> {
    let mut stages: Vec<_> = path.stages().collect();
    if direction == Direction::Backward {
        stages.reverse();
    }
    if !stages.first().is_some_and(|first| is_link(*first)) {
        return None;
    }
    let relay: &Kind = &forward::KIND;
    let relays = |stage: &dyn Stage<Message>| stage.kind().is_some_and(|kind| ptr::eq(kind, relay));
    let mut all = Vec::new();
    for stage in stages.into_iter().take_while(|stage| !relays(*stage)) {
        stage.demands(&mut all);
    }
    demand::in_words(&all)
}

/// Whether messages that leave a path forward, and backward, leave it by a link.
#[must_use]
pub fn links(path: &Path<Message>) -> [bool; 2] {
    let (first, last) = (path.stages().next(), path.stages().last());
    [last, first].map(|end| end.is_some_and(is_link))
}

/// Whether a stage is a link's, merged with others or not.
#[must_use]
pub fn is_link(stage: &dyn Stage<Message>) -> bool {
    stage
        .kind()
        .is_some_and(|kind| LINKS.iter().any(|link| ptr::eq(*link, kind)))
}

/// The kinds of links.
static LINKS: [&Kind; 3] = [&KIND, &datagram::KIND, &datagram::FUSED];

/// The same of its kind's name.
#[must_use]
pub fn is_link_kind(name: &str) -> bool {
    LINKS.iter().any(|kind| kind.name == name)
}

/// `02:00:00:00:00:01`.
///
/// # Errors
///
/// When it is anything else.
pub fn parse_mac(text: &str) -> Result<Address, Refused> {
    let mut mac = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut mac {
        *byte = parts
            .next()
            .filter(|part| part.len() == 2 && !part.starts_with('+'))
            .and_then(|part| u8::from_str_radix(part, 16).ok())
            .ok_or_else(|| not_a_mac(text))?;
    }
    match parts.next() {
        None => Ok(mac),
        Some(_) => Err(not_a_mac(text)),
    }
}

fn not_a_mac(text: &str) -> Refused {
    Refused {
        because: format!("`{text}` is no hardware address"),
        hint: "write six bytes in hexadecimal, as in 02:00:00:00:00:01".to_owned(),
    }
}

/// The stage.
#[derive(Clone)]
pub(crate) struct EthStage {
    module: Eth,
    pub(crate) way: Way,
    vlan: Option<u16>,
    ethertype: Option<u16>,
    next_mac: Option<Address>,
}

impl Stage<Message> for EthStage {
    fn name(&self) -> &str {
        &self.module.name
    }

    fn kind(&self) -> Option<&'static Kind> {
        Some(&KIND)
    }

    fn traits(&self) -> Traits {
        Traits {
            in_entry: self.module.xdp,
            transmits: true,
            ..Traits::default()
        }
    }

    fn demands(&self, all: &mut Vec<Demand>) {
        all.extend(self.vlan.map(|id| Demand::of(words::VLAN, u64::from(id))));
    }

    fn take(
        &mut self,
        message: Message,
        direction: Direction,
        _cx: &mut Cx<'_, Message>,
    ) -> Step<Message> {
        if self.way.is_up(direction) {
            self.up(message)
        } else {
            self.down(message)
        }
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

impl EthStage {
    /// Says where originated frames go from now on.
    pub(crate) const fn set_next_mac(&mut self, mac: Option<Address>) {
        self.next_mac = mac;
    }

    /// What it writes into what is originated.
    pub(crate) fn own(&self) -> Own {
        Own {
            iface: self.module.number,
            mac: self.module.mac.get(),
            mtu: self.module.mtu.get(),
            down: self.is_down(),
            next_mac: self.next_mac,
            vlan: self.vlan,
            hops: 0,
            source: None,
            destination: None,
        }
    }

    fn is_down(&self) -> bool {
        self.module.down.load(Ordering::Relaxed)
    }

    /// Whether a frame to this address is for us, and by which interface it came.
    pub(crate) fn accepts(&self, destination: Address) -> Option<u32> {
        self.module
            .mac
            .accepts(destination)
            .then_some(self.module.number)
    }

    fn up(&self, mut message: Message) -> Step<Message> {
        let Some(eth) = Packet::new_checked(message.bytes()) else {
            return Step::End(message, Count::DroppedBadLength);
        };
        let Some(iface) = self.accepts(eth.destination()) else {
            return Step::End(message, Count::Passed);
        };
        let header = HEADER_BYTES + TAG_BYTES * eth.tags();
        let protocol = type_at(message.bytes(), header - 2);
        message.meta.iface = iface;
        message.meta.protocol = protocol;
        message.meta.eth = message.pop(header);
        Step::On(message)
    }

    fn down(&self, mut message: Message) -> Step<Message> {
        // What the link has brought in one piece it takes back.
        let is_return = message.meta.iface == self.module.number && message.came_so_long();
        message.meta.iface = self.module.number;
        if self.is_down() {
            return Step::End(message, Count::DroppedIfaceDown);
        }
        if message.len() > self.module.mtu.get() as usize && !is_return {
            return Step::End(message, Count::DroppedTooLong);
        }
        if let Some(place) = message.meta.eth {
            // An answer: the header it came with, turned around.
            let bytes = message.back_to(place);
            let Some(mut eth) = bytes.and_then(Packet::new_checked) else {
                return Step::End(message, Count::DroppedNoHeadroom);
            };
            let (destination, source) = (eth.source(), eth.destination());
            eth.set_destination(destination);
            eth.set_source(source);
            return Step::On(message);
        }
        let Some(next_mac) = self.next_mac else {
            return Step::End(message, Count::DroppedNoNextHop);
        };
        let said = Some(message.meta.protocol).filter(|said| *said >= LEAST_TYPE);
        let ethertype = self
            .ethertype
            .or(said)
            .unwrap_or_else(|| by_version(message.bytes()));
        let tag = if self.vlan.is_some() { TAG_BYTES } else { 0 };
        let bytes = message.push(HEADER_BYTES + tag);
        let Some(bytes) = bytes.and_then(|bytes| bytes.get_mut(..HEADER_BYTES + tag)) else {
            return Step::End(message, Count::DroppedNoHeadroom);
        };
        let (addresses, types) = bytes.split_at_mut(HEADER_BYTES - 2);
        addresses[..6].copy_from_slice(&next_mac);
        addresses[6..].copy_from_slice(&self.module.mac.get());
        if let Some(id) = self.vlan {
            types[..2].copy_from_slice(&TYPE_VLAN.to_be_bytes());
            types[2..4].copy_from_slice(&id.to_be_bytes());
        }
        types[tag..].copy_from_slice(&ethertype.to_be_bytes());
        Step::On(message)
    }
}

fn type_at(frame: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([frame[at], frame[at + 1]])
}

/// The `EtherType` of an IP packet, by its version.
fn by_version(packet: &[u8]) -> u16 {
    match packet.first().map(|byte| byte >> 4) {
        Some(6) => ashway_wire::eth::TYPE_IPV6,
        _ => ashway_wire::eth::TYPE_IPV4,
    }
}
