//! A handler in Rust, without a library of ours: numbers in, sorted, as text.
//!
//! ```text
//! request  0: up to 300 numbers (32 bits, little-endian)
//! reply    0: how often they are out of order (32 bits, little-endian)
//!          4: bytes of text (32 bits, little-endian)
//!          8: as much of the text as there is room: "n: [a, b, c]"
//! ```
//!
//! `sort_unstable` and `core::fmt` are what they are in any Rust program:
//! recursive, with indirect calls and panics. Built with
//!
//! ```text
//! rustc --target wasm32-unknown-unknown --crate-type cdylib -O -g -C panic=abort
//!     -C link-args="--initial-memory=196608 --max-memory=196608 --stack-first -z stack-size=65536"
//! ```

#![no_std]

use core::fmt::{self, Write};

#[link(wasm_import_module = "ashway")]
extern "C" {
    fn msg_load32le(at: u32) -> u32;
    fn msg_store32le(at: u32, value: u32);
    fn msg_write(at: u32, from: *const u8, len: u32);
}

/// Most numbers in a message.
const MOST: usize = 300;

/// `ASHWAY_PASS` and `ASHWAY_REPLY`.
const PASS: i32 = 3;
const REPLY: i32 = 1;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    core::arch::wasm32::unreachable()
}

/// Text of a fixed size; what does not fit is cut off.
struct Text {
    bytes: [u8; 4096],
    len: usize,
}

impl Write for Text {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        let room = &mut self.bytes[self.len..];
        let len = more.len().min(room.len());
        room[..len].copy_from_slice(&more.as_bytes()[..len]);
        self.len += len;
        Ok(())
    }
}

static mut NUMBERS: [u32; MOST] = [0; MOST];
static mut TEXT: Text = Text { bytes: [0; 4096], len: 0 };

/// Handles a message of `len` bytes.
#[no_mangle]
pub extern "C" fn on_rx(len: i32, _channel: i32) -> i32 {
    let len = len as usize;
    if len < 8 || len > 4 * MOST {
        return PASS;
    }
    // SAFETY: one activation at a time.
    let (numbers, text) = unsafe { (&mut NUMBERS[..len / 4], &mut TEXT) };
    for (i, number) in numbers.iter_mut().enumerate() {
        // SAFETY: a host call; the message is that long.
        *number = unsafe { msg_load32le(4 * i as u32) };
    }
    let falls = numbers.windows(2).filter(|pair| pair[0] > pair[1]).count();
    numbers.sort_unstable();
    text.len = 0;
    if write!(text, "{}: {:?}", numbers.len(), numbers).is_err() {
        return PASS;
    }
    let room = (len - 8).min(text.len);
    // SAFETY: host calls; the message is that long.
    unsafe {
        msg_store32le(0, falls as u32);
        msg_store32le(4, text.len as u32);
        msg_write(8, text.bytes.as_ptr(), room as u32);
    }
    REPLY
}
