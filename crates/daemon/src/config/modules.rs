//! The graph that a configuration describes.
//!
//! Its modules are those that `[module.*]` names, and those that the short form
//! implies: each `[iface.*]` and each `[handler.*]` that no module names has one of
//! its own, and `ip` and `udp` stand between them. What is implied are sections
//! that nobody had to write; a section of the same name takes their place:
//!
//! ```toml
//! [module."eth:veth0"]          # for [iface.veth0]
//! kind  = "eth"
//! iface = "veth0"
//! up    = "ip.down"
//!
//! [module.ip]
//! kind = "ip"
//!
//! [module.udp]
//! kind = "udp"
//! down = "ip.up"
//!
//! [module."handler:counter"]    # for [handler.counter]
//! kind    = "handler"
//! handler = "counter"
//! down    = "udp.up"
//! ```

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path as FsPath, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use ashway_codegen::demux::Filter;
use ashway_modules::attributes::{self, Form, Known, Wrong};
use ashway_modules::handler::{self, Act, Activate, FUNCTION, Handler};
use ashway_modules::kinds::{Interface, Protocols};
use ashway_modules::pipe::{self, Pipe};
use ashway_modules::shell::{self, Commands, Outcome, Request, Shell};
use ashway_modules::tap::{self, Seen, Tap, Target, Watch};
use ashway_modules::{Message, forward, rules};
use ashway_path::attrs::{Attrs, Value, names};
use ashway_path::create::{Created, NotCreated};
use ashway_path::graph::Graph;
use ashway_path::module::{Kind, Module, Refused};
use ashway_path::path::Limits;
use ashway_path::problem::Problem;
use ashway_path::read::{Kinds, Params};
use ashway_path::stage::Stage;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::share::{MOST_RUNS, Share};
use super::types::{Config, FaultLimit, Layered, LongPath, OnFault, PathConfig, XdpMode};
use crate::diagnostics::{Diagnostic, Diagnostics};
use crate::pipes::Compiler;

/// Attributes of a path in the short form, beside those that modules know.
pub mod attr {
    /// Text: what happens to a message whose handler was stopped.
    pub const ON_FAULT: &str = "on_fault";
    /// Number: how long the handler may take for one message, in ns.
    pub const BUDGET_NS: &str = "budget_ns";
    /// Number: how often the handler may be stopped, 0 for ever so often.
    pub const FAULT_LIMIT: &str = "fault_limit";
    /// Number: within which time, in ns.
    pub const FAULT_WITHIN_NS: &str = "fault_within_ns";
    /// Number: how long messages then go by it, in ns.
    pub const FAULT_REST_NS: &str = "fault_rest_ns";
    /// Number: most thousandths of a CPU that the path may have, 1 to 1,000.
    pub const SHARE_PER_MILLE: &str = "share_per_mille";
    /// Number: most messages a second that it may take.
    pub const RATE_PER_SECOND: &str = "rate_per_second";
    /// Number: the path's memory grant, in bytes; 512 KiB without it.
    pub const MEMORY_BYTES: &str = "memory_bytes";
}

/// What reads these, beside the modules.
pub(super) const OWN_ATTRIBUTES: &[Known] = &[
    (
        attr::ON_FAULT,
        Form::Word(&[
            OnFault::Pass.word(),
            OnFault::Drop.word(),
            OnFault::Demote.word(),
        ]),
    ),
    (
        attr::BUDGET_NS,
        within([Config::MIN_BUDGET, Config::MAX_BUDGET]),
    ),
    (attr::FAULT_LIMIT, Form::Within(0, u32::MAX as u64)),
    (attr::FAULT_WITHIN_NS, within(FaultLimit::TIMES)),
    (attr::FAULT_REST_NS, within(FaultLimit::TIMES)),
    (
        attr::SHARE_PER_MILLE,
        Form::Within(1, MOST_PER_MILLE as u64),
    ),
    (attr::RATE_PER_SECOND, Form::Within(1, MOST_RUNS as u64)),
    (attr::MEMORY_BYTES, Form::Number),
];

/// A whole CPU.
const MOST_PER_MILLE: u32 = 1_000;

