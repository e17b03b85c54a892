//! The entry program: the first code of ours that sees a frame.
//!
//! One per interface, attached as XDP or at TCX. It finds the path ([`demux`](ashway_demux)),
//! checks the headers that the path relies on, counts, writes what it learned
//! into the per-CPU context and tail-calls the program behind the path's slot. It
//! holds no handler and no arena. A frame that matches no path is the host's: it
//! goes to the host's own stack untouched, however malformed it may be; and so is
//! one that matches a path but is no UDP datagram, unless the path takes frames
//! as they are ([`flag::RAW`]).
//!
//! Protocol halves: IPv4 (RFC 791), IPv6 (RFC 8200), UDP (RFC 768); plain ones
//! with every header at its usual place, and [one](general) for the rest, behind
//! VLAN tags, options and extension headers. `ashway_wire::Datagram` is the same
//! decision in Rust, for rungs without a kernel tier; a test holds the two together.

mod general;

use ashway_abi::context::{self, flag};
use ashway_abi::observe::step;
use ashway_abi::trusted::HEADERS_BYTES;
use ashway_abi::{Count, Leaf};
use ashway_check::bpf::{Assembler, Hook, Image, Label, MapRef, Reg, Size, helper, op, skb};
use ashway_wire::eth;
use ashway_wire::ipv4::PROTOCOL_UDP;

use crate::bug::{self, Bug};
use crate::demux::compiled::{Compiled, Constant, Entries, FEW};
use crate::demux::emit::{self, Exits};
use crate::hook::{self, Action};
use crate::observe::{self, Note, Word};
pub use crate::parts::Packet;
use crate::parts::{self, add_flags, be16};
use crate::timed;
use Reg::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10};

/// What the entry program of one interface has to know.
#[derive(Clone, Copy, Debug)]
pub struct Spec<'t> {
    /// Where it runs.
    pub hook: Hook,
    /// The interface's demux: shapes in the order they are tried.
    pub shapes: &'t [Compiled<'t>],
    /// Where shapes that come later lie as data ([`spares_at`](crate::demux::compiled::spares_at)), if they may come.
    pub spares: Option<u32>,
    /// Contexts there are: one for each possible CPU.
    pub cpus: u32,
    /// Whether a path may have an instance for each of them ([`flag::PER_CPU`]).
    pub per_cpu: bool,
    /// Row of counters for frames that match no path.
    pub unmatched_row: u32,
    /// The interface's address: frames for any other are the host's.
    pub mac: [u8; 6],
    /// How replies leave; TCX has one way only.
    pub reply: Reply,
    /// How packets are read at places known only at run time.
    pub packet: Packet,
}

/// How the kernel tier sends a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// `XDP_TX`: real drivers.
    Transmit,
    /// A redirect to the same interface: a veth whose peer polls (GRO or XDP), and TCX.
    Redirect,
    /// Through the TCX [exit program](crate::exit): any other veth.
    Exit,
}

impl Spec<'_> {
    /// Flags that hold for every message of the interface.
    const fn flags(&self) -> u32 {
        match self.reply {
            Reply::Transmit => 0,
            Reply::Redirect => flag::REPLY_BY_REDIRECT,
            Reply::Exit => flag::REPLY_BY_TCX,
        }
    }

    /// Whether a path may take frames as they are.
    fn may_be_raw(&self) -> bool {
        let is_raw = |one: &Constant| one.leaf.flags & flag::RAW != 0;
        let mut shapes = self.shapes.iter();
        self.spares.is_some()
            || shapes.any(|one| {
                one.entries.map().is_some() || one.entries.constants().iter().any(is_raw)
            })
    }

    /// The slots of paths that are known now, if they are few: a tail call into one
    /// is a jump. And whether there may be others.
    fn slots(&self) -> (Vec<u32>, bool) {
        let constants = self.shapes.iter().flat_map(|one| one.entries.constants());
        let leaves = constants.map(|one| one.leaf);
        let (per_cpu, others): (Vec<Leaf>, Vec<Leaf>) =
            leaves.partition(|leaf| leaf.flags & flag::PER_CPU != 0);
        let mut slots: Vec<u32> = others.iter().map(|leaf| leaf.slot).collect();
        slots.sort_unstable();
        slots.dedup();
        let mut maps = self.shapes.iter().map(|one| &one.entries);
        let large = |entries: &Entries| matches!(entries, Entries::Hash(_));
        if slots.len() > FEW || maps.clone().any(large) {
            return (Vec::new(), true);
        }
        let may_come = self.spares.is_some() || maps.any(|entries| entries.map().is_some());
        (slots, may_come || !per_cpu.is_empty())
    }
}

