//! The sections of the file, one function each.

mod path;

use std::ops::Range;
use std::path::{Path as FsPath, PathBuf};
use std::sync::Arc;

use ashway_demux as demux;
use ashway_path::problem::suggest;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::glob::Glob;
use crate::offline::Offline;
use crate::read::{Reader, Section};
use crate::types::{
    Attach, Config, DomainConfig, Grant, HandlerConfig, IfaceConfig, Instances, LayeredHandler,
    MemoryMode, NodeConfig,
};
use crate::values::{NAME_HINT, is_name, read_channel, read_endpoint};
use crate::{implied, modules, own, patterns, rules};
pub(crate) use path::PathPlaces;
use path::{at_layer, bad_match, is_long, long_path, path};

/// Longest path of a unix socket (`sockaddr_un`, without the final 0).
const MAX_SOCKET_BYTES: usize = 107;

/// Longest name of an interface (`IFNAMSIZ` without the final 0).
const MAX_IFACE_BYTES: usize = 15;

/// Longest pattern of names of interfaces.
const MAX_PATTERN_BYTES: usize = 64;

/// Reads the whole file. What is wrong is noted in `reader`; the result may
/// only be used if nothing was.
pub(super) fn config(file: &FsPath, root: &DeTable<'_>, reader: &mut Reader<'_>) -> Config {
    let directory = file.parent().unwrap_or_else(|| FsPath::new(""));
    let mut config = Config {
        file: file.to_owned(),
        node: NodeConfig::default(),
        ifaces: Vec::new(),
        patterns: Vec::new(),
        domains: Vec::new(),
        handlers: Vec::new(),
        paths: Vec::new(),
        long_paths: Vec::new(),
        layered: Vec::new(),
        placements: Vec::new(),
        text: reader.text().to_owned(),
    };
    let (mut places, mut long_places) = (Vec::new(), Vec::new());
    let mut iface_places = Vec::new();
    let mut globs = Vec::new();
    for (key, value) in in_order(root) {
        match key.get_ref().as_ref() {
            "node" => config.node = node(reader, directory, key.span(), value),
            "iface" => each(reader, "iface", value, |reader, name, span, value| {
                if let Some(iface) = iface(reader, directory, name, span.clone(), value) {
                    if let Some(glob) = glob(reader, name, span.clone()) {
                        patterns::check_attach(reader, &iface, span.clone());
                        globs.push((glob, span.clone()));
                    }
                    rules::check_hook(reader, &config.ifaces, &iface, span.clone());
                    config.ifaces.push(iface);
                    iface_places.push(span);
                }
            }),
            "domain" => each(reader, "domain", value, |reader, name, span, value| {
                config.domains.extend(domain(reader, name, span, value));
            }),
            "handler" => each(reader, "handler", value, |reader, name, span, value| {
                let handler = handler(reader, directory, name, span, value);
                config.handlers.extend(handler);
            }),
            "path" => each(reader, "path", value, |reader, name, span, value| {
                if is_long(value) {
                    if let Some(path) = long_path(reader, name, span.clone(), value) {
                        config.long_paths.push(path);
                        long_places.push(span);
                    }
                } else if let Some((path, place)) = path(reader, name, span.clone(), value) {
                    if place.layer.is_none() {
                        config.paths.push(Arc::new(path));
                        places.push(place);
                    } else if let Some((path, module)) = at_layer(reader, root, path, place) {
                        if !config.layered.contains(&module) {
                            config.layered.push(module);
                        }
                        config.long_paths.push(path);
                        long_places.push(span);
                    }
                }
            }),
            // Read as a whole, when what it refers to is known.
            "module" => {}
            other => {
                let known = ["node", "iface", "domain", "handler", "module", "path"];
                let hint = suggest(other, &known);
                let message = format!("there is no section `{other}`");
                reader.error("unknown_section", key.span(), message, Some(hint));
            }
        }
    }
    join_domains(reader, &mut config, &long_places);
    own::check_peers(reader, &config.ifaces, &iface_places);
    own::check_captures(reader, &config.ifaces, &iface_places);
    rules::check(reader, &config, &places);
    rules::check_domains(reader, root, &config);
    patterns::check(reader, root, &globs);
    let graph = modules::read(root, &config, &Offline(&config), None);
    match graph {
        Ok(graph) => rules::check_paths(reader, &mut config, &graph, &places, &long_places),
        Err(problems) => {
            reader.errors.extend(problems.into_iter().map(Into::into));
            let modules = implied::known(root, &config);
            rules::check_begins(reader, &config, &modules, &long_places);
        }
    }
    config
}

