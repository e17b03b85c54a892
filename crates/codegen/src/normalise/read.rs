//! Reading a file: section by section, each checked before it is believed.

use super::error::{MEMORY_PAGES, NormaliseError};
use super::imports::{is_handler, signature};
use super::ir::{Constant, FileOffset, Function, Global, Module};
use super::limits::{Limits, MOST_STATE_GLOBALS};
use super::{Lines, body, fuel, lines, segments};
use ashway_abi::HostCall;
use ashway_abi::memory::STATE_GLOBALS;
use wasmparser::{
    ConstExpr, CustomSectionReader, ExternalKind, FuncValidatorAllocations, Imports, KnownCustom,
    MemorySectionReader, Name, NameSectionReader, Operator, Parser, Payload, RefType, ValType,
    ValidPayload, Validator, WasmFeatures,
};

/// Reads, validates and rewrites an author's module.
///
/// Time and memory are bounded by the file's length and `limits`. Broken debug
/// information is not an error: the module then has no source lines.
///
/// # Errors
///
/// The first thing wrong with the file, with its place and a hint.
pub fn normalise<'a>(wasm: &'a [u8], limits: &Limits) -> Result<Module<'a>, NormaliseError> {
    within("bytes of file", wasm.len(), limits.file_bytes)?;
    let mut reader = Reader {
        limits,
        module: Module::default(),
        imports: Vec::new(),
        function_types: Vec::new(),
        memory: None,
        memory_exported: false,
        state_globals: 0,
        names: Vec::new(),
        dwarf: lines::Sections::default(),
    };
    reader.read(wasm)?;
    reader.finish()
}

/// Refuses `found` above `most`.
pub(super) fn within(
    what: &'static str,
    found: usize,
    most: impl TryInto<u64>,
) -> Result<(), NormaliseError> {
    let found = found as u64;
    let most = most.try_into().unwrap_or(u64::MAX);
    if found > most {
        return Err(NormaliseError::TooLarge { what, found, most });
    }
    Ok(())
}

/// What has been read so far.
pub(super) struct Reader<'a, 'l> {
    pub(super) limits: &'l Limits,
    pub(super) module: Module<'a>,
    /// The host calls that stand at the start of the function index space.
    pub(super) imports: Vec<HostCall>,
    /// Types of the functions that follow them.
    pub(super) function_types: Vec<u32>,
    memory: Option<FileOffset>,
    memory_exported: bool,
    /// How many globals are mutable.
    state_globals: usize,
    /// From the `name` section, by function index, imports included.
    names: Vec<(u32, String)>,
    dwarf: lines::Sections<'a>,
}

