//! Creating a path from attributes, in four phases.
//!
//! 1. **Stages**: one module after the other contributes its stage, may rewrite
//!    the attributes, and says where the path goes on, until it reaches a leaf or
//!    a place where the attributes no longer decide. Weaker attributes give a
//!    shorter path, not an error.
//! 2. **Combine**: the stages become a path, within its memory grant.
//! 3. **Establish**: each stage sets up what needs the whole path, in order.
//! 4. **Transform**: rules are applied until no guard holds.
//!
//! If any phase fails, what was established is destroyed, last first, and nothing
//! stays behind.
//!
//! Source: Mosberger & Peterson 1996 ("Scout"), §3.3 for the phases, §4.1 for the
//! attributes.

use std::borrow::Cow;
use std::fmt;

use crate::attrs::{Attrs, Change, Value, names};
use crate::graph::{Graph, Node, Port};
use crate::module::Next;
use crate::path::{Limits, Path};
use crate::problem;
use crate::rules::{self, Rule};
use crate::stage::Stage;

/// Most stages a path may have. A module may be passed more than once (IP in IP),
/// so that a circle shows only by its length.
pub const MAX_STAGES: usize = 64;

/// Stages for which there is room from the first.
const USUAL_STAGES: usize = 8;

/// A phase of path creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Modules contribute their stages.
    Stages,
    /// The stages become a path.
    Combine,
    /// The stages set up what needs the whole path.
    Establish,
    /// Rules rewrite the path.
    Transform,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Stages => "stages",
            Self::Combine => "combine",
            Self::Establish => "establish",
            Self::Transform => "transform",
        })
    }
}

/// One step of a creation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its phase.
    pub phase: Phase,
    /// The module, the path as a whole by its name, or the rule.
    pub who: Box<str>,
    /// What it did, as the rest of a sentence: "ends the path".
    pub what: String,
    /// The attributes it changed.
    pub changes: Vec<Change>,
}

/// What happened during a creation, step by step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log(pub Vec<Entry>);

/// A line for each step, and one for each attribute below it.
impl fmt::Display for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.0.iter().map(|entry| entry.who.chars().count());
        let width = width.max().unwrap_or(0);
        for Entry {
            phase,
            who,
            what,
            changes,
        } in &self.0
        {
            writeln!(f, "{phase:<9}  {who:<width$}  {what}")?;
            for change in changes {
                writeln!(f, "{:<9}  {:<width$}    {change}", "", "")?;
            }
        }
        Ok(())
    }
}

/// A path, and how it came to be. `M` is what messages are made of.
pub struct Created<M> {
    /// The path, established and transformed.
    pub path: Path<M>,
    /// Where in [`Graph::nodes`] the modules of its first and its last stage are.
    pub ends: [usize; 2],
    /// What its last module might have gone on to, had the attributes said so.
    pub open: Vec<Port>,
    /// Every step; empty if nobody asked.
    pub log: Log,
}

/// Why there is no path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {because}", self.what())]
#[non_exhaustive]
pub struct NotCreated {
    /// The phase that failed.
    pub phase: Phase,
    /// The module that could not go on; in phase 2 the path, in phase 4 the rule.
    pub module: Box<str>,
    /// What speaks against it.
    pub because: String,
    /// What to do about it.
    pub hint: String,
    /// The attribute at fault, if it is known.
    pub attribute: Option<Box<str>>,
    /// The modules that had contributed a stage, in order.
    pub trail: Vec<Box<str>>,
    /// Every step before; empty if nobody asked.
    pub log: Log,
}

impl<M> Created<M> {
    /// Turns a path down that modules and rules have agreed on, on behalf of whoever
    /// is to run it.
    #[must_use]
    pub fn refuse(self, because: String, hint: String) -> NotCreated {
        NotCreated {
            phase: Phase::Combine,
            module: self.path.name().into(),
            because,
            hint,
            attribute: None,
            trail: self.path.stages().map(|s| s.name().into()).collect(),
            log: self.log,
        }
    }
}

impl NotCreated {
    /// What failed, in one line without the reason.
    #[must_use]
    pub fn what(&self) -> String {
        let who = match self.phase {
            Phase::Stages | Phase::Establish => "module",
            Phase::Combine => "path",
            Phase::Transform => "rule",
        };
        let so_far = if self.trail.is_empty() {
            String::new()
        } else {
            format!(", path so far: {}", self.trail.join("/"))
        };
        format!(
            "cannot create a path: phase {}, {who} `{}`{so_far}",
            self.phase, self.module
        )
    }
}

