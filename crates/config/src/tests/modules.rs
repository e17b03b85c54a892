//! Graphs of modules that a configuration names or implies, and the paths that lead through
//! them.

use super::*;

/// `(from, to)` of every edge, and the modules with their kinds.
fn drawing(text: &str) -> (Vec<String>, Vec<String>) {
    let config = read(text).unwrap();
    let graph = config.graph(&Offline(&config)).unwrap().graph;
    let modules = graph.nodes().iter();
    let modules = modules.map(|node| format!("{}: {}", node.name, node.module.kind().name));
    let edges = graph.edges().iter();
    let edges = edges.map(|[a, b]| format!("{} {}", graph.port_name(*a), graph.port_name(*b)));
    (modules.collect(), edges.collect())
}

#[test]
fn the_short_form_implies_modules() {
    let (mut modules, mut edges) = drawing(&with("", "[iface.\"eth0.100\"]"));
    modules.sort();
    edges.sort();
    assert_eq!(
        modules,
        [
            "eth:eth0.100: eth",
            "eth:veth0: eth",
            "handler:counter: handler",
            "ip: ip",
            "udp: udp"
        ]
    );
    assert_eq!(
        edges,
        [
            "eth:eth0.100.up ip.down",
            "eth:veth0.up ip.down",
            "handler:counter.down udp.up",
            "udp.down ip.up",
        ]
    );
    assert_eq!(drawing(""), (Vec::new(), Vec::new()));
}

#[test]
fn what_a_module_names_is_not_implied() {
    let own = "[module.wire]\nkind = 'eth'\niface = 'veth0'\nup = 'net.down'\n\
               [module.net]\nkind = 'ipv4'\n[module.udp]\nkind = 'udp'\ndown = 'net.up'\n\
               [module.count]\nkind = 'handler'\nhandler = 'counter'\ndown = 'udp.up'";
    let (modules, edges) = drawing(&with("", own));
    assert_eq!(
        modules,
        ["wire: eth", "net: ipv4", "udp: udp", "count: handler"]
    );
    assert_eq!(edges.len(), 3);
    // A path of the short form leads through them.
    let config = read(&with("", own)).unwrap();
    let graph = config.graph(&Offline(&config)).unwrap();
    let created = graph
        .create(&config.paths[0], "veth0", Attrs::new())
        .unwrap();
    let trail: Vec<_> = created.log.0.iter().map(|entry| &*entry.who).collect();
    assert_eq!(trail[..4], ["count", "udp", "net", "wire"]);
}

#[test]
fn mistakes_in_modules_are_shown_with_all_others() {
    let text = with(
        "teir = 'user'",
        "[module.look]\nkind = 'tup'\n[module.a]\nkind = 'host'\ndown = 'udp.uq'\n\
         [module.h]\nkind = 'handler'\nhandler = 'conter'\ndown = 'udp.up'",
    );
    let errors = read(&text).unwrap_err();
    let found: Vec<_> = errors
        .list()
        .iter()
        .map(|error| (error.code, &text[error.span.clone().unwrap()]))
        .collect();
    assert_eq!(
        found,
        [
            ("unknown_key", "teir"),
            ("unknown_name", "'tup'"),
            ("unknown_name", "'udp.uq'"),
            ("bad_value", "'conter'"),
        ]
    );
    // An edge that does not fit an implied module names both types.
    let text = with("", "[module.a]\nkind = 'host'\ndown = 'udp.down'");
    let errors = read(&text).unwrap_err();
    assert_eq!(errors.list()[0].code, "type_mismatch");
    assert_eq!(codes(&with("", "[[module]]\nkind = 'udp'")), ["wrong_type"]);
}

#[test]
fn a_path_that_leads_nowhere_is_named() {
    // The handler hangs on nothing that leads to the interface.
    let text = with("", "[module.udp]\nkind = 'udp'");
    let errors = read(&text).unwrap_err();
    let error = &errors.list()[0];
    assert_eq!(error.code, "no_path");
    assert!(error.message.contains("`eth:veth0`"), "{}", error.message);
    assert_eq!(&text[error.span.clone().unwrap()], "\"counter\"");
}

