//! The programs that promotion is measured with do the same everywhere: in
//! Wasmtime, in the kernel, in the interpreter and as native code.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use std::path::PathBuf;

use ashway_bench::programs::{LIBRARIES, PROGRAMS, UNTUNED, inputs};
use ashway_bench::promote::Native;
use ashway_codegen::normalise::{Limits, Module, normalise};
use ashway_rig::skip::{root_for_a_part, skip_part, skip_unless_root};
use ashway_trial::{Activation, Engine, Setup, Trial};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../target/programs")
}

fn wasm(name: &str) -> Vec<u8> {
    let file = folder().join(name).with_extension("wasm");
    std::fs::read(&file).unwrap_or_else(|error| {
        panic!(
            "{}: {error}; `cargo xtask programs` builds it",
            file.display()
        )
    })
}

/// What an engine makes of the messages, and the memory in the end.
fn answers(
    module: &Module<'_>,
    engine: Engine,
    messages: &[Vec<u8>],
) -> (Vec<Activation>, Vec<u8>) {
    let mut trial = Trial::new(module, engine, &Setup::default()).unwrap();
    let answer = |message: &Vec<u8>| trial.activate("on_rx", message, 0).unwrap();
    let answers = messages.iter().map(answer).collect();
    (answers, trial.guest())
}

fn agree(name: &str, messages: &[Vec<u8>], interpreted: usize) {
    let native = Native::find(&folder(), name);
    agree_with(name, messages, interpreted, native);
}

fn agree_with(name: &str, messages: &[Vec<u8>], interpreted: usize, native: Option<Native>) {
    let wasm = wasm(name);
    let module = normalise(&wasm, &Limits::default()).unwrap();
    let (user, memory) = answers(&module, Engine::User, messages);
    if root_for_a_part() {
        let (kernel, kernel_memory) = answers(&module, Engine::Kernel, messages);
        for ((number, user), kernel) in user.iter().enumerate().zip(&kernel) {
            assert_eq!(user, kernel, "{name}, message {number}");
        }
        assert!(memory == kernel_memory, "{name}: memory differs");
    }
    let (interpreter, _) = answers(&module, Engine::Interpreter, &messages[..interpreted]);
    assert_eq!(user[..interpreted], interpreter, "{name}");
    if let Some(native) = native {
        for ((number, user), native) in user
            .iter()
            .enumerate()
            .zip(native.answer(messages).unwrap())
        {
            let user = (user.result.unwrap(), user.message.clone());
            assert_eq!(user, native, "{name}, message {number}, native");
        }
    }
}

#[test]
fn eight_programs_do_the_same_in_both_tiers_and_natively() {
    for name in PROGRAMS {
        agree(name, &inputs(name, 7, 2_000), 100);
    }
}

#[test]
fn the_others_do_the_same_in_both_tiers() {
    for name in UNTUNED {
        agree(name, &inputs(name, 7, 500), 20);
    }
}

/// zlib's own library says what should come out.
#[test]
fn inflate_inflates() {
    use std::io::Read;

    let wasm = wasm("inflate");
    let module = normalise(&wasm, &Limits::default()).unwrap();
    let output = module
        .symbols
        .iter()
        .find(|(name, _)| name == "output")
        .unwrap()
        .1 as usize;
    let mut trial = Trial::new(&module, Engine::Interpreter, &Setup::default()).unwrap();
    for message in inputs("inflate", 3, 10) {
        let answer = trial.activate("on_rx", &message, 0).unwrap();
        let mut plain = Vec::new();
        let mut library = flate2::read::ZlibDecoder::new(&message[8..]);
        library.read_to_end(&mut plain).unwrap();
        let words = [1, plain.len() as u32].map(u32::to_le_bytes).concat();
        assert_eq!(answer.message[..8], words);
        assert!(trial.guest()[output..][..plain.len()] == plain);
    }
}

/// A spoiled stream is answered as zlib answers it, in every engine.
#[test]
fn broken_streams_are_broken_everywhere() {
    let mut messages = inputs("inflate", 5, 200);
    for (number, message) in messages.iter_mut().enumerate() {
        let at = 8 + number * 31 % (message.len() - 8);
        message[at] ^= 1 << (number % 8);
    }
    agree("inflate", &messages, 20);
}

/// Those of [`LIBRARIES`] that were fetched.
fn libraries() -> Vec<&'static str> {
    let (there, missing): (Vec<_>, Vec<_>) = LIBRARIES
        .into_iter()
        .partition(|name| folder().join(name).is_file());
    if !missing.is_empty() {
        skip_part(format!("not fetched: {}", missing.join(", ")));
    }
    there
}

/// The same library as an ordinary program is the reference.
#[test]
fn libraries_as_they_are_do_the_same_in_both_tiers_and_natively() {
    for name in libraries() {
        agree(name, &inputs(name, 7, 300), 20);
    }
}

/// Not with ordinary programs: zstd finds other mistakes first where a pointer has 64 bits, and
/// `dns-parser` panics, which stops a handler and ends a program.
#[test]
fn libraries_answer_spoiled_messages_alike() {
    for name in libraries() {
        let mut messages = inputs(name, 9, 300);
        for (number, message) in messages.iter_mut().enumerate() {
            let at = 32 + number * 31 % (message.len() - 32);
            message[at] ^= 1 << (number % 8);
        }
        agree_with(name, &messages, 20, None);
    }
}

/// What the program `zstd` was given comes out.
#[test]
fn zstd_decodes() {
    if !libraries().contains(&"zstd") {
        return;
    }
    let wasm = wasm("zstd");
    let module = normalise(&wasm, &Limits::default()).unwrap();
    let mut symbols = module.symbols.iter();
    let output = symbols.find(|(name, _)| name == "output").unwrap().1 as usize;
    let mut trial = Trial::new(&module, Engine::Interpreter, &Setup::default()).unwrap();
    for message in inputs("zstd", 3, 5) {
        let answer = trial.activate("on_rx", &message, 0).unwrap();
        let file = std::env::temp_dir().join(format!("ashway-zstd-{}", std::process::id()));
        std::fs::write(&file, &message[8..]).unwrap();
        let decoded = std::process::Command::new("zstd")
            .args(["-q", "-d", "-c"])
            .arg(&file)
            .stdin(std::process::Stdio::null())
            .output()
            .unwrap();
        std::fs::remove_file(&file).unwrap();
        assert_eq!(decoded.stdout.len(), 4000);
        let words = [0, 4000].map(u32::to_le_bytes).concat();
        assert_eq!(answer.message[..8], words);
        assert!(trial.guest()[output..][..4000] == decoded.stdout);
    }
}

/// Each charge calls a subprogram, and what is left in registers there is nothing to tell ways
/// apart by: without that the verifier walks each instruction of zstd 13 times.
#[test]
fn the_verifier_walks_a_library_a_few_times() {
    if skip_unless_root() || !libraries().contains(&"zstd") {
        return;
    }
    let wasm = wasm("zstd");
    let module = normalise(&wasm, &Limits::default()).unwrap();
    let mut trial = Trial::new(&module, Engine::Kernel, &Setup::default()).unwrap();
    let message = &inputs("zstd", 3, 1)[0];
    trial.activate("on_rx", message, 0).unwrap();
    let loaded = trial.program("on_rx").unwrap();
    let (insns, verified) = (loaded.image.insns.len(), loaded.verified_insns.unwrap());
    println!("{verified} of {insns}, {:?}", loaded.loading);
    assert!(loaded.second_try.is_none(), "{:?}", loaded.second_try);
    assert!(verified as usize <= 6 * insns, "{verified} of {insns}");
}
