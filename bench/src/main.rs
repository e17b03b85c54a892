//! `ashway-bench`, which `ashway bench` runs: measurements on this host.
//!
//! A program of its own beside `ashway`, so that what is shipped links neither the
//! measurements nor the test rig.

#![forbid(unsafe_code)]

use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use ashway_bench::{
    Report, copy, counter, cpus, crowd, demux, dns, drain, flood, forward, hooks, neighbour, path,
    pipes, promote, sandbox, swap,
};
use clap::{Args, Parser, Subcommand};
use serde_json::{Value, json};

/// Measure on this host, in network namespaces of its own (root)
#[derive(Debug, Parser)]
#[command(name = "ashway bench", bin_name = "ashway bench", version)]
struct Cli {
    /// Print one JSON document instead of text
    #[arg(short, long, global = true)]
    json: bool,
    /// Exit with 1 if a promise is missed, and with 3 if none is and one is undecided
    ///
    /// Undecided is a time or a ratio of times whose median is nearer to the promise than
    /// every other round is to the rounds between them, which measure the same; and one of
    /// fewer than four rounds. A count that has to be 0 is missed by a single one.
    #[arg(long, global = true)]
    judge: bool,
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Debug, Subcommand)]
enum Bench {
    /// Remote increment: socket servers, the user tier and the kernel tier
    Counter(Counter),
    /// How often a payload is copied on its way to a handler and back
    ///
    /// By whom is said by `ashway trace`; here it is counted on each rung and in each tier,
    /// of a request that fits a frame and of one in two fragments. Some seconds. Needs root
    /// and the built handlers (`cargo xtask handlers`).
    #[command(after_help = "\
Examples:
  ashway bench copy
  ashway bench copy --judge")]
    Copy,
    /// One handler of the kernel tier, asked from one CPU and from two
    ///
    /// A handler that takes about 1 us, and a client on each CPU that asks one question after the
    /// other: how long answers take beside those of one client alone, and how many messages go
    /// to the user tier because another CPU has the handler; at TCX and under native XDP. With
    /// `ASHWAY_BEFORE` also those of another `ashway`. Takes about half a minute, with another a
    /// minute, and two CPUs. Needs root.
    #[command(after_help = "\
Examples:
  ashway bench cpus --judge
  ASHWAY_BEFORE=/tmp/ashway ashway bench cpus -j > cpus.json")]
    Cpus(Rounds),
    /// One busy path beside 300 handlers and 10,000 paths that have no messages
    ///
    /// The worker's CPU time for each message of a flooded handler of the user tier: alone,
    /// beside 300 idle handlers, and beside these and 10,000 idle paths of modules. Takes
    /// about two minutes and two CPUs. Needs root.
    #[command(after_help = "\
Examples:
  ashway bench crowd
  ashway bench crowd -j > crowd.json")]
    Crowd(Rounds),
    /// Finding a frame's path among one to 100,000
    ///
    /// In the kernel tier, without an interface (`BPF_PROG_TEST_RUN`), alternating with
    /// a program that only looks the same keys up in a hash map; in the user tier;
    /// beside libpcap's filters one after the other; and while paths come and go. Takes
    /// about two and a half minutes. Needs root, gcc and libpcap-dev.
    #[command(after_help = "\
Examples:
  ashway bench demux
  ashway bench demux -j > demux.json")]
    Demux(Rounds),
    /// A DNS responder whose answers are longer than the queries, beside unbound
    ///
    /// `dnsperf` asks 50,000 times a second for names that both have: unbound, the handler in
    /// the kernel tier at TCX, in the user tier, and in the kernel tier under XDP. Average
    /// latency, CPU time a query, and which part of the messages the kernel tier ran. Takes two
    /// and a half minutes and two CPUs. Needs root, `unbound`, `dnsperf` and the built handlers
    /// (`cargo xtask handlers`).
    #[command(after_help = "\
Examples:
  ashway bench dns --judge
  ashway bench dns -j > dns.json")]
    Dns(Rounds),
    /// How fast the user tier takes messages, beside a busy socket
    ///
    /// Live frames, each written anew, from one CPU; on the other a program that calls
    /// recvmmsg(2), a handler that consumes, one that answers, and a path whose first
    /// stage ends them, which is what the worker's loop costs. With `ASHWAY_BEFORE` also
    /// those of another `ashway`. Takes a minute, with another two, and two CPUs. Needs
    /// root, gcc, ethtool and the built handlers (`cargo xtask handlers`).
    #[command(after_help = "\
Examples:
  ashway bench drain
  ASHWAY_BEFORE=/tmp/ashway ashway bench drain -j > drain.json")]
    Drain(Rounds),
    /// A path flooded at ten times its share, beside a neighbour
    ///
    /// A neighbour asked 20,000 times a second on the same receive queue: alone, beside
    /// a flood of a path with a share, the same without, and one that is dropped at once;
    /// and what is done for the flooded path as its load rises. Takes two minutes
    /// and two CPUs. Needs root and the built handlers (`cargo xtask handlers`).
    #[command(after_help = "\
Examples:
  ashway bench flood
  ashway bench flood -j > flood.json")]
    Flood(Rounds),
    /// A UDP relay: sockets, Linux, XDP by hand, both tiers
    ///
    /// From A through B to C, three network namespaces: rate, CPU time, jitter and
    /// transit, beside 0 and 8 busy loops; the kernel tier's programs alone and both
    /// tiers on a node. Takes about four minutes. Needs root, clang-19, libbpf-dev and
    /// gcc.
    #[command(after_help = "\
Examples:
  ashway bench forward
  ashway bench forward -j > forward.json")]
    Forward(Rounds),
    /// What a node costs its host at each hook, and how fast it answers there
    Hooks(Hooks),
    /// What a handler that spends its budget costs the paths beside it
    ///
    /// A counter asked in turn, beside neighbours that spend 50 us or 10 us of the same
    /// receive queue 1,000 times a second, and a control that returns at once: p50 and
    /// tails beside those of the counter alone, and what it lost. Takes three and a half
    /// minutes and two CPUs. Needs the built handlers (`cargo xtask handlers`).
    #[command(after_help = "\
Examples:
  ashway bench neighbour
  ashway bench neighbour -j > neighbour.json")]
    Neighbour(Rounds),
    /// Creating and removing paths on a running node, one to 100,000
    Path(Path),
    /// Data manipulations: separate passes, by hand in C, and fused at run time
    ///
    /// Copy, checksum and byteswap of 64 B to 64 KiB and of 64 MiB, cached and flushed,
    /// in one process that also runs our code (ASH, Tables III and IV); calls from Rust
    /// beside crates; pipes in Wasm beside the same built in; what the rule
    /// `fuse-checksum` saves; the compiler. As root also the kernel tier, and whole
    /// handlers in both tiers beside the same in Wasm and by hand for XDP. Some two
    /// minutes. Needs clang-19, and libbpf-dev as root.
    #[command(after_help = "\
Examples:
  ashway bench pipes
  ashway bench pipes -j > pipes.json")]
    Pipes(Rounds),
    /// What loops cost, for the compiler's own table (`ashway pipe calibrate`)
    #[command(hide = true)]
    Calibrate,
    /// Programs in the kernel tier, in Wasmtime and as native code
    Promote(Promote),
    /// A remote write with and without what keeps a handler from harm
    ///
    /// Runs without an interface (`BPF_PROG_TEST_RUN`), alternating with a build for
    /// measuring only, without bounds of memory and fuel. Takes about two minutes.
    #[command(after_help = "\
Examples:
  ashway bench sandbox
  ashway bench sandbox -j > sandbox.json")]
    Sandbox(Rounds),
    /// Versions of a handler that take over from each other under traffic
    ///
    /// 1,000,000 messages of two flows on two receive queues while a handler is swapped
    /// 1,000 times and its path promoted and demoted: what was lost, doubled, overtaken
    /// or met by two versions, and how long messages waited for a swap. Takes about
    /// half a minute. Needs root and the built handlers (`cargo xtask handlers`).
    #[command(after_help = "\
Examples:
  ashway bench swap
  ashway bench swap -j > swap.json")]
    Swap {
        /// A twentieth of everything: whether it works, not how fast
        #[arg(long)]
        quick: bool,
    },
}

