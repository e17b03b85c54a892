//! Changing a running node: `load` makes an instance that nothing reaches,
//! `bind` leads messages to it, `unbind` leads them back to the host (ASH-2).
//!
//! What has to be compiled is, on its own thread, before anything else is
//! touched; a caller waits for that, the node does not. By then the node may
//! have changed: the request is checked against it again.
//!
//! Everything that can fail is made first; then one exchange for each interface
//! puts the new entry program in place of the old one (`BPF_LINK_UPDATE`). Each
//! message meets one of the two, so other paths notice nothing.

use std::sync::Arc;
use std::time::Instant;

use ashway_handler::{Engine, Function};
use ashway_kernel::Program;
use rustix::thread::{MembarrierCommand, membarrier};
use serde_json::{Value, json};

use super::dispatch::{self, Entry};
use super::world;
use super::{Node, NodePath, Promotion, RunError};
use crate::activation::Bindable;
use crate::config::{HandlerConfig, PathConfig, Tier, suggest};
use crate::control::Caller;
use crate::instance::{Instance, NotPromoted, Promoted};
use crate::packets::Matched;
use crate::plan::{IfaceFacts, InstancePlan, NoRoom, Plan};
use crate::request::{self, Refusal};
use crate::runner::RunInstance;
use crate::worker::Change;

/// New entry programs by interface, loaded and not yet used.
type Entries = Vec<(usize, Program)>;

impl Node {
    /// Makes an instance of a handler and answers `caller`. No message reaches
    /// it before [`bind`](Self::bind).
    pub(super) fn load(&mut self, request: &Value, engine: &Engine, caller: Caller) {
        let begin = Instant::now();
        let handler = match request::handler(request, &self.config) {
            Ok(handler) => handler,
            Err(refusal) => return caller.answer(Err(refusal)),
        };
        let facts: Vec<IfaceFacts> = self.ifaces.iter().map(|iface| iface.facts).collect();
        let plan = InstancePlan::unbound(&facts);
        let (engine, maps, arena) = (engine.clone(), self.maps.clone(), self.arena);
        self.compile_thread.submit(
            move || {
                let made = Instance::create(&handler, &[], &plan, &engine, maps.as_deref(), arena);
                (handler, plan, made)
            },
            move |node, (handler, plan, made)| {
                caller.answer(
                    made.map_err(|error| refusal(&RunError::Instance(error)))
                        .and_then(|made| node.add_instance(handler, plan, made, begin)),
                );
            },
        );
    }

    fn add_instance(
        &mut self,
        handler: HandlerConfig,
        plan: InstancePlan,
        (instance, wasm): (Instance, ashway_handler::Instance),
        begin: Instant,
    ) -> Result<Value, Refusal> {
        // Another file may have got the name while this one was compiled.
        request::check_free(&handler.name, &self.config)?;
        let made = Bindable::new(instance, wasm, &self.rows);
        let shared = Arc::clone(&made.shared);
        let mut config = self.config.clone();
        config.handlers.push(handler);
        let mut bindable = self.bindable.clone();
        bindable.push(made);
        let graph =
            world::graph(&config, &self.links, &bindable).map_err(|error| refusal(&error))?;
        let run = RunInstance {
            shared: Arc::clone(&shared),
            paths: Vec::new(),
        };
        self.tell(Change::Instance(run))?;
        (self.config, self.bindable, self.graph) = (config, bindable, graph);
        let answer = json!({
            "handler": shared.name,
            "digest": shared.digest,
            "functions": shared.functions().collect::<Vec<_>>(),
            "took_us": begin.elapsed().as_micros() as u64,
        });
        self.instances.push(shared);
        self.plan.instances.push(plan);
        Ok(answer)
    }

    /// Makes a path that ends in a handler that is there, and answers `caller`.
    /// A handler for the kernel tier is compiled first; the path is made, and
    /// `request` read once more, when that is done.
    pub(super) fn bind(&mut self, request: Value, caller: Caller) {
        let begin = Instant::now();
        let wanted = request::path(&request, &self.config)
            .and_then(|path| self.function(&path).map(|_| path));
        match wanted {
            Err(refusal) => caller.answer(Err(refusal)),
            Ok(path) if path.tier == Tier::User => {
                caller.answer(self.add_path(&request, None, begin));
            }
            Ok(path) => self.compile(&path, move |node, compiled| {
                caller.answer(node.add_path(&request, Some(compiled), begin));
            }),
        }
    }

