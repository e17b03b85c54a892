//! Fragments out, fragments in, and what an attacker can do with them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod corpora;

use std::time::Duration;

use ashway_abi::Count;
use ashway_modules::{Message, fragment};
use ashway_path::attrs::{Attrs, names};
use ashway_path::path::{Exit, Limits};
use ashway_path::sim::{Random, Single};
use ashway_path::stage::Direction;
use ashway_path::time::Time;
use ashway_wire::{Fragment, Headers, ipv4};
use corpora::*;

const TIMEOUT: Duration = Duration::from_mins(1);

/// The path that begins at `fragment`: the one for all fragments.
fn catch_all(attrs: Attrs) -> Single<Message> {
    let recipe = Recipe {
        fragment: true,
        attrs,
        ..Recipe::new(Top::Sink)
    };
    recipe.path_from("frag")
}

fn receive(path: &mut Single<Message>, frame: &[u8], now: Time) -> Vec<Exit<Message>> {
    let out = path.pass(Direction::Backward, Message::of_frame(frame), now);
    settled(path);
    out
}

/// What leaves at the top of the path, as a frame to be classified again.
fn whole(exits: Vec<Exit<Message>>) -> Option<Vec<u8>> {
    Some(whole_message(exits)?.bytes().to_vec())
}

/// The same with what is known of it.
fn whole_message(exits: Vec<Exit<Message>>) -> Option<Message> {
    exits.into_iter().find_map(|exit| match exit {
        Exit::Left {
            direction: Direction::Backward,
            mut message,
            ..
        } => {
            assert_eq!(
                message.bytes()[0] >> 4,
                if message.bytes()[0] == 0x60 { 6 } else { 4 }
            );
            message.rewind();
            Some(message)
        }
        _ => None,
    })
}

/// Cuts a frame with the stage under test: what the path sends when it is
/// given the packet at `fragment`.
fn cut(frame: &[u8], mtu: u32) -> Vec<Vec<u8>> {
    let recipe = Recipe {
        fragment: true,
        mtu,
        ..Recipe::new(Top::Echo)
    };
    let mut path = recipe.path();
    // As if it were an answer: with the link's header in front.
    let mut message = Message::of_frame(frame);
    message.meta.eth = message.pop(usize::from(Headers::parse(frame).l3));
    let out = path.inject(3, Direction::Forward, message, Time(0));
    settled(&path);
    let frames: Vec<_> = out
        .into_iter()
        .map(|exit| match exit {
            Exit::Left { message, .. } => {
                let mut frame = message.bytes().to_vec();
                // Back to the direction that the frame had.
                frame[..6].copy_from_slice(&OUR_MAC);
                frame[6..12].copy_from_slice(&THEIR_MAC);
                frame
            }
            Exit::Ended { fate, .. } => panic!("{fate:?}"),
        })
        .collect();
    for fragment in &frames {
        assert!(fragment.len() - usize::from(Headers::parse(fragment).l3) <= mtu as usize);
    }
    frames
}

fn shuffle<T>(items: &mut [T], random: &mut Random) {
    for at in (1..items.len()).rev() {
        items.swap(at, random.below(at as u64 + 1) as usize);
    }
}

/// Undoes what is different in a packet that was cut and put together.
fn forget_identification(mut frame: Vec<u8>) -> Vec<u8> {
    let headers = Headers::parse(&frame);
    let l3 = usize::from(headers.l3);
    if headers.ethertype == 0x0800 {
        frame[l3 + 4..l3 + 8].copy_from_slice(&[0, 0, ipv4::DONT_FRAGMENT, 0]);
        ipv4::Packet::new_checked(&mut frame[l3..])
            .unwrap()
            .fill_checksum();
    }
    frame
}

