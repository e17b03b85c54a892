//! Who has an interface, and taking our own programs off it.

use std::fmt;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use crate::attach::{self, NAME_PREFIX};
use crate::load::{ProgramInfo, program_info};
use crate::netlink::{self, XdpMode};
use crate::sys::{self, Command};

/// A program on an interface, and whose it is. What the caller may not
/// see (that takes `CAP_SYS_ADMIN`) is `None`.
#[derive(Clone, Debug)]
pub struct Owner {
    /// The program's id.
    pub prog_id: u32,
    /// Its name.
    pub prog_name: Option<String>,
    /// Who loaded it.
    pub uid: Option<u32>,
    /// How XDP runs it; `None` at TCX's ingress.
    pub mode: Option<XdpMode>,
    /// The link that holds it; none if it was attached by netlink.
    pub link_id: Option<u32>,
    /// A process that holds the link or the program; none if it is pinned, or
    /// was attached by netlink and left alone.
    pub process: Option<Process>,
}

impl Owner {
    fn of(mode: Option<XdpMode>, prog_id: u32, link_id: Option<u32>) -> Self {
        let info = program_by_id(prog_id).ok();
        Self {
            prog_id,
            prog_name: info.as_ref().map(name_of),
            uid: info.map(|info| info.created_by_uid),
            mode,
            link_id,
            process: match link_id {
                Some(id) => holder(&format!("link_id:\t{id}")),
                None => holder(&format!("prog_id:\t{prog_id}")),
            },
        }
    }

    /// Whether the program is Ashway's, by its name.
    #[must_use]
    pub fn is_ashway(&self) -> bool {
        is_ashway(self.prog_name.as_deref())
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hook = if self.mode.is_some() { "XDP" } else { "TCX" };
        write!(f, "{hook} program {}", self.prog_id)?;
        if let Some(name) = &self.prog_name {
            write!(f, " `{name}`")?;
        }
        if let Some(process) = &self.process {
            write!(f, " of process {} `{}`", process.pid, process.comm)?;
        }
        if let Some(uid) = self.uid {
            write!(f, ", loaded by uid {uid}")?;
        }
        Ok(())
    }
}

/// A process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// Its name.
    pub comm: String,
}

/// One of our links that was taken off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detached {
    /// The link's id.
    pub link_id: u32,
    /// The program it held.
    pub prog_id: u32,
    /// The program's name.
    pub prog_name: String,
    /// `xdp` or `tcx`.
    pub hook: &'static str,
    /// A process that held the link; none if it was pinned.
    pub process: Option<Process>,
}

/// Why nothing was detached.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DetachError {
    /// The XDP program is not ours.
    #[error("interface {ifindex} is held by {owner}, which is not Ashway's")]
    Foreign {
        /// The interface.
        ifindex: u32,
        /// Whose it is.
        owner: Owner,
    },
    /// The kernel did not answer or did not let us.
    #[error("cannot detach from interface {ifindex}")]
    Kernel {
        /// The interface.
        ifindex: u32,
        /// What it returned.
        #[source]
        errno: io::Error,
    },
}

/// Who has the interface's XDP hook, if anybody. Looks through `/proc` when
/// somebody does: takes some ms.
///
/// # Errors
///
/// What netlink returned; `ENODEV` if there is no such interface.
pub fn owner(ifindex: u32) -> io::Result<Option<Owner>> {
    let Some((mode, prog_id)) = netlink::link(ifindex)?.xdp else {
        return Ok(None);
    };
    let link_id = xdp_link(ifindex, prog_id).map(|(id, _)| id);
    Ok(Some(Owner::of(Some(mode), prog_id, link_id)))
}

/// Who has programs at the interface's TCX ingress, in the order in which they run. None on a
/// kernel without TCX. Looks through `/proc` for each: takes some ms.
#[must_use]
pub fn tcx_owners(ifindex: u32) -> Vec<Owner> {
    let links = tcx_links(ifindex).into_iter();
    // A program that `tc`'s netlink or an older attach call has put there has no link.
    let link_id = |id| (id != 0).then_some(id);
    links
        .map(|(prog_id, link)| Owner::of(None, prog_id, link_id(link)))
        .collect()
}

/// Takes Ashway's own links off an interface of the calling thread's
/// namespace, whichever process holds them, and says which. Foreign TCX
/// programs are left alone: several can live side by side.
///
/// Needs `CAP_SYS_ADMIN`.
///
/// # Errors
///
/// [`DetachError::Foreign`] if the XDP program there is not ours; nothing has
/// then been changed.
pub fn detach_ashway(ifindex: u32) -> Result<Vec<Detached>, DetachError> {
    let kernel = |errno| DetachError::Kernel { ifindex, errno };
    let mut found = Vec::new();
    if let Some((_, prog_id)) = netlink::link(ifindex).map_err(kernel)?.xdp {
        let name = name_of(&program_by_id(prog_id).map_err(kernel)?);
        // Closed at once: who holds it is asked, and that is not us.
        match xdp_link(ifindex, prog_id).map(|(link_id, _)| link_id) {
            Some(link_id) if is_ashway(Some(&name)) => {
                found.push(detached(link_id, prog_id, name, "xdp"));
            }
            _ => {
                // None if it went away by itself meanwhile.
                if let Some(owner) = owner(ifindex).map_err(kernel)? {
                    return Err(DetachError::Foreign { ifindex, owner });
                }
            }
        }
    }
    for (prog_id, link_id) in tcx_links(ifindex) {
        let name = name_of(&program_by_id(prog_id).map_err(kernel)?);
        if is_ashway(Some(&name)) {
            found.push(detached(link_id, prog_id, name, "tcx"));
        }
    }
    // All of them before the first goes: its node may drop the others then.
    let links = found.iter().map(|detached| link_by_id(detached.link_id));
    for link in links.collect::<io::Result<Vec<_>>>().map_err(kernel)? {
        attach::detach(&link).map_err(kernel)?;
    }
    if !found.is_empty() {
        // Who is not told looks once a minute.
        let _ = netlink::announce_no_xdp(ifindex);
    }
    Ok(found)
}

