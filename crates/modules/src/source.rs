//! Originates messages at a steady rate: load for tests and measurements.
//!
//! The n-th message is sent n/`rate` seconds behind the first, however late the
//! source was woken for those before it; what is due is caught up with, at most
//! 64 at a time.
//!
//! A message carries its number (from 0) and its time, both 8 bytes big-endian,
//! and a pattern that follows from both, so that a [`sink`](crate::sink) knows
//! what is missing and what is damaged.
//!
//! * **Services:** `down`, to what it sends by. A leaf.
//! * **Attributes:** `rate` (messages per second, 1 to 1,000,000,000, default 1);
//!   `count` (messages, default no end); `len` (bytes, 24 to 65,507, default 64).
//! * **Verdicts:** `Consumed` for what is sent to it.
//! * **Counters:** those of the verdicts; the path's `originated` are its messages.
//! * **Tiers:** user.
//!
//! ```toml
//! [module.load]
//! kind = "source"
//! down = "udp.up"
//! ```
//!
//! Source: Mosberger & Peterson 1996 ("Scout"), §3.2, messages that arise in a
//! path; RFC 2544 §26.1 for constant loads.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use ashway_abi::Count;
use ashway_path::attrs::Attrs;
use ashway_path::module::{Kind, Module, Refused, StageAndNext};
use ashway_path::sim::Random;
use ashway_path::stage::{Cx, Direction, Stage, Step, Traits};
use ashway_path::time::Time;

use crate::Message;
use crate::services;
use crate::way::{Way, onward, way_of_leaf};

/// The kind.
pub static KIND: Kind = Kind {
    name: "source",
    about: "originates messages at a steady rate",
    services: &services::LEAF,
    params: &[],
};

/// Attribute: messages per second.
pub const RATE: &str = "rate";
/// Attribute: how many messages there are.
pub const COUNT: &str = "count";
/// Attribute: length of each in bytes.
pub const LEN: &str = "len";

/// Most messages at one waking.
const BURST: u32 = 64;

/// A source.
#[derive(Clone, Debug)]
pub struct Source {
    /// The module's name.
    pub name: Arc<str>,
}

impl Module<Message> for Source {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn stage(
        &self,
        entered: Option<usize>,
        attrs: &mut Attrs,
    ) -> Result<StageAndNext<Message>, Refused> {
        let rate = within(attrs, RATE, 1, 1..=1_000_000_000)?;
        let count = within(attrs, COUNT, u64::MAX, 0..=u64::MAX)?;
        let shortest = Probe::SHORTEST as u64;
        let len = within(attrs, LEN, 64, shortest..=65_507)? as usize;
        Ok(StageAndNext {
            stage: Box::new(SourceStage {
                module: self.name.clone(),
                way: way_of_leaf(entered),
                rate,
                count,
                len,
                sent: 0,
                began: None,
            }),
            next: onward(entered),
        })
    }
}

fn within(
    attrs: &Attrs,
    name: &str,
    usual: u64,
    range: RangeInclusive<u64>,
) -> Result<u64, Refused> {
    match attrs.value(name) {
        None => Ok(usual),
        Some(value) => attrs
            .number(name)
            .filter(|number| range.contains(number))
            .ok_or_else(|| Refused {
                because: format!("`{name}` is {value}"),
                hint: format!("give it a number from {} to {}", range.start(), range.end()),
            }),
    }
}

struct SourceStage {
    module: Arc<str>,
    way: Way,
    rate: u64,
    count: u64,
    len: usize,
    sent: u64,
    began: Option<Time>,
}

impl Stage<Message> for SourceStage {
    fn name(&self) -> &str {
        &self.module
    }

    fn kind(&self) -> Option<&'static Kind> {
        Some(&KIND)
    }

    fn traits(&self) -> Traits {
        Traits {
            starts: true,
            reads_clock: true,
            ..Traits::default()
        }
    }

    fn take(
        &mut self,
        message: Message,
        direction: Direction,
        _cx: &mut Cx<'_, Message>,
    ) -> Step<Message> {
        if self.way.is_up(direction) {
            Step::End(message, Count::Consumed)
        } else {
            Step::On(message)
        }
    }

    fn wake(&mut self, cx: &mut Cx<'_, Message>) {
        let began = *self.began.get_or_insert(cx.now);
        for _ in 0..BURST {
            if self.sent >= self.count || self.due(began) > cx.now {
                break;
            }
            let mut message = Message::with_room(self.len);
            message.resize(self.len);
            let probe = Probe {
                sequence: self.sent,
                sent: cx.now,
            };
            probe.write(message.bytes_mut());
            cx.also.push((self.way.down(), message));
            self.sent += 1;
        }
        *cx.wake_at = (self.sent < self.count).then(|| self.due(began));
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

impl SourceStage {
    /// When the next message is to be sent. Counted from the first, so that
    /// roundings do not add up.
    fn due(&self, began: Time) -> Time {
        let nanos = u128::from(self.sent) * 1_000_000_000 / u128::from(self.rate);
        began + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// What a source's message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Its number, from 0.
    pub sequence: u64,
    /// When it was sent, on the source's clock.
    pub sent: Time,
}

impl Probe {
    /// The shortest message that can be told from a damaged one, in bytes.
    pub const SHORTEST: usize = 24;

    const HEADER: usize = 16;

    /// Writes it; the pattern fills the rest.
    ///
    /// # Panics
    ///
    /// If `into` is shorter than [`SHORTEST`](Self::SHORTEST).
    pub fn write(self, into: &mut [u8]) {
        let (header, rest) = into.split_at_mut(Self::HEADER);
        header[..8].copy_from_slice(&self.sequence.to_be_bytes());
        header[8..].copy_from_slice(&self.sent.0.to_be_bytes());
        for (byte, wanted) in rest.iter_mut().zip(self.pattern()) {
            *byte = wanted;
        }
    }

    /// Reads it; `None` if a byte is not what it was.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        if bytes.len() < Self::SHORTEST {
            return None;
        }
        let (sequence, rest) = bytes.split_first_chunk()?;
        let (sent, rest) = rest.split_first_chunk()?;
        let probe = Self {
            sequence: u64::from_be_bytes(*sequence),
            sent: Time(u64::from_be_bytes(*sent)),
        };
        let whole = rest
            .iter()
            .zip(probe.pattern())
            .all(|(byte, wanted)| *byte == wanted);
        whole.then_some(probe)
    }

    /// Eight bytes that depend on every bit of the header, then again, each time
    /// one more.
    fn pattern(self) -> impl Iterator<Item = u8> {
        let seed = Random(self.sequence ^ Random(self.sent.0).next()).next();
        let bytes = seed.to_be_bytes();
        (0_usize..).map(move |at| bytes[at % 8].wrapping_add((at / 8) as u8))
    }
}
