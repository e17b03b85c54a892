//! `peers/pipes.c`: what C makes of the same, and our code, in one process.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use ashway_codegen::pipe::{self, Cpu, compile};
use serde_json::{Value, json};

use crate::peers;
use crate::stats::Spread;

/// Sizes of messages, as in `pipes.c`.
pub(super) const SIZES: [usize; 8] = [64, 256, 512, 1472, 1500, 4096, 16_384, 65_536];
/// What memory gives, as in `pipes.c`.
pub(super) const LARGE: usize = 64 << 20;

/// The lists whose code it runs, in its order.
const LISTS: [&str; 3] = ["copy", "cksum16", "cksum16 | bswap32"];

/// Where the data is before a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Source {
    /// In the caches, if it fits.
    Cached,
    /// The source was flushed.
    Cold,
    /// The source was flushed, and the destination is between two passes.
    Flushed,
    /// 64 MiB, source and destination flushed.
    Memory,
}

impl Source {
    const ALL: [Self; 4] = [Self::Cached, Self::Cold, Self::Flushed, Self::Memory];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Cached => "cached",
            Self::Cold => "cold",
            Self::Flushed => "flushed",
            Self::Memory => "memory",
        }
    }
}

/// List, bytes, way.
type Case = (Source, String, usize, String);

/// ns of each round.
#[derive(Debug, Default)]
pub(super) struct Measured(BTreeMap<Case, Vec<f64>>);

impl Measured {
    fn rounds(&self, source: Source, list: &str, bytes: usize, way: &str) -> &[f64] {
        let case = (source, list.to_owned(), bytes, way.to_owned());
        self.0.get(&case).map_or(&[], Vec::as_slice)
    }

    pub(super) fn spread(
        &self,
        source: Source,
        list: &str,
        bytes: usize,
        way: &str,
    ) -> Option<Spread> {
        Spread::of(self.rounds(source, list, bytes, way).iter().copied())
    }

    pub(super) fn median(
        &self,
        source: Source,
        list: &str,
        bytes: usize,
        way: &str,
    ) -> Option<f64> {
        Some(self.spread(source, list, bytes, way)?.median)
    }

    /// One way's time over another's, round by round.
    pub(super) fn ratio(
        &self,
        source: Source,
        list: &str,
        bytes: usize,
        over: &str,
        under: &str,
    ) -> impl Iterator<Item = f64> {
        let under = self.rounds(source, list, bytes, under);
        let over = self.rounds(source, list, bytes, over);
        over.iter().zip(under).map(|(over, under)| over / under)
    }

    /// As [`Self::ratio`], from memory, of ways of two lists.
    pub(super) fn across(
        &self,
        bytes: usize,
        lists: [&str; 2],
        ways: [&str; 2],
    ) -> impl Iterator<Item = f64> {
        let of = |at: usize| self.rounds(Source::Memory, lists[at], bytes, ways[at]);
        of(0).iter().zip(of(1)).map(|(over, under)| over / under)
    }

    /// The way by hand with the better median.
    fn by_hand(&self, source: Source, list: &str, bytes: usize) -> Option<(&str, f64)> {
        ["hand", "hand16"]
            .into_iter()
            .filter_map(|way| Some((way, self.median(source, list, bytes, way)?)))
            .min_by(|a, b| a.1.total_cmp(&b.1))
    }

    pub(super) fn best_by_hand(&self, source: Source, list: &str, bytes: usize) -> Option<f64> {
        Some(self.by_hand(source, list, bytes)?.1)
    }

    /// The better way by hand over ours, round by round.
    pub(super) fn rounds_by_hand(&self, source: Source, list: &str, bytes: usize) -> Vec<f64> {
        let best = self.by_hand(source, list, bytes);
        best.map_or_else(Vec::new, |(way, _)| {
            self.ratio(source, list, bytes, way, "ours").collect()
        })
    }

    pub(super) fn to_json(&self) -> Value {
        let cases = self.0.iter().map(|((source, list, bytes, way), rounds)| {
            json!({
                "source": source.name(),
                "list": list,
                "bytes": bytes,
                "way": way,
                "ns": Spread::of(rounds.iter().copied()).map(Spread::to_json),
            })
        });
        Value::Array(cases.collect())
    }
}

/// Builds it and lets it measure.
pub(super) fn run(cpu: Cpu, rounds: usize, quick: bool) -> Result<Measured> {
    let program = peers::build_pipes()?;
    let mut codes = Vec::new();
    for list in LISTS {
        let list = pipe::parse(list)?;
        let native = compile(&list, cpu, pipe::Options::default())?;
        for word in [native.code().len(), native.piece_bytes()] {
            codes.extend((word as u64).to_le_bytes());
        }
        codes.extend(native.code());
    }
    let shown = program.display();
    let mut child = Command::new(&program)
        .args([rounds.to_string(), u8::from(quick).to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start `{shown}`"))?;
    // It reads everything before it writes anything.
    child.stdin.take().context("no pipe")?.write_all(&codes)?;
    let output = child.wait_with_output()?;
    ensure!(
        output.status.success(),
        "`{shown}` failed: {}",
        output.status
    );
    let mut measured = Measured::default();
    for line in String::from_utf8(output.stdout)?.lines() {
        let (case, ns) = parse(line).with_context(|| format!("`{shown}` says `{line}`"))?;
        measured.0.entry(case).or_default().push(ns);
    }
    Ok(measured)
}

/// A line: source, list, bytes, way, ns.
fn parse(line: &str) -> Option<(Case, f64)> {
    let mut words = line.split(' ');
    let source = words.next()?;
    let source = Source::ALL.into_iter().find(|one| one.name() == source)?;
    let list = words.next()?.to_owned();
    let bytes = words.next()?.parse().ok()?;
    let way = words.next()?.to_owned();
    Some(((source, list, bytes, way), words.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_better_loop_by_hand_is_the_one_to_beat() {
        let mut measured = Measured::default();
        for line in [
            "cached sum 64 hand 5.0",
            "cached sum 64 hand16 4.0",
            "cached sum 64 ours 8.0",
        ] {
            let (case, ns) = parse(line).unwrap();
            measured.0.entry(case).or_default().push(ns);
        }
        assert_eq!(measured.rounds_by_hand(Source::Cached, "sum", 64), [0.5]);
        assert!(parse("cached sum 64 hand").is_none());
    }
}
