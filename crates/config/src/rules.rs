//! What must hold between sections.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use ashway_abi::leaf::MAX_SLOTS;
use ashway_abi::trusted::{MAX_PATHS, MAX_RINGS};
use ashway_demux::{self as demux, Conflict, Filter, Table};
use ashway_modules::Message;
use ashway_path::attrs::Attrs;
use ashway_path::create::{Created, NotCreated};
use ashway_path::problem::suggest;
use toml::de::DeTable;

use crate::bound::Asked;
use crate::diagnostics::Diagnostic;
use crate::entrances::Entrance;
use crate::glob::Glob;
use crate::instances::{self, whole_name};
use crate::modules::NodeGraph;
use crate::patterns;
use crate::read::Reader;
use crate::sections::PathPlaces;
use crate::types::{Attach, Config, DomainConfig, IfaceConfig, MemoryMode, PathConfig, Tier};

/// Notes every contradiction between sections; `places[i]` belongs to
/// `config.paths[i]`.
pub(super) fn check(reader: &mut Reader<'_>, config: &Config, places: &[PathPlaces]) {
    let ifaces: Vec<_> = config.ifaces.iter().map(|i| i.name.as_str()).collect();
    let handlers: Vec<_> = config.handlers.iter().map(|h| h.name.as_str()).collect();
    let mut used: BTreeMap<&str, usize> = BTreeMap::new();
    let mut rings: HashMap<&str, HashSet<&str>> = HashMap::new();
    let mut slots: HashMap<&str, usize> = HashMap::new();
    for (path, places) in config.paths.iter().zip(places) {
        check_ifaces(reader, config, path, places, &ifaces);
        for (name, span) in &places.ifaces {
            let taken = slots.entry(name).or_default();
            *taken += 1;
            if *taken == MAX_SLOTS + 1 {
                let message = format!("`{name}` has more than {MAX_SLOTS} paths with a handler");
                let hint = "`or` in a `match` leads more messages to the same path".to_owned();
                reader.error("too_many_paths", span.clone(), message, Some(hint));
            }
            let of_handler = rings.entry(&path.handler).or_default();
            if of_handler.insert(name) && of_handler.len() == MAX_RINGS + 1 {
                let message = format!(
                    "`{}` has paths on more than {MAX_RINGS} interfaces",
                    path.handler
                );
                let hint = "make a second handler section with the same file".to_owned();
                reader.error("too_many_paths", span.clone(), message, Some(hint));
            }
        }
        let Some(span) = &places.handler else {
            continue;
        };
        if !handlers.contains(&path.handler.as_str()) {
            unknown(reader, "handler", &path.handler, span.clone(), &handlers);
        }
        let paths = used.entry(&path.handler).or_default();
        *paths += 1;
        if *paths == MAX_PATHS + 1 {
            reader.error(
                "too_many_paths",
                span.clone(),
                format!("`{}` has more than {MAX_PATHS} paths", path.handler),
                Some("make a second handler section with the same file".to_owned()),
            );
        }
    }
    for (path, places) in config.paths.iter().zip(places) {
        if let Some(span) = &places.filter
            && config.knows_domains(path)
            && let Err((message, hint)) = config.own(path)
        {
            reader.error("not_owned", span.clone(), message, Some(hint));
        }
    }
    check_filters(reader, &config.paths, places);
}

/// A domain that a section names must be there.
pub(super) fn check_domains(reader: &mut Reader<'_>, root: &DeTable<'_>, config: &Config) {
    let table = |key: &str| root.get(key)?.get_ref().as_table();
    let sections = ["handler", "path"].into_iter().filter_map(table).flatten();
    for (_, section) in sections {
        let domain = section.get_ref().as_table();
        let Some(domain) = domain.and_then(|section| section.get("domain")) else {
            continue;
        };
        if let Some(name) = domain.get_ref().as_str()
            && let Err((message, hint)) = config.domain(name)
        {
            reader.error("unknown_name", domain.span(), message, Some(hint));
        }
    }
}