#[test]
fn what_is_cut_is_put_together_again_for_every_mtu() {
    let mut random = Random(1);
    let options = [[0x83, 3, 4].as_slice(), &[7, 5, 4, 0, 0]].concat();
    let hop_by_hop = [0, 0, 1, 4, 0, 0, 0, 0];
    let destination = [0, 0, 1, 4, 0, 0, 0, 0];
    for (v6, plain) in [
        (false, frame(V4, &payload(4000))),
        (false, with_options(frame(V4, &payload(1777)), &options)),
        (false, tagged(frame(V4, &payload(1501)), 0x8100, 5)),
        (true, frame(V6, &payload(4001))),
        (
            true,
            with_extensions(frame(V6, &payload(1999)), &[(0, &hop_by_hop)]),
        ),
        (
            true,
            with_extensions(frame(V6, &payload(1999)), &[(60, &destination)]),
        ),
    ] {
        for mtu in (68..=1500).step_by(13).chain([1500]) {
            let mut fragments = cut(&plain, mtu);
            assert!(fragments.len() > 1);
            for (at, fragment) in fragments.iter().enumerate() {
                let headers = Headers::parse(fragment);
                let part = if at == 0 {
                    Fragment::First
                } else {
                    Fragment::Later
                };
                assert_eq!(headers.fragment, part);
                assert_eq!(headers.ethertype == 0x86dd, v6);
            }
            let in_order = fragments.clone();
            shuffle(&mut fragments, &mut random);
            let mut path = catch_all(Attrs::new());
            let (last, others) = fragments.split_last().unwrap();
            for fragment in others {
                assert_eq!(receive(&mut path, fragment, Time(0)), []);
            }
            let mut joined = whole_message(receive(&mut path, last, Time(0))).unwrap();
            let apart: Vec<_> = fragment::apart(&mut joined)
                .iter()
                .map(|piece| piece.bytes().to_vec())
                .collect();
            assert!(
                apart == in_order,
                "mtu {mtu}: what the host gets is not what came"
            );
            let joined = joined.bytes().to_vec();
            assert_eq!(forget_identification(joined), plain, "mtu {mtu}");
            let account = path.account();
            assert_eq!(account.absorbed(), others.len() as u64);
            assert_eq!(account.fate(Count::Forwarded), 1);
            assert_eq!(path.wake_at(), None);
        }
    }
}

/// What nobody has put together is given to the host as one frame.
#[test]
fn what_came_in_one_part_is_not_taken_apart() {
    for plain in [frame(V4, &payload(1400)), frame(V6, &payload(1400)), vec![]] {
        let mut message = Message::of_frame(&plain);
        assert_eq!(fragment::apart(&mut message), []);
        assert_eq!(message.bytes(), plain);
    }
}

#[test]
fn options_go_into_all_fragments_or_the_first_by_their_bit() {
    // A copied one of 3 bytes, a no-operation, one that is not copied.
    let options = [0x83, 3, 4, 1, 7, 4, 4, 0];
    let fragments = cut(&with_options(frame(V4, &payload(400)), &options), 128);
    assert_eq!(fragments[0][14] & 15, 7);
    assert_eq!(fragments[0][34..42], options);
    for later in &fragments[1..] {
        assert_eq!(later[14] & 15, 6);
        assert_eq!(later[34..38], [0x83, 3, 4, 0]);
    }
}

#[test]
fn the_largest_packets_are_cut_and_joined() {
    // 65,535 bytes of IPv4; the same of IPv6 behind its header.
    for plain in [frame(V4, &payload(65_507)), frame(V6, &payload(65_527))] {
        let fragments = cut(&plain, if plain[12] == 8 { 68 } else { 1280 });
        let mut attrs = Attrs::new();
        attrs.set(fragment::REASSEMBLY_BYTES, 600_000);
        let mut path = catch_all(attrs);
        let exits = fragments
            .iter()
            .flat_map(|one| receive(&mut path, one, Time(0)))
            .collect();
        assert_eq!(forget_identification(whole(exits).unwrap()), plain);
    }
}

