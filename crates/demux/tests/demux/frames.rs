//! Frames of every form that headers can take.

/// One frame of each form, with few values, so that filters meet them.
pub(crate) fn whole() -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for tags in [&[][..], &[0x8100], &[0x88a8, 0x8100], &[0x9100]] {
        for (ethertype, packet) in packets(tags.is_empty()) {
            let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
            for (i, tag) in tags.iter().enumerate() {
                frame.extend(u16::to_be_bytes(*tag));
                frame.extend(u16::to_be_bytes(0x6005 + i as u16));
            }
            frame.extend(u16::to_be_bytes(ethertype));
            frame.extend(packet);
            frames.push(frame);
        }
    }
    let mut three = frames[0][..12].to_vec();
    for _ in 0..3 {
        three.extend([0x81, 0, 0, 5]);
    }
    three.extend(&frames[0][12..]);
    frames.push(three);
    let mut broadcast = frames[0].clone();
    broadcast[..6].fill(0xff);
    frames.push(broadcast);
    frames
}

/// Every frame cut at every length.
pub(crate) fn cut() -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for frame in whole() {
        frames.extend((0..=frame.len()).map(|len| frame[..len].to_vec()));
    }
    frames.sort();
    frames.dedup();
    frames
}

fn packets(all: bool) -> Vec<(u16, Vec<u8>)> {
    let udp = transport(17, 7, 53);
    let mut packets = vec![
        (0x0800, ipv4(5, 17, 0x4000, 1, &udp)),
        (0x0800, ipv4(5, 6, 0, 2, &transport(6, 53, 7777))),
        (0x0800, ipv4(8, 17, 0, 1, &transport(17, 1030, 53))),
        (0x86dd, ipv6(17, 1, &udp)),
        (0x86dd, ipv6(0, 1, &[&options(17), &udp[..]].concat())),
        (0x0806, arp(1)),
    ];
    if !all {
        return packets;
    }
    let vxlan = [
        &[0x12, 0x34, 0x12, 0xb5, 0, 16, 0, 0, 8, 0, 0, 0, 0, 0, 42, 0][..],
        &[0; 14],
    ];
    packets.extend([
        (0x0800, ipv4(5, 132, 0, 3, &transport(132, 53, 53))),
        (0x0800, ipv4(5, 1, 0, 1, &[8, 0, 0, 0, 1, 2, 3, 4])),
        (0x0800, ipv4(5, 17, 0x2000, 1, &udp)),
        (0x0800, ipv4(5, 17, 0x2001, 1, &udp)),
        (0x0800, ipv4(5, 6, 0x0007, 2, &udp)),
        (0x0800, ipv4(15, 6, 0, 1, &transport(6, 7777, 1999))),
        (0x0800, ipv4(3, 17, 0, 1, &udp)),
        (0x0800, ipv4(0, 6, 0, 1, &udp)),
        (0x0800, ipv4(5, 0, 0, 1, &udp)),
        (0x0800, ipv4(5, 50, 0, 1, &udp)),
        (0x0800, ipv4(5, 17, 0, 1, &vxlan.concat())),
        (0x0800, ipv4(5, 2, 0, 200, &udp)),
        (0x86dd, ipv6(6, 2, &transport(6, 7777, 53))),
        (0x86dd, ipv6(58, 1, &[135, 0, 0, 0, 0, 0, 0, 0])),
        (0x86dd, ipv6(132, 3, &transport(132, 7, 7))),
        (0x86dd, ipv6(59, 1, &[])),
        (0x86dd, ipv6(51, 1, &[&options(17), &udp[..]].concat())),
        (
            0x86dd,
            ipv6(43, 1, &[&options(60), &options(6), &udp[..]].concat()),
        ),
        (
            0x86dd,
            ipv6(44, 1, &[&[17, 0, 0, 0, 0, 0, 0, 1], &udp[..]].concat()),
        ),
        (
            0x86dd,
            ipv6(44, 1, &[&[17, 0, 0, 1, 0, 0, 0, 1], &udp[..]].concat()),
        ),
        (
            0x86dd,
            ipv6(44, 1, &[&[17, 0, 0, 9, 0, 0, 0, 1], &udp[..]].concat()),
        ),
        (
            0x86dd,
            ipv6(
                0,
                1,
                &[&options(44), &[6, 0, 1, 0, 0, 0, 0, 1], &udp[..]].concat(),
            ),
        ),
        (
            0x86dd,
            ipv6(
                60,
                1,
                &[&options(60).repeat(7), &options(17)[..], &udp].concat(),
            ),
        ),
        (
            0x86dd,
            ipv6(
                60,
                1,
                &[&options(60).repeat(8), &options(17)[..], &udp].concat(),
            ),
        ),
        (0x86dd, ipv6(60, 1, &[17, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])),
        (0x0806, arp(3)),
        (0x8035, arp(1)),
        (0x88cc, vec![0; 30]),
    ]);
    packets
}

