//! Asking rtnetlink about one interface.
//!
//! Netlink and not `/sys/class/net`: `/sys` shows the namespace it was mounted
//! in, which need not be the calling thread's.
//!
//! Source: rtnetlink(7), `include/uapi/linux/if_link.h`.

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, netlink,
};

/// What rtnetlink says about an interface.
#[derive(Clone, Debug, Default)]
pub(crate) struct Link {
    pub(crate) ifindex: u32,
    pub(crate) name: String,
    pub(crate) flags: u32,
    /// `ARPHRD_*`: how its frames begin.
    pub(crate) hardware: u16,
    pub(crate) mac: [u8; 6],
    pub(crate) mtu: u32,
    /// Link kind, e.g. `veth`; empty for hardware.
    pub(crate) kind: String,
    pub(crate) rx_queues: u32,
    pub(crate) tx_queues: u32,
    /// The first eight words of `struct rtnl_link_stats64`: packets, bytes,
    /// errors and drops, each received and sent.
    pub(crate) stats: [u64; 8],
    /// How an XDP program is attached, and its id.
    pub(crate) xdp: Option<(XdpMode, u32)>,
}

/// `IFLA_XDP_ATTACHED`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpMode {
    /// In the driver.
    Native,
    /// In the kernel's generic receive code.
    Generic,
    /// In the device, or several at once.
    Other,
}

const NLMSG_ERROR: u16 = 2;
const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const RTM_SETLINK: u16 = 19;
pub(crate) const NLM_F_REQUEST: u16 = 1;
pub(crate) const NLM_F_ACK: u16 = 4;
pub(crate) const HEADER_BYTES: usize = 16;
const IFINFO_BYTES: usize = 16;

const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_STATS64: u16 = 23;
const IFLA_NUM_TX_QUEUES: u16 = 31;
const IFLA_NUM_RX_QUEUES: u16 = 32;
const IFLA_XDP: u16 = 43;
const NLA_F_NESTED: u16 = 1 << 15;
const IFLA_XDP_FD: u16 = 1;
const IFLA_XDP_ATTACHED: u16 = 2;
const IFLA_XDP_FLAGS: u16 = 3;
const IFLA_XDP_PROG_ID: u16 = 4;

/// The interface with this number, in the calling thread's namespace.
pub(crate) fn link(ifindex: u32) -> io::Result<Link> {
    request(ifindex, None)
}

/// The interface with this name, in the calling thread's namespace.
pub(crate) fn link_by_name(name: &str) -> io::Result<Link> {
    request(0, Some(name))
}

/// All interfaces of the calling thread's namespace. Linear in them; one that comes or goes
/// meanwhile may make it miss another.
pub(crate) fn links() -> io::Result<Vec<Link>> {
    const NLM_F_DUMP: u16 = 0x300;
    const NLMSG_DONE: u16 = 3;
    let mut message = vec![0; HEADER_BYTES + IFINFO_BYTES];
    message[4..6].copy_from_slice(&RTM_GETLINK.to_ne_bytes());
    message[6..8].copy_from_slice(&(NLM_F_REQUEST | NLM_F_DUMP).to_ne_bytes());
    let mut session = Session::open()?;
    session.ask(message)?;
    let mut all = Vec::new();
    loop {
        for message in messages(session.answer()?) {
            match u16_at(message, 4) {
                Some(NLMSG_DONE) => return Ok(all),
                _ => all.push(parse(message)?),
            }
        }
    }
}

fn request(ifindex: u32, name: Option<&str>) -> io::Result<Link> {
    let mut message = vec![0; HEADER_BYTES];
    message[4..6].copy_from_slice(&RTM_GETLINK.to_ne_bytes());
    message[6..8].copy_from_slice(&NLM_F_REQUEST.to_ne_bytes());
    // struct ifinfomsg: only the index is set.
    message.extend_from_slice(&[0; 4]);
    message.extend_from_slice(&ifindex.to_ne_bytes());
    message.extend_from_slice(&[0; 8]);
    if let Some(name) = name {
        message.extend_from_slice(&((4 + name.len() + 1) as u16).to_ne_bytes());
        message.extend_from_slice(&IFLA_IFNAME.to_ne_bytes());
        message.extend_from_slice(name.as_bytes());
        message.push(0);
        message.resize(message.len().next_multiple_of(4), 0);
    }
    parse(&exchange(message)?)
}

