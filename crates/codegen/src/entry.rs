//! The entry program: the first code of ours that sees a frame.
//!
//! One per interface, attached as XDP. It finds the path, checks the headers
//! that the path relies on, counts, writes what it learned into the per-CPU
//! context and tail-calls the program behind the path's slot. It holds no
//! handler and no arena. A frame that matches no path is the host's: it goes to
//! the host's own stack untouched, however malformed it may be.
//!
//! Protocol halves: Ethernet, IPv4 (RFC 791), IPv6 without extension headers
//! (RFC 8200), UDP (RFC 768). `ashway_wire::Datagram` is the same decision in
//! Rust, for tiers without XDP; a test holds the two together.

use ashway_abi::{Count, context, context::flag};

use crate::bpf::{Assembler, Image, Label, MapRef, Reg, Size, helper, op};
use crate::filter::{Family, Filter};
pub use crate::xdp::Packet;
use crate::xdp::{self, action};
use Reg::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10};

/// What the entry program of one interface has to know.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Paths of the interface, in any order. At most [`MAX_PATHS`].
    pub paths: Vec<Path>,
    /// Contexts there are: one for each possible CPU.
    pub cpus: u32,
    /// Row of counters for frames that match no path.
    pub unmatched_row: u32,
    /// The interface's address: frames for any other are the host's.
    pub mac: [u8; 6],
    /// How replies leave.
    pub reply: Reply,
    /// How packets are read at places known only at run time.
    pub packet: Packet,
}

/// How the kernel tier sends a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// `XDP_TX`: real drivers.
    Transmit,
    /// A redirect to the same interface: a veth whose peer polls (GRO or XDP).
    Redirect,
    /// Through the TCX [exit program](crate::exit): any other veth.
    Exit,
}

/// A path as demux sees it.
#[derive(Clone, Debug)]
pub struct Path {
    /// What it matches.
    pub filter: Filter,
    /// Its program's place in the program array; no other path's.
    pub slot: u32,
    /// Its row of counters.
    pub row: u32,
    /// Its position within its instance.
    pub local: u32,
    /// The instance's ring for this interface's receive queue 0.
    pub ring_base: u32,
    /// Whether a fault drops the message (otherwise it is passed on).
    pub on_fault_drop: bool,
}

/// Most paths of one interface: they are compared one after another.
pub const MAX_PATHS: usize = 64;

/// Stack: the path's slot.
const PATH: i16 = -48;
/// Stack: the path's row.
const PATH_ROW: i16 = -44;
/// Stack: a length that must survive a helper.
const FRAME_BYTES: i16 = -56;
/// Stack: the path's row of counters, as a pointer.
const ROW: i16 = -64;

const ETH: i16 = 14;
const UDP: i16 = 8;
const PROTOCOL_UDP: i32 = 17;

/// Network byte order as a little-endian load sees it.
const fn be16(value: u16) -> i32 {
    value.swap_bytes() as i32
}

