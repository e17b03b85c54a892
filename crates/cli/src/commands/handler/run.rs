//! `ashway handler run`: a handler over packets, without any interface.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use ashway_abi::{Cause, Verdict};
use ashway_codegen::normalise::{Module, Profile};
use ashway_codegen::promote::Budget;
use ashway_daemon::config::Config;
use ashway_daemon::show::harmless;
use ashway_handler::{Param, ParamError, param};
use ashway_trial::{Activation, Engine, Setup, Trial};
use clap::Args;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::file::{self, count};
use super::packets::{self, Capture, Layer, Packet};
use super::tier::{self, Tier};
use crate::commands::load;
use crate::face::Face;
use crate::failure::{Exit, Failure};
use crate::table;

/// Run a handler over packets, without any interface
///
/// For each packet the verdict, or why the handler was stopped and where; at the
/// end the memory's SHA-256. Its memory persists from packet to packet. It may
/// reply, and its parameters have their defaults unless `--param` says otherwise. With more than one tier they are
/// compared, and any difference is exit code 1; so is a stop because of the time,
/// behind which nothing can be compared.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ashway handler run counter.wasm --hex 0100000000000000
  ashway handler run echo.wasm --pcap in.pcap --out out.pcap --tier both
  ashway handler run kv.wasm --pcap in.pcap --tier user,interpreter -j
  ashway handler run sum.wasm --hex 0102 --tier both --repeat 100000 --trace-fuel

