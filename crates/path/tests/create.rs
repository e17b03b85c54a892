//! Paths from attributes, in four phases that leave nothing behind (SCT-6,
//! SCT-7, SCT-8).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod scout;

use std::net::SocketAddr;
use std::sync::Arc;

use ashway_path::attrs::{Attrs, names};
use ashway_path::create::{Created, MAX_STAGES, NotCreated, Phase};
use ashway_path::graph::Graph;
use ashway_path::path::{Exit, Limits, Path};
use ashway_path::rules::Rule;
use ashway_path::sim::Single;
use ashway_path::stage::{Direction, Stage};
use ashway_path::time::Time;
use proptest::prelude::*;
use scout::{FIGURE_9, Header, Scout, read};

type Message = Vec<u8>;

/// `name=value` pairs.
fn attrs(pairs: &str) -> Attrs {
    let mut attrs = Attrs::new();
    for pair in pairs.split_whitespace() {
        let (name, value) = pair.split_once('=').unwrap();
        attrs.set(name.to_owned(), ashway_path::attrs::Value::of_text(value));
    }
    attrs
}

fn create(
    graph: &Graph<Message>,
    module: &str,
    pairs: &str,
) -> Result<Created<Message>, NotCreated> {
    graph.create("test", module, attrs(pairs), Limits::default(), &[])
}

fn stages(path: &Path<Message>) -> String {
    path.stages().map(Stage::name).collect::<Vec<_>>().join(" ")
}

/// The path from DISPLAY with these attributes.
fn video(pairs: &str) -> String {
    let graph = read(FIGURE_9, &Scout::default()).unwrap();
    stages(&create(&graph, "display", pairs).unwrap().path)
}

/// What SHELL knows of a video: who asked for it, and what is to decode it.
const VIDEO: &str = "remote=10.0.1.7:5004 pathname=mpeg";

#[test]
fn attributes_give_the_six_stage_video_path() {
    let kinds = Scout::default();
    let graph = read(FIGURE_9, &kinds).unwrap();
    let Created { path, log, .. } = create(&graph, "display", VIDEO).unwrap();
    let mut path = Single::new(path);
    assert_eq!(stages(&path), "display mpeg mflow udp ip eth1");
    assert_eq!(path.attrs().text(names::IFACE), Some("eth1"));
    assert_eq!(
        path.attrs().endpoint(names::REMOTE),
        Some("10.0.1.7:5004".parse::<SocketAddr>().unwrap())
    );
    assert_eq!(
        path.filter().as_deref(),
        Some("udp src port 5004 and src host 10.0.1.7")
    );
    // The path carries messages both ways.
    for (direction, message, expected) in [
        (
            Direction::Forward,
            "ack",
            "eth1|ip|udp|mflow|mpeg|display|ack",
        ),
        (
            Direction::Backward,
            "eth1|ip|udp|mflow|mpeg|display|picture",
            "picture",
        ),
    ] {
        let out = path.pass(direction, message.into(), Time(0));
        let message = expected.into();
        let turned = false;
        assert_eq!(
            out,
            [Exit::Left {
                direction,
                message,
                turned
            }]
        );
    }
    // Each layer has renamed what the one below calls the one above.
    assert_eq!(
        log.to_string(),
        "\
stages     display  goes on by `down` to `mpeg.up`
stages     mpeg     goes on by `down` to `mflow.up`
                      pathname mpeg -> -
stages     mflow    goes on by `down` to `udp.up`
                      protocol - -> 21
stages     udp      goes on by `down` to `ip.up`
                      protocol 21 -> 17
stages     ip       goes on by `down` to `eth1.up`
                      protocol 17 -> 0x800
stages     eth1     ends the path
                      iface - -> eth1
                      protocol 0x800 -> -
combine    test     6 stages: display mpeg mflow udp ip eth1
combine    test     filter: udp src port 5004 and src host 10.0.1.7
establish  test     all stages, in this order
                      last - -> eth1
transform  test     6 stages; no rule's guard holds
"
    );
    assert_eq!(
        kinds.0.events(),
        [
            "stage display:-",
            "stage mpeg:up",
            "stage mflow:up",
            "stage udp:up",
            "stage ip:up",
            "stage eth1:up",
            "establish display",
            "establish mpeg",
            "establish mflow",
            "establish udp",
            "establish ip",
            "establish eth1",
        ]
    );
    drop(path);
    let destroyed = ["eth1", "ip", "udp", "mflow", "mpeg", "display"];
    assert_eq!(
        kinds.0.events(),
        destroyed.map(|name| format!("destroy {name}"))
    );
    assert_eq!(kinds.0.alive(), (0, 0));
}

