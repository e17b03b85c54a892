//! What `load` and `bind` ask for: JSON in, checked facts out.
//!
//! The same words, limits and rules as in the configuration file, whose
//! sections they add to; `config` is what the node runs now.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use ashway_demux as demux;
use ashway_handler::Param;
use ashway_path::attrs::Value as Attr;
use serde_json::Value;

use crate::config::{
    self, Config, FaultLimit, Grant, HandlerConfig, MemoryMode, NAME_HINT, OnFault, PathConfig,
    Share, Stand, Tier, is_name, read_budget, read_channel, read_endpoint, read_faults, read_match,
    read_rate, read_share, suggest,
};

/// Why a request is turned down. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// A stable name; also decides the exit code of the CLI.
    pub(crate) code: &'static str,
    /// Why.
    pub(crate) message: String,
    /// The next step; may be empty.
    pub(crate) hint: String,
}

impl Refusal {
    /// The request itself is wrong.
    pub(crate) fn usage(message: String, hint: impl Into<String>) -> Self {
        Self {
            code: "usage",
            message,
            hint: hint.into(),
        }
    }

    /// The request does not fit what the node has or can do.
    pub(crate) fn failed(message: String, hint: impl Into<String>) -> Self {
        Self {
            code: "failed",
            message,
            hint: hint.into(),
        }
    }
}

/// Reads `load`: a handler under a name that nobody has yet.
///
/// # Errors
///
/// The first thing that is wrong.
pub(crate) fn handler(request: &Value, config: &Config) -> Result<HandlerConfig, Refusal> {
    let path = PathBuf::from(string(request, "file")?.ok_or_else(|| missing("file"))?);
    let given = string(request, "name")?;
    let name = given.or_else(|| path.file_stem().and_then(|s| s.to_str()));
    let name = name.unwrap_or_default().to_owned();
    check_name("handler", &name).map_err(|refusal| match given {
        Some(_) => refusal,
        None => Refusal {
            message: format!("{}, which the file is called", refusal.message),
            hint: format!("give it one with `--name`; {NAME_HINT}"),
            ..refusal
        },
    })?;
    check_free(&name, config)?;
    let file = file(request)?;
    let mut allow = Vec::new();
    for grant in strings(request, "allow")? {
        allow.push(one_of("allow", grant, Grant::WORDS)?);
    }
    let endpoint = match &request["endpoint"] {
        Value::Null => 0,
        slots => {
            let slots = slots.as_i64();
            let slots = slots
                .ok_or_else(|| Refusal::usage("`endpoint` must be an integer".to_owned(), ""))?;
            read_endpoint(slots).map_err(|(message, hint)| Refusal::usage(message, hint))?
        }
    };
    let mut channels = Vec::new();
    for peer in strings(request, "channel")? {
        let peer = read_channel(peer, channels.len());
        channels.push(peer.map_err(|(message, hint)| Refusal::usage(message, hint))?);
    }
    let send_port = match &request["send_port"] {
        Value::Null => 0,
        port => port
            .as_u64()
            .and_then(|port| u16::try_from(port).ok())
            .ok_or_else(|| Refusal::usage("`send_port` must be a port".to_owned(), ""))?,
    };
    Ok(HandlerConfig {
        name,
        file,
        allow,
        endpoint,
        channels,
        send_port,
        memory: word(request, "memory", MemoryMode::WORDS)?,
        params: params(&request["params"])?,
        domain: domain(request, config)?,
        line: 0,
    })
}

/// Reads where `load` wants a handler's module to stand.
///
/// # Errors
///
/// `up` without `down`. Whether there are such services, the graph says.
pub(crate) fn stand(request: &Value, handler: &str) -> Result<Option<Stand>, Refusal> {
    let down = string(request, "down")?.map(str::to_owned);
    let up = string(request, "up")?.map(str::to_owned);
    let stand = |down| Stand {
        handler: handler.to_owned(),
        down,
        up: up.clone(),
    };
    match (down, &up) {
        (None, Some(up)) => Err(Refusal::usage(
            format!("`up` is `{up}`, and there is no `down`"),
            "say what the handler lives on, too, such as `udp.up`",
        )),
        (down, _) => Ok(down.map(stand)),
    }
}

