//! The application's own code, as a stage.
//!
//! Sits on anything that exchanges messages: above UDP it sees the payload,
//! on a link whole packets. With something connected above, it stands in the
//! middle of a path, sees what comes up, may change it, and lets it go on by
//! `forward`, or aborts and lets it go on as it was; what goes down goes by unseen.
//!
//! * **Services:** `down`, to what it listens to; `up`, to where `forward`
//!   leads (may stay unconnected).
//! * **Attributes:** `function` (text, default `on_rx`); the rest is the
//!   handler's section of the configuration.
//! * **Verdicts:** what the handler decides: `Consumed`, `Answered`, `Passed`,
//!   `DroppedHandler`; for a stopped handler what `on_fault` says;
//!   `DroppedNoSender` for an answer to nobody; `DroppedNoNextHop` for `forward`
//!   where the path was created here, at its top. The fate of what it lets go on
//!   is said behind it.
//! * **Counters:** those of the verdicts.
//! * **Tiers:** user and kernel; in the kernel tier it is the promoted program.
//!
//! ```toml
//! [module.count]
//! kind = "handler"
//! handler = "counter"
//! down = "udp.up"
//! ```
//!
//! Source: Wallach, Engler & Kaashoek 1996 ("ASHs"), section II.

use std::sync::Arc;

use ashway_abi::Count;
use ashway_path::attrs::Attrs;
use ashway_path::module::{Kind, Module, Param, Refused, StageAndNext};
use ashway_path::stage::{Cx, Direction, Stage, Step, Traits};
use ashway_path::time::Time;

use crate::Message;
use crate::services;
use crate::way::{Way, through, way_from_top};

/// The kind.
pub static KIND: Kind = Kind {
    name: "handler",
    about: "runs a handler on each message",
    services: &services::BETWEEN,
    params: &[Param {
        name: "handler",
        about: "the handler's name, required",
    }],
};

/// Attribute: the handler's function.
pub const FUNCTION: &str = "function";

/// A handler that paths can be bound to.
pub trait Instance: Send + Sync {
    /// Binds a path to one of its functions.
    ///
    /// # Errors
    ///
    /// When it has no such function, or takes no more paths.
    fn bind(&self, function: &str, attrs: &Attrs) -> Result<Box<dyn Activate>, Refused>;
}

/// A handler's function, bound to a path.
pub trait Activate: Send {
    /// Takes what it has in common with the kernel tier, for the next messages and timers,
    /// until it is [released](Self::release); whether it could. Does not wait.
    fn acquire(&mut self) -> bool {
        true
    }

    /// Gives it back.
    fn release(&mut self) {}

    /// Runs it on one message. Bounded by its budget; what is to be noted of the
    /// run (faults, causes) is noted inside.
    fn activate(&mut self, message: &mut Message) -> Act;

    /// When it wants to be [woken](Self::wake), if it does. Constant time.
    fn due(&self) -> Option<Time> {
        None
    }

    /// Runs one of its timers that is due. Bounded by the budget of a timer.
    fn wake(&mut self, _now: Time) {}
}

/// What becomes of a message behind a handler, with its fate where that is
/// known by then. An allegation no more: grants, dirt and `on_fault` have been
/// looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Nothing more.
    Done(Count),
    /// Back to its sender.
    Reply,
    /// On to what stands behind the handler.
    Forward,
    /// To the host's own stack, unchanged.
    Pass,
    /// To the path's next choice, unchanged: what stands behind the handler, else
    /// the host's own stack. The handler has aborted.
    Next,
}

/// A handler of the configuration.
#[derive(Clone)]
pub struct Handler {
    /// The module's name.
    pub name: Arc<str>,
    /// The handler.
    pub instance: Arc<dyn Instance>,
}

impl Module<Message> for Handler {
    fn kind(&self) -> &'static Kind {
        &KIND
    }

    fn stage(
        &self,
        entered: Option<usize>,
        attrs: &mut Attrs,
    ) -> Result<StageAndNext<Message>, Refused> {
        let function = attrs.text(FUNCTION).unwrap_or("on_rx");
        let bound = self.instance.bind(function, attrs)?;
        Ok(StageAndNext {
            stage: Box::new(HandlerStage {
                module: self.name.clone(),
                way: way_from_top(entered),
                top: entered.is_none(),
                bound,
            }),
            next: through(entered),
        })
    }
}

struct HandlerStage {
    module: Arc<str>,
    way: Way,
    /// Whether nothing can be above.
    top: bool,
    bound: Box<dyn Activate>,
}

impl Stage<Message> for HandlerStage {
    fn name(&self) -> &str {
        &self.module
    }

    fn kind(&self) -> Option<&'static Kind> {
        Some(&KIND)
    }

    fn traits(&self) -> Traits {
        Traits {
            promotable: true,
            acquires: true,
            ..Traits::default()
        }
    }

    fn acquire(&mut self) -> bool {
        self.bound.acquire()
    }

    fn release(&mut self) {
        self.bound.release();
    }

    fn take(
        &mut self,
        mut message: Message,
        direction: Direction,
        cx: &mut Cx<'_, Message>,
    ) -> Step<Message> {
        if !self.way.is_up(direction) {
            // What others send goes by; `on_tx` is not there yet.
            return Step::On(message);
        }
        let act = self.bound.activate(&mut message);
        *cx.wake_at = self.bound.due();
        match act {
            Act::Done(fate) => Step::End(message, fate),
            Act::Reply if message.can_be_answered() => Step::Back(message, Count::Answered),
            Act::Reply => Step::End(message, Count::DroppedNoSender),
            Act::Forward if self.top => Step::End(message, Count::DroppedNoNextHop),
            Act::Forward => Step::On(message),
            Act::Next if !self.top => Step::On(message),
            Act::Pass | Act::Next => Step::End(message, Count::Passed),
        }
    }

    fn wake(&mut self, cx: &mut Cx<'_, Message>) {
        self.bound.wake(cx.now);
        *cx.wake_at = self.bound.due();
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}
