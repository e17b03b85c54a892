//! Host calls: what a handler can import from `ashway`.
//!
//! All offsets are into the message at the handler's own layer (above `udp`:
//! the UDP payload starts at 0). What reads takes negative offsets, too, for the
//! headers in front of the message. An access outside stops the
//! handler with [`Cause::MessageBounds`](crate::Cause::MessageBounds).
//!
//! Access to the message is every handler's. What goes beyond that is granted by
//! whoever loads the handler: [`HostCall::grant`].

use crate::Grant;

/// Wasm value types in signatures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueType {
    /// 32-bit integer.
    I32,
    /// 64-bit integer.
    I64,
}

/// The import module's name.
pub const MODULE: &str = "ashway";

/// The closed table of host calls. Numbers are never reused; there are gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum HostCall {
    /// `msg_load8(at) -> i32`, zero-extended.
    Load8 = 1,
    /// `msg_load16le(at) -> i32`, zero-extended.
    Load16Le = 2,
    /// `msg_load16be(at) -> i32`, zero-extended.
    Load16Be = 3,
    /// `msg_load32le(at) -> i32`.
    Load32Le = 4,
    /// `msg_load32be(at) -> i32`.
    Load32Be = 5,
    /// `msg_load64le(at) -> i64`.
    Load64Le = 6,
    /// `msg_load64be(at) -> i64`.
    Load64Be = 7,
    /// `msg_store8(at, value: i32)`, low bits.
    Store8 = 8,
    /// `msg_store16le(at, value: i32)`, low bits.
    Store16Le = 9,
    /// `msg_store16be(at, value: i32)`, low bits.
    Store16Be = 10,
    /// `msg_store32le(at, value: i32)`.
    Store32Le = 11,
    /// `msg_store32be(at, value: i32)`.
    Store32Be = 12,
    /// `msg_store64le(at, value: i64)`.
    Store64Le = 13,
    /// `msg_store64be(at, value: i64)`.
    Store64Be = 14,
    /// `msg_read(at, into: ptr, len)`: message to memory.
    Read = 15,
    /// `msg_write(at, from: ptr, len)`: memory to message.
    Write = 16,
    /// `now_ns() -> i64`: `CLOCK_MONOTONIC`.
    Now = 17,
    /// `msg_resize(len) -> i32`: moves the message's end.
    Resize = 18,
    /// `log(from: ptr, len)`: a line for whoever runs the node.
    Log = 19,
    /// `send(channel, from: ptr, len) -> i32`: a message to a channel.
    Send = 40,
    /// `msg_clone(channel) -> i32`: the message, as it is now, to a channel.
    Clone = 41,
    /// `timer_set(id, ns: i64) -> i32`: `on_timer` in so many ns.
    TimerSet = 42,
    /// `pipe_read(at, into: ptr, len, list)`: message to memory through pipes.
    PipeRead = 60,
    /// `pipe_write(at, from: ptr, len, list)`: memory to message through pipes.
    PipeWrite = 61,
    /// `pipe_in_place(at: ptr, len, list)`: memory through pipes.
    PipeInPlace = 62,
    /// `pipe_set(register, value: i64)`: exports to a persistent register.
    PipeSet = 63,
    /// `pipe_get(register) -> i64`: imports from one.
    PipeGet = 64,
}

impl HostCall {
    /// Every call, in numerical order, starting at 1.
    pub const ALL: [Self; 27] = [
        Self::Load8,
        Self::Load16Le,
        Self::Load16Be,
        Self::Load32Le,
        Self::Load32Be,
        Self::Load64Le,
        Self::Load64Be,
        Self::Store8,
        Self::Store16Le,
        Self::Store16Be,
        Self::Store32Le,
        Self::Store32Be,
        Self::Store64Le,
        Self::Store64Be,
        Self::Read,
        Self::Write,
        Self::Now,
        Self::Resize,
        Self::Log,
        Self::Send,
        Self::Clone,
        Self::TimerSet,
        Self::PipeRead,
        Self::PipeWrite,
        Self::PipeInPlace,
        Self::PipeSet,
        Self::PipeGet,
    ];

