//! An interface becomes one of the node's: it gets a demux, and its programs with their array, or
//! its sockets.

use std::collections::BTreeMap;
use std::sync::Arc;

use ashway_kernel::Iface;
use ashway_path::places::PathId;
use ashway_ring::{IngressDrop, PacketSocket, Passer};

use super::entry::NextProgram;
use super::own::{self, Made, Outside};
use super::path_registry::PathRegistry;
use super::take::{Ready, iface_facts, tx_errors};
use super::world::Link;
use super::{NodeIface, RunError, State, XdpSide, dispatch, program_array, say};
use crate::rung::Choice;
use ashway_config::IfaceConfig;
use ashway_worker::bell::Bell;
use ashway_worker::drop_rule;
use ashway_worker::frame_port::{FramePort, Rooms};
use ashway_worker::handle::HandlerHandle;
use ashway_worker::medium::Medium;
use ashway_worker::medium::socket::Socket;
use ashway_worker::plan::{HandlerId, Plan};
use ashway_worker::programs::NodeMaps;
use ashway_worker::xdp_port::XdpPort;

/// Takes an interface without a kernel tier: one of the host's by packet sockets, or what was
/// made for it.
///
/// # Errors
///
/// What the kernel refused.
#[expect(clippy::too_many_arguments, reason = "both who take need all of it")]
pub(super) fn without_programs(
    plan: &Plan,
    paths: &PathRegistry,
    link: &Link,
    found: &Iface,
    asked: &IfaceConfig,
    Choice { rung, because }: Choice,
    made: Option<Made>,
    bell: &Arc<Bell>,
) -> Result<(NodeIface, FramePort, Option<IngressDrop>), RunError> {
    let number = link.number();
    let numbers = &plan.ifaces[number];
    let table = dispatch::table(&found.name, plan, paths, number)?;
    let (medium, outside, drop_rule): (Box<dyn Medium>, _, _) = if let Some(made) = made {
        let (medium, outside) = made.into_medium(&found.name, bell)?;
        (medium, outside, None)
    } else {
        let (socket, drop_rule) = open_sockets(found, &numbers.paths, paths)?;
        (Box::new(socket), Outside::default(), drop_rule)
    };
    let iface = NodeIface {
        name: asked.name.clone(),
        attach: asked.attach,
        pattern: asked.pattern.clone(),
        table,
        catch_all: false,
        xdp: None,
        ifindex: found.ifindex,
        facts: iface_facts(found, asked.pattern.is_some()),
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

/// What taking an interface with XDP needs to know of the node, and of the interface.
pub(super) struct Common<'a> {
    pub(super) asked: &'a IfaceConfig,
    pub(super) plan: &'a Plan,
    pub(super) paths: &'a PathRegistry,
    pub(super) maps: &'a NodeMaps,
    pub(super) handlers: &'a BTreeMap<HandlerId, HandlerHandle>,
    pub(super) arena: bool,
}

/// Takes an interface by programs: XDP, or TCX.
///
/// # Errors
///
/// Whose it is, or what the kernel refused.
pub(super) fn with_programs(
    common: &Common,
    number: usize,
    found: &Iface,
    Choice { rung, because }: Choice,
) -> Result<(NodeIface, XdpPort), RunError> {
    let Common {
        asked, plan, paths, ..
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
    let entered = ready.enter(&entry, found, asked.attach)?;
    let iface = NodeIface {
        name: asked.name.clone(),
        attach: asked.attach,
        pattern: asked.pattern.clone(),
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
        facts: iface_facts(found, asked.pattern.is_some()),
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
