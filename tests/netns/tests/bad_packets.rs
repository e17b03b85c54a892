//! Malformed, odd and random frames: each ends where it should and is counted
//! by its reason, nothing crashes, and the path keeps answering.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};

use ashway_netns::node::{ordinary, run, stock, text};
use ashway_netns::traffic::{
    PLACES, Place, Random, TIERS, heard, path, settle, unmatched, until_unmatched,
};
use ashway_rig::{Frame, Injector, MAC_B, Node, Rig, Spoil, UdpClient, skip_unless_root};

/// Where a frame ends: at the host because it matches no path, or as a fate.
const HOST: &str = "host";
const ANSWERED: &str = "answered";
const LENGTH: &str = "dropped_bad_length";
const IP_SUM: &str = "dropped_bad_ip_checksum";
const UDP_SUM: &str = "dropped_bad_udp_checksum";
const FRAGMENT: &str = "dropped_fragment";

const VLAN: &str = "a VLAN's frame";

const PORT: u16 = 7777;

/// A wire on which A says nothing by itself: no complaints about replies that
/// nobody waits for, no reports about multicast groups. Else frames that match
/// no path could not be counted to the frame.
fn quiet(name: &str) -> Rig {
    let rig = stock(name);
    let rules = "add table inet quiet; \
        add chain inet quiet out { type filter hook output priority 0; }; \
        add rule inet quiet out icmp type destination-unreachable drop; \
        add rule inet quiet out icmpv6 type { destination-unreachable, \
            mld-listener-report, mld-listener-done, mld2-listener-report } drop";
    let done = run(rig.command_a("nft").arg(rules));
    assert!(done.status.success(), "{}", text(&done));
    rig
}

fn echo(rig: &Rig, place: Place) -> Node {
    let config = place.config().handler("echo").unwrap();
    rig.node(path(config, "echo", "echo", PORT, place, ""))
        .start()
        .unwrap()
}

/// A node under test, and what it has been sent so far.
struct Bench<'a> {
    node: &'a Node,
    wire: Injector,
    client: UdpClient,
    fates: std::collections::BTreeMap<&'static str, u64>,
    host: u64,
    place: Place,
}

impl<'a> Bench<'a> {
    fn new(rig: &Rig, node: &'a Node, place: Place) -> Self {
        Self {
            node,
            wire: rig.injector_a().unwrap(),
            client: rig.client_a(PORT).unwrap(),
            fates: std::collections::BTreeMap::new(),
            host: unmatched(node),
            place,
        }
    }

    /// Sends frames that must all end in the same way, then looks, and asks an
    /// ordinary question.
    fn send(&mut self, what: &str, frames: &[Vec<u8>], end: &'static str) {
        for frame in frames {
            self.wire.send(frame).unwrap();
        }
        // A packet socket does not see tagged frames at all.
        let unseen = what == VLAN && self.place.mode == "packet";
        if end == HOST {
            self.host += if unseen { 0 } else { frames.len() as u64 };
        } else {
            *self.fates.entry(end).or_default() += frames.len() as u64;
        }
        let answer = self.client.ask(what.as_bytes());
        assert_eq!(answer.unwrap(), what.as_bytes(), "{}: {what}", self.place);
        *self.fates.entry(ANSWERED).or_default() += 1;

        let received = self.fates.values().sum();
        let ledger = settle(self.node, "echo", received);
        let expected: Vec<_> = self
            .fates
            .iter()
            .map(|(name, count)| (*name, *count))
            .collect();
        ledger.assert_fates(&expected, &format!("{}: {what}", self.place));
        until_unmatched(self.node, self.host);
    }
}

/// Frames of both families with a payload of 16 bytes, spoiled in one way.
fn spoiled(spoil: Spoil) -> [Frame; 2] {
    let payload = b"sixteen bytes...";
    [Frame::to_b(PORT, payload), Frame::to_b_v6(PORT, payload)].map(|frame| frame.spoil(spoil))
}

fn v4(spoils: impl IntoIterator<Item = Spoil>) -> Vec<Vec<u8>> {
    let all = spoils.into_iter();
    all.map(|spoil| spoiled(spoil)[0].bytes()).collect()
}

fn v6(spoils: impl IntoIterator<Item = Spoil>) -> Vec<Vec<u8>> {
    let all = spoils.into_iter();
    all.map(|spoil| spoiled(spoil)[1].bytes()).collect()
}

#[test]
fn each_malformed_frame_is_counted_by_its_reason() {
    if skip_unless_root() {
        return;
    }
    let rig = quiet("malformed");
    for place in PLACES {
        let node = echo(&rig, place);
        let mut bench = Bench::new(&rig, &node, place);
        truncated(&mut bench);
        lengths(&mut bench);
        checksums(&mut bench);
        fragments(&mut bench);
        headers(&mut bench);
        node.stop().unwrap();
    }
}

