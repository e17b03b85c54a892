//! The scripts' own imports, made into definitions.
//!
//! Scripts import from a module `spectest` that the specification's interpreter
//! brings along: functions that print, four constants, a table and a memory.
//! Ashway links no modules, so each import becomes what it would have been
//! linked to: an empty function, a constant, a table, a memory. An index space
//! begins with the imports, and the definitions take their place at its
//! beginning: no index changes.
//!
//! Source: `interpreter/host/spectest.ml` of the WebAssembly specification.

use std::borrow::Cow;
use wasm_encoder::reencode::{Error as ReencodeError, Reencode, RoundtripReencoder, utils};
use wasm_encoder::{ConstExpr, Encode, Instruction};
use wasmparser::{BinaryReader, Import, Imports, Operator, Parser, Payload, TypeRef, ValType};

/// What [`define`] could not do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Undefined {
    /// An import from elsewhere, or of something that `spectest` has not.
    Linking,
    /// The module cannot be read.
    Malformed,
}

impl<E> From<ReencodeError<E>> for Undefined {
    fn from(_: ReencodeError<E>) -> Self {
        Self::Malformed
    }
}

impl From<wasmparser::Error> for Undefined {
    fn from(_: wasmparser::Error) -> Self {
        Self::Malformed
    }
}

/// The module with definitions for its imports from `spectest`.
///
/// # Errors
///
/// [`Undefined`]: it imports something else, or cannot be read.
pub(super) fn define(wasm: &[u8]) -> Result<Cow<'_, [u8]>, Undefined> {
    let definitions = Definitions::of(wasm)?;
    if definitions.is_empty() {
        return Ok(Cow::Borrowed(wasm));
    }
    let defined = definitions.put_before(wasm)?;
    // A constant expression may read an imported constant and no other.
    let mut module = wasm_encoder::Module::new();
    let mut constants = Constants(definitions.constants);
    constants.parse_core_module(&mut module, Parser::new(0), &defined)?;
    Ok(Cow::Owned(module.finish()))
}

/// Entries for the beginning of sections, encoded.
#[derive(Default)]
struct Definitions {
    functions: Entries,
    tables: Entries,
    memories: Entries,
    globals: Entries,
    bodies: Entries,
    /// The globals once more, as instructions.
    constants: Vec<Instruction<'static>>,
}

#[derive(Default)]
struct Entries {
    count: u32,
    bytes: Vec<u8>,
}

impl Entries {
    fn push(&mut self, entry: &impl Encode) {
        self.count += 1;
        entry.encode(&mut self.bytes);
    }
}

/// Bytes as they are.
struct Raw(Vec<u8>);

impl Encode for Raw {
    fn encode(&self, sink: &mut Vec<u8>) {
        sink.extend_from_slice(&self.0);
    }
}

/// Names of functions that print, which take arguments and return nothing.
const PRINT: &str = "print";

impl Definitions {
    fn of(wasm: &[u8]) -> Result<Self, Undefined> {
        let mut definitions = Self::default();
        for payload in Parser::new(0).parse_all(wasm) {
            match payload? {
                Payload::ImportSection(section) => {
                    for imports in section {
                        let Imports::Single(_, import) = imports? else {
                            return Err(Undefined::Linking);
                        };
                        definitions.add(&import)?;
                    }
                }
                Payload::End(_) => break,
                _ => {}
            }
        }
        Ok(definitions)
    }

    fn is_empty(&self) -> bool {
        let entries = [&self.functions, &self.tables, &self.memories, &self.globals];
        entries.iter().all(|entries| entries.count == 0)
    }

    fn add(&mut self, import: &Import<'_>) -> Result<(), Undefined> {
        if import.module != "spectest" {
            return Err(Undefined::Linking);
        }
        match (import.name, import.ty) {
            (name, TypeRef::Func(index)) if name.starts_with(PRINT) => {
                self.functions.push(&index);
                // Two bytes: no locals, `end`.
                self.bodies.push(&Raw(vec![2, 0, 0x0b]));
            }
            ("table", TypeRef::Table(_)) => {
                // `funcref`, a minimum of 10 and a maximum of 20.
                self.tables.push(&Raw(vec![0x70, 0x01, 10, 20]));
            }
            ("memory", TypeRef::Memory(ty)) if !ty.shared && !ty.memory64 => {
                self.memories.push(&Raw(vec![0x01, 1, 2]));
            }
            (name, TypeRef::Global(ty)) if !ty.mutable => {
                let constant = match (name, ty.content_type) {
                    ("global_i32", ValType::I32) => Instruction::I32Const(666),
                    ("global_i64", ValType::I64) => Instruction::I64Const(666),
                    ("global_f32", ValType::F32) => Instruction::F32Const(666.6f32.into()),
                    ("global_f64", ValType::F64) => Instruction::F64Const(666.6f64.into()),
                    _ => return Err(Undefined::Linking),
                };
                let ty = RoundtripReencoder.val_type(ty.content_type)?;
                let mut entry = Vec::new();
                ty.encode(&mut entry);
                entry.push(0);
                constant.encode(&mut entry);
                Instruction::End.encode(&mut entry);
                self.globals.push(&Raw(entry));
                self.constants.push(constant);
            }
            _ => return Err(Undefined::Linking),
        }
        Ok(())
    }

