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

#[cfg_attr(target_arch = "wasm32", link(wasm_import_module = "ashway"))]
extern "C" {
    fn msg_read(at: u32, to: *mut u8, len: u32);
    fn msg_store32le(at: u32, value: u32);
}

/// `ASHWAY_PASS` and `ASHWAY_REPLY`.
const PASS: i32 = 3;
const REPLY: i32 = 1;

/// Bytes in front of the request, for the reply.
const FRONT: usize = 32;

const LONGEST: usize = 4096;

static mut INPUT: [u8; LONGEST] = [0; LONGEST];

/// Most headers of a request.
const MOST: usize = 64;

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
    for (word, at) in parse(input).iter().zip(0_u32..) {
        // SAFETY: a host call; the message is that long.
        unsafe { msg_store32le(4 * at, *word) }
    }
    REPLY
}
