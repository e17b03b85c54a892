//! The `bpf(2)` system call and the argument blocks we pass to it.
//!
//! Each block is the start of one variant of `union bpf_attr`
//! (`include/uapi/linux/bpf.h`, Linux 6.18). The kernel takes the size with
//! the call, reads what is missing as 0 and refuses bytes it does not know, so
//! a block ends with the last field we use. No block has implicit padding:
//! every byte that reaches the kernel is written by us.

use std::ffi::{c_int, c_long};
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr;

/// `enum bpf_cmd`, the part used here.
#[derive(Clone, Copy, Debug)]
#[repr(i32)]
pub(crate) enum Command {
    MapCreate = 0,
    MapLookup = 1,
    MapUpdate = 2,
    MapDelete = 3,
    ProgLoad = 5,
    ProgTestRun = 10,
    ProgGetFdById = 13,
    ObjGetInfoByFd = 15,
    ProgQuery = 16,
    BtfLoad = 18,
    MapLookupBatch = 24,
    MapUpdateBatch = 26,
    MapDeleteBatch = 27,
    LinkCreate = 28,
    LinkUpdate = 29,
    LinkGetFdById = 30,
    LinkGetNextId = 31,
    EnableStats = 32,
    LinkDetach = 34,
}

/// `enum bpf_attach_type`: an XDP program on an interface.
pub(crate) const ATTACH_XDP: u32 = 37;
/// `enum bpf_attach_type`: a TCX program where packets come in.
pub(crate) const ATTACH_TCX_INGRESS: u32 = 46;

/// `BPF_MAP_CREATE`.
#[derive(Default)]
#[repr(C)]
pub(crate) struct MapCreate {
    pub(crate) kind: u32,
    pub(crate) key_size: u32,
    pub(crate) value_size: u32,
    pub(crate) max_entries: u32,
    pub(crate) flags: u32,
    pub(crate) inner_map_fd: u32,
    pub(crate) numa_node: u32,
    pub(crate) name: [u8; 16],
    pub(crate) ifindex: u32,
    pub(crate) btf_fd: u32,
    pub(crate) btf_key_type_id: u32,
    pub(crate) btf_value_type_id: u32,
    pub(crate) btf_vmlinux_value_type_id: u32,
    pub(crate) extra: u64,
}

/// `BPF_MAP_*_ELEM`.
#[derive(Default)]
#[repr(C)]
pub(crate) struct MapElement {
    pub(crate) map_fd: u32,
    pub(crate) padding: u32,
    pub(crate) key: u64,
    pub(crate) value: u64,
    pub(crate) flags: u64,
}

/// `BPF_MAP_*_BATCH` (Linux 5.6).
#[derive(Default)]
#[repr(C)]
pub(crate) struct MapBatch {
    pub(crate) in_batch: u64,
    pub(crate) out_batch: u64,
    pub(crate) keys: u64,
    pub(crate) values: u64,
    pub(crate) count: u32,
    pub(crate) map_fd: u32,
    pub(crate) element_flags: u64,
    pub(crate) flags: u64,
}

/// `BPF_PROG_LOAD`.
#[derive(Default)]
#[repr(C)]
pub(crate) struct ProgLoad {
    pub(crate) kind: u32,
    pub(crate) insn_count: u32,
    pub(crate) insns: u64,
    pub(crate) license: u64,
    pub(crate) log_level: u32,
    pub(crate) log_size: u32,
    pub(crate) log_buf: u64,
    pub(crate) kern_version: u32,
    pub(crate) flags: u32,
    pub(crate) name: [u8; 16],
    pub(crate) ifindex: u32,
    pub(crate) expected_attach_type: u32,
    pub(crate) btf_fd: u32,
    pub(crate) func_info_record: u32,
    pub(crate) func_info: u64,
    pub(crate) func_info_count: u32,
    pub(crate) line_info_record: u32,
    pub(crate) line_info: u64,
    pub(crate) line_info_count: u32,
    pub(crate) attach_btf_id: u32,
}

/// `BPF_BTF_LOAD`.
#[derive(Default)]
#[repr(C)]
pub(crate) struct BtfLoad {
    pub(crate) btf: u64,
    pub(crate) log_buf: u64,
    pub(crate) size: u32,
    pub(crate) log_size: u32,
    pub(crate) log_level: u32,
    pub(crate) padding: u32,
}

/// `BPF_PROG_TEST_RUN`.
#[derive(Default)]
#[repr(C)]
pub(crate) struct ProgTestRun {
    pub(crate) prog_fd: u32,
    pub(crate) retval: u32,
    pub(crate) data_size_in: u32,
    pub(crate) data_size_out: u32,
    pub(crate) data_in: u64,
    pub(crate) data_out: u64,
    pub(crate) repeat: u32,
    pub(crate) duration: u32,
    pub(crate) ctx_size_in: u32,
    pub(crate) ctx_size_out: u32,
    pub(crate) ctx_in: u64,
    pub(crate) ctx_out: u64,
    pub(crate) flags: u32,
    pub(crate) cpu: u32,
    pub(crate) batch_size: u32,
    pub(crate) padding: u32,
}

