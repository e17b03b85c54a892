//! The memories of an instance, and the fence around them.
//!
//! Memory 0 (the handler's) and memory 2 (its mutable globals) lie in a
//! [`Region`] that the kernel tier and the application write at any time. Wasm code may
//! race with the application there: compiled code makes no assumption about a linear
//! memory that a foreign write could break, since it checks addresses, not contents.
//! Host code goes through [`Window`], which moves single bytes atomically and
//! never forms a reference into the region.
//!
//! Memory 1 is the [space](ashway_memory::messages) that all messages of the process lie
//! in, the same for all instances: what keeps a handler to its message is the check that
//! its module makes before each access. Memory 3 is the instance's outbox.
//!
//! Wasmtime asks for memories one by one and knows only their types, so they
//! are handed over through a thread-local queue around instantiation.

use crate::native::Passes;
use ashway_abi::memory::{Layout, MESSAGES_BYTES, WASM_PAGE};
use ashway_abi::outbox;
use ashway_memory::messages::{SPACE_BYTES, Space};
use std::alloc;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use wasmtime::{LinearMemory, MemoryCreator, MemoryType};

/// Longest message of a handler; no UDP payload is longer.
pub const MESSAGE_BYTES: usize = WASM_PAGE;

const _: () = assert!(SPACE_BYTES == MESSAGES_BYTES);

/// An instance's memory, mapped.
///
/// # Safety
///
/// [`Region::base`] and [`Region::len`] never change, the base is aligned to a
/// page, and all `len` bytes are mapped readable and writable for as long as
/// the value lives. Nobody holds a Rust reference to any of these bytes: they
/// are touched by copies and atomics only, whoever does it.
pub unsafe trait Region: Send + Sync + 'static {
    /// First byte.
    fn base(&self) -> NonNull<u8>;
    /// Size in bytes.
    fn len(&self) -> usize;
    /// Whether there is no byte.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

// SAFETY: a `Memory` is one page-aligned mapping, readable and writable from
// `base` for `len` bytes as long as it lives, and gives no reference to its bytes
// but to atomics.
unsafe impl Region for ashway_memory::Memory {
    fn base(&self) -> NonNull<u8> {
        self.base()
    }

    fn len(&self) -> usize {
        self.len()
    }
}

/// A part of a region, reached by copying only.
#[derive(Clone)]
pub(crate) struct Window {
    base: NonNull<u8>,
    len: usize,
    /// Keeps the mapping.
    _region: Arc<dyn Region>,
}

// SAFETY: the pointer is only used for atomic accesses to memory that the
// region keeps mapped, and a `Region` is `Send + Sync` itself.
unsafe impl Send for Window {}
// SAFETY: as above.
unsafe impl Sync for Window {}

impl Window {
    /// Bytes `start..start + len` of the region, if it has them.
    pub(crate) fn new(region: &Arc<dyn Region>, start: usize, len: usize) -> Option<Self> {
        if start.checked_add(len)? > region.len() {
            return None;
        }
        // SAFETY: `start` is within the region by the check above.
        let base = unsafe { region.base().add(start) };
        Some(Self {
            base,
            len,
            _region: Arc::clone(region),
        })
    }

    /// Copies `bytes` to `at`; `None`, and nothing done, outside the window.
    pub(crate) fn write(&self, at: usize, bytes: &[u8]) -> Option<()> {
        if at.checked_add(bytes.len())? > self.len {
            return None;
        }
        for (i, byte) in bytes.iter().enumerate() {
            self.byte(at + i).store(*byte, Ordering::Relaxed);
        }
        Some(())
    }

    /// The `u32` at `at`, if it is in the window. It may be torn; whoever
    /// writes it meanwhile harms himself.
    pub(crate) fn read_u32(&self, at: usize) -> Option<u32> {
        if at.checked_add(4)? > self.len {
            return None;
        }
        let bytes = std::array::from_fn(|i| self.byte(at + i).load(Ordering::Relaxed));
        Some(u32::from_le_bytes(bytes))
    }

