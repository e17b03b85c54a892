//! Room for messages.
//!
//! All messages of a process lie in one stretch of address space, so that Wasm code, whose
//! memory this is, works on each where it lies: a message is a number of bytes from its
//! beginning. No application maps it, and no program writes to what is a message.
//!
//! The blocks of rings, which programs fill, are mapped there as well ([`Pool`]), so that what
//! they have written is a message without a copy. Any other buffer is a block of a power of
//! two of bytes. Blocks that were given back are taken again first; of each size so many keep
//! their pages, and what others have, if it is whole pages, goes to the kernel.

use std::alloc::{self, Layout};
use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rustix::io::Errno;
use rustix::mm::{self, Advice, MapFlags, MprotectFlags, ProtFlags};

pub use crate::pool::Pool;

/// The address space: reserved, and made of pages as it is needed.
pub const SPACE_BYTES: usize = 1 << 31;

/// What of it is for [pools](Pool), at its end.
const POOLS_BYTES: usize = SPACE_BYTES / 2;

/// What of it is for [scratch blocks](Buffer::scratch).
const SCRATCH_BYTES: usize = SPACE_BYTES / 8;

/// Where they begin.
const POOLS: usize = SPACE_BYTES - POOLS_BYTES;

/// The smallest block, for a frame of 1,514 bytes with room around it.
const BLOCK_BYTES: usize = 2048;

/// The largest block: the longest message with room around it, and some more.
const MOST_BYTES: usize = 256 * 1024;

/// Sizes of blocks.
const SIZES: usize = (MOST_BYTES / BLOCK_BYTES).trailing_zeros() as usize + 1;

/// Free blocks of one size that keep their pages.
const MOST_FREE: usize = 256;

/// Made accessible at once.
const STEP_BYTES: usize = 4 << 20;

static SPACE: OnceLock<Result<Space, i32>> = OnceLock::new();

/// The stretch of address space that all messages of the process lie in.
pub struct Space {
    base: NonNull<u8>,
    blocks: Mutex<Blocks>,
}

/// Which blocks there are.
#[derive(Debug)]
struct Blocks {
    /// Where the next new one begins, of messages and of scratch.
    next: [usize; 2],
    /// What may be touched begins and ends here: from the front for messages, from
    /// [`SCRATCH`] for scratch.
    open: [usize; 2],
    free: [Vec<usize>; SIZES],
    /// Those of them whose pages are gone.
    bare: [Vec<usize>; SIZES],
    scratch: Vec<usize>,
    /// Where pools are mapped, in order.
    pools: Vec<Range<usize>>,
}

/// Whether a block is a message's or scratch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Message = 0,
    Scratch = 1,
}

impl Use {
    /// Where its blocks begin and end.
    const fn range(self) -> (usize, usize) {
        match self {
            Self::Message => (0, POOLS - SCRATCH_BYTES),
            Self::Scratch => (POOLS - SCRATCH_BYTES, POOLS),
        }
    }
}

// SAFETY: the space is never unmapped, and `base` alone gives no access: bytes are reached
// through buffers, of which no two have one in common, and by Wasm code that runs while
// the buffer of its message is borrowed.
unsafe impl Send for Space {}
// SAFETY: as above.
unsafe impl Sync for Space {}

/// The process's space for messages.
///
/// # Errors
///
/// What the kernel returned when it was to be reserved: `ENOMEM` if a limit leaves no room
/// for [`SPACE_BYTES`] of addresses (`RLIMIT_AS`) or for the first scratch blocks (`RLIMIT_DATA`, or
/// `vm.overcommit_memory` of 2).
pub fn space() -> io::Result<&'static Space> {
    let space = SPACE.get_or_init(|| Space::reserve().map_err(Errno::raw_os_error));
    space
        .as_ref()
        .map_err(|errno| io::Error::from_raw_os_error(*errno))
}

