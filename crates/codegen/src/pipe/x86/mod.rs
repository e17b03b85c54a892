//! Lists of pipes to x86-64 code.
//!
//! One loop over chunks of 64 bytes, unrolled; the data stays in a register from
//! its load to its store. What is left behind the last chunk, at most 63 bytes,
//! passes the same pipes once more with what lies behind the end masked off.
//!
//! The code is a function of the System V calling convention,
//!
//! ```text
//! fn(registers: *mut u64, source: *const u8, destination: *mut u8, len: u64, streaming: u64)
//! ```
//!
//! that reads `len` bytes of data at `source`, writes as many at `destination`
//! (the same, or apart from it) and `registers`, and touches nothing else but its
//! stack and its own constants. It is position-independent.
//!
//! | register | holds |
//! | --- | --- |
//! | `rdi` | persistent registers |
//! | `rsi`, `rdx` | next chunk of source and destination |
//! | `rcx`, `r10`, `r11` | length, chunks left, bytes behind the chunks |
//! | `r9` | constants |
//! | `rax`, `r8`, `rbx`, `r12` | scratch |
//! | `k1`, `k2` | scratch, bytes before the end (512 bits) |

mod adler;
mod asm;
mod cipher;
mod crc;
mod emit;
mod lanes;
mod order;
mod table;
mod walk;

use super::cipher::Cipher;
use super::ir::Pipe;
use super::list::List;
use super::primitive::Primitive;
pub(super) use cipher::STREAM_BYTES;
use emit::Emit;
pub(super) use emit::spare_registers;

/// Bytes that a turn of the loop takes: a multiple of every gauge.
pub const CHUNK_BYTES: usize = 64;

/// Most bytes of one call without a cipher: lanes of 32 bits that sum words of 16 cannot overflow.
pub(super) const MAX_PIECE_BYTES: usize = 1 << 20;

/// Width of the vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isa {
    /// 256 bits.
    Avx2,
    /// 512 bits, with the instructions of AVX-512 F, BW, DQ and VL.
    Avx512,
}

/// What the CPU can do; CPUID says it (`handler::native` asks).
#[expect(
    clippy::struct_excessive_bools,
    reason = "CPUID has a bit for each of them"
)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// Width of the vectors.
    pub isa: Isa,
    /// PCLMULQDQ: carry-less products of 128 bits.
    pub carryless: bool,
    /// VPCLMULQDQ: the same on wider vectors.
    pub carryless_wide: bool,
    /// AVX-512 VBMI: look-ups of bytes in 128.
    pub permute_bytes: bool,
    /// AES-NI: rounds of AES on 128 bits.
    pub aes: bool,
    /// VAES: the same on wider vectors.
    pub aes_wide: bool,
}

impl Cpu {
    /// Whether everything that `other` needs is here, too.
    #[must_use]
    pub const fn covers(self, other: Self) -> bool {
        (matches!(self.isa, Isa::Avx512) || matches!(other.isa, Isa::Avx2))
            && (self.carryless || !other.carryless)
            && (self.carryless_wide || !other.carryless_wide)
            && (self.permute_bytes || !other.permute_bytes)
            && (self.aes || !other.aes)
            && (self.aes_wide || !other.aes_wide)
    }
}

/// Which side of a copy is the interface's (ASH §III.C, `PIPE_READ` and
/// `PIPE_WRITE`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// From the interface's buffer.
    #[default]
    Read,
    /// Into the interface's buffer.
    Write,
}

/// How data lies in the interface's buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// One byte behind the other.
    #[default]
    Contiguous,
    /// 16 bytes of data, 16 bytes of gap, as the Ethernet of ASH §III.C has it.
    /// The gap is neither read nor written; the last stripe may be short.
    Striped,
}

impl Layout {
    /// Where the byte behind `len` bytes of data is; `len` is a multiple of 16.
    #[must_use]
    pub const fn offset(self, len: usize) -> usize {
        match self {
            Self::Contiguous => len,
            Self::Striped => len * 2,
        }
    }

    /// Bytes of memory that `len` bytes of data reach over.
    #[must_use]
    pub const fn footprint(self, len: usize) -> usize {
        match self {
            Self::Contiguous => len,
            Self::Striped if len == 0 => 0,
            // Without the gap behind the last stripe.
            Self::Striped => len + (len - 1) / 16 * 16,
        }
    }
}

/// What code is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Which side is the interface's.
    pub direction: Direction,
    /// How that side lies in memory. The other is contiguous.
    pub layout: Layout,
    /// Source and destination are the same, and contiguous: the layout is not
    /// looked at. A list that modifies nothing then writes nothing.
    pub in_place: bool,
}

/// How a pipe was made into code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// Nothing to do.
    Nothing,
    /// A vector of words at once.
    Lanes,
    /// Its primitive: 64 bytes at once.
    Folded,
    /// Xor with a keystream that is made before.
    Keystream,
    /// Word by word.
    InOrder,
}

/// A pipe's strategy and the reason for it, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Its name in the list.
    pub pipe: String,
    /// How.
    pub strategy: Strategy,
    /// Why so.
    pub why: &'static str,
}

