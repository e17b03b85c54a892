//! What a node reads of a path's attributes, beside its modules.

use std::time::Duration;

use ashway_modules::attributes::{self, AttributeSpec, Form, Wrong};
use ashway_path::attrs::{Attrs, Value};

use crate::share::{MOST_RUNS, Share};
use crate::types::{Config, FaultLimit, OnFault, OrderRule, PathConfig};

/// Attributes of a path in the short form, beside those that modules know.
pub mod attr {
    /// Text: what happens to a message whose handler was stopped.
    pub const ON_FAULT: &str = "on_fault";
    /// Number: how long the handler may take for one message, in ns.
    pub const BUDGET_NS: &str = "budget_ns";
    /// Number: how often the handler may be stopped, 0 for ever so often.
    pub const FAULT_LIMIT: &str = "fault_limit";
    /// Number: within which time, in ns.
    pub const FAULT_WITHIN_NS: &str = "fault_within_ns";
    /// Number: how long messages then go by it, in ns.
    pub const FAULT_REST_NS: &str = "fault_rest_ns";
    /// Number: most thousandths of a CPU that the path may have, 1 to 1,000.
    pub const SHARE_PER_MILLE: &str = "share_per_mille";
    /// Number: most messages a second that it may take.
    pub const RATE_PER_SECOND: &str = "rate_per_second";
    /// Number: the path's memory grant, in bytes; 512 KiB without it.
    pub const MEMORY_BYTES: &str = "memory_bytes";
    /// Number: most messages that wait for the path in each direction, 1 to 65,536; as many
    /// as a ring holds without it.
    pub const QUEUE: &str = "queue";
    /// Text: which of a path's messages keep their order where some go to the user tier and
    /// others do not: those of a `flow`, of the `path`, or `none`.
    pub const ORDER: &str = "order";
}

/// What reads these, beside the modules.
pub(super) const OWN_ATTRIBUTES: &[AttributeSpec] = &[
    (
        attr::ON_FAULT,
        Form::Word(&[
            OnFault::Pass.word(),
            OnFault::Drop.word(),
            OnFault::Demote.word(),
        ]),
    ),
    (
        attr::BUDGET_NS,
        within([Config::MIN_BUDGET, Config::MAX_BUDGET]),
    ),
    (attr::FAULT_LIMIT, Form::Within(0, u32::MAX as u64)),
    (attr::FAULT_WITHIN_NS, within(FaultLimit::TIMES)),
    (attr::FAULT_REST_NS, within(FaultLimit::TIMES)),
    (
        attr::SHARE_PER_MILLE,
        Form::Within(1, MOST_PER_MILLE as u64),
    ),
    (attr::RATE_PER_SECOND, Form::Within(1, MOST_RUNS as u64)),
    (attr::MEMORY_BYTES, Form::Number),
    (attr::QUEUE, Form::Within(1, MOST_QUEUED as u64)),
    (
        attr::ORDER,
        Form::Word(&[
            OrderRule::Flow.word(),
            OrderRule::Path.word(),
            OrderRule::None.word(),
        ]),
    ),
];

/// Most messages that an input queue may hold; that it may is paid for by the path's memory
/// grant.
pub(super) const MOST_QUEUED: u32 = 1 << 16;

/// The name of an attribute that was checked, as the node has it.
pub(super) fn name(given: &str) -> Option<&'static str> {
    let mut known = attributes::known(OWN_ATTRIBUTES).map(|(name, _)| name);
    known.find(|name| *name == given)
}

/// A whole CPU.
const MOST_PER_MILLE: u32 = 1_000;

/// A time between two, in ns.
const fn within([least, most]: [Duration; 2]) -> Form {
    Form::Within(least.as_nanos() as u64, most.as_nanos() as u64)
}

/// An attribute that somebody gives a path, by its name as the node has it and as it is
/// read: the one check of the configuration, of requests, of `path plan` and of shells.
///
/// # Errors
///
/// Nobody reads it, or not with this value.
pub fn attribute(name: &str, value: Value) -> Result<(&'static str, Value), Wrong> {
    attributes::check(OWN_ATTRIBUTES, name, value)
}

/// Tells a path how often its handler may be stopped.
pub(super) fn set_faults(attrs: &mut Attrs, limit: Option<FaultLimit>) {
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let FaultLimit { most, within, rest } = limit.unwrap_or_else(|| FaultLimit {
        most: 0,
        ..FaultLimit::default()
    });
    attrs.set(attr::FAULT_LIMIT, u64::from(most));
    attrs.set(attr::FAULT_WITHIN_NS, ns(within));
    if let Some(rest) = rest {
        attrs.set(attr::FAULT_REST_NS, ns(rest));
    }
}

/// How often a path's handler may be stopped, by the path's attributes.
#[must_use]
pub fn faults(attrs: &Attrs) -> Option<FaultLimit> {
    let usual = FaultLimit::default();
    let time = |name| attrs.number(name).map(Duration::from_nanos);
    let most = attrs.number(attr::FAULT_LIMIT);
    let most = most.map_or(usual.most, |most| u32::try_from(most).unwrap_or(u32::MAX));
    (most > 0).then(|| FaultLimit {
        most,
        within: time(attr::FAULT_WITHIN_NS).unwrap_or(usual.within),
        rest: time(attr::FAULT_REST_NS).or(usual.rest),
    })
}

/// Tells a path what it may have of the tier that it runs in.
pub(super) fn set_share(attrs: &mut Attrs, share: Option<Share>) {
    if let Some(Share { per_mille, rate }) = share {
        attrs.set(attr::SHARE_PER_MILLE, u64::from(per_mille));
        if let Some(rate) = rate {
            attrs.set(attr::RATE_PER_SECOND, u64::from(rate));
        }
    }
}

/// Tells a path which of its messages keep their order, if it is not the usual.
pub(super) fn set_order(attrs: &mut Attrs, order: OrderRule) {
    if order != OrderRule::default() {
        attrs.set(attr::ORDER, order.word());
    }
}

/// Which of a path's messages keep their order, by its attributes.
pub(super) fn order(attrs: &Attrs) -> OrderRule {
    let word = attrs.text(attr::ORDER);
    let mut rules = OrderRule::WORDS.iter();
    let named = rules.find(|(known, _)| Some(*known) == word);
    named.map(|(_, rule)| *rule).unwrap_or_default()
}

/// Tells a path what its section, or who created it, limits of what it holds.
pub(super) fn set_limits(attrs: &mut Attrs, path: &PathConfig) {
    for (name, limit) in [
        (attr::QUEUE, path.queue),
        (attr::MEMORY_BYTES, path.memory_bytes),
    ] {
        if let Some(limit) = limit {
            attrs.set(name, limit);
        }
    }
}

/// What a path may have of the tier that it runs in, by its attributes.
#[must_use]
pub fn share(attrs: &Attrs) -> Option<Share> {
    let number = |name, most: u32| {
        let number = attrs.number(name)?;
        Some(u32::try_from(number).unwrap_or(most).clamp(1, most))
    };
    Share::of(
        number(attr::SHARE_PER_MILLE, MOST_PER_MILLE),
        number(attr::RATE_PER_SECOND, MOST_RUNS),
    )
}
