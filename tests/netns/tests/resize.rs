//! Messages that their handler makes longer or shorter: the answer's lengths and
//! checksums are right in every place, and what is not answered is as it came.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use std::net::UdpSocket;

use ashway_netns::node::{Config, PATIENCE, entry};
use ashway_netns::traffic::{PLACES, settle};
use ashway_rig::{B4, Rig, RigOptions, skip_unless_root};

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
            // What the link does not take is counted as what it is.
            client.send(&request(1600, 1200)).unwrap();
            asked += 1;
            let ledger = settle(&node, "resize", asked);
            ledger.assert_fates(&[("answered", asked)], &place);
            let status = node.status().unwrap();
            let dropped = &entry(&status, "paths", "resize")["out"]["dropped"];
            assert_eq!(dropped, &serde_json::json!({ "too_long": 1 }), "{place}");
            node.stop().unwrap();
        }
    }
}

/// A veth's frames have room up to the next multiple of 64 bytes: with so little, and
/// with a handler that only cuts, the kernel tier answers by itself.
#[test]
fn the_kernel_tier_changes_lengths_itself_where_there_is_room() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("resizek", RigOptions::default()).unwrap();
    let file = std::env::temp_dir().join(format!("{}.wasm", rig.name()));
    for (grows, lengths) in [(0, 0..=38), (16, 0..=54)] {
        let wasm = wat::parse_str(format!(
            r#"(module
                (import "ashway" "msg_resize" (func $resize (param i32) (result i32)))
                (import "ashway" "msg_load8" (func $load (param i32) (result i32)))
                (memory (export "memory") 1 1)
                (@custom "ashway.grows" "\{grows:02x}\00\00\00")
                (func (export "on_rx") (param i32 i32) (result i32)
                    (if (i32.eq (call $load (i32.const 1)) (i32.const 255))
                        (then (return (i32.const 3))))
                    (drop (call $resize (call $load (i32.const 0))))
                    (i32.const 1)))"#
        ));
        std::fs::write(&file, wasm.unwrap()).unwrap();
        let config = Config::on_b0("native").handler_file("lengths", &file);
        let node = rig
            .node(config.path("lengths", 7023, "kernel"))
            .start()
            .unwrap();
        let client = rig.client_a(7023).unwrap();
        let mut asked = 0;
        for wanted in lengths {
            // 14 + 20 + 8 + 38 bytes of frame, and 48 of room.
            let mut request = [7; 38];
            request[0] = wanted;
            let mut answer = request.to_vec();
            answer.resize(wanted.into(), 0);
            assert_eq!(client.ask(&request).unwrap(), answer, "{grows}");
            asked += 1;
        }
        // What the host gets is as it came.
        let host = rig.in_b(|| UdpSocket::bind((B4, 7023)).unwrap());
        host.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut request = [9; 38];
        request[1] = 255;
        client.send(&request).unwrap();
        let mut got = [0; 100];
        let (len, _) = host.recv_from(&mut got).unwrap();
        assert_eq!(got[..len], request, "{grows}");

        let ledger = settle(&node, "lengths", asked + 1);
        ledger.assert_fates(&[("answered", asked), ("passed", 1)], &grows);
        let status = node.status().unwrap();
        let notes = &entry(&status, "paths", "lengths")["notes"];
        assert_eq!(
            notes,
            &serde_json::json!({}),
            "{grows}: all in the kernel tier"
        );
        node.stop().unwrap();
    }
    std::fs::remove_file(file).unwrap();
}
