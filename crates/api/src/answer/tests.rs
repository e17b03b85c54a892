use serde_json::{Value, json};

use super::*;
use crate::Request;

/// What a node has said of itself: handlers in both tiers, stopped and swapped ones, paths
/// of both kinds.
fn status() -> Value {
    serde_json::from_str(include_str!("../../testdata/status.json")).unwrap()
}

#[test]
fn a_status_is_read_whole() {
    let status = exact::<Status>(&status()).unwrap();
    let of_handlers = |path: &&Path| path.bound.is_some();
    let (handler, modules): (Vec<_>, Vec<_>) = status.paths.iter().partition(of_handlers);
    assert!(!handler.is_empty() && !modules.is_empty());
    let promotions = status.handlers.iter().map(|handler| &handler.promotion);
    let promotions: Vec<_> = promotions.collect();
    assert!(promotions.iter().any(|one| one.program.is_some()));
    assert!(promotions.iter().any(|one| one.program.is_none()));
}

/// A node may be newer than its client; a test wants to know.
#[test]
fn a_key_of_a_newer_node_is_passed_over_but_not_in_tests() {
    let mut newer = status();
    newer["paths"][0]["phase_of_the_moon"] = json!("full");
    newer["paths"][0]["tier"] = json!("fpga");
    let read: Status = serde_json::from_value(newer.clone()).unwrap();
    assert_eq!(read.paths[0].base.tier, "fpga");
    let says = exact::<Status>(&newer).unwrap_err().to_string();
    assert!(says.contains("`paths[0].phase_of_the_moon`"), "{says}");
}

/// Of a group that is written flat serde alone would say nothing.
#[test]
fn a_path_that_cannot_be_read_says_which_key_is_wrong() {
    for (key, value) in [("budget_ns", json!("short")), ("received", Value::Null)] {
        let mut wrong = status();
        wrong["paths"][0][key] = value.clone();
        let error = serde_json::from_value::<Status>(wrong).unwrap_err();
        assert!(error.to_string().contains("invalid type"), "{key}: {error}");
    }
    // A group that is written flat is told from one that is not there.
    for (key, value) in [("stages", json!([])), ("share", json!("5 %"))] {
        let mut wrong = status();
        wrong["paths"][0][key] = value;
        let error = serde_json::from_value::<Status>(wrong).unwrap_err();
        assert!(
            error.to_string().contains("missing field"),
            "{key}: {error}"
        );
    }
    let error = serde_json::from_value::<Path>(json!({ "name": "p" })).unwrap_err();
    assert!(error.to_string().contains("missing field"), "{error}");
}

#[test]
fn groups_that_are_written_flat_are_told_apart() {
    let stays = json!({ "state": "user", "because": "no", "line": null, "hint": "do" });
    let refused = exact::<HandlerPromotion>(&stays).unwrap();
    assert_eq!(refused.because(), Some("no"));
    let demoted = json!({
        "state": "user", "because": "demoted by hand", "hint": null, "insns": 1,
        "verified_insns": 2, "translate_us": 3, "load_us": 4, "switch_ns": 5,
        "second_try": false,
    });
    let demoted = exact::<HandlerPromotion>(&demoted).unwrap();
    assert!(demoted.place.is_none() && demoted.because() == Some("demoted by hand"));
    let nothing = exact::<HandlerPromotion>(&json!({ "state": "user" })).unwrap();
    assert_eq!(nothing.because(), None);

    for promotion in [
        json!({ "state": "promoted", "switch_ns": 5 }),
        json!({ "state": "user", "because": "no", "hint": "do", "switch_ns": 5 }),
        json!({ "state": "user", "because": null, "hint": null }),
    ] {
        exact::<PathPromotion>(&promotion).unwrap();
    }
    for moved in [
        json!({ "path": "p", "tier": "user", "switch_ns": 5, "bypass": null }),
        json!({ "path": "p", "tier": "user", "switch_ns": 5, "bypass": null, "compared": null }),
        json!({ "path": "p", "tier": "kernel", "switch_ns": 5, "bypass": null,
            "compared": { "equal": 64, "unclear": 0, "now": true } }),
    ] {
        exact::<Moved>(&moved).unwrap();
    }
}

#[test]
fn an_event_is_a_message_or_that_some_were_lost() {
    let lost = exact::<Event>(&json!({ "lost": 3 })).unwrap();
    assert_eq!(lost, Event::Lost(Lost { lost: 3 }));
    let packet = json!({
        "packet": 1, "path": "inc", "tier": "kernel", "fate": "answered",
        "flow": "udp 10.0.0.1:5 > 10.0.0.2:7",
        "received": { "iface": "b0", "monotonic_ns": 5, "bytes": 60, "frame": "00ff" },
        "sent": [{ "iface": "b0", "monotonic_ns": 9, "bytes": 60 }],
        "steps": [
            { "step": "received", "at_ns": 0, "iface": "b0", "bytes": 60, "by": "entry program" },
            { "step": "classified", "at_ns": 1, "path": null },
            { "step": "handler", "at_ns": 2, "handler": "h", "ns": 40, "fuel": 7,
              "stopped": null, "copies": 0 },
            { "step": "not_sent", "at_ns": 3, "iface": "b0", "bytes": 60, "copies": 2 },
        ],
    });
    let Event::Packet(read) = exact::<Event>(&packet).unwrap() else {
        panic!("it is a message");
    };
    assert!(matches!(
        read.steps[3].what,
        What::NotSent { bytes: 60, .. }
    ));
    // A step of a newer node has a name, and the others are read.
    let mut newer = packet;
    newer["steps"][1] = json!({ "step": "weighed", "at_ns": 1, "grams": 3 });
    let Event::Packet(read) = serde_json::from_value(newer).unwrap() else {
        panic!("it is a message");
    };
    let step = "weighed".to_owned();
    assert_eq!(read.steps[1].what, What::Unknown { step });
    assert!(matches!(read.steps[2].what, What::Handler { ns: 40, .. }));
}

#[test]
fn nothing_is_no_answer_to_any_request() {
    for name in Request::NAMES {
        let read = Request::exact_answer(name, &Value::Null).unwrap();
        assert!(read.is_err(), "{name}");
    }
    assert!(Request::exact_answer("nothing", &Value::Null).is_none());
}

#[cfg(feature = "schema")]
#[test]
fn the_schema_says_what_each_key_is() {
    for name in Request::NAMES {
        let [request, answer] = Request::schemas(name).unwrap();
        for schema in [request, answer] {
            assert!(schema.to_value()["$schema"].is_string(), "{name}");
        }
    }
    let [_, status] = Request::schemas("status").unwrap();
    let text = status.to_value().to_string();
    for word in ["\"paths_not_listed\"", "\"time_ns\"", "CPU time it took"] {
        assert!(text.contains(word), "{word}");
    }
    assert!(Request::schemas("nothing").is_none());
}
