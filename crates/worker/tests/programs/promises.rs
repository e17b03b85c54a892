//! What the kernel tier promises, each as a question to a program, and programs with one bug
//! each that break it.

use super::*;

/// Whether a program keeps a promise.
type Question = fn(&Bench) -> bool;

/// What the kernel tier promises, each as a question to one program.
const PROMISES: [(&str, Question); 6] = [
    ("the lock is free after an activation", |bench| {
        let frame = Frame::to_b(7777, b"lock").bytes();
        bench.run(&frame);
        word(bench, trusted::LOCK).load(Relaxed) == 0
    }),
    ("a busy instance is left alone", |bench| {
        let frame = Frame::to_b(7777, b"busy").bytes();
        word(bench, trusted::LOCK).store(1, Relaxed);
        let code = bench.run(&frame);
        let queued = bench.count(1, Count::QueuedBusy) == 1;
        word(bench, trusted::LOCK).store(0, Relaxed);
        word(bench, trusted::PATHS).store(0, Relaxed);
        code == DROP && queued
    }),
    ("an instance that the worker wants is left alone", |bench| {
        let frame = Frame::to_b(7777, b"wanted").bytes();
        word(bench, trusted::WANTED).store(1, Relaxed);
        let code = bench.run(&frame);
        let queued = bench.count(1, Count::QueuedBusy) == 1;
        word(bench, trusted::WANTED).store(0, Relaxed);
        word(bench, trusted::PATHS).store(0, Relaxed);
        code == DROP && queued && bench.run(&frame) == TX
    }),
    ("no message overtakes those in the user tier", |bench| {
        let frame = Frame::to_b(7777, b"order").bytes();
        word(bench, trusted::PATHS).store(1, Relaxed);
        let flow = flow_of(bench, 7777);
        flow.store(1, Relaxed);
        let code = bench.run(&frame);
        flow.store(0, Relaxed);
        word(bench, trusted::PATHS).store(0, Relaxed);
        code == DROP && bench.count(1, Count::QueuedOrder) == 1
    }),
    ("a flood does not keep a path in the user tier", |bench| {
        let frame = Frame::to_b(7777, b"flood").bytes();
        let in_user = word(bench, trusted::PATHS);
        let flow = flow_of(bench, 7777);
        in_user.store(1, Relaxed);
        flow.store(1, Relaxed);
        for _ in 0..=trusted::RING_SLOTS {
            bench.run(&frame);
        }
        let draining = flow.load(Relaxed) & trusted::DRAINING != 0;
        // As if the worker had worked off all but one.
        let ring = |offset| word(bench, trusted::RINGS + offset);
        let produced = ring(trusted::RING_PRODUCED).load(Relaxed);
        ring(trusted::RING_CONSUMED).store(produced, Relaxed);
        in_user.store(1, Relaxed);
        flow.store(1 | trusted::DRAINING, Relaxed);
        let code = bench.run(&frame);
        let full = bench.count(1, Count::DroppedRingFull);
        in_user.store(0, Relaxed);
        let left = flow.swap(0, Relaxed);
        let kept = left == 1 | trusted::DRAINING && (code, full) == (DROP, 2);
        draining && kept && bench.run(&frame) == TX
    }),
    ("a reply has a true checksum", |bench| {
        let mut frame = Frame::to_b(7777, b"sum").bytes();
        let run = TestRun {
            packet: &frame,
            context: None,
            repeat: 1,
        };
        let reply = bench.entry.test_run(&run).unwrap().packet;
        ashway_wire::make_reply(&mut frame, 42, 3).unwrap();
        reply == frame
    }),
];

/// Where a flow of a [frame](Frame::to_b) to this port is counted.
fn flow_of(bench: &Bench, port: u16) -> &std::sync::atomic::AtomicU32 {
    let frame = Frame::to_b(port, b"");
    let ports = [frame.source_port.to_be_bytes(), port.to_be_bytes()].concat();
    let addresses = [frame.source, frame.destination].map(|address| match address {
        std::net::IpAddr::V4(address) => address.octets(),
        std::net::IpAddr::V6(_) => unreachable!("it goes over IPv4"),
    });
    let bucket = ashway_abi::flow::of_ipv4(0, addresses, ports.try_into().unwrap());
    word(bench, QUEUE.flow_word(bucket as usize))
}

fn word(bench: &Bench, offset: usize) -> &std::sync::atomic::AtomicU32 {
    bench.trusted.u32_at(offset)
}

