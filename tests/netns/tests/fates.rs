//! Each verdict and each fault leads to the fate it should, the same in every
//! place a handler can run (ASH-2, ASH-3).

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};

use ashway_netns::node::{Config, entry, ordinary, stock};
use ashway_netns::traffic::{PLACES, Place, SOON, heard, path, request, settle};
use ashway_rig::{A4, B4, Node, Rig, UdpClient, skip_unless_root};
use serde_json::Value;

/// Starts a node and makes sure that every path is in the tier it was meant for:
/// else a test would test one tier twice.
fn start(rig: &Rig, config: Config, place: Place) -> Node {
    let node = rig.node(config).start().unwrap();
    let status = node.status().unwrap();
    for path in status["paths"].as_array().unwrap() {
        assert_eq!(path["tier"], place.tier, "{place}: {}", node.output());
    }
    node
}

/// An ordinary socket of B hears exactly these messages, in this order, from
/// this client.
fn assert_hears(host: &UdpSocket, client: &UdpClient, messages: &[Vec<u8>], what: &str) {
    host.set_read_timeout(Some(SOON)).unwrap();
    let sender = client.socket().local_addr().unwrap();
    let mut bytes = [0; 4096];
    for message in messages {
        let (len, from) = host
            .recv_from(&mut bytes)
            .unwrap_or_else(|why| panic!("{what}: the host does not hear {message:?}: {why}"));
        assert_eq!(bytes[..len], message[..], "{what}");
        assert_eq!(from, sender, "{what}");
    }
    assert_eq!(heard(host), [], "{what}: the host hears too much");
}

/// Takes what is for port 7020, by the header in front of the message, and answers with 1 in its
/// first byte; the rest is the host's.
const CLASSIFIES: &str = r#"(module
    (import "ashway" "msg_load16be" (func $load (param i32) (result i32)))
    (import "ashway" "msg_store8" (func $store (param i32 i32)))
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param i32 i32) (result i32)
        (if (i32.ne (call $load (i32.const -6)) (i32.const 7020)) (then
            (return (i32.const 3))))
        (call $store (i32.const 0) (i32.const 1))
        (i32.const 1)))"#;

/// SBX-12: the classifier in the kernel leads all UDP but one port's to a handler, which tells
/// flows apart itself, by their headers; its flow is diverted, that of the more specific path goes
/// by the kernel's word alone, and the host's others reach their sockets untouched: UDP on two ports,
/// and a TCP connection (as SSH has) that goes on all the time.
#[test]
fn a_classifier_in_the_handler_diverts_its_flow_alone() {
    const EACH: u32 = 40;
    if skip_unless_root() {
        return;
    }
    let rig = stock("classify");
    let file = std::env::temp_dir().join(format!("ashway-classify-{}.wasm", std::process::id()));
    std::fs::write(&file, wat::parse_str(CLASSIFIES).unwrap()).unwrap();
    let hosts = [7021, 7022].map(|port| ordinary(&rig, port));
    let listener = rig.in_b(|| TcpListener::bind(("0.0.0.0", 22))).unwrap();
    let ssh = std::thread::spawn(move || {
        let (mut peer, _) = listener.accept().unwrap();
        let mut bytes = [0; 4];
        while peer.read_exact(&mut bytes).is_ok() {
            peer.write_all(&bytes).unwrap();
        }
    });
    let mut session = rig.in_a(|| TcpStream::connect((B4, 22))).unwrap();
    session.set_read_timeout(Some(SOON)).unwrap();
    for place in PLACES {
        let config = place.config().handler_file("classifies", &file);
        let config = config.handler("echo").unwrap().text(&format!(
            "[path.all]\niface = \"b0\"\nmatch = \"udp\"\nhandler = \"classifies\"\n\
             tier = {:?}",
            place.tier
        ));
        let config = path(config, "one", "echo", 7023, place, "");
        let node = start(&rig, config, place);
        let [own, other, third, one] =
            [7020, 7021, 7022, 7023].map(|port| rig.client_a(port).unwrap());
        let message = |i: u32| request(i | 0x8000_0000, i).to_vec();
        for i in 0..EACH {
            let mut answer = message(i);
            answer[0] = 1;
            assert_eq!(own.ask(&message(i)).unwrap(), answer, "{place}");
            assert_eq!(one.ask(&message(i)).unwrap(), message(i), "{place}");
            for client in [&other, &third] {
                client.send(&message(i)).unwrap();
            }
            session.write_all(&i.to_be_bytes()).unwrap();
            let mut bytes = [0; 4];
            session.read_exact(&mut bytes).unwrap();
            assert_eq!(bytes, i.to_be_bytes(), "{place}");
        }
        let messages: Vec<_> = (0..EACH).map(message).collect();
        for (host, client) in hosts.iter().zip([&other, &third]) {
            assert_hears(host, client, &messages, &place.to_string());
        }
        let each = u64::from(EACH);
        let fates = [("answered", each), ("passed", 2 * each)];
        settle(&node, "all", 3 * each).assert_fates(&fates, &place);
        settle(&node, "one", each).assert_fates(&[("answered", each)], &place);
        node.stop().unwrap();
    }
    drop(session);
    ssh.join().unwrap();
    std::fs::remove_file(&file).unwrap();
}

