//! `ashway handler check|run|show|invoke`, as a user meets them. All but two
//! tests need no privilege.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../common/mod.rs"]
mod common;

mod captures;

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ashway_rig::skip_unless_root;
use ashway_wire::Datagram;
use serde_json::Value;

use crate::common::Directory;

fn wasm_file(directory: &Directory, name: &str, text: &str) -> PathBuf {
    directory.file(name, wat::parse_str(text).unwrap())
}

fn handler(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ashway"))
        .arg("handler")
        .args(args)
        .output()
        .unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// What it printed, if it ended with this exit code.
#[track_caller]
fn said(output: &Output, code: i32) -> (String, String) {
    let out = String::from_utf8(output.stdout.clone()).unwrap();
    let err = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(code), "{out}\n{err}");
    (out, err)
}

#[track_caller]
fn json(output: &Output, code: i32) -> Value {
    let (out, _) = said(output, code);
    serde_json::from_str(&out).unwrap()
}

/// Answers with the first byte incremented; drops what is empty, passes what
/// starts with 7, traps at 9.
const REPLY: &str = r#"(module
    (import "ashway" "msg_load8" (func $load (param i32) (result i32)))
    (import "ashway" "msg_store8" (func $store (param i32 i32)))
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (local $first i32)
        (if (i32.eqz (local.get $len)) (then (return (i32.const 5))))
        (local.set $first (call $load (i32.const 0)))
        (if (i32.eq (local.get $first) (i32.const 7)) (then (return (i32.const 3))))
        (if (i32.eq (local.get $first) (i32.const 9)) (then unreachable))
        (i32.store8 (local.get $first) (i32.const 1))
        (call $store (i32.const 0) (i32.add (local.get $first) (i32.const 1)))
        (i32.const 1))
    (func (export "loops") (param $len i32) (param $channel i32) (result i32)
        (loop $turn
            (local.set $len (i32.sub (local.get $len) (i32.const 1)))
            (br_if $turn (i32.gt_s (local.get $len) (i32.const 0))))
        (i32.const 0))
    (func (export "add") (param i64 i64) (result i64)
        (i64.add (local.get 0) (local.get 1)))
    (func (export "divide") (param i32 i32) (result i32)
        (i32.div_s (local.get 0) (local.get 1))))"#;