/// The file of a request, which the node can read.
///
/// # Errors
///
/// What is wrong with it.
pub(crate) fn file(request: &Value) -> Result<PathBuf, Refusal> {
    let file = PathBuf::from(string(request, "file")?.ok_or_else(|| missing("file"))?);
    let absolute = "name the file by an absolute path; the node reads it";
    let shown = || short(&file.to_string_lossy()).into_owned();
    let message = match file.metadata() {
        _ if !file.is_absolute() => format!("`{}` is no absolute path", shown()),
        Ok(metadata) if metadata.is_file() => return Ok(file),
        Ok(_) => format!("`{}` is no file", shown()),
        Err(error) => format!("the node cannot read `{}`: {error}", shown()),
    };
    Err(Refusal::usage(message, absolute))
}

/// The domain of a request, if it names one; there must be one of this name.
fn domain(request: &Value, config: &Config) -> Result<Option<String>, Refusal> {
    let name = string(request, "domain")?;
    if let Some(name) = name {
        config
            .domain(name)
            .map_err(|(message, hint)| Refusal::usage(message, hint))?;
    }
    Ok(name.map(str::to_owned))
}

/// Refuses a handler's name that another has.
///
/// # Errors
///
/// If one has.
pub(crate) fn check_free(name: &str, config: &Config) -> Result<(), Refusal> {
    if config.handler(name).is_none() {
        return Ok(());
    }
    Err(Refusal::failed(
        format!("there is a handler `{name}` already"),
        "give this one another name with `--name`",
    ))
}

/// Reads `bind`: a path beside those of `config`.
///
/// # Errors
///
/// The first thing that is wrong.
pub(crate) fn path(request: &Value, config: &Config) -> Result<PathConfig, Refusal> {
    let handler = string(request, "handler")?.ok_or_else(|| missing("handler"))?;
    if config.handler(handler).is_none() {
        let known: Vec<_> = config.handlers.iter().map(|h| h.name.as_str()).collect();
        let Refusal { message, hint, .. } = unknown("handler", handler, &known);
        return Err(Refusal::usage(message, hint));
    }
    let name = string(request, "path")?.unwrap_or(handler);
    check_name("path", name)?;
    if config.paths.iter().any(|path| path.name == name) {
        return Err(Refusal::failed(
            format!("there is a path `{name}` already"),
            "give this one another name with `--name`, or unbind that one",
        ));
    }
    let mut ifaces: Vec<String> = Vec::new();
    let known: Vec<_> = config.ifaces.iter().map(|i| i.name.as_str()).collect();
    for iface in strings(request, "iface")? {
        if !known.contains(&iface) {
            let Refusal { hint, .. } = unknown("interface", iface, &known);
            let message = format!("this node has no interface `{iface}`");
            return Err(Refusal::usage(message, hint));
        }
        if ifaces.iter().any(|earlier| earlier == iface) {
            let message = format!("interface `{iface}` is given twice");
            return Err(Refusal::usage(message, "give each once"));
        }
        ifaces.push(iface.to_owned());
    }
    if ifaces.is_empty() {
        return Err(missing("iface"));
    }
    let match_text = string(request, "match")?.ok_or_else(|| missing("match"))?;
    let path = PathConfig {
        name: name.to_owned(),
        ifaces,
        filter: read_match(match_text).map_err(|error| bad_match(match_text, error))?,
        handler: handler.to_owned(),
        function: string(request, "function")?.unwrap_or("on_rx").to_owned(),
        tier: word(request, "tier", Tier::WORDS)?,
        on_fault: word(request, "on_fault", OnFault::WORDS)?,
        faults: faults(request)?,
        budget: budget(request)?,
        share: share(request)?,
        domain: string(request, "domain")?.map(str::to_owned),
        line: 0,
    };
    config
        .own(&path)
        .and_then(|()| config.compete(&path))
        .map_err(|(message, hint)| Refusal::usage(message, hint))?;
    Ok(path)
}

/// An attribute that a path is to have, as it is read.
///
/// # Errors
///
/// Nobody reads it, or not with this value.
pub(crate) fn attribute(name: &str, value: &Attr) -> Result<Attr, Refusal> {
    config::attribute(name, value).map_err(|wrong| Refusal::usage(wrong.message, wrong.hint))
}

