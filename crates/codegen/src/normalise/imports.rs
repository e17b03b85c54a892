//! Imports: the host calls, by name and type.

use super::error::NormaliseError;
use super::ir::FileOffset;
use super::read::Reader;
use ashway_abi::host_call::{HostCall, MODULE, ValueType};
use wasmparser::{FuncType, Import, TypeRef, ValType};

impl<'a> Reader<'a, '_> {
    /// Looks the import up; its type is checked when types are known to be
    /// valid.
    pub(super) fn import(
        &mut self,
        import: Import<'a>,
        at: FileOffset,
    ) -> Result<(), NormaliseError> {
        if let TypeRef::Memory(_) = import.ty {
            return Err(NormaliseError::Memory {
                problem: "the memory is imported; a handler defines its own and exports it",
                at: Some(at),
            });
        }
        let call = HostCall::from_name(import.name).filter(|_| import.module == MODULE);
        let Some(call) = call else {
            return Err(NormaliseError::UnknownImport {
                module: import.module.into(),
                name: import.name.into(),
                at,
            });
        };
        self.imports.push(call);
        if !self.module.host_calls.contains(&call) {
            self.module.host_calls.push(call);
        }
        Ok(())
    }

    /// Compares the import's type with the host call's.
    pub(super) fn import_type(
        &self,
        import: &Import<'a>,
        at: FileOffset,
    ) -> Result<(), NormaliseError> {
        let call = HostCall::from_name(import.name).expect("looked up by `import`");
        let expected = host_call_type(call);
        let found = match import.ty {
            TypeRef::Func(index) => {
                let found = &self.types[index as usize];
                if *found == expected {
                    return Ok(());
                }
                signature(found)
            }
            TypeRef::Table(_) => "a table".into(),
            TypeRef::Global(_) => "a global".into(),
            TypeRef::Memory(_) => "a memory".into(),
            TypeRef::Tag(_) | TypeRef::FuncExact(_) => "something else".into(),
        };
        Err(NormaliseError::ImportType {
            name: import.name.into(),
            expected: signature(&expected),
            found,
            at,
        })
    }
}

fn host_call_type(call: HostCall) -> FuncType {
    let wasm = |ty: &ValueType| match ty {
        ValueType::I32 => ValType::I32,
        ValueType::I64 => ValType::I64,
    };
    let (params, result) = call.signature();
    FuncType::new(params.iter().map(wasm), result.iter().map(wasm))
}

/// Whether a function of this type can be bound to a path.
pub(super) fn is_handler(ty: &FuncType) -> bool {
    ty.params() == [ValType::I32, ValType::I32] && ty.results() == [ValType::I32]
}

/// A function type as the Wasm documents write it: `(i32, i64) -> i32`.
pub(super) fn signature(ty: &FuncType) -> String {
    let list = |types: &[ValType]| {
        let names: Vec<_> = types.iter().map(ToString::to_string).collect();
        names.join(", ")
    };
    let results = match ty.results() {
        [one] => one.to_string(),
        several => format!("({})", list(several)),
    };
    format!("({}) -> {results}", list(ty.params()))
}
