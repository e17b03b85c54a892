//! The per-CPU context: how the programs of one activation talk to each other.
//!
//! [`BYTES`] of one array map's value for each possible CPU, named by every
//! program of a node. The
//! entry program writes the facts about the message, tail-calls the program of
//! the path's instance, and that program keeps fuel, frames and trap records
//! here. User space cannot map it, so a handler's bookkeeping is out of the
//! application's reach. XDP programs do not nest on a CPU, so one context per
//! CPU is enough.
//!
//! All fields are offsets in bytes from the start of a CPU's context.

/// Size of one CPU's context; a power of two.
pub const BYTES: usize = 64 * 1024;

/// `u32`: the path's row in the counters map.
pub const ROW: i16 = 0;
/// `u32`: the path's position within its instance.
pub const LOCAL_PATH: i16 = 4;
/// `u16`: the ring of receive queue 0 of this interface within the instance.
pub const RING_BASE: i16 = 8;
/// `u16`: how many rings of the instance are this interface's. A queue beyond them shares
/// one of them; where it is 0, all queues of the interface share those of all interfaces.
pub const RING_COUNT: i16 = 10;
/// `u32`: where the UDP payload starts in the frame.
pub const PAYLOAD_OFF: i16 = 12;
/// `u32`: length of the UDP payload, at most what the frame really holds.
pub const PAYLOAD_LEN: i16 = 16;
/// `u32`: bit set of [`flag`].
pub const FLAGS: i16 = 20;
/// `i64`: fuel left of the current slice; negative means the slice is spent.
pub const FUEL: i16 = 24;
/// `i64`: fuel left beyond the current slice.
pub const RESERVE: i16 = 32;
/// `u64`: when the budget ends on `CLOCK_MONOTONIC`, in ns; 0 until the first
/// slice is spent (a handler that needs less never reads the clock).
pub const DEADLINE: i16 = 40;
/// `u32`: 1 once the handler has changed the message.
pub const DIRTY: i16 = 48;
/// `u32`: the [`Cause`](crate::Cause) of a trap.
pub const CAUSE: i16 = 52;
/// `u32`: the trap's offset in the Wasm file the author wrote.
pub const AT: i16 = 56;
/// `u32`: bytes of the call stack in use; see [`CALLS`].
pub const STACK: i16 = 60;
/// `u64`: always 0, which the verifier does not know (docs/facts.md, "Laundering").
pub const ZERO: i16 = 64;
/// Scratch words for trusted code between two programs' steps (56 bytes).
pub const SCRATCH: i16 = 72;
/// `u64`: 1 once a stretch between two looks at the clock was not charged
/// (`codegen/src/promote/fuel.rs`).
pub const GRACE: i16 = 128;
/// `i64`: bulk work left until the next look at the clock.
pub const BULK: i16 = 136;
/// `u32`: the place of the path's program in the interface's program array.
pub const SLOT: i16 = 144;
/// `u32`: the [tag](crate::Leaf::tag) of the path at this interface.
pub const TAG: i16 = 148;
/// `u64`: when the clock was last looked at for a slice, in ns.
pub const LOOKED: i16 = 216;
/// `u64`: the fuel that was given then.
pub const GIVEN: i16 = 232;
/// `u32`: when the clock was last looked at for anything: the low half of the ns.
pub const SEEN: i16 = 228;
/// `u32`: how long the handler may make the message; set where it may
/// ([`resize`](crate::resize)).
pub const MOST_LEN: i16 = 224;
/// `u32`: how specific the entry is that was found among the shapes that are data; 0 if
/// none was.
pub const SPARE: i16 = 240;
/// `u32`: how many messages one that is [timed](flag::TIMED) stands for.
pub const TIMED_FOR: i16 = 244;
/// `u64`: when that one came, on `CLOCK_MONOTONIC`, in ns.
pub const TIMED_FROM: i16 = 248;
/// What the message's headers say, found once by the entry program: the words of
/// `ashway_wire::Headers`. Numbers of more than one byte are in network order,
/// offsets are not. Written by the walk for frames that are not plain (see
/// [`flag::PLAIN`]); of plain ones nothing is here, since every place is known.
pub mod fact {
    /// `u32`: where the IP header, or what follows the Ethernet type, starts in
    /// the frame.
    pub const NETWORK: i16 = 152;
    /// `u32`: where the transport header starts; 0 if none was found.
    pub const TRANSPORT: i16 = 156;
    /// 16 bytes: the sender; IPv4 in the first four.
    pub const SOURCE: i16 = 160;
    /// 16 bytes: the receiver.
    pub const DESTINATION: i16 = 176;
    /// `u16`: the sender's port.
    pub const SOURCE_PORT: i16 = 192;
    /// `u16`: the receiver's port.
    pub const DESTINATION_PORT: i16 = 194;
    /// Two `u16`: the VLAN ids, outermost first.
    pub const VLAN: i16 = 196;
    /// `u16`: the Ethernet type behind the tags.
    pub const ETHERTYPE: i16 = 200;
    /// `u8`: a bit for each VLAN tag: 0, 1 or 3.
    pub const VLANS: i16 = 202;
    /// `u8`: the transport protocol.
    pub const PROTOCOL: i16 = 203;
    /// `u8`: 0 no fragment, 1 the first, 2 a later one.
    pub const FRAGMENT: i16 = 204;
    /// `u8`: 1 if there is a VXLAN network identifier.
    pub const VNI_THERE: i16 = 205;
    /// `u8`: how far the headers reach, as bits. Written, like [`RAWS`], for shapes that
    /// are data.
    pub const REACH: i16 = 206;
    /// Bit of [`REACH`]: there is a network header.
    pub const REACHES_NETWORK: u8 = 1;
    /// Bit of [`REACH`]: there is a transport header.
    pub const REACHES_TRANSPORT: u8 = 2;
    /// Bit of [`REACH`]: there is a tag; the next is for a second one.
    pub const REACHES_VLAN: u8 = 4;
    /// `u8`: a bit for each place of the frame that is asked for and is there.
    pub const RAWS: i16 = 207;
    /// `u32`: the VXLAN network identifier.
    pub const VNI: i16 = 208;
    /// The first byte behind the facts.
    pub const END: i16 = 216;
}
/// First byte of the frames of promoted functions.
pub const FRAMES: i16 = 256;
/// Bytes for all frames together.
pub const FRAMES_BYTES: usize = LAUNDERED as usize - FRAMES as usize;
/// `u64`: what goes through here and comes back is unknown to the verifier (docs/facts.md,
/// "Laundering").
pub const LAUNDERED: i16 = CALLS as i16 - 8;
/// First byte of the call stack: where recursive functions keep their frames
/// while they are called again. Beyond what an instruction's offset reaches.
pub const CALLS: usize = 16 * 1024;
/// Slots of 8 bytes on the call stack: how deep recursion goes, in both tiers.
/// (What is left behind them keeps a frame's accesses inside the context.)
pub const CALL_SLOTS: u32 = 4_096;
/// First byte of what programs say while somebody [observes](crate::observe). The
/// call stack and the frames above its last slot end before it.
pub const OBSERVE: usize = 56 * 1024;
/// First byte of the [stage](crate::log::stage) of lines that a handler logs.
pub const LOG: usize = 62 * 1024;

