//! The small program around a promoted handler that needs no interface: for
//! trials, measurements and tests.
//!
//! It does what an [`instance`](crate::instance) does before and after the
//! handler, without paths, locks and counters. What would be a frame's headers
//! carries numbers instead: length and place of the message in, and what came
//! of it out. [`frame`] and [`outcome`] are the other side of that.
//!
//! ```text
//! 0    length of the message     u32, in and out
//! 4    place of the message      u32, in: HEADER_BYTES
//! 8    verdict                   u32, out; u32::MAX if the handler was stopped
//! 12   cause                     u32, out; 0 if it was not
//! 16   where in the Wasm file    u32, out
//! 20   message changed           u32, out
//! 24   fuel left                 i64, out
//! 64   the message
//! ```

use ashway_abi::memory::{Layout, STATE_GUEST_PAGES, WASM_PAGE};
use ashway_abi::{Cause, context};

use crate::hook::{self, Action};
use crate::normalise::Module;
use crate::normalise::ir::{FileOffset, Global};
use crate::parts;
use crate::promote::{self, PromoteError, Shape, Summary};
use Reg::{R0, R1, R2, R3, R6, R7, R9, R10};
use ashway_abi::MemoryKind;
use ashway_check::bpf::{Assembler, Field, Hook, Image, Label, MapRef, Reg, Size, op};

/// Bytes before the message.
pub const HEADER_BYTES: usize = 64;

/// Longest message a frame has room for, in bytes: a page without the kernel's
/// headroom (256) and tail (320), our header and the padding.
pub const MESSAGE_BYTES: usize = 4096 - 256 - 320 - HEADER_BYTES - PADDING;

/// Bytes behind the message, as a short Ethernet frame has them: the handler
/// must not see them.
const PADDING: usize = 16;

/// Longest frame, in bytes.
pub const FRAME_BYTES: usize = HEADER_BYTES + MESSAGE_BYTES + PADDING;

/// What is behind the message.
const PAD: u8 = 0xcc;

/// What the program returns when it has run: the frame says the rest. Anything
/// else means that the frame was not one of [`frame`]'s.
pub const RETURNED: u32 = Action::Pass.code(Hook::Xdp) as u32;

/// Stack: the `md` pointer and what else [`promote`] wants.
const MD: i16 = -8;
const PAYLOAD: i16 = -16;
const END: i16 = -24;
const MEMORY: i16 = -32;

/// Places in the frame.
const LEN: i16 = 0;
const VERDICT: i16 = 8;
const CAUSE: i16 = 12;
const AT: i16 = 16;
const DIRTY: i16 = 20;
const FUEL: i16 = 24;

/// Generates a program that runs the handler of `shape` on frames made by
/// [`frame`]. `cpus` contexts there are, one for each possible CPU.
///
/// Takes time and memory in proportion to the functions the handler reaches.
///
/// # Errors
///
/// [`PromoteError`] if the handler has something that cannot be translated.
pub fn generate(shape: &Shape<'_>, cpus: u32) -> Result<(Image, Summary), PromoteError> {
    generate_around(shape, cpus, |_| (), |_| ())
}

/// As [`generate`], with code of the caller's before and after the handler, to
/// measure it: `r9` is the context, and `r0`-`r5` are free.
///
/// # Errors
///
/// As [`generate`].
pub fn generate_around(
    shape: &Shape<'_>,
    cpus: u32,
    before: impl FnOnce(&mut Assembler),
    after: impl FnOnce(&mut Assembler),
) -> Result<(Image, Summary), PromoteError> {
    let mut asm = Assembler::new();
    let (done, trap) = (asm.label(), asm.label());
    let looks = promote::Looks::new(&mut asm);
    prologue(&mut asm, shape, cpus);
    before(&mut asm);
    let summary = promote::emit(&mut asm, shape, done, trap, looks)?;
    asm.line(None);
    epilogue(&mut asm, done, trap, after);
    looks.emit(&mut asm, &shape.budget);
    Ok((asm.finish(), summary))
}

