//! `ashway handler swap` and `ashway handler rollback`: another version of a handler
//! that runs.

use std::fmt::Write as _;
use std::path::PathBuf;

use ashway_api::answer::{HandedOn, LeftKernel, Swapped};
use ashway_api::request;
use ashway_handler::Param;
use clap::Args;

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
        let said = self.node.connect()?.request(request)?;
        face.show(&said.document, || words(&said.answer))?;
        Ok(())
    }
}

impl Rollback {
    pub(crate) fn run(self, face: Face) -> Result<(), Failure> {
        let handler = self.name;
        let said = self
            .node
            .connect()?
            .request(request::Rollback { handler })?;
        face.show(&said.document, || words(&said.answer))?;
        Ok(())
    }
}

/// What was done, for people.
fn words(swapped: &Swapped) -> String {
    let short = |digest: &str| clean(digest).chars().take(12).collect::<String>();
    let mut words = format!(
        "handler `{}`: {} -> {}\n  messages waited {:.1} us",
        clean(&swapped.handler),
        short(&swapped.before),
        short(&swapped.digest),
        swapped.hold_ns as f64 / 1000.0,
    );
    // Writing to a string cannot fail.
    let _ = match &swapped.state {
        None => write!(words, "\n  no state is declared: its memory began anew"),
        Some(HandedOn {
            version,
            kept_bytes: bytes,
            migrated_from,
        }) => match migrated_from {
            None => write!(words, "\n  {bytes} bytes of state kept, version {version}"),
            Some(from) => write!(
                words,
                "\n  {bytes} bytes of state kept, migrated from version {from} to {version}"
            ),
        },
    };
    for LeftKernel { path, refused } in &swapped.left_kernel {
        let place = refused.line.as_deref();
        let place = place.map_or_else(String::new, |line| format!("{}: ", clean(line)));
        let _ = write!(
            words,
            "\n  path `{}` left the kernel tier: {place}{}\n    hint: {}",
            clean(path),
            clean(&refused.because),
            clean(&refused.hint)
        );
    }
    words
}

#[cfg(test)]
mod tests {
    use ashway_api::answer::Refused;

    use super::*;

    #[test]
    fn what_was_kept_and_how_long_it_took_is_said() {
        let left = LeftKernel {
            path: "p".to_owned(),
            refused: Refused {
                because: "no".to_owned(),
                line: Some("h.c:3".to_owned()),
                hint: "do".to_owned(),
            },
        };
        let swapped = Swapped {
            handler: "h".to_owned(),
            before: "aaaaaaaaaaaaaaaa".to_owned(),
            digest: "bbbbbbbbbbbbbbbb".to_owned(),
            hold_ns: 61_500,
            state: Some(HandedOn {
                version: 2,
                kept_bytes: 64,
                migrated_from: Some(1),
            }),
            left_kernel: vec![left],
            ..Swapped::default()
        };
        assert_eq!(
            words(&swapped),
            "handler `h`: aaaaaaaaaaaa -> bbbbbbbbbbbb\n  messages waited 61.5 us\n  64 bytes \
             of state kept, migrated from version 1 to 2\n  path `p` left the kernel tier: \
             h.c:3: no\n    hint: do"
        );
    }
}
