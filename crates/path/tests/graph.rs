//! Graphs from text: typed edges, the order of initialisation, drawings, and
//! what is said about mistakes (SCT-3, SCT-4, SCT-5).

mod scout;

use ashway_path::attrs::{Attrs, names};
use ashway_path::create::MAX_STAGES;
use ashway_path::graph::Graph;
use ashway_path::path::Limits;
use ashway_path::rules::Rule;
use proptest::prelude::*;
use scout::{FIGURE_9, Scout, read, render};
use toml::de::DeTable;

fn codes(text: &str) -> Vec<&'static str> {
    match read(text, &Scout::default()) {
        Ok(_) => Vec::new(),
        Err(problems) => problems.iter().map(|problem| problem.code).collect(),
    }
}

/// What is said about the only mistake in `text`.
fn said(text: &str) -> String {
    let Err(problems) = read(text, &Scout::default()) else {
        panic!("accepted: {text}");
    };
    assert_eq!(problems.len(), 1, "{problems:?}");
    let hint = problems[0].hint.as_deref().unwrap_or("-");
    format!("{} ({hint})", problems[0])
}

fn module(name: &str, kind: &str, more: &str) -> String {
    format!("[module.{name}]\nkind = \"{kind}\"\n{more}\n")
}

#[test]
fn figure_9_is_read_and_initialised_from_below() {
    let kinds = Scout::default();
    let mut graph = read(FIGURE_9, &kinds).unwrap();
    assert_eq!(graph.nodes().len(), 10);
    // The edge ip-eth0, written at both ends, is there once.
    assert_eq!(graph.edges().len(), 12);
    graph.init().unwrap();
    let expected = [
        "eth0", "eth1", "arp", "ip", "udp", "mflow", "mpeg", "mjpeg", "display", "shell",
    ];
    assert_eq!(graph.order().collect::<Vec<_>>(), expected);
    assert_eq!(
        kinds.0.events(),
        expected.map(|name| format!("init {name}"))
    );
    drop(graph);
    assert_eq!(kinds.0.modules.get(), 0);
}

#[test]
fn initialisation_stops_at_the_module_that_cannot() {
    let text = [
        module("udp", "udp", "down = 'ip.up'"),
        module("ip", "ip", "fail = 'init'"),
    ];
    let kinds = Scout::default();
    let errors = read(&text.concat(), &kinds).unwrap().init().unwrap_err();
    assert_eq!(
        errors[0].to_string(),
        "module `ip` cannot be initialised: no such device"
    );
    assert_eq!(errors.len(), 1);
    assert_eq!(kinds.0.events(), ["init ip"]);
}

/// As at an edit: all of them at once, each at its section.
#[test]
fn all_modules_that_cannot_be_initialised_are_said_with_their_places() {
    let text = [
        module("ip", "ip", "fail = 'init'"),
        module("udp", "udp", ""),
        module("eth", "eth", "fail = 'init'"),
    ]
    .concat();
    let kinds = Scout::default();
    let root = DeTable::parse(&text).unwrap();
    let mut graph = Graph::read(root.get_ref(), &kinds).unwrap();
    let problems = graph.init_of(root.get_ref()).unwrap_err();
    let hint = Some("plug it in".to_owned());
    assert!(problems.iter().all(|problem| problem.hint == hint));
    let said = problems.iter().map(|problem| {
        let place = problem.span.clone().unwrap();
        (&text[place], &*problem.message)
    });
    let because = ["eth", "ip"].map(|module| {
        let message = format!("module `{module}` cannot be initialised: no such device");
        (module, message)
    });
    let mut said: Vec<_> = said.collect();
    said.sort_unstable();
    assert!(
        said.iter().copied().eq(because
            .iter()
            .map(|(module, message)| (*module, &**message)))
    );
}

#[test]
fn a_mistyped_edge_is_refused_with_both_types() {
    let text = [
        module("udp", "udp", "down = \"eth.up\""),
        module("ip", "ip", ""),
        module("eth", "eth", ""),
    ]
    .concat();
    let problems = read(&text, &Scout::default()).err().unwrap();
    assert_eq!(
        render(&text, &problems),
        "error: `udp.down:<net, network>` cannot be connected to `eth.up:<link, net>`\n \
         --> graph.toml:3:8\n  |\n\
         3 | down = \"eth.up\"\n  |        ^^^^^^^^ `udp.down` requires `network`, `eth.up` provides `link`\n  |\n  \
         = help: what fits `udp.down`: `ip.up`\n\n"
    );
    // Both sides can be wrong; nothing fits a screen but a decoder.
    let text = [
        module("display", "display", "down = 'udp.up'"),
        module("udp", "udp", ""),
    ];
    let problems = read(&text.concat(), &Scout::default()).err().unwrap();
    assert_eq!(
        problems[0].label.as_deref(),
        Some(
            "`display.down` requires `pictures`, `udp.up` provides `transport`, and \
             `udp.up` requires `net`, `display.down` provides `screen`"
        )
    );
    assert_eq!(
        problems[0].hint.as_deref(),
        Some("no service in this graph fits `display.down`")
    );
}

