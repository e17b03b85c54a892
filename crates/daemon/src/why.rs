//! `ashway why`: which path a flow takes and why, and why messages ended as they
//! did.
//!
//! Pure: over a configuration, a demux (the one that follows from it, or a running
//! node's own), and, of a running node, its status document. So a flow can also be asked about where nothing runs.

mod flow;
mod reasons;

use std::hash::Hash;

use ashway_abi::Count;
use ashway_abi::count::Ledger;
use ashway_api::request::Why;
use ashway_demux::{self as demux, Conjunction, Filter, Specificity, Table};
use ashway_modules::{datagram, eth};
use ashway_path::attrs::Attrs;
use ashway_wire::Headers;
use serde_json::{Value, json};
use toml::de::DeTable;

pub use flow::Flow;
pub use reasons::{Reason, reason};

use crate::config::{Config, NodeGraph, Offline, suggest};
use crate::request::{Refusal, unknown};

/// Most filters, or paths, that are explained one by one.
const LISTED: usize = 20;

/// Answers the request `why` of a running node: `about` is a flow (with `iface`,
/// unless there is but one), a counter (of `path`, or of all), or a path.
/// `status` is the status document.
///
/// # Errors
///
/// What is wrong with the request.
pub(crate) fn answer(
    config: &Config,
    status: &Value,
    look: &Look<'_>,
    request: &Why,
) -> Result<Value, Refusal> {
    let about = request.about.trim();
    if about.contains('>') {
        return flow_answer(config, about, request.iface.as_deref(), look, Some(status));
    }
    let names: Vec<_> = rows_of(status, "paths")
        .filter_map(|path| path["name"].as_str())
        .collect();
    let only = match request.path.as_deref() {
        Some(path) if !names.contains(&path) => return Err(unknown("path", path, &names)),
        only => only,
    };
    let places = Places::of(config);
    if let Some(count) = counter(about) {
        let reason = reason(count);
        let mut counting: Vec<_> = rows_of(status, "paths")
            .filter(|path| only.is_none_or(|only| path["name"] == only))
            .filter(|path| counted(path, count) != 0 || only.is_some())
            .collect();
        counting.sort_by_key(|path| std::cmp::Reverse(counted(path, count)));
        let not_listed = counting.len().saturating_sub(LISTED);
        counting.truncate(LISTED);
        let rows: Vec<_> = counting
            .into_iter()
            .map(|path| places.row(path, count, status))
            .collect();
        let passed = matches!(count, Count::Passed | Count::Received);
        let unmatched = rows_of(status, "interfaces")
            .filter(|iface| passed && only.is_none() && iface["unmatched"]["passed"] != 0)
            .map(|iface| json!({ "name": iface["name"], "passed": iface["unmatched"]["passed"] }));
        return Ok(json!({
            "about": "counter",
            "counter": count.name(),
            "reason": reason.sentence,
            "stage": reason.stage,
            "hint": reason.hint,
            "rows": rows,
            "rows_not_listed": not_listed,
            "unmatched": unmatched.collect::<Vec<_>>(),
            "together": together(only, status, count),
        }));
    }
    let Some(path) = rows_of(status, "paths").find(|path| path["name"] == about) else {
        let mut words: Vec<_> = Count::ALL.iter().map(|count| count.name()).collect();
        words.splice(0..0, names);
        let message = format!("`{about}` is no flow, no counter and no path");
        let hint = format!("{}; or for a flow: {}", suggest(about, &words), flow::FORM);
        return Err(Refusal::usage(message, hint));
    };
    // What was received is the sum of the rest.
    let rows: Vec<_> = Count::ALL[1..]
        .iter()
        .map(|count| places.row(path, *count, status))
        .filter(|row| row["count"] != 0)
        .collect();
    let (tier, tier_reason) = tier(path, status);
    Ok(json!({
        "about": "path",
        "path": about,
        "received": path["received"],
        "waiting": path["waiting"],
        "tier": tier,
        "tier_reason": tier_reason,
        "stages": places.stage_names(about),
        "file": config.file,
        "line": places.line(about, "match"),
        "rows": rows,
        "together": Count::ALL
            .iter()
            .map(|count| (count, together(Some(about), status, *count)))
            .filter(|(_, times)| *times > 0)
            .map(|(count, times)| json!({
                "counter": count.name(),
                "count": times,
                "reason": reason(*count).sentence,
                "hint": reason(*count).hint,
            }))
            .collect::<Vec<_>>(),
    }))
}

