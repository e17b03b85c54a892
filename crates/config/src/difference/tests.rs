#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path as FsPath;
use std::sync::Arc;

use super::*;
use crate::parse;

/// A configuration of this text, with a file that exists for its handlers.
fn read(text: &str) -> Config {
    let beside = FsPath::new(env!("CARGO_MANIFEST_DIR")).join("test.toml");
    let text = text.replace("WASM", "Cargo.toml");
    parse(&beside, text.as_bytes()).unwrap()
}

const NOW: &str = "[iface.a]\n[iface.b]\n[handler.h]\nfile = 'WASM'\nallow = ['reply']\n\
                   [path.p]\niface = 'a'\nmatch = 'udp and dst port 1'\nhandler = 'h'\n\
                   [module.end]\nkind = 'sink'\ndown = 'udp.up'\n\
                   [path.q]\nfrom = 'eth:a'\nattrs = { pathname = 'udp/end', local = '10.0.0.1:2' }\n";

/// What is different if this part of [`NOW`] is that, step by step, then mistakes.
fn changed(from: &str, to: &str) -> Vec<String> {
    assert!(NOW.contains(from), "{from}");
    lines(&difference(
        &read(NOW),
        &read(&NOW.replace(from, to)),
        &Facts::default(),
    ))
}

fn lines(found: &Difference) -> Vec<String> {
    let steps = found.steps.iter().map(|step| {
        let keys: Vec<_> = step.keys.iter().map(|key| format!(" {key}")).collect();
        let (act, what) = (step.act.word(), step.what.word());
        format!("{act} {what} {}{}", step.name, keys.concat())
    });
    let mistakes = found.mistakes.iter();
    let mistakes = mistakes.map(|mistake| format!("{}: {}", mistake.line, mistake.message));
    steps.chain(mistakes).collect()
}

#[test]
fn each_change_of_a_file_is_a_step_or_a_mistake() {
    let cases: &[(&str, &str, &[&str])] = &[
        // Other places, an other order of words, what is the default: nothing.
        (
            "[iface.a]\n[iface.b]\n",
            "[iface.b]\n\n[iface.a]\nmode = 'auto'\n",
            &[],
        ),
        (
            "handler = 'h'\n",
            "budget = '50 us'\nhandler = 'h:on_rx'\n",
            &[],
        ),
        ("iface = 'a'", "iface = ['b', 'a']", &["reach path p iface"]),
        ("dst port 1", "dst port 3", &["change path p match"]),
        (
            "handler = 'h'\n",
            "handler = 'h:other'\non_fault = 'drop'\nfaults = 'off'\nbudget = '1 ms'\nshare = '5 %'\n",
            &["change path p handler on_fault faults budget share"],
        ),
        (
            "handler = 'h'\n",
            "handler = 'h'\ntier = 'user'\n",
            &["move path p tier"],
        ),
        (
            "handler = 'h'\n",
            "handler = 'h'\ntier = 'user'\nrate = '5/s'\n",
            &["change path p tier rate"],
        ),
        (
            "handler = 'h'\n",
            "handler = 'h'\norder = 'none'\n",
            &["change path p order"],
        ),
        ("[path.p]", "[path.r]", &["remove path p", "create path r"]),
        // The short form for the long one.
        (
            "handler = 'h'\n",
            "handler = 'h'\nlayer = 'ip'\n",
            &["change path p handler from"],
        ),
        (
            "local = '10.0.0.1:2'",
            "local = '10.0.0.1:4'",
            &["change path q local"],
        ),
        (
            "local = '10.0.0.1:2' }",
            "local = '10.0.0.1:2' }\ntier = 'user'",
            &["move path q tier"],
        ),
        ("from = 'eth:a'", "from = 'eth:b'", &["change path q from"]),
        (
            "['reply']",
            "['reply', 'send']",
            &["change handler h allow"],
        ),
        (
            "['reply']",
            "['reply']\nmemory = 'array'\nendpoint = 256",
            &["change handler h memory endpoint"],
        ),
        (
            "['reply']",
            "['reply']\ninstances = 'parallel'",
            &["change handler h instances"],
        ),
        (
            "['reply']",
            "['reply']\nparams = { n = 1 }",
            &["swap handler h params"],
        ),
        (
            "[path.p]",
            "[handler.g]\nfile = 'WASM'\n[domain.d]\nowns = 'udp'\n[path.p]",
            &["create domain d", "create handler g"],
        ),
        // Whoever runs the node has to be asked.
        ("[iface.b]\n", "", &["remove iface b"]),
        ("[iface.b]\n", "[iface.b]\n[iface.c]\n", &["create iface c"]),
        (
            "[iface.b]\n",
            "[iface.b]\nattach = 'tcx'\n",
            &["move iface b attach"],
        ),
        (
            "[iface.b]\n",
            "[iface.b]\nmode = 'packet'\n",
            &["2: interface `b` has `attach = \"auto\"`, not \"packet\""],
        ),
        (
            "[iface.b]\n",
            "[iface.b]\n[node]\nname = 'n'\nsocket = 's'\n",
            &[
                "0: the node is called `default`, and the file calls it `n`",
                "0: the file names another control socket",
            ],
        ),
    ];
    for (from, to, expected) in cases {
        assert_eq!(changed(from, to), *expected, "{from} -> {to}");
    }
    assert_eq!(
        difference(&read(NOW), &read(NOW), &Facts::default()).unchanged,
        3
    );
}

