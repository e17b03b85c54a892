//! A running node's main loop: signals, the control socket, what has been
//! compiled, the clock.

use std::io::{IsTerminal, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path as FsPath;
use std::time::{Duration, Instant};

use ashway_api::answer::{Confirmed, HandlerMemory, Lines, LogLine, Moved};
use ashway_api::request::Log;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde_json::Value;

use super::authority::Authority;
use super::looks::{Look, Looks};
use super::operation::Report;
use super::operations::{Job, Step};
use super::{Node, RunError, RunOptions, status};
use crate::control::{Answer, Caller, Control};
use crate::request::{self, Refusal, Request};
use ashway_config::Tier;
use ashway_worker::log::Line;
use ashway_worker::say::{plural, say};

/// Where signals are told.
#[derive(Debug)]
pub struct Told {
    /// To end.
    pub stop: UnixStream,
    /// To read the configuration again. It does not block.
    pub again: UnixStream,
    /// Whether the node was started from a terminal.
    pub on_terminal: bool,
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
///
/// # Errors
///
/// [`RunError`]: why it cannot go on.
pub fn serve(
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
    node.drop_far_ends();
    // Behind the promotions of the start; its programs are made, and may not be in their
    // place yet, when the node says that it is ready.
    node.begin_entries();
    let socket = options.socket.clone();
    let start = node.operations.next("start", "", Report::Nobody);
    node.submit(start, Step::Start { socket }, Job::Nothing);
    let mut looks = Looks::new(Instant::now());
    loop {
        // Whoever created paths has the answer.
        node.look_up_neighbours();
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
            node.run_shell_commands();
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
            if options.until_end && node.have_captures_ended()? {
                return Ok(());
            }
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

impl Node {
    /// Says that the node is ready.
    pub(super) fn say_ready(&self, socket: &FsPath) {
        // Those to the instances of a handler are one.
        let others = self.plan.paths.values().filter(|path| path.nth > 0).count();
        say(&format!(
            "ready: {} on {}; control socket {}",
            plural(self.paths.len() - others, "path"),
            plural(self.ifaces.len(), "interface"),
            socket.display()
        ));
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
    for (request, caller) in node.each_request(request, caller) {
        answer_one(node, engine, trial, request, caller);
    }
}

/// The same of a request about one path.
fn answer_one(
    node: &mut Node,
    engine: &ashway_handler::Engine,
    trial: &mut Option<Instant>,
    request: Request,
    caller: Caller,
) {
    let answer = match request {
        Request::Plan(plan) => return node.apply_asked(&plan.file, true, caller),
        Request::Apply(change) => return node.apply_asked(&change.file, false, caller),
        Request::Load(load) => return node.load(&load, engine, caller),
        Request::Bind(bind) => return node.bind(bind, caller),
        Request::Observe(observe) => return node.observe(&observe, caller),
        Request::Endpoint(endpoint) => node.open_endpoint(&endpoint.handler, &caller),
        Request::Promote(promoted) => return node.promote_asked(&promoted, caller),
        Request::Demote(demoted) => demote(node, &demoted.path, &caller.authority).into(),
        Request::Enable(enabled) => {
            let id = node.path_for(&caller.authority, &enabled.path);
            id.and_then(|id| node.enable(id)).into()
        }
        Request::Create(create) => node.create(create, &caller).into(),
        Request::Remove(remove) => node.remove(&remove.paths, &caller.authority).into(),
        Request::Show(show) => node.show(&show.path, &caller.authority).into(),
        Request::Faults(faults) => list_faults(node, faults.handler.as_deref()),
        Request::Log(request) => log(node, &request),
        Request::Fault(fault) => node.faults.export(fault.fault).into(),
        Request::Swap(swap) => return node.swap(&swap, engine, caller),
        Request::Rollback(rollback) => return node.rollback(&rollback.handler, engine, caller),
        Request::Unbind(unbind) => node.unbind(&unbind.path, &caller.authority).into(),
        Request::Unload(unload) => node.unload(&unload.handler).into(),
        Request::Status(_) => Answer::Ok(status::describe(node).into()),
        Request::Demux(demux) => node.show_demux(demux.iface.as_deref()).into(),
        Request::Why(why) => {
            let mut status = status::describe(node);
            // It does not list every path.
            for name in [Some(&why.about), why.path.as_ref()].into_iter().flatten() {
                let is_listed = status.paths.iter().any(|path| path.base.name == *name);
                if !is_listed && let Ok(path) = node.show(name, &caller.authority) {
                    status.paths.push(path);
                    status.paths_not_listed = status.paths_not_listed.saturating_sub(1);
                }
            }
            let look = node.looks();
            crate::why::answer(&node.config, &status, &look, &why).into()
        }
        Request::Cancel(cancel) => node.cancel(cancel.operation).into(),
        Request::Confirm(_) => {
            let was_on_trial = trial.take().is_some();
            Answer::Ok(Confirmed { was_on_trial }.into())
        }
        Request::Memory(memory) => share_memory(node, &memory.handler),
    };
    caller.answer(answer);
}

/// The faults of a handler, or of all; those of one that is unloaded are gone with it.
fn list_faults(node: &Node, handler: Option<&str>) -> Answer {
    match handler.map(|handler| node.handlers_for(handler)) {
        Some(Err(refusal)) => refusal.into(),
        _ => Answer::Ok(node.faults.list(handler).into()),
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
        let path = &node.paths.bound(its.id);
        // It may be of one that had the row before.
        let is_its = line.is_behind(path.lines_before);
        is_its.then_some(path.config.name.as_str())
    };
    let lines = look.lines.iter().map(|line| LogLine {
        number: line.number,
        at_ns: line.at_ns,
        path: path_of(line).map(str::to_owned),
        text: ashway_worker::log::harmless(&line.bytes),
    });
    let lines = Lines {
        handler: instance.name.clone(),
        lines: lines.collect(),
        last: look.last,
        overwritten: look.overwritten,
        too_many: look.too_many,
    };
    Answer::Ok(lines.into())
}

fn share_memory(node: &Node, handler: &str) -> Answer {
    let instance = match node.find_handler(handler) {
        Ok((_, handler)) => &handler.shared,
        Err(refusal) => return refusal.into(),
    };
    let version = instance.version();
    let symbols = version.compiled.symbols().iter();
    let memory = HandlerMemory {
        kind: instance.memory.mapped.kind().name().into(),
        address: format!("{:#x}", instance.memory.mapped.address()),
        bytes: instance.memory.mapped.len() as u64,
        symbols: symbols
            .map(|(name, at)| (name.clone(), u64::from(*at)))
            .collect(),
    };
    match instance.memory.mapped.fd().try_clone_to_owned() {
        Ok(fd) => Answer::WithFd(memory.into(), fd),
        Err(error) => Refusal::failed(format!("the memory cannot be shared: {error}"), "").into(),
    }
}

/// Moves a path to the user tier.
fn demote(node: &mut Node, name: &str, authority: &Authority) -> Result<Moved, Refusal> {
    let id = node.path_for(authority, name)?;
    if node.paths.frames(id).is_some() {
        return node.move_relay(id, Tier::User);
    }
    let moved = node.demote(id).map(|()| id);
    node.moved_to(moved, false)
}