/// A time between two, in ns.
const fn within([least, most]: [Duration; 2]) -> Form {
    Form::Within(least.as_nanos() as u64, most.as_nanos() as u64)
}

/// An attribute that somebody gives a path, as it is read: the one check of the
/// configuration, of requests, of `path plan` and of shells.
///
/// # Errors
///
/// Nobody reads it, or not with this value.
pub fn attribute(name: &str, value: &Value) -> Result<Value, Wrong> {
    attributes::check(OWN_ATTRIBUTES, name, value)
}

/// Tells a path how often its handler may be stopped.
pub(super) fn set_faults(attrs: &mut Attrs, limit: Option<FaultLimit>) {
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let FaultLimit { most, within, rest } = limit.unwrap_or_else(|| FaultLimit {
        most: 0,
        ..FaultLimit::default()
    });
    attrs.set(attr::FAULT_LIMIT, u64::from(most));
    attrs.set(attr::FAULT_WITHIN_NS, ns(within));
    if let Some(rest) = rest {
        attrs.set(attr::FAULT_REST_NS, ns(rest));
    }
}

/// How often a path's handler may be stopped, by the path's attributes.
pub(crate) fn faults(attrs: &Attrs) -> Option<FaultLimit> {
    let usual = FaultLimit::default();
    let time = |name| attrs.number(name).map(Duration::from_nanos);
    let most = attrs.number(attr::FAULT_LIMIT);
    let most = most.map_or(usual.most, |most| u32::try_from(most).unwrap_or(u32::MAX));
    (most > 0).then(|| FaultLimit {
        most,
        within: time(attr::FAULT_WITHIN_NS).unwrap_or(usual.within),
        rest: time(attr::FAULT_REST_NS).or(usual.rest),
    })
}

/// Tells a path what it may have of the tier that it runs in.
pub(super) fn set_share(attrs: &mut Attrs, share: Option<Share>) {
    if let Some(Share { per_mille, rate }) = share {
        attrs.set(attr::SHARE_PER_MILLE, u64::from(per_mille));
        if let Some(rate) = rate {
            attrs.set(attr::RATE_PER_SECOND, u64::from(rate));
        }
    }
}

/// What a path may have of the tier that it runs in, by its attributes.
pub(crate) fn share(attrs: &Attrs) -> Option<Share> {
    let number = |name, most: u32| {
        let number = attrs.number(name)?;
        Some(u32::try_from(number).unwrap_or(most).clamp(1, most))
    };
    Share::of(
        number(attr::SHARE_PER_MILLE, MOST_PER_MILLE),
        number(attr::RATE_PER_SECOND, MOST_RUNS),
    )
}

/// A path's memory grant: enough for what `fragment` puts together by default, and
/// the path itself.
pub(crate) const GRANT_BYTES: usize = 512 << 10;

/// What a path of a node may use. The worker runs messages as they come, so that
/// queues would do nothing: they wait in the rings, where early discard is.
fn limits(attrs: &Attrs) -> Limits {
    let granted = attrs.number(attr::MEMORY_BYTES);
    Limits {
        queue: [0; 4],
        memory_bytes: granted.map_or(GRANT_BYTES, |bytes| {
            usize::try_from(bytes).unwrap_or(usize::MAX)
        }),
    }
}

/// What the modules of a graph need from whoever runs it.
pub trait World {
    /// The interface of this name.
    ///
    /// # Errors
    ///
    /// Why it cannot be used.
    fn interface(&self, name: &str) -> Result<Interface, String>;

    /// The handler of this name, for paths to be bound to.
    fn handler(&self, name: &str) -> Option<Arc<dyn handler::Instance>>;

    /// Who writes what this tap shows into this file.
    ///
    /// # Errors
    ///
    /// Why it cannot be written.
    fn watch(&self, tap: &str, file: &FsPath, target: &Target) -> Result<Arc<dyn Watch>, String>;

    /// Who obeys the shells of this domain.
    fn commands(&self, domain: &str) -> Arc<dyn Commands>;

