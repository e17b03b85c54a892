//! An interface with paths for much of what there is.

use std::net::SocketAddr;

use ashway_abi::MemoryKind;
use ashway_abi::context::flag;
use ashway_abi::count::Ledger;
use ashway_abi::memory::Layout;
use ashway_abi::{Count, Hop, Leaf, QueueLayout};
use ashway_check::bpf::{Hook, Image};
use ashway_codegen::demux::compiled::{self, Compiled};
use ashway_codegen::entry::{self, Packet, Reply};
use ashway_codegen::{forward, instance};
use ashway_demux::{self as demux, Table};

use crate::promoted::promoted;

pub(crate) const OUR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// Filters, and whether the path takes frames as they are.
const PATHS: [(&str, bool); 7] = [
    // Each `vlan` means one tag more.
    ("udp or (vlan and udp) or (vlan and udp)", false),
    ("udp dst port 53 or (vlan and udp dst port 53)", false),
    ("udp and ip6 and dst net ff02::/16", false),
    ("udp src portrange 1024-2047", false),
    ("tcp or (vlan and tcp)", true),
    ("icmp or icmp6 or (vlan and icmp)", true),
    ("arp or ether proto 0x8863", true),
];
pub(crate) const ROWS: usize = PATHS.len() + 1;
/// The row of what matches no path.
pub(crate) const UNMATCHED: usize = 0;

/// Where the regions of the handler's memory lie.
pub(crate) const LAYOUT: Layout = Layout::without_endpoint(65_536, 65_536);

/// The queue of whatever is behind the entry program.
pub(crate) const QUEUE: QueueLayout = QueueLayout {
    paths: PATHS.len(),
    rings: 1,
    slot_bytes: 2048,
    locks: 0,
};

/// Longest frame that is in one piece: a page at most with the drivers there are.
/// No XDP program of ours is asked for one in several pieces.
pub(crate) const LONGEST: usize = 4096;

/// Where relayed datagrams go, and as whom.
pub(crate) const NEXT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 3];
pub(crate) const OWN_MAC: [u8; 6] = [2, 0, 0, 0, 0, 4];
pub(crate) const OUT: u32 = 77;
pub(crate) const MTU: u32 = 1500;

pub(crate) fn next_hop() -> SocketAddr {
    "10.0.3.2:9000".parse().unwrap()
}

pub(crate) fn own() -> SocketAddr {
    "10.0.3.1:9001".parse().unwrap()
}

/// The next hop, for the forward program. Every path has it.
pub(crate) fn hop() -> Hop {
    let address = |of: SocketAddr| {
        let mut bytes = [0; 16];
        let std::net::IpAddr::V4(address) = of.ip() else {
            panic!("IPv4");
        };
        bytes[..4].copy_from_slice(&address.octets());
        bytes
    };
    Hop {
        destination_mac: NEXT_MAC,
        source_mac: OWN_MAC,
        ifindex: OUT,
        source: address(own()),
        destination: address(next_hop()),
        source_port: own().port().to_be_bytes(),
        destination_port: next_hop().port().to_be_bytes(),
        mtu: MTU,
        hops: 64,
        ..Hop::default()
    }
}

/// What stands behind the slot of every path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OrderScope {
    /// The ring to the user tier.
    Ring,
    /// A promoted handler that answers everything.
    Echo,
    /// The forward program.
    Relay,
}

impl OrderScope {
    pub(crate) const ALL: [Self; 3] = [Self::Ring, Self::Echo, Self::Relay];
}

/// Where the programs run, and how they read packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rung {
    Xdp,
    /// Without `CAP_PERFMON`.
    XdpArray,
    Tcx,
}

impl Rung {
    pub(crate) const ALL: [Self; 3] = [Self::Xdp, Self::XdpArray, Self::Tcx];

    pub(crate) const fn hook(self) -> Hook {
        match self {
            Self::Xdp | Self::XdpArray => Hook::Xdp,
            Self::Tcx => Hook::Tcx,
        }
    }

