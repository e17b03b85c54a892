//! Messages that stopped a handler, in either tier, kept to be replayed.
//!
//! Of the first stop at a place the message is kept, and the memory as the handler left it. A
//! stop that
//! the message causes comes again over that memory; one that a past message has prepared
//! does too, unless the handler has overwritten on its way what led there. The handler
//! works on the message where it lies, so one that it had changed is as it left it, and says
//! so. From then on the handler is [watched](crate::before), and the next stop there in the
//! user tier is kept in the place of the first, with both as they were before. In the kernel
//! tier the instance stays locked until both are taken
//! ([`ashway_abi::trusted::HELD`]), so no later message is in that memory.
//!
//! A place that stops again and again is kept once, and counted: in the user tier each
//! time, in the kernel tier as often as a message was kept.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ashway_abi::Cause;

use crate::before::{Before, MOST_WATCHES};
use crate::bell::Bell;
use crate::hex::hex;
use crate::instance::Instance;
use crate::version::Version;
use ashway_api::Refusal;
use ashway_api::answer::{self, Fault, Replayable};
use ashway_config::{Tier, whole_name};

/// How many are kept, of one handler and of all, and how many bytes of memory. Where one of
/// all has to go it is the oldest of the handler that has most: no handler, however often it
/// is stopped, takes the place of another that is stopped seldom.
const MOST_OF_ONE: usize = 16;
const MOST: usize = 64;
const MOST_BYTES: usize = 64 << 20;

/// How often one of a handler is kept at most: a sender may choose where a handler stops, and each
/// copy of a memory of 16 MiB takes the worker milliseconds.
const EVERY: Duration = Duration::from_millis(100);

/// The last of them, of all handlers of a node.
#[derive(Debug)]
pub struct Faults {
    list: Mutex<List>,
    /// Tells the node that a handler was stopped.
    pub(crate) bell: Arc<Bell>,
}

#[derive(Debug, Default)]
struct List {
    last: u64,
    faults: VecDeque<Arc<Captured>>,
}

/// One of them.
#[derive(Debug)]
struct Captured {
    number: u64,
    when: Instant,
    handler: String,
    version: Arc<Version>,
    function: String,
    budget_ns: u64,
    cause: Cause,
    at: u32,
    tier: Tier,
    channel: u32,
    may_reply: bool,
    changed: bool,
    /// Whether memory and message are as they were before.
    exact: bool,
    /// How often it stopped here.
    times: AtomicU64,
    /// How often the handler was watched for that.
    watches: AtomicU32,
    front: Vec<u8>,
    message: Vec<u8>,
    memory: Vec<u8>,
}

/// What stopped, and where.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stop<'s> {
    /// The version that was stopped.
    pub(crate) version: &'s Arc<Version>,
    /// The function that the path ends in.
    pub(crate) function: &'s str,
    /// The time it had.
    pub(crate) budget_ns: u64,
    /// The tier that it ran in.
    pub(crate) tier: Tier,
    /// Why.
    pub(crate) cause: Cause,
    /// Offset in the Wasm file.
    pub(crate) at: u32,
    /// Its second argument: the timer's number.
    pub(crate) channel: u32,
    /// Whether it had changed the message, which is as it left it then.
    pub(crate) changed: bool,
    /// What was in front of the message.
    pub(crate) front: &'s [u8],
    /// The message.
    pub(crate) message: &'s [u8],
    /// What both were before, if that was copied.
    pub(crate) before: Option<&'s Before>,
}

impl Faults {
    /// None. The node hears of each by this bell.
    #[must_use]
    pub fn new(bell: Arc<Bell>) -> Self {
        Self {
            list: Mutex::default(),
            bell,
        }
    }

    /// Keeps a message that has stopped `instance` just now, if it is the first at
    /// this place and none of the handler was kept for [`EVERY`]. Copies the handler's memory.
    #[cold]
    pub(crate) fn capture(&self, instance: &Instance, stop: Stop<'_>) {
        self.capture_at(Instant::now(), instance, stop);
        self.bell.ring();
    }

