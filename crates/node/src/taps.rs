//! What taps see, in capture files: written by a thread for each file, so that a
//! slow disk costs messages in the file and no time on the path.
//!
//! The worker copies a message into a bounded queue; one that finds it full is
//! counted as lost. A file that cannot be written any more is put aside like a full
//! one and begun anew, at most once a second. What it may not have got and what would
//! have been written meanwhile is counted as failed.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{File, rename};
use std::io::{self, BufWriter, Write};
use std::path::{Path as FsPath, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ashway_api::answer;
use ashway_memory::clock;
use ashway_modules::tap::pcapng::{Record, Writer};
use ashway_modules::tap::{Bound, Layer, Seen, Target, Watch};
use ashway_path::time::Time;

use ashway_config as config;

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
    max_bytes: u64,
    /// What the file's thread will have; absent once the file is begun.
    waits: Option<(Book, Receiver<Option<Copied>>)>,
    thread: Option<JoinHandle<()>>,
}

impl Open {
    /// Whether it is begun, or is to be: a graph that was only tried has let go of it.
    fn is_wanted(&self) -> bool {
        self.waits.is_none() || Arc::strong_count(&self.file) > 1
    }
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

#[derive(Debug)]
struct Copied {
    at: Time,
    bound: Bound,
    path: Arc<str>,
    layer: Layer,
    bytes: Box<[u8]>,
}

impl Taps {
    /// The writer of a tap's file. A file that nobody has begun is begun by
    /// [`Taps::begin`]: who asks may only want to know whether it could be.
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
        open.retain(|_, open| open.is_wanted());
        if let Some(known) = open.get(path) {
            // A module that was made anew goes on with it.
            return if known.file.tap != tap {
                let because = format!("the tap `{}` writes it", known.file.tap);
                Err(io::Error::new(io::ErrorKind::ResourceBusy, because))
            } else if known.max_bytes != target.max_bytes {
                let because = format!(
                    "it was begun with `max_bytes = {}`, which holds until the node ends",
                    known.max_bytes
                );
                Err(io::Error::new(io::ErrorKind::ResourceBusy, because))
            } else {
                Ok(Arc::clone(&known.file))
            };
        }
        config::can_create(path)?;
        let (queue, copies) = sync_channel(WAITING);
        let books = Arc::new(Books::default());
        let book = Book {
            tap: tap.to_owned(),
            path: path.to_owned(),
            max_bytes: target.max_bytes,
            epoch: epoch(),
            books: Arc::clone(&books),
            writer: None,
            held: 0,
            unsure: 0,
            failed_at: None,
        };
        let file = Arc::new(TapFile {
            tap: tap.to_owned(),
            queue,
            books,
        });
        let entry = Open {
            file: Arc::clone(&file),
            max_bytes: target.max_bytes,
            waits: Some((book, copies)),
            thread: None,
        };
        open.insert(path.to_owned(), entry);
        Ok(file)
    }

    /// Begins the files of the taps that have come to stay.
    ///
    /// # Errors
    ///
    /// Which one cannot be begun, the last of them, and why. A file is tried again with its
    /// first message; a tap for which no thread can be had loses what it sees.
    pub(crate) fn begin(&self) -> io::Result<()> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|_, open| open.is_wanted());
        let mut outcome = Ok(());
        for (path, open) in open.iter_mut() {
            let Some((mut book, copies)) = open.waits.take() else {
                continue;
            };
            let of = format!("`{}` of tap `{}`", path.display(), book.tap);
            let mut note = |error: &io::Error| {
                outcome = Err(io::Error::new(error.kind(), format!("{of}: {error}")));
            };
            match begin(path, book.epoch) {
                Ok(writer) => book.writer = Some(writer),
                Err(error) => {
                    book.fail(&error);
                    note(&error);
                }
            }
            let thread = std::thread::Builder::new().name("ashway-tap".to_owned());
            match thread.spawn(move || book.keep(&copies)) {
                Ok(thread) => open.thread = Some(thread),
                Err(error) => note(&error),
            }
        }
        outcome
    }

    /// As `status` has them.
    pub(crate) fn describe(&self) -> Vec<answer::Tap> {
        let open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let one = |(path, open): (&PathBuf, &Open)| {
            let books = &open.file.books;
            let because = books.because.lock();
            answer::Tap {
                tap: open.file.tap.clone(),
                file: path.display().to_string(),
                written: books.written.load(Relaxed),
                lost: books.lost.load(Relaxed),
                failed: books.failed.load(Relaxed),
                because: because.unwrap_or_else(PoisonError::into_inner).clone(),
            }
        };
        open.iter()
            .filter(|(_, open)| open.waits.is_none())
            .map(one)
            .collect()
    }
}

