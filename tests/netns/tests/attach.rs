//! `attach = "auto"`: what it chooses, that it says why, and that the interface and the
//! host's own traffic stay as they are. And messages on interfaces that are no veth.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use std::net::{Ipv4Addr, SocketAddr};

use ashway_kernel::Iface;
use ashway_netns::node::{
    Config, PATIENCE, assert_free, at_rest, counter, entry, ip, run, stock, text, until,
};
use ashway_rig::skip::{Why, skip};
use ashway_rig::{Frame, MAC_A, Node, Rig, RigOptions, Tap, UdpClient, skip_unless_root};

/// Offloads and MTU of both ends of the wire.
fn wire(rig: &Rig) -> [String; 2] {
    [(rig.a(), "a0"), (rig.b(), "b0")].map(|(host, link)| {
        let offloads = run(host.command("ethtool").args(["-k", link]));
        assert!(offloads.status.success(), "{}", text(&offloads));
        let mtu = host.run(|| Iface::by_name(link)).unwrap().mtu;
        format!("MTU {mtu}\n{}", text(&offloads))
    })
}

fn because(node: &Node, iface: &str) -> String {
    let status = node.status().unwrap();
    let because = &entry(&status, "interfaces", iface)["because"];
    because.as_str().unwrap_or_default().to_owned()
}

fn mode(node: &Node, iface: &str) -> String {
    let status = node.status().unwrap();
    let mode = &entry(&status, "interfaces", iface)["mode"];
    mode.as_str().unwrap().to_owned()
}

#[test]
fn auto_takes_a_veth_at_tcx_and_leaves_it_as_it_is() {
    if skip_unless_root() {
        return;
    }
    // As a system makes it, with all offloads.
    let rig = stock("auto");
    let before = wire(&rig);
    let node = rig.node(counter("auto").unwrap()).start().unwrap();
    assert_eq!(rig.client_a(7777).unwrap().ask_number(1).unwrap(), 1);
    assert_eq!(wire(&rig), before, "while the node runs");
    assert_eq!(mode(&node, "b0"), "tcx");
    let why = because(&node, "b0");
    assert!(why.starts_with("it is a veth"), "{why}");
    let output = node.output();
    let lines: Vec<_> = output.lines().collect();
    assert!(lines[0].starts_with("b0: TCX ingress: "), "{output}");
    assert_eq!(lines[1], format!("  because {why}"), "{output}");
    node.stop().unwrap();
    assert_eq!(wire(&rig), before, "after it has stopped");

    // And what it spares the wire shows under XDP.
    let config = Config::on_b0("xdp").handler("counter").unwrap();
    let config = config.path("counter", 7777, "auto");
    let node = rig.node(config).start().unwrap();
    assert_ne!(wire(&rig), before, "XDP changes nothing here");
    assert_eq!(because(&node, "b0"), "", "it was asked for");
    node.stop().unwrap();
    assert_eq!(wire(&rig), before);
    assert_free(&rig, "b0");
}

/// At TCX, and with packet sockets, it is by `lo` that the user tier passes.
#[test]
fn a_node_that_cannot_pass_by_lo_says_so() {
    if skip_unless_root() {
        return;
    }
    let rig = stock("lo");
    for (attach, lo, says) in [
        ("tcx", "up", false),
        ("tcx", "down", true),
        ("packet", "down", true),
        ("xdp", "down", false),
    ] {
        ip(rig.command_b("ip"), &format!("link set lo {lo}"));
        let node = rig.node(Config::on_b0(attach)).start().unwrap();
        let said = node.output().contains("lo is down: ");
        assert_eq!(said, says, "{attach}, lo {lo}: {}", node.output());
        node.stop().unwrap();
    }
}