impl<M> Graph<M> {
    /// That a path which was created is of no use, because it ends where it does.
    /// For whoever knows what a path must lead to, as the graph does not.
    #[must_use]
    pub fn dead_end(&self, created: &Created<M>, because: &str) -> NotCreated {
        let name = |at: usize| &*self.nodes()[at].name;
        let [_, last] = created.ends.map(name);
        let open = created.open.iter().map(|port| name(port.module));
        let open: Vec<_> = open.map(|name| format!("`{name}`")).collect();
        let hint = if open.is_empty() {
            format!("the path ends at `{last}`: connect that, or begin at another module")
        } else {
            format!(
                "at `{last}` the path could go on to {}: give `pathname`",
                open.join(" or ")
            )
        };
        NotCreated {
            phase: Phase::Stages,
            module: last.into(),
            because: because.to_owned(),
            hint,
            attribute: None,
            trail: created
                .path
                .stages()
                .map(|stage| stage.name().into())
                .collect(),
            log: created.log.clone(),
        }
    }

    /// Creates the path called `name`, beginning at `module`, with these
    /// attributes. A rule is applied wherever its guard holds.
    ///
    /// The attribute [`pathname`](names::PATHNAME) (`mpeg/eth1`) names modules
    /// that the path must pass, in this order. Where several modules are
    /// connected, it decides between them; each name is taken off when its module
    /// is reached.
    ///
    /// Allocates the path and the log. At most [`MAX_STAGES`] stages; the rules
    /// are bounded as [`rules::apply`] says.
    ///
    /// # Errors
    ///
    /// Which phase failed, by whom and why. Nothing is left behind.
    pub fn create(
        &self,
        name: &str,
        module: &str,
        attrs: Attrs,
        limits: Limits,
        rules: &[Rule<M>],
    ) -> Result<Created<M>, NotCreated> {
        self.create_with(name, module, attrs, limits, rules, true)
    }

    /// The same without a log, which is most of the time that a creation takes.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create).
    pub fn create_unlogged(
        &self,
        name: &str,
        module: &str,
        attrs: Attrs,
        limits: Limits,
        rules: &[Rule<M>],
    ) -> Result<Created<M>, NotCreated> {
        self.create_with(name, module, attrs, limits, rules, false)
    }

    fn create_with(
        &self,
        name: &str,
        module: &str,
        attrs: Attrs,
        limits: Limits,
        rules: &[Rule<M>],
        logs: bool,
    ) -> Result<Created<M>, NotCreated> {
        let mut creation = Creation {
            graph: self,
            attrs,
            stages: Vec::with_capacity(USUAL_STAGES),
            trail: Vec::with_capacity(USUAL_STAGES),
            open: Vec::new(),
            log: logs.then(Log::default),
        };
        creation.walk(module)?;
        creation.finish(name, limits, rules)
    }
}

/// Where a path goes on behind a module.
enum Continuation {
    To(Port),
    /// Nowhere: it might be one of several, or there is none.
    Ends(Vec<Port>),
}

/// The first name of a path name.
fn first_name(pathname: &str) -> Option<&str> {
    let names = pathname.trim_start_matches('/');
    let end = names.bytes().position(|byte| byte == b'/');
    let (first, _) = names.split_at(end.unwrap_or(names.len()));
    (!first.is_empty()).then_some(first)
}

/// A path on its way to existence.
struct Creation<'g, M> {
    graph: &'g Graph<M>,
    attrs: Attrs,
    stages: Vec<Box<dyn Stage<M>>>,
    /// The modules that contributed them.
    trail: Vec<usize>,
    /// Where the last of them might go on.
    open: Vec<Port>,
    log: Option<Log>,
}

