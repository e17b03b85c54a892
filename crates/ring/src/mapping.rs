//! Memory shared with the kernel.

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags};

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
// itself never reads or writes it.
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
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `mmap` and nobody holds a reference
        // into it (see the type).
        let result = unsafe { rustix::mm::munmap(self.address.as_ptr().cast(), self.len) };
        debug_assert!(result.is_ok(), "munmap of our own mapping");
    }
}
