//! What tests of a whole node share: configurations, looking at a node from
//! outside, and waiting for things that happen when they happen.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Write as _};
use std::net::UdpSocket;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ashway_api::Request;
use ashway_kernel::{Iface, Owner, Program, ProgramKind, ProgramSpec, detach_ashway, owner};
use ashway_rig::{Node, Process, Rig, RigOptions, Signal, UdpClient};
use serde_json::Value;

/// How long anything may take that is not timed. A loaded machine must not
/// fail a test.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A configuration in the making; sections in the order of the calls.
#[derive(Clone, Debug, Default)]
pub struct Config(String);

impl Config {
    /// One interface, `b0`, with this mode.
    #[must_use]
    pub fn on_b0(mode: &str) -> Self {
        Self::default().iface("b0", mode)
    }

    /// Adds an interface.
    #[must_use]
    pub fn iface(self, name: &str, mode: &str) -> Self {
        self.text(&format!("[iface.{name}]\nattach = {mode:?}"))
    }

    /// Adds a handler of this workspace that may reply.
    ///
    /// # Errors
    ///
    /// If it has not been built.
    pub fn handler(self, name: &str) -> Result<Self> {
        let file = ashway_rig::handler(name)?;
        Ok(self.handler_file(name, &file))
    }

    /// Adds a handler that may reply, from any file.
    #[must_use]
    pub fn handler_file(self, name: &str, file: &Path) -> Self {
        // TOML strings are quoted like Rust's.
        let file = file.to_string_lossy();
        self.text(&format!(
            "[handler.{name}]\nfile = {file:?}\nallow = [\"reply\"]"
        ))
    }

    /// Adds a path on `b0`, named after its handler.
    #[must_use]
    pub fn path(self, handler: &str, port: u16, tier: &str) -> Self {
        self.path_on("[\"b0\"]", handler, port, tier)
    }

    /// Adds a path on these interfaces, named after its handler.
    #[must_use]
    pub fn path_on(self, ifaces: &str, handler: &str, port: u16, tier: &str) -> Self {
        self.text(&format!(
            "[path.{handler}]\niface = {ifaces}\nmatch = \"udp and dst port {port}\"\n\
             handler = {handler:?}\ntier = {tier:?}"
        ))
    }

    /// Adds lines as they are.
    #[must_use]
    pub fn text(mut self, lines: &str) -> Self {
        // Writing to a string does not fail.
        let _ = writeln!(self.0, "{lines}");
        self
    }
}

impl From<Config> for String {
    fn from(config: Config) -> Self {
        config.0
    }
}

/// Counter handler on `b0`, port 7777, in this tier: what most tests run.
///
/// # Errors
///
/// If the handler has not been built.
pub fn counter(tier: &str) -> Result<Config> {
    Ok(Config::on_b0("auto")
        .handler("counter")?
        .path("counter", 7777, tier))
}

/// A wire as a system makes it: its far end does not take `XDP_TX`, so a node
/// needs a TCX program beside its XDP program and there is more to forget.
///
/// # Panics
///
/// If it cannot be made.
#[must_use]
pub fn stock(name: &str) -> Rig {
    let options = RigOptions {
        gro_on_client: false,
        ..RigOptions::default()
    };
    Rig::new(name, options).expect("root can make a wire")
}

/// The entry of this name in a list of the status document.
///
/// # Panics
///
/// If there is none.
#[must_use]
pub fn entry<'a>(status: &'a Value, list: &str, name: &str) -> &'a Value {
    let entries = status[list].as_array().into_iter().flatten();
    entries
        .into_iter()
        .find(|entry| entry["name"] == name)
        .unwrap_or_else(|| panic!("no `{name}` among the {list} of {status:#}"))
}

/// Waits until `happened` has something to show.
///
/// # Panics
///
/// If that takes more than [`PATIENCE`].
pub fn until<T>(what: &str, mut happened: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(shown) = happened() {
            return shown;
        }
        assert!(Instant::now() < end, "waited in vain: {what}");
        // Only to leave the CPU to the one waited for.
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Stops a node where it is, until it gets `SIGCONT`: its programs in the kernel go on.
///
/// # Panics
///
/// If it does not stop, or has ended.
pub fn freeze(node: &Node) {
    node.signal(Signal::STOP).expect("it runs");
    let tasks = format!("/proc/{}/task", node.id());
    // One by one, each when it next comes out of the kernel.
    until("all its threads have stopped", || {
        let mut tasks = fs::read_dir(&tasks).expect("it runs").flatten();
        let is_stopped = |task: fs::DirEntry| {
            let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.contains(") T ")
        };
        tasks.all(is_stopped).then_some(())
    });
}

/// The status once no message is on its way and all ledgers close.
///
/// # Panics
///
/// If they do not close in time.
#[must_use]
pub fn at_rest(node: &Node) -> Value {
    let mut last = Value::Null;
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        last = node.status().expect("the node answers");
        let paths = last["paths"].as_array().expect("a list of paths");
        let mut open = paths
            .iter()
            .filter(|p| p["waiting"] != 0 || p["balanced"] != true);
        if open.next().is_none() {
            return last;
        }
    }
    panic!("the ledgers do not close: {last:#}");
}

