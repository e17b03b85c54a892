//! Paths of the user tier while the node runs: created from a module and
//! attributes, listed, shown, removed.
//!
//! All of them share one row of counters, one place in each interface's program
//! array, and one program; so a path of a known shape is an object in the worker's
//! hands and a map entry for each of its ends.

use std::collections::HashMap;
use std::ptr;
use std::sync::Arc;
use std::time::Instant;

use ashway_codegen::demux::{self, Filter};
use ashway_modules::relay::Stays;
use ashway_modules::{Message, datagram, eth, fragment, tap};
use ashway_path::attrs::{Attrs, Value as Attr};
use ashway_path::create::Log;
use ashway_path::path::Path;
use ashway_path::set::PathId;
use ashway_path::stage::{Direction, Stage};
use serde_json::{Map, Value, json};

use super::binding::refusal;
use super::dispatch::{self, LIVE_SLOT, Turn};
use super::relay::Placed;
use super::{Node, RunError, say};
use crate::activation::ROW;
use crate::config::{Entrance, Tier, is_name};
use crate::instance::Instance;
use crate::live::{End, Lead};
use crate::plan::InstancePlan;
use crate::request::{self, Refusal};

/// Most paths that `status` shows one by one.
const SHOWN: usize = 1000;

/// A path of the user tier, as the node knows it.
#[derive(Debug)]
pub(super) struct NodeLive {
    pub(super) id: PathId,
    /// The module that it was created from.
    from: String,
    pub(super) ends: Vec<End>,
    /// The interfaces on which it takes all fragments.
    catches: Vec<usize>,
    /// Whose it is.
    pub(super) domain: Option<String>,
    /// Its place in the kernel tier.
    pub(super) placed: Placed,
}

/// A path that somebody asks for.
pub(super) struct Wanted {
    pub(super) name: String,
    pub(super) from: String,
    pub(super) attrs: Attrs,
    /// Whose it is to be.
    pub(super) domain: Option<String>,
    /// What must be true of a message besides, where the path begins.
    pub(super) filter: Option<String>,
    pub(super) tier: Tier,
}

/// A path that is made and not there yet.
pub(super) struct Made {
    name: String,
    from: String,
    pub(super) path: Path<Message>,
    pub(super) ends: Vec<End>,
    catches: Vec<usize>,
    domain: Option<String>,
    log: Log,
    tier: Tier,
    fits: Result<(), Stays>,
}

impl Node {
    /// Creates the paths of the configuration's long form.
    pub(super) fn create_configured(&mut self) -> Result<(), RunError> {
        let wanted = self.config.long_paths.iter().map(|path| Wanted {
            name: path.name.clone(),
            from: path.from.clone(),
            attrs: path.attrs.clone(),
            domain: path.domain.clone(),
            filter: path.filter.as_ref().map(ToString::to_string),
            tier: path.tier,
        });
        for wanted in wanted.collect::<Vec<_>>() {
            let (name, tier) = (wanted.name.clone(), wanted.tier);
            self.create_live(vec![wanted])
                .map_err(|refusal| RunError::Live {
                    path: name.clone(),
                    because: refusal.message,
                    hint: refusal.hint,
                })?;
            if let Err(stays) = &self.live[&name].placed
                && tier == Tier::Kernel
            {
                let because = &stays.because;
                say(&format!("path `{name}` stays in the user tier: {because}"));
                say(&format!("  hint: {}", stays.hint));
            }
        }
        Ok(())
    }

    /// Creates paths: all of them, or none.
    ///
    /// # Errors
    ///
    /// Why not; nothing has changed.
    pub(super) fn create(&mut self, request: &Value) -> Result<Value, Refusal> {
        let begin = Instant::now();
        let asked: Vec<&Value> = match &request["paths"] {
            Value::Array(paths) => paths.iter().collect(),
            _ => vec![request],
        };
        let wanted = asked.into_iter().map(|path| self.wanted(path));
        let wanted: Vec<Wanted> = wanted.collect::<Result<_, _>>()?;
        let made = self.create_live(wanted)?;
        let took = begin.elapsed();
        let paths: Vec<Value> = made
            .into_iter()
            .map(|(name, log)| {
                let mut path = self.live[&name].tier();
                path.insert("path".to_owned(), json!(name));
                path.insert("log".to_owned(), json!(log.to_string()));
                Value::Object(path)
            })
            .collect();
        Ok(json!({ "created": paths, "took_ns": took.as_nanos() as u64 }))
    }

