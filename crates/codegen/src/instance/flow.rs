//! The order of messages between the tiers, by flows: what [`ashway_abi::flow`] says, in
//! instructions.
//!
//! Nothing of it runs while none of the path's messages is in the user tier. A message that is
//! queued is counted in its flow's bucket, beside its path's word; one that comes while there are
//! messages of the path is run if the bucket of its flow has none.
//!
//! The flow is what the entry program saw: a UDP datagram with its ports, as all that comes into
//! a handler's queue. Many messages behind one header are of one flow. Fragments come as whole
//! frames, to paths that run in the user tier alone.
//!
//! A path above its [share](super::share) keeps its order as a whole until none of it is in the
//! user tier, as then the kernel tier has to stand still.

use ashway_abi::context::{fact, flag};
use ashway_abi::{context, flow, trusted};
use ashway_check::bpf::{Assembler, Atomic, Field, Label, Reg, Size, op};

use super::QueueSpec;
use super::enqueue::{PATH_WORD, if_drains};
use crate::bug::{self, Bug};
use crate::parts;
use Reg::{R0, R1, R2, R3, R4, R5, R6, R7, R9, R10};

/// Stack: the message's bucket, or what stands in its place.
const FLOW: i16 = -112;

/// Where addresses and ports of plain packets lie, and where these end.
const IPV4: [i16; 3] = [26, 34, 42];
const IPV6: [i16; 3] = [22, 54, 62];

/// To `mine` if no message that this one must not overtake is in the user tier, to `drained` if
/// those [drain](trusted::DRAINING); else goes on. `r1` = the path's trusted word. Clobbers
/// `r0`-`r5`.
pub(super) fn turn(
    asm: &mut Assembler,
    spec: &QueueSpec,
    has_share: bool,
    mine: Label,
    drained: Label,
) {
    let behind = asm.label();
    asm.load(Size::W, R2, R1, 0);
    asm.jump_if_imm(op::JEQ, R2, 0, mine);
    if bug::is(Bug::OrderIgnored) {
        asm.jump(mine);
    }
    if_drains(asm, mine, drained);
    asm.load(Size::W, R3, R9, context::FLAGS);
    asm.mov(R2, R3);
    asm.alu_imm(op::AND, R2, flag::ORDER_NONE as i32);
    asm.jump_if_imm(op::JNE, R2, 0, mine);
    asm.alu_imm(op::AND, R3, flag::ORDER_PATH as i32);
    asm.jump_if_imm(op::JNE, R3, 0, behind);
    if has_share {
        asm.load(Size::W, R2, R1, trusted::PATH_LAZY as i16);
        asm.jump_if_imm(op::JNE, R2, 0, behind);
    }
    bucket(asm);
    if bug::is(Bug::FlowOtherHash) {
        asm.alu_imm(op::XOR, R3, 1);
    }
    word(asm, spec);
    asm.load(Size::W, R2, R1, 0);
    asm.jump_if_imm(op::JEQ, R2, 0, mine);
    if_drains(asm, mine, drained);
    asm.bind(behind);
}

/// Notes at [`FLOW`] where the message is to be counted. Clobbers `r0`-`r5`.
pub(super) fn note(asm: &mut Assembler) {
    let [by_flow, known] = [(); 2].map(|()| asm.label());
    asm.load(Size::W, R0, R9, context::FLAGS);
    asm.alu_imm(op::AND, R0, (flag::ORDER_PATH | flag::ORDER_NONE) as i32);
    asm.jump_if_imm(op::JEQ, R0, 0, by_flow);
    asm.mov_imm(R3, flow::WHOLE_PATH as i32);
    asm.jump_if_imm(op::JEQ, R0, flag::ORDER_PATH as i32, known);
    asm.mov_imm(R3, flow::UNORDERED as i32);
    asm.jump(known);
    asm.bind(by_flow);
    bucket(asm);
    asm.bind(known);
    parts::launder(asm, R3);
    asm.store(Size::D, R10, FLOW, R3);
}

/// Counts the message in its bucket, after its path's word. Clobbers `r1`-`r3`.
pub(super) fn count(asm: &mut Assembler, spec: &QueueSpec) {
    let out = asm.label();
    asm.load(Size::D, R3, R10, FLOW);
    asm.jump_if_imm(op::JGE, R3, flow::BUCKETS as i32, out);
    word(asm, spec);
    asm.mov_imm(R2, 1);
    asm.atomic(Atomic::Add, Size::W, R1, 0, R2);
    asm.bind(out);
}

/// Writes the bucket into the slot whose descriptor is `r1`. Clobbers `r2`.
pub(super) fn write(asm: &mut Assembler) {
    asm.load(Size::D, R2, R10, FLOW);
    asm.store(Size::W, R1, trusted::SLOT_FLOW as i16, R2);
}

/// To `unordered` if the message waits for none. Clobbers `r3`.
pub(super) fn if_unordered(asm: &mut Assembler, unordered: Label) {
    asm.load(Size::D, R3, R10, FLOW);
    asm.jump_if_imm(op::JEQ, R3, flow::UNORDERED as i32, unordered);
}