#[test]
fn a_more_specific_interface_is_accepted() {
    // A decoder wants `net` below; transport, network and link are all of it.
    for below in ["mflow", "udp", "ip", "eth"] {
        let text = [
            module("d", "decoder", "down = 'below.up'"),
            module("below", below, ""),
        ];
        assert_eq!(codes(&text.concat()), [""; 0], "{below}");
    }
    // But who wants a transport does not get along with any `net`.
    let text = [
        module("shell", "shell", "down = 'm.up'"),
        module("m", "mflow", ""),
    ];
    assert_eq!(codes(&text.concat()), ["type_mismatch"]);
}

#[test]
fn a_cycle_of_initialisation_names_every_module_in_it() {
    let text = [
        module("lone", "eth", ""),
        module("waits", "tunnel", "first = \"b.down\""),
        module("a", "tunnel", "first = \"b.up\""),
        module("b", "tunnel", "first = \"c.up\""),
        module("c", "tunnel", "first = \"a.up\""),
    ]
    .concat();
    let problems = read(&text, &Scout::default()).err().unwrap();
    assert_eq!(
        render(&text, &problems),
        "error: these modules wait for each other: `b` after `c`, `c` after `a`, `a` after `b`\n  \
         --> graph.toml:12:9\n   |\n\
         12 | first = \"c.up\"\n   |         ^^^^^^ `b.first` wants `c` initialised first\n\
         ...\n\
         15 | first = \"a.up\"\n   |         ------ `c.first` wants `a` initialised first\n   |\n   \
         = help: take out one of these edges; data may go in a circle, initialisation may not\n\n"
    );
}

#[test]
fn every_cycle_of_initialisation_is_reported_once() {
    let text = [
        // By one edge: both want the other first.
        module("a", "tunnel", "first = 'b.first'"),
        module("b", "tunnel", ""),
        // Of one module.
        module("c", "tunnel", "first = 'c.up'"),
        // Not in a cycle, but behind one.
        module("d", "tunnel", "first = 'a.up'"),
    ]
    .concat();
    let problems = read(&text, &Scout::default()).err().unwrap();
    let said: Vec<_> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(
        said,
        [
            "these modules wait for each other: `a` after `b`, `b` after `a`",
            "these modules wait for each other: `c` after `c`",
        ]
    );
}

#[test]
fn data_may_go_in_a_circle() {
    let text = [
        module("a", "tunnel", "down = 'b.up'"),
        module("b", "tunnel", "down = ['c.up', 'a.up']"),
        module("c", "tunnel", "down = 'a.up'"),
    ];
    let graph = read(&text.concat(), &Scout::default()).unwrap();
    assert_eq!(graph.edges().len(), 4);
    assert_eq!(graph.order().collect::<Vec<_>>(), ["a", "b", "c"]);
}

