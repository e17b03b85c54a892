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
use ashway_kernel::{Iface, Map, MapSpec, News, shared};
use ashway_modules::mac::Mac;
use ashway_path::places::PathId;
use ashway_ring::{IngressDrop, PacketSocket, Passer};

use super::binding::without_programs;
use super::entry::NextProgram;
use super::looks::Deaths;
use super::neighbours::Neighbours;
use super::node_path::BoundPath;
use super::operation::Report;
use super::operations::Operations;
use super::own::{self, Made, Outside};
use super::path_registry::PathRegistry;
use super::take::{Ready, iface_facts, tx_errors};
use super::world::{self, Link, NodeServices};
use super::{Node, NodeIface, Owners, RunError, State, XdpSide, dispatch, program_array, say};
use crate::compile::CompileThread;
use crate::rung::{Choice, Means, Rung, choose, cost};
use ashway_config::{Config, NodeGraph, Tier};
use ashway_worker::bell::Bell;
use ashway_worker::counters::UserRows;
use ashway_worker::drop_rule;
use ashway_worker::faults::Faults;
use ashway_worker::frame_port::{FramePort, Rooms};
use ashway_worker::handle::HandlerHandle;
use ashway_worker::instance::Instance;
use ashway_worker::medium::Medium;
use ashway_worker::medium::socket::Socket;
use ashway_worker::paths::Paths;
use ashway_worker::plan::{self, HandlerId, Plan};
use ashway_worker::programs::NodeMaps;
use ashway_worker::run_instance::{HandlerPath, RunInstance};
use ashway_worker::version::Version;
use ashway_worker::witness::Witnesses;
use ashway_worker::worker::{Awake, Work, Worker};
use ashway_worker::xdp_port::XdpPort;

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
    let (facts, made) = take_as(config, &probe)?;
    let cpus = possible_cpus().map_err(|source| RunError::System {
        doing: "count the CPUs",
        source,
    })?;
    let config = &on_cpus(config, cpus as u32, &facts)?;
    // The configuration has one hook for all.
    let at_tcx = facts.iter().any(|(_, choice)| choice.rung == Rung::Tcx);
    let hook = if at_tcx { Hook::Tcx } else { Hook::Xdp };
    let mut paths = PathRegistry::default();
    let of_ifaces = facts.iter().map(|(iface, _)| iface_facts(iface));
    let plan = plan::draw(config, &of_ifaces.collect::<Vec<_>>(), paths.ids());
    let has_programs = facts.iter().any(|(_, choice)| choice.rung.has_programs());
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
    let links: Vec<Link> = facts
        .iter()
        .enumerate()
        .map(|(number, (found, choice))| {
            let link = Link::new(number, found, choice.rung);
            match config.ifaces[number].own.mac {
                None if choice.rung == Rung::Pcap => link.for_anybody(),
                _ => link,
            }
        })
        .collect();
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
    if facts.iter().any(|(_, choice)| passes_by_lo(choice.rung))
        && Iface::by_name("lo").is_ok_and(|lo| !lo.up)
    {
        say("lo is down: what the user tier passes to the host is lost; `ip link set lo up`");
    }
    let mut ifaces = Vec::new();
    let mut xdp_ports = Vec::new();
    let mut frame_ports = Vec::new();
    let mut drop_rules = Vec::new();
    for (number, ((found, choice), made)) in facts.iter().zip(made).enumerate() {
        if !choice.rung.has_programs() {
            let (link, choice) = (&links[number], choice.clone());
            let (iface, port, rule) =
                take_without_programs(&plan, &paths, link, found, choice, made, &bell)?;
            ifaces.push(iface);
            frame_ports.push(port);
            drop_rules.push(rule);
            xdp_ports.push(None);
        } else {
            let maps = maps.as_deref().expect("an interface with XDP has maps");
            let common = Common {
                config,
                plan: &plan,
                paths: &paths,
                maps,
                handlers: &handlers,
                arena,
            };
            let (iface, port) = take_with_xdp(&common, number, found, choice.clone())?;
            ifaces.push(iface);
            xdp_ports.push(Some(port));
            drop_rules.push(None);
        }
    }
    let tables = ifaces.iter().map(|iface| Replica::of(&iface.table));
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
        leaving: Vec::new(),
        resting: Vec::new(),
        links,
        graph,
        served,
        maps,
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

