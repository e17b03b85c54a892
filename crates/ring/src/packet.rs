//! An `AF_PACKET` socket: frames of one interface, where XDP may not be attached.
//!
//! Frames come by `recvmmsg`, 32 to a system call, to where the caller wants them: copied
//! once. So are those of a `TPACKET_V3` ring, which hands frames over in blocks, late.
//!
//! What differs from a frame seen by XDP: frames with a VLAN tag are not seen, and
//! what is many messages behind one header (a sender's `UDP_SEGMENT` batch on a veth) comes as one
//! long frame. The kernel says beside it how long each of them is (`PACKET_VNET_HDR`).
//! Checksums may be partial on both.
//!
//! Source: packet(7). Minimum kernel: 4.20, for `PACKET_IGNORE_OUTGOING`.

use std::io;
use std::ops::DerefMut;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libc::{c_int, c_void, socklen_t};

use crate::{SendError, filter};

/// Frames received by one system call.
pub const BATCH: usize = 32;

/// Room for what the caller has no room for of one frame: the largest IP packet and its
/// Ethernet header. Memory that no frame has reached yet is not backed by pages.
const FRAME_BYTES: usize = 65536 + 64;

/// Room asked for frames that wait; without `CAP_NET_ADMIN` over the machine the kernel may grant
/// less (`net.core.rmem_max`).
const WAITING_BYTES: c_int = 8 << 20;

/// Bytes of `struct virtio_net_hdr` (`linux/virtio_net.h`), which the kernel puts in front of
/// each frame, and wants in front of one that is sent.
const VNET_BYTES: usize = 10;

/// The payload of each of the messages that a frame stands for, by what stands in front of it; 0
/// if it is one.
fn gso_size(header: &[u8; VNET_BYTES]) -> usize {
    /// `VIRTIO_NET_HDR_GSO_TCPV4`, `_TCPV6` and `_UDP_L4`. The older `_UDP` is one datagram, to be
    /// sent in fragments.
    const SEGMENTS: [u8; 3] = [1, 4, 5];
    /// `VIRTIO_NET_HDR_GSO_ECN`
    const ECN: u8 = 0x80;
    if SEGMENTS.contains(&(header[1] & !ECN)) {
        u16::from_ne_bytes([header[4], header[5]]).into()
    } else {
        0
    }
}

/// The socket. See the [module](self).
#[derive(Debug)]
pub struct PacketSocket {
    fd: OwnedFd,
    rests: Vec<u8>,
    /// The frames of the last batch: how long each is, and its [`gso_size`].
    batch: [(usize, usize); BATCH],
    /// Whether there may be [lost](Self::lost) frames that nobody was told of.
    ask: bool,
}

impl PacketSocket {
    /// Opens a socket that sees every frame that `ifindex` receives from now on,
    /// and none that it sends. Allocates 2 MiB of address space.
    ///
    /// # Errors
    ///
    /// `EPERM` without `CAP_NET_RAW` in the network namespace, `ENODEV` if there
    /// is no such interface, `ENETDOWN` if it is down.
    pub fn open(ifindex: u32) -> io::Result<Self> {
        let fd = socket()?;
        set_option(&fd, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)?;
        set_option(&fd, libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)?;
        let room = |option| set_option(&fd, libc::SOL_SOCKET, option, WAITING_BYTES);
        room(libc::SO_RCVBUFFORCE).or_else(|_| room(libc::SO_RCVBUF))?;
        ignore_tagged(&fd)?;
        bind(&fd, libc::ETH_P_ALL as u16, ifindex)?;
        Ok(Self {
            fd,
            rests: vec![0; BATCH * FRAME_BYTES],
            batch: [(0, 0); BATCH],
            ask: false,
        })
    }

