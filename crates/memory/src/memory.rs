//! The memory of an instance, which its handler and its application share.
//!
//! The application, promoted handlers in softirq and the daemon map these
//! bytes at the same time. No lock guards them, because a handler stopped
//! while it holds one would stop the network. So nothing here forms a `&[u8]`
//! into them: bytes are copied out, once, and the copy is what gets checked.
//!
//! | kind | what it is | who can use it |
//! | --- | --- | --- |
//! | arena | `BPF_MAP_TYPE_ARENA` (Linux 6.9) | programs loaded with `CAP_PERFMON`, all mappings at one address |
//! | array | a mappable array (Linux 5.5) | programs loaded without it, mapped anywhere |
//! | anonymous | a sealed memfd | processes only: the user tier without BPF |
//!
//! In the process that creates a memory, the address space around it is kept
//! free ([`RESERVED_BYTES`]), so that Wasmtime can use it as a linear memory
//! whose guard pages stand in for bounds checks.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::fs::{MemfdFlags, SealFlags};

use crate::mapping::{Mapping, OutsideMemory};
use crate::page_multiple;

/// Alignment of an arena's address: the low 32 bits of a pointer are the
/// offset, so a Wasm address needs no arithmetic to become an arena address.
pub const ALIGNMENT: usize = 1 << 32;

/// Address space beyond 4 GiB that stays inaccessible: the largest constant
/// offset Wasmtime leaves to the guard (its `memory_guard_size`, 32 MiB).
pub const GUARD_BYTES: usize = 32 << 20;

/// Address space from [`Memory::base`] on in which nothing else lies, in the
/// process that created the memory.
pub const RESERVED_BYTES: usize = ALIGNMENT + GUARD_BYTES;

/// Which of the three kinds a memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryKind {
    /// A BPF arena.
    Arena,
    /// A mappable array map with one entry.
    Array,
    /// A memfd, which no kernel program can reach.
    Anonymous,
}

impl MemoryKind {
    /// The name used in the CLI and over the control socket.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Arena => "arena",
            Self::Array => "array",
            Self::Anonymous => "anonymous",
        }
    }

    /// The kind with this name, if there is one.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Arena, Self::Array, Self::Anonymous]
            .into_iter()
            .find(|kind| kind.name() == name)
    }
}

/// Where something is in a memory, *according to* a handler or application.
///
/// Nothing is known about the number until [`Memory::copy_out`] has looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllegedOffset(pub u32);

/// Address space for a memory that this process is about to make: an arena has to be
/// told where it will be.
#[derive(Debug)]
pub struct Reservation {
    mapping: Mapping,
    /// Of the memory, in whole pages.
    bytes: usize,
}

impl Reservation {
    /// Keeps room for `bytes` bytes, rounded up to whole pages.
    ///
    /// # Errors
    ///
    /// What `mmap(2)` returned; `InvalidInput` for 0 bytes or 4 GiB.
    pub fn new(bytes: usize) -> io::Result<Self> {
        let bytes = checked_size(bytes)?;
        let mapping = reservation()?;
        Ok(Self { mapping, bytes })
    }

    /// Where the memory will be.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.mapping.base().as_ptr() as u64
    }

    /// Bytes of the memory; a multiple of the page size.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// An instance's memory, mapped into this process.
#[derive(Debug)]
pub struct Memory {
    kind: MemoryKind,
    /// Where every process must map it, for an arena; else 0.
    address: u64,
    mapping: Mapping,
    fd: OwnedFd,
}

impl Memory {
    /// Maps a memory that this process has just made into the address space that was
    /// kept for it. Programs and processes then reach it as
    /// [`address`](Self::address) says.
    ///
    /// An arena's pages are all present afterwards, because a page that nobody touched
    /// silently swallows what a program stores; so the cost grows with the size. They are
    /// charged to the memory cgroup of the calling thread, also those of later mappings.
    ///
    /// # Errors
    ///
    /// What `mmap(2)` or `madvise(2)` returned.
    pub fn made(reservation: Reservation, kind: MemoryKind, fd: OwnedFd) -> io::Result<Self> {
        let Reservation { mut mapping, bytes } = reservation;
        let address = match kind {
            MemoryKind::Arena => mapping.base().as_ptr() as u64,
            MemoryKind::Array | MemoryKind::Anonymous => 0,
        };
        mapping.fill(fd.as_fd(), bytes)?;
        // An array's pages are mapped at once, and cannot be asked for again.
        if kind != MemoryKind::Array {
            mapping.populate()?;
        }
        Ok(Self {
            kind,
            address,
            mapping,
            fd,
        })
    }

    /// Makes a memory without BPF, for the user tier only. Needs no privilege.
    ///
    /// # Errors
    ///
    /// What `memfd_create(2)`, `ftruncate(2)` or `mmap(2)` returned.
    pub fn anonymous(bytes: usize) -> io::Result<Self> {
        let reservation = Reservation::new(bytes)?;
        let fd = rustix::fs::memfd_create(
            c"ashway_memory",
            MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
        )?;
        rustix::fs::ftruncate(&fd, reservation.bytes as u64)?;
        // An application that could shrink the file would make us fault
        // (SIGBUS) on pages that are gone.
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Self::made(reservation, MemoryKind::Anonymous, fd)
    }

