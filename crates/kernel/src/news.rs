//! What rtnetlink tells by itself: that something has changed, so that nobody has to look
//! again and again.
//!
//! A message says what has changed; here it means only that something may have, and whoever
//! waits asks what there is now. So a message that did not fit the socket's buffer costs
//! nothing: those that did are news enough.
//!
//! Source: rtnetlink(7), `include/uapi/linux/rtnetlink.h`.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};

/// `RTNLGRP_LINK`: interfaces come and go, up and down; their addresses, and their queues.
const LINK: u32 = group(1);
/// `RTNLGRP_NEIGH`, and what the way to a neighbour depends on: addresses, routes, rules
/// and next hops (`RTNLGRP_IPV4_IFADDR` and so on).
const ROUTE: u32 =
    group(3) | group(5) | group(7) | group(8) | group(9) | group(11) | group(19) | group(32);

/// Messages that are taken at once. More stay for the next time.
const MOST: usize = 1024;

const fn group(number: u32) -> u32 {
    1 << (number - 1)
}

/// A socket that becomes readable when something changes, in the network namespace of the
/// thread that made it.
#[derive(Debug)]
pub struct News(OwnedFd);

impl News {
    /// Of interfaces. It tells of what [`iface::now`](crate::iface::now) says, of the
    /// queues in use only where the driver takes the carrier down meanwhile, and not of an
    /// XDP link that was detached.
    ///
    /// # Errors
    ///
    /// What the kernel said.
    pub fn of_links() -> io::Result<Self> {
        Self::of(LINK)
    }

    /// Of what [`neighbour`](crate::neighbour) finds.
    ///
    /// # Errors
    ///
    /// What the kernel said.
    pub fn of_neighbours() -> io::Result<Self> {
        Self::of(ROUTE)
    }

    fn of(groups: u32) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // `NETLINK_ROUTE` is 0, as none is.
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        without_overruns(&socket)?;
        bind(&socket, &SocketAddrNetlink::new(0, groups))?;
        Ok(Self(socket))
    }

    /// Takes what there is, [`MOST`] messages at most; whether there was anything. Does not
    /// wait.
    #[expect(clippy::must_use_candidate, reason = "taking is the effect")]
    pub fn take(&self) -> bool {
        // What does not fit is cut off: nobody reads it.
        let mut head = [0_u8; 16];
        let took = (0..MOST).take_while(|_| {
            let taken = recv(&self.0, &mut head, RecvFlags::empty());
            matches!(taken, Ok(_) | Err(Errno::INTR))
        });
        took.count() > 0
    }
}

/// Has the socket not report an error when its buffer has overflowed: until that is read,
/// `poll` returns at once for it, whatever it was asked for.
fn without_overruns(socket: &OwnedFd) -> io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: the pointer and the length are those of `on`, which outlives the call.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_NETLINK,
            libc::NETLINK_NO_ENOBUFS,
            (&raw const on).cast(),
            size_of_val(&on) as libc::socklen_t,
        )
    };
    if set == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

impl AsFd for News {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anybody_may_listen() {
        for news in [News::of_links(), News::of_neighbours()] {
            news.expect("rtnetlink is there").take();
        }
    }
}
