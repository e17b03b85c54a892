//! A message that finds its instance busy on another CPU waits for it, and not for long, in our
//! own interpreter: other CPUs write when the clock says so.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use ashway_abi::context::{self, flag};
use ashway_abi::count::KERNEL_NS;
use ashway_abi::memory::{Layout, STATE_BYTES, WASM_PAGE};
use ashway_abi::share::Terms;
use ashway_abi::trusted::{HELD, IN_KERNEL, IN_USER, LOCK, WANTED};
use ashway_abi::{Count, MemoryKind, QueueLayout};
use ashway_check::bpf::interp::Machine;
use ashway_check::bpf::{Hook, Image};
use ashway_codegen::entry::Packet;
use ashway_codegen::instance::{OrderScope, QueueSpec, Spec};
use promoted::promoted;

#[path = "common/promoted.rs"]
mod promoted;

const LAYOUT: Layout = Layout::without_endpoint(WASM_PAGE, STATE_BYTES);
const QUEUE: QueueLayout = QueueLayout {
    paths: 1,
    rings: 1,
    slot_bytes: 2048,
    locks: 0,
};
const PLACES: [(Hook, MemoryKind); 3] = [
    (Hook::Xdp, MemoryKind::Arena),
    (Hook::Xdp, MemoryKind::Array),
    (Hook::Tcx, MemoryKind::Arena),
];
const CONSUME: &str = r#"(module (memory (export "memory") 1 1)
    (func (export "on_rx") (param i32 i32) (result i32) i32.const 0))"#;

/// What a look at the clock takes (docs/facts.md, "A look at the clock").
const LOOK: u64 = 33;
/// What a message waits at least, and at most.
const LEAST: u64 = 1_000;
const MOST: u64 = 20_000;
/// What of that its first and last looks may take.
const LOOKS: u64 = 5 * LOOK;

/// A path of the kernel tier, without an entry program.
struct Path {
    program: Image,
    machine: Machine,
}

impl Path {
    fn new(place: (Hook, MemoryKind)) -> Self {
        Self::with_share(place, None)
    }

    fn with_share((hook, memory): (Hook, MemoryKind), share: Option<Terms>) -> Self {
        let spec = Spec {
            queue: QueueSpec {
                hook,
                cpus: 1,
                layout: QUEUE,
                packet: Packet::beside(memory),
                order_scope: OrderScope::Ring,
            },
            layout: LAYOUT,
            memory,
        };
        let program = promoted(CONSUME, &spec, |handler| handler.share = share);
        let mut machine = Machine::new(1, QUEUE.bytes(), LAYOUT.total_bytes());
        machine.array_mode = memory == MemoryKind::Array;
        machine.clock_step_ns = LOOK;
        let mut path = Self { program, machine };
        for (at, block) in QUEUE.first_blocks() {
            path.set(at, block);
        }
        path
    }

    fn set(&mut self, at: usize, word: u32) {
        self.machine.trusted_mut()[at..][..4].copy_from_slice(&word.to_ne_bytes());
    }