/// ASH-3: what a handler does not want, the host gets as if there were none.
#[test]
fn even_numbers_are_consumed_and_odd_ones_reach_the_host() {
    // Half of them may wait in the host's socket at a time, with pages of their own.
    const EACH: u32 = 60;
    if skip_unless_root() {
        return;
    }
    let rig = stock("even");
    let host = ordinary(&rig, 7002);
    let host6 = rig.in_b(|| UdpSocket::bind(("fd07::2", 7002))).unwrap();
    for place in PLACES {
        let config = place.config().handler("even").unwrap();
        let config = path(config, "even", "even", 7002, place, "");
        let node = start(&rig, config, place);
        let wanted = |i: &u32| i.is_multiple_of(2);
        let message = |i: u32| {
            let mut bytes = request(i, !i).to_vec();
            bytes.resize(8 + i as usize % 60, i as u8);
            bytes
        };
        let odd: Vec<Vec<u8>> = (0..EACH).filter(|i| !wanted(i)).map(message).collect();
        for (client, host) in [
            (rig.client_a(7002).unwrap(), &host),
            (rig.client_a_v6(7002).unwrap(), &host6),
        ] {
            for i in 0..EACH {
                client.send(&message(i)).unwrap();
            }
            assert_hears(host, &client, &odd, &place.to_string());
        }
        let each = u64::from(EACH);
        settle(&node, "even", 2 * each)
            .assert_fates(&[("consumed", each), ("passed", each)], &place);
        // And the host can answer.
        let client = rig.client_a(7002).unwrap();
        client.send(&request(1, 0)).unwrap();
        let mut bytes = [0; 8];
        let (_, from) = host.recv_from(&mut bytes).unwrap();
        host.send_to(b"from the host", from).unwrap();
        assert_eq!(client.receive().unwrap(), b"from the host", "{place}");
        node.stop().unwrap();
    }
}

#[test]
fn messages_of_any_length_come_back() {
    if skip_unless_root() {
        return;
    }
    let rig = stock("echo");
    for place in PLACES {
        let config = place.config().handler("echo").unwrap();
        let node = start(&rig, path(config, "echo", "echo", 7001, place, ""), place);
        let mut asked = 0;
        for client in [rig.client_a(7001).unwrap(), rig.client_a_v6(7001).unwrap()] {
            for len in (0..100).chain([1023, 1024, 1025, 1452]) {
                let message: Vec<u8> = (0..len).map(|i| (i * 31 + len) as u8).collect();
                assert_eq!(client.ask(&message).unwrap(), message, "{place}");
                asked += 1;
            }
        }
        settle(&node, "echo", asked).assert_fates(&[("answered", asked)], &place);
        node.stop().unwrap();
    }
}

/// A request of the lock protocol (`apps/handlers/lock.c`).
fn lock(operation: u8, lock: u16, owner: u32) -> Vec<u8> {
    let [high, low] = lock.to_be_bytes();
    [&[operation, 0, high, low][..], &owner.to_be_bytes()].concat()
}

