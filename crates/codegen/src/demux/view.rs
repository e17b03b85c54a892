//! Where a field of a frame is, as the demux program sees it.

use ashway_abi::context::{fact, flag};
use ashway_demux::{Base, Field, left};
use ashway_wire::eth;

use super::tree::Guard;

/// Where fields are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    /// In a plain packet whose protocol, known by now, has ports.
    Plain(Version, u8),
    /// In the context, as facts.
    Facts,
}

/// Version of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    V4,
    V6,
}

/// Where a field is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldPlace {
    /// Nowhere: tests of it fail.
    Never,
    /// It is always this.
    Always([u8; 16]),
    /// So many bytes at a constant place in the packet; zeros follow. What is
    /// known to be there needs no question.
    Packet { at: i16, bytes: usize, known: bool },
    /// In the context, if the byte at the second place has this bit.
    Context(i16, Option<(i16, i32)>),
    /// In the packet, so far behind the offset at this place in the context.
    Behind(Option<i16>, u16),
}

impl Version {
    /// Where the protocol's number is in a plain packet.
    pub(super) const fn protocol(self) -> i16 {
        match self {
            Self::V4 => 23,
            Self::V6 => 20,
        }
    }

    /// Where its ports are.
    pub(super) const fn ports(self) -> i16 {
        match self {
            Self::V4 => 34,
            Self::V6 => 54,
        }
    }
}

impl View {
    /// Flags of every message seen so: those of a UDP datagram, which is all that
    /// the paths' programs ask about.
    pub(super) const fn flags(self) -> u32 {
        match self {
            Self::Plain(Version::V4, _) => flag::PLAIN,
            Self::Plain(Version::V6, _) => flag::PLAIN | flag::IPV6,
            Self::Facts => 0,
        }
    }

    pub(super) fn place(self, field: Field) -> FieldPlace {
        let Self::Plain(version, protocol) = self else {
            return Self::fact(field);
        };
        let (addresses, bytes, kind) = match version {
            Version::V4 => (26, 4, eth::TYPE_IPV4),
            Version::V6 => (22, 16, eth::TYPE_IPV6),
        };
        let known = |at, bytes| FieldPlace::Packet {
            at,
            bytes,
            known: true,
        };
        match field {
            Field::Vlans | Field::Fragment => FieldPlace::Always([0; 16]),
            Field::Vlan0 | Field::Vlan1 | Field::Vni => FieldPlace::Never,
            Field::EtherType => FieldPlace::Always(left(kind.to_be_bytes())),
            Field::Protocol => FieldPlace::Always(left([protocol])),
            Field::Source => known(addresses, bytes),
            Field::Destination => known(addresses + bytes as i16, bytes),
            Field::SourcePort => known(version.ports(), 2),
            Field::DestinationPort => known(version.ports() + 2, 2),
            Field::Raw {
                base,
                offset,
                width,
            } => {
                let base = match base {
                    Base::Eth => 0,
                    Base::L3 => 14,
                    Base::L4 => version.ports(),
                };
                match i16::try_from(offset).ok().and_then(|o| o.checked_add(base)) {
                    Some(at) if at < i16::MAX - 4 => FieldPlace::Packet {
                        at,
                        bytes: width.into(),
                        known: false,
                    },
                    // No linear frame is so long.
                    _ => FieldPlace::Never,
                }
            }
        }
    }

    fn fact(field: Field) -> FieldPlace {
        let always = |at| FieldPlace::Context(at, None);
        match field {
            Field::Vlans => always(fact::VLANS),
            Field::EtherType => always(fact::ETHERTYPE),
            Field::Protocol => always(fact::PROTOCOL),
            Field::Fragment => always(fact::FRAGMENT),
            Field::Vlan0 => FieldPlace::Context(fact::VLAN, Some((fact::VLANS, 1))),
            Field::Vlan1 => FieldPlace::Context(fact::VLAN + 2, Some((fact::VLANS, 2))),
            Field::Source => always(fact::SOURCE),
            Field::Destination => always(fact::DESTINATION),
            Field::SourcePort => always(fact::SOURCE_PORT),
            Field::DestinationPort => always(fact::DESTINATION_PORT),
            Field::Vni => FieldPlace::Context(fact::VNI, Some((fact::VNI_THERE, 1))),
            Field::Raw { base, offset, .. } => FieldPlace::Behind(
                match base {
                    Base::Eth => None,
                    Base::L3 => Some(fact::NETWORK),
                    Base::L4 => Some(fact::TRANSPORT),
                },
                offset,
            ),
        }
    }

    /// What is known of a guard before any byte has been read.
    pub(super) fn knows(self, guard: &Guard) -> Option<bool> {
        match guard {
            Guard::Layer(_) => (self != Self::Facts).then_some(true),
            Guard::Test(test) => match self.place(test.field) {
                FieldPlace::Never => Some(false),
                FieldPlace::Always(value) => {
                    let bits = value.iter().zip(test.mask).zip(test.value);
                    Some(
                        bits.into_iter()
                            .all(|((have, mask), want)| have & mask == want),
                    )
                }
                _ => None,
            },
        }
    }
}
