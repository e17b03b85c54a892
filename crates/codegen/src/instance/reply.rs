//! `reply`: the same buffer back to its sender, with true headers.
//!
//! Addresses and ports change places, TTL starts at 64 again, and the UDP
//! checksum is computed whole: a request from a veth peer carries only half of
//! one (docs/facts.md, "Half a checksum on a veth"), so an incremental update would
//! spoil every reply.
//! `ashway_wire::make_reply` is the same for the user tier; a test holds the
//! two together.

use ashway_abi::context::{self, fact, flag};
use ashway_abi::{Count, trusted};
use ashway_check::bpf::{Assembler, Field, Hook, Label, Reg, Size, helper, op};

use super::Handler;
use crate::hook::{self, Action};
use crate::observe::{self, Note, Word};
use crate::parts::{self, Packet};
use crate::timed;
use Reg::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10};

/// What the TCX exit program looks for in front of the frame: send it out. Only an
/// XDP program can put it there. The `u32` behind it is the interface, or 0 for
/// the one it came by.
pub(crate) const EXIT_MARK: i32 = 0x4173_6877;

/// Bytes of the mark and the interface.
pub(crate) const EXIT_BYTES: i32 = 8;

/// Hop limit of a message that starts here (RFC 1700's recommended default).
const TTL: u16 = 64;

/// Where the headers are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Headers {
    /// At the usual place: [`flag::PLAIN`].
    Plain,
    /// Where the facts say.
    Found,
}

/// Where control goes.
#[derive(Clone, Copy)]
struct Labels {
    /// To the ports: `r2` = the UDP header, `r5` = sum of the addresses.
    ports: Label,
    /// Nobody could be answered.
    no_sender: Label,
    /// The frame ends before its headers.
    short: Label,
}

/// `r6` = `md`, `r9` = the context. Ends the program, or jumps to `finish`
/// as `end_with` said.
///
/// Most messages are plain, so they have a copy of their own in which every
/// place is a constant. Where packet pointers move by constants only, every
/// message here is.
///
/// The frame may have another length than it came with if its handler resizes.
pub(super) fn emit(
    asm: &mut Assembler,
    packet: Packet,
    handler: &Handler,
    finish: Label,
    observe: bool,
) {
    let resized = handler.module.resizes();
    let labels = Labels {
        ports: asm.label(),
        no_sender: asm.label(),
        short: asm.label(),
    };
    if resized {
        super::resize::cut(asm, labels.short);
    }
    headers(asm, packet, resized, labels);

    asm.bind(labels.ports);
    udp(asm, packet, resized, labels);
    answer(asm, handler.budget.ns, finish, observe);

    asm.bind(labels.no_sender);
    super::end_with(
        asm,
        Count::DroppedNoSender,
        Some(Count::Committed),
        Action::Drop,
    );
    asm.jump(finish);
    // Cannot happen while the entry program has checked the lengths.
    asm.bind(labels.short);
    super::end_with(
        asm,
        Count::DroppedBadLength,
        Some(Count::Committed),
        Action::Drop,
    );
    asm.jump(finish);
}

/// Turns the headers around, and goes on to the ports: from those of plain IPv4, which are the
/// most, without a jump.
fn headers(asm: &mut Assembler, packet: Packet, resized: bool, labels: Labels) {
    const IPV4: i32 = flag::PLAIN as i32;
    const IPV6: i32 = (flag::PLAIN | flag::IPV6) as i32;
    let [plain, found, found_ipv6] = [(); 3].map(|()| asm.label());
    hook::packet_bounds(asm);
    asm.load(Size::W, R2, R9, context::FLAGS);
    asm.alu_imm(op::AND, R2, IPV6 | flag::RAW as i32);
    asm.jump_if_imm(op::JEQ, R2, IPV4, plain);
    asm.jump_if_imm(op::JNE, R2, IPV6, found);
    ipv6(asm, Headers::Plain, resized, labels);
    asm.jump(labels.ports);
    asm.bind(found);
    // Nobody knows who sent a frame of whatever protocol; it is never plain.
    asm.jump_if_imm(op::JEQ, R2, flag::RAW as i32, labels.no_sender);
    match packet {
        Packet::Pointers => {
            asm.jump_if_imm(op::JNE, R2, 0, found_ipv6);
            ipv4(asm, Headers::Found, resized, labels);
            asm.jump(labels.ports);
            asm.bind(found_ipv6);
            ipv6(asm, Headers::Found, resized, labels);
            asm.jump(labels.ports);
        }
        Packet::Helpers => asm.jump(labels.no_sender),
    }
    asm.bind(plain);
    ipv4(asm, Headers::Plain, resized, labels);
}

