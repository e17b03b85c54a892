//! What `load` and `bind` ask for: typed requests in, checked facts out.
//!
//! The same words, limits and rules as in the configuration file, whose
//! sections they add to; `config` is what the node runs now.

use std::collections::BTreeMap;
use std::path::{Path as FsPath, PathBuf};
use std::time::Duration;

use ashway_api::request::{Bind, Load, NoRequest};
pub(crate) use ashway_api::{Code, Owner, Refusal, Request, Scalar, short};
use ashway_demux as demux;
use ashway_handler::Param;
use ashway_path::attrs::Value as Attr;
use serde_json::Value;

use ashway_config::{
    Config, FaultLimit, HandlerConfig, Instances, NAME_HINT, PathConfig, Placement, Share,
    instance_of, is_name, read_budget, read_channel, read_endpoint, read_faults, read_match,
    read_rate, read_share, suggest, whole_name,
};

/// Reads a request.
///
/// # Errors
///
/// The first thing that is wrong.
pub(crate) fn read(value: Value) -> Result<Request, Refusal> {
    Request::read(value).map_err(|error| match error {
        NoRequest::Unnamed => Refusal::new(
            Code::BadRequest,
            error.to_string(),
            format!("requests are {}", Request::NAMES.join(", ")),
        ),
        NoRequest::Misread(misread) => {
            let near = misread.word.map(|(word, words)| suggest(&word, words));
            Refusal::usage(misread.message, near.unwrap_or(misread.hint))
        }
    })
}

/// What is wrong with a value, and what to write instead, as a refusal.
fn wrong((message, hint): (String, String)) -> Refusal {
    Refusal::usage(message, hint)
}

/// The same of what a handler with an instance for each CPU cannot have.
fn too_many((_, message, hint): (&str, String, String)) -> Refusal {
    Refusal::usage(message, hint)
}

/// Reads `load`: a handler under a name that nobody has yet.
///
/// # Errors
///
/// The first thing that is wrong.
pub(crate) fn handler(request: &Load, config: &Config) -> Result<HandlerConfig, Refusal> {
    let given = request.name.as_deref();
    let stem = FsPath::new(&request.file).file_stem();
    let name = given.or_else(|| stem.and_then(|stem| stem.to_str()));
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
    let mut channels = Vec::new();
    for peer in &request.channel {
        channels.push(read_channel(peer, channels.len()).map_err(wrong)?);
    }
    let endpoint = request.endpoint.map(|slots| read_endpoint(slots.into()));
    if let Some(domain) = &request.domain {
        config.domain(domain).map_err(wrong)?;
    }
    let handler = HandlerConfig {
        name,
        file: file(&request.file)?,
        allow: request.allow.iter().map(|allow| allow.0).collect(),
        endpoint: endpoint.transpose().map_err(wrong)?.unwrap_or_default(),
        channels,
        send_port: request.send_port.unwrap_or_default(),
        memory: request.memory,
        instances: request.instances,
        cpu: None,
        params: params(&request.params),
        domain: request.domain.clone(),
        line: 0,
    };
    handler.may_be_several().map_err(too_many)?;
    Ok(handler)
}

/// Reads where `load` wants a handler's module to stand.
///
/// # Errors
///
/// `up` without `down`. Whether there are such services, the graph says.
pub(crate) fn placement(request: &Load, handler: &str) -> Result<Option<Placement>, Refusal> {
    if request.instances == Instances::PerCpu && request.down.is_some() {
        return Err(Refusal::usage(
            "`instances` is `per-cpu`, and the handler is to stand among modules",
            "leave `down` out: a path of modules does not say by which CPU a message came",
        ));
    }
    match (&request.down, &request.up) {
        (None, Some(up)) => Err(Refusal::usage(
            format!("`up` is `{up}`, and there is no `down`"),
            "say what the handler lives on, too, such as `udp.up`",
        )),
        (down, up) => Ok(down.as_ref().map(|down| Placement {
            handler: handler.to_owned(),
            down: down.clone(),
            up: up.clone(),
        })),
    }
}

