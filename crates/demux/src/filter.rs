//! What a filter means: alternatives, each a list of tests on a frame.
//!
//! Whatever was written is brought into one form, a disjunction of
//! [`Conjunction`]s. A conjunction is what demux works on: the bits it tests
//! say which [`Shape`](super::Shape) it belongs to, how specific it is, and
//! which others it meets.
//!
//! Where two filters match one frame, the more specific *conjunction* wins. The
//! order is total and depends on nothing but the two ([`Specificity`]): more
//! bits tested, then more exclusions (`not`). It agrees with implication: a
//! filter made narrower by another test is more specific than it was. If several
//! filters have the very same conjunction, it is that filter's which implies the
//! others as a whole.
//!
//! The model is the packet filter of Engler and Kaashoek 1996 ("DPF"):
//! atoms (offset, mask, value) in conjunctions; ours are relative to headers
//! that were found once.

use std::fmt;

use ashway_wire::{Fragment, Headers};

use super::logic;
use super::parse::FilterError;

/// What [`Field::Raw`] counts its offset from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Base {
    /// The frame's first byte.
    Eth,
    /// The network header ([`Headers::l3`]).
    L3,
    /// The transport header ([`Headers::l4`]).
    L4,
}

/// How much of a frame has to be there for a field to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Layer {
    /// Nothing behind Ethernet and its tags.
    Link,
    /// A network header: `l3` is not 0.
    Network,
    /// A transport header: `l4` is not 0.
    Transport,
}

/// Something a frame can be asked for. The order is the order of tests and of
/// key bytes; the first four are what shapes share as guards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Field {
    /// Number of VLAN tags, one bit for each: 0, 1 or 3. So "at least one" is
    /// a test of one bit.
    Vlans,
    /// Type of the payload behind the tags; 2 bytes.
    EtherType,
    /// Protocol number behind IPv6 extension headers; 1 byte.
    Protocol,
    /// [`Fragment`] as a number, 0 to 2; 1 byte.
    Fragment,
    /// Control information of the outer tag; 2 bytes.
    Vlan0,
    /// Control information of the inner tag; 2 bytes.
    Vlan1,
    /// Source address; 16 bytes, IPv4 in the first four.
    Source,
    /// Destination address; 16 bytes, IPv4 in the first four.
    Destination,
    /// Source port; 2 bytes.
    SourcePort,
    /// Destination port; 2 bytes.
    DestinationPort,
    /// VXLAN network identifier; 4 bytes.
    Vni,
    /// Bytes at a constant place.
    Raw {
        /// Where the offset counts from.
        base: Base,
        /// Bytes from there.
        offset: u16,
        /// Bytes to take: 1, 2 or 4.
        width: u8,
    },
}

impl Field {
    /// Bytes of the value.
    #[must_use]
    pub const fn width(self) -> usize {
        match self {
            Self::Vlans | Self::Protocol | Self::Fragment => 1,
            Self::EtherType
            | Self::Vlan0
            | Self::Vlan1
            | Self::SourcePort
            | Self::DestinationPort => 2,
            Self::Vni => 4,
            Self::Source | Self::Destination => 16,
            Self::Raw { width, .. } => width as usize,
        }
    }

    /// Whether shapes test the field as a constant, ahead of the lookup.
    #[must_use]
    pub const fn is_guard(self) -> bool {
        matches!(
            self,
            Self::Vlans | Self::EtherType | Self::Protocol | Self::Fragment
        )
    }

    /// What has to be there for the field to be. [`Field::Raw`] also needs its
    /// bytes inside the frame, the tags' fields their tags, and
    /// [`Field::Vni`] a valid identifier.
    #[must_use]
    pub const fn layer(self) -> Layer {
        match self {
            Self::Vlans | Self::Vlan0 | Self::Vlan1 | Self::EtherType => Layer::Link,
            Self::Protocol | Self::Fragment | Self::Source | Self::Destination => Layer::Network,
            Self::SourcePort | Self::DestinationPort | Self::Vni => Layer::Transport,
            Self::Raw { base, .. } => match base {
                Base::Eth => Layer::Link,
                Base::L3 => Layer::Network,
                Base::L4 => Layer::Transport,
            },
        }
    }