/// Refuses a name that nobody has, with those that are there.
pub(crate) fn unknown(what: &str, name: &str, known: &[&str]) -> Refusal {
    let hint = match (name.len() > LONG, known) {
        (_, []) => format!("there is no {what} at all"),
        // None is anywhere near it.
        (true, _) => NAME_HINT.to_owned(),
        (false, known) => suggest(name, known),
    };
    Refusal::failed(format!("there is no {what} `{}`", short(name)), hint)
}

/// What is longer is no name of ours, and shown in part.
const LONG: usize = 64;

/// A text of somebody, as much of it as a line can hold.
pub(crate) fn short(text: &str) -> Cow<'_, str> {
    let mut chars = text.char_indices();
    match chars.nth(LONG) {
        None => text.into(),
        Some((end, _)) => format!("{}… ({} bytes)", &text[..end], text.len()).into(),
    }
}

fn check_name(kind: &str, name: &str) -> Result<(), Refusal> {
    if is_name(name) {
        return Ok(());
    }
    let message = format!("`{}` cannot be the name of a {kind}", short(name));
    Err(Refusal::usage(message, NAME_HINT))
}

/// What a node can be asked for, as `docs/guide/control.md` describes it.
pub(crate) const REQUESTS: [&str; 22] = [
    "status", "why", "demux", "confirm", "load", "swap", "rollback", "unload", "bind", "unbind",
    "promote", "demote", "enable", "create", "show", "remove", "faults", "fault", "log", "memory",
    "endpoint", "observe",
];

/// The keys of a request that makes or changes what runs here. `create` looks by itself,
/// and the others do no harm with less than was meant.
pub(crate) fn keys(request: &str) -> Option<&'static [&'static str]> {
    Some(match request {
        "load" => &[
            "request",
            "file",
            "name",
            "allow",
            "endpoint",
            "channel",
            "send_port",
            "memory",
            "params",
            "domain",
            "down",
            "up",
            "owner",
        ],
        "bind" => &[
            "request", "handler", "path", "iface", "match", "function", "tier", "on_fault",
            "domain", "budget", "faults", "share", "rate", "owner",
        ],
        "swap" => &["request", "handler", "file", "params"],
        "promote" => &["request", "path", "shadow"],
        _ => return None,
    })
}

/// Refuses a request with keys that nobody reads.
///
/// # Errors
///
/// The first such key, or that it has none at all.
pub(crate) fn only(request: &Value, keys: &[&str]) -> Result<(), Refusal> {
    let Value::Object(given) = request else {
        return Err(Refusal::usage(
            "a path is asked for by an object".to_owned(),
            "write {\"module\": …}",
        ));
    };
    match given.keys().find(|key| !keys.contains(&key.as_str())) {
        None => Ok(()),
        Some(key) => Err(Refusal::usage(
            format!("the request has a key `{key}`, which nobody reads"),
            suggest(key, keys),
        )),
    }
}

/// That a key is missing.
pub(crate) fn missing(key: &str) -> Refusal {
    Refusal::usage(format!("the request needs `{key}`"), "")
}

pub(crate) fn string<'r>(request: &'r Value, key: &str) -> Result<Option<&'r str>, Refusal> {
    match &request[key] {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text)),
        _ => Err(Refusal::usage(format!("`{key}` must be a string"), "")),
    }
}

fn strings<'r>(request: &'r Value, key: &str) -> Result<Vec<&'r str>, Refusal> {
    let wrong = || Refusal::usage(format!("`{key}` must be an array of strings"), "");
    match &request[key] {
        Value::Null => Ok(Vec::new()),
        Value::Array(items) => items
            .iter()
            .map(|item| item.as_str().ok_or_else(wrong))
            .collect(),
        _ => Err(wrong()),
    }
}

fn one_of<T: Copy>(key: &str, text: &str, words: &[(&str, T)]) -> Result<T, Refusal> {
    let found = words.iter().find(|(word, _)| *word == text);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<_> = words.iter().map(|(word, _)| *word).collect();
        let text = short(text);
        Refusal::usage(
            format!("`{key}` cannot be `{text}`"),
            suggest(&text, &names),
        )
    })
}

/// One of these words; without it, the default.
///
/// # Errors
///
/// It is none of them.
pub(crate) fn word<T: Copy + Default>(
    request: &Value,
    key: &str,
    words: &[(&str, T)],
) -> Result<T, Refusal> {
    match string(request, key)? {
        Some(text) => one_of(key, text, words),
        None => Ok(T::default()),
    }
}

