//! The lines of the report: each says how one thing is, what follows if it is
//! not as it should be, and what helps.

use std::path::Path as FsPath;

use ashway_kernel::iface::Offloads;
use ashway_kernel::probe::{Capability, State};
use ashway_kernel::{Feature, Iface, Owner, Probe};
use serde_json::{Value, json};

use super::rungs::{AS_ROOT, capabilities_for, without};
use super::{IfaceFacts, Seen};
use ashway_config::Attach;
use ashway_node::rung::{Choice, Means, ONE_PAGE_MTU_BYTES, Rung, choose, cost};

/// Each way to take an interface: the word of the configuration, and the rung.
pub(super) const WAYS: [(&str, Rung); 4] = [
    ("tcx", Rung::Tcx),
    ("xdp", Rung::Native),
    ("generic", Rung::Generic),
    ("packet", Rung::Packet),
];

/// What `attach = "auto"` would choose on this interface, were it a node's only one.
pub(super) fn auto(means: &Means, iface: &Iface) -> Choice {
    let mut choices = choose(means, &[(Attach::Auto, iface)]);
    choices.remove(0)
}

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// As it should be.
    Ok,
    /// There is a way around; the line says what follows.
    Degraded,
    /// There is none; the line says what helps.
    Missing,
}

impl Mark {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Degraded => "degraded",
            Self::Missing => "missing",
        }
    }
}

/// One line.
#[derive(Clone, Debug)]
pub(super) struct Check {
    pub(super) name: String,
    pub(super) mark: Mark,
    pub(super) detail: String,
}

impl Check {
    fn new(name: &str, mark: Mark, detail: impl Into<String>) -> Self {
        Self {
            name: name.to_owned(),
            mark,
            detail: detail.into(),
        }
    }

    pub(super) fn json(&self) -> Value {
        json!({ "name": self.name, "state": self.mark.word(), "detail": self.detail })
    }
}

pub(super) fn feature(probe: &Probe, feature: Feature, state: &State) -> Check {
    let since = feature.since();
    let State::Missing { reason, privilege } = state else {
        return Check::new(feature.name(), Mark::Ok, format!("Linux {since}"));
    };
    let (mark, follows) = without(feature);
    let helps = match feature {
        _ if *privilege => how_to_be_allowed(probe, feature),
        Feature::Jit => "`sysctl net.core.bpf_jit_enable=1`".to_owned(),
        _ => format!("Linux {since} or newer, configured for it"),
    };
    let detail = if *privilege {
        format!("{follows}; helps: {helps}")
    } else {
        format!("{follows}: {reason}; helps: {helps}")
    };
    Check::new(feature.name(), mark, detail)
}

fn how_to_be_allowed(probe: &Probe, feature: Feature) -> String {
    let wanted = capabilities_for(feature);
    let lacking: Vec<_> = wanted
        .iter()
        .copied()
        .filter(|name| !held(probe, name))
        .collect();
    if lacking.is_empty() {
        // `unshare -Urn` hands out capabilities that BPF does not accept.
        format!("{AS_ROOT} outside a user namespace: capabilities in one do not count here")
    } else {
        format!("{AS_ROOT}, or with {}", lacking.join(" and "))
    }
}

fn held(probe: &Probe, name: &str) -> bool {
    probe
        .capabilities
        .iter()
        .any(|capability| capability.name == name && capability.held)
}

pub(super) fn nft(path: Option<&FsPath>) -> Check {
    match path {
        Some(path) => Check::new("nft", Mark::Ok, path.display().to_string()),
        None => Check::new(
            "nft",
            Mark::Degraded,
            "with packet sockets the host's stack also sees what a path consumes; helps: \
             `apt-get install nftables`",
        ),
    }
}

