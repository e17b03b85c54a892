//! Puts a message into the instance's ring for the user tier.
//!
//! One ring per receive queue, or for some of an interface's, where it has more queues than
//! the instance has rings for it; an interface that came later shares the rings of all. A driver serves a queue on one CPU at a time, but
//! generic XDP behind a veth runs on whichever CPU sends, so a slot is taken by
//! compare-and-exchange and published when it is filled. All of it goes to where no
//! application can write: the descriptor to the trusted words, the frame to the pool behind
//! them, into the block that the slot has.

use ashway_abi::{Count, context, trusted};

use super::{OrderScope, QueueSpec, Spec, chain, fill, flow, share};
use crate::bug::{self, Bug};
use crate::hook::{self, Action};
use crate::observe::{self, Note, Word};
use crate::parts;
use Reg::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10};
use ashway_abi::MemoryKind;
use ashway_check::bpf::{
    Assembler, Atomic, Field, Hook, Label, MapRef, Reg, Size, helper, op, skb,
};

/// Stack: the slot's number among those of all rings, or in the endpoint.
pub(super) const SLOT: i16 = -48;
/// Stack: the ring's control block.
const RING: i16 = -56;
/// Stack: the slot's descriptor.
const DESCRIPTOR: i16 = -64;
/// Stack: what the wake ring is told (its bytes mean nothing).
pub(super) const BELL: i16 = -72;
/// Stack: the slot's number in the ring's sequence.
pub(super) const TICKET: i16 = -80;
/// Stack: the path's trusted word.
pub(super) const PATH_WORD: i16 = -88;
/// Stack: how many slots the message takes beside its first.
pub(super) const MORE: i16 = -96;
/// Stack: the slot's [`trusted::SLOT_LONG`].
pub(super) const LONG: i16 = -104;

/// `BPF_RB_FORCE_WAKEUP`.
const FORCE_WAKEUP: i32 = 2;

/// Whose program leads messages to the user tier.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Origin {
    /// That of a path that runs there.
    User,
    /// One of the kernel tier.
    Kernel {
        /// Where it goes with messages that are dropped, not put.
        drained: Label,
        /// Where its account is if the path may have a [share].
        share: Option<share::AccountAt>,
        /// The path's number, if the program is of one alone.
        path: Option<usize>,
    },
}

/// `r1` = the path's trusted word (`in_user` first): that of the path with this number, if
/// the program knows it, else of the context's. `r7` = trusted words.
pub(crate) fn path_word(asm: &mut Assembler, spec: &QueueSpec, path: Option<usize>, host: Label) {
    asm.mov(R1, R7);
    if path.is_none() {
        asm.load(Size::W, R2, R9, context::LOCAL_PATH);
        asm.jump_if_imm(op::JGE, R2, spec.layout.paths as i32, host);
        asm.alu_imm(op::LSH, R2, trusted::PATH_STRIDE.trailing_zeros() as i32);
        asm.alu(op::ADD, R1, R2);
    }
    let own = path.filter(|_| !bug::is(Bug::NumberForgotten));
    let at = spec.layout.path_word(own.unwrap_or_default());
    asm.alu_imm(op::ADD, R1, at as i32);
}

/// `r1` = the number of this queue's ring, `r2` = its control block; to `fail`
/// if there is none. `r6` = `md`, `r7` = trusted words, `r9` = the context.
/// Clobbers `r3`.
fn ring(asm: &mut Assembler, spec: &QueueSpec, fail: Label) {
    let [own, some] = [(); 2].map(|()| asm.label());
    asm.load(Size::H, R1, R9, context::RING_BASE);
    asm.load(Size::H, R3, R9, context::RING_COUNT);
    hook::rx_queue(asm, R2);
    asm.jump_if(op::JLT, R2, R3, own);
    asm.jump_if_imm(op::JNE, R3, 0, some);
    asm.mov_imm(R3, spec.layout.rings as i32);
    asm.bind(some);
    asm.alu32(op::MOD, R2, R3);
    asm.bind(own);
    asm.alu32(op::ADD, R1, R2);
    parts::launder(asm, R1);
    asm.jump_if_imm(op::JGE, R1, spec.layout.rings as i32, fail);
    asm.mov(R2, R1);
    asm.alu_imm(op::LSH, R2, trusted::RING_STRIDE.trailing_zeros() as i32);
    asm.alu(op::ADD, R2, R7);
    asm.alu_imm(op::ADD, R2, trusted::RINGS as i32);
}

