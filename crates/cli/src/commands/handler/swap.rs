//! `ashway handler swap` and `ashway handler rollback`: another version of a handler
//! that runs.

use std::fmt::Write as _;
use std::path::PathBuf;

use ashway_api::request;
use ashway_handler::Param;
use clap::Args;
use serde_json::Value;

use super::Node;
use crate::commands::load::{self, absolute};
use crate::face::{Face, clean};
use crate::failure::{Exit, Failure};

/// Replace a running handler by another version of it
///
/// Its paths, its memory and what an application has mapped of it stay, and so does
/// its state, if both versions declare one (`ASHWAY_STATE`); everything else in the
/// memory begins anew. Messages wait meanwhile: none is lost, and none meets two
/// versions. If the new version cannot take over, the old one goes on as if nothing
/// had been asked.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ashway handler swap counter counter-2.wasm
  ashway handler swap tens counter.wasm --param step=100
  ashway handler rollback counter")]
pub(crate) struct Swap {
    /// The handler
    name: String,
    /// The new version's Wasm file
    file: PathBuf,
    /// A value for one of its parameters, as `handler load` takes it; the others keep
    /// theirs, as far as the new version has them
    #[arg(long, value_name = "NAME=VALUE", value_parser = load::param)]
    param: Vec<(String, Param)>,
    /// Not taken: a swap grants nothing
    #[arg(long, hide = true)]
    allow: Option<String>,
    #[command(flatten)]
    node: Node,
}

/// Go back to the version of a handler before the one that runs
///
/// As a swap: the state stays if the older version can take it over. It has the values
/// of parameters that it had. `handler ls -j`
/// lists what there is to go back to: at most 8 versions.
#[derive(Debug, Args)]
pub(crate) struct Rollback {
    /// The handler
    name: String,
    #[command(flatten)]
    node: Node,
}

impl Swap {
    pub(crate) fn run(self, face: Face) -> Result<(), Failure> {
        if self.allow.is_some() {
            let error = "`handler swap` takes no `--allow`: a swap grants nothing";
            return Err(Failure::new(Exit::Usage, error).hint(
                "the new version may do what the handler may (`ashway handler ls`); `handler \
                 load --allow` loads it as a handler of its own, which may do more",
            ));
        }
        let request = request::Swap {
            handler: self.name,
            file: absolute(&self.file)?,
            params: load::params(self.param)?,
        };
        let answer = self.node.connect()?.request(request)?;
        face.show(&answer, || words(&answer))?;
        Ok(())
    }
}

impl Rollback {
    pub(crate) fn run(self, face: Face) -> Result<(), Failure> {
        let handler = self.name;
        let answer = self
            .node
            .connect()?
            .request(request::Rollback { handler })?;
        face.show(&answer, || words(&answer))?;
        Ok(())
    }
}

/// What was done, for people.
fn words(answer: &Value) -> String {
    let text = |key: &str| clean(answer[key].as_str().unwrap_or_default());
    let short = |key: &str| text(key).chars().take(12).collect::<String>();
    let micros = |ns: &Value| ns.as_f64().unwrap_or_default() / 1000.0;
    let mut words = format!(
        "handler `{}`: {} -> {}\n  messages waited {:.1} us",
        text("handler"),
        short("before"),
        short("digest"),
        micros(&answer["hold_ns"]),
    );
    let state = &answer["state"];
    let _ = match (&state["kept_bytes"], &state["migrated_from"]) {
        (Value::Null, _) => write!(words, "\n  no state is declared: its memory began anew"),
        (bytes, Value::Null) => write!(
            words,
            "\n  {bytes} bytes of state kept, version {}",
            state["version"]
        ),
        (bytes, from) => write!(
            words,
            "\n  {bytes} bytes of state kept, migrated from version {from} to {}",
            state["version"]
        ),
    };
    for left in answer["left_kernel"].as_array().into_iter().flatten() {
        let text = |key: &str| clean(left[key].as_str().unwrap_or_default());
        let place = match text("line") {
            line if line.is_empty() => line,
            line => format!("{line}: "),
        };
        let _ = write!(
            words,
            "\n  path `{}` left the kernel tier: {place}{}\n    hint: {}",
            text("path"),
            text("because"),
            text("hint")
        );
    }
    words
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_was_kept_and_how_long_it_took_is_said() {
        let answer = json!({
            "handler": "h", "before": "aaaaaaaaaaaaaaaa", "digest": "bbbbbbbbbbbbbbbb",
            "hold_ns": 61_500,
            "state": { "version": 2, "kept_bytes": 64, "migrated_from": 1 },
            "left_kernel": [{ "path": "p", "because": "no", "line": "h.c:3", "hint": "do" }],
        });
        assert_eq!(
            words(&answer),
            "handler `h`: aaaaaaaaaaaa -> bbbbbbbbbbbb\n  messages waited 61.5 us\n  64 bytes \
             of state kept, migrated from version 1 to 2\n  path `p` left the kernel tier: \
             h.c:3: no\n    hint: do"
        );
    }
}
