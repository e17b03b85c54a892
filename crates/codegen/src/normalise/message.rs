//! Message access in Wasm: a check against the message's length, then a load
//! or store on the message memory.
//!
//! What reads has a signed offset and may reach in front of the message, where
//! the frame's headers are.
//!
//! The check is a branch, which a processor may pass before it knows (Spectre, variant 1),
//! and other messages lie in the same memory. So the offset is chosen by the check, too: an
//! access beyond the message is one of its beginning until the trap.

use super::expand::{
    DIRTY, Expander, MEMORY, MESSAGE, MESSAGE_AT, MESSAGE_FRONT, MESSAGE_LEN, MESSAGE_MOST,
};
use super::ir::FileOffset;
use crate::bug::{self, Bug};
use ashway_abi::{Cause, HostCall, resize};
use wasm_encoder::{BlockType, MemArg, MemArgTarget, ValType};

impl Expander<'_> {
    /// Any message access.
    pub(super) fn message(&mut self, call: HostCall, place: FileOffset) {
        match call {
            HostCall::Read => self.read(place),
            HostCall::Write => self.write(place),
            _ => match Access::of(call) {
                Access {
                    load: true,
                    bytes,
                    swap,
                } => self.load(bytes, swap, place),
                Access {
                    load: false,
                    bytes,
                    swap,
                } => self.store(bytes, swap, place),
            },
        }
    }

    /// Traps unless `at + len <= message_len`, in 64 bits so that nothing
    /// wraps; the i64 `len` is on the stack, `at` in its temporary, where it becomes the
    /// address.
    fn check_message(&mut self, place: FileOffset) {
        let at = self.at;
        self.ins()
            .local_get(at)
            .i64_extend_i32_u()
            .i64_add()
            .global_get(MESSAGE_LEN)
            .i64_extend_i32_u()
            .i64_gt_u();
        self.address(place);
    }

    /// Traps unless the signed `at + len` is within message and headers; the i64
    /// `len` is on the stack, `at` in its temporary, where it becomes the address.
    fn check_frame(&mut self, place: FileOffset) {
        let at = self.at;
        self.ins()
            .local_get(at)
            .i64_extend_i32_s()
            .i64_add()
            .global_get(MESSAGE_LEN)
            .i64_extend_i32_u()
            .i64_gt_s()
            .local_get(at)
            .i32_const(0)
            .global_get(MESSAGE_FRONT)
            .i32_sub()
            .i32_lt_s()
            .i32_or();
        self.address(place);
    }

    /// Traps if the i32 on the stack, which says whether an access goes beyond the message, is
    /// not 0; makes `at` the address in the memory of messages.
    fn address(&mut self, place: FileOffset) {
        let (at, beyond) = (self.at, self.beyond);
        self.ins().local_tee(beyond);
        self.trap_if(Cause::MessageBounds, place);
        self.nothing_beyond(at);
        self.ins()
            .local_get(at)
            .global_get(MESSAGE_AT)
            .i32_add()
            .local_set(at);
    }

    /// Makes a local 0 if the last check failed, for a processor that has passed it.
    fn nothing_beyond(&mut self, local: u32) {
        let beyond = self.beyond;
        if bug::is(Bug::Speculated) {
            return;
        }
        self.ins()
            .i32_const(0)
            .local_get(local)
            .local_get(beyond)
            .select()
            .local_set(local);
    }

    pub(super) fn dirty(&mut self) {
        self.ins().i32_const(1).global_set(DIRTY);
    }

    fn load(&mut self, bytes: u32, swap: bool, place: FileOffset) {
        let at = self.at;
        self.ins().local_set(at).i64_const(i64::from(bytes));
        self.check_frame(place);
        self.ins().local_get(at);
        let memarg = anywhere();
        match bytes {
            1 => self.ins().i32_load8_u(memarg),
            2 => self.ins().i32_load16_u(memarg),
            4 => self.ins().i32_load(memarg),
            _ => self.ins().i64_load(memarg),
        };
        if swap {
            self.swap(bytes);
        }
    }

    fn store(&mut self, bytes: u32, swap: bool, place: FileOffset) {
        let (at, value, wide) = (self.at, self.value, self.wide);
        let operand = if bytes == 8 { wide } else { value };
        self.ins()
            .local_set(operand)
            .local_set(at)
            .i64_const(i64::from(bytes));
        self.check_message(place);
        self.ins().local_get(at).local_get(operand);
        if swap {
            self.swap(bytes);
        }
        let memarg = anywhere();
        match bytes {
            1 => self.ins().i32_store8(memarg),
            2 => self.ins().i32_store16(memarg),
            4 => self.ins().i32_store(memarg),
            _ => self.ins().i64_store(memarg),
        };
        self.dirty();
    }

    /// Reverses the bytes of the value on the stack. Of a 16-bit value, what
    /// is above its 16 bits is lost.
    fn swap(&mut self, bytes: u32) {
        let value = self.value;
        if bytes == 8 {
            self.swap_groups(0x00ff_00ff_00ff_00ff, 8);
            self.swap_groups(0x0000_ffff_0000_ffff, 16);
            self.ins().i64_const(32).i64_rotl();
            return;
        }
        match bytes {
            2 => self
                .ins()
                .local_tee(value)
                .i32_const(0xff)
                .i32_and()
                .i32_const(8)
                .i32_shl()
                .local_get(value)
                .i32_const(8)
                .i32_shr_u()
                .i32_const(0xff)
                .i32_and()
                .i32_or(),
            _ => self
                .ins()
                .local_tee(value)
                .i32_const(8)
                .i32_rotl()
                .i32_const(0x00ff_00ff)
                .i32_and()
                .local_get(value)
                .i32_const(8)
                .i32_rotr()
                .i32_const(0xff00_ff00_u32 as i32)
                .i32_and()
                .i32_or(),
        };
    }

    /// Exchanges neighbouring groups of `bits` bits; `mask` picks the low one
    /// of each pair.
    fn swap_groups(&mut self, mask: i64, bits: i64) {
        let wide = self.wide;
        self.ins()
            .local_tee(wide)
            .i64_const(mask)
            .i64_and()
            .i64_const(bits)
            .i64_shl()
            .local_get(wide)
            .i64_const(bits)
            .i64_shr_u()
            .i64_const(mask)
            .i64_and()
            .i64_or();
    }

    /// Takes offset, address and length into their temporaries. The copy itself checks the
    /// memory's side.
    fn bulk_operands(&mut self) {
        let (at, pointer, value) = (self.at, self.pointer, self.value);
        self.ins().local_set(value).local_set(pointer).local_set(at);
    }

    /// Traps unless the message has `value` bytes at `at`, which becomes the address.
    pub(super) fn check_bulk(&mut self, place: FileOffset) {
        let value = self.value;
        self.ins().local_get(value).i64_extend_i32_u();
        self.check_message(place);
        self.length();
    }

    /// No processor copies more than the message has, either. A short constant stays one: such
    /// a copy is a few instructions, not a call.
    fn length(&mut self) {
        if !self.short {
            self.nothing_beyond(self.value);
        }
    }

    fn read(&mut self, place: FileOffset) {
        self.bulk_operands();
        let (at, pointer, value) = (self.at, self.pointer, self.value);
        self.ins().local_get(value).i64_extend_i32_u();
        self.check_frame(place);
        self.length();
        self.ins()
            .local_get(pointer)
            .local_get(at)
            .local_get(value)
            .memory_copy(MEMORY, MESSAGE);
    }

    fn write(&mut self, place: FileOffset) {
        self.bulk_operands();
        self.check_bulk(place);
        let (at, pointer, value) = (self.at, self.pointer, self.value);
        self.ins()
            .local_get(at)
            .local_get(pointer)
            .local_get(value)
            .memory_copy(MESSAGE, MEMORY);
        self.dirty();
    }
}

