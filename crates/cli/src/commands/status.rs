//! `ashway status`: where every message went.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};

use ashway_api::answer::{
    self, AllModulePaths, Bypass, Counts, Fates, HandlerPromotion, NotPromotable, PathPromotion,
    Refused, Tally,
};
use ashway_api::{Scalar, request};
use clap::Args;
use serde_json::json;

use super::Node;
use crate::face::{Face, clean};
use crate::failure::Failure;
use crate::table;

/// Say where every message went
///
/// Each message a path received is in exactly one column of fates or still
/// waiting: at rest the sums close to the message.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ashway status
  ashway status -j | jq '.paths[] | {name, received}'")]
pub(crate) struct Status {
    #[command(flatten)]
    node: Node,
}

impl Status {
    pub(crate) fn run(self, face: Face) -> Result<(), Failure> {
        let said = self.node.connect()?.request(request::Status {})?;
        face.show(&said.document, || render(&said.answer))?;
        Ok(())
    }
}

/// All tables.
fn render(status: &answer::Status) -> String {
    let mut parts = vec![
        interfaces(status),
        handlers(status),
        paths(status),
        shares(status),
        without_handler(status),
        losses(status),
        taps(status),
        operations(status),
    ];
    parts.retain(|part| !part.is_empty());
    parts.join("\n")
}

fn interfaces(status: &answer::Status) -> String {
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
            let line = format!(
                "lost: {name}: {lost} frames found its packet socket full; whose they were nobody \
                 knows\n"
            );
            out.push_str(&line);
        }
        out += &hint(&iface.name, iface.hint.as_deref());
    }
    out
}

fn hint(of: &str, hint: Option<&str>) -> String {
    hint.map_or_else(String::new, |hint| format!("hint: {of}: {}\n", clean(hint)))
}

/// What is under way: `ashway cancel` ends it.
fn operations(status: &answer::Status) -> String {
    let rows: Vec<_> = status
        .operations
        .iter()
        .map(|under_way| {
            let operation = &under_way.operation;
            vec![
                operation.operation.to_string(),
                operation.does.to_string(),
                operation.about.clone(),
                operation.by.clone(),
                under_way.waits_for.to_string(),
                under_way.age_ms.to_string(),
            ]
        })
        .collect();
    let header = ["OPERATION", "DOES", "ABOUT", "BY", "WAITS FOR", "SINCE MS"];
    some_rows(&header, &rows)
}

/// What taps write, and what keeps them from it.
fn taps(status: &answer::Status) -> String {
    let rows: Vec<_> = status
        .taps
        .iter()
        .map(|tap| {
            vec![
                tap.tap.clone(),
                tap.file.clone(),
                tap.written.to_string(),
                tap.lost.to_string(),
                tap.failed.to_string(),
                tap.because.clone().unwrap_or_default(),
            ]
        })
        .collect();
    let header = ["TAP", "FILE", "WRITTEN", "LOST", "FAILED", "BECAUSE"];
    some_rows(&header, &rows)
}

