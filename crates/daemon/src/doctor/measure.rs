//! `ashway doctor --measure`: what each way to take an interface costs the traffic that it has.
//!
//! A node without paths, which lets everything pass, holds the interface for a moment on each
//! way in turn, and in between nobody does. Meanwhile the interface's own counters say how much
//! it receives and in how large pieces (to them what an offload has joined is one), and the
//! kernel says how long the program takes. Each round has all ways, so that traffic that comes
//! and goes is the same for all.

use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ashway_kernel::iface::{self, Offloads};
use ashway_kernel::{Iface, Owner, RunTime, RunTimes, owner, tcx_owners};
use rustix::process::{Pid, Signal, kill_process};

use super::checks::WAYS;

/// How much to measure.
#[derive(Clone, Debug)]
pub struct Measuring {
    /// For how long each way has the interface, each time.
    pub window: Duration,
    /// How often each has it.
    pub rounds: usize,
    /// The `ashway` program, which is run as a node.
    pub program: PathBuf,
}

/// What was measured of an interface.
pub(super) struct Measured {
    pub(super) window: Duration,
    /// Nobody, then each of [`WAYS`].
    pub(super) ways: Vec<Way>,
}

/// One way to take it.
pub(super) struct Way {
    /// The word of `attach`; `None` if nobody has it.
    pub(super) word: Option<&'static str>,
    pub(super) windows: Vec<Window>,
    /// How the interface was in the last window.
    pub(super) host: Option<Host>,
    /// Why it cannot be had in this way, in the node's words.
    pub(super) refused: Option<String>,
}

/// What the host has of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Host {
    pub(super) mtu: u32,
    pub(super) offloads: Offloads,
}

/// What came in meanwhile.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) seconds: f64,
    pub(super) frames: u64,
    pub(super) bytes: u64,
    /// `None` if there is no program, or its time is not told.
    pub(super) program: Option<RunTime>,
}

impl Window {
    pub(super) fn mbit_per_s(&self) -> f64 {
        self.bytes as f64 * 8e-6 / self.seconds
    }

    pub(super) fn frames_per_s(&self) -> f64 {
        self.frames as f64 / self.seconds
    }

    /// `None` if nothing came.
    pub(super) fn bytes_a_frame(&self) -> Option<f64> {
        (self.frames > 0).then(|| self.bytes as f64 / self.frames as f64)
    }

    /// `None` if the program did not run.
    pub(super) fn program_ns(&self) -> Option<f64> {
        let time = self.program.filter(|time| time.runs > 0)?;
        Some(time.ns as f64 / time.runs as f64)
    }
}

/// Measures; takes [`Measuring::window`] for each way and round, and some 0.2 s more.
///
/// # Errors
///
/// What netlink said of the interface.
pub(super) fn measure(name: &str, how: &Measuring) -> io::Result<Measured> {
    let words = std::iter::once(None).chain(WAYS.iter().map(|(word, _)| Some(*word)));
    let mut ways: Vec<Way> = words
        .map(|word| Way {
            word,
            windows: Vec::new(),
            host: None,
            refused: None,
        })
        .collect();
    // Without the right to ask, all but the program's time is seen.
    let times = RunTimes::count().ok();
    for _ in 0..how.rounds {
        for way in ways.iter_mut().filter(|way| way.refused.is_none()) {
            let node = way.word.map(|word| Holder::start(name, word, how));
            match node.transpose() {
                Ok(_node) => {
                    way.windows.push(watch(name, how.window, times.as_ref())?);
                    let found = Iface::by_name(name)?;
                    way.host = Some(Host {
                        mtu: found.mtu,
                        offloads: found.offloads,
                    });
                }
                Err(refused) => way.refused = Some(refused),
            }
        }
    }
    Ok(Measured {
        window: how.window,
        ways,
    })
}

fn watch(name: &str, window: Duration, times: Option<&RunTimes>) -> io::Result<Window> {
    let index = iface::index(name)?;
    let mut owners = owner(index)?.into_iter().chain(tcx_owners(index));
    let ours = owners.find(Owner::is_ashway);
    let run_time = || times?.of(ours.as_ref()?.prog_id).ok();
    let begun = Instant::now();
    let (stats, time) = (iface::stats(name)?, run_time());
    std::thread::sleep(window);
    let (later, more) = (iface::stats(name)?, run_time());
    Ok(Window {
        seconds: begun.elapsed().as_secs_f64(),
        frames: later.rx_packets.saturating_sub(stats.rx_packets),
        bytes: later.rx_bytes.saturating_sub(stats.rx_bytes),
        program: time.zip(more).map(|(time, more)| RunTime {
            ns: more.ns - time.ns,
            runs: more.runs - time.runs,
        }),
    })
}

/// A node without paths that holds an interface until this is dropped; if nobody drops it, for
/// some seconds more than it is wanted.
struct Holder(Child);

impl Holder {
    fn start(iface: &str, way: &str, how: &Measuring) -> Result<Self, String> {
        let program = how.program.display();
        let failed = |doing: &str| {
            let doing = format!("cannot {doing} `{program}`");
            move |error: io::Error| format!("{doing}: {error}")
        };
        let seconds = how.window.as_secs() + 10;
        let mut child = Command::new(&how.program)
            .args(["run", "/dev/stdin", "--try", &seconds.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed("start"))?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let holder = Self(child);
        let (Some(mut stdin), Some(stdout), Some(stderr)) = pipes else {
            unreachable!("all three were asked for");
        };
        // Its name is that of its control socket.
        let name = format!("doctor-{}", std::process::id());
        let config = format!("[node]\nname = {name:?}\n[iface.{iface:?}]\nattach = {way:?}\n");
        stdin
            .write_all(config.as_bytes())
            .map_err(failed("write to"))?;
        drop(stdin);
        let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
        if lines.any(|line| line.starts_with("ready")) {
            return Ok(holder);
        }
        let lines = BufReader::new(stderr).lines().map_while(Result::ok);
        Err(reason(lines))
    }
}

/// Of what a node says that does not start: the error, and what it is because of.
fn reason(lines: impl Iterator<Item = String>) -> String {
    let parts = lines.filter_map(|line| {
        let line = line.trim_start();
        let part = line
            .strip_prefix("error: ")
            .or_else(|| line.strip_prefix("because: "));
        part.map(str::to_owned)
    });
    parts.collect::<Vec<_>>().join(": ")
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        let _ = self.0.wait();
    }
}
