//! The paths of a node, and both their ledgers.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};

use ashway_api::answer::{
    self, AllModulePaths, Bypass, Counts, Fates, NotPromotable, PathPromotion, Refused, Tally,
};

use super::{in_kernel, some_rows};
use crate::face::clean;
use crate::table;

/// The paths and both their ledgers.
pub(crate) fn paths(status: &answer::Status) -> String {
    let rows: Vec<_> = status
        .paths
        .iter()
        .map(|path| {
            let base = &path.base;
            let counts = &base.counts;
            vec![
                base.name.clone(),
                if base.bypass.is_some() {
                    "bypassed".to_owned()
                } else {
                    base.tier.to_string()
                },
                match &path.bound {
                    Some(bound) => bound.handler.clone(),
                    None => path.leads_through.join(","),
                },
                base.iface.join(","),
                base.filter.clone().unwrap_or_default(),
                counts.received.to_string(),
                counts.waiting.to_string(),
                in_kernel(path.ran_in),
                fates(&counts.fates),
                tally(&counts.notes),
                unbalanced(counts),
            ]
        })
        .collect();
    let header = [
        "PATH",
        "TIER",
        "HANDLER",
        "INTERFACE",
        "MATCH",
        "RECEIVED",
        "WAITING",
        "RAN IN KERNEL",
        "FATES",
        "NOTES",
        "",
    ];
    let mut out = table::render(&header, &rows);
    for path in &status.paths {
        let base = &path.base;
        out += &bypass(&base.name, base.bypass.as_ref());
        if let Some(because) = path.bound.as_ref().and_then(|bound| bound.stays.as_ref()) {
            out += &stays(&base.name, because);
        }
        out += &order(&base.name, path.bound.as_ref().map(|bound| &*bound.order));
        if !path.leads_through.is_empty() {
            out += &in_user_tier(&base.name, &path.promotion);
        }
    }
    let more = status.paths_not_listed;
    if more > 0 {
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "and {more} more, by name behind these; `ashway path show NAME` shows any"
        );
    }
    let sent: Vec<_> = status
        .paths
        .iter()
        .filter_map(|path| Some((&path.base, path.base.counts.out.as_ref()?)))
        .filter(|(_, out)| out.others.get("originated") > 0)
        .map(|(base, out)| {
            vec![
                base.name.clone(),
                out.others.get("originated").to_string(),
                out.others.get("handed_over").to_string(),
                tally(&out.dropped),
            ]
        })
        .collect();
    if !sent.is_empty() {
        out.push('\n');
        out += &table::render(&["PATH", "ORIGINATED", "HANDED OVER", "DROPPED"], &sent);
    }
    out
}

/// Why a path is not in the kernel tier, and what to do.
pub(crate) fn stays(name: &str, stays: &NotPromotable) -> String {
    let asked = match &*stays.asked {
        "kernel" => " has `tier = \"kernel\"` and",
        _ => "",
    };
    let Refused {
        because,
        line,
        hint,
    } = &stays.refused;
    let place = line.as_deref();
    let place = place.map_or_else(String::new, |line| format!("{}: ", clean(line)));
    let mut text = format!(
        "path `{}`{asked} stays in the user tier: {place}{}\n",
        clean(name),
        clean(because)
    );
    if !hint.is_empty() {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  hint: {}", clean(hint));
    }
    text
}

/// Which of a path's messages wait for which, where that is not the usual.
pub(super) fn order(name: &str, order: Option<&str>) -> String {
    let says = match order {
        Some("none") => "no message waits for another (`order = \"none\"`)",
        Some("path") => "messages keep their order as a whole (`order = \"path\"`)",
        _ => return String::new(),
    };
    format!("path `{}`: {says}\n", clean(name))
}

/// Why a path that leads through a handler and is not bound to it is in the user tier.
fn in_user_tier(name: &str, promotion: &PathPromotion) -> String {
    let because = promotion.why.as_ref().and_then(|why| why.because.as_ref());
    let hint = promotion.why.as_ref().and_then(|why| why.hint.as_ref());
    because.map_or_else(String::new, |because| {
        let refused = Refused {
            because: because.to_string(),
            line: None,
            hint: hint.map(ToString::to_string).unwrap_or_default(),
        };
        let asked = "auto".into();
        stays(name, &NotPromotable { asked, refused })
    })
}

