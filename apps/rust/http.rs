//! The crate `httparse`, unchanged, as a handler: the head of an HTTP/1 request.
//!
//! ```text
//! request  0: 32 bytes that the reply fills in
//!          32: a request (RFC 9112)
//! reply    words of 32 bits, little-endian
//!          0: 0 if the head is whole, 1 if more is to come, else 2 and the error's number
//!          4: bytes of the head; headers; minor version
//!          16: a hash of method, target, names and values
//! ```
//!
//! `cargo xtask programs` takes the crate from `apps/libraries` and says how it is built
//! (`xtask/src/libraries.rs`).

#![cfg_attr(target_arch = "wasm32", no_std)]

mod answer;

use answer::{answer, Hash};

/// Most headers of a request.
const MOST: usize = 64;

#[cfg(target_arch = "wasm32")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    core::arch::wasm32::unreachable()
}

fn parse(input: &[u8]) -> [u32; 5] {
    let mut headers = [httparse::EMPTY_HEADER; MOST];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(input) {
        Ok(httparse::Status::Complete(bytes)) => {
            let mut hash = Hash::new();
            for text in [request.method, request.path].iter().flatten() {
                hash.add(text.as_bytes());
                hash.add(b" ");
            }
            for header in request.headers.iter() {
                hash.add(header.name.as_bytes());
                hash.add(b":");
                hash.add(header.value);
                hash.add(b"\n");
            }
            let version = u32::from(request.version.unwrap_or(u8::MAX));
            [0, bytes as u32, request.headers.len() as u32, version, hash.0]
        }
        Ok(httparse::Status::Partial) => [1, 0, 0, 0, 0],
        Err(error) => [2 + error as u32, 0, 0, 0, 0],
    }
}

/// Handles a message of `len` bytes.
#[no_mangle]
pub extern "C" fn on_rx(len: i32, _channel: i32) -> i32 {
    answer(len, parse)
}
