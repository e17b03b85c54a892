//! Two receive queues, two senders at once: a handler is serial all the same,
//! and nothing is lost without being counted. On one queue such a test would be
//! green whatever the code did (docs/facts.md, "One queue hides races"). And more queues
//! than there are rings for.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use ashway_netns::node::{at_rest, entry, ip, proc_status, run, shift, text, until};
use ashway_netns::traffic::{
    Ledger, PLACES, Place, TIERS, assert_no_increment_lost, by_queue, client_of_queue, path,
    settle, stream, two_queues,
};
use ashway_rig::{Node, Rig, RigOptions, UdpClient, skip_unless_root};

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
                let note = |name| ledger.notes.get(name).copied().unwrap_or(0);
                // Some of those that waited for the other ran in the kernel tier then.
                let met = note("waited_busy") > note("queued_busy");
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

/// A wire of so many queues at most, of which one is in use.
fn one_of(name: &str, queues: u32) -> Rig {
    let options = RigOptions {
        queues,
        ..RigOptions::default()
    };
    let rig = Rig::new(name, options).unwrap();
    set_queues(&rig, 1);
    rig
}

/// Has the wire use so many queues into B. B first: with XDP it takes no fewer than A sends
/// by.
fn set_queues(rig: &Rig, queues: u32) {
    let queues = queues.to_string();
    let in_b = rig.command_b("ethtool");
    let in_a = rig.command_a("ethtool");
    let mut ends = [(in_b, "b0", "rx"), (in_a, "a0", "tx")];
    if queues == "1" {
        ends.reverse();
    }
    for (mut ethtool, link, kind) in ends {
        let output = run(ethtool.args(["-L", link, kind, &queues]));
        assert!(output.status.success(), "{}", text(&output));
    }
}

/// As many clients as there are flows here; each is answered `times` times.
fn all_answered(clients: &[UdpClient], times: u32) {
    for client in clients {
        let sums = stream(client, 1, times, WINDOW);
        assert!(sums.windows(2).all(|pair| pair[0] < pair[1]));
    }
}

fn clients(rig: &Rig, flows: usize) -> Vec<UdpClient> {
    (0..flows).map(|_| rig.client_a(7777).unwrap()).collect()
}

/// Asks by every client in the user tier and in the kernel tier, where none of them goes to
/// the user tier: nothing was left behind there.
fn assert_answered_in_both_tiers(node: &Node, clients: &[UdpClient], times: u32, what: &str) {
    all_answered(clients, times);
    let in_user = Ledger::of(&at_rest(node), "all");
    shift(node, "promote", "all");
    all_answered(clients, times);
    let in_kernel = Ledger::of(&at_rest(node), "all");
    let asked = clients.len() as u64 * u64::from(times);
    assert_eq!(in_user.fate("answered"), asked, "{what}: {in_user:?}");
    in_kernel.assert_fates(&[("answered", 2 * asked)], &what);
    assert_eq!(
        in_kernel.notes, in_user.notes,
        "{what}: some left the kernel tier"
    );
}

/// Queues that come while a node runs lie behind no other interface's rings.
#[test]
fn queues_that_come_later_are_served() {
    if skip_unless_root() {
        return;
    }
    for memory in ["arena", "array"] {
        let rig = one_of("queues-later", 8);
        ip(rig.command_b("ip"), "link add b1 type veth peer name c1");
        ip(rig.command_b("ip"), "link set b1 up");
        let config = TIERS[0].config().iface("b1", "native");
        let config = config.handler("counter").unwrap();
        let config = config.text(&format!("memory = {memory:?}"));
        // The ring behind those of `b0` is that of `b1`, on which the path is not.
        let config = path(config, "all", "counter", 7777, TIERS[0], "").text(
            "[path.other]\niface = \"b1\"\nmatch = \"udp and dst port 7777\"\n\
             handler = \"counter\"\ntier = \"user\"",
        );
        let node = rig.node(config).start().unwrap();
        set_queues(&rig, 8);
        until("the node has seen them", || {
            let status = node.status().unwrap();
            (status["interfaces"][0]["rx_queues"] == 8).then_some(())
        });
        let clients = clients(&rig, 64);
        let before = by_queue(&rig);
        assert_answered_in_both_tiers(&node, &clients, 20, memory);
        let came = by_queue(&rig).into_iter().zip(before);
        let came = came.filter(|(now, before)| now > before);
        assert!(came.count() > 4, "flows come by many queues");
        let status = node.status().unwrap();
        assert_eq!(entry(&status, "paths", "other")["received"], 0);
        node.stop().unwrap();
    }
}

/// More queues than a handler's memory has rings, configured or loaded.
#[test]
fn more_queues_than_rings_are_served() {
    if skip_unless_root() {
        return;
    }
    let options = RigOptions {
        queues: 80,
        ..RigOptions::default()
    };
    let rig = Rig::new("queues-80", options).unwrap();
    let file = ashway_rig::handler("counter").unwrap();
    for loaded in [false, true] {
        let place = TIERS[0];
        let node = if loaded {
            let node = rig.node(place.config()).start().unwrap();
            for words in [
                &[
                    "handler",
                    "load",
                    file.to_str().unwrap(),
                    "--allow",
                    "reply",
                ][..],
                &[
                    "bind", "counter", "--name", "all", "--iface", "b0", "--match",
                ],
            ] {
                let mut words = words.to_vec();
                if words[0] == "bind" {
                    words.extend(["udp and dst port 7777", "--tier", "user"]);
                }
                let output = run(&mut node.command(&words));
                assert!(output.status.success(), "{}", text(&output));
            }
            node
        } else {
            node(&rig, place, "counter")
        };
        let clients = clients(&rig, 300);
        let before = by_queue(&rig);
        let what = if loaded { "loaded" } else { "configured" };
        assert_answered_in_both_tiers(&node, &clients, 5, what);
        let came = by_queue(&rig).into_iter().zip(before);
        let came = came.filter(|(now, before)| now > before);
        assert!(came.count() > 64, "flows come by many queues");
        node.stop().unwrap();
    }
}

/// A card of 128 queues, in both tiers, under XDP and at TCX.
#[test]
fn a_hundred_and_twenty_eight_queues_are_served() {
    if skip_unless_root() {
        return;
    }
    let options = RigOptions {
        queues: 128,
        ..RigOptions::default()
    };
    let rig = Rig::new("queues-128", options).unwrap();
    for place in [TIERS[0], PLACES[5]] {
        let node = node(&rig, place, "counter");
        let status = node.status().unwrap();
        assert_eq!(status["interfaces"][0]["rx_queues"], 128, "{place}");
        let clients = clients(&rig, 400);
        let before = by_queue(&rig);
        assert_answered_in_both_tiers(&node, &clients, 5, &place.to_string());
        let came = by_queue(&rig).into_iter().zip(before);
        let came = came.filter(|(now, before)| now > before).count();
        // At TCX a veth without XDP does not count by queue.
        assert!(
            came > 100 || place.mode == "tcx",
            "{place}: by {came} queues"
        );
        let held = proc_status(node.id(), "VmRSS");
        println!("{place}: {held} resident");
        node.stop().unwrap();
    }
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
