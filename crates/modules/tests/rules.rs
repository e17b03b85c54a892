//! Rules change what a path costs and nothing else.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod corpora;

use std::net::SocketAddr;

use ashway_abi::Count;
use ashway_modules::rules::{
    ENTRY, INJECT_BACKWARD, INJECT_FORWARD, MERGE_LENGTH_CHECKS, NO_FRAGMENTATION, RULES,
};
use ashway_modules::{Flow, Message, eth, fragment, ip};
use ashway_path::attrs::{Attrs, names};
use ashway_path::path::{Exit, Limits, Path};
use ashway_path::rules::{self, NotTransformed, Rule};
use ashway_path::sim::Single;
use ashway_path::stage::{Direction, Stage};
use ashway_path::time::Time;
use ashway_wire::Datagram;
use corpora::*;

fn names_of(path: &Path<Message>) -> Vec<&str> {
    path.stages().map(Stage::name).collect()
}

/// Sends the same messages along both paths, in at either end, and compares
/// everything that comes out: bytes, what is known of them, fates, accounts.
fn same(
    with: &mut Single<Message>,
    without: &mut Single<Message>,
    inbound: Direction,
    frames: &[Vec<u8>],
) {
    for frame in frames {
        let message = Message::of_frame(frame);
        let expected = send(without, inbound, message.clone());
        assert_eq!(send(with, inbound, message), expected, "{frame:02x?}");
    }
    let fates = |path: &Path<Message>| path.account().fates().collect::<Vec<_>>();
    assert_eq!(fates(with), fates(without));
    assert_eq!(with.account().left, without.account().left);
}

fn every_frame() -> Vec<Vec<u8>> {
    let mut frames = good();
    frames.extend(bad());
    frames
}

fn ends(of: (&str, &str)) -> Attrs {
    let mut attrs = Attrs::new();
    attrs.set(names::LOCAL, of.1.parse::<SocketAddr>().unwrap());
    attrs.set(names::REMOTE, of.0.parse::<SocketAddr>().unwrap());
    attrs.set(eth::NEXT_MAC, "02:00:00:00:00:01");
    attrs
}

#[test]
fn merged_length_checks_judge_the_same() {
    let frames = every_frame();
    let mut hops = Attrs::new();
    hops.set(ip::HOPS, 9);
    let mut tagged = ends(V6);
    tagged.set(eth::VLAN, 5);
    for top in [
        Top::Echo,
        Top::On,
        Top::Resize(3),
        Top::Resize(300),
        Top::Anew,
    ] {
        for from_top in [true, false] {
            for attrs in [Attrs::new(), hops.clone(), ends(V4), tagged.clone()] {
                let recipe = Recipe {
                    from_top,
                    attrs,
                    ..Recipe::new(top)
                };
                let merged = Recipe {
                    rules: &[MERGE_LENGTH_CHECKS],
                    attrs: recipe.attrs.clone(),
                    ..Recipe::new(top)
                };
                let merged = Recipe { from_top, ..merged };
                let (mut with, mut without) = (merged.path(), recipe.path());
                let expected = if from_top {
                    ["top", "datagram"]
                } else {
                    ["datagram", "top"]
                };
                assert_eq!(names_of(&with), expected);
                assert_eq!(without.len(), 4);
                assert_eq!(eth::filter(&with), eth::filter(&without));
                // All of them once; a part for the other combinations.
                let step = if top == Top::Echo && from_top { 1 } else { 101 };
                let part: Vec<_> = frames.iter().step_by(step).cloned().collect();
                same(&mut with, &mut without, recipe.inbound(), &part);
            }
        }
    }
}

#[test]
fn merged_stages_originate_the_same() {
    for of in [V4, V6] {
        let recipe = Recipe {
            attrs: ends(of),
            ..Recipe::new(Top::On)
        };
        let merged = Recipe {
            attrs: ends(of),
            rules: &[MERGE_LENGTH_CHECKS],
            ..Recipe::new(Top::On)
        };
        let (mut with, mut without) = (merged.path(), recipe.path());
        for len in [0, 1, 1000, 65_530] {
            let message = Message::of_frame(&payload(len));
            let expected = send(&mut without, Direction::Forward, message.clone());
            assert_eq!(send(&mut with, Direction::Forward, message), expected);
        }
    }
}

