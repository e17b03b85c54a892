use std::collections::BTreeSet;
use std::path::{Path as FsPath, PathBuf};
use std::time::Duration;

use ashway_handler::Param;
use ashway_path::attrs::Attrs;
use ashway_path::stage::Direction;
use proptest::prelude::*;

use super::*;
use crate::diagnostics::Diagnostics;

mod modules;
mod own;
mod patterns;

/// This file exists, whatever the working directory: the directory of the
/// configurations below is the crate's own.
const WASM: &str = "Cargo.toml";

fn read(text: &str) -> Result<Config, Diagnostics> {
    parse(
        &FsPath::new(env!("CARGO_MANIFEST_DIR")).join("test.toml"),
        text.as_bytes(),
    )
}

fn codes(text: &str) -> Vec<&'static str> {
    match read(text) {
        Ok(_) => Vec::new(),
        Err(errors) => errors.list().iter().map(|error| error.code).collect(),
    }
}

/// A good configuration with more lines for its path and more sections.
fn with(path: &str, sections: &str) -> String {
    format!(
        "[iface.veth0]\n[handler.counter]\nfile = \"{WASM}\"\n[path.inc]\niface = \"veth0\"\n\
         match = \"udp dst port 7777\"\nhandler = \"counter\"\n{path}\n{sections}"
    )
}

#[test]
fn the_smallest_configuration_has_the_documented_defaults() {
    let config = read(&with("", "")).unwrap();
    assert_eq!(config.node.name, "default");
    assert_eq!(config.node.socket, None);
    assert_eq!(config.ifaces[0].attach, Attach::Auto);
    let handler = config.handler("counter").unwrap();
    assert_eq!(handler.allow, []);
    assert_eq!(handler.memory, MemoryMode::Auto);
    assert_eq!(handler.line, 2);
    let path = &config.paths[0];
    assert_eq!(path.ifaces, ["veth0"]);
    assert_eq!(path.filter.to_string(), "udp dst port 7777");
    assert_eq!(
        (path.handler.as_str(), path.function.as_str()),
        ("counter", "on_rx")
    );
    assert_eq!((path.tier, path.on_fault), (Tier::Auto, OnFault::Pass));
    assert_eq!(path.budget, Duration::from_micros(50));
    assert_eq!(path.line, 4);
}

#[test]
fn everything_can_be_said() {
    let text = with(
        "tier = 'kernel'\non_fault = \"demote\"\nbudget = \"1 ms\"",
        "[node]\nname = \"edge-1\"\nsocket = \"node.sock\"\n[iface.\"eth0.100\"]\nmode = \"generic\"\n\
         [handler.b]\nfile = 'src/../Cargo.toml'\nallow = [\"reply\"]\nmemory = \"array\"\n\
         params = { step = 5, far = -7, mask = 0xff }\n[path.b]\niface = [\"veth0\", \"eth0.100\"]\n\
         match = \"udp dst port 7778\"\nhandler = \"b:on_inc\"",
    );
    let config = read(&text).unwrap();
    assert!(
        config
            .node
            .socket
            .as_deref()
            .unwrap()
            .ends_with("node.sock")
    );
    let handler = config.handler("b").unwrap();
    assert_eq!(handler.allow, [Grant::Reply]);
    assert_eq!(handler.memory, MemoryMode::Array);
    let params: Vec<_> = handler.params.values().cloned().collect();
    assert_eq!(params, [-7, 255, 5].map(Param::Number));
    assert_eq!(config.paths[1].ifaces, ["veth0", "eth0.100"]);
    assert_eq!(config.paths[1].function, "on_inc");
    assert_eq!(config.paths[0].tier, Tier::Kernel);
    assert_eq!(config.paths[0].budget, Duration::from_millis(1));
    assert_eq!(config.iface("eth0.100").unwrap().attach, Attach::Generic);
    assert_eq!(config.paths_of("b").count(), 1);
}