/// An IPv4 frame with a UDP datagram, without UDP checksum.
fn frame(payload: &[u8], options: &[u8], tags: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    frame.extend_from_slice(tags);
    frame.extend_from_slice(&[8, 0]);
    let ip = frame.len();
    let total = (20 + options.len() + 8 + payload.len()) as u16;
    frame.extend_from_slice(&[0x45 + (options.len() / 4) as u8, 0]);
    frame.extend_from_slice(&total.to_be_bytes());
    frame.extend_from_slice(&[0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend_from_slice(options);
    let end = frame.len();
    ashway_wire::ipv4::Packet::new_checked(&mut frame[ip..end])
        .unwrap()
        .fill_checksum();
    frame.extend_from_slice(&4000_u16.to_be_bytes());
    frame.extend_from_slice(&7777_u16.to_be_bytes());
    frame.extend_from_slice(&(8 + payload.len() as u16).to_be_bytes());
    frame.extend_from_slice(&[0, 0]);
    frame.extend_from_slice(payload);
    frame
}

fn frame_v6(payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x86, 0xdd];
    frame.extend_from_slice(&[0x60, 0, 0, 0]);
    frame.extend_from_slice(&(8 + payload.len() as u16).to_be_bytes());
    frame.extend_from_slice(&[17, 64]);
    for last in [1, 2] {
        let mut address = [0; 16];
        (address[0], address[15]) = (0xfd, last);
        frame.extend_from_slice(&address);
    }
    frame.extend_from_slice(&4000_u16.to_be_bytes());
    frame.extend_from_slice(&7777_u16.to_be_bytes());
    frame.extend_from_slice(&(8 + payload.len() as u16).to_be_bytes());
    frame.extend_from_slice(&[0, 0]);
    frame.extend_from_slice(payload);
    let datagram = Datagram::parse(&frame).unwrap();
    datagram.fill_udp_checksum(&mut frame);
    frame
}

#[test]
fn messages_from_the_command_line_and_their_fuel() {
    let directory = Directory::new("hex");
    let wasm = wasm_file(&directory, "reply.wasm", REPLY);
    let args = [
        "run",
        text(&wasm),
        "--hex",
        "01 02:03",
        "--hex",
        "",
        "--trace-fuel",
    ];
    let tiers = ["--tier", "user,interpreter", "--repeat", "100"];
    let (shown, _) = said(&handler(&[&args[..], &tiers].concat()), 0);
    assert!(shown.contains("FUEL USER  FUEL INTERPRETER"), "{shown}");
    assert!(shown.contains("020203"), "{shown}");
    assert!(shown.contains("user and interpreter agree"), "{shown}");
    assert!(shown.contains("ns per call"), "{shown}");
    // Three turns cost three times one turn.
    let fuel = |hex: &str| {
        let args = ["run", text(&wasm), "--entry", "loops", "--hex", hex, "-j"];
        let document = json(&handler(&[&args[..], &tiers[..2]].concat()), 0);
        let fuel = document["packets"][0]["user"]["fuel_spent"]
            .as_u64()
            .unwrap();
        assert_eq!(document["packets"][0]["interpreter"]["fuel_spent"], fuel);
        fuel
    };
    let one = fuel("00");
    assert!(one > 0);
    assert_eq!(fuel("000000"), 3 * one);

    for (args, because) in [
        (&["--hex", "123"][..], "3 digits"),
        (&["--hex", "1g"], "`g` is no hexadecimal digit"),
        (&[], "there is no packet"),
        (
            &["--hex", "00", "--entry", "on_tx"],
            "the file exports on_rx, loops, add, divide",
        ),
        (&["--hex", "00", "--entry", "add"], "(i32, i32) -> i32"),
        (&["--hex", "00", "--out", "x.pcap"], "--pcap"),
        (
            &["--hex", "00", "--budget", "5 h"],
            "`h` is no unit of time",
        ),
    ] {
        let (_, error) = said(&handler(&[&["run", text(&wasm)], args].concat()), 2);
        assert!(error.contains(because), "{error}");
    }
}

#[test]
fn functions_are_invoked_with_their_arguments() {
    let directory = Directory::new("invoke");
    let wasm = wasm_file(&directory, "math.wasm", REPLY);
    let wasm = text(&wasm);
    let both = ["--tier", "user,interpreter"];
    let invoke = |args: &[&str]| handler(&[&["invoke", wasm], &both[..], args].concat());
    let (shown, _) = said(&invoke(&["add", "--", "-3", "0x10"]), 0);
    assert_eq!(
        shown,
        "user:        i64 13 (0xd)\ninterpreter: i64 13 (0xd)\nall agree, memory included\n"
    );
    let document = json(&invoke(&["divide", "-j", "--", "-7", "2"]), 0);
    assert_eq!(document["user"]["results"][0]["value"], -3);
    assert_eq!(document["type"], "(i32, i32) -> (i32)");
    assert_eq!(document["user"], document["interpreter"]);
    let document = json(&invoke(&["divide", "1", "0", "-j"]), 1);
    assert_eq!(document["user"]["stopped"]["cause"], "divide_by_zero");
    assert_eq!(document["agree"], true);
    assert!(!document.to_string().contains("_ashway"), "{document}");
    for (args, because) in [
        (
            &["subtract", "1"][..],
            "the file exports on_rx, loops, add, divide",
        ),
        (&["add", "1"], "1 argument given, `add` takes 2"),
        (&["add", "1", "two"], "`two` is no whole number"),
        (&["divide", "4294967296", "1"], "is not between"),
    ] {
        let (_, error) = said(&invoke(args), 2);
        assert!(error.contains(because), "{error}");
    }
}

#[test]
fn each_tier_is_asked() {
    let directory = Directory::new("check");
    let wasm = wasm_file(&directory, "reply.wasm", REPLY);
    let document = json(&handler(&["check", text(&wasm), "-j"]), 0);
    let report = &document["handler"];
    assert_eq!(
        report["imports"],
        serde_json::json!(["msg_load8", "msg_store8"])
    );
    assert_eq!(report["recursion"], false);
    assert_eq!(report["tiers"]["user"]["takes"], true);
    let handlers = &report["tiers"]["kernel"]["handlers"];
    assert_eq!(handlers[0]["name"], "on_rx");
    assert!(handlers[0]["bound"].as_u64().unwrap() > 5, "{handlers:#}");
    assert_eq!(handlers[1]["name"], "loops");
    assert_eq!(handlers[1]["bound"], Value::Null);
    assert!(handlers[0]["insns"].as_u64().unwrap() > 20);
    let verified = report["tiers"]["kernel"]["verified"].as_bool().unwrap();
    assert_eq!(verified, handlers[0]["verified_insns"].is_u64());
    let (shown, _) = said(&handler(&["check", text(&wasm)]), 0);
    assert!(shown.contains("user tier: takes it"), "{shown}");
    assert!(shown.contains("fuel") && shown.contains("units"), "{shown}");

    let float = wasm_file(
        &directory,
        "float.wasm",
        r#"(module (memory (export "memory") 1 1)
            (func (export "on_rx") (param i32 i32) (result i32)
                (i32.trunc_f32_s (f32.add (f32.const 1) (f32.const 2)))))"#,
    );
    let (shown, _) = said(&handler(&["check", text(&float)]), 0);
    assert!(
        shown.contains("on_rx is refused") && shown.contains("has no eBPF counterpart"),
        "{shown}"
    );
    assert!(shown.contains("hint: "), "{shown}");
    let stopping = wasm_file(
        &directory,
        "stopping.wasm",
        r#"(module (memory (export "memory") 1 1)
            (func $start unreachable) (start $start)
            (func (export "on_rx") (param i32 i32) (result i32) (i32.const 0)))"#,
    );
    let (_, error) = said(&handler(&["check", text(&stopping)]), 3);
    assert!(
        error.contains("no tier takes") && error.contains("start function"),
        "{error}"
    );
    let whole = fs::read(&wasm).unwrap();
    let cut = directory.file("cut.wasm", &whole[..whole.len() - 9]);
    for command in ["check", "run", "show", "invoke"] {
        let more: &[&str] = match command {
            "run" => &["--hex", "00"],
            "show" => &["--bpf"],
            "invoke" => &["add"],
            _ => &[],
        };
        let (_, error) = said(&handler(&[&[command, text(&cut)], more].concat()), 3);
        assert!(
            error.contains("not a valid Wasm module") && error.contains("hint: "),
            "{error}"
        );
        let (_, error) = said(&handler(&[&[command, "/no/such.wasm"], more].concat()), 2);
        assert!(error.contains("cannot read `/no/such.wasm`"), "{error}");
    }
}