/// A guard that would be true of other stages would merge what is not there.
#[test]
fn only_neighbours_are_merged() {
    let recipe = Recipe {
        fragment: true,
        rules: &[MERGE_LENGTH_CHECKS],
        ..Recipe::new(Top::Echo)
    };
    assert_eq!(
        names_of(&recipe.path()),
        ["top", "udp", "ip", "frag", "wire"]
    );
}

fn with_longest(longest: Option<u64>, reassemble: u64) -> Attrs {
    let mut attrs = ends(V4);
    attrs.set(fragment::REASSEMBLE, reassemble);
    if let Some(longest) = longest {
        attrs.set(fragment::LONGEST, longest);
    }
    attrs
}

#[test]
fn fragmentation_is_left_out_only_where_it_is_impossible() {
    let left = |attrs: Attrs, mtu: u32| {
        let recipe = Recipe {
            fragment: true,
            mtu,
            attrs,
            rules: &[NO_FRAGMENTATION],
            ..Recipe::new(Top::Echo)
        };
        recipe.path().len()
    };
    assert_eq!(left(with_longest(None, 0), 1500), 5);
    assert_eq!(left(with_longest(Some(1501), 0), 1500), 5);
    assert_eq!(left(with_longest(Some(1500), 0), 1500), 4);
    assert_eq!(left(with_longest(Some(1500), 0), 1400), 5);
    assert_eq!(left(with_longest(Some(100), 1), 1500), 5);
    // The path that only reassembles stays what it is.
    let recipe = Recipe {
        fragment: true,
        attrs: with_longest(Some(100), 0),
        rules: &RULES,
        ..Recipe::new(Top::Echo)
    };
    assert_eq!(names_of(&recipe.path_from("frag")), ["frag", "wire"]);
}

#[test]
fn without_fragmentation_nothing_changes() {
    // Everything that the frames and their answers carry fits.
    let attrs = || with_longest(Some(1500), 0);
    for top in [Top::Echo, Top::Resize(200)] {
        let without = Recipe {
            fragment: true,
            attrs: attrs(),
            ..Recipe::new(top)
        };
        let with = Recipe {
            fragment: true,
            attrs: attrs(),
            rules: &RULES,
            ..Recipe::new(top)
        };
        let (mut with, mut without) = (with.path(), without.path());
        assert_eq!(names_of(&with), ["top", "datagram"]);
        let frames: Vec<_> = every_frame().into_iter().step_by(7).collect();
        same(&mut with, &mut without, Direction::Backward, &frames);
    }
}

/// What the entry program hands over: the message, entered.
fn entered(frame: &[u8]) -> Option<Message> {
    let datagram = Datagram::parse(frame).ok()?;
    let found = datagram.validate(frame).ok()?;
    let mut message = Message::of_frame(frame);
    let flow = Flow {
        source: datagram.source,
        destination: datagram.destination,
    };
    let starts = [datagram.ip_off, datagram.udp_off, found.payload_off];
    let end = found.payload_off + found.payload_len;
    assert!(message.enter(starts, end, flow, found.flags));
    message.meta.iface = 3;
    Some(message)
}

#[test]
fn behind_the_entry_program_the_rest_of_the_path_does_the_same() {
    for (from_top, rules) in [
        (true, &[ENTRY][..]),
        (false, &[ENTRY]),
        (true, &RULES),
        (false, &RULES),
    ] {
        let marked = Recipe {
            from_top,
            rules,
            ..Recipe::new(Top::Echo)
        };
        let plain = Recipe {
            from_top,
            ..Recipe::new(Top::Echo)
        };
        let (mut with, mut without) = (marked.path(), plain.path());
        let (mine, other) = if from_top {
            (INJECT_BACKWARD, INJECT_FORWARD)
        } else {
            (INJECT_FORWARD, INJECT_BACKWARD)
        };
        let at = usize::try_from(with.attrs().number(mine).unwrap()).unwrap();
        assert_eq!(with.attrs().value(other), None);
        assert_eq!(names_of(&with)[at], "top");
        for frame in good() {
            let expected = send(&mut without, plain.inbound(), Message::of_frame(&frame));
            let message = entered(&frame).unwrap();
            let got = with.inject(at, plain.inbound(), message, Time(0));
            settled(&with);
            assert_eq!(got, expected, "{frame:02x?}");
        }
        assert_eq!(
            with.account().fate(Count::Answered),
            without.account().fate(Count::Answered)
        );
    }
}

