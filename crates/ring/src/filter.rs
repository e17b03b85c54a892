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

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    use super::receive_nothing;

    #[test]
    fn nothing_gets_into_the_buffer_of_a_socket_that_only_sends() {
        let [deaf, other] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        receive_nothing(deaf.as_fd()).unwrap();
        for message in [&b""[..], b"message", &[7; 9_000]] {
            other.send_to(message, deaf.local_addr().unwrap()).unwrap();
        }
        // Comes by the same queue, behind them.
        deaf.send_to(b"last", other.local_addr().unwrap()).unwrap();
        assert_eq!(other.recv(&mut [0; 16]).unwrap(), 4);
        deaf.set_nonblocking(true).unwrap();
        let error = deaf.recv(&mut [0; 1]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
    }
}
