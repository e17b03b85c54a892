//! A DNS responder as a handler (`apps/handlers/zone.c`): answers that are longer than
//! their queries, asked for by clients that nobody here wrote.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

mod query;

use std::fs;
use std::net::{Ipv4Addr, UdpSocket};
use std::process::Output;

use ashway_netns::node::{copy_program, entry, run, text};
use ashway_netns::traffic::{PLACES, Place, SOON, path, settle};
use ashway_rig::skip::{skip_unless_root, skip_without};
use ashway_rig::{Node, Rig, RigOptions};
use serde_json::json;

use query::{A, LONGEST, Query, answered, passed};

const PORT: u16 = 53;

/// Names for which the table has room: `ZONE_NAMES`.
const MOST: usize = 1024;

const ZONE: &str = "\
# What the tests ask for.
www.example.org   A     192.0.2.80
WWW.example.org.  AAAA  2001:db8::80   # the same name

only4.example.org A     192.0.2.4
only6.example.org aaaa  2001:db8::6
";

fn start(rig: &Rig, place: Place) -> Node {
    let config = place.config().handler("zone").unwrap();
    let node = rig.node(path(config, "zone", "zone", PORT, place, ""));
    let node = node.start().unwrap();
    let tier = entry(&node.status().unwrap(), "paths", "zone")["tier"].clone();
    assert_eq!(tier, place.tier, "{place}: {}", node.output());
    node
}

/// Fills the handler's table from this text; what the application said.
fn fill(node: &Node, zone: &str) -> Output {
    let folder = node.config().parent().unwrap();
    let (program, file) = (folder.join("zone_app"), folder.join("names"));
    if !program.exists() {
        copy_program(
            &ashway_rig::places::application("zone_app").unwrap(),
            &program,
        )
        .unwrap();
    }
    fs::write(&file, zone).unwrap();
    let mut map = node.command(["handler", "map", "zone", "--uid", "65534"]);
    run(map.arg("--").arg(program).arg(file))
}

fn filled(node: &Node, zone: &str, names: usize) {
    let said = fill(node, zone);
    assert_eq!(text(&said), format!("{names} names\n"));
    assert!(said.status.success());
}

/// Asks once; everything that `dig` prints, blanks as one.
fn dig(rig: &Rig, words: &str) -> String {
    let mut dig = rig.command_a("dig");
    dig.args(["@10.7.0.2", "+tries=1", "+time=30"]);
    let said = run(dig.args(words.split(' ')));
    let all = text(&said);
    assert!(said.status.success(), "{words}: {all}");
    // It warns of what it cannot read, and of bytes behind the last record.
    assert!(!all.contains("malformed"), "{words}: {all}");
    assert!(!all.contains("extra bytes"), "{words}: {all}");
    all.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Asks `dnsperf` to ask so often.
fn dnsperf(rig: &Rig, queries: usize, words: &[&str]) {
    let file = std::env::temp_dir().join(format!("{}.queries", rig.name()));
    let both = "www.example.org A\nwww.example.org AAAA\n";
    fs::write(&file, both.repeat(queries / 2)).unwrap();
    let mut dnsperf = rig.command_a("dnsperf");
    dnsperf.args(["-s", "10.7.0.2", "-n", "1", "-q", "20", "-t", "30", "-d"]);
    let said = text(&run(dnsperf.arg(&file).args(words)));
    fs::remove_file(&file).unwrap();
    let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words.contains(&format!("Queries completed: {queries} (100.00%)")),
        "{said}"
    );
    assert!(
        words.contains(&format!("Response codes: NOERROR {queries} (100.00%)")),
        "{said}"
    );
}

