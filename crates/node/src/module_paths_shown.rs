//! Paths of the user tier, as the node shows them: one with all there is to know, many
//! in a list, and the sum of all.
//!
//! The worker knows what a path has done, the node where it stands. The worker hands out
//! [snapshots](PathSnapshot); the documents are made here, on the node's thread.

use std::sync::atomic::Ordering;

use ashway_abi::Count;
use ashway_abi::share::Mode;
use ashway_api::answer::{
    AllModulePaths, Counts, Entrance, Memory, ModulePath, Path, PathBase, PathRun, PathShare,
    Queue, Queues, ShownHandlerPath, Stage, Tally,
};
use ashway_path::places::PathId;
use ashway_path::stage::Direction;

use super::binding::no_worker;
use super::path_registry::{Attachment, NodeModulePath};
use super::{Node, status};
use crate::request::Refusal;
use ashway_config as config;
use ashway_worker::counters::Row;
use ashway_worker::snapshot::{PathSnapshot, QueueSnapshot};

/// Most paths that `status` shows one by one.
const SHOWN: usize = 1000;

impl Node {
    /// A path, with everything there is to know of it.
    ///
    /// # Errors
    ///
    /// If there is none of this name.
    pub(super) fn show(&mut self, name: &str) -> Result<Path, Refusal> {
        if let Some(path) = self.path(name) {
            return self.show_of_handler(path);
        }
        let id = self.find_live(name)?;
        let snapshot = self.snapshot(&[id])?;
        let shown = self.describe_live(id, snapshot.as_ref());
        Ok(Path::Modules(shown.expect("found above").into()))
    }

    /// A path that ends in a handler: what it has done in both tiers, and what the worker
    /// has of it at all its interfaces together.
    fn show_of_handler(&mut self, id: PathId) -> Result<Path, Refusal> {
        let runs = self.plan.paths[&id].runs.clone();
        let run = self.snapshot(&runs)?.as_ref().map(describe);
        let mut shown = status::path(self, id);
        shown.run = run;
        let (path, plan) = (&self.paths[&id].config, &self.plan.paths[&id]);
        let ends = path
            .ifaces
            .iter()
            .zip(&plan.slots)
            .map(|(name, (iface, _))| {
                let target = self.plan.target(id, *iface);
                let text = target.and_then(|target| self.ifaces[*iface].table.text(target));
                Entrance {
                    iface: name.clone(),
                    filter: text.map(str::to_owned),
                    direction: word(Direction::Backward).into(),
                }
            });
        shown.shown = Some(ShownHandlerPath {
            ends: ends.collect(),
            from: path.handler.clone(),
            promotion: shown.stays.clone(),
        });
        Ok(Path::Handler(shown.into()))
    }

    /// What the worker has of these together, if it has any.
    fn snapshot(&mut self, paths: &[PathId]) -> Result<Option<PathSnapshot>, Refusal> {
        let snapshots = self.worker.snapshots(paths);
        let snapshots = snapshots.map_err(|gone| no_worker(&gone))?;
        Ok(snapshots.into_iter().flatten().reduce(|mut sum, one| {
            sum.add(&one);
            sum
        }))
    }

    /// A path of modules: what the worker has of it, if it knows it, and what the node
    /// knows; nothing if it is gone.
    fn describe_live(&self, id: PathId, snapshot: Option<&PathSnapshot>) -> Option<ModulePath> {
        let live = self.module_paths.at(id)?;
        let text = |end: &Attachment| {
            let target = self.live_target(id, end.direction);
            let text = self.ifaces[end.iface()].table.text(target);
            text.map(str::to_owned)
        };
        let name = |end: &Attachment| self.config.ifaces[end.iface()].name.clone();
        let ends = live.ends().map(|end| Entrance {
            iface: name(end),
            filter: text(end),
            direction: word(end.direction).into(),
        });
        let mut counts = snapshot.map_or_else(nothing_counted, counts);
        self.add_dropped(live, &mut counts);
        let kernel = self.add_kernel(live, &mut counts);
        let (tier, promotion) = live.tier();
        let (faults, bypass) = self.describe_live_faults(live);
        Some(ModulePath {
            base: PathBase {
                name: live.name.to_string(),
                iface: live.ends().map(name).collect(),
                filter: live.ends().next().and_then(text),
                tier: tier.word().into(),
                owner: live.owner.as_ref().map(|owner| owner.pid),
                faults,
                bypass,
                counts,
                share: snapshot.and_then(share),
            },
            ends: ends.collect(),
            from: self.module_paths.from(live).to_owned(),
            promotion,
            next_hop: self.show_neighbour(id),
            kernel,
            run: snapshot.map(describe),
        })
    }

