//! The C programs of `bench/peers`: built when needed, loaded while measured.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};

use anyhow::{Context, Result, bail};
use ashway_kernel::Program;
use ashway_rig::Process;

/// What brings the tools on Debian 12.
pub const INSTALL: &str = "apt-get install -y clang-19 libbpf-dev gcc";

/// Compiler of XDP programs, and of what is compared with compiled pipes.
const CLANG: &str = "clang-19";

/// Builds what is older than its sources into `target/peers`; returns that
/// folder.
///
/// # Errors
///
/// Names [`INSTALL`] if a tool or header is missing.
pub fn build() -> Result<PathBuf> {
    let (sources, out) = folders()?;
    for name in [
        "xdp_counter",
        "tc_counter",
        "tc_busy",
        "xdp_forward",
        "xdp_pipes",
    ] {
        let source = sources.join(name).with_extension("c");
        let object = out.join(name).with_extension("o");
        let included = ["xdp_common.h", "xdp_counter.c"].map(|file| sources.join(file));
        let current = [&source].into_iter().chain(&included);
        let current = current.map(|file| is_current(&object, file));
        if current
            .collect::<Result<Vec<_>>>()?
            .iter()
            .all(|current| *current)
        {
            continue;
        }
        // Debian keeps <asm/types.h> in a folder per machine, which clang does
        // not search when it compiles for BPF.
        let machine = format!("/usr/include/{}-linux-gnu", std::env::consts::ARCH);
        let mut command = Command::new(CLANG);
        command.args(["-target", "bpf", "-mcpu=v4", "-O2", "-g", "-Wall"]);
        command.args([
            "-Wextra",
            "-Wno-unused-parameter",
            "-Werror",
            "-I",
            &machine,
        ]);
        compile(command.arg("-c").arg(&source).arg("-o").arg(&object))?;
    }
    for (name, more) in [
        ("xdp_peer", &["-O2", "-lbpf"][..]),
        ("udp_forward", &["-O3"]),
        ("udp_drain", &["-O3"]),
    ] {
        let source = sources.join(name).with_extension("c");
        let program = out.join(name);
        if is_current(&program, &source)? {
            continue;
        }
        let mut command = Command::new("cc");
        command.args(["-Wall", "-Wextra", "-Werror"]);
        compile(command.arg(&source).arg("-o").arg(&program).args(more))?;
    }
    Ok(out)
}

/// Builds `pipes`, if it is older than its source; returns the program. For this
/// machine's own CPU.
///
/// # Errors
///
/// Names [`INSTALL`] if the compiler is missing.
pub fn build_pipes() -> Result<PathBuf> {
    let (sources, out) = folders()?;
    let (source, program) = (sources.join("pipes.c"), out.join("pipes"));
    if !is_current(&program, &source)? {
        let mut command = Command::new(CLANG);
        // It calls a combination of features invalid that `native` is made of.
        command.args(["-O3", "-march=native", "-Wno-invalid-feature-combination"]);
        command.args(["-Wall", "-Wextra", "-Werror"]);
        compile(command.arg(&source).arg("-o").arg(&program))?;
    }
    Ok(program)
}

/// Where the sources are and where the products go.
fn folders() -> Result<(PathBuf, PathBuf)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .context("the workspace's root")?;
    let out = root.join("target/peers");
    fs::create_dir_all(&out).with_context(|| format!("cannot make `{}`", out.display()))?;
    Ok((root.join("bench/peers"), out))
}

fn compile(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| {
        let program = command.get_program().display();
        format!("cannot start `{program}`; run `{INSTALL}`")
    })?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        bail!(
            "{command:?} failed: {}\nis everything installed? `{INSTALL}`",
            why.trim()
        );
    }
    Ok(())
}

fn is_current(product: &Path, source: &Path) -> Result<bool> {
    let changed = |path: &Path| fs::metadata(path).and_then(|meta| meta.modified());
    let source =
        changed(source).with_context(|| format!("cannot look at `{}`", source.display()))?;
    Ok(changed(product).is_ok_and(|product| product > source))
}

/// The XDP programs of one of the objects, loaded until this is dropped.
#[derive(Debug)]
pub struct Object {
    ids: BTreeMap<String, u32>,
    // Ends the loader before the kill that would end it too.
    _input: Option<ChildStdin>,
    _loader: Process,
}

impl Object {
    /// Builds what is old and loads the programs of `name.c`.
    ///
    /// # Errors
    ///
    /// What the compiler or the kernel said.
    pub fn load(name: &str) -> Result<Self> {
        let built = build()?;
        let mut command = Command::new(built.join("xdp_peer"));
        command.arg(built.join(name).with_extension("o"));
        Self::of(command)
    }

    /// What a loader loads: it prints `NAME ID` for each program, then `ready`, and ends
    /// when its input does.
    ///
    /// # Errors
    ///
    /// If it does not start, or says something else.
    pub fn of(mut command: Command) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut loader = Process::spawn(command).context("cannot start the loader")?;
        let output = loader.child().stdout.take().context("no output")?;
        let mut ids = BTreeMap::new();
        for line in BufReader::new(output).lines() {
            let line = line?;
            if line == "ready" {
                break;
            }
            if let Some((name, id)) = line.split_once(' ') {
                ids.insert(name.to_owned(), id.parse::<u32>()?);
            }
        }
        Ok(Self {
            ids,
            _input: loader.child().stdin.take(),
            _loader: loader,
        })
    }

    /// One of them.
    ///
    /// # Errors
    ///
    /// If there is none of that name.
    pub fn program(&self, name: &str) -> Result<Program> {
        let id = self.ids.get(name);
        let id = id.with_context(|| format!("the loader did not load `{name}`"))?;
        Program::from_id(*id).with_context(|| format!("cannot reach program {id}"))
    }
}

/// The hand-written remote increment, loaded until this is dropped.
#[derive(Debug)]
pub struct ByHand {
    /// Answers remote increments; its counter starts at 0.
    pub counter: Program,
    /// Does nothing: what running any program costs.
    pub empty: Program,
    _object: Object,
}

impl ByHand {
    /// Builds and loads them.
    ///
    /// # Errors
    ///
    /// What the compiler or the kernel said.
    pub fn load() -> Result<Self> {
        let object = Object::load("xdp_counter")?;
        Ok(Self {
            counter: object.program("ashway_by_hand")?,
            empty: object.program("ashway_empty")?,
            _object: object,
        })
    }
}
