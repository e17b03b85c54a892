//! Host B without root: this process's own network namespace, made by
//! `unshare -Urn`, and a second one as client A.
//!
//! `ip netns` needs a mount that an ordinary user may not make, so A is the
//! namespace of a child that sleeps. Loading XDP is refused here; the node takes
//! the `AF_PACKET` rung and has the user tier only.

use std::fs::File;
use std::io;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ashway_rig::{A4, B4, Process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::hosts::{self, Hosts};

/// How long the node may take to answer its control socket.
const PATIENCE: Duration = Duration::from_secs(10);

/// Client A beside this process, which is B; gone when dropped.
#[derive(Debug)]
pub struct Rootless {
    client: Process,
    space: File,
}

impl Rootless {
    /// Makes A and the wire `b0` - `a0` to it.
    ///
    /// # Errors
    ///
    /// Outside a user namespace of our own, or without `ip`.
    pub fn new() -> Result<Self> {
        let mut command = Command::new("unshare");
        command
            .args(["-n", "sleep", "infinity"])
            .stdin(Stdio::null());
        let client = Process::spawn(command).context("cannot start `unshare`")?;
        let own = std::fs::read_link("/proc/self/ns/net")?;
        let path = PathBuf::from(format!("/proc/{}/ns/net", client.id()));
        // The child is in its new namespace a moment after it exists.
        let begin = Instant::now();
        while std::fs::read_link(&path).is_ok_and(|space| space == own) {
            if begin.elapsed() > PATIENCE {
                bail!("`unshare -n` made no network namespace");
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let space = File::open(&path).context("cannot open the client's namespace")?;
        let hosts = Self { client, space };
        hosts.wire()?;
        Ok(hosts)
    }

    fn wire(&self) -> Result<()> {
        let client = self.client.id().to_string();
        let (at_b, at_a) = (format!("{B4}/24"), format!("{A4}/24"));
        ip(&["link", "set", "lo", "up"])?;
        ip(&[
            "link", "add", "b0", "type", "veth", "peer", "name", "a0", "netns", &client,
        ])?;
        ip(&["addr", "add", &at_b, "dev", "b0"])?;
        ip(&["link", "set", "b0", "up"])?;
        self.inside(|| {
            ip(&["link", "set", "lo", "up"])?;
            ip(&["addr", "add", &at_a, "dev", "a0"])?;
            ip(&["link", "set", "a0", "up"])
        })?
    }

    /// Runs `work` in a thread inside A. Its commands run there too.
    fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                move_into_link_name_space(self.space.as_fd(), Some(LinkNameSpaceType::Network))?;
                Ok(work())
            });
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Starts `ashway run` here, in B.
    ///
    /// # Errors
    ///
    /// If it does not answer in time.
    pub fn node(&self, config: &Path, socket: &Path) -> Result<Process> {
        let mut command = Command::new(ashway_rig::ashway()?);
        command.arg("run").arg(config).arg("--socket").arg(socket);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let mut node = Process::spawn(command).context("cannot start the node")?;
        let begin = Instant::now();
        while hosts::status(socket).is_err() {
            if let Some(status) = node.wait(Duration::from_millis(5))? {
                bail!("the node ended with {status}");
            }
            if begin.elapsed() > PATIENCE {
                bail!("the node does not answer on its control socket");
            }
        }
        Ok(node)
    }
}

impl Hosts for Rootless {
    fn command_b(&self, program: &str) -> Command {
        Command::new(program)
    }

    fn command_a(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        let space = format!("--net=/proc/{}/ns/net", self.client.id());
        command.args([&space, program]);
        command
    }

    fn client(&self, port: u16) -> io::Result<UdpSocket> {
        self.inside(|| hosts::connect(port))?
    }
}

fn ip(args: &[&str]) -> Result<()> {
    let output = Command::new("ip")
        .args(args)
        .output()
        .context("cannot start `ip`; is iproute2 installed?")?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        bail!("`ip {}` failed: {}", args.join(" "), why.trim());
    }
    Ok(())
}
