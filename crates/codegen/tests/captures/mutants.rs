//! The comparison sees what it is there to see: an entry program without its looks
//! at the frame's end, or at checksums, comes to something else with some frame.

use ashway_rig::captures::{Captures, Links};

use super::interpreter::One;
use super::user::User;
use super::world::{FEW, LONGEST, OUR_MAC, OrderScope, Rung};

/// A jump if something lies behind `r8`, the frame's end (RFC 9669).
fn is_end(insn: u64) -> bool {
    insn & 0xff == 0x2d && insn >> 12 & 15 == 8
}

/// A jump if a sum, times the inverse of 0xffff, is no quotient: it is not all ones.
fn is_checksum(insn: u64) -> bool {
    insn & 0xff == 0x25 && insn >> 32 == 0x7fff_ffff
}

#[test]
fn a_program_without_a_check_is_noticed() {
    let Some(captures) = Captures::read(Links::Any, 40) else {
        return;
    };
    let mut user = User::new();
    for (rung, check) in [
        (Rung::Xdp, is_end as fn(u64) -> bool),
        (Rung::Xdp, is_checksum),
        (Rung::XdpArray, is_checksum),
        (Rung::Tcx, is_end),
        (Rung::Tcx, is_checksum),
    ] {
        let mut one = One::new(&user.table, rung, FEW[0], OrderScope::Ring);
        let checks = one.entry.insns.iter_mut().filter(|insn| check(**insn));
        let left_out = checks.map(|insn| *insn = 0x05 /* ja +0 */).count();
        assert!(left_out >= 3, "{left_out}");
        let mut noticed = 0;
        captures.replay(100, OUR_MAC, |frame| {
            if noticed == 0 && frame.len() <= LONGEST {
                let wanted = user.end(OrderScope::Ring, frame);
                noticed += u32::from(one.try_end(frame) != Some(wanted));
            }
        });
        assert!(noticed > 0, "{rung:?}");
    }
}