    /// A socket that only sends, whole frames as they are, on `ifindex`.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_to_send(ifindex: u32) -> io::Result<OwnedFd> {
        let fd = socket()?;
        bind(&fd, 0, ifindex)?;
        Ok(fd)
    }

    /// Puts the frames that wait into `rooms`, one into each, behind its first `front` bytes, in
    /// order of arrival. Says how many there were, at most [`BATCH`], 0 if none; what is known of
    /// each, [`frame`](Self::frame) says. One system call, no allocation.
    ///
    /// # Errors
    ///
    /// `ENETDOWN` once when the interface goes down, `EINVAL` for a frame whose segments the
    /// kernel cannot describe (a tunnel's), which is lost; the socket stays usable.
    ///
    /// # Panics
    ///
    /// If there are not [`BATCH`] rooms, or one is shorter than `front`.
    pub fn recv_batch<R: DerefMut<Target = [u8]>>(
        &mut self,
        rooms: &mut [R],
        front: usize,
    ) -> io::Result<usize> {
        let part = |bytes: &mut [u8]| libc::iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: bytes.len(),
        };
        assert_eq!(rooms.len(), BATCH, "a room for each frame");
        let mut rests = self.rests.chunks_exact_mut(FRAME_BYTES);
        let mut headers = [[0; VNET_BYTES]; BATCH];
        let mut header = headers.iter_mut();
        let mut parts: [_; BATCH] = std::array::from_fn(|at| {
            let [header, rest] = [
                header.next().map(|header| part(header)),
                rests.next().map(part),
            ];
            let many = "there are as many";
            [
                header.expect(many),
                part(&mut rooms[at][front..]),
                rest.expect(many),
            ]
        });
        let mut messages = parts.each_mut().map(|parts| libc::mmsghdr {
            msg_hdr: libc::msghdr {
                msg_iov: parts.as_mut_ptr(),
                msg_iovlen: parts.len(),
                ..EMPTY_MESSAGE
            },
            msg_len: 0,
        });
        // SAFETY: `BATCH` messages, each with three parts, which are the caller's and ours; all
        // of it outlives the call and nothing else refers to it.
        let received = unsafe {
            libc::recvmmsg(
                self.fd.as_raw_fd(),
                messages.as_mut_ptr(),
                BATCH as u32,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        };
        if received < 0 {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(0),
                _ => Err(error),
            };
        }
        let received = received as usize;
        self.ask |= received > 1;
        let lens = messages.map(|message| message.msg_len as usize);
        for ((of, len), header) in self.batch.iter_mut().zip(lens).zip(&headers) {
            *of = (len.saturating_sub(VNET_BYTES), gso_size(header));
        }
        Ok(received)
    }

    /// Of a frame of the last batch: its length, and, if it stands for many messages, how long
    /// the payload of each is, else 0.
    #[must_use]
    pub const fn frame(&self, at: usize) -> (usize, usize) {
        self.batch[at]
    }

    /// The bytes of a frame of the last batch that had no room behind `taken` others.
    #[must_use]
    pub fn rest(&self, at: usize, taken: usize) -> &[u8] {
        let (len, _) = self.batch[at];
        let rest = &self.rests[at * FRAME_BYTES..][..FRAME_BYTES];
        &rest[..len.saturating_sub(taken).min(FRAME_BYTES)]
    }

    /// Sends a whole frame. One system call, no allocation.
    ///
    /// # Errors
    ///
    /// [`SendError::TxFull`] if the interface or the socket has no room,
    /// [`SendError::TooLong`] above the interface's MTU, else what the kernel
    /// says.
    pub fn send(&self, frame: &[u8]) -> Result<(), SendError> {
        // That it is one message, and its checksum whole.
        let header = [0; VNET_BYTES];
        let part = |bytes: &[u8]| libc::iovec {
            iov_base: bytes.as_ptr().cast_mut().cast(),
            iov_len: bytes.len(),
        };
        let mut parts = [part(&header), part(frame)];
        let message = libc::msghdr {
            msg_iov: parts.as_mut_ptr(),
            msg_iovlen: parts.len(),
            ..EMPTY_MESSAGE
        };
        // SAFETY: the kernel reads the message and its two parts, which outlive the call.
        let sent =
            unsafe { libc::sendmsg(self.fd.as_raw_fd(), &raw const message, libc::MSG_DONTWAIT) };
        if sent >= 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::ENOBUFS) => Err(SendError::TxFull),
            Some(libc::EMSGSIZE) => Err(SendError::TooLong { bytes: frame.len() }),
            _ => Err(error.into()),
        }
    }

    /// Frames that the kernel has lost since this was last asked because the socket's memory was
    /// full (`PACKET_STATISTICS`). A system call, but for a socket from which no batch came
    /// meanwhile that had more than one: one that was full had several to give.
    ///
    /// # Errors
    ///
    /// None that packet(7) knows.
    pub fn lost(&mut self) -> io::Result<u64> {
        if !std::mem::take(&mut self.ask) {
            return Ok(0);
        }
        let mut statistics = libc::tpacket_stats {
            tp_packets: 0,
            tp_drops: 0,
        };
        let mut len = size_of_val(&statistics) as socklen_t;
        // SAFETY: the kernel writes at most `len` bytes of the live struct.
        let result = unsafe {
            libc::getsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut statistics).cast(),
                &raw mut len,
            )
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        // Reading sets the kernel's counter back to 0.
        Ok(statistics.tp_drops.into())
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