    /// The value in a frame, as the number whose most significant bytes it is;
    /// `None` if it is not there. Constant time.
    #[must_use]
    #[inline]
    pub fn read(self, headers: &Headers, frame: &[u8]) -> Option<u128> {
        match self.layer() {
            Layer::Network if headers.l3 == 0 => return None,
            Layer::Transport if headers.l4 == 0 => return None,
            _ => {}
        }
        let byte = |value: u8| u128::from(value) << 120;
        let short = |value: u16| u128::from(value) << 112;
        let word = |value: u32| u128::from(value) << 96;
        Some(match self {
            Self::Vlans => byte((1 << headers.vlans) - 1),
            Self::Vlan0 if headers.vlans < 1 => return None,
            Self::Vlan0 => short(headers.vlan[0]),
            Self::Vlan1 if headers.vlans < 2 => return None,
            Self::Vlan1 => short(headers.vlan[1]),
            Self::EtherType => short(headers.ethertype),
            Self::Protocol => byte(headers.protocol),
            Self::Fragment => byte(headers.fragment as u8),
            Self::Source => number(headers.source),
            Self::Destination => number(headers.destination),
            Self::SourcePort => short(headers.source_port),
            Self::DestinationPort => short(headers.destination_port),
            Self::Vni => word(headers.vni?),
            Self::Raw {
                base,
                offset,
                width,
            } => {
                let base = match base {
                    Base::Eth => 0,
                    Base::L3 => headers.l3,
                    Base::L4 => headers.l4,
                };
                let at = usize::from(base) + usize::from(offset);
                let bytes = frame.get(at..at + usize::from(width))?;
                let value = bytes
                    .iter()
                    .fold(0, |value, byte| value << 8 | u128::from(*byte));
                value << (128 - 8 * u32::from(width))
            }
        })
    }
}

/// These bytes at the left of a value.
#[must_use]
pub const fn left<const N: usize>(bytes: [u8; N]) -> [u8; 16] {
    let mut value = [0; 16];
    let mut i = 0;
    while i < N {
        value[i] = bytes[i];
        i += 1;
    }
    value
}

/// One test: the field is there, and its bits under the mask are the value's.
/// With an empty mask only the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Test {
    /// What is asked for.
    pub field: Field,
    /// Which bits count, left-aligned in the field's width.
    pub mask: [u8; 16],
    /// What they have to be; 0 outside the mask.
    pub value: [u8; 16],
}

impl Test {
    /// The test for these bits of a field. Bits of `value` outside the mask are
    /// ignored.
    #[must_use]
    pub fn new(field: Field, mask: [u8; 16], value: [u8; 16]) -> Self {
        Self {
            field,
            mask,
            value: u128_bytes(number(mask) & number(value)),
        }
    }

    /// The test for the whole field having this value.
    #[must_use]
    pub fn whole<const N: usize>(field: Field, value: [u8; N]) -> Self {
        Self::new(field, left([0xff; N]), left(value))
    }

    /// Whether the frame passes. Constant time.
    #[must_use]
    pub fn holds(&self, headers: &Headers, frame: &[u8]) -> bool {
        self.field
            .read(headers, frame)
            .is_some_and(|value| value & number(self.mask) == number(self.value))
    }

    /// Whether both, of one field, can hold.
    pub(super) fn agrees(&self, other: &Self) -> bool {
        let both = number(self.mask) & number(other.mask);
        number(self.value) & both == number(other.value) & both
    }

    /// The test that both hold, of one field; `None` if they cannot.
    pub(super) fn merge(&self, other: &Self) -> Option<Self> {
        self.agrees(other).then(|| Self {
            field: self.field,
            mask: u128_bytes(number(self.mask) | number(other.mask)),
            value: u128_bytes(number(self.value) | number(other.value)),
        })
    }
}

