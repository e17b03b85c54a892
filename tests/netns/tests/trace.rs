//! `ashway trace`: what is said of messages is what happened to them, in both tiers
//! and on every rung; and messages do not notice.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use std::time::{Duration, Instant};

use ashway_netns::node::{Config, run, stock, text, until};
use ashway_netns::observe::{Observing, SOON, documents, observes};
use ashway_netns::traffic::{PLACES, Place, TIERS, path, settle, stream, unmatched};
use ashway_rig::{Frame, Node, Rig, RigOptions, Spoil, skip_unless_root};
use rustix::process::Signal;
use serde_json::{Value, json};

const PORT: u16 = 7777;

fn node(rig: &Rig, place: Place) -> Node {
    let config = place.config().handler("counter").unwrap();
    let config = config.handler("divide").unwrap();
    let config = path(config, "inc", "counter", PORT, place, "");
    let more = "on_fault = \"drop\"";
    let config = path(config, "stop", "divide", PORT + 1, place, more);
    rig.node(config).start().unwrap()
}

fn trace(node: &Node, words: &[&str]) -> Observing {
    let words = ["trace", "-j"].iter().chain(words);
    Observing::start(node.command(words)).unwrap()
}

/// What a message's steps are called where it is answered.
fn steps(place: Place) -> &'static [&'static str] {
    match (place.mode, place.tier) {
        (_, "kernel") => &[
            "received",
            "classified",
            "turned_over",
            "handler",
            "fate",
            "sent",
        ],
        ("packet", _) => &[
            "received",
            "classified",
            "stage",
            "stage",
            "handler",
            "fate",
            "stage",
            "sent",
        ],
        _ => &[
            "received",
            "classified",
            "turned_over",
            "queued",
            "taken",
            "stage",
            "handler",
            "fate",
            "stage",
            "sent",
        ],
    }
}

/// What is wrong with what is said of a message of `bytes` bytes, if anything.
fn wrong(packet: &Value, place: Place, bytes: usize) -> Option<String> {
    let told = packet["steps"].as_array()?;
    let names: Vec<_> = told
        .iter()
        .filter_map(|step| step["step"].as_str())
        .collect();
    let mut complaints = Vec::new();
    if names != steps(place) {
        complaints.push(format!("steps {names:?}"));
    }
    let times = told.iter().map(|step| step["at_ns"].as_u64().unwrap());
    let times: Vec<u64> = times.collect();
    if times.first() != Some(&0) || !times.is_sorted() || times.last() == Some(&0) {
        complaints.push(format!("times {times:?}"));
    }
    let find = |name: &str| told.iter().find(|step| step["step"] == name);
    // Into the ring, where the counter works on it. Into the interface's frame.
    let copies = if place.tier == "kernel" {
        [0, 0]
    } else {
        [1, 2]
    };
    for (what, found, expected) in [
        ("path", &packet["path"], json!("inc")),
        ("tier", &packet["tier"], json!(place.tier)),
        ("fate", &packet["fate"], json!("answered")),
        ("came by", &packet["received"]["iface"], json!("b0")),
        ("length", &packet["received"]["bytes"], json!(bytes)),
        ("left by", &packet["sent"][0]["iface"], json!("b0")),
        ("step", &find("fate")?["fate"], json!("answered")),
        ("handler", &find("handler")?["handler"], json!("counter")),
        ("copies", &find("handler")?["copies"], json!(copies[0])),
        ("copies out", &find("sent")?["copies"], json!(copies[1])),
    ] {
        if *found != expected {
            complaints.push(format!("{what} is {found} and not {expected}"));
        }
    }
    (!complaints.is_empty()).then(|| format!("{complaints:?} in {packet:#}"))
}

