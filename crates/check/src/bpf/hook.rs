//! Where a program of ours runs, and what the kernel calls there what they all use.
//!
//! XDP sees a frame in the driver; traffic control's ingress (TCX) sees it a little later, as
//! a socket buffer. It is the same frame, by another context and other helpers. Those of TCX
//! have their names here; what they do, `codegen/src/hook.rs` makes alike.
//!
//! Source: Linux 6.18 `include/uapi/linux/bpf.h`.

/// A place in the receive path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hook {
    /// `BPF_PROG_TYPE_XDP`, by `struct xdp_md`.
    #[default]
    Xdp,
    /// `BPF_PROG_TYPE_SCHED_CLS`, by `struct __sk_buff`.
    Tcx,
}

/// A field that the context has at each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// Where the frame begins.
    Data,
    /// Where its linear part ends, which under XDP is all of it.
    DataEnd,
    /// Where metadata in front of it begins.
    DataMeta,
    /// The interface that it came by.
    Ifindex,
    /// The number of the receive queue that it came by; under TCX one more, and 0 if nobody
    /// knows.
    RxQueue,
}

/// Fields that only `struct __sk_buff` has.
#[allow(missing_docs, reason = "the kernel's names")]
pub mod skb {
    pub const LEN: i16 = 0;
    pub const VLAN_PRESENT: i16 = 20;
    pub const VLAN_TCI: i16 = 24;
    pub const VLAN_PROTO: i16 = 28;
    pub const GSO_SEGS: i16 = 164;
    pub const GSO_SIZE: i16 = 176;
}

impl Hook {
    /// Every hook.
    pub const ALL: [Self; 2] = [Self::Xdp, Self::Tcx];

    const FIELDS: [(Field, [i16; 2]); 5] = [
        (Field::Data, [0, 76]),
        (Field::DataEnd, [4, 80]),
        (Field::DataMeta, [8, 140]),
        (Field::Ifindex, [12, 40]),
        (Field::RxQueue, [16, 12]),
    ];

    /// The field's offset.
    #[must_use]
    pub const fn offset(self, field: Field) -> i16 {
        let (_, offsets) = Self::FIELDS[field as usize];
        offsets[self as usize]
    }

    /// The field at this offset.
    #[must_use]
    pub fn field(self, offset: i64) -> Option<Field> {
        let mut fields = Self::FIELDS.iter();
        let found = fields.find(|(_, offsets)| i64::from(offsets[self as usize]) == offset);
        found.map(|(field, _)| *field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_where_it_is_looked_up() {
        for hook in Hook::ALL {
            for (field, _) in Hook::FIELDS {
                assert_eq!(hook.field(hook.offset(field).into()), Some(field));
            }
            assert_eq!(hook.field(2), None);
        }
    }
}
