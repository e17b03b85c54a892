//! `ashway path plan`: how a path would be created, and what it would be.

use std::fmt::Write as _;
use std::path::PathBuf;

use ashway_config::{
    self as config, Asked, Attach, Config, Entrance, LongPath, NodeGraph, Offline, PathConfig, Tier,
};
use ashway_demux as demux;
use ashway_modules::Message;
use ashway_path::attrs::{Attrs, Value as Attribute};
use ashway_path::create::{Created, NotCreated};
use ashway_path::problem::suggest;
use ashway_path::stage::Stage;
use clap::Args;
use serde_json::{Value, json};

use crate::face::{Face, clean};
use crate::failure::{Exit, Failure};
use crate::table;

/// Create a path in the graph of a configuration, and show it
///
/// Changes nothing, asks no node and needs no privilege. Shows the stages in order,
/// from where the path is created, what each of them asks of a frame, the whole
/// filter, the tier that the path would run in and why, and the attributes at the end;
/// with -v also how it came to that: which module went where and why, which attributes
/// it rewrote, and which rules were applied.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ashway path plan node.toml inc
  ashway path plan node.toml inc -v
  ashway path plan node.toml --from eth:veth0 --attr pathname=udp/count \\
      --attr remote=10.0.0.2:9000")]
pub(crate) struct Plan {
    /// The configuration
    config: PathBuf,
    /// A path of it; one at each of its interfaces
    #[arg(required_unless_present = "from", conflicts_with = "from")]
    name: Option<String>,
    /// Not a path of the configuration, but one from this module
    #[arg(long, value_name = "MODULE")]
    from: Option<String>,
    /// An attribute of the path; can be given several times
    #[arg(long = "attr", value_name = "NAME=VALUE")]
    attrs: Vec<String>,
    /// Show how it was created, step by step
    #[arg(short, long)]
    verbose: bool,
}

/// A path, and what is asked of a frame beside what its stages ask.
struct Planned {
    name: String,
    created: Created<Message>,
    entrances: Vec<Entrance>,
    matched: Option<demux::Filter>,
    /// Where it would run.
    tier: Tier,
    /// Why there, or what else decides.
    because: String,
}

impl Plan {
    pub(crate) fn run(self, face: Face) -> Result<(), Failure> {
        let config = config::load(&self.config)?;
        let graph = config.graph(&Offline(&config))?;
        let mut attrs = Attrs::new();
        for (name, value) in super::attrs(&self.attrs)? {
            let (name, value) = config::attribute(name, Attribute::of_text(value))
                .map_err(|wrong| Failure::new(Exit::Usage, wrong.message).hint(wrong.hint))?;
            attrs.set(name, value);
        }
        let planned = match (&self.name, &self.from) {
            (Some(name), _) => section(&config, &graph, name, &attrs),
            (None, from) => {
                let from = from.as_deref().unwrap_or_default();
                let path = LongPath {
                    name: from.to_owned(),
                    from: from.to_owned(),
                    attrs,
                    tier: Tier::Auto,
                    filter: None,
                    domain: None,
                    entrances: Vec::new(),
                    line: 0,
                };
                Planned::long(&config, &graph, &path).map(|planned| vec![planned])
            }
        };
        let planned = planned.map_err(|error| self.failure(&error))?;
        if planned.is_empty() {
            let name = self.name.unwrap_or_default();
            let short = config.paths.iter().map(|path| path.name.as_str());
            let long = config.long_paths.iter().map(|path| path.name.as_str());
            let known: Vec<_> = short.chain(long).collect();
            let failure = Failure::new(Exit::Usage, format!("there is no `[path.{name}]`"));
            return Err(failure.hint(suggest(&name, &known)).in_file(&self.config));
        }
        let document = json!({ "paths": planned.iter().map(Planned::json).collect::<Vec<_>>() });
        face.show(&document, || {
            let texts: Vec<_> = planned.iter().map(|path| path.text(self.verbose)).collect();
            texts.join("\n")
        })
    }

