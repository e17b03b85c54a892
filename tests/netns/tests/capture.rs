//! `ashway capture`: what is in the file is what was on the wire, with what became
//! of it; read by tshark and tcpdump, which know nothing of Ashway.

#![allow(clippy::unwrap_used, reason = "tests assert by panicking")]

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use ashway_netns::node::{run, stock, text};
use ashway_netns::observe::Observing;
use ashway_netns::traffic::{PLACES, Place, TIERS, path};
use ashway_rig::skip::skip_without;
use ashway_rig::{Frame, Node, Process, Rig, Spoil, skip_unless_root};

const PORT: u16 = 7777;

fn node(rig: &Rig, place: Place) -> Node {
    let config = place.config().handler("echo").unwrap();
    rig.node(path(config, "echo", "echo", PORT, place, ""))
        .start()
        .unwrap()
}

/// These fields of each frame in the file, separated by tabs.
fn fields(file: &Path, fields: &[&str]) -> Result<Vec<String>, String> {
    let mut command = Command::new("tshark");
    command.arg("-r").arg(file).args(["-T", "fields"]);
    for field in fields {
        command.args(["-e", field]);
    }
    let output = run(&mut command);
    let said = String::from_utf8_lossy(&output.stdout);
    if output.status.success() {
        Ok(said.lines().map(str::to_owned).collect())
    } else {
        Err(text(&output))
    }
}

const FIELDS: [&str; 6] = [
    "frame.interface_name",
    "frame.packet_flags_direction",
    "frame.verdict.ebpf_xdp",
    "frame.comment",
    "udp.dstport",
    "data.data",
];

