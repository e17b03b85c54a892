//! Who answers: unbound and nodes, with the same names.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use ashway_rig::{B4, Node, Process, Rig, handler, places};
use serde_json::Value;

use crate::hosts::{self, Hosts};

/// Names in both servers.
const NAMES: usize = 1000;
const PORT: u16 = 53;
/// How long a server may take to answer its first query.
const PATIENCE: Duration = Duration::from_secs(10);

/// A node: `attach` of its interface and `tier` of its path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    attach: &'static str,
    tier: &'static str,
}

impl Place {
    pub(super) const fn new(attach: &'static str, tier: &'static str) -> Self {
        Self { attach, tier }
    }
}

/// Counts of a path.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Messages {
    pub(super) received: u64,
    /// Of those, the ones that the user tier had.
    pub(super) crossed: u64,
    /// Of those, the ones with which the handler was stopped. The host gets them.
    pub(super) stopped: u64,
}

/// Files of this run; gone with it.
#[derive(Debug)]
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn new() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("ashway-bench-dns-{}", std::process::id()));
        fs::create_dir(&path).with_context(|| format!("cannot make `{}`", path.display()))?;
        Ok(Self(path))
    }

    pub(super) fn file(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.0.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write `{}`", path.display()))?;
        Ok(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left of it is in the way of nobody.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Whoever answers on B's end of a wire.
#[derive(Debug)]
pub(super) enum Server {
    Unbound { _process: Process },
    Node(Node),
}

impl Server {
    /// unbound, answering.
    pub(super) fn unbound(rig: &Rig, folder: &Folder) -> Result<Self> {
        let mut config = format!(
            "server:\n verbosity: 0\n directory: \"{}\"\n chroot: \"\"\n username: \"\"\n pidfile: \"\"\n \
             use-syslog: no\n logfile: \"\"\n interface: {B4}\n port: {PORT}\n do-ip6: no\n \
             num-threads: 1\n module-config: \"iterator\"\n access-control: 10.0.0.0/8 allow\n \
             local-zone: \"bench.example.\" static\n",
            folder.0.display()
        );
        config += &lines(|i| {
            let (name, address) = (name(i), address(i));
            format!(" local-data: \"{name}. 300 IN A {address}\"")
        });
        config.push_str("remote-control:\n control-enable: no\n");
        let config = folder.file("unbound.conf", &config)?;
        let mut command = rig.command_b("unbound");
        command.arg("-d").arg("-c").arg(config);
        let log = folder.file("unbound.log", "")?;
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(File::create(&log)?);
        let process = Process::spawn(command);
        let process =
            process.context("cannot start `unbound`; run `apt-get install -y unbound`")?;
        answers(rig).with_context(|| {
            let said = fs::read_to_string(&log).unwrap_or_default();
            format!("`unbound` printed: {}", said.trim())
        })?;
        Ok(Self::Unbound { _process: process })
    }

    /// A node with the handler at this place, answering.
    pub(super) fn node(
        rig: &Rig,
        place: Place,
        folder: &Folder,
        binary: Option<&Path>,
    ) -> Result<Self> {
        let Place { attach, tier } = place;
        // Written as it is, like unbound's folder: neither has a quote in its name.
        let file = handler("zone")?.display().to_string();
        let builder = rig.node(format!(
            "[iface.b0]\nattach = {attach:?}\n\
             [handler.zone]\nfile = \"{file}\"\nallow = [\"reply\"]\n\
             [path.zone]\niface = \"b0\"\nmatch = \"udp and dst port {PORT}\"\n\
             handler = \"zone\"\ntier = {tier:?}\n"
        ));
        let node = match binary {
            Some(binary) => builder.binary(binary),
            None => builder,
        }
        .start()?;
        let names = lines(|i| format!("{} A {}", name(i), address(i)));
        let names = folder.file("names", &names)?;
        let mut fill = node.command(["handler", "map", "zone"]);
        fill.arg("--")
            .arg(places::application("zone_app")?)
            .arg(names);
        let said = fill.output().context("cannot start `ashway`")?;
        ensure!(
            said.status.success(),
            "{}",
            String::from_utf8_lossy(&said.stderr).trim()
        );
        answers(rig)?;
        let status = hosts::status(node.socket())?;
        let path = hosts::named(&status, "paths", "zone")?;
        ensure!(
            path["tier"] == tier,
            "it runs in the other tier: {}",
            path["promotion"]
        );
        Ok(Self::Node(node))
    }

    /// What the path of a node has counted so far.
    pub(super) fn messages(&self) -> Result<Messages> {
        let Self::Node(node) = self else {
            return Ok(Messages::default());
        };
        let status = hosts::status(node.socket())?;
        let path = hosts::named(&status, "paths", "zone")?;
        let received = path["received"].as_u64().context("a number of messages")?;
        let sum = |counts: &Value, of: &str| {
            let counts = counts.as_object().into_iter().flatten();
            let counts = counts.filter(|(name, _)| name.starts_with(of));
            counts.filter_map(|(_, count)| count.as_u64()).sum()
        };
        Ok(Messages {
            received,
            crossed: if path["tier"] == "user" {
                received
            } else {
                sum(&path["notes"], "queued")
            },
            stopped: sum(&path["aborts"], ""),
        })
    }

    /// Ends it; a node has to end well.
    pub(super) fn stop(self) -> Result<()> {
        match self {
            Self::Unbound { .. } => Ok(()),
            Self::Node(node) => node.stop(),
        }
    }
}

/// A line of each name, by its number.
pub(super) fn lines(line: impl Fn(usize) -> String) -> String {
    (0..NAMES)
        .flat_map(|i| [line(i), "\n".to_owned()])
        .collect()
}

/// Of 32 lengths: how much room there is behind a frame under XDP depends on its own.
pub(super) fn name(number: usize) -> String {
    format!("n{number}{}.bench.example", "x".repeat(number % 32))
}

fn address(number: usize) -> String {
    format!("10.1.{}.{}", number / 256, number % 256)
}

/// Waits until a server answers.
fn answers(rig: &Rig) -> Result<()> {
    let socket = rig.client(PORT)?;
    socket.set_read_timeout(Some(Duration::from_millis(100)))?;
    let mut query = vec![0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name(0).split('.') {
        query.push(u8::try_from(label.len())?);
        query.extend(label.as_bytes());
    }
    query.extend([0, 0, 1, 0, 1]);
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        let mut reply = [0; 512];
        // At first nobody listens, and the socket may hear that, too.
        if socket.send(&query).is_ok() && socket.recv(&mut reply).is_ok() {
            // A response without an error, and one answer. RA is unbound's.
            ensure!(
                matches!(reply[3], 0 | 0x80) && reply[7] == 1,
                "a wrong answer: {:x?}",
                &reply[..12]
            );
            return Ok(());
        }
    }
    bail!("no answer within {} s", PATIENCE.as_secs())
}