impl Space {
    fn reserve() -> Result<Self, Errno> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: without MAP_FIXED the kernel picks unused address space.
        let base = unsafe {
            mm::mmap_anonymous(std::ptr::null_mut(), SPACE_BYTES, ProtFlags::empty(), flags)
        }?;
        let base = NonNull::new(base.cast()).ok_or(Errno::NOMEM)?;
        let begin = [Use::Message, Use::Scratch].map(|of| of.range().0);
        let mut blocks = Blocks {
            next: begin,
            open: begin,
            free: Default::default(),
            bare: Default::default(),
            scratch: Vec::new(),
            pools: Vec::new(),
        };
        // So many scratch blocks there are, whatever limits leave for messages.
        Self::open(base, &mut blocks, Use::Scratch)?;
        let blocks = Mutex::new(blocks);
        Ok(Self { base, blocks })
    }

    /// Lets some more of it be touched.
    fn open(base: NonNull<u8>, blocks: &mut Blocks, of: Use) -> Result<(), Errno> {
        let open = &mut blocks.open[of as usize];
        // SAFETY: the caller goes on from one step to the next as long as the use has a range,
        // which is whole steps and within the reservation.
        let from = unsafe { base.add(*open) };
        let both = MprotectFlags::READ | MprotectFlags::WRITE;
        // SAFETY: these pages are of the reservation, and nobody uses them yet.
        unsafe { mm::mprotect(from.as_ptr().cast(), STEP_BYTES, both) }?;
        *open += STEP_BYTES;
        Ok(())
    }

    /// Where it begins.
    #[must_use]
    pub const fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// How far from the beginning these bytes lie, if they do, whole. Whoever is told
    /// the number may write them as long as `bytes` is borrowed.
    #[must_use]
    pub fn place_of(&self, bytes: &mut [u8]) -> Option<usize> {
        // Exposed: code that knows only the number writes there.
        let at = bytes.as_mut_ptr().expose_provenance();
        let at = at.checked_sub(self.base.as_ptr().expose_provenance())?;
        (at < SPACE_BYTES && bytes.len() <= SPACE_BYTES - at).then_some(at)
    }

    fn blocks(&self) -> std::sync::MutexGuard<'_, Blocks> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a block of this size, or a larger one if there is no room for more; says of
    /// which size it is.
    fn take(&self, size: usize, of: Use) -> Option<(NonNull<u8>, usize)> {
        let mut blocks = self.blocks();
        let blocks = &mut *blocks;
        let (at, size) = match blocks.pop(size, of) {
            Some(at) => (at, size),
            None => match self.new_block(blocks, BLOCK_BYTES << size, of) {
                Some(at) => (at, size),
                None => (size + 1..SIZES).find_map(|size| Some((blocks.pop(size, of)?, size)))?,
            },
        };
        // SAFETY: blocks lie within the reservation.
        Some((unsafe { self.base.add(at) }, size))
    }

    #[cold]
    fn new_block(&self, blocks: &mut Blocks, bytes: usize, of: Use) -> Option<usize> {
        let number = of as usize;
        // Whole pages, where it has any.
        let page = rustix::param::page_size();
        let at = blocks.next[number].next_multiple_of(bytes.min(page));
        let end = at + bytes;
        if end > of.range().1 {
            return None;
        }
        while blocks.open[number] < end {
            Self::open(self.base, blocks, of).ok()?;
        }
        blocks.next[number] = end;
        Some(at)
    }

    /// Takes a block back, which nobody uses any more.
    fn give_back(&self, block: NonNull<u8>, size: usize, of: Use) {
        let at = block.addr().get() - self.base.addr().get();
        let mut blocks = self.blocks();
        let free = match of {
            Use::Message => &mut blocks.free[size],
            Use::Scratch => &mut blocks.scratch,
        };
        let bytes = BLOCK_BYTES << size;
        if of == Use::Scratch || free.len() < MOST_FREE || bytes < rustix::param::page_size() {
            // Of less than a page, pages would be others', too.
            return free.push(at);
        }
        // SAFETY: the block's pages, which it has to itself, are nobody's now; they read as
        // zeros afterwards. Where that fails they are merely kept.
        let _ = unsafe { mm::madvise(block.as_ptr().cast(), bytes, Advice::LinuxDontNeed) };
        blocks.bare[size].push(at);
    }
}

impl Blocks {
    /// A block that was given back: rather one that has its pages.
    fn pop(&mut self, size: usize, of: Use) -> Option<usize> {
        match of {
            Use::Message => self.free[size].pop().or_else(|| self.bare[size].pop()),
            Use::Scratch => self.scratch.pop(),
        }
    }
}

/// Pools.
impl Space {
    /// Takes room for a pool of so many bytes, whole pages; `None` if there is none.
    pub(crate) fn take_pool(&self, bytes: usize) -> Option<NonNull<u8>> {
        let mut blocks = self.blocks();
        let pools = &mut blocks.pools;
        let ends = std::iter::once(POOLS).chain(pools.iter().map(|pool| pool.end));
        let starts = pools.iter().map(|pool| pool.start);
        let starts = starts.chain(std::iter::once(SPACE_BYTES));
        let mut gaps = ends.zip(starts).enumerate();
        let (number, (at, _)) = gaps.find(|(_, (from, to))| to - from >= bytes)?;
        pools.insert(number, at..at + bytes);
        // SAFETY: within the reservation.
        Some(unsafe { self.base.add(at) })
    }

    /// Takes the room of a pool back, where nothing is mapped any more.
    pub(crate) fn give_pool_back(&self, pool: NonNull<u8>) {
        let at = pool.addr().get() - self.base.addr().get();
        self.blocks().pools.retain(|known| known.start != at);
    }
}

