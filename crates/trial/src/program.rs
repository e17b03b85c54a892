//! From a generated image to a program in the kernel.
//!
//! `codegen` names maps by their role and loads nothing; `kernel` wants file
//! descriptors and generates nothing. This joins the two, for trials and nodes
//! alike.

use std::os::fd::BorrowedFd;

use ashway_check::bpf::{Btf, Hook, Image, MapRef};
use ashway_kernel::{BtfInfo, LoadError, MapFixup, Program, ProgramKind, ProgramSpec};

/// Loads `image`, over the maps that `fd` names. Milliseconds for an ordinary
/// program; the verifier may need minutes for one that nobody has limited.
///
/// # Errors
///
/// What the kernel said ([`LoadError`]).
pub fn load<'m>(
    name: &str,
    image: &Image,
    fd: impl Fn(MapRef) -> BorrowedFd<'m>,
) -> Result<Program, LoadError> {
    with_spec(name, image, kind(image), fd, Program::load)
}

/// The same; under XDP for frames in several buffers, too.
///
/// # Errors
///
/// As [`load`].
pub fn load_for_frags<'m>(
    name: &str,
    image: &Image,
    fd: impl Fn(MapRef) -> BorrowedFd<'m>,
) -> Result<Program, LoadError> {
    let kind = match image.hook {
        Hook::Xdp => ProgramKind::XdpFrags,
        Hook::Tcx => kind(image),
    };
    with_spec(name, image, kind, fd, Program::load)
}

/// Everything that the verifier says about an image it accepts.
///
/// # Errors
///
/// As [`load`].
pub fn verifier_log<'m>(
    name: &str,
    image: &Image,
    fd: impl Fn(MapRef) -> BorrowedFd<'m>,
) -> Result<String, LoadError> {
    with_spec(name, image, kind(image), fd, Program::verifier_log)
}

const fn kind(image: &Image) -> ProgramKind {
    match image.hook {
        Hook::Xdp => ProgramKind::Xdp,
        Hook::Tcx => ProgramKind::SchedCls,
    }
}

fn with_spec<'m, R>(
    name: &str,
    image: &Image,
    kind: ProgramKind,
    fd: impl Fn(MapRef) -> BorrowedFd<'m>,
    give: impl FnOnce(&ProgramSpec<'_>) -> R,
) -> R {
    let fixup = |used: &ashway_check::bpf::MapUse| MapFixup {
        insn: used.insn,
        fd: fd(used.map),
        value_offset: used.value_offset,
    };
    let maps: Vec<MapFixup> = image.maps.iter().map(fixup).collect();
    // Without lines the kernel would have nothing to show.
    let btf = (!image.lines.is_empty()).then(|| {
        let count = image.insns.len() as u32;
        let btf = Btf::for_program(name, count, &image.lines, &image.subprograms());
        BtfInfo {
            bytes: btf.bytes,
            func_info: btf.func_info,
            line_info: btf.line_info,
        }
    });
    give(&ProgramSpec {
        name,
        kind,
        attach_type: 0,
        insns: &image.insns,
        maps: &maps,
        btf: btf.as_ref(),
    })
}
