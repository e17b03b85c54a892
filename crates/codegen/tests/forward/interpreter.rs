//! In our own interpreter, without root.

use ashway_abi::count::KERNEL_NS;
use ashway_abi::memory::HEADROOM_BYTES;
use ashway_abi::share::Terms;
use ashway_abi::{Count, Hop, Leaf, QueueLayout, hop, trusted};
use ashway_check::bpf::interp::{Fault, Machine};
use ashway_check::bpf::{Hook, Image};
use ashway_codegen::demux::compiled::{self, FEW};
use ashway_codegen::entry::{self, Packet, Reply};
use ashway_codegen::forward;
use ashway_codegen::instance::{OrderScope, QueueSpec};
use ashway_demux::{Conjunction, Field, Filter, Table, Test};

use super::cases::{Case, Checksum, OUT, Random};
use super::relay;

/// Rows of counters: the path's, and that of what matches none.
const ROW: u32 = 0;
const UNMATCHED: u32 = 1;
/// The number of the path's hop.
pub(crate) const HOP: u32 = 3;
/// How many messages of the path are in the user tier.
const IN_USER: usize = trusted::PATHS + HOP as usize * trusted::PATH_STRIDE;
/// Where it is noted on which CPU a message of the path left.
const LEFT_ON: usize = IN_USER + trusted::PATH_BEHIND_KERNEL;
/// Where the account of the path's share is: its hop is that of the forward direction.
const PAID: usize = IN_USER + trusted::PATH_PAID;
const LAZY: usize = IN_USER + trusted::PATH_LAZY;
const LAZY_AT: usize = IN_USER + trusted::PATH_LAZY_AT;
/// How many messages the worker has taken from the ring.
const CONSUMED: usize = trusted::RINGS + trusted::RING_CONSUMED;
/// `XDP_DROP`, `XDP_PASS`, `XDP_REDIRECT`.
const DROP: u32 = 1;
const PASS: u32 = 2;
const REDIRECT: u32 = 4;
/// "Ashw", read as a little-endian number: what the exit program looks for.
const MARK: [u8; 4] = 0x4173_6877_u32.to_le_bytes();

/// The entry program of an interface whose one path is UDP to B's port, under XDP.
pub(crate) fn entry(packet: Packet, cpus: u32) -> Image {
    entry_at(Hook::Xdp, packet, cpus)
}

fn entry_at(hook: Hook, packet: Packet, cpus: u32) -> Image {
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
    let shapes = compiled::compile(&table, FEW, |()| Leaf {
        row: ROW,
        local: HOP,
        ..Leaf::default()
    });
    entry::generate(&entry::Spec {
        hook,
        shapes: &shapes,
        spares: None,
        cpus,
        per_cpu: false,
        unmatched_row: UNMATCHED,
        mac: [2, 0, 0, 0, 0, 0xb],
        reply: Reply::Transmit,
        packet,
    })
}

/// The forward program of a node on which `paths` have a number.
pub(crate) fn spec(packet: Packet, cpus: u32, paths: usize) -> QueueSpec {
    QueueSpec {
        hook: Hook::Xdp,
        cpus,
        layout: QueueLayout {
            paths,
            rings: 1,
            slot_bytes: 2048,
            locks: 0,
        },
        packet,
        order_scope: OrderScope::Path { relays: paths },
    }
}

/// The same, on this machine's one CPU.
pub(crate) fn program(packet: Packet) -> Image {
    forward::generate(&spec(packet, 1, 8))
}

/// A machine on which the entry program leads to this one.
fn machine(packet: Packet, program: &Image) -> Machine {
    let layout = spec(packet, 1, 8).layout;
    let mut machine = Machine::new(2, layout.bytes(), 0);
    machine.array_mode = packet == Packet::Helpers;
    machine.insn_limit = 1_000_000;
    machine.insn_ns = 1;
    machine.set_hits(compiled::CELL_BYTES);
    machine.set_hop(7, Hop::default());
    machine.slots = vec![Some(program.clone())];
    machine
}

/// What one frame came to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) code: u32,
    pub(crate) frame: Vec<u8>,
    pub(crate) metadata: Vec<u8>,
    pub(crate) redirects: Vec<(u32, u64)>,
    pub(crate) fate: Option<Count>,
    /// Whether it took any time, of which an instruction has 1 ns.
    pub(crate) timed: bool,
    /// 1 + the CPU on which it noted to have left.
    pub(crate) left_on: u32,
    /// Until when its path has paid, which has no share.
    pub(crate) paid: u64,
}