#[test]
fn weaker_attributes_give_a_shorter_path() {
    // Nobody says where the video comes from: IP cannot know the interface.
    assert_eq!(video("pathname=mpeg"), "display mpeg mflow udp ip");
    // The same if the host is behind a router, whose route may change.
    assert_eq!(
        video("pathname=mpeg remote=192.0.2.1:5004"),
        "display mpeg mflow udp ip"
    );
    // Nobody says which decoder.
    assert_eq!(video("remote=10.0.1.7:5004"), "display");
    assert_eq!(video(""), "display");
    // Stronger ones decide otherwise.
    assert_eq!(
        video("remote=10.0.0.7:5004 pathname=mjpeg"),
        "display mjpeg mflow udp ip eth0"
    );
}

#[test]
fn why_a_path_ends_early_is_in_the_log() {
    let graph = read(FIGURE_9, &Scout::default()).unwrap();
    let last = |pairs| {
        let log = create(&graph, "display", pairs).unwrap().log;
        let stages = log
            .0
            .iter()
            .rev()
            .find(|entry| entry.phase == Phase::Stages);
        stages.unwrap().what.clone()
    };
    assert_eq!(
        last(""),
        "ends the path: `down` leads to `mpeg.up`, `mjpeg.up`, and nothing decides"
    );
    assert_eq!(
        last("pathname=mpeg"),
        "ends the path: the attributes do not say where to go on"
    );
    let text = "[module.shell]\nkind = 'shell'";
    let graph = read(text, &Scout::default()).unwrap();
    let log = create(&graph, "shell", "").unwrap().log;
    assert_eq!(
        log.0[0].what,
        "ends the path: nothing is connected at `down`"
    );
}

#[test]
fn an_edge_leads_both_ways_wherever_it_is_written() {
    let text = "[module.udp]\nkind = 'udp'\n[module.ip]\nkind = 'ip'\nup = 'udp.down'\n";
    let graph = read(text, &Scout::default()).unwrap();
    assert_eq!(stages(&create(&graph, "udp", "").unwrap().path), "udp ip");
}

#[test]
fn a_path_name_decides_between_peers_and_each_name_is_used_once() {
    // `pass.down` leads to three modules, and after each of them back to itself.
    let text = "[module.pass]\nkind = 'tunnel'\ndown = ['a.up', 'b.up', 'end.up']\ngoes = 'down'\n\
        [module.a]\nkind = 'tunnel'\ndown = 'pass.up'\n\
        [module.b]\nkind = 'tunnel'\ndown = 'pass.up'\n\
        [module.end]\nkind = 'eth'";
    let graph = read(text, &Scout::default()).unwrap();
    let lead = |pathname: &str| {
        let created = create(&graph, "pass", &format!("pathname={pathname}"));
        created
            .map(|created| stages(&created.path))
            .map_err(|error| error.to_string())
    };
    assert_eq!(lead("b/a/b/end").unwrap(), "pass b pass a pass b pass end");
    // Modules that have no choice need not be named, but may be.
    assert_eq!(lead("pass/a/pass/end").unwrap(), "pass a pass end");
    assert_eq!(lead("/end/").unwrap(), "pass end");
    assert_eq!(
        lead("a/end/b").unwrap_err(),
        "cannot create a path: phase stages, module `end`, path so far: pass/a/pass/end: \
         the path ends here, and `pathname` says it goes on to `b`"
    );
}