    /// Adds a path; `compiled` is for the kernel tier, if that is wanted.
    fn add_path(
        &mut self,
        request: &Value,
        compiled: Option<Result<Promoted, NotPromoted>>,
        begin: Instant,
    ) -> Result<Value, Refusal> {
        let path = request::path(request, &self.config)?;
        self.function(&path)?;
        let instance = position(&self.config.handlers, |h| h.name == path.handler);
        let ifaces: Vec<usize> = path
            .ifaces
            .iter()
            .map(|name| position(&self.config.ifaces, |iface| iface.name == *name))
            .collect();
        let shared = &self.instances[instance];
        let numbers = self
            .plan
            .place(
                instance,
                &ifaces,
                |iface| self.ifaces[iface].xdp.is_some(),
                |local| shared.in_user(local) == 0,
            )
            .map_err(|what| self.no_room(&what))?;

        let before = self.plan.clone();
        let faults_seen = shared.faults();
        self.plan.add_path(numbers);
        self.config.paths.push(path);
        self.paths.push(NodePath {
            tier: Tier::User,
            promotion: Promotion::NotAsked,
            switch_ns: 0,
            faults_seen,
            demoted: false,
        });
        let number = self.paths.len() - 1;
        match self.connect(number, compiled) {
            Ok((stays, exchange_us)) => Ok(json!({
                "path": self.config.paths[number].name,
                "handler": self.config.paths[number].handler,
                "match": self.config.paths[number].match_text,
                "iface": self.config.paths[number].ifaces,
                "tier": self.paths[number].tier.word(),
                "because": stays.as_ref().map(|stays| &stays.because),
                "line": stays.as_ref().and_then(|stays| stays.line.as_ref()),
                "hint": stays.as_ref().map(|stays| &stays.hint),
                "took_us": begin.elapsed().as_micros() as u64,
                "exchange_us": exchange_us,
            })),
            Err(refusal) => {
                let placed = std::mem::replace(&mut self.plan, before);
                self.config.paths.pop();
                self.paths.pop();
                for &iface in &ifaces {
                    self.show_worker(iface);
                }
                self.clear_slots(&placed.paths[number].slots);
                Err(refusal)
            }
        }
    }

    /// Takes a path away: its messages are the host's again. What has been
    /// received is still worked on; its counters end with it.
    ///
    /// # Errors
    ///
    /// Why not; nothing has changed.
    pub(super) fn unbind(&mut self, path: &Value) -> Result<Value, Refusal> {
        let begin = Instant::now();
        let name = path.as_str().unwrap_or("");
        let known = self.config.paths.iter();
        let Some(number) = known.clone().position(|path| path.name == name) else {
            let names: Vec<_> = known.map(|path| path.name.as_str()).collect();
            return Err(request::unknown("path", name, &names));
        };
        let mut plan = self.plan.clone();
        plan.remove_path(number);
        let mut paths = self.config.paths.clone();
        paths.remove(number);
        let slots = self.plan.paths[number].slots.clone();
        let entries = self.load_entries(&paths, &plan, &slots)?;
        // The host first: a message it gets twice is better than one that
        // nobody gets.
        for &(iface, _) in &slots {
            let matched = dispatch::matched(&paths, &plan, iface);
            if let Err(refusal) = self.show_host(iface, &matched) {
                self.show_host_all(&slots);
                return Err(refusal);
            }
        }
        if let Err(refusal) = self.exchange(entries) {
            self.show_host_all(&slots);
            return Err(refusal);
        }
        self.plan = plan;
        self.config.paths = paths;
        for &(iface, _) in &slots {
            self.show_worker(iface);
        }
        // A poll that began before the exchange may be in the old entry
        // program; an RCU grace period ends behind every such poll. Then the
        // numbers are free for the next path.
        let _ = membarrier(MembarrierCommand::Global);
        self.clear_slots(&slots);
        self.paths.remove(number);
        Ok(json!({ "path": name, "took_us": begin.elapsed().as_micros() as u64 }))
    }

