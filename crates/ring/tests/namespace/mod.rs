//! A veth pair in namespaces that end with the test.
//!
//! A test runs its own file again inside `unshare -Urn`: a new user namespace,
//! where it may set up networks without being root, and a new network namespace
//! that nobody else sees and that goes when the process does.

use std::io::Write as _;
use std::net::UdpSocket;
use std::process::Command;

use ashway_rig::skip::skip;
use ashway_ring::{BATCH, PacketSocket};

/// Set in the process inside.
const INSIDE: &str = "ASHWAY_RING_TEST_INSIDE";

/// Runs `body` inside new namespaces, by running the test `name` again there.
/// Skips, saying why, where the system allows no such namespaces.
pub(crate) fn inside(name: &str, body: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        body();
        return;
    }
    let possible = Command::new("unshare")
        .args(["-Urn", "ip", "link"])
        .output();
    if !possible.is_ok_and(|output| output.status.success()) {
        skip("needs `unshare -Urn` (util-linux, user namespaces) and iproute2");
        return;
    }
    let output = Command::new("unshare")
        .arg("-Urn")
        .arg(std::env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture", "--test-threads=1"])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    std::io::stdout().write_all(&output.stdout).unwrap();
    std::io::stderr().write_all(&output.stderr).unwrap();
    let ran = String::from_utf8_lossy(&output.stdout).contains("1 passed");
    assert!(output.status.success() && ran, "{name}, inside");
}

/// Runs a command line that must succeed.
pub(crate) fn run(line: &str) {
    let mut words = line.split_whitespace();
    let status = Command::new(words.next().unwrap()).args(words).status();
    assert!(status.unwrap().success(), "{line}");
}

/// Makes the pair `near` - `far` with fixed hardware addresses and starts it.
/// `near` is the host's: `10.77.0.1` and `fd77::1`.
pub(crate) fn veth() {
    run("ip link set lo up");
    run("ip link add near address 02:00:00:00:00:01 type veth peer far address 02:00:00:00:00:02");
    run("ip addr add 10.77.0.1/24 dev near");
    run("ip addr add fd77::1/64 dev near nodad");
    run("ip link set near up");
    run("ip link set far up");
}

/// Index of an interface.
pub(crate) fn ifindex(name: &str) -> u32 {
    // Not from `/sys`, which still shows the namespace outside.
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    rustix::net::netdevice::name_to_index(&socket, name).unwrap()
}

/// Gives `each` the frames that wait, as many as one call takes; says how many there were.
/// There is little room for them, so that long ones come in two pieces.
pub(crate) fn received(socket: &mut PacketSocket, mut each: impl FnMut(&[u8])) -> usize {
    const FRONT: usize = 8;
    let mut rooms = vec![vec![0xaa; FRONT + 300]; BATCH];
    let taken = socket.recv_batch(&mut rooms, FRONT).unwrap();
    for (at, room) in rooms.iter().enumerate().take(taken) {
        assert_eq!(room[..FRONT], [0xaa; FRONT]);
        let (len, _) = socket.frame(at);
        let here = &room[FRONT..][..len.min(300)];
        let rest = socket.rest(at, 300);
        assert_eq!(here.len() + rest.len(), len);
        each(&[here, rest].concat());
    }
    taken
}
