//! `ashway handler run` over captures.

use std::fs;
use std::path::{Path, PathBuf};

use ashway_wire::Datagram;
use pcap_file::DataLink;
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapReader, PcapWriter};
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionBlock;
use pcap_file::pcapng::{PcapNgBlock, PcapNgWriter};
use serde_json::Value;

use super::{Directory, REPLY, frame, frame_v6, handler, json, said, text, wasm_file};

/// VLAN 5.
const VLAN: &[u8] = &[0x81, 0, 0, 5];

fn pcap(directory: &Directory, name: &str, frames: &[Vec<u8>]) -> PathBuf {
    let mut writer = PcapWriter::new(Vec::new()).unwrap();
    for (frame, second) in frames.iter().zip(1..) {
        let time = std::time::Duration::from_secs(second);
        let packet = PcapPacket::new(time, frame.len() as u32, frame);
        writer.write_packet(&packet).unwrap();
    }
    directory.file(name, writer.into_writer())
}

fn frames_of(file: &Path) -> Vec<Vec<u8>> {
    let mut reader = PcapReader::new(fs::File::open(file).unwrap()).unwrap();
    let mut frames = Vec::new();
    while let Some(packet) = reader.next_packet() {
        frames.push(packet.unwrap().data.into_owned());
    }
    frames
}

#[test]
fn a_capture_is_answered() {
    let directory = Directory::new("capture");
    let wasm = wasm_file(&directory, "reply.wasm", REPLY);
    let arp = [&[0xff; 6][..], &[2, 0, 0, 0, 0, 1, 8, 6], &[0; 46]].concat();
    let mut spoiled = frame(b"\x01x", &[], &[]);
    spoiled[14 + 8] ^= 1;
    let frames = [
        frame(b"\x01abc", &[], &[]),
        frame(b"\x02abc", &[1, 1, 1, 0], &[]),
        frame(b"\x03abc", &[], VLAN),
        frame_v6(b"\x04abc"),
        frame(b"\x07pass", &[], &[]),
        frame(b"", &[], &[]),
        arp.clone(),
        frame(b"\x09trap", &[], &[]),
        spoiled,
    ];
    let input = pcap(&directory, "in.pcap", &frames);
    let out = directory.0.join("out.pcap");
    let args = [
        "run",
        text(&wasm),
        "--pcap",
        text(&input),
        "--out",
        text(&out),
    ];
    let compared = [&args[..], &["--tier", "user,interpreter", "-j"]].concat();
    let document = json(&handler(&compared), 0);
    let verdicts: Vec<_> = document["packets"]
        .as_array()
        .unwrap()
        .iter()
        .map(|packet| {
            assert_eq!(packet["user"], packet["interpreter"], "{packet:#}");
            packet["user"]["verdict"]
                .as_str()
                .or_else(|| packet["skipped"].as_str())
                .or_else(|| packet["user"]["stopped"]["cause"].as_str())
                .unwrap()
                .to_owned()
        })
        .collect();
    assert_eq!(
        verdicts,
        [
            "reply",
            "reply",
            "reply",
            "reply",
            "pass",
            "drop",
            "not UDP, passed",
            "unreachable",
            "bad IP checksum, dropped",
        ]
    );
    assert_eq!(document["difference"], Value::Null);
    assert_eq!(
        document["memory"]["user"],
        document["memory"]["interpreter"]
    );
    assert_eq!(document["out"]["frames"], 7);

    let written = frames_of(&out);
    for (index, first) in [(0, 2), (1, 3), (3, 5)] {
        let answer = &written[index];
        let datagram = Datagram::parse(answer).unwrap();
        let message = datagram.validate(answer).unwrap();
        assert_eq!(datagram.destination.port(), 4000);
        assert_eq!(answer[..6], [2, 0, 0, 0, 0, 1]);
        assert_eq!(answer[message.payload_off], first, "answer {index}");
        assert_eq!(message.payload_len, 4);
    }
    // The tag stays where it was.
    assert_eq!(written[2][12..16], *VLAN);
    let untagged = [&written[2][..12], &written[2][16..]].concat();
    let datagram = Datagram::parse(&untagged).unwrap();
    datagram.validate(&untagged).unwrap();
    assert_eq!(datagram.source.port(), 7777);
    assert_eq!(untagged[42..46], *b"\x04abc");
    // What was passed is as it was: a handler's pass, no UDP, and a stop.
    assert_eq!(written[4], frames[4]);
    assert_eq!(written[5], arp);
    assert_eq!(written[6], frames[7]);

    let (table, _) = said(&handler(&args), 0);
    assert!(
        table.contains("9 packets: 4 reply, 1 pass, 1 drop, 1 not UDP, passed"),
        "{table}"
    );
    assert!(
        table.contains("stopped: unreachable at offset 0x"),
        "{table}"
    );
    assert!(table.contains("wrote 7 frames to"), "{table}");
}

