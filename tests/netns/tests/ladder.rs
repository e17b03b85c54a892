//! The same handler, configuration and client on every rung of the ladder.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use std::fs::{self, File, Permissions};
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::path::Path as FsPath;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ashway_netns::node::{
    Config, Lines, application, assert_free, at_rest, entry, ip, proc_status, run, shift, stock,
    text, until,
};
use ashway_netns::rootless::{Wire, inside};
use ashway_rig::skip::{skip, skip_without};
use ashway_rig::{Frame, MAC_B, Node, Rig, Signal, UdpClient, ashway, skip_unless_root};
use pcap_file::pcap::{PcapPacket, PcapWriter};
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use pcap_file::pcapng::{Block, PcapNgReader};
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

/// A node that some ordinary process runs, in namespaces or not.
struct Plain {
    node: Lines,
    folder: Folder,
    /// What it said before it was ready.
    said: String,
}

impl Plain {
    fn start(config: &str, through: &[&str]) -> Self {
        let folder = Folder::new();
        let command = folder.run(config, through);
        let (mut node, mut said) = (Lines::start(command).unwrap(), String::new());
        loop {
            let line = node.hear().unwrap();
            if line.starts_with("ready") {
                break;
            }
            said += &line;
            said.push('\n');
        }
        Self { node, folder, said }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(ashway().unwrap());
        let socket = self.folder.path("control.sock");
        command.args(words).arg("--socket").arg(socket);
        command
    }

    fn ask(&self, words: &[&str]) -> Output {
        run(&mut self.command(words))
    }

    fn status(&self) -> Value {
        serde_json::from_slice(&self.ask(&["status", "-j"]).stdout).unwrap()
    }

    fn at_rest(&self) -> Value {
        until("the ledgers close", || {
            let status = self.status();
            let paths = status["paths"].as_array().unwrap();
            paths
                .iter()
                .all(|path| path["balanced"] == true)
                .then_some(status)
        })
    }

    fn stop(&mut self) {
        self.node.process().signal(Signal::TERM).unwrap();
        while self.node.hear().is_ok() {}
        assert!(!self.folder.path("control.sock").exists());
    }
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

/// What starts a process of an ordinary user, who has no capability at all.
fn as_ordinary_user() -> &'static [&'static str] {
    if !rustix::process::geteuid().is_root() {
        return &[];
    }
    &[
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "--no-new-privs",
    ]
}

/// What the client of the other rungs sends, as frames, and one that is for no path.
fn requests() -> Vec<Vec<u8>> {
    let counted = (1..=100_u32).map(|number| (7777, number));
    let sifted = (0..20_u32).map(|number| (7778, number));
    let all = counted.chain(sifted).chain([(9, 0)]);
    let frame = |(port, number): (u16, u32)| Frame::to_b(port, &number.to_be_bytes()).bytes();
    all.map(frame).collect()
}

/// The payload of a frame over IPv4, up to the end of a number.
fn number(frame: &[u8]) -> u32 {
    u32::from_be_bytes(frame[42..46].try_into().unwrap())
}

/// The answers to those requests, in order, and which of them the host gets.
fn expected() -> (Vec<u32>, Vec<Vec<u8>>) {
    let sums = (1..=100_u32).scan(0, |sum, number| {
        *sum += number;
        Some(*sum)
    });
    let all = requests();
    let odd = (101..120).step_by(2).map(|at| all[at].clone());
    (sums.collect(), odd.chain([all[120].clone()]).collect())
}

/// Writes a capture of the frames, 1 ms apart.
fn write_capture(file: &FsPath, frames: &[Vec<u8>]) {
    let mut writer = PcapWriter::new(File::create(file).unwrap()).unwrap();
    for (at, frame) in frames.iter().enumerate() {
        let time = Duration::from_secs(1_700_000_000) + Duration::from_millis(at as u64);
        let packet = PcapPacket::new(time, frame.len() as u32, frame);
        writer.write_packet(&packet).unwrap();
    }
}