/// Sets up what promoted code relies on ([`promote`]'s contract).
fn prologue(asm: &mut Assembler, shape: &Shape<'_>, cpus: u32) {
    let (kind, budget) = (shape.memory, shape.budget);
    let (fail, good) = (asm.label(), asm.label());
    asm.mov(R6, R1);
    parts::find_context(asm, cpus, fail);
    asm.store(Size::D, R10, MD, R6);
    header(asm, fail);
    asm.load(Size::W, R3, R1, 0);
    asm.store(Size::W, R9, context::PAYLOAD_LEN, R3);
    if shape.module.resizes() {
        asm.alu_imm(op::ADD, R3, shape.module.grows as i32);
        asm.store(Size::W, R9, context::MOST_LEN, R3);
    }
    // Where the message is comes from the frame, so that the verifier does not
    // know more about it than it does about a real one's.
    asm.load(Size::W, R3, R1, 4);
    asm.store(Size::W, R9, context::PAYLOAD_OFF, R3);
    match kind {
        MemoryKind::Arena => asm.jump_if_imm(op::JLE, R3, 2 * HEADER_BYTES as i32, good),
        // Without CAP_PERFMON a packet pointer moves only by constants.
        MemoryKind::Array => asm.jump_if_imm(op::JEQ, R3, HEADER_BYTES as i32, good),
    }
    asm.bind(fail);
    hook::finish(asm, Action::Drop);
    asm.bind(good);
    match kind {
        MemoryKind::Arena => asm.alu(op::ADD, R1, R3),
        MemoryKind::Array => asm.alu_imm(op::ADD, R1, HEADER_BYTES as i32),
    }
    asm.store(Size::D, R10, PAYLOAD, R1);
    asm.store(Size::D, R10, END, R2);
    match kind {
        MemoryKind::Array => {
            asm.map(R1, MapRef::Memory, Some(0));
            asm.store(Size::D, R10, MEMORY, R1);
        }
        // The program must name its arena.
        MemoryKind::Arena => asm.map(R1, MapRef::Memory, None),
    }
    let slice = budget.first();
    asm.load_imm(R1, slice);
    asm.store(Size::D, R9, context::FUEL, R1);
    asm.load_imm(R1, budget.fuel - slice);
    asm.store(Size::D, R9, context::RESERVE, R1);
    asm.store_imm(Size::D, R9, context::DEADLINE, 0);
    asm.store_imm(Size::D, R9, context::GRACE, 0);
    asm.store_imm(Size::D, R9, context::BULK, promote::FIRST_TICKS);
    if shape.module.logs() {
        promote::begin_log(asm);
    }
    for field in [context::DIRTY, context::CAUSE, context::AT, context::STACK] {
        asm.store_imm(Size::W, R9, field, 0);
    }
}

/// What came of it into the frame.
fn epilogue(asm: &mut Assembler, done: Label, trap: Label, after: impl FnOnce(&mut Assembler)) {
    let fail = asm.label();
    asm.bind(trap);
    asm.mov_imm(R0, -1);
    asm.bind(done);
    asm.mov(R7, R0);
    after(asm);
    asm.load(Size::D, R6, R10, MD);
    asm.mov(R3, R7);
    header(asm, fail);
    asm.store(Size::W, R1, VERDICT, R3);
    for (place, field) in [
        (LEN, context::PAYLOAD_LEN),
        (CAUSE, context::CAUSE),
        (AT, context::AT),
        (DIRTY, context::DIRTY),
    ] {
        asm.load(Size::W, R2, R9, field);
        asm.store(Size::W, R1, place, R2);
    }
    asm.load(Size::D, R2, R9, context::FUEL);
    asm.load(Size::D, R3, R9, context::RESERVE);
    asm.alu(op::ADD, R2, R3);
    asm.store(Size::D, R1, FUEL, R2);
    hook::finish(asm, Action::Pass);
    asm.bind(fail);
    hook::finish(asm, Action::Drop);
}

/// `r1` = the frame's header, known to the verifier to be there, `r2` =
/// `data_end`, from `md` in `r6`. Clobbers `r0`.
fn header(asm: &mut Assembler, fail: Label) {
    asm.field(R1, R6, Field::Data);
    asm.field(R2, R6, Field::DataEnd);
    asm.mov(R0, R1);
    asm.alu_imm(op::ADD, R0, HEADER_BYTES as i32);
    asm.jump_if(op::JGT, R0, R2, fail);
}

/// The frame for a message. The kernel takes messages of at most
/// [`MESSAGE_BYTES`]. Allocates.
#[must_use]
pub fn frame(message: &[u8]) -> Vec<u8> {
    frame_with_room(message, 0)
}

