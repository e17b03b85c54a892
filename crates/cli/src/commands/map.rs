//! `ashway handler map`: a program that shares a handler's memory.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use clap::Args;
use rustix::io::{FdFlags, fcntl_setfd};

use super::Node;
use crate::failure::{Exit, Failure};

/// Start a program that shares the memory of a handler
///
/// The program takes the place of this command. It inherits the memory as a file
/// descriptor, named by environment variables that `sdk/c/ashway_app.h` reads:
/// `ASHWAY_MEMORY_FD`, `ASHWAY_MEMORY_KIND` (arena, array or anonymous),
/// `ASHWAY_MEMORY_ADDRESS` (where it must be mapped, 0 for anywhere),
/// `ASHWAY_MEMORY_BYTES` and `ASHWAY_SYMBOLS` (the handler's shared variables, as
/// `name=address`, separated by commas).
///
/// With --endpoint it is also given the ring that `deliver` fills: `ASHWAY_ENDPOINT_FD`
/// (a descriptor to sleep on), `ASHWAY_ENDPOINT_SLOTS`,
/// `ASHWAY_ENDPOINT_SLOT_BYTES`, `ASHWAY_ENDPOINT_PAYLOADS` and
/// `ASHWAY_ENDPOINT_CONTROL` (places in the memory).
///
/// It needs no privilege to map the memory, and gets none: with --uid it runs as
/// that user.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ashway handler map counter -- ./counter_app
  ashway handler map counter --uid 1000 -- env
  ashway handler map counter --cpu 1 -- ./counter_app
  ashway handler map inbox --endpoint -- ./inbox_app")]
pub(crate) struct Map {
    /// The handler
    name: String,
    /// The memory of its instance on this CPU, of a handler with `instances = "per-cpu"`: start a
    /// program for each, or ask the control socket for several memories
    #[arg(long, value_name = "N")]
    cpu: Option<u32>,
    /// Also take the handler's endpoint, to which `deliver` leads: the program is its
    /// reader until it ends
    #[arg(long)]
    endpoint: bool,
    /// Run the program as this user (a number), without further groups
    #[arg(long)]
    uid: Option<u32>,
    /// Run the program in this group (a number) [default: that of --uid]
    #[arg(long)]
    gid: Option<u32>,
    #[command(flatten)]
    node: Node,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

impl Map {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let asks = self.endpoint.then(|| self.node.clone());
        let name = match self.cpu {
            Some(cpu) => ashway_config::instance_name(&self.name, cpu),
            None => self.name,
        };
        let (memory, fd) = self.node.connect()?.memory(&name)?;
        pass_on(&fd)?;
        let [program, words @ ..] = &*self.command else {
            return Err(Failure::new(Exit::Usage, "which program is to map it?"));
        };
        let mut command = Command::new(program);
        command
            .args(words)
            .env("ASHWAY_MEMORY_FD", fd.as_raw_fd().to_string())
            .env("ASHWAY_MEMORY_KIND", &*memory.kind)
            .env("ASHWAY_MEMORY_ADDRESS", &memory.address)
            .env("ASHWAY_MEMORY_BYTES", memory.bytes.to_string())
            .env("ASHWAY_SYMBOLS", symbols(&memory.symbols));
        // The program keeps this process, and with it the endpoint.
        let endpoint = match asks {
            Some(node) => Some(node.connect()?.endpoint(&name)?),
            None => None,
        };
        if let Some((place, event)) = &endpoint {
            pass_on(event)?;
            command.env("ASHWAY_ENDPOINT_FD", event.as_raw_fd().to_string());
            for (name, number) in [
                ("ASHWAY_ENDPOINT_SLOTS", place.slots),
                ("ASHWAY_ENDPOINT_SLOT_BYTES", place.slot_bytes),
                ("ASHWAY_ENDPOINT_PAYLOADS", place.payloads_at),
                ("ASHWAY_ENDPOINT_CONTROL", place.control_at),
            ] {
                command.env(name, number.to_string());
            }
        }
        if let Some(gid) = self.gid.or(self.uid) {
            command.gid(gid);
        }
        if let Some(uid) = self.uid {
            // Also gives up every supplementary group.
            command.uid(uid);
        }
        let error = command.exec();
        let exit = match error.kind() {
            // From setuid(2) or setgid(2), or from execve(2).
            std::io::ErrorKind::PermissionDenied => Exit::PrivilegeMissing,
            _ => Exit::Failed,
        };
        let program = program.display();
        let mut failure = Failure::new(exit, format!("cannot start `{program}`")).because(&error);
        if exit == Exit::PrivilegeMissing {
            failure = failure.hint(
                "another user or group (--uid, --gid) takes CAP_SETUID and CAP_SETGID, and that \
                 user must be allowed to execute the file",
            );
        }
        Err(failure)
    }
}

/// Received close-on-exec, so that only this program inherits it.
fn pass_on(fd: &OwnedFd) -> Result<(), Failure> {
    fcntl_setfd(fd, FdFlags::empty())
        .map_err(|errno| Failure::new(Exit::Failed, "cannot pass the memory on").because(&errno))
}

/// `counter=1024,ashway_param_step=1032`.
fn symbols(symbols: &BTreeMap<String, u64>) -> String {
    let entry = |(name, address): (&String, &u64)| format!("{name}={address}");
    symbols.iter().map(entry).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_are_one_word() {
        let two = [("counter".to_owned(), 1024), ("step".to_owned(), 1032)];
        assert_eq!(symbols(&two.into()), "counter=1024,step=1032");
        assert_eq!(symbols(&BTreeMap::new()), "");
    }
}