#[test]
fn a_path_that_nothing_can_come_to_is_refused() {
    let text = with(
        "[iface.veth1]",
        "[module.end]\nkind = 'sink'\ndown = 'udp.up'\n[path.long]\nfrom = 'end'\n\
         attrs = { local = '10.0.0.1:9' }",
    );
    let errors = read(&text).unwrap_err();
    let [error] = errors.list() else {
        panic!("{errors}");
    };
    assert_eq!(error.code, "no_path");
    let hint = error.hint.as_deref().unwrap();
    assert_eq!(
        hint,
        "at `ip` the path could go on to `eth:veth0` or `eth:veth1`: give `pathname`"
    );
    let decided = text.replace("{ local", "{ pathname = 'eth:veth1', local");
    assert_eq!(codes(&decided), [""; 0]);
    // What starts by itself needs nobody to come to it.
    let source = text.replace("'sink'", "'source'");
    assert_eq!(codes(&source), [""; 0]);
}

#[test]
fn the_long_form_begins_anywhere() {
    let long = |keys: &str| {
        with(
            "",
            &format!("[module.end]\nkind = 'sink'\ndown = 'udp.up'\n[path.long]\n{keys}"),
        )
    };
    let config = read(&long(
        "from = 'eth:veth0'\nattrs = { pathname = 'udp/end', remote = '10.0.0.2:9' }",
    ))
    .unwrap();
    assert_eq!(config.long_paths[0].from, "eth:veth0");
    let graph = config.graph(&Offline(&config)).unwrap();
    let created = graph.create_long(&config.long_paths[0]).unwrap();
    let filter = "ip and src host 10.0.0.2 and udp and src port 9";
    let entrances = graph.entrances(&created, None);
    let entrances = entrances.iter().map(|end| (&*end.iface, end.text()));
    assert_eq!(
        entrances.collect::<Vec<_>>(),
        [("veth0", Some(filter.into()))]
    );
    assert_eq!(config.long_paths[0].entrances[0].1.to_string(), filter);
    // A `match` is about the messages where it begins.
    let config = read(&long(
        "from = 'eth:veth0'\nmatch = 'dst port 9 or dst port 10'\nattrs = { pathname = 'udp/end' }",
    ))
    .unwrap();
    assert_eq!(
        config.long_paths[0].entrances[0].1.to_string(),
        "udp and (dst port 9 or dst port 10)"
    );
    let wrong = long("from = 'end'\nmatch = 'dst prt 9'");
    let errors = read(&wrong).unwrap_err();
    let span = errors.list()[0].span.clone().unwrap();
    assert_eq!((errors.list()[0].code, &wrong[span]), ("bad_match", "prt"));
    assert_eq!(config.demux("veth0").len(), 2);
    assert_eq!(config.path_name(1), "long");
    // Weaker attributes give a shorter path.
    let config = read(&long("from = 'eth:veth0'")).unwrap();
    let graph = config.graph(&Offline(&config)).unwrap();
    let created = graph.create_long(&config.long_paths[0]).unwrap();
    assert!(
        created.log.to_string().contains("nothing decides"),
        "{}",
        created.log
    );
    assert_eq!(codes(&long("from = 'eth'")), ["no_path"]);
    let rival = "from = 'eth:veth0'\nattrs = { pathname = 'udp/end', local = '0.0.0.0:7777' }";
    let errors = read(&long(rival)).unwrap_err();
    assert_eq!(errors.list()[0].code, "ambiguous_match", "{errors}");
    assert_eq!(
        codes(&long("from = 'eth:veth0'\nattrs = 5")),
        ["wrong_type"]
    );
    for (attr, code, at) in [
        ("local = '10.0.1.1:99999'", "bad_value", "'10.0.1.1:99999'"),
        ("local = 5", "bad_value", "5"),
        ("locl = '10.0.1.1:9000'", "unknown_name", "locl"),
        ("memory_bytes = 'x'", "bad_value", "'x'"),
    ] {
        let wrong = long(&format!(
            "from = 'eth:veth0'\nattrs = {{ pathname = 'udp/end', {attr} }}"
        ));
        let errors = read(&wrong).unwrap_err();
        let [error] = errors.list() else {
            panic!("{errors}");
        };
        let span = error.span.clone().unwrap();
        assert_eq!((error.code, &wrong[span]), (code, at), "{errors}");
    }
    assert_eq!(
        codes(&long("from = 'eth:veth0'\nattrs = { a = 1.5 }")),
        ["wrong_type"]
    );
    assert_eq!(
        codes(&long("from = 'eth:veth0'\niface = 'veth0'")),
        ["unknown_key"]
    );
}

