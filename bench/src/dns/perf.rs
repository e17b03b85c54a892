//! One run of `dnsperf`, and what the machine did meanwhile.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use ashway_rig::{B4, Rig};

use super::servers::Server;

/// Queries a second.
pub(super) const RATE: &str = "50000";

/// What one run of `dnsperf` found.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct DnsperfRun {
    pub(super) completed: u64,
    pub(super) lost: u64,
    /// Messages with which a node's handler was stopped.
    pub(super) stopped: u64,
    pub(super) latency_us: f64,
    /// Bytes of a query and of a response, on average.
    pub(super) sizes: (u64, u64),
    pub(super) cpu_us: f64,
    /// Part of the messages that the kernel tier ran; 0 of unbound.
    pub(super) kernel_share: f64,
}

/// One run of `dnsperf`.
pub(super) fn ask(rig: &Rig, server: &Server, queries: &Path, seconds: u32) -> Result<DnsperfRun> {
    let before = server.messages()?;
    let mut dnsperf = rig.command_a("dnsperf");
    dnsperf.args([
        "-s",
        &B4.to_string(),
        "-Q",
        RATE,
        "-l",
        &seconds.to_string(),
        // As long it waits for a lost answer, and the machine for what is not measured.
        "-t",
        "1",
        "-d",
    ]);
    let (printed, cpu_ns) = busy(dnsperf.arg(queries))?;
    let mut run = parse(&printed).with_context(|| format!("`dnsperf` printed:\n{printed}"))?;
    run.cpu_us = cpu_ns / 1e3 / run.completed as f64;
    let after = server.messages()?;
    let all = after.received - before.received;
    if all > 0 {
        run.kernel_share = 1.0 - (after.crossed - before.crossed) as f64 / all as f64;
    }
    run.stopped = after.stopped - before.stopped;
    Ok(run)
}

/// Runs a command; what it printed, and how long the CPUs were busy meanwhile, in ns.
fn busy(command: &mut Command) -> Result<(String, f64)> {
    let (begin, before) = (Instant::now(), stat()?);
    let output = command
        .output()
        .context("cannot start `dnsperf`; run `apt-get install -y dnsperf`")?;
    let (elapsed, after) = (begin.elapsed(), stat()?);
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "`dnsperf` failed: {}",
        errors.trim()
    );
    let rest = resting(&after)? - resting(&before)?;
    let busy = elapsed.as_nanos() as f64 * cpus(&after) as f64 - rest;
    Ok((String::from_utf8_lossy(&output.stdout).into_owned(), busy))
}

fn stat() -> Result<String> {
    fs::read_to_string("/proc/stat").context("cannot read `/proc/stat`")
}

/// How long all CPUs have been idle or stolen, in ns. The kernel measures idle time by a
/// clock, and the time of tasks and softirq only by ticks, with which a client that sleeps
/// for a rate's sake keeps step.
fn resting(stat: &str) -> Result<f64> {
    /// Of a field: `USER_HZ` is 100 on every architecture that this runs on.
    const TICK_NS: f64 = 1e7;
    // user nice system idle iowait irq softirq steal: proc_stat(5)
    let first = stat.lines().next().unwrap_or_default();
    let fields: Vec<&str> = first.split_whitespace().skip(1).collect();
    let of = |field: usize| -> Result<u64> {
        let field = fields.get(field).context("a short `/proc/stat`")?;
        Ok(field.parse()?)
    };
    Ok((of(3)? + of(4)? + of(7)?) as f64 * TICK_NS)
}

/// CPUs that are counted there: all, also where this process may not use all.
fn cpus(stat: &str) -> usize {
    let of_one = |line: &&str| line.starts_with("cpu") && !line.starts_with("cpu ");
    stat.lines().filter(of_one).count()
}

/// Reads the statistics of dnsperf 2.10.
fn parse(printed: &str) -> Result<DnsperfRun> {
    let after = |label: &str| {
        let mut lines = printed.lines().map(str::trim);
        let rest = lines.find_map(|line| line.strip_prefix(label));
        rest.map(str::trim)
            .with_context(|| format!("no line `{label}`"))
    };
    let first = |label: &str| -> Result<&str> {
        Ok(after(label)?.split([' ', ',']).next().unwrap_or_default())
    };
    let completed = first("Queries completed:")?.parse()?;
    let codes = after("Response codes:")?;
    ensure!(
        codes == format!("NOERROR {completed} (100.00%)"),
        "response codes: {codes}"
    );
    let sizes = after("Average packet size:")?.replace(',', "");
    let mut words = sizes.split(' ');
    let (query, response) = (words.nth(1), words.nth(1));
    let seconds: f64 = first("Average Latency (s):")?.parse()?;
    Ok(DnsperfRun {
        completed,
        lost: first("Queries lost:")?.parse()?,
        latency_us: seconds * 1e6,
        sizes: (
            query.context("no size of a query")?.parse()?,
            response.context("no size of a response")?.parse()?,
        ),
        ..DnsperfRun::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = "Statistics:

  Queries sent:         100000
  Queries completed:    99998 (100.00%)
  Queries lost:         2 (0.00%)

  Response codes:       NOERROR 99998 (100.00%)
  Average packet size:  request 33, response 49
  Run time (s):         2.000021
  Queries per second:   49998.475016

  Average Latency (s):  0.000017 (min 0.000009, max 0.002431)
  Latency StdDev (s):   0.000021
";

    #[test]
    fn what_dnsperf_prints_is_read() {
        let run = parse(PRINTED).unwrap();
        assert_eq!((run.completed, run.lost, run.sizes), (99998, 2, (33, 49)));
        assert!((run.latency_us - 17.0).abs() < 1e-9);
    }

    #[test]
    fn what_a_machine_rests_is_read() {
        let stat = "cpu  7 1 2 30 4 0 5 6 0 0\ncpu0 3 1 1 15 2 0 2 3 0 0\ncpu1 4 0 1 15 2 0 3 3 0 0\nintr 8\n";
        assert!((resting(stat).unwrap() - 400_000_000.0).abs() < 1e-9);
        assert_eq!(cpus(stat), 2);
        assert!(resting("cpu 1").is_err());
    }

    #[test]
    fn answers_that_are_errors_are_no_answers() {
        let printed = PRINTED.replace("NOERROR 99998 (100.00%)", "NXDOMAIN 99998 (100.00%)");
        assert!(parse(&printed).is_err());
    }
}
