//! Handlers in three parts: who aborts leaves nothing behind, and the next choice
//! gets the message (ASH-4, ASH-5).

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use ashway_netns::node::{application, entry, ordinary, stock};
use ashway_netns::traffic::{SOON, TIERS, path, settle};
use ashway_rig::skip_unless_root;
use serde_json::json;

const PORT: u16 = 7006;

/// A request for these seats.
fn request(seats: &[u16]) -> Vec<u8> {
    let mut bytes = (seats.len() as u32).to_be_bytes().to_vec();
    bytes.extend(seats.iter().flat_map(|seat| seat.to_be_bytes()));
    bytes
}

#[test]
fn an_aborted_message_goes_to_the_next_choice_and_memory_is_as_it_was() {
    if skip_unless_root() {
        return;
    }
    let rig = stock("parts");
    let host = ordinary(&rig, PORT);
    host.set_read_timeout(Some(SOON)).unwrap();
    for place in TIERS {
        let config = place.config().handler("seats").unwrap();
        let config = path(config, "seats", "seats", PORT, place, "");
        let node = rig.node(config).start().unwrap();
        let status = node.status().unwrap();
        assert_eq!(
            entry(&status, "paths", "seats")["tier"],
            place.tier,
            "{}",
            node.output()
        );
        let mut app = application(&node, "seats", "seats_app").unwrap();
        let client = rig.client_a(PORT).unwrap();
        // What the ordinary socket hears is the request, unchanged.
        let handed_on = |seats: &[u16]| {
            let request = request(seats);
            client.send(&request).unwrap();
            let mut heard = [0; 64];
            let (len, _) = host.recv_from(&mut heard).unwrap();
            assert_eq!(heard[..len], request, "{place}");
        };

        let reply = client.ask(&request(&[7, 8])).unwrap();
        assert_eq!(reply[..4], 254_u32.to_be_bytes(), "{place}");
        let before = app.ask("1").unwrap();
        handed_on(&[9, 10, 11]);
        assert_eq!(
            app.ask("0").unwrap(),
            before,
            "{place}: while the hall is held"
        );
        // Two seats are free, the third is not: they have to be given back.
        handed_on(&[9, 10, 7]);
        handed_on(&[12, 12]);
        assert_eq!(app.ask("?").unwrap(), before, "{place}: undone");
        let reply = client.ask(&request(&[9, 10, 12])).unwrap();
        assert_eq!(reply[..4], 251_u32.to_be_bytes(), "{place}");
        assert_ne!(
            app.ask("?").unwrap(),
            before,
            "{place}: the checksum sees a change"
        );

        let ledger = settle(&node, "seats", 5);
        ledger.assert_fates(&[("answered", 2), ("passed", 3)], &place);
        let status = node.status().unwrap();
        let path = entry(&status, "paths", "seats");
        assert_eq!(path["aborts"], json!({ "voluntary": 3 }), "{place}");
        let activations = json!({ "examined": 5, "committed": 2, "aborted": 3 });
        assert_eq!(path["activations"], activations, "{place}");
        node.stop().unwrap();
    }
}
