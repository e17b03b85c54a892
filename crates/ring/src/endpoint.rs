//! The application's end of an endpoint: takes messages out that its handler said
//! `deliver` to.
//!
//! The ring lies in the handler's memory; the protocol is
//! [`ashway_abi::endpoint`]'s. One reader, which may poll ([`Endpoint::take`]) or
//! sleep ([`Endpoint::wait`]): nobody waits for it, and what comes while its ring is
//! full is dropped and counted by the node. No system call but to sleep.
//!
//! `sdk/c/ashway_app.h` is the same in C.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::{Duration, Instant};

use ashway_abi::endpoint::{
    CONSUMED, CONTROL_BYTES, DESCRIPTOR_BYTES, LEN, MAX_SLOTS, NEED_WAKE, PATH, READY, VOID,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use ashway_memory::Mapping;

/// Where things are, as the node says (`{"request":"memory"}` and
/// `{"request":"endpoint"}`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndpointPlace {
    /// Where the memory must be mapped: that of an arena; 0 for anywhere.
    pub address: usize,
    /// Bytes of the memory.
    pub bytes: usize,
    /// Slots of the ring, a power of two.
    pub slots: usize,
    /// Bytes of a slot.
    pub slot_bytes: usize,
    /// Offset of the first payload.
    pub payloads_at: usize,
    /// Offset of the control block.
    pub control_at: usize,
}

/// A message that was taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Bytes of it; what does not fit the reader's buffer is lost.
    pub len: usize,
    /// The path it came by: its number among those of the handler.
    pub path: u32,
}

/// An endpoint's reader.
#[derive(Debug)]
pub struct Endpoint {
    mapping: Mapping,
    place: EndpointPlace,
    event: OwnedFd,
    /// Messages taken out so far (wraps).
    consumed: u32,
}

impl Endpoint {
    /// Maps the memory. `event` is the descriptor that came with the place, to sleep on.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the place is not in the memory; else what `mmap(2)` or
    /// `madvise(2)` returned. `EEXIST`: something else lies at an arena's address.
    pub fn map(memory: BorrowedFd<'_>, event: OwnedFd, place: EndpointPlace) -> io::Result<Self> {
        let inside = || {
            let payloads = place.slots.checked_mul(place.slot_bytes)?;
            let descriptors = CONTROL_BYTES + place.slots * DESCRIPTOR_BYTES;
            let ends = [
                place.payloads_at.checked_add(payloads)?,
                place.control_at.checked_add(descriptors)?,
            ];
            let aligned = place.control_at.is_multiple_of(DESCRIPTOR_BYTES);
            Some(aligned && ends.iter().all(|end| *end <= place.bytes))
        };
        let good = place.slots.is_power_of_two() && place.slots <= MAX_SLOTS;
        if !good || inside() != Some(true) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mapping = mapping(memory, place.address, place.bytes)?;
        let mut this = Self {
            mapping,
            place,
            event,
            consumed: 0,
        };
        this.consumed = this.control(CONSUMED).load(Ordering::Acquire);
        Ok(this)
    }

    /// What to sleep on beside other descriptors: readable when [`Endpoint::arm`] has
    /// said that there is nothing, and a message came. Hung up (`POLLHUP`) when no more
    /// will come: the node has ended, unloaded the handler, or given the endpoint away.
    #[must_use]
    pub fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// Takes the next message out, in the order they were delivered. Does not wait,
    /// does not allocate.
    pub fn take(&mut self, into: &mut [u8]) -> Option<Taken> {
        loop {
            if !self.is_waiting() {
                return None;
            }
            let slot = self.consumed as usize & (self.place.slots - 1);
            let descriptor = self.descriptor(slot);
            let len = self.word(descriptor + LEN).load(Ordering::Relaxed);
            let path = self.word(descriptor + PATH).load(Ordering::Relaxed);
            if len != VOID {
                let len = (len as usize).min(self.place.slot_bytes);
                let copied = len.min(into.len());
                self.copy_out(slot, &mut into[..copied]);
            }
            self.consumed = self.consumed.wrapping_add(1);
            self.control(CONSUMED)
                .store(self.consumed, Ordering::Release);
            if len != VOID {
                let len = (len as usize).min(self.place.slot_bytes);
                return Some(Taken { len, path });
            }
        }
    }

    /// Before sleeping on [`Endpoint::event`]: asks to be woken. `false` if there is a
    /// message after all.
    pub fn arm(&mut self) -> bool {
        // A signal of earlier is none of now. There may be none to read.
        let _ = rustix::io::read(&self.event, &mut [0_u8; 64]);
        self.control(NEED_WAKE).store(1, Ordering::SeqCst);
        // Pairs with the exchange of READY: either the producer sees the flag, or its
        // message is seen here.
        fence(Ordering::SeqCst);
        if self.is_waiting() {
            self.control(NEED_WAKE).store(0, Ordering::Relaxed);
            return false;
        }
        true
    }

    /// Sleeps until there is a message, or so long. Says whether there is one.
    ///
    /// # Errors
    ///
    /// What `poll(2)` returned, `EINTR` too; `BrokenPipe` if no more messages will come.
    pub fn wait(&mut self, longest: Option<Duration>) -> io::Result<bool> {
        let until = longest.and_then(|longest| Instant::now().checked_add(longest));
        // Whoever filled a later slot signals, too, while the next one is being filled.
        while !self.is_waiting() && self.arm() {
            let left = until.map(|until| {
                let left = until.saturating_duration_since(Instant::now());
                Timespec {
                    tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                    tv_nsec: left.subsec_nanos().into(),
                }
            });
            let mut event = [PollFd::new(&self.event, PollFlags::IN)];
            if poll(&mut event, left.as_ref())? == 0 {
                break;
            }
            if event[0].revents().contains(PollFlags::HUP) && !self.is_waiting() {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
        }
        Ok(self.is_waiting())
    }

    /// Fills `into`, at most a slot's bytes, from the start of a slot. The producer has
    /// left the slot alone since READY; the handler, and threads of this process, may
    /// write it all the same, since it is their memory.
    fn copy_out(&self, slot: usize, into: &mut [u8]) {
        let at = self.place.payloads_at + slot * self.place.slot_bytes;
        let copied = self.mapping.copy_out(at, into);
        copied.expect("`map` has seen that the slots are inside");
    }

    fn is_waiting(&self) -> bool {
        let slot = self.consumed as usize & (self.place.slots - 1);
        let ready = self.word(self.descriptor(slot) + READY);
        ready.load(Ordering::Acquire) == self.consumed.wrapping_add(1)
    }

    fn descriptor(&self, slot: usize) -> usize {
        self.place.control_at + CONTROL_BYTES + slot * DESCRIPTOR_BYTES
    }

    fn control(&self, offset: usize) -> &AtomicU32 {
        self.word(self.place.control_at + offset)
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        let word = self.mapping.at::<u32>(at as u64, 1);
        let word = word.expect("`map` has seen that all words are inside");
        // SAFETY: mapped and aligned, for as long as `self`; others access it by
        // atomics only.
        unsafe { AtomicU32::from_ptr(word.as_ptr()) }
    }
}

/// Maps a handler's memory: an arena at its `address`, others anywhere (0).
fn mapping(memory: BorrowedFd<'_>, address: usize, len: usize) -> io::Result<Mapping> {
    if address == 0 {
        return Mapping::populated(memory, 0, len);
    }
    let mapping = Mapping::shared_at(memory, address as u64, len)?;
    // All its pages exist; this enters them into the process's own table.
    mapping.populate()?;
    Ok(mapping)
}
