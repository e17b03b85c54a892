//! Both versions of the Internet Protocol, as one stage.
//!
//! A path whose attributes do not say which version it speaks takes both, like
//! a dual-stack socket. [`ipv4`] and [`ipv6`] are the
//! same for one of them.
//!
//! * **Services:** `down`, to a link; `up`, to what lives on a network.
//! * **Attributes, verdicts:** those of [`ipv4`] and
//!   [`ipv6`]. If `remote` or `local` is given, its version is the
//!   path's.
//! * **Tiers:** as theirs.
//!
//! ```toml
//! [module.ip]
//! kind = "ip"
//! down = "wire.up"
//! ```

use std::net::IpAddr;
use std::sync::Arc;

use ashway_abi::Count;
use ashway_path::attrs::{Attrs, Value, names};
use ashway_path::demand::Demand;
use ashway_path::module::{Kind, Module, Next, Refused, StageAndNext};
use ashway_path::service::Service;
use ashway_path::stage::{Cx, Direction, Stage, Step, Traits};
use ashway_wire::emit::TTL;
use ashway_wire::eth::{TYPE_IPV4, TYPE_IPV6};
use ashway_wire::ipv4::PROTOCOL_UDP;
use ashway_wire::{Fragment, Headers};

use crate::services::{LINK, NET, NETWORK};
use crate::way::{Way, way};
use crate::{Message, ipv4, ipv6, words};

/// The services of all three kinds.
pub(crate) static SERVICES: [Service; 2] = [
    Service {
        name: "up",
        provides: &NETWORK,
        requires: &NET,
        after: false,
    },
    Service {
        name: "down",
        provides: &NET,
        requires: &LINK,
        after: true,
    },
];

const UP: usize = 0;
const DOWN: usize = 1;

/// Attribute: hops of originated packets.
pub const HOPS: &str = "ttl";

/// Attribute: the module of the link that the path is to go on by.
pub const LINK_MODULE: &str = "link";

/// The kind.
pub static KIND: Kind = Kind {
    name: "ip",
    about: "Internet Protocol, both versions",
    services: &SERVICES,
    params: &[],
};

/// A host's IP.
#[derive(Clone, Debug)]
pub struct Ip {
    /// The module's name.
    pub name: Arc<str>,
}

impl Module<Message> for Ip {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn stage(
        &self,
        entered: Option<usize>,
        attrs: &mut Attrs,
    ) -> Result<StageAndNext<Message>, Refused> {
        stage(&self.name, Versions::Both, entered, attrs)
    }
}

/// Which versions a stage speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Versions {
    Both,
    V4,
    V6,
}

impl Versions {
    const fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    const fn word(self) -> Option<&'static str> {
        match self {
            Self::Both => None,
            Self::V4 => Some(words::IP),
            Self::V6 => Some(words::IP6),
        }
    }
}

/// The two ends of a path, as far as its attributes name them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addresses {
    pub(crate) local: Option<IpAddr>,
    pub(crate) remote: Option<IpAddr>,
}

/// Makes the stage of any of the three kinds.
pub(crate) fn stage(
    name: &str,
    versions: Versions,
    entered: Option<usize>,
    attrs: &mut Attrs,
) -> Result<StageAndNext<Message>, Refused> {
    let addresses = Addresses {
        local: address(attrs, names::LOCAL),
        remote: address(attrs, names::REMOTE),
    };
    let mut versions = versions;
    for (name, end) in [
        (names::LOCAL, addresses.local),
        (names::REMOTE, addresses.remote),
    ] {
        let Some(end) = end else { continue };
        let wanted = Versions::of(end);
        if versions != Versions::Both && versions != wanted {
            return Err(Refused {
                because: format!("`{name}` is {end}, and this path speaks the other IP version"),
                hint: "give both ends of one version, or use a module of kind `ip`".to_owned(),
            });
        }
        versions = wanted;
    }
    let ttl = match attrs.number(HOPS) {
        None => TTL,
        Some(hops @ 1..=255) => hops as u8,
        Some(hops) => {
            return Err(Refused {
                because: format!("`{HOPS}` is {hops}, and a packet can take 1 to 255 hops"),
                hint: format!("leave it out for {TTL}"),
            });
        }
    };
    let protocol = attrs
        .number(names::PROTOCOL)
        .and_then(|number| u8::try_from(number).ok());
    match versions {
        Versions::V4 => drop(attrs.set(names::PROTOCOL, u64::from(TYPE_IPV4))),
        Versions::V6 => drop(attrs.set(names::PROTOCOL, u64::from(TYPE_IPV6))),
        // The link below reads the version off each packet.
        Versions::Both => drop(attrs.remove(names::PROTOCOL)),
    }
    let next = match (entered, attrs.text(LINK_MODULE)) {
        (Some(UP), Some(link)) => Next::To(DOWN, link.into()),
        (Some(UP), None) => Next::Through(DOWN),
        _ => Next::Through(UP),
    };
    Ok(StageAndNext {
        stage: Box::new(IpStage {
            module: name.into(),
            way: way(entered, UP),
            versions,
            addresses,
            protocol,
            // Nobody above has said which he wants.
            takes_all: entered == Some(UP) && protocol.is_none(),
            ttl,
        }),
        next,
    })
}

