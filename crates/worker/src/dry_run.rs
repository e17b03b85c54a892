//! The program of a promotion, run before it gets its slot: the same instructions, loaded over
//! maps of its own in which nothing has happened.
//!
//! The memory is of the kind that the handler's is, the translation is the one that the verifier
//! took, and what stands around the handler is what a live message meets: order, lock, share,
//! verdict, reply. Nothing live is read or written, and nothing is sent: a test run of the
//! kernel's does not do what the program returns.

use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;

use ashway_abi::memory::Layout;
use ashway_abi::{MemoryKind, QueueLayout, Verdict, context, count};
use ashway_check::bpf::{Image, MapRef};
use ashway_codegen::instance::alone::{End, Start};
use ashway_handler::Stopped;
use ashway_kernel::{Map, MapSpec, Program, TestRun, shared};
use ashway_memory::{AllegedOffset, Memory, SharedArray, WakeBell};
use ashway_trial::{Activation, NotRun, program};
use ashway_wire::{Datagram, ipv4, ipv6, udp};

/// A program that was loaded, and what it takes to load it over other maps. As large as the
/// program.
#[derive(Clone, Debug)]
pub struct Blueprint {
    pub(crate) image: Image,
    /// Of the handler's memory.
    pub(crate) layout: Layout,
    pub(crate) memory: MemoryKind,
    pub(crate) queue: QueueLayout,
    pub(crate) cpus: u32,
    /// Whether it takes frames in several buffers, under XDP.
    pub(crate) frags: bool,
    /// The path's number within the instance, if it has one yet.
    pub(crate) path: Option<usize>,
}

/// The program over maps of its own.
#[derive(Debug)]
pub(crate) struct DryRun {
    program: Program,
    context: SharedArray,
    cpus: usize,
    memory: Memory,
    /// Bytes of the memory that are the handler's.
    own_bytes: usize,
    path: usize,
    _others: (SharedArray, Map, WakeBell),
}

/// What the program makes of a message.
#[derive(Debug)]
pub(crate) struct Ended {
    /// What came of the handler.
    pub(crate) activation: Activation,
    /// Its memory and its state region.
    pub(crate) memory: Vec<u8>,
    /// The first byte in which its answer is another than the user tier sends.
    pub(crate) wrong_answer: Option<usize>,
}

