//! `ashway why`: which path a flow takes and why, and why messages ended as they
//! did.
//!
//! Pure: over a configuration, a demux (the one that follows from it, or a running
//! node's own), and, of a running node, its status document. So a flow can also be asked about where nothing runs.

mod flow;
mod reasons;

use std::cmp::Reverse;
use std::hash::Hash;

use ashway_abi::Count;
use ashway_abi::count::Ledger;
use ashway_api::Word;
use ashway_api::answer::{
    self, Counted, Matched, Missed, Path, SilentIface, Status, Together, UnmatchedOf, Why,
    WhyCounter, WhyFlow, WhyPath,
};
use ashway_api::request;
use ashway_demux::{self as demux, Conjunction, Filter, Specificity, Table};
use ashway_modules::{datagram, eth};
use ashway_path::attrs::Attrs;
use ashway_wire::Headers;
use toml::de::DeTable;

pub use flow::Flow;
pub use reasons::{Reason, reason};

use crate::request::{Refusal, unknown};
use ashway_config::{Attach, Config, NodeGraph, Offline, suggest, whole_name};

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
    status: &Status,
    look: &Look<'_>,
    request: &request::Why,
) -> Result<Why, Refusal> {
    let about = request.about.trim();
    if about.contains('>') {
        return flow_answer(config, about, request.iface.as_deref(), look, Some(status));
    }
    let names: Vec<_> = status.paths.iter().map(name).collect();
    let only = match request.path.as_deref() {
        Some(path) if !names.contains(&path) => return Err(unknown("path", path, &names)),
        only => only,
    };
    let places = FilePlaces::of(config);
    if let Some(count) = counter(about) {
        return Ok(Why::Counter(why_counter(&places, status, count, only)));
    }
    let Some(path) = status.paths.iter().find(|path| name(path) == about) else {
        let mut words: Vec<_> = Count::ALL.iter().map(|count| count.name()).collect();
        words.splice(0..0, names);
        let message = format!("`{about}` is no flow, no counter and no path");
        let hint = format!("{}; or for a flow: {}", suggest(about, &words), flow::FORM);
        return Err(Refusal::usage(message, hint));
    };
    Ok(Why::Path(why_path(&places, status, path)))
}

fn name(path: &Path) -> &str {
    &path.base.name
}

/// Why a counter counts, of one path or of all.
fn why_counter(
    places: &FilePlaces<'_>,
    status: &Status,
    count: Count,
    only: Option<&str>,
) -> WhyCounter {
    let reason = reason(count);
    let counted = |path: &Path| path.base.counts.get(count);
    let paths = status.paths.iter();
    let mut counting: Vec<_> = paths
        .filter(|path| only.is_none_or(|only| name(path) == only))
        .filter(|path| counted(path) != 0 || only.is_some())
        .collect();
    counting.sort_by_key(|path| Reverse(counted(path)));
    let not_listed = counting.len().saturating_sub(LISTED);
    counting.truncate(LISTED);
    let rows = counting.into_iter();
    let passed = matches!(count, Count::Passed | Count::Received);
    let unmatched = status.interfaces.iter();
    let unmatched = unmatched
        .filter(|iface| passed && only.is_none() && iface.unmatched.passed != 0)
        .map(|iface| UnmatchedOf {
            name: iface.name.clone(),
            passed: iface.unmatched.passed,
        });
    WhyCounter {
        counter: count.name().into(),
        reason: reason.sentence.into(),
        stage: reason.stage.into(),
        hint: reason.hint.into(),
        rows: rows.map(|path| places.row(path, count, status)).collect(),
        rows_not_listed: not_listed as u64,
        unmatched: unmatched.collect(),
        together: together(only, status, count),
    }
}

