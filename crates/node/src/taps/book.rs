//! The thread's part of a tap's file: what is written, when it is begun anew, and what
//! becomes of messages where it cannot be written.

use std::fmt;
use std::fs::{File, rename};
use std::io::{self, BufWriter, Write};
use std::path::{Path as FsPath, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ashway_memory::clock;
use ashway_modules::tap::pcapng::{Record, Writer};
use ashway_modules::tap::{Bound, Layer};
use ashway_path::time::Time;

use ashway_config as config;

/// Bytes that are kept of a message: all of any datagram.
pub(super) const SNAPLEN: u32 = 65_535;

/// How long a file that failed is left alone.
const PAUSE: Duration = Duration::from_secs(1);

/// What became of the messages that a tap has seen.
#[derive(Debug, Default)]
pub(super) struct Books {
    pub(super) written: AtomicU64,
    /// The queue was full.
    pub(super) lost: AtomicU64,
    /// The file could not be written.
    pub(super) failed: AtomicU64,
    pub(super) because: Mutex<Option<String>>,
}

#[derive(Debug)]
pub(super) struct Copied {
    pub(super) at: Time,
    pub(super) bound: Bound,
    pub(super) path: Arc<str>,
    pub(super) layer: Layer,
    pub(super) bytes: Box<[u8]>,
}

/// A file as its thread has it.
#[derive(Debug)]
pub(super) struct Book {
    pub(super) tap: String,
    pub(super) path: PathBuf,
    pub(super) max_bytes: u64,
    pub(super) epoch: Duration,
    pub(super) books: Arc<Books>,
    pub(super) writer: Option<Writer<Counted>>,
    /// Messages that the file holds for certain.
    pub(super) held: u64,
    /// Messages since then, which are counted as written.
    pub(super) unsure: u64,
    pub(super) failed_at: Option<Instant>,
}

/// What the Unix clock shows at [`Time`] 0.
pub(super) fn epoch() -> Duration {
    let (monotonic, running) = (clock::monotonic_ns(), ashway_worker::clock::now().0);
    clock::epoch() + Duration::from_nanos(monotonic.saturating_sub(running))
}

/// Begins a file, with nothing but its header.
fn begin(path: &FsPath, epoch: Duration) -> io::Result<Writer<Counted>> {
    header(config::create(path)?, epoch)
}

/// Writes the header of a file that is empty.
pub(super) fn header(file: File, epoch: Duration) -> io::Result<Writer<Counted>> {
    let to = Counted {
        to: BufWriter::new(file),
        bytes: 0,
    };
    Writer::new(to, SNAPLEN, epoch)
}

/// Writes, and counts the bytes.
pub(super) struct Counted {
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
    pub(super) fn keep(&mut self, copies: &Receiver<Option<Copied>>) {
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

    /// Begins the file anew, and puts what it held aside. A device holds nothing, and stays
    /// where it is.
    fn begin_anew(&mut self) -> io::Result<Writer<Counted>> {
        if self.failed_at.is_some_and(|at| at.elapsed() < PAUSE) {
            return Err(io::Error::other("it failed a moment ago"));
        }
        if self.held > 0 && self.path.metadata()?.is_file() {
            let mut before = self.path.clone().into_os_string();
            before.push(".1");
            rename(&self.path, before)?;
        }
        self.held = 0;
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
    pub(super) fn fail(&mut self, error: &io::Error) {
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

    use ashway_modules::tap::Target;

    use super::*;

    fn book(path: &FsPath) -> Book {
        Book {
            tap: "look".to_owned(),
            path: path.to_owned(),
            max_bytes: Target::MAX_BYTES,
            epoch: epoch(),
            books: Arc::default(),
            writer: Some(begin(path, epoch()).unwrap()),
            held: 0,
            unsure: 0,
            failed_at: None,
        }
    }

    fn copied() -> Copied {
        Copied {
            at: Time::default(),
            bound: Bound::Inbound,
            path: "inc".into(),
            layer: Layer::Payload,
            bytes: Box::new([7; 100]),
        }
    }

    /// A folder of the test's own.
    fn folder(name: &str) -> PathBuf {
        let name = format!("ashway-taps-{name}-{}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&dir).unwrap();
        dir
    }

    /// `/dev/null` is everybody's. By a link, so that a mistake moves that alone.
    #[test]
    fn a_device_is_not_put_aside() {
        let dir = folder("device");
        let path = dir.join("look.pcapng");
        std::os::unix::fs::symlink("/dev/null", &path).unwrap();
        let mut book = Book {
            max_bytes: 1000,
            ..book(&path)
        };
        for _ in 0..50 {
            book.take(&copied());
            book.flush();
        }
        assert_eq!(book.books.written.load(Relaxed), 50);
        assert_eq!(std::fs::read_link(&path).unwrap(), FsPath::new("/dev/null"));
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 1);
        remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn what_a_failed_file_has_not_got_is_not_counted_as_written_and_what_it_has_is_kept() {
        let dir = folder("full");
        let path = dir.join("look.pcapng");
        let mut book = book(&path);
        let copied = copied();
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
