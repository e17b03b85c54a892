//! Messages that their handler makes longer or shorter: the answer's lengths and
//! checksums are right in every place, and what is not answered is as it came.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use ashway_netns::node::entry;
use ashway_netns::traffic::{PLACES, settle};
use ashway_rig::{Rig, RigOptions, skip_unless_root};

/// The most that `apps/handlers/resize.c` makes a message longer.
const GROWS: usize = 512;

fn request(wanted: usize, len: usize) -> Vec<u8> {
    let mut request: Vec<u8> = (0..len).map(|i| (i * 7 + 3) as u8).collect();
    request[..2].copy_from_slice(&(wanted as u16).to_be_bytes());
    request
}

fn answer(wanted: usize, request: &[u8]) -> Vec<u8> {
    let mut answer = request.to_vec();
    if wanted <= request.len() + GROWS {
        answer.resize(wanted, 0);
    }
    answer
}

#[test]
fn answers_have_the_length_that_the_handler_gave_them() {
    if skip_unless_root() {
        return;
    }
    for (version, six) in [("resize4", false), ("resize6", true)] {
        let rig = Rig::new(version, RigOptions::default()).unwrap();
        for place in PLACES {
            let config = place.config().handler("resize").unwrap();
            let node = rig.node(config.path("resize", 7020, place.tier));
            let node = node.start().unwrap();
            let tier = entry(&node.status().unwrap(), "paths", "resize")["tier"].clone();
            assert_eq!(tier, place.tier, "{place}: {}", node.output());
            let client = if six {
                rig.client_a_v6(7020).unwrap()
            } else {
                rig.client_a(7020).unwrap()
            };
            let mut asked = 0;
            for len in [2, 3, 18, 19, 64, 501, 1000] {
                for wanted in [
                    0, 1, 2, 17, 18, 19, 63, 64, 65, 500, 512, 514, 515, 1000, 1300, 1600,
                ] {
                    let request = request(wanted, len);
                    let got = client.ask(&request).unwrap();
                    assert_eq!(got, answer(wanted, &request), "{place}: {len} to {wanted}");
                    asked += 1;
                }
            }
            let ledger = settle(&node, "resize", asked);
            ledger.assert_fates(&[("answered", asked)], &place);
            println!("{place}: {:?}", node.status().unwrap()["paths"][0]["notes"]);
            node.stop().unwrap();
        }
    }
}
