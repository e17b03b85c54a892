//! What a node says of itself: the answer to `status`.

use std::collections::HashSet;

use ashway_abi::{Cause, Count};
use ashway_api::Scalar;
use ashway_api::answer::{
    FormerVersion, Handler, HandlerEndpoint, HandlerProgram, HandlerPromotion, Interface,
    LastFault, LostAfterHandOver, NotTaken, PathPromotion, Pattern as MatchedBy, RanIn, SourceLine,
    State as Declared, Status, Unmatched,
};
use ashway_codegen::entry::Reply;
use ashway_handler::Param;

use super::instances::merged;
use super::node_path::{BoundPath, Promotion};
use super::{Node, NodeIface, State, paths_shown};
use ashway_config::{Pattern, Tier};
use ashway_worker::instance::{Instance, Promoted};
use ashway_worker::plan::HandlerId;
use ashway_worker::queue::Queue;

/// The node, with what it has.
pub(super) fn describe(node: &mut Node) -> Status {
    node.ifaces.values_mut().for_each(NodeIface::ask_driver);
    let (paths, not_listed) = node.list();
    let run = node.paths.run();
    Status {
        node: node.config.node.name.clone(),
        interfaces: node
            .ifaces
            .iter()
            .map(|(it, _)| interface(node, it))
            .collect(),
        patterns: node
            .config
            .patterns
            .iter()
            .map(|it| pattern(node, it))
            .collect(),
        handlers: merged::handlers(node.handlers.keys().map(|id| handler(node, *id, &run))),
        paths,
        paths_not_listed: not_listed as u64,
        module_paths: node.sum_of_module_paths(),
        operations: node.operations.describe(),
        taps: node.served.taps.describe(),
    }
}

fn interface(node: &Node, number: usize) -> Interface {
    let iface = &node.ifaces[number];
    let name = &node.ifaces[number].name;
    let unmatched = node.row(node.plan.ifaces[number].unmatched_row);
    let reply = match &iface.xdp {
        None => iface.rung.name(),
        Some(xdp) => match xdp.reply {
            Reply::Transmit => "xdp_tx",
            Reply::Redirect => "redirect",
            Reply::Exit => "tcx",
        },
    };
    let mode = match iface.state {
        State::Up => iface.rung.name(),
        State::Down => "down",
        State::Detached | State::Gone | State::Anew => "gone",
    };
    Interface {
        name: name.clone(),
        pattern: iface.pattern.clone(),
        ifindex: iface.ifindex,
        mode: mode.into(),
        because: iface.because.clone(),
        hint: iface.state.hint(name),
        mac: node.links[number].mac().to_string(),
        mac_changes: iface.mac_changes,
        rx_queues: iface.facts.queues as u64,
        reply: reply.into(),
        udp_checksum: "checked; none or partial accepted".into(),
        consumes: iface.consumes,
        unmatched: Unmatched {
            passed: unmatched.get(Count::Passed),
            overflowed: unmatched.get(Count::DroppedRingFull),
            no_host: unmatched.get(Count::DroppedNoHost),
        },
        lost_after_hand_over: LostAfterHandOver {
            driver: iface.lost_by_driver(),
        },
    }
}

fn pattern(node: &Node, pattern: &Pattern) -> MatchedBy {
    let text = pattern.glob.text();
    let taken = node.ifaces.values();
    let taken = taken.filter(|iface| iface.pattern.as_deref() == Some(text));
    let left = node.left_out.values().filter(|left| left.pattern == text);
    let left = left.map(|left| NotTaken {
        name: left.name.clone(),
        because: left.because.clone(),
    });
    MatchedBy {
        pattern: text.to_owned(),
        interfaces: taken.count() as u64,
        not_taken: left.collect(),
    }
}

