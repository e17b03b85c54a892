//! Passive data segments: `memory.init` and `data.drop`.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use ashway_abi::Cause;
use common::Library;

const FIELDS: &str = r#"
    (memory 1 2) (data $d "abcdefgh") (data (i32.const 100) "active") (data $e "xyz")
    (func (export "init") (param i32 i32 i32)
       (memory.init $d (local.get 0) (local.get 1) (local.get 2)))
    (func (export "drop") (data.drop $d))
    (func (export "active") (param i32 i32 i32)
       (memory.init 1 (local.get 0) (local.get 1) (local.get 2)) (data.drop 1))
    (func (export "again") (param i32 i32 i32)
       (memory.init $e (local.get 0) (local.get 1) (local.get 2)))"#;

#[test]
fn bytes_are_copied_and_bounds_come_first() {
    let mut library = Library::new(FIELDS);
    library.call("init", &[10, 2, 5]).unwrap();
    assert_eq!(&library.pages.read::<7>(9), b"\0cdefg\0");
    library.call("again", &[65_533, 0, 3]).unwrap();
    assert_eq!(&library.pages.read::<3>(65_533), b"xyz");
    let most = u64::from(u32::MAX);
    for args in [
        [0, 0, 9],
        [0, 8, 1],
        [0, 9, 0],
        [0, 1, most],
        [0, most, 1],
        [65_530, 0, 7],
        [65_537, 0, 0],
        [most, 0, 8],
    ] {
        library.stops(
            "init",
            &args,
            Cause::MemoryBounds,
            "MemoryInit { data_index: 0",
        );
    }
    assert_eq!(library.pages.read::<10>(0), [0; 10]);
    assert_eq!(library.pages.read::<3>(65_530), [0; 3]);
    // Nothing at the very ends is no stop.
    library.call("init", &[65_536, 8, 0]).unwrap();
}

#[test]
fn a_dropped_segment_is_empty() {
    let mut library = Library::new(FIELDS);
    library.call("drop", &[]).unwrap();
    library.call("init", &[0, 0, 0]).unwrap();
    for args in [[0, 0, 1], [0, 1, 0]] {
        library.stops(
            "init",
            &args,
            Cause::MemoryBounds,
            "MemoryInit { data_index: 0",
        );
    }
    library.call("drop", &[]).unwrap();
    assert_eq!(&library.pages.read::<6>(100), b"active");
    library.call("active", &[0, 0, 0]).unwrap();
    let at = [0, 0, 1];
    library.stops(
        "active",
        &at,
        Cause::MemoryBounds,
        "MemoryInit { data_index: 1",
    );
}

#[test]
fn it_is_paid_by_length_before_bounds_are_looked_at() {
    let mut library = Library::new(FIELDS);
    let stopped = |library: &mut Library, len, fuel| {
        library
            .call_with("init", &[0, 0, len], fuel)
            .map_err(|stopped| stopped.cause)
    };
    assert_eq!(stopped(&mut library, 800, 99), Err(Cause::Fuel));
    assert_eq!(stopped(&mut library, 800, 100), Err(Cause::MemoryBounds));
    assert!(stopped(&mut library, 8, 1).is_ok());
    assert_eq!(stopped(&mut library, 8, 0), Err(Cause::Fuel));
}

#[test]
fn large_segments_lie_in_a_larger_state_region() {
    let bytes: String = (0..200_000_u32)
        .map(|i| char::from(b'a' + (i % 23) as u8))
        .collect();
    let mut library = Library::new(&format!(
        r#"(memory 4 4) (data $d "{bytes}")
           (func (export "init") (param i32 i32 i32)
              (memory.init $d (local.get 0) (local.get 1) (local.get 2)))"#
    ));
    assert_eq!(library.layout.state_bytes, 4 * 65_536);
    library.call("init", &[1, 0, 200_000]).unwrap();
    let expected = |at: usize| bytes.as_bytes()[at - 1];
    for at in [1, 2, 65_535, 65_536, 131_073, 200_000] {
        assert_eq!(library.pages.read::<1>(at), [expected(at)], "{at}");
    }
    assert_eq!(library.pages.read::<1>(200_001), [0]);
}
