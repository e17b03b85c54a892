//! What a frame is at TCX and never under XDP: in pieces, with a tag beside it, many messages
//! behind one header; long ones, and under XDP those in several buffers. In our own interpreter.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use ashway_abi::memory::{HEADROOM_BYTES, Layout, STATE_BYTES, WASM_PAGE};
use ashway_abi::{Count, Leaf, MemoryKind, QueueLayout, trusted};
use ashway_check::bpf::interp::Machine;
use ashway_check::bpf::{Hook, Image};
use ashway_codegen::demux::compiled::{self, FEW};
use ashway_codegen::entry::{self, Packet, Reply};
use ashway_codegen::instance::{self, OrderScope, QueueSpec, Spec};
use ashway_demux::Table;
use ashway_rig::{Frame, Spoil};
use promoted::promoted;

#[path = "common/promoted.rs"]
mod promoted;

const LAYOUT: Layout = Layout::without_endpoint(WASM_PAGE, STATE_BYTES);
const QUEUE: QueueLayout = QueueLayout {
    paths: 1,
    rings: 1,
    slot_bytes: 4096,
    locks: 0,
};
const ROW: usize = 1;
const PORT: u16 = 7;
/// The longest payload that a program takes.
const LONGEST: usize = 4088;
/// `TC_ACT_REDIRECT`.
const REDIRECT: u32 = 7;

/// Answers with the message as it is.
const ECHO: &str = r#"(module (memory (export "memory") 1 1)
    (func (export "on_rx") (param i32 i32) (result i32) (i32.const 1)))"#;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tier {
    User,
    Kernel,
}

/// An interface with one path.
struct Path {
    machine: Machine,
    entry: Image,
}

impl Path {
    /// At TCX, for datagrams with a tag or without.
    fn new(tier: Tier) -> Self {
        Self::of(tier, &either())
    }

    fn of(tier: Tier, filter: &str) -> Self {
        Self::at(Hook::Tcx, tier, filter)
    }

    fn at(hook: Hook, tier: Tier, filter: &str) -> Self {
        let queue = QueueSpec {
            hook,
            cpus: 1,
            layout: QUEUE,
            packet: Packet::Pointers,
            order_scope: OrderScope::Ring,
        };
        let spec = Spec {
            queue,
            layout: LAYOUT,
            memory: MemoryKind::Arena,
        };
        let program = match tier {
            Tier::User => instance::user(&queue),
            Tier::Kernel => promoted(ECHO, &spec, |handler| handler.may_reply = true),
        };
        let mut table = Table::default();
        let filter = ashway_demux::parse(filter).unwrap();
        table.insert(&filter, ()).unwrap();
        let shapes = compiled::compile(&table, FEW, |()| Leaf {
            row: ROW as u32,
            ..Leaf::default()
        });
        let entry = entry::generate(&entry::Spec {
            hook,
            shapes: &shapes,
            spares: None,
            cpus: 1,
            per_cpu: false,
            unmatched_row: 0,
            mac: Frame::to_b(PORT, &[]).eth_destination,
            reply: Reply::Redirect,
            packet: Packet::Pointers,
        });
        let mut machine = Machine::new(ROW + 1, QUEUE.bytes(), LAYOUT.total_bytes());
        machine.set_hits(compiled::hits_bytes(&shapes));
        machine.slots = vec![Some(program)];
        Self { machine, entry }
    }

    /// What the program returns, and by which counts this one rises.
    fn run(&mut self, frame: &[u8], count: Count) -> (u32, u64) {
        let before = self.machine.count(ROW, count);
        let code = self.machine.run(&self.entry, frame).unwrap();
        (code, self.machine.count(ROW, count) - before)
    }

    /// The frame that waits in the first slot, and where its payload is.
    fn waiting(&self) -> (Vec<u8>, usize) {
        self.waiting_at(0)
    }

    /// The same of another slot, and those behind it.
    fn waiting_at(&self, first: usize) -> (Vec<u8>, usize) {
        let word = |at: usize| self.machine.trusted_u32(at) as usize;
        let slot = trusted::SLOTS + first * trusted::SLOT_BYTES;
        assert_ne!(word(slot + trusted::SLOT_READY), 0, "it is there");
        let (front, len) = (
            word(slot + trusted::SLOT_PAYLOAD_OFF),
            word(slot + trusted::SLOT_PAYLOAD_LEN),
        );
        let mut frame = vec![0; front + len];
        let pieces = frame.chunks_mut(QUEUE.piece_bytes());
        let more = self.long(first) & trusted::long::SLOTS;
        assert_eq!(pieces.len(), 1 + more as usize);
        for (nth, piece) in pieces.enumerate() {
            let block = word(QUEUE.block_word((first + nth) % trusted::RING_SLOTS));
            let at = QUEUE.pool_offset() + block + HEADROOM_BYTES;
            piece.copy_from_slice(&self.machine.trusted()[at..][..piece.len()]);
        }
        (frame, front)
    }