/// Leaves the UDP header in `r2` and the sum of the addresses in `r5`.
fn ipv4(asm: &mut Assembler, headers: Headers, resized: bool, labels: Labels) {
    let no_sender = labels.no_sender;
    // Neither end may be 0.0.0.0/32, the host itself (127/8), or a group
    // (224.0.0.0 and up).
    ethernet(asm, headers, IPV4_BYTES, labels);
    asm.load(Size::W, R2, R7, 12);
    asm.load(Size::W, R3, R7, 16);
    for address in [R2, R3] {
        asm.jump_if_imm(op::JEQ, address, 0, no_sender);
        asm.mov(R1, address);
        asm.alu_imm(op::AND, R1, 0xff);
        asm.jump_if_imm(op::JEQ, R1, 127, no_sender);
        asm.jump_if_imm(op::JGE, R1, 224, no_sender);
    }
    asm.store(Size::W, R7, 12, R3);
    asm.store(Size::W, R7, 16, R2);
    // The pseudo-header's sum does not mind the order.
    asm.mov(R5, R2);
    asm.alu(op::ADD, R5, R3);
    fresh_ttl(asm);
    if resized {
        asm.load(Size::H, R1, R7, 2);
        ip_length(asm, headers, 0);
        asm.store(Size::H, R7, 2, R2);
        update_checksum(asm);
    }
    udp_header(asm, headers, IPV4_BYTES, labels.short);
}

/// The same over IPv6.
fn ipv6(asm: &mut Assembler, headers: Headers, resized: bool, labels: Labels) {
    ethernet(asm, headers, IPV6_BYTES, labels);
    swap_ipv6(asm, labels.no_sender);
    asm.store_imm(Size::B, R7, 7, i32::from(TTL));
    if resized {
        ip_length(asm, headers, IPV6_BYTES);
        asm.store(Size::H, R7, 4, R2);
    }
    udp_header(asm, headers, IPV6_BYTES, labels.short);
}

/// Bytes of headers without options.
const IPV4_BYTES: i32 = 20;
const IPV6_BYTES: i32 = 40;
const UDP_BYTES: i32 = 8;

/// Swaps Ethernet's addresses. Leaves the IP header in `r7`: of so many bytes and
/// a UDP header's, which are there.
fn ethernet(asm: &mut Assembler, headers: Headers, ip_bytes: i32, labels: Labels) {
    let below = match headers {
        Headers::Plain => 14 + ip_bytes + UDP_BYTES,
        Headers::Found => 14,
    };
    parts::need(asm, below, labels.short);
    swap_ethernet(asm, labels.no_sender);
    match headers {
        Headers::Plain => asm.alu_imm(op::ADD, R7, 14),
        Headers::Found => {
            // Behind any VLAN tags.
            asm.load(Size::W, R1, R9, fact::NETWORK);
            let most = trusted::HEADERS_BYTES as i32;
            asm.jump_if_imm(op::JGT, R1, most, labels.short);
            asm.alu(op::ADD, R7, R1);
            parts::need(asm, ip_bytes + UDP_BYTES, labels.short);
        }
    }
}

