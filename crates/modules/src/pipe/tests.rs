//! A pipe above UDP does the same whether its pass verifies the checksum or UDP does.

use std::sync::atomic::{AtomicUsize, Ordering};

use ashway_path::graph::Graph;
use ashway_path::path::{Exit, Limits, Path};
use ashway_path::rules::Rule;
use ashway_path::sim::Single;
use ashway_path::stage::Direction;
use ashway_wire::checksum::Sum;

use super::*;
use crate::rules::{FUSE_CHECKSUM, MERGE_LENGTH_CHECKS, RULES};
use crate::{bug, eth::Eth, ip::Ip, udp::Udp};
use corpora::*;

#[path = "../../tests/corpora/mod.rs"]
mod corpora;

/// Adds a number to each byte, sums the bytes that come in, and the words if there is a
/// register in front for it. A compiler's code is tried in `tests/netns`.
struct Adds {
    by: u8,
    summed: bool,
    runs: Arc<AtomicUsize>,
}

impl RunList for Adds {
    fn in_place(&self, registers: &mut [u64], data: &mut [u8]) {
        let source = data.to_vec();
        self.across(registers, &source, data);
    }

    fn across(&self, registers: &mut [u64], source: &[u8], destination: &mut [u8]) {
        self.runs.fetch_add(1, Ordering::Relaxed);
        let mut own = registers.iter_mut();
        if self.summed {
            let sum = own.next().unwrap();
            let before = u16::try_from(*sum).unwrap().swap_bytes();
            let all = Sum::new().word(before).bytes(source).fold();
            *sum = all.swap_bytes().into();
        }
        *own.next().unwrap() += source.iter().map(|byte| u64::from(*byte)).sum::<u64>();
        for (to, from) in destination.iter_mut().zip(source) {
            *to = from.wrapping_add(self.by);
        }
    }
}

/// How often the pass ran that sums.
struct Counted {
    pipe: Pipe,
    summed: Arc<AtomicUsize>,
}

fn adds(up: u8, down: Option<u8>) -> Counted {
    let summed = Arc::new(AtomicUsize::new(0));
    let list = |by: u8, runs: Option<&Arc<AtomicUsize>>| {
        let register = |name: &str, initial| Register {
            name: name.to_owned(),
            initial,
            changes: true,
        };
        let own = register("all.sum", 7);
        List {
            registers: match runs {
                Some(_) => vec![register("cksum16.sum", 0), own],
                None => vec![own],
            },
            modifies: by != 0,
            code: Arc::new(Adds {
                by,
                summed: runs.is_some(),
                runs: runs.cloned().unwrap_or_default(),
            }),
        }
    };
    let lists = Lists {
        up: list(up, None),
        summed: Some(list(up, Some(&summed))),
        down: down.map(|by| list(by, None)),
    };
    let pipe = Pipe {
        name: "adds".into(),
        lists: Arc::new(lists),
    };
    Counted { pipe, summed }
}

/// A path from an echo, or from a link, through `pipe`.
fn path(pipe: &Pipe, from_top: bool, top: Top, rules: &[Rule<Message>]) -> Single<Message> {
    let name = |name: &str| name.into();
    let xdp = false;
    let modules: Vec<(&str, Box<dyn Module<Message>>)> = vec![
        ("wire", Box::new(Eth { xdp, ..eth() })),
        ("ip", Box::new(Ip { name: name("ip") })),
        ("udp", Box::new(Udp { name: name("udp") })),
        ("adds", Box::new(pipe.clone())),
        ("top", Box::new(TopModule(top))),
    ];
    let edges = [
        ("ip.down", "wire.up"),
        ("udp.down", "ip.up"),
        ("adds.down", "udp.up"),
        ("top.down", "adds.up"),
    ];
    let graph = Graph::connect(modules, &edges).unwrap();
    let from = if from_top { "top" } else { "wire" };
    let limits = Limits {
        memory_bytes: 1 << 20,
        ..Limits::default()
    };
    let created = graph.create("p", from, Attrs::new(), limits, rules);
    Single::new(created.unwrap().path)
}

fn names_of(path: &Path<Message>) -> Vec<&str> {
    path.stages().map(Stage::name).collect()
}

/// Exits without how often their messages were copied: a fused pass writes some anew that
/// are then found bad.
fn not_counted(mut exits: Vec<Exit<Message>>) -> Vec<Exit<Message>> {
    for exit in &mut exits {
        let (Exit::Left { message, .. } | Exit::Ended { message, .. }) = exit;
        message.meta.copies = 0;
    }
    exits
}