/// What all paths of modules have counted that none of them counts by itself: all but
/// what they received and what became of it, and of that what was lost on the way to
/// them, in the ring that is all paths' or because no place in it is so long. 0 if `only`
/// is none of them.
fn together(only: Option<&str>, status: &Value, count: Count) -> u64 {
    let mut paths = rows_of(status, "paths").filter(|path| path["stages"].is_array());
    if only.is_some_and(|only| !paths.any(|path| path["name"] == only)) {
        return 0;
    }
    match (count, count.ledger()) {
        (Count::DroppedRingFull | Count::DroppedTooLong, _) => status["live"]["ring"][count.name()]
            .as_u64()
            .unwrap_or_default(),
        (_, Ledger::Received | Ledger::Fate) => 0,
        _ => counted(&status["live"], count),
    }
}

/// Answers for a flow where no node runs.
///
/// # Errors
///
/// As of a request.
pub fn offline(config: &Config, about: &str, iface: Option<&str>) -> Result<Value, Refusal> {
    flow_answer(config, about, iface, &looks(config), None)
}

/// Looks a frame up in the demux that follows from a configuration.
fn looks(config: &Config) -> impl Fn(usize, &Headers, &[u8]) -> Looked {
    |iface, headers, frame| {
        let table = config.demux(&config.ifaces[iface].name);
        let all = 0..config.paths.len() + config.long_paths.len();
        Looked::of(
            &table,
            all,
            |number| config.path_name(number),
            headers,
            frame,
        )
    }
}

/// Which path a flow takes, and why not the others.
fn flow_answer(
    config: &Config,
    about: &str,
    iface: Option<&str>,
    look: &Look<'_>,
    status: Option<&Value>,
) -> Result<Value, Refusal> {
    let flow = Flow::parse(about).map_err(|error| Refusal::usage(error, flow::FORM))?;
    let names: Vec<_> = config.ifaces.iter().map(|i| i.name.as_str()).collect();
    let number = match (iface, names.as_slice()) {
        (Some(name), _) => {
            let at = names.iter().position(|known| *known == name);
            at.ok_or_else(|| unknown("interface", name, &names))?
        }
        (None, [_]) => 0,
        (None, _) => {
            let message = "on which interface does it arrive?".to_owned();
            return Err(Refusal::usage(message, suggest("", &names)));
        }
    };
    let iface = names[number];
    let frame = flow.frame();
    let headers = Headers::parse(&frame);
    let Looked {
        matched,
        others,
        not_listed,
    } = look(number, &headers, &frame);
    let places = Places::of(config);
    let entry = |name: &str, text: &str| {
        json!({
            "path": name,
            "match": text,
            "file": config.file,
            "line": places.line(name, "match"),
        })
    };
    let missed = others.iter().map(|(name, text)| {
        let mut entry = entry(name, text);
        let filter = demux::parse(text).ok();
        entry["missing"] = json!(filter.and_then(|filter| missing(&filter, &headers, &frame)));
        entry
    });
    let missed: Vec<_> = missed.collect();
    let taker = matched.first().map(|(name, ..)| &**name);
    let matched = matched.iter().map(|(name, text, specificity)| {
        let mut entry = entry(name, text);
        entry["bits"] = json!(specificity.bits);
        entry["exclusions"] = json!(specificity.exclusions);
        entry
    });
    let matched: Vec<_> = matched.collect();

    let gone = status
        .into_iter()
        .flat_map(|status| rows_of(status, "interfaces"))
        .any(|known| known["name"] == iface && known["mode"] == "gone");
    // A handler of the short form takes nothing but UDP, whatever the filter says.
    let short = taker.is_some_and(|name| config.paths.iter().any(|path| path.name == name));
    let hosts = short && !flow.is_udp();
    let (path, reason, hint) = match taker {
        _ if gone => (
            None,
            format!("interface `{iface}` is gone, so the node sees nothing of it"),
            "start the node again when the interface is back".to_owned(),
        ),
        Some(name) if hosts => (
            None,
            format!("it matches path `{name}`, whose handler takes UDP alone: the host gets it"),
            "say `udp` in the path's `match`".to_owned(),
        ),
        Some(name) => (Some(name), won(&matched), String::new()),
        None => (
            None,
            format!("no path of `{iface}` matches it: the host gets it, untouched"),
            "widen a path's `match`, or add a path".to_owned(),
        ),
    };
    let now = status.and_then(|status| {
        let mut all = rows_of(status, "paths");
        let row = all.find(|row| path.is_some_and(|path| row["name"] == path))?;
        Some(tier(row, status))
    });
    let (tier, tier_reason) = now.unwrap_or_else(|| {
        let found = config.paths.iter().find(|known| Some(&*known.name) == path);
        (json!(found.map(|path| path.tier.word())), Value::Null)
    });
    Ok(json!({
        "about": "flow",
        "flow": flow.to_string(),
        "iface": iface,
        "path": path,
        "reason": reason,
        "hint": hint,
        "tier": tier,
        "tier_reason": tier_reason,
        "stages": path.map(|name| match places.stage_names(name) {
            none if none.is_empty() => stages_now(name, status),
            names => names,
        }),
        "file": path.map(|_| &config.file),
        "line": path.and_then(|name| places.line(name, "match")),
        "matched": matched,
        "missed": missed,
        "missed_not_listed": not_listed,
    }))
}

