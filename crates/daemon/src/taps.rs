//! What taps see, in capture files: written by a thread for each file, so that a
//! slow disk costs messages in the file and no time on the path.
//!
//! The worker copies a message into a bounded queue; one that finds it full is
//! counted as lost. A file that cannot be written is begun anew, at most once a
//! second; what would have been written meanwhile is counted too.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{File, rename};
use std::io::{self, BufWriter, Write};
use std::path::{Path as FsPath, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use ashway_modules::tap::pcapng::{Record, Writer};
use ashway_modules::tap::{Bound, Layer, Seen, Target, Watch};
use ashway_path::time::Time;
use serde_json::{Value, json};

/// Messages that may wait to be written.
const WAITING: usize = 1024;

/// Bytes that are kept of a message: all of any datagram.
const SNAPLEN: u32 = 65_535;

/// How long a file that failed is left alone.
const PAUSE: Duration = Duration::from_secs(1);

/// The files of a node's taps.
#[derive(Debug, Default)]
pub(crate) struct Taps(Mutex<BTreeMap<PathBuf, Open>>);

#[derive(Debug)]
struct Open {
    file: Arc<TapFile>,
    thread: Option<JoinHandle<()>>,
}

/// A file that a tap writes.
#[derive(Debug)]
pub(crate) struct TapFile {
    tap: String,
    queue: SyncSender<Option<Copied>>,
    books: Arc<Books>,
}

/// What became of the messages that a tap has seen.
#[derive(Debug, Default)]
struct Books {
    written: AtomicU64,
    /// The queue was full.
    lost: AtomicU64,
    /// The file could not be written.
    failed: AtomicU64,
    because: Mutex<Option<String>>,
}

struct Copied {
    at: Time,
    bound: Bound,
    path: Box<str>,
    layer: Layer,
    bytes: Box<[u8]>,
}

impl Taps {
    /// The writer of a tap's file; begins the file if nobody has.
    ///
    /// # Errors
    ///
    /// Why it cannot be begun. `ResourceBusy` if another tap writes it.
    pub(crate) fn open(
        &self,
        tap: &str,
        path: &FsPath,
        target: &Target,
    ) -> io::Result<Arc<TapFile>> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = open.get(path) {
            // A graph is made anew when a handler is loaded.
            return if known.file.tap == tap {
                Ok(Arc::clone(&known.file))
            } else {
                let because = format!("the tap `{}` writes it", known.file.tap);
                Err(io::Error::new(io::ErrorKind::ResourceBusy, because))
            };
        }
        let (queue, copies) = sync_channel(WAITING);
        let books = Arc::new(Books::default());
        let epoch = epoch();
        let mut book = Book {
            tap: tap.to_owned(),
            path: path.to_owned(),
            max_bytes: target.max_bytes,
            epoch,
            books: Arc::clone(&books),
            // A wrong name is said before the node is ready.
            writer: Some(begin(path, epoch)?),
            failed_at: None,
        };
        let thread = std::thread::Builder::new()
            .name("ashway-tap".to_owned())
            .spawn(move || book.keep(&copies))?;
        let file = Arc::new(TapFile {
            tap: tap.to_owned(),
            queue,
            books,
        });
        let thread = Some(thread);
        let entry = Open {
            file: Arc::clone(&file),
            thread,
        };
        open.insert(path.to_owned(), entry);
        Ok(file)
    }

    /// As `status` has them.
    pub(crate) fn describe(&self) -> Vec<Value> {
        let open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let one = |(path, open): (&PathBuf, &Open)| {
            let books = &open.file.books;
            let because = books.because.lock();
            json!({
                "tap": open.file.tap,
                "file": path,
                "written": books.written.load(Relaxed),
                "lost": books.lost.load(Relaxed),
                "failed": books.failed.load(Relaxed),
                "because": *because.unwrap_or_else(PoisonError::into_inner),
            })
        };
        open.iter().map(one).collect()
    }
}

