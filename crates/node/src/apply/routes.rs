//! The graph that follows, the paths that lead through it, and what they ask for.

use std::collections::{BTreeMap, BTreeSet};
use std::ptr;

use ashway_demux::{self as demux, Table};
use ashway_modules::{Message, fragment};
use ashway_path::attrs::Attrs;
use ashway_path::create::{Created, NotCreated, Phase};

use super::super::iface_set::Coming;
use super::super::node_path::FramePath;
use super::super::world::{self, Changed, Link};
use super::super::{Node, RunError};
use super::words::said;
use ashway_config::{
    Act, Config, Difference, Entrance, HandlerConfig, LongPath, Mistake, NodeGraph, PathConfig,
    What,
};
use ashway_worker::handle::HandlerHandle;
use ashway_worker::iface_map::IfaceMap;
use ashway_worker::plan::InstancePlan;

/// What comes, for the graph that follows.
pub(super) struct Fresh<'f> {
    pub(super) handlers: &'f [(HandlerConfig, InstancePlan, HandlerHandle)],
    pub(super) changed: &'f Changed,
    /// Interfaces; none if one of them cannot be taken.
    pub(super) links: Option<&'f [Coming]>,
}

/// What a path leads through, and what it asks for.
#[derive(PartialEq, Eq)]
struct Route {
    /// Every module that was asked, and every stage that is left.
    modules: Vec<String>,
    attrs: String,
    entrances: Vec<Entrance>,
}

impl Route {
    fn of(graph: &NodeGraph, created: &Created<Message>) -> Self {
        let asked = created.log.0.iter();
        let asked = asked.filter(|entry| entry.phase == Phase::Stages);
        let asked = asked.map(|entry| entry.who.to_string());
        let stages = created.path.stages();
        let stages = stages.map(|stage| stage.name().to_owned());
        Self {
            modules: asked.chain(stages).collect(),
            attrs: format!("{:?}", created.path.attrs()),
            entrances: graph.entrances(created, None),
        }
    }
}

