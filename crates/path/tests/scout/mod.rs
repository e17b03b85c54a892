//! Scout's router graph for video (figure 9), as modules for tests: each layer
//! puts a header of its own in front of a message that goes out, and takes it
//! off one that comes in.

#![allow(dead_code, reason = "each test file uses a part")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::any::Any;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};
use ashway_abi::Count;
use ashway_path::attrs::{Attrs, names};
use ashway_path::demand::Demand;
use ashway_path::graph::Graph;
use ashway_path::module::{Kind, Module, Next, Param, Refused, StageAndNext};
use ashway_path::problem::Problem;
use ashway_path::read::{Kinds, Params};
use ashway_path::service::{Interface, Service};
use ashway_path::stage::{Cx, Direction, Stage, Step, Traits};
use toml::de::DeTable;

macro_rules! interfaces {
    ($($id:ident $name:literal $parent:expr;)*) => {
        $(pub(crate) static $id: Interface = Interface { name: $name, parent: $parent };)*
    };
}

interfaces! {
    NET "net" None;
    LINK "link" Some(&NET);
    NETWORK "network" Some(&NET);
    TRANSPORT "transport" Some(&NET);
    SCREEN "screen" None;
    PICTURES "pictures" None;
    NAMES "names" None;
    ASKER "asker" None;
}

const fn service(
    name: &'static str,
    provides: &'static Interface,
    requires: &'static Interface,
    after: bool,
) -> Service {
    Service {
        name,
        provides,
        requires,
        after,
    }
}

const PARAMS: &[Param] = &[
    Param {
        name: "fail",
        about: "the phase that fails: init, stages, establish",
    },
    Param {
        name: "memory",
        about: "bytes that a stage asks for, default 0",
    },
    Param {
        name: "routes",
        about: "for ip: `network interface`, e.g. \"10.0.0. eth0\"",
    },
    Param {
        name: "goes",
        about: "where a path goes on: `SERVICE` or `SERVICE MODULE`",
    },
];

macro_rules! kinds {
    ($($id:ident $name:literal [$($service:expr),*];)*) => {
        $(static $id: Kind = Kind {
            name: $name,
            about: concat!("the `", $name, "` of the tests"),
            services: &[$($service),*],
            params: PARAMS,
        };)*
        const KINDS: &[&Kind] = &[$(&$id),*];
    };
}

kinds! {
    ETH "eth" [service("up", &LINK, &NET, false)];
    ARP "arp" [service("resolver", &NAMES, &ASKER, false), service("down", &NET, &LINK, true)];
    IP "ip" [service("up", &NETWORK, &NET, false), service("down", &NET, &LINK, true),
        service("res", &ASKER, &NAMES, true)];
    UDP "udp" [service("up", &TRANSPORT, &NET, false), service("down", &NET, &NETWORK, true)];
    MFLOW "mflow" [service("up", &NET, &NET, false), service("down", &NET, &TRANSPORT, true)];
    DECODER "decoder" [service("up", &PICTURES, &SCREEN, false), service("down", &NET, &NET, true)];
    DISPLAY "display" [service("down", &SCREEN, &PICTURES, true)];
    SHELL "shell" [service("down", &NET, &TRANSPORT, true)];
    // Data may go in a circle through it; it has both sorts of services.
    TUNNEL "tunnel" [service("up", &LINK, &NET, false), service("down", &NET, &NET, false),
        service("first", &NET, &NET, true)];
}

/// Figure 9, with a second decoder, a second interface and ARP, so that there
/// is something to decide.
pub(crate) const FIGURE_9: &str = r#"
[module.display]
kind = "display"
down = ["mpeg.up", "mjpeg.up"]
[module.mpeg]
kind = "decoder"
down = "mflow.up"
[module.mjpeg]
kind = "decoder"
down = "mflow.up"
[module.mflow]
kind = "mflow"
down = "udp.up"
[module.shell]
kind = "shell"
down = "udp.up"
[module.udp]
kind = "udp"
down = "ip.up"
[module.ip]
kind = "ip"
down = ["eth0.up", "eth1.up"]
res  = "arp.resolver"
routes = ["10.0.0. eth0", "10.0.1. eth1"]
[module.arp]
kind = "arp"
down = ["eth0.up", "eth1.up"]
[module.eth0]
kind = "eth"
up = ["ip.down"]   # the same edge from the other end
[module.eth1]
kind = "eth"
"#;

/// How many are alive.
#[derive(Debug, Default)]
pub(crate) struct Alive(AtomicI64);

impl Alive {
    fn add(&self, more: i64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Stages and modules of one test, counted from birth to death.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) modules: Alive,
    pub(crate) stages: Alive,
    pub(crate) established: Alive,
    /// Everything that happened to modules and stages, by name.
    pub(crate) events: Mutex<Vec<String>>,
}

impl Tally {
    pub(crate) fn note(&self, what: &str, name: &str) {
        self.events.lock().unwrap().push(format!("{what} {name}"));
    }

