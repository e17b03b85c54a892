//! Frames, good and bad, and paths to send them along.

#![allow(dead_code, reason = "each test file uses a part")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use ashway_abi::Count;
use ashway_modules::fragment::{Fragment, Limits as FragmentLimits};
use ashway_modules::services::NET;
use ashway_modules::{Message, eth::Eth, ip::Ip, udp::Udp};
use ashway_path::attrs::Attrs;
use ashway_path::graph::Graph;
use ashway_path::module::{Kind, Module, Next, Refused, StageAndNext};
use ashway_path::path::{Exit, Limits, Path};
use ashway_path::rules::Rule;
use ashway_path::service::Service;
use ashway_path::sim::Single;
use ashway_path::stage::{Cx, Direction, Stage, Step};
use ashway_path::time::Time;
use ashway_wire::checksum::{pseudo_v4, pseudo_v6};
use ashway_wire::{Headers, emit, ipv4, udp};

pub(crate) const OUR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
pub(crate) const THEIR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub(crate) const V4: (&str, &str) = ("10.0.0.1:1000", "10.0.0.2:7777");
pub(crate) const V6: (&str, &str) = ("[fd00::1]:1000", "[fd00::2]:7777");

/// A plain frame from them to us.
pub(crate) fn frame(ends: (&str, &str), payload: &[u8]) -> Vec<u8> {
    emit(
        &emit::Headers {
            source_mac: THEIR_MAC,
            destination_mac: OUR_MAC,
            source: ends.0.parse().unwrap(),
            destination: ends.1.parse().unwrap(),
        },
        payload,
    )
}

pub(crate) fn emit(headers: &emit::Headers, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 70_000];
    let len = headers.emit(&mut frame, payload).unwrap();
    frame.truncate(len);
    frame
}

pub(crate) fn payload(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}

/// Puts a tag in front of the type; the last put is the outermost.
pub(crate) fn tagged(mut frame: Vec<u8>, kind: u16, id: u16) -> Vec<u8> {
    let tag = [kind.to_be_bytes(), id.to_be_bytes()].concat();
    frame.splice(12..12, tag);
    frame
}

/// IPv4 options behind an untagged frame's header.
pub(crate) fn with_options(mut frame: Vec<u8>, options: &[u8]) -> Vec<u8> {
    frame.splice(34..34, options.iter().copied());
    frame[14] = 0x45 + (options.len() / 4) as u8;
    fix_v4(&mut frame);
    frame
}

/// Extension headers of an untagged IPv6 frame, each with its number; the
/// bytes say nothing of what is next.
pub(crate) fn with_extensions(mut frame: Vec<u8>, headers: &[(u8, &[u8])]) -> Vec<u8> {
    for (number, bytes) in headers.iter().rev() {
        let mut bytes = bytes.to_vec();
        bytes[0] = std::mem::replace(&mut frame[20], *number);
        frame.splice(54..54, bytes);
    }
    let len = (frame.len() - 54) as u16;
    frame[18..20].copy_from_slice(&len.to_be_bytes());
    frame
}

/// Makes the length and the checksum of an untagged IPv4 frame's header right.
pub(crate) fn fix_v4(frame: &mut [u8]) {
    let len = (frame.len() - 14) as u16;
    let mut ip = ipv4::Packet::new_checked(&mut frame[14..]).unwrap();
    ip.set_total_len(len);
    ip.fill_checksum();
}

/// Where UDP starts.
pub(crate) fn udp_at(frame: &[u8]) -> usize {
    usize::from(Headers::parse(frame).l4)
}

/// The sum of the pseudo-header alone, as a stock veth leaves it.
pub(crate) fn half_checksum(mut frame: Vec<u8>) -> Vec<u8> {
    let (headers, at) = (Headers::parse(&frame), udp_at(&frame));
    let len = udp::Packet::new_checked(&frame[at..]).unwrap().length();
    let sum = if headers.ethertype == 0x0800 {
        let four = |bytes: [u8; 16]| bytes[..4].try_into().unwrap();
        pseudo_v4(four(headers.source), four(headers.destination), 17, len)
    } else {
        pseudo_v6(headers.source, headers.destination, 17, len.into())
    };
    frame[at + 6..at + 8].copy_from_slice(&sum.fold().to_be_bytes());
    frame
}

