//! Puts what was said of each message together: pure.
//!
//! Programs say what they did in one or two notes, the worker in events, in
//! whatever order they are read. What happened to a message is told when its fate is known
//! and nothing more has come for [`QUIET_NS`], or when it has been open for
//! [`PATIENCE_NS`]; in the order in which the messages came.

use std::collections::{HashMap, HashSet, VecDeque};

use ashway_abi::Count;
use ashway_abi::count::Ledger;
use ashway_abi::observe::{NO_FUEL, Note, step};
use ashway_api::answer::{self, Packet, What as Step};

use ashway_worker::hex::hex;
use ashway_worker::iface_map::IfaceMap;
use ashway_worker::observe::{Event, What};

/// How long the worker may say more of a message whose fate is known: what it
/// answered leaves with its batch, and it may have to wait for a CPU between the two.
const QUIET_NS: u64 = 20_000_000;

/// How long a message may be underway before it is told of without a fate.
const PATIENCE_NS: u64 = 1_000_000_000;

/// Messages underway at most; each holds its frames, of which there is mostly one in
/// and one out: 64 MiB if they are long. With [`QUIET_NS`], 400,000 messages a second are
/// told of; of what is above that, some are not.
const MOST_OPEN: usize = 1 << 13;

/// Names of what is known by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Names {
    /// Interfaces, with what the user tier has frames of each from.
    pub(crate) ifaces: IfaceMap<(String, &'static str)>,
    /// The same by the kernel's number.
    pub(crate) by_ifindex: HashMap<u32, String>,
    /// Paths that end in a handler, with the handler, by their row.
    pub(crate) paths: HashMap<u32, (String, String)>,
    /// Relays that the kernel tier may run, by their row.
    pub(crate) relays: HashMap<u32, Relay>,
    /// Rows of paths whose programs say nothing.
    pub(crate) silent: HashSet<u32>,
}

/// A path from an interface to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Relay {
    pub(crate) name: String,
    /// The kernel's numbers of the two interfaces.
    pub(crate) ends: [u32; 2],
}

impl Relay {
    /// Where a message leaves that came by this interface.
    fn out(&self, came_by: u32) -> u32 {
        let [one, other] = self.ends;
        if came_by == one { other } else { one }
    }
}

/// A frame on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) at: u64,
    pub(crate) iface: String,
    /// Its length; more than there are bytes if it was longer than a note.
    pub(crate) len: usize,
    pub(crate) bytes: Vec<u8>,
}

/// A step of a message's way, and when it was.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TimedStep {
    pub(crate) at: u64,
    pub(crate) what: Step,
}

/// What happened to a message.
#[derive(Clone, Debug, Default)]
pub(crate) struct MessageTrace {
    /// As it came; none if a path made it.
    pub(crate) received: Option<Frame>,
    /// What went out for it.
    pub(crate) sent: Vec<Frame>,
    pub(crate) path: Option<String>,
    /// Where its path ran, once that is known.
    pub(crate) tier: Option<&'static str>,
    /// The last, where it went along several paths.
    pub(crate) fate: Option<Count>,
    pub(crate) steps: Vec<TimedStep>,
    /// When the entry program began with it.
    began: u64,
    opened: u64,
    touched: u64,
    /// Whether nothing more can come.
    done: bool,
}

impl MessageTrace {
    /// Puts the steps in the order in which they happened. A program says that it has queued
    /// a message when it has done so, and the worker on another CPU may be faster with it.
    fn put_in_order(&mut self) {
        let is_taken = |step: &TimedStep| matches!(step.what, Step::Taken { .. });
        let taken = self.steps.iter().find(|step| is_taken(step));
        if let Some(taken) = taken.map(|step| step.at) {
            let steps = self.steps.iter_mut();
            for step in steps.filter(|step| matches!(step.what, Step::Queued { .. })) {
                step.at = step.at.min(taken);
            }
        }
        self.steps.sort_by_key(|step| (step.at, is_taken(step)));
    }

    fn step(&mut self, at: u64, what: Step) {
        self.steps.push(TimedStep { at, what });
    }

    fn end(&mut self, at: u64, fate: Count) {
        let name = fate.name().into();
        self.step(at, Step::Fate { fate: name });
        self.fate = Some(fate);
    }

    /// Where it came in, or went out if it came from nowhere.
    pub(crate) fn frame(&self) -> Option<&Frame> {
        self.received.as_ref().or_else(|| self.sent.first())
    }
}

/// The messages underway.
#[derive(Debug, Default)]
pub(crate) struct MessageTraces {
    pub(crate) names: Names,
    open: HashMap<u64, MessageTrace>,
    /// In the order they came.
    order: VecDeque<u64>,
    /// Messages that had no room here.
    pub(crate) lost: u64,
}

