//! Demux in eBPF: from a frame to the leaf of its path.
//!
//! Most frames are *plain*: untagged IPv4 without options or IPv6 without
//! extension headers, not a fragment, and then UDP, TCP or SCTP. Their fields lie
//! at constant places, so they are compared or looked up where they are. For all
//! others the [walk](super::walk) writes the facts into the context first. The
//! shapes follow in the table's order by way of the [tree](super::tree), once
//! for each of these three views of a frame.

use ashway_abi::context::{self, fact, flag};
use ashway_abi::trusted::HEADERS_BYTES;
use ashway_abi::{Leaf, leaf};
use ashway_check::bpf::{Assembler, Hook, Image, Label, MapRef, Reg, Size, helper, op, skb};
use ashway_demux::{Field, KeyField, Layer, MAX_KEY_BYTES, Shape, Test};
use ashway_wire::{eth, ipv4, vxlan};

use super::compiled::{CELL_BYTES, Compiled, Constant, Entries, GONE};
use super::spare;
use super::tree::{self, Guard, Node};
use super::view::{FieldPlace, Version, View};
use super::walk;
use crate::bug::{self, Bug};
use crate::hook;
use crate::parts::{self, Packet, be16};
use Reg::{R0, R1, R2, R3, R4, R6, R7, R9, R10};

/// What the program's demux is made of.
#[derive(Clone, Copy, Debug)]
pub struct Spec<'t> {
    /// Shapes in the order they are tried.
    pub shapes: &'t [Compiled<'t>],
    /// Where the [spares](ashway_demux::spare) lie
    /// ([`spares_at`](super::compiled::spares_at)), if the program has any.
    pub spares: Option<u32>,
    /// Contexts there are: one for each possible CPU.
    pub cpus: u32,
    /// How packets are read.
    pub packet: Packet,
}

/// Where demux goes, with the leaf in the context in `r9` and the packet's bounds
/// in `r7` and `r8`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exits {
    /// A path of a plain UDP datagram over IPv4.
    pub(crate) ipv4: Label,
    /// The same over IPv6.
    pub(crate) ipv6: Label,
    /// As these two, of a path that is known to take datagrams, not frames as they are.
    pub(crate) datagram: [Label; 2],
    /// A path of any other plain packet.
    pub(crate) no_udp: Label,
    /// A path of any other frame; its facts are in the context.
    pub(crate) other: Label,
    /// No path. `r9` may be anything.
    pub(crate) miss: Label,
    /// There is no context for this CPU, which cannot be.
    pub(crate) fail: Label,
    /// Flags that every message gets beside those of its path.
    pub(crate) flags: u32,
}

impl Exits {
    /// Where a path leads that was found in this view.
    pub(super) fn found(self, view: View) -> Label {
        match view {
            View::Plain(Version::V4, ipv4::PROTOCOL_UDP) => self.ipv4,
            View::Plain(Version::V6, ipv4::PROTOCOL_UDP) => self.ipv6,
            View::Plain(..) => self.no_udp,
            View::Facts => self.other,
        }
    }

    /// The same where the path's flags are known.
    fn found_with(self, view: View, flags: u32) -> Label {
        match view {
            _ if flags & flag::RAW != 0 => self.found(view),
            View::Plain(Version::V4, ipv4::PROTOCOL_UDP) => self.datagram[0],
            View::Plain(Version::V6, ipv4::PROTOCOL_UDP) => self.datagram[1],
            _ => self.found(view),
        }
    }
}

/// Stack: the entry's value, while the context is found.
const LEAF: i16 = -8;
/// Stack: the key to look up.
const KEY: i16 = -64 - MAX_KEY_BYTES as i16;
/// Stack: bytes that no pointer may reach.
const RAW: i16 = -16;

/// Bytes of an Ethernet header.
const ETHERNET: i32 = 14;
/// Bytes of a plain IPv4 packet's headers, up to the end of a UDP header.
pub(crate) const PLAIN_IPV4: i32 = 42;
/// The same of IPv6.
pub(crate) const PLAIN_IPV6: i32 = 62;

/// A program that only decides: it returns the path's tag and counts the hit,
/// or returns [`NO_PATH`]. For measuring, and for asking about single frames.
#[must_use]
pub fn program(spec: &Spec) -> Image {
    program_after(Assembler::new(), spec)
}