/// Changes the `immediate` of the instructions with this opcode, registers and
/// offset (RFC 9669 §3.1); there must be one.
fn seed(insns: &mut [u64], like: Insn, immediate: i32) {
    let mut changed = 0;
    for raw in insns.iter_mut() {
        let insn = Insn::decode(*raw);
        if insn == like {
            *raw = Insn {
                imm: immediate,
                ..insn
            }
            .encode();
            changed += 1;
        }
    }
    assert!(changed > 0, "{like:?}");
}

/// The first conditional jump of this kind on `r2` and 0, and where it is.
fn find(insns: &[u64], opcode: u8) -> (usize, Insn) {
    let decoded = insns.iter().map(|raw| Insn::decode(*raw)).enumerate();
    let is_it = |insn: &Insn| (insn.opcode, insn.dst, insn.imm) == (opcode, Reg::R2 as u8, 0);
    decoded.into_iter().find(|(_, insn)| is_it(insn)).unwrap()
}

const fn insn(opcode: u8, dst: Reg, off: i16, imm: i32) -> Insn {
    Insn {
        opcode,
        dst: dst as u8,
        src: 0,
        off,
        imm,
    }
}

/// Where a program takes the lock.
fn position_of_exchange(insns: &[u64]) -> usize {
    let is_exchange = |raw: &u64| Insn::decode(*raw).imm == Atomic::CompareExchange as i32;
    insns.iter().position(is_exchange).unwrap()
}

/// The twins of the promises: programs with one bug each, which just that
/// promise's question must notice.
#[test]
fn each_seeded_bug_breaks_its_promise() {
    if ashway_rig::skip_unless_root() {
        return;
    }
    for (promise, keeps) in PROMISES {
        let bench = bench(MemoryKind::Arena);
        let _program = promote(&bench, MemoryKind::Arena, ECHO);
        assert!(keeps(&bench), "{promise}");
    }
    let bugs: [fn(&mut Vec<u64>); 6] = [
        // `*(u32 *)(r7 + LOCK) = 0`, the release.
        |insns| seed(insns, insn(0x62, Reg::R7, trusted::LOCK as i16, 0), 1),
        // `r0 = 0` before the exchange: it now takes the lock from a holder.
        |insns| {
            let exchange = position_of_exchange(insns);
            assert_eq!(
                Insn::decode(insns[exchange - 2]),
                insn(0xb7, Reg::R0, 0, 0),
                "what the lock must be"
            );
            insns[exchange - 2] = insn(0xb7, Reg::R0, 0, 1).encode();
            // The holder's 1 is then "free", and 0 is "busy".
            let taken = Insn::decode(insns[exchange + 1]);
            insns[exchange + 1] = Insn { imm: 1, ..taken }.encode();
        },
        // The exchange of both words is of the lock alone.
        |insns| {
            let exchange = position_of_exchange(insns);
            let both = Insn::decode(insns[exchange]);
            assert_eq!((both.opcode, both.off), (0xdb, trusted::LOCK as i16));
            insns[exchange] = Insn {
                opcode: 0xc3,
                ..both
            }
            .encode();
        },
        // `if r2 == 0 goto mine`, where r2 is `in_user`: `r2 >= 0`, always taken.
        |insns| {
            let jump = find(insns, 0x15);
            insns[jump.0] = Insn {
                opcode: 0x35,
                ..jump.1
            }
            .encode();
        },
        // `if w2 s< 0 goto drained`, where w2 is `in_user` or the same of the flow: never taken.
        |insns| {
            for _ in 0..2 {
                let jump = find(insns, 0xc6);
                // No jump at all: the next search finds the other.
                insns[jump.0] = Insn {
                    off: 0,
                    opcode: 0x05,
                    dst: 0,
                    ..jump.1
                }
                .encode();
            }
        },
        // `r5 ^= 0xffff`, the complement of the sum.
        |insns| seed(insns, insn(0xa7, Reg::R5, 0, 0xffff), 0xfffe),
    ];
    for ((promise, keeps), bug) in PROMISES.into_iter().zip(bugs) {
        let bench = bench(MemoryKind::Arena);
        let _program = promote_edited(&bench, MemoryKind::Arena, ECHO, bug);
        assert!(!keeps(&bench), "not noticed: {promise}");
    }
}

