//! The small program around a copy that needs no interface: for tests and
//! measurements.
//!
//! A frame begins with numbers instead of headers, as [`frame`] makes it:
//!
//! ```text
//! 0    bytes to copy                        u32
//! 4    place of the message in the frame    u32: HEADER_BYTES
//! 8    where in memory it goes              u32
//! 16   the message
//! ```
//!
//! The list's registers are at [`REGISTERS`] of the memory, an arena.

use super::{CopyPlaces, KernelList, MemoryAt, Transfer};
use crate::hook::{self, Action};
use crate::parts;
use Reg::{R0, R1, R2, R3, R6, R7, R8, R9, R10};
use ashway_abi::context;
use ashway_check::bpf::{Assembler, Field, Hook, Image, MapRef, Reg, Size, op};

/// Bytes before the message.
pub const HEADER_BYTES: usize = 16;

/// Where the list's registers are in memory.
pub const REGISTERS: usize = 0;

/// Where the message goes; as many bytes as a frame can have lie behind it.
pub const DESTINATION: usize = 4096;

/// Bytes of the memory.
pub const MEMORY_BYTES: usize = 64 * 1024;

/// What the program returns when it has copied.
pub const COPIED: u32 = Action::Pass.code(Hook::Xdp) as u32;

const PAYLOAD: i16 = -8;
const END: i16 = -16;

/// What one program does.
#[derive(Clone, Copy, Debug)]
pub enum Work<'l> {
    /// Nothing: what running any program costs.
    Nothing,
    /// The first copies; the others, which must modify nothing, read the message again.
    Passes(&'l [KernelList]),
}

/// The program, for contexts of `cpus` CPUs.
#[must_use]
pub fn program(work: Work<'_>, cpus: u32) -> Image {
    let mut asm = Assembler::new();
    let (fail, good) = (asm.label(), asm.label());
    asm.mov(R6, R1);
    parts::find_context(&mut asm, cpus, fail);
    asm.field(R1, R6, Field::Data);
    asm.field(R2, R6, Field::DataEnd);
    asm.mov(R0, R1);
    asm.alu_imm(op::ADD, R0, HEADER_BYTES as i32);
    asm.jump_if(op::JGT, R0, R2, fail);
    asm.store(Size::D, R10, END, R2);
    asm.load(Size::W, R3, R1, 0);
    asm.load(Size::W, R7, R1, 4);
    asm.load(Size::W, R8, R1, 8);
    // More than is known of a real message's place, the verifier must not know.
    asm.jump_if_imm(op::JLE, R7, 2 * HEADER_BYTES as i32, good);
    asm.bind(fail);
    hook::finish(&mut asm, Action::Drop);
    asm.bind(good);
    asm.alu(op::ADD, R1, R7);
    asm.store(Size::D, R10, PAYLOAD, R1);
    // The program must name its arena.
    asm.map(R1, MapRef::Memory, None);
    if let Work::Passes(lists) = work {
        let mut places = CopyPlaces {
            registers: REGISTERS as u32,
            scratch: context::FRAMES,
            payload: PAYLOAD,
            end: END,
            way: Transfer::Read,
            memory: MemoryAt::Arena,
            writes: true,
            tick: None,
        };
        let (to, len) = (COPY_ARGS, COPY_ARGS + 8);
        asm.store(Size::D, R9, to, R8);
        asm.store(Size::D, R9, len, R3);
        for list in lists {
            asm.load(Size::D, R1, R9, to);
            asm.mov_imm(R2, 0);
            asm.load(Size::D, R3, R9, len);
            list.emit(&mut asm, places, fail);
            places.writes = false;
        }
    }
    hook::finish(&mut asm, Action::Pass);
    asm.finish()
}

/// In the context, behind the copy's scratch: destination and length.
const COPY_ARGS: i16 = context::FRAMES + super::SCRATCH_BYTES as i16;

/// The frame for a message. Allocates.
#[must_use]
pub fn frame(message: &[u8], destination: u32) -> Vec<u8> {
    let numbers = [message.len() as u32, HEADER_BYTES as u32, destination, 0];
    let mut frame = numbers.map(u32::to_le_bytes).concat();
    frame.extend_from_slice(message);
    frame
}