/// `r1` = the number of this queue's [mark](trusted::RING_BEHIND_KERNEL) among those of
/// its ring; adds its offset to `r2`. Other registers as [`ring`].
fn mark(asm: &mut Assembler) {
    let first = asm.label();
    let exact = asm.label();
    hook::rx_queue(asm, R3);
    asm.load(Size::H, R4, R9, context::RING_COUNT);
    asm.mov_imm(R1, 0);
    asm.jump_if(op::JLT, R3, R4, first);
    if !bug::is(Bug::SharedRingMarked) {
        // Its queues have the numbers of other interfaces' queues.
        asm.mov_imm(R1, SHARED_MARK);
        asm.jump_if_imm(op::JEQ, R4, 0, exact);
    }
    asm.mov(R1, R3);
    asm.alu32(op::DIV, R1, R4);
    asm.jump_if_imm(op::JLT, R1, SHARED_MARK, exact);
    asm.mov_imm(R1, SHARED_MARK);
    asm.bind(exact);
    // Laundered: without CAP_PERFMON the verifier takes no pointer that a constant is added
    // to on one way and an unknown number on another.
    asm.load(Size::D, R3, R9, context::ZERO);
    asm.alu(op::ADD, R3, R1);
    asm.alu_imm(op::AND, R3, MARKS);
    asm.alu_imm(op::LSH, R3, 2);
    asm.alu(op::ADD, R2, R3);
    asm.bind(first);
}

/// The mark of all queues that have none of their own.
const SHARED_MARK: i32 = trusted::RING_MARKS as i32 - 1;
/// All bits of a mark.
const MARKS: i32 = trusted::RING_MARKS.next_power_of_two() as i32 - 1;

/// Notes that this queue's message runs in the kernel tier: what follows it into
/// the ring must wait until it has left. Registers as [`ring`]; clobbers `r4`.
pub(super) fn note_kernel(asm: &mut Assembler, spec: &QueueSpec) {
    let out = asm.label();
    if spec.layout.rings == 1 {
        let other = asm.label();
        let at = trusted::RINGS + trusted::RING_BEHIND_KERNEL;
        hook::rx_queue(asm, R2);
        asm.jump_if_imm(op::JNE, R2, 0, other);
        asm.load(Size::H, R2, R9, context::RING_COUNT);
        asm.jump_if_imm(op::JEQ, R2, 0, other);
        asm.store_imm(Size::W, R7, at as i16, 1);
        asm.jump(out);
        asm.bind(other);
    }
    ring(asm, spec, out);
    mark(asm);
    asm.store_imm(Size::W, R2, trusted::RING_BEHIND_KERNEL as i16, 1);
    asm.bind(out);
}

/// To `mine` if none of the path's messages is in the user tier, to `drained` if the
/// path is [draining](trusted::DRAINING). `r1` = its trusted word.
pub(crate) fn others(asm: &mut Assembler, mine: Label, drained: Label) {
    asm.load(Size::W, R2, R1, 0);
    asm.jump_if_imm(op::JEQ, R2, 0, mine);
    if_drains(asm, mine, drained);
}

/// To `drained` if the word `r2` of a path, or of a bucket, says that it drains.
pub(super) fn if_drains(asm: &mut Assembler, mine: Label, drained: Label) {
    if !bug::is(Bug::DrainQueues) {
        let to = if bug::is(Bug::DrainOvertakes) {
            mine
        } else {
            drained
        };
        // The mark is the sign.
        asm.jump32_if_imm(op::JSLT, R2, 0, to);
    }
}

