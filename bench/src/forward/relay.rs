//! The ways from A to C, each set up in B until it is dropped.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, anyhow, bail};
use ashway_abi::count::KERNEL_BYTES;
use ashway_abi::{Hop, Leaf, QueueLayout, context, hop};
use ashway_check::bpf::{Hook, Image, MapRef};
use ashway_codegen::demux::compiled::{self, FEW};
use ashway_codegen::entry::{self, Packet, Reply};
use ashway_codegen::instance::{OrderScope, QueueSpec};
use ashway_codegen::{exit, forward};
use ashway_demux::{self as demux, Table};
use ashway_kernel::maps::possible_cpus;
use ashway_kernel::{
    Attached, Iface, Map, MapFixup, MapSpec, Mode, Program, ProgramKind, ProgramSpec, shared,
};
use ashway_memory::{SharedArray, WakeBell};
use ashway_rig::Process;

use super::world::{FAR, MACS, NEAR, OUT, RELAY, World};
use crate::peers;

/// A way from A to C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contender {
    /// The wire that A and C share: what sending and receiving cost.
    Direct,
    /// A process with two sockets.
    Socket,
    /// `ip_forward`: routed, with A's own headers but one hop.
    Linux,
    /// The XDP program by hand.
    ByHand,
    /// The kernel tier's programs alone, by a redirect.
    Kernel,
    /// The same, through the TCX exit program.
    KernelExit,
    /// A node, its path in the kernel tier.
    NodeKernel,
    /// A node, its path in the user tier.
    NodeUser,
}

impl Contender {
    pub(super) const ALL: [Self; 8] = [
        Self::Direct,
        Self::Socket,
        Self::Linux,
        Self::ByHand,
        Self::Kernel,
        Self::KernelExit,
        Self::NodeKernel,
        Self::NodeUser,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Socket => "socket",
            Self::Linux => "ip_forward",
            Self::ByHand => "xdp_by_hand",
            Self::Kernel => "kernel",
            Self::KernelExit => "kernel_exit",
            Self::NodeKernel => "node_kernel",
            Self::NodeUser => "node_user",
        }
    }

    /// Where A sends to.
    pub(super) const fn target(self) -> &'static str {
        match self {
            Self::Direct => NEAR,
            Self::Linux => FAR,
            _ => RELAY,
        }
    }
}

/// What stands in B.
pub(super) struct Relay {
    process: Option<Process>,
    /// Held for as long as the relay stands.
    programs: Option<(Attached, Option<Attached>, Kernel)>,
}

impl Relay {
    pub(super) fn start(world: &World, way: Contender, binary: &Path) -> Result<Self> {
        let mut relay = Self {
            process: None,
            programs: None,
        };
        match way {
            Contender::Direct | Contender::Linux => {}
            Contender::Socket => {
                let program = peers::build()?.join("udp_forward");
                relay.process = Some(ready(world.b.command(program))?);
            }
            Contender::ByHand => {
                let built = peers::build()?;
                let mut command = world.b.command(built.join("xdp_peer"));
                command.arg(built.join("xdp_forward.o"));
                command.args(["ashway_by_hand", "b0"]).stdin(Stdio::piped());
                relay.process = Some(ready(command)?);
            }
            Contender::NodeKernel | Contender::NodeUser => {
                let tier = if way == Contender::NodeKernel {
                    "kernel"
                } else {
                    "user"
                };
                relay.process = Some(node(world, tier, binary)?);
            }
            Contender::Kernel | Contender::KernelExit => {
                let by_tcx = way == Contender::KernelExit;
                let kernel = Kernel::load(by_tcx)?;
                let links = world.b.run(|| -> Result<_> {
                    let ifindex = Iface::by_name("b0")?.ifindex;
                    let xdp = Attached::xdp(&kernel.entry, ifindex, Mode::Native)?;
                    let tcx = by_tcx.then(|| Attached::tcx(&kernel.exit, ifindex));
                    Ok((xdp, tcx.transpose()?))
                })?;
                relay.programs = Some((links.0, links.1, kernel));
            }
        }
        Ok(relay)
    }

    /// The forwarder that is a process.
    pub(super) fn id(&self) -> Option<u32> {
        self.process.as_ref().map(Process::id)
    }
}

/// Starts a peer and waits until it is `ready`.
fn ready(mut command: std::process::Command) -> Result<Process> {
    command.stdout(Stdio::piped());
    let mut process = Process::spawn(command).context("cannot start the forwarder")?;
    let output = process.child().stdout.take().context("no output")?;
    let mut lines = BufReader::new(output).lines();
    while let Some(line) = lines.next() {
        if line?.starts_with("ready") {
            // Whatever else it says is nobody's business, but has to go somewhere.
            std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
            return Ok(process);
        }
    }
    bail!("the forwarder ended before it was ready")
}

