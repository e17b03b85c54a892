//! A capture file in the place of a wire: what is in one file comes, what leaves goes into
//! another.
//!
//! A frame comes when all paths are done with the one before, so nothing is lost because it is
//! read too fast, and what becomes of the messages does not depend on how fast the machine is.
//! Besides, with [`ReplayPace::Capture`], not before its time: the first at once, and each later one as
//! long after the first as it was then. The node's clock, which handlers and timers see, is that
//! of the machine all the same.
//!
//! There is no host behind it. What is passed goes into the other file, as what is sent does: the
//! two are told apart by their direction.
//!
//! Reading and writing are system calls on regular files, which may wait for the disk. So a node
//! with a capture and other interfaces serves these no faster than its disk.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use ashway_abi::Count;
use ashway_abi::memory::HEADROOM_BYTES;
use ashway_config::ReplayPace;
use ashway_memory::messages::Buffer;
use ashway_modules::tap::pcapng::{Record, Writer};
use ashway_modules::tap::{Bound, Layer};
use ashway_path::time::Time;

use super::{Medium, Received};
use crate::bell::Bell;
use crate::capture::CaptureReader;
use crate::clock::now;

/// Frames that are stepped over at a look, because the capture has cut them.
const STEPS: usize = 64;

/// The longest frame that is written whole.
const SNAPLEN: u32 = 0x4_0000;

/// How far a capture has come: the worker writes it, the node reads.
#[derive(Debug, Default)]
pub struct CaptureProgress {
    /// Whether it may begin.
    begun: AtomicBool,
    read: AtomicU64,
    cut: AtomicU64,
    written: AtomicU64,
    /// How reading has ended.
    end: OnceLock<Result<(), String>>,
    /// Why writing has.
    unwritten: OnceLock<String>,
}

impl CaptureProgress {
    /// Lets it begin, and the worker, once that is woken, reads.
    pub fn begin(&self) {
        self.begun.store(true, Ordering::Release);
    }

    /// Frames that the node has received.
    #[must_use]
    pub fn read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// Frames that it has not, because the capture has not all of them.
    #[must_use]
    pub fn cut(&self) -> u64 {
        self.cut.load(Ordering::Relaxed)
    }

    /// Frames written.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// How reading has ended, if it has: then all paths are done with all that came of it. The
    /// error is what is broken in the file, behind the frames that were read.
    #[must_use]
    pub fn end(&self) -> Option<&Result<(), String>> {
        self.end.get()
    }

    /// Why nothing more is written, if so.
    #[must_use]
    pub fn unwritten(&self) -> Option<&str> {
        self.unwritten.get().map(String::as_str)
    }
}

/// See the [module](self).
#[derive(Debug)]
pub struct CaptureMedium {
    name: String,
    reader: Option<CaptureReader>,
    writer: Option<Writer<BufWriter<File>>>,
    pace: ReplayPace,
    /// The next frame, if it was read and its time has not come.
    next: Option<Duration>,
    next_bytes: Vec<u8>,
    /// The last that came.
    last_bytes: Vec<u8>,
    /// Its time in the capture, and when it came.
    last: Option<(Duration, Time)>,
    /// The same of the first.
    first: Option<(Duration, Time)>,
    progress: Arc<CaptureProgress>,
    bell: Arc<Bell>,
}

impl CaptureMedium {
    /// Reads and writes these; rings `bell` when there is news.
    ///
    /// # Errors
    ///
    /// When the output cannot be written.
    pub fn new(
        name: &str,
        reader: Option<CaptureReader>,
        output: Option<File>,
        pace: ReplayPace,
        bell: Arc<Bell>,
    ) -> io::Result<Self> {
        let writer = output.map(|file| Writer::new(BufWriter::new(file), SNAPLEN, Duration::ZERO));
        Ok(Self {
            name: name.to_owned(),
            reader,
            writer: writer.transpose()?,
            pace,
            next: None,
            next_bytes: Vec::new(),
            last_bytes: Vec::new(),
            last: None,
            first: None,
            progress: Arc::default(),
            bell,
        })
    }

    /// How far it has come.
    #[must_use]
    pub fn progress(&self) -> Arc<CaptureProgress> {
        Arc::clone(&self.progress)
    }

    /// Reads up to the next whole frame, if it is not there already.
    fn read_ahead(&mut self) {
        for _ in 0..STEPS {
            let (None, Some(reader)) = (self.next, &mut self.reader) else {
                return;
            };
            match reader.next(&mut self.next_bytes) {
                Ok(Some(frame)) if frame.bytes as usize > self.next_bytes.len() => {
                    self.progress.cut.fetch_add(1, Ordering::Relaxed);
                }
                Ok(Some(frame)) => self.next = Some(frame.time),
                Ok(None) => self.end(Ok(())),
                Err(broken) => self.end(Err(broken)),
            }
        }
    }