/// Where the graph is wrong no path can be tried, but a module that is not there
/// can be named.
pub(super) fn check_begins(
    reader: &mut Reader<'_>,
    config: &Config,
    modules: &[String],
    long_places: &[Range<usize>],
) {
    for (path, span) in config.long_paths.iter().zip(long_places) {
        if !modules.contains(&path.from) {
            let message = format!("there is no module `{}`", path.from);
            let hint = suggest(&path.from, modules);
            reader.error("unknown_name", span.clone(), message, Some(hint));
        }
    }
}

/// The programs of a node run at one hook.
pub(super) fn check_hook(
    reader: &mut Reader<'_>,
    known: &[IfaceConfig],
    iface: &IfaceConfig,
    span: Range<usize>,
) {
    let Some(tcx) = iface.attach.is_tcx() else {
        return;
    };
    let other = |known: &&IfaceConfig| known.attach.is_tcx() == Some(!tcx);
    if let Some(other) = known.iter().find(other) {
        let message = format!(
            "`{}` has `attach = \"{}\"` and `{}` has `attach = \"{}\"`: the programs of a node \
             run at one hook",
            iface.name,
            iface.attach.word(),
            other.name,
            other.attach.word(),
        );
        let hint = "give both the same, or a node of its own to each".to_owned();
        reader.error("contradiction", span, message, Some(hint));
    }
}

fn check_ifaces(
    reader: &mut Reader<'_>,
    config: &Config,
    path: &PathConfig,
    places: &PathPlaces,
    known: &[&str],
) {
    for (position, (name, span)) in places.ifaces.iter().enumerate() {
        if places.ifaces[..position]
            .iter()
            .any(|(earlier, _)| earlier == name)
        {
            reader.error(
                "bad_value",
                span.clone(),
                format!("`{name}` stands twice in this list"),
                None,
            );
        }
        match config.iface(name) {
            None => unknown(reader, "iface", name, span.clone(), known),
            Some(iface) if iface.attach.is_user_only() && path.tier == Tier::Kernel => {
                reader.error(
                    "contradiction",
                    places.tier.clone(),
                    no_kernel_tier(iface),
                    Some("use `tier = \"auto\"`, or another `attach` for the interface".to_owned()),
                );
            }
            Some(iface) if iface.attach == Attach::Tcx && works_in_array(config, path) => {
                reader.error(
                    "contradiction",
                    span.clone(),
                    format!(
                        "`{}` has `memory = \"array\"`, and `{name}` has `attach = \"tcx\"`: \
                         programs at TCX work in arenas only",
                        path.handler
                    ),
                    Some("leave `memory` out, or use `attach = \"xdp\"`".to_owned()),
                );
            }
            Some(_) => {}
        }
    }
}

fn no_kernel_tier(iface: &IfaceConfig) -> String {
    let IfaceConfig { name, attach, .. } = iface;
    let word = attach.word();
    format!("there is no kernel tier on `{name}`: it has `attach = \"{word}\"`")
}

/// Whether the path's handler asks for an array.
fn works_in_array(config: &Config, path: &PathConfig) -> bool {
    let mut handlers = config.handlers.iter();
    handlers.any(|one| one.name == path.handler && one.memory == MemoryMode::Array)
}

fn unknown(reader: &mut Reader<'_>, kind: &str, name: &str, span: Range<usize>, known: &[&str]) {
    reader.error(
        "unknown_name",
        span,
        format!("there is no `[{kind}.{name}]`"),
        Some(suggest(name, known)),
    );
}

/// On one interface, no message may match two filters of equal specificity:
/// which path gets it would be chance.
fn check_filters(reader: &mut Reader<'_>, paths: &[Arc<PathConfig>], places: &[PathPlaces]) {
    let mut tables: HashMap<&str, Table<usize>> = HashMap::new();
    for (index, path) in paths.iter().enumerate() {
        let Some(place) = &places[index].filter else {
            continue;
        };
        let mut ifaces: Vec<_> = path.ifaces.iter().map(String::as_str).collect();
        // One that stands there twice is no rival of itself.
        ifaces.sort_unstable();
        ifaces.dedup();
        for iface in ifaces {
            let table = tables.entry(iface).or_default();
            let Err(conflict) = table.insert(&path.filter, index) else {
                continue;
            };
            let rival = &paths[conflict.with];
            let also = places[conflict.with].filter.clone();
            reader.errors.push(Diagnostic {
                code: "ambiguous_match",
                message: competition(&rival.name, &path.name, iface, &conflict),
                span: Some(place.clone()),
                label: Some(format!("`{}`", path.name)),
                also: also.map(|span| (span, format!("`{}`", rival.name))),
                hint: Some(conflict.hint().to_owned()),
            });
        }
    }
}

