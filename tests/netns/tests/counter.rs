//! Remote increment (ASH-8, ASH-34): an ordinary client asks, the message is
//! answered where it arrives, and the sums are right.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::process::Stdio;

use ashway_netns::node::{entry, stock, text};
use ashway_netns::traffic::{PLACES, Place, SOON, TIERS, path, settle};
use ashway_rig::frames::checksum;
use ashway_rig::{
    Frame, Injector, MAC_A, MAC_B, Node, Process, Rig, RigOptions, Spoil, skip_unless_root,
};

const EACH: u32 = 1000;

/// Both kinds of wire: as a system makes it, and one whose far end polls (GRO),
/// with the way that replies leave the kernel tier there.
fn wires(name: &str) -> [(Rig, &'static str); 2] {
    [
        (stock(&format!("{name}-stock")), "tcx"),
        (
            Rig::new(&format!("{name}-gro"), RigOptions::default()).unwrap(),
            "redirect",
        ),
    ]
}

fn counter(rig: &Rig, place: Place, params: &str) -> Node {
    let config = place.config().handler("counter").unwrap().text(params);
    let node = rig
        .node(path(config, "inc", "counter", 7777, place, ""))
        .start()
        .unwrap();
    let status = node.status().unwrap();
    assert_eq!(entry(&status, "paths", "inc")["tier"], place.tier);
    node
}

/// Datagrams that a host took for broken, by `/proc/net`.
fn bad_checksums(rig: &Rig) -> u64 {
    let read = |file: &str| {
        let output = rig.command_a("cat").arg(file).output().unwrap();
        text(&output)
    };
    let snmp = read("/proc/net/snmp");
    let mut udp = snmp.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let names = udp.next().unwrap().split_whitespace();
    let values = udp.next().unwrap().split_whitespace();
    let v4 = names.zip(values).find(|(name, _)| *name == "InCsumErrors");
    let snmp6 = read("/proc/net/snmp6");
    let mut lines = snmp6.lines().map(|line| line.split_whitespace());
    let v6 = lines.find_map(|mut words| {
        let found = words.next() == Some("Udp6InCsumErrors");
        found.then(|| words.next().unwrap().to_owned())
    });
    v4.unwrap().1.parse::<u64>().unwrap() + v6.unwrap().parse::<u64>().unwrap()
}

#[test]
fn an_ordinary_client_gets_every_sum() {
    if skip_unless_root() {
        return;
    }
    for (rig, reply) in wires("sums") {
        for place in PLACES {
            let node = counter(&rig, place, "");
            let mut sum = 0_u32;
            for client in [rig.client_a(7777).unwrap(), rig.client_a_v6(7777).unwrap()] {
                for i in 0..EACH {
                    let number = i % 7;
                    sum += number;
                    assert_eq!(client.ask_number(number).unwrap(), sum, "{place}, {reply}");
                }
            }
            let asked = u64::from(EACH) * 2;
            settle(&node, "inc", asked).assert_fates(&[("answered", asked)], &place);
            let status = node.status().unwrap();
            let way = match place.mode {
                "packet" => "packet",
                "tcx" => "redirect",
                _ => reply,
            };
            assert_eq!(entry(&status, "interfaces", "b0")["reply"], way, "{place}");
            assert_eq!(bad_checksums(&rig), 0, "{place}, {reply}");
            node.stop().unwrap();
        }
    }
}

#[test]
fn a_sum_wraps_and_a_parameter_multiplies() {
    if skip_unless_root() {
        return;
    }
    let rig = stock("step");
    for place in TIERS {
        let node = counter(&rig, place, "params = { step = 3 }");
        let client = rig.client_a(7777).unwrap();
        for (number, sum) in [
            (1, 3),
            (5, 18),
            (0, 18),
            (u32::MAX, 15),
            (u32::MAX - 5, 0xffff_fffd),
        ] {
            assert_eq!(client.ask_number(number).unwrap(), sum, "{place}");
        }
        settle(&node, "inc", 5).assert_fates(&[("answered", 5)], &place);
        node.stop().unwrap();
    }
}

/// Programs nobody here wrote, on a wire as a system makes it.
#[test]
fn foreign_clients_are_answered() {
    if skip_unless_root() {
        return;
    }
    let rig = stock("foreign-client");
    for place in TIERS {
        let node = counter(&rig, place, "");
        let mut sum = 0;
        for words in [
            &["nc", "-u", "10.7.0.2", "7777"][..],
            &["nc", "-u", "-6", "fd07::2", "7777"],
            &["socat", "-", "UDP4:10.7.0.2:7777"],
            &["socat", "-", "UDP6:[fd07::2]:7777"],
        ] {
            // `timeout` only so that a missing answer ends the test.
            let mut command = rig.command_a("timeout");
            command.arg("20").args(words);
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut client = Process::spawn(command).unwrap();
            let mut input = client.child().stdin.take().unwrap();
            let mut output = client.child().stdout.take().unwrap();
            for number in [5_u32, 1000] {
                sum += number;
                input.write_all(&number.to_be_bytes()).unwrap();
                let mut reply = [0; 4];
                output
                    .read_exact(&mut reply)
                    .unwrap_or_else(|why| panic!("{place}: {words:?} got no answer: {why}"));
                assert_eq!(u32::from_be_bytes(reply), sum, "{place}: {words:?}");
            }
        }
        settle(&node, "inc", 8).assert_fates(&[("answered", 8)], &place);
        node.stop().unwrap();
    }
}

/// What the reply to a frame must be, to the byte.
fn reply_to(request: &Frame, payload: Vec<u8>) -> Vec<u8> {
    Frame {
        eth_source: MAC_B,
        eth_destination: MAC_A,
        source: request.destination,
        destination: request.source,
        source_port: request.destination_port,
        destination_port: request.source_port,
        payload,
        spoils: Vec::new(),
    }
    .bytes()
}

/// The next frame that is not about multicast groups, which B's own stack
/// reports by itself (RFC 3810).
fn udp_from(wire: &Injector) -> Vec<u8> {
    loop {
        let frame = wire.receive(SOON).expect("a reply comes");
        if frame[0] & 1 == 0 {
            return frame;
        }
    }
}

/// Gives an IPv4 or IPv6 frame another TTL, with a true checksum.
fn with_ttl(mut frame: Vec<u8>, ttl: u8) -> Vec<u8> {
    if frame[12..14] == [0x86, 0xdd] {
        frame[21] = ttl;
    } else {
        frame[22] = ttl;
        frame[24..26].fill(0);
        let sum = checksum(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
    }
    frame
}

/// Replies are whole frames with true checksums, whatever way they leave: of
/// any length, from any TTL, with and without a checksum in the request.
#[test]
fn a_reply_is_right_to_the_byte() {
    if skip_unless_root() {
        return;
    }
    let lengths = (4..=72).chain([100, 255, 511, 1000, 1451, 1452]);
    for (rig, way) in wires("bytes") {
        // Somebody must listen, or A complains about every reply.
        let any: SocketAddr = "[::]:40000".parse().unwrap();
        let _swallow = rig.in_a(|| std::net::UdpSocket::bind(any)).unwrap();
        for place in PLACES {
            let node = counter(&rig, place, "");
            let wire = rig.injector_a().unwrap();
            let mut asked = 0;
            for len in lengths.clone() {
                let tail: Vec<u8> = (4..len).map(|i| (i * 7) as u8).collect();
                let payload = |number: u32| [&number.to_be_bytes()[..], &tail].concat();
                for (request, ttl) in [
                    (Frame::to_b(7777, &payload(1)), 64),
                    (Frame::to_b_v6(7777, &payload(1)), 64),
                    (Frame::to_b(7777, &payload(1)), 1 + (len % 255) as u8),
                    (Frame::to_b_v6(7777, &payload(1)), 1 + (len % 255) as u8),
                    (
                        Frame::to_b(7777, &payload(1)).spoil(Spoil::NoUdpChecksum),
                        255,
                    ),
                ] {
                    asked += 1;
                    wire.send(&with_ttl(request.bytes(), ttl)).unwrap();
                    let reply = udp_from(&wire);
                    let expected = reply_to(&request, payload(asked));
                    assert_eq!(reply, expected, "{place}, {way}, {len} bytes, ttl {ttl}");
                }
            }
            let asked = u64::from(asked);
            settle(&node, "inc", asked).assert_fates(&[("answered", asked)], &place);
            node.stop().unwrap();
        }
    }
}

/// Requests with half a checksum, as the kernel's own sockets send on a veth,
/// and with a whole one: the client's host finds nothing wrong with the replies
/// (with an incremental update it would with all: docs/facts.md, "Half a checksum on
/// a veth").
#[test]
fn half_a_checksum_is_enough() {
    if skip_unless_root() {
        return;
    }
    let rig = stock("half-sum");
    for place in TIERS {
        let node = counter(&rig, place, "");
        let mut sum = 0;
        for offload in ["off", "on", "off"] {
            let set = ["-K", "a0", "tx", offload];
            let done = rig.command_a("ethtool").args(set).output().unwrap();
            assert!(done.status.success(), "{}", text(&done));
            for client in [rig.client_a(7777).unwrap(), rig.client_a_v6(7777).unwrap()] {
                sum += 1;
                assert_eq!(client.ask_number(1).unwrap(), sum, "{place}, tx {offload}");
            }
        }
        assert_eq!(bad_checksums(&rig), 0, "{place}");
        settle(&node, "inc", 6).assert_fates(&[("answered", 6)], &place);
        node.stop().unwrap();
    }
}