    fn capture_at(&self, now: Instant, instance: &Instance, stop: Stop<'_>) {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        if instance.is_unloaded() {
            // What was in its rings; another may have its name by now.
            return;
        }
        let known = list.faults.iter().position(|known| {
            known.version.id == stop.version.id
                && known.handler == instance.name
                && (known.at, known.cause, known.tier) == (stop.at, stop.cause, stop.tier)
                && known.function == stop.function
        });
        if let Some(at) = known {
            let known = &mut list.faults[at];
            known.times.fetch_add(1, Ordering::Relaxed);
            if known.exact {
                return;
            }
            match stop.before {
                Some(before) => {
                    *known = Arc::new(known.as_it_began(instance, &stop, before));
                    instance.watch.end();
                }
                None => known.have_watched(instance),
            }
            return;
        }
        let mut of_handler = list.faults.iter().filter(|it| it.handler == instance.name);
        if of_handler.any(|before| now < before.when + EVERY) {
            return;
        }
        list.last += 1;
        let captured = Captured {
            number: list.last,
            when: now,
            handler: instance.name.clone(),
            version: Arc::clone(stop.version),
            function: stop.function.to_owned(),
            budget_ns: stop.budget_ns,
            cause: stop.cause,
            at: stop.at,
            tier: stop.tier,
            channel: stop.channel,
            may_reply: instance.may_reply(),
            changed: stop.changed,
            exact: false,
            times: AtomicU64::new(1),
            watches: AtomicU32::new(0),
            front: stop.front.to_vec(),
            message: stop.message.to_vec(),
            memory: Vec::new(),
        };
        let captured = if let Some(before) = stop.before {
            captured.as_it_began(instance, &stop, before)
        } else {
            captured.have_watched(instance);
            Captured {
                memory: instance.memory.snapshot(),
                ..captured
            }
        };
        list.faults.push_back(Arc::new(captured));
        list.shrink();
    }

    /// Those that are kept, of one handler if it is named; the latest last.
    pub fn list(&self, handler: Option<&str>) -> answer::Faults {
        let list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        let faults = list.faults.iter();
        let is_of = |fault: &str, name: &str| fault == name || whole_name(fault) == name;
        let of = faults.filter(|fault| handler.is_none_or(|name| is_of(&fault.handler, name)));
        answer::Faults(of.map(|fault| fault.describe()).collect())
    }

    /// Forgets those of a handler that is unloaded; none that is kept later is its.
    pub fn forget(&self, instance: &Instance) {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        instance.unload();
        list.faults.retain(|fault| fault.handler != instance.name);
    }

    /// All that a replay takes.
    ///
    /// # Errors
    ///
    /// If there is none of this number.
    pub fn export(&self, number: u64) -> Result<Replayable, Refusal> {
        // The worker waits for this lock: what takes long is done without it.
        let (found, kept) = {
            let list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
            let mut faults = list.faults.iter();
            let fault = faults.find(|fault| fault.number == number);
            let kept = list.faults.iter().map(|fault| fault.number.to_string());
            (fault.cloned(), kept.collect::<Vec<_>>())
        };
        let fault = found.ok_or_else(|| {
            let hint = match &kept[..] {
                [] => "no message that stopped a handler of this node is kept".to_owned(),
                kept => format!("those that are kept: {}", kept.join(", ")),
            };
            Refusal::failed(format!("there is no fault `{number}`"), hint)
        })?;
        Ok(Replayable {
            fault: fault.describe(),
            budget_ns: fault.budget_ns,
            wasm: hex(&fault.version.wasm),
            may_reply: fault.may_reply,
            front: hex(&fault.front),
            message: hex(&fault.message),
            memory: hex(&fault.memory),
            guest_bytes: fault.version.compiled.guest_bytes() as u64,
        })
    }
}

impl List {
    /// Lets the oldest go until the rest is within bounds; the last stays.
    fn shrink(&mut self) {
        let Some(last) = self.faults.back().map(|last| last.handler.clone()) else {
            return;
        };
        while self.of(&last, |_| 1) > MOST_OF_ONE {
            self.drop_oldest(&last);
        }
        while self.faults.len() > MOST {
            let most = self.greediest(|_| 1);
            self.drop_oldest(&most);
        }
        let bytes = |fault: &Captured| fault.memory.len() + fault.message.len();
        while self.faults.len() > 1
            && self.faults.iter().map(|fault| bytes(fault)).sum::<usize>() > MOST_BYTES
        {
            let most = self.greediest(bytes);
            self.drop_oldest(&most);
        }
    }

    /// What a handler has, measured so.
    fn of(&self, handler: &str, size: impl Fn(&Captured) -> usize) -> usize {
        let of = self.faults.iter().filter(|fault| fault.handler == handler);
        of.map(|fault| size(fault)).sum()
    }

