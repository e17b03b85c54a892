//! Maps code of compiled pipes and calls it: never writable and executable at
//! once.
//!
//! What is called comes from [`ashway_codegen::pipe::compile`] and from nowhere
//! else: [`Native`] cannot be made otherwise. It reads the source, writes the
//! destination and the registers, and touches nothing else; the property tests
//! of `codegen` see to that with guard pages.

use std::ffi::c_void;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;

use ashway_codegen::pipe::{
    CHUNK_BYTES, Cpu, Isa, Layout, List, Native, Options, Plan, Unsupported, compile,
    streaming_bytes,
};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

/// The compiled function. Its parameters: see `ashway_codegen::pipe::compile`.
type Function = unsafe extern "sysv64" fn(*mut u64, *const u8, *mut u8, usize, u64);

/// Why compiled pipes cannot run here.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MapError {
    /// Compiled for another CPU.
    #[error("the pipes are compiled for {wanted:?}, which this CPU is not")]
    Cpu {
        /// What they need.
        wanted: Cpu,
    },
    /// The kernel refused the memory.
    #[error("cannot map {bytes} bytes of code")]
    Memory {
        /// How many.
        bytes: usize,
        /// Its reason.
        #[source]
        why: io::Error,
    },
}

/// What this CPU can do; `None` if it lacks AVX2, BMI or the instructions that count
/// bits, which came with them, and the portable form has to do.
#[must_use]
#[cfg(target_arch = "x86_64")]
pub fn cpu() -> Option<Cpu> {
    use std::arch::is_x86_feature_detected as has;
    let counts = has!("popcnt") && has!("lzcnt") && has!("bmi1");
    let narrow = has!("avx2") && has!("bmi2") && counts;
    let wide = has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl");
    narrow.then(|| Cpu {
        isa: if wide { Isa::Avx512 } else { Isa::Avx2 },
        carryless: has!("pclmulqdq"),
        carryless_wide: has!("vpclmulqdq"),
        permute_bytes: wide && has!("avx512vbmi"),
        aes: has!("aes"),
        aes_wide: has!("vaes"),
    })
}

/// What this CPU can do: nothing that the native form needs.
#[must_use]
#[cfg(not(target_arch = "x86_64"))]
pub fn cpu() -> Option<Cpu> {
    None
}

/// Compiled pipes, ready to be called.
#[derive(Debug)]
pub struct Pipes {
    native: Native,
    base: NonNull<c_void>,
    bytes: usize,
    /// From how many bytes on stores go past the caches.
    streaming: usize,
}

// SAFETY: the mapping is only read and executed, and belongs to this value.
unsafe impl Send for Pipes {}
// SAFETY: as above; a call's only effects are on what it is given.
unsafe impl Sync for Pipes {}

