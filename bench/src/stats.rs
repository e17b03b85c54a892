//! What a set of measured times is reduced to.

use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use serde_json::{Value, json};

/// Round trips longer than this are recorded as this long, in ns.
const LONGEST_NS: u64 = 60_000_000_000;

/// Round-trip times, to three digits. Recording does not allocate.
#[derive(Clone, Debug)]
pub struct Times(Histogram<u64>);

impl Times {
    /// No times yet.
    ///
    /// # Panics
    ///
    /// Never: the bounds are constants that the histogram takes.
    #[must_use]
    pub fn new() -> Self {
        Self(Histogram::new_with_bounds(1, LONGEST_NS, 3).expect("constant bounds"))
    }

    /// Adds one time, in ns. Constant time.
    pub fn record(&mut self, ns: u64) {
        self.0.saturating_record(ns);
    }

    /// Adds all times of another set.
    ///
    /// # Errors
    ///
    /// Never for sets made by [`Times::new`], which share their bounds.
    pub fn add(&mut self, other: &Self) -> Result<()> {
        self.0.add(&other.0).context("sets of other bounds")
    }

    /// The time that this part of them does not exceed, in ns.
    #[must_use]
    pub fn quantile(&self, part: f64) -> u64 {
        self.0.value_at_quantile(part)
    }

    /// The numbers a row of a table shows.
    #[must_use]
    pub fn summary(&self) -> Summary {
        Summary {
            n: self.0.len(),
            p50: self.0.value_at_quantile(0.5),
            p99: self.0.value_at_quantile(0.99),
            p999: self.0.value_at_quantile(0.999),
            max: self.0.max(),
        }
    }
}

impl Default for Times {
    fn default() -> Self {
        Self::new()
    }
}

/// A set of times in five numbers; all but `n` in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// How many times there are.
    pub n: u64,
    /// Median.
    pub p50: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile.
    pub p999: u64,
    /// The longest.
    pub max: u64,
}

/// One quantity as several rounds measured it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The middle round.
    pub median: f64,
    /// The lowest round.
    pub min: f64,
    /// The highest round.
    pub max: f64,
    /// What two measurements of the same differ by: the median of every other round and
    /// that of the rounds between them. `None` if there are fewer than four.
    pub apart: Option<f64>,
}

impl Spread {
    /// Of the rounds' values; `None` without rounds.
    #[must_use]
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let values: Vec<f64> = values.into_iter().collect();
        let every_other = |first| values.iter().copied().skip(first).step_by(2);
        let median = median_of(values.iter().copied())?;
        let halves = median_of(every_other(0)).zip(median_of(every_other(1)));
        let apart = halves.map(|(one, other)| (one - other).abs());
        Some(Self {
            median,
            min: values.iter().copied().fold(f64::INFINITY, f64::min),
            max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            apart: apart.filter(|_| values.len() >= 4),
        })
    }

    /// `{"median","min","max"}`.
    #[must_use]
    pub fn to_json(self) -> Value {
        json!({ "median": self.median, "min": self.min, "max": self.max })
    }
}

fn median_of(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 {
        return Some(values[middle]);
    }
    let below = values.get(middle.checked_sub(1)?)?;
    Some(f64::midpoint(*below, values[middle]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_has_the_tail() {
        let mut times = Times::new();
        for ns in 1..=1000 {
            times.record(ns * 1000);
        }
        let mut more = Times::new();
        more.record(u64::MAX);
        times.add(&more).unwrap();
        let summary = times.summary();
        assert_eq!(summary.n, 1001);
        let near = |value: u64, expected: u64| value.abs_diff(expected) <= expected / 500;
        assert!(near(summary.p50, 501_000), "{summary:?}");
        assert!(near(summary.p99, 991_000), "{summary:?}");
        assert!(near(summary.p999, 1_000_000), "{summary:?}");
        assert!(near(summary.max, LONGEST_NS), "{summary:?}");
    }

    #[test]
    fn a_spread_is_of_whole_rounds() {
        let spread = Spread::of([3.0, 1.0, 2.0]).unwrap();
        assert_eq!((spread.median, spread.min, spread.max), (2.0, 1.0, 3.0));
        let even = Spread::of([1.0, 4.0]).unwrap();
        assert!((even.median - 2.5).abs() < 1e-9);
        assert_eq!(Spread::of([]), None);
    }
}
