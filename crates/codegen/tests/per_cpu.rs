//! An instance for each CPU: a message is led to the slot, and counted in the row, of the CPU on
//! which it arrived, in our own interpreter; whichever half of the entry program finds the path,
//! and whether it is a constant of it, in a map or data. Other paths are as they were.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use ashway_abi::context::{self, flag};
use ashway_abi::{Count, Leaf};
use ashway_check::bpf::interp::Machine;
use ashway_check::bpf::{Assembler, Hook, Image, Reg};
use ashway_codegen::demux::compiled::{self, FEW};
use ashway_codegen::entry::{self, Packet, Reply};
use ashway_demux::Table;
use ashway_rig::{Frame, Spoil};

/// The path's port, and another's that has one instance.
const PORT: u16 = 7;
const OTHER: u16 = 8;
/// Where the path's rows and slots begin; the other's lie right behind.
const ROW: usize = 3;
const SLOT: usize = 2;
const CPUS: usize = 4;

/// A program that says which it is.
fn program(slot: usize) -> Image {
    let mut asm = Assembler::new();
    asm.mov_imm(Reg::R0, 100 + slot as i32);
    asm.exit();
    asm.finish()
}

fn leaf(port: u16) -> Leaf {
    let nth = if port == PORT { 0 } else { CPUS };
    Leaf {
        row: (ROW + nth) as u32,
        slot: (SLOT + nth) as u32,
        flags: if port == PORT { flag::PER_CPU } else { 0 },
        ring_count: 1,
        ..Leaf::default()
    }
}

/// How an entry program knows its paths.
#[derive(Clone, Copy, Debug)]
enum Known {
    Constants,
    Map,
}

struct Node {
    entry: Image,
    machine: Machine,
}

impl Node {
    fn new(hook: Hook, known: Known) -> Self {
        let mut table = Table::default();
        let filter = |port| {
            format!(
                "udp dst port {port} or (vlan and udp dst port {port}) \
                 or (vlan and udp dst port {port})"
            )
        };
        for port in [PORT, OTHER] {
            let filter = ashway_demux::parse(&filter(port)).unwrap();
            table.insert(&filter, port).unwrap();
        }
        let constants = match known {
            Known::Constants => FEW,
            Known::Map => 0,
        };
        let shapes = compiled::compile(&table, constants, leaf);
        let entry = entry::generate(&entry::Spec {
            hook,
            shapes: &shapes,
            spares: None,
            cpus: CPUS as u32,
            per_cpu: true,
            unmatched_row: 0,
            mac: Frame::to_b(PORT, &[]).eth_destination,
            reply: Reply::Redirect,
            packet: Packet::Pointers,
        });
        let mut machine = Machine::new(ROW + CPUS + 1, 8, 8);
        machine.set_hits(compiled::hits_bytes(&shapes));
        for (one, entries) in shapes.iter().zip(table.as_ref()) {
            if let Some(map) = one.entries.map() {
                machine.add_shape(map, one.shape.key_bytes());
                for (key, port) in entries.iter() {
                    machine.insert(map, key, leaf(port));
                }
            }
        }
        machine.slots = (0..=SLOT + CPUS).map(|slot| Some(program(slot))).collect();
        Self { entry, machine }
    }

    /// Which slot's program a frame meets on this CPU, and the row that it is counted in.
    fn met(&mut self, cpu: usize, frame: &[u8]) -> (usize, usize) {
        let rows = |machine: &Machine| {
            let rows = 0..=ROW + CPUS;
            rows.map(|row| machine.count(row, Count::Received))
                .collect::<Vec<_>>()
        };
        let before = rows(&self.machine);
        self.machine.set_cpu(cpu);
        let said = self.machine.run(&self.entry, frame).unwrap();
        let after = rows(&self.machine);
        let risen: Vec<_> = (0..after.len())
            .filter(|row| after[*row] != before[*row])
            .collect();
        assert_eq!(risen.len(), 1, "counted once: {before:?} {after:?}");
        let row = self.machine.context_u32(context::ROW);
        assert_eq!(row as usize, risen[0]);
        (said as usize - 100, risen[0])
    }
}

fn frames(port: u16) -> [Vec<u8>; 3] {
    let plain = Frame::to_b(port, b"message");
    let tagged = plain.clone().spoil(Spoil::Vlan(5));
    let six = Frame::to_b_v6(port, b"message");
    [plain, tagged, six].map(|frame| frame.bytes())
}

#[test]
fn a_message_meets_the_instance_of_its_cpu() {
    for hook in [Hook::Xdp, Hook::Tcx] {
        for known in [Known::Constants, Known::Map] {
            let mut node = Node::new(hook, known);
            for frame in frames(PORT) {
                for cpu in [0, 3, 1, 2, 0] {
                    let met = node.met(cpu, &frame);
                    assert_eq!(met, (SLOT + cpu, ROW + cpu), "{hook:?} {known:?}");
                }
            }
            for frame in frames(OTHER) {
                for cpu in 0..CPUS {
                    let met = node.met(cpu, &frame);
                    assert_eq!(met, (SLOT + CPUS, ROW + CPUS), "{hook:?} {known:?}");
                }
            }
        }
    }
}
