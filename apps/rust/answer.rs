//! What the handlers of libraries have in common: a message is 32 bytes that the reply fills in with
//! words of 32 bits, and behind them what the library is asked.

#[cfg_attr(target_arch = "wasm32", link(wasm_import_module = "ashway"))]
extern "C" {
    fn msg_read(at: u32, to: *mut u8, len: u32);
    fn msg_store32le(at: u32, value: u32);
}

/// `ASHWAY_PASS` and `ASHWAY_REPLY`.
const PASS: i32 = 3;
const REPLY: i32 = 1;

/// Bytes in front of the input, for the reply.
const FRONT: usize = 32;

const LONGEST: usize = 4096;

static mut INPUT: [u8; LONGEST] = [0; LONGEST];

/// Answers a message of `len` bytes with what `work` makes of it.
pub fn answer<const WORDS: usize>(len: i32, work: impl FnOnce(&[u8]) -> [u32; WORDS]) -> i32 {
    let len = len as usize;
    if len < FRONT || len > LONGEST {
        return PASS;
    }
    // SAFETY: one activation at a time, and a host call for as much as the message has.
    let input = unsafe {
        let input = &mut INPUT[..len - FRONT];
        msg_read(FRONT as u32, input.as_mut_ptr(), input.len() as u32);
        &*input
    };
    for (word, at) in work(input).iter().zip(0_u32..) {
        // SAFETY: a host call; the message is that long.
        unsafe { msg_store32le(4 * at, *word) }
    }
    REPLY
}

/// FNV-1a (Fowler, Noll, Vo).
pub struct Hash(pub u32);

impl Hash {
    pub const fn new() -> Self {
        Self(2_166_136_261)
    }

    pub fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u32::from(*byte)).wrapping_mul(16_777_619);
        }
    }
}
