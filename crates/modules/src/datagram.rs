//! Ethernet, IP and UDP as one stage.
//!
//! Made by the rule [`MERGE_LENGTH_CHECKS`](crate::rules::MERGE_LENGTH_CHECKS)
//! where the three stand directly behind each other: the lengths of all three
//! are checked at once, and nothing is called through a table.
//!
//! That way go valid datagrams without tags, options and extension headers.
//! Everything else goes through the three stages, which are kept inside. So
//! there is one judgement of each fault, not two.
//!
//! The rule [`FUSE_CHECKSUM`](crate::rules::FUSE_CHECKSUM) adds a
//! [pipe](crate::pipe) that stands directly above: then one pass over the payload
//! verifies the checksum and writes what the pipes make of it, into another buffer.
//! That becomes the message if the checksum is right. If it is not, the message is as it
//! came, and the stages inside say so.
//!
//! * **Services, attributes, verdicts:** those of the three.
//! * **Tiers:** user; the kernel tier's entry program and replies do the same.
//!
//! Source: Mosberger & Peterson 1996 ("Scout"), §1, "check for the sum of all
//! header lengths at the beginning of packet processing".

use std::any::Any;
use std::net::{IpAddr, SocketAddr};

use ashway_abi::context::flag;
use ashway_path::attrs::Attrs;
use ashway_path::demand::Demand;
use ashway_path::module::Kind;
use ashway_path::path::Path;
use ashway_path::stage::{Cx, Direction, Stage, Step, Traits};
use ashway_wire::checksum::Sum;
use ashway_wire::ipv4::PROTOCOL_UDP;
use ashway_wire::udp::Checksum;
use ashway_wire::{eth, ipv4, ipv6, udp};

use crate::bug::{self, Bug};
use crate::eth::EthStage;
use crate::ip::IpStage;
use crate::pipe::PipeStage;
use crate::relay::Own;
use crate::udp::{UdpStage, pseudo_header};
use crate::{Flow, Message};

/// Names the stage for rules. No module is of this kind.
pub static KIND: Kind = Kind {
    name: "datagram",
    about: "Ethernet, IP and UDP at once; made by a rule",
    services: &[],
    params: &[],
};

/// Names the stage for rules, if there is a pipe in it. No module is of this kind.
pub static FUSED: Kind = Kind {
    name: "datagram+pipe",
    about: "Ethernet, IP, UDP and a pipe at once; made by a rule",
    services: &[],
    params: &[],
};

/// The stage.
pub(crate) struct DatagramStage {
    pub(crate) eth: EthStage,
    pub(crate) ip: IpStage,
    pub(crate) udp: UdpStage,
    /// A pipe that stood directly above.
    pub(crate) pipe: Option<PipeStage>,
}

/// By which interface a path sends, and to whom, if its attributes did not say the
/// hardware address of the next hop (`next_mac`): then somebody has to look it up and
/// [tell](set_next_mac) it.
#[must_use]
pub fn lacks_next_mac(path: &mut Path<Message>) -> Option<(u32, IpAddr)> {
    let own = path.stage_as::<DatagramStage>(path.len() - 1)?.own();
    let to = own.destination.filter(|_| own.next_mac.is_none())?;
    Some((own.iface, to.ip()))
}

/// Says the hardware address of the next hop, or that it is not known (any more).
pub fn set_next_mac(path: &mut Path<Message>, mac: Option<eth::Address>) {
    if let Some(last) = path.stage_as::<DatagramStage>(path.len() - 1) {
        last.eth.set_next_mac(mac);
    }
}

impl Stage<Message> for DatagramStage {
    fn name(&self) -> &str {
        self.is().name
    }

