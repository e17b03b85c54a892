//! A running node moves between hooks, native XDP, generic XDP and TCX, while messages come: each
//! is worked on once, at one of them, and nothing else of the node changes.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use std::fs;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use ashway_kernel::{Attached, Mode};
use ashway_netns::node::{
    Config, assert_free, at_rest, control, entry, index, ordinary, run, stranger, text, until,
};
use ashway_netns::traffic::{Ledger, Over, request, settle, unmatched};
use ashway_rig::{Node, Rig, RigOptions, UdpClient, handler, skip_unless_root};
use serde_json::{Value, json};

/// Where a node goes next: all six ways between three hooks, and it begins at TCX.
const WAYS: [(&str, &str); 6] = [
    ("xdp", "native"),
    ("generic", "generic"),
    ("tcx", "tcx"),
    ("generic", "generic"),
    ("xdp", "native"),
    ("tcx", "tcx"),
];

/// Of these ways, those on which native XDP is left: the kernel drops what is in a veth's ring then.
const LEAVES_NATIVE: u32 = 2;

/// Rounds through all ways.
const ROUNDS: u32 = 4;

/// Paths, their handlers, tiers and ports; the last two pass what they are asked on, and the
/// host answers.
const PATHS: [(&str, &str, &str, u16); 4] = [
    ("kernel", "counter", "kernel", 7777),
    ("user", "tally", "user", 7778),
    ("passes", "even", "kernel", 7779),
    ("passes_too", "even_too", "user", 7780),
];

/// What no path has.
const HOSTS: u16 = 7781;

fn config(attach: &str) -> Config {
    let mut config = Config::on_b0(attach);
    for (name, of, tier, port) in PATHS {
        let file = match of {
            "counter" | "tally" => "counter",
            _ => "even",
        };
        config = config.handler_file(of, &handler(file).unwrap());
        config = config.text(&format!(
            "[path.{name}]\niface = \"b0\"\nmatch = \"udp and dst port {port}\"\n\
             handler = {of:?}\ntier = {tier:?}"
        ));
    }
    config
}

fn ask(node: &Node, verb: &str, config: &Config) -> Result<Value, Value> {
    fs::write(node.config(), String::from(config.clone())).unwrap();
    control(node, &json!({ "request": verb, "file": node.config() }))
}

fn texts(plan: &Value) -> Vec<&str> {
    let steps = plan["steps"].as_array().unwrap();
    steps
        .iter()
        .map(|step| step["text"].as_str().unwrap())
        .collect()
}

fn mode(node: &Node) -> String {
    let status = node.status().unwrap();
    let mode = &entry(&status, "interfaces", "b0")["mode"];
    mode.as_str().unwrap().to_owned()
}

/// How long a client waits before it takes a message for lost.
const LOST: Duration = Duration::from_secs(2);

/// Asks one message after the other; how many were not answered.
///
/// Panics if one is answered twice, or the host has it though a path does.
fn ask_on(client: &UdpClient, answered: &AtomicU32, over: &AtomicBool) -> u32 {
    client.set_timeout(LOST).unwrap();
    let mut lost = Vec::new();
    let hear = |lost: &mut Vec<u32>, expected: Option<u32>| {
        let mut bytes = [0; 9];
        loop {
            match client.socket().recv(&mut bytes) {
                Ok(len) => {
                    assert_eq!(len, 8);
                    let sequence = u32::from_be_bytes(bytes[4..8].try_into().unwrap());
                    if Some(sequence) == expected {
                        break true;
                    }
                    let late = lost.iter().position(|it| *it == sequence);
                    let late = late.unwrap_or_else(|| panic!("{sequence} was answered twice"));
                    lost.remove(late);
                    answered.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock) => break false,
                Err(error) => panic!("{expected:?}: {error}"),
            }
        }
    };
    for sequence in 0.. {
        if over.load(Ordering::Acquire) {
            break;
        }
        client.send(&request(1, sequence)).unwrap();
        if hear(&mut lost, Some(sequence)) {
            answered.fetch_add(1, Ordering::Relaxed);
        } else {
            lost.push(sequence);
        }
    }
    client.set_timeout(Duration::from_millis(200)).unwrap();
    hear(&mut lost, None);
    lost.len() as u32
}

