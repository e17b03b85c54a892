//! The memory a program can reach: regions at addresses of their own.
//!
//! Region `n` starts at `n << 40`, so no slip of an offset leads from one into
//! another, and a null pointer leads nowhere. Every access is checked against
//! its region's present bounds.

use super::Reason;
use ashway_abi::count::KERNEL_BYTES;
use ashway_abi::leaf;

const SHIFT: u32 = 40;
pub(super) const MD: u64 = 1 << SHIFT;
pub(super) const PACKET: u64 = 2 << SHIFT;
pub(super) const STACK: u64 = 3 << SHIFT;
pub(super) const CONTEXT: u64 = 4 << SHIFT;
pub(super) const COUNTERS: u64 = 5 << SHIFT;
pub(super) const TRUSTED: u64 = 6 << SHIFT;
/// Aligned to 4 GiB, as the arena must be: a Wasm address is the low half.
pub(super) const MEMORY: u64 = 7 << SHIFT;
/// Handles of maps: addresses at which nothing can be read.
pub(super) const MAPS: u64 = 8 << SHIFT;

/// Hits of the demux entries that are compared with constants.
pub(super) const HITS: u64 = 9 << SHIFT;
/// Values of demux shapes' hashes, each for itself as rows are.
const LEAVES: u64 = 10 << SHIFT;

/// Next hops.
pub(super) const HOPS: u64 = 11 << SHIFT;

/// Where the leaf with this number lies.
pub(super) const fn leaf_address(leaf: usize) -> u64 {
    LEAVES + (leaf * ROW_STRIDE) as u64
}

/// Distance of two rows of counters. Each is a map value of its own, so none
/// is within reach of another's pointer.
pub(super) const ROW_STRIDE: usize = 1 << 17;

/// Bytes of BPF stack (`MAX_BPF_STACK`).
pub(super) const STACK_BYTES: usize = 512;

/// Bytes before the frame, for metadata (`XDP_PACKET_HEADROOM`).
pub(super) const HEADROOM: usize = 256;

/// The start of the region that `address` falls into.
pub(super) const fn region(address: u64) -> u64 {
    address >> SHIFT << SHIFT
}

/// The regions' bytes. The context is made of the other fields when it is read.
#[derive(Clone, Debug)]
pub(super) struct Space {
    /// Headroom, then the frame.
    pub(super) packet: Vec<u8>,
    /// Where the frame starts in `packet`: at [`HEADROOM`] unless it was moved.
    pub(super) start: usize,
    /// Where metadata starts in `packet`; at most [`Self::start`].
    pub(super) meta: usize,
    /// Where the linear part of `packet` ends: what is behind no pointer reaches.
    pub(super) linear: usize,
    /// How far `packet` can reach.
    pub(super) tail: usize,
    pub(super) stack: [u8; STACK_BYTES],
    pub(super) context: Vec<u8>,
    pub(super) counters: Vec<u8>,
    pub(super) trusted: Vec<u8>,
    pub(super) memory: Vec<u8>,
    pub(super) hits: Vec<u8>,
    pub(super) leaves: Vec<[u8; leaf::BYTES]>,
    pub(super) hops: Vec<u8>,
}

impl Space {
    /// The frame.
    pub(super) fn frame(&self) -> &[u8] {
        &self.packet[self.start..]
    }

    /// The `len` bytes at `address`.
    pub(super) fn bytes(&mut self, address: u64, len: usize) -> Result<&mut [u8], Reason> {
        let outside = Reason::Outside { address, len };
        let base = region(address);
        let at = (address - base) as usize;
        let end = at + len;
        let bytes: &mut [u8] = match base {
            PACKET if at < self.meta || end > self.linear => return Err(outside),
            PACKET => &mut self.packet,
            STACK => &mut self.stack,
            CONTEXT => &mut self.context,
            COUNTERS => {
                let (row, at) = (at / ROW_STRIDE, at % ROW_STRIDE);
                let start = row * KERNEL_BYTES;
                return match self.counters.get_mut(start..start + KERNEL_BYTES) {
                    Some(row) => row.get_mut(at..at + len).ok_or(outside),
                    None => Err(outside),
                };
            }
            LEAVES => {
                let (number, at) = (at / ROW_STRIDE, at % ROW_STRIDE);
                return match self.leaves.get_mut(number) {
                    Some(leaf) => leaf.get_mut(at..at + len).ok_or(outside),
                    None => Err(outside),
                };
            }
            HOPS => &mut self.hops,
            HITS => &mut self.hits,
            TRUSTED => &mut self.trusted,
            MEMORY => &mut self.memory,
            _ => return Err(outside),
        };
        bytes.get_mut(at..end).ok_or(outside)
    }

    /// The `len` bytes (1, 2, 4 or 8) that one instruction wants; the verifier
    /// insists on aligned accesses to the stack.
    fn word(&mut self, address: u64, len: usize) -> Result<&mut [u8], Reason> {
        if region(address) == STACK && !address.is_multiple_of(len as u64) {
            return Err(Reason::Misaligned { address, len });
        }
        self.bytes(address, len)
    }

    /// Reads `len` bytes, zero-extended.
    pub(super) fn load(&mut self, address: u64, len: usize) -> Result<u64, Reason> {
        let mut word = [0; 8];
        word[..len].copy_from_slice(self.word(address, len)?);
        Ok(u64::from_le_bytes(word))
    }

    /// Writes the low `len` bytes of `value`.
    pub(super) fn store(&mut self, address: u64, len: usize, value: u64) -> Result<(), Reason> {
        self.word(address, len)?
            .copy_from_slice(&value.to_le_bytes()[..len]);
        Ok(())
    }

    /// Applies `change` to the word at `address`, and returns the old one.
    ///
    /// Aligned, and not in the packet: the verifier refuses both.
    pub(super) fn atomic(
        &mut self,
        address: u64,
        len: usize,
        change: impl FnOnce(u64) -> u64,
    ) -> Result<u64, Reason> {
        if !address.is_multiple_of(len as u64) {
            return Err(Reason::Misaligned { address, len });
        }
        if region(address) == PACKET {
            return Err(Reason::Outside { address, len });
        }
        let old = self.load(address, len)?;
        self.store(address, len, change(old))?;
        Ok(old)
    }
}
