//! Commands by `nc -u`, and what a tap writes of them and of everything else.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use ashway_netns::node::{Config, run, text, until};
use ashway_rig::{A4, B4, Node, Rig, RigOptions, Signal, skip_unless_root};
use serde_json::Value;

/// A tap above the wire, a shell, and a sink for the paths that it is told to make.
fn config(mode: &str) -> Config {
    Config::on_b0(mode).text(&format!(
        r#"
[domain.games]
owns = ["udp and dst portrange 6000-6099"]

[module.wire]
kind = "eth"
iface = "b0"
[module.look]
kind = "tap"
down = "wire.up"
file = "look.pcapng"
max_bytes = 1048576
[module.ip]
kind = "ip"
down = "look.up"
[module.udp]
kind = "udp"
down = "ip.up"
[module.end]
kind = "sink"
down = "udp.up"
[module.shell]
kind = "shell"
down = "udp.up"
domain = "games"
allow = ["{A4}"]

[path.shell]
from = "shell"
attrs = {{ local = "{B4}:9", pathname = "wire" }}
[path.other]
from = "end"
attrs = {{ local = "{B4}:7000", pathname = "wire" }}
"#
    ))
}

/// What comes back for a line that `nc` sends.
fn tell(rig: &Rig, line: &str) -> String {
    let mut nc = rig.command_a("nc");
    nc.args(["-u", "-w", "1", &B4.to_string(), "9"]);
    let mut nc = nc
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut nc.stdin.take().unwrap(), line.as_bytes()).unwrap();
    let said = nc.wait_with_output().unwrap();
    String::from_utf8(said.stdout).unwrap()
}

fn received(node: &Node, path: &str) -> Option<u64> {
    let status = node.status().unwrap();
    let paths = status["paths"].as_array().unwrap();
    let path = paths.iter().find(|found| found["name"] == path)?;
    path["received"].as_u64()
}

fn obeys(mode: &str) {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new(&format!("shell-{mode}"), RigOptions::default()).unwrap();
    let node = rig.node(config(mode)).start().unwrap();
    let six =
        format!("create --name six --module end --attr local={B4}:6000 --attr pathname=wire\n");
    assert_eq!(tell(&rig, &six), "ok: path `six` is there\n");
    rig.client_a(6000).unwrap().send(b"hello").unwrap();
    until("the message comes", || {
        (received(&node, "games.six") == Some(1)).then_some(())
    });
    let shown = tell(&rig, "show six\n");
    for word in [
        "ok: path      games.six\n",
        "stages    end / udp / ip / look / wire\n",
        "received  1, ",
    ] {
        assert!(shown.contains(word), "no `{word}` in:\n{shown}");
    }

    // What the domain does not own, and what others own. Nothing changes.
    let taken =
        format!("create --name high --module end --attr local={B4}:7001 --attr pathname=wire");
    assert!(
        tell(&rig, &taken).starts_with("error: domain `games` does not own all that `"),
        "{}",
        tell(&rig, &taken)
    );
    assert!(tell(&rig, "create --module end").starts_with("error: domain `games` does not own"));
    for line in ["rm other", "show other", "rm shell"] {
        assert!(
            tell(&rig, line).starts_with("error: there is no path `"),
            "{line}"
        );
    }
    assert_eq!(
        tell(&rig, "rm sx"),
        "error: there is no path `sx`\n  hint: did you mean `six`? available: `six`\n"
    );
    assert_eq!(
        tell(&rig, &six),
        "error: there is a path `six` already\n  hint: give this one another name\n"
    );
    // Errors are those of the command line.
    for line in [
        "create --module ende",
        "create --module udp --attr vlan=5000 --attr pathname=wire",
        "create --name a/b --module end",
    ] {
        let words: Vec<&str> = ["path"]
            .into_iter()
            .chain(line.split_whitespace())
            .collect();
        let refused = run(&mut node.command(words));
        assert_eq!(tell(&rig, line), text(&refused), "{line}");
    }
    assert_eq!(node.status().unwrap()["module_paths"]["paths"], 3);

    assert_eq!(tell(&rig, "rm six"), "ok: 1 removed\n");
    assert!(tell(&rig, "show six").starts_with("error: there is no path `six`"));
    assert_eq!(node.status().unwrap()["module_paths"]["paths"], 2);

    tapped(&rig, node);
}

