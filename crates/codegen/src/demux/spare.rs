//! Shapes that came after the program: looked up by masks that are data
//! ([`ashway_demux::spare`]).
//!
//! As long as there is none, a program asks one word for each frame and goes on. While
//! there are some, every frame is walked, plain ones too, and its facts are masked and
//! looked up, the most specific shape first. What is found here waits for the shapes of
//! the program that are more specific: only the rank is kept, and the entry is looked up
//! again, by the key that is still there, when it has won. So the verifier sees one
//! state behind all of this.

use ashway_abi::context::{self, fact};
use ashway_check::bpf::{Assembler, Label, MapRef, Reg, Size, helper, op};
use ashway_demux::spare::{self, EXCLUSIONS, KEY_BYTES, RAWS, SLOTS, WORDS, layout};
use ashway_demux::{Base, Specificity};
use ashway_wire::{eth, ipv4};

use super::emit::{Exits, PLAIN_IPV4, PLAIN_IPV6, protocols_with_ports};
use super::view::{Version, View};
use crate::bug::{self, Bug};
use crate::hook;
use crate::parts::{self, be16};
use Reg::{R0, R1, R2, R3, R4, R5, R6, R7, R9, R10};

/// The number of the map [`MapRef::Shape`] that has the entries of all spares.
pub const MAP: u32 = u32::MAX;

/// Stack: whether the frame may be plain after all.
const MAY_BE_PLAIN: i16 = -20;
/// Stack: the slots that are still to be tried.
const ORDER: i16 = -32;
/// Context: exclusions that hold.
const EXCLUDED: i16 = context::SCRATCH + 32;
/// Context, in the frames of promoted functions, which do not run yet: the key.
const KEY: i16 = context::FRAMES + 64;
/// The same: bytes of the frame. Behind the key.
const PLACES: i16 = KEY + KEY_BYTES as i16;

/// Words that are facts.
const FACTS: i16 = (fact::END - fact::SOURCE) / 8;

/// To `some` if there are shapes that are data; `at` is where they lie. Clobbers `r1`.
pub(super) fn ask(asm: &mut Assembler, at: u32, some: Label) {
    order(asm, at);
    asm.jump_if_imm(op::JNE, R1, 0, some);
}

/// `r1` = the slots that are to be tried.
fn order(asm: &mut Assembler, at: u32) {
    asm.map(R1, MapRef::Hits, Some(at + layout::ORDER as u32));
    asm.load(Size::D, R1, R1, 0);
}

/// Notes whether a frame that is walked may be plain.
pub(super) fn note(asm: &mut Assembler, may_be_plain: bool) {
    asm.store_imm(Size::W, R10, MAY_BE_PLAIN, i32::from(may_be_plain));
}

/// Looks the frame up whose facts are in the context in `r9`: the rank of what is found
/// is [`context::SPARE`], and its key stays. Clobbers `r0`-`r5`.
pub(super) fn emit(asm: &mut Assembler, at: u32) {
    let decided = asm.label();
    let none = asm.label();
    order(asm, at);
    asm.jump_if_imm(op::JEQ, R1, 0, none);
    asm.store(Size::D, R10, ORDER, R1);
    reach(asm);
    places(asm, at);
    exclusions(asm, at);
    for _ in 0..SLOTS {
        slot(asm, at, decided, none);
    }
    asm.bind(none);
    asm.store_imm(Size::W, R9, context::SPARE, 0);
    asm.bind(decided);
}

/// What of the headers is there, as bits.
fn reach(asm: &mut Assembler) {
    asm.load(Size::B, R2, R9, fact::VLANS);
    asm.alu_imm(op::AND, R2, 3);
    asm.alu_imm(op::LSH, R2, fact::REACHES_VLAN.trailing_zeros() as i32);
    for (at, bit) in [
        (fact::NETWORK, fact::REACHES_NETWORK),
        (fact::TRANSPORT, fact::REACHES_TRANSPORT),
    ] {
        let lacks = asm.label();
        asm.load(Size::W, R1, R9, at);
        asm.jump_if_imm(op::JEQ, R1, 0, lacks);
        asm.alu_imm(op::OR, R2, i32::from(bit));
        asm.bind(lacks);
    }
    asm.store(Size::B, R9, fact::REACH, R2);
}