/// Stores how many turns its loop made, behind the end of a memory that a message makes larger.
const TURNS: &str = r#"(module
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (local $turns i32)
        (loop $on
            (local.set $turns (i32.add (local.get $turns) (i32.const 1)))
            (br_if $on (i32.lt_u (local.get $turns) (i32.const 1000))))
        (i32.store (i32.mul (local.get $len) (i32.const 65536)) (local.get $turns))
        (i32.const 0)))"#;

/// ASH-28: what the checks cost can be asked of any handler, by a run that nothing is attached to;
/// and by no other command, and not in a configuration.
#[test]
fn a_handler_runs_without_checks_where_it_is_only_measured() {
    let directory = Directory::new("unsafe");
    let wasm = wasm_file(&directory, "turns.wasm", TURNS);
    let file = text(&wasm);
    for tier in ["user", "both", "interpreter"] {
        let run = ["run", file, "--hex", "", "--tier", tier, "--unsafe"];
        let (_, error) = said(&handler(&run), 2);
        assert!(
            error.contains("`--unsafe` is of the kernel tier alone"),
            "{error}"
        );
    }
    for command in [
        &["handler", "check", file][..],
        &["handler", "show", file, "--bpf"],
        &["handler", "load", file],
        &["run", "node.toml"],
        &["check", "node.toml"],
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_ashway"))
            .args(command)
            .arg("--unsafe")
            .output()
            .unwrap();
        let (_, error) = said(&output, 2);
        assert!(
            error.contains("unexpected argument '--unsafe'"),
            "{command:?}: {error}"
        );
    }
    let config = "[iface.lo]\n[handler.turns]\nfile = \"turns.wasm\"\nunsafe = true\n";
    let config = directory.file("node.toml", config);
    let checked = Command::new(env!("CARGO_BIN_EXE_ashway"))
        .args(["check", text(&config)])
        .output()
        .unwrap();
    let (out, error) = said(&checked, 2);
    assert!((out.clone() + &error).contains("`unsafe`"), "{out}{error}");
    if skip_unless_root() {
        return;
    }
    let run = |message: &str, more: &[&str]| {
        let run = [
            "run", file, "--hex", message, "--tier", "kernel", "--fuel", "100", "-j",
        ];
        let ran = json(&handler(&[&run[..], more].concat()), 0);
        ran["packets"][0]["kernel"].clone()
    };
    // Fuel for a tenth of its turns; then an address outside.
    assert_eq!(run("", &[])["stopped"]["cause"], "fuel");
    assert_eq!(run("", &["--unsafe"])["verdict"], "consume");
    assert_eq!(run("00", &["--unsafe"])["verdict"], "consume");
    let enough = ["run", file, "--hex", "00", "--tier", "kernel", "-j"];
    let outside = json(&handler(&enough), 0);
    let stopped = &outside["packets"][0]["kernel"]["stopped"];
    assert_eq!(stopped["cause"], "memory_bounds", "{outside:#}");
}