/// Says that two paths can match one message equally well.
fn competition(rival: &str, name: &str, iface: &str, conflict: &Conflict<usize>) -> String {
    let meaning = |text: &str| demux::parse(text).map(|filter| filter.any);
    if meaning(&conflict.filter) == meaning(&conflict.with_filter) {
        format!("paths `{rival}` and `{name}` ask for the same messages on `{iface}`")
    } else {
        format!("a message on `{iface}` can match paths `{rival}` and `{name}` equally well")
    }
}

impl Config {
    /// Looks whether all messages of a path are its domains' own: that of its
    /// section and that of its handler.
    ///
    /// # Errors
    ///
    /// Says whose they are not, and what to do about it.
    pub fn own(&self, path: &PathConfig) -> Result<(), (String, String)> {
        let handler = self.some_instance(&path.handler);
        let domains = [
            &path.domain,
            handler.map_or(&None, |handler| &handler.domain),
        ];
        domains
            .into_iter()
            .flatten()
            .try_for_each(|domain| self.owns(domain, &path.filter))
    }

    /// Whether there are all domains that a path is of.
    fn knows_domains(&self, path: &PathConfig) -> bool {
        let handler = self.handler(&path.handler);
        let of_handler = handler.and_then(|handler| handler.domain.as_ref());
        let mut domains = path.domain.iter().chain(of_handler);
        domains.all(|domain| self.domain(domain).is_ok())
    }

    /// The domain of this name.
    ///
    /// # Errors
    ///
    /// That there is none, and which there are.
    pub fn domain(&self, name: &str) -> Result<&DomainConfig, (String, String)> {
        let mut domains = self.domains.iter();
        domains.find(|known| known.name == name).ok_or_else(|| {
            let known: Vec<_> = self.domains.iter().map(|known| &known.name).collect();
            let message = format!("there is no `[domain.{name}]`");
            (message, suggest(name, &known))
        })
    }

    /// Looks whether a domain owns all that a filter matches.
    ///
    /// # Errors
    ///
    /// That it does not, and what to do about it.
    pub fn owns(&self, domain: &str, filter: &Filter) -> Result<(), (String, String)> {
        let owner = self.domain(domain)?;
        demux::owned_by(&owner.owns, filter).map_err(|error| {
            let message = format!("domain `{domain}` does not own all that `{filter}` matches");
            (message, error.hint())
        })
    }

    /// Looks whether a path that comes to these competes with one of them.
    ///
    /// # Errors
    ///
    /// Says with which, and what to do about it.
    pub fn compete(&self, path: &PathConfig) -> Result<(), (String, String)> {
        for iface in path.ifaces.iter().chain(&path.patterns) {
            if let Err(conflict) = self.demux(iface).insert(&path.filter, usize::MAX) {
                let rival = self.path_name(conflict.with);
                let message = competition(rival, &path.name, iface, &conflict);
                return Err((message, conflict.hint().to_owned()));
            }
        }
        Ok(())
    }

    /// The demux of an interface: which frame belongs to which path, by the number
    /// that [`path_name`](Self::path_name) knows. Allocates; as costly as
    /// [`Table::insert`].
    #[must_use]
    pub fn demux(&self, iface: &str) -> Table<usize> {
        let mut table = Table::default();
        let paths = self.paths.iter().map(|path| {
            let mut names = path.ifaces.iter().chain(&path.patterns);
            let here = names.any(|name| name == iface);
            // To the other instances of a handler it leads by way of the first.
            let here = here && path.cpu.is_none_or(|cpu| cpu == 0);
            here.then_some(&path.filter)
        });
        let long_paths = self.long_paths.iter().map(|path| {
            let mut entrances = path.entrances.iter();
            let here = entrances.find(|(name, _)| name == iface);
            here.map(|(_, filter)| filter)
        });
        for (number, filter) in paths.chain(long_paths).enumerate() {
            if let Some(filter) = filter {
                // No two compete: that was checked when they came.
                let _ = table.insert(filter, number);
            }
        }
        table
    }