    /// The module without its import section and with these entries.
    fn put_before(&self, wasm: &[u8]) -> Result<Vec<u8>, Undefined> {
        let sections = sections(wasm)?;
        let mut out = wasm[..8].to_vec();
        for id in ORDER {
            let found = sections.iter().find(|(known, _)| *known == id);
            let old = found.map_or(&[0][..], |(_, content)| *content);
            let entries = match id {
                2 => continue,
                3 => &self.functions,
                4 => &self.tables,
                5 => &self.memories,
                6 => &self.globals,
                10 => &self.bodies,
                _ => &Entries::default(),
            };
            if found.is_none() && entries.count == 0 {
                continue;
            }
            if entries.count == 0 {
                section(&mut out, id, old);
                continue;
            }
            let mut reader = BinaryReader::new(old, 0);
            let mut content = Vec::new();
            (entries.count + reader.read_var_u32()?).encode(&mut content);
            content.extend_from_slice(&entries.bytes);
            content.extend_from_slice(&old[reader.original_position() as usize..]);
            section(&mut out, id, &content);
        }
        Ok(out)
    }
}

fn section(out: &mut Vec<u8>, id: u8, content: &[u8]) {
    out.push(id);
    (content.len() as u32).encode(out);
    out.extend_from_slice(content);
}

/// Section ids in the order in which sections stand in a module; 12 is the count
/// of data segments, 13 are tags.
const ORDER: [u8; 13] = [1, 2, 3, 4, 5, 13, 6, 7, 8, 9, 12, 10, 11];

/// Sections that are not custom, as id and content.
fn sections(wasm: &[u8]) -> Result<Vec<(u8, &[u8])>, Undefined> {
    let mut sections = Vec::new();
    for payload in Parser::new(0).parse_all(wasm) {
        let payload = payload?;
        if let Some((id, range)) = payload.as_section()
            && id != 0
        {
            sections.push((id, &wasm[range.start as usize..range.end as usize]));
        }
    }
    Ok(sections)
}

/// Writes a module anew with `global.get` of these first globals replaced.
struct Constants(Vec<Instruction<'static>>);

impl Reencode for Constants {
    type Error = std::convert::Infallible;

    fn const_expr(
        &mut self,
        expr: wasmparser::ConstExpr<'_>,
    ) -> Result<ConstExpr, ReencodeError<Self::Error>> {
        if let Ok(Operator::GlobalGet { global_index }) = expr.get_operators_reader().read()
            && let Some(constant) = self.0.get(global_index as usize)
        {
            let mut bytes = Vec::new();
            constant.encode(&mut bytes);
            return Ok(ConstExpr::raw(bytes));
        }
        utils::const_expr(self, expr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_become_definitions_and_indices_stay() {
        let wasm = wat::parse_str(
            r#"(module
                (import "spectest" "print_i32" (func $print (param i32)))
                (import "spectest" "global_i32" (global $base i32))
                (import "spectest" "table" (table 10 funcref))
                (global $own i32 (global.get $base))
                (func $f (export "f") (result i32)
                    (call $print (i32.const 1))
                    (global.get $own))
                (elem (i32.const 3) $f))"#,
        )
        .unwrap();
        let defined = define(&wasm).unwrap();
        let text = wasmprinter::print_bytes(&defined).unwrap();
        assert!(!text.contains("import"), "{text}");
        assert!(text.contains("(table (;0;) 10 20 funcref)"), "{text}");
        assert_eq!(text.matches("i32.const 666").count(), 2, "{text}");
        wasmparser::validate(&defined).unwrap();
    }

    #[test]
    fn other_imports_are_linking() {
        for import in [
            r#"(import "m" "f" (func))"#,
            r#"(import "spectest" "unknown" (global i32))"#,
            r#"(import "spectest" "global_i32" (global i64))"#,
        ] {
            let wasm = wat::parse_str(format!("(module {import})")).unwrap();
            assert_eq!(define(&wasm).err(), Some(Undefined::Linking), "{import}");
        }
    }

    #[test]
    fn a_module_without_imports_stays_as_it_is() {
        let wasm = wat::parse_str("(module (func))").unwrap();
        assert!(matches!(define(&wasm), Ok(Cow::Borrowed(_))));
    }
}