pub(super) fn number(bytes: [u8; 16]) -> u128 {
    u128::from_be_bytes(bytes)
}

pub(super) fn u128_bytes(number: u128) -> [u8; 16] {
    number.to_be_bytes()
}

/// How specific a conjunction is; greater is tried first. Two of equal
/// specificity may not match the same frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Specificity {
    /// Bits tested, implied ones included (`udp` tests the protocol, the type
    /// and that there is no tag).
    pub bits: u32,
    /// Exclusions: what must not hold as well, and fields of which no bit is
    /// tested but that have to be there.
    pub exclusions: u32,
}

impl Specificity {
    pub(super) fn of(masks: impl Iterator<Item = [u8; 16]>, exclusions: usize) -> Self {
        let mut specificity = Self {
            bits: 0,
            exclusions: exclusions as u32,
        };
        for mask in masks {
            specificity.bits += number(mask).count_ones();
            specificity.exclusions += u32::from(mask == [0; 16]);
        }
        specificity
    }
}

/// Tests of which all have to hold, and exclusions of which none may.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Conjunction {
    /// All hold. By field, each field once.
    pub tests: Vec<Test>,
    /// None of these conjunctions holds. In order, each once.
    pub not: Vec<Vec<Test>>,
}

impl Conjunction {
    /// Whether the frame passes. Linear in the tests, allocates nothing.
    #[must_use]
    pub fn matches(&self, headers: &Headers, frame: &[u8]) -> bool {
        let all = |tests: &[Test]| tests.iter().all(|test| test.holds(headers, frame));
        all(&self.tests) && !self.not.iter().any(|tests| all(tests))
    }

    /// How specific it is.
    #[must_use]
    pub fn specificity(&self) -> Specificity {
        Specificity::of(self.tests.iter().map(|test| test.mask), self.not.len())
    }

    /// Whether some frame may match both. Never `false` if one does; `true`
    /// without need only where fields say the same thing in two ways
    /// (`ip[9] = 17` and `udp`).
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        logic::overlap(self, other)
    }
}

/// A filter: alternatives of which one has to match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// What was written.
    pub text: String,
    /// The alternatives. In order, each once; not empty.
    pub any: Vec<Conjunction>,
}

impl Filter {
    /// Whether the frame belongs to the filter. Linear in the alternatives: for
    /// one filter, not for demux.
    #[must_use]
    pub fn matches(&self, headers: &Headers, frame: &[u8]) -> bool {
        self.any.iter().any(|one| one.matches(headers, frame))
    }

    /// How specific the filter is for a frame it matches: what its most
    /// specific matching alternative is.
    #[must_use]
    pub fn specificity(&self, headers: &Headers, frame: &[u8]) -> Option<Specificity> {
        self.any
            .iter()
            .filter(|one| one.matches(headers, frame))
            .map(Conjunction::specificity)
            .max()
    }

    /// Whether some frame may match both; as exact as
    /// [`Conjunction::overlaps`]. Takes the product of the alternatives.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.any
            .iter()
            .any(|one| other.any.iter().any(|two| one.overlaps(two)))
    }

    /// Whether every frame that matches this matches `other` too. `true` only
    /// if so; `false` without need where fields say the same thing in two ways,
    /// and where deciding would take more than a bounded number of steps.
    #[must_use]
    pub fn implies(&self, other: &Self) -> bool {
        self.any.iter().all(|one| logic::implies(one, &other.any))
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::str::FromStr for Filter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, FilterError> {
        super::parse(text)
    }
}

/// The test that a packet is not a later fragment: ports and transport
/// headers are only in the others.
pub(super) fn not_later() -> Test {
    let later = left([Fragment::Later as u8]);
    Test::new(Field::Fragment, later, [0; 16])
}