/// Interfaces that a node makes itself.
pub(super) fn own(probe: &Probe, tun: &Result<(), String>) -> Vec<Check> {
    let tap = match tun {
        Err(why) => Check::new(
            "tap",
            Mark::Degraded,
            format!(
                "no TAP device: /dev/net/tun: {why}; helps: `modprobe tun`, or write access to it"
            ),
        ),
        Ok(()) if !held(probe, "CAP_NET_ADMIN") => Check::new(
            "tap",
            Mark::Degraded,
            "only a TAP device that was made for this user (`ip tuntap add NAME mode tap user \
             USER`); helps: CAP_NET_ADMIN, which `unshare -Urn` gives in a namespace",
        ),
        Ok(()) => Check::new("tap", Mark::Ok, "TAP devices can be made"),
    };
    let none = "no privilege is needed";
    let [pcap, memory] = ["pcap", "memory"].map(|name| Check::new(name, Mark::Ok, none));
    vec![tap, pcap, memory]
}

pub(super) fn iface(probe: &Probe, means: &Means, seen: &Seen) -> Vec<Check> {
    let found = match &seen.found {
        Ok(found) => found,
        Err(why) => {
            let detail = format!("{why}; `ip link` lists the interfaces of this namespace");
            return vec![Check::new("link", Mark::Missing, detail)];
        }
    };
    let IfaceFacts {
        iface, xdp, tcx, ..
    } = found;
    let name = &iface.name;
    let choice = auto(means, iface);
    let mut checks = vec![
        if iface.up {
            Check::new("link", Mark::Ok, "up")
        } else {
            let detail = format!("down, so nothing arrives; helps: `ip link set {name} up`");
            Check::new("link", Mark::Degraded, detail)
        },
        attach(&choice),
        mtu(iface, choice.rung),
        Check::new(
            "queues",
            Mark::Ok,
            format!("{} receive, {} transmit", iface.rx_queues, iface.tx_queues),
        ),
        offloads(iface),
        xdp_hook(name, choice.rung, xdp),
        tcx_hook(probe, name, tcx),
    ];
    if iface.is_veth {
        checks.push(replies(probe, choice.rung, found));
    }
    let ways = WAYS.into_iter();
    checks.extend(
        ways.map(|(word, rung)| Check::new(&format!("cost: {word}"), Mark::Ok, cost(iface, rung))),
    );
    checks
}

fn attach(choice: &Choice) -> Check {
    let because = choice.because.as_deref().unwrap_or_default();
    let mark = match choice.rung {
        Rung::Packet => Mark::Degraded,
        _ => Mark::Ok,
    };
    let detail = format!("auto is {}: {because}", choice.rung.name());
    Check::new("attach", mark, detail)
}

fn mtu(iface: &Iface, rung: Rung) -> Check {
    let Iface { name, mtu, .. } = iface;
    if *mtu <= ONE_PAGE_MTU_BYTES {
        return Check::new("MTU", Mark::Ok, format!("{mtu} bytes"));
    }
    let refuse =
        format!("{mtu} bytes: most drivers refuse native XDP above about {ONE_PAGE_MTU_BYTES}");
    if rung != Rung::Native {
        return Check::new("MTU", Mark::Ok, refuse);
    }
    let detail = format!("{refuse}; helps: `ip link set {name} mtu 1500`");
    Check::new("MTU", Mark::Degraded, detail)
}

/// An XDP program of others: at TCX there is room behind it.
fn xdp_hook(name: &str, rung: Rung, xdp: &Result<Option<Owner>, String>) -> Check {
    let (mark, detail) = match xdp {
        Ok(None) => (Mark::Ok, "free".to_owned()),
        Ok(Some(owner)) if owner.is_ashway() => (
            Mark::Degraded,
            format!(
                "held by Ashway ({owner}); helps: stop that node, or `ashway iface detach {name}`"
            ),
        ),
        Ok(Some(owner)) if rung == Rung::Tcx => (
            Mark::Degraded,
            format!("held by {owner}, which is before TCX: what it drops or sends on is not seen"),
        ),
        Ok(Some(owner)) => (
            Mark::Missing,
            format!("held by {owner}; helps: stop the program that attached it"),
        ),
        Err(why) => (Mark::Degraded, format!("unknown: {why}")),
    };
    Check::new("XDP hook", mark, detail)
}