/// Options that only the first fragment has may make the whole too long.
#[test]
fn a_whole_that_is_too_long_is_dropped() {
    let mut attrs = Attrs::new();
    attrs.set(fragment::REASSEMBLY_BYTES, 600_000);
    for (options, fits) in [(0, true), (4, false), (40, false)] {
        let mut path = catch_all(attrs.clone());
        let mut fragments = cut(&frame(V4, &payload(65_507)), 1500);
        fragments[0] = with_options(fragments[0].clone(), &[1; 40][..options]);
        let (last, others) = fragments.split_last().unwrap();
        for fragment in others {
            assert_eq!(receive(&mut path, fragment, Time(0)), []);
        }
        match only(receive(&mut path, last, Time(0))) {
            Ok(_) => assert!(fits),
            Err(fate) => assert_eq!((fits, fate), (false, Count::DroppedBadLength)),
        }
        assert_eq!(path.wake_at(), None);
    }
}

#[test]
fn datagrams_are_told_apart() {
    let mut random = Random(7);
    let mut fragments = Vec::new();
    let plains: Vec<_> = (0..20u8)
        .map(|at| {
            let source = format!("10.0.0.{}:1000", 10 + at);
            frame((&source, V4.1), &payload(1000 + usize::from(at)))
        })
        .collect();
    for plain in &plains {
        // All with the same identification.
        fragments.extend(cut(plain, 300));
    }
    shuffle(&mut fragments, &mut random);
    let mut path = catch_all(Attrs::new());
    let mut joined: Vec<_> = fragments
        .iter()
        .filter_map(|one| whole(receive(&mut path, one, Time(0))))
        .map(forget_identification)
        .collect();
    joined.sort();
    let mut plains = plains;
    plains.sort();
    assert_eq!(joined, plains);
}

#[test]
fn duplicates_are_dropped_and_do_no_harm() {
    for ends in [V4, V6] {
        let plain = frame(ends, &payload(1000));
        let fragments = cut(&plain, 400);
        let mut path = catch_all(Attrs::new());
        let (last, others) = fragments.split_last().unwrap();
        for fragment in others {
            assert_eq!(receive(&mut path, fragment, Time(0)), []);
            let again = receive(&mut path, fragment, Time(0));
            assert_eq!(only(again), Err(Count::DroppedFragment));
        }
        let joined = whole(receive(&mut path, last, Time(0))).unwrap();
        assert_eq!(forget_identification(joined), plain);
        assert_eq!(
            path.account().fate(Count::DroppedFragment),
            others.len() as u64
        );
    }
}

/// Changes an IPv4 fragment's place (in units of 8 bytes) and its mark.
fn moved(mut fragment: Vec<u8>, place: u16, more: bool) -> Vec<u8> {
    fragment[20..22].copy_from_slice(&(place | u16::from(more) << 13).to_be_bytes());
    ipv4::Packet::new_checked(&mut fragment[14..])
        .unwrap()
        .fill_checksum();
    fragment
}

/// RFC 5722: whatever overlaps ends the whole datagram, and what comes of it
/// later is dropped too.
#[test]
fn overlaps_end_the_datagram() {
    let fragments = cut(&frame(V4, &payload(1000)), 420);
    assert_eq!(fragments.len(), 3);
    let [first, second, last] = [0, 1, 2].map(|at| fragments[at].clone());
    let mut other = second.clone();
    let end = other.len() - 1;
    other[end] ^= 1;
    let step = (first.len() as u16 - 34) / 8;
    let contradictions: [(&[&Vec<u8>], Vec<u8>); 8] = [
        (&[&first], moved(second.clone(), step - 1, true)),
        (&[&second], moved(first.clone(), 1, true)),
        (&[&first, &second], other),
        // Beyond the end, before and after it is known.
        (&[&last], moved(second.clone(), 3 * step, true)),
        (&[&second], moved(last.clone(), 1, false)),
        // Two ends.
        (&[&last], moved(last.clone(), 3 * step, false)),
        // A part within another.
        (&[&second], moved(last.clone(), step + 1, false)),
        // The same place, longer.
        (&[&last], moved(second.clone(), 2 * step, true)),
    ];
    for (before, contradiction) in contradictions {
        let mut path = catch_all(Attrs::new());
        for fragment in before {
            assert_eq!(receive(&mut path, fragment, Time(0)), []);
        }
        assert_eq!(
            only(receive(&mut path, &contradiction, Time(0))),
            Err(Count::DroppedFragment)
        );
        for fragment in [&first, &second, &last] {
            let got = receive(&mut path, fragment, Time(0));
            assert_eq!(only(got), Err(Count::DroppedFragment));
        }
        assert_eq!(path.attrs().number(fragment::REASSEMBLY_FAILED), Some(1));
        // When its time is over, the same identification is a new datagram.
        let later = Time(0) + TIMEOUT;
        let exits = fragments
            .iter()
            .flat_map(|one| receive(&mut path, one, later))
            .collect();
        assert!(whole(exits).is_some());
    }
}

