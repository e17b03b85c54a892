//! `ashway check`: look at a file, change nothing.

use std::fmt::Write as _;
use std::ops::Range;
use std::path::PathBuf;

use ashway_api::answer::{NotPromotable, Refused};
use ashway_codegen::normalise::{Module, Profile};
use ashway_config::diagnostics::{Diagnostic, Diagnostics};
use ashway_config::{
    self as config, self, Config, HandlerConfig, Instances, LongPath, NodeGraph, NotGranted,
    Offline, PathConfig, Tier,
};
use ashway_handler::{ParamError, param};
use clap::Args;
use serde_json::{Value, json};

use super::handler::check::Report;
use super::handler::file;
use super::status;
use crate::face::{Face, clean};
use crate::failure::{Exit, Failure};

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
    /// A configuration (TOML) or a handler (Wasm, or its text format in a `.wat`)
    file: PathBuf,
}

impl Check {
    pub(crate) fn run(self, face: Face) -> Result<(), Failure> {
        // An unreadable file is named by `config::load`, with a hint.
        if file::is_handler(&self.file) {
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
            })?;
            return Ok(());
        }
        let config = config::load(&self.file)?;
        agrees(&config)?;
        let handlers = config
            .handlers
            .iter()
            .map(|handler| look(&config, handler))
            .collect::<Result<Vec<_>, _>>()?;
        show(face, &config, &handlers)
    }
}

fn show(face: Face, config: &Config, handlers: &[Value]) -> Result<(), Failure> {
    let graph = config.graph(&Offline(config))?;
    let long: Vec<_> = config
        .long_paths
        .iter()
        .map(|path| long(&graph, path))
        .collect::<Result<_, _>>()?;
    let modules: Vec<_> = graph
        .graph
        .nodes()
        .iter()
        .map(|node| {
            json!({
                "name": node.name,
                "kind": node.module.kind().name,
                "implied": !graph.is_written(&node.name),
            })
        })
        .collect();
    let domains: Vec<_> = config
        .domains
        .iter()
        .map(|domain| {
            let owns: Vec<_> = domain.owns.iter().map(ToString::to_string).collect();
            json!({ "name": domain.name, "owns": owns })
        })
        .collect();
    let short = config.paths.iter().map(|path| {
        json!({
            "stays": stays(path, handlers).map(|NotPromotable { asked, refused }| json!({
                "asked": asked,
                "because": refused.because,
                "hint": (!refused.hint.is_empty()).then_some(refused.hint),
            })),
            "name": path.name,
            "domain": path.domain,
            "iface": path.ifaces,
            "match": path.filter.text,
            "handler": path.handler,
            "function": path.function,
            "tier": path.tier.word(),
            "on_fault": path.on_fault.word(),
            "faults": path.faults.map(|limit| json!({
                "limit": limit.most,
                "within_ms": limit.within.as_millis() as u64,
                "rest_ms": limit.rest.map(|rest| rest.as_millis() as u64),
            })),
            "budget_ns": path.budget.as_nanos() as u64,
            "share": path.share.map(|share| share.to_string()),
            "order": path.order.word(),
        })
    });
    let paths: Vec<_> = short.chain(long.iter().cloned()).collect();
    let interfaces: Vec<_> = config
        .ifaces
        .iter()
        .map(|iface| json!({ "name": iface.name, "mode": iface.attach.word() }))
        .collect();
    let document = json!({
        "kind": "configuration",
        "file": config.file.display().to_string(),
        "interfaces": interfaces,
        "domains": domains,
        "modules": modules,
        "handlers": handlers,
        "paths": paths,
    });
    face.show(&document, || {
        let file = config.file.display();
        let mut text = format!("ok: {file} is a configuration\n");
        for domain in &config.domains {
            let owns: Vec<_> = domain
                .owns
                .iter()
                .map(|filter| format!("`{filter}`"))
                .collect();
            let _ = writeln!(text, "  domain {}: owns {}", domain.name, owns.join(", "));
        }
        for handler in handlers {
            text += &line(handler);
        }
        for module in modules.iter().filter(|module| module["implied"] == false) {
            let word = |key: &str| clean(module[key].as_str().unwrap_or_default());
            let _ = writeln!(text, "  module {}: {}", word("name"), word("kind"));
        }
        for path in &config.paths {
            let (name, filter, ifaces) = (&path.name, &path.filter, path.ifaces.join(", "));
            let (handler, function) = (&path.handler, &path.function);
            text += &["  path ", name, ": ", &filter.to_string(), " on ", &ifaces].concat();
            text += &[", to ", handler, ":", function].concat();
            if let Some(share) = path.share {
                let _ = write!(text, ", at most {share}");
            }
            text.push('\n');
            let stays = stays(path, handlers);
            let words = stays.map(|stays| status::stays(&path.name, &stays));
            for line in words.iter().flat_map(|words| words.lines()) {
                let _ = writeln!(text, "    {line}");
            }
        }
        for path in &long {
            text += &long_line(path);
        }
        text
    })
}

