//! Which rung of the ladder an interface can stand on.
//!
//! Privilege alone never makes a node fail: it steps down and says so.

use ashway_check::bpf::Hook;
use ashway_kernel::Iface;
use ashway_kernel::probe::{Feature, Probe, State};

use ashway_config::Attach;

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
        }
    }

    /// The first rung to try on a node whose programs run there. `bpf` is whether programs can
    /// be loaded at all.
    #[must_use]
    pub fn first(attach: Attach, hook: Hook, bpf: bool) -> Self {
        match attach {
            Attach::Packet => Self::Packet,
            Attach::Generic => Self::Generic,
            Attach::Tcx => Self::Tcx,
            Attach::Auto if !bpf => Self::Packet,
            Attach::Auto if hook == Hook::Tcx => Self::Tcx,
            Attach::Auto | Attach::Xdp => Self::Native,
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
        Rung::Tcx => format!(
            "{name}: TCX ingress: frames pass the program behind the driver; no offload changes"
        ),
        Rung::Generic => format!(
            "{name}: generic XDP: frames are linearised and pass the program after the driver; \
             large receive offloads stop for XDP traffic"
        ),
        Rung::Native if iface.is_veth => format!(
            "{name}: native XDP on a veth: the peer's TSO goes off, so the host's own bulk TCP \
             over this link gets slower, typically to a quarter, and comes back on detach; \
             `attach = \"tcx\"` leaves it as it is (`ashway bench hooks` measures both)"
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
        let first = |attach, bpf| Rung::first(attach, Hook::Xdp, bpf);
        assert_eq!(first(Attach::Auto, false), Rung::Packet);
        assert_eq!(first(Attach::Auto, true), Rung::Native);
        assert_eq!(first(Attach::Xdp, false), Rung::Native);
        assert_eq!(first(Attach::Packet, true), Rung::Packet);
    }

    #[test]
    fn what_asks_for_nothing_follows_the_nodes_hook() {
        let first = |attach| Rung::first(attach, Hook::Tcx, true);
        assert_eq!(first(Attach::Auto), Rung::Tcx);
        assert_eq!(first(Attach::Tcx), Rung::Tcx);
        assert_eq!(first(Attach::Packet), Rung::Packet);
    }
}
