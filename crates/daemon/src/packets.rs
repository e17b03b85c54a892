//! Messages from packet sockets: the rung without XDP.
//!
//! The kernel still sees every frame; a drop rule at the interface's ingress
//! keeps matched messages from the host's stack, so that `consume` is true.

use std::os::fd::{AsFd, OwnedFd};

use ashway_abi::Count;
use ashway_codegen::filter::{Family, Filter};
use ashway_modules::Message;
use ashway_ring::{PacketSocket, Passer};
use ashway_wire::Datagram;
use rustix::net::{SendFlags, send};

use crate::counters::UserRows;
use crate::rings::spare_message;
use crate::runner::{Entrance, Port, RunInstance};

/// The way in and out of an interface without XDP.
#[derive(Debug)]
pub(crate) struct PacketPort {
    /// Hears.
    pub(crate) socket: PacketSocket,
    /// The same socket again, to send on while the other lends out a frame.
    pub(crate) out: OwnedFd,
    /// Its number.
    pub(crate) iface: usize,
    /// The interface's address: frames for any other are not ours.
    pub(crate) mac: [u8; 6],
    /// Paths of the interface, most specific first.
    pub(crate) paths: Vec<Matched>,
    /// The interface's row.
    pub(crate) unmatched_row: u32,
    /// Gives messages to the host's stack.
    pub(crate) passer: Option<Passer>,
    /// Whether a rule keeps matched messages from the host's stack. Without it
    /// the host sees them too.
    pub(crate) dropped_from_host: bool,
}

/// A path as this rung's demux sees it.
#[derive(Clone, Debug)]
pub(crate) struct Matched {
    /// What it matches.
    pub(crate) filter: Filter,
    /// Its instance.
    pub(crate) instance: usize,
    /// Its number within the instance.
    pub(crate) local: usize,
    /// Its row.
    pub(crate) row: u32,
}

/// The outgoing half.
struct Out<'a> {
    socket: &'a OwnedFd,
    passer: Option<&'a Passer>,
    dropped_from_host: bool,
}

impl Port for Out<'_> {
    fn send(&mut self, frame: &[u8]) -> bool {
        send(self.socket.as_fd(), frame, SendFlags::DONTWAIT).is_ok()
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
            .get(ashway_wire::eth::HEADER_BYTES..)
            .is_some_and(|packet| passer.pass(packet).is_ok())
    }
}

/// The filter in the words of the drop rule.
#[must_use]
pub(crate) fn drop_match(filter: &Filter) -> ashway_ring::Match {
    ashway_ring::Match {
        family: filter.family.map(|family| match family {
            Family::Ipv4 => ashway_ring::Family::Ipv4,
            Family::Ipv6 => ashway_ring::Family::Ipv6,
        }),
        source: filter.src_addr.map(Into::into),
        destination: filter.dst_addr.map(Into::into),
        source_port: filter.src_port,
        destination_port: filter.dst_port,
    }
}

/// Takes one batch from the socket. Says whether there was anything.
///
/// # Errors
///
/// What the socket said.
pub(crate) fn drain(
    port: &mut PacketPort,
    instances: &mut [RunInstance],
    rows: &UserRows,
    spare: &mut Option<Message>,
) -> std::io::Result<bool> {
    let PacketPort {
        socket,
        out,
        iface,
        mac,
        paths,
        unmatched_row,
        passer,
        dropped_from_host,
    } = port;
    let mut out = Out {
        socket: out,
        passer: passer.as_ref(),
        dropped_from_host: *dropped_from_host,
    };
    let taken = socket.recv_batch(|frame| {
        let datagram = Datagram::parse(frame).ok();
        let matched = datagram
            .filter(|_| frame.get(..6) == Some(&mac[..]))
            .and_then(|datagram| {
                paths
                    .iter()
                    .find(|path| path.filter.matches(datagram.source, datagram.destination))
            })
            .and_then(|path| Some((path.row, instances[path.instance].path(path.local, *iface)?)));
        let Some((row, path)) = matched else {
            rows.add(*unmatched_row, Count::Received);
            rows.add(*unmatched_row, Count::Passed);
            return;
        };
        rows.add(row, Count::Received);
        let mut message = spare.take().unwrap_or_else(spare_message);
        message.fill(frame.len(), |into| into.copy_from_slice(frame));
        message.meta.iface = *iface as u32;
        *spare = path.run(message, Entrance::Frame, &mut out, rows);
    })?;
    Ok(taken > 0)
}
