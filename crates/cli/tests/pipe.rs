//! `ashway pipe`, as a person and as a program see it.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

use std::path::PathBuf;
use std::process::{Command, Output};

use ashway_rig::skip::{Cpu, skip};

fn ashway(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ashway"))
        .args(arguments)
        .output()
        .unwrap()
}

fn json(arguments: &[&str]) -> serde_json::Value {
    let output = ashway(&[arguments, &["-j"]].concat());
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A file of this test's own.
fn file(name: &str, bytes: &[u8]) -> PathBuf {
    let path = std::env::temp_dir().join(format!("ashway-pipe-{}-{name}", std::process::id()));
    std::fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn a_wrong_list_has_carets_under_what_is_wrong() {
    let output = ashway(&["pipe", "show", "copy | bswap33"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        String::from_utf8(output.stderr).unwrap(),
        "error: there is no pipe `bswap33`\n  \
         because: copy | bswap33\n  \
         because:        ^^^^^^^ there is no pipe `bswap33`\n  \
         hint: `ashway pipe list` shows those that there are\n"
    );
}

#[test]
fn a_file_runs_through_a_list_in_every_form() {
    let input = file("in", b"123456789");
    let output = file("out", b"");
    for form in ["native", "portable"] {
        let ran = json(&[
            "pipe",
            "run",
            "crc32c | bswap32",
            "--in",
            input.to_str().unwrap(),
            "--out",
            output.to_str().unwrap(),
            "--form",
            form,
        ]);
        assert_eq!(ran["bytes"], 9);
        let state = ran["registers"]["crc32c.state"].as_u64().unwrap();
        assert_eq!(!(state as u32), 0xe306_9283, "{form}");
        assert_eq!(std::fs::read(&output).unwrap(), b"432187659", "{form}");
    }
    std::fs::remove_file(input).unwrap();
    std::fs::remove_file(output).unwrap();
}

#[test]
fn registers_are_exported_and_imported_by_name() {
    let input = file("export", b"\x01\x02\x03\x04");
    let ran = json(&[
        "pipe",
        "run",
        "cksum16 | bswap32 | cksum16",
        "--in",
        input.to_str().unwrap(),
        "--set",
        "cksum16.sum=0x1000",
    ]);
    std::fs::remove_file(input).unwrap();
    assert_eq!(ran["registers"]["cksum16.sum"], 0x1604);
    assert_eq!(ran["registers"]["cksum16#2.sum"], 0x0406);
}

#[test]
fn a_function_of_ones_own_is_a_pipe_or_refused_by_name() {
    let text = b"(module
        (func (export \"flip\") (param i32) (result i32)
          local.get 0 i32.const 255 i32.xor)
        (func (export \"count\") (param i32) (result i32)
          local.get 0 i64.extend_i32_u i32.wrap_i64))";
    let module = file("own.wat", text);
    let own = |function: &str| format!("{}:{function}:8", module.display());
    let shown = json(&["pipe", "show", "flip | crc32", "--with", &own("flip")]);
    assert_eq!(shown["pipes"][0]["pipe"], "flip");
    assert_eq!(shown["pipes"][0]["commutative"], true);
    let refused = ashway(&["pipe", "show", "count", "--with", &own("count")]);
    assert_eq!(refused.status.code(), Some(3));
    let printed = String::from_utf8(refused.stderr).unwrap();
    let wanted = "error: `count` has an operator that pipes do not have, at byte 0x";
    assert!(printed.starts_with(wanted), "{printed}");
    std::fs::remove_file(module).unwrap();
}

#[test]
fn wrong_bits_of_a_function_are_told_from_a_wrong_file() {
    let output = ashway(&["pipe", "show", "flip", "--with", "own.wasm:flip:9"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        String::from_utf8(output.stderr).unwrap(),
        "error: `--with own.wasm:flip:9`: a word has no 9 bits\n  \
         hint: give one of 8, 16, 32, 64, or none for as many as `flip` computes with\n"
    );
}

#[test]
fn a_mask_takes_its_key_as_it_is_sent_and_its_register_as_a_word() {
    // RFC 6455 §5.7: a masked "Hello". The guide and `pipe list` say so.
    let input = file("hello", b"Hello");
    let given = input.to_str().unwrap();
    for list in [
        &["mask(0x37fa213d)"][..],
        &["mask(0)", "--set", "mask.key=0x3d21fa37"],
    ] {
        let run = ["pipe", "run", "--in", given, "--out", "-"];
        let output = ashway(&[&run[..], list].concat());
        assert_eq!(output.stdout, b"\x7f\x9f\x4d\x51\x58");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.starts_with("5 bytes\n"), "{said}");
    }
    std::fs::remove_file(input).unwrap();
    let listed = ashway(&["pipe", "list"]).stdout;
    assert!(
        String::from_utf8(listed)
            .unwrap()
            .contains("K's highest byte first")
    );
}

#[test]
fn a_number_that_no_register_holds_is_told_the_range() {
    let wide = "cksum16.sum=18446744073709551616";
    let output = ashway(&["pipe", "run", "cksum16", "--in", "/dev/null", "--set", wide]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("from 0 to 18446744073709551615"), "{said}");
}

#[test]
fn standard_output_is_one_thing() {
    let output = ashway(&[
        "pipe",
        "run",
        "copy",
        "--in",
        "/dev/null",
        "--out",
        "-",
        "-j",
    ]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("both want standard output"), "{said}");
}

#[test]
fn what_is_read_is_not_written_over() {
    let data = file("itself", b"data of mine");
    let name = data.to_str().unwrap();
    let link = data.with_extension("link");
    let _ = std::fs::remove_file(&link);
    std::os::unix::fs::symlink(&data, &link).unwrap();
    for out in [name, link.to_str().unwrap()] {
        let output = ashway(&["pipe", "run", "bswap32", "--in", name, "--out", out]);
        assert_eq!(output.status.code(), Some(2));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("is the file that `--in` reads"), "{said}");
        assert_eq!(std::fs::read(&data).unwrap(), b"data of mine");
    }
    let output = ashway(&["pipe", "run", "bswap32", "--in", name, "--bytes", "0"]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("at least one byte"), "{said}");
    std::fs::remove_file(link).unwrap();
    std::fs::remove_file(data).unwrap();
}

#[test]
fn what_has_no_end_is_refused() {
    let output = ashway(&["pipe", "run", "copy", "--in", "/dev/zero"]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("error: `/dev/zero` has more than 256 MiB"),
        "{said}"
    );
    assert!(said.contains("hint: give a part of it: `head -c"), "{said}");
}

#[test]
fn show_says_into_how_many_loops_a_list_is_cut() {
    let short = json(&["pipe", "show", "cksum16 | bswap32", "--bytes", "4096"]);
    if short["form"] == "portable" {
        skip(Cpu::Avx2);
        return;
    }
    let plan = &short["plan"];
    assert_eq!(plan["bytes"], 4096);
    assert_eq!(plan["loops"], serde_json::json!([["cksum16", "bswap32"]]));
    let long = json(&["pipe", "show", &["sum8"; 32].join(" | ")]);
    let plan = &long["plan"];
    assert!(
        plan["loops"]
            .as_array()
            .is_some_and(|loops| loops.len() > 1),
        "{plan}"
    );
    assert!(
        plan["planned_ns"].as_f64() < plan["fused_ns"].as_f64(),
        "{plan}"
    );
}
