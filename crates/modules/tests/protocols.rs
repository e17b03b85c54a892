//! Ethernet, IP and UDP as stages: frames in, answers and new frames out.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod corpora;

use std::net::SocketAddr;

use ashway_abi::{Count, context::flag};
use ashway_modules::{Flow, Message, eth, ip};
use ashway_path::attrs::{Attrs, names};
use ashway_path::path::{Exit, Limits};
use ashway_path::stage::Direction;
use ashway_path::time::Time;
use ashway_wire::{Datagram, emit, make_reply};
use corpora::*;

fn answer(frame: &[u8]) -> Result<Vec<u8>, Count> {
    let recipe = Recipe::new(Top::Echo);
    only(send(
        &mut recipe.path(),
        recipe.inbound(),
        Message::of_frame(frame),
    ))
}

/// What `wire` says of the same frame: the answer that both tiers send.
fn wire_answer(frame: &[u8]) -> Option<Vec<u8>> {
    let message = Datagram::parse(frame).ok()?.validate(frame).ok()?;
    // The surplus of RFC 9868 is nobody's payload and does not go back.
    let mut frame = frame[..message.payload_off + message.payload_len].to_vec();
    let len = make_reply(&mut frame, message.payload_off, message.payload_len).ok()?;
    frame.truncate(len);
    Some(frame)
}

#[test]
fn an_answer_has_the_bytes_that_wire_says() {
    for from_top in [true, false] {
        let recipe = Recipe {
            from_top,
            ..Recipe::new(Top::Echo)
        };
        let mut path = recipe.path();
        for frame in good() {
            let exits = send(&mut path, recipe.inbound(), Message::of_frame(&frame));
            let Some(Exit::Left {
                direction,
                message,
                turned: true,
            }) = exits.first()
            else {
                panic!("{exits:?} for {frame:02x?}");
            };
            assert_eq!(*direction, recipe.inbound().opposite());
            assert_eq!(
                message.bytes(),
                wire_answer(&frame).unwrap(),
                "{frame:02x?}"
            );
            assert_eq!(message.meta.iface, 3);
        }
        let account = path.account();
        assert_eq!(account.fate(Count::Answered), account.received());
        assert_eq!(account.left, account.received());
    }
}

/// A frame that `wire` refuses is never answered, and one that it takes is
/// taken, byte by byte and length by length.
#[test]
fn the_stages_refuse_what_wire_refuses() {
    let recipe = Recipe::new(Top::Echo);
    let mut path = recipe.path();
    let (mut taken, mut refused) = (0, 0);
    for frame in bad() {
        let ours = frame.get(..6) == Some(&OUR_MAC[..]);
        let got = only(send(&mut path, recipe.inbound(), Message::of_frame(&frame)));
        if let Some(answer) = wire_answer(&frame).filter(|_| ours) {
            assert_eq!(got, Ok(answer), "{frame:02x?}");
            taken += 1;
        } else {
            assert!(got.is_err(), "{got:02x?} for {frame:02x?}");
            refused += 1;
        }
    }
    assert!(taken > 1000 && refused > 10_000, "{taken} {refused}");
}

#[test]
fn tags_are_stepped_over_and_come_back() {
    for ends in [V4, V6] {
        let plain = frame(ends, b"abcd");
        let reply = answer(&plain).unwrap();
        let one = tagged(plain.clone(), 0x8100, 0x2005);
        assert_eq!(answer(&one), Ok(tagged(reply.clone(), 0x8100, 0x2005)));
        let two = tagged(one, 0x88a8, 7);
        let expected = tagged(tagged(reply, 0x8100, 0x2005), 0x88a8, 7);
        assert_eq!(answer(&two), Ok(expected));
        // Nobody looks behind a third.
        assert_eq!(answer(&tagged(two, 0x8100, 8)), Err(Count::Passed));
    }
}

#[test]
fn what_is_for_others_is_passed_whole() {
    for change in [1, 0x10] {
        let mut other = padded(frame(V4, b"abcd"), 14);
        other[0] ^= change;
        let recipe = Recipe::new(Top::Echo);
        let mut exits = send(
            &mut recipe.path(),
            recipe.inbound(),
            Message::of_frame(&other),
        );
        let Some(Exit::Ended {
            mut message,
            fate: Count::Passed,
            ..
        }) = exits.pop()
        else {
            panic!("{exits:?}");
        };
        message.rewind();
        assert_eq!(message.bytes(), other);
    }
    // A protocol that the path does not speak, seen only by UDP.
    let mut tcp = frame(V4, b"abcd");
    tcp[23] = 6;
    fix_v4(&mut tcp);
    let tcp = padded(tcp, 10);
    let recipe = Recipe::new(Top::Echo);
    let mut exits = send(
        &mut recipe.path(),
        recipe.inbound(),
        Message::of_frame(&tcp),
    );
    let Some(Exit::Ended {
        mut message,
        fate: Count::Passed,
        ..
    }) = exits.pop()
    else {
        panic!("{exits:?}");
    };
    assert_ne!(message.bytes(), tcp);
    message.rewind();
    assert_eq!(message.bytes(), tcp);
}

