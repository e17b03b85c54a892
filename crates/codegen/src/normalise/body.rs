//! Rewriting one function's body into [`Op`]s.
//!
//! The body has been validated. Charges are put in here with cost 0; what they
//! take is known only when all bodies are ([`fuel`](super::fuel)).

use super::error::NormaliseError;
use super::ir::{Function, Global, Op, OpKind};
use super::limits::Limits;
use super::read::{Reader, within};
use ashway_abi::HostCall;
use wasmparser::{FunctionBody, Operator};

/// Counts the locals without making them: a file of 20 bytes can declare 2^32.
pub(super) fn check_size(body: &FunctionBody<'_>, limits: &Limits) -> Result<(), NormaliseError> {
    let mut total = 0_u64;
    for group in body.get_locals_reader()? {
        let (count, _) = group?;
        total += u64::from(count);
        within("locals in a function", total as usize, limits.locals)?;
    }
    Ok(())
}

/// The function in normal form, charges still empty.
pub(super) fn rewrite<'a>(
    reader: &mut Reader<'a, '_>,
    body: &FunctionBody<'a>,
    type_index: u32,
) -> Result<Function<'a>, NormaliseError> {
    let mut locals = Vec::new();
    for group in body.get_locals_reader()? {
        let (count, ty) = group?;
        locals.extend(std::iter::repeat_n(ty, count as usize));
    }
    let mut code = Vec::new();
    let mut operators = body.get_operators_reader()?;
    while !operators.eof() {
        let (operator, at) = operators.read_with_offset()?;
        operator_into(reader, &mut code, operator, at as u32)?;
    }
    Ok(Function {
        name: None,
        type_index,
        locals,
        code,
        at: body.range().start as u32,
    })
}

fn operator_into<'a>(
    reader: &mut Reader<'a, '_>,
    code: &mut Vec<Op<'a>>,
    operator: Operator<'a>,
    at: u32,
) -> Result<(), NormaliseError> {
    let mut push = |kind| code.push(Op { kind, at });
    match operator {
        Operator::Call { function_index } => match reader.imports.get(function_index as usize) {
            Some(&call) => {
                if matches!(call, HostCall::Read | HostCall::Write) {
                    push(OpKind::ChargeBulk);
                }
                push(OpKind::Message(call));
            }
            None => push(OpKind::Wasm(Operator::Call {
                function_index: function_index - reader.imports.len() as u32,
            })),
        },
        Operator::RefFunc { function_index } => push(OpKind::Wasm(Operator::RefFunc {
            function_index: reader.own_function(function_index, at)?,
        })),
        Operator::GlobalGet { global_index } => push(match state(reader, global_index) {
            Some((offset, ty)) => OpKind::StateGet { offset, ty },
            None => OpKind::Wasm(operator),
        }),
        Operator::GlobalSet { global_index } => {
            let (offset, ty) =
                state(reader, global_index).expect("validation lets only mutable globals be set");
            push(OpKind::StateSet { offset, ty });
        }
        Operator::Loop { .. } => {
            push(OpKind::Wasm(operator));
            push(OpKind::Charge { cost: 0 });
        }
        Operator::MemoryCopy { .. } | Operator::MemoryFill { .. } | Operator::MemoryInit { .. } => {
            push(OpKind::ChargeBulk);
            push(OpKind::Wasm(operator));
        }
        Operator::TableCopy {
            dst_table: table, ..
        }
        | Operator::TableFill { table }
        | Operator::TableInit { table, .. } => {
            push(OpKind::ChargeBulk);
            push(OpKind::Wasm(operator));
            reader.module.tables[table as usize].mutable = true;
        }
        Operator::TableSet { table } | Operator::TableGrow { table } => {
            push(OpKind::Wasm(operator));
            reader.module.tables[table as usize].mutable = true;
        }
        other => push(OpKind::Wasm(other)),
    }
    Ok(())
}

fn state(reader: &Reader<'_, '_>, index: u32) -> Option<(u32, wasmparser::ValType)> {
    match reader.module.globals[index as usize] {
        Global::State { offset, ty, .. } => Some((offset, ty)),
        Global::Constant(_) => None,
    }
}
