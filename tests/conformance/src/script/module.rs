//! The modules in a script: from a command to the normal form.

use super::reason::{self, Reason};
use super::spectest::{self, Undefined};
use ashway_abi::Cause;
use ashway_codegen::normalise::ir::{Global, OpKind};
use ashway_codegen::normalise::{Limits, Module, NormaliseError, Profile, normalise_as};
use std::borrow::Cow;
use std::collections::HashMap;
use wasmparser::{ExternalKind, Operator, Parser, Payload, TypeRef};
use wast::{QuoteWat, QuoteWatTest, WastDirective, WastExecute, Wat};

/// Quotas for scripts: they grow memories to 803 pages and have large tables.
pub(super) fn limits() -> Limits {
    Limits {
        memory_pages: 1_024,
        tables: 1_024,
        table_entries: 200_000,
        state_bytes: 16 << 20,
        ..Limits::default()
    }
}

/// The binary form of the module in a command.
pub(super) enum File {
    Binary(Vec<u8>),
    /// Text that the `wast` crate does not take.
    BadText,
    /// Text that it takes.
    GoodText(Vec<u8>),
}

impl File {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Binary(bytes) | Self::GoodText(bytes) => bytes,
            Self::BadText => &[],
        }
    }
}

pub(super) fn encode(directive: &mut WastDirective<'_>) -> Option<File> {
    let quoted = |module: &mut QuoteWat<'_>| match module.to_test() {
        Ok(QuoteWatTest::Binary(bytes)) => File::Binary(bytes),
        Ok(QuoteWatTest::Text(_)) => module.encode().map_or(File::BadText, File::GoodText),
        Err(_) => File::BadText,
    };
    let plain = |module: &mut Wat<'_>| module.encode().map_or(File::BadText, File::Binary);
    match directive {
        WastDirective::Module(module)
        | WastDirective::ModuleDefinition(module)
        | WastDirective::AssertMalformed { module, .. }
        | WastDirective::AssertMalformedCustom { module, .. }
        | WastDirective::AssertInvalid { module, .. }
        | WastDirective::AssertInvalidCustom { module, .. } => Some(quoted(module)),
        WastDirective::AssertUnlinkable { module, .. } => Some(plain(module)),
        WastDirective::AssertTrap { exec, .. }
        | WastDirective::AssertReturn { exec, .. }
        | WastDirective::AssertException { exec, .. } => match exec {
            WastExecute::Wat(module) => Some(plain(module)),
            _ => None,
        },
        _ => None,
    }
}

/// The module without imports from `spectest`.
pub(super) fn link(file: &File) -> Result<Cow<'_, [u8]>, Undefined> {
    match file {
        File::Binary(wasm) | File::GoodText(wasm) => spectest::define(wasm),
        File::BadText => Err(Undefined::Malformed),
    }
}

/// A module in normal form, and what a script wants to know of it.
pub(super) struct Prepared<'f> {
    pub(super) module: Module<'f>,
    pub(super) exports: HashMap<&'f str, Export>,
    /// Whether any operator changes a table.
    pub(super) changes_tables: bool,
}

#[derive(Clone, Copy)]
pub(super) enum Export {
    Function(u32),
    Global(Global),
    Other,
}

impl Prepared<'_> {
    /// Whether a call of this function can leave anything changed behind it.
    pub(super) fn changes_state(&self, function: u32) -> bool {
        let mut reached = vec![function];
        let mut done = 0;
        while let Some(function) = reached.get(done).copied() {
            done += 1;
            for op in &self.module.functions[function as usize].code {
                match &op.kind {
                    OpKind::Wasm(Operator::Call { function_index })
                        if !reached.contains(function_index) =>
                    {
                        reached.push(*function_index);
                    }
                    OpKind::Wasm(operator) if changes(operator) => return true,
                    OpKind::StateSet { .. }
                    | OpKind::WordSet { .. }
                    | OpKind::CallNumber { .. }
                    | OpKind::StateCopy => return true,
                    _ => {}
                }
            }
        }
        false
    }
}

