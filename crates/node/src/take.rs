//! Taking an interface for programs: what stands in the way, how replies leave, the links and
//! the sockets. Nothing here knows what the programs are for.

use std::time::{Duration, Instant};

use ashway_check::bpf::{Assembler, Reg};
use ashway_codegen::entry::Reply;
use ashway_config::Attach;
use ashway_kernel::{
    AttachError, Attached, Iface, Mode, Owner, Program, ProgramKind, iface, tcx_owners,
};
use ashway_ring::{BindError, Passer, TxSocket};
use ashway_worker::programs::{self, NodeMaps};
use ashway_worker::queue_plan::IfaceFacts;
use ashway_worker::xdp_port::{Pace, PassBy, XdpPort};

use super::{RunError, say};
use crate::rung::{Rung, cost};

/// Frames of a transmit socket.
const TX_FRAMES: u32 = 1024;

/// An interface that nobody else has, before its entry program is made.
pub(super) struct Ready {
    pub(super) reply: Reply,
    rung: Rung,
    exit_link: Option<Attached>,
    /// Whose programs see frames before ours does.
    before: Vec<Owner>,
}

/// An interface that has its entry program.
pub(super) struct Entered {
    pub(super) link: Attached,
    pub(super) exit_link: Option<Attached>,
    pub(super) reply: Reply,
    /// Another than was tried, where `auto` has stepped down.
    pub(super) rung: Rung,
    pub(super) port: XdpPort,
}

impl Ready {
    /// Looks whether the interface can be had, and attaches the exit program if replies need
    /// one.
    ///
    /// # Errors
    ///
    /// Whose it is, and what the kernel refused.
    pub(super) fn of(maps: &NodeMaps, found: &Iface, rung: Rung) -> Result<Self, RunError> {
        // Refuse before anything is changed, even before the veth probe.
        let before = others(found, rung);
        let stands_in_the_way = |owner: &&Owner| rung != Rung::Tcx || owner.is_ashway();
        if let Some(owner) = before.iter().find(stands_in_the_way) {
            return Err(RunError::Attach {
                iface: found.name.clone(),
                source: AttachError::Taken {
                    ifindex: found.ifindex,
                    owner: Some(owner.clone()),
                    errno: std::io::ErrorKind::ResourceBusy.into(),
                },
            });
        }
        let reply = reply(found, rung);
        let exit_link = (reply == Reply::Exit).then(|| exit_link(maps, found));
        Ok(Self {
            reply,
            rung,
            exit_link: exit_link.transpose()?,
            before,
        })
    }

    /// Attaches the entry program, and opens the way out.
    ///
    /// # Errors
    ///
    /// What the kernel refused.
    pub(super) fn enter(
        self,
        entry: &Program,
        found: &Iface,
        asked: Attach,
    ) -> Result<Entered, RunError> {
        say_before(found, &self.before);
        let tx = transmit_socket(found)?;
        let (link, rung) = attach(entry, found, self.rung, asked)?;
        let pass_by = pass_by(found, rung)?;
        Ok(Entered {
            link,
            exit_link: self.exit_link,
            reply: self.reply,
            rung,
            port: XdpPort { tx, pass_by },
        })
    }
}

/// How replies leave on this rung.
pub(super) fn reply(found: &Iface, rung: Rung) -> Reply {
    if rung == Rung::Tcx {
        Reply::Redirect
    } else if !found.is_veth {
        Reply::Transmit
    } else if iface::veth_peer_takes_xdp_tx(found.ifindex).unwrap_or(false) {
        Reply::Redirect
    } else {
        Reply::Exit
    }
}

/// Says whose programs see frames before ours does.
pub(super) fn say_before(found: &Iface, before: &[Owner]) {
    for owner in before {
        say(&format!(
            "{}: {owner} is before ours: what it drops, sends on or ends with TCX_PASS (0), ours \
             does not see",
            found.name
        ));
    }
}

/// Has replies leave by the exit program.
pub(super) fn exit_link(maps: &NodeMaps, found: &Iface) -> Result<Attached, RunError> {
    let exit = programs::load_exit(maps).map_err(|source| RunError::Load {
        what: "exit",
        iface: found.name.clone(),
        source,
    })?;
    Attached::tcx(&exit, found.ifindex).map_err(|source| RunError::Attach {
        iface: found.name.clone(),
        source,
    })
}

/// Whose programs are where ours is to be, or see frames before it does.
fn others(found: &Iface, rung: Rung) -> Vec<Owner> {
    let xdp = ashway_kernel::owner(found.ifindex).ok().flatten();
    let at_tcx = match rung {
        Rung::Tcx => tcx_owners(found.ifindex),
        _ => Vec::new(),
    };
    xdp.into_iter().chain(at_tcx).collect()
}