/// Generates the program. More specific filters are tried first.
///
/// # Panics
///
/// If there are more than [`MAX_PATHS`] paths.
#[must_use]
pub fn generate(spec: &Spec) -> Image {
    assert!(spec.paths.len() <= MAX_PATHS, "at most {MAX_PATHS} paths");
    let mut asm = Assembler::new();
    let labels = Labels {
        host: asm.label(),
        no_program: asm.label(),
        bad_length: asm.label(),
        bad_ip_checksum: asm.label(),
        bad_udp_checksum: asm.label(),
        fragment: asm.label(),
        whole_checksum: asm.label(),
        dispatch: asm.label(),
        out: asm.label(),
    };
    let ipv6 = asm.label();
    let options = asm.label();

    asm.mov(R6, R1);
    xdp::packet_bounds(&mut asm);
    need(&mut asm, Header::IPV4_MIN.payload(), labels.host);
    // Frames for others are the host's, groups among them: a reply in the name
    // of one would be a forgery.
    let (high, low) = spec.mac.split_at(4);
    let high = u32::from_le_bytes(high.try_into().expect("four of six bytes"));
    let low = u16::from_le_bytes(low.try_into().expect("the other two"));
    asm.load(Size::W, R1, R7, 0);
    asm.jump32_if_imm(op::JNE, R1, high as i32, labels.host);
    asm.load(Size::H, R1, R7, 4);
    asm.jump_if_imm(op::JNE, R1, i32::from(low), labels.host);
    asm.load(Size::H, R1, R7, 12);
    asm.jump_if_imm(op::JEQ, R1, be16(0x86dd), ipv6);
    asm.jump_if_imm(op::JNE, R1, be16(0x0800), labels.host);

    asm.load(Size::B, R1, R7, 23);
    asm.jump_if_imm(op::JNE, R1, PROTOCOL_UDP, labels.host);
    // A fragment other than the first carries no ports.
    asm.load(Size::H, R1, R7, 20);
    asm.alu_imm(op::AND, R1, be16(0x1fff));
    asm.jump_if_imm(op::JNE, R1, 0, labels.host);
    asm.load(Size::B, R1, R7, 14);
    asm.jump_if_imm(op::JNE, R1, 0x45, options);
    half(&mut asm, spec, &labels, Header::IPV4_MIN);

    // Options: a half for each length, so that every offset is a constant.
    asm.bind(options);
    for words in 6..=15 {
        let next = asm.label();
        asm.jump_if_imm(op::JNE, R1, 0x40 | i32::from(words), next);
        let header = Header::Ipv4 { words };
        need(&mut asm, header.payload(), labels.host);
        half(&mut asm, spec, &labels, header);
        asm.bind(next);
    }
    asm.jump(labels.host);

    asm.bind(ipv6);
    need(&mut asm, Header::Ipv6.payload(), labels.host);
    asm.load(Size::B, R1, R7, 14);
    asm.alu_imm(op::AND, R1, 0xf0);
    asm.jump_if_imm(op::JNE, R1, 0x60, labels.host);
    asm.load(Size::B, R1, R7, 20);
    asm.jump_if_imm(op::JNE, R1, PROTOCOL_UDP, labels.host);
    half(&mut asm, spec, &labels, Header::Ipv6);

    whole_checksum(&mut asm, spec, &labels);
    dispatch(&mut asm, spec, &labels);
    ends(&mut asm, spec, &labels);
    asm.finish()
}

struct Labels {
    host: Label,
    no_program: Label,
    bad_length: Label,
    bad_ip_checksum: Label,
    bad_udp_checksum: Label,
    fragment: Label,
    whole_checksum: Label,
    dispatch: Label,
    /// To the host without a count: a map of ours is not there.
    out: Label,
}

/// What lies between Ethernet and UDP.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Header {
    /// IPv4, this many 32-bit words.
    Ipv4 {
        /// 5 without options, 15 at most.
        words: i16,
    },
    /// IPv6 without extension headers.
    Ipv6,
}

impl Header {
    const IPV4_MIN: Self = Self::Ipv4 { words: 5 };

    /// Its length in bytes.
    const fn bytes(self) -> i16 {
        match self {
            Self::Ipv4 { words } => words * 4,
            Self::Ipv6 => 40,
        }
    }

    /// Where the UDP header starts in the frame.
    const fn udp(self) -> i16 {
        ETH + self.bytes()
    }

    /// Where the payload starts in the frame.
    const fn payload(self) -> i16 {
        self.udp() + UDP
    }

    /// Where the addresses lie in the frame: source, then destination.
    const fn addresses(self) -> (std::ops::Range<i16>, std::ops::Range<i16>) {
        match self {
            Self::Ipv4 { .. } => (26..30, 30..34),
            Self::Ipv6 => (22..38, 38..54),
        }
    }

    const fn family(self) -> Family {
        match self {
            Self::Ipv4 { .. } => Family::Ipv4,
            Self::Ipv6 => Family::Ipv6,
        }
    }
}

