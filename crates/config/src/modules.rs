//! The graph that a configuration describes: its modules, written and
//! [implied](super::implied), of the kinds that a node knows.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path as FsPath, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use ashway_abi::trusted;
use ashway_demux::Filter;
use ashway_modules::attributes;
use ashway_modules::handler::{self, FUNCTION, Handler};
use ashway_modules::kinds::{Interface, Protocols};
use ashway_modules::pipe::{self, Pipe};
use ashway_modules::shell::{self, Commands, Shell};
use ashway_modules::tap::{self, Tap, Target, Watch};
use ashway_modules::{Message, forward, rules};
use ashway_path::attrs::{Attrs, names};
use ashway_path::create::{Created, NotCreated};
use ashway_path::graph::Graph;
use ashway_path::module::{Kind, Module};
use ashway_path::path::Limits;
use ashway_path::problem::Problem;
use ashway_path::read::{Kinds, Params};
use ashway_path::stage::Stage;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::attributes::{MOST_QUEUED, attr, set_faults, set_limits, set_order, set_share};
use crate::bound::{Asked, refuse_unused_order};
use crate::bug::{self, Bug};
use crate::diagnostics::{Diagnostic, Diagnostics};
use crate::entrances::Entrance;
use crate::implied::{Names, imply};
use crate::pipes::Compiler;
use crate::types::{Config, LongPath, PathConfig};

/// A path's memory grant: enough for what `fragment` puts together by default, and
/// the path itself.
pub const GRANT_BYTES: usize = 512 << 10;

/// Messages that wait for a path in each direction, if it does not say: as many as a ring
/// holds, so that a burst that fits the ring fits the path.
const QUEUE: u32 = trusted::RING_SLOTS as u32;

/// Messages that wait to be transmitted for a path in each direction. The worker transmits
/// between two rounds of turns, and a path's turn ends when its queue is half full: the other
/// half has room for the fragments of the longest datagram over an MTU of 576 bytes and more.
const OUTPUT: u32 = 256;

/// What the stages of most paths ask of a frame.
const USUAL_DEMANDS: usize = 8;