/// Headers are 42 bytes over IPv4 and 62 over IPv6: what ends before has no
/// ports, so it is nobody's; what ends later promises more than there is.
fn truncated(bench: &mut Bench<'_>) {
    let cut = |range: std::ops::Range<usize>| range.map(Spoil::Truncate);
    bench.send("v4 cut before the ports", &v4(cut(14..42)), HOST);
    bench.send("v4 cut in the payload", &v4(cut(42..58)), LENGTH);
    bench.send("v6 cut before the ports", &v6(cut(14..62)), HOST);
    bench.send("v6 cut in the payload", &v6(cut(62..78)), LENGTH);
}

fn lengths(bench: &mut Bench<'_>) {
    let udp = |lengths: &[u16]| {
        let spoils = lengths.iter().map(|len| Spoil::UdpLength(*len));
        spoils.collect::<Vec<_>>()
    };
    let ip = |lengths: &[u16]| {
        let spoils = lengths.iter().map(|len| Spoil::IpLength(*len));
        spoils.collect::<Vec<_>>()
    };
    // 24 would be true.
    let lies = udp(&[0, 1, 7, 25, 26, 1000, 0x7fff, 0xffff]);
    bench.send("v4 UDP length", &v4(lies.clone()), LENGTH);
    bench.send("v6 UDP length", &v6(lies), LENGTH);
    // 44 would be true; the frame does not hold more.
    bench.send(
        "v4 IP length",
        &v4(ip(&[0, 19, 20, 27, 28, 43, 45, 0xffff])),
        LENGTH,
    );
    bench.send("v6 IP length", &v6(ip(&[0, 7, 8, 23, 25, 0xffff])), LENGTH);
    let padded = |count: usize| Spoil::Padding(count);
    bench.send("v4 padding", &v4((1..40).map(padded)), ANSWERED);
    bench.send("v6 padding", &v6((1..40).map(padded)), ANSWERED);
    // Lengths that agree on less than the frame holds.
    let less = |frame: Frame, ip: u16| {
        frame
            .spoil(Spoil::IpLength(ip))
            .spoil(Spoil::UdpLength(8))
            .spoil(Spoil::NoUdpChecksum)
    };
    let short = less(Frame::to_b(PORT, b"not a part"), 28);
    bench.send("v4 payload of nothing", &[short.bytes()], ANSWERED);
}

fn checksums(bench: &mut Bench<'_>) {
    bench.send("v4 IP checksum", &v4([Spoil::IpChecksum]), IP_SUM);
    bench.send("v4 UDP checksum", &v4([Spoil::UdpChecksum]), UDP_SUM);
    bench.send("v6 UDP checksum", &v6([Spoil::UdpChecksum]), UDP_SUM);
    bench.send("v4 no UDP checksum", &v4([Spoil::NoUdpChecksum]), ANSWERED);
    bench.send("v6 no UDP checksum", &v6([Spoil::NoUdpChecksum]), UDP_SUM);
    // Every length that a loop over words can get wrong.
    let each = |spoil: Option<Spoil>| -> Vec<Vec<u8>> {
        (0..80_usize)
            .flat_map(|len| {
                let payload: Vec<u8> = (0..len).map(|i| (i * 11 + len) as u8).collect();
                [Frame::to_b(PORT, &payload), Frame::to_b_v6(PORT, &payload)]
            })
            .map(|mut frame| {
                frame.spoils.extend(spoil);
                frame.bytes()
            })
            .collect()
    };
    bench.send("checksums of all lengths", &each(None), ANSWERED);
    bench.send("wrong ones", &each(Some(Spoil::UdpChecksum)), UDP_SUM);
    // One bit anywhere in the payload.
    let flipped: Vec<Vec<u8>> = (42..58)
        .map(|at| {
            let mut frame = Frame::to_b(PORT, b"sixteen bytes...").bytes();
            frame[at] ^= 0x10;
            frame
        })
        .collect();
    bench.send("a flipped bit", &flipped, UDP_SUM);
}

fn fragments(bench: &mut Bench<'_>) {
    bench.send(
        "v4 first fragment",
        &v4([Spoil::Fragment(0, true)]),
        FRAGMENT,
    );
    let later = [Spoil::Fragment(1, true), Spoil::Fragment(185, false)];
    bench.send("v4 later fragments", &v4(later), HOST);
    bench.send(
        "v6 first fragment",
        &v6([Spoil::Fragment(0, true)]),
        FRAGMENT,
    );
    let later = [Spoil::Fragment(1, true), Spoil::Fragment(9, false)];
    bench.send("v6 later fragments", &v6(later), HOST);
}

