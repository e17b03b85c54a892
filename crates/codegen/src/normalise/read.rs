//! Reading a file: section by section, each checked before it is believed.

use super::body::{self, Body};
use super::error::NormaliseError;
use super::identity::CallTables;
use super::imports::{is_handler, signature};
use super::ir::{FileOffset, Function, Module};
use super::limits::{Limits, MOST_TYPED_TABLES};
use super::state::{self, Uses};
use super::{
    Lines, Profile, fuel, lines, parallel, pipes, recursion, references, segments, state_range,
};
use ashway_abi::HostCall;
use ashway_abi::memory::STATE_GLOBALS;
use std::collections::HashMap;
use wasmparser::{
    CustomSectionReader, FuncType, FuncValidatorAllocations, Imports, KnownCustom, Name,
    NameSectionReader, Parser, Payload, TypeSectionReader, ValType, ValidPayload, Validator,
    WasmFeatures,
};

/// What an author may use: WebAssembly 2.0, and the threads proposal's atomic
/// operators.
const FEATURES: WasmFeatures = WasmFeatures::WASM2.union(WasmFeatures::THREADS);

/// Reads, validates and rewrites an author's module.
///
/// Time and memory are bounded by the file's length and `limits`. Broken debug
/// information is not an error: the module then has no source lines.
///
/// # Errors
///
/// The first thing wrong with the file, with its place and a hint.
pub fn normalise<'a>(wasm: &'a [u8], limits: &Limits) -> Result<Module<'a>, NormaliseError> {
    normalise_as(wasm, limits, Profile::Handler)
}

/// As [`normalise`], of a file that need not be a handler.
///
/// # Errors
///
/// As [`normalise`].
pub fn normalise_as<'a>(
    wasm: &'a [u8],
    limits: &Limits,
    profile: Profile,
) -> Result<Module<'a>, NormaliseError> {
    within("bytes of file", wasm.len(), limits.file_bytes)?;
    let mut reader = Reader {
        limits,
        profile,
        module: Module {
            state_bytes: ashway_abi::memory::STATE_BYTES,
            ..Module::default()
        },
        types: Vec::new(),
        imports: Vec::new(),
        function_types: Vec::new(),
        global_types: Vec::new(),
        table_maxima: Vec::new(),
        elements: Vec::new(),
        data: Vec::new(),
        bodies: Vec::new(),
        operators: 0,
        uses: Uses::default(),
        memory: None,
        memory_exported: false,
        state_globals: 0,
        names: Vec::new(),
        pipes: None,
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
    pub(super) profile: Profile,
    pub(super) module: Module<'a>,
    /// The function types as the author wrote them, references and all.
    pub(super) types: Vec<FuncType>,
    /// The host calls that stand at the start of the function index space.
    pub(super) imports: Vec<HostCall>,
    /// Types of the functions that follow them.
    pub(super) function_types: Vec<u32>,
    /// Types of globals as the author wrote them.
    pub(super) global_types: Vec<ValType>,
    /// Declared maxima of tables.
    pub(super) table_maxima: Vec<Option<u64>>,
    /// Numbers in passive element segments; nothing for other segments.
    pub(super) elements: Vec<Vec<u32>>,
    /// Bytes of passive data segments; nothing for other segments.
    pub(super) data: Vec<&'a [u8]>,
    /// Validated bodies.
    bodies: Vec<Body<'a>>,
    /// Operators in them.
    operators: usize,
    /// What they do with tables and segments.
    uses: Uses,
    pub(super) memory: Option<FileOffset>,
    pub(super) memory_exported: bool,
    /// How many globals are mutable.
    pub(super) state_globals: usize,
    /// From the `name` section, by function index, imports included.
    names: Vec<(u32, String)>,
    /// The section of that name.
    pub(super) pipes: Option<pipes::Text<'a>>,
    dwarf: lines::Sections<'a>,
}