/// Asks by a number and shows everything that counts frames if no answer comes.
///
/// # Panics
///
/// If no answer comes in time.
#[must_use]
pub fn ask(rig: &Rig, node: &Node, client: &UdpClient, number: u32) -> u32 {
    client.ask_number(number).unwrap_or_else(|why| {
        let status = node.status().expect("the node answers");
        let a0 = text(&run(rig.command_a("ethtool").args(["-S", "a0"])));
        let b0 = text(&run(rig.command_b("ethtool").args(["-S", "b0"])));
        let late = client.receive();
        panic!(
            "{why}\nlater: {late:?}\n{status:#}\na0: {a0}\nb0: {b0}\n{}",
            node.output()
        )
    })
}

/// Sends a request to the node's control socket; the answer's document, of which its type
/// says everything, or its error.
///
/// # Errors
///
/// The error that the node answered with.
///
/// # Panics
///
/// If the node does not answer, or if its answer has a key that its type has not.
pub fn control(node: &Node, request: &Value) -> Result<Value, Value> {
    let mut stream = UnixStream::connect(node.socket()).expect("the node listens");
    writeln!(stream, "{request}").expect("the node reads");
    let mut line = String::new();
    BufReader::new(stream)
        .read_line(&mut line)
        .expect("the node answers");
    let mut answer: Value = serde_json::from_str(&line).expect("a document");
    match answer.get("error") {
        None => {
            let document = answer["ok"].take();
            let name = request["request"].as_str().unwrap_or_default();
            match Request::exact_answer(name, &document) {
                Some(Ok(())) => Ok(document),
                wrong => panic!("`{name}`: {wrong:?}"),
            }
        }
        Some(_) => Err(answer["error"].take()),
    }
}

/// Moves a path to the other tier: `verb` is `promote` or `demote`.
///
/// # Panics
///
/// If the node refuses.
pub fn shift(node: &Node, verb: &str, path: &str) {
    let output = run(&mut node.command(["path", verb, path]));
    assert!(output.status.success(), "{verb}: {}", text(&output));
}

/// Runs a command to its end.
///
/// # Panics
///
/// If it cannot be started.
pub fn run(command: &mut Command) -> Output {
    command
        .output()
        .unwrap_or_else(|why| panic!("cannot start {command:?}: {why}"))
}

/// Runs `ip`, in the namespace that its command is for, with the words of a line.
///
/// # Panics
///
/// If it refuses.
pub fn ip(mut ip: Command, line: &str) {
    let done = run(ip.args(line.split(' ')));
    assert!(done.status.success(), "{line}: {}", text(&done));
}

/// Everything a command printed.
#[must_use]
pub fn text(output: &Output) -> String {
    let streams = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&streams).into_owned()
}

/// Number of an interface in host B.
///
/// # Panics
///
/// If it is not there.
#[must_use]
pub fn index(rig: &Rig, iface: &str) -> u32 {
    let found = rig.in_b(|| Iface::by_name(iface));
    found.expect("the interface is there").ifindex
}

/// Who holds an interface of host B.
///
/// # Panics
///
/// If the kernel does not say.
#[must_use]
pub fn owner_of(rig: &Rig, iface: &str) -> Option<Owner> {
    let index = index(rig, iface);
    rig.in_b(|| owner(index)).expect("the kernel says")
}

/// An XDP program that passes everything, of a name that is not Ashway's.
///
/// # Panics
///
/// If the kernel does not take it.
#[must_use]
pub fn stranger() -> Program {
    // r0 = XDP_PASS; exit
    let insns = [2 << 32 | 0xb7, 0x95];
    Program::load(&ProgramSpec {
        name: "stranger",
        kind: ProgramKind::Xdp,
        attach_type: 0,
        insns: &insns,
        maps: &[],
        btf: None,
    })
    .expect("the smallest program is accepted")
}

/// Asserts that nothing of Ashway's is on an interface of host B.
///
/// # Panics
///
/// If something is.
pub fn assert_free(rig: &Rig, iface: &str) {
    let index = index(rig, iface);
    let owner = rig.in_b(|| owner(index)).expect("the kernel says");
    assert!(owner.is_none(), "{iface} is held by {owner:?}");
    // No XDP program, so what this finds are TCX links.
    let left = rig.in_b(|| detach_ashway(index)).expect("the kernel says");
    assert_eq!(left, [], "left behind on {iface}");
    let rules = run(rig.command_b("nft").args(["list", "tables"]));
    // Where nft is not installed no node can have made a rule.
    assert_eq!(
        String::from_utf8_lossy(&rules.stdout).trim(),
        "",
        "left behind"
    );
}