const _: () = assert!(OBSERVE >= CALLS + CALL_SLOTS as usize * 8);
const _: () = assert!(LOG >= OBSERVE + crate::observe::BYTES + crate::observe::MOST_BYTES + 64);
const _: () = assert!(LOG + crate::log::stage::BYTES <= BYTES);

/// Bits of [`FLAGS`].
pub mod flag {
    /// The message came by IPv6; otherwise by IPv4.
    pub const IPV6: u32 = 1;
    /// The UDP checksum field holds only the pseudo-header's sum, because the
    /// sender left the rest to its device (docs/facts.md, "Half a checksum on a veth").
    pub const CHECKSUM_PARTIAL: u32 = 2;
    /// Replies leave through the TCX exit program, because the veth peer
    /// cannot take `XDP_TX`.
    pub const REPLY_BY_TCX: u32 = 4;
    /// A fault on this path drops the message; otherwise it is passed on.
    pub const ON_FAULT_DROP: u32 = 8;
    /// Replies are redirected to the interface they came from, because `XDP_TX`
    /// on a veth wakes its peer only if that has an XDP program, and one with
    /// GRO alone would leave them lying (`veth_xdp_flush`, Linux 6.18).
    pub const REPLY_BY_REDIRECT: u32 = 16;
    /// The headers are Ethernet without tags, IPv4 without options or IPv6
    /// without extension headers, and UDP: they lie where they mostly do. Never
    /// beside [`RAW`].
    pub const PLAIN: u32 = 32;
    /// The path takes whole frames, of whatever protocol: its messages begin
    /// behind the Ethernet header, and nothing in them has been checked.
    pub const RAW: u32 = 64;
    /// The kernel tier looks at the clock when it is done with the message.
    pub const TIMED: u32 = 128;
    /// The frame's first VLAN tag lies beside it, as it does at TCX, and is put back where the
    /// message waits for the user tier. Never beside [`PLAIN`].
    pub const TAG_BESIDE: u32 = 256;
    /// The message is longer than programs read, or many behind one header: the user tier
    /// checks what the entry program has not, and takes it apart.
    pub const UNCHECKED: u32 = 512;
    /// The path's messages keep their order as a whole, and not by [flows](crate::flow). As
    /// [`ORDER_NONE`], only on paths that end in a handler.
    pub const ORDER_PATH: u32 = 1024;
    /// They keep none.
    pub const ORDER_NONE: u32 = 2048;
    /// The handler has an instance for each CPU: row, slot and number of the path are those of
    /// the first CPU's, and the others' follow. Never beside [`RAW`].
    pub const PER_CPU: u32 = 4096;
}
