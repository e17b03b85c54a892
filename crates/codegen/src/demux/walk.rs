//! The header walk in eBPF: a frame's facts, for frames that are not plain.
//!
//! The same steps in the same order as [`ashway_wire::Headers::parse`]; a test
//! holds the two together, on whole frames and on frames cut at every length.
//! Facts and the place of the next header lie in the context, where the verifier
//! forgets what it knew: so it reads each step once and not once for every way
//! that leads there.
//!
//! Source: as there, and IEEE 802.1Q §9.6, RFC 791 §3.1, RFC 8200 §4, RFC 7348 §5.

use ashway_abi::context::{self, fact};
use ashway_check::bpf::{Assembler, Hook, Label, Reg, Size, op, skb};
use ashway_wire::{Fragment, eth, headers, ipv4, ipv6, vxlan};

use crate::hook;
use crate::parts::{Packet, be16};
use Reg::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R9};

/// Where headers are copied that no pointer may reach: in the frames of promoted
/// functions, which do not run yet.
const COPY: i16 = context::FRAMES;

/// Where the next header starts; in the end, the transport header.
const CURSOR: i16 = fact::TRANSPORT;
/// Where the header behind this one starts.
const NEXT: i16 = context::SCRATCH;
/// What the header behind this one is.
const NEXT_KIND: i16 = context::SCRATCH + 4;

/// Types of VLAN tags, the usual one first.
const TAGS: [u16; 3] = [eth::TYPE_VLAN, 0x88a8, 0x9100];

/// Numbers of the extension headers that are stepped over.
fn walked() -> impl Iterator<Item = u8> {
    (0..=u8::MAX).filter(|kind| ipv6::is_walked(*kind))
}

/// Beyond any place that the walk comes to; the verifier wants a bound.
const FARTHEST: i32 = 0x7fff;

/// Writes every [`fact`] of the frame into the context in `r9`. `r6` is
/// `md`, `r7` and `r8` are the packet's bounds, between which at least an
/// Ethernet header lies. Clobbers `r0`-`r5`.
pub(super) fn emit(asm: &mut Assembler, packet: Packet) {
    let done = asm.label();
    for at in (fact::NETWORK..fact::END).step_by(8) {
        asm.store_imm(Size::D, R9, at, 0);
    }
    let mut walk = Walk { asm, packet, done };
    walk.link();
    walk.network();
    asm.bind(done);
}

struct Walk<'a> {
    asm: &'a mut Assembler,
    packet: Packet,
    done: Label,
}

