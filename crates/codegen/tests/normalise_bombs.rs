//! Small files that say they are large, and large ones of the worst kind: each
//! is answered within a second of CPU time and 64 MiB.
//!
//! One test alone in its process, because it counts what the process allocates.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use ashway_codegen::normalise::{Limits, NormaliseError, Profile, normalise_as};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The system's allocator, counted.
struct Counted;

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is handed on to the system's allocator as it is.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) };
    }
}

#[global_allocator]
static ALLOCATOR: Counted = Counted;

/// Nanoseconds that this thread has run on a CPU.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split_whitespace().next().unwrap().parse().unwrap()
}

fn leb(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let seven = number as u8 & 0x7f;
        number >>= 7;
        if number == 0 {
            bytes.push(seven);
            return bytes;
        }
        bytes.push(seven | 0x80);
    }
}

/// A module of these sections: id and contents.
fn module(sections: &[(u8, Vec<u8>)]) -> Vec<u8> {
    let mut wasm = b"\0asm\x01\0\0\0".to_vec();
    for (id, contents) in sections {
        wasm.push(*id);
        wasm.extend(leb(contents.len()));
        wasm.extend(contents);
    }
    wasm
}

/// A module of one function `() -> ()` with this body, locals included.
fn body(code: &[u8]) -> Vec<u8> {
    let mut contents = vec![1];
    contents.extend(leb(code.len()));
    contents.extend(code);
    let (types, functions) = (b"\x01\x60\x00\x00".to_vec(), b"\x01\x00".to_vec());
    module(&[(1, types), (3, functions), (10, contents)])
}

const MOST_LEB: &[u8] = b"\xff\xff\xff\xff\x0f";
const MIB: usize = 1 << 20;

