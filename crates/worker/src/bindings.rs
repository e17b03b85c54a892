//! The paths that end in an instance, or lead through it, as the worker and the node
//! share them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use ashway_path::sched::share::ShareAccount;

use crate::breaker::{Change, Gate};
use ashway_config::FaultLimit;

/// What both know of such a path, at one of its stages.
#[derive(Debug)]
pub struct HandlerBinding {
    /// The path's name.
    pub path: String,
    /// The handler's.
    pub handler: String,
    /// The function that it ends in.
    pub(crate) function: String,
    /// The time that this has for a message.
    pub(crate) budget_ns: u64,
    /// How often it may be stopped.
    pub limit: Option<FaultLimit>,
    /// Whether its messages get there.
    pub gate: Gate,
    /// What it may have of the user tier, if that has a limit.
    pub share: Option<Arc<ShareAccount>>,
}

impl HandlerBinding {
    /// One without limits, for tests.
    #[cfg(test)]
    pub(crate) fn of_tests(path: &str) -> Arc<Self> {
        Arc::new(Self {
            path: path.to_owned(),
            handler: "handler".to_owned(),
            function: "on_rx".to_owned(),
            budget_ns: 50_000,
            limit: None,
            gate: Gate::new(None),
            share: None,
        })
    }

    /// Notes that the path is in this tier now.
    pub fn moved(&self, in_kernel: bool) {
        self.gate.moved(in_kernel);
        if let Some(share) = &self.share {
            share.set_open(in_kernel);
        }
    }
}

/// Those of an instance.
#[derive(Debug, Default)]
pub struct HandlerBindings(Mutex<List>);

#[derive(Debug, Default)]
struct List {
    /// By the rows of their counters: no two paths have the same at a time.
    rows: BTreeMap<u32, Arc<HandlerBinding>>,
    /// Those of paths of modules, which have no row of their own, by the paths' names. A
    /// path may lead through an instance more than once.
    named: BTreeMap<String, Vec<Arc<HandlerBinding>>>,
    /// Those that were closed since the node looked, and for how long.
    closed: Vec<(Weak<HandlerBinding>, Duration)>,
}

impl HandlerBindings {
    fn list(&self) -> MutexGuard<'_, List> {
        // It is consistent between any two statements.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The path with this row: what is known of it (a path on two interfaces ends
    /// twice), else `end`.
    #[must_use]
    pub(crate) fn join(&self, row: u32, end: HandlerBinding) -> Arc<HandlerBinding> {
        let mut list = self.list();
        Arc::clone(list.rows.entry(row).or_insert_with(|| Arc::new(end)))
    }

    /// A stage of a path without a row.
    #[must_use]
    pub(crate) fn join_named(&self, end: HandlerBinding) -> Arc<HandlerBinding> {
        let end = Arc::new(end);
        let mut list = self.list();
        let of_path = list.named.entry(end.path.clone()).or_default();
        of_path.push(Arc::clone(&end));
        end
    }

    /// The path with this row, if it ends here.
    #[must_use]
    pub fn find(&self, row: u32) -> Option<Arc<HandlerBinding>> {
        self.list().rows.get(&row).cloned()
    }

    /// The stages here of a path without a row.
    #[must_use]
    pub fn find_named(&self, path: &str) -> Vec<Arc<HandlerBinding>> {
        self.list().named.get(path).cloned().unwrap_or_default()
    }

    /// Forgets a path that is gone; what was known of it.
    pub fn leave(&self, row: u32) -> Option<Arc<HandlerBinding>> {
        self.list().rows.remove(&row)
    }

    /// Forgets a stage that is gone, if it is of a path without a row.
    pub(crate) fn leave_named(&self, end: &Arc<HandlerBinding>) {
        let mut list = self.list();
        if let Some(of_path) = list.named.get_mut(&end.path) {
            of_path.retain(|known| !Arc::ptr_eq(known, end));
            if of_path.is_empty() {
                list.named.remove(&end.path);
            }
        }
    }

    /// Counts so many stops of a path's handler. The node learns of a bypass by
    /// [`HandlerBindings::take_closed`], of a demotion by [`Gate::take_demote`].
    #[cold]
    pub fn stopped(&self, end: &Arc<HandlerBinding>, times: u32, now: Instant) {
        if let Some(Change::Bypass(rest)) = end.gate.stopped(times, now) {
            self.list().closed.push((Arc::downgrade(end), rest));
        }
    }

    /// Takes the bypasses that began since the last time, and how long each is.
    pub fn take_closed(&self) -> Vec<(Weak<HandlerBinding>, Duration)> {
        std::mem::take(&mut self.list().closed)
    }

    /// Lets the handler have all its messages again.
    pub fn open_all(&self) {
        let list = self.list();
        for end in list.rows.values().chain(list.named.values().flatten()) {
            end.gate.open();
        }
    }
}