    /// With -v, the steps before the one that failed stand before the reason.
    fn failure(&self, error: &NotCreated) -> Failure {
        let mut failure = Failure::new(Exit::Usage, error.what());
        if self.verbose {
            for line in error.log.to_string().lines() {
                failure = failure.because(&line);
            }
        }
        failure
            .because(&error.because)
            .hint(error.hint.as_str())
            .in_file(&self.config)
    }
}

/// The path of this name at each of its interfaces; none if there is no such path.
fn section(
    config: &Config,
    graph: &NodeGraph,
    name: &str,
    attrs: &Attrs,
) -> Result<Vec<Planned>, NotCreated> {
    let mut planned = Vec::new();
    if let Some(path) = config.paths.iter().find(|path| path.name == name) {
        for iface in &path.ifaces {
            let created = graph.create(path, iface, attrs.clone())?;
            planned.push(Planned::short(config, graph, path, iface, created));
        }
    }
    if let Some(path) = config.long_paths.iter().find(|path| path.name == name) {
        let mut path = path.clone();
        for (name, value) in attrs.iter() {
            path.attrs.set(name.to_owned(), value.clone());
        }
        planned.push(Planned::long(config, graph, &path)?);
    }
    Ok(planned)
}

impl Planned {
    /// One that is bound to a handler, at an interface.
    fn short(
        config: &Config,
        graph: &NodeGraph,
        path: &PathConfig,
        iface: &str,
        created: Created<Message>,
    ) -> Self {
        let alone = graph.user_tier_alone(path, iface);
        let stays = alone.map_or(Ok(()), |(because, _)| Err(because));
        let (tier, because) = tier_of(config, path.tier, [iface], stays);
        let because = match tier {
            Tier::User => because,
            _ => format!("{because}, and its handler can (`ashway check` says)"),
        };
        Self {
            name: path.name.clone(),
            entrances: graph.entrances(&created, None),
            created,
            matched: Some(path.filter.clone()),
            tier,
            because,
        }
    }

    /// One from a module.
    fn long(config: &Config, graph: &NodeGraph, path: &LongPath) -> Result<Self, NotCreated> {
        let created = graph.create_long(path)?;
        let entrances = graph.entrances(&created, path.filter.as_ref());
        let why = match graph.bound(&Asked::long(path)) {
            Ok(bound) => {
                let iface = &bound.ifaces[0];
                let planned = Self::short(config, graph, &bound, iface, created);
                return Ok(Self {
                    entrances,
                    matched: None,
                    ..planned
                });
            }
            Err(why) => why,
        };
        let stays = graph.fits(&created.path, why);
        let ifaces = entrances.iter().map(|end| &*end.iface);
        let (tier, because) = tier_of(
            config,
            path.tier,
            ifaces,
            stays.map_err(|it| it.because.into_owned()),
        );
        Ok(Self {
            name: path.name.clone(),
            created,
            entrances,
            matched: None,
            tier,
            because,
        })
    }

    /// What must be true of a frame at this end: the section's `match`, and what
    /// the stages ask beyond that.
    fn filter(&self, entrance: &Entrance) -> String {
        match (&self.matched, entrance.text()) {
            (None, None) => "any frame".to_owned(),
            (None, Some(stages)) => stages,
            (Some(matched), Some(stages))
                if !demux::parse(&stages).is_ok_and(|stages| matched.implies(&stages)) =>
            {
                format!("{stages} and ({matched})")
            }
            (Some(matched), _) => matched.to_string(),
        }
    }