    /// Reads what a path is to be.
    fn wanted(&mut self, request: &Value) -> Result<Wanted, Refusal> {
        let text = |key: &str| request[key].as_str().map(str::to_owned);
        let from = text("module")
            .ok_or_else(|| Refusal::usage("the request needs `module`".to_owned(), ""))?;
        let name = self.name_of(text("name"), &from)?;
        let mut attrs = Attrs::new();
        match &request["attrs"] {
            Value::Null => {}
            Value::Object(given) => {
                for (key, value) in given {
                    let value = match value {
                        Value::Number(number) if number.is_u64() => {
                            Attr::Number(number.as_u64().unwrap_or_default())
                        }
                        Value::String(text) => Attr::of_text(text),
                        other => {
                            let message = format!("attribute `{key}` cannot be `{other}`");
                            return Err(Refusal::usage(message, "give a number or a text"));
                        }
                    };
                    attrs.set(key.clone(), value);
                }
            }
            _ => return Err(Refusal::usage("`attrs` must be an object".to_owned(), "")),
        }
        let tier = request::word(request, "tier", Tier::WORDS)?;
        Ok(Wanted {
            name,
            from,
            attrs,
            domain: None,
            filter: text("match"),
            tier,
        })
    }

    /// The name that somebody wants for a path from this module, or one that the
    /// node makes up.
    pub(super) fn name_of(
        &mut self,
        wanted: Option<String>,
        from: &str,
    ) -> Result<String, Refusal> {
        let name = wanted.unwrap_or_else(|| {
            self.named += 1;
            let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
            let module: String = from.to_lowercase().chars().map(plain).take(20).collect();
            format!("{module}-{}", self.named)
        });
        if !is_name(&name) {
            let message = format!("`{name}` cannot be the name of a path");
            return Err(Refusal::usage(message, crate::config::NAME_HINT));
        }
        Ok(name)
    }

    /// Makes paths, hands them to the worker, and leads messages to them.
    fn create_live(&mut self, wanted: Vec<Wanted>) -> Result<Vec<(String, Log)>, Refusal> {
        let made = wanted.into_iter().map(|wanted| self.make(wanted));
        let made: Vec<Made> = made.collect::<Result<_, _>>()?;
        self.put_live(made)
    }

    /// Hands paths to the worker, and leads messages to them: to all, or to none.
    pub(super) fn put_live(&mut self, made: Vec<Made>) -> Result<Vec<(String, Log)>, Refusal> {
        if made.iter().any(|path| !path.ends.is_empty()) {
            self.need_carrier(&made)?;
        }
        let mut names = Vec::with_capacity(made.len());
        let mut logs = Vec::with_capacity(made.len());
        let mut turns = Vec::new();
        let mut to_promote = Vec::new();
        for path in made {
            let (name, tier) = (path.name.clone(), path.tier);
            let added = if self.live.contains_key(&name) {
                let message = format!("there is a path `{name}` already");
                Err(Refusal::failed(message, "give this one another name"))
            } else {
                self.add_live(path, &mut turns)
            };
            let log = match added {
                Ok(log) => log,
                Err(refusal) => {
                    self.undo(&names, &turns);
                    return Err(refusal);
                }
            };
            if tier != Tier::User && self.live[&name].placed.is_ok() {
                to_promote.push(name.clone());
            }
            names.push(name.clone());
            logs.push((name, log));
        }
        let mut led = Ok(());
        if turns
            .iter()
            .any(|turn| self.drop_rules[turn.iface].is_some())
        {
            led = self.show_host();
        }
        if let Err(refusal) = led.and_then(|()| self.follow(&turns)) {
            self.undo(&names, &turns);
            return Err(refusal);
        }
        for name in to_promote {
            // A worker that does not answer works for nobody any more.
            let _ = self.move_live(&name, Tier::Kernel);
        }
        Ok(logs)
    }

