//! The blocks that an instance's programs put messages into.
//!
//! Each slot of a ring has a block, and there are some more. What a program has put into a
//! block becomes a message as it lies there: whoever takes it out of its slot leaves another
//! block in the slot, so that the ring goes on: that of a message which is done, or one that
//! nobody has. So blocks come back in whatever order. If all others are in messages, this one
//! has to be copied.
//!
//! Source: the fill ring of `AF_XDP` (`Documentation/networking/af_xdp.rst` of Linux), where
//! blocks are exchanged likewise.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
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
    /// Which block each slot has.
    slots: Box<[AtomicU32]>,
    /// Nobody has these.
    free: Mutex<Vec<usize>>,
    /// How many these were at first.
    spare: usize,
    closed: AtomicBool,
}

// SAFETY: the mapping belongs to the process, and `base` alone gives no access: bytes are
// reached through buffers, of which no two have one in common.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

impl Pool {
    /// Maps `count` blocks of `block_bytes` bytes, which begin at `offset` in this map, a
    /// multiple of a page. The `slots` have the first of them. Where the
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
        (count, slots): (usize, usize),
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
                // What was there may be gone.
                // SAFETY: the room was taken above, and nothing is mapped there.
                unsafe { reserve_again(space, at, bytes) };
            }
        })?;
        Ok(Arc::new(Self {
            base,
            bytes,
            block_bytes,
            space: room.map(|(space, _)| space),
            slots: (0..slots as u32).map(AtomicU32::new).collect(),
            free: Mutex::new((slots..count).rev().collect()),
            spare: count - slots,
            closed: AtomicBool::new(false),
        }))
    }

    /// There is no ring any more: whoever keeps a block for the next message keeps it for
    /// nothing, and all others with it.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Whether of the blocks that no slot has more than half are in messages.
    pub(crate) fn is_scarce(&self) -> bool {
        self.free().len() < self.spare.div_ceil(2)
    }

    /// Where the block begins that a slot has.
    ///
    /// # Panics
    ///
    /// If there is no such slot.
    #[must_use]
    #[inline]
    pub fn place(&self, slot: usize) -> usize {
        self.slots[slot].load(Ordering::Relaxed) as usize * self.block_bytes
    }

    /// Has the CPU fetch what is at `offset` in the block of a slot. If a program on another CPU
    /// has written it, the first load would wait for that one's cache: some 40 ns. Nothing
    /// else happens, and on CPUs other than x86-64 not even that.
    ///
    /// # Panics
    ///
    /// If there is no such slot.
    #[inline]
    pub fn prefetch(&self, slot: usize, offset: usize) {
        let byte = self.base.as_ptr().wrapping_add(self.place(slot) + offset);
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch is no access: it does nothing with an address that is not mapped.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(byte.cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = byte;
    }

    /// Takes the block of a slot out of it and makes it `buffer`; says where the block begins
    /// that the slot is to have instead. That is what the buffer was, if it was of this pool.
    /// `None`, and nothing has changed, if there is no other. Does not allocate; takes a lock
    /// for a moment if the buffer was not of this pool.
    ///
    /// # Panics
    ///
    /// If there is no such slot.
    #[must_use]
    #[inline]
    pub fn exchange(self: &Arc<Self>, slot: usize, buffer: &mut Buffer) -> Option<usize> {
        let own = buffer.base_in(self);
        let other = match &own {
            Some(base) => self.number(**base),
            None => self.free().pop()?,
        };
        // Whoever takes a number out of it has the block to himself.
        let block = self.slots[slot].swap(other as u32, Ordering::AcqRel) as usize;
        // SAFETY: blocks lie within the mapping.
        let base = unsafe { self.base.add(block * self.block_bytes) };
        match own {
            Some(own) => *own = base,
            None => *buffer = Buffer::of_pool(base, self.block_bytes, Arc::clone(self)),
        }
        Some(other * self.block_bytes)
    }

    /// Takes a block back from its buffer.
    pub(crate) fn give_back(&self, block: NonNull<u8>) {
        // It has room: at first it held all that no slot had.
        self.free().push(self.number(block));
    }

    fn number(&self, block: NonNull<u8>) -> usize {
        (block.addr().get() - self.base.addr().get()) / self.block_bytes
    }

    fn free(&self) -> std::sync::MutexGuard<'_, Vec<usize>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
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
        // SAFETY: as above.
        unsafe { reserve_again(space, self.base, self.bytes) };
    }
}

