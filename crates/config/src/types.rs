//! What a configuration says.

pub use ashway_abi::Grant;
pub use ashway_api::{Instances, MemoryMode, OnFault, OrderRule, Tier};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ashway_demux::Filter;
use ashway_handler::Param;
use ashway_path::attrs::Attrs;

use crate::patterns::Pattern;
use crate::share::Share;

/// A whole, consistent configuration. Lists are in the order of the file.
#[derive(Clone, Debug)]
pub struct Config {
    /// The file, as it was named.
    pub file: PathBuf,
    /// `[node]`.
    pub node: NodeConfig,
    /// `[iface.*]`.
    pub ifaces: Vec<IfaceConfig>,
    /// Those of them that are patterns, once they are [resolved](Self::resolve).
    pub patterns: Vec<Pattern>,
    /// `[domain.*]`.
    pub domains: Vec<DomainConfig>,
    /// `[handler.*]`.
    pub handlers: Vec<HandlerConfig>,
    /// `[path.*]` in the short form, which end in a handler.
    pub paths: Vec<Arc<PathConfig>>,
    /// `[path.*]` in the long form, which name a module.
    pub long_paths: Vec<LongPath>,
    /// Modules that paths of the short form ask for, to have their handler at another
    /// layer than above UDP; the paths themselves are among `long_paths`.
    pub layered: Vec<LayeredHandler>,
    /// Where the modules of handlers stand that came while the node ran, if elsewhere
    /// than above UDP.
    pub placements: Vec<Placement>,
    /// The text. Modules read their own sections of it
    /// ([`Config::graph`]).
    pub text: String,
}

impl Config {
    /// The interface of this name.
    #[must_use]
    pub fn iface(&self, name: &str) -> Option<&IfaceConfig> {
        self.ifaces.iter().find(|iface| iface.name == name)
    }

    /// The handler of this name.
    #[must_use]
    pub fn handler(&self, name: &str) -> Option<&HandlerConfig> {
        self.handlers.iter().find(|handler| handler.name == name)
    }

    /// The paths that end in this handler.
    pub fn paths_of<'c>(&'c self, handler: &'c str) -> impl Iterator<Item = &'c PathConfig> {
        self.paths
            .iter()
            .map(|path| &**path)
            .filter(move |path| path.handler == handler)
    }
}

/// A handler that stands at a layer of its own (`layer`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayeredHandler {
    /// The module that runs it there.
    pub module: String,
    /// The handler.
    pub handler: String,
    /// The interface on whose link it stands; `None` if it stands on `ip`.
    pub iface: Option<String>,
}

/// Where in the graph the module of a handler stands: a stage for paths to come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The handler.
    pub handler: String,
    /// The service it lives on.
    pub down: String,
    /// The service that lives on it, if one does.
    pub up: Option<String>,
}

/// `[node]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeConfig {
    /// Its name; `default` if none is given.
    pub name: String,
    /// The control socket, if the file names one.
    pub socket: Option<PathBuf>,
}

impl Default for NodeConfig {
    fn default() -> Self {
        Self {
            name: "default".to_owned(),
            socket: None,
        }
    }
}

/// `[iface.NAME]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IfaceConfig {
    /// The interface's name in this network namespace.
    pub name: String,
    /// How to receive from it.
    pub attach: Attach,
    /// What else it is to be, if the node makes it itself.
    pub own: OwnIface,
    /// The pattern of the section that it was found by, if none has its name.
    pub pattern: Option<String>,
    /// Where the section starts, from 1.
    pub line: usize,
}

/// An interface that the node makes itself ([`Attach::is_own`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnIface {
    /// Its hardware address; if none is given it follows from the names of node and interface.
    pub mac: Option<[u8; 6]>,
    /// The capture that comes by it.
    pub read: Option<PathBuf>,
    /// The capture that what leaves by it goes into.
    pub write: Option<PathBuf>,
    /// How fast the capture comes.
    pub pace: ReplayPace,
    /// The interface at the other end of a link in memory.
    pub peer: Option<String>,
}