#[test]
fn tshark_shows_frames_with_their_verdicts() {
    if skip_unless_root() || skip_without("tshark", "tshark") {
        return;
    }
    let rig = stock("capture");
    for place in PLACES {
        let node = node(&rig, place);
        let folder = std::env::temp_dir().join(format!("ashway-{}", rig.name()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("all.pcapng");
        let words = [
            "capture",
            "-i",
            "b0",
            "udp and src portrange 40000-50000",
            "--count",
            "3",
        ];
        let mut command = node.command(words);
        command.arg("-w").arg(&file);
        let observing = Observing::start(command).unwrap();
        let wire = rig.injector_a().unwrap();
        let frame = |port, payload: &[u8]| Frame::to_b(port, payload).from_port(45_678);
        for frame in [
            frame(PORT, &[0xab; 20]),
            frame(PORT, &[0xcd; 20]).spoil(Spoil::UdpChecksum),
            frame(9, &[0xef; 20]),
        ] {
            wire.send(&frame.bytes()).unwrap();
        }
        let (said, _) = observing.finish().unwrap();
        assert!(said.contains("3 messages, 4 frames"), "{place}: {said}");
        let mode = file.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "others may not read messages");
        let tier = place.tier;
        // The entry program ends what the packet rung's stages do.
        let ended = match (place.mode, tier) {
            ("packet", _) => "path echo, user tier",
            _ => "path echo",
        };
        let [ab, cd, ef] = ["ab", "cd", "ef"].map(|byte| byte.repeat(20));
        let expected = [
            format!("b0\t0x00000001\t3\tanswered,path echo, {tier} tier\t{PORT}\t{ab}"),
            format!("b0\t0x00000002\t\tpath echo, {tier} tier\t45678\t{ab}"),
            format!("b0\t0x00000001\t1\tdropped_bad_udp_checksum,{ended}\t{PORT}\t{cd}"),
            format!("b0\t0x00000001\t2\tpassed,no path\t9\t{ef}"),
        ];
        assert_eq!(fields(&file, &FIELDS).unwrap(), expected, "{place}");
        let output = run(Command::new("tcpdump").arg("-ennr").arg(&file));
        assert_eq!(
            String::from_utf8_lossy(&output.stdout).lines().count(),
            4,
            "{place}: {}",
            text(&output)
        );

        // The readers notice a verdict of another message, and a file cut short.
        let bytes = std::fs::read(&file).unwrap();
        let spoiled = folder.join("spoiled.pcapng");
        let at = |what: &[u8]| bytes.windows(what.len()).position(|part| part == what);
        let mut other = bytes.clone();
        // epb_verdict: 9 bytes, of an XDP program, which answered.
        let verdict = at(&[7, 0, 9, 0, 2, 3]).unwrap();
        other[verdict + 5] = 1;
        std::fs::write(&spoiled, &other).unwrap();
        assert_ne!(fields(&spoiled, &FIELDS).unwrap(), expected, "{place}");
        std::fs::write(&spoiled, &bytes[..bytes.len() - 9]).unwrap();
        assert!(fields(&spoiled, &FIELDS).is_err(), "{place}");
        std::fs::remove_dir_all(&folder).unwrap();
        node.stop().unwrap();
    }
}

#[test]
fn a_path_alone_and_a_file_that_is_whole_when_it_is_interrupted() {
    if skip_unless_root() || skip_without("tshark", "tshark") {
        return;
    }
    let rig = stock("capturepath");
    let node = node(&rig, TIERS[1]);
    let folder = std::env::temp_dir().join(format!("ashway-{}", rig.name()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("echo.pcapng");
    let mut command = node.command(["capture", "-j", "-i", "echo"]);
    let observing = Observing::start({
        command.arg("-w").arg(&file);
        command
    })
    .unwrap();
    let client = rig.client_a(PORT).unwrap();
    for _ in 0..5 {
        assert_eq!(client.ask(b"captured").unwrap(), b"captured");
    }
    let wire = rig.injector_a().unwrap();
    wire.send(&Frame::to_b(9, b"not of the path").bytes())
        .unwrap();
    std::thread::sleep(std::time::Duration::from_secs(2));
    let (said, _) = observing.interrupt().unwrap();
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(said["packets"], 5, "{said:#}");
    assert_eq!(said["frames"], 10, "{said:#}");
    assert_eq!(said["lost"], 0, "{said:#}");
    let directions = fields(&file, &["frame.packet_flags_direction"]).unwrap();
    let there_and_back = ["0x00000001", "0x00000002"].repeat(5);
    assert_eq!(directions, there_and_back);
    // Times are of this day, and go on.
    let times = fields(&file, &["frame.time_epoch"]).unwrap();
    let times: Vec<f64> = times.iter().map(|time| time.parse().unwrap()).collect();
    assert!(times.is_sorted(), "{times:?}");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let age = now.unwrap().as_secs_f64() - times[0];
    assert!((0.0..100.0).contains(&age), "{age}");
    std::fs::remove_dir_all(&folder).unwrap();

    for (words, code, says) in [
        (
            vec!["-i", "nobody", "-w", "/tmp/x"],
            1,
            "no interface or path `nobody`",
        ),
        (
            vec!["-i", "b0", "-w", "/nowhere/x.pcapng"],
            1,
            "cannot write",
        ),
        (vec!["-i", "b0", "-w", "/tmp/x", "udp prot 5"], 2, "^^^^"),
        (vec!["-i", "b0"], 2, "--write"),
    ] {
        let output = run(&mut node.command(["capture"].iter().chain(&words)));
        assert_eq!(
            output.status.code(),
            Some(code),
            "{words:?}: {}",
            text(&output)
        );
        assert!(text(&output).contains(says), "{words:?}: {}", text(&output));
    }
    let socket = node.socket().to_owned();
    node.stop().unwrap();
    let mut command = rig.ashway_b().unwrap();
    let output = run(command
        .args(["capture", "-i", "b0", "-w", "/tmp/x", "--socket"])
        .arg(socket));
    assert_eq!(output.status.code(), Some(5), "{}", text(&output));
}

#[test]
fn a_capture_goes_through_a_pipe() {
    if skip_unless_root() || skip_without("tcpdump", "tcpdump") {
        return;
    }
    let rig = stock("capturepipe");
    let node = node(&rig, TIERS[1]);
    let capture = ["capture", "-i", "echo", "-w", "-", "--count", "3"];
    let mut command = node.command(capture);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut capture = Process::spawn(command).unwrap();
    let mut said = BufReader::new(capture.child().stderr.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert!(line.contains("observing"), "{line}");

    let client = rig.client_a(PORT).unwrap();
    for _ in 0..3 {
        assert_eq!(client.ask(b"captured").unwrap(), b"captured");
    }
    let frames = capture.child().stdout.take().unwrap();
    let mut reader = Command::new("tcpdump");
    let output = reader.args(["-nnr", "-"]).stdin(frames).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert_eq!(printed.lines().count(), 6, "{}", text(&output));
    line.clear();
    said.read_line(&mut line).unwrap();
    assert_eq!(line, "3 messages, 6 frames in `-`\n");

    let output = run(&mut node.command(["capture", "-j", "-i", "echo", "-w", "-"]));
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    node.stop().unwrap();
}