    /// Maps a memory that another process made and whose fd came from there.
    /// Needs no capability.
    ///
    /// `len` and `address` are those of the maker's [`Memory::len`] and
    /// [`Memory::address`]. The pages are populated in this process too: a
    /// mapping of an arena pays for its own page faults.
    ///
    /// # Errors
    ///
    /// What `mmap(2)` or `madvise(2)` returned. `EEXIST`: something else lies
    /// at an arena's address in this process.
    pub fn map_received(
        fd: OwnedFd,
        kind: MemoryKind,
        len: usize,
        address: u64,
    ) -> io::Result<Self> {
        let len = checked_size(len)?;
        let mapping = match kind {
            MemoryKind::Arena => Mapping::shared_at(fd.as_fd(), address, len)?,
            MemoryKind::Array | MemoryKind::Anonymous => Mapping::shared(fd.as_fd(), 0, len, true)?,
        };
        // An array's pages are mapped at once, and cannot be asked for again.
        if kind != MemoryKind::Array {
            mapping.populate()?;
        }
        Ok(Self {
            kind,
            address,
            mapping,
            fd,
        })
    }

    /// Which kind of memory it is.
    #[must_use]
    pub fn kind(&self) -> MemoryKind {
        self.kind
    }

    /// Where it is mapped in this process. Others write there at any time:
    /// never form a reference to anything but an atomic behind it.
    #[must_use]
    pub fn base(&self) -> NonNull<u8> {
        self.mapping.base()
    }

    /// Bytes of it; a multiple of the page size.
    #[must_use]
    pub fn len(&self) -> usize {
        self.mapping.len()
    }

    /// Never: a memory has at least one page.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of address space from [`Memory::base`] on that belong to this
    /// memory: [`RESERVED_BYTES`] where it was created, [`Memory::len`] where
    /// it was received. Beyond `len` an access faults.
    #[must_use]
    pub fn reserved_bytes(&self) -> usize {
        self.mapping.reserved()
    }

    /// Where every process must map an arena (`map_extra`); 0 for the other
    /// kinds, which can be mapped anywhere.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.address
    }

    /// The map, or the memfd, to name in a program or send to an application.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Fills `into` with the bytes alleged to be at `at`. Does not allocate.
    ///
    /// The copy can be torn if the owner writes meanwhile. That harms only the
    /// owner, because every later check works on the copy.
    ///
    /// # Errors
    ///
    /// [`OutsideMemory`] if any byte asked for is not in the memory; `into` is
    /// then left alone.
    pub fn copy_out(&self, at: AllegedOffset, into: &mut [u8]) -> Result<(), OutsideMemory> {
        let AllegedOffset(offset) = at;
        self.mapping.copy_out(offset as usize, into)
    }

    /// Writes `bytes` where `at` alleges there is room. Does not allocate; the
    /// owner can see part of it.
    ///
    /// # Errors
    ///
    /// [`OutsideMemory`] if any byte would fall outside the memory; nothing is
    /// then written.
    pub fn copy_in(&self, at: AllegedOffset, bytes: &[u8]) -> Result<(), OutsideMemory> {
        let AllegedOffset(offset) = at;
        self.mapping.copy_in(offset as usize, bytes)
    }

    /// The word at `offset`, which is one of ours (a layout's), not alleged.
    ///
    /// # Panics
    ///
    /// If the word is outside the memory or not aligned.
    #[must_use]
    pub fn u32_at(&self, offset: usize) -> &AtomicU32 {
        self.mapping.u32_at(offset)
    }

    /// The double word at `offset`, which is one of ours, not alleged.
    ///
    /// # Panics
    ///
    /// If the double word is outside the memory or not aligned.
    #[must_use]
    pub fn u64_at(&self, offset: usize) -> &AtomicU64 {
        self.mapping.u64_at(offset)
    }
}

impl AsFd for Memory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd()
    }
}

/// `bytes` in whole pages: at least one, at most what a 32-bit offset reaches.
fn checked_size(bytes: usize) -> io::Result<usize> {
    let rounded = page_multiple(bytes);
    if rounded == 0 || rounded >= ALIGNMENT {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("a memory of {bytes} bytes is not between 1 page and 4 GiB"),
        ));
    }
    Ok(rounded)
}

/// Reserves [`RESERVED_BYTES`] at a multiple of [`ALIGNMENT`].
///
/// The same address must be free in every process that maps an arena later. So
/// it is taken from the quiet middle of the address space: programs and heaps
/// start above `0x5500_0000_0000`, libraries and stacks lie near the top, the
/// shadow memory of sanitizers and the heaps of managed languages end below
/// `0x1100_0000_0000`. The process id spreads the arenas of several daemons.
fn reservation() -> io::Result<Mapping> {
    /// First address tried, in units of [`ALIGNMENT`].
    const FIRST: u64 = 0x1100;
    /// Places in the quiet range; each takes two units, to hold the guard.
    const PLACES: u64 = 0x2000;
    /// Places tried before the kernel chooses.
    const ATTEMPTS: u64 = 64;
    static NEXT: AtomicU32 = AtomicU32::new(0);

    for _ in 0..ATTEMPTS {
        let turn = u64::from(NEXT.fetch_add(1, Ordering::Relaxed));
        let place = (u64::from(std::process::id()) * 37 + turn) % PLACES;
        let address = (FIRST + 2 * place) * ALIGNMENT as u64;
        match Mapping::reserve(address, RESERVED_BYTES) {
            Ok(mapping) => return Ok(mapping),
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {}
            // The machine's addresses are narrower than 47 bits.
            Err(error) if error.raw_os_error() == Some(libc::ENOMEM) => break,
            Err(error) => return Err(error),
        }
    }
    Mapping::reserve(0, RESERVED_BYTES + ALIGNMENT)?.trim(ALIGNMENT, RESERVED_BYTES)
}