impl Pipes {
    /// Maps the code. Two system calls and a copy.
    ///
    /// # Errors
    ///
    /// [`MapError`]: this CPU cannot run it, or there is no memory.
    pub fn map(native: Native) -> Result<Self, MapError> {
        if !cpu().is_some_and(|here| here.covers(native.cpu())) {
            return Err(MapError::Cpu {
                wanted: native.cpu(),
            });
        }
        let code = native.code();
        let bytes = code.len();
        let refused = |errno: rustix::io::Errno| MapError::Memory {
            bytes,
            why: errno.into(),
        };
        let writable = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base =
            unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, writable, MapFlags::PRIVATE) }
                .map_err(refused)?;
        let pipes = Self {
            base: NonNull::new(base).ok_or_else(|| refused(rustix::io::Errno::NOMEM))?,
            bytes,
            streaming: streaming_bytes(native.cpu().isa),
            native,
        };
        // SAFETY: `bytes` bytes are mapped there, writable, and nobody else's.
        unsafe {
            std::ptr::copy_nonoverlapping(pipes.native.code().as_ptr(), base.cast(), bytes);
        }
        // SAFETY: our own mapping; nothing refers into it.
        unsafe { mprotect(base, bytes, MprotectFlags::READ | MprotectFlags::EXEC) }
            .map_err(refused)?;
        Ok(pipes)
    }

    /// Stores past the caches from so many bytes on, instead of from where that was
    /// measured to be faster: for measuring it. Only whole lines can be stored so: the
    /// destination begins at a multiple of 64.
    #[must_use]
    pub const fn stream_from(mut self, bytes: usize) -> Self {
        self.streaming = bytes;
        self
    }

    /// What was compiled.
    #[must_use]
    pub const fn native(&self) -> &Native {
        &self.native
    }

    /// Runs `len` bytes of data from `source` to `destination`.
    ///
    /// Bounded by `len`; allocates nothing. A list that was compiled `in_place`
    /// and modifies runs from source to destination as well.
    ///
    /// # Panics
    ///
    /// If `registers` are not as many as the list has, or a side is shorter than
    /// its layout needs for `len`.
    pub fn run(&self, registers: &mut [u64], source: &[u8], destination: &mut [u8], len: usize) {
        assert!(
            source.len() >= self.native.source().footprint(len),
            "the source holds the data"
        );
        if self.native.writes() {
            assert!(
                destination.len() >= self.native.destination().footprint(len),
                "the destination has room for the data"
            );
        }
        self.begin(registers);
        // SAFETY: both sides reach as far as was just checked, and a reference to
        // one excludes others.
        unsafe { self.pieces(registers, source.as_ptr(), destination.as_mut_ptr(), len) };
        self.native.list().finish(registers, len);
    }

    /// Runs `data` in place.
    ///
    /// # Panics
    ///
    /// If `registers` are not as many as the list has, or a side is striped.
    pub fn run_in_place(&self, registers: &mut [u64], data: &mut [u8]) {
        assert_eq!(
            self.native.options().layout,
            Layout::Contiguous,
            "stripes cannot be worked on in place"
        );
        self.begin(registers);
        let at = data.as_mut_ptr();
        // SAFETY: the same memory twice, ours alone; each chunk is read before it
        // is written.
        unsafe { self.pieces(registers, at, at, data.len()) };
        self.native.list().finish(registers, data.len());
    }

    /// Runs data that lies in several buffers, as if they were one, to
    /// `destination`. Bytes that do not fill a chunk are copied once more.
    ///
    /// # Panics
    ///
    /// If `registers` are not as many as the list has, a side is striped, or the
    /// destination is shorter than the buffers together.
    pub fn run_parts(&self, registers: &mut [u64], parts: &[&[u8]], destination: &mut [u8]) {
        assert_eq!(
            self.native.options().layout,
            Layout::Contiguous,
            "buffers are parts of contiguous data"
        );
        self.begin(registers);
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let writes = self.native.writes();
        assert!(
            !writes || destination.len() >= len,
            "the destination has room for the data"
        );
        let mut done = 0;
        let mut step = |source: &[u8]| {
            let room = if writes { source.len() } else { 0 };
            let (from, to) = (source.as_ptr(), destination[done..done + room].as_mut_ptr());
            // SAFETY: both are as long as `source`, or the destination is not
            // written.
            unsafe { self.pieces(registers, from, to, source.len()) };
            done += room;
        };
        // What does not fill a chunk yet.
        let mut carry = [0; CHUNK_BYTES];
        let mut carried = 0;
        for part in parts {
            let mut part = *part;
            if carried > 0 {
                let taken = part.len().min(CHUNK_BYTES - carried);
                carry[carried..carried + taken].copy_from_slice(&part[..taken]);
                carried += taken;
                part = &part[taken..];
                if carried < CHUNK_BYTES {
                    continue;
                }
                step(&carry);
            }
            let whole = part.len() / CHUNK_BYTES * CHUNK_BYTES;
            step(&part[..whole]);
            carried = part.len() - whole;
            carry[..carried].copy_from_slice(&part[whole..]);
        }
        step(&carry[..carried]);
        self.native.list().finish(registers, len);
    }

    fn begin(&self, registers: &mut [u64]) {
        assert_eq!(
            registers.len(),
            self.native.list().register_count(),
            "one for each register"
        );
        self.native.list().normalise(registers);
    }

    /// Calls the code for pieces of the size that it takes.
    ///
    /// # Safety
    ///
    /// `source` can be read and `destination` written as far as their layouts
    /// need for `len`; they are the same or apart.
    unsafe fn pieces(
        &self,
        registers: &mut [u64],
        source: *const u8,
        destination: *mut u8,
        len: usize,
    ) {
        // SAFETY: the mapping begins with a function of this type.
        let function: Function = unsafe { std::mem::transmute(self.base.as_ptr()) };
        let aligned = destination.addr().is_multiple_of(CHUNK_BYTES);
        let streaming = u64::from(len >= self.streaming && aligned);
        let (from, to) = (self.native.source(), self.native.destination());
        let most = self.native.piece_bytes();
        let mut done = 0;
        loop {
            let piece = (len - done).min(most);
            // Whole chunks lie before, so that gaps do as well.
            let (read, written) = (from.offset(done), to.offset(done));
            let source = source.wrapping_add(read);
            let destination = destination.wrapping_add(written);
            let registers = registers.as_mut_ptr();
            // SAFETY: as the caller promised; the code touches nothing else.
            unsafe { function(registers, source, destination, piece, streaming) };
            done += piece;
            if done == len {
                return;
            }
        }
    }
}

