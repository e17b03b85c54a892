//! What has to change so that a node does what another configuration says.
//!
//! Pure: two configurations in, steps and mistakes out. What was loaded and bound by hand
//! has no line in any file; it stays, and whoever uses it is refused a change of what it
//! stands on. Which paths follow a change of modules only the graph knows: they are
//! [added](Difference::reroute).

use std::collections::{BTreeMap, BTreeSet};

use crate::attributes;
use crate::bug::{self, Bug};
use crate::instances::instance_of;
use crate::types::{Attach, Config, HandlerConfig, LongPath, PathConfig, Tier};

mod step;
#[cfg(test)]
mod tests;

pub use step::{Act, Mistake, Step, What};

/// What a node knows beside its configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Handlers that run another file than the next configuration names: another content.
    pub other_files: BTreeSet<String>,
    /// Paths of modules that no file names, each with its domain.
    pub module_paths_by_hand: BTreeMap<String, Option<String>>,
}

/// Everything that has to change, and everything that cannot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// What is done.
    pub steps: Vec<Step>,
    /// How many handlers and paths are as they were.
    pub unchanged: usize,
    /// What cannot be done.
    pub mistakes: Vec<Mistake>,
}

/// Compares what a node does with what it is to do.
#[must_use]
pub fn difference(now: &Config, next: &Config, facts: &Facts) -> Difference {
    let mut found = Difference::default();
    found.node(now, next);
    found.domains(now, next, facts);
    found.handlers(now, next, facts);
    found.paths(now, next, facts);
    found.mistakes.sort_by_key(|mistake| mistake.line);
    found.steps.sort();
    found
}

/// Why something of a node must stay what it is.
const ANEW: &str = "start the node anew with this file";

impl Difference {
    /// The names of all with which one of these is done.
    #[must_use]
    pub fn names(&self, what: What, acts: &[Act]) -> BTreeSet<String> {
        let steps = self.steps.iter();
        let steps = steps.filter(|step| step.what == what && acts.contains(&step.act));
        steps.map(|step| step.name.clone()).collect()
    }

    fn step(&mut self, act: Act, what: What, name: &str, line: usize, keys: Vec<&'static str>) {
        self.steps.push(Step {
            what,
            act,
            name: name.to_owned(),
            line,
            keys,
            because: None,
        });
    }

    fn mistake(&mut self, line: usize, message: String, hint: impl Into<String>) {
        self.mistakes.push(Mistake::new(line, message, hint));
    }

    /// Adds what is done with modules.
    pub fn modules(&mut self, go: &[String], come: &[String]) {
        for name in go {
            let act = if come.contains(name) {
                Act::Change
            } else {
                Act::Remove
            };
            self.step(act, What::Module, name, 0, Vec::new());
        }
        for name in come.iter().filter(|name| !go.contains(name)) {
            self.step(Act::Create, What::Module, name, 0, Vec::new());
        }
        self.steps.sort();
    }

    /// Says from where to where an interface moves; one of which its section says nothing new
    /// moves along.
    pub fn moves(&mut self, name: &str, line: usize, because: String) {
        let mut steps = self.steps.iter_mut();
        let known = steps.find(|step| step.what == What::Iface && step.name == name);
        if let Some(step) = known {
            step.because = Some(because);
        } else {
            self.step(Act::Move, What::Iface, name, line, Vec::new());
            return self.moves(name, line, because);
        }
        self.steps.sort();
    }

    /// Says of a path that is to run in the kernel tier why it stays in the user tier.
    pub fn stays(&mut self, name: &str, because: &str) {
        let mut steps = self.steps.iter_mut();
        let known = steps.find(|step| step.what == What::Path && step.name == name);
        if let Some(step) = known {
            let stays = format!("it stays in the user tier: {because}");
            step.because = Some(match step.because.take() {
                Some(why) => format!("{why}; {stays}"),
                None => stays,
            });
        }
    }

    /// Has a path of both configurations follow what it leads through: what is another, if it
    /// can be named.
    pub fn reroute(&mut self, name: &str, line: usize, another: Option<String>) {
        let another_way = || "it leads another way".to_owned();
        let mut steps = self.steps.iter_mut();
        let known = steps.find(|step| step.what == What::Path && step.name == name);
        if let Some(step) = known {
            let is_move = matches!(step.act, Act::Move | Act::Reach);
            if is_move {
                step.act = Act::Change;
            }
            if step.act == Act::Change {
                // What leads it another way may be what its section says.
                step.because = another.or_else(|| is_move.then(another_way));
            }
        } else {
            self.unchanged -= counted(name);
            self.steps.push(Step {
                what: What::Path,
                act: Act::Change,
                name: name.to_owned(),
                line,
                keys: Vec::new(),
                because: Some(another.unwrap_or_else(another_way)),
            });
        }
        self.steps.sort();
    }

