//! Taking a handler out of a running node.
//!
//! Only one that nothing uses: whoever unloads says first, by `unbind` and `path rm`,
//! what becomes of its messages. What it has received is still worked on: the worker
//! lets it go when its rings are empty, and with it go its memory, its programs and
//! its descriptors.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use super::Node;
use super::world::{self, Changed};
use crate::request::Refusal;
use ashway_api::answer::Unloaded;
use ashway_config::whole_name;
use ashway_worker::plan::HandlerId;
use ashway_worker::worker::command::Command;

/// How many of its users a refusal names.
const NAMED: usize = 5;

/// What uses a handler.
#[derive(Clone, PartialEq, Eq, Hash)]
enum User {
    /// A path that is bound to it.
    Bound(String),
    /// A path of modules, one of which runs it.
    Path(String),
    /// A module of the configuration.
    Module(String),
}

impl Node {
    /// Unloads a handler: nothing of it is left but what a process has mapped.
    ///
    /// # Errors
    ///
    /// That there is none, or what uses it; nothing has changed.
    pub(super) fn unload(&mut self, name: &str) -> Result<Unloaded, Refusal> {
        let begin = Instant::now();
        let ids = self.whole_handlers_for(name)?;
        let mut users: Vec<User> = ids.iter().flat_map(|id| self.users_of(*id)).collect();
        // A path to each instance is one path.
        let mut known = HashSet::new();
        users.retain(|user| known.insert(user.clone()));
        if !users.is_empty() {
            return Err(in_use(name, &users));
        }
        self.take_handlers(&ids)?;
        let took = begin.elapsed();
        Ok(Unloaded {
            handler: name.to_owned(),
            took_us: took.as_micros() as u64,
        })
    }

    /// Everything that uses a handler. Linear in all paths.
    fn users_of(&self, handler: HandlerId) -> Vec<User> {
        let name = &self.handlers[&handler].shared.name;
        let bound = self.config.paths_of(name);
        let mut users: Vec<User> = bound
            .map(|path| User::Bound(whole_name(&path.name).to_owned()))
            .collect();
        let running = self.paths.running(handler);
        let running = running.filter_map(|id| self.paths.at(id));
        users.extend(running.map(|path| User::Path(path.name.to_string())));
        let modules = self.graph.modules_of(name);
        let written = modules.filter(|module| self.graph.is_written(module));
        users.extend(written.map(|module| User::Module(module.to_owned())));
        users
    }

    /// Takes handlers away that nothing uses, all of them or none.
    ///
    /// # Errors
    ///
    /// Why not; nothing has changed.
    pub(super) fn take_handlers(&mut self, ids: &[HandlerId]) -> Result<(), Refusal> {
        let names = ids.iter().map(|id| self.handlers[id].shared.name.as_str());
        let names: HashSet<&str> = names.collect();
        let mut config = self.config.clone();
        config.layered.retain(|of| !names.contains(&*of.handler));
        config.placements.retain(|of| !names.contains(&*of.handler));
        config
            .handlers
            .retain(|known| !names.contains(&*known.name));
        let kept = self.handlers.iter().filter(|(id, _)| !ids.contains(id));
        let kept: Vec<_> = kept.map(|(_, handler)| handler.clone()).collect();
        let (links, served) = (&self.links, &self.served);
        let none = Changed::default();
        let graph = world::graph_behind(&self.graph, &config, links, &kept, served, &none)
            .map_err(|error| error.refusal())?;
        self.drop_instances(ids)?;
        self.config = config;
        self.graph = graph;
        Ok(())
    }

    /// Has the worker let instances go that nothing uses, all of them or none; their
    /// configuration is still to follow.
    ///
    /// # Errors
    ///
    /// The worker does not answer; nothing has changed.
    pub(super) fn drop_instances(&mut self, ids: &[HandlerId]) -> Result<(), Refusal> {
        self.call_worker(Command::RemoveInstances(ids.iter().copied().collect()))?;
        for id in ids {
            self.plan.remove_instance(*id);
            if let Some(handler) = self.handlers.remove(id) {
                self.faults.forget(&handler.shared);
                // Dropped here, not by the worker: to unmap a memory takes time.
                self.leaving.push(handler);
            }
        }
        self.forget_observed();
        Ok(())
    }

    /// Lets handlers go that the worker is done with.
    pub(super) fn look_who_left(&mut self) {
        // The worker's paths and its timers each have one.
        self.leaving
            .retain(|handler| Arc::strong_count(&handler.running) > 1);
    }
}

fn in_use(name: &str, users: &[User]) -> Refusal {
    let mut words: Vec<String> = users
        .iter()
        .take(NAMED)
        .map(|user| match user {
            User::Bound(path) | User::Path(path) => format!("path `{path}`"),
            User::Module(module) => format!("module `{module}` of the configuration"),
        })
        .collect();
    if users.len() > NAMED {
        words.push(format!("{} more", users.len() - NAMED));
    }
    let commands: Vec<String> = users
        .iter()
        .take(NAMED)
        .filter_map(|user| match user {
            User::Bound(path) => Some(format!("`ashway unbind {path}`")),
            User::Path(path) => Some(format!("`ashway path rm {path}`")),
            User::Module(_) => None,
        })
        .collect();
    let hint = match &commands[..] {
        [] => "take it out of the configuration, and start the node anew".to_owned(),
        [one] => format!("{one} takes that one away"),
        all => format!("{} take these away", all.join(", ")),
    };
    Refusal::failed(
        format!("handler `{name}` is used by {}", words.join(", ")),
        hint,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_uses_a_handler_is_named_with_what_to_do() {
        let users: Vec<User> = (0..7).map(|n| User::Bound(format!("p{n}"))).collect();
        let refused = in_use("h", &users);
        assert_eq!(
            refused.message,
            "handler `h` is used by path `p0`, path `p1`, path `p2`, path `p3`, path `p4`, 2 more"
        );
        assert_eq!(
            refused.hint,
            "`ashway unbind p0`, `ashway unbind p1`, `ashway unbind p2`, `ashway unbind p3`, \
             `ashway unbind p4` take these away"
        );
        let refused = in_use("h", &[User::Path("q".to_owned())]);
        assert_eq!(refused.hint, "`ashway path rm q` takes that one away");
        let refused = in_use("h", &[User::Module("app".to_owned())]);
        assert!(
            refused
                .message
                .ends_with("by module `app` of the configuration")
        );
    }
}
