//! Datagrams and next hops, drawn; frames are built here byte by byte, with
//! checksums summed the slow way, so that nothing of what is tested is used.

use std::net::{IpAddr, SocketAddr};

use ashway_abi::{Hop, hop};

/// A generator of numbers (xorshift64*, Vigna 2016): the same for the same seed.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % end
    }
}

/// Who takes part: A sends to B, which sends on to C.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    pub(crate) mac: [u8; 6],
    pub(crate) address: SocketAddr,
}

impl End {
    fn new(mac: u8, v6: bool, host: u8, port: u16) -> Self {
        let address = if v6 {
            IpAddr::from([0xfd, 0, 0, 0, 0, 0, 0, mac, 0, 0, 0xab, 0, 0, 0, 0, host])
        } else {
            IpAddr::from([10, mac, 3, host])
        };
        Self {
            mac: [2, 0, 0, 0, 0, mac],
            address: (address, port).into(),
        }
    }
}

/// How the sender treats the UDP checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Checksum {
    Whole,
    Half,
    None,
    Wrong,
}

/// One datagram and where it is to go.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) from: End,
    /// B as A sees it.
    pub(crate) to: End,
    /// B as C sees it.
    pub(crate) own: End,
    pub(crate) next: End,
    /// Ids of the tags that the datagram comes with.
    pub(crate) tags: Vec<u16>,
    pub(crate) vlan_out: Option<u16>,
    pub(crate) by_tcx: bool,
    pub(crate) hops: u8,
    /// Words of IPv4 options, or an extension header of 8 bytes if there are any.
    pub(crate) options: usize,
    pub(crate) checksum: Checksum,
    pub(crate) padding: usize,
    pub(crate) payload: Vec<u8>,
}

pub(crate) const MTU: u32 = 1500;
pub(crate) const OUT: u32 = 77;

impl Case {
    pub(crate) fn draw(random: &mut Random) -> Self {
        let (v6_in, v6_out) = (random.below(2) == 1, random.below(2) == 1);
        let checksum = match (random.below(8), v6_in) {
            (0, _) => Checksum::Wrong,
            (1, false) => Checksum::None,
            (2..=4, _) => Checksum::Half,
            _ => Checksum::Whole,
        };
        let tags = [0, 0, 0, 0, 1, 2][random.below(6)];
        let options = [0, 0, 0, 1, 5, 10][random.below(6)];
        let longest = MTU as usize - 48 - 4 * options;
        let len = match random.below(4) {
            0 => random.below(20),
            1 => longest - random.below(5),
            _ => random.below(longest),
        };
        let fill = random.below(3);
        let byte = |random: &mut Random| match fill {
            0 => 0,
            1 => 0xff,
            _ => random.below(256) as u8,
        };
        let mut case = Self {
            from: End::new(0xa, v6_in, 2, 1 + random.below(65_535) as u16),
            to: End::new(0xb, v6_in, 1, 9_000),
            own: End::new(0xb + 16, v6_out, 1, 1 + random.below(65_535) as u16),
            next: End::new(0xc, v6_out, random.below(256) as u8 | 1, 9_001),
            tags: (0..tags).map(|_| 5).collect(),
            vlan_out: (random.below(3) == 0).then(|| random.below(4096) as u16),
            by_tcx: random.below(3) == 0,
            hops: [64, 1, 255][random.below(3)],
            options,
            checksum,
            padding: [0, 0, 1, 18][random.below(4)],
            payload: (0..len).map(|_| byte(random)).collect(),
        };
        if random.below(8) == 0 {
            case.sum_to_nothing();
        }
        case
    }

    /// Makes the payload one whose checksum comes out as 0, and so is written as
    /// 0xffff, if it is long enough.
    fn sum_to_nothing(&mut self) {
        if let Some(first) = self.payload.first_chunk_mut::<2>() {
            *first = [0; 2];
            let udp = udp(self.own, self.next, Checksum::Whole, &self.payload);
            self.payload[..2].copy_from_slice(&udp[6..8]);
        }
    }

    /// The frame as B receives it.
    pub(crate) fn received(&self) -> Vec<u8> {
        let mut frame = Vec::new();
        frame.extend(self.to.mac);
        frame.extend(self.from.mac);
        for id in &self.tags {
            frame.extend([0x81, 0x00]);
            frame.extend(id.to_be_bytes());
        }
        let udp = udp(self.from, self.to, self.checksum, &self.payload);
        let marks = Marks {
            service: 0xb8,
            identification: 0x1234,
            whole: false,
            hops: 7,
        };
        ip(&mut frame, self.from, self.to, marks, self.options, &udp);
        frame.resize(frame.len() + self.padding, 0xee);
        frame
    }

    /// The frame that B has to send; `None` if it is to be dropped.
    pub(crate) fn wanted(&self) -> Option<Vec<u8>> {
        if self.checksum == Checksum::Wrong {
            return None;
        }
        let mut frame = Vec::new();
        frame.extend(self.next.mac);
        frame.extend(self.own.mac);
        if let Some(id) = self.vlan_out {
            frame.extend([0x81, 0x00]);
            frame.extend(id.to_be_bytes());
        }
        let udp = udp(self.own, self.next, Checksum::Whole, &self.payload);
        let marks = Marks {
            service: 0,
            identification: 0,
            whole: true,
            hops: self.hops,
        };
        ip(&mut frame, self.own, self.next, marks, 0, &udp);
        Some(frame)
    }

