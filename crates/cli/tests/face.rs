//! The command as a user meets it: what it prints, and with which exit code.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::fs;
use std::io::{BufRead, BufReader, IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use ashway_rig::skip::{root_for_a_part, skip};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use serde_json::Value;

use common::Directory;

fn ashway(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ashway"))
        .args(args)
        .env_remove("XDG_RUNTIME_DIR")
        .output()
        .unwrap()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

const HANDLER: &str = r#"(module
    (memory (export "memory") 1 2)
    (global (export "counter") i32 (i32.const 1024))
    (func (export "on_rx") (param i32 i32) (result i32) i32.const 0))"#;

const CONFIG: &str = "[iface.veth0]\n[handler.counter]\nfile = \"counter.wasm\"\n\
    [path.inc]\niface = \"veth0\"\nmatch = \"udp dst port 7777\"\nhandler = \"counter\"\n";

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn check_says_what_the_file_is() {
    let directory = Directory::new("check");
    let wasm = directory.file("counter.wasm", wat::parse_str(HANDLER).unwrap());
    let config = directory.file("node.toml", CONFIG);
    let output = ashway(&["check", text(&wasm), "-j"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert_eq!(json(&output)["kind"], "handler");
    assert_eq!(json(&output)["handler"]["symbols"][0], "counter");
    let output = ashway(&["check", text(&config)]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(stdout(&output).contains("path inc: udp dst port 7777 on veth0, to counter:on_rx"));
    let output = ashway(&["check", text(&config), "-j"]);
    assert_eq!(json(&output)["paths"][0]["budget_ns"], 50_000);
}

#[test]
fn a_handler_as_text_is_no_configuration() {
    let directory = Directory::new("wat");
    let good = directory.file("good.wat", HANDLER);
    let output = ashway(&["check", text(&good)]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(stdout(&output).contains("good.wat is a handler"));
    let output = ashway(&["run", text(&good)]);
    let said = stderr(&output);
    assert!(said.contains("is a handler, not a configuration"), "{said}");
    let config = directory.file("node.toml", CONFIG);
    let said = stderr(&ashway(&["handler", "check", text(&config)]));
    assert!(
        said.contains("configuration is checked by `ashway check`"),
        "{said}"
    );
    let bad = directory.file("bad.wat", "(module (func");
    let said = stderr(&ashway(&["check", text(&bad)]));
    assert!(said.contains("bad.wat`\n  because: expected `)`"), "{said}");
    assert!(!said.contains("TOML"), "{said}");
}

#[test]
fn a_file_that_is_no_wasm_is_named_where_the_configuration_names_it() {
    let directory = Directory::new("nowasm");
    let config = directory.file("node.toml", CONFIG);
    let check = |text: &str, file: &str| {
        directory.file("counter.wasm", "no module at all");
        directory.file("counter.wat", text);
        let changed = CONFIG.replace("counter.wasm", file);
        directory.file("node.toml", changed);
        let output = ashway(&["check", self::text(&config)]);
        assert_eq!(code(&output), 2, "{}", stderr(&output));
        let said = stderr(&output);
        assert!(said.contains("node.toml:3:1"), "{said}");
        assert!(
            said.contains(&format!("3 | file = \"{file}\"\n  | ^^^^")),
            "{said}"
        );
        said
    };
    let said = check("", "counter.wasm");
    assert!(said.contains("is no WebAssembly"), "{said}");
    let said = check(HANDLER, "counter.wat");
    assert!(said.contains("a node loads the binary form"), "{said}");
    assert!(said.contains("wat2wasm"), "{said}");
    let said = check("(module (func", "counter.wat");
    assert!(said.contains("expected `)`"), "{said}");
}

#[test]
fn a_refused_handler_of_a_configuration_is_named_with_its_line() {
    let directory = Directory::new("refused");
    directory.file("counter.wasm", wat::parse_str("(module)").unwrap());
    let config = directory.file("node.toml", CONFIG);
    let output = ashway(&["check", text(&config)]);
    assert_eq!(code(&output), 3, "{}", stderr(&output));
    let said = stderr(&output);
    assert!(said.contains("handler `counter` names it at"), "{said}");
    assert!(said.contains("node.toml:2"), "{said}");
}

/// A pipe by name has no end before somebody writes it; what is open already is read.
#[test]
fn what_might_never_end_is_not_read() {
    let directory = Directory::new("pipe");
    let pipe = directory.0.join("pipe.toml");
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    for command in [&["check"][..], &["handler", "check"], &["run"]] {
        // One that waits is ended, which is not 2.
        let mut waits = Command::new("timeout");
        waits.args(["20", env!("CARGO_BIN_EXE_ashway")]);
        let output = waits.args(command).arg(&pipe).output().unwrap();
        assert_eq!(code(&output), 2);
        assert!(
            stderr(&output).contains("it is a pipe"),
            "{}",
            stderr(&output)
        );
    }
    let output = ashway(&["check", text(&directory.0)]);
    assert!(
        stderr(&output).contains("it is a directory"),
        "{}",
        stderr(&output)
    );
    let mut reader = Command::new(env!("CARGO_BIN_EXE_ashway"));
    reader.args(["check", "/dev/stdin"]).stdin(Stdio::piped());
    let mut reader = reader.stdout(Stdio::piped()).spawn().unwrap();
    reader
        .stdin
        .take()
        .unwrap()
        .write_all(b"[iface.a]\n")
        .unwrap();
    let output = reader.wait_with_output().unwrap();
    assert!(
        stdout(&output).contains("/dev/stdin is a configuration"),
        "{output:?}"
    );
}

#[test]
fn names_in_a_handler_do_not_act_on_the_terminal() {
    let directory = Directory::new("escapes");
    let export = "(export \"on_rx\")";
    let both = format!("{export} (export \"on\\1b[2Jrx\")");
    let wicked = HANDLER.replace(export, &both);
    let wasm = directory.file("wicked.wasm", wat::parse_str(wicked).unwrap());
    let changed = CONFIG
        .replace("counter.wasm", "wicked.wasm")
        .replace("\"counter\"", "\"counter:on\\u001b[2Jrx\"");
    let config = directory.file("node.toml", changed);
    for file in [&wasm, &config] {
        for more in [&[][..], &["-j"]] {
            let output = ashway(&[&["check", text(file)], more].concat());
            let all = stdout(&output) + &stderr(&output);
            assert!(all.contains("[2Jrx"), "{all:?}");
            assert!(!all.contains('\u{1b}'), "{all:?}");
        }
    }
}

#[test]
fn five_mistakes_are_shown_at_once() {
    let directory = Directory::new("five");
    let five = CONFIG
        .replace("counter.wasm", "none.wasm")
        .replace(
            "iface = \"veth0\"",
            "iface = \"veth9\"\nspeed = 5\nbudget = \"5 h\"",
        )
        .replace("udp dst", "tcp dst");
    let config = directory.file("five.toml", five);
    for command in ["check", "run"] {
        let output = ashway(&[command, text(&config)]);
        assert_eq!(code(&output), 2);
        assert_eq!(
            stderr(&output).matches("error: ").count(),
            5,
            "{}",
            stderr(&output)
        );
        assert!(
            stderr(&output).contains("five.toml:8:10"),
            "{}",
            stderr(&output)
        );
    }
    let document = json(&ashway(&["-j", "check", text(&config)]));
    assert_eq!(document["error"]["code"], "usage");
    assert_eq!(document["error"]["line"], 3);
    assert_eq!(document["errors"].as_array().unwrap().len(), 5);
}

#[test]
fn what_is_no_handler_is_refused() {
    let directory = Directory::new("refused");
    directory.file("counter.wasm", wat::parse_str(HANDLER).unwrap());
    let huge = directory.file("huge.wasm", "");
    fs::File::options()
        .write(true)
        .open(&huge)
        .unwrap()
        .set_len(100 << 20)
        .unwrap();
    let cases = [
        (
            directory.file("garbage.wasm", b"\0asm and then nonsense"),
            "not a valid Wasm module",
        ),
        (directory.file("empty.wasm", ""), ""),
        (
            directory.file(
                "no_rx.wasm",
                wat::parse_str(HANDLER.replace("on_rx", "on_rt")).unwrap(),
            ),
            "on_rx",
        ),
        (huge, "at most"),
    ];
    for (file, because) in cases {
        let output = ashway(&["check", text(&file)]);
        assert_eq!(code(&output), 3, "{} {}", file.display(), stderr(&output));
        let said = stderr(&output);
        assert!(
            said.starts_with("error: ") && said.contains("  hint: "),
            "{said}"
        );
        assert!(said.contains(because), "{said}");
        let document = json(&ashway(&["check", text(&file), "-j"]));
        assert_eq!(document["error"]["code"], "handler_refused");
    }
}

/// What only a look into the handlers' files tells is told by both, with its
/// place.
#[test]
fn what_handlers_do_not_have_is_shown_where_it_is_named() {
    let directory = Directory::new("lacks");
    let source = HANDLER.replace(
        "(func (export \"on_rx\")",
        "(func (export \"other\") (param i32) (result i32) (i32.const 0))
         (func (export \"on_rx\")",
    );
    directory.file("counter.wasm", wat::parse_str(source).unwrap());
    for (from, to, says, caret) in [
        (
            "\"counter\"",
            "\"counter:other\"",
            "exports no function `other` of type",
            "handler",
        ),
        (
            "\"counter\"",
            "\"counter:none\"",
            "it exports `on_rx`",
            "handler",
        ),
        (
            "[path.inc]",
            "params = { step = 5 }\n[path.inc]",
            "has no parameter `step`",
            "step",
        ),
    ] {
        let text_of = CONFIG.replace(from, to);
        let file = directory.file("lacks.toml", &text_of);
        let line = 1 + text_of
            .lines()
            .position(|line| line.contains(caret) && line.contains('='))
            .unwrap();
        for command in ["check", "run"] {
            let output = ashway(&[command, text(&file)]);
            assert_eq!(code(&output), 2, "{}", stderr(&output));
            let said = stderr(&output);
            assert!(said.contains(says), "{said}");
            assert!(said.contains(&format!("lacks.toml:{line}:")), "{said}");
            let document = json(&ashway(&[command, text(&file), "-j"]));
            assert_eq!(document["error"]["line"], line);
        }
    }
}

/// What a file needs is listed, and refused where it is not granted.
#[test]
fn host_calls_take_their_grants() {
    let directory = Directory::new("grants");
    let source = HANDLER.replace(
        "(module",
        r#"(module (import "ashway" "now_ns" (func (result i64)))
            (import "ashway" "log" (func (param i32 i32)))"#,
    );
    let wasm = directory.file("counter.wasm", wat::parse_str(source).unwrap());
    let found = json(&ashway(&["handler", "check", text(&wasm), "-j"]));
    assert_eq!(
        found["handler"]["grants"],
        serde_json::json!(["log", "time"])
    );
    let reply = CONFIG.replace("[path.inc]", "allow = [\"reply\"]\n[path.inc]");
    let file = directory.file("node.toml", &reply);
    for command in ["check", "run"] {
        let output = ashway(&[command, text(&file)]);
        assert_eq!(code(&output), 2, "{}", stderr(&output));
        let said = stderr(&output);
        assert!(
            said.contains("imports `log`, `now_ns`, which were not granted"),
            "{said}"
        );
        assert!(said.contains("add \"log\", \"time\" to `allow`"), "{said}");
        assert!(said.contains("node.toml:4:"), "{said}");
    }
    let both = reply.replace("\"reply\"", "\"reply\", \"time\", \"log\"");
    let file = directory.file("node.toml", &both);
    let output = ashway(&["check", text(&file)]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
}

#[test]
fn a_handler_is_no_configuration() {
    let directory = Directory::new("mixed");
    let wasm = directory.file("counter.wasm", wat::parse_str(HANDLER).unwrap());
    let output = ashway(&["run", text(&wasm)]);
    assert_eq!(code(&output), 2);
    assert!(
        stderr(&output).contains("is a handler, not a configuration"),
        "{}",
        stderr(&output)
    );
    let source = directory.file("counter.c", "int main(void) { return 0; }");
    let output = ashway(&["handler", "check", text(&source)]);
    assert_eq!(code(&output), 3);
    assert!(
        stderr(&output).contains("does not begin with `\\0asm`"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn what_cannot_be_written_is_no_success() {
    let directory = Directory::new("full");
    let wasm = directory.file("counter.wasm", wat::parse_str(HANDLER).unwrap());
    for args in [
        &["check", text(&wasm)][..],
        &["handler", "check", text(&wasm), "-j"],
    ] {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_ashway"))
            .args(args)
            .stdout(full)
            .output()
            .unwrap();
        assert_eq!(code(&output), 1);
    }
    // A reader that has gone is none of our business.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = Command::new(env!("CARGO_BIN_EXE_ashway"))
        .args(["check", text(&wasm)])
        .stdout(writer)
        .output()
        .unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
}

#[test]
fn a_socket_that_cannot_be_made_is_named_and_leaves_no_folders() {
    let directory = Directory::new("socket");
    directory.file("counter.wasm", wat::parse_str(HANDLER).unwrap());
    let config = directory.file("node.toml", CONFIG);
    let deep = directory.0.join("a/b/node.sock");
    let output = ashway(&["run", text(&config), "--socket", text(&deep)]);
    assert_ne!(code(&output), 0);
    assert!(
        stderr(&output).contains("a/b/node.sock"),
        "{}",
        stderr(&output)
    );
    assert!(!directory.0.join("a").exists());
    let output = ashway(&["run", text(&config), "--socket", text(&deep), "-j"]);
    assert_eq!(json(&output)["error"]["code"], "failed");
}

#[test]
fn usage_errors_and_help() {
    let output = ashway(&["frobnicate", "-j"]);
    assert_eq!(code(&output), 2);
    assert_eq!(json(&output)["error"]["code"], "usage");
    assert_eq!(code(&ashway(&["path", "promote"])), 2);
    let output = ashway(&["--help"]);
    assert_eq!(code(&output), 0);
    assert!(stdout(&output).contains("ashway run node.toml"));
}

#[test]
fn what_cannot_be_a_node_or_a_swap_is_said_before_one_is_asked() {
    for name in ["../x", "", "A b", "\u{1b}[31m"] {
        let output = ashway(&["status", "--node", name]);
        assert_eq!(code(&output), 2, "{}", stderr(&output));
        let said = stderr(&output);
        assert!(said.contains("cannot be the name of a node"), "{said}");
        assert!(!said.contains('\u{1b}'), "{said}");
    }
    let output = ashway(&["handler", "swap", "h", "h.wasm", "--allow", "reply,send"]);
    assert_eq!(code(&output), 2);
    let said = stderr(&output);
    assert!(said.contains("a swap grants nothing"), "{said}");
}

#[test]
fn no_node_and_no_interface() {
    let output = ashway(&["status", "--socket", "/nowhere/x.sock"]);
    assert_eq!(code(&output), 5);
    assert!(stderr(&output).contains("hint: "));
    let document = json(&ashway(&["confirm", "-j", "--socket", "/nowhere/x.sock"]));
    assert_eq!(document["error"]["code"], "not_reachable");
    let output = ashway(&["iface", "detach", "ashway-none"]);
    assert_eq!(code(&output), 1);
    assert!(
        stderr(&output).contains("`ashway-none`"),
        "{}",
        stderr(&output)
    );
}

/// What a node said once.
const STATUS: &str = include_str!("../../api/testdata/status.json");

/// A node that answers each connection's first line, `memory` with a file.
fn node(directory: &Directory) -> PathBuf {
    let socket = directory.0.join("node.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let file = fs::File::open(directory.file("memory", "shared")).unwrap();
    let mut status: Value = serde_json::from_str(STATUS).unwrap();
    status["of_a_newer_node"] = 7.into();
    let status = format!(r#"{{"ok":{status}}}"#);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).unwrap();
            let request: Value = serde_json::from_str(&line).unwrap();
            let answer = match request["request"].as_str().unwrap() {
                "status" => &status,
                "memory" => {
                    r#"{"ok":{"kind":"arena","address":"0x100000000","bytes":6,"symbols":{"a":8}}}"#
                }
                "promote" => {
                    r#"{"error":{"code":"handler_refused","message":"floats","hint":"use integers"}}"#
                }
                _ => r#"{"ok":{"was_on_trial":true}}"#,
            };
            let answer = format!("{answer}\n");
            if request["request"] != "memory" {
                stream.write_all(answer.as_bytes()).unwrap();
                continue;
            }
            let descriptors = [file.as_fd()];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
            let bytes = [IoSlice::new(answer.as_bytes())];
            rustix::net::sendmsg(&stream, &bytes, &mut control, SendFlags::empty()).unwrap();
        }
    });
    socket
}

#[test]
fn a_node_is_asked() {
    let directory = Directory::new("node");
    let socket = node(&directory);
    let socket = text(&socket);
    let output = ashway(&["status", "--socket", socket, "-j"]);
    let status = json(&output);
    assert_eq!(status["paths"][0]["received"], 1);
    assert_eq!(status["of_a_newer_node"], 7, "it is passed on as it came");
    assert!(stdout(&ashway(&["path", "ls", "--socket", socket])).contains("counter"));
    assert_eq!(code(&ashway(&["confirm", "--socket", socket])), 0);
    let output = ashway(&["path", "promote", "inc", "--socket", socket]);
    assert_eq!(code(&output), 3);
    assert_eq!(stderr(&output), "error: floats\n  hint: use integers\n");
}

#[test]
fn a_program_gets_the_memory_and_another_user() {
    let directory = Directory::new("map");
    let socket = node(&directory);
    let script = "cat <&$ASHWAY_MEMORY_FD; echo \" $ASHWAY_MEMORY_KIND $ASHWAY_MEMORY_ADDRESS \
        $ASHWAY_MEMORY_BYTES $ASHWAY_SYMBOLS $(id -u) $(id -G)\"";
    let mut args = vec!["handler", "map", "counter", "--socket", text(&socket)];
    let root = root_for_a_part();
    if root {
        args.extend(["--uid", "65534"]);
    }
    args.extend(["--", "sh", "-c", script]);
    let output = ashway(&args);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let said = stdout(&output);
    assert!(
        said.starts_with("shared arena 0x100000000 6 a=8 "),
        "{said}"
    );
    if root {
        assert!(said.ends_with("65534 65534\n"), "{said}");
    }
    let output = ashway(&[
        "handler",
        "map",
        "counter",
        "--socket",
        text(&socket),
        "--",
        "/nowhere/x",
    ]);
    assert_eq!(code(&output), 1);
}

/// The examples are real: every one passes `check` where the handlers are
/// built (`cargo xtask handlers`).
#[test]
fn the_examples_are_in_order() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    if !workspace.join("target/handlers/lock.wasm").exists() {
        skip("needs handlers (cargo xtask handlers)");
        return;
    }
    let mut examples = 0;
    for entry in fs::read_dir(workspace.join("paths")).unwrap() {
        let path = entry.unwrap().path();
        let output = ashway(&["check", text(&path)]);
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        examples += 1;
    }
    assert!(examples >= 3);
}
