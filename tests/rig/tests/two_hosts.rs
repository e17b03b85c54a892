//! The rig itself: do the two hosts hear each other, and is nothing left?

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::time::Duration;

use ashway_rig::skip::skip;
use ashway_rig::{B4, B6, Frame, Hogs, Rig, RigOptions, Spoil, realtime, skip_unless_root};

const SECOND: Duration = Duration::from_secs(1);

fn ping(rig: &Rig, address: &str) -> bool {
    let mut ping = rig.command_a("ping");
    ping.args(["-c", "1", "-W", "1", address]);
    ping.stdout(Stdio::null()).status().unwrap().success()
}

/// Real queues of `b0`, as its own `/sys` shows them.
fn queues(rig: &Rig) -> (usize, usize) {
    let output = rig
        .command_b("ls")
        .arg("/sys/class/net/b0/queues")
        .output()
        .unwrap();
    let names = String::from_utf8(output.stdout).unwrap();
    let count = |kind| names.lines().filter(|name| name.starts_with(kind)).count();
    (count("rx-"), count("tx-"))
}

#[test]
fn hosts_hear_each_other_on_one_queue_and_on_two() {
    if skip_unless_root() {
        return;
    }
    for number in [1, 2] {
        let options = RigOptions {
            queues: number,
            ..RigOptions::default()
        };
        let rig = Rig::new(&format!("queues-{number}"), options).unwrap();
        assert_eq!(queues(&rig), (number as usize, number as usize));
        assert!(ping(&rig, &B4.to_string()), "{number} queues, IPv4");
        assert!(ping(&rig, &B6.to_string()), "{number} queues, IPv6");
    }
}

#[test]
fn a_rig_leaves_nothing() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("left", RigOptions::default()).unwrap();
    let name = format!("/run/netns/{}-a", rig.name());
    assert!(std::fs::exists(&name).unwrap());
    drop(rig);
    assert!(!std::fs::exists(&name).unwrap());
}

#[test]
fn what_a_dead_process_left_is_removed() {
    if skip_unless_root() {
        return;
    }
    let mut dead = Command::new("true").spawn().unwrap();
    dead.wait().unwrap();
    let left = format!("ashway-stale-{}-a", dead.id());
    let folder = std::env::temp_dir().join(&left);
    let add = Command::new("ip").args(["netns", "add", &left]).status();
    assert!(add.unwrap().success());
    std::fs::create_dir(&folder).unwrap();

    let _rig = Rig::new("after", RigOptions::default()).unwrap();
    assert!(!std::fs::exists(format!("/run/netns/{left}")).unwrap());
    assert!(!std::fs::exists(&folder).unwrap());
}

#[test]
fn a_client_asks_a_server_beside_hogs() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("udp", RigOptions::default()).unwrap();
    let server = rig.in_b(|| UdpSocket::bind((B4, 7777)).unwrap());
    server.set_read_timeout(Some(10 * SECOND)).unwrap();
    let serving = std::thread::spawn(move || {
        let mut request = [0; 4];
        for _ in 0..100 {
            let (_, client) = server.recv_from(&mut request).unwrap();
            let reply = u32::from_be_bytes(request) + 1;
            server.send_to(&reply.to_be_bytes(), client).unwrap();
        }
    });
    let hogs = Hogs::start(2).unwrap();
    let client = rig.client_a(7777).unwrap();
    client.set_timeout(10 * SECOND).unwrap();
    let asked = realtime(|| {
        for number in 0..100 {
            assert_eq!(client.ask_number(number).unwrap(), number + 1);
        }
    });
    if let Err(why) = asked {
        skip(why.to_string());
        return;
    }
    serving.join().unwrap();
    drop(hogs);
}

#[test]
fn the_kernel_takes_good_frames_and_no_spoiled_ones() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("frames", RigOptions::default()).unwrap();
    let v4 = rig.in_b(|| UdpSocket::bind((B4, 7777)).unwrap());
    let v6 = rig.in_b(|| UdpSocket::bind((B6, 7777)).unwrap());
    let injector = rig.injector_a().unwrap();
    // Frames are handled in order: when a good one has come, an earlier
    // spoiled one would have come before it.
    let check = |name: &str, frame: Frame, server: &UdpSocket, taken: bool| {
        server.set_read_timeout(Some(10 * SECOND)).unwrap();
        let marker = if server.local_addr().unwrap().is_ipv4() {
            Frame::to_b(7777, b"marker")
        } else {
            Frame::to_b_v6(7777, b"marker")
        };
        injector.send(&frame.bytes()).unwrap();
        injector.send(&marker.bytes()).unwrap();
        let mut payload = [0; 64];
        let len = server.recv(&mut payload).unwrap();
        assert_eq!(&payload[..len] == b"probe", taken, "{name}");
        if taken {
            assert_eq!(server.recv(&mut payload).unwrap(), 6, "{name}: marker");
        }
    };
    let good4 = || Frame::to_b(7777, b"probe");
    let good6 = || Frame::to_b_v6(7777, b"probe");
    let fine = [Spoil::NoUdpChecksum, Spoil::Padding(20)];
    let bad = [
        Spoil::IpChecksum,
        Spoil::UdpChecksum,
        Spoil::Truncate(40),
        Spoil::Fragment(0, true),
        Spoil::IpVersion(5),
        Spoil::IpHeaderWords(4),
        Spoil::IpLength(2000),
        Spoil::UdpLength(2000),
        Spoil::UdpLength(3),
        Spoil::Protocol(6),
        Spoil::Ethertype(0x88b5),
    ];
    check("good", good4(), &v4, true);
    check("good IPv6", good6(), &v6, true);
    check("options", good6().spoil(Spoil::Options(3)), &v6, true);
    check("padding", good6().spoil(Spoil::Padding(9)), &v6, true);
    for spoil in fine {
        check(&format!("{spoil:?}"), good4().spoil(spoil), &v4, true);
    }
    for spoil in bad {
        check(&format!("{spoil:?}"), good4().spoil(spoil), &v4, false);
    }
    for spoil in [
        Spoil::UdpChecksum,
        Spoil::NoUdpChecksum,
        Spoil::Fragment(0, true),
        Spoil::IpLength(2000),
    ] {
        check(&format!("{spoil:?}"), good6().spoil(spoil), &v6, false);
    }
}

#[test]
fn the_injector_hears_replies_but_not_itself() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("raw", RigOptions::default()).unwrap();
    let server = rig.in_b(|| UdpSocket::bind((B4, 7777)).unwrap());
    server.set_read_timeout(Some(10 * SECOND)).unwrap();
    let injector = rig.injector_a().unwrap();
    injector.send(&Frame::to_b(7777, b"hello").bytes()).unwrap();
    let mut payload = [0; 64];
    let (len, client) = server.recv_from(&mut payload).unwrap();
    server.send_to(&payload[..len], client).unwrap();
    let reply = injector.receive(10 * SECOND).unwrap();
    assert_eq!(reply[..6], ashway_rig::MAC_A);
    assert_eq!(&reply[42..], b"hello");
}
