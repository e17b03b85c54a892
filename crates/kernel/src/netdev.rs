//! What a driver says it can do with XDP, without anything being attached.
//!
//! Source: the generic netlink family `netdev`, Linux 6.3
//! (`Documentation/netlink/specs/netdev.yaml`, `include/uapi/linux/netdev.h`). Asking takes
//! no capability.

use std::io;

use crate::netlink::{self, Attributes, HEADER_BYTES, NLM_F_REQUEST, Session, u16_at};

/// What a driver does with XDP (`enum netdev_xdp_act`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XdpFeatures(
    /// As the kernel has it.
    pub u64,
);

impl XdpFeatures {
    /// Its bits, with the names that the kernel gives them.
    const NAMES: [(u64, &str); 7] = [
        (1, "basic"),
        (1 << 1, "redirect"),
        (1 << 2, "ndo-xmit"),
        (1 << 3, "xsk-zerocopy"),
        (1 << 4, "hw-offload"),
        (1 << 5, "rx-sg"),
        (1 << 6, "ndo-xmit-sg"),
    ];

    /// Whether the driver itself runs programs, with each verdict of theirs: `basic` and
    /// `redirect`.
    #[must_use]
    pub const fn in_driver(self) -> bool {
        self.0 & 0b11 == 0b11
    }

    /// The names of all that it does.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let known = Self::NAMES.into_iter();
        known.filter_map(move |(bit, name)| (self.0 & bit != 0).then_some(name))
    }
}

const GENL_ID_CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const NETDEV_CMD_DEV_GET: u8 = 1;
const NETDEV_A_DEV_IFINDEX: u16 = 1;
const NETDEV_A_DEV_XDP_FEATURES: u16 = 3;
/// `struct genlmsghdr`.
const GENERIC_BYTES: usize = 4;

/// What the driver of this interface says; `None` where the kernel cannot be asked.
pub(crate) fn xdp_features(ifindex: u32) -> Option<XdpFeatures> {
    ask(ifindex).ok().flatten()
}

fn ask(ifindex: u32) -> io::Result<Option<XdpFeatures>> {
    let mut session = Session::generic()?;
    let name = (CTRL_ATTR_FAMILY_NAME, &b"netdev\0"[..]);
    let family = exchange(&mut session, GENL_ID_CTRL, CTRL_CMD_GETFAMILY, name)?;
    let id = attribute(&family, CTRL_ATTR_FAMILY_ID).and_then(|id| u16_at(id, 0));
    let id = id.ok_or(io::ErrorKind::InvalidData)?;
    let index = (NETDEV_A_DEV_IFINDEX, &ifindex.to_ne_bytes()[..]);
    let device = exchange(&mut session, id, NETDEV_CMD_DEV_GET, index)?;
    let features = attribute(&device, NETDEV_A_DEV_XDP_FEATURES);
    let bits = features.and_then(|bits| bits.first_chunk());
    Ok(bits.map(|bits| XdpFeatures(u64::from_ne_bytes(*bits))))
}

/// Sends a command of a family with one attribute, and takes the answer.
fn exchange(
    session: &mut Session,
    family: u16,
    command: u8,
    (kind, value): (u16, &[u8]),
) -> io::Result<Vec<u8>> {
    let mut message = vec![0; HEADER_BYTES];
    message[4..6].copy_from_slice(&family.to_ne_bytes());
    message[6..8].copy_from_slice(&NLM_F_REQUEST.to_ne_bytes());
    message.extend_from_slice(&[command, 1, 0, 0]);
    message.extend_from_slice(&(4 + value.len() as u16).to_ne_bytes());
    message.extend_from_slice(&kind.to_ne_bytes());
    message.extend_from_slice(value);
    message.resize(message.len().next_multiple_of(4), 0);
    session.ask(message)?;
    let answer = session.answer()?;
    netlink::error_of(answer).unwrap_or(Ok(()))?;
    Ok(answer.to_vec())
}

fn attribute(answer: &[u8], wanted: u16) -> Option<&[u8]> {
    let attributes = answer.get(HEADER_BYTES + GENERIC_BYTES..)?;
    Attributes(attributes).find_map(|(kind, value)| (kind == wanted).then_some(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_does_no_xdp_in_its_driver() {
        // A kernel before 6.3 does not say.
        let features = xdp_features(1);
        println!("lo: {features:?}");
        assert!(!features.unwrap_or_default().in_driver());
        assert_eq!(
            xdp_features(u32::MAX >> 1),
            None,
            "there is no such interface"
        );
    }

    #[test]
    fn features_have_the_kernels_names() {
        let names: Vec<_> = XdpFeatures(0b10_0011).names().collect();
        assert_eq!(names, ["basic", "redirect", "rx-sg"]);
        assert!(XdpFeatures(0b11).in_driver());
        assert!(!XdpFeatures(1).in_driver());
    }
}