#[test]
fn mistakes_are_said_as_a_person_would() {
    let ip = module("ip", "ip", "");
    let udp = |more| module("udp", "udp", more) + &ip;
    for (text, expected) in [
        (
            udp("down = 'iip.up'"),
            "there is no module `iip` (did you mean `ip`? available: `ip`)",
        ),
        (
            udp("down = 'ip.upp'"),
            "module `ip` has no service `upp` (did you mean `up`? available: `up`, `down`, `res`)",
        ),
        (
            udp("down = 'ip'"),
            "`ip` names a module, not a service (did you mean `ip.up`?)",
        ),
        (
            udp("down = 'udp'"),
            "`udp` names a module, not a service (write `udp.` and one of `up`, `down`)",
        ),
        (
            // The dot is the name's own.
            module("udp", "udp", "down = 'ip.100'") + &module("\"ip.100\"", "ip", ""),
            "`ip.100` names a module, not a service (did you mean `ip.100.up`?)",
        ),
        (
            udp("down = 17"),
            "a connection must be `\"module.service\"`, not `17` \
             (several are written as an array of strings)",
        ),
        (
            udp("down = ['ip.up', 'ip.up']"),
            "`udp.down` is connected to `ip.up` twice (name each service once)",
        ),
        (
            module("t", "tunnel", "up = 't.up'"),
            "`t.up` is connected to itself (connect it to a service of another module)",
        ),
        (
            udp("donw = 'ip.up'"),
            "`module.udp` has no key `donw` (did you mean `down`? available: `kind`, `up`, `down`, \
             `fail`, `memory`, `routes`, `goes`)",
        ),
        (
            module("udp", "upd", ""),
            "there is no kind of module `upd` (did you mean `udp`? available: `eth`, `arp`, `ip`, \
             `udp`, `mflow`, `decoder`, `display`, `shell`, `tunnel`)",
        ),
        (
            "[module.udp]".to_owned(),
            "`module.udp` needs the key `kind` (add `kind = \"udp\"`)",
        ),
        (
            "[module.udp]\nkind = 3".to_owned(),
            "`kind` must be a string, not `3` (-)",
        ),
        (
            udp("memory = -1"),
            "`memory` must be a whole number from 0, not `-1` (-)",
        ),
        (
            udp("memory = '1 MB'"),
            "`memory` must be a whole number from 0, not `1 MB` (-)",
        ),
        (
            udp("fail = 'never'"),
            "`fail` names no phase (write \"init\", \"stages\" or \"establish\")",
        ),
        (
            "module = 3".to_owned(),
            "`module` must be a table, not `3` (write a section `[module.NAME]`)",
        ),
        (
            "module.udp = 'udp'".to_owned(),
            "`module.udp` must be a table, not `udp` (write a section `[module.udp]`)",
        ),
        (
            module("\"a/b\"", "eth", ""),
            "a module cannot be called `a/b` (a name is not empty and has no `/`, \
             which separates the names of a path)",
        ),
    ] {
        assert_eq!(said(&text), expected, "{text}");
    }
}

#[test]
fn all_mistakes_are_found_at_once_and_none_follows_from_another() {
    let text = [
        // Edges to what is not understood are not mistakes of their own.
        "module.text = 'udp'\n".to_owned(),
        module("x", "nothing", "up = 'y.up'\nwhatever = 1"),
        module(
            "udp",
            "udp",
            "down = ['x.up', 'text.up', 'eth0.100.up', 'ip.up']\ncolour = 'red'\nmemory = 'much'",
        ),
        module("\"eth0.100\"", "eth", ""),
    ];
    let mut found = codes(&text.concat());
    found.sort_unstable();
    let expected = [
        "type_mismatch", // udp on eth0.100
        "unknown_key",
        "unknown_name", // kind
        "unknown_name", // ip
        "wrong_type",   // memory
        "wrong_type",   // text
    ];
    assert_eq!(found, expected);
}

#[test]
fn every_wrong_parameter_is_found_even_if_the_module_forgets_to_ask() {
    for kind in ["ip", "shell"] {
        let text = module("m", kind, "memory = 'much'\nroutes = [1, 'a b', 2]");
        assert_eq!(codes(&text), ["wrong_type"; 3], "{kind}");
    }
}

#[test]
fn the_drawing_shows_modules_services_and_order() {
    let text = [
        module("udp", "udp", "down = 'ip4.up'"),
        module("ip4", "ip", ""),
        module("\"a\\\"b\"", "eth", ""),
    ];
    let graph = read(&text.concat(), &Scout::default()).unwrap();
    assert_eq!(
        graph.dot(),
        r#"graph ashway {
  node [shape=box];
  "udp" [label="udp", tooltip="the `udp` of the tests"];
  "ip4" [label="ip4: ip", tooltip="the `ip` of the tests"];
  "a\"b" [label="a\"b: eth", tooltip="the `eth` of the tests"];
  "udp" -- "ip4" [taillabel="<down", headlabel="up"];
}
"#
    );
    let json = graph.json();
    assert_eq!(json["edges"], serde_json::json!([["udp.down", "ip4.up"]]));
    assert_eq!(json["order"], serde_json::json!(["ip4", "udp", "a\"b"]));
    assert_eq!(
        json["modules"][0]["services"][1],
        serde_json::json!({
            "name": "down", "provides": "net", "requires": "network", "after": true,
            "connected": ["ip4.up"],
        })
    );
}