/// Copies the places of the frame that are asked for.
fn places(asm: &mut Assembler, at: u32) {
    let done = asm.label();
    for number in 0..RAWS {
        let ethernet = asm.label();
        let network = asm.label();
        let next = asm.label();
        let to = PLACES + 4 * number as i16;
        let place = layout::RAWS_AT + number * layout::RAW_BYTES;
        asm.map(R5, MapRef::Hits, Some(at + place as u32));
        asm.load(Size::B, R4, R5, 3);
        asm.jump_if_imm(op::JEQ, R4, 0, done);
        asm.jump_if_imm(op::JGT, R4, 4, done);
        asm.store_imm(Size::W, R9, to, 0);
        asm.load(Size::H, R2, R5, 0);
        asm.load(Size::B, R3, R5, 2);
        asm.jump_if_imm(op::JEQ, R3, i32::from(spare::base(Base::Eth)), ethernet);
        asm.load(Size::W, R1, R9, fact::NETWORK);
        asm.jump_if_imm(op::JEQ, R3, i32::from(spare::base(Base::L3)), network);
        asm.load(Size::W, R1, R9, fact::TRANSPORT);
        asm.bind(network);
        asm.jump_if_imm(op::JEQ, R1, 0, next);
        asm.alu(op::ADD, R2, R1);
        asm.bind(ethernet);
        asm.mov(R1, R6);
        asm.mov(R3, R9);
        asm.alu_imm(op::ADD, R3, i32::from(to));
        hook::load_bytes(asm);
        asm.jump_if_imm(op::JNE, R0, 0, next);
        asm.load(Size::B, R1, R9, fact::RAWS);
        asm.alu_imm(op::OR, R1, 1 << number);
        asm.store(Size::B, R9, fact::RAWS, R1);
        asm.bind(next);
    }
    asm.bind(done);
}

/// `into` = a word of the frame's.
fn word(asm: &mut Assembler, number: usize, into: Reg) {
    let number = number as i16;
    let at = if number < FACTS {
        fact::SOURCE + 8 * number
    } else {
        PLACES + 8 * (number - FACTS)
    };
    asm.load(Size::D, into, R9, at);
}

/// Which exclusions hold, as bits.
fn exclusions(asm: &mut Assembler, at: u32) {
    let done = asm.label();
    asm.store_imm(Size::D, R9, EXCLUDED, 0);
    for number in 0..EXCLUSIONS {
        let next = asm.label();
        let place = layout::EXCLUSIONS_AT + number * layout::EXCLUSION_BYTES;
        asm.map(R5, MapRef::Hits, Some(at + place as u32));
        asm.load(Size::D, R1, R5, 0);
        asm.jump_if_imm(op::JEQ, R1, 0, done);
        asm.mov_imm(R2, 0);
        for number in 0..WORDS {
            let mask = 8 + 8 * number as i16;
            word(asm, number, R3);
            asm.load(Size::D, R4, R5, mask);
            asm.alu(op::AND, R3, R4);
            asm.load(Size::D, R4, R5, mask + 8 * WORDS as i16);
            asm.alu(op::XOR, R3, R4);
            asm.alu(op::OR, R2, R3);
        }
        asm.jump_if_imm(op::JNE, R2, 0, next);
        asm.load(Size::D, R1, R9, EXCLUDED);
        asm.alu_imm(op::OR, R1, 1 << number);
        asm.store(Size::D, R9, EXCLUDED, R1);
        asm.bind(next);
    }
    asm.bind(done);
}

/// Tries the next slot: goes to `decided` if there is an entry, to `none` if there is no
/// slot left.
fn slot(asm: &mut Assembler, at: u32, decided: Label, none: Label) {
    let next = asm.label();
    asm.load(Size::D, R1, R10, ORDER);
    asm.mov(R2, R1);
    asm.alu_imm(op::AND, R2, 0xff);
    asm.jump_if_imm(op::JEQ, R2, 0, none);
    asm.alu_imm(op::RSH, R1, 8);
    asm.store(Size::D, R10, ORDER, R1);
    asm.alu_imm(op::SUB, R2, 1);
    asm.alu_imm(op::AND, R2, SLOTS as i32 - 1);
    asm.store(Size::D, R9, KEY, R2);
    const { assert!(layout::SLOT_BYTES.is_power_of_two()) };
    let shift = layout::SLOT_BYTES.trailing_zeros();
    asm.alu_imm(op::LSH, R2, shift as i32);
    asm.map(R5, MapRef::Hits, Some(at + layout::SLOTS_AT as u32));
    asm.alu(op::ADD, R5, R2);
    asm.load(Size::D, R1, R5, 0);
    asm.load(Size::D, R3, R9, EXCLUDED);
    asm.alu(op::AND, R1, R3);
    asm.jump_if_imm(op::JNE, R1, 0, next);
    asm.load(Size::W, R1, R5, 8);
    asm.store(Size::W, R9, context::SPARE, R1);
    for number in 0..WORDS {
        let mask = layout::MASK as i16 + 8 * number as i16;
        word(asm, number, R3);
        if !bug::is(Bug::DemuxSpareMaskDropped) {
            asm.load(Size::D, R4, R5, mask);
            asm.alu(op::AND, R3, R4);
        }
        asm.store(Size::D, R9, KEY + 8 + 8 * number as i16, R3);
    }
    look_up(asm);
    asm.jump_if_imm(op::JNE, R0, 0, decided);
    asm.bind(next);
}

