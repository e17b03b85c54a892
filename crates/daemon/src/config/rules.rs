//! What must hold between sections.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use ashway_abi::trusted::MAX_PATHS;

use super::read::{Reader, suggest};
use super::sections::PathPlaces;
use super::types::{Config, PathConfig, Tier, XdpMode};
use crate::diagnostics::Diagnostic;

/// Notes every contradiction between sections; `places[i]` belongs to
/// `config.paths[i]`.
pub(super) fn check(reader: &mut Reader<'_>, config: &Config, places: &[PathPlaces]) {
    let ifaces: Vec<_> = config.ifaces.iter().map(|i| i.name.as_str()).collect();
    let handlers: Vec<_> = config.handlers.iter().map(|h| h.name.as_str()).collect();
    let mut used: BTreeMap<&str, usize> = BTreeMap::new();
    for (path, places) in config.paths.iter().zip(places) {
        check_ifaces(reader, config, path, places, &ifaces);
        let Some(span) = &places.handler else {
            continue;
        };
        if !handlers.contains(&path.handler.as_str()) {
            unknown(reader, "handler", &path.handler, span.clone(), &handlers);
        }
        let paths = used.entry(&path.handler).or_default();
        *paths += 1;
        if *paths == MAX_PATHS + 1 {
            reader.error(
                "too_many_paths",
                span.clone(),
                format!("`{}` has more than {MAX_PATHS} paths", path.handler),
                Some("make a second handler section with the same file".to_owned()),
            );
        }
    }
    check_filters(reader, &config.paths, places);
}

fn check_ifaces(
    reader: &mut Reader<'_>,
    config: &Config,
    path: &PathConfig,
    places: &PathPlaces,
    known: &[&str],
) {
    for (position, (name, span)) in places.ifaces.iter().enumerate() {
        if places.ifaces[..position]
            .iter()
            .any(|(earlier, _)| earlier == name)
        {
            reader.error(
                "bad_value",
                span.clone(),
                format!("`{name}` stands twice in this list"),
                None,
            );
        }
        match config.iface(name) {
            None => unknown(reader, "iface", name, span.clone(), known),
            Some(iface) if iface.mode == XdpMode::Packet && path.tier == Tier::Kernel => {
                reader.error(
                    "contradiction",
                    places.tier.clone(),
                    format!("there is no kernel tier on `{name}`: its mode is `packet`"),
                    Some("use `tier = \"auto\"`, or another mode for the interface".to_owned()),
                );
            }
            Some(_) => {}
        }
    }
}

fn unknown(reader: &mut Reader<'_>, kind: &str, name: &str, span: Range<usize>, known: &[&str]) {
    reader.error(
        "unknown_name",
        span,
        format!("there is no `[{kind}.{name}]`"),
        Some(suggest(name, known)),
    );
}

/// On one interface, no message may match two filters of equal specificity:
/// which path gets it would be chance.
fn check_filters(reader: &mut Reader<'_>, paths: &[PathConfig], places: &[PathPlaces]) {
    // Filters that share a family, ports and addresses, or leave them open,
    // can meet; those with different destination ports cannot, and that is
    // how most differ. Comparing only within a port keeps this near linear.
    let mut groups: HashMap<(&str, Option<u16>), Vec<usize>> = HashMap::new();
    for (index, path) in paths.iter().enumerate() {
        let Some(place) = &places[index].filter else {
            continue;
        };
        for iface in &path.ifaces {
            let port = path.filter.dst_port;
            let rivals: Vec<usize> = match port {
                Some(_) => [port, None]
                    .into_iter()
                    .filter_map(|port| groups.get(&(iface.as_str(), port)))
                    .flatten()
                    .copied()
                    .collect(),
                None => groups
                    .iter()
                    .filter(|((name, _), _)| name == iface)
                    .flat_map(|(_, rivals)| rivals)
                    .copied()
                    .collect(),
            };
            let rival = rivals.into_iter().filter(|rival| {
                // A path that lists an interface twice is no rival of itself.
                *rival != index && compete(&paths[*rival], path)
            });
            if let Some(rival) = rival.min() {
                let name = &paths[rival].name;
                let message = competition(&paths[rival], path, iface);
                let also = places[rival].filter.clone();
                reader.errors.push(Diagnostic {
                    code: "ambiguous_match",
                    message,
                    span: Some(place.clone()),
                    label: Some(format!("`{}`", path.name)),
                    also: also.map(|span| (span, format!("`{name}`"))),
                    hint: Some(COMPETITION_HINT.to_owned()),
                });
            }
            groups.entry((iface, port)).or_default().push(index);
        }
    }
}

/// The next step for paths that compete.
pub(crate) const COMPETITION_HINT: &str =
    "the path with more tests gets a message: add one to either";

/// Whether a message can match both paths equally well on one interface.
pub(crate) fn compete(one: &PathConfig, other: &PathConfig) -> bool {
    one.filter.specificity() == other.filter.specificity() && one.filter.overlaps(&other.filter)
}

/// Says that they do on `iface`.
pub(crate) fn competition(one: &PathConfig, other: &PathConfig, iface: &str) -> String {
    let (name, other_name) = (&one.name, &other.name);
    if one.filter == other.filter {
        format!("paths `{name}` and `{other_name}` ask for the same messages on `{iface}`")
    } else {
        format!("a message on `{iface}` can match paths `{name}` and `{other_name}` equally well")
    }
}