    /// Takes back what a creation that failed has done.
    fn undo(&mut self, names: &[String], turns: &[Turn]) {
        let (mut away, mut ids) = (Vec::new(), Vec::new());
        for name in names {
            let live = self.live.remove(name).expect("it was just put there");
            self.take_live(&live, &mut away);
            ids.push(live.id);
            // A worker that does not answer works for nobody any more.
            let _ = self.drop_live(vec![live]);
        }
        self.put_back(turns);
        self.release(&ids);
        let _ = self.show_host();
    }

    /// Makes a path, of which nobody knows yet.
    pub(super) fn make(&self, wanted: Wanted) -> Result<Made, Refusal> {
        let Wanted {
            name,
            from,
            mut attrs,
            domain,
            filter: also,
            tier,
        } = wanted;
        if self.config.paths.iter().any(|path| path.name == name) || self.live.contains_key(&name) {
            return Err(Refusal::failed(
                format!("there is a path `{name}` already"),
                "give this one another name with `--name`",
            ));
        }
        attrs.set(ROW, u64::from(self.plan.live_row));
        attrs.set(tap::PATH, name.as_str());
        let created = self.graph.create_at(&name, &from, attrs);
        let created = created.map_err(|failed| {
            let message = format!("{}: {}", failed.what(), failed.because);
            Refusal::failed(message, failed.hint)
        })?;
        let entrances = self.graph.entrances(&created, None);
        let stages: Vec<_> = created.path.stages().collect();
        let is = |stage: &dyn Stage<Message>, kinds: &[&'static ashway_path::module::Kind]| {
            stage
                .kind()
                .is_some_and(|kind| kinds.iter().any(|known| ptr::eq(*known, kind)))
        };
        let links = [&eth::KIND, &datagram::KIND];
        let first = stages.first().is_some_and(|stage| is(*stage, &links));
        let joins = stages
            .first()
            .is_some_and(|stage| is(*stage, &[&fragment::KIND]));
        let (mut ends, mut catches) = (Vec::new(), Vec::new());
        let many = entrances.len() > 1;
        for (at, Entrance { iface, filter }) in entrances.into_iter().enumerate() {
            let direction = if first && at == 0 {
                Direction::Forward
            } else {
                Direction::Backward
            };
            let Some(number) = self
                .config
                .ifaces
                .iter()
                .position(|known| known.name == iface)
            else {
                continue;
            };
            // Where the path begins; if it begins at no link, at its only end.
            let text = match (filter, also.as_deref()) {
                (filter, Some(also)) if at == 0 || !many => match filter {
                    Some(filter) => format!("{filter} and ({also})"),
                    None => also.to_owned(),
                },
                (Some(filter), _) => filter,
                (None, _) if joins => {
                    catches.push(number);
                    ends.push((number, dispatch::fragments(), direction));
                    continue;
                }
                (None, _) => String::new(),
            };
            let filter = demux::parse(&text).map_err(|error| {
                Refusal::usage(
                    format!(
                        "path `{name}` asks for `{text}` on `{iface}`: {}",
                        error.message
                    ),
                    error.hint,
                )
            })?;
            ends.push((number, self.filter_at(number, &filter), direction));
        }
        drop(stages);
        Ok(Made {
            fits: self.fits(&created.path, &ends),
            name,
            from,
            path: created.path,
            ends,
            catches,
            domain,
            log: created.log,
            tier,
        })
    }

    /// What demux has of a filter on an interface: nothing of fragments, if a path
    /// there takes them all.
    pub(super) fn filter_at(&self, iface: usize, filter: &Filter) -> Filter {
        if self.ifaces[iface].catch_all {
            dispatch::whole(filter).unwrap_or_else(|| filter.clone())
        } else {
            filter.clone()
        }
    }