/// Each bomb, and what its refusal must name; nothing if it may be accepted.
fn bombs() -> Vec<(&'static str, Vec<u8>, Option<&'static str>)> {
    let with = |id: u8, head: &[u8], tail: &[u8]| module(&[(id, [head, tail].concat())]);
    let full = 4 * MIB - 64;
    let nested = |pair: &[u8], count: usize| {
        let mut code = vec![0];
        code.extend(pair.repeat(count));
        code.extend(vec![0x0b; count + 1]);
        body(&code)
    };
    let mut names = b"\x04name\x01".to_vec();
    let count = full / 5;
    // A subsection of names, each `index, length 0`, in rising order.
    let entries: Vec<u8> = (0..count)
        .flat_map(|i| [leb(i), vec![0]].concat())
        .collect();
    let entries = [leb(count), entries].concat();
    names.extend(leb(entries.len()));
    names.extend(entries);
    let exports: Vec<u8> = (0..full / 9)
        .flat_map(|i| {
            let name = format!("{i:06}");
            [&[6], name.as_bytes(), &[0, 0]].concat()
        })
        .collect();
    vec![
        ("2^32 types", with(1, MOST_LEB, &[]), Some("function types")),
        ("2^32 functions", with(3, MOST_LEB, &[]), Some("functions")),
        ("2^32 imports", with(2, MOST_LEB, &[]), Some("imports")),
        ("2^32 tables", with(4, MOST_LEB, &[]), Some("tables")),
        ("2^32 globals", with(6, MOST_LEB, &[]), Some("globals")),
        ("2^32 exports", with(7, MOST_LEB, &[]), Some("exports")),
        (
            "2^32 element segments",
            with(9, MOST_LEB, &[]),
            Some("element segments"),
        ),
        (
            "2^32 data segments",
            with(11, MOST_LEB, &[]),
            Some("data segments"),
        ),
        (
            "2^32 announced segments",
            with(12, MOST_LEB, &[]),
            Some("data segments"),
        ),
        (
            "2^32 entries",
            with(4, b"\x01\x70\x00", MOST_LEB),
            Some("table entries"),
        ),
        (
            "2^32 items of a segment",
            with(9, b"\x01\x01\x00", MOST_LEB),
            Some("unexpected end"),
        ),
        (
            "65536 pages at once",
            with(5, b"\x01\x01\x80\x80\x04\x80\x80\x04", &[]),
            Some("pages of declared memory maximum"),
        ),
        (
            "2^32 locals",
            body(&[b"\x01", MOST_LEB, b"\x7f\x0b"].concat()),
            Some("locals in a function"),
        ),
        (
            "2^31 locals, twice",
            body(b"\x02\xff\xff\xff\xff\x07\x7f\xff\xff\xff\xff\x07\x7e\x0b"),
            Some("locals in a function"),
        ),
        (
            "100,000 blocks",
            nested(b"\x02\x40", 100_000),
            Some("nested blocks"),
        ),
        (
            "100,000 loops",
            nested(b"\x03\x40", 100_000),
            Some("nested blocks"),
        ),
        (
            "100,000 ifs",
            nested(b"\x41\x00\x04\x40", 100_000),
            Some("nested blocks"),
        ),
        (
            "4 MiB of `nop`",
            body(&[vec![0], vec![1; full], vec![0x0b]].concat()),
            Some("operators"),
        ),
        (
            "a data segment of 2^32 bytes",
            with(11, b"\x01\x01", MOST_LEB),
            Some("unexpected end"),
        ),
        (
            "5 MiB of data",
            with(
                11,
                &[b"\x01\x01".to_vec(), leb(5 * MIB)].concat(),
                &vec![0; 5 * MIB],
            ),
            Some("bytes of file"),
        ),
        (
            "half a million exports",
            module(&[(7, [leb(full / 9), exports].concat())]),
            Some("exports"),
        ),
        (
            "4,000 types of 1,000 parameters",
            module(&[(
                1,
                [
                    leb(4_000),
                    [b"\x60\xe8\x07".to_vec(), vec![0x7f; 1_000], vec![0]]
                        .concat()
                        .repeat(4_000),
                ]
                .concat(),
            )]),
            Some("parameters and results of function types"),
        ),
        // Names decide nothing.
        ("a million names", module(&[(0, names)]), None),
        // As many operators as there may be, and each with a table of labels.
        (
            "operators of all sorts",
            body(
                &[
                    vec![0],
                    b"\x41\x00\x0e\x05\x00\x00\x00\x00\x00\x00".repeat(190_000),
                    vec![0x0b],
                ]
                .concat(),
            ),
            None,
        ),
        (
            "as many operators as there may be",
            body(&[vec![0], b"\x41\x00\x1a".repeat(199_999), vec![0x0b]].concat()),
            None,
        ),
    ]
}

#[test]
fn bombs_are_answered_at_once() {
    let mut worst = (0, 0);
    for (bomb, wasm, expected) in bombs() {
        let before = NOW.load(Ordering::Relaxed);
        MOST.store(before, Ordering::Relaxed);
        let start = cpu_ns();
        let result = normalise_as(&wasm, &Limits::default(), Profile::Library);
        let ns = cpu_ns() - start;
        let bytes = MOST.load(Ordering::Relaxed) - before;
        println!("{bomb}: {} us, {} KiB", ns / 1_000, bytes / 1_024);
        worst = (worst.0.max(ns), worst.1.max(bytes));
        match (result, expected) {
            (Ok(_), None) => {}
            (Err(error), Some(expected)) => {
                let message = error.to_string();
                assert!(message.contains(expected), "{bomb}: {message}");
                if expected != "unexpected end" {
                    assert!(matches!(error, NormaliseError::TooLarge { .. }), "{bomb}");
                }
            }
            (Ok(_), Some(_)) => panic!("{bomb}: accepted"),
            (Err(error), None) => panic!("{bomb}: {error}"),
        }
        assert!(ns < 1_000_000_000, "{bomb}: {ns} ns");
        assert!(bytes < 64 * MIB, "{bomb}: {bytes} bytes");
    }
    // The allocator really counts.
    assert!(worst.1 > MIB, "{worst:?}");
}