/// The stages of a path that came while the node ran, first the one next to the
/// interface.
fn stages_now(path: &str, status: Option<&Value>) -> Vec<String> {
    let mut rows = status
        .into_iter()
        .flat_map(|status| rows_of(status, "paths"));
    let row = rows.find(|row| row["name"] == path);
    let stages = row.and_then(|row| row["stages"].as_array());
    let stages: Vec<&Value> = stages.into_iter().flatten().collect();
    let is_link = |stage: Option<&&Value>| {
        stage.is_some_and(|stage| eth::is_link_kind(stage["kind"].as_str().unwrap_or("")))
    };
    let from_above = is_link(stages.last()) && !is_link(stages.first());
    let names = stages.iter().filter_map(|stage| stage["module"].as_str());
    let mut names: Vec<String> = names.map(str::to_owned).collect();
    if from_above {
        names.reverse();
    }
    names
}

/// Why the first of these got it.
fn won(matched: &[Value]) -> String {
    match matched {
        [first, second, ..] => {
            let bits = |entry: &Value| entry["bits"].as_u64().unwrap_or(0);
            let (most, other) = (bits(first), name(second));
            let than = match bits(second) {
                same if same == most => format!("and more that must not hold than `{other}`"),
                fewer => format!("and `{other}` {fewer}"),
            };
            format!(
                "of the filters that match it, its is the most specific: it tests {most} bits {than}"
            )
        }
        _ => "its filter is the only one that matches".to_owned(),
    }
}

fn name(entry: &Value) -> &str {
    entry["path"].as_str().unwrap_or("?")
}

/// What keeps a frame out of a filter: of the alternative that it comes nearest
/// to, the first test that it fails.
fn missing(filter: &Filter, headers: &Headers, frame: &[u8]) -> Option<String> {
    let holds = |test: &demux::Test| test.holds(headers, frame);
    let near = filter
        .any
        .iter()
        .min_by_key(|one| one.tests.iter().filter(|test| !holds(test)).count())?;
    let failed = near.tests.iter().find(|test| !holds(test));
    if let Some(test) = failed {
        return Some(test.to_string());
    }
    let excluded = near.not.iter().filter(|tests| tests.iter().all(holds));
    let excluded = Conjunction {
        tests: Vec::new(),
        not: excluded.cloned().collect(),
    };
    Some(excluded.to_string())
}

/// Looks a frame up in the demux of an interface.
pub(crate) type Look<'l> = dyn Fn(usize, &Headers, &[u8]) -> Looked + 'l;