/// A limit of faults is a table, each key of which has a default, or "off"; in requests a
/// text.
#[test]
fn a_limit_of_faults_is_a_table_or_off() {
    use super::{FaultLimit, read_faults};
    let usual = FaultLimit::default();
    let limit = |keys: &str| read(&with(keys, "")).map(|config| config.paths[0].faults);
    assert_eq!(limit("").unwrap(), Some(usual));
    assert_eq!(limit("faults = \"off\"").unwrap(), None);
    let three = Some(FaultLimit { most: 3, ..usual });
    assert_eq!(limit("faults = { limit = 3 }").unwrap(), three);
    let whole = FaultLimit {
        most: 10,
        within: Duration::from_millis(20),
        rest: Some(Duration::from_mins(1)),
    };
    let text = "faults = { limit = 10, within = \"20 ms\", rest = \"60 s\" }";
    assert_eq!(limit(text).unwrap(), Some(whole));
    for (text, code) in [
        ("faults = \"of\"", "wrong_type"),
        ("faults = 3", "wrong_type"),
        ("faults = { most = 3 }", "unknown_key"),
        ("faults = { limit = 0 }", "bad_value"),
        ("faults = { limit = \"3\" }", "wrong_type"),
        ("faults = { within = \"1 h\" }", "bad_value"),
        ("faults = { rest = \"9 ms\" }", "bad_value"),
    ] {
        let errors = limit(text).unwrap_err();
        assert_eq!(errors.list()[0].code, code, "{text}");
    }
    assert_eq!(read_faults("10/20 ms/60 s"), Ok(Some(whole)));
    assert_eq!(read_faults("3/1s"), Ok(three));
    assert_eq!(read_faults("off"), Ok(None));
    for text in ["", "3", "/1 s", "0/1 s", "3/1 d", "3/1 s/", "3/1 s/1 s/1 s"] {
        assert!(read_faults(text).is_err(), "{text}");
    }
}

/// The text a person sees, to the letter; `UPDATE_EXPECT=1` writes it anew.
#[test]
fn five_mistakes_are_five_messages() {
    let directory = FsPath::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let text = include_str!("five.toml");
    let errors = parse(FsPath::new("five.toml"), text.as_bytes()).unwrap_err();
    let rendered = errors.render(false);
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(directory.join("five.expected"), &rendered).unwrap();
    }
    let expected = std::fs::read_to_string(directory.join("five.expected")).unwrap();
    assert_eq!(rendered, expected);
    assert_eq!(errors.list().len(), 5);
    let json = errors.to_json();
    assert_eq!(json["errors"][3]["line"], 9);
    assert_eq!(json["errors"][3]["column"], 25);
    assert_eq!(json["errors"][4]["code"], "bad_budget");
    assert_eq!(json["errors"][4]["file"], "five.toml");
}

#[test]
fn each_mistake_has_its_code() {
    let cases: [(&str, &[&str]); 28] = [
        (&with("", "[iface.veth0]"), &["syntax"]),
        (&with("budget =", ""), &["syntax"]),
        (&with("teir = \"user\"", ""), &["unknown_key"]),
        (&with("", "[hander.x]"), &["unknown_section"]),
        (&with("tier = 5", ""), &["wrong_type"]),
        (&with("tier = \"gpu\"", ""), &["bad_value"]),
        (&with("on_fault = \"reset\"", ""), &["bad_value"]),
        (&with("order = \"random\"", ""), &["bad_value"]),
        (&with("budget = \"50\"", ""), &["bad_budget"]),
        (&with("budget = \"999 ns\"", ""), &["bad_budget"]),
        (&with("budget = \"11 ms\"", ""), &["bad_budget"]),
        (
            &with(
                "",
                "[path.Big]\niface = 'veth0'\nmatch = 'udp'\nhandler = 'counter'",
            ),
            &["bad_name"],
        ),
        (&with("", "[iface.sixteen-letters-]"), &["bad_name"]),
        (&with("", "[iface.'t%d']"), &["bad_name"]),
        (&with("", "[path.x]"), &["missing_key"; 3]),
        (&with("", "[handler.x]"), &["missing_key"]),
        (&with("", "[handler.x]\nfile = 'x.wasm'"), &["missing_file"]),
        (&with("", "[handler.x]\nfile = 'src'"), &["missing_file"]),
        (
            &with(
                "",
                "[handler.x]\nfile = 'Cargo.toml'\nallow = ['sends', 5]\nparams = { a = 1.5 }",
            ),
            &["bad_value", "wrong_type", "wrong_type"],
        ),
        (
            &with(
                "",
                "[path.x]\niface = ['veth0', 'veth0']\nmatch = 'udp'\nhandler = 'counter:'",
            ),
            &["bad_value", "bad_value"],
        ),
        (
            &with(
                "",
                "[path.x]\niface = 'veth0'\nmatch = 'udp'\nhandler = 'conter'",
            ),
            &["unknown_name"],
        ),
        (
            &with(
                "",
                "[iface.p]\nmode = 'packet'\n[path.x]\niface = 'p'\nmatch = 'udp'\nhandler = 'counter'\ntier = 'kernel'",
            ),
            &["contradiction"],
        ),
        (
            &with("", "[iface.p]\nattach = 'tcx'\n[iface.q]\nattach = 'xdp'"),
            &["contradiction"],
        ),
        (
            &with("", "[iface.p]\nmode = 'native'\n[iface.q]\nattach = 'tcx'"),
            &["contradiction"],
        ),
        (
            &with("", "[iface.p]\nmode = 'native'\nattach = 'xdp'"),
            &["contradiction"],
        ),
        (&with("", "[iface.p]\nattach = 'tc'"), &["bad_value"]),
        (
            &with(
                "",
                "[handler.h]\nfile = '/bin/sh'\nmemory = 'array'\n[iface.p]\nattach = 'tcx'\n\
                 [path.x]\niface = 'p'\nmatch = 'udp'\nhandler = 'h'",
            ),
            &["contradiction"],
        ),
        ("path = 5\n", &["wrong_type"]),
    ];
    for (text, expected) in cases {
        // The order of a good part of the errors is that of the file.
        assert_eq!(
            codes(text),
            expected,
            "{text}\n{:?}",
            read(text).map_err(|e| e.to_string())
        );
    }
}