    pub(crate) fn events(&self) -> Vec<String> {
        std::mem::take(&mut self.events.lock().unwrap())
    }

    /// Stages alive and established.
    pub(crate) fn alive(&self) -> (i64, i64) {
        (self.stages.get(), self.established.get())
    }
}

/// The kinds above; their modules count on `0`.
#[derive(Default)]
pub(crate) struct Scout(pub(crate) Arc<Tally>);

impl Kinds<Vec<u8>> for Scout {
    fn find(&self, word: &str) -> Option<&'static Kind> {
        KINDS.iter().find(|kind| kind.name == word).copied()
    }

    fn words(&self) -> Vec<&'static str> {
        KINDS.iter().map(|kind| kind.name).collect()
    }

    fn make(
        &self,
        kind: &'static Kind,
        name: &str,
        params: &mut Params<'_>,
    ) -> Result<Box<dyn Module<Vec<u8>>>, Vec<Problem>> {
        let fail: Option<String> = params.optional("fail");
        if fail
            .as_deref()
            .is_some_and(|fail| !matches!(fail, "init" | "stages" | "establish"))
        {
            params.refuse(
                "fail",
                "`fail` names no phase",
                "write \"init\", \"stages\" or \"establish\"",
            );
        }
        let memory: Option<u64> = params.optional("memory");
        let routes = params.list::<String>("routes");
        let goes: Option<String> = params.optional("goes");
        // One kind of module forgets to look whether something was wrong.
        if kind.name != "shell" {
            params.done(Some(()))?;
        }
        Ok(Box::new(Layer {
            fail,
            memory: memory.unwrap_or(0) as usize,
            routes,
            goes,
            ..Layer::new(kind, name, &self.0)
        }))
    }
}

impl Scout {
    /// A module without parameters.
    pub(crate) fn layer(&self, kind: &str, name: &str) -> Box<dyn Module<Vec<u8>>> {
        Box::new(Layer::new(self.find(kind).unwrap(), name, &self.0))
    }
}

struct Layer {
    kind: &'static Kind,
    name: String,
    fail: Option<String>,
    memory: usize,
    routes: Vec<String>,
    goes: Option<String>,
    counted: Counted,
}

/// A module that is alive.
struct Counted(Arc<Tally>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.modules.add(-1);
    }
}

impl Layer {
    fn new(kind: &'static Kind, name: &str, tally: &Arc<Tally>) -> Self {
        tally.modules.add(1);
        Self {
            kind,
            name: name.to_owned(),
            fail: None,
            memory: 0,
            routes: Vec::new(),
            goes: None,
            counted: Counted(Arc::clone(tally)),
        }
    }

    fn fails(&self, phase: &str) -> bool {
        self.fail.as_deref() == Some(phase)
    }

    fn by(&self, service: &str) -> usize {
        // A module may be mistaken about itself.
        self.kind.service(service).unwrap_or(usize::MAX)
    }

    /// Where the path goes on: a decision of each module's own.
    fn next(&self, attrs: &mut Attrs) -> Result<Next, Refused> {
        if let Some(goes) = &self.goes {
            return Ok(match goes.split_once(' ') {
                None => Next::Through(self.by(goes)),
                Some((service, module)) => Next::To(self.by(service), module.into()),
            });
        }
        let remote = attrs.endpoint(names::REMOTE);
        Ok(match self.kind.name {
            "mflow" => {
                attrs.set(names::PROTOCOL, 21);
                Next::Through(self.by("down"))
            }
            "udp" => {
                if remote.is_some_and(|remote| remote.port() == 0) {
                    return Err(Refused {
                        because: "the far end has port 0, which nobody can answer from".to_owned(),
                        hint: "give `remote` with a port, such as 10.0.0.7:5004".to_owned(),
                    });
                }
                attrs.set(names::PROTOCOL, 17);
                Next::Through(self.by("down"))
            }
            "ip" => {
                attrs.set(names::PROTOCOL, 0x800);
                // Only a host on a network that we are on keeps its interface
                // (Scout §2.2).
                let route = remote.and_then(|remote| {
                    let address = remote.ip().to_string();
                    let mut routes = self.routes.iter().filter_map(|route| route.split_once(' '));
                    routes.find(|(network, _)| address.starts_with(network))
                });
                match route {
                    Some((_, iface)) => Next::To(self.by("down"), iface.into()),
                    None => Next::Undecided,
                }
            }
            "eth" => {
                attrs.remove(names::PROTOCOL);
                attrs.set(names::IFACE, self.name.as_str());
                Next::End
            }
            _ => Next::Through(self.by("down")),
        })
    }
}