/// The same behind what the assembler holds, which leaves `md` in `r1`.
#[must_use]
pub fn program_after(mut asm: Assembler, spec: &Spec) -> Image {
    let found = asm.label();
    let none = asm.label();
    asm.mov(R6, R1);
    hook::packet_bounds(&mut asm);
    let exits = Exits {
        ipv4: found,
        ipv6: found,
        datagram: [found; 2],
        no_udp: found,
        other: found,
        miss: none,
        fail: none,
        flags: 0,
    };
    emit(&mut asm, spec, |_| (), exits);
    asm.bind(found);
    asm.load(Size::W, R0, R9, context::TAG);
    asm.exit();
    asm.bind(none);
    asm.mov_imm(R0, NO_PATH as i32);
    asm.exit();
    asm.finish()
}

/// What [`program`] returns for a frame of no path.
pub const NO_PATH: u32 = u32::MAX;

/// `r6` is `md`, `r7` and `r8` are the packet's bounds. Ends at one of `exits`.
/// `first` comes once it is known that there is an Ethernet header, and may clobber
/// `r1`.
pub(crate) fn emit(asm: &mut Assembler, spec: &Spec, first: impl Fn(&mut Assembler), exits: Exits) {
    if let Some(reach) = reach(spec) {
        hook::pull(asm, reach, 0, exits.miss);
    }
    let ipv6 = asm.label();
    let other = asm.label();
    let short = asm.label();
    let spares = asm.label();
    let walk = asm.label();
    parts::need(asm, PLAIN_IPV4, short);
    first(asm);
    if asm.hook() == Hook::Tcx {
        asm.load(Size::W, R1, R6, skb::VLAN_PRESENT);
        asm.jump_if_imm(op::JNE, R1, 0, other);
    }
    if let Some(at) = spec.spares {
        spare::ask(asm, at, spares);
    }
    asm.load(Size::H, R1, R7, 12);
    asm.jump_if_imm(op::JEQ, R1, be16(eth::TYPE_IPV6), ipv6);
    asm.jump_if_imm(op::JNE, R1, be16(eth::TYPE_IPV4), other);

    asm.load(Size::B, R1, R7, 14);
    asm.jump_if_imm(op::JNE, R1, 0x45, other);
    asm.load(Size::H, R1, R7, 20);
    asm.alu_imm(op::AND, R1, be16(0x3fff));
    asm.jump_if_imm(op::JNE, R1, 0, other);
    plain(asm, spec, Version::V4, other, exits);

    asm.bind(ipv6);
    parts::need(asm, PLAIN_IPV6, other);
    asm.load(Size::B, R1, R7, 14);
    asm.alu_imm(op::AND, R1, 0xf0);
    asm.jump_if_imm(op::JNE, R1, 0x60, other);
    plain(asm, spec, Version::V6, other, exits);

    asm.bind(short);
    parts::need(asm, ETHERNET, exits.miss);
    first(asm);
    asm.bind(other);
    let Some(at) = spec.spares else {
        parts::find_context(asm, spec.cpus, exits.fail);
        headers(asm, exits);
        walk::emit(asm, spec.packet);
        return shapes(asm, spec, View::Facts, exits);
    };
    spare::note(asm, false);
    asm.jump(walk);
    asm.bind(spares);
    spare::note(asm, true);
    asm.bind(walk);
    parts::find_context(asm, spec.cpus, exits.fail);
    headers(asm, exits);
    walk::emit(asm, spec.packet);
    spare::emit(asm, at);
    let found = asm.label();
    let facts = Exits {
        other: found,
        ..exits
    };
    shapes(asm, spec, View::Facts, facts);
    asm.bind(found);
    spare::found(asm, exits);
}

/// How many bytes of a plain packet a shape looks at beyond its headers.
fn reach(spec: &Spec) -> Option<i32> {
    let fields = spec.shapes.iter().flat_map(|one| {
        let excluded = one.shape.not.iter().flatten().map(|test| test.field);
        one.shape.key.iter().map(|part| part.field).chain(excluded)
    });
    let ends = fields.flat_map(|field| {
        let view = |version| View::Plain(version, ipv4::PROTOCOL_UDP);
        [Version::V4, Version::V6].map(|version| match view(version).place(field) {
            FieldPlace::Packet {
                at,
                bytes,
                known: false,
            } => Some(i32::from(at) + bytes as i32),
            _ => None,
        })
    });
    ends.flatten().max()
}

/// Makes the headers that the walk reads one piece, an Ethernet header at least.
fn headers(asm: &mut Assembler, exits: Exits) {
    if asm.hook() == Hook::Tcx {
        hook::pull(asm, HEADERS_BYTES as i32, 0, exits.miss);
        parts::need(asm, ETHERNET, exits.miss);
    }
}