    /// So many bytes at `at`, if they are in the window.
    pub(crate) fn span(&self, at: usize, len: usize) -> Option<Span<'_>> {
        if at.checked_add(len)? > self.len {
            return None;
        }
        // SAFETY: `at` is within the window, or its end, by the check above.
        let start = unsafe { self.base.add(at) };
        Some(Span::new(start, len))
    }

    /// The caller has checked that `at` is below `len`.
    fn byte(&self, at: usize) -> &AtomicU8 {
        // SAFETY: `at < len`, so the address is in the mapping.
        let address = unsafe { self.base.add(at) };
        // SAFETY: mapped as above; a byte is always aligned; all other
        // accesses are atomic or foreign by the contract of `Region`.
        unsafe { AtomicU8::from_ptr(address.as_ptr()) }
    }
}

/// Bytes that others may write at any time: there as long as what they are of, which
/// is borrowed for `'w`, and never behind a reference.
#[derive(Clone, Copy)]
pub(crate) struct Span<'w> {
    start: NonNull<u8>,
    len: usize,
    of: PhantomData<&'w ()>,
}

impl Span<'_> {
    /// `len` bytes are mapped at `start`, readable and writable.
    const fn new(start: NonNull<u8>, len: usize) -> Self {
        let of = PhantomData;
        Self { start, len, of }
    }

    /// Runs compiled pipes from here to there: the same bytes, or others.
    ///
    /// # Panics
    ///
    /// If there are more bytes here or there, or the registers are not as many as the
    /// list has.
    pub(crate) fn pass(self, passes: &Passes, registers: &mut [u64], to: Self) {
        assert_eq!(self.len, to.len, "what is read is written");
        let (from, to) = (self.start.as_ptr(), to.start.as_ptr());
        // SAFETY: the bytes of a span are mapped as long as it is borrowed, both have
        // this length, and no reference leads there.
        unsafe { passes.run_at(registers, from, to, self.len) };
    }

    fn bytes(&self) -> impl Iterator<Item = &AtomicU8> {
        (0..self.len).map(|at| {
            // SAFETY: `at < len`, so that the address is mapped.
            let address = unsafe { self.start.add(at) };
            // SAFETY: as above; a byte is always aligned; all other accesses are atomic
            // or those of compiled code.
            unsafe { AtomicU8::from_ptr(address.as_ptr()) }
        })
    }

    /// Copies as much out as there is room for.
    pub(crate) fn copy_to(&self, into: &mut [u8]) {
        for (to, byte) in into.iter_mut().zip(self.bytes()) {
            *to = byte.load(Ordering::Relaxed);
        }
    }

    /// Copies in, as much as there is room for.
    pub(crate) fn copy_from(&self, from: &[u8]) {
        for (from, byte) in from.iter().zip(self.bytes()) {
            byte.store(*from, Ordering::Relaxed);
        }
    }

    /// As [`Self::copy_to`], of little-endian words.
    pub(crate) fn words_to(&self, into: &mut [u64]) {
        let mut bytes = self.bytes().map(|byte| byte.load(Ordering::Relaxed));
        for to in into {
            *to = u64::from_le_bytes(std::array::from_fn(|_| bytes.next().unwrap_or(0)));
        }
    }

    /// As [`Self::copy_from`], of little-endian words.
    pub(crate) fn words_from(&self, from: &[u64]) {
        let values = from.iter().flat_map(|word| word.to_le_bytes());
        for (value, byte) in values.zip(self.bytes()) {
            byte.store(value, Ordering::Relaxed);
        }
    }
}

/// Page-aligned memory of the daemon's own.
struct Pages(NonNull<u8>);

// SAFETY: it owns its allocation, and `Outbox` orders the accesses.
unsafe impl Send for Pages {}
// SAFETY: as above; `&Pages` alone gives no access.
unsafe impl Sync for Pages {}