    fn node(&mut self, now: &Config, next: &Config) {
        if now.node.name != next.node.name {
            let message = format!(
                "the node is called `{}`, and the file calls it `{}`",
                now.node.name, next.node.name
            );
            self.mistake(0, message, "start a node of that name with this file");
        }
        let place = |config: &Config| {
            let socket = config.node.socket.as_ref();
            socket.map(|socket| std::path::absolute(socket).unwrap_or_else(|_| socket.clone()))
        };
        if place(now) != place(next) {
            let message = "the file names another control socket".to_owned();
            self.mistake(0, message, ANEW);
        }
        for iface in &next.ifaces {
            match now.iface(&iface.name) {
                None => {
                    let (name, line) = (&iface.name, iface.line);
                    self.step(Act::Create, What::Iface, name, line, Vec::new());
                }
                Some(known) if known.attach != iface.attach => {
                    if moves(known.attach, iface.attach) {
                        let (name, line) = (&iface.name, iface.line);
                        self.step(Act::Move, What::Iface, name, line, vec!["attach"]);
                        continue;
                    }
                    let message = format!(
                        "interface `{}` has `attach = \"{}\"`, not \"{}\"",
                        iface.name,
                        known.attach.word(),
                        iface.attach.word()
                    );
                    let hint = "take the section out, apply, and put it back so; or start the node \
                                anew with this file";
                    self.mistake(iface.line, message, hint);
                }
                Some(known) if known.own != iface.own => {
                    let message = format!("interface `{}` was made another way", iface.name);
                    self.mistake(iface.line, message, ANEW);
                }
                Some(_) => {}
            }
        }
        let [before, after] = [now, next].map(|config| {
            let patterns = config.patterns.iter();
            let patterns = patterns.map(|it| (it.glob.text(), it));
            patterns.collect::<BTreeMap<_, _>>()
        });
        for (text, pattern) in &after {
            match before.get(text) {
                None => self.step(Act::Create, What::Iface, text, pattern.line, Vec::new()),
                Some(known) if known.attach != pattern.attach => {
                    let keys = vec!["attach"];
                    let act = if moves(known.attach, pattern.attach) {
                        Act::Move
                    } else {
                        Act::Change
                    };
                    self.step(act, What::Iface, text, pattern.line, keys);
                }
                Some(_) => {}
            }
        }
        for text in before.keys().filter(|text| !after.contains_key(*text)) {
            self.step(Act::Remove, What::Iface, text, 0, Vec::new());
        }
        for iface in &now.ifaces {
            if next.iface(&iface.name).is_none() {
                self.step(Act::Remove, What::Iface, &iface.name, 0, Vec::new());
            }
        }
    }

    fn domains(&mut self, now: &Config, next: &Config, facts: &Facts) {
        for domain in &now.domains {
            let name = Some(&domain.name);
            let follows = next.domains.iter().find(|known| known.name == domain.name);
            if follows == Some(domain) {
                continue;
            }
            let handlers = now.handlers.iter().filter(|handler| handler.line == 0);
            let handlers = handlers.filter(|handler| handler.domain.as_ref() == name);
            let handlers = handlers.map(|handler| format!("handler `{}`", handler.name));
            let paths = now.paths.iter().filter(|path| path.line == 0);
            let paths = paths.filter(|path| path.domain.as_ref() == name);
            let paths = paths.map(|path| &path.name);
            let by_hand = facts.module_paths_by_hand.iter();
            let by_hand = by_hand.filter(|(_, of)| of.as_ref() == name);
            let paths = paths.chain(by_hand.map(|(path, _)| path));
            let paths = paths.map(|path| format!("path `{path}`"));
            let users: Vec<_> = handlers.chain(paths).take(5).collect();
            if !users.is_empty() {
                let message = format!(
                    "cannot change domain `{}`, to which belongs what is in no file: {}",
                    domain.name,
                    users.join(", ")
                );
                self.mistake(0, message, "take that away first, or leave the domain");
                continue;
            }
            let (act, keys) = match follows {
                Some(_) => (Act::Change, vec!["owns"]),
                None => (Act::Remove, Vec::new()),
            };
            self.step(act, What::Domain, &domain.name, 0, keys);
        }
        for domain in &next.domains {
            if !now.domains.iter().any(|known| known.name == domain.name) {
                self.step(Act::Create, What::Domain, &domain.name, 0, Vec::new());
            }
        }
    }

