//! Where the process may have no more memory: alone in its process, whose limits it sets.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;

use ashway_memory::messages::{self, Buffer};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Bytes that `RLIMIT_DATA` limits, as the process has them now.
fn data_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmData:"));
    let kib: u64 = line.unwrap().trim_end_matches("kB").trim().parse().unwrap();
    kib * 1024
}

#[test]
fn where_the_space_does_not_grow_a_message_is_of_the_heap_and_a_handler_has_a_desk() {
    let space = messages::space().unwrap();
    let before = getrlimit(Resource::Data);
    let limit = Rlimit {
        // For the heap, and no step of the space.
        current: Some(data_bytes() + (2 << 20)),
        ..before
    };
    setrlimit(Resource::Data, limit).unwrap();
    let mut message = Buffer::new(100);
    let mut scratch = Buffer::scratch(100);
    setrlimit(Resource::Data, before).unwrap();
    assert_eq!(space.place_of(&mut message), None);
    assert!(space.place_of(&mut scratch).is_some());
    let mut later = Buffer::new(100);
    assert!(space.place_of(&mut later).is_some());
}
