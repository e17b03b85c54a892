//! One function's body: checking it, and rewriting it into [`Op`]s.
//!
//! Rewriting begins when the whole file is known: whether a table is stored
//! depends on what any function does with it. Charges are put in here with
//! cost 0; what they take is [`fuel`](super::fuel)'s to say.

use super::error::NormaliseError;
use super::ir::{FileOffset, Function, Global, Op, OpKind};
use super::limits::Limits;
use super::read::{Reader, unsupported, within};
use super::references::{as_number, block_type, of_function};
use super::state::{Segments, Uses};
use super::tables::{MOST_OPERANDS, Scratch};
use crate::bug::{self, Bug};
use ashway_abi::{Cause, HostCall};
use wasmparser::{FuncValidator, FunctionBody, Operator, ValType, WasmModuleResources};

/// A body that has been validated.
pub(super) struct Body<'a> {
    code: FunctionBody<'a>,
    /// Operands on the stack at most, in the author's form.
    height: u32,
    pub(super) operators: usize,
}

/// Validates a body. Locals are counted without making them: a file of 20
/// bytes can declare 2^32.
pub(super) fn check<'a>(
    body: FunctionBody<'a>,
    validator: &mut FuncValidator<impl WasmModuleResources>,
    limits: &Limits,
    operators: &mut usize,
    uses: &mut Uses,
) -> Result<Body<'a>, NormaliseError> {
    let mut total = 0_u64;
    for group in body.get_locals_reader()? {
        let (count, _) = group?;
        total += u64::from(count);
        within("locals in a function", total as usize, limits.locals)?;
    }
    validator.read_locals(&mut body.get_binary_reader())?;
    let mut reader = body.get_operators_reader()?;
    let (mut height, mut nesting) = (0, 0_u32);
    let before = *operators;
    while !reader.eof() {
        let (operator, at) = reader.read_with_offset()?;
        *operators += 1;
        within("operators", *operators, limits.operators)?;
        match operator {
            Operator::Block { .. } | Operator::Loop { .. } | Operator::If { .. } => {
                nesting += 1;
                within("nested blocks", nesting as usize, limits.nesting)?;
            }
            Operator::End => nesting = nesting.saturating_sub(1),
            _ => {}
        }
        validator.op(at, &operator)?;
        height = height.max(validator.operand_stack_height());
        uses.add(&operator);
    }
    reader.finish()?;
    Ok(Body {
        code: body,
        height,
        operators: *operators - before,
    })
}

/// What operators become; one on tables becomes some seventy.
pub(super) const OPERATIONS: &str = "operations of the normal form";

/// Writes one body in normal form.
pub(super) struct Lowering<'r, 'a> {
    pub(super) reader: &'r Reader<'a, 'r>,
    segments: &'r Segments,
    code: Vec<Op<'a>>,
    /// Functions named by `ref.func`.
    referenced: Vec<u32>,
    at: FileOffset,
    /// Index of the first scratch local.
    scratch: u32,
    /// Whether there are any.
    scratched: bool,
}

/// A function in normal form, charges still empty.
pub(super) struct Lowered<'a> {
    pub(super) function: Function<'a>,
    /// Operands on the stack at most.
    pub(super) height: u32,
    /// Functions named by `ref.func`.
    pub(super) referenced: Vec<u32>,
}

/// Rewrites a body of a function of this type.
pub(super) fn rewrite<'a>(
    reader: &Reader<'a, '_>,
    segments: &Segments,
    body: &Body<'a>,
    type_index: u32,
) -> Result<Lowered<'a>, NormaliseError> {
    let mut locals = Vec::new();
    for group in body.code.get_locals_reader()? {
        let (count, ty) = group?;
        locals.extend(std::iter::repeat_n(as_number(ty), count as usize));
    }
    let params = reader.module.types[type_index as usize].params().len();
    let mut lowering = Lowering {
        reader,
        segments,
        code: Vec::with_capacity(body.operators),
        referenced: Vec::new(),
        at: 0,
        scratch: (params + locals.len()) as u32,
        scratched: false,
    };
    let mut operators = body.code.get_operators_reader()?;
    while !operators.eof() {
        let (operator, at) = operators.read_with_offset()?;
        lowering.at = at as u32;
        lowering.operator(operator)?;
        within(OPERATIONS, lowering.code.len(), reader.limits.operations())?;
    }
    let mut height = body.height;
    if lowering.scratched {
        locals.extend([ValType::I32; Scratch::ALL as usize]);
        height += MOST_OPERANDS;
    }
    Ok(Lowered {
        function: Function {
            name: None,
            type_index,
            locals,
            code: lowering.code,
            at: body.code.range().start as u32,
        },
        height,
        referenced: lowering.referenced,
    })
}

