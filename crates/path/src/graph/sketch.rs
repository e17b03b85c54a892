//! A graph while it is being checked.
//!
//! Kinds stand for modules, so that the edges can be judged even if a module
//! cannot be made.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::ops::Range;

use super::Port;
use crate::module::Kind;
use crate::problem::{self, Problem};
use crate::service::Service;

/// Kinds and edges, by name.
#[derive(Default)]
pub(crate) struct Sketch<'t> {
    nodes: Vec<Drawn<'t>>,
    by_name: BTreeMap<&'t str, usize>,
    edges: Vec<Edge>,
    /// From and to, as written.
    known: BTreeSet<(Port, Port)>,
}

struct Drawn<'t> {
    name: &'t str,
    /// `None` if the text names no kind that there is.
    kind: Option<&'static Kind>,
}

struct Edge {
    from: Port,
    to: Port,
    span: Option<Range<usize>>,
}

impl<'t> Sketch<'t> {
    /// Adds a module; the problem is a name that is taken or cannot be used.
    pub(crate) fn add(
        &mut self,
        name: &'t str,
        span: Option<Range<usize>>,
        kind: Option<&'static Kind>,
    ) -> Option<Problem> {
        let taken = self.by_name.insert(name, self.nodes.len());
        self.nodes.push(Drawn { name, kind });
        let unusable = name.is_empty() || name.contains(|c: char| c == '/' || c.is_control());
        if taken.is_some() {
            let message = format!("two modules are called `{name}`");
            Some(Problem::at("duplicate_name", span, message, None))
        } else if unusable {
            let message = format!("a module cannot be called `{}`", name.escape_debug());
            let hint = "a name is not empty and has no `/`, which separates the names of a path";
            Some(Problem::at("bad_name", span, message, hint.to_owned()))
        } else {
            None
        }
    }

    /// The port called `text`, to be connected to `from` if that is known;
    /// `None` if it cannot be known because its module's kind is not.
    pub(super) fn port(
        &self,
        text: &str,
        from: Option<Port>,
        span: Option<Range<usize>>,
    ) -> Result<Option<Port>, Problem> {
        // A module's name may have dots (`eth0.100`), a service's has none.
        let known = |name| self.by_name.contains_key(name);
        let (name, service) = match text.rsplit_once('.') {
            Some((name, service)) if known(name) || !known(text) => (name, Some(service)),
            _ => (text, None),
        };
        let Some(&module) = self.by_name.get(name) else {
            // None is connected to itself.
            let own = from.map(|from| from.module);
            let others = self.nodes.iter().enumerate();
            let others = others.filter(|(number, _)| Some(*number) != own);
            let names: Vec<_> = others.map(|(_, node)| node.name).collect();
            let message = format!("there is no module `{name}`");
            let hint = problem::suggest(name, &names);
            return Err(Problem::at("unknown_name", span, message, hint));
        };
        let Some(kind) = self.nodes[module].kind else {
            return Ok(None);
        };
        if let Some(service) = service.and_then(|service| kind.service(service)) {
            return Ok(Some(Port { module, service }));
        }
        let here = from.and_then(|from| self.service(from));
        let fitting: Vec<_> = kind
            .services
            .iter()
            .filter(|there| here.is_some_and(|here| here.fits(there)))
            .map(|there| format!("{name}.{}", there.name))
            .collect();
        let names: Vec<_> = kind.services.iter().map(|service| service.name).collect();
        let (message, hint) = match (service, fitting.as_slice()) {
            (None, [only]) => (
                format!("`{text}` names a module, not a service"),
                format!("did you mean `{only}`?"),
            ),
            (None, _) => (
                format!("`{text}` names a module, not a service"),
                format!("write `{name}.` and one of {}", problem::list(&names)),
            ),
            (Some(service), _) => (
                format!("module `{name}` has no service `{service}`"),
                problem::suggest(service, &names),
            ),
        };
        Err(Problem::at("unknown_name", span, message, hint))
    }

    /// Connects `from` to the port called `to`, if their types fit.
    pub(crate) fn connect(
        &mut self,
        from: Port,
        to: &str,
        span: Option<Range<usize>>,
    ) -> Option<Problem> {
        let here = self.service(from)?;
        let to = match self.port(to, Some(from), span.clone()) {
            Ok(to) => to?,
            Err(problem) => return Some(problem),
        };
        let there = self.service(to)?;
        if from == to {
            let message = format!("`{}` is connected to itself", self.call(from));
            let hint = "connect it to a service of another module".to_owned();
            return Some(Problem::at("self_edge", span, message, hint));
        }
        if !here.fits(there) {
            return Some(self.mistyped(from, here, to, there, span));
        }
        if !self.known.insert((from, to)) {
            let message = format!(
                "`{}` is connected to `{}` twice",
                self.call(from),
                self.call(to)
            );
            let hint = "name each service once".to_owned();
            return Some(Problem::at("duplicate_edge", span, message, hint));
        }
        // The same edge may be written at both of its ends.
        if !self.known.contains(&(to, from)) {
            self.edges.push(Edge { from, to, span });
        }
        None
    }