    /// The handler that has most, of those that may lose something: not one whose only
    /// one is the last.
    fn greediest(&self, size: impl Fn(&Captured) -> usize + Copy) -> String {
        let but_last = self.faults.iter().rev().skip(1);
        let most = but_last.max_by_key(|fault| self.of(&fault.handler, size));
        most.map_or_else(String::new, |fault| fault.handler.clone())
    }

    fn drop_oldest(&mut self, handler: &str) {
        let of = |fault: &Arc<Captured>| fault.handler == handler;
        if let Some(at) = self.faults.iter().position(of) {
            self.faults.remove(at);
        }
    }
}

impl Captured {
    /// The same with another stop at the place, of which it is known what there was before.
    fn as_it_began(&self, instance: &Instance, stop: &Stop<'_>, before: &Before) -> Self {
        Self {
            number: self.number,
            when: self.when,
            handler: self.handler.clone(),
            version: Arc::clone(&self.version),
            function: self.function.clone(),
            budget_ns: stop.budget_ns,
            cause: self.cause,
            at: self.at,
            tier: self.tier,
            channel: stop.channel,
            may_reply: instance.may_reply(),
            changed: stop.changed,
            exact: true,
            times: AtomicU64::new(self.times.load(Ordering::Relaxed)),
            watches: AtomicU32::new(0),
            front: stop.front.to_vec(),
            message: before.message.clone(),
            memory: before.memory.clone(),
        }
    }

    /// Has the handler's next activations copied, unless that was often in vain.
    fn have_watched(&self, instance: &Instance) {
        if self.watches.fetch_add(1, Ordering::Relaxed) < MOST_WATCHES {
            instance.watch.begin(instance.memory.own_bytes());
        }
    }