/// What a plan needs to know of an interface, which `shares` rings or has its own.
pub(super) fn iface_facts(found: &Iface, shares: bool) -> IfaceFacts {
    IfaceFacts {
        queues: found.rx_queues.max(1) as usize,
        mtu: found.mtu as usize,
        shares,
    }
}

/// Attaches a program where an interface is to be taken; says where that was: `auto` steps down.
///
/// # Errors
///
/// What the kernel refused.
pub(super) fn attach(
    entry: &Program,
    found: &Iface,
    rung: Rung,
    asked: Attach,
) -> Result<(Attached, Rung), RunError> {
    let failed = |source| RunError::Attach {
        iface: found.name.clone(),
        source,
    };
    if rung == Rung::Tcx {
        let link = Attached::tcx(entry, found.ifindex).map_err(failed)?;
        return Ok((link, rung));
    }
    if rung == Rung::Native {
        match Attached::xdp(entry, found.ifindex, Mode::Native) {
            Ok(link) => return Ok((link, Rung::Native)),
            Err(AttachError::Driver { .. }) if asked == Attach::Auto => {
                say(&format!("{}: {}", found.name, cost(found, Rung::Generic)));
            }
            Err(error) => return Err(failed(error)),
        }
    }
    Attached::xdp(entry, found.ifindex, Mode::Generic)
        .map(|link| (link, Rung::Generic))
        .map_err(failed)
}

/// How long to wait for a queue that a node before this one had.
const QUEUE_PATIENCE: Duration = Duration::from_secs(3);

/// Binds the transmit socket. The kernel frees the queue of a socket that was
/// closed by a work item, `xp_release_deferred`, which waits for the RTNL lock;
/// so a queue that is taken is asked for again for [`QUEUE_PATIENCE`].
fn transmit_socket(found: &Iface) -> Result<TxSocket, RunError> {
    let begin = Instant::now();
    loop {
        match TxSocket::bind(found.ifindex, 0, TX_FRAMES) {
            Err(BindError::QueueTaken { .. }) if begin.elapsed() < QUEUE_PATIENCE => {
                std::thread::sleep(Duration::from_millis(5));
            }
            bound => {
                return bound.map_err(|source| RunError::Transmit {
                    iface: found.name.clone(),
                    source,
                });
            }
        }
    }
}

/// Says so if messages cannot be passed on by `lo`.
pub(super) fn say_of_lo() {
    if Iface::by_name("lo").is_ok_and(|lo| !lo.up) {
        say("lo is down: what the user tier passes to the host is lost; `ip link set lo up`");
    }
}

/// Whether the driver would refuse programs that take frames in one buffer only.
pub(super) fn needs_frags(found: &Iface, rung: Rung) -> bool {
    rung == Rung::Native && found.mtu as usize > ONE_BUFFER_MTU
}

/// The largest MTU with which a frame fits one buffer: a page without the headroom of 256 bytes,
/// an Ethernet header, and 320 bytes that the kernel has behind it (`veth_xdp_set` of Linux
/// 6.18; other drivers are like it). Below it programs are of the other kind, as then a veth's
/// peer cuts what it sends by itself.
const ONE_BUFFER_MTU: usize = 4096 - 256 - 14 - 320;

/// How the user tier gives messages back on this rung.
pub(super) fn pass_by(found: &Iface, rung: Rung) -> Result<PassBy, RunError> {
    if rung != Rung::Native {
        return Passer::open(found.ifindex)
            .map(PassBy::Socket)
            .map_err(|source| RunError::System {
                doing: "open a raw socket (CAP_NET_RAW) to pass messages on",
                source,
            });
    }
    let mut asm = Assembler::new();
    asm.mov_imm(Reg::R0, 2);
    asm.exit();
    let image = asm.finish();
    let program = Program::load(&ashway_kernel::ProgramSpec {
        name: "ashway_pass",
        kind: ProgramKind::Xdp,
        attach_type: 0,
        insns: &image.insns,
        maps: &[],
        btf: None,
    })
    .map_err(|source| RunError::Load {
        what: "pass",
        iface: found.name.clone(),
        source,
    })?;
    Ok(PassBy::Frame {
        program,
        ifindex: found.ifindex,
        pace: Pace::default(),
        passer: Passer::open(found.ifindex).ok(),
    })
}

/// Frames the driver lost after it had taken them, as far as it says.
pub(super) fn tx_errors(name: &str, rung: Rung) -> u64 {
    if matches!(rung, Rung::Pcap | Rung::Memory) {
        // The host may have an interface of the same name.
        return 0;
    }
    iface::stats(name).map_or(0, |stats| match rung {
        // What the node sends the host receives.
        Rung::Tap => stats.rx_dropped,
        _ => stats.xdp_sum("_xdp_tx_errors").unwrap_or(0) + stats.tx_dropped,
    })
}
