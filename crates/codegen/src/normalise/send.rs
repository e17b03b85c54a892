//! `send`, `msg_clone`, `timer_set` and `log` in Wasm: a record and a copy in the
//! [outbox](ashway_abi::outbox), which the host reads when the activation has ended.

use super::expand::{Expander, MEMORY, MESSAGE, MESSAGE_AT, MESSAGE_LEN, OUTBOX};
use ashway_abi::log::{LINE_BYTES, MOST as MOST_LINES, stage};
use ashway_abi::outbox::{
    CHANNELS, COUNT, LOG, MOST, MOST_TIMERS, NO_TIMER, PAYLOAD_BYTES, PAYLOADS, RECORDS, TIMERS,
    TIMERS_SET, answer,
};
use wasm_encoder::{BlockType, MemArg, MemArgTarget, ValType};

impl Expander<'_> {
    /// Channel, address and length are on the stack.
    pub(super) fn send(&mut self) {
        let (at, pointer, value) = (self.at, self.pointer, self.value);
        self.ins().local_set(value).local_set(pointer).local_set(at);
        self.queue(MEMORY);
    }

    /// The channel is on the stack; the message as it is now goes there.
    pub(super) fn clone_message(&mut self) {
        let (at, pointer, value) = (self.at, self.pointer, self.value);
        self.ins()
            .local_set(at)
            .global_get(MESSAGE_AT)
            .local_set(pointer)
            .global_get(MESSAGE_LEN)
            .local_set(value);
        self.queue(MESSAGE);
    }

    /// The timer's number and the time are on the stack.
    pub(super) fn timer_set(&mut self) {
        let (at, wide) = (self.at, self.wide);
        self.ins().local_set(wide).local_set(at);
        self.ins().block(BlockType::Result(ValType::I32));
        self.ins().i32_const(NO_TIMER as i32);
        self.ins().local_get(at).i32_const(MOST_TIMERS as i32);
        self.ins().i32_ge_u().br_if(0).drop();

        self.ins().local_get(at).i32_const(3).i32_shl();
        self.ins().local_get(wide).i64_store(word(TIMERS));
        self.ins().i32_const(0);
        self.ins().i32_const(0).i64_load(word(TIMERS_SET));
        self.ins().i64_const(1).local_get(at).i64_extend_i32_u();
        self.ins().i64_shl().i64_or().i64_store(word(TIMERS_SET));
        self.ins().i32_const(0).end();
    }

    /// Address and length are on the stack. A line too many goes to a place that nobody
    /// reads, and is counted.
    pub(super) fn log(&mut self) {
        let (at, pointer, value) = (self.at, self.pointer, self.value);
        self.ins().local_set(value).local_set(pointer);
        self.least(value, LINE_BYTES);
        self.ins().i32_const(0).i32_load(word(LOG + stage::COUNT));
        self.ins().local_set(at);
        self.ins().i32_const(0).local_get(at).i32_const(1).i32_add();
        self.ins().i32_store(word(LOG + stage::COUNT));
        self.least(at, MOST_LINES);
        let shift = stage::STRIDE.trailing_zeros() as i32;
        self.ins()
            .local_get(at)
            .i32_const(shift)
            .i32_shl()
            .local_tee(at);
        self.ins()
            .local_get(value)
            .i32_store(word(LOG + stage::LINES));
        self.ins().local_get(at);
        self.ins()
            .i32_const((LOG + stage::LINES + stage::TEXT) as i32)
            .i32_add();
        self.ins().local_get(pointer).local_get(value);
        self.ins().memory_copy(OUTBOX, MEMORY);
    }

    /// Makes a local at most so large, as a number without a sign.
    fn least(&mut self, local: u32, most: usize) {
        self.ins().local_get(local).i32_const(most as i32);
        self.ins().local_get(local).i32_const(most as i32);
        self.ins().i32_lt_u().select().local_set(local);
    }

    /// Puts so many bytes of `memory` into the outbox and leaves the answer. An
    /// address outside of `memory` stops as any copy does, and nothing is queued.
    fn queue(&mut self, memory: u32) {
        let (at, pointer, value) = (self.at, self.pointer, self.value);
        let count = || word(COUNT);
        self.ins().block(BlockType::Result(ValType::I32));

        self.ins().i32_const(answer::NO_CHANNEL as i32);
        self.ins()
            .local_get(at)
            .i32_const(0)
            .i32_load(word(CHANNELS));
        self.ins().i32_ge_u().br_if(0).drop();

        self.ins().i32_const(answer::TOO_LONG as i32);
        self.ins().local_get(value).i32_const(PAYLOAD_BYTES as i32);
        self.ins().i32_gt_u().br_if(0).drop();

        self.ins().i32_const(answer::FULL as i32);
        self.ins().i32_const(0).i32_load(count());
        self.ins().i32_const(MOST as i32);
        self.ins().i32_ge_u().br_if(0).drop();

        let shift = PAYLOAD_BYTES.trailing_zeros() as i32;
        self.ins().i32_const(0).i32_load(count());
        self.ins().i32_const(shift).i32_shl();
        self.ins().i32_const(PAYLOADS as i32).i32_add();
        self.ins().local_get(pointer).local_get(value);
        self.ins().memory_copy(OUTBOX, memory);

        for (place, local) in [(RECORDS, at), (RECORDS + 4, value)] {
            self.ins().i32_const(0).i32_load(count());
            self.ins().i32_const(3).i32_shl();
            self.ins().local_get(local).i32_store(word(place));
        }
        self.ins().i32_const(0);
        self.ins().i32_const(0).i32_load(count());
        self.ins().i32_const(1).i32_add().i32_store(count());

        self.ins().i32_const(answer::QUEUED as i32).end();
    }
}

/// A word of the outbox.
pub(super) const fn word(offset: usize) -> MemArg {
    MemArg {
        offset: offset as u64,
        align: 2,
        target: MemArgTarget::Memory(OUTBOX),
        ordering: None,
    }
}