/// The guide's table has all attributes that people may give, and no others.
#[test]
fn the_guide_has_every_attribute() {
    let guide = include_str!("../../../docs/guide/paths.md");
    let chapter = guide.split_once("\n## Attributes\n").unwrap().1;
    let rows = chapter.lines().skip_while(|line| !line.starts_with('|'));
    let rows = rows.take_while(|line| line.starts_with('|')).skip(2);
    let names = rows.flat_map(|row| row.split('|').nth(1).unwrap().split('`').skip(1).step_by(2));
    let written: BTreeSet<_> = names.collect();
    let known = ashway_modules::attributes::known(attributes::OWN_ATTRIBUTES);
    let known: BTreeSet<_> = known.map(|(name, _)| name).collect();
    assert_eq!(written, known);
}

/// An attribute that nothing on the path reads would do nothing.
#[test]
fn what_nothing_on_a_path_reads_is_an_error_at_its_place() {
    let base =
        "[iface.a]\n[module.end]\nkind = \"sink\"\ndown = \"udp.up\"\n[path.p]\nfrom = \"end\"\n";
    let errors = |rest: &str| {
        let text = format!("{base}{rest}\n");
        let wrong = read(&text).unwrap_err();
        wrong.render(false)
    };
    let said = errors("attrs = { local = \"10.0.0.1:7\", rate = 5 }");
    assert!(said.contains("reads the attribute `rate`"), "{said}");
    assert!(said.contains("`rate_per_second`"), "{said}");
    assert!(said.contains("test.toml:7:33"), "{said}");
    let said = errors("rate = \"5/s\"");
    assert!(said.contains("`path.p` has no key `rate`"), "{said}");
    assert!(
        said.contains("attrs = { rate_per_second = 5000 }"),
        "{said}"
    );
    let good = format!("{base}attrs = {{ local = \"10.0.0.1:7\", rate_per_second = 5 }}\n");
    assert!(read(&good).is_ok());
}

#[test]
fn competing_filters_are_named_and_specific_ones_win() {
    let second = |iface: &str, filter: &str| {
        with(
            "",
            &format!(
                "[iface.veth1]\n[path.other]\niface = \"{iface}\"\nmatch = \"{filter}\"\nhandler = \"counter\""
            ),
        )
    };
    let errors = read(&second("veth0", "dst port 7777 and udp")).unwrap_err();
    let error = &errors.list()[0];
    assert_eq!(
        error.message,
        "paths `inc` and `other` ask for the same messages on `veth0`"
    );
    assert!(error.also.is_some());
    assert_eq!(
        codes(&second("veth0", "udp src port 9")),
        ["ambiguous_match"]
    );
    assert!(codes(&second("veth1", "udp dst port 7777")).is_empty());
    assert!(codes(&second("veth0", "udp dst port 7778")).is_empty());
    assert!(codes(&second("veth0", "udp dst port 7777 and src port 9")).is_empty());
    assert!(codes(&second("veth0", "udp")).is_empty());
    assert!(codes(&second("veth0", "udp and not dst port 7777")).is_empty());
    // More bits are more specific, however they are written.
    assert!(codes(&second("veth0", "udp and dst portrange 7000-7999")).is_empty());
}

