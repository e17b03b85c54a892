//! A client that nobody here wrote goes through the relay.

use std::process::Stdio;

use ashway_netns::node::{run, text, until};
use ashway_rig::namespace::Namespace;
use ashway_rig::skip::{skip, skip_without};
use ashway_rig::{Process, skip_unless_root};
use serde_json::Value;

use super::three::{C8, Three, closed, ip, relay};

/// Datagrams for which a socket of this host had no room.
fn socket_was_full(host: &Namespace) -> u64 {
    let said = text(&run(host.command("cat").arg("/proc/net/snmp")));
    let mut udp = said.lines().filter(|line| line.starts_with("Udp:"));
    let (names, values) = (udp.next().unwrap(), udp.next().unwrap());
    let mut pairs = names.split(' ').zip(values.split(' '));
    let full = pairs.find(|(name, _)| *name == "RcvbufErrors").unwrap();
    full.1.parse().unwrap()
}

/// A client nobody here wrote, at a rate that a busy machine can keep. Its
/// control connection (TCP) is routed.
fn iperf3_through(tier: &str) {
    if skip_unless_root() || skip_without("iperf3", "iperf3") {
        return;
    }
    let three = Three::new(&format!("fwd-iperf-{tier}"));
    let node = three.node("native", tier);
    // A speaks to 10.7.0.2:5000; its TCP goes on to C by the host's own rules.
    let nft = "table ip relay { chain pre { type nat hook prerouting priority dstnat; \
               ip protocol tcp tcp dport 5000 dnat to 10.8.0.3:6000; }; \
               chain post { type nat hook postrouting priority srcnat; \
               oifname \"b1\" masquerade; }; }";
    let made = run(three.rig.command_b("nft").arg(nft));
    if !made.status.success() {
        skip(format!("nft cannot make NAT here: {}", text(&made).trim()));
        return;
    }
    ip(
        three.rig.command_b("sysctl"),
        &["-qw", "net.ipv4.ip_forward=1"],
    );
    let mut serve = three.c.command("iperf3");
    serve.args(["-s", "-p", "6000", "-B", C8]);
    serve.stdout(Stdio::null());
    let server = Process::spawn(serve).unwrap();
    let mut client = three.rig.command_a("iperf3");
    client.args([
        "-c", "10.7.0.2", "-p", "5000", "-u", "-b", "20M", "-l", "1000", "-t", "2", "-J",
    ]);
    // Before its server listens, and on a busy machine sometimes later, it gives up
    // and says so instead of a sum.
    let report = until("iperf3 has run", || {
        let output = run(&mut client);
        let report: Value = serde_json::from_slice(&output.stdout).ok()?;
        report["end"]["sum"]["packets"].is_u64().then_some(report)
    });
    drop(server);
    let sum = &report["end"]["sum"];
    let (sent, lost) = (
        sum["packets"].as_u64().unwrap(),
        sum["lost_packets"].as_u64(),
    );
    println!(
        "iperf3, {tier} tier: {sent} datagrams, lost {lost:?}, jitter {} ms",
        sum["jitter_ms"]
    );
    assert!(sent > 1000, "{sum:#}");
    let status = closed(&node);
    let live = &status["module_paths"];
    // A full part of the ring is a fate too: what iperf3 misses is in the ledger, or did not get
    // into its socket, where it looks too seldom on a busy machine.
    let dropped = live["fates"]["dropped"]["queue_full"].as_u64().unwrap_or(0);
    let unheard = socket_was_full(&three.c);
    assert!(live["received"].as_u64().unwrap() >= sent, "{live:#}");
    assert!(
        lost.unwrap() <= dropped + unheard + 5,
        "lost {lost:?}, {unheard} at the socket: {live:#}"
    );
    assert_eq!(relay(&node)["balanced"], true);
}

#[test]
fn iperf3_goes_through_the_user_tier() {
    iperf3_through("user");
}

#[test]
fn iperf3_goes_through_the_kernel_tier() {
    iperf3_through("kernel");
}
