//! An ordinary UDP client: the kernel's own sockets, nothing of ours.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

/// How long a client waits for a reply unless told otherwise.
const PATIENCE: Duration = Duration::from_secs(20);

/// The longest UDP payload.
const LONGEST: usize = 65_507;

/// A connected UDP socket with a time limit.
#[derive(Debug)]
pub struct UdpClient {
    socket: UdpSocket,
}

impl UdpClient {
    /// Connects from a port the kernel chooses. The socket belongs to the
    /// namespace of the calling thread, see [`Rig::client_a`](crate::Rig).
    ///
    /// # Errors
    ///
    /// What the socket calls said.
    pub fn connect(server: SocketAddr) -> io::Result<Self> {
        Self::connect_from(0, server)
    }

    /// Connects from this port; different ports are different flows.
    ///
    /// # Errors
    ///
    /// What the socket calls said.
    pub fn connect_from(port: u16, server: SocketAddr) -> io::Result<Self> {
        let local = if server.is_ipv4() {
            SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))
        } else {
            SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))
        };
        let socket = UdpSocket::bind(local)?;
        socket.connect(server)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { socket })
    }

    /// Changes how long [`receive`](Self::receive) waits.
    ///
    /// # Errors
    ///
    /// If `patience` is zero.
    pub fn set_timeout(&self, patience: Duration) -> io::Result<()> {
        self.socket.set_read_timeout(Some(patience))
    }

    /// Has the kernel, or whoever takes it apart, make a message of each `bytes` bytes of what
    /// is sent from now on (`UDP_SEGMENT`, udp(7)).
    ///
    /// # Errors
    ///
    /// As setsockopt(2).
    pub fn segment(&self, bytes: u16) -> io::Result<()> {
        /// `linux/udp.h`
        const UDP_SEGMENT: libc::c_int = 103;
        let bytes = libc::c_int::from(bytes);
        // SAFETY: the kernel reads one live `c_int`.
        let result = unsafe {
            libc::setsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_UDP,
                UDP_SEGMENT,
                (&raw const bytes).cast(),
                size_of_val(&bytes) as libc::socklen_t,
            )
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Has so many words of options, each of no operation, in the IPv4 header of what is sent from
    /// now on (`IP_OPTIONS`, ip(7)); 0 for none.
    ///
    /// # Errors
    ///
    /// As setsockopt(2).
    pub fn options(&self, words: usize) -> io::Result<()> {
        const NO_OPERATION: u8 = 1;
        let options = vec![NO_OPERATION; 4 * words];
        // SAFETY: the kernel reads the live bytes of `options`.
        let result = unsafe {
            libc::setsockopt(
                self.socket.as_raw_fd(),
                libc::IPPROTO_IP,
                libc::IP_OPTIONS,
                options.as_ptr().cast(),
                options.len() as libc::socklen_t,
            )
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// The socket itself.
    #[must_use]
    pub fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// Sends one datagram.
    ///
    /// # Errors
    ///
    /// As send(2); `ConnectionRefused` if the host answered an earlier one with
    /// port unreachable.
    pub fn send(&self, payload: &[u8]) -> io::Result<()> {
        self.socket.send(payload).map(drop)
    }

    /// Receives one datagram.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if none comes in time; `ConnectionRefused` as above.
    pub fn receive(&self) -> io::Result<Vec<u8>> {
        let mut payload = vec![0; LONGEST];
        let len = self.socket.recv(&mut payload)?;
        payload.truncate(len);
        Ok(payload)
    }

    /// Sends a request and receives one datagram.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send) and [`receive`](Self::receive).
    pub fn ask(&self, request: &[u8]) -> io::Result<Vec<u8>> {
        self.send(request)?;
        self.receive()
    }

    /// Sends a big-endian number and receives one: a remote increment.
    ///
    /// Does not allocate, so that it can be timed.
    ///
    /// # Errors
    ///
    /// As [`ask`](Self::ask); `InvalidData` if the reply is not four bytes.
    pub fn ask_number(&self, number: u32) -> io::Result<u32> {
        self.send(&number.to_be_bytes())?;
        // A byte more than expected, to notice replies that are too long.
        let mut reply = [0; 5];
        let len = self.socket.recv(&mut reply)?;
        match reply[..len].try_into() {
            Ok(number) => Ok(u32::from_be_bytes(number)),
            Err(_) => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("a reply of {len} bytes instead of 4"),
            )),
        }
    }
}
