//! A relay through pipes, on a running node: the same bytes, fates and registers whether
//! the pass verifies the checksum or UDP does, and a stage fewer.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use std::net::UdpSocket;
use std::time::Duration;

use ashway_netns::node::{entry, run, text, until};
use ashway_rig::{Frame, Node, Rig, RigOptions, Spoil, skip_unless_root};
use serde_json::Value;

/// The other wire's ends: B's and, in the same namespace as `a0`, A's.
const B8: &str = "10.8.0.2";
const A8: &str = "10.8.0.1";
const MAC_A8: &str = "02:00:00:00:00:1a";
const MAC_B8: &str = "02:00:00:00:00:1b";

/// A second wire from B's `b1` to A's `a1`.
fn second_wire(rig: &Rig) {
    let ip = |a: bool, args: &str| {
        let mut command = if a {
            rig.command_a("ip")
        } else {
            rig.command_b("ip")
        };
        let done = run(command.args(args.split(' ')));
        assert!(done.status.success(), "ip {args}: {}", text(&done));
    };
    let peer = rig.a().name();
    ip(
        false,
        &format!(
            "link add b1 address {MAC_B8} type veth peer name a1 address {MAC_A8} netns {peer}"
        ),
    );
    for (a, link, address) in [(false, "b1", B8), (true, "a1", A8)] {
        ip(a, &format!("addr add {address}/24 dev {link}"));
        ip(a, &format!("link set {link} up"));
    }
    // The kernel's table of neighbours is one for all namespaces, and a test with a thousand
    // next hops fills it: what is permanent has its place.
    ip(
        true,
        &format!("neigh replace {B8} lladdr {MAC_B8} dev a1 nud permanent"),
    );
    // The far end of a wire drops what comes by a redirect, unless it polls.
    let gro = run(rig.command_a("ethtool").args(["-K", "a1", "gro", "on"]));
    assert!(gro.status.success(), "{}", text(&gro));
}

/// What is relayed comes unmasked and with its words swapped; answers go the way back.
fn config(mode: &str, fuse: &str) -> String {
    format!(
        r#"
        [iface.b0]
        mode = "{mode}"
        [iface.b1]
        mode = "{mode}"
        [module.unmask]
        kind = "pipe"
        down = "udp.up"
        list = "xor(0xdeadbeef) | bswap32 | crc32c"
        answers = "bswap32 | xor(0xdeadbeef)"
        [module.relay]
        kind = "forward"
        down = ["unmask.up", "udp.up"]
        [path.relay]
        from = "eth:b0"
        attrs = {{ pathname = "udp/unmask/relay/udp", local = "10.7.0.2:5000", next_hop = "{A8}:6000", from = "{B8}:7000", out = "eth:b1", next_hop_mac = "{MAC_A8}", fuse = "{fuse}" }}
        "#
    )
}

/// `xor(0xdeadbeef) | bswap32`, word by word.
fn unmasked(message: &[u8]) -> Vec<u8> {
    let key = 0xdead_beef_u32.to_le_bytes();
    let words = message.chunks(4).flat_map(|word| {
        let mut word: Vec<u8> = word.iter().zip(key).map(|(byte, key)| byte ^ key).collect();
        if word.len() == 4 {
            word.reverse();
        }
        word
    });
    words.collect()
}

/// The same the other way round.
fn masked(message: &[u8]) -> Vec<u8> {
    let key = 0xdead_beef_u32.to_le_bytes();
    let words = message.chunks(4).flat_map(|word| {
        let mut word = word.to_vec();
        if word.len() == 4 {
            word.reverse();
        }
        word.into_iter().zip(key).map(|(byte, key)| byte ^ key)
    });
    words.collect()
}

fn relay(node: &Node) -> Value {
    let status = node.status().unwrap();
    entry(&status, "paths", "relay").clone()
}

/// What a run leaves: stages, fates, the CRC behind the last good message.
#[derive(Debug, PartialEq)]
struct Left {
    stages: usize,
    fates: Value,
    crc: Value,
}

fn run_relay(mode: &str, fuse: &str) -> Left {
    let rig = Rig::new(&format!("pipes-{mode}-{fuse}"), RigOptions::default()).unwrap();
    second_wire(&rig);
    let node = rig.node(config(mode, fuse)).start().unwrap();
    let server = rig.in_a(|| UdpSocket::bind((A8, 6000))).unwrap();
    let patience = Some(Duration::from_secs(5));
    server.set_read_timeout(patience).unwrap();
    let wire = rig.injector_a().unwrap();
    let client = rig.client_a(5000).unwrap();
    let mut got = [0; 2000];
    let mut sent = 0;
    for len in [0, 1, 4, 7, 63, 64, 65, 400, 1400] {
        let message: Vec<u8> = (0..len).map(|at| (at * 7 + len) as u8).collect();
        // A stock veth leaves the checksum half done; a frame of ours has a whole one.
        client.send(&message).unwrap();
        wire.send(&Frame::to_b(5000, &message).bytes()).unwrap();
        for _ in 0..2 {
            let (len, from) = server.recv_from(&mut got).unwrap();
            assert_eq!(got[..len], unmasked(&message), "{mode}, {fuse}");
            assert_eq!(from, format!("{B8}:7000").parse().unwrap());
            sent += 1;
        }
        // Nobody sees anything of this one.
        let spoilt = Frame::to_b(5000, &message).spoil(Spoil::UdpChecksum);
        wire.send(&spoilt.bytes()).unwrap();
    }
    // The way back, to who sent last that can be answered.
    client.send(b"the last one").unwrap();
    let (_, from) = server.recv_from(&mut got).unwrap();
    server.send_to(b"its answer", from).unwrap();
    let answer = client.receive().unwrap_or_else(|why| {
        let neighbours = text(&run(rig.command_a("ip").args(["neigh"])));
        let status = node.status().unwrap();
        panic!("{mode}, {fuse}: {why}: {status:#}\n{neighbours}")
    });
    assert_eq!(answer, masked(b"its answer"));
    let shown = until("all are counted", || {
        let shown = relay(&node);
        (shown["fates"]["dropped"]["bad_udp_checksum"] == 9).then_some(shown)
    });
    assert_eq!(shown["fates"]["forwarded"], sent + 2, "{shown:#}");
    assert_eq!(shown["balanced"], true, "{shown:#}");
    let shown = run(&mut node.command(["path", "show", "relay", "-j"]));
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    let left = Left {
        stages: shown["stages"].as_array().unwrap().len(),
        fates: shown["fates"].clone(),
        crc: shown["attrs"]["unmask.crc32c.state"].clone(),
    };
    assert!(!left.crc.is_null(), "{shown:#}");
    let plan = node.config();
    let plan = run(rig
        .ashway_b()
        .unwrap()
        .args(["path", "plan"])
        .arg(plan)
        .args(["relay", "-v"]));
    let said = text(&plan);
    assert_eq!(said.contains("fuse-checksum"), fuse == "on", "{said}");
    node.stop().unwrap();
    left
}

#[test]
fn a_pass_that_verifies_the_checksum_gives_the_same_bytes_and_fates() {
    if skip_unless_root() {
        return;
    }
    for mode in ["packet", "native"] {
        let (fused, apart) = (run_relay(mode, "on"), run_relay(mode, "off"));
        assert_eq!(fused.stages + 1, apart.stages, "{mode}");
        let stages = apart.stages;
        assert_eq!(Left { stages, ..fused }, apart, "{mode}");
    }
}
