//! Lists of pipes in the kernel tier: fused into the copy between a message and memory.
//!
//! A register of 64 bits is a vector of small lanes. One loop over chunks of 64
//! bytes, as bulk copies have it; each word of 8 bytes passes all pipes between its
//! load and its store. What has no form here, [`NoKernelForm`] names: pipes that are
//! not commutative, tables, comparisons, and ciphers.
//!
//! | register | holds |
//! | --- | --- |
//! | `r1`, `r2`, `r3` | next byte of memory and message, bytes left; values inside a chunk, if bodies need them |
//! | `r4`, `r5` | the chunk in memory and in the packet |
//! | `r6`, `r7`, `r8` | what the first three reductions have so far; values |
//! | `r9` | the context; frames of ours at [`CopyPlaces::scratch`] |
//!
//! Over a map's value ([`MemoryAt::Array`]) no pointer into the packet moves: what is
//! written goes to the message by a helper, a chunk at a time, and what is read has to
//! be in memory before ([`Transfer::InPlace`]).

mod copy;
mod lanes;
mod registers;
pub mod trial;

use super::ir::{Binary, Gauge, Op, Pipe, Reduce, Update};
use super::list::List;
use ashway_abi::context;
use ashway_check::bpf::{Assembler, Label};
use copy::{CHUNK, Copy, SLOTS};

/// Most persistent registers of a list.
const MAX_REGISTERS: usize = 64;

/// Bytes of the context that a copy uses at [`CopyPlaces::scratch`].
pub const SCRATCH_BYTES: usize = 8 * (SLOTS + MAX_REGISTERS) + CHUNK as usize;

/// A pipe that the kernel tier cannot run; the user tier can.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{pipe}` has no form in the kernel tier: {why}")]
pub struct NoKernelForm {
    /// The pipe's name in the list.
    pub pipe: String,
    /// What is missing.
    pub why: &'static str,
}

/// Where a copy finds what it works on.
#[derive(Clone, Copy, Debug)]
pub struct CopyPlaces {
    /// Address in memory of the list's registers, 8 bytes each.
    pub registers: u32,
    /// Offset in the context of [`SCRATCH_BYTES`] bytes.
    pub scratch: i16,
    /// Stack slot of the packet pointer to the message.
    pub payload: i16,
    /// Stack slot of the packet's end.
    pub end: i16,
    /// From where to where.
    pub way: Transfer,
    /// What memory is made of.
    pub memory: MemoryAt,
    /// Whether anything is written to memory but the registers. A list that modifies
    /// nothing may only read the message.
    pub writes: bool,
    /// Where a turn of the loop that has used its ticks up goes, and where that comes
    /// back to, with `r1` to `r3` and `r6` to `r8` as they were. Without, only the
    /// kernel's own bound ends the loop.
    pub tick: Option<(Label, Label)>,
}

/// How memory is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryAt {
    /// An arena: an address becomes a pointer by a cast.
    Arena,
    /// A map's value, in a program without `CAP_PERFMON`: the verifier sees each address
    /// compared.
    Array {
        /// Stack slot of the value's address.
        base: i16,
        /// Bytes that addresses can reach, not less than a chunk.
        bytes: u32,
        /// Stack slot of the `md` pointer.
        md: i16,
    },
}

/// From where to where data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// From the message to memory; an arena.
    Read,
    /// From memory to the message.
    Write,
    /// From memory to where it was.
    InPlace,
}

/// A list that has a form in the kernel tier.
#[derive(Clone, Debug)]
pub struct KernelList {
    list: List,
    /// Whether values need the registers of the loop.
    saves: bool,
}

impl KernelList {
    /// Looks whether every pipe has a form, by writing it. Linear in the list.
    ///
    /// # Errors
    ///
    /// [`NoKernelForm`] names the first pipe that has none.
    pub fn new(list: &List) -> Result<Self, NoKernelForm> {
        let refuse = |pipe: &str, why| NoKernelForm {
            pipe: pipe.to_owned(),
            why,
        };
        for placed in list.pipes() {
            missing(&placed.pipe).map_or(Ok(()), |why| Err(refuse(&placed.name, why)))?;
            if placed.first_register + placed.pipe.registers().len() > MAX_REGISTERS {
                let why = "the list has more than 64 registers";
                return Err(refuse(&placed.name, why));
            }
        }
        let places = CopyPlaces {
            registers: 0,
            scratch: context::FRAMES,
            payload: -8,
            end: -16,
            way: Transfer::Read,
            memory: MemoryAt::Arena,
            writes: true,
            tick: None,
        };
        let needs = |saves, tail| {
            let mut asm = Assembler::new();
            let trap = asm.label();
            let word = Copy::new(&mut asm, list, places, trap, saves).word(tail);
            word.err()
        };
        if let Some(at) = needs(true, false).or_else(|| needs(true, true)) {
            let why = "eBPF has too few registers for its body";
            return Err(refuse(&list.pipes()[at].name, why));
        }
        let this = Self {
            list: list.clone(),
            saves: needs(false, false).is_some(),
        };
        Ok(this)
    }

    /// What it was made of.
    #[must_use]
    pub const fn list(&self) -> &List {
        &self.list
    }

    /// Writes the copy of `r3` bytes between the message, at index `r2`, and memory, at
    /// address `r1`. Both ranges and the registers' place have been checked; `r9` is
    /// the context. Jumps to `trap` where the verifier wants to see that something
    /// cannot be. Clobbers `r0` to `r8`.
    ///
    /// # Panics
    ///
    /// Never: [`KernelList::new`] has written it before.
    pub fn emit(&self, asm: &mut Assembler, places: CopyPlaces, trap: Label) {
        let mut copy = Copy::new(asm, &self.list, places, trap, self.saves);
        copy.begin();
        copy.chunks();
        copy.partial();
        copy.finish();
    }
}

/// Why a pipe has no form at all.
fn missing(pipe: &Pipe) -> Option<&'static str> {
    if pipe.primitive().is_some() {
        return Some("it is a CRC, Adler-32 or a cipher");
    }
    if !pipe.commutative() {
        return Some("it is not commutative");
    }
    if pipe.width() != pipe.gauge() {
        return Some("it computes with more bits than its words have");
    }
    let wide = pipe.gauge() == Gauge::Bits64;
    let hard = pipe.ops().iter().any(|op| match op {
        Op::Binary(Binary::Mul, ..) => !wide,
        Op::Table(_)
        | Op::ShiftBy(..)
        | Op::Count(..)
        | Op::Select(..)
        | Op::Binary(Binary::Min | Binary::Max | Binary::Equal | Binary::Below, ..) => true,
        _ => false,
    });
    if hard {
        return Some(
            "it multiplies, compares, counts bits, shifts by a value or looks into a table",
        );
    }
    let least =
        |(_, update): &(_, Update)| matches!(update, Update::Reduce(Reduce::Min | Reduce::Max, _));
    let least = pipe.updates().iter().any(least);
    least.then_some("it keeps the least or the greatest word")
}
