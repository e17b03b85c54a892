//! The half for UDP datagrams that are not plain.
//!
//! Behind VLAN tags, IPv4 options or IPv6 extension headers, or a fragment. Their
//! headers lie where the facts say, so they are copied into the context and judged
//! there: by the same rules in the same order as the plain halves.

use ashway_abi::context::{self, fact, flag};
use ashway_abi::trusted::HEADERS_BYTES;
use ashway_check::bpf::{Assembler, Label, Reg, Size, op};
use ashway_wire::{eth, ipv4};

use super::{
    Labels, Spec, UDP, add_flags, if_no_checksum, if_raw, if_segments, if_several,
    no_partial_checksum, received, tag_beside,
};
use crate::hook;
use crate::parts::{self, Packet, be16};
use Reg::{R0, R1, R2, R3, R4, R5, R6, R9};

/// Where the copies lie: in the frames of promoted functions, which do not run
/// yet.
const IP: i16 = context::FRAMES;
/// The longest IPv4 header is 60 bytes.
const UDP_HEADER: i16 = IP + 64;

/// What the headers say, by both versions of IP alike.
const IP_BYTES: i16 = context::SCRATCH;
const IP_HEADER_BYTES: i16 = context::SCRATCH + 4;

/// The facts are in the context. Goes on to `dispatch` or `whole_checksum`.
pub(super) fn emit(asm: &mut Assembler, spec: &Spec, labels: &Labels) {
    if_raw(asm, spec, labels);
    asm.load(Size::B, R1, R9, fact::PROTOCOL);
    asm.jump_if_imm(op::JNE, R1, i32::from(ipv4::PROTOCOL_UDP), labels.host);
    asm.load(Size::W, R2, R9, fact::TRANSPORT);
    asm.jump_if_imm(op::JEQ, R2, 0, labels.host);
    copy(asm, UDP_HEADER, 8, labels.host);
    asm.load(Size::W, R4, R9, fact::TRANSPORT);
    asm.load(Size::W, R2, R9, fact::NETWORK);
    asm.alu(op::SUB, R4, R2);
    asm.store(Size::W, R9, IP_HEADER_BYTES, R4);

    let ipv6 = asm.label();
    let both = asm.label();
    asm.load(Size::H, R1, R9, fact::ETHERTYPE);
    asm.jump_if_imm(op::JNE, R1, be16(eth::TYPE_IPV4), ipv6);
    ipv4_header(asm, labels);
    asm.jump(both);
    asm.bind(ipv6);
    ipv6_header(asm, labels);
    asm.bind(both);
    ip_length(asm, labels);
    ipv4_checksum(asm, labels);
    udp_length(asm, labels);
    if_unchecked(asm, spec, labels);
    udp_checksum(asm, spec, labels);
}

/// Copies `bytes` of the frame at offset `r2` to this place in the context.
/// Clobbers `r0`-`r5`.
fn copy(asm: &mut Assembler, to: i16, bytes: i32, fail: Label) {
    asm.mov_imm(R4, bytes);
    copy_some(asm, to, fail);
}

/// The same for `r4` bytes.
fn copy_some(asm: &mut Assembler, to: i16, fail: Label) {
    asm.mov(R1, R6);
    asm.mov(R3, R9);
    asm.alu_imm(op::ADD, R3, i32::from(to));
    hook::load_bytes(asm);
    asm.jump_if_imm(op::JNE, R0, 0, fail);
}

/// `r4` is the header's length, `r2` where it starts. Zeros behind it add nothing
/// to its sum.
fn ipv4_header(asm: &mut Assembler, labels: &Labels) {
    for at in (0..64).step_by(8) {
        asm.store_imm(Size::D, R9, IP + at, 0);
    }
    // The walk found it so long.
    asm.jump_if_imm(op::JLT, R4, 20, labels.host);
    asm.jump_if_imm(op::JGT, R4, 60, labels.host);
    copy_some(asm, IP, labels.host);
    version(asm, 4, labels.host);
    matched(asm, labels);
    asm.load(Size::H, R2, R9, IP + 2);
    asm.to_be(Size::H, R2);
    asm.store(Size::W, R9, IP_BYTES, R2);
}

fn ipv6_header(asm: &mut Assembler, labels: &Labels) {
    copy(asm, IP, 40, labels.host);
    version(asm, 6, labels.host);
    matched(asm, labels);
    add_flags(asm, flag::IPV6);
    asm.load(Size::H, R2, R9, IP + 4);
    asm.to_be(Size::H, R2);
    asm.alu_imm(op::ADD, R2, 40);
    asm.store(Size::W, R9, IP_BYTES, R2);
}