/// Whether an operator of the normal form may change memory. Atomic ones are
/// not told apart.
fn changes(operator: &Operator<'_>) -> bool {
    let name = format!("{operator:?}");
    let words = [
        "Store",
        "Atomic",
        "MemoryGrow",
        "MemoryCopy",
        "MemoryFill",
        "CallIndirect",
    ];
    words.iter().any(|word| name.contains(word))
}

/// Why a module has no instance.
#[derive(Clone)]
pub(super) enum NoInstance {
    Refused(Reason),
    /// It would not have one anywhere: it traps.
    Traps(Cause),
    /// Our fault.
    Broken(String),
}

pub(super) fn prepare<'f>(
    wasm: &'f Result<Cow<'_, [u8]>, Undefined>,
) -> Result<Prepared<'f>, NoInstance> {
    let wasm = match wasm {
        Ok(wasm) => wasm,
        Err(Undefined::Linking) => return Err(NoInstance::Refused(reason::LINKING.into())),
        Err(Undefined::Malformed) => return Err(NoInstance::Refused("malformed".into())),
    };
    let module = normalise_as(wasm, &limits(), Profile::Library);
    let mut module = module.map_err(|error| match error {
        NormaliseError::Segment { ref what, .. } if what.contains("data") => {
            NoInstance::Traps(Cause::MemoryBounds)
        }
        NormaliseError::Segment { .. } => NoInstance::Traps(Cause::TableBounds),
        error => NoInstance::Refused(reason::of_normalise(&error)),
    })?;
    let exports = exports(wasm, &module);
    for export in exports.values() {
        if let Export::Function(function) = export {
            // One that cannot be called from outside is found out when a
            // script calls it.
            let _ = module.add_invoker(*function);
        }
    }
    Ok(Prepared {
        module,
        exports,
        changes_tables: changes_tables(wasm),
    })
}

/// What a command's module came to.
pub(super) type PreparedModule<'f> = Result<Prepared<'f>, NoInstance>;

/// What the module exports, in the numbers of the normal form.
fn exports<'f>(wasm: &'f [u8], module: &Module<'_>) -> HashMap<&'f str, Export> {
    let mut exports = HashMap::new();
    for payload in Parser::new(0).parse_all(wasm).flatten() {
        let Payload::ExportSection(section) = payload else {
            continue;
        };
        for export in section.into_iter().flatten() {
            let what = match export.kind {
                // No import is left, so the indices are the file's.
                ExternalKind::Func => Export::Function(export.index),
                ExternalKind::Global => Export::Global(module.globals[export.index as usize]),
                _ => Export::Other,
            };
            exports.insert(export.name, what);
        }
    }
    exports
}

/// Modules from which this one imports what it could change.
pub(super) fn imports_state_of(wasm: &[u8]) -> Vec<String> {
    let mut names = Vec::new();
    for payload in Parser::new(0).parse_all(wasm).flatten() {
        let Payload::ImportSection(section) = payload else {
            continue;
        };
        for import in section.into_imports().flatten() {
            if !matches!(import.ty, TypeRef::Func(_)) {
                names.push(import.module.to_owned());
            }
        }
    }
    names
}

/// Whether any operator changes a table.
fn changes_tables(wasm: &[u8]) -> bool {
    let bodies = Parser::new(0)
        .parse_all(wasm)
        .flatten()
        .filter_map(|payload| match payload {
            Payload::CodeSectionEntry(body) => body.get_operators_reader().ok(),
            _ => None,
        });
    bodies.flatten().flatten().any(|operator| {
        matches!(
            operator,
            Operator::TableSet { .. }
                | Operator::TableGrow { .. }
                | Operator::TableFill { .. }
                | Operator::TableCopy { .. }
                | Operator::TableInit { .. }
        )
    })
}