impl DryRun {
    /// Makes the maps and loads the program over them: as long as it took the first time.
    pub(crate) fn new(of: &Blueprint) -> Result<Self, NotRun> {
        let failed = |what, bytes| move |errno| NotRun::Memory { what, bytes, errno };
        let bytes = of.cpus as usize * context::BYTES;
        let context = shared::words("ashway_context", bytes).map_err(failed("context", bytes))?;
        let bytes = of.queue.bytes();
        let words = shared::words("ashway_trusted", bytes).map_err(failed("queue", bytes))?;
        let counters = MapSpec::percpu_array("ashway_counters", count::KERNEL_BYTES as u32, 1);
        let counters = Map::create(&counters).map_err(failed("counters", count::KERNEL_BYTES))?;
        let bell = rustix::param::page_size();
        let wake = shared::bell("ashway_wake", bell as u32).map_err(failed("bell", bell))?;
        let bytes = of.layout.total_bytes();
        let memory = match of.memory {
            MemoryKind::Arena => shared::arena(bytes),
            MemoryKind::Array => shared::array(bytes),
        }
        .map_err(failed("memory", bytes))?;
        let fd = |map: MapRef| -> BorrowedFd<'_> {
            match map {
                MapRef::Context => context.fd(),
                MapRef::Counters => counters.fd(),
                MapRef::Wake => wake.fd(),
                MapRef::Trusted => words.fd(),
                MapRef::Memory => memory.fd(),
                other => unreachable!("a program of the kernel tier has no {other:?}"),
            }
        };
        let program = if of.frags {
            program::load_for_frags(NAME, &of.image, fd)
        } else {
            program::load(NAME, &of.image, fd)
        }?;
        Ok(Self {
            program,
            context,
            cpus: of.cpus as usize,
            memory,
            own_bytes: of.layout.guest_bytes + of.layout.state_bytes,
            path: of.path.unwrap_or_default(),
            _others: (words, counters, wake),
        })
    }

    /// Runs the program for a message behind these headers, over memory as it was `before`.
    /// Nothing comes of one that it leads to the user tier, or that it would have had other
    /// facts of than are known here.
    pub(crate) fn run(
        &self,
        before: &[u8],
        front: &[u8],
        message: &[u8],
    ) -> Result<Option<Ended>, NotRun> {
        let start = Start::plain(front.len(), message.len(), self.path);
        let Some(start) = start.filter(|_| is_whole(front, message.len())) else {
            return Ok(None);
        };
        let before = &before[..before.len().min(self.own_bytes)];
        let copied = self.memory.copy_in(AllegedOffset(0), before);
        copied.expect("it is cut to what there is");
        for cpu in 0..self.cpus {
            for (at, value) in start.words() {
                self.word(cpu, at, |word| word.store(value, Ordering::Relaxed));
            }
        }
        let frame = [front, message].concat();
        let run = self.program.test_run(&TestRun {
            packet: &frame,
            context: None,
            repeat: 1,
        });
        let run = match run {
            // Longer than a test run takes.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return Ok(None),
            run => run.map_err(NotRun::TestRun)?,
        };
        let read = |cpu| End::read(|at| self.word(cpu, at, |word| word.load(Ordering::Relaxed)));
        let Some(end) = (0..self.cpus).find_map(read) else {
            return Ok(None);
        };
        let result = end.result.map_err(|(cause, at)| Stopped { cause, at });
        let verdict = result.ok().and_then(Verdict::from_number);
        let goes_on = matches!(
            verdict,
            Some(Verdict::Reply | Verdict::Deliver | Verdict::Forward)
        );
        let left = run.packet.get(front.len()..).unwrap_or_default();
        let left = &left[..left.len().min(end.len as usize)];
        let wrong_answer = if verdict == Some(Verdict::Reply) {
            answer(front, left).and_then(|expected| first_other(&run.packet, &expected))
        } else {
            None
        };
        let mut memory = vec![0; self.own_bytes];
        let copied = self.memory.copy_out(AllegedOffset(0), &mut memory);
        copied.expect("the layout lies in the memory that was made for it");
        Ok(Some(Ended {
            activation: Activation {
                result,
                message: if goes_on { left } else { message }.to_vec(),
                dirty: end.dirty,
                fuel_left: 0,
            },
            memory,
            wrong_answer,
        }))
    }

    /// A word of a CPU's context.
    fn word<T>(&self, cpu: usize, at: i16, of: impl Fn(&std::sync::atomic::AtomicU32) -> T) -> T {
        of(self.context.u32_at(cpu * context::BYTES + at as usize))
    }
}

/// As `bpftool prog` shows it.
const NAME: &str = "ashway_dry_run";

/// Whether these headers are of a datagram with a payload of this length and nothing behind it.
fn is_whole(front: &[u8], len: usize) -> bool {
    let mut with_len = front.to_vec();
    set_lengths(&mut with_len, len) && with_len == front && Datagram::parse(front).is_ok()
}

/// Says in the headers of a plain packet how long its payload is; whether they can be such.
fn set_lengths(front: &mut [u8], len: usize) -> bool {
    let udp_len = udp::HEADER_BYTES + len;
    let Some((network, udp_header)) = front
        .len()
        .checked_sub(udp::HEADER_BYTES)
        .and_then(|at| front.split_at_mut_checked(at))
    else {
        return false;
    };
    let network = network.get_mut(ashway_wire::eth::HEADER_BYTES..);
    let (Some(network), Ok(udp_len)) = (network, u16::try_from(udp_len)) else {
        return false;
    };
    udp_header[4..6].copy_from_slice(&udp_len.to_be_bytes());
    match network.len() {
        ipv4::HEADER_BYTES => {
            let total = udp_len.saturating_add(ipv4::HEADER_BYTES as u16);
            network[2..4].copy_from_slice(&total.to_be_bytes());
            network[0] == 0x45
        }
        ipv6::HEADER_BYTES => {
            network[4..6].copy_from_slice(&udp_len.to_be_bytes());
            network[0] >> 4 == 6
        }
        _ => false,
    }
}