/// To `fail` unless the frame has `bytes`. Clobbers `r1`.
fn need(asm: &mut Assembler, bytes: i16, fail: Label) {
    asm.mov(R1, R7);
    asm.alu_imm(op::ADD, R1, i32::from(bytes));
    asm.jump_if(op::JGT, R1, R8, fail);
}

/// One protocol half: match, then validate. The facts are in the context when
/// it goes on to `dispatch` or `whole`.
fn half(asm: &mut Assembler, spec: &Spec, labels: &Labels, header: Header) {
    let matched = asm.label();
    demux(asm, spec, labels, header, matched);
    asm.bind(matched);
    xdp::find_context(asm, spec.cpus, labels.out);
    match &spec.paths[..] {
        [path] => {
            asm.store_imm(Size::W, R9, context::LOCAL_PATH, path.slot as i32);
            asm.store_imm(Size::W, R9, context::ROW, path.row as i32);
        }
        // By way of the stack to the context, where the verifier forgets
        // numbers: so it reads what follows once, and not once for each path.
        _ => {
            for (from, to) in [(PATH, context::LOCAL_PATH), (PATH_ROW, context::ROW)] {
                asm.load(Size::W, R1, R10, from);
                asm.store(Size::W, R9, to, R1);
            }
        }
    }
    xdp::find_row(asm, labels.out);
    asm.store(Size::D, R10, ROW, R0);
    xdp::count(asm, R0, Count::Received);
    lengths(asm, spec, labels, header);
    if let Header::Ipv4 { words } = header {
        ipv4_checksum(asm, labels, words);
    }
    udp_checksum(asm, spec, labels, header);
}

/// Finds the path: its slot and row go to the stack. No match goes to the
/// host.
fn demux(asm: &mut Assembler, spec: &Spec, labels: &Labels, header: Header, matched: Label) {
    let mut order: Vec<usize> = (0..spec.paths.len()).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(spec.paths[i].filter.specificity()));
    if spec.paths.iter().any(|path| path.filter.src_port.is_some()) {
        asm.load(Size::H, R2, R7, header.udp());
    }
    asm.load(Size::H, R3, R7, header.udp() + 2);
    for i in order {
        let filter = &spec.paths[i].filter;
        if filter
            .family
            .is_some_and(|family| family != header.family())
        {
            continue;
        }
        let next = asm.label();
        if let Some(port) = filter.dst_port {
            asm.jump_if_imm(op::JNE, R3, be16(port), next);
        }
        if let Some(port) = filter.src_port {
            asm.jump_if_imm(op::JNE, R2, be16(port), next);
        }
        let (src, dst) = header.addresses();
        for (address, place) in [(filter.src_addr, src), (filter.dst_addr, dst)] {
            let bytes: Vec<u8> = match address {
                None => continue,
                Some(std::net::IpAddr::V4(v4)) => v4.octets().to_vec(),
                Some(std::net::IpAddr::V6(v6)) => v6.octets().to_vec(),
            };
            for (word, chunk) in place.step_by(4).zip(bytes.chunks_exact(4)) {
                let value = u32::from_le_bytes(chunk.try_into().expect("chunks of four"));
                asm.load(Size::W, R4, R7, word);
                asm.jump32_if_imm(op::JNE, R4, value as i32, next);
            }
        }
        if spec.paths.len() > 1 {
            asm.store_imm(Size::W, R10, PATH, spec.paths[i].slot as i32);
            asm.store_imm(Size::W, R10, PATH_ROW, spec.paths[i].row as i32);
        }
        asm.jump(matched);
        asm.bind(next);
    }
    asm.jump(labels.host);
}

