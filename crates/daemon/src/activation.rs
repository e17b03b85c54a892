//! A handler as the modules of a graph see it: run it, decide, note.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ashway_abi::{Count, trusted};
use ashway_handler::{Budget, Function};
use ashway_memory::clock::monotonic_ns;
use ashway_modules::Message;
use ashway_modules::handler::{self, Act, Activate};
use ashway_modules::tap as tap_module;
use ashway_path::attrs::Attrs;
use ashway_path::module::Refused;
use ashway_path::sched::share::ShareAccount;
use ashway_path::time::Time;

use crate::breaker::Gate;
use crate::config::{Config, OnFault, Tier, attr};
use crate::counters::UserRows;
use crate::decide::{Rules, decide};
use crate::ends::PathEnd;
use crate::faults::{Faults, Stop};
use crate::instance::{Instance, fuel};
use crate::observe::tap;
use crate::shadow::Recording;
use crate::timers::Setter;
use crate::version::Version;

/// Attribute: the path's row of counters. The node's own affair, beside
/// [`attr`].
pub(crate) const ROW: &str = "row";

/// Attribute: the path's number within its handler's instance, if it has one there.
pub(crate) const LOCAL: &str = "local_path";

/// A handler instance that paths can be bound to.
#[derive(Clone)]
pub(crate) struct Bindable {
    /// What it shares with the rest of the node.
    pub(crate) shared: Arc<Instance>,
    /// Its Wasm side. Only the worker runs and swaps it, so nobody waits for the
    /// lock; it is there because the paths of an instance share it.
    pub(crate) running: Arc<Mutex<Running>>,
    /// How many paths end in each of its functions.
    bound: Arc<Mutex<BTreeMap<String, u32>>>,
    /// Where faults are noted.
    rows: Arc<UserRows>,
    /// Where they are kept.
    pub(crate) faults: Arc<Faults>,
}

/// What runs in the user tier.
#[derive(Debug)]
pub(crate) struct Running {
    /// What it is.
    pub(crate) version: Arc<Version>,
    /// The version over the instance's memory.
    pub(crate) wasm: ashway_handler::Instance,
    /// What it does, while a promotion wants to know.
    pub(crate) recording: Option<Recording>,
}

impl Bindable {
    /// A new instance.
    #[must_use]
    pub(crate) fn new(
        instance: Instance,
        wasm: ashway_handler::Instance,
        rows: &Arc<UserRows>,
        faults: &Arc<Faults>,
    ) -> Self {
        let version = instance.version();
        Self {
            shared: Arc::new(instance),
            running: Arc::new(Mutex::new(Running {
                version,
                wasm,
                recording: None,
            })),
            bound: Arc::default(),
            rows: Arc::clone(rows),
            faults: Arc::clone(faults),
        }
    }
}

impl Bindable {
    /// The functions that paths end in, whichever way these came to be.
    pub(crate) fn bound(&self) -> Vec<String> {
        let bound = self.bound.lock().unwrap_or_else(PoisonError::into_inner);
        bound.keys().cloned().collect()
    }

    /// The message as the last activation left it.
    fn copy_message(&self, into: &mut [u8]) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.wasm.copy_message(into);
    }

    /// Counts a path that ends in a function, or no longer does.
    fn count(&self, function: &str, more: bool) {
        let mut bound = self.bound.lock().unwrap_or_else(PoisonError::into_inner);
        let count = bound.entry(function.to_owned()).or_default();
        *count = if more { *count + 1 } else { *count - 1 };
        if *count == 0 {
            bound.remove(function);
        }
    }
}

impl fmt::Debug for Bindable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Bindable").field(&self.shared.name).finish()
    }
}

impl handler::Instance for Bindable {
    fn bind(&self, function: &str, attrs: &Attrs) -> Result<Box<dyn Activate>, Refused> {
        let version = self.shared.version();
        let name = function;
        let Some(function) = version.compiled.function(name) else {
            let known: Vec<_> = version.compiled.functions().collect();
            return Err(Refused {
                because: format!("handler `{}` has no function `{name}`", self.shared.name),
                hint: crate::config::suggest(name, &known),
            });
        };
        let budget = attrs
            .number(attr::BUDGET_NS)
            .map_or(Config::DEFAULT_BUDGET, Duration::from_nanos);
        self.count(name, true);
        let row = attrs.number(ROW).unwrap_or_default() as u32;
        let local = attrs.number(LOCAL).map(|local| local as u32);
        let limit = crate::config::faults(attrs);
        let end = PathEnd {
            path: attrs.text(tap_module::PATH).unwrap_or_default().to_owned(),
            handler: self.shared.name.clone(),
            function: name.to_owned(),
            budget_ns: budget.as_nanos() as u64,
            limit,
            gate: Gate::new(limit),
            share: crate::config::share(attrs).map(|share| {
                let waiting = local.map(|local| self.shared.frames(local as usize));
                let waiting = waiting.unwrap_or_default();
                let budget = budget.as_nanos() as u64;
                Arc::new(ShareAccount::new(share.terms(), budget, waiting))
            }),
        };
        let end = match local {
            Some(_) => self.shared.ends.join(row, end),
            None => self.shared.ends.join_named(end),
        };
        Ok(Box::new(Bound(Activation {
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
            end: Some(end),
            is_timer: false,
            resized: None,
        })))
    }
}

