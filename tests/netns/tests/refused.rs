//! What the kernel tier refuses runs in the user tier, with the same meaning,
//! and its author is told the line, the reason and the next step (X-3, ASH-20).

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use std::path::PathBuf;

use ashway_netns::node::{Config, entry, run, stock, text};
use ashway_rig::{UdpClient, skip_unless_root};

/// A handler that cannot be promoted.
struct Refused {
    name: &'static str,
    /// Its file, if it is not one of `apps/handlers`.
    file: Option<PathBuf>,
    /// What is said.
    because: &'static str,
    hint: &'static str,
    /// Where; empty for a file without debug information.
    line: &'static str,
    /// Whether it answers as it should, whatever it was asked before.
    answers: fn(&UdpClient),
}

#[test]
fn each_refused_handler_answers_and_its_author_is_told_why() {
    if skip_unless_root() {
        return;
    }
    let rig = stock("refused");
    for refused in corpus() {
        let name = refused.name;
        let config = match &refused.file {
            Some(file) => Config::on_b0("auto").handler_file(name, file),
            None => Config::on_b0("auto").handler(name).unwrap(),
        };
        // `long` needs more than a budget of 50 us buys.
        let config = config.path(name, 7777, "auto").text("budget = \"1 ms\"");
        let node = rig.node(config).start().unwrap();
        let client = rig.client_a(7777).unwrap();
        (refused.answers)(&client);

        // Asking for it changes nothing. Where the machine is busy elsewhere, the verifier may not
        // have come to its end in the time that it has, which is a refusal of its own.
        let is_late = |said: &str| said.contains("the kernel's verifier took longer than");
        let asked = run(&mut node.command(["path", "promote", name]));
        assert_eq!(asked.status.code(), Some(3), "{name}: {}", text(&asked));
        let status = node.status().unwrap();
        assert_eq!(entry(&status, "paths", name)["tier"], "user", "{name}");
        let promotion = &entry(&status, "handlers", name)["promotion"];
        let line = promotion["line"].as_str().unwrap_or_default();
        assert!(line.starts_with(refused.line), "{name}: {promotion:#}");
        let all = [node.output(), promotion.to_string(), text(&asked)];
        for said in all.iter().filter(|said| !is_late(said)) {
            assert!(said.contains(refused.because), "{name}: {said}");
            assert!(said.contains(refused.hint), "{name}: {said}");
        }
        if !line.is_empty() {
            for said in [node.output(), text(&asked)] {
                assert_eq!(said.matches(line).count(), 1, "{said}");
            }
        }
        (refused.answers)(&client);
        node.stop().unwrap();
        if let Some(file) = refused.file {
            std::fs::remove_file(file).unwrap();
        }
    }
}

fn corpus() -> [Refused; 5] {
    [
        Refused {
            name: "float",
            file: None,
            because: "f64",
            hint: "use integers",
            line: "apps/handlers/float.c:",
            answers: |client| {
                // An average of growing numbers grows, and stays below them.
                let averages = [10_000, 20_000].map(|n| client.ask_number(n).unwrap());
                assert!(
                    averages[0] < averages[1] && averages[1] < 20_000,
                    "{averages:?}"
                );
            },
        },
        Refused {
            name: "simd",
            file: None,
            because: "v128.load",
            hint: "use integers",
            line: "apps/handlers/simd.c:",
            answers: |client| {
                let numbers: [u32; 8] = [1, 2, 3, 4, 10, 20, 30, u32::MAX];
                client
                    .send(&numbers.map(u32::to_le_bytes).concat())
                    .unwrap();
                let sums = [11, 22, 33, 3_u32].map(u32::to_le_bytes).concat();
                assert_eq!(client.receive().unwrap()[..16], sums);
            },
        },
        Refused {
            name: "frames",
            file: None,
            because: "frames take",
            hint: "fewer local variables",
            line: "apps/handlers/frames.c:",
            answers: |client| {
                let message: Vec<u8> = (0..64).collect();
                client.send(&message).unwrap();
                let answer = client.receive().unwrap();
                assert_eq!(answer[..4], hash(&message).to_be_bytes());
                assert_eq!(answer[4..], message[4..]);
            },
        },
        Refused {
            name: "long",
            file: Some(long()),
            because: "more than 200000 eBPF instructions",
            hint: "make the handler smaller",
            line: "",
            answers: |client| {
                client.send(&u64::MAX.to_le_bytes()).unwrap();
                let ones = 2_u64;
                assert_eq!(client.receive().unwrap(), ones.to_le_bytes());
            },
        },
        Refused {
            name: "branches",
            file: Some(branches()),
            // Our own checker takes it: these are the words of the kernel's verifier.
            because: "the kernel verifier rejected it: The sequence of 8193 jumps is too complex",
            hint: "",
            line: "",
            answers: |client| {
                // Of each number from 1 to 255 that is above the byte, 33 are counted.
                for byte in [5, 255, 0] {
                    client.send(&[byte]).unwrap();
                    let counted = 33 * (255 - u32::from(byte));
                    assert_eq!(client.receive().unwrap(), [counted as u8]);
                }
            },
        },
    ]
}

