//! A range of memory that others write at the same time.
//!
//! Kernel programs, applications and our own threads touch these bytes without
//! a common lock, so nothing here ever forms a `&[u8]` or `&mut [u8]` into
//! them. Bytes are copied out once, by relaxed atomic loads, and the copy is
//! what gets validated; single words are handed out as atomics.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use rustix::mm::{self, Advice, MapFlags, ProtFlags};

/// Somebody asked for bytes that are not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{len} bytes at offset {offset} are outside a memory of {memory_len} bytes")]
pub struct OutsideMemory {
    /// Where the bytes were said to start.
    pub offset: usize,
    /// How many were asked for.
    pub len: usize,
    /// How many there are.
    pub memory_len: usize,
}

/// Readable and writable.
const BOTH: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

/// Bytes in a word: the unit of a copy.
const WORD: usize = size_of::<u64>();

/// An owned range of address space, of which the first `len` bytes may be
/// touched. Unmapped when dropped.
///
/// It hands out addresses, atomics and copies, and never a reference to plain
/// bytes: the kernel (or another process) may write them at any time.
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
    /// What is unmapped in the end; the rest beyond `len` is not accessible.
    reserved: usize,
}

// SAFETY: the mapping is not tied to a thread: it belongs to the process and
// lives until `drop`.
unsafe impl Send for Mapping {}
// SAFETY: through `&self` the bytes are only touched by atomic operations.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes of `fd` from file offset `offset`, wherever there is
    /// room.
    ///
    /// # Errors
    ///
    /// What `mmap(2)` returned.
    pub fn shared(fd: BorrowedFd<'_>, offset: u64, len: usize, writable: bool) -> io::Result<Self> {
        let protection = if writable { BOTH } else { ProtFlags::READ };
        Self::anywhere(fd, offset, len, protection, MapFlags::SHARED)
    }

    /// As [`Self::shared`], writable, and its pages present in this process, as far
    /// as they can be (`MAP_POPULATE`).
    ///
    /// # Errors
    ///
    /// What `mmap(2)` returned.
    pub fn populated(fd: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<Self> {
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        Self::anywhere(fd, offset, len, BOTH, flags)
    }

    /// Maps `len` zeroed bytes that belong to nobody else, all of them present.
    ///
    /// # Errors
    ///
    /// What `mmap(2)` returned.
    pub fn anonymous(len: usize) -> io::Result<Self> {
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: without MAP_FIXED the kernel picks unused address space.
        let base = unsafe { mm::mmap_anonymous(std::ptr::null_mut(), len, BOTH, flags) }?;
        Ok(Self::owning(base.cast(), len, len))
    }

    fn anywhere(
        fd: BorrowedFd<'_>,
        offset: u64,
        len: usize,
        protection: ProtFlags,
        flags: MapFlags,
    ) -> io::Result<Self> {
        // SAFETY: without MAP_FIXED the kernel picks unused address space.
        let base = unsafe { mm::mmap(std::ptr::null_mut(), len, protection, flags, fd, offset) }?;
        Ok(Self::owning(base.cast(), len, len))
    }

    /// Maps `len` bytes of `fd` exactly at `address`, where nothing else may
    /// be yet.
    ///
    /// # Errors
    ///
    /// What `mmap(2)` returned; `EEXIST` if something else is there.
    pub fn shared_at(fd: BorrowedFd<'_>, address: u64, len: usize) -> io::Result<Self> {
        // SAFETY: MAP_FIXED_NOREPLACE fails (EEXIST) rather than replace what
        // may already be there.
        let base = unsafe {
            mm::mmap(
                address as *mut _,
                len,
                BOTH,
                MapFlags::SHARED | MapFlags::FIXED_NOREPLACE,
                fd,
                0,
            )
        }?;
        Ok(Self::owning(base.cast(), len, len))
    }

    /// Takes `reserved` bytes of address space that nothing can touch yet,
    /// preferably at `address` (0: wherever the kernel likes).
    pub(crate) fn reserve(address: u64, reserved: usize) -> io::Result<Self> {
        let mut flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        if address != 0 {
            flags |= MapFlags::FIXED_NOREPLACE;
        }
        // SAFETY: NOREPLACE, or an address of the kernel's choice: nothing of
        // ours is replaced.
        let base =
            unsafe { mm::mmap_anonymous(address as *mut _, reserved, ProtFlags::empty(), flags) }?;
        Ok(Self::owning(base.cast(), 0, reserved))
    }

    /// Puts `len` bytes of `fd` over the start of a reservation.
    pub(crate) fn fill(&mut self, fd: BorrowedFd<'_>, len: usize) -> io::Result<()> {
        assert!(self.len == 0 && len <= self.reserved, "filled once, within");
        // SAFETY: MAP_FIXED replaces only address space that this value has
        // reserved and that nothing refers to, since `len` was 0.
        unsafe {
            mm::mmap(
                self.base.as_ptr().cast(),
                len,
                BOTH,
                MapFlags::SHARED | MapFlags::FIXED,
                fd,
                0,
            )
        }?;
        self.len = len;
        Ok(())
    }

    /// Gives back address space so that the reservation is `reserved` bytes
    /// from the first multiple of `align`, a power of two.
    pub(crate) fn trim(mut self, align: usize, reserved: usize) -> io::Result<Self> {
        assert!(self.len == 0, "only an empty reservation is trimmed");
        let front = self.base.as_ptr().align_offset(align);
        let back = self.reserved - front - reserved;
        let old = self.base.as_ptr();
        if front != 0 {
            // SAFETY: part of our reservation, and nothing lies in it.
            unsafe { mm::munmap(old.cast(), front) }?;
            let start = old.wrapping_add(front);
            self.base = NonNull::new(start).expect("an address above another one is not 0");
            self.reserved -= front;
        }
        if back != 0 {
            // SAFETY: part of our reservation, and nothing lies in it.
            unsafe { mm::munmap(old.wrapping_add(front + reserved).cast(), back) }?;
            self.reserved -= back;
        }
        Ok(self)
    }

    /// Makes every page present in this process (Linux 5.14). Costs a page
    /// fault's work per page now, so that none happens later.
    ///
    /// # Errors
    ///
    /// What `madvise(2)` returned.
    pub fn populate(&self) -> io::Result<()> {
        // SAFETY: populating changes no byte of a mapping that we own.
        unsafe {
            mm::madvise(
                self.base.as_ptr().cast(),
                self.len,
                Advice::LinuxPopulateWrite,
            )
        }?;
        Ok(())
    }

    fn owning(base: *mut u8, len: usize, reserved: usize) -> Self {
        let base = NonNull::new(base).expect("a mapping is never at address 0");
        Self {
            base,
            len,
            reserved,
        }
    }

    /// Its first byte.
    #[must_use]
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Bytes that may be touched.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn reserved(&self) -> usize {
        self.reserved
    }

    /// Address of `count` values of type `T` at `offset`, if they lie in the
    /// mapping and are aligned.
    #[must_use]
    pub fn at<T>(&self, offset: u64, count: usize) -> Option<NonNull<T>> {
        let offset = usize::try_from(offset).ok()?;
        let bytes = count.checked_mul(size_of::<T>())?;
        let address = self.bytes_at(offset, bytes).ok()?;
        // Mappings are page-aligned, so an aligned offset is an aligned address.
        let aligned = offset.is_multiple_of(align_of::<T>());
        NonNull::new(address).filter(|_| aligned).map(NonNull::cast)
    }

    /// The address of `len` bytes at `offset`, if all of them are ours.
    #[inline]
    fn bytes_at(&self, offset: usize, len: usize) -> Result<*mut u8, OutsideMemory> {
        if len > self.len.saturating_sub(offset) {
            return Err(OutsideMemory {
                offset,
                len,
                memory_len: self.len,
            });
        }
        Ok(self.base.as_ptr().wrapping_add(offset))
    }

    /// Fills `into` with the bytes at `offset`, which somebody may be writing: the
    /// copy can be torn, and is never read twice. Does not allocate.
    ///
    /// # Errors
    ///
    /// [`OutsideMemory`]; `into` is then left alone.
    #[inline]
    pub fn copy_out(&self, offset: usize, into: &mut [u8]) -> Result<(), OutsideMemory> {
        let mut from = self.bytes_at(offset, into.len())?;
        let (head, rest) = into.split_at_mut(head_len(from, into.len()));
        let (words, tail) = rest.as_chunks_mut::<WORD>();
        for byte in head {
            // SAFETY: `bytes_at` vouched for `into.len()` bytes, which `from` walks
            // over once, here and below; a byte is always aligned; all others
            // use atomics too, or are foreign.
            *byte = unsafe { AtomicU8::from_ptr(from) }.load(Ordering::Relaxed);
            from = from.wrapping_add(1);
        }
        for word in words {
            // SAFETY: as above, and `from` is aligned after the head.
            let value = unsafe { AtomicU64::from_ptr(from.cast()) }.load(Ordering::Relaxed);
            *word = value.to_ne_bytes();
            from = from.wrapping_add(WORD);
        }
        for byte in tail {
            // SAFETY: as above.
            *byte = unsafe { AtomicU8::from_ptr(from) }.load(Ordering::Relaxed);
            from = from.wrapping_add(1);
        }
        Ok(())
    }

    /// Writes `bytes` at `offset`; readers may see part of it. Does not allocate.
    ///
    /// # Errors
    ///
    /// [`OutsideMemory`]; nothing is then written.
    pub fn copy_in(&self, offset: usize, bytes: &[u8]) -> Result<(), OutsideMemory> {
        let mut to = self.bytes_at(offset, bytes.len())?;
        let (head, rest) = bytes.split_at(head_len(to, bytes.len()));
        let (words, tail) = rest.as_chunks::<WORD>();
        for byte in head {
            // SAFETY: `bytes_at` vouched for `bytes.len()` bytes, which `to` walks
            // over once, here and below; a byte is always aligned; all others
            // use atomics too, or are foreign.
            unsafe { AtomicU8::from_ptr(to) }.store(*byte, Ordering::Relaxed);
            to = to.wrapping_add(1);
        }
        for word in words {
            let value = u64::from_ne_bytes(*word);
            // SAFETY: as above, and `to` is aligned after the head.
            unsafe { AtomicU64::from_ptr(to.cast()) }.store(value, Ordering::Relaxed);
            to = to.wrapping_add(WORD);
        }
        for byte in tail {
            // SAFETY: as above.
            unsafe { AtomicU8::from_ptr(to) }.store(*byte, Ordering::Relaxed);
            to = to.wrapping_add(1);
        }
        Ok(())
    }

    /// The word at `offset`, which is one of ours (a layout's), not alleged.
    ///
    /// # Panics
    ///
    /// If the word is outside the mapping or not aligned.
    #[must_use]
    #[inline]
    pub fn u32_at(&self, offset: usize) -> &AtomicU32 {
        let word = self.checked(offset, size_of::<u32>());
        // SAFETY: `checked` saw that the word is mapped and aligned; it stays
        // mapped for the life of `self`, and others use atomics on it too.
        unsafe { AtomicU32::from_ptr(word.cast()) }
    }

    /// The double word at `offset`, which is one of ours, not alleged.
    ///
    /// # Panics
    ///
    /// If the double word is outside the mapping or not aligned.
    #[must_use]
    #[inline]
    pub fn u64_at(&self, offset: usize) -> &AtomicU64 {
        let word = self.checked(offset, size_of::<u64>());
        // SAFETY: `checked` saw that the word is mapped and aligned; it stays
        // mapped for the life of `self`, and others use atomics on it too.
        unsafe { AtomicU64::from_ptr(word.cast()) }
    }

    #[inline]
    fn checked(&self, offset: usize, size: usize) -> *mut u8 {
        match self.bytes_at(offset, size) {
            Ok(word) if word.addr().is_multiple_of(size) => word,
            Ok(_) => panic!("a word at offset {offset} is not aligned to {size}"),
            Err(outside) => panic!("{outside}"),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is ours, and every reference into it borrowed
        // `self`. A failure would only leave address space taken.
        let _ = unsafe { mm::munmap(self.base.as_ptr().cast(), self.reserved) };
    }
}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at {:?}", self.len, self.base)
    }
}