/// `r2` = the UDP header.
fn udp_header(asm: &mut Assembler, headers: Headers, ip_bytes: i32, short: Label) {
    match headers {
        Headers::Plain => {
            asm.mov(R2, R7);
            asm.alu_imm(op::ADD, R2, ip_bytes);
        }
        Headers::Found => parts::udp_header(asm, short),
    }
}

fn swap_ethernet(asm: &mut Assembler, no_sender: Label) {
    asm.load(Size::W, R1, R7, 6);
    asm.load(Size::H, R2, R7, 10);
    asm.mov(R3, R1);
    asm.alu_imm(op::AND, R3, 1);
    asm.jump_if_imm(op::JNE, R3, 0, no_sender);
    asm.load(Size::W, R3, R7, 0);
    asm.load(Size::H, R4, R7, 4);
    asm.store(Size::W, R7, 0, R1);
    asm.store(Size::H, R7, 4, R2);
    asm.store(Size::W, R7, 6, R3);
    asm.store(Size::H, R7, 10, R4);
}

/// `r2` = the packet's length behind its first `without` bytes, in network order.
/// Clobbers `r3`.
fn ip_length(asm: &mut Assembler, headers: Headers, without: i32) {
    asm.load(Size::W, R2, R9, context::PAYLOAD_OFF);
    asm.load(Size::W, R3, R9, context::PAYLOAD_LEN);
    asm.alu(op::ADD, R2, R3);
    match headers {
        Headers::Plain => asm.alu_imm(op::SUB, R2, 14 + without),
        Headers::Found => {
            asm.load(Size::W, R3, R9, fact::NETWORK);
            asm.alu(op::SUB, R2, R3);
            asm.alu_imm(op::SUB, R2, without);
        }
    }
    asm.to_be(Size::H, R2);
}

/// A fresh TTL, and the checksum with it.
fn fresh_ttl(asm: &mut Assembler) {
    let fresh = asm.label();
    asm.load(Size::B, R1, R7, 8);
    asm.jump_if_imm(op::JEQ, R1, i32::from(TTL), fresh);
    asm.load(Size::H, R1, R7, 8);
    asm.store_imm(Size::B, R7, 8, i32::from(TTL));
    asm.load(Size::H, R2, R7, 8);
    update_checksum(asm);
    asm.bind(fresh);
}

/// RFC 1624 equation 3: a word of the header at `r7` was `r1` and is `r2`. Clobbers
/// `r1` and `r3`.
fn update_checksum(asm: &mut Assembler) {
    asm.load(Size::H, R3, R7, 10);
    // HC' = ~(~HC + ~m + m')
    asm.alu_imm(op::XOR, R3, 0xffff);
    asm.alu_imm(op::XOR, R1, 0xffff);
    asm.alu(op::ADD, R3, R1);
    asm.alu(op::ADD, R3, R2);
    for _ in 0..2 {
        asm.mov(R1, R3);
        asm.alu_imm(op::RSH, R1, 16);
        asm.alu_imm(op::AND, R3, 0xffff);
        asm.alu(op::ADD, R3, R1);
    }
    asm.alu_imm(op::XOR, R3, 0xffff);
    asm.store(Size::H, R7, 10, R3);
}

/// Swaps the addresses, leaves their sum in `r5`.
fn swap_ipv6(asm: &mut Assembler, no_sender: Label) {
    for first in [8, 24] {
        let some = asm.label();
        asm.load(Size::B, R1, R7, first);
        asm.jump_if_imm(op::JEQ, R1, 0xff, no_sender);
        asm.jump_if_imm(op::JNE, R1, 0, some);
        // `::` is nobody and `::1` the host itself (RFC 4291 §2.5.2, §2.5.3).
        asm.load(Size::W, R1, R7, first);
        for word in 1..3 {
            asm.load(Size::W, R2, R7, first + word * 4);
            asm.alu(op::OR, R1, R2);
        }
        asm.jump_if_imm(op::JNE, R1, 0, some);
        asm.load(Size::W, R2, R7, first + 12);
        asm.jump_if_imm(op::JEQ, R2, 0, no_sender);
        asm.jump_if_imm(op::JEQ, R2, 1_u32.to_be() as i32, no_sender);
        asm.bind(some);
    }
    asm.mov_imm(R5, 0);
    for word in 0..4 {
        asm.load(Size::W, R1, R7, 8 + word * 4);
        asm.load(Size::W, R2, R7, 24 + word * 4);
        asm.store(Size::W, R7, 8 + word * 4, R2);
        asm.store(Size::W, R7, 24 + word * 4, R1);
        asm.alu(op::ADD, R5, R1);
        asm.alu(op::ADD, R5, R2);
    }
}

