//! A small, safe eBPF interpreter: the oracle that needs no root.
//!
//! It runs an [`Image`] as the kernel would run the loaded program, over
//! memory of its own, and is stricter than a CPU: every access is checked
//! against the region it falls into, reading a register that was never written
//! is a fault, helpers get the arguments they must get. A program that the
//! verifier accepts never faults here; one that faults here is wrong.
//!
//! Not modelled: several CPUs at once, multi-buffer frames under XDP, and the arena's
//! pages that nobody touched (all of them exist).
//!
//! Source: RFC 9669; Linux 6.12 for helpers, `may_goto` and the arena cast.

mod alu;
mod helpers;
mod space;
mod step;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};

use super::{Hook, Image};
use ashway_abi::count::{KERNEL_BYTES, KERNEL_WORDS};
use ashway_abi::{Count, Hop, Leaf, context, hop};
use space::{HEADROOM, STACK_BYTES, Space};
use step::End;

/// Why the interpreter stopped a program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// No such instruction, or one that we never emit.
    #[error("no such instruction: {0:#018x}")]
    NoSuchInsn(u64),
    /// A register was read before it was written, or after a call clobbered it.
    #[error("r{0} is read but was never written")]
    NeverWritten(u8),
    /// A write to the frame pointer.
    #[error("r{0} cannot be written")]
    ReadOnly(u8),
    /// An access that is not wholly inside a region.
    #[error("{len} bytes at {address:#x} are in no region")]
    Outside {
        /// Where.
        address: u64,
        /// How many bytes.
        len: usize,
    },
    /// A stack or atomic access that is not aligned to its size.
    #[error("{len} bytes at {address:#x} are not aligned")]
    Misaligned {
        /// Where.
        address: u64,
        /// How many bytes.
        len: usize,
    },
    /// A helper that is not modelled.
    #[error("no helper {0}")]
    NoSuchHelper(i32),
    /// A helper got the wrong map or context.
    #[error("helper {helper} cannot take what is in r{register}")]
    Argument {
        /// The helper.
        helper: i32,
        /// The argument's register.
        register: u8,
    },
    /// A direct value address of a map that has none, or beyond its end.
    #[error("the map has no such direct value address")]
    NoValue,
    /// An arena cast while the memory is an array map.
    #[error("arena cast, but the memory is an array map")]
    NoArena,
    /// Execution left the program.
    #[error("ran off the program's end")]
    OffTheEnd,
    /// More instructions than [`Machine::insn_limit`].
    #[error("more than {0} instructions")]
    TooLong(u64),
}

/// A stopped program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("instruction {insn}{}: {reason}", self.slot.map(|slot| format!(" of slot {slot}")).unwrap_or_default())]
pub struct Fault {
    /// Index of the instruction.
    pub insn: usize,
    /// The program's slot; `None` for the one given to [`Machine::run`].
    pub slot: Option<u32>,
    /// What was wrong.
    pub reason: Reason,
}

/// A demux shape's hash: keys to the numbers of leaves.
#[derive(Clone, Debug, Default)]
struct Shape {
    key_bytes: usize,
    entries: HashMap<Vec<u8>, usize>,
}

/// A node's worth of kernel: maps, clock, one interface, one CPU.
///
/// Maps keep their contents from run to run, as they do in the kernel.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The program array.
    pub slots: Vec<Option<Image>>,
    /// Whether the memory is an array map (direct value address or lookup)
    /// instead of an arena (cast).
    pub array_mode: bool,
    /// `ingress_ifindex`.
    pub ifindex: u32,
    /// `rx_queue_index`.
    pub rx_queue: u32,
    /// The CPU that runs the programs. Each has a context of its own; all other maps are one for
    /// all.
    cpu: usize,
    /// Bytes of room behind a frame.
    pub tail_room: usize,
    /// The interface's MTU.
    pub mtu: i64,
    /// Bytes of a frame that lie in one piece, or in its first buffer.
    pub linear: usize,
    /// The frame's first tag, if that lies beside it, under TCX: its type and what it says.
    pub tag: Option<[u16; 2]>,
    /// `gso_size`: how long each of the frame's segments is, or 0, under TCX.
    pub gso_size: u32,
    /// `gso_segs`: how many segments there are.
    pub gso_segs: u32,
    /// What `bpf_ktime_get_ns` says next.
    pub clock_ns: u64,
    /// By how much each call moves the clock.
    pub clock_step_ns: u64,
    /// The same of the next calls, before that.
    pub clock_steps_ns: VecDeque<u64>,
    /// What other CPUs write into the trusted words: when by this clock, where and what. It is
    /// seen when the program has looked at the clock.
    pub written_ns: VecDeque<(u64, usize, u32)>,
    /// What XDP has left before the next frame, at TCX; 4 bytes at a time.
    pub marked: Vec<u8>,
    /// How long an instruction takes on that clock.
    pub insn_ns: u64,
    /// How often `may_goto` falls through in one program.
    pub may_goto_limit: u64,
    /// How many instructions one run may take, tail calls included.
    pub insn_limit: u64,
    /// Instructions the last run took.
    pub executed: u64,
    /// Tail calls the last run made.
    pub tail_calls: u32,
    /// How often the wake ring was rung, over all runs.
    pub wakes: u32,
    /// What was said into the ring of notes.
    pub notes: Vec<Vec<u8>>,
    /// How many it has room for.
    pub notes_limit: usize,
    /// Calls of `bpf_redirect` over all runs: interface and flags.
    pub redirects: Vec<(u32, u64)>,
    /// Where the program runs that is running.
    hook: Hook,
    shapes: HashMap<u32, Shape>,
    space: Space,
    /// Which slots are filled, while a run holds [`Machine::slots`].
    filled: Vec<bool>,
}

