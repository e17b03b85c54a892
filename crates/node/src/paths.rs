//! Paths come and go while the node runs: one creator and one remover, whatever feeds them.
//!
//! A path is created from a module and attributes. One that is
//! [bound](ashway_config::NodeGraph::bound) to a handler is fed by the rings of that handler
//! ([`super::binding`]), any other gets whole frames ([`super::frame_paths`]). `bind` says
//! the same in the words of a handler.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use ashway_api::answer::{Created, CreatedPath, Removed};
use ashway_api::request::{Create, NewPath};
use ashway_demux as demux;
use ashway_path::attrs::{Attrs, Value as Attr};
use ashway_path::create::Log;
use ashway_path::places::PathId;
use indexmap::IndexMap;

use super::authority::Authority;
use super::made_path::{MadePath, PathRequest};
use super::node_path::Feed;
use super::paths_shown::{promotion, promotion_of_frames};
use super::{Node, RunError, say};
use crate::control::Caller;
use crate::request::{self, Refusal, Scalar};
use ashway_config::{LongPath, PathConfig, Tier, instance_name, is_name};

impl Node {
    /// Creates the paths of the configuration's long form.
    pub(super) fn create_configured(&mut self) -> Result<(), RunError> {
        for path in self.config.long_paths.clone() {
            self.create_long(&path).map_err(|refusal| RunError::Paths {
                path: path.name.clone(),
                because: refusal.message,
                hint: refusal.hint,
            })?;
        }
        Ok(())
    }

    /// Creates a path of a configuration's long form. Says so if it was to run in the kernel
    /// tier and does not.
    ///
    /// # Errors
    ///
    /// Why not; nothing has changed.
    pub(super) fn create_long(&mut self, path: &LongPath) -> Result<(), Refusal> {
        let name = &path.name;
        self.create_all(vec![PathRequest::of(path)], &Authority::Node)?;
        let frames = self.paths.find(name).and_then(|id| self.paths.frames(id));
        if let Some(stays) = frames.and_then(|frames| frames.stays.as_ref())
            && path.tier == Tier::Kernel
        {
            let because = &stays.because;
            say(&format!("path `{name}` stays in the user tier: {because}"));
            say(&format!("  hint: {}", stays.hint));
        }
        Ok(())
    }

    /// Creates paths: all of them, or none.
    ///
    /// # Errors
    ///
    /// Why not; nothing has changed.
    pub(super) fn create(&mut self, request: Create, caller: &Caller) -> Result<Created, Refusal> {
        let begin = Instant::now();
        let Create { paths, log: logs } = request;
        let wanted = paths
            .into_iter()
            .map(|path| self.wanted(path, caller, logs));
        let wanted: Vec<PathRequest> = wanted.collect::<Result<_, _>>()?;
        let made = self.create_all(wanted, &caller.authority)?;
        let took = begin.elapsed();
        let created = made.into_iter().filter_map(|(name, log)| {
            let (_, path) = self.paths.named(&name)?;
            let (tier, promotion) = match &path.feed {
                Feed::Handler(bound) => (bound.tier, promotion(bound)),
                Feed::Frames(frames) => (frames.tier(), promotion_of_frames(frames)),
            };
            Some(CreatedPath {
                path: name.to_string(),
                tier: tier.word().into(),
                promotion,
                log: logs.then(|| log.to_string()),
            })
        });
        Ok(Created {
            created: created.collect(),
            took_ns: took.as_nanos() as u64,
        })
    }

    /// Reads what a path is to be.
    fn wanted(
        &mut self,
        path: NewPath,
        caller: &Caller,
        logs: bool,
    ) -> Result<PathRequest, Refusal> {
        let name = self.name_of(path.name, &path.module)?;
        // Modules add some.
        let mut attrs = Attrs::with_capacity(path.attrs.len() + 8);
        for (key, value) in path.attrs {
            let value = match value {
                Scalar::Number(number) => Attr::Number(number),
                Scalar::Text(text) => Attr::of_text(&text),
            };
            let (key, value) = request::attribute(&key, value)?;
            attrs.set(key, value);
        }
        let filter = path
            .filter
            .map(|text| demux::parse(&text).map_err(|error| request::bad_match(&text, error)));
        Ok(PathRequest {
            name,
            from: path.module,
            attrs,
            domain: None,
            filter: filter.transpose()?,
            tier: path.tier,
            owner: self.owners.of(path.owner, caller, &self.deaths)?,
            logs,
        })
    }

    /// The name that somebody wants for a path from this module, or one that the
    /// node makes up.
    pub(super) fn name_of(
        &mut self,
        wanted: Option<String>,
        from: &str,
    ) -> Result<String, Refusal> {
        let name = wanted.unwrap_or_else(|| {
            self.named += 1;
            let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
            let module: String = from.to_lowercase().chars().map(plain).take(20).collect();
            format!("{module}-{}", self.named)
        });
        if !is_name(&name) {
            let message = format!("`{}` cannot be the name of a path", request::short(&name));
            return Err(Refusal::usage(message, ashway_config::NAME_HINT));
        }
        Ok(name)
    }