impl MessageTraces {
    fn open(&mut self, sequence: u64, now: u64) -> Option<&mut MessageTrace> {
        if self.open.len() >= MOST_OPEN {
            self.lost += 1;
            return None;
        }
        if !self.open.contains_key(&sequence) {
            self.order.push_back(sequence);
        }
        let trace = self.open.entry(sequence).or_default();
        (trace.opened, trace.touched) = (now, now);
        Some(trace)
    }

    fn iface(&self, number: u32) -> String {
        let known = self.names.ifaces.get(number as usize);
        known.map_or_else(|| format!("#{number}"), |(name, _)| name.clone())
    }

    fn by_ifindex(&self, number: u32) -> String {
        let name = self.names.by_ifindex.get(&number);
        name.cloned().unwrap_or_else(|| format!("#{number}"))
    }

    /// A program has said something, which is read at `now`.
    pub(crate) fn note(&mut self, note: &Note<'_>, now: u64) {
        let relay = self.names.relays.get(&note.row);
        // A note says where its message came in; all but a relay's go out there, too.
        let iface = match relay.filter(|_| note.step == step::ENDED) {
            Some(relay) => self.by_ifindex(relay.out(note.ifindex)),
            None => self.by_ifindex(note.ifindex),
        };
        let is_relay = relay.is_some();
        let path = self.names.paths.get(&note.row);
        let handler = path.map(|(_, handler)| handler.clone());
        let path = path
            .map(|(name, _)| name)
            .or_else(|| relay.map(|relay| &relay.name));
        let path = path.cloned();
        let silent = self.names.silent.contains(&note.row);
        let count = count(note.count);
        let frame = (!note.frame.is_empty()).then(|| Frame {
            at: note.time,
            iface: iface.clone(),
            len: note.frame_len as usize,
            bytes: note.frame.to_vec(),
        });
        if matches!(note.step, step::CLASSIFIED | step::UNMATCHED) {
            let Some(trace) = self.open(note.sequence, now) else {
                return;
            };
            trace.began = note.began;
            trace.done = silent;
            let received = Step::Received {
                iface,
                bytes: note.frame_len.into(),
                by: "entry program".into(),
            };
            trace.step(note.began, received);
            trace.received = frame.map(|frame| Frame {
                at: note.began,
                ..frame
            });
            trace.path = path;
            if note.step == step::UNMATCHED {
                trace.step(note.time, Step::Classified { path: None });
                trace.end(note.time, Count::Passed);
                trace.done = true;
            } else {
                // One of those that share a row: the worker knows which.
                let path = trace.path.clone();
                let path = path.or_else(|| Some("of the user tier".to_owned()));
                trace.step(note.time, Step::Classified { path });
            }
            return;
        }
        // What was received before the observation began, or is lost, has no trace.
        let Some(trace) = self.open.get_mut(&note.sequence) else {
            return;
        };
        trace.touched = now;
        let waits = count.is_some_and(|count| count.ledger() != Ledger::Fate);
        // The entry program's own ends began when it did.
        if note.began != trace.began {
            let program = if waits { "ring program" } else { "kernel tier" };
            let turned_over = Step::TurnedOver {
                to: program.into(),
                handler: handler.clone(),
            };
            trace.step(note.began, turned_over);
            if is_relay && !waits {
                trace.tier = Some("kernel");
            }
            if note.ran != 0 {
                trace.tier = Some("kernel");
                let fuel = (note.fuel != NO_FUEL).then_some(note.fuel);
                let stopped = self::count(note.beside)
                    .filter(|beside| *beside != Count::AbortVoluntary)
                    .and_then(|beside| beside.name().strip_prefix("abort_"));
                let ran = Step::Handler {
                    handler,
                    ns: note.ran.saturating_sub(note.began),
                    fuel,
                    stopped: stopped.map(Into::into),
                    // It worked on the driver's frame.
                    copies: 0,
                };
                trace.step(note.ran, ran);
            }
        }
        match count {
            Some(why) if waits => {
                let because = why.name().into();
                trace.step(note.time, Step::Queued { because });
            }
            Some(fate) => {
                trace.end(note.time, fate);
                trace.done = true;
                if let Some(frame) = frame {
                    let iface = frame.iface.clone();
                    let bytes = frame.len as u64;
                    let copies = 0;
                    let sent = Step::Sent {
                        iface,
                        bytes,
                        copies,
                    };
                    trace.step(note.time, sent);
                    trace.sent.push(frame);
                }
            }
            None => {}
        }
    }

