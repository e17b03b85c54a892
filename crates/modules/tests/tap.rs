//! Taps and capture files. What is written is read by the `pcap-file` crate, and
//! by `tshark` where there is one.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod world;

use std::io::{self, Write};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ashway_abi::Count;
use ashway_modules::handler::Act;
use ashway_modules::tap::pcapng::{Record, Writer};
use ashway_modules::tap::{Bound, Layer, Seen, Tap, Watch};
use ashway_path::stage::Direction::Backward;
use ashway_path::time::Time;
use ashway_rig::skip::skip;
use pcap_file::pcapng::PcapNgReader;
use pcap_file::pcapng::blocks::Block;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionOption;
use world::{Fake, attrs, books_close, create, end, send, udp};

const US: &str = "10.0.1.1:9000";
const THEM: &str = "10.0.1.2:4000";

/// Keeps what it sees.
#[derive(Default)]
struct Notes(Mutex<Vec<Note>>);

/// When, which way, on which path, by which tap, what.
type Note = (u64, Bound, String, String, Vec<u8>);

impl Watch for Notes {
    fn see(&self, seen: &Seen<'_>) {
        let (path, tap) = (seen.path.to_string(), seen.tap.to_owned());
        let note = (seen.at.0, seen.bound, path, tap, seen.bytes.to_vec());
        self.0.lock().unwrap().push(note);
    }
}

/// An echo with a tap over the link and one over UDP.
fn graph(watch: &Arc<impl Watch + 'static>) -> ashway_path::graph::Graph<ashway_modules::Message> {
    let tap = |name: &str, layer| {
        Box::new(Tap {
            name: name.into(),
            layer,
            watch: Arc::clone(watch) as Arc<dyn Watch>,
        })
    };
    world::graph(
        vec![
            ("wire", world::eth("wire", 1, end(1, US))),
            ("low", tap("low", Layer::Network)),
            ("ip", world::ip()),
            ("udp", world::udp_module()),
            ("high", tap("high", Layer::Payload)),
            ("echo", Fake::new(|_| Act::Reply).module("echo")),
        ],
        &[
            ("low.down", "wire.up"),
            ("ip.down", "low.up"),
            ("udp.down", "ip.up"),
            ("high.down", "udp.up"),
            ("echo.down", "high.up"),
        ],
    )
}

#[test]
fn a_tap_shows_each_message_at_its_layer_and_changes_nothing() {
    let notes = Arc::new(Notes::default());
    let graph = graph(&notes);
    let mut path = create(&graph, "echo", attrs(&[("path", "gold")]), true).unwrap();
    let frame = udp(end(2, THEM), end(1, US), None, b"hello");
    let exits = send(&mut path, Backward, &frame, Time(77));
    let [ashway_path::path::Exit::Left { message, .. }] = exits.as_slice() else {
        panic!("{exits:?}");
    };
    let answer = message.bytes();
    assert_eq!(world::read(answer).payload, b"hello");
    let seen = notes.0.lock().unwrap();
    let expected = [
        (Bound::Inbound, "low", &frame[14..]),
        (Bound::Inbound, "high", b"hello"),
        (Bound::Outbound, "high", b"hello"),
        (Bound::Outbound, "low", &answer[14..]),
    ];
    assert_eq!(seen.len(), expected.len());
    for (seen, (bound, tap, bytes)) in seen.iter().zip(expected) {
        let expected = (77, bound, "gold".to_owned(), tap.to_owned(), bytes.to_vec());
        assert_eq!(*seen, expected);
    }
    books_close(&path);
}

/// 2026-01-02 03:04:05 UTC.
const EPOCH: Duration = Duration::from_secs(1_767_323_045);

fn capture() -> Vec<u8> {
    let frame = udp(end(2, THEM), end(1, US), None, &[7; 100]);
    let mut writer = Writer::new(Vec::new(), 63, EPOCH).unwrap();
    for (at, bound, layer, fate) in [
        (1, Bound::Inbound, Layer::Link, Some(Count::Passed)),
        (
            2,
            Bound::Outbound,
            Layer::Link,
            Some(Count::DroppedBadLength),
        ),
        (
            1_000_000_003,
            Bound::Inbound,
            Layer::Network,
            Some(Count::Answered),
        ),
        (4, Bound::Inbound, Layer::Payload, None),
    ] {
        let from = match layer {
            Layer::Link => 0,
            Layer::Network => 14,
            Layer::Payload => 41,
        };
        let record = Record {
            at: Time(at),
            bound,
            interface: "veth0",
            layer,
            bytes: &frame[from..],
            fate,
            comment: "path gold",
        };
        writer.write(&record).unwrap();
    }
    writer.into_inner()
}