#[test]
fn names_in_the_table_are_answered_and_all_else_is_the_hosts() {
    const EACH: usize = 1000;
    if skip_unless_root() || skip_without("dig", "bind9-dnsutils") {
        return;
    }
    if skip_without("dnsperf", "dnsperf") {
        return;
    }
    let rig = Rig::new("dns", RigOptions::default()).unwrap();
    let host = rig.in_b(|| UdpSocket::bind(("0.0.0.0", PORT))).unwrap();
    host.set_read_timeout(Some(SOON)).unwrap();
    for place in PLACES {
        let node = start(&rig, place);
        filled(&node, &format!("{ZONE}{LONGEST} A 192.0.2.62\n"), 4);

        let clients = [rig.client_a(PORT).unwrap(), rig.client_a_v6(PORT).unwrap()];
        let mut replies = 0;
        for (query, address) in answered() {
            for client in &clients {
                let got = client.ask(&query.bytes()).unwrap();
                assert_eq!(got, query.answer(&address), "{place}: {query:?}");
                replies += 1;
            }
        }
        let mut passes = 0;
        for query in passed() {
            clients[0].send(&query).unwrap();
            let mut got = [0; 1024];
            let (len, _) = host.recv_from(&mut got).unwrap();
            assert_eq!(got[..len], query, "{place}");
            passes += 1;
        }

        let said = dig(&rig, "www.example.org A");
        assert!(said.contains("status: NOERROR"), "{place}: {said}");
        assert!(said.contains("flags: qr aa rd;"), "{place}: {said}");
        assert!(
            said.contains("EDNS: version: 0, flags:; udp: 1232"),
            "{place}: {said}"
        );
        assert!(
            said.contains("www.example.org. 300 IN A 192.0.2.80"),
            "{place}: {said}"
        );
        let said = dig(&rig, "+dnssec www.example.org AAAA");
        assert!(
            said.contains("EDNS: version: 0, flags: do; udp: 1232"),
            "{place}: {said}"
        );
        assert!(
            said.contains("www.example.org. 300 IN AAAA 2001:db8::80"),
            "{place}: {said}"
        );
        let said = dig(&rig, "+noedns +norec only6.example.org AAAA");
        assert!(said.contains("flags: qr aa;"), "{place}: {said}");
        assert!(!said.contains("EDNS"), "{place}: {said}");
        assert!(
            said.contains("only6.example.org. 300 IN AAAA 2001:db8::6"),
            "{place}: {said}"
        );
        dnsperf(&rig, EACH, &[]);
        dnsperf(&rig, EACH, &["-e", "-D"]);
        replies += 3 + 2 * EACH as u64;

        let ledger = settle(&node, "zone", replies + passes);
        ledger.assert_fates(&[("answered", replies), ("passed", passes)], &place);
        if (place.mode, place.tier) == ("tcx", "kernel") {
            let status = node.status().unwrap();
            let notes = &entry(&status, "paths", "zone")["notes"];
            assert_eq!(notes, &json!({}), "{place}: all in the kernel tier");
        }
        node.stop().unwrap();
    }
}

#[test]
fn a_file_changes_the_table_whole_or_not_at_all() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("dnsfile", RigOptions::default()).unwrap();
    let node = start(&rig, PLACES[6]);
    let client = rig.client_a(PORT).unwrap();
    let ask = |query: Query, address: &[u8]| {
        assert_eq!(client.ask(&query.bytes()).unwrap(), query.answer(address));
    };
    let www = || Query::new("www.example.org", A);
    filled(&node, ZONE, 3);
    ask(www(), &[192, 0, 2, 80]);

    let said = fill(
        &node,
        "www.example.org A 192.0.2.81\n\
         www.example.org A 192.0.2.82\n\
         www..org A 192.0.2.83\n\
         www.example.net CNAME www.example.org\n\
         www.example.net A 2001:db8::1\n\
         www.example.net A\n",
    );
    assert!(!said.status.success());
    let all = text(&said);
    for wrong in [
        ":2: `www.example.org` already has an A address, from line 1",
        ":3: the name `www..org` has an empty label",
        ":4: the type `CNAME` is neither `A` nor `AAAA`",
        ":5: `2001:db8::1` is no IPv4 address",
        ":6: expected `NAME TYPE ADDRESS`",
        ": 5; the handler's table is as it was",
    ] {
        assert!(all.contains(wrong), "{wrong}: {all}");
    }
    ask(www(), &[192, 0, 2, 80]);

    // Other addresses for one name; the other names keep theirs.
    filled(&node, "www.example.org A 192.0.2.81\n", 1);
    ask(www(), &[192, 0, 2, 81]);
    ask(Query::new("only4.example.org", A), &[192, 0, 2, 4]);

    // Four entries are used; as many names as there is room for are all found, and no name
    // that shares a bucket with one of them is.
    let address = |i: usize| [10, 0, (i / 256) as u8, i as u8];
    let line = |i| format!("n{i}.example A {}\n", Ipv4Addr::from(address(i)));
    let many = (0..MOST - 4).map(line).collect::<Vec<_>>().concat();
    filled(&node, &many, MOST - 4);
    let host = rig.in_b(|| UdpSocket::bind(("0.0.0.0", PORT))).unwrap();
    host.set_read_timeout(Some(SOON)).unwrap();
    for i in 0..MOST - 4 {
        ask(Query::new(format!("n{i}.example"), A), &address(i));
        let absent = Query::new(format!("m{i}.example"), A).bytes();
        client.send(&absent).unwrap();
        let mut got = [0; 100];
        let (len, _) = host.recv_from(&mut got).unwrap();
        assert_eq!(got[..len], absent);
    }
    let all = text(&fill(&node, "one.more A 192.0.2.1\n"));
    assert!(
        all.contains("1024 of the table's 1024 entries are used"),
        "{all}"
    );
    node.stop().unwrap();
}
