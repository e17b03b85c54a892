//! The section `ashway.state`: which part of its memory a handler hands on to the
//! version that comes after it in a swap.
//!
//! Three little-endian `u32`: where the state begins, where it ends, and the
//! version of its form, which the author counts.

use wasmparser::CustomSectionReader;

use super::error::NormaliseError;
use ashway_abi::memory::WASM_PAGE;

/// The name of the function that makes the present form of the state from an older
/// one, of type `(i32) -> ()`; its argument is the older version.
pub const MIGRATE: &str = "migrate";

/// Memory that outlives the version of a handler that wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateRange {
    /// Where it begins, in the handler's memory.
    pub offset: u32,
    /// Its length in bytes.
    pub bytes: u32,
    /// The version of its form.
    pub version: u32,
}

/// Reads the section.
///
/// # Errors
///
/// [`NormaliseError::Invalid`] if it is not of this form.
pub(super) fn read(section: &CustomSectionReader<'_>) -> Result<StateRange, NormaliseError> {
    let invalid = |message: String| NormaliseError::Invalid {
        at: section.data_offset() as u32,
        message: format!("section `{}` {message}", section.name()),
    };
    let (words, rest) = section.data().as_chunks::<4>();
    let &[begin, end, version] = words else {
        let most = "bytes, not 12 (`ASHWAY_STATE_VERSION` may stand in one of the C files only)";
        return Err(invalid(format!("has {} {most}", section.data().len())));
    };
    let [begin, end, version] = [begin, end, version].map(u32::from_le_bytes);
    match end.checked_sub(begin) {
        Some(bytes) if rest.is_empty() => Ok(StateRange {
            offset: begin,
            bytes,
            version,
        }),
        _ => Err(invalid(format!(
            "ends at {end}, before it begins at {begin}"
        ))),
    }
}

impl StateRange {
    /// Whether all of it is there from the first message on.
    ///
    /// # Errors
    ///
    /// [`NormaliseError::Invalid`] if it is not.
    pub(super) fn check(self, initial_pages: u32) -> Result<(), NormaliseError> {
        let end = u64::from(self.offset) + u64::from(self.bytes);
        let there = u64::from(initial_pages) * WASM_PAGE as u64;
        if end <= there {
            return Ok(());
        }
        Err(NormaliseError::Invalid {
            at: 0,
            message: format!(
                "the state ends at byte {end} of a memory of {there} (section `{}`)",
                ashway_abi::STATE_SECTION
            ),
        })
    }
}