/// Why a path is not going to run in the kernel tier, if that is known from its handler
/// alone: what its interfaces can do is known when a node is on them.
fn stays(path: &PathConfig, handlers: &[Value]) -> Option<NotPromotable> {
    let mut found = handlers.iter();
    let handler = found.find(|handler| handler["name"] == *path.handler);
    let kernel = &handler?["tiers"]["kernel"];
    let mut functions = kernel["handlers"].as_array().into_iter().flatten();
    let refused = match functions.find(|one| one["name"] == *path.function) {
        _ if path.tier == Tier::User => return None,
        Some(function) => &function["refused"],
        None => kernel,
    };
    let because = refused["because"].as_str()?.to_owned();
    Some(NotPromotable {
        asked: path.tier.word().into(),
        refused: Refused {
            because,
            line: None,
            hint: refused["hint"].as_str().unwrap_or_default().to_owned(),
        },
    })
}

/// What becomes of a path of the long form.
fn long(graph: &NodeGraph, path: &LongPath) -> Result<Value, Failure> {
    let created = graph
        .create_long(path)
        .map_err(|failed| Failure::new(Exit::Usage, failed.what()).because(&failed.because))?;
    let stages = created.path.stages();
    let stages: Vec<_> = stages.map(|stage| stage.name().to_owned()).collect();
    let ends: Vec<_> = path
        .entrances
        .iter()
        .map(|(iface, filter)| json!({ "iface": iface, "match": filter.to_string() }))
        .collect();
    Ok(json!({
        "name": path.name,
        "domain": path.domain,
        "from": path.from,
        "stages": stages,
        "ends": ends,
    }))
}

