#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write;
use std::sync::{Arc, Mutex};

use toml::de::DeTable;

use super::*;
use crate::attrs::Attrs;
use crate::bug;
use crate::module::{Param, Refused, StageAndNext};
use crate::read::{Kinds, Params};
use crate::service::{Interface, Service};

static NET: Interface = Interface {
    name: "net",
    parent: None,
};

static KIND: Kind = Kind {
    name: "count",
    about: "counts how often it was asked for a stage",
    services: &[
        Service {
            name: "up",
            provides: &NET,
            requires: &NET,
            after: false,
        },
        Service {
            name: "down",
            provides: &NET,
            requires: &NET,
            after: true,
        },
    ],
    params: &[Param {
        name: "fails",
        about: "whether it cannot be initialised",
    }],
};

/// What happened, in order: `make a`, `init a`, `drop a`.
type Events = Arc<Mutex<Vec<String>>>;

/// A module with state of its own: how often it was asked.
struct Count {
    name: String,
    fails: bool,
    asked: Mutex<u32>,
    events: Events,
}

impl Count {
    fn note(&self, what: &str) {
        let event = format!("{what} {}", self.name);
        self.events.lock().unwrap().push(event);
    }
}

impl Drop for Count {
    fn drop(&mut self) {
        self.note("drop");
    }
}

impl Module<()> for Count {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn init(&mut self) -> Result<(), Refused> {
        self.note("init");
        if self.fails {
            Err(Refused {
                because: "no such device".to_owned(),
                hint: "plug it in".to_owned(),
            })
        } else {
            Ok(())
        }
    }

    fn stage(&self, _: Option<usize>, _: &mut Attrs) -> Result<StageAndNext<()>, Refused> {
        let mut asked = self.asked.lock().unwrap();
        *asked += 1;
        Err(Refused {
            because: format!("asked {asked} times"),
            hint: String::new(),
        })
    }
}

#[derive(Default)]
struct Counts {
    events: Events,
    /// No module that was made before is kept.
    stale: bool,
}

impl Counts {
    fn module(&self, name: &str, fails: bool) -> Box<dyn Module<()>> {
        let module = Count {
            name: name.to_owned(),
            fails,
            asked: Mutex::default(),
            events: Arc::clone(&self.events),
        };
        module.note("make");
        Box::new(module)
    }

    fn events(&self) -> Vec<String> {
        std::mem::take(&mut self.events.lock().unwrap())
    }
}

impl Kinds<()> for Counts {
    fn find(&self, word: &str) -> Option<&'static Kind> {
        (word == KIND.name).then_some(&KIND)
    }

    fn words(&self) -> Vec<&'static str> {
        vec![KIND.name]
    }

    fn make(
        &self,
        _: &'static Kind,
        name: &str,
        params: &mut Params<'_>,
    ) -> Result<Box<dyn Module<()>>, Vec<Problem>> {
        let fails: Option<u64> = params.optional("fails");
        params.done(Some(self.module(name, fails == Some(1))))
    }

    fn keeps(&self, _: &'static Kind, _: &mut Params<'_>) -> bool {
        !self.stale
    }
}

fn read(text: &str, kinds: &Counts) -> Graph<()> {
    let root = DeTable::parse(text).unwrap();
    let mut graph = Graph::read(root.get_ref(), kinds).unwrap();
    graph.init().unwrap();
    kinds.events();
    graph
}

fn reread(graph: &Graph<()>, text: &str, kinds: &Counts) -> Result<Graph<()>, Vec<String>> {
    let root = DeTable::parse(text).unwrap();
    graph.reread(root.get_ref(), kinds).map_err(said)
}

fn said(problems: Vec<Problem>) -> Vec<String> {
    let said = problems.into_iter().map(|problem| problem.message);
    said.collect()
}

fn ask(graph: &Graph<()>, name: &str) -> String {
    let node = &graph.nodes()[graph.position(name).unwrap()];
    let refused = node.module.stage(None, &mut Attrs::new());
    refused.err().unwrap().because
}

/// Everything that can be seen of a graph, but for the objects.
fn seen(graph: &Graph<()>) -> (Vec<String>, Vec<String>) {
    let names = graph.nodes().iter().map(|node| node.name.to_string());
    let edges = graph.edges().iter();
    let edges = edges.map(|[a, b]| format!("{}-{}", graph.port_name(*a), graph.port_name(*b)));
    (names.collect(), edges.collect())
}

const TWO: &str = "module.a = { kind = 'count' }\nmodule.b = { kind = 'count', down = 'a.up' }\n";