#[test]
fn text_without_modules_is_an_empty_graph() {
    let graph = read("[iface.veth0]", &Scout::default()).unwrap();
    assert_eq!((graph.nodes().len(), graph.edges().len()), (0, 0));
}

/// Text that is nearly a graph.
fn nearly() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec!["a", "b", "udp", "ip", "eth0.100", "a/b", "é"]);
    let kind = prop::sample::select(vec!["udp", "ip", "eth", "tunnel", "decoder", "upd", ""]);
    let key = prop::sample::select(vec!["up", "down", "first", "kind", "fail", "x", "goes"]);
    let value = prop_oneof![
        (name.clone(), key.clone()).prop_map(|(name, key)| format!("\"{name}.{key}\"")),
        (name.clone(), name.clone()).prop_map(|(a, b)| format!("[\"{a}.up\", \"{b}.down\", 3]")),
        Just("-9223372036854775808".to_owned()),
        Just("{ a = 1979-05-27 }".to_owned()),
        Just("\"..\"".to_owned()),
    ];
    let section =
        (name, kind, prop::collection::vec((key, value), 0..4)).prop_map(|(name, kind, keys)| {
            let keys: Vec<_> = keys
                .iter()
                .map(|(key, value)| format!("{key} = {value}"))
                .collect();
            let keys = keys.join("\n");
            format!("[module.\"{name}\"]\nkind = \"{kind}\"\n{keys}\n")
        });
    prop::collection::vec(section, 0..8).prop_map(|sections| sections.concat())
}

/// Every place is in the text, on borders of characters, and every message says
/// something.
fn is_sound(text: &str) {
    let kinds = Scout::default();
    match read(text, &kinds) {
        Ok(mut graph) => {
            assert_eq!(graph.order().count(), graph.nodes().len());
            let _ = graph.init();
            assert!(graph.dot().ends_with("}\n"));
            // Creation from anywhere, to wherever the modules happen to lead.
            for name in graph.nodes().iter().map(|node| node.name.clone()) {
                let mut attrs = Attrs::new();
                attrs.set(names::PATHNAME, "b/udp");
                let limits = Limits::default();
                if let Ok(created) =
                    graph.create("p", &name, attrs, limits, &[Rule::LEAVE_OUT_IDLE])
                {
                    assert!((1..=MAX_STAGES).contains(&created.path.len()));
                }
            }
            assert_eq!(kinds.0.alive(), (0, 0));
        }
        Err(problems) => {
            assert!(!problems.is_empty());
            for problem in &problems {
                let places = problem
                    .span
                    .iter()
                    .chain(problem.also.as_ref().map(|(at, _)| at));
                for span in places {
                    assert!(text.get(span.clone()).is_some(), "{problem:?}");
                }
                assert!(!problem.message.is_empty() && !problem.code.is_empty());
            }
            render(text, &problems);
        }
    }
    assert_eq!(kinds.0.modules.get(), 0, "modules outlive their graph");
}

proptest! {
    #[test]
    fn nearly_graphs_never_panic(text in nearly()) {
        is_sound(&text);
    }

    #[test]
    fn mutated_graphs_never_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<char>()), 1..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut text: Vec<char> = FIGURE_9.chars().collect();
        for (at, character) in changes {
            let at = at.index(text.len());
            text[at] = character;
        }
        let cut = cut.index(text.len());
        is_sound(&text.iter().collect::<String>());
        is_sound(&text[..cut].iter().collect::<String>());
    }

    #[test]
    fn the_order_keeps_to_the_markers(
        edges in prop::collection::vec((0..12usize, 0..12usize), 0..24),
    ) {
        // Edges from a later to an earlier module never form a cycle.
        let text: String = (0..12).rev().map(|at| {
            let mut befores: Vec<_> = edges
                .iter()
                .filter(|(a, b)| *a.max(b) == at && a != b)
                .map(|(a, b)| format!("\"m{}.up\"", a.min(b)))
                .collect();
            befores.sort();
            befores.dedup();
            module(&format!("m{at}"), "tunnel", &format!("first = [{}]", befores.join(", ")))
        }).collect();
        let graph = read(&text, &Scout::default()).unwrap();
        let order: Vec<_> = graph.order().collect();
        let place = |at: usize| order.iter().position(|name| *name == format!("m{at}")).unwrap();
        for (a, b) in edges {
            if a != b {
                prop_assert!(place(a.min(b)) < place(a.max(b)));
            }
        }
    }
}