impl fmt::Debug for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Space").finish_non_exhaustive()
    }
}

/// Bytes that a message lies in. Where the space has no room for one more, they are of the
/// heap: then Wasm code works on a copy.
pub struct Buffer {
    base: NonNull<u8>,
    len: usize,
    of: Owner,
}

/// Whose they are.
#[derive(Clone, Debug)]
enum Owner {
    Space {
        size: u8,
        of: Use,
    },
    /// A ring's, which gets the block back.
    Pool(Arc<Pool>),
    Heap,
    /// There are none.
    Nobody,
}

// SAFETY: it owns its bytes, which are not tied to a thread.
unsafe impl Send for Buffer {}
// SAFETY: `&Buffer` only reads them.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Of at least so many bytes; what they are, nobody says. Takes a lock for a moment;
    /// seldom a system call.
    ///
    /// # Panics
    ///
    /// If there is neither room in the space nor memory.
    #[must_use]
    pub fn new(len: usize) -> Self {
        let size = size_of_block(len);
        let block = size.and_then(|size| space().ok()?.take(size, Use::Message));
        match block {
            Some((base, size)) => Self::of_block(base, size, Use::Message),
            None => Self::of_heap(len),
        }
    }

    /// A block for what does not lie in the space and is to be worked on there: of at least
    /// so many bytes, at most 256 KiB.
    ///
    /// # Panics
    ///
    /// If it is longer, there is no [`space`], or all others are in use: sixteen threads, or a
    /// thousand where no limit is in the way, would have to run a handler at once.
    #[must_use]
    pub fn scratch(len: usize) -> Self {
        assert!(
            len <= MOST_BYTES,
            "{len} bytes are more than a scratch block has"
        );
        let size = SIZES - 1;
        let space = space().expect("an instance was made in it");
        let block = space.take(size, Use::Scratch);
        let (block, _) = block.expect("as many threads do not run handlers at once");
        Self::of_block(block, size, Use::Scratch)
    }

    /// A block of a pool, which nobody else has.
    pub(crate) const fn of_pool(base: NonNull<u8>, len: usize, pool: Arc<Pool>) -> Self {
        let of = Owner::Pool(pool);
        Self { base, len, of }
    }

    /// Where it begins, if it is a block of this pool.
    pub(crate) fn base_in(&mut self, pool: &Arc<Pool>) -> Option<&mut NonNull<u8>> {
        let same = matches!(&self.of, Owner::Pool(of) if Arc::ptr_eq(of, pool));
        same.then_some(&mut self.base)
    }

    const fn of_block(base: NonNull<u8>, size: usize, of: Use) -> Self {
        Self {
            base,
            len: BLOCK_BYTES << size,
            of: Owner::Space {
                size: size as u8,
                of,
            },
        }
    }

    #[cold]
    fn of_heap(len: usize) -> Self {
        let len = len.max(1);
        let layout = layout(len);
        // SAFETY: the layout's size is not zero.
        let base = unsafe { alloc::alloc_zeroed(layout) };
        let Some(base) = NonNull::new(base) else {
            alloc::handle_alloc_error(layout);
        };
        Self {
            base,
            len,
            of: Owner::Heap,
        }
    }

    /// Whether it is a block of a pool of whose spare ones more than half are in messages: who
    /// keeps it for long takes it from others.
    #[must_use]
    pub fn is_scarce(&self) -> bool {
        matches!(&self.of, Owner::Pool(pool) if pool.is_scarce())
    }

    /// Whether it is a block of a pool, which a ring is to have back.
    #[must_use]
    pub const fn is_of_pool(&self) -> bool {
        matches!(&self.of, Owner::Pool(_))
    }

    /// Whether it is a block of a pool whose ring is [gone](Pool::close).
    #[must_use]
    pub fn is_of_closed(&self) -> bool {
        matches!(&self.of, Owner::Pool(pool) if pool.is_closed())
    }

    /// Makes it at least so long: if it is not, it becomes another, with the same bytes in
    /// front. Says whether they were copied for it.
    pub fn grow(&mut self, len: usize) -> bool {
        let grows = len > self.len;
        if grows {
            let mut longer = Self::new(len);
            longer[..self.len].copy_from_slice(self);
            *self = longer;
        }
        grows
    }
}

/// Which block has so many bytes, if one has.
const fn size_of_block(len: usize) -> Option<usize> {
    if len > MOST_BYTES {
        return None;
    }
    let blocks = len.div_ceil(BLOCK_BYTES).next_power_of_two();
    Some(blocks.trailing_zeros() as usize)
}

