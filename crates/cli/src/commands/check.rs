//! `ashway check`: look at a file, change nothing.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

use ashway_codegen::normalise::Profile;
use ashway_daemon::config::{self, Config, HandlerConfig};
use clap::Args;
use serde_json::{Value, json};

use super::handler::check::Report;
use super::handler::file;
use crate::face::Face;
use crate::failure::{Exit, Failure};

/// What every WebAssembly file starts with.
const MAGIC: &[u8] = b"\0asm";

/// Prefix of the variables that `params` sets (`sdk/c/ashway.h`).
const PARAM: &str = "ashway_param_";

/// Look at a configuration or a handler, and change nothing
///
/// Says which of the two the file is. All errors of a configuration are shown at
/// once (exit code 2); then its handlers are looked at. A handler that no node
/// would load is refused with the reason (exit code 3).
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ashway check node.toml
  ashway check counter.wasm -j")]
pub(crate) struct Check {
    /// A configuration (TOML) or a handler (Wasm)
    file: PathBuf,
}

impl Check {
    pub(crate) fn run(self, face: Face) -> Result<(), Failure> {
        let mut start = Vec::new();
        let opened = File::open(&self.file)
            .and_then(|file| file.take(MAGIC.len() as u64).read_to_end(&mut start));
        // An unreadable file is named by `config::load`, with a hint.
        let wasm = self.file.extension().is_some_and(|ending| ending == "wasm");
        if opened.is_ok() && (wasm || start == MAGIC) {
            let bytes = file::read(&self.file)?;
            let module = file::module(&self.file, &bytes, Profile::Handler)?;
            let report = Report::new(&self.file, bytes.len(), &module, false)?;
            let document = json!({ "kind": "handler", "handler": report.json() });
            face.show(&document, || {
                format!(
                    "ok: {} is a handler\n{}",
                    self.file.display(),
                    report.text()
                )
            });
            return Ok(());
        }
        let config = config::load(&self.file)?;
        let handlers = config
            .handlers
            .iter()
            .map(|handler| look(&config, handler))
            .collect::<Result<Vec<_>, _>>()?;
        show(face, &config, &handlers);
        Ok(())
    }
}

fn show(face: Face, config: &Config, handlers: &[Value]) {
    let paths: Vec<_> = config
        .paths
        .iter()
        .map(|path| {
            json!({
                "name": path.name,
                "iface": path.ifaces,
                "match": path.filter.to_string(),
                "handler": path.handler,
                "function": path.function,
                "tier": path.tier.word(),
                "on_fault": path.on_fault.word(),
                "budget_ns": path.budget.as_nanos() as u64,
            })
        })
        .collect();
    let interfaces: Vec<_> = config
        .ifaces
        .iter()
        .map(|iface| json!({ "name": iface.name, "mode": iface.mode.word() }))
        .collect();
    let document = json!({
        "kind": "configuration",
        "file": config.file.display().to_string(),
        "interfaces": interfaces,
        "handlers": handlers,
        "paths": paths,
    });
    face.show(&document, || {
        let file = config.file.display();
        let mut text = format!("ok: {file} is a configuration\n");
        for handler in handlers {
            text += &line(handler);
        }
        for path in &config.paths {
            let (name, filter, ifaces) = (&path.name, path.filter, path.ifaces.join(", "));
            let (handler, function) = (&path.handler, &path.function);
            text += &["  path ", name, ": ", &filter.to_string(), " on ", &ifaces].concat();
            text += &[", to ", handler, ":", function, "\n"].concat();
        }
        text
    });
}

/// One line about a handler that [`look`] accepted.
fn line(handler: &Value) -> String {
    let names = |key: &str| {
        let list = handler[key].as_array().into_iter().flatten();
        let names: Vec<_> = list.filter_map(Value::as_str).collect();
        match names.join(", ") {
            names if names.is_empty() => "nothing".to_owned(),
            names => names,
        }
    };
    let functions = match handler["functions"].as_u64() {
        Some(1) => "1 function".to_owned(),
        _ => format!("{} functions", handler["functions"]),
    };
    format!(
        "  handler {}: {}, {} to {} pages of memory, exports {}, shares {}{}\n",
        handler["name"].as_str().unwrap_or("?"),
        functions,
        handler["initial_pages"],
        handler["maximum_pages"],
        names("exports"),
        names("symbols"),
        if handler["source_lines"] == Value::Bool(true) {
            ""
        } else {
            "; no source lines (compile with -g)"
        }
    )
}

/// Reads a handler as a node would, for its paths, and asks both tiers.
fn look(config: &Config, handler: &HandlerConfig) -> Result<Value, Failure> {
    let shown = handler.file.display().to_string();
    let refused = |because: String, hint: String| {
        let mut failure = Failure::new(Exit::HandlerRefused, format!("`{shown}` is refused"));
        failure.file = Some(shown.clone());
        failure.because(&because).hint(hint)
    };
    let bytes = file::read(&handler.file)?;
    let module = file::module(&handler.file, &bytes, Profile::Handler)?;
    let exports: Vec<_> = module
        .exports
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    let symbols: Vec<_> = module
        .symbols
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    for path in config.paths_of(&handler.name) {
        if !exports.contains(&path.function.as_str()) {
            return Err(refused(
                format!(
                    "path `{}` binds `{}`, which it does not export",
                    path.name, path.function
                ),
                format!("it exports {}", exports.join(", ")),
            ));
        }
    }
    for param in handler.params.keys() {
        if !symbols.contains(&format!("{PARAM}{param}").as_str()) {
            let known: Vec<_> = symbols
                .iter()
                .filter_map(|s| s.strip_prefix(PARAM))
                .collect();
            return Err(refused(
                format!("`params` sets `{param}`, which it does not declare"),
                match known.join(", ") {
                    known if known.is_empty() => {
                        format!("write `ASHWAY_PARAM({param}, 0)` in the handler")
                    }
                    known => format!("it declares {known}"),
                },
            ));
        }
    }
    let mut report = Report::new(&handler.file, bytes.len(), &module, false)?.json();
    report["name"] = json!(handler.name);
    Ok(report)
}
