//! The forward program: the program behind the slot of a path that only sends on.
//!
//! The entry program has found and judged the UDP datagram; this one gives it new
//! headers and sends it out of another interface. It means what the user tier's
//! path does (`crates/modules`: eth, ip, udp, forward, udp, ip, eth), byte for
//! byte; a test holds the two together. Nothing of the received headers goes on:
//! VLAN tags, options and padding are dropped, hops start afresh, the UDP checksum
//! is computed whole, because what came from a veth may carry half of one
//! (docs/facts.md, "Half a checksum on a veth") and a redirected frame has nobody to
//! complete it.
//!
//! The payload stays where it is: the frame's start moves, so that the new headers
//! end where it begins. Behind that all is at constant places, in both packet
//! modes, whatever the received headers were.
//!
//! The next hop is data ([`Hop`](ashway_abi::Hop), by the leaf's `local`), so one
//! program serves all forward paths of a node and a route changes by one write.
//!
//! * **Never overtake:** as with handlers ([`instance`]), a message is sent on here
//!   only while no earlier one of its path and direction is in the user tier.
//! * **No more than its share:** above [it](ashway_abi::share) a message goes to the user tier,
//!   as with handlers. A path has one account for both directions; what a message costs is
//!   part of the hop, and without a share nothing is asked but that.
//! * **The user tier** gets the whole frame, as it came, where there is no hop, where
//!   the sender is not the one that the hop is for, and what is too long.
//! * **Fates:** `Forwarded` when it is handed to the interface out. That one may
//!   still lose it (its queue is full, its link down): its own counters know.
//!   `DroppedNoHeadroom`.
//! * **Ways out:** a redirect, or through the [exit program](crate::exit). At TCX it is always
//!   the redirect, and a message whose headers change their length goes by the user tier.
//!
//! Source: Qi, Parmer & West 2004, §4.1 and §4.3.

use ashway_abi::context::{self, flag};
use ashway_abi::{Count, hop, trusted};
use ashway_check::bpf::{Assembler, Hook, Image, Label, MapRef, Reg, Size, helper, op};
use ashway_wire::eth::{HEADER_BYTES, TAG_BYTES, TYPE_IPV4, TYPE_IPV6, TYPE_VLAN};
use ashway_wire::ipv4::{DONT_FRAGMENT, PROTOCOL_UDP};

use crate::bug::{self, Bug};
use crate::hook::{self, Action};
use crate::instance::{
    OrderScope, Origin, QueueSpec, enqueue, mark_for_exit, share, whole_checksum,
};
use crate::observe::{self, Note, Word};
use crate::parts::{self, Packet, be16};
use crate::timed;
use Reg::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10};

/// Stack: a copy of what the hop says of the way; below what [`deliver`] has there.
const HOP: i16 = -104 - hop::WAY_BYTES;
/// Stack: what the hop says of the path's share.
const TERMS: i16 = HOP - 8;
/// Stack: where the account of that is; 0 if there is nothing to charge.
const ACCOUNT: i16 = TERMS - 8;
const SHARE: share::AccountAt = share::AccountAt { words: ACCOUNT };

const ETH: i16 = HEADER_BYTES as i16;
const IPV4: i16 = 20;
const IPV6: i16 = 40;
const UDP: i16 = 8;

/// Generates the program. `spec` is of the queue of whole frames;
/// its paths are the hops. Linux 6.9 (`may_goto`).
#[must_use]
pub fn generate(spec: &QueueSpec) -> Image {
    generate_with(spec, false)
}

/// The same program, which says what it does ([`ashway_abi::observe`]) of messages
/// that come from an entry program that does.
#[must_use]
pub fn generate_observed(spec: &QueueSpec) -> Image {
    generate_with(spec, true)
}

