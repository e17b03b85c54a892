use super::*;
use crate::request::Code;
use ashway_api::answer::{
    Because, BoundTo, Counts, Handler, Interface, LastFault, PathBase, PathPromotion, PathRun,
    Stage, Unmatched, exact,
};
use std::fmt::Write as _;
use std::path::Path as FsPath;

use serde_json::{Value, json};

fn why(keys: Value) -> request::Why {
    serde_json::from_value(keys).unwrap()
}

/// An answer as a client gets it, with everything in it.
fn document(answer: &Why) -> Value {
    let document = serde_json::to_value(answer).unwrap();
    exact::<Why>(&document).unwrap();
    document
}

/// Line 1 is `[iface.a]`.
const TEXT: &str = r#"[iface.a]
[iface.b]

[handler.h]
file = "/bin/sh"

[path.wide]
iface = ["a", "b"]
match = "udp"
handler = "h"

[path.narrow]
iface = "a"
handler = "h"
budget = "20 us"
match = "udp and dst port 7777 and not src host 10.0.0.9"
"#;

fn config() -> Config {
    ashway_config::parse(FsPath::new("node.toml"), TEXT.as_bytes())
        .unwrap_or_else(|wrong| panic!("{}", wrong.render(false)))
}

fn ask(about: &str, iface: &str) -> Value {
    document(&offline(&config(), about, Some(iface)).unwrap())
}

#[test]
fn the_most_specific_filter_wins_and_the_others_are_explained() {
    let flow = "udp 10.0.0.1:5000 > 10.0.0.2:7777";
    let both = ask(flow, "a");
    assert_eq!(
        (&both["path"], &both["line"]),
        (&json!("narrow"), &json!(16))
    );
    let reason = both["reason"].as_str().unwrap();
    assert!(
        reason.contains("most specific") && reason.contains("`wide`"),
        "{reason}"
    );
    let matched: Vec<_> = both["matched"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| &entry["path"])
        .collect();
    assert_eq!(matched, ["narrow", "wide"]);
    assert_eq!(
        both["stages"].as_array().unwrap().last(),
        Some(&json!("handler:h"))
    );

    let one = ask(flow, "b");
    assert_eq!((&one["path"], &one["line"]), (&json!("wide"), &json!(9)));
    assert!(
        one["reason"].as_str().unwrap().contains("the only one"),
        "{one}"
    );
}

#[test]
fn what_keeps_a_flow_out_is_named() {
    for (flow, path, missing) in [
        (
            "udp 10.0.0.1:1 > 10.0.0.2:7778",
            json!("wide"),
            "destination port 7777",
        ),
        (
            "udp 10.0.0.9:1 > 10.0.0.2:7777",
            json!("wide"),
            "not (source 10.0.0.9)",
        ),
        (
            "tcp 10.0.0.1:1 > 10.0.0.2:7777",
            Value::Null,
            "protocol udp",
        ),
        (
            "vlan 3 udp 10.0.0.1:1 > 10.0.0.2:7777",
            Value::Null,
            "no tag",
        ),
    ] {
        let answer = ask(flow, "a");
        assert_eq!(answer["path"], path, "{answer:#}");
        let missed = answer["missed"].as_array().unwrap();
        let narrow = missed
            .iter()
            .find(|entry| entry["path"] == "narrow")
            .unwrap();
        let says = narrow["missing"].as_str().unwrap();
        assert!(says.contains(missing), "{flow}: {says}");
        let host = answer["reason"]
            .as_str()
            .unwrap()
            .contains("the host gets it");
        assert_eq!(host, path.is_null(), "{answer:#}");
    }
}

#[test]
fn every_counter_is_found_by_its_name() {
    for &count in Count::ALL {
        assert_eq!(counter(count.name()), Some(count));
    }
    assert_eq!(
        counter("bad_udp_checksum"),
        Some(Count::DroppedBadUdpChecksum)
    );
    assert_eq!(counter("fuel"), Some(Count::AbortFuel));
    assert_eq!(counter("wide"), None);
}