#[test]
fn another_reader_reads_the_file() {
    let file = capture();
    let mut reader = PcapNgReader::new(file.as_slice()).unwrap();
    let (mut interfaces, mut packets) = (Vec::new(), Vec::new());
    while let Some(block) = reader.next_block() {
        match block.unwrap() {
            Block::InterfaceDescription(interface) => {
                assert_eq!(interface.snaplen, 63);
                let name = InterfaceDescriptionOption::IfName("veth0".into());
                assert!(interface.options.contains(&name));
                assert!(
                    interface
                        .options
                        .contains(&InterfaceDescriptionOption::IfTsResol(9))
                );
                interfaces.push(u32::from(interface.linktype));
            }
            Block::EnhancedPacket(packet) => {
                let mut verdict = Vec::new();
                let (mut comments, mut flags) = (Vec::new(), 0);
                for option in &packet.options {
                    match option {
                        EnhancedPacketOption::Comment(text) => comments.push(text.to_string()),
                        EnhancedPacketOption::Flags(bits) => flags = *bits,
                        EnhancedPacketOption::Unknown(option) if option.code == 7 => {
                            verdict = option.value[..2].to_vec();
                            assert_eq!(option.value[2..], [0; 7]);
                        }
                        other => panic!("{other:?}"),
                    }
                }
                let len = (packet.data.len(), packet.original_len);
                let after = packet.timestamp.saturating_sub(EPOCH);
                packets.push((
                    packet.interface_id,
                    after.as_nanos(),
                    len,
                    flags,
                    verdict,
                    comments,
                ));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(interfaces, [1, 101, 147]);
    let path = || "path gold".to_owned();
    assert_eq!(
        packets,
        [
            (
                0,
                1,
                (63, 142),
                1,
                vec![2, 2],
                vec!["passed".to_owned(), path()]
            ),
            (
                0,
                2,
                (63, 142),
                2,
                vec![2, 1],
                vec!["dropped_bad_length".to_owned(), path()]
            ),
            (
                1,
                1_000_000_003,
                (63, 128),
                1,
                vec![2, 3],
                vec!["answered".to_owned(), path()]
            ),
            (2, 4, (63, 101), 1, vec![], vec![path()]),
        ]
    );
}

#[test]
fn tshark_reads_the_file() {
    let file = std::env::temp_dir().join(format!("ashway-tap-{}.pcapng", std::process::id()));
    std::fs::write(&file, capture()).unwrap();
    let fields = [
        "frame.time_epoch",
        "frame.interface_name",
        "frame.len",
        "frame.cap_len",
        "frame.packet_flags_direction",
        "frame.verdict.ebpf_xdp",
        "frame.comment",
        "udp.dstport",
    ];
    let mut command = Command::new("tshark");
    command
        .arg("-r")
        .arg(&file)
        .args(["-T", "fields", "-E", "separator=;"]);
    for field in fields {
        command.args(["-e", field]);
    }
    let output = command.output();
    std::fs::remove_file(&file).unwrap();
    let output = match output {
        Ok(output) => output,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            skip("needs tshark (apt-get install tshark)");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        text,
        "1767323045.000000001;veth0;142;63;0x00000001;2;passed,path gold;9000\n\
         1767323045.000000002;veth0;142;63;0x00000002;1;dropped_bad_length,path gold;9000\n\
         1767323046.000000003;veth0;128;63;0x00000001;3;answered,path gold;9000\n\
         1767323045.000000004;veth0;101;63;0x00000001;;path gold;\n"
    );
}

/// Takes so many bytes, and nothing behind the first that it refused.
struct Small {
    left: usize,
    refused: bool,
}

impl Write for Small {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        assert!(!self.refused, "written behind a hole");
        self.refused = bytes.len() > self.left;
        if self.refused {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.left -= bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_stops_the_file_and_not_the_path() {
    let disk = Small {
        left: 300,
        refused: false,
    };
    let writer = Writer::new(disk, 64, EPOCH).unwrap();
    let file = Arc::new(Mutex::new(writer));
    let mut path = create(&graph(&file), "echo", attrs(&[]), true).unwrap();
    let frame = udp(end(2, THEM), end(1, US), None, b"hello");
    for _ in 0..10 {
        let exits = send(&mut path, Backward, &frame, Time(77));
        assert_eq!(exits.len(), 1);
    }
    assert_eq!(path.account().fate(Count::Answered), 10);
    let writer = file.lock().unwrap();
    assert_eq!(writer.error().unwrap().kind(), io::ErrorKind::StorageFull);
    assert!((36..40).contains(&writer.lost()), "{}", writer.lost());
}

#[test]
fn interfaces_are_bounded() {
    let mut writer = Writer::new(io::sink(), 64, EPOCH).unwrap();
    let mut write = |name: &str| {
        writer.write(&Record {
            at: Time(0),
            bound: Bound::Inbound,
            interface: name,
            layer: Layer::Link,
            bytes: &[],
            fate: None,
            comment: "",
        })
    };
    for at in 0..256 {
        write(&at.to_string()).unwrap();
    }
    write("255").unwrap();
    assert_eq!(
        write("256").unwrap_err().kind(),
        io::ErrorKind::InvalidInput
    );
}
