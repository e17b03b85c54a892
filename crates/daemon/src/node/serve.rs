//! A running node's main loop: signals, the control socket, what has been
//! compiled, the clock.

use std::collections::HashSet;
use std::io::{IsTerminal, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path as FsPath;
use std::time::{Duration, Instant};

use ashway_abi::share::Mode;
use ashway_api::request::Log;
use ashway_codegen::entry::Reply;
use ashway_handler::Param;
use ashway_memory::clock::monotonic_ns;
use ashway_path::places::PathId;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde_json::{Map, Value, json};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use super::looks::{Look, Looks};
use super::operations::{Job, Report, Step};
use super::{Node, Promotion, RunError, RunOptions, State, owners, say};
use crate::config::Tier;
use crate::control::{Answer, Caller, Control};
use crate::counters::Row;
use crate::log::Line;
use crate::plan::HandlerId;
use crate::request::{self, Refusal, Request, unknown};
use crate::rows::CounterRow;
use crate::status;

/// Where the signals that end a node, or bring it to its file, are told from now on.
pub(super) fn watch_signals() -> Result<Told, RunError> {
    let system = |source| RunError::System {
        doing: "watch for signals",
        source,
    };
    let listen = |signals: &[i32]| -> Result<UnixStream, RunError> {
        let (told, teller) = UnixStream::pair().map_err(system)?;
        told.set_nonblocking(true).map_err(system)?;
        for signal in signals {
            let teller = teller.try_clone().map_err(system)?;
            signal_hook::low_level::pipe::register(*signal, teller).map_err(system)?;
        }
        Ok(told)
    };
    Ok(Told {
        stop: listen(&[SIGTERM, SIGINT, SIGQUIT])?,
        again: listen(&[SIGHUP])?,
        on_terminal: std::io::stdin().is_terminal(),
    })
}

/// Where signals are told.
#[derive(Debug)]
pub(super) struct Told {
    /// To end.
    stop: UnixStream,
    /// To read the configuration again.
    again: UnixStream,
    /// Whether the node was started from a terminal.
    on_terminal: bool,
}

impl Told {
    /// Takes what SIGHUP has said by now.
    fn take_again(&self) {
        let mut bytes = [0; 64];
        while (&self.again).read(&mut bytes).is_ok_and(|read| read > 0) {}
    }

    /// Whether it was said because the terminal has gone, and nobody is left who could
    /// stop the node by a key.
    fn has_hung_up(&self) -> bool {
        self.on_terminal && !std::io::stdin().is_terminal()
    }
}

/// Serves until `told` to stop; says that the node is ready when the promotions
/// of the start have been tried.
pub(super) fn serve(
    node: &mut Node,
    engine: &ashway_handler::Engine,
    control: &mut Control,
    told: &Told,
    options: &RunOptions,
) -> Result<(), RunError> {
    let mut trial = options
        .try_seconds
        .map(|seconds| Instant::now() + Duration::from_secs(seconds));
    if let Some(seconds) = options.try_seconds {
        say(&format!(
            "on trial: detaches in {seconds} s unless `ashway confirm` comes first"
        ));
    }
    // Behind the promotions of the start, and the programs of its paths.
    node.begin_entries();
    let socket = options.socket.clone();
    let start = node.operations.next("start", "", Report::Nobody);
    node.submit(start, Step::Start { socket }, Job::Nothing);
    let mut looks = Looks::new(Instant::now());
    loop {
        let due = [looks.due(), trial, control.due()].into_iter().flatten();
        let left = due.map(|due| due.saturating_duration_since(Instant::now()));
        let left = left.min().and_then(|left| Timespec::try_from(left).ok());
        let mut fds = vec![
            PollFd::new(&told.stop, PollFlags::IN),
            PollFd::new(&node.compile_thread, PollFlags::IN),
            PollFd::new(&node.served.shells, PollFlags::IN),
            PollFd::new(&told.again, PollFlags::IN),
        ];
        // One that is to be looked at soon says nothing new until then.
        let heard = |look: &Look| {
            if look.is_wanted() {
                PollFlags::empty()
            } else {
                PollFlags::IN
            }
        };
        fds.push(PollFd::new(&*node.bell, heard(&looks.tick)));
        fds.push(PollFd::new(&node.deaths, heard(&looks.tick)));
        fds.push(PollFd::new(&node.link_news, heard(&looks.ifaces)));
        let neighbours = node.neighbours.news().map(AsFd::as_fd);
        let has_neighbours = neighbours.is_some();
        fds.extend(neighbours.map(|news| PollFd::from_borrowed_fd(news, heard(&looks.neighbours))));
        fds.extend(control.fds());
        if poll(&mut fds, left.as_ref()) == Err(Errno::INTR) {
            // What the signal says is in a pipe, and comes before all else.
            continue;
        }
        let is_heard = |at: usize| fds[at].revents().contains(PollFlags::IN);
        let [stop, compiled, commanded, again] =
            [0, 1, 2, 3].map(|at: usize| !fds[at].revents().is_empty());
        for (look, heard) in [
            (&mut looks.tick, is_heard(4) || is_heard(5)),
            (&mut looks.ifaces, is_heard(6)),
            (&mut looks.neighbours, has_neighbours && is_heard(7)),
        ] {
            if heard {
                look.want();
            }
        }
        drop(fds);
        let mut asked = compiled || commanded || again;
        if again {
            told.take_again();
        }
        if stop || again && told.has_hung_up() {
            say("stopping");
            return Ok(());
        }
        if compiled {
            while let Some(ended) = node.compile_thread.next_ended() {
                node.go_on(ended, engine);
            }
        }
        if commanded {
            node.obey();
        }
        if again {
            node.apply_again();
        }
        if let Some((caller, request)) = control.next(Instant::now()) {
            answer(node, engine, &mut trial, request, caller);
            asked = true;
        }
        if asked {
            // Whoever asked has the answer.
            node.begin_entries();
            // It may have brought what is looked after from now on.
            looks.tick.want();
            looks.ifaces.want();
            looks.neighbours.want();
        }
        let now = Instant::now();
        if looks.tick.take(now) {
            node.tick(&mut looks)?;
        }
        if looks.faults.take(now) {
            node.keep_faults(&mut looks);
        }
        if looks.neighbours.take(now)
            && let Some(next) = node.look_for_neighbours()
        {
            looks.neighbours.want_at(now + next);
        }
        if looks.ifaces.take(now) && !node.look_at_ifaces(&mut looks) {
            return Err(RunError::NoIfaceLeft);
        }
        if trial.is_some_and(|end| Instant::now() >= end) {
            say("the trial was not confirmed: stopping");
            return Ok(());
        }
    }
}

/// Says that the node is ready.
pub(super) fn say_ready(node: &Node, socket: &FsPath) {
    say(&format!(
        "ready: {} on {}; control socket {}",
        plural(node.paths.len() + node.live.len(), "path"),
        plural(node.ifaces.len(), "interface"),
        socket.display()
    ));
}

pub(super) fn plural(count: usize, what: &str) -> String {
    if count == 1 {
        format!("1 {what}")
    } else {
        format!("{count} {what}s")
    }
}

/// Answers now, or has the caller answered when the compile thread is done.
fn answer(
    node: &mut Node,
    engine: &ashway_handler::Engine,
    trial: &mut Option<Instant>,
    request: Value,
    caller: Caller,
) {
    let request = match request::read(request) {
        Ok(request) => request,
        Err(refusal) => return caller.answer(refusal),
    };
    let answer = match request {
        Request::Plan(plan) => return node.apply_asked(&plan.file, true, caller),
        Request::Apply(change) => return node.apply_asked(&change.file, false, caller),
        Request::Load(load) => return node.load(&load, engine, caller),
        Request::Bind(bind) => return node.bind(bind, caller),
        Request::Observe(observe) => return node.observe(&observe, caller),
        Request::Endpoint(endpoint) => node.open_endpoint(&endpoint.handler, &caller),
        Request::Promote(promoted) => return node.promote_asked(&promoted, caller),
        Request::Demote(demoted) => demote(node, &demoted.path),
        Request::Enable(enabled) => enable(node, &enabled.path),
        Request::Create(create) => node.create(create, &caller).into(),
        Request::Remove(remove) => node.remove(&remove.paths).into(),
        Request::Show(show) => node.show(&show.path).into(),
        Request::Faults(faults) => list_faults(node, faults.handler.as_deref()),
        Request::Log(request) => log(node, &request),
        Request::Fault(fault) => node.faults.export(fault.fault).into(),
        Request::Swap(swap) => return node.swap(&swap, engine, caller),
        Request::Rollback(rollback) => return node.rollback(&rollback.handler, engine, caller),
        Request::Unbind(unbind) => node.unbind(&unbind.path).into(),
        Request::Unload(unload) => node.unload(&unload.handler).into(),
        Request::Status(_) => Answer::Ok(describe(node)),
        Request::Demux(demux) => node.show_demux(demux.iface.as_deref()).into(),
        Request::Why(why) => {
            let status = describe(node);
            let look = node.looks();
            crate::why::answer(&node.config, &status, &look, &why).into()
        }
        Request::Cancel(cancel) => node.cancel(cancel.operation).into(),
        Request::Confirm(_) => {
            let was_on_trial = trial.take().is_some();
            Answer::Ok(json!({ "was_on_trial": was_on_trial }))
        }
        Request::Memory(memory) => share_memory(node, &memory.handler),
    };
    caller.answer(answer);
}

/// The faults of a handler, or of all; those of one that is unloaded are gone with it.
fn list_faults(node: &Node, handler: Option<&str>) -> Answer {
    match handler.map(|handler| node.find_handler(handler)) {
        Some(Err(refusal)) => refusal.into(),
        _ => Answer::Ok(node.faults.list(handler)),
    }
}

/// What a handler has logged behind the line of number `after`.
fn log(node: &Node, request: &Log) -> Answer {
    let (id, instance) = match node.find_handler(&request.handler) {
        Ok((id, handler)) => (id, &handler.shared),
        Err(refusal) => return refusal.into(),
    };
    let look = instance.log().look(request.after.unwrap_or_default());
    let path_of = |line: &Line| {
        let mut plans = node.plan.paths.values();
        let its = plans.find(|plan| plan.handler == id && plan.row.0 == line.row)?;
        let path = &node.paths[&its.id()];
        // It may be of one that had the row before.
        let is_its = line.is_behind(path.lines_before);
        is_its.then_some(path.config.name.as_str())
    };
    let lines = look.lines.iter().map(|line| {
        json!({
            "number": line.number,
            "at_ns": line.at_ns,
            "path": path_of(line),
            "text": crate::log::harmless(&line.bytes),
        })
    });
    Answer::Ok(json!({
        "handler": instance.name,
        "lines": lines.collect::<Vec<_>>(),
        "last": look.last,
        "overwritten": look.overwritten,
        "too_many": look.too_many,
    }))
}

fn share_memory(node: &Node, handler: &str) -> Answer {
    let instance = match node.find_handler(handler) {
        Ok((_, handler)) => &handler.shared,
        Err(refusal) => return refusal.into(),
    };
    let version = instance.version();
    let symbols: Map<String, Value> = version
        .compiled
        .symbols()
        .iter()
        .map(|(name, at)| (name.clone(), json!(at)))
        .collect();
    let document = json!({
        "kind": instance.memory.kind().name(),
        "address": format!("{:#x}", instance.memory.address()),
        "bytes": instance.memory.len(),
        "symbols": symbols,
    });
    match instance.memory.fd().try_clone_to_owned() {
        Ok(fd) => Answer::WithFd(document, fd),
        Err(error) => Refusal::failed(format!("the memory cannot be shared: {error}"), "").into(),
    }
}

/// Moves a path without a handler, if there is one of this name.
fn move_live(node: &mut Node, name: &str, tier: Tier) -> Option<Answer> {
    node.live.find(name)?;
    Some(node.move_live(name, tier).into())
}

fn demote(node: &mut Node, name: &str) -> Answer {
    if let Some(moved) = move_live(node, name, Tier::User) {
        return moved;
    }
    match find(node, name) {
        Ok(path) => {
            let moved = node.demote(path).map(|()| path);
            node.moved_to(moved, false)
        }
        Err(refusal) => refusal.into(),
    }
}

fn enable(node: &Node, name: &str) -> Answer {
    if let Some(live) = node.live.find(name).and_then(|id| node.live.at(id)) {
        return node.enable_live(live).into();
    }
    match find(node, name) {
        Ok(path) => node.enable(path).into(),
        Err(refusal) => refusal.into(),
    }
}

pub(super) fn find(node: &Node, name: &str) -> Result<PathId, Refusal> {
    node.path(name).ok_or_else(|| {
        let names = node.paths.values().map(|path| path.config.name.as_str());
        let names: Vec<_> = names.chain(node.live.names()).take(20).collect();
        unknown("path", name, &names)
    })
}

/// The document behind `ashway status -j`.
fn describe(node: &mut Node) -> Value {
    for (iface, config) in node.ifaces.iter_mut().zip(&node.config.ifaces) {
        iface.ask_driver(&config.name);
    }
    let live = node.list();
    let not_listed = node.live.len() - live.len();
    let run = node.live.run();
    json!({
        "node": node.config.node.name,
        "interfaces": (0..node.ifaces.len()).map(|i| interface(node, i)).collect::<Vec<_>>(),
        "handlers": node.handlers.keys().map(|id| handler(node, *id, &run)).collect::<Vec<_>>(),
        "paths": node.paths.keys().map(|id| path(node, *id)).chain(live).collect::<Vec<_>>(),
        "paths_not_listed": not_listed,
        "live": node.sum_of_live(),
        "operations": node.operations.describe(),
        "taps": node.served.taps.describe(),
    })
}

pub(super) fn row(node: &Node, of: CounterRow) -> Row {
    let mut row = node.rows.row(of);
    if let Some(maps) = &node.maps {
        // The map is ours and the row exists: this does not fail.
        let _ = row.add_kernel(&maps.counters, of);
    }
    row
}

fn interface(node: &Node, number: usize) -> Value {
    use ashway_abi::Count;
    let iface = &node.ifaces[number];
    let name = &node.config.ifaces[number].name;
    let unmatched = row(node, node.plan.ifaces[number].unmatched_row);
    let reply = match &iface.xdp {
        None => "packet",
        Some(xdp) => match xdp.reply {
            Reply::Transmit => "xdp_tx",
            Reply::Redirect => "redirect",
            Reply::Exit => "tcx",
        },
    };
    json!({
        "name": name,
        "ifindex": iface.ifindex,
        "mode": match iface.state {
            State::Up => iface.rung.name(),
            State::Down => "down",
            State::Detached | State::Gone | State::Anew => "gone",
        },
        "hint": iface.state.hint(name),
        "mac": node.links[number].mac().to_string(),
        "mac_changes": iface.mac_changes,
        "rx_queues": iface.facts.queues,
        "reply": reply,
        "udp_checksum": "checked; none or partial accepted",
        "consumes": iface.consumes,
        "unmatched": { "passed": unmatched.get(Count::Passed) },
        "lost_after_hand_over": {
            "driver": iface.lost_by_driver(),
        },
    })
}

/// A handler; `run` are the instances that paths of modules run, in the user tier.
fn handler(node: &Node, id: HandlerId, run: &HashSet<HandlerId>) -> Value {
    let instance = &node.handlers[&id].shared;
    let paths = node.plan.instances[&id].paths.iter();
    let paths = paths.map(|path| &node.paths[path]);
    let tiers = paths.clone().map(|path| path.tier.word());
    let live = run.contains(&id).then_some(Tier::User.word());
    let mut tiers: Vec<&str> = tiers.chain(live).collect();
    tiers.sort_unstable();
    tiers.dedup();
    if tiers.is_empty() {
        tiers.push("unbound");
    }
    let mut paths = paths;
    let promotion = paths
        .find_map(|path| match &path.promotion {
            Promotion::NotAsked => None,
            Promotion::Done(promoted) => Some(json!({
                "state": if path.tier == Tier::Kernel { "promoted" } else { "user" },
                "because": (path.tier == Tier::User).then(|| match &path.demoted {
                    Some(because) => format!("demoted: {because}"),
                    None => "demoted by hand".to_owned(),
                }),
                "hint": (path.tier == Tier::User).then_some("`ashway path promote` moves it back"),
                "insns": promoted.insns,
                "verified_insns": promoted.program.verified_insns(),
                "translate_us": promoted.translate.as_micros() as u64,
                "load_us": promoted.load.as_micros() as u64,
                "switch_ns": path.switch_ns,
                "second_try": promoted.second_try,
            })),
            Promotion::Refused(refused) => Some(json!({
                "state": "user",
                "because": refused.because,
                "line": refused.line,
                "hint": refused.hint,
            })),
        })
        .unwrap_or_else(|| json!({ "state": "user" }));
    let fault = instance.last_fault().map(|fault| {
        json!({
            "count": fault.count,
            "cause": fault.cause.map(ashway_abi::Cause::name),
            "file": fault.line.as_ref().map(|(file, _)| file),
            "line": fault.line.as_ref().map(|(_, line)| line),
            "at": fault.at,
            // What a verdict was is not recorded; this is the likeliest.
            "hint": (fault.cause == Some(ashway_abi::Cause::BadVerdict) && !instance.may_reply())
                .then(|| {
                    format!(
                        "was it `reply`? that takes `allow = [\"reply\"]` in `[handler.{}]`, or \
                         `handler load --allow reply`",
                        instance.name
                    )
                }),
        })
    });
    let version = instance.version();
    let former: Vec<_> = instance
        .versions
        .former()
        .iter()
        .rev()
        .map(|former| json!({ "digest": former.digest, "file": former.file }))
        .collect();
    let allow = &node.config_of(instance).allow;
    let allow: Vec<_> = allow.iter().map(|grant| grant.word()).collect();
    let param = |(name, value): (&String, &Param)| {
        let value = match value {
            Param::Number(number) => json!(number),
            Param::Text(text) => json!(text),
        };
        (name.clone(), value)
    };
    let params: Map<_, _> = version.params.iter().map(param).collect();
    json!({
        "name": instance.name,
        "tier": tiers.join(","),
        "memory": instance.memory.kind().name(),
        "bytes": instance.memory.len(),
        "endpoint": instance.endpoint().map(|(endpoint, place)| json!({
            "slots": place.layout.endpoint_slots,
            "reader": endpoint.reader(),
        })),
        "owner": owners::shown(instance.owner.as_ref()),
        "digest": version.digest,
        "file": version.file,
        "allow": allow,
        "params": params,
        "state": version.kept.map(|kept| json!({ "bytes": kept.bytes, "version": kept.version })),
        "former": former,
        "promotion": promotion,
        "last_fault": fault,
    })
}

pub(super) fn path(node: &Node, id: PathId) -> Value {
    let path = &node.paths[&id];
    let (config, plan) = (&path.config, &node.plan.paths[&id]);
    let end = node.end(id);
    let purse = end.as_ref().and_then(|end| end.share.as_deref());
    let waiting = node.handlers[&plan.handler].shared.in_user(plan.local);
    let mut document = status::counts(&row(node, plan.row), waiting.into());
    document.insert("name".to_owned(), json!(config.name));
    document.insert("iface".to_owned(), json!(config.ifaces));
    document.insert("handler".to_owned(), json!(config.handler));
    document.insert("function".to_owned(), json!(config.function));
    document.insert("tier".to_owned(), json!(path.tier.word()));
    document.insert("match".to_owned(), json!(config.filter.text));
    let stays = match &path.promotion {
        Promotion::Refused(refused) => json!({
            "asked": config.tier.word(),
            "because": refused.because,
            "line": refused.line,
            "hint": refused.hint,
        }),
        _ => Value::Null,
    };
    document.insert("stays".to_owned(), stays);
    document.insert("owner".to_owned(), owners::shown(path.owner.as_ref()));
    document.insert("on_fault".to_owned(), json!(config.on_fault.word()));
    let (faults, bypass) = node.describe_faults(id);
    document.insert("faults".to_owned(), faults);
    document.insert("bypass".to_owned(), bypass);
    document.insert(
        "budget_ns".to_owned(),
        json!(config.budget.as_nanos() as u64),
    );
    if let Some(share) = config.share {
        let mode = match path.tier {
            Tier::Kernel => node.handlers[&plan.handler].shared.mode(plan.local),
            _ => purse.map(|purse| purse.mode(monotonic_ns())),
        };
        document.insert("share".to_owned(), json!(share.to_string()));
        document.insert("mode".to_owned(), json!(mode.map(Mode::name)));
    }
    Value::Object(document)
}
