//! `cargo xtask kernels`: what other kernels say to promoted handlers.
//!
//! Boots Debian's cloud kernels under QEMU (without hardware help: any machine
//! will do) with `ashway`, the built handlers and programs in an initial RAM disk,
//! and prints what `ashway handler check` says there, one line for each, as it
//! comes: an emulated processor takes minutes. Packages are fetched with
//! `apt-get download` and kept under `target/`.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::{output, root, run};

/// The oldest that promotes, and the one that Debian 12 comes with.
const VERSIONS: [&str; 2] = ["6.12", "6.1"];

/// What a line of the guest's that is meant for us starts with.
const MARK: &str = "ashway-kernels: ";

/// What has to be there beside the kernels.
const INSTALL: &str = "apt-get install qemu-system-x86 busybox-static binutils";

/// Ends when the guest has looked at every handler. Handlers are built and
/// `ashway` is built with `--release` before.
pub(crate) fn check(versions: &[&str]) -> Result<()> {
    let versions = if versions.is_empty() {
        &VERSIONS
    } else {
        versions
    };
    let folder = root().join("target/kernels");
    fs::create_dir_all(&folder)?;
    let disk = folder.join("initrd.cpio");
    fs::write(&disk, ram_disk(&folder)?)?;
    for version in versions {
        let image = kernel(&folder, version)?;
        boot(&image, &disk)?;
    }
    Ok(())
}

/// The kernel image of a series, downloaded if it is not there.
fn kernel(folder: &Path, version: &str) -> Result<PathBuf> {
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

/// Runs the guest and shows what it finds.
fn boot(image: &Path, disk: &Path) -> Result<()> {
    // The guest ends with us, however we end.
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", "KILL", "qemu-system-x86_64"])
        .args(["-nographic", "-no-reboot", "-m", "2048"])
        .args(["-smp", "2", "-cpu", "max"])
        .arg("-kernel")
        .arg(image)
        .arg("-initrd")
        .arg(disk)
        .args(["-append", "console=ttyS0 quiet panic=-1"]);
    let mut guest = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("is QEMU there? `{INSTALL}`"))?;
    let output = guest.stdout.take().context("the guest has no console")?;
    let mut others = VecDeque::new();
    let mut taken = Taken::default();
    let mut done = false;
    for line in BufReader::new(output).split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        match line.trim_end().split_once(MARK) {
            Some((_, "done")) => done = true,
            Some((_, said)) => taken.show(said)?,
            None => {
                others.truncate(19);
                others.push_front(line.trim_end().to_owned());
            }
        }
    }
    let status = guest.wait()?;
    let others: Vec<String> = others.into_iter().rev().collect();
    ensure!(
        status.success() && done,
        "the guest did not come to its end ({status}); its last words:\n{}",
        others.join("\n")
    );
    println!(
        "  {} files: the user tier takes {}, the kernel tier {}",
        taken.files, taken.user, taken.kernel
    );
    Ok(())
}

/// How many files each tier takes.
#[derive(Default)]
struct Taken {
    files: u32,
    user: u32,
    kernel: u32,
}

impl Taken {
    /// A line of the guest's: a file's name and what `handler check -j` says of
    /// it, or anything else.
    fn show(&mut self, said: &str) -> Result<()> {
        let Some((name, text)) = said
            .split_once(' ')
            .filter(|(_, text)| text.starts_with('{'))
        else {
            println!("{said}");
            return Ok(());
        };
        let document = serde_json::from_str(text)
            .with_context(|| format!("what the guest says of `{name}` is no JSON: {text}"))?;
        let (user, kernel, line) = verdict(&document);
        self.files += 1;
        self.user += u32::from(user);
        self.kernel += u32::from(kernel);
        println!("  {name:<24} {line}");
        Ok(())
    }
}

/// Whether the user tier takes a file, whether the kernel tier takes a handler of
/// it, and both in a line.
fn verdict(document: &Value) -> (bool, bool, String) {
    let tiers = &document["handler"]["tiers"];
    let kernel = &tiers["kernel"];
    let handler = &kernel["handlers"][0];
    let takes_user = tiers["user"]["takes"] == true;
    let takes_kernel = handler["takes"] == true;
    let user = if takes_user {
        "user tier"
    } else {
        "no user tier"
    };
    let because = [
        &handler["refused"]["because"],
        &kernel["because"],
        &kernel["why_not_verified"],
        &document["error"]["message"],
    ];
    let line = match because.into_iter().find_map(Value::as_str) {
        Some(because) => format!("{user}; {because}"),
        None => format!(
            "{user}; kernel tier, {} instructions verified",
            handler["verified_insns"]
        ),
    };
    (takes_user, takes_kernel, line)
}

/// A RAM disk with everything the guest needs, in the "newc" form of cpio
/// (Linux `Documentation/driver-api/early-userspace/buffer-format.rst`).
fn ram_disk(folder: &Path) -> Result<Vec<u8>> {
    let mut disk = Disk::default();
    for name in [
        "bin", "proc", "sys", "tmp", "handlers", "programs", "lib", "lib64",
    ] {
        disk.add(name, 0o40_755, &[]);
    }
    let stripped = folder.join("ashway");
    let ashway = root().join("target/release/ashway");
    run(Command::new("strip").arg("-o").args([&stripped, &ashway]))?;
    disk.add("ashway", 0o100_755, &fs::read(&stripped)?);
    for library in output(Command::new("ldd").arg(&ashway))?.split_whitespace() {
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
            disk.add(&format!("{place}/{name}"), 0o100_755, &fs::read(library)?);
        }
    }
    let busybox = fs::read("/bin/busybox").with_context(|| format!("run `{INSTALL}`"))?;
    disk.add("bin/busybox", 0o100_755, &busybox);
    for folder in ["handlers", "programs"] {
        for entry in fs::read_dir(root().join("target").join(folder))? {
            let file = entry?.path();
            if file.extension() == Some(OsStr::new("wasm")) {
                let name = file.file_name().and_then(OsStr::to_str).unwrap_or_default();
                disk.add(&format!("{folder}/{name}"), 0o100_644, &fs::read(&file)?);
            }
        }
    }
    disk.add("init", 0o100_755, GUEST.as_bytes());
    Ok(disk.finish())
}

/// What the guest does.
const GUEST: &str = r#"#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
export LD_LIBRARY_PATH=/lib
say() { echo "ashway-kernels: $*"; }
say "Linux $(/bin/busybox uname -r)"
for file in /handlers/*.wasm /programs/*.wasm; do
    /ashway handler check "$file" -j > /tmp/out 2>&1
    say "${file#/} $(/bin/busybox tr -d '\n' < /tmp/out)"
done
say done
/bin/busybox poweroff -f
"#;

#[derive(Default)]
struct Disk {
    bytes: Vec<u8>,
    files: u32,
}

impl Disk {
    fn add(&mut self, name: &str, mode: u32, contents: &[u8]) {
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

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn finish(mut self) -> Vec<u8> {
        self.add("TRAILER!!!", 0, &[]);
        self.bytes
    }
}
