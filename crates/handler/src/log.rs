//! The lines that the last activation has logged ([`ashway_abi::log`]).

use ashway_abi::log::{LINE_BYTES, MOST, stage};
use ashway_abi::outbox::LOG;

use crate::instance::Instance;

impl Instance {
    /// Calls `each` with every line of the last activation, however it ended, in its
    /// order, and forgets them. Gives the number of those that were too many. Does not
    /// allocate.
    pub fn take_log(&mut self, mut each: impl FnMut(&[u8])) -> u32 {
        let count = self.outbox.word(LOG + stage::COUNT);
        if count == 0 {
            return 0;
        }
        for line in 0..MOST.min(count as usize) {
            let at = LOG + stage::LINES + line * stage::STRIDE;
            let len = self.outbox.word(at) as usize;
            each(self.outbox.bytes(at + stage::TEXT, len.min(LINE_BYTES)));
        }
        self.outbox.set_word(LOG + stage::COUNT, 0);
        count.saturating_sub(MOST as u32)
    }
}
