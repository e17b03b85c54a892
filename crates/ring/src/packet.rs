//! An `AF_PACKET` socket: frames of one interface, where XDP may not be attached.
//!
//! Frames come by `recvmmsg`, 32 to a system call, to where the caller wants them: copied
//! once. So are those of a `TPACKET_V3` ring, which hands frames over in blocks, late.
//!
//! What differs from a frame seen by XDP: frames with a VLAN tag are not seen, and
//! a sender's `UDP_SEGMENT` batch on a veth comes as one long frame.
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

/// Room asked for frames that wait; the kernel may grant less
/// (`net.core.rmem_max`).
const WAITING_BYTES: c_int = 8 << 20;

/// The socket. See the [module](self).
#[derive(Debug)]
pub struct PacketSocket {
    fd: OwnedFd,
    rests: Vec<u8>,
    drops: u64,
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
        // Protocol 0: without it, frames of all interfaces would arrive until
        // the socket is bound.
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
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        set_option(&fd, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)?;
        set_option(&fd, libc::SOL_SOCKET, libc::SO_RCVBUF, WAITING_BYTES)?;
        ignore_tagged(&fd)?;

        let address = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
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
        Ok(Self {
            fd,
            rests: vec![0; BATCH * FRAME_BYTES],
            drops: 0,
        })
    }

    /// Puts the frames that wait into `rooms`, one into each, behind its first `front` bytes,
    /// and gives `each` its room, the frame's length, and the bytes that had no room there, in
    /// order of arrival. Says how many there were, at most [`BATCH`], 0 if none. One system
    /// call, no allocation.
    ///
    /// # Errors
    ///
    /// `ENETDOWN` once when the interface goes down; the socket stays usable.
    ///
    /// # Panics
    ///
    /// If there are not [`BATCH`] rooms, or one is shorter than `front`.
    pub fn recv_batch<R: DerefMut<Target = [u8]>>(
        &mut self,
        rooms: &mut [R],
        front: usize,
        mut each: impl FnMut(&mut R, usize, &[u8]),
    ) -> io::Result<usize> {
        let part = |bytes: &mut [u8]| libc::iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: bytes.len(),
        };
        assert_eq!(rooms.len(), BATCH, "a room for each frame");
        let mut rests = self.rests.chunks_exact_mut(FRAME_BYTES);
        let mut parts: [_; BATCH] = std::array::from_fn(|at| {
            let rest = rests.next().expect("there are as many");
            [part(&mut rooms[at][front..]), part(rest)]
        });
        let mut messages = parts.each_mut().map(|parts| libc::mmsghdr {
            msg_hdr: libc::msghdr {
                msg_iov: parts.as_mut_ptr(),
                msg_iovlen: parts.len(),
                ..EMPTY_MESSAGE
            },
            msg_len: 0,
        });
        // SAFETY: `BATCH` messages, each with two parts, which are the caller's and ours; all
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
        let rests = self.rests.chunks_exact(FRAME_BYTES);
        for ((message, room), rest) in messages[..received].iter().zip(rooms).zip(rests) {
            let len = message.msg_len as usize;
            let rest = &rest[..len.saturating_sub(room.len() - front).min(FRAME_BYTES)];
            each(room, len, rest);
        }
        Ok(received)
    }

    /// Sends a whole frame. One system call, no allocation.
    ///
    /// # Errors
    ///
    /// [`SendError::TxFull`] if the interface or the socket has no room,
    /// [`SendError::TooLong`] above the interface's MTU, else what the kernel
    /// says.
    pub fn send(&self, frame: &[u8]) -> Result<(), SendError> {
        // SAFETY: the kernel reads `frame` and nothing else.
        let sent = unsafe {
            libc::send(
                self.fd.as_raw_fd(),
                frame.as_ptr().cast(),
                frame.len(),
                libc::MSG_DONTWAIT,
            )
        };
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

    /// Frames the kernel dropped because the socket's memory was full, since the
    /// socket was opened (`PACKET_STATISTICS`).
    ///
    /// # Errors
    ///
    /// None that packet(7) knows.
    pub fn kernel_drops(&mut self) -> io::Result<u64> {
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
        self.drops += u64::from(statistics.tp_drops);
        Ok(self.drops)
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