/// The interfaces of the configuration, how each is to be taken, and what was made for those
/// that the node makes itself.
fn take_as(config: &Config, probe: &Probe) -> Result<(Vec<Taken>, Vec<Option<Made>>), RunError> {
    let mut making = own::Making::default();
    let found = (0..config.ifaces.len()).map(|number| making.find(config, number));
    let found = found.collect::<Result<Vec<_>, _>>()?;
    let (found, made): (Vec<_>, Vec<_>) = found.into_iter().unzip();
    let asked = config.ifaces.iter().map(|iface| iface.attach);
    let means = Means::of_node(probe, config);
    let choices = choose(&means, &asked.zip(&found).collect::<Vec<_>>());
    let facts: Vec<_> = found.into_iter().zip(choices).collect();
    let mut programs = facts.iter().filter(|(_, to)| to.rung.has_programs());
    match (programs.next(), means.no_programs) {
        (Some((iface, _)), Some(because)) => Err(RunError::NoBpf {
            iface: iface.name.clone(),
            because,
        }),
        _ => Ok((facts, made)),
    }
}

/// The configuration on a machine of so many CPUs, where messages come so that the CPU on which they
/// arrive is known, to whom that matters.
fn on_cpus(config: &Config, cpus: u32, facts: &[(Iface, Choice)]) -> Result<Config, RunError> {
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
    Ok(config)
}

/// Whether the driver would refuse programs that take frames in one buffer only.
fn needs_frags(found: &Iface, rung: Rung) -> bool {
    rung == Rung::Native && found.mtu as usize > ONE_BUFFER_MTU
}

/// The largest MTU with which a frame fits one buffer: a page without the headroom of 256 bytes,
/// an Ethernet header, and 320 bytes that the kernel has behind it (`veth_xdp_set` of Linux
/// 6.18; other drivers are like it). Below it programs are of the other kind, as then a veth's
/// peer cuts what it sends by itself.
const ONE_BUFFER_MTU: usize = 4096 - 256 - 14 - 320;

