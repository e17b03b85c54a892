//! What a handler's outcome means for the message: pure.
//!
//! The kernel tier's epilogue (`codegen::instance`) is the same table in eBPF.

use ashway_abi::{Cause, Count, Verdict};
use ashway_modules::handler::Act;

/// What the path's configuration has to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rules {
    /// Whether the handler was granted `reply`.
    pub(crate) may_reply: bool,
    /// Whether a fault drops the message; otherwise it is passed on.
    pub(crate) on_fault_drop: bool,
}

/// A decision: what to do, and what to count in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decision {
    /// What to do.
    pub(crate) act: Act,
    /// What became of the activation: committed, or why not.
    pub(crate) note: Count,
    /// Why the handler was stopped, if it was.
    pub(crate) stopped: Option<Cause>,
}

/// Decides. `verdict` is the handler's, or why it was stopped; `dirty` is
/// whether it changed the message.
#[must_use]
pub(crate) fn decide(verdict: Result<Verdict, Cause>, dirty: bool, rules: Rules) -> Decision {
    let verdict = match verdict {
        Ok(Verdict::Reply) if !rules.may_reply => Err(Cause::BadVerdict),
        other => other,
    };
    let act = match verdict {
        Ok(Verdict::Consume) => Act::Done(Count::Consumed),
        Ok(Verdict::Reply) => Act::Reply,
        Ok(Verdict::Deliver) => Act::Done(Count::Delivered),
        Ok(Verdict::Forward) => Act::Forward,
        Ok(Verdict::Drop) => Act::Done(Count::DroppedHandler),
        Ok(Verdict::Pass | Verdict::Abort) if dirty => Act::Done(Count::DroppedChanged),
        Err(_) if dirty => Act::Done(Count::AbortedDirty),
        Err(_) if rules.on_fault_drop => Act::Done(Count::DroppedFault),
        Ok(Verdict::Abort) => Act::Next,
        Ok(Verdict::Pass) | Err(_) => Act::Pass,
    };
    let note = match verdict {
        Ok(Verdict::Abort) => Count::AbortVoluntary,
        Ok(_) => Count::Committed,
        Err(cause) => Count::of_cause(cause),
    };
    Decision {
        act,
        note,
        stopped: verdict.err(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: Rules = Rules {
        may_reply: true,
        on_fault_drop: false,
    };

    #[test]
    fn a_changed_message_is_never_passed_on() {
        for verdict in Verdict::ALL.map(Ok).into_iter().chain(Cause::ALL.map(Err)) {
            for on_fault_drop in [false, true] {
                let rules = Rules {
                    on_fault_drop,
                    ..RULES
                };
                let act = decide(verdict, true, rules).act;
                assert!(!matches!(act, Act::Pass | Act::Next), "{verdict:?}");
            }
        }
    }

    #[test]
    fn reply_without_a_grant_is_no_verdict() {
        let rules = Rules {
            may_reply: false,
            ..RULES
        };
        let decision = decide(Ok(Verdict::Reply), false, rules);
        assert_eq!(decision.act, Act::Pass);
        assert_eq!(decision.stopped, Some(Cause::BadVerdict));
        assert_eq!(decision.note, Count::AbortBadVerdict);
    }

    #[test]
    fn every_outcome_has_exactly_one_fate() {
        use ashway_abi::count::Ledger;
        for verdict in Verdict::ALL.map(Ok).into_iter().chain(Cause::ALL.map(Err)) {
            for dirty in [false, true] {
                let Act::Done(fate) = decide(verdict, dirty, RULES).act else {
                    // Its stage decides.
                    continue;
                };
                assert_eq!(fate.ledger(), Ledger::Fate);
            }
        }
    }
}