/// One line about a path that [`long`] has looked at.
fn long_line(path: &Value) -> String {
    let word = |value: &Value| clean(value.as_str().unwrap_or_default());
    let list = |value: &Value, one: &dyn Fn(&Value) -> String, between: &str| {
        let all = value.as_array().into_iter().flatten();
        all.map(one).collect::<Vec<_>>().join(between)
    };
    let stages = list(&path["stages"], &word, " / ");
    let end = |end: &Value| format!("`{}` on {}", word(&end["match"]), word(&end["iface"]));
    let takes = match list(&path["ends"], &end, " and ") {
        takes if takes.is_empty() => "takes nothing from an interface".to_owned(),
        takes => format!("takes {takes}"),
    };
    format!("  path {}: {stages}; {takes}\n", word(&path["name"]))
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

/// Asks both tiers about a handler.
fn look(config: &Config, handler: &HandlerConfig) -> Result<Value, Failure> {
    let named = |failure: Failure| {
        let (config, line) = (config.file.display(), handler.line);
        failure.because(&format!(
            "handler `{}` names it at {config}:{line}",
            handler.name
        ))
    };
    let bytes = file::read(&handler.file).map_err(named)?;
    let module = file::module(&handler.file, &bytes, Profile::Handler).map_err(named)?;
    let report = Report::new(&handler.file, bytes.len(), &module, false).map_err(named)?;
    if handler.instances == Instances::Parallel
        && let Some(why) = report.not_parallel()
    {
        let message = format!("`{}` cannot be `parallel`", handler.file.display());
        let failure = Failure::new(Exit::HandlerRefused, message);
        return Err(named(failure.because(why).hint(why.hint())));
    }
    let mut report = report.json();
    report["name"] = json!(handler.name);
    Ok(report)
}

/// Why a file is nothing that a node could load, and what to do; `None` if it is
/// WebAssembly, or cannot be read, which was said before.
fn no_wasm(handler: &HandlerConfig, bytes: &[u8]) -> Option<(String, String)> {
    if bytes.starts_with(file::MAGIC) {
        return None;
    }
    let file = handler.file.display();
    Some(match file::read(&handler.file) {
        // It was translated.
        Ok(wasm) if wasm.starts_with(file::MAGIC) => (
            format!("`{file}` is WebAssembly as text, and a node loads the binary form"),
            format!("translate it (`wat2wasm {file}`, of WABT), and name what comes out"),
        ),
        Err(failure) => (
            format!("{}: {}", failure.error, failure.because.join(": ")),
            format!("`ashway handler check {file}` says where it is wrong"),
        ),
        Ok(_) => (
            format!("`{file}` is no WebAssembly: it does not begin as such files do"),
            "name the `.wasm` file that the compiler made of the handler's source".to_owned(),
        ),
    })
}

/// Whether the files of the handlers are WebAssembly, and have what the configuration
/// names: the functions of the paths, the parameters, and grants for its host calls. A
/// module that no node would load is left to others to refuse.
///
/// # Errors
///
/// All that is missing, each with its place in the configuration.
pub(super) fn agrees(config: &Config) -> Result<(), Failure> {
    // It was read a moment ago; if it is gone by now, errors have no lines.
    let text = std::fs::read_to_string(&config.file).unwrap_or_default();
    let mut errors = Vec::new();
    for handler in &config.handlers {
        let Ok(bytes) = file::as_it_is(&handler.file) else {
            continue;
        };
        if let Some((message, hint)) = no_wasm(handler, &bytes) {
            errors.push(Diagnostic {
                code: "no_wasm",
                message: message.lines().next().unwrap_or_default().to_owned(),
                span: span(&text, handler.line, "file"),
                hint: Some(hint),
                ..Diagnostic::default()
            });
            continue;
        }
        let Ok(module) = file::module(&handler.file, &bytes, Profile::Handler) else {
            continue;
        };
        let file = handler.file.display();
        let fitting: Vec<_> = module.handlers().map(|(name, _)| name).collect();
        let paths = config.paths_of(&handler.name);
        for path in paths.filter(|path| !fitting.contains(&path.function.as_str())) {
            let (name, function) = (&path.name, &path.function);
            errors.push(Diagnostic {
                code: "no_function",
                message: format!(
                    "path `{name}`: `{file}` exports no function `{function}` of type \
                     (i32, i32) -> i32"
                ),
                span: span(&text, path.line, "handler"),
                hint: Some(format!("it exports `{}`", fitting.join("`, `"))),
                ..Diagnostic::default()
            });
        }
        if let Some(missing) = NotGranted::of(&module, handler) {
            errors.push(Diagnostic {
                code: "not_granted",
                message: missing.to_string(),
                span: span(&text, handler.line, "allow"),
                hint: Some(format!("add {} to `allow`", missing.wanted())),
                ..Diagnostic::default()
            });
        }
        for (param, value) in &handler.params {
            // What its data segments put there.
            let room = |at| word(&module, at);
            if let Err(error) = param::place(&module.symbols, param, value, room) {
                errors.push(Diagnostic {
                    code: "no_parameter",
                    message: format!("handler `{}` {error}", handler.name),
                    span: span(&text, handler.line, param),
                    hint: Some(match &error {
                        ParamError::Unknown { has, .. } if has.is_empty() => {
                            format!("it has none; write `ASHWAY_PARAM({param}, 0)` in the handler")
                        }
                        error => error.hint(),
                    }),
                    ..Diagnostic::default()
                });
            }
        }
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(Diagnostics::new(&config.file, &text, errors).into())
}

/// A word of the handler's memory, as its file says it is at first.
fn word(module: &Module<'_>, at: u32) -> Option<u32> {
    let memory = ashway_codegen::stub::first_memory(module);
    let bytes = memory.get(at as usize..)?.first_chunk()?;
    Some(u32::from_le_bytes(*bytes))
}

/// The first time that a word stands in the section that begins at this line,
/// else the section's head.
fn span(text: &str, line: usize, word: &str) -> Option<Range<usize>> {
    let mut lines = text.split_inclusive('\n');
    let head = line.checked_sub(1)?;
    let begin: usize = lines.by_ref().take(head).map(str::len).sum();
    let first = lines.next()?;
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
    let mut at = begin + first.len();
    for line in lines {
        // A table of its own (`[handler.NAME.params]`) still belongs to it.
        let found = line.match_indices(word).find(|(place, _)| {
            let before = line[..*place].chars().next_back();
            let after = line[place + word.len()..].chars().next();
            !before.is_some_and(is_part) && !after.is_some_and(is_part)
        });
        if let Some((place, _)) = found {
            return Some(at + place..at + place + word.len());
        }
        at += line.len();
    }
    Some(begin..begin + first.trim_end().len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_found_in_its_section() {
        let text = "[handler.a]\nparams = { limits = 1, limt = 2 }\n";
        let found = span(text, 1, "limt").unwrap();
        assert_eq!(&text[found.start - 2..found.end], ", limt");
        assert_eq!(span(text, 1, "none"), Some(0..11));
        assert_eq!(span(text, 0, "limt"), None);
    }
}