    fn describe(&self) -> Fault {
        let line = self.version.lines.at(self.at);
        Fault {
            fault: self.number,
            handler: self.handler.clone(),
            digest: self.version.digest.clone(),
            function: self.function.clone(),
            tier: self.tier.word().into(),
            cause: self.cause.name().into(),
            at: self.at,
            file: line.map(|(file, _)| file.to_owned()),
            line: line.map(|(_, line)| line),
            channel: self.channel,
            message_bytes: self.message.len() as u64,
            changed: self.changed,
            exact: self.exact,
            times: self.times.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
pub(crate) mod tests {
    use ashway_handler::Engine;

    use super::*;
    use crate::iface_map::IfaceMap;
    use crate::instance::NewInstance;
    use crate::queue_plan::QueuePlan;
    use ashway_config::HandlerConfig;

    fn stop<'s>(version: &'s Arc<Version>, at: u32, message: &'s [u8]) -> Stop<'s> {
        Stop {
            version,
            function: "on_rx",
            budget_ns: 1,
            tier: Tier::User,
            cause: Cause::Unreachable,
            at,
            channel: 0,
            changed: false,
            front: b"",
            message,
            before: None,
        }
    }

    impl Default for Faults {
        fn default() -> Self {
            Self::new(Arc::new(Bell::new().unwrap()))
        }
    }

    /// An instance of a handler that is no more than stopped.
    pub(crate) fn instance(handler: &str) -> Instance {
        new_instance(handler).instance
    }

    /// The same, with what runs it.
    pub(crate) fn new_instance(handler: &str) -> NewInstance {
        let text = r#"(module (memory (export "memory") 1 1)
            (func (export "on_rx") (param i32 i32) (result i32) unreachable))"#;
        new_instance_of(handler, text)
    }

    /// The same of a handler of one's own.
    pub(crate) fn new_instance_of(handler: &str, text: &str) -> NewInstance {
        // Another test may make one of the same name at the same time.
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("ashway-faults-{}-{number}.wasm", std::process::id());
        let file = std::env::temp_dir().join(name);
        std::fs::write(&file, wat::parse_str(text).unwrap()).unwrap();
        let config = HandlerConfig::of_file(handler, file);
        let engine = Engine::new().unwrap();
        let plan = QueuePlan::unbound(&IfaceMap::default());
        let version = Version::read(&config, &config.file, &engine).unwrap();
        let version = Arc::new(version);
        let made = Instance::create(&config, version, &[], &plan, &engine, None, false);
        std::fs::remove_file(&config.file).unwrap();
        made.unwrap()
    }

    #[test]
    fn the_last_places_are_kept_and_each_once() {
        let instance = instance("h");
        let faults = Faults::default();
        let version = instance.version();
        let mut now = Instant::now();
        for at in 0..20 {
            faults.capture_at(now, &instance, stop(&version, at, &[at as u8]));
            faults.capture_at(now, &instance, stop(&version, at, b"again"));
            // Another place, but too soon.
            faults.capture_at(
                now + EVERY / 2,
                &instance,
                stop(&version, at + 100, b"soon"),
            );
            now += EVERY;
        }
        let list = faults.list(Some("h"));
        assert_eq!(list.0.len(), MOST_OF_ONE);
        assert_eq!((list.0[0].fault, list.0[0].times), (5, 2));
        assert!(faults.list(Some("other")).0.is_empty());
        // The first message of a place, and the whole memory.
        let export = faults.export(20).unwrap();
        assert_eq!(export.message, "13");
        assert_eq!(export.memory.len(), 2 * 2 * 65_536);
        assert!(faults.export(4).is_err());
    }

    #[test]
    fn no_handler_takes_the_places_of_another() {
        let faults = Faults::default();
        let mut now = Instant::now();
        let mut stop_at = |instance: &Instance, at: u32| {
            faults.capture_at(now, instance, stop(&instance.version(), at, b""));
            now += EVERY;
        };
        let kept = |name: &str| faults.list(Some(name)).0.len();
        let quiet = instance("quiet");
        stop_at(&quiet, 1);
        let noisy = ["a", "b", "c", "d", "e", "f"].map(instance);
        for at in 0..40 {
            for handler in &noisy {
                stop_at(handler, at);
            }
        }
        assert_eq!(kept("quiet"), 1, "the oldest of all, and the only one");
        let of_noisy = ["a", "b", "c", "d", "e", "f"].map(kept);
        assert_eq!(of_noisy.iter().sum::<usize>() + 1, MOST);
        assert!(of_noisy.iter().all(|kept| *kept >= 10), "{of_noisy:?}");
        // All of them noisy: each has its part.
        (0..40).for_each(|at| stop_at(&quiet, at));
        let all = ["quiet", "a", "b", "c", "d", "e", "f"].map(kept);
        assert_eq!(all.iter().sum::<usize>(), MOST);
        assert!(all.iter().all(|kept| (9..=10).contains(kept)), "{all:?}");
    }

    #[test]
    fn memories_go_by_size_and_the_last_stays() {
        let fault = |number, handler: &str, bytes| {
            let instance = instance(handler);

            Arc::new(Captured {
                number,
                when: Instant::now(),
                handler: handler.to_owned(),
                version: instance.version(),
                function: String::new(),
                budget_ns: 0,
                cause: Cause::Unreachable,
                at: 0,
                tier: Tier::User,
                channel: 0,
                may_reply: false,
                changed: false,
                exact: false,
                times: AtomicU64::new(1),
                watches: AtomicU32::new(0),
                front: Vec::new(),
                message: Vec::new(),
                memory: vec![0; bytes],
            })
        };
        let mut list = List::default();
        let half = MOST_BYTES / 2;
        for (number, handler, bytes) in [(1, "small", 1), (2, "large", half), (3, "large", half)] {
            list.faults.push_back(fault(number, handler, bytes));
            list.shrink();
        }
        let numbers = |list: &List| list.faults.iter().map(|it| it.number).collect::<Vec<_>>();
        assert_eq!(numbers(&list), [1, 3]);
        list.faults.push_back(fault(4, "huge", 2 * MOST_BYTES));
        list.shrink();
        assert_eq!(numbers(&list), [4]);
    }

    #[test]
    fn what_is_unloaded_leaves_no_more_faults() {
        let faults = Faults::default();
        let now = Instant::now();
        let gone = instance("h");
        faults.capture_at(now, &gone, stop(&gone.version(), 1, b""));
        faults.forget(&gone);
        // What was in its rings, beside another of its name.
        let next = instance("h");
        faults.capture_at(now + EVERY, &gone, stop(&gone.version(), 2, b""));
        faults.capture_at(now + EVERY, &next, stop(&next.version(), 3, b""));
        let list = faults.list(None).0.into_iter().map(|fault| fault.at);
        assert_eq!(list.collect::<Vec<_>>(), [3]);
    }
}