#[test]
fn each_step_is_told_in_every_place() {
    if skip_unless_root() {
        return;
    }
    let rig = stock("trace");
    for place in PLACES {
        let node = node(&rig, place);
        let observing = trace(&node, &["--path", "inc", "--count", "2"]);
        until("it observes", || observes(&node).then_some(()));
        let client = rig.client_a(PORT).unwrap();
        let request = [0, 0, 0, 5, 1, 2, 3, 4];
        for sum in [5, 10] {
            let answer = client.ask(&request).unwrap();
            assert_eq!(answer[..4], u32::to_be_bytes(sum), "{place}");
        }
        let (said, _) = observing.finish().unwrap();
        let mut said = documents(&said);
        // What was lost of others is said in a line of its own.
        said.retain(|line| line["lost"].is_null());
        assert_eq!(said.len(), 2, "{place}: {said:#?}");
        let bytes = Frame::to_b(PORT, &request).bytes().len();
        for packet in &said {
            assert_eq!(wrong(packet, place, bytes), None, "{place}");
        }
        // The check notices what would be wrong.
        let spoiled: [fn(&mut Value); 6] = [
            |packet| packet["steps"].as_array_mut().unwrap().swap(0, 1),
            |packet| drop(packet["steps"].as_array_mut().unwrap().remove(1)),
            |packet| packet["steps"][1]["at_ns"] = json!(u64::MAX),
            |packet| packet["fate"] = json!("consumed"),
            |packet| packet["sent"] = json!([]),
            |packet| {
                let steps = packet["steps"].as_array_mut().unwrap();
                steps.last_mut().unwrap()["copies"] = json!(6);
            },
        ];
        for spoil in spoiled {
            let mut packet = said[0].clone();
            spoil(&mut packet);
            assert_ne!(wrong(&packet, place, bytes), None, "{packet:#}");
        }

        // For a person, and one whose handler is stopped.
        let observing = Observing::start(node.command(["trace", "--path", "stop", "--count", "1"]));
        let wire = rig.injector_a().unwrap();
        wire.send(&Frame::to_b(PORT + 1, &[0, 0, 0, 7, 0, 0, 0, 0]).bytes())
            .unwrap();
        let (said, _) = observing.unwrap().finish().unwrap();
        for words in ["path `stop`", "dropped_fault", "stopped: divide_by_zero"] {
            assert!(said.contains(words), "{place}: `{words}`: {said}");
        }
        until("the observation ends", || (!observes(&node)).then_some(()));
        let _ = settle(&node, "inc", 2);
        node.stop().unwrap();
    }
}

/// Also what belongs to no path, and what the entry program drops.
#[test]
fn a_filter_chooses_and_the_entry_program_tells_what_it_ends() {
    if skip_unless_root() {
        return;
    }
    let rig = stock("tracefilter");
    for place in PLACES {
        let node = node(&rig, place);
        let words = ["--iface", "b0", "udp and src port 40000", "--count", "2"];
        let chosen = trace(&node, &words);
        let other = trace(&node, &["udp 10.7.0.1:40001 > 10.7.0.2:9", "--count", "1"]);
        let wire = rig.injector_a().unwrap();
        let send = |port, from, spoil| {
            let frame = Frame::to_b(port, b"12345678").from_port(from);
            let frame = if spoil {
                frame.spoil(Spoil::UdpChecksum)
            } else {
                frame
            };
            wire.send(&frame.bytes()).unwrap();
        };
        send(PORT, 40_001, false);
        send(PORT, 40_000, true);
        send(9, 40_001, false);
        send(9, 40_000, false);
        let said = documents(&chosen.finish().unwrap().0);
        let fates: Vec<_> = said.iter().map(|packet| &packet["fate"]).collect();
        assert_eq!(
            fates,
            ["dropped_bad_udp_checksum", "passed"],
            "{place}: {said:#?}"
        );
        assert_eq!(said[0]["path"], "inc", "{place}");
        assert_eq!(said[1]["path"], Value::Null, "{place}");
        assert_eq!(said[0]["steps"][0]["step"], "received", "{place}");
        let said = documents(&other.finish().unwrap().0);
        assert_eq!(
            said[0]["flow"], "udp 10.7.0.1:40001 > 10.7.0.2:9",
            "{place}"
        );
        assert_eq!(said[0]["fate"], "passed", "{place}");
        node.stop().unwrap();
    }
}