    /// The name of a path, for people.
    pub(super) fn live_name(&self, id: PathId) -> &str {
        let mut live = self.live.iter();
        live.find(|(_, live)| live.id == id)
            .map_or("?", |(name, _)| name)
    }

    /// Makes the instance whose rings hold whole frames, unless it is there.
    fn need_carrier(&mut self, made: &[Made]) -> Result<(), Refusal> {
        let Some(maps) = &self.maps else {
            return Ok(());
        };
        if self.carrier.is_none() {
            let facts: Vec<_> = self.ifaces.iter().map(|iface| iface.facts).collect();
            let plan = InstancePlan::carrier(&facts);
            let carrier = Instance::carrier(&plan, maps, self.arena)
                .map_err(|error| refusal(&RunError::Instance(error)))?;
            let program = &carrier.kernel.as_ref().expect("it has one").user_program;
            for iface in &self.ifaces {
                let Some(xdp) = &iface.xdp else {
                    continue;
                };
                xdp.slots
                    .set_slot(LIVE_SLOT, program.fd())
                    .map_err(|error| {
                        Refusal::failed(
                            format!("the program array did not take the program: {error}"),
                            "this is a bug of Ashway; please report it",
                        )
                    })?;
            }
            let carrier = Arc::new(carrier);
            let shared = Arc::clone(&carrier);
            self.tell(move |work| work.carrier = Some(shared))?;
            self.carrier = Some(carrier);
        }
        let carrier = self.carrier.as_ref().expect("it was made above");
        for (iface, ..) in made.iter().flat_map(|path| &path.ends) {
            if self.ifaces[*iface].xdp.is_some() && carrier.plan.ring_base(*iface).is_none() {
                let message = format!(
                    "`{}` has more receive queues than there are rings for whole frames",
                    self.config.ifaces[*iface].name
                );
                return Err(Refusal::failed(message, "`ethtool -L` makes them fewer"));
            }
        }
        Ok(())
    }

    /// Hands a path to the worker and puts it into the tables.
    fn add_live(&mut self, made: Made, turns: &mut Vec<Turn>) -> Result<Log, Refusal> {
        let Made {
            name,
            from,
            path,
            ends,
            catches,
            domain,
            log,
            fits,
            ..
        } = made;
        for &iface in &catches {
            if self.ifaces[iface].catch_all {
                let message = format!(
                    "a path takes all fragments of `{}` already",
                    self.config.ifaces[iface].name
                );
                return Err(Refusal::failed(message, "one for each interface is enough"));
            }
            if let Err(refusal) = self.catch(iface, true, turns) {
                self.ifaces[iface].catch_all = false;
                return Err(refusal);
            }
        }
        let shown = ends.clone();
        let added = self.tell(move |work| work.live.add(path, &shown))?;
        let id = match added {
            Ok(id) => id,
            Err((_, conflict)) => {
                for &iface in &catches {
                    self.catch(iface, false, turns)?;
                }
                return Err(self.competition(&name, &conflict));
            }
        };
        let placed = self.place(id, fits, &ends);
        for (iface, filter, direction) in &ends {
            let lead = Lead::Live(id, *direction);
            // The worker's table, which is the same, has taken it.
            if let Ok(change) = self.ifaces[*iface].table.insert(filter, lead) {
                turns.push(Turn {
                    iface: *iface,
                    lead,
                    change,
                });
            }
        }
        let live = NodeLive {
            id,
            from,
            ends,
            catches,
            domain,
            placed,
        };
        self.live.insert(name, live);
        Ok(log)
    }

    /// Makes the table of an interface anew: with fragments for all paths, or for
    /// the one that takes them all.
    fn catch(&mut self, iface: usize, on: bool, turns: &mut Vec<Turn>) -> Result<(), Refusal> {
        self.ifaces[iface].catch_all = on;
        let mut table = demux::Table::default();
        let mut changed = None;
        for (lead, filter) in self.leads(iface) {
            if self.ifaces[iface].table.text(lead).is_none() {
                continue;
            }
            let filter = match lead {
                Lead::Live(id, _) if self.catcher(id) => filter.clone(),
                _ => match demux::parse(&filter.text) {
                    Ok(filter) => self.filter_at(iface, &filter),
                    Err(_) => filter.clone(),
                },
            };
            match table.insert(&filter, lead) {
                Ok(change) => changed = Some((lead, change)),
                Err(conflict) => return Err(self.competition("?", &conflict)),
            }
        }
        let copy = table.clone();
        self.ifaces[iface].table = table;
        self.tell(move |work| work.live.tables[iface] = copy)?;
        if let Some((lead, change)) = changed {
            // The shapes are new, so that a new program follows.
            turns.push(Turn {
                iface,
                lead,
                change,
            });
        }
        Ok(())
    }