#[test]
fn another_file_is_a_swap_unless_the_handler_is_loaded_anew() {
    let facts = Facts {
        other_files: ["h".to_owned()].into(),
        ..Facts::default()
    };
    let found = difference(&read(NOW), &read(NOW), &facts);
    assert_eq!(lines(&found), ["swap handler h file"]);
    let anew = NOW.replace("'reply'", "");
    let found = difference(&read(NOW), &read(&anew), &facts);
    assert_eq!(lines(&found), ["change handler h allow"]);
    // Two cannot have one port at a time.
    let [now, next] = ["'reply'", "'reply', 'send'"]
        .map(|allow| read(&NOW.replace("['reply']", &format!("[{allow}]\nsend_port = 9"))));
    let found = difference(&now, &next, &Facts::default());
    let held = "3: handler `h` is to be loaded anew, and the one that runs holds port 9";
    assert_eq!(lines(&found), ["change handler h allow", held]);
}

/// A node on which `made` was loaded, and `bound` is bound to it and `more` to `h`, by hand.
fn by_hand() -> Config {
    let mut now = read(&format!("{NOW}[domain.d]\nowns = 'udp'\n"));
    let mut made = now.handlers[0].clone();
    (made.name, made.line) = ("made".to_owned(), 0);
    made.domain = Some("d".to_owned());
    now.handlers.push(made);
    for (name, handler) in [("bound", "made"), ("more", "h")] {
        let mut path = (*now.paths[0]).clone();
        (path.name, path.handler, path.line) = (name.to_owned(), handler.to_owned(), 0);
        now.paths.push(Arc::new(path));
    }
    now
}

/// What a file without any of it, but for the handler `h`, would do.
fn without() -> Vec<String> {
    let next = read(&format!("{NOW}[domain.d]\nowns = 'udp'\n"));
    let next = Config {
        handlers: Vec::new(),
        ..next
    };
    lines(&difference(&by_hand(), &next, &Facts::default()))
}

#[test]
fn a_plan_that_forgets_what_was_made_by_hand_is_noticed() {
    let right = without();
    let expected = "0: handler `h` is used by path `more`, which is in no file";
    assert_eq!(right.last().unwrap(), expected);
    for bug in [Bug::ByHandGoes, Bug::UsedGoes] {
        assert_ne!(bug::with(bug, without), right, "{bug:?}");
    }
}