impl Pages {
    const LAYOUT: alloc::Layout = match alloc::Layout::from_size_align(outbox::BYTES, 4096) {
        Ok(layout) => layout,
        Err(_) => panic!("a power of two"),
    };

    fn new() -> Self {
        // SAFETY: the layout's size is not zero.
        let base = unsafe { alloc::alloc_zeroed(Self::LAYOUT) };
        let Some(base) = NonNull::new(base) else {
            alloc::handle_alloc_error(Self::LAYOUT);
        };
        Self(base)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this very layout, given back once.
        unsafe { alloc::dealloc(self.0.as_ptr(), Self::LAYOUT) };
    }
}

/// The host's handle on memory 3. There is one per instance, and Wasm code
/// runs only inside `&mut Instance` methods, so `&mut Outbox` means that
/// nobody else is at these bytes.
pub(crate) struct Outbox(Arc<Pages>);

impl Outbox {
    /// So many of its bytes.
    ///
    /// # Panics
    ///
    /// If they are not in it.
    pub(crate) fn bytes(&mut self, at: usize, len: usize) -> &mut [u8] {
        assert!(at <= outbox::BYTES && len <= outbox::BYTES - at);
        let base = self.0.0.as_ptr();
        // SAFETY: the bytes are in the allocation by the assertion.
        let start = unsafe { base.add(at) };
        // SAFETY: as above; the allocation was zeroed, and nobody else accesses it
        // during the borrow of `self`.
        unsafe { std::slice::from_raw_parts_mut(start, len) }
    }

    /// A word of it.
    pub(crate) fn word(&mut self, at: usize) -> u32 {
        let mut word = [0; 4];
        word.copy_from_slice(self.bytes(at, 4));
        u32::from_le_bytes(word)
    }

    /// A double word of it.
    pub(crate) fn double(&mut self, at: usize) -> u64 {
        let mut word = [0; 8];
        word.copy_from_slice(self.bytes(at, 8));
        u64::from_le_bytes(word)
    }

    /// Sets a word.
    pub(crate) fn set_word(&mut self, at: usize, value: u32) {
        self.bytes(at, 4).copy_from_slice(&value.to_le_bytes());
    }
}

/// The message of an activation, for the host functions that it calls.
#[derive(Debug)]
pub(crate) struct Lent {
    start: NonNull<u8>,
    len: usize,
    /// Where it is among all messages.
    at: usize,
}

// SAFETY: what it names is there while an activation runs, on whatever thread that is, and
// is named anew for the next.
unsafe impl Send for Lent {}
// SAFETY: `&Lent` reaches the bytes by functions of the activation alone.
unsafe impl Sync for Lent {}

impl Lent {
    /// None: there is no activation.
    pub(crate) const NONE: Self = Self {
        start: NonNull::dangling(),
        len: 0,
        at: 0,
    };

    /// The message at `at`, and the room behind it.
    pub(crate) const fn new(bytes: &mut [u8], at: usize) -> Self {
        let len = bytes.len();
        let start = NonNull::from_mut(bytes).cast();
        Self { start, len, at }
    }

    /// So many bytes from `at` among all messages on, if they are this one's.
    pub(crate) fn span(&self, at: usize, len: usize) -> Option<Span<'_>> {
        let first = at.checked_sub(self.at)?;
        if first.checked_add(len)? > self.len {
            return None;
        }
        // SAFETY: within the message by the check above.
        let start = unsafe { self.start.add(first) };
        Some(Span::new(start, len))
    }
}

/// One linear memory as Wasmtime sees it: it never moves, and growing it only
/// moves its end.
struct Linear {
    base: NonNull<u8>,
    size: usize,
    capacity: usize,
    /// Keeps the bytes.
    _owner: Owner,
}

