//! The memory that holds the frames of a socket.
//!
//! Chunks of one size, named by their offset from the start (`if_xdp.h`:
//! `struct xdp_umem_reg`). Which chunk belongs to whom is the business of the
//! rings; this file only knows where they lie.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::net::sockopt;
use rustix::net::xdp::{XdpUmemReg, XdpUmemRegFlags};

use ashway_memory::Mapping;

/// Bytes of a chunk: the most the kernel allows for aligned chunks, a page.
/// veth takes frames of up to 3.5 KiB in this mode, so none is too long for it.
pub(crate) const CHUNK_BYTES: usize = 4096;

#[derive(Debug)]
pub(crate) struct Umem {
    mapping: Mapping,
}

impl Umem {
    /// Maps room for `chunks` chunks.
    pub(crate) fn new(chunks: u32) -> io::Result<Self> {
        let mapping = Mapping::anonymous(chunks as usize * CHUNK_BYTES)?;
        Ok(Self { mapping })
    }

    /// Tells the kernel that the socket's frames lie here (`XDP_UMEM_REG`).
    /// The pages are pinned and count against `RLIMIT_MEMLOCK`.
    pub(crate) fn register(&self, fd: BorrowedFd<'_>) -> rustix::io::Result<()> {
        sockopt::set_xdp_umem_reg(
            fd,
            XdpUmemReg {
                addr: self.mapping.base().as_ptr().expose_provenance() as u64,
                len: self.mapping.len() as u64,
                chunk_size: CHUNK_BYTES as u32,
                headroom: 0,
                flags: XdpUmemRegFlags::empty(),
                tx_metadata_len: 0,
            },
        )
    }

    /// Copies a frame into the chunk at `address`. False, and nothing done, if
    /// there is no such chunk or the frame is longer than one.
    pub(crate) fn write(&mut self, address: u64, frame: &[u8]) -> bool {
        if frame.len() > CHUNK_BYTES || !address.is_multiple_of(CHUNK_BYTES as u64) {
            return false;
        }
        let Some(chunk) = self.mapping.at::<u8>(address, CHUNK_BYTES) else {
            return false;
        };
        // SAFETY: the chunk lies in the mapping and is at least as long as the
        // frame; `frame` is an ordinary slice and cannot overlap it. The kernel
        // may read the chunk meanwhile only if the caller gave it away too
        // early, which spoils that frame and nothing else.
        unsafe { std::ptr::copy_nonoverlapping(frame.as_ptr(), chunk.as_ptr(), frame.len()) };
        true
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn only_whole_chunks_of_the_mapping_are_written() {
        let mut umem = Umem::new(2).unwrap();
        assert!(umem.write(0, &[1; CHUNK_BYTES]));
        assert!(umem.write(CHUNK_BYTES as u64, b"x"));
        assert!(!umem.write(2 * CHUNK_BYTES as u64, b"x"));
        assert!(!umem.write(1, b"x"));
        assert!(!umem.write(0, &[1; CHUNK_BYTES + 1]));
        assert!(!umem.write(u64::MAX - 4095, b"x"));
    }
}