    /// The name of a path that a demux leads to: first those of the short form are
    /// numbered, then those of the long form.
    #[must_use]
    pub fn path_name(&self, number: usize) -> &str {
        let short = self.paths.iter().map(|path| &path.name);
        let mut names = short.chain(self.long_paths.iter().map(|path| &path.name));
        names.nth(number).map_or("?", |name| whole_name(name))
    }
}

/// Every path must lead through the graph from end to end. Notes where paths of
/// the long form begin, and whether they compete.
pub(super) fn check_paths(
    reader: &mut Reader<'_>,
    config: &mut Config,
    graph: &NodeGraph,
    places: &[PathPlaces],
    long_places: &[Range<usize>],
) {
    for (path, places) in config.paths.iter().zip(places) {
        let known = config.handler(&path.handler).is_some();
        let Some(span) = places.handler.as_ref().filter(|_| known) else {
            continue;
        };
        for iface in path
            .ifaces
            .iter()
            .filter(|name| config.iface(name).is_some())
        {
            if let Err(failed) = graph.create(path, iface, Attrs::new()) {
                no_path(reader, failed, span.clone());
                break;
            }
        }
    }
    let mut tables: HashMap<String, Table<usize>> = HashMap::new();
    for (at, span) in long_places.iter().enumerate() {
        match graph.create_long(&config.long_paths[at]) {
            Err(failed) => {
                let attribute = failed.attribute.as_ref();
                let name = &config.long_paths[at].name;
                let place = attribute.and_then(|attribute| given_at(reader, name, attribute));
                no_path(reader, failed, place.unwrap_or_else(|| span.clone()));
            }
            Ok(created) => {
                let also = config.long_paths[at].filter.clone();
                let domains = domains(config, graph, at, &created);
                let entrances = graph.entrances(&created, also.as_ref());
                if also.is_some() && entrances.is_empty() {
                    reader.error(
                        "no_path",
                        span.clone(),
                        "it has a `match`, and leads to no interface".to_owned(),
                        Some(format!(
                            "connect `{}` to one, or leave `match` out",
                            config.long_paths[at].from
                        )),
                    );
                }
                let is_bound = graph.bound(&Asked::long(&config.long_paths[at])).is_ok();
                for entrance in entrances {
                    let iface = &entrance.iface;
                    if Glob::is_one(iface) && !is_bound {
                        let (message, hint) = patterns::refused(iface);
                        reader.error("not_supported", span.clone(), message, Some(hint));
                    }
                    let table = tables
                        .entry(iface.clone())
                        .or_insert_with(|| config.demux(iface));
                    let number = config.paths.len() + at;
                    match enter(config, table, number, &domains, &entrance) {
                        Ok(None) => {}
                        Ok(Some(filter)) => {
                            let entrances = &mut config.long_paths[at].entrances;
                            entrances.push((entrance.iface, filter));
                        }
                        Err(error) => reader.errors.push(Diagnostic {
                            span: Some(span.clone()),
                            ..error
                        }),
                    }
                }
            }
        }
    }
    become_bound(reader, config, graph, long_places);
    instances::check(reader, config, graph);
}

/// Has paths of the long form that [are bound](NodeGraph::bound) to a handler stand with
/// those of the short form, which mean the same.
fn become_bound(
    reader: &mut Reader<'_>,
    config: &mut Config,
    graph: &NodeGraph,
    long_places: &[Range<usize>],
) {
    let long = std::mem::take(&mut config.long_paths);
    for (path, span) in long.into_iter().zip(long_places) {
        let Ok(bound) = graph.bound(&Asked::long(&path)) else {
            config.long_paths.push(path);
            continue;
        };
        if let Err((code, message, hint)) = fits(config, &bound) {
            reader.error(code, span.clone(), message, Some(hint.to_owned()));
        }
        config.paths.push(Arc::new(bound));
    }
}

