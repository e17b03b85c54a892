//! Why a file is no handler.

use super::ir::FileOffset;
use wasmparser::WasmFeatures;

/// Why a Wasm file was refused. The party to blame is always the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NormaliseError {
    /// A part of the file is larger than the node allows.
    #[error("{found} {what}, at most {most} are allowed")]
    TooLarge {
        /// The part, in the plural.
        what: &'static str,
        /// How many there are.
        found: u64,
        /// How many there may be.
        most: u64,
    },

    /// The file is not valid WebAssembly of the features allowed.
    #[error("not a valid Wasm module: {message}")]
    Invalid {
        /// Where reading stopped.
        at: FileOffset,
        /// The parser's or validator's words.
        message: String,
    },

    /// The file was built for another version of the handler ABI.
    #[error(
        "built for handler ABI version {found}, this is version {}",
        ashway_abi::VERSION
    )]
    Version {
        /// Where the version is.
        at: FileOffset,
        /// The file's version.
        found: u32,
    },

    /// The memory is missing, imported, or not exported.
    #[error("{problem}")]
    Memory {
        /// What is wrong.
        problem: &'static str,
        /// Where, if the file says anything about a memory.
        at: Option<FileOffset>,
    },

    /// There is no exported function `on_rx`.
    #[error("no exported function `{name}`")]
    NoHandler {
        /// The missing name.
        name: &'static str,
    },

    /// A handler's type is not `(i32, i32) -> i32`.
    #[error("`{name}` has type {found}, a handler has type (i32, i32) -> i32")]
    HandlerType {
        /// The exported name.
        name: String,
        /// Its type.
        found: String,
        /// Where it is.
        at: FileOffset,
    },

    /// An import that does not exist.
    #[error("unknown import `{module}.{name}`")]
    UnknownImport {
        /// The import's module.
        module: String,
        /// The import's name.
        name: String,
        /// Where it is.
        at: FileOffset,
    },

    /// An import of the right name and the wrong type.
    #[error("import `{name}` is {found}, it should be {expected}")]
    ImportType {
        /// The import's name.
        name: String,
        /// What the ABI says.
        expected: String,
        /// What the file says.
        found: String,
        /// Where it is.
        at: FileOffset,
    },

    /// Valid WebAssembly that has no normal form.
    #[error("{what}")]
    Unsupported {
        /// What there is.
        what: String,
        /// Where it is.
        at: FileOffset,
    },

    /// A list of pipes that is none.
    #[error("{message}")]
    Pipes {
        /// What is wrong with it.
        message: String,
        /// What to write instead.
        hint: String,
        /// Where it is; 0 if it is missing.
        at: FileOffset,
        /// The list and a line with carets under what is at fault; empty if it is
        /// missing.
        caret: String,
    },

    /// An active segment that lies outside its memory or table.
    #[error("{what} does not fit: instantiating the module would always fail")]
    Segment {
        /// Which segment.
        what: String,
        /// Where it is.
        at: FileOffset,
    },
}

impl NormaliseError {
    /// Where in the file, if it is one place.
    #[must_use]
    pub const fn place(&self) -> Option<FileOffset> {
        match self {
            Self::TooLarge { .. } | Self::NoHandler { .. } => None,
            Self::Memory { at, .. } => *at,
            Self::Invalid { at, .. }
            | Self::Version { at, .. }
            | Self::HandlerType { at, .. }
            | Self::UnknownImport { at, .. }
            | Self::ImportType { at, .. }
            | Self::Unsupported { at, .. }
            | Self::Pipes { at, .. }
            | Self::Segment { at, .. } => Some(*at),
        }
    }

    /// The text at fault, and below it carets and what is wrong, as
    /// [`ParseError::caret`](crate::pipe::ParseError::caret) has them; nothing if the
    /// fault is in no text. Says what the message says.
    pub fn caret(&self) -> impl Iterator<Item = &str> {
        match self {
            Self::Pipes { caret, .. } => caret.lines(),
            _ => "".lines(),
        }
    }

