//! A mapped array: words that kernel programs and the daemon both write.
//!
//! One entry of a `BPF_F_MMAPABLE` array (Linux 5.5), mapped into this process.
//! The instance's trusted words live in one ([`ashway_abi::trusted`]). Every
//! offset comes from a layout that we compiled in, so a wrong one is a bug of
//! ours and panics; nothing here takes an offset that a stranger alleged.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::OutsideMemory;
use crate::mapping::Mapping;
use crate::maps::{MMAPABLE, Map, MapSpec};

/// A one-entry array map and its mapping.
#[derive(Debug)]
pub struct SharedArray {
    map: Map,
    mapping: Mapping,
}

impl SharedArray {
    /// Makes an array with one value of `bytes` bytes, all 0, and maps it.
    ///
    /// # Errors
    ///
    /// What `bpf(2)` or `mmap(2)` returned; `InvalidInput` for a size that is
    /// 0 or does not fit a map.
    pub fn create(name: &str, bytes: usize) -> io::Result<Self> {
        let map = Map::create(&one_value(name, bytes)?)?;
        let mapping = Mapping::shared(map.fd(), 0, page_multiple(bytes), true)?;
        Ok(Self { map, mapping })
    }

    /// The map, to name it in a program.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.map.fd()
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
    pub fn u32_at(&self, offset: usize) -> &AtomicU32 {
        self.mapping.u32_at(offset)
    }

    /// The double word at `offset`.
    ///
    /// # Panics
    ///
    /// If the double word is outside the map or not aligned.
    #[must_use]
    pub fn u64_at(&self, offset: usize) -> &AtomicU64 {
        self.mapping.u64_at(offset)
    }

    /// Fills `into` with the bytes at `offset`. Does not allocate; can be torn
    /// if somebody writes meanwhile.
    ///
    /// # Errors
    ///
    /// [`OutsideMemory`]; `into` is then left alone.
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

/// A mappable array with a single value of `bytes` bytes.
pub(crate) fn one_value(name: &str, bytes: usize) -> io::Result<MapSpec<'_>> {
    let size = u32::try_from(bytes).ok().filter(|size| *size > 0);
    let size = size.ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{bytes} bytes do not fit a map's value"),
        )
    })?;
    let mut spec = MapSpec::array(name, size, 1);
    spec.flags = MMAPABLE;
    Ok(spec)
}

/// `bytes` rounded up to whole pages.
pub(crate) fn page_multiple(bytes: usize) -> usize {
    bytes.next_multiple_of(rustix::param::page_size())
}
