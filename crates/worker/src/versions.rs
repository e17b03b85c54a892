//! The versions of a handler: what changes when it is swapped, while its memory, its
//! queue and its paths stay.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::version::Version;

/// How many versions a node keeps of a handler, beside the one that runs.
const FORMER: usize = 8;

/// The version of an instance that runs, and those before it.
#[derive(Debug)]
pub struct Versions(Mutex<Line>);

#[derive(Debug)]
struct Line {
    /// The one that runs.
    current: Arc<Version>,
    /// The latest last.
    former: Vec<Arc<Version>>,
    /// The last one that was taken back.
    back: Option<Arc<Version>>,
}

impl Versions {
    /// Of an instance that begins.
    #[must_use]
    pub(crate) fn begin(current: Arc<Version>) -> Self {
        Self(Mutex::new(Line {
            current,
            former: Vec::new(),
            back: None,
        }))
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        // It is consistent between any two statements.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The one that runs.
    #[must_use]
    pub(crate) fn current(&self) -> Arc<Version> {
        Arc::clone(&self.line().current)
    }

    /// Those before it, the latest last; at most [`FORMER`].
    #[must_use]
    pub fn former(&self) -> Vec<Arc<Version>> {
        self.line().former.clone()
    }

    /// Puts the next one in its place.
    pub fn advance(&self, next: Arc<Version>) {
        let mut line = self.line();
        let last = std::mem::replace(&mut line.current, next);
        line.former.push(last);
        let surplus = line.former.len().saturating_sub(FORMER);
        line.former.drain(..surplus);
    }

    /// Puts the one before it in its place. No rollback leads to it again.
    pub fn back(&self) {
        let mut line = self.line();
        if let Some(last) = line.former.pop() {
            line.back = Some(std::mem::replace(&mut line.current, last));
        }
    }

    /// The place in the source of what happened to this version, if it is still known
    /// and its file has DWARF.
    #[must_use]
    pub(crate) fn place(&self, id: u32, at: u32) -> Option<(String, u32)> {
        let line = self.line();
        let all = [&line.current].into_iter();
        let mut all = all.chain(&line.former).chain(&line.back);
        // The latest, should a number have come round.
        let version = all.rfind(|known| known.id as u32 == id)?;
        let (file, number) = version.lines.at(at)?;
        Some((file.to_owned(), number))
    }
}
