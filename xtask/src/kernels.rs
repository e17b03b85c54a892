//! `cargo xtask kernels`: what other kernels say to promoted handlers.
//!
//! Boots Debian's cloud kernels under QEMU (without hardware help: any machine
//! will do) with `ashway`, the built handlers and programs in an initial RAM disk,
//! and prints what `ashway handler check` says there, one line for each, as it
//! comes: an emulated processor takes minutes. Packages are fetched with
//! `apt-get download` and kept under `target/`.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::guest::{self, Disk, FILE, FOLDER, PROGRAM};
use crate::root;

/// The oldest that promotes, and the one that Debian 12 comes with.
const VERSIONS: [&str; 2] = ["6.12", "6.1"];

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
        let image = guest::kernel(&folder, version)?;
        boot(&image, &disk)?;
    }
    Ok(())
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
    let mut taken = Taken::default();
    guest::watch(&mut command, |said| taken.show(said))
        .with_context(|| format!("to have what it takes: `{INSTALL}`"))?;
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

/// A RAM disk with everything the guest needs.
fn ram_disk(folder: &Path) -> Result<Vec<u8>> {
    let mut disk = Disk::default();
    for name in ["proc", "sys", "tmp", "handlers", "programs"] {
        disk.add(name, FOLDER, &[]);
    }
    disk.add_program("ashway", &root().join("target/release/ashway"), folder)?;
    disk.add_busybox()?;
    for folder in ["handlers", "programs"] {
        for entry in fs::read_dir(root().join("target").join(folder))? {
            let file = entry?.path();
            if file.extension() == Some(OsStr::new("wasm")) {
                let name = file.file_name().and_then(OsStr::to_str).unwrap_or_default();
                disk.add(&format!("{folder}/{name}"), FILE, &fs::read(&file)?);
            }
        }
    }
    disk.add("init", PROGRAM, GUEST.as_bytes());
    Ok(disk.finish())
}

/// What the guest does.
const GUEST: &str = r#"#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
export LD_LIBRARY_PATH=/lib
say() { echo "ashway-guest: $*"; }
say "Linux $(/bin/busybox uname -r)"
for file in /handlers/*.wasm /programs/*.wasm; do
    /ashway handler check "$file" -j > /tmp/out 2>&1
    say "${file#/} $(/bin/busybox tr -d '\n' < /tmp/out)"
done
say done
/bin/busybox poweroff -f
"#;