/// A table, if there is something in it.
fn some_rows(header: &[&str], rows: &[Vec<String>]) -> String {
    if rows.is_empty() {
        String::new()
    } else {
        table::render(header, rows)
    }
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
fn order(name: &str, order: Option<&str>) -> String {
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

/// The handlers and why each runs where it runs.
pub(crate) fn handlers(status: &answer::Status) -> String {
    let all = &status.handlers;
    let rows: Vec<_> = all
        .iter()
        .map(|handler| {
            vec![
                handler.name.clone(),
                handler.tier.clone(),
                handler.memory.to_string(),
                handler.bytes.to_string(),
                short(&handler.digest),
                owner(handler.owner),
                handler.promotion.state.to_string(),
                why(&handler.promotion),
            ]
        })
        .collect();
    let header = [
        "HANDLER",
        "TIER",
        "MEMORY",
        "BYTES",
        "DIGEST",
        "OWNER",
        "PROMOTION",
        "WHY",
    ];
    let mut parts = vec![table::render(&header, &rows)];
    let granted: Vec<_> = all
        .iter()
        .map(|handler| {
            let params: Vec<_> = handler.params.iter().map(param).collect();
            vec![
                handler.name.clone(),
                handler.allow.join(","),
                params.join(" "),
            ]
        })
        .filter(|row| row[1..].iter().any(|cell| !cell.is_empty()))
        .collect();
    parts.push(some_rows(&["HANDLER", "MAY", "PARAMETERS"], &granted));
    let faults: Vec<_> = all
        .iter()
        .filter_map(|handler| Some((&handler.name, handler.last_fault.as_ref()?)))
        .map(|(name, fault)| {
            let place = match (&fault.file, fault.line) {
                (Some(file), Some(line)) => format!("{file}:{line}"),
                _ => format!("offset {}", fault.at),
            };
            let cause = fault.cause.as_deref().unwrap_or_default();
            vec![
                name.clone(),
                cause.to_owned(),
                place,
                fault.count.to_string(),
            ]
        })
        .collect();
    let header = ["STOPPED HANDLER", "LAST CAUSE", "AT", "TIMES"];
    parts.push(some_rows(&header, &faults));
    let former: Vec<_> = all
        .iter()
        .flat_map(|handler| handler.former.iter().map(|former| (&handler.name, former)))
        .map(|(name, former)| vec![name.clone(), short(&former.digest), former.file.clone()])
        .collect();
    parts.push(some_rows(&["HANDLER", "BEFORE", "FROM"], &former));
    parts.retain(|part| !part.is_empty());
    let mut out = parts.join("\n");
    for handler in all {
        let fault = handler.last_fault.as_ref();
        out += &hint(&handler.name, fault.and_then(|fault| fault.hint.as_deref()));
    }
    out
}

/// Why a handler is where it is, or what its program took.
fn why(promotion: &HandlerPromotion) -> String {
    match (promotion.because(), promotion.line(), &promotion.program) {
        (Some(because), Some(line), _) => format!("{because} ({line})"),
        (Some(because), None, _) => because.to_owned(),
        (None, _, Some(program)) => format!(
            "{} instructions, {} verified, loaded in {} us",
            program.insns, program.verified_insns, program.load_us
        ),
        (None, ..) => String::new(),
    }
}

/// A parameter: a text stands in quotation marks.
fn param((name, value): (&String, &Scalar<i64>)) -> String {
    match value {
        Scalar::Number(number) => format!("{name}={number}"),
        Scalar::Text(text) => format!("{name}={}", json!(text)),
    }
}

/// The beginning of a digest.
fn short(digest: &str) -> String {
    digest.chars().take(12).collect()
}

/// Who takes something along when it ends.
fn owner(owner: Option<u32>) -> String {
    owner.map_or_else(|| "node".to_owned(), |pid| format!("process {pid}"))
}

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

/// That a path's messages go by its handler, and for how long, if they do.
pub(super) fn bypass(path: &str, bypass: Option<&Bypass>) -> String {
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

/// The paths that have no more than a share of their tier.
fn shares(status: &answer::Status) -> String {
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
fn without_handler(status: &answer::Status) -> String {
    let AllModulePaths { paths, counts, .. } = &status.live;
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
fn losses(status: &answer::Status) -> String {
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

#[cfg(test)]
mod tests {
    use ashway_api::answer::{
        Because, BoundTo, Handler, HandlerProgram, Interface, LastFault, LostAfterHandOver, Path,
        PathBase, PathShare, SourceLine, Unmatched,
    };

    use super::*;

    fn tallied<const N: usize>(counts: [(&'static str, u64); N]) -> Tally {
        Tally(counts.map(|(name, times)| (name.into(), times)).into())
    }

    fn status() -> answer::Status {
        let iface = Interface {
            name: "veth0".to_owned(),
            mode: "native".into(),
            reply: "af_xdp".into(),
            udp_checksum: "whole".into(),
            unmatched: Unmatched {
                passed: 12,
                overflowed: 0,
            },
            ..Interface::default()
        };
        let counter = Handler {
            name: "counter".to_owned(),
            promotion: HandlerPromotion {
                state: "promoted".into(),
                program: Some(HandlerProgram {
                    insns: 101,
                    verified_insns: 102,
                    load_us: 180,
                    ..HandlerProgram::default()
                }),
                ..HandlerPromotion::default()
            },
            ..Handler::default()
        };
        let turning = Handler {
            name: "loop".to_owned(),
            promotion: HandlerPromotion {
                state: "user".into(),
                why: Some(Because {
                    because: Some("floating point".into()),
                    hint: None,
                }),
                place: Some(SourceLine {
                    line: Some("loop.c:9".to_owned()),
                }),
                program: None,
            },
            last_fault: Some(LastFault {
                cause: Some("fuel".into()),
                file: Some("loop.c".to_owned()),
                line: Some(7),
                count: 2,
                hint: Some("mend it".to_owned()),
                ..LastFault::default()
            }),
            ..Handler::default()
        };
        let counts = Counts {
            received: 20_005,
            fates: Fates {
                others: tallied([("consumed", 0), ("answered", 20_000)]),
                dropped: tallied([("bad_length", 3), ("fault", 2)]),
            },
            notes: tallied([("queued_busy", 4)]),
            aborts: tallied([("voluntary", 0), ("fuel", 2)]),
            out: Some(Fates {
                others: tallied([("originated", 5), ("handed_over", 5)]),
                dropped: tallied([("tx_full", 0)]),
            }),
            balanced: true,
            ..Counts::default()
        };
        let inc = Path {
            base: PathBase {
                name: "inc".to_owned(),
                counts,
                ..PathBase::default()
            },
            bound: Some(BoundTo::default()),
            ..Path::default()
        };
        answer::Status {
            interfaces: vec![iface],
            handlers: vec![counter, turning],
            paths: vec![inc],
            ..answer::Status::default()
        }
    }

    fn base(status: &mut answer::Status) -> &mut PathBase {
        &mut status.paths[0].base
    }

    #[test]
    fn every_number_that_is_not_zero_is_shown() {
        let shown = render(&status());
        for part in [
            "veth0      native  af_xdp",
            "101 instructions, 102 verified, loaded in 180 us",
            "floating point (loop.c:9)",
            "fuel        loop.c:7      2",
            "hint: loop: mend it",
            "answered 20000, dropped 5",
            "queued_busy 4",
            "inc   dropped  bad_length         3",
            "inc   aborted  fuel               2",
        ] {
            assert!(shown.contains(part), "{part}\n{shown}");
        }
        for part in ["consumed", "voluntary", "tx_full", "do not close"] {
            assert!(!shown.contains(part), "{part}\n{shown}");
        }
    }

    #[test]
    fn a_share_is_shown_with_its_mode() {
        let mut status = status();
        assert!(!render(&status).contains("SHARE"));
        base(&mut status).share = Some(PathShare {
            share: "12.5 %, 7000/s".to_owned(),
            mode: Some("lazy".into()),
        });
        let shown = render(&status);
        assert!(shown.contains("inc   12.5 %, 7000/s  lazy"), "{shown}");
    }

    #[test]
    fn an_order_that_is_not_the_usual_is_shown() {
        for (word, says) in [
            ("flow", ""),
            (
                "path",
                "path `p`: messages keep their order as a whole (`order = \"path\"`)\n",
            ),
            (
                "none",
                "path `p`: no message waits for another (`order = \"none\"`)\n",
            ),
        ] {
            assert_eq!(order("p", Some(word)), says);
        }
        assert_eq!(order("p", None), "");
    }

    #[test]
    fn what_the_shared_ring_lost_is_shown() {
        let mut status = status();
        assert!(!render(&status).contains("WITHOUT A HANDLER"));
        status.live = AllModulePaths {
            paths: 3,
            counts: Counts {
                received: 7058,
                fates: Fates {
                    others: tallied([("consumed", 2909), ("passed", 0)]),
                    dropped: tallied([("ring_full", 4149)]),
                },
                balanced: true,
                ..Counts::default()
            },
            ..AllModulePaths::default()
        };
        let shown = render(&status);
        for part in ["consumed 2909, dropped_ring_full 4149", "7058"] {
            assert!(shown.contains(part), "{part}\n{shown}");
        }
        assert!(!shown.contains("do not close"), "{shown}");
    }

    #[test]
    fn a_number_stands_in_each_column_of_an_interface() {
        let mut status = status();
        let shown = interfaces(&status);
        assert!(shown.trim_end().ends_with(" 0"), "{shown}");
        status.interfaces[0].lost_after_hand_over = LostAfterHandOver { driver: 1 };
        assert!(interfaces(&status).trim_end().ends_with("driver 1"));
        status.interfaces[0].unmatched.overflowed = 3;
        let shown = interfaces(&status);
        assert!(shown.contains("lost: veth0: 3 frames found"), "{shown}");
    }

    #[test]
    fn a_status_without_anything_in_it_is_empty() {
        assert_eq!(render(&answer::Status::default()), "");
        let mut unbalanced = status();
        base(&mut unbalanced).counts.balanced = false;
        assert!(paths(&unbalanced).contains("sums do not close"));
        let mut many = status();
        many.paths_not_listed = 3;
        assert!(paths(&many).contains("and 3 more"));
    }

    #[test]
    fn a_parameter_that_is_a_text_is_told_from_a_number() {
        let name = "step".to_owned();
        assert_eq!(param((&name, &Scalar::Number(5))), "step=5");
        let text = Scalar::Text("5".to_owned());
        assert_eq!(param((&name, &text)), "step=\"5\"");
    }
}