#[test]
fn a_handler_gets_udp_alone() {
    let with_match = |filter: &str| with("", "").replace("udp dst port 7777", filter);
    for filter in [
        "udp port 7 or 8",
        "udp and not (src net 10.0.0.0/8 or dst host ::1)",
        "vlan 5 and udp",
        "vlan and vlan 7 and udp dst port 7",
        "vxlan 42",
        "udp[8:2] = 0x1234",
    ] {
        assert_eq!(codes(&with_match(filter)), [""; 0], "{filter}");
    }
    for filter in [
        "dst port 7",
        "udp or tcp",
        "ip",
        "not tcp",
        "udp or vlan 5",
        "arp",
    ] {
        let text = with_match(filter);
        let errors = read(&text).unwrap_err();
        let error = &errors.list()[0];
        assert_eq!(error.code, "bad_match", "{filter}");
        assert!(error.message.contains("UDP"), "{filter}: {}", error.message);
        assert_eq!(&text[error.span.clone().unwrap()], filter);
    }
}

#[test]
fn a_domain_gets_no_more_than_it_owns() {
    let domain = "[domain.games]\nowns = ['udp and dst portrange 7000-7999', 'udp dst port 53']";
    let of =
        |text: &str| codes(&with("domain = 'games'", domain).replace("udp dst port 7777", text));
    assert_eq!(of("udp dst port 7777"), [""; 0]);
    assert_eq!(of("udp dst port 7001 and src net 10.0.0.0/8"), [""; 0]);
    assert_eq!(of("udp dst portrange 6999-7001"), ["not_owned"]);
    assert_eq!(of("udp"), ["not_owned"]);
    // A match is a part of one owned filter, not of two.
    assert_eq!(of("udp dst port 53 or 7000"), ["not_owned"]);
    let unknown = with("domain = 'gmaes'", domain);
    let errors = read(&unknown).unwrap_err();
    let [error] = errors.list() else {
        panic!("{errors}");
    };
    assert_eq!(error.code, "unknown_name");
    assert_eq!(&unknown[error.span.clone().unwrap()], "'gmaes'");
    assert_eq!(codes(&with("", "[domain.a]")), ["missing_key"]);
    assert_eq!(
        codes(&with("", "[domain.a]\nowns = 'udp dst prot 7'")),
        ["bad_match"]
    );
    // A handler's domain is its paths'; the error stands at their `match`.
    let text = with("", domain).replace("[path.inc]", "domain = 'games'\n[path.inc]");
    assert_eq!(codes(&text), [""; 0]);
    let text = text.replace("udp dst port 7777", "udp dst port 8000");
    let errors = read(&text).unwrap_err();
    let error = &errors.list()[0];
    assert_eq!(&text[error.span.clone().unwrap()], "\"udp dst port 8000\"");
    assert_eq!(
        error.message,
        "domain `games` does not own all that `udp dst port 8000` matches"
    );
    // Paths of the long form by what their stages ask.
    let long = |port: u16| {
        format!(
            "{domain}\n[module.end]\nkind = 'sink'\ndown = 'udp.up'\n[path.long]\ndomain = 'games'\n\
             from = 'eth:veth0'\nattrs = {{ pathname = 'udp/end', local = '10.0.0.1:{port}' }}"
        )
    };
    assert_eq!(codes(&with("", &long(7000))), [""; 0]);
    assert_eq!(codes(&with("", &long(8000))), ["not_owned"]);
    // And those that lead through a handler of the domain, bound to it or not.
    for more in ["", ", ttl = 3"] {
        let through = |port: u16| {
            let lines = format!(
                "{domain}\n[handler.own]\nfile = '/bin/sh'\ndomain = 'games'\n[path.through]\n\
                 from = 'handler:own'\nattrs = {{ local = '10.0.0.1:{port}', pathname = \
                 'udp/eth:veth0'{more} }}"
            );
            codes(&with("", &lines))
        };
        assert_eq!(through(7000), [""; 0], "{more}");
        assert_eq!(through(8000), ["not_owned"], "{more}");
    }
}

/// All but the handlers' files, which have to be built.
#[test]
fn the_examples_are_good() {
    let examples = FsPath::new(env!("CARGO_MANIFEST_DIR")).join("../../paths");
    let mut names: Vec<_> = std::fs::read_dir(examples)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    names.sort();
    assert!(names.len() >= 5, "{names:?}");
    for name in names {
        let errors = load(&name).err();
        let list = errors.iter().flat_map(Diagnostics::list);
        let other: Vec<_> = list.filter(|error| error.code != "missing_file").collect();
        assert!(other.is_empty(), "{}: {other:?}", name.display());
    }
}