/// Another CPU has the instance again and again, each time for less than a message waits: one
/// that waits runs in the kernel tier, and the lock is its own.
#[test]
fn a_message_waits_a_short_time_for_another_cpu() {
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::Ordering::{Acquire, Release};
    use std::time::{Duration, Instant};
    const HOLDS: Duration = Duration::from_nanos(500);
    if ashway_rig::skip_unless_root() {
        return;
    }
    for kind in kinds() {
        let bench = bench(kind);
        let _program = promote(&bench, kind, ECHO);
        let lock = word(&bench, trusted::LOCK);
        let frame = Frame::to_b(7777, b"wait").bytes();
        // In vain: nobody frees it.
        lock.store(trusted::IN_KERNEL, Relaxed);
        assert_eq!(bench.run(&frame), DROP, "in the ring");
        let counts = || [Count::WaitedBusy, Count::QueuedBusy].map(|which| bench.count(1, which));
        assert_eq!((counts(), lock.load(Relaxed)), ([1, 1], trusted::IN_KERNEL));
        lock.store(0, Relaxed);
        word(&bench, trusted::PATHS).store(0, Relaxed);

        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Relaxed) {
                    let free = lock.compare_exchange(0, trusted::IN_KERNEL, Acquire, Relaxed);
                    let until = Instant::now() + HOLDS;
                    while Instant::now() < until {
                        std::hint::spin_loop();
                    }
                    if free.is_ok() {
                        lock.store(0, Release);
                    }
                }
            });
            let end = Instant::now() + Duration::from_mins(1);
            loop {
                bench.run(&frame);
                // What crossed has left again.
                word(&bench, trusted::PATHS).store(0, Relaxed);
                flow_of(&bench, 7777).store(0, Relaxed);
                let [waited, crossed] = counts();
                if waited > crossed || Instant::now() > end {
                    over.store(true, Relaxed);
                    assert!(
                        waited > crossed,
                        "{kind:?}: {waited} waited, {crossed} in vain"
                    );
                    break;
                }
            }
        });
    }
}

/// Is stopped by every message.
const STOPPED: &str = r#"(module
    (memory (export "memory") 2 2)
    (func (export "on_rx") (param i32 i32) (result i32) unreachable))"#;

/// What stops a handler is kept if that is wanted, and the instance is held until it is
/// taken; what comes meanwhile waits.
fn keeps_what_stopped(bench: &Bench) -> bool {
    let at = trusted::fault_at(QUEUE.rings);
    let kept = || {
        let bytes = [trusted::FAULT_FRONT, trusted::FAULT_LEN]
            .map(|offset| word(bench, at + offset).load(Relaxed) as usize);
        let mut frame = vec![0; bytes.iter().sum()];
        let from = at + trusted::FAULT_FRAME;
        bench.trusted.copy_out(from, &mut frame).unwrap();
        frame
    };
    let lock = || word(bench, trusted::LOCK).load(Relaxed);
    let [first, second] = [&b"first"[..], b"second"].map(|m| Frame::to_b(7777, m).bytes());
    word(bench, trusted::VERSION).store(7, Relaxed);
    let unwanted = bench.run(&first) == PASS && lock() == 0 && kept().is_empty();
    word(bench, trusted::FAULT_WANTED).store(1, Relaxed);
    let wanted = bench.run(&first) == PASS && lock() == trusted::HELD && kept() == first;
    // On another CPU, or behind it.
    let held = bench.run(&second) == DROP && bench.count(1, Count::QueuedBusy) == 1;
    let held = held && kept() == first && word(bench, trusted::FAULT_COUNT).load(Relaxed) == 2;
    // As if the worker had taken it.
    word(bench, trusted::LOCK).store(0, Relaxed);
    word(bench, trusted::PATHS).store(0, Relaxed);
    let once = bench.run(&second) == PASS && lock() == 0 && kept() == first;
    let version = word(bench, trusted::FAULT_VERSION).load(Relaxed) == 7;
    unwanted && wanted && held && once && version
}

/// A seeded mistake: instructions, and [`trusted::HELD`].
type Edit = fn(&mut Vec<u64>, i32);

