//! Paths of the user tier, as the node shows them: one with all there is to know, many
//! in a list, and the sum of all.
//!
//! The worker knows what a path has done, the node where it stands. The worker hands out
//! [snapshots](PathSnapshot); the documents are made here, on the node's thread.

use std::sync::atomic::Ordering;

use ashway_abi::Count;
use ashway_abi::share::Mode;
use ashway_path::places::PathId;
use ashway_path::stage::Direction;
use serde_json::{Map, Value, json};

use super::binding::no_worker;
use super::known::{NodeEnd, NodeLive};
use super::{Node, owners, serve};
use crate::counters::Row;
use crate::request::Refusal;
use crate::snapshot::{PathSnapshot, QueueSnapshot};
use crate::{config, status};

/// Most paths that `status` shows one by one.
const SHOWN: usize = 1000;

impl Node {
    /// A path, with everything there is to know of it.
    ///
    /// # Errors
    ///
    /// If there is none of this name.
    pub(super) fn show(&mut self, name: &str) -> Result<Value, Refusal> {
        if let Some(path) = self.path(name) {
            return self.show_of_handler(path);
        }
        let id = self.find_live(name)?;
        let shown = self.snapshot(&[id])?.as_ref().map(describe);
        Ok(Value::Object(self.entitle(id, shown.unwrap_or_default())))
    }

    /// A path that ends in a handler: what it has done in both tiers, and what the worker
    /// has of it at all its interfaces together.
    fn show_of_handler(&mut self, id: PathId) -> Result<Value, Refusal> {
        let runs = self.plan.paths[&id].runs.clone();
        let mut shown = self
            .snapshot(&runs)?
            .as_ref()
            .map_or_else(Map::new, describe);
        let Value::Object(document) = serve::path(self, id) else {
            return Ok(Value::Object(shown));
        };
        shown.extend(document);
        let (path, plan) = (&self.paths[&id].config, &self.plan.paths[&id]);
        let ends = path
            .ifaces
            .iter()
            .zip(&plan.slots)
            .map(|(name, (iface, _))| {
                let target = self.plan.target(id, *iface);
                let text = target.and_then(|target| self.ifaces[*iface].table.text(target));
                json!({ "iface": name, "match": text, "direction": word(Direction::Backward) })
            });
        shown.insert("ends".to_owned(), ends.collect());
        shown.insert("from".to_owned(), json!(path.handler));
        shown.insert("promotion".to_owned(), shown["stays"].clone());
        Ok(Value::Object(shown))
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

    /// Adds what the node knows of a path.
    fn entitle(&self, id: PathId, mut shown: Map<String, Value>) -> Map<String, Value> {
        let Some(live) = self.live.at(id) else {
            return shown;
        };
        let text = |end: &NodeEnd| {
            let target = self.live_target(id, end.direction);
            self.ifaces[end.iface()].table.text(target)
        };
        let name = |end: &NodeEnd| &self.config.ifaces[end.iface()].name;
        let ends = live.ends().map(|end| {
            json!({
                "iface": name(end),
                "match": text(end),
                "direction": word(end.direction),
            })
        });
        shown.insert("ends".to_owned(), ends.collect());
        shown.insert("name".to_owned(), json!(*live.name));
        shown.insert("from".to_owned(), json!(self.live.from(live)));
        shown.insert("owner".to_owned(), owners::shown(live.owner.as_ref()));
        self.add_dropped(live, &mut shown);
        self.add_tier(live, &mut shown);
        let (faults, bypass) = self.describe_live_faults(live);
        shown.insert("faults".to_owned(), faults);
        shown.insert("bypass".to_owned(), bypass);
        shown.insert("next_hop".to_owned(), json!(self.show_neighbour(id)));
        let ifaces: Vec<_> = live.ends().map(name).collect();
        shown.insert("iface".to_owned(), json!(ifaces));
        shown.insert("match".to_owned(), json!(live.ends().next().and_then(text)));
        shown
    }

    /// Adds what was dropped on arrival, before the worker could count it.
    fn add_dropped(&self, live: &NodeLive, shown: &mut Map<String, Value>) {
        let carrier = self.carrier.as_ref().zip(live.number);
        let dropped = carrier.map_or(0, |(carrier, number)| carrier.dropped_on_arrival(number));
        if dropped > 0 {
            let add = |to: &mut Value| *to = json!(to.as_u64().unwrap_or(0) + dropped);
            add(&mut shown["received"]);
            add(&mut shown["fates"]["dropped"]["queue_full"]);
        }
    }

    /// All paths of the user tier, up to [`SHOWN`], as `status` lists them.
    pub(super) fn list(&mut self) -> Vec<Value> {
        let mut names: Vec<&str> = self.live.names().collect();
        names.sort_unstable();
        names.truncate(SHOWN);
        let ids: Vec<PathId> = names
            .iter()
            .filter_map(|name| self.live.find(name))
            .collect();
        // A worker that does not answer has nothing to show.
        let snapshots = self.worker.snapshots(&ids).unwrap_or_default();
        let shown = snapshots.iter().map(|path| path.as_ref().map(describe));
        ids.into_iter()
            .zip(shown)
            .map(|(id, shown)| Value::Object(self.entitle(id, shown.unwrap_or_default())))
            .collect()
    }

    /// How many there are, and what became of all their messages; `ring`: of those that
    /// were lost on the way to the worker, and not by a relay of the kernel tier.
    pub(super) fn sum_of_live(&self) -> Value {
        let mut row = serve::row(self, self.plan.live_row);
        let lost = [Count::DroppedRingFull, Count::DroppedTooLong];
        let ring: Map<_, _> = lost
            .map(|count| (count.name().to_owned(), json!(row.get(count))))
            .into_iter()
            .collect();
        row.add(&self.rows_of_relays());
        let held = u64::from(self.held.load(Ordering::Acquire));
        let mut sum = status::counts(&row, self.waiting_in_rings() + held);
        sum.insert("paths".to_owned(), json!(self.live.len()));
        sum.insert("ring".to_owned(), Value::Object(ring));
        Value::Object(sum)
    }
}

fn word(direction: Direction) -> &'static str {
    match direction {
        Direction::Forward => "forward",
        Direction::Backward => "backward",
    }
}