impl Drop for Taps {
    /// Waits until what was seen has been written.
    fn drop(&mut self) {
        let open = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        for open in open.values_mut() {
            // It ends at the latest with this.
            let _ = open.file.queue.send(None);
            if let Some(thread) = open.thread.take() {
                let _ = thread.join();
            }
        }
    }
}

impl Watch for TapFile {
    fn see(&self, seen: &Seen<'_>) {
        let kept = seen.bytes.len().min(SNAPLEN as usize);
        let copied = Copied {
            at: seen.at,
            bound: seen.bound,
            path: seen.path.into(),
            layer: seen.layer,
            bytes: seen.bytes[..kept].into(),
        };
        match self.queue.try_send(Some(copied)) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.books.lost.fetch_add(1, Relaxed);
            }
        }
    }
}

/// A file as its thread has it.
struct Book {
    tap: String,
    path: PathBuf,
    max_bytes: u64,
    epoch: Duration,
    books: Arc<Books>,
    writer: Option<Writer<Counted>>,
    failed_at: Option<Instant>,
}

/// What the Unix clock shows at [`Time`] 0.
fn epoch() -> Duration {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let running = Duration::from_nanos(crate::worker::now().0);
    since.unwrap_or_default().saturating_sub(running)
}

/// Begins a file, with nothing but its header.
fn begin(path: &FsPath, epoch: Duration) -> io::Result<Writer<Counted>> {
    let to = Counted {
        to: BufWriter::new(File::create(path)?),
        bytes: 0,
    };
    Writer::new(to, SNAPLEN, epoch)
}

/// Writes, and counts the bytes.
struct Counted {
    to: BufWriter<File>,
    bytes: u64,
}

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

impl fmt::Debug for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Counted").field(&self.bytes).finish()
    }
}

impl Book {
    /// Writes what comes until nothing more will. What waits for more is flushed:
    /// whoever reads along sees whole messages.
    fn keep(&mut self, copies: &Receiver<Option<Copied>>) {
        loop {
            let copied = match copies.try_recv() {
                Ok(copied) => copied,
                Err(TryRecvError::Empty) => {
                    self.flush();
                    let Ok(copied) = copies.recv() else { return };
                    copied
                }
                Err(TryRecvError::Disconnected) => None,
            };
            let Some(copied) = copied else {
                return self.flush();
            };
            match self.write(&copied) {
                Ok(()) => self.books.written.fetch_add(1, Relaxed),
                Err(error) => {
                    self.fail(&error);
                    self.books.failed.fetch_add(1, Relaxed)
                }
            };
        }
    }

    fn write(&mut self, copied: &Copied) -> io::Result<()> {
        let record = Record {
            at: copied.at,
            bound: copied.bound,
            interface: &self.tap,
            layer: copied.layer,
            bytes: &copied.bytes,
            fate: None,
            comment: &copied.path,
        };
        // A block has its bytes, and less than 200 of headers and options besides.
        let more = (copied.bytes.len() + copied.path.len() + 200) as u64;
        if let Some(writer) = &mut self.writer {
            if writer.get_ref().bytes + more <= self.max_bytes {
                return writer.write(&record);
            }
            writer.get_mut().flush()?;
            self.writer = None;
            let mut before = self.path.clone().into_os_string();
            before.push(".1");
            rename(&self.path, before)?;
        }
        if self.failed_at.is_some_and(|at| at.elapsed() < PAUSE) {
            return Err(io::Error::other("it failed a moment ago"));
        }
        let writer = begin(&self.path, self.epoch)?;
        self.writer.insert(writer).write(&record)
    }

    fn flush(&mut self) {
        let flushed = self.writer.as_mut().map(|writer| writer.get_mut().flush());
        if let Some(Err(error)) = flushed {
            self.fail(&error);
        }
    }

    /// Notes why nothing can be written; the file is begun anew later, and what it
    /// held by then is lost.
    fn fail(&mut self, error: &io::Error) {
        self.writer = None;
        if self.failed_at.is_none_or(|at| at.elapsed() >= PAUSE) {
            self.failed_at = Some(Instant::now());
            let mut because = self
                .books
                .because
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            *because = Some(error.to_string());
        }
    }
}
