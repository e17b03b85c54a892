//! All programs in our own interpreter, without root.

use std::borrow::Cow;

use ashway_abi::count::{KERNEL_WORDS, Ledger};
use ashway_abi::memory::HEADROOM_BYTES;
use ashway_abi::{Count, trusted};
use ashway_check::bpf::interp::{Fault, Machine};
use ashway_check::bpf::{Assembler, Hook, Image};
use ashway_codegen::demux::compiled::{self, Entries};
use ashway_codegen::demux::emit::{self, NO_PATH};
use ashway_demux::Table;
use ashway_rig::captures::{Captures, Links};

use super::user::User;
use super::world::{
    End, FEW, LAYOUT, LONGEST, OUR_MAC, OUT, OrderScope, QUEUE, ROWS, Risen, Rung, UNMATCHED,
    behind, counted, end, entry, hop, leaf, same,
};

/// One frame in so many is cut at every length.
const SHARE: usize = 100;

/// An interface in one of the ways there are, with one kind of program behind all
/// of its slots.
#[derive(Clone)]
pub(crate) struct One {
    rung: Rung,
    what: OrderScope,
    machine: Machine,
    pub(crate) entry: Image,
    demux: Image,
    counts: Vec<u64>,
    runs: usize,
    tagged: usize,
}

impl One {
    pub(crate) fn new(table: &Table<usize>, rung: Rung, few: usize, what: OrderScope) -> Self {
        let compiled = compiled::compile(table, few, leaf);
        let mut machine = Machine::new(ROWS, QUEUE.bytes(), LAYOUT.total_bytes());
        machine.array_mode = rung == Rung::XdpArray;
        machine.slots = vec![Some(behind(what, rung, 1))];
        for (one, entries) in compiled.iter().zip(table.shapes()) {
            if let Entries::Hash(map) = one.entries {
                machine.add_shape(map, one.shape.key_bytes());
                for (key, path) in entries.iter() {
                    machine.insert(map, key, leaf(path));
                }
            }
        }
        machine.set_hits(compiled::hits_bytes(&compiled));
        for path in 0..ROWS {
            machine.set_hop(path, hop());
        }
        for (at, block) in QUEUE.first_blocks() {
            machine.trusted_mut()[at..][..4].copy_from_slice(&block.to_le_bytes());
        }
        let spec = emit::Spec {
            shapes: &compiled,
            spares: None,
            cpus: 1,
            packet: rung.packet(),
        };
        Self {
            rung,
            what,
            entry: entry(&compiled, rung, 1),
            demux: emit::program_after(Assembler::at(rung.hook()), &spec),
            machine,
            counts: vec![0; ROWS * KERNEL_WORDS],
            runs: 0,
            tagged: 0,
        }
    }

    /// Runs the entry program and what it calls.
    fn end(&mut self, frame: &[u8]) -> End {
        let frame = &*self.beside(frame);
        let run = self.run(frame);
        let (code, risen) =
            run.unwrap_or_else(|fault| panic!("{:?}: {fault} of {frame:02x?}", self.what));
        let (machine, codes) = (&mut self.machine, self.rung.codes());
        if self.what == OrderScope::Relay && code == codes.redirect {
            assert_eq!(machine.redirects.pop(), Some((OUT, 0)));
        } else if self.rung == Rung::Tcx && code == codes.answer {
            assert_eq!(machine.redirects.pop(), Some((machine.ifindex, 0)));
        }
        assert!(machine.redirects.is_empty() && machine.metadata().is_empty());
        let left = machine.packet().to_vec();
        if code == codes.pass {
            assert!(left == frame, "the host gets its frame untouched");
        }
        end(self.rung, code, counted(&risen), left, || message(machine))
    }

    /// The frame as the program gets it: every other time without a tag, which lies beside.
    fn beside<'f>(&mut self, frame: &'f [u8]) -> Cow<'f, [u8]> {
        self.machine.tag = None;
        let whole = self.rung.hook() == Hook::Xdp || self.runs.is_multiple_of(2);
        let Some([a, b, c, d]) = frame.get(12..16).filter(|_| !whole) else {
            return frame.into();
        };
        let tag = [[*a, *b], [*c, *d]].map(u16::from_be_bytes);
        if frame.len() < 18 || ![0x8100, 0x88a8].contains(&tag[0]) {
            return frame.into();
        }
        self.machine.tag = Some(tag);
        self.tagged += 1;
        [&frame[..12], &frame[16..]].concat().into()
    }

    /// The same for a program that may be wrong: `None` if it faults or counts a
    /// frame other than once.
    pub(crate) fn try_end(&mut self, frame: &[u8]) -> Option<End> {
        let (code, risen) = self.run(frame).ok()?;
        let received = |(_, count, by): &Risen| *count == Count::Received && *by == 1;
        (risen.len() == 2 && risen.iter().any(received)).then(|| {
            let left = self.machine.packet().to_vec();
            end(self.rung, code, counted(&risen), left, || {
                message(&mut self.machine)
            })
        })
    }

    /// What the program returns, and what has risen by how much.
    fn run(&mut self, frame: &[u8]) -> Result<(u32, Vec<Risen>), Fault> {
        let machine = &mut self.machine;
        if self.rung.hook() == Hook::Tcx {
            // Never less than an Ethernet header; else it may end anywhere. A tag may lie beside.
            self.runs += 1;
            machine.linear = 14 + self.runs * 7 % 120;
        }
        let code = machine.run(&self.entry, frame)?;
        let mut risen = Vec::new();
        for row in 0..ROWS {
            for count in Count::of_programs() {
                let now = machine.count(row, *count);
                let before = &mut self.counts[row * KERNEL_WORDS + *count as usize];
                if now != *before {
                    risen.push((row, *count, now - *before));
                    *before = now;
                }
            }
        }
        Ok((code, risen))
    }
}