/// Sends back what comes; how many that was.
fn echo(host: &UdpSocket, over: &AtomicBool) -> u64 {
    let short = Some(Duration::from_millis(20));
    host.set_read_timeout(short).unwrap();
    let (mut bytes, mut count) = ([0; 64], 0);
    loop {
        if let Ok((len, from)) = host.recv_from(&mut bytes) {
            host.send_to(&bytes[..len], from).unwrap();
            count += 1;
        } else if over.load(Ordering::Acquire) {
            break count;
        }
    }
}

/// What must be true of a node that moves `rounds` times through all ways; how many messages the
/// kernel lost beneath it.
fn moves(rig: &Rig, node: &Node, rounds: u32) -> u32 {
    let ports = PATHS.map(|(.., port)| port);
    let all: Vec<u16> = ports.into_iter().chain([HOSTS]).collect();
    let clients: Vec<_> = all
        .iter()
        .map(|port| rig.client_a(*port).unwrap())
        .collect();
    let answered: Vec<_> = all.iter().map(|_| AtomicU32::new(0)).collect();
    let hosts: Vec<_> = all[2..].iter().map(|port| ordinary(rig, *port)).collect();
    let (over, over_there) = (AtomicBool::new(false), AtomicBool::new(false));
    let memory = entry(&node.status().unwrap(), "handlers", "counter")["memory"].clone();
    let (lost, heard): (Vec<u32>, Vec<u64>) = std::thread::scope(|scope| {
        let _ends = [&over, &over_there].map(Over);
        let hearing = hosts.iter();
        let hearing: Vec<_> = hearing
            .map(|host| scope.spawn(|| echo(host, &over_there)))
            .collect();
        let asking = clients.iter().zip(&answered);
        let asking = asking.map(|(client, answered)| {
            let over = &over;
            scope.spawn(move || ask_on(client, answered, over))
        });
        let asking: Vec<_> = asking.collect();
        let mut longest = Duration::ZERO;
        for way in 0..rounds * WAYS.len() as u32 {
            let (attach, is) = WAYS[way as usize % WAYS.len()];
            let begin = Instant::now();
            let done = ask(node, "apply", &config(attach)).unwrap();
            longest = longest.max(begin.elapsed());
            assert!(texts(&done)[0].starts_with("move   iface b0: "), "{done:#}");
            let status = node.status().unwrap();
            assert_eq!(entry(&status, "interfaces", "b0")["mode"], is);
            for (name, _, tier, _) in PATHS {
                assert_eq!(entry(&status, "paths", name)["tier"], tier, "at {attach}");
            }
            // All of them go on there.
            let before: Vec<u32> = answered
                .iter()
                .map(|it| it.load(Ordering::Relaxed))
                .collect();
            until("every path answers", || {
                assert!(
                    !asking
                        .iter()
                        .any(std::thread::ScopedJoinHandle::is_finished),
                    "{}",
                    node.output()
                );
                let mut both = answered.iter().zip(&before);
                both.all(|(now, before)| now.load(Ordering::Relaxed) > before + 20)
                    .then_some(())
            });
        }
        println!("the longest `apply` took {longest:?}");
        over.store(true, Ordering::Release);
        let lost = asking.into_iter().map(|it| it.join().unwrap()).collect();
        over_there.store(true, Ordering::Release);
        let heard = hearing.into_iter().map(|it| it.join().unwrap());
        (lost, heard.collect())
    });
    println!("lost by the veth: {lost:?}");
    for ((name, ..), answered) in PATHS.iter().zip(&answered) {
        let answered = u64::from(answered.load(Ordering::Relaxed));
        let ledger = settle(node, name, answered);
        let fate = if name.starts_with("passes") {
            "passed"
        } else {
            "answered"
        };
        ledger.assert_fates(&[(fate, answered)], name);
        println!("{name}: {answered} messages, {:?}", ledger.notes);
    }
    // The host has heard all that was passed on, once.
    for ((at, heard), answered) in heard.iter().enumerate().zip(&answered[2..]) {
        let answered = u64::from(answered.load(Ordering::Relaxed));
        assert_eq!(*heard, answered, "{at}: an answer was lost");
    }
    assert_eq!(unmatched(node), heard[2], "what no path has");
    // The memory stays, and with it what the handler has counted.
    let counted = clients[0].ask_number(0).unwrap();
    assert_eq!(counted, answered[0].load(Ordering::Relaxed));
    let status = at_rest(node);
    assert_eq!(entry(&status, "handlers", "counter")["memory"], memory);
    lost.into_iter().sum()
}