/// What one interface asks for is what all of the node have; and what TCX cannot do keeps a
/// node at XDP.
#[test]
fn auto_follows_what_a_node_asks_for_and_what_tcx_cannot_do() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("auto-beside", RigOptions::default()).unwrap();
    ip(rig.command_b("ip"), "link add b1 type veth peer name c1");
    ip(rig.command_b("ip"), "link set b1 up");
    let base = || {
        let config = Config::on_b0("auto").handler("counter").unwrap();
        config.path("counter", 7777, "auto")
    };
    let array = Config::on_b0("auto").handler("counter").unwrap();
    let array = array.text("memory = \"array\"");
    let ip_layer = base().handler("even").unwrap().text(
        "[path.even]\niface = \"b0\"\nlayer = \"ip\"\nhandler = \"even\"\n\
         match = \"tcp and dst port 8080\"",
    );
    for (config, modes, why) in [
        (
            base().iface("b1", "xdp"),
            ["native", "native"],
            "`b1` has `attach = \"xdp\"`",
        ),
        (
            base().iface("b1", "generic"),
            ["native", "generic"],
            "`b1` has `attach = \"generic\"`",
        ),
        (
            base().iface("b1", "packet"),
            ["tcx", "packet"],
            "it is a veth",
        ),
        (
            array.path("counter", 7777, "auto").iface("b1", "auto"),
            ["native", "native"],
            "`counter` has `memory = \"array\"`",
        ),
        (
            // Whose segments are taken apart.
            ip_layer.iface("b1", "auto"),
            ["tcx", "tcx"],
            "it is a veth",
        ),
    ] {
        let node = rig.node(config).start().unwrap();
        assert_eq!(["b0", "b1"].map(|iface| mode(&node, iface)), modes, "{why}");
        let said = because(&node, "b0");
        assert!(said.contains(why), "{said}");
        assert_eq!(rig.client_a(7777).unwrap().ask_number(1).unwrap(), 1);
        node.stop().unwrap();
    }
}

/// A node whose echo runs on this interface, by what `auto` chooses.
fn echo(rig: &Rig, iface: &str, tier: &str) -> Node {
    let config = Config::default().iface(iface, "auto");
    let config = config.handler("echo").unwrap();
    let config = config.path_on(&format!("[{iface:?}]"), "echo", 7777, tier);
    let node = rig.node(config).start().unwrap();
    let why = because(&node, iface);
    assert_eq!(mode(&node, iface), "tcx", "{why}");
    assert!(why.starts_with("it is a virtual link ("), "{iface}: {why}");
    node
}

/// Messages of several lengths through the echo on this interface, in both tiers.
fn echoes(rig: &Rig, iface: &str, server: Ipv4Addr) {
    for tier in ["kernel", "user"] {
        let node = echo(rig, iface, tier);
        let address = SocketAddr::new(server.into(), 7777);
        let client = rig.in_a(|| UdpClient::connect(address)).unwrap();
        for len in [0, 1, 46, 500, 1400] {
            let message: Vec<_> = (0..len).map(|at| at as u8).collect();
            assert_eq!(client.ask(&message).unwrap(), message, "{iface}, {tier}");
        }
        let status = at_rest(&node);
        let path = entry(&status, "paths", "echo");
        assert_eq!(path["fates"]["answered"], 5, "{iface}, {tier}: {path:#}");
        assert_eq!(path["tier"], tier, "{iface}: {path:#}");
        node.stop().unwrap();
        let ifindex = rig.in_b(|| Iface::by_name(iface)).unwrap().ifindex;
        let left = rig.in_b(|| ashway_kernel::tcx_owners(ifindex));
        assert!(left.is_empty(), "left behind on {iface}: {left:?}");
    }
}

/// Makes links; `false`, said and counted, where the kernel has none of this kind.
fn made(kind: &str, lines: &[(&Rig, char, &str)]) -> bool {
    for (rig, host, line) in lines {
        let host = if *host == 'a' { rig.a() } else { rig.b() };
        let done = run(host.command("ip").args(line.split(' ')));
        let said = text(&done);
        if said.contains("Unknown device type") || said.contains("not supported") {
            skip(Why::Missing(format!("this kernel has no {kind}")));
            return false;
        }
        assert!(done.status.success(), "{line}: {said}");
    }
    true
}

