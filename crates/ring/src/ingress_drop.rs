//! Keeps a path's messages from the host's stack where XDP may not be attached.
//!
//! An `AF_PACKET` socket gets a copy; the host's stack gets the packet too and
//! would answer it a second time (or refuse it by ICMP). A chain at the
//! interface's ingress hook drops the host's copy. Taps run before that hook
//! (`__netif_receive_skb_core` in the kernel), so the socket still sees
//! everything.
//!
//! The chain lives in a table with `flags owner`: the kernel removes it when the
//! netlink socket of its owner is closed. The owner is a child process,
//! `nft -i`, that reads commands from a pipe and ends when the pipe does. So the
//! host gets its packets back when [`IngressDrop`] is dropped *and* when this
//! process is killed, and no other process can change the rules meanwhile.
//!
//! Needs the nftables package (nft 1.0) and `CAP_NET_ADMIN` in the network
//! namespace, which an ordinary user has inside `unshare -Urn`. Minimum kernel:
//! 5.12, for `flags owner`.

use std::fmt::Write as _;
use std::io::{self, PipeReader, Read, Write as _};
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Longest wait for nft; it takes a few milliseconds.
const PATIENCE: Duration = Duration::from_secs(3);

/// Address family of a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

/// A range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Net {
    /// Any address in the range.
    pub address: IpAddr,
    /// Leading bits that count.
    pub prefix_len: u8,
}

impl From<IpAddr> for Net {
    fn from(address: IpAddr) -> Self {
        let prefix_len = if address.is_ipv4() { 32 } else { 128 };
        Self {
            address,
            prefix_len,
        }
    }
}

/// A range of ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// The first port in the range.
    pub first: u16,
    /// The last one.
    pub last: u16,
}

impl From<u16> for Ports {
    fn from(port: u16) -> Self {
        Self {
            first: port,
            last: port,
        }
    }
}

/// What a path matches: UDP, and whatever is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Match {
    /// Only this address family.
    pub family: Option<Family>,
    /// Only from here.
    pub source: Option<Net>,
    /// Only to here.
    pub destination: Option<Net>,
    /// Only from these ports.
    pub source_port: Option<Ports>,
    /// Only to these ports.
    pub destination_port: Option<Ports>,
}

/// Why the host's copies cannot be dropped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IngressDropError {
    /// nft was not found.
    #[error("the program nft was not found")]
    NoNft,
    /// The name cannot be written in nft's language.
    #[error("interface name {0:?} cannot be used in an nft rule")]
    BadName(String),
    /// There is no such interface. Recent kernels would take the rules all the
    /// same and wait for it.
    #[error("there is no interface {0}")]
    NoInterface(String),
    /// nft or the kernel refused the rules.
    #[error("nft: {0}")]
    Refused(String),
    /// nft could not be run or talked to.
    #[error("running nft")]
    Os(#[from] io::Error),
}

impl IngressDropError {
    /// What the operator can do about it.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NoNft => "apt-get install nftables",
            Self::BadName(_) => "rename the interface: `ip link set OLD name NEW`",
            Self::NoInterface(_) => "`ip link show` lists the interfaces",
            Self::Refused(_) => {
                "needs CAP_NET_ADMIN (`unshare -Urn` gives it) and a kernel with \
                 CONFIG_NF_TABLES_NETDEV"
            }
            Self::Os(_) => "`nft --version` should say 1.0 or later",
        }
    }
}

/// The rules, for as long as this lives.
#[derive(Debug)]
pub struct IngressDrop {
    table: String,
    nft: Child,
    /// Closing it ends nft; `None` only while dropping.
    commands: Option<ChildStdin>,
    answers: PipeReader,
}

