//! What a node tells those who observe it: the lines on the socket of `observe`.

use serde::{Deserialize, Serialize};

use super::Word;

/// The answer to `observe`, with which the socket comes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Observing {
    /// What the Unix clock shows when the node's monotonic clock shows 0.
    pub epoch_ns: u64,
    /// What cannot be observed.
    pub silent: Vec<Silent>,
}

/// Something that cannot be observed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Silent {
    /// What, in words.
    pub what: String,
    /// Why not.
    pub because: String,
}

/// A line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Event {
    /// Messages have been lost.
    Lost(Lost),
    /// A message has come to its end.
    Packet(Box<Packet>),
}

/// That there was more to say than could be written down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Lost {
    /// Messages since the observation began that could not be told of.
    pub lost: u64,
}

/// What happened to a message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Packet {
    /// Its number among those told of, from 1.
    pub packet: u64,
    /// The path that it took; none if no path takes it, or if that is not known.
    pub path: Option<String>,
    /// Where its path ran, once that is known: `kernel` or `user`.
    pub tier: Option<Word>,
    /// The name of the counter that says what became of it; none if a path made it, or if
    /// it has not come to its end.
    pub fate: Option<Word>,
    /// Between whom it goes (`udp 10.0.0.1:5 > 10.0.0.2:7`), if it is IP.
    pub flow: Option<String>,
    /// The frame as it came; none if a path made the message.
    pub received: Option<Frame>,
    /// What went out for it.
    pub sent: Vec<Frame>,
    /// What happened to it, in the order of time.
    pub steps: Vec<Step>,
}

/// A frame on the wire.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Frame {
    /// The interface.
    pub iface: String,
    /// When, by the node's monotonic clock.
    pub monotonic_ns: u64,
    /// Its length.
    pub bytes: u64,
    /// Its beginning, in hexadecimal digits; only if `frames` was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frame: Option<String>,
}

/// A step of a message's way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Step {
    /// Time since the first step.
    pub at_ns: u64,
    /// What it is.
    #[serde(flatten)]
    pub what: What,
}

/// What a step is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum What {
    /// A frame came.
    Received {
        /// By this interface.
        iface: String,
        /// Its length.
        bytes: u64,
        /// Who saw it first: `entry program`, `packet socket`, `TAP device`, `capture` or
        /// `link in memory`.
        by: Word,
    },
    /// Its path was found.
    Classified {
        /// The path; none if no path takes it.
        path: Option<String>,
    },
    /// The entry program has given it to another program.
    TurnedOver {
        /// `kernel tier` or `ring program`.
        to: Word,
        /// The handler of its path, if the path ends in one.
        handler: Option<String>,
    },
    /// It went into the ring of the user tier.
    Queued {
        /// The name of the counter that says why.
        because: Word,
    },
    /// It was taken out of the ring.
    Taken {
        /// By the `worker`.
        by: Word,
        /// How often its payload had been copied by then, since the driver had the frame.
        copies: u64,
    },
    /// A stage takes it.
    Stage {
        /// The stage's name.
        stage: String,
        /// `forward` or `backward`.
        direction: Word,
    },
    /// A handler ran.
    Handler {
        /// Which, if that is known.
        handler: Option<String>,
        /// How long.
        ns: u64,
        /// What it took of its budget, in units of the cost table; none if that was not
        /// measured.
        fuel: Option<u64>,
        /// Why it was stopped, if it was.
        stopped: Option<Word>,
        /// How often its payload had been copied where the handler worked.
        copies: u64,
    },
    /// It came to an end.
    Fate {
        /// The name of the counter that says which.
        fate: Word,
    },
    /// A frame went out.
    Sent {
        /// By this interface.
        iface: String,
        /// Its length.
        bytes: u64,
        /// How often its payload had been copied by then.
        copies: u64,
    },
    /// A frame should have gone out, and the socket did not take it.
    NotSent {
        /// By this interface.
        iface: String,
        /// Its length.
        bytes: u64,
        /// How often its payload had been copied by then.
        copies: u64,
    },
    /// A step that only a newer node knows.
    #[serde(untagged)]
    Unknown {
        /// Its name.
        step: String,
    },
}