    /// What a slot says of what it holds.
    fn long(&self, slot: usize) -> u32 {
        let slot = trusted::SLOTS + slot * trusted::SLOT_BYTES;
        self.machine.trusted_u32(slot + trusted::SLOT_LONG)
    }

    fn produced(&self) -> u32 {
        self.machine
            .trusted_u32(trusted::RINGS + trusted::RING_PRODUCED)
    }

    /// As if the worker had taken so many slots, and all that came were done.
    fn consume(&mut self, slots: u32) {
        let words = self.machine.trusted_mut();
        let at = trusted::RINGS + trusted::RING_CONSUMED;
        words[at..][..4].copy_from_slice(&slots.to_le_bytes());
        let path = QUEUE.path_word(0);
        words[path..][..4].fill(0);
        words[path + trusted::PATH_CHAINED..][..4].fill(0);
    }
}

/// Datagrams with a tag or without.
fn either() -> String {
    format!("udp dst port {PORT} or (vlan and udp dst port {PORT})")
}

/// Fills the machine's blocks' words as the daemon does.
fn with_blocks(mut path: Path) -> Path {
    for (at, block) in QUEUE.first_blocks() {
        path.machine.trusted_mut()[at..][..4].copy_from_slice(&block.to_le_bytes());
    }
    path
}

fn payload(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 % 251) as u8).collect()
}

#[test]
fn many_messages_behind_one_header_cross_with_their_size() {
    for (tier, count) in [
        (Tier::User, Count::QueuedTier),
        (Tier::Kernel, Count::QueuedLong),
    ] {
        for len in [1200, 9000] {
            // Nobody judges a checksum that is of none of them.
            let frame = Frame::to_b(PORT, &payload(len)).spoil(Spoil::UdpChecksum);
            let frame = frame.bytes();
            let mut path = with_blocks(Path::new(tier));
            (path.machine.gso_size, path.machine.gso_segs) = (400, len as u32 / 400 + 1);
            let more = frame.len() as u32 / QUEUE.piece_bytes() as u32;
            let segments = u64::from(path.machine.gso_segs);
            assert_eq!(path.run(&frame, count), (2, segments), "{tier:?}");
            let word = 400 << trusted::long::GSO_SHIFT | trusted::long::UNCHECKED | more;
            assert_eq!(path.long(0), word, "{tier:?}");
            assert_eq!(path.waiting(), (frame.clone(), 42), "{tier:?}");
            // The worker counts the others, when it has taken them apart.
            let received = path.machine.count(ROW, Count::Received);
            assert_eq!(received, 1, "{tier:?}");
        }
    }
}

/// Those that find no room are counted each.
#[test]
fn many_messages_that_are_dropped_are_many() {
    let frame = Frame::to_b(PORT, &payload(1200)).bytes();
    let mut path = with_blocks(Path::new(Tier::User));
    (path.machine.gso_size, path.machine.gso_segs) = (400, 3);
    for _ in 0..trusted::RING_SLOTS {
        assert_eq!(path.run(&frame, Count::QueuedTier).1, 3);
    }
    let received = path.machine.count(ROW, Count::Received);
    assert_eq!(path.run(&frame, Count::DroppedRingFull), (2, 3));
    assert_eq!(path.machine.count(ROW, Count::Received), received + 3);
}

#[test]
fn a_tag_beside_the_frame_lies_in_front_of_what_waits() {
    for (tier, count) in [
        (Tier::User, Count::QueuedTier),
        (Tier::Kernel, Count::QueuedOptions),
    ] {
        let bare = Frame::to_b(PORT, &payload(100)).bytes();
        let mut path = Path::new(tier);
        path.machine.tag = Some([0x8100, 0x6005]);
        assert_eq!(path.run(&bare, count), (2, 1), "{tier:?}");
        let tag = [0x81, 0, 0x60, 5];
        let whole = [&bare[..12], &tag, &bare[12..]].concat();
        assert_eq!(path.waiting(), (whole, 46), "{tier:?}");
    }
}

#[test]
fn a_message_in_pieces_is_one_piece_to_its_handler() {
    for len in [1, 100, LONGEST] {
        let frame = Frame::to_b(PORT, &payload(len)).bytes();
        for linear in (14..frame.len()).step_by(frame.len() / 40 + 1) {
            let mut path = Path::new(Tier::Kernel);
            path.machine.linear = linear;
            let answered = path.run(&frame, Count::Answered);
            assert_eq!(answered, (REDIRECT, 1), "{len}, {linear}");
            assert_eq!(path.machine.packet()[42..], frame[42..], "{len}, {linear}");
        }
    }
}

#[test]
fn a_filter_on_bytes_of_the_payload_finds_them_wherever_the_frame_is_cut() {
    // Bytes 4 and 5 of the payload.
    let text = format!("udp dst port {PORT} and udp[12:2] = 0x1c23");
    let mine = Frame::to_b(PORT, &payload(100)).bytes();
    let other = Frame::to_b(PORT, &[0; 100]).bytes();
    for linear in 14..mine.len() {
        let mut path = Path::of(Tier::Kernel, &text);
        path.machine.linear = linear;
        assert_eq!(path.run(&mine, Count::Answered), (REDIRECT, 1), "{linear}");
        assert_eq!(path.run(&other, Count::Received).1, 0, "{linear}");
    }
}

