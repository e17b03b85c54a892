//! Client A and host B, as a measurement needs them.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ashway_rig::{B4, Node, Rig, RigOptions};
use serde_json::{Value, json};

/// UDP port of the counter.
pub const COUNTER_PORT: u16 = 7777;
/// UDP port of the handler that loops for ever.
pub const RUNAWAY_PORT: u16 = 7779;
/// Path of the counter.
pub const COUNTER_PATH: &str = "inc";

/// How long a node may take to answer, or its worker to begin.
const PATIENCE: Duration = Duration::from_secs(10);

/// Two hosts with a wire between them.
pub trait Hosts {
    /// A command that will run in B.
    fn command_b(&self, program: &str) -> Command;
    /// A command that will run in A.
    fn command_a(&self, program: &str) -> Command;
    /// A socket in A, connected to B's UDP `port`.
    ///
    /// # Errors
    ///
    /// What the socket calls said.
    fn client(&self, port: u16) -> io::Result<UdpSocket>;
}

impl Hosts for Rig {
    fn command_b(&self, program: &str) -> Command {
        Self::command_b(self, program)
    }

    fn command_a(&self, program: &str) -> Command {
        Self::command_a(self, program)
    }

    fn client(&self, port: u16) -> io::Result<UdpSocket> {
        self.in_a(|| connect(port))
    }
}

/// A socket of this namespace, connected to B.
pub(crate) fn connect(port: u16) -> io::Result<UdpSocket> {
    let server = SocketAddr::new(B4.into(), port);
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.connect(server)?;
    Ok(socket)
}

/// Two hosts joined by a veth as it comes, except that each knows the other's
/// hardware address.
///
/// # Errors
///
/// Without root, or without `ip`.
pub fn stock(name: &str) -> Result<Rig> {
    Rig::new(
        name,
        RigOptions {
            gro_on_client: false,
            ..RigOptions::default()
        },
    )
}

/// A node's configuration: the counter on this interface, and the runaway beside
/// it.
///
/// # Errors
///
/// If the handlers have not been built.
pub fn config(iface: &str) -> Result<String> {
    config_at(iface, "auto")
}

/// The same, with this `attach`.
///
/// # Errors
///
/// As [`config`].
pub fn config_at(iface: &str, attach: &str) -> Result<String> {
    let counter = ashway_rig::handler("counter")?;
    let runaway = ashway_rig::handler("runaway")?;
    // Written as they are: folders with a quote in their name are not supported.
    let (counter, runaway) = (counter.display(), runaway.display());
    Ok(format!(
        r#"
[iface.{iface}]
attach = {attach:?}

[handler.counter]
file  = "{counter}"
allow = ["reply"]

[handler.runaway]
file  = "{runaway}"
allow = ["reply"]

[path.{COUNTER_PATH}]
iface   = {iface:?}
match   = "udp and dst port {COUNTER_PORT}"
handler = "counter"

[path.runaway]
iface    = {iface:?}
match    = "udp and dst port {RUNAWAY_PORT}"
handler  = "runaway"
on_fault = "drop"
faults   = "off"
"#
    ))
}

/// The thread in which a node's user tier runs. It names itself, once it has begun.
///
/// # Errors
///
/// If there is none within ten seconds.
pub(crate) fn worker(node: &Node) -> Result<u32> {
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        for task in fs::read_dir(format!("/proc/{}/task", node.id()))? {
            let task = task?;
            if fs::read_to_string(task.path().join("comm"))?.trim() == "ashway-worker" {
                let id = task.file_name();
                return Ok(id.to_string_lossy().parse()?);
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    bail!("the node has no worker")
}

/// CPU time that a thread has had (`/proc/TID/schedstat`, first field).
///
/// # Errors
///
/// If it is gone.
pub(crate) fn cpu_ns(thread: u32) -> Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{thread}/schedstat"))?;
    let ns = stat.split(' ').next().context("an empty schedstat")?;
    Ok(ns.parse()?)
}

/// Asks a node by its control socket: one line of JSON each way, by hand, so that
/// the benchmark does not contain what it measures.
///
/// # Errors
///
/// What the node or the way to it said.
pub fn ask(socket: &Path, request: &Value) -> Result<Value> {
    let mut stream = UnixStream::connect(socket)
        .with_context(|| format!("no node answers on `{}`", socket.display()))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(format!("{request}\n").as_bytes())?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    let mut answer: Value = serde_json::from_str(&line).context("the node answers no JSON")?;
    match answer.get_mut("ok") {
        Some(value) => Ok(value.take()),
        None => bail!("the node refused {request}: {}", answer["error"]["message"]),
    }
}

/// What `ashway status -j` shows.
///
/// # Errors
///
/// As [`ask`].
pub fn status(socket: &Path) -> Result<Value> {
    ask(socket, &json!({ "request": "status" }))
}

/// How a node has its first interface: `tcx`, `native`, `generic` or `packet`.
///
/// # Errors
///
/// As [`ask`].
pub fn hook(socket: &Path) -> Result<String> {
    let mode = &status(socket)?["interfaces"][0]["mode"];
    Ok(mode.as_str().context("no interface")?.to_owned())
}

/// The entry with this name in a list of a status document.
///
/// # Errors
///
/// If there is none.
pub fn named<'d>(document: &'d Value, list: &str, name: &str) -> Result<&'d Value> {
    document[list]
        .as_array()
        .into_iter()
        .flatten()
        .find(|entry| entry["name"] == name)
        .with_context(|| format!("the status has no `{name}` among its {list}"))
}
