//! Facts about an interface: what can be attached, and what that costs.

use std::io;
use std::time::{Duration, Instant};

use crate::ethtool::Ethtool;
use crate::load::{LoadError, Program, ProgramKind, ProgramSpec};
use crate::netdev::{self, XdpFeatures};
use crate::netlink::{self, Link};

/// An interface of the calling thread's network namespace, as it was when
/// asked.
#[derive(Clone, Debug)]
pub struct Iface {
    /// Its name.
    pub name: String,
    /// Its number.
    pub ifindex: u32,
    /// Its Ethernet address; zeros if it has none.
    pub mac: [u8; 6],
    /// Largest payload of a frame, in bytes.
    pub mtu: u32,
    /// Its driver, or what kind of virtual link it is; empty if unknown.
    pub driver: String,
    /// What kind of virtual link it is; empty for hardware.
    pub kind: String,
    /// What its driver says it does with XDP (Linux 6.3); `None` if it cannot be asked.
    pub xdp_features: Option<XdpFeatures>,
    /// Receive queues in use.
    pub rx_queues: u32,
    /// Transmit queues in use.
    pub tx_queues: u32,
    /// Whether it is one end of a veth pair.
    pub is_veth: bool,
    /// Whether it is up.
    pub up: bool,
    /// What its driver does for the host's stack now.
    pub offloads: Offloads,
}

/// Offloads that attaching XDP may end. On veth the *peer's* segmentation goes
/// off; on hardware, receive offload may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offloads {
    /// TCP segmentation offload.
    pub tso: bool,
    /// Generic receive offload.
    pub gro: bool,
    /// Large receive offload, in hardware.
    pub lro: bool,
}

impl Iface {
    /// The interface with this name.
    ///
    /// # Errors
    ///
    /// What netlink returned; `ENODEV` if there is none.
    pub fn by_name(name: &str) -> io::Result<Self> {
        Self::of(netlink::link_by_name(name)?)
    }

    /// The interface with this number.
    ///
    /// # Errors
    ///
    /// What netlink returned; `ENODEV` if there is none.
    pub fn by_index(ifindex: u32) -> io::Result<Self> {
        Self::of(netlink::link(ifindex)?)
    }

    fn of(link: Link) -> io::Result<Self> {
        let ethtool = Ethtool::new(&link.name)?;
        // Drivers need not answer either question.
        let driver = ethtool.driver();
        let driver = driver.map_or_else(|_| link.kind.clone(), |driver| driver.name);
        let (rx_queues, tx_queues) = ethtool.queues().unwrap_or((link.rx_queues, link.tx_queues));
        Ok(Self {
            is_veth: driver == "veth",
            driver,
            kind: link.kind,
            xdp_features: netdev::xdp_features(link.ifindex),
            rx_queues,
            tx_queues,
            up: link.flags & libc::IFF_UP as u32 != 0,
            offloads: Offloads {
                tso: ethtool.tso(),
                gro: ethtool.gro(),
                lro: ethtool.lro(),
            },
            name: link.name,
            ifindex: link.ifindex,
            mac: link.mac,
            mtu: link.mtu,
        })
    }
}

/// What somebody may change of an interface while it is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Now {
    /// Its name.
    pub name: String,
    /// Whether it is up: whether somebody has set it so.
    pub up: bool,
    /// Its Ethernet address; zeros if it has none.
    pub mac: [u8; 6],
    /// Its MTU, in bytes.
    pub mtu: u32,
    /// Receive queues in use.
    pub rx_queues: u32,
}

/// How an interface is now. Two questions to the kernel, some ten microseconds.
///
/// # Errors
///
/// What netlink returned; `ENODEV` if there is none of this number.
pub fn now(ifindex: u32) -> io::Result<Now> {
    let link = netlink::link(ifindex)?;
    let queues = Ethtool::new(&link.name).and_then(|ethtool| ethtool.queues());
    Ok(Now {
        up: link.flags & libc::IFF_UP as u32 != 0,
        mac: link.mac,
        mtu: link.mtu,
        rx_queues: queues.map_or(link.rx_queues, |(rx, _)| rx),
        name: link.name,
    })
}

/// An interface that there is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// The kernel's number of it.
    pub ifindex: u32,
    /// Whether its frames begin with an Ethernet header, and it is no loopback interface.
    pub is_ethernet: bool,
}

/// All interfaces that there are. Some microseconds for each.
///
/// # Errors
///
/// What netlink returned.
pub fn list() -> io::Result<Vec<Listed>> {
    let links = netlink::links()?.into_iter();
    let listed = links.map(|link| Listed {
        is_ethernet: link.hardware == libc::ARPHRD_ETHER
            && link.flags & libc::IFF_LOOPBACK as u32 == 0,
        name: link.name,
        ifindex: link.ifindex,
    });
    Ok(listed.collect())
}

