//! Attaching programs to interfaces by BPF links.
//!
//! Links are not pinned: when the last fd closes, also by the process's death,
//! the kernel detaches the program and the interface is the host's again.
//! Dropping a link here does not wait for the last fd: somebody who looks at
//! all links, as `bpftool` and [`owner()`](crate::owner()) do, holds each for a
//! moment.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::load::Program;
use crate::netlink;
use crate::owner::{self, Owner};
use crate::sys::{self, Command};

/// How the name of every program that Ashway attaches begins. By it the next
/// Ashway knows what is ours.
pub const NAME_PREFIX: &str = "ashway";

/// Where in the receive path an XDP program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In the driver, before the kernel makes an `sk_buff`.
    Native,
    /// Behind the driver, on an `sk_buff`: any interface, much slower.
    Generic,
}

/// Why a program was not attached. The interface is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    /// Another XDP program is there, or an Ashway at TCX.
    #[error("interface {ifindex} is taken by {}", owner::describe(owner.as_ref()))]
    Taken {
        /// The interface.
        ifindex: u32,
        /// Who has it, if that could be found out.
        owner: Option<Owner>,
        /// What `BPF_LINK_CREATE` returned.
        #[source]
        errno: io::Error,
    },
    /// There is no such interface here.
    #[error("there is no interface {ifindex} in this network namespace")]
    NoInterface {
        /// The interface.
        ifindex: u32,
    },
    /// The driver cannot run the program.
    #[error("the driver of interface {ifindex} does not take the program")]
    Driver {
        /// The interface.
        ifindex: u32,
        /// What the driver returned.
        #[source]
        errno: io::Error,
    },
    /// The capabilities do not suffice.
    #[error("no permission to attach to interface {ifindex}")]
    Denied {
        /// The interface.
        ifindex: u32,
    },
    /// Anything else.
    #[error("cannot attach to interface {ifindex}")]
    Kernel {
        /// The interface.
        ifindex: u32,
        /// What `BPF_LINK_CREATE` returned.
        #[source]
        errno: io::Error,
    },
}

impl AttachError {
    /// One line on what the user can do next.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Taken {
                owner: Some(owner), ..
            } if owner.is_ashway() => {
                "stop that Ashway, or detach it with `ashway iface detach IF`"
            }
            Self::Taken { .. } => "stop its owner, or choose another interface",
            Self::NoInterface { .. } => "`ip link` lists the interfaces",
            Self::Driver { errno, .. } => match errno.raw_os_error() {
                Some(libc::ERANGE | libc::EMSGSIZE) => {
                    "lower the MTU (on veth: the peer's), or use the generic mode"
                }
                Some(libc::ENOSPC) => {
                    "a veth needs at least as many rx queues as its peer has tx queues"
                }
                _ => "use the generic mode",
            },
            Self::Denied { .. } => "attaching needs CAP_NET_ADMIN and CAP_BPF",
            Self::Kernel { .. } => "see `ashway doctor`",
        }
    }

    fn new(ifindex: u32, errno: io::Error) -> Self {
        match errno.raw_os_error() {
            // EEXIST: a program of the other mode.
            Some(libc::EBUSY | libc::EEXIST) => Self::Taken {
                ifindex,
                owner: owner::owner(ifindex).ok().flatten(),
                errno,
            },
            Some(libc::ENODEV) => Self::NoInterface { ifindex },
            // What XDP links say of an interface that is not there.
            Some(libc::EINVAL) if netlink::link(ifindex).is_err() => Self::NoInterface { ifindex },
            Some(libc::EPERM) => Self::Denied { ifindex },
            Some(libc::EOPNOTSUPP | libc::ERANGE | libc::EMSGSIZE | libc::ENOSPC) => {
                Self::Driver { ifindex, errno }
            }
            _ => Self::Kernel { ifindex, errno },
        }
    }
}

/// A program that is attached to an interface. Dropping it detaches.
#[derive(Debug)]
pub struct Attached {
    link: OwnedFd,
}

impl Attached {
    /// Attaches an XDP program (Linux 5.9). Takes some ms: the driver may
    /// reset its queues. An interface has room for one.
    ///
    /// # Errors
    ///
    /// [`AttachError`]; the interface is then as it was.
    pub fn xdp(program: &Program, ifindex: u32, mode: Mode) -> Result<Self, AttachError> {
        const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
        const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;
        let flags = match mode {
            Mode::Native => XDP_FLAGS_DRV_MODE,
            Mode::Generic => XDP_FLAGS_SKB_MODE,
        };
        Self::create(program, ifindex, sys::ATTACH_XDP, flags)
    }

