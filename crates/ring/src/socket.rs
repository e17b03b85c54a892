//! An `AF_XDP` socket that only sends.
//!
//! Life of a frame: [`TxSocket::send`] copies it into a free chunk and puts the
//! chunk on the tx ring; [`TxSocket::kick`] makes the kernel look; the driver
//! sends it and puts the chunk on the completion ring; [`TxSocket::reclaim`]
//! takes it from there back to the free ones. There are as many chunks as tx and
//! completion descriptors, so only the free chunks can run out.
//!
//! A frame that is longer than a chunk takes several (`XDP_USE_SG`, Linux 6.6), all at once or
//! none.
//!
//! Copy mode (`XDP_COPY`): it works on every driver, and neither needs nor
//! disturbs an XDP program on the interface.
//!
//! Source: the kernel's `Documentation/networking/af_xdp.rst`. Minimum kernel:
//! 5.4, for `XDP_USE_NEED_WAKEUP`.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, XDP_PGOFF_TX_RING, XDP_UMEM_PGOFF_COMPLETION_RING, XdpDesc,
    XdpDescOptions, XdpRingOffset,
};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, sockopt};

use crate::queue::{Consumer, Producer};
use crate::umem::{CHUNK_BYTES, Umem};
use ashway_memory::Mapping;

/// Why a socket could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// `EBUSY`, for a second.
    #[error("queue {queue} of interface {ifindex} already has an AF_XDP socket")]
    QueueTaken {
        /// The interface asked for.
        ifindex: u32,
        /// The queue asked for.
        queue: u32,
    },
    /// `EINVAL` or `ENODEV`.
    #[error("interface {ifindex} has no queue {queue} that can send")]
    NoSuchQueue {
        /// The interface asked for.
        ifindex: u32,
        /// The queue asked for.
        queue: u32,
    },
    /// `EPERM`.
    #[error("an AF_XDP socket needs CAP_NET_RAW in the interface's network namespace")]
    Permission,
    /// `ENOBUFS` while registering the UMEM.
    #[error("{bytes} bytes of frames do not fit into RLIMIT_MEMLOCK")]
    MemoryLocked {
        /// Bytes that were to be pinned.
        bytes: usize,
    },
    /// `EAFNOSUPPORT`.
    #[error("this kernel has no AF_XDP sockets (CONFIG_XDP_SOCKETS)")]
    NotSupported,
    /// Anything else.
    #[error("{step}")]
    Os {
        /// What was being done.
        step: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

impl BindError {
    /// What the operator can do about it.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::QueueTaken { .. } => {
                "stop the other holder (fuser and lsof show who has an XDP socket open), or use \
                 another interface or queue"
            }
            Self::NoSuchQueue { .. } => "`ip -d link show` lists the interface and its numtxqueues",
            Self::Permission => "run as root, or grant CAP_NET_RAW, or use the rootless rung",
            Self::MemoryLocked { .. } => "raise `ulimit -l`, or grant CAP_IPC_LOCK",
            Self::NotSupported => "replies can leave by the AF_PACKET rung instead",
            Self::Os { .. } => "`ashway doctor` says what this kernel can do",
        }
    }
}

/// Why a frame was not taken. It is the caller's still.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// All chunks or buffers are waiting to be sent.
    #[error("the transmit ring is full")]
    TxFull,
    /// Longer than a chunk or than the interface allows.
    #[error("a frame of {bytes} bytes is too long")]
    TooLong {
        /// Length of the frame.
        bytes: usize,
    },
    /// The kernel refused.
    #[error("sending a frame")]
    Os(#[from] io::Error),
}

/// The socket. See the [module](self).
#[derive(Debug)]
pub struct TxSocket {
    /// Before the UMEM: the kernel lets go of the pages first.
    fd: OwnedFd,
    tx: Producer<XdpDesc>,
    completion: Consumer<u64>,
    /// Free chunks. Its capacity is the number of chunks, so it never grows.
    free: Vec<u64>,
    umem: Umem,
    /// How many chunks a frame may take.
    most_chunks: usize,
}

