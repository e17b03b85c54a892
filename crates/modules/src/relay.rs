//! What the kernel tier's forward program can do: the whole of a relay between two
//! links.
//!
//! A path whose stages are a link with IP and UDP, [`forward`](crate::forward), and
//! a link with IP and UDP again needs of each message its length and its payload
//! only; everything else is the path's own and known before. That is a
//! [`Hop`](ashway_abi::Hop) for each direction.
//!
//! On a wide path the way back, and who may use the way there without anything to be
//! noted, are those of the last sender. So [`hops`] are asked for again whenever
//! [`changes`] says that it is another.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::ptr;

use ashway_abi::{Hop, hop};
use ashway_path::module::Kind;
use ashway_path::path::Path;
use ashway_path::stage::Stage;

use crate::datagram::{self, DatagramStage};
use crate::forward::{self, Back, ForwardStage, Sender};
use crate::{Message, eth};

/// Where the messages of one direction go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelayHop {
    /// Number of the interface out.
    pub iface: u32,
    /// The rest; its `ifindex`, and by which way it is reached, are the shell's to
    /// fill in.
    pub hop: Hop,
}

/// Why a path stays in the user tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotPromotable {
    /// A sentence. That of most paths is a constant.
    pub because: Cow<'static, str>,
    /// The next step.
    pub hint: &'static str,
}

/// Whether the kernel tier can do all of the path.
///
/// # Errors
///
/// Which stage it cannot do.
pub fn fits(path: &Path<Message>) -> Result<(), NotPromotable> {
    if is_whole(path) {
        return Ok(());
    }
    if !path.stages().any(|stage| is(stage, &forward::KIND)) {
        return Err(NotPromotable {
            because: "it is no relay: no stage is of kind `forward`".into(),
            hint: "the user tier runs it as it is",
        });
    }
    let other = path.stages().find(|stage| {
        let parts = [&datagram::KIND, &forward::KIND, &eth::KIND];
        !parts.into_iter().any(|part| is(*stage, part))
    });
    Err(NotPromotable {
        because: match other {
            Some(stage) => format!("stage `{}` runs in the user tier only", stage.name()).into(),
            None => "it does not lead from one link through UDP to another".into(),
        },
        hint: "`ashway path show` lists the stages; leave out what the relay can do without",
    })
}

/// Whether the kernel tier can do all of the path, without a reason.
pub(crate) fn is_whole(path: &Path<Message>) -> bool {
    let known = [&datagram::KIND, &forward::KIND, &datagram::KIND];
    path.len() == known.len()
        && path
            .stages()
            .zip(known)
            .all(|(stage, kind)| is(stage, kind))
}

fn is(stage: &dyn Stage<Message>, wanted: &'static Kind) -> bool {
    stage.kind().is_some_and(|kind| ptr::eq(kind, wanted))
}

/// How often a wide path has had another sender; 0 for a narrow one, and before the
/// first.
#[must_use]
pub fn changes(path: &mut Path<Message>) -> u32 {
    match path.stage_as::<ForwardStage>(1).map(|stage| &stage.back) {
        Some(Back::Sender(Some(sender))) => sender.changes(),
        _ => 0,
    }
}

/// Where the messages of a path that [`fits`] go at present, forward and backward;
/// `None` where only the user tier knows what to do.
#[must_use]
pub fn hops(path: &mut Path<Message>) -> [Option<RelayHop>; 2] {
    let near = path.stage_as::<DatagramStage>(0).map(|stage| stage.own());
    let far = path.stage_as::<DatagramStage>(2).map(|stage| stage.own());
    let back = path.stage_as::<ForwardStage>(1).map(|stage| &stage.back);
    let (Some(near), Some(far), Some(back)) = (near, far, back) else {
        return [None; 2];
    };
    match back {
        Back::Remote => [far.relay_hop(), near.relay_hop()],
        Back::Sender(None) => [None; 2],
        Back::Sender(Some(sender)) => match from(sender) {
            None => [None; 2],
            Some(from) => {
                let there = far.relay_hop().map(|relay_hop| RelayHop {
                    hop: Hop {
                        from: Some(from),
                        ..relay_hop.hop
                    },
                    ..relay_hop
                });
                let answer = Own {
                    source: Some(sender.flow.destination),
                    destination: Some(sender.flow.source),
                    next_mac: Some(from.mac),
                    vlan: None,
                    ..near
                };
                [there, answer.relay_hop()]
            }
        },
    }
}

fn from(sender: &Sender) -> Option<hop::Sender> {
    let (mac, _) = sender.stations()?;
    let flow = sender.flow;
    let mut ends = [0; 36];
    let mut at = 0;
    let mut put = |bytes: &[u8]| {
        ends[at..at + bytes.len()].copy_from_slice(bytes);
        at += bytes.len();
    };
    for end in [flow.source, flow.destination] {
        match end.ip() {
            IpAddr::V4(address) => put(&address.octets()),
            IpAddr::V6(address) => put(&address.octets()),
        }
    }
    for end in [flow.source, flow.destination] {
        put(&end.port().to_be_bytes());
    }
    Some(hop::Sender {
        mac,
        ipv6: flow.source.is_ipv6(),
        ends,
    })
}

/// What a link, IP and UDP write into what they originate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Own {
    pub(crate) iface: u32,
    pub(crate) mac: [u8; 6],
    pub(crate) mtu: u32,
    pub(crate) down: bool,
    pub(crate) next_mac: Option<[u8; 6]>,
    pub(crate) vlan: Option<u16>,
    pub(crate) hops: u8,
    pub(crate) source: Option<SocketAddr>,
    pub(crate) destination: Option<SocketAddr>,
}

impl Own {
    /// `None` if something is not known: the user tier says what.
    fn relay_hop(&self) -> Option<RelayHop> {
        let (source, destination) = (self.source?, self.destination?);
        let whole = |end: SocketAddr| end.port() != 0 && !end.ip().is_unspecified();
        if self.down
            || !whole(source)
            || !whole(destination)
            || source.is_ipv4() != destination.is_ipv4()
        {
            return None;
        }
        let mut flags = 0;
        if source.is_ipv6() {
            flags |= hop::flag::IPV6;
        }
        if self.vlan.is_some() {
            flags |= hop::flag::TAGGED;
        }
        Some(RelayHop {
            iface: self.iface,
            hop: Hop {
                destination_mac: self.next_mac?,
                source_mac: self.mac,
                ifindex: 0,
                source: left(source.ip()),
                destination: left(destination.ip()),
                source_port: source.port().to_be_bytes(),
                destination_port: destination.port().to_be_bytes(),
                mtu: self.mtu,
                vlan: self.vlan.unwrap_or(0).to_be_bytes(),
                flags,
                hops: self.hops,
                from: None,
                terms: None,
            },
        })
    }
}

/// An address in the first of 16 bytes.
fn left(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&address.octets());
            bytes
        }
        IpAddr::V6(address) => address.octets(),
    }
}