#[test]
fn a_filter_with_escapes_is_pointed_at_as_a_whole() {
    let text = with("", "").replace("udp dst port 7777", r"udp\u0020dst port x");
    let errors = read(&text).unwrap_err();
    let span = errors.list()[0].span.clone().unwrap();
    assert_eq!(&text[span], r#""udp\u0020dst port x""#);
}

#[test]
fn files_that_are_no_configuration() {
    let errors = load(FsPath::new("/nowhere/x.toml")).unwrap_err();
    assert_eq!(errors.list()[0].code, "unreadable");
    assert!(errors.render(false).contains("/nowhere/x.toml"));
    let errors = parse(FsPath::new("x"), b"a = \"\xff\"").unwrap_err();
    assert_eq!(errors.to_json()["errors"][0]["column"], 6);
    assert_eq!(load(&PathBuf::from("/")).unwrap_err().list().len(), 1);
}

fn pieces() -> impl Strategy<Value = String> {
    let piece = proptest::sample::select(
        &[
            "[iface.veth0]\n",
            "[iface",
            "[path.a]\n",
            "[path.b]\n",
            "[handler.a]\n",
            "iface = ",
            "match = ",
            "[module.a]\n",
            "[module.b]\n",
            "kind = 'udp'\n",
            "down = 'a.up'\n",
            "from = 'a'\n",
            "handler = ",
            "file = ",
            "budget = ",
            "\"udp dst port 7\"",
            "'veth0'",
            "\"a\"",
            "\"50 us\"",
            "[",
            "]",
            "{",
            "}",
            "=",
            ",",
            "\n",
            "5",
            "é",
            "\u{0}",
            "\"",
            "\t",
            "params = { a = 5 }\n",
            "allow = [\"reply\"]\n",
            "\u{1b}[31m",
            "𝛼",
            "\r\n",
        ][..],
    );
    proptest::collection::vec(piece, 0..30).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn no_bytes_are_too_much(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Err(errors) = parse(FsPath::new("x.toml"), &bytes) {
            prop_assert!(!errors.render(true).is_empty());
        }
    }

    #[test]
    fn no_heap_of_pieces_is_too_much(text in pieces()) {
        if let Err(errors) = parse(FsPath::new("x.toml"), text.as_bytes()) {
            let coloured = errors.render(false).contains('\u{1b}');
            prop_assert!(!coloured);
            prop_assert!(!errors.to_json()["errors"].as_array().unwrap().is_empty());
        }
    }
}

#[test]
fn a_share_is_of_its_tier() {
    let config = read(&with("share = \"12.5 %\"\nrate = \"7000/s\"", "")).unwrap();
    let share = config.paths[0].share.unwrap();
    assert_eq!((share.per_mille, share.rate), (125, Some(7_000)));
    assert_eq!(read(&with("", "")).unwrap().paths[0].share, None);
    let rate = read(&with("rate = \"7000/s\"", "")).unwrap().paths[0].share;
    assert_eq!(rate.map(|share| share.per_mille), Some(1_000));
    for (keys, code) in [
        ("share = \"20\"", "bad_share"),
        ("share = \"0 %\"", "bad_share"),
        ("rate = \"fast\"", "bad_rate"),
        ("rate = 5", "wrong_type"),
    ] {
        assert_eq!(codes(&with(keys, "")), [code], "{keys}");
    }
}

/// So many paths, each on all of so many interfaces, and as many handlers as they need.
fn crowd(paths: usize, ifaces: usize) -> String {
    let names: Vec<_> = (0..ifaces).map(|number| format!("v{number}")).collect();
    let ifaces = names.iter().map(|name| format!("[iface.{name}]\n"));
    let handlers =
        (0..paths.div_ceil(60)).map(|number| format!("[handler.h{number}]\nfile = \"{WASM}\"\n"));
    let paths = (0..paths).map(|number| {
        format!(
            "[path.p{number}]\niface = {names:?}\nmatch = \"udp dst port {}\"\n\
             handler = \"h{}\"\n",
            number + 1,
            number / 60
        )
    });
    let all: Vec<_> = ifaces.chain(handlers).chain(paths).collect();
    all.concat()
}

#[test]
fn paths_that_find_no_place_in_an_interface_or_a_handler_are_named() {
    assert_eq!(codes(&crowd(1024, 1)), [""; 0]);
    let text = crowd(1025, 1);
    let errors = read(&text).unwrap_err();
    let [error] = errors.list() else {
        panic!("{errors:?}")
    };
    assert_eq!(error.code, "too_many_paths");
    assert_eq!(
        error.message,
        "`v0` has more than 1024 paths with a handler"
    );
    let last = text.find("[path.p1024]").unwrap();
    assert!(error.span.clone().unwrap().start > last, "its place");

    // Paths of the long form that are bound to a handler have the same places.
    let long = |paths: usize| {
        let paths = (1..=paths).map(|port| {
            format!(
                "[path.q{port}]\nfrom = 'handler:h'\nattrs = {{ local = '10.0.0.1:{port}', \
                 pathname = 'udp/eth:v0' }}\n"
            )
        });
        let paths: Vec<_> = paths.collect();
        format!(
            "[iface.v0]\n[handler.h]\nfile = \"{WASM}\"\n{}",
            paths.concat()
        )
    };
    assert_eq!(codes(&long(60)), [""; 0]);
    assert_eq!(codes(&long(61)), ["too_many_paths"]);

    assert_eq!(codes(&crowd(1, 64)), [""; 0]);
    assert_eq!(codes(&crowd(1, 65)), ["too_many_paths"]);
}

/// Both forms say the same where the long one leads from a handler straight to an interface.
#[test]
fn a_path_from_a_handler_is_bound_to_it_in_both_forms() {
    let handler = "[iface.a]\n[iface.b]\n[handler.h]\nfile = \"/bin/sh\"\n";
    let long = |more: &str| {
        let attrs = format!("pathname = \"udp/eth:a\"{more}");
        read(&format!(
            "{handler}[path.p]\nfrom = \"handler:h\"\nmatch = \"dst port 7\"\nattrs = {{ {attrs} }}"
        ))
        .unwrap()
    };
    let config =
        long(", function = \"twice\", budget_ns = 70000, share_per_mille = 200, order = \"none\"");
    assert!(config.long_paths.is_empty());
    let [path] = &config.paths[..] else {
        panic!("{:?}", config.paths);
    };
    let short = read(&format!(
        "{handler}[path.p]\niface = \"a\"\nmatch = \"{}\"\nhandler = \"h:twice\"\n\
         budget = \"70 us\"\nshare = \"20 %\"\norder = \"none\"",
        path.filter.text
    ))
    .unwrap();
    assert_eq!(path.order, OrderRule::None);
    assert_eq!(**path, *short.paths[0]);
    // What it holds in the user tier is its own in either tier.
    let config = long(", queue = 64, memory_bytes = 900000");
    let [path] = &config.paths[..] else {
        panic!("{:?}", config.paths);
    };
    let graph = config.graph(&Offline(&config)).unwrap();
    let created = graph.create(path, "a", Attrs::new()).unwrap();
    let queue = created.path.input(Direction::Backward).maximum();
    assert_eq!((queue, path.memory_bytes), (64, Some(900_000)));
    // What the entry program does not do keeps a path to itself, and is named.
    let config = long(", queue = 64, ttl = 3");
    let [path] = &config.long_paths[..] else {
        panic!("{:?}", config.paths);
    };
    let graph = config.graph(&Offline(&config)).unwrap();
    let why = graph.bound(&Asked::long(path)).unwrap_err();
    assert_eq!(why, NotBound::Attribute("ttl"));
    let created = graph.create_long(path).unwrap();
    let stays = graph.fits(&created.path, why).unwrap_err();
    assert!(stays.because.contains("attribute `ttl`"), "{stays:?}");
}

/// Nobody would ask any other for it.
#[test]
fn order_is_for_paths_that_are_bound_to_a_handler() {
    let handler = "[iface.a]\n[handler.h]\nfile = \"/bin/sh\"\n";
    let text = |more: &str| {
        let attrs = format!("pathname = \"udp/eth:a\", order = \"path\"{more}");
        format!(
            "{handler}[path.p]\nfrom = \"handler:h\"\nmatch = \"dst port 7\"\nattrs = {{ {attrs} }}"
        )
    };
    assert!(read(&text("")).is_ok());
    let unbound = text(", ttl = 3");
    let errors = read(&unbound).unwrap_err();
    let [error] = errors.list() else {
        panic!("{:?}", errors.list());
    };
    assert!(error.message.contains("attribute `order`"), "{error:?}");
    assert_eq!(&unbound[error.span.clone().unwrap()], "order");
}
