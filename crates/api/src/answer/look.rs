//! What else can be looked at: the demux, lines of handlers, their faults, their memory.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Word;

/// The answer to `demux`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Demux {
    /// In the configuration's order.
    pub interfaces: Vec<DemuxOfInterface>,
}

/// How the paths of an interface are told apart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DemuxOfInterface {
    /// The interface.
    pub name: String,
    /// How many filters there are.
    pub filters: u64,
    /// Filters that test the same bits, the most specific first.
    pub shapes: Vec<Shape>,
    /// The order of the tests, drawn as a tree.
    pub tree: String,
    /// Frames that no path takes; absent of a configuration, where nothing runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unmatched: Option<u64>,
}

/// Filters that test the same bits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Shape {
    /// Its number.
    pub id: u64,
    /// Tests that all of them make.
    pub guards: Vec<String>,
    /// Tests that must not hold, for all of them.
    pub not: Vec<String>,
    /// The fields whose values are looked up.
    pub key: Vec<String>,
    /// The length of those values.
    pub key_bytes: u64,
    /// Bits of a frame that it tests.
    pub bits: u64,
    /// Tests that must not hold.
    pub exclusions: u64,
    /// How many filters have this shape.
    pub entries: u64,
    /// Frames that one of them caught; none where nobody counts.
    pub hits: Option<u64>,
    /// Filters of this shape, those that caught most first, up to 1000.
    pub paths: Vec<ShapeEntry>,
}

/// A filter of a shape.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ShapeEntry {
    /// The filter's tests.
    pub tests: String,
    /// The path that it leads to.
    pub path: String,
    /// Frames that it caught; none where nobody counts.
    pub hits: Option<u64>,
}

/// The answer to `log`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Lines {
    /// The handler.
    pub handler: String,
    /// The oldest first.
    pub lines: Vec<LogLine>,
    /// The number of the last line there ever was.
    pub last: u32,
    /// Lines that were written over before they were read.
    pub overwritten: u32,
    /// Lines that a message had too many.
    pub too_many: u32,
}

/// A line that a handler has logged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LogLine {
    /// Its number.
    pub number: u32,
    /// When, by the node's monotonic clock.
    pub at_ns: u64,
    /// The path of the message; none if that is gone.
    pub path: Option<String>,
    /// What it says.
    pub text: String,
}

/// The answer to `faults`: messages that have stopped handlers, the latest last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Faults(pub Vec<Fault>);

/// A message that has stopped a handler.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Fault {
    /// Its number.
    pub fault: u64,
    /// The handler.
    pub handler: String,
    /// SHA-256 of the handler's Wasm file, in hexadecimal digits.
    pub digest: String,
    /// The function that was stopped.
    pub function: String,
    /// Where it ran: `kernel` or `user`.
    pub tier: Word,
    /// Why it was stopped.
    pub cause: Word,
    /// Offset in the Wasm file.
    pub at: u32,
    /// The source file, if the Wasm file knows it.
    pub file: Option<String>,
    /// The line in it.
    pub line: Option<u32>,
    /// The channel that it came by, as the handler saw it.
    pub channel: u32,
    /// The message's length.
    pub message_bytes: u64,
    /// Whether the handler had changed the message.
    pub changed: bool,
    /// Whether memory and message are as they were before the handler began, and not as it left
    /// them.
    pub exact: bool,
    /// How often the same message has stopped it at the same place.
    pub times: u64,
}

/// All that a replay takes: the answer to `fault`. Bytes are hexadecimal digits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Replayable {
    /// Which.
    #[serde(flatten)]
    pub fault: Fault,
    /// Time that the handler had.
    pub budget_ns: u64,
    /// The Wasm file.
    pub wasm: String,
    /// Whether the handler may reply.
    pub may_reply: bool,
    /// What lay in front of the message in its frame.
    pub front: String,
    /// The message.
    pub message: String,
    /// The handler's memory, behind it or before it (`exact`).
    pub memory: String,
    /// Length of the memory that the handler sees.
    pub guest_bytes: u64,
}

/// The answer to `memory`, with which a descriptor to map comes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HandlerMemory {
    /// `arena`, `array` or `memfd`.
    pub kind: Word,
    /// Where an arena has to be mapped, in hexadecimal digits (`0x...`).
    pub address: String,
    /// Its length.
    pub bytes: u64,
    /// Where the handler's exported variables lie in it, by name.
    pub symbols: BTreeMap<String, u64>,
}

/// The answer to `endpoint`, with which a descriptor to sleep on comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EndpointPlace {
    /// Messages that the ring holds.
    pub slots: u64,
    /// Length of a slot.
    pub slot_bytes: u64,
    /// Where the first payload lies in the handler's memory.
    pub payloads_at: u64,
    /// Where the ring's indices lie there.
    pub control_at: u64,
}
