//! Paths, as the node shows them: one with all there is to know, many in a list, and the sum
//! of those whose messages come as whole frames.
//!
//! The worker knows what a path has done, the node where it stands. The worker hands out
//! [snapshots](PathSnapshot); the documents are made here, on the node's thread.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use ashway_abi::Count;
use ashway_abi::share::Mode;
use ashway_api::answer::{
    AllModulePaths, Because, BoundTo, Counts, Entrance, Memory, NotPromotable, Path, PathBase,
    PathPromotion, PathRun, PathShare, Queue, Queues, RanIn, Stage, Tally,
};
use ashway_memory::clock::monotonic_ns;
use ashway_path::places::PathId;
use ashway_path::stage::Direction;

use super::authority::Authority;
use super::instances::merged;
use super::node_path::{BoundPath, Feed, FramePath, NodePath, Promotion};
use super::{Node, relay};
use crate::request::Refusal;
use ashway_config::{self as config, Tier};
use ashway_worker::counters::Row;
use ashway_worker::snapshot::{PathSnapshot, QueueSnapshot};
use ashway_worker::target::Target;

/// Most paths with whole frames that `status` shows one by one.
const SHOWN: usize = 1000;

impl Node {
    /// A path, with everything there is to know of it.
    ///
    /// # Errors
    ///
    /// If there is none of this name.
    pub(super) fn show(&mut self, name: &str, authority: &Authority) -> Result<Path, Refusal> {
        let ids = self.paths_for(authority, name)?;
        let mut each = Vec::with_capacity(ids.len());
        for id in ids {
            let runs = self.runs_of(id);
            let snapshots = self.worker.snapshots(&runs)?;
            each.push(self.describe(id, &snapshots));
        }
        // By the name of one instance that one is meant.
        if let [_] = &each[..]
            && let Some(path) = each.pop()
        {
            return Ok(path);
        }
        let mut all = merged::paths(each.into_iter());
        Ok(all.swap_remove(0))
    }

    /// Paths as `status` lists them: all that are bound to handlers in the order in which
    /// they came, then up to [`SHOWN`] others, those of the configuration first, by their names.
    /// How many are not among them.
    pub(super) fn list(&mut self) -> (Vec<Path>, usize) {
        let mut frames: Vec<_> = self.paths.all_frames().collect();
        let configured = self.config.long_paths.iter().map(|path| &*path.name);
        let configured: HashSet<&str> = configured.collect();
        frames.sort_unstable_by(|(_, one), (_, other)| {
            let key = |path: &NodePath| !configured.contains(&*path.name);
            let names = one.name.cmp(&other.name);
            key(one).cmp(&key(other)).then(names)
        });
        let not_listed = frames.len().saturating_sub(SHOWN);
        frames.truncate(SHOWN);
        let ids = self.paths.all_bound().map(|(id, _)| id);
        let ids: Vec<PathId> = ids.chain(frames.iter().map(|(id, _)| *id)).collect();
        let runs: Vec<Vec<PathId>> = ids.iter().map(|id| self.runs_of(*id)).collect();
        // A worker that does not answer has nothing to show.
        let snapshots = self.worker.snapshots(&runs.concat()).unwrap_or_default();
        let mut left = &snapshots[..];
        let paths = ids.into_iter().zip(runs).map(|(id, runs)| {
            let of = left.split_off(..runs.len()).unwrap_or_default();
            self.describe(id, of)
        });
        (merged::paths(paths), not_listed)
    }

    /// What the worker runs of a path: one path of its engine for each interface.
    fn runs_of(&self, id: PathId) -> Vec<PathId> {
        let plan = self.plan.paths.get(&id);
        plan.map_or_else(|| vec![id], |plan| plan.runs.clone())
    }

    /// Where demux leads for a path, at each of its ends: the interface's number, too.
    fn ends_of(&self, id: PathId, path: &NodePath) -> Vec<(usize, Target)> {
        match &path.feed {
            Feed::Handler(_) => self.targets_of(id),
            Feed::Frames(frames) => {
                let target = |direction| self.frame_target(id, direction);
                let ends = frames.ends();
                ends.map(|end| (end.iface(), target(end.direction)))
                    .collect()
            }
        }
    }