/// Read by nobody: it is there to be dropped last.
#[allow(dead_code, reason = "held for its destructor")]
enum Owner {
    Region(Arc<dyn Region>),
    Outbox(Arc<Pages>),
    /// It is never unmapped.
    Space,
}

// SAFETY: the pointer stays valid with its owner, which is `Send + Sync`;
// Wasmtime orders the accesses.
unsafe impl Send for Linear {}
// SAFETY: as above.
unsafe impl Sync for Linear {}

// SAFETY: `base` and `capacity` describe bytes that the owner keeps mapped,
// and `size` never exceeds `capacity`.
unsafe impl LinearMemory for Linear {
    fn byte_size(&self) -> usize {
        self.size
    }

    fn byte_capacity(&self) -> usize {
        self.capacity
    }

    fn grow_to(&mut self, new_size: usize) -> wasmtime::Result<()> {
        if new_size > self.capacity {
            return Err(wasmtime::Error::msg("beyond the memory's declared maximum"));
        }
        self.size = new_size;
        Ok(())
    }

    fn as_ptr(&self) -> *mut u8 {
        self.base.as_ptr()
    }
}

/// The memories of the instance that is being made on this thread.
type Prepared = VecDeque<Linear>;

thread_local! {
    static PREPARED: RefCell<Prepared> = const { RefCell::new(VecDeque::new()) };
}

/// Runs `instantiate` so that the memories it asks for, in the order of the
/// encoded module, are the region's guest memory, the space of messages, the
/// region's state and a new outbox. `None` if the region is too small or not aligned.
pub(crate) fn with_memories<T>(
    region: &Arc<dyn Region>,
    layout: &Layout,
    space: &'static Space,
    instantiate: impl FnOnce() -> T,
) -> Option<(T, Outbox)> {
    let end = layout.state_offset().checked_add(layout.state_bytes)?;
    let base = region.base();
    if end > region.len() || !base.addr().get().is_multiple_of(4096) {
        return None;
    }
    let pages = Arc::new(Pages::new());
    // SAFETY: `state_offset` lies within the region by the check above.
    let state = unsafe { base.add(layout.state_offset()) };
    let shared = |base, capacity| Linear {
        base,
        size: 0,
        capacity,
        _owner: Owner::Region(Arc::clone(region)),
    };
    let messages = Linear {
        base: space.base(),
        size: 0,
        capacity: SPACE_BYTES,
        _owner: Owner::Space,
    };
    let outbox = Linear {
        base: pages.0,
        size: 0,
        capacity: outbox::BYTES,
        _owner: Owner::Outbox(Arc::clone(&pages)),
    };
    let prepared = [
        shared(base, layout.guest_bytes),
        messages,
        shared(state, layout.state_bytes),
        outbox,
    ];
    PREPARED.set(prepared.into());
    let result = instantiate();
    PREPARED.take();
    Some((result, Outbox(pages)))
}

/// Hands out what [`with_memories`] prepared.
pub(crate) struct Creator;

// SAFETY: the memories are mapped for their whole capacity as long as the
// returned value lives. No guard is promised and none is asked for: the
// engine's guard size and reservation are 0, so compiled code checks bounds.
unsafe impl MemoryCreator for Creator {
    fn new_memory(
        &self,
        _ty: MemoryType,
        minimum: usize,
        maximum: Option<usize>,
        reserved: Option<usize>,
        guard: usize,
    ) -> Result<Box<dyn LinearMemory>, String> {
        if reserved.is_some_and(|bytes| bytes > 0) || guard > 0 {
            return Err("the engine asks for address space that is in use".into());
        }
        let next = PREPARED.with_borrow_mut(VecDeque::pop_front);
        let mut memory = next.ok_or("no memory was prepared")?;
        if minimum > memory.capacity || maximum.is_none_or(|most| most > memory.capacity) {
            return Err("the module's memory is larger than its region".into());
        }
        memory.size = minimum;
        Ok(Box::new(memory))
    }
}