/// What a path has counted, and why.
fn why_path(places: &FilePlaces<'_>, status: &Status, path: &Path) -> WhyPath {
    let about = name(path);
    // What was received is the sum of the rest.
    let rows = Count::ALL[1..]
        .iter()
        .map(|count| places.row(path, *count, status))
        .filter(|row| row.count != 0);
    let (tier, tier_reason) = tier(path);
    let ifaces = status.interfaces.iter();
    let silent = ifaces
        .filter(|iface| path.base.iface.contains(&iface.name))
        .filter(|iface| matches!(&*iface.mode, "down" | "gone"))
        .map(|iface| SilentIface {
            iface: iface.name.clone(),
            mode: iface.mode.clone(),
            hint: iface.hint.clone(),
        });
    let together = Count::ALL
        .iter()
        .map(|count| (count, together(Some(about), status, *count)))
        .filter(|(_, times)| *times > 0)
        .map(|(count, times)| Together {
            counter: count.name().into(),
            count: times,
            reason: reason(*count).sentence.into(),
            hint: reason(*count).hint.into(),
        });
    WhyPath {
        path: about.to_owned(),
        received: path.base.counts.received,
        waiting: path.base.counts.waiting,
        tier,
        tier_reason,
        stages: places.stage_names(about, Some(status)),
        file: places.file(),
        line: places.line(about, "match"),
        silent: silent.collect(),
        rows: rows.collect(),
        together: together.collect(),
    }
}

/// What all paths of modules have counted together and none of them by itself: neither what
/// they received and what became of it, nor a relay's notes, but what was lost in the ring that
/// they share, or was too long for a slot of it. 0 if `only` is none of them.
fn together(only: Option<&str>, status: &Status, count: Count) -> u64 {
    let of_modules = || status.paths.iter().filter(|path| path.bound.is_none());
    if only.is_some_and(|only| of_modules().all(|path| name(path) != only)) {
        return 0;
    }
    match (count, count.ledger()) {
        (Count::DroppedRingFull | Count::DroppedTooLong, _) => {
            status.module_paths.ring.get(count.name())
        }
        (_, Ledger::Received | Ledger::Fate) => 0,
        _ => {
            let own = of_modules().map(|path| path.base.counts.get(count));
            let all = status.module_paths.counts.get(count);
            all.saturating_sub(own.sum())
        }
    }
}

/// Answers for a flow where no node runs.
///
/// # Errors
///
/// As of a request.
pub fn offline(config: &Config, about: &str, iface: Option<&str>) -> Result<Why, Refusal> {
    flow_answer(config, about, iface, &looks(config), None)
}