fn generate_with(spec: &QueueSpec, observe: bool) -> Image {
    let mut asm = Assembler::at(spec.hook);
    let [host, user, queue, drained, no_room, short] = [(); 6].map(|()| asm.label());
    let draining = asm.label();
    let packet = spec.packet;
    asm.mov(R6, R1);
    parts::find_context(&mut asm, spec.cpus, host);
    if observe {
        observe::turn(&mut asm);
    }
    asm.map(R7, MapRef::Trusted, Some(0));
    turn(&mut asm, spec, host, queue, draining);
    find_hop(&mut asm, spec, user);
    if spec.hook == Hook::Tcx {
        same_headers(&mut asm, user);
    }
    fits(&mut asm, user);
    ask(&mut asm, spec, queue, host);
    note_kernel(&mut asm, spec, host);
    move_start(&mut asm, packet, no_room);
    headers(&mut asm, packet, short);
    leave(&mut asm, no_room, host, observe);
    for (label, fate) in [
        (no_room, Count::DroppedNoHeadroom),
        // Cannot happen while the entry program has checked the lengths.
        (short, Count::DroppedBadLength),
    ] {
        let out = asm.label();
        asm.bind(label);
        charge(&mut asm);
        parts::find_row(&mut asm, out);
        parts::count(&mut asm, R0, fate);
        if observe {
            observe::note(&mut asm, Note::end(Word::Is(fate as u32)));
        }
        asm.bind(out);
        hook::finish(&mut asm, Action::Drop);
    }
    asm.bind(draining);
    account(&mut asm, spec, host);
    asm.jump(drained);
    asm.bind(user);
    asm.mov_imm(R8, Count::QueuedTier as i32);
    asm.bind(queue);
    whole_frame(&mut asm);
    account(&mut asm, spec, host);
    let origin = Origin::Kernel {
        drained,
        share: Some(SHARE),
        path: None,
    };
    enqueue::emit(&mut asm, spec, host, origin, observe);
    asm.bind(host);
    hook::finish(&mut asm, Action::Pass);
    asm.finish()
}

/// While a message before this one is in the user tier, to `queue` with the note in
/// `r8`, or to `drained`.
fn turn(asm: &mut Assembler, spec: &QueueSpec, host: Label, queue: Label, drained: Label) {
    let mine = asm.label();
    enqueue::path_word(asm, spec, None, host);
    enqueue::others(asm, mine, drained);
    // Where there is no hop, the user tier is where the path runs, and it does not
    // drain.
    asm.mov_imm(R8, Count::QueuedTier as i32);
    entry(asm, spec, queue);
    leads(asm, queue);
    asm.mov_imm(R8, Count::QueuedOrder as i32);
    asm.jump(queue);
    asm.bind(mine);
}

/// `r4` = where the path's hop is; to `none` if it has no place.
fn entry(asm: &mut Assembler, spec: &QueueSpec, none: Label) {
    // Other paths that take whole frames have numbers behind the relays'.
    let relays = match spec.order_scope {
        OrderScope::Path { relays } => relays,
        OrderScope::Ring => spec.layout.paths,
    };
    asm.load(Size::W, R1, R9, context::LOCAL_PATH);
    asm.jump_if_imm(op::JGE, R1, relays as i32, none);
    asm.alu_imm(op::LSH, R1, hop::BYTES.trailing_zeros() as i32);
    asm.map(R4, MapRef::Hops, Some(0));
    asm.alu(op::ADD, R4, R1);
}

/// To `nowhere` if the hop at `r4` is empty.
fn leads(asm: &mut Assembler, nowhere: Label) {
    asm.load(Size::W, R1, R4, hop::IFINDEX);
    asm.jump_if_imm(op::JEQ, R1, 0, nowhere);
}

/// Copies what the hop says of the way to the stack, whole ([`hop`]); to `user` if
/// that is nothing, if it is being written, and if the sender is another than its.
fn find_hop(asm: &mut Assembler, spec: &QueueSpec, user: Label) {
    // A frame of whatever protocol has no payload to send on; one that is too long to be read
    // here has not been checked.
    asm.load(Size::W, R1, R9, context::FLAGS);
    asm.alu_imm(op::AND, R1, (flag::RAW | flag::UNCHECKED) as i32);
    asm.jump_if_imm(op::JNE, R1, 0, user);
    entry(asm, spec, user);
    asm.load(Size::W, R5, R4, hop::GENERATION);
    asm.mov(R1, R5);
    asm.alu_imm(op::AND, R1, 1);
    asm.jump_if_imm(op::JNE, R1, 0, user);
    leads(asm, user);
    // A processor of this kind loads in order (x86); the generation comes last.
    for word in (0..hop::WAY_BYTES).step_by(8) {
        asm.load(Size::D, R1, R4, word);
        asm.store(Size::D, R10, HOP + word, R1);
    }
    asm.load(Size::D, R1, R4, hop::TERMS);
    asm.store(Size::D, R10, TERMS, R1);
    from(asm, user);
    asm.load(Size::W, R1, R4, hop::GENERATION);
    asm.jump_if(op::JNE, R1, R5, user);
}

