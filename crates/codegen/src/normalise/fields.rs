//! The small fields of a file: its memory, its globals, its exports.

use super::Profile;
use super::error::{MEMORY_PAGES, NormaliseError};
use super::ir::{Constant, FileOffset, Global};
use super::limits::MOST_STATE_GLOBALS;
use super::parallel::STACK_POINTER;
use super::read::{Reader, unsupported, within};
use super::references::{as_number, of_function};
use ashway_abi::memory::STATE_GLOBALS;
use wasmparser::{ConstExpr, Export, ExternalKind, MemorySectionReader, Operator, ValType};

impl<'a> Reader<'a, '_> {
    pub(super) fn memory(
        &mut self,
        section: &MemorySectionReader<'a>,
    ) -> Result<(), NormaliseError> {
        for memory in section.clone().into_iter_with_offsets() {
            let (at, memory) = memory?;
            if self.memory.is_some() {
                return unsupported("more than one memory", at);
            }
            let at = at as u32;
            let quota = u64::from(self.limits.memory_pages);
            let maximum = match (memory.maximum, self.profile) {
                (Some(maximum), Profile::Handler) => maximum,
                (None, Profile::Handler) => {
                    return Err(NormaliseError::Memory {
                        problem: "the memory has no maximum",
                        at: Some(at),
                    });
                }
                (maximum, Profile::Library) => {
                    let least = memory.initial.max(quota);
                    maximum.map_or(least, |maximum| maximum.min(least))
                }
            };
            within(MEMORY_PAGES, maximum as usize, quota)?;
            // An initial size above the maximum is for the validator to refuse.
            self.module.initial_pages = memory.initial.min(maximum) as u32;
            self.module.maximum_pages = maximum as u32;
            self.module.threads.built |= memory.shared;
            self.memory = Some(at);
        }
        Ok(())
    }

    pub(super) fn global(
        &mut self,
        global: &wasmparser::Global<'a>,
        at: FileOffset,
    ) -> Result<Global, NormaliseError> {
        let number = self.module.globals.len();
        let ty = global.ty.content_type;
        if ty == ValType::V128 {
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
        let bits = self.constant(&global.init_expr)?;
        self.global_types.push(ty);
        let ty = as_number(ty);
        if !global.ty.mutable {
            return Ok(Global::Constant(Constant { ty, bits }));
        }
        // The state region holds integers; a float is there by its bits.
        let ty = match ty {
            ValType::F32 => ValType::I32,
            ValType::F64 => ValType::I64,
            other => other,
        };
        let before = self.state_globals;
        self.state_globals += 1;
        within("mutable globals", self.state_globals, MOST_STATE_GLOBALS)?;
        Ok(Global::State {
            offset: (STATE_GLOBALS + before * 8) as u32,
            ty,
            initial: bits,
        })
    }

    pub(super) fn export(
        &mut self,
        export: Export<'a>,
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
                let index = export.index as usize;
                if self.global_types[index] == ValType::I32
                    && let Global::Constant(Constant { bits, .. }) = self.module.globals[index]
                    && is_identifier(export.name)
                {
                    self.module.symbols.push((export.name.into(), bits as u32));
                }
                if export.name == STACK_POINTER {
                    let name = (export.index, export.name.into());
                    self.module.threads.globals.push(name);
                }
                Ok(())
            }
            ExternalKind::Table | ExternalKind::Tag | ExternalKind::FuncExact => Ok(()),
        }
    }

    /// The bits of a constant expression. WebAssembly 2.0 lets it name imported
    /// globals only, and there are none.
    pub(super) fn constant(&mut self, expr: &ConstExpr<'_>) -> Result<u64, NormaliseError> {
        let (operator, at) = expr.get_operators_reader().read_with_offset()?;
        match operator {
            Operator::I32Const { value } => Ok(u64::from(value as u32)),
            Operator::I64Const { value } => Ok(value as u64),
            Operator::F32Const { value } => Ok(u64::from(value.bits())),
            Operator::F64Const { value } => Ok(value.bits()),
            Operator::RefNull { .. } => Ok(0),
            Operator::RefFunc { function_index } => {
                let index = self.own_function(function_index, at as u32)?;
                self.module.referenced.push(index);
                Ok(u64::from(of_function(index)))
            }
            _ => unsupported(format!("constant expression {operator:?}"), at),
        }
    }
}

/// What stands before the names of our own exports.
const RESERVED_PREFIX: &str = "_ashway_";

/// Whether [`encode`](super::encode) may export something of this name.
fn is_reserved(name: &str) -> bool {
    name.starts_with(RESERVED_PREFIX)
}

/// Whether a name can be a C variable's, of reasonable length. Others are not
/// shared: the names go to applications and terminals.
fn is_identifier(name: &str) -> bool {
    name.len() <= 64
        && name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
