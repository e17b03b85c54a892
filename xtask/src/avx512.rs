//! `cargo xtask avx512`: pipes in vectors of 512 bits, on any machine.
//!
//! The tests of pipes (`crates/codegen/tests/pipe`) run under Bochs, an emulator that
//! has AVX-512, which QEMU has not: a Debian kernel, and a RAM disk with the tests and
//! the libraries that they need. It does some ten million instructions in a second, so
//! that there are fewer cases than every day, and only the forms of 512 bits run.
//!
//! With `--bug NAME` the tests have one of the seeded bugs and must turn red.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::guest::{self, Disk, FOLDER, PROGRAM};
use crate::{fuzz_pipes, root, run};

/// What has to be there.
const INSTALL: &str =
    "apt-get install bochs isolinux syslinux-common xorriso busybox-static binutils";

/// The kernel's series; any would do.
const KERNEL: &str = "6.1";

/// Cannon Lake: the last one of this emulator with which Linux comes to its end. Those
/// behind it also have VAES and VPCLMULQDQ, but what Bochs 2.7 says there of CET and
/// of protection keys is wrong.
const CPU: &str = "corei3_cnl";

/// Ends when the guest has run all tests.
pub(crate) fn check(args: &[&str]) -> Result<()> {
    let (mut cases, mut seed, mut bug) = ("4000", "1", None);
    for pair in args.chunks(2) {
        match pair {
            ["--cases", text] => cases = text,
            ["--seed", text] => seed = text,
            ["--bug", name] => bug = Some(*name),
            other => bail!(
                "`{}` is not --cases N, --seed N or --bug NAME",
                other.join(" ")
            ),
        }
    }
    if let Some(bug) = bug {
        let bugs = include_str!("../../crates/codegen/src/bug.rs");
        ensure!(
            bugs.contains(&format!("    {bug},\n")),
            "crates/codegen/src/bug.rs has no {bug}"
        );
    }
    let folder = root().join("target/avx512");
    let disc = folder.join("disc");
    fs::create_dir_all(&disc)?;
    let tests = fuzz_pipes::build(bug.is_some())?;
    let mut disk = Disk::default();
    disk.add("proc", FOLDER, &[]);
    disk.add_program("pipe", &tests, &folder)?;
    disk.add_busybox()?;
    // What compares with the interpreter, which the others know to be right; a bug is to
    // be seen by the test that guards against it every day.
    let which = bug.map_or(
        "evil:: parts::buffers same:: user::",
        |_| "same::every_list_gives_the_same",
    );
    let script = GUEST
        .replace("@CASES", cases)
        .replace("@SEED", seed)
        .replace("@BUG", bug.unwrap_or_default())
        .replace("@WHICH", which);
    disk.add("init", PROGRAM, script.as_bytes());
    fs::write(disc.join("initrd"), disk.finish())?;
    let kernels = root().join("target/kernels");
    fs::create_dir_all(&kernels)?;
    fs::copy(guest::kernel(&kernels, KERNEL)?, disc.join("vmlinuz"))?;
    bootable(&disc, &folder).with_context(|| format!("is all of it there? `{INSTALL}`"))?;
    fs::write(folder.join("bochsrc"), MACHINE.replace("@CPU", CPU))?;
    fs::write(folder.join("commands"), "continue\n")?;

    // The guest ends with us, however we end. Its serial line is the standard output;
    // without that the emulator says on the other one why it does not start.
    let mut emulator = Command::new("setpriv");
    emulator
        .args(["--pdeathsig", "KILL", "sh", "-c"])
        .arg("exec bochs -q -f bochsrc -rc commands 2>&1")
        .current_dir(&folder);
    let mut failed = None;
    guest::watch(&mut emulator, |said| {
        println!("{said}");
        if let Some(result) = said.strip_prefix("test result: ") {
            failed = Some(!result.starts_with("ok"));
        }
        Ok(())
    })
    .with_context(|| format!("is all of it there? `{INSTALL}`"))?;
    let failed = failed.context("the tests did not come to their end")?;
    match bug {
        None => ensure!(!failed, "pipes of 512 bits do not mean what they mean"),
        Some(bug) => {
            ensure!(failed, "nothing notices {bug}");
            println!("{bug} is red, as it has to be");
        }
    }
    Ok(())
}

/// A disc image that starts what is in `disc`.
fn bootable(disc: &Path, folder: &Path) -> Result<()> {
    for file in [
        "/usr/lib/ISOLINUX/isolinux.bin",
        "/usr/lib/syslinux/modules/bios/ldlinux.c32",
    ] {
        let name = Path::new(file).file_name().context("a file has a name")?;
        fs::copy(file, disc.join(name)).with_context(|| format!("cannot copy {file}"))?;
    }
    fs::write(disc.join("isolinux.cfg"), LOADER)?;
    run(Command::new("xorriso")
        .args(["-as", "mkisofs", "-quiet", "-o"])
        .arg(folder.join("disc.iso"))
        .args(["-b", "isolinux.bin", "-c", "boot.cat", "-no-emul-boot"])
        .args(["-boot-load-size", "4", "-boot-info-table"])
        .arg(disc))
}

/// Compact areas for registers are not as large as this emulator says.
const LOADER: &str = "\
DEFAULT linux
PROMPT 0
LABEL linux
 KERNEL vmlinuz
 INITRD initrd
 APPEND console=ttyS0 quiet panic=-1 mitigations=off nokaslr clearcpuid=pku,xsavec,xsaves
";

/// Nobody looks at the display: `rfb` waits for nobody.
const MACHINE: &str = r#"display_library: rfb, options="timeout=0"
cpu: model=@CPU, count=1, ips=50000000, reset_on_triple_fault=0
memory: guest=512, host=512
romimage: file=/usr/share/bochs/BIOS-bochs-latest
vgaromimage: file=/usr/share/bochs/VGABIOS-lgpl-latest
ata0-master: type=cdrom, path=disc.iso, status=inserted
boot: cdrom
com1: enabled=1, mode=file, dev=/dev/stdout
log: bochs.log
panic: action=fatal
error: action=ignore
info: action=ignore
"#;

/// What the guest does.
const GUEST: &str = r#"#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
echo "ashway-guest: $(/bin/busybox grep -m1 'model name' /proc/cpuinfo), $(/bin/busybox grep -o -m1 'avx512[a-z0-9_]*' /proc/cpuinfo | /bin/busybox tr '\n' ' ')"
export LD_LIBRARY_PATH=/lib ASHWAY_BUG=@BUG
export PIPE_WIDE=1 PIPE_CASES=@CASES PIPE_SEED=@SEED PIPE_FUNCTIONS=100 PIPE_EVIL=100
{ /pipe --test-threads=1 @WHICH; echo "status $?"; } 2>&1 |
    while read -r line; do echo "ashway-guest: $line"; done
echo "ashway-guest: done"
/bin/busybox sleep 1000000
"#;
