//! From text to a graph: the `[module.*]` sections of a configuration.
//!
//! ```toml
//! [module.udp]
//! kind = "udp"
//! down = ["ip.up", "ip6.up"]   # a key named like a service: its edges
//! checksum = true              # any other key: a parameter
//! ```
//!
//! An edge is written at either end, or at both. The shell parses TOML; what is
//! found here are mistakes of meaning, all at once, each with its place.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::attrs::{Attrs, Value};
use crate::bug::{self, Bug};
use crate::graph::{Graph, Part, Port, Sketch};
use crate::module::{Kind, Module};
use crate::problem::{self, Problem};

mod params;

pub use params::{Parameter, Params};

/// The kinds of modules that a configuration may name.
pub trait Kinds<M> {
    /// The kind of this word.
    fn find(&self, word: &str) -> Option<&'static Kind>;

    /// All words, for suggestions.
    fn words(&self) -> Vec<&'static str>;

    /// Makes a module called `name`, of this kind, with these parameters. Only
    /// keys that the kind declares are among them.
    ///
    /// # Errors
    ///
    /// What is wrong with the parameters; [`Params::done`] has it.
    fn make(
        &self,
        kind: &'static Kind,
        name: &str,
        params: &mut Params<'_>,
    ) -> Result<Box<dyn Module<M>>, Vec<Problem>>;

    /// Whether a module of this kind and these parameters, which was made before, is
    /// what would be made now. Not, where what it was made of beside its parameters has
    /// changed.
    fn keeps(&self, _kind: &'static Kind, _params: &mut Params<'_>) -> bool {
        true
    }
}

impl<M> Graph<M> {
    /// Reads the graph in a configuration; a configuration without modules is
    /// an empty graph. Nothing is initialised yet.
    ///
    /// # Errors
    ///
    /// Every mistake in it, each with its place.
    pub fn read(root: &DeTable<'_>, kinds: &impl Kinds<M>) -> Result<Self, Vec<Problem>> {
        Self::read_beside(root, kinds, None)
    }

    /// Reads the graph that is to follow this one, and initialises what comes. A module
    /// that the text says as before, with the same parameters, is the same module in
    /// both; its edges may be others. This graph is as it was.
    ///
    /// # Errors
    ///
    /// Every mistake in the text, each with its place; if there is none, every module
    /// that came and cannot work here.
    pub fn reread(&self, root: &DeTable<'_>, kinds: &impl Kinds<M>) -> Result<Self, Vec<Problem>> {
        let mut next = Self::read_beside(root, kinds, Some(self))?;
        next.init_of(root)?;
        Ok(next)
    }

    /// Initialises a graph that was read in this configuration; see [`Graph::init`].
    ///
    /// # Errors
    ///
    /// Every module that cannot work here, with the place of its section. Others are
    /// initialised: drop the graph.
    pub fn init_of(&mut self, root: &DeTable<'_>) -> Result<(), Vec<Problem>> {
        self.init_all(|name| {
            let modules = root.get("module")?.get_ref().as_table()?;
            Some(modules.get_key_value(name)?.0.span())
        })
    }

    fn read_beside(
        root: &DeTable<'_>,
        kinds: &impl Kinds<M>,
        before: Option<&Self>,
    ) -> Result<Self, Vec<Problem>> {
        let mut problems = Vec::new();
        let sections = sections(root, kinds, &mut problems);

        let mut sketch = Sketch::default();
        for section in &sections {
            problems.extend(sketch.add(section.name, Some(section.span.clone()), section.kind));
        }
        for (module, section) in sections.iter().enumerate() {
            for (service, value) in section.edges() {
                for (to, span) in ports(value, &mut problems) {
                    problems.extend(sketch.connect(Port { module, service }, to, Some(span)));
                }
            }
        }
        let order = sketch.order().unwrap_or_else(|cycles| {
            problems.extend(cycles);
            Vec::new()
        });
        let mut modules = Vec::new();
        for section in &sections {
            let Some(kind) = section.kind else { continue };
            let mut params = section.params(kind, &mut problems);
            let said = params.said();
            let stays = before.and_then(|before| before.part(section.name, kind, &said));
            if let Some(stays) = stays
                && kinds.keeps(kind, &mut params)
                && !bug::is(Bug::EditRebuilds)
            {
                modules.push(stays);
                continue;
            }
            match kinds.make(kind, section.name, &mut params) {
                Ok(module) => modules.push(Part::fresh(section.name, module, &said)),
                Err(more) => problems.extend(more),
            }
            problems.append(&mut params.problems);
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        Ok(Self::assemble(modules, &sketch, order))
    }
}

/// One `[module.NAME]`.
struct Section<'v> {
    name: &'v str,
    span: Range<usize>,
    /// `None` if it is something else.
    table: Option<&'v DeTable<'v>>,
    kind: Option<&'static Kind>,
}

/// The sections in the order of the text, whether or not their kinds are known.
fn sections<'v, M>(
    root: &'v DeTable<'v>,
    kinds: &impl Kinds<M>,
    problems: &mut Vec<Problem>,
) -> Vec<Section<'v>> {
    let Some(modules) = root.get("module") else {
        return Vec::new();
    };
    let Some(table) = modules.get_ref().as_table() else {
        let message = must_be("`module`", "a table", modules.get_ref());
        let hint = "write a section `[module.NAME]`".to_owned();
        problems.push(Problem::at(
            "wrong_type",
            Some(modules.span()),
            message,
            hint,
        ));
        return Vec::new();
    };
    let mut sections = Vec::new();
    for (name, value) in table {
        let span = name.span();
        let name = name.get_ref().as_ref();
        let table = value.get_ref().as_table();
        if table.is_none() {
            let message = must_be(&format!("`module.{name}`"), "a table", value.get_ref());
            let hint = format!("write a section `[module.{name}]`");
            problems.push(Problem::at("wrong_type", Some(value.span()), message, hint));
        }
        let kind = table.and_then(|table| kind(name, &span, table, kinds, problems));
        sections.push(Section {
            name,
            span,
            table,
            kind,
        });
    }
    sections.sort_by_key(|section| section.span.start);
    sections
}

