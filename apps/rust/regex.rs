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

mod answer;

use answer::{answer, Hash};

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
    answer(len, find)
}