    fn handlers(&mut self, now: &Config, next: &Config, facts: &Facts) {
        for handler in &next.handlers {
            let (name, line) = (&handler.name, handler.line);
            let Some(known) = now.handler(name) else {
                self.step(Act::Create, What::Handler, name, line, Vec::new());
                continue;
            };
            if known.line == 0 {
                let message = format!("handler `{name}` was loaded by hand");
                let hint = format!("`ashway handler unload {name}` first, or call this one else");
                self.mistake(line, message, hint);
                continue;
            }
            let anew = made_of(known, handler);
            if !anew.is_empty() {
                self.by_hand_on(now, name, line);
                if handler.send_port > 0 && handler.send_port == known.send_port {
                    let message = format!(
                        "handler `{name}` is to be loaded anew, and the one that runs holds port {}",
                        handler.send_port
                    );
                    self.mistake(line, message, "give it another `send_port`, or none");
                }
                self.step(Act::Change, What::Handler, name, line, anew);
                continue;
            }
            let file = facts.other_files.contains(name).then_some("file");
            let params = (known.params != handler.params).then_some("params");
            let keys: Vec<_> = file.into_iter().chain(params).collect();
            if keys.is_empty() {
                self.unchanged += counted(name);
            } else {
                self.step(Act::Swap, What::Handler, name, line, keys);
            }
        }
        for handler in &now.handlers {
            let name = &handler.name;
            if handler.line == 0 && !bug::is(Bug::ByHandGoes) {
                self.step(Act::Stay, What::Handler, name, 0, Vec::new());
            } else if next.handler(name).is_none() {
                self.by_hand_on(now, name, 0);
                self.step(Act::Remove, What::Handler, name, 0, Vec::new());
            }
        }
    }

    /// Refuses to take a handler away that a path is bound to which is in no file.
    fn by_hand_on(&mut self, now: &Config, handler: &str, line: usize) {
        let by_hand = |path: &&PathConfig| path.line == 0 && !bug::is(Bug::UsedGoes);
        for path in now.paths_of(handler).filter(by_hand) {
            let message = format!(
                "handler `{handler}` is used by path `{}`, which is in no file",
                path.name
            );
            self.mistake(
                line,
                message,
                format!("`ashway unbind {}` first", path.name),
            );
        }
    }

    fn paths(&mut self, now: &Config, next: &Config, facts: &Facts) {
        let before = forms(now);
        let after = forms(next);
        for (&name, form) in &after {
            let by_hand = facts.module_paths_by_hand.contains_key(name);
            match before.get(name) {
                Some(known) if known.line() == 0 => self.taken(name, form.line(), "unbind"),
                None if by_hand => self.taken(name, form.line(), "path rm"),
                None => self.step(Act::Create, What::Path, name, form.line(), Vec::new()),
                Some(known) => match known.keys(form).as_slice() {
                    [] => self.unchanged += counted(name),
                    ["tier"] => self.step(Act::Move, What::Path, name, form.line(), vec!["tier"]),
                    ["iface"] if form.is_one() => {
                        self.step(Act::Reach, What::Path, name, form.line(), vec!["iface"]);
                    }
                    keys => {
                        self.step(Act::Change, What::Path, name, form.line(), keys.to_vec());
                    }
                },
            }
        }
        for (name, form) in &before {
            if form.line() == 0 && !bug::is(Bug::ByHandGoes) {
                self.step(Act::Stay, What::Path, name, 0, Vec::new());
            } else if !after.contains_key(name) {
                self.step(Act::Remove, What::Path, name, 0, Vec::new());
            }
        }
        for name in facts.module_paths_by_hand.keys() {
            self.step(Act::Stay, What::Path, name, 0, Vec::new());
        }
    }

    fn taken(&mut self, name: &str, line: usize, verb: &str) {
        let message = format!("path `{name}` was made by hand");
        let hint = format!("`ashway {verb} {name}` first, or call this one else");
        self.mistake(line, message, hint);
    }
}

