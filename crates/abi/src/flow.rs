//! Which messages of a path keep their order between the tiers.
//!
//! A message that goes to the user tier holds up what must not overtake it. By default that
//! is its flow: the messages with its addresses and ports. Flows are counted by *buckets*
//! ([`trusted::flows_at`](crate::trusted::flows_at)), and a flow's bucket is a hash of these. Two flows
//! in one bucket hold each other up, which costs a message that crosses, or is dropped while the
//! other [drains](crate::trusted::DRAINING), and never the order. Which ones do differs by node and
//! handler, by a seed, so that a sender cannot choose whom it meets. The hash is none that
//! withstands somebody who can see which messages cross.
//!
//! What is here is what the generated programs compute (`codegen::instance::flow`), and a test
//! holds the two together. Whoever takes a message out of a ring reads the bucket from its slot.

/// Buckets of a queue; a power of two. With 64 messages of other flows in the user tier, 1.6 %
/// of the others share a bucket with one. 16 KiB for each handler.
pub const BUCKETS: usize = 1 << BUCKET_BITS;
/// Bits of a bucket's number.
pub const BUCKET_BITS: u32 = 12;

/// In place of a bucket: the message holds up all of its path.
pub const WHOLE_PATH: u32 = BUCKETS as u32;
/// In place of a bucket: the message holds up none, and waits for none.
pub const UNORDERED: u32 = BUCKETS as u32 + 1;

/// 2^64 divided by the golden ratio, odd: neighbouring ports and addresses come into buckets far
/// from each other (D. E. Knuth, *The Art of Computer Programming* 3, §6.4, "Fibonacci hashing").
pub const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// The bucket of an IPv4 datagram's flow, in a queue with this
/// [seed](crate::trusted::FLOW_SEED). Addresses and ports as they lie in the headers; the sender's
/// comes first of both.
#[must_use]
pub const fn of_ipv4(seed: u64, addresses: [[u8; 4]; 2], ports: [u8; 4]) -> u32 {
    let [source, destination] = addresses;
    let source = u32::from_le_bytes(source) as u64;
    let destination = u32::from_le_bytes(destination) as u64;
    bucket(seed, destination << 32 | source, ports)
}

/// The same of an IPv6 datagram's.
#[must_use]
pub fn of_ipv6(seed: u64, addresses: [[u8; 16]; 2], ports: [u8; 4]) -> u32 {
    let mut hash = 0_u64;
    for address in addresses {
        let (words, _) = address.as_chunks();
        for word in words {
            hash = hash.wrapping_mul(MULTIPLIER) ^ u64::from_le_bytes(*word);
        }
    }
    bucket(seed, hash, ports)
}

const fn bucket(seed: u64, addresses: u64, ports: [u8; 4]) -> u32 {
    let hash = (addresses ^ seed).wrapping_mul(MULTIPLIER);
    // The upper half depends on all of the addresses.
    let hash = (hash ^ hash >> 32 ^ u32::from_le_bytes(ports) as u64).wrapping_mul(MULTIPLIER);
    (hash >> (u64::BITS - BUCKET_BITS)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: u64 = 0x0123_4567_89ab_cdef;

    /// Neighbours in any field: as many buckets are used as of numbers drawn by chance, which
    /// leave a fraction of 1/e unused, less an eighth.
    #[test]
    fn neighbours_are_spread() {
        let ports = |source: u16| [source.to_be_bytes(), [0x1e, 0x61]].concat().try_into();
        let ports = |source| ports(source).unwrap_or_default();
        let v4 = |n: u32| {
            let [_, _, high, low] = n.to_be_bytes();
            [
                of_ipv4(
                    SEED,
                    [[10, 7, 0, 1], [10, 7, 0, 2]],
                    ports(30_000 + n as u16),
                ),
                of_ipv4(SEED, [[10, 7, high, low], [10, 7, 0, 2]], ports(4000)),
                of_ipv4(SEED, [[10, 7, 0, 2], [10, 7, high, low]], ports(4000)),
                of_ipv4(SEED, [[low, high, 0, 1], [10, 7, 0, 2]], ports(4000)),
            ]
        };
        let v6 = |n: u32| {
            let [_, _, high, low] = n.to_be_bytes();
            let mut near = [0xfd; 16];
            (near[14], near[15]) = (high, low);
            let mut far = [0xfd; 16];
            (far[6], far[7]) = (high, low);
            [
                of_ipv6(SEED, [near, [1; 16]], ports(4000)),
                of_ipv6(SEED, [[1; 16], near], ports(4000)),
                of_ipv6(SEED, [far, [1; 16]], ports(4000)),
                of_ipv6(SEED, [[1; 16], far], ports(30_000 + n as u16)),
            ]
        };
        for kind in 0..8 {
            let mut used = [false; BUCKETS];
            for n in 0..BUCKETS as u32 {
                let bucket = match kind {
                    0..4 => v4(n)[kind],
                    _ => v6(n)[kind - 4],
                };
                used[bucket as usize] = true;
            }
            let used = used.iter().filter(|used| **used).count();
            assert!(used > BUCKETS * 55 / 100, "{kind}: {used}");
        }
    }
}