#[test]
fn what_a_handler_becomes_is_shown() {
    let directory = Directory::new("show");
    let wasm = wasm_file(&directory, "reply.wasm", REPLY);
    let (wat, _) = said(&handler(&["show", text(&wasm), "--wat"]), 0);
    assert!(wat.contains("_ashway_fuel"), "{wat}");
    assert!(wat.contains("bound: static, at most"), "{wat}");
    let (bpf, _) = said(
        &handler(&["show", text(&wasm), "--bpf", "--entry", "loops"]),
        0,
    );
    assert!(bpf.contains("bound: fuel"), "{bpf}");
    // The loop reaches no memory; the other function does, and by the program that is shown.
    assert!(
        bpf.contains("memory: the handler does not reach it"),
        "{bpf}"
    );
    for (memory, base, access) in [
        ("arena", "base folded, at 1 places", "addr_space_cast"),
        ("array", "base added, at 1 places", "= *(u64 *)(r10 -32)"),
    ] {
        let show = ["show", text(&wasm), "--bpf", "--memory", memory];
        let (bpf, _) = said(&handler(&show), 0);
        assert!(bpf.contains(base), "{memory}: {bpf}");
        assert_eq!(bpf.matches(access).count(), 1, "{memory}: {bpf}");
    }
    assert!(
        bpf.contains("bpf_get_smp_processor_id") && bpf.contains("map[context]"),
        "{bpf}"
    );
    // Every operator that does something is followed by what it became.
    let (source, _) = said(&handler(&["show", text(&wasm), "--source"]), 0);
    let lines: Vec<&str> = source.lines().collect();
    let store = lines
        .iter()
        .position(|line| line.contains("i32.store8"))
        .unwrap();
    assert!(lines[store + 1].contains(": "), "{source}");
    let after = lines[store..]
        .iter()
        .find(|line| line.contains("addr_space_cast"));
    assert!(after.is_some(), "{source}");
    let document = json(&handler(&["show", text(&wasm), "--source", "-j"]), 0);
    let offset = |line: &&Value| line["text"].as_str().unwrap().contains("i32.store8");
    let row = document["lines"]
        .as_array()
        .unwrap()
        .iter()
        .find(offset)
        .unwrap();
    let bytes = fs::read(&wasm).unwrap();
    assert_eq!(
        bytes[row["offset"].as_u64().unwrap() as usize],
        0x3a,
        "i32.store8"
    );
    let (_, error) = said(&handler(&["show", text(&wasm)]), 2);
    assert!(
        error.contains("--wat") && error.contains("--bpf"),
        "{error}"
    );
    let (_, error) = said(
        &handler(&["show", text(&wasm), "--bpf", "--entry", "none"]),
        2,
    );
    assert!(error.contains("the file exports on_rx"), "{error}");
}