/// Has the kernel tell everybody who listens to changes of interfaces that this one has no
/// XDP program. It tells so by itself when one is taken away by rtnetlink, and not when a
/// link is detached (`bpf_xdp_link_release` in `net/core/dev.c`, Linux 6.18).
///
/// It is asked to take away a program only if there is none: what somebody has attached
/// meanwhile stays (`EBUSY`).
pub(crate) fn announce_no_xdp(ifindex: u32) -> io::Result<()> {
    const XDP_FLAGS_UPDATE_IF_NOEXIST: u32 = 1;
    let mut message = vec![0; HEADER_BYTES];
    message[4..6].copy_from_slice(&RTM_SETLINK.to_ne_bytes());
    message[6..8].copy_from_slice(&(NLM_F_REQUEST | NLM_F_ACK).to_ne_bytes());
    message.extend_from_slice(&[0; 4]);
    message.extend_from_slice(&ifindex.to_ne_bytes());
    message.extend_from_slice(&[0; 8]);
    // IFLA_XDP, and in it the descriptor -1, which means none, and the flags.
    for half in [20, IFLA_XDP | NLA_F_NESTED, 8, IFLA_XDP_FD] {
        message.extend_from_slice(&half.to_ne_bytes());
    }
    message.extend_from_slice(&(-1_i32).to_ne_bytes());
    for half in [8, IFLA_XDP_FLAGS] {
        message.extend_from_slice(&half.to_ne_bytes());
    }
    message.extend_from_slice(&XDP_FLAGS_UPDATE_IF_NOEXIST.to_ne_bytes());
    error_of(&exchange(message)?).unwrap_or(Ok(()))
}

/// Sends a request to rtnetlink, whose length is filled in, and takes the answer.
pub(crate) fn exchange(message: Vec<u8>) -> io::Result<Vec<u8>> {
    let mut session = Session::open()?;
    session.ask(message)?;
    Ok(session.answer()?.to_vec())
}

/// A socket to netlink that is kept: opening one costs more than an answer does.
#[derive(Debug)]
pub(crate) struct Session {
    socket: OwnedFd,
    /// Of the last request.
    sequence: u32,
    answer: Vec<u8>,
}

impl Session {
    /// In the calling thread's network namespace, for good.
    pub(crate) fn open() -> io::Result<Self> {
        Self::to(None)
    }

    /// The same, to generic netlink.
    pub(crate) fn generic() -> io::Result<Self> {
        Self::to(Some(netlink::GENERIC))
    }

    /// `None` is rtnetlink.
    fn to(protocol: Option<Protocol>) -> io::Result<Self> {
        let socket = rustix::net::socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            protocol,
        )?;
        Ok(Self {
            socket,
            sequence: 0,
            answer: vec![0; 32 << 10],
        })
    }

    /// Sends a request, whose length and number are filled in.
    pub(crate) fn ask(&mut self, mut message: Vec<u8>) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let len = message.len() as u32;
        message[0..4].copy_from_slice(&len.to_ne_bytes());
        message[8..12].copy_from_slice(&self.sequence.to_ne_bytes());
        rustix::net::send(&self.socket, &message, SendFlags::empty())?;
        Ok(())
    }

    /// What comes next in answer to the last request: one message, or several of a
    /// longer answer. What is left of the answers to others is passed over.
    pub(crate) fn answer(&mut self) -> io::Result<&[u8]> {
        loop {
            let answer = self.answer.as_mut_slice();
            let (received, _) = rustix::net::recv(&self.socket, answer, RecvFlags::empty())?;
            if u32_at(&self.answer[..received], 8).is_none_or(|of| of == self.sequence) {
                return Ok(&self.answer[..received]);
            }
        }
    }
}

/// The messages that lie one after the other in an answer.
pub(crate) fn messages(mut answer: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let len = u32_at(answer, 0)? as usize;
        let message = answer.get(..len).filter(|_| len >= HEADER_BYTES)?;
        answer = answer.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    })
}

/// The error that an answer says; `None` if it is another answer. 0 is none.
pub(crate) fn error_of(answer: &[u8]) -> Option<io::Result<()>> {
    (u16_at(answer, 4)? == NLMSG_ERROR).then(|| match u32_at(answer, HEADER_BYTES) {
        Some(0) => Ok(()),
        Some(errno) => Err(io::Error::from_raw_os_error(-(errno as i32))),
        None => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "a short netlink message",
        )),
    })
}

