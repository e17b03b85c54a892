//! A handler's endpoint: where `deliver` leads (`docs/abi/deliver.md`).
//!
//! The ring lies in the instance's memory ([`ashway_abi::endpoint`]); here are the
//! socket by which its reader is woken, who that is, and the user tier's half of the
//! producer. The kernel tier's is `codegen::instance::endpoint`.
//!
//! One process reads an endpoint at a time. It is known by a pidfd, so it cannot be
//! mistaken for a later one of the same number, and when it has died, however, the
//! next look ([`Endpoint::release_if_gone`]) closes the endpoint.
//!
//! The reader can do to its descriptor what it likes, and the worker must not wait for
//! it. So each reader gets one end of a new socket pair, and the node writes to the
//! other, whose flags are the node's own. An event descriptor will not do: reader and
//! node would share one open file description, and the reader could fill the counter
//! and clear `O_NONBLOCK`. Nor will a pipe: while its reader copies, it holds the lock
//! that the writer needs, and a page fault of the reader's choice can take for ever.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ashway_abi::memory::Layout;
use ashway_abi::{Count, endpoint, trusted};
use ashway_memory::{AllegedOffset, Memory, SharedArray};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SendFlags, Shutdown, send, shutdown};

use crate::peer::Peer;

/// An endpoint's words, its reader and the reader's bell.
#[derive(Debug, Default)]
pub struct Endpoint {
    reader: Mutex<Option<Peer>>,
    /// The node's end of what the reader sleeps on. A lock of its own: the worker takes
    /// it, and nobody makes a system call under it that can wait.
    bell: Mutex<Option<UnixStream>>,
    /// Where no kernel program puts messages in: what is a trusted word elsewhere.
    own: [AtomicU32; 2],
}

/// What a producer works on.
#[derive(Clone, Copy, Debug)]
pub struct EndpointPlace<'i> {
    /// Its regions.
    pub layout: &'i Layout,
    /// The instance's memory.
    pub(crate) memory: &'i Memory,
    /// The trusted words, if the kernel has a side.
    pub(crate) trusted: Option<&'i SharedArray>,
}

/// Why a process does not get an endpoint.
#[derive(Debug)]
pub enum OpenError {
    /// The process with this number reads it.
    Held(u32),
    /// No socket pair can be had.
    Socket(io::Error),
}

impl Endpoint {
    /// The process that reads it.
    pub fn reader(&self) -> Option<u32> {
        let reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        reader.as_ref().map(|peer| peer.pid)
    }

    /// Gives it to `peer`, empty, and returns what `peer` sleeps on. The same process may
    /// ask again, and loses what it has not taken out.
    ///
    /// # Errors
    ///
    /// [`OpenError`]; who has it keeps it.
    pub fn open(&self, place: EndpointPlace<'_>, peer: Peer) -> Result<OwnedFd, OpenError> {
        self.release_if_gone(place);
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(other) = &*reader
            && other.pid != peer.pid
        {
            return Err(OpenError::Held(other.pid));
        }
        let (bell, event) = socket_pair().map_err(OpenError::Socket)?;
        let control = place.layout.endpoint_control();
        let produced = self.word(place, trusted::ENDPOINT_PRODUCED);
        let produced = produced.load(Ordering::Acquire);
        let words = [(endpoint::CONSUMED, produced), (endpoint::NEED_WAKE, 0)];
        for (offset, value) in words {
            let word = place.memory.u32_at(control + offset);
            word.store(value, Ordering::Release);
        }
        *reader = Some(peer);
        let former = self.bell().replace(bell);
        let open = self.word(place, trusted::ENDPOINT_OPEN);
        open.store(1, Ordering::Release);
        drop(former);
        Ok(event.into())
    }

    /// Closes it if its reader has died. A system call if it has one.
    pub fn release_if_gone(&self, place: EndpointPlace<'_>) {
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        if reader.as_ref().is_some_and(Peer::is_gone) {
            let open = self.word(place, trusted::ENDPOINT_OPEN);
            open.store(0, Ordering::Release);
            *reader = None;
            let bell = self.bell().take();
            drop(bell);
        }
    }

