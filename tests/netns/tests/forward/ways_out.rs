//! Ways out that do not take what is to leave by them.

use std::fs;

use ashway_netns::node::{control, entry, run, text, until};
use ashway_rig::skip_unless_root;
use serde_json::json;

use super::three::{Three, ask_and_answer, closed, ip, relay};

/// What the interface out does not take has a fate of its own, in every tier; with a
/// module of kind `fragment` on the way out it leaves in parts.
#[test]
fn what_is_too_long_for_the_way_out_is_counted_or_cut() {
    if skip_unless_root() {
        return;
    }
    for (mode, tier, cuts) in [
        ("native", "kernel", false),
        ("tcx", "kernel", false),
        ("native", "user", false),
        ("packet", "user", false),
        ("native", "user", true),
    ] {
        let three = Three::new(&format!("fwd-mtu-{mode}-{tier}-{cuts}"));
        let set_mtu = |mtu: &str| {
            for (command, link) in [
                (three.rig.command_b("ip"), "b1"),
                (three.c.command("ip"), "c0"),
            ] {
                ip(command, &["link", "set", link, "mtu", mtu]);
            }
        };
        set_mtu("1000");
        let node = if cuts {
            three.rig.node(CUTS).start().unwrap()
        } else {
            three.node(mode, tier)
        };
        let (client, server) = (three.rig.client_a(5000).unwrap(), three.server(6000));
        ask_and_answer(&client, &server, 1);
        // 972 bytes and headers of 28 fit.
        let (fits, long) = ([1; 972], [2; 973]);
        client.send(&fits).unwrap();
        client.send(&long).unwrap();
        let mut got = [0; 2000];
        assert_eq!(server.recv(&mut got).unwrap(), 972);
        if cuts {
            assert_eq!(server.recv(&mut got).unwrap(), 973);
            // What the link of the way out has published, which the other way in takes more of.
            let shown = run(&mut node.command(["path", "show", "relay", "-j"]));
            let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
            assert_eq!(shown["attrs"]["mtu"], "1000", "{shown:#}");
        }
        ask_and_answer(&client, &server, 2);
        let shown = entry(&closed(&node), "paths", "relay").clone();
        let dropped = if cuts {
            json!({})
        } else {
            json!({ "too_long": 1 })
        };
        assert_eq!(
            shown["fates"]["dropped"], dropped,
            "{mode} {tier}: {shown:#}"
        );
        assert_eq!(shown["received"], 6, "{mode} {tier}: {shown:#}");
        assert_eq!(shown["balanced"], true, "{mode} {tier}: {shown:#}");
        if !cuts {
            // Another MTU while it runs: longer, and as short as it was.
            for (mtu, before, long_ones) in [("1500", "1000", 1), ("1000", "1500", 2)] {
                set_mtu(mtu);
                let said = format!("`b1` has an MTU of {mtu} bytes, and had {before}");
                until("the node says so", || {
                    node.output().contains(&said).then_some(())
                });
                // It answers when it has done all that goes with it.
                node.status().unwrap();
                client.send(&long).unwrap();
                if mtu == "1500" {
                    assert_eq!(server.recv(&mut got).unwrap(), 973);
                }
                ask_and_answer(&client, &server, 3);
                let shown = entry(&closed(&node), "paths", "relay").clone();
                let dropped = json!({ "too_long": long_ones });
                assert_eq!(shown["fates"]["dropped"], dropped, "{mode} {tier} {mtu}");
                assert_eq!(shown["balanced"], true, "{mode} {tier}: {shown:#}");
            }
        }
        node.stop().unwrap();
    }
}

