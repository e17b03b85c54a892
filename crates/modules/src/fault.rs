//! Does to messages what bad networks do: for tests of what stands above.
//!
//! Loses, duplicates, corrupts (one bit), delays, reorders, and drops what is too
//! long, in both directions alike. The same seed, messages and times give the same
//! faults. A delayed message is kept: it ends as `Absorbed`, and what goes on
//! later is originated by the path, so that both ledgers close. A message that is
//! reordered is kept for `reorder_us` more, and those behind it go first. What is
//! kept when the path goes, goes with it.
//!
//! * **Services:** `down` and `up`, to what exchanges messages.
//! * **Attributes** (and parameters, which are their defaults): `loss_ppm`,
//!   `duplicate_ppm`, `corrupt_ppm`, `reorder_ppm` (messages in a million, default
//!   0); `delay_us` and `jitter_us` (delay, and most that chance adds to it, in
//!   microseconds, default 0); `reorder_us` (default 1,000); `max_bytes` (longest
//!   message that passes, at this layer, default any); `hold` (most messages kept,
//!   1 to 4,096, default 64); `seed` (default 1).
//! * **Verdicts:** `DroppedFault` for what is lost; `DroppedTooLong`; `Absorbed`;
//!   `DroppedQueueFull` for what is to be kept when `hold` are.
//! * **Counters:** those of the verdicts.
//! * **Tiers:** user.
//!
//! ```toml
//! [module.bad]
//! kind = "fault"
//! down = "wire.up"
//! up = "ip.down"
//! loss_ppm = 10000
//! ```
//!
//! Source: Hemminger 2005, "Network Emulation with `NetEm`".

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use ashway_abi::Count;
use ashway_path::attrs::Attrs;
use ashway_path::module::{Kind, Module, Param, Refused, StageAndNext};
use ashway_path::read::Params;
use ashway_path::sim::Random;
use ashway_path::stage::{Cx, Direction, Stage, Step, Traits};
use ashway_path::time::Time;

use crate::Message;
use crate::services;
use crate::way::through;

/// The kind.
pub static KIND: Kind = Kind {
    name: "fault",
    about: "loses, duplicates, corrupts, delays and reorders messages",
    services: &services::LINK_LIKE,
    params: &[
        Param {
            name: "loss_ppm",
            about: "lost, in a million messages, default 0",
        },
        Param {
            name: "duplicate_ppm",
            about: "sent on twice, in a million messages, default 0",
        },
        Param {
            name: "corrupt_ppm",
            about: "sent on with one wrong bit, in a million messages, default 0",
        },
        Param {
            name: "reorder_ppm",
            about: "sent on later than those behind them, in a million messages, default 0",
        },
        Param {
            name: "delay_us",
            about: "delay of every message, in microseconds, default 0",
        },
        Param {
            name: "jitter_us",
            about: "most that chance adds to the delay, in microseconds, default 0",
        },
        Param {
            name: "reorder_us",
            about: "what reordering adds to the delay, in microseconds, default 1000",
        },
        Param {
            name: "max_bytes",
            about: "longest message that passes, in bytes, default any",
        },
        Param {
            name: "hold",
            about: "most messages that are kept, default 64",
        },
        Param {
            name: "seed",
            about: "where chance begins, default 1",
        },
    ],
};

/// The fate of a message that was lost.
const LOST: Count = Count::DroppedFault;

/// Most messages that can be kept: they all may be due at once.
const MOST_HELD: u64 = 4096;

const MILLION: u64 = 1_000_000;

/// What goes wrong, and how often. See the module's attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is the attribute of its name")]
pub struct Settings {
    pub loss_ppm: u64,
    pub duplicate_ppm: u64,
    pub corrupt_ppm: u64,
    pub reorder_ppm: u64,
    pub delay_us: u64,
    pub jitter_us: u64,
    pub reorder_us: u64,
    pub max_bytes: u64,
    pub hold: u64,
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            loss_ppm: 0,
            duplicate_ppm: 0,
            corrupt_ppm: 0,
            reorder_ppm: 0,
            delay_us: 0,
            jitter_us: 0,
            reorder_us: 1000,
            max_bytes: u64::MAX,
            hold: 64,
            seed: 1,
        }
    }
}

