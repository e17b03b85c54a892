//! In our own interpreter, without root.

use ashway_abi::{Count, Hop, Leaf};
use ashway_codegen::bpf::Image;
use ashway_codegen::bpf::interp::{Fault, Machine};
use ashway_codegen::demux::emit::{self, FEW};
use ashway_codegen::demux::{Conjunction, Field, Filter, Table, Test};
use ashway_codegen::entry::{self, Packet, Reply};
use ashway_codegen::forward;

use super::cases::{Case, Checksum, OUT, Random};
use super::relay;

/// Rows of counters: the path's, and that of what matches none.
const ROW: u32 = 0;
const UNMATCHED: u32 = 1;
/// The number of the path's hop.
pub(crate) const HOP: u32 = 3;
/// `XDP_DROP`, `XDP_PASS`, `XDP_REDIRECT`.
const DROP: u32 = 1;
const PASS: u32 = 2;
const REDIRECT: u32 = 4;
/// "Ashw", read as a little-endian number: what the exit program looks for.
const MARK: [u8; 4] = 0x4173_6877_u32.to_le_bytes();

/// The entry program of an interface whose one path is UDP to B's port.
pub(crate) fn entry(packet: Packet, cpus: u32) -> Image {
    let conjunction = Conjunction {
        tests: vec![
            Test::whole(Field::Protocol, [17]),
            Test::whole(Field::DestinationPort, 9_000_u16.to_be_bytes()),
        ],
        not: Vec::new(),
    };
    let filter = Filter {
        text: "udp dst port 9000".to_owned(),
        any: vec![conjunction],
    };
    let mut table = Table::default();
    table.insert(&filter, ()).unwrap();
    let shapes = emit::compile(&table, FEW, |()| Leaf {
        row: ROW,
        local: HOP,
        ..Leaf::default()
    });
    entry::generate(&entry::Spec {
        shapes: &shapes,
        cpus,
        unmatched_row: UNMATCHED,
        mac: [2, 0, 0, 0, 0, 0xb],
        reply: Reply::Transmit,
        packet,
    })
}

/// What one frame came to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) code: u32,
    pub(crate) frame: Vec<u8>,
    pub(crate) metadata: Vec<u8>,
    pub(crate) redirects: Vec<(u32, u64)>,
    pub(crate) fate: Option<Count>,
}

/// Runs a forward program behind its entry program on one frame.
pub(crate) fn run(
    entry: &Image,
    program: &Image,
    hop: Option<Hop>,
    frame: &[u8],
) -> Result<End, Fault> {
    let mut machine = Machine::new(2, 1, 0);
    machine.insn_limit = 1_000_000;
    machine.set_hits(1);
    machine.slots = vec![Some(program.clone())];
    if let Some(hop) = hop {
        machine.set_hop(HOP, hop);
    }
    let code = machine.run(entry, frame)?;
    let count = |which| machine.count(ROW as usize, which);
    let fates: Vec<Count> = Count::ALL[1..]
        .iter()
        .copied()
        .filter(|which| count(*which) > 0)
        .collect();
    // One message in, at most one fate, nothing else counted.
    let fate = match fates[..] {
        [fate] if count(fate) == 1 && count(Count::Received) == 1 => Some(fate),
        _ => None,
    };
    Ok(End {
        code,
        frame: machine.packet().to_vec(),
        metadata: machine.metadata().to_vec(),
        redirects: machine.redirects.clone(),
        fate,
    })
}

/// What it must come to; the fate alone if it is dropped.
pub(crate) fn right(case: &Case, end: &End) -> bool {
    let Some(frame) = case.wanted_here() else {
        return end.code == DROP && end.fate == Some(Count::DroppedBadUdpChecksum);
    };
    let (code, metadata, redirects) = if case.by_tcx {
        (PASS, [MARK, OUT.to_le_bytes()].concat(), vec![])
    } else {
        (REDIRECT, vec![], vec![(OUT, 0)])
    };
    let fate = Some(Count::Forwarded);
    *end == End {
        code,
        frame,
        metadata,
        redirects,
        fate,
    }
}

#[test]
fn both_tiers_send_the_same_bytes() {
    let [mut sent, mut halves, mut dropped] = [0; 3];
    for packet in [Packet::Pointers, Packet::Helpers] {
        let entry = entry(packet, 1);
        let program = forward::generate(&forward::Spec { cpus: 1, packet });
        let mut random = Random::new(41);
        for _ in 0..1500 {
            let case = Case::draw(&mut random);
            let frame = case.received();
            let end = run(&entry, &program, Some(case.hop()), &frame).unwrap();
            for ruled in [false, true] {
                match (case.wanted(), relay::send(&case, &frame, ruled)) {
                    (Some(wanted), Ok(sent)) => assert_eq!(wanted, sent, "{case:?}"),
                    (None, Err(fate)) => assert_eq!(end.fate, Some(fate), "{case:?}"),
                    other => panic!("{other:?} of {case:?}"),
                }
            }
            assert!(right(&case, &end), "{end:x?} of {case:?}");
            sent += u32::from(end.fate == Some(Count::Forwarded));
            halves += u32::from(case.checksum == Checksum::Half);
            dropped += u32::from(end.code == DROP);
        }
    }
    assert!(sent > 2_000 && halves > 800 && dropped > 200);
}

#[test]
fn what_has_nowhere_to_go_is_counted() {
    for packet in [Packet::Pointers, Packet::Helpers] {
        let entry = entry(packet, 1);
        let program = forward::generate(&forward::Spec { cpus: 1, packet });
        let mut random = Random::new(7);
        for _ in 0..100 {
            let mut case = Case::draw(&mut random);
            case.checksum = Checksum::Whole;
            let frame = case.received();
            let fate = |hop| {
                let end = run(&entry, &program, hop, &frame).unwrap();
                assert!(end.redirects.is_empty() && end.metadata.is_empty());
                assert_eq!(end.code, DROP);
                end.fate
            };
            assert_eq!(fate(None), Some(Count::DroppedNoNextHop));
            assert_eq!(fate(Some(Hop::default())), Some(Count::DroppedNoNextHop));
            let headers = if case.next.address.is_ipv6() { 48 } else { 28 };
            let exact = (case.payload.len() + headers) as u32;
            let narrow = Hop {
                mtu: exact - 1,
                ..case.hop()
            };
            assert_eq!(fate(Some(narrow)), Some(Count::DroppedTooLong));
            let fits = Hop {
                mtu: exact,
                ..case.hop()
            };
            let end = run(&entry, &program, Some(fits), &frame).unwrap();
            assert!(right(&case, &end), "{end:x?} of {case:?}");
        }
    }
}
