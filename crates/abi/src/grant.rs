//! Grants: what whoever loads a handler lets it do beyond looking at messages.
//!
//! A closed list, in the words of the configuration (`allow = ["reply", "time"]`)
//! and of `ashway handler load --allow`. A handler that imports a
//! [`HostCall`](crate::HostCall) without its grant is not loaded; `reply`, which
//! is a verdict and no import, is none without it.

/// Something a handler may be allowed to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    /// Answer a message to its sender.
    Reply,
    /// Read the clock.
    Time,
    /// Write lines for whoever runs the node.
    Log,
    /// Send messages to the channels of its section.
    Send,
    /// Be run at times of its own.
    Timer,
    /// Have data pass through pipes, which become machine code.
    Pipe,
}

impl Grant {
    /// The words and what each means.
    pub const WORDS: &'static [(&'static str, Self)] = &[
        ("reply", Self::Reply),
        ("time", Self::Time),
        ("log", Self::Log),
        ("send", Self::Send),
        ("timer", Self::Timer),
        ("pipe", Self::Pipe),
    ];

    /// The word of the configuration.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Reply => "reply",
            Self::Time => "time",
            Self::Log => "log",
            Self::Send => "send",
            Self::Timer => "timer",
            Self::Pipe => "pipe",
        }
    }
}