    /// The worker has said something, which is read at `now`. Gives it back if nothing
    /// is known of its message, or not yet.
    pub(crate) fn event(&mut self, event: Event, now: u64) -> Option<Event> {
        let begins = matches!(event.what, What::Received { .. } | What::Sent { .. });
        if !begins && !self.open.contains_key(&event.sequence) {
            return Some(event);
        }
        let Event { sequence, at, what } = event;
        let (iface, port) = match &what {
            What::Received { iface, .. } | What::Sent { iface, .. } => {
                let known = self.names.ifaces.get(*iface as usize);
                (self.iface(*iface), known.map_or("", |(_, port)| port))
            }
            _ => (String::new(), ""),
        };
        let trace = match self.open.get_mut(&sequence) {
            Some(trace) => trace,
            None => self.open(sequence, now)?,
        };
        trace.touched = now;
        match what {
            What::Received { frame, .. } => {
                let received = Step::Received {
                    iface: iface.clone(),
                    bytes: frame.len as u64,
                    by: port.into(),
                };
                trace.step(at, received);
                trace.received = Some(Frame {
                    at,
                    iface,
                    len: frame.len,
                    bytes: frame.bytes.into(),
                });
            }
            What::Taken { copies } => {
                trace.tier = Some("user");
                let taken = Step::Taken {
                    by: "worker".into(),
                    copies: copies.into(),
                };
                trace.step(at, taken);
            }
            What::Path(path) => {
                if trace.path.is_none() || path.as_deref() != trace.path.as_deref() {
                    let path = path.as_deref().map(str::to_owned);
                    trace.step(at, Step::Classified { path });
                }
                if path.is_some() {
                    trace.tier = Some("user");
                }
                trace.path = path.map(Into::into).or_else(|| trace.path.take());
            }
            What::Stage { name, forward } => {
                let direction = if forward { "forward" } else { "backward" };
                let stage = Step::Stage {
                    stage: name.into(),
                    direction: direction.into(),
                };
                trace.step(at, stage);
            }
            What::Ran {
                handler,
                fuel,
                stopped,
                copies,
            } => {
                let began = trace.steps.last().map_or(at, |step| step.at);
                let ran = Step::Handler {
                    handler: Some(handler.into()),
                    ns: at.saturating_sub(began),
                    fuel: Some(fuel),
                    stopped: stopped.map(|cause| cause.name().into()),
                    copies: copies.into(),
                };
                trace.step(at, ran);
            }
            What::Fate(fate) => trace.end(at, fate),
            What::Sent {
                frame,
                handed_over,
                copies,
                ..
            } => {
                let (iface_out, bytes) = (iface.clone(), frame.len as u64);
                let copies = copies.into();
                let step = if handed_over {
                    Step::Sent {
                        iface: iface_out,
                        bytes,
                        copies,
                    }
                } else {
                    Step::NotSent {
                        iface: iface_out,
                        bytes,
                        copies,
                    }
                };
                trace.step(at, step);
                if handed_over {
                    trace.sent.push(Frame {
                        at,
                        iface,
                        len: frame.len,
                        bytes: frame.bytes.into(),
                    });
                }
            }
        }
        None
    }

    /// Whether a message is underway.
    pub(crate) fn any(&self) -> bool {
        !self.order.is_empty()
    }

    /// Takes out what can be told at `now`.
    pub(crate) fn tell(&mut self, now: u64, mut tell: impl FnMut(MessageTrace)) {
        while let Some(sequence) = self.order.front() {
            let trace = &self.open[sequence];
            let quiet = now.saturating_sub(trace.touched) >= QUIET_NS;
            // What a path made has no fate.
            let ended = trace.fate.is_some() || trace.received.is_none();
            let told =
                trace.done || ended && quiet || now.saturating_sub(trace.opened) >= PATIENCE_NS;
            if !told {
                return;
            }
            let trace = self.open.remove(sequence);
            self.order.pop_front();
            if let Some(mut trace) = trace {
                trace.put_in_order();
                tell(trace);
            }
        }
    }
}

fn count(number: u32) -> Option<Count> {
    // 0 is `received`, which nothing ends with.
    let mut all = Count::ALL.iter().skip(1);
    all.find(|count| **count as u32 == number).copied()
}

