//! A handler's channels: the peers that `send` and `msg_clone` lead to.
//!
//! New messages leave by ordinary UDP sockets of the host. Its stack knows the route,
//! the neighbour's hardware address and the MTU of each peer, today and after a
//! change, where a path knows those of its own sender only. It costs a system call a
//! message (`docs/abi/send.md`). Nobody reads these sockets: what a peer answers
//! to them is dropped before it takes memory. An answer that the handler should see
//! comes by its path, before the host's stack has a look.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;

use ashway_abi::Count;
use ashway_ring::receive_nothing;
use rustix::net::sockopt::set_ipv6_v6only;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};

/// The peers, and the sockets to reach them.
#[derive(Debug)]
pub(crate) struct Channels {
    peers: Vec<SocketAddr>,
    v4: Option<UdpSocket>,
    v6: Option<UdpSocket>,
}

impl Channels {
    /// Opens the sockets that these peers need, from this local port, or any (0).
    ///
    /// # Errors
    ///
    /// What the kernel said: mostly that the port is another's.
    pub(crate) fn open(peers: &[SocketAddr], port: u16) -> io::Result<Self> {
        let any = [
            SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)),
            SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)),
        ];
        let [v4, v6] = any.map(|any| {
            let wanted = peers.iter().any(|peer| peer.is_ipv4() == any.is_ipv4());
            wanted.then(|| bound(any)).transpose()
        });
        Ok(Self {
            v4: v4?,
            v6: v6?,
            peers: peers.to_vec(),
        })
    }

    /// Sends a message, and says what became of it. One system call; does not wait.
    pub(crate) fn send(&self, channel: u32, message: &[u8]) -> Count {
        let Some(peer) = self.peers.get(channel as usize) else {
            return Count::OutDroppedNoRoute;
        };
        let socket = match peer {
            SocketAddr::V4(_) => &self.v4,
            SocketAddr::V6(_) => &self.v6,
        };
        let sent = socket.as_ref().map(|socket| socket.send_to(message, peer));
        match sent {
            Some(Ok(_)) => Count::OutHandedOver,
            Some(Err(error)) if is_full(&error) => Count::OutDroppedTxFull,
            Some(Err(_)) | None => Count::OutDroppedNoRoute,
        }
    }
}

/// A socket of one family: both may have the same port.
fn bound(any: SocketAddr) -> io::Result<UdpSocket> {
    let (family, v6) = match any {
        SocketAddr::V4(_) => (AddressFamily::INET, false),
        SocketAddr::V6(_) => (AddressFamily::INET6, true),
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::DGRAM, flags, None)?;
    if v6 {
        set_ipv6_v6only(&socket, true)?;
    }
    receive_nothing(socket.as_fd())?;
    bind(&socket, &any)?;
    Ok(socket.into())
}

fn is_full(error: &io::Error) -> bool {
    error.kind() == ErrorKind::WouldBlock || error.raw_os_error() == Some(libc::ENOBUFS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn messages_leave_to_both_families_and_each_has_an_end() {
        let near = UdpSocket::bind("127.0.0.1:0").unwrap();
        near.set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        let peers = [
            near.local_addr().unwrap(),
            // Nobody has this address (RFC 6666), and nobody may reach it by `::`.
            "[100::1]:9".parse().unwrap(),
        ];
        let Ok(channels) = Channels::open(&peers, 0) else {
            ashway_rig::skip::skip("needs IPv6");
            return;
        };
        assert_eq!(channels.send(0, b"hello"), Count::OutHandedOver);
        let mut bytes = [0; 16];
        assert_eq!(near.recv(&mut bytes).unwrap(), 5);
        assert_eq!(channels.send(2, b"hello"), Count::OutDroppedNoRoute);
        let long = vec![0; 70_000];
        assert_eq!(channels.send(0, &long), Count::OutDroppedNoRoute);
    }

    #[test]
    fn what_peers_send_back_takes_no_memory() {
        let near = UdpSocket::bind("127.0.0.1:0").unwrap();
        let channels = Channels::open(&[near.local_addr().unwrap()], 0).unwrap();
        let socket = channels.v4.as_ref().unwrap();
        let at = ("127.0.0.1", socket.local_addr().unwrap().port());
        for message in [&b""[..], b"answer", &[7; 9_000]] {
            near.send_to(message, at).unwrap();
        }
        // Comes by the same queue, behind them.
        near.send_to(b"last", near.local_addr().unwrap()).unwrap();
        near.recv(&mut [0; 16]).unwrap();
        let error = socket.recv(&mut [0; 1]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        // It is a socket that sends, all the same.
        assert_eq!(channels.send(0, b"hello"), Count::OutHandedOver);
    }

    #[test]
    fn a_port_that_another_has_is_an_error() {
        let taken = UdpSocket::bind("0.0.0.0:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let peers = ["127.0.0.1:9".parse().unwrap()];
        let error = Channels::open(&peers, port).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
    }
}