/// A relay of the kernel tier goes on for the sender that it has while its node moves to another hook,
/// also where what it sends leaves by the exit program.
#[test]
fn a_relay_goes_on_while_its_node_moves_between_hooks() {
    if skip_unless_root() {
        return;
    }
    for gro in [true, false] {
        let three = Three::with_gro(&format!("fwd-moves-{gro}"), gro);
        let node = three.node("native", "kernel");
        let (client, server) = (three.rig.client_a(5000).unwrap(), three.server(6000));
        ask_and_answer(&client, &server, 0);
        let mut now = "native";
        for (next, number) in ["tcx", "native", "generic", "tcx", "generic"]
            .into_iter()
            .zip(1..)
        {
            let config = fs::read_to_string(node.config()).unwrap();
            let attach = |mode: &str| format!("attach = \"{mode}\"");
            fs::write(node.config(), config.replace(&attach(now), &attach(next))).unwrap();
            let apply = json!({ "request": "apply", "file": node.config() });
            control(&node, &apply).unwrap();
            now = next;
            for more in 0..3 {
                ask_and_answer(&client, &server, 10 * number + more);
            }
        }
        let shown = relay(&node);
        assert_eq!(shown["tier"], "kernel", "{shown:#}");
        assert!(shown["ran_in"]["kernel"].as_u64() > Some(15), "{shown:#}");
        node.stop().unwrap();
    }
}

/// A relay that cuts what is too long for C's wire.
const CUTS: &str = r#"
    [iface.b0]
    [iface.b1]
    [module.frag]
    kind = "fragment"
    down = "eth:b1.up"
    up = "ip.down"
    [module.ip]
    kind = "ip"
    [module.udp]
    kind = "udp"
    down = "ip.up"
    [module."eth:b0"]
    kind = "eth"
    iface = "b0"
    up = "ip.down"
    [module."eth:b1"]
    kind = "eth"
    iface = "b1"
    [module.relay]
    kind = "forward"
    down = "udp.up"
    [path.relay]
    from = "eth:b0"
    attrs = { pathname = "ip/udp/relay", local = "10.7.0.2:5000", next_hop = "10.8.0.3:6000", from = "10.8.0.2:7000", out = "frag", next_hop_mac = "02:00:00:00:00:0c" }
"#;

/// An interface that messages cannot leave by is seen, counted and said, in both
/// tiers; when it is up again, or there is one of its name again, they go on.
#[test]
fn an_interface_out_that_is_down_or_gone_is_counted_and_said() {
    if skip_unless_root() {
        return;
    }
    for (mode, tier) in [
        ("native", "kernel"),
        ("native", "user"),
        ("tcx", "kernel"),
        ("tcx", "user"),
        ("packet", "user"),
    ] {
        let three = Three::new(&format!("fwd-gone-{mode}-{tier}"));
        let node = three.node(mode, tier);
        let (client, server) = (three.rig.client_a(5000).unwrap(), three.server(6000));
        ask_and_answer(&client, &server, 1);
        let is_out = |word: &str| {
            until(&format!("b1 is {word}"), || {
                let status = node.status().unwrap();
                (entry(&status, "interfaces", "b1")["mode"] == word).then_some(())
            });
        };
        let says = |words: &[&str], phrase: &str| {
            let said = text(&run(&mut node.command(words)));
            assert!(said.contains(phrase), "no `{phrase}` in {words:?}:\n{said}");
        };
        let lost = |count: u64| {
            client.send(b"lost").unwrap();
            until("it is counted", || {
                let shown = relay(&node);
                assert_eq!(shown["balanced"], true, "{mode} {tier}: {shown:#}");
                (shown["fates"]["dropped"]["iface_down"] == count).then_some(())
            });
        };
        let link = |words: &[&str]| ip(three.rig.command_b("ip"), &[&["link"], words].concat());

        link(&["set", "b1", "down"]);
        is_out("down");
        lost(1);
        says(
            &["why", "relay"],
            "the interface that it was to leave by is down or gone",
        );
        says(&["status"], "`ip link set b1 up`");
        link(&["set", "b1", "up"]);
        is_out(mode);
        ask_and_answer(&client, &server, 2);

        link(&["del", "b1"]);
        is_out("gone");
        lost(2);
        says(
            &["status"],
            "it is taken again when there is an interface `b1`",
        );
        three.wire(true);
        is_out(mode);
        ask_and_answer(&client, &server, 3);
        let shown = relay(&node);
        assert_eq!(shown["fates"]["forwarded"], 6, "{mode} {tier}: {shown:#}");
        assert_eq!(shown["tier"], tier, "{mode} {tier}: {shown:#}");
        node.stop().unwrap();
    }
}