/// To `user` unless the message is from the sender of the hop at `r4`, by headers
/// that lie where they mostly do. Clobbers `r0`-`r3`, `r7`, `r8`.
fn from(asm: &mut Assembler, user: Label) {
    const PLAIN: i32 = flag::PLAIN as i32;
    const PLAIN_IPV6: i32 = (flag::PLAIN | flag::IPV6) as i32;
    let [ipv4, anybody] = [(); 2].map(|()| asm.label());
    asm.load(Size::B, R3, R10, HOP + hop::FLAGS);
    asm.mov(R1, R3);
    asm.alu_imm(op::AND, R1, hop::flag::FROM.into());
    asm.jump_if_imm(op::JEQ, R1, 0, anybody);
    hook::packet_bounds(asm);
    parts::need(asm, (ETH + IPV4 + UDP).into(), user);
    same(asm, user, 6, hop::FROM_MAC, Size::W);
    same(asm, user, 10, hop::FROM_MAC + 4, Size::H);
    asm.load(Size::W, R0, R9, context::FLAGS);
    asm.alu_imm(op::AND, R0, PLAIN_IPV6);
    asm.alu_imm(op::AND, R3, hop::flag::FROM_IPV6.into());
    asm.jump_if_imm(op::JEQ, R3, 0, ipv4);
    asm.jump_if_imm(op::JNE, R0, PLAIN_IPV6, user);
    parts::need(asm, (ETH + IPV6 + UDP).into(), user);
    for word in (0..36).step_by(4) {
        same(asm, user, ETH + 8 + word, hop::FROM_ENDS + word, Size::W);
    }
    asm.jump(anybody);
    asm.bind(ipv4);
    asm.jump_if_imm(op::JNE, R0, PLAIN, user);
    for word in (0..12).step_by(4) {
        same(asm, user, ETH + 12 + word, hop::FROM_ENDS + word, Size::W);
    }
    asm.bind(anybody);
}

/// To `other` unless the frame at `r7` and the hop at `r4` have the same there.
fn same(asm: &mut Assembler, other: Label, frame: i16, hop: i16, size: Size) {
    asm.load(size, R1, R7, frame);
    asm.load(size, R2, R4, hop);
    asm.jump_if(op::JNE, R1, R2, other);
}

/// `r7` = the hop, `r8` = length of all new headers; to `too_long` if the interface
/// out does not take the packet.
fn fits(asm: &mut Assembler, too_long: Label) {
    hop(asm, R7);
    let [ipv4, known] = [(); 2].map(|()| asm.label());
    asm.mov_imm(R8, (IPV4 + UDP).into());
    if_hop(asm, R7, hop::flag::IPV6, ipv4);
    asm.mov_imm(R8, (IPV6 + UDP).into());
    asm.bind(ipv4);
    asm.load(Size::W, R1, R9, context::PAYLOAD_LEN);
    asm.alu(op::ADD, R1, R8);
    asm.load(Size::W, R2, R7, hop::MTU);
    asm.jump_if(op::JGT, R1, R2, too_long);
    asm.alu_imm(op::ADD, R8, ETH.into());
    if_hop(asm, R7, hop::flag::TAGGED, known);
    asm.alu_imm(op::ADD, R8, TAG_BYTES as i32);
    asm.bind(known);
}

/// To `user` unless the new headers have the length and the kind of those that it came with:
/// at TCX the start of a frame moves only by copying what is behind, and not for every kind.
fn same_headers(asm: &mut Assembler, user: Label) {
    let ipv4 = asm.label();
    hop(asm, R4);
    asm.load(Size::B, R3, R4, hop::FLAGS);
    asm.mov(R1, R3);
    asm.alu_imm(op::AND, R1, hop::flag::TAGGED.into());
    asm.jump_if_imm(op::JNE, R1, 0, user);
    asm.load(Size::W, R2, R9, context::FLAGS);
    asm.alu_imm(op::AND, R2, (flag::PLAIN | flag::IPV6) as i32);
    asm.mov_imm(R1, flag::PLAIN as i32);
    asm.alu_imm(op::AND, R3, hop::flag::IPV6.into());
    asm.jump_if_imm(op::JEQ, R3, 0, ipv4);
    asm.mov_imm(R1, (flag::PLAIN | flag::IPV6) as i32);
    asm.bind(ipv4);
    asm.jump_if(op::JNE, R1, R2, user);
}

