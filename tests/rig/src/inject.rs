//! Raw frames on an interface, sent and received by `AF_PACKET`.
//!
//! For what ordinary sockets refuse to send: wrong lengths, wrong checksums,
//! fragments that never complete. See [`frames`](crate::frames) for building
//! them. Source: packet(7).

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::net::{recv, send, socket_with};

/// `ETH_P_ALL` in network order, as packet(7) wants it.
const ALL_PROTOCOLS: u16 = (libc::ETH_P_ALL as u16).to_be();

/// A raw socket bound to one interface. Receives what the interface receives.
#[derive(Debug)]
pub struct Injector {
    socket: OwnedFd,
}

impl Injector {
    /// Opens one on an interface of the calling thread's namespace.
    ///
    /// # Errors
    ///
    /// What the system calls said; needs `CAP_NET_RAW`.
    pub fn open(interface: &str) -> io::Result<Self> {
        // Protocol 0: receives nothing until it is bound to its interface.
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?;
        let index = name_to_index(&socket, interface)?;
        ignore_outgoing(&socket)?;
        bind(&socket, index)?;
        Ok(Self { socket })
    }

    /// Sends a whole Ethernet frame as it is; waits while the wire has no room for it.
    ///
    /// # Errors
    ///
    /// As send(2): frames shorter than an Ethernet header or longer than the
    /// interface allows are refused by the kernel.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        loop {
            match send(&self.socket, frame, SendFlags::empty()) {
                Err(Errno::NOBUFS) => std::thread::sleep(Duration::from_millis(1)),
                sent => return Ok(sent.map(drop)?),
            }
        }
    }

    /// Receives a whole Ethernet frame.
    ///
    /// # Errors
    ///
    /// `TimedOut` if none comes in time.
    pub fn receive(&self, patience: Duration) -> io::Result<Vec<u8>> {
        let patience = Timespec::try_from(patience).map_err(io::Error::other)?;
        let mut sockets = [PollFd::new(&self.socket, PollFlags::IN)];
        if poll(&mut sockets, Some(&patience))? == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let mut frame = vec![0; 65_536];
        let (len, _) = recv(&self.socket, &mut frame[..], RecvFlags::empty())?;
        frame.truncate(len);
        Ok(frame)
    }
}

/// Keeps what this host sends out of what the socket receives.
fn ignore_outgoing(socket: &OwnedFd) -> io::Result<()> {
    let yes: libc::c_int = 1;
    // SAFETY: the pointer and length describe `yes`, which lives across the call.
    let failed = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_IGNORE_OUTGOING,
            (&raw const yes).cast(),
            size_of_val(&yes) as libc::socklen_t,
        )
    } != 0;
    checked(failed)
}

fn bind(socket: &OwnedFd, index: u32) -> io::Result<()> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: ALL_PROTOCOLS,
        sll_ifindex: index as i32,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    // SAFETY: the pointer and length describe `address`, which lives across the
    // call.
    let failed = unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            size_of_val(&address) as libc::socklen_t,
        )
    } != 0;
    checked(failed)
}

fn checked(failed: bool) -> io::Result<()> {
    if failed {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
