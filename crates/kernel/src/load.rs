//! Loading programs: instructions in, a verified program or its verdict out.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use crate::alarm::Alarm;
use crate::sys::{self, Command};
use crate::verifier_log;

#[cfg(not(target_endian = "little"))]
compile_error!("instructions are handled as little-endian words");

/// What a program is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramKind {
    /// `BPF_PROG_TYPE_SCHED_CLS`: traffic control, for TCX.
    SchedCls,
    /// `BPF_PROG_TYPE_XDP`: in the driver.
    Xdp,
    /// The same for frames that lie in several buffers (`BPF_F_XDP_HAS_FRAGS`, Linux 5.18), of
    /// which pointers reach the first. All programs of one program array are of one kind.
    XdpFrags,
}

impl ProgramKind {
    /// `prog_type` and `prog_flags`.
    const fn numbers(self) -> (u32, u32) {
        const BPF_F_XDP_HAS_FRAGS: u32 = 1 << 5;
        match self {
            Self::SchedCls => (3, 0),
            Self::Xdp => (6, 0),
            Self::XdpFrags => (6, BPF_F_XDP_HAS_FRAGS),
        }
    }
}

/// Where a program names a map.
#[derive(Clone, Copy, Debug)]
pub struct MapFixup<'a> {
    /// Index of the first of the two instructions of a `ld_imm64`.
    pub insn: usize,
    /// The map.
    pub fd: BorrowedFd<'a>,
    /// `None`: the instruction loads the map itself. `Some`: it loads the
    /// address of an array's first value, plus this many bytes.
    pub value_offset: Option<u32>,
}

/// Debug information: names and source lines for the verifier's log.
#[derive(Clone, Debug, Default)]
pub struct BtfInfo {
    /// A complete BTF blob.
    pub bytes: Vec<u8>,
    /// `struct bpf_func_info` records of 8 bytes.
    pub func_info: Vec<u8>,
    /// `struct bpf_line_info` records of 16 bytes.
    pub line_info: Vec<u8>,
}

/// A program to load.
#[derive(Clone, Copy, Debug)]
pub struct ProgramSpec<'a> {
    /// Shown by `bpftool prog`; cut to 15 characters. Programs attached to an
    /// interface must start with [`NAME_PREFIX`](crate::attach::NAME_PREFIX).
    pub name: &'a str,
    /// What it is for.
    pub kind: ProgramKind,
    /// `expected_attach_type`; 0 suits XDP and TCX programs alike. All
    /// programs of one program array need the same.
    pub attach_type: u32,
    /// Instructions, each as the little-endian number of its 8 bytes.
    pub insns: &'a [u64],
    /// The maps it names.
    pub maps: &'a [MapFixup<'a>],
    /// Names and source lines, if there are any.
    pub btf: Option<&'a BtfInfo>,
}

/// Why a program was not loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// A map was to be named by an instruction that cannot name one.
    #[error("instruction {insn} of `{program}` does not load a map")]
    NotAMapLoad {
        /// The program's name.
        program: String,
        /// The instruction's index.
        insn: usize,
    },
    /// The capabilities do not suffice.
    #[error("no permission to load `{program}`")]
    Denied {
        /// The program's name.
        program: String,
        /// The verifier's own words, if it got that far: for an arena without
        /// `CAP_PERFMON` it does.
        log: String,
        /// What the kernel returned.
        #[source]
        errno: io::Error,
    },
    /// The process or the system has no descriptor for it.
    #[error("the system has no room for `{program}`: {errno}")]
    Exhausted {
        /// The program's name.
        program: String,
        /// What the kernel returned.
        errno: io::Error,
    },
    /// The kernel did not take the BTF.
    #[error("the kernel rejected the debug information of `{program}`")]
    Btf {
        /// The program's name.
        program: String,
        /// The kernel's own words.
        log: String,
        /// What `BPF_BTF_LOAD` returned.
        #[source]
        errno: io::Error,
    },
    /// The verifier turned the program down.
    #[error(
        "the kernel verifier rejected `{program}`: {}",
        verifier_log::reason(log)
    )]
    Rejected {
        /// The program's name.
        program: String,
        /// The verifier's own words: often thousands of lines.
        log: String,
        /// What `BPF_PROG_LOAD` returned.
        #[source]
        errno: io::Error,
    },
    /// The verifier had not come to its end in time.
    #[error("`{program}` was not loaded: {}", self.reason())]
    TooLong {
        /// The program's name.
        program: String,
        /// How long it had.
        most: Duration,
    },
}

/// How long the kernel may take to load a program. What a handler of ordinary size
/// needs is milliseconds; one that is made for it can need a minute.
pub const MOST_TIME: Duration = Duration::from_secs(2);