/// A path that runs in the user tier as a whole, into a sink.
#[test]
fn a_path_without_a_handler_is_told_by_its_stages() {
    if skip_unless_root() {
        return;
    }
    let rig = stock("tracepath");
    for mode in ["native", "packet"] {
        let config = Config::on_b0(mode).text(
            r#"
[module.end]
kind = "sink"
down = "udp.up"
[module.udp]
kind = "udp"
down = "ip.up"
[path.steady]
from = "end"
attrs = { local = "10.7.0.2:5000", pathname = "eth:b0" }
"#,
        );
        let node = rig.node(config).start().unwrap();
        let observing = trace(&node, &["--path", "steady", "--count", "1"]);
        rig.client_a(5000).unwrap().send(b"down the sink").unwrap();
        let (said, _) = observing.finish().unwrap();
        let said = &documents(&said)[0];
        assert_eq!(said["fate"], "consumed", "{mode}: {said:#}");
        assert_eq!(said["tier"], "user", "{mode}: {said:#}");
        let steps = said["steps"].as_array().unwrap();
        let stages = steps.iter().filter(|step| step["step"] == "stage");
        let stages: Vec<_> = stages.map(|step| step["stage"].as_str().unwrap()).collect();
        assert_eq!(stages.last(), Some(&"end"), "{mode}: {said:#}");
        assert!(stages.len() >= 2, "{mode}: {said:#}");
        node.stop().unwrap();
    }
}

/// A datagram in fragments is copied into the ring, or out of the driver's frame, and once more
/// where it is put together; on its way along two paths, to a handler, it is not copied.
#[test]
fn a_fragmented_message_is_copied_twice() {
    if skip_unless_root() {
        return;
    }
    let rig = stock("tracefrag");
    for mode in ["native", "packet"] {
        let config = Config::on_b0(mode).handler("counter").unwrap();
        let config = config.path("counter", PORT, "user").text(
            "[module.frag]\nkind = 'fragment'\ndown = 'eth:b0.up'\n\
             [path.frags]\nfrom = 'frag'\nattrs = { reassembly_bytes = 40000, mtu = 1500 }\n",
        );
        let node = rig.node(config).start().unwrap();
        let observing = trace(&node, &["--path", "counter", "--count", "1"]);
        until("it observes", || observes(&node).then_some(()));
        rig.client_a(PORT).unwrap().send(&[7; 2000]).unwrap();
        let (said, _) = observing.finish().unwrap();
        let said = documents(&said);
        let steps = said[0]["steps"].as_array().unwrap();
        let copies = steps.iter().filter(|step| step["step"] == "handler");
        let copies: Vec<_> = copies.map(|step| step["copies"].as_u64()).collect();
        assert_eq!(copies, [Some(2)], "{mode}: {said:#?}");
        node.stop().unwrap();
    }
}

/// With sequence numbers: [`stream`] panics if a reply is lost, doubled or overtaken.
#[test]
fn messages_do_not_notice_that_observation_comes_and_goes() {
    const TIMES: u32 = 3;
    if skip_unless_root() {
        return;
    }
    let options = RigOptions {
        gro_on_client: false,
        in_order: true,
        ..RigOptions::default()
    };
    let rig = Rig::new("tracetraffic", options).unwrap();
    for place in [TIERS[0], TIERS[1], PLACES[4]] {
        let node = node(&rig, place);
        let client = rig.client_a(PORT).unwrap();
        let mut sent = 0;
        std::thread::scope(|scope| {
            let observer = scope.spawn(|| {
                for _ in 0..TIMES {
                    let observing = trace(&node, &["--path", "inc", "--count", "20"]);
                    let said = documents(&observing.finish().unwrap().0);
                    // An observer that gets no CPU misses events, and says so.
                    let (lost, packets): (Vec<Value>, Vec<Value>) =
                        said.into_iter().partition(|line| line["packet"].is_null());
                    for packet in packets {
                        let missed = packet["fate"].is_null() && !lost.is_empty();
                        assert!(
                            missed || packet["fate"] == "answered",
                            "{place}: {packet:#}"
                        );
                    }
                    until("the observation ends", || (!observes(&node)).then_some(()));
                }
            });
            while !observer.is_finished() {
                let sums = stream(&client, 1, 1000, 8);
                let expected: Vec<u32> = (sent + 1..=sent + 1000).collect();
                assert_eq!(sums, expected, "{place}");
                sent += 1000;
            }
            observer.join().unwrap();
        });
        println!("{place}: {sent} messages, observed {TIMES} times");
        let ledger = settle(&node, "inc", u64::from(sent));
        ledger.assert_fates(&[("answered", u64::from(sent))], &place);
        node.stop().unwrap();
    }
}

