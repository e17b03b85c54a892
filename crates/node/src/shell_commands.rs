//! What shells ask for, done for the domains that they act for.
//!
//! A shell may do what `ashway path` does, within its domain: a path takes no
//! message that the domain does not own, at any of its ends, and leads through no handler
//! and no shell but the domain's; paths of others are not there for it, nor are their names:
//! what a shell calls `six` is `games.six` to everybody else.

use std::sync::Arc;

use ashway_modules::shell::{Outcome, Request};
use ashway_path::attrs::Attrs;

use super::Node;
use super::paths::{Wanted, taken};
use crate::request::{self, Refusal};
use crate::shells::Asked;
use crate::show;
use ashway_config::{GRANT_BYTES, Tier, attr};

/// Most paths of a domain, so that a shell cannot fill the node.
const MOST: usize = 1000;

impl Node {
    /// Does what shells have asked for by now.
    pub(super) fn run_shell_commands(&mut self) {
        while let Some(Asked {
            domain,
            request,
            outcome,
        }) = self.served.shells.next()
        {
            let done: Outcome = self.one(&domain, request).map_err(|refusal| {
                // As `ashway path` prints it.
                let Refusal { message, hint, .. } = refusal;
                if hint.is_empty() {
                    message
                } else {
                    format!("{message}\n  hint: {hint}")
                }
            });
            // A shell that is gone by now wants no outcome.
            let _ = outcome.send(done);
        }
    }

    fn one(&mut self, domain: &str, request: Request) -> Result<String, Refusal> {
        match request {
            Request::Create {
                path,
                module,
                attrs,
            } => self.create_for(domain, path.map(String::from), &module, &attrs),
            Request::Show { path } => {
                let path = self.of_domain(domain, &path)?;
                Ok(show::path(&self.show(&path)?))
            }
            Request::Remove { path } => {
                let path = self.of_domain(domain, &path)?;
                self.remove(&[path.to_string()])?;
                Ok("1 removed".to_owned())
            }
        }
    }

    fn create_for(
        &mut self,
        domain: &str,
        name: Option<String>,
        module: &str,
        attrs: &Attrs,
    ) -> Result<String, Refusal> {
        if self.paths.of_domain(domain).count() >= MOST {
            let message = format!("domain `{domain}` has {MOST} paths, and cannot have more");
            return Err(Refusal::failed(message, "remove one with `rm NAME`"));
        }
        let called = self.name_of(name, module)?;
        if self.called(domain, &called).is_some() {
            return Err(taken(&called));
        }
        let mut checked = Attrs::new();
        for (attr, value) in attrs.iter() {
            checked.set(attr.to_owned(), request::attribute(attr, value)?);
        }
        within_grant(&checked)?;
        let made = self.make(Wanted {
            name: of_all(domain, &called),
            from: module.to_owned(),
            attrs: checked,
            domain: Some(domain.to_owned()),
            filter: None,
            tier: Tier::Auto,
            owner: None,
            logs: false,
        })?;
        for (_, filter) in &made.ends {
            self.config
                .owns(domain, filter)
                .map_err(|(message, hint)| Refusal::failed(message, hint))?;
        }
        for stage in made.path.stages() {
            self.may_use(domain, stage.name())?;
        }
        self.put_made(vec![made])?;
        Ok(format!("path `{called}` is there"))
    }

    /// Refuses a module that is another domain's.
    fn may_use(&self, domain: &str, module: &str) -> Result<(), Refusal> {
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

    /// The name to everybody of a path of this domain, by what its shells call it.
    fn called(&self, domain: &str, name: &str) -> Option<Arc<str>> {
        // Those of the configuration have no other.
        let names = [of_all(domain, name), name.to_owned()];
        let mut found = names.iter().filter_map(|name| self.paths.find(name));
        found.find_map(|id| {
            let live = self.paths.at(id)?;
            (live.domain.as_deref() == Some(domain)).then(|| Arc::clone(&live.name))
        })
    }

    /// The same; refuses a path that is not of this domain, as if it were not there.
    fn of_domain(&self, domain: &str, name: &str) -> Result<Arc<str>, Refusal> {
        self.called(domain, name).ok_or_else(|| {
            let prefix = of_all(domain, "");
            let theirs = self.paths.of_domain(domain).map(|live| &*live.name);
            let called = theirs.map(|name| name.strip_prefix(&prefix).unwrap_or(name));
            let known: Vec<&str> = called.take(20).collect();
            request::unknown("path", name, &known)
        })
    }
}

/// What a path that a shell calls `name` is called by everybody. No other path's name has
/// a dot, so there is none of this name but the domain's.
fn of_all(domain: &str, name: &str) -> String {
    format!("{domain}.{name}")
}

/// A grant bounds whoever asks, so that a shell cannot raise its paths' own.
fn within_grant(attrs: &Attrs) -> Result<(), Refusal> {
    match attrs.number(attr::MEMORY_BYTES) {
        Some(bytes) if bytes > GRANT_BYTES as u64 => Err(Refusal::failed(
            format!("a shell's path has {GRANT_BYTES} bytes of memory at most, not {bytes}"),
            "`ashway path create` on the node's own machine may grant more",
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_grants_its_paths_no_more_memory() {
        let mut attrs = Attrs::new();
        within_grant(&attrs).unwrap();
        attrs.set(attr::MEMORY_BYTES, GRANT_BYTES as u64);
        within_grant(&attrs).unwrap();
        attrs.set(attr::MEMORY_BYTES, GRANT_BYTES as u64 + 1);
        let refused = within_grant(&attrs).unwrap_err();
        assert!(refused.message.contains("524288 bytes"), "{refused:?}");
    }
}