    /// Puts a message in, and says what became of it. Bounded by its length; does
    /// not allocate. A system call if the reader sleeps.
    pub(crate) fn deliver(&self, place: EndpointPlace<'_>, path: u32, message: &[u8]) -> Count {
        let EndpointPlace { layout, memory, .. } = place;
        let open = self.word(place, trusted::ENDPOINT_OPEN);
        if open.load(Ordering::Acquire) == 0 {
            return Count::DroppedNoEndpoint;
        }
        if message.len() > layout.endpoint_slot_bytes {
            return Count::DroppedTooLong;
        }
        let Some(ticket) = self.ticket(place) else {
            return Count::DroppedEndpointFull;
        };
        let slot = ticket as usize % layout.endpoint_slots;
        let at = AllegedOffset(layout.endpoint_payload(slot) as u32);
        let (len, fate) = match memory.copy_in(at, message) {
            Ok(()) => (message.len() as u32, Count::Delivered),
            // Only a layout that disagrees with the memory could get here.
            Err(_) => (endpoint::VOID, Count::DroppedTooLong),
        };
        let word = |offset| memory.u32_at(layout.endpoint_descriptor(slot) + offset);
        word(endpoint::LEN).store(len, Ordering::Relaxed);
        word(endpoint::PATH).store(path, Ordering::Relaxed);
        // A full barrier, between "here is one" and "does the application sleep?".
        word(endpoint::READY).swap(ticket.wrapping_add(1), Ordering::SeqCst);
        let asleep = memory.u32_at(layout.endpoint_control() + endpoint::NEED_WAKE);
        if asleep.load(Ordering::SeqCst) != 0 {
            asleep.store(0, Ordering::Relaxed);
            self.signal();
        }
        fate
    }

    /// Signals the reader if the kernel tier has asked for it. A load if not.
    pub(crate) fn wake(&self, place: EndpointPlace<'_>) {
        if let Some(trusted) = place.trusted {
            let wake = trusted.u32_at(trusted::ENDPOINT_WAKE);
            if wake.load(Ordering::Relaxed) != 0 && wake.swap(0, Ordering::SeqCst) != 0 {
                self.signal();
            }
        }
    }

    fn signal(&self) {
        if let Some(bell) = &*self.bell() {
            // Full: then it is signalled already. Closed by the reader: its own loss.
            let _ = send(bell, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        }
    }

    fn bell(&self) -> MutexGuard<'_, Option<UnixStream>> {
        self.bell.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the next place, if there is one. The kernel tier may take one meanwhile.
    fn ticket(&self, place: EndpointPlace<'_>) -> Option<u32> {
        let control = place.layout.endpoint_control();
        let consumed = place.memory.u32_at(control + endpoint::CONSUMED);
        let produced = self.word(place, trusted::ENDPOINT_PRODUCED);
        let slots = place.layout.endpoint_slots as u32;
        let next = |ticket: u32| {
            let unread = ticket.wrapping_sub(consumed.load(Ordering::Acquire));
            (unread < slots).then(|| ticket.wrapping_add(1))
        };
        produced
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, next)
            .ok()
    }

    fn word<'w>(&'w self, place: EndpointPlace<'w>, offset: usize) -> &'w AtomicU32 {
        match place.trusted {
            Some(trusted) => trusted.u32_at(offset),
            None => &self.own[(offset - trusted::ENDPOINT_PRODUCED) / 4],
        }
    }
}

/// The node's end and the reader's, which is read without waiting and cannot be written.
fn socket_pair() -> io::Result<(UnixStream, UnixStream)> {
    let (bell, event) = UnixStream::pair()?;
    event.set_nonblocking(true)?;
    shutdown(&bell, Shutdown::Read)?;
    Ok((bell, event))
}

