//! What a handler that has an instance for each CPU, or one for all at once, cannot have, and why.

use std::ops::Range;

use ashway_api::{Instances, OrderRule};
use toml::de::DeTable;

use crate::glob::Glob;
use crate::modules::NodeGraph;
use crate::read::Reader;
use crate::types::{Config, HandlerConfig, LongPath, PathConfig};

/// The key at fault, what is wrong with it, and what to do about it.
type Wrong = (&'static str, String, String);

impl HandlerConfig {
    /// Looks whether a handler that has an instance for each CPU asks for what there is only one
    /// of.
    ///
    /// # Errors
    ///
    /// What that is.
    pub fn may_be_several(&self) -> Result<(), Wrong> {
        if self.instances != Instances::PerCpu || self.send_port == 0 {
            return Ok(());
        }
        let message = format!(
            "handler `{}` has `instances = \"per-cpu\"`, and each of these would send from port {}",
            self.name, self.send_port
        );
        let hint = "leave `send_port` out: each instance sends from a port of its own";
        Err(("send_port", message, hint.to_owned()))
    }
}

impl Config {
    /// Looks whether a path that ends in a handler which has an instance for each CPU, or one that
    /// runs on all of them at once, asks for what they would have to keep together.
    ///
    /// # Errors
    ///
    /// What that is.
    pub fn may_be_split(&self, path: &PathConfig) -> Result<(), Wrong> {
        let of = self.some_instance(&path.handler);
        let instances = of.map_or(Instances::One, |handler| handler.instances);
        if instances == Instances::One {
            return Ok(());
        }
        let (name, handler) = (&path.name, &path.handler);
        let each = format!(
            "handler `{handler}` has `instances = \"{}\"`",
            instances.word()
        );
        if path.share.is_some() {
            let message = format!(
                "path `{name}` has a share, and {each}: a share is an account under the lock of one \
                 instance"
            );
            let hint = "leave `share` and `rate` out, or give the handler one instance, which runs \
                        one message at a time";
            return Err(("share", message, hint.to_owned()));
        }
        if path.order == OrderRule::Path {
            let message = format!(
                "path `{name}` has `order = \"path\"`, and {each}: messages of two CPUs do not wait \
                 for each other"
            );
            let hint = "use `order = \"flow\"`, which holds for what comes by the same CPU";
            return Err(("order", message, hint.to_owned()));
        }
        if instances == Instances::Parallel {
            return Ok(());
        }
        let mut names = path.ifaces.iter().chain(&path.patterns);
        if let Some(pattern) = names.find(|name| Glob::is_one(name)) {
            let message = format!(
                "path `{name}` is at the pattern `{pattern}`, and {each}: its places at an interface \
                 are taken when it is made"
            );
            let hint = "name the interfaces, or give the handler one instance";
            return Err(("iface", message, hint.to_owned()));
        }
        let mut ifaces = path.ifaces.iter().filter_map(|name| self.iface(name));
        if let Some(iface) = ifaces.find(|iface| iface.attach.is_user_only()) {
            let message = format!(
                "{each}, and `{}` has `attach = \"{}\"`: nobody there says by which CPU a message came",
                iface.name,
                iface.attach.word()
            );
            let hint = "use another `attach` for the interface, or give the handler one instance";
            return Err(("iface", message, hint.to_owned()));
        }
        Ok(())
    }
}

/// Notes everything that handlers with an instance for each CPU, or one for all at once, cannot have
/// in a file.
pub(crate) fn check(reader: &mut Reader<'_>, config: &Config, graph: &NodeGraph) {
    let several = config.handlers.iter();
    let several: Vec<_> = several
        .filter(|one| one.instances == Instances::PerCpu)
        .collect();
    for handler in &several {
        let name = &handler.name;
        if let Err((key, message, hint)) = handler.may_be_several() {
            let span = place(reader, ["handler", name], &[key]);
            reader.error("contradiction", span, message, Some(hint));
        }
        let mut modules = graph.modules_of(name);
        if let Some(module) = modules.find(|module| graph.is_written(module)) {
            let message = format!(
                "`[module.{module:?}]` runs `{name}`, which has `instances = \"per-cpu\"`: a path \
                 of modules does not say by which CPU a message came"
            );
            let hint = "leave the module out: paths that name the handler lead to it".to_owned();
            let span = place(reader, ["handler", name], &["instances"]);
            reader.error("not_supported", span, message, Some(hint));
        }
    }
    for path in &config.paths {
        if let Err((key, message, hint)) = config.may_be_split(path) {
            let span = place(reader, ["path", &path.name], &[key, "rate"]);
            reader.error("contradiction", span, message, Some(hint));
        }
    }
    if several.is_empty() {
        return;
    }
    for path in &config.long_paths {
        if let Some(handler) = leads_through(config, graph, path) {
            let message = format!(
                "path `{}` leads through `{handler}` and more than that, and the handler has \
                 `instances = \"per-cpu\"`: a path of modules does not say by which CPU a message \
                 came",
                path.name
            );
            let hint = "lead it straight to the handler, or give that one instance".to_owned();
            let span = place(reader, ["path", &path.name], &["from"]);
            reader.error("not_supported", span, message, Some(hint));
        }
    }
}

/// The first handler of this kind that a path of modules leads through.
fn leads_through(config: &Config, graph: &NodeGraph, path: &LongPath) -> Option<String> {
    let created = graph.create_long(path).ok()?;
    let stages = created.path.stages();
    let mut handlers = stages.filter_map(|stage| graph.handler_of(stage.name()));
    let found = handlers.find(|handler| config.is_per_cpu(handler));
    found.map(str::to_owned)
}

/// Where a section of the text has the first of these keys; the section if it has none, because
/// it is written in another form.
fn place(reader: &Reader<'_>, [kind, name]: [&str; 2], keys: &[&str]) -> Range<usize> {
    let (root, _) = DeTable::parse_recoverable(reader.text());
    let find = || {
        let sections = root.get_ref().get(kind)?.get_ref().as_table()?;
        let (section, said) = sections.get_key_value(name)?;
        let known = said.get_ref().as_table();
        let mut found = keys.iter().filter_map(|key| known?.get_key_value(*key));
        let found = found.next();
        Some(found.map_or_else(|| section.span(), |(key, _)| key.span()))
    };
    find().unwrap_or_default()
}