JSON (-j):
  { \"handler\": \"echo.wasm\", \"entry\": \"on_rx\", \"tiers\": [\"user\", \"kernel\"],
    \"packets\": [
      { \"number\": 1, \"bytes\": 4, \"skipped\": null,
        \"user\":   { \"verdict\": \"reply\", \"stopped\": null, \"message\": \"0a0b0c0d\",
                    \"dirty\": true, \"fuel_spent\": 12 },
        \"kernel\": { ... } },
      { \"number\": 2, \"bytes\": 60, \"skipped\": \"not UDP, passed\" } ],
    \"memory\": { \"user\": { \"guest_sha256\": \"...\", \"state_sha256\": \"...\" }, ... },
    \"ns_per_call\": { \"user\": 31.2, \"empty_user\": 18.0, ... } or null,
    \"difference\": null or { \"packet\", \"what\", \"user\", \"kernel\" },
    \"out_of_time\": null or { \"packet\", \"tier\" },
    \"out\": null or { \"file\", \"frames\" }, \"error\": only with exit code 1 }
  A handler that may log has `log` (lines) and `log_lost` in \"user\".
  A stop is { \"cause\", \"offset\", \"function\", \"file\", \"line\" }. `dirty`: the handler
  changed the message; if it then passed it on or was stopped, a node drops it, and
  `message` is as it came.")]
pub(crate) struct Run {
    /// The handler (Wasm, or its text format in a `.wat`)
    file: PathBuf,
    /// Where to run it; several are compared
    #[arg(long, value_enum, value_delimiter = ',', default_value = "user")]
    tier: Vec<Tier>,
    /// Packets: a capture of Ethernet frames (pcap or pcapng)
    #[arg(long, value_name = "IN.pcap", conflicts_with = "hex")]
    pcap: Option<PathBuf>,
    /// A message in hexadecimal digits; may be given several times
    #[arg(long, value_name = "BYTES")]
    hex: Vec<String>,
    /// Write what leaves: replies, and what was passed on
    #[arg(long, value_name = "OUT.pcap")]
    out: Option<PathBuf>,
    /// What the handler sees of a frame; frames that are no UDP are passed on
    #[arg(long, value_enum, default_value = "udp")]
    layer: Layer,
    /// A value for one of its parameters, as `handler load` takes it
    #[arg(long, value_name = "NAME=VALUE", value_parser = load::param)]
    param: Vec<(String, Param)>,
    /// The exported handler to run
    #[arg(long, value_name = "NAME", default_value = "on_rx")]
    entry: String,
    /// Measure too: this many activations for each of the first 100 messages
    #[arg(long, value_name = "N")]
    repeat: Option<u32>,
    /// Show the fuel that each packet took in each tier
    #[arg(long)]
    trace_fuel: bool,
    /// Time for one activation; it buys fuel as on a path
    #[arg(long, value_name = "TIME", default_value = "50us", value_parser = budget)]
    budget: Duration,
    /// Fuel instead: the clock ends nothing within a second, so that the tiers can
    /// be compared
    #[arg(long, value_name = "UNITS", conflicts_with = "budget", value_parser = clap::value_parser!(u32).range(1..))]
    fuel: Option<u32>,
    /// Show all that the kernel's verifier says, with source lines
    #[arg(long)]
    verifier_log: bool,
}

/// A budget that a path could have.
fn budget(text: &str) -> Result<Duration, String> {
    let time = ashway_daemon::units::read(text)?;
    let (least, most) = (Config::MIN_BUDGET, Config::MAX_BUDGET);
    if (least..=most).contains(&time) {
        return Ok(time);
    }
    let [least, most] = [least, most].map(ashway_daemon::units::show);
    Err(format!("a budget is between {least} and {most}"))
}

/// What was logged, packet by packet.
fn log(module: &Module<'_>, parts: &[Part<'_>]) -> String {
    if !module.logs() {
        return String::new();
    }
    let Some(part) = parts.iter().find(|part| part.engine == Engine::User) else {
        return "\nits lines are shown with `--tier user`\n".to_owned();
    };
    let rows = part
        .logs
        .iter()
        .zip(1..)
        .flat_map(|((lines, lost), number)| {
            let lost = (*lost > 0).then(|| format!("({lost} more were too many)"));
            let lines = lines.iter().cloned().chain(lost);
            lines.map(move |line| vec![format!("{number}"), line])
        });
    let all: Vec<_> = rows.collect();
    let mut text = String::from("\n");
    text += &table::render(&["PACKET", "LOGGED"], &all[..all.len().min(ROWS)]);
    if let Some(more @ 1..) = all.len().checked_sub(ROWS) {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  ... and {more} more (all with -j)");
    }
    text
}

/// Messages that `--repeat` measures.
const MEASURED: usize = 100;

/// Rows that a person wants to see.
const ROWS: usize = 40;

/// One tier's part.
struct Part<'m> {
    engine: Engine,
    trial: Trial<'m>,
    /// Parallel to the packets; `None` for those that are not for the handler.
    activations: Vec<Option<Activation>>,
    /// The lines of each, and how many were too many; of the user tier.
    logs: Vec<(Vec<String>, u32)>,
    guest: Vec<u8>,
    state: Vec<u8>,
    ns: Option<f64>,
    empty_ns: Option<f64>,
}

/// Two tiers do not agree.
struct Difference {
    packet: Option<usize>,
    what: &'static str,
    found: [(Engine, String); 2],
}

/// What comparing two tiers came to.
enum Comparison {
    Same,
    Differ(Difference),
    /// The time ran out in one of them, which is the clock's choice: nothing
    /// behind it can be compared.
    OutOfTime {
        packet: usize,
        engine: Engine,
    },
}

impl Run {
    pub(crate) fn run(self, face: Face) -> Result<u8, Failure> {
        let capture = self.capture()?;
        let bytes = file::read(&self.file)?;
        let module = file::module(&self.file, &bytes, Profile::Handler)?;
        self.entry(&module)?;
        let setup = Setup {
            budget: self.budget(),
            ..Setup::default()
        };
        let mut parts = Vec::new();
        let mut logs = String::new();
        for engine in tier::engines(&self.tier) {
            let part = self.part(&module, engine, &setup, &capture.packets, &mut logs)?;
            parts.push(part);
        }
        let mut comparison = Comparison::Same;
        for other in parts.iter().skip(1) {
            match compare(&module, &parts[0], other) {
                Comparison::Same => {}
                differ @ Comparison::Differ(_) => {
                    comparison = differ;
                    break;
                }
                late @ Comparison::OutOfTime { .. } => comparison = late,
            }
        }
        let written = match &self.out {
            Some(out) => Some(packets::write(
                out,
                &capture.packets,
                &parts[0].activations,
            )?),
            None => None,
        };
        let failure = self.failure(&comparison, &capture, written);
        let mut document = self.document(&module, &capture, &parts, &comparison, written);
        if let Some(failure) = &failure {
            document["error"] = failure.to_json()["error"].take();
        }
        if self.verifier_log {
            document["verifier_log"] = json!(logs);
        }
        face.show(&document, || {
            logs + &self.text(&module, &capture, &parts, &comparison, written)
        })?;
        match failure {
            None => Ok(0),
            Some(failure) if face.json => Ok(failure.exit as u8),
            Some(failure) => Err(failure),
        }
    }

    fn budget(&self) -> Budget {
        let budget = ashway_daemon::budget(self.budget);
        self.fuel.map_or(budget, |fuel| Budget {
            fuel: fuel.into(),
            ns: 1_000_000_000,
            ..budget
        })
    }

    fn capture(&self) -> Result<Capture, Failure> {
        if let Some(pcap) = &self.pcap {
            if let Some(out) = self.out.as_ref().filter(|out| packets::same(pcap, out)) {
                let out = out.display();
                return Err(Failure::new(
                    Exit::Usage,
                    format!("`{out}` is the capture that is read"),
                )
                .hint("`--out` replaces a file: name another"));
            }
            return packets::read(pcap, self.layer);
        }
        if self.out.is_some() {
            // Not `requires`: clap takes a conflict of the other for its absence.
            return Err(Failure::new(Exit::Usage, "`--out` needs frames to write")
                .hint("give the packets with `--pcap IN.pcap`"));
        }
        if self.hex.is_empty() {
            return Err(
                Failure::new(Exit::Usage, "there is no packet to run it over")
                    .hint("give `--pcap IN.pcap` or `--hex BYTES`"),
            );
        }
        let mut capture = Capture::default();
        for text in &self.hex {
            let bytes = packets::hex(text).map_err(|because| {
                Failure::new(Exit::Usage, format!("`--hex {text}` is no message")).because(&because)
            })?;
            capture.packets.push(Packet::bytes(bytes));
        }
        Ok(capture)
    }

    /// Refuses an entry that is no handler.
    fn entry(&self, module: &Module<'_>) -> Result<(), Failure> {
        file::export(module, &self.entry)?;
        let names: Vec<_> = module.handlers().map(|(name, _)| name).collect();
        if names.contains(&self.entry.as_str()) {
            return Ok(());
        }
        let because = "a handler has type (i32, i32) -> i32";
        Err(
            Failure::new(Exit::Usage, format!("`{}` is no handler", self.entry))
                .because(&because)
                .hint(format!(
                    "handlers are {}; `ashway handler invoke` calls any function",
                    names.join(", ")
                ))
                .in_file(&self.file),
        )
    }

    /// Gives parameters their values, as a node does before the first message.
    fn set_params(&self, module: &Module<'_>, trial: &mut Trial<'_>) -> Result<(), Failure> {
        for (name, value) in &self.param {
            let guest = trial.guest();
            let word = |at: u32| {
                let bytes = guest.get(at as usize..)?.first_chunk()?;
                Some(u32::from_le_bytes(*bytes))
            };
            let refused = |error: ParamError| {
                Failure::new(Exit::Usage, format!("the handler {error}"))
                    .hint(error.hint())
                    .in_file(&self.file)
            };
            let (at, bytes) = param::place(&module.symbols, name, value, word).map_err(refused)?;
            if at as usize + bytes.len() > guest.len() {
                return Err(refused(ParamError::Unknown {
                    param: name.clone(),
                    has: Vec::new(),
                }));
            }
            trial.write_guest(at as usize, &bytes);
        }
        Ok(())
    }

    /// Runs everything in one engine.
    fn part<'m>(
        &self,
        module: &'m Module<'m>,
        engine: Engine,
        setup: &Setup,
        packets: &[Packet],
        logs: &mut String,
    ) -> Result<Part<'m>, Failure> {
        let refused = |error: ashway_trial::NotRun| {
            let mut failure = tier::failure_of_choice(module, engine, &error);
            failure.file = Some(self.file.display().to_string());
            if let Some(log) = error.verifier_log().filter(|_| self.verifier_log) {
                failure.because.push(format!("the verifier's log:\n{log}"));
            }
            failure
        };
        let mut trial = Trial::new(module, engine, setup).map_err(refused)?;
        self.set_params(module, &mut trial)?;
        if self.verifier_log
            && let Some(log) = trial.verifier_log(&self.entry).map_err(refused)?
        {
            *logs += &log;
        }
        let mut activations = Vec::with_capacity(packets.len());
        let mut logged = Vec::with_capacity(packets.len());
        for (packet, number) in packets.iter().zip(1..) {
            let activation = packet
                .message()
                .map(|message| trial.activate(&self.entry, message, 0))
                .transpose();
            let activation = activation.map_err(|error| {
                let failure = refused(error);
                let error = format!("packet {number}: {}", failure.error);
                Failure { error, ..failure }
            })?;
            let (lines, lost) = match &activation {
                Some(_) => trial.take_log(),
                None => Default::default(),
            };
            let lines = lines.iter().map(|line| harmless(line)).collect();
            logged.push((lines, lost));
            activations.push(activation);
        }
        let (guest, state) = (trial.guest(), trial.state());
        let mut part = Part {
            engine,
            trial,
            activations,
            logs: logged,
            guest,
            state,
            ns: None,
            empty_ns: None,
        };
        if let Some(repeat) = self.repeat {
            part.ns = part
                .measure(&self.entry, packets, repeat)
                .map_err(refused)?;
            part.empty_ns = Some(empty(engine, setup, repeat).map_err(refused)?);
        }
        Ok(part)
    }

    /// What makes the exit code 1.
    fn failure(
        &self,
        comparison: &Comparison,
        capture: &Capture,
        written: Option<usize>,
    ) -> Option<Failure> {
        if let Comparison::OutOfTime { packet, engine } = comparison {
            let failure = Failure::new(
                Exit::Failed,
                format!(
                    "packet {packet}: the time ran out in tier `{}`",
                    engine.name()
                ),
            )
            .because(
                &"the clock stopped it, and no two clocks stop at the same instruction: what \
                       follows cannot be compared",
            );
            return Some(failure.hint(
                "give it more time, `--budget` up to 10ms, or fuel that ends it first: `--fuel`",
            ));
        }
        if let Comparison::Differ(difference) = comparison {
            let [(first, one), (second, other)] = &difference.found;
            let place = match difference.packet {
                Some(number) => format!("packet {number}: the {} differs", difference.what),
                None => format!("the {} differs", difference.what),
            };
            let failure = Failure::new(Exit::Failed, place)
                .because(&format!("{}: {one}", first.name()))
                .because(&format!("{}: {other}", second.name()));
            return Some(failure.hint("the tiers must agree: please report it, with the handler"));
        }
        let broken = capture.broken.as_ref()?;
        let number = capture.packets.len() + 1;
        let file = self.pcap.as_ref().map(|file| file.display().to_string());
        let name = file.as_deref().unwrap_or_default();
        let mut failure = Failure::new(
            Exit::Failed,
            format!("packet {number} of `{name}` cannot be read"),
        )
        .because(broken);
        let mut done = match capture.packets.len() {
            0 => "no packet came before it".to_owned(),
            1 => "packet 1 was run".to_owned(),
            most => format!("packets 1 to {most} were run"),
        };
        if let (Some(frames), Some(out)) = (written, &self.out) {
            let frames = count(frames, "frame");
            let _ = write!(done, "; `{}` has what left, {frames}", out.display());
        }
        failure.file = file;
        Some(failure.hint(done))
    }

    fn document(
        &self,
        module: &Module<'_>,
        capture: &Capture,
        parts: &[Part<'_>],
        comparison: &Comparison,
        written: Option<usize>,
    ) -> Value {
        let (difference, out_of_time) = match comparison {
            Comparison::Same => (None, None),
            Comparison::Differ(difference) => (Some(difference), None),
            Comparison::OutOfTime { packet, engine } => (None, Some((packet, engine.name()))),
        };
        let budget = self.budget().fuel as i64;
        let packets: Vec<Value> = capture
            .packets
            .iter()
            .enumerate()
            .map(|(index, packet)| {
                let mut row = json!({
                    "number": index + 1,
                    "bytes": packet.message().map(<[u8]>::len),
                    "skipped": packet.skipped(),
                });
                for part in parts {
                    if let Some(activation) = &part.activations[index] {
                        row[part.engine.name()] = json!({
                            "verdict": activation.verdict().map(Verdict::name),
                            "stopped": activation.result.err().map(|s| file::stopped_json(module, s)),
                            "message": lower_hex(&activation.message),
                            "dirty": activation.dirty,
                            "fuel_spent": budget - activation.fuel_left,
                        });
                        if module.logs() && part.engine == Engine::User {
                            let (lines, lost) = &part.logs[index];
                            row[part.engine.name()]["log"] = json!(lines);
                            row[part.engine.name()]["log_lost"] = json!(lost);
                        }
                    }
                }
                row
            })
            .collect();
        let mut memory = Map::new();
        let mut ns = Map::new();
        for part in parts {
            let name = part.engine.name();
            memory.insert(
                name.to_owned(),
                json!({ "guest_sha256": sha256(&part.guest), "state_sha256": sha256(&part.state) }),
            );
            if let (Some(taken), Some(empty)) = (part.ns, part.empty_ns) {
                ns.insert(name.to_owned(), json!(taken));
                ns.insert(format!("empty_{name}"), json!(empty));
            }
        }
        json!({
            "handler": self.file.display().to_string(),
            "entry": self.entry,
            "tiers": parts.iter().map(|part| part.engine.name()).collect::<Vec<_>>(),
            "budget_ns": self.budget().ns,
            "packets": packets,
            "memory": memory,
            "ns_per_call": if ns.is_empty() { Value::Null } else { ns.into() },
            "difference": difference.map(|difference| {
                let mut value = json!({ "packet": difference.packet, "what": difference.what });
                for (engine, found) in &difference.found {
                    value[engine.name()] = json!(found);
                }
                value
            }),
            "out_of_time": out_of_time.map(|(packet, tier)| {
                json!({ "packet": packet, "tier": tier })
            }),
            "out": written.zip(self.out.as_ref()).map(|(frames, file)| {
                json!({ "file": file.display().to_string(), "frames": frames })
            }),
        })
    }

    fn text(
        &self,
        module: &Module<'_>,
        capture: &Capture,
        parts: &[Part<'_>],
        comparison: &Comparison,
        written: Option<usize>,
    ) -> String {
        let budget = self.budget().fuel as i64;
        let mut header = vec![
            "PACKET".to_owned(),
            "BYTES".to_owned(),
            "VERDICT".to_owned(),
        ];
        if self.trace_fuel {
            let names = parts.iter().map(|part| part.engine.name().to_uppercase());
            header.extend(names.map(|name| format!("FUEL {name}")));
        }
        header.push("MESSAGE".to_owned());
        let row = |(index, packet): (usize, &Packet)| {
            let mut row = vec![(index + 1).to_string()];
            row.push(
                packet
                    .message()
                    .map_or(String::new(), |m| m.len().to_string()),
            );
            let first = parts[0].activations[index].as_ref();
            row.push(match first {
                None => packet.skipped().unwrap_or_default().to_owned(),
                Some(activation) => verdict(module, activation),
            });
            if self.trace_fuel {
                row.extend(parts.iter().map(|part| {
                    let activation = part.activations[index].as_ref();
                    activation.map_or(String::new(), |a| (budget - a.fuel_left).to_string())
                }));
            }
            let goes_on = |a: &&Activation| {
                matches!(
                    a.verdict(),
                    Some(Verdict::Reply | Verdict::Deliver | Verdict::Forward)
                )
            };
            let sent = first.filter(goes_on);
            row.push(sent.map_or(String::new(), |a| shortened(&a.message)));
            row
        };
        let rows: Vec<Vec<String>> = capture
            .packets
            .iter()
            .enumerate()
            .take(ROWS)
            .map(row)
            .collect();
        let header: Vec<&str> = header.iter().map(String::as_str).collect();
        let mut text = table::render(&header, &rows);
        // Writing to a string cannot fail.
        if let Some(more) = capture.packets.len().checked_sub(ROWS + 1) {
            let _ = writeln!(text, "  ... and {} more (all with -j)", more + 1);
        }
        text += &log(module, parts);
        let _ = writeln!(text, "\n{}", counts(capture, &parts[0]));
        for part in parts {
            let _ = writeln!(
                text,
                "memory after, {:<12} guest {}\n{:26} state {}",
                format!("{}:", part.engine.name()),
                sha256(&part.guest),
                "",
                sha256(&part.state),
            );
        }
        if parts.len() > 1 && matches!(comparison, Comparison::Same) {
            let names: Vec<_> = parts.iter().map(|part| part.engine.name()).collect();
            let _ = writeln!(
                text,
                "{} agree: verdicts, messages, fuel and memory",
                names.join(" and ")
            );
        }
        for part in parts {
            if let (Some(ns), Some(empty)) = (part.ns, part.empty_ns) {
                let _ = writeln!(
                    text,
                    "{:<12} {ns:.1} ns per call, {:.1} without what an empty handler takes",
                    format!("{}:", part.engine.name()),
                    (ns - empty).max(0.0),
                );
            }
        }
        if let (Some(frames), Some(out)) = (written, &self.out) {
            let _ = writeln!(
                text,
                "wrote {} to {}",
                count(frames, "frame"),
                out.display()
            );
        }
        text
    }
}

impl Part<'_> {
    /// Mean ns of the first messages; `None` if there is none.
    fn measure(
        &mut self,
        entry: &str,
        packets: &[Packet],
        repeat: u32,
    ) -> Result<Option<f64>, ashway_trial::NotRun> {
        let messages: Vec<&[u8]> = packets
            .iter()
            .filter_map(Packet::message)
            .take(MEASURED)
            .collect();
        let mut sum = 0.0;
        for message in &messages {
            sum += self.trial.time(entry, message, repeat)?;
        }
        Ok((!messages.is_empty()).then(|| sum / messages.len() as f64))
    }
}

/// What an engine takes for a handler that does nothing.
fn empty(engine: Engine, setup: &Setup, repeat: u32) -> Result<f64, ashway_trial::NotRun> {
    let limits = ashway_codegen::normalise::Limits::default();
    let module = ashway_codegen::normalise::normalise(ashway_trial::EMPTY, &limits);
    let module = module.expect("it is a handler");
    Trial::new(&module, engine, setup)?.time("on_rx", &[0; 64], repeat.max(1000))
}

/// Compares up to the first thing in which two tiers differ.
fn compare(module: &Module<'_>, one: &Part<'_>, other: &Part<'_>) -> Comparison {
    let engines = [one.engine, other.engine];
    let differ = |packet, what, found: [String; 2]| {
        let [first, second] = found;
        Comparison::Differ(Difference {
            packet,
            what,
            found: [(engines[0], first), (engines[1], second)],
        })
    };
    for (index, pair) in one.activations.iter().zip(&other.activations).enumerate() {
        let (Some(a), Some(b)) = pair else { continue };
        let packet = Some(index + 1);
        let timed = |x: &&Activation| x.result.is_err_and(|s| s.cause == Cause::Time);
        if let Some(late) = [a, b].iter().position(timed) {
            return Comparison::OutOfTime {
                packet: index + 1,
                engine: engines[late],
            };
        }
        if !ashway_trial::same_end(engines, &a.result, &b.result) {
            return differ(packet, "verdict", [a, b].map(|x| verdict(module, x)));
        }
        if a.message != b.message {
            return differ(packet, "message", [a, b].map(|x| lower_hex(&x.message)));
        }
        if a.dirty != b.dirty {
            let found = [a, b].map(|x| if x.dirty { "changed" } else { "unchanged" }.to_owned());
            return differ(packet, "state of the message", found);
        }
        if a.fuel_left != b.fuel_left {
            let found = [a, b].map(|x| format!("{} units left", x.fuel_left));
            return differ(packet, "fuel", found);
        }
    }
    for (what, a, b) in [
        ("guest memory", &one.guest, &other.guest),
        ("state memory", &one.state, &other.state),
    ] {
        if let Some(at) = a.iter().zip(b).position(|(a, b)| a != b) {
            let found = [a, b].map(|bytes| format!("{:02x} at {at:#x}", bytes[at]));
            return differ(None, what, found);
        }
    }
    Comparison::Same
}

fn verdict(module: &Module<'_>, activation: &Activation) -> String {
    let end = match activation.result {
        Ok(_) => activation.verdict().map_or("?", Verdict::name).to_owned(),
        Err(stopped) => format!(
            "stopped: {} at {}",
            stopped.cause.name(),
            file::place(module, stopped.at)
        ),
    };
    end + spoiled(activation)
}

/// What a node does with a message that was changed and not sent on as changed.
fn spoiled(activation: &Activation) -> &'static str {
    if activation.is_spoiled() {
        ", but changed: a node drops it"
    } else {
        ""
    }
}