impl LoadError {
    /// The kernel's own words, if there are any.
    #[must_use]
    pub fn log(&self) -> &str {
        match self {
            Self::NotAMapLoad { .. } | Self::Exhausted { .. } | Self::TooLong { .. } => "",
            Self::Denied { log, .. } | Self::Btf { log, .. } | Self::Rejected { log, .. } => log,
        }
    }

    /// Why, without the program's name: the last of the kernel's words, if there are any.
    #[must_use]
    pub fn reason(&self) -> String {
        match self {
            Self::Rejected { log, .. } => verifier_log::reason(log).to_owned(),
            Self::TooLong { most, .. } => {
                let seconds = most.as_secs_f64();
                format!("the kernel's verifier took longer than {seconds} s")
            }
            other => other.to_string(),
        }
    }

    /// One line on what the user can do next.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Denied { .. } => {
                "loading needs CAP_BPF and CAP_NET_ADMIN, and CAP_PERFMON for arena programs; \
                 see `ashway doctor`"
            }
            Self::Exhausted { .. } => {
                "let the process have more descriptors (`ulimit -n`) or memory, or load less"
            }
            Self::Rejected { .. } | Self::TooLong { .. } => {
                "the handler can run in the user tier (`tier = \"user\"`)"
            }
            Self::NotAMapLoad { .. } | Self::Btf { .. } => {
                "this is a fault of Ashway's code generator: please report it"
            }
        }
    }
}

/// A loaded, verified program.
#[derive(Debug)]
pub struct Program {
    fd: OwnedFd,
    id: u32,
    verified_insns: u32,
}

impl Program {
    /// Loads a program under the licence "Dual MIT/GPL".
    ///
    /// The verifier takes about 1 us for each instruction that it processes.
    /// A program it refuses is verified once more, to get its reasons. Both together
    /// take [`MOST_TIME`] at most.
    ///
    /// # Errors
    ///
    /// [`LoadError`], one variant per party to blame.
    pub fn load(spec: &ProgramSpec<'_>) -> Result<Self, LoadError> {
        Self::load_within(MOST_TIME, spec)
    }

    /// The same within another time.
    ///
    /// # Errors
    ///
    /// As [`Self::load`].
    pub fn load_within(most: Duration, spec: &ProgramSpec<'_>) -> Result<Self, LoadError> {
        let prepared = Prepared::new(spec)?;
        let mut attr = prepared.request(spec);
        // A load without a limit is better than none, where there is no timer.
        let alarm = Alarm::set(most).ok();
        let is_over = || alarm.as_ref().is_some_and(Alarm::is_over);
        let fd = match load_once(&mut attr, is_over) {
            Ok(fd) => fd,
            Err(errno) if is_exhausted(&errno) => {
                let program = spec.name.to_owned();
                return Err(LoadError::Exhausted { program, errno });
            }
            Err(errno) => {
                let program = spec.name.to_owned();
                if is_interrupted(&errno) {
                    return Err(LoadError::TooLong { program, most });
                }
                let (log, again) = with_log(|log| {
                    attr.log_level = 1;
                    attr.log_buf = sys::address(log);
                    attr.log_size = log.len() as u32;
                    load_once(&mut attr, is_over)
                });
                return Err(match errno.raw_os_error() {
                    _ if again.is_err_and(|errno| is_interrupted(&errno)) => {
                        LoadError::TooLong { program, most }
                    }
                    Some(libc::EPERM) => LoadError::Denied {
                        program,
                        log,
                        errno,
                    },
                    _ => LoadError::Rejected {
                        program,
                        log,
                        errno,
                    },
                });
            }
        };
        let info = program_info(fd.as_fd()).map_err(|errno| LoadError::Denied {
            program: spec.name.to_owned(),
            log: String::new(),
            errno,
        })?;
        Ok(Self {
            fd,
            id: info.id,
            verified_insns: info.verified_insns,
        })
    }

    /// What the verifier says about a program, whether it takes it or not: its
    /// whole log, up to 16 MiB. It takes what time it needs, and the program is gone
    /// afterwards.
    ///
    /// # Errors
    ///
    /// [`LoadError`] if the verifier was not asked.
    pub fn verifier_log(spec: &ProgramSpec<'_>) -> Result<String, LoadError> {
        /// `BPF_LOG_LEVEL2`: every instruction on every path.
        const EVERYTHING: u32 = 2;
        let prepared = Prepared::new(spec)?;
        let mut attr = prepared.request(spec);
        let (log, _) = with_log(|log| {
            attr.log_level = EVERYTHING;
            attr.log_buf = sys::address(log);
            attr.log_size = log.len() as u32;
            load_once(&mut attr, || false)
        });
        Ok(log)
    }