    /// The identification of the last packet that was cut into fragments: one for the
    /// host, whatever graphs there are and were.
    fn identification(&self) -> Arc<AtomicU32>;
}

/// The graph of a node.
pub struct NodeGraph {
    /// Modules and edges. [`Graph::init`] is still to be called by whoever runs it.
    pub graph: Graph<Message>,
    names: Names,
}

impl fmt::Debug for NodeGraph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NodeGraph").field(&self.names).finish()
    }
}

impl Config {
    /// Makes the graph, with everything that modules need from `world`.
    ///
    /// # Errors
    ///
    /// Every mistake, with its place. With [`Offline`] a checked configuration has
    /// none.
    pub fn graph(&self, world: &dyn World) -> Result<NodeGraph, Diagnostics> {
        let (root, _) = DeTable::parse_recoverable(&self.text);
        read(root.get_ref(), self, world).map_err(|problems| {
            let list = problems.into_iter().map(Into::into).collect();
            Diagnostics::new(&self.file, &self.text, list)
        })
    }
}

/// An end of a path at an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entrance {
    /// The interface.
    pub iface: String,
    /// What must be true of a frame there, in pcap-filter words; `None` if all come.
    pub filter: Option<String>,
}

impl NodeGraph {
    /// Creates a path of the short form at one of its interfaces, from its handler
    /// down. `attrs` are added to those of its section.
    ///
    /// # Errors
    ///
    /// Which module could not take part, and why.
    pub fn create(
        &self,
        path: &PathConfig,
        iface: &str,
        mut attrs: Attrs,
    ) -> Result<Created<Message>, NotCreated> {
        let module = |modules: &BTreeMap<String, String>, name: &str| {
            let module = modules.get(name).map_or(name, String::as_str);
            module.to_owned()
        };
        attrs.set(names::PATHNAME, module(&self.names.links, iface).as_str());
        attrs.set(FUNCTION, path.function.as_str());
        attrs.set(attr::ON_FAULT, path.on_fault.word());
        attrs.set(attr::BUDGET_NS, path.budget.as_nanos() as u64);
        set_faults(&mut attrs, path.faults);
        set_share(&mut attrs, path.share);
        let first = module(&self.names.handlers, &path.handler);
        let created = self.create_at(&path.name, &first, attrs)?;
        let later = created.path.stages().find(|stage| stage.traits().wakes);
        let Some(stage) = later.map(|stage| stage.name().to_owned()) else {
            return Ok(created);
        };
        let because = format!(
            "the stage `{stage}` does things later, and nobody wakes the stages of a path that ends \
             in a handler"
        );
        let hint = "take its module out of the way to the handler, or have it delay nothing";
        Err(created.refuse(because, hint.to_owned()))
    }

    /// Why the handler of a path of the short form must not run in the kernel tier at
    /// this interface: there it runs straight behind the entry program, which does
    /// Ethernet, IP and UDP and nothing else. With what to do about it.
    #[must_use]
    pub fn user_tier_alone(&self, path: &PathConfig, iface: &str) -> Option<(String, String)> {
        // A path that cannot be created is refused by whoever wants it.
        let created = self.create(path, iface, Attrs::new()).ok()?;
        if created.path.attrs().number(rules::INJECT_BACKWARD) == Some(0) {
            return None;
        }
        let mut below = created.path.stages().skip(1);
        Some(match below.find(|stage| !stage.traits().in_entry) {
            Some(stage) => (
                format!(
                    "the stage `{}` stands between `{iface}` and the handler, and the kernel tier \
                     would leave it out",
                    stage.name()
                ),
                "take its module out of the way, or say `tier = \"user\"`".to_owned(),
            ),
            None => (
                "the handler does not stand on UDP, and in the kernel tier it would get what UDP \
                 carries"
                    .to_owned(),
                "connect it to a module of kind `udp`, or say `tier = \"user\"`".to_owned(),
            ),
        })
    }

    /// Creates a path of the long form.
    ///
    /// # Errors
    ///
    /// Which module could not take part, and why.
    pub fn create_long(&self, path: &LongPath) -> Result<Created<Message>, NotCreated> {
        self.create_at(&path.name, &path.from, path.attrs.clone())
    }

