//! `ashway graph`, `ashway path plan` and `ashway demux`: what a configuration
//! would do, without a node.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use pcap_file::{DataLink, TsResolution};
use serde_json::Value;

use common::Directory;

/// A directory with the handler that the configurations name.
fn with_handler(test: &str) -> Directory {
    let directory = Directory::new(&format!("demux-{test}"));
    directory.file("h.wasm", "");
    directory
}

/// Runs it with this exit code; standard output, then standard error.
fn ashway(code: i32, args: &[&str], config: &Path) -> (String, String) {
    let mut words = args.to_vec();
    // In place of the word CONFIG.
    for word in &mut words {
        if *word == "CONFIG" {
            *word = config.to_str().unwrap();
        }
    }
    let Output {
        status,
        stdout,
        stderr,
    } = Command::new(env!("CARGO_BIN_EXE_ashway"))
        .args(&words)
        .output()
        .unwrap();
    let [out, err] = [stdout, stderr].map(|text| String::from_utf8(text).unwrap());
    assert_eq!(status.code(), Some(code), "{words:?}\n{out}{err}");
    (out, err)
}

fn json(args: &[&str], config: &Path) -> Value {
    let args = [args, &["-j"]].concat();
    serde_json::from_str(&ashway(0, &args, config).0).unwrap()
}

const CONFIG: &str = r#"
[iface.veth0]
[iface.veth1]
[handler.counter]
file = "h.wasm"
[module.relay]
kind = "forward"
down = "udp.up"
[path.inc]
iface = ["veth0", "veth1"]
match = "udp and dst port 7777"
handler = "counter"
[path.known]
iface = "veth0"
match = "udp and dst port 7777 and src net 10.0.0.0/8"
handler = "counter:on_known"
[path.relayed]
from = "eth:veth1"
[path.relayed.attrs]
pathname = "udp/relay"
local = "10.0.1.1:9000"
next_hop = "10.0.3.2:9"
from = "10.0.3.1:9001"
out = "eth:veth0"
next_hop_mac = "02:00:00:00:00:01"
"#;