/// Whether there is room for one more path that is bound to a handler, in its tier.
fn fits(config: &Config, path: &PathConfig) -> Result<(), (&'static str, String, &'static str)> {
    let handler = &path.handler;
    let second = "make a second handler section with the same file";
    if config.paths_of(handler).count() >= MAX_PATHS {
        let message = format!("`{handler}` has more than {MAX_PATHS} paths");
        return Err(("too_many_paths", message, second));
    }
    let is_full = |iface: &&String| {
        let paths = config.paths.iter();
        paths.filter(|known| known.ifaces.contains(iface)).count() >= MAX_SLOTS
    };
    let full = path.ifaces.iter().find(is_full);
    if let Some(iface) = full {
        let message = format!("`{iface}` has more than {MAX_SLOTS} paths with a handler");
        let hint = "`or` in a `match` leads more messages to the same path";
        return Err(("too_many_paths", message, hint));
    }
    let all = config.paths_of(handler).chain([path]);
    let ifaces: HashSet<&String> = all.flat_map(|path| &path.ifaces).collect();
    if ifaces.len() > MAX_RINGS {
        let message = format!("`{handler}` has paths on more than {MAX_RINGS} interfaces");
        return Err(("too_many_paths", message, second));
    }
    let mut modes = path.ifaces.iter().filter_map(|name| config.iface(name));
    if path.tier == Tier::Kernel
        && let Some(iface) = modes.find(|iface| iface.attach.is_user_only())
    {
        let message = no_kernel_tier(iface);
        let hint = "use `tier = \"auto\"`, or another `attach` for the interface";
        return Err(("contradiction", message, hint));
    }
    Ok(())
}

/// The domains, of those that there are, which have to own what a path of the long form takes:
/// its own, and those of the handlers that it leads through.
fn domains(
    config: &Config,
    graph: &NodeGraph,
    at: usize,
    created: &Created<Message>,
) -> Vec<String> {
    let handlers = created.path.stages();
    let handlers = handlers.filter_map(|stage| graph.handler_of(stage.name()));
    let handlers = handlers.filter_map(|handler| config.handler(handler)?.domain.as_ref());
    let own = config.long_paths[at].domain.iter();
    let mut domains: Vec<String> = own.chain(handlers).cloned().collect();
    domains.sort_unstable();
    domains.dedup();
    domains.retain(|domain| config.domain(domain).is_ok());
    domains
}

/// Puts a path of the long form into the demux of an interface, unless it takes all that
/// comes there.
fn enter(
    config: &Config,
    table: &mut Table<usize>,
    number: usize,
    domains: &[String],
    entrance: &Entrance,
) -> Result<Option<Filter>, Diagnostic> {
    let iface = &entrance.iface;
    let filter = entrance.filter().map_err(|error| {
        let text = entrance.text().unwrap_or_default();
        Diagnostic {
            code: "no_path",
            message: format!("its stages ask for `{text}` on `{iface}`: {error}"),
            hint: Some(error.hint),
            ..Diagnostic::default()
        }
    })?;
    let Some(filter) = filter else {
        return Ok(None);
    };
    for domain in domains {
        config
            .owns(domain, &filter)
            .map_err(|(message, hint)| Diagnostic {
                code: "not_owned",
                message,
                hint: Some(hint),
                ..Diagnostic::default()
            })?;
    }
    table.insert(&filter, number).map_err(|conflict| {
        let rival = config.path_name(conflict.with);
        let name = config.path_name(number);
        Diagnostic {
            code: "ambiguous_match",
            message: competition(rival, name, iface, &conflict),
            hint: Some(conflict.hint().to_owned()),
            ..Diagnostic::default()
        }
    })?;
    Ok(Some(filter))
}

/// Where the text gives a path this attribute.
fn given_at(reader: &Reader<'_>, path: &str, attribute: &str) -> Option<Range<usize>> {
    let (root, _) = DeTable::parse_recoverable(reader.text());
    let paths = root.get_ref().get("path")?.get_ref().as_table()?;
    let path = paths.get(path)?.get_ref().as_table()?;
    let attrs = path.get("attrs")?.get_ref().as_table()?;
    let (key, _) = attrs.get_key_value(attribute)?;
    Some(key.span())
}

fn no_path(reader: &mut Reader<'_>, failed: NotCreated, span: Range<usize>) {
    let message = format!("{}: {}", failed.what(), failed.because);
    reader.error("no_path", span, message, Some(failed.hint));
}
