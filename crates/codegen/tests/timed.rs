//! How long the kernel tier takes for a path's messages, in our own interpreter: what is
//! counted by a few of them is what all took.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use ashway_abi::count::KERNEL_NS;
use ashway_abi::memory::{Layout, STATE_BYTES, WASM_PAGE};
use ashway_abi::{Budget, Count, Leaf, MemoryKind, QueueLayout, Verdict, flow};
use ashway_check::bpf::interp::Machine;
use ashway_check::bpf::{Hook, Image};
use ashway_codegen::demux::compiled::{self, FEW};
use ashway_codegen::entry::{self, Packet, Reply};
use ashway_codegen::instance::{OrderScope, QueueSpec, Spec};
use ashway_demux::Table;
use ashway_rig::Frame;
use promoted::promoted;

#[path = "common/promoted.rs"]
mod promoted;

const QUEUE: QueueLayout = QueueLayout {
    paths: 1,
    rings: 1,
    slot_bytes: 2048,
    locks: 0,
};
const LAYOUT: Layout = Layout::without_endpoint(WASM_PAGE, STATE_BYTES);
const ROW: usize = 1;
const PORT: u16 = 7;
const STEP_NS: u64 = 1_000;
const BUDGET_NS: u64 = 50_000;

/// Looks at the clock as often as the first byte says, which takes [`STEP_NS`] each time, and
/// ends as the second byte says.
const HANDLER: &str = r#"(module
    (import "ashway" "msg_load8" (func $load (param i32) (result i32)))
    (import "ashway" "now_ns" (func $now (result i64)))
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param i32 i32) (result i32) (local $left i32)
        (local.set $left (call $load (i32.const 0)))
        (block $done (loop $again
            (br_if $done (i32.eqz (local.get $left)))
            (drop (call $now))
            (local.set $left (i32.sub (local.get $left) (i32.const 1)))
            (br $again)))
        (call $load (i32.const 1))))"#;

/// An interface with one path, whose handler is in the kernel tier.
struct Path {
    machine: Machine,
    entry: Image,
}

impl Path {
    fn new(memory: MemoryKind) -> Self {
        let packet = Packet::beside(memory);
        let queue = QueueSpec {
            hook: Hook::Xdp,
            cpus: 1,
            layout: QUEUE,
            packet,
            order_scope: OrderScope::Ring,
        };
        let spec = Spec {
            queue,
            layout: LAYOUT,
            memory,
        };
        let program = promoted(HANDLER, &spec, |handler| {
            handler.path = Some(0);
            handler.budget = Budget {
                fuel: 100_000,
                slice: 40_000,
                ns: BUDGET_NS,
            };
            handler.may_reply = true;
        });

        let mut table = Table::default();
        let filter = ashway_demux::parse(&format!("udp dst port {PORT}")).unwrap();
        table.insert(&filter, ()).unwrap();
        let shapes = compiled::compile(&table, FEW, |()| Leaf {
            row: ROW as u32,
            ..Leaf::default()
        });
        let entry = entry::generate(&entry::Spec {
            hook: Hook::Xdp,
            shapes: &shapes,
            spares: None,
            cpus: 1,
            per_cpu: false,
            unmatched_row: 0,
            mac: Frame::to_b(PORT, &[]).eth_destination,
            reply: Reply::Transmit,
            packet,
        });
        let mut machine = Machine::new(ROW + 1, queue.layout.bytes(), LAYOUT.total_bytes());
        machine.array_mode = memory == MemoryKind::Array;
        machine.clock_step_ns = STEP_NS;
        machine.set_hits(compiled::CELL_BYTES);
        machine.slots = vec![Some(program)];
        Self { machine, entry }
    }

    /// A message that takes so many steps.
    fn message(&mut self, steps: u8, verdict: Verdict) {
        let frame = Frame::to_b(PORT, &[steps, verdict as u8]).bytes();
        self.machine.run(&self.entry, &frame).unwrap();
    }

    fn took(&self) -> u64 {
        self.machine.row_word(ROW, KERNEL_NS)
    }
}

fn paths() -> impl Iterator<Item = Path> {
    [MemoryKind::Arena, MemoryKind::Array]
        .into_iter()
        .map(Path::new)
}

#[test]
fn of_a_few_messages_each_is_timed_whatever_becomes_of_it() {
    for mut path in paths() {
        let all = [
            (3, Verdict::Consume, Count::Consumed),
            (5, Verdict::Reply, Count::Answered),
            (0, Verdict::Consume, Count::Consumed),
            (7, Verdict::Pass, Count::Passed),
            (2, Verdict::Drop, Count::DroppedHandler),
        ];
        let mut took = 0;
        for (steps, verdict, fate) in all {
            let before = path.machine.count(ROW, fate);
            path.message(steps, verdict);
            assert_eq!(path.machine.count(ROW, fate), before + 1, "{verdict:?}");
            took += u64::from(steps) * STEP_NS;
            assert_eq!(path.took(), took, "{verdict:?}");
        }
    }
}

/// Of any number, and whatever follows whatever.
#[test]
fn the_sum_is_that_of_all_messages() {
    let patterns: [&[u8]; 4] = [&[3], &[0, 8], &[1, 1, 1, 9], &[0, 0, 0, 0, 0, 0, 14]];
    for mut path in paths() {
        for pattern in patterns {
            let start = path.took();
            let mut took = 0;
            for steps in pattern.iter().cycle().take(20_000) {
                path.message(*steps, Verdict::Consume);
                took += u64::from(*steps) * STEP_NS;
            }
            let counted = path.took() - start;
            // What the last one stands for is counted before it has come.
            let off = counted.abs_diff(took);
            assert!(off <= took / 8, "{pattern:?}: {counted} ns of {took}");
        }
    }
}

/// The processor was somebody else's meanwhile.
#[test]
fn a_message_counts_for_no_more_than_its_handler_may_take() {
    for mut path in paths() {
        path.machine.clock_step_ns = BUDGET_NS / 10;
        path.message(9, Verdict::Consume);
        assert_eq!(path.took(), 9 * BUDGET_NS / 10);
        path.message(200, Verdict::Consume);
        let second = path.took() - 9 * BUDGET_NS / 10;
        assert!((BUDGET_NS..2 * BUDGET_NS).contains(&second), "{second} ns");
    }
}

/// What goes to the user tier is measured there.
#[test]
fn what_goes_on_to_the_user_tier_counts_nothing() {
    for mut path in paths() {
        path.message(3, Verdict::Consume);
        let took = path.took();
        let in_user = ashway_abi::trusted::PATHS;
        // Of whichever flow.
        let flows = (0..flow::BUCKETS).map(|bucket| QUEUE.flow_word(bucket));
        for at in flows.chain([in_user]) {
            path.machine.trusted_mut()[at] = 1;
        }
        path.message(3, Verdict::Consume);
        assert_eq!(path.machine.count(ROW, Count::QueuedOrder), 1);
        assert_eq!(path.took(), took);
    }
}