impl<M> Creation<'_, M> {
    /// Phase 1.
    fn walk(&mut self, first: &str) -> Result<(), NotCreated> {
        let graph = self.graph;
        let Some(mut at) = graph.position(first) else {
            let because = "there is no module of this name".to_owned();
            let hint = problem::suggest(first, &self.names());
            return Err(self.failed(Phase::Stages, first, because, hint));
        };
        let mut entered = None;
        loop {
            let node = &graph.nodes()[at];
            if self.stages.len() == MAX_STAGES {
                return Err(self.circle(at));
            }
            let before = self.log.is_some().then(|| self.attrs.clone());
            self.reached(&node.name);
            let made = match node.module.stage(entered, &mut self.attrs) {
                Ok(made) => made,
                Err(refused) => {
                    let (because, hint) = (refused.because, refused.hint);
                    return Err(self.failed(Phase::Stages, &node.name, because, hint));
                }
            };
            self.stages.push(made.stage);
            self.trail.push(at);
            let onward = self.decide(node, &made.next)?;
            if let Some(before) = before {
                let what = self.in_words(node, &made.next, &onward);
                let changes = before.changes(&self.attrs);
                self.note(Phase::Stages, &node.name, what, changes);
            }
            match onward {
                Continuation::To(next) => (at, entered) = (next.module, Some(next.service)),
                Continuation::Ends(_) => {
                    self.passed_all(node, &made.next, &onward)?;
                    if let Continuation::Ends(open) = onward {
                        self.open = open;
                    }
                    return Ok(());
                }
            }
        }
    }

    /// Where the path goes on behind a module.
    fn decide(&self, node: &Node<M>, next: &Next) -> Result<Continuation, NotCreated> {
        let (service, named) = match next {
            Next::End | Next::Undecided => return Ok(Continuation::Ends(Vec::new())),
            Next::Through(service) => (*service, None),
            Next::To(service, name) => (*service, Some(name.as_ref())),
        };
        let services = node.module.kind().services;
        let Some(by) = services.get(service).map(|service| service.name) else {
            let because = format!("it goes on by service {service} of {}", services.len());
            let hint = "this is a mistake in the module's own code".to_owned();
            return Err(self.failed(Phase::Stages, &node.name, because, hint));
        };
        let called = |port: &&Port, name: &str| *self.graph.nodes()[port.module].name == *name;
        let connected = node.peers(service);
        if let ([next], None) = (connected, named) {
            return Ok(Continuation::To(*next));
        }
        let mut possible: Vec<_> = connected.iter().collect();
        if let Some(name) = named {
            possible.retain(|port| called(port, name));
            if possible.is_empty() {
                let because =
                    format!("it goes on by `{by}` to `{name}`, which is not connected there");
                let hint = match connected {
                    [] => format!("connect `{}.{by}`", node.name),
                    _ => format!(
                        "connected at `{}.{by}`: {}",
                        node.name,
                        self.ports(&connected.iter().collect::<Vec<_>>())
                    ),
                };
                return Err(self.failed(Phase::Stages, &node.name, because, hint));
            }
        }
        if possible.len() > 1
            && let pathname = self.pathname()
            && let Some(name) = first_name(&pathname)
            && possible.iter().any(|port| called(port, name))
        {
            possible.retain(|port| called(port, name));
        }
        Ok(match possible.as_slice() {
            [next] => Continuation::To(**next),
            several => Continuation::Ends(several.iter().map(|port| **port).collect()),
        })
    }

    /// What was decided behind a module, as the rest of a sentence.
    fn in_words(&self, node: &Node<M>, next: &Next, onward: &Continuation) -> String {
        let by = match next {
            Next::End => return "ends the path".to_owned(),
            Next::Undecided => {
                return "ends the path: the attributes do not say where to go on".to_owned();
            }
            Next::Through(service) | Next::To(service, _) => {
                node.module.kind().services[*service].name
            }
        };
        match onward {
            Continuation::To(next) => {
                format!("goes on by `{by}` to `{}`", self.graph.port_name(*next))
            }
            Continuation::Ends(several) if several.is_empty() => {
                format!("ends the path: nothing is connected at `{by}`")
            }
            Continuation::Ends(several) => {
                let several = self.ports(&several.iter().collect::<Vec<_>>());
                format!("ends the path: `{by}` leads to {several}, and nothing decides")
            }
        }
    }

    /// Names of modules that are still to be passed, separated by `/`.
    fn pathname(&self) -> Cow<'_, str> {
        match self.attrs.value(names::PATHNAME) {
            None => Cow::Borrowed(""),
            Some(Value::Text(text)) => Cow::Borrowed(text),
            Some(other) => Cow::Owned(other.to_string()),
        }
    }

    /// Takes a module off the path name if it is the next of it.
    fn reached(&mut self, module: &str) {
        let pathname = self.pathname();
        if first_name(&pathname) != Some(module) {
            return;
        }
        let mut names = pathname.split('/').filter(|name| !name.is_empty());
        names.next();
        let rest: Vec<&str> = names.collect();
        if rest.is_empty() {
            self.attrs.remove(names::PATHNAME);
        } else {
            let rest = rest.join("/");
            self.attrs.set(names::PATHNAME, rest.as_str());
        }
    }

    /// A path that does not lead where it was told to is not the one asked for.
    fn passed_all(
        &self,
        last: &Node<M>,
        next: &Next,
        end: &Continuation,
    ) -> Result<(), NotCreated> {
        let pathname = self.pathname();
        let Some(missed) = first_name(&pathname) else {
            return Ok(());
        };
        let module = &last.name;
        let because = format!("the path ends here, and `pathname` says it goes on to `{missed}`");
        let hint = if self.graph.position(missed).is_none() {
            problem::suggest(missed, &self.names())
        } else {
            format!("`{module}` {}", self.in_words(last, next, end))
        };
        Err(self.failed(Phase::Stages, module, because, hint))
    }

    /// Too many stages: which modules are passed over and over?
    fn circle(&self, at: usize) -> NotCreated {
        let names: Vec<_> = match self.trail.iter().rposition(|passed| *passed == at) {
            Some(last) => self.trail[last..]
                .iter()
                .chain([&at])
                .map(|at| self.name(*at))
                .collect(),
            None => self.trail.iter().map(|at| self.name(*at)).collect(),
        };
        let because = format!(
            "a path has at most {MAX_STAGES} stages; this one goes {}",
            names.join(" -> ")
        );
        let hint = "do the attributes change on each round, so that it ends?".to_owned();
        self.failed(Phase::Stages, self.name(at), because, hint)
    }

    /// Phases 2 to 4.
    fn finish(
        mut self,
        name: &str,
        limits: Limits,
        rules: &[Rule<M>],
    ) -> Result<Created<M>, NotCreated> {
        let stages = std::mem::take(&mut self.stages);
        let attrs = std::mem::take(&mut self.attrs);
        let ends = [
            self.trail[0],
            *self.trail.last().expect("a walk makes a stage"),
        ];
        let mut path = Path::assemble(name, stages, attrs, limits).map_err(|too_much| {
            let hint = "grant it more memory, or give it shorter queues".to_owned();
            self.failed(Phase::Combine, name, too_much.to_string(), hint)
        })?;
        if self.log.is_some() {
            let names = self.names_of_trail();
            let what = format!("{} stages: {}", names.len(), names.join(" "));
            self.note(Phase::Combine, name, what, Vec::new());
            if let Some(filter) = path.filter() {
                let what = format!("filter: {filter}");
                self.note(Phase::Combine, name, what, Vec::new());
            }
        }

        let before = self.log.is_some().then(|| path.attrs().clone());
        path.establish_new().map_err(|failed| {
            let hint = "what was established before it has been destroyed".to_owned();
            self.failed(Phase::Establish, &failed.name, failed.because, hint)
        })?;
        if let Some(before) = before {
            let what = "all stages, in this order".to_owned();
            self.note(Phase::Establish, name, what, before.changes(path.attrs()));
        }

        let mut logged = self
            .log
            .is_some()
            .then(|| (path.attrs().clone(), Vec::new()));
        let applied = logged.as_mut().map(|(_, applied)| applied);
        rules::transform(rules, &mut path, applied).map_err(|failed| {
            let hint = failed.hint().to_owned();
            self.failed(Phase::Transform, failed.rule(), failed.to_string(), hint)
        })?;
        if let Some((before, applied)) = logged {
            for step in applied {
                let (about, rewrote) = (step.about, step.rewrote.join(" "));
                let what = format!(
                    "{about}: {rewrote}; {} stages -> {}",
                    step.before, step.after
                );
                self.note(Phase::Transform, step.rule, what, Vec::new());
            }
            let what = format!("{} stages; no rule's guard holds", path.len());
            let changes = before.changes(path.attrs());
            self.note(Phase::Transform, name, what, changes);
        }
        path.shrink();
        Ok(Created {
            path,
            ends,
            open: self.open,
            log: self.log.unwrap_or_default(),
        })
    }

    fn note(&mut self, phase: Phase, who: &str, what: String, changes: Vec<Change>) {
        if let Some(log) = &mut self.log {
            log.0.push(Entry {
                phase,
                who: who.into(),
                what,
                changes,
            });
        }
    }

    fn failed(&self, phase: Phase, module: &str, because: String, hint: String) -> NotCreated {
        NotCreated {
            phase,
            module: module.into(),
            because,
            hint,
            attribute: None,
            trail: self.trail.iter().map(|at| self.name(*at).into()).collect(),
            log: self.log.clone().unwrap_or_default(),
        }
    }

    fn name(&self, at: usize) -> &str {
        &self.graph.nodes()[at].name
    }

    fn names_of_trail(&self) -> Vec<&str> {
        self.trail.iter().map(|at| self.name(*at)).collect()
    }

    fn names(&self) -> Vec<&str> {
        self.graph
            .nodes()
            .iter()
            .map(|node| node.name.as_ref())
            .collect()
    }

    fn ports(&self, ports: &[&Port]) -> String {
        let names: Vec<_> = ports
            .iter()
            .map(|port| self.graph.port_name(**port))
            .collect();
        problem::list(&names)
    }
}
