//! Hosts, frames and graphs for the tests of functions. Frames are made and read
//! by `etherparse`, which knows nothing of us.

#![allow(dead_code, reason = "each test uses its part")]

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use ashway_abi::Count;
use ashway_modules::eth::Eth;
use ashway_modules::handler::{Act, Activate, Handler, Instance};
use ashway_modules::ip::Ip;
use ashway_modules::udp::Udp;
use ashway_modules::{Message, rules};
use ashway_path::attrs::{Attrs, Value};
use ashway_path::graph::Graph;
use ashway_path::module::{Module, Refused};
use ashway_path::path::{Exit, Limits, Path};
use ashway_path::sim::Single;
use ashway_path::stage::Direction;
use ashway_path::time::Time;
use etherparse::{NetHeaders, PacketBuilder, PacketHeaders, TransportHeader, VlanId};

/// An end of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) mac: [u8; 6],
    pub(crate) address: SocketAddr,
}

pub(crate) fn end(mac: u8, address: &str) -> End {
    End {
        mac: [2, 0, 0, 0, 0, mac],
        address: address.parse().unwrap(),
    }
}

pub(crate) fn mac(of: End) -> String {
    format!("02:00:00:00:00:{:02x}", of.mac[5])
}

/// A UDP datagram from one end to another.
pub(crate) fn udp(from: End, to: End, vlan: Option<u16>, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    let ports = (from.address.port(), to.address.port());
    let link = PacketBuilder::ethernet2(from.mac, to.mac);
    macro_rules! over {
        ($link:expr) => {
            match (from.address.ip(), to.address.ip()) {
                (IpAddr::V4(source), IpAddr::V4(destination)) => {
                    $link.ipv4(source.octets(), destination.octets(), 17)
                }
                (IpAddr::V6(source), IpAddr::V6(destination)) => {
                    $link.ipv6(source.octets(), destination.octets(), 17)
                }
                _ => panic!("two versions"),
            }
            .udp(ports.0, ports.1)
            .write(&mut frame, payload)
            .unwrap()
        };
    }
    match vlan {
        None => over!(link),
        Some(id) => over!(link.single_vlan(VlanId::try_new(id).unwrap())),
    }
    frame
}

/// What a frame says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Read {
    pub(crate) from: End,
    pub(crate) to: End,
    pub(crate) vlan: Option<u16>,
    pub(crate) hops: u8,
    pub(crate) payload: Vec<u8>,
}

/// Reads a UDP datagram; its lengths and checksums must be right.
pub(crate) fn read(frame: &[u8]) -> Read {
    let headers = PacketHeaders::from_ethernet_slice(frame).unwrap();
    let vlan = headers.vlan_ids().first().map(|id| id.value());
    let link = headers.link.unwrap().ethernet2().unwrap();
    let Some(TransportHeader::Udp(udp)) = headers.transport else {
        panic!("no UDP: {:?}", headers.transport);
    };
    let payload = headers.payload.slice();
    assert_eq!(usize::from(udp.length), 8 + payload.len());
    let (source, destination, hops): (IpAddr, IpAddr, u8) = match headers.net {
        Some(NetHeaders::Ipv4(ip, _)) => {
            assert_eq!(ip.header_checksum, ip.calc_header_checksum());
            assert_eq!(udp.checksum, udp.calc_checksum_ipv4(&ip, payload).unwrap());
            assert_ne!(udp.checksum, 0);
            (ip.source.into(), ip.destination.into(), ip.time_to_live)
        }
        Some(NetHeaders::Ipv6(ip, _)) => {
            assert_eq!(udp.checksum, udp.calc_checksum_ipv6(&ip, payload).unwrap());
            (ip.source.into(), ip.destination.into(), ip.hop_limit)
        }
        other => panic!("no IP: {other:?}"),
    };
    Read {
        from: End {
            mac: link.source,
            address: (source, udp.source_port).into(),
        },
        to: End {
            mac: link.destination,
            address: (destination, udp.destination_port).into(),
        },
        vlan,
        hops,
        payload: payload.to_vec(),
    }
}

type Boxed = Box<dyn Module<Message>>;

