//! The far end of a TAP: a process that sends and receives frames by a descriptor.
//!
//! Source: `Documentation/networking/tuntap.rst`, Linux 6.18.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// `struct ifreq` as `TUNSETIFF` reads it.
#[repr(C)]
struct Request {
    name: [u8; libc::IFNAMSIZ],
    flags: libc::c_short,
    rest: [u8; 22],
}

/// An interface that is gone when this is dropped.
#[derive(Debug)]
pub struct Tap(File);

impl Tap {
    /// Makes an interface of this name in the calling thread's network namespace. It is down.
    ///
    /// # Errors
    ///
    /// What the kernel said: it may have no TAPs, and takes `CAP_NET_ADMIN`.
    pub fn new(name: &str) -> io::Result<Self> {
        let tun = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/net/tun")?;
        let mut request = Request {
            name: [0; libc::IFNAMSIZ],
            flags: (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short,
            rest: [0; 22],
        };
        let bytes = name.as_bytes();
        request.name[..bytes.len()].copy_from_slice(bytes);
        // SAFETY: the kernel reads and writes one `ifreq`, which `request` is as long as.
        let made = unsafe { libc::ioctl(tun.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
        if made < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self(tun))
    }

    /// Has a frame arrive at the interface.
    ///
    /// # Errors
    ///
    /// What the kernel said; the interface has to be up.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        (&self.0).write_all(frame)
    }

    /// The next frame that leaves by the interface.
    ///
    /// # Errors
    ///
    /// `TimedOut` if none does.
    pub fn receive(&self, patience: Duration) -> io::Result<Vec<u8>> {
        let mut fds = [PollFd::from_borrowed_fd(self.0.as_fd(), PollFlags::IN)];
        let patience = Timespec {
            tv_sec: patience.as_secs() as i64,
            tv_nsec: patience.subsec_nanos().into(),
        };
        if poll(&mut fds, Some(&patience))? == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let mut frame = vec![0; 65_536];
        let len = (&self.0).read(&mut frame)?;
        frame.truncate(len);
        Ok(frame)
    }
}
