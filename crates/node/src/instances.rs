//! Handlers that have an instance for each CPU, as people know them: by one name.
//!
//! Such a handler is [as many handlers](ashway_config::instance_name) of the node, and a path to it
//! as many paths. What is asked of them by the one name is asked of each, and what each answers is
//! one answer ([`merged`]). By the name of one, `counter@1`, that one is meant; it comes and goes
//! with the others.

pub(super) mod merged;

use std::sync::Arc;

use ashway_path::places::PathId;

use super::Node;
use super::authority::Authority;
use crate::control::Caller;
use crate::request::{Refusal, Request, unknown};
use ashway_config::{PathConfig, instance_name, instance_of, whole_name};
use ashway_worker::plan::HandlerId;

impl Node {
    /// How many instances a handler has that has one for each CPU.
    pub(super) fn cpus(&self) -> u32 {
        self.maps.as_ref().map_or(1, |maps| maps.cpus)
    }

    /// The paths that a path to this handler is: one to each of its instances.
    pub(super) fn each_path(&self, path: PathConfig) -> Vec<Arc<PathConfig>> {
        let handler = &path.handler;
        if instance_of(handler).is_none() && self.config.is_per_cpu(handler) {
            path.each(self.cpus())
        } else {
            vec![Arc::new(path)]
        }
    }

    /// The paths of this name: one, or those to each instance of a handler, by their CPUs.
    ///
    /// # Errors
    ///
    /// That there is none, also if there is one that is another domain's.
    pub(super) fn paths_for(
        &self,
        authority: &Authority,
        name: &str,
    ) -> Result<Vec<PathId>, Refusal> {
        let on = |cpu| self.known_to(authority, &instance_name(name, cpu));
        let each: Vec<PathId> = (0..).map_while(on).collect();
        if each.is_empty() {
            self.path_for(authority, name).map(|id| vec![id])
        } else {
            Ok(each)
        }
    }

    /// The same, to take them away, which is done with all of them or none.
    ///
    /// # Errors
    ///
    /// That there is none; or that the name is one instance's.
    pub(super) fn whole_paths_for(
        &self,
        authority: &Authority,
        name: &str,
    ) -> Result<Vec<PathId>, Refusal> {
        let paths = self.paths_for(authority, name)?;
        not_alone("path", name).map(|()| paths)
    }

    /// The handlers of this name: one, or each instance of one, by their CPUs.
    ///
    /// # Errors
    ///
    /// That there is none.
    pub(super) fn handlers_for(&self, name: &str) -> Result<Vec<HandlerId>, Refusal> {
        let on = |cpu| Some(self.handler(&instance_name(name, cpu))?.0);
        let each: Vec<HandlerId> = (0..).map_while(on).collect();
        if each.is_empty() {
            self.find_handler(name).map(|(id, _)| vec![id])
        } else {
            Ok(each)
        }
    }

    /// The same, to take them away.
    ///
    /// # Errors
    ///
    /// That there is none; or that the name is one instance's.
    pub(super) fn whole_handlers_for(&self, name: &str) -> Result<Vec<HandlerId>, Refusal> {
        let handlers = self.handlers_for(name)?;
        not_alone("handler", name).map(|()| handlers)
    }

    /// Says that there is no handler of this name; or that it is one of several, one of which has
    /// to be named.
    pub(super) fn no_handler(&self, name: &str) -> Refusal {
        if self.handler(&instance_name(name, 0)).is_some() {
            let message = format!("handler `{name}` has an instance for each CPU");
            let (first, last) = (
                instance_name(name, 0),
                instance_name(name, self.cpus().saturating_sub(1)),
            );
            return Refusal::failed(message, format!("name one of them: `{first}` to `{last}`"));
        }
        let names: Vec<_> = self.instances().map(|one| whole_name(&one.name)).collect();
        unknown("handler", name, &names)
    }

    /// A request about a path that is several, as the same about each of them, whose answers are
    /// [joined](merged::join); any other as it is.
    pub(super) fn each_request(&self, request: Request, caller: Caller) -> Vec<(Request, Caller)> {
        let name = match &request {
            Request::Promote(asked) => &asked.path,
            Request::Demote(asked) => &asked.path,
            Request::Enable(asked) => &asked.path,
            _ => return vec![(request, caller)],
        };
        let there = |cpu: &u32| {
            let name = instance_name(name, *cpu);
            self.known_to(&caller.authority, &name).is_some()
        };
        let count = (0..self.cpus()).take_while(there).count();
        if count == 0 {
            return vec![(request, caller)];
        }
        let callers = caller.split(count, merged::join);
        let each = callers.into_iter().enumerate().map(|(cpu, caller)| {
            let mut request = request.clone();
            match &mut request {
                Request::Promote(asked) => on(&mut asked.path, cpu),
                Request::Demote(asked) => on(&mut asked.path, cpu),
                Request::Enable(asked) => on(&mut asked.path, cpu),
                _ => {}
            }
            (request, caller)
        });
        each.collect()
    }
}

fn on(name: &mut String, cpu: usize) {
    *name = instance_name(name, cpu as u32);
}

fn not_alone(kind: &str, name: &str) -> Result<(), Refusal> {
    let Some((whole, cpu)) = instance_of(name) else {
        return Ok(());
    };
    let message =
        format!("`{name}` is what {kind} `{whole}` is on CPU {cpu}, and does not go alone");
    Err(Refusal::failed(
        message,
        format!("name `{whole}`, to take all of them away"),
    ))
}