#[test]
fn a_lock_is_acquired_refused_and_released() {
    const ACQUIRE: u8 = 1;
    const RELEASE: u8 = 2;
    const GRANTED: u8 = 0;
    const HELD: u8 = 1;
    const NOT_OWNER: u8 = 2;
    const BAD_REQUEST: u8 = 3;
    if skip_unless_root() {
        return;
    }
    let rig = stock("locks");
    let host = ordinary(&rig, 7003);
    for place in PLACES {
        let config = place.config().handler("lock").unwrap();
        let node = start(&rig, path(config, "lock", "lock", 7003, place, ""), place);
        // Two clients who see each other's locks; the short message is nobody's.
        let (one, two) = (rig.client_a(7003).unwrap(), rig.client_a_v6(7003).unwrap());
        let steps = [
            (&one, lock(ACQUIRE, 7, 100), GRANTED),
            (&two, lock(ACQUIRE, 7, 200), HELD),
            (&one, lock(ACQUIRE, 7, 100), GRANTED),
            (&two, lock(RELEASE, 7, 200), NOT_OWNER),
            (&two, lock(ACQUIRE, 255, 200), GRANTED),
            (&one, lock(RELEASE, 7, 100), GRANTED),
            (&two, lock(ACQUIRE, 7, 200), GRANTED),
            (&one, lock(ACQUIRE, 256, 100), BAD_REQUEST),
            (&one, lock(3, 1, 100), BAD_REQUEST),
            (&one, lock(ACQUIRE, 1, 0), BAD_REQUEST),
        ];
        for (i, (client, request, status)) in steps.iter().enumerate() {
            let reply = client.ask(request).unwrap();
            assert_eq!(reply[0], *status, "{place}, step {i}");
            assert_eq!(reply[1..], request[1..], "{place}, step {i}");
        }
        one.send(&[ACQUIRE, 0, 0]).unwrap();
        assert_hears(&host, &one, &[vec![ACQUIRE, 0, 0]], &place.to_string());
        settle(&node, "lock", 11).assert_fates(&[("answered", 10), ("passed", 1)], &place);
        node.stop().unwrap();
    }
}

/// A handler that is stopped: by which message, why, and where.
struct Fault {
    handler: &'static str,
    message: Vec<u8>,
    cause: &'static str,
    /// The line of its source.
    line: u32,
    /// Whether it had changed the message by then.
    changed: bool,
}

fn faults() -> Vec<Fault> {
    let numbers = |a: i32, b: i32| [a.to_be_bytes(), b.to_be_bytes()].concat();
    let fault = |handler, message, cause, line| Fault {
        handler,
        message,
        cause,
        line,
        changed: false,
    };
    vec![
        fault("badverdict", b"any".to_vec(), "bad_verdict", 9),
        fault("dirty", vec![], "unreachable", 14),
        Fault {
            changed: true,
            ..fault("dirty", b"clean".to_vec(), "unreachable", 14)
        },
        fault("divide", numbers(7, 0), "divide_by_zero", 18),
        fault("divide", numbers(i32::MIN, -1), "overflow", 18),
        fault("outside", numbers(8, 0), "message_bounds", 15),
        fault("outside", numbers(5, 0), "message_bounds", 15),
        fault("outside", numbers(-400, 0), "message_bounds", 15),
        fault("wild", numbers(-1, 1), "memory_bounds", 17),
        fault("wild", numbers(-4, 1), "memory_bounds", 17),
        fault("wild", numbers(i32::MAX, 1), "memory_bounds", 17),
        fault("wild", numbers(0x4000_0000, 1), "memory_bounds", 17),
    ]
}

fn last_fault(node: &Node, handler: &str) -> Value {
    entry(&node.status().unwrap(), "handlers", handler)["last_fault"].clone()
}

/// Two paths to each handler, one for each way to go on after a fault.
fn faulty(place: Place) -> Config {
    let mut config = place.config();
    for (i, handler) in FAULTY.into_iter().enumerate() {
        config = config.handler(handler).unwrap();
        for (on_fault, port) in [("pass", 7100), ("drop", 7200)] {
            let name = format!("{handler}_{on_fault}");
            let more = format!("on_fault = {on_fault:?}");
            config = path(config, &name, handler, port + i as u16, place, &more);
        }
    }
    config
}

const FAULTY: [&str; 5] = ["badverdict", "dirty", "divide", "outside", "wild"];

fn port_of(handler: &str, base: u16) -> u16 {
    let found = FAULTY.into_iter().position(|name| name == handler);
    base + found.unwrap() as u16
}

