//! Why a handler could not be promoted.

use crate::normalise::Lines;
use crate::normalise::ir::FileOffset;
use std::fmt;
use wasmparser::Operator;

/// A place in the author's code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodePlace {
    /// Offset in the Wasm file.
    pub at: FileOffset,
    /// File and line, if the Wasm file carries DWARF.
    pub line: Option<(String, u32)>,
}

impl CodePlace {
    pub(super) fn new(at: FileOffset, lines: &Lines) -> Self {
        let line = lines.at(at).map(|(file, line)| (file.to_owned(), line));
        Self { at, line }
    }
}

impl fmt::Display for CodePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.line {
            Some((file, line)) => write!(f, "{file}:{line}"),
            None => write!(f, "offset {:#x}", self.at),
        }
    }
}

/// Why a handler stays in the user tier.
///
/// Not a fault of the handler: it keeps running there, unchanged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PromoteError {
    /// eBPF has no counterpart for an operator, e.g. floating point.
    #[error("{place}: `{op}` has no eBPF counterpart")]
    NoCounterpart {
        /// The operator's place.
        place: CodePlace,
        /// Its name in the Wasm text format.
        op: String,
    },

    /// A host call that the kernel tier does not have, e.g. `send`.
    #[error("{place}: `{call}` is a call of the user tier")]
    UserTierOnly {
        /// Where it is called.
        place: CodePlace,
        /// Its name.
        call: &'static str,
    },

    /// A list of pipes that the kernel tier cannot run.
    #[error("{place}: {why}")]
    Pipe {
        /// Where it is run.
        place: CodePlace,
        /// What is missing.
        why: String,
    },

    /// The call graph's frames do not fit the per-CPU context.
    #[error("{place}: the functions' frames take {found} bytes, {most} are there")]
    Frames {
        /// The function with the largest frame.
        place: CodePlace,
        /// Bytes along the most expensive chain of calls.
        found: usize,
        /// Bytes there are.
        most: usize,
    },

    /// More code than the kernel is given.
    #[error("{place}: the handler takes more than {most} eBPF instructions")]
    TooLong {
        /// How far the translation came.
        place: CodePlace,
        /// Instructions there can be.
        most: usize,
    },

    /// The kernel would take longer to load it than others can be kept from a CPU.
    #[error(
        "{place}: the kernel would take more than {seconds} s to load the handler: {insns} eBPF \
         instructions so far, {grown} loops, calls and divisions and {jumps} conditional jumps \
         among them"
    )]
    TooSlow {
        /// How far the translation came.
        place: CodePlace,
        /// What there is, in s.
        seconds: u64,
        /// Instructions so far.
        insns: usize,
        /// Of these, what the kernel puts several in the place of.
        grown: usize,
        /// Of these, what it may remove.
        jumps: usize,
    },

    /// The function to run has not the type `(i32, i32) -> i32`.
    #[error("function {function} has not the type of a handler")]
    HandlerType {
        /// Its index.
        function: u32,
    },
}

impl PromoteError {
    /// Where in the author's code, if it is one place.
    #[must_use]
    pub const fn place(&self) -> Option<&CodePlace> {
        match self {
            Self::NoCounterpart { place, .. }
            | Self::UserTierOnly { place, .. }
            | Self::Pipe { place, .. }
            | Self::Frames { place, .. }
            | Self::TooLong { place, .. }
            | Self::TooSlow { place, .. } => Some(place),
            Self::HandlerType { .. } => None,
        }
    }

    /// One line on what the author can do next.
    #[must_use]
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::NoCounterpart { .. } => "use integers, or set `tier = \"user\"` on the path",
            Self::UserTierOnly { .. } => {
                "call it in a function of its own that another path leads to, or set \
                 `tier = \"user\"` on the path"
            }
            Self::Pipe { .. } => {
                "use pipes that sum, swap, shift or combine bits, or set `tier = \"user\"` on the \
                 path"
            }
            Self::Frames { .. } => "use fewer local variables or a flatter call graph",
            Self::TooLong { .. } => {
                "make the handler smaller, or set `tier = \"user\"` on the path"
            }
            Self::TooSlow { .. } => {
                "make the handler smaller, compile it with `-Os`, or set `tier = \"user\"` on the path"
            }
            Self::HandlerType { .. } => "write `ASHWAY_HANDLER int on_rx(int len, int channel)`",
        }
    }
}

/// Operators' names are made of their visitor's: `visit_i32_div_s`.
macro_rules! define_visitor_name {
    ($(@$proposal:ident $op:ident $({ $($arg:ident: $ty:ty),* })? => $visit:ident ($($ann:tt)*))*) => {
        const fn visitor_name(operator: &Operator<'_>) -> &'static str {
            match operator {
                $(Operator::$op { .. } => stringify!($visit),)*
                _ => "visit_unknown",
            }
        }
    };
}
wasmparser::for_each_operator!(define_visitor_name);

/// What stands before the dot in the text format.
const PREFIXES: [&str; 17] = [
    "i32", "i64", "f32", "f64", "v128", "i8x16", "i16x8", "i32x4", "i64x2", "f32x4", "f64x2",
    "memory", "table", "local", "global", "data", "elem",
];

/// The operator's name in the Wasm text format.
pub(super) fn operator_name(operator: &Operator<'_>) -> String {
    let name = visitor_name(operator).trim_start_matches("visit_");
    let prefix = PREFIXES.into_iter().chain(["ref"]).find(|prefix| {
        let rest = name.strip_prefix(prefix);
        rest.is_some_and(|rest| rest.starts_with('_'))
    });
    prefix.map_or_else(
        || name.to_owned(),
        |prefix| format!("{prefix}.{}", &name[prefix.len() + 1..]),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_have_the_names_of_the_text_format() {
        for (operator, name) in [
            (Operator::F64ConvertI32S, "f64.convert_i32_s"),
            (Operator::I32DivS, "i32.div_s"),
            (Operator::BrIf { relative_depth: 0 }, "br_if"),
            (Operator::MemoryGrow { mem: 0 }, "memory.grow"),
            (Operator::RefFunc { function_index: 0 }, "ref.func"),
            (Operator::I8x16Add, "i8x16.add"),
        ] {
            assert_eq!(operator_name(&operator), name);
        }
    }
}