/// Finds where the path's account is: in the word of its forward direction, the first of two
/// whose first is odd. `r7` = trusted words. Clobbers `r1`, `r2`.
fn account(asm: &mut Assembler, spec: &QueueSpec, host: Label) {
    asm.load(Size::W, R2, R9, context::LOCAL_PATH);
    asm.jump_if_imm(op::JGE, R2, spec.layout.paths as i32, host);
    asm.alu_imm(op::ADD, R2, 1);
    if !bug::is(Bug::RelayAccountForEach) {
        asm.alu_imm(op::AND, R2, -2);
    }
    asm.alu_imm(op::LSH, R2, trusted::PATH_STRIDE.trailing_zeros() as i32);
    asm.mov(R1, R7);
    asm.alu(op::ADD, R1, R2);
    let first = spec.layout.path_word(0) - trusted::PATH_STRIDE;
    asm.alu_imm(op::ADD, R1, first as i32);
    asm.store(Size::D, R10, ACCOUNT, R1);
}

/// To `queue` with the note in `r8` if the path is above its share. Clobbers `r0`-`r5`, `r7`.
fn ask(asm: &mut Assembler, spec: &QueueSpec, queue: Label, host: Label) {
    let within = asm.label();
    // Nothing to charge.
    asm.store_imm(Size::D, R10, ACCOUNT, 0);
    asm.load(Size::W, R1, R10, TERMS);
    if !bug::is(Bug::RelayAlwaysAsked) {
        asm.jump_if_imm(op::JEQ, R1, 0, within);
    }
    asm.map(R7, MapRef::Trusted, Some(0));
    account(asm, spec, host);
    share::ask(asm, SHARE, within);
    asm.mov_imm(R8, Count::QueuedShare as i32);
    asm.jump(queue);
    asm.bind(within);
}

/// A message that was not led to the user tier has been run. Clobbers `r0`-`r5`.
fn charge(asm: &mut Assembler) {
    let free = asm.label();
    asm.load(Size::D, R1, R10, ACCOUNT);
    asm.jump_if_imm(op::JEQ, R1, 0, free);
    share::charge(asm, SHARE, share::Price::Shared(TERMS));
    asm.bind(free);
}

/// Notes on which CPU this message leaves: one that follows it into a ring must
/// wait until it has.
fn note_kernel(asm: &mut Assembler, spec: &QueueSpec, host: Label) {
    asm.call(helper::GET_SMP_PROCESSOR_ID);
    asm.alu_imm(op::ADD, R0, 1);
    asm.map(R7, MapRef::Trusted, Some(0));
    enqueue::path_word(asm, spec, None, host);
    asm.store(Size::W, R1, trusted::PATH_BEHIND_KERNEL as i16, R0);
}

/// Makes the message what paths of the user tier take: the frame, as it came. `r7`
/// = trusted words.
fn whole_frame(asm: &mut Assembler) {
    hook::frame_len(asm);
    asm.alu_imm(op::SUB, R0, ETH.into());
    asm.store(Size::W, R9, context::PAYLOAD_LEN, R0);
    asm.store_imm(Size::W, R9, context::PAYLOAD_OFF, ETH.into());
    asm.load(Size::W, R1, R9, context::FLAGS);
    asm.alu_imm(op::OR, R1, flag::RAW as i32);
    asm.store(Size::W, R9, context::FLAGS, R1);
    asm.map(R7, MapRef::Trusted, Some(0));
}

/// `to` = the hop's copy.
fn hop(asm: &mut Assembler, to: Reg) {
    asm.mov(to, R10);
    asm.alu_imm(op::ADD, to, HOP.into());
}