    fn field(&mut self, at: i16, bytes: &[u8]) {
        self.machine.context_mut()[at as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    /// In so many ns from now another CPU writes this.
    fn later(&mut self, ns: u64, at: usize, word: u32) {
        let when = self.machine.clock_ns + ns;
        self.machine.written_ns.push_back((when, at, word));
    }

    /// A message comes, whose entry program has taken so long until here, if it is timed: whether
    /// its handler has run, and how long that took by the clock.
    fn message(&mut self, timed: Option<u64>) -> (bool, u64) {
        let flags = flag::PLAIN | timed.map_or(0, |_| flag::TIMED);
        let from = self.machine.clock_ns - timed.unwrap_or_default();
        self.field(context::PAYLOAD_OFF, &42_u32.to_ne_bytes());
        self.field(context::PAYLOAD_LEN, &8_u32.to_ne_bytes());
        self.field(context::FLAGS, &flags.to_ne_bytes());
        self.field(context::TIMED_FOR, &1_u32.to_ne_bytes());
        self.field(context::TIMED_FROM, &from.to_ne_bytes());
        let counts = [Count::Consumed, Count::QueuedBusy];
        let before = counts.map(|count| self.machine.count(0, count));
        let began = self.machine.clock_ns;
        self.machine.run(&self.program, &[0; 50]).unwrap();
        let after = counts.map(|count| self.machine.count(0, count));
        let risen = [after[0] - before[0], after[1] - before[1]];
        assert_eq!(risen[0] + risen[1], 1, "counted once: {risen:?}");
        (risen[0] == 1, self.machine.clock_ns - began)
    }

    fn waited(&self) -> u64 {
        self.machine.count(0, Count::WaitedBusy)
    }

    fn lock(&self) -> u32 {
        self.machine.trusted_u32(LOCK)
    }
}

#[test]
fn a_short_wait_ends_in_the_kernel_tier() {
    for place in PLACES {
        for ns in [0, 100, LEAST / 2, LEAST - LOOKS] {
            let mut path = Path::new(place);
            path.set(LOCK, IN_KERNEL);
            path.later(ns, LOCK, 0);
            let (ran, took) = path.message(None);
            assert!(
                ran && took >= ns && took <= ns + LOOKS,
                "{place:?} {ns}: {took}"
            );
            assert_eq!((path.lock(), path.waited()), (0, 1), "{place:?}");
            // Whom nobody keeps from it does not even look at the clock.
            assert_eq!(path.message(None), (true, 0), "{place:?}");
            assert_eq!(path.waited(), 1, "{place:?}");
        }
    }
}

#[test]
fn who_waits_in_vain_goes_to_the_user_tier() {
    for place in PLACES {
        let mut path = Path::new(place);
        path.set(LOCK, IN_KERNEL);
        path.later(LEAST + LOOKS, LOCK, 0);
        let (ran, took) = path.message(None);
        assert!(!ran && took <= LEAST + LOOKS, "{place:?}: {took}");
        assert_eq!((path.lock(), path.waited()), (IN_KERNEL, 1), "{place:?}");
    }
}

/// Nor behind what it has said that it wants, nor behind a fault that is for the worker; and not
/// when one of these comes while a message waits.
#[test]
fn nobody_waits_for_the_worker() {
    for place in PLACES {
        for (lock, wanted) in [
            (IN_USER, 0),
            (HELD, 0),
            (IN_KERNEL, 1),
            (IN_USER, 1),
            (0, 1),
        ] {
            let mut path = Path::new(place);
            path.set(LOCK, lock);
            path.set(WANTED, wanted);
            assert_eq!(path.message(None), (false, 0), "{place:?}: {lock} {wanted}");
            assert_eq!((path.lock(), path.waited()), (lock, 0));
        }
        for (at, word) in [(LOCK, IN_USER), (LOCK, HELD), (WANTED, 1)] {
            let mut path = Path::new(place);
            path.set(LOCK, IN_KERNEL);
            path.later(200, at, word);
            path.later(600, LOCK, 0);
            path.later(600, WANTED, 0);
            let (ran, took) = path.message(None);
            assert!(!ran && took <= 200 + LOOKS, "{place:?}: {took}");
        }
    }
}

/// Twice the mean time of the path's messages, but what is least and most.
#[test]
fn it_waits_for_about_as_long_as_its_handler_takes() {
    for place in PLACES {
        for (mean, bound) in [(10, LEAST), (400, LEAST), (3_000, 6_000), (40_000, MOST)] {
            let mut path = Path::new(place);
            for _ in 0..3 {
                assert!(path.message(Some(mean - LOOK.min(mean))).0);
            }
            path.set(LOCK, IN_KERNEL);
            let (ran, took) = path.message(None);
            assert!(!ran, "{place:?}");
            let expected = bound - LOOKS..=bound + LOOKS;
            assert!(expected.contains(&took), "{place:?}, {mean}: {took}");
        }
    }
}

/// Not of the path's share, and not of the time by which the next message waits.
#[test]
fn what_is_waited_is_nobodys_time() {
    for place in PLACES {
        let mut path = Path::new(place);
        for ns in [500, 800, 0] {
            path.set(LOCK, IN_KERNEL);
            path.later(ns, LOCK, 0);
            let before = path.machine.row_word(0, KERNEL_NS);
            assert!(path.message(Some(100)).0);
            let took = path.machine.row_word(0, KERNEL_NS) - before;
            assert!((100..100 + LOOKS).contains(&took), "{place:?}: {took}");
        }
        assert_eq!(path.waited(), 3);

        let paid = |waits: bool| {
            let mut path = Path::with_share(place, Some(Terms::new(500, None)));
            let begins = path.machine.clock_ns + 800;
            if waits {
                path.set(LOCK, IN_KERNEL);
                path.later(800, LOCK, 0);
            } else {
                path.machine.clock_ns = begins;
            }
            assert!(path.message(None).0);
            let at = QUEUE.path_word(0) + ashway_abi::trusted::PATH_PAID;
            let paid = path.machine.trusted()[at..][..8].try_into().unwrap();
            u64::from_ne_bytes(paid) - begins
        };
        let (waits, runs) = (paid(true), paid(false));
        assert!(
            waits.abs_diff(runs) <= 2 * LOOKS,
            "{place:?}: {waits} {runs}"
        );
    }
}