/// A list in the loops of a plan, one behind the other.
#[derive(Debug)]
pub struct Passes {
    loops: Vec<(Pipes, Range<usize>)>,
}

impl Passes {
    /// Compiles and maps a list's loops: the first copies, the others work in place.
    ///
    /// # Errors
    ///
    /// [`PassesError`]: a pipe has no native form, or [`MapError`].
    pub fn map(list: &List, cpu: Cpu, plan: &Plan) -> Result<Self, PassesError> {
        Self::map_from(1, list, cpu, plan)
    }

    /// Compiles and maps a list's loops to work in place, all of them: where a list
    /// modifies nothing, nothing is written.
    ///
    /// # Errors
    ///
    /// As [`Self::map`].
    pub fn map_in_place(list: &List, cpu: Cpu, plan: &Plan) -> Result<Self, PassesError> {
        Self::map_from(0, list, cpu, plan)
    }

    /// The loop numbered `first` is the first that works in place.
    fn map_from(first: usize, list: &List, cpu: Cpu, plan: &Plan) -> Result<Self, PassesError> {
        let map = |(at, pipes): (usize, &Range<usize>)| {
            let (part, registers) = list.part(pipes.clone());
            let options = Options {
                in_place: at >= first,
                ..Options::default()
            };
            let native = compile(&part, cpu, options)?;
            Ok((Pipes::map(native)?, registers))
        };
        let loops = plan.loops.iter().enumerate().map(map);
        Ok(Self {
            loops: loops.collect::<Result<_, PassesError>>()?,
        })
    }

    /// As [`Pipes::run_in_place`]; of loops of which the first copies, too.
    ///
    /// # Panics
    ///
    /// If `registers` are not as many as the list has.
    pub fn run_in_place(&self, registers: &mut [u64], data: &mut [u8]) {
        for (pipes, of) in &self.loops {
            pipes.run_in_place(&mut registers[of.clone()], data);
        }
    }

    /// As [`Pipes::run`], of all of `source`.
    ///
    /// # Panics
    ///
    /// If `registers` are not as many as the list has, or the destination is shorter
    /// than the source.
    pub fn run(&self, registers: &mut [u64], source: &[u8], destination: &mut [u8]) {
        let len = source.len();
        for (at, (pipes, of)) in self.loops.iter().enumerate() {
            let registers = &mut registers[of.clone()];
            if at == 0 {
                pipes.run(registers, source, destination, len);
            } else {
                pipes.run_in_place(registers, &mut destination[..len]);
            }
        }
    }
}

impl Passes {
    /// As [`Self::run`], where others may write meanwhile.
    ///
    /// # Safety
    ///
    /// `source` can be read and `to` written for `len` bytes, and no reference leads
    /// there; they are the same or apart.
    pub(crate) unsafe fn run_at(
        &self,
        registers: &mut [u64],
        source: *const u8,
        to: *mut u8,
        len: usize,
    ) {
        let mut from = source;
        for (pipes, of) in &self.loops {
            let registers = &mut registers[of.clone()];
            pipes.begin(registers);
            // SAFETY: as the caller promised.
            unsafe { pipes.pieces(registers, from, to, len) };
            pipes.native.list().finish(registers, len);
            from = to;
        }
    }
}

/// Why a list cannot run in native loops here.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PassesError {
    /// A pipe has no native form.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// The code cannot be mapped.
    #[error(transparent)]
    Map(#[from] MapError),
}

impl Drop for Pipes {
    fn drop(&mut self) {
        // SAFETY: our own mapping; `self` is the only one that knows it.
        let unmapped = unsafe { munmap(self.base.as_ptr(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "a mapping of ours");
    }
}
