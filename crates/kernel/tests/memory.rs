//! One memory for a program, this process and one without any capability.

mod common;

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::Ordering::SeqCst;

use ashway_kernel::{MapFixup, Program, shared};
use ashway_memory::{ALIGNMENT, AllegedOffset, Memory, MemoryKind, RESERVED_BYTES};
use ashway_rig::skip_unless_root;
use common::{EXIT, insn, load_map, mov, run_once, xdp};

const BYTES: usize = 3 * 4096;
/// In the last page, which nobody else touches.
const AT: usize = 2 * 4096 + 8;
/// "ASHW", as a number in memory.
const MARK: i32 = i32::from_le_bytes(*b"ASHW");

/// Stores [`MARK`] at [`AT`] and returns the word behind it.
fn marker(memory: &Memory) -> Program {
    let store = insn(0x62, 2, 0, 0, MARK);
    let load = insn(0x61, 0, 2, 4, 0);
    let arena = [
        load_map(1),
        0,
        mov(2, AT as i32),
        // r2 = cast of an offset to an arena pointer.
        insn(0xbf, 2, 2, 1, 1),
        store,
        load,
        EXIT,
    ];
    let array = [load_map(2), 0, store, load, EXIT];
    let (insns, value_offset) = match memory.kind() {
        MemoryKind::Arena => (arena.as_slice(), None),
        _ => (array.as_slice(), Some(AT as u32)),
    };
    let maps = [MapFixup {
        insn: 0,
        fd: memory.fd(),
        value_offset,
    }];
    xdp("t_marker", insns, &maps)
}

#[test]
fn program_and_process_see_each_others_stores() {
    if skip_unless_root() {
        return;
    }
    for memory in [shared::arena(BYTES), shared::array(BYTES)] {
        let memory = memory.expect("made");
        let program = marker(&memory);
        memory.u32_at(AT + 4).store(1234, SeqCst);
        assert_eq!(run_once(&program).retval, 1234, "{:?}", memory.kind());
        let mut bytes = [0; 4];
        memory
            .copy_out(AllegedOffset(AT as u32), &mut bytes)
            .expect("inside");
        assert_eq!(&bytes, b"ASHW", "{:?}", memory.kind());
    }
}

#[test]
fn every_kind_lies_in_a_reservation_of_its_own() {
    if skip_unless_root() {
        return;
    }
    let memories = [
        shared::arena(1).expect("made"),
        shared::array(1).expect("made"),
        Memory::anonymous(1).expect("made"),
        shared::arena(BYTES).expect("made"),
    ];
    let mut bases: Vec<usize> = memories.iter().map(|m| m.base().as_ptr().addr()).collect();
    for (memory, base) in memories.iter().zip(&bases) {
        assert_eq!(base % ALIGNMENT, 0);
        assert_eq!(memory.reserved_bytes(), RESERVED_BYTES);
        let is_arena = memory.kind() == MemoryKind::Arena;
        assert_eq!(memory.address(), if is_arena { *base as u64 } else { 0 });
    }
    bases.sort_unstable();
    assert!(bases.is_sorted_by(|a, b| a + RESERVED_BYTES <= *b));
    assert_eq!(memories[0].len(), 4096);
    for bytes in [0, ALIGNMENT] {
        assert!(Memory::anonymous(bytes).is_err());
        assert!(shared::arena(bytes).is_err());
    }
}

