//! Makes the memory that programs share with processes.
//!
//! A map is made here, by `bpf(2)`, and mapped by [`ashway_memory`], which says what each
//! kind is for. All of them need `CAP_BPF`.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ashway_abi::QueueLayout;
use ashway_abi::trusted::RING_SLOTS;
use ashway_memory::messages::Pool;
use ashway_memory::{Memory, MemoryKind, NoteRing, Reservation, SharedArray, WakeBell};

use crate::maps::{MMAPABLE, Map, MapKind, MapSpec};

/// A BPF arena of `bytes` bytes, rounded up to whole pages, for an instance.
///
/// # Errors
///
/// What `bpf(2)`, `mmap(2)` or `madvise(2)` returned. `EINVAL` from the first means a
/// kernel before 6.9, `EPERM` a missing `CAP_BPF`.
pub fn arena(bytes: usize) -> io::Result<Memory> {
    let reservation = Reservation::new(bytes)?;
    let spec = MapSpec {
        kind: MapKind::Arena,
        key_size: 0,
        value_size: 0,
        max_entries: (reservation.bytes() / rustix::param::page_size()) as u32,
        // Not BPF_F_SEGV_ON_FAULT: with it the pages cannot be populated from here
        // (EFAULT).
        flags: MMAPABLE,
        name: "ashway_memory",
    };
    let fd = Map::create_with(&spec, reservation.address())?.into_fd();
    Memory::made(reservation, MemoryKind::Arena, fd)
}

/// A mappable array of `bytes` bytes, rounded up to whole pages, for an instance. Its
/// pages always exist.
///
/// # Errors
///
/// What `bpf(2)` or `mmap(2)` returned.
pub fn array(bytes: usize) -> io::Result<Memory> {
    let reservation = Reservation::new(bytes)?;
    let fd = Map::create(&one_value("ashway_memory", reservation.bytes())?)?.into_fd();
    Memory::made(reservation, MemoryKind::Array, fd)
}

/// An array with one value of `bytes` bytes, all 0, mapped.
///
/// # Errors
///
/// What `bpf(2)` or `mmap(2)` returned; `InvalidInput` for a size that is 0 or does not
/// fit a map.
pub fn words(name: &str, bytes: usize) -> io::Result<SharedArray> {
    let map = Map::create(&one_value(name, bytes)?)?;
    SharedArray::map(map.into_fd(), bytes)
}

/// The blocks of a queue of this layout, behind its `words`, mapped as messages; and each slot
/// of its rings told which of them it has.
///
/// # Errors
///
/// What `mmap(2)` returned.
pub fn pool(words: &SharedArray, layout: &QueueLayout) -> io::Result<Arc<Pool>> {
    for (at, block) in layout.first_blocks() {
        words.u32_at(at).store(block, Ordering::Relaxed);
    }
    let counts = (layout.blocks(), layout.rings * RING_SLOTS);
    let offset = layout.pool_offset();
    // SAFETY: programs that are given the words write to blocks of slots alone
    // (`codegen/src/instance/enqueue.rs`), and we only by way of the pool.
    unsafe { Pool::map(words.fd(), offset, counts, layout.block_bytes()) }
}

/// A bell that remembers up to `bytes` bytes of records (16 for the smallest); a power
/// of two and at least a page.
///
/// # Errors
///
/// What `bpf(2)` or `mmap(2)` returned.
pub fn bell(name: &str, bytes: u32) -> io::Result<WakeBell> {
    WakeBell::map(ring_buffer(name, bytes)?.into_fd())
}

/// A ring of notes of `bytes` bytes: a power of two and at least a page. The kernel takes
/// that much memory.
///
/// # Errors
///
/// What `bpf(2)` or `mmap(2)` returned.
pub fn notes(name: &str, bytes: u32) -> io::Result<NoteRing> {
    NoteRing::map(ring_buffer(name, bytes)?.into_fd(), bytes)
}

fn ring_buffer(name: &str, bytes: u32) -> io::Result<Map> {
    Map::create(&MapSpec {
        kind: MapKind::RingBuf,
        key_size: 0,
        value_size: 0,
        max_entries: bytes,
        flags: 0,
        name,
    })
}

/// A mappable array with a single value of `bytes` bytes.
fn one_value(name: &str, bytes: usize) -> io::Result<MapSpec<'_>> {
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
