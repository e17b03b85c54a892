//! Which rung of the ladder an interface can stand on.
//!
//! Privilege alone never makes a node fail: it steps down and says so.

use ashway_kernel::Iface;
use ashway_kernel::probe::{Feature, Probe, State};

use ashway_config::XdpMode;

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
    /// XDP in the host's stack.
    Generic,
    /// Packet sockets.
    Packet,
}

impl Rung {
    /// The name used in the CLI and in documents.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Generic => "generic",
            Self::Packet => "packet",
        }
    }

    /// The first rung to try. `bpf` is whether programs can be loaded at all.
    #[must_use]
    pub fn first(mode: XdpMode, bpf: bool) -> Self {
        match mode {
            XdpMode::Packet => Self::Packet,
            XdpMode::Generic => Self::Generic,
            XdpMode::Auto if !bpf => Self::Packet,
            XdpMode::Auto | XdpMode::Native => Self::Native,
        }
    }
}

/// What taking this interface costs the host's own traffic, said before it
/// happens (docs/facts.md, "What XDP costs the host's TCP on a veth").
#[must_use]
pub fn cost_notice(iface: &Iface, rung: Rung) -> String {
    let name = &iface.name;
    match rung {
        Rung::Packet => {
            format!("{name}: packet socket: each frame is copied once more; no offload changes")
        }
        Rung::Generic => format!(
            "{name}: generic XDP: frames are linearised and pass the program after the driver; \
             large receive offloads stop for XDP traffic"
        ),
        Rung::Native if iface.is_veth => format!(
            "{name}: native XDP on a veth: the peer's TSO goes off, so the host's own bulk TCP \
             over this link gets slower, typically to a quarter (see `ashway bench counter`); \
             it comes back on detach"
        ),
        Rung::Native => format!(
            "{name}: native XDP{}: the driver may reset the link for a moment, switch LRO off \
             and cap the MTU; it comes back on detach",
            match iface.driver.as_str() {
                "" => String::new(),
                driver => format!(" ({driver})"),
            }
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_bpf_only_an_explicit_wish_for_xdp_stays_with_xdp() {
        assert_eq!(Rung::first(XdpMode::Auto, false), Rung::Packet);
        assert_eq!(Rung::first(XdpMode::Auto, true), Rung::Native);
        assert_eq!(Rung::first(XdpMode::Native, false), Rung::Native);
        assert_eq!(Rung::first(XdpMode::Packet, true), Rung::Packet);
    }
}
