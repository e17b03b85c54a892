//! Modules that nobody had to write.
//!
//! A graph has the modules that `[module.*]` names, and those that the short form
//! implies: each `[iface.*]` and each `[handler.*]` that no module names has one of its
//! own, and `ip` and `udp` stand between them. A section of the same name takes the
//! place of an implied one:
//!
//! ```toml
//! [module."eth:veth0"]          # for [iface.veth0]
//! kind  = "eth"
//! iface = "veth0"
//! up    = "ip.down"
//!
//! [module.ip]
//! kind = "ip"
//!
//! [module.udp]
//! kind = "udp"
//! down = "ip.up"
//!
//! [module."handler:counter"]    # for [handler.counter]
//! kind    = "handler"
//! handler = "counter"
//! down    = "udp.up"
//! ```

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::instances::whole_name;
use crate::types::{Config, LayeredHandler};

/// Which modules stand for what the other sections name.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// The module of an interface; of several, the first by name.
    pub(super) links: BTreeMap<String, String>,
    /// The interface of each such module.
    pub(super) ifaces: BTreeMap<String, String>,
    /// The module of a handler; of several, the first by name.
    pub(super) handlers: BTreeMap<String, String>,
    /// The handler of each such module.
    pub(super) handled: BTreeMap<String, String>,
    /// For whom each shell acts, by its module.
    pub(super) shells: BTreeMap<String, String>,
    /// The modules that the text names.
    pub(super) written: BTreeSet<String>,
}

/// Adds the sections that nobody had to write. They have the places of those that
/// imply them, so that errors about them point there.
pub(super) fn imply<'v>(modules: &mut DeTable<'v>, root: &DeTable<'v>, config: &Config) -> Names {
    let mut names = Names {
        shells: named(modules, "shell", "domain").into_iter().collect(),
        ..Names::default()
    };
    for (kind, key, first, back) in [
        ("eth", "iface", &mut names.links, &mut names.ifaces),
        (
            "handler",
            "handler",
            &mut names.handlers,
            &mut names.handled,
        ),
    ] {
        for (module, named) in named(modules, kind, key) {
            first.entry(named.clone()).or_insert_with(|| module.clone());
            back.insert(module, named);
        }
    }
    let place = |kind: &str, name: &str| {
        let sections = root.get(kind).and_then(|value| value.get_ref().as_table());
        let entry = sections.and_then(|sections| sections.get_key_value(whole_name(name)));
        // What came while the node ran has no place.
        entry.map_or(0..0, |(key, _)| key.span())
    };
    let mut first = None;
    for handler in config.handlers.iter().map(|handler| &handler.name) {
        if !names.handlers.contains_key(handler) {
            let name = format!("handler:{handler}");
            let span = place("handler", handler);
            first.get_or_insert_with(|| span.clone());
            let placement = config
                .placements
                .iter()
                .find(|placement| placement.handler == *handler);
            let down = placement.map_or("udp.up", |placement| &*placement.down);
            let mut keys = vec![("kind", "handler"), ("handler", handler), ("down", down)];
            keys.extend(placement.and_then(|placement| Some(("up", placement.up.as_deref()?))));
            add(modules, &name, span, &keys);
            names.handled.insert(name.clone(), handler.clone());
            names.handlers.insert(handler.clone(), name);
        }
    }
    for iface in config.ifaces.iter().map(|iface| &iface.name) {
        if !names.links.contains_key(iface) {
            let name = format!("eth:{iface}");
            let span = place("iface", iface);
            first.get_or_insert_with(|| span.clone());
            let keys = [("kind", "eth"), ("iface", iface), ("up", "ip.down")];
            add(modules, &name, span, &keys);
            names.ifaces.insert(name.clone(), iface.clone());
            names.links.insert(iface.clone(), name);
        }
    }
    for LayeredHandler {
        module,
        handler,
        iface,
    } in &config.layered
    {
        let on = |iface| names.links.get(iface).map(|link| format!("{link}.up"));
        let down = iface.as_ref().map_or_else(|| Some("ip.up".to_owned()), on);
        // An interface that is not there is said elsewhere.
        if let Some(down) = down {
            let keys = [("kind", "handler"), ("handler", handler), ("down", &down)];
            add(modules, module, place("handler", handler), &keys);
            names.handled.insert(module.clone(), handler.clone());
        }
    }
    if let Some(span) = first {
        let udp = [("kind", "udp"), ("down", "ip.up")];
        add(modules, "udp", span.clone(), &udp);
        add(modules, "ip", span, &[("kind", "ip")]);
    }
    names
}

/// The names of all modules, written and implied, whatever else is wrong.
pub(super) fn known(root: &DeTable<'_>, config: &Config) -> Vec<String> {
    let written = root.get("module").map(|value| value.get_ref().clone());
    let mut modules = match written {
        Some(DeValue::Table(modules)) => modules,
        _ => DeTable::new(),
    };
    imply(&mut modules, root, config);
    let names = modules.keys();
    names.map(|name| name.get_ref().to_string()).collect()
}

/// The module of an interface.
pub(super) fn link(root: &DeTable<'_>, iface: &str) -> String {
    let modules = root.get("module").and_then(|all| all.get_ref().as_table());
    let links = modules.map(|modules| named(modules, "eth", "iface"));
    let mut links = links.into_iter().flatten();
    let written = links.find(|(_, known)| known == iface);
    written.map_or_else(|| format!("eth:{iface}"), |(module, _)| module)
}

/// The modules of interfaces that the text names: each with its interface, and its place.
pub(super) fn written_links(root: &DeTable<'_>) -> Vec<(String, String, Range<usize>)> {
    let modules = root.get("module").and_then(|all| all.get_ref().as_table());
    let links = modules.map(|modules| named(modules, "eth", "iface"));
    let place = |module: &str| {
        let entry = modules.and_then(|modules| modules.get_key_value(module));
        entry.map_or(0..0, |(key, _)| key.span())
    };
    let links = links.into_iter().flatten();
    links
        .map(|(module, iface)| {
            let at = place(&module);
            (module, iface, at)
        })
        .collect()
}

/// The modules of a kind, each with what a key of it says.
fn named(modules: &DeTable<'_>, kind: &str, key: &str) -> Vec<(String, String)> {
    let sections = modules.iter().filter_map(|(name, section)| {
        let text = |key| section.get_ref().as_table()?.get(key)?.get_ref().as_str();
        let value = text(key).filter(|_| text("kind") == Some(kind))?;
        Some((name.get_ref().to_string(), value.to_owned()))
    });
    sections.collect()
}

/// Adds a section, unless there is one of this name.
fn add(modules: &mut DeTable<'_>, name: &str, span: Range<usize>, keys: &[(&'static str, &str)]) {
    if modules.contains_key(name) {
        return;
    }
    let mut section = DeTable::new();
    for (key, value) in keys {
        let value = DeValue::String(Cow::Owned((*value).to_owned()));
        let key = Spanned::new(span.clone(), Cow::Borrowed(*key));
        section.insert(key, Spanned::new(span.clone(), value));
    }
    let key = Spanned::new(span.clone(), Cow::Owned(name.to_owned()));
    modules.insert(key, Spanned::new(span, DeValue::Table(section)));
}