fn share(request: &Value) -> Result<Option<Share>, Refusal> {
    let read = |key, read: fn(&str) -> Result<u32, (String, String)>| {
        let text = string(request, key)?;
        let number = text.map(read).transpose();
        number.map_err(|(message, hint)| Refusal::usage(message, hint))
    };
    Ok(Share::of(
        read("share", read_share)?,
        read("rate", read_rate)?,
    ))
}

fn budget(request: &Value) -> Result<Duration, Refusal> {
    match string(request, "budget")? {
        Some(text) => read_budget(text).map_err(|(message, hint)| Refusal::usage(message, hint)),
        None => Ok(Config::DEFAULT_BUDGET),
    }
}

fn faults(request: &Value) -> Result<Option<FaultLimit>, Refusal> {
    match string(request, "faults")? {
        Some(text) => read_faults(text).map_err(|(message, hint)| Refusal::usage(message, hint)),
        None => Ok(Some(FaultLimit::default())),
    }
}

pub(crate) fn params(value: &Value) -> Result<BTreeMap<String, Param>, Refusal> {
    let wrong = || {
        let error = "`params` must be 64-bit integers and texts by name";
        Refusal::usage(error.to_owned(), "")
    };
    let param = |value: &Value| match value {
        Value::String(text) => Some(Param::Text(text.clone())),
        value => value.as_i64().map(Param::Number),
    };
    match value {
        Value::Null => Ok(BTreeMap::new()),
        Value::Object(entries) => entries
            .iter()
            .map(|(name, value)| Ok((name.clone(), param(value).ok_or_else(wrong)?)))
            .collect(),
        _ => Err(wrong()),
    }
}

