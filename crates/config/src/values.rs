//! Values as people write them, in a configuration and in requests: each is read, or it is
//! said what is wrong with it and what to write instead.

use std::net::SocketAddr;
use std::time::Duration;

use ashway_demux as demux;

use crate::types::{Config, FaultLimit};
use crate::units;

/// Most channels of a handler.
pub const MOST_CHANNELS: usize = 256;

/// What [`is_name`] wants.
pub const NAME_HINT: &str =
    "names are 1 to 32 characters from a-z, 0-9, `_` and `-`, which does not come first";

/// Whether an object of ours can be called so. A command takes a word that begins with
/// `-` for an option.
#[must_use]
pub fn is_name(name: &str) -> bool {
    (1..=32).contains(&name.len())
        && !name.starts_with('-')
        && name
            .bytes()
            .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-'))
}

/// A filter whose messages are all UDP datagrams, with up to two VLAN tags: a
/// handler gets their payloads.
///
/// # Errors
///
/// The first thing that is wrong with it, and where.
pub fn read_match(text: &str) -> Result<demux::Filter, demux::FilterError> {
    const UDP: &str = "udp or (vlan and udp) or (vlan and udp)";
    let filter = demux::parse(text)?;
    if filter.implies(&demux::parse(UDP)?) {
        return Ok(filter);
    }
    let packets = "whole packets of any protocol come to a path of a configuration that has \
                   `layer = \"ip\"` or `layer = \"eth\"`";
    let (message, hint) = if filter.implies(&demux::parse(&format!("not ({UDP})"))?) {
        let message = "this matches no UDP datagram, whose payload a handler gets";
        (message, packets.to_owned())
    } else {
        let message = "this matches more than UDP datagrams, whose payloads a handler gets";
        (
            message,
            format!("write `udp and ({})`; {packets}", text.trim()),
        )
    };
    Err(demux::FilterError {
        span: 0..text.len().max(1),
        message: message.to_owned(),
        hint,
    })
}

/// A limit in the form of a request: `off`, `LIMIT/WITHIN` or `LIMIT/WITHIN/REST`; or
/// what is wrong with it and what to write instead.
///
/// # Errors
///
/// What is wrong with it, and what to write.
pub fn read_faults(text: &str) -> Result<Option<FaultLimit>, (String, String)> {
    if text == "off" {
        return Ok(None);
    }
    let wrong = || {
        let hint = "write `off`, or how often within which time: `100/1 s`, and if it is to rest \
                    then, how long: `100/1 s/10 s`";
        (format!("`{text}` is no limit of faults"), hint.to_owned())
    };
    let mut parts = text.split('/');
    let most = parts.next().and_then(|most| most.trim().parse().ok());
    let (Some(most), Some(within)) = (most, parts.next()) else {
        return Err(wrong());
    };
    let rest = parts.next().map(fault_time).transpose()?;
    if parts.next().is_some() {
        return Err(wrong());
    }
    Ok(Some(FaultLimit {
        most: fault_limit(most)?,
        within: fault_time(within)?,
        rest: rest.or_else(|| FaultLimit::default().rest),
    }))
}

pub(super) fn fault_limit(most: i64) -> Result<u32, (String, String)> {
    let found = u32::try_from(most).ok().filter(|most| *most > 0);
    found.ok_or_else(|| {
        let message = format!("a limit of {most} faults is out of range");
        let hint = format!(
            "write a number from 1 to {}, or \"off\" for no limit",
            u32::MAX
        );
        (message, hint)
    })
}

pub(super) fn fault_time(text: &str) -> Result<Duration, (String, String)> {
    let [least, most] = FaultLimit::TIMES;
    let trouble = match units::read(text) {
        Ok(time) if (least..=most).contains(&time) => return Ok(time),
        Ok(_) => format!("{} is out of range", text.trim()),
        Err(trouble) => trouble,
    };
    let hint = format!(
        "write a number and `ms` or `s`, from \"{}\" to \"{}\"",
        units::show(least),
        units::show(most)
    );
    Err((trouble, hint))
}

/// Slots of an endpoint, or what is wrong with the number and what to write instead.
///
/// # Errors
///
/// What is wrong with it, and what to write.
pub fn read_endpoint(slots: i64) -> Result<usize, (String, String)> {
    use ashway_abi::endpoint::{MAX_SLOTS, MIN_SLOTS};
    let given = usize::try_from(slots).ok();
    let fits = |slots: &usize| slots.is_power_of_two() && (MIN_SLOTS..=MAX_SLOTS).contains(slots);
    given.filter(fits).ok_or_else(|| {
        let message = format!("an endpoint cannot have {slots} slots");
        let hint = format!("write a power of two from {MIN_SLOTS} to {MAX_SLOTS}, like 256");
        (message, hint)
    })
}

/// The peer of a channel behind so many others, or what is wrong with it and what to
/// write instead.
///
/// # Errors
///
/// What is wrong with it, and what to write.
pub fn read_channel(text: &str, before: usize) -> Result<SocketAddr, (String, String)> {
    if before >= MOST_CHANNELS {
        let most = MOST_CHANNELS;
        let message = format!("a handler has at most {most} channels");
        return Err((message, "make a second handler section".to_owned()));
    }
    let peer = text.parse().ok().filter(|peer: &SocketAddr| {
        let ip = peer.ip();
        peer.port() != 0 && !ip.is_unspecified()
    });
    peer.ok_or_else(|| {
        let hint = "write an address and a port, like `10.0.0.2:9000` or `[fd00::2]:9000`";
        (format!("`{text}` is no peer"), hint.to_owned())
    })
}

/// A budget, or what is wrong with it and what to write instead.
///
/// # Errors
///
/// What is wrong with it, and what to write.
pub fn read_budget(text: &str) -> Result<Duration, (String, String)> {
    let trouble = match units::read(text) {
        Ok(time) if (Config::MIN_BUDGET..=Config::MAX_BUDGET).contains(&time) => return Ok(time),
        Ok(_) => format!("a budget of {} is out of range", text.trim()),
        Err(trouble) => trouble,
    };
    let hint = format!(
        "write a number and `ns`, `us` or `ms`, from \"{}\" to \"{}\"",
        units::show(Config::MIN_BUDGET),
        units::show(Config::MAX_BUDGET)
    );
    Err((trouble, hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_udp_is_told_from_what_is_more() {
        let wrong = |text| read_match(text).unwrap_err();
        let tcp = wrong("tcp dst port 80");
        assert!(tcp.message.contains("no UDP datagram"), "{tcp:?}");
        assert!(tcp.hint.contains("`layer = \"ip\"`"), "{tcp:?}");
        assert!(!tcp.hint.contains("udp and"), "{tcp:?}");
        for more in ["ip", "dst port 80"] {
            let more = wrong(more);
            assert!(more.message.contains("more than UDP"), "{more:?}");
            assert!(more.hint.contains("write `udp and ("), "{more:?}");
        }
        read_match("udp dst port 7").unwrap();
    }
}