/// Whether an interface can be had in both ways while messages run: by programs at either hook.
const fn moves(from: Attach, to: Attach) -> bool {
    !from.is_user_only() && !to.is_user_only()
}

/// How many this is of those that people know: the instances of a handler are one.
fn counted(name: &str) -> usize {
    usize::from(instance_of(name).is_none_or(|(_, cpu)| cpu == 0))
}

/// The keys of a handler's section that its memory and its programs are made of, as far
/// as they say something else.
fn made_of(known: &HandlerConfig, next: &HandlerConfig) -> Vec<&'static str> {
    [
        ("allow", known.allow != next.allow),
        ("memory", known.memory != next.memory),
        ("instances", known.instances != next.instances),
        ("endpoint", known.endpoint != next.endpoint),
        ("channels", known.channels != next.channels),
        ("send_port", known.send_port != next.send_port),
        ("domain", known.domain != next.domain),
    ]
    .into_iter()
    .filter_map(|(key, other)| other.then_some(key))
    .collect()
}

/// A path in either form.
#[derive(Clone, Copy)]
enum Form<'c> {
    Short(&'c PathConfig),
    Long(&'c LongPath),
}

fn forms(config: &Config) -> BTreeMap<&str, Form<'_>> {
    let short = config.paths.iter();
    let short = short.map(|path| (path.name.as_str(), Form::Short(path)));
    let long = config.long_paths.iter();
    let long = long.map(|path| (path.name.as_str(), Form::Long(path)));
    short.chain(long).collect()
}

impl Form<'_> {
    /// Whether it is a path of one instance of its handler: others have places that follow
    /// each other.
    const fn is_one(&self) -> bool {
        match self {
            Self::Short(path) => path.cpu.is_none(),
            Self::Long(_) => true,
        }
    }

    const fn line(&self) -> usize {
        match self {
            Self::Short(path) => path.line,
            Self::Long(path) => path.line,
        }
    }

    /// The keys that say something else.
    fn keys(&self, next: &Self) -> Vec<&'static str> {
        let (said, says, attrs) = match (self, next) {
            (Self::Short(known), Self::Short(next)) => (short(known), short(next), Vec::new()),
            (Self::Long(known), Self::Long(next)) => {
                (long(known), long(next), other_attrs(known, next))
            }
            _ => return vec!["handler", "from"],
        };
        let other = said.into_iter().zip(says).filter(|(was, is)| was != is);
        other.map(|((key, _), _)| key).chain(attrs).collect()
    }
}

/// What a section says, key by key.
type Said = Vec<(&'static str, String)>;

fn short(path: &PathConfig) -> Said {
    let names = path.ifaces.iter().chain(&path.patterns);
    let mut ifaces: Vec<String> = names.cloned().collect();
    ifaces.sort_unstable();
    // A rate alone is of a whole CPU.
    let share = path.share;
    vec![
        ("iface", ifaces.join(" ")),
        ("match", path.filter.text.clone()),
        ("handler", format!("{}:{}", path.handler, path.function)),
        ("tier", tier(path.tier)),
        ("on_fault", path.on_fault.word().to_owned()),
        ("faults", format!("{:?}", path.faults)),
        ("budget", format!("{:?}", path.budget)),
        (
            "share",
            share.map_or(1_000, |share| share.per_mille).to_string(),
        ),
        ("rate", format!("{:?}", share.and_then(|share| share.rate))),
        ("order", path.order.word().to_owned()),
        ("queue", format!("{:?}", path.queue)),
        ("memory_bytes", format!("{:?}", path.memory_bytes)),
        ("domain", format!("{:?}", path.domain)),
    ]
}

fn long(path: &LongPath) -> Said {
    let filter = path.filter.as_ref().map(ToString::to_string);
    vec![
        ("from", path.from.clone()),
        ("match", filter.unwrap_or_default()),
        ("tier", tier(path.tier)),
        ("domain", format!("{:?}", path.domain)),
    ]
}

/// The attributes that say something else.
fn other_attrs(known: &LongPath, next: &LongPath) -> Vec<&'static str> {
    let names = known.attrs.iter().chain(next.attrs.iter());
    let names: BTreeSet<&str> = names.map(|(name, _)| name).collect();
    let other = names
        .into_iter()
        .filter(|name| known.attrs.value(name) != next.attrs.value(name));
    // The file was checked: there are such attributes.
    other.filter_map(attributes::name).collect()
}

fn tier(tier: Tier) -> String {
    tier.word().to_owned()
}