/// Takes the one message out of the ring, as the worker would.
fn message(machine: &mut Machine) -> Vec<u8> {
    let ring = trusted::RINGS;
    let produced = machine.trusted_u32(ring + trusted::RING_PRODUCED);
    let consumed = machine.trusted_u32(ring + trusted::RING_CONSUMED);
    let slot = consumed as usize % trusted::RING_SLOTS;
    let at = trusted::SLOTS + slot * trusted::SLOT_BYTES;
    let more = machine.trusted_u32(at + trusted::SLOT_LONG) & trusted::long::SLOTS;
    assert_eq!(produced, consumed.wrapping_add(1 + more), "one message");
    let ready = machine.trusted_u32(at + trusted::SLOT_READY);
    assert_eq!(ready, consumed.wrapping_add(1));
    let [len, path, front] = [
        trusted::SLOT_PAYLOAD_LEN,
        trusted::SLOT_LOCAL_PATH,
        trusted::SLOT_PAYLOAD_OFF,
    ]
    .map(|word| machine.trusted_u32(at + word) as usize);
    let mut frame = Vec::new();
    for slot in (slot..).map(|slot| slot % trusted::RING_SLOTS) {
        let block = machine.trusted_u32(QUEUE.block_word(slot)) as usize;
        let rest = (front + len - frame.len()).min(QUEUE.piece_bytes());
        let at = QUEUE.pool_offset() + HEADROOM_BYTES + block;
        frame.extend(&machine.trusted()[at..][..rest]);
        if frame.len() == front + len {
            break;
        }
    }
    let message = frame.split_off(front);
    let words = machine.trusted_mut();
    words[QUEUE.path_word(path) + trusted::PATH_CHAINED..][..4].fill(0);
    words[ring + trusted::RING_CONSUMED..][..4].copy_from_slice(&produced.to_le_bytes());
    let in_user = trusted::PATHS + path * trusted::PATH_STRIDE;
    assert_eq!(words[in_user..][..4], 1_u32.to_le_bytes());
    words[in_user..][..4].fill(0);
    message
}

#[test]
fn all_programs_come_to_what_the_user_tier_comes_to() {
    let Some(captures) = Captures::read(Links::Any, 400) else {
        return;
    };
    let mut user = User::new();
    let mut all = Vec::new();
    for rung in Rung::ALL {
        for few in FEW {
            for what in OrderScope::ALL {
                all.push(One::new(&user.table, rung, few, what));
            }
        }
    }
    let mut ends = [0; 4];
    let replayed = captures.replay(SHARE, OUR_MAC, |frame| {
        if frame.len() > LONGEST {
            return;
        }
        let at_ring = user.end(OrderScope::Ring, frame);
        ends[match at_ring {
            End::Host => 0,
            End::Ended(..) => 1,
            End::Queued(..) => 2,
            End::Sent(..) => 3,
        }] += 1;
        for one in &mut all {
            if one.what != OrderScope::Ring && !matches!(at_ring, End::Queued(..)) {
                // It does not come so far.
                continue;
            }
            let got = one.end(frame);
            let wanted = user.end(one.what, frame);
            let (rung, what, tagged) = (one.rung, one.what, one.machine.tag.is_some());
            assert!(
                same(rung, tagged, what, &got, &wanted),
                "{rung:?}, {what:?}: {got:x?}, and in the user tier {wanted:x?}, of {frame:02x?}"
            );
            if one.what == OrderScope::Ring && frame.len() >= 14 {
                demuxed(one, &user, frame);
            }
        }
    });
    println!("{replayed:?}: host, ended, queued, sent: {ends:?}");
    for one in &all {
        let (machine, tcx) = (&one.machine, one.rung == Rung::Tcx);
        assert_eq!(one.tagged > 100, tcx, "{}", one.tagged);
        let sum = |row, ledger| -> u64 {
            let of = Count::of_programs()
                .iter()
                .filter(|count| count.ledger() == ledger);
            of.map(|count| machine.count(row, *count)).sum()
        };
        let queues = [Count::QueuedTier, Count::QueuedOptions];
        for row in 0..ROWS {
            let queued: u64 = queues.map(|count| machine.count(row, count)).iter().sum();
            let fates = sum(row, Ledger::Fate);
            assert_eq!(machine.count(row, Count::Received), fates + queued);
        }
        let first = usize::from(one.what != OrderScope::Ring);
        for row in first..ROWS {
            assert!(
                machine.count(row, Count::Received) > 0,
                "row {row}: nothing"
            );
        }
        assert_eq!(
            machine.count(UNMATCHED, Count::Passed),
            machine.count(0, Count::Received)
        );
    }
    assert!(
        ends[0] > 1000 && ends[1] > 1000 && ends[2] > 1000,
        "{ends:?}"
    );
}

/// The demux alone says which path it is.
fn demuxed(one: &mut One, user: &User, frame: &[u8]) {
    one.machine.tag = None;
    let headers = ashway_wire::Headers::parse(frame);
    let wanted = user.table.find(&headers, frame);
    let wanted = wanted.map_or(NO_PATH, |path| path as u32);
    assert_eq!(
        one.machine.run(&one.demux, frame),
        Ok(wanted),
        "{frame:02x?}"
    );
}
