//! `deliver`: messages reach the application's ring in every place a handler can
//! run, whether the application polls or sleeps (ASH-23, ASH-34).

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use ashway_netns::node::{
    Config, Lines, application_with, ask, entry, proc_status, run, text, until,
};
use ashway_netns::traffic::{PLACES, Place, TIERS, settle};
use ashway_rig::{Frame, Node, Rig, RigOptions, Signal, Spoil, skip_unless_root};

fn config(place: Place, slots: usize, memory: &str) -> Config {
    let file = ashway_rig::handler("inbox").unwrap();
    let file = file.to_string_lossy();
    let config = place.config().text(&format!(
        "[handler.inbox]\nfile = {file:?}\nendpoint = {slots}\nmemory = {memory:?}"
    ));
    config.path("inbox", 7009, place.tier)
}

fn start(rig: &Rig, place: Place, slots: usize) -> Node {
    start_with(rig, config(place, slots, "auto"), place)
}

fn start_with(rig: &Rig, config: Config, place: Place) -> Node {
    let node = rig.node(config).start().unwrap();
    let status = node.status().unwrap();
    let tier = &entry(&status, "paths", "inbox")["tier"];
    assert_eq!(tier, place.tier, "{place}: {}", node.output());
    node
}

/// A reader without any privilege, which has the endpoint.
fn reader(node: &Node, how: &str) -> Lines {
    let mut reader = application_with(node, "inbox", "inbox_app", &["--endpoint"], &[how]).unwrap();
    assert_eq!(reader.hear().unwrap(), "open");
    reader
}

/// `BYTES LAST ASTRAY` of the application's answer.
fn answer(line: &str) -> [u64; 3] {
    let numbers: Vec<u64> = line.split(' ').map(|n| n.parse().unwrap()).collect();
    numbers.try_into().unwrap()
}

#[test]
fn messages_reach_an_application_that_polls_or_sleeps() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("inbox", RigOptions::default()).unwrap();
    for place in PLACES {
        for how in ["poll", "sleep"] {
            let node = start(&rig, place, 256);
            let mut inbox = reader(&node, how);
            let client = rig.client_a(7009).unwrap();
            let mut sent = 0;
            // One by one, so that it sleeps before each; then many at once.
            for batch in [1; 20].into_iter().chain([100; 5]) {
                inbox.say(&batch.to_string()).unwrap();
                let mut bytes = 0;
                for i in 0..batch {
                    let message = vec![0; 4 + (sent + i) % 1400];
                    bytes += message.len() as u64;
                    client.send(&message).unwrap();
                }
                sent += batch;
                let said = answer(&inbox.hear().unwrap());
                assert_eq!(said, [bytes, sent as u64, 0], "{place}, {how}");
            }
            let sent = sent as u64;
            settle(&node, "inbox", sent).assert_fates(&[("delivered", sent)], &place);
            node.stop().unwrap();
        }
    }
}