/// `r6` = `md`, `r7` = trusted words, `r8` = the note to count, `r9` = the
/// context. Ends the program, or jumps to `host`.
pub(crate) fn emit(
    asm: &mut Assembler,
    spec: &QueueSpec,
    host: Label,
    origin: Origin,
    observe: bool,
) {
    let full = asm.label();
    let over = asm.label();
    let too_long = asm.label();
    let void = asm.label();
    // In the user tier the worker says how a path stands: it has one program for all.
    let account = match origin {
        Origin::User => Some(share::AccountAt::OWN),
        Origin::Kernel { share, .. } => share,
    };

    parts::launder(asm, R8);
    asm.load(Size::W, R4, R9, context::PAYLOAD_OFF);
    asm.load(Size::W, R5, R9, context::PAYLOAD_LEN);
    if asm.hook() == Hook::Tcx {
        fill::lengthen(asm);
    }
    asm.jump_if_imm(op::JEQ, R4, 0, too_long);
    asm.jump_if_imm(op::JGT, R4, trusted::HEADERS_BYTES as i32, too_long);
    chain::judge(asm, &spec.layout, too_long);
    let path = match origin {
        Origin::User => None,
        Origin::Kernel { path, .. } => path,
    };
    path_word(asm, spec, path, host);
    asm.store(Size::D, R10, PATH_WORD, R1);
    let by_flow = spec.order_scope == OrderScope::Ring;
    if by_flow {
        flow::note(asm);
        asm.load(Size::D, R1, R10, PATH_WORD);
    }
    if let Some(account) = account {
        share::room(asm, account, over);
    }
    part(asm, spec, full, over);
    take_slot(asm, spec, full);

    fill::emit(asm, spec, void);

    // The message counts as in the user tier before it can be seen there.
    asm.load(Size::D, R1, R10, PATH_WORD);
    asm.mov_imm(R2, 1);
    asm.atomic(Atomic::Add, Size::W, R1, 0, R2);
    let short = asm.label();
    asm.load(Size::D, R2, R10, MORE);
    asm.jump_if_imm(op::JEQ, R2, 0, short);
    asm.atomic(Atomic::Add, Size::W, R1, trusted::PATH_CHAINED as i16, R2);
    asm.bind(short);
    if by_flow {
        flow::count(asm, spec);
    }
    behind(asm, spec);
    if observe {
        asm.load(Size::D, R1, R10, DESCRIPTOR);
        observe::number_slot(asm, R1);
    }
    publish(asm);
    wake(asm);

    let out = asm.label();
    let tell = asm.label();
    hook::set(asm, R7, Action::Drop);
    asm.jump(tell);
    // Taken but not filled: never, the lengths have been checked. The worker
    // steps over it.
    asm.bind(void);
    asm.load(Size::D, R1, R10, DESCRIPTOR);
    asm.store_imm(Size::W, R1, trusted::SLOT_PAYLOAD_OFF as i16, 0);
    publish(asm);
    asm.jump(too_long);
    let lost = asm.label();
    asm.bind(over);
    if let OrderScope::Path { relays } = spec.order_scope {
        // A ring that is full has no part for anybody: who is over meets it first.
        count_in_word(asm, relays);
        no_room(asm, spec, origin);
        asm.mov_imm(R8, Count::DroppedQueueFull as i32);
        asm.jump(lost);
        asm.bind(full);
    } else {
        asm.bind(full);
        no_room(asm, spec, origin);
        asm.mov_imm(R8, Count::DroppedQueueFull as i32);
        asm.load(Size::W, R1, R7, trusted::PARTED as i16);
        asm.jump_if_imm(op::JNE, R1, 0, lost);
    }
    asm.mov_imm(R8, Count::DroppedRingFull as i32);
    asm.bind(lost);
    if let Some(account) = account {
        share::blame(asm, account);
    }
    hook::set(asm, R7, Action::Drop);
    asm.jump(tell);
    asm.bind(too_long);
    asm.mov_imm(R8, Count::DroppedTooLong as i32);
    hook::set(asm, R7, Action::Drop);
    asm.bind(tell);
    // Through the context, so that the verifier walks the rest once.
    asm.store(Size::W, R9, super::END_FATE, R8);
    parts::find_row(asm, out);
    asm.load(Size::W, R3, R9, super::END_FATE);
    super::add_one(asm, out);
    if asm.hook() == Hook::Tcx {
        other_segments(asm, out);
    }
    asm.bind(out);
    if observe {
        observe::note(asm, Note::end(Word::At(super::END_FATE)));
    }
    asm.mov(R0, R7);
    asm.exit();
}

