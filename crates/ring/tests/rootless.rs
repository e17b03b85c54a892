//! The rung without a kernel tier, end to end, as an ordinary user has it: `AF_PACKET` in,
//! the host's copy dropped, what nobody wanted given back.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod namespace;

use std::net::{IpAddr, UdpSocket};
use std::process::Command;
use std::time::{Duration, Instant};

use ashway_rig::skip::skip_without;
use ashway_ring::ingress_drop::Family;
use ashway_ring::{IngressDrop, IngressDropError, Match, Net, PacketSocket, PassError, Passer};
use ashway_wire::emit::Headers;
use ashway_wire::{Datagram, Message, make_reply};
use namespace::{ifindex, inside, received, run, veth};

const V4: &str = "10.77.0.1:7777";
const V6: &str = "[fd77::1]:7777";

/// A frame as a client at the far end would send it.
fn request(to: &str, from_port: u16, payload: &[u8]) -> Vec<u8> {
    let from = if to.starts_with('[') {
        format!("[fd77::2]:{from_port}")
    } else {
        format!("10.77.0.2:{from_port}")
    };
    let headers = Headers {
        source_mac: [2, 0, 0, 0, 0, 2],
        destination_mac: [2, 0, 0, 0, 0, 1],
        source: from.parse().unwrap(),
        destination: to.parse().unwrap(),
    };
    let mut frame = vec![0; 2000];
    let len = headers.emit(&mut frame, payload).unwrap();
    frame.truncate(len);
    frame
}

/// An ordinary application's socket.
fn ordinary(address: &str) -> UdpSocket {
    let socket = UdpSocket::bind(address).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    socket
}

fn receive(socket: &UdpSocket) -> Option<(Vec<u8>, String)> {
    let mut bytes = [0; 2000];
    let (len, from) = socket.recv_from(&mut bytes).ok()?;
    Some((bytes[..len].to_vec(), from.to_string()))
}

/// The next UDP frames at the socket, as they arrive, until `wanted` came or ten
/// seconds are over: the kernel may take one to call a new link up.
fn datagrams(socket: &mut PacketSocket, wanted: usize) -> Vec<(Vec<u8>, Datagram, Message)> {
    let mut all = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(10);
    while all.len() < wanted && Instant::now() < deadline {
        received(socket, |frame| {
            if let Ok(datagram) = Datagram::parse(frame) {
                let message = datagram.validate(frame).unwrap();
                all.push((frame.to_vec(), datagram, message));
            }
        });
    }
    all
}

fn port(port: u16) -> Match {
    Match {
        destination_port: Some(port.into()),
        ..Match::default()
    }
}

#[test]
fn a_dropped_message_reaches_the_tap_and_not_the_host() {
    inside("a_dropped_message_reaches_the_tap_and_not_the_host", || {
        if skip_without("nft", "nftables") {
            return;
        }
        veth();
        let mut near = PacketSocket::open(ifindex("near")).unwrap();
        let far = PacketSocket::open(ifindex("far")).unwrap();
        for address in [V4, V6] {
            let host = ordinary(address);
            let other = ordinary(&address.replace("7777", "8888"));

            far.send(&request(address, 1, b"before")).unwrap();
            assert_eq!(receive(&host).unwrap().0, b"before");
            assert_eq!(datagrams(&mut near, 1).len(), 1);

            let drop_it = IngressDrop::install("near", &[port(7777)]).unwrap();
            far.send(&request(address, 1, b"during")).unwrap();
            far.send(&request(&address.replace("7777", "8888"), 1, b"other"))
                .unwrap();
            assert_eq!(receive(&other).unwrap().0, b"other");
            assert_eq!(receive(&host), None);
            let seen = datagrams(&mut near, 2);
            assert_eq!(seen.len(), 2);
            let (frame, _, message) = &seen[0];
            assert_eq!(&frame[message.payload_off..], b"during");

            drop(drop_it);
            far.send(&request(address, 1, b"after")).unwrap();
            assert_eq!(receive(&host).unwrap().0, b"after");
            datagrams(&mut near, 1);
        }
        let tables = Command::new("nft").args(["list", "tables"]).output();
        assert_eq!(tables.unwrap().stdout, b"");
    });
}

