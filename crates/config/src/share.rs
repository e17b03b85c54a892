//! A path's share of the tier that it runs in, as people write it: `share = "20 %"`,
//! `rate = "5000/s"`.

use std::fmt;

use ashway_abi::share::Terms;

/// How much of the tier that it runs in a path may have ([`ashway_abi::share`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Thousandths of a CPU's time, from 1 to 1,000.
    pub per_mille: u32,
    /// Runs of its handler a second, if they have a limit of their own.
    pub rate: Option<u32>,
}

/// Most runs a second that can be asked for: more than any interface brings.
pub(super) const MOST_RUNS: u32 = 100_000_000;

impl Share {
    /// Of what was given, if anything was: a rate alone is of a whole CPU.
    #[must_use]
    pub fn of(per_mille: Option<u32>, rate: Option<u32>) -> Option<Self> {
        (per_mille.is_some() || rate.is_some()).then_some(Self {
            per_mille: per_mille.unwrap_or(1_000),
            rate,
        })
    }

    /// What its program has to know.
    #[must_use]
    pub fn terms(self) -> Terms {
        Terms::new(self.per_mille, self.rate)
    }
}

impl fmt::Display for Share {
    /// `20 %, 5000/s`, `20 %` or `5000/s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A rate alone is of a whole CPU, which limits nothing.
        if let (1_000, Some(rate)) = (self.per_mille, self.rate) {
            return write!(f, "{rate}/s");
        }
        write!(f, "{}", self.per_mille / 10)?;
        if !self.per_mille.is_multiple_of(10) {
            write!(f, ".{}", self.per_mille % 10)?;
        }
        f.write_str(" %")?;
        self.rate.map_or(Ok(()), |rate| write!(f, ", {rate}/s"))
    }
}

/// Thousandths of a CPU from `20 %`, or what is wrong with it and what to write instead.
///
/// # Errors
///
/// What is wrong with it, and what to write.
pub fn read_share(text: &str) -> Result<u32, (String, String)> {
    let per_mille = text.trim().strip_suffix('%').and_then(|number| {
        let number = number.trim_end();
        let (whole, tenth) = number.split_once('.').unwrap_or((number, "0"));
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let form = digits(whole) && digits(tenth) && tenth.len() == 1;
        let whole: u32 = whole.parse().ok().filter(|_| form)?;
        whole.checked_mul(10)?.checked_add(tenth.parse().ok()?)
    });
    let hint = "write \"20 %\", of one CPU's time: from \"0.1 %\" to \"100 %\", \
                in steps of 0.1 %"
        .to_owned();
    let found = per_mille.filter(|per_mille| (1..=1_000).contains(per_mille));
    found.ok_or_else(|| (format!("`{text}` is no share"), hint))
}

/// Runs a second from `5000/s`, or what is wrong with it and what to write instead.
///
/// # Errors
///
/// What is wrong with it, and what to write.
pub fn read_rate(text: &str) -> Result<u32, (String, String)> {
    let number = text.trim().strip_suffix("/s").map(str::trim_end);
    let number = number.filter(|number| number.bytes().all(|byte| byte.is_ascii_digit()));
    let rate = number.and_then(|number| number.parse().ok());
    rate.filter(|rate| (1..=MOST_RUNS).contains(rate))
        .ok_or_else(|| {
            let hint = format!("write runs a second, like \"5000/s\", from 1 to {MOST_RUNS}");
            (format!("`{text}` is no rate"), hint)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_can_be_read_back() {
        for (text, per_mille) in [
            ("0.1 %", 1),
            ("20 %", 200),
            ("12.5 %", 125),
            ("100 %", 1_000),
        ] {
            assert_eq!(read_share(text), Ok(per_mille));
            let share = Share::of(Some(per_mille), None).unwrap();
            assert_eq!(share.to_string(), text);
        }
        assert_eq!(read_share(" 20% "), Ok(200));
        assert_eq!(read_rate("5000/s"), Ok(5_000));
        let share = Share::of(None, Some(7)).unwrap();
        assert_eq!(share.to_string(), "7/s");
        let share = Share::of(Some(125), Some(7)).unwrap();
        assert_eq!(share.to_string(), "12.5 %, 7/s");
        assert_eq!(Share::of(None, None), None);
    }

    #[test]
    fn what_is_neither_is_named() {
        for text in [
            "20",
            "",
            "%",
            "-5 %",
            "+5 %",
            "0.25 %",
            "0.05 %",
            "1e1 %",
            "99999999999 %",
            "0 %",
            "0.0 %",
            "100.1 %",
        ] {
            let (message, hint) = read_share(text).unwrap_err();
            assert_eq!(message, format!("`{text}` is no share"));
            assert!(hint.contains("0.1 %"), "{text}");
        }
        for text in [
            "5000",
            "/s",
            "0/s",
            "-1/s",
            "+1/s",
            "1.5/s",
            "100000001/s",
            "5k/s",
        ] {
            assert!(read_rate(text).is_err(), "{text}");
        }
    }
}
