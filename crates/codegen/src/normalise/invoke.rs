//! Invokers: any function as a handler, so that each tier can call it.
//!
//! An invoker takes the arguments from the message, 8 bytes each, little
//! endian, and puts the results there in the same way. An `i32` or `f32` takes
//! the low 4 bytes; of a result the upper 4 are 0. It is an ordinary function
//! of the normal form, so no tier knows anything about it.

use super::error::NormaliseError;
use super::ir::{FileOffset, Function, Module, Op, OpKind};
use ashway_abi::{HostCall, Verdict};
use wasmparser::{FuncType, Operator, ValType};

/// What stands before a function's index in the name of its invoker.
pub const INVOKE_PREFIX: &str = "_ashway_invoke_";

/// Bytes of an argument or result in the message.
pub const INVOKE_SLOT: usize = 8;

impl Module<'_> {
    /// Adds a handler that calls `function` with arguments from the message,
    /// and returns its name. A second call for the same function adds nothing.
    ///
    /// The message must have [`INVOKE_SLOT`] bytes for each parameter or each
    /// result, whichever are more. Nothing is charged for the handler itself.
    ///
    /// # Errors
    ///
    /// [`NormaliseError::Unsupported`] if a parameter or result does not fit a
    /// slot (`v128`).
    ///
    /// # Panics
    ///
    /// If there is no such function.
    pub fn add_invoker(&mut self, function: u32) -> Result<String, NormaliseError> {
        let name = format!("{INVOKE_PREFIX}{function}");
        if self.exports.iter().any(|(known, _)| *known == name) {
            return Ok(name);
        }
        let callee = &self.functions[function as usize];
        let at = callee.at;
        let ty = self.types[callee.type_index as usize].clone();
        let mut code = Vec::new();
        for (number, param) in ty.params().iter().enumerate() {
            load(&mut code, number, *param, at)?;
        }
        code.push(wasm(Operator::Call {
            function_index: function,
        }));
        // Results come off the stack last first; `len` and `channel` are
        // locals 0 and 1.
        let results = ty.results();
        for number in (0..results.len()).rev() {
            let local_index = 2 + number as u32;
            code.push(wasm(Operator::LocalSet { local_index }));
        }
        for (number, result) in results.iter().enumerate() {
            store(&mut code, number, *result, at)?;
        }
        code.push(constant(Verdict::Reply as usize));
        code.push(wasm(Operator::End));
        let index = self.functions.len() as u32;
        let type_index = self.handler_type();
        self.functions.push(Function {
            name: Some(name.clone()),
            type_index,
            locals: results.to_vec(),
            code: code.into_iter().map(|kind| Op { kind, at }).collect(),
            at,
        });
        self.exports.push((name.clone(), index));
        Ok(name)
    }

    /// Index of `(i32, i32) -> i32`, which is added if it is not there.
    fn handler_type(&mut self) -> u32 {
        let known = self.types.iter().position(super::imports::is_handler);
        let index = known.unwrap_or(self.types.len());
        if known.is_none() {
            let ty = FuncType::new([ValType::I32; 2], [ValType::I32]);
            self.types.push(ty);
            self.canonical.push(index as u32);
        }
        index as u32
    }
}

fn wasm(operator: Operator<'_>) -> OpKind<'_> {
    OpKind::Wasm(operator)
}

fn constant<'a>(value: usize) -> OpKind<'a> {
    let value = value as i32;
    wasm(Operator::I32Const { value })
}

fn load(
    code: &mut Vec<OpKind<'_>>,
    number: usize,
    ty: ValType,
    at: FileOffset,
) -> Result<(), NormaliseError> {
    code.push(constant(INVOKE_SLOT * number));
    code.push(OpKind::Host(match ty {
        ValType::I32 | ValType::F32 => HostCall::Load32Le,
        ValType::I64 | ValType::F64 => HostCall::Load64Le,
        ValType::V128 | ValType::Ref(_) => return no_slot(ty, at),
    }));
    match ty {
        ValType::F32 => code.push(wasm(Operator::F32ReinterpretI32)),
        ValType::F64 => code.push(wasm(Operator::F64ReinterpretI64)),
        _ => {}
    }
    Ok(())
}

fn store(
    code: &mut Vec<OpKind<'_>>,
    number: usize,
    ty: ValType,
    at: FileOffset,
) -> Result<(), NormaliseError> {
    code.push(constant(INVOKE_SLOT * number));
    code.push(wasm(Operator::LocalGet {
        local_index: 2 + number as u32,
    }));
    match ty {
        ValType::I64 => {}
        ValType::I32 => code.push(wasm(Operator::I64ExtendI32U)),
        ValType::F64 => code.push(wasm(Operator::I64ReinterpretF64)),
        ValType::F32 => {
            code.push(wasm(Operator::I32ReinterpretF32));
            code.push(wasm(Operator::I64ExtendI32U));
        }
        ValType::V128 | ValType::Ref(_) => return no_slot(ty, at),
    }
    code.push(OpKind::Host(HostCall::Store64Le));
    Ok(())
}

fn no_slot<T>(ty: ValType, at: FileOffset) -> Result<T, NormaliseError> {
    Err(NormaliseError::Unsupported {
        what: format!("invoking a function with a parameter or result of type {ty}"),
        at,
    })
}