/// An interface that is this host's end of a wire.
pub(crate) fn eth(name: &str, number: u32, host: End) -> Boxed {
    Box::new(Eth {
        name: name.into(),
        iface: name.into(),
        number,
        mac: host.mac.into(),
        mtu: 1500.into(),
        xdp: true,
        down: Arc::default(),
    })
}

pub(crate) fn ip() -> Boxed {
    Box::new(Ip { name: "ip".into() })
}

pub(crate) fn udp_module() -> Boxed {
    Box::new(Udp { name: "udp".into() })
}

pub(crate) fn graph(modules: Vec<(&str, Boxed)>, edges: &[(&str, &str)]) -> Graph<Message> {
    let mut graph = Graph::connect(modules, edges).unwrap_or_else(|found| panic!("{found:?}"));
    graph.init().unwrap();
    graph
}

pub(crate) fn attrs(pairs: &[(&'static str, &str)]) -> Attrs {
    let mut attrs = Attrs::new();
    for (name, value) in pairs {
        attrs.set(*name, Value::of_text(value));
    }
    attrs
}

/// The path, with or without the rules that a node applies.
pub(crate) fn create(
    graph: &Graph<Message>,
    module: &str,
    attrs: Attrs,
    ruled: bool,
) -> Result<Single<Message>, String> {
    let rules = if ruled { &rules::RULES[..] } else { &[] };
    let created = graph.create("path", module, attrs, Limits::default(), rules);
    created
        .map(|created| Single::new(created.path))
        .map_err(|failed| format!("{failed}; {}", failed.hint))
}

/// What comes out of a path for one frame.
pub(crate) fn send(
    path: &mut Single<Message>,
    direction: Direction,
    frame: &[u8],
    now: Time,
) -> Vec<Exit<Message>> {
    path.pass(direction, Message::of_frame(frame), now)
}

/// The one frame that comes out of a path for one frame.
pub(crate) fn through(path: &mut Single<Message>, direction: Direction, frame: &[u8]) -> Read {
    let exits = send(path, direction, frame, Time(0));
    match exits.as_slice() {
        [Exit::Left { message, .. }] => read(message.bytes()),
        other => panic!("{other:?}"),
    }
}

/// The one fate within a path of one frame.
pub(crate) fn fate(path: &mut Single<Message>, direction: Direction, frame: &[u8]) -> Count {
    match send(path, direction, frame, Time(0)).as_slice() {
        [Exit::Ended { fate, .. }] => *fate,
        other => panic!("{other:?}"),
    }
}

/// Both ledgers close.
pub(crate) fn books_close(path: &Path<Message>) {
    let account = path.account();
    assert_eq!(account.open(), path.waiting());
    assert_eq!(account.originated, account.left + account.ended);
    assert_eq!(account.faults, 0);
}

type Body = dyn Fn(&mut [u8]) -> Act + Send + Sync;

/// A handler made of a closure; it counts how often it ran.
#[derive(Clone)]
pub(crate) struct Fake {
    pub(crate) runs: Arc<Mutex<u64>>,
    body: Arc<Body>,
}

impl Fake {
    pub(crate) fn new(body: impl Fn(&mut [u8]) -> Act + Send + Sync + 'static) -> Self {
        Self {
            runs: Arc::default(),
            body: Arc::new(body),
        }
    }

    pub(crate) fn module(&self, name: &str) -> Boxed {
        Box::new(Handler {
            name: name.into(),
            instance: Arc::new(self.clone()),
        })
    }

    pub(crate) fn ran(&self) -> u64 {
        *self.runs.lock().unwrap()
    }
}

impl Instance for Fake {
    fn bind(&self, function: &str, _: &Attrs) -> Result<Box<dyn Activate>, Refused> {
        if function == "on_rx" {
            Ok(Box::new(self.clone()))
        } else {
            Err(Refused {
                because: format!("there is no function `{function}`"),
                hint: "available: `on_rx`".to_owned(),
            })
        }
    }
}

impl Activate for Fake {
    fn activate(&mut self, message: &mut Message) -> Act {
        *self.runs.lock().unwrap() += 1;
        (self.body)(message.bytes_mut())
    }
}