/// A compiled list. Only [`compile`] makes one, so whoever maps its code knows
/// where the code is from.
#[derive(Clone, Debug)]
pub struct Native {
    list: List,
    code: Vec<u8>,
    instruction_bytes: usize,
    cpu: Cpu,
    options: Options,
    steps: Vec<Step>,
    unrolled: usize,
    writes: bool,
}

impl Native {
    /// Code, then constants; position-independent. The function begins at 0.
    #[must_use]
    pub fn code(&self) -> &[u8] {
        &self.code
    }

    /// How many of the code's bytes are instructions; constants lie behind.
    #[must_use]
    pub const fn instruction_bytes(&self) -> usize {
        self.instruction_bytes
    }

    /// What it was made of.
    #[must_use]
    pub const fn list(&self) -> &List {
        &self.list
    }

    /// What the CPU must be able to do.
    #[must_use]
    pub const fn cpu(&self) -> Cpu {
        self.cpu
    }

    /// What it was made with.
    #[must_use]
    pub const fn options(&self) -> Options {
        self.options
    }

    /// The pipes' strategies, in order.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Chunks in one turn of the loop.
    #[must_use]
    pub const fn unrolled(&self) -> usize {
        self.unrolled
    }

    /// Whether it writes to the destination.
    #[must_use]
    pub const fn writes(&self) -> bool {
        self.writes
    }

    /// Most bytes of data of one call; a multiple of [`CHUNK_BYTES`].
    #[must_use]
    pub fn piece_bytes(&self) -> usize {
        if self
            .steps
            .iter()
            .any(|step| step.strategy == Strategy::Keystream)
        {
            STREAM_BYTES
        } else {
            MAX_PIECE_BYTES
        }
    }

    /// How the source lies in memory.
    #[must_use]
    pub const fn source(&self) -> Layout {
        match self.options.direction {
            Direction::Read => self.options.layout,
            Direction::Write => Layout::Contiguous,
        }
    }

    /// How the destination lies in memory.
    #[must_use]
    pub const fn destination(&self) -> Layout {
        match self.options.direction {
            Direction::Read => Layout::Contiguous,
            Direction::Write => self.options.layout,
        }
    }
}

/// A pipe that has no form on this CPU; [`Portable`](super::Portable) runs it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{pipe}` has no native form on this CPU: {why}")]
pub struct Unsupported {
    /// The pipe's name in the list.
    pub pipe: String,
    /// What is missing.
    pub why: &'static str,
}

/// Makes code for a list. Linear in it; some ten microseconds for each pipe.
///
/// # Errors
///
/// [`Unsupported`]: AES without AES-NI.
pub fn compile(list: &List, cpu: Cpu, options: Options) -> Result<Native, Unsupported> {
    for placed in list.pipes() {
        let aes = matches!(
            placed.pipe.primitive(),
            Some(Primitive::Cipher(Cipher::AesCtr { .. }))
        );
        if aes && !cpu.aes && !cpu.aes_wide {
            return Err(Unsupported {
                pipe: placed.name.clone(),
                why: "it has no AES-NI",
            });
        }
    }
    let mut options = options;
    if options.in_place {
        options.layout = Layout::Contiguous;
    }
    let steps: Vec<Step> = list
        .pipes()
        .iter()
        .map(|placed| {
            let (strategy, why) = strategy(&placed.pipe, cpu);
            Step {
                pipe: placed.name.clone(),
                strategy,
                why,
            }
        })
        .collect();
    let writes = !(options.in_place && list.no_mod());
    let emit = Emit::new(list, &steps, cpu, options, writes);
    let (code, instruction_bytes, unrolled) = walk::function(emit);
    Ok(Native {
        list: list.clone(),
        code,
        instruction_bytes,
        cpu,
        options,
        steps,
        unrolled,
        writes,
    })
}

/// How a pipe is made into code on `cpu`.
pub(super) fn strategy(pipe: &Pipe, cpu: Cpu) -> (Strategy, &'static str) {
    match pipe.primitive() {
        Some(Primitive::Crc(_)) if cpu.carryless || cpu.carryless_wide => {
            return (
                Strategy::Folded,
                "a CRC: carry-less products move 64 bytes on",
            );
        }
        Some(Primitive::Crc(_)) => {
            return (
                Strategy::InOrder,
                "a CRC, and the CPU has no carry-less product",
            );
        }
        Some(Primitive::Cipher(_)) => {
            return (
                Strategy::Keystream,
                "a cipher: its keystream is made before the data",
            );
        }
        Some(Primitive::Adler) => return (Strategy::Folded, "Adler-32: 64 bytes weighed at once"),
        None => {}
    }
    let idle = pipe.updates().is_empty();
    if pipe.no_mod() && idle {
        (Strategy::Nothing, "gives what it takes")
    } else if !pipe.commutative() {
        (Strategy::InOrder, "not commutative: words keep their order")
    } else if pipe.width() != pipe.gauge() {
        (
            Strategy::InOrder,
            "computes with more bits than its words have",
        )
    } else if lanes::possible(pipe, cpu) {
        (Strategy::Lanes, "commutative: a vector of words at once")
    } else {
        (
            Strategy::InOrder,
            "the vector unit lacks an operator or registers for it",
        )
    }
}
