//! The files of the corpus.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::expect::{Expectation, parse};

/// A file of the corpus.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its name without the ending.
    pub name: String,
    /// Where it is.
    pub source: PathBuf,
    /// Its text.
    pub text: String,
    /// The handler.
    pub wasm: Vec<u8>,
    /// What has to become of it.
    pub expectation: Expectation,
}

/// Every file, in order of their names. The C files must have been built.
///
/// # Errors
///
/// Names the file that cannot be read, or whose header says nothing.
pub fn corpus() -> Result<Vec<Entry>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut entries = Vec::new();
    for file in folder.read_dir().context("the corpus")? {
        let source = file?.path();
        let read = match source.extension().and_then(|ending| ending.to_str()) {
            Some("wat") => read(&source, ";;"),
            Some("c") => read(&source, "//"),
            _ => continue,
        };
        entries.push(read.with_context(|| source.display().to_string())?);
    }
    entries.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(entries)
}

fn read(source: &Path, comment: &str) -> Result<Entry> {
    let text = std::fs::read_to_string(source)?;
    let name = source.file_stem().unwrap_or_default().to_string_lossy();
    let wasm = if comment == ";;" {
        wat::parse_str(&text)?
    } else {
        let built = ashway_rig::handler(&format!("hostile/{name}"))?;
        std::fs::read(built)?
    };
    Ok(Entry {
        expectation: parse(&text, comment)?,
        name: name.into_owned(),
        source: source.to_owned(),
        text,
        wasm,
    })
}