/// The most that the kernel makes a frame of in copy mode is one and `MAX_SKB_FRAGS`, which is
/// 17 or more (`include/linux/skbuff.h`): enough for the longest IP packet.
const MOST_CHUNKS: usize = 17;

/// How long a queue that has a socket is waited for.
const MOST_PATIENCE: Duration = Duration::from_secs(1);

/// Binds a socket. The kernel frees the queue of a socket that was closed some time later: it needs
/// the lock of all interfaces for that (`xp_release_deferred` in `net/xdp/xsk_buff_pool.c`).
fn patiently(fd: &OwnedFd, to: &SocketAddrXdp) -> Result<(), Errno> {
    let begun = Instant::now();
    let mut pause = Duration::from_millis(1);
    loop {
        match rustix::net::bind(fd, to) {
            Err(Errno::BUSY) if begun.elapsed() < MOST_PATIENCE => std::thread::sleep(pause),
            bound => return bound,
        }
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

impl TxSocket {
    /// Makes a socket that sends on one queue, with room for `frames` frames
    /// (raised to a power of two, at most 32,768). Allocates and pins
    /// `frames` pages; everything after this allocates nothing. Waits up to a second for a queue
    /// that has a socket.
    ///
    /// # Errors
    ///
    /// [`BindError`].
    pub fn bind(ifindex: u32, queue: u32, frames: u32) -> Result<Self, BindError> {
        let frames = frames.clamp(2, 1 << 15).next_power_of_two();
        let fd = rustix::net::socket_with(
            AddressFamily::XDP,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            None,
        )
        .map_err(|errno| match errno {
            Errno::PERM | Errno::ACCESS => BindError::Permission,
            Errno::AFNOSUPPORT => BindError::NotSupported,
            errno => os("socket(AF_XDP)", errno),
        })?;

        let umem = Umem::new(frames).map_err(|source| BindError::Os {
            step: "mapping the UMEM",
            source,
        })?;
        umem.register(fd.as_fd()).map_err(|errno| match errno {
            Errno::NOBUFS | Errno::PERM => BindError::MemoryLocked {
                bytes: frames as usize * CHUNK_BYTES,
            },
            errno => os("setsockopt(XDP_UMEM_REG)", errno),
        })?;
        // Nothing is received, but `bind` refuses an UMEM without a fill ring.
        sockopt::set_xdp_umem_fill_ring_size(&fd, 2)
            .map_err(|errno| os("setsockopt(XDP_UMEM_FILL_RING)", errno))?;
        sockopt::set_xdp_umem_completion_ring_size(&fd, frames)
            .map_err(|errno| os("setsockopt(XDP_UMEM_COMPLETION_RING)", errno))?;
        sockopt::set_xdp_tx_ring_size(&fd, frames)
            .map_err(|errno| os("setsockopt(XDP_TX_RING)", errno))?;

        let offsets = sockopt::xdp_mmap_offsets(&fd)
            .map_err(|errno| os("getsockopt(XDP_MMAP_OFFSETS)", errno))?;
        let tx = map_ring::<XdpDesc>(fd.as_fd(), XDP_PGOFF_TX_RING, &offsets.tx, frames)?;
        let tx = Producer::new(tx, &offsets.tx, frames)
            .ok_or_else(|| os("placing the tx ring", Errno::INVAL))?;
        let completion = map_ring::<u64>(
            fd.as_fd(),
            XDP_UMEM_PGOFF_COMPLETION_RING,
            &offsets.cr,
            frames,
        )?;
        let completion = Consumer::new(completion, &offsets.cr, frames)
            .ok_or_else(|| os("placing the completion ring", Errno::INVAL))?;

        let flags = SocketAddrXdpFlags::XDP_COPY | SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
        let several = flags | SocketAddrXdpFlags::XDP_USE_SG;
        let bind = |flags| patiently(&fd, &SocketAddrXdp::new(flags, ifindex, queue));
        let (bound, most_chunks) = match bind(several) {
            // An older kernel does not know the flag.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => (bind(flags), 1),
            bound => (bound, MOST_CHUNKS.min(frames as usize)),
        };
        bound.map_err(|errno| match errno {
            Errno::BUSY => BindError::QueueTaken { ifindex, queue },
            Errno::INVAL | Errno::NODEV => BindError::NoSuchQueue { ifindex, queue },
            errno => os("bind(AF_XDP)", errno),
        })?;

        Ok(Self {
            fd,
            tx,
            completion,
            free: (0..u64::from(frames))
                .map(|chunk| chunk * CHUNK_BYTES as u64)
                .collect(),
            umem,
            most_chunks,
        })
    }

    /// Takes a frame to be sent by the next [`kick`](Self::kick). One copy, no
    /// system call, no allocation.
    ///
    /// # Errors
    ///
    /// [`SendError::TxFull`] if not enough chunks are free even after reclaiming;
    /// [`SendError::TooLong`] above 69,632 bytes, and above 4,096 before Linux 6.6.
    pub fn send(&mut self, frame: &[u8]) -> Result<(), SendError> {
        let chunks = frame.len().div_ceil(CHUNK_BYTES).max(1);
        if chunks > self.most_chunks {
            return Err(SendError::TooLong { bytes: frame.len() });
        }
        if self.free.len() < chunks {
            self.reclaim();
        }
        // There are as many descriptors as chunks: who has these has those.
        let Some(left) = self.free.len().checked_sub(chunks) else {
            return Err(SendError::TxFull);
        };
        let mut rest = frame;
        for at in (left..self.free.len()).rev() {
            let (piece, behind) = rest.split_at(rest.len().min(CHUNK_BYTES));
            let descriptor = XdpDesc {
                addr: self.free[at],
                len: piece.len() as u32,
                options: if at == left {
                    XdpDescOptions::empty()
                } else {
                    XdpDescOptions::XDP_PKT_CONTD
                },
            };
            // The frame before its descriptor: `submit` publishes both.
            if !self.umem.write(descriptor.addr, piece) || !self.tx.reserve(descriptor) {
                return Err(SendError::TxFull);
            }
            rest = behind;
        }
        self.free.truncate(left);
        self.tx.submit();
        Ok(())
    }

    /// Makes the kernel send what was taken, if it does not do so by itself.
    /// At most one system call per 32 frames waiting, each of them sending: in
    /// copy mode this *is* the transmit path, on this thread.
    ///
    /// What the driver cannot take at the moment (`EAGAIN`, `EBUSY`, `ENOBUFS`)
    /// stays on the ring for the next call.
    ///
    /// # Errors
    ///
    /// What else the kernel says, such as `ENETDOWN`.
    pub fn kick(&mut self) -> io::Result<()> {
        let mut pending = self.tx.pending();
        while pending > 0 && self.tx.needs_wakeup() {
            match rustix::net::send(&self.fd, &[], SendFlags::DONTWAIT) {
                Ok(_) | Err(Errno::AGAIN | Errno::BUSY | Errno::NOBUFS | Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            let left = self.tx.pending();
            if left >= pending {
                break;
            }
            pending = left;
        }
        Ok(())
    }

    /// Takes back the chunks of frames that were sent; says how many. `send`
    /// does so by itself when it needs one.
    pub fn reclaim(&mut self) -> usize {
        let before = self.free.len();
        while self.free.len() < self.free.capacity() {
            let Some(chunk) = self.completion.peek() else {
                break;
            };
            self.free.push(chunk);
        }
        self.completion.release();
        self.free.len() - before
    }

    /// Frames taken that the kernel has not read yet.
    pub fn pending(&mut self) -> usize {
        self.tx.pending() as usize
    }
}

impl AsFd for TxSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn map_ring<T>(
    fd: BorrowedFd<'_>,
    page_offset: u64,
    offsets: &XdpRingOffset,
    size: u32,
) -> Result<Arc<Mapping>, BindError> {
    let len = offsets.desc as usize + size as usize * size_of::<T>();
    Mapping::populated(fd, page_offset, len)
        .map(Arc::new)
        .map_err(|source| BindError::Os {
            step: "mapping a ring",
            source,
        })
}

fn os(step: &'static str, errno: Errno) -> BindError {
    BindError::Os {
        step,
        source: errno.into(),
    }
}
