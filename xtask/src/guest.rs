//! A machine of its own for a moment: a Debian kernel, a RAM disk, and what they say
//! on the serial line.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::{output, run};

/// What a line of the guest's that is meant for us starts with.
const MARK: &str = "ashway-guest: ";

/// Modes of what a RAM disk holds.
pub(crate) const FOLDER: u32 = 0o40_755;
pub(crate) const FILE: u32 = 0o100_644;
pub(crate) const PROGRAM: u32 = 0o100_755;

/// The kernel image of a series, downloaded if it is not there.
pub(crate) fn kernel(folder: &Path, version: &str) -> Result<PathBuf> {
    let pattern = format!(
        r"^linux-image-{}\.[0-9.]*[0-9+deb-]*-cloud-amd64-unsigned$",
        version.replace('.', r"\.")
    );
    let found = output(Command::new("apt-cache").args(["search", "--names-only", &pattern]))?;
    let mut names: Vec<&str> = found
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    names.sort_by_key(|name| numbers(name));
    let Some(name) = names.last() else {
        bail!("no Debian package matches `{pattern}`; is bookworm-backports or -security listed?");
    };
    let tree = folder.join(name);
    if !tree.exists() {
        output(
            Command::new("apt-get")
                .args(["download", name])
                .current_dir(folder),
        )?;
        let package = find(folder, |file| {
            Path::new(file).extension() == Some(OsStr::new("deb"))
        })?;
        run(Command::new("dpkg-deb").arg("-x").args([&package, &tree]))?;
        fs::remove_file(package)?;
    }
    find(&tree.join("boot"), |file| file.starts_with("vmlinuz"))
}

/// The numbers in a name, to sort versions by.
fn numbers(name: &str) -> Vec<u64> {
    name.split(|c: char| !c.is_ascii_digit())
        .filter_map(|digits| digits.parse().ok())
        .collect()
}

fn find(folder: &Path, wanted: impl Fn(&str) -> bool) -> Result<PathBuf> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if wanted(&entry.file_name().to_string_lossy()) {
            return Ok(entry.path());
        }
    }
    bail!("nothing of that name in `{}`", folder.display())
}

/// Runs an emulator, gives each marked line to `said`, and ends the guest when it says
/// `done`: it has nothing to lose.
pub(crate) fn watch(
    emulator: &mut Command,
    mut said: impl FnMut(&str) -> Result<()>,
) -> Result<()> {
    let mut guest = emulator
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start the emulator")?;
    let console = guest.stdout.take().context("the guest has no console")?;
    let mut others = VecDeque::new();
    let mut done = false;
    for line in BufReader::new(console).split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        match line.trim_end().split_once(MARK) {
            Some((_, "done")) => {
                done = true;
                break;
            }
            Some((_, line)) => said(line)?,
            None => {
                others.truncate(19);
                others.push_front(line.trim_end().to_owned());
            }
        }
    }
    guest.kill()?;
    let status = guest.wait()?;
    if !done {
        let others: Vec<String> = others.into_iter().rev().collect();
        bail!(
            "the guest did not come to its end ({status}); its last words:\n{}",
            others.join("\n")
        );
    }
    Ok(())
}

/// A RAM disk, in the "newc" form of cpio
/// (Linux `Documentation/driver-api/early-userspace/buffer-format.rst`).
#[derive(Default)]
pub(crate) struct Disk {
    bytes: Vec<u8>,
    files: u32,
}

impl Disk {
    pub(crate) fn add(&mut self, name: &str, mode: u32, contents: &[u8]) {
        self.files += 1;
        let name_bytes = name.len() + 1;
        let fields = [
            self.files,
            mode,
            0,
            0,
            1,
            0,
            contents.len() as u32,
            0,
            0,
            0,
            0,
            name_bytes as u32,
            0,
        ];
        let mut header = "070701".to_owned();
        for field in fields {
            write!(header, "{field:08x}").expect("writing to a string does not fail");
        }
        self.bytes
            .extend(header.bytes().chain(name.bytes()).chain([0]));
        self.pad();
        self.bytes.extend(contents);
        self.pad();
    }

    /// A program of this machine, stripped, and the libraries that it names.
    pub(crate) fn add_program(&mut self, name: &str, file: &Path, scratch: &Path) -> Result<()> {
        let stripped = scratch.join(name);
        run(Command::new("strip").arg("-o").args([&stripped, file]))?;
        self.add(name, PROGRAM, &fs::read(&stripped)?);
        for folder in ["lib", "lib64"] {
            self.add(folder, FOLDER, &[]);
        }
        for library in output(Command::new("ldd").arg(file))?.split_whitespace() {
            if library.starts_with('/') {
                let name = Path::new(library)
                    .file_name()
                    .and_then(OsStr::to_str)
                    .unwrap_or_default();
                let place = if library.starts_with("/lib64") {
                    "lib64"
                } else {
                    "lib"
                };
                self.add(&format!("{place}/{name}"), PROGRAM, &fs::read(library)?);
            }
        }
        Ok(())
    }

    /// What the guest's script is run by.
    pub(crate) fn add_busybox(&mut self) -> Result<()> {
        let busybox = fs::read("/bin/busybox").context("is `busybox-static` installed?")?;
        self.add("bin", FOLDER, &[]);
        self.add("bin/busybox", PROGRAM, &busybox);
        Ok(())
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.add("TRAILER!!!", 0, &[]);
        self.bytes
    }
}
