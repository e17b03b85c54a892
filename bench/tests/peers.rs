//! The hand-written program does what Ashway does: else a comparison of their
//! speed would compare different things.

#![forbid(unsafe_code)]

use ashway_bench::hosts::{self, COUNTER_PORT};
use ashway_bench::peers::ByHand;
use ashway_bench::xdp;
use ashway_kernel::{Program, TestRun};
use ashway_rig::{Frame, Spoil, frames, skip::skip, skip_unless_root};

/// Runs once; the verdict and what became of the frame.
fn run(program: &Program, packet: &[u8]) -> (u32, Vec<u8>) {
    let run = TestRun {
        packet,
        context: None,
        repeat: 1,
    };
    let result = program.test_run(&run).expect("root can run programs");
    (result.retval, result.packet)
}

fn to_counter(payload: &[u8]) -> Frame {
    Frame::to_b(COUNTER_PORT, payload)
}

/// The UDP checksum as a veth peer's kernel leaves it: the pseudo-header's sum.
fn half_checksum(mut frame: Vec<u8>) -> Vec<u8> {
    let mut pseudo = frame[26..34].to_vec();
    pseudo.extend([0, 17, frame[38], frame[39]]);
    let sum = !frames::checksum(&pseudo);
    frame[40..42].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// Another TTL, with the header checksum that belongs to it.
fn with_ttl(mut frame: Vec<u8>, ttl: u8) -> Vec<u8> {
    frame[22] = ttl;
    frame[24..26].fill(0);
    let sum = frames::checksum(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

fn requests() -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for len in [4, 5, 6, 7, 8, 11, 12, 13, 31, 64, 333, 1400] {
        let payload: Vec<u8> = (0..len).map(|i| (i * 37 + 11) as u8).collect();
        let whole = to_counter(&payload).bytes();
        all.push((format!("{len} bytes, half"), half_checksum(whole.clone())));
        all.push((format!("{len} bytes, whole"), whole));
        let none = Spoil::NoUdpChecksum;
        all.push((
            format!("{len} bytes, none"),
            to_counter(&payload).spoil(none).bytes(),
        ));
    }
    for ttl in [1, 63, 65, 255] {
        let frame = with_ttl(to_counter(&[0, 0, 0, 1]).bytes(), ttl);
        all.push((format!("ttl {ttl}"), frame));
    }
    for number in [0, 1, u32::MAX, 0x8000_0000] {
        let frame = to_counter(&number.to_be_bytes()).from_port(1).bytes();
        all.push((format!("number {number}"), frame));
    }
    all
}

fn others() -> Vec<(String, Vec<u8>)> {
    let good = || to_counter(&[0, 0, 0, 1]);
    let mut all: Vec<_> = [
        Spoil::IpChecksum,
        Spoil::UdpChecksum,
        Spoil::Truncate(41),
        Spoil::Truncate(45),
        Spoil::Fragment(0, true),
        Spoil::Fragment(8, false),
        Spoil::IpVersion(6),
        Spoil::IpLength(27),
        Spoil::IpLength(200),
        Spoil::UdpLength(7),
        Spoil::UdpLength(13),
        Spoil::Protocol(6),
        Spoil::Ethertype(0x0806),
    ]
    .into_iter()
    .map(|spoil| (format!("{spoil:?}"), good().spoil(spoil).bytes()))
    .collect();
    let mut group = good();
    group.eth_destination = [0xff; 6];
    let mut from_group = good();
    from_group.eth_source[0] |= 1;
    let mut from_multicast = good();
    from_multicast.source = std::net::Ipv4Addr::new(224, 0, 0, 1).into();
    let mut from_nobody = good();
    from_nobody.source = std::net::Ipv4Addr::UNSPECIFIED.into();
    for (name, frame) in [
        ("to a group", group),
        ("from a group", from_group),
        ("from a multicast address", from_multicast),
        ("from nobody", from_nobody),
        ("from port 0", good().from_port(0)),
        (
            "to another port",
            Frame::to_b(COUNTER_PORT + 1, &[0, 0, 0, 1]),
        ),
        ("too short for a number", to_counter(&[0, 0, 1])),
        ("empty", to_counter(&[])),
    ] {
        all.push((name.to_owned(), frame.bytes()));
    }
    all
}

#[test]
fn by_hand_and_ashway_answer_byte_for_byte_alike() {
    if skip_unless_root() {
        return;
    }
    if let Err(error) = ashway_bench::peers::build() {
        skip(format!("{error:#}"));
        return;
    }
    let rig = hosts::stock("peers").unwrap();
    if let Err(error) = xdp::add_tap(&rig, "t0") {
        skip(format!("{error:#}"));
        return;
    }
    let node = rig
        .node(hosts::config_at("t0", "xdp").unwrap())
        .start()
        .unwrap();
    let ashway = xdp::entry(&rig, "t0").unwrap();
    let by_hand = ByHand::load().unwrap();
    for (name, frame) in requests() {
        let (verdict, reply) = run(&ashway, &frame);
        assert_eq!(verdict, xdp::TX, "{name}");
        assert_eq!(run(&by_hand.counter, &frame), (verdict, reply), "{name}");
    }
    for (name, frame) in others() {
        let (verdict, _) = run(&ashway, &frame);
        assert_ne!(verdict, xdp::TX, "{name}");
        assert_eq!(run(&by_hand.counter, &frame).0, verdict, "{name}");
    }
    node.stop().unwrap();
}

/// A flood is of one frame, whatever was done to the page that carries it.
#[test]
fn a_live_frame_is_written_anew() {
    if skip_unless_root() {
        return;
    }
    let frame = to_counter(b"hello").bytes();
    assert_ne!(frame.len() % 4, 0, "there is a rest");
    let program = xdp::rewriting("ashway_test", &frame).expect("root can load programs");
    let turned_around = vec![7; frame.len()];
    assert_eq!(run(&program, &turned_around), (xdp::TX, frame.clone()));
    let short = &turned_around[1..];
    assert_eq!(run(&program, short), (xdp::DROP, short.to_vec()));
}