    fn kind(&self) -> Option<&'static Kind> {
        Some(self.is())
    }

    fn traits(&self) -> Traits {
        Traits {
            in_entry: self.eth.traits().in_entry && self.pipe.is_none(),
            checks_length: true,
            touches_data: true,
            transmits: true,
            ..Traits::default()
        }
    }

    fn demands(&self, all: &mut Vec<Demand>) {
        self.eth.demands(all);
        self.ip.demands(all);
        self.udp.demands(all);
    }

    fn take(
        &mut self,
        mut message: Message,
        direction: Direction,
        cx: &mut Cx<'_, Message>,
    ) -> Step<Message> {
        let up = self.eth.way.is_up(direction);
        let entered = if up {
            self.enter(&mut message, cx.attrs)
        } else {
            Entered::No
        };
        let (eth, ip, udp) = (&mut self.eth, &mut self.ip, &mut self.udp);
        let pipe = self.pipe.as_mut();
        match entered {
            Entered::Through => Step::On(message),
            Entered::ToPipe => then_pipe(Step::On(message), pipe, direction, cx),
            Entered::No if up => then(eth.take(message, direction, cx), |message| {
                then(ip.take(message, direction, cx), |message| {
                    let step = udp.take(message, direction, cx);
                    then_pipe(step, pipe, direction, cx)
                })
            }),
            Entered::No => {
                let pipe = pipe.filter(|_| !bug::is(Bug::AnswersSkipped));
                then(
                    then_pipe(Step::On(message), pipe, direction, cx),
                    |message| {
                        then(udp.take(message, direction, cx), |message| {
                            then(ip.take(message, direction, cx), |message| {
                                eth.take(message, direction, cx)
                            })
                        })
                    },
                )
            }
        }
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

/// The next stage's step, if there is one.
fn then(step: Step<Message>, next: impl FnOnce(Message) -> Step<Message>) -> Step<Message> {
    match step {
        Step::On(message) => next(message),
        end => end,
    }
}

/// The pipe's step, if there is one.
fn then_pipe(
    step: Step<Message>,
    pipe: Option<&mut PipeStage>,
    direction: Direction,
    cx: &mut Cx<'_, Message>,
) -> Step<Message> {
    match pipe {
        Some(pipe) => then(step, |message| pipe.take(message, direction, cx)),
        None => step,
    }
}

/// How far a frame has come by the short way.
enum Entered {
    /// Nothing is done: it is not plain, or not valid.
    No,
    /// All headers are off; a pipe is still to be passed, if there is one.
    ToPipe,
    /// The pipe is passed, too.
    Through,
}

impl DatagramStage {
    fn is(&self) -> &'static Kind {
        if self.pipe.is_some() { &FUSED } else { &KIND }
    }

    /// What it writes into what it originates.
    pub(crate) fn own(&self) -> Own {
        let (source, destination) = self.udp.ends();
        Own {
            source,
            destination,
            hops: self.ip.ttl(),
            ..self.eth.own()
        }
    }

    /// Takes all headers off a plain datagram that is valid.
    fn enter(&mut self, message: &mut Message, attrs: &mut Attrs) -> Entered {
        let frame = message.bytes();
        let Some(plain) = Plain::read(frame) else {
            return Entered::No;
        };
        let flow = plain.flow;
        let v6 = flow.source.is_ipv6();
        let Some(iface) = self
            .eth
            .accepts(plain.station)
            .filter(|_| self.ip.speaks(v6))
        else {
            return Entered::No;
        };
        let payload = plain.transport + udp::HEADER_BYTES;
        let header = &frame[plain.transport..payload];
        let pseudo = pseudo_header(flow, plain.end - plain.transport);
        let field = word(header, 6);
        let mut entered = Entered::ToPipe;
        let mut flags = if v6 { flag::IPV6 } else { 0 };
        let judged = match &mut self.pipe {
            // As `judge_checksum` has it, with the pass instead of the sum.
            Some(stage) if field != 0 && field != pseudo.fold() => {
                entered = Entered::Through;
                let before = pseudo.bytes(header);
                if stage.verify(message, payload..plain.end, before, attrs) {
                    Checksum::Right
                } else {
                    Checksum::Wrong
                }
            }
            _ => udp::Packet::new_checked(&frame[plain.transport..plain.end])
                .map_or(Checksum::Wrong, |datagram| datagram.judge_checksum(pseudo)),
        };
        match judged {
            Checksum::Right => {}
            Checksum::Partial => flags |= flag::CHECKSUM_PARTIAL,
            Checksum::Absent if !v6 => {}
            Checksum::Absent | Checksum::Wrong => return Entered::No,
        }
        if !message.enter(
            [eth::HEADER_BYTES, plain.transport, payload],
            plain.end,
            flow,
            flags,
        ) {
            return Entered::No;
        }
        message.meta.iface = iface;
        entered
    }
}

/// A datagram as most are: no tags, options or extension headers, not a
/// fragment, with lengths that agree, and a right IPv4 checksum.
struct Plain {
    station: eth::Address,
    flow: Flow,
    transport: usize,
    /// Where the UDP datagram ends.
    end: usize,
}

impl Plain {
    /// One look at the length of the frame is good for all fixed fields, and one
    /// comparison of the lengths in the headers for everything behind.
    fn read(frame: &[u8]) -> Option<Self> {
        let (source, destination, transport, packet_len);
        match frame.get(12..15)? {
            [8, 0, 0x45] => {
                let head: &[u8; V4] = frame.first_chunk()?;
                let ip = &head[14..34];
                if word(head, 20) & 0x3fff != 0
                    || head[23] != PROTOCOL_UDP
                    || Sum::new().bytes(ip).fold() != 0xffff
                {
                    return None;
                }
                transport = 34;
                packet_len = usize::from(word(head, 16));
                source = IpAddr::from(*ip[12..].first_chunk::<4>()?);
                destination = IpAddr::from(*ip[16..].first_chunk::<4>()?);
            }
            [0x86, 0xdd, 0x60..0x70] => {
                let head: &[u8; V6] = frame.first_chunk()?;
                if head[20] != PROTOCOL_UDP {
                    return None;
                }
                transport = 54;
                packet_len = 40 + usize::from(word(head, 18));
                source = IpAddr::from(*head[22..].first_chunk::<16>()?);
                destination = IpAddr::from(*head[38..].first_chunk::<16>()?);
            }
            _ => return None,
        }
        let udp_len = usize::from(word(frame, transport + 4));
        let end = transport + udp_len;
        let packet_end = eth::HEADER_BYTES + packet_len;
        (udp_len >= udp::HEADER_BYTES && end <= packet_end && packet_end <= frame.len()).then_some(
            Self {
                station: *frame.first_chunk()?,
                flow: Flow {
                    source: SocketAddr::new(source, word(frame, transport)),
                    destination: SocketAddr::new(destination, word(frame, transport + 2)),
                },
                transport,
                end,
            },
        )
    }
}

/// Bytes of the fixed headers of Ethernet, IP and UDP.
const V4: usize = eth::HEADER_BYTES + ipv4::HEADER_BYTES + udp::HEADER_BYTES;
const V6: usize = eth::HEADER_BYTES + ipv6::HEADER_BYTES + udp::HEADER_BYTES;

fn word(frame: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([frame[at], frame[at + 1]])
}
