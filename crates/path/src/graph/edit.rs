//! Edits of a graph that runs: modules come and go, and those that stay are the very
//! objects that they were.
//!
//! An edit makes another graph, which shares the modules that stay; it takes the
//! place of the old one when whoever runs it says so. Until then, and if anything is
//! wrong, the old graph is as it was: what comes is initialised before, and nothing is
//! done to what stays. Positions of modules are other ones in the other graph.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::ptr;
use std::rc::Rc;

use super::{Graph, Node, Port, Sketch};
use crate::bug::{self, Bug};
use crate::module::{Kind, Module};
use crate::problem::{self, Problem};

#[cfg(test)]
mod tests;

/// What is to change in a graph.
pub struct Edit<'t, M> {
    /// Modules that go, by their names. Edges that they wrote go with them.
    pub remove: Vec<&'t str>,
    /// Modules that come, each with its name; one that goes may give its name to one that
    /// comes, which then has the edges that others wrote to it.
    pub add: Vec<(&'t str, Box<dyn Module<M>>)>,
    /// Edges that come, such as `("udp.down", "ip.up")`.
    pub edges: Vec<(&'t str, &'t str)>,
}

/// A module of a graph that is made.
pub(crate) struct Part<M> {
    name: Box<str>,
    module: Rc<dyn Module<M>>,
    said: Box<str>,
    ready: bool,
}

impl<M> Part<M> {
    /// A module that was made just now; `said` are its parameters, as the text says them.
    pub(crate) fn fresh(name: &str, module: Box<dyn Module<M>>, said: &str) -> Self {
        Self {
            name: name.into(),
            module: module.into(),
            said: said.into(),
            ready: false,
        }
    }

    fn of(node: &Node<M>) -> Self {
        Self {
            name: node.name.clone(),
            module: Rc::clone(&node.module),
            said: node.said.clone(),
            ready: true,
        }
    }

    /// With nothing connected to it.
    pub(super) fn node(self) -> Node<M> {
        let Self {
            name,
            module,
            said,
            ready,
        } = self;
        Node {
            name,
            peers: vec![Vec::new(); module.kind().services.len()],
            module,
            said,
            ready,
        }
    }
}

impl<M> Graph<M> {
    /// The graph with modules less and modules more, and the edges between them. What
    /// stays is shared with this graph, which is as it was.
    ///
    /// # Errors
    ///
    /// Every mistake, without places: what is not there, what others refer to, what does
    /// not fit, circles of initialisation. If there is none, every module that comes and
    /// cannot work here.
    pub fn edited(&self, edit: Edit<'_, M>) -> Result<Self, Vec<Problem>> {
        let Edit { remove, add, edges } = edit;
        let mut problems = self.removable(&remove, &add);
        let gone: BTreeSet<&str> = remove.into_iter().collect();
        let stay = self.nodes.iter().filter(|node| !gone.contains(&*node.name));
        let stay: Vec<&Node<M>> = stay.collect();
        let kind = |node: &Node<M>| Some(node.module.kind());

        let mut sketch = Sketch::default();
        for node in &stay {
            problems.extend(sketch.add(&node.name, None, kind(node)));
        }
        for (name, module) in &add {
            problems.extend(sketch.add(name, None, Some(module.kind())));
        }
        // What they write still holds, if it is not to be said that it does not.
        let come: BTreeSet<&str> = add.iter().map(|(name, _)| *name).collect();
        let there = |port: Port| {
            let name = &*self.nodes[port.module].name;
            !gone.contains(name) || come.contains(name)
        };
        let written = self.written.iter();
        let written = written.filter(|(from, to)| {
            let name = &*self.nodes[from.module].name;
            !gone.contains(name) && there(*to)
        });
        let written: Vec<_> = written
            .map(|(from, to)| (self.port_name(*from), self.port_name(*to)))
            .collect();
        let written = written.iter().map(|(from, to)| (&**from, &**to));
        for (from, to) in written.chain(edges) {
            match sketch.port(from, None, None) {
                Ok(Some(from)) => problems.extend(sketch.connect(from, to, None)),
                Ok(None) => {}
                Err(problem) => problems.push(problem),
            }
        }
        let order = sketch.order().unwrap_or_else(|cycles| {
            problems.extend(cycles);
            Vec::new()
        });
        if !problems.is_empty() {
            return Err(problems);
        }
        let fresh = |(name, module): (&str, Box<dyn Module<M>>)| Part::fresh(name, module, "");
        let parts = stay.into_iter().map(Part::of);
        let parts = parts.chain(add.into_iter().map(fresh)).collect();
        let mut next = Self::assemble(parts, &sketch, order);
        next.init_all(|_| None)?;
        Ok(next)
    }