#[test]
fn only_what_the_match_says_is_dropped_and_it_can_be_replaced() {
    inside(
        "only_what_the_match_says_is_dropped_and_it_can_be_replaced",
        || {
            if skip_without("nft", "nftables") {
                return;
            }
            veth();
            let far = PacketSocket::open(ifindex("far")).unwrap();
            let (v4, v6) = (ordinary(V4), ordinary(V6));
            let client: IpAddr = "10.77.0.2".parse().unwrap();
            let exact = Match {
                source: Some(Net::from(client)),
                destination: Some(Net {
                    address: "10.77.0.0".parse().unwrap(),
                    prefix_len: 16,
                }),
                source_port: Some(5.into()),
                ..port(7777)
            };
            let mut drop_it = IngressDrop::install("near", &[exact]).unwrap();
            for address in [V4, V6] {
                far.send(&request(address, 5, b"five")).unwrap();
                far.send(&request(address, 6, b"six")).unwrap();
            }
            assert_eq!(receive(&v4).unwrap().0, b"six");
            assert_eq!(receive(&v6).unwrap().0, b"five");
            assert_eq!(receive(&v6).unwrap().0, b"six");

            let second = Match {
                family: Some(Family::Ipv6),
                ..port(7777)
            };
            drop_it.replace(&[port(1234), second]).unwrap();
            for address in [V4, V6] {
                far.send(&request(address, 5, b"again")).unwrap();
            }
            assert_eq!(receive(&v4).unwrap().0, b"again");
            assert_eq!(receive(&v6), None);

            assert!(matches!(
                IngressDrop::install("absent", &[port(1)]),
                Err(IngressDropError::NoInterface(_))
            ));
            let nowhere = Net {
                address: client,
                prefix_len: 99,
            };
            let refused = drop_it.replace(&[Match {
                source: Some(nowhere),
                ..port(1)
            }]);
            assert!(matches!(refused, Err(IngressDropError::Refused(_))));
            far.send(&request(V6, 5, b"still")).unwrap();
            assert_eq!(receive(&v6), None);
        },
    );
}

#[test]
fn a_killed_owner_leaves_no_rules() {
    inside("a_killed_owner_leaves_no_rules", || {
        if skip_without("nft", "nftables") {
            return;
        }
        veth();
        let tables = || {
            Command::new("nft")
                .args(["list", "tables"])
                .output()
                .unwrap()
                .stdout
        };
        let name = "holds_rules_until_killed";
        let mut owner = Command::new(std::env::current_exe().unwrap())
            .args([name, "--exact", "--ignored", "--nocapture"])
            .spawn()
            .unwrap();
        let deadline = Instant::now() + Duration::from_secs(5);
        while tables().is_empty() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(!tables().is_empty());
        owner.kill().unwrap();
        owner.wait().unwrap();
        let deadline = Instant::now() + Duration::from_secs(5);
        while !tables().is_empty() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(tables(), b"");
    });
}

#[test]
#[ignore = "a part of a_killed_owner_leaves_no_rules"]
fn holds_rules_until_killed() {
    let _rules = IngressDrop::install("near", &[port(7777)]).unwrap();
    std::thread::sleep(Duration::from_secs(30));
}

#[test]
fn a_passed_message_reaches_the_host_with_its_senders_address() {
    inside(
        "a_passed_message_reaches_the_host_with_its_senders_address",
        || {
            if skip_without("nft", "nftables") {
                return;
            }
            veth();
            let index = ifindex("near");
            let mut near = PacketSocket::open(index).unwrap();
            let far = PacketSocket::open(ifindex("far")).unwrap();
            let passer = Passer::open(index).unwrap();
            let _rules = IngressDrop::install("near", &[port(7777)]).unwrap();
            for (address, client) in [(V4, "10.77.0.2:1000"), (V6, "[fd77::2]:1000")] {
                let host = ordinary(address);
                far.send(&request(address, 1000, b"not mine")).unwrap();
                assert_eq!(receive(&host), None);
                let (frame, _, message) = datagrams(&mut near, 1).remove(0);
                passer.pass(&frame[14..message.end]).unwrap();
                assert_eq!(
                    receive(&host),
                    Some((b"not mine".to_vec(), client.to_owned()))
                );
                // It came by `lo`: no second copy at the tap.
                let mut again = 0;
                received(&mut near, |frame| {
                    again += usize::from(Datagram::parse(frame).is_ok());
                });
                assert_eq!(again, 0);
            }
        },
    );
}