/// Looks a frame up in the demux that follows from a configuration.
fn looks(config: &Config) -> impl Fn(&str, &Headers, &[u8]) -> Looked {
    |iface, headers, frame| {
        let table = config.demux(iface);
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
    status: Option<&Status>,
) -> Result<Why, Refusal> {
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
    } = look(iface, &headers, &frame);
    let places = FilePlaces::of(config);
    let filter_of = |name: &str, text: &str| answer::Filter {
        path: name.to_owned(),
        filter: text.to_owned(),
        file: places.file(),
        line: places.line(name, "match"),
    };
    let missed = others.iter().map(|(name, text)| {
        let filter = demux::parse(text).ok();
        Missed {
            filter: filter_of(name, text),
            missing: filter.and_then(|filter| missing(&filter, &headers, &frame)),
        }
    });
    let missed: Vec<_> = missed.collect();
    let taker = matched.first().map(|(name, ..)| &**name);
    let matched = matched.iter().map(|(name, text, specificity)| Matched {
        filter: filter_of(name, text),
        bits: specificity.bits.into(),
        exclusions: specificity.exclusions.into(),
    });
    let matched: Vec<_> = matched.collect();

    let mut ifaces = status.into_iter().flat_map(|status| &status.interfaces);
    let gone = ifaces.any(|known| known.name == iface && known.mode == "gone");
    // A handler of the short form takes nothing but UDP, whatever the filter says.
    let short = taker.is_some_and(|name| {
        config
            .paths
            .iter()
            .any(|path| whole_name(&path.name) == name)
    });
    let hosts = short && !flow.is_udp();
    let (path, reason, hint) = match taker {
        _ if gone => (
            None,
            format!("interface `{iface}` is gone, so the node sees nothing of it"),
            "see its hint in `ashway status`".to_owned(),
        ),
        Some(name) if hosts => (
            None,
            format!("it matches path `{name}`, whose handler takes UDP alone: the host gets it"),
            "say `udp` in the path's `match`".to_owned(),
        ),
        Some(name) => (Some(name), won(&matched), String::new()),
        None => (
            None,
            format!(
                "no path of `{iface}` matches it: {}",
                unmatched(config, iface)
            ),
            "widen a path's `match`, or add a path".to_owned(),
        ),
    };
    let now = status.and_then(|status| {
        let mut all = status.paths.iter();
        let row = all.find(|row| path == Some(name(row)))?;
        Some(tier(row))
    });
    let (tier, tier_reason) = if let Some((tier, reason)) = now {
        (Some(tier), reason)
    } else {
        let found = config.paths.iter().find(|known| Some(&*known.name) == path);
        (found.map(|path| path.tier.word().into()), None)
    };
    Ok(Why::Flow(WhyFlow {
        flow: flow.to_string(),
        iface: iface.to_owned(),
        path: path.map(str::to_owned),
        reason,
        hint,
        tier,
        tier_reason,
        stages: path.map(|name| places.stage_names(name, status)),
        has_no_host: config.iface(iface).is_some_and(|it| it.attach.is_own()),
        file: path.map(|_| places.file()),
        line: path.and_then(|name| places.line(name, "match")),
        matched,
        missed,
        missed_not_listed: not_listed as u64,
    }))
}

/// Names and kinds of the stages of a path that came while the node ran.
fn stages_now(path: &str, status: Option<&Status>) -> Vec<(String, Word)> {
    let mut rows = status.into_iter().flat_map(|status| &status.paths);
    let run = rows
        .find(|row| name(row) == path)
        .and_then(|row| row.run.as_ref());
    let stages = run.into_iter().flat_map(|run| &run.stages);
    let stages = stages.map(|stage| {
        let kind = stage.kind.clone().unwrap_or_default();
        (stage.module.clone(), kind)
    });
    stages.collect()
}

/// Why the first of these got it.
fn won(matched: &[Matched]) -> String {
    match matched {
        [first, second, ..] => {
            let (most, other) = (first.bits, &second.filter.path);
            let than = match second.bits {
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
pub(crate) type Look<'l> = dyn Fn(&str, &Headers, &[u8]) -> Looked + 'l;

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

/// What becomes of a frame that no path of an interface matches.
fn unmatched(config: &Config, iface: &str) -> &'static str {
    let of = config.iface(iface);
    match of.map(|iface| iface.attach) {
        Some(Attach::Tap) => "it is dropped, as the host has sent it itself",
        Some(Attach::Pcap) => "it goes into the file that the interface writes",
        Some(Attach::Memory) => {
            "whoever has the far end gets it as the host, and between two interfaces it is dropped"
        }
        _ => "the host gets it, untouched",
    }
}

/// The tier a path runs in now, and why, if it is not the one asked for.
fn tier(path: &Path) -> (Word, Option<String>) {
    let base = &path.base;
    if let Some(bypass) = &base.bypass {
        let because = format!("{}: its messages bypass the handler", bypass.because);
        return ("bypassed".into(), Some(because));
    }
    let why = path.promotion.why.as_ref();
    let because = why.and_then(|why| why.because.as_deref());
    (base.tier.clone(), because.map(str::to_owned))
}

/// The handler that a path ends in.
fn handler_of<'s>(path: &Path, status: &'s Status) -> Option<&'s answer::Handler> {
    let name = &path.bound.as_ref()?.handler;
    status.handlers.iter().find(|handler| handler.name == *name)
}

/// Where things stand in the configuration's file.
struct FilePlaces<'c> {
    config: &'c Config,
    root: toml::Spanned<DeTable<'c>>,
    /// As the configuration has it, with nothing behind it. Absent if modules
    /// cannot be made any more, which would be a bug.
    graph: Option<NodeGraph>,
}

