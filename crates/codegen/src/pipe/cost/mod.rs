//! What loops cost, and into how many a list is best cut.
//!
//! Fusing spares a load and a store of every chunk, and a call. It does not pay where
//! accumulators lose their registers, and where a cipher, which takes a KiB at a time,
//! makes pipes with much to do around a loop do it for every KiB. The costs are
//! measured: `ashway pipe calibrate` prints `table.rs`.
//!
//! The model adds up. It does not know that operators of different pipes overlap, so
//! it flatters separate loops, if anything.

mod table;

use std::ops::Range;

use super::cipher::Cipher;
use super::ir::{Op, Pipe, Update};
use super::list::List;
use super::primitive::Primitive;
use super::x86::{
    CHUNK_BYTES, Cpu, Isa, MAX_PIECE_BYTES, STREAM_BYTES, Strategy, spare_registers, strategy,
};
use crate::bug::{self, Bug};

/// ns of a call, and of each chunk.
pub type Line = [f64; 2];

/// What loops cost on one width of vectors, in ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// A call that copies nothing.
    pub call: f64,
    /// Loading and storing a chunk: in the first cache, in the second, in memory.
    pub moves: [f64; 3],
    /// An operator on lanes, for a chunk.
    pub operator: f64,
    /// A reduction of lanes.
    pub reduction: Line,
    /// A vector that lasts and has no register, for a chunk.
    pub spill: f64,
    /// A CRC.
    pub crc: Line,
    /// Adler-32.
    pub adler: Line,
    /// `ChaCha20`.
    pub chacha20: Line,
    /// AES, ten rounds.
    pub aes: Line,
    /// An operator word by word, for a word.
    pub in_order: f64,
    /// Bytes from which a copy is faster with stores past the caches.
    pub streaming_bytes: usize,
}

/// Bytes of a call from which stores had better go past the caches: what it writes
/// would not stay there, and whole lines need not be read first.
#[must_use]
pub const fn streaming_bytes(isa: Isa) -> usize {
    Costs::of(isa).streaming_bytes
}

/// Bytes of source and destination that the first cache has, and the second.
const CACHES: [usize; 2] = [32 << 10, 1 << 20];

impl Costs {
    /// Those measured for this width.
    #[must_use]
    pub const fn of(isa: Isa) -> Self {
        match isa {
            Isa::Avx2 => table::AVX2,
            Isa::Avx512 => table::AVX512,
        }
    }

    /// What a pipe adds to a loop, and how many vectors it keeps.
    fn pipe(&self, pipe: &Pipe, cpu: Cpu) -> (Line, usize) {
        let operators = || {
            let free = |op: &&Op| matches!(op, Op::Input | Op::Const(_) | Op::Register(_));
            pipe.ops().iter().filter(|op| !free(op)).count() as f64
        };
        let words = (CHUNK_BYTES / pipe.gauge().bytes().min(CHUNK_BYTES)) as f64;
        match (strategy(pipe, cpu).0, pipe.primitive()) {
            (Strategy::Nothing, _) => ([0.0; 2], 0),
            (Strategy::Folded, Some(Primitive::Crc(_))) => (self.crc, 4),
            (Strategy::Folded, _) => (self.adler, 3),
            (Strategy::Keystream, Some(Primitive::Cipher(Cipher::AesCtr { round_keys, .. }))) => {
                let rounds = (round_keys.len().max(1) - 1) as f64 / 10.0;
                (self.aes.map(|ns| ns * rounds), 0)
            }
            (Strategy::Keystream, _) => (self.chacha20, 0),
            (Strategy::Lanes, _) => {
                let reduced = |(_, update): &&(_, Update)| matches!(update, Update::Reduce(..));
                let reductions = pipe.updates().iter().filter(reduced).count() as f64;
                let [call, chunk] = self.reduction.map(|ns| ns * reductions);
                let chunk = chunk + operators() * self.operator;
                ([call, chunk], pipe.registers().len())
            }
            (Strategy::InOrder, _) => {
                let updates = pipe.updates().len() as f64;
                ([0.0, (operators() + updates) * words * self.in_order], 0)
            }
        }
    }

    /// A loop of these pipes over so many bytes.
    fn group(&self, pipes: &[(Line, usize, bool)], cpu: Cpu, bytes: usize) -> f64 {
        let piece = if pipes.iter().any(|(_, _, cipher)| *cipher) {
            STREAM_BYTES
        } else {
            MAX_PIECE_BYTES
        };
        let calls = bytes.div_ceil(piece).max(1) as f64;
        let chunks = bytes.div_ceil(CHUNK_BYTES) as f64;
        let level = CACHES.iter().filter(|cache| 2 * bytes > **cache).count();
        let kept: usize = pipes.iter().map(|(_, kept, _)| kept).sum();
        let spilled = kept.saturating_sub(spare_registers(cpu.isa)) as f64;
        let sum = |at: usize| pipes.iter().map(|(line, ..)| line[at]).sum::<f64>();
        calls * (self.call + sum(0)) + chunks * (self.moves[level] + sum(1) + spilled * self.spill)
    }
}

/// How a list is best run over data of some size.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The pipes of each loop, in order.
    pub loops: Vec<Range<usize>>,
    /// What they are expected to take, ns.
    pub planned_ns: f64,
    /// All pipes in one loop.
    pub fused_ns: f64,
    /// Each pipe in a loop of its own.
    pub separate_ns: f64,
}

/// Cuts a list into the loops that are expected to be fastest over `bytes` bytes, in
/// the caches if they fit. Quadratic in the list.
#[must_use]
pub fn plan(list: &List, cpu: Cpu, bytes: usize) -> Plan {
    let costs = Costs::of(cpu.isa);
    let pipes: Vec<(Line, usize, bool)> = list
        .pipes()
        .iter()
        .map(|placed| {
            let (line, kept) = costs.pipe(&placed.pipe, cpu);
            let cipher = matches!(placed.pipe.primitive(), Some(Primitive::Cipher(_)));
            (line, kept, cipher)
        })
        .collect();
    // The best for the first `end` pipes, and where its last loop begins.
    let mut best = vec![(0.0, 0)];
    for end in 1..=pipes.len() {
        let from = |begin: usize| {
            let (before, _): (f64, usize) = best[begin];
            (before + costs.group(&pipes[begin..end], cpu, bytes), begin)
        };
        let all = (0..end).map(from);
        best.extend(all.min_by(|one, other| one.0.total_cmp(&other.0)));
    }
    let mut loops = Vec::new();
    let mut end = pipes.len();
    while end > 0 {
        let begin = best[end].1;
        loops.push(begin..end);
        end = begin;
    }
    loops.reverse();
    if loops.is_empty() {
        loops.push(0..0);
    }
    if bug::is(Bug::PipePlanDropsLast) && loops.len() > 1 {
        loops.pop();
    }
    let fused_ns = costs.group(&pipes, cpu, bytes);
    Plan {
        loops,
        planned_ns: if pipes.is_empty() {
            fused_ns
        } else {
            best[pipes.len()].0
        },
        fused_ns,
        separate_ns: (0..pipes.len())
            .map(|at| costs.group(&pipes[at..=at], cpu, bytes))
            .sum(),
    }
}
