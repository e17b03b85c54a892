//! The user tier: the table itself, beside the standard library's hash map.
//!
//! * **walk**: `Headers::parse`, which both sides need and neither includes;
//! * **demux**: `Table::find` on what the walk found;
//! * **bare**: the same key from the same headers, one look-up in a `HashMap` of
//!   the same keys and values, nothing else.

use std::collections::HashMap;
use std::hint::black_box;
use std::time::Instant;

use anyhow::{Result, anyhow, ensure};
use ashway_demux::{self as demux, Filter, Table};
use ashway_wire::Headers;
use serde_json::json;

use super::program::{self, Case};
use super::{PATHS, Part};
use crate::ratio::{Ratio, Target};
use crate::stats::Spread;
use crate::table;

/// Frames that are asked for in turn.
const FRAMES: usize = 65_536;

/// Passes over the frames in a round, of which the best counts.
const PASSES: usize = 20;

/// Most filters of the tables whose insertion is timed.
const INSERTED: u32 = 100_000;

/// A table with its frames.
pub(super) struct Tier {
    table: Table<u32>,
    bare: HashMap<[u8; 8], u32>,
    frames: Vec<[u8; 64]>,
    walked: Vec<Headers>,
}

impl Tier {
    /// Of `paths` filters of one shape; frames are drawn uniformly.
    pub(super) fn new(paths: u32) -> Result<Self> {
        let mut drawn = 0_u64;
        let frames: Vec<[u8; 64]> = (0..FRAMES)
            .map(|_| {
                drawn = drawn
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_041);
                program::frame_of((((drawn >> 32) * u64::from(paths)) >> 32) as u32)
            })
            .collect();
        let tier = Self {
            table: program::table(paths)?,
            bare: (0..paths)
                .map(|path| (key(&Headers::parse(&program::frame_of(path))), path))
                .collect(),
            walked: frames.iter().map(|frame| Headers::parse(frame)).collect(),
            frames,
        };
        for (headers, frame) in tier.walked.iter().zip(&tier.frames) {
            let found = tier.table.find(headers, frame);
            ensure!(found.is_some() && found == tier.bare.get(&key(headers)).copied());
        }
        Ok(tier)
    }

    /// ns per frame of walk, demux, bare: the best pass of each.
    fn times(&self, case: Case) -> [f64; 3] {
        let at = |i: usize| if case == Case::Hot { 0 } else { i };
        let mut best = [f64::INFINITY; 3];
        for _ in 0..PASSES {
            let times = [
                pass(|i| {
                    black_box(Headers::parse(black_box(&self.frames[at(i)])));
                }),
                pass(|i| {
                    let headers = black_box(&self.walked[at(i)]);
                    black_box(self.table.find(headers, &self.frames[at(i)]));
                }),
                pass(|i| {
                    let headers = black_box(&self.walked[at(i)]);
                    black_box(self.bare.get(&key(headers)));
                }),
            ];
            best = [0, 1, 2].map(|of| best[of].min(times[of]));
        }
        best
    }

    /// ns to walk and find: of all frames, or of the one for the `first` or `last`
    /// path.
    pub(super) fn whole_ns(&self, keys: &str) -> f64 {
        let one = match keys {
            "first" => Some(program::frame_of(0)),
            "last" => Some(program::frame_of(self.table.len() as u32 - 1)),
            _ => None,
        };
        let passes = (0..PASSES).map(|_| {
            pass(|i| {
                let frame = black_box(one.as_ref().unwrap_or(&self.frames[i]));
                black_box(self.table.find(&Headers::parse(frame), frame));
            })
        });
        passes.fold(f64::INFINITY, f64::min)
    }
}

fn key(headers: &Headers) -> [u8; 8] {
    let mut key = [0; 8];
    key[..4].copy_from_slice(&headers.source[..4]);
    key[4..6].copy_from_slice(&headers.destination_port.to_be_bytes());
    key
}

/// ns per turn.
fn pass(turn: impl Fn(usize)) -> f64 {
    let begun = Instant::now();
    for i in 0..FRAMES {
        turn(i);
    }
    begun.elapsed().as_nanos() as f64 / FRAMES as f64
}

/// Measures look-ups by number of paths and of shapes, and insertions.
pub(super) fn run(rounds: usize) -> Result<Part> {
    let mut part = Part::default();
    let mut lines = Vec::new();
    let mut worst = vec![0.0_f64; rounds];
    for paths in PATHS {
        eprintln!("measuring {paths} paths in the user tier ...");
        let tier = Tier::new(paths)?;
        for case in [Case::Uniform, Case::Hot] {
            let times: Vec<[f64; 3]> = (0..rounds).map(|_| tier.times(case)).collect();
            let ratio = times.iter().map(|[_, demux, bare]| demux / bare);
            let spread = |of: usize| Spread::of(times.iter().map(|times| times[of]));
            let [Some(walk), Some(demux), Some(bare)] = [0, 1, 2].map(spread) else {
                continue;
            };
            let Some(over) = Spread::of(ratio.clone()) else {
                continue;
            };
            lines.push(vec![
                paths.to_string(),
                case.word().to_owned(),
                format!("{:.1}", walk.median),
                format!("{:.1}", demux.median),
                format!("{:.1}", bare.median),
                table::digits(over.median),
            ]);
            part.cases.push(json!({
                "user_paths": paths,
                "keys": case.word(),
                "walk_ns": walk.to_json(),
                "demux_ns": demux.to_json(),
                "bare_ns": bare.to_json(),
                "demux_over_bare": over.to_json(),
            }));
            if case == Case::Uniform {
                for (worst, ratio) in worst.iter_mut().zip(ratio) {
                    *worst = worst.max(ratio);
                }
            }
        }
    }
    part.ratios.extend(Ratio::of(
        "user_demux_over_hash_map_worst",
        Target::AtMost(1.2),
        worst,
    ));
    let header = ["PATHS", "KEYS", "WALK", "DEMUX", "BARE", "DEMUX/BARE"];
    part.text = format!(
        "The same in the user tier, ns, the best passes of each round:\n\n{}\n{}\n{}",
        table::render(&header, 2, &lines),
        shapes(&mut part, rounds)?,
        insertions(&mut part, rounds)?,
    );
    Ok(part)
}

