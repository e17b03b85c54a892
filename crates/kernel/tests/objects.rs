//! Maps, programs and the wake bell, against the running kernel.

mod common;

use std::os::fd::AsFd;
use std::time::Duration;

use ashway_kernel::maps::{MMAPABLE, possible_cpus};
use ashway_kernel::{
    BtfInfo, LoadError, Map, MapFixup, MapKind, MapSpec, Program, ProgramKind, ProgramSpec, shared,
    verifier_log,
};
use ashway_memory::WakeBell;
use ashway_rig::skip_unless_root;
use common::{EXIT, call, insn, load_map, mov, returning, run_once, xdp};
use rustix::event::{PollFd, PollFlags, Timespec};

fn create(spec: &MapSpec<'_>) -> Map {
    Map::create(spec).expect("the kernel makes the map")
}

#[test]
fn an_array_starts_at_zero_and_keeps_what_is_written() {
    if skip_unless_root() {
        return;
    }
    let map = create(&MapSpec::array("t_array", 12, 3));
    let key = 2u32.to_ne_bytes();
    assert_eq!(map.lookup(&key).expect("looked up"), Some(vec![0; 12]));
    map.update(&key, b"twelve bytes").expect("written");
    let value = map.lookup(&key).expect("looked up");
    assert_eq!(value.as_deref(), Some(b"twelve bytes".as_slice()));
    assert_eq!(map.lookup(&3u32.to_ne_bytes()).expect("looked up"), None);
    let error = map.update(&key, b"short").expect_err("refused");
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
}

#[test]
fn a_per_cpu_array_has_a_value_for_every_cpu() {
    if skip_unless_root() {
        return;
    }
    let cpus = possible_cpus().expect("counted");
    let map = create(&MapSpec::percpu_array("t_percpu", 12, 1));
    let values: Vec<u8> = (0..cpus).flat_map(|cpu| [cpu as u8 + 1; 16]).collect();
    map.update(&[0; 4], &values).expect("written");
    let read = map.lookup_percpu(&[0; 4]).expect("looked up");
    assert_eq!(read.len(), cpus);
    for (cpu, value) in read.iter().enumerate() {
        // The kernel copies whole double words, so the tail comes along.
        assert_eq!((value.len(), value[11]), (16, cpu as u8 + 1));
    }
    // One value alone would make the kernel read beyond it.
    assert!(map.update(&[0; 4], &[0; 12]).is_err());
}

#[test]
fn a_hash_forgets_what_is_deleted() {
    if skip_unless_root() {
        return;
    }
    let mut spec = MapSpec::array("t_hash", 8, 4);
    spec.kind = MapKind::Hash;
    let map = create(&spec);
    assert!(!map.delete(&[1; 4]).expect("nothing there"));
    map.update(&[1; 4], &[7; 8]).expect("written");
    assert_eq!(map.lookup(&[1; 4]).expect("looked up"), Some(vec![7; 8]));
    assert!(map.delete(&[1; 4]).expect("deleted"));
    assert_eq!(map.lookup(&[1; 4]).expect("looked up"), None);
}

#[test]
fn a_hash_takes_gives_and_forgets_many_at_once() {
    if skip_unless_root() {
        return;
    }
    let map = create(&MapSpec::hash("t_hash", 6, 8, 5000));
    let key = |n: u32| [&n.to_le_bytes()[..], &[7, 7]].concat();
    let keys: Vec<u8> = (0..5000).flat_map(key).collect();
    let values: Vec<u8> = (0..5000_u64).flat_map(u64::to_le_bytes).collect();
    map.update_batch(&keys, &values).expect("all fit");
    let mut entries = map.entries().expect("read");
    entries.sort();
    let mut wanted: Vec<_> = (0..5000)
        .map(|n| (key(n), u64::from(n).to_le_bytes().to_vec()))
        .collect();
    wanted.sort();
    assert!(entries == wanted, "every entry once");
    // One more than there is room for.
    let error = map.update(&key(5000), &[0; 8]).expect_err("full");
    assert_eq!(error.raw_os_error(), Some(libc::E2BIG));
    map.delete_batch(&keys[..4999 * 6]).expect("deleted");
    let left = map.entries().expect("read");
    assert_eq!(left, [(key(4999), 4999_u64.to_le_bytes().to_vec())]);
    assert!(map.delete_batch(&keys[..6]).is_err(), "it is gone");
    assert!(map.update_batch(&keys[..7], &values[..8]).is_err());
    assert!(map.update_batch(&keys[..6], &values[..7]).is_err());
    map.update_batch(&[], &[]).expect("nothing to do");
}