    fn end(&mut self, how: Result<(), String>) {
        self.reader = None;
        self.flush();
        // It has not ended before.
        let _ = self.progress.end.set(how);
        self.bell.ring();
    }

    /// When the next frame is to come.
    fn due(&self, time: Duration) -> Time {
        match (self.pace, self.first) {
            (ReplayPace::Capture, Some((first, came))) => {
                Time(came.0.saturating_add(nanos(time.saturating_sub(first))))
            }
            _ => Time(0),
        }
    }

    /// What the capture's clock shows now: at full pace, what it showed for the frame that came
    /// last.
    fn stamp(&self) -> Time {
        match (self.last, self.pace) {
            (Some((time, came)), ReplayPace::Capture) => {
                Time(nanos(time).saturating_add(now().0.saturating_sub(came.0)))
            }
            (Some((time, _)), ReplayPace::Full) => Time(nanos(time)),
            (None, _) => {
                let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
                Time(nanos(since.unwrap_or_default()))
            }
        }
    }

    /// Writes a frame, if somebody wants it; whether nothing went wrong.
    fn write(&mut self, frame: &[u8], bound: Bound, fate: Option<Count>) -> bool {
        let at = self.stamp();
        let Some(writer) = &mut self.writer else {
            return self.progress.unwritten.get().is_none();
        };
        let written = writer.write(&Record {
            at,
            bound,
            interface: &self.name,
            layer: Layer::Link,
            bytes: frame,
            fate,
            comment: "",
        });
        if let Err(error) = &written {
            self.give_up(error);
            return false;
        }
        self.progress.written.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Behind an error the file is of no use.
    fn give_up(&mut self, error: &io::Error) {
        self.writer = None;
        let _ = self.progress.unwritten.set(error.to_string());
        self.bell.ring();
    }

    /// Of the frame that came last, and is passed.
    fn pass_on(&mut self, frame: &[u8]) -> Count {
        if self.write(frame, Bound::Inbound, Some(Count::Passed)) {
            Count::Passed
        } else {
            Count::DroppedPassFailed
        }
    }
}

impl Medium for CaptureMedium {
    fn receive(&mut self, rooms: &mut [Buffer]) -> io::Result<usize> {
        if !self.progress.begun.load(Ordering::Acquire) {
            return Ok(0);
        }
        self.read_ahead();
        let Some(time) = self.next else {
            return Ok(0);
        };
        let now = now();
        if self.due(time) > now {
            return Ok(0);
        }
        let [room, ..] = rooms else {
            return Ok(0);
        };
        self.next = None;
        std::mem::swap(&mut self.last_bytes, &mut self.next_bytes);
        let room = &mut room[HEADROOM_BYTES..];
        let front = self.last_bytes.len().min(room.len());
        room[..front].copy_from_slice(&self.last_bytes[..front]);
        self.last = Some((time, now));
        self.first = self.first.or(self.last);
        self.progress.read.fetch_add(1, Ordering::Relaxed);
        Ok(1)
    }

    fn received(&self, _at: usize) -> Received {
        Received {
            len: self.last_bytes.len(),
            gso_size: 0,
        }
    }

    fn rest(&self, _at: usize, taken: usize) -> &[u8] {
        self.last_bytes.get(taken..).unwrap_or_default()
    }

    fn send(&mut self, frame: &[u8]) -> Count {
        if self.write(frame, Bound::Outbound, None) {
            Count::OutHandedOver
        } else {
            Count::OutDroppedTxFull
        }
    }

    fn pass(&mut self, frame: &[u8]) -> Count {
        self.pass_on(frame)
    }

    fn leave(&mut self, _at: usize, _front: &[u8]) -> Count {
        let frame = std::mem::take(&mut self.last_bytes);
        let fate = self.pass_on(&frame);
        self.last_bytes = frame;
        fate
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn due_at(&self) -> Option<Time> {
        let waits = self.reader.is_some() && self.progress.begun.load(Ordering::Acquire);
        waits.then(|| self.next.map_or(Time(0), |time| self.due(time)))
    }

    fn is_one_by_one(&self) -> bool {
        true
    }

    fn flush(&mut self) {
        if let Some(writer) = &mut self.writer
            && let Err(error) = writer.get_mut().flush()
        {
            self.give_up(&error);
        }
    }

    fn shut(&mut self) -> bool {
        self.reader = None;
        self.next = None;
        true
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