impl Peer {
    /// Whether the process has ended. A system call.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        // Interrupted: the next look will tell.
        poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ashway_ring::endpoint::{Endpoint as Reader, EndpointPlace as At};
    use proptest::prelude::*;
    use rustix::process::{PidfdFlags, getpid, pidfd_open};
    use std::time::Duration;

    const SLOTS: usize = 16;

    fn layout() -> Layout {
        Layout {
            guest_bytes: 65536,
            state_bytes: 65536,
            endpoint_slots: SLOTS,
            endpoint_slot_bytes: 256,
        }
    }

    fn this() -> Peer {
        let pid = getpid();
        Peer {
            pid: pid.as_raw_nonzero().get().unsigned_abs(),
            pidfd: pidfd_open(pid, PidfdFlags::empty()).unwrap(),
        }
    }

    fn map(memory: &Memory, event: OwnedFd) -> Reader {
        let layout = layout();
        let at = At {
            address: 0,
            bytes: memory.len(),
            slots: SLOTS,
            slot_bytes: layout.endpoint_slot_bytes,
            payloads_at: layout.endpoint_payload(0),
            control_at: layout.endpoint_control(),
        };
        Reader::map(memory.fd(), event, at).unwrap()
    }

    /// What may happen next.
    #[derive(Clone, Debug)]
    enum Op {
        Deliver(Vec<u8>),
        Take,
        /// The application writes to the endpoint's words what it likes.
        Scribble(usize, u32),
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            3 => prop::collection::vec(any::<u8>(), 0..300).prop_map(Op::Deliver),
            3 => Just(Op::Take),
        ]
    }

    fn hostile() -> impl Strategy<Value = Op> {
        let words = endpoint::CONTROL_BYTES / 4 + SLOTS * endpoint::DESCRIPTOR_BYTES / 4;
        prop_oneof![2 => op(), 1 => (0..words, any::<u32>()).prop_map(|(w, v)| Op::Scribble(w, v))]
    }

    proptest! {
        /// In order, none lost, none twice, and full exactly when it is.
        #[test]
        fn what_is_delivered_is_taken_out(ops in prop::collection::vec(op(), 0..200)) {
            let layout = layout();
            let memory = Memory::anonymous(layout.total_bytes()).unwrap();
            let place = EndpointPlace { layout: &layout, memory: &memory, trusted: None };
            let endpoint = Endpoint::default();
            prop_assert_eq!(endpoint.deliver(place, 0, b"x"), Count::DroppedNoEndpoint);
            let event = endpoint.open(place, this()).unwrap();
            let mut reader = map(&memory, event);
            let mut model = std::collections::VecDeque::new();
            let mut into = [0; 256];
            for (number, op) in ops.into_iter().enumerate() {
                if let Op::Deliver(bytes) = op {
                    let expected = match bytes.len() {
                        257.. => Count::DroppedTooLong,
                        _ if model.len() == SLOTS => Count::DroppedEndpointFull,
                        _ => Count::Delivered,
                    };
                    let path = number as u32;
                    prop_assert_eq!(endpoint.deliver(place, path, &bytes), expected);
                    if expected == Count::Delivered {
                        model.push_back((path, bytes));
                    }
                } else {
                    let taken = reader.take(&mut into);
                    let taken = taken.map(|taken| (taken.path, into[..taken.len].to_vec()));
                    prop_assert_eq!(taken, model.pop_front());
                }
            }
        }

        /// Whatever the application writes there, nothing outside the ring changes,
        /// and every message has a fate.
        #[test]
        fn a_hostile_application_spoils_its_ring_only(
            ops in prop::collection::vec(hostile(), 0..200),
        ) {
            let layout = layout();
            let memory = Memory::anonymous(layout.total_bytes()).unwrap();
            let place = EndpointPlace { layout: &layout, memory: &memory, trusted: None };
            let endpoint = Endpoint::default();
            let event = endpoint.open(place, this()).unwrap();
            let mut reader = map(&memory, event);
            let mut into = [0; 256];
            for op in ops {
                match op {
                    Op::Deliver(bytes) => {
                        let fate = endpoint.deliver(place, 0, &bytes);
                        let known = [
                            Count::Delivered,
                            Count::DroppedEndpointFull,
                            Count::DroppedTooLong,
                        ];
                        prop_assert!(known.contains(&fate));
                    }
                    Op::Take => {
                        if let Some(taken) = reader.take(&mut into) {
                            prop_assert!(taken.len <= 256);
                        }
                    }
                    Op::Scribble(word, value) => {
                        let at = layout.endpoint_control() + 4 * word;
                        memory.u32_at(at).store(value, Ordering::Relaxed);
                    }
                }
            }
            let mut before = vec![1; layout.endpoint_payload(0)];
            memory.copy_out(AllegedOffset(0), &mut before).unwrap();
            prop_assert!(before.iter().all(|byte| *byte == 0));
        }
    }

    /// Two producers and a reader that sleeps whenever it can: each message arrives,
    /// those of one producer in order, and no wake-up is lost.
    #[test]
    fn a_sleeping_reader_misses_nothing() {
        const EACH: u32 = 20_000;
        let layout = layout();
        let memory = Memory::anonymous(layout.total_bytes()).unwrap();
        let place = EndpointPlace {
            layout: &layout,
            memory: &memory,
            trusted: None,
        };
        let endpoint = Endpoint::default();
        let event = endpoint.open(place, this()).unwrap();
        let mut reader = map(&memory, event);
        std::thread::scope(|scope| {
            for producer in 0..2 {
                let endpoint = &endpoint;
                scope.spawn(move || {
                    for number in 0..EACH {
                        let message = number.to_le_bytes();
                        while endpoint.deliver(place, producer, &message) != Count::Delivered {
                            std::thread::yield_now();
                        }
                    }
                });
            }
            let mut next = [0; 2];
            let mut into = [0; 4];
            while next != [EACH; 2] {
                let Some(taken) = reader.take(&mut into) else {
                    // Producers retry for ever: without a message for so long a
                    // wake-up was lost.
                    let woken = reader.wait(Some(Duration::from_secs(20)));
                    assert!(woken.unwrap(), "slept over a message: {next:?}");
                    continue;
                };
                let number = &mut next[taken.path as usize];
                assert_eq!(u32::from_le_bytes(into), *number);
                *number += 1;
            }
        });
    }

    #[test]
    fn one_process_reads_until_it_ends() {
        let layout = layout();
        let memory = Memory::anonymous(layout.total_bytes()).unwrap();
        let place = EndpointPlace {
            layout: &layout,
            memory: &memory,
            trusted: None,
        };
        let endpoint = Endpoint::default();
        let mut child = std::process::Command::new("sleep")
            .arg("600")
            .spawn()
            .unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        let peer = Peer {
            pid: child.id(),
            pidfd: pidfd_open(pid, PidfdFlags::empty()).unwrap(),
        };
        let event = endpoint.open(place, peer).unwrap();
        let refused = endpoint.open(place, this()).unwrap_err();
        assert!(matches!(refused, OpenError::Held(by) if by == child.id()));
        endpoint.release_if_gone(place);
        assert_eq!(endpoint.reader(), Some(child.id()));
        assert_eq!(endpoint.deliver(place, 0, b"x"), Count::Delivered);
        child.kill().unwrap();
        child.wait().unwrap();
        endpoint.release_if_gone(place);
        assert_eq!(endpoint.reader(), None);
        assert_eq!(endpoint.deliver(place, 0, b"x"), Count::DroppedNoEndpoint);
        // Who has the dead one's descriptor reads what was delivered, and then learns
        // that nothing more comes.
        let mut heir = map(&memory, event);
        assert!(heir.wait(None).unwrap());
        assert!(heir.take(&mut [0; 4]).is_some());
        let gone = heir.wait(None).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::BrokenPipe);
        let event = endpoint.open(place, this()).unwrap();
        // What the dead one has left is not the new one's.
        assert_eq!(map(&memory, event).take(&mut [0; 4]), None);
    }
}
