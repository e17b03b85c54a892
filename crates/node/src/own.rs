//! Interfaces that the node makes itself, and finds where they are the host's.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path as FsPath, PathBuf};
use std::sync::Arc;

use ashway_config::{Attach, Claim, Config, IfaceConfig, ReplayPace};
use ashway_kernel::{Iface, iface::Offloads};
use ashway_ring::TapDevice;
use ashway_worker::bell::Bell;
use ashway_worker::capture::CaptureReader;
use ashway_worker::medium::Medium;
use ashway_worker::medium::capture::{CaptureMedium, CaptureProgress};
use ashway_worker::medium::memory::{self, FarEnd, MemoryMedium};
use ashway_worker::medium::tap_device::TapMedium;

use super::{Node, RunError, say};

/// The payload of a frame that has room in a buffer of messages without another copy.
pub(super) const ROOM_BYTES: usize = 9216;

/// Largest packet of an interface that only the node knows: any.
const MTU: u32 = 65_535;

/// What was made for an interface, and is not in use yet.
#[derive(Debug)]
pub(super) enum Made {
    /// Our end of a TAP device.
    Tap(TapDevice),
    /// The files in its place.
    Capture {
        read: Option<(PathBuf, CaptureReader)>,
        write: Option<(PathBuf, Claim)>,
        pace: ReplayPace,
    },
    /// An end of a link in memory, and the other if no interface has that.
    Memory(MemoryMedium, Option<FarEnd>),
}

/// What the node has of the other end of an interface that it has made itself.
#[derive(Debug, Default)]
pub(super) struct Outside {
    /// How far its capture has come.
    pub(super) capture: Option<NodeCapture>,
    /// The far end of a link in memory, until somebody takes it.
    pub(super) far_end: Option<FarEnd>,
}

/// A capture in the place of an interface, as the node has it.
#[derive(Debug)]
pub(super) struct NodeCapture {
    pub(super) read: Option<PathBuf>,
    pub(super) write: Option<PathBuf>,
    pub(super) progress: Arc<CaptureProgress>,
    /// Whether the node has said that it is at its end.
    pub(super) is_end_said: bool,
    /// Whether it has said that it cannot be written.
    pub(super) is_loss_said: bool,
}

impl Made {
    /// What the worker receives from, and what the node keeps.
    ///
    /// # Errors
    ///
    /// When the output cannot be begun.
    pub(super) fn into_medium(
        self,
        name: &str,
        bell: &Arc<Bell>,
    ) -> Result<(Box<dyn Medium>, Outside), RunError> {
        match self {
            Self::Tap(tap) => Ok((Box::new(TapMedium::new(tap)), Outside::default())),
            Self::Capture { read, write, pace } => {
                let (read, reader) = read.unzip();
                let (write, claim) = write.unzip();
                let not_written = |error: io::Error| {
                    let file = write.clone().unwrap_or_default();
                    cannot("write", name, &file, error.to_string())
                };
                let output = claim.map(Claim::begin).transpose();
                let output = output.map_err(not_written)?;
                let medium = CaptureMedium::new(name, reader, output, pace, Arc::clone(bell));
                let medium = medium.map_err(not_written)?;
                let outside = Outside {
                    capture: Some(NodeCapture {
                        read,
                        progress: medium.progress(),
                        write,
                        is_end_said: false,
                        is_loss_said: false,
                    }),
                    far_end: None,
                };
                Ok((Box::new(medium), outside))
            }
            Self::Memory(medium, far_end) => {
                let outside = Outside {
                    capture: None,
                    far_end,
                };
                Ok((Box::new(medium), outside))
            }
        }
    }
}

/// Makes the interfaces of a node.
#[derive(Debug, Default)]
pub(super) struct Making {
    /// The other ends of links in memory, by the names of their interfaces.
    ends: BTreeMap<String, MemoryMedium>,
}

impl Making {
    /// The interface with this number of the configuration: the host's, or one that is made now.
    ///
    /// # Errors
    ///
    /// That there is none, or that it cannot be made.
    pub(super) fn find(
        &mut self,
        config: &Config,
        iface: &IfaceConfig,
    ) -> Result<(Iface, Option<Made>), RunError> {
        let made = match iface.attach {
            Attach::Tap => {
                let tap = TapDevice::open(&iface.name).map_err(|source| RunError::TapDevice {
                    iface: iface.name.clone(),
                    source,
                })?;
                Some(Made::Tap(tap))
            }
            Attach::Pcap => Some(open_capture(iface)?),
            Attach::Memory => Some(self.link(config, iface)?),
            Attach::Auto | Attach::Xdp | Attach::Tcx | Attach::Generic | Attach::Packet => None,
        };
        let mut found = match iface.attach {
            Attach::Pcap | Attach::Memory => of_node(iface),
            _ => Iface::by_name(&iface.name).map_err(|source| RunError::NoInterface {
                iface: iface.name.clone(),
                source,
            })?,
        };
        if iface.attach.is_own() {
            // What the kernel says is of the host's end.
            let mac = iface.own.mac;
            found.mac = mac.unwrap_or_else(|| mac_of(&config.node.name, &iface.name));
        }
        Ok((found, made))
    }