impl Expander<'_> {
    /// `msg_resize(len)`: what the message gains is 0.
    pub(super) fn resize(&mut self) {
        let value = self.value;
        self.ins().local_set(value);
        self.ins().block(BlockType::Result(ValType::I32));
        self.ins().i32_const(resize::NO_ROOM as i32);
        self.ins().local_get(value).global_get(MESSAGE_MOST);
        self.ins().i32_gt_u().br_if(0).drop();
        // A processor that has passed the check has no longer a message for it.
        self.ins().local_get(value).global_get(MESSAGE_MOST);
        self.ins().local_get(value).global_get(MESSAGE_MOST);
        self.ins().i32_lt_u().select().local_set(value);

        self.ins().local_get(value).global_get(MESSAGE_LEN);
        self.ins().i32_gt_u().if_(BlockType::Empty);
        self.ins().global_get(MESSAGE_LEN);
        self.ins().global_get(MESSAGE_AT).i32_add();
        self.ins().i32_const(0);
        self.ins().local_get(value).global_get(MESSAGE_LEN);
        self.ins().i32_sub().memory_fill(MESSAGE).end();

        self.ins().local_get(value).global_set(MESSAGE_LEN);
        self.dirty();
        self.ins().i32_const(resize::DONE as i32).end();
    }
}

/// A message access of fixed width.
struct Access {
    load: bool,
    bytes: u32,
    /// Whether it is big-endian; Wasm is little-endian.
    swap: bool,
}

impl Access {
    fn of(call: HostCall) -> Self {
        use HostCall as H;
        let (load, bytes, swap) = match call {
            H::Load8 => (true, 1, false),
            H::Load16Le => (true, 2, false),
            H::Load16Be => (true, 2, true),
            H::Load32Le => (true, 4, false),
            H::Load32Be => (true, 4, true),
            H::Load64Le => (true, 8, false),
            H::Load64Be => (true, 8, true),
            H::Store8 => (false, 1, false),
            H::Store16Le => (false, 2, false),
            H::Store16Be => (false, 2, true),
            H::Store32Le => (false, 4, false),
            H::Store32Be => (false, 4, true),
            H::Store64Le => (false, 8, false),
            H::Store64Be => (false, 8, true),
            _ => unreachable!("no access of fixed width"),
        };
        Self { load, bytes, swap }
    }
}

/// An address in the memory of messages; no alignment is promised.
const fn anywhere() -> MemArg {
    MemArg {
        offset: 0,
        align: 0,
        target: MemArgTarget::Memory(MESSAGE),
        ordering: None,
    }
}