/// How an error message speaks of an owner that may be unknown.
pub(crate) fn describe(owner: Option<&Owner>) -> String {
    owner.map_or_else(
        || "an XDP program that this user may not see".to_owned(),
        Owner::to_string,
    )
}

fn detached(link_id: u32, prog_id: u32, prog_name: String, hook: &'static str) -> Detached {
    Detached {
        link_id,
        prog_id,
        prog_name,
        hook,
        process: holder(&format!("link_id:\t{link_id}")),
    }
}

fn is_ashway(prog_name: Option<&str>) -> bool {
    prog_name.is_some_and(|name| name.starts_with(NAME_PREFIX))
}

fn name_of(info: &ProgramInfo) -> String {
    let end = info.name.iter().position(|byte| *byte == 0);
    String::from_utf8_lossy(&info.name[..end.unwrap_or(info.name.len())]).into_owned()
}

pub(crate) fn program_by_id(id: u32) -> io::Result<ProgramInfo> {
    program_info(by_id(Command::ProgGetFdById, id)?.as_fd())
}

fn link_by_id(id: u32) -> io::Result<OwnedFd> {
    by_id(Command::LinkGetFdById, id)
}

fn by_id(command: Command, id: u32) -> io::Result<OwnedFd> {
    let mut attr = sys::ById {
        id,
        ..Default::default()
    };
    // SAFETY: the block holds no pointers, and both commands return an fd.
    unsafe { sys::bpf_fd(command, &mut attr) }
}

/// The start of `struct bpf_link_info` up to what XDP fills in.
#[derive(Default)]
#[repr(C)]
struct LinkInfo {
    kind: u32,
    id: u32,
    prog_id: u32,
    padding: u32,
    ifindex: u32,
    attach_type: u32,
}

/// `BPF_LINK_TYPE_XDP`.
const LINK_TYPE_XDP: u32 = 6;

/// The XDP link that holds this program on this interface, if one does.
///
/// Links know interface numbers but not namespaces, and the same number occurs
/// in each of them. So the program's id, which netlink told for the interface
/// meant, must fit too.
fn xdp_link(ifindex: u32, prog_id: u32) -> Option<(u32, OwnedFd)> {
    let mut attr = sys::ById::default();
    loop {
        // SAFETY: the block holds no pointers.
        unsafe { sys::bpf(Command::LinkGetNextId, &mut attr) }.ok()?;
        attr.id = attr.next_id;
        // A link may go away between the two calls.
        let Ok(fd) = link_by_id(attr.id) else {
            continue;
        };
        let info = link_info(&fd).unwrap_or_default();
        if (info.kind, info.ifindex, info.prog_id) == (LINK_TYPE_XDP, ifindex, prog_id) {
            return Some((attr.id, fd));
        }
    }
}

/// The interface that a link is attached to; 0 once it has been detached.
pub(crate) fn link_ifindex(fd: &OwnedFd) -> io::Result<u32> {
    link_info(fd).map(|info| info.ifindex)
}

fn link_info(fd: &OwnedFd) -> io::Result<LinkInfo> {
    let mut info = LinkInfo::default();
    let mut attr = sys::ObjectInfo {
        fd: fd.as_raw_fd() as u32,
        len: size_of::<LinkInfo>() as u32,
        info: std::ptr::from_mut(&mut info) as u64,
    };
    // SAFETY: `info` has room for `len` bytes, any bytes are a valid
    // `LinkInfo`, and zeroed lengths keep other kinds of link from writing
    // elsewhere.
    unsafe { sys::bpf(Command::ObjGetInfoByFd, &mut attr) }?;
    Ok(info)
}

/// Program and link ids at the interface's TCX ingress; none on a kernel
/// without TCX.
pub(crate) fn tcx_links(ifindex: u32) -> Vec<(u32, u32)> {
    let mut prog_ids = [0u32; 64];
    let mut link_ids = [0u32; 64];
    let mut attr = sys::ProgQuery {
        target: ifindex,
        attach_type: sys::ATTACH_TCX_INGRESS,
        prog_ids: prog_ids.as_mut_ptr() as u64,
        link_ids: link_ids.as_mut_ptr() as u64,
        count: prog_ids.len() as u32,
        ..Default::default()
    };
    // SAFETY: both arrays have room for `count` ids and outlive the call.
    if unsafe { sys::bpf(Command::ProgQuery, &mut attr) }.is_err() {
        return Vec::new();
    }
    let count = attr.count as usize;
    prog_ids.into_iter().zip(link_ids).take(count).collect()
}

/// The first process with an fd whose `/proc` description has this line.
fn holder(line: &str) -> Option<Process> {
    for process in fs::read_dir("/proc").ok()?.flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|n| n.parse().ok()) else {
            continue;
        };
        let Ok(fds) = fs::read_dir(process.path().join("fdinfo")) else {
            continue;
        };
        let held = fds
            .flatten()
            .filter_map(|fd| fs::read_to_string(fd.path()).ok())
            .any(|text| text.lines().any(|has| has == line));
        if held {
            let comm = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            return Some(Process {
                pid,
                comm: comm.trim_end().to_owned(),
            });
        }
    }
    None
}