/// It as a line for a client. Times are from the first step on.
pub(crate) fn line(trace: &MessageTrace, number: u64, frames: bool) -> Packet {
    let first = trace.steps.first().map_or(0, |step| step.at);
    let steps = trace.steps.iter().map(|step| answer::Step {
        at_ns: step.at - first,
        what: step.what.clone(),
    });
    let frame = |frame: &Frame| answer::Frame {
        iface: frame.iface.clone(),
        monotonic_ns: frame.at,
        bytes: frame.len as u64,
        frame: frames.then(|| hex(&frame.bytes)),
    };
    Packet {
        packet: number,
        path: trace.path.clone(),
        tier: trace.tier.map(Into::into),
        fate: trace.fate.map(|fate| fate.name().into()),
        flow: trace
            .frame()
            .and_then(|frame| super::audience::flow(&frame.bytes)),
        received: trace.received.as_ref().map(frame),
        sent: trace.sent.iter().map(frame).collect(),
        steps: steps.collect(),
    }
}

#[cfg(test)]
mod tests {
    use ashway_api::answer::exact;
    use serde_json::Value;

    use super::*;
    use ashway_worker::observe::FramePrefix;

    const SEQUENCE: u64 = ashway_abi::observe::base(0, 1) | 1;

    fn traces() -> MessageTraces {
        let mut traces = MessageTraces::default();
        traces
            .names
            .ifaces
            .insert(0, ("b0".to_owned(), "packet socket"));
        traces.names.by_ifindex.insert(9, "b0".to_owned());
        let path = ("inc".to_owned(), "counter".to_owned());
        traces.names.paths.insert(4, path);
        traces.names.by_ifindex.insert(10, "b1".to_owned());
        let relay = Relay {
            name: "relay".to_owned(),
            ends: [10, 9],
        };
        traces.names.relays.insert(5, relay);
        traces
    }