/// That a path's messages go by its handler, and for how long, if they do.
pub(crate) fn bypass(path: &str, bypass: Option<&Bypass>) -> String {
    let Some(bypass) = bypass else {
        return String::new();
    };
    format!(
        "path `{}` is bypassed for another {} s: {}\n  hint: {}\n",
        clean(path),
        bypass.left_ms.div_ceil(1000),
        bypass.because,
        bypass.hint,
    )
}

/// The paths to each instance of a handler that has one for each CPU.
pub(super) fn instances(status: &answer::Status) -> String {
    let each = status.paths.iter().flat_map(|path| &path.instances);
    let rows: Vec<_> = each
        .map(|one| {
            vec![
                one.name.clone(),
                one.tier.clone(),
                one.counts.received.to_string(),
                one.counts.waiting.to_string(),
                in_kernel(one.ran_in),
                fates(&one.counts.fates),
            ]
        })
        .collect();
    let header = [
        "PATH@CPU",
        "TIER",
        "RECEIVED",
        "WAITING",
        "RAN IN KERNEL",
        "FATES",
    ];
    some_rows(&header, &rows)
}

/// The paths that have no more than a share of their tier.
pub(super) fn shares(status: &answer::Status) -> String {
    let rows: Vec<_> = status
        .paths
        .iter()
        .filter_map(|path| Some((&path.base, path.base.share.as_ref()?)))
        .map(|(base, share)| {
            let mode = share.mode.as_deref().unwrap_or_default();
            vec![base.name.clone(), share.share.clone(), mode.to_owned()]
        })
        .collect();
    some_rows(&["PATH", "SHARE", "MODE"], &rows)
}

/// The paths without a handler as a whole: what was lost in the ring that they share
/// is no path's.
pub(super) fn without_handler(status: &answer::Status) -> String {
    let AllModulePaths { paths, counts, .. } = &status.module_paths;
    if (*paths, counts.received) == (0, 0) {
        return String::new();
    }
    let dropped = counts.fates.dropped.iter();
    let dropped = dropped.map(|(name, times)| (format!("dropped_{name}"), times));
    let others = counts.fates.others.iter();
    let others = others.map(|(name, times)| (name.to_owned(), times));
    let fates: BTreeMap<_, _> = others.chain(dropped).collect();
    let row = vec![
        paths.to_string(),
        counts.received.to_string(),
        counts.waiting.to_string(),
        some(fates.into_iter()),
        unbalanced(counts),
    ];
    let header = [
        "PATHS WITHOUT A HANDLER",
        "RECEIVED",
        "WAITING",
        "FATES",
        "",
    ];
    table::render(&header, &[row])
}

/// Drops by reason and aborts by cause, one line each.
pub(super) fn losses(status: &answer::Status) -> String {
    let mut rows = Vec::new();
    for base in status.paths.iter().map(|path| &path.base) {
        for (kind, list) in [
            ("dropped", &base.counts.fates.dropped),
            ("aborted", &base.counts.aborts),
        ] {
            for (reason, count) in list.iter().filter(|(_, count)| *count > 0) {
                let row = [&*base.name, kind, reason, &count.to_string()];
                rows.push(row.map(str::to_owned).to_vec());
            }
        }
    }
    table::render(&["PATH", "WHAT", "WHY", "MESSAGES"], &rows)
}

fn unbalanced(counts: &Counts) -> String {
    let words = if counts.balanced {
        ""
    } else {
        "sums do not close"
    };
    words.to_owned()
}

/// The ends, with all drops as one.
fn fates(ends: &Fates) -> String {
    let dropped = ("dropped", ends.dropped.sum());
    let mut all: Vec<_> = ends.others.iter().chain([dropped]).collect();
    all.sort_unstable();
    some(all.into_iter())
}

fn tally(tally: &Tally) -> String {
    some(tally.iter())
}

/// `answered 20000, passed 3`: what is not 0.
fn some<N: Display>(counts: impl Iterator<Item = (N, u64)>) -> String {
    counts
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| format!("{name} {count}"))
        .collect::<Vec<_>>()
        .join(", ")
}
