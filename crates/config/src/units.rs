//! Times as people write them in a configuration: `50 us`.

use std::time::Duration;

/// Units, largest first, so that [`show`] finds the shortest exact form.
const UNITS: [(&str, u64); 4] = [
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// Reads a whole number and a unit (`ns`, `us`, `ms`, `s`), with or without a space.
///
/// # Errors
///
/// What is wrong, as the middle of a sentence.
///
/// # Examples
///
/// ```
/// # use std::time::Duration;
/// # use ashway_config::units;
/// assert_eq!(units::read("50 us"), Ok(Duration::from_micros(50)));
/// assert_eq!(units::read("2ms"), Ok(Duration::from_millis(2)));
/// assert!(units::read("50").is_err());
/// ```
pub fn read(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim_start();
    if number.is_empty() {
        return Err(format!("`{text}` does not start with a whole number"));
    }
    let Some((_, factor)) = UNITS.iter().find(|(name, _)| *name == unit) else {
        return Err(if unit.is_empty() {
            format!("`{text}` has no unit")
        } else {
            format!("`{unit}` is no unit of time here")
        });
    };
    number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(*factor))
        .map(Duration::from_nanos)
        .ok_or_else(|| format!("`{text}` is out of range"))
}

/// The shortest exact form that [`read`] takes.
#[must_use]
pub fn show(time: Duration) -> String {
    let ns = time.as_nanos();
    let (unit, factor) = UNITS
        .into_iter()
        .find(|(_, factor)| ns.is_multiple_of(u128::from(*factor)))
        .unwrap_or(("ns", 1));
    format!("{} {unit}", ns / u128::from(factor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_can_be_read_back() {
        for ns in [
            1,
            999,
            1_000,
            1_500,
            50_000,
            10_000_000,
            10_000_001,
            2_000_000_000,
        ] {
            let time = Duration::from_nanos(ns);
            assert_eq!(read(&show(time)), Ok(time));
        }
        assert_eq!(show(Duration::from_micros(1500)), "1500 us");
    }

    #[test]
    fn what_is_no_time_is_named() {
        for (text, says) in [
            ("", "whole number"),
            ("us", "whole number"),
            ("-5 us", "whole number"),
            ("50", "no unit"),
            ("1.5 us", "no unit of time"),
            ("50 min", "no unit of time"),
            ("99999999999999999999 ns", "out of range"),
            ("18446744073709551615 ms", "out of range"),
        ] {
            assert!(read(text).unwrap_err().contains(says), "{text}");
        }
    }
}