/// Every fault is counted by its cause and named by its source line; then the
/// message goes to the host or is dropped, as the path says, but to the host
/// only if it is still what was sent.
#[test]
fn a_fault_is_counted_named_and_its_message_passed_or_dropped() {
    if skip_unless_root() {
        return;
    }
    let rig = stock("faults");
    let mut hosts = BTreeMap::new();
    for place in PLACES {
        let node = start(&rig, faulty(place), place);
        let mut seen = BTreeMap::<String, u64>::new();
        let mut fates = BTreeMap::<(String, &str), u64>::new();
        for (base, on_fault) in [(7100, "pass"), (7200, "drop")] {
            for (i, fault) in faults().iter().enumerate() {
                let what = format!("{place}, {} {on_fault}, fault {i}", fault.handler);
                let port = port_of(fault.handler, base);
                // Made once: while another test forks, a port is not free at once.
                let host = hosts.entry(port).or_insert_with(|| ordinary(&rig, port));
                let client = rig.client_a(port).unwrap();
                client.send(&fault.message).unwrap();
                let fate = match (fault.changed, on_fault) {
                    (true, _) => "aborted_dirty",
                    (false, "pass") => "passed",
                    _ => "dropped_fault",
                };
                let name = format!("{}_{on_fault}", fault.handler);
                *seen.entry(fault.handler.to_owned()).or_default() += 1;
                *fates.entry((name.clone(), fate)).or_default() += 1;

                // Where it ended is known before the host is asked.
                let received = fates
                    .iter()
                    .filter_map(|((path, _), count)| (*path == name).then_some(count))
                    .sum();
                let ledger = settle(&node, &name, received);
                let expected: Vec<(&str, u64)> = fates
                    .iter()
                    .filter(|((path, _), _)| *path == name)
                    .map(|((_, fate), count)| (*fate, *count))
                    .collect();
                ledger.assert_fates(&expected, &what);
                assert_eq!(ledger.aborts.values().sum::<u64>(), received, "{what}");
                assert!(
                    ledger.aborts.contains_key(fault.cause),
                    "{what}: {ledger:?}"
                );
                let reaches_host = fate == "passed";
                let messages: Vec<_> = reaches_host
                    .then(|| fault.message.clone())
                    .into_iter()
                    .collect();
                assert_hears(host, &client, &messages, &what);

                let said = last_fault(&node, fault.handler);
                assert_eq!(said["cause"], fault.cause, "{what}: {said}");
                assert_eq!(said["count"], seen[fault.handler], "{what}: {said}");
                assert_eq!(said["line"], fault.line, "{what}: {said}");
                let file = said["file"].as_str().unwrap();
                let source = format!("{}.c", fault.handler);
                assert!(file.ends_with(&source), "{what}: {said}");
            }
        }
        node.stop().unwrap();
    }
}

/// A handler that faults on one message is as good as new for the next.
#[test]
fn after_a_fault_the_handler_goes_on() {
    if skip_unless_root() {
        return;
    }
    let rig = stock("goes-on");
    for place in PLACES {
        let node = start(&rig, faulty(place), place);
        let numbers = |a: i32, b: i32| [a.to_be_bytes(), b.to_be_bytes()].concat();
        let divide = rig.client_a(port_of("divide", 7200)).unwrap();
        let outside = rig.client_a(port_of("outside", 7200)).unwrap();
        let wild = rig.client_a(port_of("wild", 7200)).unwrap();
        for i in 1..=20 {
            divide.send(&numbers(i, 0)).unwrap();
            assert_eq!(divide.ask(&numbers(-6 * i, 3)).unwrap(), numbers(-2 * i, 3));
            outside.send(&numbers(8, i)).unwrap();
            assert_eq!(
                outside.ask(&numbers(4, i)).unwrap(),
                numbers(i, i),
                "{place}"
            );
            wild.send(&numbers(-1, i)).unwrap();
            // An address of its stack that nothing else uses.
            assert_eq!(
                wild.ask(&numbers(64, i)).unwrap(),
                numbers(64, i),
                "{place}"
            );
        }
        for (handler, cause) in [
            ("divide", "divide_by_zero"),
            ("outside", "message_bounds"),
            ("wild", "memory_bounds"),
        ] {
            let ledger = settle(&node, &format!("{handler}_drop"), 40);
            ledger.assert_fates(&[("answered", 20), ("dropped_fault", 20)], &place);
            assert_eq!(ledger.aborts.get(cause), Some(&20), "{place}: {ledger:?}");
        }
        node.stop().unwrap();
    }
}

