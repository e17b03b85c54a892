//! What `attach = "auto"` means on an interface, decided from facts before anything is tried.
//!
//! XDP in the driver is the fastest where a card's driver does it and the host keeps what the
//! driver does for it. Elsewhere TCX takes the same messages and leaves the interface, and
//! the host's own traffic, as they are (docs/facts.md; `ashway bench hooks`). All programs of
//! a node run at one hook, so that one interface can decide for the others.

use ashway_check::bpf::Hook;
use ashway_config::{Attach, Config, MemoryMode};
use ashway_kernel::Iface;
use ashway_kernel::probe::{Feature, Probe, State};

use super::{ONE_PAGE_MTU_BYTES, Rung, no_xdp};
use crate::bug::{self, Bug};

/// What a node can do, its interfaces apart.
#[derive(Clone, Debug, Default)]
pub struct Means {
    /// Why it can load no programs at all.
    pub no_programs: Option<String>,
    /// Why none of its programs should run at TCX unless that is asked for.
    pub no_tcx: Option<String>,
}

impl Means {
    /// What any node of this process can do.
    #[must_use]
    pub fn of(probe: &Probe) -> Self {
        // Programs at TCX work in arenas (docs/design/0012-hooks.md).
        let needs = [Feature::Tcx, Feature::ArenaProgram];
        let missing = needs.into_iter().find_map(|it| match probe.state(it) {
            State::Ok => None,
            State::Missing { reason, .. } => Some(format!("{}: {reason}", it.name())),
        });
        Self {
            no_programs: no_xdp(probe),
            no_tcx: missing.map(|missing| format!("TCX cannot be used ({missing})")),
        }
    }

    /// What a node with this configuration can do.
    #[must_use]
    pub fn of_node(self, config: &Config) -> Self {
        let mut means = self;
        let mut handlers = config.handlers.iter();
        let array = handlers.find(|handler| handler.memory == MemoryMode::Array);
        means.no_tcx = means.no_tcx.or_else(|| {
            let name = &array?.name;
            Some(format!(
                "`{name}` has `memory = \"array\"`, and programs at TCX work in arenas only"
            ))
        });
        means
    }
}

/// The rung of an interface, and why it is that one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The first to try.
    pub rung: Rung,
    /// Why; `None` where it was asked for.
    pub because: Option<String>,
}

/// What each interface of a node is to be taken by: the key of its section, and how it is
/// now.
#[must_use]
pub fn choose(means: &Means, ifaces: &[(Attach, &Iface)]) -> Vec<Choice> {
    choose_beside(means, ifaces, &[]).1
}

/// The same, and the hook of the node's programs, where patterns that nothing matches yet may
/// take interfaces later: the key of each section, and the pattern.
#[must_use]
pub fn choose_beside(
    means: &Means,
    ifaces: &[(Attach, &Iface)],
    patterns: &[(Attach, &str)],
) -> (Hook, Vec<Choice>) {
    let (hook, node) = hook(means, ifaces, patterns);
    let of = |(attach, iface): &(Attach, &Iface)| {
        let rung = match attach {
            Attach::Packet => Rung::Packet,
            Attach::Tap => Rung::Tap,
            Attach::Pcap => Rung::Pcap,
            Attach::Memory => Rung::Memory,
            Attach::Generic => Rung::Generic,
            Attach::Xdp => Rung::Native,
            Attach::Tcx => Rung::Tcx,
            Attach::Auto => return auto(means, iface, hook, &node),
        };
        Choice {
            rung,
            because: None,
        }
    };
    (hook, ifaces.iter().map(of).collect())
}

/// What an interface is to be taken by that comes to a running node, whose programs run at
/// this hook; at none if it was started without.
///
/// # Errors
///
/// Why it cannot be had as it was asked for.
pub fn beside(hook: Option<Hook>, attach: Attach, iface: &Iface) -> Result<Choice, String> {
    let running = match hook {
        Some(Hook::Tcx) => "the programs of this node run at TCX",
        Some(Hook::Xdp) => "the programs of this node run at XDP",
        None => "this node was started without programs",
    };
    let rung = match (attach, hook) {
        (Attach::Packet, _) | (Attach::Auto, None) => Rung::Packet,
        (Attach::Auto | Attach::Tcx, Some(Hook::Tcx)) => Rung::Tcx,
        (Attach::Auto | Attach::Xdp, Some(Hook::Xdp)) => Rung::Native,
        (Attach::Generic, Some(Hook::Xdp)) => Rung::Generic,
        _ => {
            let word = attach.word();
            return Err(format!("{running}, and it has `attach = {word:?}`"));
        }
    };
    let by_itself = best(iface);
    let because = (attach == Attach::Auto).then(|| match (hook, by_itself) {
        (Some(hook), (own, because)) if own == hook => because,
        _ => running.to_owned(),
    });
    Ok(Choice { rung, because })
}

