//! A path's document, for people: what `ashway path show` prints and a shell says.

use std::fmt::Write as _;

use ashway_api::answer::{Path, PathPromotion, PathShare, Queue, RanIn};
use ashway_modules::rules::{INJECT_BACKWARD, INJECT_FORWARD, PROMOTE_BACKWARD, PROMOTE_FORWARD};
use ashway_modules::tap;

use ashway_worker::activation::{LOCAL, ROW};

/// Attributes that the node notes for itself; the document has them.
const OWN: [&str; 7] = [
    ROW,
    LOCAL,
    INJECT_FORWARD,
    INJECT_BACKWARD,
    PROMOTE_FORWARD,
    PROMOTE_BACKWARD,
    tap::PATH,
];

pub use ashway_config::diagnostics::clean;
pub use ashway_worker::log::harmless;

/// Why a path is in the user tier, if it is, and what to do about it.
#[must_use]
pub fn why_not(promotion: &PathPromotion) -> String {
    let why = promotion.why.as_ref();
    let because = why.and_then(|why| why.because.as_deref());
    let hint = why.and_then(|why| why.hint.as_deref());
    let mut out = String::new();
    for (word, text) in [("because", because), ("hint", hint)] {
        if let Some(text) = text {
            let _ = writeln!(out, "  {word}: {}", clean(text));
        }
    }
    out
}

/// A path, a fact in each line.
#[must_use]
pub fn path(path: &Path) -> String {
    let base = &path.base;
    let stages = path.run.as_ref().map_or(&[][..], |run| &run.stages);
    let modules: Vec<_> = stages.iter().map(|stage| clean(&stage.module)).collect();
    let mut out = String::new();
    let _ = writeln!(out, "path      {}", clean(&base.name));
    let _ = writeln!(out, "created   from {}", clean(&path.from));
    let _ = writeln!(out, "stages    {}", modules.join(" / "));
    let _ = writeln!(out, "tier      {}", clean(&base.tier));
    out += &why_not(&path.promotion);
    if let Some(bypass) = &base.bypass {
        let (handler, because) = (clean(&bypass.handler), clean(&bypass.because));
        let _ = writeln!(out, "bypassed  its handler `{handler}`: {because}");
        let _ = writeln!(out, "  hint: {}", clean(&bypass.hint));
    }
    if let Some(next) = &path.next_hop {
        let mac = match &next.mac {
            None => "not known; does it answer `ping`?".to_owned(),
            Some(mac) => clean(mac),
        };
        let to = next
            .neighbour
            .as_deref()
            .map_or_else(|| "-".to_owned(), clean);
        let _ = writeln!(out, "next hop  {to} on {}: {mac}", clean(&next.iface));
    }
    for end in &path.ends {
        let filter = end.filter.as_deref().map_or_else(|| "-".to_owned(), clean);
        let _ = writeln!(out, "takes     on {}: {filter}", clean(&end.iface));
    }
    if let Some(PathShare { share, mode }) = &base.share {
        let mode = mode.as_deref().map_or_else(|| "-".to_owned(), clean);
        let _ = writeln!(out, "share     {}: {mode}", clean(share));
    }
    if let Some(run) = &path.run {
        for (name, value) in &run.attrs {
            if !OWN.contains(&name.as_str()) {
                let _ = writeln!(out, "attribute {} = {}", clean(name), clean(value));
            }
        }
        for (name, Queue { length, maximum }) in [
            ("in backward", run.queues.in_backward),
            ("in forward", run.queues.in_forward),
            ("out backward", run.queues.out_backward),
            ("out forward", run.queues.out_forward),
        ] {
            let _ = match maximum {
                0 => writeln!(
                    out,
                    "queue     {name}: none, what leaves there goes on at once"
                ),
                _ => writeln!(out, "queue     {name}: {length} of {maximum}"),
            };
        }
    }
    let counts = &base.counts;
    let (received, waiting) = (counts.received, counts.waiting);
    let _ = writeln!(out, "received  {received}, waiting {waiting}");
    for (before, list) in [
        ("", &counts.fates.others),
        ("dropped_", &counts.fates.dropped),
    ] {
        for (name, times) in list.iter().filter(|(_, times)| *times > 0) {
            let _ = writeln!(out, "  {:<24} {times}", clean(&format!("{before}{name}")));
        }
    }
    if let Some(ran_in) = path.ran_in
        && let Some(share) = ran_in.share_of_kernel()
    {
        let RanIn { kernel, user } = ran_in;
        let _ = writeln!(
            out,
            "ran       {share} in the kernel tier: {kernel}, in the user tier {user}"
        );
    }
    if let Some(run) = &path.run {
        let _ = writeln!(out, "made      {}", run.originated);
        let _ = writeln!(out, "time      {} ns in {} runs", run.time_ns, run.runs);
        if run.kernel_time_ns > 0 {
            let kernel = run.kernel_time_ns;
            let _ = writeln!(out, "          and about {kernel} ns in the kernel tier");
        }
        let (bytes, granted) = (run.memory.bytes, run.memory.granted_bytes);
        let _ = writeln!(out, "memory    {bytes} bytes of {granted}");
        if let Some(fault) = &run.fault {
            let _ = writeln!(out, "fault     {}", clean(fault));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use ashway_abi::log::acts_on_terminal;
    use ashway_api::answer::PathRun;

    use super::*;

    #[test]
    fn both_forms_leave_a_terminal_alone() {
        let text = "a\u{1b}[31m\u{202e}b\u{200b}\u{feff}\u{e0041} \u{e9}\u{4e2d}";
        for shown in [clean(text), harmless(text.as_bytes())] {
            assert!(!shown.contains(acts_on_terminal), "{shown:?}");
            assert!(shown.ends_with(" \u{e9}\u{4e2d}"), "{shown:?}");
        }
    }

    #[test]
    fn what_the_node_notes_for_itself_is_not_shown() {
        let attrs = [
            ("row", "2"),
            ("path", "relay"),
            ("promote_forward", "3"),
            ("mtu", "1500"),
        ];
        let attrs = attrs.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let relay = Path {
            run: Some(PathRun {
                attrs: attrs.into(),
                ..PathRun::default()
            }),
            ..Path::default()
        };
        let shown = path(&relay);
        assert!(shown.contains("attribute mtu = 1500"), "{shown}");
        assert_eq!(shown.matches("attribute").count(), 1, "{shown}");
    }
}