/// Stack: a length that must survive a helper, or that one writes.
const FRAME_BYTES: i16 = -56;

const ETH: i16 = 14;
const UDP: i16 = 8;

/// Generates the program. Linux 6.9 (`may_goto`).
#[must_use]
pub fn generate(spec: &Spec) -> Image {
    generate_with(spec, None)
}

/// The same program, which says what it does, as a part of the observation of this
/// number ([`ashway_abi::observe`]).
#[must_use]
pub fn generate_observed(spec: &Spec, session: u16) -> Image {
    generate_with(spec, Some(session))
}

fn generate_with(spec: &Spec, observe: Option<u16>) -> Image {
    let mut asm = Assembler::at(spec.hook);
    let labels = Labels {
        observe: observe.is_some(),
        per_cpu: spec.per_cpu,
        host: asm.label(),
        no_program: asm.label(),
        bad_length: asm.label(),
        bad_ip_checksum: asm.label(),
        bad_udp_checksum: asm.label(),
        fragment: asm.label(),
        too_long: asm.label(),
        no_room: asm.label(),
        unchecked: asm.label(),
        whole_checksum: asm.label(),
        dispatch: asm.label(),
        raw: asm.label(),
        out: asm.label(),
    };
    asm.mov(R6, R1);
    if let Some(session) = observe {
        observe::begin(&mut asm, spec.cpus, session, labels.out);
    }
    hook::packet_bounds(&mut asm);
    let exits = Exits {
        ipv4: asm.label(),
        ipv6: asm.label(),
        datagram: [(); 2].map(|()| asm.label()),
        no_udp: asm.label(),
        other: asm.label(),
        miss: labels.host,
        fail: labels.out,
        flags: spec.flags(),
    };
    let for_us = |asm: &mut Assembler| for_us(asm, spec, labels.host);
    emit::emit(&mut asm, &spec.demux(), for_us, exits);
    asm.bind(exits.no_udp);
    if_raw(&mut asm, spec, &labels);
    asm.jump(labels.host);
    asm.bind(exits.other);
    general::emit(&mut asm, spec, &labels);
    if spec.may_be_raw() {
        raw(&mut asm, spec, &labels);
    }
    unchecked(&mut asm, &labels);
    // What comes most often comes last: it falls through to the path's program.
    for (header, asked, datagram) in [
        (Header::Ipv6, exits.ipv6, exits.datagram[1]),
        (Header::Ipv4, exits.ipv4, exits.datagram[0]),
    ] {
        plain(&mut asm, spec, &labels, header, [asked, datagram]);
    }
    whole_checksum(&mut asm, spec, &labels);
    dispatch(&mut asm, spec, &labels);
    ends(&mut asm, spec, &labels);
    asm.finish()
}

impl<'t> Spec<'t> {
    const fn demux(&self) -> emit::Spec<'t> {
        emit::Spec {
            shapes: self.shapes,
            spares: self.spares,
            cpus: self.cpus,
            packet: self.packet,
        }
    }
}

/// Frames for others are the host's, groups among them: a reply in the name of one
/// would be a forgery.
fn for_us(asm: &mut Assembler, spec: &Spec, host: Label) {
    let mut mac = [0; 8];
    mac[..6].copy_from_slice(&spec.mac);
    let mac = u64::from_le_bytes(mac);
    let (first, last) = (mac as u32, (mac >> 32) as u16);
    asm.load(Size::W, R1, R7, 0);
    asm.jump32_if_imm(op::JNE, R1, first as i32, host);
    asm.load(Size::H, R1, R7, 4);
    asm.jump_if_imm(op::JNE, R1, i32::from(last), host);
}