/// The shapes for a packet whose ports are at their usual place: once for each
/// protocol, so that no shape has to ask for it.
fn plain(asm: &mut Assembler, spec: &Spec, version: Version, other: Label, exits: Exits) {
    asm.load(Size::B, R1, R7, version.protocol());
    for protocol in protocols_with_ports() {
        let next = asm.label();
        asm.jump_if_imm(op::JNE, R1, i32::from(protocol), next);
        // What a tunnel's packets say of themselves, the walk finds.
        let tunnels = spec.shapes.iter().any(|one| asks(one.shape, Field::Vni));
        if tunnels && protocol == ipv4::PROTOCOL_UDP {
            asm.load(Size::H, R1, R7, version.ports() + 2);
            asm.jump_if_imm(op::JEQ, R1, be16(vxlan::PORT), other);
        }
        shapes(asm, spec, View::Plain(version, protocol), exits);
        asm.bind(next);
    }
    asm.jump(other);
}

/// Protocols whose headers start with two ports, UDP first.
pub(super) fn protocols_with_ports() -> impl Iterator<Item = u8> {
    let others = (0..=u8::MAX).filter(|p| ipv4::has_ports(*p) && *p != ipv4::PROTOCOL_UDP);
    std::iter::once(ipv4::PROTOCOL_UDP).chain(others)
}

fn asks(shape: &Shape, field: Field) -> bool {
    let excluded = shape.not.iter().flatten();
    shape.key.iter().any(|part| part.field == field)
        || excluded.into_iter().any(|test| test.field == field)
}

fn shapes(asm: &mut Assembler, spec: &Spec, view: View, exits: Exits) {
    let nodes = tree::plan(spec.shapes.iter().map(|one| one.shape), |guard| {
        view.knows(guard)
    });
    let labels: Vec<Label> = nodes.iter().map(|_| asm.label()).collect();
    let value = asm.label();
    // Of frames that are not walked, nothing was looked up there.
    let spares = (view == View::Facts && spec.spares.is_some()).then(|| asm.label());
    let mut emitter = Emitter {
        asm,
        spec,
        view,
        exits,
        value,
        fail: exits.fail,
        flags: exits.flags | view.flags(),
    };
    for (number, node) in nodes.iter().enumerate() {
        emitter.asm.bind(labels[number]);
        let next = match *node {
            Node::Miss => {
                match spares {
                    Some(won) => spare::behind(emitter.asm, won, exits.miss),
                    None => emitter.asm.jump(exits.miss),
                }
                continue;
            }
            Node::Ask(guard, yes, no) => {
                emitter.ask(&guard, labels[no]);
                yes
            }
            Node::Try(shape, next) => {
                if let Some(won) = spares {
                    let shape = spec.shapes[shape].shape;
                    spare::before(emitter.asm, shape.specificity(), won);
                }
                emitter.entry(&spec.shapes[shape], labels[next]);
                next
            }
        };
        if next != number + 1 {
            emitter.asm.jump(labels[next]);
        }
    }
    if let Some(won) = spares {
        emitter.asm.bind(won);
        spare::won(emitter.asm, value, exits.miss);
    }
    emitter.value();
}

struct Emitter<'a, 't> {
    asm: &'a mut Assembler,
    spec: &'a Spec<'t>,
    view: View,
    exits: Exits,
    /// Where an entry's value in `r0` leads.
    value: Label,
    fail: Label,
    /// Added to those of the leaf.
    flags: u32,
}

impl Emitter<'_, '_> {
    fn ask(&mut self, guard: &Guard, no: Label) {
        match guard {
            Guard::Layer(layer) => self.layer(*layer, no),
            Guard::Test(test) => self.test(test, no),
        }
    }

    fn layer(&mut self, layer: Layer, no: Label) {
        let at = match layer {
            _ if self.view != View::Facts => return,
            Layer::Link => return,
            Layer::Network => fact::NETWORK,
            Layer::Transport => fact::TRANSPORT,
        };
        self.asm.load(Size::W, R1, R9, at);
        self.asm.jump_if_imm(op::JEQ, R1, 0, no);
    }

    /// To `no` unless the test holds, of a field whose layer is there.
    fn test(&mut self, test: &Test, no: Label) {
        let part = KeyField {
            field: test.field,
            mask: test.mask,
        };
        self.there(test.field, no);
        self.compare(&part, &test.value[..part.width()], no);
    }

