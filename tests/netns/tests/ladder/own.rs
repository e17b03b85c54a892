//! Rungs that the node makes itself and that take no privilege: captures, and links in memory.

use std::fs::{self, File};
use std::path::Path as FsPath;
use std::time::Duration;

use ashway_netns::node::{Config, entry, run, text, until};
use ashway_rig::{Frame, MAC_B};
use pcap_file::pcap::{PcapPacket, PcapWriter};
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use pcap_file::pcapng::{Block, PcapNgReader};

use super::config;
use super::plain::{Folder, Plain};

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