pub(crate) fn bad_match(text: &str, error: demux::FilterError) -> Refusal {
    // At the end of the text something is missing, not wrong.
    let place = text
        .get(error.span)
        .filter(|word| !word.is_empty() && *word != text)
        .map_or_else(String::new, |word| format!(", at `{word}`"));
    Refusal::usage(format!("in `{text}`{place}: {}", error.message), error.hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::path::Path as FsPath;

    fn node() -> Config {
        let mut config = config::parse(
            FsPath::new("node.toml"),
            b"[iface.a]\n[iface.b]\nmode = \"packet\"",
        )
        .unwrap();
        let this = std::env::current_exe().unwrap();
        let loaded = handler(&json!({ "file": this, "name": "h" }), &config).unwrap();
        config.handlers.push(loaded);
        let request = json!({ "handler": "h", "iface": ["a"], "match": "udp and dst port 7" });
        let bound = path(&request, &config).unwrap();
        assert_eq!(
            (bound.name.as_str(), bound.function.as_str(), bound.tier),
            ("h", "on_rx", Tier::Auto)
        );
        config.paths.push(bound);
        config
    }

    #[test]
    fn what_is_wrong_with_a_handler_is_named() {
        let config = node();
        let this = std::env::current_exe().unwrap();
        for (request, code, says) in [
            (json!({}), "usage", "needs `file`"),
            (json!({ "file": this, "name": "h" }), "failed", "already"),
            (
                json!({ "file": this, "name": "A b" }),
                "usage",
                "name of a handler",
            ),
            (
                json!({ "file": "/My handler.wasm" }),
                "usage",
                "`My handler` cannot be the name of a handler, which the file is called",
            ),
            (json!({ "file": "x.wasm" }), "usage", "no absolute path"),
            (json!({ "file": "/nowhere/x.wasm" }), "usage", "cannot read"),
            (json!({ "file": "/", "name": "x" }), "usage", "is no file"),
            (
                json!({ "file": this, "name": "x", "allow": ["fly"] }),
                "usage",
                "cannot be `fly`",
            ),
            (
                json!({ "file": this, "name": "x", "params": { "a": 1.5 } }),
                "usage",
                "64-bit",
            ),
            (
                json!({ "file": this, "name": "x", "domain": "d" }),
                "usage",
                "no `[domain.d]`",
            ),
        ] {
            let refusal = handler(&request, &config).unwrap_err();
            assert_eq!(refusal.code, code, "{refusal:?}");
            assert!(refusal.message.contains(says), "{refusal:?}");
        }
    }

    #[test]
    fn keys_that_nobody_reads_are_named() {
        only(&json!({ "module": "a" }), &["module"]).unwrap();
        let wrong = only(&json!({ "modul": "a" }), &["module"]).unwrap_err();
        assert!(wrong.message.contains("`modul`"), "{wrong:?}");
        assert!(wrong.hint.contains("did you mean `module`?"), "{wrong:?}");
        let typed = json!({ "request": "bind", "handler": "h", "rates": "1/s" });
        let wrong = only(&typed, keys("bind").unwrap()).unwrap_err();
        assert!(wrong.hint.contains("did you mean `rate`?"), "{wrong:?}");
        let wrong = only(&json!([1, 2]), &["module"]).unwrap_err();
        assert!(wrong.message.contains("by an object"), "{wrong:?}");
    }

    /// A row of the guide for each request, in this order, with its keys.
    #[test]
    fn the_guide_describes_each_request_and_its_keys() {
        let guide = include_str!("../../../docs/guide/control.md");
        let row = |line: &'static str| line.strip_prefix("| `")?.split_once('`');
        let requests = guide
            .split("\n## ")
            .find(|part| part.starts_with("Requests"));
        let rows: Vec<_> = requests.unwrap().lines().filter_map(row).collect();
        let names: Vec<_> = rows.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, REQUESTS);
        for (name, rest) in rows {
            let column = rest.split('|').nth(1).unwrap();
            for key in keys(name).unwrap_or_default().iter().skip(1) {
                assert!(
                    column.contains(&format!("`{key}`")),
                    "{name}: {key}: {column}"
                );
            }
        }
    }

    #[test]
    fn an_attribute_that_nobody_reads_is_refused() {
        let wrong = attribute("local", &Attr::of_text("10.0.1.1:99999")).unwrap_err();
        assert_eq!(wrong.code, "usage");
        assert!(wrong.hint.contains("a port"), "{wrong:?}");
        let wrong = attribute("memory_byte", &Attr::of_text("5")).unwrap_err();
        assert!(wrong.hint.contains("`memory_bytes`?"), "{wrong:?}");
    }

    #[test]
    fn what_is_wrong_with_a_path_is_named() {
        let config = node();
        let good = json!({
            "handler": "h", "path": "p", "iface": ["a"], "match": "udp and dst port 8",
        });
        path(&good, &config).unwrap();
        for (key, value, code, says) in [
            ("handler", json!("g"), "usage", "no handler `g`"),
            ("path", json!("h"), "failed", "path `h` already"),
            ("path", json!(""), "usage", "name of a path"),
            ("iface", json!(["c"]), "usage", "node has no interface `c`"),
            ("iface", json!(["a", "a"]), "usage", "given twice"),
            ("iface", json!([]), "usage", "needs `iface`"),
            ("iface", json!("a"), "usage", "array of strings"),
            ("match", json!("udp and prot 7"), "usage", "at `prot`"),
            (
                "match",
                json!("udp and dst port 7"),
                "usage",
                "paths `h` and `p`",
            ),
            ("match", json!("dst port 7"), "usage", "more than UDP"),
            (
                "match",
                json!("udp and src port 7"),
                "usage",
                "paths `h` and `p`",
            ),
            ("tier", json!("moon"), "usage", "`tier` cannot be `moon`"),
            ("on_fault", json!("cry"), "usage", "cannot be `cry`"),
            ("budget", json!("1 s"), "usage", "out of range"),
            ("faults", json!("3"), "usage", "no limit of faults"),
            ("domain", json!("d"), "usage", "no `[domain.d]`"),
        ] {
            let mut request = good.clone();
            request[key] = value;
            let refusal = path(&request, &config).unwrap_err();
            assert_eq!(refusal.code, code, "{refusal:?}");
            assert!(refusal.message.contains(says), "{refusal:?}");
        }
        // On another interface nobody competes, and what is more specific wins.
        for (iface, text) in [
            ("b", "udp and dst port 7"),
            ("a", "udp dst port 7 and src net 10.0.0.0/8"),
            ("a", "udp and not dst port 7"),
            ("a", "ip and udp dst port 7"),
        ] {
            let mut request = good.clone();
            request["iface"] = json!([iface]);
            request["match"] = json!(text);
            path(&request, &config).unwrap();
        }
    }
}