    /// To `no` unless the field is there, as far as its layer does not say so.
    fn there(&mut self, field: Field, no: Label) {
        let asm = &mut *self.asm;
        match self.view.place(field) {
            FieldPlace::Never => asm.jump(no),
            FieldPlace::Always(_)
            | FieldPlace::Packet { known: true, .. }
            | FieldPlace::Context(_, None) => {}
            FieldPlace::Packet { at, bytes, .. } => {
                parts::need(asm, i32::from(at) + bytes as i32, no);
            }
            FieldPlace::Context(_, Some((at, bit))) => {
                asm.load(Size::B, R1, R9, at);
                asm.alu_imm(op::AND, R1, bit);
                asm.jump_if_imm(op::JEQ, R1, 0, no);
            }
            // The helper knows where the frame ends.
            FieldPlace::Behind(base, offset) => {
                asm.mov_imm(R2, 0);
                if let Some(base) = base {
                    asm.load(Size::W, R2, R9, base);
                }
                asm.alu_imm(op::ADD, R2, i32::from(offset));
                asm.store_imm(Size::W, R10, RAW, 0);
                asm.mov(R1, R6);
                asm.mov(R3, R10);
                asm.alu_imm(op::ADD, R3, i32::from(RAW));
                asm.mov_imm(R4, field.width() as i32);
                hook::load_bytes(asm);
                asm.jump_if_imm(op::JNE, R0, 0, no);
            }
        }
    }

    /// `r1` = bytes of a field that is there, as they lie.
    fn load(&mut self, field: Field, at: usize, size: Size) {
        let asm = &mut *self.asm;
        match self.view.place(field) {
            FieldPlace::Never => asm.mov_imm(R1, 0),
            FieldPlace::Always(value) => {
                asm.load_imm(R1, little_endian(&value[at..][..size.bytes() as usize]));
            }
            FieldPlace::Packet { bytes, .. } if at >= bytes => asm.mov_imm(R1, 0),
            FieldPlace::Packet { at: first, .. } => asm.load(size, R1, R7, first + at as i16),
            FieldPlace::Context(first, _) => asm.load(size, R1, R9, first + at as i16),
            FieldPlace::Behind(..) => asm.load(size, R1, R10, RAW + at as i16),
        }
    }

    /// To `no` unless the masked field has this value.
    fn compare(&mut self, part: &KeyField, value: &[u8], no: Label) {
        for (at, size) in pieces(0, part.width(), Size::W) {
            let bytes = at..at + size.bytes() as usize;
            let mask = little_endian(&part.mask[bytes.clone()]);
            if mask == 0 {
                continue;
            }
            self.load(part.field, at, size);
            self.mask(mask, size);
            let wanted = little_endian(&value[bytes]) as u32 as i32;
            self.asm.jump32_if_imm(op::JNE, R1, wanted, no);
        }
    }

    /// Masks `r1`, unless all bits count.
    fn mask(&mut self, mask: u64, size: Size) {
        let all = u64::MAX >> (64 - size.bytes() * 8);
        if mask != all && !bug::is(Bug::DemuxEmitMaskDropped) {
            self.asm.alu32_imm(op::AND, R1, mask as u32 as i32);
        }
    }

    /// The shape's entry for this frame; to `no` if there is none.
    fn entry(&mut self, one: &Compiled, no: Label) {
        for tests in &one.shape.not {
            let may = self.asm.label();
            for test in tests {
                if self.view.knows(&Guard::Test(*test)) == Some(true) {
                    continue;
                }
                self.layer(test.field.layer(), may);
                self.test(test, may);
            }
            self.asm.jump(no);
            self.asm.bind(may);
        }
        let may_go = self.spec.spares.is_some() || matches!(one.entries, Entries::Open(..));
        for entry in one.entries.constants() {
            let next = self.asm.label();
            self.constant(one.shape, entry, may_go, next);
            self.asm.bind(next);
        }
        if let Entries::Open(_, later) = one.entries {
            let cell = later.count * CELL_BYTES as u32;
            self.asm.map(R1, MapRef::Hits, Some(cell));
            self.asm.load(Size::D, R1, R1, 0);
            self.asm.jump_if_imm(op::JEQ, R1, 0, no);
        }
        if let Some(map) = one.entries.map() {
            self.look_up(one.shape, map, no);
        }
    }