    fn catcher(&self, id: PathId) -> bool {
        self.live
            .values()
            .any(|live| live.id == id && !live.catches.is_empty())
    }

    /// Takes a path out of the tables.
    fn take_live(&mut self, live: &NodeLive, turns: &mut Vec<Turn>) {
        for (iface, _, direction) in &live.ends {
            let lead = Lead::Live(live.id, *direction);
            turns.push(Turn {
                iface: *iface,
                lead,
                change: self.ifaces[*iface].table.remove(lead),
            });
        }
        for &iface in &live.catches {
            // Taking away cannot compete with anybody.
            let _ = self.catch(iface, false, turns);
        }
    }

    /// Has the worker drop paths; what waits in them is lost.
    fn drop_live(&mut self, paths: Vec<NodeLive>) -> Result<(), Refusal> {
        self.tell(move |work| {
            for live in paths {
                work.live.remove(live.id, &live.ends, &work.rows);
            }
        })
    }

    /// Removes paths; their messages are others' again, or the host's.
    ///
    /// # Errors
    ///
    /// Why not. If the name is wrong nothing has changed.
    pub(super) fn remove(&mut self, request: &Value) -> Result<Value, Refusal> {
        let begin = Instant::now();
        let asked: Vec<&str> = match &request["paths"] {
            Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
            _ => vec![request["path"].as_str().unwrap_or_default()],
        };
        for name in &asked {
            self.find_live(name)?;
        }
        let mut turns = Vec::new();
        let mut gone = Vec::new();
        for name in &asked {
            // One that is named twice is gone the second time.
            if let Some(live) = self.live.remove(*name) {
                self.take_live(&live, &mut turns);
                gone.push(live);
            }
        }
        // Should a program or a rule not follow, the worker gives the host what
        // still comes.
        let followed = if turns
            .iter()
            .any(|turn| self.drop_rules[turn.iface].is_some())
        {
            self.show_host()
        } else {
            Ok(())
        };
        let followed = followed.and_then(|()| self.follow(&turns));
        let ids: Vec<PathId> = gone.iter().map(|live| live.id).collect();
        self.drop_live(gone)?;
        followed?;
        self.release(&ids);
        Ok(json!({ "removed": asked, "took_ns": begin.elapsed().as_nanos() as u64 }))
    }

    pub(super) fn find_live(&self, name: &str) -> Result<&NodeLive, Refusal> {
        self.live.get(name).ok_or_else(|| {
            if self.config.paths.iter().any(|path| path.name == name) {
                return Refusal::failed(
                    format!("path `{name}` ends in a handler that is bound to it"),
                    format!("`ashway status` shows it, `ashway unbind {name}` takes it away"),
                );
            }
            let known: Vec<&str> = self.live.keys().map(String::as_str).take(20).collect();
            request::unknown("path", name, &known)
        })
    }

    /// A path, with everything there is to know of it.
    ///
    /// # Errors
    ///
    /// If there is none of this name.
    pub(super) fn show(&mut self, name: &Value) -> Result<Value, Refusal> {
        let name = name.as_str().unwrap_or_default();
        let id = self.find_live(name)?.id;
        let shown = self.tell(move |work| work.live.paths.path(id).map(describe))?;
        let shown = shown.unwrap_or_default();
        Ok(Value::Object(self.entitle(name, shown)))
    }