/// A path whose handler stands at a layer of its own is of its handler's domain, too.
fn join_domains(reader: &mut Reader<'_>, config: &mut Config, long_places: &[Range<usize>]) {
    for (path, span) in config.long_paths.iter_mut().zip(long_places) {
        let mut layered = config.layered.iter();
        let Some(LayeredHandler { handler, .. }) = layered.find(|one| one.module == path.from)
        else {
            continue;
        };
        let mut handlers = config.handlers.iter();
        let of_handler = handlers.find(|known| known.name == *handler);
        let Some(domain) = of_handler.and_then(|known| known.domain.as_ref()) else {
            continue;
        };
        let own = path.domain.get_or_insert_with(|| domain.clone());
        if own != domain {
            reader.error(
                "contradiction",
                span.clone(),
                format!("the path is of domain `{own}`, and its handler of `{domain}`"),
                Some("give both the same".to_owned()),
            );
        }
    }
}

/// A key of a table and its value.
type Entry<'a, 'v> = (
    &'a Spanned<std::borrow::Cow<'v, str>>,
    &'a Spanned<DeValue<'v>>,
);

/// The entries in the order of the file; the table itself is sorted by name.
fn in_order<'a, 'v>(table: &'a DeTable<'v>) -> Vec<Entry<'a, 'v>> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
}

/// Calls `read` with each `[KIND.NAME]`.
fn each(
    reader: &mut Reader<'_>,
    kind: &str,
    value: &Spanned<DeValue<'_>>,
    mut read: impl FnMut(&mut Reader<'_>, &str, Range<usize>, &Spanned<DeValue<'_>>),
) {
    let Some(table) = value.get_ref().as_table() else {
        reader.error(
            "wrong_type",
            value.span(),
            format!("`{kind}` must be a table of tables"),
            Some(format!("write a section `[{kind}.NAME]`")),
        );
        return;
    };
    for (name, value) in in_order(table) {
        read(reader, name.get_ref(), name.span(), value);
    }
}

/// Names of our own objects, which become file names, map names and labels.
fn check_name(reader: &mut Reader<'_>, kind: &str, name: &str, span: Range<usize>) {
    if !is_name(name) {
        reader.error(
            "bad_name",
            span,
            format!("`{name}` cannot be the name of a {kind}"),
            Some(NAME_HINT.to_owned()),
        );
    }
}

fn node(
    reader: &mut Reader<'_>,
    directory: &FsPath,
    span: Range<usize>,
    value: &Spanned<DeValue<'_>>,
) -> NodeConfig {
    let mut config = NodeConfig::default();
    let keys = ["name", "socket"];
    let Some(mut section) = Section::open(reader, "node".to_owned(), span, value, &keys) else {
        return config;
    };
    if let Some((name, span)) = section.string("name") {
        check_name(section.reader, "node", name, span);
        name.clone_into(&mut config.name);
    }
    if let Some((socket, span)) = section.string("socket") {
        let path = directory.join(socket);
        if socket.is_empty() || path.as_os_str().len() > MAX_SOCKET_BYTES {
            section.reader.error(
                "bad_value",
                span,
                format!("`{socket}` cannot be the path of a socket"),
                Some(format!(
                    "the whole path has 1 to {MAX_SOCKET_BYTES} bytes (unix(7))"
                )),
            );
        }
        config.socket = Some(path);
    }
    config
}

fn iface(
    reader: &mut Reader<'_>,
    directory: &FsPath,
    name: &str,
    span: Range<usize>,
    value: &Spanned<DeValue<'_>>,
) -> Option<IfaceConfig> {
    // dev_valid_name() in net/core/dev.c, Linux 6.18.
    let most = if Glob::is_one(name) {
        MAX_PATTERN_BYTES
    } else {
        MAX_IFACE_BYTES
    };
    let fits = (1..=most).contains(&name.len())
        && name != "."
        && name != ".."
        // To the kernel a `%` is a template for a name (__dev_alloc_name there).
        && !name.contains(|c: char| "/:%".contains(c) || c.is_whitespace() || c.is_control());
    if !fits {
        reader.error(
            "bad_name",
            span.clone(),
            format!("`{name}` cannot be the name of an interface"),
            Some(format!(
                "`ip link` lists them; they have at most {MAX_IFACE_BYTES} bytes"
            )),
        );
    }
    let line = reader.line(span.start);
    let mut section = Section::open(
        reader,
        format!("iface.{name}"),
        span,
        value,
        &["attach", "mode", "mac", "read", "write", "pace", "peer"],
    )?;
    // Which was the key's name at first.
    let mode = section.word("mode", Attach::WORDS);
    let attach = section.word("attach", Attach::WORDS);
    if mode.is_some() && attach.is_some() {
        let place = section.place("mode");
        section.reader.error(
            "contradiction",
            place,
            "`mode` is the old name of `attach`, and both are given".to_owned(),
            Some("leave `mode` out".to_owned()),
        );
    }
    let attach = attach.or(mode).unwrap_or_default();
    Some(IfaceConfig {
        name: name.to_owned(),
        attach,
        own: own::read(&mut section, directory, attach),
        pattern: None,
        line,
    })
}