    fn look_up(&mut self, shape: &Shape, map: u32, no: Label) {
        let mut end = 0_usize;
        for part in &shape.key {
            self.there(part.field, no);
            // Whole addresses move by double words. Both ends of a copy within
            // the stack have to be aligned.
            let most = match self.view.place(part.field) {
                FieldPlace::Packet { bytes: 16, .. } | FieldPlace::Context(..) if whole(part) => {
                    Size::D
                }
                FieldPlace::Behind(..) if !end.is_multiple_of(part.width()) => Size::B,
                _ => Size::W,
            };
            for (at, size) in pieces(end, part.width(), most) {
                let mask = little_endian(&part.mask[at..at + size.bytes() as usize]);
                let to = KEY + (end + at) as i16;
                if mask == 0 {
                    self.asm.store_imm(size, R10, to, 0);
                } else {
                    self.load(part.field, at, size);
                    self.mask(mask, size);
                    self.asm.store(size, R10, to, R1);
                }
            }
            end += part.width();
        }
        for at in end..shape.key_bytes() {
            self.asm.store_imm(Size::B, R10, KEY + at as i16, 0);
        }
        let asm = &mut *self.asm;
        asm.map(R1, MapRef::Shape(map), None);
        asm.mov(R2, R10);
        asm.alu_imm(op::ADD, R2, i32::from(KEY));
        asm.call(helper::MAP_LOOKUP_ELEM);
        asm.jump_if_imm(op::JNE, R0, 0, self.value);
    }

    fn constant(&mut self, shape: &Shape, entry: &Constant, may_go: bool, no: Label) {
        let mut at = 0;
        for part in &shape.key {
            self.there(part.field, no);
            self.compare(part, &entry.key[at..at + part.width()], no);
            at += part.width();
        }
        let asm = &mut *self.asm;
        if self.view != View::Facts {
            parts::find_context(asm, self.spec.cpus, self.fail);
        }
        asm.map(R1, MapRef::Hits, Some(entry.hits * CELL_BYTES as u32));
        if may_go && !bug::is(Bug::DemuxEmitGoneStays) {
            asm.load(Size::D, R2, R1, GONE);
            asm.jump_if_imm(op::JNE, R2, 0, no);
        }
        add_hit(asm, R1, 0);
        let Leaf {
            row,
            local,
            flags,
            slot,
            tag,
            ..
        } = entry.leaf;
        for (to, word) in [
            (context::ROW, row),
            (context::LOCAL_PATH, local),
            (context::RING_BASE, entry.leaf.rings()),
            (context::FLAGS, flags | self.flags),
            (context::SLOT, slot),
            (context::TAG, tag),
        ] {
            asm.store_imm(Size::W, R9, to, word as i32);
        }
        asm.jump(self.exits.found_with(self.view, flags));
    }

    /// Copies the leaf at `r0` into the context. One copy for all shapes.
    fn value(self) {
        let (asm, flags, found) = (self.asm, self.flags, self.exits.found(self.view));
        asm.bind(self.value);
        add_hit(asm, R0, leaf::HITS);
        if self.view != View::Facts {
            asm.store(Size::D, R10, LEAF, R0);
            parts::find_context(asm, self.spec.cpus, self.fail);
            asm.load(Size::D, R0, R10, LEAF);
        }
        const { assert!(context::LOCAL_PATH == context::ROW + 4) };
        const { assert!(context::RING_COUNT == context::RING_BASE + 2) };
        const { assert!(context::TAG == context::SLOT + 4) };
        for (size, from, to) in [
            (Size::D, leaf::ROW, context::ROW),
            (Size::W, leaf::RING_BASE, context::RING_BASE),
            (Size::W, leaf::FLAGS, context::FLAGS),
            (Size::D, leaf::SLOT, context::SLOT),
        ] {
            asm.load(size, R1, R0, from);
            if to == context::FLAGS {
                asm.alu_imm(op::OR, R1, flags as i32);
            }
            asm.store(size, R9, to, R1);
        }
        asm.jump(found);
    }
}

/// Clobbers `r2`.
fn add_hit(asm: &mut Assembler, at: Reg, offset: i16) {
    asm.load(Size::D, R2, at, offset);
    asm.alu_imm(op::ADD, R2, 1);
    asm.store(Size::D, at, offset, R2);
}

/// Whether all bits of the field's bytes count.
fn whole(part: &KeyField) -> bool {
    part.mask[..part.width()].iter().all(|byte| *byte == 0xff)
}

/// `bytes` bytes from `start` on, in pieces that are aligned there, of `most` at
/// most. Offsets are within the bytes.
fn pieces(start: usize, bytes: usize, most: Size) -> impl Iterator<Item = (usize, Size)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let size = [Size::D, Size::W, Size::H, Size::B]
            .into_iter()
            .filter(|size| size.bytes() <= most.bytes())
            .find(|size| {
                let len = size.bytes() as usize;
                (start + at).is_multiple_of(len) && at + len <= bytes
            })?;
        let piece = (at, size);
        at += size.bytes() as usize;
        Some(piece)
    })
}

/// Up to eight bytes as the number that a load of them gives.
fn little_endian(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}