    /// A program that somebody else has loaded, to run it on packets of ours.
    ///
    /// Needs `CAP_SYS_ADMIN`.
    ///
    /// # Errors
    ///
    /// What the kernel returned; `ENOENT` if there is no such program.
    pub fn from_id(id: u32) -> io::Result<Self> {
        let mut attr = sys::ById {
            id,
            ..Default::default()
        };
        // SAFETY: the block holds no pointers, and the command returns an fd.
        let fd = unsafe { sys::bpf_fd(Command::ProgGetFdById, &mut attr) }?;
        let info = program_info(fd.as_fd())?;
        Ok(Self {
            fd,
            id: info.id,
            verified_insns: info.verified_insns,
        })
    }

    /// The program's fd.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The program's id, as `bpftool prog` and `ip link` show it.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id
    }

    /// How many instructions the verifier processed (Linux 5.16): what loading
    /// it cost, at most a million.
    #[must_use]
    pub fn verified_insns(&self) -> u32 {
        self.verified_insns
    }
}

/// What a load's pointers lead to.
struct Prepared<'a> {
    insns: Vec<u64>,
    btf: Option<(&'a BtfInfo, OwnedFd)>,
}

impl<'a> Prepared<'a> {
    fn new(spec: &ProgramSpec<'a>) -> Result<Self, LoadError> {
        let insns = name_maps(spec)?;
        let btf = match spec.btf {
            Some(btf) => Some((btf, load_btf(&btf.bytes, spec.name)?)),
            None => None,
        };
        Ok(Self { insns, btf })
    }

    /// The block to load it with; its pointers are good as long as this is.
    fn request(&self, spec: &ProgramSpec<'_>) -> sys::ProgLoad {
        let (kind, flags) = spec.kind.numbers();
        let mut attr = sys::ProgLoad {
            kind,
            flags,
            insn_count: self.insns.len() as u32,
            insns: sys::address(&self.insns),
            license: c"Dual MIT/GPL".as_ptr() as u64,
            name: sys::object_name(spec.name),
            expected_attach_type: spec.attach_type,
            ..Default::default()
        };
        if let Some((btf, fd)) = &self.btf {
            attr.btf_fd = fd.as_raw_fd() as u32;
            attr.func_info_record = FUNC_INFO_BYTES as u32;
            attr.func_info = sys::address(&btf.func_info);
            attr.func_info_count = (btf.func_info.len() / FUNC_INFO_BYTES) as u32;
            attr.line_info_record = LINE_INFO_BYTES as u32;
            attr.line_info = sys::address(&btf.line_info);
            attr.line_info_count = (btf.line_info.len() / LINE_INFO_BYTES) as u32;
        }
        attr
    }
}

impl AsFd for Program {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd()
    }
}

/// Size of a `struct bpf_func_info`.
const FUNC_INFO_BYTES: usize = 8;
/// Size of a `struct bpf_line_info`.
const LINE_INFO_BYTES: usize = 16;
/// Opcode of a `ld_imm64`: `BPF_LD | BPF_IMM | BPF_DW`.
const LD_IMM64: u64 = 0x18;
/// `src_reg` of a `ld_imm64` that loads a map.
const PSEUDO_MAP_FD: u64 = 1;
/// `src_reg` of a `ld_imm64` that loads the address of a map's value.
const PSEUDO_MAP_VALUE: u64 = 2;

/// The instructions with the fds of this process put in.
fn name_maps(spec: &ProgramSpec<'_>) -> Result<Vec<u64>, LoadError> {
    let mut insns = spec.insns.to_vec();
    for fixup in spec.maps {
        let Some([first, second]) = insns.get_mut(fixup.insn..fixup.insn.saturating_add(2)) else {
            return Err(not_a_map_load(spec, fixup));
        };
        if *first & 0xff != LD_IMM64 {
            return Err(not_a_map_load(spec, fixup));
        }
        let source = if fixup.value_offset.is_some() {
            PSEUDO_MAP_VALUE
        } else {
            PSEUDO_MAP_FD
        };
        let fd = fixup.fd.as_raw_fd() as u32;
        // Opcode and destination stay; source, offset and constant are ours.
        *first = (*first & 0x0fff) | (source << 12) | (u64::from(fd) << 32);
        *second = u64::from(fixup.value_offset.unwrap_or(0)) << 32;
    }
    Ok(insns)
}

fn not_a_map_load(spec: &ProgramSpec<'_>, fixup: &MapFixup<'_>) -> LoadError {
    LoadError::NotAMapLoad {
        program: spec.name.to_owned(),
        insn: fixup.insn,
    }
}