    /// What speaks against an edit of this graph that takes these modules away.
    fn removable(&self, remove: &[&str], add: &[(&str, Box<dyn Module<M>>)]) -> Vec<Problem> {
        let mut problems = Vec::new();
        // Else it would have to be shared and initialised later.
        if let Some(node) = self.nodes.iter().find(|node| !node.ready) {
            let message = format!("module `{}` is not initialised", node.name);
            let hint = "initialise the graph, then edit it".to_owned();
            problems.push(Problem::at("not_ready", None, message, hint));
        }
        for &name in remove {
            let Some(at) = self.position(name) else {
                let names: Vec<&str> = self.nodes.iter().map(|node| &*node.name).collect();
                let message = format!("there is no module `{name}`");
                let hint = problem::suggest(name, &names);
                problems.push(Problem::at("unknown_name", None, message, hint));
                continue;
            };
            if add.iter().any(|(comes, _)| *comes == name) || bug::is(Bug::EditRemovesUsed) {
                continue;
            }
            let to_it = self.written.iter().filter(|(_, to)| to.module == at);
            let users = to_it.map(|(from, _)| &*self.nodes[from.module].name);
            let users: BTreeSet<&str> = users.filter(|user| !remove.contains(user)).collect();
            if !users.is_empty() {
                let users: Vec<&str> = users.into_iter().collect();
                let message = format!("module `{name}` is used by {}", problem::list(&users));
                let hint = "take these away, too, or connect them to another first".to_owned();
                problems.push(Problem::at("in_use", None, message, hint));
            }
        }
        problems
    }

    /// The module of this name, if it can stay where the text says this of it.
    pub(crate) fn part(&self, name: &str, kind: &'static Kind, said: &str) -> Option<Part<M>> {
        let node = &self.nodes[self.position(name)?];
        let same = node.ready && ptr::eq(node.module.kind(), kind) && *node.said == *said;
        same.then(|| Part::of(node))
    }

    /// Initialises what came; `place` says where a module stands in the text.
    pub(crate) fn init_all(
        &mut self,
        place: impl Fn(&str) -> Option<Range<usize>>,
    ) -> Result<(), Vec<Problem>> {
        if bug::is(Bug::EditUninitialised) {
            return Ok(());
        }
        let failed = self.init_fresh().into_iter().map(|(module, refused)| {
            let because = &refused.because;
            let message = format!("module `{module}` cannot be initialised: {because}");
            Problem::at("not_ready", place(&module), message, refused.hint)
        });
        let failed: Vec<Problem> = failed.collect();
        if failed.is_empty() {
            Ok(())
        } else {
            Err(failed)
        }
    }

    /// What is another in `next`: the modules of this graph that go, and those that
    /// come; one that another took the place of is in both.
    #[must_use]
    pub fn changes<'g>(&'g self, next: &'g Self) -> [Vec<&'g str>; 2] {
        let objects = |graph: &'g Self| -> BTreeMap<&'g str, &'g Rc<dyn Module<M>>> {
            let nodes = graph.nodes.iter();
            nodes.map(|node| (&*node.name, &node.module)).collect()
        };
        let (before, after) = (objects(self), objects(next));
        let lacks = |all: &BTreeMap<&'g str, &'g Rc<dyn Module<M>>>,
                     others: &BTreeMap<&'g str, &'g Rc<dyn Module<M>>>| {
            let other = |(name, module): (&&'g str, &&'g Rc<dyn Module<M>>)| {
                let same = others
                    .get(name)
                    .is_some_and(|known| Rc::ptr_eq(known, module));
                (!same).then_some(*name)
            };
            all.iter().filter_map(other).collect()
        };
        [lacks(&before, &after), lacks(&after, &before)]
    }
}
