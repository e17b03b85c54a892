//! A measured quantity beside what was promised.

use serde_json::{Map, Value, json};

use crate::stats::Spread;
use crate::table;

/// Which way is good.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Target {
    /// At most this.
    AtMost(f64),
    /// At least this.
    AtLeast(f64),
    /// Nothing is promised.
    Recorded,
}

/// Whether a promise is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// It is.
    Kept,
    /// It is not.
    Missed,
    /// Two measurements of the same differ by more than the median and the promise do, or
    /// there are too few rounds to know.
    Undecided,
}

impl Verdict {
    const fn word(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::Missed => "missed",
            Self::Undecided => "undecided",
        }
    }
}

/// One line of the verdict.
#[derive(Clone, Debug)]
pub(crate) struct Ratio {
    pub(crate) name: &'static str,
    pub(crate) spread: Spread,
    pub(crate) target: Target,
    /// Counted or weighed, not timed: once is enough.
    pub(crate) exact: bool,
}

impl Ratio {
    /// Of the rounds' values; none without rounds.
    pub(crate) fn of(
        name: &'static str,
        target: Target,
        rounds: impl IntoIterator<Item = f64>,
    ) -> Option<Self> {
        let spread = Spread::of(rounds)?;
        Some(Self {
            name,
            spread,
            target,
            exact: false,
        })
    }

    /// Of a quantity that is exact, and so that there are no rounds of it.
    pub(crate) fn exact(name: &'static str, target: Target, value: f64) -> Option<Self> {
        let exact = true;
        Self::of(name, target, [value]).map(|ratio| Self { exact, ..ratio })
    }

    /// Whether the median keeps the promise; `None` if there is none.
    fn is_kept(&self) -> Option<bool> {
        match self.target {
            Target::AtMost(limit) => Some(self.spread.median <= limit),
            Target::AtLeast(limit) => Some(self.spread.median >= limit),
            Target::Recorded => None,
        }
    }

    /// What this run says of the promise. One of 0 is of a count, which is exact: it is
    /// missed by a single round.
    fn verdict(&self) -> Option<Verdict> {
        let (limit, is_kept) = (self.limit()?, self.is_kept()?);
        let verdict = |is_kept| {
            if is_kept {
                Verdict::Kept
            } else {
                Verdict::Missed
            }
        };
        if limit == 0.0 {
            return Some(verdict(self.spread.min == 0.0 && self.spread.max == 0.0));
        }
        let margin = (self.spread.median - limit).abs();
        let is_clear = self.exact || self.spread.apart.is_some_and(|apart| apart <= margin);
        Some(if is_clear {
            verdict(is_kept)
        } else {
            Verdict::Undecided
        })
    }

    fn limit(&self) -> Option<f64> {
        match self.target {
            Target::AtMost(limit) | Target::AtLeast(limit) => Some(limit),
            Target::Recorded => None,
        }
    }
}

/// The table of promises.
pub(crate) fn render(ratios: &[Ratio]) -> String {
    let rows: Vec<_> = ratios
        .iter()
        .map(|ratio| {
            let promised = match ratio.target {
                Target::AtMost(limit) => format!("at most {}", table::digits(limit)),
                Target::AtLeast(limit) => format!("at least {}", table::digits(limit)),
                Target::Recorded => String::new(),
            };
            let verdict = ratio.verdict().map_or("", Verdict::word);
            vec![
                ratio.name.to_owned(),
                promised,
                verdict.to_owned(),
                table::digits(ratio.spread.median),
                table::digits(ratio.spread.min),
                table::digits(ratio.spread.max),
            ]
        })
        .collect();
    let header = ["QUANTITY", "PROMISED", "", "MEDIAN", "MIN", "MAX"];
    format!(
        "Promises, by the median of the rounds (undecided: every other round differs from those \
         between them by more than the median does from the promise):\n\n{}",
        table::render(&header, 3, &rows)
    )
}

/// `{name: {median, min, max, target, ok, verdict}}`; the last three are null where
/// nothing is promised. `ok` is of the median alone.
pub(crate) fn to_json(ratios: &[Ratio]) -> Value {
    let entries = ratios.iter().map(|ratio| {
        let mut entry = ratio.spread.to_json();
        entry["target"] = json!(ratio.limit());
        entry["ok"] = json!(ratio.is_kept());
        entry["verdict"] = json!(ratio.verdict().map(Verdict::word));
        (ratio.name.to_owned(), entry)
    });
    Value::Object(entries.collect::<Map<_, _>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_decides() {
        let kept = |target| Ratio::of("x", target, [1.0, 2.0, 9.0]).unwrap().is_kept();
        assert_eq!(kept(Target::AtMost(2.0)), Some(true));
        assert_eq!(kept(Target::AtMost(1.9)), Some(false));
        assert_eq!(kept(Target::AtLeast(2.0)), Some(true));
        assert_eq!(kept(Target::AtLeast(2.1)), Some(false));
        assert_eq!(kept(Target::Recorded), None);
        assert!(Ratio::of("x", Target::Recorded, []).is_none());
    }

    #[test]
    fn what_is_nearer_to_its_promise_than_to_itself_is_undecided() {
        let verdict = |target, rounds: &[f64]| {
            let ratio = Ratio::of("x", target, rounds.iter().copied());
            ratio.unwrap().verdict()
        };
        let close = [1.00, 1.02, 1.01, 1.02, 1.00];
        assert_eq!(verdict(Target::AtMost(1.2), &close), Some(Verdict::Kept));
        assert_eq!(verdict(Target::AtLeast(1.2), &close), Some(Verdict::Missed));
        assert_eq!(
            verdict(Target::AtMost(1.012), &close),
            Some(Verdict::Undecided)
        );
        assert_eq!(
            verdict(Target::AtLeast(1.012), &close),
            Some(Verdict::Undecided)
        );
        // Each second round is another machine.
        let wild = [1.0, 2.0, 1.0, 2.0, 1.0];
        assert_eq!(
            verdict(Target::AtMost(1.2), &wild),
            Some(Verdict::Undecided)
        );
        assert_eq!(verdict(Target::AtMost(3.0), &wild), Some(Verdict::Kept));
        // A quick run knows nothing of times, and all of counts.
        assert_eq!(
            verdict(Target::AtMost(9.0), &[1.0]),
            Some(Verdict::Undecided)
        );
        assert_eq!(verdict(Target::AtMost(0.0), &[0.0]), Some(Verdict::Kept));
        let one_lost = [0.0, 0.0, 1.0, 0.0, 0.0];
        assert_eq!(
            verdict(Target::AtMost(0.0), &one_lost),
            Some(Verdict::Missed)
        );
        assert_eq!(verdict(Target::Recorded, &close), None);
    }

    #[test]
    fn shown_and_written() {
        let ratios: Vec<_> = [
            Ratio::of("speed", Target::AtLeast(8.0), [9.5]),
            Ratio::of("tcp", Target::Recorded, [0.25]),
        ]
        .into_iter()
        .flatten()
        .collect();
        let text = render(&ratios);
        assert!(text.contains("at least 8.00  undecided"), "{text}");
        let document = to_json(&ratios);
        assert_eq!(document["speed"]["ok"], json!(true));
        assert_eq!(document["tcp"]["target"], Value::Null);
    }
}