/// Whether `a` and `b` keep what they counted while others come and go; and whoever
/// comes is initialised.
fn keeps_and_initialises() -> bool {
    let kinds = Counts::default();
    let graph = read(TWO, &kinds);
    assert_eq!(ask(&graph, "a"), "asked 1 times");
    let more = format!(
        "{TWO}module.c = {{ kind = 'count', down = ['b.up', 'd.up'] }}\nmodule.d.kind = 'count'\n"
    );
    let with = reread(&graph, &more, &kinds).unwrap();
    // `c` comes after `d`, though it stands before it.
    let right = kinds.events() == ["make c", "make d", "init d", "init c"];
    let right = right && ask(&with, "a") == "asked 2 times";
    drop(graph);
    let without = reread(&with, TWO, &kinds).unwrap();
    drop(with);
    right && kinds.events() == ["drop c", "drop d"] && ask(&without, "a") == "asked 3 times"
}

#[test]
fn what_stays_is_the_very_module() {
    assert!(keeps_and_initialises());
    for bug in [Bug::EditRebuilds, Bug::EditUninitialised] {
        assert!(!bug::with(bug, keeps_and_initialises), "{bug:?}");
    }
}

#[test]
fn a_module_is_made_anew_when_what_is_said_of_it_changes() {
    let kinds = Counts::default();
    let graph = read(TWO, &kinds);
    // Other edges, other places, other order: the same modules.
    let moved = "\n\nmodule.b = { kind = 'count' }\nmodule.a = { down = 'b.up', kind = 'count' }\n";
    let next = reread(&graph, moved, &kinds).unwrap();
    assert_eq!(kinds.events(), [""; 0]);
    assert_eq!(graph.changes(&next), [vec![], vec![]] as [Vec<&str>; 2]);
    assert_eq!(next.order().collect::<Vec<_>>(), ["b", "a"]);
    // Another parameter, or something behind it that has changed: another module.
    let changed = TWO.replace("b = {", "b = { fails = 0,");
    let next = reread(&graph, &changed, &kinds).unwrap();
    assert_eq!(kinds.events(), ["make b", "init b"]);
    assert_eq!(graph.changes(&next), [["b"], ["b"]]);
    let stale = Counts {
        events: Arc::clone(&kinds.events),
        stale: true,
    };
    let next = reread(&graph, TWO, &stale).unwrap();
    assert_eq!(kinds.events()[..2], ["make a", "make b"]);
    assert_eq!(ask(&next, "a"), "asked 1 times");
}

#[test]
fn an_edit_that_fails_changes_nothing() {
    let kinds = Counts::default();
    let graph = read(TWO, &kinds);
    ask(&graph, "a");
    let before = seen(&graph);
    // The second of two cannot be initialised; nor can a third, which is said too; who
    // comes after them is not asked.
    let text = format!(
        "{TWO}module.c.kind = 'count'\nmodule.d = {{ kind = 'count', fails = 1 }}\n\
         module.e = {{ kind = 'count', fails = 1 }}\n\
         module.f = {{ kind = 'count', down = 'd.up' }}\n"
    );
    let refused = reread(&graph, &text, &kinds).err().unwrap();
    let cannot = |name| format!("module `{name}` cannot be initialised: no such device");
    assert_eq!(refused, [cannot("d"), cannot("e")]);
    let root = DeTable::parse(&text).unwrap();
    let problems = graph.reread(root.get_ref(), &kinds).err().unwrap();
    assert!(text[problems[0].span.clone().unwrap()].starts_with('d'));
    let edit = Edit {
        remove: vec!["b"],
        add: vec![
            ("c", kinds.module("c", false)),
            ("d", kinds.module("d", true)),
        ],
        edges: vec![("c.down", "a.up")],
    };
    kinds.events();
    assert_eq!(said(graph.edited(edit).err().unwrap()), [cannot("d")]);
    assert_eq!(kinds.events(), ["init c", "init d", "drop c", "drop d"]);
    // All mistakes at once, and nobody is initialised.
    let text = "module.a = { kind = 'count', down = 'x.up' }\nmodule.n.kind = 'nothing'\n\
                module.c.kind = 'count'\n";
    assert_eq!(reread(&graph, text, &kinds).err().unwrap().len(), 2);
    assert_eq!(kinds.events(), ["make c", "drop c"]);
    assert_eq!(
        (seen(&graph), &*ask(&graph, "a")),
        (before, "asked 2 times")
    );
}

/// What is said when `a` and `x` go.
fn removal() -> Vec<String> {
    let graph = read(TWO, &Counts::default());
    let edit = Edit {
        remove: vec!["a", "x"],
        add: Vec::new(),
        edges: Vec::new(),
    };
    said(graph.edited(edit).err().unwrap())
}

