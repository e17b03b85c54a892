//! Files with one of every mistake: each is named at its line, all at once.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;

use serde_json::Value;

/// Checks a file of `tests/data`: all that is said, and each error's line with its
/// message.
fn check(name: &str) -> (String, Vec<(u64, String)>) {
    let file = format!("{}/tests/data/{name}", env!("CARGO_MANIFEST_DIR"));
    let ashway = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ashway"));
        let said = command.args(["check", &file]).args(more).output().unwrap();
        assert_eq!(said.status.code(), Some(2));
        said
    };
    let text = String::from_utf8(ashway(&[]).stderr).unwrap();
    let json = ashway(&["-j"]).stdout;
    let json: Value = serde_json::from_slice(&json).unwrap();
    let errors = json["errors"].as_array().unwrap().iter().map(|error| {
        assert_eq!(error["file"], file, "{error:#}");
        let line = error["line"].as_u64().unwrap();
        (line, error["message"].as_str().unwrap().to_owned())
    });
    (text, errors.collect())
}

/// The errors are these, in the order of the file: line, and what is in the
/// message.
fn are(errors: &[(u64, String)], wanted: &[(u64, &str)]) {
    for (at, (line, part)) in wanted.iter().enumerate() {
        let found = errors.get(at);
        assert!(
            found.is_some_and(|(there, message)| there == line && message.contains(part)),
            "line {line}, `{part}`: {found:?}"
        );
    }
    assert_eq!(errors.len(), wanted.len(), "{errors:#?}");
}

#[test]
fn every_mistake_in_modules_is_named_at_its_line() {
    let (text, errors) = check("mistakes.toml");
    are(
        &errors,
        &[
            (6, "expected `port` or `host` after `dst`"),
            (9, "cannot read"),
            (10, "there is no `[domain.game]`"),
            (15, "module `wire` has no service `upp`"),
            (15, "there is no module `wier`"),
            (19, "there is no `[iface.veth1]`"),
            (20, "has no key `speed`"),
            (27, "needs the key `kind`"),
            (31, "no kind of module `snik`"),
            (
                37,
                "wait for each other: `one` after `two`, `two` after `one`",
            ),
            (43, "no layer `link`"),
            (45, "`max_bytes` is 10"),
            (49, "`loss_ppm` is 2000000"),
            (50, "`hold` must be a whole number"),
            (53, "`allow` is empty"),
            (55, "`shell.down:<net, transport>` cannot be connected"),
            (56, "there is no `[domain.gamse]`"),
            (59, "there is no module `ipp`"),
            (64, "expected `port` or `host` after `dst`"),
            (70, "`layer` cannot be `tcp`"),
            (75, "`mode` must be a number, a truth or a string"),
            (78, "there is no section `paths`"),
        ],
    );
    // Both types, and both ends of the circle, have a caret.
    for part in [
        "^^^^^^^ `shell.down` requires `transport`, `ip.up` provides `network`",
        "^^^^^^^^ `one.down` wants `two` initialised first",
        "-------- `two.down` wants `one` initialised first",
        "= help: what fits `shell.down`: `udp.up`",
        "= help: did you mean `sink`?",
    ] {
        assert!(text.contains(part), "no `{part}` in:\n{text}");
    }
}

#[test]
fn every_path_that_cannot_be_is_named_at_its_line() {
    let (text, errors) = check("mistaken_paths.toml");
    are(
        &errors,
        &[
            (25, "module `ipp`: there is no module of this name"),
            (
                28,
                "it leads to no interface, and nothing in it starts by itself",
            ),
            (33, "`remote` is fd00::1, and this path speaks the other"),
            (37, "`vlan` is 5000"),
            (42, "path so far: eth:veth0/ip/udp: `next_hop` is missing"),
            (46, "domain `games` does not own all that"),
            (56, "paths `first` and `second` ask for the same messages"),
        ],
    );
    assert!(text.contains("= help: narrow the filter to a part of `udp and dst portrange"));
}

#[test]
fn a_file_without_mistakes_is_shown_as_what_it_becomes() {
    let file = format!("{}/tests/data/right.toml", env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_ashway"));
    let said = command.args(["check", &file]).output().unwrap();
    let text = String::from_utf8(said.stdout).unwrap();
    let lines: Vec<&str> = text.lines().skip(1).collect();
    assert_eq!(
        lines,
        [
            "  domain games: owns `udp and dst portrange 7000-7099`, `udp dst port 9`",
            "  module look: tap",
            "  module end: sink",
            "  path a: end / look / datagram; takes `ip and dst host 10.0.0.1 and udp and dst \
             port 7001 and (src net 10.0.0.0/8)` on veth0",
        ]
    );
}

/// What the handlers' files have to be is looked at as a node would.
#[test]
fn a_handler_that_was_not_built_for_several_cpus_is_refused_with_its_section() {
    let folder = std::env::temp_dir().join(format!("ashway-check-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let module = "(module (memory (export \"memory\") 1 1) (func (export \"on_rx\") \
                  (param i32 i32) (result i32) i32.const 0))";
    std::fs::write(folder.join("h.wasm"), wat::parse_str(module).unwrap()).unwrap();
    let file = folder.join("node.toml");
    let check = |instances: &str| {
        let text = format!("[iface.b0]\n[handler.h]\nfile = 'h.wasm'\ninstances = '{instances}'\n");
        std::fs::write(&file, text).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_ashway"));
        let said = command.arg("check").arg(&file).output().unwrap();
        (said.status.code(), String::from_utf8(said.stderr).unwrap())
    };
    let (code, said) = check("parallel");
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("handler `h` names it at"), "{said}");
    assert!(said.contains("-matomics"), "{said}");
    assert_eq!(check("one").0, Some(0));
    std::fs::remove_dir_all(&folder).unwrap();
}
