//! Record and replay before a relay is promoted, as [`crate::shadow`] has it for handlers.
//!
//! The user tier goes on sending; of some messages the frame that came and the frame that left
//! are recorded. Then the program that relays get, the same image, runs in our interpreter over
//! maps of its own with the hop that the worker would have written behind that message, and has
//! to come to the same end: fate, interface, every byte. So no live message runs twice, nothing
//! live is counted or sent, and the interpreter, other than a test run of the kernel's, shows
//! where a redirect leads.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use ashway_abi::count::Ledger;
use ashway_abi::{Count, Hop, Leaf};
use ashway_check::bpf::Image;
use ashway_check::bpf::interp::Machine;
use ashway_codegen::demux::compiled::{self, FEW};
use ashway_codegen::entry::{self, Packet, Reply};
use ashway_codegen::instance::QueueSpec;
use ashway_codegen::{exit, forward};
use ashway_demux::{Conjunction, Field, Filter, Table, Test};
use ashway_modules::Message;
use ashway_path::places::PathId;
use ashway_path::stage::Direction;
use ashway_wire::ipv4::PROTOCOL_UDP;
use ashway_wire::partial;

use crate::bug::{self, Bug};
use crate::dry_run::first_difference;
use crate::error::NotPromoted;
use crate::iface_map::IfaceMap;
use crate::relays::{self, Out};
use crate::shadow::{Compared, Difference, MOST_BYTES};

/// Messages of a relay, while they are recorded.
#[derive(Debug)]
pub struct Recording {
    path: PathId,
    most: usize,
    /// The number of the first among all messages that were ever recorded.
    first: u64,
    /// Bytes of the frames that came, and as many for those that leave.
    bytes: usize,
    moments: Vec<Moment>,
}

/// A message in the user tier.
#[derive(Clone, Debug)]
struct Moment {
    direction: Direction,
    frame: Vec<u8>,
    fate: Option<Count>,
    /// Whether the path has run for it.
    ran: bool,
    /// Where a message of this direction goes since then.
    hop: Option<Hop>,
    /// The interface that it left by, and the frame.
    sent: Option<(u32, Vec<u8>)>,
}

impl Moment {
    /// Whether all is known of it. It has left when it is transmitted, not when it has run.
    fn is_whole(&self) -> bool {
        let sends = self.fate == Some(Count::Forwarded);
        self.fate.is_some() && self.ran && (!sends || self.sent.is_some())
    }
}

impl Recording {
    /// Of at most so many messages of this path, for the worker and whoever waits for it.
    #[must_use]
    pub fn shared(path: PathId, most: usize) -> Arc<Mutex<Self>> {
        Arc::new(Mutex::new(Self {
            path,
            most,
            first: 0,
            bytes: 0,
            moments: Vec::new(),
        }))
    }

    /// What has been recorded, for itself: the worker adds nothing more, and never waits for
    /// whoever compares it.
    #[must_use]
    pub fn take(shared: &Mutex<Self>) -> Self {
        let mut recording = Self::of(shared);
        let rest = Self {
            path: recording.path,
            most: 0,
            first: 0,
            bytes: 0,
            moments: Vec::new(),
        };
        mem::replace(&mut *recording, rest)
    }

    /// The recording, as nobody leaves it half written.
    pub fn of(shared: &Mutex<Self>) -> MutexGuard<'_, Self> {
        shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether no more messages are wanted, and all is known of those that came.
    #[must_use]
    pub fn is_full(&self) -> bool {
        !self.has_room() && self.moments.iter().all(Moment::is_whole)
    }

    fn has_room(&self) -> bool {
        self.moments.len() < self.most && self.bytes < MOST_BYTES
    }

    fn at(&mut self, number: u64) -> Option<&mut Moment> {
        let at = number.checked_sub(self.first)?;
        self.moments.get_mut(usize::try_from(at).ok()?)
    }
}

/// The worker's end: one recording at a time, until whoever waits for it lets it go.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    /// The number of the last message, of whichever recording.
    last: u64,
    recording: Option<Weak<Mutex<Recording>>>,
}

/// A message of a recording that is under way.
#[derive(Debug)]
pub(crate) struct Recorded(Arc<Mutex<Recording>>, u64);

impl Recorder {
    /// Begins with this recording.
    pub(crate) fn begin(&mut self, recording: &Arc<Mutex<Recording>>) {
        Recording::of(recording).first = self.last + 1;
        self.recording = Some(Arc::downgrade(recording));
    }

    fn recording(&mut self) -> Option<Arc<Mutex<Recording>>> {
        let recording = self.recording.as_ref()?.upgrade();
        if recording.is_none() {
            self.recording = None;
        }
        recording
    }