#[test]
fn only_a_path_at_an_interface_with_xdp_is_entered() {
    let recipe = Recipe {
        xdp: false,
        rules: &RULES,
        ..Recipe::new(Top::Echo)
    };
    let path = recipe.path();
    assert_eq!(path.attrs().value(INJECT_BACKWARD), None);
    assert_eq!(path.attrs().value(INJECT_FORWARD), None);
    // What only fragments is no obstacle. What reassembles is to have packets, and what
    // stands on IP alone is not to have what UDP carries: those begin at the link.
    for (reassemble, stage) in [(0, Some(0)), (1, None)] {
        let attrs = with_longest(None, reassemble);
        let recipe = Recipe {
            fragment: true,
            attrs,
            rules: &RULES,
            ..Recipe::new(Top::Echo)
        };
        assert_eq!(recipe.path().attrs().number(INJECT_BACKWARD), stage);
    }
}

/// Each rule has its guard, so the whole set comes to an end on every path,
/// whatever the order, and a second time there is nothing to do.
#[test]
fn the_whole_set_comes_to_an_end() {
    let mut paths = 0;
    for start in ["top", "udp", "ip", "frag", "wire"] {
        for fragment in [true, false] {
            for longest in [None, Some(1000), Some(9000)] {
                for reassemble in [0, 1] {
                    for turn in 0..RULES.len() {
                        let attrs = with_longest(longest, reassemble);
                        let recipe = Recipe {
                            fragment,
                            attrs,
                            ..Recipe::new(Top::Echo)
                        };
                        if start == "frag" && !fragment {
                            continue;
                        }
                        let mut path = recipe.path_from(start);
                        let mut rules: Vec<Rule<Message>> = Vec::new();
                        for at in 0..RULES.len() {
                            let Rule {
                                name,
                                about,
                                guard,
                                rewrite,
                            } = RULES[(at + turn) % RULES.len()];
                            rules.push(Rule {
                                name,
                                about,
                                guard,
                                rewrite,
                            });
                        }
                        rules::apply(&rules, &mut path).unwrap();
                        assert_eq!(rules::apply(&rules, &mut path), Ok(Vec::new()));
                        paths += 1;
                    }
                }
            }
        }
    }
    assert!(paths > 200);
    // And a set that does not is found out.
    let undo = Rule {
        name: "undo",
        about: "takes the mark away again",
        guard: |path: &Path<Message>| path.attrs().number(INJECT_BACKWARD).map(|_| 0..1),
        rewrite: |path, _| {
            path.attrs_mut().remove(INJECT_BACKWARD);
            Ok(())
        },
    };
    let mut path = Recipe::new(Top::Echo).path();
    let endless = rules::apply(&[ENTRY, undo], &mut path).unwrap_err();
    assert!(matches!(endless, NotTransformed::Endless { rules, .. } if rules == ["entry", "undo"]));
}

/// SCT-9: the creation's log says what was rewritten.
#[test]
fn the_log_of_a_creation_names_the_rules() {
    let recipe = Recipe {
        fragment: true,
        attrs: with_longest(Some(1500), 0),
        ..Recipe::new(Top::Echo)
    };
    let created = recipe
        .graph()
        .create("p", "top", recipe.attrs.clone(), Limits::default(), &RULES)
        .unwrap();
    let log = created.log.to_string();
    for line in [
        "no-fragmentation",
        "frag; 5 stages -> 4",
        "merge-length-checks",
        "udp ip wire; 4 stages -> 2",
        "inject_backward - -> 0",
    ] {
        assert!(log.contains(line), "`{line}` in {log}");
    }
    let mut path = Single::new(created.path);
    let exits = send(
        &mut path,
        Direction::Backward,
        Message::of_frame(&frame(V4, b"abcd")),
    );
    assert!(
        matches!(exits[..], [Exit::Left { turned: true, .. }]),
        "{exits:?}"
    );
}
