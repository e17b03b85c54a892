//! Random modules, all of one from one seed.
//!
//! Half of them are programs (`program.rs`), half nobody would write:
//! `wasm-smith` makes valid modules of the integer core; which of its features
//! a module may use is itself random (swarm testing: Groce et al. 2012).
//! Left alone, most of them would stop at their first access: an address that is
//! any 32-bit number lies outside a memory of a few pages. So constants are
//! made smaller afterwards, and a half of the modules is generated with checks
//! before whatever could trap.

use super::program::program;
use super::random::Random;
use anyhow::{Context, Result};
use arbitrary::Unstructured;
use ashway_abi::host_call::{HostCall, MODULE, ValueType};
use ashway_codegen::normalise::Profile;
use ashway_trial::MemoryChoice;
use std::fmt::Write;
use wasm_encoder::reencode::{Error as ReencodeError, Reencode, utils};
use wasm_encoder::{
    CodeSection, ExportKind, ExportSection, Function, FunctionSection, Instruction,
};
use wasm_smith::{Config, InstructionKind, InstructionKinds, MemoryOffsetChoices};
use wasmparser::{
    CodeSectionReader, FunctionBody, FunctionSectionReader, Operator, Parser, Payload,
};

/// A module and how it is to be run.
#[derive(Clone, Debug)]
pub struct Case {
    /// What everything here comes from.
    pub seed: u64,
    /// The module.
    pub wasm: Vec<u8>,
    /// Whether it is a handler, with messages, or a library of functions.
    pub profile: Profile,
    /// Exported functions that are called, at most.
    pub functions: usize,
    /// Fuel for each call.
    pub fuel: u64,
    /// What the kernel's and the interpreter's memory is.
    pub memory: MemoryChoice,
    /// Whether promoted code keeps its locals out of registers.
    pub locals_in_memory: bool,
}

/// Bytes that a module is made of; `wasm-smith` uses some hundred to some
/// thousand of them.
const DNA_BYTES: usize = 16 * 1024;

/// Makes the module of a seed.
///
/// # Errors
///
/// If `wasm-smith` made something that it should not: a bug of the generator.
pub fn generate(seed: u64) -> Result<Case> {
    let mut random = Random::new(seed);
    let profile = if random.once_in(4) {
        Profile::Handler
    } else {
        Profile::Library
    };
    let wasm = if random.once_in(2) {
        program(&mut random, profile == Profile::Handler)
    } else {
        smith(&mut random, profile)?
    };
    Ok(Case {
        seed,
        wasm,
        profile,
        functions: 6,
        fuel: random.pick(&[200, 2_000, 10_000, 10_000, 10_000, 100_000]),
        memory: random.pick(&[MemoryChoice::Arena, MemoryChoice::Array]),
        locals_in_memory: random.once_in(4),
    })
}

/// A module of `wasm-smith`'s, tamed.
fn smith(random: &mut Random, profile: Profile) -> Result<Vec<u8>> {
    let config = config(random, profile);
    let dna = random.bytes(DNA_BYTES);
    let module = wasm_smith::Module::new(config, &mut Unstructured::new(&dna));
    let wasm = module.context("wasm-smith made nothing")?.to_bytes();
    let mut tame = Tame {
        random: random.clone(),
        mask: random.pick(&[0x1f, 0xff, 0xfff, 0x3_ffff]),
        handler: Exported::find(&wasm).context("wasm-smith's module cannot be read")?,
    };
    let mut module = wasm_encoder::Module::new();
    tame.parse_core_module(&mut module, Parser::new(0), &wasm)
        .context("wasm-smith's module cannot be read")?;
    Ok(module.finish())
}

