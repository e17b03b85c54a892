//! Three hosts in a row: A and B share a wire, B and C another, and A and C one of
//! their own, for the floor.

use std::process::Command;

use anyhow::{Result, bail};
use ashway_rig::namespace::{Namespace, remove_stale};

/// Number of B's interface to C, as the program by hand knows it.
pub(super) const OUT: u32 = 77;
/// B as A knows it, and the relay's port.
pub(super) const RELAY: &str = "10.0.1.1:9000";
/// C, behind B.
pub(super) const FAR: &str = "10.0.3.2:9001";
/// C, by the wire that A and C share.
pub(super) const NEAR: &str = "10.0.9.2:9001";

/// Hardware addresses: A and B on the first wire, B and C on the second.
pub(super) const MACS: [[u8; 6]; 4] = [
    [2, 0, 0, 0, 0, 0x0a],
    [2, 0, 0, 0, 0, 0x0b],
    [2, 0, 0, 0, 0, 0x1b],
    [2, 0, 0, 0, 0, 0x0c],
];

/// The hosts; removed on drop.
pub(super) struct World {
    pub(super) a: Namespace,
    pub(super) b: Namespace,
    pub(super) c: Namespace,
}

impl World {
    pub(super) fn new() -> Result<Self> {
        remove_stale()?;
        let space = |host| Namespace::new(format!("ashway-forward-{}-{host}", std::process::id()));
        let world = Self {
            a: space("a")?,
            b: space("b")?,
            c: space("c")?,
        };
        world.wire("a0", "10.0.1.2", MACS[0], "b0", "10.0.1.1", MACS[1], None)?;
        world.wire(
            "b1",
            "10.0.3.1",
            MACS[2],
            "c0",
            "10.0.3.2",
            MACS[3],
            Some(OUT),
        )?;
        let floor = [[2, 0, 0, 0, 0, 0x2a], [2, 0, 0, 0, 0, 0x2c]];
        world.wire("a1", "10.0.9.1", floor[0], "c1", "10.0.9.2", floor[1], None)?;
        // Only Linux's own forwarding uses these; and a redirect arrives only where
        // the receiving veth polls, which receive offload brings. It is on for all.
        ip(&world.a, "route add 10.0.3.0/24 via 10.0.1.1")?;
        ip(&world.c, "route add 10.0.1.0/24 via 10.0.3.1")?;
        let on = "echo 1 > /proc/sys/net/ipv4/ip_forward";
        run(world.b.command("sh").args(["-c", on]))?;
        for (space, iface) in [(&world.b, "b0"), (&world.c, "c0"), (&world.c, "c1")] {
            run(space.command("ethtool").args(["-K", iface, "gro", "on"]))?;
        }
        Ok(world)
    }

    fn host(&self, iface: &str) -> &Namespace {
        match iface.as_bytes()[0] {
            b'a' => &self.a,
            b'b' => &self.b,
            _ => &self.c,
        }
    }

    #[expect(clippy::too_many_arguments, reason = "two ends of three things each")]
    fn wire(
        &self,
        one: &str,
        address_one: &str,
        mac_one: [u8; 6],
        two: &str,
        address_two: &str,
        mac_two: [u8; 6],
        number: Option<u32>,
    ) -> Result<()> {
        let (host_one, host_two) = (self.host(one), self.host(two));
        let number = number.map_or(String::new(), |number| format!("index {number} "));
        let (text_one, text_two) = (mac(mac_one), mac(mac_two));
        let peer = host_two.name();
        ip(
            host_one,
            &format!(
                "link add {one} {number}address {text_one} type veth peer name {two} address \
                 {text_two} netns {peer}"
            ),
        )?;
        for (host, link, address) in [(host_one, one, address_one), (host_two, two, address_two)] {
            ip(host, &format!("link set {link} addrgenmode none"))?;
            ip(host, &format!("addr add {address}/24 dev {link}"))?;
            ip(host, &format!("link set {link} up"))?;
        }
        for (host, link, address, mac) in [
            (host_one, one, address_two, text_two),
            (host_two, two, address_one, text_one),
        ] {
            let words = format!("neigh replace {address} lladdr {mac} dev {link} nud permanent");
            ip(host, &words)?;
        }
        Ok(())
    }
}

fn ip(host: &Namespace, words: &str) -> Result<()> {
    let mut command = Command::new("ip");
    run(command.args(["-n", host.name()]).args(words.split(' ')))
}

fn mac(bytes: [u8; 6]) -> String {
    bytes.map(|byte| format!("{byte:02x}")).join(":")
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.output()?;
    if !output.status.success() {
        bail!(
            "{command:?}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(())
}