/// What was sent and what was passed, each with its time, of a capture that a node wrote.
fn written(file: &FsPath) -> [Vec<(Duration, Vec<u8>)>; 2] {
    let mut reader = PcapNgReader::new(File::open(file).unwrap()).unwrap();
    let [mut sent, mut passed] = [Vec::new(), Vec::new()];
    while let Some(block) = reader.next_block() {
        if let Block::EnhancedPacket(packet) = block.unwrap() {
            let is_sent = packet.options.contains(&EnhancedPacketOption::Flags(2));
            let list = if is_sent { &mut sent } else { &mut passed };
            list.push((packet.timestamp, packet.data.to_vec()));
        }
    }
    [sent, passed]
}

/// An ordinary user has a capture worked on, with the gaps that it has and without.
#[test]
fn a_capture_by_an_ordinary_user() {
    for pace in ["full", "capture"] {
        let folder = Folder::new();
        write_capture(&folder.path("in.pcap"), &requests());
        let lines =
            format!("attach = \"pcap\"\nread = \"in.pcap\"\nwrite = \"out.pcap\"\npace = {pace:?}");
        let config = String::from(config("pcap")).replace("attach = \"pcap\"", &lines);
        let mut command = folder.run(&config, as_ordinary_user());
        let output = run(command.arg("--until-end"));
        let said = text(&output);
        assert_eq!(output.status.code(), Some(0), "{said}");
        for line in [
            "b0: capture file: ",
            "in.pcap` is at its end: 121 frames; ",
            "received 121: 10 consumed, 100 answered, 11 passed",
        ] {
            assert!(said.contains(line), "{line}: {said}");
        }
        let [sent, passed] = written(&folder.path("out.pcap"));
        let (sums, to_host) = expected();
        assert_eq!(
            sent.iter()
                .map(|(_, frame)| number(frame))
                .collect::<Vec<_>>(),
            sums
        );
        assert_eq!(
            passed
                .iter()
                .map(|(_, frame)| frame.clone())
                .collect::<Vec<_>>(),
            to_host
        );
        // An answer has the time of its request, and at the capture's pace what it took besides.
        let begin = Duration::from_secs(1_700_000_000);
        for (at, (time, _)) in sent.iter().enumerate() {
            let asked = begin + Duration::from_millis(at as u64);
            assert!(*time == asked || pace == "capture" && *time > asked, "{at}");
        }
        assert!(!folder.path("control.sock").exists());
    }
}

/// A capture that breaks off has worked on what is before that place, and says where it is.
#[test]
fn a_capture_that_is_cut_is_worked_on_up_to_there() {
    let folder = Folder::new();
    let file = folder.path("in.pcap");
    write_capture(&file, &requests());
    let whole = fs::read(&file).unwrap();
    let lines = "attach = \"pcap\"\nread = \"in.pcap\"\npace = \"full\"";
    let config = String::from(config("pcap")).replace("attach = \"pcap\"", lines);
    // In the middle of the 51st frame, and of its header.
    let record = 16 + requests()[0].len();
    for cut in [24 + 50 * record + 20, 24 + 50 * record + 7] {
        fs::write(&file, &whole[..cut]).unwrap();
        let output = run(folder.run(&config, as_ordinary_user()).arg("--until-end"));
        let said = text(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        for line in [
            "broken behind its frame 50: the file ends in the middle of it",
            "received 50: 50 answered",
            "not all went through",
        ] {
            assert!(said.contains(line), "{line}: {said}");
        }
    }
    // What is no capture is refused before anything begins, and so is what is not there.
    for (bytes, because, code) in [
        (
            Some(&b"no capture at all, but as long"[..]),
            "cannot read",
            2,
        ),
        (Some(b"x"), "too short for a capture", 2),
        (None, "No such file", 2),
    ] {
        let _ = fs::remove_file(&file);
        if let Some(bytes) = bytes {
            fs::write(&file, bytes).unwrap();
        }
        let output = run(folder.run(&config, as_ordinary_user()).arg("--until-end"));
        let said = text(&output);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(because) && said.contains("in.pcap"), "{said}");
    }
}