/// Lengths agree with each other and with the frame, and this is the whole
/// datagram (RFC 791 §3.1, RFC 8200 §3, RFC 768). Leaves the payload's place
/// and length in the context.
fn lengths(asm: &mut Assembler, spec: &Spec, labels: &Labels, header: Header) {
    // r2 = bytes behind the Ethernet header, r3 = UDP's length.
    match header {
        Header::Ipv4 { .. } => {
            asm.load(Size::H, R1, R7, 20);
            asm.alu_imm(op::AND, R1, be16(0x2000));
            asm.jump_if_imm(op::JNE, R1, 0, labels.fragment);
            asm.load(Size::H, R2, R7, 16);
            asm.to_be(Size::H, R2);
        }
        Header::Ipv6 => {
            asm.load(Size::H, R2, R7, 18);
            asm.to_be(Size::H, R2);
            asm.alu_imm(op::ADD, R2, i32::from(header.bytes()));
        }
    }
    asm.load(Size::H, R3, R7, header.udp() + 4);
    asm.to_be(Size::H, R3);
    asm.jump_if_imm(op::JLT, R3, i32::from(UDP), labels.bad_length);
    asm.mov(R4, R3);
    asm.alu_imm(op::ADD, R4, i32::from(header.bytes()));
    asm.jump_if(op::JGT, R4, R2, labels.bad_length);
    asm.alu_imm(op::SUB, R3, i32::from(UDP));
    asm.store(Size::W, R9, context::PAYLOAD_LEN, R3);
    let payload = i32::from(header.payload());
    asm.store_imm(Size::W, R9, context::PAYLOAD_OFF, payload);
    match spec.packet {
        Packet::Pointers => {
            asm.mov(R1, R7);
            asm.alu_imm(op::ADD, R1, i32::from(ETH));
            asm.alu(op::ADD, R1, R2);
            asm.jump_if(op::JGT, R1, R8, labels.bad_length);
        }
        Packet::Helpers => {
            asm.store(Size::D, R10, FRAME_BYTES, R2);
            asm.mov(R1, R6);
            asm.call(helper::XDP_GET_BUFF_LEN);
            asm.load(Size::D, R2, R10, FRAME_BYTES);
            asm.alu_imm(op::ADD, R2, i32::from(ETH));
            asm.jump_if(op::JGT, R2, R0, labels.bad_length);
        }
    }
}

/// RFC 791 §3.1: the header's words sum to all ones.
fn ipv4_checksum(asm: &mut Assembler, labels: &Labels, words: i16) {
    asm.load(Size::W, R5, R7, ETH);
    for word in 1..words {
        asm.load(Size::W, R1, R7, ETH + word * 4);
        asm.alu(op::ADD, R5, R1);
    }
    xdp::fold_short(asm, R5, R1);
    asm.jump_if_imm(op::JNE, R5, 0xffff, labels.bad_ip_checksum);
}

/// RFC 768; RFC 8200 §8.1 for IPv6. Three forms are good: none (IPv4 only), the
/// pseudo-header's sum alone (the sender left the rest to its device, which on
/// a veth is nobody: FACTS 3b), and the whole.
fn udp_checksum(asm: &mut Assembler, spec: &Spec, labels: &Labels, header: Header) {
    let mut flags = match spec.reply {
        Reply::Transmit => 0,
        Reply::Redirect => flag::REPLY_BY_REDIRECT,
        Reply::Exit => flag::REPLY_BY_TCX,
    };
    if header == Header::Ipv6 {
        flags |= flag::IPV6;
    }
    asm.store_imm(Size::W, R9, context::FLAGS, flags as i32);
    asm.load(Size::H, R3, R7, header.udp() + 6);
    match header {
        Header::Ipv4 { .. } => asm.jump_if_imm(op::JEQ, R3, 0, labels.dispatch),
        Header::Ipv6 => asm.jump_if_imm(op::JEQ, R3, 0, labels.bad_udp_checksum),
    }
    // r5 = the pseudo-header's sum.
    asm.load(Size::H, R5, R7, header.udp() + 4);
    asm.alu_imm(op::ADD, R5, be16(PROTOCOL_UDP as u16));
    let (src, dst) = header.addresses();
    for word in (src.start..dst.end).step_by(4) {
        asm.load(Size::W, R1, R7, word);
        asm.alu(op::ADD, R5, R1);
    }
    asm.mov(R2, R5);
    xdp::fold_short(asm, R2, R1);
    asm.jump_if(op::JNE, R2, R3, labels.whole_checksum);
    let flags = flags | flag::CHECKSUM_PARTIAL;
    asm.store_imm(Size::W, R9, context::FLAGS, flags as i32);
    asm.jump(labels.dispatch);
}