impl<'a> Reader<'a, '_> {
    fn read(&mut self, wasm: &'a [u8]) -> Result<(), NormaliseError> {
        let mut validator = Validator::new_with_features(WasmFeatures::WASM2);
        let mut allocations = FuncValidatorAllocations::default();
        for payload in Parser::new(0).parse_all(wasm) {
            let payload = payload?;
            self.before_validation(&payload)?;
            match validator.payload(&payload)? {
                ValidPayload::Func(function, body) => {
                    body::check_size(&body, self.limits)?;
                    let mut validator = function.into_validator(allocations);
                    validator.validate(&body)?;
                    allocations = validator.into_allocations();
                    let type_index = self.function_types[self.module.functions.len()];
                    let function = body::rewrite(self, &body, type_index)?;
                    self.module.functions.push(function);
                }
                ValidPayload::Parser(_) => {
                    return Err(NormaliseError::Invalid {
                        at: 0,
                        message: "a component, not a core module".into(),
                    });
                }
                ValidPayload::Ok | ValidPayload::End(_) => self.after_validation(payload)?,
            }
        }
        Ok(())
    }

    /// Sizes, so that the validator allocates nothing that is over a limit, and
    /// what deserves better words than the validator's.
    fn before_validation(&mut self, payload: &Payload<'a>) -> Result<(), NormaliseError> {
        let limits = self.limits;
        match payload {
            Payload::TypeSection(section) => {
                within("function types", section.count() as usize, limits.types)
            }
            Payload::ImportSection(section) => {
                within("imports", section.count() as usize, limits.functions)?;
                for import in section.clone() {
                    match import? {
                        Imports::Single(at, import) => self.import(import, at as u32)?,
                        // The compact encodings are a later proposal.
                        Imports::Compact1 { items, .. } => {
                            return unsupported("a compact import group", items.range().start);
                        }
                        Imports::Compact2 { names, .. } => {
                            return unsupported("a compact import group", names.range().start);
                        }
                    }
                }
                Ok(())
            }
            Payload::FunctionSection(section) => {
                let functions = section.count() as usize + self.imports.len();
                within("functions", functions, limits.functions)
            }
            Payload::TableSection(section) => {
                within("tables", section.count() as usize, limits.tables)?;
                segments::check_tables(section, limits)
            }
            Payload::MemorySection(section) => self.memory(section),
            Payload::GlobalSection(section) => {
                within("globals", section.count() as usize, limits.globals)
            }
            Payload::ElementSection(section) => within(
                "element segments",
                section.count() as usize,
                limits.segments,
            ),
            Payload::DataSection(section) => {
                within("data segments", section.count() as usize, limits.segments)
            }
            Payload::DataCountSection { count, .. } => {
                within("data segments", *count as usize, limits.segments)
            }
            _ => Ok(()),
        }
    }

    fn after_validation(&mut self, payload: Payload<'a>) -> Result<(), NormaliseError> {
        match payload {
            Payload::TypeSection(section) => {
                for ty in section.into_iter_err_on_gc_types() {
                    self.module.types.push(ty?);
                }
            }
            Payload::ImportSection(section) => {
                for import in section.into_imports_with_offsets() {
                    let (at, import) = import?;
                    self.import_type(&import, at as u32)?;
                }
            }
            Payload::FunctionSection(section) => {
                self.function_types = section.into_iter().collect::<Result<_, _>>()?;
            }
            Payload::TableSection(section) => segments::tables(&mut self.module, section)?,
            Payload::GlobalSection(section) => {
                for global in section.into_iter_with_offsets() {
                    let (at, global) = global?;
                    let global = self.global(&global, at as u32)?;
                    self.module.globals.push(global);
                }
            }
            Payload::ExportSection(section) => {
                for export in section.into_iter_with_offsets() {
                    let (at, export) = export?;
                    self.export(export, at as u32)?;
                }
            }
            Payload::StartSection { func, range } => {
                self.module.start = Some(self.own_function(func, range.start as u32)?);
            }
            Payload::ElementSection(section) => segments::elements(self, section)?,
            Payload::CodeSectionStart {
                unchecked_range, ..
            } => {
                self.dwarf.code_start = unchecked_range.start as u32;
            }
            Payload::DataSection(section) => segments::data(&mut self.module, section)?,
            Payload::CustomSection(section) => self.custom(&section)?,
            _ => {}
        }
        Ok(())
    }

    fn memory(&mut self, section: &MemorySectionReader<'a>) -> Result<(), NormaliseError> {
        for memory in section.clone().into_iter_with_offsets() {
            let (at, memory) = memory?;
            let at = at as u32;
            let Some(maximum) = memory.maximum else {
                let problem = "the memory has no maximum";
                return Err(NormaliseError::Memory {
                    problem,
                    at: Some(at),
                });
            };
            within(MEMORY_PAGES, maximum as usize, self.limits.memory_pages)?;
            // More than one memory, or an initial size above the maximum, is
            // for the validator to refuse.
            self.module.initial_pages = memory.initial.min(maximum) as u32;
            self.module.maximum_pages = maximum as u32;
            self.memory = Some(at);
        }
        Ok(())
    }

    fn global(
        &mut self,
        global: &wasmparser::Global<'a>,
        at: FileOffset,
    ) -> Result<Global, NormaliseError> {
        let number = self.module.globals.len();
        let ty = global.ty.content_type;
        let describable = match ty {
            ValType::I32 | ValType::I64 => true,
            ValType::F32 | ValType::F64 => !global.ty.mutable,
            ValType::V128 | ValType::Ref(_) => false,
        };
        if !describable {
            let kind = if global.ty.mutable {
                "mutable"
            } else {
                "immutable"
            };
            return unsupported(
                format!("{kind} global {number} of type {ty}"),
                u64::from(at),
            );
        }
        let bits = constant(&global.init_expr)?;
        if !global.ty.mutable {
            return Ok(Global::Constant(Constant { ty, bits }));
        }
        let before = self.state_globals;
        self.state_globals += 1;
        within("mutable globals", self.state_globals, MOST_STATE_GLOBALS)?;
        Ok(Global::State {
            offset: (STATE_GLOBALS + before * 8) as u32,
            ty,
            initial: bits,
        })
    }

    fn export(
        &mut self,
        export: wasmparser::Export<'a>,
        at: FileOffset,
    ) -> Result<(), NormaliseError> {
        match export.kind {
            ExternalKind::Func if is_reserved(export.name) => unsupported(
                format!("exported function `{}`: the name is taken", export.name),
                u64::from(at),
            ),
            ExternalKind::Func => {
                let function = self.own_function(export.index, at)?;
                self.module.exports.push((export.name.into(), function));
                Ok(())
            }
            ExternalKind::Memory => {
                self.memory_exported |= export.name == "memory";
                Ok(())
            }
            ExternalKind::Global => {
                if let Global::Constant(Constant {
                    ty: ValType::I32,
                    bits,
                }) = self.module.globals[export.index as usize]
                    && is_identifier(export.name)
                {
                    self.module.symbols.push((export.name.into(), bits as u32));
                }
                Ok(())
            }
            ExternalKind::Table | ExternalKind::Tag | ExternalKind::FuncExact => Ok(()),
        }
    }

    /// The index in the normal form of a function that is not an import.
    pub(super) fn own_function(&self, index: u32, at: FileOffset) -> Result<u32, NormaliseError> {
        match self.imports.get(index as usize) {
            None => Ok(index - self.imports.len() as u32),
            Some(call) => unsupported(
                format!(
                    "`{}` is used other than by calling it directly",
                    call.name()
                ),
                u64::from(at),
            ),
        }
    }

    fn custom(&mut self, section: &CustomSectionReader<'a>) -> Result<(), NormaliseError> {
        if section.name() == ashway_abi::VERSION_SECTION {
            return version(section);
        }
        if let KnownCustom::Name(names) = section.as_known() {
            // Names are for people; broken ones are no reason to refuse.
            self.names = function_names(names).unwrap_or_default();
        }
        self.dwarf.add(section.name(), section.data());
        Ok(())
    }

    fn finish(mut self) -> Result<Module<'a>, NormaliseError> {
        if !self.memory_exported {
            return Err(NormaliseError::Memory {
                problem: "the module does not define a memory and export it as `memory`",
                at: self.memory,
            });
        }
        self.check_handler()?;
        let imports = self.imports.len() as u32;
        for (index, name) in self.names {
            let own = index.checked_sub(imports);
            if let Some(f) = own.and_then(|i| self.module.functions.get_mut(i as usize)) {
                f.name = Some(name);
            }
        }
        self.module.lines = Lines::read(&self.dwarf);
        fuel::charge(&mut self.module);
        Ok(self.module)
    }

    fn check_handler(&self) -> Result<(), NormaliseError> {
        let module = &self.module;
        let handler = module.exports.iter().find(|(name, _)| name == HANDLER);
        let Some((name, index)) = handler else {
            return Err(NormaliseError::NoHandler { name: HANDLER });
        };
        let function: &Function<'_> = &module.functions[*index as usize];
        let found = &module.types[function.type_index as usize];
        if is_handler(found) {
            return Ok(());
        }
        Err(NormaliseError::HandlerType {
            name: name.clone(),
            found: signature(found),
            at: function.at,
        })
    }
}

