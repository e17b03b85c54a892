//! A flow as people write it: `udp 10.0.0.1:5000 > 10.0.0.2:7777`.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use ashway_wire::{Headers, eth, ipv4, ipv6};

/// How a flow is written.
pub(super) const FORM: &str = "write `udp 10.0.0.1:5000 > 10.0.0.2:7777`, with `[…]` around an \
    IPv6 address that has a port, and `vlan N` in front for a tagged one";

/// Between whom messages go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    /// VLAN ids, outermost first; at most [`eth::MAX_TAGS`].
    vlans: Vec<u16>,
    protocol: u8,
    source: SocketAddr,
    destination: SocketAddr,
}

/// Length of a TCP header without options; longer than the others'.
const TRANSPORT: u16 = 20;

/// The protocols that have a name here.
const PROTOCOLS: [(&str, u8); 5] = [
    ("udp", ipv4::PROTOCOL_UDP),
    ("tcp", ipv4::PROTOCOL_TCP),
    ("sctp", ipv4::PROTOCOL_SCTP),
    ("icmp", ipv4::PROTOCOL_ICMP),
    ("icmp6", ipv6::ICMPV6),
];

impl Flow {
    /// Reads it.
    ///
    /// # Errors
    ///
    /// What is wrong with it, in one line.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (head, destination) = text
            .split_once('>')
            .ok_or_else(|| format!("`{text}` has no `>` between its two ends"))?;
        let mut words: Vec<_> = head.split_whitespace().collect();
        let source = words.pop().ok_or("there is nothing in front of `>`")?;
        let mut words = words.into_iter();
        let mut vlans = Vec::new();
        let protocol = loop {
            match words.next() {
                Some("vlan") if vlans.len() == eth::MAX_TAGS => {
                    return Err(format!("there are at most {} VLAN tags", eth::MAX_TAGS));
                }
                Some("vlan") => {
                    let number = words.next().and_then(|word| word.parse().ok());
                    let number = number.filter(|number| *number < 4096);
                    vlans.push(number.ok_or("`vlan` needs a number from 0 to 4095")?);
                }
                Some("proto") => {
                    let number = words.next().and_then(|word| word.parse().ok());
                    break number.ok_or("`proto` needs a number from 0 to 255")?;
                }
                Some(word) => {
                    let known = PROTOCOLS.iter().find(|(name, _)| *name == word);
                    let (_, number) = known.ok_or_else(|| format!("`{word}` is no protocol"))?;
                    break *number;
                }
                None => return Err("the protocol is missing".to_owned()),
            }
        };
        if let Some(more) = words.next() {
            return Err(format!("`{more}` is one word too many"));
        }
        let has_ports = ipv4::has_ports(protocol);
        let source = end(source, has_ports)?;
        let destination = end(destination.trim(), has_ports)?;
        if source.is_ipv4() != destination.is_ipv4() {
            return Err("its ends are of two versions of IP".to_owned());
        }
        Ok(Self {
            vlans,
            protocol,
            source,
            destination,
        })
    }

    /// A frame of the flow: its headers, and zeros for what the flow does not say.
    #[must_use]
    pub fn frame(&self) -> Vec<u8> {
        let mut frame = vec![0; 12];
        let mut word = |number: u16| frame.extend(number.to_be_bytes());
        for vlan in &self.vlans {
            word(eth::TYPE_VLAN);
            word(*vlan);
        }
        match (self.source.ip(), self.destination.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                word(eth::TYPE_IPV4);
                word(0x4500);
                word(ipv4::HEADER_BYTES as u16 + TRANSPORT);
                word(0);
                word(0);
                word(64 << 8 | u16::from(self.protocol));
                word(0);
                frame.extend(source.octets());
                frame.extend(destination.octets());
            }
            (source, destination) => {
                word(eth::TYPE_IPV6);
                word(0x6000);
                word(0);
                word(TRANSPORT);
                word(u16::from(self.protocol) << 8 | 64);
                for address in [source, destination] {
                    if let IpAddr::V6(address) = address {
                        frame.extend(address.octets());
                    }
                }
            }
        }
        frame.extend(self.source.port().to_be_bytes());
        frame.extend(self.destination.port().to_be_bytes());
        frame.extend(TRANSPORT.to_be_bytes());
        frame.resize(frame.len() + usize::from(TRANSPORT) - 6, 0);
        frame
    }

    /// The flow that a frame with these headers belongs to, if it is one of IP.
    #[must_use]
    pub fn of(headers: &Headers) -> Option<Self> {
        let ip = |octets: [u8; 16]| match headers.ethertype {
            eth::TYPE_IPV4 => {
                let [a, b, c, d, ..] = octets;
                IpAddr::from([a, b, c, d])
            }
            _ => IpAddr::from(octets),
        };
        let known = matches!(headers.ethertype, eth::TYPE_IPV4 | eth::TYPE_IPV6);
        (known && headers.l3 != 0).then(|| Self {
            vlans: headers.vlan[..usize::from(headers.vlans)]
                .iter()
                .map(|tag| tag & 0xfff)
                .collect(),
            protocol: headers.protocol,
            source: SocketAddr::new(ip(headers.source), headers.source_port),
            destination: SocketAddr::new(ip(headers.destination), headers.destination_port),
        })
    }

    /// The filter that its messages match.
    #[must_use]
    pub fn filter(&self) -> String {
        let mut words: Vec<String> = self.vlans.iter().map(|id| format!("vlan {id}")).collect();
        let family = if self.source.is_ipv4() { "ip" } else { "ip6" };
        words.push(format!("{family} proto {}", self.protocol));
        for (side, end) in [("src", self.source), ("dst", self.destination)] {
            words.push(format!("{side} host {}", end.ip()));
            if end.port() != 0 {
                words.push(format!("{side} port {}", end.port()));
            }
        }
        words.join(" and ")
    }

    /// Whether handlers of the short form can have it: they take UDP alone.
    pub(super) fn is_udp(&self) -> bool {
        self.protocol == ipv4::PROTOCOL_UDP
    }
}

