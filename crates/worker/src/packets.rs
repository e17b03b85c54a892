//! Messages from packet sockets: the rung without XDP.
//!
//! The kernel still sees every frame; a drop rule at the interface's ingress
//! keeps matched messages from the host's stack, so that `consume` is true.

use std::mem;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};

use ashway_abi::Count;
use ashway_abi::memory::HEADROOM_BYTES;
use ashway_demux::{Conjunction, Field, Filter};
use ashway_memory::messages::Buffer;
use ashway_modules::Message;
use ashway_modules::mac::Mac;
use ashway_path::time::Time;
use ashway_ring::{BATCH, PacketSocket, Passer};
use ashway_wire::{Datagram, Fragment, eth, ipv4};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};

use crate::counters::UserRows;
use crate::observe::{FramePrefix, What, trace};
use crate::paths::Paths;
use crate::port::{Port, is_down};
use crate::rows::CounterRow;

/// The way in and out of an interface without XDP.
#[derive(Debug)]
pub struct PacketPort {
    /// Hears.
    pub socket: PacketSocket,
    /// The same socket again, to send on while the other lends out a frame.
    pub out: OwnedFd,
    /// Where the next frames are received: buffers of messages.
    pub rooms: Rooms,
    /// Its number.
    pub iface: usize,
    /// The interface's address: frames for any other are not ours.
    pub mac: Mac,
    /// The interface's row.
    pub unmatched_row: CounterRow,
    /// Gives messages to the host's stack.
    pub passer: Option<Passer>,
    /// Whether a rule keeps matched messages from the host's stack. Without it
    /// the host sees them too.
    pub dropped_from_host: bool,
}

impl PacketPort {
    /// The way out of it.
    pub(crate) fn way_out(&self) -> Out<'_> {
        Out {
            socket: &self.out,
            passer: self.passer.as_ref(),
            dropped_from_host: self.dropped_from_host,
        }
    }
}

/// Buffers of messages, for the frames of one batch.
#[derive(Debug)]
pub struct Rooms {
    all: Vec<Buffer>,
    /// How long they are.
    long: usize,
}

impl Rooms {
    /// For the frames of an interface with this MTU. What comes longer (a sender's batch in
    /// one frame, several that Linux has joined, or the MTU was raised since) and is a path's
    /// is copied once more.
    #[must_use]
    pub fn new(mtu: usize) -> Self {
        let long = HEADROOM_BYTES + eth::HEADER_BYTES + mtu;
        let all = (0..BATCH).map(|_| Buffer::new(long)).collect();
        Self { all, long }
    }
}

/// A buffer for a frame of `len` bytes, of which a room had no room for the rest.
fn joined(room: &Buffer, len: usize, rest: &[u8]) -> Buffer {
    let mut whole = Buffer::new(HEADROOM_BYTES + len);
    whole[..room.len()].copy_from_slice(room);
    whole[room.len()..][..rest.len()].copy_from_slice(rest);
    whole
}

/// The outgoing half.
#[derive(Debug)]
pub(crate) struct Out<'a> {
    socket: &'a OwnedFd,
    passer: Option<&'a Passer>,
    dropped_from_host: bool,
}

impl Port for Out<'_> {
    fn send(&mut self, frame: &[u8]) -> Count {
        match send(self.socket.as_fd(), frame, SendFlags::DONTWAIT) {
            Ok(_) => Count::OutHandedOver,
            Err(Errno::MSGSIZE) => Count::OutDroppedTooLong,
            Err(errno) if is_down(&errno.into()) => Count::OutDroppedIfaceDown,
            Err(_) => Count::OutDroppedTxFull,
        }
    }

    fn pass(&mut self, frame: &[u8]) -> bool {
        if !self.dropped_from_host {
            // The host has it already.
            return true;
        }
        let Some(passer) = self.passer else {
            return false;
        };
        frame
            .get(eth::HEADER_BYTES..)
            .is_some_and(|packet| passer.pass(packet).is_ok())
    }
}

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

/// Takes one batch from the socket. Says whether there was anything.
///
/// # Errors
///
/// What the socket said.
pub(crate) fn drain(
    port: &mut PacketPort,
    paths: &mut Paths,
    rows: &UserRows,
    now: impl Fn() -> Time,
) -> std::io::Result<bool> {
    let PacketPort {
        socket,
        rooms,
        iface,
        mac,
        unmatched_row,
        ..
    } = port;
    let mac = mac.get();
    let long = rooms.long;
    let taken = socket.recv_batch(&mut rooms.all, HEADROOM_BYTES, |room, len, rest| {
        // Whose it is, its headers say.
        let frame = &room[HEADROOM_BYTES..][..len - rest.len()];
        let observed = if trace::on() { trace::number() } else { 0 };
        trace::note(observed, || What::Received {
            iface: *iface as u32,
            frame: FramePrefix {
                len,
                ..FramePrefix::of(frame)
            },
        });
        let ours = frame.get(..6) == Some(&mac[..]);
        let target = ours.then(|| paths.find(*iface, frame, rows)).flatten();
        let long_frame = (target.is_some() && !rest.is_empty()).then(|| joined(room, len, rest));
        let frame = match &long_frame {
            Some(whole) => &whole[HEADROOM_BYTES..][..len],
            None => frame,
        };
        // As in the kernel tier: what is no UDP datagram a handler of the short form does
        // not get, even if its filter matches.
        let target = target.filter(|to| !paths.is_fed(*to) || Datagram::parse(frame).is_ok());
        if let Some(target) = target {
            let put = |mut message: Message| {
                // Copied by Linux, out of the driver's frame.
                if let Some(whole) = long_frame {
                    message.put(whole, len);
                    message.copied();
                } else {
                    message.exchange(len, |own| {
                        if own.len() < long || own.is_of_pool() {
                            *own = Buffer::new(long);
                        }
                        mem::swap(own, room);
                        Some(())
                    });
                }
                message.meta.iface = *iface as u32;
                message.meta.observed = observed;
                message
            };
            return paths.receive_for(target, observed != 0, now(), rows, put);
        }
        rows.add(*unmatched_row, Count::Received);
        rows.add(*unmatched_row, Count::Passed);
        trace::note(observed, || What::Path(None));
        trace::note(observed, || What::Fate(Count::Passed));
    })?;
    Ok(taken > 0)
}
