//! One TCP stream between the hosts' own stacks, by `iperf3`.

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ashway_rig::{B4, Process, Rig};
use serde_json::Value;

/// Where it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TcpDirection {
    /// From A into B.
    In,
    /// From B out to A.
    Out,
}

impl TcpDirection {
    /// Both of them.
    pub(crate) const BOTH: [Self; 2] = [Self::In, Self::Out];
}

/// A server in B, which ends when this is dropped.
///
/// # Errors
///
/// If `iperf3` is not there.
pub(crate) fn server(rig: &Rig) -> Result<Process> {
    let mut command = rig.command_b("iperf3");
    command.arg("-s").stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    Process::spawn(command).context("cannot start `iperf3`; run `apt-get install -y iperf3`")
}

/// Gbit/s that were received.
///
/// # Errors
///
/// What `iperf3` said.
pub(crate) fn stream(rig: &Rig, way: TcpDirection, seconds: u32) -> Result<f64> {
    let begin = Instant::now();
    loop {
        let mut command = rig.command_a("iperf3");
        let (server, lasts) = (B4.to_string(), seconds.to_string());
        command.args(["-c", &server, "-t", &lasts, "-J"]);
        if way == TcpDirection::Out {
            command.arg("-R");
        }
        let output = command
            .output()
            .context("cannot start `iperf3`; run `apt-get install -y iperf3`")?;
        let document: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let rate = &document["end"]["sum_received"]["bits_per_second"];
        if let Some(bits) = rate.as_f64() {
            return Ok(bits / 1e9);
        }
        // At first the server may not listen yet.
        if begin.elapsed() > Duration::from_secs(10) {
            bail!("`iperf3` failed: {}", document["error"]);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