    /// Where messages come to a path: each end of it at an interface, with what its
    /// stages ask of a frame there, and at the first of them (the first stage's, if
    /// that has one) `also`.
    #[must_use]
    pub fn entrances(&self, created: &Created<Message>, also: Option<&Filter>) -> Vec<Entrance> {
        let mut stages: Vec<_> = created.path.stages().collect();
        let mut entrances: Vec<Entrance> = Vec::new();
        for end in created.ends {
            // Behind a relay, the stages are those of its other side.
            let parts = stages.iter().take_while(|stage| {
                let kind = stage.kind();
                kind.is_none_or(|kind| kind.name != forward::KIND.name)
            });
            let parts: Vec<_> = parts.filter_map(|stage| stage.filter()).collect();
            if let Some(iface) = self.names.ifaces.get(&*self.graph.nodes()[end].name) {
                entrances.push(Entrance {
                    iface: iface.clone(),
                    filter: (!parts.is_empty()).then(|| parts.join(" and ")),
                });
            }
            stages.reverse();
        }
        if stages.len() == 1 {
            entrances.truncate(1);
        }
        if let (Some(first), Some(also)) = (entrances.first_mut(), also) {
            first.filter = Some(match &first.filter {
                Some(filter) => format!("{filter} and ({also})"),
                None => also.text.clone(),
            });
        }
        entrances
    }

    /// Whether the text names this module, which is implied otherwise.
    #[must_use]
    pub fn is_written(&self, module: &str) -> bool {
        self.names.written.contains(module)
    }

    /// The handler that this module runs, if it is one that does.
    #[must_use]
    pub fn handler_of(&self, module: &str) -> Option<&str> {
        self.names.handled.get(module).map(String::as_str)
    }

    /// The modules that run this handler.
    pub fn modules_of<'g>(&'g self, handler: &'g str) -> impl Iterator<Item = &'g str> {
        let handled = self.names.handled.iter();
        let of = handled.filter(move |(_, known)| *known == handler);
        of.map(|(module, _)| module.as_str())
    }

    /// Creates a path from this module, with these attributes and nothing else.
    ///
    /// # Errors
    ///
    /// Which module could not take part, and why.
    pub fn create_at(
        &self,
        name: &str,
        module: &str,
        attrs: Attrs,
    ) -> Result<Created<Message>, NotCreated> {
        let (limits, rules, given) = (limits(&attrs), &rules::RULES, attrs.clone());
        let created = self.graph.create(name, module, attrs, limits, rules)?;
        self.useful(read_all(&given, created)?)
    }

    /// Refuses a path that no message can ever come to.
    fn useful(&self, created: Created<Message>) -> Result<Created<Message>, NotCreated> {
        let name = |end: &usize| &*self.graph.nodes()[*end].name;
        let mut ends = created.ends.iter().map(name);
        let takes = ends.any(|module| self.names.ifaces.contains_key(module));
        if takes || created.path.stages().any(|stage| stage.traits().starts) {
            return Ok(created);
        }
        let because = "no message can come to it: it leads to no interface, and nothing in it \
                       starts by itself";
        Err(self.graph.dead_end(&created, because))
    }

    /// The same, with an empty log.
    ///
    /// # Errors
    ///
    /// As [`create_at`](Self::create_at).
    pub fn create_unlogged(
        &self,
        name: &str,
        module: &str,
        attrs: Attrs,
    ) -> Result<Created<Message>, NotCreated> {
        let (limits, rules, given) = (limits(&attrs), &rules::RULES, attrs.clone());
        let graph = &self.graph;
        let created = graph.create_unlogged(name, module, attrs, limits, rules)?;
        self.useful(read_all(&given, created)?)
    }
}

/// Refuses a path that was given an attribute which none of its stages reads.
fn read_all(given: &Attrs, created: Created<Message>) -> Result<Created<Message>, NotCreated> {
    let kinds = created.path.stages().filter_map(Stage::kind);
    let kinds: Vec<_> = kinds.map(|kind| kind.name).collect();
    let Some((name, [because, hint])) = attributes::unread(given, &kinds) else {
        return Ok(created);
    };
    let mut refused = created.refuse(because, hint);
    refused.attribute = Some(name.into());
    Err(refused)
}