impl Module<Vec<u8>> for Layer {
    fn kind(&self) -> &'static Kind {
        self.kind
    }

    fn init(&mut self) -> Result<(), Refused> {
        self.counted.0.note("init", &self.name);
        if self.fails("init") {
            return Err(Refused {
                because: "no such device".to_owned(),
                hint: "plug it in".to_owned(),
            });
        }
        Ok(())
    }

    fn stage(
        &self,
        entered: Option<usize>,
        attrs: &mut Attrs,
    ) -> Result<StageAndNext<Vec<u8>>, Refused> {
        if self.fails("stages") {
            return Err(Refused {
                because: "told to refuse".to_owned(),
                hint: "take `fail` out".to_owned(),
            });
        }
        let by = entered.map_or("-", |service| self.kind.services[service].name);
        self.counted.0.note("stage", &format!("{}:{by}", self.name));
        let next = self.next(attrs)?;
        let mut stage = Header::new(&self.name, &self.counted.0);
        stage.fails = self.fails("establish");
        stage.memory = self.memory;
        stage.demand = match self.kind.name {
            "ip" => attrs
                .endpoint(names::REMOTE)
                .map(|it| Demand::of("src host", it.ip())),
            "udp" => attrs
                .endpoint(names::REMOTE)
                .map(|it| Demand::of("udp src port", u64::from(it.port()))),
            _ => None,
        };
        Ok(StageAndNext {
            stage: Box::new(stage),
            next,
        })
    }
}

/// A stage that puts its name in front of what goes out (forward, for a path
/// that was created from the top), and takes it off what comes in.
pub(crate) struct Header {
    pub(crate) name: String,
    pub(crate) fails: bool,
    pub(crate) memory: usize,
    pub(crate) demand: Option<Demand>,
    pub(crate) traits: Traits,
    established: bool,
    tally: Arc<Tally>,
}

impl Header {
    pub(crate) fn new(name: &str, tally: &Arc<Tally>) -> Self {
        tally.stages.add(1);
        Self {
            name: name.to_owned(),
            fails: false,
            memory: 0,
            demand: None,
            traits: Traits::default(),
            established: false,
            tally: Arc::clone(tally),
        }
    }
}

impl Drop for Header {
    fn drop(&mut self) {
        assert!(!self.established, "`{}` dropped without destroy", self.name);
        self.tally.stages.add(-1);
    }
}

impl Stage<Vec<u8>> for Header {
    fn name(&self) -> &str {
        &self.name
    }

    fn traits(&self) -> Traits {
        self.traits
    }

    fn demands(&self, all: &mut Vec<Demand>) {
        all.extend(self.demand.clone());
    }

    fn memory_bytes(&self) -> usize {
        self.memory
    }

    fn establish(&mut self, attrs: &mut Attrs) -> Result<(), String> {
        if self.fails {
            return Err("the port is taken".to_owned());
        }
        assert!(!self.established, "`{}` established twice", self.name);
        self.established = true;
        self.tally.established.add(1);
        self.tally.note("establish", &self.name);
        attrs.set("last", self.name.as_str());
        Ok(())
    }

    fn destroy(&mut self) {
        assert!(self.established, "`{}` destroyed twice", self.name);
        self.established = false;
        self.tally.established.add(-1);
        self.tally.note("destroy", &self.name);
    }

    fn take(
        &mut self,
        message: Vec<u8>,
        direction: Direction,
        _cx: &mut Cx<'_, Vec<u8>>,
    ) -> Step<Vec<u8>> {
        if self.traits.idle {
            return Step::On(message);
        }
        let header = format!("{}|", self.name);
        match direction {
            Direction::Forward => Step::On([header.as_bytes(), &message].concat()),
            Direction::Backward => match message.strip_prefix(header.as_bytes()) {
                Some(rest) => Step::On(rest.to_vec()),
                None => Step::End(message, Count::DroppedBadLength),
            },
        }
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

/// Reads a graph, without regard to syntax errors.
pub(crate) fn read(text: &str, kinds: &Scout) -> Result<Graph<Vec<u8>>, Vec<Problem>> {
    let (root, _) = DeTable::parse_recoverable(text);
    Graph::read(root.get_ref(), kinds)
}

/// Problems as the daemon shows them.
pub(crate) fn render(text: &str, problems: &[Problem]) -> String {
    let mut sorted: Vec<_> = problems.iter().collect();
    sorted.sort_by_key(|problem| problem.span.as_ref().map_or(0, |span| span.start));
    let renderer = Renderer::plain().decor_style(DecorStyle::Ascii);
    let mut out = String::new();
    for problem in sorted {
        let title = Level::ERROR.primary_title(problem.message.as_str());
        let mut group = match &problem.span {
            Some(span) => {
                let mut primary = AnnotationKind::Primary.span(span.clone());
                if let Some(label) = &problem.label {
                    primary = primary.label(label.as_str());
                }
                let mut snippet = Snippet::source(text).path("graph.toml").annotation(primary);
                if let Some((span, label)) = &problem.also {
                    let also = AnnotationKind::Context.span(span.clone());
                    snippet = snippet.annotation(also.label(label.as_str()));
                }
                title.element(snippet)
            }
            None => Group::with_title(title),
        };
        if let Some(hint) = &problem.hint {
            group = group.element(Level::HELP.message(hint.as_str()));
        }
        out.push_str(&renderer.render(&[group]));
        out.push_str("\n\n");
    }
    out
}