impl IngressDrop {
    /// Drops at the ingress of `interface` whatever one of `matches` matches.
    /// Starts a process and waits for it, about 10 ms.
    ///
    /// # Errors
    ///
    /// [`IngressDropError`]; nothing is left behind then.
    pub fn install(interface: &str, matches: &[Match]) -> Result<Self, IngressDropError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "_.-@+".contains(c);
        if interface.is_empty() || !interface.chars().all(plain) {
            return Err(IngressDropError::BadName(interface.to_owned()));
        }
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        if rustix::net::netdevice::name_to_index(&socket, interface).is_err() {
            return Err(IngressDropError::NoInterface(interface.to_owned()));
        }
        let table = table_name(interface, std::process::id());
        let (nft, commands, answers) = start_nft()?;
        let mut this = Self {
            table,
            nft,
            commands: Some(commands),
            answers,
        };
        let table = &this.table;
        let create = format!(
            "table netdev {table} {{ flags owner; chain ingress {{ type filter hook ingress \
             device \"{interface}\" priority 0; policy accept; }}; }}; {}",
            rules(table, matches)
        );
        this.run(&create)?;
        Ok(this)
    }

    /// Puts other matches in place of the present ones, in one transaction: no
    /// packet sees neither or both.
    ///
    /// # Errors
    ///
    /// [`IngressDropError`]; the present ones stay then.
    pub fn replace(&mut self, matches: &[Match]) -> Result<(), IngressDropError> {
        let table = &self.table;
        let commands = format!(
            "flush chain netdev {table} ingress; {}",
            rules(table, matches)
        );
        self.run(&commands)
    }

    /// Name of the table, as `nft list tables` shows it.
    #[must_use]
    pub fn table(&self) -> &str {
        &self.table
    }

    /// Runs one line, a transaction. nft says nothing when all is well, so a
    /// `list` follows it, whose answer shows that the line was done.
    fn run(&mut self, line: &str) -> Result<(), IngressDropError> {
        let Self {
            table,
            commands: Some(commands),
            answers,
            ..
        } = self
        else {
            return Err(io::Error::from(io::ErrorKind::BrokenPipe).into());
        };
        let listing = format!("list table netdev {table}");
        commands.write_all(format!("{line}\n{listing}\n").as_bytes())?;
        let answer = read_until(answers, |answer| {
            // The table's closing brace, or the complaint that quotes the
            // `list` because there is no such table.
            answer
                .split_inclusive('\n')
                .any(|line| line == "}\n" || line == format!("{listing}\n"))
        })?;
        match answer.find("Error") {
            Some(at) => {
                let reason = answer[at..].lines().next().unwrap_or_default();
                let reason = reason.trim_start_matches("Error: ");
                Err(IngressDropError::Refused(reason.to_owned()))
            }
            None => Ok(()),
        }
    }
}

impl Drop for IngressDrop {
    fn drop(&mut self) {
        drop(self.commands.take());
        // It ends at the end of its input; if it hangs, its end by force frees
        // the table just as well.
        let _ = read_until(&mut self.answers, |_| false);
        let _ = self.nft.kill();
        let _ = self.nft.wait();
    }
}