/// The handler that every module has.
const HANDLER: &str = "on_rx";

/// Whether [`encode`](super::encode) exports something of this name by itself.
fn is_reserved(name: &str) -> bool {
    matches!(name, "message" | "state" | "fuel" | "message_len" | "dirty")
        || name.starts_with("_ashway_")
}

pub(super) fn unsupported<T>(what: impl Into<String>, at: u64) -> Result<T, NormaliseError> {
    Err(NormaliseError::Unsupported {
        what: what.into(),
        at: at as u32,
    })
}

/// The bits of a constant expression. WebAssembly 2.0 lets it name imported
/// globals only, and there are none.
pub(super) fn constant(expr: &ConstExpr<'_>) -> Result<u64, NormaliseError> {
    let (operator, at) = expr.get_operators_reader().read_with_offset()?;
    match operator {
        Operator::I32Const { value } => Ok(u64::from(value as u32)),
        Operator::I64Const { value } => Ok(value as u64),
        Operator::F32Const { value } => Ok(u64::from(value.bits())),
        Operator::F64Const { value } => Ok(value.bits()),
        _ => unsupported(format!("constant expression {operator:?}"), at),
    }
}

fn version(section: &CustomSectionReader<'_>) -> Result<(), NormaliseError> {
    let at = section.data_offset() as u32;
    let Ok(bytes) = <[u8; 4]>::try_from(section.data()) else {
        return Err(NormaliseError::Invalid {
            at,
            message: format!(
                "section `{}` has {} bytes, not 4 (it may stand in one of the C files only)",
                section.name(),
                section.data().len()
            ),
        });
    };
    let found = u32::from_le_bytes(bytes);
    if found != ashway_abi::VERSION {
        return Err(NormaliseError::Version { at, found });
    }
    Ok(())
}

fn function_names(names: NameSectionReader<'_>) -> Result<Vec<(u32, String)>, wasmparser::Error> {
    let mut found = Vec::new();
    for subsection in names {
        if let Name::Function(map) = subsection? {
            for naming in map {
                let naming = naming?;
                found.push((naming.index, naming.name.to_owned()));
            }
        }
    }
    Ok(found)
}

/// Whether a table or segment holds functions, which is all that we run.
pub(super) fn is_function(ty: RefType) -> bool {
    ty == RefType::FUNCREF
}

/// Whether a name can be a C variable's, of reasonable length. Others are not
/// shared: the names go to applications and terminals.
fn is_identifier(name: &str) -> bool {
    name.len() <= 64
        && name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