/// Programs of others at TCX, which run before ours.
fn tcx_hook(probe: &Probe, name: &str, tcx: &[Owner]) -> Check {
    let (mark, detail) = if !probe.has(Feature::Tcx) {
        (
            Mark::Degraded,
            "unknown: this user, or this kernel, cannot attach at TCX".to_owned(),
        )
    } else if tcx.is_empty() {
        (Mark::Ok, "free".to_owned())
    } else if let Some(ours) = tcx.iter().find(|owner| owner.is_ashway()) {
        (
            Mark::Degraded,
            format!(
                "held by Ashway ({ours}); helps: stop that node, or `ashway iface detach {name}`"
            ),
        )
    } else {
        let owners: Vec<_> = tcx.iter().map(Owner::to_string).collect();
        (
            Mark::Degraded,
            format!(
                "{}: before ours; what one drops, sends on or ends with TCX_PASS (0) is not seen",
                owners.join("; ")
            ),
        )
    };
    Check::new("TCX hook", mark, detail)
}

/// How what is answered under XDP leaves a veth.
fn replies(probe: &Probe, rung: Rung, found: &IfaceFacts) -> Check {
    let name = "replies";
    if matches!(rung, Rung::Tcx | Rung::Packet) {
        let asks_nothing = format!(
            "by redirect or socket at {}: the veth's peer need not take XDP_TX",
            rung.name()
        );
        return Check::new(name, Mark::Ok, asks_nothing);
    }
    match &found.takes_xdp_tx {
        Some(Ok(true)) => Check::new(
            name,
            Mark::Ok,
            "the veth's peer takes XDP_TX (one probe frame was sent)",
        ),
        Some(Ok(false)) if probe.has(Feature::Tcx) => Check::new(
            name,
            Mark::Degraded,
            "the veth's peer does not take XDP_TX (one probe frame was sent): replies leave \
             by a TCX program; helps: `ethtool -K PEER gro on`",
        ),
        Some(Ok(false)) => Check::new(
            name,
            Mark::Missing,
            "the veth's peer does not take XDP_TX (one probe frame was sent) and there is no \
             TCX; helps: `ethtool -K PEER gro on`",
        ),
        Some(Err(why)) => Check::new(
            name,
            Mark::Degraded,
            format!("whether the veth's peer takes XDP_TX is unknown: {why}"),
        ),
        None => {
            let why = if !found.iface.up {
                "the link is down"
            } else if probe.has(Feature::Xdp) {
                "another XDP program is attached"
            } else {
                "this user may load no XDP programs"
            };
            let detail = format!("whether the veth's peer takes XDP_TX was not tried: {why}");
            Check::new(name, Mark::Degraded, detail)
        }
    }
}

pub(super) fn capability(probe: &Probe, capability: &Capability) -> Check {
    let Capability {
        name,
        needed_for,
        held,
    } = capability;
    // bpf_capable() and perfmon_capable() in the kernel are content with
    // CAP_SYS_ADMIN.
    let stands_in = match *name {
        "CAP_BPF" => probe.has(Feature::MmapableArray),
        "CAP_PERFMON" => probe.has(Feature::ArenaProgram),
        _ => false,
    };
    let (mark, word) = match *name {
        _ if *held => (Mark::Ok, "held"),
        _ if stands_in => (Mark::Ok, "not held, CAP_SYS_ADMIN stands in"),
        // For these there is a way around: array mode, and an unnamed owner.
        "CAP_PERFMON" | "CAP_SYS_ADMIN" => (Mark::Degraded, "not held"),
        _ => (Mark::Missing, "not held"),
    };
    Check::new(name, mark, format!("{word}: {needed_for}"))
}

/// What the driver does for the host's own traffic now, and with XDP.
fn offloads(iface: &Iface) -> Check {
    let features: Option<Vec<_>> = iface.xdp_features.map(|xdp| xdp.names().collect());
    let features = match features.as_deref() {
        None => "not told by this kernel".to_owned(),
        Some([]) => "nothing".to_owned(),
        Some(names) => names.join(" "),
    };
    let now = words(iface.offloads);
    let detail = format!("{now}; of XDP the driver does: {features}");
    Check::new("offloads", Mark::Ok, detail)
}

pub(super) fn words(offloads: Offloads) -> String {
    let word = |on| if on { "on" } else { "off" };
    let Offloads { tso, gro, lro } = offloads;
    format!("TSO {}, GRO {}, LRO {}", word(tso), word(gro), word(lro))
}
