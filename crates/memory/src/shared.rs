//! A mapped array: words that kernel programs and the daemon both write.
//!
//! One entry of a `BPF_F_MMAPABLE` array (Linux 5.5), mapped into this process.
//! The instance's trusted words live in one (`ashway_abi::trusted`). Every
//! offset comes from a layout that we compiled in, so a wrong one is a bug of
//! ours and panics; nothing here takes an offset that a stranger alleged.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::mapping::{Mapping, OutsideMemory};
use crate::page_multiple;

/// A one-entry array map and its mapping (`ashway_kernel::shared::words` makes one).
#[derive(Debug)]
pub struct SharedArray {
    fd: OwnedFd,
    mapping: Mapping,
}

impl SharedArray {
    /// Maps an array whose one value has `bytes` bytes.
    ///
    /// # Errors
    ///
    /// What `mmap(2)` returned.
    pub fn map(fd: OwnedFd, bytes: usize) -> io::Result<Self> {
        let mapping = Mapping::shared(fd.as_fd(), 0, page_multiple(bytes), true)?;
        Ok(Self { fd, mapping })
    }

    /// The map, to name it in a program.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Bytes that can be touched: the value's size rounded up to whole pages.
    #[must_use]
    pub fn len(&self) -> usize {
        self.mapping.len()
    }

    /// Never: a map has at least one page.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The word at `offset`.
    ///
    /// # Panics
    ///
    /// If the word is outside the map or not aligned.
    #[must_use]
    #[inline]
    pub fn u32_at(&self, offset: usize) -> &AtomicU32 {
        self.mapping.u32_at(offset)
    }

    /// The double word at `offset`.
    ///
    /// # Panics
    ///
    /// If the double word is outside the map or not aligned.
    #[must_use]
    #[inline]
    pub fn u64_at(&self, offset: usize) -> &AtomicU64 {
        self.mapping.u64_at(offset)
    }

    /// Fills `into` with the bytes at `offset`. Does not allocate; can be torn
    /// if somebody writes meanwhile.
    ///
    /// # Errors
    ///
    /// [`OutsideMemory`]; `into` is then left alone.
    #[inline]
    pub fn copy_out(&self, offset: usize, into: &mut [u8]) -> Result<(), OutsideMemory> {
        self.mapping.copy_out(offset, into)
    }

    /// Writes `bytes` at `offset`. Does not allocate; readers may see part of
    /// it.
    ///
    /// # Errors
    ///
    /// [`OutsideMemory`]; nothing is then written.
    pub fn copy_in(&self, offset: usize, bytes: &[u8]) -> Result<(), OutsideMemory> {
        self.mapping.copy_in(offset, bytes)
    }
}

impl AsFd for SharedArray {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd()
    }
}
