//! Where messages come to a path, and the filter there.

use ashway_demux::{self as demux, Filter, FilterError, Join};
use ashway_modules::words;
use ashway_path::attrs::Value;
use ashway_path::demand::{self, Demand};

/// An end of a path at an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entrance {
    /// The interface.
    pub iface: String,
    /// What the path's stages ask of a frame there.
    pub(crate) demands: Vec<Demand>,
    /// What must be true of it besides, in pcap-filter words.
    pub(crate) also: Option<String>,
}

impl Entrance {
    /// What must be true of a frame there, in pcap-filter words; `None` if all come.
    #[must_use]
    pub fn text(&self) -> Option<String> {
        match (demand::in_words(&self.demands), &self.also) {
            (stages, None) => stages,
            (None, Some(also)) => Some(also.clone()),
            (Some(stages), Some(also)) => Some(format!("{stages} and ({also})")),
        }
    }

    /// The same as a filter; `None` if all come.
    ///
    /// # Errors
    ///
    /// Why nothing can match it.
    pub fn filter(&self) -> Result<Option<Filter>, FilterError> {
        let Some(text) = self.text() else {
            return Ok(None);
        };
        // What `also` means depends on the tags before it, so it is read behind these.
        let joined = match self.also {
            None => join(&self.demands),
            Some(_) => None,
        };
        // Of what nothing can match, too, whoever reads says why.
        match joined.filter(Join::is_possible) {
            Some(join) => Ok(join.finish(text)),
            None => demux::parse(&text).map(Some),
        }
    }

    /// Whether all frames come.
    #[must_use]
    pub fn takes_all(&self) -> bool {
        self.demands.is_empty() && self.also.is_none()
    }
}

/// All demands at once; `None` if one is in words that only [`demux::parse`] reads.
fn join(demands: &[Demand]) -> Option<Join> {
    let mut join = Join::default();
    for demand in demands {
        match (demand.words, &demand.value) {
            (words::IP, None) => join.ip(),
            (words::IP6, None) => join.ip6(),
            (words::UDP, None) => join.udp(),
            (words::SRC_HOST, Some(Value::Address(address))) => join.source(*address),
            (words::DST_HOST, Some(Value::Address(address))) => join.destination(*address),
            (words, Some(Value::Number(number))) => {
                let number = u16::try_from(*number).ok()?;
                match words {
                    words::SRC_PORT => join.source_port(number),
                    words::DST_PORT => join.destination_port(number),
                    words::VLAN => join.vlan(number),
                    _ => return None,
                }
            }
            _ => return None,
        }
    }
    Some(join)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn all_demands() -> Vec<Demand> {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        vec![
            Demand::of(words::VLAN, 5),
            Demand::plain(words::IP),
            Demand::of(words::DST_HOST, address("10.0.0.1")),
            Demand::of(words::SRC_HOST, address("10.0.0.2")),
            Demand::plain(words::UDP),
            Demand::of(words::DST_PORT, 53),
            Demand::of(words::SRC_PORT, 7000),
        ]
    }

    fn entrance(demands: Vec<Demand>) -> Entrance {
        Entrance {
            iface: "veth0".into(),
            demands,
            also: None,
        }
    }

    #[test]
    fn what_modules_ask_is_no_text_to_be_read() {
        let mut demands = all_demands();
        demands.push(Demand::plain(words::IP6));
        for one in demands {
            let one = std::slice::from_ref(&one);
            let (join, text) = (join(one).unwrap(), demand::in_words(one).unwrap());
            assert_eq!(join.finish(&*text), demux::parse(&text).ok(), "{text}");
        }
        let all = entrance(all_demands());
        assert!(join(&all.demands).is_some());
        let read = demux::parse(&all.text().unwrap());
        assert_eq!(all.filter(), read.map(Some));
    }

    #[test]
    fn what_nothing_can_match_is_said_in_the_words_of_whoever_reads() {
        let mut demands = all_demands();
        demands.push(Demand::plain(words::IP6));
        let error = entrance(demands).filter().unwrap_err();
        assert_eq!(error.message, "nothing can match this");
    }

    #[test]
    fn words_that_no_module_has_are_read() {
        let other = entrance(vec![Demand::plain("tcp or icmp")]);
        let read = demux::parse("tcp or icmp").unwrap();
        assert_eq!(other.filter(), Ok(Some(read)));
        assert_eq!(entrance(Vec::new()).filter(), Ok(None));
    }
}