    const fn note(step: u32, began: u64, time: u64, count: Count) -> Note<'static> {
        Note {
            sequence: SEQUENCE,
            began,
            ran: 0,
            fuel: NO_FUEL,
            time,
            row: 4,
            ifindex: 9,
            frame_len: 60,
            step,
            count: count as u32,
            beside: 0,
            lost: 0,
            frame: b"frame",
        }
    }

    fn told(traces: &mut MessageTraces, now: u64) -> Vec<MessageTrace> {
        let mut told = Vec::new();
        traces.tell(now, |trace| told.push(trace));
        told
    }

    /// The line as a client reads it, with everything in it.
    fn line(trace: &MessageTrace, number: u64, frames: bool) -> Value {
        let line = serde_json::to_value(super::line(trace, number, frames)).unwrap();
        exact::<answer::Event>(&line).unwrap();
        line
    }

    fn names(trace: &MessageTrace) -> Vec<String> {
        let line = line(trace, 1, false);
        let steps = line["steps"].as_array().unwrap().iter();
        let names = steps.map(|step| step["step"].as_str().unwrap().to_owned());
        names.collect()
    }

    #[test]
    fn both_tiers_tell_one_story_in_whatever_order() {
        let event = |at, what| Event {
            sequence: SEQUENCE,
            at,
            what,
        };
        // The program may say it when the worker has answered already.
        for (late, queued_at) in [(false, 200), (true, 200), (false, 430), (true, 430)] {
            let kernel = [
                note(step::CLASSIFIED, 100, 150, Count::Received),
                note(step::ENDED, 160, queued_at, Count::QueuedTier),
            ];
            let mut traces = traces();
            traces.note(&kernel[0], 0);
            if !late {
                traces.note(&kernel[1], 0);
            }
            for (at, what) in [
                (300, What::Taken { copies: 2 }),
                (310, What::Path(Some("inc".into()))),
                (
                    320,
                    What::Stage {
                        name: "counter".into(),
                        forward: false,
                    },
                ),
                (400, What::Fate(Count::Answered)),
                (
                    450,
                    What::Sent {
                        iface: 0,
                        frame: FramePrefix::of(b"reply"),
                        handed_over: true,
                        copies: 4,
                    },
                ),
            ] {
                traces.event(event(at, what), 0);
            }
            if late {
                traces.note(&kernel[1], 0);
            }
            assert!(told(&mut traces, QUIET_NS - 1).is_empty(), "more may come");
            let told = told(&mut traces, QUIET_NS);
            assert_eq!(told.len(), 1);
            let expected = [
                "received",
                "classified",
                "turned_over",
                "queued",
                "taken",
                "stage",
                "fate",
                "sent",
            ];
            assert_eq!(names(&told[0]), expected);
            assert_eq!(told[0].fate, Some(Count::Answered));
            assert_eq!(told[0].sent[0].bytes, b"reply");
            assert_eq!(told[0].tier, Some("user"));
            let line = line(&told[0], 1, true);
            assert_eq!(line["steps"][7]["at_ns"], 350, "{line:#}");
            assert_eq!(line["received"]["frame"], "6672616d65", "{line:#}");
            let copies = [4, 7].map(|step: usize| line["steps"][step]["copies"].as_u64());
            assert_eq!(copies, [Some(2), Some(4)], "{line:#}");
        }
    }

    #[test]
    fn stories_are_told_in_the_order_of_arrival_and_none_holds_the_rest_for_long() {
        let mut traces = traces();
        traces.note(&note(step::CLASSIFIED, 100, 110, Count::Received), 0);
        let mut other = note(step::UNMATCHED, 120, 130, Count::Passed);
        other.sequence += 1;
        traces.note(&other, 0);
        assert!(
            told(&mut traces, QUIET_NS).is_empty(),
            "the first is underway"
        );
        let told = told(&mut traces, PATIENCE_NS);
        let fates: Vec<_> = told.iter().map(|trace| trace.fate).collect();
        assert_eq!(fates, [None, Some(Count::Passed)]);
        assert_eq!(told[0].path.as_deref(), Some("inc"));
        assert!(!traces.any());
    }

    #[test]
    fn what_was_received_before_is_no_story() {
        let mut traces = traces();
        traces.note(&note(step::ENDED, 1, 2, Count::Consumed), 0);
        let sequence = SEQUENCE;
        let what = What::Taken { copies: 2 };
        traces.event(
            Event {
                sequence,
                at: 1,
                what,
            },
            0,
        );
        assert!(!traces.any());
    }

    #[test]
    fn a_program_of_the_kernel_tier_says_what_its_handler_took() {
        let mut traces = traces();
        traces.note(&note(step::CLASSIFIED, 100, 150, Count::Received), 0);
        let mut end = note(step::ENDED, 160, 260, Count::AbortedDirty);
        (end.ran, end.fuel) = (250, 77);
        end.beside = Count::AbortFuel as u32;
        end.frame = b"";
        traces.note(&end, 0);
        let told = told(&mut traces, 0);
        assert_eq!(
            names(&told[0]),
            ["received", "classified", "turned_over", "handler", "fate"]
        );
        let line = line(&told[0], 1, false);
        let handler = &line["steps"][3];
        assert_eq!(handler["ns"], 90);
        assert_eq!(handler["fuel"], 77);
        assert_eq!(handler["stopped"], "fuel");
        assert_eq!(line["tier"], "kernel");
    }

    #[test]
    fn of_a_long_frame_the_beginning_is_kept_and_the_length_is_told() {
        let mut traces = traces();
        let event = |what| Event {
            sequence: SEQUENCE,
            at: 1,
            what,
        };
        let received = What::Received {
            iface: 0,
            frame: FramePrefix::of(&[7; 9_000]),
        };
        assert!(traces.event(event(received), 1).is_none());
        assert!(
            traces
                .event(event(What::Fate(Count::Consumed)), 1)
                .is_none()
        );
        let trace = told(&mut traces, 1 + QUIET_NS).remove(0);
        let frame = trace.received.clone().unwrap();
        assert_eq!(frame.bytes.len(), ashway_abi::observe::MOST_BYTES);
        assert_eq!(frame.len, 9_000);
        assert_eq!(line(&trace, 1, false)["received"]["bytes"], 9_000);
    }

    #[test]
    fn a_relay_of_the_kernel_tier_leaves_by_its_other_interface() {
        for (came_by, came, went) in [(9, "b0", "b1"), (10, "b1", "b0")] {
            let mut traces = traces();
            let ways = [
                note(step::CLASSIFIED, 100, 150, Count::Received),
                note(step::ENDED, 160, 260, Count::Forwarded),
            ];
            for mut note in ways {
                (note.row, note.ifindex) = (5, came_by);
                traces.note(&note, 0);
            }
            let told = told(&mut traces, 0);
            let line = line(&told[0], 1, false);
            assert_eq!(line["path"], "relay", "{line:#}");
            assert_eq!(line["tier"], "kernel", "{line:#}");
            assert_eq!(line["received"]["iface"], came, "{line:#}");
            assert_eq!(line["sent"][0]["iface"], went, "{line:#}");
            let steps = ["received", "classified", "turned_over", "fate", "sent"];
            assert_eq!(names(&told[0]), steps);
            assert_eq!(line["steps"][1]["path"], "relay", "{line:#}");
        }
    }

    #[test]
    fn too_many_underway_are_counted() {
        let mut traces = traces();
        let mut note = note(step::CLASSIFIED, 1, 2, Count::Received);
        for _ in 0..MOST_OPEN + 3 {
            note.sequence += 1;
            traces.note(&note, 0);
        }
        assert_eq!(traces.lost, 3);
    }
}