/// Remote increment: socket servers, the user tier and the kernel tier
///
/// Every promised number as a ratio measured side by side: round trips beside 0
/// and 8 busy loops, the kernel tier beside a program written by hand, a flood,
/// start and promotion, and TCP through the host's own stack. Takes some
/// minutes. Needs the built handlers (`cargo xtask handlers`), clang-19,
/// libbpf-dev and iperf3.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ashway bench counter
  ashway bench counter --quick
  ashway bench counter -j > counter.json")]
struct Counter {
    #[command(flatten)]
    rounds: Rounds,
    /// Requests of each row, all rounds together
    #[arg(long, default_value_t = 20_000)]
    requests: u32,
    /// Only this part: rows, testrun, flood, promotion or tcp
    #[arg(long, value_name = "PART")]
    only: Option<String>,
}

/// How long to measure.
#[derive(Debug, Args)]
struct Rounds {
    /// Alternating rounds; a ratio is their median
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// One round and a tenth of everything: whether it works, not how fast
    #[arg(long)]
    quick: bool,
}

/// Creating and removing paths on a running node, one to 100,000
///
/// Times of one path, of a shape that is there (a map entry) and of a new one (data, and
/// a new entry program behind it); memory of 100,000 live paths; growth over 1,000,000 that come
/// and go. Takes some minutes.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ashway bench path
  ashway bench path --quick
  ashway bench path -j > path.json")]