/// Counts the other messages of many behind one header as the first was counted: `r0` = the row,
/// `r2` = that counter. Those of a frame that is dropped are received here, too, as there is
/// nobody else to know of them; the others when the worker has taken the frame apart.
fn other_segments(asm: &mut Assembler, out: Label) {
    asm.load(Size::W, R1, R6, skb::GSO_SIZE);
    asm.jump_if_imm(op::JEQ, R1, 0, out);
    asm.load(Size::W, R1, R6, skb::GSO_SEGS);
    asm.jump_if_imm(op::JLE, R1, 1, out);
    asm.alu_imm(op::SUB, R1, 1);
    asm.load(Size::D, R3, R2, 0);
    asm.alu(op::ADD, R3, R1);
    asm.store(Size::D, R2, 0, R3);
    asm.load(Size::W, R3, R9, super::END_FATE);
    asm.jump_if_imm(op::JGE, R3, Count::QueuedTier as i32, out);
    asm.load(Size::D, R3, R0, Count::Received as i16 * 8);
    asm.alu(op::ADD, R3, R1);
    asm.store(Size::D, R0, Count::Received as i16 * 8, R3);
}

/// To `over` if the path has as many messages in the user tier, and slots of long ones, as its
/// queue's ring has free slots: a path alone may fill half of the ring, and however many paths are flooded,
/// a further one finds as much room as each of them has (A. K. Choudhury and E. L. Hahne,
/// *Dynamic Queue Length Thresholds for Shared-Memory Packet Switches*, 1998, with a factor
/// of 1). A path that is alone on its handler has all of the ring. Clobbers `r1`-`r5`.
fn part(asm: &mut Assembler, spec: &QueueSpec, full: Label, over: Label) {
    if bug::is(Bug::PathTakesRing) {
        return;
    }
    let fits = asm.label();
    if let OrderScope::Path { relays } = spec.order_scope {
        // That of all paths without a number: which one has filled the ring nobody knows.
        let exempt = if bug::is(Bug::RelayTakesRing) {
            relays as i32
        } else {
            1
        };
        asm.load(Size::W, R2, R9, context::LOCAL_PATH);
        asm.jump_if_imm(op::JLT, R2, exempt, fits);
    } else {
        asm.load(Size::W, R2, R7, trusted::PARTED as i16);
        asm.jump_if_imm(op::JEQ, R2, 0, fits);
    }
    ring(asm, spec, full);
    asm.load(Size::W, R3, R2, trusted::RING_PRODUCED as i16);
    asm.load(Size::W, R4, R2, trusted::RING_CONSUMED as i16);
    asm.alu32(op::SUB, R3, R4);
    asm.mov_imm(R4, trusted::RING_SLOTS as i32);
    asm.alu32(op::SUB, R4, R3);
    asm.load(Size::D, R1, R10, PATH_WORD);
    asm.load(Size::W, R5, R1, 0);
    // A path that was demoted while it drained keeps the mark until the last has left.
    asm.alu32_imm(op::AND, R5, !trusted::DRAINING.cast_signed());
    asm.load(Size::W, R3, R1, trusted::PATH_CHAINED as i16);
    asm.alu(op::ADD, R5, R3);
    asm.load(Size::D, R3, R10, MORE);
    asm.alu(op::ADD, R5, R3);
    asm.jump_if(op::JGE, R5, R4, over);
    asm.bind(fits);
}

