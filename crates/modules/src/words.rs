//! The words of pcap-filter(7) by which modules ask for frames: who looks these up knows
//! what they mean, and what value stands behind them.

/// A number: the id of the next VLAN tag, behind which all further words look.
pub const VLAN: &str = "vlan";
/// No value: Internet Protocol, version 4.
pub const IP: &str = "ip";
/// No value: Internet Protocol, version 6.
pub const IP6: &str = "ip6";
/// An address: who the packet is for.
pub const DST_HOST: &str = "dst host";
/// An address: who has sent it.
pub const SRC_HOST: &str = "src host";
/// No value: the User Datagram Protocol over either version.
pub const UDP: &str = "udp";
/// A number: the port that the datagram is for.
pub const DST_PORT: &str = "dst port";
/// A number: the port that it was sent from.
pub const SRC_PORT: &str = "src port";