/// A handler of 8,448 branches, one after the other, none of which depends on another: the kernel's
/// verifier keeps the other way of each until it has come to the end of the first, and has room
/// for 8,192 (`BPF_COMPLEXITY_LIMIT_JMP_SEQ`, Linux 6.18, `kernel/bpf/verifier.c`).
fn branches() -> PathBuf {
    let one = |number: u32| {
        format!(
            "(if (i32.lt_u (local.get $byte) (i32.const {number}))
                (then (local.set $count (i32.add (local.get $count) (i32.const 1)))))"
        )
    };
    let all: String = (0..33 * 256).map(|at| one(at % 256)).collect();
    let wasm = wat::parse_str(format!(
        r#"(module
            (import "ashway" "msg_load8" (func $load (param i32) (result i32)))
            (import "ashway" "msg_store8" (func $store (param i32 i32)))
            (memory (export "memory") 1 1)
            (func (export "on_rx") (param i32 i32) (result i32)
                (local $byte i32) (local $count i32)
                (local.set $byte (call $load (i32.const 0)))
                {all}
                (call $store (i32.const 0) (local.get $count))
                i32.const 1))"#
    ));
    let name = format!("ashway-branches-{}.wasm", std::process::id());
    let file = std::env::temp_dir().join(name);
    std::fs::write(&file, wasm.unwrap()).unwrap();
    file
}

/// What `frames.c` computes.
fn hash(message: &[u8]) -> u32 {
    let mut at = 0_usize;
    let numbers: Vec<u32> = (0..2048)
        .map(|_| {
            at = (at * 5 + 7) % 61;
            u32::from_le_bytes(message[at..at + 4].try_into().unwrap())
        })
        .collect();
    let step = |hash: u32, number: &u32| (hash ^ number).wrapping_mul(0x0100_0193);
    numbers.iter().rev().fold(0x811c_9dc5, step)
}

/// A handler that counts ones forty thousand times: one more than the number of
/// ones of the message, of that, and so on. From 64 ones it comes to 2 (65 has
/// two ones, and so have 3 and every number after it).
fn long() -> PathBuf {
    let count = "i64.popcnt i64.const 1 i64.add ".repeat(40_000);
    let wasm = wat::parse_str(format!(
        r#"(module
            (import "ashway" "msg_load64le" (func $load (param i32) (result i64)))
            (import "ashway" "msg_store64le" (func $store (param i32 i64)))
            (memory (export "memory") 1 1)
            (func (export "on_rx") (param i32 i32) (result i32)
                i32.const 0
                i32.const 0 call $load
                {count} i64.popcnt
                call $store
                i32.const 1))"#
    ));
    let file = std::env::temp_dir().join(format!("ashway-long-{}.wasm", std::process::id()));
    std::fs::write(&file, wasm.unwrap()).unwrap();
    file
}