/// Reads the graph of a configuration from its parsed text.
pub(super) fn read(
    root: &DeTable<'_>,
    config: &Config,
    world: &dyn World,
) -> Result<NodeGraph, Vec<Problem>> {
    let kinds = NodeKinds {
        world,
        config,
        tapped: RefCell::default(),
        protocols: Protocols {
            interface: |name: &str| world.interface(name),
            identification: world.identification(),
        },
    };
    let mut value = match root.get("module") {
        Some(value) => value.clone(),
        None => Spanned::new(0..0, DeValue::Table(DeTable::new())),
    };
    let mut names = Names::default();
    // Anything but a table is an error, which is said by `Graph::read`.
    if let DeValue::Table(modules) = value.get_mut() {
        let written = modules.keys().map(|name| name.get_ref().to_string());
        let written = written.collect();
        names = Names {
            written,
            ..imply(modules, root, config)
        };
    }
    let mut with_implied = DeTable::new();
    with_implied.insert(Spanned::new(0..0, Cow::Borrowed("module")), value);
    let graph = Graph::read(&with_implied, &kinds)?;
    Ok(NodeGraph { graph, names })
}

/// The names of all modules, written and implied, whatever else is wrong.
pub(super) fn known(root: &DeTable<'_>, config: &Config) -> Vec<String> {
    let written = root.get("module").map(|value| value.get_ref().clone());
    let mut modules = match written {
        Some(DeValue::Table(modules)) => modules,
        _ => DeTable::new(),
    };
    imply(&mut modules, root, config);
    let names = modules.keys();
    names.map(|name| name.get_ref().to_string()).collect()
}

/// Which modules stand for what the other sections name.
#[derive(Debug, Default)]
struct Names {
    /// The module of an interface; of several, the first by name.
    links: BTreeMap<String, String>,
    /// The interface of each such module.
    ifaces: BTreeMap<String, String>,
    /// The module of a handler; of several, the first by name.
    handlers: BTreeMap<String, String>,
    /// The handler of each such module.
    handled: BTreeMap<String, String>,
    /// The modules that the text names.
    written: BTreeSet<String>,
}

/// Adds the sections that nobody had to write. They have the places of those that
/// imply them, so that errors about them point there.
fn imply<'v>(modules: &mut DeTable<'v>, root: &DeTable<'v>, config: &Config) -> Names {
    let mut names = Names::default();
    for (module, iface) in named(modules, "eth", "iface") {
        names
            .links
            .entry(iface.clone())
            .or_insert_with(|| module.clone());
        names.ifaces.insert(module, iface);
    }
    for (module, handler) in named(modules, "handler", "handler") {
        names
            .handlers
            .entry(handler.clone())
            .or_insert_with(|| module.clone());
        names.handled.insert(module, handler);
    }
    let place = |kind: &str, name: &str| {
        let sections = root.get(kind).and_then(|value| value.get_ref().as_table());
        let entry = sections.and_then(|sections| sections.get_key_value(name));
        // What came while the node ran has no place.
        entry.map_or(0..0, |(key, _)| key.span())
    };
    let mut first = None;
    for handler in config.handlers.iter().map(|handler| &handler.name) {
        if !names.handlers.contains_key(handler) {
            let name = format!("handler:{handler}");
            let span = place("handler", handler);
            first.get_or_insert_with(|| span.clone());
            let stand = config.stands.iter().find(|stand| stand.handler == *handler);
            let down = stand.map_or("udp.up", |stand| &*stand.down);
            let mut keys = vec![("kind", "handler"), ("handler", handler), ("down", down)];
            keys.extend(stand.and_then(|stand| Some(("up", stand.up.as_deref()?))));
            add(modules, &name, span, &keys);
            names.handled.insert(name.clone(), handler.clone());
            names.handlers.insert(handler.clone(), name);
        }
    }
    for iface in config.ifaces.iter().map(|iface| &iface.name) {
        if !names.links.contains_key(iface) {
            let name = format!("eth:{iface}");
            let span = place("iface", iface);
            first.get_or_insert_with(|| span.clone());
            let keys = [("kind", "eth"), ("iface", iface), ("up", "ip.down")];
            add(modules, &name, span, &keys);
            names.ifaces.insert(name.clone(), iface.clone());
            names.links.insert(iface.clone(), name);
        }
    }
    for Layered {
        module,
        handler,
        iface,
    } in &config.layered
    {
        let on = |iface| names.links.get(iface).map(|link| format!("{link}.up"));
        let down = iface.as_ref().map_or_else(|| Some("ip.up".to_owned()), on);
        // An interface that is not there is said elsewhere.
        if let Some(down) = down {
            let keys = [("kind", "handler"), ("handler", handler), ("down", &down)];
            add(modules, module, place("handler", handler), &keys);
            names.handled.insert(module.clone(), handler.clone());
        }
    }
    if let Some(span) = first {
        let udp = [("kind", "udp"), ("down", "ip.up")];
        add(modules, "udp", span.clone(), &udp);
        add(modules, "ip", span, &[("kind", "ip")]);
    }
    names
}