/// Makes the frame as long as the payload with its new headers, `r8` bytes, which
/// begin at its start.
fn move_start(asm: &mut Assembler, packet: Packet, no_room: Label) {
    // What is behind the payload is padding.
    let exact = asm.label();
    hook::frame_len(asm);
    asm.load(Size::W, R2, R9, context::PAYLOAD_OFF);
    asm.load(Size::W, R3, R9, context::PAYLOAD_LEN);
    asm.alu(op::ADD, R2, R3);
    asm.alu(op::SUB, R2, R0);
    asm.jump_if_imm(op::JEQ, R2, 0, exact);
    hook::move_tail(asm);
    asm.jump_if_imm(op::JNE, R0, 0, no_room);
    asm.bind(exact);

    if asm.hook() == Hook::Tcx {
        return;
    }
    let placed = asm.label();
    asm.load(Size::W, R2, R9, context::PAYLOAD_OFF);
    asm.alu(op::SUB, R2, R8);
    if packet == Packet::Helpers {
        // By it the payload is copied.
        asm.store(Size::W, R9, context::PAYLOAD_OFF, R8);
    }
    asm.jump_if_imm(op::JEQ, R2, 0, placed);
    asm.mov(R1, R6);
    asm.call(helper::XDP_ADJUST_HEAD);
    asm.jump_if_imm(op::JNE, R0, 0, no_room);
    asm.bind(placed);
}

/// Goes on if the hop at `hop` has this flag, else to `without`. Clobbers `r1`.
fn if_hop(asm: &mut Assembler, hop: Reg, flag: u8, without: Label) {
    asm.load(Size::B, R1, hop, hop::FLAGS);
    asm.alu_imm(op::AND, R1, flag.into());
    asm.jump_if_imm(op::JEQ, R1, 0, without);
}

/// Writes all headers. `r0` = the hop from here on, as no helper is called.
fn headers(asm: &mut Assembler, packet: Packet, short: Label) {
    let [plain, ipv4, udp] = [(); 3].map(|()| asm.label());
    hook::packet_bounds(asm);
    hop(asm, R0);
    parts::need(asm, (ETH + IPV4 + UDP).into(), short);
    asm.load(Size::D, R1, R0, hop::MACS);
    asm.store(Size::D, R7, 0, R1);
    asm.load(Size::W, R1, R0, hop::MACS + 8);
    asm.store(Size::W, R7, 8, R1);
    if_hop(asm, R0, hop::flag::TAGGED, plain);
    asm.store_imm(Size::H, R7, ETH - 2, be16(TYPE_VLAN));
    asm.load(Size::H, R1, R0, hop::VLAN);
    asm.store(Size::H, R7, ETH, R1);
    asm.alu_imm(op::ADD, R7, TAG_BYTES as i32);
    asm.bind(plain);
    // r4 = UDP's length, r5 = the sum of addresses.
    asm.load(Size::W, R4, R9, context::PAYLOAD_LEN);
    asm.alu_imm(op::ADD, R4, UDP.into());
    if_hop(asm, R0, hop::flag::IPV6, ipv4);

    parts::need(asm, (ETH + IPV6 + UDP).into(), short);
    ipv6_header(asm);
    asm.alu_imm(op::ADD, R2, (ETH + IPV6).into());
    asm.jump(udp);

    asm.bind(ipv4);
    parts::need(asm, (ETH + IPV4 + UDP).into(), short);
    ipv4_header(asm);
    asm.alu_imm(op::ADD, R2, (ETH + IPV4).into());
    asm.bind(udp);
    udp_header(asm, packet, short);
}

/// RFC 8200 §3, without traffic class and flow label. `r2` = `r7`.
fn ipv6_header(asm: &mut Assembler) {
    asm.store_imm(Size::H, R7, ETH - 2, be16(TYPE_IPV6));
    asm.store_imm(Size::W, R7, ETH, 0x60);
    asm.to_be(Size::H, R4);
    asm.store(Size::H, R7, ETH + 4, R4);
    asm.store_imm(Size::B, R7, ETH + 6, PROTOCOL_UDP.into());
    asm.load(Size::B, R1, R0, hop::HOPS);
    asm.store(Size::B, R7, ETH + 7, R1);
    asm.mov_imm(R5, 0);
    for word in (0..32).step_by(4) {
        asm.load(Size::W, R1, R0, hop::SOURCE + word);
        asm.store(Size::W, R7, ETH + 8 + word, R1);
        asm.alu(op::ADD, R5, R1);
    }
    asm.mov(R2, R7);
}