    /// Records a message of this path that has come, if it is wanted. Copies it.
    pub(crate) fn received(&mut self, path: PathId, direction: Direction, message: &mut Message) {
        let Some(recording) = self.recording() else {
            return;
        };
        let mut recording = Recording::of(&recording);
        if recording.path == path && recording.has_room() {
            recording.bytes += 2 * message.bytes().len();
            self.last += 1;
            message.meta.recorded = self.last;
            recording.moments.push(Moment {
                direction,
                frame: message.bytes().to_vec(),
                fate: None,
                ran: false,
                hop: None,
                sent: None,
            });
        }
    }

    /// The message, if it is recorded.
    pub(crate) fn recorded(&mut self, message: Option<&Message>) -> Option<Recorded> {
        let number = message.map(|message| message.meta.recorded);
        let number = number.filter(|number| *number > 0)?;
        Some(Recorded(self.recording()?, number))
    }

    /// The path has run, and `hops` says where its messages go now.
    pub(crate) fn ran(&mut self, path: PathId, hops: impl FnOnce() -> [Option<Hop>; 2]) {
        let Some(recording) = self.recording() else {
            return;
        };
        let mut recording = Recording::of(&recording);
        let ended = |moment: &&mut Moment| moment.fate.is_some() && !moment.ran;
        if recording.path == path
            && let Some(moment) = recording.moments.iter_mut().find(ended)
        {
            moment.ran = true;
            moment.hop = hops()[moment.direction as usize];
        }
    }

    /// The message leaves by the interface that is written in it.
    pub(crate) fn sent(&mut self, message: &Message) {
        if let Some(Recorded(recording, number)) = self.recorded(Some(message))
            && let Some(moment) = Recording::of(&recording).at(number)
        {
            moment.sent = Some((message.meta.iface, message.bytes().to_vec()));
        }
    }
}

impl Recorded {
    /// The message has ended so.
    pub(crate) fn end(&self, fate: Count) {
        if let Some(moment) = Recording::of(&self.0).at(self.1) {
            moment.fate = Some(fate);
        }
    }
}

/// What replays messages of a relay.
#[derive(Debug)]
pub struct Replay {
    program: Image,
    spec: QueueSpec,
    /// How interfaces are reached, by their numbers.
    out: IfaceMap<Out>,
    /// The relay's number.
    number: usize,
    /// Entry programs, by the hardware address and the direction that they are for.
    entries: Vec<(([u8; 6], Direction), Image)>,
}

/// What the program makes of a message.
#[derive(Debug)]
enum End {
    /// It is for the user tier.
    Left,
    /// It goes out by this interface of the kernel's.
    Sent(u32, Vec<u8>),
    Dropped(Count),
    /// What the kernel would not let it do.
    Stopped(String),
}

/// The path's row of counters.
const ROW: u32 = 0;
const UNMATCHED: u32 = 1;

impl Replay {
    /// Of the program for `spec`, which the node has loaded for its relays.
    #[must_use]
    pub fn new(spec: QueueSpec, out: IfaceMap<Out>, number: usize) -> Self {
        Self {
            program: forward::generate(&spec),
            spec,
            out,
            number,
            entries: Vec::new(),
        }
    }

    /// Has the program run what was recorded. Some 50 us for each message, or one us for
    /// every ten bytes.
    ///
    /// # Errors
    ///
    /// The first message with another end.
    pub fn compare(&mut self, recording: &Recording) -> Result<Compared, NotPromoted> {
        let mut compared = Compared::default();
        for (moment, number) in recording.moments.iter().zip(1..) {
            match self.is_clear(moment) {
                Ok(true) => compared.equal += 1,
                Ok(false) => compared.unclear += 1,
                Err(what) => {
                    let of = recording.moments.len();
                    let difference = Difference::new(number, of, &moment.frame, what);
                    let hint = "this is a bug of Ashway: please report it with the path's \
                                attributes; the path stays in the user tier";
                    return Err(NotPromoted::new(difference.to_string(), hint));
                }
            }
        }
        Ok(compared)
    }