#[test]
fn a_long_message_lies_whole_over_several_slots_whatever_its_pieces() {
    for (tier, count) in [
        (Tier::User, Count::QueuedTier),
        (Tier::Kernel, Count::QueuedLong),
    ] {
        let mut path = with_blocks(Path::new(tier));
        for len in [LONGEST + 1, 8000, 8598, 8599, 60_000, 65_507] {
            let frame = Frame::to_b(PORT, &payload(len)).bytes();
            for (linear, tag) in [(14, false), (42, true), (2000, false), (usize::MAX, true)] {
                let first = path.produced();
                path.machine.linear = linear;
                path.machine.tag = tag.then_some([0x8100, 7]);
                let shown = format!("{tier:?}, {len}, {linear}, {tag}");
                assert_eq!(path.run(&frame, count), (2, 1), "{shown}");
                let tag: &[u8] = if tag { &[0x81, 0, 0, 7] } else { &[] };
                let whole = [&frame[..12], tag, &frame[12..]].concat();
                let slot = first as usize % trusted::RING_SLOTS;
                assert!(path.waiting_at(slot) == (whole, 42 + tag.len()), "{shown}");
                let more = path.long(slot) & trusted::long::SLOTS;
                assert_eq!(path.produced(), first + 1 + more, "{shown}");
                assert_eq!(path.long(slot) ^ more, trusted::long::UNCHECKED, "{shown}");
                let chained = QUEUE.path_word(0) + trusted::PATH_CHAINED;
                assert_eq!(path.machine.trusted_u32(chained), more, "{shown}");
                path.consume(path.produced());
            }
        }
    }
}

/// Under XDP pointers reach the first of several buffers.
#[test]
fn a_frame_in_several_buffers_crosses_whole() {
    for (tier, count) in [
        (Tier::User, Count::QueuedTier),
        (Tier::Kernel, Count::QueuedLong),
    ] {
        for tagged in [false, true] {
            for (len, linear) in [(100, 64), (3000, 2000), (3000, 3041), (8000, 3500)] {
                let mut frame = Frame::to_b(PORT, &payload(len));
                if tagged {
                    frame = frame.spoil(Spoil::Vlan(7));
                }
                let frame = frame.bytes();
                let mut path = with_blocks(Path::at(Hook::Xdp, tier, &either()));
                path.machine.mtu = 9000;
                path.machine.linear = linear;
                let shown = format!("{tier:?}, {tagged}, {len}, {linear}");
                assert_eq!(path.run(&frame, count), (1, 1), "{shown}");
                let front = frame.len() - len;
                assert!(path.waiting() == (frame, front), "{shown}");
                let unchecked = path.long(0) & trusted::long::UNCHECKED;
                assert_ne!(unchecked, 0, "{shown}");
            }
        }
    }
    // Longer than the link takes it would be many.
    let frame = Frame::to_b(PORT, &payload(8000)).bytes();
    let mut path = Path::at(Hook::Xdp, Tier::User, &either());
    assert_eq!(path.run(&frame, Count::DroppedTooLong), (1, 1));
}

#[test]
fn a_long_message_has_room_for_all_of_it_or_is_dropped_once() {
    let frame = Frame::to_b(PORT, &payload(60_000)).bytes();
    let slots = frame.len().div_ceil(QUEUE.piece_bytes()) as u32;
    let mut path = with_blocks(Path::new(Tier::User));
    let fit = trusted::RING_SLOTS as u32 / slots;
    for _ in 0..fit {
        assert_eq!(path.run(&frame, Count::QueuedTier), (2, 1));
    }
    assert_eq!(path.produced(), fit * slots);
    assert_eq!(path.run(&frame, Count::DroppedRingFull), (2, 1));
    assert_eq!(path.produced(), fit * slots, "nothing was taken");
    // Where there is room for a short one, it comes in.
    let short = Frame::to_b(PORT, &payload(100)).bytes();
    assert_eq!(path.run(&short, Count::QueuedTier), (2, 1));
}

/// A path that is not alone has its part of the ring, in slots.
#[test]
fn a_path_of_long_messages_leaves_others_their_room() {
    let frame = Frame::to_b(PORT, &payload(60_000)).bytes();
    let slots = frame.len().div_ceil(QUEUE.piece_bytes()) as u32;
    let mut path = with_blocks(Path::new(Tier::User));
    path.machine.trusted_mut()[trusted::PARTED] = 1;
    while path.run(&frame, Count::QueuedTier).1 == 1 {}
    assert!(path.produced() <= trusted::RING_SLOTS as u32 / 2 + slots);
    assert_eq!(path.machine.count(ROW, Count::DroppedQueueFull), 1);
}
