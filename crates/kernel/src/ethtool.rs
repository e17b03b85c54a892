//! The few ethtool questions we ask (`SIOCETHTOOL`).
//!
//! Source: `include/uapi/linux/ethtool.h`, Linux 6.18. None of these needs a
//! privilege. A driver that does not know one answers `EOPNOTSUPP`.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType};

const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSTATS: u32 = 0x1d;
const ETHTOOL_GTSO: u32 = 0x1e;
const ETHTOOL_GFLAGS: u32 = 0x25;
const ETHTOOL_GGRO: u32 = 0x2b;
const ETHTOOL_GCHANNELS: u32 = 0x3c;
const ETH_SS_STATS: u32 = 1;
const ETH_FLAG_LRO: u32 = 1 << 15;
const ETH_GSTRING_LEN: usize = 32;
/// Counters that may appear between asking for their number and for them: 100
/// new queues with 40 counters each.
const MORE_COUNTERS: usize = 4000;

/// A socket to ask through: it knows the namespace of the thread that made it.
pub(crate) struct Ethtool {
    socket: OwnedFd,
    name: [libc::c_char; libc::IFNAMSIZ],
}

/// `struct ethtool_drvinfo`, the part used.
pub(crate) struct Driver {
    pub(crate) name: String,
    stat_count: usize,
}

impl Ethtool {
    /// To ask about the interface with this name.
    pub(crate) fn new(interface: &str) -> io::Result<Self> {
        let mut name = [0; libc::IFNAMSIZ];
        for (to, from) in name
            .iter_mut()
            .take(libc::IFNAMSIZ - 1)
            .zip(interface.bytes())
        {
            *to = from as libc::c_char;
        }
        let socket = rustix::net::socket_with(
            AddressFamily::INET,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC,
            None,
        )?;
        Ok(Self { socket, name })
    }

    pub(crate) fn driver(&self) -> io::Result<Driver> {
        let mut block = command(ETHTOOL_GDRVINFO, 196);
        self.ask(&mut block)?;
        let name = &block[4..36];
        let end = name
            .iter()
            .position(|byte| *byte == 0)
            .unwrap_or(name.len());
        Ok(Driver {
            name: String::from_utf8_lossy(&name[..end]).into_owned(),
            stat_count: word(&block, 180) as usize,
        })
    }

    /// Receive and transmit queues in use.
    pub(crate) fn queues(&self) -> io::Result<(u32, u32)> {
        let mut block = command(ETHTOOL_GCHANNELS, 36);
        self.ask(&mut block)?;
        let combined = word(&block, 32);
        Ok((word(&block, 20) + combined, word(&block, 24) + combined))
    }

    pub(crate) fn tso(&self) -> bool {
        self.value(ETHTOOL_GTSO) != 0
    }

    pub(crate) fn gro(&self) -> bool {
        self.value(ETHTOOL_GGRO) != 0
    }

    pub(crate) fn lro(&self) -> bool {
        self.value(ETHTOOL_GFLAGS) & ETH_FLAG_LRO != 0
    }

    /// The driver's own counters.
    pub(crate) fn counters(&self) -> io::Result<Vec<(String, u64)>> {
        let count = self.driver()?.stat_count;
        // The kernel writes as many counters as there are by then, whatever we
        // say there is room for; adding queues makes more of them.
        let room = count + MORE_COUNTERS;
        let mut strings = command(ETHTOOL_GSTRINGS, 12 + room * ETH_GSTRING_LEN);
        strings[4..8].copy_from_slice(&ETH_SS_STATS.to_ne_bytes());
        strings[8..12].copy_from_slice(&(count as u32).to_ne_bytes());
        let mut stats = command(ETHTOOL_GSTATS, 8 + room * 8);
        stats[4..8].copy_from_slice(&(count as u32).to_ne_bytes());
        self.ask(&mut strings)?;
        self.ask(&mut stats)?;
        let counts = [word(&strings, 8) as usize, word(&stats, 4) as usize];
        if counts != [count; 2] {
            return Err(io::Error::other("the counters changed while being read"));
        }
        strings.truncate(12 + count * ETH_GSTRING_LEN);
        let (names, _) = strings[12..].as_chunks::<ETH_GSTRING_LEN>();
        let (values, _) = stats[8..].as_chunks::<8>();
        Ok(names
            .iter()
            .zip(values)
            .map(|(name, value)| {
                let end = name.iter().position(|byte| *byte == 0);
                let name = &name[..end.unwrap_or(ETH_GSTRING_LEN)];
                (
                    String::from_utf8_lossy(name).into_owned(),
                    u64::from_ne_bytes(*value),
                )
            })
            .collect())
    }

    /// A `struct ethtool_value`; 0 if the driver does not say.
    fn value(&self, number: u32) -> u32 {
        let mut block = command(number, 8);
        match self.ask(&mut block) {
            Ok(()) => word(&block, 4),
            Err(_) => 0,
        }
    }

    /// `block` starts with the command and has room for the whole answer.
    fn ask(&self, block: &mut [u8]) -> io::Result<()> {
        // SAFETY: an `ifreq` of zeros is valid.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        request.ifr_name = self.name;
        request.ifr_ifru.ifru_data = block.as_mut_ptr().cast();
        // SAFETY: `request` leads to `block`, which each command above made as
        // long as its structure, or, where the driver determines the length,
        // with room to spare (`MORE_COUNTERS`).
        let result =
            unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) };
        if result < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    }
}

fn command(number: u32, bytes: usize) -> Vec<u8> {
    let mut block = vec![0; bytes];
    block[..4].copy_from_slice(&number.to_ne_bytes());
    block
}

fn word(block: &[u8], at: usize) -> u32 {
    let bytes = block[at..].first_chunk().expect("the block has this field");
    u32::from_ne_bytes(*bytes)
}