/// The module of an interface.
pub(super) fn link(root: &DeTable<'_>, iface: &str) -> String {
    let modules = root.get("module").and_then(|all| all.get_ref().as_table());
    let links = modules.map(|modules| named(modules, "eth", "iface"));
    let mut links = links.into_iter().flatten();
    let written = links.find(|(_, known)| known == iface);
    written.map_or_else(|| format!("eth:{iface}"), |(module, _)| module)
}

/// The modules of a kind, each with what a key of it says.
fn named(modules: &DeTable<'_>, kind: &str, key: &str) -> Vec<(String, String)> {
    let sections = modules.iter().filter_map(|(name, section)| {
        let text = |key| section.get_ref().as_table()?.get(key)?.get_ref().as_str();
        let value = text(key).filter(|_| text("kind") == Some(kind))?;
        Some((name.get_ref().to_string(), value.to_owned()))
    });
    sections.collect()
}

/// Adds a section, unless there is one of this name.
fn add(modules: &mut DeTable<'_>, name: &str, span: Range<usize>, keys: &[(&'static str, &str)]) {
    if modules.contains_key(name) {
        return;
    }
    let mut section = DeTable::new();
    for (key, value) in keys {
        let value = DeValue::String(Cow::Owned((*value).to_owned()));
        let key = Spanned::new(span.clone(), Cow::Borrowed(*key));
        section.insert(key, Spanned::new(span.clone(), value));
    }
    let key = Spanned::new(span.clone(), Cow::Owned(name.to_owned()));
    modules.insert(key, Spanned::new(span, DeValue::Table(section)));
}

impl From<Problem> for Diagnostic {
    fn from(problem: Problem) -> Self {
        let Problem {
            code,
            message,
            span,
            label,
            also,
            hint,
        } = problem;
        Self {
            code,
            message,
            span,
            label,
            also,
            hint,
        }
    }
}

/// Kinds that need the world, or a compiler.
static OWN: [&Kind; 4] = [&handler::KIND, &pipe::KIND, &tap::KIND, &shell::KIND];

/// All kinds that a node knows.
struct NodeKinds<'w, F> {
    world: &'w dyn World,
    config: &'w Config,
    /// Files that taps write, and which.
    tapped: RefCell<BTreeMap<PathBuf, String>>,
    protocols: Protocols<F>,
}

impl<F: Fn(&str) -> Result<Interface, String>> Kinds<Message> for NodeKinds<'_, F> {
    fn find(&self, word: &str) -> Option<&'static Kind> {
        let own = OWN.into_iter().find(|kind| kind.name == word);
        own.or_else(|| self.protocols.find(word))
    }

    fn words(&self) -> Vec<&'static str> {
        let own = OWN.into_iter().map(|kind| kind.name);
        own.chain(self.protocols.words()).collect()
    }

    fn make(
        &self,
        kind: &'static Kind,
        name: &str,
        params: &mut Params<'_>,
    ) -> Result<Box<dyn Module<Message>>, Vec<Problem>> {
        let module: Option<Box<dyn Module<Message>>> = match kind.name {
            "handler" => self.handler(name, params).map(|made| Box::new(made) as _),
            "pipe" => Pipe::read(name.into(), params, &Compiler).map(|pipe| Box::new(pipe) as _),
            "tap" => Tap::read(name.into(), params, |target| self.watch(name, target))
                .map(|tap| Box::new(tap) as _),
            "shell" => Shell::read(name.into(), params, |domain| self.commands(domain))
                .map(|shell| Box::new(shell) as _),
            _ => return self.protocols.make(kind, name, params),
        };
        params.done(module)
    }
}