fn address(attrs: &Attrs, name: &str) -> Option<IpAddr> {
    match attrs.value(name) {
        Some(Value::Endpoint(endpoint)) => Some(endpoint.ip()),
        Some(Value::Address(address)) => Some(*address),
        _ => None,
    }
    .filter(|address| !address.is_unspecified())
}

/// Ends a message that something is `wrong` with. Nobody can say whose datagram it
/// is if the frame ends before the ports, or is a later fragment, which has none:
/// such a frame is the host's, as it is to the entry program
/// ([`Datagram::parse`](ashway_wire::Datagram::parse)).
pub(crate) fn end(message: Message, wrong: Count) -> Step<Message> {
    let is_nobodys = message.received().is_some_and(|frame| {
        let headers = Headers::parse(frame);
        let udp = usize::from(headers.l4);
        let has_no_ports = headers.fragment == Fragment::Later
            || udp == 0
            || udp + ashway_wire::udp::HEADER_BYTES > frame.len();
        headers.l3 == 0 || headers.protocol == PROTOCOL_UDP && has_no_ports
    });
    Step::End(message, if is_nobodys { Count::Passed } else { wrong })
}

/// The stage.
#[derive(Clone)]
pub(crate) struct IpStage {
    module: Arc<str>,
    pub(crate) way: Way,
    versions: Versions,
    addresses: Addresses,
    /// As the attributes say; on a path that was created from below, each
    /// message does.
    protocol: Option<u8>,
    /// Whether whatever IP carries is for this path. Then there are no ports, and
    /// nobody whose datagram a fragment was: the host gets it, as it would get the
    /// others.
    takes_all: bool,
    ttl: u8,
}

impl IpStage {
    /// Hops that what it sends may take.
    pub(crate) const fn ttl(&self) -> u8 {
        self.ttl
    }

    /// Whether it takes packets of this version.
    pub(crate) fn speaks(&self, v6: bool) -> bool {
        self.versions != if v6 { Versions::V4 } else { Versions::V6 }
    }
}

impl Stage<Message> for IpStage {
    fn name(&self) -> &str {
        &self.module
    }

    fn kind(&self) -> Option<&'static Kind> {
        Some(match self.versions {
            Versions::Both => &KIND,
            Versions::V4 => &ipv4::KIND,
            Versions::V6 => &ipv6::KIND,
        })
    }

    fn traits(&self) -> Traits {
        Traits {
            in_entry: true,
            checks_length: true,
            ..Traits::default()
        }
    }

    fn demands(&self, all: &mut Vec<Demand>) {
        all.extend(self.versions.word().map(Demand::plain));
        let Addresses { local, remote } = self.addresses;
        let ends = [(local, words::DST_HOST), (remote, words::SRC_HOST)];
        let ends = ends.into_iter();
        all.extend(ends.filter_map(|(end, words)| Some(Demand::of(words, end?))));
    }

    fn take(
        &mut self,
        message: Message,
        direction: Direction,
        _cx: &mut Cx<'_, Message>,
    ) -> Step<Message> {
        if self.way.is_up(direction) {
            let fragment = if self.takes_all {
                Count::Passed
            } else {
                Count::DroppedFragment
            };
            match message.meta.protocol {
                TYPE_IPV4 if self.speaks(false) => ipv4::up(message, fragment),
                TYPE_IPV6 if self.speaks(true) => ipv6::up(message, fragment),
                _ => Step::End(message, Count::Passed),
            }
        } else {
            let said = u8::try_from(message.meta.protocol).unwrap_or_default();
            let protocol = self.protocol.unwrap_or(said);
            let v6 = match message.meta.flow {
                Some(flow) if message.meta.ip.is_some() => flow.source.is_ipv6(),
                _ => self.addresses.remote.is_some_and(|remote| remote.is_ipv6()),
            };
            if v6 {
                ipv6::down(message, ipv6::own(&self.addresses), protocol, self.ttl)
            } else {
                ipv4::down(message, ipv4::own(&self.addresses), protocol, self.ttl)
            }
        }
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}
