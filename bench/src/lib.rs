//! Ashway measured: against an ordinary socket server, against an XDP program
//! written by hand, and against the promises of SPECIFICATION.md.
//!
//! [`counter`] is `ashway bench counter`; [`demo`] is what `./demo` runs. Both
//! ask for remote increments (Wallach, Engler & Kaashoek 1996, section V) from
//! client A to host B, two network namespaces of their own, and compare ratios
//! within one run: the machine's speed and its slow phases are in both sides.
//!
//! [`demux`] is `ashway bench demux`: finding a path in both tiers, by the number of
//! paths, beside a bare hash map and a list of libpcap's filters, and while paths come
//! and go. [`forward`] is `ashway bench forward`: a UDP relay in both tiers, beside
//! sockets, Linux and XDP by hand. [`path`] is `ashway bench path`: paths of a running
//! node. [`promote`] is `ashway bench promote`: the [`programs`] of `apps/programs` in
//! both tiers and as ordinary programs. [`pipes`] is `ashway bench pipes`: data
//! manipulations one after the other, integrated by hand, and fused at run time.
//! [`neighbour`] is `ashway bench neighbour`: what a handler costs the paths beside it;
//! [`flood`] is `ashway bench flood`: a path that is flooded, and the one beside it;
//! [`cpus`] is `ashway bench cpus`: one handler, asked from two CPUs;
//! [`crowd`] is `ashway bench crowd`: a busy path beside many that have no messages;
//! [`drain`] is `ashway bench drain`: how fast the user tier takes what comes;
//! [`dns`] is `ashway bench dns`: a DNS responder as a handler, beside unbound;
//! [`hooks`] is `ashway bench hooks`: what a node costs its host at TCX and under XDP;
//! [`copy`] is `ashway bench copy`: how often a payload is copied on its way;
//! [`sandbox`] is `ashway bench sandbox`: what its own safety costs it. [`swap`] is
//! `ashway bench swap`: versions of a handler that take over from each other.
//!
//! * [`rtt`] asks, times and checks; [`stats`] reduces; [`table`] shows.
//! * [`socket_server`] and the C programs in `peers/` ([`peers`]) are the other
//!   side of each comparison.
//! * [`contest`] lets the cases take turns on [`hosts`], as root or
//!   [`rootless`].

#![forbid(unsafe_code)]

pub mod contest;
pub mod copy;
pub mod counter;
pub mod cpus;
pub mod crowd;
pub mod demo;
pub mod demux;
pub mod dns;
pub mod drain;
pub mod flood;
pub mod forward;
pub mod hooks;
pub mod hosts;
mod iperf;
pub mod neighbour;
pub mod path;
pub mod peers;
pub mod pipes;
pub mod programs;
pub mod promote;
mod ratio;
pub mod rootless;
pub mod rtt;
pub mod sandbox;
pub mod socket_server;
pub mod stats;
pub mod swap;
pub mod table;
pub mod xdp;

/// What a benchmark found.
#[derive(Clone, Debug)]
pub struct Report {
    /// For programs: `-j` prints it.
    pub document: serde_json::Value,
    /// The same as tables.
    pub text: String,
}
