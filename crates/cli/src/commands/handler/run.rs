//! `ashway handler run`: a handler over packets, without any interface.

mod compare;
mod shown;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use ashway_abi::Budget;
use ashway_codegen::normalise::{Module, Profile};
use ashway_codegen::promote::Checks;
use ashway_config::Config;
use ashway_handler::{Param, ParamError, param};
use ashway_trial::{Activation, Engine, Setup, Trial};
use ashway_worker::log::harmless;
use clap::Args;
use serde_json::json;

use super::file::{self, count};
use super::packets::{self, Capture, Layer, Packet};
use super::tier::{self, Tier};
use crate::commands::load;
use crate::face::Face;
use crate::failure::{Exit, Failure};
use compare::{Comparison, compare};

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
  ashway handler run sum.wasm --hex 0102 --tier kernel --unsafe --repeat 100000

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
    /// Without bounds checks and fuel, to measure what they cost: kernel tier alone, and in no
    /// node. What the handler then reads outside its memory is 0, and its loops end after 250 ms
    #[arg(long)]
    r#unsafe: bool,
}

/// A budget that a path could have.
fn budget(text: &str) -> Result<Duration, String> {
    let time = ashway_config::units::read(text)?;
    let (least, most) = (Config::MIN_BUDGET, Config::MAX_BUDGET);
    if (least..=most).contains(&time) {
        return Ok(time);
    }
    let [least, most] = [least, most].map(ashway_config::units::show);
    Err(format!("a budget is between {least} and {most}"))
}

/// Messages that `--repeat` measures.
const MEASURED: usize = 100;

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

impl Run {
    pub(crate) fn run(self, face: Face) -> Result<u8, Failure> {
        let capture = self.capture()?;
        let bytes = file::read(&self.file)?;
        let module = file::module(&self.file, &bytes, Profile::Handler)?;
        self.entry(&module)?;
        let setup = Setup {
            budget: self.budget(),
            checks: self.checks()?,
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

    /// What the translation checks: everything, but for measuring.
    fn checks(&self) -> Result<Checks, Failure> {
        if !self.r#unsafe {
            return Ok(Checks::default());
        }
        if tier::engines(&self.tier) != [Engine::Kernel] {
            let error = "`--unsafe` is of the kernel tier alone";
            return Err(Failure::new(Exit::Usage, error)
                .hint("add `--tier kernel`; Wasmtime and the interpreter check every access"));
        }
        Ok(Checks {
            bounds: false,
            fuel: false,
        })
    }

    fn budget(&self) -> Budget {
        let budget = ashway_worker::budget(self.budget);
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
