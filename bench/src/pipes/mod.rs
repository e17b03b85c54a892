//! `ashway bench pipes`: passes one after the other, loops integrated by hand, and
//! pipes fused at run time.
//!
//! Tables III and IV of the ASH paper (§V.A) again, in one process of C
//! (`peers/pipes.c`) that also runs our code: [`peer`]. [`here`] measures what a
//! caller in Rust gets, beside well-kept crates, a pipe in Wasm beside the same one
//! built in, and the compiler; [`kernel`] the kernel tier's loops, by
//! `BPF_PROG_TEST_RUN`, with the right to load programs, and [`handlers`] whole handlers.
//! Everything takes turns; a ratio is the median of the rounds.

mod calibrate;
mod handlers;
mod here;
mod kernel;
mod peer;

use anyhow::{Result, bail};
use ashway_handler::native;
use serde_json::json;

use crate::Report;
use crate::ratio::{self, Ratio, Target};
use crate::table;
pub use calibrate::calibrate;
use handlers::Handlers;
use peer::{LARGE, Measured, SIZES, Source};

/// How much to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Rounds; a ratio is their median.
    pub rounds: usize,
    /// One round and fewer calls: whether it works, not how fast.
    pub quick: bool,
}

/// Measures; some two minutes on a quiet machine.
///
/// The document: `{"peer":[...],"here":[...],"kernel":[...],"handlers":[...],"ratios":{...}}`;
/// times in ns.
///
/// # Errors
///
/// If this CPU has no native form, the compiler for C is missing, or two ways do
/// not do the same.
pub fn run(options: &Options) -> Result<Report> {
    let rounds = if options.quick {
        1
    } else {
        options.rounds.max(1)
    };
    let Some(cpu) = native::cpu() else {
        bail!(
            "this CPU has no AVX2 and BMI2: pipes run in the portable form, which this does not measure"
        );
    };
    eprintln!("measuring passes, loops by hand and fused pipes ...");
    let measured = peer::run(cpu, rounds, options.quick)?;
    eprintln!("measuring calls from Rust, and the compiler ...");
    let here = here::run(cpu, rounds, options.quick)?;
    let mut ratios = ratios(&measured);
    ratios.extend(here.ratios);
    eprintln!("measuring the kernel tier ...");
    let kernel = kernel::run(rounds, options.quick)?;
    ratios.extend(kernel.ratios);
    let mut handlers = Handlers::default();
    if !kernel.cases.is_empty() {
        eprintln!("measuring handlers ...");
        handlers = handlers::run(rounds, options.quick)?;
    }
    ratios.extend(handlers.ratios);
    let text = [
        table_3(&measured),
        table_4(&measured),
        sizes(&measured),
        memory(&measured),
        here.text,
        kernel.text,
        handlers.text,
        ratio::render(&ratios),
    ]
    .join("\n");
    let document = json!({
        "isa": format!("{:?}", cpu.isa),
        "peer": measured.to_json(),
        "here": here.cases,
        "kernel": kernel.cases,
        "handlers": handlers.cases,
        "ratios": ratio::to_json(&ratios),
    });
    Ok(Report { document, text })
}

/// The size of the paper's tables.
const PAGE: usize = 4096;

/// MB/s of one way, `-` if it was not measured.
fn rate(measured: &Measured, source: Source, list: &str, bytes: usize, way: &str) -> String {
    measured.median(source, list, bytes, way).map_or_else(
        || "-".to_owned(),
        |ns| table::digits(bytes as f64 / ns * 1e3),
    )
}

fn table_3(measured: &Measured) -> String {
    let cell = |source, list| rate(measured, source, list, PAGE, "separate");
    let rows = [
        vec![
            "ASH, 1996".to_owned(),
            "20".into(),
            "14".into(),
            "11".into(),
        ],
        vec![
            "here".to_owned(),
            cell(Source::Cached, "copy"),
            cell(Source::Cached, "copy2"),
            cell(Source::Flushed, "copy2"),
        ],
        vec![
            "here, source flushed".to_owned(),
            cell(Source::Cold, "copy"),
            cell(Source::Cold, "copy2"),
            cell(Source::Flushed, "copy2"),
        ],
    ];
    let header = ["", "COPY", "TWO COPIES", "TWO, FLUSHED BETWEEN"];
    format!(
        "ASH, Table III: copies of {PAGE} B, MB/s:\n\n{}",
        table::render(&header, 1, &rows)
    )
}

fn table_4(measured: &Measured) -> String {
    let row = |name: &str, paper: [&str; 2], source, cold, way: &dyn Fn(Source, &str) -> String| {
        let mut row = vec![name.to_owned(), paper[0].into(), paper[1].into()];
        for source in [source, cold] {
            row.extend(["sum", "sum_swap"].map(|list| way(source, list)));
        }
        row
    };
    let of = |way: &'static str| move |source, list: &str| rate(measured, source, list, PAGE, way);
    let hand = |source, list: &str| {
        let ns = measured.best_by_hand(source, list, PAGE);
        ns.map_or_else(
            || "-".to_owned(),
            |ns| table::digits(PAGE as f64 / ns * 1e3),
        )
    };
    let (cached, cold, flushed) = (Source::Cached, Source::Cold, Source::Flushed);
    let rows = [
        row("separate", ["11", "5.8"], cached, cold, &of("separate")),
        row(
            "separate, flushed between",
            ["10", "5.1"],
            flushed,
            flushed,
            &of("separate"),
        ),
        row("C integrated", ["16", "8.3"], cached, cold, &hand),
        row("pipes", ["17", "8.2"], cached, cold, &of("ours")),
    ];
    let header = [
        "METHOD",
        "1996: SUM",
        "SUM+SWAP",
        "CACHED: SUM",
        "SUM+SWAP",
        "SOURCE FLUSHED: SUM",
        "SUM+SWAP",
    ];
    format!(
        "ASH, Table IV: copy and checksum, copy and checksum and byteswap, {PAGE} B, MB/s:\n\n{}",
        table::render(&header, 1, &rows)
    )
}

