//! A handler as the modules of a graph see it: run it, decide, note.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use ashway_abi::Count;
use ashway_handler::{Budget, Function};
use ashway_memory::clock::monotonic_ns;
use ashway_modules::Message;
use ashway_modules::handler::{self, Act, Activate};
use ashway_modules::tap as tap_module;
use ashway_path::attrs::Attrs;
use ashway_path::module::Refused;
use ashway_path::sched::share::ShareAccount;
use ashway_path::time::Time;

use crate::before::Before;
use crate::bindings::HandlerBinding;
use crate::breaker::Gate;
use crate::budget::fuel;
use crate::decide::{Rules, decide};
use crate::faults::Stop;
use crate::handle::{HandlerHandle, UserInstance};
use crate::observe::trace;
use crate::rows::CounterRow;
use ashway_config::{Config, OnFault, Tier, attr};

/// Attribute: the path's row of counters. The node's own affair, beside
/// [`attr`].
pub const ROW: &str = "row";

/// Attribute: the path's number within its handler's instance, if it has one there.
pub const LOCAL: &str = "local_path";

impl handler::Instance for HandlerHandle {
    fn bind(&self, function: &str, attrs: &Attrs) -> Result<Box<dyn Activate>, Refused> {
        let version = self.shared.version();
        let name = function;
        let Some(function) = version.compiled.function(name) else {
            let known: Vec<_> = version.compiled.functions().collect();
            return Err(Refused {
                because: format!("handler `{}` has no function `{name}`", self.shared.name),
                hint: ashway_config::suggest(name, &known),
            });
        };
        let budget = attrs
            .number(attr::BUDGET_NS)
            .map_or(Config::DEFAULT_BUDGET, Duration::from_nanos);
        self.count(name, true);
        let row = CounterRow(attrs.number(ROW).unwrap_or_default() as u32);
        let local = attrs.number(LOCAL).map(|local| local as u32);
        let limit = ashway_config::faults(attrs);
        let end = HandlerBinding {
            path: attrs.text(tap_module::PATH).unwrap_or_default().to_owned(),
            handler: self.shared.name.clone(),
            function: name.to_owned(),
            budget_ns: budget.as_nanos() as u64,
            limit,
            gate: Gate::new(limit),
            share: ashway_config::share(attrs).map(|share| {
                let budget = budget.as_nanos() as u64;
                Arc::new(ShareAccount::of_handler(share.terms(), budget))
            }),
        };
        let end = match local {
            Some(_) => self.shared.bindings.join(row.0, end),
            None => self.shared.bindings.join_named(end),
        };
        Ok(Box::new(Bound {
            on_message: Activation {
                instance: self.clone(),
                name: name.to_owned(),
                version: version.id,
                function,
                budget: Budget {
                    fuel: fuel(budget),
                    ns: budget.as_nanos() as u64,
                },
                rules: Rules {
                    may_reply: self.shared.may_reply(),
                    on_fault_drop: attrs.text(attr::ON_FAULT) == Some(OnFault::Drop.word()),
                },
                row,
                local: local.unwrap_or(u32::MAX),
                end,
                is_timer: false,
                sets_timers: false,
            },
            on_timer: None,
            due: None,
            is_held: false,
        }))
    }
}

/// One function, bound to one path, and what runs when its timers are due.
struct Bound {
    on_message: Activation,
    /// Made for the first timer, with a message for it, which is empty.
    on_timer: Option<Box<(Activation, Message)>>,
    /// When the first timer is due that was set here.
    due: Option<Time>,
    /// Whether it has the instance's lock.
    is_held: bool,
}

/// How a function is run, and for whom.
struct Activation {
    instance: HandlerHandle,
    name: String,
    /// Of which version `function` is.
    version: u64,
    function: Function,
    budget: Budget,
    rules: Rules,
    row: CounterRow,
    local: u32,
    /// The path, at this stage.
    end: Arc<HandlerBinding>,
    /// Whether there is no message.
    is_timer: bool,
    /// Whether it has set timers, or set some off, when it ran last.
    sets_timers: bool,
}

