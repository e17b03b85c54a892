//! The example of the guide: compiled as the guide says, run in every engine.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::path::Path;
use std::process::Command;

use ashway_abi::Verdict;
use ashway_codegen::normalise::{Limits, normalise};
use ashway_trial::Trial;
use common::engines;

const GUIDE: &str = include_str!("../../../docs/guide/three-parts.md");
const SOURCE: &str = include_str!("../../../apps/handlers/seats.c");

/// The compiler line of the guide, with another place for the result.
fn compiled() -> Vec<u8> {
    let line = GUIDE.split("```sh\n").nth(1).unwrap();
    let (line, _) = line.split_once("ashway handler run").unwrap();
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("seats.wasm");
    let mut words = line.split_whitespace().filter(|word| *word != "\\");
    let mut command = Command::new(words.next().unwrap());
    command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    for word in words {
        match word {
            "seats.wasm" => command.arg(&out),
            word => command.arg(word),
        };
    }
    let output = command
        .output()
        .expect("clang-19 is installed (CONTRIBUTING.md)");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    std::fs::read(out).unwrap()
}

fn request(seats: &[u16]) -> Vec<u8> {
    let mut bytes = (seats.len() as u32).to_be_bytes().to_vec();
    bytes.extend(seats.iter().flat_map(|seat| seat.to_be_bytes()));
    bytes
}

#[test]
fn the_guide_shows_the_example_as_it_is() {
    assert!(GUIDE.contains(SOURCE));
}

#[test]
fn who_aborts_leaves_memory_as_it_was() {
    let wasm = compiled();
    let module = normalise(&wasm, &Limits::default()).unwrap();
    let address = |name: &str| {
        let symbols = module.symbols.iter();
        let found = symbols.into_iter().find(|(known, _)| known == name);
        found.unwrap().1 as usize
    };
    let (held, seats) = (address("held"), address("seats"));
    for (name, engine, setup) in engines() {
        let mut trial = Trial::new(&module, engine, &setup).unwrap();
        let reply = trial.activate("on_rx", &request(&[7, 8]), 0).unwrap();
        assert_eq!(reply.verdict(), Some(Verdict::Reply), "{name}");
        assert_eq!(reply.message[..4], 254_u32.to_be_bytes(), "{name}");
        assert_eq!(trial.guest()[seats + 7], 1, "{name}");

        trial.write_guest(held, &[1]);
        let before = trial.guest();
        let aborted = trial.activate("on_rx", &request(&[9]), 0).unwrap();
        assert_eq!(aborted.verdict(), Some(Verdict::Abort), "{name}: held");
        assert!(trial.guest() == before, "{name}: held");
        trial.write_guest(held, &[0]);

        let before = trial.guest();
        for taken in [&[9, 10, 7][..], &[12, 12], &[300]] {
            let aborted = trial.activate("on_rx", &request(taken), 0).unwrap();
            assert_eq!(aborted.verdict(), Some(Verdict::Abort), "{name}: {taken:?}");
            assert!(!aborted.dirty, "{name}: {taken:?}");
            assert!(trial.guest() == before, "{name}: {taken:?}");
        }
        for other in [&b""[..], &[0; 5], &request(&[])] {
            let passed = trial.activate("on_rx", other, 0).unwrap();
            assert_eq!(passed.verdict(), Some(Verdict::Pass), "{name}: {other:?}");
        }
    }
}