/// One function, bound to one path.
struct Bound(Activation);

/// How a function is run, and for whom.
struct Activation {
    instance: Bindable,
    name: String,
    /// Of which version `function` is.
    version: u64,
    function: Function,
    budget: Budget,
    rules: Rules,
    row: u32,
    local: u32,
    /// The path that it ends, or whose activation has set the timer.
    end: Option<Arc<PathEnd>>,
    /// Whether there is no message.
    is_timer: bool,
    /// The length of the message that it ran for last, if it changed that.
    resized: Option<usize>,
}

impl Activate for Bound {
    fn activate(&mut self, message: &mut Message) -> Act {
        let Self(activation) = self;
        if let Some(end) = &activation.end
            && end.gate.is_closed()
        {
            return activation.go_by();
        }
        let (front, bytes) = message.split();
        let act = activation.run(front, bytes, 0);
        if let Some(len) = activation.resized.take() {
            message.resize(len);
            activation.instance.copy_message(message.bytes_mut());
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
}

impl Activation {
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

    fn run(&mut self, front: &[u8], message: &mut [u8], channel: u32) -> Act {
        let Bindable {
            shared,
            running,
            rows,
            ..
        } = &self.instance;
        // A panic in between would have ended the worker.
        let mut running = running.lock().unwrap_or_else(PoisonError::into_inner);
        let Running {
            version,
            wasm,
            recording,
        } = &mut *running;
        if self.version != version.id {
            self.version = version.id;
            let function = wasm.function(&self.name);
            self.function = function.expect("no version comes without a bound function");
        }
        let decision = {
            let _turn = Turn::take(&self.instance, version);
            let recorded = recording
                .as_mut()
                .filter(|_| !self.is_timer)
                .and_then(|on| Some((on.before(self.row, shared, message)?, on)));
            let outcome = wasm.activate_behind(self.function, front, message, channel, self.budget);
            let (mut now, row) = (None, self.row);
            let too_many = wasm.take_log(|line| {
                let now = *now.get_or_insert_with(monotonic_ns);
                shared.log().push(row, now, line);
            });
            shared.log().lose(too_many);
            self.resized = (outcome.len != message.len()).then_some(outcome.len);
            let as_left = |wasm: &mut ashway_handler::Instance| {
                self.resized.map(|len| {
                    let mut bytes = vec![0; len];
                    wasm.copy_message(&mut bytes);
                    bytes
                })
            };
            if let Some((half, on)) = recorded {
                let left = as_left(wasm);
                on.after(half, shared, left.as_deref().unwrap_or(message), &outcome);
            }
            let verdict = outcome.verdict.map_err(|stopped| stopped.cause);
            let decision = decide(verdict, outcome.dirty, self.rules);
            let left = u64::try_from(outcome.fuel_left).unwrap_or(0);
            tap::ran(
                &shared.name,
                self.budget.fuel.saturating_sub(left),
                decision.stopped,
            );
            if let Some(cause) = decision.stopped {
                let place = wasm.place(self.function);
                // Of a stop, the message is as it came.
                let left = outcome.verdict.is_ok().then(|| as_left(wasm)).flatten();
                // While nobody else runs the handler.
                self.stopped(Stop {
                    version,
                    function: &self.name,
                    budget_ns: self.budget.ns,
                    tier: Tier::User,
                    cause,
                    at: outcome.verdict.map_or_else(|stopped| stopped.at, |_| place),
                    channel,
                    // A verdict that was not granted has sent it back as changed.
                    changed: outcome.verdict.is_ok() && outcome.dirty,
                    front,
                    message: left.as_deref().unwrap_or(message),
                });
            }
            decision
        };
        rows.add(self.row, decision.note);
        // An abort has asked for nothing.
        if decision.note == Count::Committed {
            if let Some(channels) = &shared.channels {
                wasm.take_sent(|channel, message| {
                    rows.add(self.row, Count::OutOriginated);
                    rows.add(self.row, channels.send(channel, message));
                });
            }
            wasm.take_timers(|id, ns| {
                let setter = Setter {
                    row: self.row,
                    end: self.end.clone(),
                };
                shared.timers.set(id, ns, setter);
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
        if let Some(end) = &self.end {
            shared.ends.stopped(end, 1, Instant::now());
        }
        shared.record_fault(stop.version, stop.cause, stop.at, self.row);
        self.instance.faults.capture(shared, stop);
    }
}

/// The handler's `on_timer`, in the worker's hands.
pub(crate) struct OnTimer(Activation);

impl Bindable {
    /// What runs when its timers are due.
    pub(crate) fn on_timer(&self) -> OnTimer {
        OnTimer(Activation {
            instance: self.clone(),
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
            row: 0,
            local: u32::MAX,
            end: None,
            is_timer: true,
            resized: None,
        })
    }
}

impl OnTimer {
    /// Whose it is.
    pub(crate) fn handler(&self) -> &Bindable {
        &self.0.instance
    }

    /// Runs it for the first timer that is due; says whether there was one. Bounded
    /// by the default budget; does not allocate. Without the function it is forgotten.
    /// One of a path that is bypassed waits until the handler has its messages again.
    pub(crate) fn run_due(&mut self, now: Time) -> bool {
        let Self(activation) = self;
        let timers = &activation.instance.shared.timers;
        let Some((id, setter)) = timers.take_due(now) else {
            return false;
        };
        if setter.end.as_ref().is_some_and(|end| end.gate.is_closed()) {
            timers.put_off(now, id, setter);
            return true;
        }
        let running = Arc::clone(&activation.instance.running);
        let found = {
            let running = running.lock().unwrap_or_else(PoisonError::into_inner);
            let function = running.wasm.function(&activation.name);
            function.map(|function| (running.version.id, function))
        };
        let Some((version, function)) = found else {
            return false;
        };
        (activation.version, activation.function) = (version, function);
        (activation.row, activation.end) = (setter.row, setter.end);
        // There is no message that a verdict could be about.
        let _ = activation.run(&[], &mut [], id);
        // Whoever removes the path waits for nobody.
        activation.end = None;
        tap::ran_by_itself();
        true
    }
}

impl fmt::Debug for OnTimer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OnTimer")
            .field(&self.0.instance.shared.name)
            .finish()
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        let shared = &self.0.instance.shared;
        if self.0.local == u32::MAX
            && let Some(end) = &self.0.end
        {
            shared.ends.leave_named(end);
            shared.timers.forget_of(end);
        }
        self.0.instance.count(&self.0.name, false);
    }
}

/// The instance's lock, held while its handler runs in the user tier.
pub(crate) struct Turn<'a>(Option<&'a AtomicU32>);

impl<'a> Turn<'a> {
    /// Waits for an activation in the kernel tier to end: at most its budget,
    /// because it cannot be interrupted by us. If a fault is [kept](trusted::KEPT) there,
    /// takes that first; `version` is what runs.
    pub(crate) fn take(handler: &'a Bindable, version: &Arc<Version>) -> Self {
        let Some(kernel) = &handler.shared.kernel else {
            return Self(None);
        };
        let lock = kernel.trusted.u32_at(trusted::LOCK);
        let mut free = 0;
        while let Err(found) =
            lock.compare_exchange_weak(free, 1, Ordering::Acquire, Ordering::Relaxed)
        {
            free = if found == trusted::KEPT { found } else { 0 };
            std::hint::spin_loop();
        }
        if free == trusted::KEPT {
            handler.take_kept(version);
        }
        Self(Some(lock))
    }
}

impl Bindable {
    /// Takes what a program has kept of a fault, and has the instance free again. For the
    /// worker, as soon as it can: until then the kernel tier leaves the handler alone.
    pub(crate) fn free_fault(&self) {
        if self.shared.keeps_fault() {
            // A panic in between would have ended the worker.
            let running = self.running.lock();
            let running = running.unwrap_or_else(PoisonError::into_inner);
            drop(Turn::take(self, &running.version));
        }
    }

    #[cold]
    fn take_kept(&self, version: &Arc<Version>) {
        let Some(kept) = self.shared.kept_fault() else {
            return;
        };
        let Some(end) = self.shared.ends.find(kept.row) else {
            // Its path is gone.
            return;
        };
        let stop = Stop {
            version,
            function: &end.function,
            budget_ns: end.budget_ns,
            tier: Tier::Kernel,
            cause: kept.cause,
            at: kept.at,
            channel: 0,
            changed: kept.changed,
            front: &kept.front,
            message: &kept.message,
        };
        self.faults.capture(&self.shared, stop);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Some(lock) = self.0 {
            lock.store(0, Ordering::Release);
        }
    }
}