impl Activate for Bound {
    fn acquire(&mut self) -> bool {
        self.is_held = self.on_message.instance.try_acquire();
        self.is_held
    }

    fn release(&mut self) {
        if std::mem::take(&mut self.is_held) {
            self.on_message.instance.release();
        }
    }

    fn activate(&mut self, message: &mut Message) -> Act {
        let activation = &mut self.on_message;
        if activation.end.gate.is_closed() {
            return activation.go_by();
        }
        let act = activation.run(message, 0);
        if activation.sets_timers {
            self.due = activation.next_timer();
        }
        let bytes = message.bytes();
        let shared = &activation.instance.shared;
        match act {
            // The decision is to deliver; whether there is room is known now.
            Act::Done(Count::Delivered) => Act::Done(match shared.endpoint() {
                Some((endpoint, place)) => endpoint.deliver(place, activation.local, bytes),
                None => Count::DroppedNoEndpoint,
            }),
            act => act,
        }
    }

    fn due(&self) -> Option<Time> {
        self.due
    }

    /// Bounded by the default budget; does not allocate but for the first timer. Without
    /// the function a timer is forgotten. One of a path that is bypassed waits until the
    /// handler has its messages again.
    fn wake(&mut self, now: Time) {
        let of = &self.on_message;
        let timers = &of.instance.shared.timers;
        if let Some(id) = timers.take_due(now, &of.end) {
            if of.end.gate.is_closed() {
                timers.put_off(now, id, &of.end);
            } else {
                let made = || Box::new((of.of_timers(), Message::with_room(0)));
                let (on_timer, empty) = &mut **self.on_timer.get_or_insert_with(made);
                empty.fill(0, |_| ());
                on_timer.run_timer(id, empty);
            }
        }
        self.due = of.next_timer();
    }
}

impl Activation {
    /// What runs when timers are due that this has set.
    fn of_timers(&self) -> Self {
        Self {
            instance: self.instance.clone(),
            name: "on_timer".to_owned(),
            // Looked up for each run: a version may have none.
            version: 0,
            function: Function::ON_RX,
            budget: Budget {
                fuel: fuel(Config::DEFAULT_BUDGET),
                ns: Config::DEFAULT_BUDGET.as_nanos() as u64,
            },
            rules: Rules {
                may_reply: false,
                on_fault_drop: true,
            },
            row: self.row,
            local: self.local,
            end: Arc::clone(&self.end),
            is_timer: true,
            sets_timers: false,
        }
    }

    /// Runs for a timer, if the present version has the function.
    fn run_timer(&mut self, id: u32, empty: &mut Message) {
        let found = {
            let running = self.instance.running.lock();
            // A panic in between would have ended the path.
            let running = running.unwrap_or_else(PoisonError::into_inner);
            let function = running.wasm.function(&self.name);
            function.map(|function| (running.version.id, function))
        };
        if let Some((version, function)) = found {
            (self.version, self.function) = (version, function);
            // There is no message that a verdict could be about.
            let _ = self.run(empty, id);
            trace::ran_by_itself();
        }
    }

    fn next_timer(&self) -> Option<Time> {
        self.instance.shared.timers.next_of(&self.end)
    }

    /// What becomes of a message that the handler does not get: as if it had been
    /// stopped at once.
    fn go_by(&self) -> Act {
        self.instance.rows.add(self.row, Count::Bypassed);
        if self.rules.on_fault_drop {
            Act::Done(Count::DroppedFault)
        } else {
            Act::Next
        }
    }