/// All sizes: ns, and what separate passes and the loop by hand take of ours.
fn sizes(measured: &Measured) -> String {
    let mut rows = Vec::new();
    for source in [Source::Cached, Source::Cold, Source::Flushed] {
        for list in ["copy", "sum", "sum_swap"] {
            for bytes in SIZES {
                let ns = |way| measured.median(source, list, bytes, way);
                let hand = measured.best_by_hand(source, list, bytes);
                let cell = |ns: Option<f64>| ns.map_or_else(|| "-".to_owned(), table::digits);
                let (separate, ours) = (ns("separate"), ns("ours"));
                let over = |other: Option<f64>| cell(other.zip(ours).map(|(a, b)| a / b));
                let lost = [separate, hand]
                    .iter()
                    .flatten()
                    .any(|other| ours.is_some_and(|ours| *other < ours));
                rows.push(vec![
                    source.name().to_owned(),
                    list.to_owned(),
                    bytes.to_string(),
                    cell(separate),
                    cell(hand),
                    cell(ours),
                    over(separate),
                    over(hand),
                    if lost { "loses" } else { "" }.to_owned(),
                ]);
            }
        }
    }
    let header = [
        "SOURCE",
        "LIST",
        "BYTES",
        "SEPARATE",
        "BY HAND",
        "PIPES",
        "SEPARATE/PIPES",
        "BY HAND/PIPES",
        "",
    ];
    format!(
        "All sizes, ns a message, the better one of two loops by hand:\n\n{}",
        table::render(&header, 2, &rows)
    )
}

fn memory(measured: &Measured) -> String {
    let mut rows = Vec::new();
    for list in ["copy", "sum", "sum_swap"] {
        for way in ["separate", "streaming", "hand", "ours", "ours_streaming"] {
            let Some(spread) = measured.spread(Source::Memory, list, LARGE, way) else {
                continue;
            };
            let gb = |ns: f64| table::digits(LARGE as f64 / ns);
            rows.push(vec![
                list.to_owned(),
                way.replace('_', ", "),
                table::digits(spread.median / 1e6),
                gb(spread.median),
                gb(spread.max),
                gb(spread.min),
            ]);
        }
    }
    let header = ["LIST", "WAY", "MS", "GB/S", "MIN", "MAX"];
    format!(
        "64 MiB from memory; `streaming` stores past the caches:\n\n{}",
        table::render(&header, 2, &rows)
    )
}

fn ratios(measured: &Measured) -> Vec<Ratio> {
    let by_hand = |name, list, bytes, target| {
        let rounds = measured.rounds_by_hand(Source::Cached, list, bytes);
        Ratio::of(name, target, rounds)
    };
    let of = |name, source, list, bytes, [over, under]: [&str; 2], target| {
        Ratio::of(
            name,
            target,
            measured.ratio(source, list, bytes, over, under),
        )
    };
    let (sum, both) = ("sum", "sum_swap");
    let (cached, flushed) = (Source::Cached, Source::Flushed);
    let separate = ["separate", "ours"];
    let across = ["ours_streaming", "streaming"];
    [
        by_hand(
            "copy+checksum, by hand / pipes, 1472 B",
            sum,
            1472,
            Target::AtLeast(1.0),
        ),
        by_hand(
            "copy+checksum, by hand / pipes, 4096 B",
            sum,
            PAGE,
            Target::AtLeast(1.0),
        ),
        by_hand(
            "the same with byteswap, 1472 B",
            both,
            1472,
            Target::Recorded,
        ),
        by_hand(
            "the same with byteswap, 4096 B",
            both,
            PAGE,
            Target::Recorded,
        ),
        of(
            "copy+checksum, separate / pipes, 4096 B",
            cached,
            sum,
            PAGE,
            separate,
            Target::Recorded,
        ),
        of(
            "copy+checksum+byteswap, separate / pipes, 1472 B",
            cached,
            both,
            1472,
            separate,
            Target::AtLeast(1.25),
        ),
        of(
            "copy+checksum+byteswap, separate / pipes, 4096 B",
            cached,
            both,
            PAGE,
            separate,
            Target::AtLeast(1.25),
        ),
        of(
            "the same, flushed, 1472 B",
            flushed,
            both,
            1472,
            separate,
            Target::AtLeast(2.0),
        ),
        of(
            "the same, flushed, 4096 B",
            flushed,
            both,
            PAGE,
            separate,
            Target::AtLeast(2.0),
        ),
        Ratio::of(
            "copy+checksum of 64 MiB / streaming copy",
            Target::AtMost(1.1),
            measured.across(LARGE, [sum, "copy"], across),
        ),
        Ratio::of(
            "copy+checksum of 64 MiB, cached stores / memcpy",
            Target::AtMost(1.1),
            measured.across(LARGE, [sum, "copy"], ["ours", "separate"]),
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}