/// A node in B with the relay.
fn node(world: &World, tier: &str, binary: &Path) -> Result<Process> {
    let folder = std::env::temp_dir().join(format!("ashway-forward-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let config = folder.join("relay.toml");
    let mac = MACS[3].map(|byte| format!("{byte:02x}")).join(":");
    std::fs::write(
        &config,
        format!(
            r#"
[iface.b0]
attach = "xdp"
[iface.b1]
attach = "xdp"
[module.relay]
kind = "forward"
down = "udp.up"
[path.relay]
tier = "{tier}"
from = "eth:b0"
attrs = {{ pathname = "udp/relay", local = "{RELAY}", next_hop = "{FAR}", from = "10.0.3.1:7000", out = "eth:b1", next_hop_mac = "{mac}" }}
"#
        ),
    )?;
    let mut command = world.b.command(binary);
    command.arg("run").arg(&config);
    command.arg("--socket").arg(folder.join("relay.sock"));
    ready(command)
}

/// The kernel tier's programs for one forward path, as a node would load them.
struct Kernel {
    entry: Program,
    exit: Program,
    _forward: Program,
    _maps: ([Map; 4], [SharedArray; 2], WakeBell),
}

/// The number of the only relay's messages.
const KEY: usize = 1;

impl Kernel {
    fn load(by_tcx: bool) -> Result<Self> {
        let cpus = possible_cpus()? as u32;
        let contexts = Map::create(&MapSpec::array("ctx", context::BYTES as u32 * cpus, 1))?;
        let counters = Map::create(&MapSpec::percpu_array("rows", KERNEL_BYTES as u32, 2))?;
        let spec = QueueSpec {
            hook: Hook::Xdp,
            cpus,
            layout: QueueLayout {
                paths: KEY + 1,
                rings: 1,
                slot_bytes: 2048,
                locks: 0,
            },
            packet: Packet::Pointers,
            order_scope: OrderScope::Path { relays: KEY + 1 },
        };
        let hops = shared::words("hops", spec.layout.paths * hop::BYTES)?;
        let words = shared::words("words", spec.layout.bytes())?;
        let wake = shared::bell("wake", 4096)?;
        let slots = Map::create(&MapSpec::prog_array("slots", 1))?;
        let hits = Map::create(&MapSpec::array(
            "hits",
            (compiled::CELL_BYTES * FEW) as u32,
            1,
        ))?;
        let load = |name, kind, attach_type, image: &Image| -> Result<Program> {
            let fixups = image.maps.iter().map(|used| {
                let fd = match used.map {
                    MapRef::Context => contexts.fd(),
                    MapRef::Counters => counters.fd(),
                    MapRef::Hops => hops.fd(),
                    MapRef::Trusted => words.fd(),
                    MapRef::Wake => wake.fd(),
                    MapRef::Slots => slots.fd(),
                    MapRef::Hits => hits.fd(),
                    other @ (MapRef::Memory | MapRef::Shape(_) | MapRef::Notes) => {
                        bail!("{other:?} is not of a forward path")
                    }
                };
                Ok(MapFixup {
                    insn: used.insn,
                    fd,
                    value_offset: used.value_offset,
                })
            });
            Ok(Program::load(&ProgramSpec {
                name,
                kind,
                attach_type,
                insns: &image.insns,
                maps: &fixups.collect::<Result<Vec<_>>>()?,
                btf: None,
            })?)
        };
        let image = forward::generate(&spec);
        let forward = load("ashway_forward", ProgramKind::Xdp, 0, &image)?;
        slots.set_slot(0, forward.fd())?;
        hops.copy_in(KEY * hop::BYTES, &next(by_tcx).to_bytes())
            .map_err(|error| anyhow!("{error}"))?;

        let filter = demux::parse("udp dst port 9000").map_err(|error| anyhow!("{error}"))?;
        let mut table = Table::default();
        table
            .insert(&filter, ())
            .map_err(|error| anyhow!("{error}"))?;
        let shapes = compiled::compile(&table, FEW, |()| Leaf {
            local: KEY as u32,
            ..Leaf::default()
        });
        let image = entry::generate(&entry::Spec {
            hook: Hook::Xdp,
            shapes: &shapes,
            spares: None,
            cpus,
            per_cpu: false,
            unmatched_row: 1,
            mac: MACS[1],
            reply: Reply::Transmit,
            packet: Packet::Pointers,
        });
        Ok(Self {
            entry: load("ashway_entry", ProgramKind::Xdp, 0, &image)?,
            exit: load("ashway_exit", ProgramKind::SchedCls, 0, &exit::generate())?,
            _forward: forward,
            _maps: ([contexts, counters, slots, hits], [hops, words], wake),
        })
    }
}

fn next(by_tcx: bool) -> Hop {
    let mut hop = Hop {
        destination_mac: MACS[3],
        source_mac: MACS[2],
        ifindex: OUT,
        source_port: 7000_u16.to_be_bytes(),
        destination_port: 9001_u16.to_be_bytes(),
        mtu: 1500,
        flags: if by_tcx { hop::flag::BY_TCX } else { 0 },
        hops: 64,
        ..Hop::default()
    };
    hop.source[..4].copy_from_slice(&[10, 0, 3, 1]);
    hop.destination[..4].copy_from_slice(&[10, 0, 3, 2]);
    hop
}