/// The number of the interface of this name.
///
/// # Errors
///
/// What netlink returned; `ENODEV` if there is none.
pub fn index(name: &str) -> io::Result<u32> {
    Ok(netlink::link_by_name(name)?.ifindex)
}

/// Counters of an interface since it was made.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// Packets received.
    pub rx_packets: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Bad packets received.
    pub rx_errors: u64,
    /// Packets that could not be sent.
    pub tx_errors: u64,
    /// Packets dropped on arrival.
    pub rx_dropped: u64,
    /// Packets dropped before they were sent.
    pub tx_dropped: u64,
    /// The driver's own counters that have `xdp` in their name, e.g. veth's
    /// `rx_queue_0_xdp_tx_errors`: what was lost after hand-over.
    pub xdp: Vec<(String, u64)>,
}

impl Stats {
    /// Sum of the driver's XDP counters with this ending, over all queues;
    /// `None` if it has none.
    #[must_use]
    pub fn xdp_sum(&self, ending: &str) -> Option<u64> {
        let mut matching = self
            .xdp
            .iter()
            .filter(|(name, _)| name.ends_with(ending))
            .map(|(_, value)| *value)
            .peekable();
        matching.peek()?;
        Some(matching.sum())
    }
}

/// The interface's counters.
///
/// # Errors
///
/// What netlink returned; `ENODEV` if there is no such interface.
pub fn stats(name: &str) -> io::Result<Stats> {
    let link = netlink::link_by_name(name)?;
    let [
        rx_packets,
        tx_packets,
        rx_bytes,
        tx_bytes,
        rx_errors,
        tx_errors,
        rx_dropped,
        tx_dropped,
    ] = link.stats;
    // Many drivers have no counters of their own.
    let mut xdp = Ethtool::new(name)?.counters().unwrap_or_default();
    xdp.retain(|(name, _)| name.contains("xdp"));
    Ok(Stats {
        rx_packets,
        tx_packets,
        rx_bytes,
        tx_bytes,
        rx_errors,
        tx_errors,
        rx_dropped,
        tx_dropped,
        xdp,
    })
}

/// Whether frames that XDP sends on this veth arrive on the other side.
///
/// `XDP_TX` and redirect reach a veth's peer only if that has NAPI running:
/// with an XDP program of its own, or with GRO on. Else every frame vanishes,
/// and no error tells. So this sends one and looks at the counters: 60 bytes
/// from the interface to itself, of an `EtherType` for local experiments, which
/// the peer's host ignores. Takes at most 20 ms. Other interfaces can be asked
/// too; they are judged by their packet counter, which other traffic moves.
///
/// # Errors
///
/// What netlink or `bpf(2)` returned.
pub fn veth_peer_takes_xdp_tx(ifindex: u32) -> io::Result<bool> {
    const PATIENCE: Duration = Duration::from_millis(20);
    let iface = Iface::by_index(ifindex)?;
    let program = Program::load(&ProgramSpec {
        name: "ashway_tx_probe",
        kind: ProgramKind::Xdp,
        attach_type: 0,
        insns: &redirect_to(ifindex),
        maps: &[],
        btf: None,
    })
    .map_err(|error| match error {
        LoadError::Denied { errno, .. } | LoadError::Exhausted { errno, .. } => errno,
        other => io::Error::other(other),
    })?;
    let mut frame = [0; 60];
    frame[0..6].copy_from_slice(&iface.mac);
    frame[6..12].copy_from_slice(&iface.mac);
    // IEEE 802 Local Experimental `EtherType` 1.
    frame[12..14].copy_from_slice(&0x88b5u16.to_be_bytes());

    let before = sent(&iface.name)?;
    program.run_live(&frame, 1, 0)?;
    let start = Instant::now();
    loop {
        if sent(&iface.name)? > before {
            return Ok(true);
        }
        if start.elapsed() > PATIENCE {
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Frames that the driver took from XDP; from anybody, if it does not say.
fn sent(name: &str) -> io::Result<u64> {
    let stats = stats(name)?;
    Ok(stats.xdp_sum("_xdp_xmit").unwrap_or(stats.tx_packets))
}

/// `return bpf_redirect(ifindex, 0)`. A live run of `XDP_TX` would need XDP
/// attached to the interface already.
fn redirect_to(ifindex: u32) -> [u64; 4] {
    use crate::insn::{call, exit, mov};
    const BPF_FUNC_REDIRECT: i32 = 23;
    [
        mov(1, ifindex as i32),
        mov(2, 0),
        call(BPF_FUNC_REDIRECT),
        exit(),
    ]
}