/// Has A say nothing by itself (a host tells of the IPv6 groups that it listens to): what comes to B
/// is counted to the frame.
fn quiet(rig: &Rig) {
    rig.in_a(|| fs::write("/proc/sys/net/ipv6/conf/a0/disable_ipv6", "1"))
        .unwrap();
}

fn moves_on(name: &str, gro: bool, rounds: u32) {
    let options = RigOptions {
        gro_on_client: gro,
        ..RigOptions::default()
    };
    let rig = Rig::new(name, options).unwrap();
    quiet(&rig);
    let node = rig.node(config("tcx")).start().unwrap();
    let lost = moves(&rig, &node, rounds);
    let most = rounds * LEAVES_NATIVE * (PATHS.len() as u32 + 1);
    println!(
        "{} moves, {lost} lost by the veth",
        rounds * WAYS.len() as u32
    );
    assert!(lost <= most, "{lost} messages were lost, of at most {most}");
    // Whatever it has been, it is what it says.
    let flow = [
        "why",
        "-j",
        "udp 10.7.0.1:9 > 10.7.0.2:7777",
        "--iface",
        "b0",
    ];
    let why = run(&mut node.command(flow));
    let why: Value = serde_json::from_slice(&why.stdout).unwrap();
    assert_eq!(why["path"], "kernel", "{why:#}");
    let doctor = run(rig.ashway_b().unwrap().args(["doctor", "b0"]));
    assert!(text(&doctor).contains("TCX program"), "{}", text(&doctor));
    node.stop().unwrap();
    assert_free(&rig, "b0");
}

#[test]
fn a_node_moves_between_hooks_and_every_message_is_worked_on_once() {
    if skip_unless_root() {
        return;
    }
    moves_on("moving", true, ROUNDS);
    // Whose far end takes no `XDP_TX`: replies leave by the exit program.
    moves_on("moving-stock", false, ROUNDS / 2);
}

/// Who looks at no mark works on what XDP has passed on once more.
///
/// The node is `cargo xtask bugs`'s, which runs this, too.
#[test]
#[ignore = "takes a node with seeded bugs: `cargo xtask bugs` makes it and runs this"]
fn a_message_that_two_hooks_work_on_is_noticed() {
    if skip_unless_root() {
        return;
    }
    let wrong = ashway_rig::places::seeded().unwrap();
    for bug in ["MarkUnseen", "none of these"] {
        let rig = Rig::new("moving-twice", RigOptions::default()).unwrap();
        quiet(&rig);
        let node = rig.node(config("tcx")).binary(&wrong);
        let node = node.through(["env", &format!("ASHWAY_BUG={bug}")]);
        let node = node.start().unwrap();
        let walked =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| moves(&rig, &node, ROUNDS)));
        assert_eq!(walked.is_err(), bug == "MarkUnseen", "{bug}");
        node.kill();
    }
}