/// More than a file takes goes by the tap; both files are captures to others, and
/// hold what the node says they hold.
fn tapped(rig: &Rig, mut node: Node) {
    let client = rig.client_a(7000).unwrap();
    for number in 0..1000_u32 {
        client.send(&[number as u8; 1400]).unwrap();
        if number % 50 == 0 {
            until("they are written", || {
                (received(&node, "other")? > u64::from(number)).then_some(())
            });
        }
    }
    until("all come", || {
        (received(&node, "other") == Some(1000)).then_some(())
    });
    let tap = |status: &Value| status["taps"][0].clone();
    let written = until("all is written", || {
        let tap = tap(&node.status().unwrap());
        let all = tap["written"].as_u64()? + tap["lost"].as_u64()?;
        assert_eq!((&tap["tap"], &tap["failed"]), (&"look".into(), &0.into()));
        (all > 1000 + 20).then_some(tap["written"].as_u64()?)
    });
    let file = node.config().with_file_name("look.pcapng");
    // The folder goes with the node's value.
    node.signal(Signal::TERM).unwrap();
    assert!(node.wait().unwrap().success());
    let before = file.with_file_name("look.pcapng.1");
    let (now, then) = (packets(&file), packets(&before));
    assert!(now > 0 && then > 500, "{now} and {then}");
    assert_eq!(now + then, written);
    for file in [&file, &before] {
        assert!(fs::metadata(file).unwrap().len() <= 1 << 20);
    }
}

/// How many packets `tcpdump` finds in a file, and `tshark` if it is there.
fn packets(file: &Path) -> u64 {
    let read = run(Command::new("tcpdump").args(["-nr"]).arg(file));
    assert!(read.status.success(), "{}", text(&read));
    let lines = String::from_utf8(read.stdout).unwrap();
    assert!(lines.lines().all(|line| line.contains(&B4.to_string())));
    let packets = lines.lines().count() as u64;
    let mut tshark = Command::new("tshark");
    tshark.args(["-n", "-r"]).arg(file);
    match tshark.stderr(Stdio::null()).output() {
        Ok(read) => {
            let lines = String::from_utf8_lossy(&read.stdout).lines().count();
            assert_eq!(lines as u64, packets, "tshark");
        }
        Err(_) => println!("tshark is not there: tcpdump alone has read the file"),
    }
    packets
}

#[test]
fn a_shell_obeys_within_its_domain_by_xdp() {
    obeys("native");
}

#[test]
fn a_shell_obeys_within_its_domain_by_packet_sockets() {
    obeys("packet");
}

/// What a shell of one domain asks for never reaches another domain's shell, and does not
/// tell what that has.
#[test]
fn a_shell_opens_no_way_to_another_domains_shell() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("shell-two", RigOptions::default()).unwrap();
    let both = Config::on_b0("native").text(&format!(
        r#"
[domain.games]
owns = ["udp and dst portrange 6000-6099"]
[domain.work]
owns = ["udp and dst portrange 6050-6199"]

[module.end]
kind = "sink"
down = "udp.up"
[module.shell]
kind = "shell"
down = "udp.up"
domain = "games"
allow = ["{A4}"]
[module.office]
kind = "shell"
down = "udp.up"
domain = "work"
allow = ["{A4}"]

[path.shell]
from = "shell"
attrs = {{ local = "{B4}:9" }}
[path.theirs]
from = "end"
domain = "work"
attrs = {{ local = "{B4}:6060" }}
"#
    ));
    let node = rig.node(both).start().unwrap();
    let refused = "error: shell `office` is not of domain `games`\n  \
                   hint: the module's section says for whom it acts, by `domain`\n";
    let way = format!("create --module office --attr local={B4}:6001");
    assert_eq!(tell(&rig, &way), refused);
    // Its own may have another port.
    let own = format!("create --name own --module shell --attr local={B4}:6002");
    assert_eq!(tell(&rig, &own), "ok: path `own` is there\n");
    // A name says nothing of others' paths, and nor does a filter that competes with theirs.
    for (name, port) in [("theirs", 6003), ("shell", 6004)] {
        let line = format!("create --name {name} --module end --attr local={B4}:{port}");
        assert_eq!(tell(&rig, &line), format!("ok: path `{name}` is there\n"));
    }
    let line = format!("create --name mine --module end --attr local={B4}:6060");
    let said = tell(&rig, &line);
    let wanted = "error: path `games.mine` asks for messages that another's path has\n";
    assert!(said.starts_with(wanted), "{said}");
    assert!(!said.contains("theirs"), "{said}");
    assert_eq!(tell(&rig, "rm theirs"), "ok: 1 removed\n");
    assert!(received(&node, "theirs").is_some(), "it was the other's");
    assert!(tell(&rig, "rm theirs").starts_with("error: there is no path `theirs`"));
    node.stop().unwrap();
}

/// A file that cannot be written is said before anything is attached.
#[test]
fn a_tap_that_cannot_write_is_refused_at_its_line() {
    if skip_unless_root() {
        return;
    }
    let rig = Rig::new("shell-nofile", RigOptions::default()).unwrap();
    let text: String = config("packet").into();
    let refused = rig
        .node(text.replace("\"look.pcapng\"", "\"nowhere/look.pcapng\""))
        .start()
        .unwrap_err();
    let said = format!("{refused:#}");
    assert!(
        said.contains("cannot write") && said.contains("nowhere/look.pcapng"),
        "{said}"
    );
}