    /// Refuses a name that a path has.
    pub(super) fn name_is_free(&self, name: &str) -> Result<(), Refusal> {
        let names = [name, &instance_name(name, 0)];
        if names.iter().any(|name| self.paths.find(name).is_some()) {
            return Err(request::taken(name));
        }
        Ok(())
    }

    /// Makes paths, and leads messages to them: to all, or to none.
    ///
    /// # Errors
    ///
    /// Why not; nothing has changed.
    pub(super) fn create_all(
        &mut self,
        wanted: Vec<PathRequest>,
        authority: &Authority,
    ) -> Result<Vec<(Arc<str>, Log)>, Refusal> {
        let made = wanted.into_iter().map(|mut wanted| {
            self.may_name(authority, &wanted.name)?;
            authority.may_grant(&wanted.attrs)?;
            self.may_use(authority, &wanted.from)?;
            wanted.name = authority.name_of_all(&wanted.name).into_owned();
            let mut made = self.make(wanted)?;
            let filters = made.ends.iter().map(|(_, filter)| filter);
            self.may_put(authority, &made.path, &filters)?;
            if let (Some(bound), Some(_)) = (&mut made.bound, authority.domain()) {
                // A datagram is no reason to load a program.
                bound.tier = Tier::User;
            }
            Ok(made)
        });
        let made: Vec<MadePath> = made.collect::<Result<_, Refusal>>()?;
        self.put_made(made)
    }

    fn put_made(&mut self, made: Vec<MadePath>) -> Result<Vec<(Arc<str>, Log)>, Refusal> {
        let (mut bound, mut frames) = (Vec::new(), Vec::with_capacity(made.len()));
        let mut logs = Vec::with_capacity(made.len());
        for mut path in made {
            logs.push((path.path.shared_name(), std::mem::take(&mut path.log)));
            match path.bound.take() {
                Some(config) => bound.push((Arc::<PathConfig>::from(config), path.owner)),
                None => frames.push(path),
            }
        }
        if !frames.is_empty() {
            self.put_frames(frames)?;
        }
        if bound.is_empty() {
            return Ok(logs);
        }
        let begin = Instant::now();
        let mut to_promote = Vec::new();
        for (config, owner) in bound {
            let alone = vec![(Arc::clone(&config), None)];
            if let Err(refusal) = self.put_path(alone, owner.as_ref(), begin) {
                let there = logs.iter().filter_map(|(name, _)| self.paths.find(name));
                let there: Vec<PathId> = there.collect();
                if let Err(stays) = self.take(&there) {
                    let message = format!(
                        "{}; and some paths stay: {}",
                        refusal.message, stays.message
                    );
                    return Err(Refusal { message, ..refusal });
                }
                return Err(refusal);
            }
            if config.tier != Tier::User {
                to_promote.push(config.name.clone());
            }
        }
        self.promote_later(&to_promote);
        Ok(logs)
    }

    /// Removes paths; their messages are others' again, or the host's.
    ///
    /// # Errors
    ///
    /// Why not. If a name is wrong nothing has changed.
    pub(super) fn remove(
        &mut self,
        asked: &[String],
        authority: &Authority,
    ) -> Result<Removed, Refusal> {
        let begin = Instant::now();
        let mut paths = IndexMap::new();
        for name in asked {
            // Each once, however often it is named.
            let ids = self.whole_paths_for(authority, name)?;
            paths.entry(ids).or_insert_with(|| name.clone());
        }
        let (ids, removed): (Vec<Vec<PathId>>, Vec<String>) = paths.into_iter().unzip();
        self.take(&ids.concat())?;
        Ok(Removed {
            removed,
            took_ns: begin.elapsed().as_nanos() as u64,
        })
    }

    /// Takes paths away; what has been received is still worked on.
    ///
    /// # Errors
    ///
    /// Why not. Those that are bound to handlers go first, all of them or none; of the others
    /// the worker gives the host what still comes.
    pub(super) fn take(&mut self, ids: &[PathId]) -> Result<(), Refusal> {
        // Each once: of several of a request that have one name, that name finds the first.
        let ids: BTreeSet<PathId> = ids.iter().copied().collect();
        let is_bound = |id: &PathId| self.paths.frames(*id).is_none();
        let (bound, frames): (Vec<PathId>, Vec<PathId>) = ids.iter().partition(|id| is_bound(id));
        let names = frames.iter().filter_map(|id| self.paths.at(*id));
        let names: Vec<Arc<str>> = names.map(|path| Arc::clone(&path.name)).collect();
        if !bound.is_empty() {
            self.take_paths(&bound)?;
        }
        if !frames.is_empty() {
            let taken = self.take_frames(&frames);
            // The node does not know them any more, so one of the file comes again by `apply`.
            let long = &mut self.config.long_paths;
            long.retain(|path| !names.iter().any(|name| **name == *path.name));
            taken?;
        }
        Ok(())
    }
}