/// Runs a forward program behind its entry program on one frame.
pub(crate) fn run(
    packet: Packet,
    entry: &Image,
    program: &Image,
    hop: Hop,
    frame: &[u8],
) -> Result<End, Fault> {
    let mut machine = machine(packet, program);
    machine.set_hop(HOP as usize, hop);
    let code = machine.run(entry, frame)?;
    let count = |which| machine.count(ROW as usize, which);
    let fates: Vec<Count> = Count::of_programs()[1..]
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
        timed: (1..10_000).contains(&machine.row_word(ROW as usize, KERNEL_NS)),
        left_on: machine.trusted_u32(LEFT_ON),
        paid: word(&machine, PAID),
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
        timed: true,
        left_on: 1,
        paid: 0,
    }
}

fn word(machine: &Machine, at: usize) -> u64 {
    u64::from_ne_bytes(machine.trusted()[at..at + 8].try_into().unwrap())
}

/// Whether a message of a path that was above its share and is within is sent on and charged,
/// and the next one is led to the user tier. A second is what each costs at least.
pub(crate) fn keeps_to_its_share(
    packet: Packet,
    entry: &Image,
    program: &Image,
    case: &Case,
) -> bool {
    let mut machine = machine(packet, program);
    let terms = Some(Terms::new(1_000, Some(1)));
    let hop = Hop {
        terms,
        ..case.hop()
    };
    machine.set_hop(HOP as usize, hop);
    machine.trusted_mut()[LAZY] = 1;
    let began = machine.clock_ns;
    let frame = case.received();
    let is = |at: u64, since: u64| (since..since + 100_000).contains(&at);
    let sent = machine.run(entry, &frame).is_ok()
        && machine.count(ROW as usize, Count::Forwarded) == 1
        && is(word(&machine, PAID), began + 1_000_000_000)
        && (machine.trusted_u32(LAZY), word(&machine, LAZY_AT)) == (0, 0);
    let paid = word(&machine, PAID);
    let began = machine.clock_ns;
    sent && machine.run(entry, &frame).is_ok()
        && machine.count(ROW as usize, Count::QueuedShare) == 1
        && machine.trusted_u32(LAZY) == 1
        && is(word(&machine, LAZY_AT), began)
        && word(&machine, PAID) == paid
        && waiting(&machine, packet) == Some((HOP, frame))
}

#[test]
fn a_relay_keeps_to_its_share() {
    for (packet, case) in good(13) {
        let (entry, program) = (entry(packet, 1), program(packet));
        assert!(keeps_to_its_share(packet, &entry, &program, &case));
    }
}

