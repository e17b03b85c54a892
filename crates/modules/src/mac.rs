//! An interface's hardware address, which somebody may change while it is used.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ashway_wire::eth::Address;

/// Set in the word of an interface that takes frames for any address.
const ANY: u64 = 1 << 63;

/// The hardware address that an interface has now: one for all clones, which follow when
/// it is set.
#[derive(Clone, Debug, Default)]
pub struct Mac(Arc<AtomicU64>);

impl Mac {
    /// The address. Constant time, never blocks.
    #[must_use]
    pub fn get(&self) -> Address {
        let [_, _, address @ ..] = self.0.load(Ordering::Relaxed).to_be_bytes();
        address
    }

    /// That of an interface which stands for whoever its frames are for: a capture in its place.
    #[must_use]
    pub fn of_anybody(address: Address) -> Self {
        Self(Arc::new(AtomicU64::new(word(address) | ANY)))
    }

    /// Whether a frame for this address is for the interface. Constant time, never blocks.
    #[must_use]
    pub fn accepts(&self, destination: Address) -> bool {
        let own = self.0.load(Ordering::Relaxed);
        // What is for all, or many, stations is the host's on every rung.
        let is_for_one = destination[0] & 1 == 0;
        own == word(destination) || own & ANY != 0 && is_for_one
    }

    /// The interface has this address from now on.
    pub fn set(&self, address: Address) {
        self.0.store(word(address), Ordering::Relaxed);
    }
}

impl From<Address> for Mac {
    fn from(address: Address) -> Self {
        Self(Arc::new(AtomicU64::new(word(address))))
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.get().map(|byte| format!("{byte:02x}"));
        f.write_str(&bytes.join(":"))
    }
}

fn word(address: Address) -> u64 {
    let bytes = address.into_iter();
    bytes.fold(0, |word, byte| word << 8 | u64::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_who_have_it_see_it_change() {
        let mac = Mac::from([2, 0, 0, 0, 0, 1]);
        let other = mac.clone();
        assert_eq!(other.get(), [2, 0, 0, 0, 0, 1]);
        mac.set([0xff, 1, 2, 3, 4, 5]);
        assert_eq!(other.get(), [0xff, 1, 2, 3, 4, 5]);
        assert_eq!(other.to_string(), "ff:01:02:03:04:05");
    }

    #[test]
    fn frames_are_for_an_interface_or_for_anybody() {
        let [own, other] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
        let one = Mac::from(own);
        assert!(one.accepts(own) && !one.accepts(other) && !one.accepts([0xff; 6]));
        let any = Mac::of_anybody(own);
        assert!(any.accepts(own) && any.accepts(other) && !any.accepts([0xff; 6]));
        assert_eq!(any.get(), own);
    }
}
