//! A running node is brought to other configurations: what stays the same loses nothing,
//! what is wrong changes nothing.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use ashway_netns::node::{Config, at_rest, control, entry, run, text};
use ashway_netns::traffic::{Over, PLACES, Place, TIERS, path, stream};
use ashway_rig::{B4, Node, Rig, RigOptions, Signal, UdpClient, handler, skip_unless_root};
use serde_json::{Value, json};

/// What all configurations of these tests have.
fn base(place: Place) -> Config {
    let config = place.config().handler("counter").unwrap();
    path(config, "untouched", "counter", 7777, place, "")
}

/// A handler that greets, on a port, and a path of modules.
fn greets(config: Config, place: Place, greeting: &str, port: u16) -> Config {
    let config = config.handler("greets").unwrap();
    let config = config.text(&format!("params = {{ greeting = {greeting:?} }}"));
    let config = path(config, "greets", "greets", port, place, "");
    config.text(&format!(
        "[module.end]\nkind = 'sink'\ndown = 'udp.up'\n\
         [path.into]\nfrom = 'eth:b0'\nattrs = {{ pathname = 'udp/end', local = '{B4}:{}' }}",
        port + 1000
    ))
}

/// Who answers what, at which port.
type Answer = Option<(u16, &'static str)>;

/// The configurations that the tests lead a node through: who is asked at which port for
/// what, and how many steps lead there from the one before.
fn steps(place: Place) -> [(Config, Answer, usize); 4] {
    let echo = base(place).handler("echo").unwrap();
    let echo = path(echo, "echo", "echo", 7026, place, "");
    [
        // Load, create, the module, and the path of modules.
        (
            greets(base(place), place, "one", 7024),
            Some((7024, "one")),
            4,
        ),
        // A swap, and two paths that change.
        (
            greets(base(place), place, "two", 7025),
            Some((7025, "two")),
            3,
        ),
        // All four go, two come.
        (echo, Some((7026, "?")), 6),
        (base(place), None, 2),
    ]
}

fn write(node: &Node, config: &Config) {
    fs::write(node.config(), String::from(config.clone())).unwrap();
}

fn ask(node: &Node, verb: &str) -> Result<Value, Value> {
    control(node, &json!({ "request": verb, "file": node.config() }))
}

/// Loads and binds a handler by hand.
fn by_hand(node: &Node, tier: &str) {
    let load = json!({
        "request": "load", "file": handler("echo").unwrap(), "name": "hand", "allow": ["reply"],
    });
    control(node, &load).unwrap();
    let bind = json!({
        "request": "bind", "handler": "hand", "iface": ["b0"], "tier": tier,
        "match": "udp and dst port 7500",
    });
    control(node, &bind).unwrap();
}

fn texts(answer: &Value) -> Vec<String> {
    let steps = answer["steps"].as_array().unwrap();
    steps
        .iter()
        .map(|step| step["text"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn what_stays_the_same_loses_nothing_while_others_come_change_and_go() {
    if skip_unless_root() {
        return;
    }
    for place in [PLACES[0], PLACES[1], PLACES[4]] {
        let rig = Rig::new("apply", RigOptions::default()).unwrap();
        let node = rig.node(base(place)).start().unwrap();
        by_hand(&node, place.tier);
        let over = AtomicBool::new(false);
        let asked = std::thread::scope(|scope| {
            let _over = Over(&over);
            let traffic = scope.spawn(|| {
                let client = rig.client_a(7777).unwrap();
                let mut asked = 0;
                while !over.load(Ordering::Acquire) {
                    asked += 1;
                    // In turn, so that a lost one would be missed at once.
                    assert_eq!(client.ask_number(1).unwrap(), asked, "{place}");
                }
                asked
            });
            for round in 0..10 {
                for (config, answers, count) in steps(place) {
                    assert!(!traffic.is_finished(), "{place}: a message was lost");
                    write(&node, &config);
                    let planned = ask(&node, "plan").unwrap();
                    let applied = ask(&node, "apply").unwrap();
                    assert_eq!(texts(&planned), texts(&applied), "{place}");
                    let changes = texts(&applied);
                    let by_hand = changes.iter().filter(|it| it.starts_with("stay"));
                    assert_eq!(by_hand.count(), 2, "{place}: {changes:#?}");
                    assert_eq!(changes.len(), count + 2, "{place}, {round}: {changes:#?}");
                    if let Some((port, answer)) = answers {
                        let client = rig.client_a(port).unwrap();
                        assert_eq!(client.ask(b"?").unwrap(), answer.as_bytes(), "{place}");
                    }
                }
            }
            over.store(true, Ordering::Release);
            traffic.join().unwrap()
        });
        assert_eq!(rig.client_a(7500).unwrap().ask(b"still").unwrap(), b"still");
        let status = at_rest(&node);
        let untouched = entry(&status, "paths", "untouched");
        assert_eq!(untouched["received"], asked, "{place}: {untouched:#}");
        assert_eq!(
            untouched["fates"]["answered"], asked,
            "{place}: {untouched:#}"
        );
        assert_eq!(untouched["tier"], place.tier, "{place}: {untouched:#}");
        println!("{place}: {asked} asked while the node was brought to 40 files, none lost");
        node.stop().unwrap();
    }
}

/// A handler of the file gets a second path, and loses it again, while the first has traffic.
#[test]
fn a_handler_gets_a_second_path_while_the_first_has_traffic() {
    if skip_unless_root() {
        return;
    }
    for place in PLACES {
        let rig = Rig::new("apply-second", RigOptions::default()).unwrap();
        let node = rig.node(base(place)).start().unwrap();
        let two = path(base(place), "second", "counter", 7778, place, "");
        let over = AtomicBool::new(false);
        let (mut ours, mut theirs) = (0, 0);
        std::thread::scope(|scope| {
            let _over = Over(&over);
            let traffic = scope.spawn(|| {
                let (client, mut sum, mut asked) = (rig.client_a(7777).unwrap(), 0, 0);
                while !over.load(Ordering::Acquire) {
                    asked += 1;
                    // The other path counts in the same memory.
                    let more = client.ask_number(1).unwrap();
                    assert!(more > sum, "{place}: {more} behind {sum}");
                    sum = more;
                }
                asked
            });
            let second = rig.client_a(7778).unwrap();
            for _ in 0..5 {
                write(&node, &two);
                assert_eq!(texts(&ask(&node, "apply").unwrap()).len(), 1, "{place}");
                let status = node.status().unwrap();
                let tier = &entry(&status, "paths", "second")["tier"];
                assert_eq!(tier, place.tier, "{status:#}");
                for _ in 0..20 {
                    ours += 1;
                    second.ask_number(1).unwrap();
                }
                write(&node, &base(place));
                assert_eq!(texts(&ask(&node, "apply").unwrap()).len(), 1, "{place}");
            }
            over.store(true, Ordering::Release);
            theirs = traffic.join().unwrap();
        });
        // Nothing of either was lost, and both had one memory.
        let sum = rig.client_a(7777).unwrap().ask_number(1).unwrap();
        assert_eq!(sum, ours + theirs + 1, "{place}");
        println!("{place}: {theirs} asked beside {ours} of a path that came and went");
        node.stop().unwrap();
    }
}

/// What is in a ledger: answered by each version, out of place, and since the last swap.
fn look(client: &UdpClient) -> [u32; 4] {
    let answer = client.ask(&[0; 16]).unwrap();
    let (words, _) = answer.as_chunks::<4>();
    let words: Vec<u32> = words.iter().map(|word| u32::from_be_bytes(*word)).collect();
    words.try_into().unwrap()
}

/// A version may refuse to take over when everything has been tried: then those that
/// have taken over before go back.
#[test]
fn of_swaps_all_take_over_or_none() {
    if skip_unless_root() {
        return;
    }
    for place in TIERS {
        let rig = Rig::new("swaps", RigOptions::default()).unwrap();
        let two = |files: [&str; 2]| {
            let mut config = place.config();
            for (name, port, file) in [("a", 7777, files[0]), ("b", 7778, files[1])] {
                config = config.handler_file(name, &handler(file).unwrap());
                config = path(config, name, name, port, place, "");
            }
            config
        };
        let node = rig.node(two(["ledger", "ledger"])).start().unwrap();
        let client = rig.client_a(7777).unwrap();
        let _ = stream(&client, 1, 10, 4);
        write(&node, &two(["ledger_2", "ledger_traps"]));
        let refused = ask(&node, "apply").unwrap_err();
        let said = refused["message"].as_str().unwrap();
        assert!(said.starts_with("handler `b`: "), "{refused:#}");
        assert!(!said.contains("stays swapped"), "{refused:#}");
        // The version that begins again counts anew what is not declared to stay.
        assert_eq!(look(&client), [10, 0, 0, 1], "{place}");
        let status = at_rest(&node);
        for name in ["a", "b"] {
            assert_eq!(
                entry(&status, "paths", name)["tier"],
                place.tier,
                "{status:#}"
            );
            let file = entry(&status, "handlers", name)["file"].to_string();
            assert!(file.ends_with("ledger.wasm\""), "{file}");
        }
        // Nothing was done, so that all is still to do.
        write(&node, &two(["ledger_2", "ledger"]));
        assert_eq!(texts(&ask(&node, "apply").unwrap()).len(), 1, "{place}");
        node.stop().unwrap();
    }
}

/// A swap by a file keeps the state; what a plan says changes nothing.
#[test]
fn a_plan_changes_nothing_and_a_swap_keeps_the_state() {
    if skip_unless_root() {
        return;
    }
    for place in TIERS {
        let rig = Rig::new("plan", RigOptions::default()).unwrap();
        let ledger = |file: &str| {
            let file = handler(file).unwrap();
            path(
                place.config().handler_file("ledger", &file),
                "flow",
                "ledger",
                7777,
                place,
                "",
            )
        };
        let node = rig.node(ledger("ledger")).start().unwrap();
        let client = rig.client_a(7777).unwrap();
        let _ = stream(&client, 1, 10, 4);
        assert_eq!(look(&client), [10, 0, 0, 11], "{place}");
        write(&node, &ledger("ledger_2"));
        let planned = run(&mut node.command(["plan", node.config().to_str().unwrap()]));
        assert!(planned.status.success(), "{}", text(&planned));
        let expected = "1 change planned, 1 unchanged\n  swap   handler ledger: `file`; the next \
                        version takes over the state that it declares\n";
        assert_eq!(text(&planned), expected);
        let versions = |node: &Node| {
            let status = node.status().unwrap();
            entry(&status, "handlers", "ledger")["former"]
                .as_array()
                .unwrap()
                .len()
        };
        assert_eq!(versions(&node), 0);
        let applied = run(&mut node.command(["apply", node.config().to_str().unwrap()]));
        assert!(applied.status.success(), "{}", text(&applied));
        assert!(
            text(&applied).starts_with("1 change applied"),
            "{}",
            text(&applied)
        );
        assert_eq!(versions(&node), 1);
        let status = node.status().unwrap();
        assert_eq!(
            entry(&status, "paths", "flow")["tier"],
            place.tier,
            "{status:#}"
        );
        let _ = stream(&client, 2, 5, 4);
        assert_eq!(look(&client), [10, 5, 0, 6], "{place}");
        // Once more: nothing is left to do.
        let again = ask(&node, "apply").unwrap();
        assert_eq!((texts(&again).len(), &again["unchanged"]), (0, &json!(2)));
        node.stop().unwrap();
    }
}

#[test]
fn a_file_with_mistakes_changes_nothing_and_each_is_named_with_its_line() {
    if skip_unless_root() {
        return;
    }
    let place = TIERS[0];
    let rig = Rig::new("mistakes", RigOptions::default()).unwrap();
    let node = rig.node(base(place)).start().unwrap();
    by_hand(&node, place.tier);
    let before = at_rest(&node);

    let broken = node.config().with_file_name("broken.wasm");
    let whole = fs::read(handler("counter").unwrap()).unwrap();
    fs::write(&broken, &whole[..whole.len() / 2]).unwrap();
    let wrong = [
        ("[iface.b0]", "`attach` is another, and so is "),
        ("mode = 'generic'", ""),
        ("[iface.b7]", "there is no interface `b7`"),
        ("[handler.hand]", "handler `hand` was loaded by hand"),
        (&format!("file = {:?}", handler("echo").unwrap()), ""),
        ("[handler.broken]", "broken.wasm"),
        (&format!("file = {broken:?}"), ""),
        (
            "[path.mine]",
            "paths `hand`, in no file, and `mine` cannot be told apart",
        ),
        ("iface = 'b0'", ""),
        ("match = 'udp and dst port 7500'", ""),
        ("handler = 'broken'", ""),
    ];
    let lines = wrong.map(|(line, _)| line).join("\n");
    fs::write(node.config(), lines).unwrap();
    for verb in ["plan", "apply"] {
        let refused = ask(&node, verb).unwrap_err();
        assert_eq!(refused["code"], "usage", "{refused:#}");
        let errors = refused["errors"].as_array().unwrap();
        for (line, (_, says)) in (1..).zip(wrong) {
            let said = |error: &&Value| {
                error["line"] == line && error["message"].as_str().unwrap().contains(says)
            };
            assert!(
                says.is_empty() || errors.iter().any(|it| said(&it)),
                "{line}: {refused:#}"
            );
        }
        let output = run(&mut node.command([verb, node.config().to_str().unwrap()]));
        assert_eq!(output.status.code(), Some(2), "{}", text(&output));
        assert!(
            text(&output).contains("nothing has changed"),
            "{}",
            text(&output)
        );
    }
    // What only the world refuses, at its line; and what a path by hand stands on.
    let file = "[iface.b0]\nmode = 'native'\n[module.ear]\nkind = 'tap'\ndown = 'udp.up'\n\
                file = '/nowhere/ear.pcapng'\n";
    fs::write(node.config(), file).unwrap();
    let refused = ask(&node, "apply").unwrap_err();
    assert_eq!(refused["errors"][0]["line"], 3, "{refused:#}");
    // A file that is none.
    fs::write(node.config(), "[iface.b0\n[path").unwrap();
    let refused = ask(&node, "apply").unwrap_err();
    assert_eq!(refused["errors"][0]["line"], 1, "{refused:#}");
    let missing = control(
        &node,
        &json!({ "request": "apply", "file": "/nowhere.toml" }),
    );
    assert_eq!(missing.unwrap_err()["code"], "usage");

    let after = at_rest(&node);
    for list in ["handlers", "paths"] {
        assert_eq!(before[list], after[list]);
    }
    assert_eq!(rig.client_a(7777).unwrap().ask_number(1).unwrap(), 1);
    node.stop().unwrap();
}

/// A file that somebody has is not lost to a question.
#[test]
fn a_plan_and_a_refused_file_begin_no_file_of_a_tap() {
    if skip_unless_root() {
        return;
    }
    let place = TIERS[0];
    let rig = Rig::new("ear", RigOptions::default()).unwrap();
    let node = rig.node(base(place)).start().unwrap();
    let [old, new] = ["old", "new"].map(|name| node.config().with_file_name(name));
    fs::write(&old, "of somebody").unwrap();
    let taps = |path: &str| {
        let tap = |name: &str, file: &Path| {
            format!("[module.{name}]\nkind = 'tap'\ndown = 'udp.up'\nfile = {file:?}\n")
        };
        let ears = tap("ear", &old) + &tap("eye", &new);
        base(place).text(&format!("{ears}{path}"))
    };
    let begun = || (fs::read(&old).unwrap() != b"of somebody", new.exists());
    write(&node, &taps(""));
    ask(&node, "plan").unwrap();
    assert_eq!(begun(), (false, false));
    write(&node, &taps("[path.wrong]\nfrom = 'eth:nowhere'\n"));
    ask(&node, "apply").unwrap_err();
    assert_eq!(begun(), (false, false));
    assert_eq!(node.status().unwrap()["taps"], json!([]));
    write(&node, &taps(""));
    ask(&node, "apply").unwrap();
    assert_eq!(begun(), (true, true));
    assert_eq!(node.status().unwrap()["taps"].as_array().unwrap().len(), 2);
    node.stop().unwrap();
}

#[test]
fn what_was_bound_by_hand_keeps_its_handler() {
    if skip_unless_root() {
        return;
    }
    let place = TIERS[0];
    let rig = Rig::new("byhand", RigOptions::default()).unwrap();
    // A handler without a path has room for those that come.
    let node = rig
        .node(place.config().handler("echo").unwrap())
        .start()
        .unwrap();
    let bind = json!({
        "request": "bind", "handler": "echo", "path": "mine", "iface": ["b0"], "tier": "user",
        "match": "udp and dst port 7500",
    });
    control(&node, &bind).unwrap();
    write(&node, &place.config());
    let refused = ask(&node, "apply").unwrap_err();
    let said = refused["errors"][0]["message"].as_str().unwrap();
    assert_eq!(
        said,
        "handler `echo` is used by path `mine`, which is in no file"
    );
    assert_eq!(refused["errors"][0]["hint"], "`ashway unbind mine` first");
    assert_eq!(rig.client_a(7500).unwrap().ask(b"still").unwrap(), b"still");
    control(&node, &json!({ "request": "unbind", "path": "mine" })).unwrap();
    let applied = ask(&node, "apply").unwrap();
    assert_eq!(
        texts(&applied),
        ["remove handler echo: unloaded; its memory ends"]
    );
    node.stop().unwrap();
}

/// Paths follow the modules and handlers that they lead through, and no others do.
#[test]
fn what_a_path_leads_through_takes_it_along() {
    if skip_unless_root() {
        return;
    }
    let place = TIERS[0];
    let rig = Rig::new("through", RigOptions::default()).unwrap();
    let file = |look: &str, down: &str, allow: &str| {
        let (counter, echo) = (handler("counter").unwrap(), handler("echo").unwrap());
        let config = place.config().text(&format!(
            "[handler.counter]\nfile = {counter:?}\nallow = ['reply'{allow}]\n\
             [handler.echo]\nfile = {echo:?}\nallow = ['reply']\n\
             [module.look]\nkind = 'tap'\nlayer = 'payload'\ndown = 'udp.up'\nfile = '{look}'\n\
             [module.end]\nkind = 'sink'\ndown = 'udp.up'\n\
             [module.app]\nkind = 'handler'\nhandler = 'counter'\ndown = '{down}'"
        ));
        let config = path(config, "counter", "counter", 7777, place, "");
        path(config, "echo", "echo", 7026, place, "")
    };
    let node = rig.node(file("one.pcapng", "look.up", "")).start().unwrap();
    let counter = rig.client_a(7777).unwrap();
    assert_eq!(counter.ask_number(1).unwrap(), 1);
    let create = json!({
        "request": "create", "module": "eth:b0", "name": "mine",
        "attrs": { "pathname": "udp/end", "local": format!("{B4}:9400") },
    });
    control(&node, &create).unwrap();
    let goes = "removed and created: in between its messages are the host's";
    let look = "change module look: made anew, what it knows begins anew".to_owned();
    let along = |because: &str| format!("change path counter: {because}; {goes}");
    let stay = "stay   path mine: it is in no file".to_owned();
    // Another file of the tap, another way, other grants: the echo is never touched.
    write(&node, &file("two.pcapng", "look.up", ""));
    let applied = texts(&ask(&node, "apply").unwrap());
    assert_eq!(
        applied,
        [look, along("module `look` is another"), stay.clone()]
    );
    assert_eq!(counter.ask_number(1).unwrap(), 2);
    write(&node, &file("two.pcapng", "udp.up", ""));
    let applied = texts(&ask(&node, "apply").unwrap());
    assert_eq!(applied, [along("it leads another way"), stay.clone()]);
    assert_eq!(counter.ask_number(1).unwrap(), 3);
    write(&node, &file("two.pcapng", "udp.up", ", 'time'"));
    let applied = texts(&ask(&node, "apply").unwrap());
    let anew = "change handler counter: `allow`; loaded anew, its memory begins anew";
    assert_eq!(applied[0], anew);
    assert_eq!(
        applied[applied.len() - 2],
        along("handler `counter` is another")
    );
    assert_eq!(counter.ask_number(1).unwrap(), 1);
    assert_eq!(rig.client_a(7026).unwrap().ask(b"?").unwrap(), b"?");
    let status = at_rest(&node);
    assert_eq!(entry(&status, "paths", "echo")["received"], 1);
    // What a path by hand leads through cannot go.
    write(&node, &place.config());
    let refused = ask(&node, "apply").unwrap_err();
    let said = refused["errors"][0]["message"].as_str().unwrap();
    assert_eq!(
        said,
        "path `mine`, in no file, leads through module `end`, which goes"
    );
    control(&node, &json!({ "request": "remove", "path": "mine" })).unwrap();
    ask(&node, "apply").unwrap();
    let status = at_rest(&node);
    assert_eq!(
        (&status["handlers"], &status["paths"]),
        (&json!([]), &json!([]))
    );
    node.stop().unwrap();
}

#[test]
fn sighup_does_what_apply_does_and_says_what_came_of_it() {
    if skip_unless_root() {
        return;
    }
    let place = TIERS[1];
    let rig = Rig::new("hup", RigOptions::default()).unwrap();
    let node = rig.node(base(place)).start().unwrap();
    write(&node, &greets(base(place), place, "hello", 7024));
    node.signal(Signal::HUP).unwrap();
    node.wait_for_line(|line| line.starts_with("applied"))
        .unwrap();
    assert_eq!(rig.client_a(7024).unwrap().ask(b"?").unwrap(), b"hello");
    fs::write(node.config(), "[iface.b0]\nmood = 'auto'\n").unwrap();
    node.signal(Signal::HUP).unwrap();
    node.wait_for_line(|line| line.starts_with("not applied: 1 mistake"))
        .unwrap();
    node.wait_for_line(|line| line.contains("line 2: `iface.b0` has no key `mood`"))
        .unwrap();
    assert_eq!(rig.client_a(7024).unwrap().ask(b"?").unwrap(), b"hello");
    assert_eq!(rig.client_a(7777).unwrap().ask_number(1).unwrap(), 1);
    node.stop().unwrap();
}