impl Walk<'_> {
    /// Ethernet and its tags. Half a tag leaves no type.
    fn link(&mut self) {
        let behind = self.asm.label();
        if self.asm.hook() == Hook::Tcx {
            let within = self.asm.label();
            let asm = &mut *self.asm;
            asm.load(Size::W, R1, R6, skb::VLAN_PRESENT);
            asm.jump_if_imm(op::JEQ, R1, 0, within);
            asm.load(Size::W, R1, R6, skb::VLAN_TCI);
            asm.to_be(Size::H, R1);
            asm.store(Size::H, R9, fact::VLAN, R1);
            asm.store_imm(Size::B, R9, fact::VLANS, 1);
            self.tags(1, behind);
            self.asm.bind(within);
        }
        self.tags(0, behind);
        self.asm.bind(behind);
        self.asm.store(Size::H, R9, fact::ETHERTYPE, R2);
    }

    /// The tags in the frame, before which so many lie beside it. To `behind` with the type of
    /// what follows in `r2`.
    fn tags(&mut self, beside: i16, behind: Label) {
        let Self { asm, done, .. } = self;
        asm.load(Size::H, R2, R7, 12);
        for tag in beside..eth::MAX_TAGS as i16 {
            let tagged = asm.label();
            let start = 14 + (tag - beside) * 4;
            asm.store_imm(Size::W, R9, CURSOR, i32::from(start));
            for kind in TAGS {
                asm.jump_if_imm(op::JEQ, R2, be16(kind), tagged);
            }
            asm.jump(behind);
            asm.bind(tagged);
            let whole = asm.label();
            asm.mov(R1, R7);
            asm.alu_imm(op::ADD, R1, i32::from(start) + 4);
            asm.jump_if(op::JLE, R1, R8, whole);
            asm.store_imm(Size::W, R9, CURSOR, 0);
            asm.jump(*done);
            asm.bind(whole);
            asm.load(Size::H, R1, R7, start);
            asm.store(Size::H, R9, fact::VLAN + tag * 2, R1);
            asm.store_imm(Size::B, R9, fact::VLANS, (2 << tag) - 1);
            asm.load(Size::H, R2, R7, start + 2);
        }
        let end = 14 + 4 * (eth::MAX_TAGS as i32 - i32::from(beside));
        asm.store_imm(Size::W, R9, CURSOR, end);
        asm.jump(behind);
    }

    /// `r1` = the next header, of which `bytes` must be there, less the offset
    /// that is returned; to `short` if they are not. Clobbers `r0`-`r5`, but for
    /// pointers only `r3` and `r4`.
    fn header(&mut self, bytes: i32, short: Label) -> i16 {
        let asm = &mut *self.asm;
        match self.packet {
            Packet::Pointers => {
                asm.load(Size::W, R3, R9, CURSOR);
                asm.jump_if_imm(op::JGT, R3, FARTHEST, short);
                asm.mov(R1, R7);
                asm.alu(op::ADD, R1, R3);
                asm.mov(R4, R1);
                asm.alu_imm(op::ADD, R4, bytes);
                asm.jump_if(op::JGT, R4, R8, short);
                0
            }
            Packet::Helpers => {
                asm.mov(R1, R6);
                asm.load(Size::W, R2, R9, CURSOR);
                asm.mov(R3, R9);
                asm.alu_imm(op::ADD, R3, i32::from(COPY));
                asm.mov_imm(R4, bytes);
                hook::load_bytes(asm);
                asm.jump_if_imm(op::JNE, R0, 0, short);
                asm.mov(R1, R9);
                COPY
            }
        }
    }

    /// To `beyond` if the place in the context at `place` is behind the frame.
    fn within(&mut self, place: i16, beyond: Label) {
        let asm = &mut *self.asm;
        match self.packet {
            Packet::Pointers => {
                asm.load(Size::W, R3, R9, place);
                asm.jump_if_imm(op::JGT, R3, FARTHEST, beyond);
                asm.mov(R1, R7);
                asm.alu(op::ADD, R1, R3);
                asm.jump_if(op::JGT, R1, R8, beyond);
            }
            Packet::Helpers => {
                hook::frame_len(asm);
                asm.load(Size::W, R3, R9, place);
                asm.jump_if(op::JGT, R3, R0, beyond);
            }
        }
    }

    fn network(&mut self) {
        let ipv6 = self.asm.label();
        let short = self.asm.label();
        let transport = self.asm.label();
        let nothing = self.asm.label();
        self.asm.load(Size::W, R3, R9, CURSOR);
        self.asm.store(Size::W, R9, fact::NETWORK, R3);
        self.asm
            .jump_if_imm(op::JEQ, R2, be16(eth::TYPE_IPV6), ipv6);
        self.asm
            .jump_if_imm(op::JNE, R2, be16(eth::TYPE_IPV4), nothing);
        self.ipv4(transport, short, nothing);
        self.asm.bind(ipv6);
        self.ipv6(transport, short, nothing);

        self.asm.bind(transport);
        self.transport(nothing);
        self.asm.bind(short);
        self.asm.store_imm(Size::W, R9, fact::NETWORK, 0);
        self.asm.bind(nothing);
        self.asm.store_imm(Size::W, R9, fact::TRANSPORT, 0);
    }

    fn ipv4(&mut self, transport: Label, short: Label, nothing: Label) {
        let at = self.header(ipv4::HEADER_BYTES as i32, short);
        let asm = &mut *self.asm;
        for (from, to) in [(12, fact::SOURCE), (16, fact::DESTINATION)] {
            asm.load(Size::W, R2, R1, at + from);
            asm.store(Size::W, R9, to, R2);
        }
        asm.load(Size::B, R2, R1, at + 9);
        asm.store(Size::B, R9, fact::PROTOCOL, R2);
        asm.load(Size::H, R2, R1, at + 6);
        // r4 = the header's length.
        asm.load(Size::B, R4, R1, at);
        asm.alu_imm(op::AND, R4, 0x0f);
        asm.alu_imm(op::LSH, R4, 2);
        part(asm, 0x1fff, 0x2000);
        asm.jump_if_imm(op::JEQ, R3, Fragment::Later as i32, nothing);
        asm.jump_if_imm(op::JLT, R4, ipv4::HEADER_BYTES as i32, nothing);
        asm.load(Size::W, R3, R9, CURSOR);
        asm.alu(op::ADD, R3, R4);
        asm.store(Size::W, R9, CURSOR, R3);
        asm.jump(transport);
    }

    fn ipv6(&mut self, transport: Label, short: Label, nothing: Label) {
        let at = self.header(ipv6::HEADER_BYTES as i32, short);
        let asm = &mut *self.asm;
        for word in (0..32).step_by(8) {
            asm.load(Size::D, R2, R1, at + 8 + word);
            asm.store(Size::D, R9, fact::SOURCE + word, R2);
        }
        asm.load(Size::B, R2, R1, at + 6);
        asm.store(Size::B, R9, fact::PROTOCOL, R2);
        asm.load(Size::W, R3, R9, CURSOR);
        asm.alu_imm(op::ADD, R3, ipv6::HEADER_BYTES as i32);
        asm.store(Size::W, R9, CURSOR, R3);
        for _ in 0..headers::EXTENSION_HEADERS {
            self.extension(transport, nothing);
        }
        let asm = &mut *self.asm;
        asm.load(Size::B, R2, R9, fact::PROTOCOL);
        for kind in walked() {
            asm.jump_if_imm(op::JEQ, R2, i32::from(kind), nothing);
        }
        asm.jump(transport);
    }

    /// Steps over one extension header; to `transport` if this is none, to
    /// `nothing` if it is not whole or what follows is a later fragment.
    fn extension(&mut self, transport: Label, nothing: Label) {
        let known = self.asm.label();
        let fragment = self.asm.label();
        let next = self.asm.label();
        self.asm.load(Size::B, R2, R9, fact::PROTOCOL);
        for kind in walked() {
            self.asm.jump_if_imm(op::JEQ, R2, i32::from(kind), known);
        }
        self.asm.jump(transport);

        self.asm.bind(known);
        let at = self.header(8, nothing);
        let asm = &mut *self.asm;
        asm.load(Size::B, R5, R1, at);
        asm.store(Size::B, R9, NEXT_KIND, R5);
        asm.load(Size::B, R2, R9, fact::PROTOCOL);
        asm.load(Size::W, R3, R9, CURSOR);
        asm.jump_if_imm(op::JEQ, R2, i32::from(ipv6::FRAGMENT), fragment);
        asm.load(Size::B, R5, R1, at + 1);
        asm.alu_imm(op::ADD, R5, 1);
        asm.alu_imm(op::LSH, R5, 3);
        asm.alu(op::ADD, R3, R5);
        asm.store(Size::W, R9, NEXT, R3);
        self.within(NEXT, nothing);
        let asm = &mut *self.asm;
        asm.jump(next);

        asm.bind(fragment);
        asm.alu_imm(op::ADD, R3, 8);
        asm.store(Size::W, R9, NEXT, R3);
        asm.load(Size::H, R2, R1, at + 2);
        part(asm, 0xfff8, 1);
        asm.jump_if_imm(op::JNE, R3, Fragment::Later as i32, next);
        asm.load(Size::B, R2, R9, NEXT_KIND);
        asm.store(Size::B, R9, fact::PROTOCOL, R2);
        asm.jump(nothing);

        asm.bind(next);
        asm.load(Size::B, R2, R9, NEXT_KIND);
        asm.store(Size::B, R9, fact::PROTOCOL, R2);
        asm.load(Size::W, R3, R9, NEXT);
        asm.store(Size::W, R9, CURSOR, R3);
    }

    /// Ports, and the identifier of a VXLAN tunnel. Goes to `done`, or to
    /// `nothing` if the frame ends before.
    fn transport(&mut self, nothing: Label) {
        let done = self.done;
        let ports = self.asm.label();
        self.asm.load(Size::B, R2, R9, fact::PROTOCOL);
        for protocol in super::emit::protocols_with_ports() {
            self.asm
                .jump_if_imm(op::JEQ, R2, i32::from(protocol), ports);
        }
        self.within(CURSOR, nothing);
        self.asm.jump(done);

        self.asm.bind(ports);
        let at = self.header(4, nothing);
        let asm = &mut *self.asm;
        asm.load(Size::W, R2, R1, at);
        asm.store(Size::W, R9, fact::SOURCE_PORT, R2);
        asm.load(Size::B, R2, R9, fact::PROTOCOL);
        asm.jump_if_imm(op::JNE, R2, i32::from(ipv4::PROTOCOL_UDP), done);
        asm.load(Size::H, R2, R9, fact::DESTINATION_PORT);
        asm.jump_if_imm(op::JNE, R2, be16(vxlan::PORT), done);
        let at = self.header(16, done);
        let asm = &mut *self.asm;
        asm.load(Size::B, R2, R1, at + 8);
        asm.alu_imm(op::AND, R2, i32::from(vxlan::FLAG_IDENTIFIER));
        asm.jump_if_imm(op::JEQ, R2, 0, done);
        // The upper three of four bytes, as a number of four.
        asm.load(Size::W, R2, R1, at + 12);
        asm.to_be(Size::W, R2);
        asm.alu_imm(op::RSH, R2, 8);
        asm.to_be(Size::W, R2);
        asm.store(Size::W, R9, fact::VNI, R2);
        asm.store_imm(Size::B, R9, fact::VNI_THERE, 1);
        asm.jump(done);
    }
}

/// Notes which part of a datagram this is, by the word in `r2` (network order)
/// and its bits for the offset and for more to follow. `r3` = the same; clobbers
/// `r2`.
fn part(asm: &mut Assembler, offset: u16, more: u16) {
    let known = asm.label();
    asm.mov_imm(R3, Fragment::Later as i32);
    asm.mov(R5, R2);
    asm.alu_imm(op::AND, R5, be16(offset));
    asm.jump_if_imm(op::JNE, R5, 0, known);
    asm.mov_imm(R3, Fragment::First as i32);
    asm.alu_imm(op::AND, R2, be16(more));
    asm.jump_if_imm(op::JNE, R2, 0, known);
    asm.mov_imm(R3, Fragment::No as i32);
    asm.bind(known);
    asm.store(Size::B, R9, fact::FRAGMENT, R3);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_those_of_the_definition() {
        let tags = (0..=u16::MAX).filter(|kind| eth::is_tag(*kind));
        assert_eq!(tags.collect::<Vec<_>>(), TAGS);
    }
}