/// An ordinary application's socket in host B.
///
/// # Panics
///
/// If the port is taken.
#[must_use]
pub fn ordinary(rig: &Rig, port: u16) -> UdpSocket {
    rig.in_b(|| UdpSocket::bind(("0.0.0.0", port)))
        .expect("the port is free")
}

/// A program that serves lines: one written, one read.
#[derive(Debug)]
pub struct Lines {
    process: Process,
    output: BufReader<std::process::ChildStdout>,
}

impl Lines {
    /// Starts it.
    ///
    /// # Errors
    ///
    /// If it cannot be started.
    pub fn start(mut command: Command) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process::spawn(command)?;
        let output = process.child().stdout.take().context("no output")?;
        Ok(Self {
            process,
            output: BufReader::new(output),
        })
    }

    /// The process.
    #[must_use]
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Writes a line without waiting for the answer.
    ///
    /// # Errors
    ///
    /// If the program is gone.
    pub fn say(&mut self, line: &str) -> Result<()> {
        let input = self.process.child().stdin.as_mut().context("no input")?;
        Ok(writeln!(input, "{line}")?)
    }

    /// Reads a line.
    ///
    /// # Errors
    ///
    /// If the program ended.
    pub fn hear(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            bail!("the program ended without an answer");
        }
        Ok(line.trim_end().to_owned())
    }

    /// Writes a line and reads one.
    ///
    /// # Errors
    ///
    /// As [`say`](Self::say) and [`hear`](Self::hear).
    pub fn ask(&mut self, line: &str) -> Result<String> {
        self.say(line)?;
        self.hear()
    }
}

/// Starts an application of `apps/` with a handler's memory, as a user without
/// any privilege. `folder` must be one that this user can enter: the build's
/// own folder need not be.
///
/// # Errors
///
/// If it has not been built or cannot be copied.
pub fn application(node: &Node, handler: &str, name: &str) -> Result<Lines> {
    application_with(node, handler, name, &[], &[])
}

/// The same, with further `options` of `handler map` and arguments of its own.
///
/// # Errors
///
/// As [`application`].
pub fn application_with(
    node: &Node,
    handler: &str,
    name: &str,
    options: &[&str],
    args: &[&str],
) -> Result<Lines> {
    let folder = node.config().parent().context("a folder")?;
    let program = folder.join(name);
    if !program.exists() {
        copy_program(&ashway_rig::places::application(name)?, &program)?;
    }
    let mut command = node.command(["handler", "map", handler, "--uid", "65534"]);
    command.args(options).arg("--").arg(program).args(args);
    Lines::start(command)
}

/// Copies a program that is run at once. A process of its own does: of a file that this one
/// has open for writing, what another test's thread forks has a descriptor too, and while it
/// lives the program is busy (`ETXTBSY`).
///
/// # Errors
///
/// What `cp` said.
pub fn copy_program(from: &Path, to: &Path) -> Result<()> {
    let copied = run(Command::new("cp").arg(from).arg(to));
    anyhow::ensure!(copied.status.success(), "{}", text(&copied));
    Ok(())
}

/// Where Linux tells of the thread that runs the node's paths: `/proc/PID/task/TID`.
///
/// # Panics
///
/// If there is none.
#[must_use]
pub fn worker_task(node: &Node) -> PathBuf {
    let tasks = fs::read_dir(format!("/proc/{}/task", node.id()));
    let mut tasks = tasks
        .expect("the node runs")
        .flatten()
        .map(|task| task.path());
    let name = |task: &Path| fs::read_to_string(task.join("comm")).unwrap_or_default();
    let worker = tasks.find(|task| name(task).trim() == "ashway-worker");
    worker.expect("a node has a worker")
}

/// A field of `/proc/PID/status`.
///
/// # Panics
///
/// If the process or the field is not there.
#[must_use]
pub fn proc_status(pid: u32, field: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process runs");
    let mut lines = text.lines();
    let value = lines.find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value.expect("the field is there").trim().to_owned()
}

/// Everything that a node holds open, by its kind.
///
/// # Panics
///
/// If it does not run.
#[must_use]
pub fn census(node: &Node) -> BTreeMap<String, usize> {
    let mut kinds = BTreeMap::new();
    for fd in fs::read_dir(format!("/proc/{}/fd", node.id())).expect("the node runs") {
        // One that is just closed counts for nothing.
        let Ok(kind) = fd.and_then(|fd| fs::read_link(fd.path())) else {
            continue;
        };
        let kind = kind.to_string_lossy().into_owned();
        // `socket:[12]`, but `anon_inode:[pidfd]`.
        let kind = kind.trim_end_matches(|c: char| c.is_ascii_digit() || "[]".contains(c));
        *kinds.entry(kind.to_owned()).or_default() += 1;
    }
    kinds
}