/// A program that uses the node as a library is the wire, and the host.
#[test]
fn a_link_in_memory_to_whoever_runs_the_node() {
    let folder = Folder::new();
    let text = String::from(config("memory"));
    let mac: Vec<_> = MAC_B.iter().map(|byte| format!("{byte:02x}")).collect();
    let lines = format!("attach = \"memory\"\nmac = \"{}\"", mac.join(":"));
    let text = text.replace("attach = \"memory\"", &lines);
    let config = ashway_config::parse(&folder.path("node.toml"), text.as_bytes()).unwrap();
    let (mut node, _engine) = ashway_node::build(&config).unwrap();
    let link = node.far_end("b0").unwrap();
    assert!(node.far_end("b0").is_none(), "there is one");

    let (sums, to_host) = expected();
    let (all, mut answers) = (requests(), Vec::new());
    let patience = Duration::from_secs(30);
    for frame in &all[..100] {
        link.give(frame).unwrap();
        answers.push(number(&link.take(patience).unwrap()));
    }
    assert_eq!(answers, sums);
    all[100..]
        .iter()
        .for_each(|frame| link.give(frame).unwrap());
    let passed = to_host
        .iter()
        .map(|_| link.take_passed(patience).unwrap().into_vec());
    // What no path wants waits for no path.
    let [passed, to_host] = [passed.collect(), to_host.clone()].map(|mut all: Vec<_>| {
        all.sort();
        all
    });
    assert_eq!(passed, to_host);
    assert!(link.take(Duration::ZERO).is_none() && link.take_passed(Duration::ZERO).is_none());
    drop(node);
    assert_eq!(link.give(&all[0]), Err(ashway_node::NotTaken::Gone));
}

/// A topology of an ordinary user's own: two links in memory, a source, a handler that answers.
#[test]
fn interfaces_joined_in_memory_by_an_ordinary_user() {
    let config = Config::default()
        .text("[iface.m0]\nattach = \"memory\"\npeer = \"m1\"")
        .text("[iface.m1]\nattach = \"memory\"\nmac = \"02:00:00:00:00:11\"")
        .handler("counter")
        .unwrap()
        .path_on("[\"m1\"]", "counter", 7777, "auto")
        .text("[module.load]\nkind = \"source\"\ndown = \"udp.up\"")
        .text("[path.load]\nfrom = \"load\"\n[path.load.attrs]\npathname = \"udp/eth:m0\"")
        .text("local = \"10.1.0.1:7000\"\nremote = \"10.1.0.2:7777\"")
        .text("next_mac = \"02:00:00:00:00:11\"\nrate = 100000\ncount = 500");
    let mut node = Plain::start(&String::from(config), as_ordinary_user());
    let status = until("all are answered", || {
        let status = node.at_rest();
        let answered = &entry(&status, "paths", "counter")["fates"]["answered"];
        (*answered == 500).then_some(status)
    });
    // The answers come to the source's own path, which takes what is for it.
    let load = entry(&status, "paths", "load");
    assert_eq!(load["fates"]["consumed"], 500, "{load:#}");
    let [m0, m1] = ["m0", "m1"].map(|name| entry(&status, "interfaces", name));
    assert_eq!(
        (&m0["mode"], &m1["mode"]),
        (&"memory".into(), &"memory".into())
    );
    assert_eq!(m1["unmatched"]["no_host"], 0, "{m1:#}");
    node.stop();
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

/// A folder that goes with the test.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("ashway-ladder-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir(&folder).unwrap();
        // For an ordinary user, too.
        fs::set_permissions(&folder, Permissions::from_mode(0o777)).unwrap();
        Self(folder)
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.join(name)
    }

    /// `ashway run` of a configuration here, started by way of this.
    fn run(&self, config: &str, through: &[&str]) -> Command {
        let file = self.path("node.toml");
        fs::write(&file, config).unwrap();
        let ashway = ashway().unwrap();
        let mut command = match through {
            [] => Command::new(ashway),
            [first, rest @ ..] => {
                let mut command = Command::new(first);
                command.args(rest).arg(ashway);
                command
            }
        };
        command.arg("run").arg(&file);
        command.arg("--socket").arg(self.path("control.sock"));
        command
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