#[test]
fn a_path_that_does_not_lead_where_it_was_told_says_why() {
    let graph = read(FIGURE_9, &Scout::default()).unwrap();
    let hint = |pairs| create(&graph, "display", pairs).err().unwrap().hint;
    assert_eq!(
        hint("pathname=mpeg/eth2 remote=10.0.1.7:5004"),
        "did you mean `eth0`? available: `display`, `mpeg`, `mjpeg`, `mflow`, `shell`, `udp`, \
         `ip`, `arp`, `eth0`, `eth1`"
    );
    // What is named lies behind both ways, and so does not decide.
    assert_eq!(
        hint("pathname=udp"),
        "`display` ends the path: `down` leads to `mpeg.up`, `mjpeg.up`, and nothing decides"
    );
    // IP's own decision stands, and is not the one that was asked for.
    assert_eq!(
        hint("pathname=mpeg/eth0 remote=10.0.1.7:5004"),
        "`eth1` ends the path"
    );
    assert_eq!(
        hint("pathname=mpeg/eth0"),
        "`ip` ends the path: the attributes do not say where to go on"
    );
}

#[test]
fn a_circle_is_bounded_and_named() {
    let text = "[module.a]\nkind = 'tunnel'\ndown = 'b.up'\n\
        [module.b]\nkind = 'tunnel'\ndown = 'c.up'\n\
        [module.c]\nkind = 'tunnel'\ndown = 'b.up'\ngoes = 'down b'";
    let kinds = Scout::default();
    let graph = read(text, &kinds).unwrap();
    let error = create(&graph, "a", "").err().unwrap();
    assert_eq!(
        error.because,
        "a path has at most 64 stages; this one goes c -> b -> c"
    );
    assert_eq!((error.phase, &*error.module), (Phase::Stages, "c"));
    assert_eq!(error.trail.len(), MAX_STAGES);
    assert_eq!(kinds.0.alive(), (0, 0));
}

#[test]
fn refusals_name_phase_module_reason_and_next_step() {
    let graph = read(FIGURE_9, &Scout::default()).unwrap();
    let error = create(&graph, "disply", "").err().unwrap();
    assert_eq!(
        (error.to_string().as_str(), &error.hint[..27]),
        (
            "cannot create a path: phase stages, module `disply`: there is no module of this name",
            "did you mean `display`? ava"
        )
    );
    let error = create(&graph, "display", "remote=10.0.1.7:0 pathname=mpeg")
        .err()
        .unwrap();
    assert_eq!(
        error.to_string(),
        "cannot create a path: phase stages, module `udp`, path so far: display/mpeg/mflow: \
         the far end has port 0, which nobody can answer from"
    );
    assert_eq!(
        error.hint,
        "give `remote` with a port, such as 10.0.0.7:5004"
    );
    assert_eq!(error.log.0.len(), 3, "what the modules before it did");

    let text = FIGURE_9.replace("10.0.1. eth1", "10.0.1. eth7");
    let graph = read(&text, &Scout::default()).unwrap();
    let error = create(&graph, "display", VIDEO).err().unwrap();
    assert_eq!(
        (error.because.as_str(), error.hint.as_str()),
        (
            "it goes on by `down` to `eth7`, which is not connected there",
            "connected at `ip.down`: `eth0.up`, `eth1.up`"
        )
    );
}

/// The modules of the video path.
const MODULES: [&str; 6] = ["display", "mpeg", "mflow", "udp", "ip", "eth1"];

/// Figure 9 with one more line in the section of `module`.
fn with(module: &str, line: &str) -> String {
    let section = format!("[module.{module}]\n");
    FIGURE_9.replace(&section, &format!("{section}{line}\n"))
}

/// Creates the video path, which fails, and returns the error and what happened.
fn failing(text: &str, limits: Limits, rules: &[Rule<Message>]) -> (NotCreated, Vec<String>) {
    let kinds = Scout::default();
    let graph = read(text, &kinds).unwrap();
    let error = graph
        .create("test", "display", attrs(VIDEO), limits, rules)
        .err()
        .expect("creation fails");
    assert_eq!(kinds.0.alive(), (0, 0), "{error}: something stays behind");
    let mut events = kinds.0.events();
    events.retain(|event| !event.starts_with("stage "));
    (error, events)
}