/// Loads; the verifier gives up with `EAGAIN` when a signal arrives, so that is
/// tried again a few times, unless the time is over.
fn load_once(attr: &mut sys::ProgLoad, is_over: impl Fn() -> bool) -> io::Result<OwnedFd> {
    let mut attempts = 5;
    loop {
        // SAFETY: the pointers lead to the instructions, the licence, the
        // debug information and the log buffer, which outlive `attr`'s use.
        match unsafe { sys::bpf_fd(Command::ProgLoad, attr) } {
            Err(error) if is_interrupted(&error) && attempts > 0 && !is_over() => {
                attempts -= 1;
            }
            result => return result,
        }
    }
}

/// Whether the verifier gave up because of a signal.
fn is_interrupted(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EAGAIN)
}

fn load_btf(bytes: &[u8], program: &str) -> Result<OwnedFd, LoadError> {
    let load = |log: &[u8]| {
        let mut attr = sys::BtfLoad {
            btf: sys::address(bytes),
            size: bytes.len() as u32,
            log_buf: sys::address(log),
            log_size: log.len() as u32,
            log_level: u32::from(!log.is_empty()),
            ..Default::default()
        };
        // SAFETY: the pointers lead to the BTF and the log, both of the
        // lengths given, and both outlive the call.
        unsafe { sys::bpf_fd(Command::BtfLoad, &mut attr) }
    };
    load(&[]).map_err(|errno| match errno.raw_os_error() {
        _ if is_exhausted(&errno) => LoadError::Exhausted {
            program: program.to_owned(),
            errno,
        },
        Some(libc::EPERM) => LoadError::Denied {
            program: program.to_owned(),
            log: String::new(),
            errno,
        },
        _ => LoadError::Btf {
            program: program.to_owned(),
            log: with_log(|log| load(log)).0,
            errno,
        },
    })
}

/// Whether a load failed for want of what says nothing of the program. `ENOMEM` may say
/// something of it: the verifier returns that for more than 8,192 branches which it still
/// has to follow ("too complex"; Linux 6.18).
fn is_exhausted(errno: &io::Error) -> bool {
    matches!(errno.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// Repeats a load with a buffer for its log, and returns the log and what the load
/// came to. Pages of the buffer that the log does not reach are not used.
fn with_log(load: impl FnOnce(&mut [u8]) -> io::Result<OwnedFd>) -> (String, io::Result<OwnedFd>) {
    /// Of a longer log the buffer holds the end; before Linux 6.4 its start.
    const BYTES: usize = 16 << 20;
    let mut log = vec![0; BYTES];
    let result = load(&mut log);
    let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
    (String::from_utf8_lossy(&log[..end]).into_owned(), result)
}

/// The start of `struct bpf_prog_info` up to the last field we use.
#[derive(Default)]
#[repr(C)]
pub(crate) struct ProgramInfo {
    pub(crate) kind: u32,
    pub(crate) id: u32,
    tag: [u8; 8],
    jited_len: u32,
    xlated_len: u32,
    jited_insns: u64,
    xlated_insns: u64,
    load_time: u64,
    pub(crate) created_by_uid: u32,
    map_count: u32,
    map_ids: u64,
    pub(crate) name: [u8; 16],
    ifindex: u32,
    gpl_compatible: u32,
    netns_dev: u64,
    netns_ino: u64,
    ksym_count: u32,
    func_len_count: u32,
    ksyms: u64,
    func_lens: u64,
    btf_id: u32,
    func_info_record: u32,
    func_info: u64,
    func_info_count: u32,
    line_info_count: u32,
    line_info: u64,
    jited_line_info: u64,
    jited_line_info_count: u32,
    line_info_record: u32,
    jited_line_info_record: u32,
    tag_count: u32,
    tags: u64,
    pub(crate) run_time_ns: u64,
    pub(crate) run_count: u64,
    recursion_misses: u64,
    verified_insns: u32,
    padding: u32,
}

/// What the kernel knows about a program.
pub(crate) fn program_info(fd: BorrowedFd<'_>) -> io::Result<ProgramInfo> {
    let mut info = ProgramInfo::default();
    let mut attr = sys::ObjectInfo {
        fd: fd.as_raw_fd() as u32,
        len: size_of::<ProgramInfo>() as u32,
        info: std::ptr::from_mut(&mut info) as u64,
    };
    // SAFETY: `info` has room for `len` bytes, any bytes are a valid
    // `ProgramInfo`, and its counts of 0 keep the kernel from following the
    // pointers in it.
    unsafe { sys::bpf(Command::ObjGetInfoByFd, &mut attr) }?;
    Ok(info)
}
