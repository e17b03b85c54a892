//! Memory shared with the kernel.

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags};

/// Bytes of the unit of a copy.
const WORD: usize = size_of::<u64>();

/// A mapping, unmapped when dropped.
///
/// It hands out its address and never a reference to its bytes: the kernel (or
/// another process) may write them at any time.
#[derive(Debug)]
pub(crate) struct Mapping {
    address: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and `Mapping`
// itself reads it by atomic loads only.
unsafe impl Send for Mapping {}
// SAFETY: as above; shared references give out the address only.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` zeroed bytes that belong to nobody else, all of them present.
    pub(crate) fn anonymous(len: usize) -> io::Result<Self> {
        // SAFETY: a null hint without MAP_FIXED replaces no other mapping.
        let address = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::POPULATE,
            )
        }?;
        Self::new(address.cast(), len)
    }

    /// Maps `len` bytes of `fd` from `offset`.
    pub(crate) fn of_fd(fd: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<Self> {
        // SAFETY: a null hint without MAP_FIXED replaces no other mapping.
        let address = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::POPULATE,
                fd,
                offset,
            )
        }?;
        Self::new(address.cast(), len)
    }

    /// Maps a handler's memory: an arena at its `address`, others anywhere (0).
    pub(crate) fn of_memory(fd: BorrowedFd<'_>, address: usize, len: usize) -> io::Result<Self> {
        if address == 0 {
            return Self::of_fd(fd, 0, len);
        }
        let at = std::ptr::with_exposed_provenance_mut(address);
        // SAFETY: FIXED_NOREPLACE fails rather than replace another mapping.
        let address = unsafe {
            rustix::mm::mmap(
                at,
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::FIXED_NOREPLACE,
                fd,
                0,
            )
        }?;
        let this = Self::new(address.cast(), len)?;
        // All its pages exist; this enters them into the process's own table.
        // SAFETY: the range is our own mapping, and populating changes no byte.
        unsafe { rustix::mm::madvise(address, len, rustix::mm::Advice::LinuxPopulateWrite) }?;
        Ok(this)
    }

    fn new(address: *mut u8, len: usize) -> io::Result<Self> {
        let address = NonNull::new(address).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { address, len })
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn address(&self) -> NonNull<u8> {
        self.address
    }

    /// Address of `count` values of type `T` at `offset`, if they lie in the
    /// mapping and are aligned.
    pub(crate) fn at<T>(&self, offset: u64, count: usize) -> Option<NonNull<T>> {
        let offset = usize::try_from(offset).ok()?;
        let end = offset.checked_add(count.checked_mul(size_of::<T>())?)?;
        if end > self.len || !offset.is_multiple_of(align_of::<T>()) {
            return None;
        }
        // SAFETY: `offset` is within the mapping.
        let address = unsafe { self.address.add(offset) };
        // Mappings are page-aligned, so an aligned offset is an aligned address.
        Some(address.cast())
    }

    /// Fills `into` with the bytes at `offset`, which somebody may be writing: the copy
    /// can be torn, and is never read twice. `None`, and nothing is copied, if not
    /// all of them lie in the mapping.
    pub(crate) fn copy_out(&self, offset: u64, into: &mut [u8]) -> Option<()> {
        let mut from = self.at::<u8>(offset, into.len())?.as_ptr();
        let head = from.align_offset(WORD).min(into.len());
        let (head, rest) = into.split_at_mut(head);
        let (words, tail) = rest.as_chunks_mut::<WORD>();
        for byte in head {
            // SAFETY: `at` vouched for `into.len()` bytes, which `from` walks over
            // once, here and below; a byte is always aligned; whoever else touches
            // them uses atomics or is another process or the kernel.
            *byte = unsafe { AtomicU8::from_ptr(from) }.load(Ordering::Relaxed);
            from = from.wrapping_add(1);
        }
        for word in words {
            // SAFETY: as above, and aligned behind the head.
            let value = unsafe { AtomicU64::from_ptr(from.cast()) }.load(Ordering::Relaxed);
            *word = value.to_ne_bytes();
            from = from.wrapping_add(WORD);
        }
        for byte in tail {
            // SAFETY: as above.
            *byte = unsafe { AtomicU8::from_ptr(from) }.load(Ordering::Relaxed);
            from = from.wrapping_add(1);
        }
        Some(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `mmap` and nobody holds a reference
        // into it (see the type).
        let result = unsafe { rustix::mm::munmap(self.address.as_ptr().cast(), self.len) };
        debug_assert!(result.is_ok(), "munmap of our own mapping");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_from_any_offset_and_nothing_from_outside() {
        let mapping = Mapping::anonymous(4096).unwrap();
        for at in 0..64 {
            let byte = mapping.at::<u8>(at, 1).unwrap();
            // SAFETY: mapped, and this test is alone with it.
            unsafe { byte.write(at as u8 + 1) };
        }
        for offset in 0..16 {
            for len in 0..32 {
                let mut into = vec![0; len];
                mapping.copy_out(offset, &mut into).unwrap();
                let expected = (0..len).map(|i| offset as u8 + i as u8 + 1);
                assert!(into.iter().copied().eq(expected), "{len} bytes at {offset}");
            }
        }
        let mut into = [7; 9];
        for outside in [4088, 4096, u64::MAX] {
            assert_eq!(mapping.copy_out(outside, &mut into), None);
        }
        assert_eq!(into, [7; 9]);
    }
}
