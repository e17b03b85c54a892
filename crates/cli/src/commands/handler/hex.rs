//! Bytes as people and documents have them.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

pub(super) fn lower_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

pub(super) fn sha256(bytes: &[u8]) -> String {
    lower_hex(&Sha256::digest(bytes))
}