impl Settings {
    /// These, where `read` has no others.
    fn but(self, mut read: impl FnMut(&'static str) -> Option<u64>) -> Self {
        let mut or = |name, usual| read(name).unwrap_or(usual);
        Self {
            loss_ppm: or("loss_ppm", self.loss_ppm),
            duplicate_ppm: or("duplicate_ppm", self.duplicate_ppm),
            corrupt_ppm: or("corrupt_ppm", self.corrupt_ppm),
            reorder_ppm: or("reorder_ppm", self.reorder_ppm),
            delay_us: or("delay_us", self.delay_us),
            jitter_us: or("jitter_us", self.jitter_us),
            reorder_us: or("reorder_us", self.reorder_us),
            max_bytes: or("max_bytes", self.max_bytes),
            hold: or("hold", self.hold),
            seed: or("seed", self.seed),
        }
    }

    /// The first that is impossible, with the most it can be.
    fn impossible(&self) -> Option<(&'static str, u64, u64)> {
        [
            ("loss_ppm", self.loss_ppm, MILLION),
            ("duplicate_ppm", self.duplicate_ppm, MILLION),
            ("corrupt_ppm", self.corrupt_ppm, MILLION),
            ("reorder_ppm", self.reorder_ppm, MILLION),
            ("hold", self.hold, MOST_HELD),
        ]
        .into_iter()
        .find(|(_, value, most)| value > most)
    }

    fn keeps(&self) -> bool {
        self.delay_us > 0 || self.jitter_us > 0 || self.reorder_ppm > 0
    }
}

/// A bad network.
#[derive(Clone, Debug)]
pub struct Fault {
    /// The module's name.
    pub name: Arc<str>,
    /// What goes wrong on paths whose attributes say nothing else.
    pub settings: Arc<Settings>,
}

impl Fault {
    /// Makes it from its section of a configuration; mistakes are noted.
    pub fn read(name: Arc<str>, params: &mut Params<'_>) -> Self {
        let settings = Settings::default().but(|name| params.optional(name));
        if let Some((key, value, most)) = settings.impossible() {
            let message = format!("`{key}` is {value}, and can be {most} at most");
            params.refuse(key, &message, &format!("give it a number from 0 to {most}"));
        }
        Self {
            name,
            settings: settings.into(),
        }
    }
}

impl Module<Message> for Fault {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn stage(
        &self,
        entered: Option<usize>,
        attrs: &mut Attrs,
    ) -> Result<StageAndNext<Message>, Refused> {
        let mut settings = Arc::clone(&self.settings);
        let own = settings.but(|name| attrs.number(name));
        // Thousands of paths have those of the module.
        if own != *settings {
            settings = own.into();
        }
        if let Some((name, value, most)) = settings.impossible() {
            return Err(Refused {
                because: format!("`{name}` is {value}"),
                hint: format!("give it a number from 0 to {most}"),
            });
        }
        Ok(StageAndNext {
            stage: Box::new(FaultStage {
                module: self.name.clone(),
                random: Random(settings.seed),
                settings,
                delayed: None,
            }),
            next: through(entered),
        })
    }
}

struct FaultStage {
    module: Arc<str>,
    settings: Arc<Settings>,
    random: Random,
    /// Made by the first message that is kept: most stages never keep one.
    delayed: Option<Box<Delayed>>,
}

/// Messages that go on later.
#[derive(Default)]
struct Delayed {
    kept: BinaryHeap<Reverse<DelayedMessage>>,
    /// Number of the next message that is kept.
    order: u64,
}

/// A message that goes on later; first due, first gone; among equals, first come.
struct DelayedMessage {
    due: Time,
    order: u64,
    direction: Direction,
    message: Message,
}

impl Stage<Message> for FaultStage {
    fn name(&self) -> &str {
        &self.module
    }