/// Counts a message that is dropped in its path's word, if the path shares its row of
/// counters with others. Clobbers `r1`-`r3`.
fn count_in_word(asm: &mut Assembler, relays: usize) {
    let own_row = asm.label();
    asm.load(Size::W, R2, R9, context::LOCAL_PATH);
    asm.jump_if_imm(op::JLT, R2, relays as i32, own_row);
    asm.load(Size::D, R1, R10, PATH_WORD);
    asm.mov_imm(R2, 1);
    if asm.hook() == Hook::Tcx {
        let one = asm.label();
        asm.load(Size::W, R3, R6, skb::GSO_SIZE);
        asm.jump_if_imm(op::JEQ, R3, 0, one);
        asm.load(Size::W, R3, R6, skb::GSO_SEGS);
        asm.jump_if_imm(op::JEQ, R3, 0, one);
        asm.mov(R2, R3);
        asm.bind(one);
    }
    asm.atomic(Atomic::Add, Size::D, R1, trusted::PATH_DROPPED as i16, R2);
    asm.bind(own_row);
}

/// There is no room for the message: its flow, or its path, of the kernel tier drains if that is
/// because of its order, and comes here while it does. Clobbers `r0`-`r5`.
fn no_room(asm: &mut Assembler, spec: &QueueSpec, origin: Origin) {
    if let Origin::Kernel { drained, share, .. } = origin {
        drain(asm, spec, share);
        asm.bind(drained);
    }
}

/// Marks what holds this message up as [draining](trusted::DRAINING), if only order led it
/// here. Only while one of those is in the user tier, as the last takes the mark
/// away; who loses the race leaves it to the next who finds no room. `r8` =
/// the note.
fn drain(asm: &mut Assembler, spec: &QueueSpec, share: Option<share::AccountAt>) {
    let out = asm.label();
    asm.jump_if_imm(op::JNE, R8, Count::QueuedOrder as i32, out);
    if let Some(account) = share {
        share::drains(asm, account, out);
    }
    if spec.order_scope == OrderScope::Ring {
        flow::held_by(asm, spec, share.is_some());
    } else {
        asm.load(Size::D, R1, R10, PATH_WORD);
    }
    asm.load(Size::W, R0, R1, 0);
    asm.jump_if_imm(op::JEQ, R0, 0, out);
    asm.mov(R2, R0);
    asm.alu32_imm(op::OR, R2, trusted::DRAINING.cast_signed());
    asm.atomic(Atomic::CompareExchange, Size::W, R1, 0, R2);
    asm.bind(out);
}

/// Takes the next slot of this queue's ring, and as many behind it as the message needs: `r1` =
/// the first one's descriptor. To `full` if there are not so many. Clobbers `r0`-`r5`.
fn take_slot(asm: &mut Assembler, spec: &QueueSpec, full: Label) {
    let again = asm.label();
    let taken = asm.label();
    ring(asm, spec, full);
    asm.store(Size::D, R10, RING, R2);
    asm.bind(again);
    asm.load(Size::W, R3, R2, trusted::RING_PRODUCED as i16);
    asm.load(Size::W, R4, R2, trusted::RING_CONSUMED as i16);
    asm.load(Size::D, R0, R10, MORE);
    if bug::is(Bug::ChainOneSlot) {
        asm.mov_imm(R0, 0);
    }
    asm.mov(R5, R3);
    asm.alu32(op::SUB, R5, R4);
    asm.alu(op::ADD, R5, R0);
    asm.jump_if_imm(op::JGE, R5, trusted::RING_SLOTS as i32, full);
    asm.mov(R5, R3);
    asm.alu32(op::ADD, R5, R0);
    asm.alu32_imm(op::ADD, R5, 1);
    asm.mov(R0, R3);
    asm.atomic(
        Atomic::CompareExchange,
        Size::W,
        R2,
        trusted::RING_PRODUCED as i16,
        R5,
    );
    asm.jump32_if(op::JEQ, R0, R3, taken);
    // Another CPU was faster, so the ring is moving on.
    asm.may_goto(full);
    asm.jump(again);

    asm.bind(taken);
    asm.store(Size::D, R10, TICKET, R3);
    asm.alu_imm(op::AND, R3, trusted::RING_SLOTS as i32 - 1);
    asm.alu_imm(op::LSH, R1, trusted::RING_SLOTS.trailing_zeros() as i32);
    asm.alu(op::ADD, R1, R3);
    asm.store(Size::D, R10, SLOT, R1);
    asm.alu_imm(op::LSH, R1, trusted::SLOT_BYTES.trailing_zeros() as i32);
    asm.alu(op::ADD, R1, R7);
    asm.alu_imm(op::ADD, R1, trusted::SLOTS as i32);
    asm.store(Size::D, R10, DESCRIPTOR, R1);
    // First: whoever steps over a slot that was not filled has to know how many there are.
    asm.load(Size::D, R2, R10, LONG);
    asm.store(Size::W, R1, trusted::SLOT_LONG as i16, R2);
}

