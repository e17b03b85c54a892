//! The crate `regex-automata`, unchanged, as a handler: where a pattern is in a text.
//!
//! ```text
//! request  0: 32 bytes that the reply fills in
//!          32: a text
//! reply    words of 32 bits, little-endian
//!          0: how often the pattern is there
//!          4: where the first one begins and ends
//!          12: a hash of where all of them begin and end
//! ```
//!
//! The pattern is compiled where there is the standard library (`pattern.rs`), as the crate's
//! documentation has it for places without; two automata are what is searched with.
//! `cargo xtask programs` takes the crate from `apps/libraries` and says how it is built
//! (`xtask/src/libraries.rs`).

#![cfg_attr(target_arch = "wasm32", no_std)]

use regex_automata::{DenseDFA, Regex};

#[cfg_attr(target_arch = "wasm32", link(wasm_import_module = "ashway"))]
extern "C" {
    fn msg_read(at: u32, to: *mut u8, len: u32);
    fn msg_store32le(at: u32, value: u32);
}

/// `ASHWAY_PASS` and `ASHWAY_REPLY`.
const PASS: i32 = 3;
const REPLY: i32 = 1;

/// Bytes in front of the text, for the reply.
const FRONT: usize = 32;

const LONGEST: usize = 4096;

static mut INPUT: [u8; LONGEST] = [0; LONGEST];

/// A file of 16-bit words.
#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);

static FORWARD: &Aligned<[u8]> = &Aligned(*include_bytes!(env!("ASHWAY_FORWARD")));
static REVERSE: &Aligned<[u8]> = &Aligned(*include_bytes!(env!("ASHWAY_REVERSE")));

#[cfg(target_arch = "wasm32")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    core::arch::wasm32::unreachable()
}

/// FNV-1a (Fowler, Noll, Vo).
struct Hash(u32);

impl Hash {
    const fn new() -> Self {
        Self(2_166_136_261)
    }

    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u32::from(*byte)).wrapping_mul(16_777_619);
        }
    }
}

fn find(input: &[u8]) -> [u32; 4] {
    // SAFETY: the files are what `pattern.rs` wrote for this target, aligned.
    let regex = unsafe {
        let forward: DenseDFA<&[u16], u16> = DenseDFA::from_bytes(&FORWARD.0);
        let reverse: DenseDFA<&[u16], u16> = DenseDFA::from_bytes(&REVERSE.0);
        Regex::from_dfas(forward, reverse)
    };
    let mut words = [0; 4];
    let mut hash = Hash::new();
    for (begin, end) in regex.find_iter(input) {
        if words[0] == 0 {
            words[1] = begin as u32;
            words[2] = end as u32;
        }
        words[0] += 1;
        hash.add(&(begin as u32).to_le_bytes());
        hash.add(&(end as u32).to_le_bytes());
    }
    words[3] = hash.0;
    words
}

/// Handles a message of `len` bytes.
#[no_mangle]
pub extern "C" fn on_rx(len: i32, _channel: i32) -> i32 {
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
    for (word, at) in find(input).iter().zip(0_u32..) {
        // SAFETY: a host call; the message is that long.
        unsafe { msg_store32le(4 * at, *word) }
    }
    REPLY
}
