//! The interfaces of a node.

use ashway_api::answer;

use super::hint;
use crate::face::clean;
use crate::table;

pub(super) fn interfaces(status: &answer::Status) -> String {
    let rows: Vec<_> = status
        .interfaces
        .iter()
        .map(|iface| {
            vec![
                iface.name.clone(),
                iface.mode.to_string(),
                iface.reply.to_string(),
                iface.udp_checksum.to_string(),
                iface.unmatched.passed.to_string(),
                match iface.lost_after_hand_over.driver {
                    0 => "0".to_owned(),
                    lost => format!("driver {lost}"),
                },
            ]
        })
        .collect();
    let header = [
        "INTERFACE",
        "MODE",
        "REPLY",
        "UDP CHECKSUM",
        "PASSED ON",
        "LOST AFTER HAND-OVER",
    ];
    let mut out = table::render(&header, &rows);
    for iface in &status.interfaces {
        if let Some(because) = &iface.because {
            let line = format!("auto: {}: {}\n", iface.name, clean(because));
            out.push_str(&line);
        }
        if iface.unmatched.overflowed > 0 {
            let (name, lost) = (&iface.name, iface.unmatched.overflowed);
            let full = match &*iface.mode {
                "memory" => "its link in memory",
                _ => "its packet socket",
            };
            let line = format!(
                "lost: {name}: {lost} frames found {full} full; whose they were nobody knows\n"
            );
            out.push_str(&line);
        }
        if iface.unmatched.no_host > 0 {
            let (name, dropped) = (&iface.name, iface.unmatched.no_host);
            let line = format!(
                "dropped: {name}: {dropped} frames that no path takes: there is no host behind it\n"
            );
            out.push_str(&line);
        }
        out += &hint(&iface.name, iface.hint.as_deref());
    }
    for pattern in &status.patterns {
        out += &of_pattern(status, pattern);
    }
    out
}

/// Most interfaces of a pattern that are named.
const NAMED: usize = 16;

/// What a pattern has taken, and what it has not.
fn of_pattern(status: &answer::Status, pattern: &answer::Pattern) -> String {
    let taken = status.interfaces.iter();
    let taken = taken.filter(|iface| iface.pattern.as_ref() == Some(&pattern.pattern));
    let names: Vec<&str> = taken.take(NAMED).map(|iface| &*iface.name).collect();
    let more = pattern.interfaces.saturating_sub(names.len() as u64);
    let taken = match (&names[..], more) {
        ([], _) => "no interface yet".to_owned(),
        (names, 0) => names.join(" "),
        (names, more) => format!("{} and {more} more", names.join(" ")),
    };
    let mut out = format!("pattern: {}: {taken}\n", pattern.pattern);
    for left in &pattern.not_taken {
        let line = format!("not taken: {}: {}\n", left.name, clean(&left.because));
        out.push_str(&line);
    }
    out
}
