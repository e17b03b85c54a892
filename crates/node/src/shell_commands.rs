//! What shells ask for, done for the [domains](super::authority) that they act for: what
//! `ashway path` does, within the domain.

use ashway_modules::shell::{Outcome, Request};
use ashway_path::attrs::Attrs;

use super::Node;
use super::authority::Authority;
use super::made_path::PathRequest;
use crate::request::{self, Refusal};
use crate::shells::Asked;
use crate::show;
use ashway_config::Tier;

impl Node {
    /// Does what shells have asked for by now.
    pub(super) fn run_shell_commands(&mut self) {
        while let Some(Asked {
            domain,
            request,
            outcome,
        }) = self.served.shells.next()
        {
            let done: Outcome = self
                .one(&Authority::Domain(domain), request)
                .map_err(|refusal| {
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

    fn one(&mut self, authority: &Authority, request: Request) -> Result<String, Refusal> {
        match request {
            Request::Create {
                path,
                module,
                attrs,
            } => {
                let name = self.name_of(path.map(String::from), &module)?;
                let mut checked = Attrs::new();
                for (attr, value) in attrs.iter() {
                    let (attr, value) = request::attribute(attr, value.clone())?;
                    checked.set(attr, value);
                }
                let wanted = PathRequest {
                    name: name.clone(),
                    from: module.to_string(),
                    attrs: checked,
                    domain: authority.domain().map(ToString::to_string),
                    filter: None,
                    tier: Tier::Auto,
                    owner: None,
                    logs: false,
                };
                self.create_all(vec![wanted], authority)?;
                Ok(format!("path `{name}` is there"))
            }
            Request::Show { path } => Ok(show::path(&self.show(&path, authority)?)),
            Request::Remove { path } => {
                self.remove(&[path.to_string()], authority)?;
                Ok("1 removed".to_owned())
            }
        }
    }
}
