//! What taps see, in capture files: written by a thread for each file, so that a
//! slow disk costs messages in the file and no time on the path.
//!
//! The worker copies a message into a bounded queue; one that finds it full is
//! counted as lost. A file that cannot be written any more is put aside like a full
//! one and begun anew, at most once a second. What it may not have got and what would
//! have been written meanwhile is counted as failed.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path as FsPath, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use ashway_api::answer;
use ashway_config as config;
use ashway_modules::tap::{Seen, Target, Watch};
use book::{Book, Books, Copied, SNAPLEN, begin, epoch};

mod book;

/// Messages that may wait to be written.
const WAITING: usize = 1024;

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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::fs::remove_dir_all;

    use ashway_modules::tap::{Bound, Layer};
    use ashway_path::time::Time;

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
}