#[test]
fn what_stops_a_handler_is_kept_and_the_instance_held() {
    if ashway_rig::skip_unless_root() {
        return;
    }
    for kind in kinds() {
        let fresh = bench(kind);
        let _program = promote(&fresh, kind, STOPPED);
        assert!(keeps_what_stopped(&fresh), "{kind:?}");
    }
    let kept = trusted::HELD as i32;
    let bugs: [(&str, Edit); 3] = [
        ("the instance is free at once", |insns, kept| {
            seed(insns, insn(0x62, Reg::R7, trusted::LOCK as i16, kept), 0);
        }),
        ("another packet is kept", |insns, _| {
            // Where in the frame the copy begins.
            seed(insns, insn(0xb7, Reg::R2, 0, 0), 1);
        }),
        ("every packet is kept", |insns, _| {
            let wanted = insns.iter().position(|raw| {
                let insn = Insn::decode(*raw);
                (insn.opcode, insn.off) == (0x61, trusted::FAULT_WANTED as i16)
            });
            insns[wanted.unwrap()] = insn(0xb7, Reg::R1, 0, 1).encode();
        }),
    ];
    for (bug, edit) in bugs {
        let bench = bench(MemoryKind::Arena);
        let _program = promote_edited(&bench, MemoryKind::Arena, STOPPED, |insns| {
            edit(insns, kept);
        });
        assert!(!keeps_what_stopped(&bench), "not noticed: {bug}");
    }
}

/// Logs a line, changes its message, and answers.
const LEAVES_TRACES: &str = r#"(module
    (import "ashway" "log" (func $log (param i32 i32)))
    (import "ashway" "msg_store8" (func $store (param i32 i32)))
    (memory (export "memory") 2 2)
    (func (export "on_rx") (param i32 i32) (result i32)
        (call $log (i32.const 0) (i32.const 1))
        (call $store (i32.const 0) (i32.const 9))
        i32.const 1))"#;

/// Logs what is empty, and nothing else.
const QUIET: &str = r#"(module
    (import "ashway" "log" (func $log (param i32 i32)))
    (memory (export "memory") 2 2)
    (func (export "on_rx") (param $len i32) (param i32) (result i32)
        (if (i32.eqz (local.get $len)) (then (call $log (i32.const 0) (i32.const 1))))
        i32.const 1))"#;

/// A message that is refused before the handler begins takes nothing over from the one
/// before it on its CPU: neither its lines nor that it was changed.
fn begins_anew(edit: impl FnOnce(&mut Vec<u64>)) -> bool {
    use ashway_abi::log::ring;
    let bench = bench(MemoryKind::Arena);
    let frame = Frame::to_b(7777, b"trace").bytes();
    let lines = || {
        let at = trusted::log_at(QUEUE.rings) + ring::PRODUCED;
        word(&bench, at).load(Relaxed)
    };
    let _first = promote(&bench, MemoryKind::Arena, LEAVES_TRACES);
    assert_eq!((bench.run(&frame), lines()), (TX, 1));
    let _second = promote_edited(&bench, MemoryKind::Arena, QUIET, |insns| {
        // `if r3 <= HEADERS_BYTES`, where r3 is the payload's place, in each message.
        let bound = insns.iter().position(|raw| {
            let Insn {
                opcode, dst, imm, ..
            } = Insn::decode(*raw);
            let most = trusted::HEADERS_BYTES as i32;
            (opcode, dst, imm) == (0xb5, Reg::R3 as u8, most)
        });
        let bound = bound.unwrap();
        let jump = Insn::decode(insns[bound]);
        insns[bound] = Insn { imm: 0, ..jump }.encode();
        edit(insns);
    });
    let passed = bench.run(&frame) == PASS;
    assert_eq!(bench.count(1, Count::AbortMessageBounds), 1);
    passed && lines() == 1
}

#[test]
fn who_is_stopped_before_it_begins_has_nothing_of_the_one_before() {
    if ashway_rig::skip_unless_root() || !kinds().contains(&MemoryKind::Arena) {
        return;
    }
    // What is left lies with the CPU.
    let mut here = rustix::thread::CpuSet::new();
    here.set(rustix::thread::sched_getcpu());
    rustix::thread::sched_setaffinity(None, &here).unwrap();
    assert!(begins_anew(|_| ()));
    let nothing = insn(0x05, Reg::R0, 0, 0).encode();
    let forget = |like: Insn| {
        move |insns: &mut Vec<u64>| {
            let at = insns.iter().position(|raw| Insn::decode(*raw) == like);
            insns[at.unwrap()] = nothing;
        }
    };
    let lines = insn(0x62, Reg::R1, ashway_abi::log::stage::COUNT as i16, 0);
    let dirty = insn(0x62, Reg::R9, context::DIRTY, 0);
    for bug in [lines, dirty] {
        assert!(!begins_anew(forget(bug)), "not noticed: {bug:?}");
    }
}
