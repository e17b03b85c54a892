//! BPF maps: made, read and written through `bpf(2)`.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use crate::sys::{self, Command};

/// What sort of map it is (`enum bpf_map_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum MapKind {
    /// Keys and values of any size.
    Hash = 1,
    /// Values at indices 0 to n - 1, zero from the start.
    Array = 2,
    /// Programs to tail-call.
    ProgArray = 3,
    /// An array with one copy of each value per CPU.
    PercpuArray = 6,
    /// `AF_XDP` sockets to redirect to.
    XskMap = 17,
    /// A queue of records from programs to user space (Linux 5.8).
    RingBuf = 27,
    /// Memory shared by programs and processes (Linux 6.9); see
    /// [`shared::arena`](crate::shared::arena).
    Arena = 33,
}

/// Flag of a map: an array whose values user space can map (Linux 5.5).
pub const MMAPABLE: u32 = 1 << 10;

/// Flag of a map: a hash whose entries are allocated when they are inserted,
/// and not all at the start.
pub const NO_PREALLOC: u32 = 1;

/// What to make.
#[derive(Clone, Copy, Debug)]
pub struct MapSpec<'a> {
    /// What sort of map.
    pub kind: MapKind,
    /// Bytes of a key: 4 for arrays, 0 for ring buffers and arenas.
    pub key_size: u32,
    /// Bytes of a value: 4 for program arrays and XSK maps, 0 for ring buffers
    /// and arenas.
    pub value_size: u32,
    /// Number of entries; bytes for a ring buffer; pages for an arena.
    pub max_entries: u32,
    /// `BPF_F_*`, e.g. [`MMAPABLE`].
    pub flags: u32,
    /// Shown by `bpftool map`; cut to 15 characters.
    pub name: &'a str,
}

impl<'a> MapSpec<'a> {
    /// An array of `max_entries` values.
    #[must_use]
    pub const fn array(name: &'a str, value_size: u32, max_entries: u32) -> Self {
        Self {
            kind: MapKind::Array,
            key_size: 4,
            value_size,
            max_entries,
            flags: 0,
            name,
        }
    }

    /// A hash of at most `max_entries` entries. Takes 16 bytes for each of them,
    /// rounded up to a power of two, at once, and the rest as they come.
    #[must_use]
    pub const fn hash(name: &'a str, key_size: u32, value_size: u32, max_entries: u32) -> Self {
        Self {
            kind: MapKind::Hash,
            key_size,
            value_size,
            max_entries,
            flags: NO_PREALLOC,
            name,
        }
    }

    /// An array of `max_entries` values for each CPU.
    #[must_use]
    pub const fn percpu_array(name: &'a str, value_size: u32, max_entries: u32) -> Self {
        let mut spec = Self::array(name, value_size, max_entries);
        spec.kind = MapKind::PercpuArray;
        spec
    }

    /// An array of programs.
    #[must_use]
    pub const fn prog_array(name: &'a str, max_entries: u32) -> Self {
        let mut spec = Self::array(name, 4, max_entries);
        spec.kind = MapKind::ProgArray;
        spec
    }

    /// An array of `AF_XDP` sockets.
    #[must_use]
    pub const fn xsk_map(name: &'a str, max_entries: u32) -> Self {
        let mut spec = Self::array(name, 4, max_entries);
        spec.kind = MapKind::XskMap;
        spec
    }
}

/// A BPF map. Closing the last fd of it, here or in a loaded program, frees it.
#[derive(Debug)]
pub struct Map {
    fd: OwnedFd,
    key_size: usize,
    /// Bytes of one value.
    value_size: usize,
    /// Bytes that one call reads or writes: for a per-CPU array, a value
    /// rounded up to 8 bytes for each possible CPU.
    transfer_bytes: usize,
}

impl Map {
    /// Makes a map.
    ///
    /// # Errors
    ///
    /// What `BPF_MAP_CREATE` returned; `EPERM` means that `CAP_BPF` is missing.
    pub fn create(spec: &MapSpec<'_>) -> io::Result<Self> {
        Self::create_with(spec, 0)
    }

    /// [`Map::create`] with the kind's own extra word.
    pub(crate) fn create_with(spec: &MapSpec<'_>, extra: u64) -> io::Result<Self> {
        let mut attr = sys::MapCreate {
            kind: spec.kind as u32,
            key_size: spec.key_size,
            value_size: spec.value_size,
            max_entries: spec.max_entries,
            flags: spec.flags,
            name: sys::object_name(spec.name),
            extra,
            ..Default::default()
        };
        // SAFETY: the block holds no pointers.
        let fd = unsafe { sys::bpf_fd(Command::MapCreate, &mut attr) }?;
        let value_size = spec.value_size as usize;
        let transfer_bytes = match spec.kind {
            MapKind::PercpuArray => value_size.next_multiple_of(8) * possible_cpus()?,
            _ => value_size,
        };
        Ok(Self {
            fd,
            key_size: spec.key_size as usize,
            value_size,
            transfer_bytes,
        })
    }