/// Bytes before the first aligned word of a copy of `len` bytes.
#[inline]
fn head_len(from: *const u8, len: usize) -> usize {
    from.align_offset(WORD).min(len)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn values_outside_or_not_aligned_have_no_address() {
        let mapping = Mapping::anonymous(4096).unwrap();
        let is_there = |offset, count| mapping.at::<u64>(offset, count).is_some();
        assert!(is_there(0, 512) && is_there(4088, 1));
        for (offset, count) in [
            (0, 513),
            (4096, 1),
            (4, 1),
            (u64::MAX - 7, 1),
            (0, usize::MAX),
        ] {
            assert!(!is_there(offset, count), "{count} at {offset}");
        }
    }

    #[test]
    fn copies_from_any_offset_and_nothing_from_outside() {
        let mapping = Mapping::anonymous(4096).unwrap();
        let bytes: Vec<u8> = (1..=64).collect();
        mapping.copy_in(0, &bytes).unwrap();
        for offset in 0..16 {
            for len in 0..32 {
                let mut into = vec![0; len];
                mapping.copy_out(offset, &mut into).unwrap();
                assert_eq!(into, bytes[offset..offset + len], "{len} bytes at {offset}");
            }
        }
        let mut into = [7; 9];
        for outside in [4088, 4096, usize::MAX] {
            assert!(mapping.copy_out(outside, &mut into).is_err());
        }
        assert_eq!(into, [7; 9]);
    }
}
