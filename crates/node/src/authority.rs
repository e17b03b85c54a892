//! On whose behalf something is done, and what that may do.
//!
//! Whoever can connect to the control socket may do everything: it is the node's user's
//! alone. A domain, for which its shells speak, may create, show and remove paths of its
//! own: a path takes no message that the domain does not own, at any of its ends, and leads
//! through no handler and no shell but the domain's; paths of others are not there for it,
//! nor are their names: what it calls `six` is `games.six` to everybody else.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use ashway_demux::Filter;
use ashway_modules::Message;
use ashway_path::attrs::Attrs;
use ashway_path::path::Path;
use ashway_path::places::PathId;

use super::Node;
use crate::request::{self, Refusal};
use ashway_config::{GRANT_BYTES, attr};

/// Most paths of a domain, so that it cannot fill the node.
const MOST: usize = 1000;

/// On whose behalf something is done.
#[derive(Clone, Debug)]
pub(crate) enum Authority {
    /// The node's: its configuration, or a signal.
    Node,
    /// A process that could connect to the control socket; `None` if that has gone, or is of
    /// another PID namespace.
    Process(Option<u32>),
    /// A domain's.
    Domain(Arc<str>),
}

impl Authority {
    /// The domain that it is limited to.
    pub(super) const fn domain(&self) -> Option<&Arc<str>> {
        match self {
            Self::Node | Self::Process(_) => None,
            Self::Domain(domain) => Some(domain),
        }
    }

    /// What everybody calls a path that is called `name` here. No other path's name has
    /// a dot, so there is none of a domain's name but the domain's.
    pub(super) fn name_of_all<'n>(&self, name: &'n str) -> Cow<'n, str> {
        match self.domain() {
            None => Cow::Borrowed(name),
            Some(domain) => Cow::Owned(format!("{domain}.{name}")),
        }
    }

    /// Refuses attributes that whoever asks may not grant. A grant bounds whoever asks, so
    /// that a domain cannot raise its paths' own.
    pub(super) fn may_grant(&self, attrs: &Attrs) -> Result<(), Refusal> {
        match attrs.number(attr::MEMORY_BYTES) {
            Some(bytes) if bytes > GRANT_BYTES as u64 && self.domain().is_some() => {
                Err(Refusal::failed(
                    format!(
                        "a shell's path has {GRANT_BYTES} bytes of memory at most, not {bytes}"
                    ),
                    "`ashway path create` on the node's own machine may grant more",
                ))
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node => f.write_str("the node"),
            Self::Process(Some(pid)) => write!(f, "process {pid}"),
            Self::Process(None) => f.write_str("a process"),
            Self::Domain(domain) => write!(f, "domain `{domain}`"),
        }
    }
}

impl Node {
    /// Whether another path may be created under this name, which may be
    /// [taken](Node::name_is_free) all the same.
    ///
    /// # Errors
    ///
    /// There is a path that is called so for whoever asks, or there are enough.
    pub(super) fn may_name(&self, authority: &Authority, name: &str) -> Result<(), Refusal> {
        let Some(domain) = authority.domain() else {
            return Ok(());
        };
        if self.paths.of_domain(domain).count() >= MOST {
            let message = format!("domain `{domain}` has {MOST} paths, and cannot have more");
            return Err(Refusal::failed(message, "remove one with `rm NAME`"));
        }
        match self.known_to(authority, name) {
            Some(_) => Err(request::taken(name)),
            None => Ok(()),
        }
    }

    /// Whether a path may be put into its place that takes what `filters` match.
    ///
    /// # Errors
    ///
    /// Which module of it is another's; which message is not of the domain of whoever asks, or
    /// of a handler's that the path leads through.
    pub(super) fn may_put<'f>(
        &self,
        authority: &Authority,
        path: &Path<Message>,
        filters: &(impl Iterator<Item = &'f Filter> + Clone),
    ) -> Result<(), Refusal> {
        if authority.domain().is_some() {
            for stage in path.stages() {
                self.may_use(authority, stage.name())?;
            }
        }
        let handlers = path.stages();
        let handlers = handlers.filter_map(|stage| self.graph.handler_of(stage.name()));
        let handlers = handlers.filter_map(|handler| self.config.handler(handler));
        let domains = handlers.filter_map(|handler| handler.domain.as_deref());
        let asking = authority.domain().map(|domain| &**domain);
        for domain in domains.chain(asking) {
            for filter in filters.clone() {
                self.config
                    .owns(domain, filter)
                    .map_err(|(message, hint)| Refusal::usage(message, hint))?;
            }
        }
        Ok(())
    }

    /// Whether a path may begin at this module or lead through it.
    ///
    /// # Errors
    ///
    /// It is another domain's.
    pub(super) fn may_use(&self, authority: &Authority, module: &str) -> Result<(), Refusal> {
        let Some(domain) = authority.domain().map(|domain| &**domain) else {
            return Ok(());
        };
        if let Some(handler) = self.graph.handler_of(module) {
            let config = self.config.handler(handler);
            let owner = config.and_then(|handler| handler.domain.as_deref());
            if owner != Some(domain) {
                let message = format!("handler `{handler}` is not of domain `{domain}`");
                let hint = "the handler's section says whose it is, by `domain`";
                return Err(Refusal::failed(message, hint));
            }
        }
        // Whoever hears what a shell hears, commands it.
        if let Some(acts_for) = self.graph.shell_of(module)
            && acts_for != domain
        {
            let message = format!("shell `{module}` is not of domain `{domain}`");
            let hint = "the module's section says for whom it acts, by `domain`";
            return Err(Refusal::failed(message, hint));
        }
        Ok(())
    }

    /// The path that is called `name` here.
    ///
    /// # Errors
    ///
    /// That there is none, also if there is one that is another domain's.
    pub(super) fn path_for(&self, authority: &Authority, name: &str) -> Result<PathId, Refusal> {
        self.known_to(authority, name).ok_or_else(|| {
            let prefix = authority.name_of_all("");
            let known: Vec<&str> = match authority.domain() {
                None => self.paths.names().take(20).collect(),
                Some(domain) => {
                    let theirs = self.paths.of_domain(domain).map(|path| &*path.name);
                    let called = theirs.map(|name| name.strip_prefix(&*prefix).unwrap_or(name));
                    called.take(20).collect()
                }
            };
            request::unknown("path", name, &known)
        })
    }

    pub(super) fn known_to(&self, authority: &Authority, name: &str) -> Option<PathId> {
        let Some(domain) = authority.domain() else {
            return self.paths.find(name);
        };
        // Those of the configuration have no other name.
        let names = [authority.name_of_all(name), Cow::Borrowed(name)];
        names.into_iter().find_map(|name| {
            let (id, path) = self.paths.named(&name)?;
            (path.domain.as_deref() == Some(&**domain)).then_some(id)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_grants_its_paths_no_more_memory() {
        let domain = Authority::Domain("games".into());
        let mut attrs = Attrs::new();
        domain.may_grant(&attrs).unwrap();
        attrs.set(attr::MEMORY_BYTES, GRANT_BYTES as u64);
        domain.may_grant(&attrs).unwrap();
        attrs.set(attr::MEMORY_BYTES, GRANT_BYTES as u64 + 1);
        let refused = domain.may_grant(&attrs).unwrap_err();
        assert!(refused.message.contains("524288 bytes"), "{refused:?}");
        Authority::Process(None).may_grant(&attrs).unwrap();
    }
}
