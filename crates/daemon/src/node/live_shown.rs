//! Paths of the user tier, as the node shows them: one with all there is to know, many
//! in a list, and the sum of all.
//!
//! The worker knows what a path has done, the node where it stands.

use std::sync::atomic::Ordering;

use ashway_abi::Count;
use ashway_abi::share::Mode;
use ashway_modules::Message;
use ashway_path::path::Path;
use ashway_path::places::PathId;
use ashway_path::stage::Direction;
use serde_json::{Map, Value, json};

use super::known::NodeEnd;
use super::{Node, owners};
use crate::counters::Row;
use crate::live::{Lead, Live};
use crate::request::Refusal;
use crate::status;

/// Most paths that `status` shows one by one.
const SHOWN: usize = 1000;

impl Node {
    /// A path, with everything there is to know of it.
    ///
    /// # Errors
    ///
    /// If there is none of this name.
    pub(super) fn show(&mut self, name: &Value) -> Result<Value, Refusal> {
        let name = name.as_str().unwrap_or_default();
        let id = self.find_live(name)?;
        let shown = self.tell(move |work| shown(&work.live, id))?;
        let shown = shown.unwrap_or_default();
        Ok(Value::Object(self.entitle(id, shown)))
    }

    /// Adds what the node knows of a path.
    fn entitle(&self, id: PathId, mut shown: Map<String, Value>) -> Map<String, Value> {
        let Some(live) = self.live.at(id) else {
            return shown;
        };
        let text = |end: &NodeEnd| {
            let lead = Lead::Live(id, end.direction);
            self.ifaces[end.iface()].table.text(lead)
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

    /// All paths of the user tier, up to [`SHOWN`], as `status` lists them.
    pub(super) fn list(&mut self) -> Vec<Value> {
        let mut names: Vec<&str> = self.live.names().collect();
        names.sort_unstable();
        names.truncate(SHOWN);
        let ids: Vec<PathId> = names
            .iter()
            .filter_map(|name| self.live.find(name))
            .collect();
        let asked = ids.clone();
        let shown = self.tell(move |work| {
            let paths = asked.iter().map(|id| shown(&work.live, *id));
            paths.map(Option::unwrap_or_default).collect::<Vec<_>>()
        });
        let shown = shown.unwrap_or_default();
        ids.into_iter()
            .zip(shown)
            .map(|(id, shown)| Value::Object(self.entitle(id, shown)))
            .collect()
    }

    /// How many there are, and what became of all their messages; `ring`: of those that
    /// were lost on the way to the worker, and not by a relay of the kernel tier.
    pub(super) fn sum_of_live(&self) -> Value {
        let mut row = super::serve::row(self, self.plan.live_row);
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

/// What the worker knows of a path, if it has that.
fn shown(live: &Live, id: PathId) -> Option<Map<String, Value>> {
    let path = live.paths.at(id)?;
    let mut shown = describe(path);
    if let Some(share) = crate::config::share(path.attrs()) {
        shown.insert("share".to_owned(), json!(share.to_string()));
        shown.insert("mode".to_owned(), json!(live.mode(id).map(Mode::name)));
    }
    Some(shown)
}

/// What the worker knows of a path. Its messages out are those it made, and those
/// it let go on.
fn describe(path: &Path<Message>) -> Map<String, Value> {
    let account = path.account();
    let stages: Vec<_> = path
        .stages()
        .map(|stage| json!({ "module": stage.name(), "kind": stage.kind().map(|kind| kind.name) }))
        .collect();
    let attrs: Map<String, Value> = path
        .attrs()
        .iter()
        .map(|(name, value)| (name.to_owned(), json!(value.to_string())))
        .collect();
    let queue = |waiting: usize, maximum: u32| json!({ "length": waiting, "maximum": maximum });
    let (forward, backward) = (Direction::Forward, Direction::Backward);
    let ended: u64 = account.fates().map(|(_, times)| times).sum();
    let waiting = path.waiting();
    let mut shown = status::counts(&Row::of_fates(account.fates()), 0);
    // What leaves is counted where it is sent, for all paths together.
    shown.remove("out");
    let document = json!({
        "stages": stages,
        "attrs": attrs,
        "queues": {
            "in_forward": queue(path.input(forward).len(), path.input(forward).maximum()),
            "in_backward": queue(path.input(backward).len(), path.input(backward).maximum()),
            "out_forward": queue(path.output(forward).len(), path.output(forward).maximum()),
            "out_backward": queue(path.output(backward).len(), path.output(backward).maximum()),
        },
        "received": account.received(),
        "waiting": waiting,
        "originated": account.originated,
        "balanced": account.received() == ended + waiting,
        "runs": account.runs,
        "time_ns": account.time.as_nanos() as u64,
        "memory": {
            "bytes": path.memory_bytes(),
            "granted_bytes": account.granted_bytes,
        },
        "fault": account.fault.as_ref().map(ToString::to_string),
    });
    if let Value::Object(more) = document {
        shown.extend(more);
    }
    shown
}