/// A frame that only the last of some shapes has an entry for, all others being
/// looked up in vain.
fn shapes(part: &mut Part, rounds: usize) -> Result<String> {
    let mut lines = Vec::new();
    for shapes in [1, 5, 17, 33] {
        let mut table = Table::default();
        insert(&mut table, &parse("udp")?, 0)?;
        for bits in 1..shapes {
            let text = format!("ip and udp and src net 128.0.0.0/{bits}");
            insert(&mut table, &parse(&text)?, bits)?;
        }
        let frame = program::frame_of(0);
        let headers = Headers::parse(&frame);
        ensure!(table.find(&headers, &frame) == Some(0), "the last shape");
        let round = || {
            let find = |_| {
                black_box(table.find(black_box(&headers), &frame));
            };
            (0..PASSES)
                .map(|_| pass(find))
                .fold(f64::INFINITY, f64::min)
        };
        let Some(ns) = Spread::of((0..rounds).map(|_| round())) else {
            continue;
        };
        lines.push(vec![
            table.shapes().len().to_string(),
            format!("{:.1}", ns.median),
            format!("{:.1}", ns.min),
            format!("{:.1}", ns.max),
        ]);
        part.cases
            .push(json!({ "shapes": table.shapes().len(), "find_ns": ns.to_json() }));
        // `udp` is two shapes, so six are tried.
        if shapes == 5 {
            let of_five = [ns.median];
            part.ratios
                .extend(Ratio::of("five_shapes_ns", Target::AtMost(100.0), of_five));
        }
    }
    let header = ["SHAPES", "MEDIAN", "MIN", "MAX"];
    Ok(format!(
        "All shapes tried, the last one's entry found, ns:\n\n{}",
        table::render(&header, 0, &lines)
    ))
}

/// Insertions into one shape, and into sixteen that are equally specific.
fn insertions(part: &mut Part, rounds: usize) -> Result<String> {
    let mut lines = Vec::new();
    for shapes in [1, 16] {
        for filters in [INSERTED / 100, INSERTED / 10, INSERTED] {
            let all: Vec<Filter> = (0..filters)
                .map(|i| parse(&equal(i, shapes)))
                .collect::<Result<_>>()?;
            let round = || -> Result<f64> {
                let mut table = Table::default();
                let begun = Instant::now();
                for (i, filter) in (0..).zip(&all) {
                    insert(&mut table, filter, i)?;
                }
                let took = begun.elapsed().as_nanos() as f64;
                ensure!(table.shapes().len() == shapes as usize, "shapes");
                Ok(took / f64::from(filters))
            };
            let times: Vec<f64> = (0..rounds).map(|_| round()).collect::<Result<_>>()?;
            let Some(ns) = Spread::of(times) else {
                continue;
            };
            lines.push(vec![
                filters.to_string(),
                shapes.to_string(),
                format!("{:.0}", ns.median),
                format!("{:.0}", ns.min),
                format!("{:.0}", ns.max),
            ]);
            part.cases.push(json!({
                "inserted": filters, "shapes": shapes, "insert_ns": ns.to_json(),
            }));
        }
    }
    let header = ["FILTERS", "SHAPES", "MEDIAN", "MIN", "MAX"];
    Ok(format!(
        "To insert a filter, equally specific shapes looked at for conflicts, ns:\n\n{}",
        table::render(&header, 0, &lines)
    ))
}

/// The filter `i` of many that do not meet: networks whose lengths add up to the
/// same number.
fn equal(i: u32, shapes: u32) -> String {
    let (shape, rest) = (i % shapes, i / shapes);
    format!(
        "udp src port {} and dst port {} and src net {}.0.0.0/{} and dst net 10.0.0.0/{}",
        rest % 65_536,
        rest / 65_536,
        16 + shape,
        9 + shape,
        24 - shape
    )
}

fn parse(text: &str) -> Result<Filter> {
    demux::parse(text).map_err(|error| anyhow!("{text}: {error}"))
}

fn insert(table: &mut Table<u32>, filter: &Filter, value: u32) -> Result<()> {
    let inserted = table.insert(filter, value);
    inserted.map(drop).map_err(|conflict| anyhow!("{conflict}"))
}