#[test]
fn an_xsk_map_can_be_made() {
    if skip_unless_root() {
        return;
    }
    let map = create(&MapSpec::xsk_map("t_xsk", 4));
    assert!(map.clear_slot(0).expect("cleared, though empty"));
    assert!(map.clear_slot(4).is_err());
}

#[test]
fn a_slot_of_a_program_array_is_called_replaced_and_cleared() {
    if skip_unless_root() {
        return;
    }
    let slots = create(&MapSpec::prog_array("t_slots", 2));
    let maps = [MapFixup {
        insn: 0,
        fd: slots.fd(),
        value_offset: None,
    }];
    // return bpf_tail_call(ctx, slots, 1) or else 99
    let insns = [load_map(2), 0, mov(3, 1), call(12), mov(0, 99), EXIT];
    let caller = xdp("t_caller", &insns, &maps);
    assert_eq!(run_once(&caller).retval, 99);
    let (seven, eight) = (returning("t_seven", 7), returning("t_eight", 8));
    slots.set_slot(1, seven.fd()).expect("set");
    assert_eq!(run_once(&caller).retval, 7);
    slots.set_slot(1, eight.fd()).expect("replaced");
    assert_eq!(run_once(&caller).retval, 8);
    assert!(slots.clear_slot(1).expect("cleared"));
    assert!(!slots.clear_slot(1).expect("empty already"));
    assert_eq!(run_once(&caller).retval, 99);
}

#[test]
fn a_shared_array_is_one_memory_for_program_and_process() {
    use std::sync::atomic::Ordering::SeqCst;
    if skip_unless_root() {
        return;
    }
    let shared = shared::words("t_shared", 5000).expect("made");
    shared.u32_at(4096).store(41, SeqCst);
    let maps = [MapFixup {
        insn: 0,
        fd: shared.fd(),
        value_offset: Some(4096),
    }];
    // lock *(u64 *)value += 1; return *(u32 *)value
    let insns = [
        load_map(1),
        0,
        mov(2, 1),
        insn(0xdb, 1, 2, 0, 0),
        insn(0x61, 0, 1, 0, 0),
        EXIT,
    ];
    let program = xdp("t_shared", &insns, &maps);
    assert_eq!(run_once(&program).retval, 42);
    assert_eq!(shared.u64_at(4096).load(SeqCst), 42);
    assert_eq!(shared.len(), 8192);
    assert!(shared.copy_out(8190, &mut [0; 3]).is_err());
    assert!(std::panic::catch_unwind(|| shared.u32_at(8192).load(SeqCst)).is_err());
    assert!(std::panic::catch_unwind(|| shared.u32_at(2).load(SeqCst)).is_err());
}