#[test]
fn each_fault_has_its_fate() {
    let v4 = || frame(V4, b"abcd");
    let v6 = || frame(V6, b"abcd");
    let with = |mut frame: Vec<u8>, at: usize, value: u8| {
        frame[at] = value;
        if frame[12] == 8 && !(24..26).contains(&at) {
            ashway_wire::ipv4::Packet::new_checked(&mut frame[14..])
                .unwrap()
                .fill_checksum();
        }
        answer(&frame).unwrap_err()
    };
    // Ethernet.
    assert_eq!(answer(&v4()[..13]), Err(Count::DroppedBadLength));
    assert_eq!(with(v4(), 13, 6), Count::Passed);
    // IPv4: version, header length, total length both ways, fragments, checksum.
    assert_eq!(with(v4(), 14, 0x65), Count::Passed);
    assert_eq!(with(v4(), 14, 0x44), Count::Passed);
    assert_eq!(with(v4(), 17, 19), Count::DroppedBadLength);
    assert_eq!(with(v4(), 17, 33), Count::DroppedBadLength);
    assert_eq!(with(v4(), 20, 0x20), Count::DroppedFragment);
    // A later one has no ports, so that nobody knows whose it is.
    assert_eq!(with(v4(), 21, 1), Count::Passed);
    assert_eq!(with(v4(), 25, 0), Count::DroppedBadIpChecksum);
    // Nor is it known of a frame that ends before them.
    assert_eq!(answer(&v4()[..33]), Err(Count::Passed));
    assert_eq!(answer(&v4()[..41]), Err(Count::Passed));
    assert_eq!(answer(&v4()[..42]), Err(Count::DroppedBadLength));
    // IPv6: version, payload length, fragments.
    assert_eq!(with(v6(), 14, 0x40), Count::Passed);
    assert_eq!(with(v6(), 19, 13), Count::DroppedBadLength);
    assert_eq!(with(v6(), 19, 0), Count::DroppedBadLength);
    assert_eq!(answer(&v6()[..53]), Err(Count::Passed));
    assert_eq!(answer(&v6()[..61]), Err(Count::Passed));
    assert_eq!(answer(&v6()[..62]), Err(Count::DroppedBadLength));
    for (place, fate) in [([0, 1], Count::DroppedFragment), ([0, 8], Count::Passed)] {
        let header = [0, 0, place[0], place[1], 0, 0, 0, 9];
        let fragment = with_extensions(v6(), &[(44, &header)]);
        assert_eq!(answer(&fragment), Err(fate));
        // Whether it is one comes before its length.
        let cut = &fragment[..fragment.len() - 1];
        assert_eq!(answer(cut), Err(fate));
    }
    // UDP: lengths, checksums.
    assert_eq!(with(v4(), 39, 7), Count::DroppedBadLength);
    assert_eq!(with(v4(), 39, 13), Count::DroppedBadLength);
    assert_eq!(with(v4(), 45, b'x'), Count::DroppedBadUdpChecksum);
    assert_eq!(
        answer(&no_checksum(v6())),
        Err(Count::DroppedBadUdpChecksum)
    );
    // Nobody to answer.
    assert_eq!(with(no_checksum(v4()), 26, 224), Count::DroppedNoSender);
    assert_eq!(with(v4(), 6, 1), Count::DroppedNoSender);
    // The first fault counts: IP's length, IP's checksum, UDP's length, UDP's.
    let mut all = v4();
    (all[45], all[39], all[25], all[17]) = (0, 99, 0, 99);
    assert_eq!(answer(&all), Err(Count::DroppedBadLength));
    all[17] = 32;
    assert_eq!(answer(&all), Err(Count::DroppedBadIpChecksum));
    fix_v4(&mut all);
    assert_eq!(answer(&all), Err(Count::DroppedBadLength));
    all[39] = 12;
    assert_eq!(answer(&all), Err(Count::DroppedBadUdpChecksum));
}