/// The frame that the user tier sends for this answer; none if there is nobody to be answered.
fn answer(front: &[u8], message: &[u8]) -> Option<Vec<u8>> {
    let mut frame = [front, message].concat();
    set_lengths(&mut frame[..front.len()], message.len());
    ashway_wire::make_reply(&mut frame, front.len(), message.len()).ok()?;
    Some(frame)
}

/// Where two frames are different, if they are.
fn first_other(one: &[u8], other: &[u8]) -> Option<usize> {
    (one != other).then(|| first_difference(one, other))
}

/// How much of them is equal.
pub(crate) fn first_difference(one: &[u8], other: &[u8]) -> usize {
    let same = one
        .iter()
        .zip(other)
        .take_while(|(one, other)| one == other);
    same.count()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use ashway_check::bpf::{Hook, Insn};
    use ashway_codegen::entry::Packet;
    use ashway_codegen::instance::{self, Handler, OrderScope, QueueSpec, Spec};
    use ashway_codegen::normalise::{Limits, normalise};
    use ashway_codegen::stub;
    use ashway_rig::Frame;

    use super::*;
    use crate::budget::budget;

    /// Adds the message's first byte to a word, answers with the sum, and notes that it has run.
    const SUM: &str = r#"(module
        (import "ashway" "msg_load8" (func $load (param i32) (result i32)))
        (import "ashway" "msg_store8" (func $store (param i32 i32)))
        (memory (export "memory") 1 1)
        (func (export "on_rx") (param i32 i32) (result i32)
          (i32.store (i32.const 64)
            (i32.add (i32.load (i32.const 64)) (call $load (i32.const 0))))
          (call $store (i32.const 0) (i32.load (i32.const 64)))
          (i32.store8 (i32.const 80) (i32.const 9))
          (i32.const 1)))"#;

    fn blueprint(hook: Hook, memory: MemoryKind, locals_in_memory: bool) -> Blueprint {
        let wasm = wat::parse_str(SUM).unwrap();
        let module = normalise(&wasm, &Limits::default()).unwrap();
        let cpus = ashway_kernel::maps::possible_cpus().unwrap() as u32;
        let spec = Spec {
            queue: QueueSpec {
                cpus,
                hook,
                layout: QueueLayout {
                    paths: 2,
                    rings: 2,
                    slot_bytes: 2048,
                    locks: 0,
                },
                packet: Packet::beside(memory),
                order_scope: OrderScope::Ring,
            },
            layout: stub::layout(&module),
            memory,
        };
        let handler = Handler {
            module: &module,
            entry: module.exports.iter().find(|it| it.0 == "on_rx").unwrap().1,
            path: Some(1),
            budget: budget(std::time::Duration::from_millis(1)),
            share: None,
            may_reply: true,
            locals_in_memory,
        };
        let (image, _) = instance::kernel(&spec, &handler).unwrap();
        Blueprint {
            image,
            layout: spec.layout,
            memory,
            queue: spec.queue.layout,
            cpus,
            frags: false,
            path: handler.path,
        }
    }

    /// Memory with a word in it, and what it has to be behind a message that begins with 5.
    fn memories(of: &Blueprint) -> [Vec<u8>; 2] {
        [7_u8, 12].map(|word| {
            let mut memory = vec![0; of.layout.guest_bytes + of.layout.state_bytes];
            memory[of.layout.guest_bytes] = 1;
            (memory[64], memory[80]) = (word, if word == 12 { 9 } else { 0 });
            memory
        })
    }

    /// What is wrong of what a program makes of a message; nothing where it is right.
    fn wrong(of: &Blueprint, frame: &[u8]) -> Result<Option<&'static str>, NotRun> {
        let [before, after] = memories(of);
        let front = frame.len() - 4;
        let (front, message) = frame.split_at(front);
        let Some(ended) = DryRun::new(of)?.run(&before, front, message)? else {
            return Ok(Some("nothing"));
        };
        let Ended {
            activation,
            memory,
            wrong_answer,
        } = ended;
        Ok(match activation.result {
            Ok(verdict) if verdict == Verdict::Reply as u32 => {
                if activation.message != [12, 6, 7, 8] {
                    Some("message")
                } else if memory != after {
                    Some("memory")
                } else if wrong_answer.is_some() {
                    Some("frame")
                } else {
                    (!activation.dirty).then_some("dirty")
                }
            }
            _ => Some("end"),
        })
    }

    const MESSAGE: [u8; 4] = [5, 6, 7, 8];

    fn frames() -> [Vec<u8>; 2] {
        [Frame::to_b(7777, &MESSAGE), Frame::to_b_v6(7777, &MESSAGE)].map(|frame| frame.bytes())
    }

    /// In arena and array, by either translation, at both hooks, over both versions of IP.
    #[test]
    fn a_right_program_is_found_right() {
        if ashway_rig::skip_unless_root() {
            return;
        }
        for (hook, memory) in [
            (Hook::Xdp, MemoryKind::Arena),
            (Hook::Xdp, MemoryKind::Array),
            (Hook::Tcx, MemoryKind::Arena),
        ] {
            for locals_in_memory in [false, true] {
                let of = blueprint(hook, memory, locals_in_memory);
                for frame in frames() {
                    let what = (hook, memory, locals_in_memory, frame.len());
                    assert_eq!(wrong(&of, &frame).unwrap(), None, "{what:?}");
                }
            }
        }
    }

    /// The program with any one of its stores left out, as far as the kernel loads it: what is
    /// found is found in the answer, in the memory and in the frame that leaves.
    #[test]
    fn a_store_that_is_left_out_is_found() {
        /// `goto +0`.
        const NOTHING: u64 = 0x05;
        if ashway_rig::skip_unless_root() {
            return;
        }
        for memory in [MemoryKind::Arena, MemoryKind::Array] {
            let right = blueprint(Hook::Xdp, memory, false);
            let [frame, _] = frames();
            let mut found = std::collections::BTreeMap::new();
            for at in 0..right.image.insns.len() {
                let insn = Insn::decode(right.image.insns[at]);
                if !matches!(insn.opcode & 7, 2 | 3) || insn.opcode & 0xe0 != 0x60 {
                    continue;
                }
                let mut of = right.clone();
                of.image.insns[at] = NOTHING;
                // One that the verifier refuses harms nobody.
                if let Ok(Some(what)) = wrong(&of, &frame) {
                    *found.entry(what).or_insert(0) += 1;
                }
            }
            println!("{memory:?}: {found:?}");
            for (what, least) in [("message", 1), ("memory", 1), ("frame", 6), ("dirty", 1)] {
                assert!(found.get(what) >= Some(&least), "{what}: {found:?}");
            }
        }
    }

    #[test]
    fn what_is_no_plain_datagram_is_not_run() {
        let [v4, v6] = frames();
        for (frame, good) in [(&v4, true), (&v6, true)] {
            let front = &frame[..frame.len() - 4];
            assert_eq!(is_whole(front, 4), good);
            // Its lengths are of another payload.
            assert!(!is_whole(front, 5) && !is_whole(front, 3));
            for cut in 0..front.len() {
                assert!(!is_whole(&front[..cut], 4), "{cut} bytes");
            }
        }
        let options = Frame::to_b(7777, &MESSAGE).spoil(ashway_rig::Spoil::Options(1));
        let options = options.bytes();
        assert!(!is_whole(&options[..options.len() - 4], 4));
    }
}