/// The pattern that a section's name is, if it is one.
fn glob(reader: &mut Reader<'_>, name: &str, span: Range<usize>) -> Option<Glob> {
    if !Glob::is_one(name) {
        return None;
    }
    let refused = |why: &str| {
        let message = format!("`{name}` is no pattern: {why}");
        let hint = "`*`, `?` and `[...]` mean what they do in a shell".to_owned();
        reader.error("bad_name", span, message, Some(hint));
    };
    Glob::read(name).map_err(refused).ok()
}

fn domain(
    reader: &mut Reader<'_>,
    name: &str,
    span: Range<usize>,
    value: &Spanned<DeValue<'_>>,
) -> Option<DomainConfig> {
    check_name(reader, "domain", name, span.clone());
    let mut section = Section::open(reader, format!("domain.{name}"), span, value, &["owns"])?;
    let mut owns = Vec::new();
    for (text, span) in section.strings("owns", "\"udp and dst portrange 7000-7999\"") {
        match demux::parse(text) {
            Ok(filter) => owns.push(filter),
            Err(error) => bad_match(section.reader, span, text, error),
        }
    }
    Some(DomainConfig {
        name: name.to_owned(),
        owns,
    })
}

fn handler(
    reader: &mut Reader<'_>,
    directory: &FsPath,
    name: &str,
    span: Range<usize>,
    value: &Spanned<DeValue<'_>>,
) -> Option<HandlerConfig> {
    check_name(reader, "handler", name, span.clone());
    let line = reader.line(span.start);
    let keys = [
        "file",
        "allow",
        "memory",
        "instances",
        "endpoint",
        "channels",
        "send_port",
        "params",
        "domain",
    ];
    let mut section = Section::open(reader, format!("handler.{name}"), span, value, &keys)?;
    let mut file = PathBuf::new();
    if let Some((written, span)) = section.required("file", &format!("\"{name}.wasm\"")) {
        file = directory.join(written);
        let trouble = match file.metadata() {
            Ok(metadata) if metadata.is_file() => None,
            Ok(_) => Some(format!("`{}` is no file", file.display())),
            Err(error) => Some(format!("cannot read `{}`: {error}", file.display())),
        };
        if let Some(message) = trouble {
            let hint = if written.starts_with('/') {
                "name the `.wasm` file that the compiler made of the handler's source"
            } else {
                "paths are relative to the directory of the configuration"
            };
            let hint = Some(hint.to_owned());
            section.reader.error("missing_file", span, message, hint);
        }
    }
    let mut endpoint = 0;
    if let Some((slots, span)) = section.integer("endpoint") {
        match read_endpoint(slots) {
            Ok(slots) => endpoint = slots,
            Err((message, hint)) => section.reader.error("bad_value", span, message, Some(hint)),
        }
    }
    let mut channels = Vec::new();
    for (peer, span) in section.array("channels") {
        match read_channel(peer, channels.len()) {
            Ok(peer) => channels.push(peer),
            Err((message, hint)) => section.reader.error("bad_value", span, message, Some(hint)),
        }
    }
    let mut send_port = 0;
    if let Some((port, span)) = section.integer("send_port") {
        send_port = u16::try_from(port).unwrap_or(0);
        if send_port == 0 {
            let message = format!("`{port}` is no port to send from");
            let hint = "write 1 to 65535, or leave `send_port` out for any".to_owned();
            section.reader.error("bad_value", span, message, Some(hint));
        }
    }
    Some(HandlerConfig {
        name: name.to_owned(),
        file,
        endpoint,
        channels,
        send_port,
        allow: section.words("allow", Grant::WORDS),
        memory: section
            .word("memory", MemoryMode::WORDS)
            .unwrap_or_default(),
        instances: section
            .word("instances", Instances::WORDS)
            .unwrap_or_default(),
        cpu: None,
        params: section.params("params"),
        domain: section.name("domain"),
        line,
    })
}