#[test]
fn the_top_sees_payload_flow_and_flags() {
    for (ends, bits) in [(V4, 0), (V6, flag::IPV6)] {
        let recipe = Recipe::new(Top::On);
        let mut path = recipe.path();
        let frame = padded(half_checksum(frame(ends, b"abcd")), 9);
        let exits = send(&mut path, recipe.inbound(), Message::of_frame(&frame));
        let [
            Exit::Left {
                message,
                turned: false,
                ..
            },
        ] = exits.as_slice()
        else {
            panic!("{exits:?}");
        };
        assert_eq!(message.bytes(), b"abcd");
        assert_eq!(message.meta.flags, bits | flag::CHECKSUM_PARTIAL);
        let ends: [SocketAddr; 2] = [ends.0.parse().unwrap(), ends.1.parse().unwrap()];
        let flow = Flow {
            source: ends[0],
            destination: ends[1],
        };
        assert_eq!(message.meta.flow, Some(flow));
        assert_eq!(path.account().fate(Count::Forwarded), 1);
    }
}

/// An answer of another length has new lengths and checksums, and is again what
/// `wire` would have emitted.
#[test]
fn an_answer_may_grow_and_shrink() {
    for ends in [V4, V6] {
        for len in [0, 1, 3, 1200] {
            let recipe = Recipe::new(Top::Resize(len));
            let request = frame(ends, b"ab");
            let got = only(send(
                &mut recipe.path(),
                recipe.inbound(),
                Message::of_frame(&request),
            ));
            let mut bytes = b"ab".to_vec();
            bytes.resize(len, 0);
            let back = emit::Headers {
                source_mac: OUR_MAC,
                destination_mac: THEIR_MAC,
                source: ends.1.parse().unwrap(),
                destination: ends.0.parse().unwrap(),
            };
            assert_eq!(got, Ok(emit(&back, &bytes)));
        }
    }
}

fn narrow(ends: (&str, &str)) -> Attrs {
    let mut attrs = Attrs::new();
    attrs.set(names::LOCAL, ends.1.parse::<SocketAddr>().unwrap());
    attrs.set(names::REMOTE, ends.0.parse::<SocketAddr>().unwrap());
    attrs.set(eth::NEXT_MAC, "02:00:00:00:00:01");
    attrs
}

#[test]
fn an_originated_message_is_what_wire_emits() {
    for ends in [V4, V6] {
        let headers = emit::Headers {
            source_mac: OUR_MAC,
            destination_mac: THEIR_MAC,
            source: ends.1.parse().unwrap(),
            destination: ends.0.parse().unwrap(),
        };
        for len in [0, 1, 99, 1400] {
            let expected = emit(&headers, &payload(len));
            // From nothing, at the stage below the top.
            let recipe = Recipe {
                attrs: narrow(ends),
                ..Recipe::new(Top::Anew)
            };
            let mut path = recipe.path();
            let message = Message::of_frame(&payload(len));
            let out = path.inject(1, Direction::Forward, message, Time(0));
            settled(&path);
            assert_eq!(only(out), Ok(expected.clone()));
            // A message that forgot the headers it came with.
            let tagged = tagged(frame(ends, &payload(len)), 0x8100, 9);
            let got = only(send(
                &mut path,
                recipe.inbound(),
                Message::of_frame(&tagged),
            ));
            assert_eq!(got, Ok(expected.clone()));
            // On a path that was created from below, the layers above say what
            // they are with each message.
            let recipe = Recipe {
                from_top: false,
                attrs: narrow(ends),
                ..Recipe::new(Top::Anew)
            };
            let message = Message::of_frame(&tagged);
            let got = only(send(&mut recipe.path(), recipe.inbound(), message));
            assert_eq!(got, Ok(expected.clone()));
            // With the path's own tag.
            let mut attrs = narrow(ends);
            attrs.set(eth::VLAN, 5);
            let recipe = Recipe {
                attrs,
                ..Recipe::new(Top::Anew)
            };
            let got = only(send(
                &mut recipe.path(),
                recipe.inbound(),
                Message::of_frame(&tagged),
            ));
            assert_eq!(got, Ok(corpora::tagged(expected, 0x8100, 5)));
        }
    }
}

#[test]
fn an_originated_message_needs_addresses_room_and_a_size() {
    let origin = |attrs: Attrs, message: Message| {
        let recipe = Recipe {
            attrs,
            ..Recipe::new(Top::Echo)
        };
        let mut path = recipe.path();
        let out = path.inject(1, Direction::Forward, message, Time(0));
        settled(&path);
        only(out).unwrap_err()
    };
    let message = || Message::of_frame(b"abcd");
    assert_eq!(origin(Attrs::new(), message()), Count::DroppedNoNextHop);
    let mut attrs = narrow(V4);
    attrs.remove(eth::NEXT_MAC);
    assert_eq!(origin(attrs, message()), Count::DroppedNoNextHop);
    let mut attrs = narrow(V4);
    attrs.remove(names::REMOTE);
    assert_eq!(origin(attrs, message()), Count::DroppedNoNextHop);
    let mut cramped = message();
    cramped.push(100).unwrap();
    assert_eq!(origin(narrow(V4), cramped), Count::DroppedNoHeadroom);
    for ends in [V4, V6] {
        let long = Message::of_frame(&payload(65_530));
        assert_eq!(origin(narrow(ends), long), Count::DroppedTooLong);
    }
    let long = Message::of_frame(&payload(65_520));
    assert_eq!(origin(narrow(V4), long), Count::DroppedTooLong);
}