struct Labels {
    /// Whether the program says what it does.
    observe: bool,
    /// Whether a path may have an instance for each CPU.
    per_cpu: bool,
    host: Label,
    no_program: Label,
    bad_length: Label,
    bad_ip_checksum: Label,
    bad_udp_checksum: Label,
    fragment: Label,
    too_long: Label,
    no_room: Label,
    unchecked: Label,
    whole_checksum: Label,
    dispatch: Label,
    raw: Label,
    /// To the host without a count: a map of ours is not there.
    out: Label,
}

impl Labels {
    /// Makes a note, in a program that does.
    fn note(&self, asm: &mut Assembler, note: Note) {
        if self.observe {
            observe::note(asm, note);
        }
    }
}

/// What lies between Ethernet and UDP in a plain packet.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Header {
    /// IPv4 without options.
    Ipv4,
    /// IPv6 without extension headers.
    Ipv6,
}

impl Header {
    /// Its length in bytes.
    const fn bytes(self) -> i16 {
        match self {
            Self::Ipv4 => 20,
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

    /// Where the addresses lie in the frame.
    const fn addresses(self) -> std::ops::Range<i16> {
        match self {
            Self::Ipv4 => 26..34,
            Self::Ipv6 => 22..54,
        }
    }
}

/// A path takes the frame as it is.
fn if_raw(asm: &mut Assembler, spec: &Spec, labels: &Labels) {
    if spec.may_be_raw() {
        asm.load(Size::W, R1, R9, context::FLAGS);
        asm.alu_imm(op::AND, R1, flag::RAW as i32);
        asm.jump_if_imm(op::JNE, R1, 0, labels.raw);
    }
}

/// One plain half, behind two labels: whether the path takes frames as they are is asked at the
/// first. The facts are in the context when it goes on to `dispatch` or `whole_checksum`.
fn plain(
    asm: &mut Assembler,
    spec: &Spec,
    labels: &Labels,
    header: Header,
    [asked, datagram]: [Label; 2],
) {
    let several = asm.label();
    if has_frags(spec) {
        // Beyond the first buffer of several, or beyond the frame.
        asm.bind(several);
        lies_in_frame(asm, labels);
        addresses(asm, header);
        if header == Header::Ipv4 {
            ipv4_checksum(asm, labels);
        }
        udp_length(asm, labels, header);
        asm.jump(labels.unchecked);
    }
    asm.bind(asked);
    if_raw(asm, spec, labels);
    asm.bind(datagram);
    received(asm, labels, header.payload().into());
    ip_length(asm, spec, labels, header, several);
    addresses(asm, header);
    if header == Header::Ipv4 {
        ipv4_checksum(asm, labels);
    }
    udp_length(asm, labels, header);
    udp_checksum(asm, spec, labels, header);
}

/// Whether a frame may lie in several buffers, of which pointers reach the first. One whose
/// headers reach further is the host's.
fn has_frags(spec: &Spec) -> bool {
    spec.hook == Hook::Xdp && spec.packet == Packet::Pointers && !bug::is(Bug::FragsUnseen)
}

/// To `labels.unchecked` if the frame lies in several buffers. Clobbers `r0`-`r5`.
fn if_several(asm: &mut Assembler, spec: &Spec, labels: &Labels) {
    if has_frags(spec) {
        hook::frame_len(asm);
        asm.mov(R1, R8);
        asm.alu(op::SUB, R1, R7);
        asm.jump_if(op::JNE, R0, R1, labels.unchecked);
    }
}

/// Leads the message to this CPU's instance of the handler, if it has one for each: slots and rows
/// of these follow each other, and are all that tells them apart. Clobbers `r0`-`r5`.
fn choose_instance(asm: &mut Assembler, labels: &Labels) {
    if !labels.per_cpu {
        return;
    }
    let one = asm.label();
    asm.load(Size::W, R1, R9, context::FLAGS);
    asm.alu_imm(op::AND, R1, flag::PER_CPU as i32);
    asm.jump_if_imm(op::JEQ, R1, 0, one);
    asm.call(helper::GET_SMP_PROCESSOR_ID);
    if bug::is(Bug::FirstCpuAlone) {
        asm.mov_imm(R0, 0);
    }
    for word in [context::ROW, context::SLOT] {
        asm.load(Size::W, R1, R9, word);
        asm.alu(op::ADD, R1, R0);
        asm.store(Size::W, R9, word, R1);
    }
    asm.bind(one);
}

/// Finds the instance, counts the message, and makes it one piece, of which `known` bytes are
/// known to be there. Clobbers `r0`-`r5`.
fn received(asm: &mut Assembler, labels: &Labels, known: i32) {
    choose_instance(asm, labels);
    parts::find_row(asm, labels.out);
    parts::count(asm, R0, Count::Received);
    timed::begin(asm);
    labels.note(
        asm,
        Note {
            step: step::CLASSIFIED,
            frame: true,
            ..Note::end(Word::Is(0))
        },
    );
    hook::pull(asm, MOST_FRAME, known, labels.no_room);
}

/// To `labels.unchecked` if the frame is many messages behind one header, of which nobody
/// knows the checksums yet. Clobbers `r1`.
fn if_segments(asm: &mut Assembler, labels: &Labels) {
    if asm.hook() == Hook::Tcx && !bug::is(Bug::SegmentWhole) {
        asm.load(Size::W, R1, R6, skb::GSO_SIZE);
        asm.jump_if_imm(op::JNE, R1, 0, labels.unchecked);
    }
}

/// What programs do not read to its end goes to the user tier, as many messages behind one
/// header do: lengths and place are in the context. XDP does not say what is many: what is
/// longer than the link takes, tags aside, cannot be one message, and nobody could take it apart.
fn unchecked(asm: &mut Assembler, labels: &Labels) {
    asm.bind(labels.unchecked);
    if asm.hook() == Hook::Xdp {
        asm.store_imm(Size::D, R10, FRAME_BYTES, 0);
        asm.mov(R1, R6);
        asm.mov_imm(R2, 0);
        asm.mov(R3, R10);
        asm.alu_imm(op::ADD, R3, FRAME_BYTES.into());
        asm.mov_imm(R4, 0);
        asm.mov_imm(R5, 0);
        // It says the MTU, whatever it finds; what it measures is the first buffer alone.
        asm.call(helper::CHECK_MTU);
        hook::frame_len(asm);
        asm.load(Size::W, R1, R10, FRAME_BYTES);
        let more = eth::HEADER_BYTES + eth::TAG_BYTES * eth::MAX_TAGS;
        asm.alu_imm(op::ADD, R1, more as i32);
        asm.jump_if(op::JGT, R0, R1, labels.too_long);
    }
    add_flags(asm, flag::UNCHECKED);
    asm.jump(labels.dispatch);
}

/// Notes a tag that lies beside the frame. Clobbers `r1`.
fn tag_beside(asm: &mut Assembler) {
    if asm.hook() == Hook::Xdp {
        return;
    }
    let none = asm.label();
    asm.load(Size::W, R1, R6, skb::VLAN_PRESENT);
    asm.jump_if_imm(op::JEQ, R1, 0, none);
    add_flags(asm, flag::TAG_BESIDE);
    asm.bind(none);
}

/// The longest frame that is read by pointers.
const MOST_FRAME: i32 = HEADERS_BYTES as i32 + parts::MAX_PAYLOAD;

/// The frame behind its Ethernet header is the message, whatever its headers.
fn raw(asm: &mut Assembler, spec: &Spec, labels: &Labels) {
    asm.bind(labels.raw);
    received(asm, labels, 0);
    tag_beside(asm);
    asm.load(Size::W, R1, R9, context::FLAGS);
    asm.alu_imm(op::AND, R1, !(flag::PLAIN | flag::IPV6) as i32);
    asm.store(Size::W, R9, context::FLAGS, R1);
    hook::frame_len(asm);
    asm.alu_imm(op::SUB, R0, ETH.into());
    asm.store(Size::W, R9, context::PAYLOAD_LEN, R0);
    asm.store_imm(Size::W, R9, context::PAYLOAD_OFF, ETH.into());
    asm.jump_if_imm(op::JGT, R0, MOST_FRAME - i32::from(ETH), labels.unchecked);
    if_segments(asm, labels);
    if_several(asm, spec, labels);
    asm.jump(labels.dispatch);
}

/// The IP packet holds its header and lies in the frame (RFC 791 §3.1, RFC 8200
/// §3), or goes to `several` if its first buffer has not all of it. Leaves its length in `r2`.
fn ip_length(asm: &mut Assembler, spec: &Spec, labels: &Labels, header: Header, several: Label) {
    match header {
        Header::Ipv4 => {
            asm.load(Size::H, R2, R7, 16);
            asm.to_be(Size::H, R2);
            asm.jump_if_imm(op::JLT, R2, i32::from(header.bytes()), labels.bad_length);
        }
        Header::Ipv6 => {
            asm.load(Size::H, R2, R7, 18);
            asm.to_be(Size::H, R2);
            asm.alu_imm(op::ADD, R2, i32::from(header.bytes()));
        }
    }
    match spec.packet {
        Packet::Pointers if spec.hook == Hook::Xdp => {
            let beyond = if has_frags(spec) {
                several
            } else {
                labels.bad_length
            };
            asm.mov(R1, R7);
            asm.alu_imm(op::ADD, R1, i32::from(ETH));
            asm.alu(op::ADD, R1, R2);
            asm.jump_if(op::JGT, R1, R8, beyond);
        }
        _ => lies_in_frame(asm, labels),
    }
}

/// The packet of `r2` bytes lies in the frame, all buffers of which count. Clobbers `r0` and
/// `r1`, and `r3` to `r5`.
fn lies_in_frame(asm: &mut Assembler, labels: &Labels) {
    match asm.hook() {
        Hook::Xdp => {
            asm.store(Size::D, R10, FRAME_BYTES, R2);
            hook::frame_len(asm);
            asm.load(Size::D, R2, R10, FRAME_BYTES);
        }
        Hook::Tcx => hook::frame_len(asm),
    }
    asm.mov(R1, R2);
    asm.alu_imm(op::ADD, R1, i32::from(ETH));
    asm.jump_if(op::JGT, R1, R0, labels.bad_length);
}

/// The datagram holds its header and lies in the packet of `r2` bytes (RFC 768).
/// Leaves the payload's place and length in the context; to `labels.unchecked` with what is too
/// long to be summed.
fn udp_length(asm: &mut Assembler, labels: &Labels, header: Header) {
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
    asm.jump_if_imm(op::JGT, R3, parts::MAX_PAYLOAD, labels.unchecked);
    if_segments(asm, labels);
}

/// `r0` = the sum of the addresses' words. Clobbers `r1`.
fn addresses(asm: &mut Assembler, header: Header) {
    let mut words = header.addresses().step_by(4);
    if let Some(first) = words.next() {
        asm.load(Size::W, R0, R7, first);
    }
    for word in words {
        asm.load(Size::W, R1, R7, word);
        asm.alu(op::ADD, R0, R1);
    }
}

/// RFC 791 §3.1: the header's words sum to all ones. `r0` is the addresses' sum.
fn ipv4_checksum(asm: &mut Assembler, labels: &Labels) {
    asm.mov(R5, R0);
    for word in 0..3 {
        asm.load(Size::W, R1, R7, ETH + word * 4);
        asm.alu(op::ADD, R5, R1);
    }
    parts::sums_to_ones(asm, R5, R1, labels.bad_ip_checksum);
}

/// `r0` is the addresses' sum. IPv4 goes on behind it, which is [`whole_checksum`].
fn udp_checksum(asm: &mut Assembler, spec: &Spec, labels: &Labels, header: Header) {
    asm.load(Size::H, R3, R7, header.udp() + 6);
    if_no_checksum(asm, labels, header == Header::Ipv4);
    asm.load(Size::H, R5, R7, header.udp() + 4);
    asm.alu(op::ADD, R5, R0);
    no_partial_checksum(asm, labels);
    if spec.packet == Packet::Pointers {
        asm.mov(R2, R7);
        asm.alu_imm(op::ADD, R2, header.udp().into());
    }
    if header == Header::Ipv6 {
        asm.jump(labels.whole_checksum);
    }
}

/// RFC 768; RFC 8200 §8.1 for IPv6: `r3` is the checksum's field.
fn if_no_checksum(asm: &mut Assembler, labels: &Labels, is_optional: bool) {
    let absent = if is_optional {
        labels.dispatch
    } else {
        labels.bad_udp_checksum
    };
    asm.jump_if_imm(op::JEQ, R3, 0, absent);
}

/// Makes the sum in `r5` of addresses and length the pseudo-header's. Besides none
/// at all (IPv4 only), two forms of the checksum in `r3` are good: this sum alone
/// (the sender left the rest to its device, which a veth never adds: docs/facts.md,
/// "Half a checksum on a veth"), with which this goes to `dispatch`, and
/// the whole, with which it goes on.
fn no_partial_checksum(asm: &mut Assembler, labels: &Labels) {
    let whole = asm.label();
    asm.alu_imm(op::ADD, R5, be16(PROTOCOL_UDP.into()));
    // Neither is 0, so they fold to the same if one and the other's complement
    // sum to ones.
    asm.alu_imm(op::XOR, R3, 0xffff);
    asm.alu(op::ADD, R3, R5);
    parts::sums_to_ones(asm, R3, R1, whole);
    add_flags(asm, flag::CHECKSUM_PARTIAL);
    asm.jump(labels.dispatch);
    asm.bind(whole);
}

/// The whole checksum: UDP header and payload on top of the pseudo-header's sum
/// in `r5`. One copy for all halves; by pointers, `r2` is the UDP header. Goes on behind it.
fn whole_checksum(asm: &mut Assembler, spec: &Spec, labels: &Labels) {
    asm.bind(labels.whole_checksum);
    match spec.packet {
        Packet::Pointers => {
            for word in [0, 4] {
                asm.load(Size::W, R1, R2, word);
                asm.alu(op::ADD, R5, R1);
            }
            asm.alu_imm(op::ADD, R2, i32::from(UDP));
            parts::add_payload(asm, labels.bad_length);
        }
        Packet::Helpers => parts::add_copied(asm, i32::from(UDP), labels.bad_length),
    }
    parts::sums_to_ones(asm, R5, R1, labels.bad_udp_checksum);
}

/// Goes to the path's program. Where the slots are few and known, each call's is
/// a constant, so that the kernel patches a direct jump in.
fn dispatch(asm: &mut Assembler, spec: &Spec, labels: &Labels) {
    asm.bind(labels.dispatch);
    asm.load(Size::W, R3, R9, context::SLOT);
    let (slots, others) = spec.slots();
    for (i, slot) in slots.iter().enumerate() {
        let next = asm.label();
        if others || i + 1 < slots.len() {
            asm.jump_if_imm(op::JNE, R3, *slot as i32, next);
        }
        asm.mov_imm(R3, *slot as i32);
        tail_call(asm);
        asm.jump(labels.no_program);
        asm.bind(next);
    }
    if others {
        tail_call(asm);
        asm.jump(labels.no_program);
    } else if slots.is_empty() {
        asm.jump(labels.host);
    }
}

/// To the program in slot `r3`; goes on if there is none.
fn tail_call(asm: &mut Assembler) {
    asm.mov(R1, R6);
    asm.map(R2, MapRef::Slots, None);
    asm.call(helper::TAIL_CALL);
}

fn ends(asm: &mut Assembler, spec: &Spec, labels: &Labels) {
    for (label, reason) in [
        (labels.bad_length, Count::DroppedBadLength),
        (labels.bad_ip_checksum, Count::DroppedBadIpChecksum),
        (labels.bad_udp_checksum, Count::DroppedBadUdpChecksum),
        (labels.fragment, Count::DroppedFragment),
        (labels.too_long, Count::DroppedTooLong),
        (labels.no_room, Count::DroppedNoHeadroom),
    ] {
        asm.bind(label);
        parts::find_row(asm, labels.out);
        parts::count(asm, R0, reason);
        labels.note(asm, Note::end(Word::Is(reason as u32)));
        hook::finish(asm, Action::Drop);
    }
    // The path has no program (it is being set up or taken down): the host
    // answers, as it would without us.
    asm.bind(labels.no_program);
    parts::find_row(asm, labels.out);
    parts::count(asm, R0, Count::Passed);
    labels.note(asm, Note::end(Word::Is(Count::Passed as u32)));
    hook::finish(asm, Action::Pass);

    asm.bind(labels.host);
    parts::find_fixed_row(asm, spec.unmatched_row, labels.out);
    parts::count(asm, R0, Count::Received);
    parts::count(asm, R0, Count::Passed);
    labels.note(
        asm,
        Note {
            step: step::UNMATCHED,
            row: Word::Is(spec.unmatched_row),
            frame: true,
            ..Note::end(Word::Is(Count::Passed as u32))
        },
    );
    asm.bind(labels.out);
    hook::finish(asm, Action::Pass);
}
