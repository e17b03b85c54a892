//! `ashway iface`: interfaces, without a node.

use std::io;

use ashway_kernel::{DetachError, Iface as KernelIface, Process, detach_ashway};
use clap::Subcommand;
use serde_json::json;

use crate::face::{Face, clean};
use crate::failure::{Exit, Failure};

/// Interfaces; no node needed
#[derive(Debug, Subcommand)]
pub(crate) enum Iface {
    /// Take Ashway's programs off an interface, whoever put them there
    ///
    /// For the case that a node hangs or a link was left behind. Programs of
    /// others are never touched. A node that had the interface is named, and ends if it
    /// was its last. Needs `CAP_SYS_ADMIN`.
    Detach {
        /// The interface
        iface: String,
    },
}

impl Iface {
    pub(crate) fn run(self, face: Face) -> Result<(), Failure> {
        let Self::Detach { iface } = self;
        let failed = |exit| Failure::new(exit, format!("cannot detach from `{iface}`"));
        let index = KernelIface::by_name(&iface)
            .map_err(|error| {
                failed(Exit::Failed)
                    .because(&error)
                    .hint("`ip link` lists the interfaces of this network namespace")
            })?
            .ifindex;
        let detached = detach_ashway(index).map_err(|error| match error {
            DetachError::Kernel { errno, .. }
                if errno.kind() == io::ErrorKind::PermissionDenied =>
            {
                failed(Exit::PrivilegeMissing)
                    .because(&errno)
                    .hint("run as root: finding links of other processes needs CAP_SYS_ADMIN")
            }
            DetachError::Kernel { errno, .. } => failed(Exit::Failed).because(&errno),
            foreign => failed(Exit::Failed)
                .because(&foreign)
                .hint("stop the program that holds it"),
        })?;
        let links: Vec<_> = detached
            .iter()
            .map(|link| {
                json!({
                    "hook": link.hook,
                    "link_id": link.link_id,
                    "program_id": link.prog_id,
                    "program": link.prog_name,
                    "process": link.process.as_ref().map(|process| json!({
                        "pid": process.pid,
                        "command": command(process),
                    })),
                })
            })
            .collect();
        face.show(&json!({ "interface": iface, "detached": links }), || {
            if detached.is_empty() {
                return format!("nothing of Ashway's is on `{iface}`");
            }
            let line = |link: &ashway_kernel::Detached| {
                format!(
                    "detached {} program `{}` (id {}) from `{iface}`\n",
                    link.hook, link.prog_name, link.prog_id
                )
            };
            let lines: String = detached.iter().map(line).collect();
            let mut holders: Vec<_> = detached
                .iter()
                .filter_map(|it| it.process.as_ref())
                .collect();
            holders.dedup();
            let affected = |process: &&Process| {
                format!(
                    "the node of process {} (`{}`) has lost `{iface}`: it ends if it has no other \
                     interface, and does not take this one back\n",
                    process.pid,
                    clean(&command(process))
                )
            };
            lines + &holders.iter().map(affected).collect::<String>()
        })?;
        Ok(())
    }
}

/// The command line of a process, which names a node's configuration; else its name.
fn command(process: &Process) -> String {
    let words = std::fs::read(format!("/proc/{}/cmdline", process.pid)).unwrap_or_default();
    let words = String::from_utf8_lossy(&words).replace('\0', " ");
    match words.trim() {
        "" => process.comm.clone(),
        words => words.to_owned(),
    }
}