fn kind<M>(
    name: &str,
    section: &Range<usize>,
    table: &DeTable<'_>,
    kinds: &impl Kinds<M>,
    problems: &mut Vec<Problem>,
) -> Option<&'static Kind> {
    let Some(value) = table.get("kind") else {
        // A module is often called like its kind.
        let hint = match kinds.find(name) {
            Some(kind) => format!("add `kind = \"{}\"`", kind.name),
            None => format!(
                "add `kind = \"…\"`; {}",
                problem::suggest(name, &kinds.words())
            ),
        };
        let message = format!("`module.{name}` needs the key `kind`");
        problems.push(Problem::at(
            "missing_key",
            Some(section.clone()),
            message,
            hint,
        ));
        return None;
    };
    let Some(word) = value.get_ref().as_str() else {
        let message = must_be("`kind`", "a string", value.get_ref());
        problems.push(Problem::at("wrong_type", Some(value.span()), message, None));
        return None;
    };
    let found = kinds.find(word);
    if found.is_none() {
        let message = format!("there is no kind of module `{word}`");
        let hint = problem::suggest(word, &kinds.words());
        problems.push(Problem::at(
            "unknown_name",
            Some(value.span()),
            message,
            hint,
        ));
    }
    found
}

impl<'v> Section<'v> {
    /// The keys that are services, with their positions.
    fn edges(&self) -> impl Iterator<Item = (usize, &'v Spanned<DeValue<'v>>)> {
        let services = self.kind.map_or(&[][..], |kind| kind.services);
        services
            .iter()
            .enumerate()
            .filter_map(|(at, service)| Some((at, self.table?.get(service.name)?)))
    }

    /// The keys that are parameters; the others are refused.
    fn params(&self, kind: &'static Kind, problems: &mut Vec<Problem>) -> Params<'v> {
        let mut values = Vec::new();
        for (key, value) in self.table.into_iter().flatten() {
            let name = key.get_ref().as_ref();
            if kind.params.iter().any(|param| param.name == name) {
                values.push((name, value));
            } else if name != "kind" && kind.service(name).is_none() {
                let services = kind.services.iter().map(|service| service.name);
                let params = kind.params.iter().map(|param| param.name);
                let keys: Vec<_> = ["kind"].into_iter().chain(services).chain(params).collect();
                problems.push(Problem::at(
                    "unknown_key",
                    Some(key.span()),
                    format!("`module.{}` has no key `{name}`", self.name),
                    problem::suggest(name, &keys),
                ));
            }
        }
        Params {
            title: format!("module.{}", self.name),
            span: self.span.clone(),
            values,
            problems: Vec::new(),
        }
    }
}

/// The ports that a key names: a string, or an array of strings.
fn ports<'v>(
    value: &'v Spanned<DeValue<'v>>,
    problems: &mut Vec<Problem>,
) -> Vec<(&'v str, Range<usize>)> {
    let items: Vec<_> = match value.get_ref().as_array() {
        Some(array) => array.iter().collect(),
        None => vec![value],
    };
    let mut found = Vec::new();
    for item in items {
        if let Some(port) = item.get_ref().as_str() {
            found.push((port, item.span()));
        } else {
            let message = must_be("a connection", "`\"module.service\"`", item.get_ref());
            let hint = "several are written as an array of strings".to_owned();
            problems.push(Problem::at("wrong_type", Some(item.span()), message, hint));
        }
    }
    found
}

/// `what` stands as it is; a name comes in backquotes.
fn must_be(what: &str, wanted: &str, found: &DeValue<'_>) -> String {
    let found = match found {
        DeValue::String(text) => format!("`{text}`"),
        DeValue::Integer(integer) => format!("`{integer}`"),
        other => problem::article(other.type_str()),
    };
    format!("{what} must be {wanted}, not {found}")
}

impl Attrs {
    /// Reads attributes from a table: `attrs = { remote = "10.0.0.2:9000" }`.
    ///
    /// # Errors
    ///
    /// Every value that cannot be an attribute.
    pub fn read(table: &DeTable<'_>) -> Result<Self, Vec<Problem>> {
        let (mut attrs, mut problems) = (Self::new(), Vec::new());
        for (name, value) in table {
            let name = name.get_ref().as_ref();
            if let Some(read) = Value::from_toml(value.get_ref()) {
                attrs.set(name.to_owned(), read);
            } else {
                let message = must_be(&format!("`{name}`"), Value::WANTED, value.get_ref());
                problems.push(Problem::at("wrong_type", Some(value.span()), message, None));
            }
        }
        if problems.is_empty() {
            Ok(attrs)
        } else {
            Err(problems)
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn attributes_come_from_a_table() {
        let read = |text| Attrs::read(DeTable::parse(text).unwrap().get_ref());
        let attrs = read("remote = '10.0.0.7:5004'\nmtu = 1500\nfast = true").unwrap();
        assert_eq!(attrs.to_string(), "fast=1 mtu=1500 remote=10.0.0.7:5004");
        let problems = read("a = 1.5\nb = 2\nc = []").unwrap_err();
        assert_eq!(
            problems[0].message,
            "`a` must be a number, a truth or a string, not a float"
        );
        assert_eq!(problems.len(), 2);
    }
}
