//! The same handler, configuration and client on every rung of the ladder.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

mod own;
mod plain;

use std::fs;
use std::net::UdpSocket;
use std::process::Command;
use std::time::Duration;

use ashway_netns::node::{
    Config, Lines, application, assert_free, at_rest, entry, ip, proc_status, run, shift, stock,
    text, until,
};
use ashway_netns::rootless::{Wire, inside};
use ashway_rig::skip::{skip, skip_without};
use ashway_rig::{Node, Rig, UdpClient, ashway, skip_unless_root};
use plain::{Folder, Plain};
use serde_json::Value;

/// Bits of `CapEff` (linux/capability.h).
const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;

/// What starts a node in a process that lacks the privilege for arenas.
const WITHOUT_PERFMON: [&str; 2] = ["setpriv", "--bounding-set=-perfmon,-sys_admin"];

/// The configuration of every rung; only the interface's mode differs.
fn config(mode: &str) -> Config {
    config_with(mode, "auto")
}

fn config_with(mode: &str, even_in: &str) -> Config {
    let config = Config::on_b0(mode).handler("counter").unwrap();
    let config = config.handler("even").unwrap();
    config
        .path("counter", 7777, "auto")
        .path("even", 7778, even_in)
}

/// Counts up by requests from A, `from` being the sum so far.
fn count(client: &UdpClient, from: u32, requests: u32) -> u32 {
    let mut sum = from;
    for number in 1..=requests {
        sum += number;
        assert_eq!(client.ask_number(number).unwrap(), sum);
    }
    sum
}

/// Even numbers are consumed, odd ones reach the host's own socket.
fn takes_even_ones_only(client: &UdpClient, host: &UdpSocket) {
    host.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    for number in 0..20_u32 {
        client.send(&number.to_be_bytes()).unwrap();
    }
    let here = client.socket().local_addr().unwrap();
    for number in (1..20_u32).step_by(2) {
        let mut bytes = [0; 16];
        let (len, from) = host.recv_from(&mut bytes).unwrap();
        assert_eq!(bytes[..len], number.to_be_bytes());
        assert_eq!(from, here, "the sender's own address");
    }
    host.set_nonblocking(true).unwrap();
    assert!(host.recv(&mut [0]).is_err(), "nothing else comes");
}

/// Everything that must hold on a rung with XDP, in both tiers.
fn climb(rig: &Rig, node: &Node, mode: &str, memory: &str) {
    let status = node.status().unwrap();
    let iface = entry(&status, "interfaces", "b0");
    assert_eq!(
        (&iface["mode"], &iface["consumes"]),
        (&mode.into(), &true.into())
    );
    for name in ["counter", "even"] {
        let handler = entry(&status, "handlers", name);
        assert_eq!(handler["memory"], memory, "{handler:#}");
        let promotion = &handler["promotion"];
        assert_eq!(
            promotion["state"],
            "promoted",
            "{handler:#}\n{}",
            node.output()
        );
    }
    let client = rig.client_a(7777).unwrap();
    let mut app = application(node, "counter", "counter_app").unwrap();
    let mut sum = 0;
    for verb in ["promote", "demote", "promote"] {
        shift(node, verb, "counter");
        shift(node, verb, "even");
        sum = count(&client, sum, 100);
        assert_eq!(app.ask("").unwrap(), sum.to_string());
        // The host's own application must not hear what is answered.
        let host = rig.in_b(|| UdpSocket::bind("0.0.0.0:7777")).unwrap();
        sum = count(&client, sum, 10);
        host.set_nonblocking(true).unwrap();
        assert!(host.recv(&mut [0]).is_err());
        let host = rig.in_b(|| UdpSocket::bind("0.0.0.0:7778")).unwrap();
        takes_even_ones_only(&rig.client_a(7778).unwrap(), &host);
    }
    let status = at_rest(node);
    let counter = entry(&status, "paths", "counter");
    assert_eq!(
        (&counter["received"], &counter["fates"]["answered"]),
        (&330.into(), &330.into())
    );
    let even = entry(&status, "paths", "even");
    let fates = &even["fates"];
    assert_eq!(
        (&fates["consumed"], &fates["passed"]),
        (&30.into(), &30.into()),
        "{even:#}"
    );
}

/// What `ashway doctor b0 -j` in B says when it is started like the node.
fn doctor(rig: &Rig, through: &[&str]) -> Value {
    let wrapped = |json: &[&str]| {
        let mut command = match through {
            [] => rig.ashway_b().unwrap(),
            [first, rest @ ..] => {
                let mut command = rig.command_b(first);
                command.args(rest).arg(ashway().unwrap());
                command
            }
        };
        let output = run(command.args(["doctor", "b0"]).args(json));
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        text(&output)
    };
    let document: Value = serde_json::from_str(&wrapped(&["-j"])).unwrap();
    let human = wrapped(&[]);
    assert!(human.starts_with("rung: "), "{human}");
    assert!(human.contains("interface b0 (driver veth)"), "{human}");
    document
}