    /// Sets the value of `key`. For a per-CPU array `value` is one value per
    /// possible CPU, each rounded up to 8 bytes.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a key or value of the wrong length, else what
    /// `BPF_MAP_UPDATE_ELEM` returned.
    pub fn update(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        if key.len() != self.key_size || value.len() != self.transfer_bytes {
            return Err(wrong_length());
        }
        let mut attr = self.element(key, sys::address(value));
        // SAFETY: key and value are as long as the map's, and outlive the call.
        unsafe { sys::bpf(Command::MapUpdate, &mut attr) }?;
        Ok(())
    }

    /// The value of `key`, if it has one; for a per-CPU array all of them, one
    /// after the other ([`Map::lookup_percpu`] takes them apart). Allocates.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a key of the wrong length, else what
    /// `BPF_MAP_LOOKUP_ELEM` returned.
    pub fn lookup(&self, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        if key.len() != self.key_size {
            return Err(wrong_length());
        }
        let mut value = vec![0; self.transfer_bytes];
        let mut attr = self.element(key, value.as_mut_ptr() as u64);
        // SAFETY: the key is as long as the map's, and `value` has room for
        // what the kernel writes: a value, of every possible CPU if per CPU.
        match unsafe { sys::bpf(Command::MapLookup, &mut attr) } {
            Ok(_) => Ok(Some(value)),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The values of `key` in a per-CPU array, one for each possible CPU, each
    /// rounded up to 8 bytes. Empty if there is no such key. Allocates.
    ///
    /// # Errors
    ///
    /// As for [`Map::lookup`].
    pub fn lookup_percpu(&self, key: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        let Some(values) = self.lookup(key)? else {
            return Ok(Vec::new());
        };
        Ok(values
            .chunks_exact(self.value_size.next_multiple_of(8))
            .map(<[u8]>::to_vec)
            .collect())
    }

    /// Removes `key`; says whether it was there.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a key of the wrong length, else what
    /// `BPF_MAP_DELETE_ELEM` returned (`EINVAL` for arrays).
    pub fn delete(&self, key: &[u8]) -> io::Result<bool> {
        if key.len() != self.key_size {
            return Err(wrong_length());
        }
        let mut attr = self.element(key, 0);
        // SAFETY: the key is as long as the map's and outlives the call.
        match unsafe { sys::bpf(Command::MapDelete, &mut attr) } {
            Ok(_) => Ok(true),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Sets many values in one call: `keys` and `values` are one after the other.
    /// Linux 5.6; about 0.1 us for each entry of a hash.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if they are not as many keys as values, else what
    /// `BPF_MAP_UPDATE_BATCH` returned (`E2BIG`: the map is full); those before
    /// the one at fault are set.
    pub fn update_batch(&self, keys: &[u8], values: &[u8]) -> io::Result<()> {
        let count = self.count(keys)?;
        if values.len() != count as usize * self.transfer_bytes {
            return Err(wrong_length());
        }
        if count == 1 {
            // The kernel makes no copies of a batch of one.
            return self.update(keys, values);
        }
        self.batch(Command::MapUpdateBatch, keys, sys::address(values), count)
    }

    /// Removes many keys in one call, one after the other in `keys`. Linux 5.6.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if that is no whole number of keys, else what
    /// `BPF_MAP_DELETE_BATCH` returned: `ENOENT` for one that is not there, and
    /// those behind it are left.
    pub fn delete_batch(&self, keys: &[u8]) -> io::Result<()> {
        let count = self.count(keys)?;
        if count == 1 {
            // The kernel makes no copies of a batch of one.
            let was_there = self.delete(keys)?;
            return was_there
                .then_some(())
                .ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT));
        }
        self.batch(Command::MapDeleteBatch, keys, 0, count)
    }

    fn batch(&self, command: Command, keys: &[u8], values: u64, count: u32) -> io::Result<()> {
        if count == 0 {
            return Ok(());
        }
        let mut attr = sys::MapBatch {
            keys: sys::address(keys),
            values,
            count,
            map_fd: self.fd.as_raw_fd() as u32,
            ..Default::default()
        };
        // SAFETY: there are `count` keys of the map's length and, for an update,
        // as many values, and they outlive the call.
        unsafe { sys::bpf(command, &mut attr) }?;
        Ok(())
    }

    /// Every entry of a hash: keys and values, in no order. An entry that comes
    /// or goes meanwhile is there or not. Allocates; Linux 5.6.
    ///
    /// # Errors
    ///
    /// What `BPF_MAP_LOOKUP_BATCH` returned.
    pub fn entries(&self) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
        // The kernel stops at whole buckets and wants room for the longest.
        let mut room = 1024;
        let mut place = None;
        let mut found = Vec::new();
        loop {
            let mut keys = vec![0_u8; room * self.key_size];
            let mut values = vec![0_u8; room * self.transfer_bytes];
            // What the kernel notes between two calls: a bucket's number.
            let (from, mut next) = (place.unwrap_or(0_u32), 0_u32);
            let mut attr = sys::MapBatch {
                in_batch: place.map_or(0, |_| std::ptr::from_ref(&from) as u64),
                out_batch: std::ptr::from_mut(&mut next) as u64,
                keys: keys.as_mut_ptr() as u64,
                values: values.as_mut_ptr() as u64,
                count: room as u32,
                map_fd: self.fd.as_raw_fd() as u32,
                ..Default::default()
            };
            // SAFETY: there is room for `count` keys and values and for the
            // `u32` that a hash notes, and all outlive the call.
            let done = match unsafe { sys::bpf(Command::MapLookupBatch, &mut attr) } {
                Ok(_) => false,
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => true,
                Err(error) if error.raw_os_error() == Some(libc::ENOSPC) => {
                    room *= 2;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let keys = keys.chunks_exact(self.key_size).map(<[u8]>::to_vec);
            let values = values.chunks_exact(self.transfer_bytes).map(<[u8]>::to_vec);
            found.extend(keys.zip(values).take(attr.count as usize));
            if done {
                return Ok(found);
            }
            place = Some(next);
        }
    }

    /// How many keys these bytes are.
    fn count(&self, keys: &[u8]) -> io::Result<u32> {
        if self.key_size == 0 || !keys.len().is_multiple_of(self.key_size) {
            return Err(wrong_length());
        }
        u32::try_from(keys.len() / self.key_size).map_err(|_| wrong_length())
    }

    /// Puts a program (or, in an XSK map, a socket) into a slot. Replacing a
    /// program takes about 27 us; packets see the old or the new one.
    ///
    /// # Errors
    ///
    /// What `BPF_MAP_UPDATE_ELEM` returned; `EINVAL` if the program does not
    /// fit the others of the array (type, `xdp_has_frags`).
    pub fn set_slot(&self, index: u32, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.update(&index.to_ne_bytes(), &fd.as_raw_fd().to_ne_bytes())
    }

    /// Empties a slot; says whether something was in it (an XSK map always says
    /// yes).
    ///
    /// # Errors
    ///
    /// What `BPF_MAP_DELETE_ELEM` returned.
    pub fn clear_slot(&self, index: u32) -> io::Result<bool> {
        self.delete(&index.to_ne_bytes())
    }

    /// The map's fd.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(crate) fn into_fd(self) -> OwnedFd {
        self.fd
    }

    fn element(&self, key: &[u8], value: u64) -> sys::MapElement {
        sys::MapElement {
            map_fd: self.fd.as_raw_fd() as u32,
            key: sys::address(key),
            value,
            ..Default::default()
        }
    }
}

impl AsFd for Map {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd()
    }
}

/// How many CPUs this machine may ever have: what the kernel sizes per-CPU
/// values by.
///
/// # Errors
///
/// `/sys` is not mounted or does not say.
pub fn possible_cpus() -> io::Result<usize> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    count_of_ranges(text.trim())
        .ok_or_else(|| io::Error::other("cannot read the list of possible CPUs"))
}

/// How many numbers a list such as `0` or `0,2-5` holds.
fn count_of_ranges(list: &str) -> Option<usize> {
    let mut count = 0;
    for range in list.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
        count += (last + 1).checked_sub(first)?;
    }
    Some(count)
}

fn wrong_length() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        "the key or value is not as long as the map's",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists_are_counted() {
        assert_eq!(count_of_ranges("0"), Some(1));
        assert_eq!(count_of_ranges("0-3"), Some(4));
        assert_eq!(count_of_ranges("0,2-5,9"), Some(6));
        assert_eq!(count_of_ranges("5-2"), None);
        assert_eq!(count_of_ranges(""), None);
    }
}