#[test]
fn both_tiers_send_the_same_bytes() {
    let [mut sent, mut halves, mut dropped] = [0; 3];
    for packet in [Packet::Pointers, Packet::Helpers] {
        let entry = entry(packet, 1);
        let program = program(packet);
        let mut random = Random::new(41);
        for _ in 0..1500 {
            let case = Case::draw(&mut random);
            let frame = case.received();
            let end = run(packet, &entry, &program, case.hop(), &frame).unwrap();
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

/// What a frame left in the ring: who waits there and what, if anything.
fn waiting(machine: &Machine, packet: Packet) -> Option<(u32, Vec<u8>)> {
    let word = |at: usize| machine.trusted_u32(trusted::SLOTS + at);
    if machine.trusted_u32(trusted::RINGS + trusted::RING_PRODUCED) == 0 {
        return None;
    }
    assert_eq!(word(trusted::SLOT_READY), 1);
    let (headers, len) = (
        word(trusted::SLOT_PAYLOAD_OFF) as usize,
        word(trusted::SLOT_PAYLOAD_LEN) as usize,
    );
    let layout = spec(packet, 1, 8).layout;
    let block = machine.trusted_u32(layout.block_word(0)) as usize;
    let at = layout.pool_offset() + block + HEADROOM_BYTES;
    let frame = &machine.trusted()[at..][..headers + len];
    Some((word(trusted::SLOT_LOCAL_PATH), frame.to_vec()))
}

/// Runs a frame of a case; says whether it was sent on. If not it waits for the
/// user tier, as it came.
fn is_sent(machine: &mut Machine, packet: Packet, case: &Case, note: Count) -> bool {
    let frame = case.received();
    let code = machine.run(&entry(packet, 1), &frame).unwrap();
    let count = |which| machine.count(ROW as usize, which);
    assert_eq!(count(Count::Received), 1);
    let in_user = machine.trusted_u32(IN_USER);
    if count(Count::Forwarded) == 1 {
        assert_eq!((in_user, waiting(machine, packet)), (0, None));
        return true;
    }
    assert!(machine.redirects.is_empty() && machine.metadata().is_empty());
    assert_eq!((code, count(note)), (DROP, 1));
    assert_eq!(waiting(machine, packet), Some((HOP, frame)), "{case:?}");
    assert!(in_user > 0);
    false
}

/// Cases that are not dropped for their checksum.
fn good(seed: u64) -> impl Iterator<Item = (Packet, Case)> {
    let mut random = Random::new(seed);
    (0..200).map(move |number| {
        let packet = [Packet::Pointers, Packet::Helpers][number % 2];
        let mut case = Case::draw(&mut random);
        case.checksum = Checksum::Whole;
        (packet, case)
    })
}

#[test]
fn what_the_kernel_tier_cannot_do_is_the_user_tiers_as_it_came() {
    for (packet, case) in good(7) {
        let program = program(packet);
        let sent = |hop| {
            let mut machine = machine(packet, &program);
            machine.set_hop(HOP as usize, hop);
            is_sent(&mut machine, packet, &case, Count::QueuedTier)
        };
        assert!(!sent(Hop::default()));
        let headers = if case.next.address.is_ipv6() { 48 } else { 28 };
        let exact = (case.payload.len() + headers) as u32;
        let up_to = |mtu| Hop { mtu, ..case.hop() };
        assert!(!sent(up_to(exact - 1)));
        assert!(sent(up_to(exact)));
    }
}

/// At TCX a frame's start stays where it is: what would need other headers crosses, as it came.
#[test]
fn at_tcx_only_what_keeps_the_length_of_its_headers_is_sent_on() {
    let packet = Packet::Pointers;
    let entry = entry_at(Hook::Tcx, packet, 1);
    let program = forward::generate(&QueueSpec {
        hook: Hook::Tcx,
        ..spec(packet, 1, 8)
    });
    let (mut random, mut sent) = (Random::new(43), 0);
    for _ in 0..1500 {
        let mut case = Case::draw(&mut random);
        case.checksum = Checksum::Whole;
        let frame = case.received();
        let mut machine = machine(packet, &program);
        machine.set_hop(HOP as usize, case.hop());
        machine.run(&entry, &frame).unwrap();
        let plain = case.tags.is_empty() && case.options == 0;
        let same = case.from.address.is_ipv6() == case.next.address.is_ipv6();
        if plain && same && case.vlan_out.is_none() {
            assert_eq!(machine.packet(), case.wanted().unwrap(), "{case:?}");
            assert_eq!(machine.redirects, [(OUT, 0)], "{case:?}");
            sent += 1;
        } else {
            assert_eq!(waiting(&machine, packet), Some((HOP, frame)), "{case:?}");
            assert_eq!(machine.count(ROW as usize, Count::QueuedTier), 1);
        }
    }
    assert!((100..1000).contains(&sent), "{sent}");
}

#[test]
fn none_overtakes_one_that_waits() {
    for (packet, case) in good(8) {
        let mut machine = machine(packet, &program(packet));
        machine.set_hop(HOP as usize, case.hop());
        machine.trusted_mut()[IN_USER] = 1;
        assert!(!is_sent(&mut machine, packet, &case, Count::QueuedOrder));
        assert_eq!(machine.trusted_u32(IN_USER), 2);
        let behind = trusted::SLOTS + trusted::SLOT_AFTER_CPU;
        assert_eq!(machine.trusted_u32(behind), 0);

        // Behind one of the kernel tier the next one says on which CPU that left.
        let mut machine = self::machine(packet, &program(packet));
        machine.set_hop(HOP as usize, case.hop());
        assert!(is_sent(&mut machine, packet, &case, Count::QueuedOrder));
        machine.set_hop(HOP as usize, Hop::default());
        machine.run(&entry(packet, 1), &case.received()).unwrap();
        assert_eq!(machine.trusted_u32(behind), 1);
        machine.run(&entry(packet, 1), &case.received()).unwrap();
        assert_eq!(machine.trusted_u32(behind + trusted::SLOT_BYTES), 0);
    }
}

/// As if the worker had worked off so many messages of the path.
fn work_off(machine: &mut Machine, messages: u32) {
    let mut change = |at: usize, to: fn(u32, u32) -> u32| {
        let word = to(machine.trusted_u32(at), messages);
        machine.trusted_mut()[at..at + 4].copy_from_slice(&word.to_ne_bytes());
    };
    change(IN_USER, trusted::less);
    change(CONSUMED, u32::wrapping_add);
}

/// Runs a frame; says what was counted beside that it was received.
fn counted(machine: &mut Machine, packet: Packet, frame: &[u8]) -> Count {
    let counts = |machine: &Machine| {
        let count = |which| machine.count(ROW as usize, which);
        Count::of_programs()
            .iter()
            .copied()
            .map(count)
            .collect::<Vec<u64>>()
    };
    let before = counts(machine);
    machine.run(&entry(packet, 1), frame).unwrap();
    let after = counts(machine);
    let risen: Vec<Count> = Count::of_programs()
        .iter()
        .zip(before.iter().zip(&after))
        .flat_map(|(count, (before, after))| vec![*count; (after - before) as usize])
        .collect();
    match risen[..] {
        [Count::Received, other] => other,
        _ => panic!("{risen:?}"),
    }
}

/// What a path alone may have of the ring.
const PART: u32 = trusted::RING_SLOTS as u32 / 2;

/// Where messages that wait for order's sake alone fill the path's part of the ring, none is
/// taken until the user tier has none of the path: then the kernel tier goes on, however many
/// come.
#[test]
fn a_flood_does_not_keep_a_path_in_the_user_tier() {
    for (packet, case) in good(11).take(4) {
        let mut machine = machine(packet, &program(packet));
        let frame = case.received();
        let run = |machine: &mut Machine| counted(machine, packet, &frame);
        assert_eq!(run(&mut machine), Count::QueuedTier);
        machine.set_hop(HOP as usize, case.hop());
        for _ in 1..PART {
            assert_eq!(run(&mut machine), Count::QueuedOrder);
        }
        assert_eq!(machine.trusted_u32(IN_USER), PART);
        for waiting in [PART, PART - 1, 1] {
            let worked_off = trusted::in_user(machine.trusted_u32(IN_USER)) - waiting;
            work_off(&mut machine, worked_off);
            for _ in 0..3 {
                assert_eq!(run(&mut machine), Count::DroppedQueueFull);
            }
            let word = machine.trusted_u32(IN_USER);
            assert_eq!(word, waiting | trusted::DRAINING);
        }
        work_off(&mut machine, 1);
        for _ in 0..3 {
            assert_eq!(run(&mut machine), Count::Forwarded);
        }
        assert_eq!(machine.trusted_u32(IN_USER), 0);
    }
}

/// A path that runs in the user tier takes what it has room for.
#[test]
fn a_path_without_a_hop_does_not_drain() {
    for (packet, case) in good(12).take(4) {
        let mut machine = machine(packet, &program(packet));
        let frame = case.received();
        let run = |machine: &mut Machine| counted(machine, packet, &frame);
        for _ in 0..PART {
            assert_eq!(run(&mut machine), Count::QueuedTier);
        }
        assert_eq!(run(&mut machine), Count::DroppedQueueFull);
        work_off(&mut machine, 1);
        assert_eq!(run(&mut machine), Count::QueuedTier);
        assert_eq!(machine.trusted_u32(IN_USER), PART);
    }
}

#[test]
fn a_hop_that_is_being_written_is_not_read() {
    for (packet, case) in good(9) {
        let mut hop = case.hop().to_bytes();
        for generation in [0, 1, 2, 3, u8::MAX] {
            let mut machine = machine(packet, &program(packet));
            hop[hop::GENERATION as usize] = generation;
            machine.set_hop_bytes(HOP as usize, &hop);
            let sent = is_sent(&mut machine, packet, &case, Count::QueuedTier);
            assert_eq!(sent, generation % 2 == 0);
        }
    }
}

/// A hop for one sender takes none of another's: each byte of who sends to whom
/// tells.
#[test]
fn a_hop_may_be_for_one_sender() {
    let mut plain = 0;
    for (packet, case) in good(10) {
        let program = program(packet);
        let sent = |from| {
            let mut machine = machine(packet, &program);
            let from = Some(from);
            let hop = Hop { from, ..case.hop() };
            machine.set_hop(HOP as usize, hop);
            is_sent(&mut machine, packet, &case, Count::QueuedTier)
        };
        let from = case.sender();
        let is_plain = case.tags.is_empty() && case.options == 0;
        assert_eq!(sent(from), is_plain, "{case:?}");
        if !is_plain {
            continue;
        }
        plain += 1;
        for byte in 0..6 {
            let mut other = from;
            other.mac[byte] ^= 1;
            assert!(!sent(other));
        }
        for byte in 0..if from.ipv6 { 36 } else { 12 } {
            let mut other = from;
            other.ends[byte] ^= 0x80;
            assert!(!sent(other));
        }
        let ipv6 = !from.ipv6;
        assert!(!sent(hop::Sender { ipv6, ..from }));
    }
    assert!(plain > 40, "{plain}");
}
