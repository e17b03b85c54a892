//! An interface's MTU, which somebody may change while it is used.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The largest packet that an interface takes now, in bytes behind the link's header: one for all
/// clones, which follow when it is set.
#[derive(Clone, Debug)]
pub struct Mtu(Arc<AtomicU32>);

impl Mtu {
    /// The bytes. Constant time, never blocks.
    #[must_use]
    pub fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// The interface takes so many bytes from now on.
    pub fn set(&self, bytes: u32) {
        self.0.store(bytes, Ordering::Relaxed);
    }
}

impl From<u32> for Mtu {
    fn from(bytes: u32) -> Self {
        Self(Arc::new(AtomicU32::new(bytes)))
    }
}