impl<'a> Reader<'a, '_> {
    fn read(&mut self, wasm: &'a [u8]) -> Result<(), NormaliseError> {
        let mut validator = Validator::new_with_features(FEATURES);
        let mut allocations = FuncValidatorAllocations::default();
        let mut parser = Parser::new(0);
        // It refuses what only later proposals write.
        parser.set_features(FEATURES);
        for payload in parser.parse_all(wasm) {
            let payload = payload?;
            self.before_validation(&payload)?;
            match validator.payload(&payload)? {
                ValidPayload::Func(function, body) => {
                    let mut validator = function.into_validator(allocations);
                    let body = body::check(
                        body,
                        &mut validator,
                        self.limits,
                        &mut self.operators,
                        &mut self.uses,
                    )?;
                    allocations = validator.into_allocations();
                    self.bodies.push(body);
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
                within("function types", section.count() as usize, limits.types)?;
                let mut values = 0;
                // What is no function type is the validator's to name.
                for ty in section.clone().into_iter_err_on_gc_types().flatten() {
                    values += ty.params().len() + ty.results().len();
                    within(
                        "parameters and results of function types",
                        values,
                        limits.type_values,
                    )?;
                }
                Ok(())
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
            Payload::ExportSection(section) => {
                within("exports", section.count() as usize, limits.exports)
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
            Payload::TypeSection(section) => self.types(section)?,
            Payload::ImportSection(section) => {
                for import in section.into_imports_with_offsets() {
                    let (at, import) = import?;
                    self.import_type(&import, at as u32)?;
                }
            }
            Payload::FunctionSection(section) => {
                self.function_types = section.into_iter().collect::<Result<_, _>>()?;
            }
            Payload::TableSection(section) => segments::tables(self, section)?,
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
            Payload::DataSection(section) => segments::data(self, section)?,
            Payload::CustomSection(section) => self.custom(&section)?,
            _ => {}
        }
        Ok(())
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
        if section.name() == ashway_abi::STATE_SECTION {
            self.module.state_range = Some(state_range::read(section)?);
        }
        if section.name() == ashway_abi::PIPES_SECTION {
            self.pipes = Some(pipes::text(section)?);
        }
        if section.name() == ashway_abi::GROWS_SECTION {
            self.module.grows = grows(section)?;
        }
        if section.name() == parallel::TARGET_FEATURES {
            // What is not of this form says nothing.
            self.module.threads.built |= parallel::has_atomics(section).unwrap_or(false);
        }
        if let KnownCustom::Name(names) = section.as_known() {
            // Names are for people; broken ones are no reason to refuse.
            let most = [self.limits.functions, self.limits.globals].map(|most| most as usize);
            let (functions, globals) = names_of(names, most).unwrap_or_default();
            self.names = functions;
            self.module.threads.globals.extend(globals);
        }
        self.dwarf.add(section.name(), section.data());
        Ok(())
    }

    /// What each type is as numbers, and which are the same to the author.
    fn types(&mut self, section: TypeSectionReader<'a>) -> Result<(), NormaliseError> {
        let mut first = HashMap::new();
        for (ty, index) in section.into_iter_err_on_gc_types().zip(0..) {
            let ty = ty?;
            self.module.types.push(references::function_type(&ty));
            let canonical = *first.entry(ty.clone()).or_insert(index);
            self.module.canonical.push(canonical);
            self.types.push(ty);
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Module<'a>, NormaliseError> {
        let segments = state::place(
            &mut self.module,
            &self.uses,
            &self.table_maxima,
            &self.data,
            &self.elements,
            STATE_GLOBALS + self.state_globals * 8,
            self.limits,
        )?;
        let mut heights = Vec::with_capacity(self.bodies.len());
        let mut operations = 0;
        let bodies = std::mem::take(&mut self.bodies);
        self.lists(&bodies, &segments)?;
        for (body, type_index) in bodies.iter().zip(0..) {
            let type_index = self.function_types[type_index];
            let lowered = body::rewrite(&self, &segments, body, type_index)?;
            operations += lowered.function.code.len();
            within(body::OPERATIONS, operations, self.limits.operations())?;
            self.module.functions.push(lowered.function);
            self.module.referenced.extend(lowered.referenced);
            heights.push(lowered.height);
        }
        self.module.referenced.sort_unstable();
        self.module.referenced.dedup();
        if self.profile == Profile::Handler {
            self.check_handler()?;
        }
        if let Some(state_range) = self.module.state_range {
            state_range.check(self.module.initial_pages)?;
        }
        let imports = self.imports.len() as u32;
        for (index, name) in self.names {
            let own = index.checked_sub(imports);
            if let Some(f) = own.and_then(|i| self.module.functions.get_mut(i as usize)) {
                f.name = Some(name);
            }
        }
        self.module.lines = Lines::read(&self.dwarf);
        recursion::mark(&mut self.module, &heights);
        fuel::charge(&mut self.module);
        within(
            "types of indirect calls that differ only in kinds of references",
            CallTables::new(&self.module).typed(),
            MOST_TYPED_TABLES as u64,
        )?;
        Ok(self.module)
    }

    /// What [`Profile::Handler`] asks for.
    fn check_handler(&self) -> Result<(), NormaliseError> {
        if !self.memory_exported {
            return Err(NormaliseError::Memory {
                problem: "the module does not define a memory and export it as `memory`",
                at: self.memory,
            });
        }
        let module = &self.module;
        let handler = module.exports.iter().find(|(name, _)| name == HANDLER);
        let Some((name, index)) = handler else {
            return Err(NormaliseError::NoHandler { name: HANDLER });
        };
        let function: &Function<'_> = &module.functions[*index as usize];
        let found = &self.types[function.type_index as usize];
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

pub(super) fn unsupported<T>(what: impl Into<String>, at: u64) -> Result<T, NormaliseError> {
    Err(NormaliseError::Unsupported {
        what: what.into(),
        at: at as u32,
    })
}

fn version(section: &CustomSectionReader<'_>) -> Result<(), NormaliseError> {
    let at = section.data_offset() as u32;
    let found = number(section)?;
    if found != ashway_abi::VERSION {
        return Err(NormaliseError::Version { at, found });
    }
    Ok(())
}

/// By how many bytes the handler makes a message longer at most.
fn grows(section: &CustomSectionReader<'_>) -> Result<u32, NormaliseError> {
    let (found, most) = (number(section)?, ashway_abi::resize::MOST);
    if found > most {
        return Err(NormaliseError::Invalid {
            at: section.data_offset() as u32,
            message: format!(
                "section `{}` says that messages grow by {found} bytes, at most {most} are allowed",
                section.name()
            ),
        });
    }
    Ok(found)
}

/// What a section of one number says.
fn number(section: &CustomSectionReader<'_>) -> Result<u32, NormaliseError> {
    let Ok(bytes) = <[u8; 4]>::try_from(section.data()) else {
        return Err(NormaliseError::Invalid {
            at: section.data_offset() as u32,
            message: format!(
                "section `{}` has {} bytes, not 4 (it may stand in one of the C files only)",
                section.name(),
                section.data().len()
            ),
        });
    };
    Ok(u32::from_le_bytes(bytes))
}

/// Names by index.
type Names = Vec<(u32, String)>;

/// Those of functions and of globals, at most so many of each: a name takes two bytes in a hostile
/// file and more here.
fn names_of(
    names: NameSectionReader<'_>,
    [functions, globals]: [usize; 2],
) -> Result<(Names, Names), wasmparser::Error> {
    let mut found = (Vec::new(), Vec::new());
    for subsection in names {
        let (map, found, most) = match subsection? {
            Name::Function(map) => (map, &mut found.0, functions),
            Name::Global(map) => (map, &mut found.1, globals),
            _ => continue,
        };
        for naming in map.into_iter().take(most - found.len()) {
            let naming = naming?;
            found.push((naming.index, naming.name.to_owned()));
        }
    }
    Ok(found)
}