/// A handler; `run` are the instances that paths of modules run, in the user tier.
fn handler(node: &Node, id: HandlerId, run: &HashSet<HandlerId>) -> Handler {
    let instance = &node.handlers[&id].shared;
    let version = instance.version();
    let former = instance.versions.former();
    let former = former.iter().rev().map(|former| FormerVersion {
        digest: former.digest.clone(),
        file: former.file.display().to_string(),
    });
    let allow = &node.config_of(instance).allow;
    let param = |(name, value): (&String, &Param)| {
        let value = match value {
            Param::Number(number) => Scalar::Number(*number),
            Param::Text(text) => Scalar::Text(text.clone()),
        };
        (name.clone(), value)
    };
    Handler {
        name: instance.name.clone(),
        tier: tiers(node, id, run),
        ran_in: ran_in(node, id),
        memory: instance.memory.mapped.kind().name().into(),
        bytes: instance.memory.mapped.len() as u64,
        endpoint: instance
            .endpoint()
            .map(|(endpoint, place)| HandlerEndpoint {
                slots: place.layout.endpoint_slots as u64,
                reader: endpoint.reader(),
            }),
        owner: instance.owner.as_ref().map(|owner| owner.pid),
        digest: version.digest.clone(),
        file: version.file.display().to_string(),
        allow: allow.iter().map(|grant| grant.word().into()).collect(),
        params: version.params.iter().map(param).collect(),
        state: version.state_range.map(|range| Declared {
            bytes: range.bytes,
            version: range.version,
        }),
        in_flows: instance.queue.as_ref().map_or(0, Queue::in_flows),
        former: former.collect(),
        promotion: promotion(node, id),
        last_fault: last_fault(instance),
        instances: Vec::new(),
    }
}

/// The tiers that a handler's paths run in.
fn tiers(node: &Node, id: HandlerId, run: &HashSet<HandlerId>) -> String {
    let paths = node.plan.instances[&id].paths.iter();
    let tiers = paths.map(|path| node.paths.bound(*path).tier.word());
    let by_modules = run.contains(&id).then_some(Tier::User.word());
    let mut tiers: Vec<&str> = tiers.chain(by_modules).collect();
    tiers.sort_unstable();
    tiers.dedup();
    if tiers.is_empty() {
        tiers.push("unbound");
    }
    tiers.join(",")
}

/// In which tiers a handler ran for messages of the paths that are bound to it, if some are.
fn ran_in(node: &Node, id: HandlerId) -> Option<RanIn> {
    let paths = node.plan.instances[&id].paths.iter();
    let ran_in = paths.map(|path| node.ran_in(*path));
    ran_in.reduce(|mut sum, path| {
        sum += path;
        sum
    })
}

/// How the first of a handler's paths for which that was tried stands with the kernel tier.
fn promotion(node: &Node, id: HandlerId) -> HandlerPromotion {
    let paths = node.plan.instances[&id].paths.iter();
    let mut paths = paths.map(|path| node.paths.bound(*path));
    let Some(path) = paths.find(|path| !matches!(path.promotion, Promotion::NotAsked)) else {
        return HandlerPromotion {
            state: "user".into(),
            ..HandlerPromotion::default()
        };
    };
    let PathPromotion { state, why, .. } = paths_shown::promotion(path);
    let (place, program) = match &path.promotion {
        Promotion::NotAsked => (None, None),
        Promotion::Done(promoted) => (None, Some(program(path, promoted))),
        Promotion::Refused(refused) => {
            let line = refused.line.clone();
            (Some(SourceLine { line }), None)
        }
    };
    HandlerPromotion {
        state,
        why: Some(why.unwrap_or_default()),
        place,
        program,
    }
}

fn program(path: &BoundPath, promoted: &Promoted) -> HandlerProgram {
    HandlerProgram {
        insns: promoted.insns as u64,
        verified_insns: promoted.program.verified_insns().into(),
        translate_us: promoted.translate.as_micros() as u64,
        load_us: promoted.load.as_micros() as u64,
        switch_ns: path.switch_ns,
        second_try: promoted.second_try,
    }
}

fn last_fault(instance: &Instance) -> Option<LastFault> {
    let fault = instance.last_fault()?;
    // What a verdict was is not recorded; this is the likeliest.
    let may_be_reply = fault.cause == Some(Cause::BadVerdict) && !instance.may_reply();
    let (file, line) = fault.line.unzip();
    Some(LastFault {
        count: fault.count,
        cause: fault.cause.map(|cause| cause.name().into()),
        file,
        line,
        at: fault.at,
        hint: may_be_reply.then(|| {
            format!(
                "was it `reply`? that takes `allow = [\"reply\"]` in `[handler.{}]`, or \
                 `handler load --allow reply`",
                instance.name
            )
        }),
    })
}
