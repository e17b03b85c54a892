//! What attaching costs the host's own bulk traffic: one TCP stream through the
//! host's stack, with Ashway attached and without.
//!
//! An XDP program on a veth switches off the peer's segmentation offload. No
//! promise is made about it; it is measured so that it can be said.

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ashway_rig::{B4, Process, Rig};
use serde_json::{Value, json};

use super::{Options, Section};
use crate::hosts;
use crate::ratio::{Ratio, Target};
use crate::stats::Spread;
use crate::table;

/// Length of one stream, in s.
const LASTS: u32 = 2;

pub(super) fn measure(options: &Options) -> Result<Section> {
    let rig = hosts::stock("tcp")?;
    let _server = server(&rig)?;
    let lasts = options.scaled(LASTS);
    let mut rounds = Vec::new();
    for _ in 0..options.rounds {
        let without = stream(&rig, lasts)?;
        let node = options.node(&rig, hosts::config("b0")?)?.start()?;
        let with = stream(&rig, lasts)?;
        node.stop()?;
        rounds.push((without, with));
    }
    let without = Spread::of(rounds.iter().map(|round| round.0)).context("no rounds")?;
    let with = Spread::of(rounds.iter().map(|round| round.1)).context("no rounds")?;
    let line = |name: &str, spread: Spread| {
        let cells = [spread.median, spread.min, spread.max].map(table::digits);
        [vec![name.to_owned()], cells.to_vec()].concat()
    };
    let lines = [line("not attached", without), line("attached", with)];
    let ratio = rounds.iter().map(|(without, with)| with / without);
    Ok(Section {
        document: json!({
            "without_gbit": without.to_json(),
            "with_gbit": with.to_json(),
        }),
        text: format!(
            "One TCP stream from A through B's own stack (Gbit/s):\n\n{}",
            table::render(&["ASHWAY", "GBIT/S", "MIN", "MAX"], 1, &lines)
        ),
        ratios: Ratio::of("tcp_with_over_without", Target::Recorded, ratio)
            .into_iter()
            .collect(),
    })
}

fn server(rig: &Rig) -> Result<Process> {
    let mut command = rig.command_b("iperf3");
    command.arg("-s").stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    Process::spawn(command).context("cannot start `iperf3`; run `apt-get install -y iperf3`")
}

/// Gbit/s that B received.
fn stream(rig: &Rig, seconds: u32) -> Result<f64> {
    let begin = Instant::now();
    loop {
        let mut command = rig.command_a("iperf3");
        let (server, lasts) = (B4.to_string(), seconds.to_string());
        command.args(["-c", &server, "-t", &lasts, "-J"]);
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