#[test]
fn native_xdp_with_arenas() {
    if skip_unless_root() {
        return;
    }
    let rig = stock("arena");
    let found = doctor(&rig, &[]);
    assert_eq!(found["rung"]["name"], "native_arena", "{found:#}");
    let node = rig.node(config("native")).start().unwrap();
    climb(&rig, &node, "native", "arena");

    // The doctor looks without disturbing, and names who has the interface.
    let found = doctor(&rig, &[]);
    let program = &found["interfaces"][0]["xdp_program"];
    assert_eq!(
        (&program["is_ashway"], &program["pid"]),
        (&true.into(), &node.id().into())
    );
    node.stop().unwrap();
}

#[test]
fn native_xdp_with_arrays_where_perfmon_is_missing() {
    if skip_unless_root() {
        return;
    }
    let rig = stock("array");
    let found = doctor(&rig, &WITHOUT_PERFMON);
    assert_eq!(found["rung"]["name"], "native_array", "{found:#}");
    let because = found["rung"]["because"].as_str().unwrap();
    assert!(because.contains("CAP_PERFMON"), "{because}");

    let node = rig
        .node(config("auto"))
        .through(WITHOUT_PERFMON)
        .start()
        .unwrap();
    let held = u64::from_str_radix(&proc_status(node.id(), "CapEff"), 16).unwrap();
    for capability in [CAP_SYS_ADMIN, CAP_PERFMON] {
        assert_eq!(
            held >> capability & 1,
            0,
            "capability {capability} in {held:#x}"
        );
    }
    climb(&rig, &node, "native", "array");
    let because = &node.status().unwrap()["interfaces"][0]["because"];
    let because = because.as_str().unwrap();
    assert!(
        because.starts_with("TCX cannot be used (arena programs: "),
        "{because}"
    );
    assert_eq!(found["interfaces"][0]["auto"]["because"], because);
    node.stop().unwrap();

    // Asked for by name, an arena is refused there, and nothing is attached.
    let config = String::from(config("auto"));
    let config = config.replace("[handler.even]", "memory = \"arena\"\n[handler.even]");
    let mut node = rig.node(config).through(WITHOUT_PERFMON).launch().unwrap();
    let status = node.wait().unwrap();
    let output = node.output();
    assert_eq!(status.code(), Some(4), "{output}");
    assert!(output.contains("CAP_PERFMON"), "{output}");
    assert_free(&rig, "b0");
}

#[test]
fn tcx() {
    if skip_unless_root() {
        return;
    }
    let rig = stock("tcx");
    // Which is what `auto` means on a veth.
    let auto = doctor(&rig, &[])["interfaces"][0]["auto"].clone();
    assert_eq!(auto["mode"], "tcx", "{auto:#}");
    let node = rig.node(config("auto")).start().unwrap();
    climb(&rig, &node, "tcx", "arena");
    let status = node.status().unwrap();
    assert_eq!(status["interfaces"][0]["because"], auto["because"]);

    // The doctor looks without disturbing, and names who has the interface.
    let found = doctor(&rig, &[]);
    let programs = found["interfaces"][0]["tcx_programs"].as_array().unwrap();
    assert_eq!(programs.len(), 1, "{found:#}");
    assert_eq!(
        (&programs[0]["is_ashway"], &programs[0]["pid"]),
        (&true.into(), &node.id().into())
    );
    node.stop().unwrap();
}

#[test]
fn generic_xdp() {
    if skip_unless_root() {
        return;
    }
    let rig = stock("generic");
    let node = rig.node(config("generic")).start().unwrap();
    climb(&rig, &node, "generic", "arena");
    node.stop().unwrap();
}

/// Everything that must hold on a rung without a kernel tier, up to what becomes of a message
/// that the handler passes.
fn climb_in_user(node: &Plain, mode: &str, client: impl Fn(u16) -> UdpClient) {
    let before = node.status();
    let iface = entry(&before, "interfaces", "b0");
    assert_eq!(
        (&iface["mode"], &iface["consumes"]),
        (&mode.into(), &true.into())
    );
    assert_eq!(entry(&before, "handlers", "counter")["memory"], "anonymous");
    let refused = node.ask(&["path", "promote", "counter"]);
    assert_eq!(refused.status.code(), Some(3), "{}", text(&refused));
    let refused = text(&refused);
    assert!(refused.contains("without a kernel tier"), "{refused}");

    let host = UdpSocket::bind("0.0.0.0:7777").unwrap();
    let sum = count(&client(7777), 0, 100);
    host.set_nonblocking(true).unwrap();
    let heard = host.recv(&mut [0]);
    assert!(heard.is_err(), "the host hears what was answered");

    let app = ashway_rig::places::application("counter_app").unwrap();
    let mut command = node.command(&["handler", "map", "counter"]);
    command.arg("--").arg(app);
    let mut app = Lines::start(command).unwrap();
    assert_eq!(app.ask("").unwrap(), sum.to_string());
}

