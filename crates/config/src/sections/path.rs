//! Paths that end in a handler in the short form, and any path in the long one.

use std::ops::Range;
use std::time::Duration;

use ashway_demux as demux;
use ashway_modules::handler::FUNCTION;
use ashway_path::attrs::{Attrs, names};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::check_name;
use crate::glob::Glob;
use crate::read::{Reader, Section};
use crate::share::{Share, read_rate, read_share};
use crate::types::{
    Config, FaultLimit, LayeredHandler, LongPath, OnFault, OrderRule, PathConfig, Tier,
};
use crate::values::{fault_limit, fault_time, read_budget, read_match};
use crate::{attributes, implied, patterns};

/// Where the parts of a path stand, for the rules that compare paths.
pub(crate) struct PathPlaces {
    pub(crate) ifaces: Vec<(String, Range<usize>)>,
    pub(crate) filter: Option<Range<usize>>,
    pub(crate) handler: Option<Range<usize>>,
    pub(crate) tier: Range<usize>,
    /// The layer of its handler, if it is another than that above UDP.
    pub(super) layer: Option<HandlerLayer>,
}

/// Where a handler stands: what lies behind this protocol's header is its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HandlerLayer {
    /// A link: packets.
    Eth,
    /// IP: what packets carry.
    Ip,
}

pub(super) fn path(
    reader: &mut Reader<'_>,
    name: &str,
    span: Range<usize>,
    value: &Spanned<DeValue<'_>>,
) -> Option<(PathConfig, PathPlaces)> {
    check_name(reader, "path", name, span.clone());
    let line = reader.line(span.start);
    let keys = [
        "iface", "match", "layer", "handler", "tier", "on_fault", "faults", "budget", "share",
        "rate", "order", "domain",
    ];
    let title = format!("path.{name}");
    let mut section = Section::open(reader, title, span, value, &keys)?;
    let mut places = PathPlaces {
        ifaces: Vec::new(),
        filter: None,
        handler: None,
        tier: section.place("tier"),
        layer: section.word("layer", LAYERS).flatten(),
    };
    for (iface, span) in section.strings("iface", "\"veth0\"") {
        places.ifaces.push((iface.to_owned(), span));
    }
    let mut path = PathConfig {
        name: name.to_owned(),
        ifaces: places.ifaces.iter().map(|(name, _)| name.clone()).collect(),
        patterns: Vec::new(),
        filter: demux::Filter {
            text: String::new(),
            any: Vec::new(),
        },
        handler: String::new(),
        function: "on_rx".to_owned(),
        tier: section.word("tier", Tier::WORDS).unwrap_or_default(),
        on_fault: section.word("on_fault", OnFault::WORDS).unwrap_or_default(),
        faults: faults(&mut section),
        budget: budget(&mut section),
        share: share(&mut section),
        order: section.word("order", OrderRule::WORDS).unwrap_or_default(),
        queue: None,
        memory_bytes: None,
        domain: section.name("domain"),
        cpu: None,
        line,
    };
    if let Some((text, span)) = section.required("match", "\"udp and dst port 7777\"") {
        let filter = match places.layer {
            None => read_match(text),
            Some(_) => demux::parse(text),
        };
        match filter {
            Ok(filter) => {
                path.filter = filter;
                places.filter = Some(span);
            }
            Err(error) => bad_match(section.reader, span, text, error),
        }
    }
    if let Some((text, span)) = section.required("handler", "\"NAME\"") {
        let (handler, function) = text.split_once(':').unwrap_or((text, "on_rx"));
        handler.clone_into(&mut path.handler);
        function.clone_into(&mut path.function);
        if function.is_empty() {
            section.reader.error(
                "bad_value",
                span,
                format!("`{text}` names no function after the colon"),
                Some(format!("write `{handler}`, which means `{handler}:on_rx`")),
            );
        } else {
            places.handler = Some(span);
        }
    }
    Some((path, places))
}

/// The values of `layer`.
const LAYERS: &[(&str, Option<HandlerLayer>)] = &[
    ("udp", None),
    ("ip", Some(HandlerLayer::Ip)),
    ("eth", Some(HandlerLayer::Eth)),
];

/// What a path whose handler stands elsewhere than above UDP is short for: a path of
/// the long form from a module that runs it there. `None` if it cannot be.
pub(super) fn at_layer(
    reader: &mut Reader<'_>,
    root: &DeTable<'_>,
    path: PathConfig,
    places: PathPlaces,
) -> Option<(LongPath, LayeredHandler)> {
    let layer = places.layer?;
    if path.tier == Tier::Kernel {
        reader.error(
            "contradiction",
            places.tier,
            "the kernel tier gives handlers payloads of UDP and nothing else".to_owned(),
            Some("use `tier = \"auto\"`, or leave `layer` out".to_owned()),
        );
        return None;
    }
    let [(iface, at)] = &places.ifaces[..] else {
        let at = places.ifaces.get(1).map_or(0..0, |(_, at)| at.clone());
        reader.error(
            "not_supported",
            at,
            format!(
                "a path with `layer` is on one interface, not on {}",
                places.ifaces.len()
            ),
            Some("write a path for each".to_owned()),
        );
        return None;
    };
    if !root
        .get("iface")
        .and_then(|all| all.get_ref().as_table())
        .is_some_and(|all| all.contains_key(&**iface))
    {
        let message = format!("there is no `[iface.{iface}]`");
        let hint = format!("write `[iface.{iface}]`, or name another");
        reader.error("unknown_name", at.clone(), message, Some(hint));
        return None;
    }
    if Glob::is_one(iface) {
        let (message, hint) = patterns::refused(iface);
        reader.error("not_supported", at.clone(), message, Some(hint));
        return None;
    }
    let (iface, module) = match layer {
        HandlerLayer::Eth => (
            Some(iface.clone()),
            format!("handler:{}@{iface}", path.handler),
        ),
        HandlerLayer::Ip => (None, format!("handler:{}@ip", path.handler)),
    };
    let mut attrs = Attrs::new();
    attrs.set(
        names::PATHNAME,
        implied::link(root, &path.ifaces[0]).as_str(),
    );
    attrs.set(FUNCTION, path.function.as_str());
    attrs.set(attributes::attr::ON_FAULT, path.on_fault.word());
    attrs.set(attributes::attr::BUDGET_NS, path.budget.as_nanos() as u64);
    attributes::set_faults(&mut attrs, path.faults);
    attributes::set_share(&mut attrs, path.share);
    attributes::set_order(&mut attrs, path.order);
    let layered = LayeredHandler {
        module: module.clone(),
        handler: path.handler,
        iface,
    };
    let long = LongPath {
        name: path.name,
        from: module,
        filter: places.filter.is_some().then_some(path.filter),
        attrs,
        tier: path.tier,
        domain: path.domain,
        entrances: Vec::new(),
        line: path.line,
    };
    Some((long, layered))
}

