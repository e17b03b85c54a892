//! A path's document, for people: what `ashway path show` prints and a shell says.

use std::fmt::Write as _;

use ashway_modules::rules::{INJECT_BACKWARD, INJECT_FORWARD, PROMOTE_BACKWARD, PROMOTE_FORWARD};
use ashway_modules::tap;
use serde_json::Value;

use crate::activation::{LOCAL, ROW};

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

pub use crate::log::harmless;
pub use ashway_config::diagnostics::clean;

/// Why a path is in the user tier, if it is, and what to do about it.
#[must_use]
pub fn why_not(path: &Value) -> String {
    let mut out = String::new();
    for word in ["because", "hint"] {
        if let Some(text) = path["promotion"][word].as_str() {
            let _ = writeln!(out, "  {word}: {}", clean(text));
        }
    }
    out
}

/// A path, a fact in each line.
#[must_use]
pub fn path(path: &Value) -> String {
    let word = |value: &Value| match value {
        Value::String(text) => clean(text),
        Value::Null => "-".to_owned(),
        other => other.to_string(),
    };
    let each = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut out = String::new();
    let modules: Vec<_> = each(&path["stages"])
        .iter()
        .map(|stage| word(&stage["module"]))
        .collect();
    let _ = writeln!(out, "path      {}", word(&path["name"]));
    let _ = writeln!(out, "created   from {}", word(&path["from"]));
    let _ = writeln!(out, "stages    {}", modules.join(" / "));
    let _ = writeln!(out, "tier      {}", word(&path["tier"]));
    out += &why_not(path);
    if let Some(because) = path["bypass"]["because"].as_str() {
        let handler = word(&path["bypass"]["handler"]);
        let _ = writeln!(out, "bypassed  its handler `{handler}`: {}", clean(because));
        let _ = writeln!(out, "  hint: {}", word(&path["bypass"]["hint"]));
    }
    let next = &path["next_hop"];
    if next.is_object() {
        let mac = match &next["mac"] {
            Value::Null => "not known; does it answer `ping`?".to_owned(),
            mac => word(mac),
        };
        let (to, iface) = (word(&next["neighbour"]), word(&next["iface"]));
        let _ = writeln!(out, "next hop  {to} on {iface}: {mac}");
    }
    for end in each(&path["ends"]) {
        let (iface, filter) = (word(&end["iface"]), word(&end["match"]));
        let _ = writeln!(out, "takes     on {iface}: {filter}");
    }
    if path["share"].is_string() {
        let (share, mode) = (word(&path["share"]), word(&path["mode"]));
        let _ = writeln!(out, "share     {share}: {mode}");
    }
    let attrs = path["attrs"].as_object().into_iter().flatten();
    for (name, value) in attrs.filter(|(name, _)| !OWN.contains(&name.as_str())) {
        let _ = writeln!(out, "attribute {} = {}", clean(name), word(value));
    }
    for (name, queue) in path["queues"].as_object().into_iter().flatten() {
        let name = name.replace('_', " ");
        let _ = writeln!(
            out,
            "queue     {name}: {} of {}",
            queue["length"], queue["maximum"]
        );
    }
    let _ = writeln!(
        out,
        "received  {}, waiting {}",
        path["received"], path["waiting"]
    );
    let fates = |list: &Value, before: &str, out: &mut String| {
        for (name, times) in list.as_object().into_iter().flatten() {
            if times.as_u64() > Some(0) {
                let _ = writeln!(out, "  {:<24} {times}", clean(&format!("{before}{name}")));
            }
        }
    };
    fates(&path["fates"], "", &mut out);
    fates(&path["fates"]["dropped"], "dropped_", &mut out);
    let _ = writeln!(out, "made      {}", path["originated"]);
    let _ = writeln!(
        out,
        "time      {} ns in {} runs",
        path["time_ns"], path["runs"]
    );
    let memory = &path["memory"];
    let (bytes, granted) = (&memory["bytes"], &memory["granted_bytes"]);
    let _ = writeln!(out, "memory    {bytes} bytes of {granted}");
    if let Some(fault) = path["fault"].as_str() {
        let _ = writeln!(out, "fault     {}", clean(fault));
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use ashway_abi::log::acts_on_terminal;

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
        let shown = path(&json!({
            "name": "relay",
            "attrs": { "row": "2", "path": "relay", "promote_forward": "3", "mtu": "1500" },
        }));
        assert!(shown.contains("attribute mtu = 1500"), "{shown}");
        assert_eq!(shown.matches("attribute").count(), 1, "{shown}");
    }
}
