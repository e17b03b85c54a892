//! The two namespaces and the wire between them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::Command;

use anyhow::{Context, Result};

use crate::namespace::{Namespace, PREFIX, remove_stale, run};
use crate::{Injector, NodeBuilder, UdpClient, ashway};

/// Client A's IPv4 address.
pub const A4: Ipv4Addr = Ipv4Addr::new(10, 7, 0, 1);
/// Host B's IPv4 address.
pub const B4: Ipv4Addr = Ipv4Addr::new(10, 7, 0, 2);
/// Client A's IPv6 address.
pub const A6: Ipv6Addr = Ipv6Addr::new(0xfd07, 0, 0, 0, 0, 0, 0, 1);
/// Host B's IPv6 address.
pub const B6: Ipv6Addr = Ipv6Addr::new(0xfd07, 0, 0, 0, 0, 0, 0, 2);
/// Hardware address of `a0`.
pub const MAC_A: [u8; 6] = [0x02, 0, 0, 0, 0, 0x0a];
/// Hardware address of `b0`.
pub const MAC_B: [u8; 6] = [0x02, 0, 0, 0, 0, 0x0b];

/// How the wire is made.
#[derive(Clone, Copy, Debug)]
pub struct RigOptions {
    /// Receive and transmit queues of each end. On one queue concurrency bugs
    /// cannot show, because one CPU at a time receives.
    pub queues: u32,
    /// Whether generic receive offload is on at `a0`. Without it, or an XDP
    /// program, veth drops every frame the other end sends by `XDP_TX`.
    pub gro_on_client: bool,
    /// Whether what B sends arrives in A's sockets in the order in which it was sent,
    /// whatever sent it and on whatever CPU. A stock veth has a queue for each CPU
    /// there (its backlog, with GRO a polling ring too), and A's kernel empties them in
    /// any order; so an order that is right on the wire can be lost behind it.
    pub in_order: bool,
    /// Whether both ends know each other's hardware address from the start, so
    /// that no packet waits for ARP and none is ARP's.
    pub static_neighbours: bool,
}

impl Default for RigOptions {
    fn default() -> Self {
        Self {
            queues: 1,
            gro_on_client: true,
            in_order: false,
            static_neighbours: true,
        }
    }
}

/// Client A and host B; everything is removed on drop.
#[derive(Debug)]
pub struct Rig {
    name: String,
    a: Namespace,
    b: Namespace,
}

impl Rig {
    /// Makes both namespaces and the wire. `name` must differ between rigs that
    /// one process holds at the same time. Takes about 50 ms.
    ///
    /// # Errors
    ///
    /// What `ip` or `ethtool` said; needs root (see
    /// [`skip_unless_root`](crate::skip_unless_root)).
    pub fn new(name: &str, options: RigOptions) -> Result<Self> {
        remove_stale().context("cannot look for what earlier rigs left")?;
        let name = format!("{PREFIX}{name}-{}", std::process::id());
        let rig = Self {
            a: Namespace::new(format!("{name}-a"))?,
            b: Namespace::new(format!("{name}-b"))?,
            name,
        };
        rig.wire(options)?;
        Ok(rig)
    }

