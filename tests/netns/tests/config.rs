//! What is wrong with a configuration or a handler is said, and nothing is done.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use ashway_netns::node::{Config, assert_free, entry, run, stock, text};
use ashway_rig::{Rig, skip_unless_root};
use serde_json::Value;

/// Five mistakes, each of another kind.
const FIVE: &str = r#"[iface.b0]
mode = "turbo"

[handler.counter]
file = "no-such-file.wasm"

[path.inc]
iface = "b0"
match = "udp and dst prot 7777"
handler = "countre"
budget = "50"
"#;

/// Where each is, what is said of it, and what its line of the file is.
const MISTAKES: [(u64, &str, &str); 5] = [
    (2, "`turbo`", "mode = \"turbo\""),
    (5, "cannot read", "file = \"no-such-file.wasm\""),
    (9, "prot", "match = \"udp and dst prot 7777\""),
    (
        10,
        "there is no `[handler.countre]`",
        "handler = \"countre\"",
    ),
    (11, "has no unit", "budget = \"50\""),
];

#[test]
fn every_mistake_is_shown_at_once_with_its_place() {
    if skip_unless_root() {
        return;
    }
    let rig = stock("five");
    let mut node = rig.node(FIVE).launch().unwrap();
    let ended = node.wait().unwrap();
    assert_eq!(ended.code(), Some(2), "{}", node.output());
    assert!(!node.socket().exists());
    assert_free(&rig, "b0");

    let check = run(rig.ashway_b().unwrap().arg("check").arg(node.config()));
    assert_eq!(check.status.code(), Some(2), "{}", text(&check));
    let file = node.config().display().to_string();
    for said in [node.output(), text(&check)] {
        let errors = said.matches("error: ").count();
        assert_eq!(errors, MISTAKES.len(), "{said}");
        for (line, message, source) in MISTAKES {
            assert!(
                said.contains(&format!("{file}:{line}:")),
                "line {line}: {said}"
            );
            assert!(said.contains(message), "`{message}`: {said}");
            // The line of the file, and under it the caret.
            let mut lines = said.lines();
            let shown = lines.find(|shown| shown.contains(source));
            assert!(shown.is_some(), "`{source}`: {said}");
            assert!(
                lines.next().is_some_and(|caret| caret.contains('^')),
                "{said}"
            );
        }
        assert!(said.contains("did you mean `counter`"), "{said}");
    }

    let json = run(rig
        .ashway_b()
        .unwrap()
        .args(["check", "-j"])
        .arg(node.config()));
    assert_eq!(json.status.code(), Some(2));
    let document: Value = serde_json::from_slice(&json.stdout).unwrap();
    let errors = document["errors"].as_array().unwrap();
    let lines: Vec<_> = errors
        .iter()
        .map(|error| error["line"].as_u64().unwrap())
        .collect();
    assert_eq!(lines, MISTAKES.map(|(line, ..)| line));
}

#[test]
fn a_good_configuration_is_told_from_a_handler() {
    if skip_unless_root() {
        return;
    }
    let rig = stock("check");
    let config = Config::on_b0("auto").handler("counter").unwrap();
    let node = rig
        .node(config.path("counter", 7777, "auto"))
        .start()
        .unwrap();
    let check = run(rig.ashway_b().unwrap().arg("check").arg(node.config()));
    assert!(check.status.success(), "{}", text(&check));
    for said in [
        "is a configuration",
        "handler counter: ",
        "path counter: udp",
    ] {
        assert!(text(&check).contains(said), "{}", text(&check));
    }
    let file = ashway_rig::handler("counter").unwrap();
    let check = run(rig.ashway_b().unwrap().arg("check").arg(file));
    assert!(check.status.success(), "{}", text(&check));
    assert!(text(&check).contains("is a handler"), "{}", text(&check));
    node.stop().unwrap();
}

/// A folder of files that are no handlers.
struct Bad {
    folder: PathBuf,
}

