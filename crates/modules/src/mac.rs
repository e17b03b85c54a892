//! An interface's hardware address, which somebody may change while it is used.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ashway_wire::eth::Address;

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
}