/// `BPF_*_GET_FD_BY_ID` and `BPF_*_GET_NEXT_ID`.
#[derive(Default)]
#[repr(C)]
pub(crate) struct ById {
    pub(crate) id: u32,
    pub(crate) next_id: u32,
    pub(crate) open_flags: u32,
}

/// `BPF_OBJ_GET_INFO_BY_FD`.
#[derive(Default)]
#[repr(C)]
pub(crate) struct ObjectInfo {
    pub(crate) fd: u32,
    pub(crate) len: u32,
    pub(crate) info: u64,
}

/// `BPF_PROG_QUERY`, as TCX fills it in (Linux 6.6).
#[derive(Default)]
#[repr(C)]
pub(crate) struct ProgQuery {
    pub(crate) target: u32,
    pub(crate) attach_type: u32,
    pub(crate) query_flags: u32,
    pub(crate) attach_flags: u32,
    pub(crate) prog_ids: u64,
    pub(crate) count: u32,
    pub(crate) padding: u32,
    pub(crate) prog_attach_flags: u64,
    pub(crate) link_ids: u64,
    pub(crate) link_attach_flags: u64,
    pub(crate) revision: u64,
}

/// `BPF_ENABLE_STATS`; 0 is `BPF_STATS_RUN_TIME`.
#[derive(Default)]
#[repr(C)]
pub(crate) struct EnableStats {
    pub(crate) kind: u32,
}

/// `BPF_LINK_CREATE`.
#[derive(Default)]
#[repr(C)]
pub(crate) struct LinkCreate {
    pub(crate) prog_fd: u32,
    pub(crate) ifindex: u32,
    pub(crate) attach_type: u32,
    pub(crate) flags: u32,
}

/// `BPF_LINK_UPDATE`.
#[derive(Default)]
#[repr(C)]
pub(crate) struct LinkUpdate {
    pub(crate) link_fd: u32,
    pub(crate) new_prog_fd: u32,
    pub(crate) flags: u32,
    pub(crate) old_prog_fd: u32,
}

/// `BPF_LINK_DETACH`.
#[derive(Default)]
#[repr(C)]
pub(crate) struct LinkDetach {
    pub(crate) link_fd: u32,
}

/// Calls `bpf(2)`; the result is an fd or 0, as the command has it.
///
/// # Safety
///
/// Every pointer in `attr` is valid, for as many bytes as `command` reads or
/// writes there, while the call lasts.
pub(crate) unsafe fn bpf<A>(command: Command, attr: &mut A) -> io::Result<c_long> {
    // SAFETY: `attr` is valid for its own size, and the caller vouches for
    // what it points to.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command as c_int,
            ptr::from_mut(attr),
            size_of::<A>(),
        )
    };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// [`bpf`] for a command whose result is a new fd (close-on-exec, as all of
/// BPF's are).
///
/// # Safety
///
/// As for [`bpf`]; and `command` returns an fd.
pub(crate) unsafe fn bpf_fd<A>(command: Command, attr: &mut A) -> io::Result<OwnedFd> {
    // SAFETY: passed on from the caller.
    let fd = unsafe { bpf(command, attr) }?;
    // SAFETY: the kernel has just given us this fd, nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as c_int) })
}

/// The address of a slice, as `bpf_attr` wants pointers; 0 for an empty one.
pub(crate) fn address<T>(slice: &[T]) -> u64 {
    if slice.is_empty() {
        0
    } else {
        slice.as_ptr() as u64
    }
}

/// A name the kernel accepts: at most 15 letters, digits, `_` or `.`, then 0.
/// Anything else in `name` becomes `_`.
pub(crate) fn object_name(name: &str) -> [u8; 16] {
    let mut out = [0; 16];
    for (to, from) in out.iter_mut().take(15).zip(name.bytes()) {
        *to = if from.is_ascii_alphanumeric() || from == b'.' {
            from
        } else {
            b'_'
        };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_have_the_offsets_of_the_header_file() {
        assert_eq!(std::mem::offset_of!(MapCreate, extra), 64);
        assert_eq!(std::mem::offset_of!(MapBatch, map_fd), 36);
        assert_eq!(std::mem::offset_of!(ProgLoad, btf_fd), 72);
        assert_eq!(std::mem::offset_of!(ProgLoad, line_info), 96);
        assert_eq!(std::mem::offset_of!(ProgTestRun, ctx_in), 48);
        assert_eq!(std::mem::offset_of!(ProgQuery, link_ids), 40);
    }

    #[test]
    fn names_are_cut_and_cleaned() {
        assert_eq!(&object_name("ashway-entry"), b"ashway_entry\0\0\0\0");
        assert_eq!(&object_name("0123456789abcdefgh"), b"0123456789abcde\0");
    }
}