#[test]
fn pcapng_is_read_and_whole_frames_are_given() {
    let directory = Directory::new("pcapng");
    let wasm = wasm_file(&directory, "reply.wasm", REPLY);
    let mut writer = PcapNgWriter::new(Vec::new()).unwrap();
    let interface = InterfaceDescriptionBlock {
        linktype: DataLink::ETHERNET,
        snaplen: 0xffff,
        options: vec![],
    };
    writer.write_block(&interface.into_block()).unwrap();
    let data = frame(b"\x01abc", &[], &[]);
    let packet = EnhancedPacketBlock {
        interface_id: 0,
        timestamp: std::time::Duration::ZERO,
        original_len: data.len() as u32,
        data: data.clone().into(),
        options: vec![],
    };
    writer.write_block(&packet.into_block()).unwrap();
    let input = directory.file("in.pcapng", writer.into_inner());
    let args = ["run", text(&wasm), "--pcap", text(&input), "-j"];
    let document = json(&handler(&args), 0);
    assert_eq!(document["packets"][0]["user"]["message"], "02616263");
    let out = directory.0.join("out.pcap");
    let whole = [&args[..], &["--layer", "eth", "--out", text(&out)]].concat();
    let document = json(&handler(&whole), 0);
    assert_eq!(document["packets"][0]["bytes"], data.len());
    let mut changed = data;
    changed[0] += 1;
    assert_eq!(frames_of(&out), [changed]);
}

#[test]
fn a_broken_capture_is_run_up_to_where_it_breaks() {
    let directory = Directory::new("broken");
    let wasm = wasm_file(&directory, "reply.wasm", REPLY);
    let whole = pcap(
        &directory,
        "in.pcap",
        &[frame(b"\x01", &[], &[]), frame(b"\x02", &[], &[])],
    );
    let bytes = fs::read(&whole).unwrap();
    let cut = directory.file("cut.pcap", &bytes[..bytes.len() - 5]);
    let out = directory.0.join("out.pcap");
    let args = [
        "run",
        text(&wasm),
        "--pcap",
        text(&cut),
        "--out",
        text(&out),
    ];
    let (shown, error) = said(&handler(&args), 1);
    assert!(shown.contains("1 packet: 1 reply"), "{shown}");
    assert!(error.starts_with("error: packet 2 of `"), "{error}");
    assert!(
        error.contains("the file ends in the middle of it"),
        "{error}"
    );
    assert!(
        error.contains("packet 1 was run; `") && error.contains("what left, 1 frame"),
        "{error}"
    );
    let document = json(&handler(&[&args[..], &["-j"]].concat()), 1);
    assert_eq!(document["packets"].as_array().unwrap().len(), 1);
    assert_eq!(document["error"]["code"], "failed");

    for (bytes, because) in [
        (&b"\xd4\xc3"[..], "too short for a capture"),
        (b"no capture at all, only text", "Invalid field value"),
    ] {
        let file = directory.file("none.pcap", bytes);
        let (_, error) = said(&handler(&["run", text(&wasm), "--pcap", text(&file)]), 2);
        assert!(error.contains(because), "{error}");
    }
    let header = PcapHeader {
        datalink: DataLink::LINUX_SLL,
        ..PcapHeader::default()
    };
    let writer = PcapWriter::with_header(Vec::new(), header).unwrap();
    let file = directory.file("cooked.pcap", writer.into_writer());
    let (_, error) = said(&handler(&["run", text(&wasm), "--pcap", text(&file)]), 2);
    assert!(
        error.contains("not Ethernet frames") && error.contains("hint: "),
        "{error}"
    );
}

#[test]
fn the_capture_that_is_read_is_not_overwritten() {
    let directory = Directory::new("same");
    let wasm = wasm_file(&directory, "reply.wasm", REPLY);
    let whole = pcap(&directory, "in.pcap", &[frame(b"\x01", &[], &[])]);
    let before = fs::read(&whole).unwrap();
    let link = directory.0.join("link.pcap");
    std::os::unix::fs::symlink(&whole, &link).unwrap();
    let args = ["run", text(&wasm), "--pcap", text(&whole), "--out"];
    for out in [&whole, &link] {
        let (_, error) = said(&handler(&[&args[..], &[text(out)]].concat()), 2);
        assert!(error.contains("is the capture that is read"), "{error}");
    }
    assert_eq!(fs::read(&whole).unwrap(), before);
}

#[test]
fn a_frame_that_was_cut_in_the_capture_is_neither_run_nor_passed() {
    let directory = Directory::new("snaplen");
    let wasm = wasm_file(&directory, "reply.wasm", REPLY);
    let whole = frame(&[1; 100], &[], &[]);
    let header = PcapHeader {
        snaplen: 60,
        ..PcapHeader::default()
    };
    // As tcpdump writes them; the library's own writer would not.
    let mut bytes = PcapWriter::with_header(Vec::new(), header)
        .unwrap()
        .into_writer();
    for word in [0, 0, 60, whole.len() as u32] {
        bytes.extend_from_slice(&u32::to_be_bytes(word));
    }
    bytes.extend_from_slice(&whole[..60]);
    let file = directory.file("cut.pcap", bytes);
    let out = directory.0.join("out.pcap");
    let args = ["run", text(&wasm), "--pcap", text(&file)];
    let args = [&args[..], &["--out", text(&out)]].concat();
    let (shown, _) = said(&handler(&args), 0);
    assert!(shown.contains("cut short in the capture"), "{shown}");
    assert_eq!(frames_of(&out), Vec::<Vec<u8>>::new());
}