#[test]
fn a_relay_receives_at_both_ends() {
    let text = with(
        "",
        "[iface.veth1]\n[module.relay]\nkind = 'forward'\ndown = 'udp.up'\n[path.r]\n\
         from = 'eth:veth1'\n[path.r.attrs]\npathname = 'udp/relay'\nlocal = '10.0.1.1:9000'\n\
         next_hop = '10.0.3.2:9'\nfrom = '10.0.3.1:9001'\nout = 'eth:veth0'\n\
         next_hop_mac = '02:00:00:00:00:01'",
    );
    let config = read(&text).unwrap();
    let entrances = config.long_paths[0].entrances.iter();
    let entrances: Vec<_> = entrances
        .map(|(iface, filter)| format!("{iface}: {filter}"))
        .collect();
    assert_eq!(
        entrances,
        [
            "veth1: ip and dst host 10.0.1.1 and udp and dst port 9000",
            "veth0: ip and dst host 10.0.3.1 and src host 10.0.3.2 and udp and dst port 9001 \
             and src port 9",
        ]
    );
}

#[test]
fn a_layer_is_short_for_a_path_from_a_handler_that_stands_there() {
    let text = |keys: &str| {
        with(
            "",
            &format!("[path.low]\niface = 'veth0'\nhandler = 'counter'\n{keys}\n"),
        )
    };
    for (keys, stages, filter) in [
        (
            "layer = 'eth'\nmatch = 'icmp'",
            "handler:counter@veth0 eth:veth0",
            "icmp",
        ),
        (
            "layer = 'ip'\nmatch = 'ip6 and tcp'",
            "handler:counter@ip ip eth:veth0",
            "ip6 and tcp",
        ),
    ] {
        let config = read(&text(keys)).unwrap();
        assert_eq!(config.paths.len(), 1, "the one of `with`");
        let graph = config.graph(&Offline(&config)).unwrap();
        let created = graph.create_long(&config.long_paths[0]).unwrap();
        let names: Vec<_> = created
            .path
            .stages()
            .map(|stage| stage.name().to_owned())
            .collect();
        assert_eq!(names.join(" "), stages);
        let (iface, came) = &config.long_paths[0].entrances[0];
        assert_eq!((&**iface, came.to_string()), ("veth0", filter.to_owned()));
    }
    // Above UDP it is a path of the short form, as ever.
    let usual = read(&text("layer = 'udp'\nmatch = 'udp and dst port 9'")).unwrap();
    assert_eq!((usual.paths.len(), usual.long_paths.len()), (2, 0));
    for (keys, code) in [
        ("layer = 'udp'\nmatch = 'icmp'", "bad_match"),
        ("layer = 'tcp'\nmatch = 'tcp'", "bad_value"),
        (
            "layer = 'eth'\nmatch = 'icmp'\ntier = 'kernel'",
            "contradiction",
        ),
        ("layer = 'eth'", "missing_key"),
    ] {
        assert!(
            codes(&text(keys)).contains(&code),
            "{keys}: {:?}",
            codes(&text(keys))
        );
    }
    let two = text("layer = 'eth'\nmatch = 'icmp'").replace(
        "iface = 'veth0'\nhandler",
        "iface = ['veth0', 'veth1']\nhandler",
    );
    assert!(codes(&two).contains(&"not_supported"), "{:?}", codes(&two));
}