/// How fast the frames of a capture come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplayPace {
    /// With the gaps that they had.
    #[default]
    Capture,
    /// As fast as the node is done with them.
    Full,
}

impl ReplayPace {
    /// The words of the configuration and what each means.
    pub const WORDS: &'static [(&'static str, Self)] =
        &[("capture", Self::Capture), ("full", Self::Full)];
}

/// How messages are taken from an interface: the rungs of the ladder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Attach {
    /// The highest rung that works.
    #[default]
    Auto,
    /// XDP in the driver.
    Xdp,
    /// Behind the driver, at traffic control's ingress.
    Tcx,
    /// XDP in the host's stack.
    Generic,
    /// No programs: packet sockets, user tier only.
    Packet,
    /// A TAP device that the node makes: the host is at its other end.
    Tap,
    /// A capture file in its place.
    Pcap,
    /// A link in memory: to another interface, or to the program that runs the node.
    Memory,
}

/// `[domain.NAME]`: whose messages are whose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainConfig {
    /// Its name.
    pub name: String,
    /// What its paths may match: each of them a part of one of these.
    pub owns: Vec<Filter>,
}

/// `[handler.NAME]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandlerConfig {
    /// Its name.
    pub name: String,
    /// The Wasm file, resolved against the configuration's directory.
    pub file: PathBuf,
    /// What it may do beyond looking at messages.
    pub allow: Vec<Grant>,
    /// What its memory is made of.
    pub memory: MemoryMode,
    /// Whether it has an instance for each CPU.
    pub instances: Instances,
    /// The CPU whose messages it takes, if it is one of several instances.
    pub cpu: Option<u32>,
    /// Slots of its endpoint's ring, a power of two; 0 if it has none.
    pub endpoint: usize,
    /// The peers that it may send to, by number.
    pub channels: Vec<SocketAddr>,
    /// The local port that it sends from; 0 for any.
    pub send_port: u16,
    /// Values for its `ASHWAY_PARAM`s and `ASHWAY_TEXT_PARAM`s.
    pub params: BTreeMap<String, Param>,
    /// The domain that all its paths belong to, if any.
    pub domain: Option<String>,
    /// Where the section starts, from 1; 0 for what came while the node ran.
    pub line: usize,
}

impl HandlerConfig {
    /// A handler that says nothing but its file.
    #[must_use]
    pub fn of_file(name: &str, file: PathBuf) -> Self {
        Self {
            name: name.to_owned(),
            file,
            allow: Vec::new(),
            memory: MemoryMode::Auto,
            instances: Instances::One,
            cpu: None,
            endpoint: 0,
            channels: Vec::new(),
            send_port: 0,
            params: BTreeMap::new(),
            domain: None,
            line: 0,
        }
    }
}

/// `[path.NAME]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathConfig {
    /// Its name.
    pub name: String,
    /// Names of the interfaces it receives from, each once.
    pub ifaces: Vec<String>,
    /// The patterns that it names, once they are [resolved](Config::resolve): the interfaces
    /// that match stand among `ifaces`.
    pub patterns: Vec<String>,
    /// Which messages belong to it.
    pub filter: Filter,
    /// The handler's name.
    pub handler: String,
    /// The function of the handler: `on_rx` if none is given.
    pub function: String,
    /// Where it may run.
    pub tier: Tier,
    /// What happens to a message whose handler was stopped.
    pub on_fault: OnFault,
    /// How often the handler may be stopped; `None` for ever so often.
    pub faults: Option<FaultLimit>,
    /// How long the handler may take for one message.
    pub budget: Duration,
    /// How much of the kernel tier it may have, if that has a limit.
    pub share: Option<Share>,
    /// Which of its messages keep their order where some go to the user tier and others do not.
    pub order: OrderRule,
    /// Most messages that wait for it in the user tier, if it says so.
    pub queue: Option<u64>,
    /// The memory that it is granted, in bytes, if it says so.
    pub memory_bytes: Option<u64>,
    /// The domain it belongs to beside its handler's, if any.
    pub domain: Option<String>,
    /// The CPU whose messages it takes, if its handler is one of several instances.
    pub cpu: Option<u32>,
    /// Where the section starts, from 1; 0 for what came while the node ran.
    pub line: usize,
}