/// Without any privilege outside its namespace, a node steps down by itself.
#[test]
fn packet_sockets_without_root() {
    inside("packet_sockets_without_root", || {
        if skip_without("nft", "nftables") {
            return;
        }
        let wire = Wire::new().unwrap();
        let doctor = run(Command::new(ashway().unwrap()).args(["doctor", "b0", "-j"]));
        assert_eq!(doctor.status.code(), Some(0), "{}", text(&doctor));
        let found: Value = serde_json::from_slice(&doctor.stdout).unwrap();
        assert_eq!(found["rung"]["name"], "packet", "{found:#}");

        let mut node = Plain::start(&String::from(config_with("auto", "kernel")), &[]);
        // What asks for the kernel tier is told that there is none.
        let said = text(&node.ask(&["status"]));
        let stays = "path `even` has `tier = \"kernel\"` and stays in the user tier: path `even` is \
                     on an interface without a kernel tier";
        assert!(said.contains(stays), "{said}");
        assert!(!said.contains("path `counter`"), "{said}");

        climb_in_user(&node, "packet", |port| wire.client_a(port).unwrap());
        let host = UdpSocket::bind("0.0.0.0:7778").unwrap();
        takes_even_ones_only(&wire.client_a(7778).unwrap(), &host);
        let after = node.at_rest();
        let even = &entry(&after, "paths", "even")["fates"];
        assert_eq!(
            (&even["consumed"], &even["passed"]),
            (&10.into(), &10.into()),
            "{after:#}"
        );
        assert_eq!(entry(&after, "paths", "counter")["fates"]["answered"], 100);

        node.stop();
        let rules = run(Command::new("nft").args(["list", "tables"]));
        assert_eq!(text(&rules).trim(), "", "rules left behind");
    });
}

/// The host is at the other end of a device that the node makes, and takes away.
#[test]
fn a_tap_device_without_root() {
    inside("a_tap_device_without_root", || {
        let config = String::from(config("tap"));
        let config = config.replace(
            "attach = \"tap\"",
            "attach = \"tap\"\nmac = \"02:00:00:00:00:02\"",
        );
        if fs::OpenOptions::new()
            .write(true)
            .open("/dev/net/tun")
            .is_err()
        {
            skip("needs /dev/net/tun, and write access to it");
            return;
        }
        let line = |line: &str| ip(Command::new("ip"), line);
        line("link set lo up");
        let mut node = Plain::start(&config, &[]);
        assert!(node.said.contains("b0: TAP device"), "{}", node.said);
        line("addr add 10.7.0.1/24 dev b0");
        line("neigh replace 10.7.0.2 lladdr 02:00:00:00:00:02 dev b0 nud permanent");
        let client = |port| UdpClient::connect(([10, 7, 0, 2], port).into()).unwrap();
        climb_in_user(&node, "tap", client);

        // The host has sent it: there is nobody to whom it could be passed.
        let client = client(7778);
        for number in 0..20_u32 {
            client.send(&number.to_be_bytes()).unwrap();
        }
        let after = until("all have come", || {
            let status = node.at_rest();
            (entry(&status, "paths", "even")["received"] == 20).then_some(status)
        });
        let even = &entry(&after, "paths", "even")["fates"];
        assert_eq!(
            (&even["consumed"], &even["dropped"]["no_host"]),
            (&10.into(), &10.into()),
            "{after:#}"
        );
        assert_eq!(entry(&after, "paths", "counter")["fates"]["answered"], 100);

        let why = node.ask(&["why", "udp 10.7.0.1:1 > 10.7.0.2:9", "--iface", "b0"]);
        let why = text(&why);
        assert!(why.contains("on b0 goes to no path"), "{why}");
        assert!(
            why.contains("it is dropped, as the host has sent it itself"),
            "{why}"
        );

        // A second node cannot have the same device, and does not harm the first.
        let folder = node.folder.path("node.toml");
        let mut other = Command::new(ashway().unwrap());
        other.arg("run").arg(folder).arg("--socket");
        let refused = run(other.arg(node.folder.path("other.sock")));
        assert_eq!(refused.status.code(), Some(1), "{}", text(&refused));
        let refused = text(&refused);
        assert!(
            refused.contains("another process has the TAP device `b0`"),
            "{refused}"
        );

        node.stop();
        let left = run(Command::new("ip").args(["link", "show", "b0"]));
        assert!(!left.status.success(), "{}", text(&left));
    });
}

/// A wish for XDP where it cannot be had is refused with what is missing; the
/// kernel tier likewise.
#[test]
fn a_rung_that_is_asked_for_is_not_replaced() {
    inside("a_rung_that_is_asked_for_is_not_replaced", || {
        let folder = Folder::new();
        let _wire = Wire::new().unwrap();
        let file = folder.path("node.toml");
        for mode in ["native", "generic"] {
            fs::write(&file, String::from(config(mode))).unwrap();
            let mut command = Command::new(ashway().unwrap());
            command
                .arg("run")
                .arg(&file)
                .arg("--socket")
                .arg(folder.path("s"));
            let output = run(&mut command);
            assert_eq!(output.status.code(), Some(4), "{}", text(&output));
            let said = text(&output);
            assert!(said.contains("interface `b0` is to use XDP"), "{said}");
            assert!(said.contains("CAP_BPF"), "{said}");
            assert!(!folder.path("s").exists());
        }
    });
}