#[test]
fn a_bridge_is_an_interface_like_any_other() {
    if skip_unless_root() {
        return;
    }
    let rig = stock("bridge");
    let mac = mac_of(&rig, "b0");
    if !made(
        "bridge",
        &[
            (&rig, 'b', "link add br0 type bridge"),
            // A has the address of the host's port.
            (&rig, 'b', &format!("link set br0 address {mac}")),
            (&rig, 'b', "link set b0 master br0"),
            (&rig, 'b', "addr add 10.9.0.2/24 dev br0"),
            (&rig, 'b', "link set br0 up"),
            (&rig, 'a', "addr add 10.9.0.1/24 dev a0"),
        ],
    ) {
        return;
    }
    until("the port forwards", || {
        let port = text(&run(rig
            .command_b("bridge")
            .args(["link", "show", "dev", "b0"])));
        port.contains("state forwarding").then_some(())
    });
    echoes(&rig, "br0", "10.9.0.2".parse().unwrap());
}

#[test]
fn a_macvlan_is_an_interface_like_any_other() {
    if skip_unless_root() {
        return;
    }
    let rig = stock("macvlan");
    if made(
        "macvlan",
        &[
            (
                &rig,
                'b',
                "link add link b0 name m0 type macvlan mode bridge",
            ),
            (&rig, 'b', "addr add 10.9.0.2/24 dev m0"),
            (&rig, 'b', "link set m0 up"),
            (&rig, 'a', "addr add 10.9.0.1/24 dev a0"),
        ],
    ) {
        // By ARP both of B's interfaces would say that the address is theirs.
        let neighbour = format!("neigh add 10.9.0.2 lladdr {} dev a0", mac_of(&rig, "m0"));
        ip(rig.command_a("ip"), &neighbour);
        echoes(&rig, "m0", "10.9.0.2".parse().unwrap());
    }
}

#[test]
fn a_vxlan_is_an_interface_like_any_other() {
    if skip_unless_root() {
        return;
    }
    let rig = stock("vxlan");
    let tunnel = |near, far, dev| {
        format!(
            "link add x0 type vxlan id 42 local 10.7.0.{near} remote 10.7.0.{far} dstport 4789 \
             dev {dev}"
        )
    };
    if made(
        "vxlan",
        &[
            (&rig, 'b', &tunnel(2, 1, "b0")),
            (&rig, 'b', "addr add 10.9.0.2/24 dev x0"),
            (&rig, 'b', "link set x0 up"),
            (&rig, 'a', &tunnel(1, 2, "a0")),
            (&rig, 'a', "addr add 10.9.0.1/24 dev x0"),
            (&rig, 'a', "link set x0 up"),
        ],
    ) {
        echoes(&rig, "x0", "10.9.0.2".parse().unwrap());
    }
}

fn mac_of(rig: &Rig, iface: &str) -> String {
    let mac = rig.in_b(|| Iface::by_name(iface)).unwrap().mac;
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// Whose far end is a process with a descriptor.
#[test]
fn a_tap_is_an_interface_like_any_other() {
    if skip_unless_root() {
        return;
    }
    let rig = stock("tap");
    let tap = match rig.in_b(|| Tap::new("t0")) {
        Ok(tap) => tap,
        Err(why) => {
            let why = format!("this kernel has no TAP: {why}");
            return skip(Why::Missing(why));
        }
    };
    ip(rig.command_b("ip"), "link set t0 up");
    let mac = rig.in_b(|| Iface::by_name("t0")).unwrap().mac;
    for tier in ["kernel", "user"] {
        let node = echo(&rig, "t0", tier);
        for len in [1, 46, 500, 1400] {
            let payload = vec![len as u8; len];
            let mut frame = Frame::to_b(7777, &payload);
            frame.eth_destination = mac;
            tap.send(&frame.bytes()).unwrap();
            // The host has things to say of its own: router solicitations and the like.
            let answer = loop {
                let frame = tap.receive(PATIENCE).unwrap();
                if frame[..6] == MAC_A {
                    break frame;
                }
            };
            assert_eq!(answer[6..12], mac, "{tier}");
            assert_eq!(answer[42..42 + len], payload, "{tier}");
        }
        let status = at_rest(&node);
        let path = entry(&status, "paths", "echo");
        assert_eq!(path["fates"]["answered"], 4, "{tier}: {path:#}");
        node.stop().unwrap();
    }
}