impl<F> NodeKinds<'_, F> {
    fn handler(&self, name: &str, params: &mut Params<'_>) -> Option<Handler> {
        let handler: String = params.required("handler")?;
        let Some(instance) = self.world.handler(&handler) else {
            let message = format!("there is no `[handler.{handler}]`");
            params.refuse("handler", &message, "add the section, with the key `file`");
            return None;
        };
        Some(Handler {
            name: name.into(),
            instance,
        })
    }
}

impl<F> NodeKinds<'_, F> {
    /// A tap's file: beside the configuration, as all files that it names are.
    fn watch(&self, tap: &str, target: &Target) -> Result<Arc<dyn Watch>, (String, String)> {
        let beside = self.config.file.parent().unwrap_or_else(|| FsPath::new(""));
        let file = beside.join(&target.file);
        let other = self
            .tapped
            .borrow_mut()
            .insert(file.clone(), tap.to_owned());
        if let Some(other) = other {
            let message = format!("the tap `{other}` writes `{}` already", target.file);
            return Err((message, "give each tap a file of its own".to_owned()));
        }
        self.world.watch(tap, &file, target).map_err(|because| {
            let message = format!("cannot write `{}`: {because}", file.display());
            (message, "name a file that the node may write".to_owned())
        })
    }

    fn commands(&self, domain: &str) -> Result<Arc<dyn Commands>, (String, String)> {
        self.config.domain(domain)?;
        Ok(self.world.commands(domain))
    }
}

/// The world of a configuration that nothing runs: names alone. Interfaces have
/// Ethernet's usual MTU, 1500 bytes, and no address.
pub struct Offline<'c>(pub &'c Config);

impl World for Offline<'_> {
    fn interface(&self, name: &str) -> Result<Interface, String> {
        let found = self.0.ifaces.iter().position(|iface| iface.name == name);
        let number = found.ok_or_else(|| format!("there is no `[iface.{name}]`"))?;
        Ok(Interface {
            number: number as u32,
            mac: [0; 6],
            mtu: 1500,
            xdp: self.0.ifaces[number].mode != XdpMode::Packet,
            down: Arc::default(),
        })
    }

    fn handler(&self, name: &str) -> Option<Arc<dyn handler::Instance>> {
        self.0.handler(name).map(|_| Arc::new(Nothing) as _)
    }

    fn watch(&self, _: &str, _: &FsPath, _: &Target) -> Result<Arc<dyn Watch>, String> {
        Ok(Arc::new(Nothing))
    }

    fn commands(&self, _domain: &str) -> Arc<dyn Commands> {
        Arc::new(Nothing)
    }

    fn identification(&self) -> Arc<AtomicU32> {
        Arc::default()
    }
}

/// Nothing that runs.
struct Nothing;

impl handler::Instance for Nothing {
    fn bind(&self, _function: &str, _attrs: &Attrs) -> Result<Box<dyn Activate>, Refused> {
        Ok(Box::new(Self))
    }
}

impl Activate for Nothing {
    fn activate(&mut self, _message: &mut Message) -> Act {
        Act::Pass
    }
}

impl Watch for Nothing {
    fn see(&self, _seen: &Seen<'_>) {}
}

impl Commands for Nothing {
    fn begin(&self, _from: SocketAddr, _request: Request) -> Receiver<Outcome> {
        let (outcome, receiver) = channel();
        // The other end is here.
        let _ = outcome.send(Err("nothing runs here".to_owned()));
        receiver
    }
}
