//! A TAP device: a link whose one end is an interface of the host, and whose other end is a
//! file descriptor of ours.
//!
//! What the host sends by the interface is received here, and what is sent here the host
//! receives. Nothing is behind a message: the host has sent it, so it cannot be passed on to
//! the host. The kernel does in software what a device would do for the host (segmentation,
//! checksums), because we do not say that we do it (`TUNSETOFFLOAD`): each frame is one message
//! and whole.
//!
//! What the host sends faster than it is received waits in the interface's queue (`txqueuelen`
//! frames, 1,000 when it is made here), and what has no room there is among its `tx_dropped`.
//!
//! Source: `Documentation/networking/tuntap.rst`. Minimum kernel: 2.6.27.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, IoSliceMut, Read as _, Write as _};
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

use libc::{c_int, c_short};

/// The file that makes them.
const DEVICE: &str = "/dev/net/tun";

/// Why there is no TAP device of this name.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TapDeviceError {
    /// This machine, or container, has none at all.
    #[error("there is no `{DEVICE}`")]
    Missing(#[source] io::Error),
    /// The process may not have one.
    #[error("this process may have no TAP device")]
    Denied(#[source] io::Error),
    /// Another process has the device of this name.
    #[error("another process has the TAP device `{0}`")]
    Taken(String),
    /// There is an interface of this name, which is no TAP device.
    #[error("the interface `{0}` is no TAP device")]
    NotATap(String),
    /// The kernel refused for another reason.
    #[error("{doing}")]
    Os {
        /// What.
        doing: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl TapDeviceError {
    /// The next step.
    #[must_use]
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Missing(_) => {
                "`modprobe tun`; a container is given it by `--device /dev/net/tun`"
            }
            Self::Denied(_) => {
                "give the process CAP_NET_ADMIN in its network namespace (`unshare -Urn` does), \
                 or make the device for its user: `ip tuntap add NAME mode tap user USER`"
            }
            Self::Taken(_) => "stop that process, or choose another name for the section",
            Self::NotATap(_) => {
                "choose a name that no interface has, or leave `attach = \"tap\"` out"
            }
            Self::Os { .. } => "`ip link` and `ip tuntap` show what there is",
        }
    }
}

/// Our end of a TAP device. One that was made here is gone when this is dropped.
#[derive(Debug)]
pub struct TapDevice {
    file: File,
    is_new: bool,
}

impl TapDevice {
    /// Makes the device of this name and sets it up, or takes the end of one that was made
    /// before to last (`ip tuntap add`), and leaves it as it is.
    ///
    /// # Errors
    ///
    /// [`TapDeviceError`].
    pub fn open(name: &str) -> Result<Self, TapDeviceError> {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        let opened = options.custom_flags(libc::O_NONBLOCK).open(DEVICE);
        let file = opened.map_err(|error| match error.kind() {
            ErrorKind::PermissionDenied => TapDeviceError::Denied(error),
            _ => TapDeviceError::Missing(error),
        })?;
        let os = |doing| move |source| TapDeviceError::Os { doing, source };
        let socket = UdpSocket::bind("0.0.0.0:0").map_err(os("opening a socket"))?;
        let is_new = rustix::net::netdevice::name_to_index(&socket, name).is_err();
        let mut request = Request::of(name);
        request.flags = (libc::IFF_TAP | libc::IFF_NO_PI) as c_short;
        request
            .ask(file.as_fd(), libc::TUNSETIFF)
            .map_err(|error| match error.raw_os_error() {
                Some(libc::EPERM) => TapDeviceError::Denied(error),
                Some(libc::EBUSY) => TapDeviceError::Taken(name.to_owned()),
                Some(libc::EINVAL) => TapDeviceError::NotATap(name.to_owned()),
                _ => os("making a TAP device")(error),
            })?;
        if is_new {
            set_up(&socket, name).map_err(os("setting a TAP device up"))?;
        }
        Ok(Self { file, is_new })
    }

    /// Whether the device was made here.
    #[must_use]
    pub const fn is_new(&self) -> bool {
        self.is_new
    }

    /// Receives a frame, the beginning into `room` and what has no room there into `rest`; its
    /// length, or `None` if none waits. One system call, no allocation.
    ///
    /// # Errors
    ///
    /// What the kernel says: the device is gone.
    pub fn receive(&mut self, room: &mut [u8], rest: &mut [u8]) -> io::Result<Option<usize>> {
        let mut parts = [room, rest].map(IoSliceMut::new);
        match self.file.read_vectored(&mut parts) {
            Ok(len) => Ok(Some(len)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sends a whole frame. One system call, no allocation.
    ///
    /// # Errors
    ///
    /// What the kernel says: `EIO` if the interface is down, `EBADFD` if it is gone.
    pub fn send(&mut self, frame: &[u8]) -> io::Result<()> {
        self.file.write(frame).map(drop)
    }
}

impl AsFd for TapDevice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// `struct ifreq` (netdevice(7)) of a request about flags.
#[repr(C)]
struct Request {
    name: [u8; libc::IFNAMSIZ],
    flags: c_short,
    rest: [u8; size_of::<libc::ifreq>() - libc::IFNAMSIZ - size_of::<c_short>()],
}

impl Request {
    /// About this interface. What is longer than a name can be is cut.
    fn of(name: &str) -> Self {
        let mut bytes = [0; libc::IFNAMSIZ];
        let len = name.len().min(bytes.len() - 1);
        bytes[..len].copy_from_slice(&name.as_bytes()[..len]);
        Self {
            name: bytes,
            flags: 0,
            rest: [0; _],
        }
    }

    fn ask(&mut self, of: BorrowedFd<'_>, request: libc::Ioctl) -> io::Result<()> {
        const { assert!(size_of::<Self>() == size_of::<libc::ifreq>()) };
        // SAFETY: each request that is asked here reads and writes a `struct ifreq` and nothing
        // else, and this is one that is live and ours.
        let result: c_int =
            unsafe { libc::ioctl(of.as_raw_fd(), request, std::ptr::from_mut(self)) };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }
}

/// As `ip link set NAME up`.
fn set_up(socket: &UdpSocket, name: &str) -> io::Result<()> {
    let mut request = Request::of(name);
    request.ask(socket.as_fd(), libc::SIOCGIFFLAGS as libc::Ioctl)?;
    request.flags |= libc::IFF_UP as c_short;
    request.ask(socket.as_fd(), libc::SIOCSIFFLAGS as libc::Ioctl)
}