    /// Adds what the node knows of a path.
    fn entitle(&self, name: &str, mut shown: Map<String, Value>) -> Map<String, Value> {
        let live = &self.live[name];
        let end = |(iface, filter, direction): &End| {
            json!({
                "iface": self.config.ifaces[*iface].name,
                "match": filter.text,
                "direction": word(*direction),
            })
        };
        let ifaces: Vec<_> = live
            .ends
            .iter()
            .map(|end| &self.config.ifaces[end.0].name)
            .collect();
        shown.insert("name".to_owned(), json!(name));
        shown.insert("from".to_owned(), json!(live.from));
        self.add_tier(live, &mut shown);
        shown.insert("iface".to_owned(), json!(ifaces));
        let text = live.ends.first().map(|(_, filter, _)| &filter.text);
        shown.insert("match".to_owned(), json!(text));
        let ends: Vec<_> = live.ends.iter().map(end).collect();
        shown.insert("ends".to_owned(), json!(ends));
        shown
    }

    /// All paths of the user tier, up to [`SHOWN`], as `status` lists them.
    pub(super) fn list(&mut self) -> Vec<Value> {
        let mut names: Vec<String> = self.live.keys().cloned().collect();
        names.sort_unstable();
        names.truncate(SHOWN);
        let ids: Vec<PathId> = names.iter().map(|name| self.live[name].id).collect();
        let shown = self.tell(move |work| {
            let paths = ids.iter().map(|id| work.live.paths.path(*id));
            paths
                .map(|path| path.map(describe).unwrap_or_default())
                .collect::<Vec<_>>()
        });
        let shown = shown.unwrap_or_default();
        names
            .iter()
            .zip(shown)
            .map(|(name, shown)| Value::Object(self.entitle(name, shown)))
            .collect()
    }

    /// How many there are, and what became of all their messages.
    pub(super) fn sum_of_live(&self) -> Value {
        let mut row = super::serve::row(self, self.plan.live_row);
        row.add(&self.rows_of_relays());
        let mut sum = crate::status::counts(&row, self.waiting_in_rings());
        sum.insert("paths".to_owned(), json!(self.live.len()));
        Value::Object(sum)
    }
}

fn word(direction: Direction) -> &'static str {
    match direction {
        Direction::Forward => "forward",
        Direction::Backward => "backward",
    }
}

/// What the worker knows of a path. Its messages out are those it made, and those
/// it let go on.
fn describe(path: &Path<Message>) -> Map<String, Value> {
    let account = path.account();
    let fates: HashMap<&str, u64> = account
        .fates()
        .map(|(fate, times)| (fate.name(), times))
        .collect();
    let stages: Vec<_> = path
        .stages()
        .map(|stage| json!({ "module": stage.name(), "kind": stage.kind().map(|kind| kind.name) }))
        .collect();
    let attrs: Map<String, Value> = path
        .attrs()
        .iter()
        .map(|(name, value)| (name.to_owned(), json!(value.to_string())))
        .collect();
    let queue = |waiting: usize, maximum: u32| json!({ "length": waiting, "maximum": maximum });
    let (forward, backward) = (Direction::Forward, Direction::Backward);
    let ended: u64 = account.fates().map(|(_, times)| times).sum();
    let waiting = path.waiting();
    let document = json!({
        "stages": stages,
        "attrs": attrs,
        "queues": {
            "in_forward": queue(path.input(forward).len(), path.input(forward).maximum()),
            "in_backward": queue(path.input(backward).len(), path.input(backward).maximum()),
            "out_forward": queue(path.output(forward).len(), path.output(forward).maximum()),
            "out_backward": queue(path.output(backward).len(), path.output(backward).maximum()),
        },
        "received": account.received(),
        "waiting": waiting,
        "fates": fates,
        "originated": account.originated,
        "balanced": account.received() == ended + waiting,
        "runs": account.runs,
        "time_ns": account.time.as_nanos() as u64,
        "memory": {
            "bytes": path.memory_bytes(),
            "granted_bytes": account.granted_bytes,
        },
        "fault": account.fault.as_ref().map(ToString::to_string),
    });
    match document {
        Value::Object(shown) => shown,
        _ => Map::new(),
    }
}