    fn run(&mut self, message: &mut Message, channel: u32) -> Act {
        let HandlerHandle {
            shared,
            running,
            rows,
            ..
        } = &self.instance;
        self.sets_timers = false;
        // A panic in between would have ended the worker.
        let mut running = running.lock().unwrap_or_else(PoisonError::into_inner);
        let UserInstance {
            version,
            wasm,
            recording,
        } = &mut *running;
        if self.version != version.id {
            self.version = version.id;
            let function = wasm.function(&self.name);
            self.function = function.expect("no version comes without a bound function");
        }
        debug_assert!(self.instance.is_held(), "the engine has not asked for it");
        message.make_room(wasm.grows());
        let decision = {
            let recorded = recording
                .as_mut()
                .filter(|_| !self.is_timer)
                .and_then(|on| {
                    let (front, here) = message.split();
                    Some((on.before(self.row.0, shared, front, here)?, on))
                });
            // Beside other CPUs it is not what a message met.
            let before = if shared.is_parallel() {
                None
            } else {
                Before::copy(&shared.watch, &shared.memory, message.bytes())
            };
            let len = message.len();
            let (bytes, start) = message.whole();
            let (function, place) = (self.function, start..start + len);
            let outcome = wasm.activate_in_place(function, bytes, place, channel, self.budget);
            message.set_len(outcome.len);
            if outcome.copied {
                message.copied();
            }
            let (mut now, row) = (None, self.row);
            let too_many = wasm.take_log(|line| {
                let now = *now.get_or_insert_with(monotonic_ns);
                shared.log().push(row.0, now, line);
            });
            shared.log().lose(too_many);
            if let Some((half, on)) = recorded {
                let place = wasm.place(self.function);
                on.after(half, shared, message.bytes(), &outcome, place);
            }
            let verdict = outcome.verdict.map_err(|stopped| stopped.cause);
            let decision = decide(verdict, outcome.dirty, self.rules);
            let fuel_left = u64::try_from(outcome.fuel_left).unwrap_or(0);
            trace::ran(
                &shared.name,
                self.budget.fuel.saturating_sub(fuel_left),
                decision.stopped,
                message.meta.copies,
            );
            if outcome.copied && outcome.dirty {
                message.copied();
            }
            if let Some(cause) = decision.stopped {
                let place = wasm.place(self.function);
                let (front, left) = message.split();
                // While nobody else runs the handler.
                self.stopped(Stop {
                    version,
                    function: &self.name,
                    budget_ns: self.budget.ns,
                    tier: Tier::User,
                    cause,
                    at: outcome.verdict.map_or_else(|stopped| stopped.at, |_| place),
                    channel,
                    changed: outcome.dirty,
                    front,
                    message: left,
                    before: before.map(|it| it.of_stopped(&shared.memory)).as_ref(),
                });
            }
            decision
        };
        rows.add(self.row, decision.note);
        if self.is_timer {
            rows.add(self.row, Count::RanForTimer);
        }
        // An abort has asked for nothing.
        if decision.note == Count::Committed {
            if let Some(channels) = &shared.channels {
                wasm.take_sent(|channel, message| {
                    rows.add(self.row, Count::OutOriginated);
                    rows.add(self.row, channels.send(channel, message));
                });
            }
            wasm.take_timers(|id, ns| {
                self.sets_timers = true;
                shared.timers.set(Time(monotonic_ns()), id, ns, &self.end);
            });
        }
        decision.act
    }
}

impl Activation {
    /// Notes that the handler was stopped, and keeps what stopped it.
    #[cold]
    fn stopped(&self, stop: Stop<'_>) {
        let shared = &self.instance.shared;
        // Before the node can see that there was one.
        shared.bindings.stopped(&self.end, 1, Instant::now());
        shared.record_fault(stop.version, stop.cause, stop.at, self.row.0);
        self.instance.faults.capture(shared, stop);
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        let Activation {
            instance,
            name,
            local,
            end,
            ..
        } = &self.on_message;
        if *local == u32::MAX {
            instance.shared.bindings.leave_named(end);
        }
        instance.shared.timers.forget(end);
        instance.count(name, false);
    }
}
