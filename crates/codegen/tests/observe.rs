//! Programs that observe do what the others do, and say it; the others have nothing
//! of that.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use ashway_abi::observe::{BYTES, LOST, MOST_BYTES, Note, SEQUENCE, session, step};
use ashway_abi::{Count, Leaf, QueueLayout, context};
use ashway_check::bpf::interp::Machine;
use ashway_check::bpf::{Hook, Image, Insn, MapRef};
use ashway_codegen::demux::compiled::{self, FEW};
use ashway_codegen::entry::{self, Packet, Reply};
use ashway_codegen::{forward, instance};
use ashway_demux::{Table, parse};

const ROW: u32 = 0;
const UNMATCHED: u32 = 1;
const SESSION: u16 = 0x1234;
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 0xb];

const QUEUE: QueueLayout = QueueLayout {
    paths: 1,
    rings: 1,
    slot_bytes: 2048,
    locks: 0,
};

/// An entry program and the user tier's behind it, with and without observation.
fn programs(packet: Packet) -> [[Image; 2]; 2] {
    let mut table = Table::default();
    table
        .insert(&parse("udp and dst port 9000").unwrap(), ())
        .unwrap();
    let shapes = compiled::compile(&table, FEW, |()| Leaf {
        row: ROW,
        ..Leaf::default()
    });
    let spec = entry::Spec {
        hook: Hook::Xdp,
        shapes: &shapes,
        spares: None,
        cpus: 1,
        per_cpu: false,
        unmatched_row: UNMATCHED,
        mac: MAC,
        reply: Reply::Transmit,
        packet,
    };
    let user = instance::QueueSpec {
        hook: Hook::Xdp,
        cpus: 1,
        layout: QUEUE,
        packet,
        order_scope: instance::OrderScope::Ring,
    };
    [
        [entry::generate(&spec), instance::user(&user)],
        [
            entry::generate_observed(&spec, SESSION),
            instance::user_observed(&user),
        ],
    ]
}