fn layout(len: usize) -> Layout {
    Layout::array::<u8>(len).expect("no message is that long")
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the bytes are mapped, were written (by the kernel, as zeros) and are this
        // buffer's alone; whoever else writes them has borrowed it.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.len) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        match &self.of {
            Owner::Space { size, of } => {
                if let Ok(space) = space() {
                    space.give_back(self.base, (*size).into(), *of);
                }
            }
            Owner::Pool(pool) => pool.give_back(self.base),
            Owner::Nobody => {}
            // SAFETY: allocated in `of_heap` with this very layout, given back once.
            Owner::Heap => unsafe { alloc::dealloc(self.base.as_ptr(), layout(self.len)) },
        }
    }
}

/// Of no bytes.
impl Default for Buffer {
    fn default() -> Self {
        Self {
            base: NonNull::dangling(),
            len: 0,
            of: Owner::Nobody,
        }
    }
}

impl Clone for Buffer {
    fn clone(&self) -> Self {
        let mut same = Self::new(self.len);
        same[..self.len].copy_from_slice(self);
        same
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Buffer");
        shown.field("len", &self.len).field("of", &self.of);
        shown.finish_non_exhaustive()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn place(buffer: &mut Buffer) -> Option<usize> {
        space().unwrap().place_of(buffer)
    }

    #[test]
    fn buffers_lie_in_the_space_and_have_no_byte_in_common() {
        let lens = [
            0,
            1,
            1642,
            4448,
            BLOCK_BYTES,
            BLOCK_BYTES + 1,
            70_000,
            MOST_BYTES,
        ];
        let mut buffers = lens.map(Buffer::new);
        let mut places: Vec<_> = buffers
            .iter_mut()
            .map(|buffer| (place(buffer).unwrap(), buffer.len()))
            .collect();
        for ((at, len), wanted) in places.iter().zip(lens) {
            assert!(*len >= wanted && at % BLOCK_BYTES == 0);
        }
        places.sort_unstable();
        assert!(places.windows(2).all(|two| two[0].0 + two[0].1 <= two[1].0));
        for (number, buffer) in (0..).zip(&mut buffers) {
            buffer.fill(number);
        }
        for (number, buffer) in (0..).zip(&buffers) {
            assert!(buffer.iter().all(|byte| *byte == number));
        }
    }

    #[test]
    fn what_was_given_back_is_taken_again() {
        let size = size_of_block(MOST_BYTES).unwrap();
        // Other tests take blocks, too, but none as many of this size.
        let mut many: Vec<_> = (0..=MOST_FREE + 8)
            .map(|_| Buffer::new(MOST_BYTES))
            .collect();
        let mut places: Vec<_> = many.iter_mut().map(|one| place(one).unwrap()).collect();
        many[0].fill(7);
        drop(many);
        let mut again: Vec<_> = (0..places.len()).map(|_| Buffer::new(MOST_BYTES)).collect();
        let mut found: Vec<_> = again.iter_mut().map(|one| place(one).unwrap()).collect();
        places.sort_unstable();
        found.sort_unstable();
        let common = found.iter().filter(|at| places.binary_search(at).is_ok());
        assert!(common.count() >= MOST_FREE, "{size}");
    }

    #[test]
    fn a_buffer_that_grows_keeps_its_bytes() {
        let mut buffer = Buffer::new(100);
        buffer.fill(3);
        let len = buffer.len();
        assert!(!buffer.grow(len));
        assert!(buffer.grow(len + 1));
        assert!(buffer.len() > len && buffer[..len].iter().all(|byte| *byte == 3));
        assert_eq!(buffer.clone()[..len], buffer[..len]);
    }

    #[test]
    fn the_room_of_a_pool_is_taken_again() {
        let space = Space::reserve().unwrap();
        let bytes = POOLS_BYTES / 4;
        let all: Vec<_> = std::iter::from_fn(|| space.take_pool(bytes)).collect();
        assert_eq!(all.len(), 4);
        space.give_pool_back(all[1]);
        assert_eq!(space.take_pool(bytes + 1), None);
        assert_eq!(space.take_pool(bytes / 2), Some(all[1]));
        space.give_pool_back(all[0]);
        assert_eq!(space.take_pool(bytes / 2 + 1), Some(all[0]));
    }

    #[test]
    fn what_is_too_long_is_of_the_heap() {
        let mut buffer = Buffer::new(MOST_BYTES + 1);
        assert_eq!(place(&mut buffer), None);
        assert_eq!(buffer[MOST_BYTES], 0);
        let mut scratch = Buffer::scratch(MOST_BYTES);
        assert!(place(&mut scratch) >= Some(POOLS - SCRATCH_BYTES));
        let mut own = [0; 8];
        assert_eq!(space().unwrap().place_of(&mut own), None);
    }
}
