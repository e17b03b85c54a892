//! The kernel's neighbour table: which hardware address an address on a link has.
//!
//! Source: rtnetlink(7), `include/uapi/linux/neighbour.h`; RFC 826 and RFC 4861 are
//! what the kernel does when it is [asked](ask).

use std::io;
use std::net::IpAddr;

use crate::netlink::{
    Attributes, HEADER_BYTES, NLM_F_ACK, NLM_F_REQUEST, Session, error_of, messages, u16_at,
};

const RTM_GETROUTE: u16 = 26;
const RTM_NEWNEIGH: u16 = 28;
const RTM_GETNEIGH: u16 = 30;
const NLMSG_DONE: u16 = 3;
const NLM_F_DUMP: u16 = 0x300;
const NLM_F_CREATE: u16 = 0x400;

/// Length of `struct ndmsg` and of `struct rtmsg`.
const BODY_BYTES: usize = 12;
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
const NDA_IFINDEX: u16 = 8;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;

/// `NTF_USE`: as if a packet were sent there.
const NTF_USE: u8 = 1;
/// States in which the hardware address may be used: reachable, stale, delay, probe,
/// noarp, permanent (`NUD_VALID`).
const VALID: u16 = 0xde;
/// Of them, those in which the kernel has no doubt.
const CONNECTED: u16 = 0xc2;

/// What the kernel knows of a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Its hardware address.
    pub mac: [u8; 6],
    /// Whether the kernel is sure of it; it makes sure of others when it is
    /// [asked](ask).
    pub is_sure: bool,
}

/// The kernel's tables of routes and neighbours, of the network namespace of the thread
/// that opened them. One question costs a few microseconds.
#[derive(Debug)]
pub struct Tables(Session);

impl Tables {
    /// Opens them: one socket, for all questions.
    ///
    /// # Errors
    ///
    /// What `socket(2)` said.
    pub fn open() -> io::Result<Self> {
        Session::open().map(Self)
    }

    /// The address on the link that packets to `to` are handed to: a gateway's, or `to`
    /// itself.
    ///
    /// # Errors
    ///
    /// What rtnetlink said; `ENETUNREACH` if there is no route by this interface.
    pub fn next_hop(&mut self, ifindex: u32, to: IpAddr) -> io::Result<IpAddr> {
        let mut body = [0; BODY_BYTES];
        body[0] = family(to);
        body[1] = match to {
            IpAddr::V4(_) => 32,
            IpAddr::V6(_) => 128,
        };
        let mut message = request(RTM_GETROUTE, 0, &body);
        attribute(&mut message, RTA_DST, &octets(to));
        attribute(&mut message, RTA_OIF, &ifindex.to_ne_bytes());
        let answer = self.exchange(message)?;
        if let Some(error) = error_of(answer) {
            return error.map(|()| to);
        }
        let gateway = attributes(answer).find(|(kind, _)| *kind == RTA_GATEWAY);
        Ok(gateway.and_then(|(_, value)| address(value)).unwrap_or(to))
    }

    /// What the kernel knows of a neighbour on a link; `None` if it does not know its
    /// hardware address.
    ///
    /// # Errors
    ///
    /// What rtnetlink said.
    pub fn find(&mut self, ifindex: u32, of: IpAddr) -> io::Result<Option<Neighbour>> {
        let mut message = request(RTM_GETNEIGH, 0, &ndmsg(ifindex, of, 0));
        attribute(&mut message, NDA_DST, &octets(of));
        let answer = self.exchange(message)?;
        match error_of(answer) {
            Some(Err(error)) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(None),
            Some(error) => return error.map(|()| None),
            None => {}
        }
        Ok(neighbour(answer).map(|(_, found)| found))
    }

    /// The neighbours on a link whose hardware addresses the kernel knows. Linear in its
    /// table, which has about a thousand at most (`gc_thresh3`). One that comes or goes
    /// meanwhile may make it miss another.
    ///
    /// # Errors
    ///
    /// What rtnetlink said.
    pub fn all(&mut self, ifindex: u32) -> io::Result<Vec<(IpAddr, Neighbour)>> {
        let mut message = request(RTM_GETNEIGH, NLM_F_DUMP, &[0; BODY_BYTES]);
        attribute(&mut message, NDA_IFINDEX, &ifindex.to_ne_bytes());
        self.0.ask(message)?;
        let mut all = Vec::new();
        loop {
            for message in messages(self.0.answer()?) {
                if let Some(error) = error_of(message) {
                    return error.map(|()| all);
                }
                match u16_at(message, 4) {
                    Some(NLMSG_DONE) => return Ok(all),
                    // Older kernels do not filter.
                    Some(RTM_NEWNEIGH) if message.get(20..24) == Some(&ifindex.to_ne_bytes()) => {
                        all.extend(neighbour(message));
                    }
                    _ => {}
                }
            }
        }
    }