/// What a path says that has counted this so often.
fn base(name: &str, counted: &[(Count, u64)]) -> PathBase {
    let of = |count| {
        let mut all = counted.iter();
        let found = all.find(|(known, _)| *known == count);
        found.map_or(0, |(_, times)| *times)
    };
    PathBase {
        name: name.to_owned(),
        tier: "user".into(),
        counts: Counts::of(of, 0),
        ..PathBase::default()
    }
}

/// A status in which path `narrow` has counted this three times.
fn status(count: Count) -> Status {
    let promotion = PathPromotion {
        why: Some(Because {
            because: Some("it does floating-point arithmetic".into()),
            hint: None,
        }),
        ..PathPromotion::default()
    };
    let narrow = Path {
        base: base("narrow", &[(count, 3), (Count::Received, 3)]),
        promotion,
        bound: Some(BoundTo {
            handler: "h".to_owned(),
            ..BoundTo::default()
        }),
        ..Path::default()
    };
    let last_fault = LastFault {
        cause: Some("time".into()),
        file: Some("h.rs".to_owned()),
        line: Some(12),
        ..LastFault::default()
    };
    Status {
        interfaces: vec![Interface {
            name: "a".to_owned(),
            unmatched: Unmatched {
                passed: 5,
                overflowed: 0,
                no_host: 0,
            },
            ..Interface::default()
        }],
        handlers: vec![Handler {
            name: "h".to_owned(),
            last_fault: Some(last_fault),
            ..Handler::default()
        }],
        paths: vec![narrow],
        ..Status::default()
    }
}