/// The same for a message that its handler makes longer by so many bytes at most
/// ([`Module::grows`]); they count as the message's.
#[must_use]
pub fn frame_with_room(message: &[u8], grows: u32) -> Vec<u8> {
    let mut frame = vec![0; HEADER_BYTES];
    frame[..4].copy_from_slice(&(message.len() as u32).to_le_bytes());
    frame[4..8].copy_from_slice(&(HEADER_BYTES as u32).to_le_bytes());
    frame.extend_from_slice(message);
    frame.resize(frame.len() + grows as usize + PADDING, PAD);
    frame
}

/// The same with bytes in front of the message, as far as there is room for them beside
/// what the program needs to know: the last 56. Allocates.
#[must_use]
pub fn frame_behind(front: &[u8], message: &[u8], grows: u32) -> Vec<u8> {
    const ROOM: usize = HEADER_BYTES - 8;
    let front = &front[front.len().saturating_sub(ROOM)..];
    let mut frame = frame_with_room(message, grows);
    frame[HEADER_BYTES - front.len()..HEADER_BYTES].copy_from_slice(front);
    frame
}

/// What a run left in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome<'f> {
    /// The number that the handler returned, or cause and place of its stop.
    pub result: Result<u32, (Cause, FileOffset)>,
    /// Whether it changed the message.
    pub dirty: bool,
    /// Fuel that was not used; negative when it ran out.
    pub fuel_left: i64,
    /// The message as it is now, also if the handler was stopped.
    pub message: &'f [u8],
}

/// Reads what a run left in a frame of [`frame`]'s; `None` if it is none, or
/// the bytes behind the message have changed.
#[must_use]
pub fn outcome(frame: &[u8]) -> Option<Outcome<'_>> {
    let word = |at: i16| {
        let bytes = frame.get(at as usize..at as usize + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    };
    let room = frame.get(HEADER_BYTES..frame.len().checked_sub(PADDING)?)?;
    if frame[HEADER_BYTES + room.len()..] != [PAD; PADDING] {
        return None;
    }
    let message = room.get(..word(LEN)? as usize)?;
    let result = match Cause::from_number(word(CAUSE)?) {
        None => Ok(word(VERDICT)?),
        Some(cause) => Err((cause, word(AT)?)),
    };
    let fuel_left = u64::from(word(FUEL)?) | u64::from(word(FUEL + 4)?) << 32;
    Some(Outcome {
        result,
        dirty: word(DIRTY)? != 0,
        fuel_left: fuel_left as i64,
        message,
    })
}

/// Where the regions of a memory lie that has no endpoint: guest and state.
#[must_use]
pub fn layout(module: &Module<'_>) -> Layout {
    let guest_bytes = module.maximum_pages as usize * WASM_PAGE;
    Layout::without_endpoint(guest_bytes, module.state_bytes)
}

/// The memory of [`layout`] before the first activation and before the start
/// function: active segments, globals, tables and passive segments. Allocates.
#[must_use]
pub fn first_memory(module: &Module<'_>) -> Vec<u8> {
    let layout = layout(module);
    let mut memory = vec![0; layout.total_bytes()];
    for data in &module.data {
        memory[data.offset as usize..][..data.bytes.len()].copy_from_slice(data.bytes);
    }
    let state = &mut memory[layout.state_offset()..];
    let mut put = |at: usize, bytes: &[u8]| state[at..][..bytes.len()].copy_from_slice(bytes);
    put(STATE_GUEST_PAGES, &module.initial_pages.to_le_bytes());
    for data in &module.state {
        put(data.at as usize, &data.bytes);
    }
    for global in &module.globals {
        if let Global::State {
            offset, initial, ..
        } = global
        {
            put(*offset as usize, &initial.to_le_bytes());
        }
    }
    memory
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_read_back_and_its_end_is_watched() {
        let mut bytes = frame(b"seven bytes");
        bytes[8] = 3;
        bytes[20] = 1;
        bytes[24..32].copy_from_slice(&(-5_i64).to_le_bytes());
        let expected = Outcome {
            result: Ok(3),
            dirty: true,
            fuel_left: -5,
            message: b"seven bytes",
        };
        assert_eq!(outcome(&bytes), Some(expected));
        bytes[12] = Cause::Fuel as u8;
        bytes[16] = 9;
        assert_eq!(outcome(&bytes).unwrap().result, Err((Cause::Fuel, 9)));
        let last = bytes.len() - 1;
        bytes[last] = 0;
        assert_eq!(outcome(&bytes), None, "written behind the message");
        assert_eq!(outcome(&bytes[..70]), None);
    }
}