    fn mistyped(
        &self,
        from: Port,
        here: &Service,
        to: Port,
        there: &Service,
        span: Option<Range<usize>>,
    ) -> Problem {
        let (a, b) = (self.nodes[from.module].name, self.nodes[to.module].name);
        let wants = |name: &str, service: &Service, other: &str, peer: &Service| {
            (!peer.provides.is(service.requires)).then(|| {
                format!(
                    "`{name}.{}` requires `{}`, `{other}.{}` provides `{}`",
                    service.name, service.requires, peer.name, peer.provides
                )
            })
        };
        let reasons: Vec<_> = [wants(a, here, b, there), wants(b, there, a, here)]
            .into_iter()
            .flatten()
            .collect();
        let fitting: Vec<_> = self
            .ports()
            .filter(|(port, service)| *port != from && here.fits(service))
            .map(|(port, _)| self.call(port))
            .collect();
        let hint = if fitting.is_empty() {
            format!("no service in this graph fits `{a}.{}`", here.name)
        } else {
            format!("what fits `{a}.{}`: {}", here.name, problem::list(&fitting))
        };
        Problem {
            label: Some(reasons.join(", and ")),
            ..Problem::at(
                "type_mismatch",
                span,
                format!("`{a}.{here}` cannot be connected to `{b}.{there}`"),
                hint,
            )
        }
    }

    fn service(&self, port: Port) -> Option<&'static Service> {
        self.nodes[port.module].kind?.services.get(port.service)
    }

    fn ports(&self) -> impl Iterator<Item = (Port, &'static Service)> {
        self.nodes.iter().enumerate().flat_map(|(module, node)| {
            let services = node.kind.map_or(&[][..], |kind| kind.services);
            services
                .iter()
                .enumerate()
                .map(move |(service, it)| (Port { module, service }, it))
        })
    }

    fn call(&self, port: Port) -> String {
        let service = self.service(port).map_or("?", |service| service.name);
        format!("{}.{service}", self.nodes[port.module].name)
    }

    /// The edges that are good, each once.
    pub(crate) fn edges(&self) -> Vec<[Port; 2]> {
        self.edges.iter().map(|edge| [edge.from, edge.to]).collect()
    }

    /// What was written of them, at either end or at both.
    pub(super) fn written(&self) -> Vec<(Port, Port)> {
        self.known.iter().copied().collect()
    }

    /// The order of initialisation, or every cycle in it. Kahn's algorithm:
    /// edges and modules are looked at once.
    pub(crate) fn order(&self) -> Result<Vec<usize>, Vec<Problem>> {
        // waits[m]: whom m waits for, by which of its ports, and which edge says so.
        let mut waits: Vec<Vec<(usize, Port, usize)>> = vec![Vec::new(); self.nodes.len()];
        let mut wanted_by: Vec<Vec<usize>> = vec![Vec::new(); self.nodes.len()];
        for (at, edge) in self.edges.iter().enumerate() {
            for (one, other) in [(edge.from, edge.to), (edge.to, edge.from)] {
                if self.service(one).is_some_and(|service| service.after) {
                    waits[one.module].push((other.module, one, at));
                    wanted_by[other.module].push(one.module);
                }
            }
        }
        let mut open: Vec<usize> = waits.iter().map(Vec::len).collect();
        let mut done = vec![false; self.nodes.len()];
        let mut ready: BinaryHeap<_> = (0..open.len())
            .filter(|at| open[*at] == 0)
            .map(Reverse)
            .collect();
        let (mut order, mut cycles) = (Vec::new(), Vec::new());
        // Modules behind this one are done.
        let mut first = 0;
        loop {
            while let Some(Reverse(at)) = ready.pop() {
                if std::mem::replace(&mut done[at], true) {
                    continue;
                }
                order.push(at);
                for waiting in &wanted_by[at] {
                    open[*waiting] -= 1;
                    if open[*waiting] == 0 {
                        ready.push(Reverse(*waiting));
                    }
                }
            }
            while done.get(first) == Some(&true) {
                first += 1;
            }
            if first == done.len() {
                break;
            }
            // Whoever is left waits for somebody who is left.
            let (mut at, mut walk, mut seen) = (first, Vec::new(), BTreeMap::new());
            while !seen.contains_key(&at) {
                seen.insert(at, walk.len());
                let Some(step) = waits[at].iter().find(|(before, ..)| !done[*before]) else {
                    break;
                };
                walk.push((at, *step));
                at = step.0;
            }
            let cycle = walk.split_off(seen.get(&at).copied().unwrap_or(0));
            cycles.push(self.cyclic(&cycle));
            // Said once: go on as if they were ready, to find other cycles.
            ready.extend(cycle.iter().map(|(at, _)| Reverse(*at)));
        }
        if cycles.is_empty() {
            Ok(order)
        } else {
            Err(cycles)
        }
    }

    fn cyclic(&self, cycle: &[(usize, (usize, Port, usize))]) -> Problem {
        let waits: Vec<_> = cycle
            .iter()
            .map(|(at, (before, ..))| {
                format!(
                    "`{}` after `{}`",
                    self.nodes[*at].name, self.nodes[*before].name
                )
            })
            .collect();
        let place = |at: usize| {
            let (_, (before, port, edge)) = cycle.get(at)?;
            let label = format!(
                "`{}` wants `{}` initialised first",
                self.call(*port),
                self.nodes[*before].name
            );
            Some((self.edges[*edge].span.clone(), label))
        };
        let (span, label) = place(0).unzip();
        let span = span.flatten();
        // Two modules that wait for each other may do so by one edge.
        let also = place(1).and_then(|(at, label)| Some((at?, label)));
        let also = also.filter(|(at, _)| Some(at) != span.as_ref());
        Problem {
            label,
            also,
            ..Problem::at(
                "init_cycle",
                span,
                format!("these modules wait for each other: {}", waits.join(", ")),
                "take out one of these edges; data may go in a circle, initialisation may not"
                    .to_owned(),
            )
        }
    }
}
