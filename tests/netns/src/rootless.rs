//! A wire that needs no root: both ends in a user namespace of one's own.
//!
//! `ip netns` cannot be had there, so host A is a process that does nothing in a
//! network namespace of its own, and host B is the test itself, which runs its
//! own file again inside `unshare -Urn`.

use std::fs::{self, File};
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::process::Command;

use anyhow::{Context, Result};
use ashway_rig::skip::skip;
use ashway_rig::{Process, UdpClient};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::node::{run, text, until};

/// Set in the process inside.
const INSIDE: &str = "ASHWAY_NETNS_TEST_INSIDE";

/// Runs `body` inside new namespaces, by running the test `name` again there.
/// Skips, saying why, where the system allows no such namespaces.
///
/// # Panics
///
/// If the test fails inside.
pub fn inside(name: &str, body: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        body();
        return;
    }
    let possible = Command::new("unshare")
        .args(["-Urn", "ip", "link"])
        .output();
    if !possible.is_ok_and(|output| output.status.success()) {
        skip("needs `unshare -Urn` (util-linux, user namespaces) and iproute2");
        return;
    }
    let itself = std::env::current_exe().expect("a running program has a file");
    let mut command = Command::new("unshare");
    command.arg("-Urn").arg(itself).env(INSIDE, "1");
    command.args([name, "--exact", "--nocapture", "--test-threads=1"]);
    let output = run(&mut command);
    // Nobody reads: then nobody minds.
    let _ = std::io::stdout().write_all(text(&output).as_bytes());
    let ran = String::from_utf8_lossy(&output.stdout).contains("1 passed");
    assert!(output.status.success() && ran, "{name}, inside");
}

/// `a0` at 10.7.0.1 in host A, `b0` at 10.7.0.2 here.
#[derive(Debug)]
pub struct Wire {
    /// Keeps A's namespace.
    keeper: Process,
}

impl Wire {
    /// Makes it, inside [`inside`].
    ///
    /// # Errors
    ///
    /// What `unshare` or `ip` said.
    pub fn new() -> Result<Self> {
        let mut command = Command::new("unshare");
        command.args(["-n", "sleep", "1000"]);
        let keeper = Process::spawn(command)?;
        let wire = Self { keeper };
        let here = fs::read_link("/proc/self/ns/net")?;
        until("A's namespace", || {
            fs::read_link(wire.namespace())
                .is_ok_and(|there| there != here)
                .then_some(())
        });
        let pid = wire.keeper.id();
        let here = Command::new("ip");
        ip(here, "link set lo up")?;
        ip(
            Command::new("ip"),
            &format!("link add b0 type veth peer name a0 netns {pid}"),
        )?;
        for line in ["addr add 10.7.0.2/24 dev b0", "link set b0 up"] {
            ip(Command::new("ip"), line)?;
        }
        for line in ["addr add 10.7.0.1/24 dev a0", "link set a0 up"] {
            let mut there = Command::new("nsenter");
            there.args(["-t", &pid.to_string(), "-n", "ip"]);
            ip(there, line)?;
        }
        Ok(wire)
    }

    /// A client in A of B's UDP `port`.
    ///
    /// # Errors
    ///
    /// What the system calls said.
    ///
    /// # Panics
    ///
    /// If the thread does.
    pub fn client_a(&self, port: u16) -> Result<UdpClient> {
        let namespace = File::open(self.namespace()).context("A is gone")?;
        std::thread::scope(|scope| {
            let inside = scope.spawn(|| -> Result<UdpClient> {
                let net = Some(LinkNameSpaceType::Network);
                move_into_link_name_space(namespace.as_fd(), net)?;
                Ok(UdpClient::connect(SocketAddr::from(([10, 7, 0, 2], port)))?)
            });
            inside.join().expect("connecting does not panic")
        })
    }

    fn namespace(&self) -> String {
        format!("/proc/{}/ns/net", self.keeper.id())
    }
}

fn ip(mut command: Command, line: &str) -> Result<()> {
    let output = run(command.args(line.split(' ')));
    anyhow::ensure!(output.status.success(), "{line}: {}", text(&output));
    Ok(())
}
