//! A short wait for an instance that is busy on another CPU.
//!
//! A message that goes to the user tier costs some ten times what a small handler takes, and those
//! of its flow that come meanwhile go behind it. So one that finds the lock taken looks at it for
//! about as long as its handler runs, and goes only if the lock is still taken then.
//!
//! * **Only behind the kernel tier**: behind an activation [in softirq](trusted::IN_KERNEL), which
//!   nothing on its CPU preempts but an interrupt. The worker may be preempted for milliseconds, a
//!   fault is kept until the worker has taken it, and what the worker wants is the worker's: no
//!   message waits for these, nor goes on to wait when one of them has come.
//! * **Not behind its own CPU**: programs do not nest on a CPU ([`context`]), and nothing that
//!   sends or wakes is called under the lock, so who holds it runs elsewhere.
//! * **Bounded**: by [`TIMES`] the mean time of the path's messages on this CPU, and by [`MOST_NS`].
//!   If the lock does not come free, or another CPU is faster each time, the message goes to the
//!   user tier as ever.
//! * **Nobody's time**: the handler's budget and its path's share begin behind the wait, and a
//!   message that is [timed](crate::timed) counts without it.
//!
//! docs/design/0017-a-short-wait.md has what else there was.

use ashway_abi::count::KERNEL_NS;
use ashway_abi::{Count, context, trusted};
use ashway_check::bpf::{Assembler, Atomic, Label, Reg, Size, helper, op};

use crate::bug::{self, Bug};
use crate::parts;
use Reg::{R0, R1, R2, R3, R7, R9, R10};

/// Messages' mean times that one waits, at most: what runs, and one that is faster to begin.
const TIMES: i32 = 2;

/// What one waits at least, in ns. The mean of the first messages is not known, and to go to the
/// user tier takes longer anyway.
const LEAST_NS: i32 = 1_000;

/// What one waits at most, in ns: no longer than the way by the user tier takes.
const MOST_NS: i32 = 20_000;

/// Stack: until when, in ns.
const UNTIL: i16 = -48;
/// Stack: since when it has waited, in ns, as far as that is not taken off yet.
const SINCE: i16 = -56;

/// A counter's place in its row.
const fn at(word: usize) -> i16 {
    (word * 8) as i16
}

/// To `mine` with the lock, or to `queue`. `r0` = the words of the lock, which was not free;
/// `r7` = trusted words, `r9` = the context. Clobbers `r0`-`r5`.
pub(super) fn emit(asm: &mut Assembler, mine: Label, queue: Label) {
    let [enough, bounded, again, free] = [(); 4].map(|()| asm.label());
    if bug::is(Bug::WaitsNever) {
        asm.jump(queue);
    }
    if !bug::is(Bug::WaitsForWorker) {
        asm.jump_if_imm(op::JNE, R0, trusted::IN_KERNEL as i32, queue);
    }
    parts::find_row(asm, queue);
    parts::count(asm, R0, Count::WaitedBusy);
    // By those that the kernel tier has run; of none the mean is 0 (RFC 9669 §4.1).
    asm.load(Size::D, R1, R0, at(KERNEL_NS));
    asm.load(Size::D, R2, R0, at(Count::Committed as usize));
    asm.load(Size::D, R3, R0, at(Count::AbortVoluntary as usize));
    asm.alu(op::ADD, R2, R3);
    asm.alu(op::DIV, R1, R2);
    asm.alu_imm(op::MUL, R1, TIMES);
    asm.jump_if_imm(op::JGE, R1, LEAST_NS, enough);
    asm.mov_imm(R1, LEAST_NS);
    asm.bind(enough);
    asm.jump_if_imm(op::JLE, R1, MOST_NS, bounded);
    asm.mov_imm(R1, MOST_NS);
    asm.bind(bounded);
    if bug::is(Bug::WaitsForEver) {
        asm.mov_imm(R1, i32::MAX);
    }
    asm.store(Size::D, R10, UNTIL, R1);
    asm.call(helper::KTIME_GET_NS);
    asm.store(Size::D, R10, SINCE, R0);
    asm.load(Size::D, R1, R10, UNTIL);
    asm.alu(op::ADD, R0, R1);
    asm.store(Size::D, R10, UNTIL, R0);

    asm.bind(again);
    asm.may_goto(queue);
    asm.call(helper::KTIME_GET_NS);
    asm.load(Size::D, R1, R10, UNTIL);
    asm.jump_if(op::JGE, R0, R1, queue);
    asm.load(Size::D, R1, R7, trusted::LOCK as i16);
    asm.jump_if_imm(op::JEQ, R1, trusted::IN_KERNEL as i32, again);
    asm.jump_if_imm(op::JEQ, R1, 0, free);
    asm.jump(if bug::is(Bug::WaitsForWorker) {
        again
    } else {
        queue
    });
    asm.bind(free);
    if !bug::is(Bug::WaitIsTimed) {
        // Whether it is timed or not.
        asm.load(Size::D, R2, R10, SINCE);
        asm.store(Size::D, R10, SINCE, R0);
        asm.alu(op::SUB, R0, R2);
        asm.load(Size::D, R1, R9, context::TIMED_FROM);
        asm.alu(op::ADD, R1, R0);
        asm.store(Size::D, R9, context::TIMED_FROM, R1);
    }
    exchange(asm);
    asm.jump_if_imm(op::JEQ, R0, 0, mine);
    asm.jump_if_imm(op::JEQ, R0, trusted::IN_KERNEL as i32, again);
    asm.jump(queue);
}

/// Takes the lock if it is free and nobody wants it: one exchange asks both words. `r0` = 0 if
/// that was so, else the words. Clobbers `r1`.
pub(super) fn exchange(asm: &mut Assembler) {
    exchange_at(asm, R7);
}

/// The same of the words at `lock`.
pub(super) fn exchange_at(asm: &mut Assembler, lock: Reg) {
    let words = if bug::is(Bug::WantedIgnored) {
        Size::W
    } else {
        Size::D
    };
    asm.mov_imm(R0, 0);
    asm.mov_imm(R1, trusted::IN_KERNEL as i32);
    asm.atomic(
        Atomic::CompareExchange,
        words,
        lock,
        trusted::LOCK as i16,
        R1,
    );
}
