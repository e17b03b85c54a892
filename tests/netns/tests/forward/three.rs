//! Three hosts in a row, and a relay in the middle one.

use std::net::UdpSocket;
use std::process::Command;

use ashway_netns::node::{PATIENCE, entry, run, text, until};
use ashway_netns::traffic::in_order;
use ashway_rig::namespace::Namespace;
use ashway_rig::{Node, Rig, UdpClient, one_way};
use serde_json::Value;

/// The relay's address towards C, and C's.
pub(crate) const B8: &str = "10.8.0.2";
pub(crate) const C8: &str = "10.8.0.3";
const MAC_B1: &str = "02:00:00:00:00:1b";
pub(crate) const MAC_C: &str = "02:00:00:00:00:0c";

/// A - B - C: the rig, and a second wire from B's `b1` to C's `c0`.
pub(crate) struct Three {
    // The wire's far end goes first.
    pub(crate) c: Namespace,
    pub(crate) rig: Rig,
}

impl Three {
    pub(crate) fn new(name: &str) -> Self {
        Self::with_gro(name, true)
    }

    /// Without GRO, C's end of its wire takes no redirect. What B sends is heard in the order
    /// in which it was sent, by A and by C.
    pub(crate) fn with_gro(name: &str, gro: bool) -> Self {
        let rig = in_order(name);
        let c = Namespace::new(format!("{}-c", rig.name())).unwrap();
        let this = Self { c, rig };
        this.wire(gro);
        this
    }

    /// Makes B's wire to C.
    pub(crate) fn wire(&self, gro: bool) {
        let Self { c, rig } = self;
        let mut add = vec!["link", "add", "b1", "address", MAC_B1, "type", "veth"];
        add.extend(["peer", "name", "c0", "address", MAC_C, "netns", c.name()]);
        ip(rig.command_b("ip"), &add);
        for (end, link, address) in [("b", "b1", B8), ("c", "c0", C8)] {
            let command = || match end {
                "b" => rig.command_b("ip"),
                _ => c.command("ip"),
            };
            ip(command(), &["link", "set", link, "addrgenmode", "none"]);
            let address = format!("{address}/24");
            ip(command(), &["addr", "add", &address, "dev", link]);
            ip(command(), &["link", "set", link, "up"]);
        }
        for (command, link, address, mac) in [
            (rig.command_b("ip"), "b1", C8, MAC_C),
            (c.command("ip"), "c0", B8, MAC_B1),
        ] {
            let neighbour = ["neigh", "replace", address, "lladdr", mac, "dev", link];
            ip(command, &[&neighbour[..], &["nud", "permanent"]].concat());
        }
        // The far end of a wire drops what comes by a redirect, unless it polls.
        let switch = if gro { "on" } else { "off" };
        let switched = run(c.command("ethtool").args(["-K", "c0", "gro", switch]));
        assert!(switched.status.success(), "{}", text(&switched));
        one_way((c, "c0"), (rig.b(), "b1"), gro).unwrap();
    }

    /// A node in B with this relay.
    pub(crate) fn node(&self, mode: &str, tier: &str) -> Node {
        self.node_with(mode, tier, "")
    }

    /// The same with `more` in its configuration.
    pub(crate) fn node_with(&self, mode: &str, tier: &str, more: &str) -> Node {
        self.node_of(mode, tier, "", more)
    }

    /// The same, and the relay has these attributes, too.
    pub(crate) fn node_of(&self, mode: &str, tier: &str, attrs: &str, more: &str) -> Node {
        let config = format!(
            r#"
            [iface.b0]
            attach = "{mode}"
            [iface.b1]
            attach = "{mode}"

            [module.relay]
            kind = "forward"
            down = "udp.up"
            [path.relay]
            tier = "{tier}"
            from = "eth:b0"
            attrs = {{ pathname = "udp/relay", local = "10.7.0.2:5000", next_hop = "{C8}:6000", from = "{B8}:7000", out = "eth:b1", next_hop_mac = "{MAC_C}"{attrs} }}
            {more}
            "#
        );
        self.rig.node(config).start().unwrap()
    }

    pub(crate) fn server(&self, port: u16) -> UdpSocket {
        // A process that another test begins at that moment may hold the one before.
        let server = until("the port is free", || {
            self.c.run(|| UdpSocket::bind((C8, port))).ok()
        });
        server.set_read_timeout(Some(PATIENCE)).unwrap();
        server
    }
}

pub(crate) fn ip(mut command: Command, args: &[&str]) {
    let output = run(command.args(args));
    assert!(output.status.success(), "ip {args:?}: {}", text(&output));
}

/// What the node says of the relay.
pub(crate) fn relay(node: &Node) -> Value {
    let status = node.status().unwrap();
    entry(&status, "paths", "relay").clone()
}

/// The node's status when its ledgers close.
pub(crate) fn closed(node: &Node) -> Value {
    until("the ledgers close", || {
        let status = node.status().unwrap();
        let live = &status["module_paths"];
        (live["waiting"] == 0 && live["balanced"] == true).then_some(status)
    })
}

pub(crate) fn ask_and_answer(client: &UdpClient, server: &UdpSocket, number: u32) {
    let message = [&number.to_be_bytes()[..], &[7; 400]].concat();
    client.send(&message).unwrap();
    let mut got = [0; 2000];
    let (len, from) = server
        .recv_from(&mut got)
        .unwrap_or_else(|why| panic!("{number} did not come to C: {why}"));
    assert_eq!(got[..len], message);
    assert_eq!(from, format!("{B8}:7000").parse().unwrap(), "the relay's");
    server.send_to(&got[..len - 100], from).unwrap();
    assert_eq!(client.receive().unwrap(), message[..len - 100]);
}
