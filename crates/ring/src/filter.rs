//! Socket filters: which of the messages for a socket get into its buffer.
//!
//! Source: socket(7), `SO_ATTACH_FILTER`, with the classic BPF of
//! `linux/filter.h`. Needs no capability.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use libc::{c_void, sock_filter, socklen_t};

/// Has a socket that only sends drop what others send it: else its receive buffer
/// fills up (208 KiB by default), and that memory stays taken. To be called before
/// `bind`, so that nothing comes before it. `shutdown(2)` does not do it: an
/// unconnected UDP socket goes on receiving.
///
/// # Errors
///
/// What `setsockopt(2)` returned; none is known for a socket.
pub fn receive_nothing(socket: BorrowedFd<'_>) -> io::Result<()> {
    let code = (libc::BPF_RET | libc::BPF_K) as u16;
    let keep = 0;
    attach(
        socket,
        &mut [sock_filter {
            code,
            jt: 0,
            jf: 0,
            k: keep,
        }],
    )
}

/// Gives the socket its filter. `EINVAL` if the kernel does not take the program.
pub(crate) fn attach(socket: BorrowedFd<'_>, filter: &mut [sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the kernel copies the live program, whose pointer and length are
    // those of the live slice.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast::<c_void>(),
            size_of_val(&program) as socklen_t,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
