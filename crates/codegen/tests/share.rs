//! A path's share of the kernel tier, in our own interpreter: its program decides as
//! [`Account`] does, whatever time runs take and however many messages come.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use ashway_abi::memory::{Layout, STATE_BYTES, WASM_PAGE};
use ashway_abi::share::{Account, DRAIN_NS, HOLD_NS, Mode, Terms};
use ashway_abi::{Count, Hop, context, flow, trusted};
use ashway_abi::{MemoryKind, QueueLayout};
use ashway_check::bpf::interp::Machine;
use ashway_check::bpf::{Hook, Image};
use ashway_codegen::entry::Packet;
use ashway_codegen::forward;
use ashway_codegen::instance::{self, OrderScope, QueueSpec};
use promoted::promoted;

#[path = "common/promoted.rs"]
mod promoted;

const LAYOUT: Layout = Layout::without_endpoint(WASM_PAGE, STATE_BYTES);

const QUEUE: QueueLayout = QueueLayout {
    paths: 4,
    rings: 1,
    slot_bytes: 2048,
    locks: 0,
};

/// The path among those of its instance.
const LOCAL: usize = 2;
const WORD: usize = trusted::PATHS + LOCAL * trusted::PATH_STRIDE;
const CONSUMED: usize = trusted::RINGS + trusted::RING_CONSUMED;

/// Consumes what is even, stops at what is odd.
const HANDLER: &str = r#"(module (import "ashway" "msg_load8" (func $load (param i32) (result i32)))
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param i32 i32) (result i32)
        i32.const 0 call $load i32.const 1 i32.and if unreachable end i32.const 0))"#;

const fn spec(memory: MemoryKind) -> instance::Spec {
    instance::Spec {
        queue: queue(memory),
        layout: LAYOUT,
        memory,
    }
}

const fn queue(memory: MemoryKind) -> QueueSpec {
    QueueSpec {
        hook: Hook::Xdp,
        cpus: 1,
        layout: QUEUE,
        packet: Packet::beside(memory),
        order_scope: OrderScope::Ring,
    }
}

/// Of whole frames, where the paths below this number are relays.
const fn frames(memory: MemoryKind) -> QueueSpec {
    QueueSpec {
        order_scope: OrderScope::Path { relays: 3 },
        ..queue(memory)
    }
}

/// A relay's hop with these terms.
fn hop(terms: Option<Terms>) -> Hop {
    Hop {
        ifindex: 7,
        mtu: 1500,
        hops: 64,
        terms,
        ..Hop::default()
    }
}

/// A path of an instance, without an entry program: its facts are in the context.
struct Path {
    program: Image,
    machine: Machine,
    /// Where its account is.
    account: usize,
}

impl Path {
    fn new(memory: MemoryKind, share: Option<Terms>) -> Self {
        Self::made_for(Some(LOCAL), memory, share)
    }

    /// In the kernel tier, by a program of the path with this number alone, or of any.
    fn made_for(path: Option<usize>, memory: MemoryKind, share: Option<Terms>) -> Self {
        let program = promoted(HANDLER, &spec(memory), |handler| {
            (handler.path, handler.share) = (path, share);
        });
        Self::of(program, memory)
    }

    /// The way back of a relay of the kernel tier, whose account is with the way there.
    fn relay(memory: MemoryKind, share: Option<Terms>) -> Self {
        let mut path = Self::of(forward::generate(&frames(memory)), memory);
        path.account = WORD - trusted::PATH_STRIDE;
        for way in [LOCAL - 1, LOCAL] {
            path.machine.set_hop(way, hop(share));
        }
        path
    }

    /// A path with this share of each kind: of a handler over either memory, and relays.
    fn all(share: Terms) -> [Self; 4] {
        let both = [MemoryKind::Arena, MemoryKind::Array];
        let [[arena, array], [pointers, helpers]] =
            [Self::new, Self::relay].map(|made| both.map(|memory| made(memory, Some(share))));
        [arena, array, pointers, helpers]
    }