/// What tells circuits apart, its `match`, and the frame of a message of one.
type Circuit = (&'static str, fn(u16) -> String, fn(u16, &[u8]) -> Vec<u8>);

const CIRCUITS: [Circuit; 3] = [
    (
        "vlan",
        |id| format!("vlan {id} and udp"),
        |id, message| Frame::to_b(7009, message).spoil(Spoil::Vlan(id)).bytes(),
    ),
    (
        "vxlan",
        |id| format!("vxlan {id} and udp"),
        |id, message| {
            // RFC 7348 §5: the flag, reserved bytes, the identifier, a reserved byte.
            let [high, low] = id.to_be_bytes();
            let header = [8, 0, 0, 0, 0, high, low, 0];
            Frame::to_b(4789, &[&header, message].concat()).bytes()
        },
    ),
    (
        "flow label",
        |id| format!("ip6[0:4] & 0xfffff = {id} and udp dst port 7009"),
        |id, message| {
            // RFC 8200 §3: the lowest 20 bits of the first word, which no checksum covers.
            let mut frame = Frame::to_b_v6(7009, message).bytes();
            frame[16..18].copy_from_slice(&id.to_be_bytes());
            frame
        },
    ),
];

/// Handlers that are bound to a circuit each have their own ring: by VLAN id, VXLAN network
/// identifier and flow label, whether the reader sleeps or polls (ASH-62).
#[test]
fn each_circuit_has_its_ring() {
    const IDS: [u16; 2] = [5, 6];
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("circuits", RigOptions::default()).unwrap();
    let wire = rig.injector_a().unwrap();
    let file = ashway_rig::handler("inbox").unwrap();
    let file = file.to_string_lossy();
    for ((what, filter, frame), place) in CIRCUITS
        .into_iter()
        .flat_map(|circuit| TIERS.map(|place| (circuit, place)))
    {
        let config = IDS.iter().fold(place.config(), |config, id| {
            config.text(&format!(
                "[handler.circuit{id}]\nfile = {file:?}\nendpoint = 64\n\
                 [path.circuit{id}]\niface = \"b0\"\nmatch = {:?}\n\
                 handler = \"circuit{id}\"\ntier = {:?}",
                filter(*id),
                place.tier
            ))
        });
        let node = rig.node(config).start().unwrap();
        let mut inboxes = IDS.map(|id| {
            let handler = format!("circuit{id}");
            let options = ["--endpoint"];
            let how = if id == IDS[0] { "sleep" } else { "poll" };
            let mut inbox =
                application_with(&node, &handler, "inbox_app", &options, &[how]).unwrap();
            assert_eq!(inbox.hear().unwrap(), "open", "{what}, {place}");
            inbox
        });
        // In a tunnel the handler sees the outer datagram's payload.
        let around = if what == "vxlan" { 8 } else { 0 };
        for number in 1..=20 {
            for id in IDS {
                let message = vec![0; usize::from(id)];
                wire.send(&frame(id, &message)).unwrap();
                // Of another circuit, which has none.
                wire.send(&frame(id + 2, &message)).unwrap();
            }
            for (id, inbox) in IDS.into_iter().zip(&mut inboxes) {
                let said = answer(&inbox.ask("1").unwrap());
                assert_eq!(said[0], u64::from(id) + around, "{what}, {place}: {number}");
            }
        }
        for id in IDS {
            let path = format!("circuit{id}");
            let delivered = [("delivered", 20)];
            settle(&node, &path, 20).assert_fates(&delivered, &format!("{what}, {place}"));
        }
        node.stop().unwrap();
    }
}

/// Nobody waits for a reader that does not read; what does not fit is counted.
#[test]
fn a_full_ring_is_a_counted_drop() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("fullbox", RigOptions::default()).unwrap();
    for (place, memory) in TIERS
        .into_iter()
        .flat_map(|place| [(place, "arena"), (place, "array")])
    {
        let node = start_with(&rig, config(place, 16, memory), place);
        let mut inbox = reader(&node, "sleep");
        let client = rig.client_a(7009).unwrap();
        for _ in 0..40 {
            client.send(&[0; 8]).unwrap();
        }
        let fates = [("delivered", 16), ("dropped_endpoint_full", 24)];
        settle(&node, "inbox", 40).assert_fates(&fates, &place);
        // What did fit is there, and then there is room again.
        assert_eq!(answer(&inbox.ask("16").unwrap()), [128, 16, 0], "{place}");
        client.send(&[0; 8]).unwrap();
        assert_eq!(answer(&inbox.ask("1").unwrap()), [8, 41, 1], "{place}");
        node.stop().unwrap();
    }
}

/// A reader that is not scheduled: the handler goes on, what fits waits for the reader, what does
/// not is counted, and another path answers all the time, by the worker or without it (ASH-34).
#[test]
fn a_stopped_reader_stops_nothing() {
    const SLOTS: usize = 16;
    const SENT: u32 = 40;
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("haltbox", RigOptions::default()).unwrap();
    for place in PLACES {
        for how in ["poll", "sleep"] {
            let what = format!("{place}, {how}");
            let config = config(place, SLOTS, "auto").handler("counter").unwrap();
            let config = config.path("counter", 7777, place.tier);
            let node = rig.node(config).start().unwrap();
            let mut inbox = reader(&node, how);
            // It reads, and has room for all when it is stopped.
            inbox.say("1").unwrap();
            let client = rig.client_a(7009).unwrap();
            client.send(&[0; 8]).unwrap();
            assert_eq!(answer(&inbox.hear().unwrap()), [8, 1, 0], "{what}");
            inbox.process().signal(Signal::STOP).unwrap();
            until("the reader is stopped", || {
                let state = proc_status(inbox.process().id(), "State");
                state.starts_with('T').then_some(())
            });
            // What it would do next, if it could.
            inbox.say(&SLOTS.to_string()).unwrap();
            let neighbour = rig.client_a(7777).unwrap();
            for sum in 1..=SENT {
                client.send(&[0; 8]).unwrap();
                assert_eq!(ask(&rig, &node, &neighbour, 1), sum, "{what}");
            }
            let (slots, sent) = (SLOTS as u64, u64::from(SENT));
            let fates = [
                ("delivered", 1 + slots),
                ("dropped_endpoint_full", sent - slots),
            ];
            settle(&node, "inbox", 1 + sent).assert_fates(&fates, &what);
            settle(&node, "counter", sent).assert_fates(&[("answered", sent)], &what);
            inbox.process().signal(Signal::CONT).unwrap();
            // In order, the first that came; and then there is room again.
            let last = 1 + slots;
            let said = answer(&inbox.hear().unwrap());
            assert_eq!(said, [8 * slots, last, 0], "{what}");
            client.send(&[0; 8]).unwrap();
            let said = answer(&inbox.ask("1").unwrap());
            assert_eq!(said, [8, 2 + sent, 1], "{what}");
            node.stop().unwrap();
        }
    }
}