/// What a path of a node may use. Output queues are there where a path ends in a link;
/// elsewhere a rule takes them away.
fn limits(attrs: &Attrs) -> Limits {
    let granted = attrs.number(attr::MEMORY_BYTES);
    let queue = attrs.number(attr::QUEUE).map_or(QUEUE, |messages| {
        u32::try_from(messages).map_or(MOST_QUEUED, |messages| messages.clamp(1, MOST_QUEUED))
    });
    Limits {
        queue: [queue, queue, OUTPUT, OUTPUT],
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

    /// Whether it is the one that modules of the graph before were made of.
    fn keeps_handler(&self, _name: &str) -> bool {
        true
    }

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
    /// The folder that the files of its modules are beside.
    beside: PathBuf,
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
    /// Every mistake, with its place. With [`Offline`](super::Offline) a checked configuration has
    /// none.
    pub fn graph(&self, world: &dyn World) -> Result<NodeGraph, Diagnostics> {
        self.graph_beside(world, None)
    }

    /// The graph that is to follow `before`, initialised: modules of which the text says
    /// the same stay, with what they know.
    ///
    /// # Errors
    ///
    /// Every mistake, with its place; nothing has changed.
    pub fn graph_behind(
        &self,
        before: &NodeGraph,
        world: &dyn World,
    ) -> Result<NodeGraph, Diagnostics> {
        self.graph_beside(world, Some(before).filter(|_| !bug::is(Bug::GraphRebuilt)))
    }

    /// Initialises the graph that this configuration describes.
    ///
    /// # Errors
    ///
    /// Every module that cannot work here, with the place of its section. Others are
    /// initialised: drop the graph.
    pub fn init(&self, graph: &mut NodeGraph) -> Result<(), Diagnostics> {
        let (root, _) = DeTable::parse_recoverable(&self.text);
        graph.graph.init_of(root.get_ref()).map_err(|problems| {
            let list = problems.into_iter().map(Into::into).collect();
            Diagnostics::new(&self.file, &self.text, list)
        })
    }

    fn graph_beside(
        &self,
        world: &dyn World,
        before: Option<&NodeGraph>,
    ) -> Result<NodeGraph, Diagnostics> {
        let (root, _) = DeTable::parse_recoverable(&self.text);
        read(root.get_ref(), self, world, before).map_err(|problems| {
            let list = problems.into_iter().map(Into::into).collect();
            Diagnostics::new(&self.file, &self.text, list)
        })
    }
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
        let link = self.names.links.get(iface).map_or(iface, String::as_str);
        attrs.set(names::PATHNAME, link);
        attrs.set(FUNCTION, path.function.as_str());
        attrs.set(attr::ON_FAULT, path.on_fault.word());
        attrs.set(attr::BUDGET_NS, path.budget.as_nanos() as u64);
        set_faults(&mut attrs, path.faults);
        set_share(&mut attrs, path.share);
        set_order(&mut attrs, path.order);
        set_limits(&mut attrs, path);
        self.create_at(&path.name, self.module_above_udp(&path.handler), attrs)
    }

    /// The module that runs this handler above UDP.
    #[must_use]
    pub fn module_above_udp<'g>(&'g self, handler: &'g str) -> &'g str {
        self.names
            .handlers
            .get(handler)
            .map_or(handler, String::as_str)
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
        let created = self.create_at(&path.name, &path.from, path.attrs.clone())?;
        refuse_unused_order(created, || self.bound(&Asked::long(path)).is_ok())
    }

    /// Where messages come to a path: each end of it at an interface, with what its
    /// stages ask of a frame there, and at the first of them (the first stage's, if
    /// that has one) `also`.
    #[must_use]
    pub fn entrances(&self, created: &Created<Message>, also: Option<&Filter>) -> Vec<Entrance> {
        let mut stages: Vec<_> = created.path.stages().collect();
        let mut entrances: Vec<Entrance> = Vec::new();
        for end in created.ends {
            if let Some(iface) = self.names.ifaces.get(&*self.graph.nodes()[end].name) {
                // Behind a relay, the stages are those of its other side.
                let parts = stages.iter().take_while(|stage| {
                    let kind = stage.kind();
                    kind.is_none_or(|kind| kind.name != forward::KIND.name)
                });
                let mut demands = Vec::with_capacity(USUAL_DEMANDS);
                parts.for_each(|stage| stage.demands(&mut demands));
                entrances.push(Entrance {
                    iface: iface.clone(),
                    demands,
                    also: None,
                });
            }
            stages.reverse();
        }
        if stages.len() == 1 {
            entrances.truncate(1);
        }
        if let Some(first) = entrances.first_mut() {
            first.also = also.map(|also| also.text.clone());
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

    /// For whom this module acts, if it is a shell.
    #[must_use]
    pub fn shell_of(&self, module: &str) -> Option<&str> {
        self.names.shells.get(module).map(String::as_str)
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
        let (limits, rules) = (limits(&attrs), &rules::RULES);
        let created = self.graph.create(name, module, attrs, limits, rules)?;
        self.useful(read_all(created)?)
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
        let (limits, rules) = (limits(&attrs), &rules::RULES);
        let graph = &self.graph;
        let created = graph.create_unlogged(name, module, attrs, limits, rules)?;
        self.useful(read_all(created)?)
    }
}

/// Refuses a path that was given an attribute which none of its stages reads. No module
/// sets one of those itself.
fn read_all(created: Created<Message>) -> Result<Created<Message>, NotCreated> {
    let path = &created.path;
    let has_stage = |kind: &str| {
        let mut kinds = path.stages().filter_map(Stage::kind);
        kinds.any(|known| known.name == kind)
    };
    let Some((name, [because, hint])) = attributes::unread(path.attrs(), has_stage) else {
        return Ok(created);
    };
    let mut refused = created.refuse(because, hint);
    refused.attribute = Some(name.into());
    Err(refused)
}

/// Reads the graph of a configuration from its parsed text, as the one that follows
/// `before`, if that is given.
pub(super) fn read(
    root: &DeTable<'_>,
    config: &Config,
    world: &dyn World,
    before: Option<&NodeGraph>,
) -> Result<NodeGraph, Vec<Problem>> {
    let file = std::path::absolute(&config.file).unwrap_or_else(|_| config.file.clone());
    let beside = file.parent().unwrap_or(&file).to_owned();
    let kinds = NodeKinds {
        world,
        config,
        moved: before.is_some_and(|before| before.beside != beside),
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
    let graph = match before {
        Some(before) => before.graph.reread(&with_implied, &kinds)?,
        None => Graph::read(&with_implied, &kinds)?,
    };
    Ok(NodeGraph {
        graph,
        names,
        beside,
    })
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
    /// Whether the files of modules were elsewhere before.
    moved: bool,
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

    fn keeps(&self, kind: &'static Kind, params: &mut Params<'_>) -> bool {
        match kind.name {
            "handler" => {
                let handler: Option<String> = params.optional("handler");
                handler.is_none_or(|handler| self.world.keeps_handler(&handler))
            }
            "tap" => !self.moved,
            _ => true,
        }
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
            (message, tap::HINT.to_owned())
        })
    }

    fn commands(&self, domain: &str) -> Result<Arc<dyn Commands>, (String, String)> {
        self.config.domain(domain)?;
        Ok(self.world.commands(domain))
    }
}
