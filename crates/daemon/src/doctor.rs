//! `ashway doctor`: what this host can do, what follows, and how to get more.
//!
//! Looking ([`run`]) and judging are apart: the judgement is a function of what
//! was found, so it is tested on hosts nobody has here. Unless it is to
//! [measure](Measuring), nothing is attached; and nothing fails for lack of privilege: what
//! cannot be seen is a line that says so.

mod checks;
mod measure;
mod measured;
mod rungs;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::path::{Path as FsPath, PathBuf};

use ashway_kernel::probe::State;
use ashway_kernel::{Feature, Iface, Owner, Probe, iface, owner, tcx_owners};
use ashway_node::rung::{Means, cost};
use serde_json::{Value, json};

use checks::Check;
use measure::Measured;
pub use measure::Measuring;
use rungs::Standing;

/// Looks at this process, this kernel, and the interfaces named, or at all but
/// `lo` if none is. Takes some ms, up to 20 ms more for each veth.
///
/// Where the process may, one probe frame of 60 bytes is sent out of each veth
/// that is up and free of XDP ([`iface::veth_peer_takes_xdp_tx`]). With `measuring` each
/// interface that is up is held by a node without paths for a while.
#[must_use]
pub fn run(ifaces: &[String], measuring: Option<&Measuring>) -> Report {
    let probe = Probe::run();
    let may_send = probe.has(Feature::Xdp);
    let names = if ifaces.is_empty() {
        all_interfaces()
    } else {
        ifaces.to_vec()
    };
    let mut seen: Vec<_> = names.into_iter().map(|name| look(name, may_send)).collect();
    if let Some(how) = measuring {
        for found in seen.iter_mut().filter_map(|seen| seen.found.as_mut().ok()) {
            let measured = measure::measure(&found.iface.name, how);
            found.measured = Some(measured.map_err(|error| error.to_string()));
        }
    }
    let mut options = OpenOptions::new();
    let tun = options.read(true).write(true).open("/dev/net/tun");
    let tun = tun.map(drop).map_err(|error| error.to_string());
    Report::of(probe, find_tool("nft"), tun, seen, !ifaces.is_empty())
}

/// What was seen of an interface.
struct Seen {
    name: String,
    found: Result<IfaceFacts, String>,
}

struct IfaceFacts {
    iface: Iface,
    xdp: Result<Option<Owner>, String>,
    /// At TCX's ingress, in the order in which they run.
    tcx: Vec<Owner>,
    /// `None` if it was not tried.
    takes_xdp_tx: Option<Result<bool, String>>,
    /// `None` if that was not asked for.
    measured: Option<Result<Measured, String>>,
}

/// What was found and what it means.
pub struct Report {
    standing: Standing,
    because: String,
    climb: Option<String>,
    probe: Probe,
    means: Means,
    nft: Option<PathBuf>,
    /// Why TAP devices cannot be made, if so.
    tun: Result<(), String>,
    seen: Vec<Seen>,
    /// Whether somebody asked for just these interfaces.
    named: bool,
}

/// Lines that belong together.
struct Group<'a> {
    title: String,
    checks: Vec<Check>,
    measured: Option<&'a Result<Measured, String>>,
}

impl Report {
    fn of(
        probe: Probe,
        nft: Option<PathBuf>,
        tun: Result<(), String>,
        seen: Vec<Seen>,
        named: bool,
    ) -> Self {
        let (standing, because, climb) = rungs::judge(&probe);
        Self {
            standing,
            because,
            climb,
            means: Means::of(&probe),
            probe,
            nft,
            tun,
            seen,
            named,
        }
    }

    /// For a person: the rung first, then one line for each check.
    #[must_use]
    pub fn render(&self) -> String {
        let mut text = format!(
            "rung: {}: {}",
            self.standing.words(rungs::hooks(&self.means)),
            self.because
        );
        if let Some(climb) = &self.climb {
            write(&mut text, format_args!("; to climb: {climb}"));
        }
        text.push('\n');
        for Group {
            title,
            checks,
            measured,
        } in self.groups()
        {
            write(&mut text, format_args!("\n{title}\n"));
            let width = checks.iter().map(|c| c.name.len()).max().unwrap_or(0);
            for check in checks {
                let Check { name, mark, detail } = check;
                let mark = mark.word();
                write(
                    &mut text,
                    format_args!("  {mark:<8}  {name:<width$}  {detail}\n"),
                );
            }
            match measured {
                None => {}
                Some(Ok(measured)) => text += &measured.render(),
                Some(Err(why)) => write(&mut text, format_args!("  not measured: {why}\n")),
            }
        }
        text
    }