#[test]
fn what_stays_incomplete_is_given_up_in_time() {
    let fragments = cut(&frame(V6, &payload(3000)), 1280);
    let mut path = catch_all(Attrs::new());
    let first = Time(5);
    receive(&mut path, &fragments[0], first);
    assert_eq!(path.wake_at(), Some(first + TIMEOUT));
    // What follows does not give it more time.
    receive(&mut path, &fragments[1], Time(1_000_000));
    assert_eq!(path.wake_at(), Some(first + TIMEOUT));
    assert_eq!(path.wake(first + TIMEOUT), []);
    assert_eq!(path.wake_at(), None);
    assert_eq!(path.attrs().number(fragment::REASSEMBLY_FAILED), Some(1));
    let late = receive(&mut path, &fragments[2], first + TIMEOUT);
    assert_eq!(late, []);
    assert_eq!(path.account().absorbed(), 3);
    // Nobody woke the path, but time has passed.
    let mut path = catch_all(Attrs::new());
    receive(&mut path, &fragments[0], first);
    receive(&mut path, &fragments[1], first);
    assert_eq!(receive(&mut path, &fragments[2], first + TIMEOUT), []);
}

#[test]
fn what_cannot_be_a_fragment_is_dropped_by_name() {
    let fragments = cut(&frame(V4, &payload(1000)), 420);
    let dropped = |frame: Vec<u8>| only(receive(&mut catch_all(Attrs::new()), &frame, Time(0)));
    // Beyond 65,535 bytes: the ping of death.
    let beyond = moved(fragments[1].clone(), 0x1fff, false);
    assert_eq!(dropped(beyond), Err(Count::DroppedBadLength));
    // Not a multiple of 8, but more to follow.
    let mut odd = fragments[1].clone();
    odd.pop();
    fix_v4(&mut odd);
    assert_eq!(dropped(odd), Err(Count::DroppedBadLength));
    let mut empty = fragments[1][..34].to_vec();
    fix_v4(&mut empty);
    assert_eq!(dropped(empty), Err(Count::DroppedBadLength));
    let mut wrong = fragments[1].clone();
    wrong[24] ^= 1;
    assert_eq!(dropped(wrong), Err(Count::DroppedBadIpChecksum));
    let mut short = fragments[1].clone();
    short.pop();
    assert_eq!(dropped(short), Err(Count::DroppedBadLength));

    let fragments = cut(&frame(V6, &payload(3000)), 1280);
    let mut odd = fragments[1].clone();
    odd[19] -= 1;
    assert_eq!(dropped(odd), Err(Count::DroppedBadLength));
    let mut beyond = fragments[1].clone();
    beyond[56..58].copy_from_slice(&0xfff9u16.to_be_bytes());
    assert_eq!(dropped(beyond), Err(Count::DroppedBadLength));
    let mut empty = fragments[1][..62].to_vec();
    empty[18..20].copy_from_slice(&8u16.to_be_bytes());
    assert_eq!(dropped(empty), Err(Count::DroppedBadLength));
    // RFC 7112: the first fragment ends before the transport header.
    let tiny = [0, 0, 0, 1, 0, 0, 0, 9];
    let long = [0, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let mut first = with_extensions(frame(V6, b""), &[(44, &tiny), (60, &long)]);
    first.truncate(54 + 8 + 8);
    first[18..20].copy_from_slice(&16u16.to_be_bytes());
    assert_eq!(dropped(first), Err(Count::DroppedFragment));
}

#[test]
fn whole_packets_pass_as_they_are() {
    let mut path = catch_all(Attrs::new());
    for frame in good() {
        let atomic = Headers::parse(&frame).ethertype == 0x86dd
            && frame[usize::from(Headers::parse(&frame).l3) + 6] == 44;
        let got = whole(receive(&mut path, &frame, Time(0))).unwrap();
        if atomic {
            // RFC 6946: nothing to wait for; without its fragment header.
            assert_eq!(got.len(), frame_without_padding(&frame) - 8);
            assert_eq!(Headers::parse(&got).protocol, 17);
        } else {
            assert_eq!(got, frame);
        }
    }
    assert_eq!(path.account().absorbed(), 0);
    // Whatever comes: no panic, no loss.
    for frame in bad() {
        receive(&mut path, &frame, Time(0));
    }
}

fn frame_without_padding(frame: &[u8]) -> usize {
    let l3 = usize::from(Headers::parse(frame).l3);
    l3 + 40 + usize::from(u16::from_be_bytes([frame[l3 + 4], frame[l3 + 5]]))
}

/// However many datagrams are begun, memory and their number stay within the
/// limits, and an honest sender between the attacker's packets is served.
#[test]
fn an_attack_uses_no_more_than_the_limits() {
    let mut attrs = Attrs::new();
    attrs.set(fragment::REASSEMBLY_BYTES, 64 << 10);
    attrs.set(fragment::REASSEMBLY_DATAGRAMS, 32);
    let honest = cut(&frame(V4, &payload(3000)), 1500);
    let attack = cut(&frame(("10.6.6.6:1", V4.1), &payload(1400)), 1000);
    let mut random = Random(3);
    let mut path = catch_all(attrs);
    let (mut served, mut joined_attack) = (0, 0);
    for round in 0..3000u32 {
        let mut exits = Vec::new();
        for one in &honest {
            // Begun and never finished, from anywhere, of any place.
            for _ in 0..5 {
                let mut bad = moved(attack[0].clone(), random.below(8000) as u16, true);
                bad[26..30].copy_from_slice(&(random.next() as u32 | 1 << 24).to_be_bytes());
                ipv4::Packet::new_checked(&mut bad[14..])
                    .unwrap()
                    .fill_checksum();
                joined_attack +=
                    usize::from(whole(receive(&mut path, &bad, Time(round.into()))).is_some());
            }
            exits.extend(receive(&mut path, one, Time(round.into())));
        }
        served += usize::from(whole(exits).is_some());
    }
    assert_eq!((served, joined_attack), (3000, 0));
    assert!(path.attrs().number(fragment::REASSEMBLY_FAILED) > Some(40_000));
}

/// One datagram of very many small parts: the limit ends it, and nothing else.
#[test]
fn many_small_parts_are_paid_for() {
    let mut attrs = Attrs::new();
    attrs.set(fragment::REASSEMBLY_BYTES, 16 << 10);
    let mut path = catch_all(attrs);
    let tiny = cut(&frame(V4, &payload(60_000)), 68);
    let mut absorbed = 0;
    for fragment in &tiny {
        absorbed += usize::from(receive(&mut path, fragment, Time(0)).is_empty());
    }
    // 48 bytes of data and what it costs to keep them.
    assert!((100..16 * 1024 / 48).contains(&absorbed), "{absorbed}");
    let plain = frame(V6, &payload(3000));
    let exits = cut(&plain, 1280)
        .iter()
        .flat_map(|one| receive(&mut path, one, Time(0)))
        .collect();
    assert_eq!(whole(exits), Some(plain));
}

#[test]
fn limits_that_allow_nothing_are_refused() {
    for (name, value) in [
        (fragment::REASSEMBLY_BYTES, 100),
        (fragment::REASSEMBLY_DATAGRAMS, 0),
    ] {
        let mut attrs = Attrs::new();
        attrs.set(name, value);
        let recipe = Recipe {
            fragment: true,
            ..Recipe::new(Top::Sink)
        };
        let created = recipe
            .graph()
            .create("p", "frag", attrs, Limits::default(), &[]);
        let error = created.err().unwrap();
        assert!(error.because.contains(name), "{error}");
    }
    let recipe = Recipe {
        fragment: true,
        mtu: 67,
        ..Recipe::new(Top::Sink)
    };
    let created = recipe
        .graph()
        .create("p", "top", Attrs::new(), Limits::default(), &[]);
    assert_eq!(
        created.err().unwrap().because,
        "`mtu` is 67 bytes, and fragments need 68"
    );
    // The memory comes from the path's grant.
    let recipe = Recipe {
        fragment: true,
        ..Recipe::new(Top::Sink)
    };
    let created = recipe
        .graph()
        .create("p", "frag", Attrs::new(), Limits::default(), &[]);
    assert!(created.err().unwrap().because.contains("stage `frag` (262"));
}

/// SCT-14: fragments go to the catch-all path; what it puts together is
/// classified again and finds its narrow path, and the long answer leaves as
/// fragments that the asker can put together.
#[test]
fn after_reassembly_the_narrow_path_is_found() {
    for (ends, mtu) in [(V4, 576), (V6, 1280)] {
        let narrow = Recipe {
            fragment: true,
            mtu,
            ..Recipe::new(Top::Echo)
        };
        let (mut narrow, mut wide) = (narrow.path(), catch_all(Attrs::new()));
        let request = frame(ends, &payload(2500));
        let mut answers = Vec::new();
        for fragment in cut(&request, mtu) {
            let mut waiting = vec![fragment];
            while let Some(frame) = waiting.pop() {
                let headers = Headers::parse(&frame);
                if headers.fragment != Fragment::No {
                    waiting.extend(whole(receive(&mut wide, &frame, Time(0))));
                } else if headers.destination_port == 7777 {
                    answers.extend(receive(&mut narrow, &frame, Time(0)));
                }
            }
        }
        assert_eq!(narrow.account().fate(Count::Answered), 1);
        assert_eq!(narrow.account().left, answers.len() as u64);
        assert!(answers.len() > 1);
        // Multiplied: one turned around, the others originated by the stage.
        let mut asker = catch_all(Attrs::new());
        let mut joined = None;
        for exit in answers {
            let Exit::Left {
                message,
                turned: true,
                ..
            } = exit
            else {
                panic!("{exit:?}");
            };
            let mut frame = message.bytes().to_vec();
            assert_eq!(frame[..6], THEIR_MAC);
            frame[..6].copy_from_slice(&OUR_MAC);
            joined = joined.or_else(|| whole(receive(&mut asker, &frame, Time(0))));
        }
        let plain = Recipe::new(Top::Echo);
        let exits = send(
            &mut plain.path(),
            plain.inbound(),
            Message::of_frame(&request),
        );
        let mut expected = only(exits).unwrap();
        expected[..6].copy_from_slice(&OUR_MAC);
        let joined = forget_identification(joined.unwrap());
        assert_eq!(joined, expected);
    }
}

/// A path that goes on to IP leaves fragments to IP, unless it is told to put
/// them together itself.
#[test]
fn a_path_with_ip_reassembles_only_if_told_to() {
    let fragments = cut(&frame(V4, &payload(3000)), 1500);
    let mut attrs = Attrs::new();
    let echo = |attrs: Attrs| {
        let recipe = Recipe {
            fragment: true,
            attrs,
            ..Recipe::new(Top::Sink)
        };
        let mut path = recipe.path();
        for fragment in &fragments {
            receive(&mut path, fragment, Time(0));
        }
        path.account().fates().collect::<Vec<_>>()
    };
    // Those without ports are nobody's, and the host's.
    let left_to_ip = [(Count::Passed, 2), (Count::DroppedFragment, 1)];
    assert_eq!(echo(attrs.clone()), left_to_ip);
    attrs.set(fragment::REASSEMBLE, 1);
    assert_eq!(echo(attrs), [(Count::Consumed, 1), (Count::Absorbed, 2)]);
    let recipe = Recipe {
        fragment: true,
        mtu: 100,
        ..Recipe::new(Top::Sink)
    };
    assert_eq!(recipe.path().attrs().number(names::MTU), Some(100));
}