struct Path {
    /// A hundredth of everything: whether it works, not how fast
    #[arg(long)]
    quick: bool,
}

/// What a node costs its host at each hook, and how fast it answers there
///
/// One TCP stream into the host's own stack and one out of it, with nothing attached, with a
/// node at TCX and with one under XDP, in pairs; then remote increments at both, and by a TC
/// program written by hand. Takes three minutes. Needs root, `clang-19`, `libbpf-dev`,
/// `iperf3` and `ethtool`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ashway bench hooks --judge
  ashway bench hooks --quick")]
struct Hooks {
    /// Rounds; each has all cases in turn
    #[arg(long, default_value_t = 15, value_name = "N")]
    rounds: usize,
    /// Two rounds and a tenth of the requests: whether it works, not how fast
    #[arg(long)]
    quick: bool,
}

/// Programs in the kernel tier, in Wasmtime and as native code
///
/// Runs without an interface (`BPF_PROG_TEST_RUN`), alternating. Compares
/// bodies: the time of a call less that of a handler that does nothing. Takes
/// about two minutes. Needs the built programs (`cargo xtask programs`).
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ashway bench promote
  ashway bench promote -j > promote.json")]
struct Promote {
    #[command(flatten)]
    rounds: Rounds,
    /// Where the built programs are
    #[arg(long, value_name = "DIR", default_value = "target/programs")]
    programs: PathBuf,
}

impl Bench {
    fn run(self) -> Result<Report> {
        let binary = ashway();
        match self {
            Self::Calibrate => pipes::calibrate().map(|table| Report {
                document: json!({ "table": &table }),
                text: table,
            }),
            Self::Counter(Counter {
                rounds,
                requests,
                only,
            }) => counter::run(&counter::Options {
                rounds: rounds.rounds.max(1),
                requests: requests.max(1),
                quick: rounds.quick,
                only,
                binary,
            }),
            Self::Copy => copy::run(&copy::Options { binary }),
            Self::Cpus(Rounds { rounds, quick }) => cpus::run(&cpus::Options {
                rounds,
                quick,
                binary,
            }),
            Self::Crowd(Rounds { rounds, quick }) => crowd::run(&crowd::Options {
                rounds,
                quick,
                binary,
            }),
            Self::Demux(Rounds { rounds, quick }) => demux::run(&demux::Options { rounds, quick }),
            Self::Dns(Rounds { rounds, quick }) => dns::run(&dns::Options {
                rounds,
                quick,
                binary,
            }),
            Self::Drain(Rounds { rounds, quick }) => drain::run(&drain::Options {
                rounds,
                quick,
                binary,
                before: std::env::var_os("ASHWAY_BEFORE").map(PathBuf::from),
            }),
            Self::Forward(Rounds { rounds, quick }) => forward::run(&forward::Options {
                rounds,
                quick,
                binary,
            }),
            Self::Flood(Rounds { rounds, quick }) => flood::run(&flood::Options {
                rounds,
                quick,
                binary,
            }),
            Self::Hooks(Hooks { rounds, quick }) => hooks::run(&hooks::Options {
                rounds,
                quick,
                binary,
            }),
            Self::Neighbour(Rounds { rounds, quick }) => neighbour::run(&neighbour::Options {
                rounds,
                quick,
                binary,
            }),
            Self::Path(Path { quick }) => path::run(&path::Options { quick, binary }),
            Self::Pipes(Rounds { rounds, quick }) => pipes::run(&pipes::Options { rounds, quick }),
            Self::Promote(Promote { rounds, programs }) => promote::run(&promote::Options {
                rounds: rounds.rounds.max(1),
                quick: rounds.quick,
                folder: programs,
            }),
            Self::Swap { quick } => swap::run(&swap::Options { quick, binary }),
            Self::Sandbox(Rounds { rounds, quick }) => {
                sandbox::run(&sandbox::Options { rounds, quick })
            }
        }
    }
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    match cli.bench.run() {
        Ok(report) => {
            let shown = show(cli.json, &report.document, &report.text);
            if cli.judge {
                judge(&report.document)
            } else {
                shown
            }
        }
        Err(error) => fail(cli.json, &error),
    }
}