/// The routes of a path that ends in a handler, at these of its interfaces.
fn routes<'p>(
    graph: &NodeGraph,
    path: &'p PathConfig,
    at: impl Fn(&String) -> bool,
) -> Result<Vec<Route>, NotCreated> {
    let ifaces = path.ifaces.iter().filter(|iface: &&'p String| at(iface));
    let created = ifaces.map(|iface| graph.create(path, iface, Attrs::new()));
    created
        .map(|created| Ok(Route::of(graph, &created?)))
        .collect()
}

impl Node {
    /// The graph that follows, and every path that leads through it; adds to the
    /// difference what only it knows.
    pub(super) fn try_graph(
        &mut self,
        next: &Config,
        difference: &mut Difference,
        fresh: &Fresh<'_>,
        mistakes: &mut Vec<Mistake>,
    ) -> Option<NodeGraph> {
        // What cannot be taken is said; modules of what is not there would be said once more.
        let coming = fresh.links?.iter();
        let coming = coming.map(|it| (it.link.number(), it.link.clone()));
        let go = difference.names(What::Iface, &[Act::Remove]);
        let stays = |(number, _): &(usize, &Link)| !go.contains(&self.ifaces[*number].name);
        let kept = self.links.iter().filter(stays);
        let kept = kept.map(|(number, link)| (number, link.clone()));
        let links: IfaceMap<Link> = kept.chain(coming).collect();
        let gone = difference.names(What::Handler, &[Act::Remove, Act::Change]);
        let kept = self.handlers.values();
        let kept = kept.filter(|handler| !gone.contains(&handler.shared.name));
        let made = fresh.handlers.iter().map(|(.., handler)| handler);
        let handlers: Vec<HandlerHandle> = kept.chain(made).cloned().collect();
        let mut whole = next.clone();
        let by_hand = self.config.handlers.iter();
        let by_hand = by_hand.filter(|handler| handler.line == 0);
        whole.handlers.extend(by_hand.cloned());
        whole.placements.clone_from(&self.config.placements);
        let (served, changed) = (&self.served, fresh.changed);
        let graph = world::graph_behind(&self.graph, &whole, &links, &handlers, served, changed);
        let graph = match graph {
            Ok(graph) => graph,
            Err(RunError::Mistakes(list)) => {
                mistakes.extend(said(&list));
                return None;
            }
            Err(error) => {
                mistakes.push(Mistake::new(0, error.to_string(), ""));
                return None;
            }
        };
        let [go, come] = self.graph.graph.changes(&graph.graph);
        let written = |of: &NodeGraph, all: &[&str]| -> Vec<String> {
            let all = all.iter().filter(|name| of.is_written(name));
            all.map(|name| (*name).to_owned()).collect()
        };
        let (left, came) = (written(&self.graph, &go), written(&graph, &come));
        difference.modules(&left, &came);
        let go: BTreeSet<String> = go.into_iter().map(str::to_owned).collect();
        self.try_routes(&graph, next, difference, &go, mistakes);
        self.try_by_hand(&go, mistakes);
        Some(graph)
    }

    /// Creates every path of the file, to throw it away; those that the file says as
    /// before follow the graph if they would lead another way.
    fn try_routes(
        &self,
        graph: &NodeGraph,
        next: &Config,
        difference: &mut Difference,
        go: &BTreeSet<String>,
        mistakes: &mut Vec<Mistake>,
    ) {
        let no_path = |line: usize, failed: NotCreated| {
            let message = format!("{}: {}", failed.what(), failed.because);
            Mistake::new(line, message, failed.hint)
        };
        // Whether it leads another way, and, if that can be named, what is another.
        let other = |before: &[Route], after: &[Route]| {
            let mut modules = before.iter().flat_map(|route| &route.modules);
            let another = modules.find(|module| go.contains(*module));
            match another.map(|module| (module, self.graph.handler_of(module))) {
                Some((_, Some(handler))) => Some(Some(format!("handler `{handler}` is another"))),
                Some((module, None)) => Some(Some(format!("module `{module}` is another"))),
                None => (before != after).then_some(None),
            }
        };
        for path in &next.paths {
            if let Err(failed) = routes(graph, path, |_| true) {
                mistakes.push(no_path(path.line, failed));
                continue;
            }
            let mut known = self.config.paths.iter();
            let known = known.find(|known| known.name == path.name);
            // Where it stays.
            let stays = |iface: &String| {
                let at = |path: &PathConfig| path.ifaces.contains(iface);
                at(path) && known.is_some_and(|known| at(known))
            };
            let before = known.and_then(|known| routes(&self.graph, known, stays).ok());
            let after = routes(graph, path, stays).unwrap_or_default();
            let another = before.and_then(|before| other(&before, &after));
            if let Some(another) = another {
                difference.reroute(&path.name, path.line, another);
            }
        }
        let long = |graph: &NodeGraph, path: &LongPath| {
            let created = graph.create_long(path)?;
            Ok((Route::of(graph, &created), catches(graph, &created)))
        };
        let mut caught: BTreeMap<String, String> = self.catch_all_by_hand(difference);
        for path in &next.long_paths {
            let (after, catches) = match long(graph, path) {
                Ok(after) => after,
                Err(failed) => {
                    mistakes.push(no_path(path.line, failed));
                    continue;
                }
            };
            for iface in catches {
                if let Some(first) = caught.insert(iface.clone(), path.name.clone()) {
                    let message = format!(
                        "paths `{first}` and `{}` both take all fragments of `{iface}`",
                        path.name
                    );
                    let hint = "one for each interface is enough";
                    mistakes.push(Mistake::new(path.line, message, hint));
                }
            }
            let mut known = self.config.long_paths.iter();
            let known = known.find(|known| known.name == path.name);
            let before = known.and_then(|known| long(&self.graph, known).ok());
            let another = before.and_then(|(before, _)| other(&[before], &[after]));
            if let Some(another) = another {
                difference.reroute(&path.name, path.line, another);
            }
        }
    }

    /// The interfaces of which paths that are in no file take all fragments.
    fn catch_all_by_hand(&self, difference: &Difference) -> BTreeMap<String, String> {
        let by_hand = difference.names(What::Path, &[Act::Stay]);
        let mut caught = BTreeMap::new();
        for name in by_hand {
            let path = self.paths.find(&name).and_then(|id| self.paths.frames(id));
            let ends = path.into_iter().flat_map(FramePath::ends);
            for end in ends.filter(|end| end.catches) {
                let iface = self.ifaces[end.iface()].name.clone();
                caught.insert(iface, name.clone());
            }
        }
        caught
    }

    /// What was made by hand must not lead through what goes.
    fn try_by_hand(&mut self, go: &BTreeSet<String>, mistakes: &mut Vec<Mistake>) {
        if go.is_empty() {
            return;
        }
        let mut through = |path: &str, module: &str, verb: &str| {
            let message =
                format!("path `{path}`, in no file, leads through module `{module}`, which goes");
            let hint = format!("`ashway {verb} {path}` first, or leave the module as it is");
            mistakes.push(Mistake::new(0, message, hint));
        };
        for path in self.config.paths.iter().filter(|path| path.line == 0) {
            let routes = routes(&self.graph, path, |_| true).unwrap_or_default();
            let mut modules = routes.iter().flat_map(|route| &route.modules);
            if let Some(module) = modules.find(|module| go.contains(*module)) {
                through(&path.name, module, "unbind");
            }
        }
        let in_file: BTreeSet<&str> = self
            .config
            .long_paths
            .iter()
            .map(|path| path.name.as_str())
            .collect();
        let by_hand = self.paths.all_frames();
        let by_hand = by_hand.filter(|(_, path)| !in_file.contains(&*path.name));
        let by_hand: Vec<_> = by_hand
            .map(|(id, path)| (path.name.to_string(), id))
            .collect();
        let ids: Vec<_> = by_hand.iter().map(|(_, id)| *id).collect();
        // A worker that does not answer has nothing left that could be lost.
        let snapshots = self.worker.snapshots(&ids).unwrap_or_default();
        for ((name, id), snapshot) in by_hand.iter().zip(snapshots) {
            let from = self.paths.at(*id).map(|path| self.paths.from(path));
            let stages = snapshot.iter().flat_map(|path| &path.stages);
            let stages = stages.map(|stage| &*stage.module);
            if let Some(module) = from.into_iter().chain(stages).find(|it| go.contains(*it)) {
                through(name, module, "path rm");
            }
        }
    }

    /// What paths ask for, beside what those ask for that are in no file. Within the
    /// file that was looked at.
    pub(super) fn try_filters(
        &self,
        next: &Config,
        difference: &Difference,
        mistakes: &mut Vec<Mistake>,
    ) {
        if difference
            .names(What::Path, &[Act::Create, Act::Change, Act::Reach])
            .is_empty()
        {
            return;
        }
        let by_hand = difference.names(What::Path, &[Act::Stay]);
        for (number, iface) in self.ifaces.iter() {
            let mut table: Table<usize> = Table::default();
            let mut names = Vec::new();
            for name in &by_hand {
                let id = self.paths.find(name);
                let ends = id.and_then(|id| Some((id, self.paths.frames(id)?)));
                let ends = ends.into_iter().flat_map(|(id, frames)| {
                    let here = frames.ends().filter(|end| end.iface() == number);
                    here.filter(|end| !end.catches)
                        .map(move |end| self.frame_target(id, end.direction))
                });
                let texts = ends.filter_map(|target| self.ifaces[number].table.text(target));
                let asked = texts.filter_map(|text| demux::parse(text).ok());
                let bound = self.config.paths.iter();
                let bound = bound.filter(|path| path.name == *name);
                let bound = bound.filter(|path| path.ifaces.contains(&iface.name));
                let bound = bound.map(|path| path.filter.clone());
                for filter in asked.chain(bound) {
                    // They have come to terms before.
                    let _ = table.insert(&filter, names.len());
                }
                names.push(name.as_str());
            }
            let short = next.paths.iter();
            let short = short.filter(|path| path.ifaces.contains(&iface.name));
            // To the other instances of a handler messages are led by way of the first.
            let short = short.filter(|path| path.cpu.is_none_or(|cpu| cpu == 0));
            let short = short.map(|path| (&path.name, path.line, &path.filter));
            let long = next.long_paths.iter().flat_map(|path| {
                let here = path.entrances.iter().filter(|(at, _)| *at == iface.name);
                here.map(move |(_, filter)| (&path.name, path.line, filter))
            });
            for (name, line, filter) in short.chain(long) {
                if let Err(conflict) = table.insert(filter, names.len())
                    && conflict.with < by_hand.len()
                {
                    let rival = names[conflict.with];
                    let message = format!(
                        "paths `{rival}`, in no file, and `{name}` cannot be told apart on \
                         `{}`: {conflict}",
                        iface.name
                    );
                    mistakes.push(Mistake::new(line, message, conflict.hint()));
                }
                names.push(name.as_str());
            }
        }
    }
}

/// The interfaces of which a path takes all fragments.
fn catches(graph: &NodeGraph, created: &Created<Message>) -> Vec<String> {
    let mut stages = created.path.stages();
    let joins = stages.any(|stage| {
        let kind = stage.kind();
        kind.is_some_and(|kind| ptr::eq(kind, &raw const fragment::KIND))
    });
    let entrances = graph.entrances(created, None).into_iter();
    let all = entrances.filter(|end| joins && end.takes_all());
    all.map(|end| end.iface).collect()
}