/// `r1` = the word that is to be marked as [draining](trusted::DRAINING): that of the messages
/// which this one waits for. Clobbers `r2` and `r3`.
pub(super) fn held_by(asm: &mut Assembler, spec: &QueueSpec, has_share: bool) {
    let path = asm.label();
    asm.load(Size::D, R1, R10, PATH_WORD);
    asm.load(Size::D, R3, R10, FLOW);
    asm.jump_if_imm(op::JGE, R3, flow::BUCKETS as i32, path);
    if has_share {
        asm.load(Size::W, R2, R1, trusted::PATH_LAZY as i16);
        asm.jump_if_imm(op::JNE, R2, 0, path);
    }
    if !bug::is(Bug::FlowDrainsPath) {
        word(asm, spec);
    }
    asm.bind(path);
}

/// `r1` = the word of bucket `r3`, which it clobbers.
fn word(asm: &mut Assembler, spec: &QueueSpec) {
    asm.alu_imm(op::LSH, R3, size_of::<u32>().trailing_zeros() as i32);
    asm.mov(R1, R7);
    asm.alu(op::ADD, R1, R3);
    asm.alu_imm(op::ADD, R1, spec.layout.flow_word(0) as i32);
}

/// `r3` = the bucket of the message's flow ([`flow::of_ipv4`], [`flow::of_ipv6`]). `r7` = trusted words.
/// Clobbers `r0`, `r2`, `r4` and `r5`.
fn bucket(asm: &mut Assembler) {
    let [facts, plain_ipv6, facts_ipv6, ipv4, short, hash, known] = [(); 7].map(|()| asm.label());
    asm.load(Size::W, R0, R9, context::FLAGS);
    asm.mov(R3, R0);
    asm.alu_imm(op::AND, R3, flag::IPV6 as i32);
    asm.alu_imm(op::AND, R0, flag::PLAIN as i32);
    asm.jump_if_imm(op::JEQ, R0, 0, facts);
    asm.field(R2, R6, Field::Data);
    asm.field(R4, R6, Field::DataEnd);
    asm.jump_if_imm(op::JNE, R3, 0, plain_ipv6);
    {
        let [addresses, ports, end] = IPV4;
        need(asm, end, short);
        asm.load(Size::W, R3, R2, addresses);
        asm.load(Size::W, R5, R2, addresses + 4);
        asm.load(Size::W, R4, R2, ports);
        asm.jump(ipv4);
    }
    asm.bind(plain_ipv6);
    {
        let [addresses, ports, end] = IPV6;
        need(asm, end, short);
        fold(asm, R2, addresses);
        asm.load(Size::W, R4, R2, ports);
        asm.jump(hash);
    }
    asm.bind(facts);
    asm.load(Size::W, R4, R9, fact::SOURCE_PORT);
    asm.jump_if_imm(op::JNE, R3, 0, facts_ipv6);
    asm.load(Size::W, R3, R9, fact::SOURCE);
    asm.load(Size::W, R5, R9, fact::DESTINATION);
    asm.bind(ipv4);
    asm.alu_imm(op::LSH, R5, 32);
    asm.alu(op::OR, R3, R5);
    asm.jump(hash);
    asm.bind(facts_ipv6);
    fold(asm, R9, fact::SOURCE);
    asm.bind(hash);
    asm.load(Size::D, R0, R7, trusted::FLOW_SEED as i16);
    asm.alu(op::XOR, R3, R0);
    asm.load_imm(R0, flow::MULTIPLIER);
    asm.alu(op::MUL, R3, R0);
    asm.mov(R5, R3);
    asm.alu_imm(op::RSH, R5, 32);
    asm.alu(op::XOR, R3, R5);
    asm.alu(op::XOR, R3, R4);
    asm.alu(op::MUL, R3, R0);
    asm.alu_imm(op::RSH, R3, 64 - flow::BUCKET_BITS as i32);
    asm.jump(known);
    // Never: the entry program has read that far. Laundered, so that the number is no constant
    // to the verifier on this way alone.
    asm.bind(short);
    asm.load(Size::D, R3, R9, context::ZERO);
    asm.alu_imm(op::AND, R3, flow::BUCKETS as i32 - 1);
    asm.bind(known);
}

/// To `short` unless the packet at `r2`, which ends at `r4`, has so many bytes. Clobbers `r5`.
fn need(asm: &mut Assembler, bytes: i16, short: Label) {
    asm.mov(R5, R2);
    asm.alu_imm(op::ADD, R5, bytes.into());
    asm.jump_if(op::JGT, R5, R4, short);
}

/// `r3` = the words of two IPv6 addresses at `at` of `from`. Clobbers `r0` and `r5`.
fn fold(asm: &mut Assembler, from: Reg, at: i16) {
    asm.load_imm(R0, flow::MULTIPLIER);
    asm.load(Size::D, R3, from, at);
    for word in (8..32).step_by(8) {
        asm.load(Size::D, R5, from, at + word);
        asm.alu(op::MUL, R3, R0);
        asm.alu(op::XOR, R3, R5);
    }
}
