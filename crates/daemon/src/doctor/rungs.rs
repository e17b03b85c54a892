//! Which rung of the ladder a process can stand on, and what each feature is
//! worth.

use ashway_kernel::probe::State;
use ashway_kernel::{Feature, Probe};
use ashway_node::rung::{Means, XDP_NEEDS};

use super::checks::Mark;

/// How to get every privilege at once.
pub(super) const AS_ROOT: &str = "run as root";

/// The rungs of the ladder this machine's process can stand on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Arena,
    Array,
    Packet,
    Nothing,
}

impl Standing {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Arena => "native_arena",
            Self::Array => "native_array",
            Self::Packet => "packet",
            Self::Nothing => "none",
        }
    }

    pub(super) fn words(self, hooks: &[&str]) -> &'static str {
        match self {
            Self::Arena if hooks.contains(&"tcx") => "TCX or XDP + arena (both tiers)",
            Self::Arena => "XDP + arena (both tiers)",
            Self::Array => "XDP + array (both tiers)",
            Self::Packet => "packet socket (user tier only)",
            Self::Nothing => "none",
        }
    }
}

/// The hooks where programs can run.
pub(super) fn hooks(means: &Means) -> &'static [&'static str] {
    match (&means.no_programs, &means.no_tcx) {
        (Some(_), _) => &[],
        (None, Some(_)) => &["xdp"],
        (None, None) => &["xdp", "tcx"],
    }
}

/// The highest rung, why not a higher one, and how to get there.
pub(super) fn judge(probe: &Probe) -> (Standing, String, Option<String>) {
    let (standing, wanted): (_, &[Feature]) = if !XDP_NEEDS.iter().all(|f| probe.has(*f)) {
        if probe.has(Feature::AfPacket) {
            (Standing::Packet, &XDP_NEEDS)
        } else {
            (Standing::Nothing, &[Feature::AfPacket])
        }
    } else if probe.has(Feature::ArenaProgram) && probe.has(Feature::Tcx) {
        let because = "nothing is missing, this is the highest".to_owned();
        return (Standing::Arena, because, None);
    } else if probe.has(Feature::ArenaProgram) {
        (Standing::Arena, &[Feature::Tcx])
    } else {
        (Standing::Array, &[Feature::ArenaProgram])
    };
    let (feature, reason, privilege) = wanted
        .iter()
        .find_map(|feature| match probe.state(*feature) {
            State::Ok => None,
            State::Missing { reason, privilege } => Some((*feature, reason, *privilege)),
        })
        .expect("a higher rung was not reached, so something is missing");
    let lacking: Vec<_> = capabilities_for(feature)
        .iter()
        .copied()
        .filter(|name| {
            probe
                .capabilities
                .iter()
                .any(|c| c.name == *name && !c.held)
        })
        .collect();
    let in_user_namespace = privilege && lacking.is_empty();
    let because = if in_user_namespace {
        format!(
            "no {} ({reason}): capabilities of a user namespace do not count for it",
            feature.name()
        )
    } else if privilege {
        format!("no {}", lacking.join(", no "))
    } else {
        format!("no {} ({reason})", feature.name())
    };
    let climb = if in_user_namespace {
        format!("{AS_ROOT} outside the user namespace")
    } else if !privilege {
        format!("Linux {} or newer", feature.since())
    } else if standing == Standing::Nothing {
        format!("`unshare -Urn` gives it in a namespace of one's own; or {AS_ROOT}")
    } else {
        format!("{AS_ROOT}, or give the process {}", lacking.join(" and "))
    };
    (standing, because, Some(climb))
}

/// How bad it is to lack a feature, and what follows.
pub(super) const fn without(feature: Feature) -> (Mark, &'static str) {
    match feature {
        Feature::Jit => (Mark::Degraded, "programs are interpreted, some 10x slower"),
        Feature::Btf => (Mark::Degraded, "no kernel types; nothing needs them today"),
        Feature::MmapableArray => (Mark::Missing, "no rings to the user tier under XDP"),
        Feature::RingBuffer => (Mark::Missing, "a sleeping worker cannot be woken under XDP"),
        Feature::CpuV4 => (Mark::Degraded, "handlers stay in the user tier"),
        Feature::Arena | Feature::ArenaProgram => (
            Mark::Degraded,
            "arrays stand in for arenas (array mode), and nothing runs at TCX",
        ),
        Feature::Xdp | Feature::MayGoto => (Mark::Missing, "packet sockets in place of XDP"),
        Feature::Tcx => (
            Mark::Degraded,
            "XDP where it costs the host its offloads, and no replies from the kernel tier to a \
             veth peer that does not take XDP_TX",
        ),
        Feature::AfXdp => (
            Mark::Missing,
            "replies of the user tier cannot leave under XDP",
        ),
        Feature::AfPacket => (Mark::Missing, "no rung without a kernel tier"),
    }
}

/// What a process needs for a feature that the kernel has.
pub(super) const fn capabilities_for(feature: Feature) -> &'static [&'static str] {
    match feature {
        Feature::Jit | Feature::Btf => &[],
        Feature::MmapableArray | Feature::RingBuffer | Feature::Arena => &["CAP_BPF"],
        Feature::Xdp | Feature::CpuV4 | Feature::MayGoto => &["CAP_BPF", "CAP_NET_ADMIN"],
        Feature::ArenaProgram => &["CAP_BPF", "CAP_NET_ADMIN", "CAP_PERFMON"],
        Feature::Tcx => &["CAP_NET_ADMIN"],
        Feature::AfXdp | Feature::AfPacket => &["CAP_NET_RAW"],
    }
}