#[test]
fn the_bell_rings_until_it_is_drained() {
    if skip_unless_root() {
        return;
    }
    let bell = shared::bell("t_bell", 4096).expect("made");
    let maps = [MapFixup {
        insn: 0,
        fd: bell.fd(),
        value_offset: None,
    }];
    // *(u64 *)(r10 - 8) = 0; return bpf_ringbuf_output(bell, r10 - 8, 8, FORCE_WAKEUP)
    let insns = [
        load_map(1),
        0,
        insn(0x7a, 10, 0, -8, 0),
        insn(0xbf, 2, 10, 0, 0),
        insn(0x07, 2, 0, 0, -8),
        mov(3, 8),
        mov(4, 2),
        call(130),
        EXIT,
    ];
    let program = xdp("t_bell", &insns, &maps);
    assert!(!bell.drain());
    assert!(!readable(&bell, Duration::ZERO));
    // More than the buffer holds: a full bell has rung too.
    for _ in 0..1000 {
        run_once(&program);
    }
    assert!(readable(&bell, Duration::from_secs(1)));
    assert!(bell.drain());
    assert!(!bell.drain());
    assert!(!readable(&bell, Duration::ZERO));

    // A sleeper wakes.
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| readable(&bell, Duration::from_secs(5)));
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(run_once(&program).retval, 0);
        assert!(sleeper.join().expect("the sleeper returns"));
    });
}

fn readable(bell: &WakeBell, patience: Duration) -> bool {
    let mut fds = [PollFd::new(bell, PollFlags::IN)];
    let patience = Timespec::try_from(patience).expect("a short time");
    rustix::event::poll(&mut fds, Some(&patience)).expect("polled") == 1
}

#[test]
fn a_refused_program_gives_the_verifiers_reason() {
    if skip_unless_root() {
        return;
    }
    // Returns a register that was never written.
    let insns = [insn(0xbf, 0, 3, 0, 0), EXIT];
    let error = load(&insns, &[]).expect_err("the verifier sees it");
    assert!(matches!(error, LoadError::Rejected { .. }), "{error:?}");
    let summary = verifier_log::summary(error.log());
    assert_eq!(summary.reason, "R3 !read_ok");
    assert_eq!(summary.insn, Some(0));
    assert!(error.to_string().ends_with("rejected `t_bad`: R3 !read_ok"));
}

#[test]
fn a_refusal_names_the_source_line() {
    if skip_unless_root() {
        return;
    }
    let insns = [mov(0, 0), insn(0xbf, 0, 3, 0, 0), EXIT];
    let error = Program::load(&ProgramSpec {
        name: "t_lines",
        kind: ProgramKind::Xdp,
        attach_type: 0,
        insns: &insns,
        maps: &[],
        btf: Some(&debug_information(&[(0, 12), (1, 14)])),
    })
    .expect_err("the verifier sees it");
    let summary = verifier_log::summary(error.log());
    assert_eq!(
        summary.source,
        Some("return p; @ t.c:14"),
        "{}",
        error.log()
    );
    assert_eq!((summary.reason, summary.insn), ("R3 !read_ok", Some(1)));

    let mut bad = debug_information(&[(0, 12)]);
    bad.bytes[0] = 0;
    let error = Program::load(&ProgramSpec {
        name: "t_btf",
        kind: ProgramKind::Xdp,
        attach_type: 0,
        insns: &insns,
        maps: &[],
        btf: Some(&bad),
    })
    .expect_err("no BTF");
    assert!(matches!(error, LoadError::Btf { .. }), "{error:?}");
    assert!(!error.log().is_empty());
}

/// The verifier is given no more time than it may take, however many ways there are
/// through a program.
#[test]
fn a_load_that_takes_too_long_is_given_up() {
    if skip_unless_root() {
        return;
    }
    // r6 = an unknown number, r7 = how many of its bits are set, asked 1,000 times. Which
    // it is decides a branch in the end, so that each number is a state of its own.
    let mut insns = vec![insn(0x61, 6, 1, 12, 0), mov(7, 0)];
    for bit in 0..1000 {
        insns.extend([
            insn(0xbf, 3, 6, 0, 0),
            insn(0x57, 3, 0, 0, 1 << (bit % 16)),
            insn(0x15, 3, 0, 1, 0),
            insn(0x07, 7, 0, 0, 1),
        ]);
    }
    insns.extend([mov(0, 1), insn(0x15, 7, 0, 1, 77), mov(0, 2), EXIT]);
    let spec = ProgramSpec {
        name: "t_slow",
        kind: ProgramKind::Xdp,
        attach_type: 0,
        insns: &insns,
        maps: &[],
        btf: None,
    };
    let error = Program::load_within(Duration::from_millis(1), &spec).expect_err("1 ms is little");
    assert!(matches!(error, LoadError::TooLong { .. }), "{error:?}");
    let said = error.to_string();
    assert!(
        said.ends_with("verifier took longer than 0.001 s"),
        "{said}"
    );
    // The thread that loaded it is none the worse.
    returning("t_after", 2);
}

