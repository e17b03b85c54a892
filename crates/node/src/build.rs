//! Bringing a node up, in the order in which things need each other.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::mpsc::channel;

use ashway_abi::{context, count};
use ashway_check::bpf::Hook;
use ashway_demux::Replica;
use ashway_handler::Engine;
use ashway_kernel::maps::possible_cpus;
use ashway_kernel::neighbour::Tables;
use ashway_kernel::probe::{Feature, Probe};
use ashway_kernel::{Iface, Map, MapSpec, News, iface, shared};
use ashway_modules::mac::Mac;
use ashway_path::places::PathId;

use super::binding::without_programs;
use super::load::no_cpus;
use super::looks::Deaths;
use super::neighbours::Neighbours;
use super::node_path::BoundPath;
use super::operation::Report;
use super::operations::Operations;
use super::own::{self, Made};
use super::path_registry::PathRegistry;
use super::take::{iface_facts, needs_frags, say_of_lo};
use super::taken::{self, Common};
use super::world::{self, Link, NodeServices};
use super::{Node, NodeIface, Owners, RunError, dispatch, patterns, say};
use crate::compile::CompileThread;
use crate::request::Refusal;
use crate::rung::{Choice, Means, Rung, choose_beside, cost};
use ashway_config::{Attach, Config, HandlerConfig, IfaceConfig, Instances, NodeGraph, Tier};
use ashway_worker::bell::Bell;
use ashway_worker::counters::UserRows;
use ashway_worker::faults::Faults;
use ashway_worker::handle::HandlerHandle;
use ashway_worker::iface_map::IfaceMap;
use ashway_worker::instance::Instance;
use ashway_worker::paths::Paths;
use ashway_worker::plan::{self, HandlerId, Plan};
use ashway_worker::programs::NodeMaps;
use ashway_worker::run_instance::{HandlerPath, RunInstance};
use ashway_worker::version::Version;
use ashway_worker::witness::Witnesses;
use ashway_worker::worker::{Awake, Work, Worker};

