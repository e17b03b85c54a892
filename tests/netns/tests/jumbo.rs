//! Frames longer than a page: each is counted once and says where it went, and the
//! host's own are the host's.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use std::net::UdpSocket;
use std::time::Duration;

use ashway_netns::node::{Config, at_rest, entry, run, text};
use ashway_rig::{Rig, RigOptions, skip_unless_root};
use serde_json::json;

/// A wire with an MTU of 9,000 bytes at both ends; the client's device computes
/// checksums or leaves them half.
fn wire(name: &str, whole: bool) -> Rig {
    let rig = Rig::new(name, RigOptions::default()).unwrap();
    for (command, link) in [(rig.command_a("ip"), "a0"), (rig.command_b("ip"), "b0")] {
        let mut command = command;
        let output = run(command.args(["link", "set", link, "mtu", "9000"]));
        assert!(output.status.success(), "{}", text(&output));
    }
    if whole {
        let output = run(rig.command_a("ethtool").args(["-K", "a0", "tx", "off"]));
        assert!(output.status.success(), "{}", text(&output));
    }
    rig
}

#[test]
fn long_frames_are_counted_once_and_the_hosts_reach_it() {
    if skip_unless_root() {
        return;
    }
    for (mode, tier) in [
        ("generic", "kernel"),
        ("generic", "user"),
        ("packet", "user"),
    ] {
        for whole in [false, true] {
            let rig = wire(&format!("jumbo-{mode}-{tier}-{whole}"), whole);
            let config = Config::on_b0(mode)
                .handler("echo")
                .unwrap()
                .path("echo", 7777, tier);
            let node = rig.node(config).start().unwrap();
            let place = format!("{mode}, {tier}, whole checksums: {whole}");

            // The host's own, with and without fragments.
            let own = rig.in_b(|| UdpSocket::bind("[::]:9000")).unwrap();
            own.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            let mut got = vec![0; 65_536];
            for client in [rig.client_a(9000).unwrap(), rig.client_a_v6(9000).unwrap()] {
                for len in [5_000, 8_900, 20_000] {
                    client.send(&vec![7; len]).unwrap();
                    assert_eq!(own.recv(&mut got).unwrap(), len, "{place}");
                }
            }

            // A path's: packet sockets take them, a place in a ring does not.
            let client = rig.client_a(7777).unwrap();
            assert_eq!(client.ask(&[1; 100]).unwrap(), [1; 100], "{place}");
            client.send(&[2; 8_000]).unwrap();
            if mode == "packet" {
                assert_eq!(client.receive().unwrap(), [2; 8_000], "{place}");
            }
            assert_eq!(client.ask(&[3; 100]).unwrap(), [3; 100], "{place}");
            let status = at_rest(&node);
            let path = entry(&status, "paths", "echo");
            assert_eq!(path["received"], 3, "{place}: {path:#}");
            let (answered, dropped) = match mode {
                "packet" => (3, json!({})),
                _ => (2, json!({ "too_long": 1 })),
            };
            assert_eq!(path["fates"]["answered"], answered, "{place}: {path:#}");
            assert_eq!(path["fates"]["dropped"], dropped, "{place}: {path:#}");
            node.stop().unwrap();
        }
    }
}