/// What the demux of an interface says of a frame; paths by name, with the texts of
/// their filters.
pub(crate) struct Looked {
    /// Those that match. The first gets it.
    matched: Vec<(String, String, Specificity)>,
    /// Some of those that do not.
    others: Vec<(String, String)>,
    /// How many more of these there are.
    not_listed: usize,
}

impl Looked {
    /// `all` is what leads somewhere in `table`, and may be more. As long as a
    /// look-up and [`LISTED`] filters take.
    pub(crate) fn of<'n, T: Copy + Eq + Hash>(
        table: &Table<T>,
        all: impl Iterator<Item = T>,
        name: impl Fn(T) -> &'n str,
        headers: &Headers,
        frame: &[u8],
    ) -> Self {
        let mut taken: Vec<(Specificity, T)> = Vec::new();
        for (specificity, value) in table.matches(headers, frame) {
            // Of several alternatives the most specific one.
            if taken.iter().all(|(_, known)| *known != value) {
                taken.push((specificity, value));
            }
        }
        let text = |value| table.text(value).unwrap_or_default().to_owned();
        let others = all.filter(|value| {
            table.text(*value).is_some() && taken.iter().all(|(_, known)| known != value)
        });
        let others: Vec<_> = others
            .take(LISTED)
            .map(|value| (name(value).to_owned(), text(value)))
            .collect();
        Self {
            not_listed: table.len() - taken.len() - others.len(),
            others,
            matched: taken
                .into_iter()
                .map(|(specificity, value)| (name(value).to_owned(), text(value), specificity))
                .collect(),
        }
    }
}

/// The tier a path runs in now, and why, if it is not the one asked for.
fn tier(path: &Value, status: &Value) -> (Value, Value) {
    let handler = rows_of(status, "handlers").find(|handler| handler["name"] == path["handler"]);
    if let Some(because) = path["bypass"]["because"].as_str() {
        let because = format!("{because}: its messages go by the handler");
        return (json!("bypassed"), json!(because));
    }
    let because = handler
        .filter(|_| path["tier"] == "user")
        .map_or(Value::Null, |handler| {
            handler["promotion"]["because"].clone()
        });
    (path["tier"].clone(), because)
}

/// Where things stand in the configuration's file.
struct Places<'c> {
    config: &'c Config,
    root: toml::Spanned<DeTable<'c>>,
    /// As the configuration has it, with nothing behind it. Absent if modules
    /// cannot be made any more, which would be a bug.
    graph: Option<NodeGraph>,
}

impl<'c> Places<'c> {
    fn of(config: &'c Config) -> Self {
        let (root, _) = DeTable::parse_recoverable(&config.text);
        let graph = config.graph(&Offline(config)).ok();
        Self {
            config,
            root,
            graph,
        }
    }

    /// The line of a path's key, or else where its section starts; `None` for one
    /// that came while the node ran.
    fn line(&self, path: &str, key: &str) -> Option<usize> {
        let sections = self.root.get_ref().get("path")?.get_ref().as_table()?;
        let (name, section) = sections.get_key_value(path)?;
        let keys = section.get_ref().as_table();
        let key = keys.and_then(|keys| keys.get_key_value(key));
        let start = key.map_or_else(|| name.span().start, |(key, _)| key.span().start);
        let before = self.config.text.get(..start)?;
        Some(before.matches('\n').count() + 1)
    }

    /// The names of a path's stages, first the one next to the interface.
    fn stage_names(&self, path: &str) -> Vec<String> {
        self.stages(path)
            .into_iter()
            .map(|(name, _)| name)
            .collect()
    }

    /// Names and kinds of a path's stages.
    fn stages(&self, path: &str) -> Vec<(String, &'static str)> {
        self.create(path).unwrap_or_default()
    }