#[test]
fn impossible_senders_and_foreign_destinations_are_not_passed() {
    inside(
        "impossible_senders_and_foreign_destinations_are_not_passed",
        || {
            veth();
            let passer = Passer::open(ifindex("near")).unwrap();
            let pass = |at: usize, address: [u8; 4]| {
                let mut frame = request(V4, 1, b"x");
                frame[at..at + 4].copy_from_slice(&address);
                passer.pass(&frame[14..])
            };
            for source in [
                [127, 0, 0, 1],
                [0, 0, 0, 0],
                [10, 77, 0, 1],
                [224, 0, 0, 1],
                [255, 255, 255, 255],
            ] {
                assert!(
                    matches!(pass(26, source), Err(PassError::Martian(_))),
                    "{source:?}"
                );
            }
            for destination in [[127, 0, 0, 1], [10, 77, 0, 9], [10, 77, 0, 255]] {
                let passed = pass(30, destination);
                assert!(
                    matches!(passed, Err(PassError::NotLocal(_))),
                    "{destination:?}: {passed:?}"
                );
            }
            assert!(matches!(passer.pass(&[]), Err(PassError::Malformed)));
            assert!(matches!(
                passer.pass(&[0x45; 19]),
                Err(PassError::Malformed)
            ));
        },
    );
}

/// A real client, in a network namespace of its own, whose kernel leaves the
/// checksum to the veth.
#[test]
fn a_real_clients_partial_checksum_is_answered_and_passed() {
    inside(
        "a_real_clients_partial_checksum_is_answered_and_passed",
        || {
            if skip_without("nft", "nftables") {
                return;
            }
            veth();
            let (ask, asked) = std::sync::mpsc::channel::<()>();
            let (ready, is_ready) = std::sync::mpsc::channel();
            let client = std::thread::spawn(move || {
                // SAFETY: takes no pointers; the thread ends with the test.
                assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0);
                // SAFETY: takes no arguments.
                ready.send(unsafe { libc::gettid() }).unwrap();
                asked.recv().unwrap();
                run("ip addr add 10.77.0.2/24 dev far");
                run("ip link set far up");
                let socket = ordinary("10.77.0.2:1000");
                socket
                    .set_read_timeout(Some(Duration::from_secs(10)))
                    .unwrap();
                let mut answers = Vec::new();
                for payload in [&b"reply to me"[..], b"pass me on"] {
                    socket.send_to(payload, V4).unwrap();
                    answers.push(receive(&socket));
                }
                answers
            });
            let thread = is_ready.recv().unwrap();
            let namespace = format!("/proc/{}/task/{thread}/ns/net", std::process::id());
            run(&format!("ip link set far netns {namespace}"));
            let index = ifindex("near");
            let mut near = PacketSocket::open(index).unwrap();
            let passer = Passer::open(index).unwrap();
            let _rules = IngressDrop::install("near", &[port(7777)]).unwrap();
            let host = ordinary(V4);
            ask.send(()).unwrap();

            let (mut frame, _, message) = datagrams(&mut near, 1).remove(0);
            assert_eq!(message.flags, 2, "partial");
            let end = make_reply(&mut frame, message.payload_off, message.payload_len).unwrap();
            near.send(&frame[..end]).unwrap();

            let (mut frame, datagram, message) = datagrams(&mut near, 1).remove(0);
            assert_eq!(message.flags, 2, "partial");
            datagram.fill_udp_checksum(&mut frame);
            passer.pass(&frame[14..message.end]).unwrap();
            let (payload, from) = receive(&host).unwrap();
            assert_eq!(payload, b"pass me on");
            host.send_to(b"the host's own answer", from).unwrap();

            let answers = client.join().unwrap();
            assert_eq!(
                answers,
                [
                    Some((b"reply to me".to_vec(), V4.to_owned())),
                    Some((b"the host's own answer".to_vec(), V4.to_owned())),
                ]
            );
        },
    );
}

#[test]
fn frames_the_kernel_could_not_keep_are_counted() {
    inside("frames_the_kernel_could_not_keep_are_counted", || {
        veth();
        let mut near = PacketSocket::open(ifindex("near")).unwrap();
        let far = PacketSocket::open(ifindex("far")).unwrap();
        let frame = request(V4, 1, &[7; 1400]);
        let sent = 20_000;
        for _ in 0..sent {
            far.send(&frame).unwrap();
        }
        let mut count = 0;
        while received(&mut near, |frame| {
            count += u64::from(Datagram::parse(frame).is_ok());
        }) > 0
        {}
        let dropped = near.lost().unwrap();
        assert!(dropped > 0, "{count} of {sent} received");
        // Neighbour discovery of the kernel's own may be among the dropped.
        assert!(count + dropped >= sent && count < sent);
        assert_eq!(near.lost().unwrap(), 0);
    });
}
