//! The default budget buys the fuel for 4 KiB copied, decrypted and checksummed, in
//! every place a handler can run (ASH-27).

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use std::time::Duration;

use aes::Aes128;
use aes::cipher::{BlockEncrypt, KeyInit};
use ashway_netns::node::{entry, run, stock};
use ashway_netns::traffic::{PLACES, Random, path, settle};
use ashway_rig::frames::checksum;
use ashway_rig::{handler, skip_unless_root};

/// What the handler decrypts at a time.
const BYTES: usize = 4096;

/// Key and first counter block.
type Header = [u8; 32];

/// The fuel that a budget of 50 us buys.
const FUEL: u64 = 50_000 * 48;

/// How long it takes is the machine's: 30 us on one, 60 us on another, so the paths here
/// have more than the default. A hypervisor that takes the CPU away ends a run all the
/// same, rightly: most fit, and what does not is lost to the time and to nothing else.
#[test]
fn four_kib_are_decrypted_with_the_default_budgets_fuel() {
    const EACH: u64 = 50;
    if skip_unless_root() {
        return;
    }
    let rig = stock("budget");
    let mut command = rig.ashway_b().unwrap();
    command.args(["handler", "run", "--tier", "user", "--budget", "1 ms", "-j"]);
    command.arg(handler("decrypt").unwrap());
    let output = run(command.args(["--hex", &"a7".repeat(1_432)]));
    let ran: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let fuel = ran["packets"][0]["user"]["fuel_spent"].as_u64();
    assert!((1..FUEL).contains(&fuel.unwrap()), "{ran:#}");
    for place in PLACES {
        let config = place.config().handler("decrypt").unwrap();
        let config = path(
            config,
            "decrypt",
            "decrypt",
            7777,
            place,
            "budget = \"1 ms\"",
        );
        let node = rig.node(config).start().unwrap();
        let status = node.status().unwrap();
        assert_eq!(
            entry(&status, "paths", "decrypt")["tier"],
            place.tier,
            "{place}"
        );
        let client = rig.client_a(7777).unwrap();
        client.set_timeout(Duration::from_secs(1)).unwrap();
        let mut random = Random::new(27);
        let mut sealed = [0; BYTES];
        let mut late = 0;
        for number in 0..EACH {
            let mut header: Header = std::array::from_fn(|_| random.byte());
            if number == 0 {
                // The counter's last word overflows on the way.
                header[28..].fill(0xff);
            }
            // The beginning of the text comes along, the rest is there already.
            let text: Vec<u8> = (0..random.below(1_400)).map(|_| random.byte()).collect();
            sealed[..text.len()].copy_from_slice(&text);
            let mut message = [&header[..], &text].concat();
            let Ok(answer) = client.ask(&message) else {
                late += 1;
                continue;
            };
            let opened = decrypted(&header, &sealed);
            message[..2].copy_from_slice(&checksum(&opened).to_be_bytes());
            assert_eq!(answer, message, "{place}, {number}");
        }
        assert!(late < EACH / 2, "{place}: {late} of {EACH} unanswered");
        let ledger = settle(&node, "decrypt", EACH);
        ledger.assert_fates(&[("answered", EACH - late), ("passed", late)], &place);
        let by_time = ledger.aborts.get("time").copied().unwrap_or(0);
        assert_eq!(by_time, late, "{place}: {ledger:?}");
    }
}

/// NIST SP 800-38A, 6.5, with the block's last word as the counter.
fn decrypted(header: &Header, text: &[u8]) -> Vec<u8> {
    let cipher = Aes128::new_from_slice(&header[..16]).unwrap();
    let first = u32::from_be_bytes(header[28..].try_into().unwrap());
    let decrypted = text.chunks(16).zip(0..).flat_map(|(text, number)| {
        let mut block = aes::Block::clone_from_slice(&header[16..]);
        block[12..].copy_from_slice(&first.wrapping_add(number).to_be_bytes());
        cipher.encrypt_block(&mut block);
        text.iter()
            .zip(block)
            .map(|(text, stream)| text ^ stream)
            .collect::<Vec<u8>>()
    });
    decrypted.collect()
}

/// NIST SP 800-38A, F.5.2, CTR-AES128.Decrypt, its first two blocks.
#[test]
fn the_oracle_is_aes_in_counter_mode() {
    let bytes = |hex: &str| -> Vec<u8> {
        let digits = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        (0..hex.len()).step_by(2).map(digits).collect()
    };
    let header = bytes("2b7e151628aed2a6abf7158809cf4f3cf0f1f2f3f4f5f6f7f8f9fafbfcfdfeff");
    let sealed = bytes("874d6191b620e3261bef6864990db6ce9806f66b7970fdff8617187bb9fffdff");
    let opened = bytes("6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51");
    assert_eq!(decrypted(&header.try_into().unwrap(), &sealed), opened);
}