    /// Brings the last path of the lists to life. Says why it stays in the user
    /// tier, if it was to run in the kernel tier and cannot, and how long the
    /// exchange took.
    fn connect(
        &mut self,
        number: usize,
        compiled: Option<Result<Promoted, NotPromoted>>,
    ) -> Result<(Option<NotPromoted>, u64), Refusal> {
        let slots = self.plan.paths[number].slots.clone();
        let entries = self.load_entries(&self.config.paths, &self.plan, &slots)?;
        let stays = compiled.and_then(|compiled| self.install(number, compiled).err());
        if self.paths[number].tier == Tier::User {
            self.demote(number).map_err(Refusal::from)?;
        }
        if let (Tier::Kernel, Some(why)) = (self.config.paths[number].tier, &stays) {
            return Err(why.clone().into());
        }
        let plan = &self.plan.paths[number];
        let runs = dispatch::path_runs(&self.graph, &self.config.paths[number], plan)
            .map_err(|error| refusal(&error.into()))?;
        let change = Change::Path {
            instance: plan.instance,
            local: plan.local,
            runs,
        };
        self.tell(change)?;
        for &(iface, _) in &slots {
            self.show_worker(iface);
            let matched = dispatch::matched(&self.config.paths, &self.plan, iface);
            self.show_host(iface, &matched)?;
        }
        let begin = Instant::now();
        self.exchange(entries)?;
        Ok((stays, begin.elapsed().as_micros() as u64))
    }

    fn load_entries(
        &self,
        paths: &[PathConfig],
        plan: &Plan,
        slots: &[(usize, usize)],
    ) -> Result<Entries, Refusal> {
        let mut entries = Vec::new();
        for &(iface, _) in slots {
            let (Some(xdp), Some(maps)) = (&self.ifaces[iface].xdp, &self.maps) else {
                continue;
            };
            let entry = Entry {
                maps,
                slots: &xdp.slots,
                mac: xdp.mac,
                reply: xdp.reply,
                arena: self.arena,
            };
            let program = entry.load(&self.config, paths, plan, iface);
            entries.push((iface, program.map_err(|error| refusal(&error))?));
        }
        Ok(entries)
    }

    /// Puts new entry programs in place of the old ones: all or none.
    fn exchange(&mut self, entries: Entries) -> Result<(), Refusal> {
        for (done, (iface, program)) in entries.iter().enumerate() {
            let Some(xdp) = &self.ifaces[*iface].xdp else {
                continue;
            };
            let Err(error) = xdp.link.update(program) else {
                continue;
            };
            for (earlier, _) in &entries[..done] {
                if let Some(xdp) = &self.ifaces[*earlier].xdp {
                    // It ran there until a moment ago.
                    let _ = xdp.link.update(&xdp.entry);
                }
            }
            let name = &self.config.ifaces[*iface].name;
            return Err(Refusal::failed(
                format!("`{name}` does not take another entry program: {error}"),
                "was Ashway detached from it? `ashway doctor` shows who has it",
            ));
        }
        for (iface, program) in entries {
            if let Some(xdp) = &mut self.ifaces[iface].xdp {
                xdp.entry = program;
            }
        }
        Ok(())
    }

    /// Has the worker make a change.
    fn tell(&mut self, change: Change) -> Result<(), Refusal> {
        self.worker.change(change).map_err(|error| {
            Refusal::failed(
                error.to_string(),
                "this is a bug of Ashway; please report it",
            )
        })
    }

    /// Tells the worker of an interface's paths, if it takes messages there
    /// from a packet socket.
    fn show_worker(&mut self, iface: usize) {
        if self.ifaces[iface].xdp.is_some() {
            return;
        }
        let before = self.ifaces[..iface].iter();
        let port = before.filter(|iface| iface.xdp.is_none()).count();
        let paths = dispatch::matched(&self.config.paths, &self.plan, iface);
        // A worker that does not answer works for nobody any more.
        let _ = self.tell(Change::Matched { port, paths });
    }