#[test]
fn a_client_that_is_killed_ends_the_observation() {
    if skip_unless_root() {
        return;
    }
    let rig = stock("tracekill");
    let node = node(&rig, TIERS[1]);
    let first = trace(&node, &[]);
    let second = trace(&node, &[]);
    first.process().signal(Signal::KILL).unwrap();
    drop(first);
    std::thread::sleep(SOON);
    assert!(observes(&node), "somebody still observes");
    second.process().signal(Signal::KILL).unwrap();
    let begin = Instant::now();
    until("the observation ends", || (!observes(&node)).then_some(()));
    assert!(begin.elapsed() < 10 * SOON, "{:?}", begin.elapsed());
    let client = rig.client_a(PORT).unwrap();
    let _ = stream(&client, 1, 10, 1);
    node.stop().unwrap();
}

/// Nothing waits for a client that does not read, and what it misses is counted.
#[test]
fn what_is_lost_is_said() {
    const FRAMES: u64 = 40_000;
    if skip_unless_root() {
        return;
    }
    let rig = stock("tracelost");
    let node = node(&rig, TIERS[1]);
    let before = unmatched(&node);
    let file = std::env::temp_dir().join(format!("ashway-{}.pcapng", rig.name()));
    let mut command = node.command(["capture", "-j", "-i", "b0", "udp and dst port 9"]);
    let observing = Observing::start({
        command.arg("-w").arg(&file);
        command
    })
    .unwrap();
    observing.process().signal(Signal::STOP).unwrap();
    let wire = rig.injector_a().unwrap();
    let frame = Frame::to_b(9, &[7; 400]).bytes();
    for sent in 0..FRAMES {
        wire.send(&frame).unwrap();
        if sent % 500 == 0 {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    // All frames have been through, whoever observes.
    until("all frames are counted", || {
        (unmatched(&node) - before >= FRAMES).then_some(())
    });
    std::thread::sleep(SOON);
    observing.process().signal(Signal::CONT).unwrap();
    let mut length = 0;
    until("all that is told is written", || {
        std::thread::sleep(SOON);
        let now = file.metadata().unwrap().len();
        (std::mem::replace(&mut length, now) == now).then_some(())
    });
    let (said, _) = observing.interrupt().unwrap();
    std::fs::remove_file(&file).unwrap();
    let said: Value = serde_json::from_str(&said).unwrap();
    let number = |key: &str| said[key].as_u64().unwrap();
    let (told, lost) = (number("packets"), number("lost"));
    assert!(told > 0 && lost > 0, "{said:#}");
    // Each of these messages is one record; some others are the host's.
    assert!((FRAMES..FRAMES + 100).contains(&(told + lost)), "{said:#}");
    node.stop().unwrap();
}

#[test]
fn exit_codes_say_what_is_wrong() {
    if skip_unless_root() {
        return;
    }
    let rig = stock("tracecodes");
    let node = node(&rig, TIERS[1]);
    for (words, code, says) in [
        (vec!["--iface", "c0"], 1, "no interface `c0`"),
        (vec!["--path", "incc"], 1, "did you mean `inc`"),
        (vec!["udp dst prot 5"], 2, "^^^^"),
        (vec!["--count", "x"], 2, "invalid"),
    ] {
        let output = run(&mut node.command(["trace"].iter().chain(&words)));
        assert_eq!(
            output.status.code(),
            Some(code),
            "{words:?}: {}",
            text(&output)
        );
        assert!(text(&output).contains(says), "{words:?}: {}", text(&output));
    }
    assert!(!observes(&node));
    let socket = node.socket().to_owned();
    node.stop().unwrap();
    let mut command = rig.ashway_b().unwrap();
    let output = run(command.args(["trace", "--socket"]).arg(socket));
    assert_eq!(output.status.code(), Some(5), "{}", text(&output));
}
