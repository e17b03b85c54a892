//! What the last activation has asked for ([`ashway_abi::outbox`]).

use ashway_abi::outbox::{
    CHANNELS, COUNT, MOST, MOST_TIMERS, PAYLOAD_BYTES, PAYLOADS, RECORDS, TIMERS, TIMERS_SET,
};

use crate::instance::Instance;

impl Instance {
    /// How many channels the handler may send to; 0 until it is said.
    pub fn set_channels(&mut self, channels: u32) {
        self.outbox.set_word(CHANNELS, channels);
    }

    /// Calls `each` with the channel and the bytes of every message that the last
    /// activation has sent, in its order, and forgets them. None if it was stopped.
    /// Bounded by [`MOST`]; does not allocate.
    pub fn take_sent(&mut self, mut each: impl FnMut(u32, &[u8])) {
        let count = self.outbox.word(COUNT) as usize;
        for number in 0..count.min(MOST) {
            let channel = self.outbox.word(RECORDS + 8 * number);
            let len = self.outbox.word(RECORDS + 8 * number + 4) as usize;
            let at = PAYLOADS + number * PAYLOAD_BYTES;
            each(channel, self.outbox.bytes(at, len.min(PAYLOAD_BYTES)));
        }
        self.forget_sent();
    }

    /// Calls `each` with the number and the time, in ns or
    /// [`NEVER`](ashway_abi::outbox::NEVER), of each timer that the last activation
    /// has set, and forgets them. None if it was stopped. Does not allocate.
    pub fn take_timers(&mut self, mut each: impl FnMut(u32, u64)) {
        let mut set = self.outbox.double(TIMERS_SET);
        while set != 0 {
            let id = set.trailing_zeros();
            debug_assert!(id < MOST_TIMERS as u32);
            each(id, self.outbox.double(TIMERS + 8 * id as usize));
            set &= set - 1;
        }
        self.forget_timers();
    }

    /// Begins with an empty outbox.
    pub(crate) fn forget_asked(&mut self) {
        self.forget_sent();
        self.forget_timers();
    }

    fn forget_sent(&mut self) {
        self.outbox.set_word(COUNT, 0);
    }

    fn forget_timers(&mut self) {
        self.outbox.bytes(TIMERS_SET, 8).fill(0);
    }
}
