//! Frames to and from the kernel without the host's stack.
//!
//! * [`TxSocket`]: `AF_XDP`, transmit only. The daemon's replies leave by it.
//! * [`PacketSocket`]: `AF_PACKET`. Where XDP may not be attached, messages come
//!   and go by it; [`IngressDrop`] then keeps the host's stack from answering
//!   the same message, and [`Passer`] gives the host the messages that no
//!   handler wanted.
//! * [`TapDevice`]: a TAP device, which the node makes itself.
//! * [`Endpoint`]: an application's own messages, which its handler delivers.
//!
//! The words are those of `if_xdp.h`: UMEM, chunk, fill, tx, completion. No
//! dependency on the rest of Ashway but its words (`abi`) and mappings (`memory`), so that
//! an application can link it.
//!
//! * [`receive_nothing`]: for sockets that only send.
//!
//! Unsafe code is in `queue`, `umem`, `filter`, `packet`, `tap_device` and `endpoint`: memory
//! shared with the kernel and system calls that the standard library does not have.

pub mod endpoint;
pub mod filter;
pub mod ingress_drop;
pub mod packet;
pub mod pass;
mod queue;
pub mod socket;
pub mod tap_device;
mod umem;

pub use endpoint::Endpoint;
pub use filter::receive_nothing;
pub use ingress_drop::{Family, IngressDrop, IngressDropError, Match, Net, Ports};
pub use packet::{BATCH, PacketSocket};
pub use pass::{PassError, Passer};
pub use socket::{BindError, SendError, TxSocket};
pub use tap_device::{TapDevice, TapDeviceError};
