//! What a path does with messages, seen from outside.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ashway_abi::Count;
use ashway_path::account::Misbehaviour;
use ashway_path::attrs::Attrs;
use ashway_path::demand::Demand;
use ashway_path::engine::Full;
use ashway_path::path::{Exit, Limits, MAX_ORIGINATED, Path, Trail};
use ashway_path::sim::Single;
use ashway_path::stage::{Cx, Direction, Direction::Backward, Direction::Forward, Stage, Step};
use ashway_path::time::Time;

mod stages;
use stages::{on, stage};

fn limited<M>(name: &str, stages: stages::Stages<M>, limits: Limits) -> Single<M> {
    Single::new(stages::limited(name, stages, limits))
}

fn path<M>(name: &str, stages: stages::Stages<M>) -> Single<M> {
    limited(name, stages, Limits::default())
}

const NOW: Time = Time(1000);

/// What came out.
fn left<M>(direction: Direction, message: M, turned: bool) -> Exit<M> {
    Exit::Left {
        direction,
        message,
        turned,
    }
}

/// Sends one message through, and gives back what comes out.
fn pass<M>(path: &mut Single<M>, direction: Direction, message: M) -> Vec<Exit<M>> {
    path.pass(direction, message, NOW)
}

/// Writes its position behind the message, and lets it pass.
fn mark(position: char) -> Box<dyn Stage<String>> {
    stage("mark", move |mut message: String, direction, _| {
        message.push(position);
        message.push(if direction == Forward { '>' } else { '<' });
        Step::On(message)
    })
}

const fn ended<M>(message: M, fate: Count) -> Exit<M> {
    Exit::Ended {
        message,
        fate,
        turned: false,
    }
}

#[test]
fn queues_have_length_and_maximum_and_may_be_missing() {
    let limits = Limits {
        queue: [2, 0, 1, 0],
        ..Limits::default()
    };
    let mut path = limited("p", vec![on("a"), on("b")], limits);
    assert_eq!(path.limits(), limits);
    assert_eq!(path.offer(Forward, 1), Ok(()));
    assert_eq!(path.offer(Forward, 2), Ok(()));
    // Early discard: the message comes back, before any stage has seen it.
    let fate = Count::DroppedQueueFull;
    assert_eq!(path.offer(Forward, 3), Err((3, Full::Dropped(fate))));
    assert_eq!(path.offer(Backward, 4), Err((4, Full::Dropped(fate))));
    assert_eq!(path.input(Forward).len(), 2);
    assert_eq!(path.input(Forward).maximum(), 2);
    assert_eq!(path.account().received(), 4);
    assert_eq!(path.account().fate(Count::DroppedQueueFull), 2);
    assert_eq!((path.account().open(), path.waiting()), (2, 2));
    assert_eq!(path.account().runs, 0);

    // The first goes all the way onto the output queue, which is then full.
    assert_eq!(path.run(NOW), []);
    assert_eq!(path.run(NOW), [ended(2, fate)]);
    assert_eq!(path.run(NOW), []);
    assert_eq!(path.account().runs, 2);
    assert_eq!(path.output(Forward).len(), 1);
    assert_eq!(path.take_output(), Some(left(Forward, 1, false)));
    assert_eq!(path.take_output(), None);

    // Without that queue it leaves at once; but the queue does not go while
    // something is in it, which would be overtaken.
    path.offer(Forward, 6).unwrap();
    assert_eq!(path.run(NOW), []);
    let queue = [2, 0, 0, 0];
    path.limit(Limits { queue, ..limits }).unwrap();
    assert_eq!(path.limits().queue, [2, 0, 1, 0]);
    assert_eq!(path.take_output(), Some(left(Forward, 6, false)));
    path.limit(Limits { queue, ..limits }).unwrap();
    assert_eq!(pass(&mut path, Forward, 5), [left(Forward, 5, false)]);
    let fates: Vec<_> = path.account().fates().collect();
    assert_eq!(fates, [(Count::Forwarded, 3), (fate, 3)]);
}