    /// Adds what was dropped on arrival, before the worker could count it.
    fn add_dropped(&self, live: &NodeModulePath, counts: &mut Counts) {
        let frame_queue = self.frame_queue.as_ref().zip(live.number);
        let dropped = frame_queue.map_or(0, |(frame_queue, number)| {
            frame_queue.dropped_on_arrival(number)
        });
        counts.received += dropped;
        counts.add_fate(Count::DroppedQueueFull, dropped);
    }

    /// All paths of the user tier, up to [`SHOWN`], as `status` lists them.
    pub(super) fn list(&mut self) -> Vec<ModulePath> {
        let mut names: Vec<&str> = self.module_paths.names().collect();
        names.sort_unstable();
        names.truncate(SHOWN);
        let ids: Vec<PathId> = names
            .iter()
            .filter_map(|name| self.module_paths.find(name))
            .collect();
        // A worker that does not answer has nothing to show.
        let snapshots = self.worker.snapshots(&ids).unwrap_or_default();
        ids.into_iter()
            .zip(&snapshots)
            .filter_map(|(id, snapshot)| self.describe_live(id, snapshot.as_ref()))
            .collect()
    }

    /// How many there are, and what became of all their messages; `ring`: of those that
    /// were lost on the way to the worker, and not by a relay of the kernel tier.
    pub(super) fn sum_of_live(&self) -> AllModulePaths {
        let mut row = status::row(self, self.plan.live_row);
        let lost = [Count::DroppedRingFull, Count::DroppedTooLong];
        let ring = lost.map(|count| (count.name().into(), row.get(count)));
        row.add(&self.rows_of_relays());
        let held = u64::from(self.held.load(Ordering::Acquire));
        AllModulePaths {
            paths: self.module_paths.len() as u64,
            ring: Tally(ring.into()),
            counts: Counts::of(|count| row.get(count), self.waiting_in_rings() + held),
        }
    }
}

fn word(direction: Direction) -> &'static str {
    match direction {
        Direction::Forward => "forward",
        Direction::Backward => "backward",
    }
}

/// Of a path that the worker does not know: nothing, and that is balanced.
fn nothing_counted() -> Counts {
    Counts {
        balanced: true,
        ..Counts::default()
    }
}

/// What a path has counted in the user tier.
fn counts(path: &PathSnapshot) -> Counts {
    let account = &path.account;
    let ended: u64 = account.fates().map(|(_, times)| times).sum();
    let row = Row::of_fates(account.fates());
    Counts {
        received: account.received(),
        waiting: path.waiting,
        balanced: account.received() == ended + path.waiting,
        // What leaves is counted where it is sent, for all paths together.
        out: None,
        ..Counts::of(|count| row.get(count), 0)
    }
}

/// How a path stands with its share, if it has one.
fn share(path: &PathSnapshot) -> Option<PathShare> {
    let share = config::share(&path.attrs)?;
    Some(PathShare {
        share: share.to_string(),
        mode: path.mode.map(|mode| Mode::name(mode).into()),
    })
}

/// What the worker has of a path.
fn describe(path: &PathSnapshot) -> PathRun {
    let account = &path.account;
    let stages = path.stages.iter().map(|stage| Stage {
        module: stage.module.to_string(),
        kind: stage.kind.map(Into::into),
    });
    let attrs = path.attrs.iter();
    let queue = |queue: QueueSnapshot| Queue {
        length: queue.length as u64,
        maximum: queue.maximum.into(),
    };
    PathRun {
        stages: stages.collect(),
        attrs: attrs
            .map(|(name, value)| (name.to_owned(), value.to_string()))
            .collect(),
        queues: Queues {
            in_forward: queue(path.queues.in_forward),
            in_backward: queue(path.queues.in_backward),
            out_forward: queue(path.queues.out_forward),
            out_backward: queue(path.queues.out_backward),
        },
        originated: account.originated,
        runs: account.runs,
        time_ns: account.time.as_nanos() as u64,
        memory: Memory {
            bytes: path.memory_bytes as u64,
            granted_bytes: account.granted_bytes as u64,
        },
        fault: account.fault.as_ref().map(ToString::to_string),
    }
}