    fn kind(&self) -> Option<&'static Kind> {
        Some(&KIND)
    }

    fn traits(&self) -> Traits {
        Traits {
            reads_clock: self.settings.keeps(),
            ..Traits::default()
        }
    }

    fn memory_bytes(&self) -> usize {
        if self.settings.keeps() {
            self.settings.hold as usize * size_of::<DelayedMessage>()
        } else {
            0
        }
    }

    fn destroy(&mut self) {
        self.delayed = None;
    }

    fn take(
        &mut self,
        mut message: Message,
        direction: Direction,
        cx: &mut Cx<'_, Message>,
    ) -> Step<Message> {
        let settings = *self.settings;
        if message.len() as u64 > settings.max_bytes {
            return Step::End(message, Count::DroppedTooLong);
        }
        if self.happens(settings.loss_ppm) {
            return Step::End(message, LOST);
        }
        if self.happens(settings.corrupt_ppm) {
            let bit = self.random.below(message.len() as u64 * 8);
            if let Some(byte) = message.bytes_mut().get_mut(bit as usize / 8) {
                *byte ^= 1 << (bit % 8);
            }
        }
        let copy = self
            .happens(settings.duplicate_ppm)
            .then(|| message.clone());
        let step = match self.delay() {
            Duration::ZERO => Step::On(message),
            delay => match self.keep(message, direction, cx.now + delay) {
                Ok(()) => Step::Absorbed,
                Err(message) => Step::End(message, Count::DroppedQueueFull),
            },
        };
        if let Some(copy) = copy {
            match self.delay() {
                Duration::ZERO => cx.also.push((direction, copy)),
                // A copy that there is no room for was never sent.
                delay => drop(self.keep(copy, direction, cx.now + delay)),
            }
        }
        *cx.wake_at = self.due();
        step
    }

    fn wake(&mut self, cx: &mut Cx<'_, Message>) {
        while self.due().is_some_and(|due| due <= cx.now) {
            let delayed = self.delayed.as_mut();
            if let Some(Reverse(kept)) = delayed.and_then(|delayed| delayed.kept.pop()) {
                cx.also.push((kept.direction, kept.message));
            }
        }
        *cx.wake_at = self.due();
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

impl FaultStage {
    /// Whether something that happens to so many of a million happens now.
    fn happens(&mut self, ppm: u64) -> bool {
        ppm > 0 && self.random.below(MILLION) < ppm
    }

    fn delay(&mut self) -> Duration {
        let settings = *self.settings;
        let mut micros = settings.delay_us;
        if settings.jitter_us > 0 {
            let most = settings.jitter_us.saturating_add(1);
            micros = micros.saturating_add(self.random.below(most));
        }
        if self.happens(settings.reorder_ppm) {
            micros = micros.saturating_add(settings.reorder_us);
        }
        Duration::from_micros(micros)
    }

    fn keep(&mut self, message: Message, direction: Direction, due: Time) -> Result<(), Message> {
        let Delayed { kept, order } = &mut **self.delayed.get_or_insert_default();
        if kept.len() as u64 >= self.settings.hold {
            return Err(message);
        }
        kept.push(Reverse(DelayedMessage {
            due,
            order: *order,
            direction,
            message,
        }));
        *order += 1;
        Ok(())
    }

    /// When the next message goes on.
    fn due(&self) -> Option<Time> {
        let kept = &self.delayed.as_ref()?.kept;
        kept.peek().map(|Reverse(kept)| kept.due)
    }
}

impl Ord for DelayedMessage {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.due, self.order).cmp(&(other.due, other.order))
    }
}

impl PartialOrd for DelayedMessage {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for DelayedMessage {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for DelayedMessage {}
