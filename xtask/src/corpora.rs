//! `cargo xtask corpora`: packet captures that nobody here made.
//!
//! The test captures of tcpdump (many of them crashers) and of nDPI, from
//! Debian's source packages. They are fetched once, by apt with lists, cache and
//! sources of its own under `target/corpora`, because source packages are not
//! enabled on most systems and what a system has enabled is not ours to change.
//! Where to fetch from and whom to trust is read from the system's own sources.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::run;

/// Source packages that carry captures.
const PACKAGES: [&str; 2] = ["tcpdump", "ndpi"];

/// The file that says that all captures are there.
const DONE: &str = "done";

/// Fetches what is not there yet into `out`.
pub(crate) fn fetch(out: &Path) -> Result<()> {
    if out.join(DONE).exists() {
        return Ok(());
    }
    for folder in ["apt/lists/partial", "apt/cache/archives/partial", "sources"] {
        let folder = out.join(folder);
        fs::create_dir_all(&folder)
            .with_context(|| format!("cannot make `{}`", folder.display()))?;
    }
    let list = out.join("apt/corpora.sources");
    fs::write(&list, source_stanzas()?)?;
    run(apt(out, &list).arg("update"))?;
    run(apt(out, &list)
        .args(["source", "--download-only", "--tar-only"])
        .args(PACKAGES))?;
    for package in PACKAGES {
        let archive = archive(&out.join("sources"), package)?;
        let folder = out.join(package);
        fs::create_dir_all(&folder)?;
        run(Command::new("tar")
            .arg("-xf")
            .arg(archive)
            .arg("-C")
            .arg(&folder)
            .args(["--wildcards", "*.pcap*"]))?;
    }
    fs::write(out.join(DONE), "")?;
    Ok(())
}

/// apt with everything of its own; it puts sources where it runs.
fn apt(out: &Path, list: &Path) -> Command {
    let mut command = Command::new("env");
    command.arg("-C").arg(out.join("sources")).arg("apt-get");
    let apt = out.join("apt");
    for (option, value) in [
        ("Dir::Etc::SourceList", list),
        ("Dir::Etc::SourceParts", Path::new("/dev/null")),
        ("Dir::State::Lists", &apt.join("lists")),
        ("Dir::Cache", &apt.join("cache")),
        // Another user could not read the folder.
        ("APT::Sandbox::User", Path::new("root")),
    ] {
        command
            .arg("-o")
            .arg(format!("{option}={}", value.display()));
    }
    command.arg("-q");
    command
}

/// The distribution's own stanzas among the system's sources, for sources.
fn source_stanzas() -> Result<String> {
    let release = fs::read_to_string("/etc/os-release").context("cannot read /etc/os-release")?;
    let codename = release
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="))
        .context("/etc/os-release names no release")?;
    let mut stanzas = String::new();
    for entry in fs::read_dir("/etc/apt/sources.list.d").context("is this Debian?")? {
        let path = entry?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "sources")
        {
            for stanza in fs::read_to_string(&path)?.split("\n\n") {
                if is_of(stanza, codename) {
                    let stanza = stanza.trim().replace("Types: deb\n", "Types: deb-src\n");
                    write!(stanzas, "{stanza}\n\n")?;
                }
            }
        }
    }
    ensure!(
        !stanzas.is_empty(),
        "no stanza for `{codename}` in /etc/apt/sources.list.d/*.sources"
    );
    Ok(stanzas)
}

/// Whether a stanza is about this release itself.
fn is_of(stanza: &str, codename: &str) -> bool {
    let suites = stanza.lines().find_map(|line| line.strip_prefix("Suites:"));
    suites.is_some_and(|suites| suites.split_whitespace().any(|suite| suite == codename))
}

/// The package's upstream archive among those that were fetched.
fn archive(folder: &Path, package: &str) -> Result<PathBuf> {
    let mut found = fs::read_dir(folder)?.filter_map(|entry| Some(entry.ok()?.path()));
    let is_archive = |path: &PathBuf| {
        let name = path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        name.is_some_and(|name| {
            name.starts_with(&format!("{package}_")) && name.contains(".orig.tar.")
        })
    };
    found
        .find(|path| {
            let signature = path.extension().is_some_and(|extension| extension == "asc");
            is_archive(path) && !signature
        })
        .with_context(|| format!("`{package}` has no upstream archive"))
}