fn parse(message: &[u8]) -> io::Result<Link> {
    let short = || io::Error::new(io::ErrorKind::InvalidData, "a short netlink message");
    let kind = u16_at(message, 4).ok_or_else(short)?;
    if kind == NLMSG_ERROR {
        let errno = u32_at(message, HEADER_BYTES).ok_or_else(short)? as i32;
        return Err(io::Error::from_raw_os_error(-errno));
    }
    if kind != RTM_NEWLINK {
        return Err(short());
    }
    let attributes = message
        .get(HEADER_BYTES + IFINFO_BYTES..)
        .ok_or_else(short)?;
    let mut link = Link {
        ifindex: u32_at(message, HEADER_BYTES + 4).ok_or_else(short)?,
        flags: u32_at(message, HEADER_BYTES + 8).ok_or_else(short)?,
        hardware: u16_at(message, HEADER_BYTES + 2).ok_or_else(short)?,
        ..Link::default()
    };
    for (kind, value) in Attributes(attributes) {
        match kind {
            IFLA_ADDRESS => {
                if let Ok(mac) = value.try_into() {
                    link.mac = mac;
                }
            }
            IFLA_IFNAME => link.name = text(value),
            IFLA_MTU => link.mtu = u32_at(value, 0).unwrap_or(0),
            IFLA_LINKINFO => {
                link.kind = Attributes(value)
                    .find(|(kind, _)| *kind == IFLA_INFO_KIND)
                    .map(|(_, value)| text(value))
                    .unwrap_or_default();
            }
            IFLA_STATS64 => {
                let (words, _) = value.as_chunks::<8>();
                for (to, word) in link.stats.iter_mut().zip(words) {
                    *to = u64::from_ne_bytes(*word);
                }
            }
            IFLA_NUM_TX_QUEUES => link.tx_queues = u32_at(value, 0).unwrap_or(0),
            IFLA_NUM_RX_QUEUES => link.rx_queues = u32_at(value, 0).unwrap_or(0),
            IFLA_XDP => link.xdp = xdp(value),
            _ => {}
        }
    }
    Ok(link)
}

fn xdp(attribute: &[u8]) -> Option<(XdpMode, u32)> {
    let mut mode = None;
    let mut id = None;
    for (kind, value) in Attributes(attribute) {
        match kind {
            IFLA_XDP_ATTACHED => {
                mode = match value.first()? {
                    0 => None,
                    1 => Some(XdpMode::Native),
                    2 => Some(XdpMode::Generic),
                    _ => Some(XdpMode::Other),
                }
            }
            IFLA_XDP_PROG_ID => id = u32_at(value, 0),
            _ => {}
        }
    }
    Some((mode?, id.unwrap_or(0)))
}

/// Walks over `struct nlattr`s; ends at the first that does not fit.
pub(crate) struct Attributes<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let len = usize::from(u16_at(self.0, 0)?);
        // The two highest bits mark nesting and byte order.
        let kind = u16_at(self.0, 2)? & 0x3fff;
        let value = self.0.get(4..len)?;
        self.0 = self.0.get(len.next_multiple_of(4)..).unwrap_or(&[]);
        Some((kind, value))
    }
}

fn text(value: &[u8]) -> String {
    let end = value.iter().position(|byte| *byte == 0);
    String::from_utf8_lossy(&value[..end.unwrap_or(value.len())]).into_owned()
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes
        .get(at..)?
        .first_chunk()
        .map(|b| u16::from_ne_bytes(*b))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes
        .get(at..)?
        .first_chunk()
        .map(|b| u32::from_ne_bytes(*b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_number_one_by_either_key() {
        let by_name = link_by_name("lo").expect("every namespace has lo");
        assert_eq!((by_name.ifindex, by_name.name.as_str()), (1, "lo"));
        assert_eq!(link(1).expect("lo is number 1").name, "lo");
        let all = links().expect("the kernel lists them");
        assert!(
            all.iter()
                .any(|link| link.ifindex == 1 && link.name == "lo")
        );
        let error = link_by_name("no-such-if").expect_err("no such interface");
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
    }

    #[test]
    fn attributes_of_nonsense_end() {
        assert_eq!(Attributes(&[0; 64]).next(), None);
        assert_eq!(Attributes(&[255; 64]).count(), 0);
        assert_eq!(Attributes(&[4, 0]).count(), 0);
    }

    #[test]
    fn messages_of_nonsense_end() {
        assert_eq!(messages(&[0; 64]).count(), 0);
        assert_eq!(messages(&[255; 64]).count(), 0);
        let mut two = [0; 40];
        (two[0], two[16]) = (16, 24);
        let lengths: Vec<_> = messages(&two).map(<[u8]>::len).collect();
        assert_eq!(lengths, [16, 24]);
        assert_eq!(messages(&two[..39]).count(), 1);
    }
}