    pub(crate) const fn packet(self) -> Packet {
        match self {
            Self::Xdp | Self::Tcx => Packet::Pointers,
            Self::XdpArray => Packet::Helpers,
        }
    }

    pub(crate) const fn memory(self) -> MemoryKind {
        match self {
            Self::Xdp | Self::Tcx => MemoryKind::Arena,
            Self::XdpArray => MemoryKind::Array,
        }
    }
}

/// What became of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The host has it.
    Host,
    /// It matched this path and ended there.
    Ended(usize, Count),
    /// The message waits for a handler in the user tier.
    Queued(usize, Vec<u8>),
    /// A frame left.
    Sent(usize, Vec<u8>),
}

pub(crate) fn table() -> Table<usize> {
    let mut table = Table::default();
    for (path, (text, _)) in PATHS.iter().enumerate() {
        let filter = demux::parse(text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
        table
            .insert(&filter, path)
            .unwrap_or_else(|conflict| panic!("{text}: {conflict:?}"));
    }
    table
}

pub(crate) fn is_raw(path: usize) -> bool {
    PATHS[path].1
}

pub(crate) fn leaf(path: usize) -> Leaf {
    Leaf {
        row: row(path) as u32,
        local: path as u32,
        flags: if is_raw(path) { flag::RAW } else { 0 },
        tag: path as u32,
        ..Leaf::default()
    }
}

pub(crate) const fn row(path: usize) -> usize {
    path + 1
}

pub(crate) fn entry(shapes: &[Compiled<'_>], rung: Rung, cpus: u32) -> Image {
    entry::generate(&entry::Spec {
        hook: rung.hook(),
        shapes,
        spares: None,
        cpus,
        per_cpu: false,
        unmatched_row: UNMATCHED as u32,
        mac: OUR_MAC,
        reply: Reply::Transmit,
        packet: rung.packet(),
    })
}

/// Few entries are compared with constants, many are looked up.
pub(crate) const FEW: [usize; 2] = [compiled::FEW, 0];

pub(crate) fn behind(what: OrderScope, rung: Rung, cpus: u32) -> Image {
    const ECHO: &str = r#"(module (memory (export "memory") 1 1)
        (func (export "on_rx") (param i32 i32) (result i32) i32.const 1))"#;
    let queue = instance::QueueSpec {
        hook: rung.hook(),
        cpus,
        layout: QUEUE,
        packet: rung.packet(),
        order_scope: match what {
            OrderScope::Relay => instance::OrderScope::Path {
                relays: PATHS.len(),
            },
            OrderScope::Ring | OrderScope::Echo => instance::OrderScope::Ring,
        },
    };
    match what {
        OrderScope::Ring => instance::user(&queue),
        OrderScope::Relay => forward::generate(&queue),
        OrderScope::Echo => {
            let spec = instance::Spec {
                queue,
                layout: LAYOUT,
                memory: rung.memory(),
            };
            promoted(ECHO, &spec, |handler| handler.may_reply = true)
        }
    }
}

/// A counter of a row that has risen, and by how much.
pub(crate) type Risen = (usize, Count, u64);

/// Which row and fate one frame has been counted under. Received once, one fate
/// or one queue, and no more than that a handler committed, all in one row.
pub(crate) fn counted(risen: &[Risen]) -> (usize, Count) {
    assert!(risen.iter().all(|(_, _, by)| *by == 1), "{risen:?}");
    let (committed, risen): (Vec<Risen>, Vec<Risen>) = risen
        .iter()
        .copied()
        .partition(|(_, count, _)| *count == Count::Committed);
    let of = |ledger| {
        let all = risen.iter().filter(move |(_, count, _)| {
            count.ledger() == ledger || ledger == Ledger::Fate && is_queue(*count)
        });
        let all: Vec<_> = all.collect();
        assert_eq!(all.len(), 1, "{ledger:?}: {risen:?}");
        *all[0]
    };
    let (received, fate) = (of(Ledger::Received), of(Ledger::Fate));
    assert_eq!((received.0, risen.len()), (fate.0, 2), "{risen:?}");
    assert!(committed.len() <= 1 && committed.iter().all(|(row, ..)| *row == fate.0));
    (fate.0, fate.1)
}

const fn is_queue(count: Count) -> bool {
    matches!(
        count,
        Count::QueuedTier
            | Count::QueuedBusy
            | Count::QueuedOrder
            | Count::QueuedOptions
            | Count::QueuedRoom
            | Count::QueuedLong
    )
}

/// The codes of a hook.
pub(crate) struct Codes {
    pub(crate) drop: u32,
    pub(crate) pass: u32,
    pub(crate) answer: u32,
    pub(crate) redirect: u32,
}

impl Rung {
    pub(crate) const fn codes(self) -> Codes {
        match self.hook() {
            // `XDP_TX` answers.
            Hook::Xdp => Codes {
                drop: 1,
                pass: 2,
                answer: 3,
                redirect: 4,
            },
            // `TC_ACT_REDIRECT` does both, and `TCX_NEXT` passes on.
            Hook::Tcx => Codes {
                drop: 2,
                pass: u32::MAX,
                answer: 7,
                redirect: 7,
            },
        }
    }
}

/// What a program has come to, from what can be seen of it; `queued` reads the
/// message out of the ring.
pub(crate) fn end(
    rung: Rung,
    code: u32,
    (row, count): (usize, Count),
    frame: Vec<u8>,
    queued: impl FnOnce() -> Vec<u8>,
) -> End {
    let codes = rung.codes();
    let Some(path) = row.checked_sub(1) else {
        assert_eq!((code, count), (codes.pass, Count::Passed));
        return End::Host;
    };
    match count {
        Count::Answered => assert_eq!(code, codes.answer),
        Count::Forwarded => assert_eq!(code, codes.redirect),
        _ => assert_eq!(code, codes.drop, "{count:?}"),
    }
    match count {
        Count::Answered | Count::Forwarded => End::Sent(path, frame),
        count if is_queue(count) => End::Queued(path, queued()),
        fate => End::Ended(path, fate),
    }
}

/// Whether the program's end is the user tier's. What it answers keeps what stood
/// behind the datagram, and at TCX half a checksum stays half; where the memory is an array, a handler gets what is not
/// plain in the user tier, as a relay does at TCX, and there a handler what has its tag beside.
pub(crate) fn same(rung: Rung, tagged: bool, what: OrderScope, kernel: &End, user: &End) -> bool {
    match (kernel, user) {
        (End::Sent(a, kernel), End::Sent(b, user)) => {
            let alike = what == OrderScope::Echo || rung == Rung::Tcx;
            a == b && (kernel == user || alike && sent_alike(kernel, user))
        }
        (End::Queued(a, _), End::Sent(b, _) | End::Ended(b, _)) if what == OrderScope::Echo => {
            (rung == Rung::XdpArray || tagged) && a == b
        }
        (End::Queued(a, _), End::Sent(b, _)) if what == OrderScope::Relay => {
            rung == Rung::Tcx && a == b
        }
        (kernel, user) => kernel == user,
    }
}

fn sent_alike(kernel: &[u8], user: &[u8]) -> bool {
    use ashway_wire::Datagram;
    let read = |frame: &[u8]| {
        let datagram = Datagram::parse(frame).ok()?;
        let message = datagram.validate(frame).ok()?;
        let from = message.payload_off;
        let payload = frame[from..from + message.payload_len].to_vec();
        Some((datagram, payload))
    };
    let (Some((a, of_a)), Some((b, of_b))) = (read(kernel), read(user)) else {
        return false;
    };
    kernel[..14] == user[..14] && a == b && of_a == of_b
}