    /// Attaches a `SchedCls` program to traffic control's ingress, behind those that are
    /// there already (Linux 6.6).
    ///
    /// # Errors
    ///
    /// [`AttachError`]; the interface is then as it was.
    pub fn tcx(program: &Program, ifindex: u32) -> Result<Self, AttachError> {
        Self::create(program, ifindex, sys::ATTACH_TCX_INGRESS, 0)
    }

    fn create(
        program: &Program,
        ifindex: u32,
        attach_type: u32,
        flags: u32,
    ) -> Result<Self, AttachError> {
        let mut attr = sys::LinkCreate {
            prog_fd: program.fd().as_raw_fd() as u32,
            ifindex,
            attach_type,
            flags,
        };
        // SAFETY: the block holds no pointers.
        let link = unsafe { sys::bpf_fd(Command::LinkCreate, &mut attr) }
            .map_err(|errno| AttachError::new(ifindex, errno))?;
        Ok(Self { link })
    }

    /// Puts another program of its kind in the place of the attached one. Each packet
    /// meets one of the two, and a driver does not reset its queues. Packets meet the new
    /// one at once; under XDP the call returns some 10 ms later, behind an RCU grace period
    /// (`bpf_dispatcher_update`, Linux 6.18).
    ///
    /// # Errors
    ///
    /// What `BPF_LINK_UPDATE` returned; the attached program then stays.
    /// `ENOLINK` if somebody has detached the link.
    pub fn update(&self, program: &Program) -> io::Result<()> {
        let mut attr = sys::LinkUpdate {
            link_fd: self.link.as_raw_fd() as u32,
            new_prog_fd: program.fd().as_raw_fd() as u32,
            ..sys::LinkUpdate::default()
        };
        // SAFETY: the block holds no pointers.
        unsafe { sys::bpf(Command::LinkUpdate, &mut attr) }?;
        Ok(())
    }

    /// The same exchange for another thread to make, unless `old` is not the attached one
    /// any more by then.
    ///
    /// # Errors
    ///
    /// When no descriptor can be had.
    pub fn exchange(&self, old: &Program, new: &Program) -> io::Result<Exchange> {
        Ok(Exchange {
            link: self.link.try_clone()?,
            old: old.fd().try_clone_to_owned()?,
            new: new.fd().try_clone_to_owned()?,
        })
    }

    /// Whether the program is still on its interface: not after somebody has
    /// detached the link or deleted the interface.
    #[must_use]
    pub fn is_attached(&self) -> bool {
        owner::link_ifindex(&self.link).is_ok_and(|ifindex| ifindex != 0)
    }

    /// Detaches it, and keeps what is left of the link.
    ///
    /// # Errors
    ///
    /// What `BPF_LINK_DETACH` returned.
    pub fn release(&self) -> io::Result<()> {
        detach(&self.link)
    }

    /// Detaches as dropping does, and says whether that worked.
    ///
    /// # Errors
    ///
    /// What `BPF_LINK_DETACH` returned.
    pub fn detach(self) -> io::Result<()> {
        detach(&self.link)
    }
}

/// An exchange of programs that is to be made.
#[derive(Debug)]
pub struct Exchange {
    link: OwnedFd,
    old: OwnedFd,
    new: OwnedFd,
}

impl Exchange {
    /// Makes it, as [`Attached::update`] does.
    ///
    /// # Errors
    ///
    /// The same; `EPERM` if there is another program than the old one.
    pub fn make(&self) -> io::Result<()> {
        const BPF_F_REPLACE: u32 = 1 << 2;
        let mut attr = sys::LinkUpdate {
            link_fd: self.link.as_raw_fd() as u32,
            new_prog_fd: self.new.as_raw_fd() as u32,
            flags: BPF_F_REPLACE,
            old_prog_fd: self.old.as_raw_fd() as u32,
        };
        // SAFETY: the block holds no pointers.
        unsafe { sys::bpf(Command::LinkUpdate, &mut attr) }?;
        Ok(())
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        // It may be detached already; if it cannot be, closing the fd is next.
        let _ = detach(&self.link);
    }
}

/// Detaches a link, whoever else holds it.
pub(crate) fn detach(link: &OwnedFd) -> io::Result<()> {
    let mut attr = sys::LinkDetach {
        link_fd: link.as_raw_fd() as u32,
    };
    // SAFETY: the block holds no pointers.
    unsafe { sys::bpf(Command::LinkDetach, &mut attr) }?;
    Ok(())
}