fn headers(bench: &mut Bench<'_>) {
    bench.send("v4 options", &v4((1..=10).map(Spoil::Options)), ANSWERED);
    bench.send(
        "v6 extension headers",
        &v6((1..=3).map(Spoil::Options)),
        ANSWERED,
    );
    let versions = [0, 5, 6, 15].map(Spoil::IpVersion);
    bench.send("v4 of another version", &v4(versions), HOST);
    let versions = [0, 4, 5, 15].map(Spoil::IpVersion);
    bench.send("v6 of another version", &v6(versions), HOST);
    bench.send(
        "v4 header too short",
        &v4((0..5).map(Spoil::IpHeaderWords)),
        HOST,
    );
    // Then the ports are read from elsewhere in the datagram.
    bench.send(
        "v4 header too long",
        &v4((6..16).map(Spoil::IpHeaderWords)),
        HOST,
    );
    let others = [0, 1, 6, 58, 132, 255].map(Spoil::Protocol);
    bench.send("v4 of another protocol", &v4(others), HOST);
    bench.send(
        "an ethertype of nobody",
        &v4([Spoil::Ethertype(0x88b5)]),
        HOST,
    );
    bench.send(VLAN, &v4([Spoil::Vlan(5)]), HOST);
    let group = |eth_destination: [u8; 6]| {
        let frame = Frame::to_b(PORT, b"to all");
        Frame {
            eth_destination,
            ..frame
        }
        .bytes()
    };
    let groups = [group([0xff; 6]), group([0x01, 0, 0x5e, 0, 0, 1])];
    bench.send("to a group of the link", &groups, HOST);
    // Addresses that cannot be a sender: a reply would go to many, or nowhere.
    let from = |source: [u8; 4]| {
        let frame = Frame::to_b(PORT, b"from nobody");
        Frame {
            source: std::net::IpAddr::from(source),
            ..frame
        }
        .bytes()
    };
    let nobody = [
        from([0; 4]),
        from([255; 4]),
        from([224, 0, 0, 1]),
        from([239, 1, 2, 3]),
    ];
    bench.send("from a group or nobody", &nobody, "dropped_no_sender");
    let port_0 = [Frame::to_b(PORT, b"?").from_port(0).bytes()];
    bench.send("from port 0", &port_0, "dropped_no_sender");
}

/// Longer than a slot of the ring, which is sized when the node starts: it takes several.
#[test]
fn a_message_longer_than_a_slot_is_answered() {
    const SLOT: usize = 2048;
    if skip_unless_root() {
        return;
    }
    let rig = quiet("long");
    let set_mtu = |bytes: &str| {
        for (mut command, link) in [(rig.command_b("ip"), "b0"), (rig.command_a("ip"), "a0")] {
            let done = run(command.args(["link", "set", link, "mtu", bytes]));
            assert!(done.status.success(), "{}", text(&done));
        }
    };
    for place in TIERS {
        let node = echo(&rig, place);
        set_mtu("3400");
        let client = rig.client_a(PORT).unwrap();
        let message = |len: usize| (0..len).map(|i| (i % 251) as u8).collect::<Vec<_>>();
        for len in [SLOT - 1, SLOT] {
            assert_eq!(client.ask(&message(len)).unwrap(), message(len), "{place}");
        }
        for len in [SLOT + 1, 3000, 3372] {
            assert_eq!(client.ask(&message(len)).unwrap(), message(len), "{place}");
        }
        assert_eq!(client.ask(b"short").unwrap(), b"short");
        settle(&node, "echo", 6).assert_fates(&[("answered", 6)], &place);
        node.stop().unwrap();
        set_mtu("1500");
    }
}

/// A frame of noise that says it is for B and, half of the time, IPv4 or IPv6.
fn noise(random: &mut Random) -> Vec<u8> {
    let mut frame: Vec<u8> = (0..14 + random.below(1500))
        .map(|_| random.byte())
        .collect();
    frame[..6].copy_from_slice(&MAC_B);
    match random.below(4) {
        0 => frame[12..14].copy_from_slice(&[0x08, 0x00]),
        1 => frame[12..14].copy_from_slice(&[0x86, 0xdd]),
        _ => {}
    }
    frame
}

/// A good frame with a few bytes changed, or cut, or longer.
fn mutant(random: &mut Random) -> Vec<u8> {
    let payload: Vec<u8> = (0..random.below(64)).map(|_| random.byte()).collect();
    let v4 = random.below(2) == 0;
    let frame = if v4 {
        Frame::to_b(PORT, &payload)
    } else {
        Frame::to_b_v6(PORT, &payload)
    };
    let mut frame = match random.below(4) {
        // The reply keeps extension headers, and to a changed one A's stack would
        // object, which is a frame that nobody here has sent.
        0 if v4 => frame.spoil(Spoil::Options(1 + random.below(10) as u8)),
        1 => frame.spoil(Spoil::NoUdpChecksum),
        _ => frame,
    }
    .bytes();
    for _ in 0..random.below(5) {
        // The first six bytes stay: others are not for B.
        let at = 6 + random.below(frame.len() - 6);
        frame[at] = random.byte();
    }
    match random.below(6) {
        0 => frame.truncate(14 + random.below(frame.len() - 13)),
        1 => frame.resize(frame.len() + random.below(64), 0),
        _ => {}
    }
    frame
}

