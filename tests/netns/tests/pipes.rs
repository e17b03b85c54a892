//! The header first, then the payload through a pipe straight to its place
//! (ASH-52): real packets, both tiers, checked by an application's own eyes.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use ashway_netns::node::{Config, application, entry, stock};
use ashway_netns::traffic::{PLACES, Place, path, settle};
use ashway_rig::{handler, skip_unless_root};

const PORT: u16 = 7012;

const DEPOSIT: u8 = 11;
const ASK: u8 = 127;

/// The samples handler on its port.
fn samples(place: Place) -> Config {
    let file = handler("samples").unwrap();
    let file = file.to_string_lossy();
    let section = format!("[handler.samples]\nfile = {file:?}\nallow = [\"reply\", \"pipe\"]");
    path(
        place.config().text(&section),
        "samples",
        "samples",
        PORT,
        place,
        "",
    )
}

/// RTP: its header, and a payload.
fn packet(kind: u8, sequence: u16, payload: &[u8]) -> Vec<u8> {
    let sequence = sequence.to_be_bytes();
    let header = [0x80, kind, sequence[0], sequence[1], 1, 2, 3, 4, 5, 6, 7, 8];
    [&header[..], payload].concat()
}

fn payload(len: usize, seed: usize) -> Vec<u8> {
    (0..len)
        .map(|at| (at * 29 + seed * 7 + at / 5) as u8)
        .collect()
}

/// RFC 1071, in memory order as `cksum16` has it.
fn checksum(data: &[u8]) -> u64 {
    let words = data.chunks(2);
    let word =
        |pair: &[u8]| u64::from(pair[0]) | pair.get(1).map_or(0, |high| u64::from(*high) << 8);
    let mut sum = words.map(word).sum::<u64>();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum
}

/// Bytes of whole samples exchanged; a last one alone stays.
fn swapped(data: &[u8]) -> Vec<u8> {
    let mut data = data.to_vec();
    for pair in data.chunks_exact_mut(2) {
        pair.swap(0, 1);
    }
    data
}

fn fnv(data: &[u8]) -> u32 {
    data.iter().fold(2_166_136_261, |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(16_777_619)
    })
}

#[test]
fn a_payload_goes_through_its_pipe_to_its_place() {
    if skip_unless_root() {
        return;
    }
    let rig = stock("pipes");
    for place in PLACES {
        let node = rig.node(samples(place)).start().unwrap();
        let status = node.status().unwrap();
        let tier = &entry(&status, "paths", "samples")["tier"];
        assert_eq!(*tier, place.tier, "{}", node.output());
        let mut app = application(&node, "samples", "samples_app").unwrap();
        let client = rig.client_a(PORT).unwrap();
        let lengths = [
            0, 1, 2, 7, 8, 63, 64, 65, 127, 128, 160, 641, 1024, 1439, 1440,
        ];
        for (number, len) in lengths.into_iter().enumerate() {
            let data = payload(len, number);
            let sequence = 65_530_u16.wrapping_add(number as u16);
            let what = format!("{place}: {len} bytes");
            client.send(&packet(DEPOSIT, sequence, &data)).unwrap();
            let deposited = settle(&node, "samples", 2 * number as u64 + 1);
            assert!(deposited.gap().is_none(), "{what}");
            let sum = checksum(&data);
            let hash = fnv(&swapped(&data));
            let line = format!("{sequence} {sum} {len} {hash}");
            assert_eq!(
                app.ask(&(sequence % 16).to_string()).unwrap(),
                line,
                "{what}"
            );

            let zeros = vec![0; len];
            let reply = client.ask(&packet(ASK, sequence, &zeros)).unwrap();
            assert_eq!(reply[12..], data, "{what}: back");
            assert_eq!(reply[8..12], (sum as u32).to_be_bytes(), "{what}: sum");
        }
        let count = lengths.len() as u64;
        // Too long for its slot, and a slot that another packet has: nothing is done.
        client.send(&packet(DEPOSIT, 3, &payload(1441, 9))).unwrap();
        client.send(&packet(ASK, 9, &[])).unwrap();
        let ledger = settle(&node, "samples", 2 * count + 2);
        let fates = [
            ("consumed", count),
            ("answered", count),
            ("dropped_handler", 2),
        ];
        ledger.assert_fates(&fates, &place);
        node.stop().unwrap();
    }
}

#[test]
fn who_has_no_grant_is_not_loaded() {
    if skip_unless_root() {
        return;
    }
    let rig = stock("nopipe");
    let config = Config::on_b0("native").handler("samples").unwrap();
    let node = rig.node(config.path("samples", PORT, "user"));
    let mut node = node.launch().unwrap();
    assert_eq!(node.wait().unwrap().code(), Some(2), "{}", node.output());
    let said = node.output();
    assert!(said.contains("add \"pipe\" to `allow`"), "{said}");
}
