//! Requests as lines of JSON.

use serde_json::json;

use super::*;

fn refused(value: Value) -> String {
    Request::read(value).unwrap_err().to_string()
}

#[test]
fn a_request_is_read_as_it_is_written() {
    let owner = Some(Owner::Process(7));
    let params = BTreeMap::from([
        ("n".to_owned(), Scalar::Number(-5)),
        ("t".to_owned(), Scalar::Text("x".to_owned())),
    ]);
    let bind = json!({
        "request": "bind", "handler": "h", "path": "p", "iface": ["a"], "match": "udp",
        "tier": "kernel", "on_fault": "drop", "owner": 7,
    });
    let read = Request::read(bind).unwrap();
    let Request::Bind(bind) = &read else {
        unreachable!("{read:?}");
    };
    assert_eq!(
        (bind.tier, bind.on_fault, bind.owner),
        (Tier::Kernel, OnFault::Drop, owner)
    );
    let swap = Swap {
        handler: "h".to_owned(),
        file: "/h.wasm".to_owned(),
        params,
    };
    for request in [
        read,
        swap.into(),
        Status {}.into(),
        Observe::default().into(),
    ] {
        let line = serde_json::to_value(&request).unwrap();
        assert_eq!(Request::read(line).unwrap(), request);
    }
}

#[test]
fn each_request_refuses_a_key_that_it_does_not_know() {
    for &name in Request::NAMES {
        let said = refused(json!({ "request": name, "moon": 1 }));
        assert_eq!(said, "unknown key `moon`", "{name}");
    }
    let path = json!({ "module": "m", "log": true });
    let said = refused(json!({ "request": "create", "paths": [path] }));
    assert_eq!(said, "unknown key `log`");
    assert_eq!(
        refused(json!({ "request": "moon" })),
        "there is no such request"
    );
    assert_eq!(refused(json!([1, 2])), "there is no such request");
}

#[test]
fn one_path_is_a_list_of_one() {
    let one = json!({ "request": "create", "module": "m", "attrs": { "a": 1, "b": "c" } });
    let list = json!({
        "request": "create",
        "paths": [{ "module": "m", "attrs": { "a": 1, "b": "c" } }],
    });
    assert_eq!(Request::read(one), Request::read(list));
    let one = json!({ "request": "remove", "path": "p" });
    let list = json!({ "request": "remove", "paths": ["p"] });
    assert_eq!(Request::read(one), Request::read(list));
    for (wrong, says) in [
        (json!({ "request": "create" }), "the request needs `module`"),
        (
            json!({ "request": "create", "paths": [], "module": "m" }),
            "in that list alone",
        ),
        (
            json!({ "request": "create", "paths": [], "tier": "user" }),
            "in that list alone",
        ),
        (json!({ "request": "remove" }), "the request needs `path`"),
        (
            json!({ "request": "remove", "path": "a", "paths": [] }),
            "give one of them",
        ),
    ] {
        let said = refused(wrong.clone());
        assert!(said.contains(says), "{wrong}: {said}");
    }
}

#[test]
fn a_value_of_two_types_says_which() {
    for (key, value, says) in [
        ("owner", json!("me"), "`owner` cannot be `me`"),
        ("owner", json!(-1), "`owner` cannot be -1"),
        ("owner", json!([1]), "`owner` cannot be a list"),
        ("params", json!({ "a": 1.5 }), "`a` cannot be 1.5"),
        ("params", json!([]), "`params` cannot be a list"),
        ("allow", json!(["fly"]), "`allow` cannot be `fly`"),
    ] {
        let mut request = json!({ "request": "load", "file": "/x" });
        request[key] = value;
        assert_eq!(refused(request), says);
    }
}

/// A row of the guide for each request, in this order, with its keys.
#[test]
fn the_guide_describes_each_request_and_its_keys() {
    let guide = include_str!("../../../../docs/guide/control.md");
    let row = |line: &'static str| line.strip_prefix("| `")?.split_once('`');
    let requests = guide
        .split("\n## ")
        .find(|part| part.starts_with("Requests"));
    let rows: Vec<_> = requests.unwrap().lines().filter_map(row).collect();
    let names: Vec<_> = rows.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, Request::NAMES);
    for (name, rest) in rows {
        let column = rest.split('|').nth(1).unwrap();
        for key in Request::keys(name).unwrap() {
            assert!(
                column.contains(&format!("`{key}`")),
                "{name}: {key}: {column}"
            );
        }
    }
}

#[cfg(feature = "schema")]
#[test]
fn the_schema_has_each_request() {
    let schema = schemars::schema_for!(Request).to_value().to_string();
    for name in Request::NAMES {
        assert!(schema.contains(&format!("\"const\":\"{name}\"")), "{name}");
    }
}