    /// A path: what the worker has of it, if it knows it, and what the node knows.
    fn describe(&self, id: PathId, snapshots: &[Option<PathSnapshot>]) -> Path {
        let path = self
            .paths
            .at(id)
            .expect("whoever has the id has found the path");
        let snapshots = snapshots.iter().flatten();
        let snapshot = snapshots.fold(None, |sum: Option<PathSnapshot>, one| match sum {
            None => Some(one.clone()),
            Some(mut sum) => {
                sum.add(one);
                Some(sum)
            }
        });
        let ends = self
            .ends_of(id, path)
            .into_iter()
            .map(|(iface, target)| Entrance {
                iface: self.ifaces[iface].name.clone(),
                filter: self.ifaces[iface].table.text(target).map(str::to_owned),
                direction: word(target.direction).into(),
            });
        let ends: Vec<Entrance> = ends.collect();
        let (faults, bypass) = self.describe_faults(id);
        let mut kernel = None;
        let ran_in;
        let (filter, tier, counts, share, promotion, bound) = match &path.feed {
            Feed::Handler(bound) => {
                ran_in = Some(self.ran_in(id));
                (
                    Some(bound.config.filter.text.clone()),
                    bound.tier,
                    self.counts_of_bound(id),
                    self.share_of_bound(id, bound),
                    promotion(bound),
                    Some(bound_to(bound)),
                )
            }
            Feed::Frames(frames) => {
                let mut counts = snapshot.as_ref().map_or_else(nothing_counted, counts);
                ran_in = self.row_of_relay(frames).map(|row| RanIn {
                    kernel: relay::DONE.map(|fate| row.get(fate)).iter().sum(),
                    user: counts.received - dropped_unrun(&counts),
                });
                self.add_dropped(frames, &mut counts);
                kernel = self.add_kernel(frames, &mut counts);
                let filter = ends.first().and_then(|end| end.filter.clone());
                let share = snapshot
                    .as_ref()
                    .and_then(|run| self.share_of_frames(run, frames));
                let promotion = promotion_of_frames(frames);
                (filter, frames.tier(), counts, share, promotion, None)
            }
        };
        Path {
            base: PathBase {
                name: path.name.to_string(),
                iface: ends.iter().map(|end| end.iface.clone()).collect(),
                filter,
                tier: tier.word().into(),
                owner: path.owner.as_ref().map(|owner| owner.pid),
                faults,
                bypass,
                counts,
                share,
            },
            ends,
            from: self.paths.from(path).to_owned(),
            promotion,
            next_hop: self.show_neighbour(id),
            ran_in,
            instances: Vec::new(),
            kernel,
            leads_through: self.handlers_on(path),
            bound,
            run: snapshot
                .as_ref()
                .map(|run| describe(run, self.kernel_ns(id, path))),
        }
    }

    /// The handlers that a path leads through without being bound to one.
    fn handlers_on(&self, path: &NodePath) -> Vec<String> {
        let frames = path.frames().into_iter();
        let ids = frames.flat_map(|frames| &frames.runs);
        let handlers = ids.filter_map(|id| self.handlers.get(id));
        handlers
            .map(|handler| handler.shared.name.clone())
            .collect()
    }

    /// How long the kernel tier took for a path's messages.
    fn kernel_ns(&self, id: PathId, path: &NodePath) -> u64 {
        let row = match &path.feed {
            Feed::Handler(_) => Some(self.row(self.plan.paths[&id].row)),
            Feed::Frames(frames) => self.row_of_relay(frames),
        };
        row.as_ref().map_or(0, Row::kernel_ns)
    }

    /// What became of all messages of a path that is bound to a handler, in both tiers.
    fn counts_of_bound(&self, id: PathId) -> Counts {
        let plan = &self.plan.paths[&id];
        let instance = &self.handlers[&plan.handler].shared;
        let row = self.row(plan.row);
        Counts::of(|count| row.get(count), instance.in_user(plan.local).into())
    }

    /// In which tier the handler of a path that is bound to one was run for its messages.
    pub(super) fn ran_in(&self, id: PathId) -> RanIn {
        let row = self.plan.paths[&id].row;
        RanIn {
            kernel: self.kernel_row(row).ran(),
            user: self.rows.row(row).ran(),
        }
    }

    fn share_of_bound(&self, id: PathId, bound: &BoundPath) -> Option<PathShare> {
        let share = bound.config.share?;
        let mode = match bound.tier {
            Tier::Kernel => {
                let plan = &self.plan.paths[&id];
                self.handlers[&plan.handler].shared.mode(plan.local)
            }
            Tier::User | Tier::Auto => {
                let end = self.end(id);
                let account = end.as_ref().and_then(|end| end.share.as_deref());
                account.map(|account| account.mode(monotonic_ns()))
            }
        };
        Some(PathShare {
            share: share.to_string(),
            mode: mode.map(|mode| Mode::name(mode).into()),
        })
    }