    /// The import's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Load8 => "msg_load8",
            Self::Load16Le => "msg_load16le",
            Self::Load16Be => "msg_load16be",
            Self::Load32Le => "msg_load32le",
            Self::Load32Be => "msg_load32be",
            Self::Load64Le => "msg_load64le",
            Self::Load64Be => "msg_load64be",
            Self::Store8 => "msg_store8",
            Self::Store16Le => "msg_store16le",
            Self::Store16Be => "msg_store16be",
            Self::Store32Le => "msg_store32le",
            Self::Store32Be => "msg_store32be",
            Self::Store64Le => "msg_store64le",
            Self::Store64Be => "msg_store64be",
            Self::Read => "msg_read",
            Self::Write => "msg_write",
            Self::Now => "now_ns",
            Self::Resize => "msg_resize",
            Self::Log => "log",
            Self::Send => "send",
            Self::Clone => "msg_clone",
            Self::TimerSet => "timer_set",
            Self::PipeRead => "pipe_read",
            Self::PipeWrite => "pipe_write",
            Self::PipeInPlace => "pipe_in_place",
            Self::PipeSet => "pipe_set",
            Self::PipeGet => "pipe_get",
        }
    }

    /// The call with this name, if there is one.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|call| call.name() == name)
    }

    /// Parameter types, then the result type.
    #[must_use]
    pub const fn signature(self) -> (&'static [ValueType], Option<ValueType>) {
        use ValueType::{I32, I64};
        match self {
            Self::Load8 | Self::Load16Le | Self::Load16Be | Self::Load32Le | Self::Load32Be => {
                (&[I32], Some(I32))
            }
            Self::Load64Le | Self::Load64Be | Self::PipeGet => (&[I32], Some(I64)),
            Self::Store8
            | Self::Store16Le
            | Self::Store16Be
            | Self::Store32Le
            | Self::Store32Be
            | Self::Log => (&[I32, I32], None),
            Self::Store64Le | Self::Store64Be | Self::PipeSet => (&[I32, I64], None),
            Self::Read | Self::Write | Self::PipeInPlace => (&[I32, I32, I32], None),
            Self::Now => (&[], Some(I64)),
            Self::Send => (&[I32, I32, I32], Some(I32)),
            Self::Resize | Self::Clone => (&[I32], Some(I32)),
            Self::TimerSet => (&[I32, I64], Some(I32)),
            Self::PipeRead | Self::PipeWrite => (&[I32, I32, I32, I32], None),
        }
    }

    /// Whether it reads or writes the message and does nothing else.
    #[must_use]
    pub const fn is_message_access(self) -> bool {
        self as u32 <= Self::Write as u32
    }

    /// Those calls, from 1 on without a gap.
    pub fn message_accesses() -> impl Iterator<Item = Self> {
        let calls = Self::ALL.into_iter();
        calls.filter(|call| call.is_message_access())
    }

    /// What has to be granted to a handler that imports it; `None` if every
    /// handler may.
    #[must_use]
    pub const fn grant(self) -> Option<Grant> {
        match self {
            Self::Now => Some(Grant::Time),
            Self::Log => Some(Grant::Log),
            Self::Send | Self::Clone => Some(Grant::Send),
            Self::TimerSet => Some(Grant::Timer),
            call if call.uses_pipes() => Some(Grant::Pipe),
            _ => None,
        }
    }

    /// Whether the kernel tier has it, too. What does not leaves its function in the
    /// user tier.
    #[must_use]
    pub const fn in_kernel_tier(self) -> bool {
        !self.uses_outbox() || matches!(self, Self::Log)
    }

    /// Whether it works with the [lists of pipes](crate::PIPES_SECTION) of its file.
    #[must_use]
    pub const fn uses_pipes(self) -> bool {
        self as u32 >= Self::PipeRead as u32 && self as u32 <= Self::PipeGet as u32
    }

    /// Whether in the user tier it writes into the [outbox](crate::outbox).
    #[must_use]
    pub const fn uses_outbox(self) -> bool {
        matches!(self, Self::Log | Self::Send | Self::Clone | Self::TimerSet)
    }
}
