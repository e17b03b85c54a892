//! An interface, as `status` has it.

use serde::{Deserialize, Serialize};

use super::Word;

/// An interface of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// The pattern that it was taken by, if no section has its name.
    pub pattern: Option<String>,
    /// The kernel's number of it; 0 if only the node knows it.
    pub ifindex: u32,
    /// How frames come: `native`, `tcx`, `generic`, `packet`, `tap`, `pcap` or `memory`; `down`
    /// or `gone` if they do not.
    pub mode: Word,
    /// Why so, where `attach = "auto"` chose.
    pub because: Option<String>,
    /// What to do about a mode that receives nothing.
    pub hint: Option<String>,
    /// Its link address.
    pub mac: String,
    /// How often that has changed since the node started.
    pub mac_changes: u64,
    /// Receive queues.
    pub rx_queues: u64,
    /// How replies of the kernel tier leave: `xdp_tx`, `redirect` or `tcx`; the mode where there
    /// is none.
    pub reply: Word,
    /// How UDP checksums of what comes are treated, in words.
    pub udp_checksum: Word,
    /// Whether matched messages are kept from the host's stack.
    pub consumes: bool,
    /// Frames that no path takes.
    pub unmatched: Unmatched,
    /// Frames that were lost behind the node.
    pub lost_after_hand_over: LostAfterHandOver,
}

/// A section of interfaces whose name is a pattern.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Pattern {
    /// The pattern.
    pub pattern: String,
    /// How many interfaces it has taken; they are among the node's.
    pub interfaces: u64,
    /// Those that match and are not taken.
    pub not_taken: Vec<NotTaken>,
}

/// An interface that matches a pattern and is not taken.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NotTaken {
    /// Its name.
    pub name: String,
    /// Why not.
    pub because: String,
}

/// Frames that no path takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Unmatched {
    /// Frames that went on to the host's stack.
    pub passed: u64,
    /// Frames that came while the interface's packet socket was full: whose they were nobody has
    /// looked. The host's stack has them, but for those that are kept from it.
    pub overflowed: u64,
    /// Frames that were dropped because there is no host behind the interface: it is a TAP
    /// device, or a link between two interfaces of the node.
    #[serde(default)]
    pub no_host: u64,
}

/// Frames that were counted as sent, and did not leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LostAfterHandOver {
    /// Frames that the driver says it lost.
    pub driver: u64,
}