impl Bad {
    fn new() -> Self {
        // Named like a rig's folders, so that it is removed if this is killed.
        let folder = std::env::temp_dir().join(format!("ashway-bad-{}-a", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Self { folder }
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.folder.join(format!("{name}.wasm"));
        std::fs::write(&path, bytes).unwrap();
        path
    }

    fn wat(&self, name: &str, source: &str) -> PathBuf {
        self.file(name, &wat::parse_str(source).unwrap())
    }

    /// 100 MB that begin like a module and take no room on the disk.
    fn huge(&self) -> PathBuf {
        let path = self.file("huge", b"\0asm\x01\0\0\0");
        let file = File::options().write(true).open(&path).unwrap();
        file.write_all_at(&[0], 100_000_000 - 1).unwrap();
        path
    }
}

impl Drop for Bad {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn what_is_no_handler_is_refused_by_name() {
    if skip_unless_root() {
        return;
    }
    let rig = stock("bad");
    let bad = Bad::new();
    let memory = r#"(memory (export "memory") 1 2)"#;
    let on_rx = r#"(func (export "on_rx") (param i32 i32) (result i32) (i32.const 0))"#;
    let cases = [
        (
            cut(&bad),
            "not a valid Wasm module",
            "is it the compiler's output",
        ),
        (
            bad.wat("no-on-rx", &format!("(module {memory})")),
            "no exported function `on_rx`",
            "ASHWAY_HANDLER int on_rx(int len, int channel)",
        ),
        (
            bad.wat("no-memory", &format!("(module {on_rx})")),
            "does not define a memory and export it as `memory`",
            "-Wl,--max-memory=",
        ),
        (
            bad.wat(
                "unknown-import",
                &format!(r#"(module (import "ashway" "msg_explode" (func)) {memory} {on_rx})"#),
            ),
            "unknown import `ashway.msg_explode`",
            "`ashway` has msg_load8",
        ),
        (
            bad.wat(
                "foreign-import",
                &format!(r#"(module (import "wasi" "fd_write" (func)) {memory} {on_rx})"#),
            ),
            "unknown import `wasi.fd_write`",
            "handlers import from `ashway` only",
        ),
        (
            bad.wat(
                "wrong-type",
                &format!(r#"(module {memory} (func (export "on_rx")))"#),
            ),
            "a handler has type (i32, i32) -> i32",
            "write `ASHWAY_HANDLER int on_rx",
        ),
        (
            bad.huge(),
            "bytes of file, at most",
            "make the handler smaller",
        ),
    ];
    for (file, because, hint) in &cases {
        refused(&rig, file, because, hint);
    }
    // What does not even begin as one is a mistake of the configuration.
    for (name, bytes) in [
        ("garbage", &b"this is not WebAssembly at all"[..]),
        ("empty", b""),
    ] {
        let config = Config::on_b0("auto").handler_file("bad", &bad.file(name, bytes));
        let mut node = rig.node(config.path("bad", 7777, "auto")).launch().unwrap();
        assert_eq!(node.wait().unwrap().code(), Some(2), "{}", node.output());
        assert!(!node.socket().exists(), "{name}");
        let check = run(rig.ashway_b().unwrap().arg("check").arg(node.config()));
        assert_eq!(check.status.code(), Some(2), "{}", text(&check));
        for said in [node.output(), text(&check)] {
            for part in ["is no WebAssembly", "file = ", "^^^^", "= help: name the"] {
                assert!(said.contains(part), "no `{part}` in:\n{said}");
            }
        }
    }
    assert_free(&rig, "b0");
}

/// What only a running node finds out of a module is shown with its line, as what
/// `check` finds.
#[test]
fn a_tap_that_cannot_be_written_is_shown_with_its_line() {
    if skip_unless_root() {
        return;
    }
    let rig = stock("bad-tap");
    let config = Config::on_b0("packet").text(
        "[module.look]\nkind = 'tap'\ndown = 'udp.up'\nup = 'own.down'\nlayer = 'payload'\n\
         file = 'no-such-folder/look.pcapng'\n[module.own]\nkind = 'host'\n\
         [path.watched]\nfrom = 'own'\nattrs = { local = '10.7.0.2:7004' }",
    );
    let mut node = rig.node(config).launch().unwrap();
    assert_eq!(node.wait().unwrap().code(), Some(2));
    let said = node.output();
    for part in [
        "error: module `look` cannot be initialised: cannot write `",
        "no-such-folder/look.pcapng`: No such file",
        "[module.look]",
        "^^^^",
        "= help: name a file",
    ] {
        assert!(said.contains(part), "no `{part}` in:\n{said}");
    }
    assert!(!said.contains('\u{fffd}'), "{said}");
}

/// A good handler without its second half.
fn cut(bad: &Bad) -> PathBuf {
    let whole = std::fs::read(ashway_rig::handler("counter").unwrap()).unwrap();
    bad.file("cut", &whole[..whole.len() / 2])
}

/// Both `run` and `check` refuse the file with these words, and nothing is left
/// behind; a good handler beside it changes nothing.
fn refused(rig: &Rig, file: &Path, because: &str, hint: &str) {
    let config = Config::on_b0("auto").handler("echo").unwrap();
    let config = config.handler_file("bad", file).path("echo", 7, "auto");
    let mut node = rig.node(config.path("bad", 7777, "auto")).launch().unwrap();
    let ended = node.wait().unwrap();
    let name = file.display().to_string();
    let run_said = node.output();
    assert_eq!(ended.code(), Some(3), "{name}: {run_said}");
    assert!(!node.socket().exists(), "{name}");
    assert!(!run_said.contains("ready"), "{name}: {run_said}");

    let check = run(rig.ashway_b().unwrap().arg("check").arg(file));
    assert_eq!(check.status.code(), Some(3), "{name}: {}", text(&check));
    let of_config = run(rig.ashway_b().unwrap().arg("check").arg(node.config()));
    assert_eq!(
        of_config.status.code(),
        Some(3),
        "{name}: {}",
        text(&of_config)
    );
    for said in [run_said, text(&check), text(&of_config)] {
        assert!(said.starts_with(&format!("error: `{name}` is ")), "{said}");
        assert!(said.contains(because), "{said}");
        assert!(said.contains("hint: ") && said.contains(hint), "{said}");
    }
    let json = run(rig.ashway_b().unwrap().args(["check", "-j"]).arg(file));
    let document: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(document["error"]["code"], "handler_refused", "{document:#}");
    assert_eq!(document["error"]["file"], name.as_str(), "{document:#}");
}

#[test]
fn a_parameter_or_a_function_that_is_not_there_is_named() {
    if skip_unless_root() {
        return;
    }
    let rig = stock("param");
    let base = || Config::on_b0("auto").handler("counter").unwrap();
    let no_param = base()
        .text("params = { stepp = 5 }")
        .path("counter", 7777, "auto");
    let no_function = base().path("counter", 7777, "auto");
    let no_function = String::from(no_function);
    let no_function = no_function.replace("handler = \"counter\"", "handler = \"counter:on_get\"");
    for (config, said) in [
        (String::from(no_param), ["`stepp`", "`step`"]),
        (no_function, ["no function `on_get`", "it exports `on_rx`"]),
    ] {
        let mut node = rig.node(config).launch().unwrap();
        let ended = node.wait().unwrap();
        let output = node.output();
        assert!(matches!(ended.code(), Some(2 | 3)), "{ended}: {output}");
        for word in said {
            assert!(output.contains(word), "`{word}`: {output}");
        }
    }
    assert_free(&rig, "b0");
}

/// Not being fit for the kernel tier is no fault: the handler runs, and its
/// author is told which line keeps it out.
#[test]
fn a_handler_with_floats_runs_in_the_user_tier_and_says_why() {
    if skip_unless_root() {
        return;
    }
    let rig = stock("float");
    for tier in ["auto", "kernel"] {
        let config = Config::on_b0("auto").handler("float").unwrap();
        let node = rig.node(config.path("float", 7777, tier)).start().unwrap();
        let output = node.output();
        let why = output
            .lines()
            .find(|line| line.contains("stays in the user tier"));
        let why = why.unwrap_or_else(|| panic!("not said: {output}"));
        assert!(why.contains("apps/handlers/float.c:"), "{why}");
        assert!(why.contains("f64"), "{why}");
        assert!(output.contains("hint: use integers"), "{output}");
        // The same of whom asks, before and meanwhile; what was asked for by name is said.
        let asks = |words: &str| words.contains("`float` has `tier = \"kernel\"` and stays");
        assert_eq!(asks(&output), tier == "kernel", "{output}");
        let config = node.config().to_str().unwrap().to_owned();
        let mut check = rig.ashway_b().unwrap();
        check.args(["check", &config]);
        for mut command in [check, node.command(["status"])] {
            let said = text(&run(&mut command));
            assert!(
                said.contains("stays in the user tier: apps/handlers/float.c:"),
                "{said}"
            );
            assert!(said.contains("hint: use integers"), "{said}");
            assert_eq!(asks(&said), tier == "kernel", "{said}");
        }

        let client = rig.client_a(7777).unwrap();
        // The newest number weighs an eighth.
        for average in [100, 187, 264] {
            assert_eq!(client.ask_number(800).unwrap(), average);
        }
        let status = node.status().unwrap();
        assert_eq!(entry(&status, "paths", "float")["tier"], "user");
        let promotion = &entry(&status, "handlers", "float")["promotion"];
        assert_eq!(promotion["state"], "user");
        let line = promotion["line"].as_str().unwrap();
        assert!(line.starts_with("apps/handlers/float.c:"), "{promotion:#}");

        let asked = run(&mut node.command(["path", "promote", "float"]));
        assert_eq!(asked.status.code(), Some(3), "{}", text(&asked));
        assert!(text(&asked).contains(line), "{}", text(&asked));
        assert_eq!(client.ask_number(800).unwrap(), 331);
        node.stop().unwrap();
    }
}