pub(crate) fn no_checksum(mut frame: Vec<u8>) -> Vec<u8> {
    let at = udp_at(&frame);
    frame[at + 6..at + 8].fill(0);
    frame
}

pub(crate) fn padded(mut frame: Vec<u8>, bytes: usize) -> Vec<u8> {
    frame.resize(frame.len() + bytes, 0xee);
    frame
}

/// Bytes behind the datagram that belong to the IP packet (RFC 9868).
pub(crate) fn with_surplus(mut frame: Vec<u8>, surplus: &[u8]) -> Vec<u8> {
    frame.extend(surplus);
    if frame[12] == 8 {
        fix_v4(&mut frame);
    } else {
        let len = (frame.len() - 54) as u16;
        frame[18..20].copy_from_slice(&len.to_be_bytes());
    }
    frame
}

const HOP_BY_HOP: &[u8] = &[0, 0, 1, 4, 0, 0, 0, 0];
const OPTIONS_16: &[u8] = &[0, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const ROUTED: &[u8] = &[0, 0, 4, 0, 0, 0, 0, 0];
const ATOMIC: &[u8] = &[0, 0, 0, 0, 1, 2, 3, 4];

/// Frames that a host takes: both versions, all lengths and checksums, tags,
/// options, extension headers, padding, surplus.
pub(crate) fn good() -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for ends in [V4, V6] {
        for len in [0, 1, 2, 7, 64, 1400] {
            let plain = frame(ends, &payload(len));
            let v4 = ends == V4;
            let mut variants = vec![plain.clone(), half_checksum(plain.clone())];
            if v4 {
                variants.push(no_checksum(plain.clone()));
                variants.push(with_options(plain.clone(), &[1, 1, 1, 0]));
                variants.push(with_options(plain.clone(), &[7; 40]));
            } else {
                variants.push(with_extensions(plain.clone(), &[(0, HOP_BY_HOP)]));
                variants.push(with_extensions(
                    plain.clone(),
                    &[(0, HOP_BY_HOP), (60, OPTIONS_16), (43, ROUTED)],
                ));
                variants.push(with_extensions(plain.clone(), &[(44, ATOMIC)]));
            }
            variants.push(with_surplus(plain.clone(), b"surplus"));
            for frame in variants {
                frames.push(padded(frame.clone(), 13));
                frames.push(tagged(frame.clone(), 0x8100, 5));
                frames.push(tagged(tagged(frame.clone(), 0x8100, 5), 0x88a8, 6));
                frames.push(frame);
            }
        }
    }
    frames
}

/// The same with a mistake: cut at every length, and each byte of the headers
/// changed in several ways, with checksums right again and not.
pub(crate) fn bad() -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for frame in good().into_iter().filter(|frame| frame.len() < 140) {
        frames.extend((0..frame.len()).map(|len| frame[..len].to_vec()));
        // Which IPv6 does not allow.
        frames.push(no_checksum(frame.clone()));
        let headers = frame.len().min(80);
        for at in 0..headers {
            for change in [1, 0x20, 0x80, 0xff] {
                let mut changed = frame.clone();
                changed[at] ^= change;
                if changed[12..14] == [8, 0] && changed.len() >= 34 {
                    let mut fixed = changed.clone();
                    let ip = ipv4::Packet::new_checked(&mut fixed[14..]);
                    ip.unwrap().fill_checksum();
                    frames.push(fixed);
                }
                frames.push(changed);
            }
        }
    }
    frames
}

/// What the stage at the top does with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Top {
    /// Answers it unchanged.
    Echo,
    /// Answers with that many bytes.
    Resize(usize),
    /// Answers in a message without headers: a new one.
    Anew,
    /// Consumes it.
    Sink,
    /// Sends it on, out of the path's end.
    On,
}

static TOP: Kind = Kind {
    name: "top",
    about: "the top of a test's path",
    services: &[Service {
        name: "down",
        provides: &NET,
        requires: &NET,
        after: true,
    }],
    params: &[],
};

pub(crate) struct TopModule(pub(crate) Top);

impl Module<Message> for TopModule {
    fn kind(&self) -> &'static Kind {
        &TOP
    }

    fn stage(
        &self,
        entered: Option<usize>,
        _: &mut Attrs,
    ) -> Result<StageAndNext<Message>, Refused> {
        Ok(StageAndNext {
            stage: Box::new(TopStage(self.0)),
            next: entered.map_or(Next::Through(0), |_| Next::End),
        })
    }
}