impl<'a> Lowering<'_, 'a> {
    fn operator(&mut self, operator: Operator<'a>) -> Result<(), NormaliseError> {
        match operator {
            Operator::Call { function_index } => self.call(function_index),
            Operator::CallIndirect {
                type_index,
                table_index,
            } if self.is_stored(table_index) => {
                self.table_get(table_index, Cause::IndirectCall);
                self.push(OpKind::CallNumber { type_index });
            }
            Operator::Block { blockty } => self.wasm(Operator::Block {
                blockty: block_type(blockty),
            }),
            Operator::If { blockty } => self.wasm(Operator::If {
                blockty: block_type(blockty),
            }),
            Operator::Loop { blockty } => {
                self.wasm(Operator::Loop {
                    blockty: block_type(blockty),
                });
                self.push(OpKind::Charge { cost: 0 });
            }
            Operator::TypedSelect { ty } => self.wasm(Operator::TypedSelect { ty: as_number(ty) }),
            Operator::GlobalGet { global_index } => self.global_get(global_index),
            Operator::GlobalSet { global_index } => self.global_set(global_index),
            Operator::RefNull { .. } => self.constant(0),
            Operator::RefIsNull => self.wasm(Operator::I32Eqz),
            Operator::RefFunc { function_index } => {
                let index = self.reader.own_function(function_index, self.at)?;
                self.referenced.push(index);
                self.constant(of_function(index));
            }
            Operator::TableGet { table } => self.table_get(table, Cause::TableBounds),
            Operator::TableSet { table } => self.table_set(table),
            Operator::TableSize { table } => self.table_size(table),
            Operator::TableGrow { table } => self.table_grow(table),
            Operator::TableFill { table } => self.table_fill(table),
            Operator::TableCopy {
                dst_table,
                src_table,
            } => self.table_copy(dst_table, src_table),
            Operator::TableInit { elem_index, table } => {
                self.table_init(table, self.segments.elements[elem_index as usize]);
            }
            Operator::ElemDrop { elem_index } => {
                self.drop_segment(self.segments.elements[elem_index as usize]);
            }
            Operator::MemoryInit { data_index, .. } => {
                self.memory_init(self.segments.data[data_index as usize]);
            }
            Operator::DataDrop { data_index } => {
                self.drop_segment(self.segments.data[data_index as usize]);
            }
            Operator::MemoryCopy { .. } | Operator::MemoryFill { .. } => {
                if !bug::is(Bug::BulkFree) {
                    self.push(OpKind::ChargeBulk);
                }
                self.wasm(operator);
            }
            // One activation of an instance at a time: there is nobody to
            // order accesses against but the application, whose accesses the
            // atomic operators themselves order.
            Operator::AtomicFence { .. } => {}
            Operator::MemoryAtomicNotify { .. }
            | Operator::MemoryAtomicWait32 { .. }
            | Operator::MemoryAtomicWait64 { .. } => {
                let what = "waiting and waking (`memory.atomic.wait`, `memory.atomic.notify`)";
                return unsupported(what, u64::from(self.at));
            }
            other => self.wasm(other),
        }
        Ok(())
    }

    fn call(&mut self, function_index: u32) {
        let imports = &self.reader.imports;
        let Some(&call) = imports.get(function_index as usize) else {
            let function_index = function_index - imports.len() as u32;
            return self.wasm(Operator::Call { function_index });
        };
        if call.uses_pipes() {
            return self.pipe(call);
        }
        if matches!(
            call,
            HostCall::Read | HostCall::Write | HostCall::Resize | HostCall::Log | HostCall::Send
        ) {
            self.push(OpKind::ChargeBulk);
        }
        self.push(OpKind::Host(call));
    }

    fn is_stored(&self, table: u32) -> bool {
        self.reader.module.tables[table as usize].place.is_some()
    }

    /// The state region holds integers; a float is there by its bits.
    fn global_get(&mut self, global_index: u32) {
        match self.reader.module.globals[global_index as usize] {
            Global::State { offset, ty, .. } => self.push(OpKind::StateGet { offset, ty }),
            Global::Constant(_) => return self.wasm(Operator::GlobalGet { global_index }),
        }
        match self.reader.global_types[global_index as usize] {
            ValType::F32 => self.wasm(Operator::F32ReinterpretI32),
            ValType::F64 => self.wasm(Operator::F64ReinterpretI64),
            _ => {}
        }
    }

    fn global_set(&mut self, global_index: u32) {
        match self.reader.global_types[global_index as usize] {
            ValType::F32 => self.wasm(Operator::I32ReinterpretF32),
            ValType::F64 => self.wasm(Operator::I64ReinterpretF64),
            _ => {}
        }
        let Global::State { offset, ty, .. } = self.reader.module.globals[global_index as usize]
        else {
            unreachable!("validation lets only mutable globals be set");
        };
        self.push(OpKind::StateSet { offset, ty });
    }

    pub(super) fn push(&mut self, kind: OpKind<'a>) {
        self.code.push(Op { kind, at: self.at });
    }

    pub(super) fn wasm(&mut self, operator: Operator<'a>) {
        self.push(OpKind::Wasm(operator));
    }

    pub(super) fn constant(&mut self, value: u32) {
        let value = value as i32;
        self.wasm(Operator::I32Const { value });
    }

    /// Takes the constant that the operator before this one has pushed, if it is one.
    /// (No branch leads here: what it leads to follows an `end`.)
    pub(super) fn take_constant(&mut self) -> Option<u32> {
        let last = self.code.last().map(|op| &op.kind);
        let Some(OpKind::Wasm(Operator::I32Const { value })) = last else {
            return None;
        };
        let value = *value as u32;
        self.code.pop();
        Some(value)
    }

    pub(super) fn get(&mut self, scratch: Scratch) {
        let local_index = self.local(scratch);
        self.wasm(Operator::LocalGet { local_index });
    }

    pub(super) fn set(&mut self, scratch: Scratch) {
        let local_index = self.local(scratch);
        self.wasm(Operator::LocalSet { local_index });
    }

    pub(super) fn tee(&mut self, scratch: Scratch) {
        let local_index = self.local(scratch);
        self.wasm(Operator::LocalTee { local_index });
    }

    /// Stops with `cause` if the `i32` on the stack is not 0.
    pub(super) fn trap_if(&mut self, cause: Cause) {
        self.wasm(Operator::If {
            blockty: wasmparser::BlockType::Empty,
        });
        self.push(OpKind::Trap(cause));
        self.wasm(Operator::End);
    }

    fn local(&mut self, scratch: Scratch) -> u32 {
        self.scratched = true;
        self.scratch + scratch as u32
    }
}
