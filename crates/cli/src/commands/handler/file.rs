//! A Wasm file as the commands see it, and the words for places in it.

use std::fs::{File, OpenOptions, Permissions};
use std::io::Read;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path as FsPath;

use ashway_codegen::normalise::ir::FileOffset;
use ashway_codegen::normalise::{
    INVOKE_PREFIX, Limits, Module, NormaliseError, Profile, normalise_as,
};
use ashway_config as config;
use ashway_handler::Stopped;
use serde_json::{Value, json};

use crate::failure::{Exit, Failure};

/// Reads a file, but no more of it than is needed to refuse it. The text format
/// (`.wat`) is translated.
pub(in crate::commands) fn read(file: &FsPath) -> Result<Vec<u8>, Failure> {
    let bytes = as_it_is(file).map_err(|error| unreadable(file, &error))?;
    if !is_named_wat(file) {
        return Ok(bytes);
    }
    let translated = wat::parse_bytes(&bytes).map_err(|error| unreadable(file, &error))?;
    Ok(translated.into_owned())
}

/// The same without translation, as a node reads it.
pub(in crate::commands) fn as_it_is(file: &FsPath) -> std::io::Result<Vec<u8>> {
    let most = Limits::default().file_bytes as u64;
    let mut bytes = Vec::new();
    config::open_or_pipe(file)?
        .take(most + 1)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Begins a file that nobody else is to read: it has messages or memory of somebody. It may
/// be a pipe, and is waited for.
pub(in crate::commands) fn create_private(file: &FsPath) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let created = options.open(file)?;
    if created.metadata()?.is_file() {
        // It may have been there.
        created.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok(created)
}

/// Whether there is a pipe of this name.
pub(in crate::commands) fn is_pipe(file: &FsPath) -> bool {
    std::fs::metadata(file).is_ok_and(|about| about.file_type().is_fifo())
}

fn unreadable(file: &FsPath, cause: &dyn std::fmt::Display) -> Failure {
    Failure::new(Exit::Usage, format!("cannot read `{}`", file.display()))
        .because(cause)
        .in_file(file)
}

/// What every WebAssembly file starts with.
pub(in crate::commands) const MAGIC: &[u8] = b"\0asm";

fn is_named_wat(file: &FsPath) -> bool {
    file.extension().is_some_and(|ending| ending == "wat")
}

/// Whether a file is a handler, and not a configuration: by its first bytes, or what
/// it is called. No if there is none, nor of a pipe by its first bytes, which nobody could
/// read again.
pub(in crate::commands) fn is_handler(file: &FsPath) -> bool {
    let named = is_named_wat(file) || file.extension().is_some_and(|ending| ending == "wasm");
    let Ok(about) = std::fs::metadata(file) else {
        return false;
    };
    let mut start = Vec::new();
    let begins = about.is_file()
        && File::open(file)
            .and_then(|file| file.take(MAGIC.len() as u64).read_to_end(&mut start))
            .is_ok();
    named || begins && start == MAGIC
}

/// The module in a file, or why no node would load it.
pub(in crate::commands) fn module<'b>(
    file: &FsPath,
    bytes: &'b [u8],
    profile: Profile,
) -> Result<Module<'b>, Failure> {
    normalise_as(bytes, &Limits::default(), profile).map_err(|error| {
        let failure = refused(file, &error);
        if bytes.starts_with(MAGIC) {
            return failure;
        }
        failure.hint(
            "name a `.wasm` file, or its text in a `.wat`; a configuration is checked by `ashway \
             check`",
        )
    })
}

fn refused(file: &FsPath, error: &NormaliseError) -> Failure {
    let shown = file.display().to_string();
    let at = error.place().map(|at| format!(" (at offset {at:#x})"));
    let mut failure = Failure::new(Exit::HandlerRefused, format!("`{shown}` is refused"))
        .because(&format!("{error}{}", at.unwrap_or_default()))
        .hint(error.hint());
    failure.because.extend(error.caret().map(str::to_owned));
    failure.file = Some(shown);
    failure
}

/// A place in the author's code, as text: `counter.c:12`, else an offset.
pub(super) fn place(module: &Module<'_>, at: FileOffset) -> String {
    match module.lines.at(at) {
        Some((file, line)) => format!("{file}:{line} (offset {at:#x})"),
        None => match function_at(module, at) {
            Some(name) => format!("offset {at:#x}, in `{name}`"),
            None => format!("offset {at:#x}"),
        },
    }
}

/// The function whose body holds this offset, if it has a name.
fn function_at<'m>(module: &'m Module<'_>, at: FileOffset) -> Option<&'m str> {
    // What was added for `invoke` lies where the function does that it calls.
    let ours = |name: &str| name.starts_with(INVOKE_PREFIX);
    let bodies = module.functions.iter().filter(|f| f.at <= at);
    let bodies = bodies.filter(|f| !f.name.as_deref().is_some_and(ours));
    bodies.max_by_key(|f| f.at)?.name.as_deref()
}

/// Why a handler was stopped, as JSON.
pub(super) fn stopped_json(module: &Module<'_>, stopped: Stopped) -> Value {
    let line = module.lines.at(stopped.at);
    json!({
        "cause": stopped.cause.name(),
        "offset": stopped.at,
        "function": function_at(module, stopped.at),
        "file": line.map(|(file, _)| file),
        "line": line.map(|(_, line)| line),
    })
}

/// The exported function of this name; otherwise a failure that lists those
/// there are.
pub(super) fn export(module: &Module<'_>, name: &str) -> Result<u32, Failure> {
    let found = module.exports.iter().find(|(known, _)| known == name);
    found.map(|(_, index)| *index).ok_or_else(|| {
        let known: Vec<_> = module.exports.iter().map(|e| e.0.as_str()).collect();
        let failure = Failure::new(Exit::Usage, format!("no exported function `{name}`"));
        failure.hint(match known.join(", ") {
            known if known.is_empty() => "the file exports no function".to_owned(),
            known => format!("the file exports {known}"),
        })
    })
}

/// `1 frame`, `2 frames`.
pub(in crate::commands) fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}
