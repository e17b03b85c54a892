//! What a frame is at TCX and never under XDP: in pieces, with a tag beside it, many messages
//! behind one header. In our own interpreter.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use ashway_abi::memory::{HEADROOM_BYTES, Layout, STATE_BYTES, WASM_PAGE};
use ashway_abi::{Count, Leaf, MemoryKind, QueueLayout, trusted};
use ashway_check::bpf::interp::Machine;
use ashway_check::bpf::{Hook, Image};
use ashway_codegen::demux::compiled::{self, FEW};
use ashway_codegen::entry::{self, Packet, Reply};
use ashway_codegen::instance::{self, OrderScope, QueueSpec, Spec};
use ashway_demux::Table;
use ashway_rig::Frame;
use promoted::promoted;

#[path = "common/promoted.rs"]
mod promoted;

const LAYOUT: Layout = Layout::without_endpoint(WASM_PAGE, STATE_BYTES);
const QUEUE: QueueLayout = QueueLayout {
    paths: 1,
    rings: 1,
    slot_bytes: 4096,
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
    /// For datagrams with a tag or without.
    fn new(tier: Tier) -> Self {
        let text = format!("udp dst port {PORT} or (vlan and udp dst port {PORT})");
        Self::of(tier, &text)
    }

    fn of(tier: Tier, filter: &str) -> Self {
        let queue = QueueSpec {
            hook: Hook::Tcx,
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
            hook: Hook::Tcx,
            shapes: &shapes,
            spares: None,
            cpus: 1,
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
        let word = |at: usize| self.machine.trusted_u32(at) as usize;
        let slot = trusted::SLOTS;
        let (front, len) = (
            word(slot + trusted::SLOT_PAYLOAD_OFF),
            word(slot + trusted::SLOT_PAYLOAD_LEN),
        );
        let at = QUEUE.pool_offset() + word(QUEUE.block_word(0)) + HEADROOM_BYTES;
        let frame = self.machine.trusted()[at..][..front + len].to_vec();
        (frame, front)
    }
}

fn payload(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 % 251) as u8).collect()
}

#[test]
fn many_messages_behind_one_header_are_none() {
    for tier in [Tier::User, Tier::Kernel] {
        let frame = Frame::to_b(PORT, &payload(1200)).bytes();
        let mut path = Path::new(tier);
        path.machine.gso_size = 400;
        let dropped = path.run(&frame, Count::DroppedTooLong);
        assert_eq!(dropped, (2, 1), "{tier:?}");
        path.machine.gso_size = 0;
        assert_eq!(path.run(&frame, Count::DroppedTooLong).1, 0, "{tier:?}");
    }
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
fn a_message_that_is_too_long_is_dropped_whatever_its_pieces() {
    let frame = Frame::to_b(PORT, &payload(LONGEST + 1)).bytes();
    for linear in [14, 42, 60, 2000, usize::MAX] {
        for tier in [Tier::User, Tier::Kernel] {
            let mut path = Path::new(tier);
            path.machine.linear = linear;
            let dropped = path.run(&frame, Count::DroppedTooLong);
            assert_eq!(dropped, (2, 1), "{tier:?}, {linear}");
        }
    }
}