    /// Keeps these messages, and no others, from the host's stack, where XDP
    /// does not do so.
    fn show_host(&mut self, iface: usize, matched: &[Matched]) -> Result<(), Refusal> {
        let Some(rule) = &mut self.drop_rules[iface] else {
            return Ok(());
        };
        rule.replace(&dispatch::drop_matches(matched))
            .map_err(|error| {
                let name = &self.config.ifaces[iface].name;
                Refusal::failed(
                    format!("cannot change the drop rule of `{name}`: {error}"),
                    error.hint(),
                )
            })
    }

    /// Puts the drop rules back as the present plan has them.
    fn show_host_all(&mut self, slots: &[(usize, usize)]) {
        for &(iface, _) in slots {
            let matched = dispatch::matched(&self.config.paths, &self.plan, iface);
            // What cannot be changed has not been changed either.
            let _ = self.show_host(iface, &matched);
        }
    }

    fn clear_slots(&self, slots: &[(usize, usize)]) {
        for &(iface, slot) in slots {
            if let Some(xdp) = &self.ifaces[iface].xdp {
                // Nobody goes there: what stays is only not freed.
                let _ = xdp.slots.clear_slot(slot as u32);
            }
        }
    }

    fn function(&self, path: &PathConfig) -> Result<Function, Refusal> {
        let instance = position(&self.config.handlers, |h| h.name == path.handler);
        let instance = &self.instances[instance];
        instance.function(&path.function).ok_or_else(|| {
            let known: Vec<_> = instance.functions().collect();
            Refusal {
                code: "handler_refused",
                message: format!(
                    "handler `{}` exports no function `{}` of type (i32, i32) -> i32",
                    path.handler, path.function
                ),
                hint: suggest(&path.function, &known),
            }
        })
    }

    fn no_room(&self, what: &NoRoom) -> Refusal {
        let iface = |iface: usize| &self.config.ifaces[iface].name;
        match *what {
            NoRoom::Iface(number) => Refusal::failed(
                format!(
                    "`{}` has {} paths, and there is no room for more",
                    iface(number),
                    crate::plan::SLOTS
                ),
                "unbind one that is not needed",
            ),
            NoRoom::Ring(number, instance) => Refusal::failed(
                format!(
                    "handler `{}` was made for other interfaces than `{}`",
                    self.instances[instance].name,
                    iface(number)
                ),
                "load its file once more, under another name, and bind that",
            ),
            NoRoom::Handler(1) => Refusal::failed(
                "this handler was made for the one path of the configuration".to_owned(),
                "load its file once more, under another name, and bind that",
            ),
            NoRoom::Handler(most) => Refusal::failed(
                format!("this handler has {most} paths, and there is no room for more"),
                "load its file once more, under another name, and bind that",
            ),
            NoRoom::Rows => Refusal::failed(
                format!(
                    "this node has bound {} paths since its start, and there is no row of \
                     counters left",
                    crate::plan::SPARE_ROWS
                ),
                "start the node afresh",
            ),
        }
    }
}

fn position<T>(list: &[T], is_it: impl Fn(&T) -> bool) -> usize {
    list.iter()
        .position(is_it)
        .expect("a checked request names what the node has")
}

impl From<NotPromoted> for Refusal {
    fn from(why: NotPromoted) -> Self {
        Self {
            code: "handler_refused",
            message: match why.line {
                Some(line) => format!("{line}: {}", why.because),
                None => why.because,
            },
            hint: why.hint,
        }
    }
}

fn refusal(error: &RunError) -> Refusal {
    let (message, causes, hint) = error.report();
    Refusal {
        // The names of the CLI's exit codes.
        code: match error.exit_code() {
            2 => "usage",
            3 => "handler_refused",
            4 => "privilege_missing",
            6 => "not_supported",
            _ => "failed",
        },
        message: std::iter::once(message)
            .chain(causes)
            .collect::<Vec<_>>()
            .join(": "),
        hint: hint.unwrap_or_default(),
    }
}