/// Brings everything up, up to promotions, which have begun; on any error what
/// was made is dropped again.
///
/// # Errors
///
/// [`RunError`]: what stands in the way.
///
/// # Panics
///
/// If the configuration was not checked.
pub fn build(config: &Config) -> Result<(Node, Engine), RunError> {
    let probe = Probe::run();
    // What matches patterns is taken when the node is there.
    let config = &config.clone().resolve([]);
    if !config.patterns.is_empty() {
        patterns::raise_descriptors();
    }
    let Rungs {
        means,
        hook,
        facts,
        made,
        may_get_programs,
    } = take_as(config, &probe)?;
    let cpus = possible_cpus().map_err(|source| RunError::System {
        doing: "count the CPUs",
        source,
    })?;
    let has_programs =
        may_get_programs || facts.iter().any(|(_, choice)| choice.rung.has_programs());
    let config = &on_cpus(config, cpus as u32, &facts, has_programs)?;
    let mut paths = PathRegistry::default();
    let of_ifaces = facts
        .iter()
        .zip(&config.ifaces)
        .map(|((found, _), asked)| iface_facts(found, asked.pattern.is_some()));
    let plan = plan::draw(config, &of_ifaces.enumerate().collect(), paths.ids());
    let arena = probe.has(Feature::ArenaProgram);
    let frags = arena
        && facts
            .iter()
            .any(|(found, choice)| needs_frags(found, choice.rung));
    let maps = has_programs
        .then(|| node_maps(&plan, hook, frags))
        .transpose()?;
    let maps = maps.map(Arc::new);
    let engine = Engine::new().map_err(RunError::Engine)?;
    let rows = Arc::new(UserRows::new(plan.all_rows()));
    let system = |doing| move |source| RunError::System { doing, source };
    let bell = Arc::new(Bell::new().map_err(system("make an event descriptor"))?);
    let faults = Arc::new(Faults::new(Arc::clone(&bell)));
    let handlers = make_instances(
        config,
        &plan,
        &engine,
        maps.as_deref(),
        arena,
        &rows,
        &faults,
    )?;
    let links = facts.iter().enumerate().map(|(number, (found, choice))| {
        let link = Link::new(number, found, choice.rung);
        let link = match config.ifaces[number].own.mac {
            None if choice.rung == Rung::Pcap => link.for_anybody(),
            _ => link,
        };
        (number, link)
    });
    let links: IfaceMap<Link> = links.collect();
    let bindable: Vec<HandlerHandle> = handlers.values().cloned().collect();
    let served = NodeServices::new().map_err(system("make an event descriptor"))?;
    let graph = world::graph(config, &links, &bindable, &served)?;
    for (id, config) in plan.paths.keys().zip(&config.paths) {
        let from = graph.module_above_udp(&config.handler);
        paths.insert_bound(*id, from, BoundPath::new(Arc::clone(config), None), None);
    }
    let to_bind = make_paths(&plan, &graph, &paths, &handlers)?;

    for (found, choice) in &facts {
        say(&format!("{}: {}", found.name, cost(found, choice.rung)));
        if let Some(because) = &choice.because {
            say(&format!("  because {because}"));
        }
        if choice.rung == Rung::Tap {
            let mac = Mac::from(found.mac);
            say(&format!("  the node's hardware address there is {mac}"));
        }
    }
    let passes_by_lo = |rung| matches!(rung, Rung::Tcx | Rung::Packet);
    if facts.iter().any(|(_, choice)| passes_by_lo(choice.rung)) {
        say_of_lo();
    }
    let mut ifaces = IfaceMap::default();
    let mut xdp_ports = IfaceMap::default();
    let mut frame_ports = Vec::new();
    let mut drop_rules = IfaceMap::default();
    for (number, ((found, choice), made)) in facts.iter().zip(made).enumerate() {
        if choice.rung.has_programs() {
            let maps = maps.as_deref().expect("an interface with XDP has maps");
            let common = Common {
                asked: &config.ifaces[number],
                plan: &plan,
                paths: &paths,
                maps,
                handlers: &handlers,
                arena,
            };
            let (iface, port) = taken::with_programs(&common, number, found, choice.clone())?;
            ifaces.insert(number, iface);
            xdp_ports.insert(number, port);
        } else {
            let (link, choice) = (&links[number], choice.clone());
            let asked = &config.ifaces[number];
            let (iface, port, rule) =
                taken::without_programs(&plan, &paths, link, found, asked, choice, made, &bell)?;
            ifaces.insert(number, iface);
            frame_ports.push(port);
            if let Some(rule) = rule {
                drop_rules.insert(number, rule);
            }
        }
    }
    let tables = ifaces.iter();
    let tables = tables.map(|(at, iface): (_, &NodeIface)| (at, Replica::of(&iface.table)));
    let (orders, ordered) = channel();
    let held = Arc::new(AtomicU32::new(0));
    let runs = handlers.iter();
    let runs = runs.map(|(id, handler)| RunInstance::new(*id, handler.clone()));
    let mut module_paths = Paths::new(
        tables.collect(),
        plan.module_row,
        ordered,
        Arc::clone(&held),
    );
    if let Some(maps) = &maps {
        let witnesses = Witnesses::start(maps.cpus as usize).map_err(system("start a thread"))?;
        module_paths.set_witnesses(witnesses);
    }
    let mut work = Work {
        wake: maps.as_ref().map(|maps| Arc::clone(&maps.wake)),
        instances: runs.collect(),
        awake: Awake::default(),
        leaving: false,
        frame_queue: None,
        paths: module_paths,
        xdp_ports,
        frame_ports,
        rows: Arc::clone(&rows),
    };
    for path in to_bind {
        work.bind(path);
    }
    let worker = Worker::start(work, orders, Arc::clone(&bell));
    let worker = worker.map_err(system("start the worker"))?;
    let compile_thread = CompileThread::start().map_err(system("start the compile thread"))?;
    let mut node = Node {
        ifaces,
        worker,
        drop_rules,
        arena,
        paths,
        handlers,
        frame_queue: None,
        relays: None,
        tables: Tables::open().map_err(system("open rtnetlink"))?,
        neighbours: Neighbours::default(),
        named: 0,
        owners: Owners::default(),
        deaths: Deaths::new().map_err(system("watch processes"))?,
        bell,
        link_news: News::of_links().map_err(system("listen to rtnetlink"))?,
        left_out: BTreeMap::new(),
        leaving: Vec::new(),
        resting: Vec::new(),
        links,
        graph,
        served,
        maps,
        means,
        compile_thread,
        rows,
        held,
        counter_rows: plan.spare_rows(),
        plan,
        config: config.clone(),
        operations: Operations::default(),
        faults,
        observation: None,
        observations: 0,
    };
    node.create_configured()?;
    node.take_all_matching();
    let begun = node.served.taps.begin();
    begun.map_err(|source| RunError::System {
        doing: "begin the file of a tap",
        source,
    })?;
    promote_wanted(&mut node);
    Ok((node, engine))
}