impl Machine {
    /// A machine with zeroed maps: `rows` of counters, `trusted_bytes` of trusted words and
    /// the pool, and an arena of `memory_bytes`.
    #[must_use]
    pub fn new(rows: usize, trusted_bytes: usize, memory_bytes: usize) -> Self {
        Self {
            slots: Vec::new(),
            array_mode: false,
            ifindex: 1,
            rx_queue: 0,
            cpu: 0,
            tail_room: 0,
            mtu: 1500,
            linear: usize::MAX,
            tag: None,
            gso_size: 0,
            gso_segs: 0,
            marked: Vec::new(),
            hook: Hook::Xdp,
            clock_ns: 1_000_000_000,
            clock_step_ns: 1_000,
            clock_steps_ns: VecDeque::new(),
            written_ns: VecDeque::new(),
            insn_ns: 0,
            // `BPF_MAX_LOOPS`.
            may_goto_limit: 8 << 20,
            insn_limit: 100_000_000,
            executed: 0,
            tail_calls: 0,
            wakes: 0,
            notes: Vec::new(),
            notes_limit: usize::MAX,
            redirects: Vec::new(),
            space: Space {
                packet: vec![0; HEADROOM],
                start: HEADROOM,
                meta: HEADROOM,
                linear: HEADROOM,
                tail: HEADROOM,
                stack: [0; STACK_BYTES],
                context: vec![0; context::BYTES],
                counters: vec![0; rows * KERNEL_BYTES],
                trusted: vec![0; trusted_bytes],
                memory: vec![0; memory_bytes],
                hits: Vec::new(),
                leaves: Vec::new(),
                hops: Vec::new(),
            },
            shapes: HashMap::new(),
            filled: Vec::new(),
        }
    }

    /// Runs `image` on a frame and returns `r0` of the program that exits.
    ///
    /// Bounded by [`Machine::insn_limit`].
    ///
    /// # Errors
    ///
    /// [`Fault`] if the program does what the kernel would not let it do. The
    /// maps keep what was written until then.
    pub fn run(&mut self, image: &Image, packet: &[u8]) -> Result<u32, Fault> {
        self.space.packet.truncate(HEADROOM);
        self.space.packet.extend_from_slice(packet);
        self.space.start = HEADROOM;
        self.space.meta = HEADROOM - self.marked.len();
        self.space.packet[self.space.meta..HEADROOM].copy_from_slice(&self.marked);
        self.space.tail = self.space.packet.len() + self.tail_room;
        self.space.linear = HEADROOM + packet.len().min(self.linear);
        self.executed = 0;
        self.tail_calls = 0;
        let slots = std::mem::take(&mut self.slots);
        self.filled = slots.iter().map(Option::is_some).collect();
        let result = self.programs(image, &slots);
        self.slots = slots;
        result
    }

    fn programs(&mut self, image: &Image, slots: &[Option<Image>]) -> Result<u32, Fault> {
        let mut image = image;
        let mut slot = None;
        loop {
            match self.program(image) {
                Ok(End::Exit(value)) => return Ok(value),
                Ok(End::TailCall(index)) => {
                    image = slots[index as usize]
                        .as_ref()
                        .expect("only filled slots are called");
                    slot = Some(index);
                }
                Err((insn, reason)) => return Err(Fault { insn, slot, reason }),
            }
        }
    }

    /// The frame, as the last run left it.
    #[must_use]
    pub fn packet(&self) -> &[u8] {
        self.space.frame()
    }

    /// The metadata before the frame, as the last run left it.
    #[must_use]
    pub fn metadata(&self) -> &[u8] {
        &self.space.packet[self.space.meta..self.space.start]
    }