    fn text(&self, verbose: bool) -> String {
        let path = &self.created.path;
        let stages = match path.len() {
            1 => "1 stage".to_owned(),
            count => format!("{count} stages"),
        };
        let mut text = format!("path {}: {stages}\n", clean(&self.name));
        let (runs_in, because) = (self.tier.word(), clean(&self.because));
        let _ = writeln!(text, "tier: {runs_in}, {because}");
        let rows: Vec<_> = path
            .stages()
            .map(|stage| {
                vec![
                    stage.name().to_owned(),
                    kind(stage).to_owned(),
                    tier(stage).to_owned(),
                    stage.filter().unwrap_or_default(),
                ]
            })
            .collect();
        text += &table::render(&["STAGE", "KIND", "INBOUND IN", "FILTER"], &rows);
        for entrance in &self.entrances {
            let (iface, filter) = (clean(&entrance.iface), self.filter(entrance));
            let _ = writeln!(text, "filter on {iface}: {}", clean(&filter));
        }
        let _ = writeln!(text, "attributes: {}", clean(&path.attrs().to_string()));
        let _ = writeln!(
            text,
            "memory, with full queues: {} bytes",
            path.memory_bytes()
        );
        if verbose {
            text.push('\n');
            for line in self.created.log.to_string().lines() {
                let _ = writeln!(text, "  {}", clean(line).trim_end());
            }
        }
        text
    }

    fn json(&self) -> Value {
        let path = &self.created.path;
        let stages: Vec<_> = path
            .stages()
            .map(|stage| {
                json!({
                    "name": stage.name(),
                    "kind": kind(stage),
                    "inbound_in": tier(stage),
                    "filter": stage.filter(),
                })
            })
            .collect();
        let attributes: serde_json::Map<_, _> = path
            .attrs()
            .iter()
            .map(|(name, value)| (name.to_owned(), attribute(value)))
            .collect();
        let log: Vec<_> = self
            .created
            .log
            .0
            .iter()
            .map(|entry| {
                let changes = entry.changes.iter().map(|change| {
                    json!({
                        "name": change.name,
                        "before": change.before.as_ref().map(attribute),
                        "after": change.after.as_ref().map(attribute),
                    })
                });
                json!({
                    "phase": entry.phase.to_string(),
                    "who": entry.who,
                    "what": entry.what,
                    "changes": changes.collect::<Vec<_>>(),
                })
            })
            .collect();
        let entrances = self
            .entrances
            .iter()
            .map(|entrance| json!({ "iface": entrance.iface, "filter": self.filter(entrance) }));
        json!({
            "name": self.name,
            "tier": self.tier.word(),
            "because": self.because,
            "stages": stages,
            "entrances": entrances.collect::<Vec<_>>(),
            "attributes": attributes,
            "memory_bytes": path.memory_bytes(),
            "log": log,
        })
    }
}

/// Where a path would run that has these interfaces, and why; `stays` in the user tier for
/// this reason, if it does.
fn tier_of<'i>(
    config: &Config,
    asked: Tier,
    ifaces: impl IntoIterator<Item = &'i str>,
    stays: Result<(), String>,
) -> (Tier, String) {
    let mut ifaces = ifaces.into_iter().filter_map(|name| config.iface(name));
    let packet = ifaces.find(|iface| iface.attach == Attach::Packet);
    match (asked, stays, packet) {
        (Tier::User, ..) => (Tier::User, "as it asks for".to_owned()),
        (_, Err(because), _) => (Tier::User, format!("because {because}")),
        (.., Some(iface)) => (
            Tier::User,
            format!("because `{}` has `attach = \"packet\"`", iface.name),
        ),
        (_, Ok(()), None) => (
            Tier::Kernel,
            "unless one of its interfaces falls back to packet sockets".to_owned(),
        ),
    }
}

fn kind(stage: &dyn Stage<Message>) -> &'static str {
    stage.kind().map_or("?", |kind| kind.name)
}

/// Where the inbound half of a stage can run.
fn tier(stage: &dyn Stage<Message>) -> &'static str {
    let traits = stage.traits();
    if traits.in_entry {
        "entry program"
    } else if traits.promotable {
        "kernel or user"
    } else {
        "user"
    }
}

fn attribute(value: &Attribute) -> Value {
    match value {
        Attribute::Number(number) => json!(number),
        other => json!(other.to_string()),
    }
}