/// What a handler logs is shown, and does nothing to a terminal.
#[test]
fn lines_are_shown_with_their_packets() {
    let directory = Directory::new("lines");
    let wasm = wasm_file(
        &directory,
        "lines.wasm",
        r#"(module
            (import "ashway" "log" (func $log (param i32 i32)))
            (memory (export "memory") 1 1)
            (data (i32.const 0) "a\1b[31mb")
            (func (export "on_rx") (param $len i32) (param i32) (result i32)
                (loop $next
                    (call $log (i32.const 0) (i32.const 7))
                    (br_if $next (local.tee $len (i32.sub (local.get $len) (i32.const 1)))))
                i32.const 3))"#,
    );
    let run = ["run", text(&wasm), "--hex", "00", "--hex", "000000000000"];
    let (shown, _) = said(&handler(&run), 0);
    let line = r"1  a\u{1b}[31mb";
    assert!(shown.contains(line), "{shown}");
    assert!(shown.contains("2  (2 more were too many)"), "{shown}");
    let document = json(&handler(&[&run[..], &["-j"]].concat()), 0);
    let log = |packet: usize| &document["packets"][packet]["user"]["log"];
    assert_eq!(log(0).as_array().unwrap().len(), 1);
    assert_eq!(log(1).as_array().unwrap().len(), 4);
    assert_eq!(document["packets"][1]["user"]["log_lost"], 2);
    let (shown, _) = said(
        &handler(&[&run[..], &["--tier", "interpreter"]].concat()),
        0,
    );
    assert!(shown.contains("shown with `--tier user`"), "{shown}");
}

/// Changes the message, then does what `len` says: pass, abort, a trap, reply.
const SPOIL: &str = r#"(module
    (import "ashway" "msg_store8" (func $store (param i32 i32)))
    (memory (export "memory") 1 1)
    (func (export "on_rx") (param $len i32) (param $channel i32) (result i32)
        (call $store (i32.const 0) (i32.const 9))
        (if (i32.eq (local.get $len) (i32.const 3)) (then unreachable))
        (select (i32.const 6)
            (select (i32.const 1) (i32.const 3) (i32.eq (local.get $len) (i32.const 4)))
            (i32.eq (local.get $len) (i32.const 2)))))"#;

#[test]
fn a_message_that_a_node_would_drop_is_shown_so() {
    let directory = Directory::new("spoil");
    let wasm = wasm_file(&directory, "spoil.wasm", SPOIL);
    let args = ["run", text(&wasm), "--hex", "01", "--hex", "0101"];
    let args = [&args[..], &["--hex", "010101", "--hex", "01010101"]].concat();
    let (shown, _) = said(&handler(&args), 0);
    for end in ["pass, but changed", "abort, but changed", "unreachable at"] {
        assert!(shown.contains(end), "{shown}");
    }
    assert_eq!(shown.matches("a node drops it").count(), 3, "{shown}");
    assert!(
        shown.contains("1 pass (changed), 1 abort (changed)"),
        "{shown}"
    );
    assert!(shown.contains("1 reply\n"), "{shown}");
}

#[test]
fn what_a_command_does_not_have_is_not_advised() {
    let directory = Directory::new("advice");
    let wasm = wasm_file(
        &directory,
        "float.wasm",
        r#"(module (memory (export "memory") 1 1)
            (func (export "on_rx") (param i32 i32) (result i32)
                (i32.trunc_f32_s (f32.load (local.get 0)))))"#,
    );
    let (_, error) = said(&handler(&["show", text(&wasm), "--bpf"]), 3);
    assert!(
        error.contains("because: offset 0x") && error.contains("no eBPF counterpart"),
        "{error}"
    );
    assert!(!error.contains("--tier"), "{error}");
    let args = ["run", text(&wasm), "--hex", "01", "--tier", "interpreter"];
    let (_, error) = said(&handler(&args), 3);
    assert!(error.contains("here, `--tier user`"), "{error}");
    let args = ["run", text(&wasm), "--hex", "01", "--budget", "11ms"];
    let (_, error) = said(&handler(&args), 2);
    assert!(error.contains("between 1 us and 10 ms"), "{error}");
}