/// `r0` = the entry of the key.
fn look_up(asm: &mut Assembler) {
    asm.map(R1, MapRef::Shape(MAP), None);
    asm.mov(R2, R9);
    asm.alu_imm(op::ADD, R2, i32::from(KEY));
    asm.call(helper::MAP_LOOKUP_ELEM);
}

/// To `won` if what was found is more specific than the program's next shape.
pub(super) fn before(asm: &mut Assembler, next: Specificity, won: Label) {
    if bug::is(Bug::DemuxSpareOrderIgnored) {
        return;
    }
    asm.load(Size::W, R1, R9, context::SPARE);
    asm.jump_if_imm(op::JGT, R1, spare::rank(next) as i32, won);
}

/// No shape of the program has an entry: to `won` if something was found, else to
/// `miss`.
pub(super) fn behind(asm: &mut Assembler, won: Label, miss: Label) {
    asm.load(Size::W, R1, R9, context::SPARE);
    asm.jump_if_imm(op::JNE, R1, 0, won);
    asm.jump(miss);
}

/// What was found has won: its value is in `r0` at `value`. To `miss` if it has gone
/// meanwhile.
pub(super) fn won(asm: &mut Assembler, value: Label, miss: Label) {
    look_up(asm);
    asm.jump_if_imm(op::JNE, R0, 0, value);
    asm.jump(miss);
}

/// A path was found by facts: a plain frame, which was walked for the spares' sake, goes
/// on as one.
pub(super) fn found(asm: &mut Assembler, exits: Exits) {
    let ipv6 = asm.label();
    asm.load(Size::W, R1, R10, MAY_BE_PLAIN);
    asm.jump_if_imm(op::JEQ, R1, 0, exits.other);
    parts::need(asm, PLAIN_IPV4, exits.other);
    asm.load(Size::H, R1, R7, 12);
    asm.jump_if_imm(op::JEQ, R1, be16(eth::TYPE_IPV6), ipv6);
    asm.jump_if_imm(op::JNE, R1, be16(eth::TYPE_IPV4), exits.other);
    asm.load(Size::B, R1, R7, 14);
    asm.jump_if_imm(op::JNE, R1, 0x45, exits.other);
    asm.load(Size::H, R1, R7, 20);
    asm.alu_imm(op::AND, R1, be16(0x3fff));
    asm.jump_if_imm(op::JNE, R1, 0, exits.other);
    plain(asm, Version::V4, exits);
    asm.bind(ipv6);
    parts::need(asm, PLAIN_IPV6, exits.other);
    asm.load(Size::B, R1, R7, 14);
    asm.alu_imm(op::AND, R1, 0xf0);
    asm.jump_if_imm(op::JNE, R1, 0x60, exits.other);
    plain(asm, Version::V6, exits);
}

fn plain(asm: &mut Assembler, version: Version, exits: Exits) {
    let ports = asm.label();
    asm.load(Size::B, R2, R7, version.protocol());
    for protocol in protocols_with_ports() {
        asm.jump_if_imm(op::JEQ, R2, i32::from(protocol), ports);
    }
    asm.jump(exits.other);
    asm.bind(ports);
    let [udp, other] = [ipv4::PROTOCOL_UDP, 0].map(|protocol| View::Plain(version, protocol));
    asm.load(Size::W, R1, R9, context::FLAGS);
    asm.alu_imm(op::OR, R1, udp.flags() as i32);
    asm.store(Size::W, R9, context::FLAGS, R1);
    let protocol = i32::from(ipv4::PROTOCOL_UDP);
    asm.jump_if_imm(op::JEQ, R2, protocol, exits.found(udp));
    asm.jump(exits.found(other));
}