    /// For a program:
    ///
    /// ```text
    /// { "rung": { "name": "native_arena|native_array|packet|none",
    ///             "because": S, "climb": S|null, "hooks": ["xdp", "tcx"] },
    ///   "kernel": { "release": S, "unprivileged_bpf_disabled": N|null,
    ///               "features": [{ CHECK, "since": "6.9" }] },
    ///   "capabilities": [{ CHECK, "held": B, "needed_for": S }],
    ///   "tools": [{ CHECK, "path": S|null }],
    ///   "own": [{ CHECK }],
    ///   "interfaces": [{ "name": S, "found": B, "checks": [{ CHECK }],
    ///     and, if found: "driver": S, "mtu_bytes": N, "up": B,
    ///     "rx_queues": N, "tx_queues": N, "is_veth": B,
    ///     "kind": S, "offloads": { "tso": B, "gro": B, "lro": B },
    ///     "xdp_features": ["basic", ...]|null,
    ///     "auto": { "mode": "native|tcx|packet", "because": S },
    ///     "costs": { "tcx": S, "xdp": S, "generic": S, "packet": S },
    ///     "xdp_program": PROGRAM|null, "tcx_programs": [PROGRAM],
    ///     "veth_peer_takes_xdp_tx": B|null, "measured": [WAY]|null }] }
    /// CHECK = "name": S, "state": "ok|degraded|missing", "detail": S
    /// WAY = { "attach": S|null (nobody), "refused": S|null, "mtu_bytes": N|null,
    ///     "offloads": { ... }|null, "rounds": [{ "seconds": F, "frames": N, "bytes": N,
    ///                              "program_runs": N|null, "program_ns": N|null }] }
    /// PROGRAM = { "id": N, "name": S|null, "uid": N|null, "pid": N|null, "is_ashway": B }
    /// ```
    #[must_use]
    pub fn to_json(&self) -> Value {
        let features = self.probe.features.iter().map(|(feature, state)| {
            let mut value = checks::feature(&self.probe, *feature, state).json();
            value["since"] = json!(feature.since());
            value
        });
        let capabilities = self.probe.capabilities.iter().map(|capability| {
            let mut value = checks::capability(&self.probe, capability).json();
            value["held"] = json!(capability.held);
            value["needed_for"] = json!(capability.needed_for);
            value
        });
        let mut nft = checks::nft(self.nft.as_deref()).json();
        nft["path"] = json!(self.nft);
        json!({
            "rung": {
                "name": self.standing.name(),
                "because": self.because,
                "climb": self.climb,
                "hooks": rungs::hooks(&self.means),
            },
            "kernel": {
                "release": self.probe.release,
                "unprivileged_bpf_disabled": self.probe.unprivileged_bpf_disabled,
                "features": features.collect::<Vec<_>>(),
            },
            "capabilities": capabilities.collect::<Vec<_>>(),
            "tools": [nft],
            "own": checks::own(&self.probe, &self.tun).iter().map(Check::json).collect::<Vec<_>>(),
            "interfaces": self.seen.iter().map(|seen| self.json_of(seen)).collect::<Vec<_>>(),
        })
    }