    /// How a path whose messages come as whole frames stands with its share, if it has one.
    fn share_of_frames(&self, run: &PathSnapshot, path: &FramePath) -> Option<PathShare> {
        let share = config::share(&run.attrs)?;
        let mode = match path.tier() {
            Tier::Kernel => self.mode_of_relay(path),
            Tier::User | Tier::Auto => run.mode,
        };
        Some(PathShare {
            share: share.to_string(),
            mode: mode.map(|mode| Mode::name(mode).into()),
        })
    }

    /// Adds what was dropped on arrival, before the worker could count it.
    fn add_dropped(&self, path: &FramePath, counts: &mut Counts) {
        let frame_queue = self.frame_queue.as_ref().zip(path.number);
        let dropped = frame_queue.map_or(0, |(frame_queue, number)| {
            frame_queue.queue.dropped_on_arrival(number)
        });
        counts.received += dropped;
        counts.add_fate(Count::DroppedQueueFull, dropped);
    }

    /// How many there are, and what became of all their messages; `ring`: of those that
    /// were lost on the way to the worker, and not by a relay of the kernel tier.
    pub(super) fn sum_of_module_paths(&self) -> AllModulePaths {
        let mut row = self.row(self.plan.module_row);
        let lost = [Count::DroppedRingFull, Count::DroppedTooLong];
        let ring = lost.map(|count| (count.name().into(), row.get(count)));
        row.add(&self.rows_of_relays());
        let held = u64::from(self.held.load(Ordering::Acquire));
        AllModulePaths {
            paths: self.paths.frames_len() as u64,
            ring: Tally(ring.into()),
            counts: Counts::of(|count| row.get(count), self.waiting_in_rings() + held),
        }
    }
}

/// Messages that the worker dropped before the path ran for them.
fn dropped_unrun(counts: &Counts) -> u64 {
    let unrun = [Count::DroppedQueueFull, Count::DroppedOverShare];
    unrun.map(|fate| counts.get(fate)).iter().sum()
}

/// How a path that is bound to a handler stands with the kernel tier.
pub(super) fn promotion(bound: &BoundPath) -> PathPromotion {
    let why = || match (&bound.promotion, &bound.demoted) {
        (Promotion::Refused(refused), _) => because(&refused.because, &refused.hint),
        (_, Some(demoted)) => because(&format!("demoted: {demoted}"), BY_HAND),
        (Promotion::NotAsked, _) if bound.config.tier != Tier::User => because(
            "its handler has not been compiled for the kernel tier",
            "`ashway status` shows whether it is being compiled",
        ),
        _ => because(ASKED, BY_HAND),
    };
    let is_made = matches!(bound.promotion, Promotion::Done(_));
    stands(bound.tier, why, is_made.then_some(bound.switch_ns))
}

/// The same of one whose messages come as whole frames.
pub(super) fn promotion_of_frames(frames: &FramePath) -> PathPromotion {
    let why = || match &frames.stays {
        Some(stays) => because(&stays.because, stays.hint),
        None => because(ASKED, BY_HAND),
    };
    let switch_ns = frames.place.as_ref().map(|place| place.switch_ns);
    stands(frames.tier(), why, switch_ns)
}

const ASKED: &str = "it was asked for";
const BY_HAND: &str = "`ashway path promote` moves it to the kernel tier";

fn because(because: &str, hint: &str) -> Because {
    Because {
        because: Some(because.to_owned().into()),
        hint: Some(hint.to_owned().into()),
    }
}

/// How a path of this tier stands with the kernel tier; `why` it is not there.
fn stands(tier: Tier, why: impl FnOnce() -> Because, switch_ns: Option<u64>) -> PathPromotion {
    let in_kernel = tier == Tier::Kernel;
    PathPromotion {
        state: if in_kernel { "promoted" } else { "user" }.into(),
        why: (!in_kernel).then(why),
        switch_ns,
    }
}

fn bound_to(bound: &BoundPath) -> BoundTo {
    let config = &bound.config;
    let stays = match &bound.promotion {
        Promotion::Refused(refused) => Some(NotPromotable {
            asked: config.tier.word().into(),
            refused: refused.describe(),
        }),
        Promotion::NotAsked | Promotion::Done(_) => None,
    };
    BoundTo {
        handler: config.handler.clone(),
        function: config.function.clone(),
        stays,
        on_fault: config.on_fault.word().into(),
        budget_ns: config.budget.as_nanos() as u64,
        order: config.order.word().into(),
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

/// What the worker has of a path, for which the kernel tier took so long.
fn describe(path: &PathSnapshot, kernel_time_ns: u64) -> PathRun {
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
        kernel_time_ns,
        memory: Memory {
            bytes: path.memory_bytes as u64,
            granted_bytes: account.granted_bytes as u64,
        },
        fault: account.fault.as_ref().map(ToString::to_string),
    }
}