/// The whole checksum: UDP header and payload on top of the pseudo-header's sum
/// in `r5`. One copy for all halves.
fn whole_checksum(asm: &mut Assembler, spec: &Spec, labels: &Labels) {
    asm.bind(labels.whole_checksum);
    match spec.packet {
        Packet::Pointers => {
            xdp::udp_header(asm, labels.bad_length);
            for word in [0, 4] {
                asm.load(Size::W, R1, R2, word);
                asm.alu(op::ADD, R5, R1);
            }
            asm.alu_imm(op::ADD, R2, i32::from(UDP));
            xdp::add_payload(asm, labels.bad_length);
        }
        Packet::Helpers => xdp::add_copied(asm, i32::from(UDP), labels.bad_length),
    }
    xdp::fold(asm, R5, R1);
    asm.jump_if_imm(op::JNE, R5, 0xffff, labels.bad_udp_checksum);
    asm.jump(labels.dispatch);
}

/// Goes to the path's program. The slot is a constant at each call, so the
/// kernel patches a direct jump in.
fn dispatch(asm: &mut Assembler, spec: &Spec, labels: &Labels) {
    asm.bind(labels.dispatch);
    asm.load(Size::W, R0, R9, context::LOCAL_PATH);
    for (i, path) in spec.paths.iter().enumerate() {
        let next = asm.label();
        if i + 1 < spec.paths.len() {
            asm.jump_if_imm(op::JNE, R0, path.slot as i32, next);
        }
        asm.store_imm(Size::W, R9, context::LOCAL_PATH, path.local as i32);
        asm.store_imm(Size::W, R9, context::RING_BASE, path.ring_base as i32);
        if path.on_fault_drop {
            asm.load(Size::W, R1, R9, context::FLAGS);
            asm.alu_imm(op::OR, R1, flag::ON_FAULT_DROP as i32);
            asm.store(Size::W, R9, context::FLAGS, R1);
        }
        asm.mov(R1, R6);
        asm.map(R2, MapRef::Slots, None);
        asm.mov_imm(R3, path.slot as i32);
        asm.call(helper::TAIL_CALL);
        asm.jump(labels.no_program);
        asm.bind(next);
    }
    if spec.paths.is_empty() {
        asm.jump(labels.host);
    }
}

fn ends(asm: &mut Assembler, spec: &Spec, labels: &Labels) {
    for (label, reason) in [
        (labels.bad_length, Count::DroppedBadLength),
        (labels.bad_ip_checksum, Count::DroppedBadIpChecksum),
        (labels.bad_udp_checksum, Count::DroppedBadUdpChecksum),
        (labels.fragment, Count::DroppedFragment),
    ] {
        asm.bind(label);
        asm.load(Size::D, R0, R10, ROW);
        xdp::count(asm, R0, reason);
        xdp::finish(asm, action::DROP);
    }
    // The path has no program (it is being set up or taken down): the host
    // answers, as it would without us.
    asm.bind(labels.no_program);
    xdp::find_row(asm, labels.out);
    xdp::count(asm, R0, Count::Passed);
    xdp::finish(asm, action::PASS);

    asm.bind(labels.host);
    xdp::find_fixed_row(asm, spec.unmatched_row, labels.out);
    xdp::count(asm, R0, Count::Received);
    xdp::count(asm, R0, Count::Passed);
    asm.bind(labels.out);
    xdp::finish(asm, action::PASS);
}