    /// 0; 1 if an interface that was named is not there; 6 if this kernel has
    /// no rung at all. Missing privilege alone is no failure.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        let packet = self.probe.state(Feature::AfPacket);
        if self.named && self.seen.iter().any(|seen| seen.found.is_err()) {
            1
        } else if self.standing == Standing::Nothing
            && matches!(
                packet,
                State::Missing {
                    privilege: false,
                    ..
                }
            )
        {
            6
        } else {
            0
        }
    }

    fn groups(&self) -> Vec<Group<'_>> {
        let group = |title: &str, checks| Group {
            title: title.to_owned(),
            checks,
            measured: None,
        };
        let features = self.probe.features.iter();
        let features = features.map(|(f, state)| checks::feature(&self.probe, *f, state));
        let capabilities = self.probe.capabilities.iter();
        let capabilities = capabilities.map(|it| checks::capability(&self.probe, it));
        let mut groups = vec![
            group(
                &format!("kernel {}", self.probe.release),
                features.collect(),
            ),
            group("capabilities", capabilities.collect()),
            group("tools", vec![checks::nft(self.nft.as_deref())]),
            group(
                "interfaces of the node's own",
                checks::own(&self.probe, &self.tun),
            ),
        ];
        for seen in &self.seen {
            let title = match &seen.found {
                Ok(found) if !found.iface.driver.is_empty() => {
                    format!("interface {} (driver {})", seen.name, found.iface.driver)
                }
                _ => format!("interface {}", seen.name),
            };
            let found = seen.found.as_ref().ok();
            groups.push(Group {
                title,
                checks: checks::iface(&self.probe, &self.means, seen),
                measured: found.and_then(|found| found.measured.as_ref()),
            });
        }
        groups
    }

    fn json_of(&self, seen: &Seen) -> Value {
        let checks: Vec<_> = checks::iface(&self.probe, &self.means, seen)
            .iter()
            .map(Check::json)
            .collect();
        let Ok(IfaceFacts {
            iface,
            xdp,
            tcx,
            takes_xdp_tx,
            measured,
        }) = &seen.found
        else {
            return json!({ "name": seen.name, "found": false, "checks": checks });
        };
        let program = xdp.as_ref().ok().and_then(Option::as_ref);
        let features = iface.xdp_features;
        let features = features.map(|features| features.names().collect::<Vec<_>>());
        let auto = checks::auto(&self.means, iface);
        let costs = checks::WAYS.into_iter();
        let costs = costs.map(|(word, rung)| (word.to_owned(), json!(cost(iface, rung))));
        let takes_xdp_tx = takes_xdp_tx.as_ref().and_then(|tried| tried.as_ref().ok());
        json!({
            "name": seen.name,
            "found": true,
            "driver": iface.driver,
            "kind": iface.kind,
            "mtu_bytes": iface.mtu,
            "up": iface.up,
            "rx_queues": iface.rx_queues,
            "tx_queues": iface.tx_queues,
            "is_veth": iface.is_veth,
            "offloads": {
                "tso": iface.offloads.tso,
                "gro": iface.offloads.gro,
                "lro": iface.offloads.lro,
            },
            "xdp_features": features,
            "auto": { "mode": auto.rung.name(), "because": auto.because },
            "costs": costs.collect::<serde_json::Map<_, _>>(),
            "xdp_program": program.map(program_json),
            "tcx_programs": tcx.iter().map(program_json).collect::<Vec<_>>(),
            "veth_peer_takes_xdp_tx": takes_xdp_tx,
            "measured": measured.as_ref().and_then(|it| it.as_ref().ok()).map(Measured::to_json),
            "checks": checks,
        })
    }
}

fn program_json(owner: &Owner) -> Value {
    json!({
        "id": owner.prog_id,
        "name": owner.prog_name,
        "uid": owner.uid,
        "pid": owner.process.as_ref().map(|process| process.pid),
        "is_ashway": owner.is_ashway(),
    })
}

fn look(name: String, may_send: bool) -> Seen {
    let found = Iface::by_name(&name)
        .map_err(|error| error.to_string())
        .map(|iface| {
            let xdp = owner(iface.ifindex).map_err(|error| error.to_string());
            let free = matches!(xdp, Ok(None));
            let try_it = may_send && iface.is_veth && iface.up && free;
            IfaceFacts {
                tcx: tcx_owners(iface.ifindex),
                takes_xdp_tx: try_it.then(|| {
                    iface::veth_peer_takes_xdp_tx(iface.ifindex).map_err(|e| e.to_string())
                }),
                iface,
                xdp,
                measured: None,
            }
        });
    Seen { name, found }
}

/// Every interface of this thread's namespace but `lo`. /proc, because /sys
/// shows the namespace it was mounted in.
fn all_interfaces() -> Vec<String> {
    let table = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
    let mut names: Vec<_> = table
        .lines()
        .skip(2)
        .filter_map(|line| {
            line.rsplit_once(':')
                .map(|(name, _)| name.trim().to_owned())
        })
        .filter(|name| name != "lo")
        .collect();
    names.sort();
    names
}

/// Where the packet-socket rung would find it: on the `PATH`, or where
/// unprivileged users' `PATH` does not lead.
fn find_tool(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|directory| directory.join(name))
        .find(|file| FsPath::is_file(file))
}

fn write(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    text.write_fmt(arguments)
        .expect("writing to a string does not fail");
}