fn start_nft() -> Result<(Child, ChildStdin, PipeReader), IngressDropError> {
    let (answers, answers_writer) = io::pipe()?;
    // An ordinary user's PATH has no sbin.
    for program in ["nft", "/usr/sbin/nft", "/sbin/nft"] {
        let started = Command::new(program)
            .arg("-i")
            .stdin(Stdio::piped())
            .stdout(answers_writer.try_clone()?)
            .stderr(answers_writer.try_clone()?)
            // Ctrl-C is for the node, which ends nft in its own time.
            .process_group(0)
            .spawn();
        match started {
            Ok(mut nft) => {
                let commands = nft
                    .stdin
                    .take()
                    .ok_or_else(|| io::Error::from(io::ErrorKind::BrokenPipe))?;
                return Ok((nft, commands, answers));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(IngressDropError::NoNft)
}

/// Reads until `done` says so or the other side closes, for [`PATIENCE`] at most.
fn read_until(answers: &mut PipeReader, done: impl Fn(&str) -> bool) -> io::Result<String> {
    let deadline = Instant::now() + PATIENCE;
    let mut answer = String::new();
    let mut bytes = [0; 4096];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
        let mut waiting = [PollFd::new(answers, PollFlags::IN)];
        if poll(&mut waiting, Some(&timeout))? == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let read = answers.read(&mut bytes)?;
        answer.push_str(&String::from_utf8_lossy(&bytes[..read]));
        if read == 0 || done(&answer) {
            return Ok(answer);
        }
    }
}

/// nft identifiers are letters, digits, `_`, `.`, `/` and `\`.
fn table_name(interface: &str, pid: u32) -> String {
    let plain = interface.replace(|c: char| !c.is_ascii_alphanumeric(), "_");
    format!("ashway_{plain}_{pid}")
}

/// One rule for each match and address family it allows.
///
/// The conditions are those of `Datagram::parse` in `ashway-wire`: unicast on the
/// link, and UDP directly after the IP header. nft itself does not match ports
/// in later fragments or in packets that are too short. Frames with a VLAN tag
/// come first: at this hook the tag is off, and the rest would match.
fn rules(table: &str, matches: &[Match]) -> String {
    let mut text =
        format!("add rule netdev {table} ingress ether type {{ 8021q, 8021ad }} accept; ");
    for each in matches {
        for family in [Family::Ipv4, Family::Ipv6] {
            if let Some(conditions) = conditions(each, family) {
                // Writing to a string cannot fail.
                let _ = write!(
                    text,
                    "add rule netdev {table} ingress ether daddr & 01:00:00:00:00:00 == \
                     00:00:00:00:00:00 {conditions} counter drop; "
                );
            }
        }
    }
    text
}

/// `None` if the match allows no packet of the family.
fn conditions(wanted: &Match, family: Family) -> Option<String> {
    if wanted.family.is_some_and(|only| only != family) {
        return None;
    }
    let (name, udp) = match family {
        Family::Ipv4 => ("ip", "ip protocol udp"),
        Family::Ipv6 => ("ip6", "ip6 nexthdr udp"),
    };
    let mut text = udp.to_owned();
    for (key, net) in [("saddr", wanted.source), ("daddr", wanted.destination)] {
        let Some(Net {
            address,
            prefix_len,
        }) = net
        else {
            continue;
        };
        if address.is_ipv4() != (family == Family::Ipv4) {
            return None;
        }
        // A range of everything is no condition, and nft refuses it.
        if prefix_len > 0 {
            let _ = write!(text, " {name} {key} {address}/{prefix_len}");
        }
    }
    for (key, port) in [
        ("sport", wanted.source_port),
        ("dport", wanted.destination_port),
    ] {
        match port {
            Some(Ports { first, last }) if first == last => {
                let _ = write!(text, " udp {key} {first}");
            }
            Some(Ports { first, last }) => {
                let _ = write!(text, " udp {key} {first}-{last}");
            }
            None => {}
        }
    }
    Some(text)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    const UNICAST: &str = "ether daddr & 01:00:00:00:00:00 == 00:00:00:00:00:00";
    const TAGGED: &str = "add rule netdev t ingress ether type { 8021q, 8021ad } accept; ";

    #[test]
    fn a_port_alone_is_dropped_in_both_families() {
        let wanted = Match {
            destination_port: Some(7777.into()),
            ..Match::default()
        };
        assert_eq!(
            rules("t", &[wanted]),
            format!(
                "{TAGGED}\
                 add rule netdev t ingress {UNICAST} ip protocol udp udp dport 7777 counter drop; \
                 add rule netdev t ingress {UNICAST} ip6 nexthdr udp udp dport 7777 counter drop; "
            )
        );
    }

    #[test]
    fn addresses_choose_the_family() {
        let wanted = Match {
            source: Some(Net {
                address: "10.0.0.0".parse().unwrap(),
                prefix_len: 8,
            }),
            destination: Some(Net::from("10.0.0.1".parse::<IpAddr>().unwrap())),
            source_port: Some(1.into()),
            destination_port: Some(Ports { first: 2, last: 3 }),
            family: None,
        };
        assert_eq!(conditions(&wanted, Family::Ipv6), None);
        assert_eq!(
            conditions(&wanted, Family::Ipv4).unwrap(),
            "ip protocol udp ip saddr 10.0.0.0/8 ip daddr 10.0.0.1/32 udp sport 1 udp dport 2-3"
        );
        let contradiction = Match {
            family: Some(Family::Ipv6),
            ..wanted
        };
        assert_eq!(rules("t", &[contradiction]), TAGGED);
    }

    #[test]
    fn names_are_made_fit_or_refused() {
        assert_eq!(table_name("veth-a.7", 42), "ashway_veth_a_7_42");
        for name in ["", "a\"b", "a b", "a;b", "a\nb"] {
            assert!(matches!(
                IngressDrop::install(name, &[]),
                Err(IngressDropError::BadName(_))
            ));
        }
    }
}