#[test]
fn copies_of_any_length_and_alignment_are_exact_and_stay_inside() {
    // An anonymous memory needs no privilege, and all kinds share this code.
    let memory = Memory::anonymous(4096).expect("made");
    let pattern: Vec<u8> = (0..64).map(|i| i as u8 + 1).collect();
    for offset in (0..24).chain(4040..4096) {
        for len in 0..=pattern.len().min(4096 - offset) {
            let at = AllegedOffset(offset as u32);
            memory
                .copy_in(AllegedOffset(0), &[0; 4096])
                .expect("inside");
            memory.copy_in(at, &pattern[..len]).expect("inside");
            let mut all = [0xff; 4096];
            memory.copy_out(AllegedOffset(0), &mut all).expect("inside");
            assert_eq!(&all[offset..offset + len], &pattern[..len]);
            let touched = all.iter().filter(|byte| **byte != 0).count();
            assert_eq!(touched, len, "{len} bytes at {offset}");
            let mut part = vec![0; len];
            memory.copy_out(at, &mut part).expect("inside");
            assert_eq!(part, &pattern[..len]);
        }
    }
    let mut bytes = [7; 2];
    for offset in [4095, 4096, u32::MAX] {
        let at = AllegedOffset(offset);
        assert!(memory.copy_out(at, &mut bytes).is_err());
        assert!(memory.copy_in(at, &bytes).is_err());
    }
    assert_eq!(bytes, [7; 2]);
    assert!(memory.copy_out(AllegedOffset(4096), &mut []).is_ok());
}

#[test]
fn an_anonymous_memory_cannot_be_shrunk_under_us() {
    let memory = Memory::anonymous(4096).expect("made");
    assert!(rustix::fs::ftruncate(memory.fd(), 0).is_err());
}

/// What the process of another uid is told, in this order.
const TOLD: &str = "ASHWAY_TEST_MEMORY";

#[test]
fn a_process_without_capabilities_maps_what_it_was_given() {
    if skip_unless_root() {
        return;
    }
    let made = [
        shared::arena(BYTES),
        shared::array(BYTES),
        Memory::anonymous(BYTES),
    ];
    for memory in made {
        let memory = memory.expect("made");
        if memory.kind() == MemoryKind::Anonymous {
            memory.u32_at(AT).store(MARK as u32, SeqCst);
        } else {
            run_once(&marker(&memory));
        }
        // A duplicate is not close-on-exec.
        let fd = rustix::io::dup(memory.fd()).expect("duplicated");
        let told = format!(
            "{} {} {} {}",
            fd.as_raw_fd(),
            memory.kind().name(),
            memory.len(),
            memory.address()
        );
        let output = Command::new("/proc/self/exe")
            .args([
                "--exact",
                "as_the_other_process",
                "--ignored",
                "--nocapture",
            ])
            .env(TOLD, told)
            .uid(65534)
            .gid(65534)
            .output()
            .expect("the test binary starts");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{:?}: {text}", memory.kind());
        assert!(text.contains("1 passed"), "{text}");
        assert_eq!(
            memory.u32_at(AT + 4).load(SeqCst),
            4321,
            "{:?}",
            memory.kind()
        );
    }
}

#[test]
#[ignore = "is started by a_process_without_capabilities_maps_what_it_was_given"]
fn as_the_other_process() {
    let Ok(told) = std::env::var(TOLD) else {
        eprintln!("this runs only as the child of another test");
        return;
    };
    let told: Vec<&str> = told.split(' ').collect();
    let fd = told[0].parse().expect("an fd");
    // SAFETY: the parent left this fd open for us, and nobody else here knows.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let kind = MemoryKind::from_name(told[1]).expect("a kind");
    let (len, address) = (told[2].parse(), told[3].parse());
    let status = std::fs::read_to_string("/proc/self/status").expect("read");
    assert!(status.contains("CapEff:\t0000000000000000"));
    assert!(shared::arena(BYTES).is_err());

    let memory = Memory::map_received(
        fd,
        kind,
        len.expect("a length"),
        address.expect("an address"),
    )
    .expect("mapped");
    if kind == MemoryKind::Arena {
        assert_eq!(memory.base().as_ptr() as u64, memory.address());
    }
    assert_eq!(memory.u32_at(AT).load(SeqCst), MARK as u32);
    memory.u32_at(AT + 4).store(4321, SeqCst);
}