#[test]
fn the_graph_is_a_table_a_drawing_and_a_document() {
    let directory = with_handler("graph");
    let config = directory.file("node.toml", CONFIG);
    let (text, _) = ashway(0, &["graph", "show", "CONFIG"], &config);
    let line = |start: &str| {
        text.lines()
            .find(|line| line.trim_start().starts_with(start))
    };
    assert!(line("relay").unwrap().ends_with("udp.up"), "{text}");
    assert!(
        line("<down:<net, link>")
            .unwrap()
            .ends_with("eth:veth0.up, eth:veth1.up")
    );
    assert_eq!(
        line("initialised").unwrap(),
        "initialised in this order: eth:veth0, eth:veth1, ip, udp, handler:counter, relay"
    );
    let (dot, _) = ashway(0, &["graph", "show", "CONFIG", "--dot"], &config);
    assert!(
        dot.contains(r#""relay" -- "udp" [taillabel="<down", headlabel="up"];"#),
        "{dot}"
    );
    let document = json(&["graph", "show", "CONFIG"], &config);
    assert_eq!(document["modules"].as_array().unwrap().len(), 6);
    assert_eq!(document["edges"].as_array().unwrap().len(), 5);
}

#[test]
fn mistakes_in_modules_have_a_place() {
    let directory = with_handler("mistakes");
    let text = CONFIG
        .replace("\"udp.up\"", "\"udp.down\"")
        .replace("7777 and", "7777 nor");
    let config = directory.file("node.toml", &text);
    let (_, errors) = ashway(2, &["graph", "show", "CONFIG"], &config);
    assert_eq!(errors.matches("error: ").count(), 2, "{errors}");
    assert!(errors.contains("node.toml:8:8"), "{errors}");
    assert!(
        errors.contains("`udp.down` requires `network`, `relay.down` provides `net`"),
        "{errors}"
    );
}

#[test]
fn a_path_is_planned_in_four_phases() {
    let directory = with_handler("plan");
    let config = directory.file("node.toml", CONFIG);
    let planned = json(&["path", "plan", "CONFIG", "inc"], &config);
    let paths = planned["paths"].as_array().unwrap();
    assert_eq!(paths.len(), 2, "one at each interface");
    let names = |path: &Value| {
        let stages = path["stages"].as_array().unwrap().iter();
        let names: Vec<_> = stages
            .map(|stage| stage["name"].as_str().unwrap().to_owned())
            .collect();
        names.join(" ")
    };
    // Rules have made one stage of three.
    assert_eq!(names(&paths[1]), "handler:counter datagram");
    assert_eq!(paths[1]["attributes"]["iface"], "veth1");
    assert_eq!(paths[1]["tier"], "kernel");
    assert_eq!(paths[1]["entrances"][0]["filter"], "udp and dst port 7777");
    let log = paths[0]["log"].as_array().unwrap();
    let phases: Vec<_> = log
        .iter()
        .map(|entry| entry["phase"].as_str().unwrap())
        .collect();
    assert!(phases.is_sorted_by_key(|phase| {
        ["stages", "combine", "establish", "transform"]
            .iter()
            .position(|known| known == phase)
    }));
    assert_eq!(log[1]["who"], "udp");
    assert_eq!(log[1]["changes"][0]["after"], 17);

    // A relay has two ends, each with a filter of its own.
    let relayed = &json(&["path", "plan", "CONFIG", "relayed"], &config)["paths"][0];
    assert_eq!(relayed["tier"], "kernel", "{relayed:#}");
    let filters: Vec<_> = relayed["entrances"].as_array().unwrap().iter().collect();
    assert_eq!(filters.len(), 2);
    assert_eq!(filters[0]["iface"], "veth1");
    assert_eq!(
        filters[0]["filter"],
        "ip and dst host 10.0.1.1 and udp and dst port 9000"
    );
    let (text, _) = ashway(0, &["path", "plan", "CONFIG", "relayed", "-v"], &config);
    for line in [
        "remote - -> 10.0.3.2:9",
        "pathname udp/relay -> relay",
        "merge-length-checks",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}

#[test]
fn weaker_attributes_give_a_shorter_path() {
    let directory = with_handler("weaker");
    let config = directory.file("node.toml", CONFIG);
    let from = ["path", "plan", "CONFIG", "--from", "eth:veth0"];
    let (text, _) = ashway(0, &[&from[..], &["-v"]].concat(), &config);
    assert!(text.contains("nothing decides"), "{text}");
    let strong = [&from[..], &["--attr", "pathname=udp/handler:counter"]].concat();
    let planned = json(&strong, &config);
    let stages = planned["paths"][0]["stages"].as_array().unwrap();
    assert_eq!(stages.last().unwrap()["name"], "handler:counter");

    let wrong = [&from[..], &["--attr", "pathname=udp/conter"]].concat();
    let (_, error) = ashway(2, &wrong, &config);
    assert!(error.contains("`conter`"), "{error}");
    ashway(2, &[&from[..], &["--attr", "mtu"]].concat(), &config);
    let hops = [
        "--from",
        "handler:counter",
        "--attr",
        "pathname=udp/eth:veth0",
        "--attr",
        "ttl=9",
    ];
    let (text, _) = ashway(
        0,
        &[&["path", "plan", "CONFIG"][..], &hops].concat(),
        &config,
    );
    assert!(
        text.contains("tier: user, because the attribute `ttl`"),
        "{text}"
    );
    let (_, error) = ashway(2, &["path", "plan", "CONFIG", "icn"], &config);
    assert!(error.contains("did you mean `inc`?"), "{error}");
    ashway(2, &["path", "plan", "CONFIG"], &config);
}

#[test]
fn the_demux_is_a_tree_of_shapes() {
    let directory = with_handler("show");
    let config = directory.file("node.toml", CONFIG);
    let (text, _) = ashway(0, &["demux", "show", "CONFIG", "--iface", "veth0"], &config);
    assert!(
        text.starts_with("veth0: 3 filters, 4 shapes\n  no tag\n    type ip\n"),
        "{text}"
    );
    assert!(!text.contains("veth1"), "{text}");
    let document = json(&["demux", "show", "CONFIG"], &config);
    let veth0 = &document["interfaces"][0];
    assert_eq!(
        (&veth0["name"], &veth0["filters"]),
        (&"veth0".into(), &3.into())
    );
    // The most specific is tried first.
    let first: Vec<_> = veth0["shapes"].as_array().unwrap().iter().collect();
    let paths: Vec<_> = first
        .iter()
        .map(|shape| &shape["paths"][0]["path"])
        .collect();
    assert_eq!(paths, ["relayed", "known", "inc", "inc"]);
    let (_, error) = ashway(2, &["demux", "show", "CONFIG", "--iface", "veth9"], &config);
    assert!(error.contains("`[iface.veth9]`"), "{error}");
}

/// A frame with a UDP datagram over IPv4; checksums do not matter to demux.
fn frame(source: [u8; 4], destination: [u8; 4], ports: [u16; 2]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    frame.extend([0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0]);
    frame.extend(source.into_iter().chain(destination));
    frame.extend(ports.map(u16::to_be_bytes).as_flattened());
    frame.extend([0, 8, 0, 0]);
    frame
}

#[test]
fn each_frame_of_a_capture_has_its_path() {
    let directory = with_handler("match");
    let config = directory.file("node.toml", CONFIG);
    let capture = directory.0.join("in.pcap");
    let header = PcapHeader {
        datalink: DataLink::ETHERNET,
        ts_resolution: TsResolution::NanoSecond,
        ..PcapHeader::default()
    };
    let mut writer = PcapWriter::with_header(fs::File::create(&capture).unwrap(), header).unwrap();
    let here = [10, 0, 1, 1];
    let mut arp = vec![0xff; 12];
    arp.extend([8, 6]);
    let frames = [
        frame([192, 0, 2, 1], here, [5, 7777]),
        frame([10, 9, 9, 9], here, [5, 7777]),
        frame([10, 0, 3, 2], [10, 0, 3, 1], [9, 9001]),
        frame([192, 0, 2, 1], here, [5, 7778]),
        arp,
    ];
    for frame in &frames {
        let packet = PcapPacket::new(Duration::ZERO, frame.len() as u32, frame);
        writer.write_packet(&packet).unwrap();
    }
    drop(writer);
    let name = capture.to_str().unwrap();
    let on = |iface: &str| {
        let words = ["demux", "match", "CONFIG", name, "--iface", iface, "-j"];
        let lines = ashway(0, &words, &config).0;
        let documents: Vec<Value> = lines
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(documents[4]["packet"], 5);
        documents
            .into_iter()
            .map(|it| it["path"].clone())
            .collect::<Vec<_>>()
    };
    let path = |name: &str| Value::from(name);
    assert_eq!(
        on("veth0"),
        [
            path("inc"),
            path("known"),
            path("relayed"),
            Value::Null,
            Value::Null
        ]
    );
    assert_eq!(on("veth1")[..3], [path("inc"), path("inc"), Value::Null]);
    let words = ["demux", "match", "CONFIG", name, "--iface", "veth0"];
    let (text, _) = ashway(0, &words, &config);
    assert!(
        text.ends_with("5 packets on veth0: 1 to inc, 1 to known, 1 to relayed, 2 to the host\n"),
        "{text}"
    );
    let (_, error) = ashway(2, &words[..4], &config);
    assert!(error.contains("veth0, veth1"), "{error}");

    // What can be read of a broken capture is shown.
    let bytes = fs::read(&capture).unwrap();
    fs::write(&capture, &bytes[..bytes.len() - 3]).unwrap();
    let (text, error) = ashway(1, &words, &config);
    assert!(text.contains("4 packets"), "{text}");
    assert!(error.contains("packet 5"), "{error}");
}
