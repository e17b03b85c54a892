//! `sdk/c/ashway_app.h`, as the counter's application uses it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};

use ashway_rig::places::application;
use ashway_rig::skip::skip;
use rustix::fs::{MemfdFlags, memfd_create};

const BYTES: u64 = 131_072;

/// The application with an anonymous memory in the place of a handler's.
fn app(memory: &File, symbols: &str) -> Option<Command> {
    let program = match application("counter_app") {
        Ok(program) => program,
        Err(why) => {
            skip(why.to_string());
            return None;
        }
    };
    let mut command = Command::new(program);
    command
        .env("ASHWAY_MEMORY_FD", memory.as_raw_fd().to_string())
        .env("ASHWAY_MEMORY_KIND", "anonymous")
        .env("ASHWAY_MEMORY_ADDRESS", "0")
        .env("ASHWAY_MEMORY_BYTES", BYTES.to_string())
        .env("ASHWAY_SYMBOLS", symbols)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    Some(command)
}

fn memory() -> File {
    // Without CLOEXEC: the application inherits it.
    let memory = File::from(memfd_create("memory", MemfdFlags::empty()).unwrap());
    memory.set_len(BYTES).unwrap();
    memory
}

#[test]
fn the_application_sees_each_change() {
    let memory = memory();
    let Some(mut command) = app(&memory, "ashway_param_step=16384,counter=16392") else {
        return;
    };
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for value in [0_u32, 7, u32::MAX] {
        memory.write_all_at(&value.to_le_bytes(), 16392).unwrap();
        stdin.write_all(b"\n").unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), value.to_string());
    }
    drop(stdin);
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_missing_or_outlying_symbol_is_named() {
    for symbols in ["", "counters=16", "xcounter=16", "counter=131072"] {
        let memory = memory();
        let Some(mut command) = app(&memory, symbols) else {
            return;
        };
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{symbols}");
        let why = String::from_utf8(output.stderr).unwrap();
        assert!(why.contains("no variable named `counter`"), "{why}");
    }
}

#[test]
fn an_application_started_otherwise_says_so() {
    let Some(mut command) = app(&memory(), "") else {
        return;
    };
    let output = command.env_remove("ASHWAY_MEMORY_KIND").output().unwrap();
    let why = String::from_utf8(output.stderr).unwrap();
    assert!(why.contains("started by `ashway handler map`?"), "{why}");
}