/// The clock is no one's fault.
#[test]
fn the_end_of_time_is_no_difference() {
    if skip_unless_root() {
        return;
    }
    let directory = Directory::new("time");
    // Each load waits for the one before and for memory, so that the time is
    // over long before the fuel.
    let wasm = wasm_file(
        &directory,
        "walk.wasm",
        r#"(module (memory (export "memory") 256 256)
            (func (export "on_rx") (param i32 i32) (result i32)
                (loop $turn
                    (local.set 0 (i32.and (i32.const 0xfffffc)
                        (i32.add (i32.mul (local.get 0) (i32.const 1664525))
                            (i32.add (i32.const 1013904223)
                                (i32.load (i32.and (local.get 0) (i32.const 0xfffffc)))))))
                    (br_if $turn (i32.ne (local.get 1) (i32.const 1))))
                (i32.const 0)))"#,
    );
    let args = ["run", text(&wasm), "--hex", "01", "--tier", "both", "-j"];
    let document = json(&handler(&args), 1);
    assert_eq!(document["difference"], Value::Null);
    assert_eq!(document["out_of_time"]["packet"], 1);
    let message = document["error"]["message"].as_str().unwrap();
    assert!(message.contains("the time ran out"), "{message}");
    assert!(!document.to_string().contains("report it"), "{document}");
}

#[test]
fn the_kernel_agrees_and_says_what_it_verified() {
    if skip_unless_root() {
        return;
    }
    let directory = Directory::new("kernel");
    let wasm = wasm_file(&directory, "reply.wasm", REPLY);
    let args = [
        "run",
        text(&wasm),
        "--tier",
        "both",
        "--hex",
        "0105",
        "--hex",
        "09",
        "-j",
    ];
    let document = json(&handler(&args), 0);
    assert_eq!(
        document["packets"][0]["user"],
        document["packets"][0]["kernel"]
    );
    assert_eq!(
        document["packets"][1]["kernel"]["stopped"]["cause"],
        "unreachable"
    );
    let document = json(&handler(&["check", text(&wasm), "-j"]), 0);
    assert_eq!(document["handler"]["tiers"]["kernel"]["verified"], true);
    let (log, _) = said(&handler(&["check", text(&wasm), "--verifier-log"]), 0);
    let verified = &document["handler"]["tiers"]["kernel"]["handlers"][0]["verified_insns"];
    assert!(
        log.contains(&format!("processed {verified} insns")),
        "{log}"
    );
    let (shown, _) = said(
        &handler(&["invoke", text(&wasm), "add", "1", "2", "--tier", "both"]),
        0,
    );
    assert!(shown.contains("kernel:      i64 3 (0x3)"), "{shown}");
}

#[test]
fn without_privileges_the_missing_one_is_named() {
    let directory = Directory::new("nobody");
    let wasm = wasm_file(&directory, "reply.wasm", REPLY);
    let unprivileged = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ashway"));
        command.arg("handler").args(args);
        if rustix::process::geteuid().is_root() {
            // The binary must be reachable for another user.
            let binary = directory.0.join("ashway");
            if !binary.exists() {
                // By a process of its own: a fork of another test's would keep it busy.
                let mut copy = Command::new("cp");
                copy.arg(env!("CARGO_BIN_EXE_ashway")).arg(&binary);
                assert!(copy.status().unwrap().success());
            }
            command = Command::new(binary);
            command.arg("handler").args(args).uid(65534).gid(65534);
        }
        command.output().unwrap()
    };
    let run = ["run", text(&wasm), "--hex", "01"];
    for tier in ["kernel", "both"] {
        let (_, error) = said(&unprivileged(&[&run[..], &["--tier", tier]].concat()), 4);
        assert!(error.contains("CAP_BPF"), "{error}");
        assert!(
            error.contains("--tier user") && error.contains("--tier interpreter"),
            "{error}"
        );
    }
    let (shown, _) = said(
        &unprivileged(&[&run[..], &["--tier", "user,interpreter"]].concat()),
        0,
    );
    assert!(shown.contains("agree"), "{shown}");
    let (shown, _) = said(&unprivileged(&["check", text(&wasm)]), 0);
    assert!(shown.contains("this kernel was not asked"), "{shown}");
    assert!(
        shown.contains("CAP_BPF") && !shown.contains("--tier"),
        "{shown}"
    );
}