fn auto(means: &Means, iface: &Iface, hook: Hook, node: &str) -> Choice {
    if let Some(because) = &means.no_programs {
        return Choice {
            rung: Rung::Packet,
            because: Some(format!("no programs can be loaded ({because})")),
        };
    }
    let (own, because) = best(iface);
    let hook = if bug::is(Bug::HookOfItsOwn) {
        own
    } else {
        hook
    };
    let because = if own == hook { &because } else { node };
    Choice {
        rung: match hook {
            Hook::Tcx => Rung::Tcx,
            Hook::Xdp => Rung::Native,
        },
        because: Some(because.to_owned()),
    }
}

/// The hook of all programs of a node, and why an interface is taken there that by itself
/// would be taken at the other.
fn hook(means: &Means, ifaces: &[(Attach, &Iface)], patterns: &[(Attach, &str)]) -> (Hook, String) {
    let one = "the programs of a node run at one hook, and";
    let named = ifaces.iter().map(|(attach, iface)| (*attach, &*iface.name));
    let mut all = named.chain(patterns.iter().copied());
    if let Some((attach, name)) = all.find(|(attach, _)| attach.is_tcx().is_some()) {
        let hook = match attach.is_tcx() {
            Some(true) => Hook::Tcx,
            _ => Hook::Xdp,
        };
        let asks = format!("{one} `{name}` has `attach = {:?}`", attach.word());
        return (hook, asks);
    }
    if let Some(because) = &means.no_tcx {
        return (Hook::Xdp, because.clone());
    }
    let mut wishes = ifaces.iter().filter(|(attach, _)| *attach == Attach::Auto);
    let tcx = wishes.find_map(|(_, iface)| match best(iface) {
        (Hook::Tcx, because) => Some(format!("{one} `{}` is taken at TCX: {because}", iface.name)),
        (Hook::Xdp, _) => None,
    });
    // What comes and goes while a node runs is a virtual link almost always.
    let mut expected = patterns
        .iter()
        .filter(|(attach, _)| *attach == Attach::Auto);
    let expected = expected.next();
    let expected = expected.map(|(_, text)| format!("{one} what `{text}` takes is taken at TCX"));
    tcx.or(expected).map_or_else(
        || (Hook::Xdp, String::new()),
        |because| (Hook::Tcx, because),
    )
}

/// The hook that is the better one on this interface, and why.
fn best(iface: &Iface) -> (Hook, String) {
    let tcx = |because: String| (Hook::Tcx, because);
    let driver = &iface.driver;
    if iface.is_veth {
        return tcx("it is a veth, where XDP ends the segmentation of its peer".into());
    }
    if !iface.kind.is_empty() {
        let kind = &iface.kind;
        return tcx(format!(
            "it is a virtual link ({kind}), where XDP gains nothing"
        ));
    }
    if GIVES_UP_OFFLOADS.contains(&driver.as_str()) {
        return tcx(format!(
            "under XDP {driver} ends what it does for received TCP"
        ));
    }
    if !iface
        .xdp_features
        .is_some_and(ashway_kernel::XdpFeatures::in_driver)
    {
        return tcx(match driver.as_str() {
            "" => "no driver says that it does XDP".into(),
            driver => format!("its driver ({driver}) does not say that it does XDP"),
        });
    }
    if iface.offloads.lro {
        return tcx("XDP would switch its LRO off".into());
    }
    if iface.mtu > ONE_PAGE_MTU_BYTES {
        let mtu = iface.mtu;
        return tcx(format!(
            "its MTU of {mtu} bytes would take several buffers for a frame under XDP"
        ));
    }
    (
        Hook::Xdp,
        format!("its driver ({driver}) does XDP, and the host keeps its offloads"),
    )
}

/// Drivers that do XDP, but stop joining received TCP for it where no `ethtool` flag says so:
/// `virtnet_xdp_set` ends the guest offloads (`drivers/net/virtio_net.c`), and
/// `netvsc_vf_setxdp` wants LRO off (`drivers/net/hyperv/netvsc_bpf.c`, Linux 6.18).
const GIVES_UP_OFFLOADS: [&str; 2] = ["virtio_net", "hv_netvsc"];

#[cfg(test)]
mod tests;