struct TopStage(Top);

impl Stage<Message> for TopStage {
    fn name(&self) -> &'static str {
        "top"
    }

    fn take(
        &mut self,
        mut message: Message,
        _: Direction,
        _: &mut Cx<'_, Message>,
    ) -> Step<Message> {
        match self.0 {
            Top::Sink => return Step::End(message, Count::Consumed),
            Top::On => return Step::On(message),
            _ if !message.can_be_answered() => return Step::End(message, Count::DroppedNoSender),
            Top::Echo => {}
            Top::Resize(len) => message.resize(len),
            Top::Anew => message.forget_headers(),
        }
        Step::Back(message, Count::Answered)
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

pub(crate) fn eth() -> Eth {
    Eth {
        name: "wire".into(),
        iface: "veth0".into(),
        number: 3,
        mac: OUR_MAC.into(),
        mtu: 1500.into(),
        xdp: true,
        down: Arc::default(),
    }
}

/// How a test's path is made.
pub(crate) struct Recipe<'r> {
    pub(crate) top: Top,
    /// Whether creation begins at the top.
    pub(crate) from_top: bool,
    pub(crate) fragment: bool,
    pub(crate) attrs: Attrs,
    pub(crate) mtu: u32,
    pub(crate) xdp: bool,
    pub(crate) rules: &'r [Rule<Message>],
}

impl Recipe<'_> {
    pub(crate) fn new(top: Top) -> Self {
        Self {
            top,
            from_top: true,
            fragment: false,
            attrs: Attrs::new(),
            mtu: 1500,
            xdp: true,
            rules: &[],
        }
    }

    pub(crate) fn graph(&self) -> Graph<Message> {
        let name = |name: &str| name.into();
        let mut modules: Vec<(&str, Box<dyn Module<Message>>)> = vec![
            (
                "wire",
                Box::new(Eth {
                    mtu: self.mtu.into(),
                    xdp: self.xdp,
                    ..eth()
                }),
            ),
            ("ip", Box::new(Ip { name: name("ip") })),
            ("udp", Box::new(Udp { name: name("udp") })),
            ("top", Box::new(TopModule(self.top))),
        ];
        let mut edges = vec![("udp.down", "ip.up"), ("top.down", "udp.up")];
        if self.fragment {
            modules.push((
                "frag",
                Box::new(Fragment {
                    name: name("frag"),
                    limits: FragmentLimits::default(),
                    identification: Arc::new(AtomicU32::new(70_000)),
                }),
            ));
            edges.extend([("ip.down", "frag.up"), ("frag.down", "wire.up")]);
        } else {
            edges.push(("ip.down", "wire.up"));
        }
        Graph::connect(modules, &edges).unwrap()
    }

    pub(crate) fn path(&self) -> Single<Message> {
        self.path_from(if self.from_top { "top" } else { "wire" })
    }

    pub(crate) fn path_from(&self, module: &str) -> Single<Message> {
        let limits = Limits {
            memory_bytes: 1 << 20,
            ..Limits::default()
        };
        let created = self
            .graph()
            .create("p", module, self.attrs.clone(), limits, self.rules);
        Single::new(created.unwrap().path)
    }

    /// Which way messages come in.
    pub(crate) fn inbound(&self) -> Direction {
        if self.from_top {
            Direction::Backward
        } else {
            Direction::Forward
        }
    }
}

/// Sends one message in at the path's end.
pub(crate) fn send(
    path: &mut Single<Message>,
    direction: Direction,
    message: Message,
) -> Vec<Exit<Message>> {
    let out = path.pass(direction, message, Time(0));
    settled(path);
    out
}

/// Both ledgers are even.
pub(crate) fn settled(path: &Path<Message>) {
    let account = path.account();
    assert_eq!(account.open(), path.waiting());
    assert_eq!(account.originated, account.left + account.ended);
    assert_eq!(account.faults, 0, "{:?}", account.fault);
}

/// The one message that left, or the fate of the one that ended.
pub(crate) fn only(exits: Vec<Exit<Message>>) -> Result<Vec<u8>, Count> {
    assert_eq!(exits.len(), 1, "{exits:?}");
    match exits.into_iter().next().unwrap() {
        Exit::Left { message, .. } => Ok(message.bytes().to_vec()),
        Exit::Ended { fate, .. } => Err(fate),
    }
}