/// Ports and checksum. `r2` = the UDP header, `r5` = sum of the addresses.
fn udp(asm: &mut Assembler, packet: Packet, resized: bool, labels: Labels) {
    let Labels {
        no_sender, short, ..
    } = labels;
    let send = asm.label();
    asm.load(Size::H, R0, R2, 0);
    asm.load(Size::H, R3, R2, 2);
    asm.jump_if_imm(op::JEQ, R0, 0, no_sender);

    if resized {
        udp_length(asm);
    }
    // By TCX, also through the exit program, a frame keeps its offload state: a half
    // checksum stays half (its sum is the same both ways) and the device or
    // the receiving stack completes it.
    let whole = asm.label();
    let both = match asm.hook() {
        Hook::Xdp => flag::CHECKSUM_PARTIAL | flag::REPLY_BY_TCX,
        Hook::Tcx => flag::CHECKSUM_PARTIAL,
    } as i32;
    asm.load(Size::W, R1, R9, context::FLAGS);
    asm.alu_imm(op::AND, R1, both);
    asm.jump_if_imm(op::JNE, R1, both, whole);
    swap_ports(asm);
    asm.jump(send);

    // Summed from registers: reading back what has just been written in other
    // widths would stall. The length counts twice, in the pseudo-header too.
    asm.bind(whole);
    asm.load(Size::H, R4, R2, 4);
    for word in [R0, R3, R4, R4] {
        asm.alu(op::ADD, R5, word);
    }
    asm.alu_imm(op::ADD, R5, 17 << 8);
    swap_ports(asm);
    whole_checksum(asm, packet, short);
    asm.bind(send);
}

/// Writes the length into the UDP header at `r2`, and into a half checksum, which is
/// the sum of the pseudo-header. Clobbers `r1` and `r4`.
fn udp_length(asm: &mut Assembler) {
    asm.load(Size::H, R4, R2, 4);
    asm.alu_imm(op::XOR, R4, 0xffff);
    asm.load(Size::W, R1, R9, context::PAYLOAD_LEN);
    asm.alu_imm(op::ADD, R1, UDP_BYTES);
    asm.to_be(Size::H, R1);
    asm.store(Size::H, R2, 4, R1);
    asm.alu(op::ADD, R4, R1);
    asm.load(Size::H, R1, R2, 6);
    asm.alu(op::ADD, R4, R1);
    for _ in 0..2 {
        asm.mov(R1, R4);
        asm.alu_imm(op::RSH, R1, 16);
        asm.alu_imm(op::AND, R4, 0xffff);
        asm.alu(op::ADD, R4, R1);
    }
    asm.store(Size::H, R2, 6, R4);
}

/// Stack: the payload's packet pointer, across a helper.
const PAYLOAD: i16 = -48;

/// Adds the payload to the sum in `r5` of everything before it, and writes the
/// checksum into the UDP header at `r2`. `r6` = `md`, `r8` = the packet's end,
/// `r9` = the context, which knows the payload. Clobbers `r0`-`r5`.
pub(crate) fn whole_checksum(asm: &mut Assembler, packet: Packet, short: Label) {
    asm.alu_imm(op::ADD, R2, 8);
    match packet {
        Packet::Pointers => parts::add_payload(asm, short),
        Packet::Helpers => {
            asm.store(Size::D, R10, PAYLOAD, R2);
            parts::add_copied(asm, 0, short);
            asm.load(Size::D, R2, R10, PAYLOAD);
        }
    }
    parts::fold(asm, R5, R1);
    asm.alu_imm(op::XOR, R5, 0xffff);
    let some = asm.label();
    asm.jump_if_imm(op::JNE, R5, 0, some);
    // 0 would say that there is none (RFC 768).
    asm.mov_imm(R5, 0xffff);
    asm.bind(some);
    asm.store(Size::H, R2, -2, R5);
}