/// BTF of `static int on_rx(void)` in `t.c`, and (instruction, line) pairs.
fn debug_information(lines: &[(u32, u32)]) -> BtfInfo {
    let words = |words: &[u32]| -> Vec<u8> { words.iter().flat_map(|w| w.to_le_bytes()).collect() };
    let strings = b"\0int\0on_rx\0t.c\0return p;\0";
    let types = words(&[
        // 1: int of 32 bits with sign; 2: prototype; 3: function of it.
        1,
        1 << 24,
        4,
        0x0100_0020, //
        0,
        13 << 24,
        1, //
        5,
        12 << 24,
        2,
    ]);
    let len = types.len() as u32;
    let mut bytes = words(&[0x0001_eb9f, 24, 0, len, len, strings.len() as u32]);
    bytes.extend(types);
    bytes.extend(strings);
    let line_info = lines
        .iter()
        .flat_map(|(insn, line)| words(&[*insn, 11, 15, line << 10]))
        .collect();
    BtfInfo {
        bytes,
        func_info: words(&[0, 3]),
        line_info,
    }
}

#[test]
fn a_log_longer_than_the_first_buffer_is_complete() {
    if skip_unless_root() {
        return;
    }
    // 2000 instructions give some 100 KiB of log before the last one fails.
    let mut insns = vec![mov(0, 0)];
    insns.extend((0..2000).map(|i| insn(0x07, 0, 0, 0, i)));
    insns.extend([insn(0xbf, 0, 3, 0, 0), EXIT]);
    let error = load(&insns, &[]).expect_err("the verifier sees it");
    assert!(error.log().len() > 64 << 10, "{}", error.log().len());
    let summary = verifier_log::summary(error.log());
    assert_eq!((summary.reason, summary.insn), ("R3 !read_ok", Some(2001)));
    assert!(error.log().contains("\n0: (b7) r0 = 0"));
}

#[test]
fn a_map_goes_only_where_an_instruction_loads_one() {
    if skip_unless_root() {
        return;
    }
    let map = create(&MapSpec::array("t_map", 4, 1));
    for insn in [0, 1, usize::MAX - 1] {
        let maps = [MapFixup {
            insn,
            fd: map.as_fd(),
            value_offset: None,
        }];
        let error = load(&[mov(0, 0), EXIT], &maps).expect_err("not a load");
        assert!(matches!(error, LoadError::NotAMapLoad { .. }), "{error:?}");
    }
}

#[test]
fn the_verifiers_work_is_told() {
    if skip_unless_root() {
        return;
    }
    let program = returning("t_small", 1);
    assert_eq!(program.verified_insns(), 2);
    assert_ne!(program.id(), 0);
}

#[test]
fn mappable_arrays_are_arrays() {
    if skip_unless_root() {
        return;
    }
    let mut spec = MapSpec::array("t_mmap", 8, 1);
    spec.flags = MMAPABLE;
    let map = create(&spec);
    map.update(&[0; 4], &[5; 8]).expect("written");
    assert_eq!(map.lookup(&[0; 4]).expect("looked up"), Some(vec![5; 8]));
}

fn load(insns: &[u64], maps: &[MapFixup<'_>]) -> Result<Program, LoadError> {
    Program::load(&ProgramSpec {
        name: "t_bad",
        kind: ProgramKind::Xdp,
        attach_type: 0,
        insns,
        maps,
        btf: None,
    })
}