impl Drop for Taps {
    /// Waits until what was seen has been written.
    fn drop(&mut self) {
        let open = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        for open in open.values_mut() {
            // One that was never begun has no thread that would take from the queue.
            open.waits = None;
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
            path: Arc::clone(seen.path),
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
#[derive(Debug)]
struct Book {
    tap: String,
    path: PathBuf,
    max_bytes: u64,
    epoch: Duration,
    books: Arc<Books>,
    writer: Option<Writer<Counted>>,
    /// Messages that the file holds for certain.
    held: u64,
    /// Messages since then, which are counted as written.
    unsure: u64,
    failed_at: Option<Instant>,
}

/// What the Unix clock shows at [`Time`] 0.
fn epoch() -> Duration {
    let (monotonic, running) = (clock::monotonic_ns(), ashway_worker::clock::now().0);
    clock::epoch() + Duration::from_nanos(monotonic.saturating_sub(running))
}

/// Begins a file, with nothing but its header.
fn begin(path: &FsPath, epoch: Duration) -> io::Result<Writer<Counted>> {
    let to = Counted {
        to: BufWriter::new(config::create(path)?),
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
            self.take(&copied);
        }
    }

    fn take(&mut self, copied: &Copied) {
        match self.write(copied) {
            Ok(()) => {
                self.unsure += 1;
                self.books.written.fetch_add(1, Relaxed);
            }
            Err(error) => {
                self.fail(&error);
                self.books.failed.fetch_add(1, Relaxed);
            }
        }
    }

    fn write(&mut self, copied: &Copied) -> io::Result<()> {
        // A block has its bytes, and less than 200 of headers and options besides.
        let more = (copied.bytes.len() + copied.path.len() + 200) as u64;
        let is_full = |writer: &Writer<Counted>| writer.get_ref().bytes + more > self.max_bytes;
        if self.writer.as_ref().is_some_and(is_full) {
            self.settle()?;
            self.writer = None;
        }
        if self.writer.is_none() {
            self.writer = Some(self.begin_anew()?);
        }
        let record = Record {
            at: copied.at,
            bound: copied.bound,
            interface: &self.tap,
            layer: copied.layer,
            bytes: &copied.bytes,
            fate: None,
            comment: &copied.path,
        };
        // It was there, or was begun.
        self.writer
            .as_mut()
            .map_or(Ok(()), |writer| writer.write(&record))
    }

    /// Begins the file anew, and puts what it held aside.
    fn begin_anew(&mut self) -> io::Result<Writer<Counted>> {
        if self.failed_at.is_some_and(|at| at.elapsed() < PAUSE) {
            return Err(io::Error::other("it failed a moment ago"));
        }
        if self.held > 0 {
            let mut before = self.path.clone().into_os_string();
            before.push(".1");
            rename(&self.path, before)?;
            self.held = 0;
        }
        begin(&self.path, self.epoch)
    }

    fn flush(&mut self) {
        if let Err(error) = self.settle() {
            self.fail(&error);
        }
    }

    /// Makes sure of what has been written so far.
    fn settle(&mut self) -> io::Result<()> {
        if let Some(writer) = &mut self.writer {
            writer.get_mut().flush()?;
            self.held += std::mem::take(&mut self.unsure);
        }
        Ok(())
    }

    /// Notes why nothing can be written. What the file may not have got counts as
    /// failed; some of it may be there.
    fn fail(&mut self, error: &io::Error) {
        self.writer = None;
        let unsure = std::mem::take(&mut self.unsure);
        self.books.written.fetch_sub(unsure, Relaxed);
        self.books.failed.fetch_add(unsure, Relaxed);
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::fs::{metadata, remove_dir_all};

    use super::*;

    #[test]
    fn a_tap_that_was_never_begun_holds_nobody_up() {
        let path = std::env::temp_dir().join(format!("ashway-never-{}", std::process::id()));
        let target = Target {
            file: path.display().to_string(),
            max_bytes: Target::MAX_BYTES,
        };
        let taps = Taps::default();
        let file = taps.open("look", &path, &target).unwrap();
        for _ in 0..=WAITING {
            file.see(&Seen {
                tap: "look",
                at: Time::default(),
                bound: Bound::Inbound,
                path: &"inc".into(),
                layer: Layer::Payload,
                bytes: &[7; 100],
            });
        }
        // Its queue is full; who drops the node waits for nobody.
        drop(taps);
        assert!(!path.exists());
    }

    #[test]
    fn a_file_is_begun_when_its_tap_is_there_to_stay() {
        let dir = std::env::temp_dir().join(format!("ashway-begun-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("look.pcapng");
        std::fs::write(&path, "of somebody").unwrap();
        let taps = Taps::default();
        let target = Target {
            file: path.display().to_string(),
            max_bytes: Target::MAX_BYTES,
        };

        // One that is only tried begins nothing, and stands in nobody's way.
        drop(taps.open("tried", &path, &target).unwrap());
        taps.begin().unwrap();
        let file = taps.open("look", &path, &target).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"of somebody");
        assert!(taps.describe().is_empty());
        let busy = taps.open("other", &path, &target).unwrap_err();
        assert_eq!(busy.kind(), io::ErrorKind::ResourceBusy);

        taps.begin().unwrap();
        assert_ne!(std::fs::read(&path).unwrap(), b"of somebody");
        assert_eq!(taps.describe().len(), 1);
        // It stays when its tap goes.
        drop(file);
        let busy = taps.open("other", &path, &target).unwrap_err();
        assert_eq!(busy.kind(), io::ErrorKind::ResourceBusy);
        remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn what_a_failed_file_has_not_got_is_not_counted_as_written_and_what_it_has_is_kept() {
        let dir = std::env::temp_dir().join(format!("ashway-taps-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("look.pcapng");
        let mut book = Book {
            tap: "look".to_owned(),
            path: path.clone(),
            max_bytes: Target::MAX_BYTES,
            epoch: epoch(),
            books: Arc::default(),
            writer: Some(begin(&path, epoch()).unwrap()),
            held: 0,
            unsure: 0,
            failed_at: None,
        };
        let copied = Copied {
            at: Time::default(),
            bound: Bound::Inbound,
            path: "inc".into(),
            layer: Layer::Payload,
            bytes: Box::new([7; 100]),
        };
        let counted = |book: &Book| {
            let books = &book.books;
            (books.written.load(Relaxed), books.failed.load(Relaxed))
        };
        for _ in 0..5 {
            book.take(&copied);
        }
        book.flush();
        let before = metadata(&path).unwrap().len();
        assert_eq!(counted(&book), (5, 0));

        // From here on the disk is full.
        book.writer = Some(begin(FsPath::new("/dev/full"), epoch()).unwrap());
        book.take(&copied);
        book.take(&copied);
        book.flush();
        assert_eq!(counted(&book), (5, 2));
        book.take(&copied);
        assert_eq!(counted(&book), (5, 3), "it waits before it tries again");

        // And not any more.
        book.failed_at = Instant::now().checked_sub(2 * PAUSE);
        book.take(&copied);
        book.flush();
        assert_eq!(counted(&book), (6, 3));
        assert_eq!(metadata(dir.join("look.pcapng.1")).unwrap().len(), before);
        assert!(metadata(&path).unwrap().len() < before);
        remove_dir_all(&dir).unwrap();
    }
}
