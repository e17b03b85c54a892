//! Which rung of the ladder an interface can stand on.
//!
//! Privilege alone never makes a node fail: it steps down and says so.

use ashway_kernel::Iface;
use ashway_kernel::probe::{Feature, Probe, State};

mod choice;

pub use choice::{Choice, Means, beside, choose, choose_beside};

/// Above about this MTU a frame and XDP's headroom no longer fit one page, and
/// drivers refuse native XDP.
pub const ONE_PAGE_MTU_BYTES: u32 = 3500;

/// What the rungs with XDP need of the kernel, the newest of it `may_goto`
/// (Linux 6.9), with which even the entry program loops over a payload.
pub const XDP_NEEDS: [Feature; 5] = [
    Feature::Xdp,
    Feature::MmapableArray,
    Feature::RingBuffer,
    Feature::MayGoto,
    Feature::AfXdp,
];

/// Why XDP cannot be used, in the kernel's words; `None` if it can.
#[must_use]
pub fn no_xdp(probe: &Probe) -> Option<String> {
    XDP_NEEDS
        .into_iter()
        .find_map(|feature| match probe.state(feature) {
            State::Ok => None,
            State::Missing { reason, .. } => Some(format!("{}: {reason}", feature.name())),
        })
}

/// How messages are taken from an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rung {
    /// XDP in the driver.
    Native,
    /// Traffic control's ingress, behind the driver.
    Tcx,
    /// XDP in the host's stack.
    Generic,
    /// Packet sockets.
    Packet,
    /// A TAP device of the node's own.
    Tap,
    /// A capture file.
    Pcap,
    /// A link in memory.
    Memory,
}

impl Rung {
    /// The name used in the CLI and in documents.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Tcx => "tcx",
            Self::Generic => "generic",
            Self::Packet => "packet",
            Self::Tap => "tap",
            Self::Pcap => "pcap",
            Self::Memory => "memory",
        }
    }

    /// What the user tier has its frames from, in words.
    pub(crate) const fn port(self) -> &'static str {
        match self {
            Self::Native | Self::Tcx | Self::Generic => "ring",
            Self::Packet => "packet socket",
            Self::Tap => "TAP device",
            Self::Pcap => "capture",
            Self::Memory => "link in memory",
        }
    }

    /// Whether programs run on it: the others have no kernel tier.
    #[must_use]
    pub const fn has_programs(self) -> bool {
        match self {
            Self::Native | Self::Tcx | Self::Generic => true,
            Self::Packet | Self::Tap | Self::Pcap | Self::Memory => false,
        }
    }

    /// Whether the node has made the interface itself: what Linux says of it, if it knows it, is
    /// said of the host's end.
    #[must_use]
    pub const fn is_own(self) -> bool {
        matches!(self, Self::Tap | Self::Pcap | Self::Memory)
    }
}

/// What taking this interface costs the host's own traffic, said before it
/// happens (docs/facts.md, "What XDP costs the host's TCP on a veth").
#[must_use]
pub fn cost(iface: &Iface, rung: Rung) -> String {
    match rung {
        Rung::Packet => {
            "packet socket: each frame is copied once more; no offload changes".to_owned()
        }
        Rung::Tap => {
            "TAP device of the node's own: a system call for each frame; the host sends and \
             receives by it as by any interface, and what a path passes is dropped"
                .to_owned()
        }
        Rung::Pcap => "capture file: no interface of the host is touched; reading and writing may \
                       wait for the disk"
            .to_owned(),
        Rung::Memory => "link in memory: no interface of the host is touched; two copies for each \
                         frame"
            .to_owned(),
        Rung::Tcx => "TCX ingress: frames pass the program behind the driver; no offload changes \
                      and no MTU"
            .to_owned(),
        Rung::Generic => "generic XDP: frames are linearised and pass the program after the \
                          driver; large receive offloads stop for XDP traffic"
            .to_owned(),
        Rung::Native if iface.is_veth => {
            "native XDP on a veth: the peer's TSO goes off, so the host's own bulk TCP over this \
             link gets slower, typically to a quarter, and comes back on detach; `attach = \
             \"tcx\"` leaves it as it is (`ashway bench hooks` measures both)"
                .to_owned()
        }
        Rung::Native => format!(
            "native XDP{}: the driver may reset the link for a moment, switch LRO off and cap the \
             MTU; it comes back on detach",
            match iface.driver.as_str() {
                "" => String::new(),
                driver => format!(" ({driver})"),
            }
        ),
    }
}