/// `on_fault = "demote"`: the handler loses the kernel tier and goes on.
#[test]
fn a_fault_can_demote() {
    if skip_unless_root() {
        return;
    }
    let rig = stock("demotes");
    let place = PLACES[1];
    let config = place.config().handler("divide").unwrap();
    let config = path(
        config,
        "divide",
        "divide",
        7004,
        place,
        "on_fault = \"demote\"",
    );
    let node = start(&rig, config, place);
    let numbers = |a: i32, b: i32| [a.to_be_bytes(), b.to_be_bytes()].concat();
    let host = ordinary(&rig, 7004);
    let client = rig.client_a(7004).unwrap();
    assert_eq!(client.ask(&numbers(6, 3)).unwrap(), numbers(2, 3));
    client.send(&numbers(6, 0)).unwrap();
    assert_hears(&host, &client, &[numbers(6, 0)], "demote");
    node.wait_for_line(|line| line.contains("path `divide` demoted"))
        .unwrap();
    let status = node.status().unwrap();
    assert_eq!(entry(&status, "paths", "divide")["tier"], "user");
    let why = &entry(&status, "handlers", "divide")["promotion"]["because"];
    assert_eq!(why, "demoted: its handler was stopped");
    assert_eq!(client.ask(&numbers(8, 2)).unwrap(), numbers(4, 2));
    let ledger = settle(&node, "divide", 3);
    ledger.assert_fates(&[("answered", 2), ("passed", 1)], &"demote");
    assert_eq!(ledger.notes.get("queued_tier"), Some(&1), "{ledger:?}");
    node.stop().unwrap();
}

/// A verdict that was not granted is none.
#[test]
fn a_reply_without_the_grant_is_a_bad_verdict() {
    if skip_unless_root() {
        return;
    }
    let rig = stock("mute");
    let file = ashway_rig::handler("echo").unwrap();
    let host = ordinary(&rig, 7005);
    for place in PLACES {
        let config = place
            .config()
            .text(&format!("[handler.mute]\nfile = {file:?}"));
        let node = start(&rig, path(config, "mute", "mute", 7005, place, ""), place);
        let client = rig.client_a(7005).unwrap();
        client.send(b"no answer").unwrap();
        assert_hears(&host, &client, &[b"no answer".to_vec()], &place.to_string());
        let ledger = settle(&node, "mute", 1);
        ledger.assert_fates(&[("passed", 1)], &place);
        assert_eq!(ledger.aborts.get("bad_verdict"), Some(&1), "{place}");
        let hint = &last_fault(&node, "mute")["hint"];
        let hint = hint.as_str().unwrap();
        assert!(
            hint.contains("`allow = [\"reply\"]` in `[handler.mute]`"),
            "{hint}"
        );
        node.stop().unwrap();
    }
}

/// The more specific of two filters gets a message, in each of the orders of
/// the file, and what matches none is the host's.
#[test]
fn the_more_specific_path_wins() {
    if skip_unless_root() {
        return;
    }
    let rig = stock("specific");
    for place in PLACES {
        for first in [true, false] {
            let general = "[path.general]\niface = \"b0\"\nmatch = \"udp and dst port 7006\"\n\
                           handler = \"echo\"";
            let special = format!(
                "[path.special]\niface = \"b0\"\nhandler = \"counter\"\n\
                 match = \"udp and dst port 7006 and src host {A4} and src port 5555\""
            );
            let tier = format!("tier = {:?}", place.tier);
            let config = place.config().handler("echo").unwrap();
            let config = config.handler("counter").unwrap();
            let (one, two) = if first {
                (general, &special[..])
            } else {
                (&special[..], general)
            };
            let config = config.text(one).text(&tier).text(two).text(&tier);
            let node = start(&rig, config, place);
            let any = rig.client_a(7006).unwrap();
            let server: SocketAddr = "10.7.0.2:7006".parse().unwrap();
            let special = rig.in_a(|| UdpClient::connect_from(5555, server)).unwrap();
            for sum in 1..=3 {
                assert_eq!(any.ask_number(1).unwrap(), 1, "{place}");
                assert_eq!(special.ask_number(1).unwrap(), sum, "{place}");
            }
            for path in ["general", "special"] {
                settle(&node, path, 3).assert_fates(&[("answered", 3)], &place);
            }
            node.stop().unwrap();
        }
    }
}