fn config(random: &mut Random, profile: Profile) -> Config {
    use InstructionKind as Kind;
    let handler = profile == Profile::Handler;
    let all = [
        Kind::NumericInt,
        Kind::Reference,
        Kind::Parametric,
        Kind::Variable,
        Kind::Table,
        Kind::MemoryInt,
        Kind::Control,
    ];
    let kinds: Vec<_> = all.into_iter().filter(|_| !random.once_in(10)).collect();
    let offsets = random.pick(&[(90, 9, 1), (100, 0, 0), (50, 25, 25)]);
    let pages = 1 + random.below(3);
    Config {
        available_imports: handler.then(imports),
        exports: handler.then(handler_exports),
        allowed_instructions: InstructionKinds::new(&kinds),
        // A start function has a lot of fuel.
        allow_start_export: random.once_in(32),
        disallow_traps: random.once_in(2),
        export_everything: !handler,
        threads_enabled: random.once_in(4),
        memory_offset_choices: MemoryOffsetChoices(offsets.0, offsets.1, offsets.2),
        min_funcs: 1 + random.below(3) as usize,
        max_funcs: 3 + random.below(6) as usize + if handler { 16 } else { 0 },
        max_imports: if handler {
            HostCall::message_accesses().count()
        } else {
            0
        },
        max_instructions: random.pick(&[20, 60, 60, 150, 150, 400, 400, 1_000]),
        min_types: 2,
        max_types: 2 + random.below(8) as usize,
        max_globals: random.below(6) as usize,
        // A handler's is among the exports that it must have.
        min_memories: u32::from(!handler),
        max_memories: usize::from(!handler),
        max_memory32_bytes: pages * 0x1_0000,
        memory_max_size_required: true,
        max_tables: random.below(3) as usize,
        min_tables: 0,
        max_table_elements: random.pick(&[4, 20, 100]),
        table_max_size_required: random.once_in(2),
        max_data_segments: random.below(4) as usize,
        max_element_segments: random.below(4) as usize,
        max_elements: 12,
        const_expr_fuel: 5,
        allow_floats: false,
        simd_enabled: false,
        relaxed_simd_enabled: false,
        saturating_float_to_int_enabled: false,
        exceptions_enabled: false,
        gc_enabled: false,
        compact_imports_enabled: false,
        memory64_enabled: false,
        tail_call_enabled: false,
        wide_arithmetic_enabled: false,
        extended_const_enabled: false,
        ..Config::default()
    }
}

/// A module that imports every access to the message: what else there is has
/// results that two tiers need not agree in.
fn imports() -> Vec<u8> {
    let mut text = String::from("(module");
    for call in HostCall::message_accesses() {
        let (params, result) = call.signature();
        let name = |ty: &ValueType| match ty {
            ValueType::I32 => "i32",
            ValueType::I64 => "i64",
        };
        let params: Vec<_> = params.iter().map(name).collect();
        let result = result.map_or_else(String::new, |ty| format!("(result {})", name(&ty)));
        let _ = write!(
            text,
            r#"(import "{MODULE}" "{}" (func (param {}) {result}))"#,
            call.name(),
            params.join(" "),
        );
    }
    wat::parse_str(text + ")").expect("host calls have names and types")
}

fn handler_exports() -> Vec<u8> {
    let text = r#"(module
        (memory (export "memory") 1 2)
        (func (export "on_rx") (param i32 i32) (result i32) unreachable))"#;
    wat::parse_str(text).expect("it is a module")
}

/// The function exported as `on_rx`.
#[derive(Clone, Copy)]
struct Exported {
    function: u32,
    type_index: u32,
    /// Functions of the module, imports included.
    functions: u32,
}