/// A UDP datagram over IPv4 to our address and this port, without a checksum.
fn frame(port: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = MAC.to_vec();
    frame.extend([2, 0, 0, 0, 0, 0xa, 8, 0, 0x45, 0]);
    frame.extend((28 + payload.len() as u16).to_be_bytes());
    frame.extend([0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    let words = frame[14..34].chunks(2);
    let sum: u32 = words
        .map(|word| u32::from(word[0]) << 8 | u32::from(word[1]))
        .sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame.extend(5000_u16.to_be_bytes());
    frame.extend(port.to_be_bytes());
    frame.extend((8 + payload.len() as u16).to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(payload);
    frame
}

fn frames() -> Vec<Vec<u8>> {
    let good = frame(9000, b"payload");
    let mut bad_sum = good.clone();
    bad_sum[24] ^= 1;
    let mut bad_length = good.clone();
    bad_length[39] = 200;
    let mut for_others = good.clone();
    for_others[0] = 4;
    let long = frame(9000, &[7; 2049]);
    let other = frame(9001, b"");
    vec![
        good,
        bad_sum,
        bad_length,
        for_others,
        long,
        other,
        vec![0; 13],
    ]
}

/// Runs one frame; what it came to, and the notes.
fn run([entry, user]: &[Image; 2], array: bool, frame: &[u8]) -> (u32, Vec<u64>, Machine) {
    let mut machine = Machine::new(2, QUEUE.bytes(), 0);
    machine.array_mode = array;
    machine.set_hits(compiled::CELL_BYTES);
    machine.ifindex = 9;
    machine.clock_ns = 1000;
    machine.clock_step_ns = 10;
    machine.slots = vec![Some(user.clone())];
    let code = machine.run(entry, frame).unwrap();
    let rows = [ROW, UNMATCHED].into_iter().flat_map(|row| {
        let counts = Count::of_programs().iter();
        counts.map(move |count| (row, *count))
    });
    let counts = rows.map(|(row, count)| machine.count(row as usize, count));
    (code, counts.collect(), machine)
}

#[test]
fn an_observed_program_does_the_same_and_says_so() {
    let mut steps = [0; 4];
    for packet in [Packet::Pointers, Packet::Helpers] {
        let [plain, observed] = programs(packet);
        let array = packet == Packet::Helpers;
        for frame in frames() {
            let (code, counts, unobserved) = run(&plain, array, &frame);
            let (same_code, same_counts, machine) = run(&observed, array, &frame);
            assert_eq!((code, counts), (same_code, same_counts));
            assert_eq!(unobserved.packet(), machine.packet());
            assert!(unobserved.notes.is_empty());
            let notes = machine.notes.iter().map(|note| Note::parse(note).unwrap());
            let notes: Vec<Note<'_>> = notes.collect();
            let first = &notes[0];
            assert_eq!(
                (session(first.sequence), first.sequence as u32),
                (SESSION, 1)
            );
            assert_eq!(
                (first.frame, first.frame_len as usize),
                (&frame[..], frame.len())
            );
            assert_eq!((first.ifindex, first.began), (9, 1000));
            assert!(first.time > first.began);
            for note in &notes {
                steps[note.step as usize] += 1;
                assert_eq!(note.sequence, first.sequence);
            }
            // The counter that a note names is one that has been counted.
            let last = notes.last().unwrap();
            let fate = Count::of_programs()
                .iter()
                .find(|count| **count as u32 == last.count);
            assert_eq!(
                machine.count(last.row as usize, *fate.unwrap()),
                1,
                "{last:?}"
            );
            if first.step == step::UNMATCHED {
                assert_eq!((notes.len(), first.row), (1, UNMATCHED));
            } else {
                assert_eq!((notes.len(), first.row), (2, ROW));
                assert!(last.frame.is_empty(), "nothing leaves");
                let own = matches!(
                    fate,
                    Some(Count::DroppedBadIpChecksum | Count::DroppedBadLength)
                );
                assert_eq!(last.began == first.began, own, "{last:?}");
            }
        }
    }
    assert_eq!(steps, [0, 8, 6, 8]);
}

#[test]
fn the_frame_of_a_note_is_cut() {
    let [_, observed] = programs(Packet::Helpers);
    // Longer than a note: frames are linear, but a driver's may be.
    let (.., machine) = run(&observed, true, &frame(9001, &[1; MOST_BYTES]));
    let note = Note::parse(&machine.notes[0]).unwrap();
    assert_eq!(note.frame.len(), MOST_BYTES);
    assert_eq!(note.frame_len as usize, MOST_BYTES + 42);
    assert_eq!(machine.notes[0].len(), BYTES + MOST_BYTES);
}

#[test]
fn a_note_without_room_is_counted() {
    let [_, [entry, _]] = programs(Packet::Pointers);
    let (.., mut machine) = run(&[entry.clone(), entry.clone()], false, &frame(9001, b""));
    assert_eq!(machine.notes.len(), 1);
    machine.notes_limit = 1;
    for lost in 1..=3 {
        machine.run(&entry, &frame(9001, b"")).unwrap();
        assert_eq!(machine.notes.len(), 1);
        let word = |at: i16| {
            let at = context::OBSERVE + at as usize;
            u32::from_ne_bytes(machine.context()[at..at + 4].try_into().unwrap())
        };
        assert_eq!(word(LOST), lost);
        assert_eq!(word(SEQUENCE), 0, "nothing more belongs to the message");
    }
}

/// Without where jumps go to.
fn shapes(image: &Image) -> Vec<(u8, u8, u8)> {
    let insns = image.insns.iter().map(|raw| Insn::decode(*raw));
    insns
        .map(|insn| (insn.opcode, insn.dst, insn.src))
        .collect()
}

fn forward() -> [Image; 2] {
    let spec = instance::QueueSpec {
        hook: Hook::Xdp,
        cpus: 1,
        layout: QueueLayout { paths: 3, ..QUEUE },
        packet: Packet::Pointers,
        order_scope: instance::OrderScope::Path { relays: 3 },
    };
    [forward::generate(&spec), forward::generate_observed(&spec)]
}

/// What proves that nothing is paid while nobody observes: the programs have no
/// instruction that names the ring or the note, and all of theirs are in the
/// observed ones in the same order.
#[test]
fn a_program_without_observation_has_nothing_of_it() {
    let mut pairs = vec![forward()];
    for packet in [Packet::Pointers, Packet::Helpers] {
        let [[entry, user], [observed_entry, observed_user]] = programs(packet);
        pairs.extend([[entry, observed_entry], [user, observed_user]]);
    }
    for [plain, observed] in &pairs {
        let names = |image: &Image| image.maps.iter().any(|used| used.map == MapRef::Notes);
        assert!(!names(plain) && names(observed));
        let finds = |image: &Image| {
            let mut insns = image.insns.iter().map(|raw| Insn::decode(*raw));
            insns.any(|insn| insn.imm == context::OBSERVE as i32)
        };
        assert!(!finds(plain) && finds(observed));
        assert!(is_within(&shapes(plain), &shapes(observed)));
        // The check would notice one instruction more.
        let mut more = shapes(plain);
        more.insert(1, shapes(observed)[observed.insns.len() - 1]);
        more.push((0, 0, 0));
        assert!(!is_within(&more, &shapes(observed)));
    }
}

/// Whether all of `some` are in `all` in their order.
fn is_within<T: PartialEq>(some: &[T], all: &[T]) -> bool {
    let mut rest = all.iter();
    some.iter().all(|one| rest.any(|other| other == one))
}