    fn link(&mut self, config: &Config, iface: &IfaceConfig) -> Result<Made, RunError> {
        if let Some(medium) = self.ends.remove(&iface.name) {
            return Ok(Made::Memory(medium, None));
        }
        let system = |source| RunError::System {
            doing: "make an event descriptor",
            source,
        };
        let mut others = config.ifaces.iter();
        let names_it = |other: &&IfaceConfig| other.own.peer.as_ref() == Some(&iface.name);
        let by_other = others.find(names_it).map(|other| &other.name);
        let Some(peer) = iface.own.peer.as_ref().or(by_other) else {
            let (medium, far_end) = memory::link().map_err(system)?;
            return Ok(Made::Memory(medium, Some(far_end)));
        };
        let [medium, other] = memory::joined().map_err(system)?;
        self.ends.insert(peer.clone(), other);
        Ok(Made::Memory(medium, None))
    }
}

/// Opens the files of an interface; the one that is written is as it was until it is begun.
fn open_capture(iface: &IfaceConfig) -> Result<Made, RunError> {
    let name = &iface.name;
    let read = iface.own.read.as_ref().map(|file| {
        let opened = ashway_config::open(file).map_err(|error| error.to_string());
        let reader = opened.and_then(CaptureReader::new);
        let reader = reader.map_err(|because| cannot("read", name, file, because))?;
        Ok::<_, RunError>((file.clone(), reader))
    });
    let write = iface.own.write.as_ref().map(|file| {
        let claim = Claim::on(file);
        let claim = claim.map_err(|error| cannot("write", name, file, error.to_string()))?;
        Ok::<_, RunError>((file.clone(), claim))
    });
    Ok(Made::Capture {
        read: read.transpose()?,
        write: write.transpose()?,
        pace: iface.own.pace,
    })
}

fn cannot(doing: &'static str, iface: &str, file: &FsPath, because: String) -> RunError {
    RunError::Capture {
        iface: iface.to_owned(),
        doing,
        file: file.to_owned(),
        because,
    }
}

/// An interface that only the node knows: the kernel has no number for it.
fn of_node(iface: &IfaceConfig) -> Iface {
    Iface {
        name: iface.name.clone(),
        ifindex: 0,
        mac: [0; 6],
        mtu: MTU,
        driver: String::new(),
        kind: iface.attach.word().to_owned(),
        xdp_features: None,
        rx_queues: 1,
        tx_queues: 1,
        is_veth: false,
        up: true,
        offloads: Offloads {
            tso: false,
            gro: false,
            lro: false,
        },
    }
}

impl Node {
    /// Takes the far end of a link in memory: whoever runs the node as a library gives frames to
    /// it there, and takes what it sends and passes. To be called before
    /// [`serve`](crate::serve()). `None` if there is no such link, or it joins two interfaces, or
    /// somebody has taken it.
    pub fn far_end(&mut self, iface: &str) -> Option<FarEnd> {
        let number = self.iface_number(iface)?;
        self.ifaces[number].outside.far_end.take()
    }

    /// Lets go of far ends that nobody has taken: what is sent there has nowhere to go.
    pub(super) fn drop_far_ends(&mut self) {
        for iface in self.ifaces.values_mut() {
            if iface.outside.far_end.take().is_some() {
                let name = &iface.name;
                say(&format!(
                    "{name}: nobody is at the other end; `peer` joins it to another"
                ));
            }
        }
    }
}

/// A hardware address that is the same each time, and another for other names: of the local
/// kind (IEEE 802 clause 8.4), 40 bits of FNV-1a behind `02`.
fn mac_of(node: &str, iface: &str) -> [u8; 6] {
    let bytes = node.bytes().chain([0]).chain(iface.bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mut mac = [2; 6];
    mac[1..].copy_from_slice(&hash.to_be_bytes()[3..]);
    mac
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_follows_from_both_names() {
        let mac = mac_of("default", "tap0");
        assert_eq!(mac, mac_of("default", "tap0"));
        assert_eq!(mac[0], 2);
        assert_ne!(mac, mac_of("default", "tap1"));
        assert_ne!(mac, mac_of("other", "tap0"));
        assert_ne!(mac_of("ab", "c"), mac_of("a", "bc"));
    }
}