/// 2,000 frames of each kind, the same each time: every one is either the host's
/// or has a fate on the path, and all places count alike.
#[test]
fn random_frames_are_all_accounted_for() {
    const EACH: u64 = 2000;
    if skip_unless_root() {
        return;
    }
    let rig = quiet("random");
    let mut first: Option<(u64, std::collections::BTreeMap<String, u64>)> = None;
    for place in PLACES {
        let node = echo(&rig, place);
        let wire = rig.injector_a().unwrap();
        let client = rig.client_a(PORT).unwrap();
        let host_before = unmatched(&node);
        let mut asked = 0;
        for (seed, make) in [(7, noise as fn(&mut Random) -> Vec<u8>), (11, mutant)] {
            let mut random = Random::new(seed);
            for i in 0..EACH {
                let mut frame = make(&mut random);
                // A packet socket does not see tagged frames.
                if matches!(frame[12..14], [0x81, 0x00] | [0x88, 0xa8]) {
                    frame[13] ^= 1;
                }
                wire.send(&frame).unwrap();
                if i % 100 == 0 {
                    assert_eq!(client.ask(b"still there?").unwrap(), b"still there?");
                    asked += 1;
                }
            }
        }
        let mut seen = (0, 0);
        ashway_netns::node::until("all frames are counted", || {
            let status = node.status().unwrap();
            let ledger = ashway_netns::traffic::Ledger::of(&status, "echo");
            seen = (unmatched(&node) - host_before, ledger.received);
            assert!(seen.0 + seen.1 <= 2 * EACH + asked, "{place}: {seen:?}");
            (seen.0 + seen.1 == 2 * EACH + asked).then_some(())
        });
        let ledger = settle(&node, "echo", seen.1);
        println!("{place}: {} to the host, {:?}", seen.0, ledger.fates);
        assert!(ledger.fate("dropped_bad_udp_checksum") > 100, "{ledger:?}");
        let now = (seen.0, ledger.fates);
        assert_eq!(*first.get_or_insert_with(|| now.clone()), now, "{place}");
        node.stop().unwrap();
    }
}

/// What matches no path is the host's, untouched: ping, TCP, another port.
#[test]
fn everything_else_is_the_hosts() {
    if skip_unless_root() {
        return;
    }
    let rig = quiet("others");
    let address: SocketAddr = "10.7.0.2:8080".parse().unwrap();
    let listener = rig.in_b(|| TcpListener::bind(address)).unwrap();
    let other = ordinary(&rig, 7778);
    let same: UdpSocket = ordinary(&rig, PORT);
    for place in PLACES {
        let node = echo(&rig, place);
        let client = rig.client_a(PORT).unwrap();
        for target in ["10.7.0.2", "fd07::2"] {
            let ping = ["-c", "3", "-i", "0.01", "-W", "10", "-s", "1000", target];
            let done = run(rig.command_a("ping").args(ping));
            assert!(done.status.success(), "{place}: {}", text(&done));
            assert!(text(&done).contains(" 0% packet loss"), "{}", text(&done));
        }
        // A megabyte each way through the host's TCP, in the middle of messages.
        let data: Vec<u8> = (0..1 << 20).map(|i| (i % 253) as u8).collect();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                let mut bytes = vec![0; data.len()];
                stream.read_exact(&mut bytes).unwrap();
                stream.write_all(&bytes).unwrap();
            });
            let mut stream = rig.in_a(|| TcpStream::connect(address)).unwrap();
            stream.write_all(&data).unwrap();
            assert_eq!(client.ask(b"meanwhile").unwrap(), b"meanwhile");
            let mut bytes = vec![0; data.len()];
            stream.read_exact(&mut bytes).unwrap();
            assert!(bytes == data, "{place}: TCP spoiled the data");
        });
        let neighbour = rig.client_a(7778).unwrap();
        neighbour.send(b"to the host").unwrap();
        let mut bytes = [0; 64];
        let (len, from) = other.recv_from(&mut bytes).unwrap();
        assert_eq!(&bytes[..len], b"to the host", "{place}");
        other.send_to(b"hello back", from).unwrap();
        assert_eq!(neighbour.receive().unwrap(), b"hello back", "{place}");
        settle(&node, "echo", 1).assert_fates(&[("answered", 1)], &place);
        assert_eq!(
            heard(&same),
            [],
            "{place}: the host hears the path's messages"
        );
        node.stop().unwrap();
    }
}
