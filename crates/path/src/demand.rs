//! What the stages of a path ask of a frame that comes up it.
//!
//! Each demand has the words of pcap-filter(7) that people read, and behind these its value
//! as what it is. So whoever looks frames up makes its keys of demands, and has no text to
//! read. What the words mean is known to those who write them and to those who look up.

use std::fmt::Write as _;
use std::net::IpAddr;

use crate::attrs::Value;

/// Bytes that most filters of paths take in words.
const USUAL_BYTES: usize = 96;

/// One thing that must be true of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    /// The words in front of the value. No `or` among them: demands are joined by `and`,
    /// and in pcap-filter(7) both bind alike.
    pub words: &'static str,
    /// The value, where the words want one.
    pub value: Option<Value>,
}

impl Demand {
    /// One of words alone.
    #[must_use]
    pub const fn plain(words: &'static str) -> Self {
        Self { words, value: None }
    }

    /// One of words and a value behind them.
    #[must_use]
    pub fn of(words: &'static str, value: impl Into<Value>) -> Self {
        Self {
            words,
            value: Some(value.into()),
        }
    }
}

/// All of these as one filter, for people (`udp and dst port 53`); `None` if there is none.
#[must_use]
pub fn in_words(demands: &[Demand]) -> Option<String> {
    let mut text = String::with_capacity(USUAL_BYTES);
    for demand in demands {
        if !text.is_empty() {
            text.push_str(" and ");
        }
        text.push_str(demand.words);
        if let Some(value) = &demand.value {
            text.push(' ');
            push(&mut text, value);
        }
    }
    (!demands.is_empty()).then_some(text)
}

/// Appends a value as it is displayed. What most paths have is written without the machinery
/// for all forms, which would be a seventh of this filter's cost.
fn push(text: &mut String, value: &Value) {
    match value {
        Value::Number(number) => push_number(text, *number),
        Value::Address(IpAddr::V4(address)) => {
            for (at, octet) in address.octets().into_iter().enumerate() {
                if at > 0 {
                    text.push('.');
                }
                push_number(text, octet.into());
            }
        }
        other => {
            // Writing to a string cannot fail.
            let _ = write!(text, "{other}");
        }
    }
}

fn push_number(text: &mut String, number: u64) {
    if number >= 10 {
        push_number(text, number / 10);
    }
    text.push(char::from(b'0' + (number % 10) as u8));
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::net::IpAddr;

    use super::*;

    #[test]
    fn demands_are_joined_in_their_order() {
        assert_eq!(in_words(&[]), None);
        let udp = Demand::plain("udp");
        assert_eq!(in_words(std::slice::from_ref(&udp)).unwrap(), "udp");
        let near: IpAddr = "fd00::2".parse().unwrap();
        for value in [0, 9, 10, 100, 65_535, u64::MAX].map(Value::from) {
            let text = in_words(&[Demand::of("n", value.clone())]).unwrap();
            assert_eq!(text, format!("n {value}"));
        }
        for address in ["0.0.0.0", "10.1.20.255", "fd00::2"] {
            let value = Value::of_text(address);
            let text = in_words(&[Demand::of("host", value)]).unwrap();
            assert_eq!(text, format!("host {address}"));
        }
        let all = [
            udp,
            Demand::of("dst port", 53),
            Demand::of("dst host", near),
        ];
        let text = in_words(&all).unwrap();
        assert_eq!(text, "udp and dst port 53 and dst host fd00::2");
    }
}