    /// Has the kernel find a neighbour's hardware address, or make sure of it, as it does
    /// for a packet to send.
    ///
    /// # Errors
    ///
    /// What rtnetlink said (`CAP_NET_ADMIN`).
    pub fn ask(&mut self, ifindex: u32, of: IpAddr) -> io::Result<()> {
        let flags = NLM_F_ACK | NLM_F_CREATE;
        let mut message = request(RTM_NEWNEIGH, flags, &ndmsg(ifindex, of, NTF_USE));
        attribute(&mut message, NDA_DST, &octets(of));
        error_of(self.exchange(message)?).unwrap_or(Ok(()))
    }

    fn exchange(&mut self, message: Vec<u8>) -> io::Result<&[u8]> {
        self.0.ask(message)?;
        self.0.answer()
    }
}

/// The neighbour that an answer describes, if its hardware address may be used.
fn neighbour(answer: &[u8]) -> Option<(IpAddr, Neighbour)> {
    let state = answer.get(HEADER_BYTES + 8..).and_then(<[u8]>::first_chunk);
    let state = state.map_or(0, |state| u16::from_ne_bytes(*state));
    let find = |wanted| attributes(answer).find(|(kind, _)| *kind == wanted);
    let (_, mac) = find(NDA_LLADDR).filter(|_| state & VALID != 0)?;
    let (_, of) = find(NDA_DST)?;
    let found = Neighbour {
        mac: mac.try_into().ok()?,
        is_sure: state & CONNECTED != 0,
    };
    Some((address(of)?, found))
}

fn ndmsg(ifindex: u32, of: IpAddr, flags: u8) -> [u8; BODY_BYTES] {
    let mut body = [0; BODY_BYTES];
    body[0] = family(of);
    body[4..8].copy_from_slice(&ifindex.to_ne_bytes());
    body[10] = flags;
    body
}

/// A request without its length and attributes.
fn request(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
    let mut message = vec![0; HEADER_BYTES];
    message[4..6].copy_from_slice(&kind.to_ne_bytes());
    message[6..8].copy_from_slice(&(NLM_F_REQUEST | flags).to_ne_bytes());
    message.extend_from_slice(body);
    message
}

/// Appends an attribute; all of ours are as long as they should be, in words.
fn attribute(message: &mut Vec<u8>, kind: u16, value: &[u8]) {
    message.extend_from_slice(&((4 + value.len()) as u16).to_ne_bytes());
    message.extend_from_slice(&kind.to_ne_bytes());
    message.extend_from_slice(value);
}

fn attributes(answer: &[u8]) -> Attributes<'_> {
    Attributes(answer.get(HEADER_BYTES + BODY_BYTES..).unwrap_or_default())
}

const fn family(of: IpAddr) -> u8 {
    match of {
        IpAddr::V4(_) => libc::AF_INET as u8,
        IpAddr::V6(_) => libc::AF_INET6 as u8,
    }
}

fn octets(of: IpAddr) -> Vec<u8> {
    match of {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

fn address(value: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(value).ok().map(IpAddr::from);
    v4.or_else(|| <[u8; 16]>::try_from(value).ok().map(IpAddr::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_has_a_route_to_itself_and_no_strangers() {
        let mut tables = Tables::open().unwrap();
        let here = IpAddr::from([127, 0, 0, 1]);
        assert_eq!(tables.next_hop(1, here).expect("lo routes it"), here);
        let stranger = IpAddr::from([192, 0, 2, 77]);
        assert_eq!(tables.find(1, stranger).expect("lo is there"), None);
        let all = tables.all(1).expect("lo is there");
        assert!(
            all.iter().all(|(address, _)| *address != stranger),
            "{all:?}"
        );
        // What was asked last is what is answered.
        assert_eq!(tables.next_hop(1, here).expect("lo routes it"), here);
    }
}
