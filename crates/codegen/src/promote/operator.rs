//! One operation to the part that translates it.

use super::PromoteError;
use super::emitter::Emitter;
use super::error::{CodePlace, operator_name};
use super::frame::is_wide;
use super::stack::At;
use crate::normalise::ir::{Global, Op, OpKind};
use ashway_abi::Cause;
use wasmparser::{Operator, ValType};

impl<'e> Emitter<'e> {
    /// Translates what can be reached.
    pub(super) fn operator(&mut self, op: &'e Op<'e>) -> Result<(), PromoteError> {
        match &op.kind {
            OpKind::Wasm(operator) => return self.wasm(operator),
            OpKind::Charge { cost } => self.charge(*cost),
            OpKind::ChargeBulk => self.charge_bulk(),
            OpKind::Host(call) if !call.in_kernel_tier() => {
                return Err(PromoteError::UserTierOnly {
                    place: CodePlace::new(self.at, &self.shape.module.lines),
                    call: call.name(),
                });
            }
            OpKind::Host(call) => self.host(*call),
            OpKind::StateGet { offset, ty } => self.state_get(*offset, is_wide(*ty)),
            OpKind::StateSet { offset, ty } => self.state_set(*offset, is_wide(*ty)),
            OpKind::Trap(cause) => {
                let trap = self.trap(*cause);
                self.asm.jump(trap);
                self.stop();
            }
            OpKind::WordGet(words) => self.word_get(words),
            OpKind::WordSet(words) => self.word_set(words),
            OpKind::Pipe { call, list } => return self.pipe(*call, *list),
            OpKind::CallNumber { type_index } => self.call_number(*type_index),
            OpKind::StateCopy => self.park(Self::state_copy),
            OpKind::Push { slots } => self.push_frame(*slots)?,
            OpKind::Pop { slots } => self.pop_frame(*slots),
        }
        Ok(())
    }

    fn wasm(&mut self, operator: &'e Operator<'e>) -> Result<(), PromoteError> {
        use Operator as O;
        match operator {
            O::Nop => {}
            O::Unreachable => {
                let trap = self.trap(Cause::Unreachable);
                self.asm.jump(trap);
                self.stop();
            }
            O::Block { blockty } => self.block(*blockty),
            O::Loop { blockty } => self.loop_block(*blockty),
            O::If { blockty } => self.if_block(*blockty),
            O::Else => self.else_arm(),
            O::End => self.end(),
            O::Br { relative_depth } => self.br(*relative_depth),
            O::BrIf { relative_depth } => self.br_if(*relative_depth),
            O::BrTable { targets } => self.br_table(targets),
            O::Return => self.return_now(),
            O::Call { function_index } => self.call(*function_index),
            O::CallIndirect {
                type_index,
                table_index,
            } => self.call_indirect(*type_index, *table_index),
            O::Drop => {
                let entry = self.pop();
                self.discard(entry);
            }
            O::Select
            | O::TypedSelect {
                ty: ValType::I32 | ValType::I64,
            } => self.select(),
            O::LocalGet { local_index } => {
                let wide = self.layout().locals[*local_index as usize].wide;
                self.push(At::Local(*local_index), wide);
            }
            O::LocalSet { local_index } => self.set_local(*local_index),
            O::LocalTee { local_index } => self.tee_local(*local_index),
            O::GlobalGet { global_index } => {
                match self.shape.module.globals[*global_index as usize] {
                    Global::Constant(constant)
                        if matches!(constant.ty, ValType::I32 | ValType::I64) =>
                    {
                        self.push(At::Const(constant.bits), is_wide(constant.ty));
                    }
                    _ => return Err(self.no_counterpart(operator)),
                }
            }
            _ if self.integer(operator) || self.memory(operator) || self.atomic(operator) => {}
            _ => return Err(self.no_counterpart(operator)),
        }
        Ok(())
    }

    fn no_counterpart(&self, operator: &Operator<'_>) -> PromoteError {
        PromoteError::NoCounterpart {
            place: CodePlace::new(self.at, &self.shape.module.lines),
            op: operator_name(operator),
        }
    }
}