/// An address, with a port if the protocol has ports.
fn end(text: &str, has_ports: bool) -> Result<SocketAddr, String> {
    let address = || {
        text.parse()
            .map(|address: IpAddr| SocketAddr::new(address, 0))
    };
    if has_ports {
        text.parse().map_err(|_| match address() {
            Ok(_) => format!("`{text}` has no port"),
            Err(_) => format!("`{text}` is no address with a port"),
        })
    } else {
        address().map_err(|_| format!("`{text}` is no address"))
    }
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for vlan in &self.vlans {
            write!(f, "vlan {vlan} ")?;
        }
        let name = PROTOCOLS
            .iter()
            .find(|(_, number)| *number == self.protocol);
        match name {
            Some((name, _)) => f.write_str(name)?,
            None => write!(f, "proto {}", self.protocol)?,
        }
        if self.source.port() == 0 && self.destination.port() == 0 {
            write!(f, " {} > {}", self.source.ip(), self.destination.ip())
        } else {
            write!(f, " {} > {}", self.source, self.destination)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ashway_wire::Fragment;

    #[test]
    fn a_frame_of_a_flow_says_what_the_flow_says() {
        for text in [
            "udp 10.0.0.1:5000 > 10.0.0.2:7777",
            "vlan 5 tcp 10.0.0.1:5000 > 10.0.0.2:80",
            "vlan 5 vlan 6 sctp [2001:db8::1]:1 > [2001:db8::2]:2",
            "icmp6 2001:db8::1 > 2001:db8::2",
            "proto 89 10.0.0.1 > 224.0.0.5",
        ] {
            let flow = Flow::parse(text).unwrap();
            assert_eq!(flow.to_string(), text);
            let headers = Headers::parse(&flow.frame());
            assert_eq!(usize::from(headers.vlans), flow.vlans.len(), "{text}");
            assert_eq!(headers.vlan[..flow.vlans.len()], flow.vlans, "{text}");
            assert_eq!(headers.protocol, flow.protocol, "{text}");
            assert_eq!(headers.fragment, Fragment::No, "{text}");
            let octets = |end: SocketAddr| match end.ip() {
                IpAddr::V4(address) => address.octets().to_vec(),
                IpAddr::V6(address) => address.octets().to_vec(),
            };
            assert!(headers.source.starts_with(&octets(flow.source)), "{text}");
            let destination = octets(flow.destination);
            assert!(headers.destination.starts_with(&destination), "{text}");
            assert_eq!(headers.source_port, flow.source.port(), "{text}");
            let port = flow.destination.port();
            assert_eq!(headers.destination_port, port, "{text}");
            assert_eq!(Flow::of(&headers).unwrap().to_string(), text);
            let filter = ashway_demux::parse(&flow.filter()).unwrap();
            let mut table = ashway_demux::Table::default();
            table.insert(&filter, ()).unwrap();
            assert_eq!(table.find(&headers, &flow.frame()), Some(()), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, says) in [
            ("udp 10.0.0.1:1", "no `>`"),
            ("> 10.0.0.1:1", "nothing in front"),
            ("10.0.0.1:1 > 10.0.0.2:2", "protocol is missing"),
            ("upd 10.0.0.1:1 > 10.0.0.2:2", "`upd` is no protocol"),
            ("udp 10.0.0.1 > 10.0.0.2:2", "`10.0.0.1` has no port"),
            (
                "udp 10.0.0.1:1 > 10.0.0.256:2",
                "`10.0.0.256:2` is no address with",
            ),
            ("icmp 10.0.0.1:1 > 10.0.0.2", "`10.0.0.1:1` is no address"),
            ("udp 10.0.0.1:1 > [::1]:2", "two versions"),
            (
                "udp now 10.0.0.1:1 > 10.0.0.2:2",
                "`now` is one word too many",
            ),
            ("vlan 4096 udp 10.0.0.1:1 > 10.0.0.2:2", "0 to 4095"),
            (
                "vlan 1 vlan 2 vlan 3 udp 10.0.0.1:1 > 10.0.0.2:2",
                "at most 2",
            ),
            ("proto 256 10.0.0.1 > 10.0.0.2", "0 to 255"),
        ] {
            let error = Flow::parse(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