/// A link takes packets up to its MTU; `fragment` above it makes more of the others.
#[test]
fn what_is_longer_than_the_link_takes_is_dropped_or_cut() {
    for (ends, headers) in [(V4, 28), (V6, 48)] {
        for (bytes, fragment) in [(400, false), (401, false), (401, true)] {
            let recipe = Recipe {
                mtu: 400 + headers,
                fragment,
                attrs: narrow(ends),
                ..Recipe::new(Top::Echo)
            };
            let mut path = recipe.path();
            let message = Message::of_frame(&payload(bytes));
            // As if it came from above UDP.
            let out = path.inject(1, Direction::Forward, message, Time(0));
            settled(&path);
            let left = out.iter().filter(|exit| matches!(exit, Exit::Left { .. }));
            let is_too_long = |exit: &&Exit<Message>| {
                matches!(
                    exit,
                    Exit::Ended {
                        fate: Count::DroppedTooLong,
                        ..
                    }
                )
            };
            let too_long = out.iter().filter(is_too_long).count();
            let expected = match (bytes, fragment) {
                (400, _) => (1, 0),
                (_, false) => (0, 1),
                (_, true) => (2, 0),
            };
            assert_eq!((left.count(), too_long), expected, "{bytes} {fragment}");
        }
    }
}

#[test]
fn attributes_make_the_filter_and_are_rewritten_on_the_way() {
    let mut attrs = narrow(V6);
    attrs.set(eth::VLAN, 5);
    let recipe = Recipe {
        attrs,
        ..Recipe::new(Top::Echo)
    };
    let path = recipe.path();
    let filter = "vlan 5 and ip6 and dst host fd00::2 and src host fd00::1 and udp and dst port 7777 \
                  and src port 1000";
    assert_eq!(eth::filter(&path).as_deref(), Some(filter));
    assert_eq!(path.attrs().value(names::PROTOCOL), None);
    assert_eq!(path.attrs().number(names::MTU), Some(1500));
    assert_eq!(path.attrs().text(names::IFACE), Some("veth0"));
    // Each layer calls the one above by another name (SCT-7).
    let created = recipe
        .graph()
        .create("p", "top", recipe.attrs.clone(), Limits::default(), &[])
        .unwrap();
    let log = created.log.to_string();
    let place = |text: &str| {
        log.find(text)
            .unwrap_or_else(|| panic!("`{text}` in {log}"))
    };
    assert!(place("protocol - -> 17") < place("protocol 17 -> 0x86dd"));
    assert!(place("protocol 17 -> 0x86dd") < place("protocol 0x86dd -> -"));
}

#[test]
fn impossible_attributes_are_refused_with_the_next_step() {
    let refused = |name: &'static str, value: ashway_path::attrs::Value| {
        let mut attrs = narrow(V4);
        attrs.set(name, value);
        let graph = Recipe::new(Top::Echo).graph();
        let created = graph.create("p", "top", attrs, Limits::default(), &[]);
        let error = created.err().unwrap();
        assert!(!error.hint.is_empty());
        (error.module.to_string(), error.because)
    };
    let (module, because) = refused(eth::VLAN, 4096.into());
    assert_eq!(
        (&*module, &*because),
        ("wire", "`vlan` is 4096, and a VLAN id is 0 to 4095")
    );
    assert_eq!(refused(eth::NEXT_MAC, "02:00:00:00:00".into()).0, "wire");
    assert_eq!(
        refused(eth::NEXT_MAC, "02:00:00:00:00:01:02".into()).0,
        "wire"
    );
    assert_eq!(refused(eth::NEXT_MAC, "02:00:00:00:00:1".into()).0, "wire");
    assert_eq!(refused(eth::NEXT_MAC, "02:00:00:00:00:+1".into()).0, "wire");
    assert_eq!(refused(ip::HOPS, 0.into()).0, "ip");
    assert_eq!(refused(ip::HOPS, 256.into()).0, "ip");
    let six: SocketAddr = V6.0.parse().unwrap();
    assert_eq!(refused(names::REMOTE, six.into()).0, "ip");
}