#[test]
fn what_was_made_by_hand_stays_and_what_it_stands_on_too() {
    let facts = Facts {
        module_paths_by_hand: [("live".to_owned(), Some("d".to_owned()))].into(),
        ..Facts::default()
    };
    let with = |more: &str| read(&format!("{NOW}[domain.d]\nowns = 'udp'\n{more}"));
    let found = difference(&by_hand(), &with(""), &facts);
    let stay = ["handler made", "path bound", "path live", "path more"];
    let stay = stay.map(|what| format!("stay {what}"));
    assert_eq!(lines(&found), stay);
    assert_eq!(found.unchanged, 3);
    // The file has their names.
    let named = with(
        "[handler.made]\nfile = 'WASM'\n[path.bound]\niface = 'a'\nmatch = 'udp and dst port 7'\n\
         handler = 'h'\n[path.live]\niface = 'a'\nmatch = 'udp and dst port 8'\nhandler = 'h'\n",
    );
    let found = difference(&by_hand(), &named, &facts);
    let says: Vec<_> = found
        .mistakes
        .iter()
        .map(|it| (it.line, &*it.message, &*it.hint))
        .collect();
    let else_named = |verb: &str| format!("`ashway {verb}` first, or call this one else");
    assert_eq!(
        says,
        [
            (
                18,
                "handler `made` was loaded by hand",
                &*else_named("handler unload made")
            ),
            (
                20,
                "path `bound` was made by hand",
                &*else_named("unbind bound")
            ),
            (
                24,
                "path `live` was made by hand",
                &*else_named("path rm live")
            ),
        ]
    );
    // What they are bound to, and of whose domain they are.
    let nothing = read("[iface.a]\n[iface.b]\n");
    let found = difference(&by_hand(), &nothing, &facts);
    let says: Vec<_> = found.mistakes.iter().map(|it| &*it.message).collect();
    assert_eq!(
        says,
        [
            "cannot change domain `d`, to which belongs what is in no file: handler `made`, path `live`",
            "handler `h` is used by path `more`, which is in no file",
        ]
    );
}

#[test]
fn paths_follow_what_they_lead_through() {
    let mut found = difference(&read(NOW), &read(NOW), &Facts::default());
    found.modules(&["end".to_owned()], &["end".to_owned(), "more".to_owned()]);
    found.reroute("q", 13, Some("module `end` is another".to_owned()));
    assert_eq!(found.unchanged, 2);
    let says: Vec<_> = found.steps.iter().map(ToString::to_string).collect();
    assert_eq!(
        says,
        [
            "change module end: made anew, what it knows begins anew",
            "create module more",
            "change path q: module `end` is another; removed and created: in between its messages \
             are the host's",
        ]
    );
    // A path that changes anyway does so once; one that moves has to be made.
    let moved = NOW.replace("handler = 'h'\n", "handler = 'h'\ntier = 'user'\n");
    let mut found = difference(&read(NOW), &read(&moved), &Facts::default());
    found.reroute("p", 6, None);
    let [step] = &found.steps[..] else {
        panic!("{:?}", found.steps);
    };
    let says = "change path p: it leads another way; `tier`; removed and created";
    assert!(step.to_string().starts_with(says), "{step}");
    // What its section says may be the reason, and is named.
    let slower = NOW.replace("handler = 'h'\n", "handler = 'h'\nrate = '5/s'\n");
    let mut found = difference(&read(NOW), &read(&slower), &Facts::default());
    found.reroute("p", 6, None);
    let step = found.steps[0].to_string();
    assert!(step.starts_with("change path p: `rate`; removed"), "{step}");
    found.stays("p", "no XDP");
    let step = found.steps[0].to_string();
    assert!(
        step.starts_with("change path p: it stays in the user tier: no XDP; `rate`;"),
        "{step}"
    );
}