fn node_maps(plan: &Plan, hook: Hook, frags: bool) -> Result<NodeMaps, RunError> {
    let system = |source| RunError::System {
        doing: "create the node's maps",
        source,
    };
    let cpus = possible_cpus().map_err(system)? as u32;
    Ok(NodeMaps {
        hook,
        frags,
        context: Map::create(&MapSpec::array(
            "ashway_context",
            context::BYTES as u32 * cpus,
            1,
        ))
        .map_err(system)?,
        cpus,
        counters: Map::create(&MapSpec::percpu_array(
            "ashway_counters",
            count::KERNEL_BYTES as u32,
            plan.all_rows() as u32,
        ))
        .map_err(system)?,
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

/// Takes an interface without a kernel tier: one of the host's by packet sockets, or what was
/// made for it.
pub(super) fn take_without_programs(
    plan: &Plan,
    paths: &PathRegistry,
    link: &Link,
    found: &Iface,
    Choice { rung, because }: Choice,
    made: Option<Made>,
    bell: &Arc<Bell>,
) -> Result<(NodeIface, FramePort, Option<IngressDrop>), RunError> {
    let number = link.number();
    let numbers = &plan.ifaces[number];
    let table = dispatch::table(&found.name, plan, paths, number)?;
    let (medium, outside, drop_rule): (Box<dyn Medium>, _, _) = match made {
        Some(made) => {
            let (medium, outside) = made.into_medium(&found.name, bell)?;
            (medium, outside, None)
        }
        None => {
            let (socket, drop_rule) = open_sockets(found, &numbers.paths, paths)?;
            (Box::new(socket), Outside::default(), drop_rule)
        }
    };
    let iface = NodeIface {
        table,
        catch_all: false,
        xdp: None,
        ifindex: found.ifindex,
        facts: iface_facts(found),
        rung,
        because,
        tx_errors: [tx_errors(&found.name, rung); 2],
        lost_before: 0,
        not_taken: None,
        consumes: rung.is_own() || drop_rule.is_some(),
        state: State::Up,
        mac_changes: 0,
        outside,
    };
    let port = FramePort {
        medium,
        rooms: Rooms::new(match found.ifindex {
            0 => own::ROOM_BYTES,
            _ => iface.facts.mtu,
        }),
        iface: number,
        mac: link.mac().clone(),
        unmatched_row: numbers.unmatched_row,
    };
    Ok((iface, port, drop_rule))
}

/// Packet sockets on an interface, and the rule that keeps what its paths match from the host.
fn open_sockets(
    found: &Iface,
    its_paths: &[PathId],
    paths: &PathRegistry,
) -> Result<(Socket, Option<IngressDrop>), RunError> {
    let system = |source| RunError::System {
        doing: "open a packet socket (CAP_NET_RAW; `unshare -Urn` gives it in a namespace)",
        source,
    };
    let socket = PacketSocket::open(found.ifindex).map_err(system)?;
    let out = PacketSocket::open_to_send(found.ifindex).map_err(system)?;
    let mut matches = Some(Vec::new());
    for path in its_paths {
        let more = drop_rule::drop_matches(&paths.bound(*path).config.filter);
        matches = matches.zip(more).map(|(all, more)| [all, more].concat());
    }
    let installed = match matches {
        Some(matches) => IngressDrop::install(&found.name, &matches)
            .map_err(|error| format!("{error} ({})", error.hint())),
        None => Err(drop_rule::NO_DROP_HINT.to_owned()),
    };
    let drop_rule = match installed {
        Ok(rule) => Some(rule),
        Err(because) => {
            say(&format!(
                "{}: the host's stack also sees what the paths consume: {because}",
                found.name
            ));
            None
        }
    };
    let socket = Socket {
        socket,
        out,
        passer: Passer::open(found.ifindex).ok(),
        dropped_from_host: drop_rule.is_some(),
    };
    Ok((socket, drop_rule))
}

/// What taking an interface with XDP needs to know of the node.
struct Common<'a> {
    config: &'a Config,
    plan: &'a Plan,
    paths: &'a PathRegistry,
    maps: &'a NodeMaps,
    handlers: &'a BTreeMap<HandlerId, HandlerHandle>,
    arena: bool,
}

fn take_with_xdp(
    common: &Common,
    number: usize,
    found: &Iface,
    Choice { rung, because }: Choice,
) -> Result<(NodeIface, XdpPort), RunError> {
    let Common {
        config,
        plan,
        paths,
        ..
    } = common;
    let ready = Ready::of(common.maps, found, rung)?;
    let numbers = &plan.ifaces[number];
    let slots = program_array::create()?;
    for &path in &numbers.paths {
        let handler = &common.handlers[&plan.paths[&path].handler];
        let slot = plan.slot(path, number).expect("a path of this interface");
        let program = handler.user_program.as_ref().expect("the node has maps");
        slots
            .set_slot(slot as u32, program.fd())
            .map_err(|source| RunError::System {
                doing: "fill the program array",
                source,
            })?;
    }
    let table = dispatch::table(&found.name, plan, paths, number)?;
    let leaves = dispatch::Leaves {
        plan,
        paths,
        // What takes whole frames comes later.
        frame_queue: None,
        relays: None,
        iface: number,
    };
    let (entry, demux) = dispatch::Entry {
        name: &found.name,
        maps: common.maps,
        slots: &slots,
        unmatched_row: leaves.unmatched_row(),
        mac: found.mac,
        reply: ready.reply,
        arena: common.arena,
        observe: None,
    }
    .load(&table, |target| leaves.leaf(target))?;
    let asked = config.ifaces[number].attach;
    let entered = ready.enter(&entry, found, asked)?;
    let iface = NodeIface {
        table,
        catch_all: false,
        xdp: Some(XdpSide {
            link: entered.link,
            exit_link: entered.exit_link,
            slots: Arc::new(slots),
            entry,
            demux,
            next: NextProgram::None,
            reply: entered.reply,
        }),
        ifindex: found.ifindex,
        facts: iface_facts(found),
        rung: entered.rung,
        because: if entered.rung == rung {
            because
        } else {
            // Only `auto` steps down.
            Some("its driver does not take the program".to_owned())
        },
        tx_errors: [tx_errors(&found.name, entered.rung); 2],
        lost_before: 0,
        not_taken: None,
        consumes: true,
        state: State::Up,
        mac_changes: 0,
        outside: Outside::default(),
    };
    Ok((iface, entered.port))
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