/// What the worker has of a path, as a document. Its messages out are those it made, and
/// those it let go on.
fn describe(path: &PathSnapshot) -> Map<String, Value> {
    let account = &path.account;
    let stages: Vec<_> = path
        .stages
        .iter()
        .map(|stage| json!({ "module": stage.module, "kind": stage.kind }))
        .collect();
    let attrs: Map<String, Value> = path
        .attrs
        .iter()
        .map(|(name, value)| (name.to_owned(), json!(value.to_string())))
        .collect();
    let queue = |queue: QueueSnapshot| json!({ "length": queue.length, "maximum": queue.maximum });
    let ended: u64 = account.fates().map(|(_, times)| times).sum();
    let mut shown = status::counts(&Row::of_fates(account.fates()), 0);
    // What leaves is counted where it is sent, for all paths together.
    shown.remove("out");
    let document = json!({
        "stages": stages,
        "attrs": attrs,
        "queues": {
            "in_forward": queue(path.queues.in_forward),
            "in_backward": queue(path.queues.in_backward),
            "out_forward": queue(path.queues.out_forward),
            "out_backward": queue(path.queues.out_backward),
        },
        "received": account.received(),
        "waiting": path.waiting,
        "originated": account.originated,
        "balanced": account.received() == ended + path.waiting,
        "runs": account.runs,
        "time_ns": account.time.as_nanos() as u64,
        "memory": {
            "bytes": path.memory_bytes,
            "granted_bytes": account.granted_bytes,
        },
        "fault": account.fault.as_ref().map(ToString::to_string),
    });
    if let Value::Object(more) = document {
        shown.extend(more);
    }
    if let Some(share) = config::share(&path.attrs) {
        shown.insert("share".to_owned(), json!(share.to_string()));
        shown.insert("mode".to_owned(), json!(path.mode.map(Mode::name)));
    }
    shown
}