/// Puts the mark in front of the frame, with the interface in `ifindex` or 0, for
/// the exit program to find. `r6` = `md`; packet pointers are void afterwards.
/// Clobbers `r0`-`r5`; to `failed` if there is no room, which the driver's 256 bytes
/// leave.
pub(crate) fn mark_for_exit(asm: &mut Assembler, ifindex: Option<Reg>, failed: Label) {
    asm.mov(R1, R6);
    asm.mov_imm(R2, -EXIT_BYTES);
    asm.call(helper::XDP_ADJUST_META);
    asm.jump_if_imm(op::JNE, R0, 0, failed);
    asm.field(R1, R6, Field::DataMeta);
    asm.field(R2, R6, Field::Data);
    asm.mov(R3, R1);
    asm.alu_imm(op::ADD, R3, EXIT_BYTES);
    asm.jump_if(op::JGT, R3, R2, failed);
    asm.store_imm(Size::D, R1, 0, EXIT_MARK);
    if let Some(ifindex) = ifindex {
        asm.store(Size::W, R1, 4, ifindex);
    }
}

/// `r0` and `r3` are the ports.
fn swap_ports(asm: &mut Assembler) {
    asm.store(Size::H, R2, 0, R3);
    asm.store(Size::H, R2, 2, R0);
}

/// Counts and sends, by the way that the flags name.
fn answer(asm: &mut Assembler, handler_ns: u64, finish: Label, observe: bool) {
    let count = asm.label();
    let redirect = asm.label();
    let failed = asm.label();
    if asm.hook() == Hook::Xdp {
        let unusual = asm.label();
        let other = (flag::REPLY_BY_TCX | flag::REPLY_BY_REDIRECT) as i32;
        asm.load(Size::W, R1, R9, context::FLAGS);
        asm.alu_imm(op::AND, R1, other | flag::TIMED as i32);
        asm.jump_if_imm(op::JNE, R1, 0, unusual);
        answered(asm, observe);
        asm.mov_imm(R0, hook::XDP_TX);
        asm.exit();

        asm.bind(unusual);
        asm.mov_imm(R8, hook::XDP_TX);
        asm.alu_imm(op::AND, R1, other);
        asm.jump_if_imm(op::JEQ, R1, 0, count);
        asm.jump_if_imm(op::JEQ, R1, flag::REPLY_BY_REDIRECT as i32, redirect);

        mark_for_exit(asm, None, failed);
        hook::set(asm, R8, Action::Pass);
        asm.jump(count);
    }

    asm.bind(redirect);
    asm.field(R1, R6, Field::Ifindex);
    asm.mov_imm(R2, 0);
    asm.call(helper::REDIRECT);
    asm.mov(R8, R0);

    asm.bind(count);
    answered(asm, observe);
    timed::end(asm, handler_ns);
    asm.mov(R0, R8);
    asm.exit();

    asm.bind(failed);
    super::end_with(
        asm,
        Count::DroppedNoHeadroom,
        Some(Count::Committed),
        Action::Drop,
    );
    asm.jump(finish);
}

/// Counts an answer. Clobbers `r0`-`r5`.
fn answered(asm: &mut Assembler, observe: bool) {
    let out = asm.label();
    parts::find_row(asm, out);
    parts::count(asm, R0, Count::Answered);
    parts::count(asm, R0, Count::Committed);
    if observe {
        let note = Note::end(Word::Is(Count::Answered as u32));
        observe::note(
            asm,
            Note {
                frame: true,
                ..note
            },
        );
    }
    asm.bind(out);
}
