//! A version of a handler: a file, read and compiled.

use std::collections::BTreeMap;
use std::path::{Path as FsPath, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ashway_codegen::normalise::{self, Lines, Module, NormaliseError, StateRange, normalise};
use ashway_handler::{Compiled, Engine, Param, param};
use ashway_kernel::maps::possible_cpus;
use sha2::{Digest, Sha256};

use crate::error::InstanceError;
use crate::hex::hex;
use ashway_config::{HandlerConfig, Instances, NotGranted, whole_name};

/// The next [`Version::id`].
static NEXT_ID: AtomicU64 = AtomicU64::new(0);

/// A file, read and compiled for the user tier.
#[derive(Debug)]
pub struct Version {
    /// Nobody else has this number as long as the process lives.
    pub id: u64,
    /// SHA-256 of the file.
    pub digest: String,
    /// Where it was read from.
    pub file: PathBuf,
    /// What was read.
    pub(crate) wasm: Vec<u8>,
    /// On how many CPUs at once it runs, if it does so.
    pub(crate) cpus: Option<u32>,
    /// The values of its parameters.
    pub params: BTreeMap<String, Param>,
    /// Its source lines.
    pub(crate) lines: Lines,
    /// Which of its memory the next version begins with.
    pub state_range: Option<StateRange>,
    /// Its code.
    pub compiled: Compiled,
}

impl Version {
    /// Reads a file and compiles it: milliseconds for an ordinary handler.
    ///
    /// # Errors
    ///
    /// [`InstanceError`]; also if it calls what `config` does not grant.
    pub fn read(
        config: &HandlerConfig,
        file: &FsPath,
        engine: &Engine,
    ) -> Result<Self, InstanceError> {
        let limits = normalise::Limits::default();
        let name = || file.display().to_string();
        let wasm = read(file, limits.file_bytes).map_err(|source| InstanceError::Read {
            file: name(),
            source,
        })?;
        let refused = |source: NormaliseError| InstanceError::Refused {
            hint: not_binary(file, &wasm).unwrap_or_else(|| source.hint()),
            file: name(),
            source,
        };
        let mut module = normalise(&wasm, &limits).map_err(refused)?;
        let cpus = if config.instances == Instances::Parallel {
            let cpus = possible_cpus().map_err(|source| InstanceError::Cpus { source })?;
            Some(cpus as u32)
        } else {
            None
        };
        if let Some(cpus) = cpus {
            module
                .make_parallel(cpus)
                .map_err(|source| InstanceError::NotParallel {
                    file: name(),
                    source,
                })?;
        }
        NotGranted::of(&module, config).map_or(Ok(()), Err)?;
        let encoded = normalise::encode(&module);
        let compiled = Compiled::new(engine, &module, &encoded);
        let compiled = compiled.map_err(|source| InstanceError::Start {
            handler: config.name.clone(),
            source,
        })?;
        Ok(Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            digest: hex(&Sha256::digest(&wasm)),
            file: file.to_owned(),
            params: config.params.clone(),
            lines: module.lines.clone(),
            state_range: module.state_range,
            compiled,
            wasm,
            cpus,
        })
    }

    /// What was read, in normal form: milliseconds for an ordinary handler.
    ///
    /// # Panics
    ///
    /// If no version was read from this file.
    #[must_use]
    pub(crate) fn module(&self) -> Module<'_> {
        let module = normalise(&self.wasm, &normalise::Limits::default());
        let mut module = module.expect("the file was normalised when the version was read");
        if let Some(cpus) = self.cpus {
            let made = module.make_parallel(cpus);
            made.expect("it was one when the version was read");
        }
        module
    }

    /// The version of a handler's file: `last` if that is of the same handler, of which this is
    /// another instance; else it is read, and `last` from then on.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub fn shared(
        last: &mut Option<(String, Arc<Self>)>,
        config: &HandlerConfig,
        engine: &Engine,
    ) -> Result<Arc<Self>, InstanceError> {
        let name = whole_name(&config.name);
        if let Some((known, version)) = last
            && known == name
        {
            return Ok(Arc::clone(version));
        }
        let version = Arc::new(Self::read(config, &config.file, engine)?);
        *last = Some((name.to_owned(), Arc::clone(&version)));
        Ok(version)
    }

    /// Gives it the values that it was read with, as far as it has these parameters, and
    /// `given` in the place of them.
    pub fn inherit_params(&mut self, given: BTreeMap<String, Param>) {
        let known: Vec<_> = param::names(self.compiled.symbols()).collect();
        self.params.retain(|name, _| known.contains(&name.as_str()));
        self.params.extend(given);
    }
}

/// What [`Version::digest`] is of a file that is not read yet.
///
/// # Errors
///
/// Why it cannot be read.
pub fn digest(file: &FsPath) -> std::io::Result<String> {
    let wasm = read(file, normalise::Limits::default().file_bytes)?;
    Ok(hex(&Sha256::digest(&wasm)))
}

/// What to do with a file that is not in the binary form, which is the only one that a node
/// reads: a parser of texts has no business in a process with its privileges.
fn not_binary(file: &FsPath, bytes: &[u8]) -> Option<String> {
    if bytes.starts_with(b"\0asm") {
        return None;
    }
    let shown = file.display();
    let is_text = file.extension().is_some_and(|ending| ending == "wat");
    Some(if is_text {
        format!(
            "a node loads the binary form: `wat2wasm {shown}` (of WABT) makes it; \
             `ashway handler check` and `run` take the text, too"
        )
    } else {
        "name the `.wasm` file that the compiler made of the handler's source".to_owned()
    })
}

fn read(file: &FsPath, most: usize) -> std::io::Result<Vec<u8>> {
    use std::io::Read;
    // One byte more than allowed is enough to be refused by size.
    let mut wasm = Vec::new();
    ashway_config::open(file)?
        .take(most as u64 + 1)
        .read_to_end(&mut wasm)?;
    Ok(wasm)
}