/// The file of a request, which the node can read.
///
/// # Errors
///
/// What is wrong with it.
pub(crate) fn file(file: &str) -> Result<PathBuf, Refusal> {
    let file = PathBuf::from(file);
    let shown = || short(&file.to_string_lossy());
    let (message, hint) = match file.metadata() {
        _ if !file.is_absolute() => (
            format!("`{}` is no absolute path", shown()),
            "name the file by an absolute path; the node reads it",
        ),
        Ok(metadata) if metadata.is_file() => return Ok(file),
        Ok(_) => (
            format!("`{}` is no file", shown()),
            "the node reads no device, pipe or folder; name a file",
        ),
        Err(error) => (
            format!("the node cannot read `{}`: {error}", shown()),
            "is it there for the user that the node runs as?",
        ),
    };
    Err(Refusal::usage(message, hint))
}

/// Refuses a handler's name that another has.
///
/// # Errors
///
/// If one has.
pub(crate) fn check_free(name: &str, config: &Config) -> Result<(), Refusal> {
    if config.some_instance(name).is_none() {
        return Ok(());
    }
    Err(Refusal::failed(
        format!("there is a handler `{name}` already"),
        "give this one another name with `--name`",
    ))
}

/// Says that another path has this name.
pub(crate) fn taken(name: &str) -> Refusal {
    Refusal::failed(
        format!("there is a path `{name}` already"),
        "give this one another name",
    )
}

/// Reads `bind`: a path beside those of `config`.
///
/// # Errors
///
/// The first thing that is wrong.
pub(crate) fn path(request: &Bind, config: &Config) -> Result<PathConfig, Refusal> {
    let handler = &request.handler;
    if config.some_instance(handler).is_none() {
        let known: Vec<_> = config
            .handlers
            .iter()
            .map(|h| whole_name(&h.name))
            .collect();
        let Refusal { message, hint, .. } = unknown("handler", handler, &known);
        return Err(Refusal::usage(message, hint));
    }
    if let Some((whole, cpu)) = instance_of(handler) {
        let message = format!(
            "`{handler}` is what handler `{whole}` is on CPU {cpu}: a path leads to all of its \
             instances, each to that of its CPU"
        );
        return Err(Refusal::usage(message, format!("name `{whole}`")));
    }
    let name = request.path.as_ref().unwrap_or(handler);
    check_name("path", name)?;
    if config
        .paths
        .iter()
        .any(|path| whole_name(&path.name) == name)
    {
        return Err(Refusal::failed(
            format!("there is a path `{name}` already"),
            "give this one another name with `--name`, or unbind that one",
        ));
    }
    let (mut ifaces, mut patterns) = (Vec::new(), Vec::new());
    let known: Vec<_> = config.ifaces.iter().map(|i| i.name.as_str()).collect();
    for iface in &request.iface {
        if ifaces.contains(iface) || patterns.contains(iface) {
            let message = format!("interface `{iface}` is given twice");
            return Err(Refusal::usage(message, "give each once"));
        }
        let mut all = config.patterns.iter();
        if all.any(|pattern| pattern.glob.text() == iface) {
            patterns.push(iface.clone());
            continue;
        }
        if !known.contains(&iface.as_str()) {
            let Refusal { hint, .. } = unknown("interface", iface, &known);
            let message = format!("this node has no interface `{iface}`");
            return Err(Refusal::usage(message, hint));
        }
        ifaces.push(iface.clone());
    }
    // Those that it is at by a pattern; others follow as they come.
    for iface in &config.ifaces {
        let by_pattern = iface.pattern.as_ref();
        if by_pattern.is_some_and(|it| patterns.contains(it)) && !ifaces.contains(&iface.name) {
            ifaces.push(iface.name.clone());
        }
    }
    if ifaces.is_empty() && patterns.is_empty() {
        return Err(Refusal::usage("the request needs `iface`", ""));
    }
    let path = PathConfig {
        name: name.clone(),
        ifaces,
        patterns,
        filter: read_match(&request.filter).map_err(|error| bad_match(&request.filter, error))?,
        handler: handler.clone(),
        function: request
            .function
            .clone()
            .unwrap_or_else(|| "on_rx".to_owned()),
        tier: request.tier,
        on_fault: request.on_fault,
        faults: faults(request)?,
        budget: budget(request)?,
        share: share(request)?,
        order: request.order,
        queue: None,
        memory_bytes: None,
        domain: request.domain.clone(),
        cpu: None,
        line: 0,
    };
    config
        .own(&path)
        .and_then(|()| config.compete(&path))
        .map_err(wrong)?;
    config.may_be_split(&path).map_err(too_many)?;
    Ok(path)
}

