//! Gives a message back to the host's own stack.
//!
//! With XDP that is the verdict `XDP_PASS`. Without it, [`IngressDrop`] has
//! dropped the host's copy, so the packet is sent anew by a raw socket to its own
//! destination address, which is one of the host's, and comes in over `lo`.
//!
//! What a receiver may notice: the packet arrives by `lo`, so a socket bound to
//! the interface does not get it and `IP_PKTINFO` says `lo`; it is marked with
//! [`MARK`]; the IPv4 header is rebuilt (checksum, and the identification if it
//! was 0). Sender's address, ports and payload are as they were.
//!
//! `lo` is trusted: the kernel's checks for impossible senders (RFC 1812 §5.3.7,
//! "martian" addresses) happen on the interface a packet came by and are skipped
//! here. So they are made here, before the packet is sent.
//!
//! Source: raw(7), ipv6(7); `fib_validate_source` in the kernel for what is
//! martian.
//!
//! [`IngressDrop`]: crate::IngressDrop

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};

use crate::packet::set_option;

/// Mark of passed packets (`meta mark` in nft): "ash".
pub const MARK: i32 = 0x0061_7368;

/// Why a packet could not be given to the host.
#[derive(Debug, thiserror::Error)]
pub enum PassError {
    /// The destination is not an address of this host; forwarding is not done by
    /// this rung.
    #[error("{0} is not an address of this host")]
    NotLocal(IpAddr),
    /// The host's stack would have refused the packet for its addresses.
    #[error("the host takes no packet from {0}")]
    Martian(IpAddr),
    /// Not an IPv4 or IPv6 packet.
    #[error("not an IP packet")]
    Malformed,
    /// The kernel refused.
    #[error("sending the packet to the host")]
    Os(#[from] io::Error),
}

/// The raw sockets. See the [module](self).
#[derive(Debug)]
pub struct Passer {
    v4: OwnedFd,
    /// `None` where the kernel has no IPv6.
    v6: Option<OwnedFd>,
    ifindex: u32,
}

impl Passer {
    /// Opens the sockets for packets that came by `ifindex` (which gives
    /// link-local addresses their meaning).
    ///
    /// # Errors
    ///
    /// `EPERM` without `CAP_NET_RAW` in the network namespace.
    pub fn open(ifindex: u32) -> io::Result<Self> {
        let raw = |family| -> rustix::io::Result<OwnedFd> {
            // IPPROTO_RAW implies IP_HDRINCL in both families.
            let fd = rustix::net::socket_with(
                family,
                SocketType::RAW,
                SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
                Some(rustix::net::ipproto::RAW),
            )?;
            // A convenience for the operator's own rules; passing works without.
            let _ = set_option(&fd, libc::SOL_SOCKET, libc::SO_MARK, MARK);
            Ok(fd)
        };
        let v6 = match raw(AddressFamily::INET6) {
            Err(Errno::AFNOSUPPORT) => None,
            other => Some(other?),
        };
        Ok(Self {
            v4: raw(AddressFamily::INET)?,
            v6,
            ifindex,
        })
    }

    /// Gives the host one IP packet: the frame without its Ethernet header and
    /// padding. Its UDP checksum must be whole. Five system calls at most, no
    /// allocation.
    ///
    /// # Errors
    ///
    /// [`PassError`]; the packet is lost to the host then, count it.
    pub fn pass(&self, packet: &[u8]) -> Result<(), PassError> {
        let (source, destination) = addresses(packet).ok_or(PassError::Malformed)?;
        let never = |address: IpAddr| {
            address.is_loopback()
                || address.is_unspecified()
                || address.is_multicast()
                || address == IpAddr::V4(Ipv4Addr::BROADCAST)
        };
        // A packet from outside with one of our own addresses as its sender is
        // forged.
        if never(source) || self.is_local(source) {
            return Err(PassError::Martian(source));
        }
        // Sent to an address that is not ours, it would go out again.
        if never(destination) || !self.is_local(destination) {
            return Err(PassError::NotLocal(destination));
        }
        let fd = match destination {
            IpAddr::V4(_) => &self.v4,
            IpAddr::V6(_) => self.v6.as_ref().ok_or(PassError::Malformed)?,
        };
        match rustix::net::sendto(fd, packet, SendFlags::DONTWAIT, &self.endpoint(destination)) {
            Ok(_) => Ok(()),
            // A subnet's broadcast address: bound like one of ours, sent to only
            // with SO_BROADCAST.
            Err(Errno::ACCESS) => Err(PassError::NotLocal(destination)),
            Err(errno) => Err(io::Error::from(errno).into()),
        }
    }

    /// Whether the host has this address: whether a socket can be bound to it.
    /// Asked each time, because addresses come and go; a `bind` costs less than
    /// keeping a list right. With the sysctl `ip_nonlocal_bind` every address
    /// is, and nothing is passed.
    fn is_local(&self, address: IpAddr) -> bool {
        UdpSocket::bind(self.endpoint(address)).is_ok()
    }

    /// The address with port 0 and, if link-local, the interface.
    fn endpoint(&self, address: IpAddr) -> SocketAddr {
        match address {
            IpAddr::V6(address) if address.is_unicast_link_local() => {
                SocketAddrV6::new(address, 0, 0, self.ifindex).into()
            }
            address => SocketAddr::new(address, 0),
        }
    }
}

fn addresses(packet: &[u8]) -> Option<(IpAddr, IpAddr)> {
    let v4 = |at: usize| {
        let bytes: [u8; 4] = packet.get(at..at + 4)?.try_into().ok()?;
        Some(Ipv4Addr::from(bytes).into())
    };
    let v6 = |at: usize| {
        let bytes: [u8; 16] = packet.get(at..at + 16)?.try_into().ok()?;
        Some(Ipv6Addr::from(bytes).into())
    };
    match packet.first()? >> 4 {
        4 => Some((v4(12)?, v4(16)?)),
        6 => Some((v6(8)?, v6(24)?)),
        _ => None,
    }
}