impl Exported {
    /// `None` for a library.
    fn find(wasm: &[u8]) -> wasmparser::Result<Option<Self>> {
        let mut imports = 0;
        let mut types = Vec::new();
        for payload in Parser::new(0).parse_all(wasm) {
            match payload? {
                // A generated handler imports functions only.
                Payload::ImportSection(section) => imports = section.into_imports().count(),
                Payload::FunctionSection(section) => {
                    types = section.into_iter().collect::<Result<_, _>>()?;
                }
                Payload::ExportSection(section) => {
                    for export in section {
                        let export = export?;
                        if export.name == HANDLER {
                            let own = export.index as usize - imports;
                            return Ok(Some(Self {
                                function: export.index,
                                type_index: types[own],
                                functions: (imports + types.len()) as u32,
                            }));
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(None)
    }
}

/// What every handler exports.
const HANDLER: &str = "on_rx";

/// Writes a module anew with constants that lead somewhere, and without the
/// operators that wait for another thread, which no tier has. Around a handler
/// it puts a function that makes a small number of its result: only a verdict
/// that sends the message on lets us see what became of the message.
struct Tame {
    random: Random,
    mask: u32,
    handler: Option<Exported>,
}

impl Tame {
    fn i32(&mut self, value: i32) -> i32 {
        match self.random.below(8) {
            0 => value,
            1 => self.random.number() as i32,
            _ => (value as u32 & self.mask) as i32,
        }
    }

    fn i64(&mut self, value: i64) -> i64 {
        match self.random.below(4) {
            0 => value,
            1 => self.random.number() as i64,
            _ => value & i64::from(self.mask),
        }
    }
}

impl Reencode for Tame {
    type Error = std::convert::Infallible;

    fn parse_function_section(
        &mut self,
        functions: &mut FunctionSection,
        section: FunctionSectionReader<'_>,
    ) -> Result<(), ReencodeError<Self::Error>> {
        utils::parse_function_section(self, functions, section)?;
        if let Some(handler) = self.handler {
            functions.function(handler.type_index);
        }
        Ok(())
    }

    fn parse_export(
        &mut self,
        exports: &mut ExportSection,
        export: wasmparser::Export<'_>,
    ) -> Result<(), ReencodeError<Self::Error>> {
        match self.handler {
            Some(handler) if export.name == HANDLER => {
                exports.export(HANDLER, ExportKind::Func, handler.functions);
                Ok(())
            }
            _ => utils::parse_export(self, exports, export),
        }
    }

    fn parse_code_section(
        &mut self,
        code: &mut CodeSection,
        section: CodeSectionReader<'_>,
    ) -> Result<(), ReencodeError<Self::Error>> {
        utils::parse_code_section(self, code, section)?;
        if let Some(handler) = self.handler {
            let mut around = Function::new([]);
            for instruction in [
                Instruction::LocalGet(0),
                Instruction::LocalGet(1),
                Instruction::Call(handler.function),
                Instruction::I32Const(7),
                Instruction::I32And,
                Instruction::End,
            ] {
                around.instruction(&instruction);
            }
            code.function(&around);
        }
        Ok(())
    }

    fn parse_function_body(
        &mut self,
        code: &mut CodeSection,
        body: FunctionBody<'_>,
    ) -> Result<(), ReencodeError<Self::Error>> {
        let mut function = self.new_function_with_parsed_locals(&body)?;
        let mut reader = body.get_operators_reader()?;
        while !reader.eof() {
            match reader.read()? {
                Operator::I32Const { value } => {
                    function.instruction(&Instruction::I32Const(self.i32(value)));
                }
                Operator::I64Const { value } => {
                    function.instruction(&Instruction::I64Const(self.i64(value)));
                }
                Operator::MemoryAtomicNotify { .. } => {
                    function.instruction(&Instruction::Drop);
                    function.instruction(&Instruction::Drop);
                    function.instruction(&Instruction::I32Const(0));
                }
                Operator::MemoryAtomicWait32 { .. } | Operator::MemoryAtomicWait64 { .. } => {
                    function.instruction(&Instruction::Drop);
                    function.instruction(&Instruction::Drop);
                    function.instruction(&Instruction::Drop);
                    function.instruction(&Instruction::I32Const(2));
                }
                operator => {
                    function.instruction(&self.instruction(operator)?);
                }
            }
        }
        code.function(&function);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_always_makes_the_same_valid_module() {
        for seed in 0..200 {
            let case = generate(seed).unwrap();
            assert_eq!(case.wasm, generate(seed).unwrap().wasm, "seed {seed}");
            let features = wasmparser::WasmFeatures::WASM2 | wasmparser::WasmFeatures::THREADS;
            wasmparser::Validator::new_with_features(features)
                .validate_all(&case.wasm)
                .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        }
    }

    #[test]
    fn handlers_access_their_messages() {
        let texts = (0..200).filter_map(|seed| {
            let case = generate(seed).unwrap();
            (case.profile == Profile::Handler)
                .then(|| wasmprinter::print_bytes(&case.wasm).unwrap())
        });
        let texts: Vec<_> = texts.collect();
        let using = texts.iter().filter(|text| text.contains("\"msg_")).count();
        assert!(using * 2 > texts.len(), "{using} of {}", texts.len());
    }
}