fn ipv4(words: u8, protocol: u8, fragment: u16, last: u8, behind: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; 20.max(usize::from(words) * 4)];
    packet[0] = 0x40 | words;
    packet[6..8].copy_from_slice(&fragment.to_be_bytes());
    packet[8..10].copy_from_slice(&[64, protocol]);
    packet[12..20].copy_from_slice(&[10, 0, 0, last, 10, 0, last / 2, 2]);
    if last == 200 {
        packet[16..20].copy_from_slice(&[224, 0, 0, 22]);
    }
    packet.extend(behind);
    packet
}

fn ipv6(next: u8, last: u8, behind: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, behind.len() as u8, next, 64];
    for host in [last, 2] {
        packet.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]);
    }
    packet.extend(behind);
    packet
}

fn transport(protocol: u8, source: u16, destination: u16) -> Vec<u8> {
    let mut header = vec![0; if protocol == 17 { 8 } else { 20 }];
    header[..2].copy_from_slice(&source.to_be_bytes());
    header[2..4].copy_from_slice(&destination.to_be_bytes());
    if protocol == 6 {
        header[12..14].copy_from_slice(&[0x50, 0x12]);
    }
    header
}

fn arp(last: u8) -> Vec<u8> {
    let mut packet = vec![0, 1, 8, 0, 6, 4, 0, last, 2, 0, 0, 0, 0, 1];
    packet.extend([10, 0, 0, last, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2]);
    packet
}

fn options(next: u8) -> [u8; 8] {
    [next, 0, 1, 4, 0, 0, 0, 0]
}

/// The frame without what Ashway and libpcap are documented to disagree about
/// (`demux::parse`): half a header is taken off; extension headers, if `walk`,
/// are taken out; behind an impossible IPv4 header nothing is left. Written
/// from the documentation, apart from the walk it judges.
pub(crate) fn normal(frame: &[u8], walk: bool) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let word =
        |frame: &[u8], at: usize| Some(u16::from_be_bytes([*frame.get(at)?, *frame.get(at + 1)?]));
    let mut l3 = 14;
    let mut ethertype = word(&frame, 12);
    for _ in 0..2 {
        if matches!(ethertype, Some(0x8100 | 0x88a8 | 0x9100)) {
            if frame.len() < l3 + 4 {
                frame.truncate(l3 - 2);
                return frame;
            }
            ethertype = word(&frame, l3 + 2);
            l3 += 4;
        }
    }
    let (header, later) = match ethertype {
        Some(0x0800) => (20, 6),
        Some(0x86dd) => (40, 0),
        _ => return frame,
    };
    if frame.len() < l3 + header {
        frame.truncate(l3);
        return frame;
    }
    let l4;
    let protocol;
    if header == 20 {
        let later = word(&frame, l3 + later).unwrap() & 0x1fff != 0;
        if frame[l3] & 15 < 5 {
            frame[l3] |= 15;
            frame.truncate(l3 + 20);
        }
        if later {
            return frame;
        }
        l4 = l3 + 4 * usize::from(frame[l3] & 15);
        protocol = frame[l3 + 9];
    } else {
        l4 = l3 + 40;
        if walk {
            let mut behind = frame.split_off(l4);
            for _ in 0..8 {
                let next = frame[l3 + 6];
                let bytes = match next {
                    0 | 43 | 60 => 8 + 8 * usize::from(behind.get(1).copied().unwrap_or(0)),
                    44 => 8,
                    _ => break,
                };
                if behind.len() < bytes.max(8) {
                    break;
                }
                if next == 44 && word(&behind, 2).unwrap() >> 3 != 0 {
                    frame.extend(behind);
                    return frame;
                }
                frame[l3 + 6] = behind[0];
                behind.drain(..bytes);
            }
            if !matches!(frame[l3 + 6], 0 | 43 | 44 | 60) {
                frame.extend(behind);
            }
        }
        protocol = frame[l3 + 6];
    }
    if matches!(protocol, 6 | 17 | 132) && frame.len() < l4 + 4 {
        frame.truncate(l4);
    }
    frame
}