#[test]
fn a_counter_has_its_reason_path_stage_and_line() {
    for (count, stage, line) in [
        (Count::DroppedBadUdpChecksum, "udp", 16),
        (Count::DroppedHandler, "handler:h", 14),
        (Count::AbortTime, "handler:h", 15),
        (Count::AbortFuel, "handler:h", 15),
        // No such key: the section's own line.
        (Count::DroppedRingFull, "ring", 12),
    ] {
        let status = status(count);
        let about = why(json!({ "about": count.name() }));
        let answer = answer(&config(), &status, &looks(&config()), &about).unwrap();
        let answer = document(&answer);
        let rows = answer["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 1, "{answer:#}");
        assert_eq!(rows[0]["path"], "narrow", "{answer:#}");
        assert_eq!(
            (&rows[0]["count"], &rows[0]["stage"]),
            (&json!(3), &json!(stage))
        );
        assert_eq!(rows[0]["line"], line, "{answer:#}");
        assert_eq!(
            rows[0]["last_fault"]["line"] == 12,
            count == Count::AbortTime
        );

        let path = super::answer(
            &config(),
            &status,
            &looks(&config()),
            &why(json!({ "about": "narrow" })),
        )
        .unwrap();
        let path = document(&path);
        assert_eq!(path["rows"], answer["rows"]);
        assert_eq!(path["tier_reason"], "it does floating-point arithmetic");
    }
    let passed = answer(
        &config(),
        &status(Count::Passed),
        &looks(&config()),
        &why(json!({ "about": "passed" })),
    );
    assert_eq!(document(&passed.unwrap())["unmatched"][0]["passed"], 5);
}

/// What was lost in the ring of all paths of modules is nobody's own, and is told all the
/// same, but for what a relay has counted itself.
#[test]
fn what_paths_of_modules_lost_in_their_ring_is_said() {
    let row = |times| {
        let lost = (Count::DroppedRingFull, times);
        [(Count::Received, 9), lost, (Count::QueuedTier, times)]
    };
    let relay = Path {
        base: base("relay", &row(2)),
        ..Path::default()
    };
    let mut status = status(Count::Answered);
    status.module_paths.counts = base("", &row(7)).counts;
    status.module_paths.ring.add("dropped_ring_full", 5);
    status.paths.push(relay);
    let ask = |about: Value| {
        let answer = answer(&config(), &status, &looks(&config()), &why(about));
        document(&answer.unwrap())
    };

    let counter = ask(json!({ "about": "dropped_ring_full" }));
    assert_eq!(counter["together"], 5, "{counter:#}");
    assert_eq!(counter["rows"][0]["count"], 2, "{counter:#}");
    let note = ask(json!({ "about": "queued_tier" }));
    assert_eq!(
        (&note["together"], &note["rows"][0]["count"]),
        (&json!(5), &json!(2))
    );
    let path = ask(json!({ "about": "relay" }));
    let row = &path["together"][0];
    assert_eq!(
        (&row["counter"], &row["count"]),
        (&json!("dropped_ring_full"), &json!(5))
    );
    assert!(row["hint"].as_str().unwrap().contains("user tier"), "{row}");
    // Of a path with a handler it is the path's own.
    assert_eq!(ask(json!({ "about": "narrow" }))["together"], json!([]));
}

/// Of a path that no file has the running node knows the stages.
#[test]
fn a_path_made_by_hand_has_its_stages() {
    let stage = |module: &str, kind: &'static str| Stage {
        module: module.to_owned(),
        kind: Some(kind.into()),
    };
    let by_hand = Path {
        base: base("hand", &[(Count::Received, 3), (Count::Consumed, 3)]),
        run: Some(PathRun {
            stages: vec![stage("end", "sink"), stage("eth:a", "datagram")],
            ..PathRun::default()
        }),
        ..Path::default()
    };
    let mut status = status(Count::Answered);
    status.paths.push(by_hand);
    let about = why(json!({ "about": "hand" }));
    let answer = document(&answer(&config(), &status, &looks(&config()), &about).unwrap());
    // First the one next to the interface.
    assert_eq!(answer["stages"], json!(["eth:a", "end"]));
}

#[test]
fn what_is_not_there_is_named() {
    let status = status(Count::Answered);
    for (request, code, says) in [
        (
            json!({ "about": "narow" }),
            Code::Usage,
            "did you mean `narrow`",
        ),
        (
            json!({ "about": "udp 1 > 2", "iface": "a" }),
            Code::Usage,
            "no address",
        ),
        (
            json!({ "about": "udp 1.1.1.1:1 > 2.2.2.2:2" }),
            Code::Usage,
            "on which interface",
        ),
        (
            json!({ "about": "udp 1.1.1.1:1 > 2.2.2.2:2", "iface": "c" }),
            Code::Failed,
            "no interface `c`",
        ),
        (
            json!({ "about": "passed", "path": "x" }),
            Code::Failed,
            "no path `x`",
        ),
    ] {
        let refusal = answer(&config(), &status, &looks(&config()), &why(request)).unwrap_err();
        assert_eq!(refusal.code, code, "{refusal:?}");
        let said = format!("{} {}", refusal.message, refusal.hint);
        assert!(said.contains(says), "{said}");
    }
}

/// The node's loop answers, so one question must not cost a graph for each path.
#[test]
fn a_question_about_many_paths_is_answered_briefly() {
    let mut text = "[iface.a]\n[handler.h]\nfile = \"/bin/sh\"\n".to_owned();
    for port in 1..=60 {
        let _ = write!(
            text,
            "[path.p{port}]\niface = \"a\"\nmatch = \"udp and dst port {port}\"\nhandler = \"h\"\n"
        );
    }
    let config = ashway_config::parse(FsPath::new("node.toml"), text.as_bytes()).unwrap();
    let flow = "udp 10.0.0.1:5000 > 10.0.0.2:9000";
    let answer = document(&offline(&config, flow, None).unwrap());
    assert_eq!(answer["missed"].as_array().unwrap().len(), LISTED);
    assert_eq!(answer["missed_not_listed"], 60 - LISTED);

    let paths = (1..=60).map(|port| Path {
        base: base(&format!("p{port}"), &[(Count::Received, port)]),
        bound: Some(BoundTo::default()),
        ..Path::default()
    });
    let status = Status {
        paths: paths.collect(),
        ..Status::default()
    };
    let answer = super::answer(
        &config,
        &status,
        &looks(&config),
        &why(json!({ "about": "received" })),
    )
    .unwrap();
    let answer = document(&answer);
    let rows = answer["rows"].as_array().unwrap();
    assert_eq!((rows.len(), &rows[0]["path"]), (LISTED, &json!("p60")));
    assert_eq!(answer["rows_not_listed"], 60 - LISTED);
}