    /// Has this CPU run what follows.
    pub fn set_cpu(&mut self, cpu: usize) {
        let contexts = self.space.context.len().max((cpu + 1) * context::BYTES);
        self.space.context.resize(contexts, 0);
        self.cpu = cpu;
    }

    /// The context of the CPU that runs.
    #[must_use]
    pub fn context(&self) -> &[u8] {
        &self.space.context[self.cpu * context::BYTES..][..context::BYTES]
    }

    /// The same, to prepare a run.
    pub fn context_mut(&mut self) -> &mut [u8] {
        &mut self.space.context[self.cpu * context::BYTES..][..context::BYTES]
    }

    /// The `u32` at `field` of the context ([`ashway_abi::context`]).
    ///
    /// # Panics
    ///
    /// If there is no such field.
    #[must_use]
    pub fn context_u32(&self, field: i16) -> u32 {
        word(self.context(), field as usize)
    }

    /// A counter.
    ///
    /// # Panics
    ///
    /// If there is no such row.
    #[must_use]
    pub fn count(&self, row: usize, count: Count) -> u64 {
        self.row_word(row, count as usize)
    }

    /// A word of a row of counters, whether it is a counter or not.
    ///
    /// # Panics
    ///
    /// If there is no such row or word.
    #[must_use]
    pub fn row_word(&self, row: usize, word: usize) -> u64 {
        let at = (row * KERNEL_WORDS + word) * 8;
        let word = self.space.counters[at..at + 8].try_into();
        u64::from_le_bytes(word.expect("eight bytes"))
    }

    /// The `u32` at `offset` of the trusted words ([`ashway_abi::trusted`]).
    ///
    /// # Panics
    ///
    /// If there is no such word.
    #[must_use]
    pub fn trusted_u32(&self, offset: usize) -> u32 {
        word(&self.space.trusted, offset)
    }

    /// The trusted words' bytes.
    #[must_use]
    pub fn trusted(&self) -> &[u8] {
        &self.space.trusted
    }

    /// The trusted words' bytes, to play the daemon's part.
    pub fn trusted_mut(&mut self) -> &mut [u8] {
        &mut self.space.trusted
    }

    /// Adds a demux shape's hash, for keys of this length.
    pub fn add_shape(&mut self, number: u32, key_bytes: usize) {
        let entries = HashMap::new();
        self.shapes.insert(number, Shape { key_bytes, entries });
    }

    /// Gives a demux shape an entry.
    ///
    /// # Panics
    ///
    /// If there is no such shape, or its keys have another length.
    pub fn insert(&mut self, shape: u32, key: &[u8], leaf: Leaf) {
        let shape = self.shapes.get_mut(&shape).expect("an added shape");
        assert_eq!(key.len(), shape.key_bytes, "the key's length");
        shape.entries.insert(key.to_vec(), self.space.leaves.len());
        self.space.leaves.push(leaf.to_bytes());
    }

    /// Makes room for so many bytes of the map of hits, all zero.
    pub fn set_hits(&mut self, bytes: usize) {
        self.space.hits = vec![0; bytes];
    }

    /// The double word of the map of hits at this offset.
    ///
    /// # Panics
    ///
    /// If there is none.
    #[must_use]
    pub fn hits_at(&self, offset: usize) -> u64 {
        let word = self.space.hits[offset..][..8].try_into();
        u64::from_le_bytes(word.expect("eight bytes"))
    }

    /// Sets it.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn set_hits_at(&mut self, offset: usize, word: u64) {
        self.space.hits[offset..][..8].copy_from_slice(&word.to_le_bytes());
    }

    /// Hits of a demux entry of a hash, if it is there.
    #[must_use]
    pub fn shape_hits(&self, shape: u32, key: &[u8]) -> Option<u64> {
        let leaf = *self.shapes.get(&shape)?.entries.get(key)?;
        Some(Leaf::from_bytes(&self.space.leaves[leaf]).1)
    }

    /// Writes an entry of the array of hops, which is as long as it has to be.
    pub fn set_hop(&mut self, number: usize, hop: Hop) {
        self.set_hop_bytes(number, &hop.to_bytes());
    }

    /// The same, by the entry's bytes.
    pub fn set_hop_bytes(&mut self, number: usize, hop: &[u8; hop::BYTES]) {
        let at = number * hop::BYTES;
        let len = self.space.hops.len().max(at + hop::BYTES);
        self.space.hops.resize(len, 0);
        self.space.hops[at..at + hop::BYTES].copy_from_slice(hop);
    }

    /// The instance's memory.
    #[must_use]
    pub fn memory(&self) -> &[u8] {
        &self.space.memory
    }

    /// The instance's memory, to play the daemon's or the application's part.
    pub fn memory_mut(&mut self) -> &mut [u8] {
        &mut self.space.memory
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}
