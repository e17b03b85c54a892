//! The blocks that an instance's programs put messages into.
//!
//! Each slot of a ring has a block, and there are some more. What a program has put into a
//! block becomes a message as it lies there: whoever takes it out of its slot leaves another
//! block in the slot, so that the ring goes on, and the block comes back when the message is
//! dropped, in whatever order. If all others are in messages, this one has to be copied.
//!
//! Source: the fill ring of `AF_XDP` (`Documentation/networking/af_xdp.rst` of Linux), where
//! blocks are exchanged likewise.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::io::Errno;
use rustix::mm::{self, MapFlags, ProtFlags};

use crate::messages::{Buffer, Space, space};

/// The blocks. See the [module](self).
pub struct Pool {
    base: NonNull<u8>,
    bytes: usize,
    block_bytes: usize,
    /// Where it is mapped there.
    space: Option<&'static Space>,
    blocks: Mutex<Blocks>,
}

struct Blocks {
    /// Whether a slot has it.
    in_ring: Vec<bool>,
    /// Nobody has these.
    free: Vec<u32>,
}

// SAFETY: the mapping belongs to the process, and `base` alone gives no access: bytes are
// reached through buffers, of which no two have one in common.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

impl Pool {
    /// Maps `count` blocks of `block_bytes` bytes, which begin at `offset` in this map, a
    /// multiple of a page. Slots have the first `in_ring` of them. Where the
    /// [space](crate::messages) has no room for them, they lie somewhere else, and Wasm code
    /// works on copies.
    ///
    /// # Errors
    ///
    /// What `mmap(2)` returned.
    ///
    /// # Safety
    ///
    /// Nobody writes to a block, and nobody has a reference to it, but programs to those that
    /// slots have, as [`Self::exchange`] says.
    pub unsafe fn map(
        fd: BorrowedFd<'_>,
        offset: usize,
        (count, in_ring): (usize, usize),
        block_bytes: usize,
    ) -> io::Result<Arc<Self>> {
        let bytes = crate::page_multiple(count * block_bytes);
        let space = space().ok();
        let room = space.and_then(|space| Some((space, space.take_pool(bytes)?)));
        let (at, fixed) = match room {
            Some((_, at)) => (at.as_ptr(), MapFlags::FIXED),
            None => (ptr::null_mut(), MapFlags::empty()),
        };
        let both = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | fixed;
        // SAFETY: what is replaced is of the space's reservation, and nobody else's; else the
        // kernel picks unused address space.
        let mapped = unsafe { mm::mmap(at.cast(), bytes, both, flags, fd, offset as u64) };
        let mapped = mapped.and_then(|base| NonNull::new(base.cast()).ok_or(Errno::NOMEM));
        let base = mapped.inspect_err(|_| {
            if let Some((space, at)) = room {
                space.give_pool_back(at);
            }
        })?;
        Ok(Arc::new(Self {
            base,
            bytes,
            block_bytes,
            space: room.map(|(space, _)| space),
            blocks: Mutex::new(Blocks {
                in_ring: (0..count).map(|block| block < in_ring).collect(),
                free: (in_ring as u32..count as u32).rev().collect(),
            }),
        }))
    }

    /// Takes the block that begins at `at` out of its slot: a buffer, and where the block
    /// begins that the slot is to have instead. `None`, and nothing has changed, if there is
    /// no other, or no slot has this one. Takes a lock for a moment; does not allocate.
    #[must_use]
    pub fn exchange(self: &Arc<Self>, at: usize) -> Option<(Buffer, usize)> {
        let block = at / self.block_bytes;
        let whole = at.is_multiple_of(self.block_bytes);
        let mut blocks = self.blocks();
        if !whole || !blocks.in_ring.get(block).is_some_and(|in_ring| *in_ring) {
            return None;
        }
        let other = blocks.free.pop()? as usize;
        blocks.in_ring[block] = false;
        blocks.in_ring[other] = true;
        drop(blocks);
        // SAFETY: blocks lie within the mapping.
        let base = unsafe { self.base.add(at) };
        let buffer = Buffer::of_pool(base, self.block_bytes, Arc::clone(self));
        Some((buffer, other * self.block_bytes))
    }

    /// Takes a block back from its buffer.
    pub(crate) fn give_back(&self, block: NonNull<u8>) {
        let at = block.addr().get() - self.base.addr().get();
        // It has room: the block was in it, or in a slot.
        self.blocks().free.push((at / self.block_bytes) as u32);
    }

    fn blocks(&self) -> std::sync::MutexGuard<'_, Blocks> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Pool");
        shown.field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let base = self.base.as_ptr().cast();
        let Some(space) = self.space else {
            // SAFETY: the mapping is ours, and no buffer is in it: each keeps the pool.
            let _ = unsafe { mm::munmap(base, self.bytes) };
            return;
        };
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: as above; the address space stays reserved.
        let given = unsafe { mm::mmap_anonymous(base, self.bytes, ProtFlags::empty(), flags) };
        // Where that fails the room is not used again.
        if given.is_ok() {
            space.give_pool_back(self.base);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::os::fd::{AsFd, OwnedFd};

    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    use super::*;

    const BLOCK: usize = 2432;

    fn file(bytes: usize) -> OwnedFd {
        let file = memfd_create("pool", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, crate::page_multiple(bytes) as u64).unwrap();
        file
    }

    fn pool(count: usize, in_ring: usize) -> Arc<Pool> {
        let file = file(count * BLOCK);
        // SAFETY: nobody else has the file.
        unsafe { Pool::map(file.as_fd(), 0, (count, in_ring), BLOCK) }.unwrap()
    }

    #[test]
    fn blocks_are_exchanged_as_long_as_there_are_others() {
        let pool = pool(6, 4);
        let (mut first, in_slot) = pool.exchange(BLOCK).unwrap();
        assert_eq!(in_slot, 4 * BLOCK);
        first.fill(7);
        // The block is not its slot's any more, and these are no blocks.
        for at in [BLOCK, 5 * BLOCK, 6 * BLOCK, 1, usize::MAX] {
            assert!(pool.exchange(at).is_none(), "{at}");
        }
        let (second, in_slot) = pool.exchange(4 * BLOCK).unwrap();
        assert_eq!(in_slot, 5 * BLOCK);
        assert!(pool.exchange(0).is_none(), "there is no other");
        drop(first);
        let (third, in_slot) = pool.exchange(0).unwrap();
        assert_eq!(in_slot, BLOCK);
        assert!(third.is_lent() && second.len() == BLOCK);
    }

    #[test]
    fn messages_lie_in_the_space_and_outlive_their_ring() {
        let space = space().unwrap();
        let pool = pool(3, 2);
        let (mut buffer, _) = pool.exchange(BLOCK).unwrap();
        drop(pool);
        buffer.fill(3);
        let at = space.place_of(&mut buffer).unwrap();
        assert!(space.at(at, BLOCK).is_some());
        assert_eq!(buffer.clone()[..BLOCK], buffer[..]);
        assert!(!buffer.clone().is_lent());
    }

    #[test]
    fn what_the_file_does_not_have_is_not_mapped() {
        let file = memfd_create("pool", MemfdFlags::CLOEXEC).unwrap();
        // SAFETY: nobody else has the file.
        let refused = unsafe { Pool::map(file.as_fd(), 1, (1, 1), BLOCK) };
        assert!(refused.is_err());
    }
}
