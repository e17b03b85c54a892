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

/// One line of the verdict.
#[derive(Clone, Debug)]
pub(crate) struct Ratio {
    pub(crate) name: &'static str,
    pub(crate) spread: Spread,
    pub(crate) target: Target,
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
        })
    }

    /// Whether the median keeps the promise; `None` if there is none.
    fn is_kept(&self) -> Option<bool> {
        match self.target {
            Target::AtMost(limit) => Some(self.spread.median <= limit),
            Target::AtLeast(limit) => Some(self.spread.median >= limit),
            Target::Recorded => None,
        }
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
            let kept = match ratio.is_kept() {
                Some(true) => "kept",
                Some(false) => "not kept",
                None => "",
            };
            vec![
                ratio.name.to_owned(),
                promised,
                kept.to_owned(),
                table::digits(ratio.spread.median),
                table::digits(ratio.spread.min),
                table::digits(ratio.spread.max),
            ]
        })
        .collect();
    let header = ["QUANTITY", "PROMISED", "", "MEDIAN", "MIN", "MAX"];
    format!(
        "Promises, by the median of the rounds:\n\n{}",
        table::render(&header, 3, &rows)
    )
}

/// `{name: {median, min, max, target, ok}}`; `target` and `ok` are null where
/// nothing is promised.
pub(crate) fn to_json(ratios: &[Ratio]) -> Value {
    let entries = ratios.iter().map(|ratio| {
        let mut entry = ratio.spread.to_json();
        entry["target"] = json!(ratio.limit());
        entry["ok"] = json!(ratio.is_kept());
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
    fn shown_and_written() {
        let ratios: Vec<_> = [
            Ratio::of("speed", Target::AtLeast(8.0), [9.5]),
            Ratio::of("tcp", Target::Recorded, [0.25]),
        ]
        .into_iter()
        .flatten()
        .collect();
        let text = render(&ratios);
        assert!(text.contains("at least 8.00  kept    9.50"), "{text}");
        let document = to_json(&ratios);
        assert_eq!(document["speed"]["ok"], json!(true));
        assert_eq!(document["tcp"]["target"], Value::Null);
    }
}