impl<'c> FilePlaces<'c> {
    fn of(config: &'c Config) -> Self {
        let (root, _) = DeTable::parse_recoverable(&config.text);
        let graph = config.graph(&Offline(config)).ok();
        Self {
            config,
            root,
            graph,
        }
    }

    /// The file, for people.
    fn file(&self) -> String {
        self.config.file.display().to_string()
    }

    /// The line of a path's key, or else where its section starts; `None` for one
    /// that came while the node ran.
    fn line(&self, path: &str, key: &str) -> Option<u64> {
        let sections = self.root.get_ref().get("path")?.get_ref().as_table()?;
        let (name, section) = sections.get_key_value(path)?;
        let keys = section.get_ref().as_table();
        let key = keys.and_then(|keys| keys.get_key_value(key));
        let start = key.map_or_else(|| name.span().start, |(key, _)| key.span().start);
        let before = self.config.text.get(..start)?;
        Some(before.matches('\n').count() as u64 + 1)
    }

    /// The names of a path's stages, first the one next to the interface.
    fn stage_names(&self, path: &str, status: Option<&Status>) -> Vec<String> {
        let stages = self.stages(path, status).into_iter();
        stages.map(|(name, _)| name).collect()
    }

    /// Names and kinds of a path's stages: as the file has it, or else the running node.
    fn stages(&self, path: &str, status: Option<&Status>) -> Vec<(String, Word)> {
        let created = self.create(path);
        let mut stages = created.unwrap_or_else(|| stages_now(path, status));
        // A path may be created from either of its ends.
        let is_link =
            |stage: Option<&(String, Word)>| stage.is_some_and(|(_, kind)| eth::is_link_kind(kind));
        if is_link(stages.last()) && !is_link(stages.first()) {
            stages.reverse();
        }
        stages
    }

    fn create(&self, name: &str) -> Option<Vec<(String, Word)>> {
        let graph = self.graph.as_ref()?;
        let mut short = self.config.paths.iter();
        let short = short.find(|path| whole_name(&path.name) == name);
        let created = if let Some(path) = short {
            graph.create(path, path.ifaces.first()?, Attrs::new())
        } else {
            let mut long = self.config.long_paths.iter();
            graph.create_long(long.find(|path| path.name == name)?)
        };
        let path = created.ok()?.path;
        let stages = path.stages().map(|stage| {
            let kind = stage.kind().map_or("", |kind| kind.name);
            (stage.name().to_owned(), kind.into())
        });
        Some(stages.collect())
    }

    /// What a path counted under a counter, and why.
    fn row(&self, path: &Path, count: Count, status: &Status) -> Counted {
        let reason = reason(count);
        let (name, base) = (name(path), &path.base);
        let counted = base.counts.get(count);
        // Its name in this path, where a stage may do the work of several.
        let stages = match counted {
            0 => Vec::new(),
            _ => self.stages(name, Some(status)),
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
        let fault = handler_of(path, status)
            .filter(|_| stopped)
            .and_then(|handler| handler.last_fault.as_ref())
            .filter(|fault| cause.is_none_or(|cause| fault.cause.as_deref() == Some(cause)));
        let stage = stage.or_else(|| (!nowhere).then_some(reason.stage));
        Counted {
            path: name.to_owned(),
            counter: count.name().into(),
            count: counted,
            reason: reason.sentence.into(),
            stage: stage.map(str::to_owned),
            merged_into: merged.map(str::to_owned),
            tier: base.tier.clone(),
            key: (!nowhere).then_some(reason.key.into()),
            file: self.file(),
            line: self.line(name, reason.key),
            hint: reason.hint.into(),
            last_fault: fault.cloned(),
        }
    }
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

#[cfg(test)]
mod tests;