/// How many packets met which end.
fn counts(capture: &Capture, part: &Part<'_>) -> String {
    let mut counts: Vec<(String, usize)> = Vec::new();
    for (packet, activation) in capture.packets.iter().zip(&part.activations) {
        let end = match activation {
            None => packet.skipped().unwrap_or_default().to_owned(),
            Some(activation) => {
                let end = match activation.result {
                    Ok(_) => activation.verdict().map_or("?", Verdict::name).to_owned(),
                    Err(stopped) => format!("stopped ({})", stopped.cause.name()),
                };
                end + if activation.is_spoiled() {
                    " (changed)"
                } else {
                    ""
                }
            }
        };
        match counts.iter_mut().find(|(known, _)| *known == end) {
            Some((_, count)) => *count += 1,
            None => counts.push((end, 1)),
        }
    }
    let list: Vec<_> = counts.iter().map(|(end, n)| format!("{n} {end}")).collect();
    let packets = count(capture.packets.len(), "packet");
    match list.join(", ") {
        list if list.is_empty() => packets,
        list => format!("{packets}: {list}"),
    }
}

pub(super) fn lower_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The first bytes, for a row.
fn shortened(message: &[u8]) -> String {
    const MOST: usize = 16;
    let text = lower_hex(&message[..message.len().min(MOST)]);
    if message.len() > MOST {
        text + "..."
    } else {
        text
    }
}

pub(super) fn sha256(bytes: &[u8]) -> String {
    lower_hex(&Sha256::digest(bytes))
}