    /// In the user tier.
    fn user(memory: MemoryKind) -> Self {
        Self::of(instance::user(&queue(memory)), memory)
    }

    fn of(program: Image, memory: MemoryKind) -> Self {
        let mut machine = Machine::new(1, QUEUE.bytes(), LAYOUT.total_bytes());
        machine.array_mode = memory == MemoryKind::Array;
        let mut path = Self {
            program,
            machine,
            account: WORD,
        };
        path.of_path(LOCAL);
        path.set(trusted::PARTED, 1);
        path
    }

    /// Messages from now on are of the path with this number.
    fn of_path(&mut self, local: usize) {
        self.field(context::LOCAL_PATH, local as u32);
    }

    fn field(&mut self, at: i16, value: u32) {
        let at = at as usize;
        self.machine.context_mut()[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    }

    /// A message comes `now`, whose handler takes so long; what is counted of it, a
    /// fate or a note, but for what is counted beside a fate.
    fn message(&mut self, now: u64, takes: u64, odd: bool) -> Count {
        // As the entry program leaves it; a relay's makes a whole frame of it.
        self.field(context::PAYLOAD_OFF, 42);
        self.field(context::PAYLOAD_LEN, 8);
        self.field(
            context::FLAGS,
            context::flag::PLAIN | context::flag::ON_FAULT_DROP,
        );
        let machine = &mut self.machine;
        (machine.clock_ns, machine.clock_step_ns) = (now, takes);
        let counts = |machine: &Machine| {
            let all = Count::of_programs().iter();
            let count = |which: &Count| machine.count(0, *which);
            all.map(count).collect::<Vec<u64>>()
        };
        let before = counts(machine);
        machine.run(&self.program, &[u8::from(odd); 50]).unwrap();
        let after = counts(machine);
        let beside = [Count::Committed, Count::AbortUnreachable];
        let risen: Vec<Count> = Count::of_programs()
            .iter()
            .zip(before.iter().zip(&after))
            .flat_map(|(count, (before, after))| vec![*count; (after - before) as usize])
            .filter(|count| !beside.contains(count))
            .collect();
        match risen[..] {
            [one] => one,
            _ => panic!("{risen:?}"),
        }
    }

    fn word(&self, at: usize) -> u64 {
        let at = self.account + at;
        u64::from_ne_bytes(self.machine.trusted()[at..][..8].try_into().unwrap())
    }

    fn is_lazy(&self) -> bool {
        let lazy = self.machine.trusted_u32(self.account + trusted::PATH_LAZY);
        assert!(lazy < 2);
        lazy == 1
    }

    fn in_user(&self) -> u32 {
        trusted::in_user(self.machine.trusted_u32(WORD))
    }

    /// As if the worker had worked off so many of its messages.
    fn work_off(&mut self, messages: u32) {
        let consumed = self.machine.trusted_u32(CONSUMED);
        for ticket in consumed..consumed + messages {
            let slot = ticket as usize % trusted::RING_SLOTS * trusted::SLOT_BYTES;
            let slot = trusted::SLOTS + slot;
            let flow = self.machine.trusted_u32(slot + trusted::SLOT_FLOW);
            let word = QUEUE.flow_word(flow as usize);
            self.set(word, trusted::less(self.machine.trusted_u32(word), 1));
        }
        for (at, to) in [
            (WORD, trusted::less as fn(u32, u32) -> u32),
            (CONSUMED, u32::wrapping_add),
        ] {
            let word = to(self.machine.trusted_u32(at), messages);
            self.set(at, word);
        }
    }

    fn set(&mut self, at: usize, word: u32) {
        self.machine.trusted_mut()[at..at + 4].copy_from_slice(&word.to_ne_bytes());
    }

    /// So many messages come at once, and are led to the user tier or dropped: how many
    /// were, of each.
    fn burst(&mut self, now: u64, messages: usize) -> [usize; 3] {
        let mut seen = [0; 3];
        for _ in 0..messages {
            seen[match self.message(now, 0, false) {
                Count::DroppedOverShare => 1,
                Count::DroppedQueueFull => 2,
                Count::QueuedOrder | Count::QueuedBusy | Count::QueuedTier => 0,
                other => panic!("{other:?}"),
            }] += 1;
        }
        seen
    }

    /// What the daemon says of it.
    fn mode(&self, now: u64) -> Mode {
        let waits = self.is_lazy() && self.in_user() > 0;
        Mode::at(now, self.word(trusted::PATH_LAZY_AT), waits)
    }
}

fn ran(count: Count) -> bool {
    matches!(
        count,
        Count::Consumed | Count::DroppedFault | Count::Forwarded
    )
}

const SECOND: u64 = 1_000_000_000;

/// Numbers that look random (xorshift, G. Marsaglia 2003).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

#[test]
fn the_program_decides_as_the_account_does() {
    for (memory, per_mille, rate) in [
        (MemoryKind::Arena, 200, None),
        (MemoryKind::Array, 1, Some(7)),
        (MemoryKind::Arena, 1_000, Some(1_000)),
        (MemoryKind::Array, 1_000, None),
    ] {
        let terms = Terms::new(per_mille, rate);
        for made in [Path::new, Path::relay] {
            decides_as_the_account_does(made(memory, Some(terms)), terms);
        }
    }
}

fn decides_as_the_account_does(mut path: Path, terms: Terms) {
    let mut account = Account::default();
    let mut random = Random(u64::from(terms.price) + 88);
    let (mut now, mut seen) = (SECOND, [0; 2]);
    for _ in 0..5_000 {
        let takes = 1 + random.below(100_000);
        // Twice as often as it may run, on the whole.
        now += random.below(terms.cost(50_000) + 1);
        let count = path.message(now, takes, random.below(4) == 0);
        if account.may_run(now) {
            account.ran(terms, now, now + takes);
            assert!(ran(count), "{count:?} at {now}: {account:?}");
            seen[0] += 1;
        } else {
            assert_eq!(count, Count::QueuedShare, "at {now}: {account:?}");
            path.work_off(1);
            seen[1] += 1;
        }
        assert_eq!(
            (path.word(trusted::PATH_PAID), path.is_lazy()),
            (account.paid, account.lazy)
        );
        assert_eq!(path.word(trusted::PATH_LAZY_AT), account.lazy_at);
        assert_eq!(path.machine.trusted_u32(trusted::LOCK), 0);
    }
    assert!(seen.iter().all(|seen| *seen > 500), "{terms:?}: {seen:?}");
}

/// Runs of 10 us at 20 %, asked for so many times a second for a second; beside, a
/// worker that takes so long for each. How many were run at once, in the user tier, and
/// not at all.
fn offer(path: &mut Path, worker_ns: u64, begin: u64, per_second: u64) -> [u64; 3] {
    offer_in_lots(path, worker_ns, begin, per_second, 1)
}

/// The same, where messages come in lots so far apart.
fn offer_in_lots(
    path: &mut Path,
    worker_ns: u64,
    begin: u64,
    per_second: u64,
    apart: u64,
) -> [u64; 3] {
    let [mut eager, mut lazy, mut dropped] = [0; 3];
    let (mut worker, mut free) = (begin, begin);
    for message in 0..per_second {
        let lot = message * SECOND / per_second / apart;
        let now = free.max(begin + lot * apart);
        while path.in_user() > 0 && worker <= now {
            path.work_off(1);
            worker += worker_ns;
            lazy += 1;
        }
        match path.message(now, 10_000, false) {
            Count::Consumed | Count::Forwarded => {
                eager += 1;
                free = now + 10_000;
            }
            // It begins with the first.
            Count::QueuedShare => worker = now + worker_ns,
            Count::QueuedOrder => {}
            Count::DroppedOverShare => dropped += 1,
            other => panic!("{other:?}"),
        }
    }
    let waiting = u64::from(path.in_user());
    assert_eq!(eager + lazy + dropped + waiting, per_second);
    path.work_off(waiting as u32);
    [eager, lazy + waiting, dropped]
}

/// Up to its share a path is run at once, above it a share of it is, the rest is the
/// user tier's or dropped and counted; and whatever comes, no less is done for it.
#[test]
fn goodput_does_not_fall_as_the_load_rises() {
    // It is faster than the share, as fast, slower, and has hardly a CPU.
    let terms = Some(Terms::new(200, None));
    for (worker_ns, made) in [20_000, 50_000, 100_000, 500_000]
        .into_iter()
        .flat_map(|worker_ns| [Path::new, Path::relay].map(|made| (worker_ns, made)))
    {
        let mut path = made(MemoryKind::Arena, terms);
        let (mut begin, mut best) = (SECOND, 0);
        for per_second in [10_000, 20_000, 24_000, 40_000, 100_000] {
            let [eager, lazy, dropped] = offer(&mut path, worker_ns, begin, per_second);
            let is_lazy = path.mode(begin + SECOND) == Mode::Lazy;
            assert_eq!(is_lazy, per_second > 20_000);
            if is_lazy {
                assert!(eager < 20_500, "{eager} of {per_second}");
            } else {
                assert_eq!([eager, lazy, dropped], [per_second, 0, 0]);
            }
            let good = eager + lazy;
            let what = format!("{eager} and {lazy} of {per_second} behind {best}, {worker_ns}");
            println!("{what}");
            assert!(good * 100 >= best * 95, "{what}");
            best = best.max(good);
            // The next begins when this one is forgotten.
            begin += SECOND + 2 * HOLD_NS;
            assert_eq!(path.mode(begin), Mode::Eager);
        }
        assert!(best > 20_000, "{best}");
    }
}

/// A flood comes in lots. Where these are more than the worker can do, it has no gaps
/// between them.
#[test]
fn a_flood_in_lots_has_no_less_done_than_a_lower_load() {
    let done = |per_second| {
        let mut path = Path::new(MemoryKind::Arena, Some(Terms::new(100, None)));
        let [eager, lazy, _] = offer_in_lots(&mut path, 14_000, SECOND, per_second, 200_000);
        println!("{eager} and {lazy} of {per_second}");
        assert!(eager > 9_500, "{eager} of {per_second}");
        eager + lazy
    };
    let (all, some) = (done(70_000), done(100_000));
    assert!(some * 100 >= all * 97, "{some} behind {all}");
}

/// Behind the flood it is eager again, and not before what waits has been done.
#[test]
fn a_flood_ends_and_nothing_overtakes() {
    for mut path in Path::all(Terms::new(10, None)) {
        while ran(path.message(SECOND, 10_000, false)) {}
        // No more than a worker's turn is taken, and the rest is counted.
        for _ in 1..trusted::LAZY_MESSAGES {
            assert_eq!(path.message(SECOND, 0, false), Count::QueuedOrder);
        }
        for _ in 0..1_000 {
            assert_eq!(path.message(SECOND, 0, false), Count::DroppedOverShare);
        }
        assert_eq!(path.in_user(), trusted::LAZY_MESSAGES);
        // The worker goes on for a while, before the kernel tier has its due.
        path.work_off(1);
        assert_eq!(path.message(SECOND, 0, false), Count::QueuedOrder);
        let due = SECOND + DRAIN_NS;
        assert_eq!(path.message(due, 0, false), Count::DroppedOverShare);
        // It has paid by now, but none may overtake what waits.
        let later = 60 * SECOND;
        path.work_off(trusted::LAZY_MESSAGES - 1);
        assert_eq!(path.message(later, 0, false), Count::DroppedOverShare);
        assert_eq!(path.mode(later), Mode::Lazy);
        path.work_off(1);
        assert!(ran(path.message(later, 0, false)));
        assert_eq!(path.mode(later), Mode::Eager);
    }
}

/// Between too much and enough again there is something.
#[test]
fn it_does_not_change_with_every_message() {
    let terms = Terms::new(100, None);
    let mut path = Path::new(MemoryKind::Arena, Some(terms));
    let (mut was, mut changes, mut messages) = (true, 0, 0);
    for now in (SECOND..SECOND + SECOND / 10).step_by(5_000) {
        let eager = ran(path.message(now, 10_000, false));
        if !eager {
            path.work_off(1);
        }
        changes += u32::from(eager != was);
        (was, messages) = (eager, messages + 1);
    }
    assert_eq!(messages, 20_000);
    assert!((10..250).contains(&changes), "{changes}");
}

const MOST: usize = trusted::LAZY_MESSAGES as usize;

/// What a path alone may have of the ring, where its instance has others.
const PART: usize = trusted::RING_SLOTS / 2;

/// While messages wait for each other, nobody asks how the path stands: what was above its
/// share a moment ago is so still, as its mode says.
#[test]
fn who_waits_for_order_behind_a_flood_has_no_more_room() {
    for memory in [MemoryKind::Arena, MemoryKind::Array] {
        let mut path = Path::new(memory, Some(Terms::new(50, None)));
        while path.message(SECOND, 1_000_000, false) != Count::QueuedShare {}
        path.work_off(1);
        let eager = SECOND + SECOND / 2;
        assert!(ran(path.message(eager, 1, false)));
        // It runs on another CPU.
        path.set(trusted::LOCK, 1);
        assert_eq!(path.burst(eager, 300), [MOST, 300 - MOST, 0]);
        assert_eq!(path.mode(eager), Mode::Lazy);
        path.work_off(MOST as u32);
        let later = SECOND + HOLD_NS;
        assert_eq!(path.mode(later), Mode::Eager);
        assert_eq!(path.burst(later, 300), [PART, 0, 300 - PART]);
    }
}

/// The worker has met an activation, and takes the lock when that has ended: no other begins
/// before.
#[test]
fn a_lock_that_the_worker_wants_is_left_alone() {
    for memory in [MemoryKind::Arena, MemoryKind::Array] {
        let mut path = Path::new(memory, None);
        assert!(ran(path.message(SECOND, 1, false)));
        path.set(trusted::WANTED, 1);
        assert_eq!(path.message(SECOND, 1, false), Count::QueuedBusy);
        assert_eq!(path.machine.trusted_u32(trusted::LOCK), 0);
        assert_eq!(path.machine.trusted_u32(trusted::WANTED), 1);
        path.work_off(1);
        path.set(trusted::WANTED, 0);
        assert!(ran(path.message(SECOND, 1, false)));
    }
}

/// In the user tier the worker says how a path stands.
#[test]
fn the_user_tier_drops_what_the_worker_has_no_room_for() {
    for memory in [MemoryKind::Arena, MemoryKind::Array] {
        let mut path = Path::user(memory);
        assert_eq!(path.burst(SECOND, 300), [PART, 0, 300 - PART]);
        path.work_off(PART as u32);
        path.set(WORD + trusted::PATH_LAZY, 1);
        assert_eq!(path.burst(SECOND, 300), [MOST, 300 - MOST, 0]);
        path.work_off(1);
        assert_eq!(path.burst(SECOND, 2), [1, 1, 0]);
    }
}

/// What one direction of a relay uses the other has not.
#[test]
fn both_directions_of_a_relay_have_one_account() {
    let mut path = Path::relay(MemoryKind::Arena, Some(Terms::new(10, None)));
    let go = |path: &mut Path, way: usize| {
        path.of_path(way);
        path.message(SECOND, 10_000, false)
    };
    let mut runs = 0;
    while ran(go(&mut path, LOCAL - runs % 2)) {
        runs += 1;
    }
    // 1 % of 2 ms are two runs of 10 us, and one more begins within them.
    assert_eq!(runs, 3);
    for way in [LOCAL - 1, LOCAL] {
        let note = go(&mut path, way);
        assert!(
            matches!(note, Count::QueuedShare | Count::QueuedOrder),
            "{note:?}"
        );
        path.set(trusted::PATHS + way * trusted::PATH_STRIDE, 0);
    }
}

/// Of a relay CPUs charge the account at a time, and none undoes what another did: `share`
/// stores nothing there but by atomic instructions.
#[test]
fn a_relay_is_charged_by_atomic_instructions_alone() {
    let program = forward::generate(&frames(MemoryKind::Arena));
    let mut atomic = 0;
    for insn in &program.insns {
        // STX or ST (RFC 9669 §5), of 8 bytes, to this offset.
        let [code, ..] = insn.to_le_bytes();
        let off = (insn >> 16) as u16;
        let stores = matches!(code & 7, 2 | 3) && code & 0x18 == 0x18;
        if stores && usize::from(off) == trusted::PATH_PAID {
            assert_eq!(code & 0xe0, 0xc0, "{insn:#x}");
            atomic += 1;
        }
    }
    // Two ends, each of which may bring the account up to now.
    assert!(atomic >= 2 && atomic % 2 == 0, "{atomic}");
}

/// A relay without a share is not asked, and not charged.
#[test]
fn a_relay_without_a_share_does_not_look_at_the_clock() {
    for memory in [MemoryKind::Arena, MemoryKind::Array] {
        for (share, looks) in [(None, 0), (Some(Terms::new(200, None)), 2)] {
            let mut path = Path::relay(memory, share);
            assert!(ran(path.message(SECOND, 1, false)));
            assert_eq!(path.machine.clock_ns - SECOND, looks);
            assert_eq!(path.word(trusted::PATH_PAID) > 0, share.is_some());
        }
    }
}

/// A path without a share has nothing of it in its program.
#[test]
fn without_a_share_there_is_no_look_at_the_clock() {
    let clock = |program: &Image| {
        let call = 0x85 | 5 << 32;
        program.insns.iter().filter(|insn| **insn == call).count()
    };
    let of = |share| Path::new(MemoryKind::Arena, share).program;
    let (with, without) = (of(Some(Terms::new(200, None))), of(None));
    // One is of messages that are timed, two of those that wait for another CPU.
    assert_eq!((clock(&with), clock(&without)), (9, 3));
    assert!(with.insns.len() > without.insns.len());
}

/// Whether a program was made before its path had a number or for this path, it runs a message
/// unless one of the same path waits.
#[test]
fn a_path_waits_for_its_own_messages_alone() {
    for memory in [MemoryKind::Arena, MemoryKind::Array] {
        for known in [None, Some(LOCAL)] {
            let mut path = Path::made_for(known, memory, None);
            // Of the message's flow: its addresses and ports are 0.
            let bucket = flow::of_ipv4(0, [[0; 4]; 2], [0; 4]);
            path.set(QUEUE.flow_word(bucket as usize), 1);
            for waits in 0..4 {
                let at = trusted::PATHS + waits * trusted::PATH_STRIDE;
                path.machine.trusted_mut()[at..at + 4].copy_from_slice(&1_u32.to_ne_bytes());
                let expected = match waits {
                    LOCAL => Count::QueuedOrder,
                    _ => Count::Consumed,
                };
                assert_eq!(path.message(0, 0, false), expected, "{known:?}, {waits}");
                assert_eq!(path.in_user(), if waits == LOCAL { 2 } else { 0 });
                path.machine.trusted_mut()[at..at + 4].fill(0);
            }
        }
    }
}

/// Behind the flood of a path that has filled its part, and that only, the kernel tier goes on.
#[test]
fn a_path_that_has_filled_its_part_drains() {
    for memory in [MemoryKind::Arena, MemoryKind::Array] {
        let mut path = Path::new(memory, None);
        path.set(trusted::LOCK, 1);
        assert_eq!(path.message(SECOND, 0, false), Count::QueuedBusy);
        path.set(trusted::LOCK, 0);
        assert_eq!(path.burst(SECOND, 300), [PART - 1, 0, 301 - PART]);
        // All of it is one flow, and that drains.
        let bucket = flow::of_ipv4(0, [[0; 4]; 2], [0; 4]) as usize;
        let words = [WORD, QUEUE.flow_word(bucket)].map(|at| path.machine.trusted_u32(at));
        assert_eq!(words, [PART as u32, PART as u32 | trusted::DRAINING]);
        path.work_off(PART as u32 - 1);
        assert_eq!(path.burst(SECOND, 3), [0, 0, 3]);
        path.work_off(1);
        assert!(ran(path.message(SECOND, 1, false)));
    }
}

/// The mark of a path that was demoted while it drained is no message.
#[test]
fn a_mark_takes_no_room() {
    let mut path = Path::user(MemoryKind::Arena);
    path.set(WORD, 1 | trusted::DRAINING);
    assert_eq!(path.burst(SECOND, 300), [PART, 0, 300 - PART]);
}

/// Messages of these paths arrive in this order, and the worker takes none: how many each
/// has in the ring.
fn fill(order_scope: OrderScope, order: &[usize]) -> Vec<u32> {
    let spec = QueueSpec {
        order_scope,
        ..queue(MemoryKind::Arena)
    };
    let mut path = Path::of(instance::user(&spec), MemoryKind::Arena);
    let word = |local| trusted::PATHS + local * trusted::PATH_STRIDE;
    for &local in order {
        path.of_path(local);
        let dropped = |path: &Path| {
            path.machine
                .trusted_u32(word(local) + trusted::PATH_DROPPED)
        };
        let before = dropped(&path);
        let counted = path.message(0, 0, false);
        // Who has no row of its own has the drop in its word.
        let in_word = dropped(&path) - before;
        let shares_row = matches!(order_scope, OrderScope::Path { relays } if local >= relays);
        match counted {
            Count::QueuedTier | Count::DroppedRingFull => assert_eq!(in_word, 0),
            Count::DroppedQueueFull => assert_eq!(in_word, u32::from(shares_row)),
            other => panic!("{other:?}"),
        }
    }
    (0..4)
        .map(|local| path.machine.trusted_u32(word(local)))
        .collect()
}

/// Of paths that take whole frames, relays (1 and 2) and others, and of those of a handler.
#[test]
fn no_path_takes_what_another_needs() {
    let frames = OrderScope::Path { relays: 3 };
    for (scope, [flood, other, late]) in [
        (frames, [1, 2, 3]),
        (frames, [3, 1, 2]),
        (OrderScope::Ring, [0, 1, 2]),
        (OrderScope::Ring, [3, 0, 1]),
    ] {
        let fill = |order: &[usize]| fill(scope, order);
        // One flood has half of the ring, and two have as much each as is left.
        assert_eq!(fill(&[flood; 1_000])[flood], 128);
        let two: Vec<usize> = (0..1_000).map(|at| [flood, other][at % 2]).collect();
        let has = fill(&two);
        assert_eq!([has[flood], has[other]], [86, 85]);
        // Whoever comes later finds as much again.
        let mut and_late = two;
        and_late.extend([late; 42]);
        assert_eq!(fill(&and_late)[late], 42);
    }
    // Paths without a number have what is left.
    assert_eq!(fill(frames, &[0; 1_000])[0], 256);
}

/// It has the whole ring, until another comes.
#[test]
fn a_path_that_is_alone_has_no_part() {
    let mut path = Path::user(MemoryKind::Arena);
    path.set(trusted::PARTED, 0);
    for _ in 0..trusted::RING_SLOTS {
        assert_eq!(path.message(SECOND, 0, false), Count::QueuedTier);
    }
    assert_eq!(path.message(SECOND, 0, false), Count::DroppedRingFull);
    path.set(trusted::PARTED, 1);
    assert_eq!(path.message(SECOND, 0, false), Count::DroppedQueueFull);
}