/// The node wakes a reader by a descriptor that the reader can fill and make blocking: it
/// does not wait for it, and neither do others, nor the node's end.
#[test]
fn a_reader_that_cannot_be_woken_holds_up_nobody() {
    const MANY: u32 = 2_000;
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("deafbox", RigOptions::default()).unwrap();
    for place in PLACES {
        // As many slots as messages: it may be off its CPU for a while.
        let config = config(place, 4096, "auto").handler("counter").unwrap();
        // The worker's, so that it shows whether the worker hangs.
        let node = rig
            .node(config.path("counter", 7777, "user"))
            .start()
            .unwrap();
        let options = ["--endpoint"];
        let mut deaf = application_with(&node, "inbox", "deaf_app", &options, &[]).unwrap();
        assert_eq!(deaf.hear().unwrap(), "deaf");
        let inbox = rig.client_a(7009).unwrap();
        let neighbour = rig.client_a(7777).unwrap();
        for sum in 1..=MANY {
            inbox.send(&[0; 8]).unwrap();
            assert_eq!(ask(&rig, &node, &neighbour, 1), sum, "{place}");
        }
        let fates = [("delivered", u64::from(MANY))];
        settle(&node, "inbox", u64::from(MANY)).assert_fates(&fates, &place);
        node.stop().unwrap();
    }
}

/// An endpoint goes with the process that reads it, and there is one.
#[test]
fn the_endpoint_of_a_killed_reader_is_closed() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("deadbox", RigOptions::default()).unwrap();
    for place in TIERS {
        let node = start(&rig, place, 64);
        let client = rig.client_a(7009).unwrap();
        client.send(&[0; 8]).unwrap();
        let nobody = [("dropped_no_endpoint", 1)];
        settle(&node, "inbox", 1).assert_fates(&nobody, &place);

        let first = reader(&node, "sleep");
        let map = ["handler", "map", "inbox", "--endpoint"];
        let second = run(node.command(map).args(["--", "true"]));
        let refused = format!("process {} reads the endpoint", first.process().id());
        assert!(text(&second).contains(&refused), "{}", text(&second));
        client.send(&[0; 8]).unwrap();
        let one = [("dropped_no_endpoint", 1), ("delivered", 1)];
        settle(&node, "inbox", 2).assert_fates(&one, &place);

        first.process().signal(Signal::KILL).unwrap();
        until("the endpoint is closed", || {
            let status = node.status().unwrap();
            let handler = entry(&status, "handlers", "inbox");
            handler["endpoint"]["reader"].is_null().then_some(())
        });
        client.send(&[0; 8]).unwrap();
        let two = [("dropped_no_endpoint", 2), ("delivered", 1)];
        settle(&node, "inbox", 3).assert_fates(&two, &place);

        // The next reader gets what comes from now on: the fourth message.
        let mut next = reader(&node, "poll");
        client.send(&[0; 8]).unwrap();
        assert_eq!(answer(&next.ask("1").unwrap()), [8, 4, 1], "{place}");
        node.stop().unwrap();
    }
}

#[test]
fn a_handler_without_an_endpoint_says_so() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("nobox", RigOptions::default()).unwrap();
    let config = TIERS[0].config().handler("echo").unwrap();
    let node = rig.node(config.path("echo", 7001, "user")).start().unwrap();
    let map = ["handler", "map", "echo", "--endpoint"];
    let refused = run(node.command(map).args(["--", "true"]));
    assert_eq!(refused.status.code(), Some(1));
    let said = text(&refused);
    assert!(said.contains("handler `echo` has no endpoint"), "{said}");
    assert!(said.contains("`endpoint = 256`"), "{said}");
    node.stop().unwrap();
}