#[test]
fn data_turns_around_inside() {
    let echo = stage("echo", |mut message: String, _, _| {
        message.push('!');
        Step::Back(message, Count::Answered)
    });
    let mut path = path("ping", vec![mark('a'), echo, mark('c'), mark('d')]);
    let out = pass(&mut path, Backward, String::new());
    assert_eq!(out, [left(Forward, "d<c<!c>d>".into(), true)]);
    let account = path.account();
    assert_eq!(account.fates().collect::<Vec<_>>(), [(Count::Answered, 1)]);
    assert_eq!((account.originated, account.left, account.ended), (1, 1, 0));
}

#[test]
fn an_acknowledgement_rides_on_data_of_the_other_direction() {
    #[derive(Debug, PartialEq)]
    struct Segment {
        number: u32,
        acknowledges: Option<u32>,
    }
    let mut owed = None;
    let tcp = stage("tcp", move |mut segment: Segment, direction, _| {
        match direction {
            Backward => owed = Some(segment.number),
            Forward => segment.acknowledges = owed.take(),
        }
        Step::On(segment)
    });
    let segment = |number, acknowledges| Segment {
        number,
        acknowledges,
    };
    let mut path = path("tcp", vec![on("app"), tcp, on("ip")]);
    pass(&mut path, Backward, segment(7, None));
    pass(&mut path, Backward, segment(8, None));
    let out = pass(&mut path, Forward, segment(1, None));
    assert_eq!(out, [left(Forward, segment(1, Some(8)), false)]);
    let out = pass(&mut path, Forward, segment(2, None));
    assert_eq!(out, [left(Forward, segment(2, None), false)]);
    assert_eq!(path.account().originated, 0);
}

#[test]
fn fragments_are_absorbed_until_the_last() {
    let mut parts = String::new();
    let reassemble = stage("ip", move |part: String, _, _| {
        parts += &part;
        if part.ends_with('.') {
            Step::On(std::mem::take(&mut parts))
        } else {
            Step::Absorbed
        }
    });
    let mut path = path("p", vec![on("up"), reassemble, on("eth")]);
    assert_eq!(pass(&mut path, Backward, "one ".into()), []);
    assert_eq!(pass(&mut path, Backward, "two ".into()), []);
    let whole = left(Backward, "one two three.".into(), false);
    assert_eq!(pass(&mut path, Backward, "three.".into()), [whole]);
    let account = path.account();
    assert_eq!((account.received(), account.absorbed()), (3, 2));
    assert_eq!(account.fate(Count::Forwarded), 1);
}

#[test]
fn one_message_becomes_several() {
    let fragment = stage("ip", |whole: Vec<u8>, direction, cx: &mut Cx<'_, _>| {
        let mut parts = whole.chunks(2).map(<[u8]>::to_vec);
        let first = parts.next().unwrap();
        cx.also.extend(parts.map(|part| (direction, part)));
        Step::On(first)
    });
    let mut path = path("p", vec![on("udp"), fragment, on("eth")]);
    let out = pass(&mut path, Forward, b"abcde".to_vec());
    let part = |part: &[u8], turned| left(Forward, part.to_vec(), turned);
    assert_eq!(
        out,
        [part(b"ab", false), part(b"cd", true), part(b"e", true)]
    );
    assert_eq!((path.account().originated, path.account().left), (2, 2));
    // Nothing is left over for the next.
    assert_eq!(pass(&mut path, Forward, b"x".to_vec()).len(), 1);
}

/// Sends a probe every 5 ns, three times, and one to each side.
struct Prober(u8);