/// An interface, and how it is to be taken.
type Taken = (Iface, Choice);

/// How a node is to take its interfaces.
struct Rungs {
    /// What this process can do.
    means: Means,
    /// Where its programs run.
    hook: Hook,
    /// The interfaces of the configuration, and how each is to be taken.
    facts: Vec<Taken>,
    /// What was made for those that the node makes itself.
    made: Vec<Option<Made>>,
    /// Whether a pattern may take some that need programs.
    may_get_programs: bool,
}

fn take_as(config: &Config, probe: &Probe) -> Result<Rungs, RunError> {
    let mut making = own::Making::default();
    let found = config.ifaces.iter().map(|iface| making.find(config, iface));
    let found = found.collect::<Result<Vec<_>, _>>()?;
    let (found, made): (Vec<_>, Vec<_>) = found.into_iter().unzip();
    let means = Means::of(probe);
    let of_node = means.clone().of_node(config);
    // What is there and matches has a say, and is taken later.
    let listed = match config.patterns[..] {
        [] => Vec::new(),
        _ => iface::list().unwrap_or_default(),
    };
    let matching = listed.iter().filter(|link| link.is_ethernet);
    let matching = matching.filter_map(|link| config.matching(&link.name));
    let matching = matching.filter_map(|it| Some((Iface::by_name(&it.name).ok()?, it)));
    let matching: Vec<(Iface, IfaceConfig)> = matching.collect();
    let asked = config.ifaces.iter().map(|iface| iface.attach).zip(&found);
    let asked = asked.chain(matching.iter().map(|(found, it)| (it.attach, found)));
    let is_matched = |text: &str| {
        let mut matching = matching.iter();
        matching.any(|(_, it)| it.pattern.as_deref() == Some(text))
    };
    let patterns = config.patterns.iter();
    let patterns = patterns.map(|it| (it.attach, it.glob.text()));
    let unmatched: Vec<_> = patterns.filter(|(_, text)| !is_matched(text)).collect();
    let (hook, choices) = choose_beside(&of_node, &asked.collect::<Vec<_>>(), &unmatched);
    let mut patterns = config.patterns.iter();
    let may_get_programs =
        of_node.no_programs.is_none() && patterns.any(|it| it.attach != Attach::Packet);
    let facts: Vec<_> = found.into_iter().zip(choices).collect();
    let mut programs = facts.iter().filter(|(_, to)| to.rung.has_programs());
    match (programs.next(), of_node.no_programs) {
        (Some((iface, _)), Some(because)) => Err(RunError::NoBpf {
            iface: iface.name.clone(),
            because,
        }),
        _ => Ok(Rungs {
            means,
            hook,
            facts,
            made,
            may_get_programs,
        }),
    }
}