    /// Whether there is something to compare: not if not all is known of the message, or the
    /// program leaves it to the user tier.
    ///
    /// # Errors
    ///
    /// What is different.
    fn is_clear(&mut self, moment: &Moment) -> Result<bool, String> {
        let known = moment.hop.zip(moment.fate).filter(|_| moment.is_whole());
        let Some((hop, fate)) = known else {
            return Ok(false);
        };
        let in_user = match &moment.sent {
            Some((iface, frame)) if fate == Count::Forwarded => {
                let Some(out) = self.out.get(*iface as usize) else {
                    return Ok(false);
                };
                Ok((out.ifindex, frame))
            }
            _ => Err(fate),
        };
        let other = |is: Count, was: Count| {
            let (is, was) = (is.name(), was.name());
            Err(format!("`{is}`, in the user tier `{was}`"))
        };
        match (self.run(moment, hop), in_user) {
            (End::Left, _) => Ok(false),
            (End::Stopped(why), _) => Err(format!("it is stopped ({why})")),
            (End::Sent(is, _), Ok((was, _))) if is != was => Err(format!(
                "it leaves by interface {is} of the kernel's, in the user tier by {was}"
            )),
            (End::Sent(_, mut is), Ok((_, was))) => {
                // Whoever transmits it completes what its sender has left to a device.
                let mut was = was.clone();
                partial::complete(&mut is);
                partial::complete(&mut was);
                if is == was || bug::is(Bug::FramesNotCompared) {
                    return Ok(true);
                }
                let at = first_difference(&is, &was);
                Err(format!("byte {at} of the frame that leaves is another"))
            }
            (End::Dropped(is), Err(was)) if is == was => Ok(true),
            (End::Dropped(is), Err(was)) => other(is, was),
            (End::Sent(..), Err(was)) => other(Count::Forwarded, was),
            (End::Dropped(is), Ok(_)) => other(is, Count::Forwarded),
        }
    }

    /// Runs the program behind an entry program, which finds and judges the datagram, over
    /// maps in which nothing has happened yet.
    fn run(&mut self, moment: &Moment, hop: Hop) -> End {
        let Some(mac) = moment.frame.first_chunk() else {
            return End::Left;
        };
        // Both sides of a relay may have one address (VLANs of one parent).
        let key = (*mac, moment.direction);
        let known = self.entries.iter().position(|(known, _)| *known == key);
        let at = known.unwrap_or_else(|| {
            let entry = self.entry(*mac, moment.direction);
            self.entries.push((key, entry));
            self.entries.len() - 1
        });
        let mut machine = Machine::new(2, self.spec.layout.bytes(), 0);
        machine.array_mode = self.spec.packet == Packet::Helpers;
        machine.set_hits(compiled::CELL_BYTES);
        machine.set_hop(relays::key(self.number, moment.direction), hop);
        machine.slots = vec![Some(self.program.clone())];
        if let Err(fault) = machine.run(&self.entries[at].1, &moment.frame) {
            return End::Stopped(fault.to_string());
        }
        let counted = |count: &&Count| {
            count.ledger() == Ledger::Fate && machine.count(ROW as usize, **count) > 0
        };
        match Count::of_programs().iter().find(counted).copied() {
            Some(Count::Forwarded) => {
                let redirected = machine.redirects.first().map(|(ifindex, _)| *ifindex);
                let ifindex = redirected.or_else(|| exit::way_out(machine.metadata()));
                End::Sent(ifindex.unwrap_or(0), machine.packet().to_vec())
            }
            Some(fate) => End::Dropped(fate),
            None => End::Left,
        }
    }