/// Tells the worker if this message comes right behind one of the kernel tier:
/// what a program sends, redirects or passes leaves only at the end of the
/// driver's poll, and the worker on another CPU could be faster.
fn behind(asm: &mut Assembler, spec: &QueueSpec) {
    let out = asm.label();
    if let OrderScope::Path { .. } = spec.order_scope {
        asm.load(Size::D, R1, R10, PATH_WORD);
        asm.load(Size::W, R0, R1, trusted::PATH_BEHIND_KERNEL as i16);
        asm.store_imm(Size::W, R1, trusted::PATH_BEHIND_KERNEL as i16, 0);
    } else {
        let stays = asm.label();
        asm.mov_imm(R0, 0);
        // The mark stays for the next that waits.
        flow::if_unordered(asm, out);
        asm.load(Size::D, R2, R10, RING);
        mark(asm);
        asm.load(Size::W, R3, R2, trusted::RING_BEHIND_KERNEL as i16);
        asm.jump_if_imm(op::JEQ, R3, 0, out);
        asm.jump_if_imm(op::JEQ, R1, SHARED_MARK, stays);
        asm.store_imm(Size::W, R2, trusted::RING_BEHIND_KERNEL as i16, 0);
        asm.bind(stays);
        asm.call(helper::GET_SMP_PROCESSOR_ID);
        asm.alu_imm(op::ADD, R0, 1);
    }
    asm.bind(out);
    asm.load(Size::D, R1, R10, DESCRIPTOR);
    asm.store(Size::W, R1, trusted::SLOT_AFTER_CPU as i16, R0);
    if spec.order_scope == OrderScope::Ring {
        flow::write(asm);
    }
}

/// Makes the slot visible. The exchange is a full barrier, which the wake
/// protocol needs between "here is one" and "does the worker sleep?".
fn publish(asm: &mut Assembler) {
    asm.load(Size::D, R1, R10, DESCRIPTOR);
    asm.load(Size::D, R2, R10, TICKET);
    asm.alu32_imm(op::ADD, R2, 1);
    asm.atomic(
        Atomic::Exchange,
        Size::W,
        R1,
        trusted::SLOT_READY as i16,
        R2,
    );
}

/// Packet to the endpoint's slot in the instance's memory. Clobbers `r0`-`r5` and `r7`,
/// which it restores.
pub(super) fn copy_payload(asm: &mut Assembler, spec: &Spec, bad: Label) {
    // r7 = where the slot lies in the memory.
    let slot_bytes = spec.layout.endpoint_slot_bytes as i32;
    asm.load(Size::D, R7, R10, SLOT);
    asm.alu_imm(op::LSH, R7, slot_bytes.trailing_zeros() as i32);
    asm.alu_imm(op::ADD, R7, spec.layout.endpoint_payload(0) as i32);
    match spec.memory {
        MemoryKind::Arena => copy_to_arena(asm, slot_bytes, bad),
        MemoryKind::Array => copy_to_array(asm, spec, bad),
    }
    asm.map(R7, MapRef::Trusted, Some(0));
}

/// By the helper, which takes a map's value as its destination.
fn copy_to_array(asm: &mut Assembler, spec: &Spec, bad: Label) {
    let empty = asm.label();
    let slot_bytes = spec.layout.endpoint_slot_bytes as i32;
    let last = spec.layout.total_bytes() as i32 - slot_bytes;
    asm.load(Size::W, R4, R9, context::PAYLOAD_LEN);
    asm.jump_if_imm(op::JEQ, R4, 0, empty);
    asm.jump_if_imm(op::JGT, R4, slot_bytes, bad);
    asm.jump_if_imm(op::JGT, R7, last, bad);
    asm.load(Size::W, R2, R9, context::PAYLOAD_OFF);
    asm.map(R3, MapRef::Memory, Some(0));
    asm.alu(op::ADD, R3, R7);
    asm.mov(R1, R6);
    hook::load_bytes(asm);
    asm.jump_if_imm(op::JNE, R0, 0, bad);
    asm.bind(empty);
}