    /// As [`Self::wanted`], but as the kernel tier leaves it where the device has
    /// to complete the checksum.
    pub(crate) fn wanted_here(&self) -> Option<Vec<u8>> {
        let mut frame = self.wanted()?;
        if self.by_tcx && self.checksum == Checksum::Half {
            let half = udp(self.own, self.next, Checksum::Half, &self.payload);
            let start = frame.len() - half.len();
            frame[start..].copy_from_slice(&half);
        }
        Some(frame)
    }

    pub(crate) fn hop(&self) -> Hop {
        let v6 = self.next.address.is_ipv6();
        let flags = [
            (v6, hop::flag::IPV6),
            (self.vlan_out.is_some(), hop::flag::TAGGED),
            (self.by_tcx, hop::flag::BY_TCX),
        ];
        Hop {
            destination_mac: self.next.mac,
            source_mac: self.own.mac,
            ifindex: OUT,
            source: left(self.own.address.ip()),
            destination: left(self.next.address.ip()),
            source_port: self.own.address.port().to_be_bytes(),
            destination_port: self.next.address.port().to_be_bytes(),
            mtu: MTU,
            vlan: self.vlan_out.unwrap_or(0).to_be_bytes(),
            flags: flags
                .iter()
                .filter(|(there, _)| *there)
                .fold(0, |all, (_, flag)| all | flag),
            hops: self.hops,
            from: None,
            terms: None,
        }
    }

    /// Who sends this, if it is plain.
    pub(crate) fn sender(&self) -> hop::Sender {
        let ends = [
            octets(self.from),
            octets(self.to),
            self.from.address.port().to_be_bytes().to_vec(),
            self.to.address.port().to_be_bytes().to_vec(),
        ];
        let mut sender = hop::Sender {
            mac: self.from.mac,
            ipv6: self.from.address.is_ipv6(),
            ends: [0; 36],
        };
        let ends = ends.concat();
        sender.ends[..ends.len()].copy_from_slice(&ends);
        sender
    }
}

fn left(address: IpAddr) -> [u8; 16] {
    let mut bytes = [0; 16];
    match address {
        IpAddr::V4(address) => bytes[..4].copy_from_slice(&address.octets()),
        IpAddr::V6(address) => bytes = address.octets(),
    }
    bytes
}

fn octets(end: End) -> Vec<u8> {
    match end.address.ip() {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// RFC 1071 §1, word by word.
fn sum(bytes: &[u8]) -> u16 {
    let mut sum = 0;
    for pair in bytes.chunks(2) {
        let low = pair.get(1).copied().unwrap_or(0);
        sum += u32::from(u16::from_be_bytes([pair[0], low]));
        if sum > 0xffff {
            sum -= 0xffff;
        }
    }
    sum as u16
}

fn udp(from: End, to: End, checksum: Checksum, payload: &[u8]) -> Vec<u8> {
    let len = payload.len() as u16 + 8;
    let mut pseudo = [octets(from), octets(to)].concat();
    pseudo.extend([0, 17]);
    pseudo.extend(len.to_be_bytes());
    let half = sum(&pseudo);
    let mut udp = Vec::new();
    udp.extend(from.address.port().to_be_bytes());
    udp.extend(to.address.port().to_be_bytes());
    udp.extend(len.to_be_bytes());
    udp.extend([0, 0]);
    udp.extend(payload);
    pseudo.extend(&udp);
    let whole = match !sum(&pseudo) {
        0 => 0xffff,
        some => some,
    };
    let written = match checksum {
        Checksum::Whole => whole,
        Checksum::Half => half,
        Checksum::None => 0,
        // Neither of the others, nor 0.
        Checksum::Wrong => (1..=3).find(|sum| *sum != whole && *sum != half).unwrap(),
    };
    udp[6..8].copy_from_slice(&written.to_be_bytes());
    udp
}

/// What an IP header says besides.
#[derive(Clone, Copy)]
struct Marks {
    service: u8,
    identification: u16,
    /// Not to be fragmented.
    whole: bool,
    hops: u8,
}

/// Appends the Ethernet type, the IP header and what it carries.
fn ip(frame: &mut Vec<u8>, from: End, to: End, marks: Marks, options: usize, data: &[u8]) {
    if from.address.is_ipv6() {
        let more: &[u8] = if options > 0 {
            // Hop-by-hop: one option of padding.
            &[17, 0, 1, 4, 0, 0, 0, 0]
        } else {
            &[]
        };
        frame.extend([0x86, 0xdd]);
        frame.extend([0x60 | marks.service >> 4, marks.service << 4, 0, 0]);
        frame.extend(((more.len() + data.len()) as u16).to_be_bytes());
        frame.extend([if more.is_empty() { 17 } else { 0 }, marks.hops]);
        frame.extend(octets(from));
        frame.extend(octets(to));
        frame.extend(more);
    } else {
        let mut header = vec![0x45 + options as u8, marks.service];
        header.extend(((20 + 4 * options + data.len()) as u16).to_be_bytes());
        header.extend(marks.identification.to_be_bytes());
        header.extend([if marks.whole { 0x40 } else { 0 }, 0, marks.hops, 17, 0, 0]);
        header.extend(octets(from));
        header.extend(octets(to));
        // No operation.
        header.resize(20 + 4 * options, 1);
        let checksum = !sum(&header);
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
        frame.extend([0x08, 0x00]);
        frame.extend(header);
    }
    frame.extend(data);
}
