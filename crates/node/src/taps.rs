//! What taps see, in capture files: written by a thread for each file, so that a
//! slow disk costs messages in the file and no time on the path.
//!
//! The worker copies a message into a bounded queue; one that finds it full is
//! counted as lost. A file that cannot be written any more is put aside like a full
//! one and begun anew, at most once a second. What it may not have got and what would
//! have been written meanwhile is counted as failed.
//!
//! A module that is made only names its file. When the module is initialised the file is
//! opened, and made if it is not there: it can be written, and what was in it still is.
//! [`Taps::begin`] empties it when the graph is there to stay. If the graph is dropped before
//! that, a file that was made is removed.

use std::collections::BTreeMap;
use std::io;
use std::mem;
use std::path::{Path as FsPath, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use ashway_api::answer;
use ashway_config::Claim;
use ashway_modules::tap::pcapng::Writer;
use ashway_modules::tap::{Seen, Target, Watch};
use book::{Book, Books, Copied, Counted, SNAPLEN, epoch, header};

use crate::bug::{self, Bug};

mod book;

/// Messages that may wait to be written.
const WAITING: usize = 1024;

/// The files of a node's taps.
#[derive(Debug, Default)]
pub(crate) struct Taps(Mutex<BTreeMap<PathBuf, Open>>);

#[derive(Debug)]
struct Open {
    tap: String,
    max_bytes: u64,
    queue: SyncSender<Option<Copied>>,
    books: Arc<Books>,
    /// The module's; it keeps the file open until it is begun.
    file: Weak<TapFile>,
    /// What the file's thread will have; absent once the file is begun.
    waits: Option<(Book, Receiver<Option<Copied>>)>,
    thread: Option<JoinHandle<()>>,
}

impl Open {
    /// Whether it is begun, or is to be: a graph that was only tried has let go of it.
    fn is_wanted(&self) -> bool {
        self.waits.is_none() || self.file.strong_count() > 0
    }

    /// The same file, for the module that goes on with it.
    fn again(&mut self, tap: &str, path: &FsPath, target: &Target) -> io::Result<Arc<TapFile>> {
        let busy = |because: String| io::Error::new(io::ErrorKind::ResourceBusy, because);
        if self.tap != tap {
            return Err(busy(format!("the tap `{}` writes it", self.tap)));
        }
        if self.max_bytes != target.max_bytes {
            return Err(busy(format!(
                "it was begun with `max_bytes = {}`, which holds until the node ends",
                self.max_bytes
            )));
        }
        Ok(self.file.upgrade().unwrap_or_else(|| {
            // Its thread outlives the module that had it.
            let file = Arc::new(TapFile {
                path: path.to_owned(),
                queue: self.queue.clone(),
                books: Arc::clone(&self.books),
                state: Mutex::new(State::Begun),
            });
            self.file = Arc::downgrade(&file);
            file
        }))
    }
}

/// A file that a tap writes.
#[derive(Debug)]
pub(crate) struct TapFile {
    path: PathBuf,
    queue: SyncSender<Option<Copied>>,
    books: Arc<Books>,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    Named,
    Ready(Claim),
    /// Its thread has it.
    Begun,
}

impl TapFile {
    /// Begins the file that is open, whatever lies at its name by now.
    fn begin(&self, epoch: Duration) -> io::Result<Writer<Counted>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let claim = match mem::replace(&mut *state, State::Begun) {
            State::Ready(claim) => claim,
            State::Named | State::Begun => Claim::on(&self.path)?,
        };
        header(claim.begin()?, epoch)
    }
}

impl Taps {
    /// The writer of a tap's file, which is named and not looked at.
    ///
    /// # Errors
    ///
    /// `ResourceBusy` if another tap writes it, or it was begun in another way.
    pub(crate) fn open(
        &self,
        tap: &str,
        path: &FsPath,
        target: &Target,
    ) -> io::Result<Arc<TapFile>> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|_, open| open.is_wanted());
        if let Some(known) = open.get_mut(path) {
            return known.again(tap, path, target);
        }
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
            path: path.to_owned(),
            queue: queue.clone(),
            books: Arc::clone(&books),
            state: Mutex::new(State::Named),
        });
        let entry = Open {
            tap: tap.to_owned(),
            max_bytes: target.max_bytes,
            queue,
            books,
            file: Arc::downgrade(&file),
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
            // A worker's path may have let go of it just now: then nobody wants it.
            let Some(file) = open.file.upgrade() else {
                continue;
            };
            let Some((mut book, copies)) = open.waits.take() else {
                continue;
            };
            let of = format!("`{}` of tap `{}`", path.display(), book.tap);
            let mut note = |error: &io::Error| {
                outcome = Err(io::Error::new(error.kind(), format!("{of}: {error}")));
            };
            match file.begin(book.epoch) {
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
            let books = &open.books;
            let because = books.because.lock();
            answer::Tap {
                tap: open.tap.clone(),
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
            let _ = open.queue.send(None);
            if let Some(thread) = open.thread.take() {
                let _ = thread.join();
            }
        }
    }
}

impl Watch for TapFile {
    fn ready(&self) -> io::Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*state, State::Named) && !bug::is(Bug::TapUnopened) {
            let claim = Claim::on(&self.path).map_err(|error| {
                let message = format!("cannot write `{}`: {error}", self.path.display());
                io::Error::new(error.kind(), message)
            })?;
            *state = State::Ready(claim);
        }
        Ok(())
    }

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
        let tried = taps.open("tried", &path, &target).unwrap();
        tried.ready().unwrap();
        drop(tried);
        taps.begin().unwrap();
        let file = taps.open("look", &path, &target).unwrap();
        file.ready().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"of somebody");
        assert!(taps.describe().is_empty());
        let busy = taps.open("other", &path, &target).unwrap_err();
        assert_eq!(busy.kind(), io::ErrorKind::ResourceBusy);

        // What was opened is begun, whatever has the name by now.
        let aside = dir.join("aside");
        std::fs::rename(&path, &aside).unwrap();
        taps.begin().unwrap();
        assert_ne!(std::fs::read(&aside).unwrap(), b"of somebody");
        assert!(!path.exists());
        assert_eq!(taps.describe().len(), 1);
        // It stays when its tap goes, and a tap of the name goes on with it.
        drop(file);
        let busy = taps.open("other", &path, &target).unwrap_err();
        assert_eq!(busy.kind(), io::ErrorKind::ResourceBusy);
        let again = taps.open("look", &path, &target).unwrap();
        again.ready().unwrap();
        taps.begin().unwrap();
        assert!(!path.exists());
        remove_dir_all(&dir).unwrap();
    }
}