/// The program to measure: `ASHWAY_BIN`, or the one beside this.
fn ashway() -> Option<PathBuf> {
    let beside = || Some(std::env::current_exe().ok()?.with_file_name("ashway"));
    std::env::var_os("ASHWAY_BIN").map_or_else(beside, |path| Some(path.into()))
}

fn show(json: bool, document: &Value, text: &str) -> ExitCode {
    let mut out = std::io::stdout();
    let put = if json {
        writeln!(out, "{document:#}")
    } else {
        writeln!(out, "{}", text.trim_end_matches('\n'))
    };
    match put {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            eprintln!("error: the result cannot be written to standard output\n  because: {error}");
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

/// The worst of all verdicts; of a measurement without any promise, that.
fn judge(document: &Value) -> ExitCode {
    let ratios = document["ratios"].as_object().into_iter().flatten();
    let of = |word: &str| {
        let named = ratios.clone().filter(|(_, ratio)| ratio["verdict"] == word);
        named.map(|(name, _)| name.as_str()).collect::<Vec<_>>()
    };
    let [kept, missed, undecided] = ["kept", "missed", "undecided"].map(of);
    for (word, names) in [("missed", &missed), ("undecided", &undecided)] {
        for name in names {
            eprintln!("{word}: {name}");
        }
    }
    match (kept.is_empty(), missed.is_empty(), undecided.is_empty()) {
        (_, false, _) => ExitCode::from(1),
        (false, true, true) => ExitCode::SUCCESS,
        (true, true, true) => {
            eprintln!("undecided: nothing was promised of this, so nothing was judged");
            ExitCode::from(3)
        }
        _ => ExitCode::from(3),
    }
}

/// As `ashway` says it: `error / because / hint`, or a document.
fn fail(json: bool, error: &anyhow::Error) -> ExitCode {
    let root = rustix::process::geteuid().is_root();
    let (code, number) = if root {
        ("failed", 1)
    } else {
        ("privilege_missing", 4)
    };
    let because: Vec<String> = error.chain().map(ToString::to_string).collect();
    let hint = (!root).then_some("measuring takes root");
    if json {
        let document = refusal(code, "the measurement failed", &because, hint);
        println!("{document:#}");
    } else {
        eprintln!("error: the measurement failed");
        for cause in because.iter().flat_map(|cause| cause.lines()) {
            eprintln!("  because: {cause}");
        }
        if let Some(hint) = hint {
            eprintln!("  hint: {hint}");
        }
    }
    ExitCode::from(number)
}

/// What clap found wrong with the command line, or the help asked for.
fn usage(error: &clap::Error) -> ExitCode {
    let asked_for_json = std::env::args().any(|arg| arg == "-j" || arg == "--json");
    if error.use_stderr() && asked_for_json {
        let text = error.to_string();
        let message = text.lines().next().unwrap_or_default();
        let message = message.strip_prefix("error: ").unwrap_or(message);
        let document = refusal("usage", message, &[], Some("see `ashway bench --help`"));
        println!("{document:#}");
    } else {
        // Where there is no one left to read, there is no one to tell.
        let _ = error.print();
    }
    ExitCode::from(if error.use_stderr() { 2 } else { 0 })
}

fn refusal(code: &str, message: &str, because: &[String], hint: Option<&str>) -> Value {
    json!({ "error": {
        "code": code,
        "message": message,
        "because": because,
        "file": null,
        "line": null,
        "hint": hint,
    }})
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_grammar_is_consistent() {
        Cli::command().debug_assert();
    }
}