impl Stage<String> for Prober {
    fn name(&self) -> &'static str {
        "prober"
    }

    fn take(&mut self, message: String, _: Direction, cx: &mut Cx<'_, String>) -> Step<String> {
        *cx.wake_at = Some(cx.now + Duration::from_nanos(5));
        Step::On(message)
    }

    fn wake(&mut self, cx: &mut Cx<'_, String>) {
        self.0 += 1;
        cx.also.push((Forward, format!("{}", self.0)));
        cx.also.push((Backward, format!("{}", self.0)));
        if self.0 < 3 {
            *cx.wake_at = Some(cx.now + Duration::from_nanos(5));
        }
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

#[test]
fn messages_arise_from_time() {
    let mut path = path("p", vec![mark('a'), Box::new(Prober(0)), mark('c')]);
    assert_eq!(path.wake_at(), None);
    pass(&mut path, Forward, String::new());
    let mut out = Vec::new();
    let mut times = Vec::new();
    while let Some(time) = path.wake_at() {
        assert_eq!(path.wake(Time(time.0 - 1)), [], "too early");
        times.push(time.0 - NOW.0);
        out.extend(path.wake(time));
    }
    assert_eq!(times, [5, 10, 15]);
    assert_eq!(out.len(), 6);
    assert_eq!(out[4], left(Forward, "3c>".into(), true));
    assert_eq!(out[5], left(Backward, "3a<".into(), true));
    assert_eq!(path.account().received(), 1);
    assert_eq!(path.stage_as::<Prober>(1).map(|prober| prober.0), Some(3));
    assert!(path.stage_as::<Prober>(0).is_none());
}

#[test]
fn a_message_can_be_injected_at_any_stage_and_meets_only_neighbours() {
    let mut path = path("p", vec![mark('0'), mark('1'), mark('2'), mark('3')]);
    for (stage, forward, backward) in [
        (0, "0>1>2>3>", "0<"),
        (1, "1>2>3>", "1<0<"),
        (2, "2>3>", "2<1<0<"),
        (3, "3>", "3<2<1<0<"),
    ] {
        for (direction, trail) in [(Forward, forward), (Backward, backward)] {
            let out = path.inject(stage, direction, String::new(), NOW);
            assert_eq!(out, [left(direction, trail.into(), false)]);
        }
    }
    assert_eq!(path.account().received(), 8);
}

#[test]
fn stages_share_attributes_without_knowing_each_other() {
    let mut total = 0;
    let publish = stage("decoder", move |ns: u64, _, cx: &mut Cx<'_, _>| {
        total += ns;
        cx.attrs.set("avg_time", total / 2);
        Step::On(ns)
    });
    let read = stage("shell", |_, _, cx: &mut Cx<'_, u64>| {
        Step::On(cx.attrs.number("avg_time").unwrap_or(0))
    });
    let mut path = path("p", vec![publish, on("b"), on("c"), read]);
    assert_eq!(pass(&mut path, Forward, 10), [left(Forward, 5, false)]);
    assert_eq!(pass(&mut path, Forward, 30), [left(Forward, 20, false)]);
    assert_eq!(path.attrs().number("avg_time"), Some(20));
    path.attrs_mut().set("avg_time", 1);
    assert_eq!(path.attrs().number("avg_time"), Some(1));
}

#[test]
fn every_stage_sees_the_same_buffer() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let look = |name| {
        let seen = Arc::clone(&seen);
        stage(name, move |buffer: Box<[u8; 2048]>, _, _| {
            seen.lock()
                .expect("nobody panics")
                .push(std::ptr::from_ref(&*buffer).addr());
            Step::On(buffer)
        })
    };
    let limits = Limits {
        queue: [4, 4, 4, 4],
        ..Limits::default()
    };
    let stages = vec![look("a"), look("b"), look("c"), look("d")];
    let mut path = limited("p", stages, limits);
    let buffer = Box::new([7; 2048]);
    let address = std::ptr::from_ref(&*buffer);
    path.offer(Backward, buffer).unwrap();
    path.run(NOW);
    let Some(Exit::Left { message, .. }) = path.take_output() else {
        panic!("it waits in the output queue");
    };
    assert!(std::ptr::eq(&raw const *message, address));
    assert_eq!(*seen.lock().expect("nobody panics"), [address.addr(); 4]);
}

