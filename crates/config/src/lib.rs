//! The configuration of a node: TOML in, checked facts out.
//!
//! ```toml
//! [node]                   # optional
//! name   = "default"
//! socket = "node.sock"     # the control socket; relative to this file
//!
//! [iface.veth0]
//! attach = "auto"          # auto | xdp | tcx | generic | packet
//!
//! [iface."cali*"]          # all that match, now and later: `*`, `?`, `[...]`
//!
//! [handler.counter]
//! file   = "counter.wasm"  # relative to this file
//! allow  = ["reply"]
//! memory = "auto"          # auto | arena | array
//! instances = "one"        # one | per-cpu | parallel: on one CPU at a time, with a memory for
//!                          # each, on all at once
//! params = { step = 5 }
//! domain = "games"         # optional
//!
//! [domain.games]           # what its paths may match
//! owns = ["udp and dst portrange 7000-7999"]
//!
//! [path.inc]
//! iface    = "veth0"       # or ["veth0", "veth1"]
//! match    = "udp and dst port 7777"
//! handler  = "counter"     # = counter:on_rx
//! tier     = "auto"        # auto | kernel | user
//! on_fault = "pass"        # pass | drop | demote
//! faults   = { limit = 100, within = "1 s" }   # `rest` too, or "off"
//! budget   = "50 us"       # 1 us to 10 ms
//! share    = "20 %"        # optional: of one CPU, in the tier that it runs in
//! rate     = "5000/s"      # optional: runs a second, there
//! order    = "flow"        # flow | path | none: which messages wait for which
//!
//! [module.relay]           # ashway_path::read, ashway_modules
//! kind = "forward"
//! down = "udp.up"
//!
//! [path.relayed]           # the long form
//! from  = "eth:veth0"
//! attrs = { pathname = "udp/relay", next_hop = "10.0.3.2:9000", from = "10.0.3.1:9000" }
//! ```
//!
//! [`load`] reports every error at once ([`crate::diagnostics`]). What a
//! [`Config`] says is consistent: names resolve, filters do not compete. Only
//! the world (interfaces, privileges, the handlers' code) can still object.

#![forbid(unsafe_code)]

mod attributes;
mod bound;
mod bug;
pub mod diagnostics;
mod difference;
mod entrances;
mod files;
pub mod glob;
mod grants;
mod implied;
mod instances;
mod modules;
mod offline;
mod own;
mod patterns;
mod pipes;
mod read;
mod rules;
mod sections;
mod share;
mod types;
pub mod units;
mod values;

#[cfg(test)]
mod edits;
#[cfg(test)]
mod tests;

pub use ashway_path::problem::suggest;
pub use attributes::{attr, attribute, faults, share};
pub use bound::{Asked, NotBound, refuse_unused_order};
pub use difference::{Act, Difference, Facts, Mistake, Step, What, difference};
pub use entrances::Entrance;
pub use files::{Claim, create, open, open_or_pipe};
pub use grants::NotGranted;
pub use instances::{MOST_CPUS, instance_name, instance_of, whole_name};
pub use modules::{GRANT_BYTES, NodeGraph, World};
pub use offline::Offline;
pub use patterns::Pattern;
pub use read::{load, parse, reload};
pub use share::{Share, read_rate, read_share};
pub use types::{
    Attach, Config, DomainConfig, FaultLimit, Grant, HandlerConfig, IfaceConfig, Instances,
    LayeredHandler, LongPath, MemoryMode, NodeConfig, OnFault, OrderRule, OwnIface, PathConfig,
    Placement, ReplayPace, Tier,
};
pub use values::{
    MOST_CHANNELS, NAME_HINT, is_name, read_budget, read_channel, read_endpoint, read_faults,
    read_match,
};