/// Gives the room of a pool back to the space, as it was before.
///
/// # Safety
///
/// It is a pool's that nobody uses any more.
unsafe fn reserve_again(space: &Space, base: NonNull<u8>, bytes: usize) {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
    // SAFETY: what is replaced is nobody's; the address space stays reserved.
    let given =
        unsafe { mm::mmap_anonymous(base.as_ptr().cast(), bytes, ProtFlags::empty(), flags) };
    // Where that fails the room is not used again.
    if given.is_ok() {
        space.give_pool_back(base);
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
        let [mut first, mut second, mut third] = [(); 3].map(|()| Buffer::default());
        assert_eq!(pool.exchange(1, &mut first), Some(4 * BLOCK));
        assert_eq!(pool.exchange(1, &mut second), Some(5 * BLOCK));
        assert_eq!(pool.exchange(0, &mut third), None, "there is no other");
        assert!(third.is_empty() && second.len() == BLOCK);
        assert_eq!([pool.place(0), pool.place(1)], [0, 5 * BLOCK]);
        drop(first);
        assert_eq!(pool.exchange(0, &mut third), Some(BLOCK));
    }

    #[test]
    fn a_buffer_of_the_pool_is_exchanged_for_another() {
        let [pool, stranger] = [pool(5, 4), pool(5, 4)];
        let mut buffer = Buffer::default();
        for round in 0..20u8 {
            let other = pool.exchange(usize::from(round) % 4, &mut buffer).unwrap();
            assert_eq!(other, pool.place(usize::from(round) % 4));
            buffer.fill(round);
        }
        let mut all = [0, 1, 2, 3].map(|slot| pool.place(slot));
        all.sort_unstable();
        assert!(all.windows(2).all(|two| two[0] < two[1]));
        // Of another pool it goes back there.
        assert!(pool.exchange(0, &mut Buffer::default()).is_none());
        assert!(stranger.exchange(0, &mut buffer).is_some());
        assert!(pool.exchange(0, &mut Buffer::default()).is_some());
    }

    #[test]
    fn it_is_scarce_when_half_are_gone() {
        let pool = pool(8, 4);
        let mut kept = [(); 3].map(|()| Buffer::default());
        let scarce = kept.iter_mut().map(|buffer| {
            let _ = pool.exchange(0, buffer).unwrap();
            buffer.is_scarce()
        });
        assert_eq!(scarce.collect::<Vec<_>>(), [false, false, true]);
        assert!(!Buffer::new(1).is_scarce() && !kept[0].is_of_closed());
        pool.close();
        assert!(kept[0].is_of_closed());
    }

    #[test]
    fn messages_lie_in_the_space_and_outlive_their_ring() {
        let space = space().unwrap();
        let pool = pool(3, 2);
        let mut buffer = Buffer::default();
        let _ = pool.exchange(1, &mut buffer).unwrap();
        drop(pool);
        buffer.fill(3);
        let at = space.place_of(&mut buffer).unwrap();
        assert!(at >= crate::messages::SPACE_BYTES / 2);
        assert_eq!(buffer.clone()[..BLOCK], buffer[..]);
        assert_ne!(buffer.clone().len(), BLOCK);
    }

    #[test]
    fn what_the_file_does_not_have_is_not_mapped() {
        let file = memfd_create("pool", MemfdFlags::CLOEXEC).unwrap();
        // SAFETY: nobody else has the file.
        let refused = unsafe { Pool::map(file.as_fd(), 1, (1, 1), BLOCK) };
        assert!(refused.is_err());
    }
}
