//! Interfaces by pattern.

use super::*;

/// Two patterns and a name; a path on the wider pattern and the name, one on the other.
const BOTH: &str = "[iface.eth7]\nattach = 'packet'\n[iface.'eth*']\n[iface.'eth[0-9]*']\n\
                    [handler.h]\nfile = 'Cargo.toml'\n\
                    [path.p]\niface = ['eth*', 'eth7']\nmatch = 'udp'\nhandler = 'h'\n\
                    [path.q]\niface = 'eth[0-9]*'\nmatch = 'udp'\nhandler = 'h'\n";

#[test]
fn a_name_comes_before_a_pattern_and_a_longer_literal_before_a_shorter() {
    let config = read(BOTH).unwrap();
    let config = config.resolve(["lo", "eth7", "eth1", "ethx", "eth"]);
    let ifaces = config.ifaces.iter();
    let ifaces: Vec<_> = ifaces
        .map(|it| (&*it.name, it.pattern.as_deref()))
        .collect();
    assert_eq!(
        ifaces,
        [
            ("eth7", None),
            // Both have three letters of their own; the texts decide.
            ("eth1", Some("eth*")),
            ("ethx", Some("eth*")),
            ("eth", Some("eth*")),
        ]
    );
    assert_eq!(config.paths[0].ifaces, ["eth7", "eth1", "ethx", "eth"]);
    assert_eq!(config.paths[0].patterns, ["eth*"]);
    assert!(config.paths[1].ifaces.is_empty());
    assert_eq!(config.paths[1].patterns, ["eth[0-9]*"]);
    let texts: Vec<_> = config.patterns.iter().map(|it| it.glob.text()).collect();
    assert_eq!(texts, ["eth*", "eth[0-9]*"]);
    assert_eq!(config.matching("eth7"), None, "it has a section");
    assert_eq!(config.matching("wlan0"), None);
    let found = config.matching("eth12").unwrap();
    assert_eq!((&*found.name, found.attach), ("eth12", Attach::Auto));
    // What is resolved can be resolved once more.
    let more = config.resolve(["eth3"]);
    assert_eq!(more.paths[0].ifaces.len(), 5);
    assert_eq!(more.patterns.len(), 2);
}

#[test]
fn patterns_that_mean_the_same_are_said_with_both_places() {
    let refused = read("[iface.'veth**']\n[iface.eth0]\n[iface.'veth*']\n").unwrap_err();
    let [one] = refused.list() else {
        panic!("{refused}");
    };
    assert_eq!(one.message, "`veth**` and `veth*` match the same names");
    assert!(one.span.is_some() && one.also.is_some());
    let text = refused.to_string();
    for line in ["1 | [iface.'veth**']", "3 | [iface.'veth*']"] {
        assert!(text.contains(line), "{text}");
    }
}

#[test]
fn what_a_pattern_cannot_be_is_refused() {
    for (text, code) in [
        ("[iface.'veth[']\n", "bad_name"),
        ("[iface.'veth[9-0]']\n", "bad_name"),
        ("[iface.'veth*']\nattach = 'nowhere'\n", "bad_value"),
        (
            "[iface.'v*']\n[module.wire]\nkind = 'eth'\niface = 'v*'\nup = 'ip.down'\n",
            "not_supported",
        ),
        (
            "[iface.'v*']\n[module.end]\nkind = 'sink'\ndown = 'udp.up'\n\
             [handler.h]\nfile = 'Cargo.toml'\n[path.p]\nfrom = 'eth:v*'\n\
             attrs = { pathname = 'udp/end', local = '10.0.0.1:2' }\n",
            "not_supported",
        ),
        (
            "[iface.'v*']\n[handler.h]\nfile = 'Cargo.toml'\n[path.p]\niface = 'v*'\n\
             match = 'udp'\nlayer = 'eth'\nhandler = 'h'\n",
            "not_supported",
        ),
        (
            "[iface.'v*']\n[handler.h]\nfile = 'Cargo.toml'\n[path.p]\niface = 'w*'\n\
             match = 'udp'\nhandler = 'h'\n",
            "unknown_name",
        ),
    ] {
        let codes = codes(text);
        assert!(codes.contains(&code), "{text}: {codes:?}");
    }
    // Two paths of one pattern cannot be told apart on any interface that matches.
    let rivals = BOTH.replace("'eth[0-9]*'\nmatch", "'eth*'\nmatch");
    assert_eq!(codes(&rivals), ["ambiguous_match"]);
}
