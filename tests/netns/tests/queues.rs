//! Two receive queues, two senders at once: a handler is serial all the same,
//! and nothing is lost without being counted. On one queue such a test would be
//! green whatever the code did (docs/facts.md, "One queue hides races").

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use ashway_netns::traffic::{
    PLACES, Place, TIERS, assert_no_increment_lost, by_queue, client_of_queue, path, settle,
    stream, two_queues,
};
use ashway_rig::{Node, Rig, UdpClient, skip_unless_root};

/// Messages of each of two senders.
const EACH: u32 = 25_000;

/// Unanswered messages of each: well below what rings and sockets hold.
const WINDOW: u32 = 48;

fn node(rig: &Rig, place: Place, handler: &str) -> Node {
    let config = place.config().handler(handler).unwrap();
    rig.node(path(config, "all", handler, 7777, place, ""))
        .start()
        .unwrap()
}

/// Both senders at once; what each was answered, in the order of its requests.
fn both(clients: &[UdpClient; 2]) -> [Vec<u32>; 2] {
    std::thread::scope(|scope| {
        let [one, two] = clients;
        let one = scope.spawn(move || stream(one, 1, EACH, WINDOW));
        let two = scope.spawn(move || stream(two, 1, EACH, WINDOW));
        let answers = [one.join().unwrap(), two.join().unwrap()];
        for sums in &answers {
            let in_order = sums.windows(2).all(|pair| pair[0] < pair[1]);
            assert!(in_order, "a message of a flow ran before an earlier one");
        }
        answers
    })
}

/// No increment is lost: each sum from 1 to their number is answered to exactly
/// one message, each flow's replies come in order, and the ledger closes.
#[test]
fn no_increment_is_lost_on_two_queues() {
    if skip_unless_root() {
        return;
    }
    for gro in [false, true] {
        let rig = two_queues(if gro { "queues-gro" } else { "queues" }, gro);
        for place in TIERS {
            let node = node(&rig, place, "counter");
            let (one, probes_one) = client_of_queue(&rig, 0, 7777);
            let (two, probes_two) = client_of_queue(&rig, 1, 7777);
            let probes = probes_one + probes_two;
            let before = by_queue(&rig);
            let clients = [one, two];
            let mut sums = Vec::new();
            let mut all = 0;
            // A handler takes less than a microsecond, so the two seldom meet
            // in it; a round in which they never did would test nothing.
            let ledger = loop {
                sums.extend(both(&clients));
                all += u64::from(EACH) * 2;
                let ledger = settle(&node, "all", all + probes);
                let met = ledger.notes.contains_key("queued_busy");
                if met || place.tier == "user" || cpus() < 2 {
                    break ledger;
                }
                assert!(sums.len() < 200, "the senders never met: {ledger:?}");
            };
            for (queue, (now, before)) in by_queue(&rig).iter().zip(&before).enumerate() {
                let arrived = now - before;
                // Counted at the end of a poll of at most 64.
                let least = all / 2 - 64;
                assert!(arrived >= least, "{place}: queue {queue}: {arrived}");
            }
            assert_no_increment_lost(sums, &place);
            ledger.assert_fates(&[("answered", all + probes)], &place);
            println!("{place}, gro {gro}: {:?}", ledger.notes);
            node.stop().unwrap();
        }
    }
}

/// The same where queues do not matter to who receives: any two CPUs may be in
/// generic XDP of one queue at once, and a packet socket has none.
#[test]
fn no_increment_is_lost_in_other_modes() {
    if skip_unless_root() {
        return;
    }
    let rig = two_queues("modes", false);
    for place in &PLACES[2..] {
        let node = node(&rig, *place, "counter");
        let clients = [rig.client_a(7777).unwrap(), rig.client_a(7777).unwrap()];
        let sums = both(&clients);
        assert_no_increment_lost(sums, place);
        let all = u64::from(EACH) * 2;
        let ledger = settle(&node, "all", all);
        ledger.assert_fates(&[("answered", all)], place);
        println!("{place}: {:?}", ledger.notes);
        node.stop().unwrap();
    }
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