    fn wire(&self, options: RigOptions) -> Result<()> {
        let queues = &options.queues.to_string();
        let into_a = if options.in_order { "1" } else { queues };
        let (mac_a, mac_b) = (&mac(MAC_A), &mac(MAC_B));
        let mut add = vec!["link", "add", "a0", "address", mac_a];
        add.extend(["numrxqueues", into_a, "numtxqueues", queues]);
        add.extend(["type", "veth", "peer", "name", "b0", "address", mac_b]);
        add.extend(["numrxqueues", queues, "numtxqueues", queues]);
        add.extend(["netns", self.b.name()]);
        self.a.ip(&add)?;

        let ends = [
            (&self.a, "a0", A4, A6, (B4, B6, mac_b)),
            (&self.b, "b0", B4, B6, (A4, A6, mac_a)),
        ];
        for (space, link, v4, v6, _) in ends {
            // No link-local address: nothing then solicits or reports on its own.
            space.ip(&["link", "set", link, "addrgenmode", "none"])?;
            space.ip(&["addr", "add", &format!("{v4}/24"), "dev", link])?;
            space.ip(&["addr", "add", &format!("{v6}/64"), "dev", link, "nodad"])?;
        }
        if options.gro_on_client {
            run(self.a.command("ethtool").args(["-K", "a0", "gro", "on"]))?;
        }
        if options.in_order {
            one_way((&self.a, "a0"), (&self.b, "b0"), options.gro_on_client)?;
        }
        for (space, link, ..) in ends {
            space.ip(&["link", "set", link, "up"])?;
        }
        if options.static_neighbours {
            for (space, link, _, _, (v4, v6, mac)) in ends {
                for address in [v4.to_string(), v6.to_string()] {
                    let neighbour = ["lladdr", mac, "dev", link, "nud", "permanent"];
                    space.ip(&[&["neigh", "replace", &address], &neighbour[..]].concat())?;
                }
            }
        }
        Ok(())
    }

    /// What names and folders of this rig begin with.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Client A's namespace.
    #[must_use]
    pub fn a(&self) -> &Namespace {
        &self.a
    }

    /// Host B's namespace.
    #[must_use]
    pub fn b(&self) -> &Namespace {
        &self.b
    }

    /// Runs `work` in A and returns its value; see [`Namespace::run`].
    pub fn in_a<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.a.run(work)
    }

    /// Runs `work` in B and returns its value; see [`Namespace::run`].
    pub fn in_b<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.b.run(work)
    }

    /// A command that will run in A.
    #[must_use]
    pub fn command_a(&self, program: &str) -> Command {
        self.a.command(program)
    }

    /// A command that will run in B.
    #[must_use]
    pub fn command_b(&self, program: &str) -> Command {
        self.b.command(program)
    }

    /// The `ashway` binary, to run in B.
    ///
    /// # Errors
    ///
    /// If it has not been built.
    pub fn ashway_b(&self) -> Result<Command> {
        Ok(self.b.command(ashway()?))
    }

    /// A node for B with this configuration, not started yet.
    #[must_use]
    pub fn node(&self, config: impl Into<String>) -> NodeBuilder<'_> {
        NodeBuilder::new(self, config.into())
    }

    /// A client in A of B's UDP `port`, over IPv4.
    ///
    /// # Errors
    ///
    /// What the socket calls said.
    pub fn client_a(&self, port: u16) -> io::Result<UdpClient> {
        self.client_a_to(B4.into(), port)
    }

    /// The same over IPv6.
    ///
    /// # Errors
    ///
    /// What the socket calls said.
    pub fn client_a_v6(&self, port: u16) -> io::Result<UdpClient> {
        self.client_a_to(B6.into(), port)
    }

    fn client_a_to(&self, host: IpAddr, port: u16) -> io::Result<UdpClient> {
        self.in_a(|| UdpClient::connect(SocketAddr::new(host, port)))
    }

    /// Sends and receives raw frames on `a0`.
    ///
    /// # Errors
    ///
    /// What the socket calls said.
    pub fn injector_a(&self) -> io::Result<Injector> {
        self.in_a(|| Injector::open("a0"))
    }
}

/// Leads everything that comes to a link of one receive queue through one queue of its
/// kernel: the ring of that queue, where a socket's frames go too if the `far` link does no
/// TSO (`veth_skb_is_eligible_for_gro`, Linux 6.18); without GRO CPU 0's backlog.
///
/// # Errors
///
/// What `ethtool` or `sh` said.
pub fn one_way(link: (&Namespace, &str), far: (&Namespace, &str), gro: bool) -> Result<()> {
    if gro {
        return run(far.0.command("ethtool").args(["-K", far.1, "tso", "off"]));
    }
    let steer = format!("echo 1 > /sys/class/net/{}/queues/rx-0/rps_cpus", link.1);
    run(link.0.command("sh").args(["-c", &steer]))
}

fn mac(address: [u8; 6]) -> String {
    address.map(|byte| format!("{byte:02x}")).join(":")
}