/// Whether both paths do the same with all frames, good and bad: what comes out, byte by
/// byte, what is known of it, fates, and what the pipe publishes.
fn same(counted: &Counted, from_top: bool, top: Top, step: usize) -> Result<(), String> {
    let merged = &[MERGE_LENGTH_CHECKS];
    let fused = &[MERGE_LENGTH_CHECKS, FUSE_CHECKSUM];
    let mut apart = path(&counted.pipe, from_top, top, merged);
    let mut fused = path(&counted.pipe, from_top, top, fused);
    assert_eq!((apart.len(), fused.len()), (3, 2));
    let inbound = if from_top {
        Direction::Backward
    } else {
        Direction::Forward
    };
    let mut frames = good();
    frames.extend(bad());
    for frame in frames.into_iter().step_by(step) {
        let message = Message::of_frame(&frame);
        let expected = not_counted(send(&mut apart, inbound, message.clone()));
        let found = not_counted(send(&mut fused, inbound, message));
        if found != expected {
            return Err(format!("{frame:02x?}: {found:02x?} for {expected:02x?}"));
        }
        assert_eq!(fused.attrs(), apart.attrs(), "{frame:02x?}");
    }
    let fates = |path: &Path<Message>| path.account().fates().collect::<Vec<_>>();
    assert_eq!(fates(&fused), fates(&apart));
    Ok(())
}

#[test]
fn a_pass_that_verifies_the_checksum_does_the_same() {
    for (up, down) in [(3, None), (3, Some(5)), (0, Some(1))] {
        for (from_top, top) in [(true, Top::Echo), (false, Top::Sink), (true, Top::Anew)] {
            let counted = adds(up, down);
            // All of them once; a part for the other combinations.
            let step = if up + u8::from(from_top) == 4 { 1 } else { 101 };
            same(&counted, from_top, top, step).unwrap();
            assert!(counted.summed.load(Ordering::Relaxed) > 0);
        }
    }
}

#[test]
fn each_mistake_in_fusing_is_noticed() {
    for mistake in [Bug::SumIgnored, Bug::SeenBeforeSum, Bug::AnswersSkipped] {
        let broken = bug::with(mistake, || same(&adds(3, Some(5)), true, Top::Echo, 7));
        assert!(broken.is_err(), "{mistake:?}");
    }
    same(&adds(3, Some(5)), true, Top::Echo, 7).unwrap();
}

#[test]
fn a_good_message_is_read_once_and_a_bad_one_is_not_seen() {
    let counted = adds(1, None);
    let mut fused = path(&counted.pipe, true, Top::Echo, &RULES);
    assert_eq!(names_of(&fused), ["top", "datagram+pipe"]);
    let sum = |path: &Path<Message>| path.attrs().number("adds.all.sum");
    let good = frame(V4, b"abc");
    let exits = send(&mut fused, Direction::Backward, Message::of_frame(&good));
    let [Exit::Left { message, .. }] = &exits[..] else {
        panic!("{exits:?}");
    };
    assert_eq!(&message.bytes()[42..45], b"bcd");
    assert_eq!(sum(&fused), Some(7 + 97 + 98 + 99));
    let mut bad = good.clone();
    bad[44] ^= 1;
    let exits = send(&mut fused, Direction::Backward, Message::of_frame(&bad));
    let [Exit::Ended { message, fate, .. }] = &exits[..] else {
        panic!("{exits:?}");
    };
    assert_eq!(*fate, ashway_abi::Count::DroppedBadUdpChecksum);
    assert_eq!(message.received(), Some(&bad[..]));
    assert_eq!(sum(&fused), Some(7 + 97 + 98 + 99));
    // Both passes summed, once each.
    assert_eq!(counted.summed.load(Ordering::Relaxed), 2);
}

#[test]
fn stages_stay_apart_where_there_is_nothing_to_fuse() {
    let Counted { pipe, .. } = adds(1, None);
    let lists = Lists {
        up: pipe.lists.up.clone(),
        summed: None,
        down: None,
    };
    let other = Pipe {
        lists: Arc::new(lists),
        ..pipe.clone()
    };
    assert_eq!(path(&other, true, Top::Echo, &RULES).len(), 3);
    let mut off = path(&pipe, true, Top::Echo, &[MERGE_LENGTH_CHECKS]);
    off.attrs_mut().set(FUSE, "off");
    assert_eq!(ashway_path::rules::apply(&RULES, &mut off), Ok(Vec::new()));
    off.attrs_mut().remove(FUSE);
    let applied = ashway_path::rules::apply(&RULES, &mut off).unwrap();
    let [fused] = &applied[..] else {
        panic!("{applied:?}");
    };
    assert_eq!(
        (fused.rule, fused.before, fused.after),
        ("fuse-checksum", 3, 2)
    );
    assert_eq!(ashway_path::rules::apply(&RULES, &mut off), Ok(Vec::new()));
}