#[test]
fn failing_in_phase_1_leaves_nothing_wherever_it_happens() {
    for (at, module) in MODULES.iter().enumerate() {
        let (error, events) = failing(&with(module, "fail = 'stages'"), Limits::default(), &[]);
        assert_eq!((error.phase, &*error.module), (Phase::Stages, *module));
        let trail: Vec<_> = error.trail.iter().map(AsRef::as_ref).collect();
        assert_eq!(trail, MODULES[..at]);
        assert_eq!(events, [""; 0]);
    }
}

#[test]
fn failing_in_phase_2_leaves_nothing() {
    let text = with("mflow", "memory = 1_000_000");
    let (error, events) = failing(&text, Limits::default(), &[]);
    assert_eq!((error.phase, &*error.module), (Phase::Combine, "test"));
    assert!(error.because.contains("stage `mflow`"), "{}", error.because);
    assert_eq!(
        error.hint,
        "grant it more memory, or give it shorter queues"
    );
    assert_eq!(events, [""; 0]);
}

#[test]
fn failing_in_phase_3_destroys_what_was_established_last_first() {
    for (at, module) in MODULES.iter().enumerate() {
        let (error, events) = failing(&with(module, "fail = 'establish'"), Limits::default(), &[]);
        assert_eq!((error.phase, &*error.module), (Phase::Establish, *module));
        assert_eq!(error.because, "the port is taken");
        let before = &MODULES[..at];
        let expected: Vec<_> = before
            .iter()
            .map(|name| format!("establish {name}"))
            .chain(before.iter().rev().map(|name| format!("destroy {name}")))
            .collect();
        assert_eq!(events, expected);
    }
}

fn has_mflow(path: &Path<Message>) -> Option<std::ops::Range<usize>> {
    let at = path.stages().position(|stage| stage.name() == "mflow")?;
    Some(at..at + 1)
}

#[test]
fn failing_in_phase_4_destroys_the_path() {
    // A rule whose new stage cannot be established, one that fails by itself,
    // one that names stages there are not, and one that never ends.
    let rule = |guard, rewrite| Rule {
        name: "test-rule",
        about: "fails",
        guard,
        rewrite,
    };
    let rules: [(Rule<Message>, &str); 4] = [
        (
            rule(has_mflow, |path, range| {
                let mut stage = Header::new("new", &Arc::default());
                stage.fails = true;
                let replaced = path.replace(range, vec![Box::new(stage)]);
                replaced.map_err(|error| error.to_string())
            }),
            "rule `test-rule` failed: stage `new` at position 2 cannot be established: the port is taken",
        ),
        (
            rule(has_mflow, |_, _| Err("not today".to_owned())),
            "rule `test-rule` failed: not today",
        ),
        (
            rule(|path| Some(3..path.len() + 1), |_, _| Ok(())),
            "rule `test-rule` failed: its guard names stages 3..7 of 6",
        ),
        (
            rule(has_mflow, |_, _| Ok(())),
            "rules `test-rule` do not come to an end: 6 steps on a path of 6 stages",
        ),
    ];
    for (rule, because) in rules {
        let (error, events) = failing(FIGURE_9, Limits::default(), &[rule]);
        assert_eq!(
            (error.phase, &*error.module),
            (Phase::Transform, "test-rule")
        );
        assert_eq!(error.because, because);
        let expected: Vec<_> = MODULES
            .iter()
            .map(|name| format!("establish {name}"))
            .chain(MODULES.iter().rev().map(|name| format!("destroy {name}")))
            .collect();
        assert_eq!(events, expected);
    }
}

#[test]
fn a_transformation_is_in_the_log() {
    let graph = read(FIGURE_9, &Scout::default()).unwrap();
    let rule = Rule {
        name: "no-flow-control",
        about: "leaves out flow control",
        guard: has_mflow,
        rewrite: |path, range| {
            path.attrs_mut().set("window", 0);
            path.replace(range, Vec::new())
                .map_err(|error| error.to_string())
        },
    };
    let created = graph.create("video", "display", attrs(VIDEO), Limits::default(), &[rule]);
    let Created { path, log, .. } = created.unwrap();
    assert_eq!(stages(&path), "display mpeg udp ip eth1");
    let log = log.to_string();
    let last: Vec<_> = log.lines().rev().take(3).collect();
    assert_eq!(
        last,
        [
            "                              window - -> 0",
            "transform  video            5 stages; no rule's guard holds",
            "transform  no-flow-control  leaves out flow control: mflow; 6 stages -> 5",
        ]
    );
}