/// `[path.NAME]` in the long form: which modules it leads through follows from the
/// graph and the attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LongPath {
    /// Its name.
    pub name: String,
    /// The module that it is created from.
    pub from: String,
    /// What must be true of its messages besides, where it begins.
    pub filter: Option<Filter>,
    /// Its attributes at first.
    pub attrs: Attrs,
    /// Where it may run.
    pub tier: Tier,
    /// The domain it belongs to, if any.
    pub domain: Option<String>,
    /// The interfaces it receives from, and which messages there, as its stages
    /// say; an end that takes everything is not among them.
    pub entrances: Vec<(String, Filter)>,
    /// Where the section starts, from 1.
    pub line: usize,
}

/// How often a path's handler may be stopped before the path leaves the kernel tier,
/// and, if it is to rest, as often again before its messages go by the handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultLimit {
    /// So often, at least 1.
    pub most: u32,
    /// Within this time.
    pub within: Duration,
    /// How long messages go by the handler, the first time; `None`: they never do. Not
    /// by default: whoever can stop a handler could have it rest for everybody.
    pub rest: Option<Duration>,
}

impl Default for FaultLimit {
    /// A hundred stops of the default budget in a second are 0.5 % of a CPU.
    fn default() -> Self {
        Self {
            most: 100,
            within: Duration::from_secs(1),
            rest: None,
        }
    }
}

impl FaultLimit {
    /// What `within` and `rest` may be.
    pub const TIMES: [Duration; 2] = [Duration::from_millis(10), Duration::from_hours(1)];
}

impl Config {
    /// The budget of a path that names none.
    pub const DEFAULT_BUDGET: Duration = Duration::from_micros(50);
    /// The smallest budget: below it a message costs more than its handler.
    pub const MIN_BUDGET: Duration = Duration::from_micros(1);
    /// The largest budget: softirq time that one path may take from others.
    pub const MAX_BUDGET: Duration = Duration::from_millis(10);
}

impl Attach {
    /// The words of the configuration and what each means.
    pub const WORDS: &'static [(&'static str, Self)] = &[
        ("auto", Self::Auto),
        ("xdp", Self::Xdp),
        ("tcx", Self::Tcx),
        ("generic", Self::Generic),
        ("packet", Self::Packet),
        ("tap", Self::Tap),
        ("pcap", Self::Pcap),
        ("memory", Self::Memory),
        // As it was called at first.
        ("native", Self::Xdp),
    ];

    /// Whether it asks for TCX or for XDP; `None` if for neither.
    #[must_use]
    pub const fn is_tcx(self) -> Option<bool> {
        match self {
            Self::Auto | Self::Packet | Self::Tap | Self::Pcap | Self::Memory => None,
            Self::Xdp | Self::Generic => Some(false),
            Self::Tcx => Some(true),
        }
    }

    /// The word of the configuration.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Xdp => "xdp",
            Self::Tcx => "tcx",
            Self::Generic => "generic",
            Self::Packet => "packet",
            Self::Tap => "tap",
            Self::Pcap => "pcap",
            Self::Memory => "memory",
        }
    }

    /// Whether it asks for a rung without programs, which has no kernel tier.
    #[must_use]
    pub const fn is_user_only(self) -> bool {
        self.is_own() || matches!(self, Self::Packet)
    }

    /// Whether the node makes the interface itself.
    #[must_use]
    pub const fn is_own(self) -> bool {
        matches!(self, Self::Tap | Self::Pcap | Self::Memory)
    }
}
