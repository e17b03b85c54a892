//! What a list is run over, and where it goes.

use std::fs::{File, Metadata};
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path as FsPath, PathBuf};

use serde_json::Value;

use crate::face::{Face, tame};
use crate::failure::{Exit, Failure};

/// Where a command's data goes.
pub(super) enum Out {
    /// Nowhere.
    Nowhere,
    /// Standard output; what there is to say goes to standard error.
    Standard,
    /// A file.
    File(PathBuf),
}

impl Out {
    /// What `--out` means.
    ///
    /// # Errors
    ///
    /// If standard output is to be two things.
    pub(super) fn new(face: Face, out: Option<PathBuf>) -> Result<Self, Failure> {
        Ok(match out {
            None => Self::Nowhere,
            Some(file) if file.as_os_str() != "-" => Self::File(file),
            Some(_) if face.json => {
                let error = "`-j` and `--out -` both want standard output";
                return Err(Failure::new(Exit::Usage, error).hint("name a file for the data"));
            }
            Some(_) => Self::Standard,
        })
    }

    /// Refuses to write over what is read, which would be gone if the writing failed.
    pub(super) fn spares(&self, input: &FsPath) -> Result<(), Failure> {
        let Self::File(file) = self else {
            return Ok(());
        };
        let place = |file: &FsPath| {
            let about = std::fs::metadata(file).ok().filter(Metadata::is_file)?;
            Some((about.dev(), about.ino()))
        };
        if place(file).is_none() || place(file) != place(input) {
            return Ok(());
        }
        let error = format!("`--out {}` is the file that `--in` reads", file.display());
        let hint = "name another file, and move it when it is whole";
        Err(Failure::new(Exit::Usage, error).hint(hint))
    }

    pub(super) fn write(&self, data: &[u8]) -> Result<(), Failure> {
        let (written, name) = match self {
            Self::Nowhere => return Ok(()),
            Self::Standard => {
                let mut out = std::io::stdout();
                let written = out.write_all(data).and_then(|()| out.flush());
                (written, "standard output".to_owned())
            }
            Self::File(file) => (std::fs::write(file, data), format!("`{}`", file.display())),
        };
        written.map_err(|error| {
            Failure::new(Exit::Failed, format!("cannot write {name}")).because(&error)
        })
    }

    /// Shows what the command found, where the data does not go.
    pub(super) fn show(
        &self,
        face: Face,
        document: &Value,
        human: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        if matches!(self, Self::Standard) {
            // The data is there, whether or not somebody reads this.
            let _ = std::io::stderr().write_all(tame(human()).as_bytes());
            return Ok(());
        }
        face.show(document, human)
    }
}

/// Most bytes that a list is run over: they are held twice.
const MOST_BYTES: u64 = 256 << 20;

/// The whole of a file, or of standard input (`-`).
pub(super) fn read(input: &FsPath) -> Result<Vec<u8>, Failure> {
    let shown = input.display();
    let opened: std::io::Result<Box<dyn Read>> = if input.as_os_str() == "-" {
        Ok(Box::new(std::io::stdin()))
    } else {
        File::open(input).map(|file| Box::new(file) as _)
    };
    let mut data = Vec::new();
    opened
        .and_then(|from| from.take(MOST_BYTES + 1).read_to_end(&mut data))
        .map_err(|error| {
            Failure::new(Exit::Usage, format!("cannot read `{shown}`")).because(&error)
        })?;
    if data.len() as u64 > MOST_BYTES {
        let error = format!("`{shown}` has more than {} MiB", MOST_BYTES >> 20);
        return Err(Failure::new(Exit::Usage, error)
            .because(&"the data is in memory as a whole")
            .hint(format!(
                "give a part of it: `head -c {} {shown}`, with `--in -`",
                1 << 20
            )));
    }
    Ok(data)
}