#[test]
fn a_graph_can_be_built_in_code() {
    let kinds = Scout::default();
    let modules = || {
        vec![
            ("udp", kinds.layer("udp", "udp")),
            ("ip0", kinds.layer("ip", "ip0")),
        ]
    };
    let graph = Graph::connect(modules(), &[("udp.down", "ip0.up")]).unwrap();
    assert_eq!(graph.order().collect::<Vec<_>>(), ["ip0", "udp"]);
    assert_eq!(stages(&create(&graph, "udp", "").unwrap().path), "udp ip0");
    // Edges may be written from either end; mistakes have no place.
    let edges = [
        ("ip0.up", "udp.down"),
        ("udp.down", "ip0.up"),
        ("dup.down", "ip0.up"),
        ("udp.down", "ip0.down"),
    ];
    let problems = Graph::connect(modules(), &edges).err().unwrap();
    let said: Vec<_> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(
        said,
        [
            "there is no module `dup`",
            "`udp.down:<net, network>` cannot be connected to `ip0.down:<net, link>`",
        ]
    );
    let twice = vec![
        ("udp", kinds.layer("udp", "udp")),
        ("udp", kinds.layer("ip", "udp")),
    ];
    let problems = Graph::connect(twice, &[]).err().unwrap();
    assert_eq!(problems[0].message, "two modules are called `udp`");
    drop((graph, problems));
    assert_eq!(kinds.0.modules.get(), 0);
}

const TUNNELS: usize = 5;

proptest! {
    #[test]
    fn a_path_follows_edges_passes_what_it_must_and_ends(
        edges in prop::collection::btree_set((0..TUNNELS, 0..TUNNELS), 1..16),
        goes in prop::collection::vec((prop::sample::select(vec!["down", "up", "none"]), 0..8usize), TUNNELS),
        pathname in prop::collection::vec(0..=TUNNELS, 0..4),
    ) {
        let sections: Vec<_> = (0..TUNNELS).map(|at| {
            let peers = edges.iter().filter(|(from, _)| *from == at);
            let peers: Vec<_> = peers.map(|(_, to)| format!("\"m{to}.up\"")).collect();
            // `none` is no service; some name a module, which may not be there.
            let goes = match goes[at] {
                (service, to @ 0..=TUNNELS) => format!("{service} m{to}"),
                (service, _) => service.to_owned(),
            };
            let peers = peers.join(", ");
            format!("[module.m{at}]\nkind = 'tunnel'\ndown = [{peers}]\ngoes = '{goes}'\n")
        }).collect();
        let kinds = Scout::default();
        let graph = read(&sections.concat(), &kinds).unwrap();
        let pathname: Vec<_> = pathname.iter().map(|at| format!("m{at}")).collect();
        match create(&graph, "m0", &format!("pathname={}", pathname.join("/"))) {
            Ok(Created { path, .. }) => {
                let passed: Vec<_> = path.stages().map(|stage| stage.name().to_owned()).collect();
                prop_assert!(passed.len() <= MAX_STAGES);
                for pair in passed.windows(2) {
                    let ends: Vec<_> = pair.iter().map(|name| name[1..].parse().unwrap()).collect();
                    let (a, b) = (ends[0], ends[1]);
                    prop_assert!(edges.contains(&(a, b)) || edges.contains(&(b, a)), "{passed:?}");
                }
                let mut rest = pathname.iter().peekable();
                for name in &passed {
                    rest.next_if(|next| *next == name);
                }
                prop_assert_eq!(rest.next(), None, "{:?} does not pass {:?}", passed, pathname);
            }
            Err(error) => {
                prop_assert!(!error.because.is_empty() && !error.hint.is_empty());
                prop_assert!(error.trail.len() <= MAX_STAGES);
            }
        }
        prop_assert_eq!(kinds.0.alive(), (0, 0));
    }
}