/// An attribute that a path is to have, as it is read.
///
/// # Errors
///
/// Nobody reads it, or not with this value.
pub(crate) fn attribute(name: &str, value: Attr) -> Result<(&'static str, Attr), Refusal> {
    ashway_config::attribute(name, value).map_err(|wrong| Refusal::usage(wrong.message, wrong.hint))
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

/// What is longer is no name of ours.
const LONG: usize = 64;

fn check_name(kind: &str, name: &str) -> Result<(), Refusal> {
    if is_name(name) {
        return Ok(());
    }
    let message = format!("`{}` cannot be the name of a {kind}", short(name));
    Err(Refusal::usage(message, NAME_HINT))
}

fn share(request: &Bind) -> Result<Option<Share>, Refusal> {
    let share = request.share.as_deref().map(read_share).transpose();
    let rate = request.rate.as_deref().map(read_rate).transpose();
    Ok(Share::of(share.map_err(wrong)?, rate.map_err(wrong)?))
}

fn budget(request: &Bind) -> Result<Duration, Refusal> {
    let budget = request.budget.as_deref().map(read_budget).transpose();
    Ok(budget.map_err(wrong)?.unwrap_or(Config::DEFAULT_BUDGET))
}

fn faults(request: &Bind) -> Result<Option<FaultLimit>, Refusal> {
    let faults = request.faults.as_deref().map(read_faults).transpose();
    Ok(faults
        .map_err(wrong)?
        .unwrap_or_else(|| Some(FaultLimit::default())))
}

/// The values of a handler's parameters.
pub(crate) fn params(given: &BTreeMap<String, Scalar<i64>>) -> BTreeMap<String, Param> {
    let value = |value: &Scalar<i64>| match value {
        Scalar::Number(number) => Param::Number(*number),
        Scalar::Text(text) => Param::Text(text.clone()),
    };
    let params = given.iter();
    params
        .map(|(name, given)| (name.clone(), value(given)))
        .collect()
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
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use ashway_config::Tier;

    fn load(request: Value, config: &Config) -> Result<HandlerConfig, Refusal> {
        match read(named("load", request))? {
            Request::Load(request) => handler(&request, config),
            other => unreachable!("{other:?}"),
        }
    }

    fn bind(request: Value, config: &Config) -> Result<PathConfig, Refusal> {
        match read(named("bind", request))? {
            Request::Bind(request) => path(&request, config),
            other => unreachable!("{other:?}"),
        }
    }

    fn named(name: &str, mut request: Value) -> Value {
        request["request"] = json!(name);
        request
    }

    fn node() -> Config {
        let mut config = ashway_config::parse(
            FsPath::new("node.toml"),
            b"[iface.a]\n[iface.b]\nmode = \"packet\"",
        )
        .unwrap();
        let this = std::env::current_exe().unwrap();
        let loaded = load(json!({ "file": this, "name": "h" }), &config).unwrap();
        config.handlers.push(loaded);
        let request = json!({ "handler": "h", "iface": ["a"], "match": "udp and dst port 7" });
        let bound = bind(request, &config).unwrap();
        assert_eq!(
            (bound.name.as_str(), bound.function.as_str(), bound.tier),
            ("h", "on_rx", Tier::Auto)
        );
        config.paths.push(Arc::new(bound));
        config
    }

    #[test]
    fn what_is_wrong_with_a_handler_is_named() {
        let config = node();
        let this = std::env::current_exe().unwrap();
        for (request, code, says) in [
            (json!({}), Code::Usage, "needs `file`"),
            (
                json!({ "file": this, "name": "h" }),
                Code::Failed,
                "already",
            ),
            (
                json!({ "file": this, "name": "A b" }),
                Code::Usage,
                "name of a handler",
            ),
            (
                json!({ "file": "/My handler.wasm" }),
                Code::Usage,
                "`My handler` cannot be the name of a handler, which the file is called",
            ),
            (json!({ "file": "x.wasm" }), Code::Usage, "no absolute path"),
            (
                json!({ "file": "/nowhere/x.wasm" }),
                Code::Usage,
                "cannot read",
            ),
            (
                json!({ "file": "/", "name": "x" }),
                Code::Usage,
                "is no file",
            ),
            (
                json!({ "file": this, "name": "x", "allow": ["fly"] }),
                Code::Usage,
                "cannot be `fly`",
            ),
            (
                json!({ "file": this, "name": "x", "params": { "a": 1.5 } }),
                Code::Usage,
                "`a` cannot be 1.5",
            ),
            (
                json!({ "file": this, "name": "x", "domain": "d" }),
                Code::Usage,
                "no `[domain.d]`",
            ),
        ] {
            let refusal = load(request, &config).unwrap_err();
            assert_eq!(refusal.code, code, "{refusal:?}");
            assert!(refusal.message.contains(says), "{refusal:?}");
        }
    }

    #[test]
    fn an_unknown_key_is_named_with_the_one_that_is_near() {
        let typed = json!({ "handler": "h", "iface": ["a"], "match": "udp", "rates": "1/s" });
        let wrong = bind(typed, &node()).unwrap_err();
        assert_eq!(wrong.message, "unknown key `rates`");
        assert!(wrong.hint.contains("did you mean `rate`?"), "{wrong:?}");
        let wrong = read(json!([1, 2])).unwrap_err();
        assert_eq!(wrong.code, Code::BadRequest);
        assert!(wrong.hint.contains("status, why,"), "{wrong:?}");
    }

    #[test]
    fn an_attribute_that_nobody_reads_is_refused() {
        let wrong = attribute("local", Attr::of_text("10.0.1.1:99999")).unwrap_err();
        assert_eq!(wrong.code, Code::Usage);
        assert!(wrong.hint.contains("a port"), "{wrong:?}");
        let wrong = attribute("memory_byte", Attr::of_text("5")).unwrap_err();
        assert!(wrong.hint.contains("`memory_bytes`?"), "{wrong:?}");
    }

    #[test]
    fn what_is_wrong_with_a_path_is_named() {
        let config = node();
        let good = json!({
            "handler": "h", "path": "p", "iface": ["a"], "match": "udp and dst port 8",
        });
        bind(good.clone(), &config).unwrap();
        for (key, value, code, says) in [
            ("handler", json!("g"), Code::Usage, "no handler `g`"),
            ("path", json!("h"), Code::Failed, "path `h` already"),
            ("path", json!(""), Code::Usage, "name of a path"),
            (
                "iface",
                json!(["c"]),
                Code::Usage,
                "node has no interface `c`",
            ),
            ("iface", json!(["a", "a"]), Code::Usage, "given twice"),
            ("iface", json!([]), Code::Usage, "needs `iface`"),
            ("iface", json!("a"), Code::Usage, "`iface` cannot be `a`"),
            ("match", json!("udp and prot 7"), Code::Usage, "at `prot`"),
            (
                "match",
                json!("udp and dst port 7"),
                Code::Usage,
                "paths `h` and `p`",
            ),
            ("match", json!("dst port 7"), Code::Usage, "more than UDP"),
            (
                "match",
                json!("udp and src port 7"),
                Code::Usage,
                "paths `h` and `p`",
            ),
            (
                "tier",
                json!("moon"),
                Code::Usage,
                "`tier` cannot be `moon`",
            ),
            ("on_fault", json!("cry"), Code::Usage, "cannot be `cry`"),
            ("budget", json!("1 s"), Code::Usage, "out of range"),
            ("faults", json!("3"), Code::Usage, "no limit of faults"),
            ("domain", json!("d"), Code::Usage, "no `[domain.d]`"),
        ] {
            let mut request = good.clone();
            request[key] = value;
            let refusal = bind(request, &config).unwrap_err();
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
            bind(request, &config).unwrap();
        }
    }
}