/// Straight, 32 bytes at a time, then 8, then the rest: helpers cannot write to
/// an arena.
fn copy_to_arena(asm: &mut Assembler, slot_bytes: i32, bad: Label) {
    // r2 = the payload; r3 = its length; r4 = index, laundered.
    asm.load(Size::W, R3, R9, context::PAYLOAD_LEN);
    asm.load(Size::D, R4, R9, context::ZERO);
    asm.load(Size::W, R1, R9, context::PAYLOAD_OFF);
    asm.jump_if_imm(op::JGT, R1, trusted::HEADERS_BYTES as i32, bad);
    asm.field(R2, R6, Field::Data);
    asm.alu(op::ADD, R2, R1);
    for step in [32, 8] {
        let head = asm.label();
        let done = asm.label();
        asm.mov(R0, R4);
        asm.alu_imm(op::ADD, R0, step);
        asm.jump_if(op::JGT, R0, R3, done);
        asm.bind(head);
        asm.may_goto(bad);
        chunk(asm, slot_bytes, bad, step, Size::D);
        asm.alu_imm(op::ADD, R4, step);
        asm.mov(R0, R4);
        asm.alu_imm(op::ADD, R0, step);
        asm.jump_if(op::JLE, R0, R3, head);
        asm.bind(done);
    }
    for size in [Size::W, Size::H, Size::B] {
        let skip = asm.label();
        asm.mov(R0, R3);
        asm.alu_imm(op::AND, R0, size.bytes() as i32);
        asm.jump_if_imm(op::JEQ, R0, 0, skip);
        chunk(asm, slot_bytes, bad, size.bytes() as i32, size);
        asm.alu_imm(op::ADD, R4, size.bytes() as i32);
        asm.bind(skip);
    }
}

/// Copies `bytes` at index `r4` in pieces of `size`. Keeps `r0`, `r2`-`r4`.
fn chunk(asm: &mut Assembler, slot_bytes: i32, bad: Label, bytes: i32, size: Size) {
    asm.jump_if_imm(op::JGT, R4, slot_bytes - bytes, bad);
    asm.mov(R1, R2);
    asm.alu(op::ADD, R1, R4);
    asm.mov(R5, R1);
    asm.alu_imm(op::ADD, R5, bytes);
    asm.store(Size::D, R10, super::END, R3);
    asm.field(R3, R6, Field::DataEnd);
    asm.jump_if(op::JGT, R5, R3, bad);
    // r3 = the destination.
    asm.mov(R3, R7);
    asm.alu(op::ADD, R3, R4);
    asm.arena_cast(R3, R3);
    for piece in (0..bytes as i16).step_by(size.bytes() as usize) {
        asm.load(size, R5, R1, piece);
        asm.store(size, R3, piece, R5);
    }
    asm.load(Size::D, R3, R10, super::END);
}

/// Rings the bell if the worker sleeps; whoever clears the flag rings.
pub(super) fn wake(asm: &mut Assembler) {
    let awake = asm.label();
    asm.load(Size::W, R1, R7, trusted::NEED_WAKE as i16);
    asm.jump_if_imm(op::JEQ, R1, 0, awake);
    asm.mov_imm(R1, 0);
    asm.atomic(Atomic::Exchange, Size::W, R7, trusted::NEED_WAKE as i16, R1);
    asm.jump_if_imm(op::JEQ, R1, 0, awake);
    asm.store_imm(Size::D, R10, BELL, 0);
    asm.map(R1, MapRef::Wake, None);
    asm.mov(R2, R10);
    asm.alu_imm(op::ADD, R2, i32::from(BELL));
    asm.mov_imm(R3, 8);
    asm.mov_imm(R4, FORCE_WAKEUP);
    asm.call(helper::RINGBUF_OUTPUT);
    asm.bind(awake);
}