/// Application-level framing: each packet is a unit of work of its own.
#[test]
fn work_units_do_not_wait_for_each_other() {
    let stages = || vec![mark('a'), mark('b'), mark('c'), mark('d'), mark('e')];
    let alone: Vec<_> = ["x", "y", "z"]
        .map(|unit| pass(&mut path("p", stages()), Backward, unit.to_owned()))
        .into_iter()
        .flatten()
        .collect();
    // The same units in another order, one of them lost, on one path.
    let mut path = path("p", stages());
    for unit in ["z", "x"] {
        path.offer(Backward, unit.to_owned()).unwrap();
    }
    let mut out = path.run(NOW);
    // No queue in the middle: what was taken in is out, the other has not
    // begun.
    assert_eq!((out.len(), path.waiting()), (1, 1));
    out.extend(path.run(NOW));
    assert_eq!(out[0], alone[2]);
    assert_eq!(out[1], alone[0]);
}

#[test]
fn time_is_charged() {
    let mut path = path("p", vec![on("a")]);
    pass(&mut path, Forward, ());
    path.charge(Duration::from_nanos(300));
    path.charge(Duration::from_nanos(200));
    assert_eq!(path.account().time, Duration::from_nanos(500));
    assert_eq!(path.account().runs, 1);
}

#[test]
fn a_grant_that_is_too_small_is_refused_and_nothing_leaks() {
    struct Greedy(Arc<()>);
    impl Stage<u64> for Greedy {
        fn name(&self) -> &'static str {
            "cache"
        }
        fn memory_bytes(&self) -> usize {
            5000
        }
        fn establish(&mut self, _: &mut Attrs) -> Result<(), String> {
            panic!("never");
        }
        fn take(&mut self, _: u64, _: Direction, _: &mut Cx<'_, u64>) -> Step<u64> {
            let _ = &self.0;
            Step::Absorbed
        }
        fn as_any(&mut self) -> &mut dyn std::any::Any {
            self
        }
    }
    let alive = Arc::new(());
    let assemble = |memory_bytes, queue| {
        let limits = Limits {
            queue: [queue, 0, 0, 0],
            memory_bytes,
        };
        let stages: stages::Stages<u64> = vec![on("a"), Box::new(Greedy(Arc::clone(&alive)))];
        Path::assemble("video", stages, Attrs::new(), limits)
    };
    let error = assemble(4096, 0).err().unwrap();
    assert_eq!(error.granted_bytes, 4096);
    assert!(error.needed_bytes > 5000 && error.largest_bytes > 5000);
    let text = error.to_string();
    assert!(
        text.contains("`video`") && text.contains("stage `cache`"),
        "{text}"
    );
    assert_eq!(Arc::strong_count(&alive), 1);

    // What it would need, to the byte; a queue counts as if it were full.
    let needed = error.needed_bytes;
    assert!(assemble(needed - 1, 0).is_err());
    let mut path = assemble(needed, 0).unwrap();
    assert_eq!(path.account().memory_bytes, needed);
    assert_eq!(path.memory_bytes(), needed);
    assert!(assemble(needed, 1).is_err());
    let message = size_of::<(u64, Trail)>();
    assert!(assemble(needed + message, 1).is_ok());

    // Later as well.
    let before = path.limits();
    let queue = [0, 0, 1, 0];
    assert!(path.limit(Limits { queue, ..before }).is_err());
    assert_eq!(path.limits(), before);
    assert!(path.replace(0..0, vec![on("b")]).is_err());
    assert_eq!(path.len(), 2);
    drop(path);
    assert_eq!(Arc::strong_count(&alive), 1);
}

#[test]
fn stages_that_turn_a_message_forever_are_stopped_and_named() {
    let back = |name| stage(name, |message, _, _| Step::Back(message, Count::Answered));
    let mut path = path("p", vec![back("left"), on("middle"), back("right")]);
    let out = path.inject(1, Forward, 9, NOW);
    let fate = Count::DroppedFault;
    let turned = true;
    let end = Exit::Ended {
        message: 9,
        fate,
        turned,
    };
    assert_eq!(out, [end]);
    let account = path.account();
    assert_eq!(account.faults, 1);
    let fault = account.fault.as_deref().unwrap();
    assert_eq!(fault.what, Misbehaviour::Endless(MAX_ORIGINATED));
    assert_eq!((&*fault.stage, fault.position), ("right", 2));
    let text = fault.to_string();
    assert!(
        text.contains("more than 4096 messages out of one"),
        "{text}"
    );
    assert_eq!(account.originated, account.left + account.ended);
    assert_eq!(account.fates().collect::<Vec<_>>(), [(Count::Answered, 1)]);
}