    /// An entry program that leads every UDP datagram to this address to the relay.
    fn entry(&self, mac: [u8; 6], direction: Direction) -> Image {
        let filter = Filter {
            text: "udp".to_owned(),
            any: vec![Conjunction {
                tests: vec![Test::whole(Field::Protocol, [PROTOCOL_UDP])],
                not: Vec::new(),
            }],
        };
        let mut table = Table::default();
        table
            .insert(&filter, ())
            .expect("it is the only one, so it competes with nobody");
        let shapes = compiled::compile(&table, FEW, |()| Leaf {
            row: ROW,
            local: relays::key(self.number, direction) as u32,
            ..Leaf::default()
        });
        entry::generate(&entry::Spec {
            hook: self.spec.hook,
            shapes: &shapes,
            spares: None,
            cpus: self.spec.cpus,
            per_cpu: false,
            unmatched_row: UNMATCHED,
            mac,
            reply: Reply::Transmit,
            packet: self.spec.packet,
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use ashway_abi::QueueLayout;
    use ashway_check::bpf::Hook;
    use ashway_codegen::instance::OrderScope;
    use ashway_modules::eth::Eth;
    use ashway_modules::forward::Forward;
    use ashway_modules::ip::Ip;
    use ashway_modules::udp::Udp;
    use ashway_modules::{relay, rules};
    use ashway_path::attrs::{Attrs, Value};
    use ashway_path::graph::Graph;
    use ashway_path::module::Module;
    use ashway_path::path::{Exit, Limits};
    use ashway_path::places::Ids;
    use ashway_path::sim::Single;
    use ashway_path::time::Time;

    use super::*;

    const NEAR: [u8; 6] = [2, 0, 0, 0, 0, 0xb];
    /// The same, as VLANs of one parent have it.
    const FAR: [u8; 6] = NEAR;
    const SENDER: [u8; 6] = [2, 0, 0, 0, 0, 0xa];
    const NEXT: &str = "02:00:00:00:00:0c";
    const OUT: Out = Out {
        ifindex: 77,
        by_tcx: false,
    };

    /// A wide relay from interface 0 to interface 1.
    fn path() -> Single<Message> {
        let eth = |name: &str, number, mac: [u8; 6]| -> Box<dyn Module<Message>> {
            Box::new(Eth {
                name: name.into(),
                iface: name.into(),
                number,
                mac: mac.into(),
                mtu: 1500.into(),
                xdp: true,
                down: Arc::default(),
            })
        };
        let relay = Forward {
            name: "relay".into(),
        };
        let modules: Vec<(&str, Box<dyn Module<Message>>)> = vec![
            ("in", eth("in", 0, NEAR)),
            ("out", eth("out", 1, FAR)),
            ("ip", Box::new(Ip { name: "ip".into() })),
            ("udp", Box::new(Udp { name: "udp".into() })),
            ("relay", Box::new(relay)),
        ];
        let edges = [
            ("ip.down", "in.up"),
            ("ip.down", "out.up"),
            ("udp.down", "ip.up"),
            ("relay.down", "udp.up"),
        ];
        let mut graph = Graph::connect(modules, &edges).unwrap_or_else(|found| panic!("{found:?}"));
        graph.init().unwrap();
        let mut attrs = Attrs::new();
        for (name, value) in [
            ("local", "10.7.0.2:5000"),
            ("next_hop", "10.8.0.3:6000"),
            ("from", "10.8.0.2:7000"),
            ("next_hop_mac", NEXT),
            ("out", "out"),
        ] {
            attrs.set(name, Value::of_text(value));
        }
        let created = graph.create("relay", "in", attrs, Limits::default(), &rules::RULES[..]);
        Single::new(created.unwrap_or_else(|error| panic!("{error}")).path)
    }

    /// A datagram to the relay from its sender, or from its next hop, without a UDP checksum.
    fn frame(direction: Direction, payload: &[u8]) -> Vec<u8> {
        let (addresses, ports) = match direction {
            Direction::Forward => ([10, 7, 0, 1, 10, 7, 0, 2], [4_000, 5_000]),
            Direction::Backward => ([10, 8, 0, 3, 10, 8, 0, 2], [6_000, 7_000]),
        };
        let len = payload.len() as u16;
        let mut ip = vec![0x45, 0];
        ip.extend((28 + len).to_be_bytes());
        ip.extend([0, 0, 0, 0, 9, PROTOCOL_UDP, 0, 0]);
        ip.extend(addresses);
        let words = ip.chunks_exact(2);
        let sum: u32 = words
            .map(|two| u32::from(two[0]) << 8 | u32::from(two[1]))
            .sum();
        let folded = (sum & 0xffff) + (sum >> 16);
        ip[10..12].copy_from_slice(&(!(folded as u16)).to_be_bytes());
        let mut frame = [&NEAR[..], &SENDER, &[8, 0], &ip].concat();
        for word in [ports[0], ports[1], 8 + len, 0] {
            frame.extend(word.to_be_bytes());
        }
        frame.extend(payload);
        frame
    }

    /// What the user tier makes of eight messages, four each way, as the worker records it.
    fn recorded() -> Recording {
        let mut path = path();
        let id = Ids::default().take();
        let shared = Recording::shared(id, 8);
        let mut recorder = Recorder::default();
        recorder.begin(&shared);
        for byte in 1..=9 {
            let direction = match byte % 2 {
                1 => Direction::Forward,
                _ => Direction::Backward,
            };
            let mut message = Message::of_frame(&frame(direction, &[byte; 40]));
            recorder.received(id, direction, &mut message);
            let recorded = recorder.recorded(Some(&message));
            // As many as are wanted.
            assert_eq!(recorded.is_some(), byte < 9);
            let exits = path.pass(direction, message, Time(0));
            let Exit::Left { message, .. } = &exits[0] else {
                panic!("{exits:?}");
            };
            let message = message.clone();
            if let Some(recorded) = recorded {
                recorded.end(Count::Forwarded);
            }
            recorder.ran(id, || {
                relay::hops(&mut path).map(|way| {
                    Some(Hop {
                        ifindex: OUT.ifindex,
                        ..way?.hop
                    })
                })
            });
            recorder.sent(&message);
        }
        let recording = Arc::into_inner(shared).unwrap().into_inner().unwrap();
        assert!(recording.is_full());
        recording
    }

    fn replay(packet: Packet) -> Replay {
        let relays = 7;
        let spec = QueueSpec {
            cpus: 2,
            hook: Hook::Xdp,
            layout: QueueLayout {
                paths: relays + 4,
                rings: 1,
                slot_bytes: 2048,
                locks: 0,
            },
            packet,
            order_scope: OrderScope::Path { relays },
        };
        Replay::new(spec, [(0, OUT), (1, OUT)].into_iter().collect(), 2)
    }

    const ALL: Compared = Compared {
        equal: 8,
        unclear: 0,
    };

    #[test]
    fn what_the_user_tier_sends_the_program_sends() {
        for packet in [Packet::Pointers, Packet::Helpers] {
            assert_eq!(replay(packet).compare(&recorded()).unwrap(), ALL);
        }
    }

    /// Each store of the program's that is left out is a mistake in it.
    #[test]
    fn a_mistranslated_relay_is_caught_by_the_first_message_that_shows_it() {
        let mut recording = recorded();
        recording.moments.truncate(1);
        let mut replay = replay(Packet::Pointers);
        let program = replay.program.clone();
        let [mut ttl, mut caught] = [0; 2];
        for at in 0..program.insns.len() {
            // STX or ST (RFC 9669) to what `r7` points to: the frame.
            let insn = program.insns[at];
            let [code, registers, ..] = insn.to_le_bytes();
            if !matches!(code, 0x62 | 0x63 | 0x6a | 0x6b | 0x72 | 0x73 | 0x7a | 0x7b)
                || registers & 0xf != 7
            {
                continue;
            }
            replay.program.insns[at] = 0x05; // ja +0
            if let Err(why) = replay.compare(&recording) {
                caught += 1;
                ttl += u32::from(why.because.contains("byte 22 of the frame"));
                assert!(
                    why.because
                        .contains("of 1 recorded messages number 1 (82 bytes")
                );
            }
            replay.program.insns[at] = insn;
        }
        // Of the stores for IPv4: link addresses and type, the words of its header, ports.
        assert!(caught >= 7, "{caught}");
        // The one of hops and protocol.
        assert_eq!(ttl, 1);
    }

    #[test]
    fn another_interface_byte_or_fate_is_a_difference() {
        let moment = |change: &dyn Fn(&mut Moment)| {
            let mut recording = recorded();
            change(&mut recording.moments[3]);
            let compared = replay(Packet::Pointers).compare(&recording);
            compared.map_err(|why| why.because)
        };
        for (change, says) in [
            (
                (&|moment: &mut Moment| moment.sent.as_mut().unwrap().1[22] -= 1)
                    as &dyn Fn(&mut Moment),
                "byte 22 of the frame that leaves",
            ),
            (
                &|moment: &mut Moment| moment.sent.as_mut().unwrap().1.push(0),
                "byte 82 of the frame that leaves",
            ),
            (
                &|moment: &mut Moment| moment.hop.as_mut().unwrap().ifindex = 78,
                "leaves by interface 78 of the kernel's, in the user tier by 77",
            ),
            (
                &|moment: &mut Moment| {
                    (moment.fate, moment.sent) = (Some(Count::DroppedNoNextHop), None);
                },
                "`forwarded`, in the user tier `dropped_no_next_hop`",
            ),
        ] {
            let why = moment(change).unwrap_err();
            assert!(why.contains(says) && why.contains("number 4"), "{why}");
        }
        // What is not known, and what the program leaves to the user tier, is no difference.
        for change in [
            (&|moment: &mut Moment| moment.sent = None) as &dyn Fn(&mut Moment),
            &|moment: &mut Moment| moment.hop = None,
            &|moment: &mut Moment| moment.hop.as_mut().unwrap().mtu = 60,
        ] {
            let compared = moment(change);
            assert_eq!((compared.unwrap().unclear), 1);
        }
    }

    /// Whether a byte of the payload that only one tier has sent so is found.
    fn differences_are_found() -> bool {
        let mut recording = recorded();
        recording.moments[0].sent.as_mut().unwrap().1[50] ^= 1;
        replay(Packet::Pointers).compare(&recording).is_err()
    }

    #[test]
    fn a_comparison_without_bytes_finds_nothing() {
        assert!(differences_are_found());
        assert!(!bug::with(Bug::FramesNotCompared, differences_are_found));
    }
}