/// RFC 791 §3.1, without options, fragments and a type of service; not to be
/// fragmented, as all have the same identification (RFC 6864 §4.1). `r2` = `r7`.
fn ipv4_header(asm: &mut Assembler) {
    /// Version and length of the header; the flag; hops and protocol: as a load sees
    /// them.
    const VERSION: i32 = 0x45;
    const WHOLE: i32 = DONT_FRAGMENT as i32;
    const PROTOCOL: i32 = (PROTOCOL_UDP as i32) << 8;
    asm.store_imm(Size::H, R7, ETH - 2, be16(TYPE_IPV4));
    asm.mov(R3, R4);
    asm.alu_imm(op::ADD, R3, IPV4.into());
    asm.to_be(Size::H, R3);
    asm.to_be(Size::H, R4);
    asm.store_imm(Size::H, R7, ETH, VERSION);
    asm.store(Size::H, R7, ETH + 2, R3);
    asm.store_imm(Size::W, R7, ETH + 4, WHOLE << 16);
    asm.load(Size::B, R1, R0, hop::HOPS);
    asm.alu_imm(op::OR, R1, PROTOCOL);
    asm.store(Size::H, R7, ETH + 8, R1);
    asm.alu(op::ADD, R3, R1);
    asm.load(Size::W, R5, R0, hop::SOURCE);
    asm.store(Size::W, R7, ETH + 12, R5);
    asm.load(Size::W, R1, R0, hop::DESTINATION);
    asm.store(Size::W, R7, ETH + 16, R1);
    asm.alu(op::ADD, R5, R1);
    asm.alu(op::ADD, R3, R5);
    asm.alu_imm(op::ADD, R3, VERSION + WHOLE);
    parts::fold_short(asm, R3, R1);
    asm.alu_imm(op::XOR, R3, 0xffff);
    asm.store(Size::H, R7, ETH + 10, R3);
    asm.mov(R2, R7);
}

/// RFC 768. `r2` = the header, where the received one was: its length is still
/// right. `r4` = that length, in network order, `r5` = the sum of addresses.
fn udp_header(asm: &mut Assembler, packet: Packet, short: Label) {
    let [whole, written] = [(); 2].map(|()| asm.label());
    asm.load(Size::W, R3, R0, hop::PORTS);
    asm.store(Size::W, R2, 0, R3);
    asm.alu(op::ADD, R5, R4);
    asm.alu_imm(op::ADD, R5, be16(PROTOCOL_UDP.into()));

    // As a reply's: by TCX, also through the exit program, a half checksum stays half. The
    // UDP header lies where it did relative to the payload, so it is found.
    if asm.hook() == Hook::Xdp {
        if_hop(asm, R0, hop::flag::BY_TCX, whole);
    }
    asm.load(Size::W, R1, R9, context::FLAGS);
    asm.alu_imm(op::AND, R1, flag::CHECKSUM_PARTIAL as i32);
    asm.jump_if_imm(op::JEQ, R1, 0, whole);
    parts::fold_short(asm, R5, R1);
    asm.store(Size::H, R2, 6, R5);
    asm.jump(written);

    // The length counts twice, in the pseudo-header too.
    asm.bind(whole);
    asm.alu(op::ADD, R5, R3);
    asm.alu(op::ADD, R5, R4);
    whole_checksum(asm, packet, short);
    asm.bind(written);
}

/// Counts and sends, by the way that the hop names.
fn leave(asm: &mut Assembler, no_room: Label, host: Label, observe: bool) {
    let [redirect, count] = [(); 2].map(|()| asm.label());
    hop(asm, R7);
    if asm.hook() == Hook::Xdp {
        if_hop(asm, R7, hop::flag::BY_TCX, redirect);
        asm.load(Size::W, R8, R7, hop::IFINDEX);
        mark_for_exit(asm, Some(R8), no_room);
        hook::set(asm, R8, Action::Pass);
        asm.jump(count);
    }

    asm.bind(redirect);
    asm.load(Size::W, R1, R7, hop::IFINDEX);
    asm.mov_imm(R2, 0);
    asm.call(helper::REDIRECT);
    asm.mov(R8, R0);

    asm.bind(count);
    charge(asm);
    parts::find_row(asm, host);
    parts::count(asm, R0, Count::Forwarded);
    if observe {
        let note = Note::end(Word::Is(Count::Forwarded as u32));
        observe::note(
            asm,
            Note {
                frame: true,
                ..note
            },
        );
    }
    timed::end(asm, 0);
    asm.mov(R0, R8);
    asm.exit();
}