const EMPTY_MESSAGE: libc::msghdr = libc::msghdr {
    msg_name: std::ptr::null_mut(),
    msg_namelen: 0,
    msg_iov: std::ptr::null_mut(),
    msg_iovlen: 0,
    msg_control: std::ptr::null_mut(),
    msg_controllen: 0,
    msg_flags: 0,
};

/// A packet socket that hears nothing yet: with a protocol, frames of all interfaces would arrive
/// until it is bound.
fn socket() -> io::Result<OwnedFd> {
    // SAFETY: takes no pointers.
    let fd = unsafe {
        libc::socket(
            libc::AF_PACKET,
            libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC,
            0,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `fd` is new and belongs to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Binds it to an interface, to hear this protocol; 0 is none.
fn bind(fd: &OwnedFd, protocol: u16, ifindex: u32) -> io::Result<()> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: protocol.to_be(),
        sll_ifindex: ifindex as c_int,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    // SAFETY: the address is a live `sockaddr_ll` of the length given.
    let result = unsafe {
        libc::bind(
            fd.as_raw_fd(),
            (&raw const address).cast(),
            size_of_val(&address) as socklen_t,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Keeps frames with a VLAN tag out. The kernel takes the tag off before a packet
/// socket sees the frame, so what belongs to another network would look like a
/// message of this one.
fn ignore_tagged(fd: &OwnedFd) -> io::Result<()> {
    const LOAD_BYTE: u16 = (libc::BPF_LD | libc::BPF_B | libc::BPF_ABS) as u16;
    const JUMP_IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let insn = |code, jf, k| libc::sock_filter { code, jt: 0, jf, k };
    let tag_present = libc::SKF_AD_OFF + libc::SKF_AD_VLAN_TAG_PRESENT;
    let mut filter = [
        insn(LOAD_BYTE, 0, tag_present as u32),
        insn(JUMP_IF_EQUAL, 1, 0),
        insn(RETURN, 0, u32::MAX),
        insn(RETURN, 0, 0),
    ];
    filter::attach(fd.as_fd(), &mut filter)
}

/// Sets a socket option whose value is an `int`.
pub(crate) fn set_option(
    fd: &OwnedFd,
    level: c_int,
    option: c_int,
    value: c_int,
) -> io::Result<()> {
    // SAFETY: the kernel reads one live `c_int`.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            option,
            (&raw const value).cast::<c_void>(),
            size_of_val(&value) as socklen_t,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
