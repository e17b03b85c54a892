//! The plain way: how many instructions a short datagram of a known path takes from the entry
//! program's first to the instance's last. A look that is rare and costs one is seen here.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use ashway_abi::memory::{Layout, STATE_BYTES, WASM_PAGE};
use ashway_abi::{Count, Leaf, MemoryKind, QueueLayout};
use ashway_check::bpf::Hook;
use ashway_check::bpf::interp::Machine;
use ashway_codegen::demux::compiled::{self, FEW};
use ashway_codegen::entry::{self, Packet, Reply};
use ashway_codegen::instance::{OrderScope, QueueSpec, Spec};
use ashway_demux::Table;
use ashway_rig::Frame;
use promoted::promoted;

#[path = "common/promoted.rs"]
mod promoted;

const LAYOUT: Layout = Layout::without_endpoint(WASM_PAGE, STATE_BYTES);
const QUEUE: QueueLayout = QueueLayout {
    paths: 1,
    rings: 1,
    slot_bytes: 4096,
    locks: 0,
};
const ROW: usize = 1;
const PORT: u16 = 7;

/// Answers with the message as it is, or drops it: nothing of the handler's own.
fn handler(verdict: u32) -> String {
    format!(
        r#"(module (memory (export "memory") 1 1)
            (func (export "on_rx") (param i32 i32) (result i32) (i32.const {verdict})))"#
    )
}

/// Instructions of one message whose handler says this.
fn taken(hook: Hook, reply: Reply, verdict: u32, count: Count) -> u64 {
    let spec = Spec {
        queue: QueueSpec {
            hook,
            cpus: 2,
            layout: QUEUE,
            packet: Packet::Pointers,
            order_scope: OrderScope::Ring,
        },
        layout: LAYOUT,
        memory: MemoryKind::Arena,
    };
    let program = promoted(&handler(verdict), &spec, |handler| {
        handler.may_reply = true;
        handler.path = Some(0);
    });
    let mut table = Table::default();
    let filter = format!("udp and dst port {PORT}");
    table
        .insert(&ashway_demux::parse(&filter).unwrap(), ())
        .unwrap();
    let shapes = compiled::compile_open(&table, FEW, |()| Leaf {
        row: ROW as u32,
        ring_count: 1,
        ..Leaf::default()
    });
    let frame = Frame::to_b(PORT, &7_u32.to_be_bytes()).from_port(PORT);
    let entry = entry::generate(&entry::Spec {
        hook,
        shapes: &shapes,
        spares: Some(compiled::spares_at(&shapes)),
        cpus: 2,
        per_cpu: false,
        unmatched_row: 0,
        mac: frame.eth_destination,
        reply,
        packet: Packet::Pointers,
    });
    let mut machine = Machine::new(ROW + 1, QUEUE.bytes(), LAYOUT.total_bytes());
    machine.set_hits(compiled::hits_bytes(&shapes));
    machine.slots = vec![Some(program)];
    // Some are timed.
    let run = |_| {
        machine.run(&entry, &frame.bytes()).unwrap();
        machine.executed
    };
    let fewest = (0..64).map(run).min().unwrap();
    assert_eq!(machine.count(ROW, count), 64);
    fewest
}

#[test]
fn a_look_more_is_seen() {
    let found = [
        (
            "xdp, answered",
            taken(Hook::Xdp, Reply::Transmit, 1, Count::Answered),
        ),
        (
            "xdp, dropped",
            taken(Hook::Xdp, Reply::Transmit, 5, Count::DroppedHandler),
        ),
        (
            "tcx, answered",
            taken(Hook::Tcx, Reply::Redirect, 1, Count::Answered),
        ),
        (
            "tcx, dropped",
            taken(Hook::Tcx, Reply::Redirect, 5, Count::DroppedHandler),
        ),
    ];
    let wanted = [
        ("xdp, answered", 269),
        ("xdp, dropped", 202),
        ("tcx, answered", 283),
        ("tcx, dropped", 212),
    ];
    assert_eq!(found, wanted);
}