/// A header of another version is not what the type promised, and the host's.
fn version(asm: &mut Assembler, version: i32, host: Label) {
    asm.load(Size::B, R1, R9, IP);
    asm.alu_imm(op::RSH, R1, 4);
    asm.jump_if_imm(op::JNE, R1, version, host);
}

/// From here on the frame is the path's.
fn matched(asm: &mut Assembler, labels: &Labels) {
    received(asm, labels, 0);
    tag_beside(asm);
    asm.load(Size::B, R1, R9, fact::FRAGMENT);
    asm.jump_if_imm(op::JNE, R1, 0, labels.fragment);
}

/// The IP packet holds its headers and lies in the frame.
fn ip_length(asm: &mut Assembler, labels: &Labels) {
    hook::frame_len(asm);
    asm.load(Size::W, R2, R9, IP_BYTES);
    asm.load(Size::W, R4, R9, IP_HEADER_BYTES);
    asm.jump_if(op::JGT, R4, R2, labels.bad_length);
    asm.load(Size::W, R1, R9, fact::NETWORK);
    asm.alu(op::ADD, R1, R2);
    asm.jump_if(op::JGT, R1, R0, labels.bad_length);
}

/// The datagram holds its header and lies in the packet, and the headers fit
/// where a message waits.
fn udp_length(asm: &mut Assembler, labels: &Labels) {
    // r2 = bytes of the IP packet, r3 = of UDP, r4 = before UDP.
    asm.load(Size::W, R2, R9, IP_BYTES);
    asm.load(Size::H, R3, R9, UDP_HEADER + 4);
    asm.to_be(Size::H, R3);
    asm.jump_if_imm(op::JLT, R3, i32::from(UDP), labels.bad_length);
    asm.load(Size::W, R4, R9, IP_HEADER_BYTES);
    asm.alu(op::ADD, R4, R3);
    asm.jump_if(op::JGT, R4, R2, labels.bad_length);
    asm.alu_imm(op::SUB, R3, i32::from(UDP));
    asm.store(Size::W, R9, context::PAYLOAD_LEN, R3);
    asm.load(Size::W, R2, R9, fact::TRANSPORT);
    asm.alu_imm(op::ADD, R2, i32::from(UDP));
    asm.jump_if_imm(op::JGT, R2, HEADERS_BYTES as i32, labels.bad_length);
    asm.store(Size::W, R9, context::PAYLOAD_OFF, R2);
}

/// What is not read to its end is not summed either.
fn if_unchecked(asm: &mut Assembler, spec: &Spec, labels: &Labels) {
    asm.load(Size::W, R3, R9, context::PAYLOAD_LEN);
    asm.jump_if_imm(op::JGT, R3, parts::MAX_PAYLOAD, labels.unchecked);
    if_segments(asm, labels);
    if_several(asm, spec, labels);
}

/// RFC 791 §3.1. IPv6 has none.
fn ipv4_checksum(asm: &mut Assembler, labels: &Labels) {
    let good = asm.label();
    asm.load(Size::W, R1, R9, context::FLAGS);
    asm.alu_imm(op::AND, R1, flag::IPV6 as i32);
    asm.jump_if_imm(op::JNE, R1, 0, good);
    asm.mov_imm(R5, 0);
    for word in 0..15 {
        asm.load(Size::W, R1, R9, IP + word * 4);
        asm.alu(op::ADD, R5, R1);
    }
    parts::sums_to_ones(asm, R5, R1, labels.bad_ip_checksum);
    asm.bind(good);
}

fn udp_checksum(asm: &mut Assembler, spec: &Spec, labels: &Labels) {
    let ipv6 = asm.label();
    let sum = asm.label();
    asm.load(Size::H, R3, R9, UDP_HEADER + 6);
    asm.load(Size::W, R1, R9, context::FLAGS);
    asm.alu_imm(op::AND, R1, flag::IPV6 as i32);
    asm.jump_if_imm(op::JNE, R1, 0, ipv6);
    if_no_checksum(asm, labels, true);
    asm.jump(sum);
    asm.bind(ipv6);
    if_no_checksum(asm, labels, false);
    asm.bind(sum);
    asm.load(Size::H, R5, R9, UDP_HEADER + 4);
    // IPv4's addresses are followed by zeros.
    for word in (fact::SOURCE..fact::DESTINATION + 16).step_by(4) {
        asm.load(Size::W, R1, R9, word);
        asm.alu(op::ADD, R5, R1);
    }
    no_partial_checksum(asm, labels);
    if spec.packet == Packet::Pointers {
        parts::udp_header(asm, labels.bad_length);
    }
    asm.jump(labels.whole_checksum);
}