/// What cannot move is said by its line and with the next step, and nothing has changed.
#[test]
fn a_move_that_cannot_be_is_refused_and_nothing_has_changed() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("moving-refused", RigOptions::default()).unwrap();
    let node = rig.node(config("tcx")).start().unwrap();
    let client = rig.client_a(7777).unwrap();
    assert_eq!(client.ask_number(1).unwrap(), 1);
    let said = |refused: &Value| {
        let error = refused["errors"].get(0).unwrap_or(refused);
        let words = ["message", "hint"].map(|key| error[key].as_str().unwrap().to_owned());
        words.join("; ")
    };
    // Together with something else.
    let more = config("xdp").handler("echo").unwrap();
    let refused = ask(&node, "apply", &more).unwrap_err();
    assert!(
        said(&refused).contains("apply the new `attach` alone"),
        "{refused:#}"
    );
    assert_eq!(refused["errors"][0]["line"], 1, "{refused:#}");
    // To what has no programs.
    let mut packet = String::from(config("packet"));
    packet = packet.replace("\"kernel\"", "\"auto\"");
    let refused = ask(&node, "apply", &Config::default().text(&packet)).unwrap_err();
    let errors = refused["errors"].to_string();
    assert!(
        errors.contains("take the section out, apply, and put it back so"),
        "{refused:#}"
    );
    // Where somebody else is: before anything is attached, and every message goes on.
    let b0 = index(&rig, "b0");
    let foreign = rig
        .in_b(|| Attached::xdp(&stranger(), b0, Mode::Native))
        .unwrap();
    let plan = ask(&node, "plan", &config("xdp")).unwrap();
    assert_eq!(
        texts(&plan),
        ["move   iface b0: tcx to native; `attach`; nothing is lost"]
    );
    let refused = ask(&node, "apply", &config("xdp")).unwrap_err();
    assert!(said(&refused).contains("stranger"), "{refused:#}");
    assert_eq!(mode(&node), "tcx");
    assert_eq!(client.ask_number(1).unwrap(), 2);
    drop(foreign);
    // Then it goes.
    ask(&node, "apply", &config("xdp")).unwrap();
    assert_eq!(mode(&node), "native");
    assert_eq!(client.ask_number(1).unwrap(), 3);
    // While somebody looks.
    let mut trace = node.command(["trace"]);
    let mut trace = ashway_rig::Process::spawn({
        trace.stdout(std::process::Stdio::null());
        trace
    })
    .unwrap();
    until("the trace runs", || {
        let refused = ask(&node, "apply", &config("tcx")).err();
        if let Some(refused) = refused {
            return said(&refused).contains("end `ashway trace`").then_some(());
        }
        ask(&node, "apply", &config("xdp")).unwrap();
        None
    });
    trace.signal(ashway_rig::Signal::INT).unwrap();
    trace.wait(Duration::from_secs(20)).unwrap();
    until("nobody looks any more", || {
        ask(&node, "apply", &config("tcx")).ok()
    });
    assert_eq!(mode(&node), "tcx");
    assert_eq!(client.ask_number(1).unwrap(), 4);
    assert_eq!(Ledger::of(&at_rest(&node), "kernel").gap(), None);
    node.stop().unwrap();

    // What works in an array cannot run at TCX.
    let array = |attach: &str| {
        let config = Config::on_b0(attach).handler("counter").unwrap();
        let config = config.text("memory = \"array\"");
        config.path("counter", 7777, "kernel")
    };
    let node = rig.node(array("xdp")).start().unwrap();
    let refused = ask(&node, "apply", &array("auto")).map(|plan| texts(&plan).join("\n"));
    // `auto` knows it.
    assert_eq!(
        refused.unwrap(),
        "move   iface b0: it stays at native; `attach`; nothing is lost"
    );
    assert!(ask(&node, "apply", &array("tcx")).is_err());
    assert_eq!(mode(&node), "native");
    ask(&node, "apply", &array("generic")).unwrap_err();
    assert_eq!(client.ask_number(1).unwrap(), 1);
    node.stop().unwrap();
}

/// SIGHUP moves, too, and what is not there is taken at the new hook when it comes.
#[test]
fn an_interface_that_is_away_comes_back_at_the_new_hook() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("moving-away", RigOptions::default()).unwrap();
    let ip = |line: &str| ashway_netns::node::ip(rig.command_b("ip"), line);
    let with = |attach: &str| config(attach).iface("b1", attach);
    let wire = || {
        ip("link add b1 type veth peer name c1");
        ip("link set b1 up");
        ip("link set c1 up");
    };
    wire();
    let node = rig.node(with("tcx")).start().unwrap();
    ip("link del b1");
    node.wait_for_line(|line| line == "interface `b1` is gone")
        .unwrap();
    fs::write(node.config(), String::from(with("xdp"))).unwrap();
    node.signal(ashway_rig::Signal::HUP).unwrap();
    node.wait_for_line(|line| line == "interface `b0` has moved from tcx to native")
        .unwrap();
    assert_eq!(rig.client_a(7777).unwrap().ask_number(1).unwrap(), 1);
    wire();
    until("it is taken again", || {
        let status = node.status().unwrap();
        (entry(&status, "interfaces", "b1")["mode"] == "native").then_some(())
    });
    node.stop().unwrap();
}