    /// One line on what the author can do next.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::TooLarge { what, .. } if *what == MEMORY_PAGES => {
                "link with a smaller `-Wl,--max-memory=`".into()
            }
            Self::TooLarge { what, .. } if *what == PIPE_LISTS => {
                "leave lists out that no call names, or make two handlers of it; a list itself may \
                 have up to 32 pipes"
                    .into()
            }
            Self::TooLarge { what, .. } if *what == PIPE_LIST_BYTES => {
                "make two lists of it, each with a line of its own".into()
            }
            Self::TooLarge { .. } => "make the handler smaller; it runs for every message".into(),
            Self::Invalid { .. } => {
                "is it the compiler's output, complete, for wasm32 without exceptions or GC?".into()
            }
            Self::Version { .. } => {
                "`#include <ashway.h>` of this version and compile again".into()
            }
            Self::Memory { .. } => {
                "link with `-Wl,--max-memory=131072` and without `--import-memory`".into()
            }
            Self::NoHandler { .. } => {
                "write `ASHWAY_HANDLER int on_rx(int len, int channel)`".into()
            }
            Self::HandlerType { name, .. } => {
                format!("write `ASHWAY_HANDLER int {name}(int len, int channel)`")
            }
            Self::UnknownImport { module, .. } if module == ashway_abi::host_call::MODULE => {
                let names: Vec<_> = ashway_abi::HostCall::ALL.iter().map(|c| c.name()).collect();
                format!("`ashway` has {}", names.join(", "))
            }
            Self::UnknownImport { .. } => {
                "handlers import from `ashway` only; define the function or link it in".into()
            }
            Self::ImportType { .. } => "use the declaration in `ashway.h`".into(),
            Self::Unsupported { .. } => "write it without, see docs/abi/".into(),
            Self::Pipes { hint, .. } => hint.clone(),
            Self::Segment { .. } => "link with a larger `-Wl,--initial-memory=`".into(),
        }
    }
}

/// Parts of a file that have a quota of their own, and something else to be done about it.
pub(super) const MEMORY_PAGES: &str = "pages of declared memory maximum";
pub(super) const PIPE_LISTS: &str = "lists of pipes";
pub(super) const PIPE_LIST_BYTES: &str = "bytes of a list of pipes";

impl From<wasmparser::Error> for NormaliseError {
    fn from(error: wasmparser::Error) -> Self {
        let at = error.offset() as u32;
        match error.missing_wasm_feature().and_then(feature) {
            Some(feature) => Self::Unsupported {
                what: feature.into(),
                at,
            },
            None => Self::Invalid {
                at,
                message: match error.message() {
                    // These words go on with a listing of the bytes.
                    words if words.starts_with("magic header not detected") => {
                        "it does not begin with `\\0asm`, so it is no Wasm file".into()
                    }
                    words => words.to_string(),
                },
            },
        }
    }
}

/// What people call a feature that the validator misses.
fn feature(missing: WasmFeatures) -> Option<&'static str> {
    let names = [
        (WasmFeatures::EXCEPTIONS, "exceptions"),
        (WasmFeatures::LEGACY_EXCEPTIONS, "exceptions"),
        (WasmFeatures::GC, "garbage-collected types"),
        (WasmFeatures::GC_TYPES, "garbage-collected types"),
        (
            WasmFeatures::FUNCTION_REFERENCES,
            "typed function references",
        ),
        (
            WasmFeatures::MEMORY64,
            "64-bit memories and tables (memory64)",
        ),
        (WasmFeatures::MULTI_MEMORY, "more than one memory"),
        (WasmFeatures::TAIL_CALL, "tail calls"),
        (WasmFeatures::RELAXED_SIMD, "relaxed SIMD"),
        (
            WasmFeatures::EXTENDED_CONST,
            "extended constant expressions",
        ),
        (
            WasmFeatures::CUSTOM_PAGE_SIZES,
            "memory pages of other sizes",
        ),
        (WasmFeatures::WIDE_ARITHMETIC, "128-bit arithmetic"),
        (WasmFeatures::STACK_SWITCHING, "stack switching"),
        (
            WasmFeatures::SHARED_EVERYTHING_THREADS,
            "shared things other than memories",
        ),
    ];
    let found = names.iter().find(|(known, _)| missing.intersects(*known));
    found.map(|(_, name)| *name)
}
