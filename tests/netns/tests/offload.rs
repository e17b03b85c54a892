//! What a stock veth leaves to devices: checksums, and cutting TCP's segments.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, TcpListener, TcpStream};

use ashway_netns::node::{Config, at_rest, entry, run, text};
use ashway_rig::{B4, B6, Rig, RigOptions, skip_unless_root};

/// Bytes sent each way.
const BYTES: usize = 1 << 20;

/// Leaves every message to the host.
const PASS: &str = "(module (memory (export \"memory\") 1 1)
    (func (export \"on_rx\") (param i32 i32) (result i32) (i32.const VERDICT)))";

/// Bytes that repeat nowhere at a segment's distance.
fn bytes(seed: u32) -> Vec<u8> {
    let words = (0..BYTES as u32 / 4).map(|at| (at ^ seed).wrapping_mul(0x9e37_79b1));
    words.flat_map(u32::to_be_bytes).collect()
}

/// Sends `out` and reads what the other end sends, until it sends no more.
fn talk(mut stream: TcpStream, out: &[u8]) -> Vec<u8> {
    stream
        .set_read_timeout(Some(ashway_netns::node::PATIENCE))
        .unwrap();
    let mut sender = stream.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            sender.write_all(out).unwrap();
            sender.shutdown(Shutdown::Write).unwrap();
        });
        let mut read = Vec::new();
        stream.read_to_end(&mut read).unwrap();
        read
    })
}

/// Segments that B's stack has refused for their checksum.
fn refused(rig: &Rig) -> u64 {
    let counters = run(rig.command_b("cat").arg("/proc/net/snmp"));
    let counters = text(&counters);
    let mut tcp = counters.lines().filter(|line| line.starts_with("Tcp:"));
    let (names, values) = (tcp.next().unwrap(), tcp.next().unwrap());
    let at = names
        .split(' ')
        .position(|name| name == "InCsumErrors")
        .unwrap();
    values.split(' ').nth(at).unwrap().parse().unwrap()
}

/// TCP of two stock hosts, in both directions, whose segments all go through a handler
/// that passes them.
#[test]
fn tcp_that_a_handler_passes_arrives_whole_on_every_rung() {
    if skip_unless_root() {
        return;
    }
    let pass = (ashway_abi::Verdict::Pass as u32).to_string();
    for mode in ["native", "generic", "tcx", "packet"] {
        let rig = Rig::new(&format!("offload-{mode}"), RigOptions::default()).unwrap();
        let file = std::env::temp_dir().join(format!("{}-pass.wasm", rig.name()));
        std::fs::write(
            &file,
            wat::parse_str(PASS.replace("VERDICT", &pass)).unwrap(),
        )
        .unwrap();
        let config = Config::on_b0(mode).handler_file("pass", &file).text(
            "[path.web]\niface = 'b0'\nlayer = 'ip'\nhandler = 'pass'\n\
             match = 'tcp and dst port 8080'\n",
        );
        let node = rig.node(config).start().unwrap();
        if mode == "generic" {
            // Native XDP has the peer cut segments by itself, at TCX and on packet sockets they
            // are taken apart; generic XDP gets them uncut, too, and cannot tell them.
            let cut = run(rig.command_a("ethtool").args(["-K", "a0", "tso", "off"]));
            assert!(cut.status.success(), "{}", text(&cut));
        }
        std::fs::remove_file(&file).unwrap();
        for to in [IpAddr::from(B4), IpAddr::from(B6)] {
            let listener = rig.in_b(|| TcpListener::bind((to, 8080)).unwrap());
            let stream = rig
                .in_a(|| {
                    TcpStream::connect_timeout(&(to, 8080).into(), ashway_netns::node::PATIENCE)
                })
                .unwrap();
            let (up, down) = (bytes(1), bytes(2));
            let (at_b, at_a) = std::thread::scope(|scope| {
                let at_b = scope.spawn(|| talk(listener.accept().unwrap().0, &down));
                let at_a = talk(stream, &up);
                (at_b.join().unwrap(), at_a)
            });
            assert!(at_b == up && at_a == down, "{mode}, {to}");
        }
        let status = at_rest(&node);
        let path = entry(&status, "paths", "web");
        assert_eq!(refused(&rig), 0, "{mode}: {path:#}");
        // What finds its queue full the sender sends again.
        let full = &path["fates"]["dropped"]["queue_full"];
        let passed = path["fates"]["passed"].as_u64().unwrap() + full.as_u64().unwrap_or(0);
        assert_eq!(path["received"], passed, "{mode}: {path:#}");
        let least = match mode {
            // Each segment is a message.
            "tcx" | "packet" => 2 * BYTES as u64 / 1448,
            _ => 10,
        };
        assert!(path["received"].as_u64() > Some(least), "{mode}: {path:#}");
        let live = &status["module_paths"];
        assert_eq!(live["balanced"], true, "{mode}: {live:#}");
        println!("{mode}: {}", path["received"]);
        node.stop().unwrap();
    }
}