/// The configuration on a machine of so many CPUs, where messages come so that the CPU on which they
/// arrive is known, to whom that matters.
fn on_cpus(
    config: &Config,
    cpus: u32,
    facts: &[(Iface, Choice)],
    has_programs: bool,
) -> Result<Config, RunError> {
    let per_cpu = |handler: &&HandlerConfig| handler.instances == Instances::PerCpu;
    let mut handlers = config.handlers.iter();
    let unserved = handlers.find(|handler| per_cpu(handler) && !has_programs);
    let config = config
        .on_cpus(cpus)
        .map_err(|(_, [because, hint])| RunError::Instances { because, hint })?;
    for (iface, choice) in facts
        .iter()
        .filter(|(_, choice)| !choice.rung.has_programs())
    {
        let mut paths = config.paths.iter().filter(|path| path.cpu.is_some());
        if let Some(path) = paths.find(|path| path.ifaces.contains(&iface.name)) {
            let because = choice.because.as_ref();
            let because = because.map_or_else(String::new, |because| format!(" ({because})"));
            let refusal = without_programs(path);
            return Err(RunError::Instances {
                because: format!("{}: `{}`{because}", refusal.message, iface.name),
                hint: refusal.hint,
            });
        }
    }
    match unserved {
        None => Ok(config),
        // No path leads to it yet.
        Some(handler) => {
            let Refusal { message, hint, .. } = no_cpus(&handler.name);
            Err(RunError::Instances {
                because: message,
                hint,
            })
        }
    }
}

fn node_maps(plan: &Plan, hook: Hook, frags: bool) -> Result<NodeMaps, RunError> {
    let system = |source| RunError::System {
        doing: "create the node's maps",
        source,
    };
    let cpus = possible_cpus().map_err(system)? as u32;
    let map = |spec: &MapSpec| Map::create(spec).map(Arc::new).map_err(system);
    Ok(NodeMaps {
        hook,
        frags,
        context: map(&MapSpec::array(
            "ashway_context",
            context::BYTES as u32 * cpus,
            1,
        ))?,
        cpus,
        counters: map(&MapSpec::percpu_array(
            "ashway_counters",
            count::KERNEL_BYTES as u32,
            plan.all_rows() as u32,
        ))?,
        wake: Arc::new(shared::bell("ashway_wake", 4096).map_err(system)?),
    })
}

fn make_instances(
    config: &Config,
    plan: &Plan,
    engine: &Engine,
    maps: Option<&NodeMaps>,
    arena: bool,
    rows: &Arc<UserRows>,
    faults: &Arc<Faults>,
) -> Result<BTreeMap<HandlerId, HandlerHandle>, RunError> {
    let mut made = BTreeMap::new();
    let mut version = None;
    for (handler, (id, numbers)) in config.handlers.iter().zip(&plan.instances) {
        let paths = config.paths_of(&handler.name);
        let functions: Vec<&str> = paths.map(|path| path.function.as_str()).collect();
        let version = Version::shared(&mut version, handler, engine)?;
        let queue = &numbers.queue;
        let new = Instance::create(handler, version, &functions, queue, engine, maps, arena)?;
        made.insert(*id, HandlerHandle::new(new, rows, faults));
    }
    Ok(made)
}

/// The paths that end in handlers, for the worker.
fn make_paths(
    plan: &Plan,
    graph: &NodeGraph,
    paths: &PathRegistry,
    handlers: &BTreeMap<HandlerId, HandlerHandle>,
) -> Result<Vec<HandlerPath>, RunError> {
    let mut made = Vec::new();
    for (id, path) in paths.all_bound() {
        let numbers = &plan.paths[&id];
        let ends = &handlers[&numbers.handler].shared.bindings;
        made.extend(dispatch::handler_paths(graph, &path.config, numbers, ends)?);
    }
    Ok(made)
}

/// Begins to promote what the configuration wants in the kernel tier; where that
/// is not possible, the node says why: without a kernel tier at all, of paths that ask
/// for it by name.
fn promote_wanted(node: &mut Node) {
    let paths: Vec<PathId> = node.paths.all_bound().map(|(id, _)| id).collect();
    for path in paths {
        let config = &node.paths.bound(path).config;
        let asks = config.tier == Tier::Kernel;
        if config.tier == Tier::User || node.maps.is_none() && !asks {
            continue;
        }
        let mut name = format!("`{}`", config.name);
        if asks {
            name += " has `tier = \"kernel\"` and";
        }
        node.promote(path, 0, Report::StartPromotion(name));
    }
}