/// The long form names the module that the path is created from.
pub(super) fn is_long(value: &Spanned<DeValue<'_>>) -> bool {
    let table = value.get_ref().as_table();
    table.is_some_and(|table| table.contains_key("from"))
}

pub(super) fn long_path(
    reader: &mut Reader<'_>,
    name: &str,
    span: Range<usize>,
    value: &Spanned<DeValue<'_>>,
) -> Option<LongPath> {
    check_name(reader, "path", name, span.clone());
    let line = reader.line(span.start);
    let title = format!("path.{name}");
    let keys = ["from", "match", "attrs", "tier", "domain"];
    let mut section = Section::open_knowing(reader, title, span, value, &keys, |key| {
        let attribute = in_attrs(key)?;
        Some(format!(
            "a path with `from` has an attribute for it: `attrs = {{ {attribute} }}`"
        ))
    })?;
    let (from, _) = section.required("from", "\"MODULE\"")?;
    let filter = section.string("match").and_then(|(text, span)| {
        let filter = demux::parse(text);
        filter
            .map_err(|error| bad_match(section.reader, span, text, error))
            .ok()
    });
    Some(LongPath {
        name: name.to_owned(),
        from: from.to_owned(),
        filter,
        attrs: section.attrs("attrs"),
        tier: section.word("tier", Tier::WORDS).unwrap_or_default(),
        domain: section.name("domain"),
        entrances: Vec::new(),
        line,
    })
}

/// How the long form says what this key of the short form does.
fn in_attrs(key: &str) -> Option<&'static str> {
    Some(match key {
        "share" => "share_per_mille = 200",
        "rate" => "rate_per_second = 5000",
        "budget" => "budget_ns = 50000",
        "on_fault" => "on_fault = \"drop\"",
        "order" => "order = \"none\"",
        "faults" => "fault_limit = 100, fault_within_ns = 1000000000",
        "iface" => "pathname = \"eth:IFACE\"",
        "handler" => "pathname = \"handler:NAME\", function = \"on_rx\"",
        _ => return None,
    })
}

/// Notes what is wrong with a filter, at its place in it.
pub(super) fn bad_match(
    reader: &mut Reader<'_>,
    span: Range<usize>,
    text: &str,
    error: demux::FilterError,
) {
    let at = reader.within(span, text, error.span);
    reader.error("bad_match", at, error.message, Some(error.hint));
}

fn budget(section: &mut Section<'_, '_, '_>) -> Duration {
    let Some((text, span)) = section.string("budget") else {
        return Config::DEFAULT_BUDGET;
    };
    read_budget(text).unwrap_or_else(|(trouble, hint)| {
        section
            .reader
            .error("bad_budget", span, trouble, Some(hint));
        Config::DEFAULT_BUDGET
    })
}

/// What the path may have of its tier.
fn share(section: &mut Section<'_, '_, '_>) -> Option<Share> {
    type Read = fn(&str) -> Result<u32, (String, String)>;
    let keys: [(_, _, Read); 2] = [
        ("share", "bad_share", read_share),
        ("rate", "bad_rate", read_rate),
    ];
    let [share, rate] = keys.map(|(key, code, read)| {
        let (text, span) = section.string(key)?;
        let note = |(trouble, hint)| section.reader.error(code, span, trouble, Some(hint));
        read(text).map_err(note).ok()
    });
    Share::of(share, rate)
}

/// How often the handler may be stopped: a table, or "off".
fn faults(section: &mut Section<'_, '_, '_>) -> Option<FaultLimit> {
    let usual = FaultLimit::default();
    let Some(mut table) = section.table_or("faults", "off", &["limit", "within", "rest"]) else {
        return if section.is_word("faults", "off") {
            None
        } else {
            Some(usual)
        };
    };
    let most = table.integer("limit");
    let limit = most
        .as_ref()
        .map_or(Ok(usual.most), |(most, _)| fault_limit(*most));
    let most = limit.unwrap_or_else(|(trouble, hint)| {
        let span = table.place("limit");
        table.reader.error("bad_value", span, trouble, Some(hint));
        usual.most
    });
    let mut time = |key| {
        let (text, span) = table.string(key)?;
        let note = |(trouble, hint)| table.reader.error("bad_value", span, trouble, Some(hint));
        fault_time(text).map_err(note).ok()
    };
    Some(FaultLimit {
        most,
        within: time("within").unwrap_or(usual.within),
        rest: time("rest").or(usual.rest),
    })
}