    fn create(&self, name: &str) -> Option<Vec<(String, &'static str)>> {
        let graph = self.graph.as_ref()?;
        let short = self.config.paths.iter().find(|path| path.name == name);
        let created = if let Some(path) = short {
            graph.create(path, path.ifaces.first()?, Attrs::new())
        } else {
            let mut long = self.config.long_paths.iter();
            graph.create_long(long.find(|path| path.name == name)?)
        };
        let path = created.ok()?.path;
        let stages = path.stages().map(|stage| {
            let kind = stage.kind().map_or("", |kind| kind.name);
            (stage.name().to_owned(), kind)
        });
        let mut stages: Vec<_> = stages.collect();
        // A path may be created from either of its ends.
        let is_link =
            |stage: Option<&(String, &str)>| stage.is_some_and(|(_, kind)| eth::is_link_kind(kind));
        if is_link(stages.last()) && !is_link(stages.first()) {
            stages.reverse();
        }
        Some(stages)
    }

    /// What a path counted under a counter, and why.
    fn row(&self, path: &Value, count: Count, status: &Value) -> Value {
        let reason = reason(count);
        let name = path["name"].as_str().unwrap_or_default();
        let counted = counted(path, count);
        // Its name in this path, where a stage may do the work of several.
        let stages = match counted {
            0 => Vec::new(),
            _ => self.stages(name),
        };
        let of = |kind: &str| {
            let found = stages.iter().find(|(_, known)| *known == kind);
            found.map(|(name, _)| name.as_str())
        };
        let stage = of(reason.stage);
        let merged = of(datagram::KIND.name)
            .or_else(|| of(datagram::FUSED.name))
            .filter(|_| stage.is_none() && ["ip", "udp"].contains(&reason.stage));
        // Only a stopped handler has a line of its own.
        let stopped = count.name().starts_with("abort_") && count != Count::AbortVoluntary
            || matches!(count, Count::DroppedFault | Count::AbortedDirty);
        // A path of modules alone has neither such a stage nor such a key.
        let nowhere = reason.stage == "handler"
            && stage.is_none()
            && self.config.long_paths.iter().any(|path| path.name == name);
        // The last stop may have had another cause than those of this counter.
        let cause = count.name().strip_prefix("abort_");
        let fault = rows_of(status, "handlers")
            .find(|handler| stopped && handler["name"] == path["handler"])
            .map(|handler| &handler["last_fault"])
            .filter(|fault| cause.is_none_or(|cause| fault["cause"] == cause));
        json!({
            "path": name,
            "counter": count.name(),
            "count": counted,
            "reason": reason.sentence,
            "stage": stage.or_else(|| (!nowhere).then_some(reason.stage)),
            "merged_into": merged,
            "tier": path["tier"],
            "key": (!nowhere).then_some(reason.key),
            "file": self.config.file,
            "line": self.line(name, reason.key),
            "hint": reason.hint,
            "last_fault": fault,
        })
    }
}

/// The objects of a list of the status document.
fn rows_of<'s>(status: &'s Value, list: &str) -> impl Iterator<Item = &'s Value> {
    status[list].as_array().into_iter().flatten()
}

/// The counter that is meant: by its name, or as `status` shows it.
fn counter(word: &str) -> Option<Count> {
    let mut all = Count::ALL.iter();
    all.clone()
        .find(|count| count.name() == word)
        .or_else(|| {
            all.find(|count| {
                let shown = ["dropped_", "abort_", "out_dropped_", "out_"];
                let mut shown = shown
                    .iter()
                    .filter_map(|start| count.name().strip_prefix(start));
                shown.any(|shown| shown == word)
            })
        })
        .copied()
}

/// A counter in a path's part of the status document, which leaves out rare ones
/// that are 0.
fn counted(path: &Value, count: Count) -> u64 {
    let name = count.name();
    let value = if let Some(reason) = name.strip_prefix("out_dropped_") {
        &path["out"]["dropped"][reason]
    } else if let Some(name) = name.strip_prefix("out_") {
        &path["out"][name]
    } else if let Some(reason) = name.strip_prefix("dropped_") {
        &path["fates"]["dropped"][reason]
    } else if let Some(cause) = name.strip_prefix("abort_") {
        &path["aborts"][cause]
    } else if count == Count::Received {
        &path["received"]
    } else if count == Count::Committed {
        &path["activations"][name]
    } else if count.ledger() == Ledger::Note {
        &path["notes"][name]
    } else {
        &path["fates"][name]
    };
    value.as_u64().unwrap_or(0)
}

#[cfg(test)]
mod tests;