#[test]
fn a_stage_that_sends_without_end_is_stopped_and_named() {
    let storm = stage("storm", |(), direction, cx: &mut Cx<'_, ()>| {
        cx.also.extend([(direction, ()); 10_000]);
        Step::On(())
    });
    let mut path = path("p", vec![on("a"), storm, on("c")]);
    let out = pass(&mut path, Forward, ());
    let sent = out.iter().filter(|exit| matches!(exit, Exit::Left { .. }));
    assert_eq!(sent.count(), 1 + MAX_ORIGINATED as usize);
    assert_eq!(out.len(), 10_001);
    let fault = path.account().fault.as_deref().unwrap();
    assert_eq!((&*fault.stage, fault.position), ("storm", 1));
    // It keeps no memory for the next storm.
    assert!(path.memory_bytes() < 4096, "{}", path.memory_bytes());
    // The next message has the whole bound again.
    assert_eq!(pass(&mut path, Backward, ()).len(), 10_001);
}

#[test]
fn what_is_not_a_fate_is_not_taken_for_one() {
    for wrong in [Count::Received, Count::QueuedTier, Count::OutHandedOver] {
        let end = stage("end", move |(), direction, _| match direction {
            Forward => Step::End((), wrong),
            Backward => Step::Back((), wrong),
        });
        let mut path = path("p", vec![end]);
        let fate = Count::DroppedFault;
        for direction in [Forward, Backward] {
            let out = pass(&mut path, direction, ());
            assert_eq!(out, [ended((), fate)]);
        }
        let account = path.account();
        assert_eq!((account.received(), account.open()), (2, 0));
        let fault = account.fault.as_deref().unwrap();
        assert_eq!(fault.what, Misbehaviour::NotAFate(wrong));
        assert!(fault.to_string().contains(wrong.name()));
    }
}

#[test]
fn what_waits_can_be_taken_back() {
    let limits = Limits {
        queue: [4, 4, 4, 4],
        ..Limits::default()
    };
    let mut path = limited("p", vec![on("a")], limits);
    path.offer(Forward, 1).unwrap();
    path.run(NOW);
    path.offer(Forward, 2).unwrap();
    path.offer(Backward, 3).unwrap();
    let fate = Count::Passed;
    assert_eq!(
        path.drain(fate),
        [ended(2, fate), left(Forward, 1, false), ended(3, fate)]
    );
    assert_eq!((path.account().open(), path.waiting()), (0, 0));
    assert_eq!(path.account().fate(fate), 2);
}

#[test]
fn the_filter_is_what_all_stages_say() {
    struct Says(Option<&'static str>);
    impl Stage<()> for Says {
        fn name(&self) -> &'static str {
            "says"
        }
        fn demands(&self, all: &mut Vec<Demand>) {
            all.extend(self.0.map(Demand::plain));
        }
        fn take(&mut self, (): (), _: Direction, _: &mut Cx<'_, ()>) -> Step<()> {
            Step::On(())
        }
        fn as_any(&mut self) -> &mut dyn std::any::Any {
            self
        }
    }
    let filter = |parts: &[Option<&'static str>]| {
        let stages = parts.iter().map(|part| Box::new(Says(*part)) as Box<_>);
        path("p", stages.collect()).filter()
    };
    assert_eq!(filter(&[None, None]), None);
    assert_eq!(filter(&[None, Some("udp")]).as_deref(), Some("udp"));
    assert_eq!(
        filter(&[Some("dst port 1"), None, Some("ip")]).as_deref(),
        Some("dst port 1 and ip")
    );
}

#[test]
fn a_path_without_stages_is_a_wire() {
    let mut path = path::<u8>("p", Vec::new());
    assert!(path.is_empty());
    for direction in [Forward, Backward] {
        assert_eq!(pass(&mut path, direction, 1), [left(direction, 1, false)]);
    }
}