#[test]
fn what_others_refer_to_cannot_be_removed() {
    let right = ["module `a` is used by `b`", "there is no module `x`"];
    assert_eq!(removal(), right);
    assert_ne!(bug::with(Bug::EditRemovesUsed, removal), right);
}

#[test]
fn modules_go_and_come_by_name() {
    let kinds = Counts::default();
    let graph = read(TWO, &kinds);
    ask(&graph, "b");
    let edit = |remove, add: &[&'static str], edges| Edit {
        remove,
        add: add
            .iter()
            .map(|name| (*name, kinds.module(name, false)))
            .collect(),
        edges,
    };
    // Who refers to another goes first, or with it.
    assert!(
        graph
            .edited(edit(vec!["a", "b"], &[], vec![]))
            .unwrap()
            .nodes()
            .is_empty()
    );
    // In the place of one that others refer to.
    let next = graph.edited(edit(vec!["a"], &["a"], vec![])).unwrap();
    assert_eq!(seen(&next).1, ["b.down-a.up"]);
    assert_eq!(graph.changes(&next), [["a"], ["a"]]);
    assert_eq!(ask(&next, "b"), "asked 2 times");
    let next = next
        .edited(edit(vec![], &["c"], vec![("c.down", "b.up")]))
        .unwrap();
    assert_eq!(next.order().collect::<Vec<_>>(), ["a", "b", "c"]);
    // Circles, names that are taken, and edges to nowhere: all at once.
    let wrong = edit(vec![], &["c"], vec![("a.down", "c.up"), ("c.up", "q.down")]);
    let wrong = said(next.edited(wrong).err().unwrap());
    assert_eq!(
        wrong,
        [
            "two modules are called `c`",
            "there is no module `q`",
            "these modules wait for each other: `b` after `a`, `a` after `c`, `c` after `b`",
        ]
    );
}

#[test]
fn an_uninitialised_graph_is_not_edited() {
    let kinds = Counts::default();
    let root = DeTable::parse(TWO).unwrap();
    let mut graph = Graph::read(root.get_ref(), &kinds).unwrap();
    let nothing = || Edit {
        remove: Vec::new(),
        add: Vec::new(),
        edges: Vec::new(),
    };
    let refused = said(graph.edited(nothing()).err().unwrap());
    assert_eq!(refused, ["module `a` is not initialised"]);
    // What has done nothing yet has nothing to keep.
    let next = graph.reread(root.get_ref(), &kinds).unwrap();
    assert_eq!(graph.changes(&next), [["a", "b"], ["a", "b"]]);
    graph.init().unwrap();
    graph.init().unwrap();
    let inits = kinds
        .events()
        .iter()
        .filter(|it| it.starts_with("init"))
        .count();
    assert_eq!(inits, 4);
    assert!(graph.edited(nothing()).is_ok());
}

/// However a graph came about, it is the one that its text says.
#[test]
fn many_edits_come_to_the_same_as_one_text() {
    let kinds = Counts::default();
    let mut graph = read("", &kinds);
    let mut random = 1u64;
    for step in 0..2_000 {
        let mut text = String::new();
        for (at, name) in ["a", "b", "c", "d", "e"].iter().enumerate() {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(step | 1);
            let bits = random >> 40;
            if bits & 1 == 0 {
                continue;
            }
            let fails = bits >> 1 & 1;
            let _ = write!(text, "module.{name} = {{ kind = 'count', fails = {fails}");
            let down = ["a", "b", "c", "d", "e"]
                .get((bits >> 2) as usize % 8)
                .filter(|_| at > 0);
            text += &down.map_or(String::new(), |down| format!(", down = '{down}.up'"));
            text += " }\n";
        }
        let root = DeTable::parse(&text).unwrap();
        let fresh = Graph::read(root.get_ref(), &kinds).and_then(|mut fresh| {
            fresh.init_all(|_| None)?;
            Ok(fresh)
        });
        let edited = graph.reread(root.get_ref(), &kinds);
        assert_eq!(edited.is_ok(), fresh.is_ok(), "{text}");
        if let (Ok(edited), Ok(fresh)) = (edited, fresh) {
            assert_eq!(seen(&edited), seen(&fresh), "{text}");
            graph = edited;
        }
    }
    drop(graph);
    let events = kinds.events();
    let count = |what: &str| events.iter().filter(|it| it.starts_with(what)).count();
    assert_eq!(count("make"), count("drop"));
}
